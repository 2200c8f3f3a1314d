-- Who may look into an index, and that an index is used only for what its reader may see
\ir include/helpers.psql
SELECT * FROM no_plan();

CREATE ROLE gg_owner;
CREATE ROLE gg_reader;
CREATE ROLE gg_stranger;
CREATE ROLE gg_monitor IN ROLE pg_stat_scan_tables;
CREATE SCHEMA s AUTHORIZATION gg_owner;
GRANT USAGE ON SCHEMA s TO PUBLIC;
SET ROLE gg_owner;
CREATE TABLE s.items (id int, owner name, val vector(3));
INSERT INTO s.items SELECT i, CASE WHEN i % 10 = 0 THEN 'gg_reader'
	ELSE 'gg_owner' END, ARRAY[i, 0, 0]::real[]::vector FROM generate_series(1, 200) i;
CREATE INDEX items_idx ON s.items USING gpugraph (val vector_l2_ops);
GRANT SELECT ON s.items TO gg_reader;
SELECT lives_ok($$SELECT gpugraph_check('s.items_idx', true)$$, 'the owner may check');
SELECT lives_ok($$SELECT * FROM gpugraph_index_info('s.items_idx')$$, 'the owner may ask');

SET ROLE gg_monitor;
SELECT lives_ok($$SELECT gpugraph_check('s.items_idx')$$,
	'a member of pg_stat_scan_tables may check');
SELECT throws_ok($$SELECT gpugraph_check('s.items_idx', true)$$, '42501',
	'permission denied to compare index "items_idx" with its table', 'but not have the table read');
SELECT lives_ok($$SELECT * FROM gpugraph_index_info('s.items_idx')$$,
	'a member of pg_stat_scan_tables may ask');

SET ROLE gg_reader;
SELECT throws_ok($$SELECT gpugraph_check('s.items_idx')$$, '42501',
	'must be owner of index items_idx');
SELECT throws_ok($$SELECT * FROM gpugraph_index_info('s.items_idx')$$, '42501',
	'must be owner of index items_idx');
SET enable_seqscan = off;
SELECT lives_ok($$SELECT id FROM s.items ORDER BY val <-> '[7.2,0,0]' LIMIT 3$$,
	'a reader may search');

SET ROLE gg_stranger;
SELECT throws_ok($$SELECT gpugraph_check('s.items_idx')$$, '42501');
SELECT throws_ok($$SELECT id FROM s.items ORDER BY val <-> '[7.2,0,0]' LIMIT 3$$, '42501');
SELECT throws_ok($$REINDEX INDEX s.items_idx$$, '42501');
SELECT throws_ok($$CREATE INDEX ON s.items USING gpugraph (val)$$, '42501');

-- the MAINTAIN privilege, from PostgreSQL 17 on
RESET ROLE;
CREATE FUNCTION grant_maintain() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('server_version_num')::int < 170000 THEN
		RETURN false;
	END IF;
	EXECUTE 'GRANT MAINTAIN ON s.items TO gg_stranger';
	RETURN true;
END $$;
SELECT CASE WHEN grant_maintain()
	THEN $$SELECT lives_ok('SELECT gpugraph_check(''s.items_idx'', true)',
		'who may maintain the table may check')$$
	ELSE $$SELECT throws_ok('SELECT gpugraph_check(''s.items_idx'', true)', '42501')$$
	END AS maintain \gset
SET ROLE gg_stranger;
:maintain;

-- row-level security filters what the index finds
RESET ROLE;
ALTER TABLE s.items ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON s.items USING (owner = current_user);
SET ROLE gg_reader;
SELECT is((SELECT array_agg(id)
	FROM (SELECT id FROM s.items ORDER BY val <-> '[7.2,0,0]' LIMIT 3) x), ARRAY[10, 20, 30],
	'row-level security: other rows are not seen, and the LIMIT is filled');
SELECT matches(plan_of($$SELECT id FROM s.items ORDER BY val <-> '[7.2,0,0]' LIMIT 3$$),
	'Index Scan', 'row-level security: from the index');

-- Numbers of rows tell nothing of rows that a user may not see. The bug: gpugraph_last_scan() told
-- everybody how many rows a scan had matched, read and measured, past policies and after a function
-- with its owner's rights. The fix: these columns are NULL for who may not read the whole table.
RESET ROLE;
CREATE INDEX filter_idx ON s.items USING gpugraph (val vector_l2_ops, id);
DROP INDEX s.items_idx;
CREATE FUNCTION s.nearest() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET enable_seqscan = off
	AS $$ SELECT count(*) FROM (SELECT id FROM s.items WHERE id > 50
		ORDER BY val OPERATOR(public.<->) '[7.2,0,0]' LIMIT 3) s $$;
CREATE FUNCTION numbers() RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', index, filter IS NOT NULL, matches, rows, distances > 0)
	FROM public.gpugraph_last_scan() $$;
SELECT is(s.nearest(), 3::bigint);
SELECT is(numbers(), 's.filter_idx t 150 3 t', 'gpugraph_last_scan: who may read all is told all');
SET ROLE gg_reader;
SELECT is(numbers(), 's.filter_idx t', 'policies apply: no numbers of rows');
SELECT is((SELECT count(*) FROM (SELECT id FROM s.items WHERE id > 50
	ORDER BY val <-> '[7.2,0,0]' LIMIT 3) s), 3::bigint);
SELECT is(numbers(), 's.filter_idx t', 'nor after a scan of one''s own');
SET row_security = off;
SELECT is(numbers(), 's.filter_idx t', 'nor with row_security = off');
RESET row_security;
RESET ROLE;
ALTER TABLE s.items DISABLE ROW LEVEL SECURITY;
SET ROLE gg_reader;
SELECT is(s.nearest(), 3::bigint);
SELECT is(numbers(), 's.filter_idx t 150 3 t', 'no policies: a reader is told all');
SET ROLE gg_stranger;
SELECT is(numbers(), 's.filter_idx t',
	'who may not read the table is told no numbers, after a function with its owner''s rights');
RESET ROLE;
GRANT SELECT (id, val) ON s.items TO gg_stranger;
SET ROLE gg_stranger;
SELECT is(numbers(), 's.filter_idx t', 'nor who may read some columns');
RESET ROLE;
GRANT SELECT (owner) ON s.items TO gg_stranger;
SET ROLE gg_stranger;
SELECT is(numbers(), 's.filter_idx t 150 3 t', 'who may read every column is');
RESET ROLE;
DROP INDEX s.filter_idx;
SELECT is((SELECT concat_ws(' ', matches, rows, distances) FROM gpugraph_last_scan()), '',
	'of an index that was dropped nothing is known');

-- functions of an index run as its owner when it is checked
RESET ROLE;
CREATE TABLE seen (who name);
GRANT INSERT ON seen TO PUBLIC;
SET ROLE gg_owner;
CREATE FUNCTION s.spy(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS
	$$ BEGIN IF current_user <> 'gg_owner' THEN RAISE EXCEPTION 'running as %', current_user;
	END IF; RETURN v; END $$;
CREATE INDEX spy_idx ON s.items USING gpugraph ((s.spy(val)::vector(3)) vector_l2_ops);
RESET ROLE;
SELECT lives_ok($$SELECT gpugraph_check('s.spy_idx', true)$$,
	'index expressions run as the owner of the table');
SELECT is(current_user, session_user, 'and the caller is itself again');

DROP SCHEMA s CASCADE;
DROP ROLE gg_owner, gg_reader, gg_stranger, gg_monitor;
SELECT * FROM finish();
