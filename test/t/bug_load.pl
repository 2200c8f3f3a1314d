# Bugs of loads: who waits for one, what it keeps waiting, and what it leaves behind.
use Gpugraph;
use Residency;

# The bug: a loader that ended when its load was over already left its chunk behind. The worker
# freed it once no process had the loader's process id; one that had it again kept it from doing so,
# and a load without chunks waits for ever.
#
# The fix: a loader gives its chunk back however it ends. There are eight chunks; here eight loaders
# end at once, each with one.
subtest bug_chunk_of_ended_loader => sub {
	my $node = service_node('load', conf => <<CONF);
gpugraph.load_workers = 8
gpugraph.autoprewarm = off
CONF
	unserved { make_items($node, 4000, 16); };

	my $loaders = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'gpugraph loader'";

	# readers rest half-way, and then wait for a lock with their chunks in hand
	set_fault($node, 'load_readers');
	$node->sql("SET enable_seqscan = off;
		SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 3");
	ok_in_time(sub { $node->sql($loaders) == 8 }, 'eight loaders');
	my $locker = rest_after($node, 'BEGIN', 'ALTER INDEX items_idx SET (graph_degree = 31)');
	ok_in_time(sub { $node->sql("SELECT count(*) FROM pg_locks
		WHERE relation = 'items_idx'::regclass AND mode = 'AccessExclusiveLock'") == 1 },
		'who wants the index');
	set_fault($node);
	ok_in_time(sub { $node->sql("$loaders AND wait_event_type = 'Lock'") == 8 },
		'all wait for a lock');

	# the worker's successor knows nothing of their load
	my $pid = of_device($node, 'pid');
	kill 'TERM', $pid;
	ok(replaced_worker($node, $pid), 'the worker was replaced');
	is($node->sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE backend_type = 'gpugraph loader'"), 8,
		'the loaders were terminated');
	ok_in_time(sub { $node->sql($loaders) == 0 }, 'and are gone');
	end_rest($locker);

	is(error_of($node, "SET statement_timeout = '60s'; SELECT gpugraph_prewarm('items_idx')"), '',
		'the next load finds chunks');
	truth_by_device($node, 'loaded');
	is(log_lines($node, qr/(PANIC|TRAP|terminated by signal)/), 0, 'nothing bad is in the log');
};

# The bug: a loader counts as a user of its database. DROP DATABASE, and CREATE DATABASE from it as
# a template, wait five seconds for those who are there, so a load that took longer made them fail.
#
# The fix: a loader looks whether somebody keeps new sessions out of its database, and goes.
subtest bug_load_drop_database => sub {
	my $node = service_node('load');
	make_items($node, 4000, 16);
	$node->sql('CREATE DATABASE other TEMPLATE postgres');

	# A load in that database that does not end: its first query asks for it, and then the worker is
	# held up. The session is gone. A load that is over before it is seen is begun again.
	my sub load_for_ever
	{
		my ($what) = @_;

		my $pid = of_device($node, 'pid');

		ok(defined wait_for(
				sub {
					my $said = $node->safe_psql('other', <<'SQL');
SELECT gpugraph_evict('items_idx');
SET gpugraph.fault = load_readers;
SET enable_seqscan = off;
SELECT count(*) FROM (SELECT id FROM items
	ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 10) s;
SELECT pg_sleep(0.3);
SELECT 'loads' FROM pg_stat_activity
	WHERE backend_type = 'gpugraph loader' AND datname = 'other';
SQL
					return $said =~ /loads/;
				}), "$what: a load is under way");
		kill 'STOP', $pid;
		return;
	}

	my sub go_on
	{
		my ($what) = @_;

		kill 'CONT', of_device($node, 'pid');
		$node->sql("SELECT gpugraph_prewarm('items_idx')");
		truth_by_device($node, $what);
		return;
	}

	load_for_ever('CREATE DATABASE');
	is(error_of($node, 'CREATE DATABASE copy TEMPLATE other'), '',
		'CREATE DATABASE from the loaders\' database');
	go_on('CREATE DATABASE');

	# the load that gave way left nothing behind, so that the next one can come
	load_for_ever('DROP DATABASE');
	is(error_of($node, 'DROP DATABASE other'), '', 'DROP DATABASE');
	go_on('DROP DATABASE');

	is(log_lines($node, qr/could not load/), 0, 'the log calls it no failure');
	is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
};

# The bug: a loader that stayed for the next refresh held the last background worker. A load for
# another database failed then: "no background worker is free to load it".
# The fix: it is sent away, and the load is asked for again.
subtest bug_load_last_worker => sub {
	# one for the device, one for loaders
	my $node = service_node('load', conf => <<'CONF');
gpugraph.merge_workers = 0
max_logical_replication_workers = 0
max_worker_processes = 2
CONF
	my sub sql { return $node->sql($_[0]) }

	unserved {
		sql(<<'SQL');
SELECT make_data('items', 1000, 24, 40);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0);
SQL
	};
	sql('CREATE DATABASE other TEMPLATE postgres');
	# Until a loader stays: does one?
	sql(<<'SQL');
CREATE FUNCTION loader_stays() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 2000 LOOP
		PERFORM pg_stat_clear_snapshot();
		IF EXISTS (SELECT FROM pg_stat_activity
				WHERE backend_type = 'gpugraph loader' AND state = 'idle') THEN
			RETURN true;
		END IF;
		PERFORM pg_sleep(0.005);
	END LOOP;
	RETURN false;
END $$;
SQL
	sql("SELECT gpugraph_prewarm('items_idx')");

	my $seen = 0;
	for my $round (1 .. 4)
	{
		# what sees the loader stay is followed by the load at once
		sql("INSERT INTO items SELECT id + 1000 * $round, cat, big, val FROM items
			WHERE id <= 1000");
		$node->safe_psql('other', "SELECT gpugraph_evict('items_idx')");
		$seen++ if sql("SELECT gpugraph_prewarm('items_idx') > 0; SELECT loader_stays()") eq "t\nt";
		is($node->safe_psql('other', "SELECT gpugraph_prewarm('items_idx') > 0"), 't',
			"round $round: the other database's index comes to the device");
	}
	cmp_ok($seen, '>', 0, 'a loader stayed');
	is(of_device($node, 'failed_loads'), 0, 'no load failed');
};

# The bug: who waits for a load holds AccessShareLock on the index. A statement that wants the index
# for itself waits for it, and the loader, which takes AccessShareLock anew for each unit, queues
# behind that statement. Since the wait for the load was on a latch, the deadlock detector saw no
# circle: all three waited for ever, and so did every later query on the table, in planning.
#
# The fix: the loader holds a lock, for which those who wait for the load ask. The detector then
# sees the circle and lets the loader go first.
subtest bug_load_deadlock => sub {
	my $node = service_node('load', conf => "allow_in_place_tablespaces = on\n");
	unserved {
		make_items($node, 4000, 16);
		$node->sql("CREATE TABLESPACE elsewhere LOCATION ''");
	};

	my %waiters = (
		'gpugraph_prewarm()' => [ "SELECT gpugraph_prewarm('items_idx') > 0" ],
		'a query' => [ 'SET gpugraph.engine = cuda', 'SET enable_seqscan = off', $nearest ]);
	my $elsewhere = 0;

	# What wants the index for itself, and what stands there again for the next round.
	my @statements = (
		[ 'REINDEX INDEX', 'REINDEX INDEX items_idx' ],
		[ 'ALTER INDEX SET', 'ALTER INDEX items_idx SET (graph_degree = 31)' ],
		[ 'SET TABLESPACE',
			sub { 'ALTER INDEX items_idx SET TABLESPACE '
			. (($elsewhere = !$elsewhere) ? 'elsewhere' : 'pg_default') } ],
		[ 'REINDEX INDEX CONCURRENTLY', 'REINDEX INDEX CONCURRENTLY items_idx' ],
		[ 'DROP INDEX CONCURRENTLY', 'DROP INDEX CONCURRENTLY items_idx' ]);

	# how many sessions wait for a lock; waits for a load are not among them
	my sub blocked
	{
		return $node->sql("SELECT count(*) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND wait_event_type = 'Lock'
				AND query !~ 'gpugraph_prewarm'");
	}

	# Wait until sessions have ended, and end them in the end: true when they did so themselves.
	my sub all_end
	{
		my @sessions = @_;
		my $ended = defined wait_for(sub { return !grep { !has_ended($_) } @sessions; });

		if (!$ended)
		{
			$node->sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'");
		}
		finish_psql($_) for @sessions;
		return $ended;
	}

	# A session waits for a load that rests; in between comes the statement, and then a query of
	# somebody else.
	my sub meet
	{
		my ($what, $waiter, $statement, $fault) = @_;

		$node->sql("SELECT gpugraph_evict('items_idx')");
		set_fault($node, $fault // 'load_stall');
		my $waiting = start_psql($node, @$waiter);
		is(wait_for_state($node, 'loading'), 'loading', "$what: a load is under way");
		my $changing;
		unserved { $changing = start_psql($node, $statement); };
		ok_in_time(sub { blocked() || has_ended($changing) }, "$what: it is there");
		my $later = start_psql($node, 'SET enable_seqscan = off', $nearest);

		wait_for(sub { return blocked() > 1 || has_ended($later); });
		set_fault($node);
		ok(all_end($waiting, $changing, $later), "$what: all end");
		is($waiting->{err} . $changing->{err} . $later->{err}, '', "$what: without an error");
		is($later->{out}, "10\n", "$what: a later query has its answer");
		return;
	}

	for my $who (sort keys %waiters)
	{
		for (@statements)
		{
			my ($name, $statement) = @$_;

			meet("$who and $name", $waiters{$who}, ref $statement ? $statement->() : $statement);
			unserved { $node->sql('CREATE INDEX IF NOT EXISTS items_idx ON items
					USING gpugraph (val vector_l2_ops)'); };
		}
	}

	# ---- several readers, of which each may be the one that queues
	for my $who (sort keys %waiters)
	{
		meet("$who, several readers and REINDEX INDEX", $waiters{$who}, 'REINDEX INDEX items_idx',
			'load_readers');
	}

	# ---- whoever waits must not be the one that keeps the loader out
	$node->sql("SELECT gpugraph_evict('items_idx')");
	my $own = start_psql($node, 'BEGIN', 'ALTER INDEX items_idx SET (graph_degree = 30)',
		@{ $waiters{'a query'} }, 'COMMIT');
	ok(all_end($own), 'a query of the transaction that has the index locked ends');
	is($own->{err} . $own->{out}, "10\n", 'the CPU answers it, also under gpugraph.engine = cuda');
	$node->sql("SELECT gpugraph_evict('items_idx')");
	$own = start_psql($node, 'BEGIN', 'ALTER INDEX items_idx SET (graph_degree = 31)',
		@{ $waiters{'gpugraph_prewarm()'} }, 'COMMIT');
	ok(all_end($own), 'gpugraph_prewarm() there ends');
	like($own->{err}, qr/can only be read by this session/, 'and says why it cannot');

	# ---- lock_timeout is for locks on tables, not for a load
	$node->sql("SELECT gpugraph_evict('items_idx')");
	is($node->sql("SET lock_timeout = '100ms'; SET gpugraph.fault = load_stall;
		SELECT gpugraph_prewarm('items_idx') > 0; SHOW lock_timeout"),
		"t\n100ms", 'a load may take longer than lock_timeout');

	truth_by_device($node, 'in the end');
	is(log_lines($node, qr/(PANIC|TRAP|signal|deadlock detected)/), 0, 'nothing bad is in the log');
	$node->stop;
};

# As bug_load_deadlock, on a standby: the one who wants the index for himself is the process that
# replays the primary's REINDEX INDEX.
subtest bug_load_deadlock_standby => sub {
	my $primary = service_node('primary', init => { allows_streaming => 1 });
	unserved { make_items($primary, 4000, 16); };
	my $standby = start_standby($primary, 'standby',
		"max_standby_streaming_delay = -1\ngpugraph.autoprewarm = off");
	wait_for(sub { of_device($standby, 'state') eq 'up' });
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));

	set_fault($standby, 'load_stall');
	my $waiting = start_psql($standby, "SELECT gpugraph_prewarm('items_idx') > 0");
	is(wait_for_state($standby, 'loading'), 'loading', 'a load is under way on the standby');
	unserved { $primary->sql('REINDEX INDEX items_idx'); };
	ok_in_time(sub { $standby->sql("SELECT count(*) FROM pg_locks
		WHERE mode = 'AccessExclusiveLock' AND NOT granted") > 0 }, 'it waits there');
	set_fault($standby);
	my $ended = defined wait_for(sub { return has_ended($waiting); });
	ok($ended, 'who waits for it ends');
	$standby->sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE query ~ 'prewarm' AND pid <> pg_backend_pid()")
		if !$ended;
	is(finish_psql($waiting), '', 'without an error');
	is($waiting->{out}, "t\n", 'the index was loaded');
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	$standby->sql("SELECT gpugraph_prewarm('items_idx')");
	truth_by_device($standby, 'replayed');
	is(log_lines($standby, qr/(PANIC|TRAP|signal|deadlock detected|conflict with recovery)/), 0,
		'nothing bad is in the log');
	$_->stop for $standby, $primary;
};

done_testing();
