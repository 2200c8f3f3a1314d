# A query that ends while the device has it leaves nothing behind: cancelled, timed out, terminated,
# its client gone. The next one is answered by the device; and queries that wait together go out
# together.
use Gpugraph;
use Residency;
use Time::HiRes qw(time);

my $node = service_node('cancel', conf => "max_connections = 20\n");
make_items($node, 4000, 16);
$node->sql("SELECT gpugraph_prewarm('items_idx')");

# gpugraph.fault = stall holds a query back for a second, and as long as it is the server's setting
my @slow = ('SET enable_seqscan = off', 'SET gpugraph.fault = stall', $nearest);

sub abandoned { return of_device($node, 'abandoned') }
sub given_back
{
	my ($n, $what) = @_;

	ok_in_time(sub { abandoned() == $n }, "$what given back");
	return;
}

# ---- the stall itself
my $start = time;
is($node->sql(join(';', @slow)), 10, 'a stalled query is answered');
cmp_ok(time - $start, '>', 0.9, 'a second later');
is(abandoned(), 0, 'nothing was abandoned');

# ---- statement_timeout, and the same session goes on
{
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my ($before, $taken);

	$session->query_safe('SET enable_seqscan = off');
	is($session->query_safe($nearest), 10, 'a session');
	set_fault($node, 'stall');
	$session->query_safe('SET gpugraph.fault = stall');
	# on a busy machine the time may be over before the device has the query
	for (my $ms = 500; $ms < 60000; $ms *= 2)
	{
		$taken = of_device($node, 'queries');
		$session->query_safe("SET statement_timeout = $ms");
		$session->{stderr} = '';
		$session->query($nearest);
		like($session->{stderr}, qr/statement timeout/, 'statement_timeout ends the wait');
		$session->{stderr} = '';
		last if of_device($node, 'queries') > $taken;
	}
	# queries that the device never had are counted by now, and the one that it has is not yet
	$before = abandoned();
	$session->query_safe('SET statement_timeout = 0; SET gpugraph.fault = none');
	is($session->query_safe($nearest), 10, 'the session goes on: its slot is taken, by the CPU');
	is(of_index($node, 'cpu_busy'), 1, 'which is counted');
	set_fault($node);
	given_back($before + 1, 'then its slot is');
	$session->query_safe('SET gpugraph.engine = cuda');
	is($session->query_safe($nearest), 10, 'then with the device');
	$session->quit;
}

# ---- cancel and terminate
for my $how (qw(pg_cancel_backend pg_terminate_backend))
{
	my $before = abandoned();

	set_fault($node, 'stall');
	my $waiting = start_psql($node, @slow);
	my $pid = waiting_pid($node);

	is($node->sql("SELECT $how($pid)"), 't', "$how of a query that waits");
	like(finish_psql($waiting), qr/cancel|terminat/, "$how ends it");
	set_fault($node);
	given_back($before + 1, "$how: its slot is");
	truth_by_device($node, $how);
}

# ---- its client is gone
{
	my $before = abandoned();

	set_fault($node, 'stall');
	my $waiting = start_psql($node, 'SET client_connection_check_interval = 50', @slow);
	my $pid = waiting_pid($node);

	$waiting->{harness}->kill_kill;
	ok_in_time(sub { $node->sql(
		"SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0 }, 'a client that is gone');
	set_fault($node);
	given_back($before + 1, 'its slot is');
}

# ---- many at a time, some of them cancelled: no slot is lost
{
	my $before = abandoned();

	set_fault($node, 'stall');
	my @waiting = map { start_psql($node, @slow) } 1 .. 10;
	my @pids = waiting_are($node, 10, '<->');
	is(scalar @pids, 10, 'ten wait');
	is($node->sql('SELECT count(*) FILTER (WHERE pg_cancel_backend(pid))
		FROM unnest(ARRAY[' . join(',', @pids[0 .. 4]) . ']) pid'), 5, 'five are cancelled');
	is(scalar(waiting_are($node, 5, '<->')), 5, 'and end');
	set_fault($node);
	my @errors = map { finish_psql($_) } @waiting;
	is(scalar(grep { /canceling statement/ } @errors), 5, 'with an error');
	is(scalar(grep { $_ eq '' } @errors), 5, 'the others are answered');
	given_back($before + 5, 'their slots are');
	truth_by_device($node, 'ten at a time');
}

# ---- queries that wait together share a launch
{
	my $batches = of_device($node, 'batches');
	is(answered_together($node, 12, @slow), '', 'twelve clients are answered');
	is(of_device($node, 'batches') - $batches, 1, 'in one batch');
	is(of_device($node, '(SELECT sum(n) FROM unnest(batch_sizes[2:]) n) > 0'), 't',
		'the histogram has batches of several');
}

# ---- many clients
{
	my $sql = $node->basedir . '/one.sql';

	open my $file, '>', $sql or die "$sql: $!";
	print $file "\\set q random(1, 20)\n",
		"SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = :q) LIMIT 10;\n";
	close $file;
	my $queries = of_device($node, 'queries');
	$node->command_ok(
		[ 'env', 'PGOPTIONS=-c enable_seqscan=off -c gpugraph.engine=cuda', 'pgbench', '-n', '-M',
			'prepared', '-c', 12,
			'-t', 300, '-f', $sql, '-h', $node->host, '-p', $node->port, 'postgres' ],
		'twelve clients, none of them answered by the CPU');
	is(of_device($node, 'queries') - $queries, 3600, 'every query is counted');
	is(of_device($node, '(SELECT sum(n) FROM unnest(batch_sizes) n) = batches'), 't',
		'and every batch');
}
is(of_device($node, 'failed'), 0, 'nothing failed');

is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
finish_test($node);
