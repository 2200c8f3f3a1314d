-- gpugraph_recall and gpugraph_itopk_size tell the recall that queries have; gpugraph_last_scan
\ir include/helpers.psql
SELECT * FROM no_plan();

-- of little structure, and with a lean graph, so that short lists do not suffice
CREATE TABLE items AS SELECT i AS id, (SELECT array_agg(random() ORDER BY d)
	FROM generate_series(1, 32) d WHERE i > 0)::vector(32) AS val FROM generate_series(1, 8000) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 6, intermediate_graph_degree = 12);
INSERT INTO items SELECT id + 8000, val FROM items WHERE id <= 200;
DELETE FROM items WHERE id % 10 = 0;

-- the CPU engine: a device measures all rows of so small an index where LIMIT wants a longer list
SET gpugraph.engine = cpu;
CREATE TABLE measured AS SELECT * FROM gpugraph_recall('items_idx', 10, 200);
SELECT results_eq('SELECT itopk_size FROM measured ORDER BY 1',
	ARRAY[16, 32, 64, 128, 256, 512, 1024], 'the lengths that are tried');
SELECT ok((SELECT bool_and(recall BETWEEN 0 AND 1 AND p50_ms > 0 AND p95_ms >= p50_ms)
	FROM measured), 'recall and times are possible');
SELECT cmp_ok((SELECT recall FROM measured WHERE itopk_size = 16), '<', 0.97::float8,
	'a short list does not find everything');
SELECT is((SELECT recall FROM measured WHERE itopk_size = 1024), 1::float8,
	'where every row is measured, all are found');
SELECT results_eq('SELECT recall FROM gpugraph_recall(''items_idx'', 10, 200) ORDER BY itopk_size',
	'SELECT recall FROM measured ORDER BY itopk_size', 'the sample is the same each time');
SELECT is(current_setting('gpugraph.itopk_size'), '64', 'the setting is as before');

-- Against the recall that new queries have, drawn as the rows are.  Rows are asked as if they were
-- not there: with their own edges they found .72 of their neighbours where new queries find .43.
-- Samples of 200 have a recall with a standard deviation of 0.026, so the difference of two of 400
-- has one of 0.026.  The bound is five of these.  Below, given queries have the same recall to the
-- last digit.
CREATE TABLE queries AS SELECT i AS q, (SELECT array_agg(random() ORDER BY d)
	FROM generate_series(1, 32) d WHERE i > 0)::vector(32) AS val FROM generate_series(1, 400) i;
SET gpugraph.itopk_size = 16;
SELECT recall('items', '<->') AS fresh, (SELECT recall FROM gpugraph_recall('items_idx', 10, 400)
	WHERE itopk_size = 16) AS sample \gset
\echo # new queries :fresh, rows :sample
SELECT cmp_ok(abs(:fresh - :sample)::float8, '<', 0.13::float8, 'recall is that of new queries');
RESET gpugraph.itopk_size;
DELETE FROM queries WHERE q > 200;

-- the length that a recall needs
SELECT gpugraph_itopk_size('items_idx', 10, 0.98, 200) AS needed \gset
SELECT cmp_ok(:needed, '<=', (SELECT min(itopk_size) FROM measured WHERE recall >= 0.98),
	'the length is not above the first in the table that suffices');
SELECT cmp_ok(:needed, '>', (SELECT max(itopk_size) FROM measured WHERE recall < 0.98),
	'and above the last that does not');
SELECT is(gpugraph_itopk_size('items_idx', 10, 0.01), 16, 'the shortest length suffices');
SELECT throws_ok($$SELECT gpugraph_itopk_size('items_idx', 10, 1.5)$$, '22023',
	'recall must be above 0 and at most 1, not 1.5');
SELECT throws_ok($$SELECT gpugraph_itopk_size('items_idx', 10, 'NaN')$$, '22023');
SELECT throws_ok($$SELECT * FROM gpugraph_recall('items_idx', 0)$$, '22023',
	'k must be positive, not 0');
