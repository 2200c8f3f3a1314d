-- A type is what it is, not what it is called.
--
-- The bug: gpugraph_nearest_centroid, gpugraph_probe and gpugraph_partition_by_centroid took any
-- type named vector or halfvec for pgvector's. Values of a domain or an enum were followed as
-- pointers, which ended the server, and a range showed memory behind it.
-- The fix: the types are those of the extension's own functions' arguments, compared by OID. A
-- domain over one of them is what it is over.
--
-- The functions are taken from pg_proc, so a new one is tested, or its arguments are missing here.
\ir include/helpers.psql
SELECT * FROM no_plan();

\ir include/functions.psql

-- ---- types of every kind, each under both names in a schema of its own, some of them temporary

CREATE TABLE kinds (kind text, definition text, value text);
INSERT INTO kinds VALUES
	('domain_int', 'DOMAIN %s AS int4', '2147483644'),
	('domain_bigint', 'DOMAIN %s AS int8', '1'),
	('domain_text', 'DOMAIN %s AS text', '[1,2]'),
	('domain_bytea', 'DOMAIN %s AS bytea', '\x0200000000000000'),
	('domain_array', 'DOMAIN %s AS real[]', '{1,2}'),
	('enum', 'TYPE %s AS ENUM (''a'', ''b'')', 'a'),
	('range', 'TYPE %s AS RANGE (subtype = int4)', '[1,5)'),
	('composite', 'TYPE %s AS (dim int, x real)', '(1,2)');
CREATE TABLE types (kind text, type text, value text);
CREATE FUNCTION make_types() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	k record;
BEGIN
	FOR k IN SELECT *, format('is_%s.%s', kind, name) AS type FROM kinds,
		unnest('{vector,halfvec}'::text[]) name
		UNION ALL SELECT *, 'pg_temp.vector' FROM kinds, (VALUES ('')) v WHERE kind = 'enum'
		UNION ALL SELECT *, 'pg_temp.halfvec' FROM kinds, (VALUES ('')) v
		WHERE kind = 'domain_int' LOOP
		EXECUTE format('CREATE SCHEMA IF NOT EXISTS is_%s', k.kind);
		EXECUTE 'CREATE ' || format(k.definition, k.type);
		INSERT INTO types VALUES (k.kind || ' ' || k.type, k.type, k.value);
	END LOOP;
END $$;
SELECT make_types();
CREATE SCHEMA is_shell;
CREATE TYPE is_shell.vector;

-- ---- calls

-- where a function takes vectors
CREATE VIEW places AS SELECT f.oid, f, n::int AS place,
	t::regtype::text ~ '\[\]' AS is_array, t::regtype AS type
	FROM functions f, unnest(f.proargtypes::oid[]) WITH ORDINALITY u(t, n)
	WHERE t::regtype::text ~ '^public\.(vector|halfvec)(\[\])?$';

SELECT cmp_ok((SELECT count(*) FROM functions), '>', 20::bigint, 'the functions');
SELECT cmp_ok((SELECT count(*) FROM places), '>=', 12::bigint, 'and where they take vectors');
SELECT is((SELECT array_agg(DISTINCT t::regtype || ' ' || f.proargnames[n])
	FROM functions f, unnest(f.proargtypes::oid[]) WITH ORDINALITY u(t, n)
	WHERE argument(t, f.proargnames[n], false) IS NULL), NULL, 'an argument of each type is known');
SELECT lives_ok(call(f, 0, ''), proname) FROM functions f ORDER BY oid::regprocedure::text;
DROP TABLE parts;

