-- Edges learned from queries that are not like the rows: recall rises, nothing else changes, and
-- bad input is refused
\ir include/helpers.psql
SELECT * FROM no_plan();

CREATE FUNCTION bytes(rel text) RETURNS text LANGUAGE sql AS
	$$ SELECT format('%s vectors, %s tids, %s filters, %s pivots', vectors_bytes, tids_bytes,
		filters_bytes, pivots_bytes) FROM gpugraph_index_info((rel || '_idx')::regclass) $$;
CREATE FUNCTION generation(rel text) RETURNS bigint LANGUAGE sql AS
	$$ SELECT generation FROM gpugraph_index_info((rel || '_idx')::regclass) $$;

-- two segments with dead rows, equal rows, a filter column; queries from other clusters
SELECT make_data('items', 8000, 24, 60);
INSERT INTO items SELECT id + 100000, cat, big, val FROM items WHERE id <= 200;
CREATE INDEX items_idx ON items USING gpugraph (val vector_ip_ops, cat)
	WITH (graph_degree = 16, intermediate_graph_degree = 32, segment_rows = 5000);
DELETE FROM items WHERE id % 10 = 3;
VACUUM items;
SELECT make_data('asked', 1200, 24, 20);
CREATE TABLE sample AS SELECT array_agg(val ORDER BY id) AS queries FROM asked WHERE id <= 1000;
DROP TABLE IF EXISTS queries;
CREATE TABLE queries AS SELECT (id - 1000)::int AS q, val FROM asked WHERE id > 1000;
-- the CPU engine: a device measures all rows of so small an index where LIMIT wants a longer list
SET gpugraph.engine = cpu;
SET gpugraph.itopk_size = 16;
SELECT cmp_ok((SELECT segments FROM gpugraph_index_info('items_idx')), '>', 1, 'segments');
SELECT recall('items', '<#>') AS before, bytes('items') AS bytes,
	generation('items') AS generation \gset
SELECT gpugraph_learn('items_idx', queries, 4) AS learned FROM sample \gset
SELECT cmp_ok(:learned, '>', 3000, 'edges are learned');
SELECT recall('items', '<#>') AS after \gset
SELECT diag(format('recall %s, and %s after learning', :before, :after));
SELECT cmp_ok(1 - :after, '<', 0.7 * (1 - :before), 'held-out queries miss fewer rows');
SELECT is(bytes('items'), :'bytes', 'the other arrays stay as they are');
SELECT is(generation('items'), (:generation + 1)::bigint, 'one flip for all segments');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'the index is sound');
SELECT is((SELECT gpugraph_learn('items_idx', queries, 4) FROM sample), 0::bigint,
	'learning twice is learning once');
SELECT is(generation('items'), (:generation + 1)::bigint, 'and writes nothing');
SELECT is((SELECT count(*) FROM (SELECT id FROM items ORDER BY val <#> (SELECT val FROM queries
	WHERE q = 1)) s), (SELECT count(*) FROM items), 'all rows are found');

-- queries like the rows
SELECT make_queries('items', 60);
SELECT recall('items', '<#>') AS learned \gset
SELECT ok(gpugraph_forget('items_idx'), 'what was learned is forgotten');
SELECT cmp_ok(:learned, '>=', recall('items', '<#>') - 0.005, 'queries like the rows lose nothing');
SELECT gpugraph_learn('items_idx', (SELECT array_agg(val) FROM asked WHERE id % 10 = r))
	FROM generate_series(0, 9) r \g /dev/null
SELECT cmp_ok(recall('items', '<#>'), '>=', :learned - 0.005,
	'nor by ten rounds of different samples');

-- inserts, merges, the old blocks used again
SELECT gpugraph_learn('items_idx', queries) FROM sample \g /dev/null
INSERT INTO items SELECT id + 200000, cat, big, val FROM items WHERE id <= 2000;
SELECT ok(gpugraph_merge('items_idx'), 'merged');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'the index is sound');
VACUUM items;

