-- A sample lasts as long as an index of the column: whatever builds or merges one learns from it
-- again
\ir include/helpers.psql
SELECT * FROM no_plan();

-- so few rows are measured, not walked, so the same edges are learned
CREATE FUNCTION make_items() RETURNS void LANGUAGE sql AS
	$$ SELECT make_data('items', 3600, 24, 60) $$;
SELECT make_items();
SELECT make_data('asked', 800, 24, 20);
CREATE TABLE sample AS SELECT array_agg(val ORDER BY id) AS queries FROM asked;
CREATE INDEX items_idx ON items USING gpugraph (val vector_ip_ops, cat) WITH (graph_degree = 16);
SELECT gpugraph_learn('items_idx', queries) AS learned FROM sample \gset
SELECT cmp_ok(:learned, '>', 1000, 'edges are learned');

-- Nothing is left to learn from the sample, so all of its edges are there.
CREATE FUNCTION knows(after text, index text DEFAULT 'items_idx') RETURNS SETOF text
	LANGUAGE plpgsql AS $$
BEGIN
	RETURN NEXT lives_ok(format('SELECT gpugraph_check(%L, true)', index), after || ': sound');
	RETURN NEXT is((SELECT gpugraph_learn(index, queries) FROM sample), 0::bigint,
		after || ': all is known');
END $$;
REINDEX INDEX items_idx;
SELECT knows('REINDEX');
REINDEX INDEX CONCURRENTLY items_idx;
SELECT knows('REINDEX CONCURRENTLY');
INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id <= 300;
SELECT gpugraph_merge('items_idx') \g /dev/null
SELECT knows('merging');
DELETE FROM items WHERE id % 10 = 3;
VACUUM FULL items;
SELECT knows('VACUUM FULL');
CLUSTER items USING items_pkey;
SELECT knows('CLUSTER');
SELECT current_setting('server_version_num')::int >= 190000 AS has_repack \gset
\if :has_repack
REPACK items;
SELECT knows('REPACK');
REPACK (CONCURRENTLY) items;
SELECT knows('REPACK (CONCURRENTLY)');
\endif
ALTER TABLE items ALTER COLUMN cat TYPE bigint;
SELECT knows('ALTER TABLE that rewrites');
CREATE TABLE copy AS SELECT * FROM items;
TRUNCATE items;
INSERT INTO items SELECT * FROM copy;
SELECT gpugraph_merge('items_idx') \g /dev/null
SELECT knows('TRUNCATE');
CREATE INDEX second_idx ON items USING gpugraph (val vector_ip_ops) WITH (graph_degree = 24);
SELECT knows('another index on the column', 'second_idx');
DROP INDEX items_idx;
ALTER INDEX second_idx RENAME TO items_idx;
CREATE FUNCTION queries_of(index text) RETURNS int LANGUAGE sql AS
	$$ SELECT sample_queries FROM gpugraph_index_info(index::regclass) $$;
CREATE INDEX other_idx ON items USING gpugraph (val vector_l2_ops) WITH (graph_degree = 16);
SELECT is(queries_of('other_idx'), 0, 'of another metric it is not the sample');
DROP INDEX other_idx;

