-- ALTER EXTENSION gpugraph UPDATE, from each older version, leaves the catalogs that CREATE
-- EXTENSION makes
\ir include/helpers.psql
SELECT * FROM no_plan();
\ir include/catalogs.psql

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
	RETURN NEXT is((SELECT rows FROM gpugraph_index_info('items_idx')), 500::bigint,
		version || ': what the index holds');
	RETURN QUERY SELECT lives_ok('TABLE ' || view, version || ': ' || view)
		FROM unnest('{gpugraph_stat_device,gpugraph_stat_index,gpugraph_indexes}'::text[]) view
		WHERE to_regclass(view) IS NOT NULL;

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
