-- Partitions by centroid: rows route themselves, gpugraph.partition_probes has queries ask the
-- nearest partitions alone, whatever the form of the query, more probes find more, and 0 finds all.
\ir include/helpers.psql
SELECT * FROM no_plan();
SET max_parallel_workers_per_gather = 0;

SELECT make_data('items', 4000, 16, 300);
SELECT make_queries('items', 40);
SELECT gpugraph_partition_by_centroid('items', 'val', 'pages', 8);
INSERT INTO pages SELECT * FROM items;
CREATE INDEX pages_idx ON pages USING gpugraph (val vector_l2_ops);
ANALYZE pages;

-- ---- rows

SELECT is((SELECT count(*) FROM pg_inherits WHERE inhparent = 'pages'::regclass), 8::bigint,
	'as many partitions as asked for');
SELECT is((SELECT count(*) FROM pages
	WHERE tableoid <> format('pages_%s', (SELECT c FROM unnest(pages_centroids())
		WITH ORDINALITY u(v, c) ORDER BY v <-> val LIMIT 1))::regclass), 0::bigint,
	'each row is with its nearest centroid');
SELECT cmp_ok((SELECT max(n) FROM (SELECT count(*) AS n FROM pages GROUP BY tableoid) s), '<',
	1500::bigint, 'no partition has most rows');
WITH moved AS (UPDATE pages SET val = (SELECT val FROM pages_3 LIMIT 1)
	WHERE id = (SELECT id FROM pages_5 LIMIT 1) RETURNING tableoid::regclass AS t)
	SELECT is(t::text, 'pages_3', 'a row moves with its vector') FROM moved;
SELECT id AS moved FROM pages_3 EXCEPT SELECT id FROM items
	WHERE gpugraph_nearest_centroid('pages_centroids()', val) = 3 \gset
UPDATE pages SET val = items.val FROM items WHERE items.id = :moved AND pages.id = :moved;
INSERT INTO pages VALUES (0, 0, 0, NULL);
SELECT is((SELECT tableoid::regclass::text FROM pages WHERE id = 0), 'pages_1',
	'a row without a vector is in the first partition');
DELETE FROM pages WHERE id = 0;

-- ---- recall

