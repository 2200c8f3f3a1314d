-- storage = 'float16' of a vector column: half the room, and the order of the column's own values
CREATE FUNCTION error_of(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	hint text;
BEGIN
	EXECUTE sql;
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RETURN SQLSTATE || ' ' || SQLERRM || coalesce(E'\n' || hint, '');
END $$;
CREATE TABLE t (id int PRIMARY KEY, cat int, val vector(3), half halfvec(3));
-- 1 to 20 are the same in half precision, where numbers between 1 and 2 are 0.001 apart
INSERT INTO t SELECT i, i % 2, format('[%s,1,-1.5]', 1 + 0.00001 * (i * 7 % 20))::vector,
	'[1,1,-1.5]' FROM generate_series(1, 20) i;
INSERT INTO t SELECT i, i % 2, format('[%s,2,%s]', i / 7.0, i * i % 13)::vector, '[1,2,3]'
	FROM generate_series(21, 60) i;
INSERT INTO t VALUES (61, 0, NULL, NULL), (62, 0, '[0,0,0]', '[0,0,0]');

-- the option
CREATE INDEX i ON t USING gpugraph (val) WITH (storage = 'float8');
CREATE INDEX i ON t USING gpugraph (val) WITH (storage = 'float16');
SELECT element, nodes, rows FROM gpugraph_index_info('i');
SELECT gpugraph_check('i', true);
ALTER INDEX i SET (storage = 'float32');
SELECT element FROM gpugraph_index_info('i');
INSERT INTO t VALUES (63, 1, '[1.000005,1,-1.5]', NULL);
SELECT gpugraph_check('i', true);
REINDEX INDEX i;
SELECT element, nodes, rows FROM gpugraph_index_info('i');
ALTER INDEX i RESET (storage);
REINDEX INDEX i;
SELECT element FROM gpugraph_index_info('i');
ALTER INDEX i SET (storage = float16);
REINDEX INDEX CONCURRENTLY i;
SELECT element FROM gpugraph_index_info('i');
SELECT pg_get_indexdef('i'::regclass);
SELECT gpugraph_check('i', true);

-- halfvec is stored as it is
CREATE INDEX h ON t USING gpugraph (half halfvec_l2_ops) WITH (storage = 'float16');
SELECT element FROM gpugraph_index_info('h');
DROP INDEX h;
SELECT error_of($$CREATE INDEX h ON t USING gpugraph (half halfvec_l2_ops)
	WITH (storage = 'float32')$$);

-- rows that are equal in half precision come in their true order; rows come after the build, too
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> '[1,1,-1.5]' LIMIT 8;
SELECT id, val <-> '[1,1,-1.5]' AS d FROM t ORDER BY val <-> '[1,1,-1.5]' LIMIT 8;
INSERT INTO t SELECT i, i % 2, format('[%s,1,-1.5]', 1.0000005 + 0.000001 * (i * 3 % 10))::vector,
	NULL FROM generate_series(71, 80) i;
SELECT id, val <-> '[1,1,-1.5]' AS d FROM t ORDER BY val <-> '[1,1,-1.5]' LIMIT 8;
SELECT id FROM t WHERE cat = 1 AND id < 70 ORDER BY val <-> '[1,1,-1.5]' LIMIT 8;
SELECT id FROM t ORDER BY val <-> '[1,1,-1.5]' OFFSET 14 LIMIT 4;
SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM t ORDER BY val <-> '[1,1,-1.5]') s;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> NULL) s;
SELECT q.id,
	array(SELECT id FROM (SELECT id FROM t WHERE t.id <> q.id ORDER BY val <-> q.val LIMIT 4) s
	ORDER BY id) FROM t q WHERE q.id IN (1, 2, 30) ORDER BY 1;

-- a cursor, and what comes meanwhile
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM t ORDER BY val <-> '[1,1,-1.5]';
FETCH 3 FROM c;
INSERT INTO t VALUES (90, 0, '[1.0000001,1,-1.5]', NULL);
FETCH 3 FROM c;
MOVE FORWARD ALL FROM c;
SELECT id FROM t ORDER BY val <-> '[1,1,-1.5]' LIMIT 3;
ROLLBACK;

