-- gpugraph.search_mode: every procedure finds the nearest rows, with filters, duplicates and dead
-- rows, in every order, and in gpugraph_search(); a scan keeps the one that it began with
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 6000, 24, 40);
SELECT make_queries('items', 40);
-- equal rows, dead ones, and rows that came after the build
INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id % 10 = 0;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat) WITH (seal_rows = 0);
INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id % 20 = 1;
DELETE FROM items WHERE id % 7 = 3;
ANALYZE items;

-- distances that the session's last scan measured, for a query of ten rows
CREATE FUNCTION measured() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 10;
	RETURN (SELECT distances FROM gpugraph_last_scan());
END $$;

CREATE FUNCTION try_mode(mode text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	rows bigint := (SELECT count(*) FROM items);
	counted text;
BEGIN
	PERFORM set_config('gpugraph.search_mode', mode, false);
	RETURN NEXT cmp_ok(recall('items', '<->'), '>=', 0.99, mode || ': recall of 10');
	RETURN NEXT cmp_ok(recall('items', '<->', 100), '>=', 0.99, mode || ': recall of 100');
	RETURN NEXT cmp_ok(recall('items', '<->', 10, 'cat < 10'), '>=', 0.99,
		mode || ': recall under a filter column');
	RETURN NEXT cmp_ok(recall('items', '<->', 10, 'big % 5 = 0'), '>=', 0.99,
		mode || ': recall under a filter');
	PERFORM set_config('gpugraph.itopk_size', '16', false);
	RETURN NEXT cmp_ok(recall('items', '<->', 60), '>=', 0.95,
		mode || ': recall of rows beyond the first list');
	FOREACH counted IN ARRAY ARRAY['strict_order', 'relaxed_order'] LOOP
		PERFORM set_config('gpugraph.iterative_scan', counted, false);
		RETURN NEXT is((SELECT array[count(*), count(DISTINCT id)] FROM
			(SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 2)) s),
			array[rows, rows], mode || ', ' || counted || ': every row once');
	END LOOP;
	PERFORM set_config('gpugraph.iterative_scan', 'off', false);
	RETURN NEXT is((SELECT count(*) FROM
		(SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 2)) s),
		16::bigint, mode || ', off: as many rows as the list is long');
	PERFORM set_config('gpugraph.iterative_scan', 'strict_order', false),
		set_config('gpugraph.itopk_size', '64', false);
	RETURN NEXT is((SELECT array_agg(tid ORDER BY distance, tid) FROM
		gpugraph_search('items_idx', ARRAY(SELECT val FROM queries WHERE q = 3), 5)),
		(SELECT array_agg(ctid ORDER BY d, ctid) FROM (SELECT ctid,
			val <-> (SELECT val FROM queries WHERE q = 3) AS d FROM items ORDER BY 2 LIMIT 5) s),
		mode || ': gpugraph_search() finds what a query does');
	RETURN NEXT cmp_ok((SELECT min(recall) FROM gpugraph_recall('items_idx', 10, 50)
		WHERE itopk_size >= 64), '>=', 0.99::float8, mode || ': gpugraph_recall()');
END $$;

SELECT use_index(true);
SET gpugraph.engine = cpu;
SELECT is(current_setting('gpugraph.search_mode'), 'auto', 'the default');
SELECT try_mode(mode) FROM unnest(ARRAY['auto', 'single_cta', 'multi_cta', 'tsdg_small',
	'tsdg_large']) mode;

-- the same on a graph whose edges are marked
DROP INDEX items_idx;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat)
	WITH (seal_rows = 0, algorithm = 'tsdg');
INSERT INTO items SELECT id + 40000, cat, big, val FROM items WHERE id % 30 = 1;
SELECT try_mode(mode) FROM unnest(ARRAY['auto', 'single_cta', 'multi_cta', 'tsdg_small',
	'tsdg_large']) mode;
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'the graph is sound');

