-- Graphs by each algorithm: the index says which, merges and rebuilds keep it, and recall is high,
-- whatever metric, type, dimensions, duplicates and filters
\ir include/helpers.psql
SELECT * FROM no_plan();

CREATE FUNCTION algorithm_of(index text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM gpugraph_check(index::regclass, true);
	RETURN (SELECT algorithm FROM gpugraph_index_info(index::regclass));
END $$;

-- all metrics and types
SELECT make_data('items', 4000, 24, 40);
SELECT make_queries('items', 40);
CREATE TABLE halves AS SELECT id, val::halfvec(24) AS val FROM items;
CREATE FUNCTION try_opclass(algorithm text, type text, metric text, op text, storage text)
	RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	rel text := CASE type WHEN 'vector' THEN 'items' ELSE 'halves' END;
	what text := format('%s, %s_%s_ops%s', algorithm, type, metric, storage);
BEGIN
	EXECUTE format('CREATE INDEX built ON %I USING gpugraph (val %s_%s_ops)
		WITH (algorithm = %s%s)', rel, type, metric, algorithm, storage);
	RETURN NEXT is(algorithm_of('built'), algorithm, what || ': kept and sound');
	RETURN NEXT cmp_ok(recall(rel, op, 10, 'true', type), '>=', 0.99, what || ': recall of 10');
	PERFORM set_config('gpugraph.itopk_size', '20', false);
	RETURN NEXT cmp_ok(recall(rel, op, 10, 'true', type), '>=', 0.95,
		what || ': recall of 10 at itopk_size 20');
	RESET gpugraph.itopk_size;
	DROP INDEX built;
END $$;
-- every pair of algorithm, storage and metric
SELECT try_opclass(CASE (s + m) % 2 WHEN 0 THEN 'tsdg' ELSE 'grnnd' END, type, metric, op, storage)
	FROM (VALUES (1, 'vector', ''), (2, 'halfvec', ', storage = "float16+int8"'),
		(3, 'vector', ', storage = float16')) storages (s, type, storage),
	(VALUES (1, 'l2', '<->'), (2, 'ip', '<#>'), (3, 'cosine', '<=>'), (4, 'l1', '<+>'))
		metrics (m, metric, op);

-- numbers of rows, some of which are NULL or equal: all are returned, nearest first
CREATE FUNCTION try_rows(algorithm text, n int, copies int) RETURNS SETOF text
	LANGUAGE plpgsql AS $$
DECLARE
	what text := format('%s, %s rows in %s copies', algorithm, n, copies);
	by_index real[];
	by_heap real[];
BEGIN
	CREATE TABLE sized (id int, val vector(3));
	INSERT INTO sized SELECT i * copies + c, ARRAY[sin(i), cos(i * i), i % 7]::real[]::vector
		FROM generate_series(1, n) i, generate_series(1, copies) c;
	INSERT INTO sized SELECT -i, NULL FROM generate_series(1, 3) i;
	EXECUTE format('CREATE INDEX sized_idx ON sized USING gpugraph (val)
		WITH (algorithm = %s, graph_degree = 8)', algorithm);
	PERFORM use_index(true);
	SELECT array_agg(d) INTO by_index FROM (SELECT (val <-> '[0.2,0.1,3]')::real AS d FROM sized
		ORDER BY val <-> '[0.2,0.1,3]') s;
	PERFORM use_index(false);
	SELECT array_agg(d) INTO by_heap FROM (SELECT (val <-> '[0.2,0.1,3]')::real AS d FROM sized
		WHERE val IS NOT NULL ORDER BY val <-> '[0.2,0.1,3]') s;
	PERFORM use_index(true);
	RETURN NEXT is(by_index, by_heap, what || ': all of them, in order');
	RETURN NEXT is(algorithm_of('sized_idx'), algorithm, what || ': kept and sound');
	RETURN NEXT is((SELECT (nodes, rows) FROM gpugraph_index_info('sized_idx')),
		(n::bigint, n * copies::bigint), what || ': equal ones share a node');
	INSERT INTO sized SELECT 100000 + i, ARRAY[i, 2, 3]::real[]::vector
		FROM generate_series(1, 500) i;
	PERFORM gpugraph_merge('sized_idx');
	RETURN NEXT is(algorithm_of('sized_idx'), algorithm, what || ': kept by a merge');
	RETURN NEXT is((SELECT count(DISTINCT id) FROM (SELECT id FROM sized
		ORDER BY val <-> '[1,2,3]') s), n * copies + 500::bigint, what || ': all after a merge');
	DROP TABLE sized;
END $$;
SELECT try_rows(a, n, c) FROM unnest('{tsdg,grnnd}'::text[]) a,
	(VALUES (0, 1), (1, 1), (1, 700), (2, 1), (2, 3), (8, 1), (9, 1), (17, 40), (700, 2)) s (n, c);

-- dimensions, of vectors and halfvecs in turn; with fewer rows or a longer list there is no walk
CREATE TABLE widest AS SELECT i AS id,
	ARRAY(SELECT sin(i * 0.37::float8 * (1 + d % 5)) + random() FROM generate_series(1, 2000) d)
		::real[] AS val
	FROM generate_series(1, 1100) i;
CREATE FUNCTION try_dimensions(dim int, type text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	algorithm text;
BEGIN
	EXECUTE format('CREATE TABLE wide AS SELECT id, val[1:%s]::vector::%s(%1$s) AS val FROM widest',
		dim, type);
	DROP TABLE queries;
	CREATE TABLE queries AS SELECT id AS q, val::vector FROM wide WHERE id % 50 = 0;
	FOREACH algorithm IN ARRAY ARRAY['tsdg', 'grnnd'] LOOP
		EXECUTE format('CREATE INDEX wide_idx ON wide USING gpugraph (val %s_l2_ops)
			WITH (algorithm = %s)', type, algorithm);
		RETURN NEXT is(algorithm_of('wide_idx'), algorithm,
			format('%s, %s dimensions: kept and sound', algorithm, dim));
		RETURN NEXT cmp_ok(recall('wide', '<->', 10, 'true', type), '>=', 0.97,
			format('%s, %s dimensions: recall', algorithm, dim));
		DROP INDEX wide_idx;
	END LOOP;
	DROP TABLE wide;
END $$;
SET gpugraph.itopk_size = 32;
SELECT try_dimensions(dim, CASE dim % 2 WHEN 0 THEN 'vector' ELSE 'halfvec' END)
	FROM unnest('{1,2,3,8,17,64,127,384,769,1999,2000}'::int[]) dim;
RESET gpugraph.itopk_size;
SELECT make_queries('items', 40);

-- filter columns
CREATE FUNCTION try_filters(algorithm text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE INDEX filtered ON items USING gpugraph (val, cat, big)
		WITH (algorithm = %s)', algorithm);
	RETURN NEXT is(algorithm_of('filtered'), algorithm, algorithm || ': filter columns, sound');
	RETURN NEXT matches(plan_of('SELECT id FROM items WHERE cat = 7
		ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 10'),
		'Index Scan using filtered.*Index Cond', algorithm || ': filter columns are conditions');
	RETURN QUERY SELECT cmp_ok(recall('items', '<->', 10, filter), '>=', 0.99,
		format('%s: recall of 10 where %s', algorithm, filter))
		FROM unnest(ARRAY['cat = 7', 'cat IN (1, 30) AND big < 250', 'big <> 3', 'cat < 40',
			'big = 499', 'cat >= 0', 'id % 3 = 0']) filter;
	DROP INDEX filtered;
END $$;
SELECT try_filters(a) FROM unnest('{tsdg,grnnd}'::text[]) a;

-- seals, merges, compaction, VACUUM and every kind of rebuild keep the algorithm and the recall
CREATE FUNCTION try_life(algorithm text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	CREATE TABLE life (LIKE items);
	EXECUTE format('CREATE INDEX life_idx ON life USING gpugraph (val)
		WITH (algorithm = %s, seal_rows = 400)', algorithm);
	RETURN NEXT is(algorithm_of('life_idx'), algorithm, algorithm || ': an empty index');
	INSERT INTO life SELECT * FROM items WHERE id <= 1500;
	RETURN NEXT ok(gpugraph_merge('life_idx'), algorithm || ': sealed');
	RETURN NEXT is(algorithm_of('life_idx'), algorithm, algorithm || ': kept by a seal');
	RETURN NEXT is((SELECT segments FROM gpugraph_index_info('life_idx')), 1,
		algorithm || ': one segment');
	INSERT INTO life SELECT * FROM items WHERE id > 1500;
	DELETE FROM life WHERE id % 3 = 0;
END $$;
CREATE FUNCTION try_recall(algorithm text, what text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN NEXT is(algorithm_of('life_idx'), algorithm, algorithm || ': kept by ' || what);
	RETURN NEXT cmp_ok(recall('life', '<->'), '>=', 0.99, format('%s: recall after %s', algorithm,
		what));
END $$;

SELECT unnest(ARRAY[format('SELECT try_life(%L)', a), 'VACUUM life',
	format('SELECT try_recall(%L, ''VACUUM'')', a), $$SELECT gpugraph_merge('life_idx')$$,
	format('SELECT try_recall(%L, ''a merge'')', a), 'REINDEX INDEX life_idx',
	format('SELECT try_recall(%L, ''REINDEX'')', a), 'REINDEX INDEX CONCURRENTLY life_idx',
	format('SELECT try_recall(%L, ''REINDEX CONCURRENTLY'')', a), 'VACUUM FULL life',
	format('SELECT try_recall(%L, ''VACUUM FULL'')', a), 'TRUNCATE life',
	'INSERT INTO life SELECT * FROM items', format('SELECT try_recall(%L, ''TRUNCATE'')', a),
	'DROP TABLE life'])
	FROM unnest('{tsdg,grnnd}'::text[]) a \gexec

-- parameters reach the engine, in builds and merges: fewer edges, fewer distances
DROP TABLE queries;
SELECT make_data('ball', 4000, 12, 1);
SELECT make_queries('ball', 40);
SET gpugraph.engine = cpu;
SET max_parallel_maintenance_workers = 0;
CREATE FUNCTION distances(options text, merged boolean DEFAULT false) RETURNS bigint
	LANGUAGE plpgsql AS $$
DECLARE
	query text;
	total bigint := 0;
BEGIN
	CREATE TABLE walked (LIKE ball);
	IF NOT merged THEN
		INSERT INTO walked SELECT * FROM ball;
	END IF;
	EXECUTE format('CREATE INDEX walked_idx ON walked USING gpugraph (val) WITH (%s)', options);
	IF merged THEN
		INSERT INTO walked SELECT * FROM ball;
		PERFORM gpugraph_merge('walked_idx');
	END IF;
	PERFORM use_index(true);
	FOR query IN SELECT val::text FROM queries ORDER BY q LOOP
		PERFORM id FROM walked ORDER BY val <-> query::vector LIMIT 10;
		total := total + (SELECT distances FROM gpugraph_last_scan());
	END LOOP;
	DROP TABLE walked;
	RETURN total;
END $$;
SELECT cmp_ok(distances(fewer), '<', distances(more), format('%s: fewer distances than %s', fewer,
	more))
	FROM (VALUES ('algorithm = tsdg', 'algorithm = cagra'),
		('algorithm = tsdg, alpha = 1', 'algorithm = tsdg'),
		('algorithm = tsdg, lambda0 = 1', 'algorithm = tsdg'),
		('algorithm = grnnd, initial_neighbors = 4', 'algorithm = grnnd'),
		('algorithm = grnnd, pool_capacity = 32', 'algorithm = grnnd'),
		('algorithm = grnnd, outer_rounds = 8', 'algorithm = grnnd'),
		('algorithm = grnnd, inner_rounds = 8', 'algorithm = grnnd'),
		('algorithm = grnnd, outer_rounds = 2, rho = 0.01',
			'algorithm = grnnd, outer_rounds = 2, rho = 1')) parameters (fewer, more);
SELECT cmp_ok(distances(fewer, true), '<', distances(more, true),
	format('merged, %s: fewer distances than %s', fewer, more))
	FROM (VALUES ('algorithm = tsdg, alpha = 1', 'algorithm = tsdg'),
		('algorithm = grnnd, outer_rounds = 8', 'algorithm = grnnd')) parameters (fewer, more);
RESET max_parallel_maintenance_workers;
RESET gpugraph.engine;

-- several segments for want of memory; a GPU has memory of its own
SET gpugraph.engine = cpu;
CREATE TABLE large AS SELECT row_number() OVER ()::int AS id, a.val + b.val AS val
	FROM items a, items b WHERE a.id <= 2000 AND b.id <= 40;
SET maintenance_work_mem = '1MB';
CREATE INDEX large_idx ON large USING gpugraph (val) WITH (algorithm = tsdg);
SELECT cmp_ok((SELECT segments FROM gpugraph_index_info('large_idx')), '>', 1,
	'little memory: several segments');
SELECT is(algorithm_of('large_idx'), 'tsdg', 'little memory: all are sound');
RESET maintenance_work_mem;

SELECT * FROM finish();