-- what a call ends with: refused by the parser, or with 42809
CREATE FUNCTION refused(call text, codes text[], what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE call;
	RETURN fail(what || ': ' || call);
EXCEPTION WHEN OTHERS THEN
	RETURN ok(SQLSTATE = ANY (codes), format('%s: %s', what, SQLSTATE));
END $$;
SELECT refused(call(f, place, CASE WHEN is_array THEN format('ARRAY[%L::%s]', t.value, t.type)
	ELSE format('%L::%s', t.value, t.type) END), '{42883,42725}',
	format('%s of %s: %s', (f).proname, places.type, t.kind)) FROM places, types t;
SELECT refused(call(f, place, 'NULL::is_shell.vector'), '{42704}', (f).proname || ': a shell')
	FROM places;

-- ---- functions of centroids

CREATE FUNCTION refused_centroids(what text, result text, value text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
DECLARE
	f functions;
BEGIN
	EXECUTE format('CREATE FUNCTION given() RETURNS %s LANGUAGE sql IMMUTABLE AS %L', result,
		format('SELECT %s::%s', value, result));
	FOR f IN SELECT * FROM functions WHERE 'regprocedure'::regtype = ANY (proargtypes::oid[]) LOOP
		RETURN NEXT refused(call(f, 1, '''given()''::regprocedure'), '{42809}',
			format('%s: centroids of %s', f.proname, what));
	END LOOP;
	DROP FUNCTION given();
END $$;
SELECT refused_centroids(kind, type || '[]', format('ARRAY[%L, %L]', value, value)) FROM types;
SELECT refused_centroids(kind || ', no array', type, quote_literal(value)) FROM types;
CREATE DOMAIN is_enum.list AS is_enum.vector[];
SELECT refused_centroids('a domain over an array of an enum', 'is_enum.list', '''{a,b}''');
SELECT refused_centroids('halfvec', 'public.halfvec[]', '''{"[1,2]"}''');
SELECT refused_centroids('sparsevec', 'sparsevec[]', '''{"{1:1}/2"}''');
SELECT refused_centroids('vector', 'public.vector', '''[1,2]''');

-- ---- columns

CREATE FUNCTION refused_column(what text, type text, value text) RETURNS SETOF text
LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE given (val %s)', type);
	EXECUTE format('INSERT INTO given SELECT %s::%s FROM generate_series(1, 10)', value, type);
	CREATE VIEW given_view AS SELECT * FROM given;
	RETURN QUERY SELECT refused(format('SELECT gpugraph_partition_by_centroid(%L, ''val'',
		''parts'', 2)', source), '{42809}', format('%s of %s', source, what))
		FROM unnest('{given,given_view}'::text[]) source;
	RETURN NEXT refused('CREATE INDEX ON given USING gpugraph (val vector_l2_ops)',
		'{42804,42704}', 'an index of ' || what);
	RETURN NEXT refused('CREATE INDEX ON given USING gpugraph (val halfvec_l2_ops)',
		'{42804,42704}', 'an index of ' || what);
	DROP TABLE given CASCADE;
END $$;
SELECT refused_column(kind, type, quote_literal(value)) FROM types;
SELECT refused_column('array of ' || kind, type || '[]', format('ARRAY[%L, %L]', value, value))
	FROM types;
SELECT refused_column('sparsevec', 'sparsevec', '''{1:1}/2''');
SELECT throws_ok('CREATE TABLE given (val is_shell.vector)', '42704', NULL,
	'a column of a shell type cannot be');

-- ---- domains over the types themselves

CREATE SCHEMA d;
CREATE DOMAIN d.vector AS public.vector;
CREATE DOMAIN d.halfvec AS d.vector;
CREATE DOMAIN d.half AS public.halfvec(2);
CREATE DOMAIN d.vectors AS d.vector[];
CREATE FUNCTION of_domain() RETURNS d.vector[] LANGUAGE sql IMMUTABLE AS
	$$ SELECT '{"[0,0]","[1,1]"}'::d.vector[] $$;
CREATE FUNCTION of_domains() RETURNS d.vectors LANGUAGE sql IMMUTABLE AS
	$$ SELECT '{"[0,0]","[1,1]"}'::d.vectors $$;
SELECT is(array(SELECT gpugraph_nearest_centroid(f::regprocedure, '[0.9,0.8]'::d.vector)
	FROM unnest('{two(),of_domain(),of_domains()}'::text[]) f), '{2,2,2}',
	'are what they are over');
SELECT is(gpugraph_nearest_centroid('two()', '[0.9,0.8]'::d.half), 2, 'halfvec, too');
SELECT is(gpugraph_probe('two()', '<->', '[0.9,0.8]'::d.halfvec, 1), 2,
	'a domain over a domain, and its name is no matter');
SELECT is((SELECT count(*) FROM gpugraph_search('items_idx',
	'{"[1,1]","[2,2]"}'::d.vectors::public.vector[], 3)), 6::bigint, 'an array of a domain');
CREATE TABLE of_domains (id int, v d.vector, h d.half);
INSERT INTO of_domains SELECT id, val, half FROM items;
SELECT lives_ok($$SELECT gpugraph_partition_by_centroid('of_domains', 'v', 'd.parts', 3)$$,
	'a column of a domain');
SELECT lives_ok($$SELECT gpugraph_partition_by_centroid('of_domains', 'h', 'd.half_parts', 3)$$,
	'a column of a domain over halfvec');
-- a function of the domain's own is not taken for the extension's
CREATE FUNCTION gpugraph_nearest_centroid(centroids regprocedure, value d.vector) RETURNS int
	LANGUAGE sql IMMUTABLE AS 'SELECT 1';
SELECT lives_ok($$SELECT gpugraph_partition_by_centroid('of_domains', 'v', 'd.other', 3)$$,
	'beside a function of the same name');
INSERT INTO d.other SELECT * FROM of_domains;
SELECT is((SELECT count(*) FROM d.other WHERE tableoid <> format('d.other_%s', (SELECT c
	FROM unnest(d.other_centroids()) WITH ORDINALITY u(c_v, c)
	ORDER BY c_v::public.vector <-> v::public.vector LIMIT 1))::regclass), 0::bigint,
	'rows are with their nearest centroids');
SELECT * FROM finish();
