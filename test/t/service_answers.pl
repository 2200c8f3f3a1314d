# What a device answers is what the CPU answers: in every order, beyond the device's longest list,
# under filters, with rows inserted and deleted, through cursors that take turns.
use Gpugraph;
use Residency;

my $node = service_node('answers', conf => "gpugraph.itopk_size = 64\n");
make_items($node, 12000, 16);
# both engines are to answer from the same segments and delta
$node->sql('ALTER INDEX items_idx SET (seal_rows = 0)');

# ids by the device and by the CPU, for each query: how many answers are the same, and by whom they
# were
$node->sql(<<'SQL');
CREATE FUNCTION ids(query int, n int, filter text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
	found int[];
BEGIN
	EXECUTE format('SELECT array_agg(id) FROM (SELECT id FROM items WHERE %s
		ORDER BY val <-> (SELECT val FROM queries WHERE queries.q = %s) LIMIT %s) s',
		filter, query, n) INTO found;
	RETURN found;
END $$;
-- their distances
CREATE FUNCTION distances(query int, found int[]) RETURNS float8[] LANGUAGE sql AS $$
	SELECT array_agg(items.val <-> queries.val ORDER BY o)
	FROM unnest(found) WITH ORDINALITY u(i, o) JOIN items ON id = i, queries WHERE queries.q = query
$$;
-- What a GPU answers may differ from what a CPU does: it adds in another order, which puts rows at
-- nearly the same distance in either order, and walks on rows in half precision, which may leave
-- out one row in twenty at the end of a list that is as long as the walk's own.
CREATE FUNCTION near(query int, by_device int[], by_cpu int[], how text) RETURNS boolean
	LANGUAGE plpgsql AS $$
DECLARE
	d float8[] := distances(query, by_device);
	e float8[] := distances(query, by_cpu);
BEGIN
	RETURN cardinality(d) = cardinality(e)
		AND (SELECT count(DISTINCT i) FROM unnest(by_device) i) = cardinality(d) AND
		(SELECT count(*) FROM unnest(d) x WHERE x <= (SELECT max(y) * (1 + 1e-6) FROM unnest(e) y))
		>= 0.95 * cardinality(d) AND
		(how = 'relaxed_order'
		OR NOT EXISTS (SELECT FROM generate_series(2, cardinality(d)) i
		WHERE d[i] < d[i - 1] * (1 - 1e-6)));
END $$;
-- The rows that are nearest to each query, as many as a list has.  Where they are dead, a scan
-- with iterative_scan off has another list, which a device begins anew, and the CPU does not.
-- Rows that it finds late are kept back, other ones by either.  So the answers are the same as
-- far as rows of the first list reach.
CREATE TABLE first_list (query int, id int);
-- 'same' when all queries' answers are, else what is wrong
CREATE FUNCTION compare(n int, filter text DEFAULT 'true', how text DEFAULT 'strict_order')
	RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	by_device int[];
	by_cpu int[];
	reach int := n;
	counted bigint := (SELECT queries_gpu FROM gpugraph_stat_index
		WHERE relid = 'items_idx'::regclass);
BEGIN
	PERFORM set_config('gpugraph.iterative_scan', how, true),
		set_config('enable_seqscan', 'off', true);
	FOR q IN 1 .. 20 LOOP
		PERFORM set_config('gpugraph.engine', 'cuda', true);
		by_device := ids(q, n, filter);
		PERFORM set_config('gpugraph.engine', 'cpu', true);
		by_cpu := ids(q, n, filter);
		IF how = 'off' AND filter = 'true' AND EXISTS (SELECT FROM first_list) THEN
			reach := (SELECT count(*) FROM first_list f JOIN items USING (id) WHERE query = q);
		END IF;
		IF (by_device[:reach], cardinality(by_device))
			IS DISTINCT FROM (by_cpu[:reach], cardinality(by_cpu))
			AND (current_setting('gpugraph.service_engine') = 'cpu'
			OR NOT near(q, by_device[:reach], by_cpu[:reach], how)) THEN
			RETURN format('query %s: %s rows by the device, %s by the CPU, %s of them the same', q,
			cardinality(by_device),
				cardinality(by_cpu),
				(SELECT count(*)
				FROM (SELECT unnest(by_device) INTERSECT SELECT unnest(by_cpu)) s));
		END IF;
	END LOOP;
	counted := (SELECT queries_gpu FROM gpugraph_stat_index WHERE relid = 'items_idx'::regclass)
		- counted;
	RETURN CASE WHEN counted = 20 THEN 'same' ELSE counted || ' answers by the device' END;
