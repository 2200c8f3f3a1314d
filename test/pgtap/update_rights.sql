-- ALTER EXTENSION gpugraph UPDATE leaves what users have made of the extension's functions and
-- views: rights granted and revoked, with and without GRANT OPTION, and views of their own
\ir include/helpers.psql
SELECT * FROM no_plan();

CREATE TABLE items AS SELECT i AS id, ARRAY[i, i % 7]::real[]::vector(2) AS val
	FROM generate_series(1, 500) i;
CREATE ROLE gg_one;
CREATE ROLE gg_two;
CREATE SCHEMA own;
GRANT USAGE, CREATE ON SCHEMA own TO gg_one;

-- Rights on all that the extension has, and the definitions of what is made of it.
CREATE FUNCTION rights() RETURNS TABLE (object text, says text) LANGUAGE sql AS $$
	SELECT c.oid::regclass::text, c.relacl::text FROM pg_class c
		JOIN pg_depend d ON d.classid = 'pg_class'::regclass::oid AND d.objid = c.oid
		JOIN pg_extension e ON d.refobjid = e.oid WHERE e.extname = 'gpugraph'
	UNION ALL SELECT a.attrelid::regclass || '.' || a.attname, a.attacl::text FROM pg_attribute a
		WHERE a.attacl IS NOT NULL
	UNION ALL SELECT p.oid::regprocedure::text, p.proacl::text FROM pg_catalog.pg_proc p
		JOIN pg_depend d ON d.classid = 'pg_catalog.pg_proc'::regclass::oid AND d.objid = p.oid
		JOIN pg_extension e ON d.refobjid = e.oid WHERE e.extname = 'gpugraph'
	UNION ALL SELECT c.oid::regclass::text, pg_get_viewdef(c.oid) FROM pg_class c
		WHERE c.relnamespace = 'own'::regnamespace::oid AND c.relkind = 'v'
$$;

-- What has the names of the catalogs' own objects, where somebody else may create.
CREATE FUNCTION lure(oid, regclass) RETURNS boolean LANGUAGE plpgsql AS
	$$ BEGIN RAISE EXCEPTION 'lured'; END $$;
CREATE FUNCTION lure(oid, regprocedure) RETURNS boolean LANGUAGE plpgsql AS
	$$ BEGIN RAISE EXCEPTION 'lured'; END $$;
CREATE OPERATOR = (FUNCTION = lure, LEFTARG = oid, RIGHTARG = regclass);
CREATE OPERATOR = (FUNCTION = lure, LEFTARG = oid, RIGHTARG = regprocedure);
CREATE FUNCTION current_database() RETURNS name LANGUAGE plpgsql AS
	$$ BEGIN RAISE EXCEPTION 'lured'; END $$;
CREATE TEMP TABLE pg_proc (oid oid, proallargtypes oid[], proargmodes "char"[], proargnames text[]);
CREATE TEMP TABLE gpugraph_indexes (id int);

CREATE FUNCTION use_it(version text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	func text;
	rel text;
BEGIN
	DROP EXTENSION gpugraph CASCADE;
	EXECUTE format('CREATE EXTENSION gpugraph VERSION %L', version);
	CREATE INDEX items_idx ON items USING gpugraph (val);
	FOR func IN SELECT p.oid::regprocedure FROM pg_catalog.pg_proc p
		WHERE p.proname IN ('gpugraph_index_info', 'gpugraph_stat_get_device',
			'gpugraph_stat_get_index', 'gpugraph_get_index')
	LOOP
		EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC, pg_monitor;
			GRANT EXECUTE ON FUNCTION %1$s TO gg_one WITH GRANT OPTION;
			SET ROLE gg_one; GRANT EXECUTE ON FUNCTION %1$s TO gg_two; RESET ROLE', func);
	END LOOP;
	FOR rel IN SELECT c.oid::regclass FROM pg_class c
		WHERE c.relname IN ('gpugraph_stat_device', 'gpugraph_stat_index', 'gpugraph_indexes')
			AND c.relkind = 'v'
	LOOP
		EXECUTE format('REVOKE SELECT ON %s FROM PUBLIC, pg_monitor;
			GRANT SELECT ON %1$s TO gg_one WITH GRANT OPTION;
			GRANT SELECT (state) ON %1$s TO gg_two;
			SET ROLE gg_one; GRANT SELECT ON %1$s TO gg_two;
			CREATE VIEW own.of_%2$s AS SELECT * FROM %1$s; RESET ROLE',
			rel, split_part(rel, '.', -1));
	END LOOP;
	CREATE VIEW own.of_index_info AS SELECT * FROM gpugraph_index_info('items_idx');
	CREATE VIEW own.of_devices AS
		SELECT to_json(d) AS d, d.stats_reset FROM gpugraph_stat_get_device() d;
	CREATE VIEW own.of_stat AS SELECT last_error, relid FROM gpugraph_stat_get_index();
END $$;

CREATE FUNCTION updates(version text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	before text[];
	rel regclass;
BEGIN
	PERFORM use_it(version);
	before := (SELECT array_agg(r::text ORDER BY r) FROM rights() r);
	RETURN NEXT cmp_ok(cardinality(before), '>', 30, version || ': there are rights');
	ALTER EXTENSION gpugraph UPDATE;
	RETURN NEXT is_empty(format('SELECT unnest(%L::text[]) EXCEPT SELECT r::text FROM rights() r',
		before), version || ': all rights and views are as they were');
	FOR rel IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'own'::regnamespace::oid
	LOOP
		RETURN NEXT lives_ok(format('TABLE %s', rel), version || ': ' || rel);
	END LOOP;
	RETURN NEXT is((SELECT rows FROM own.of_index_info), 500::bigint, version || ': its columns');
	RETURN NEXT is(has_function_privilege('gg_two', 'gpugraph_index_info(regclass)', 'EXECUTE')
		AND NOT has_function_privilege('pg_monitor', 'gpugraph_index_info(regclass)', 'EXECUTE'),
		true, version || ': who may');
	DROP SCHEMA own CASCADE;
	CREATE SCHEMA own;
	GRANT USAGE, CREATE ON SCHEMA own TO gg_one;
END $$;
SELECT updates(version) FROM pg_available_extension_versions
	WHERE name = 'gpugraph' AND version IN ('0.1.0', '1.0.0', '1.1.0') ORDER BY version;

SELECT * FROM finish();
DROP EXTENSION gpugraph CASCADE;
DROP OWNED BY gg_one, gg_two;
DROP ROLE gg_one, gg_two;
