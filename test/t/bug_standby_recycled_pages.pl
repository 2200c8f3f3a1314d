# The bug: in parallel mode a VACUUM has no transaction id of its own. It took the next one as the
# id that snapshots must have passed before blocks are used again, and wrote the record that gives
# the blocks back later. Transactions that began and committed in between made newer snapshots on a
# standby, which still followed the old directory: they were neither cancelled nor waited for when
# the blocks were used again, and read foreign pages.
# The fix: such blocks are parked without an id, and who changes the directory next gives them one,
# which is later than all that came before the record.
use Gpugraph;
use IPC::Run ();

my $rows = 3000;
my $next = 0;
my $primary = new_node('primary', init => { allows_streaming => 1 }, conf => <<'CONF');
max_parallel_maintenance_workers = 2
min_parallel_index_scan_size = 0
CONF
my $standby = start_standby($primary, 'standby', <<'CONF');
max_standby_streaming_delay = 0
wal_receiver_status_interval = 1
hot_standby_feedback = off
CONF

# VACUUM goes parallel where two indexes can be
$primary->sql(<<SQL);
CREATE TABLE ticks (i int);
SELECT make_data('source', $rows, 16, 40);
SELECT make_queries('source', 5);
CREATE TABLE items (id bigint, val vector(16)) WITH (vacuum_truncate = off);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 300);
CREATE INDEX ON items (id);
SQL

sub tick
{
	my ($node, $n) = @_;

	$node->sql('INSERT INTO ticks VALUES (1)') for 1 .. $n;
	return;
}

# As many rows as the source has, in some transactions.
sub insert
{
	my ($node) = @_;

	$next += 10000;
	$node->sql("INSERT INTO items SELECT id + $next, val FROM source
		WHERE id % 10 = $_") for 0 .. 9;
	return;
}

sub info
{
	my ($node, $field) = @_;

	return $node->sql("SELECT $field FROM gpugraph_index_info('items_idx')");
}

# A cursor on the standby over all rows, of which it has fetched some.
sub open_cursor
{
	my %cursor = (in => '', out => '', err => '');

	$cursor{psql} = IPC::Run::start([ 'psql', '-XAtq', '-d', $standby->connstr('postgres') ],
		'<', \$cursor{in}, '>', \$cursor{out}, '2>', \$cursor{err});
	$cursor{in} .= <<'SQL';
SET enable_seqscan = off;
SET gpugraph.iterative_scan = strict_order;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 'xmin ' || pg_snapshot_xmin(pg_current_snapshot()), 'rows ' || count(*) FROM items;
DECLARE c CURSOR FOR SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1);
FETCH 5 FROM c;
SELECT 'opened';
SQL
	wait_for(sub { $cursor{psql}->pump_nb; $cursor{out} =~ /opened/ });
	@cursor{qw(xmin rows)} = $cursor{out} =~ /xmin (\d+)\|rows (\d+)/;
	return \%cursor;
}

# The rest of its rows.
sub close_cursor
{
	my ($cursor) = @_;

	$cursor->{in} .= "FETCH ALL FROM c;\nCOMMIT;\n\\q\n";
	eval { $cursor->{psql}->finish; };
	my %ids = map { $_ => 1 } grep { /^\d+$/ } split /\n/, $cursor->{out};
	return scalar keys %ids;
}

# Rows are merged by a VACUUM in parallel mode. While it is about to write the record that gives the
# old pages back, two transactions commit, and the standby opens a cursor by a snapshot that sees
# them.
sub vacuum_beside_a_cursor
{
	my ($what, $feedback) = @_;
	my $from = -s $primary->logfile;

	insert($primary);
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	my $vacuum = start_psql($primary, 'SET gpugraph.fault = parking_hold',
		'VACUUM (PARALLEL 2) items');
	ok_in_time(sub { slurp_file($primary->logfile, $from) =~ /about to be given back/ },
		"$what: VACUUM is about to give pages back");
	tick($primary, 2);
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	my $cursor = open_cursor();
	cmp_ok($cursor->{rows}, '>=', $rows, "$what: a cursor is open on the standby");
	ok_in_time(sub { $primary->sql(
			"SELECT backend_xmin = '$cursor->{xmin}' FROM pg_stat_replication") eq 't' },
		"$what: the primary knows of it") if $feedback;
	wait_for(
		sub {
			tick($primary, 5);
			return has_ended($vacuum);
		});
	is(finish_psql($vacuum), '', "$what: VACUUM has ended");
	cmp_ok(info($primary, 'free_bytes'), '>', 0, "$what: pages are free");
	return $cursor;
}

# Insert. True: free blocks were used again.
sub use_free
{
	my ($node) = @_;
	my $free = info($node, 'free_bytes');

	tick($node, 2);
	insert($node);
	return info($node, 'free_bytes') < $free;
}

sub equal
{
	my ($what) = @_;
	my $sql = "SELECT complete('items'), gpugraph_check('items_idx', true)";

	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	is($standby->sql($sql), 'ok|', "$what: the standby has all rows");
	is($primary->sql($sql), 'ok|', "$what: so has the primary");
	return;
}

# ---- without feedback: a query that needs the pages is cancelled
my $cursor = vacuum_beside_a_cursor('off');
ok(use_free($primary), 'off: free pages are used again');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
close_cursor($cursor);
like($cursor->{err}, qr/conflict with recovery/, 'off: the query was cancelled');
unlike($cursor->{err}, qr/corrupted/, 'off: before it met a foreign page');
ok(wait_until_up($standby), 'off: the standby is there');
equal('off');

# ---- with feedback: the pages are kept for it
alter_system($standby, 'SET hot_standby_feedback = on');
$cursor = vacuum_beside_a_cursor('on', 1);
use_free($primary);
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
is(close_cursor($cursor), $cursor->{rows}, 'on: the query has all of its rows');
is($cursor->{err}, '', 'on: without an error');
ok_in_time(sub { use_free($primary) }, 'on: then the pages are used again');
equal('on');

# ---- promoted, with the query still open
alter_system($standby, 'SET hot_standby_feedback = off');
$cursor = vacuum_beside_a_cursor('promoted');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
$standby->promote;
use_free($standby);
is(close_cursor($cursor), $cursor->{rows}, 'promoted: the query has all of its rows');
is($cursor->{err}, '', 'promoted: without an error');
ok_in_time(sub { use_free($standby) }, 'promoted: then the pages are used again');
is($standby->sql("SELECT complete('items'), gpugraph_check('items_idx', true)"),
	'ok|', 'promoted: all rows are there');

finish_test($standby, $primary);
