# Bugs of VACUUM.
use Gpugraph;
use Merging;

# VACUUM that gives back a segment without rows asks a worker to build the other one without its
# dead rows, though what it gave back cannot be used again yet.
subtest bug_vacuum_asks_no_merge => sub {
	my $node = merging_node('vacuum', conf => 'gpugraph.merge_workers = 0');

	$node->sql(<<'SQL');
CREATE TABLE items (id int, val vector(8)) WITH (vacuum_truncate = off);
CREATE FUNCTION fill(a int, b int) RETURNS SETOF items LANGUAGE sql AS $$
	SELECT i, (SELECT array_agg(sin(i * j + i % 17))::real[]::vector(8)
		FROM generate_series(1, 8) j) FROM generate_series(a, b) i
$$;
INSERT INTO items SELECT * FROM fill(1, 10000);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 500);
INSERT INTO items SELECT * FROM fill(10001, 12000);
VACUUM items;
SQL
	is(merge_info($node, 'segments'), 2, 'a large segment and a small one');
	reload_with($node, 'gpugraph.merge_workers = 1');
	$node->sql('DELETE FROM items WHERE id > 10000 OR id % 3 = 0');
	$node->sql('VACUUM (FREEZE) items');
	ok_in_time(sub { merge_info($node, 'dead_rows') < 500 },
		'the dead rows of the large segment are left out');
};

# The bug: VACUUM started over from the index's first page whenever the generation had changed. Each
# seal changes it, so beside inserts that seal faster than VACUUM reads the index, VACUUM never
# ended: nothing was cleaned, and one against wraparound went on for ever, too.
#
# The fix: VACUUM remembers by id what it has gone through, and reads no more than was there when it
# began and what came by flips meanwhile.
#
# VACUUM is slowed down, and rests at the delta until there were some seals, so that many fall into
# one.
subtest bug_vacuum_never_ended => sub {
	my $rows = 20000;
	my $node = merging_node('vacuum');
	$node->sql(<<SQL);
CREATE TABLE items (id serial, val vector(4)) WITH (vacuum_truncate = off);
CREATE FUNCTION fill(n int) RETURNS void LANGUAGE sql AS \$\$
	-- i > 0 is always true.  It makes the inner query run for each row, and not once for all.
	INSERT INTO items (val) SELECT (SELECT array_agg(random()) FROM generate_series(1, 4)
		WHERE i > 0)::vector FROM generate_series(1, n) i
\$\$;
SELECT fill($rows);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) 
	WITH (seal_rows = 100, graph_degree = 8, intermediate_graph_degree = 16);
CREATE INDEX ON items (id);
-- so that the next ones read only what changes
VACUUM items;
SQL
	my @vacuum = ('SET client_min_messages = debug1', 'SET vacuum_cost_delay = 20',
		'SET vacuum_cost_limit = 1', 'SET gpugraph.fault = hold_vacuum_delta',
		'VACUUM (INDEX_CLEANUP on) items');

	for my $round (1 .. 3)
	{
		$node->sql("DELETE FROM items WHERE id % 41 = $round AND id < 4000");
		# rows in the delta, too few for a seal
		ok_in_time(
				sub {
					my $rows = merge_info($node, 'delta_rows');
					return 1 if $rows >= 20 && $rows < 100;
					$node->sql('SELECT fill(30)');
					return 0;
				}, "round $round: a delta");
		# a merge that goes on takes no more pages than those of what it merges
		my $start = $node->sql('SELECT (tids_bytes + delta_bytes) / 8192
			FROM gpugraph_index_info($$items_idx$$)');
		my $holder = hold_at($node, 'vacuum_delta');
		my $vacuum = start_psql($node, @vacuum);
		ok(rests_at($node, 'vacuum_delta'), "round $round: VACUUM is at the delta");
		my $before = merge_info($node, 'generation');
		my $load = start_pgbench($node, '--client=1 --rate=10 --time=600',
			'fill@1' => 'SELECT fill(120);');
		ok_in_time(sub { return merge_info($node, 'generation') >= $before + 3 },
			"round $round: flips beside it");
		finish_psql($holder);
		my $ended = defined wait_for(sub { return has_ended($vacuum); });
		ok($ended, "round $round: VACUUM ends beside them");
		my $flips = merge_info($node, 'generation') - $before;

		$load->{harness}->signal('INT');
		finish_psql($load);
		my $err = finish_psql($vacuum);
		unlike($err, qr/ERROR/, "round $round: without an error");
		my ($read, $late) =
			$err =~ /read (\d+) pages of rows of gpugraph index "items_idx", (\d+) of/;
		$read //= 0;
		$late //= 0;
		note("$start pages, $flips flips: $read read, $late of them late");
		cmp_ok($read, '>=', int($rows / 1018), "round $round: it has gone through the index");
		cmp_ok($read - $late, '<=', $start, "round $round: each page once");
		index_is_complete($node, "round $round");
	}

	$node->stop;
};