END $$;
-- every row once, and in order up to those that came late
CREATE FUNCTION all_rows(how text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	PERFORM set_config('gpugraph.iterative_scan', how, true),
		set_config('enable_seqscan', 'off', true),
		set_config('gpugraph.engine', 'cuda', true);
	SELECT count(*) || ' ' || count(DISTINCT id) INTO result
		FROM (SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)) s;
	RETURN result;
END $$;
SQL

sub compare
{
	my ($what, @arguments) = @_;
	is($node->sql('SELECT compare(' . join(', ', @arguments) . ')'), 'same', $what);
	return;
}

sub compare_all
{
	my ($when) = @_;

	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	for my $how (qw(strict_order relaxed_order off))
	{
		compare("$when, $how: $_ rows", $_, "'true'", "'$how'") for 1, 10, 64, 100;
		compare("$when, $how: a filter", 10, "'cat = 7'", "'$how'");
	}
	# lists of 64, 128, ... 1024; then a walk; then an exact pass
	compare("$when: $_ rows", $_) for 300, 1500;
	compare("$when: a strict filter", 20, "'big = 123'");
	my $rows = $node->sql('SELECT count(*) FROM items');
	is($node->sql("SELECT all_rows('$_')"), "$rows $rows",
		"$when, $_: every row once") for qw(strict_order relaxed_order);
	return;
}

compare_all('as built');

# ---- every procedure, of a device and of the CPU
for my $mode (qw(single_cta multi_cta tsdg_small tsdg_large))
{
	$node->sql("ALTER DATABASE postgres SET gpugraph.search_mode = $mode");
	# half of a greedy list: the list that follows is begun anew by a device, and not by the CPU
	compare("$mode: $_ rows", $_) for 1, $mode eq 'tsdg_small' ? 16 : 30;
	compare("$mode, off: 64 rows", 64, "'true'", "'off'");
	compare("$mode: a filter", 10, "'cat = 7'");
	is($node->sql("SELECT all_rows('strict_order')"), '12000 12000', "$mode: every row once");
}
$node->sql('ALTER DATABASE postgres RESET gpugraph.search_mode');

