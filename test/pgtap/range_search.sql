-- Rows within a distance, without an order: counts, joins, UPDATE, DELETE, FOR UPDATE and EXISTS
-- have exactly the rows of a plain plan, by the index.
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 4000, 12, 30);
SELECT make_queries('items', 8);
ANALYZE items;
CREATE TABLE others AS SELECT id, val FROM items WHERE id % 97 = 0;
ANALYZE others;

-- Does a plan read the index for rows within a distance, and need no sort of its own?
CREATE FUNCTION by_range(sql text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM use_index(true);
	RETURN plan_of(sql) ~ 'Index Scan using items_idx.*Order By';
END $$;

-- Over all queries: statements that the index was not read for, and those with other rows.
CREATE FUNCTION differences(op text, shape text, k int,
	OUT by_others bigint, OUT wrong bigint) LANGUAGE plpgsql AS $$
DECLARE
	query text;
	sql text;
BEGIN
	by_others := 0; wrong := 0;
	FOR query IN SELECT val::text FROM queries ORDER BY q LOOP
		sql := 'SELECT id FROM items WHERE ' || regexp_replace(regexp_replace(shape, '\mD\M',
			format('(val %s %L)', op, query), 'g'), '\mR\M',
			format('(%s::float8)', radius('items', op, query, k)), 'g');
		by_others := by_others + (NOT by_range(sql))::int;
		wrong := wrong + (ids(sql, true, true) <> ids(sql, false, true))::int;
	END LOOP;
END $$;

-- every metric, and every way to store that keeps vectors
CREATE FUNCTION with_index(op text, opclass text, options text) RETURNS SETOF text
	LANGUAGE plpgsql AS $$
DECLARE
	c record;
	k int;
BEGIN
	EXECUTE format('CREATE INDEX items_idx ON items USING gpugraph (val %s) %s', opclass, options);
	FOREACH k IN ARRAY ARRAY[1, 10, 100, 1500] LOOP
		c := differences(op, CASE WHEN k % 3 = 1 THEN 'D < R' ELSE '1 - D >= 1 - R' END, k);
		RETURN NEXT is(c::text, '(0,0)', format('%s %s, nearest %s', opclass, options, k));
	END LOOP;
	DROP INDEX items_idx;
END $$;
SELECT with_index(op, opclass, options) FROM (VALUES ('<->', 'vector_l2_ops'),
	('<=>', 'vector_cosine_ops'), ('<#>', 'vector_ip_ops'), ('<+>', 'vector_l1_ops'))
	o(op, opclass), (VALUES (''), ('WITH (storage = float16)'),
	('WITH (storage = ''float32+int8'')')) s(options);
CREATE INDEX items_idx ON items USING gpugraph (val) WITH (storage = int8);
SELECT is(differences('<->', 'D < R', 10)::text, '(8,0)', 'not where the index has codes alone');
DROP INDEX items_idx;

-- other conditions, filter columns, settings of ordered scans, rows that came later
CREATE INDEX items_idx ON items USING gpugraph (val, cat, big);
INSERT INTO items SELECT id + 4000, cat, big, val FROM items WHERE id % 9 = 0;
DELETE FROM items WHERE id % 13 = 0;
UPDATE items SET big = big + 1 WHERE id % 11 = 0;
ANALYZE items;
SELECT is(c::text, '(0,0)', shape) FROM unnest(ARRAY[
	'D < R AND cat = 7', 'D <= R AND big IN (7, 8)', 'R > D AND id % 3 = 1', 'D BETWEEN 0 AND R',
	'D < R AND D < R * 2', 'NOT D > R', 'round(D::numeric, 6) <= R',
	'D < (SELECT R)', '-D > -R']) shape,
	differences('<->', shape, 60) c;
SELECT is(count(*) FILTER (WHERE ids(sql, true, true) <> ids(sql, false, true)), 0::bigint,
	'in the order of distances, without LIMIT') FROM (SELECT format('SELECT id FROM items
	WHERE val <-> %L < %s ORDER BY val <-> %1$L', val, radius('items', '<->', val::text, 300))
	FROM queries)
	s(sql);
SET gpugraph.iterative_scan = off;
SELECT is(differences('<->', 'D < R', 200)::text, '(0,0)', 'under iterative_scan = off');
SET gpugraph.iterative_scan = relaxed_order;
SET gpugraph.max_scan_tuples = 1;
SELECT is(differences('<->', 'D < R', 200)::text, '(0,0)', 'under max_scan_tuples = 1');
RESET gpugraph.max_scan_tuples;
RESET gpugraph.iterative_scan;
SET gpugraph.disable = range_search;
SELECT is(differences('<->', 'D < R', 10)::text, '(8,0)', 'not where it is disabled');
RESET gpugraph.disable;

-- statements that ask for a few of the rows, or for none
SELECT val::text AS q, radius('items', '<->', val::text, 40) AS r,
	radius('items', '<->', val::text, 1) / 1000 AS none
	FROM queries WHERE q = 3 \gset
SELECT use_index(true);
SELECT is((SELECT count(*) FROM (SELECT id FROM items WHERE val <-> :'q' < :r LIMIT 7) s),
	7::bigint, 'a LIMIT is filled');
SELECT is((SELECT count(*) FROM (SELECT id FROM items WHERE val <-> :'q' < :r LIMIT 7000) s),
	cardinality(ids(format('SELECT id FROM items WHERE val <-> %L < %s', :'q', :r), false))::bigint,
	'a larger LIMIT has every row, once');
SELECT use_index(true);
SELECT ok(EXISTS (SELECT FROM items WHERE val <-> :'q' < :r), 'EXISTS');
-- a device's walk does not count
SELECT ok((SELECT coalesce(distances, 0) FROM gpugraph_last_scan()) < 2500, 'by a walk alone');
SELECT ok(NOT EXISTS (SELECT FROM items WHERE val <-> :'q' < :none), 'NOT EXISTS');
SELECT is((SELECT exact_lists FROM gpugraph_last_scan()) > 0, true, 'by a pass');
SELECT matches((SELECT coalesce(reason, engine) FROM gpugraph_last_scan()),
	'^(The answer is exact|gpu)', 'which is why, where no device measures them');

-- statements that write
CREATE FUNCTION written(sql text, index boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	PERFORM use_index(index);
	EXECUTE sql;
	SELECT md5(string_agg(format('%s %s', id, big), ',' ORDER BY id)) INTO answer FROM items;
	RAISE EXCEPTION '%', answer;
EXCEPTION WHEN raise_exception THEN
	RETURN SQLERRM;
END $$;
SELECT unnest(ARRAY[is(written(sql, true), written(sql, false), left(sql, 30)),
	ok(by_range(sql), 'by the index')])
	FROM (VALUES (format('UPDATE items SET big = -1 WHERE val <-> %L < %s', :'q', :r)),
	(format('UPDATE items SET val = %L WHERE val <-> %1$L < %s', :'q', :r)),
	(format('DELETE FROM items WHERE val <-> %L < %s', :'q', :r)),
	(format('UPDATE items SET big = others.id FROM others WHERE items.id = others.id
		AND items.val <-> %L < %s', :'q', :r * 2))) s(sql);
-- FOR UPDATE, and similarity joins
SELECT unnest(ARRAY[ok(by_range(sql), what),
		is(ids(sql, true, true), ids(sql, false, true), what || ' has the same rows')])
	FROM (VALUES
	('FOR UPDATE', format('SELECT id FROM items WHERE val <-> %L < %s FOR UPDATE', :'q', :r)),
	('a join', format('SELECT i.id * 10000 + o.id AS id FROM others o JOIN items i
		ON i.val <-> o.val < %s', :r / 2)),
	('of each row its own distance', format('SELECT i.id * 10000 + o.id AS id
		FROM others o JOIN items i ON 1 - (o.val <-> i.val) > 1 - o.id %% 3 * %s AND i.id <> o.id',
		:r / 3)),
	('a left join', format('SELECT coalesce(i.id, 0) * 10000 + o.id AS id FROM others o
		LEFT JOIN items i ON i.val <-> o.val < %s AND i.id <> o.id', :r / 2)),
	('an anti-join', format('SELECT id FROM others o WHERE NOT EXISTS (SELECT FROM items i
		WHERE i.val <-> o.val < %s AND i.id <> o.id)', :r / 2))) s(what, sql);

-- parameters: NULL, NaN, infinity, and a plan for all of them
SET plan_cache_mode = force_generic_plan;
PREPARE within(vector, float8) AS SELECT id FROM items WHERE val <-> $1 < $2;
CREATE FUNCTION executed(q text, r text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
	answer int[] := '{}';
	id int;
BEGIN
	FOR id IN EXECUTE format('EXECUTE within (%s, %s)', q, r) LOOP
		answer := answer || id;
	END LOOP;
	RETURN (SELECT coalesce(array_agg(a ORDER BY a), '{}') FROM unnest(answer) a);
END $$;
SELECT use_index(true);
SELECT ok(plan_of(format('EXECUTE within (%L, 1)', :'q')) ~ 'Order By', 'a generic plan');
SELECT is(executed(quote_literal(:'q'), r), ids(format('SELECT id FROM items
	WHERE val <-> %L::vector < %s', :'q', r), false, true), 'within ' || r)
	FROM unnest(ARRAY[:'r', '0', '-1', 'NULL', '''NaN''', '''Infinity''', '1e300', '1e-300']) r;
SELECT is(executed('NULL', '1'), '{}', 'of no query');
DEALLOCATE within;
RESET plan_cache_mode;

-- Under cosine 1 - d > t holds for zero vectors, which are not in the index.
DROP INDEX items_idx;
CREATE INDEX items_idx ON items USING gpugraph (val vector_cosine_ops);
INSERT INTO items VALUES (-3, 0, 0, NULL);
SELECT is(differences('<=>', '1 - D > 1 - R', 20)::text, '(0,0)', 'no zero vector');
SET plan_cache_mode = force_generic_plan;
PREPARE alike(vector, float8) AS SELECT id FROM items WHERE 1 - (val <=> $1) > $2;
CREATE FUNCTION similar_rows(r text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('EXECUTE alike (%L, %s)', (SELECT val FROM queries WHERE q = 3), r);
	GET DIAGNOSTICS n = ROW_COUNT;
	RETURN n;
END $$;
SELECT use_index(true);
SELECT is(similar_rows('5'), 0::bigint, 'no row is as similar');
INSERT INTO items VALUES (-1, 0, 0, '[0,0,0,0,0,0,0,0,0,0,0,0]');
SELECT is(similar_rows('5'), 1::bigint, 'but a zero vector that came after the plan');
RESET plan_cache_mode;
SELECT is(differences('<=>', '1 - D > 1 - R', 20)::text, '(8,0)', 'one zero vector');
SELECT is(differences('<=>', 'D < R', 20)::text, '(0,0)', 'of which the distance is not below');
DELETE FROM items WHERE id < 0;

-- What the planner looks at: nobody counts it, and rights and policies are kept.
CREATE FUNCTION learned(sql text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	believed float8 := rows_believed(sql);
BEGIN
	SET LOCAL gpugraph.disable = range_search;
	RETURN believed <> rows_believed(sql);
END $$;
DROP INDEX items_idx;
CREATE INDEX items_idx ON items USING gpugraph (val);
CREATE ROLE stranger;
CREATE FUNCTION rows_believed(sql text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) ' || sql INTO plan;
	RETURN plan->0->'Plan'->'Plan Rows';
END $$;
SELECT use_index(true);
SELECT format('SELECT id FROM items WHERE val <-> %L < %s', :'q', :r) AS sql \gset
BEGIN;
SELECT cmp_ok(rows_believed(:'sql'), '<', 60::float8, 'the planner knows how many rows are within');
SELECT is(pg_stat_get_xact_numscans('items_idx'::regclass), 0::bigint, 'the look is in no counter');
COMMIT;
CREATE VIEW shown AS SELECT * FROM items;
GRANT SELECT ON shown TO stranger;
SET ROLE stranger;
SELECT ok(NOT learned(replace(:'sql', 'items', 'shown')), 'nothing is learned by a view');
RESET ROLE;
GRANT SELECT ON items TO stranger;
SET ROLE stranger;
SELECT ok(learned(:'sql'), 'but by who may read the table');
RESET ROLE;
ALTER TABLE items ENABLE ROW LEVEL SECURITY;
CREATE POLICY odd ON items TO stranger USING (id % 2 = 1);
SET ROLE stranger;
SELECT ok(NOT learned(:'sql'), 'not where a policy hides rows');
SELECT ok(bool_and(id % 2 = 1), 'rows are those of the policy') FROM items
	WHERE val <-> :'q' < :r;
RESET ROLE;
DROP VIEW shown;
DROP OWNED BY stranger;
DROP ROLE stranger;

-- a query of other dimensions is an error where it is executed, as ever
SELECT throws_ok($$SELECT count(*) FROM items WHERE val <-> '[1,2]' < 1$$, '22000', NULL,
	'other dimensions');
SELECT lives_ok($$EXPLAIN SELECT count(*) FROM items WHERE val <-> '[1,2]' < 1$$, 'are planned');
-- Indexes of partitions offer no such scans.  When they did, a plan that merged them failed with
-- "could not find pathkey item to sort" (random statements, seed 1, round 16).
CREATE TABLE halves (LIKE items) PARTITION BY RANGE (id);
CREATE TABLE halves_low PARTITION OF halves FOR VALUES FROM (MINVALUE) TO (2000);
CREATE TABLE halves_high PARTITION OF halves FOR VALUES FROM (2000) TO (MAXVALUE);
INSERT INTO halves SELECT * FROM items;
CREATE INDEX ON halves USING gpugraph (val vector_l2_ops);
ANALYZE halves;
BEGIN;
SET LOCAL enable_sort = off;
SET LOCAL enable_seqscan = off;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL min_parallel_index_scan_size = 0;
SELECT is((SELECT count(*) FROM (SELECT FROM halves WHERE val <-> :'q' < :r
	ORDER BY val <-> :'q' DESC LIMIT 50) s), least(50, (SELECT count(*) FROM items
	WHERE val <-> :'q' < :r)), 'partitions, in falling order');
COMMIT;

-- ---- rows that are so near that rounding cannot matter are not checked ----
-- Their vectors, which lie out of line, are not read then.
CREATE TABLE wide AS SELECT id, cat, (SELECT array_agg(random()) FROM generate_series(1, 768)
	WHERE id > 0)::vector(768) AS val FROM items WHERE id <= 600;
CREATE INDEX wide_idx ON wide USING gpugraph (val vector_l2_ops);
VACUUM ANALYZE wide;
CREATE FUNCTION blocks_read(sql text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	PERFORM use_index(true);
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || sql INTO plan;
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) ' || sql INTO plan;
	RETURN (plan->0->'Plan'->>'Shared Hit Blocks')::int +
		(plan->0->'Plan'->>'Shared Read Blocks')::int;
END $$;
SELECT val::text AS w, val <-> (SELECT val FROM wide WHERE id = 2) AS r FROM wide WHERE id = 1 \gset
SELECT count(*) AS n FROM wide WHERE val <-> :'w' < :r \gset
CREATE TEMP TABLE reads AS SELECT name, r, blocks_read(format('SELECT id FROM wide
	WHERE %s val <-> %L < %s', more, :'w', r)) AS n
	FROM (VALUES ('some', '', :r), ('none', '', 1e-9), ('hidden', 'cat >= 0 AND', :r))
	v(name, more, r);
SELECT cmp_ok((SELECT n FROM reads WHERE name = 'some') - (SELECT n FROM reads WHERE name = 'none'),
	'<', (2.5 * :n)::int, 'a block of the table and one of the index for a row');
SELECT cmp_ok((SELECT n FROM reads WHERE name = 'hidden') -
	(SELECT n FROM reads WHERE name = 'none'), '>', 3 * :n,
	'but for a condition that comes first, which may be one that hides rows');
SELECT is(array(SELECT id FROM wide WHERE val <-> :'w' <= :r ORDER BY val <-> :'w'),
	array(SELECT id FROM (SELECT id, val <-> :'w' AS d FROM wide OFFSET 0) s WHERE d <= :r
	ORDER BY d), 'the row at the end is checked, and comes');

-- a node's scans differ: how far one is sure says nothing of the next
SELECT is(array_agg(by_index.n ORDER BY i), array_agg(plain.n ORDER BY i),
	'distances that end a scan, and such as do not, by turns')
	FROM (VALUES (1, :r / 2), (2, 'Infinity'), (3, :r), (4, 'NaN'), (5, NULL), (6, 0), (7, 1e300),
	(8, :r)) v(i, r),
	LATERAL (SELECT count(*) AS n FROM (SELECT id FROM wide WHERE val <-> :'w' < v.r
	ORDER BY val <-> :'w' LIMIT 1000) s) by_index,
	LATERAL (SELECT count(*) AS n FROM (SELECT val <-> :'w' AS d FROM wide OFFSET 0) s
	WHERE d < v.r) plain;

SELECT * FROM finish();