# The bug: without a worker VACUUM truncates an index itself, and the standby kept the lock for that
# until VACUUM had committed. The fix: the lock is given back there when the index is truncated.
subtest bug_vacuum_locks_standby => sub {
	my $node = merging_node('primary', init => { allows_streaming => 1 },
		conf => "gpugraph.merge_workers = 0\nlog_min_messages = debug1\n");

	make_source($node, 1000, 16, 'seal_rows = 200');
	$node->sql('CREATE INDEX later ON items USING gpugraph (val vector_l2_ops)
		WITH (seal_rows = 100000)');
	my $replica = start_standby($node, 'replica');

	# the first index grows under an old snapshot
	my $lock = hold_lock($node, 1);
	my $session = start_psql($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ',
		'SELECT count(*) FROM items', 'SELECT pg_advisory_lock_shared(1)', 'COMMIT');
	wait_for(sub { $node->sql("SELECT count(*) FROM pg_locks
		WHERE locktype = 'advisory' AND NOT granted") == 1 });
	$node->sql("INSERT INTO items
		SELECT nextval('numbers'), cat, big, val FROM source;
		SELECT gpugraph_merge('items_idx')") for 1 .. 5;
	finish_psql($lock);
	finish_psql($session);
	$node->sql($_) for 'DELETE FROM items WHERE id % 7 <> 0',
		('VACUUM (PARALLEL 0) items', 'SELECT txid_current()') x 2,
		'ALTER INDEX items_idx SET (seal_rows = 0)',
		'ALTER INDEX later SET (seal_rows = 100)',
		'INSERT INTO items SELECT id + 1000000, cat, big, val FROM source WHERE id <= 400',
		'DELETE FROM items WHERE id % 5 = 1';

	# VACUUM truncates it, and rests in a merge of the other one
	my $rest = hold_at($node, 'merge');
	my $log = -s $node->logfile;
	my $vacuum = start_psql($node, 'SET gpugraph.fault = hold_merge', 'VACUUM (PARALLEL 0) items');
	ok(rests_at($node, 'merge'), 'VACUUM goes on with the other index');
	like(slurp_file($node->logfile, $log), qr/truncated gpugraph index "items_idx"/,
		'it has truncated the first one');
	$node->wait_for_catchup($replica, 'replay', $node->lsn('flush'));
	is($replica->sql("SELECT string_agg(relation::regclass::text, ' ') FROM pg_locks
		WHERE mode = 'AccessExclusiveLock'"), '', 'the standby has given back the lock');
	is($replica->sql('SELECT count(*) FROM (SELECT id FROM items
		ORDER BY val <-> (SELECT val FROM queries WHERE q = 3) LIMIT 10) s'), 10,
		'queries run there');
	finish_psql($rest);
	is(finish_psql($vacuum), '', 'VACUUM ends');
	index_is_complete($node, 'the index');
	$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
	is(answers($replica), answers($node), 'the standby answers as the primary');

	$_->stop for $replica, $node;
};

done_testing();
