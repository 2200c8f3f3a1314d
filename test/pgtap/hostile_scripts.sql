-- CREATE EXTENSION and ALTER EXTENSION UPDATE make the same objects, and run nothing of another's,
-- whatever search_path they are called with, and whatever lies in pg_temp and in schemas on it.
\ir include/helpers.psql
SELECT * FROM no_plan();
\ir include/catalogs.psql

CREATE TABLE public.fresh AS SELECT * FROM catalogs();
DROP EXTENSION gpugraph;

CREATE ROLE scripts_evil;
CREATE SCHEMA evil AUTHORIZATION scripts_evil;
CREATE TABLE public.called (by text, who name);
GRANT INSERT ON public.called TO PUBLIC;

-- Types, tables, functions, operators and casts of the names that the scripts use, in a schema.
-- Functions tell that they were called.
CREATE FUNCTION make_evil(schema text) RETURNS void LANGUAGE plpgsql AS $make$
DECLARE
	type text;
	op text;
	name text;
	arguments text;
BEGIN
	FOREACH type IN ARRAY '{vector,halfvec}'::text[] LOOP
		EXECUTE format('CREATE TYPE %s.%I AS ENUM (''a'', ''b'')', schema, type);
		EXECUTE format('CREATE FUNCTION %s.cast_of(%1$s.%I) RETURNS int LANGUAGE plpgsql IMMUTABLE
			AS ''BEGIN INSERT INTO public.called VALUES (''''cast'''', current_user);
			RETURN 1; END''', schema, type);
		EXECUTE format('CREATE CAST (%s.%I AS int) WITH FUNCTION %1$s.cast_of(%1$s.%2$I)
			AS IMPLICIT', schema, type);
	END LOOP;
	FOR op, arguments IN SELECT o, t FROM unnest('{<->,<#>,<=>,<+>,=,<,<=,>=,>,&&,@>}'::text[]) o,
		(VALUES (schema || '.vector'), (schema || '.halfvec'), ('public.vector'),
		('public.halfvec'), ('pg_catalog.oid'), ('pg_catalog.name'), ('pg_catalog.text'),
		('pg_catalog.int4'), ('pg_catalog.bool'), ('pg_catalog.anyenum'), ('pg_catalog.anyarray'),
		('pg_catalog.uuid')) v(t) LOOP
		EXECUTE format('CREATE OR REPLACE FUNCTION %s.op(%s, %2$s) RETURNS boolean
			LANGUAGE plpgsql IMMUTABLE AS ''BEGIN INSERT INTO public.called
			VALUES (''''operator'''', current_user); RETURN NULL; END''', schema, arguments);
		IF schema <> 'pg_temp' THEN
			EXECUTE format('CREATE OPERATOR %s.%s (LEFTARG = %s, RIGHTARG = %3$s,
				FUNCTION = %1$s.op)', schema, op, arguments);
		END IF;
	END LOOP;
	FOREACH name IN ARRAY '{gpugraph_handler,gpugraph_vector_l2_support,gpugraph_stat_get_index,
		gpugraph_stat_get_device,gpugraph_stat_get_merge,gpugraph_get_index,current_database,format,
		set_config,quote_ident,array_agg,to_regtype}'::text[] LOOP
		FOREACH arguments IN ARRAY '{"",oid,text,name,"oid, boolean","text, text"}'::text[] LOOP
			EXECUTE format('CREATE FUNCTION %s.%I(%s) RETURNS text LANGUAGE plpgsql AS
				''BEGIN INSERT INTO public.called VALUES (''''%2$s'''', current_user);
				RETURN NULL; END''', schema, name, arguments);
		END LOOP;
	END LOOP;
	FOREACH name IN ARRAY '{pg_database,pg_class,pg_am,pg_index,pg_namespace,pg_proc,pg_depend,
		pg_extension,gpugraph_stat_index,gpugraph_indexes,gpugraph_stat_device,
		gpugraph_stat_merge}'::text[] LOOP
		EXECUTE format('CREATE TABLE %s.%I (oid oid, datname text, relname text)', schema, name);
	END LOOP;
END $make$;
SET ROLE scripts_evil;
SELECT public.make_evil('evil');
SELECT public.make_evil('pg_temp');
RESET ROLE;

-- Operators are the script's own, and nothing was called.
CREATE FUNCTION scripts(path text, version text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('search_path', path, true);
	EXECUTE pg_catalog.format('CREATE EXTENSION gpugraph SCHEMA public VERSION %L', version);
	ALTER EXTENSION gpugraph UPDATE;
	SET LOCAL search_path = pg_catalog, public, pg_temp;
	RETURN NEXT is_empty('
		(SELECT ''fresh'', f.* FROM (TABLE fresh EXCEPT ALL SELECT * FROM catalogs()) f)
		UNION ALL
		(SELECT ''hostile'', u.* FROM (SELECT * FROM catalogs() EXCEPT ALL TABLE fresh) u)',
		pg_catalog.format('from %s, under %s: the same catalogs', version, path));
	RETURN NEXT is_empty('TABLE called', 'and nothing else ran');
	DROP EXTENSION gpugraph;
END $$;
SELECT public.scripts(path, version) FROM unnest(ARRAY['public', 'evil, public',
	'evil, pg_catalog, public', 'pg_temp, evil, pg_catalog, public', 'pg_temp']) path,
	pg_available_extension_versions WHERE name = 'gpugraph' ORDER BY path, version;

-- ---- a schema where others create objects, and pgvector is in another one

RESET search_path;
DROP EXTENSION vector CASCADE;
CREATE SCHEMA types;
CREATE SCHEMA extensions;
CREATE EXTENSION vector SCHEMA types;
GRANT CREATE, USAGE ON SCHEMA extensions, types TO scripts_evil;
CREATE FUNCTION refused(statement text, type text, ops text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
	op text;
BEGIN
	SET LOCAL ROLE scripts_evil;
	IF type ~ '^extensions' THEN
		EXECUTE format('CREATE TYPE %s AS ENUM (''a'')', type);
	END IF;
	EXECUTE format('CREATE FUNCTION extensions.evil(%s, %1$s) RETURNS float8
		LANGUAGE sql IMMUTABLE AS ''SELECT 1.0::float8''', type);
	FOREACH op IN ARRAY string_to_array(ops, ' ') LOOP
		EXECUTE format('CREATE OPERATOR extensions.%s (LEFTARG = %s, RIGHTARG = %2$s,
			FUNCTION = extensions.evil)', op, type);
	END LOOP;
	RESET ROLE;
	RETURN NEXT throws_ok(statement, '42710',
		'types or operators of extension gpugraph are not those of extension vector',
		format('%s, where there is %s with %s', statement, type, ops));
	DROP OWNED BY scripts_evil CASCADE;
	GRANT CREATE, USAGE ON SCHEMA extensions, types TO scripts_evil;
END $$;
SELECT refused('CREATE EXTENSION gpugraph SCHEMA extensions', type, ops) FROM (VALUES
	('types.vector', '<->'), ('types.halfvec', '<+>'),
	('extensions.vector', '<-> <#> <=> <+>'), ('extensions.halfvec', '<-> <#> <=> <+>'))
	v(type, ops);
CREATE EXTENSION gpugraph SCHEMA extensions VERSION '1.1.0';
SELECT refused('ALTER EXTENSION gpugraph UPDATE', 'extensions.vector', '<->');
SELECT lives_ok('ALTER EXTENSION gpugraph UPDATE', 'once they are gone');
DROP OWNED BY scripts_evil CASCADE;
DROP ROLE scripts_evil;
SELECT * FROM finish();