SELECT throws_ok($$SELECT * FROM gpugraph_recall('items_idx', 10, 0)$$, '22023',
	'sample must be from 1 to 100000, not 0');
SELECT is(current_setting('gpugraph.itopk_size'), '64', 'the setting is as before');

-- given queries, of which rows' places tell nothing: recall is that of these queries
CREATE TABLE asked AS SELECT array_agg(val ORDER BY q) AS queries FROM queries;
SET gpugraph.itopk_size = 16;
SELECT recall('items', '<->') AS recall \gset
RESET gpugraph.itopk_size;
CREATE TABLE given AS SELECT r.* FROM asked, gpugraph_recall('items_idx', queries, 10) r;
SELECT results_eq('SELECT itopk_size FROM given ORDER BY 1',
	'SELECT itopk_size FROM measured ORDER BY 1', 'given queries: the same lengths');
SELECT cmp_ok(abs((SELECT recall FROM given WHERE itopk_size = 16) - :recall), '<', 1e-6::float8,
	'given queries: their recall');
SELECT is((SELECT recall FROM given WHERE itopk_size = 1024), 1::float8, 'all are found');
SELECT gpugraph_itopk_size('items_idx', queries, 10, 0.98) AS needed FROM asked \gset
SELECT ok(:needed <= (SELECT min(itopk_size) FROM given WHERE recall >= 0.98) AND
	:needed > (SELECT max(itopk_size) FROM given WHERE recall < 0.98), 'and the length they need');
SELECT is_empty($$SELECT * FROM gpugraph_recall('items_idx', '{}'::vector[])$$, 'no queries');
SELECT is(gpugraph_itopk_size('items_idx', '{}'::vector[], 10, 0.5), NULL, 'and no length');
SELECT throws_ok($$SELECT * FROM gpugraph_recall('items_idx', ARRAY['[1]']::vector[])$$, '22000');
SELECT throws_ok($$SELECT * FROM gpugraph_recall('items_idx', ARRAY[NULL]::vector[])$$, '22004');
SELECT throws_ok($$SELECT * FROM gpugraph_recall('items_idx', '{}'::halfvec[])$$, '42804');
SELECT throws_ok($$SELECT * FROM gpugraph_recall('items_idx', '{}'::vector[], 0)$$, '22023');
SELECT throws_ok($$SELECT gpugraph_itopk_size('items_idx', '{}'::vector[], 10, 2)$$, '22023');

-- only visible rows count: the nearest ones of many are dead
DELETE FROM items WHERE id % 10 <> 1;
SELECT is((SELECT recall FROM gpugraph_recall('items_idx', 10, 50) WHERE itopk_size = 1024),
	1::float8, 'dead rows are not missed');
SELECT is((SELECT recall FROM gpugraph_recall('items_idx', 5000, 5) WHERE itopk_size = 64),
	1::float8, 'more rows than there are');
DELETE FROM items;
SELECT is_empty($$SELECT * FROM gpugraph_recall('items_idx')$$, 'no rows, no recall');
SELECT is(gpugraph_itopk_size('items_idx', 10, 0.5), NULL, 'and no length');

-- what the last scan did, by the CPU engine
SET gpugraph.engine = cpu;
CREATE TABLE more AS SELECT i AS id, (SELECT array_agg(random() ORDER BY d)
	FROM generate_series(1, 8) d WHERE i > 0)::vector(8) AS val FROM generate_series(1, 5000) i;
CREATE INDEX more_idx ON more USING gpugraph (val);
SELECT use_index(true);
PREPARE ask(int) AS
	SELECT id FROM more ORDER BY val <-> '[0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5]' LIMIT $1;
