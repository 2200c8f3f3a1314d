-- What gpugraph.partition_probes calls has the rights of the partitioned table's owner.
--
-- The bug: planning a query, even for EXPLAIN, called the owner's function of centroids with the
-- rights of who asked, so an owner became superuser when a superuser looked at his table.
-- The fix: it is called as the owner, in a restricted operation and with a search_path of the
-- system's, as functions of an index's expressions are. Calls that a user writes stay his.
\ir include/helpers.psql
SELECT * FROM no_plan();
SET max_parallel_workers_per_gather = 0;

CREATE ROLE probes_owner;
CREATE ROLE probes_reader;
CREATE ROLE probes_viewer;
CREATE SCHEMA s AUTHORIZATION probes_owner;
GRANT USAGE ON SCHEMA s TO PUBLIC;
CREATE TABLE seen (who name, path text, restricted boolean);
GRANT INSERT ON seen TO PUBLIC;

SET ROLE probes_owner;
CREATE FUNCTION s.attack() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	restricted boolean := false;
BEGIN
	BEGIN
		PERFORM pg_catalog.set_config('role', current_user, true);
	EXCEPTION WHEN insufficient_privilege THEN
		restricted := true;
	END;
	INSERT INTO public.seen VALUES (current_user, current_setting('search_path'), restricted);
	ALTER ROLE probes_owner SUPERUSER;
EXCEPTION WHEN insufficient_privilege THEN
	INSERT INTO public.seen VALUES (current_user, current_setting('search_path'), restricted);
