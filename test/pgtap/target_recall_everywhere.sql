-- gpugraph.target_recall in every kind of index, table and query: what was measured is the index's,
-- and answers have the recall that is asked for
\ir include/helpers.psql
SELECT * FROM no_plan();
SET gpugraph.engine = cpu;
SET enable_seqscan = off;
SET max_parallel_workers_per_gather = 0;
SELECT setseed(.5);

CREATE FUNCTION drawn(n int) RETURNS TABLE (id int, val vector(24)) LANGUAGE sql AS $$
	SELECT i, (SELECT array_agg(random() - .5 ORDER BY d) FROM generate_series(1, 24) d
		WHERE i > 0)::vector(24) FROM generate_series(1, n) i $$;
CREATE TABLE items AS SELECT id, id % 4 AS kind, val FROM drawn(1500);
-- other queries than the rows
CREATE TABLE queries AS SELECT id AS q, val FROM drawn(120);
CREATE TABLE truths (operator text, filter text, k int, q int, d float8);

-- Share of the true k nearest among what the index of this table or partitioned table finds.
CREATE FUNCTION recall_of(rel text, k int, operator text DEFAULT '<->', filter text DEFAULT 'true',
	as_type text DEFAULT 'vector') RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	asked record; found bigint := 0; n int;
BEGIN
	IF NOT EXISTS (SELECT FROM truths t WHERE (t.operator, t.filter, t.k) =
		(recall_of.operator, recall_of.filter, recall_of.k)) THEN
		EXECUTE format('INSERT INTO truths SELECT $1, $2, $3, q, (SELECT max(d) FROM (SELECT
			(i.val %s queries.val) + 0 AS d FROM items i WHERE %s ORDER BY 1 LIMIT %s) s)
			FROM queries', operator, filter, k) USING operator, filter, k;
	END IF;
	FOR asked IN SELECT queries.val, d FROM queries JOIN truths t USING (q) WHERE
		(t.operator, t.filter, t.k) = (recall_of.operator, recall_of.filter, recall_of.k) LOOP
		EXECUTE format('SELECT count(*) FROM (SELECT i.val %1$s $1::%5$s AS d FROM %2$s i WHERE %3$s
			ORDER BY i.val %1$s $1::%5$s LIMIT %4$s) s WHERE d <= $2 + abs($2) * %6$s', operator,
			rel, filter, k, as_type, CASE as_type WHEN 'vector' THEN 1e-6 ELSE 1e-3 END)
			INTO n USING asked.val, asked.d;
		found := found + n;
	END LOOP;
	RETURN found / (k * (SELECT count(*) FROM queries))::float8;
END $$;
CREATE FUNCTION recall_now(indexname text) RETURNS float8 LANGUAGE sql AS
	'SELECT recall FROM gpugraph_indexes i WHERE i.indexname = $1';
-- a lean graph, so that the shortest list does not suffice
CREATE FUNCTION make_index(rel text, keys text, options text DEFAULT 'seed = 1')
	RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE INDEX %1$s_idx ON %1$s USING gpugraph (%2$s) WITH (graph_degree = 6,
		intermediate_graph_degree = 12, %3$s)', rel, keys, options);
END $$;
-- The recall of 120 queries, 10 rows each, has a standard deviation of .008 at .95: less three.
CREATE FUNCTION keeps(rel text, target float8, what text, operator text DEFAULT '<->',
	filter text DEFAULT 'true', as_type text DEFAULT 'vector') RETURNS SETOF text
	LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('gpugraph.target_recall', target::text, true);
	RETURN NEXT cmp_ok(recall_of(rel, 10, operator, filter, as_type), '>=',
		CASE WHEN target = 1 THEN 1 ELSE target - .025 END, what || ', target ' || target);
	PERFORM set_config('gpugraph.target_recall', '0', true);
END $$;

-- ways of storage, types and metrics
CREATE TABLE kinds (rel text, keys text, options text, operator text, as_type text);
INSERT INTO kinds VALUES
	('plain', 'val vector_l2_ops', 'storage = ''float32''', '<->', 'vector'),
	('codes', 'val vector_l2_ops', 'storage = ''float32+int4''', '<->', 'vector'),
	('coded', 'val vector_l2_ops', 'storage = ''int4''', '<->', 'vector'),
	('rounded', 'val vector_l2_ops', 'storage = ''float16''', '<->', 'vector'),
	('product', 'val vector_ip_ops', 'seed = 1', '<#>', 'vector'),
	('half', 'val halfvec_l2_ops', 'seed = 1', '<->', 'halfvec'),
	('segments', 'val vector_l2_ops', 'segment_rows = 600', '<->', 'vector'),
	('unlogged', 'val vector_l2_ops', 'seed = 1', '<->', 'vector'),
	('temporary', 'val vector_l2_ops', 'seed = 1', '<->', 'vector'),
	('filtered', 'val vector_l2_ops, kind', 'seed = 1', '<->', 'vector');
