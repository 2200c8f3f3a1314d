# The merge worker measures recall by itself once a scan has a target: first, and again when rows
# have come and gone.  Standbys and a server that crashed have what was measured.
use Gpugraph;
use Merging;

my $node = merging_node('aims', init => { allows_streaming => 1 }, conf => "autovacuum = off\n");
$node->sql(<<'SQL');
SELECT make_data('items', 3000, 24, 2);
SELECT make_data('more', 2000, 24, 3);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 6, intermediate_graph_degree = 12, seal_rows = 500);
SQL
my $replica = start_standby($node, 'replica');

# the list that a query takes under a target
sub ask
{
	my ($server, $target) = @_;

	return $server->sql(<<"SQL");
SET enable_seqscan = off;
SET gpugraph.engine = cpu;
SET gpugraph.target_recall = $target;
SELECT FROM items ORDER BY val <-> (SELECT val FROM items WHERE id = 7) LIMIT 10 \\g /dev/null
SELECT list();
SQL
}

# when recall was measured last
sub measured
{
	my ($server) = @_;

	return $server->sql(
		"SELECT recall_measured FROM gpugraph_indexes WHERE indexname = 'items_idx'");
}

# nobody has a target
is(ask($node, 0), 64, 'without a target gpugraph.itopk_size counts');
$node->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM more WHERE id <= 600');
ok_in_time(sub { merge_info($node, 'delta_rows') < 500 }, 'the worker merges');
is(measured($node), '', 'without a target nothing is measured');

# the first scan that has one asks for it
is(ask($node, .95), 64, 'nothing is known yet');
ok(defined wait_for(sub { return measured($node) ne ''; }, 400), 'the worker measures recall');
my $first = measured($node);
my $list = ask($node, .99);
cmp_ok(ask($node, .6), '<', $list, 'a higher target takes a longer list');
index_is_complete($node, 'measured');
is($node->sql("SELECT string_agg(recall_by, '') FROM gpugraph_indexes"), 'rows', 'by rows');

$node->wait_for_catchup($replica);
is(measured($replica), $first, 'a standby has the measurement');
is(ask($replica, .99), $list, 'and takes the same list');
is(ask($replica, .99), $list, 'also with the next query');

my ($rc, undef, $error) = $replica->psql('postgres', "SELECT gpugraph_calibrate('items_idx')");
like($error, qr/recovery/, 'a standby measures nothing');

# rows come, and are merged: nobody asks
$node->sql('INSERT INTO items SELECT id + 20000, cat, big, val FROM more');
ok(defined wait_for(sub { return measured($node) gt $first; }, 400), 'recall is measured anew');
is($node->sql('SELECT count(*) FROM gpugraph_stat_recall'), 1, 'the view has one row for a day');

# after a crash
my $before = measured($node);
$list = ask($node, .99);
$node->stop('immediate');
$node->start;
is(measured($node), $before, 'a crash leaves the measurement');
is(ask($node, .99), $list, 'and the list');
index_is_complete($node, 'crashed');

# a dump has no calibration, and what is restored is measured anew
$node->sql('CREATE DATABASE restored');
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-f', $dump, '-t', 'items', '-d', $node->connstr('postgres') ],
	'pg_dump');
$node->safe_psql('restored', 'CREATE EXTENSION gpugraph CASCADE');
$node->command_ok([ 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d',
		$node->connstr('restored') ], 'restored');
is($node->safe_psql('restored', "SELECT concat_ws(' ', recall IS NULL,
	gpugraph_calibrate('items_idx')) FROM gpugraph_indexes"), 't t', 'measured anew');

# a standby that is promoted goes on with what was measured
$node->wait_for_catchup($replica);
$before = measured($replica);
$node->stop;
$replica->promote;
is(measured($replica), $before, 'a promoted standby has the measurement');
is(ask($replica, .99), $list, 'and the list');
is($replica->sql("SELECT gpugraph_calibrate('items_idx')"), 't', 'and can be measured');
cmp_ok(measured($replica), 'gt', $before, 'which is stored');
index_is_complete($replica, 'promoted');
finish_test($replica);
