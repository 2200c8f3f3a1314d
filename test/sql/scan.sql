-- Scans: order, cursors, rescans, widening, joins
CREATE TABLE t (id int, val vector(2));
INSERT INTO t SELECT i, ARRAY[i, 0]::real[]::vector FROM generate_series(1, 500) i;
CREATE INDEX i ON t USING gpugraph (val vector_l2_ops);
INSERT INTO t SELECT i, ARRAY[i, 0]::real[]::vector FROM generate_series(501, 600) i;
SET enable_seqscan = off;

-- every row once, in order
CREATE VIEW ordered AS SELECT id, val <-> '[-1,0]' AS distance FROM t ORDER BY val <-> '[-1,0]';
SELECT count(*), count(DISTINCT id), bool_and(id = n) AS in_order
	FROM (SELECT id, row_number() OVER () AS n FROM ordered) s;
SET gpugraph.itopk_size = 1;
SELECT count(*), count(DISTINCT id) FROM ordered;
SELECT id FROM ordered LIMIT 5;
SET gpugraph.max_scan_tuples = 1;
SELECT count(*), count(DISTINCT id), bool_and(id = n) AS in_order
	FROM (SELECT id, row_number() OVER () AS n FROM ordered) s;
RESET gpugraph.max_scan_tuples;
SET gpugraph.iterative_scan = relaxed_order;
SELECT count(*), count(DISTINCT id) FROM ordered;
SET gpugraph.max_scan_tuples = 10;
SELECT count(*), count(DISTINCT id) FROM ordered;
RESET gpugraph.max_scan_tuples;
SET gpugraph.iterative_scan = off;
SET gpugraph.itopk_size = 10;
SELECT id FROM ordered;
SELECT count(*) FROM (SELECT id FROM t WHERE id % 2 = 0 ORDER BY val <-> '[-1,0]' LIMIT 20) s;
RESET gpugraph.iterative_scan;
RESET gpugraph.itopk_size;

-- the distance comes from the table's row, so it needs no recheck here
SELECT id, distance FROM ordered LIMIT 3;
SELECT id FROM t WHERE val <-> '[10.2,0]' < 2 ORDER BY val <-> '[10.2,0]';

-- LIMIT and OFFSET
SELECT id FROM ordered LIMIT 0;
SELECT id FROM ordered OFFSET 3 LIMIT 2;
SELECT id FROM ordered OFFSET 598;
SELECT id FROM ordered OFFSET 600;
SELECT id FROM t WHERE id > 595 ORDER BY val <-> '[-1,0]' LIMIT 3;
SELECT id FROM t WHERE id > 600 ORDER BY val <-> '[-1,0]' LIMIT 3;

-- a cursor
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM t ORDER BY val <-> '[100.2,0]';
FETCH 3 FROM c;
INSERT INTO t VALUES (1000, '[100.2,0]');
DELETE FROM t WHERE id IN (98, 99);
FETCH 4 FROM c;
MOVE 10 IN c;
FETCH 1 FROM c;
CLOSE c;
DECLARE c NO SCROLL CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY val <-> '[100.2,0]' LIMIT 4;
COMMIT;
FETCH ALL FROM c;
CLOSE c;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM t ORDER BY val <-> '[100.2,0]' LIMIT 4;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH FIRST FROM c;
ROLLBACK;

-- rescans: with other queries, with other parameters of the filter, for a semi-join
SELECT q,
	(SELECT array_agg(id)
	FROM (SELECT id FROM t
	ORDER BY val <-> CASE WHEN q > 0 THEN ARRAY[q + 0.2, 0]::real[]::vector END LIMIT 2) s)
	FROM unnest(ARRAY[5, 300, 550, 20]) q;
SELECT q,
	(SELECT count(id)
	FROM (SELECT id FROM t ORDER BY val <-> CASE WHEN q > 0 THEN '[1,1]'::vector END LIMIT 2) s)
	FROM unnest(ARRAY[1, NULL, 2]) q;
SELECT q, s.id
	FROM generate_series(1, 3) q,
	LATERAL (SELECT id FROM t WHERE id % 3 = q - 1 ORDER BY val <-> '[50.2,0]' LIMIT 2) s;
SELECT id FROM t WHERE id IN (SELECT id FROM t ORDER BY val <-> '[7.2,0]' LIMIT 3) ORDER BY id;
SELECT a.id FROM t a
	WHERE EXISTS (SELECT FROM (SELECT id FROM t ORDER BY val <-> '[7.2,0]' LIMIT 2) b
	WHERE b.id = a.id) ORDER BY 1;

-- prepared, with custom and generic plans
PREPARE nearest(vector, int) AS SELECT id FROM t WHERE id <> $2 ORDER BY val <-> $1 LIMIT 2;
EXECUTE nearest('[20.2,0]', 21);
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE nearest('[20.2,0]', 21);
EXECUTE nearest('[20.2,0]', 21);
EXECUTE nearest('[30.2,0]', 30);

EXECUTE nearest('[1,2,3]', 30);
RESET plan_cache_mode;
DEALLOCATE nearest;

-- two scans of the index at a time
SELECT a.id, b.id
	FROM (SELECT id, row_number() OVER () n
	FROM (SELECT id FROM t ORDER BY val <-> '[20.2,0]' LIMIT 3) x) a
	JOIN (SELECT id, row_number() OVER () n
	FROM (SELECT id FROM t ORDER BY val <-> '[40.2,0]' LIMIT 3) x) b USING (n) ORDER BY n;

-- locking rows, writing what is read
BEGIN;
SELECT id FROM t ORDER BY val <-> '[60.2,0]' LIMIT 2 FOR UPDATE;
UPDATE t SET val = '[60.2,0]' WHERE id = (SELECT id FROM t ORDER BY val <-> '[61.2,0]' LIMIT 1);
SELECT id FROM t ORDER BY val <-> '[60.2,0]' LIMIT 3;
ROLLBACK;
DELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY val <-> '[70.2,0]' LIMIT 5);
SELECT id FROM t ORDER BY val <-> '[70.2,0]' LIMIT 4;

-- an error in the middle leaves the session in order
SELECT 1 / (id - 8) FROM (SELECT id FROM t ORDER BY val <-> '[7.2,0]' LIMIT 3) s;
SELECT id FROM t ORDER BY val <-> '[7.2,0]' LIMIT 1;

-- rows dead or gone never make a LIMIT short
DELETE FROM t WHERE id < 400;
SELECT id FROM ordered LIMIT 5;
VACUUM t;
SELECT id FROM ordered LIMIT 5;
SELECT gpugraph_check('i', true);
DELETE FROM t;
SELECT id FROM ordered LIMIT 5;
VACUUM t;
SELECT id FROM ordered LIMIT 5;
INSERT INTO t VALUES (1, '[1,1]');
SELECT id FROM ordered LIMIT 5;
SELECT gpugraph_check('i', true);

DROP TABLE t CASCADE;
