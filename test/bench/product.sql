-- Inner product: recall@10 of gpugraph with itopk_size 64 and of HNSW with ef_search 64, over sets
-- whose rows are no neighbours of each other or differ in length.  Queries are like the rows, but
-- of the common length.  A figure is the mean of three seeds.  To run it:
--
--	test/cluster start shared_buffers=2GB maintenance_work_mem=2GB
--	psql -X -v n=16000 -v queries=5000 -f test/bench/product.sql
--
-- Sets, of n rows: normal elements; the same with lengths within a factor of 10; one row of 1,000 a
-- thousand times as long; one of 500, in 100 tight clusters.
\set QUIET on
\pset footer off
SET client_min_messages = warning;
SET jit = off;
SET check_function_bodies = off;
SET max_parallel_workers_per_gather = 0;
CREATE EXTENSION IF NOT EXISTS gpugraph CASCADE;

CREATE OR REPLACE FUNCTION pg_temp.normal() RETURNS float8 LANGUAGE sql VOLATILE AS
	$$ SELECT sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()) $$;

-- rows 1 to n of table items, and queries
CREATE OR REPLACE PROCEDURE pg_temp.make_set(what text, n int, queries int, dim int, seed int)
LANGUAGE plpgsql AS $$
BEGIN
	DROP TABLE IF EXISTS drawn, centres, items, queries;
	PERFORM setseed(seed / 100.0);
	CREATE TEMP TABLE centres AS SELECT c, array_agg(random() - 0.5 ORDER BY d) AS v
		FROM generate_series(0, 99) c, generate_series(1, dim) d GROUP BY c;
	CREATE TEMP TABLE drawn AS SELECT i AS id, array_agg(CASE WHEN what = 'clusters'
			THEN v[d] + 0.3 * (random() - 0.5) ELSE pg_temp.normal() END ORDER BY d) AS v
		FROM generate_series(1, n + queries) i JOIN centres ON c = i % 100,
			generate_series(1, dim) d GROUP BY i ORDER BY i;
	EXECUTE format($q$ CREATE TABLE items AS
		SELECT id, (SELECT array_agg(x * s ORDER BY o)::real[]::vector(%s)
			FROM unnest(v) WITH ORDINALITY u(x, o)) AS v
		FROM (SELECT id, v, CASE $1 WHEN 'within 10' THEN 10 ^ random()
				WHEN 'one of 1,000' THEN CASE WHEN id %% 1000 = 7 THEN 1000 ELSE 1 END
				WHEN 'clusters' THEN
					CASE WHEN id %% 500 = 7 THEN 1000 ELSE 1 + id %% 101 / 100.0 END
				ELSE 1 END AS s
			FROM drawn WHERE id <= $2) r $q$, dim) USING what, n;
	CREATE TABLE queries AS SELECT id, v::real[]::vector AS v FROM drawn WHERE id > n;
	ANALYZE items, queries;
END $$;

-- the tenth distance of each query, exactly
CREATE OR REPLACE PROCEDURE pg_temp.answer() LANGUAGE plpgsql AS $$
BEGIN
	DROP TABLE IF EXISTS exact;
	CREATE TEMP TABLE exact AS SELECT q.id, (SELECT max(d) FROM (SELECT i.v <#> q.v AS d
		FROM items i ORDER BY d LIMIT 10) s) AS last FROM queries q;
END $$;

CREATE OR REPLACE FUNCTION pg_temp.recall() RETURNS numeric LANGUAGE sql
	SET enable_seqscan = off SET enable_sort = off SET gpugraph.itopk_size = 64
	SET hnsw.ef_search = 64 AS $$
	SELECT round(avg((SELECT count(*) FROM (SELECT i.v <#> q.v AS d FROM items i
		ORDER BY i.v <#> q.v LIMIT 10) s WHERE d <= last + 1e-5 * abs(last))) / 10, 4)
	FROM queries q JOIN exact USING (id) $$;

CREATE TEMP TABLE figures (what text, dim int, gpugraph numeric, hnsw numeric);
CREATE OR REPLACE PROCEDURE pg_temp.measure(what text, n int, queries int, dim int)
LANGUAGE plpgsql AS $$
DECLARE
	ours numeric;
	theirs numeric;
BEGIN
	FOR seed IN 1 .. 3 LOOP
		CALL pg_temp.make_set(what, n, queries, dim, seed);
		CALL pg_temp.answer();
		CREATE INDEX items_idx ON items USING gpugraph (v vector_ip_ops);
		-- a plan of the tables of before is not kept
		EXECUTE 'SELECT pg_temp.recall()' INTO ours;
		DROP INDEX items_idx;
		CREATE INDEX items_idx ON items USING hnsw (v vector_ip_ops);
		EXECUTE 'SELECT pg_temp.recall()' INTO theirs;
		INSERT INTO figures VALUES (what, dim, ours, theirs);
	END LOOP;
END $$;

CALL pg_temp.measure('normal', :n, :queries, 32);
CALL pg_temp.measure('normal', :n, :queries, 64);
CALL pg_temp.measure('within 10', :n, :queries, 64);
CALL pg_temp.measure('one of 1,000', :n, :queries, 32);
CALL pg_temp.measure('clusters', :n, :queries, 32);
SELECT what, dim, round(avg(gpugraph), 4) AS gpugraph, round(avg(hnsw), 4) AS hnsw
	FROM figures GROUP BY what, dim ORDER BY what, dim;
