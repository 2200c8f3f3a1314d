-- The queries that an index learns from are in the index: no role reads them, no statement changes
-- them, and they go where the index goes
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 2000, 16, 40);
SELECT make_data('asked', 300, 16, 20);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (graph_degree = 16);
CREATE FUNCTION info(index text, OUT version int, OUT queries int, OUT pages int)
	LANGUAGE sql AS $$
	SELECT i.version, i.sample_queries,
		(i.sample_bytes / current_setting('block_size')::int)::int
		FROM gpugraph_index_info(index::regclass) i
$$;
-- a row that is left out takes the feature away that says that there is none
BEGIN;
INSERT INTO items (id) VALUES (0);
ROLLBACK;
SELECT is(info('items_idx'), (3, 0, 0)::record, 'without a sample it has format 3');
SELECT gpugraph_learn('items_idx', array_agg(val)) > 0 FROM asked \g /dev/null
SELECT is(info('items_idx'),
	(4, 300, (300 * 64 - 1) / current_setting('block_size')::int + 1)::record,
	'with one it has format 4, which a library refuses that does not know samples');

-- nobody reads it
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c JOIN pg_depend d ON d.objid = c.oid
	JOIN pg_extension e ON d.refobjid = e.oid
	WHERE e.extname = 'gpugraph' AND c.relkind NOT IN ('v', 'c')$$,
	'the extension has nothing but views');
CREATE ROLE gg_reader IN ROLE pg_read_all_data, pg_write_all_data;
GRANT CREATE ON SCHEMA public TO gg_reader;
SET ROLE gg_reader;
SELECT throws_ok('TABLE items_idx', '42809');
SELECT throws_ok('DELETE FROM items_idx', '42809');
SELECT throws_ok($$SELECT gpugraph_index_info('items_idx')$$, '42501');
SELECT throws_ok($$SELECT gpugraph_forget('items_idx')$$, '42501');
SELECT throws_ok($$SELECT gpugraph_learn('items_idx', array_agg(val)) FROM asked$$, '42501');
RESET ROLE;
CREATE PUBLICATION everything FOR ALL TABLES;
SELECT is_empty($$SELECT tablename FROM pg_publication_tables WHERE pubname = 'everything'
	EXCEPT SELECT relname FROM pg_class WHERE relkind = 'r'
		AND relname IN ('items', 'asked', 'queries', '__tcache__')
	EXCEPT SELECT c.relname FROM pg_class c JOIN pg_depend d ON d.objid = c.oid
		JOIN pg_extension e ON d.refobjid = e.oid WHERE e.extname <> 'gpugraph'$$,
	'a publication of all tables has none of it');
DROP PUBLICATION everything;

-- the schema of the extension
CREATE SCHEMA elsewhere;
ALTER EXTENSION gpugraph SET SCHEMA elsewhere;
SET search_path = public, elsewhere;
REINDEX INDEX items_idx;
SELECT is((info('items_idx')).queries, 300, 'SET SCHEMA: REINDEX keeps it');
SELECT is((SELECT gpugraph_learn('items_idx', array_agg(val)) FROM asked), 0::bigint,
	'and has learned from it');
SET search_path = pg_catalog;
REINDEX INDEX public.items_idx;
VACUUM FULL public.items;
RESET search_path;
ALTER EXTENSION gpugraph SET SCHEMA public;
SELECT is((info('items_idx')).queries, 300, 'and back');

-- a library that does not know samples
SELECT ok(gpugraph_forget('items_idx'), 'forgotten');
BEGIN;
INSERT INTO items (id) VALUES (0);
ROLLBACK;
SELECT is(info('items_idx'), (3, 0, 0)::record, 'it has format 3 again');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'sound');

-- owners that go
SET ROLE gg_reader;
CREATE TABLE own AS SELECT id, val FROM items;
CREATE INDEX own_idx ON own USING gpugraph (val vector_l2_ops) WITH (graph_degree = 16);
SELECT ok((SELECT gpugraph_learn('own_idx', array_agg(val)) FROM asked) > 0, 'another owner''s');
RESET ROLE;
CREATE ROLE gg_heir;
REASSIGN OWNED BY gg_reader TO gg_heir;
SELECT is((info('own_idx')).queries, 300, 'REASSIGN OWNED keeps it');
DROP OWNED BY gg_heir, gg_reader;
SELECT is(to_regclass('own_idx'), NULL, 'DROP OWNED takes it along');
DROP ROLE gg_reader, gg_heir;

-- tables whose rows no crash survives
CREATE UNLOGGED TABLE unlogged AS SELECT id, val FROM items;
CREATE INDEX unlogged_idx ON unlogged USING gpugraph (val vector_l2_ops) WITH (graph_degree = 16);
SELECT gpugraph_learn('unlogged_idx', array_agg(val)) FROM asked \g /dev/null
ALTER TABLE unlogged SET LOGGED;
SELECT is((info('unlogged_idx')).queries, 300, 'SET LOGGED keeps it');
ALTER TABLE unlogged SET UNLOGGED;
SELECT is((info('unlogged_idx')).queries, 300, 'and SET UNLOGGED');
ALTER INDEX unlogged_idx SET TABLESPACE pg_default;
SELECT lives_ok($$SELECT gpugraph_check('unlogged_idx', true)$$, 'sound');

-- a table of the same transaction is emptied in place
BEGIN;
CREATE TABLE young AS SELECT id, val FROM items;
CREATE INDEX young_idx ON young USING gpugraph (val vector_l2_ops) WITH (graph_degree = 16);
SELECT gpugraph_learn('young_idx', array_agg(val)) FROM asked \g /dev/null
TRUNCATE young;
SELECT is((info('young_idx')).queries, 0, 'TRUNCATE of a new table takes it along');
COMMIT;
SELECT lives_ok($$SELECT gpugraph_check('young_idx', true)$$, 'sound');

-- partitions: of each its own
CREATE TABLE parts (id int, val vector(16)) PARTITION BY RANGE (id);
CREATE TABLE part1 PARTITION OF parts FOR VALUES FROM (0) TO (1000);
CREATE TABLE part2 PARTITION OF parts FOR VALUES FROM (1000) TO (100000);
INSERT INTO parts SELECT id, val FROM items;
CREATE INDEX parts_idx ON parts USING gpugraph (val vector_l2_ops) WITH (graph_degree = 16);
SELECT gpugraph_learn('part1_val_idx', array_agg(val)) FROM asked \g /dev/null
REINDEX INDEX parts_idx;
SELECT is((SELECT array_agg((info(i)).queries) FROM unnest('{part1_val_idx,part2_val_idx}'::text[])
	i), '{300,0}', 'REINDEX of partitions');

SELECT * FROM finish();
