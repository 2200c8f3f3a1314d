-- Numbers of rows and of dimensions at which something changes
SET enable_seqscan = off;

-- rows: none, one, two, around the graph's degrees, and multiples of them
CREATE FUNCTION try_rows(n int, degree int, intermediate int, copies int DEFAULT 1)
	RETURNS TABLE (returned bigint, distinct_ids bigint, nearest int[], checked text)
	LANGUAGE plpgsql AS $$
BEGIN
	CREATE TABLE sized (id int, val vector(2));
	INSERT INTO sized SELECT i, ARRAY[(i / copies) % 100, (i / copies) / 100]::real[]::vector
		FROM generate_series(0, n - 1) i;
	EXECUTE format('CREATE INDEX sized_idx ON sized USING gpugraph (val vector_l2_ops) '
				   'WITH (graph_degree = %s, intermediate_graph_degree = %s)', degree,
				   intermediate);
	SELECT count(*), count(DISTINCT id) INTO returned, distinct_ids
		FROM (SELECT id FROM sized ORDER BY val <-> '[0.2,0.1]') s;
	SELECT array_agg(id) INTO nearest
		FROM (SELECT id FROM sized ORDER BY val <-> '[0.3,-0.1]' LIMIT 3) s;
	IF copies > 1 THEN
		nearest := NULL;
	END IF;
	checked := gpugraph_check('sized_idx', true)::text;
	DROP TABLE sized;
	RETURN NEXT;
END $$;
SELECT n, (try_rows(n, 4, 8)).* FROM unnest(ARRAY[0, 1, 2, 3, 4, 5, 8, 9, 16, 64]) n;
SELECT n, (try_rows(n, 32, 64)).* FROM unnest(ARRAY[0, 1, 2, 31, 32, 33, 64, 65, 128, 320]) n;
SELECT n, (try_rows(n, 256, 512)).* FROM unnest(ARRAY[2, 255, 256, 257, 512, 768]) n;

-- rows: equal ones
SELECT n, (try_rows(n, 32, 64, n)).* FROM unnest(ARRAY[2, 33, 1000]) n;
SELECT n, (try_rows(n, 32, 64, 20)).* FROM unnest(ARRAY[20, 40, 2000]) n;
CREATE TABLE t (id int, val vector(2));
INSERT INTO t SELECT i, '[1,2]' FROM generate_series(1, 1000) i;
CREATE INDEX i ON t USING gpugraph (val);
SELECT nodes, rows FROM gpugraph_index_info('i');
INSERT INTO t SELECT i, '[1,2]' FROM generate_series(1001, 1010) i;
SELECT count(DISTINCT id) FROM (SELECT id FROM t ORDER BY val <-> '[0,0]' LIMIT 1005) s;
DROP TABLE t;

-- an index that was empty when it was built
CREATE TABLE t (id int, val vector(3));
CREATE INDEX i ON t USING gpugraph (val);
SELECT id FROM t ORDER BY val <-> '[1,1,1]' LIMIT 1;
SELECT dimensions, nodes, rows, segments, pivots, delta_rows FROM gpugraph_index_info('i');
INSERT INTO t VALUES (1, '[1,2,3]');
SELECT id FROM t ORDER BY val <-> '[1,1,1]' LIMIT 1;
SELECT dimensions, nodes, rows, segments, pivots, delta_rows FROM gpugraph_index_info('i');
DROP TABLE t;

-- a table of NULLs, and under cosine of zero vectors
CREATE TABLE t (id int, val vector(3));
INSERT INTO t SELECT i, CASE WHEN i % 2 = 0 THEN '[0,0,0]'::vector END
	FROM generate_series(1, 10) i;
CREATE INDEX i ON t USING gpugraph (val vector_cosine_ops);
SELECT rows, delta_rows FROM gpugraph_index_info('i');
SELECT id FROM t ORDER BY val <=> '[1,1,1]' LIMIT 1;
INSERT INTO t VALUES (11, '[0,0,0]'), (12, '[1,1,1]');
SELECT rows, delta_rows FROM gpugraph_index_info('i');
SELECT id FROM t ORDER BY val <=> '[1,1,1]' LIMIT 1;
SELECT id FROM t ORDER BY val <=> '[0,0,0]' LIMIT 1;
SELECT gpugraph_check('i', true);
DROP TABLE t;

-- dimensions: one, and the types' limit; vectors of several pages in the graph and in the delta
CREATE FUNCTION wide(i int, dimensions int) RETURNS real[] LANGUAGE sql IMMUTABLE
	AS $$ SELECT array_agg(((i * 31 + d * 17) % 101)::real)
	FROM generate_series(1, dimensions) d $$;
