-- The bug: a path that is not to be used had an infinite cost, of which PostgreSQL made one that is
-- not a number.  The bitmap's path, which asked for an infinite one, used it: queries for NULL
-- vectors failed, and rows that are stored rounded had no ctid where the executor loses it.  Nor
-- had the row that a cursor stands on.
-- The fix: such a path has a cost that is finite and higher than all others.  Cursors are taken to
-- read ctids.
-- The bug came again on 18, which took such a path of a single partition where sorts are disabled.
-- The fix: it is dropped.
\ir include/helpers.psql
SELECT * FROM no_plan();

CREATE TABLE items AS SELECT i AS id, i % 20 AS cat, i % 3 = 0 AS active, NULL::int AS note,
	CASE WHEN i % 7 > 0 THEN ARRAY[i, i * i % 101, i % 7]::vector(3) END AS val
	FROM generate_series(1, 20000) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat, active)
	WITH (storage = 'float16');
CREATE INDEX items_plain ON items USING gpugraph (val vector_l2_ops);
CREATE INDEX items_cat ON items (cat);
VACUUM ANALYZE items;

CREATE FUNCTION nearest(columns text, filter text) RETURNS text LANGUAGE sql
	AS $$ SELECT format('SELECT %s FROM items WHERE %s ORDER BY val <-> ''[50,50,3]'' LIMIT 5',
		columns, filter) $$;
CREATE FUNCTION rows_of(sql text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
	got text[];
BEGIN
	EXECUTE format('SELECT array_agg(s::text ORDER BY s::text) FROM (%s) s', sql) INTO got;
	RETURN got;
END $$;
CREATE FUNCTION count_rows(sql text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	got bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM (%s) s', sql) INTO got;
	RETURN got;
END $$;

-- NULL vectors are in no index
CREATE TABLE filters AS
	SELECT * FROM unnest('{val IS NULL AND cat = 1,val IS NULL AND cat IN (1\, 2),
		val IS NULL AND cat < 3 AND active,val IS NULL}'::text[]) filter;
SELECT is(count_rows(nearest('id', filter)), 5::bigint, filter || ': rows are found') FROM filters;
SELECT matches(plan_of(nearest('id', filter)), 'Sort', filter || ': they are sorted') FROM filters;
SET enable_seqscan = off;
SET enable_sort = off;
SELECT is(count_rows(nearest('id', filter)), 5::bigint, filter || ': no other path is wanted')
	FROM filters;
RESET enable_seqscan;
RESET enable_sort;

-- the index beside a join, where it has no order to give
SELECT is(count_rows('SELECT a.id FROM items a JOIN items b ON b.cat = a.cat WHERE a.id < 3'),
	2000::bigint, 'a condition of a join on a filter column');
SELECT is(count_rows('SELECT * FROM (VALUES (1), (2)) v(x), LATERAL (SELECT id FROM items
	WHERE cat = x AND val IS NULL ORDER BY val <-> ''[1,2,3]'' LIMIT 4) s'), 8::bigint,
	'in a LATERAL subquery');

-- ctids, whether the executor keeps those of rounded rows or not
DROP INDEX items_plain;
SELECT is(count_rows('SELECT 1 FROM (' || nearest('ctid AS row, id', filter) || ') s
	JOIN items i ON i.id = s.id AND i.ctid = s.row'), 5::bigint, filter || ': ctids')
	FROM unnest('{cat = 1,cat IN (1\, 2),active,true}'::text[]) filter;
SELECT is(cardinality(rows_of(format('SELECT id FROM (%s FOR UPDATE) s',
	nearest('id', filter)))), 5, filter || ': locked rows')
	FROM unnest('{cat = 1,cat IN (1\, 2),active,true}'::text[]) filter;

-- The row that a cursor stands on.  Where its ctid would be lost, the rows are sorted, and then
-- PostgreSQL asks for FOR UPDATE.
CREATE FUNCTION update_current(filter text, locks text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	found refcursor;
	row_id int;
	changed int[];
BEGIN
	OPEN found FOR EXECUTE nearest('id', filter) || locks;
	FETCH found INTO row_id;
	BEGIN
		UPDATE items SET note = 1 WHERE CURRENT OF found;
	EXCEPTION WHEN invalid_cursor_state THEN
		RETURN is(locks, '', filter || ': no row rather than a wrong one');
	END;
	CLOSE found;
	SELECT array_agg(id) INTO changed FROM items WHERE note = 1;
	UPDATE items SET note = NULL WHERE note = 1;
	RETURN is(changed, ARRAY[row_id], filter || locks || ': the row that a cursor stands on');
END $$;
SELECT update_current(filter, locks) FROM unnest('{cat = 1,cat IN (1\, 2),active,true}'::text[])
	filter, unnest('{""," FOR UPDATE"}'::text[]) locks;
SET random_page_cost = 0.1;
SELECT is(count_rows('SELECT 1 FROM (' || nearest('ctid AS row, id', 'cat = 1') || ') s
	JOIN items i ON i.id = s.id AND i.ctid = s.row'), 5::bigint, 'ctids by a bitmap');
SELECT update_current('cat = 1', locks) FROM unnest('{""," FOR UPDATE"}'::text[]) locks;

-- a partition by itself
CREATE TABLE parted (LIKE items) PARTITION BY LIST (cat);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE TABLE parted_rest PARTITION OF parted DEFAULT;
INSERT INTO parted SELECT * FROM items WHERE id <= 2000 AND val IS NOT NULL;
CREATE INDEX ON parted USING gpugraph (val vector_l2_ops) WITH (storage = 'float16');
ANALYZE parted;
SET enable_seqscan = off;
SET enable_sort = off;
SET enable_bitmapscan = off;
SET gpugraph.disable = 'partition_search, bitmap_filter';
SELECT is(count(*), 5::bigint, 'rows of a partition that are locked') FROM (SELECT id FROM parted
	WHERE cat = 1 ORDER BY val <-> '[50,50,3]' LIMIT 5 FOR SHARE) s;

SELECT * FROM finish();
