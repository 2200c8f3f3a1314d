-- Semi-joins, EXISTS, and joins that filter, on a filter column: where the plan of the join would
-- walk far for its LIMIT, the scan is told the set. Rows are those of a plan without the index.
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 20000, 8, 20);
ALTER TABLE items ADD doc int, ADD name text;
UPDATE items SET doc = (id * 7919::bigint % 4000)::int, name = 'n' || id * 7919::bigint % 4000;
VACUUM FULL items;
CREATE INDEX items_idx ON items USING gpugraph (val, doc, name);
CREATE TABLE acl (usr int, doc int, big bigint, name varchar(9), kind int DEFAULT 1);
INSERT INTO acl SELECT 1, i * 131 % 4000, i * 131 % 4000, 'n' || i * 131 % 4000
	FROM generate_series(1, 20) i;
INSERT INTO acl SELECT 2, i, i, 'n' || i FROM generate_series(0, 2999) i;
INSERT INTO acl VALUES (1), (3);
INSERT INTO acl SELECT 1, doc, big, name, 2 FROM acl WHERE usr = 1;
CREATE INDEX ON acl (doc, usr);
CREATE TABLE docs AS SELECT doc, doc % 40 AS kind, 'title ' || doc AS title
	FROM generate_series(0, 3999) doc;
ALTER TABLE docs ADD PRIMARY KEY (doc);
ANALYZE;
SELECT val AS v FROM items WHERE id = 77 \gset
SELECT set_config('app.v', :'v', false) \g /dev/null

CREATE FUNCTION rows_of(sql text, index boolean, off text DEFAULT '') RETURNS text
	LANGUAGE plpgsql AS $$
DECLARE
	rows text;
BEGIN
	PERFORM set_config('enable_indexscan', index::text, true),
		set_config('gpugraph.disable', off, true);
	EXECUTE 'SELECT array_agg(s)::text FROM (' || sql || ') s' INTO rows;
	RETURN rows;
