-- Merges: every row is found once, recall is that of a fresh build, rows that are equal share a
-- node, and space is used again
\ir include/helpers.psql
SELECT * FROM no_plan();

-- all rows by the index against the table: 'ok' or what is wrong
CREATE FUNCTION complete(rel text, op text DEFAULT '<->') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	by_index bigint[];
	by_heap bigint[];
BEGIN
	PERFORM use_index(true);
	EXECUTE format('SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM %1$I
		ORDER BY val %2$s (SELECT val FROM %1$I WHERE val IS NOT NULL LIMIT 1)) s', rel, op)
		INTO by_index;
	PERFORM use_index(false);
	EXECUTE format('SELECT array_agg(id ORDER BY id) FROM %I WHERE val IS NOT NULL', rel)
		INTO by_heap;
	PERFORM use_index(true);
	PERFORM gpugraph_check((rel || '_idx')::regclass, true);
	RETURN CASE WHEN by_index IS NOT DISTINCT FROM by_heap THEN 'ok'
		ELSE format('%s rows by the index, %s in the table', cardinality(by_index),
			cardinality(by_heap)) END;
END $$;
CREATE FUNCTION info(rel text) RETURNS text LANGUAGE sql AS
	$$ SELECT format('%s segments, %s nodes, %s rows, %s delta, %s dead', segments, nodes, rows,
		delta_rows > 0, dead_rows) FROM gpugraph_index_info((rel || '_idx')::regclass) $$;

-- one segment of three and the delta
SELECT make_data('items', 6000, 16, 30);
SELECT make_queries('items', 40);
CREATE TABLE source AS SELECT * FROM items;
DELETE FROM items WHERE id > 2000;
VACUUM items;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
INSERT INTO items SELECT * FROM source WHERE id BETWEEN 2001 AND 3500;
SELECT ok(gpugraph_merge('items_idx'), 'a merge does something');
INSERT INTO items SELECT * FROM source WHERE id BETWEEN 3501 AND 6000;
SELECT is(complete('items'), 'ok', 'segment and delta: every row once');
SELECT generation AS before FROM gpugraph_index_info('items_idx') \gset
SELECT gpugraph_merge('items_idx');
SELECT is((SELECT segments FROM gpugraph_index_info('items_idx')), 1, 'one segment');
SELECT current_setting('block_size')::int / 68 AS page_rows \gset
SELECT cmp_ok((SELECT delta_rows FROM gpugraph_index_info('items_idx')), '<', :page_rows::bigint,
	'the delta is at most one page');
SELECT cmp_ok((SELECT generation FROM gpugraph_index_info('items_idx')), '>', :before::bigint,
	'another generation');
SELECT is(complete('items'), 'ok', 'merged: every row once');
SELECT recall('items', '<->') AS merged, recall('items', '<->', 100) AS merged100 \gset
REINDEX INDEX items_idx;
SELECT cmp_ok(:merged, '>=', recall('items', '<->') - 0.003, 'merged: recall as of a fresh build');
SELECT cmp_ok(:merged100, '>=', recall('items', '<->', 100) - 0.003,
	'merged: recall of 100 as of a fresh build');
SELECT generation AS before FROM gpugraph_index_info('items_idx') \gset
SELECT ok(gpugraph_merge('items_idx'), 'nothing to merge is no failure');
SELECT is((SELECT generation FROM gpugraph_index_info('items_idx')), :before::bigint,
	'and changes nothing');

-- equal rows of several segments and the delta, some of them dead
CREATE TABLE equals AS SELECT id, val FROM source WHERE id <= 1500;
CREATE INDEX equals_idx ON equals USING gpugraph (val vector_l2_ops);
INSERT INTO equals SELECT 10000 + id, val FROM source WHERE id <= 1500;
SELECT gpugraph_merge('equals_idx');
INSERT INTO equals SELECT 20000 + id, val FROM source WHERE id <= 1500;
SELECT gpugraph_merge('equals_idx');
SELECT is((SELECT nodes FROM gpugraph_index_info('equals_idx')), 1500::bigint,
	'equal rows share a node');
