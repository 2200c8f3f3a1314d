-- The view gpugraph_indexes: which indexes it has, what it says of them, and to whom
\ir include/helpers.psql
SELECT * FROM no_plan();

CREATE ROLE gg_view_owner;
CREATE ROLE gg_view_stranger;
CREATE ROLE gg_view_monitor IN ROLE pg_stat_scan_tables;
CREATE SCHEMA s AUTHORIZATION gg_view_owner;
SET ROLE gg_view_owner;
CREATE TABLE s.items (id int, val vector(2), half halfvec(2));
SELECT setseed(0.5);
INSERT INTO s.items SELECT i, ARRAY[i, random()]::real[]::vector, ARRAY[i, 0]::real[]::halfvec
	FROM generate_series(1, 1000) i;
CREATE INDEX items_idx ON s.items USING gpugraph (val);
CREATE INDEX half_idx ON s.items USING gpugraph (half halfvec_l2_ops) WITH (algorithm = tsdg);
CREATE INDEX id_idx ON s.items (id);
RESET ROLE;

-- which indexes
SELECT results_eq(
	$$SELECT schemaname, tablename, indexname, relid, valid FROM gpugraph_indexes
		WHERE schemaname = 's' ORDER BY indexname$$,
	$$VALUES ('s'::name, 'items'::name, 'half_idx'::name, 's.half_idx'::regclass::oid, true),
		('s', 'items', 'items_idx', 's.items_idx'::regclass::oid, true)$$,
	'every gpugraph index, and no other');
CREATE TABLE parts (id int, val vector(2)) PARTITION BY RANGE (id);
CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE INDEX parts_idx ON parts USING gpugraph (val);
SELECT results_eq(
	$$SELECT tablename, rows, delta_share, segments FROM gpugraph_indexes
		WHERE tablename LIKE 'part%'$$,
	$$VALUES ('part'::name, 0::bigint, 0::float8, 0)$$,
	'of a partitioned index those of the partitions');

-- what they hold
SELECT results_eq(
	$$SELECT bytes, rows, delta_rows, dead_rows, segments, storage, algorithm, hint
		FROM gpugraph_indexes WHERE schemaname = 's' ORDER BY indexname$$,
	$$VALUES (pg_relation_size('s.half_idx'), 1000::bigint, 0::bigint, 0::bigint, 1, 'float16',
			'tsdg', NULL),
		(pg_relation_size('s.items_idx'), 1000, 0, 0, 1, 'float32', 'cagra', NULL)$$,
	'size and contents of fresh indexes');
INSERT INTO s.items (id, val) SELECT i, ARRAY[i, 1]::real[]::vector
	FROM generate_series(1001, 2001) i;
SELECT results_eq(
	$$SELECT rows, delta_rows, round(delta_share::numeric, 4), dead_rows FROM gpugraph_indexes
		WHERE relid = 's.items_idx'::regclass$$,
	$$VALUES (2001::bigint, 1001::bigint, 0.5002, 0::bigint)$$,
	'rows inserted since the build');
SELECT is((SELECT delta_rows FROM gpugraph_indexes WHERE relid = 's.items_idx'::regclass),
	(SELECT delta_rows FROM gpugraph_index_info('s.items_idx')), 'as gpugraph_index_info has them');
DELETE FROM s.items WHERE id % 10 = 0 AND id <= 1000;
VACUUM (FREEZE) s.items;
SELECT results_eq(
	$$SELECT rows, dead_rows FROM gpugraph_indexes WHERE relid = 's.items_idx'::regclass$$,
	$$VALUES (2001::bigint, 100::bigint)$$, 'rows that VACUUM has taken away');