-- each of several keeps its own
CREATE INDEX third_idx ON items USING gpugraph (val vector_ip_ops) WITH (graph_degree = 16);
SELECT gpugraph_learn('third_idx', array_agg(val)) FROM asked WHERE id <= 55 \g /dev/null
REINDEX TABLE CONCURRENTLY items;
SELECT is(queries_of('third_idx'), 55, 'REINDEX CONCURRENTLY: of two each has its own');
SELECT knows('REINDEX CONCURRENTLY of two');
TRUNCATE items;
INSERT INTO items SELECT * FROM copy;
SELECT is(queries_of('third_idx'), 55, 'TRUNCATE: of two each has its own');
SELECT gpugraph_forget('third_idx') \g /dev/null
REINDEX TABLE items;
SELECT is(queries_of('third_idx'), 0, 'what one has forgotten it does not get from the other');
SELECT knows('REINDEX of two');
ALTER TABLE items ALTER COLUMN val TYPE vector(24) USING subvector(val, 1, 24);
SELECT knows('ALTER TYPE of the column');
SELECT is(queries_of('third_idx'), 0, 'ALTER TYPE: of two each has its own');
DROP INDEX third_idx;
CREATE INDEX a_twin ON items USING gpugraph (val vector_ip_ops) WITH (graph_degree = 24);
SELECT is(queries_of('a_twin'), 800, 'a twin gets the sample');
SELECT gpugraph_learn('a_twin', array_agg(val)) FROM asked WHERE id <= 44 \g /dev/null
REINDEX INDEX CONCURRENTLY items_idx;
SELECT is(queries_of('items_idx'), 800, 'REINDEX CONCURRENTLY: not that of its twin');
\if :has_repack
REPACK (CONCURRENTLY) items;
SELECT is(queries_of('items_idx') || ' ' || queries_of('a_twin'), '800 44',
	'REPACK (CONCURRENTLY): of twins each has its own');
\endif
SELECT gpugraph_forget('a_twin') \g /dev/null
REINDEX TABLE CONCURRENTLY items;
ALTER TABLE items ALTER COLUMN val TYPE vector(24) USING subvector(val, 1, 24);
SELECT is(queries_of('items_idx') || ' ' || queries_of('a_twin'), '800 0',
	'REINDEX CONCURRENTLY and ALTER TYPE of twins: each its own');
DROP INDEX a_twin;

-- within a transaction, whose snapshot is older than what others have done
BEGIN;
REINDEX INDEX items_idx;
SELECT gpugraph_learn('items_idx', array_agg(val)) FROM asked WHERE id <= 33 \g /dev/null
REINDEX INDEX items_idx;
SELECT is(queries_of('items_idx'), 33, 'twice in a transaction: the last one');
ROLLBACK;
SELECT is(queries_of('items_idx'), 800, 'and rolled back: the one before');
SELECT knows('rolled back');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 1 \g /dev/null
\! psql -qXc 'REINDEX INDEX items_idx' -c CHECKPOINT
REINDEX INDEX items_idx;
COMMIT;
SELECT knows('REINDEX after one of another session');
BEGIN;
SAVEPOINT s;
REINDEX INDEX items_idx;
ROLLBACK TO s;
REINDEX INDEX items_idx;
COMMIT;
SELECT knows('REINDEX after one that was rolled back');

-- columns that come and go
ALTER TABLE items ADD COLUMN note text;
ALTER TABLE items DROP COLUMN note;
REINDEX INDEX items_idx;
SELECT knows('a column that is gone');

-- walks find most answers
CREATE TABLE many AS SELECT * FROM items;
INSERT INTO many SELECT id + 20000, cat, big, val + array_fill(0.3, ARRAY[24])::vector FROM items;
CREATE INDEX many_idx ON many USING gpugraph (val vector_ip_ops) WITH (graph_degree = 16);
SELECT gpugraph_learn('many_idx', queries) AS many FROM sample \gset
REINDEX INDEX many_idx;
SELECT cmp_ok((SELECT gpugraph_learn('many_idx', queries) FROM sample), '<', :many / 5::bigint,
	'more rows: most is known after REINDEX');

-- forgotten
SELECT ok(gpugraph_forget('items_idx'), 'forgotten');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'sound');
SELECT ok(NOT gpugraph_forget('items_idx'), 'there is nothing to forget any more');
SELECT is(queries_of('items_idx'), 0, 'the sample is gone');
SELECT cmp_ok((SELECT gpugraph_learn('items_idx', queries) FROM sample), '>', 1000::bigint,
	'and so are the edges');

-- an expression, and half vectors
CREATE INDEX half_idx ON items USING gpugraph ((val::halfvec(24)) halfvec_l2_ops)
	WITH (graph_degree = 16);
CREATE TABLE halves AS SELECT array_agg(val::halfvec(24) ORDER BY id) AS queries FROM asked;
SELECT gpugraph_learn('half_idx', queries) > 0 FROM halves \g /dev/null
SET search_path = pg_catalog;
REINDEX INDEX public.half_idx;
RESET search_path;
SELECT is((SELECT gpugraph_learn('half_idx', queries) FROM halves), 0::bigint,
	'an expression has its sample');