SELECT is(complete('equals'), 'ok', 'equal rows: every row once');
DELETE FROM equals WHERE id > 20000 OR id <= 700;
ALTER INDEX equals_idx SET (seal_rows = 0);
VACUUM equals;
INSERT INTO equals SELECT 30000 + id, val FROM source WHERE id <= 1500;
SELECT gpugraph_merge('equals_idx');
SELECT is((SELECT nodes FROM gpugraph_index_info('equals_idx')), 1500::bigint,
	'rows equal to dead ones share their nodes');
SELECT is(complete('equals'), 'ok', 'dead and equal rows: every row once');

-- a merge of dead rows alone, and of nothing
CREATE TABLE gone AS SELECT id, val FROM source WHERE id <= 500;
CREATE INDEX gone_idx ON gone USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0);
INSERT INTO gone SELECT 10000 + id, val FROM source WHERE id <= 500;
DELETE FROM gone;
VACUUM (FREEZE) gone;
SELECT ok(gpugraph_merge('gone_idx'), 'all rows dead');
SELECT is((SELECT format('%s %s', segments, rows) FROM gpugraph_index_info('gone_idx')), '0 0',
	'all rows dead: no segment is left');
SELECT is(complete('gone'), 'ok', 'all rows dead: sound');
INSERT INTO gone SELECT id, val FROM source WHERE id <= 700;
SELECT gpugraph_merge('gone_idx');
SELECT is(complete('gone'), 'ok', 'rows after all were dead');
CREATE TABLE empty (id int, val vector);
CREATE INDEX empty_idx ON empty USING gpugraph ((val::vector(16)) vector_l2_ops);
SELECT ok(gpugraph_merge('empty_idx'), 'an empty index');
DROP INDEX empty_idx;
CREATE INDEX empty_idx ON empty USING gpugraph (val vector_l2_ops);
SELECT ok(gpugraph_merge('empty_idx'), 'an empty index of unknown dimensions');
INSERT INTO empty SELECT id, val FROM source WHERE id <= 1000;
SELECT ok(gpugraph_merge('empty_idx'), 'rows gave the dimensions');
SELECT is(complete('empty'), 'ok', 'dimensions by rows: every row once');

-- other storage, types, distances; rows with pages of their own
CREATE TABLE wide AS SELECT id, (array_cat(val::real[], array_fill(id % 7, ARRAY[2300])::real[]))
	::vector(2316) AS val FROM source WHERE id <= 300;
CREATE INDEX wide_idx ON wide USING gpugraph (val vector_l2_ops);
INSERT INTO wide SELECT 10000 + id, val + (SELECT array_fill(0.01::real, ARRAY[2316])::vector)
	FROM wide;
SELECT gpugraph_merge('wide_idx');
SELECT is(info('wide'), CASE WHEN current_setting('block_size')::int < 2316 * 4 THEN
	'1 segments, 600 nodes, 600 rows, f delta, 0 dead'
	ELSE '1 segments, 599 nodes, 599 rows, t delta, 0 dead' END,
	'rows longer than a page: all are in the segment');
SELECT is(complete('wide'), 'ok', 'rows longer than a page: every row once');
DELETE FROM wide WHERE id % 3 = 0;
INSERT INTO wide SELECT 20000 + id, val + (SELECT array_fill(0.02::real, ARRAY[2316])::vector)
	FROM wide WHERE id < 10000;
DELETE FROM wide WHERE id % 20000 < 50;
VACUUM wide;
SELECT gpugraph_merge('wide_idx');
SELECT is(complete('wide'), 'ok', 'rows longer than a page, some dead: every row once');

CREATE TABLE half AS SELECT id, val FROM source WHERE id <= 2000;
CREATE INDEX half_idx ON half USING gpugraph (val vector_l2_ops) WITH (storage = 'float16');
INSERT INTO half SELECT id, val FROM source WHERE id > 2000;
SELECT gpugraph_merge('half_idx');
SELECT is(complete('half'), 'ok', 'float16: every row once');
SELECT cmp_ok(recall('half', '<->'), '>=', 0.99, 'float16: recall');

CREATE TABLE cosine AS SELECT id, val FROM source WHERE id <= 2000;
CREATE INDEX cosine_idx ON cosine USING gpugraph (val vector_cosine_ops);
INSERT INTO cosine SELECT id, val FROM source WHERE id > 2000;
INSERT INTO cosine VALUES (7001, NULL);
SELECT gpugraph_merge('cosine_idx');
SELECT is(complete('cosine', '<=>'), 'ok', 'cosine: every row once');
SELECT cmp_ok(recall('cosine', '<=>'), '>=', 0.99, 'cosine: recall');