SELECT format('CREATE %s TABLE %s AS SELECT id, kind, val::%s(24) AS val FROM items',
	CASE rel WHEN 'unlogged' THEN rel WHEN 'temporary' THEN rel END, rel, as_type) FROM kinds \gexec
SELECT make_index(rel, keys, options) FROM kinds;
SELECT ok(gpugraph_calibrate((rel || '_idx')::regclass), rel || ' is measured') FROM kinds;
SELECT lives_ok(format('SELECT gpugraph_check(%L, true)', rel || '_idx'), rel || ' is sound')
	FROM kinds;
SELECT keeps(rel, target, rel, operator, 'true', as_type) FROM kinds,
	unnest('{.95,1}'::float8[]) target ORDER BY rel;
SELECT is((SELECT cpu_codes > .5 AND cpu_rows IS NULL FROM gpugraph_stat_recall
	WHERE indexname = 'codes_idx'), true, 'codes are another form than rows');

-- conditions: on a filter column, on another column, and none that PostgreSQL checks
SELECT keeps('filtered', t, 'a filter column', '<->', 'kind = 1')
	FROM unnest('{.95,1}'::float8[]) t;
SELECT keeps('plain', t, 'another column', '<->', 'kind = 1') FROM unnest('{.95,1}'::float8[]) t;

-- gpugraph_search()
CREATE FUNCTION searched(index regclass) RETURNS float8 LANGUAGE sql AS $$
	SELECT count(*) / (10.0 * (SELECT count(*) FROM queries)) FROM
		(SELECT array_agg(val ORDER BY q) AS all FROM queries) a,
		gpugraph_search(index, a.all, 10) s JOIN truths t ON t.q = s.query
		WHERE (t.operator, t.filter, t.k) = ('<->', 'true', 10) AND s.distance <= d * 1.000001 $$;
SET gpugraph.target_recall = .95;
SELECT cmp_ok(searched((rel || '_idx')::regclass), '>=', .925::float8,
	'gpugraph_search() of ' || rel)
	FROM kinds WHERE (operator, as_type) = ('<->', 'vector');
SET gpugraph.target_recall = 1;
SELECT is(searched((rel || '_idx')::regclass), 1::float8,
	'gpugraph_search() of all rows of ' || rel)
	FROM kinds WHERE (operator, as_type) = ('<->', 'vector');
RESET gpugraph.target_recall;

-- partitions: the recall is that of the whole answer, whether all were measured or not
CREATE TABLE parts (id int, kind int, val vector(24)) PARTITION BY LIST (kind);
SELECT format('CREATE TABLE part%s PARTITION OF parts FOR VALUES IN (%1$s)', i)
	FROM generate_series(0, 3) i \gexec
INSERT INTO parts SELECT * FROM items;
SELECT make_index('parts', 'val vector_l2_ops');
ANALYZE parts;
SELECT throws_ok($$ SELECT gpugraph_calibrate('parts_idx') $$, '42809', NULL,
	'partitions are measured one by one');
SELECT keeps('parts', .95, 'partitions that were not measured');
SELECT gpugraph_calibrate('part0_val_idx') \gset
SELECT keeps('parts', .95, 'partitions of which one was measured');
SELECT gpugraph_calibrate(relid) FROM gpugraph_indexes WHERE indexname ~ '^part\d' \g /dev/null
SELECT keeps('parts', t, 'partitions') FROM unnest('{.95,1}'::float8[]) t;
SET gpugraph.disable = 'partition_search';
SELECT keeps('parts', t, 'partitions one by one') FROM unnest('{.95,1}'::float8[]) t;
RESET gpugraph.disable;

-- LIMIT that is not known, cursors, many rows, many scans in one statement
SET gpugraph.target_recall = .95;
SELECT quote_literal(val) AS q FROM queries WHERE q = 1 \gset
SELECT count(*) FROM (SELECT id FROM plain ORDER BY val <-> :q LIMIT 10) s \g /dev/null
SELECT list() AS list10 \gset
PREPARE some_rows (bigint) AS SELECT id FROM plain ORDER BY val <-> :q LIMIT $1;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM plain ORDER BY val <-> :q;
FETCH 5 FROM c \g /dev/null
SELECT is(list(), :list10, 'a cursor begins with the list of 10 rows');
SET LOCAL gpugraph.target_recall = .99;
SELECT is((SELECT count(*) FROM (SELECT id FROM plain ORDER BY val <-> :q LIMIT 1500) s),
	1500::bigint, 'LIMIT of all rows');
MOVE FORWARD ALL IN c \g /dev/null
MOVE BACKWARD 0 IN c \g /dev/null
COMMIT;
SELECT is((SELECT count(*) FROM (SELECT id FROM plain ORDER BY val <-> :q) s), 1500::bigint,
	'all rows, without a LIMIT');
SELECT cmp_ok(recall_of('plain', k), '>=', .925::float8, 'LIMIT ' || k)
	FROM unnest('{2,50,101,600}'::int[]) k;
SELECT is((SELECT count(*) FROM queries, LATERAL (SELECT id FROM plain ORDER BY plain.val <->
	queries.val LIMIT 10) s), 1200::bigint, 'many scans in one statement');
