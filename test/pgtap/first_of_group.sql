-- The first rows of each group, nearest first: the index's order, read until LIMIT has its rows.
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 6000, 12, 40);
SELECT make_queries('items', 10);
ALTER TABLE items ADD document int, ADD name text COLLATE "C", ADD part numeric;
UPDATE items SET document = nullif(hashint4(id) % 300, 7), name = 'n' || abs(hashint4(id) % 90),
	part = (id % 5)::numeric / 2;
CREATE INDEX items_idx ON items USING gpugraph (val, cat);
VACUUM ANALYZE items;

CREATE FUNCTION by_groups(sql text) RETURNS boolean LANGUAGE sql AS $$
	SELECT plan_of(sql) ~ 'GpugraphFirstOfGroup' $$;
CREATE FUNCTION answer(sql text, index boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	PERFORM use_index(index);
	EXECUTE 'SELECT string_agg(s::text, '' '') FROM (' || sql || ') s' INTO answer;
	RETURN answer;
END $$;

-- Over all queries: by other plans, and with another answer.
CREATE FUNCTION differences(statement text, OUT by_others bigint, OUT wrong bigint)
	LANGUAGE plpgsql AS $$
DECLARE
	query text;
	sql text;
BEGIN
	by_others := 0; wrong := 0;
	FOR query IN SELECT val::text FROM queries ORDER BY q LOOP
		sql := regexp_replace(statement, '\mD\M', format('(val <-> %L)', query), 'g');
		PERFORM use_index(true);
		by_others := by_others + (NOT by_groups(sql))::int;
		wrong := wrong + (answer(sql, true) IS DISTINCT FROM answer(sql, false))::int;
	END LOOP;
END $$;
SET gpugraph.itopk_size = 256;
SELECT is(c::text, '(0,0)', statement) FROM (VALUES
	('SELECT document, min(D) AS d FROM items GROUP BY document ORDER BY d LIMIT 10'),
	('SELECT min(D) AS d, document FROM items GROUP BY 2 ORDER BY 1 LIMIT 5 OFFSET 3'),
	('SELECT name, part, min(D) FROM items GROUP BY name, part ORDER BY min(D) LIMIT 20'),
	('SELECT part, min(D) FROM items GROUP BY part ORDER BY 2 LIMIT 100'),
	('SELECT name FROM items GROUP BY name ORDER BY min(D) LIMIT 7'),
	('SELECT lower(name), 1 - min(D) AS s FROM items GROUP BY lower(name) ORDER BY min(D) LIMIT 7'),
	('SELECT document, min(D) AS d FROM items WHERE cat = 7 GROUP BY document ORDER BY d LIMIT 10'),
	('SELECT document, min(D) AS d FROM items WHERE big > 90 GROUP BY 1 ORDER BY d LIMIT 10'),
	('SELECT * FROM (SELECT document, min(D) AS d FROM items GROUP BY 1 ORDER BY 2 LIMIT 10) s'),
	('SELECT id, min(D) AS d FROM items GROUP BY id ORDER BY d LIMIT 10'),
	('SELECT document, id FROM (SELECT DISTINCT ON (document) document, id, D AS d FROM items
		ORDER BY document, d) s ORDER BY d LIMIT 10'),
	('SELECT * FROM (SELECT DISTINCT ON (name, part) id, val, part, D AS d, name || 1 FROM items
		WHERE cat < 30 ORDER BY part DESC, name, d) s ORDER BY d, id LIMIT 20 OFFSET 2'),
	('SELECT id, d FROM (SELECT id, D AS d, row_number() OVER (PARTITION BY document ORDER BY D)
		AS n FROM items) s WHERE n <= 2 ORDER BY d LIMIT 10'),
	('SELECT s.*, n + 1 FROM (SELECT document, name, D AS d, id, row_number() OVER (PARTITION BY
		name, part ORDER BY D) AS n FROM items WHERE big > 50) s WHERE 3 >= n ORDER BY d LIMIT 20'),
	('SELECT id, n FROM (SELECT id, D AS d, row_number() OVER (PARTITION BY document ORDER BY D)
		AS n, document FROM items) s WHERE n = 1 AND document < 250 ORDER BY d LIMIT 10'),
	('SELECT * FROM (SELECT id, n FROM (SELECT id, D AS d, row_number() OVER (PARTITION BY part
		ORDER BY D) AS n FROM items) s WHERE n <= 3 AND n > 1 ORDER BY d LIMIT 6) t ORDER BY id')
	) s(statement),
	differences(statement) c;

