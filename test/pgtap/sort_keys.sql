-- Sort keys that rise or fall with the distance use the index, keys behind them too, and give the
-- order that a sort of the same rows gives
\ir include/helpers.psql
SELECT * FROM no_plan();

-- the library is loaded
CREATE TABLE items AS SELECT i AS id, i % 7 AS cat, i % 3 AS kind,
	ARRAY[(i * 7919) % 11 - 3, (i * 104729) % 13 - 4, (i * 31) % 5 + 1]::real[]::vector(3) AS val
	FROM generate_series(1, 2000) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_cosine_ops, cat);
CREATE TABLE plain AS SELECT * FROM items;
ANALYZE items, plain;

CREATE FUNCTION uses(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan text := plan_of(query);
BEGIN
	RETURN CASE WHEN plan !~ 'Index Scan using \w*_idx' THEN 'table'
		WHEN plan ~ 'Incremental Sort' THEN 'index, then keys'
		WHEN plan ~ '\mSort Key' THEN 'index, then sort' ELSE 'index' END;
END $$;

-- the plan of a query, and that it has the rows of the same query over a table without an index
CREATE FUNCTION checks(query text, plan text, what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	IF plan <> 'any' THEN
		RETURN NEXT is(uses(query), plan, what || ': ' || plan);
	END IF;
	RETURN NEXT results_eq(query, regexp_replace(query, '\mitems\M', 'plain', 'g'), what);
END $$;

SELECT checks(format($$SELECT %s AS key FROM items ORDER BY key %s LIMIT 10$$, key, direction),
		plan, key || ' ' || direction)
	FROM (VALUES
		($$1 - (val <=> '[1,2,3]')$$, 'DESC', 'index'),
		($$(val <=> '[1,2,3]') * -1$$, 'DESC', 'index'),
		($$-(val <=> '[1,2,3]')$$, 'DESC', 'index'),
		($$1 - ('[1,2,3]' <=> val)$$, 'DESC', 'index'),
		($$1 + (val <=> '[1,2,3]')$$, '', 'index'),
		($$(2 - (val <=> '[1,2,3]')) / 2$$, 'DESC', 'index'),
		($$cosine_distance(val, '[1,2,3]')$$, '', 'index'),
		($$cosine_distance('[1,2,3]', val)$$, '', 'index'),
		($$1 - cosine_distance(val, '[1,2,3]')$$, 'DESC', 'index'),
		($$(val <=> '[1,2,3]')::real$$, '', 'index'),
		($$(val <=> '[1,2,3]')::numeric$$, '', 'index'),
		($$round((1 - (val <=> '[1,2,3]'))::numeric, 3)$$, 'DESC', 'index'),
		($$floor(10 * (val <=> '[1,2,3]'))$$, '', 'index'),
		($$1 - (val <=> '[1,2,3]')$$, 'DESC NULLS LAST', 'index'),
		($$val <=> '[1,2,3]'$$, 'NULLS FIRST', 'index'),
		-- the farthest rows, other functions of the distance, factors that a plan does not know
		($$1 - (val <=> '[1,2,3]')$$, '', 'table'),
		($$val <=> '[1,2,3]'$$, 'DESC', 'table'),
		($$abs(val <=> '[1,2,3]')$$, '', 'table'),
		($$(val <=> '[1,2,3]') * cat$$, '', 'table'),
		($$(val <=> '[1,2,3]') * 0$$, '', 'table'),
		($$val <-> '[1,2,3]'$$, '', 'table')) s(key, direction, plan);

-- keys behind it; those of few values have too many rows to read
SELECT checks(format($$SELECT %s AS key, id FROM items ORDER BY key %s, %s LIMIT 20$$, key,
		direction, behind), plan, key || ' ' || direction || ', ' || behind)
	FROM (VALUES
		($$val <=> '[1,2,3]'$$, '', 'id', 'index, then keys'),
		($$val <=> '[1,2,3]'$$, '', 'kind DESC, id', 'index, then keys'),
		($$1 - (val <=> '[1,2,3]')$$, 'DESC', 'id', 'index, then keys'),
		($$round((val <=> '[1,2,3]')::numeric, 2)$$, '', 'id', 'index, then keys'),
		($$(val <=> '[1,2,3]')::numeric(5, 3)$$, '', 'id DESC', 'index, then keys'),
		($$round((val <=> '[1,2,3]')::numeric, 1)$$, '', 'id', 'table'),
		($$floor(val <=> '[1,2,3]')$$, '', 'id', 'table')) s(key, direction, behind, plan);

-- conditions, views, subqueries, CTEs, joins, LATERAL, parameters
CREATE VIEW scored AS SELECT id, cat, 1 - (val <=> '[1,2,3]') AS score FROM items;
CREATE TABLE cats AS SELECT i AS cat, 'name ' || i AS name FROM generate_series(0, 6) i;
SELECT is(uses(query), 'index', what) FROM (VALUES
	('a condition on a filter column',
		$$SELECT id FROM scored WHERE cat IN (3, 4) ORDER BY score DESC LIMIT 5$$),
	('a threshold', $$SELECT id FROM scored WHERE score > 0.9 ORDER BY score DESC LIMIT 5$$),
	('a subquery',
		$$SELECT id FROM (SELECT id, 1 - (val <=> '[1,2,3]') AS s FROM items) x
			WHERE s > 0.5 ORDER BY s DESC LIMIT 5$$),
	('a CTE',
		$$WITH x AS (SELECT id, 1 - (val <=> '[1,2,3]') AS s FROM items)
			SELECT id FROM x ORDER BY s DESC LIMIT 5$$),
	('a join', $$SELECT id, name FROM scored JOIN cats USING (cat) ORDER BY score DESC LIMIT 5$$),
	('LATERAL',
		$$SELECT q.id, x.id FROM (SELECT * FROM items LIMIT 3) q, LATERAL (SELECT i.id FROM items i
			ORDER BY 1 - (i.val <=> q.val) DESC LIMIT 5) x$$)
	) s(what, query);
-- in some minor releases rows that core puts in order lose their ctid, those of GiST, too
CREATE TABLE areas AS SELECT polygon(circle(point(i % 31, i % 37), i % 7 + 1)) AS area
	FROM generate_series(1, 1000) i;
CREATE INDEX ON areas USING gist (area);
SELECT set_config('enable_sort', 'off', false) \g /dev/null
SELECT is(uses($$SELECT id FROM items ORDER BY 1 - (val <=> '[1,2,3]') DESC LIMIT 5 FOR UPDATE$$),
	CASE WHEN EXISTS (SELECT FROM (SELECT ctid FROM areas ORDER BY area <-> point(0, 0) LIMIT 900) s
		WHERE ctid > '(1000,1)') THEN 'table' ELSE 'index' END, 'locks');
SELECT set_config('enable_sort', 'on', false) \g /dev/null
-- policies
CREATE ROLE gg_sort_reader;
GRANT SELECT ON items, plain TO gg_sort_reader;
CREATE FUNCTION leaks(int) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS 'BEGIN RETURN true; END';
CREATE POLICY some_rows ON items USING (cat <> 3 AND kind < 2);
ALTER TABLE items ENABLE ROW LEVEL SECURITY;
SET ROLE gg_sort_reader;
SELECT is(uses(query), 'index', 'under a policy')
	FROM (VALUES ($$SELECT 1 - (val <=> '[1,2,3]') FROM items WHERE leaks(id)
		ORDER BY 1 DESC LIMIT 9$$)) s(query);
SELECT results_eq($$SELECT 1 - (val <=> '[1,2,3]') FROM items WHERE leaks(id)
		ORDER BY 1 DESC LIMIT 9$$,
	$$SELECT 1 - (val <=> '[1,2,3]') FROM plain WHERE cat <> 3 AND kind < 2
		ORDER BY 1 DESC LIMIT 9$$,
	'rows under a policy');
RESET ROLE;
ALTER TABLE items DISABLE ROW LEVEL SECURITY;

PREPARE by_score(vector, int) AS
	SELECT round((1 - (val <=> $1))::numeric, 4) FROM items ORDER BY 1 - (val <=> $1) DESC LIMIT $2;
SET plan_cache_mode = force_generic_plan;
SELECT is(uses($$EXECUTE by_score('[1,2,3]', 5)$$), 'index', 'a generic plan');
SELECT results_eq($$EXECUTE by_score('[1,2,3]', 5)$$,
	$$SELECT round((1 - (val <=> '[1,2,3]'))::numeric, 4) FROM plain
		ORDER BY 1 - (val <=> '[1,2,3]') DESC LIMIT 5$$, 'and its rows');
RESET plan_cache_mode;

-- a cached plan keeps its order under other settings, and a new one is not made
SET plan_cache_mode = force_generic_plan;
PREPARE kept AS SELECT 1 - (val <=> '[1,2,3]') FROM items ORDER BY 1 DESC LIMIT 40;
EXECUTE kept \g /dev/null
SET gpugraph.iterative_scan = relaxed_order;
SELECT results_eq('EXECUTE kept',
	$$SELECT 1 - (val <=> '[1,2,3]') FROM plain ORDER BY 1 DESC LIMIT 40$$,
	'a cached plan under relaxed_order');
SELECT is(uses($$SELECT id FROM scored ORDER BY score DESC LIMIT 5$$), 'table', 'relaxed_order');
SET gpugraph.iterative_scan = off;
SELECT is(uses($$SELECT id FROM scored ORDER BY score DESC LIMIT 5$$), 'table',
	'iterative_scan = off');
RESET gpugraph.iterative_scan;
RESET plan_cache_mode;

-- partitions
CREATE TABLE parts (id int, cat int, kind int, val vector(3)) PARTITION BY HASH (id);
CREATE TABLE part_a PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE part_b PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO parts SELECT * FROM plain;
CREATE INDEX parts_idx ON parts USING gpugraph (val vector_cosine_ops);
ANALYZE parts;
SELECT results_eq(replace(query, '%t', 'parts'), replace(query, '%t', 'plain'),
		'partitions: ' || key || ' ' || direction || ' ' || behind)
	FROM (VALUES ($$1 - (val <=> '[1,2,3]')$$, 'DESC'), ($$3 + (val <=> '[1,2,3]')$$, ''),
		($$val <=> '[1,2,3]'$$, '')) s(key, direction), (VALUES ('1'), ('id')) b(behind),
		format('SELECT %s AS key, %s FROM %%t ORDER BY key %s, 2 LIMIT 30', key, behind,
			direction) query;
SELECT matches(plan_of($$SELECT id FROM parts ORDER BY 1 - (val <=> '[1,2,3]') DESC LIMIT 5$$),
	'Merge Append.*Index Scan.*Index Scan', 'by their indexes');

-- ranks
SELECT checks(format($$SELECT %1$s() OVER (ORDER BY val <=> '[1,2,3]') AS r,
		val <=> '[1,2,3]' FROM items ORDER BY r LIMIT 12$$, rank), 'index', rank)
	FROM (VALUES ('row_number'), ('rank'), ('dense_rank')) s(rank);
SELECT checks(query, plan, what) FROM (VALUES
	('rank of a falling key', 'index',
		$$SELECT rank() OVER (ORDER BY 1 - (val <=> '[1,2,3]') DESC) AS r FROM items
			ORDER BY r LIMIT 9$$),
	('in a CTE', 'index',
		$$WITH x AS (SELECT row_number() OVER (ORDER BY val <=> '[1,2,3]') AS r FROM items
			ORDER BY r LIMIT least(7, 30) * 2) SELECT * FROM x$$),
	('a window with a partition', 'any',
		$$SELECT row_number() OVER (PARTITION BY kind ORDER BY val <=> '[1,2,3]') AS r FROM items
			ORDER BY r LIMIT 9$$),
	('WITH TIES', 'any',
		$$SELECT rank() OVER (ORDER BY val <=> '[1,2,3]') AS r FROM items
			ORDER BY r FETCH FIRST 3 ROWS WITH TIES$$),
	('falling', 'any',
		$$SELECT row_number() OVER (ORDER BY val <=> '[1,2,3]') AS r FROM items
			ORDER BY r DESC LIMIT 9$$),
	('DISTINCT', 'any',
		$$SELECT DISTINCT rank() OVER (ORDER BY val <=> '[1,2,3]') AS r FROM items
			ORDER BY r LIMIT 9$$),
	('two windows', 'any',
		$$SELECT rank() OVER (ORDER BY val <=> '[1,2,3]') AS r, rank() OVER (ORDER BY id) AS i
			FROM items ORDER BY r, i LIMIT 9$$)) s(what, plan, query);

-- rows that the index leaves out
SELECT is((SELECT hint FROM gpugraph_indexes WHERE indexname = 'items_idx'), NULL,
	'no hint where it has left out none');
CREATE FUNCTION insert_both(value text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO items VALUES (0, 0, 0, %L)', value);
	EXECUTE format('INSERT INTO plain VALUES (0, 0, 0, %L)', value);
END $$;
SELECT checks(query, plan, 'complete: ' || what) FROM (VALUES
	('falling', 'index', $$SELECT 1 - (val <=> '[1,2,3]') FROM items ORDER BY 1 DESC LIMIT 5$$),
	('falling, all', 'any', $$SELECT 1 - (val <=> '[1,2,3]') FROM items ORDER BY 1 DESC$$)
	) s(what, plan, query);
SELECT insert_both(NULL);
SELECT checks(query, plan, 'a NULL vector: ' || what) FROM (VALUES
	('falling', 'table', $$SELECT 1 - (val <=> '[1,2,3]') FROM items ORDER BY 1 DESC LIMIT 5$$),
	('NULLS FIRST', 'table',
		$$SELECT val <=> '[1,2,3]' FROM items ORDER BY 1 NULLS FIRST LIMIT 5$$),
	('NULLS LAST', 'index',
		$$SELECT 1 - (val <=> '[1,2,3]') FROM items ORDER BY 1 DESC NULLS LAST LIMIT 5$$),
	('IS NOT NULL', 'index', $$SELECT 1 - (val <=> '[1,2,3]') FROM items WHERE val IS NOT NULL
		ORDER BY 1 DESC LIMIT 5$$),
	('a threshold', 'index', $$SELECT 1 - (val <=> '[1,2,3]') FROM items
		WHERE 1 - (val <=> '[1,2,3]') > 0.1 ORDER BY 1 DESC LIMIT 5$$)) s(what, plan, query);
SELECT matches((SELECT hint FROM gpugraph_indexes WHERE indexname = 'items_idx'),
	'rows with NULL vectors.*IS NOT NULL', 'a hint says so');
SELECT insert_both('[0,0,0]');
SELECT checks(query, plan, 'a zero vector, too: ' || what) FROM (VALUES
	('IS NOT NULL', 'table', $$SELECT 1 - (val <=> '[1,2,3]') FROM items WHERE val IS NOT NULL
		ORDER BY 1 DESC LIMIT 5$$),
	('a threshold', 'table', $$SELECT 1 - (val <=> '[1,2,3]') FROM items
		WHERE 1 - (val <=> '[1,2,3]') > 0.1 ORDER BY 1 DESC LIMIT 5$$),
	('rising', 'index', $$SELECT 1 + (val <=> '[1,2,3]') FROM items ORDER BY 1 LIMIT 5$$)
	) s(what, plan, query);
SELECT gpugraph_merge('items_idx') \g /dev/null
VACUUM items;
SELECT is(uses($$SELECT 1 - (val <=> '[1,2,3]') FROM items ORDER BY 1 DESC LIMIT 5$$), 'table',
	'merges and VACUUM do not forget it');
DELETE FROM items WHERE id = 0;
DELETE FROM plain WHERE id = 0;
REINDEX INDEX items_idx;
SELECT checks($$SELECT 1 - (val <=> '[1,2,3]') FROM items ORDER BY 1 DESC LIMIT 5$$, 'index',
	'REINDEX looks again');
BEGIN;
SELECT insert_both(NULL);
ROLLBACK;
SELECT is(uses($$SELECT 1 - (val <=> '[1,2,3]') FROM items ORDER BY 1 DESC LIMIT 5$$), 'table',
	'a row that was rolled back counts');
INSERT INTO items (id) VALUES (0);
REINDEX INDEX items_idx;
SELECT is(uses($$SELECT 1 - (val <=> '[1,2,3]') FROM items ORDER BY 1 DESC LIMIT 5$$), 'table',
	'a build leaves rows out, too');
DELETE FROM items WHERE id = 0;
REINDEX INDEX items_idx;
ALTER TABLE items ALTER val SET NOT NULL;
CREATE INDEX part_idx ON items USING gpugraph (val vector_ip_ops) WHERE id > 0;
INSERT INTO items VALUES (0, 0, 0, '[0,0,0]');
SELECT is(uses($$SELECT 1 - (val <#> '[1,2,3]') FROM items WHERE id > 0 ORDER BY 1 DESC LIMIT 5$$),
	'index', 'a partial index has not left out what its predicate leaves out');
SELECT is((SELECT version FROM gpugraph_index_info('part_idx')), 4,
	'which is a feature of format 4');

-- statements at random
CREATE TABLE sampled (id int, kind int, cat int, v vector(4));
INSERT INTO sampled SELECT i, i % 3, i % 10, ARRAY[(i * 7919) % 7 - 3, (i * 104729) % 5 - 2,
		(i * 31) % 4, (i * 17) % 6 + 1]::real[]::vector(4) FROM generate_series(1, 600) i;
CREATE TABLE unindexed AS SELECT * FROM sampled;
SELECT set_config('enable_seqscan', 'off', false) \g /dev/null
CREATE FUNCTION differences(opclass text, op text, n int, OUT used int, OUT wrong text)
	LANGUAGE plpgsql AS $$
DECLARE
	keys text[] := '{1 - d,d * -1,-d,1 + d,d,(2 - d) / 2,d / 3 - 1,d::real,d::numeric}'
		|| ARRAY['0.5 - d::numeric', 'round(d::numeric, 2)', '(3 - d)::numeric(9, 3)',
			'round((1 - d)::numeric, 4)',
			'trunc(d::numeric, 3)', '-d::numeric'];
	behind text[] := '{"","",", id",", kind DESC, id",", cat, id DESC"}';
	conditions text[] := '{true,true,cat < 4,v IS NOT NULL,d < 2,1 - d > 0.2,kind = 1}';
	key text;
	d text;
	sql text;
	have text;
	want text;
BEGIN
	used := 0;
	TRUNCATE sampled;
	INSERT INTO sampled SELECT * FROM unindexed;
	EXECUTE format('CREATE INDEX ON sampled USING gpugraph (v %s)', opclass);
	FOR i IN 1 .. n LOOP
		IF i = n * 3 / 4 THEN
			INSERT INTO sampled VALUES (700, 1, 1, NULL), (701, 1, 1, '[0,0,0,0]'),
				(702, 2, 3, NULL);
			INSERT INTO unindexed SELECT * FROM sampled WHERE id >= 700;
		END IF;
		d := format('(v %s %L)', op, format('[%s,%s,%s,%s]', floor(random() * 5),
			floor(random() * 4), floor(random() * 3) + 1, floor(random() * 6) - 3));
		key := keys[1 + floor(random() * cardinality(keys))];
		sql := format('SELECT %s AS key%s FROM sampled WHERE %s ORDER BY key %s %s%s LIMIT %s
				OFFSET %s',
			key, CASE WHEN i % 2 = 0 THEN '' ELSE ', ' || d END,
			conditions[1 + floor(random() * cardinality(conditions))],
			CASE WHEN key ~ '(^|[^(0-9])-|^[0-9(.]+ -|\(1 -|\(3 -|-1' AND key !~ '- 1'
				THEN 'DESC' ELSE '' END,
			(ARRAY['', 'NULLS FIRST', 'NULLS LAST'])[1 + floor(random() * 3)],
			CASE WHEN i % 2 = 0 THEN behind[1 + floor(random() * 5)] ELSE ', id' END,
			1 + floor(random() * 30), floor(random() * 3));
		sql := regexp_replace(sql, '\md\M', d, 'g');
		IF plan_of(sql) ~ 'Index Scan using sampled' THEN
			used := used + 1;
		END IF;
		EXECUTE format('SELECT array_agg(s)::text FROM (%s) s', sql) INTO have;
		EXECUTE format('SELECT array_agg(s)::text FROM (%s) s',
			replace(sql, 'sampled', 'unindexed')) INTO want;
		IF have IS DISTINCT FROM want THEN
			wrong := concat_ws(E'\n', wrong, sql, have, want);
		END IF;
	END LOOP;
	DROP INDEX sampled_v_idx;
	DELETE FROM unindexed WHERE id >= 700;
END $$;
SELECT unnest(ARRAY[is(wrong, NULL, format('%s statements: nothing is wrong', opclass)),
		cmp_ok(used, '>', n / 2, format('%s: the index is used', opclass))])
	FROM (VALUES ('vector_l2_ops', '<->'), ('vector_ip_ops', '<#>'), ('vector_cosine_ops', '<=>'),
		('vector_l1_ops', '<+>')) s(opclass, op), (VALUES (200)) n(n), differences(opclass, op, n);

-- rows have their places, which locks and joins by ctid want
CREATE TABLE places AS SELECT id, v FROM unindexed;
CREATE INDEX ON places USING gpugraph (v);
ANALYZE places;
CREATE FUNCTION found(sql text, index boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	PERFORM use_index(index);
	EXECUTE format('SELECT array_agg(s)::text FROM (%s) s', sql) INTO answer;
	RETURN answer;
END $$;
SELECT is(found(sql, true), found(sql, false), sql) FROM (SELECT format(
	'SELECT ctid, id FROM places ORDER BY %s LIMIT 7 %s', key, locks) FROM unnest(ARRAY[
	'v <-> ''[1,2,1,0]'', id', '1 - (v <-> ''[1,2,1,0]'') DESC, id']) key,
	unnest(ARRAY['', 'FOR UPDATE']) locks) s(sql);

SELECT * FROM finish();
