-- ALTER EXTENSION gpugraph UPDATE, from each older version, leaves the catalogs that CREATE
-- EXTENSION makes
\ir include/helpers.psql
SELECT * FROM no_plan();

-- What the catalogs say of the extension, without the numbers that each creation draws anew: rows
-- of its objects, and of what depends on these and goes with them (entries of operator families,
-- row types and rules of views).
CREATE FUNCTION catalogs() RETURNS TABLE (catalog text, object text, says jsonb)
	LANGUAGE sql AS $$
	WITH RECURSIVE own(classid, objid) AS (
		SELECT d.classid, d.objid FROM pg_depend d, pg_extension e
			WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
				AND d.deptype = 'e' AND e.extname = 'gpugraph'
		UNION
		SELECT d.classid, d.objid FROM own o
			JOIN pg_depend d ON (d.refclassid, d.refobjid) = (o.classid, o.objid)
			WHERE d.deptype IN ('i', 'a')
			-- a TOAST table, which is named for an oid
			AND NOT EXISTS (SELECT FROM pg_class c WHERE d.classid = 'pg_class'::regclass
				AND c.oid = d.objid AND c.relnamespace = 'pg_toast'::regnamespace)
	)
	SELECT 'pg_depend', pg_describe_object(d.classid, d.objid, d.objsubid),
		jsonb_build_array(pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid), d.deptype)
		FROM own JOIN pg_depend d USING (classid, objid)
	UNION ALL SELECT 'pg_description', pg_describe_object(classid, objid, objsubid),
		to_jsonb(description)
		FROM own JOIN pg_description ON (classoid, objoid) = (classid, objid)
	UNION ALL SELECT 'pg_init_privs', pg_describe_object(classid, objid, objsubid),
		jsonb_build_array(privtype, initprivs)
		FROM own JOIN pg_init_privs ON (classoid, objoid) = (classid, objid)
	-- definitions instead of trees, in which positions in the script differ
	UNION ALL SELECT 'pg_proc', p.oid::regprocedure::text, to_jsonb(p)
		- '{oid,proargdefaults}'::text[] || jsonb_build_object('is', pg_get_functiondef(p.oid))
		FROM own JOIN pg_proc p ON classid = 'pg_proc'::regclass AND oid = objid
	UNION ALL SELECT 'pg_views', v.viewname, to_jsonb(v)
		FROM own JOIN pg_class c ON classid = 'pg_class'::regclass AND oid = objid
		JOIN pg_views v ON v.viewname = c.relname AND v.schemaname::regnamespace = relnamespace
	UNION ALL SELECT 'pg_class', c.relname, to_jsonb(c)
		- '{oid,reltype,relfilenode,reltoastrelid,relfrozenxid,relminmxid}'::text[]
		FROM own JOIN pg_class c ON classid = 'pg_class'::regclass AND oid = objid
	-- without options, where some builds of PostgreSQL keep a number that differs each time
	UNION ALL SELECT 'pg_attribute', pg_describe_object(classid, objid, attnum),
		to_jsonb(a) - '{attrelid,attoptions}'::text[]
		FROM own JOIN pg_attribute a ON classid = 'pg_class'::regclass AND attrelid = objid
	UNION ALL SELECT 'pg_am', a.amname, to_jsonb(a) - 'oid'
		FROM own JOIN pg_am a ON classid = 'pg_am'::regclass AND oid = objid
	UNION ALL SELECT 'pg_opfamily', pg_describe_object(classid, objid, 0),
		to_jsonb(f) - '{oid,opfmethod}'::text[]
		FROM own JOIN pg_opfamily f ON classid = 'pg_opfamily'::regclass AND oid = objid
	UNION ALL SELECT 'pg_opclass', pg_describe_object(classid, objid, 0),
		to_jsonb(c) - '{oid,opcmethod,opcfamily}'::text[]
			|| jsonb_build_object('of', pg_describe_object('pg_opfamily'::regclass, opcfamily, 0))
		FROM own JOIN pg_opclass c ON classid = 'pg_opclass'::regclass AND oid = objid
	UNION ALL SELECT 'pg_amop', pg_describe_object(classid, objid, 0),
		to_jsonb(o) - '{oid,amopfamily,amopmethod}'::text[]
		FROM own JOIN pg_amop o ON classid = 'pg_amop'::regclass AND oid = objid
	UNION ALL SELECT 'pg_amproc', pg_describe_object(classid, objid, 0),
		to_jsonb(p) - '{oid,amprocfamily}'::text[]
		FROM own JOIN pg_amproc p ON classid = 'pg_amproc'::regclass AND oid = objid
