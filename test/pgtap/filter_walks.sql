-- Filters of segments so large that a walk looks at the rows that it hands out, and at a sample:
-- answers have what matches and nothing else, each row once, however rows and matches lie
\ir include/helpers.psql
SELECT * FROM no_plan();

-- Of the last 8,000 rows four share a vector, and match one by one. rare: 60 rows side by side;
-- near: the rows nearest to one place, in order.
SELECT make_data('items', 32000, 8, 40);
ALTER TABLE items ADD rare boolean, ADD near int, ADD tag text;
UPDATE items i SET rare = id BETWEEN 9000 AND 9059, near = n.place,
	tag = CASE WHEN id % 11 > 0 THEN 'tag ' || id % 4 END,
	val = coalesce((SELECT o.val FROM items o WHERE i.id > 24000 AND o.id = i.id - i.id % 4), i.val)
	FROM (SELECT id AS at, row_number() OVER (ORDER BY val <-> (SELECT val FROM items
		WHERE id = 1)) AS place FROM items) n WHERE n.at = i.id;
CREATE INDEX items_idx ON items USING gpugraph (val, cat, rare, near, tag);
SELECT make_queries('items', 20);
ANALYZE items;
SELECT cmp_ok(max(rows_node), '>=', 4::bigint, 'nodes have several rows')
	FROM (SELECT count(*) AS rows_node FROM items GROUP BY val) s;

CREATE FUNCTION filter_of_last_scan() RETURNS text LANGUAGE sql AS
	$$ SELECT filter FROM gpugraph_last_scan() $$;

-- The ids nearest to a query, and whether they match, are distinct and in order.
CREATE FUNCTION sound(condition text, q int, wanted int, OUT ids int[], OUT is_sound boolean)
	LANGUAGE plpgsql AS $$
BEGIN
	PERFORM use_index(true);
	EXECUTE format('SELECT array_agg(id ORDER BY n), bool_and(d >= before) AND
		count(*) = count(DISTINCT id) AND count(*) = %s AND bool_and(fits)
		FROM (SELECT *, row_number() OVER () AS n, coalesce(lag(d) OVER (), 0) AS before
		FROM (SELECT id, val <-> (SELECT val FROM queries WHERE q = $1) AS d, (%s) AS fits
		FROM items WHERE %2$s ORDER BY val <-> (SELECT val FROM queries WHERE q = $1) LIMIT %1$s) s
		) s', wanted, condition) INTO ids, is_sound USING q;
END $$;

CREATE FUNCTION try(condition text, strategy text, what text) RETURNS SETOF text
	LANGUAGE plpgsql AS $$
DECLARE
	again int[];
	answer record;
	unsound int := 0;
	strategies text[] := '{}';
BEGIN
	FOR q IN 1 .. 20 LOOP
		answer := sound(condition, q, 20);
		strategies := strategies || filter_of_last_scan();
		again := (sound(condition, q, 20)).ids;
		unsound := unsound + (NOT answer.is_sound OR answer.ids <> again)::int;
	END LOOP;
	RETURN NEXT is(unsound, 0, what || ': full, what matches, in order, the same again');
	RETURN NEXT cmp_ok(recall('items', '<->', 20, condition), '>=', 0.98, what || ': recall');
	IF strategy IS NOT NULL THEN
		RETURN NEXT ok(strategy = ALL (strategies), what || ': by ' || strategy);
	END IF;
END $$;

CREATE FUNCTION try_all() RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT * FROM try('cat < 25', NULL, '1 in 2');
	RETURN QUERY SELECT * FROM try('cat % 5 = 2', NULL, 'a condition on rows alone');
	RETURN QUERY SELECT * FROM try('cat IN (1, 12, 23, 34, 45) AND tag = ''tag 1''', NULL,
		'two columns, rechecked');
	RETURN QUERY SELECT * FROM try('tag IS NULL', NULL, 'NULLs');
	RETURN QUERY SELECT * FROM try('rare', 'exact', 'rows that a sample may miss');
	RETURN QUERY SELECT * FROM try('near > 16000', NULL, 'near some queries, far from others');
	RETURN QUERY SELECT * FROM try('near <= 6000', NULL, 'the other way round');
END $$;
SELECT try_all();
SET gpugraph.iterative_scan = relaxed_order;
SELECT cmp_ok(recall('items', '<->', 20, 'cat < 25'), '>=', 0.98, 'relaxed: 1 in 2');
SELECT cmp_ok(recall('items', '<->', 20, 'near <= 6000'), '>=', 0.98, 'relaxed: far or near');
SET gpugraph.iterative_scan = off;
SELECT is((sound('cat < 25', q, 10)).is_sound, true, 'off: query ' || q)
	FROM generate_series(1, 3) q;
RESET gpugraph.iterative_scan;

-- matches are counted, or estimated from a sample
SELECT sound('cat < 25', 1, 10) \g /dev/null
SELECT ok(matches BETWEEN 14000 AND 18000, 'matches of a walk are estimated')
	FROM gpugraph_last_scan();
SELECT sound('rare', 1, 10) \g /dev/null
SELECT is(matches, 60::bigint, 'others are counted') FROM gpugraph_last_scan();

-- to the end of the scan every row that matches comes once
SELECT is((SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM items WHERE cat < 25
	ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 100000) s),
	(SELECT array_agg(id ORDER BY id) FROM items WHERE cat < 25), 'all rows that match');
SELECT is(filter_of_last_scan(), 'exact', 'in the end all were measured');

-- rows that VACUUM has cleared
DELETE FROM items WHERE cat < 10;
SELECT sound('cat < 25', 2, 20) \g /dev/null
VACUUM items;
SELECT try('cat < 25', NULL, 'after VACUUM');
SET gpugraph.engine = cpu;
SELECT try('cat < 25', 'walk', 'the CPU engine');
RESET gpugraph.engine;
UPDATE items SET cat = cat + 25 WHERE cat < 25 AND id % 2 = 0;
SELECT is((sound('cat < 25', 3, 20)).is_sound, true, 'after an update');
SELECT cmp_ok(recall('items', '<->', 20, 'cat < 25'), '>=', 0.98, 'after an update: recall');

SELECT * FROM finish();