CREATE TABLE product AS SELECT id, val FROM source WHERE id <= 2000;
CREATE INDEX product_idx ON product USING gpugraph (val vector_ip_ops)
	WITH (storage = 'float16', graph_degree = 16, intermediate_graph_degree = 24);
INSERT INTO product SELECT id, val FROM source WHERE id > 2000;
SELECT gpugraph_merge('product_idx');
SELECT is(complete('product', '<#>'), 'ok', 'inner product, float16: every row once');
SELECT cmp_ok(recall('product', '<#>'), '>=', 0.97, 'inner product, float16: recall');

CREATE TABLE halfvecs AS SELECT id, val::halfvec(16) AS val FROM source WHERE id <= 2000;
CREATE INDEX halfvecs_idx ON halfvecs USING gpugraph (val halfvec_l1_ops);
INSERT INTO halfvecs SELECT id, val FROM source WHERE id > 2000;
SELECT gpugraph_merge('halfvecs_idx');
SELECT is(complete('halfvecs', '<+>'), 'ok', 'halfvec: every row once');
SELECT cmp_ok(recall('halfvecs', '<+>', cast_to => 'halfvec'), '>=', 0.99, 'halfvec: recall');

-- a partial index of an expression
CREATE TABLE partial AS SELECT id, val FROM source;
CREATE INDEX partial_idx ON partial USING gpugraph ((val + val) vector_l2_ops) WHERE id % 3 = 0;
INSERT INTO partial SELECT 10000 + id, val FROM source;
SELECT gpugraph_merge('partial_idx');
SELECT lives_ok($$SELECT gpugraph_check('partial_idx', true)$$, 'partial, of an expression');
SELECT is((SELECT rows + delta_rows FROM gpugraph_index_info('partial_idx')),
	(SELECT count(*) FROM partial WHERE id % 3 = 0), 'partial: the rows of its condition');

-- within a transaction that inserted, and made the table
BEGIN;
INSERT INTO items SELECT 10000 + id, cat, big, val FROM source WHERE id <= 1000;
SELECT gpugraph_merge('items_idx');
SELECT is(complete('items'), 'ok', 'in the transaction that inserted: every row once');
INSERT INTO items SELECT 20000 + id, cat, big, val FROM source WHERE id <= 1000;
SELECT gpugraph_merge('items_idx');
SAVEPOINT s;
INSERT INTO items SELECT 30000 + id, cat, big, val FROM source WHERE id <= 1000;
SELECT gpugraph_merge('items_idx');
ROLLBACK TO s;
SELECT is(complete('items'), 'ok', 'a part rolled back: every row once');
COMMIT;
SELECT is(complete('items'), 'ok', 'committed: every row once');
BEGIN;
INSERT INTO items SELECT 40000 + id, cat, big, val FROM source WHERE id <= 1000;
SELECT gpugraph_merge('items_idx');
ROLLBACK;
SELECT is(complete('items'), 'ok', 'rolled back: every row once');
VACUUM items;
SELECT is(complete('items'), 'ok', 'rolled back and vacuumed: every row once');
BEGIN;
CREATE TABLE fresh AS SELECT id, val FROM source WHERE id <= 1000;
CREATE INDEX fresh_idx ON fresh USING gpugraph (val vector_l2_ops);
INSERT INTO fresh SELECT 10000 + id, val FROM source WHERE id <= 1000;
SELECT ok(gpugraph_merge('fresh_idx'), 'of a table that the transaction made');
COMMIT;
SELECT is(complete('fresh'), 'ok', 'of a table that the transaction made: every row once');

-- cursors of the transaction that merges
BEGIN;
SET LOCAL enable_seqscan = off;
DECLARE c CURSOR FOR SELECT id FROM fresh ORDER BY val <-> (SELECT val FROM queries WHERE q = 1);
FETCH 3 FROM c \g /dev/null
INSERT INTO fresh SELECT 20000 + id, val FROM source WHERE id <= 1000;
SELECT gpugraph_merge('fresh_idx');
INSERT INTO fresh SELECT 30000 + id, val FROM source WHERE id <= 1000;
SELECT gpugraph_merge('fresh_idx');
CREATE TABLE fetched (id int);
CREATE FUNCTION fetch_all(c refcursor) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	id int;
BEGIN
	LOOP
		FETCH c INTO id;
		EXIT WHEN NOT FOUND;
		INSERT INTO fetched VALUES (id);
	END LOOP;
