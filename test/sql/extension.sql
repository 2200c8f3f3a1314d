-- The extension itself: types in another schema, dependencies, dropping
SELECT current_database() AS db \gset
CREATE DATABASE elsewhere TEMPLATE template0;
\c elsewhere
CREATE EXTENSION gpugraph;
CREATE EXTENSION gpugraph CASCADE;
DROP EXTENSION gpugraph, vector;

-- in schemas that nobody searches
CREATE SCHEMA types;
CREATE SCHEMA method;
CREATE EXTENSION vector SCHEMA types;
CREATE EXTENSION gpugraph SCHEMA method;
SET search_path = public, types;
CREATE TABLE t (id int, val vector(2), half halfvec(2));
INSERT INTO t SELECT i, ARRAY[i, 0]::real[]::vector, ARRAY[i, 0]::real[]::vector::halfvec
	FROM generate_series(1, 50) i;
CREATE INDEX i ON t USING gpugraph (val);
CREATE INDEX h ON t USING gpugraph (half method.halfvec_l1_ops);
RESET search_path;
SET enable_seqscan = off;
SELECT id FROM t ORDER BY val OPERATOR(types.<->) '[7.2,0]' LIMIT 2;
SELECT id FROM t ORDER BY half OPERATOR(types.<+>) '[7.2,0]' LIMIT 2;
SELECT method.gpugraph_check('h', true);
SELECT pg_index_column_has_property('i', 1, 'distance_orderable') AS distance_orderable,
	pg_index_has_property('i', 'backward_scan') AS backward_scan;

-- indexes depend on it
DROP EXTENSION gpugraph;
DROP EXTENSION gpugraph CASCADE;
SELECT count(*) FROM pg_class WHERE relname IN ('i', 'h');
SELECT count(*) FROM t;
SELECT count(*) FROM pg_am WHERE amname = 'gpugraph';

\c :db
DROP DATABASE elsewhere;
