# A backend's slot outlives whatever happens to the two who share it: a backend that is held up
# while the worker is replaced, a worker that is held up while backends wait.
use Gpugraph;
use Residency;

my $node = service_node('slots');
make_items($node, 4000, 16);
$node->sql("SELECT gpugraph_prewarm('items_idx')");

sub replace_worker
{
	my $pid = of_device($node, 'pid');

	kill 'TERM', $pid;
	wait_for(sub { my $now = of_device($node, 'coalesce(pid, 0)'); return $now != 0
		&& $now != $pid; });
	is(wait_for_state($node, 'ready'), 'ready', 'the worker was replaced');
	return;
}

# ---- held up from before the answer until after the next worker's start, which calls the query
# failed
{
	set_fault($node, 'stall');
	my $session = start_psql($node, 'SET enable_seqscan = off', 'SET gpugraph.engine = cuda',
		'SET gpugraph.fault = stall',
		$nearest, 'SET gpugraph.fault = none', $nearest, $nearest);
	my $pid = waiting_pid($node);
	my $batches = of_device($node, 'batches');

	kill 'STOP', $pid;
	set_fault($node);
	ok_in_time(sub { of_device($node, 'batches') > $batches },
		'a backend is held up while the device answers');
	replace_worker();
	kill 'CONT', $pid;
	is(finish_psql($session), '', 'it gets its answer, and the device answers its next queries');
	is($session->{out}, "10\n10\n10\n", 'all of them');
}

# ---- the worker is held up: a query is given up, the next ones of its session do not wait
{
	my $worker = of_device($node, 'pid');
	my $counts = 'queries_cpu, cpu_failed, cpu_busy';
	my @before = split /\|/, of_index($node, $counts);

	kill 'STOP', $worker;
	is($node->sql("SET enable_seqscan = off; $nearest"), 10,
		'a worker that hangs: the CPU answers');
	is(of_index($node, 'cpu_failed') - $before[1], 1, 'the query waited, and was given up');

	# the first of them has its slot still
	my $session = start_psql($node, 'SET enable_seqscan = off', ($nearest) x 4);
	finish_psql($session);
	is($session->{out}, "10\n10\n10\n10\n", 'and the next queries');
	my @after = split /\|/, of_index($node, $counts);
	my ($cpu, $waited, $busy) = map { $after[$_] - $before[$_] } 0 .. 2;
	is($cpu, 5, 'all counted');
	cmp_ok($waited, '<=', 2, 'of which one waits at most');
	is($waited + $busy, 5, 'and the others find their slot taken');
	kill 'CONT', $worker;
	ok_in_time(sub { $node->sql(
		"SET enable_seqscan = off; $nearest"); return truth($node) eq '1.0000 20 0' },
		'the worker goes on: the device answers');
}

# ---- CREATE INDEX hands its index over, but waits only so long for a worker that is held up
{
	my $worker = of_device($node, 'pid');

	kill 'STOP', $worker;
	is(($node->psql('postgres',
		"SET statement_timeout = '60s';
		CREATE INDEX more_idx ON items USING gpugraph (val vector_ip_ops)"))[0], 0,
		'CREATE INDEX ends');
	kill 'CONT', $worker;
	ok_in_time(sub { state_of($node, 'more_idx') eq 'absent' }, 'the worker forgets the load');
	$node->sql("SELECT gpugraph_prewarm('more_idx')");
	is(state_of($node, 'more_idx'), 'ready', 'the index can be loaded');
	$node->sql('CREATE INDEX another_idx ON items USING gpugraph (val vector_l1_ops)');
	is(state_of($node, 'another_idx'), 'ready', 'and the next one is handed over');
}

is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
finish_test($node);
