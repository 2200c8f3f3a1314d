# What merges take is given back, however they end and however many they are.
use Gpugraph;
use Merging;
use Residency;
use Time::HiRes qw(time);

# What merges free is used again by the next merge of the same worker, though that takes no snapshot
# in between: an index of which half is deleted and inserted again, over and over, keeps its size.
subtest merge_reuse => sub {
	my $node = merging_node('space');
	$node->sql(<<'SQL');
SELECT setseed(0.5);
CREATE TABLE items (id int, val vector(64)) WITH (vacuum_truncate = off);
CREATE FUNCTION fill(part int) RETURNS SETOF items LANGUAGE sql VOLATILE AS
$$
	-- i > 0 is always true.  It makes the inner query run for each row, and not once for all.
	SELECT i, (SELECT array_agg(random()) FROM generate_series(1, 64) WHERE i > 0)::vector
		FROM generate_series(1, 10000) i WHERE part < 0 OR (i >> part) & 1 = 1
$$;
INSERT INTO items SELECT * FROM fill(-1);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 250);
SQL
	my $fresh = merge_info($node, 'total_bytes');
	my @sizes;
	for my $cycle (1 .. 5)
	{
		my $part = $cycle % 8;

		# before VACUUM, since its snapshot would keep a worker from compacting
		$node->sql("CREATE TABLE more AS SELECT * FROM fill($part)");
		$node->sql("DELETE FROM items WHERE (id >> $part) & 1 = 1");
		$node->sql('VACUUM (FREEZE) items');
		ok_in_time(sub { merge_info($node, 'dead_rows') <= 1000 },
			"cycle $cycle: dead rows are gone");
		# each time the worker has done with it, so that the size does not depend on its speed
		my $merged = grep {
			my $i = $_;

			$node->sql("INSERT INTO items SELECT * FROM more WHERE id % 8 = $i");
			defined wait_for(sub { merge_info($node, 'delta_rows') < 500 });
		} 0 .. 7;
		is($merged, 8, "cycle $cycle: new rows are merged");
		$node->sql('DROP TABLE more');
		push @sizes, sprintf '%.2f', merge_info($node, 'total_bytes') / $fresh;
	}
	note "sizes over the fresh index's: @sizes";
	cmp_ok($sizes[-1], '<=', 2,
		'half deleted and inserted again five times: size over a fresh index');
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT gpugraph_check('items_idx', true)");
	is("$rc $err", '0 ', 'the index is sound');
};

# What is sealed is a piece of its own, which later merges leave where it is, and the directory has
# room for 128. Many seals while a large merge is under way neither use them up nor end that merge.
subtest merge_pieces => sub {
	# Rows that equal no others: four have a page, so that a seal is of few.
	my sub new_rows
	{
		my ($rows) = @_;

		return "INSERT INTO items
			SELECT n, cat, big, (val::real[])[1:499] || (n / 1000.0)::real
			FROM (SELECT *, nextval('numbers') AS n FROM source WHERE id <= $rows) s";
	}

	my $node = service_node('space', conf => <<'CONF');
gpugraph.fault = graph_hold
gpugraph.device_timeout = 0
CONF
	make_source($node, 1000, 500,
		'seal_rows = 0, graph_degree = 8, intermediate_graph_degree = 16');
	$node->sql($_)
		for (new_rows(1000)) x 4, 'REINDEX INDEX items_idx',
		'ALTER INDEX items_idx SET (seal_rows = 10)', "SELECT gpugraph_prewarm('items_idx')";

	# Insert, and wait a while until it is sealed.
	my sub insert_and_seal
	{
		my ($rows) = @_;
		my $looks = 0;

		$node->sql(new_rows($rows));
		wait_for(sub { return merge_info($node, 'delta_rows') < 10 || ++$looks > 50 });
		return;
	}

	ok_in_time(sub { return 1 if holds_graph($node); insert_and_seal(100); return 0; },
		'the device holds a merge');

	# twice eleven small seals make two segments, and with a larger one these make one of 23 pieces
	for (1 .. 6)
	{
		insert_and_seal(8) for 1 .. 22;
		insert_and_seal(32);
	}
	insert_and_seal(8) for 1 .. 20;
	ok_in_time(sub { return holds_graph($node) }, 'the large merge is still under way');
	is(of_device($node, 'merges'), 0, 'the device has built no graph');
	cmp_ok(merge_info($node, 'delta_rows'), '<', 10, 'what came meanwhile is sealed');
	index_is_complete($node, 'many pieces');

	alter_system($node, 'SET gpugraph.fault = none');
	ok_in_time(sub { return merge_info($node, 'segments') <= 4 }, 'segments are few');
	index_is_complete($node, 'the large merge is done');
	unlike(slurp_file($node->logfile), qr/corrupt|PANIC|ERROR:/, 'no error');
};

