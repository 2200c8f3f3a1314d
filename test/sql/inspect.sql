-- gpugraph_index_info() and gpugraph_check(): what they say, and of what they refuse to speak
CREATE TABLE t (id int PRIMARY KEY, val vector(4));
INSERT INTO t SELECT i, ARRAY[i, i % 7, i % 11, -i]::real[]::vector FROM generate_series(1, 300) i;
INSERT INTO t SELECT i, '[1,2,3,4]' FROM generate_series(301, 400) i;
CREATE INDEX i ON t USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, intermediate_graph_degree = 16, seed = 3);
INSERT INTO t SELECT i, ARRAY[i, 0, 0, 0]::real[]::vector FROM generate_series(401, 410) i;

\x
SELECT version, dimensions, metric, element, algorithm, engine IN ('cpu', 'cuda') AS built, nodes,
	rows, segments,
	pivots BETWEEN 1 AND nodes AS has_pivots, delta_rows, dead_rows, graph_degree,
	intermediate_graph_degree, seed,
	generation > 0 AS has_generation, extents, extents_limit,
	vectors_bytes >= nodes * dimensions * 4 AS vectors_bytes,
	adjacency_bytes >= nodes * graph_degree * 4 AS adjacency_bytes,
	tids_bytes >= rows * 6 AS tids_bytes, pivots_bytes > 0 AS pivots_bytes,
	delta_bytes = current_setting('block_size')::int AS delta_bytes,
	free_bytes, parked_bytes, total_bytes = pg_relation_size('i') AS total_bytes,
	total_bytes = vectors_bytes + adjacency_bytes + tids_bytes + pivots_bytes + delta_bytes
	+ free_bytes
		+ current_setting('block_size')::int AS sums_up,
	total_seconds >= scan_seconds AND scan_seconds >= 0 AND copy_seconds >= 0 AND knn_seconds >= 0
	AND optimize_seconds >= 0 AND write_seconds >= 0 AND wal_seconds >= 0 AS times
	FROM gpugraph_index_info('i');
\x
SELECT gpugraph_check('i');
SELECT gpugraph_check('i', true);
SELECT gpugraph_check('i', heap_check => true);

-- what VACUUM leaves: of a temporary table it removes all that is deleted, also beside sessions
-- with old snapshots
CREATE TEMPORARY TABLE own AS SELECT * FROM t WHERE id <= 400;
CREATE INDEX own_i ON own USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, intermediate_graph_degree = 16, seed = 3);
INSERT INTO own SELECT * FROM t WHERE id > 400;
DELETE FROM own WHERE id % 4 = 0;
VACUUM own;
SELECT nodes, rows, delta_rows, dead_rows FROM gpugraph_index_info('own_i');
SELECT gpugraph_check('own_i', true);
DELETE FROM own WHERE id <= 400;
VACUUM own;
SELECT gpugraph_check('own_i', true);
SELECT delta_rows - dead_rows < 10 AS few FROM gpugraph_index_info('own_i');

-- of a table that others may read, whatever is left
DELETE FROM t WHERE id % 4 = 0;
VACUUM t;
SELECT gpugraph_check('i', true);
DELETE FROM t WHERE id <= 400;
VACUUM t;
SELECT gpugraph_check('i', true);

-- in a transaction that has written, and in one with an old snapshot
BEGIN;
INSERT INTO t SELECT i, ARRAY[i, 1, 2, 3]::real[]::vector FROM generate_series(1001, 1100) i;
SELECT gpugraph_check('i', true);
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM t;
SELECT gpugraph_check('i', true);
COMMIT;
SET maintenance_work_mem = '1MB';
SELECT gpugraph_check('i', true);
RESET maintenance_work_mem;

-- what is not a gpugraph index
SELECT gpugraph_check('t');
SELECT gpugraph_check('t_pkey');
SELECT gpugraph_index_info('t');
SELECT gpugraph_index_info('t_pkey');
SELECT gpugraph_index_info('nowhere');
SELECT gpugraph_index_info(0);
SELECT gpugraph_check(4294967295);
SELECT gpugraph_index_info(NULL);
SELECT gpugraph_check(NULL);

DROP TABLE t, own;