EXECUTE ask(10) \g /dev/null
SELECT results_eq($$SELECT index::text, engine, reason IS NOT NULL, queries, lists, exact_lists,
	widenings, filter, matches, rows, distances BETWEEN 100 AND 4000 FROM gpugraph_last_scan()$$,
	$$VALUES ('more_idx', 'cpu', true, 1::bigint, 1::bigint, 0::bigint, 0::bigint, NULL::text,
	NULL::bigint, 10::bigint, true)$$, 'a scan with one list');
EXECUTE ask(60) \g /dev/null
SELECT results_eq('SELECT widenings, exact_lists, rows FROM gpugraph_last_scan()',
	'VALUES (0::bigint, 0::bigint, 60::bigint)', 'a list that LIMIT has made longer');
SELECT id FROM more WHERE abs(id) % 2 = 0 ORDER BY val <-> '[0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5]'
	LIMIT 20 \g /dev/null
SELECT results_eq('SELECT widenings > 0, exact_lists, rows >= 20 FROM gpugraph_last_scan()',
	'VALUES (true, 0::bigint, true)', 'a scan whose list was made longer');
EXECUTE ask(4000) \g /dev/null
SELECT results_eq('SELECT exact_lists, rows, distances >= 4000 FROM gpugraph_last_scan()',
	'VALUES (1::bigint, 4000::bigint, true)', 'a scan that measured all rows');
INSERT INTO more SELECT id, val FROM more WHERE id <= 5;
EXECUTE ask(10) \g /dev/null
SELECT results_eq('SELECT lists, exact_lists FROM gpugraph_last_scan()',
	'VALUES (2::bigint, 1::bigint)', 'the delta is a list, too');

-- many queries in one call
SELECT is((SELECT count(*) FROM gpugraph_search('more_idx',
	(SELECT array_agg(val) FROM more WHERE id <= 20), 7)), 175::bigint, '25 queries');
SELECT results_eq('SELECT index::text, engine, queries, lists, exact_lists, rows, distances > 1000
	FROM gpugraph_last_scan()',
	$$VALUES ('more_idx', 'cpu', 25::bigint, 50::bigint, 25::bigint, 175::bigint, true)$$,
	'gpugraph_search is told as a whole');
SELECT count(*) AS edges, count(DISTINCT tid) AS nodes FROM gpugraph_knn_graph('more_idx', 3) \gset
SELECT results_eq('SELECT index::text, queries >= 5000, rows >= 4 * queries
	FROM gpugraph_last_scan()', $$VALUES ('more_idx', true, true)$$,
	'gpugraph_knn_graph is told as a whole');
SELECT is(:edges, 3 * :nodes, 'and has all edges');

-- filters, of segments and of the delta, of rows that share a vector
CREATE INDEX more_filter_idx ON more USING gpugraph (val, id);
DROP INDEX more_idx;
INSERT INTO more SELECT id, val FROM more WHERE id BETWEEN 101 AND 110;
SELECT use_index(true);
SELECT count(*) FROM (SELECT id FROM more WHERE id <= 105
	ORDER BY val <-> '[0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5]' LIMIT 10) s \g /dev/null
SELECT results_eq('SELECT filter, matches, rows FROM gpugraph_last_scan()',
	$$VALUES ('exact', 115::bigint, 10::bigint)$$, 'few rows match, and are measured');
SELECT count(*) FROM (SELECT id FROM more WHERE id > 10
	ORDER BY val <-> '[0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5]' LIMIT 10) s \g /dev/null
SELECT results_eq('SELECT filter, matches FROM gpugraph_last_scan()',
	$$VALUES ('walk, exact', 5000::bigint)$$, 'many rows match, and the graph is walked');
SELECT count(*) FROM (SELECT id FROM more WHERE id BETWEEN 1001 AND 4500
	ORDER BY val <-> '[0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5]' LIMIT 10) s \g /dev/null
SELECT results_eq('SELECT filter, matches, distances < 3500 FROM gpugraph_last_scan()',
	$$VALUES ('walk, exact', 3500::bigint, true)$$,
	'a walk costs less than measuring seven rows in ten');

SELECT * FROM finish();
