-- Functions of an index's expressions and predicates have the rights of the table's owner, whoever
-- makes the extension run them.
--
-- The bug: gpugraph_recall, gpugraph_itopk_size, gpugraph_knn_graph and, of rows stored as float16,
-- gpugraph_search ran them as the caller. An owner became superuser when a superuser called one.
-- The fix: they run as the owner in a restricted operation, with a search_path of the system's, so
-- that a caller cannot lend the owner's rights to functions of his own either. A function that gave
-- NULL for a row that is indexed crashed the server. It is an error now.
--
-- All that may run such code is listed here: SQL functions, statements, VACUUM and merges. Workers
-- are in test/t/owner_rights.pl.
\ir include/helpers.psql
SELECT * FROM no_plan();

CREATE ROLE rights_owner;
CREATE ROLE rights_reader;
CREATE ROLE rights_writer;
CREATE SCHEMA s AUTHORIZATION rights_owner;
GRANT USAGE ON SCHEMA s TO PUBLIC;
CREATE TABLE seen (entry text, what text, who name, path text, restricted boolean);
GRANT INSERT ON seen TO PUBLIC;
-- readable by all, so that entry_was() can be
GRANT SELECT ON seen TO PUBLIC;

-- what the owner's functions try: to be superuser, and to leave the owner's rights
SET ROLE rights_owner;
CREATE FUNCTION s.attack(what text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	restricted boolean := false;
BEGIN
	BEGIN
		PERFORM pg_catalog.set_config('role', current_user, true);
	EXCEPTION WHEN insufficient_privilege THEN
		restricted := true;
	END;
	INSERT INTO public.seen VALUES (current_setting('test.entry', true), what, current_user,
		current_setting('search_path'), restricted);
	BEGIN
		ALTER ROLE rights_owner SUPERUSER;
	EXCEPTION WHEN insufficient_privilege THEN
		NULL;
	END;
END $$;
CREATE FUNCTION s.key(v public.vector) RETURNS public.vector LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM s.attack('key');
	RETURN v;
END $$;
CREATE FUNCTION s.filter(id int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM s.attack('filter');
	RETURN id;
END $$;
CREATE FUNCTION s.predicate(id int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM s.attack('predicate');
	RETURN true;
END $$;
-- the planner runs it when it simplifies expressions, before any row is read
CREATE FUNCTION s.constant() RETURNS public.vector LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM s.attack('constant');
	RETURN '[0,0,0]';
END $$;

RESET ROLE;

-- Who ran what: 'key as rights_owner', ... ; superuser when the attack has succeeded.
CREATE FUNCTION entry_was(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	SELECT string_agg(DISTINCT what || ' as ' || who, ', ' ORDER BY what || ' as ' || who)
		INTO result FROM seen WHERE entry = name;
	IF (SELECT rolsuper FROM pg_roles WHERE rolname = 'rights_owner') THEN
		result := concat(result, ', which is superuser now');
		ALTER ROLE rights_owner NOSUPERUSER;
	END IF;
	RETURN coalesce(result, 'nothing');
END $$;

-- Run a statement, and tell what it ran.
CREATE FUNCTION runs(entry text, wanted text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	path text := current_setting('search_path');
	who name := current_user;
BEGIN
	-- so that expressions are simplified anew
	ALTER INDEX s.halves SET (seal_rows = 1000);
	ALTER INDEX s.floats SET (seal_rows = 1000);
	ALTER INDEX s.plain SET (seal_rows = 1000);
	ALTER INDEX s.constants SET (seal_rows = 1000);
	PERFORM set_config('test.entry', entry, false);
	EXECUTE statement;
	RETURN is(entry_was(entry) || CASE WHEN current_user <> who OR
		current_setting('search_path') <> path THEN ', rights lost' ELSE '' END, wanted, entry);
END $$;

SET ROLE rights_owner;
CREATE TABLE s.items (id int, val public.vector(3));
INSERT INTO s.items SELECT i, ARRAY[i, i % 7, 0]::real[]::public.vector
	FROM generate_series(1, 40) i;
RESET ROLE;

-- statements; those that cannot run in a function come first

CREATE FUNCTION ran(name text, wanted text) RETURNS text LANGUAGE sql AS $$
	SELECT is(entry_was(name), wanted, name) $$;

SET test.entry = 'CREATE INDEX';
CREATE INDEX halves ON s.items
	USING gpugraph ((s.key(val)::vector(3)) vector_l2_ops, (s.filter(id)))
	WITH (storage = float16) WHERE s.predicate(id);
SELECT ran('CREATE INDEX',
	'filter as rights_owner, key as rights_owner, predicate as rights_owner');
CREATE INDEX floats ON s.items USING gpugraph ((s.key(val)::vector(3)) vector_l2_ops)
	WHERE s.predicate(id);
CREATE INDEX plain ON s.items USING gpugraph (val vector_l2_ops, (s.filter(id)))
	WITH (storage = float16);
CREATE INDEX constants ON s.items USING gpugraph (((val + s.constant())::vector(3)) vector_l2_ops);

SET test.entry = 'CREATE INDEX CONCURRENTLY';
CREATE INDEX CONCURRENTLY again ON s.items USING gpugraph ((s.key(val)::vector(3)) vector_l2_ops);
SELECT ran('CREATE INDEX CONCURRENTLY', 'key as rights_owner');
SET test.entry = 'REINDEX';
REINDEX INDEX s.again;
SELECT ran('REINDEX', 'key as rights_owner');
SET test.entry = 'REINDEX CONCURRENTLY';
REINDEX INDEX CONCURRENTLY s.again;
SELECT ran('REINDEX CONCURRENTLY', 'key as rights_owner');
DROP INDEX s.again;

-- The executor gives every index its values, as the user that inserts. The access method adds none.
GRANT INSERT ON s.items TO rights_writer;
SET test.entry = 'INSERT';
SET ROLE rights_writer;
INSERT INTO s.items VALUES (41, '[41,6,0]'), (42, '[42,0,0]');
RESET ROLE;
SELECT is((SELECT string_agg(what || ' ' || n, ', ' ORDER BY what) FROM
	(SELECT what, count(*) AS n FROM seen WHERE entry = 'INSERT' AND who = 'rights_writer'
	GROUP BY what) s), 'constant 1, filter 4, key 4, predicate 4',
	'INSERT: once for each of two rows and each of two indexes');

-- VACUUM seals the delta and merges: both read what is stored
SET test.entry = 'VACUUM';
ALTER INDEX s.floats SET (seal_rows = 1);
ALTER INDEX s.halves SET (seal_rows = 1);
DELETE FROM s.items WHERE id % 10 = 0;
VACUUM (INDEX_CLEANUP ON) s.items;
SELECT ran('VACUUM', 'nothing');

-- functions

SELECT runs('gpugraph_check', 'nothing', $$SELECT gpugraph_check('s.halves')$$);
SELECT runs('gpugraph_check of the table', 'filter as rights_owner, key as rights_owner, '
	'predicate as rights_owner', $$SELECT gpugraph_check('s.halves', true)$$);
SELECT runs('gpugraph_index_info', 'nothing', $$SELECT gpugraph_index_info('s.halves')$$);
SELECT runs('gpugraph_merge', 'nothing', $$SELECT gpugraph_merge('s.halves')$$);
SELECT runs('gpugraph_prewarm', 'nothing', $$SELECT gpugraph_prewarm('s.halves')$$);
SELECT runs('gpugraph_evict', 'nothing', $$SELECT gpugraph_evict('s.halves')$$);
SELECT runs('gpugraph_indexes', 'nothing', 'SELECT * FROM gpugraph_indexes');
SELECT runs('gpugraph_stat_index', 'nothing', 'SELECT * FROM gpugraph_stat_index');
SELECT runs('gpugraph_stat_merge', 'nothing', 'SELECT * FROM gpugraph_stat_merge');
SELECT runs('gpugraph_stat_device', 'nothing', 'SELECT * FROM gpugraph_stat_device');

-- the key alone is needed, where rows are read from the table
SELECT runs('gpugraph_recall', 'key as rights_owner',
	$$SELECT gpugraph_recall('s.halves', 2, 3)$$);
SELECT runs('gpugraph_itopk_size', 'key as rights_owner',
	$$SELECT gpugraph_itopk_size('s.halves', 2, 0.5, 3)$$);
SELECT runs('gpugraph_knn_graph in FROM', 'key as rights_owner',
	$$SELECT count(*) FROM gpugraph_knn_graph('s.halves', 2)$$);
SELECT runs('gpugraph_knn_graph in a select list', 'key as rights_owner',
	$$SELECT gpugraph_knn_graph('s.halves', 2)$$);
SELECT runs('gpugraph_search', 'key as rights_owner',
	$$SELECT count(*) FROM gpugraph_search('s.halves', '{"[1,0,0]","[2,0,0]"}'::vector[], 2)$$);
SELECT runs('gpugraph_recall of float32', 'key as rights_owner',
	$$SELECT gpugraph_recall('s.floats', 2, 3)$$);
SELECT runs('gpugraph_knn_graph of float32', 'key as rights_owner',
	$$SELECT count(*) FROM gpugraph_knn_graph('s.floats', 2)$$);
SELECT runs('gpugraph_search of float32', 'nothing',
	$$SELECT count(*) FROM gpugraph_search('s.floats', '{"[1,0,0]","[2,0,0]"}'::vector[], 2)$$);

-- a column needs no expression, whatever the others are
SELECT runs('gpugraph_recall of a column', 'nothing',
	$$SELECT gpugraph_recall('s.plain', 2, 3)$$);
SELECT runs('gpugraph_knn_graph of a column', 'nothing',
	$$SELECT count(*) FROM gpugraph_knn_graph('s.plain', 2)$$);
SELECT runs('gpugraph_search of a column', 'nothing',
	$$SELECT count(*) FROM gpugraph_search('s.plain', '{"[1,0,0]","[2,0,0]"}'::vector[], 2)$$);

-- functions of constants
SELECT runs('gpugraph_search and a constant', 'nothing', $$SELECT count(*)
	FROM gpugraph_search('s.constants', '{"[1,0,0]","[2,0,0]"}'::vector[], 2)$$);
SELECT runs('gpugraph_recall and a constant', 'constant as rights_owner',
	$$SELECT gpugraph_recall('s.constants', 2, 3)$$);

-- What runs as the owner cannot leave his rights, and looks names up in the system's schema. From
-- PostgreSQL 17 on, CREATE INDEX and REINDEX have that search_path, too.
SELECT is_empty($$SELECT * FROM seen WHERE who = 'rights_owner' AND NOT restricted$$,
	'all of it in restricted operations');
SELECT is_empty($$SELECT * FROM seen WHERE who = 'rights_owner' AND path <> 'pg_catalog, pg_temp'
	AND entry !~ 'INDEX'$$, 'with a safe search_path');

-- a caller with few rights
GRANT SELECT ON s.items TO rights_reader;
CREATE SCHEMA trap AUTHORIZATION rights_reader;
CREATE TABLE secrets (secret text);
ALTER TABLE secrets OWNER TO rights_owner;
INSERT INTO secrets VALUES ('of the owner');
CREATE TABLE stolen (who name, secret text);
GRANT ALL ON stolen TO PUBLIC;
SET ROLE rights_reader;
CREATE FUNCTION trap.lower(name text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM trap.steal();
	RETURN name;
END $$;
CREATE FUNCTION trap.steal() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.stolen SELECT current_user, secret FROM public.secrets;
EXCEPTION WHEN insufficient_privilege THEN
	NULL;
END $$;
SET ROLE rights_owner;
CREATE FUNCTION s.lowered(v public.vector) RETURNS public.vector LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM lower('A'::text);
	RETURN v;
END $$;
CREATE INDEX lowered ON s.items USING gpugraph ((s.lowered(val)::public.vector(3)) vector_l2_ops)
	WITH (storage = float16);
SET ROLE rights_reader;
SET search_path = trap, pg_catalog, public;
SELECT count(*) > 0 FROM gpugraph_search('s.lowered', '{"[1,0,0]"}'::vector[], 2) \g /dev/null
SELECT count(*) > 0 FROM gpugraph_knn_graph('s.lowered', 2) \g /dev/null
SELECT count(*) > 0 FROM gpugraph_recall('s.lowered', 2, 3) \g /dev/null
SELECT gpugraph_itopk_size('s.lowered', 2, 0.5, 3) > 0 \g /dev/null
RESET search_path;
RESET ROLE;
SELECT is_empty($$SELECT * FROM stolen$$, 'a caller''s function does not get the owner''s rights');

-- whoever calls is himself again afterwards: after an error, and between the rows of a cursor
CREATE FUNCTION s.failing(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF current_setting('test.fail', true) = 'on' THEN
		RAISE EXCEPTION 'failing';
	END IF;
	RETURN CASE WHEN current_setting('test.nothing', true) = 'on' THEN NULL ELSE v END;
END $$;
CREATE INDEX failing ON s.items USING gpugraph ((s.failing(val)::vector(3)) vector_l2_ops)
	WITH (storage = float16);
SET ROLE rights_reader;
SET search_path = public, trap;
SET test.fail = on;
SELECT throws_ok($$SELECT gpugraph_search('s.failing', '{"[1,0,0]"}'::vector[], 2)$$, 'failing');
SELECT throws_ok($$SELECT gpugraph_knn_graph('s.failing', 2)$$, 'failing');
SELECT throws_ok($$SELECT gpugraph_recall('s.failing', 2, 3)$$, 'failing');
SELECT throws_ok($$SELECT gpugraph_itopk_size('s.failing', 2, 0.5, 3)$$, 'failing');
SELECT is(current_user || ', ' || current_setting('search_path'), 'rights_reader, public, trap',
	'after errors the caller is himself again');
SET test.fail = off;
SET test.nothing = on;
SELECT throws_ok($$SELECT gpugraph_search('s.failing', '{"[1,0,0]"}'::vector[], 2)$$, '22004',
	'the value of a row of index "failing" has become NULL', 'a function that is not immutable');
SELECT throws_ok($$SELECT gpugraph_knn_graph('s.failing', 2)$$, '22004');
SELECT throws_ok($$SELECT gpugraph_recall('s.failing', 2, 3)$$, '22004');
SET test.nothing = off;
BEGIN;
DECLARE rows CURSOR FOR SELECT gpugraph_knn_graph('s.failing', 2), current_user AS who;
FETCH 1 FROM rows \g /dev/null
SELECT is(current_user || ', ' || current_setting('search_path'), 'rights_reader, public, trap',
	'and between two rows of a graph');
SAVEPOINT a;
SELECT is((SELECT count(*) FROM gpugraph_knn_graph('s.failing', 2)), 76::bigint,
	'while it is open another one');
ROLLBACK TO a;
FETCH 1 FROM rows \g /dev/null
SELECT is(current_user || ', ' || current_setting('search_path'), 'rights_reader, public, trap',
	'and after it');
COMMIT;
RESET search_path;
RESET ROLE;

DROP SCHEMA s CASCADE;
DROP SCHEMA trap CASCADE;
DROP TABLE secrets;
DROP OWNED BY rights_owner, rights_reader, rights_writer;
DROP ROLE rights_owner, rights_reader, rights_writer;
SELECT * FROM finish();
