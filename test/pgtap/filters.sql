-- A filter never makes a LIMIT short, and costs no recall: 1 row in 50, 1 in 500, none, and by join
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 10000, 16, 50);
SELECT make_queries('items', 25);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
ANALYZE items;
SELECT use_index(true);

SELECT matches(plan_of($$SELECT id FROM items WHERE big = 7
	ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 10$$),
	'Index Scan using items_idx.*Filter: \(big = 7\)',
	'the filter is applied to rows of the index');

CREATE FUNCTION try_filters(mode text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('gpugraph.iterative_scan', mode, true);
	RETURN NEXT cmp_ok(recall('items', '<->', 10, 'cat = 7'), '>=', 0.99, mode || ': 1 row in 50');
	RETURN NEXT cmp_ok(recall('items', '<->', 10, 'big = 7'), '>=', 0.99, mode || ': 1 row in 500');
	RETURN NEXT cmp_ok(recall('items', '<->', 20, 'big = 7'), '>=', 0.99,
		mode || ': 1 row in 500, all of them');
	PERFORM set_config('gpugraph.itopk_size', '1', false);
	RETURN NEXT cmp_ok(recall('items', '<->', 10, 'cat = 7'), '>=', 0.99,
		mode || ': 1 row in 50, width 1');
	PERFORM set_config('gpugraph.max_scan_tuples', '10', false);
	RETURN NEXT cmp_ok(recall('items', '<->', 10, 'big = 7'), '>=', 0.99,
		mode || ': 1 row in 500, max_scan_tuples 10');
	PERFORM set_config('gpugraph.itopk_size', '16', false),
		set_config('gpugraph.max_scan_tuples', '1', false);
	RETURN NEXT cmp_ok(recall('items', '<->', 50), '>=', 0.99,
		mode || ': no filter, max_scan_tuples 1');
	PERFORM set_config('gpugraph.itopk_size', '64', false),
		set_config('gpugraph.max_scan_tuples', '20000', false);
END $$;
SELECT try_filters('strict_order');
SELECT try_filters('relaxed_order');

SELECT is((SELECT count(*)
	FROM (SELECT id FROM items WHERE cat = 7
	ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 1000) s),
	200::bigint, 'a LIMIT above what the filter keeps returns all of it');
SELECT is((SELECT count(*)
	FROM (SELECT id FROM items WHERE cat = 50
	ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 10) s),
	0::bigint, 'a filter that keeps nothing ends');

-- the filter is a join
SET enable_hashjoin = off;
SET enable_mergejoin = off;
CREATE TABLE chosen AS SELECT id FROM items WHERE id % 40 = 0;
CREATE UNIQUE INDEX ON chosen (id);
SELECT is((SELECT count(*)
	FROM (SELECT i.id FROM items i WHERE EXISTS (SELECT FROM chosen c WHERE c.id = i.id)
	ORDER BY i.val <-> (SELECT val FROM queries LIMIT 1) LIMIT 100) s), 100::bigint,
	'a semi-join as filter fills the LIMIT');

-- iterative_scan = off: at most itopk_size rows, fewer with a filter
SET gpugraph.iterative_scan = off;
SELECT is((SELECT count(*)
	FROM (SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 100) s),
	64::bigint, 'off: itopk_size rows and no more');
SELECT cmp_ok((SELECT count(*)
	FROM (SELECT id FROM items WHERE big = 7
	ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 10) s),
	'<', 10::bigint, 'off: a filter is applied to these');
SET gpugraph.itopk_size = 1;
SELECT is((SELECT count(*)
	FROM (SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 100) s),
	1::bigint, 'off: width 1 gives one row');

SELECT * FROM finish();