# ---- the delta: full pages on the device, the rest here
$node->sql('INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id % 3 = 0');
$node->sql('ANALYZE items');
compare_all('with a delta');
cmp_ok(of_index($node, 'delta_pages'), '>', 16, 'most of the delta is on the device');
is($node->sql('INSERT INTO items SELECT 100000, 0, 0, val FROM queries WHERE q = 3;
	SELECT (ids(3, 1, \'true\'))[1]'),
	100000, 'a row just inserted is found first');

# ---- dead rows
$node->sql(<<'SQL');
INSERT INTO first_list SELECT q, s.id FROM queries,
	LATERAL (SELECT id FROM items ORDER BY items.val <-> queries.val LIMIT 64) s;
SQL
$node->sql('DELETE FROM items WHERE id % 4 = 1');
compare_all('rows deleted');
$node->sql('VACUUM items');
compare_all('vacuumed');

# ---- a delta and nothing else
$node->sql(<<'SQL');
CREATE TABLE few (id int, val vector(16));
CREATE INDEX few_idx ON few USING gpugraph (val vector_l2_ops);
INSERT INTO few SELECT id, val FROM items WHERE id <= 6000;
SELECT gpugraph_prewarm('few_idx');
SQL
is($node->sql(<<'SQL'), 't', 'a delta alone is searched by the device');
SET enable_seqscan = off;
SET gpugraph.engine = cuda;
CREATE TEMP TABLE a AS
	SELECT q, array(SELECT id FROM few ORDER BY few.val <-> queries.val LIMIT 200) FROM queries;
SET gpugraph.engine = cpu;
CREATE TEMP TABLE b AS
	SELECT q, array(SELECT id FROM few ORDER BY few.val <-> queries.val LIMIT 200) FROM queries;
SELECT bool_and(a.array = b.array OR current_setting('gpugraph.service_engine') = 'cuda'
	AND near(q, a.array, b.array, 'off')) FROM a JOIN b USING (q);
SQL
cmp_ok(of_index($node, 'queries_gpu', 'few_idx'), '>=', 20, 'the counters agree');

# ---- cursors that take turns share the session's one slot
make_cursor_functions($node);
is($node->sql(<<'SQL'), 't', 'two cursors take turns');
SET enable_seqscan = off;
SET gpugraph.engine = cuda;
SELECT by_a = ids(1, 400, 'true') AND by_b = ids(2, 400, 'true') FROM read_in_turn(400);
SQL

# ---- parallel workers have slots of their own
{
	my $parallel = <<'SQL';
SET enable_seqscan = on;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 4;
ALTER TABLE many SET (parallel_workers = 4);
SQL
	$node->sql(
		"CREATE TABLE many AS SELECT id, val FROM items ORDER BY id LIMIT 300; ANALYZE many");
	my $nearest = '(SELECT items.id FROM items ORDER BY items.val <-> many.val LIMIT 1)';
	like($node->sql("$parallel EXPLAIN SELECT many.id, $nearest FROM many"),
		qr/Gather.*Parallel Seq Scan on many.*SubPlan.*Index Scan using items_idx/s,
		'searches in parallel workers: a plan');
	my ($before) = answered_by($node);
	# but for the odd one that a walk misses
	cmp_ok($node->sql("$parallel SET gpugraph.engine = cuda;
		SELECT count(*) FROM (SELECT id, val, $nearest AS n FROM many) s
		WHERE (val <-> (SELECT val FROM items i WHERE i.id = n ORDER BY id LIMIT 1)) < 0.001"),
		'>=', 295,
		'searches in parallel workers: each row is its own nearest neighbour, or its equal is');
	my ($after) = answered_by($node);
	cmp_ok($after - $before, '>=', 300, 'and the device answers them');
}

# ---- the copy goes away, or is replaced, while a cursor is open
for my $how ("gpugraph_evict('items_idx')",
	"gpugraph_evict('items_idx'), gpugraph_prewarm('items_idx')")
{
	my $cpu = (answered_by($node))[1];

	is($node->sql(<<"SQL"), 't', "$how beside an open cursor");
SET enable_seqscan = off;
SET gpugraph.engine = cuda;
SELECT ids = ids(1, 400, 'true') FROM read_around(\$\$SELECT $how, pg_sleep(0.3)\$\$, 10, 400) ids;
SQL
	is((answered_by($node))[1], $cpu, "$how beside an open cursor: by the device alone");
}

# ---- what nobody else can read, and what is too small, is searched here without complaint
# builds are the session's own affair, and this host need not have a GPU for them
my $small =
	'SET LOCAL gpugraph.engine = cuda;
	SELECT count(*)
	FROM (SELECT id FROM tiny ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 3) s';
is($node->sql(<<"SQL"), "3\n3\n3", 'temporary, new and small indexes are searched by the CPU');
SET enable_seqscan = off;
BEGIN;
CREATE TABLE tiny AS SELECT id, val FROM items LIMIT 3000;
CREATE INDEX tiny_idx ON tiny USING gpugraph (val vector_l2_ops);
$small;
COMMIT;
DELETE FROM tiny WHERE id > 100;
REINDEX INDEX tiny_idx;
BEGIN;
$small;
COMMIT;
CREATE TEMP TABLE other AS SELECT id, val FROM items LIMIT 3000;
CREATE INDEX other_idx ON other USING gpugraph (val vector_l2_ops);
BEGIN;
SET LOCAL gpugraph.engine = cuda;
SELECT count(*)
	FROM (SELECT id FROM other ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 3) s;
COMMIT;
SQL
is(of_index($node, "cpu_local || ' ' || cpu_small", 'tiny_idx'), '1 1', 'and counted as such');

is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
finish_test($node);