-- every metric, every mode: as a sort of the table
CREATE FUNCTION compare(op text, query text, n int, mode text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	sql text := format('SELECT array_agg(d) FROM (SELECT val %1$s %2$L AS d FROM t
						WHERE val IS NOT NULL AND (%1$L <> ''<=>'' OR val::text <> ''[0,0,0]'')
						ORDER BY val %1$s %2$L LIMIT %3$s) s', op, query, n);
	sorted float8[];
	scanned float8[];
BEGIN
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_indexscan = off;
	EXECUTE sql INTO sorted;
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_indexscan = on;
	PERFORM set_config('gpugraph.iterative_scan', mode, true);
	EXECUTE sql INTO scanned;
	-- near ties come as the rounded values have them
	IF mode = 'relaxed_order' THEN
		scanned := array(SELECT d FROM unnest(scanned) d ORDER BY d);
	END IF;
	RETURN CASE WHEN sorted = scanned THEN 'equal'
		ELSE format('%s: %s, not %s', op, scanned, sorted) END;
END $$;
CREATE TABLE q (query text);
INSERT INTO q VALUES ('[1,1,-1.5]'), ('[-3,0.1,2]'), ('[1.00003,1,-1.5]'), ('[1e-20,3e-21,0]'),
	('[3e30,-1e30,2e29]'), ('[0,0,0]');
CREATE FUNCTION compare_all(op text) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT DISTINCT mode || ' ' || compare(op, query, n, mode)
	FROM unnest(ARRAY['strict_order', 'relaxed_order', 'off']) mode, q,
	unnest(ARRAY[1, 5, 20, 60, 1000]) n
	-- off stops after the 64 rows that are nearest when rounded, relaxed order has all rows
	WHERE CASE mode WHEN 'off' THEN n <= 20 WHEN 'relaxed_order' THEN n = 1000 ELSE true END
	ORDER BY 1 $$;
SELECT compare_all('<->');
DROP INDEX i;
CREATE INDEX i ON t USING gpugraph (val vector_l1_ops) WITH (storage = 'float16');
INSERT INTO t VALUES (100, 1, '[1.000002,1,-1.5]', NULL);
SELECT compare_all('<+>');
DROP INDEX i;
-- later rows are much longer than those of the build
CREATE INDEX i ON t USING gpugraph (val vector_ip_ops) WITH (storage = 'float16');
INSERT INTO t VALUES (101, 1, '[1000.1,2,1]', NULL), (102, 1, '[1000.15,2,1]', NULL),
	(103, 0, '[-60000,-60001,-60002]', NULL);
SELECT compare_all('<#>');
SELECT gpugraph_check('i', true);
DROP INDEX i;
-- lengths that halves do not have
INSERT INTO t VALUES (104, 1, '[1e-12,2e-12,1e-13]', NULL), (105, 1, '[3e10,2e9,1e10]', NULL),
	(106, 1, '[1.00001e-9,1e-9,-1.5e-9]', NULL);
CREATE INDEX i ON t USING gpugraph (val vector_cosine_ops) WITH (storage = 'float16');
INSERT INTO t VALUES (107, 1, '[1.00002e-9,1e-9,-1.5e-9]', NULL),
	(108, 1, '[1.00003e9,1e9,-1.5e9]', NULL), (109, 1, '[0,0,0]', NULL);
SELECT compare_all('<=>');
SELECT gpugraph_check('i', true);

-- what cannot be stored
SELECT error_of($$INSERT INTO t VALUES (110, 1, '[1e-20,1e-21,0]', NULL)$$);
SELECT error_of($$INSERT INTO t VALUES (110, 1, '[1e20,0,0]', NULL)$$);
DROP INDEX i;
SELECT error_of($$CREATE INDEX i ON t USING gpugraph (val) WITH (storage = 'float16')$$);
-- Gone, not dead: a build reads dead rows that an old snapshot may see, and the id of a transaction
-- in another database makes snapshots old.
CREATE TABLE kept AS SELECT * FROM t WHERE id <= 102;
TRUNCATE t;
INSERT INTO t SELECT * FROM kept;
DROP TABLE kept;
CREATE INDEX i ON t USING gpugraph (val) WITH (storage = 'float16');
SELECT error_of($$INSERT INTO t VALUES (111, 1, '[1,-65520,0]', NULL)$$);
INSERT INTO t VALUES (111, 1, '[1,-65519,0]', NULL), (112, 1, '[1,-65504,0]', NULL),
	(113, 1, '[1e-30,1e-9,0]', NULL);
SELECT id, val FROM t ORDER BY val <-> '[1,-65510,0]' LIMIT 2;
SELECT id, val FROM t ORDER BY val <-> '[0,0,0]' LIMIT 2;
SELECT compare_all('<->');
SELECT gpugraph_check('i', true);
DROP INDEX i;

-- an expression, without declared dimensions, unlogged
CREATE UNLOGGED TABLE u (id int, val vector);
CREATE INDEX i ON u USING gpugraph ((subvector(val, 1, 2)::vector(2)) vector_l2_ops)
	WITH (storage = 'float16');
INSERT INTO u SELECT i, format('[%s,1,%s]', 1 + 0.00001 * (i * 7 % 20), i)::vector
	FROM generate_series(1, 20) i;
SELECT id FROM u ORDER BY subvector(val, 1, 2)::vector(2) <-> '[1,1]' LIMIT 5;
REINDEX INDEX i;
SELECT id FROM u ORDER BY subvector(val, 1, 2)::vector(2) <-> '[1,1]' LIMIT 5;
SELECT dimensions, element FROM gpugraph_index_info('i');

DROP TABLE t, u, q;
DROP FUNCTION error_of, compare, compare_all;
