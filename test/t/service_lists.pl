# How long the lists are that a device is asked for, and what it does beyond the longest.
use Gpugraph;
use Residency;
use Time::HiRes qw(sleep);

# A device is asked for what a LIMIT takes, wherever the executor can know it, and goes on where
# more is wanted after all: rows that are dead, locked by others or tied, joins, the queue of
# float16.
subtest service_limit => sub {
	my $node = service_node('lists', conf => "gpugraph.itopk_size = 64\n");
	make_items($node, 12000, 16);
	$node->sql(<<'SQL');
ALTER INDEX items_idx SET (seal_rows = 0);
-- equal rows: nodes of many
INSERT INTO items SELECT id + 40000, cat, big, (SELECT val FROM items WHERE id = 7) FROM items
	WHERE id <= 300;
REINDEX INDEX items_idx;
SELECT gpugraph_prewarm('items_idx');
SQL

	my $fast = 'SET enable_seqscan = off; SET enable_sort = off; SET gpugraph.engine = cuda;';
	my $exact = 'SET enable_indexscan = off; SET plan_cache_mode = force_custom_plan;';
	my $nearest = 'ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)';

	# The ids that $sql selects by the device are those of the plan without the index, but for one
	# in fifty; the last scan was followed by a longer list or not.
	my sub answers_as
	{
		my ($what, $widened, $sql, $index) = @_;
		my ($gpu, $cpu) = answered_by($node, $index);
		my ($found, $widenings) = split /\n(?=.*\z)/,
		  $node->sql("$fast $sql;\nSELECT widenings > 0 FROM gpugraph_last_scan()");
		my ($gpu_after, $cpu_after) = answered_by($node, $index);
		my @true = split /\n/, $node->sql("$exact $sql");
		my %true = map { $_ => 1 } @true;
		my @found = split /\n/, $found;
		my $same = grep { delete $true{$_} } @found;

		is(scalar @found, scalar @true, "$what: as many rows");
		cmp_ok($same, '>=', 0.98 * @true, "$what: the nearest");
		is($widenings, $widened ? 't' : 'f', "$what: " . ($widened ? 'several lists' : 'one list'));
		is(join(' ', $gpu_after > $gpu, $cpu_after - $cpu), '1 0', "$what: by the device alone");
		return;
	}

	# ---- known when the plan begins
	answers_as('LIMIT', 0, "SELECT id FROM items $nearest LIMIT 100");
	answers_as('a short LIMIT', 0, "SELECT id FROM items $nearest LIMIT 10");
	answers_as('OFFSET', 0, "SELECT id FROM items $nearest OFFSET 90 LIMIT 10");
	answers_as('FETCH', 0, "SELECT id FROM items $nearest FETCH FIRST 100 ROWS ONLY");
	answers_as('a projection', 0,
		"SELECT id FROM (SELECT id, cat || 'x' FROM items $nearest LIMIT 100) s");
	answers_as('a subquery', 0,
		"SELECT id FROM (SELECT id FROM items $nearest OFFSET 0) s LIMIT 100");
	answers_as('rows locked', 0, "SELECT id FROM items $nearest LIMIT 100 FOR UPDATE");
	for my $type (qw(int bigint))
	{
		answers_as("LIMIT \$1, $type", 0, <<"SQL" =~ s/;\n\z//r);
SET plan_cache_mode = force_generic_plan;
PREPARE p($type) AS SELECT id FROM items $nearest LIMIT \$1;
EXECUTE p(100);
SQL
	}
	answers_as('an expression of constants', 0, "SELECT id FROM items $nearest LIMIT 90 + 10");

	# a walk that returns what will be taken finds what one finds that returns more
	for my $itopk (16, 32, 64, 128)
	{
		my $found = "$fast SET gpugraph.itopk_size = $itopk; SELECT q, i.id FROM queries,
			LATERAL (SELECT id FROM items ORDER BY items.val <-> queries.val LIMIT %s) i";
		my %told = map { $_ => 1 } split /\n/, $node->sql(sprintf $found, 10);
		my @untold = split /\n/, $node->sql(sprintf $found, '(SELECT 10)');
		my $others = grep { !$told{$_} } @untold;

		is(scalar keys %told, scalar @untold, "itopk_size $itopk: as many rows with a LIMIT known");
		cmp_ok($others, '<=', 0.001 * @untold, "itopk_size $itopk: the same rows");
	}

	# ---- not known, or not all
	answers_as('a LIMIT from a subquery', 1, "SELECT id FROM items $nearest LIMIT (SELECT 100)");
	answers_as('LIMIT ALL', 1,
		"SELECT id FROM (SELECT id FROM items $nearest LIMIT ALL) s LIMIT (SELECT 90)");
	answers_as('a join that drops rows', 1, <<"SQL" =~ s/;\n\z//r);
SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off;
SET enable_memoize = off;
SELECT i.id FROM items i JOIN LATERAL (SELECT 1 WHERE i.id % 40 = 0 OFFSET 0) j ON true
	$nearest LIMIT 10;
SQL
	answers_as('a filter of the executor', 1,
		"SELECT id FROM items WHERE cat = 3 $nearest LIMIT 100");
	answers_as('ties, rows of one node', 0,
		"SELECT id FROM items ORDER BY val <-> (SELECT val FROM items WHERE id = 7)
		FETCH FIRST 5 ROWS WITH TIES");

	my $locker = start_psql($node,
		"BEGIN; $exact SELECT id FROM items $nearest LIMIT 50 FOR UPDATE; SELECT pg_sleep(600)");
	my $sleeps = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE wait_event = 'PgSleep'";
	wait_for(sub { $node->sql($sleeps =~ s/pg_terminate_backend\(pid\)/true/r) });
	{
		my $sql = "SELECT id FROM items $nearest LIMIT 20 FOR UPDATE SKIP LOCKED";
		answers_as('SKIP LOCKED', 1, $sql);
	}
	$node->sql($sleeps);
	$locker->{harness}->finish;

	# rows of partitions: each has as many as are asked for of all
	$node->sql(<<'SQL');
CREATE TABLE parted (LIKE items) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (6000);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (6000) TO (MAXVALUE);
INSERT INTO parted SELECT * FROM items;
CREATE INDEX parted_idx ON parted USING gpugraph (val vector_l2_ops);
ANALYZE parted;
SELECT gpugraph_prewarm('parted_1_val_idx'), gpugraph_prewarm('parted_2_val_idx');
SQL
	answers_as('partitions', 0, "SELECT id FROM parted $nearest LIMIT 100", 'parted_1_val_idx');

	# float16: the executor's queue takes more rows than it hands out
	$node->sql(<<'SQL');
CREATE TABLE rounded AS SELECT id, val FROM items;
CREATE INDEX rounded_idx ON rounded USING gpugraph (val vector_l2_ops) WITH (storage = 'float16');
ANALYZE rounded;
SELECT gpugraph_prewarm('rounded_idx');
SQL
	{
		my $sql = "SELECT id FROM rounded $nearest LIMIT 10";
		is($node->sql("$fast $sql"), $node->sql("$exact $sql"), 'float16: the nearest in order');
	}

	# dead rows, which the index still has
	$node->sql("DELETE FROM items WHERE id IN (SELECT id FROM items $nearest LIMIT 90)");
	answers_as('dead rows', 1, "SELECT id FROM items $nearest LIMIT 20");
};

# A longer list of a device does not find less.  Up to some hundred entries a walk of a small index
# is faster than measuring all of its rows, even where LIMIT takes a longer list than
# gpugraph.itopk_size, and beyond it an exact list takes its place.
subtest service_lengths => sub {
	my $node = service_node('lists', conf => "gpugraph.merge_workers = 0\n");

	# of little structure, and with a lean graph, so that short walks find half of what there is
	unserved {
		$node->sql(<<'SQL');
SELECT setseed(0.4);
CREATE TABLE items AS SELECT i AS id, array_agg(random())::vector(32) AS val
	FROM generate_series(1, 33000) i, generate_series(1, 32) GROUP BY i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 6, intermediate_graph_degree = 12);
ANALYZE items;
SQL
	};
	$node->sql("SELECT gpugraph_prewarm('items_idx')");

	# recall by length; of 50 queries a list of 32 found now and then less than one of 16
	my %recall = map { split /=/ } split / /, $node->sql(<<'SQL');
SELECT string_agg(itopk_size || '=' || round(recall::numeric, 4), ' ' ORDER BY itopk_size)
	FROM gpugraph_recall('items_idx', 10, 400);
SQL
	my @lengths = sort { $a <=> $b } keys %recall;
	note("recall: @{[map { \"$_ $recall{$_}\" } @lengths]}");
	cmp_ok(scalar @lengths, '>=', 6, 'lengths');
	is(scalar(grep { $recall{$lengths[$_]} < $recall{$lengths[$_ - 1]} } 1 .. $#lengths), 0,
		'no longer list finds less than a shorter one');
	cmp_ok($recall{1024}, '==', 1, 'a list that long is exact');

	# the length from which on lists suffice
	my $needed = $node->sql("SELECT gpugraph_itopk_size('items_idx', 10, 0.6, 400)");
	cmp_ok($needed, '>=', (grep { $recall{$_} < 0.6 } @lengths)[-1],
		'gpugraph_itopk_size() says one that all longer ones are as good as');
	cmp_ok($needed, '<=', (grep { $recall{$_} >= 0.6 } @lengths)[0], '... and no more');

	# who answers, and how: exact lists
	my sub lists_of
	{
		my ($settings, $limit) = @_;

		return $node->sql("SET enable_seqscan = off; $settings
			DO \$\$ BEGIN PERFORM id FROM items ORDER BY val <-> (SELECT val FROM items
				WHERE id = 7) LIMIT $limit; END \$\$;
			SELECT engine, exact_lists FROM gpugraph_last_scan()");
	}

	foreach my $itopk (16, 32, 64, 256)
	{
		is(lists_of("SET gpugraph.itopk_size = $itopk;", 10), 'gpu|0', "itopk_size $itopk: a walk");
	}
	is(lists_of('', 100), 'gpu|0', 'LIMIT 100: a walk with its list');
	foreach my $itopk (16, 64, 640, 1024)
	{
		is(lists_of("SET gpugraph.itopk_size = $itopk;", 300), 'gpu|1',
			"itopk_size $itopk and LIMIT 300: all rows are measured");
	}
	is(lists_of('SET gpugraph.itopk_size = 1024; SET gpugraph.search_mode = single_cta;', 10),
		'gpu|0', 'a procedure that is named walks');

	# the planner believes no exact list to be cheaper than a short walk
	my sub cost_of
	{
		my ($itopk) = @_;
		my $plan = $node->sql("SET enable_seqscan = off;
			SET gpugraph.itopk_size = $itopk;
			EXPLAIN SELECT id FROM items ORDER BY val <-> array_fill(0.5, ARRAY[32])::vector
				LIMIT 10");
		my ($cost) = $plan =~ /cost=[0-9.]+\.\.([0-9.]+)/;

		return $cost;
	}

	cmp_ok(cost_of(16), '<', cost_of(64), 'short walks cost less than longer ones');
	cmp_ok(cost_of(256), '<', cost_of(1024), '... and those less than exact lists');
};

# A scan that goes far beyond the device's longest list stays on the device, and returns every row
# once and in order; memory for long answers is given back by whatever happens to those who use it.
subtest service_deep => sub {
	my $node = service_node('lists', conf => <<'CONF');
gpugraph.itopk_size = 64
gpugraph.answer_chunks = 1
max_connections = 30
CONF
	make_items($node, 12000, 16);
	$node->sql(<<'SQL');
ALTER INDEX items_idx SET (seal_rows = 0);
INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id % 3 = 0;
-- equal rows: nodes of many
INSERT INTO items SELECT id + 40000, cat, big, (SELECT val FROM items WHERE id = 7) FROM items
	WHERE id <= 700;
SELECT gpugraph_prewarm('items_idx');
SQL

	my $fast = 'SET enable_seqscan = off; SET gpugraph.engine = cuda;';
	my $nearest = 'ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)';

	my sub answered_on_device
	{
		my ($what, $sql, $expected) = @_;
		my ($gpu, $cpu) = answered_by($node);

		is($node->sql($sql), $expected, $what);
		my ($gpu_after, $cpu_after) = answered_by($node);
		is(join(' ', $gpu_after > $gpu, $cpu_after - $cpu), '1 0', "$what: by the device alone");
		return;
	}

	# how many rows, how many different ones, how many nearer than the one before
	my sub all_rows
	{
		my ($how, $rest) = @_;
		return <<"SQL";
$fast
SET gpugraph.iterative_scan = $how;
SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE d < before * (1 - 1e-6)) < 40
FROM (SELECT id, d, lag(d) OVER () AS before FROM
	(SELECT id, val <-> (SELECT val FROM queries WHERE q = 1) AS d FROM items $nearest $rest) s) s;
SQL
	}

	# ---- to the very end, and over many lists
	my $rows = $node->sql('SELECT count(*) FROM items');
	answered_on_device("every row, $_", all_rows($_, ''), "$rows|$rows|t")
		for qw(strict_order relaxed_order);
	answered_on_device('5000 rows', all_rows('strict_order', 'LIMIT 5000'), '5000|5000|t');
	answered_on_device('a filter that one row passes',
		"$fast SELECT id FROM items WHERE id + 0 = 11000 $nearest LIMIT 1", '11000');

	# a condition that no index has: lists are as long as what it is expected to want, in a scan
	# that begins anew, too, and have the rows of a sort; LIMITs are such as are not known before
	my $passes = "SELECT id FROM items WHERE id % 1000 = 0 $nearest LIMIT (SELECT 4)";
	my $each = "SELECT count(*) FROM queries q, LATERAL (SELECT id FROM items WHERE id % 1000 = 0
		ORDER BY items.val <-> q.val LIMIT (SELECT 4)) s WHERE q.q <= 3";
	my $last = 'SELECT widenings, rows FROM gpugraph_last_scan()';
	$node->sql('ANALYZE items');
	my @filtered = split /[\n|]/, $node->sql("$fast PREPARE p AS SELECT count(*) FROM ($passes) s;
		EXECUTE p; EXECUTE p; $last; $each; $last");
	my ($widenings, $returned) = @filtered[2, 3];
	my ($expected, undef) = split /[\n|]/, (split /\n/, $node->sql(
		"$fast SELECT count(*) FROM (SELECT id FROM items $nearest LIMIT (SELECT $returned)) s;
		$last"))[1];
	is("@filtered[0, 1, 4]", '4 4 12', 'a condition that no index has');
	cmp_ok($widenings, '<', $expected, "fewer lists for $returned rows than without the condition");
	cmp_ok($filtered[5], '<', $expected, 'in a scan that begins anew, too');
	my $sorted = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM ($passes) s";
	is($node->sql("$fast $sorted"), $node->sql("SET enable_indexscan = off; $sorted"),
		'the same rows');

	# After a walk's list that was too short, the first lists are deep, of every segment and the
	# delta. A walk is tried now and then.  All are walks with iterative_scan = off, and where many
	# rows pass.
	my $lists = 'SELECT lists > 1, exact_lists = lists, widenings > 0 FROM gpugraph_last_scan()';
	my sub lists_of
	{
		my @scans = map { "SELECT count(*) FROM ($_) s; $lists" } @_;
		my $out = $node->sql(join('; ', $fast, @scans));

		return join(' ', grep { /\|/ } split /\n/, $out);
	}
	is(lists_of(($passes) x 5), 't|f|t t|t|f t|f|t t|t|f t|t|f', 'the first lists are deep');
	my $off = "SET gpugraph.iterative_scan = off; SELECT count(*) FROM ($passes) s; $lists";
	is($node->sql("$fast $off; $off") =~ s/^\d+\n//mgr, "t|f|f\nt|f|f",
		'not with iterative_scan = off');
	my $common = "SELECT id FROM items WHERE id % 2 = 1 $nearest LIMIT 4";
	is(lists_of(($common) x 3), 't|f|f t|f|f t|f|f', 'nor where many rows pass');
	for my $how (qw(strict_order relaxed_order))
	{
		is($node->sql("$fast SET gpugraph.iterative_scan = $how; $sorted"),
			$node->sql("SET enable_indexscan = off; $sorted"), "the same rows, $how");
		is($node->sql("$fast SET gpugraph.iterative_scan = $how;
			SELECT count(*), count(DISTINCT id) FROM
				(SELECT id FROM items WHERE id % 1000 <> 1001 $nearest) s"), "$rows|$rows",
			"every row, whatever is expected, $how");
	}
	my $right = $node->sql("SET enable_indexscan = off; $sorted");
	is($node->sql("SET enable_seqscan = off; $sorted; SET gpugraph.fault = $_;
		$sorted"), "$right\n$right", "the CPU answers where the device fails: $_")
		for qw(launch ring_full);
	$node->sql("SELECT gpugraph_prewarm('items_idx')");

	# the same rows as a sort has, but for what strict order keeps back
	is($node->sql(<<"SQL"), '3000|t', 'the right ones');
$fast
CREATE TEMP TABLE a AS SELECT id, val <-> (SELECT val FROM queries WHERE q = 1) AS d
	FROM items $nearest LIMIT 3000;
SET enable_seqscan = on;
SET enable_indexscan = off;
CREATE TEMP TABLE b AS SELECT id, val <-> (SELECT val FROM queries WHERE q = 1) AS d
	FROM items $nearest LIMIT 3000;
SELECT count(*), max(d) <= (SELECT max(d) * (1 + 1e-6) FROM b) FROM a WHERE d IS NOT NULL;
SQL

	# ---- cursors: two in turn share the one chunk; one that is old goes on after everything
	# changed
	make_cursor_functions($node);
	answered_on_device('two cursors in turn', <<"SQL", '3000|3000');
$fast
SELECT (SELECT count(DISTINCT u) FROM unnest(by_a) u),
	(SELECT count(DISTINCT u) FROM unnest(by_b) u) FROM read_in_turn(3000);
SQL

	my sub old_cursor
	{
		my ($what, $between, $engine, $expected) = @_;

		is($node->sql(<<"SQL"), $expected, $what);
$fast
SET gpugraph.engine = $engine;
SELECT cardinality(ids), (SELECT count(DISTINCT u) FROM unnest(ids) u)
	FROM read_around(\$\$$between\$\$, 1200, NULL) ids;
SQL
		return;
	}

	old_cursor('a cursor goes on over a new copy',
		"SELECT gpugraph_evict('items_idx'), gpugraph_prewarm('items_idx'), pg_sleep(0.3)",
		'cuda', "$rows|$rows");
	old_cursor("a cursor goes on where the device fails: $_",
		"SELECT set_config('gpugraph.fault', '$_', true)", 'auto', "$rows|$rows")
		for qw(launch ring_full);
	$node->sql("SELECT gpugraph_prewarm('items_idx')");

	# ---- rows whose pages the scan has pinned before the executor: updated on their page and
	# elsewhere, dead, locked, read by cursors and within subtransactions
	$node->sql(<<'SQL');
CREATE TABLE moved (id int, n int, val vector(16)) WITH (fillfactor = 60);
INSERT INTO moved SELECT id, 0, val FROM items WHERE id <= 12000;
CREATE INDEX moved_idx ON moved USING gpugraph (val vector_l2_ops);
SELECT gpugraph_prewarm('moved_idx');
UPDATE moved SET n = 1 WHERE id % 3 = 0;
UPDATE moved SET n = n + 2 WHERE id % 7 = 0;
DELETE FROM moved WHERE id % 5 = 0;
SQL
	my $moved = "SELECT id, n FROM moved $nearest";
	my $visible = $node->sql('SELECT count(*), count(DISTINCT id), sum(n), sum(id) FROM moved');
	for my $rest ('', 'FOR UPDATE', 'FOR SHARE')
	{
		is($node->sql("$fast SELECT count(*), count(DISTINCT id), sum(n), sum(id)
			FROM ($moved $rest) s"), $visible, "every row as it is now $rest");
	}
	is($node->sql(<<"SQL"), $visible, 'a cursor over subtransactions and errors');
$fast
CREATE TEMP TABLE got (id int, n int);
DO \$\$
DECLARE
	c CURSOR FOR $moved;
	r record;
	i int := 0;
BEGIN
	OPEN c;
	LOOP
		BEGIN
			FETCH c INTO r;
			EXIT WHEN NOT FOUND;
			i := i + 1;
			IF i % 2000 = 7 THEN
				PERFORM 1 / (i - i);
			END IF;
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
		INSERT INTO got VALUES (r.id, r.n);
	END LOOP;
END \$\$;
SELECT count(*), count(DISTINCT id), sum(n), sum(id) FROM got;
SQL
	is($node->sql(<<"SQL"), '6000|20', 'scans that begin anew, each for a part');
$fast
SELECT count(*), count(DISTINCT q.q) FROM (SELECT q, val FROM queries WHERE q <= 20) q,
	LATERAL (SELECT id FROM moved WHERE n >= 0 ORDER BY moved.val <-> q.val LIMIT 300) s;
SQL
	is(log_lines($node, qr/refcount leak|not released/), 0, 'no pin is left behind');

	# ---- one chunk: who finds none waits a moment, then the CPU answers
	my $deep = "SELECT count(*) FROM (SELECT id FROM items $nearest LIMIT 4000) s";

	# each of its lists takes a second, and most are deep
	my sub stalled
	{
		# one that was given up may have its slot for so long
		sleep 1.2;
		return start_psql($node, 'SET enable_seqscan = off', 'SET gpugraph.itopk_size = 300',
			'SET gpugraph.fault = stall', $deep);
	}
	{
		my $holder = stalled();
		my $busy = 0;

		waiting_pid($node);

		for (1 .. 40)
		{
			$node->sql("SET enable_seqscan = off; $deep");
			$busy = of_index($node, 'cpu_busy');
			last if $busy > 0;
		}
		cmp_ok($busy, '>', 0, 'a full pool: the CPU answers');
		is(finish_psql($holder), '', 'and the device who has the chunk');
		is($holder->{out}, "4000\n", 'all of it');
		answered_on_device('the chunk is free again', "$fast $deep", 4000);
	}

	# ---- the chunk of a query that is given up comes back: cancelled, ended, its worker replaced
	my sub device_answers_again
	{
		my ($what) = @_;
		my $seen = '';

		wait_for_state($node, 'ready');
		wait_for(sub {
			my (undef, $out) = $node->psql('postgres', "$fast $deep");
			$seen = $out;
			return $seen eq '4000'; });
		is($seen, '4000', "$what: the chunk is free again");
		return;
	}

	for my $round (1 .. 4)
	{
		my $session = stalled();
		my $pid = waiting_pid($node);

		# in any of its lists
		sleep 0.6 * $round;
		$node->sql(
			($round % 2 ? 'SELECT pg_cancel_backend' : 'SELECT pg_terminate_backend') . "($pid)");
		finish_psql($session);
		device_answers_again($round % 2 ? "cancelled, $round" : "ended, $round");
	}
	for my $round (1 .. 2)
	{
		my $session = stalled();

		waiting_pid($node);
		sleep $round;
		my $pid = of_device($node, 'pid');
		kill 'TERM', $pid;
		finish_psql($session);
		is($session->{out}, "4000\n", "the worker is replaced, $round: the CPU goes on");
		wait_for(sub { my $now = of_device($node, 'coalesce(pid, 0)'); return $now != 0
			&& $now != $pid; });
		device_answers_again("the worker is replaced, $round");
	}
	is(log_lines($node, qr/(PANIC|TRAP|segmentation)/), 0, 'nothing bad is in the log');
	$node->stop;
};

done_testing();