-- what it is not for
CREATE FUNCTION document_of(int) RETURNS int STABLE LANGUAGE plpgsql AS 'BEGIN RETURN $1; END';
SELECT use_index(true);
SELECT ok(NOT by_groups(regexp_replace(sql, '\mD\M', format('(val <-> %L)', val), 'g')),
	'not ' || sql)
	FROM queries, (VALUES
	('SELECT document, min(D) FROM items GROUP BY 1 ORDER BY 2'),
	('SELECT document, min(D) FROM items GROUP BY 1 ORDER BY 2 FETCH FIRST 3 ROWS WITH TIES'),
	('SELECT document, min(D) FROM items GROUP BY 1 ORDER BY 2 DESC LIMIT 3'),
	('SELECT document, min(D) FROM items GROUP BY 1 ORDER BY 2 NULLS FIRST LIMIT 3'),
	('SELECT document, min(D), count(*) FROM items GROUP BY 1 ORDER BY 2 LIMIT 3'),
	('SELECT document, max(D) FROM items GROUP BY 1 ORDER BY 2 LIMIT 3'),
	('SELECT document, min(D) FILTER (WHERE cat = 1) FROM items GROUP BY 1 ORDER BY 2 LIMIT 3'),
	('SELECT document, min(D) FROM items GROUP BY 1 HAVING count(*) > 1 ORDER BY 2 LIMIT 3'),
	('SELECT document, min(D) FROM items GROUP BY ROLLUP (1) ORDER BY 2 LIMIT 3'),
	('SELECT * FROM (SELECT DISTINCT ON (document) id, D AS d FROM items ORDER BY document, d) s
		ORDER BY d'),
	('SELECT * FROM (SELECT DISTINCT ON (document) id, D AS d FROM items ORDER BY document, d) s
		LIMIT 3'),
	('SELECT * FROM (SELECT DISTINCT ON (document) id, D AS d FROM items ORDER BY document, id) s
		ORDER BY d LIMIT 3'),
	('SELECT * FROM (SELECT DISTINCT ON (document) id, D AS d FROM items ORDER BY document, d DESC)
		s ORDER BY d LIMIT 3'),
	('SELECT * FROM (SELECT DISTINCT ON (document) id, D AS d FROM items ORDER BY document, d
		LIMIT 5) s ORDER BY d LIMIT 3'),
	('SELECT * FROM (SELECT DISTINCT ON (document) id, D AS d FROM items ORDER BY document, d) s
		WHERE d < 3 ORDER BY d LIMIT 3'),
	('SELECT * FROM (SELECT DISTINCT ON (document) id, D AS d FROM items ORDER BY document, d) s
		JOIN queries ON q = id ORDER BY d LIMIT 3'),
	('SELECT count(*) FROM (SELECT DISTINCT ON (document) id, D AS d FROM items
		ORDER BY document, d) s'),
	('SELECT * FROM (SELECT DISTINCT ON (document) id, random(), D AS d FROM items
		ORDER BY document, d) s ORDER BY d LIMIT 3'),
	('SELECT (SELECT array_agg(id) FROM (SELECT DISTINCT ON (document) id, D AS d FROM items
		ORDER BY document, d) s) FROM queries ORDER BY q LIMIT 3'),
	('SELECT * FROM (SELECT id, D AS d, rank() OVER (PARTITION BY document ORDER BY D) AS n
		FROM items) s WHERE n <= 2 ORDER BY d LIMIT 3'),
	('SELECT * FROM (SELECT id, D AS d, row_number() OVER (PARTITION BY document ORDER BY D) AS n
		FROM items) s ORDER BY d LIMIT 3'),
	('SELECT * FROM (SELECT id, D AS d, row_number() OVER (PARTITION BY document ORDER BY D) AS n
		FROM items) s WHERE n <= 2 AND d < 3 ORDER BY d LIMIT 3'),
	('SELECT * FROM (SELECT id, D AS d, row_number() OVER (PARTITION BY document ORDER BY D) AS n
		FROM items) s WHERE n <= document_of(3) ORDER BY d LIMIT 3'),
	('SELECT * FROM (SELECT id, D AS d, row_number() OVER (PARTITION BY document ORDER BY id) AS n
		FROM items) s WHERE n <= 2 ORDER BY d LIMIT 3'),
	('SELECT * FROM (SELECT id, D AS d, row_number() OVER (PARTITION BY document ORDER BY D) AS n,
		count(*) OVER (PARTITION BY document ORDER BY D) FROM items) s
		WHERE n <= 2 ORDER BY d LIMIT 3')) s(sql)
	WHERE q = 1;
SELECT format('SELECT document, min(val <-> %L) FROM items GROUP BY 1 ORDER BY 2 LIMIT 3', val)
	AS sql FROM queries WHERE q = 1 \gset
SET gpugraph.iterative_scan = relaxed_order;
SELECT ok(NOT by_groups(:'sql'), 'not under relaxed_order');
RESET gpugraph.iterative_scan;
SET gpugraph.disable = sort_keys;
SELECT ok(NOT by_groups(:'sql'), 'not where it is disabled');
RESET gpugraph.disable;

-- as parts of other statements
SELECT unnest(ARRAY[ok(by_groups(sql), 'LATERAL'),
	is(answer(sql, true), answer(sql, false), 'its rows')])
	FROM (VALUES ('SELECT * FROM (SELECT * FROM queries ORDER BY q OFFSET 0) p, LATERAL (SELECT
	document, min(items.val <-> p.val) AS d FROM items GROUP BY document ORDER BY d LIMIT 4) s'))
	s(sql);
PREPARE nearest(vector, int) AS SELECT document, min(val <-> $1) AS d FROM items
	GROUP BY document ORDER BY d LIMIT $2;
SET plan_cache_mode = force_generic_plan;
SELECT use_index(true);
SELECT ok(plan_of(format('EXECUTE nearest(%L, 5)', val)) ~ 'GpugraphFirstOfGroup', 'a generic plan')
	FROM queries WHERE q = 2;
-- a cached plan keeps its order under other settings
SELECT format('PREPARE kept AS %s', :'sql') \gexec
SELECT use_index(true);
EXECUTE kept \g /dev/null
SET gpugraph.iterative_scan = relaxed_order;
SELECT results_eq('EXECUTE kept', :'sql', 'a cached plan under relaxed_order');
SET gpugraph.iterative_scan = off;
SET gpugraph.itopk_size = 1;
CREATE TABLE kept_rows AS EXECUTE kept;
SELECT is(count(*), 3::bigint, 'a cached plan under iterative_scan = off') FROM kept_rows;
RESET gpugraph.iterative_scan;
SET gpugraph.itopk_size = 256;
BEGIN;
SELECT format('DECLARE c CURSOR FOR %s', :'sql') \gexec
FETCH 2 FROM c \g /dev/null
SELECT lives_ok('FETCH 5 FROM c', 'a cursor');
COMMIT;
SELECT * FROM finish();
