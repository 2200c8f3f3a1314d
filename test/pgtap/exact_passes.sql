-- Exact passes: a scan that is read to its end makes one of them where work_mem has room for all
-- distances. Else it makes two, however little work_mem there is, and sorts on disk
\ir include/helpers.psql
SELECT * FROM no_plan();

-- blocks that a query looks at
CREATE FUNCTION blocks_of(sql text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) ' || sql INTO plan;
	RETURN (plan->0->'Plan'->>'Shared Hit Blocks')::bigint
		+ (plan->0->'Plan'->>'Shared Read Blocks')::bigint;
END $$;

-- four rows per page: what a pass reads is far more than what the rows themselves take
CREATE FUNCTION of(x int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_fill(x::real, ARRAY[500])::vector';
CREATE FUNCTION place(id int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT id * 7919 % 20011';
CREATE TABLE items (id int, val vector(500));
INSERT INTO items SELECT i, of(place(i)) FROM generate_series(1, 20000) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 4, intermediate_graph_degree = 8);
SELECT use_index(true);
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
SET work_mem = '64kB';
SELECT 'SELECT id FROM items ORDER BY val <-> of(1)' AS query,
	pg_relation_size('items_idx') / current_setting('block_size')::int AS blocks \gset
SELECT matches(plan_of(:'query'), 'Index Scan using items_idx', 'the index is used');
SELECT is((SELECT count(*) FROM (SELECT id FROM items ORDER BY val <-> (SELECT NULL::vector)) s),
	20000::bigint, 'a NULL query returns each row');

-- the passes of the CPU engine
SET gpugraph.engine = cpu;
-- of each row its TID and the row itself are read, for which four blocks are more than enough
SELECT cmp_ok(blocks_of(:'query') - 4 * 20000, '<', 8 * :blocks::bigint,
	'a full read with little work_mem');

SELECT blocks_of(:'query') AS two_passes \gset
SET work_mem = '4MB';
SELECT cmp_ok(blocks_of(:'query'), '<', :two_passes::bigint - 20000 / 4 + 100,
	'one pass less where work_mem has room');
RESET gpugraph.engine;
SELECT is((SELECT count(*) FROM (SELECT d, lag(d) OVER () AS before FROM
	(SELECT val <-> of(1) AS d FROM items ORDER BY d) a) b WHERE d < before),
	0::bigint, 'rows come in order, too');
SELECT is((SELECT count(DISTINCT id) FROM (SELECT id FROM items ORDER BY val <-> of(1)) s),
	20000::bigint, 'and each row once');
SET work_mem = '64kB';

-- the sort that goes beyond memory
SELECT is((SELECT count(*) FROM (SELECT d, lag(d) OVER () AS before FROM
	(SELECT val <-> of(1) AS d FROM items ORDER BY d) a) b WHERE d < before),
	0::bigint, 'rows come in order');
SELECT is((SELECT count(DISTINCT id) FROM (SELECT id FROM items ORDER BY val <-> of(1)) s),
	20000::bigint, 'each row once');

-- a cursor whose sort is made, and read on, within subtransactions that end either way
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM items ORDER BY val <-> of(1);
MOVE 10 IN c;
SAVEPOINT a;
MOVE 5000 IN c;
ROLLBACK TO a;
MOVE 5000 IN c;
SAVEPOINT b;
MOVE 1 IN c;
RELEASE b;
FETCH 1 FROM c \gset
SELECT is(place(:id), (SELECT place(id) FROM items ORDER BY 1 OFFSET 10011 LIMIT 1),
	'a cursor outlives subtransactions');
CLOSE c;
DECLARE h CURSOR WITH HOLD FOR SELECT id FROM items ORDER BY val <-> of(1);
MOVE 10000 IN h;
COMMIT;
FETCH 1 FROM h \gset
SELECT is(place(:id), (SELECT place(id) FROM items ORDER BY 1 OFFSET 10000 LIMIT 1),
	'a cursor WITH HOLD outlives its transaction');
CLOSE h;

-- a scan that ends or starts anew gives its temporary files back at once
CREATE FUNCTION temp_files() RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM pg_ls_tmpdir() WHERE name LIKE 'pgsql\_tmp' || pg_backend_pid() || '.%'
$$;
SELECT cmp_ok((SELECT max(temp_files()) FROM generate_series(1, 5) g, LATERAL
	(SELECT id FROM items ORDER BY val <-> of(g) OFFSET 10000 LIMIT 1) s),
	'<=', 1::bigint, 'a rescan gives back the files of the scan before it');
SELECT is(temp_files(), 0::bigint, 'the end of a scan gives them back');
SELECT throws_ok($$SELECT 1 / (id * 0) FROM
	(SELECT id FROM items ORDER BY val <-> of(1) OFFSET 10000) s$$, '22012');
SELECT is(temp_files(), 0::bigint, 'so does an error');

-- The bug: gpugraph_knn_graph() and gpugraph_search() read the whole delta once for each query, so
-- the graph of 50,000 unmerged rows took minutes.
-- The fix: queries of a chunk share one pass over the delta.
SET work_mem = '4MB';
CREATE TABLE unmerged (id int, val vector(500));
CREATE INDEX unmerged_idx ON unmerged USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0);
INSERT INTO unmerged SELECT i, of(place(i)) FROM generate_series(1, 640) i;
DELETE FROM unmerged WHERE id % 4 = 0;
CREATE FUNCTION asked() RETURNS vector[] LANGUAGE sql STABLE AS
	'SELECT array_agg(val ORDER BY id) FROM unmerged';