# Two devices build graphs of merges: one for each of two sessions, and one for a merge that is done
# within another one.
subtest merge_devices => sub {
	# On a GPU host one GPU may play both.
	local $ENV{GPUGRAPH_SAME_GPU} = 1;
	my $node = service_node('space', conf => <<'CONF');
gpugraph.devices = '0,1'
gpugraph.device_timeout = 0
CONF
	my sub sql { return $node->sql($_[0]) }
	ok_in_time(sub { sql("SELECT count(*) FROM gpugraph_stat_device WHERE state = 'up'") == 2 },
		'two devices');
	make_source($node, 12000, 16, 'seal_rows = 6000, segment_rows = 6000');

	# Devices of whose memory merges have a part: no index is on a device.
	my sub busy { return sql('SELECT count(*) FROM gpugraph_stat_device WHERE resident_bytes > 0') }

	my sub nothing_left
	{
		my ($what) = @_;
		sql("SELECT gpugraph_evict(relid) FROM gpugraph_stat_index WHERE device IS NOT NULL");
		ok_in_time(sub { return busy() == 0 }, $what);
		return;
	}

	my sub built
	{
		return sql("SELECT string_agg(merges::text, ' ' ORDER BY device)
			FROM gpugraph_stat_device");
	}

	# ---- two sessions
	sql('CREATE TABLE others AS SELECT * FROM source WHERE id <= 6000;
		CREATE INDEX others_idx ON others USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0);
		INSERT INTO others SELECT * FROM source WHERE id > 6000;
		CREATE TABLE more AS SELECT * FROM others;
		CREATE INDEX more_idx ON more USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0);
		INSERT INTO more SELECT id + 12000, cat, big, val FROM source');
	nothing_left('no index is on a device');
	set_fault($node, 'graph_hold');
	my $session = start_psql($node, "SELECT gpugraph_merge('others_idx')");
	ok_in_time(sub { return busy() == 1 }, 'a device has the first merge');
	sql("SET gpugraph.fault = none; SELECT gpugraph_merge('more_idx')");
	set_fault($node);
	is(finish_psql($session), '', 'both end');
	is(built(), '1 1', 'each device has built for one of them');
	index_is_complete($node, 'first', 'others');
	index_is_complete($node, 'second', 'more');
	nothing_left('their memory is given back');

	# ---- a merge within another one
	is(merge_info($node, 'segments'), 2, 'two segments that are to be merged');
	set_fault($node, 'graph_hold');
	sql('ALTER INDEX items_idx RESET (segment_rows)');
	sql('VACUUM items');
	ok_in_time(sub { return busy() == 1 }, 'a device holds their merge');
	sql("INSERT INTO items SELECT nextval('numbers'), cat, big,
		(SELECT array_agg(x + sin(id))::real[]::vector(16) FROM unnest(val::real[]) x)
		FROM source WHERE id <= 6600");
	ok_in_time(sub { return busy() == 2 }, 'the other one holds that of new rows');
	is(merge_info($node, 'segments'), 2, 'both are under way');
	set_fault($node);
	ok_in_time(sub { return built() =~ /^[23] [23]$/ }, 'each device builds') or diag(built());
	ok_in_time(sub { return busy() == 0 }, 'and ends');
	nothing_left('all memory is given back');
	index_is_complete($node, 'one within the other');
};

# A merge that is cancelled, at whatever point, leaves the index whole, and the next one gives back
# what it took.
subtest merge_cancel => sub {
	my $node = new_node('space');
	make_source($node, 4000, 32, 'seal_rows = 0');
	my $merge = "SELECT gpugraph_merge('items_idx')";
	$node->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM source');

	# how long one takes
	$node->sql('CREATE TABLE copy (id bigint, val vector(32));
		CREATE INDEX copy_idx ON copy USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0);
		INSERT INTO copy SELECT id, val FROM items');
	my $start = time;
	$node->sql("SELECT gpugraph_merge('copy_idx')");
	my $ms = 1000 * (time - $start);
	my ($cancelled, $done) = (0, 0);

	for my $step (1 .. 24)
	{
		my $timeout = 1 + int($ms * $step / 20);
		my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = $timeout; $merge");

		if ($rc != 0)
		{
			$cancelled++;
			is($err =~ s/^psql:\S+ //r, 'ERROR:  canceling statement due to statement timeout',
				"cancelled after $timeout ms");
		}
		else
		{
			$done++;
			# the machine may have been busier when it was measured: that long it takes at most
			$ms = $timeout if $timeout < $ms;
			$node->sql('INSERT INTO items SELECT id + nextval(\'numbers\') * 10000,
				cat, big, val FROM source WHERE id <= 300');
		}
		index_is_complete($node, "step $step") if $step % 4 == 0;
	}
	cmp_ok($cancelled, '>', 5, 'some were cancelled');
	is($node->sql($merge), 't', 'the next one does it');
	index_is_complete($node, 'merged');

	# by pg_cancel_backend() and by the end of the session, with VACUUM merging
	for my $how ('pg_cancel_backend', 'pg_terminate_backend')
	{
		for my $round (1 .. 3)
		{
			$node->sql('ALTER INDEX items_idx SET (seal_rows = 300); INSERT INTO items
				SELECT id + nextval(\'numbers\') * 10000, cat, big, val FROM source');
			my $session = start_psql($node, 'VACUUM items');
			my $pid;

			wait_for(
				sub {
					$pid = $node->sql("SELECT pid FROM pg_locks
						WHERE locktype = 'object' AND objid = 'items_idx'::regclass");
					return $pid ne '' || has_ended($session);
				});
			$node->sql("SELECT $how($pid)") if $pid ne '';
			finish_psql($session);
		}
		index_is_complete($node, "VACUUM ended by $how");
		$node->sql('VACUUM items');
		cmp_ok(merge_info($node, 'delta_rows'), '<', 300,
			"VACUUM after one that $how ended: merges");
		index_is_complete($node, "VACUUM after one that $how ended");
	}

	# no space is lost for good: after two merges all that is in no array is free, and is used again
	$node->sql('DELETE FROM items WHERE id > 10000');
	$node->sql('VACUUM items');
	for (1 .. 3)
	{
		$node->sql('INSERT INTO items SELECT id + nextval(\'numbers\') * 10000,
			cat, big, val FROM source WHERE id <= 100');
		$node->sql($merge);
	}
	is($node->sql("SELECT total_bytes - 8192 - vectors_bytes - adjacency_bytes -
		tids_bytes - pivots_bytes - delta_bytes - free_bytes < 65536
		FROM gpugraph_index_info('items_idx')"),
		't', 'each block is in an array or free');
	my $size = merge_info($node, 'total_bytes');
	for (1 .. 6)
	{
		$node->sql('INSERT INTO items SELECT id + nextval(\'numbers\') * 10000,
			cat, big, val FROM source WHERE id <= 100');
		$node->psql('postgres', "SET statement_timeout = " . (1 + int($ms / 4)) . "; $merge");
		$node->sql($merge);
	}
	# a merge of the worker's may hold some back for a while
	cmp_ok(merge_info($node, 'total_bytes'), '<=', 1.5 * $size, 'free blocks are used again');
	index_is_complete($node, 'at the end');

	$node->stop;
};

done_testing();