-- half vectors, and each algorithm
CREATE FUNCTION learns(algorithm text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	learned bigint;
BEGIN
	CREATE TABLE halves AS SELECT id, val::halfvec(24) AS val FROM items WHERE id <= 2000;
	EXECUTE format('CREATE INDEX halves_idx ON halves USING gpugraph (val halfvec_cosine_ops)
		WITH (graph_degree = 16, algorithm = %s)', algorithm);
	SELECT gpugraph_learn('halves_idx', array_agg(val::halfvec(24))) INTO learned FROM asked;
	RETURN NEXT cmp_ok(learned, '>', 1000::bigint, algorithm || ': edges are learned');
	RETURN NEXT lives_ok('SELECT gpugraph_check(''halves_idx'', true)', algorithm || ': sound');
	DROP TABLE halves;
END $$;
SELECT learns(algorithm) FROM unnest(ARRAY['cagra', 'tsdg', 'grnnd']) algorithm;

-- few rows, none, no queries
CREATE TABLE few (id int, val vector(3));
CREATE INDEX few_idx ON few USING gpugraph (val vector_l2_ops);
SELECT is(gpugraph_learn('few_idx', ARRAY['[1,2,3]']::vector[]), 0::bigint, 'an empty index');
INSERT INTO few SELECT i, ARRAY[i, 0, 0]::real[]::vector FROM generate_series(1, 3) i;
SELECT is(gpugraph_learn('few_idx', ARRAY['[1,2,3]']::vector[]), 0::bigint, 'rows in the delta');
REINDEX INDEX few_idx;
SELECT is(gpugraph_learn('few_idx', ARRAY['[1,2,3]', '[3,2,1]']::vector[]), 0::bigint,
	'three rows, which all know each other');
SELECT is(gpugraph_learn('items_idx', '{}'::vector[]), 0::bigint, 'no queries');

-- bad input
SELECT throws_ok($$SELECT gpugraph_learn('few_idx',
	array_fill('[1,2,3]'::vector, ARRAY[65537]))$$, '54000');
SELECT throws_ok($$SELECT gpugraph_learn('few_idx', ARRAY['[1,2,3]', NULL]::vector[])$$, '22004',
	'query 2 is NULL');
SELECT throws_ok($$SELECT gpugraph_learn('few_idx', ARRAY['[1,2]']::vector[])$$, '22000',
	'query 1 has 2 dimensions, and index "few_idx" has 3');
SELECT throws_ok($$SELECT gpugraph_learn('few_idx', ARRAY['[1,2,3]']::halfvec[])$$, '42804');
SELECT throws_ok($$SELECT gpugraph_learn('few_idx', ARRAY['[1,2,3]']::vector[], 0)$$, '22023',
	'edges must be from 1 to 16 for index "few_idx", not 0');
SELECT throws_ok($$SELECT gpugraph_learn('few_idx', ARRAY['[1,2,3]']::vector[], 17)$$, '22023');
SELECT throws_ok($$SELECT gpugraph_learn('items_pkey', ARRAY['[1,2,3]']::vector[])$$, '42809');
SELECT throws_ok($$SELECT gpugraph_learn('few', ARRAY['[1,2,3]']::vector[])$$, '42809');
CREATE ROLE gg_learner;
GRANT ALL ON few TO gg_learner;
REVOKE ALL ON few FROM gg_learner;
GRANT SELECT, INSERT, UPDATE ON few TO gg_learner;
SET ROLE gg_learner;
SELECT throws_ok($$SELECT gpugraph_learn('few_idx', ARRAY['[1,2,3]']::vector[])$$, '42501',
	'must be owner of index few_idx');
SELECT throws_ok($$SELECT gpugraph_forget('few_idx')$$, '42501');
RESET ROLE;
DROP OWNED BY gg_learner;
DROP ROLE gg_learner;

SELECT * FROM finish();
