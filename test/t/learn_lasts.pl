# A sample lasts: background merges and builds learn from it again, kill -9 in the middle of a merge
# that learns, or before a learning session commits, leaves what was there, a standby gets sample
# and graph, and goes on with them when it is promoted, and a long call is cancelled.
use Gpugraph;
use Merging;

my $node = merging_node('lasting', init => { allows_streaming => 1 },
	conf => "restart_after_crash = on\ngpugraph.merge_workers = 0\n");
make_source($node, 3000, 16, 'seal_rows = 300, graph_degree = 16');
make_learn($node, 600);
my $replica = start_standby($node, 'replica');

sub samples
{
	my ($where, $index) = @_;
	$index //= 'items_idx';
	return $where->sql("SELECT sample_queries FROM gpugraph_index_info('$index')");
}

sub crash
{
	my ($what, $sql) = @_;
	my ($holder, $session, $pid) = start_held($node, $sql);

	ok($pid ne '', "$what: it rests before the flip");
	kill_9($node, $pid);
	ok(wait_until_up($node), "$what: the server is back");
	finish_psql($_) for $holder, $session;
	index_is_complete($node, "$what: after kill -9");
	return;
}

# the sample comes with the edges
crash('learning', 'SELECT learn()');
is(samples($node), 0, 'no sample is left of what did not end');

my $all = $node->sql('SELECT learn()');
cmp_ok($all, '>', 1000, 'edges are learned');
is(samples($node), 600, 'the sample is kept');

# a merge that dies
$node->sql('INSERT INTO items SELECT id + 20000, cat, big, val FROM source WHERE id <= 200');
my $answers = answers($node);
crash('merging', "SELECT gpugraph_merge('items_idx')");
is(answers($node), $answers, 'the same answers');
is(samples($node), 600, 'the sample is still there');
$node->sql("SELECT gpugraph_merge('items_idx')");
cmp_ok($node->sql('SELECT learn()'), '<', $all / 4, 'the next merge has learned');

# a standby
$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
is(samples($replica), 600, 'the standby has the sample');
is(answers($replica), answers($node), 'and answers as the primary');
is(($replica->psql('postgres', "SELECT gpugraph_forget('items_idx')"))[0], 3,
	'it cannot forget by itself');

# forgetting dies, is cancelled, and is done
crash('forgetting', "SELECT gpugraph_forget('items_idx')");
is(samples($node), 600, 'nothing is forgotten');
is($node->sql('SELECT learn()'), 0, 'no edge either');

# learning is cancelled
make_signal_build($node);
$node->sql(<<'SQL');
CREATE TABLE wide AS SELECT i AS id, (SELECT array_agg(sin(i * 13 + j * j)) FROM
	generate_series(1, 400) j)::vector(400) AS val FROM generate_series(1, 4000) i;
CREATE INDEX wide_idx ON wide USING gpugraph (val vector_ip_ops) WITH (graph_degree = 16);
SQL
my $watch = start_psql($node, "SELECT signal_build('learning', false)");
backend_pid($node, 'signal_build');
like(finish_psql(start_psql($node, 'SET gpugraph.fault = learn_hold',
	"SELECT gpugraph_learn('wide_idx', (SELECT array_agg(val) FROM wide, generate_series(1, 8)))")),
	qr/canceling statement due to user request/, 'learning: is cancelled');
is(finish_psql($watch), '', 'while it learns');
is(samples($node, 'wide_idx'), 0, 'and keeps no sample');
is(($node->psql('postgres', "SELECT gpugraph_check('wide_idx', true)"))[0], 0, 'and is sound');

# a worker seals and merges
reload_with($node, 'gpugraph.merge_workers = 1');
$node->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM source WHERE id <= 2500');
ok_in_time(sub { merge_info($node, 'delta_rows') < 300 }, 'a worker merges');
cmp_ok($node->sql('SELECT learn()'), '<', $all / 2, 'and has learned');

# the standby that is promoted
$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
$node->stop;
$replica->promote;
cmp_ok($replica->sql('REINDEX INDEX items_idx; SELECT learn()'), '<', $all / 4,
	'a build of the promoted standby has learned');
is($replica->sql("SELECT gpugraph_forget('items_idx')"), 't', 'it forgets');
is(samples($replica), 0, 'the sample is gone');
cmp_ok($replica->sql('SELECT learn()'), '>', $all / 2, 'and the edges');
index_is_complete($replica, 'at the end');
finish_test($replica);