SELECT is(list(), :list10, 'have the list of each');
SELECT is((SELECT count(*) FROM (SELECT id FROM plain ORDER BY val <-> NULL LIMIT 10) s),
	10::bigint, 'a query that is NULL');
SELECT is((SELECT count(*) FROM (SELECT id FROM product ORDER BY
	val <#> array_fill(0, '{24}')::vector LIMIT 10) s), 10::bigint, 'a query that is zero');
SET gpugraph.target_recall = .999999;
SELECT is((SELECT count(*) FROM (SELECT id FROM plain ORDER BY val <-> :q LIMIT 3) s), 3::bigint,
	'a target that no walk reaches');
SELECT results_eq('SELECT exact_lists = lists, expected_recall FROM gpugraph_last_scan()',
	'VALUES (true, 1::float8)', 'takes a list for which all rows are measured');
RESET gpugraph.target_recall;

-- what a session has set does not change what is measured: all rows are queries
SELECT cpu_rows AS before FROM gpugraph_stat_recall WHERE indexname = 'plain_idx' \gset
SET gpugraph.iterative_scan = off;
SET gpugraph.itopk_size = 7;
SET gpugraph.target_recall = 1;
SELECT gpugraph_calibrate('plain_idx') \g /dev/null
RESET gpugraph.iterative_scan;
RESET gpugraph.itopk_size;
RESET gpugraph.target_recall;
SELECT is((SELECT cpu_rows FROM gpugraph_stat_recall WHERE indexname = 'plain_idx'),
	:before::float8, 'measured under other settings');

-- indexes over expressions and of some rows, small and empty ones
CREATE INDEX some_idx ON plain USING gpugraph ((val::halfvec(24)) halfvec_l2_ops)
	WITH (graph_degree = 6, intermediate_graph_degree = 12) WHERE kind = 1;
SELECT ok(gpugraph_calibrate('some_idx'), 'an expression of some rows is measured');
SET gpugraph.target_recall = .95;
SELECT is((SELECT count(*) FROM (SELECT id FROM plain WHERE kind = 1 ORDER BY val::halfvec(24) <->
	:q::halfvec(24) LIMIT 10) s), 10::bigint, 'and answers');
CREATE TABLE small (id int, val vector(24));
SELECT make_index('small', 'val vector_l2_ops');
SELECT ok(gpugraph_calibrate('small_idx'), 'an empty index is measured');
SELECT is(recall_now('small_idx'), NULL, 'but nothing is found out');
SELECT is_empty('SELECT id FROM small ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)
	LIMIT 3', 'nor is a row found');
INSERT INTO small SELECT id, val FROM items WHERE id <= 3;
SELECT ok(gpugraph_calibrate('small_idx'), 'three new rows are measured');
SELECT is((SELECT count(*) FROM (SELECT id FROM small ORDER BY val <-> :q LIMIT 5) s), 3::bigint,
	'and all found');
INSERT INTO small SELECT id, NULL FROM items;
SELECT ok(gpugraph_calibrate('small_idx'), 'rows without a vector are none');

-- a transaction that is rolled back, and one that made the table
BEGIN;
CREATE TABLE young AS SELECT id, val FROM items WHERE id <= 500;
SELECT make_index('young', 'val vector_l2_ops');
SELECT ok(gpugraph_calibrate('young_idx'), 'a table of this transaction is measured');
SELECT gpugraph_calibrate('plain_idx') \g /dev/null
ROLLBACK;
SELECT lives_ok($$ SELECT gpugraph_check('plain_idx', true) $$,
	'a measurement that was rolled back');
SELECT throws_ok($$ SELECT gpugraph_calibrate('plain_idx') $$, '25006', NULL,
	'a transaction that only reads measures nothing') FROM (SELECT set_config(
	'transaction_read_only', 'on', true)) s;

-- what makes the index anew forgets
DELETE FROM unlogged WHERE id > 300;
CREATE INDEX by_id ON unlogged (id);
CREATE FUNCTION forgets(command text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM gpugraph_calibrate('unlogged_idx');
	RETURN NEXT ok(recall_now('unlogged_idx') > 0, 'measured before ' || command);
	EXECUTE command;
	RETURN NEXT is(recall_now('unlogged_idx'), NULL, command || ' forgets');
	PERFORM id FROM unlogged ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 10;
	RETURN NEXT lives_ok($q$ SELECT gpugraph_check('unlogged_idx', true) $q$, 'and all is sound');
END $$;
RESET gpugraph.target_recall;
SELECT forgets(c) FROM unnest('{REINDEX INDEX unlogged_idx,ALTER TABLE unlogged SET LOGGED,
	"CLUSTER unlogged USING by_id","ALTER TABLE unlogged ALTER id TYPE bigint",
	TRUNCATE unlogged}'::text[]) c,
	LATERAL (SELECT set_config('gpugraph.target_recall', '.9', true)) s;
SELECT * FROM finish();