END $$;
SELECT fetch_all('c');
SELECT is((SELECT format('%s %s %s', count(*), count(DISTINCT id), max(id) <= 11000)
	FROM fetched), '1997 1997 t', 'a cursor opened before two merges: each row once');
COMMIT;

-- temporary and unlogged tables
CREATE TEMP TABLE temporary AS SELECT id, val FROM source WHERE id <= 1000;
CREATE INDEX temporary_idx ON temporary USING gpugraph (val vector_l2_ops);
INSERT INTO temporary SELECT 10000 + id, val FROM source;
SELECT gpugraph_merge('temporary_idx');
SELECT is((SELECT segments FROM gpugraph_index_info('temporary_idx')), 1, 'temporary: merged');
SELECT is(complete('temporary'), 'ok', 'temporary: every row once');
DELETE FROM temporary WHERE id % 4 > 0;
VACUUM temporary;
SELECT cmp_ok((SELECT dead_rows FROM gpugraph_index_info('temporary_idx')), '<', 120::bigint,
	'temporary: VACUUM merges');
SELECT is(complete('temporary'), 'ok', 'temporary, vacuumed: every row once');
CREATE UNLOGGED TABLE unlogged AS SELECT id, val FROM source WHERE id <= 1000;
CREATE INDEX unlogged_idx ON unlogged USING gpugraph (val vector_l2_ops);
INSERT INTO unlogged SELECT 10000 + id, val FROM source;
SELECT gpugraph_merge('unlogged_idx');
SELECT is((SELECT segments FROM gpugraph_index_info('unlogged_idx')), 1, 'unlogged: merged');
SELECT is(complete('unlogged'), 'ok', 'unlogged: every row once');

-- VACUUM without a worker seals
CREATE TABLE sealed AS SELECT id, val FROM source WHERE id <= 100;
CREATE INDEX sealed_idx ON sealed USING gpugraph (val vector_l2_ops) WITH (seal_rows = 1000);
INSERT INTO sealed SELECT 10000 + id, val FROM source WHERE id <= 900;
VACUUM sealed;
SELECT is(info('sealed'), '1 segments, 100 nodes, 100 rows, t delta, 0 dead',
	'fewer than seal_rows: VACUUM leaves the delta');
INSERT INTO sealed SELECT 20000 + id, val FROM source WHERE id <= 900;
VACUUM sealed;
SELECT cmp_ok((SELECT delta_rows FROM gpugraph_index_info('sealed_idx')), '<', :page_rows::bigint,
	'more than seal_rows: VACUUM seals');
SELECT is(complete('sealed'), 'ok', 'VACUUM seals: every row once');
ALTER INDEX sealed_idx SET (seal_rows = 0);
INSERT INTO sealed SELECT 30000 + id, val FROM source;
VACUUM sealed;
SELECT cmp_ok((SELECT delta_rows FROM gpugraph_index_info('sealed_idx')), '>=', 6000::bigint,
	'seal_rows = 0: VACUUM leaves the delta');
SELECT gpugraph_merge('sealed_idx');
SELECT is((SELECT segments FROM gpugraph_index_info('sealed_idx')), 1,
	'seal_rows = 0: gpugraph_merge() merges');

-- By default a delta of 5 MB is sealed: 512 rows of 10 kB.  Where a GPU serves the index, more is,
-- but none serves that of a temporary table.
CREATE FUNCTION broad(id bigint) RETURNS vector LANGUAGE sql AS $$
	SELECT array_agg(sin(j * $1))::real[]::vector FROM generate_series(1, 2560) j $$;
CREATE TEMP TABLE broad (id bigint, val vector(2560));
INSERT INTO broad SELECT id, broad(id) FROM generate_series(1, 600) id;
CREATE INDEX broad_idx ON broad USING gpugraph (val vector_l2_ops);
INSERT INTO broad SELECT id, broad(id) FROM generate_series(1001, 1500) id;
VACUUM broad;
SELECT is((SELECT delta_rows FROM gpugraph_index_info('broad_idx')), 500::bigint,
	'less than 5 MB: VACUUM leaves the delta');
