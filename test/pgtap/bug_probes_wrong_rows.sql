-- gpugraph.partition_probes is for queries that want the nearest rows, and for no others.
--
-- The bug: ORDER BY distance DESC, USING > and NULLS FIRST asked the nearest partitions alone; any
-- operator of a distance's name counted as one; LIMIT $1 with NULL got some of the rows; a
-- condition of the user's that looked like the one that is added was dropped; whoever had no USAGE
-- on the extension's schema could not ask; columns of a domain asked all partitions; and a join
-- below a LATERAL query asked for each outer row the partitions of the first one.
-- The fix: the order is core's ascending one of float8, operators are those of the access method's
-- families, functions are known by what they are, and the condition says what a NULL limit means.
\ir include/helpers.psql
SELECT * FROM no_plan();
SET max_parallel_workers_per_gather = 0;

-- ten clusters along a line, and a partition for each
CREATE DOMAIN embedding AS vector(2) CHECK (vector_dims(VALUE) = 2);
CREATE TABLE items AS
	SELECT i AS id, ARRAY[i % 10 * 10 + random(), random()]::real[]::vector(2) AS v
	FROM generate_series(1, 1000) i;
CREATE TABLE domain_items AS SELECT id, v::embedding AS v FROM items;
SELECT gpugraph_partition_by_centroid('items', 'v', 'pages', 10);
SELECT gpugraph_partition_by_centroid('domain_items', 'v', 'domain_pages', 10);
INSERT INTO pages SELECT * FROM items;
INSERT INTO domain_pages SELECT * FROM domain_items;
CREATE INDEX ON pages USING gpugraph (v);
ANALYZE pages, domain_pages;

CREATE FUNCTION rows_of(query text, probes int) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
	r record;
	found text[] := '{}';
BEGIN
	PERFORM set_config('gpugraph.partition_probes', probes::text, true);
	FOR r IN EXECUTE query LOOP
		found := found || r::text;
	END LOOP;
	RETURN found;