END $$;
CREATE FUNCTION s.centroids() RETURNS public.vector[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM s.attack();
	RETURN ARRAY['[0]', '[10]', '[20]', '[30]']::public.vector[];
END $$;
CREATE TABLE s.t (id int, v public.vector(1))
	PARTITION BY LIST (public.gpugraph_nearest_centroid('s.centroids()'::regprocedure, v));
CREATE TABLE s.t1 PARTITION OF s.t FOR VALUES IN (1);
CREATE TABLE s.t23 PARTITION OF s.t FOR VALUES IN (2, 3);
CREATE TABLE s.t4 PARTITION OF s.t FOR VALUES IN (4);
INSERT INTO s.t SELECT i, ARRAY[i]::real[]::public.vector FROM generate_series(0, 34) i;
-- another one, whose only partition is for all other centroids
CREATE TABLE s.rest (id int, v public.vector(1))
	PARTITION BY LIST (public.gpugraph_nearest_centroid('s.centroids()'::regprocedure, v));
CREATE TABLE s.rest_of PARTITION OF s.rest DEFAULT;
INSERT INTO s.rest SELECT i, ARRAY[i]::real[]::public.vector FROM generate_series(0, 34) i;
GRANT SELECT ON s.t, s.rest TO probes_viewer;
RESET ROLE;
CREATE VIEW w AS SELECT id, v, v <-> '[1]' AS d FROM s.t;
ALTER VIEW w OWNER TO probes_viewer;
GRANT SELECT ON w TO probes_reader;

-- Who ran the function, as which user, and how, in a session that does not know the centroids: a
-- change of the function forgets them.
CREATE FUNCTION runs(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r record;
	who name := current_user;
	path text := current_setting('search_path');
BEGIN
	ALTER FUNCTION s.centroids() COST 100;
	DELETE FROM seen;
	FOR r IN EXECUTE query LOOP
		NULL;
	END LOOP;
	IF (SELECT rolsuper FROM pg_roles WHERE rolname = 'probes_owner') THEN
		ALTER ROLE probes_owner NOSUPERUSER;
		RETURN 'superuser';
	END IF;
	RETURN coalesce((SELECT string_agg(DISTINCT concat_ws(' ', seen.who, seen.path,
		CASE WHEN restricted THEN 'restricted' END), ', ') FROM seen), 'nobody')
		|| CASE WHEN current_user <> who OR current_setting('search_path') <> path
			THEN ', rights lost' ELSE '' END;
END $$;

SET gpugraph.partition_probes = 2;
PREPARE generic(vector, int) AS SELECT id FROM s.t ORDER BY v <-> $1 LIMIT $2;
SELECT is(runs(query), 'probes_owner pg_catalog, pg_temp restricted', query) FROM unnest(ARRAY[
	$$EXPLAIN SELECT id FROM s.t ORDER BY v <-> '[1]' LIMIT 1$$,
	$$SELECT id FROM s.t ORDER BY v <-> '[1]' LIMIT 1$$,
	$$SELECT id FROM s.t ORDER BY v <-> (SELECT '[1]'::vector) LIMIT 1$$,
	$$SELECT s.id FROM (VALUES ('[1]'::vector), ('[20]')) o(q),
		LATERAL (SELECT id FROM s.t ORDER BY v <-> q LIMIT 1) s$$,
	$$SELECT id FROM w ORDER BY d LIMIT 1$$,
	$$EXPLAIN SELECT id FROM w ORDER BY d LIMIT 1$$,
	$$SELECT id FROM s.rest ORDER BY v <-> '[1]' LIMIT 1$$,
	$$SELECT id FROM s.rest ORDER BY v <-> (SELECT '[1]'::vector) LIMIT 1$$]) query;
SET plan_cache_mode = force_custom_plan;
SELECT is(runs($$EXECUTE generic('[1]', 2)$$), 'probes_owner pg_catalog, pg_temp restricted',
	'a custom plan');
SET plan_cache_mode = force_generic_plan;
SELECT is(runs($$EXECUTE generic('[1]', 2)$$), 'probes_owner pg_catalog, pg_temp restricted',
	'a generic plan, made');
SELECT is(runs($$EXECUTE generic('[20]', 2)$$), 'probes_owner pg_catalog, pg_temp restricted',
	'a generic plan, kept');
RESET plan_cache_mode;
-- rows whose partition is for several centroids, looked at one by one
SELECT is(runs($$SELECT id FROM s.t WHERE id % 2 = 0 ORDER BY v <-> '[16]' LIMIT 10$$),
	'probes_owner pg_catalog, pg_temp restricted', 'a partition for several centroids');
SET enable_partition_pruning = off;
SELECT is(runs($$SELECT id FROM s.t ORDER BY v <-> '[16]' LIMIT 10$$),
	'probes_owner pg_catalog, pg_temp restricted', 'without pruning');
RESET enable_partition_pruning;
-- a condition that an index finds is compared again where its bitmap knows pages alone
SET ROLE probes_owner;
CREATE INDEX rest_key ON s.rest_of USING brin
	(public.gpugraph_nearest_centroid('s.centroids()'::regprocedure, v));
RESET ROLE;
SET enable_seqscan = off;
SELECT is(runs($$SELECT id FROM s.rest ORDER BY v <-> '[1]' LIMIT 1$$),
	'probes_owner pg_catalog, pg_temp restricted', 'an index of the key');
RESET enable_seqscan;
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
CREATE FUNCTION found_in_parallel() RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM (SELECT id FROM s.rest WHERE id >= 0
	ORDER BY v <-> (SELECT '[1]'::vector) LIMIT 100) r $$;
SELECT is(found_in_parallel(), 16::bigint, 'workers call it, too');
RESET min_parallel_table_scan_size;
SET max_parallel_workers_per_gather = 0;
SELECT is((SELECT rolsuper FROM pg_roles WHERE rolname = 'probes_owner'), false,
	'and give no rights');

-- ---- what needs no call

SET gpugraph.partition_probes = 0;
SELECT is(runs($$SELECT id FROM s.t ORDER BY v <-> '[1]' LIMIT 1$$), 'nobody', 'no probes');
SET gpugraph.partition_probes = 4;
SELECT is(runs($$SELECT id FROM s.t ORDER BY v <-> '[1]' LIMIT 1$$), 'nobody',
	'as many as there are');
SET gpugraph.partition_probes = 2;
SELECT is(runs($$SELECT id FROM s.t ORDER BY v <-> '[1]' DESC LIMIT 1$$), 'nobody',
	'another order');
SELECT is(runs($$SELECT id FROM s.t ORDER BY v <-> '[1]'$$), 'nobody', 'no limit');

-- ---- what a user writes is the user's

SELECT is(runs(query), 'superuser', query) FROM unnest(ARRAY[
	$$SELECT gpugraph_nearest_centroid('s.centroids()', '[1]'::vector)$$,
	$$SELECT gpugraph_probe('s.centroids()', '<->', '[1]'::vector, 1)$$]) query;
SET ROLE probes_owner;
REVOKE EXECUTE ON FUNCTION s.centroids() FROM PUBLIC;
RESET ROLE;
GRANT SELECT ON s.t TO probes_reader;
SET ROLE probes_reader;
SELECT throws_ok(format(query, '''s.centroids()''::regprocedure'), '42501',
	'permission denied for function centroids', query) FROM unnest(ARRAY[
	$$SELECT gpugraph_nearest_centroid(%s, '[1]'::vector)$$,
	$$SELECT gpugraph_probe(%s, '<->', '[1]'::vector, 1)$$,
	$$SELECT id FROM s.t WHERE gpugraph_nearest_centroid(%s, v) = 1 AND
		gpugraph_nearest_centroid(%1$s, '[1]'::vector) = 1 ORDER BY v <-> '[1]' LIMIT 1$$]) query;
SELECT is(array(SELECT id FROM s.t ORDER BY v <-> '[1]' LIMIT 3), array(SELECT id FROM s.t
	ORDER BY v <-> '[1]' LIMIT 3), 'who may not call the function gets the nearest rows');
SELECT is((SELECT array_agg(id) FROM (SELECT id FROM s.t ORDER BY v <-> '[1.1]' LIMIT 3) r),
	'{1,2,0}', 'which they are');
SELECT is((SELECT array_agg(id) FROM (SELECT id FROM w ORDER BY d LIMIT 1) r), '{1}', 'by a view');
RESET ROLE;
SELECT throws_ok(format(query, argument), NULL, NULL, 'nobody calls what plans call')
	FROM unnest('{NULL,NULL::internal,''''::internal}'::text[]) argument, unnest(ARRAY[
	$$SELECT gpugraph_planned_probe('s.t'::regclass::oid, 's.centroids()'::regprocedure, 1,
		'[1]'::vector, 1, %s)$$,
	$$SELECT gpugraph_planned_nearest('s.t'::regclass::oid, 's.centroids()'::regprocedure,
		'[1]'::vector, %s)$$]) query;
SET ROLE probes_owner;
SELECT throws_ok($$CREATE AGGREGATE s.a(oid, regprocedure, vector) (
	SFUNC = gpugraph_planned_nearest, STYPE = internal)$$, NULL, NULL, 'nor by an aggregate');
RESET ROLE;

-- ---- row-level security

SET ROLE probes_owner;
ALTER TABLE s.t ENABLE ROW LEVEL SECURITY;
CREATE POLICY odd ON s.t USING (id % 2 = 1);
RESET ROLE;
SET ROLE probes_reader;
SELECT is((SELECT array_agg(id) FROM (SELECT id FROM s.t ORDER BY v <-> '[4.4]' LIMIT 3) r),
	'{5,3,7}', 'policies');
RESET ROLE;
SELECT is(runs($$SELECT id FROM s.t ORDER BY v <-> '[1]' LIMIT 1$$),
	'probes_owner pg_catalog, pg_temp restricted', 'and they do not change whose rights these are');

-- ---- EXECUTE is asked of the owner

ALTER FUNCTION s.centroids() OWNER TO CURRENT_USER;
REVOKE EXECUTE ON FUNCTION s.centroids() FROM probes_owner;
SELECT throws_ok($$SELECT id FROM s.t ORDER BY v <-> '[1]' LIMIT 1$$, '42501',
	'permission denied for function centroids', 'an owner who may not call the function');
GRANT EXECUTE ON FUNCTION s.centroids() TO probes_viewer;
GRANT probes_viewer TO probes_owner;
SELECT lives_ok($$SELECT id FROM s.t ORDER BY v <-> '[1]' LIMIT 1$$, 'but by a role he is in');
REVOKE probes_viewer FROM probes_owner;
SELECT throws_ok($$SELECT id FROM s.t ORDER BY v <-> '[1]' LIMIT 1$$, '42501',
	'permission denied for function centroids', 'until he is not');
ALTER TABLE s.t OWNER TO probes_viewer;
SELECT is(runs($$SELECT id FROM s.t ORDER BY v <-> '[1]' LIMIT 1$$),
	'probes_viewer pg_catalog, pg_temp restricted', 'a new owner');
ALTER TABLE s.t OWNER TO probes_owner;
ALTER FUNCTION s.centroids() OWNER TO probes_owner;

-- ---- names that are not qualified

CREATE FUNCTION hint_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	hint text;
	context text;
BEGIN
	EXECUTE query;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
	RETURN concat_ws(' ', SQLSTATE, hint, substring(context FROM 'called as .* pg_temp'));
END $$;
CREATE FUNCTION plain_name() RETURNS vector[] LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN RETURN '{"[0]","[10]","[20]"}'::vector[]; END $$;
CREATE TABLE plain_table (id int, v vector(1))
	PARTITION BY LIST (gpugraph_nearest_centroid('plain_name()'::regprocedure, v));
CREATE TABLE plain_1 PARTITION OF plain_table FOR VALUES IN (1);
CREATE TABLE plain_2 PARTITION OF plain_table FOR VALUES IN (2);
CREATE TABLE plain_3 PARTITION OF plain_table FOR VALUES IN (3);
INSERT INTO plain_table VALUES (1, '[1]'), (2, '[11]');
SELECT is(hint_of($$SELECT id FROM plain_table ORDER BY v <-> '[1]' LIMIT 1$$),
	'42704 Qualify the names in the function, or SET search_path on it. '
	'called as the table''s owner with search_path = pg_catalog, pg_temp', 'an unqualified type');
ALTER FUNCTION plain_name() SET search_path = public;
SELECT is((SELECT array_agg(id) FROM (SELECT id FROM plain_table ORDER BY v <-> '[1]' LIMIT 1) r),
	'{1}', 'a path of the function''s own');
CREATE OR REPLACE FUNCTION plain_name() RETURNS vector[] LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN RETURN array_agg(c) FROM some_table; END $$;
SELECT is(hint_of($$SELECT id FROM plain_table ORDER BY v <-> '[1]' LIMIT 1$$),
	'42P01 Qualify the names in the function, or SET search_path on it. '
	'called as the table''s owner with search_path = pg_catalog, pg_temp', 'an unqualified table');

-- Centroids that one user's call has returned are not another's: he chose the path.
CREATE SCHEMA trap AUTHORIZATION probes_reader;
CREATE OR REPLACE FUNCTION plain_name() RETURNS vector[] LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN RETURN numbers(); END $$;
CREATE FUNCTION numbers() RETURNS vector[] LANGUAGE sql AS
	$$ SELECT '{"[0]","[10]","[20]"}'::vector[] $$;
SET ROLE probes_reader;
CREATE FUNCTION trap.numbers() RETURNS vector[] LANGUAGE sql AS
	$$ SELECT '{"[20]","[10]","[0]"}'::vector[] $$;
SET search_path = trap, public;
SELECT is(gpugraph_nearest_centroid('plain_name()', '[1]'::vector), 3, 'a user''s own names');
RESET search_path;
RESET ROLE;
INSERT INTO plain_table VALUES (3, '[2]');
SELECT is((SELECT tableoid::regclass::text FROM plain_table WHERE id = 3), 'plain_1',
	'do not route another one''s rows');

DROP TABLE s.t, s.rest CASCADE;
DROP SCHEMA s CASCADE;
DROP SCHEMA trap CASCADE;
DROP OWNED BY probes_owner, probes_reader, probes_viewer CASCADE;
DROP ROLE probes_owner, probes_reader, probes_viewer;
SELECT * FROM finish();
