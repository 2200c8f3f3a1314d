-- Sets that are known before a scan begins: WHERE column IN (SELECT ...) that stays a filter, as in
-- a policy of row-level security, is a condition of the index where that has the column.
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 4000, 8, 20);
ALTER TABLE items ADD name text, ADD meta jsonb, ADD day date;
UPDATE items SET name = 'n' || cat, day = date '2026-01-01' + big,
	meta = jsonb_build_object('source', 'file' || big % 100);
VACUUM FULL items;
CREATE INDEX items_idx ON items USING gpugraph (val, cat, name, day, (meta ->> 'source'));
CREATE TABLE members (usr text, cat int, big bigint, name varchar(9), day date, source text);
INSERT INTO members SELECT 'u' || i % 5, i % 50, i % 50, 'n' || i % 50, date '2026-01-01' + i % 50,
	'file' || i % 50 FROM generate_series(1, 50) i WHERE i % 5 < 4;
INSERT INTO members VALUES ('u3'), ('none');
INSERT INTO members SELECT 'many', i, i, 'n' || i, date '2026-01-01' + i, 'file' || i
	FROM generate_series(0, 1999) i;
ANALYZE;
SELECT val AS v FROM items WHERE id = 77 \gset

-- rows that the scan returned for these
CREATE FUNCTION rows_of(sql text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM ids(sql, true);
	RETURN (SELECT rows FROM gpugraph_last_scan());
END $$;
CREATE FUNCTION statement(condition text, v text) RETURNS text LANGUAGE sql AS $$
	SELECT format('SELECT id FROM items WHERE %s ORDER BY val <-> %L LIMIT 30', condition, v) $$;
CREATE VIEW kept WITH (security_barrier) AS SELECT * FROM items
	WHERE cat IN (SELECT m.cat FROM members m WHERE m.usr = current_setting('app.usr'));
CREATE ROLE reader;
GRANT SELECT ON items, members TO reader;
CREATE POLICY by_cat ON items USING (cat IN (SELECT m.cat FROM members m
	WHERE m.usr = current_setting('app.usr')));
CREATE POLICY by_big ON items USING (cat IN (SELECT m.big FROM members m
	WHERE m.usr = current_setting('app.usr')));
CREATE POLICY by_name ON items USING (name IN (SELECT m.name FROM members m
	WHERE m.usr = current_setting('app.usr')));
CREATE POLICY by_day ON items USING (day IN (SELECT m.day FROM members m
	WHERE m.usr = current_setting('app.usr')));
CREATE POLICY by_source ON items USING (meta ->> 'source' IN (SELECT m.source FROM members m
	WHERE m.usr = current_setting('app.usr')));
ALTER TABLE items ENABLE ROW LEVEL SECURITY;

-- Under each policy alone: rows as by a plain plan, and how many were looked at. A user to whom
-- policies apply is not told how many rows a scan returned, so they are counted by the filter.
CREATE FUNCTION check_policy(policy text, usr text, v text, OUT same boolean, OUT n int,
	OUT removed text) LANGUAGE plpgsql AS $$
DECLARE
	line text;
	kept text[] := ARRAY['by_cat', 'by_big', 'by_name', 'by_day', 'by_source'];
	other text;
BEGIN
	FOREACH other IN ARRAY kept LOOP
		EXECUTE format('ALTER POLICY %I ON items TO %I', other,
			CASE WHEN other = policy THEN 'reader' ELSE 'pg_monitor' END);
	END LOOP;
	PERFORM set_config('app.usr', usr, false);
	SET ROLE reader;
	same := ids(statement('true', v), false) = ids(statement('true', v), true);
	n := cardinality(ids(statement('true', v), true));
	removed := 'none';
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) ' || statement('true', v) LOOP
		EXIT WHEN line ~ '^ *SubPlan ';
		IF line ~ 'Rows Removed by Filter' THEN removed := 'some'; END IF;
		IF line ~ 'Seq Scan on items' THEN removed := 'no index'; END IF;
	END LOOP;
	RESET ROLE;
END $$;
SELECT is(check_policy(policy, 'u1', :'v')::text, '(t,30,none)',
	policy || ': the index has the set')
	FROM unnest(ARRAY['by_cat', 'by_big', 'by_name', 'by_day', 'by_source']) policy;
SELECT is(check_policy(policy, 'u3', :'v')::text, '(t,30,none)', policy || ': a NULL in the set')
	FROM unnest(ARRAY['by_cat', 'by_name']) policy;
SELECT is(check_policy('by_cat', 'none', :'v')::text, '(t,0,none)', 'a set of a NULL alone');
SELECT is(check_policy('by_cat', 'nobody', :'v')::text, '(t,0,none)', 'an empty set');
SELECT is((check_policy('by_cat', 'many', :'v')).same, true, 'a set that is too large');

-- other places of such a condition
RESET ROLE;
SELECT set_config('app.usr', 'u1', false);
SELECT is(ids(sql, true), ids(sql, false), condition)
	FROM unnest(ARRAY['cat NOT IN (SELECT cat FROM members WHERE usr = ''u1'')',
	'(cat IN (SELECT cat FROM members WHERE usr = ''u1'')) IS NOT TRUE',
	'(cat IN (SELECT cat FROM members WHERE usr = ''u1'') OR id < 40)',
	'(cat, big) IN (SELECT cat, big FROM members WHERE usr = ''u1'')',
	'cat = 6 AND cat IN (SELECT cat FROM members WHERE usr = ''u1'' OFFSET 0)',
	'cat + 1 IN (SELECT cat FROM members WHERE usr = ''u1'' OFFSET 0)',
	'cat < ANY (SELECT cat FROM members WHERE usr = ''u1'' OFFSET 0)']) condition,
	statement(condition, :'v') sql;
SELECT is(ids(sql, true), ids(sql, false), 'a view with a barrier')
	FROM format('SELECT id FROM kept ORDER BY val <-> %L LIMIT 30', :'v') sql;
-- a subplan of the target list is no condition
SELECT is(ids(sql, true), ids(sql, false), 'a subplan that is no condition')
	FROM format('SELECT id, cat IN (SELECT cat FROM members) FROM items
	ORDER BY val <-> %L LIMIT 9', :'v') sql;
-- rescans, of which the set stays or not
SELECT is((SELECT count(*) FROM generate_series(1, 5) g, LATERAL (SELECT id FROM kept
	WHERE id <> g ORDER BY val <-> :'v' LIMIT 10) s), 50::bigint, 'a scan that is begun anew');
SELECT is((SELECT count(*) FROM generate_series(1, 5) g, LATERAL (SELECT id FROM items
	WHERE cat = ANY (SELECT m.cat FROM members m WHERE m.cat > 0 OFFSET 0)
	ORDER BY val <-> (SELECT val FROM items WHERE id = g) LIMIT 10) s), 50::bigint,
	'with other queries');

-- expression filter columns
SELECT use_index(true);
SELECT is(plan_of(statement('meta ->> ''source'' = ''file7''', :'v')) ~
	'Index Cond: \(\(meta ->> ''source''::text\) = ''file7''::text\)', true,
	'an expression that is a filter column');
SELECT is(ids(sql, true), ids(sql, false), 'and its rows')
	FROM statement('meta ->> ''source'' = ''file7''', :'v') sql;
SELECT is(rows_of(statement('meta ->> ''source'' IN (''file7'', ''file9'')', :'v')), 30::bigint,
	'an IN list of it');
DROP TABLE items CASCADE;
DROP OWNED BY reader;
DROP ROLE reader;
SELECT * FROM finish();
