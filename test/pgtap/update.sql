-- ALTER EXTENSION gpugraph UPDATE from each older version leaves what CREATE EXTENSION makes
\ir include/helpers.psql
SELECT * FROM no_plan();


-- All that belongs to the extension: what it is, its definition, privileges and comment.
CREATE FUNCTION members() RETURNS TABLE (object text, definition text, privileges text,
	initial_privileges text, owner oid, comment text) LANGUAGE sql AS $$
	SELECT pg_describe_object(d.classid, d.objid, 0),
		coalesce(pg_get_functiondef(p.oid), pg_get_viewdef(c.oid), ''),
		coalesce(p.proacl, c.relacl)::text,
		(SELECT array_agg(i.initprivs ORDER BY i.objsubid)::text FROM pg_init_privs i
			WHERE i.classoid = d.classid AND i.objoid = d.objid),
		coalesce(p.proowner, c.relowner),
		obj_description(d.objid, d.classid::regclass::name)
		FROM pg_depend d
		LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
		LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
		WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
			AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'gpugraph')
$$;

CREATE TABLE fresh AS SELECT * FROM members();
SELECT cmp_ok((SELECT count(*) FROM fresh), '>', 30::bigint, 'a fresh extension has members');
SELECT is((SELECT extversion FROM pg_extension WHERE extname = 'gpugraph'),
	(SELECT default_version FROM pg_available_extensions WHERE name = 'gpugraph'),
	'CREATE EXTENSION takes the default version');

DROP EXTENSION gpugraph;
CREATE EXTENSION gpugraph VERSION '0.1.0';
SELECT hasnt_view('gpugraph_indexes');
CREATE TABLE items AS SELECT i AS id, ARRAY[i, i % 7]::real[]::vector(2) AS val
	FROM generate_series(1, 500) i;
CREATE INDEX items_idx ON items USING gpugraph (val);

ALTER EXTENSION gpugraph UPDATE;
SELECT results_eq('SELECT * FROM members() ORDER BY object', 'SELECT * FROM fresh ORDER BY object',
	'an updated extension has the same members, definitions, privileges and comments');
SELECT is((SELECT extversion FROM pg_extension WHERE extname = 'gpugraph'),
	(SELECT default_version FROM pg_available_extensions WHERE name = 'gpugraph'),
	'ALTER EXTENSION UPDATE leads to the default version');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'an index of before is sound');
SELECT is((SELECT rows FROM gpugraph_indexes WHERE relid = 'items_idx'::regclass), 500::bigint,
	'and in the new view');
SELECT is((SELECT algorithm FROM gpugraph_index_info('items_idx')), 'cagra', 'its algorithm');
ALTER INDEX items_idx SET (algorithm = tsdg);
REINDEX INDEX items_idx;
SELECT is((SELECT algorithm FROM gpugraph_index_info('items_idx')), 'tsdg', 'and another');
SELECT is((SELECT algorithm FROM gpugraph_indexes WHERE relid = 'items_idx'::regclass), 'tsdg',
	'in the view, too');

-- each version that can be created leads to the default one
SELECT is_empty($$
	SELECT v.version FROM pg_available_extension_versions v, pg_available_extensions e
		WHERE v.name = 'gpugraph' AND e.name = 'gpugraph' AND v.version <> e.default_version
			AND NOT EXISTS (SELECT FROM pg_extension_update_paths('gpugraph') u
				WHERE u.source = v.version AND u.target = e.default_version AND u.path <> '')$$,
	'no version is without a way to the default one');

SELECT * FROM finish();