ALTER TABLE items ADD COLUMN note text;
ALTER TABLE items DROP COLUMN note;
CREATE INDEX half_too_idx ON items USING gpugraph ((val::halfvec(24)) halfvec_l2_ops, cat)
	WITH (graph_degree = 16);
SELECT is(queries_of('half_too_idx'), 800, 'another index of the expression gets it');
DROP INDEX half_idx, half_too_idx;

-- another sample takes its place
SELECT gpugraph_learn('items_idx', array_agg(val)) FROM asked WHERE id <= 77 \g /dev/null
SELECT is(queries_of('items_idx'), 77, 'the last sample is kept');
BEGIN;
SELECT gpugraph_learn('items_idx', array_agg(val)) FROM asked WHERE id <= 99 \g /dev/null
ROLLBACK;
SELECT is(queries_of('items_idx'), 99, 'also where its transaction is rolled back');
BEGIN READ ONLY;
SAVEPOINT s;
SELECT throws_ok($$SELECT gpugraph_learn('items_idx', array_agg(val)) FROM asked$$, '25006');
ROLLBACK TO s;
SELECT throws_ok($$SELECT gpugraph_forget('items_idx')$$, '25006');
ROLLBACK TO s;
SELECT lives_ok($$SELECT gpugraph_merge('items_idx')$$, 'READ ONLY: merging is allowed');
COMMIT;
SELECT is(queries_of('items_idx'), 99, 'a READ ONLY transaction leaves the sample');

-- of other dimensions
ALTER TABLE items ALTER COLUMN val TYPE vector(12) USING subvector(val, 1, 12);
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'other dimensions: sound');
SELECT gpugraph_learn('items_idx', array_agg(val)) FROM items WHERE id <= 50 AND id % 10 <> 3
	\g /dev/null
SELECT is(queries_of('items_idx'), 45, 'other dimensions: learned anew');

-- tables of others
CREATE ROLE gg_asker;
GRANT CREATE ON SCHEMA public TO gg_asker;
SET ROLE gg_asker;
CREATE TABLE own (id int PRIMARY KEY, val vector(3));
INSERT INTO own SELECT i, ARRAY[random(), random(), random()]::real[]::vector
	FROM generate_series(1, 500) i;
CREATE INDEX own_idx ON own USING gpugraph (val) WITH (graph_degree = 8);
SELECT cmp_ok(gpugraph_learn('own_idx', ARRAY['[1,1,1]', '[-1,0,0]']::vector[], 4), '>', 0::bigint,
	'whoever owns a table learns');
REINDEX INDEX own_idx;
SELECT is(gpugraph_learn('own_idx', ARRAY['[1,1,1]', '[-1,0,0]']::vector[], 4), 0::bigint,
	'and keeps it');
RESET ROLE;
DROP OWNED BY gg_asker;
DROP ROLE gg_asker;

-- a temporary table
CREATE TEMP TABLE own AS SELECT * FROM copy;
CREATE INDEX own_idx ON own USING gpugraph (val vector_ip_ops) WITH (graph_degree = 16);
SELECT cmp_ok((SELECT gpugraph_learn('own_idx', queries) FROM sample), '>', 1000::bigint,
	'a temporary table');
REINDEX INDEX own_idx;
SELECT knows('REINDEX of a temporary table', 'own_idx');
DROP TABLE own;

-- before there are rows
CREATE TABLE later (id int, val vector);
CREATE INDEX later_idx ON later USING gpugraph (val vector_ip_ops) WITH (graph_degree = 16);
SELECT is((SELECT gpugraph_learn('later_idx', queries) FROM sample), 0::bigint, 'no rows yet');
SELECT throws_ok($$SELECT gpugraph_learn('later_idx', ARRAY['[1,2]', '[1]']::vector[])$$, '22000');
INSERT INTO later SELECT id, val FROM copy;
SELECT gpugraph_merge('later_idx') \g /dev/null
SELECT knows('rows that come later', 'later_idx');

SELECT * FROM finish();
