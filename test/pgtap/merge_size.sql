-- Cycles of deletes, VACUUM and inserts: size is bounded, and stops growing
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('source', 4000, 16, 30);
CREATE TABLE items AS SELECT id::bigint, val FROM source;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 500);
SELECT make_queries('items', 30);
SELECT pg_relation_size('items_idx') AS fresh \gset

-- delete half, vacuum, insert again
SELECT format('DELETE FROM items WHERE (id %% 4000) %% 2 = %1$s %% 2', c),
	'VACUUM (FREEZE) items',
	format('INSERT INTO items SELECT id + %1$s0000, val FROM source
		WHERE (id %% 4000) %% 2 = %1$s %% 2',
		c),
	CASE WHEN c = 5 THEN 'CREATE TABLE fifth AS SELECT pg_relation_size(''items_idx'') AS size' END
	FROM generate_series(1, 20) c \gexec
SELECT is((SELECT count(*) FROM items), 4000::bigint, '20 cycles: as many rows as before');
SELECT cmp_ok(pg_relation_size('items_idx'), '<=', (1.7 * :fresh)::bigint,
	'20 cycles: at most 1.7 times the size of a fresh index');
SELECT cmp_ok(pg_relation_size('items_idx'), '<=', (SELECT (1.02 * size)::bigint FROM fifth),
	'hardly any growth since the fifth');
SELECT cmp_ok((SELECT segments FROM gpugraph_index_info('items_idx')), '<=', 6, 'few segments');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'sound');
SELECT cmp_ok(recall('items', '<->'), '>=', 0.99, 'recall');

-- most rows deleted: what is left is an index like any other
DELETE FROM items WHERE id % 20 <> 0;
VACUUM (FREEZE) items;
SELECT is((SELECT dead_rows < current_setting('block_size')::int / 68
	AND rows + delta_rows < 200 + current_setting('block_size')::int / 68
	FROM gpugraph_index_info('items_idx')),
	true, '95% deleted: no dead rows are left');
SELECT cmp_ok(recall('items', '<->'), '>=', 0.99, '95% deleted: recall');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, '95% deleted: sound');

-- rows that are updated all the time beside one that stays at the delta's front
CREATE TABLE hot (id int, n int, val vector(16));
CREATE INDEX hot_idx ON hot USING gpugraph (val vector_l2_ops);
INSERT INTO hot SELECT 0, 0, val FROM source WHERE id = 1;
INSERT INTO hot SELECT id, 0, val FROM source WHERE id BETWEEN 1 AND 200;
CREATE INDEX ON hot (n);
SELECT 'UPDATE hot SET n = n + 1 WHERE id > 0', 'VACUUM (FREEZE) hot',
	CASE WHEN c = 10 THEN 'CREATE TABLE tenth AS SELECT pg_relation_size(''hot_idx'') AS size' END
	FROM generate_series(1, 60) c \gexec
SELECT cmp_ok((SELECT rows + delta_rows FROM gpugraph_index_info('hot_idx')), '<', 1200::bigint,
	'updated rows beside one that stays: at most some times the live rows');
SELECT cmp_ok(pg_relation_size('hot_idx'), '<=', (SELECT (1.02 * size)::bigint FROM tenth),
	'updated rows beside one that stays: hardly any growth since the tenth round');
SELECT lives_ok($$SELECT gpugraph_check('hot_idx', true)$$, 'updated rows: sound');

SELECT * FROM finish();
