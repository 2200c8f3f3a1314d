-- Options and settings: defaults, bounds, and what CREATE INDEX refuses
CREATE TABLE t (id int, val vector(3), half halfvec(3));
INSERT INTO t SELECT i, ARRAY[i, i * i % 7, -i]::real[]::vector,
	ARRAY[i, 1, 2]::real[]::vector::halfvec FROM generate_series(1, 20) i;

-- the access method and its operator classes
SELECT amname, amtype FROM pg_am WHERE amname = 'gpugraph';
SELECT opcname, opcintype::regtype, opcdefault
	FROM pg_opclass WHERE opcmethod = (SELECT oid FROM pg_am WHERE amname = 'gpugraph')
	ORDER BY 2, 1;
SELECT opcname FROM pg_opclass
	WHERE opcmethod = (SELECT oid FROM pg_am WHERE amname = 'gpugraph') AND NOT amvalidate(oid);
SELECT pg_indexam_has_property(a.oid, p) AS value, p
	FROM pg_am a,
	unnest(ARRAY['can_order', 'can_unique', 'can_multi_col', 'can_exclude', 'can_include']) p
	WHERE amname = 'gpugraph' ORDER BY p;

-- defaults
CREATE INDEX i ON t USING gpugraph (val);
SELECT dimensions, metric, element, algorithm, rows, delta_rows, dead_rows, segments,
	graph_degree, intermediate_graph_degree, seed FROM gpugraph_index_info('i');
SELECT pg_index_has_property('i', 'index_scan') AS index_scan,
	pg_index_has_property('i', 'bitmap_scan') AS bitmap_scan,
	pg_index_has_property('i', 'backward_scan') AS backward_scan,
	pg_index_has_property('i', 'clusterable') AS clusterable;
DROP INDEX i;

-- least and greatest values
CREATE INDEX i ON t USING gpugraph (val)
	WITH (graph_degree = 4, intermediate_graph_degree = 4, seed = 0);
SELECT graph_degree, intermediate_graph_degree, seed FROM gpugraph_index_info('i');
SELECT gpugraph_check('i', true);
DROP INDEX i;
CREATE INDEX i ON t USING gpugraph (val)
	WITH (graph_degree = 256, intermediate_graph_degree = 512, seed = 2147483647);
SELECT graph_degree, intermediate_graph_degree, seed FROM gpugraph_index_info('i');
SELECT gpugraph_check('i', true);
DROP INDEX i;

-- beyond them
CREATE INDEX ON t USING gpugraph (val) WITH (graph_degree = 3);
CREATE INDEX ON t USING gpugraph (val) WITH (graph_degree = 257);
CREATE INDEX ON t USING gpugraph (val) WITH (intermediate_graph_degree = 3);
CREATE INDEX ON t USING gpugraph (val) WITH (intermediate_graph_degree = 513);
CREATE INDEX ON t USING gpugraph (val) WITH (seed = -1);
CREATE INDEX ON t USING gpugraph (val) WITH (graph_degree = 64, intermediate_graph_degree = 63);
CREATE INDEX ON t USING gpugraph (val) WITH (graph_degree = 65);
CREATE INDEX ON t USING gpugraph (val) WITH (m = 16);
CREATE INDEX ON t USING gpugraph (val) WITH (graph_degree = 'many');

-- ALTER INDEX holds for the next build
CREATE INDEX i ON t USING gpugraph (val);
ALTER INDEX i SET (graph_degree = 8, intermediate_graph_degree = 16, seed = 7);
SELECT graph_degree, intermediate_graph_degree, seed FROM gpugraph_index_info('i');
REINDEX INDEX i;
SELECT graph_degree, intermediate_graph_degree, seed FROM gpugraph_index_info('i');
ALTER INDEX i SET (intermediate_graph_degree = 4);
ALTER INDEX i RESET (graph_degree, intermediate_graph_degree, seed);
REINDEX INDEX i;
SELECT graph_degree, intermediate_graph_degree, seed FROM gpugraph_index_info('i');
DROP INDEX i;

-- the algorithm, and parameters of each: least and greatest values; where there is a GPU, a NOTICE
-- says that the CPU builds by GRNND
SET client_min_messages = warning;
CREATE INDEX i ON t USING gpugraph (val) WITH (algorithm = 'cagra');
SELECT algorithm FROM gpugraph_index_info('i');
DROP INDEX i;
CREATE INDEX i ON t USING gpugraph (val) WITH (algorithm = tsdg, alpha = 1, lambda0 = 1);
SELECT algorithm, nodes, gpugraph_check('i', true) FROM gpugraph_index_info('i');
DROP INDEX i;
CREATE INDEX i ON t USING gpugraph (val) WITH (algorithm = tsdg, alpha = 100, lambda0 = 1024);
SELECT gpugraph_check('i', true);
DROP INDEX i;
CREATE INDEX i ON t USING gpugraph (val) WITH (algorithm = grnnd, graph_degree = 4,
	initial_neighbors = 1, pool_capacity = 4, outer_rounds = 1, inner_rounds = 1, rho = 0.01);
SELECT algorithm, nodes, gpugraph_check('i', true) FROM gpugraph_index_info('i');
DROP INDEX i;
CREATE INDEX i ON t USING gpugraph (val) WITH (algorithm = grnnd, graph_degree = 256,
	initial_neighbors = 512, pool_capacity = 512, outer_rounds = 100, inner_rounds = 100, rho = 1);
SELECT graph_degree, intermediate_graph_degree, gpugraph_check('i', true)
	FROM gpugraph_index_info('i');
DROP INDEX i;

