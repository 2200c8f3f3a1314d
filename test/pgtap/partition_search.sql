-- Indexes of partitions are searched together: the rows of all, in order, and no row is fetched of
-- a partition that has none of them
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 8000, 16, 30);
SELECT make_queries('items', 10);
SELECT quote_literal(val::text) AS q FROM items WHERE id = 1 \gset
CREATE TABLE parts (LIKE items) PARTITION BY RANGE (id);
CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (6000) TO (MAXVALUE)
	PARTITION BY LIST (big);
SELECT format('CREATE TABLE parts_high_%s PARTITION OF parts_high FOR VALUES IN (%1$s)', big)
FROM generate_series(0, 49) big \gexec
CREATE TABLE parts_rest PARTITION OF parts_high DEFAULT;
SELECT format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES FROM (%s) TO (%s)', i,
	i * 1000, i * 1000 + 1000)
FROM generate_series(1, 5) i \gexec
-- its columns have other numbers
CREATE TABLE parts_0 (val vector(16), gone int, big int, cat int, id int NOT NULL);
ALTER TABLE parts_0 DROP gone;
ALTER TABLE parts ATTACH PARTITION parts_0 FOR VALUES FROM (MINVALUE) TO (1000);
INSERT INTO parts SELECT * FROM items;
CREATE INDEX parts_idx ON parts USING gpugraph (val vector_l2_ops);
ANALYZE parts;
SET enable_seqscan = off;
SET enable_sort = off;
SET max_parallel_workers_per_gather = 0;

CREATE FUNCTION rows_of(query text, searched boolean, indexed boolean DEFAULT true)
	RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('gpugraph.disable', CASE WHEN NOT searched THEN 'partition_search' ELSE ''
			END, true),
		set_config('enable_indexscan', indexed::text, true);
	RETURN QUERY EXECUTE format('SELECT row(t.*)::text FROM (%s) t', query);
END $$;
-- as many partitions as the executor fetched no row from
CREATE FUNCTION not_fetched(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	line text;
	n int := 0;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) ' || query LOOP
		n := n + (line ~ 'Index Scan.*never executed')::int;
	END LOOP;
	RETURN n;
