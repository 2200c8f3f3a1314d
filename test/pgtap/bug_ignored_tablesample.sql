-- The bug: before PostgreSQL 17 an IN list or a boolean on a filter column brought a path that read
-- the whole index where the query wanted a sample of the table, or where no row could match.
-- The fix: such tables get no paths from here, as they get no index paths from PostgreSQL.
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 4000, 8, 20);
ALTER TABLE items ADD COLUMN active boolean NOT NULL DEFAULT true, ADD CHECK (cat >= 0);
UPDATE items SET active = id % 3 > 0;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat, active);
CREATE INDEX items_cat ON items (cat);
VACUUM ANALYZE items;
SELECT val::text AS q FROM items WHERE id = 7 \gset

CREATE FUNCTION ids(sample text, filter text, query text, wanted int) RETURNS int[]
	LANGUAGE plpgsql AS $$
DECLARE
	got int[];
BEGIN
	EXECUTE format('SELECT array_agg(id) FROM (SELECT id FROM items %s WHERE %s
		ORDER BY val <-> %L, id LIMIT %s) s', sample, filter, query, wanted) INTO got;
	RETURN got;
END $$;
CREATE FUNCTION sorted_ids(sample text, filter text, query text, wanted int) RETURNS int[]
	LANGUAGE plpgsql SET enable_indexscan = off AS $$
BEGIN
	RETURN ids(sample, filter, query, wanted);
END $$;
CREATE FUNCTION is_sampled(sample text, filter text, query text) RETURNS SETOF text
	LANGUAGE plpgsql AS $$
BEGIN
	RETURN NEXT is(ids(sample, filter, query, 10), sorted_ids(sample, filter, query, 10),
		format('%s %s: the nearest of the sample', sample, filter));
	RETURN NEXT is(cardinality(ids(sample, filter, query, 10000)),
		cardinality(sorted_ids(sample, filter, query, 10000)),
		format('%s %s: no row more', sample, filter));
END $$;

SELECT is_sampled(sample, filter, :'q') FROM
	unnest('{TABLESAMPLE BERNOULLI (50) REPEATABLE (3),TABLESAMPLE SYSTEM (30) REPEATABLE (5),
		TABLESAMPLE SYSTEM (0)}'::text[]) sample,
	unnest('{"cat IN (1, 2)",active,"NOT active AND cat < 25","cat = 3"}'::text[]) filter;
SELECT doesnt_match(plan_of(format('SELECT id FROM items TABLESAMPLE BERNOULLI (50)
	WHERE cat IN (1, 2) ORDER BY val <-> %L LIMIT 10', :'q')), 'items_idx',
	'a sample is not read by the index');

-- no row can match: nothing is scanned
SET constraint_exclusion = on;
SELECT doesnt_match(plan_of(format('SELECT id FROM items WHERE cat IN (-1, -2)
	ORDER BY val <-> %L LIMIT 10', :'q')), 'items_idx', 'a constraint excludes all rows');
SET enable_sort = off;
SELECT doesnt_match(plan_of(format('SELECT id FROM items WHERE cat IN (-1, -2)
	ORDER BY val <-> %L LIMIT 10', :'q')), 'items_idx', 'the same where sorts are disabled');
RESET enable_sort;

SELECT * FROM finish();
