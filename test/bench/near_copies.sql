-- Groups of near copies: how many rows their own vector does not find, with gpugraph.itopk_size 64
-- and hnsw.ef_search 64.  To run it:
--
--	test/cluster start shared_buffers=2GB maintenance_work_mem=2GB
--	psql -X -v n=20000 -v queries=3000 -f test/bench/near_copies.sql
--
-- Where a GPU builds, "gpu" is its graph; graphs of both are searched by the CPU.
\set QUIET on
\pset footer off
SET client_min_messages = warning;
SET jit = off;
SET check_function_bodies = off;
SET max_parallel_workers_per_gather = 0;
SET gpugraph.iterative_scan = off;
SET gpugraph.itopk_size = 64;
SET hnsw.ef_search = 64;
CREATE EXTENSION IF NOT EXISTS gpugraph CASCADE;

CREATE OR REPLACE FUNCTION pg_temp.normal() RETURNS float8 LANGUAGE sql VOLATILE AS
	$$ SELECT sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()) $$;

-- n rows in groups of `size`, each as far from its centre as a hundredth of the centres' distances
CREATE OR REPLACE PROCEDURE pg_temp.make_set(n int, size int, dim int) LANGUAGE plpgsql AS $$
BEGIN
	DROP TABLE IF EXISTS centres, items;
	PERFORM setseed(size / 100.0);
	CREATE TEMP TABLE centres AS SELECT c, array_agg(pg_temp.normal()) AS v
		FROM generate_series(0, n / size - 1) c, generate_series(1, dim) GROUP BY c;
	EXECUTE format($q$ CREATE TABLE items AS
		SELECT i AS id,
			(SELECT array_agg(e + 0.01 * pg_temp.normal())::vector(%s) FROM unnest(v) e) AS v
		FROM generate_series(1, %s) i JOIN centres ON c = i %% %s $q$, dim, n, n / size);
	ANALYZE items;
END $$;

-- of the first `queries` rows those that are not among the ten that their own vectors find
CREATE OR REPLACE FUNCTION pg_temp.lost(queries int) RETURNS bigint LANGUAGE sql
	SET enable_seqscan = off SET enable_sort = off SET gpugraph.engine = cpu AS $$
	SELECT count(*) FROM items q WHERE id <= queries AND NOT EXISTS (
		SELECT FROM (SELECT id FROM items i ORDER BY i.v <-> q.v LIMIT 10) s WHERE s.id = q.id) $$;

CREATE TEMP TABLE result (number serial, dim int, size int, hnsw bigint, cpu bigint, gpu bigint,
	cpu_tsdg bigint, gpu_tsdg bigint);

CREATE OR REPLACE PROCEDURE pg_temp.measure(n int, queries int, size int, dim int)
LANGUAGE plpgsql AS $$
DECLARE
	engine text;
	algorithm text;
	last int;
BEGIN
	CALL pg_temp.make_set(n, size, dim);
	INSERT INTO result (dim, size) VALUES (dim, size) RETURNING number INTO last;
	CREATE INDEX items_idx ON items USING hnsw (v vector_l2_ops);
	UPDATE result SET hnsw = pg_temp.lost(queries) WHERE number = last;
	FOREACH engine IN ARRAY ARRAY['cpu', 'auto'] LOOP
		PERFORM set_config('gpugraph.engine', engine, false);
		FOREACH algorithm IN ARRAY ARRAY['cagra', 'tsdg'] LOOP
			DROP INDEX items_idx;
			EXECUTE format('CREATE INDEX items_idx ON items USING gpugraph (v vector_l2_ops)
				WITH (storage = float32, algorithm = %s)', algorithm);
			EXECUTE format('UPDATE result SET %s = pg_temp.lost(%s) WHERE number = %s',
				CASE engine WHEN 'cpu' THEN 'cpu' ELSE 'gpu' END ||
				CASE algorithm WHEN 'tsdg' THEN '_tsdg' ELSE '' END, queries, last);
		END LOOP;
	END LOOP;
	COMMIT;
END $$;

CALL pg_temp.measure(:n, :queries, 8, 64);
CALL pg_temp.measure(:n, :queries, 8, 128);
CALL pg_temp.measure(:n, :queries, 6, 64);
CALL pg_temp.measure(:n, :queries, 5, 64);
CALL pg_temp.measure(:n, :queries, 4, 64);
CALL pg_temp.measure(:n, :queries, 4, 16);
SELECT dim, size, hnsw, cpu, gpu, cpu_tsdg, gpu_tsdg FROM result ORDER BY number;
