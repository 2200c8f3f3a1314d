-- The plan that is chosen is the fast one for the CPU engine: filters, out-of-line vectors, long
-- lists, segments
\ir include/helpers.psql
SET gpugraph.engine = cpu;
SET max_parallel_workers_per_gather = 0;
SELECT * FROM no_plan();

-- the plan of the nearest rows under a filter
CREATE FUNCTION plan(rel text, filter text, rows text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text;
BEGIN
	EXECUTE format('SELECT quote_literal(val::text) FROM %I WHERE id = 7', rel) INTO query;
	RETURN regexp_replace(plan_of(format('SELECT id FROM %I WHERE %s ORDER BY val <-> %s LIMIT %s',
										 rel, filter, query, rows)), '\[[^]]*\]', '[...]');
END $$;
CREATE FUNCTION takes(node text, rel text, filter text, rows text, what text) RETURNS text
	LANGUAGE sql AS $$ SELECT matches(plan(rel, filter, rows), node, what) $$;

-- cat has 50 values and no index, big has 500 and a B-tree
SELECT make_data('narrow', 10000, 3, 20);
CREATE INDEX narrow_val ON narrow USING gpugraph (val);
CREATE INDEX narrow_big ON narrow (big);
VACUUM ANALYZE narrow;
SELECT takes('using narrow_val', 'narrow', 'true', '10', 'no filter');
SELECT takes('using narrow_val', 'narrow', 'cat < 25', '10', 'a filter of 50%');
SELECT takes('using narrow_val', 'narrow', 'cat < 5', '10', 'a filter of 10%');
SELECT takes('Seq Scan', 'narrow', 'cat = 3', '10', 'a filter of 2%');
SELECT takes('Seq Scan', 'narrow', 'cat = 3 AND id % 2 = 0', '10', 'a filter of less');
SELECT takes('Seq Scan', 'narrow', 'cat < 5', '100', 'a filter of 10% and LIMIT 100');
SELECT takes('narrow_big', 'narrow', 'big < 10', '10', 'a B-tree for 2%');
SELECT takes('narrow_big', 'narrow', 'big < 5', '10', 'a B-tree for 1%');
SELECT takes('narrow_big', 'narrow', 'big = 5', '10', 'a B-tree for 0.2%');
SELECT takes('Seq Scan', 'narrow', 'true', 'ALL', 'all rows are sorted');

-- stored out of line: every other plan fetches every vector that passes the filter
CREATE TABLE wide AS SELECT i AS id, i % 50 AS cat,
	(SELECT array_agg((random() + 0 * d * i)::real) FROM generate_series(1, 1536) d)::vector(1536)
		AS val
	FROM generate_series(1, 2000) i;
CREATE INDEX wide_val ON wide USING gpugraph (val);
VACUUM ANALYZE wide;
SELECT takes('using wide_val', 'wide', 'true', '10', 'out of line');
SELECT takes('using wide_val', 'wide', 'true', '100', 'out of line, LIMIT 100');
SELECT takes('using wide_val', 'wide', 'cat < 25', '10', 'out of line, a filter of 50%');
SELECT takes('Seq Scan', 'wide', 'cat = 3', '10', 'out of line, a filter of 2%');
SET gpugraph.itopk_size = 800;
SELECT takes('using wide_val', 'wide', 'true', '10', 'out of line, a long list');
RESET gpugraph.itopk_size;

-- filter columns: by the index, unless a B-tree names few rows
SELECT make_data('filtered', 20000, 64, 40);
CREATE INDEX filtered_val ON filtered USING gpugraph (val, cat, big, id);
CREATE INDEX filtered_big ON filtered (big);
CREATE INDEX filtered_cat ON filtered (cat);
VACUUM ANALYZE filtered;
SELECT takes('using filtered_val.*Index Cond', 'filtered', 'cat < 25', '10', 'one row of 2');
SELECT takes('using filtered_val.*Index Cond', 'filtered', 'cat < 5', '10', 'one row of 10');
SELECT takes('using filtered_val.*Index Cond', 'filtered', 'cat = 5', '10', 'one row of 50');
SELECT takes('using filtered_val.*Index Cond', 'filtered', 'cat IN (3, 5) AND big > 100', '100',
	'a list and a LIMIT of 100');
SELECT takes('filtered_pkey', 'filtered', 'id = 5', '10', 'one row');
SELECT takes('filtered_pkey', 'filtered', 'id < 5', '10', 'a few rows');
DROP INDEX filtered_big, filtered_cat;
SELECT takes('using filtered_val.*Index Cond', 'filtered', 'big = 5', '10',
	'one row of 500 without a B-tree');
SELECT takes('using filtered_val.*Index Cond', 'filtered', 'big = 5 AND cat = 5', '10',
	'two conditions without a B-tree');

-- where the number of rows is not known
SET plan_cache_mode = force_generic_plan;
PREPARE narrow_rows(vector, int) AS SELECT id FROM narrow ORDER BY val <-> $1 LIMIT $2;
SELECT matches(plan_of('EXECUTE narrow_rows(''[1,2,3]'', 10)'), 'using narrow_val',
	'a LIMIT that is a parameter');
RESET plan_cache_mode;

-- a small segment beside a large one costs little
CREATE FUNCTION startup_cost(rel text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	EXECUTE format('EXPLAIN SELECT id FROM %I ORDER BY val <-> ''[1,2,3]'' LIMIT 10', rel)
		INTO line;
	RETURN substring(line from 'cost=([0-9.]+)\.\.');
END $$;
SET enable_seqscan = off;
CREATE TABLE split AS SELECT * FROM narrow WHERE id <= 6000;
CREATE INDEX split_val ON split USING gpugraph (val);
VACUUM ANALYZE split;
SELECT startup_cost('split') AS one \gset
DROP INDEX split_val;
-- no files for more: several segments
SET maintenance_work_mem = '16MB';
SET temp_file_limit = '8MB';
CREATE INDEX split_val ON split USING gpugraph (val);
RESET maintenance_work_mem;
RESET temp_file_limit;
SELECT cmp_ok(startup_cost('split'), '<', 1.3 * :one, 'two segments, of which one is small');

-- codes are measured in less time than vectors; without vectors rows are read from the table
SET gpugraph.itopk_size = 32;
SELECT startup_cost('wide') AS by_rows \gset
ALTER INDEX wide_val SET (storage = 'float32+int4');
REINDEX INDEX wide_val;
SELECT startup_cost('wide') AS by_codes \gset
SELECT cmp_ok(:by_codes, '<', 0.7 * :by_rows, 'walks by codes');
SET gpugraph.rerank_size = 10;
SELECT cmp_ok(startup_cost('wide'), '<', 0.98 * :by_codes, 'rows that are measured again');
RESET gpugraph.rerank_size;
ALTER INDEX wide_val SET (storage = int4);
REINDEX INDEX wide_val;
SELECT startup_cost('wide') AS by_table \gset
SELECT cmp_ok(:by_table, '>', 1.02 * :by_codes, 'rows of the table cost more');
SET gpugraph.rerank_size = 31;
SELECT cmp_ok(startup_cost('wide'), '>', 1.01 * :by_table, 'a setting has all rows read');
SET gpugraph.rerank_size = 500;
SELECT cmp_ok(startup_cost('wide'), '>', 2 * :by_table, 'the more, the more are read');
RESET gpugraph.rerank_size;
RESET gpugraph.itopk_size;

SELECT * FROM finish();