-- 160 pages, and ten chunks of 64 places; each neighbor takes some four blocks, dead ones included
SELECT cmp_ok(blocks_of($$SELECT count(*) FROM gpugraph_knn_graph('unmerged_idx', 5)$$), '<',
	20 * 160 + 480 * 10 * 4::bigint, 'rows of a chunk of the graph share a pass over the delta');
SELECT cmp_ok(blocks_of($$SELECT count(*) FROM gpugraph_search('unmerged_idx', asked(), 5)$$), '<',
	20 * 160 + 480 * 10 * 4::bigint, 'so do queries of a search');

-- 5 neighbors are among what a pass keeps, 200 are not.  Sums of 500 squares may differ in their
-- rounding, most where the engine has neither AVX2 nor AVX-512.
CREATE FUNCTION wrong_answers(k int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	graph float8[];
	search float8[];
	truth float8[];
BEGIN
	SELECT array_agg(g.distance ORDER BY u.id, g.distance) INTO graph
		FROM gpugraph_knn_graph('unmerged_idx', k - 1) g JOIN unmerged u ON u.ctid = g.tid;
	SELECT array_agg(s.distance ORDER BY s.query, s.distance) INTO search
		FROM gpugraph_search('unmerged_idx', asked(), k) s;
	PERFORM use_index(false);
	SELECT array_agg(n.d ORDER BY u.id, n.d) INTO truth FROM unmerged u CROSS JOIN LATERAL
		(SELECT val <-> u.val AS d FROM unmerged ORDER BY d LIMIT k) n;
	PERFORM use_index(true);
	RETURN (SELECT count(*) FROM unnest(search, truth) a(got, want)
			WHERE abs(got - want) > 1e-5 * (1 + want) OR got IS NULL OR want IS NULL)
		+ (SELECT count(*) FROM unnest(graph, array(SELECT d FROM unnest(truth)
			WITH ORDINALITY t(d, n) WHERE n % k <> 1 ORDER BY n)) a(got, want)
			WHERE abs(got - want) > 1e-5 * (1 + want) OR got IS NULL OR want IS NULL);
END $$;
SELECT is(wrong_answers(5), 0::bigint, 'each query gets its own rows');
SELECT is(wrong_answers(200), 0::bigint, 'however many it asks for');
SET work_mem = '64kB';
SELECT is(wrong_answers(200), 0::bigint, 'with little work_mem, too');
RESET work_mem;

SELECT * FROM finish();
