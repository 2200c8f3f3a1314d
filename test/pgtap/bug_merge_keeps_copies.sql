-- A merge of segments that have the same vectors.
--
-- The bug: the pieces of both stayed, since all of their nodes had rows before the merge.  Up to
-- half of the merged segment's nodes then had none.  They filled the lists of their neighbours, so
-- that of 4,000 rows up to three were not found by their own vectors.
-- The fix: a piece does not stay where too many of its vectors are in those before it.
\ir include/helpers.psql
SELECT * FROM no_plan();

SET max_parallel_maintenance_workers = 0;
SELECT make_data('base', 4000, 16, 40);
CREATE FUNCTION nodes_and_rows() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT segments || ' ' || nodes || ' ' || rows FROM gpugraph_index_info('items_idx'));
END $$;

-- A segment of all rows of base, and one of another 4,000 rows, so many of them copies; merged.
CREATE FUNCTION merge_copies(copies int, apart text, merged text) RETURNS SETOF text
	LANGUAGE plpgsql AS $$
DECLARE
	what text := copies || ' copies: ';
BEGIN
	DROP TABLE IF EXISTS items;
	CREATE TABLE items AS SELECT id, val FROM base ORDER BY id;
	INSERT INTO items SELECT 4000 + id,
		CASE WHEN id <= copies THEN val ELSE val + array_fill(0.001, ARRAY[16])::vector END
		FROM base ORDER BY id;
	CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (segment_rows = 4000);
	RETURN NEXT is(nodes_and_rows(), apart, what || 'two segments');
	ALTER INDEX items_idx RESET (segment_rows);
	PERFORM gpugraph_merge('items_idx');
	RETURN NEXT is(nodes_and_rows(), merged, what || 'merged');
	RETURN NEXT lives_ok($q$SELECT gpugraph_check('items_idx', true)$q$, what || 'sound');
	PERFORM use_index(true);
	RETURN NEXT is((SELECT count(DISTINCT id)
		FROM (SELECT id FROM items ORDER BY val <-> (SELECT val FROM base WHERE id = 1)) s),
		8000::bigint, what || 'every row is returned');
END $$;

SELECT merge_copies(4000, '2 8000 8000', '1 4000 8000');
SET gpugraph.itopk_size = 120;
SELECT is((SELECT count(*) FROM base b WHERE (SELECT min(d) FROM (SELECT i.val <-> b.val AS d
	FROM items i ORDER BY i.val <-> b.val LIMIT 10) s) = 0),
	4000::bigint, 'each is found by its own vector');
RESET gpugraph.itopk_size;
SELECT merge_copies(1000, '2 8000 8000', '1 7000 8000');
-- so few nodes without rows may stay
SELECT merge_copies(400, '2 8000 8000', '1 8000 8000');

SELECT * FROM finish();