END $$;
-- the partitions that a query reads, by EXPLAIN ANALYZE
CREATE FUNCTION parts_of(query text, probes int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	line text;
	parts text[] := '{}';
BEGIN
	PERFORM set_config('gpugraph.partition_probes', probes::text, true);
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		IF line ~ ' on (domain_)?pages_\d+' AND line !~ 'Bitmap Index' THEN
			parts := parts || substring(line from ' on ((?:domain_)?pages_\d+)');
		END IF;
	END LOOP;
	RETURN (SELECT count(DISTINCT p) FROM unnest(parts) p);
END $$;
CREATE FUNCTION same_rows(query text, what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	forms bool[] := '{true,false}';
	indexed bool;
BEGIN
	FOREACH indexed IN ARRAY forms LOOP
		PERFORM use_index(indexed);
		RETURN NEXT is(rows_of(query, 2), rows_of(query, 0),
			what || CASE WHEN indexed THEN ', by indexes' ELSE '' END);
	END LOOP;
END $$;

-- ---- the order

SELECT same_rows($$SELECT id FROM pages ORDER BY v <-> '[0,0]' LIMIT 3$$, 'the nearest');
SELECT is(parts_of($$SELECT id FROM pages ORDER BY v <-> '[0,0]' LIMIT 3$$, 2), 2,
	'ask two partitions');
SELECT same_rows($$SELECT id FROM pages ORDER BY v <-> '[0,0]' DESC LIMIT 3$$, 'DESC');
SELECT same_rows($$SELECT id FROM pages ORDER BY v <-> '[0,0]' DESC NULLS LAST LIMIT 3$$,
	'DESC NULLS LAST');
SELECT same_rows($$SELECT id FROM pages ORDER BY v <-> '[0,0]' USING > LIMIT 3$$, 'USING >');
SELECT same_rows($$SELECT id FROM pages WHERE v <-> '[0,0]' > 50 ORDER BY v <-> '[0,0]' DESC
	LIMIT 3$$, 'DESC and a condition');
SELECT is(parts_of($$SELECT id FROM pages ORDER BY v <-> '[0,0]' USING < LIMIT 3$$, 2), 2,
	'USING < is the same as none');
SELECT is(parts_of($$SELECT id FROM pages ORDER BY v <-> '[0,0]', id DESC LIMIT 3$$, 2), 2,
	'what comes second does not matter');

-- rows without a vector lie in the first partition
INSERT INTO pages SELECT -i, NULL FROM generate_series(1, 3) i;
SELECT gpugraph_probe('pages_centroids()', '<->', (pages_centroids())[1], 10) AS far \gset
SELECT (pages_centroids())[:far] AS far \gset
SELECT same_rows(format('SELECT id FROM pages ORDER BY v <-> %L NULLS FIRST, id LIMIT 5', :'far'),
	'NULLS FIRST');
SELECT same_rows(format('SELECT id FROM pages ORDER BY v <-> %L NULLS LAST, id LIMIT 5', :'far'),
	'NULLS LAST');
SELECT ok(parts_of(format('SELECT id FROM pages ORDER BY v <-> %L NULLS FIRST LIMIT 5', :'far'), 2)
	< 10, 'NULLS FIRST leaves partitions out all the same');
DELETE FROM pages WHERE v IS NULL;

-- ---- operators

CREATE FUNCTION negated(a vector, b vector) RETURNS float8 LANGUAGE plpgsql IMMUTABLE AS
	'BEGIN RETURN -(a <-> b); END';
CREATE SCHEMA other;
CREATE OPERATOR other.<-> (LEFTARG = vector, RIGHTARG = vector, FUNCTION = negated);
CREATE OPERATOR other.<=> (LEFTARG = vector, RIGHTARG = vector, FUNCTION = negated);
CREATE OPERATOR <~~> (LEFTARG = vector, RIGHTARG = vector, FUNCTION = negated);
SELECT same_rows($$SELECT id FROM pages ORDER BY v OPERATOR(other.<->) '[0,0]' LIMIT 3$$,
	'an operator of the same name');
SELECT same_rows($$SELECT id FROM pages ORDER BY v OPERATOR(other.<=>) '[0,0]' LIMIT 3$$,
	'another one');
SELECT same_rows($$SELECT id FROM pages ORDER BY v <~~> '[0,0]' LIMIT 3$$,
	'an operator of no distance''s name');
SELECT is(array(SELECT parts_of(format('SELECT id FROM pages ORDER BY v %s %L LIMIT 3', op,
	'[1,1]'), 2) FROM unnest('{<->,<#>,<=>,<+>}'::text[]) op), '{2,2,2,2}', 'all distances');
CREATE OPERATOR other.== (LEFTARG = vector, RIGHTARG = vector, FUNCTION = l2_distance);
CREATE OPERATOR CLASS other.ops FOR TYPE vector USING gpugraph AS
	OPERATOR 1 other.== (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 gpugraph_vector_l2_support(internal);
SELECT is(parts_of($$SELECT id FROM pages ORDER BY v OPERATOR(other.==) '[0,0]' LIMIT 3$$, 2), 2,
	'an operator of another name in an operator class of the access method');

-- ---- the limit

PREPARE few(int) AS SELECT id FROM pages ORDER BY v <-> '[0,0]' LIMIT $1;
PREPARE few_of(vector, int) AS SELECT id FROM pages ORDER BY v <-> $1 LIMIT $2;
PREPARE ties(int) AS SELECT id FROM pages ORDER BY v <-> '[0,0]' FETCH FIRST $1 ROWS WITH TIES;
PREPARE behind(int, int) AS SELECT id FROM pages ORDER BY v <-> '[0,0]' LIMIT $1 OFFSET $2;
PREPARE only_behind(int) AS SELECT id FROM pages ORDER BY v <-> '[0,0]' OFFSET $1;
PREPARE sum_of(int, int) AS SELECT id FROM pages ORDER BY v <-> '[0,0]' LIMIT $1 + $2;
CREATE FUNCTION limits(how text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	c record;
BEGIN
	PERFORM set_config('plan_cache_mode', 'force_' || how || '_plan', true);
	FOR c IN SELECT * FROM (VALUES
		('few(10)', 10, 2), ('few(NULL)', 1000, 10), ('few(0)', 0, NULL),
		($q$few_of('[90,0]', 10)$q$, 10, 2), ($q$few_of('[90,0]', NULL)$q$, 1000, 10),
		('few_of(NULL, 10)', 10, NULL), ('few_of(NULL, NULL)', 1000, 10),
		('ties(10)', 10, 2), ('ties(NULL)', 1000, 10),
		('behind(10, 5)', 10, 2), ('behind(10, NULL)', 10, 2), ('behind(NULL, 5)', 995, 10),
		('behind(NULL, NULL)', 1000, 10), ('only_behind(5)', 995, 10),
		('only_behind(NULL)', 1000, 10), ('sum_of(3, 4)', 7, 2), ('sum_of(3, NULL)', 1000, 10)
	) v(call, rows, parts) LOOP
		RETURN NEXT is(cardinality(rows_of('EXECUTE ' || c.call, 2)), c.rows,
			format('%s: rows, %s plan', c.call, how));
		-- a limit of none begins no scan
		IF c.parts IS NOT NULL THEN
			RETURN NEXT is(parts_of('EXECUTE ' || c.call, 2), c.parts,
				format('%s: partitions, %s plan', c.call, how));
		END IF;
		IF c.call !~ '\(NULL, 10' THEN
			RETURN NEXT is(rows_of('EXECUTE ' || c.call, 2), rows_of('EXECUTE ' || c.call, 0),
				format('%s: the same rows, %s plan', c.call, how));
		END IF;
	END LOOP;
END $$;
SELECT use_index(true);
SELECT limits('custom');
SELECT limits('generic');
SELECT use_index(false);
SELECT limits('custom');
SELECT limits('generic');
SELECT throws_ok('EXECUTE few(-1)', '2201W', 'LIMIT must not be negative');
SELECT same_rows($$SELECT id FROM pages ORDER BY v <-> '[0,0]' LIMIT (SELECT NULL::int)$$,
	'a subquery of NULL');
SELECT same_rows($$SELECT id FROM pages ORDER BY v <-> '[0,0]' LIMIT (SELECT 7)$$, 'a subquery');
SELECT same_rows($$SELECT l, s.id FROM (VALUES (1, 3), (2, NULL), (3, 4)) o(o, l), LATERAL
	(SELECT id FROM pages ORDER BY v <-> '[0,0]' LIMIT l) s ORDER BY o, id$$,
	'a limit from an outer row');
SELECT same_rows($$SELECT l, s.id FROM (VALUES (1, 3), (2, NULL), (3, 4)) o(o, l), LATERAL
	(SELECT id FROM pages ORDER BY v <-> '[0,0]'
	LIMIT (SELECT max(i) FROM generate_series(1, l) i)) s ORDER BY o, id$$,
	'a subquery of an outer row');
SELECT same_rows($$SELECT id FROM pages ORDER BY v <-> '[0,0]'
	LIMIT nullif(random() < 2, true)::int$$, 'a volatile limit');
-- what a parallel worker gets
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT same_rows($$SELECT id FROM pages ORDER BY v <-> (SELECT '[0,0]'::vector)
	LIMIT (SELECT NULL::int)$$, 'a subquery of NULL, in parallel');
SELECT same_rows($$SELECT id FROM pages JOIN items USING (id) ORDER BY pages.v <->
	(SELECT '[0,0]'::vector) LIMIT 5$$, 'a join, in parallel');
SELECT limits('generic');
RESET min_parallel_table_scan_size;
SET max_parallel_workers_per_gather = 0;

-- ---- outer rows

SET enable_nestloop = off;
SET enable_mergejoin = off;
SELECT same_rows($$SELECT o, s.id FROM (VALUES (1, '[0,0]'::vector), (2, '[50,0]'), (3, '[90,0]'))
	o(o, q), LATERAL (SELECT id FROM pages JOIN items USING (id) ORDER BY pages.v <-> q LIMIT 3) s
	ORDER BY o, s.id$$, 'a join below an outer row');
RESET enable_nestloop;
RESET enable_mergejoin;

-- ---- conditions of the user's

CREATE TABLE lists (a int) PARTITION BY LIST (a);
CREATE TABLE lists_1 PARTITION OF lists FOR VALUES IN (1);
CREATE TABLE lists_2 PARTITION OF lists FOR VALUES IN (2);
INSERT INTO lists VALUES (1), (2);
PREPARE looks_like(vector) AS SELECT a FROM lists
	WHERE 99 = ANY (ARRAY[gpugraph_probe('pages_centroids()', '<->', $1, 1)]);
PREPARE looks_like_this(vector) AS SELECT id FROM pages
	WHERE 3 = ANY (ARRAY[gpugraph_probe('pages_centroids()', '<->', $1, 1)])
	ORDER BY v <-> $1 LIMIT 3;
PREPARE one_more(vector) AS SELECT id FROM pages
	WHERE gpugraph_nearest_centroid('pages_centroids()', v) =
	ANY (ARRAY[gpugraph_probe('pages_centroids()', '<->', $1, 1)]) ORDER BY v <-> $1 LIMIT 200;
SET plan_cache_mode = force_generic_plan;
SELECT is(rows_of($$EXECUTE looks_like('[0,0]')$$, 1), '{}', 'a condition that is false stays');
SELECT is((SELECT array_agg(cardinality(rows_of(format('EXECUTE looks_like_this(%L)', c), 1))
	ORDER BY n) FROM unnest(pages_centroids()) WITH ORDINALITY u(c, n)), '{0,0,3,0,0,0,0,0,0,0}',
	'also in the partitions themselves');
SELECT same_rows($$EXECUTE one_more('[0,0]')$$, 'and the key compared by the user');
RESET plan_cache_mode;

-- ---- a column of a domain

SELECT same_rows($$SELECT id FROM domain_pages ORDER BY v <-> '[0,0]' LIMIT 3$$, 'a domain');
SELECT is(parts_of($$SELECT id FROM domain_pages ORDER BY v <-> '[0,0]' LIMIT 3$$, 2), 2,
	'a domain''s partitions are left out, too');
SELECT is(parts_of($$SELECT id FROM domain_pages ORDER BY v <-> '[0,0]'::embedding LIMIT 3$$, 2), 2,
	'and where the query is of the domain');
SELECT is(parts_of($$SELECT id FROM domain_pages WHERE
	gpugraph_nearest_centroid('domain_pages_centroids()', v) = 3$$, 0), 1,
	'the key is what users write');

-- ---- no USAGE on the extension's schema

CREATE SCHEMA hidden;
ALTER EXTENSION gpugraph SET SCHEMA hidden;
CREATE ROLE without_usage;
CREATE VIEW distances AS SELECT id, v <-> '[0,0]' AS d FROM pages;
GRANT SELECT ON pages, distances TO without_usage;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO without_usage;
SET ROLE without_usage;
SELECT same_rows($$SELECT id FROM distances ORDER BY d LIMIT 3$$, 'a role without USAGE, a view');
SELECT is(parts_of($$SELECT id FROM pages ORDER BY v <-> '[0,0]' LIMIT 3$$, 2), 2,
	'asks two partitions');
RESET ROLE;
DROP OWNED BY without_usage;
DROP ROLE without_usage;
SELECT * FROM finish();
