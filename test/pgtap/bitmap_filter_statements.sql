-- Index scans restricted to a bitmap, in prepared statements, cursors, LATERAL subqueries,
-- partitions and children, under row-level security, and where rows are locked
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 10000, 16, 30);
CREATE INDEX items_cat_idx ON items (cat);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
ANALYZE items;
SELECT quote_literal(val::text) AS q FROM items WHERE id = 1 \gset
SET enable_seqscan = off;
SET enable_sort = off;
CREATE FUNCTION is_restricted(query text, what text) RETURNS text LANGUAGE sql
	AS $$ SELECT matches(plan_of(query), 'GpugraphBitmapScan', what) $$;
-- the answer without any index
CREATE FUNCTION nearest(category int, query vector, n int, of_table regclass DEFAULT 'items')
	RETURNS SETOF int LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format('SELECT id FROM (SELECT id, val FROM %s WHERE cat = $1 OFFSET 0) s
		ORDER BY val <-> $2 LIMIT $3', of_table) USING category, query, n;
END $$;

-- prepared: filter and query are parameters, of plans made for them and of plans made for all
PREPARE find(int, vector) AS SELECT id FROM items WHERE cat = $1 ORDER BY val <-> $2 LIMIT 10;
SET plan_cache_mode = force_custom_plan;
SELECT is_restricted(format('EXECUTE find(7, %L)', :q), 'a custom plan');
SELECT results_eq(format('EXECUTE find(7, %L)', :q), format('SELECT nearest(7, %L, 10)', :q),
	'a custom plan: the right rows');
SET plan_cache_mode = force_generic_plan;
SELECT is_restricted(format('EXECUTE find(7, %L)', :q), 'a generic plan');
SELECT matches(plan_of(format('EXECUTE find(7, %L)', :q)), 'cat = \$1', 'it is generic');
SELECT results_eq(format('EXECUTE find(%s, %L)', c, :q),
	format('SELECT nearest(%s, %L, 10)', c, :q),
	format('a generic plan, filter %s: the right rows', c))
FROM generate_series(7, 9) c;
SELECT results_eq(format('EXECUTE find(7, %L)', val), format('SELECT nearest(7, %L, 10)', val),
	'a generic plan, another query: the right rows')
FROM items WHERE id IN (20, 30);
SELECT is_empty('EXECUTE find(7777, NULL)', 'a generic plan: nothing matches');
RESET plan_cache_mode;

-- LATERAL: with another filter and another query for each row, with only one of the two
CREATE TABLE queries AS SELECT id AS q, id % 50 AS cat, val FROM items WHERE id % 1000 = 3;
ANALYZE queries;
CREATE FUNCTION lateral_ids(category text, query text) RETURNS text LANGUAGE sql AS $$
	SELECT format('SELECT q.q, array_agg(n.id ORDER BY n.d) FROM queries q, LATERAL (
		SELECT id, val <-> %2$s AS d FROM items WHERE cat = %1$s ORDER BY val <-> %2$s LIMIT 10) n
		GROUP BY q.q ORDER BY q.q', category, query) $$;
SELECT is_restricted(lateral_ids('q.cat', 'q.val'), 'LATERAL: filter and query');
SELECT results_eq(lateral_ids('q.cat', 'q.val'), 'SELECT q, ARRAY(SELECT nearest(cat, val, 10))
	FROM queries ORDER BY q', 'LATERAL: filter and query: the right rows');
SELECT is_restricted(lateral_ids('7', 'q.val'), 'LATERAL: query');
SELECT results_eq(lateral_ids('7', 'q.val'), 'SELECT q, ARRAY(SELECT nearest(7, val, 10))
	FROM queries ORDER BY q', 'LATERAL: query: the right rows');
SELECT is_restricted(lateral_ids('q.cat', quote_literal(:q)), 'LATERAL: filter');
SELECT results_eq(lateral_ids('q.cat', quote_literal(:q)),
	format('SELECT q, ARRAY(SELECT nearest(cat, %L, 10)) FROM queries ORDER BY q', :q),
	'LATERAL: filter: the right rows');
CREATE FUNCTION runs_of(query text, node text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF) ' || query LOOP
		IF line ~ node THEN
			RETURN substring(line from 'loops=(\d+)');
		END IF;
	END LOOP;
END $$;
SELECT is(runs_of(lateral_ids('7', 'q.val'), 'Bitmap Index Scan'), 1,
	'the bitmap is made once where only the query changes');
SELECT is(runs_of(lateral_ids('q.cat', 'q.val'), 'Bitmap Index Scan'), 10,
	'the bitmap is made for each filter');
SELECT is_restricted(format('SELECT (SELECT id FROM items WHERE cat = q.cat
	ORDER BY val <-> q.val LIMIT 1) FROM queries q', :q), 'a subquery in the target list');

-- cursors
BEGIN;
DECLARE forward CURSOR FOR SELECT id FROM items WHERE cat = 7
	ORDER BY val <-> (SELECT val FROM items WHERE id = 1);
SELECT results_eq('FETCH 5 FROM forward', format('SELECT nearest(7, %L, 5)', :q),
	'a cursor: the first rows');
SELECT results_eq('FETCH 5 FROM forward', format('SELECT nearest(7, %L, 10) OFFSET 5', :q),
	'a cursor: the next rows');
DECLARE back SCROLL CURSOR FOR SELECT id FROM items WHERE cat = 7
	ORDER BY val <-> (SELECT val FROM items WHERE id = 1);
SELECT results_eq('FETCH 5 FROM back', format('SELECT nearest(7, %L, 5)', :q),
	'a SCROLL cursor: forward');
MOVE BACKWARD 3 FROM back;
SELECT results_eq('FETCH 5 FROM back', format('SELECT nearest(7, %L, 7) OFFSET 2', :q),
	'a SCROLL cursor: forward again');
COMMIT;
BEGIN;
DECLARE found CURSOR FOR SELECT id, big FROM items WHERE cat = 7
	ORDER BY val <-> (SELECT val FROM items WHERE id = 1);
SELECT is_restricted('SELECT id, big FROM items WHERE cat = 7
	ORDER BY val <-> (SELECT val FROM items WHERE id = 1)', 'the plan of the cursor');
MOVE 3 IN found;
SELECT lives_ok('UPDATE items SET big = -1 WHERE CURRENT OF found',
	'the row that a cursor stands on is updated');
SELECT results_eq('SELECT id FROM items WHERE big = -1',
	format('SELECT nearest(7, %L, 3) OFFSET 2', :q), 'it is the right one');
ROLLBACK;

-- locked rows
BEGIN;
SELECT is_restricted(format('SELECT id FROM items WHERE cat = 7 ORDER BY val <-> %L LIMIT 5
	FOR UPDATE', :q), 'FOR UPDATE');
SELECT results_eq(format('SELECT id FROM items WHERE cat = 7 ORDER BY val <-> %L LIMIT 5
	FOR UPDATE', :q), format('SELECT nearest(7, %L, 5)', :q), 'FOR UPDATE: the right rows');
ROLLBACK;
BEGIN;
SELECT is_restricted(format('UPDATE items SET big = -2 FROM (SELECT id FROM items WHERE cat = 7
	ORDER BY val <-> %L LIMIT 5) n WHERE n.id = items.id', :q), 'the source of an UPDATE');
SELECT lives_ok(format('UPDATE items SET big = -2 FROM (SELECT id FROM items WHERE cat = 7
	ORDER BY val <-> %L LIMIT 5) n WHERE n.id = items.id', :q), 'it runs');
SELECT set_eq('SELECT id FROM items WHERE big = -2', format('SELECT nearest(7, %L, 5)', :q),
	'it updates the right rows');
ROLLBACK;

-- partitions, children, temporary tables
CREATE TABLE parts (LIKE items) PARTITION BY RANGE (id);
CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (4000) TO (MAXVALUE);
-- its columns have other numbers
CREATE TABLE parts_low (val vector(16), gone int, big int, cat int, id int NOT NULL);
ALTER TABLE parts_low DROP gone;
ALTER TABLE parts ATTACH PARTITION parts_low FOR VALUES FROM (MINVALUE) TO (4000);
INSERT INTO parts SELECT * FROM items;
CREATE INDEX ON parts (cat);
CREATE INDEX ON parts USING gpugraph (val vector_l2_ops);
CREATE TABLE parent (LIKE items INCLUDING INDEXES);
CREATE TABLE child (LIKE items INCLUDING INDEXES, more int) INHERITS (parent);
INSERT INTO parent SELECT * FROM items WHERE id % 3 > 0;
INSERT INTO child SELECT * FROM items WHERE id % 3 = 0;
CREATE TEMP TABLE temporary (LIKE items INCLUDING INDEXES);
INSERT INTO temporary SELECT * FROM items;
ANALYZE parts, parent, temporary;
-- on a GPU a walk without the bitmap may cost less
SET gpugraph.engine = cpu;
SELECT matches(plan_of(format('SELECT id FROM %I WHERE cat = 7 ORDER BY val <-> %L LIMIT 10',
	name, :q)), nodes, name)
FROM (VALUES
	('parts', 'Merge Append.*GpugraphBitmapScan.*GpugraphBitmapScan'),
	('parent', 'Merge Append.*GpugraphBitmapScan.*GpugraphBitmapScan'),
	('temporary', 'GpugraphBitmapScan')) t (name, nodes);
RESET gpugraph.engine;
SELECT results_eq(format('SELECT id FROM %I WHERE cat = 7 ORDER BY val <-> %L LIMIT 10', name, :q),
	format('SELECT nearest(7, %L, 10)', :q), name || ': the right rows')
FROM unnest(ARRAY['parts', 'parent', 'temporary']) name;
SELECT results_eq(format('SELECT tableoid::regclass::text, id FROM parts WHERE cat = 7
	ORDER BY val <-> %L LIMIT 10', :q),
	format($$SELECT CASE WHEN n < 4000 THEN 'parts_low' ELSE 'parts_high' END, n
	FROM nearest(7, %L, 10) n$$, :q), 'partitions: where the rows lie');

-- the same snapshot for bitmap and scan, and rows of this transaction
BEGIN;
UPDATE items SET cat = 7 WHERE id = 1;
DELETE FROM items WHERE id = (SELECT nearest(7, val, 1) FROM items WHERE id = 57);
INSERT INTO items SELECT 20000, 7, 0, val FROM items WHERE id = 2;
SELECT results_eq(format('SELECT id FROM items WHERE cat = 7 ORDER BY val <-> %L LIMIT 10', :q),
	format('SELECT nearest(7, %L, 10)', :q), 'rows that this transaction changed');
ROLLBACK;

-- row-level security: the bitmap must not evaluate a condition that leaks before the policy
CREATE FUNCTION leaks(int, int) RETURNS boolean LANGUAGE plpgsql COST 0.01 AS $$
BEGIN
	RAISE NOTICE 'saw %', $1;
	RETURN $1 = $2;
END $$;
CREATE ROLE bitmap_reader;
GRANT SELECT ON items TO bitmap_reader;
ALTER TABLE items ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON items USING (cat = 7);
CREATE INDEX items_big_idx ON items (big);
SET ROLE bitmap_reader;
SELECT matches(plan_of(format('SELECT id FROM items ORDER BY val <-> %L LIMIT 10', :q)),
	'GpugraphBitmapScan.*Filter: \(cat = 7\).*items_cat_idx', 'the condition of a policy');
SELECT matches(plan_of(format('SELECT id FROM items WHERE leaks(big, 7)
	ORDER BY val <-> %L LIMIT 10', :q)),
	'GpugraphBitmapScan.*Filter: \(\(cat = 7\) AND leaks\(big, 7\)\)',
	'a condition that leaks comes after that of the policy');
SELECT is((SELECT count(*) FROM (SELECT id FROM items WHERE cat < 10
	ORDER BY val <-> (SELECT val FROM items LIMIT 1)) s),
	(SELECT count(*) FROM items), 'no row but those of the policy');
RESET ROLE;

SELECT * FROM finish();
DROP OWNED BY bitmap_reader;
DROP ROLE bitmap_reader;
