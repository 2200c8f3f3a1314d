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
