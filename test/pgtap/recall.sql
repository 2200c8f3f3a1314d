-- Recall against exact scans is at least 0.99, for every metric and type, whatever the order of the
-- rows
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 6000, 24, 40);
SELECT make_queries('items', 60);
CREATE TABLE halves AS SELECT id, val::halfvec(24) AS val FROM items;

-- one operator class: recall at the default width, better at a wider one
CREATE FUNCTION try_opclass(rel text, opclass text, op text, type text, at_least numeric)
	RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE INDEX built ON %I USING gpugraph (val %s)', rel, opclass);
	PERFORM use_index(true);
	RETURN NEXT matches(plan_of(format('SELECT id FROM %I
		ORDER BY val %s (SELECT val::%s FROM queries LIMIT 1) LIMIT 10', rel, op, type)),
		'Index Scan using built', opclass || ' answers from the index');
	RETURN NEXT cmp_ok(recall(rel, op, 10, 'true', type), '>=', at_least,
		opclass || ': recall of 10');
	PERFORM set_config('gpugraph.itopk_size', '200', false);
	RETURN NEXT cmp_ok(recall(rel, op, 10, 'true', type), '>=', 0.995,
		opclass || ': recall of 10 at itopk_size 200');
	PERFORM set_config('gpugraph.itopk_size', '16', false);
	RETURN NEXT cmp_ok(recall(rel, op, 100, 'true', type), '>=', 0.99,
		opclass || ': recall of 100 at itopk_size 16');
	PERFORM set_config('gpugraph.itopk_size', '64', false);
	PERFORM gpugraph_check('built', false);
	DROP INDEX built;
END $$;

SELECT try_opclass('items', 'vector_l2_ops', '<->', 'vector', 0.99);
SELECT try_opclass('items', 'vector_ip_ops', '<#>', 'vector', 0.99);
SELECT try_opclass('items', 'vector_cosine_ops', '<=>', 'vector', 0.99);
SELECT try_opclass('items', 'vector_l1_ops', '<+>', 'vector', 0.99);
SELECT try_opclass('halves', 'halfvec_l2_ops', '<->', 'halfvec', 0.99);
SELECT try_opclass('halves', 'halfvec_ip_ops', '<#>', 'halfvec', 0.99);
SELECT try_opclass('halves', 'halfvec_cosine_ops', '<=>', 'halfvec', 0.99);
SELECT try_opclass('halves', 'halfvec_l1_ops', '<+>', 'halfvec', 0.99);

-- rows that come cluster after cluster, in strong clusters
SELECT make_data('sorted', 6000, 24, 60, true);
SELECT make_queries('sorted', 60);
CREATE INDEX sorted_idx ON sorted USING gpugraph (val vector_l2_ops);
SELECT cmp_ok(recall('sorted', '<->'), '>=', 0.99, 'rows sorted by cluster: recall');

-- a serial build, and one with little memory: several segments, announced
SET max_parallel_maintenance_workers = 0;
REINDEX INDEX sorted_idx;
SELECT cmp_ok(recall('sorted', '<->'), '>=', 0.99, 'serial build: recall');
-- a GPU's build holds less in this process's memory
INSERT INTO sorted SELECT 6000 + row_number() OVER (), a.cat, a.big, a.val + b.val
	FROM sorted a, sorted b WHERE a.id <= 2000 AND b.id <= 45;
SET gpugraph.engine = cpu;
SET maintenance_work_mem = '1MB';
SET temp_file_limit = '8MB';
REINDEX INDEX sorted_idx;
RESET maintenance_work_mem;
RESET temp_file_limit;
RESET gpugraph.engine;
RESET max_parallel_maintenance_workers;
SELECT cmp_ok((SELECT segments FROM gpugraph_index_info('sorted_idx')), '>', 1,
	'little memory: several segments');
SELECT is((SELECT rows FROM gpugraph_index_info('sorted_idx')), 96000::bigint,
	'little memory: all rows');
SELECT cmp_ok(recall('sorted', '<->'), '>=', 0.99, 'little memory: recall');
SELECT lives_ok($$SELECT gpugraph_check('sorted_idx', false)$$,
	'little memory: the index is sound');
DROP TABLE sorted;

-- half of the rows come after the build
DELETE FROM items WHERE id > 3000;
VACUUM items;
CREATE INDEX items_idx ON items USING gpugraph (val vector_cosine_ops);
SELECT make_data('more', 3000, 24, 40);
INSERT INTO items SELECT id + 10000, cat, big, val FROM more;
SELECT make_queries('items', 60);
SELECT cmp_ok((SELECT delta_rows FROM gpugraph_index_info('items_idx')), '=', 3000::bigint,
	'later rows are in the delta');
SELECT cmp_ok(recall('items', '<=>'), '>=', 0.99, 'later rows: recall');

-- the same seed and one thread: the same graph, so the same answers to the last row
SET max_parallel_maintenance_workers = 0;
CREATE FUNCTION answers() RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(ids::text, ' ' ORDER BY q) FROM (SELECT q, (SELECT array_agg(id) FROM
		(SELECT id FROM items ORDER BY items.val <=> queries.val LIMIT 20) s) AS ids
		FROM queries) t $$;
SELECT use_index(true);
SET gpugraph.engine = cpu;
SET gpugraph.itopk_size = 8;
SET enable_seqscan = off;
ALTER INDEX items_idx SET (seed = 11);
REINDEX INDEX items_idx;
SELECT answers() AS first \gset
REINDEX INDEX items_idx;
SELECT is(answers(), :'first', 'the same seed, the same answers');

SELECT * FROM finish();