INSERT INTO broad SELECT id, broad(id) FROM generate_series(2001, 2050) id;
VACUUM broad;
SELECT cmp_ok((SELECT delta_rows FROM gpugraph_index_info('broad_idx')), '<', 5::bigint,
	'more than 5 MB: VACUUM seals');
SELECT is(complete('broad'), 'ok', 'broad rows sealed: every row once');
ALTER INDEX broad_idx SET (seal_rows = 2000);
INSERT INTO broad SELECT id, broad(id) FROM generate_series(3001, 3600) id;
VACUUM broad;
SELECT cmp_ok((SELECT delta_rows FROM gpugraph_index_info('broad_idx')), '>=', 600::bigint,
	'the option counts rows, however wide');

-- several segments in little memory
CREATE TABLE large AS SELECT id, val FROM source WHERE id <= 10;
CREATE INDEX large_idx ON large USING gpugraph (val vector_l2_ops) WITH (seal_rows = 500);
DO $$
BEGIN
	FOR i IN 1 .. 12 LOOP
		INSERT INTO large SELECT i * 10000 + id, val FROM source
			WHERE id BETWEEN i * 500 - 499 AND i * 500;
		IF i % 4 = 0 THEN
			PERFORM gpugraph_merge('large_idx');
		END IF;
	END LOOP;
END $$;
SELECT is(complete('large'), 'ok', 'many merges in a transaction: every row once');

-- space comes back: a merge uses again what the one before last gave back
SELECT pg_relation_size('large_idx') AS size \gset
DO $$
BEGIN
	FOR i IN 1 .. 10 LOOP
		INSERT INTO large SELECT 1000000 + i * 10000 + id, val FROM source WHERE id <= 100;
		PERFORM gpugraph_merge('large_idx');
		COMMIT;
	END LOOP;
END $$;
SELECT cmp_ok(pg_relation_size('large_idx'), '<', 3 * :size::bigint, 'ten merges: size is bounded');
SELECT is(complete('large'), 'ok', 'ten merges: every row once');

-- who may, and what is refused
CREATE ROLE gg_merge_reader;
GRANT SELECT ON items TO gg_merge_reader;
SET ROLE gg_merge_reader;
SELECT throws_ok($$SELECT gpugraph_merge('items_idx')$$, '42501',
	'must be owner of index items_idx');
RESET ROLE;
GRANT pg_stat_scan_tables TO gg_merge_reader;
SET ROLE gg_merge_reader;
SELECT throws_ok($$SELECT gpugraph_merge('items_idx')$$, '42501',
	'must be owner of index items_idx');
SELECT throws_ok($$SELECT * FROM gpugraph_stat_merge$$, '42501');
RESET ROLE;
GRANT pg_monitor TO gg_merge_reader;
SET ROLE gg_merge_reader;
SELECT lives_ok($$SELECT * FROM gpugraph_stat_merge$$, 'a member of pg_monitor may look');
RESET ROLE;
DROP OWNED BY gg_merge_reader;
DROP ROLE gg_merge_reader;
CREATE TABLE parts (id int, val vector(16)) PARTITION BY RANGE (id);
CREATE TABLE part1 PARTITION OF parts FOR VALUES FROM (0) TO (1000000);
CREATE INDEX parts_idx ON parts USING gpugraph (val vector_l2_ops);
INSERT INTO parts SELECT id, val FROM source;
SELECT throws_ok($$SELECT gpugraph_merge('parts_idx')$$, '42809',
	'"parts_idx" is a partitioned index');
SELECT ok(gpugraph_merge('part1_val_idx'), 'the index of a partition');
CREATE INDEX btree_idx ON items (cat);
SELECT throws_ok($$SELECT gpugraph_merge('btree_idx')$$, '42809',
	'"btree_idx" is not a gpugraph index');
SELECT throws_ok($$SELECT gpugraph_merge('items')$$, '42809', '"items" is not a gpugraph index');
SELECT throws_ok($$SELECT gpugraph_merge(1)$$, '42704', 'relation with OID 1 does not exist');
SELECT is(gpugraph_merge(NULL), NULL, 'NULL');

SELECT * FROM finish();
