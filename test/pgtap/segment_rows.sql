-- The option segment_rows: builds and merges keep to it, unless there would be too many segments
\ir include/helpers.psql
SELECT * FROM no_plan();

CREATE FUNCTION segments() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT segments FROM gpugraph_index_info('items_idx'));
END $$;

SELECT setseed(0.25);
SELECT make_data('items', 6000, 16, 30);
SELECT make_queries('items', 20);
SET max_parallel_maintenance_workers = 0;

CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (segment_rows = 1500, seal_rows = 0);
SELECT is(segments(), 4, 'a build makes segments of so many rows');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'sound');
SELECT cmp_ok(recall('items', '<->'), '>=', 0.99, 'recall');

SET max_parallel_maintenance_workers = 2;
ALTER TABLE items SET (parallel_workers = 2);
REINDEX INDEX items_idx;
SELECT cmp_ok(segments(), '>=', 4, 'so does a parallel one');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'parallel: sound');
SET max_parallel_maintenance_workers = 0;

-- too few rows for a graph, and too many segments
ALTER INDEX items_idx SET (segment_rows = 1);
REINDEX INDEX items_idx;
SELECT is(segments(), 6, 'a segment has a thousand rows at least');
INSERT INTO items SELECT id + 6000 * i, cat, big, val FROM items, generate_series(1, 4) i;
ANALYZE items;
REINDEX INDEX items_idx;
SELECT cmp_ok(segments(), '<=', 17, 'there are not too many segments');
DELETE FROM items WHERE id > 6000;

-- merges
ALTER INDEX items_idx SET (segment_rows = 2500);
REINDEX INDEX items_idx;
SELECT is(segments(), 3, 'three segments');
ALTER INDEX items_idx SET (seal_rows = 200);
SELECT format('INSERT INTO items SELECT a.id + 10000 * %1$s, a.cat, a.big, a.val + b.val
	FROM items a, items b WHERE a.id <= 300 AND b.id = 1000 + %1$s', i), 'VACUUM items'
	FROM generate_series(1, 6) i \gexec
SELECT cmp_ok(segments(), '>=', 4, 'merges leave segments that are as large as may be');
SELECT gpugraph_merge('items_idx');
SELECT cmp_ok(segments(), '>=', 3, 'so does gpugraph_merge()');
SELECT cmp_ok(segments(), '<=', 5, 'which merges the others');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'merged: sound');
SELECT cmp_ok(recall('items', '<->'), '>=', 0.99, 'merged: recall');
ALTER INDEX items_idx RESET (segment_rows);
SELECT gpugraph_merge('items_idx');
SELECT is(segments(), 1, 'without it they become one');

SELECT throws_ok('ALTER INDEX items_idx SET (segment_rows = -1)', '22023', NULL,
	'it is not negative');
SELECT * FROM finish();
