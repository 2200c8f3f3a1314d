-- Expressions of indexes with storage = int8 or int4, which scans evaluate.
--
-- The bug: SELECT evaluated them as the owner with the system's search_path, and failed where
-- CREATE INDEX, which went by the caller's path before PostgreSQL 17, had worked. The error named
-- neither the index nor the path. The fix: CREATE INDEX and REINDEX evaluate them as SELECT does.
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 2000, 4, 10);
CREATE TABLE later (LIKE items);
CREATE FUNCTION head(x vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS
	'BEGIN RETURN subvector(x, 1, 2); END';
SET enable_seqscan = off;

-- SQLSTATE, message, hint and context of the error that a statement ends with
CREATE FUNCTION error_of(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	code text;
	message text;
	hint text;
	context text;
BEGIN
	EXECUTE sql;
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
		hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
	RETURN format('%s %s | %s | %s', code, message, hint, context);
END $$;

SELECT matches(error_of(sql), '^42883 function subvector.* does not exist \| .*SET search_path.*'
	'expression of index "' || name || '", evaluated as role "' || current_user ||
	'" with search_path = pg_catalog, pg_temp', sql)
	FROM (VALUES ('fresh', 'CREATE INDEX fresh ON items USING gpugraph
		((head(val)::vector(2)) vector_l2_ops) WITH (storage = int8)')) v (name, sql);
SET min_parallel_table_scan_size = 0;
SELECT matches(error_of('CREATE INDEX fresh ON items USING gpugraph
	((head(val)::vector(2)) vector_l2_ops) WITH (storage = int4)'), 'SET search_path.*"fresh"',
	'in parallel workers, too');
RESET min_parallel_table_scan_size;
SELECT is(current_setting('search_path') LIKE '%public%', true, 'the path is the caller''s again');

-- of an index with vectors no scan evaluates it
DO $$
BEGIN
	IF current_setting('server_version_num')::int < 170000 THEN
		CREATE INDEX kept ON items USING gpugraph ((head(val)::vector(2)) vector_l2_ops);
		ALTER INDEX kept SET (storage = int8);
	END IF;
END $$;
SELECT CASE WHEN to_regclass('kept') IS NULL THEN skip('from 17 on core restricts every build')
	ELSE matches(error_of('REINDEX INDEX kept'), 'expression of index "kept"', 'REINDEX') END;
SELECT CASE WHEN to_regclass('kept') IS NULL THEN skip('likewise') ELSE
	is(error_of('SELECT id FROM items ORDER BY head(val)::vector(2) <-> ''[1,1]'' LIMIT 3'), 'none',
	'the index is as before') END;
DROP INDEX IF EXISTS kept;

-- rows that come later are evaluated by the executor, and scans say what went wrong
CREATE INDEX empty ON later USING gpugraph ((head(val)::vector(2)) vector_l2_ops)
	WITH (storage = int8);
INSERT INTO later SELECT * FROM items WHERE id <= 20;
SELECT matches(error_of('SELECT id FROM later ORDER BY head(val)::vector(2) <-> ''[1,1]'' LIMIT 3'),
	'^42883 .*SET search_path.*expression of index "empty", evaluated as role',
	'a scan names the index, rights and path');

-- what the hint says
ALTER FUNCTION head SET search_path = public;
CREATE INDEX fresh ON items USING gpugraph ((head(val)::vector(2)) vector_l2_ops)
	WITH (storage = int8);
SELECT is((SELECT count(*) FROM (SELECT id FROM items ORDER BY head(val)::vector(2) <-> '[1,1]'
	LIMIT 5) s), 5::bigint, 'with a path of the function');
SELECT is((SELECT count(*) FROM (SELECT id FROM later ORDER BY head(val)::vector(2) <-> '[1,1]'
	LIMIT 5) s), 5::bigint, 'of rows that came later, too');
REINDEX INDEX fresh;
INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id <= 300;
SELECT is((SELECT count(*) FROM (SELECT gpugraph_merge('fresh'), gpugraph_check('fresh', true)) s),
	1::bigint, 'sound against the table');
-- other errors are not about the path
CREATE OR REPLACE FUNCTION head(x vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE
	SET search_path = public AS 'BEGIN RAISE EXCEPTION ''no''; END';
SELECT matches(error_of('SELECT id FROM later ORDER BY head(val)::vector(2) <-> ''[1,1]'' LIMIT 3'),
	'^P0001 no \|  \| .*expression of index "empty"', 'another error has no such hint');

DROP TABLE items, later;
DROP FUNCTION head, error_of;
SELECT * FROM finish();
