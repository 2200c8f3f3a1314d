# Whatever fails or hangs in the service, and whoever goes away amid a query, the CPU answers, the
# server stays up, and the worker comes back.
use Gpugraph;
use Residency;
use Time::HiRes qw(time usleep);

# Whatever fails in the service, the CPU answers, the server stays up, the worker comes back, and
# the log says why, once. With gpugraph.engine = cuda it is an error instead.
subtest service_faults => sub {
	my $node = served_node('failures');

	my $postmaster = $node->sql('SELECT pg_postmaster_start_time()');

	# Wait for the worker and for the index to be on it.
	my sub up_again
	{
		my ($what) = @_;

		ok_in_time(sub { of_device($node, 'state') eq 'up' },
			"$what: the worker is there") or return;
		is(wait_for_state($node, 'ready'), 'ready', "$what: and the index");
		return;
	}

	# The query under a fault, twice: as it is, then with gpugraph.engine = cuda.
	my sub under_fault
	{
		my ($fault) = @_;
		my $set = "SET enable_seqscan = off; SET gpugraph.fault = $fault";

		is($node->sql("$set; $nearest"), 10, "$fault: the CPU answers");
		up_again($fault);
		my ($rc, $out, $err) = $node->psql('postgres', "$set; SET gpugraph.engine = cuda; $nearest",
			extra_params => [ '-v', 'VERBOSITY=verbose' ]);
		like($err, qr/55000: gpugraph.engine is "cuda" but no GPU can search index "items_idx"/,
			"$fault: engine = cuda makes it an error");
		like($err, qr/DETAIL: .*\nHINT: .*gpugraph.engine/,
			"$fault: with the reason and what to do");
		up_again($fault);
		return;
	}

	# ---- only superusers
	like(error_of($node, 'CREATE ROLE joe LOGIN; SET ROLE joe; SET gpugraph.fault = exit'),
		qr/permission denied/, 'faults are for superusers');

	# ---- faults that leave the worker up
	under_fault('launch');
	is(log_lines($node, qr/LOG: .*gpugraph device 0: launch failed/), 1,
		'launch: the log says it once');
	is(of_device($node, 'last_error'), 'gpugraph.fault: launch failed', 'launch: so does the view');
	is(of_device($node, 'failed'), 2, 'launch: two queries failed');
	under_fault('ring_full');
	is(log_lines($node, qr/LOG: .*searches of index "items_idx" use the CPU/), 2,
		'one line for each reason');
	is(restarts($node), 0, 'the worker went on all the time');
	is(of_index($node, "cpu_failed || ' ' || cpu_busy"), '1 1', 'counted by reason');
	truth_by_device($node, 'after launch and ring_full');

	# ---- faults that end the worker
	under_fault('exit');
	is(restarts($node), 2, 'exit: the worker came back, twice');
	truth_by_device($node, 'after exit');
	under_fault('device');
	is(restarts($node), 4, 'device: the worker came back, twice');
	is(log_lines($node, qr/LOG: .*gpugraph device 0 cannot be used: device lost/), 1,
		'device: the log says it once');
	like(of_device($node, 'last_error'), qr/device lost/, 'device: so does the view');
	truth_by_device($node, 'after device');
	{
		my $seen;

		is($node->sql("SET enable_seqscan = off; SET gpugraph.fault = device; $nearest"), 10,
		'device: once more');
		wait_for(sub { $seen = of_device($node,
			"state || ' ' || resident_indexes || ' ' || resident_bytes");
			return $seen =~ /^broken/ });
		is($seen, 'broken 0 0', 'device: what it held is gone');
		up_again('device');
	}

	# ---- a worker that is told to end while queries wait for it
	{
		set_fault($node, 'stall');
		my @waiting = map {
			start_psql($node, 'SET enable_seqscan = off', 'SET gpugraph.fault = stall', $nearest)
		} 1 .. 4;
		is(scalar(waiting_are($node, 4, '<->')), 4, 'four queries wait');
		kill 'TERM', of_device($node, 'pid');
		is(join('', map { finish_psql($_) } @waiting), '',
			'terminated: queries in flight are answered');
		is(join(' ', map { $_->{out} =~ s/\s+//gr } @waiting), '10 10 10 10',
			'terminated: by the CPU');
		set_fault($node);
		up_again('terminated');
		truth_by_device($node, 'terminated');
	}

	# ---- under load, again and again
	{
		my $before = restarts($node);
		my $sql = $node->basedir . '/one.sql';

		open my $file, '>', $sql or die "$sql: $!";
		print $file "\\set q random(1, 20)\n",
			"SELECT count(*) = 10 AS ten
			FROM (SELECT id FROM items
			ORDER BY val <-> (SELECT val FROM queries WHERE q = :q) LIMIT 10) s \\gset\n",
			"\\if :ten\n\\else\nSELECT 1/0;\n\\endif\n";
		close $file;
		my $bench = IPC::Run::start(
			[ 'env', 'PGOPTIONS=-c enable_seqscan=off', 'pgbench', '-n', '-c', 6, '-T', 8, '-f',
				$sql,
				'-h', $node->host, '-p', $node->port, 'postgres' ], '>', \my $out, '2>', \my $err);
		for my $i (1 .. 4)
		{
			usleep(1_500_000);
			my $pid = of_device($node, 'pid');
			kill 'TERM', $pid if $pid;
		}
		ok($bench->finish, 'six clients notice nothing of a worker that is terminated four times')
			or diag($err);
		unlike($err, qr/aborted|ERROR/, 'not one error');
		cmp_ok(restarts($node), '>', $before + 1, 'it was');
		# the last worker may be up after the last query, and loads what is asked for
		wait_for(sub { of_device($node, 'state') eq 'up' });
		is($node->sql("SET enable_seqscan = off; $nearest"), 10, 'under load: a query afterwards');
		up_again('under load');
		truth_by_device($node, 'under load');
	}

	# ---- no driver as the worker starts: tried again, later and later, and found when it is there
	alter_system($node, 'SET gpugraph.fault = no_driver');
	usleep(300_000);
	kill 'TERM', of_device($node, 'pid');
	ok_in_time(sub { restarts($node) >= 7 && of_device($node, 'state') eq 'broken'
		&& of_device($node, 'last_error') =~ /no driver/ },
		'no driver: the worker waits');
	truth_by_cpu($node, 'no driver');
	usleep(3_500_000);
	is(log_lines($node, qr/LOG: .*gpugraph device 0 cannot be used: no driver/), 1,
		'no driver: the log says it once');
	like(error_of($node, "SET enable_seqscan = off; SET gpugraph.engine = cuda; $nearest"),
		qr/No worker of the GPU service has a device that works/,
		'no driver: an error with gpugraph.engine = cuda');
	alter_system($node, 'RESET gpugraph.fault');
	up_again('driver found');
	truth_by_device($node, 'driver found');

	is($node->sql('SELECT pg_postmaster_start_time()'), $postmaster,
		'the server was up all the time');
	is(log_lines($node, qr/(PANIC|TRAP|terminated by signal|crash)/), 0,
		'nothing bad is in the log');

	# ---- a server without the service
	restart_with($node, "gpugraph.devices = ''");
	is($node->sql("SET enable_seqscan = off; $nearest"), 10, 'no devices: the CPU answers');
	like(error_of($node, "SET enable_seqscan = off; SET gpugraph.engine = cuda; $nearest"),
		qr/There is no GPU service/, 'no devices: an error with gpugraph.engine = cuda');
	restart_with($node, "gpugraph.devices = '0,0'");
	is(log_lines($node, qr/invalid value for parameter "gpugraph.devices": "0,0"/), 1,
		'the same device twice is no list of devices');
	restart_with($node, "shared_preload_libraries = ''\ngpugraph.devices = 'all'");
	is($node->sql("SET enable_seqscan = off; $nearest"), 10, 'not preloaded: the CPU answers');
};

# A device that hangs: a kernel that never ends, or a call of the driver that never returns,
# whichever thread of the worker is in it. The worker notices, says so, and makes room for another
# one. The server stays up, and the CPU answers meanwhile.
subtest service_hang => sub {
	my $node = served_node('failures', conf => "gpugraph.device_timeout = '4s'\n");

	my $postmaster = $node->sql('SELECT pg_postmaster_start_time()');

	# Another worker than this one has the device and the index; its process id.
	my sub replaced
	{
		my ($pid, $what) = @_;

		ok_in_time(sub { of_device($node, "state = 'up' AND pid <> $pid") eq 't' },
			"$what: another worker has the device") or return $pid;
		is(kill(0, $pid), 0, "$what: the one that hung is gone");
		# one that hangs as it is loaded is not loaded again before somebody asks
		$node->sql("SELECT gpugraph_prewarm('items_idx')") if $what =~ /load/;
		is(wait_for_state($node, 'ready'), 'ready', "$what: the index is loaded again");
		truth_by_device($node, $what);
		return of_device($node, 'pid');
	}

	my $pid = of_device($node, 'pid');

	my sub set_timeout
	{
		my ($value) = @_;

		alter_system($node, "SET gpugraph.device_timeout = '$value'");
		return;
	}

	# ---- a kernel that never ends, with other queries beside it
	{
		set_timeout('1h');
		my $hung = start_psql($node, 'SET enable_seqscan = off', 'SET gpugraph.fault = hang',
			$nearest);

		waiting_pid($node);
		truth_by_device($node, 'kernel: queries beside it');
		set_timeout('4s');
		is(finish_psql($hung), '', 'kernel: the query is no error');
		is($hung->{out} + 0, 10, 'kernel: the CPU answers it');
		$pid = replaced($pid, 'kernel');
		is(log_lines($node, qr/LOG: .*gpugraph device 0 cannot be used: .*has not ended for 4/), 1,
			'kernel: the log says it once');
		like(of_device($node, 'last_error'), qr/has not ended for 4/, 'kernel: so does the view');
	}

	# ---- a launch that never returns: the worker's main thread is in it
	is($node->sql("SET enable_seqscan = off; SET gpugraph.fault = hang_launch; $nearest"), 10,
		'launch: the CPU answers');
	$pid = replaced($pid, 'launch');
	is(log_lines($node, qr/LOG: .*gpugraph device 0 cannot be used: .*not returned for 4/), 1,
		'launch: the log says it once');

	# ---- a copy that never returns: the thread that loads is in it
	$node->sql("SELECT gpugraph_evict('items_idx')");
	wait_for_state($node, 'absent');
	{
		my $hung = start_psql($node, 'SET enable_seqscan = off', 'SET gpugraph.fault = hang_load',
			$nearest);

		is(finish_psql($hung), '', 'load: the query that asks for it is no error');
	}
	$pid = replaced($pid, 'load');
	is(log_lines($node, qr/LOG: .*gpugraph device 0 cannot be used: .*in the loading thread/), 1,
		'load: the log says it once');

	# ---- told to end while that thread hangs
	$node->sql("SELECT gpugraph_evict('items_idx')");
	wait_for_state($node, 'absent');
	$node->sql("SET enable_seqscan = off; SET gpugraph.fault = hang_load; $nearest");
	is(wait_for_state($node, 'loading'), 'loading', 'terminated: a load is under way');
	kill 'TERM', $pid;
	$pid = replaced($pid, 'load, terminated');

	# ---- a worker that is told to end while its device hangs ends, and so does the server
	for my $fault (qw(hang hang_launch))
	{
		set_timeout('1h') if $fault eq 'hang';
		my $hung =
			start_psql($node, 'SET enable_seqscan = off', "SET gpugraph.fault = $fault", $nearest);

		waiting_pid($node);
		if ($fault eq 'hang')
		{
			kill 'TERM', $pid;
			is(finish_psql($hung), '', 'terminated: the query is no error');
			$pid = replaced($pid, 'terminated');
			set_timeout('4s');
		}
		else
		{
			is($node->sql('SELECT pg_postmaster_start_time()'), $postmaster,
				'the server was up all the time');
			$node->stop('fast');
			finish_psql($hung);
			pass('a server whose device hangs is stopped');
		}
	}
	is(log_lines($node, qr/(PANIC|TRAP|terminated by signal|crash)/), 0,
		'nothing bad is in the log');
};

# A query that ends while the device has it leaves nothing behind: cancelled, timed out, terminated,
# its client gone. The next one is answered by the device; and queries that wait together go out
# together.
subtest service_cancel => sub {
	my $node = service_node('failures', conf => "max_connections = 20\n");
	make_items($node, 4000, 16);
	$node->sql("SELECT gpugraph_prewarm('items_idx')");

	# gpugraph.fault = stall holds a query back for a second, and as long as it is the server's
	# setting
	my @slow = ('SET enable_seqscan = off', 'SET gpugraph.fault = stall', $nearest);

	my sub abandoned { return of_device($node, 'abandoned') }
	my sub given_back
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
		is($session->query_safe($nearest), 10,
			'the session goes on: its slot is taken, by the CPU');
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
			"SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0 },
				'a client that is gone');
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
			"SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = :q)
			LIMIT 10;\n";
		close $file;
		my $queries = of_device($node, 'queries');
		$node->command_ok(
			[ 'env', 'PGOPTIONS=-c enable_seqscan=off -c gpugraph.engine=cuda', 'pgbench', '-n',
				'-M',
				'prepared', '-c', 12,
				'-t', 300, '-f', $sql, '-h', $node->host, '-p', $node->port, 'postgres' ],
			'twelve clients, none of them answered by the CPU');
		is(of_device($node, 'queries') - $queries, 3600, 'every query is counted');
		is(of_device($node, '(SELECT sum(n) FROM unnest(batch_sizes) n) = batches'), 't',
			'and every batch');
	}
	is(of_device($node, 'failed'), 0, 'nothing failed');

	is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
	$node->stop;
};

done_testing();