END $$;
CREATE TABLE shapes (told boolean, query text);
INSERT INTO shapes SELECT told, format('SELECT i.id FROM items i %s ORDER BY val <-> %L LIMIT 10',
	rest, :'v') FROM (VALUES
	(true, 'WHERE doc IN (SELECT doc FROM acl WHERE usr = 1)'),
	(true, 'WHERE doc IN (SELECT big FROM acl WHERE usr = 1)'),
	(true, 'WHERE name IN (SELECT name FROM acl WHERE usr = 1)'),
	(true, 'WHERE doc = ANY (SELECT doc FROM acl WHERE usr = 1) AND id > 3'),
	(true, 'WHERE doc IN (SELECT a.doc FROM acl a JOIN docs d USING (doc) WHERE usr = 1)'),
	(true, 'WHERE doc IN (SELECT DISTINCT doc FROM acl WHERE usr = 1 UNION SELECT 131)'),
	(true, 'WHERE EXISTS (SELECT FROM acl a WHERE a.usr = 1 AND a.doc = i.doc)'),
	(true, 'WHERE EXISTS (SELECT 1 FROM acl a WHERE i.doc = a.big AND a.usr = 1)'),
	(true, 'WHERE EXISTS (SELECT a.* FROM acl a, docs d WHERE a.doc = d.doc AND a.usr = 1
		AND i.doc = d.doc)'),
	(true, 'JOIN acl a ON a.doc = i.doc WHERE a.usr = 1 AND a.kind = 1'),
	(true, 'JOIN acl a ON a.doc = i.doc AND a.usr = 1'),
	(true, 'JOIN docs d USING (doc) WHERE d.kind = 3'),
	(true, ', docs d WHERE d.doc = i.doc AND d.kind = 3 AND title <> $$title 3$$'),
	(true, 'LEFT JOIN docs d ON d.doc = i.doc WHERE i.doc IN (SELECT doc FROM acl WHERE usr = 1)'),
	(false, 'WHERE doc IN (SELECT doc FROM acl WHERE usr = 2)'),
	(false, 'WHERE doc NOT IN (SELECT doc FROM acl WHERE usr = 1 AND doc IS NOT NULL)'),
	(false, 'WHERE NOT EXISTS (SELECT FROM acl a WHERE a.usr = 1 AND a.doc = i.doc)'),
	(false, 'WHERE big IN (SELECT doc FROM acl WHERE usr = 1)'),
	(false, 'WHERE doc IN (SELECT doc FROM acl WHERE usr = 1 ORDER BY doc LIMIT 30)'),
	(false, 'WHERE EXISTS (SELECT FROM acl a WHERE a.doc = i.doc AND a.kind < i.id AND usr = 1)'),
	(false, 'WHERE doc IN (SELECT doc FROM acl a WHERE a.usr = i.cat / 50 + 1)'),
	(false, 'LEFT JOIN docs d ON d.doc = i.doc AND d.kind = 3'),
	(false, 'JOIN acl a ON a.doc < i.doc WHERE a.usr = 3'),
	(NULL, 'LEFT JOIN acl a ON a.doc = i.doc WHERE a.doc = i.doc AND a.usr = 1'),
	(NULL, 'LEFT JOIN acl a ON a.doc = i.doc AND a.usr = 1 JOIN docs d ON d.doc = i.doc
		WHERE d.kind = 3 AND a.usr IS NOT DISTINCT FROM NULL')) t (told, rest);

-- the set is in the filter of the scan
CREATE FUNCTION is_told(query text) RETURNS boolean LANGUAGE sql AS $$
	SELECT plan ~ 'Index Scan using items_idx.*Filter: [^\n]*hashed' AND plan !~ 'Filter: .NOT '
	FROM plan_of(query) plan $$;
SELECT is(is_told(query), told, query) FROM shapes WHERE told IS NOT NULL;
SELECT is(rows_of(query, true), rows_of(query, false), 'rows: ' || query) FROM shapes;
SET gpugraph.disable = semi_joins;
SELECT ok(NOT is_told(query), 'disabled: ' || query) FROM shapes WHERE told;
RESET gpugraph.disable;
SELECT ok(NOT is_told(replace(query, 'LIMIT 10', 'LIMIT 10 FOR UPDATE OF i')), 'locked: ' || query)
	FROM shapes WHERE told;
SELECT ok(NOT is_told(replace(query, 'LIMIT 10', '')), 'no LIMIT: ' || query) FROM shapes
	WHERE told;

-- in a subquery, in LATERAL, in a view with a barrier, prepared, as a cursor
SELECT query AS first FROM shapes WHERE told LIMIT 1 \gset
SELECT ok(is_told('SELECT * FROM (' || :'first' || ') s'), 'a subquery');
SELECT ok(is_told('WITH s AS MATERIALIZED (' || :'first' || ') SELECT * FROM s'), 'a CTE');
CREATE FUNCTION volatile_usr() RETURNS int LANGUAGE sql VOLATILE AS 'SELECT 1';
SELECT ok(NOT is_told(replace(:'first', 'usr = 1', 'usr = volatile_usr()')), 'volatile');
SET plan_cache_mode = force_generic_plan;
PREPARE p(int) AS SELECT id FROM items WHERE doc IN (SELECT doc FROM acl WHERE usr = $1)
	ORDER BY val <-> current_setting('app.v')::vector LIMIT 10;
CREATE TEMP TABLE got AS EXECUTE p(1);
SELECT is((SELECT array_agg(g)::text FROM got g), rows_of(:'first', false), 'a generic plan');
DEALLOCATE p;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM items WHERE doc IN (SELECT doc FROM acl WHERE usr = 1)
	ORDER BY val <-> current_setting('app.v')::vector LIMIT 10;
MOVE 3 IN c;
DELETE FROM acl WHERE usr = 1;
FETCH 1 FROM c \gset
COMMIT;
SELECT is(:id, (SELECT g.id FROM got g OFFSET 3 LIMIT 1), 'a cursor has its snapshot');

-- rights of the table that is joined, and its policies, hold for the set
INSERT INTO acl SELECT 1, i * 131 % 4000 FROM generate_series(1, 20) i;
ANALYZE acl;
CREATE ROLE joiner;
GRANT SELECT ON items TO joiner;
SET ROLE joiner;
SELECT throws_ok(:'first', '42501', 'permission denied for table acl', 'no rights');
RESET ROLE;
GRANT SELECT ON acl TO joiner;
CREATE POLICY few ON acl USING (doc % 2 = 0);
ALTER TABLE acl ENABLE ROW LEVEL SECURITY;
GRANT SELECT ON acl, docs, shapes TO joiner;
SET ROLE joiner;
SELECT is(rows_of(query, true), rows_of(query, false), 'a policy: ' || query) FROM shapes;
RESET ROLE;
SELECT * FROM finish();
