# The bug: while the engine made the graph, a build saw nothing but cancel and terminate. DROP
# DATABASE of another database waited for it, as did pg_log_backend_memory_contexts(); a client
# that was gone or a transaction that had timed out was noticed after the graph; and when the
# postmaster died the backend worked on, and no new server could start. The fix: the engine's
# callback answers what asks for an answer, and makes the engine return for what ends the session.
use Gpugraph;

my $rows = 6000;
my $node = new_node('interrupts', conf => <<'CONF');
min_parallel_table_scan_size = 0
maintenance_work_mem = '1GB'
log_min_messages = debug1
CONF
# Long lists: most of the time goes into the graph, on any machine. A GPU would be done too soon.
my @create = ('SET gpugraph.engine = cpu', 'SET max_parallel_maintenance_workers = 0',
	'CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 64, intermediate_graph_degree = 512)');
my $graph = 'neighbors|graph';

sub sql
{
	return $node->sql($_[0]);
}

sql("SELECT make_data('items', $rows, 64, 40)");

# A build in its graph phase; its session and its process.
sub start_build
{
	my (@settings) = @_;
	my $session = start_psql($node, @settings, @create);
	my $pid = wait_for_progress($node, $graph, $session);

	ok(defined $pid, "@settings: a build makes its graph") or BAIL_OUT('it was too short');
	return ($session, $pid);
}

# What the log says once a graph is done, of builds by this process.
sub graph_done
{
	my ($pid) = @_;

	return slurp_file($node->logfile) =~ /\[$pid\] .*gpugraph graph of \d+ nodes/;
}

sub is_gone
{
	my ($pid) = @_;

	return sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") eq '0';
}

sub has_index
{
	return sql("SELECT count(*) FROM pg_class WHERE relname = 'items_idx'");
}

# ---- what asks for an answer
sql('CREATE DATABASE other');
my ($session, $pid) = start_build();
sql('DROP DATABASE other');
ok(!graph_done($pid), 'a database is dropped before the graph is done');
my $from = -s $node->logfile;
is(sql("SELECT pg_log_backend_memory_contexts($pid)"), 't', 'memory contexts are asked for');
my $total = qr/\[$pid\] .*Grand total: \d+ bytes/;
ok_in_time(sub { slurp_file($node->logfile, $from) =~ $total }, 'and logged');
ok(!graph_done($pid), 'before the graph is done');
is(finish_psql($session), '', 'the build goes on to its end');
is(sql("SELECT gpugraph_check('items_idx', true)"), '', 'the index is sound');
ok(graph_done($pid), 'its graph is in the log');
sql('DROP INDEX items_idx');

# ---- what ends the statement or the session
($session, $pid) = start_build("SET client_connection_check_interval = '50ms'");
$session->{harness}->kill_kill;
ok_in_time(sub { is_gone($pid) }, 'the client is gone: so is its backend');
ok(!graph_done($pid), 'before the graph was done');
like(slurp_file($node->logfile), qr/\[$pid\] .*FATAL:  connection to client lost/, 'that is why');

my %limits = (statement_timeout => qr/ERROR:  canceling statement due to statement timeout/);
$limits{transaction_timeout} = qr/FATAL:  terminating connection due to transaction timeout/
	if $node->pg_version >= 17;
for my $limit (sort keys %limits)
{
	$from = -s $node->logfile;
	my $said = finish_psql(start_psql($node, "SET $limit = '1s'", @create));
	like($said, $limits{$limit}, "$limit: the build ends");
	unlike(slurp_file($node->logfile, $from), qr/gpugraph graph of/, "$limit: before the graph");
}
is(has_index(), '0', 'no index is left');

# ---- the postmaster is gone: the leader in its engine, and a worker in an expression that computes
sql(<<'SQL');
CREATE FUNCTION busy(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
	x float8 := 0;
BEGIN
	FOR i IN 1 .. 20000 LOOP
		x := x + sqrt(i);
	END LOOP;
	RETURN v;
END $$;
SQL
my @scan = ('SET max_parallel_maintenance_workers = 2',
	'CREATE INDEX items_idx ON items USING gpugraph ((busy(val)::vector(64)) vector_l2_ops)');
for my $case ([ 'the graph', $graph, @create ], [ 'the scan', 'loading', @scan ])
{
	my ($what, $phase, @sql) = @$case;

	$session = start_psql($node, @sql);
	$pid = wait_for_progress($node, $phase, $session);
	ok(defined $pid, "$what: under way") or BAIL_OUT('the build is too short for this test');
	my @pids;
	my $count = $phase eq 'loading' ? 3 : 1;
	wait_for(
		sub {
			@pids = split /\n/,
				sql("SELECT pid FROM pg_stat_activity WHERE $pid IN (pid, leader_pid)");
			return @pids == $count;
		});
	is(scalar @pids, $count, "$what: its processes");
	$node->kill9;
	like(finish_psql($session), qr/unexpected postmaster exit|server closed the connection/,
		"$what: the postmaster is killed, the build ends");
	ok(!graph_done($pid), "$what: before the graph is done");
	ok_in_time(sub { !grep { kill 0, $_ } @pids }, "$what: its processes are gone");
	$node->start;
	is(has_index(), '0', "$what: a new server starts, without the index");
	sql('DROP INDEX IF EXISTS items_idx');
}

finish_test($node);
