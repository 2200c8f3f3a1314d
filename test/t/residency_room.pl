# Which indexes are on a device, where memory or entries are too few for all.
use Gpugraph;
use Residency;
use Time::HiRes qw(time);

# gpugraph.device_memory: the index used longest ago makes room, no index is evicted in vain, and
# the CPU searches one that can never fit, which the log says once.
subtest residency_limit => sub {
	my $node = service_node('room', conf => "gpugraph.device_memory = 2MB\n");

	# three tables of the same rows, whose indexes take some 0.8 MB each on the device
	$node->sql("SELECT make_data('a', 4000, 16, 40); CREATE TABLE b AS TABLE a;
		CREATE TABLE c AS TABLE a");
	for my $t (qw(a b c))
	{
		unserved {
			$node->sql("CREATE INDEX ${t}_idx ON $t USING gpugraph (val vector_l2_ops)");
		};
	}
	$node->sql("SELECT make_queries('a', 20)");
	$node->sql('VACUUM ANALYZE');

	my sub prewarm { return $node->sql("SELECT gpugraph_prewarm('$_[0]_idx')") }
	my sub states { return join ' ', map { state_of($node, "${_}_idx") } qw(a b c) }

	my $bytes = prewarm('a');
	cmp_ok($bytes, '>', 700_000, 'an index takes more than a third');
	cmp_ok($bytes, '<', 1_048_576, 'and less than half of the limit');
	prewarm('b');
	is(states(), 'ready ready absent', 'two fit');
	truth_by_device($node, 'the first', 'a');
	prewarm('c');
	is(states(), 'ready absent ready', 'what was used longest ago made room for the third');
	is(of_device($node, 'evictions'), 1, 'nothing else was evicted');
	is(log_lines($node, qr/index "b_idx".*makes room for index "c_idx"/), 1, 'the log says so');
	truth_by_device($node, 'the first', 'a');
	truth_by_device($node, 'the third', 'c');

	# ---- a query asks for the second; what is there gives way when it has been there for a while,
	# 20 times as long as its load took
	ok_in_time(
			sub {
				$node->sql("SELECT bool_and(clock_timestamp() >
						loaded_at + 21 * load_seconds * interval '1 s')
					FROM gpugraph_stat_index
					WHERE relid IN ('a_idx'::regclass, 'c_idx'::regclass)") eq 't'
			},
		'both have been there for a while');
	ok_in_time(
		sub {
			$node->sql("SELECT recall('b', '<->', 1)");
			return state_of($node, 'b_idx') eq 'ready';
		},
		'queries bring the second back');
	is(states(), 'absent ready ready', 'in place of the first');
	truth_by_device($node, 'the second', 'b');
	cmp_ok(of_device($node, 'resident_bytes'), '<=', 2 * 1024 * 1024, 'the limit is kept');

	# ---- too large for the limit
	unserved {
		$node->sql("SELECT make_data('big', 9000, 64, 40);
			CREATE INDEX big_idx ON big USING gpugraph (val vector_l2_ops)");
	};
	like(error_of($node, "SELECT gpugraph_prewarm('big_idx')"),
		qr/could not load index "big_idx".*needs \d+ kB of device memory.*allows 2048 kB/s,
		'prewarm of what is too large fails with the sizes');
	is(states(), 'absent ready ready', 'nothing was evicted for it');
	is($node->sql("SELECT count(*)
		FROM (SELECT id FROM big ORDER BY val <-> (SELECT val FROM big WHERE id = 5) LIMIT 5) s"),
		5, 'its queries are answered');
	is(of_index($node, "state || ' ' || cpu_memory", 'big_idx'), 'failed 1',
		'by the CPU, for want of memory');
	ok(($node->psql('postgres', "SELECT gpugraph_prewarm('big_idx')"))[0] != 0,
		'a second try fails, too');
	is(log_lines($node, qr/LOG: .*could not load index "big_idx"/), 1, 'the log says it once');
	like(error_of($node, "SET gpugraph.engine = cuda;
		SELECT id FROM big ORDER BY val <-> (SELECT val FROM big WHERE id = 5) LIMIT 5"),
		qr/ERROR/, 'with gpugraph.engine = cuda it is an error');

	# ---- a higher limit: it is tried again at once, a lower one: what is too much goes
	reload_with($node, 'gpugraph.device_memory = 20MB');
	ok_in_time(
			sub {
				$node->sql("SELECT id FROM big ORDER BY val <-> (SELECT val FROM big WHERE id = 5)
						LIMIT 5");
				return state_of($node, 'big_idx') eq 'ready';
			},
		'it fits a higher limit');
	is(states(), 'absent ready ready', 'beside the others');
	reload_with($node, 'gpugraph.device_memory = 1MB');
	ok_in_time(sub { of_device($node, 'resident_bytes') <= 1024 * 1024 },
		'a lower limit is kept to');

	# ---- lowered while a load is under way that was granted more: kept to as far as can be, and in
	# full once that is through
	reload_with($node, 'gpugraph.device_memory = 20MB');
	ok_in_time(sub { of_device($node, 'limit_bytes') == 20 * 1024 * 1024 }, 'a higher limit again');
	prewarm('a');
	set_fault($node, 'load_stall');
	my $loading = start_psql($node, "SELECT gpugraph_prewarm('big_idx')");
	ok_in_time(sub { of_device($node, 'resident_bytes') > 2_500_000 }, 'a load is under way');
	is(state_of($node, 'big_idx'), 'loading', 'it is');
	reload_with($node, 'gpugraph.device_memory = 1MB');
	ok_in_time(sub { state_of($node, 'a_idx') eq 'absent' }, 'what can go does');
	set_fault($node);
	finish_psql($loading);
	ok_in_time(sub { of_device($node, 'resident_bytes') <= 1024 * 1024 }, 'and the rest follows');
	like(truth($node, 'c'), qr/^1\.0000/, 'all the while answers are right');
};

# More indexes than the table of residents has entries: as many as fit stay on the device, and an
# index that was just loaded is not pushed out by one that finds no place.
subtest residency_many => sub {
	my $entries = 32;
	my $more = 2;
	my $n = $entries + $more;
	# always the CPU engine, whose sizes, ties and number of devices are the same everywhere
	my $node = service_node('room', conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.itopk_size = 8
gpugraph.max_residents = 32
CONF

	unserved {
		$node->sql(<<"SQL");
SELECT make_data('items', 400, 4, 10);
DO \$\$ BEGIN
	FOR i IN 1 .. $n LOOP
		EXECUTE format('CREATE TABLE t%s AS SELECT id, val FROM items', i);
		EXECUTE format('CREATE INDEX t%s_idx ON t%s USING gpugraph (val vector_l2_ops)', i, i);
	END LOOP;
END \$\$;
-- each index asked once, by any number of rounds
CREATE FUNCTION ask(rounds int) RETURNS void LANGUAGE plpgsql AS \$\$
DECLARE
	found int;
BEGIN
	PERFORM set_config('enable_seqscan', 'off', true);
	FOR r IN 1 .. rounds LOOP
		FOR i IN 1 .. $n LOOP
			EXECUTE format('SELECT id FROM t%s
				ORDER BY val <-> (SELECT val FROM items WHERE id = %s) LIMIT 1', i, i) INTO found;
			IF found <> i THEN
				RAISE EXCEPTION 'row % of t%: %', i, i, found;
			END IF;
		END LOOP;
	END LOOP;
END \$\$;
SQL
	};

	# ---- a first round takes all entries there are
	$node->sql(join ';', map { "SELECT gpugraph_prewarm('t${_}_idx')" } 1 .. $entries);
	is(of_device($node, "resident_indexes || ' ' || evictions"), "$entries 0",
		'every entry is taken');

	# ---- queries of all indexes in turn: those that are there stay, and answer
	my $before = $node->sql('SELECT sum(queries_gpu) FROM gpugraph_stat_index');
	$node->sql('SELECT ask(50)');
	my $evictions = of_device($node, 'evictions');
	my $share = ($node->sql('SELECT sum(queries_gpu) FROM gpugraph_stat_index')
		- $before) / (50 * $n);
	note("$evictions evictions, the device answered $share");
	cmp_ok($share, '>', 0.8, 'the device answers nearly all of them');

	# ---- who prewarms may
	$node->sql("SELECT gpugraph_prewarm('t${n}_idx')");
	is(state_of($node, "t${n}_idx"), 'ready', 'gpugraph_prewarm() finds a place');
	cmp_ok(of_device($node, 'resident_indexes'), '>=', $entries - 2, 'and takes few for it');

	is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
};

# A table of 300 small partitions: every index stays on one device, which answers a query of all of
# them alone, and has them again after a restart.
subtest residency_small => sub {
	my $n = 300;
	my $node = service_node('room', conf => <<'CONF');
gpugraph.itopk_size = 8
max_locks_per_transaction = 256
CONF

	unserved {
		$node->sql(<<"SQL");
SELECT setseed(0.5);
CREATE TABLE items (id int, part int, val vector(3)) PARTITION BY LIST (part);
DO \$\$ BEGIN
	FOR i IN 1 .. $n LOOP
		EXECUTE format('CREATE TABLE items_%s PARTITION OF items FOR VALUES IN (%1\$s)', i);
	END LOOP;
END \$\$;
INSERT INTO items SELECT i, i % $n + 1, ARRAY[random(), random(), random()]
	FROM generate_series(1, 400 * $n) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
SQL
	};

	my $residents = "count(*) FILTER (WHERE state = 'ready')";
	my sub residents { return $node->sql("SELECT $residents FROM gpugraph_stat_index") }

	# The ten nearest rows and how many indexes a device, and the CPU, answered for.
	my sub ask
	{
		my ($by_index) = @_;

		return $node->sql(<<"SQL");
SELECT gpugraph_stat_reset();
SET enable_seqscan = @{[ $by_index ? 'off' : 'on' ]};
SET enable_indexscan = @{[ $by_index ? 'on' : 'off' ]};
SELECT array_agg(id) FROM
	(SELECT id FROM items ORDER BY val <-> '[0.4, 0.5, 0.6]' LIMIT 10) s;
SELECT count(*) FILTER (WHERE queries_gpu = 1), coalesce(sum(queries_cpu), 0)
	FROM gpugraph_stat_index;
SQL
	}

	my sub all_answered
	{
		my ($what) = @_;
		my ($rows, $counts) = (split /\n/, ask(1))[-2, -1];
		my ($exact) = (split /\n/, ask(0))[-2];

		is($counts, "$n|0", "$what: the device answers for every index");
		is($rows, $exact, "$what: and rightly");
		return;
	}

	$node->sql(<<'SQL');
SELECT sum(gpugraph_prewarm(indexrelid)) FROM pg_index
	JOIN pg_inherits ON inhrelid = indexrelid WHERE inhparent = 'items_idx'::regclass;
SQL
	is(residents(), $n, 'all are on the device');
	is(of_device($node, "resident_indexes || ' ' || evictions"), "$n 0", 'and nothing was evicted');
	all_answered('at first');

	$node->restart;
	ok_in_time(sub { residents() == $n }, 'after a restart they come again');
	all_answered('after a restart');

	# ---- fewer may stay than were there
	restart_with($node, 'gpugraph.max_residents = 100');
	ok_in_time(sub { residents() == 100 }, 'as many come again as may');
	is((split /\n/, ask(1))[-2], (split /\n/, ask(0))[-2], 'and the CPU answers for the others');

	is(log_lines($node, qr/(PANIC|TRAP|signal|damaged)/), 0, 'nothing bad is in the log');
};

# The delta of an index that is on a device grows beyond the room that is there for it. The resident
# gives up segments, and has the rows of today: it is not left as it was until it is loaded anew.
subtest residency_delta => sub {
	# always the CPU engine, whose sizes are the same everywhere
	my $node = service_node('room', conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.merge_workers = 0
gpugraph.device_memory = 5MB
CONF

	unserved {
		$node->sql(<<'SQL');
SELECT make_data('few', 2500, 32, 40);
CREATE TABLE items AS SELECT row_number() OVER ()::int AS id, a.cat, a.big, a.val + b.val AS val
	FROM few a, few b WHERE a.id <= 2400 AND b.id <= 10;
SELECT make_queries('items', 20);
SET max_parallel_maintenance_workers = 0;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (seal_rows = 0, segment_rows = 4000);
SQL
	};
	my sub sql { return $node->sql($_[0]) }

	# Rows go to the delta; queries ask for a refresh until the device has all of its full pages.
	my $rows = 50000;
	my sub grow
	{
		my ($n) = @_;

		sql("INSERT INTO items SELECT $rows + row_number() OVER (), cat, big, val
			FROM items WHERE id <= $n");
		$rows += $n;
		my $pages = sql("SELECT delta_bytes / 8192 - 1 FROM gpugraph_index_info('items_idx')");
		return defined wait_for(sub {
				sql('SET enable_seqscan = off; SELECT id FROM items
					ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 1');
				return of_index($node, 'delta_pages') >= $pages;
			});
	}

	sql('INSERT INTO items SELECT 40000 + id, cat, big, val FROM items WHERE id <= 2000');
	sql("SELECT gpugraph_prewarm('items_idx')");
	is(of_index($node, 'state'), 'partial', 'the device has a part of it');
	my $missing = of_index($node, 'missing_segments');
	my $loads = of_device($node, 'loads');

	for my $step (1 .. 8)
	{
		ok(grow(1000 + 100 * $step), "step $step: the device has the new rows");
		is(truth($node), '1.0000 20 0', "step $step: both answer, and rightly");
	}
	my $less = of_index($node, 'missing_segments');
	cmp_ok($less, '>', $missing, "segments went: $missing were missing, then $less");
	is(of_device($node, "loads || ' ' || failed_loads"), "$loads 0",
		'no refresh failed, and nothing was loaded anew');
	cmp_ok(of_device($node, 'resident_bytes'), '<=', 5 << 20, 'the limit is kept');
	cmp_ok(log_lines($node, qr/LOG: .*items_idx.* of 1 segments?, makes room for its delta/), '>',
		0, 'the log says so');
	index_is_complete($node, 'grown');

	# ---- with room for all again, what went comes back
	reload_with($node, 'gpugraph.device_memory = 20MB');
	ok_in_time(sub { of_index($node, 'state') eq 'ready' }, 'with room all comes back');
	is(of_device($node, 'loads'), $loads, 'without a new load');

	# ---- an index that was there as a whole
	reload_with($node, 'gpugraph.device_memory = '
		. (int(of_index($node, 'bytes') / 1048576) + 2) . 'MB');
	is(of_index($node, 'missing_segments'), 0, 'just enough room for the whole');
	ok(grow(3000), 'it has the new rows');
	cmp_ok(of_index($node, 'missing_segments'), '>', 0, 'and is there in part');
	is(truth($node), '1.0000 20 0', 'both answer, and rightly');

	# ---- the delta alone is too large: an error, as ever
	reload_with($node, 'gpugraph.device_memory = 2MB');
	like(error_of($node, "SET statement_timeout = '60s';
		SELECT gpugraph_prewarm('items_idx')"), qr/it needs .* of device memory/,
		'no room even for the delta');
	like(truth($node), qr/^1\.0000 /, 'answers are right');
};

# A copy that cannot be used any more is replaced or gives way. Neither too little memory for two
# copies nor loads that fail keep an index on the CPU for good, or a session waiting.
subtest residency_refresh => sub {
	# always the CPU engine, whose sizes, ties and number of devices are the same everywhere
	my $node = service_node('room', conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.device_memory = 1MB
gpugraph.merge_workers = 0
CONF
	my $query =
		'SELECT count(*)
		FROM (SELECT id FROM rows ORDER BY val <-> (SELECT val FROM rows WHERE id = 2900)
			LIMIT 10) s';

	# 3000 rows in the delta take three quarters of the memory
	unserved {
		$node->sql(<<'SQL');
CREATE TABLE rows (id int, val vector(64));
CREATE INDEX rows_idx ON rows USING gpugraph (val vector_l2_ops);
INSERT INTO rows SELECT i,
	(SELECT array_agg(sin(i * 13 + j * j)) FROM generate_series(1, 64) j)::vector
	FROM generate_series(1, 3000) i;
SQL
	};
	my $bytes = $node->sql("SELECT gpugraph_prewarm('rows_idx')");
	cmp_ok($bytes, '>', 700_000, 'a copy takes more than half of what is allowed');

	# A query answered by the device, or not.
	my sub by_device
	{
		my ($before) = answered_by($node, 'rows_idx');
		is($node->sql("SET enable_seqscan = off; $query"), 10, 'ten rows')
			if $node->sql("SET enable_seqscan = off; $query") != 10;
		my ($after) = answered_by($node, 'rows_idx');
		return $after > $before;
	}
	ok(by_device(), 'the device answers');

	# ---- VACUUM gives back the delta's front: pages are numbered anew, so the copy is of no use
	$node->sql('DELETE FROM rows WHERE id <= 1200');
	$node->sql('VACUUM (FREEZE) rows');
	ok_in_time(\&by_device,
		'another generation, and no room for both copies: the device answers again');
	is(of_index($node, 'generation > 1', 'rows_idx'), 't', 'from a new copy');

	# ---- the delta grows: the copy is used as long as it has most of it
	$node->sql('INSERT INTO rows SELECT id + 10000, val FROM rows WHERE id < 1700');
	ok(by_device(), 'a longer delta: the device answers');
	my $pages = of_index($node, 'delta_pages', 'rows_idx');
	$node->sql('DELETE FROM rows WHERE id < 2700; VACUUM (FREEZE) rows');
	ok_in_time(\&by_device, 'cut again: the device answers again');

	# ---- the only segment goes, and loads fail: with gpugraph.engine = cuda that is an error, not
	# a wait
	reload_with($node, 'gpugraph.device_memory = 100MB');
	unserved { $node->sql('REINDEX INDEX rows_idx'); };
	$node->sql("SELECT gpugraph_prewarm('rows_idx')");
	$node->sql(<<'SQL');
INSERT INTO rows SELECT i,
	(SELECT array_agg(sin(i * 17 + j * j)) FROM generate_series(1, 64) j)::vector
	FROM generate_series(20001, 22000) i;
SQL
	$node->sql('DELETE FROM rows WHERE id < 20001; VACUUM (FREEZE) rows');
	$query =~ s/2900/20005/;
	like(error_of($node,
		"SET statement_timeout = '20s'; SET enable_seqscan = off; SET gpugraph.engine = cuda;
		SET gpugraph.fault = load; $query"),
		qr/no GPU can search index "rows_idx".*The GPU, or the load of the index to it, failed/s,
		'other segments, and loads fail: an error');
	is($node->sql("SET enable_seqscan = off; SET gpugraph.fault = load; $query"), 10,
		'else the CPU answers');
	ok_in_time(\&by_device, 'until a load succeeds');

	is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
};

# Who may have indexes loaded and evicted, and at whose cost: nobody but the table's owner evicts an
# index, and gpugraph_prewarm() pushes out what others have had loaded just now only for those who
# maintain the whole server.
subtest residency_privileges => sub {
	my $node = service_node('room', conf => "gpugraph.device_memory = 2MB\n");

	# three tables of some 0.8 MB each on the device
	for my $t (qw(a b c))
	{
		unserved {
			$node->sql("SELECT make_data('$t', 4000, 16, 40);
				CREATE INDEX ${t}_idx ON $t USING gpugraph (val vector_l2_ops)");
		};
	}
	$node->sql(<<SQL);
CREATE ROLE keeper;
CREATE ROLE watcher IN ROLE pg_stat_scan_tables;
CREATE ROLE nobody;
ALTER TABLE c OWNER TO keeper;
SQL

	my sub states { return join ' ', map { state_of($node, "${_}_idx") } qw(a b c) }
	my sub error_as { return error_of($node, "SET ROLE $_[0]; SELECT $_[1]") }

	# loads that took a second are protected for twenty
	for my $t (qw(a b))
	{
		$node->sql("SET gpugraph.fault = load_stall; SELECT gpugraph_prewarm('${t}_idx')");
	}
	is(states(), 'ready ready absent', 'two fit');

	# ---- evict
	like(error_as('watcher', "gpugraph_evict('a_idx')"), qr/must be owner of index a_idx/,
		'a member of pg_stat_scan_tables may not evict');
	like(error_as('keeper', "gpugraph_evict('a_idx')"), qr/must be owner of index a_idx/,
		'nor the owner of another table');
	like(error_as('nobody', "gpugraph_evict('a_idx')"), qr/must be owner of index a_idx/,
		'nor anybody');
	is(states(), 'ready ready absent', 'nothing was evicted');

	# ---- prewarm
	is(error_as('watcher', "gpugraph_prewarm('a_idx')"), '',
		'a member of pg_stat_scan_tables may prewarm');
	like(error_as('nobody', "gpugraph_prewarm('a_idx')"), qr/must be owner of index a_idx/,
		'not anybody');
	like(error_as('keeper', "gpugraph_prewarm('c_idx')"),
		qr/could not load index "c_idx".*has not been used for long enough/s,
		'the owner may, but not at the cost of what was loaded just now');
	like(error_as('watcher', "gpugraph_prewarm('c_idx')"),
		qr/could not load index "c_idx".*has not been used for long enough/s,
		'nor may a member of pg_stat_scan_tables');
	is(states(), 'ready ready failed', 'what was there is there still');
	$node->sql("SELECT gpugraph_evict('b_idx')");
	is(error_as('keeper', "gpugraph_prewarm('c_idx')"), '', 'where there is room the owner may');
	is(states(), 'ready absent ready', 'it was loaded');
	$node->sql("SELECT gpugraph_evict('c_idx'); SET gpugraph.fault = load_stall;
		SELECT gpugraph_prewarm('c_idx')");
	is($node->sql("SELECT gpugraph_prewarm('b_idx') > 0"), 't', 'a superuser may at any cost');
	is(states(), 'absent ready ready', 'what was used longest ago was evicted');
	is(error_as('keeper', "gpugraph_evict('c_idx')"), '', 'the owner may evict');
	is(states(), 'absent ready absent', 'it was evicted');

	# ---- what can be granted from PostgreSQL 17 on
	if ($node->pg_version >= 17)
	{
		$node->sql('GRANT MAINTAIN ON b TO nobody; CREATE ROLE maintainer IN ROLE pg_maintain');
		is(error_as('nobody', "gpugraph_evict('b_idx')"), '',
			'who may maintain the table may evict');
		is(error_as('nobody', "gpugraph_prewarm('b_idx')"), '', 'and prewarm');
		$node->sql("SELECT gpugraph_evict('b_idx')");
		for my $t (qw(a b))
		{
			$node->sql("SET gpugraph.fault = load_stall; SELECT gpugraph_prewarm('${t}_idx')");
		}
		is(error_as('maintainer', "gpugraph_prewarm('c_idx')"), '',
			'a member of pg_maintain may prewarm at any cost');
		is(states(), 'absent ready ready', 'what was used longest ago was evicted');
	}

	$node->stop;
};

done_testing();
