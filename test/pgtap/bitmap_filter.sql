-- Index scans restricted to a bitmap of other indexes: B-tree, GIN, BRIN, AND, OR, lossy pages.
-- The planner knows them, and the answers are those of a sequential scan
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 10000, 16, 30);
ALTER TABLE items DROP COLUMN big;
ALTER TABLE items ADD body tsvector, ADD j jsonb, ADD tags int[], ADD happened timestamptz,
	ADD hot boolean;
UPDATE items SET body = to_tsvector('simple', 'w' || id % 50 || ' x' || id % 37),
	j = jsonb_build_object('k', id % 61), tags = ARRAY[id % 29, id % 31],
	happened = '2024-01-01'::timestamptz + id * interval '1 minute', hot = id % 40 = 0;
VACUUM FULL items;
CREATE INDEX items_cat_idx ON items (cat);
CREATE INDEX items_hot_idx ON items (hot);
CREATE INDEX items_body_idx ON items USING gin (body);
CREATE INDEX items_j_idx ON items USING gin (j);
CREATE INDEX items_tags_idx ON items USING gin (tags);
CREATE INDEX items_happened_idx ON items USING brin (happened) WITH (pages_per_range = 2);
CREATE INDEX items_part_idx ON items (id) WHERE cat = 11;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
-- rows behind the segment, dead ones, and versions on the same page as the ones before
INSERT INTO items SELECT id + 10000, cat, val * (SELECT val FROM items WHERE id = 2), body, j, tags,
	happened, hot FROM items WHERE id % 7 = 0;
DELETE FROM items WHERE id % 10 = 4;
UPDATE items SET hot = NOT hot WHERE id % 100 = 3;
UPDATE items SET j = j || '{"more": true}' WHERE id % 90 = 5;
ANALYZE items;
SELECT quote_literal(val::text) AS q FROM items WHERE id = 1 \gset
SET enable_seqscan = off;
SET enable_sort = off;

-- The plan restricts the index scan, with such nodes below, and the rows are the right ones.
CREATE FUNCTION is_restricted(query text, nodes text, what text) RETURNS SETOF text
	LANGUAGE plpgsql AS $$
DECLARE
	all_rows text := format('SELECT array_agg(s::text) FROM (%s) s', query);
	got text[];
	wanted text[];
BEGIN
	RETURN NEXT matches(plan_of(query), 'GpugraphBitmapScan.*Index Scan using.*' || nodes, what);
	EXECUTE all_rows INTO got;
	PERFORM set_config('enable_indexscan', 'off', true),
		set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'on', true);
	EXECUTE all_rows INTO wanted;
	PERFORM set_config('enable_indexscan', 'on', true),
		set_config('enable_bitmapscan', 'on', true), set_config('enable_seqscan', 'off', true);
	RETURN NEXT is(got, wanted, what || ': the rows of a sequential scan');
END $$;

SELECT is_restricted(
	format('SELECT id, val <-> %1$L AS d FROM items WHERE %2$s ORDER BY val <-> %1$L LIMIT 10',
		:q, condition),
	nodes, condition)
FROM (VALUES
	('cat = 7', 'Bitmap Index Scan on items_cat_idx'),
	('cat IN (7, 8, 30)', 'Bitmap Index Scan on items_cat_idx'),
	('cat IS NULL', 'Bitmap Index Scan on items_cat_idx'),
	('hot', 'Bitmap Index Scan on items_hot_idx'),
	('cat = 7 AND id % 3 = 0', 'Bitmap Index Scan on items_cat_idx'),
	('cat < 3 AND body @@ ''x4''', 'BitmapAnd'),
	('cat = 7 OR body @@ ''w9''', 'BitmapOr'),
	('cat = 7 OR (j @> ''{"k": 3}'' AND id < 5000)', 'BitmapOr'),
	('cat = 11 AND id < 3000', 'Bitmap Index Scan on items_part_idx'),
	('body @@ ''w7''', 'Bitmap Index Scan on items_body_idx'),
	('body @@ ''w7 & !x5''', 'Bitmap Index Scan on items_body_idx'),
	('j @> ''{"k": 3}''', 'Bitmap Index Scan on items_j_idx'),
	('tags && ''{3}''', 'Bitmap Index Scan on items_tags_idx'),
	('happened BETWEEN ''2024-01-03'' AND ''2024-01-03 12:00''',
		'Bitmap Index Scan on items_happened_idx'),
	('happened < ''2024-01-02'' AND cat = 7', 'BitmapAnd'))
	c (condition, nodes);

