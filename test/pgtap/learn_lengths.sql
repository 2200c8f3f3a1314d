-- Inner product over rows that differ in length: long rows are found, without a sample and with one
\ir include/helpers.psql
SELECT * FROM no_plan();

-- one row of 500 is 1,000 times as long, the others up to twice
SELECT make_data('drawn', 20000, 32, 100);
CREATE FUNCTION stretch(val vector, by float8) RETURNS vector LANGUAGE sql AS
	$$ SELECT array_agg(x * by ORDER BY d)::real[]::vector
		FROM unnest(val::real[]) WITH ORDINALITY u(x, d) $$;
CREATE TABLE items AS SELECT id, stretch(val, CASE WHEN id % 500 = 7 THEN 1000
	ELSE 1 + id * 31 % 101 / 100.0 END) AS val FROM drawn;
CREATE TABLE halves AS SELECT id, val::halfvec(32) FROM items WHERE id <= 10000 AND id % 500 <> 7;
SELECT make_queries('drawn', 60);
CREATE INDEX items_idx ON items USING gpugraph (val vector_ip_ops);
SELECT cmp_ok(recall('items', '<#>'), '>=', 0.98, 'long rows are found');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'the index is sound');

CREATE INDEX halves_idx ON halves USING gpugraph (val halfvec_ip_ops);
SELECT cmp_ok(recall('halves', '<#>', cast_to => 'halfvec'), '>=', 0.98, 'those of halfvec, too');
SELECT lives_ok($$SELECT gpugraph_check('halves_idx', true)$$, 'the index is sound');

-- merges
INSERT INTO items SELECT id + 100000, val FROM items WHERE id <= 5000;
SELECT ok(gpugraph_merge('items_idx'), 'merged');
SELECT cmp_ok(recall('items', '<#>'), '>=', 0.98, 'and so they are after a merge');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'the index is sound');

-- a sample of queries
SELECT cmp_ok(gpugraph_learn('items_idx', (SELECT array_agg(val) FROM drawn WHERE id % 10 = 0)),
	'>', 0::bigint, 'edges are learned from queries');
SELECT cmp_ok(recall('items', '<#>'), '>=', 0.98, 'which find no less');
SELECT ok(gpugraph_forget('items_idx'), 'the sample is forgotten');
SELECT is((SELECT sample_queries FROM gpugraph_index_info('items_idx')), 0,
	'and no sample is left');
SELECT cmp_ok(recall('items', '<#>'), '>=', 0.98, 'and the rows are found as before');

-- no graph is built anew where nothing was learned
SELECT generation FROM gpugraph_index_info('items_idx') \gset
SELECT ok(NOT gpugraph_forget('items_idx'), 'there is no sample to forget');
SELECT is((SELECT generation FROM gpugraph_index_info('items_idx')), :generation::bigint,
	'and no edge is learned');

SELECT * FROM finish();