-- which one it is shows in what is measured: many walks measure more than one
SELECT use_index(true);
SET gpugraph.search_mode = auto;
SELECT measured() AS best_first \gset
SET gpugraph.search_mode = tsdg_small;
SELECT cmp_ok(measured(), '>', :best_first::bigint * 2, 'many greedy walks');
SET gpugraph.search_mode = multi_cta;
SELECT is(measured(), :best_first::bigint, 'on the CPU the procedures of CAGRA are one');

-- and in what the session's last scan says
CREATE FUNCTION told(mode text, rows int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('gpugraph.search_mode', mode, true);
	PERFORM id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT rows;
	RETURN (SELECT procedure FROM gpugraph_last_scan());
END $$;
SELECT results_eq($$SELECT mode, told(mode, 10)
	FROM unnest(ARRAY['auto', 'single_cta', 'multi_cta', 'tsdg_small', 'tsdg_large']) mode$$,
	$$VALUES ('auto', 'best_first'), ('single_cta', 'best_first'), ('multi_cta', 'best_first'),
		('tsdg_small', 'tsdg_small'), ('tsdg_large', 'tsdg_large')$$,
	'gpugraph_last_scan() names it');
SELECT is(told('tsdg_small', 100000), NULL, 'but none where all rows were measured');
SET gpugraph.search_mode = tsdg_small;
SELECT count(*) FROM gpugraph_search('items_idx', ARRAY(SELECT val FROM queries), 5) \g /dev/null
SELECT is((SELECT procedure FROM gpugraph_last_scan()), 'tsdg_small', 'of many queries, too');

-- a scan under way goes on as it began: its rows, and what its end tells of it
SET gpugraph.search_mode = auto;
CREATE FUNCTION fetched(setting text DEFAULT NULL, value text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	a CURSOR FOR SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 4);
	one record;
	ids int[];
BEGIN
	OPEN a;
	FOR i IN 1 .. 60 LOOP
		FETCH a INTO one;
		EXIT WHEN NOT FOUND;
		ids := ids || one.id;
		IF i = 1 AND setting IS NOT NULL THEN
			PERFORM set_config(setting, value, true);
		END IF;
	END LOOP;
	CLOSE a;
	RETURN (SELECT concat_ws(' ', procedure, distances, reranked, widenings, cardinality(ids),
		md5(ids::text))
		FROM gpugraph_last_scan());
END $$;
CREATE FUNCTION try_changes(what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	setting text;
	value text;
	as_begun text := fetched();
BEGIN
	FOR setting, value IN VALUES ('search_mode', 'tsdg_small'), ('rerank_size', '500'),
		('itopk_size', '100'), ('itopk_size', '5'), ('max_scan_tuples', '1'),
		('iterative_scan', 'relaxed_order') LOOP
		RETURN NEXT is(fetched('gpugraph.' || setting, value), as_begun,
			format('%s: %s = %s changes no scan under way', what, setting, value));
		PERFORM set_config('gpugraph.itopk_size', '20', false),
			set_config('gpugraph.iterative_scan', current_setting('test.mode'), false),
			set_config('gpugraph.rerank_size', '0', false),
			set_config('gpugraph.max_scan_tuples', '20000', false),
			set_config('gpugraph.search_mode', 'auto', false);
	END LOOP;
END $$;
SET gpugraph.itopk_size = 20;
SET test.mode = strict_order;
SELECT try_changes('rows');
ALTER INDEX items_idx SET (storage = 'float32+int4'); REINDEX INDEX items_idx;
SELECT try_changes('codes and rows');
SET test.mode = off;
SET gpugraph.iterative_scan = off;
SELECT try_changes('codes and rows, off');
ALTER INDEX items_idx SET (storage = int4);
REINDEX INDEX items_idx;
SELECT try_changes('codes, off');
SET test.mode = strict_order;
SET gpugraph.iterative_scan = strict_order;
SELECT try_changes('codes');

SELECT throws_ok('SET gpugraph.search_mode = best', '22023',
	'invalid value for parameter "gpugraph.search_mode": "best"');

SELECT * FROM finish();
