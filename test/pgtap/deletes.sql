-- Deleted rows never surface, cost no recall, and their space is used again
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 6000, 16, 30);
SELECT make_queries('items', 40);
-- not compacted by VACUUM: that is what merge.sql tests
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0);
SELECT use_index(true);
SET enable_seqscan = off;

DELETE FROM items WHERE id % 4 <> 0;
SELECT cmp_ok(recall('items', '<->'), '>=', 0.99, '75% deleted: recall before VACUUM');
SELECT cmp_ok(recall('items', '<->', 100), '>=', 0.99, '75% deleted: recall of 100 before VACUUM');
VACUUM (FREEZE) items;
SELECT results_eq('SELECT rows, dead_rows FROM gpugraph_index_info(''items_idx'')',
	'VALUES (6000::bigint, 4500::bigint)', 'VACUUM clears them');
SELECT cmp_ok(recall('items', '<->'), '>=', 0.99, '75% deleted: recall after VACUUM');
SELECT cmp_ok(recall('items', '<->', 100), '>=', 0.99, '75% deleted: recall of 100 after VACUUM');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, '75% deleted: sound');
ALTER INDEX items_idx SET (seal_rows = 10000);
VACUUM (FREEZE) items;
SELECT results_eq('SELECT rows, dead_rows FROM gpugraph_index_info(''items_idx'')',
	'VALUES (1500::bigint, 0::bigint)', 'VACUUM builds the segment anew');
SELECT cmp_ok(recall('items', '<->'), '>=', 0.99, '75% deleted: recall of what is left');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, '75% deleted: sound when built anew');

-- With iterative_scan off a scan goes on where rows of its list are dead.  What it then finds late
-- does not come behind rows that are farther.
CREATE TABLE coded AS TABLE items;
CREATE INDEX coded_idx ON coded USING gpugraph (val vector_l2_ops) WITH (storage = 'float32+int4');
DELETE FROM coded WHERE id % 16 <> 0;
SET gpugraph.iterative_scan = off;
SET gpugraph.itopk_size = 10;
SELECT is((SELECT count(*) FROM queries q, LATERAL (SELECT array_agg(d) AS d FROM (
		SELECT c.val <-> q.val AS d FROM coded c ORDER BY c.val <-> q.val LIMIT 50) s) s
	WHERE d <> (SELECT array_agg(x ORDER BY x) FROM unnest(d) x)), 0::bigint,
	'94% deleted: rows are in order with iterative_scan off');
RESET gpugraph.iterative_scan;
RESET gpugraph.itopk_size;

-- the nearest rows are all dead
CREATE TABLE line AS SELECT i AS id, ARRAY[i, 0]::real[]::vector(2) AS val
	FROM generate_series(1, 5000) i;
CREATE INDEX line_idx ON line USING gpugraph (val vector_l2_ops);
DELETE FROM line WHERE id <= 3000;
SELECT is((SELECT array_agg(id) FROM (SELECT id FROM line ORDER BY val <-> '[0,0]' LIMIT 5) s),
	ARRAY[3001, 3002, 3003, 3004, 3005],
	'3000 dead rows before the first live one');
SET gpugraph.iterative_scan = off;
SELECT is((SELECT array_agg(id) FROM (SELECT id FROM line ORDER BY val <-> '[0,0]' LIMIT 5) s),
	ARRAY[3001, 3002, 3003, 3004, 3005],
	'also with iterative_scan off');
RESET gpugraph.iterative_scan;
VACUUM line;
SELECT is((SELECT array_agg(id) FROM (SELECT id FROM line ORDER BY val <-> '[0,0]' LIMIT 5) s),
	ARRAY[3001, 3002, 3003, 3004, 3005],
	'and after VACUUM');

-- heap slots used again: the old entry does not lead to the new row
INSERT INTO line SELECT 100000 + i, ARRAY[-50000 - i, 0]::real[]::vector
	FROM generate_series(1, 3000) i;
SELECT is((SELECT max(id) FROM (SELECT id FROM line ORDER BY val <-> '[0,0]' LIMIT 1000) s), 4000,
	'slots used again show nothing wrong');
SELECT is((SELECT count(DISTINCT id) FROM (SELECT id FROM line ORDER BY val <-> '[0,0]') s),
	5000::bigint, 'and nothing is lost');
SELECT lives_ok($$SELECT gpugraph_check('line_idx', true)$$, 'sound');

-- all rows deleted, vacuumed, inserted again, several times
CREATE TABLE again AS SELECT * FROM items;
INSERT INTO again SELECT id + 10000, cat, big, val FROM items;
CREATE INDEX again_idx ON again USING gpugraph (val vector_l2_ops);
CREATE TABLE copy AS SELECT * FROM again;
DELETE FROM again;
VACUUM (FREEZE) again;
INSERT INTO again SELECT * FROM copy;
SELECT pg_relation_size('again_idx') AS size \gset
DELETE FROM again;
VACUUM (FREEZE) again;
INSERT INTO again SELECT * FROM copy;
SELECT cmp_ok(pg_relation_size('again_idx'), '<=', (1.02 * :size)::bigint,
	'delete all, vacuum, insert again: hardly any growth');
DELETE FROM again;
VACUUM (FREEZE) again;
INSERT INTO again SELECT * FROM copy;
SELECT cmp_ok(pg_relation_size('again_idx'), '<=', (1.02 * :size)::bigint,
	'and none the second time');
SELECT is((SELECT count(DISTINCT id)
	FROM (SELECT id FROM again ORDER BY val <-> (SELECT val FROM queries LIMIT 1)) s), 3000::bigint,
	'all rows are there');
SELECT lives_ok($$SELECT gpugraph_check('again_idx', true)$$, 'sound');

-- a parallel VACUUM clears several indexes at a time
SET min_parallel_index_scan_size = 0;
SET max_parallel_maintenance_workers = 2;
CREATE INDEX again_l1_idx ON again USING gpugraph (val vector_l1_ops);
CREATE INDEX again_ip_idx ON again USING gpugraph (val vector_ip_ops);
INSERT INTO again SELECT id + 100000, cat, big, val FROM copy;
DELETE FROM again WHERE id % 2 = 0;
VACUUM (PARALLEL 2) again;
SELECT lives_ok(format('SELECT gpugraph_check(%L, true)', i),
	i || ': sound after a parallel VACUUM')
	FROM unnest(ARRAY['again_idx', 'again_l1_idx', 'again_ip_idx']) i;
DELETE FROM again;
VACUUM (FREEZE, PARALLEL 2) again;
SELECT is((SELECT segments FROM gpugraph_index_info(i)), 0, i || ': nothing is left of a segment')
	FROM unnest(ARRAY['again_idx', 'again_l1_idx', 'again_ip_idx']) i;
INSERT INTO again SELECT * FROM copy;
SELECT lives_ok(format('SELECT gpugraph_check(%L, true)', i), i || ': sound')
	FROM unnest(ARRAY['again_idx', 'again_l1_idx', 'again_ip_idx']) i;

SELECT * FROM finish();
