-- The distance that rows came ordered by: computed again by the executor where somebody reads it,
-- and only there
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 3000, 16, 30);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
CREATE TABLE rounded AS SELECT * FROM items;
CREATE INDEX rounded_idx ON rounded USING gpugraph (val vector_l2_ops) WITH (storage = 'float16');
CREATE TABLE parts (LIKE items) PARTITION BY RANGE (id);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (1500);
CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (1500) TO (MAXVALUE);
INSERT INTO parts SELECT * FROM items;
CREATE INDEX parts_idx ON parts USING gpugraph (val vector_l2_ops);
CREATE INDEX half_idx ON items USING gpugraph ((val::halfvec(16)) halfvec_l2_ops);
CREATE TABLE hnsw AS SELECT * FROM items;
CREATE INDEX hnsw_idx ON hnsw USING hnsw (val vector_l2_ops);
ANALYZE items, rounded, parts, hnsw;
SELECT quote_literal(val::text) AS q FROM items WHERE id = 1 \gset
SET enable_seqscan = off;
SET enable_sort = off;
SET track_functions = 'all';

-- how often the operator's function ran while these statements did
CREATE FUNCTION distances(VARIADIC statements text[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	so_far CONSTANT text := $q$SELECT COALESCE(sum(calls), 0) FROM pg_stat_xact_user_functions
		WHERE funcname LIKE '%l2_distance'$q$;
	before bigint;
	after bigint;
	statement text;
BEGIN
	EXECUTE so_far INTO before;
	FOREACH statement IN ARRAY statements LOOP
		EXECUTE statement;
	END LOOP;
	EXECUTE so_far INTO after;
	RETURN after - before;
END $$;

-- What a query returns with the distances of its rows left out, and not, is the same; so many
-- distances (NULL: whatever their number) are computed without.
CREATE FUNCTION computes(query text, wanted int, what text) RETURNS SETOF text
	LANGUAGE plpgsql AS $$
DECLARE
	all_rows text := format('SELECT array_agg(s::text) FROM (%s) s', query);
	off text[];
	got text[];
BEGIN
	SET LOCAL gpugraph.disable = unread_distance;
	EXECUTE all_rows INTO off;
	RETURN NEXT cmp_ok(distances(query), '>', 0::bigint, what || ', skipping off: computed');
	SET LOCAL gpugraph.disable = '';
	EXECUTE all_rows INTO got;
	RETURN NEXT is(got, off, what || ': the same rows');
	IF wanted IS NOT NULL THEN
		RETURN NEXT is(distances(query), wanted::bigint, what || ': distances computed');
	END IF;
END $$;

SELECT computes(format('SELECT id FROM items ORDER BY val <-> %L LIMIT 10', :q), 0,
	'ORDER BY LIMIT');
SELECT computes(format('SELECT id FROM items ORDER BY val <-> %L LIMIT 10 OFFSET 5', :q), 0,
	'OFFSET');
SELECT computes(format('SELECT id FROM items ORDER BY %L <-> val LIMIT 10', :q), 0,
	'the column on the right');
SELECT computes(format('SELECT id FROM items ORDER BY val::halfvec(16) <-> %L LIMIT 10', :q), 0,
	'an expression');
SELECT computes(format('SELECT id, val FROM items WHERE cat <> 3 ORDER BY val <-> %L LIMIT 10', :q),
	0, 'a filter');
SELECT computes(format('SELECT id FROM items ORDER BY val <-> %L', :q), 0, 'without LIMIT');
CREATE INDEX items_cat_idx ON items (cat);
SELECT matches(plan_of(format('SELECT id, val FROM items WHERE cat = 3
	ORDER BY val <-> %L LIMIT 10', :q)), 'GpugraphBitmapScan', 'the plan with a bitmap');
SELECT computes(format('SELECT id, val FROM items WHERE cat = 3 ORDER BY val <-> %L LIMIT 10', :q),
	0, 'a bitmap of another index');
SELECT computes(format('SELECT id, val <-> %1$L FROM items WHERE cat = 3
	ORDER BY val <-> %1$L LIMIT 10', :q), 10, 'a bitmap, and the distance is read');
SELECT computes(format('SELECT ARRAY(SELECT id FROM items ORDER BY val <-> %L LIMIT 10)', :q), 0,
	'an array of a subquery');
SELECT computes(format('SELECT sum(id) FROM (SELECT id FROM items ORDER BY val <-> %L LIMIT 10) s',
	:q), 0, 'a subquery');
SELECT computes(format('WITH n AS MATERIALIZED (SELECT id FROM items ORDER BY val <-> %L LIMIT 10)
	SELECT a.id, b.id FROM n a, n b', :q), 0,
	'WITH');
SELECT computes(format('SELECT * FROM (SELECT id FROM items ORDER BY val <-> %1$L LIMIT 3) a '
	'UNION ALL '
	'SELECT * FROM (SELECT id FROM items ORDER BY val <-> %1$L LIMIT 4 OFFSET 1) b', :q), 0,
	'UNION ALL');
SELECT computes('SELECT q.id, n.id FROM (SELECT * FROM items WHERE id < 4) q, '
	'LATERAL (SELECT id FROM items i ORDER BY i.val <-> q.val LIMIT 3) n', 0, 'a LATERAL join');
SELECT computes('SELECT q.id, n.* FROM (SELECT * FROM items WHERE id < 4) q LEFT JOIN '
	'LATERAL (SELECT i FROM items i ORDER BY i.val <-> q.val LIMIT 3) n ON true', 0,
	'a LATERAL join that returns whole rows');

-- where it is read
SELECT computes(format('SELECT id, val <-> %1$L AS d FROM items ORDER BY d LIMIT 10', :q), 10,
	'as an output column');
SELECT computes(format('SELECT id, val <-> %1$L AS d FROM items ORDER BY val <-> %1$L LIMIT 10',
	:q), 10, 'as an output column, written twice');
SELECT computes(format('SELECT id FROM items ORDER BY val <-> %L FETCH FIRST 10 ROWS WITH TIES',
	:q), 11, 'WITH TIES');
SELECT computes(format('SELECT id, rank() OVER (ORDER BY val <-> %L) FROM items LIMIT 10', :q),
	NULL, 'by a window function');
SELECT computes(format('SELECT id FROM items ORDER BY val <-> %L, id LIMIT 10', :q), NULL,
	'to sort by, before another column');
SELECT computes(format('SELECT id FROM items ORDER BY val <-> %L LIMIT 10 FOR UPDATE', :q), 10,
	'below a lock of rows');
SELECT computes(format('SELECT id FROM parts ORDER BY val <-> %L LIMIT 10', :q), 10,
	'to merge partitions by');

-- the bug: a UNION ALL of which one branch is left marks the columns of that branch as the query
-- around marks its own
SELECT computes(format('SELECT id FROM (SELECT * FROM '
	'(SELECT id, val <-> %1$L AS d FROM items ORDER BY d LIMIT 5) a '
	'UNION ALL SELECT id, 0::float8 FROM items WHERE false) u '
	'ORDER BY d FETCH FIRST 3 ROWS WITH TIES', :q), 4,
	'WITH TIES, from the one branch of a UNION ALL');
SELECT computes(format('SELECT id FROM (SELECT * FROM '
	'(SELECT id, val <-> %1$L AS d FROM items ORDER BY d LIMIT 5) a '
	'UNION ALL SELECT id, 0::float8 FROM items WHERE false) u ORDER BY d DESC', :q), 5,
	'to sort the one branch of a UNION ALL by');

-- rows stored rounded are put in order by their distances, once each, here 10 and those that lie as
-- near as rounding may err
SELECT computes(format('SELECT id FROM rounded ORDER BY val <-> %L LIMIT 10', :q),
	distances(format('SELECT id FROM rounded ORDER BY val <-> %L LIMIT 10', :q))::int,
	'rounded rows');
SELECT cmp_ok(distances(format('SELECT id FROM rounded ORDER BY val <-> %L LIMIT 10', :q)), '<',
	20::bigint, 'rounded rows: once a row');

-- other access methods are left as they are
SELECT computes(format('SELECT id FROM hnsw ORDER BY val <-> %L LIMIT 10', :q), 10, 'hnsw');

-- a plan that is kept
PREPARE nearest(vector) AS SELECT id FROM items ORDER BY val <-> $1 LIMIT 10;
SET plan_cache_mode = force_generic_plan;
SELECT is(distances('EXECUTE nearest(' || quote_literal(:q) || ')'), 0::bigint, 'a generic plan');
RESET plan_cache_mode;

-- rows that go elsewhere
SELECT is(distances(format('DECLARE near CURSOR FOR SELECT id FROM items ORDER BY val <-> %L', :q),
	'MOVE 5 FROM near', 'CLOSE near'), 0::bigint, 'a cursor');
SELECT is(distances(format('DECLARE near SCROLL CURSOR FOR
	SELECT id FROM items ORDER BY val <-> %L', :q),
	'MOVE 5 FROM near', 'MOVE FIRST FROM near', 'CLOSE near'), 0::bigint,
	'a cursor that goes back');
CREATE TABLE copied AS SELECT id FROM items ORDER BY val <-> :q LIMIT 10;
INSERT INTO copied SELECT id FROM items ORDER BY val <-> :q LIMIT 10;
SELECT results_eq('SELECT id, count(*) FROM copied GROUP BY id ORDER BY id',
	format('SELECT id, 2::bigint FROM (SELECT id FROM items ORDER BY val <-> %L LIMIT 10) s
		ORDER BY id', :q), 'CREATE TABLE AS and INSERT');
CREATE FUNCTION nearest(vector, int) RETURNS SETOF items
	LANGUAGE sql STABLE AS 'SELECT * FROM items ORDER BY val <-> $1 LIMIT $2';
CREATE FUNCTION nearest_plpgsql(vector, int) RETURNS SETOF items LANGUAGE plpgsql STABLE AS
	'BEGIN RETURN QUERY SELECT * FROM items ORDER BY val <-> $1 LIMIT $2; END';
SELECT results_eq(format('SELECT id, val FROM nearest(%L, 5)', :q),
	format('SELECT id, val FROM items ORDER BY val <-> %L LIMIT 5', :q), 'an SQL function');
SELECT results_eq(format('SELECT id, val FROM nearest_plpgsql(%L, 5)', :q),
	format('SELECT id, val FROM items ORDER BY val <-> %L LIMIT 5', :q),
	'a PL/pgSQL function');

SELECT * FROM finish();