END $$;
CREATE FUNCTION is_same(query text, what text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT results_eq(format('SELECT rows_of(%L, true)', query),
		format('SELECT rows_of(%L, false)', query), what || ': as without')
	UNION ALL
	SELECT results_eq(format('SELECT rows_of(%L, true)', query),
		format('SELECT rows_of(%L, true, false)', query), what || ': as without the index') $$;

SELECT is_same(format('SELECT id, tableoid::regclass FROM parts ORDER BY val <-> %L LIMIT %s', val,
	k), format('query %s, LIMIT %s', q, k))
FROM queries, unnest(ARRAY[1, 10, 100, 300]) k WHERE q <= 3 OR k = 10;
SELECT cmp_ok(not_fetched(format('SELECT id FROM parts ORDER BY val <-> %L LIMIT 10', :q)), '>=',
	40, 'most partitions are left alone');
SET gpugraph.disable = partition_search;
SELECT is(not_fetched(format('SELECT id FROM parts ORDER BY val <-> %L LIMIT 10', :q)), 0,
	'by core none is');
RESET gpugraph.disable;
SELECT is_same(format('SELECT * FROM (SELECT id, val <-> %L AS d FROM parts ORDER BY val <-> %1$L
	OFFSET 0) s ORDER BY d, id', :q), 'all rows');
SELECT is_same(format('SELECT id FROM parts ORDER BY %L <-> val LIMIT 10 OFFSET 7', :q),
	'commuted, OFFSET');
SELECT is_same(format('SELECT id FROM parts WHERE cat = 7 ORDER BY val <-> %L LIMIT 10', :q),
	'a filter of the executor');
SELECT is_same(format('SELECT id FROM parts WHERE id < 3500 ORDER BY val <-> %L LIMIT 10', :q),
	'partitions that the planner prunes');
SELECT is_same('SELECT count(id) FROM (SELECT id FROM parts ORDER BY val <-> NULL LIMIT 50) s',
	'a NULL query');
SELECT is_empty($$SELECT * FROM parts WHERE id = 1 AND id = 2
	ORDER BY val <-> (SELECT val FROM items WHERE id = 1)$$, 'no partition');
SELECT is_same('SELECT q, n.* FROM queries, LATERAL (SELECT id, tableoid FROM parts
	ORDER BY parts.val <-> queries.val LIMIT 5) n', 'LATERAL');
SELECT is_same('SELECT q, n.* FROM queries, LATERAL (SELECT id FROM parts WHERE id > 600 * q
	ORDER BY parts.val <-> queries.val LIMIT 5) n', 'LATERAL, pruned for each row');
-- settings that change between two rescans: the lists that all partitions share grow
SELECT is_same($$SELECT q, n.* FROM (SELECT q, val,
	set_config('gpugraph.itopk_size', CASE WHEN q % 2 = 0 THEN '32' ELSE '1024' END, true),
	set_config('gpugraph.target_recall', CASE WHEN q % 2 = 0 THEN '0' ELSE '0.99' END, true)
	FROM (SELECT * FROM queries ORDER BY q % 4, q OFFSET 0) s) q,
	LATERAL (SELECT id FROM parts ORDER BY parts.val <-> q.val LIMIT 5) n$$,
	'LATERAL, settings that change');
RESET gpugraph.itopk_size;
RESET gpugraph.target_recall;

-- walks and exact passes side by side; walks need not find all
SET gpugraph.itopk_size = 24;
CREATE FUNCTION parts_recall() RETURNS numeric LANGUAGE sql AS $$
	SELECT avg((SELECT count(*) FROM rows_of(format(s, val), true) r
		JOIN rows_of(format(s, val), true, false) t ON r = t)) / 10 FROM queries,
	(VALUES ('SELECT id FROM parts ORDER BY val <-> %L LIMIT 10')) v (s) $$;
SELECT cmp_ok(parts_recall(), '>=', 0.98, 'recall of walks');
RESET gpugraph.itopk_size;

-- run-time pruning: at the start, and for parameters of the plan
SET plan_cache_mode = force_generic_plan;
PREPARE pruned(int, vector) AS SELECT id, tableoid::regclass::text FROM parts WHERE id < $1
	ORDER BY val <-> $2 LIMIT 10;
SELECT results_eq(format('EXECUTE pruned(%s, %L)', n, :q),
	format('SELECT i.id, (SELECT tableoid::regclass::text FROM parts p WHERE p.id = i.id)
	FROM (SELECT id, val FROM items OFFSET 0) i WHERE id < %s ORDER BY val <-> %L LIMIT 10', n, :q),
	format('a generic plan, pruned: id < %s', n))
FROM unnest(ARRAY[0, 1000, 3500, 9000]) n;
SELECT matches(plan_of(format('EXECUTE pruned(2000, %L)', :q)), 'Subplans Removed', 'it is pruned');
RESET plan_cache_mode;
SELECT is_same(format('SELECT id FROM parts WHERE id < (SELECT 2500 + 0 * count(*) FROM queries)
	ORDER BY val <-> %L LIMIT 10', :q), 'pruned by a subquery');

-- cursors
BEGIN;
SELECT array_agg(r) AS by_core FROM rows_of(format('SELECT id FROM parts ORDER BY val <-> %L
	LIMIT 300', :q), false) r \gset
DECLARE forward CURSOR FOR SELECT row(id)::text FROM parts
	ORDER BY val <-> (SELECT val FROM items WHERE id = 1);
SELECT results_eq('FETCH 120 FROM forward',
	format('SELECT unnest((%L::text[])[:120])', :'by_core'), 'a cursor: the first rows');
SELECT results_eq('FETCH 180 FROM forward',
	format('SELECT unnest((%L::text[])[121:])', :'by_core'), 'a cursor: the next rows');
DECLARE back SCROLL CURSOR FOR SELECT row(id)::text FROM parts
	ORDER BY val <-> (SELECT val FROM items WHERE id = 1) LIMIT 50;
SELECT results_eq('FETCH 50 FROM back', format('SELECT unnest((%L::text[])[:50])', :'by_core'),
	'a SCROLL cursor: forward');
MOVE BACKWARD 21 FROM back;
SELECT results_eq('FETCH 50 FROM back', format('SELECT unnest((%L::text[])[30:50])', :'by_core'),
	'a SCROLL cursor: forward again');
DECLARE hold CURSOR WITH HOLD FOR SELECT row(id)::text FROM parts
	ORDER BY val <-> (SELECT val FROM items WHERE id = 1) LIMIT 50;
COMMIT;
SELECT results_eq('FETCH 50 FROM hold', format('SELECT unnest((%L::text[])[:50])', :'by_core'),
	'a cursor WITH HOLD, after its transaction');
CLOSE hold;

-- dead rows, rows of this transaction, locked rows
BEGIN;
DELETE FROM parts WHERE id IN (SELECT id FROM parts ORDER BY val <-> :q LIMIT 200);
UPDATE parts SET id = id + 1000 WHERE cat = 3 AND id < 5000;
SELECT is_same(format('SELECT id FROM parts ORDER BY val <-> %L LIMIT 100', :q),
	'rows that this transaction changed');
SELECT is_same(format('SELECT id FROM parts ORDER BY val <-> %L LIMIT 10 FOR UPDATE', :q),
	'FOR UPDATE');
ROLLBACK;

-- a partition without the index, one of another type of index, one that is empty
BEGIN;
CREATE TABLE bare (LIKE items);
CREATE TABLE mixed (LIKE items) PARTITION BY LIST (cat);
CREATE TABLE mixed_0 PARTITION OF mixed FOR VALUES IN (0);
CREATE TABLE mixed_1 PARTITION OF mixed FOR VALUES IN (1);
CREATE TABLE mixed_2 PARTITION OF mixed FOR VALUES IN (2);
CREATE TABLE mixed_3 PARTITION OF mixed FOR VALUES IN (3);
CREATE TABLE mixed_4 PARTITION OF mixed FOR VALUES IN (4);
INSERT INTO mixed SELECT id, id % 4, big, val FROM items;
CREATE INDEX ON mixed_0 USING gpugraph (val vector_l2_ops);
CREATE INDEX ON mixed_1 USING gpugraph (val vector_l2_ops) WITH (storage = 'float16');
CREATE INDEX ON mixed_2 USING hnsw (val vector_l2_ops);
CREATE INDEX ON mixed_4 USING gpugraph (val vector_l2_ops);
ANALYZE mixed;
SET LOCAL enable_sort = on;
SET LOCAL hnsw.ef_search = 200;
SELECT matches(plan_of(format('SELECT id FROM mixed ORDER BY val <-> %L LIMIT 10', :q)),
	'GpugraphPartitions.*Index Scan.*Sort', 'the plan of mixed partitions');
SELECT is_same(format('SELECT id FROM mixed ORDER BY val <-> %L LIMIT 10', :q),
	'mixed partitions');
ROLLBACK;

-- what nodes did in parallel workers, by EXPLAIN
BEGIN;
SET LOCAL enable_seqscan = on;
SET LOCAL max_parallel_workers_per_gather = 2;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SELECT format('SELECT count(*) FROM items WHERE id NOT IN
	(SELECT id FROM parts ORDER BY val <-> %L LIMIT 10)', :q) AS in_workers \gset
SELECT matches(plan_of(:'in_workers'), 'Gather.*GpugraphPartitions', 'parallel workers search');
SELECT lives_ok('EXPLAIN (ANALYZE) ' || :'in_workers', 'EXPLAIN ANALYZE of parallel workers');
-- a query that takes no order from indexes, and one that does beside it
SELECT format('SELECT (SELECT count(*) FROM parts WHERE val <-> %1$L < 3),
	(SELECT array_agg(id) FROM (SELECT id FROM parts ORDER BY val <-> %1$L LIMIT 10) s)', :q)
	AS beside \gset
SELECT matches(plan_of(:'beside'), 'Parallel Append.*GpugraphPartitions', 'a Parallel Append');
SELECT is_same(:'beside', 'beside a Parallel Append');
ROLLBACK;

-- whole rows, tableoid, and what EXPLAIN tells of the node
SELECT is_same(format('SELECT p, tableoid::regclass FROM parts p ORDER BY val <-> %L LIMIT 10', :q),
	'whole rows');
CREATE FUNCTION node_of(options text, query text) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE format('EXPLAIN (%s, FORMAT JSON) %s', options, query) INTO plan;
	RETURN jsonb_path_query_first(plan::jsonb, '$.** ? (@."Node Type" == "Custom Scan")');
END $$;
SELECT ok(node @> '{"Custom Plan Provider": "GpugraphPartitions", "Subplans Removed": 0,
	"Partitions Searched": 57, "Scans Begun": 57, "Actual Rows": 10}'
	AND node -> 'Output' ->> 0 ~ '^parts(_\d+)?\.id$' AND jsonb_array_length(node -> 'Plans') = 57,
	'EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON)')
FROM node_of('ANALYZE, VERBOSE', format('SELECT id FROM parts ORDER BY val <-> %L LIMIT 10', :q))
	node;
SELECT is(node ? 'Scans Begun', false, 'EXPLAIN without ANALYZE runs nothing')
FROM node_of('VERBOSE', format('SELECT id FROM parts ORDER BY val <-> %L LIMIT 10', :q)) node;

-- row-level security
CREATE ROLE partition_reader;
GRANT SELECT ON parts TO partition_reader;
ALTER TABLE parts ENABLE ROW LEVEL SECURITY;
CREATE POLICY even ON parts FOR SELECT USING (id % 2 = 0);
SET ROLE partition_reader;
SELECT is_same(format('SELECT id FROM parts ORDER BY val <-> %L LIMIT 20', :q),
	'row-level security');
RESET ROLE;
ALTER TABLE parts DISABLE ROW LEVEL SECURITY;

-- partitions come and go between executions
SET plan_cache_mode = force_generic_plan;
PREPARE nearest(vector) AS SELECT id FROM parts ORDER BY val <-> $1 LIMIT 20;
CREATE FUNCTION is_right(what text) RETURNS text LANGUAGE sql AS $$
	SELECT results_eq(format('EXECUTE nearest(%L)', val), format('SELECT id FROM
		(SELECT id, val FROM parts OFFSET 0) s ORDER BY val <-> %L LIMIT 20', val), what)
	FROM items WHERE id = 1 $$;
SELECT is_right('before');
ALTER TABLE parts DETACH PARTITION parts_1;
SELECT is_right('DETACH');
ALTER TABLE parts ATTACH PARTITION parts_1 FOR VALUES FROM (1000) TO (2000);
SELECT is_right('ATTACH');
TRUNCATE parts_1;
SELECT is_right('TRUNCATE');
DROP TABLE parts_2;
SELECT is_right('DROP TABLE');
INSERT INTO parts SELECT id - 400, cat, big, val FROM items WHERE id BETWEEN 1400 AND 1500;
SELECT is_right('INSERT');

-- other metrics
CREATE FUNCTION make_by(metric text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE by_%s (LIKE items) PARTITION BY HASH (id)', metric);
	FOR i IN 0 .. 9 LOOP
		EXECUTE format('CREATE TABLE by_%s_%s PARTITION OF by_%1$s
			FOR VALUES WITH (MODULUS 10, REMAINDER %2$s)', metric, i);
	END LOOP;
	EXECUTE format('INSERT INTO by_%s SELECT * FROM items', metric);
	EXECUTE format('CREATE INDEX ON by_%s USING gpugraph (val vector_%1$s_ops)', metric);
	EXECUTE format('ANALYZE by_%s', metric);
END $$;
SELECT make_by(metric) FROM unnest(ARRAY['cosine', 'ip', 'l1']) metric;
SELECT is_same(format('SELECT id FROM by_%s ORDER BY val %s %L LIMIT 20', metric, op, :q), metric)
FROM (VALUES ('cosine', '<=>'), ('ip', '<#>'), ('l1', '<+>')) v (metric, op);

-- Rows that an index without vectors finds late come after those of all partitions, and not where
-- their own one has no others left: of the rows near a query, which one partition has.
CREATE TABLE coded (LIKE items) PARTITION BY LIST (big);
CREATE TABLE coded_near PARTITION OF coded FOR VALUES IN (-1);
CREATE TABLE coded_rest PARTITION OF coded DEFAULT;
INSERT INTO coded SELECT id, cat, CASE WHEN row_number() OVER (ORDER BY val <-> :q) > 60 THEN big
	ELSE -1 END, val FROM items;
CREATE INDEX coded_idx ON coded USING gpugraph (val vector_l2_ops) WITH (storage = 'int4');
ANALYZE coded;
CREATE FUNCTION out_of_order(k int) RETURNS bigint LANGUAGE sql AS $$
	-- pgvector adds up in another order, so d may differ in the seventh digit from the index's
	SELECT count(*) FILTER (WHERE d < before * (1 - 1e-6))
	FROM (SELECT d, lag(d) OVER (ORDER BY n) AS before
		FROM (SELECT row_number() OVER () AS n, d FROM (SELECT val <-> asked.near AS d
			FROM coded, (SELECT val AS near FROM items WHERE id = 1 OFFSET 0) asked
			ORDER BY val <-> (SELECT val FROM items WHERE id = 1) LIMIT k) r) r) r $$;
SET gpugraph.rerank_size = 10;
-- no GPU serves it by the engine for builds alone
SET gpugraph.engine = auto;
SELECT is(out_of_order(1000), 0::bigint, 'rows that are found late come after all partitions');
SELECT is(out_of_order(10000), 1::bigint, 'and in order');
RESET gpugraph.rerank_size;
RESET gpugraph.engine;

SELECT * FROM finish();
