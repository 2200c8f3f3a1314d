-- Kinds of tables and indexes, and the commands that build, rebuild and drop them
SET enable_seqscan = off;
-- The plan of a statement, without the lines in which versions differ.
CREATE FUNCTION plan_of(sql text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || sql LOOP
		-- from 18 on: a disabled node that nothing could replace
		IF line !~ '^ *Disabled: ' THEN
			RETURN NEXT line;
		END IF;
	END LOOP;
END $$;

-- unlogged
CREATE UNLOGGED TABLE t (id int, val vector(3));
CREATE INDEX i ON t USING gpugraph (val vector_l2_ops);
INSERT INTO t VALUES (1, '[0,0,0]'), (2, '[1,2,3]'), (3, '[1,1,1]'), (4, NULL);
SELECT id FROM t ORDER BY val <-> '[3,3,3]';
SELECT gpugraph_check('i', true);
ALTER TABLE t SET LOGGED;
SELECT id FROM t ORDER BY val <-> '[3,3,3]';
ALTER TABLE t SET UNLOGGED;
SELECT id FROM t ORDER BY val <-> '[3,3,3]';
SELECT gpugraph_check('i', true);
DROP TABLE t;

-- temporary
CREATE TEMP TABLE t (id int, val vector(3));
INSERT INTO t VALUES (1, '[0,0,0]'), (2, '[1,2,3]'), (3, '[1,1,1]'), (4, NULL);
CREATE INDEX i ON t USING gpugraph (val vector_l2_ops);
INSERT INTO t VALUES (5, '[2,2,2]');
SELECT id FROM t ORDER BY val <-> '[3,3,3]';
DELETE FROM t WHERE id = 2;
VACUUM t;
SELECT id FROM t ORDER BY val <-> '[3,3,3]';
SELECT gpugraph_check('i', true);
DROP TABLE t;

CREATE TEMP TABLE t (id int, val vector(3)) ON COMMIT DELETE ROWS;
CREATE INDEX i ON t USING gpugraph (val vector_l2_ops);
BEGIN;
INSERT INTO t VALUES (1, '[0,0,0]'), (2, '[1,2,3]');
SELECT id FROM t ORDER BY val <-> '[3,3,3]';
COMMIT;
SELECT id FROM t ORDER BY val <-> '[3,3,3]';
INSERT INTO t VALUES (1, '[0,0,0]');
DROP TABLE t;

-- built and dropped in one transaction with its table
BEGIN;
CREATE TABLE t (id int, val vector(3));
INSERT INTO t VALUES (1, '[0,0,0]'), (2, '[1,2,3]');
CREATE INDEX i ON t USING gpugraph (val vector_l2_ops);
INSERT INTO t VALUES (3, '[1,1,1]');
SELECT id FROM t ORDER BY val <-> '[3,3,3]';
SAVEPOINT s;
INSERT INTO t VALUES (4, '[3,3,3]');
SELECT id FROM t ORDER BY val <-> '[3,3,3]';
ROLLBACK TO s;
SELECT id FROM t ORDER BY val <-> '[3,3,3]';
ROLLBACK;

-- partial
CREATE TABLE t (id int, val vector(3));
INSERT INTO t SELECT i, ARRAY[i, i, i]::real[]::vector FROM generate_series(1, 40) i;
CREATE INDEX i ON t USING gpugraph (val vector_l2_ops) WHERE id % 10 = 0;
INSERT INTO t VALUES (41, '[41,41,41]'), (50, '[50,50,50]');
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE id % 10 = 0 ORDER BY val <-> '[33,33,33]' LIMIT 3;
SELECT id FROM t WHERE id % 10 = 0 ORDER BY val <-> '[33,33,33]';
SELECT plan_of('SELECT id FROM t WHERE id % 20 = 0 ORDER BY val <-> ''[33,33,33]'' LIMIT 3');
SELECT rows, delta_rows FROM gpugraph_index_info('i');
SELECT gpugraph_check('i', true);
DROP INDEX i;

-- expression
CREATE INDEX i ON t USING gpugraph ((val::halfvec(3)) halfvec_l2_ops);
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val::halfvec(3) <-> '[33,33,33]' LIMIT 3;
SELECT id FROM t ORDER BY val::halfvec(3) <-> '[33.2,33,33]' LIMIT 3;
INSERT INTO t VALUES (51, '[33.5,33,33]');
SELECT id FROM t ORDER BY val::halfvec(3) <-> '[33.2,33,33]' LIMIT 3;
SELECT gpugraph_check('i', true);
DROP INDEX i;
CREATE FUNCTION first_two(vector) RETURNS vector LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
	AS $$ SELECT public.subvector($1, 1, 2)::public.vector(2) $$;
CREATE INDEX i ON t USING gpugraph ((first_two(val)::vector(2)) vector_l2_ops);
SELECT id FROM t ORDER BY first_two(val)::vector(2) <-> '[33.2,33]' LIMIT 3;
SELECT gpugraph_check('i', true);
DROP INDEX i;
DROP FUNCTION first_two;

-- commands that build
CREATE INDEX CONCURRENTLY i ON t USING gpugraph (val vector_l2_ops);
INSERT INTO t VALUES (52, '[33.4,33,33]');
SELECT id FROM t ORDER BY val <-> '[33.2,33,33]' LIMIT 3;
REINDEX INDEX i;
SELECT rows, delta_rows FROM gpugraph_index_info('i');
SELECT id FROM t ORDER BY val <-> '[33.2,33,33]' LIMIT 3;
INSERT INTO t VALUES (53, '[33.3,33,33]');
REINDEX INDEX CONCURRENTLY i;
SELECT rows, delta_rows FROM gpugraph_index_info('i');
SELECT id FROM t ORDER BY val <-> '[33.2,33,33]' LIMIT 3;
REINDEX TABLE CONCURRENTLY t;
VACUUM FULL t;
SELECT id FROM t ORDER BY val <-> '[33.2,33,33]' LIMIT 3;
ALTER TABLE t ADD PRIMARY KEY (id);
CLUSTER t USING t_pkey;
SELECT id FROM t ORDER BY val <-> '[33.2,33,33]' LIMIT 3;
SELECT gpugraph_check('i', true);
CLUSTER t USING i;

-- a type that is changed under the index
ALTER TABLE t ALTER COLUMN val TYPE halfvec(3);
DROP INDEX i;
ALTER TABLE t ALTER COLUMN val TYPE halfvec(3);
CREATE INDEX i ON t USING gpugraph (val halfvec_l2_ops);
SELECT id FROM t ORDER BY val <-> '[33.2,33,33]' LIMIT 1;
DROP TABLE t;

-- HOT updates: the root of the chain is what the index names
CREATE TABLE t (id int, val vector(3), note int) WITH (fillfactor = 50);
INSERT INTO t SELECT i, ARRAY[i, i, i]::real[]::vector, 0 FROM generate_series(1, 10) i;
UPDATE t SET note = 1;
CREATE INDEX i ON t USING gpugraph (val vector_l2_ops);
UPDATE t SET note = 2;
UPDATE t SET note = 3 WHERE id = 4;
SELECT id, note FROM t ORDER BY val <-> '[4.2,4,4]' LIMIT 3;
SELECT gpugraph_check('i', true);
VACUUM t;
SELECT id, note FROM t ORDER BY val <-> '[4.2,4,4]' LIMIT 3;
SELECT gpugraph_check('i', true);
DROP TABLE t;

-- partitions
CREATE TABLE t (id int, val vector(3)) PARTITION BY RANGE (id);
CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (20);
CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (20) TO (100);
INSERT INTO t SELECT i, ARRAY[i, i, i]::real[]::vector FROM generate_series(1, 40) i;
CREATE INDEX i ON t USING gpugraph (val vector_l2_ops);
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> '[20.2,20,20]' LIMIT 3;
SELECT id FROM t ORDER BY val <-> '[20.2,20,20]' LIMIT 3;
SELECT gpugraph_check('i');
SELECT gpugraph_check('t1_val_idx', true);
SELECT rows FROM gpugraph_index_info('t2_val_idx');
DROP TABLE t;

-- an index in a schema of its own, with the types out of the search path
CREATE SCHEMA s;
CREATE TABLE s.t (val vector(2));
INSERT INTO s.t VALUES ('[1,2]'), ('[3,4]');
SET search_path = s;
CREATE INDEX i ON s.t USING gpugraph (val public.vector_l2_ops);
SELECT val FROM t ORDER BY val OPERATOR(public.<->) '[3,3]' LIMIT 1;
RESET search_path;
DROP SCHEMA s CASCADE;
DROP FUNCTION plan_of;