-- beyond them
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = 'hnsw');
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = tsdg, alpha = 0.99);
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = tsdg, alpha = 100.1);
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = tsdg, alpha = 'nan');
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = tsdg, lambda0 = 0);
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = tsdg, lambda0 = 1025);
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = grnnd, initial_neighbors = 0);
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = grnnd, initial_neighbors = 65);
CREATE INDEX ON t USING gpugraph (val)
	WITH (algorithm = grnnd, initial_neighbors = 41, pool_capacity = 40);
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = grnnd, pool_capacity = 31);
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = grnnd, pool_capacity = 513);
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = grnnd, outer_rounds = 0);
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = grnnd, inner_rounds = 101);
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = grnnd, rho = 0);
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = grnnd, rho = 1.01);

-- a parameter belongs to one algorithm
CREATE INDEX ON t USING gpugraph (val) WITH (alpha = 1.2);
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = grnnd, lambda0 = 10);
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = tsdg, initial_neighbors = 16);
CREATE INDEX ON t USING gpugraph (val) WITH (pool_capacity = 64);
CREATE INDEX ON t USING gpugraph (val) WITH (outer_rounds = 2);
CREATE INDEX ON t USING gpugraph (val) WITH (inner_rounds = 1);
CREATE INDEX ON t USING gpugraph (val) WITH (algorithm = tsdg, rho = 0.6);

-- ALTER INDEX holds for the next build; a merge keeps to what there is
CREATE INDEX i ON t USING gpugraph (val) WITH (algorithm = tsdg, alpha = 1.2);
ALTER INDEX i SET (algorithm = cagra);
ALTER INDEX i SET (rho = 0.5);
ALTER INDEX i RESET (alpha), SET (algorithm = grnnd, graph_degree = 16, pool_capacity = 16);
INSERT INTO t SELECT 100 + i, ARRAY[i, -i, 3]::real[]::vector, '[1,2,3]'
	FROM generate_series(1, 2000) i;
SELECT gpugraph_merge('i');
SELECT algorithm, segments, graph_degree FROM gpugraph_index_info('i');
SELECT gpugraph_check('i', true);
REINDEX INDEX i;
SELECT algorithm, segments, graph_degree FROM gpugraph_index_info('i');
-- parameters that fit another degree than that of the graphs that are there
ALTER INDEX i SET (graph_degree = 8, pool_capacity = 8);
INSERT INTO t SELECT 10000 + i, ARRAY[i, i, 4]::real[]::vector, '[1,2,3]'
	FROM generate_series(1, 2000) i;
SELECT gpugraph_merge('i');
ALTER INDEX i RESET (pool_capacity), SET (graph_degree = 64, initial_neighbors = 100);
INSERT INTO t SELECT 20000 + i, ARRAY[i, i, 5]::real[]::vector, '[1,2,3]'
	FROM generate_series(1, 2000) i;
SELECT gpugraph_merge('i');
ALTER INDEX i RESET (graph_degree);
ALTER INDEX i RESET (initial_neighbors, graph_degree);
SELECT algorithm, segments, graph_degree FROM gpugraph_index_info('i');
REINDEX INDEX CONCURRENTLY i;
SELECT algorithm, graph_degree, gpugraph_check('i', true) FROM gpugraph_index_info('i');
ALTER INDEX i RESET (algorithm);
SELECT algorithm FROM gpugraph_index_info('i');
REINDEX INDEX i;
SELECT algorithm FROM gpugraph_index_info('i');
DROP INDEX i;
DELETE FROM t WHERE id > 20;
RESET client_min_messages;

-- what the access method does not do
CREATE UNIQUE INDEX ON t USING gpugraph (val);
CREATE INDEX ON t USING gpugraph (val, half halfvec_l2_ops);
CREATE INDEX ON t USING gpugraph (val) INCLUDE (id);
\set VERBOSITY sqlstate
CREATE INDEX ON t USING gpugraph (val DESC);	-- 19 tells the position, too
\set VERBOSITY default
CREATE INDEX ON t USING gpugraph (id);
CREATE INDEX ON t USING gpugraph (half);
CREATE INDEX ON t USING gpugraph (half vector_l2_ops);
CREATE INDEX ON t USING gpugraph (val halfvec_l2_ops);
CREATE INDEX ON t USING gpugraph (val bit_hamming_ops);

-- settings
SHOW gpugraph.itopk_size;
SHOW gpugraph.iterative_scan;
SHOW gpugraph.max_scan_tuples;
SELECT name, vartype, context, min_val, max_val, enumvals, boot_val FROM pg_settings
	WHERE name IN ('gpugraph.engine', 'gpugraph.itopk_size', 'gpugraph.iterative_scan',
	'gpugraph.search_mode')
	ORDER BY name;
SET gpugraph.engine = tpu;
SET gpugraph.itopk_size = 0;
SET gpugraph.itopk_size = 1025;
SET gpugraph.iterative_scan = on;
SET gpugraph.max_scan_tuples = 0;
SET gpugraph.search_mode = greedy;
SET gpugraph.ef_search = 40;
SET gpugraph.engine = cpu;
CREATE INDEX i ON t USING gpugraph (val);
SELECT engine FROM gpugraph_index_info('i');
SET enable_seqscan = off;
SET gpugraph.itopk_size = 1024;
SELECT id FROM t ORDER BY val <-> '[3,2,-3]' LIMIT 3;
SET gpugraph.itopk_size = 1;
SELECT id FROM t ORDER BY val <-> '[3,2,-3]' LIMIT 3;
SET gpugraph.max_scan_tuples = 1;
SELECT id FROM t ORDER BY val <-> '[3,2,-3]' LIMIT 3;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> '[3,2,-3]') s;

DROP TABLE t;
