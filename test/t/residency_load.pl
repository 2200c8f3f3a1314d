# What becomes of an index that is on a device when it is queried, changed, rebuilt or dropped.
use Gpugraph;
use Residency;

# An index comes onto the device when it is queried, is answered from there, follows inserts and
# VACUUM without being loaded anew, and goes when it is told to.
subtest residency_load => sub {
	my $node = service_node('load');
	# what is tested here is how a delta comes to the device, so it stays one
	unserved {
		make_items($node, 5000, 16);
		$node->sql('ALTER INDEX items_idx SET (seal_rows = 0)');
	};

	# ---- the first query is the CPU's, and asks for the load
	is(state_of($node), 'absent', 'nothing is loaded that nobody asked for');
	is($node->sql('SELECT count(*)
		FROM (SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)
			LIMIT 3) s'),
		3, 'a first query is answered');
	is(of_index($node, 'cpu_loading'), 1, 'by the CPU, since the index is being loaded');
	is(wait_for_state($node, 'ready'), 'ready', 'it comes onto the device');
	truth_by_device($node, 'loaded');
	is(of_device($node, "loads || ' ' || resident_indexes || ' ' || evictions"), '1 1 0',
		'one load');
	is(of_index($node, 'bytes'), of_device($node, 'resident_bytes'),
		'the device holds this index and nothing else');
	is(of_index($node, 'rows_returned > 200'), 't', 'rows are counted');
	is(of_index($node, 'load_seconds > 0 AND loaded_at > now() - interval \'1 minute\''), 't',
		'so is the time that it took');
	is(log_lines($node, qr/LOG: .*loaded index "items_idx"/), 1, 'the log says so once');

	# ---- evict and prewarm
	is($node->sql("SELECT gpugraph_evict('items_idx')"), 't', 'evicted');
	is(state_of($node), 'absent', 'it is gone');
	is(of_device($node, "resident_bytes || ' ' || resident_indexes || ' ' || evictions"), '0 0 1',
		'and so is its memory');
	is($node->sql("SELECT gpugraph_evict('items_idx')"), 'f', 'there is nothing more to evict');
	my $bytes = $node->sql("SELECT gpugraph_prewarm('items_idx')");
	is($bytes, of_index($node, 'bytes'), 'prewarm returns the size');
	is($node->sql("SELECT gpugraph_prewarm('items_idx')"), $bytes,
		'and does nothing where nothing is to be done');
	is(of_device($node, 'loads'), 2, 'two loads in all');
	truth_by_device($node, 'prewarmed');

	# ---- gpugraph.engine = cuda waits for a load
	$node->sql("SELECT gpugraph_evict('items_idx')");
	my ($before) = answered_by($node);
	is($node->sql("SET gpugraph.engine = cuda;
		SELECT count(*)
		FROM (SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)
			LIMIT 3) s"),
		3, 'a query that must not be the CPU\'s waits');
	is((answered_by($node))[0], $before + 1, 'and is the device\'s');

	# ---- rows arrive: those not on the device are found at once, and later are there, too
	my $loaded = of_index($node, 'loaded_at');
	my $serials = of_index($node, 'refreshes');
	$node->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id <= 3000');
	like(truth($node), qr/^1\.0000/, 'rows just inserted are found');
	ok_in_time(
			sub {
				$node->sql("SELECT recall('items', '<->', 1)");
				return of_index($node, 'refreshes > 0 AND delta_pages >= 20') eq 't';
			},
		'the device gets them');
	truth_by_device($node, 'delta on the device');
	is(of_index($node, 'loaded_at'), $loaded, 'without a new load of the rest');
	is(of_device($node, 'loads'), 3, 'no other load');
	index_is_complete($node, 'delta on the device');

	# ---- VACUUM clears rows of segment and delta
	$node->sql('DELETE FROM items WHERE id % 3 = 0');
	like(truth($node), qr/^1\.0000/, 'deleted rows are not returned');
	my $refreshes = of_index($node, 'refreshes');
	$node->sql('VACUUM (FREEZE) items');
	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	cmp_ok(of_index($node, 'refreshes'), '>', $refreshes, 'the delta was read again after VACUUM');
	truth_by_device($node, 'vacuumed');
	$node->sql('INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id <= 1000');
	like(truth($node), qr/^1\.0000/, 'heap slots that are used again bring no stale row');

	# ---- a new start of the delta is a new generation with the same segments
	my $generation = of_index($node, 'generation');
	$node->sql('DELETE FROM items WHERE id > 10000; VACUUM (FREEZE) items');
	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	cmp_ok(of_index($node, 'generation'), '>', $generation, 'the copy is of the new generation');
	is(of_device($node, 'loads'), 3, 'its segments were kept');
	is(of_index($node, 'loaded_at'), $loaded, 'the first load is still the last');
	truth_by_device($node, 'a new generation');
	index_is_complete($node, 'in the end');

	# ---- an empty table, one too small, one not indexed by us
	$node->sql(
		'CREATE TABLE none (val vector(3)); CREATE INDEX none_idx ON none USING gpugraph (val)');
	is($node->sql("SELECT gpugraph_prewarm('none_idx')"), 0,
		'there is nothing to bring of an empty index');
	like(error_of($node, "SELECT gpugraph_prewarm('items_pkey')"),
		qr/is not a gpugraph index/, 'no other index');
	like(error_of($node,
		"BEGIN; REINDEX INDEX items_idx; SELECT gpugraph_prewarm('items_idx'); COMMIT"),
		qr/can only be read by this session/, 'no index that is not committed');
	like(error_of($node,
		"CREATE TEMP TABLE t AS SELECT * FROM items; CREATE INDEX t_idx ON t USING gpugraph (val);
		SELECT gpugraph_prewarm('t_idx')"),
		qr/can only be read by this session/, 'no temporary index');

	# ---- who may
	$node->sql('CREATE ROLE anybody; CREATE ROLE watcher; GRANT pg_monitor TO watcher');
	for my $call ("gpugraph_prewarm('items_idx')", "gpugraph_evict('items_idx')")
	{
		like(error_of($node, "SET ROLE anybody; SELECT $call"), qr/must be owner/,
			"$call is not for anybody");
	}
	like(error_of($node, 'SET ROLE anybody; SELECT gpugraph_stat_reset()'),
		qr/permission denied/, 'nor is the reset');
	for my $view (qw(gpugraph_stat_device gpugraph_stat_index))
	{
		like(error_of($node, "SET ROLE anybody; SELECT * FROM $view"),
			qr/permission denied/, "$view is not for anybody");
		is(($node->psql('postgres', "SET ROLE watcher; SELECT * FROM $view"))[0], 0,
			"$view is for pg_monitor");
	}

	# ---- reset
	$node->sql('SELECT gpugraph_stat_reset()');
	is(of_device($node,
		"concat_ws(' ', queries, loads, batch_sizes,
		(stats_reset > now() - interval '1 minute')::text)"),
		'0 0 {} true', 'the counters of the device are zero');
	is(of_index($node, "queries_gpu || ' ' || state"), '0 ready',
		'those of the index, too, and it stays where it is');
	truth_by_device($node, 'after the reset');
	is(of_index($node, 'queries_gpu'), 20, 'counting goes on');
};

# What is dropped, truncated or rebuilt never answers from its old copy, and its memory goes back
# soon.
subtest residency_drop => sub {
	my $node = service_node('load');
	make_items($node, 4000, 16);
	my $prewarm = "SELECT gpugraph_prewarm('items_idx')";

	my sub one_resident
	{
		my ($what) = @_;
		my $seen;

		wait_for(sub { $seen = of_device($node, 'resident_indexes'); return $seen <= 1 });
		is($seen, 1, "$what: the old copy is gone");
		is(of_device($node, 'resident_bytes'), of_index($node, 'bytes'), "$what: and its memory");
		return;
	}

	$node->sql($prewarm);
	truth_by_device($node, 'before');

	# ---- REINDEX of other rows
	$node->sql(
		'UPDATE items SET val = other.val FROM items other WHERE other.id = 4001 - items.id');
	$node->sql('REINDEX INDEX items_idx');
	like(truth($node), qr/^1\.0000/, 'the first answers after REINDEX are right');
	$node->sql($prewarm);
	truth_by_device($node, 'REINDEX');
	one_resident('REINDEX');

	# ---- REINDEX that is rolled back leaves the copy in use
	$node->sql('BEGIN; REINDEX INDEX items_idx; ROLLBACK');
	truth_by_device($node, 'REINDEX rolled back');

	# ---- REINDEX CONCURRENTLY, CLUSTER, VACUUM FULL
	$node->sql('REINDEX INDEX CONCURRENTLY items_idx');
	$node->sql($prewarm);
	truth_by_device($node, 'REINDEX CONCURRENTLY');
	one_resident('REINDEX CONCURRENTLY');
	$node->sql('CLUSTER items USING items_pkey');
	$node->sql($prewarm);
	truth_by_device($node, 'CLUSTER');
	one_resident('CLUSTER');

	# ---- TRUNCATE
	$node->sql('CREATE TABLE kept AS SELECT * FROM items WHERE id > 100; TRUNCATE items');
	is($node->sql('SELECT use_index(true);
		SELECT count(*) FROM (SELECT * FROM items
			ORDER BY val <-> (SELECT val FROM kept LIMIT 1)) s'),
		"\n0", 'a truncated table has no rows');
	$node->sql('INSERT INTO items SELECT * FROM kept; REINDEX INDEX items_idx');
	$node->sql($prewarm);
	truth_by_device($node, 'TRUNCATE');
	one_resident('TRUNCATE');

	# ---- DROP, rolled back and done, while it is loaded over and over
	$node->sql('BEGIN; DROP INDEX items_idx; ROLLBACK');
	truth_by_device($node, 'DROP rolled back');
	my $storm = start_psql($node, ("SELECT gpugraph_evict('items_idx')", $prewarm) x 100);
	wait_for(sub { of_device($node, 'loads') > 20 });
	$node->sql('DROP INDEX items_idx');
	finish_psql($storm);
	ok_in_time(sub { of_device($node, "resident_indexes || ' ' || resident_bytes") eq '0 0' },
		'DROP INDEX gives the memory back');
	is($node->sql('SELECT use_index(true); SELECT count(*) FROM items'), "\n3900",
		'the table is there');

	# ---- DROP DATABASE
	$node->sql('CREATE DATABASE other');
	$node->safe_psql('other', <<'SQL');
CREATE EXTENSION vector; CREATE EXTENSION gpugraph;
CREATE TABLE t AS SELECT i AS id, ARRAY[i, i % 7, i % 11]::vector(3) AS val
	FROM generate_series(1, 1000) i;
CREATE INDEX t_idx ON t USING gpugraph (val vector_l2_ops);
SELECT gpugraph_prewarm('t_idx');
SQL
	is($node->sql(
		"SELECT state FROM gpugraph_stat_index WHERE datname = 'other' AND index IS NULL"),
		'ready', 'an index of another database is seen, but has no name here');
	$node->sql('DROP DATABASE other');
	ok_in_time(sub { of_device($node, "resident_indexes || ' ' || resident_bytes") eq '0 0' },
		'DROP DATABASE gives the memory back');

	is(log_lines($node, qr/(PANIC|TRAP|ERROR:.*gpugraph)/), 0, 'nothing was said of it in the log');
};

# VACUUM moves what lies near the end of an index's file, and truncates it. A device goes on
# answering with the segments that it has, and none is loaded again.
subtest residency_shrinks => sub {
	# VACUUM does it itself, step by step
	my $node = service_node('load', conf => "gpugraph.merge_workers = 0\n");

	$node->sql(<<'SQL');
SELECT make_data('items', 4000, 32, 40);
SELECT make_queries('items', 20);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
SQL
	my $session = rest_after($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ',
		'SELECT count(*) FROM items');
	for (1 .. 4)
	{
		$node->sql(<<'SQL');
INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id BETWEEN 1 AND 600;
UPDATE items SET id = id + 90000 WHERE id > 10000;
SQL
		is($node->sql("SELECT gpugraph_merge('items_idx')"), 't', 'merged');
	}
	my $length = "SELECT pg_relation_size('items_idx')";
	my $long = $node->sql($length);
	end_rest($session);
	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	truth_by_device($node, 'before');

	my $loads = of_device($node, 'loads');
	my $generation = of_index($node, 'generation');
	for my $vacuum (1 .. 3)
	{
		$node->sql('VACUUM items');
		truth_by_device($node, "after VACUUM $vacuum");
		$node->sql('SELECT txid_current()');
	}
	cmp_ok($node->sql($length), '<=', 0.8 * $long, 'the file is shorter');
	ok_in_time(sub { of_index($node, 'generation') > $generation },
		'the copy is of the new generation');
	is(of_device($node, 'loads'), $loads, 'and was refreshed, not loaded');
	index_is_complete($node, 'the index');
};

# Two devices: an index is loaded to the one with more room, and whichever has it answers, whatever
# becomes of the other.
subtest residency_devices => sub {
	# always the CPU engine, whose sizes, ties and number of devices are the same everywhere
	my $node = service_node('load', conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.devices = '0,1'
gpugraph.device_memory = 64MB
CONF
	unserved {
		make_items($node, 4000, 16);
		$node->sql('CREATE TABLE other AS SELECT * FROM items;
			CREATE INDEX other_idx ON other USING gpugraph (val vector_l2_ops)');
	};

	my sub where_is
	{
		return of_index($node, "coalesce(device::text, 'nowhere') || ' ' || state", "$_[0]_idx");
	}

	my sub of_one
	{
		return $node->sql("SELECT $_[1] FROM gpugraph_stat_device WHERE device = $_[0]");
	}

	my sub wait_until
	{
		my ($device, $state) = @_;
		return defined wait_for(sub { return of_one($device, 'state') eq $state; });
	}

	ok(wait_until(0, 'up') && wait_until(1, 'up'), 'two devices');
	$node->sql("SELECT gpugraph_prewarm('other_idx')");
	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	is(where_is('other') . ' ' . where_is('items'), '0 ready 1 ready', 'each has one');
	truth_by_device($node, 'the first device\'s index', 'other');
	truth_by_device($node, 'the second device\'s index');

	# ---- one of them is away: the other one takes over, as far as it can
	alter_system($node, 'SET gpugraph.fault = no_driver');
	kill 'TERM', of_one(1, 'pid');
	ok(wait_until(1, 'broken'), 'the second device is away');
	$node->sql("SET enable_seqscan = off; SET gpugraph.fault = device_memory;
		SELECT id FROM items ORDER BY val <-> (SELECT val FROM items WHERE id = 5) LIMIT 5");
	is(wait_for_state($node, 'failed'), 'failed', 'the first one has no memory for its index');
	truth_by_cpu($node, 'neither has it');
	truth_by_device($node, 'the first device goes on', 'other');

	# ---- it comes back
	alter_system($node, 'RESET gpugraph.fault');
	ok(wait_until(1, 'up'), 'the second device is back');
	ok_in_time(sub { of_one(1, 'resident_indexes') == 1 }, 'with its index');
	truth_by_device($node, 'a load that failed elsewhere does not matter');

	# ---- what fails on one device is tried on the other
	$node->sql("SELECT gpugraph_evict('items_idx'), gpugraph_evict('other_idx')");
	$node->sql("SELECT gpugraph_prewarm('other_idx')");
	$node->psql('postgres', "SET gpugraph.fault = load; SELECT gpugraph_prewarm('items_idx')");
	is(where_is('other') . ' ' . where_is('items'), '0 ready 1 failed',
		'a load fails on the second');
	$node->sql("SELECT gpugraph_evict('other_idx')");
	$node->sql('SET enable_seqscan = off;
		SELECT id FROM items ORDER BY val <-> (SELECT val FROM items WHERE id = 5) LIMIT 5');
	# the first has as much room now, and comes first
	ok_in_time(sub { of_one(0, 'resident_indexes') == 1 }, 'the first loads it');
	truth_by_device($node, 'from there');
	is(of_one(1, 'resident_indexes'), 0, 'the second has nothing');

	is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
	$node->stop;
};

done_testing();
