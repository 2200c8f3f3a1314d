# Bugs of the GPU service, but for loads (bug_load): what is on a device, which differs from the
# index, and devices that are not there.
use Gpugraph;
use Merging;
use Residency;
use Time::HiRes qw(usleep);

# The bug: gpugraph_prewarm() waited for ever. ALTER TABLE may give an index a new oid and leave it
# its file. The resident was found by the file, and its refreshes asked for the oid that was gone.
subtest bug_prewarm_new_oid => sub {
	my $node = service_node('service', conf => "gpugraph.merge_workers = 0\n");
	my $index = "SELECT 'items_idx'::regclass::oid, pg_relation_filenode('items_idx')";

	make_items($node, 4000, 16);
	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	my @before = split /\|/, $node->sql($index);
	$node->sql('ALTER TABLE items ALTER val TYPE vector');
	my @after = split /\|/, $node->sql($index);
	isnt($after[0], $before[0], 'the index has a new oid');
	is($after[1], $before[1], 'and its old file');
	truth_by_device($node, 'as before');

	$node->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM items');
	is($node->sql("SET statement_timeout = '60s'; SELECT gpugraph_prewarm('items_idx') > 0"), 't',
		'it is brought up to date');
	truth_by_device($node, 'afterwards');
};

# The bug: gpugraph_prewarm() waited for ever. Of an index that is on the device in part, it asked
# for the rest again and again, where there was no room even for what the delta had grown by: such a
# refresh failed without a word.
subtest bug_prewarm_outgrown_delta => sub {
	# always the CPU engine, whose sizes are the same everywhere
	my $node = service_node('service', conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.merge_workers = 0
gpugraph.device_memory = 3MB
CONF

	unserved {
		$node->sql(<<'SQL');
SELECT make_data('items', 8000, 64, 40);
SELECT make_queries('items', 20);
SET max_parallel_maintenance_workers = 0;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (seal_rows = 0, segment_rows = 2000);
SQL
	};
	my $prewarm = "SET statement_timeout = '60s'; SELECT gpugraph_prewarm('items_idx')";
	$node->sql($prewarm);
	is(of_index($node, 'state'), 'partial', 'the device has a part of it');

	# a delta for which there is no room beside one segment
	$node->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM items');
	$node->sql('INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id <= 3000');
	like(error_of($node, $prewarm),
		qr/it needs .* of device memory/, 'it says that there is no room');
	like(truth($node), qr/^1\.0000 /, 'answers are right');
};

# The bug: gpugraph_prewarm() waited for ever. A merge brings its segment to the device before it
# flips the directory. VACUUM, which removed a segment meanwhile, had made another directory of the
# same generation. The merge failed, and what it had brought was taken for the index's own.
subtest bug_prewarm_failed_merge => sub {
	my $node = service_node('service');

	my sub insert
	{
		my ($from, $to) = @_;

		$node->sql('INSERT INTO slow ' . slow_rows($from, $to));
		return;
	}

	# a segment that stays, a small one, and a delta that is merged with it
	slow_index($node, 'slow');
	$node->sql('ALTER INDEX slow_idx SET (seal_rows = 0)');
	insert(1, 4000);
	$node->sql("SELECT gpugraph_merge('slow_idx')");
	$node->sql('ALTER INDEX slow_idx SET (seal_rows = 200)');
	insert(4001, 4400);
	ok_in_time(sub { merge_info($node, 'segments', 'slow') == 2 }, 'two segments');
	$node->sql("SELECT gpugraph_prewarm('slow_idx')");
	insert(5001, 5400);
	my $merger = stop_in_graph($node, 'slow');
	ok(defined $merger, 'a merge builds its graph');
	# some of the first rows too: a merge leaves the end of the delta to the next
	$node->sql('DELETE FROM slow WHERE id > 3900');
	my $device = of_device($node, 'pid');
	kill 'STOP', $device;
	kill 'CONT', $merger;
	ok_in_time(sub { of_index($node, 'state', 'slow_idx') eq 'refreshing' },
		'it brings its segment to the device');
	$node->sql('VACUUM (FREEZE) slow');
	is(merge_info($node, 'segments', 'slow'), 1, 'VACUUM removed a segment');
	kill 'CONT', $device;

	ok_in_time(sub { of_index($node, 'state', 'slow_idx') eq 'ready' }, 'the device has it');
	$node->sql("SET statement_timeout = '60s'; SELECT gpugraph_prewarm('slow_idx')");
	is(of_index($node, 'segments', 'slow_idx'), merge_info($node, 'segments', 'slow'),
		'the device has the segments of the directory');
	index_is_complete($node, 'afterwards', 'slow');
};

# The bug: with gpugraph.engine = cuda a query failed. A merge that brings its segment to the device
# ahead of the flip of the directory may fail before it. Some seconds later the device has nothing
# any more that answers by the directory in use. Queries are to wait until it has.
subtest bug_cuda_failed_merge => sub {
	my $node = service_node('service');

	slow_index($node, 'slow');
	$node->sql('ALTER INDEX slow_idx SET (seal_rows = 0)');
	$node->sql('INSERT INTO slow ' . slow_rows(1, 4000));
	$node->sql("SELECT gpugraph_merge('slow_idx')");
	$node->sql('ALTER INDEX slow_idx SET (seal_rows = 200)');
	$node->sql("SELECT make_queries('slow', 20)");
	$node->sql("SELECT gpugraph_prewarm('slow_idx')");

	# the merge brings its segment, and then cannot lock the table
	$node->sql('INSERT INTO slow ' . slow_rows(4001, 4400));
	my $merger = stop_in_graph($node, 'slow');
	ok(defined $merger, 'a merge builds its graph');
	my $device = of_device($node, 'pid');
	kill 'STOP', $device;
	kill 'CONT', $merger;
	ok_in_time(sub { of_index($node, 'state', 'slow_idx') eq 'refreshing' },
		'it brings its segment to the device');
	my $segments = merge_info($node, 'segments', 'slow');
	my $locker = rest_after($node, 'BEGIN', 'LOCK TABLE slow');
	kill 'CONT', $device;
	ok_in_time(sub { of_index($node, 'segments', 'slow_idx') == $segments + 1 },
		'the device has a segment that the index has not');
	ok_in_time(
		sub { $node->sql("SELECT count(*) FROM gpugraph_stat_merge WHERE phase <> 'failed'") == 0 },
		'it fails');
	end_rest($locker);

	# for so long the flip might still come
	usleep(5_500_000);
	my ($rc, $out, $err) = $node->psql('postgres', <<'SQL');
SET gpugraph.engine = cuda;
SET enable_seqscan = off;
SET statement_timeout = '60s';
SELECT count(*) FROM (SELECT id FROM slow
	ORDER BY val <-> (SELECT val FROM slow WHERE id = 7) LIMIT 10) s;
SQL
	is("$rc $out $err", '0 10 ', 'a query waits for the device');
	truth_by_device($node, 'afterwards', 'slow');
	index_is_complete($node, 'afterwards', 'slow');
};

# The bug: wrong rows from the device. A merge brings its segment to a device that has the index,
# and took for granted that all other segments are there. Where an earlier merge had not brought
# its own, because another load was under way, that segment got memory which nobody filled.
subtest bug_merge_stale_resident => sub {
	my $node = service_node('service');

	# Rows of source, as one insert.
	my sub insert
	{
		my ($from, $to) = @_;

		$node->sql("INSERT INTO items SELECT id, cat, big, val FROM source WHERE id BETWEEN $from
				AND $to");
		return;
	}

	my sub segments_are
	{
		my ($n) = @_;

		ok_in_time(sub { merge_info($node, 'segments') == $n }, "$n segments");
		return;
	}

	# a segment for good, one of less than a fourth of it, and one of less than a fourth of that
	make_items($node, 4000, 16);
	$node->sql(<<'SQL');
SELECT make_data('source', 5120, 16, 40);
ALTER INDEX items_idx SET (seal_rows = 0);
SQL
	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	insert(4001, 4900);
	$node->sql('ALTER INDEX items_idx SET (seal_rows = 100)');

	# a load that rests for a second, while the delta becomes a segment; nobody asks for another
	# load
	$node->psql('postgres', <<'SQL');
SET gpugraph.fault = load_stall;
SET statement_timeout = '200ms';
SELECT gpugraph_prewarm('items_idx');
SQL
	insert(4901, 5010);
	segments_are(2);
	ok_in_time(sub { of_index($node, 'state') ne 'refreshing' }, 'the load has ended');
	# on a machine too slow for that second it has both, and what follows proves less
	note('segments on the device: ' . of_index($node, 'segments'));

	insert(5011, 5120);
	segments_are(3);
	$node->sql("SELECT make_queries('items', 20)");
	like(truth($node), qr/^1\.0000 /, 'rows are the right ones, whoever finds them');
	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	truth_by_device($node, 'brought anew');
	index_is_complete($node, 'afterwards');
};

# The bug: neighbours of other rows, or a crash. gpugraph_knn_graph() asks a device about the nodes
# of one segment, by the segment's place in the directory. Where the resident was replaced
# meanwhile, it asked again by a newer directory, and read the nodes at the same place of that one.
subtest bug_knn_graph_flip => sub {
	my $node = service_node('service', conf => "gpugraph.merge_workers = 0\n");

	# four segments, of which the first has no live row
	unserved {
		$node->sql(<<'SQL');
SELECT make_data('items', 4000, 16, 40);
SET max_parallel_maintenance_workers = 0;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (seal_rows = 0, segment_rows = 1000);
DELETE FROM items WHERE ctid IN (SELECT ctid FROM items ORDER BY ctid LIMIT 1000);
CREATE TABLE found (who tid, neighbor tid, distance float8);
SQL
	};
	my $segments = "SELECT segments FROM gpugraph_index_info('items_idx')";
	is($node->sql($segments), 4, 'four segments');
	$node->sql("SELECT gpugraph_prewarm('items_idx')");

	# It has read the second segment, and rests before it asks the device about the third.
	my $holder = hold_at($node, 'post');
	my $session = start_psql($node, <<'SQL');
DO $$
DECLARE
	edge record;
	n int := 0;
BEGIN
	FOR edge IN SELECT (e).* FROM (SELECT gpugraph_knn_graph('items_idx', 5) AS e OFFSET 0) s LOOP
		INSERT INTO found VALUES (edge.tid, edge.neighbor, edge.distance);
		n := n + 1;
		-- FOR reads some rows ahead
		IF n = 4900 THEN
			SET gpugraph.fault = hold_post;
		ELSIF n = 5100 THEN
			SET gpugraph.fault = none;
		END IF;
	END LOOP;
END $$;
SQL
	ok(rests_at($node, 'post'), 'it rests');
	$node->sql('VACUUM (FREEZE) items');
	is($node->sql($segments), 3, 'VACUUM has removed a segment');
	# as many lists as before, so that it asks again
	$node->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id % 2 = 0');
	$node->sql("SELECT gpugraph_evict('items_idx'); SELECT gpugraph_prewarm('items_idx')");
	finish_psql($holder);
	is(finish_psql($session), '', 'it has gone on to the end');

	is($node->sql(<<'SQL'), '15000|3000|0', 'no edge is wrong');
SELECT count(*), count(DISTINCT who),
	count(*) FILTER (WHERE abs(distance - (a.val <-> b.val)) < 1e-4 * (1 + distance)) - count(*)
	FROM found LEFT JOIN items a ON a.ctid = who LEFT JOIN items b ON b.ctid = neighbor;
SQL
};

# The bug: a backend that posted its query to a device just after that had gone for good abandoned
# its slot to it. Only a worker of that device frees such a slot, and there was none any more: no
# device answered the backend again.
#
# The fix: the backend frees the slot itself, since nothing of a device that is gone can write
# there.
subtest bug_slot_of_gone_device => sub {
	my $node = service_node('service',
		conf => "gpugraph.service_engine = cpu\ngpugraph.devices = '0,1'\n");
	unserved { make_items($node, 4000, 16); };

	my sub of_one
	{
		return $node->sql("SELECT $_[1] FROM gpugraph_stat_device WHERE device = $_[0]");
	}

	ok_in_time(sub { of_one(0, 'state') . of_one(1, 'state') eq 'upup' }, 'two devices');
	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	is(of_one(0, 'resident_indexes'), 1, 'the first has the index');

	# a query that found the device up rests before it posts; meanwhile the device goes for good
	alter_system($node, 'SET gpugraph.fault = no_device');
	usleep(200_000);
	my $device = of_one(0, 'pid');
	my $holder = hold_at($node, 'post');
	my $session = start_psql($node, 'SET enable_seqscan = off', 'SET gpugraph.fault = hold_post',
		$nearest, 'SET gpugraph.fault = none',
		"SELECT gpugraph_prewarm('items_idx') > 0", $nearest, $nearest);
	ok(rests_at($node, 'post'), 'it rests');
	kill 'TERM', $device;
	ok_in_time(sub { log_lines($node, qr/cannot be used: device 0 is not there/) },
		'the first device is gone');
	finish_psql($holder);
	is(finish_psql($session), '', 'the session goes on');
	is($session->{out}, "10\nt\n10\n10\n", 'with all its answers');
	is(of_index($node, "queries_gpu || ' ' || cpu_failed || ' ' || cpu_busy"), '2 1 0',
		'the second device gives those that come later');

	# not before: the query is posted to a device that is gone
	alter_system($node, 'RESET gpugraph.fault');
	ok_in_time(sub { of_one(0, 'state') eq 'up' }, 'the first one comes back');
};

# The bug: the worker of a device without a driver exits to try again in a process that has not
# asked the driver yet, and the postmaster logged each such exit; queries said once a minute that
# the CPU answers them.
#
# The fix: it exits with status 0 and has its successor started itself, and what the worker has said
# is not said again.
subtest bug_no_driver_log => sub {
	my $node = new_node('service',
		conf => service_conf() . "gpugraph.fault = no_driver\nrestart_after_crash = on\n");

	my sub tries { return $node->sql('SELECT restarts FROM gpugraph_stat_device') }

	make_items($node, 4000, 16);
	ok_in_time(sub { tries() >= 3 }, 'a device without a driver is tried again and again');
	like($node->sql('SELECT state || last_error FROM gpugraph_stat_device'),
		qr/no driver/, 'the view says why it is not used');
	truth_by_cpu($node, 'no driver');
	is(log_lines($node, qr/LOG: .*gpugraph device 0 cannot be used: no driver/), 1,
		'the log says so once');
	is(log_lines($node, qr/(background worker "gpugraph|LOG: +gpugraph)/), 1, 'and nothing else');

	# ---- the workers that followed each other are worth as much as the first
	my $postmaster = $node->sql('SELECT pg_postmaster_start_time()');
	alter_system($node, 'SET gpugraph.fault = none');
	ok_in_time(sub { of_device($node, 'state') eq 'up' }, 'the driver comes: so does the device');
	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	truth_by_device($node, 'driver found');
	my $pid = of_device($node, 'pid');
	kill 'TERM', $pid;
	ok(replaced_worker($node, $pid), 'a worker that is terminated starts again');
	kill_9($node, of_device($node, 'pid'));
	ok(wait_until_up($node), 'a crash restarts the server');
	ok_in_time(sub { of_device($node, 'state') eq 'up' }, 'and the worker');
	$node->stop;
};

done_testing();