-- how many of the ten nearest rows of each query so many probes find
CREATE FUNCTION found(probes int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('gpugraph.partition_probes', probes::text, true);
	RETURN (SELECT count(*) FROM queries q,
		LATERAL (SELECT id FROM pages ORDER BY val <-> q.val LIMIT 10) t
		WHERE (q.q, t.id) IN (SELECT n.q, n.id FROM nearest n));
END $$;
SELECT use_index(false);
CREATE TEMP TABLE nearest AS SELECT q.q, t.id FROM queries q,
	LATERAL (SELECT id FROM items ORDER BY items.val <-> q.val LIMIT 10) t;
CREATE TEMP TABLE seen AS SELECT probes, found(probes) AS rows FROM generate_series(0, 9) probes;
SELECT is((SELECT array_agg(rows) FROM seen WHERE probes IN (0, 8, 9)), '{400,400,400}',
	'no probes, all, and more than there are: the exact answers');
SELECT is((SELECT count(*) FROM seen a JOIN seen b ON b.probes = a.probes + 1
	WHERE a.probes > 0 AND b.rows < a.rows), 0::bigint, 'more probes find no less');
SELECT cmp_ok((SELECT rows FROM seen WHERE probes = 1), '>', 200::bigint, 'one probe finds most');
SELECT use_index(true);
SELECT cmp_ok(found(8), '>=', 398::bigint, 'by the indexes');
SELECT cmp_ok(abs(found(2) - (SELECT rows FROM seen WHERE probes = 2)), '<', 4::bigint,
	'as many as without');

-- ---- every form of query

SET gpugraph.partition_probes = 2;
SELECT val AS q FROM queries WHERE q = 7 \gset
CREATE TEMP TABLE wanted AS
	SELECT format('pages_%s',
		gpugraph_probe('pages_centroids()', '<->', :'q'::vector, place)) AS part
	FROM generate_series(1, 2) place;
CREATE FUNCTION scans() RETURNS TABLE (part text, scans bigint) LANGUAGE sql AS $$
	SELECT relname::text, pg_stat_get_xact_numscans(c.oid) +
		(SELECT sum(pg_stat_get_xact_numscans(indexrelid)) FROM pg_index WHERE indrelid = c.oid)
	FROM pg_class c WHERE relname ~ '^pages_\d+$' AND relkind = 'r'
$$;
-- how many of the wanted partitions, and of others, a query scans
CREATE FUNCTION asked(query text, OUT parts bigint, OUT others bigint) LANGUAGE plpgsql AS $$
BEGIN
	DROP TABLE IF EXISTS before;
	CREATE TEMP TABLE before AS SELECT * FROM scans();
	EXECUTE query;
	SELECT count(w.part), count(*) - count(w.part) INTO parts, others
		FROM scans() s JOIN before b USING (part) LEFT JOIN wanted w USING (part)
		WHERE s.scans > b.scans;
END $$;
SET plan_cache_mode = force_generic_plan;
PREPARE generic(vector) AS SELECT id FROM pages ORDER BY val <-> $1 LIMIT 5;
SELECT results_eq(format('SELECT * FROM asked(%L)', query), 'VALUES (2::bigint, 0::bigint)', what)
FROM (VALUES
	('a constant', format('SELECT id FROM pages ORDER BY val <-> %L LIMIT 5', :'q')),
	('the operator''s other side',
		format('SELECT id FROM pages ORDER BY %L <-> val LIMIT 5', :'q')),
	('a generic plan', format('EXECUTE generic(%L)', :'q')),
	('a subquery', 'SELECT id FROM pages ORDER BY val <-> (SELECT val FROM queries WHERE q = 7)
		LIMIT 5'),
	('an outer row', 'SELECT s.id FROM queries,
		LATERAL (SELECT id FROM pages ORDER BY pages.val <-> queries.val LIMIT 5) s WHERE q = 7'),
	('a condition',
		format('SELECT id FROM pages WHERE cat < 40 ORDER BY val <-> %L LIMIT 5', :'q')),
	('a join', format('SELECT p.id FROM pages p JOIN items i USING (id) ORDER BY p.val <-> %L
		LIMIT 5', :'q')),
	('the kept side of an outer join', format('SELECT p.id FROM pages p LEFT JOIN items i
		ON i.id = -p.id ORDER BY p.val <-> %L LIMIT 5', :'q')),
	('FOR UPDATE', format('SELECT id FROM pages ORDER BY val <-> %L LIMIT 5 FOR UPDATE', :'q'))
) v(what, query);
SELECT results_eq(format('SELECT parts + others FROM asked(%L)', query), 'VALUES (8::bigint)', what)
FROM (VALUES
	('LIMIT ALL', format('SELECT id FROM pages ORDER BY val <-> %L LIMIT ALL', :'q')),
	('no LIMIT', format('SELECT id FROM pages ORDER BY val <-> %L', :'q')),
	('no order', 'SELECT id FROM pages LIMIT 5000'),
	('an aggregate', format('SELECT count(*) FROM pages GROUP BY id %% 2
		ORDER BY min(val <-> %L) LIMIT 5', :'q')),
	('a distance that comes second', format('SELECT id FROM pages ORDER BY cat, val <-> %L LIMIT 5',
		:'q')),
	('a distance to a column', 'SELECT id FROM pages ORDER BY val <-> val LIMIT 5'),
	('the other side of an outer join', format('SELECT i.id FROM items i LEFT JOIN pages p
		USING (id) ORDER BY p.val <-> %L LIMIT 5', :'q'))
) v(what, query);
SET gpugraph.partition_probes = 0;
SELECT results_eq(
	format('SELECT parts + others FROM asked(%L)', format('EXECUTE generic(%L)', :'q')),
	'VALUES (8::bigint)', 'a plan that was kept follows the setting');
SET gpugraph.partition_probes = 1;
SELECT is((SELECT count(*) FROM (SELECT id FROM pages ORDER BY val <-> NULL::vector LIMIT 5) s),
	5::bigint, 'no query: any rows');
SET enable_partition_pruning = off;
SELECT is((SELECT parts + others FROM asked(format('EXECUTE generic(%L)', :'q'))), 1::bigint,
	'without pruning the partition is still the one asked');
RESET enable_partition_pruning;

-- ---- what partitions may be

DROP TABLE pages_8;
CREATE TABLE other (val vector(16), dropped int, big int, id int NOT NULL, cat int);
ALTER TABLE other DROP COLUMN dropped;
ALTER TABLE pages ATTACH PARTITION other FOR VALUES IN (8);
ALTER TABLE pages DETACH PARTITION pages_6;
ALTER TABLE pages DETACH PARTITION pages_7;
CREATE TABLE both_of PARTITION OF pages FOR VALUES IN (6, 7) PARTITION BY HASH (id);
CREATE TABLE both_of_1 PARTITION OF both_of FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE both_of_2 PARTITION OF both_of FOR VALUES WITH (MODULUS 2, REMAINDER 1);
ALTER TABLE pages DETACH PARTITION pages_5;
CREATE TABLE rest PARTITION OF pages DEFAULT;
INSERT INTO pages SELECT id, cat, big, val FROM items WHERE gpugraph_nearest_centroid(
	'pages_centroids()', val) IN (5, 6, 7, 8);
SELECT is((SELECT count(*) FROM pages), 4000::bigint, 'partitions of other kinds');
SELECT use_index(false);
SELECT is((SELECT array_agg(found(probes)) FROM generate_series(0, 8) probes),
	(SELECT array_agg(rows) FROM seen WHERE probes < 9), 'find the same rows');

-- ---- types and metrics

CREATE TABLE halves AS SELECT id, val::halfvec(16) AS val FROM items;
SELECT gpugraph_partition_by_centroid('halves', 'val', 'half_pages', 5, 'cosine');
INSERT INTO half_pages SELECT * FROM halves;
SELECT cmp_ok((SELECT max(abs(vector_norm(c) - 1)) FROM unnest(half_pages_centroids()) c), '<',
	1e-5::float8, 'under cosine centroids have unit length');
SELECT is((SELECT count(*) FROM half_pages
	WHERE tableoid <> format('half_pages_%s', (SELECT c FROM unnest(half_pages_centroids())
		WITH ORDINALITY u(v, c) ORDER BY v <=> val::vector LIMIT 1))::regclass), 0::bigint,
	'and rows are at the least angle');
SET gpugraph.partition_probes = 2;
SELECT is((SELECT count(DISTINCT s.t) FROM
	(SELECT tableoid AS t FROM half_pages ORDER BY val <=> :'q'::halfvec LIMIT 4000) s), 2::bigint,
	'halfvec');
SELECT is(array(SELECT DISTINCT s.t::regclass::text FROM
	(SELECT tableoid AS t FROM half_pages ORDER BY val <#> :'q'::halfvec LIMIT 4000) s ORDER BY 1),
	array(SELECT format('half_pages_%s', c) FROM (SELECT c FROM unnest(half_pages_centroids())
		WITH ORDINALITY u(v, c) ORDER BY v <#> :'q' LIMIT 2) s ORDER BY 1),
	'the query''s operator orders centroids');

-- ---- the function

CREATE SCHEMA elsewhere;
SELECT gpugraph_partition_by_centroid('items', 'val', 'elsewhere."Odd name"', 3);
SELECT is((SELECT count(*) FROM pg_class WHERE relnamespace = 'elsewhere'::regnamespace),
	4::bigint, 'a schema, and a name to be quoted');
CREATE ROLE centroid_reader;
GRANT SELECT, INSERT ON pages TO centroid_reader;
REVOKE EXECUTE ON FUNCTION pages_centroids() FROM PUBLIC;
SET ROLE centroid_reader;
SELECT lives_ok($$SELECT id FROM pages ORDER BY val <-> '$$ || :'q' || $$' LIMIT 5$$,
	'who may read the table need not be allowed to call the function');
SELECT throws_ok($$INSERT INTO pages SELECT * FROM pages LIMIT 1$$, '42501',
	'permission denied for function pages_centroids', 'centroids have privileges');
RESET ROLE;
SELECT lives_ok($$INSERT INTO pages SELECT * FROM pages LIMIT 1$$, 'who may insert does');
GRANT EXECUTE ON FUNCTION pages_centroids() TO centroid_reader;
ALTER TABLE pages ENABLE ROW LEVEL SECURITY;
CREATE POLICY even ON pages USING (id % 2 = 0);
SET ROLE centroid_reader;
SELECT results_eq(format('SELECT count(*) > 0, bool_and(id %% 2 = 0), count(DISTINCT t) FROM
	(SELECT id, tableoid AS t FROM pages ORDER BY val <-> %L LIMIT 4000) s', :'q'),
	'VALUES (true, true, 2::bigint)', 'row-level security');
RESET ROLE;
CREATE FUNCTION two() RETURNS vector[] LANGUAGE sql IMMUTABLE AS
	$$ SELECT '{"[0,0]","[1,1]"}'::vector[] $$;
SELECT is(gpugraph_nearest_centroid('two()', '[0.9, 0.8]'::vector), 2, 'the nearest');
CREATE OR REPLACE FUNCTION two() RETURNS vector[] LANGUAGE sql IMMUTABLE AS
	$$ SELECT '{"[1,1]","[0,0]"}'::vector[] $$;
SELECT is(gpugraph_nearest_centroid('two()', '[0.9, 0.8]'::vector), 1, 'a change is noticed');
SELECT is(array(SELECT gpugraph_probe('two()', '<->', '[0.9, 0.8]'::vector, i)
	FROM generate_series(0, 3) i), '{NULL,1,2,NULL}', 'all by distance');

-- ---- refusals

CREATE FUNCTION no_vectors() RETURNS int[] LANGUAGE sql IMMUTABLE AS $$ SELECT '{1}'::int[] $$;
CREATE FUNCTION uneven() RETURNS vector[] LANGUAGE sql IMMUTABLE AS
	$$ SELECT '{"[0,0]","[1]"}'::vector[] $$;
CREATE FUNCTION no_one() RETURNS vector[] LANGUAGE sql IMMUTABLE AS $$ SELECT '{}'::vector[] $$;
CREATE FUNCTION nothing() RETURNS vector[] LANGUAGE sql IMMUTABLE AS
	$$ SELECT NULL::vector[] $$;
CREATE FUNCTION changing() RETURNS vector[] LANGUAGE sql AS $$ SELECT '{"[0,0]"}'::vector[] $$;
SELECT throws_ok(format('SELECT gpugraph_nearest_centroid(%L, %L::vector)', f, '[1,2]'), '42809',
	format('function %s does not return centroids', f), f)
	FROM unnest('{no_vectors(),uneven(),no_one(),nothing(),changing()}'::text[]) f;
SELECT throws_ok($$SELECT gpugraph_nearest_centroid('two()', '[1,2,3]'::vector)$$, '22000',
	'different vector dimensions 3 and 2');
SELECT throws_ok($$SELECT gpugraph_probe('two()', '<~>', '[1,2]'::vector, 1)$$, '22023',
	'operator "<~>" is no distance');
SELECT throws_ok(format('SELECT gpugraph_partition_by_centroid(%s)', arguments), code, message,
	message)
FROM (VALUES
	($$'items', 'value', 'x', 8$$, '42703', 'column "value" of relation "items" does not exist'),
	($$'items', 'cat', 'x', 8$$, '42809', 'column "cat" is of type integer, not vector or halfvec'),
	($$'items', 'val', 'x', 1$$, '22023',
		'1 is outside the valid range of partitions (2 .. 32768)'),
	($$'items', 'val', 'x', 8, 'l3'$$, '22023', 'metric "l3" is unknown'),
	($$'items', 'val', 'x', 8, 'l2', 7$$, '22023',
		'a sample of 7 rows is too small for 8 partitions'),
	($$'items', 'val', 'x', 8, 'l2', 2000000$$, '53200',
		'maintenance_work_mem has no room for a sample of 2000000 rows'),
	($$'queries', 'val', 'x', 41$$, '55000',
		'table "queries" has too few rows with a vector for 41 partitions'),
	($$'items', 'val', repeat('x', 60), 8$$, '42622',
		format('name "%s" is too long', repeat('x', 60))),
	($$'items', 'val', 'items', 8$$, '42P07', 'relation "items" already exists')
) v(arguments, code, message);
SELECT is((SELECT count(*) FROM pg_proc WHERE proname IN ('x_centroids', 'items_centroids')),
	0::bigint, 'what fails leaves nothing');
DROP OWNED BY centroid_reader;
DROP ROLE centroid_reader;
SELECT * FROM finish();