-- what a plan that has run says: name, then its numbers
CREATE FUNCTION says(query text, what text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		IF trim(line) LIKE what || ': %' THEN
			RETURN trim(line);
		END IF;
	END LOOP;
	RETURN NULL;
END $$;
SELECT is(says(format('SELECT id FROM items WHERE cat = 7 ORDER BY val <-> %L LIMIT 10', :q),
	'TIDs'),
	format('TIDs: %s', (SELECT count(*) FROM items WHERE cat = 7)),
	'the index is asked for the rows of the bitmap');
SELECT matches(says(format($$SELECT id FROM items WHERE happened < '2024-01-02'
	ORDER BY val <-> %L LIMIT 10$$, :q), 'Heap Blocks'), 'exact=0 lossy=[1-9]',
	'pages of BRIN are known as a whole');
SELECT is(says(format('SELECT id FROM items WHERE cat = 7777 ORDER BY val <-> %L LIMIT 10', :q),
	'TIDs'), 'TIDs: 0', 'a bitmap without rows');
SELECT is(says(format('SELECT id FROM items WHERE cat = 7 ORDER BY val <-> %L LIMIT 10', :q),
	'Rows Removed by Filter'), NULL, 'no row is fetched that does not match');

-- all rows of the bitmap, in order
SELECT is_restricted(format('SELECT id FROM items WHERE cat = 7 ORDER BY val <-> %L', :q),
	'items_cat_idx', 'without LIMIT');
SELECT is_restricted(format('SELECT id FROM items WHERE cat = 7 AND id %% 2 = 5
	ORDER BY val <-> %L', :q), 'items_cat_idx', 'none passes the rest of the filter');
SELECT is_restricted(format('SELECT id FROM items WHERE cat = 7777 ORDER BY val <-> %L LIMIT 10',
	:q), 'items_cat_idx', 'an empty bitmap');
SET gpugraph.iterative_scan = relaxed_order;
SELECT is_restricted(format('SELECT id FROM items WHERE cat = 7 ORDER BY val <-> %L LIMIT 150', :q),
	'items_cat_idx', 'relaxed order');
SET gpugraph.iterative_scan = off;
SELECT is_restricted(format('SELECT id FROM items WHERE cat = 7 ORDER BY val <-> %L LIMIT 60', :q),
	'items_cat_idx', 'no iterative scan');
RESET gpugraph.iterative_scan;

-- what the node returns: system columns, expressions, whole rows, nothing
SELECT is_restricted(format('SELECT ctid, xmin, tableoid::regclass FROM items WHERE cat = 7
	ORDER BY val <-> %L LIMIT 10', :q), 'items_cat_idx', 'system columns');
SELECT is_restricted(format('SELECT items, id + 1, length(body) FROM items WHERE cat = 7
	ORDER BY val <-> %L LIMIT 10', :q), 'items_cat_idx', 'expressions and whole rows');
SELECT is_restricted(format('SELECT * FROM items WHERE cat = 7 ORDER BY val <-> %L LIMIT 10', :q),
	'items_cat_idx', 'all columns of a table that lost one');
SELECT is_restricted(format('SELECT (SELECT count(*) FROM items i WHERE i.id < items.id)
	FROM items WHERE cat = 7 ORDER BY val <-> %L LIMIT 10', :q), 'items_cat_idx', 'a subquery');
SELECT is_restricted(format('SELECT FROM items WHERE cat = 7 ORDER BY val <-> %L LIMIT 10', :q),
	'items_cat_idx', 'no column');
SELECT is_restricted(format('SELECT id FROM items WHERE cat = 7 AND now() > %L
	ORDER BY val <-> %L LIMIT 10', '2020-01-01', :q), 'items_cat_idx',
	'a condition without columns');
SELECT is_restricted(format('SELECT id FROM items WHERE cat = 7 AND now() < %L
	ORDER BY val <-> %L LIMIT 10', '2020-01-01', :q), 'items_cat_idx',
	'a condition without columns that is false');
SELECT is((SELECT count(*) FROM (SELECT id FROM items WHERE cat = 7
	ORDER BY val <-> NULL::vector) s), (SELECT count(*) FROM items WHERE cat = 7),
	'a NULL query: the rows of the bitmap in any order');
SELECT matches(plan_of('SELECT id FROM items WHERE cat = 7 ORDER BY val <-> (SELECT NULL::vector)'),
	'GpugraphBitmapScan', 'a NULL query that the planner does not know');
SELECT is((SELECT count(*) FROM (SELECT id FROM items WHERE cat = 7
	ORDER BY val <-> (SELECT NULL::vector)) s), (SELECT count(*) FROM items WHERE cat = 7),
	'a NULL query that the planner does not know: all rows');

-- other indexes of vectors: rounded rows, an expression, a part of the table
CREATE TABLE rounded AS SELECT id, cat, val FROM items;
CREATE INDEX ON rounded (cat);
CREATE INDEX rounded_idx ON rounded USING gpugraph (val vector_l2_ops) WITH (storage = 'float16');
CREATE TABLE half AS SELECT id, cat, val FROM items;
CREATE INDEX ON half (cat);
CREATE INDEX half_idx ON half USING gpugraph ((val::halfvec(16)) halfvec_cosine_ops);
CREATE TABLE part AS SELECT id, cat, val FROM items;
CREATE INDEX ON part (cat);
CREATE INDEX part_idx ON part USING gpugraph (val vector_ip_ops) WHERE id < 5000;
ANALYZE rounded, half, part;
SELECT is_restricted(format('SELECT id FROM rounded WHERE cat = 7 ORDER BY val <-> %L LIMIT 50',
	:q), 'rounded_cat_idx', 'rounded rows');
SELECT is_restricted(format('SELECT id FROM half WHERE cat = 7
	ORDER BY val::halfvec(16) <=> %L LIMIT 10', :q), 'half_cat_idx', 'an expression');
SELECT is_restricted(format('SELECT id FROM part WHERE cat = 7 AND id < 5000
	ORDER BY val <#> %L LIMIT 10', :q), 'part_cat_idx', 'a partial index');
SELECT doesnt_match(plan_of(format('SELECT id FROM part WHERE cat = 7
	ORDER BY val <#> %L LIMIT 10', :q)), 'GpugraphBitmapScan',
	'not with rows that the partial index lacks');

-- rows with equal vectors share a node, and differ in what they match
CREATE TABLE same AS SELECT i AS id, i % 40 AS cat, v.val
	FROM generate_series(1, 8000) i JOIN items v ON v.id = 1 + i % 400 AND v.id % 10 <> 4;
CREATE INDEX ON same (cat);
CREATE INDEX same_idx ON same USING gpugraph (val vector_l2_ops);
INSERT INTO same SELECT id + 10000, cat, val FROM same WHERE id % 9 = 0;
DELETE FROM same WHERE id % 11 = 0;
VACUUM ANALYZE same;
SELECT matches(plan_of(format('SELECT id FROM same WHERE cat = 7 ORDER BY val <-> %L', :q)),
	'GpugraphBitmapScan', 'equal vectors');
SELECT set_eq(format('SELECT id FROM same WHERE cat = 7 ORDER BY val <-> %L', :q),
	'SELECT id FROM (SELECT id, cat FROM same OFFSET 0) s WHERE cat = 7',
	'equal vectors: the rows that match');
SELECT results_eq(format('SELECT val <-> %1$L FROM same WHERE cat = 7 ORDER BY val <-> %1$L', :q),
	format('SELECT val <-> %1$L FROM (SELECT val, cat FROM same OFFSET 0) s WHERE cat = 7
		ORDER BY 1', :q), 'equal vectors: in order');

-- bitmaps that grow out of work_mem: pages without rows, in the end no bitmap
CREATE TABLE long (id int, few int, filler text, val vector(16));
ALTER TABLE long ALTER filler SET STORAGE PLAIN;
INSERT INTO long SELECT id, CASE WHEN id > 100 THEN 0 ELSE id END, repeat('x', 3000), val
	FROM items WHERE id <= 5000;
CREATE INDEX ON long (few);
CREATE INDEX long_idx ON long USING gpugraph (val vector_l2_ops);
ANALYZE long;
SET work_mem = '64kB';
SET plan_cache_mode = force_generic_plan;
PREPARE few_long(int) AS SELECT id FROM long WHERE few = $1
	ORDER BY val <-> (SELECT val FROM items WHERE id = 1) LIMIT 10;

SELECT matches(says('EXECUTE few_long(0)', 'Heap Blocks'), 'lossy=[1-9]',
	'a bitmap that is larger than work_mem has pages without rows');
CREATE TEMP TABLE got AS EXECUTE few_long(0);
SELECT results_eq('SELECT id FROM got', $$SELECT id FROM
	(SELECT id, val FROM long WHERE few = 0 OFFSET 0) s
	ORDER BY val <-> (SELECT val FROM items WHERE id = 1) LIMIT 10$$,
	'a bitmap that is larger than work_mem: the right rows');
CREATE TABLE many (id int, few int, val vector(2));
INSERT INTO many SELECT i, CASE WHEN i > 2000 THEN 0 ELSE i END, ARRAY[i, 0]::real[]::vector
	FROM generate_series(1, 20000) i;
CREATE INDEX ON many (few);
CREATE INDEX many_idx ON many USING gpugraph (val vector_l2_ops);
ANALYZE many;
PREPARE few_many(int) AS SELECT id FROM many WHERE few = $1 ORDER BY val <-> '[0,0]' LIMIT 10;
SELECT is(says('EXECUTE few_many(0)', 'Unrestricted Scans'), 'Unrestricted Scans: 1',
	'so many TIDs that the index scan is not restricted');
CREATE TEMP TABLE got_many AS EXECUTE few_many(0);
SELECT results_eq('SELECT id FROM got_many', 'SELECT generate_series(2001, 2010)',
	'so many TIDs: the right rows all the same');
CREATE INDEX ON many (id);
SET hash_mem_multiplier = 1;
SELECT matches(plan_of($$SELECT id FROM many WHERE id <= 8000
	ORDER BY val <-> '[0,0]' LIMIT 7000$$), 'GpugraphBitmapScan', 'as many TIDs as have room');
SELECT doesnt_match(plan_of($$SELECT id FROM many WHERE id <= 8400
	ORDER BY val <-> '[0,0]' LIMIT 7000$$), 'GpugraphBitmapScan',
	'no bitmap is made that would be left out');
RESET hash_mem_multiplier;
RESET work_mem;
RESET plan_cache_mode;

-- when there is none
CREATE FUNCTION is_not_restricted(query text, what text) RETURNS text LANGUAGE sql
	AS $$ SELECT doesnt_match(plan_of(query), 'GpugraphBitmapScan', what) $$;
SELECT is_not_restricted(format('SELECT id FROM items ORDER BY val <-> %L LIMIT 10', :q),
	'not without a filter');
SELECT is_not_restricted(format('SELECT id FROM items WHERE id %% 7 = 3
	ORDER BY val <-> %L LIMIT 10', :q), 'not where no index knows the filter');
SELECT is_not_restricted('SELECT id FROM items WHERE cat = 7', 'not without an order');
SELECT is_not_restricted('SELECT id FROM items WHERE cat = 7 ORDER BY id LIMIT 10',
	'not in another order');
SELECT is_not_restricted(format('SELECT id FROM items WHERE cat = 7
	ORDER BY val <-> %L DESC LIMIT 10', :q), 'not backwards');
SELECT is_not_restricted(format('SELECT id FROM items TABLESAMPLE system (50) WHERE cat = 7
	ORDER BY val <-> %L LIMIT 10', :q), 'not for a sample of the table');
SELECT is_not_restricted(format('SELECT id FROM items WHERE cat = 7 AND false
	ORDER BY val <-> %L LIMIT 10', :q), 'not where no row can match');
SET gpugraph.disable = bitmap_filter;
SELECT is_not_restricted(format('SELECT id FROM items WHERE cat = 7
	ORDER BY val <-> %L LIMIT 10', :q), 'not with gpugraph.disable = bitmap_filter');
RESET gpugraph.disable;
SET enable_bitmapscan = off;
SELECT is_not_restricted(format('SELECT id FROM items WHERE cat = 7
	ORDER BY val <-> %L LIMIT 10', :q), 'not with enable_bitmapscan off');
SET enable_bitmapscan = on;
SET enable_indexscan = off;
SELECT is_not_restricted(format('SELECT id FROM items WHERE cat = 7
	ORDER BY val <-> %L LIMIT 10', :q), 'not with enable_indexscan off');

SELECT * FROM finish();
