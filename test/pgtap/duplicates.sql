-- Equal vectors: 20 copies of each, or all rows equal; every copy is found, whatever the width
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('base', 200, 8, 10);
CREATE TABLE items AS SELECT row_number() OVER (ORDER BY c, id)::int AS id, id AS original, val
	FROM base, generate_series(1, 20) c;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
SELECT results_eq('SELECT nodes, rows FROM gpugraph_index_info(''items_idx'')',
	'VALUES (200::bigint, 4000::bigint)',
	'equal vectors share a node');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'the index is sound');
SELECT use_index(true);
SET enable_seqscan = off;

CREATE FUNCTION wrong() RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM base b WHERE ARRAY[b.id] IS DISTINCT FROM
		(SELECT array_agg(DISTINCT original)
		FROM (SELECT id, original FROM items i ORDER BY i.val <-> b.val LIMIT 20) s
		HAVING count(DISTINCT id) = 20) $$;
SELECT is(wrong(), 0::bigint, 'the first 20 rows are the 20 copies');
SET gpugraph.itopk_size = 1;
SELECT is(wrong(), 0::bigint, 'also with width 1');
SET gpugraph.iterative_scan = relaxed_order;
SELECT is(wrong(), 0::bigint, 'and in relaxed order');
RESET gpugraph.iterative_scan;
RESET gpugraph.itopk_size;

-- copies that come later are in the delta, copies that go leave the others
INSERT INTO items SELECT 10000 + id, id, val FROM base;
SELECT is((SELECT count(*) FROM base b
	WHERE (SELECT count(DISTINCT id)
	FROM (SELECT id FROM items i WHERE i.original = b.id ORDER BY i.val <-> b.val LIMIT 30) s)
	<> 21),
	0::bigint, 'copies in the delta are found beside those in the graph');
DELETE FROM items WHERE id % 3 = 0;
SELECT count(*) AS left_over FROM items \gset
SELECT is((SELECT count(DISTINCT id)
	FROM (SELECT id FROM items i ORDER BY i.val <-> (SELECT val FROM base WHERE id = 1)) s),
	:left_over::bigint, 'copies deleted');
VACUUM items;
SELECT is((SELECT count(DISTINCT id)
	FROM (SELECT id FROM items i ORDER BY i.val <-> (SELECT val FROM base WHERE id = 1)) s),
	:left_over::bigint, 'copies vacuumed');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'the index is still sound');

-- all rows equal, for every metric
CREATE TABLE same AS SELECT i AS id, '[1,2,3]'::vector(3) AS val FROM generate_series(1, 3000) i;
CREATE FUNCTION try_same(opclass text, op text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('CREATE INDEX same_idx ON same USING gpugraph (val %s)', opclass);
	EXECUTE format('SELECT count(DISTINCT id)
		FROM (SELECT id FROM same ORDER BY val %s ''[3,2,1]'') s', op) INTO n;
	RETURN NEXT is(n, 3000::bigint, opclass || ': all rows equal, all returned');
	EXECUTE format('SELECT count(*)
		FROM (SELECT id FROM same ORDER BY val %s ''[3,2,1]'' LIMIT 100) s', op) INTO n;
	RETURN NEXT is(n, 100::bigint, opclass || ': all rows equal, with LIMIT');
	RETURN NEXT is((SELECT nodes FROM gpugraph_index_info('same_idx')), 1::bigint,
		opclass || ': one node');
	PERFORM gpugraph_check('same_idx', true);
	DROP INDEX same_idx;
END $$;
SELECT try_same('vector_l2_ops', '<->');
SELECT try_same('vector_ip_ops', '<#>');
SELECT try_same('vector_cosine_ops', '<=>');
SELECT try_same('vector_l1_ops', '<+>');

-- nearly equal: distances of next to nothing, and vectors that are equal only once they have unit
-- length
CREATE TABLE scaled AS SELECT i AS id, ARRAY[i, 2 * i, 3 * i]::real[]::vector(3) AS val
	FROM generate_series(1, 2000) i;
CREATE INDEX scaled_idx ON scaled USING gpugraph (val vector_cosine_ops);
SELECT is((SELECT count(DISTINCT id) FROM (SELECT id FROM scaled ORDER BY val <=> '[3,2,1]') s),
	2000::bigint, 'one direction, 2000 lengths');
SELECT lives_ok($$SELECT gpugraph_check('scaled_idx', true)$$, 'and a sound index');

-- codes alone: copies of one row do not keep others from being measured
SELECT make_data('spread', 300, 32, 300);
CREATE TABLE between AS SELECT q, avg(val) AS val
	FROM spread, generate_series(1, 60) q WHERE id IN (q, q + 100, q + 200) GROUP BY q;
CREATE TABLE copies AS SELECT id, val FROM spread, generate_series(1, 60) c;
CREATE INDEX copies_idx ON copies USING gpugraph (val vector_l2_ops) WITH (storage = int4);
SELECT cmp_ok(count(*), '>=', 59::bigint, 'int4: the nearest of 300 rows comes first')
FROM between b WHERE
	(SELECT id FROM (SELECT id FROM copies c ORDER BY c.val <-> b.val LIMIT 10) s LIMIT 1) =
	(SELECT id FROM spread s ORDER BY (s.val <-> b.val) + 0 LIMIT 1);
SELECT cmp_ok(count(*), '>=', 59::bigint, 'also in gpugraph_search()')
FROM between b WHERE
	(SELECT min(distance) FROM gpugraph_search('copies_idx', ARRAY[b.val], 10)) <=
	(SELECT min(s.val <-> b.val) * 1.000001 FROM spread s);

SELECT * FROM finish();
