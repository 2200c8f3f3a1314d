-- The values of filter columns in the index are those of the table: gpugraph_check(index, true)
-- compares them, after builds, inserts, updates, deletes, vacuums and merges
\ir include/helpers.psql
SELECT * FROM no_plan();

SET max_parallel_maintenance_workers = 0;
CREATE TYPE colour AS ENUM ('red', 'green', 'blue');
CREATE DOMAIN tag AS text CHECK (value <> '');

-- 'ok', or what gpugraph_check() says of the index of that table
CREATE FUNCTION checked(rel text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM gpugraph_check((rel || '_idx')::regclass, true);
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN sqlstate || ': ' || sqlerrm;
END $$;
-- n vectors of dim elements, of which only so many differ
CREATE FUNCTION vectors(first int, n int, dim int, different int DEFAULT 1000000)
	RETURNS TABLE (id int, val text) LANGUAGE sql AS $$
	SELECT i, format('[%s,%s%s]', sin(i % different), cos(i % different * 7),
		repeat(',0.25', dim - 2))
	FROM generate_series(first, first + n - 1) i $$;

-- eight columns of all kinds, some of whose values are NULL; equal vectors with different values
CREATE TABLE kinds (id int, val vector(8), flag boolean, small smallint, big bigint, real_ real,
	time timestamptz, key uuid, tag tag, tags text[]);
CREATE FUNCTION add_kinds(first int, n int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO kinds SELECT id, val::vector, nullif(id % 3, 0) = 1, nullif(id % 100, 7),
		nullif(id * 10000000000, 70000000000), nullif(id / 8.0, 1), nullif('epoch'::timestamptz +
		id * interval '1 day', 'epoch'), md5(nullif(id, 9)::text)::uuid, nullif('tag ' || id % 20,
		'tag 3'), CASE WHEN id % 5 > 0 THEN ARRAY['a' || id, NULL, 'b'] END
	FROM vectors(first, n, 8, 700) $$;
SELECT add_kinds(1, 2000);
INSERT INTO kinds (id, val) SELECT -id, val::vector FROM vectors(1, 5, 8, 700);
CREATE INDEX kinds_idx ON kinds USING gpugraph
	(val vector_l2_ops, flag, small, big, real_, time, key, tag, tags);
SELECT is(checked('kinds'), 'ok', 'built');
SELECT is((SELECT format('%s nodes, %s rows, %s columns', nodes, rows, filter_columns)
	FROM gpugraph_index_info('kinds_idx')), '700 nodes, 2005 rows, 8 columns',
	'rows that share a node');
SELECT cmp_ok((SELECT filters_bytes FROM gpugraph_index_info('kinds_idx')), '>=',
	2005 * 11 * 8::bigint, 'seven words and a mask of four for each row');
SELECT add_kinds(2001, 1500);
INSERT INTO kinds (id, val) SELECT -id, val::vector FROM vectors(1001, 5, 8, 700);
SELECT is(checked('kinds'), 'ok', 'rows inserted');
SELECT gpugraph_merge('kinds_idx');
SELECT is(checked('kinds'), 'ok', 'merged');
SELECT is((SELECT format('%s segments, %s nodes', segments, nodes)
	FROM gpugraph_index_info('kinds_idx')), '1 segments, 700 nodes', 'rows that share a node');

-- a change of a filter column alone is an index update, one of another column is not
SELECT pg_stat_reset_single_table_counters('kinds'::regclass) \g /dev/null
SELECT delta_rows AS before FROM gpugraph_index_info('kinds_idx') \gset
UPDATE kinds SET big = -big WHERE id BETWEEN 500 AND 699;
SELECT is((SELECT delta_rows FROM gpugraph_index_info('kinds_idx')), :before + 200::bigint,
	'an update of a filter column inserts');
SELECT is(checked('kinds'), 'ok', 'rows updated');
UPDATE kinds SET flag = NULL, small = NULL, big = NULL, real_ = NULL, time = NULL, key = NULL,
	tag = NULL, tags = NULL WHERE id BETWEEN 100 AND 149;
SELECT is(checked('kinds'), 'ok', 'rows updated to NULL');
UPDATE kinds SET tag = 'new', tags = '{}' WHERE id BETWEEN 120 AND 129;
SELECT is(checked('kinds'), 'ok', 'and from NULL');
ALTER TABLE kinds SET (fillfactor = 50);
VACUUM FULL kinds;
SELECT is(checked('kinds'), 'ok', 'built anew');
SELECT delta_rows AS before FROM gpugraph_index_info('kinds_idx') \gset
UPDATE kinds SET id = id + 1000000 WHERE id BETWEEN 300 AND 399;
SELECT is((SELECT delta_rows FROM gpugraph_index_info('kinds_idx')), :before::bigint,
	'an update of another column does not');
SELECT is(checked('kinds'), 'ok', 'HOT chains');

-- deleted rows, whose line pointers are used again
DELETE FROM kinds WHERE id % 3 = 0;
SELECT is(checked('kinds'), 'ok', 'rows deleted');
VACUUM kinds;
SELECT is(checked('kinds'), 'ok', 'vacuumed');
SELECT add_kinds(4001, 900);
SELECT is(checked('kinds'), 'ok', 'rows in their place');
SELECT gpugraph_merge('kinds_idx');
SELECT is(checked('kinds'), 'ok', 'merged with dead rows');
DELETE FROM kinds WHERE id < 4300;
VACUUM kinds;
SELECT gpugraph_merge('kinds_idx');
SELECT is(checked('kinds'), 'ok', 'compacted');
DELETE FROM kinds;
VACUUM (FREEZE) kinds;
SELECT is(checked('kinds'), 'ok', 'all rows deleted');
SELECT is((SELECT filters_bytes FROM gpugraph_index_info('kinds_idx')), 0::bigint,
	'words are given back with their segment');
SELECT add_kinds(1, 1000);
REINDEX INDEX kinds_idx;
SELECT is(checked('kinds'), 'ok', 'REINDEX');
TRUNCATE kinds;
SELECT add_kinds(1, 300);
SELECT is(checked('kinds'), 'ok', 'truncated, and rows inserted');

-- merges of several segments, and again
CREATE TABLE merged (id int, val vector(8), cat int, tags int[]);
CREATE INDEX merged_idx ON merged USING gpugraph (val vector_cosine_ops, cat, tags)
	WITH (seal_rows = 0);
SELECT is(checked('merged'), 'ok', 'an empty index');
CREATE FUNCTION add_merged(first int, n int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO merged SELECT id, val::vector, nullif(id % 9, 0), ARRAY[id % 7, id]
		FROM vectors(first, n, 8, 2500) $$;
DO $$ BEGIN
	FOR round IN 0 .. 4 LOOP
		PERFORM add_merged(1 + round * 1000, 1000);
		DELETE FROM merged WHERE id % 11 = round;
		PERFORM gpugraph_merge('merged_idx');
		IF checked('merged') <> 'ok' THEN
			RAISE 'round %: %', round, checked('merged');
		END IF;
	END LOOP;
END $$;
SELECT is(checked('merged'), 'ok', 'merges of merges');

-- rows longer than a page, whose words are on the first of several
CREATE TABLE long (id int, val vector(2100), cat int, tags text[]);
CREATE FUNCTION add_long(first int, n int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO long SELECT id, val::vector, nullif(id % 9, 0), ARRAY['t' || id % 7, 'u' || id]
		FROM vectors(first, n, 2100, 120) $$;
CREATE INDEX long_idx ON long USING gpugraph (val vector_ip_ops, cat, tags) WITH (seal_rows = 0);
SELECT add_long(1, 150);
SELECT is(checked('long'), 'ok', 'long rows');
SELECT use_index(true);
SELECT is((SELECT array_agg(id ORDER BY id) FROM
	(SELECT id FROM long ORDER BY val <#> (SELECT val FROM long WHERE id = 5)) s),
	(SELECT array_agg(id ORDER BY id) FROM long), 'a scan finds them');
DELETE FROM long WHERE id % 4 = 0;
VACUUM long;
SELECT gpugraph_merge('long_idx');
-- the last page's row stays where a page has room for it
SELECT is((SELECT delta_rows FROM gpugraph_index_info('long_idx')),
	(current_setting('block_size')::int > 2100 * 4)::int::bigint, 'sealed');
SELECT is(checked('long'), 'ok', 'long rows merged');
SELECT add_long(1001, 30);
SELECT is(checked('long'), 'ok', 'and inserted');
-- words and vector that just fit a page, and just do not: 8 + 40 bytes before the vector
CREATE TABLE fits (id int, val vector(2024), cat int, tags text[]);
CREATE INDEX fits_idx ON fits USING gpugraph (val vector_l2_ops, cat, tags) WITH (seal_rows = 0);
CREATE TABLE fits_not (id int, val vector(2025), cat int, tags text[]);
CREATE INDEX fits_not_idx ON fits_not USING gpugraph (val vector_l2_ops, cat, tags)
	WITH (seal_rows = 0);
INSERT INTO fits SELECT id, val::vector, id, ARRAY['t' || id] FROM vectors(1, 20, 2024);
INSERT INTO fits_not SELECT id, val::vector, id, ARRAY['t' || id] FROM vectors(1, 20, 2025);
SELECT is((SELECT delta_bytes / 8192 FROM gpugraph_index_info('fits_idx')), 20::bigint,
	'a page for a row that fits');
SELECT is((SELECT delta_bytes / 8192 FROM gpugraph_index_info('fits_not_idx')),
	CASE current_setting('block_size')::int WHEN 8192 THEN 40 ELSE 20 END::bigint,
	'two for one that does not');
SELECT is(checked('fits') || checked('fits_not'), 'okok', 'both are right');
SELECT gpugraph_merge('fits_idx'), gpugraph_merge('fits_not_idx');
SELECT is(checked('fits') || checked('fits_not'), 'okok', 'and merged');

-- rounded rows, and halfvec
CREATE TABLE rounded AS SELECT id, val::vector(24), id % 4 AS cat, 'x' || id AS name
	FROM vectors(1, 1500, 24);
CREATE INDEX rounded_idx ON rounded USING gpugraph (val vector_ip_ops, cat, name)
	WITH (storage = 'float16', seal_rows = 0);
CREATE TABLE half AS SELECT id, val::halfvec(24), id % 4 AS cat, id / 3.0::float8 AS price
	FROM vectors(1, 1500, 24);
CREATE INDEX half_idx ON half USING gpugraph (val halfvec_l2_ops, cat, price)
	WITH (seal_rows = 0);
INSERT INTO rounded SELECT id, val::vector, id % 4, 'x' || id FROM vectors(2001, 700, 24);
INSERT INTO half SELECT id, val::halfvec, id % 4, id / 3.0::float8 FROM vectors(2001, 700, 24);
SELECT is(checked('rounded') || checked('half'), 'okok', 'float16 storage and halfvec');
SELECT gpugraph_merge('rounded_idx'), gpugraph_merge('half_idx');
SELECT is(checked('rounded') || checked('half'), 'okok', 'merged');

-- partial indexes, expressions, rows that are not indexed
CREATE TABLE part (id int, val vector(4), name text, cat int);
INSERT INTO part SELECT id, CASE WHEN id % 6 > 0 THEN val::vector END, 'Name ' || id, id % 3
	FROM vectors(1, 1200, 4);
INSERT INTO part VALUES (0, '[0,0,0,0]', 'zero', 1);
CREATE INDEX part_idx ON part USING gpugraph (val vector_cosine_ops, lower(name), cat, (id % 100))
	WHERE cat > 0;
SELECT is(checked('part'), 'ok', 'a partial index over expressions');
UPDATE part SET cat = 2 - cat WHERE id % 5 = 0;
INSERT INTO part VALUES (-1, '[0,0,0,0]', 'zero', 1), (-2, NULL, 'null', 1);
SELECT is(checked('part'), 'ok', 'rows that come and go');

-- a text that is declared otherwise, without a rewrite, keeps its words
CREATE TABLE declared (id int, val vector(4), name varchar(10));
INSERT INTO declared SELECT id, val::vector, 'name ' || id % 9 FROM vectors(1, 500, 4);
CREATE INDEX declared_idx ON declared USING gpugraph (val vector_l2_ops, name);
SELECT generation AS before FROM gpugraph_index_info('declared_idx') \gset
SELECT pg_relation_filenode('declared_idx') AS node \gset
ALTER TABLE declared ALTER COLUMN name TYPE text;
SELECT is(pg_relation_filenode('declared_idx'), :node::oid, 'varchar to text: the same file');
INSERT INTO declared SELECT id, val::vector, repeat('long ', 10) || id FROM vectors(501, 100, 4);
SELECT is(checked('declared'), 'ok', 'which is right');
ALTER TABLE declared ALTER COLUMN name TYPE int USING length(name);
SELECT is(checked('declared'), 'ok', 'text to integer: built anew');

-- the check sees values that differ
CREATE TABLE liar (id int, val vector(4), cat int);
INSERT INTO liar SELECT id, val::vector, id FROM vectors(1, 400, 4);
CREATE FUNCTION lie(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN x; END';
CREATE INDEX liar_idx ON liar USING gpugraph (val vector_l2_ops, lie(cat)) WITH (seal_rows = 0);
INSERT INTO liar SELECT id, val::vector, id FROM vectors(401, 50, 4);
SELECT is(checked('liar'), 'ok', 'a function that tells the truth');
CREATE OR REPLACE FUNCTION lie(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
	'BEGIN RETURN CASE WHEN x = 250 THEN 251 ELSE x END; END';
SELECT matches(checked('liar'), '^XX002: index "liar_idx" is corrupted at block [0-9]+: '
	'the table has other values of filter columns in the row of the TID \(\d+,\d+\)$',
	'one that does not, of a row in a segment');
CREATE OR REPLACE FUNCTION lie(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
	'BEGIN RETURN CASE WHEN x = 450 THEN NULL ELSE x END; END';
SELECT matches(checked('liar'), '^XX002: index "liar_idx" is corrupted at block \d+: '
	'the table has other values', 'in the delta');
CREATE OR REPLACE FUNCTION lie(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
	'BEGIN RETURN x; END';
REINDEX INDEX liar_idx;
SELECT is(checked('liar'), 'ok', 'REINDEX');

-- Several processes, and several segments: 64 MB are too few for the rows, and files not allowed.
-- A GPU would build one segment in memory of its own.
SET gpugraph.engine = cpu;
CREATE TABLE many AS SELECT id, val::vector(1500), id % 10 AS cat, 'x' || id % 100 AS name
	FROM vectors(1, 11000, 1500, 10000);
SET max_parallel_maintenance_workers = 2;
SET min_parallel_table_scan_size = 0;
SET maintenance_work_mem = '1MB';
SET temp_file_limit = '8MB';
CREATE INDEX many_idx ON many USING gpugraph (val vector_l2_ops, cat, name)
	WITH (graph_degree = 16, intermediate_graph_degree = 16);
SELECT cmp_ok((SELECT segments FROM gpugraph_index_info('many_idx')), '>', 1, 'several segments');
SELECT is(checked('many'), 'ok', 'several processes');
SET max_parallel_maintenance_workers = 0;
REINDEX INDEX many_idx;
SELECT cmp_ok((SELECT segments FROM gpugraph_index_info('many_idx')), '>', 1, 'several segments');
SELECT is(checked('many'), 'ok', 'one process');
SET max_parallel_maintenance_workers = 2;
SET maintenance_work_mem = '1GB';
REINDEX INDEX many_idx;
SELECT is((SELECT format('%s segments, %s nodes, %s rows', segments, nodes, rows)
	FROM gpugraph_index_info('many_idx')), '1 segments, 10000 nodes, 11000 rows', 'one segment');
SELECT is(checked('many'), 'ok', 'several processes, one segment');

SELECT * FROM finish();