$$;

CREATE TABLE fresh AS SELECT * FROM catalogs();
SELECT is_empty($$
	SELECT unnest('{pg_depend,pg_description,pg_init_privs,pg_proc,pg_views,pg_class,pg_attribute,
		pg_am,pg_opfamily,pg_opclass,pg_amop,pg_amproc}'::text[])
	EXCEPT SELECT catalog FROM fresh$$,
	'a fresh extension is in all of these catalogs');
SELECT cmp_ok((SELECT count(*) FROM fresh WHERE says->>0 = 'extension gpugraph'), '>',
	30::bigint, 'and has many members');
CREATE FUNCTION default_version() RETURNS text LANGUAGE sql AS $$
	SELECT default_version FROM pg_available_extensions WHERE name = 'gpugraph' $$;
CREATE FUNCTION version_now() RETURNS text LANGUAGE sql AS $$
	SELECT extversion FROM pg_extension WHERE extname = 'gpugraph' $$;
SELECT is(version_now(), default_version(), 'CREATE EXTENSION takes the default version');

CREATE TABLE items AS SELECT i AS id, ARRAY[i, i % 7]::real[]::vector(2) AS val
	FROM generate_series(1, 500) i;

-- from the version to the default one, with an index that an older version made
CREATE FUNCTION updates(version text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	DROP EXTENSION gpugraph CASCADE;
	EXECUTE format('CREATE EXTENSION gpugraph VERSION %L', version);
	RETURN NEXT is(version_now(), version, version || ' can be created');
	RETURN NEXT isnt_empty('TABLE fresh EXCEPT SELECT * FROM catalogs()',
		version || ' lacks what came later');
	CREATE INDEX items_idx ON items USING gpugraph (val);
	RETURN QUERY SELECT throws_like(query,
		'%is of another version of gpugraph than its library', version || ': ' || query)
		FROM unnest(ARRAY['SELECT * FROM gpugraph_index_info(''items_idx'')',
			'TABLE gpugraph_stat_device', 'TABLE gpugraph_stat_index']) query;
	IF version <> '0.1.0' THEN
		RETURN NEXT throws_ok('TABLE gpugraph_indexes', '55000', NULL, version || ': a view');
	END IF;

	ALTER EXTENSION gpugraph UPDATE;
	RETURN NEXT is(version_now(), default_version(), version || ' leads to the default version');
	RETURN NEXT is_empty('
		(SELECT ''fresh'', f.* FROM (TABLE fresh EXCEPT ALL SELECT * FROM catalogs()) f)
		UNION ALL
		(SELECT ''updated'', u.* FROM (SELECT * FROM catalogs() EXCEPT ALL TABLE fresh) u)',
		version || ': catalogs after the update are those of a fresh extension');
	RETURN NEXT lives_ok('SELECT gpugraph_check(''items_idx'', true)',
		version || ': an index of before is sound');
	RETURN NEXT is((SELECT rows FROM gpugraph_indexes WHERE relid = 'items_idx'::regclass),
		500::bigint, version || ': and in the new view');
	RETURN NEXT is((SELECT algorithm FROM gpugraph_index_info('items_idx')), 'cagra',
		version || ': its algorithm');
END $$;

SELECT is_empty($$
	SELECT unnest('{0.1.0,1.0.0,1.1.0}'::text[]) EXCEPT
	SELECT version FROM pg_available_extension_versions WHERE name = 'gpugraph'$$,
	'every version that was released can be created');
SELECT updates(version) FROM pg_available_extension_versions
	WHERE name = 'gpugraph' AND version <> default_version() ORDER BY version;

ALTER INDEX items_idx SET (algorithm = tsdg);
REINDEX INDEX items_idx;
SELECT is((SELECT algorithm FROM gpugraph_index_info('items_idx')), 'tsdg', 'another algorithm');
SELECT is((SELECT algorithm FROM gpugraph_indexes WHERE relid = 'items_idx'::regclass), 'tsdg',
	'in the view, too');

SELECT * FROM finish();