CREATE TABLE t (id int, val vector(1));
INSERT INTO t SELECT i, ARRAY[i]::real[]::vector FROM generate_series(1, 100) i;
CREATE INDEX i ON t USING gpugraph (val);
SELECT id FROM t ORDER BY val <-> '[50.2]' LIMIT 3;
DROP TABLE t;

CREATE TABLE t (id int, val vector(16000));
INSERT INTO t SELECT i, wide(i, 16000)::vector FROM generate_series(1, 10) i;
CREATE INDEX i ON t USING gpugraph (val);
INSERT INTO t SELECT i, wide(i, 16000)::vector FROM generate_series(11, 14) i;
SELECT dimensions, rows, delta_rows FROM gpugraph_index_info('i');
SELECT (SELECT id FROM t ORDER BY val <-> wide(q, 16000)::vector LIMIT 1) AS id
	FROM generate_series(1, 14) q;
SELECT gpugraph_check('i', true);
-- of a temporary table VACUUM removes all that is deleted, also beside sessions with old snapshots
CREATE TEMPORARY TABLE own AS SELECT * FROM t WHERE id <= 10;
CREATE INDEX own_i ON own USING gpugraph (val);
INSERT INTO own SELECT * FROM t WHERE id > 10;
DELETE FROM own WHERE id % 3 = 0;
VACUUM own;
SELECT dead_rows FROM gpugraph_index_info('own_i');
SELECT gpugraph_check('own_i', true);
DROP TABLE own;
DELETE FROM t WHERE id % 3 = 0;
VACUUM t;
SELECT id FROM (SELECT id FROM t ORDER BY val <-> wide(2, 16000)::vector) s ORDER BY id;
SELECT gpugraph_check('i', true);
DROP TABLE t;

CREATE TABLE t (id int, val halfvec(16000));
INSERT INTO t SELECT i, wide(i, 16000)::halfvec FROM generate_series(1, 10) i;
CREATE INDEX i ON t USING gpugraph (val halfvec_cosine_ops);
INSERT INTO t SELECT i, wide(i, 16000)::halfvec FROM generate_series(11, 12) i;
SELECT (SELECT id FROM t ORDER BY val <=> wide(q, 16000)::halfvec LIMIT 1) AS id
	FROM generate_series(1, 12) q;
SELECT gpugraph_check('i', true);
DROP TABLE t;

CREATE TABLE t (val vector(16001));
CREATE TABLE t (val halfvec(16001));

-- vectors around one page: 8 kB less headers hold 2034 floats and a delta row's head
CREATE FUNCTION try_width(d int) RETURNS TABLE (nearest int[], checked text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE sized (id int, val vector(%s))', d);
	INSERT INTO sized SELECT i, wide(i, d)::vector FROM generate_series(1, 6) i;
	CREATE INDEX sized_idx ON sized USING gpugraph (val vector_l2_ops);
	INSERT INTO sized SELECT i, wide(i, d)::vector FROM generate_series(7, 12) i;
	SELECT array_agg((SELECT id FROM sized
		ORDER BY val <-> wide(q, d)::vector LIMIT 1)) INTO nearest FROM generate_series(1, 12) q;
	checked := gpugraph_check('sized_idx', true)::text;
	DROP TABLE sized;
	RETURN NEXT;
END $$;
SELECT d, (try_width(d)).*
	FROM unnest(ARRAY[1014, 1015, 1016, 1017, 1018, 2030, 2031, 2032, 2033, 2034, 2035, 2036, 2037,
	2038, 4066, 4070]) d;

-- no dimensions declared: those of the first row
CREATE TABLE t (id int, val vector);
CREATE INDEX i ON t USING gpugraph (val vector_l2_ops);
SELECT dimensions FROM gpugraph_index_info('i');
INSERT INTO t VALUES (1, '[1,2,3]');
SELECT dimensions FROM gpugraph_index_info('i');
INSERT INTO t VALUES (2, '[1,2]');
INSERT INTO t VALUES (3, '[3,2,1]');
SELECT id FROM t ORDER BY val <-> '[3,3,3]' LIMIT 1;
SELECT id FROM t ORDER BY val <-> '[3,3]' LIMIT 1;
DROP INDEX i;
CREATE INDEX i ON t USING gpugraph (val vector_l2_ops);
SELECT dimensions FROM gpugraph_index_info('i');
DROP INDEX i;
INSERT INTO t VALUES (4, '[1,2]');
CREATE INDEX i ON t USING gpugraph (val vector_l2_ops);
DROP TABLE t;

DROP FUNCTION try_rows, try_width, wide;