-- The bug: of an index that has codes alone the view said that it stores float32.
CREATE TABLE coded (val vector(2));
INSERT INTO coded SELECT ARRAY[i, 1]::real[]::vector FROM generate_series(1, 100) i;
CREATE INDEX coded_float16 ON coded USING gpugraph (val) WITH (storage = float16);
CREATE INDEX coded_float32 ON coded USING gpugraph (val) WITH (storage = 'float32+int4');
CREATE INDEX coded_int4 ON coded USING gpugraph (val) WITH (storage = int4);
CREATE INDEX coded_int8 ON coded USING gpugraph (val) WITH (storage = int8);
SELECT results_eq(
	$$SELECT storage FROM gpugraph_indexes WHERE tablename = 'coded' ORDER BY indexname$$,
	'{float16, float32, int4, int8}'::text[], 'storage');
SELECT is_empty($$SELECT FROM gpugraph_indexes, gpugraph_index_info(relid) i
	WHERE tablename = 'coded' AND storage <> element$$, 'as gpugraph_index_info has it');

-- a row that takes more than a page
CREATE TABLE wide (val vector(3000));
CREATE INDEX wide_idx ON wide USING gpugraph (val);
INSERT INTO wide SELECT array_fill(i, ARRAY[3000])::vector FROM generate_series(1, 3) i;
SELECT is((SELECT delta_rows FROM gpugraph_indexes WHERE relid = 'wide_idx'::regclass), 3::bigint,
	'rows longer than a page');

-- hints
INSERT INTO s.items (id, val) SELECT i, ARRAY[i, 1]::real[]::vector
	FROM generate_series(2002, 42001) i;
SELECT matches((SELECT hint FROM gpugraph_indexes WHERE relid = 's.items_idx'::regclass),
	'gpugraph_merge\(\): .* 41001 rows', 'a delta that has grown: gpugraph_merge()');
REINDEX INDEX s.items_idx;
SELECT is((SELECT hint FROM gpugraph_indexes WHERE relid = 's.items_idx'::regclass), NULL,
	'and nothing to do afterwards');

UPDATE pg_index SET indisvalid = false WHERE indexrelid = 's.half_idx'::regclass;
SELECT results_eq(
	$$SELECT valid, substr(hint, 1, 23) FROM gpugraph_indexes
		WHERE relid = 's.half_idx'::regclass$$,
	$$VALUES (false, 'The index is not valid:')$$, 'an index that is not valid');
UPDATE pg_index SET indisready = false WHERE indexrelid = 's.half_idx'::regclass;
SELECT results_eq(
	$$SELECT bytes > 0, rows FROM gpugraph_indexes WHERE relid = 's.half_idx'::regclass$$,
	$$VALUES (true, NULL::bigint)$$, 'one that is being built is not read');
UPDATE pg_index SET indisvalid = true, indisready = true
	WHERE indexrelid = 's.half_idx'::regclass;

-- to whom
CREATE FUNCTION seen() RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(', ', CASE WHEN bytes > 0 THEN 'bytes' END, CASE WHEN rows > 0 THEN 'rows' END,
		CASE WHEN delta_rows = 0 THEN 'delta' END, CASE WHEN delta_share = 0 THEN 'share' END,
		CASE WHEN dead_rows >= 0 THEN 'dead' END, CASE WHEN segments = 1 THEN 'segments' END,
		storage, algorithm, CASE WHEN state <> '' THEN 'state' END) FROM gpugraph_indexes
		WHERE indexname = 'items_idx'
$$;
SET ROLE gg_view_owner;
SELECT is(seen(), 'bytes, rows, delta, share, dead, segments, float32, cagra, state',
	'the owner sees what the index holds');
SET ROLE gg_view_monitor;
SELECT is(seen(), 'bytes, rows, delta, share, dead, segments, float32, cagra, state',
	'and so does a member of pg_stat_scan_tables');
SET ROLE gg_view_stranger;
SELECT is(seen(), 'bytes, state',
	'a stranger sees its size and who answers, and nothing of what it holds');

-- the function behind the view, which anybody may call
SELECT lives_ok($$SELECT gpugraph_get_index(0, true), gpugraph_get_index(4294967295, true),
	gpugraph_get_index(NULL, true), gpugraph_get_index('pg_class'::regclass, false)$$,
	'nor is there an error for what is no index');
RESET ROLE;

SELECT * FROM finish();
