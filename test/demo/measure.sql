-- Every query once exactly, and in three rounds through the index at several widths, with its time;
-- first an untimed round of each, so that all is in memory. Where there is a table packages_hnsw,
-- the same of pgvector's index, by turns. What is being done goes to standard error. A row returned
-- counts as found when it is no farther than the last row of the exact answer: many packages have
-- the same description, and any of those equally far is right.
CREATE TEMP TABLE answers (round int, method text, query text, ms float8, rows int,
	farthest float8, distances float8[]);
CREATE INDEX ON answers (query);
CREATE TEMP TABLE methods AS
	SELECT * FROM (VALUES (1, 'gpugraph', 'gpugraph.itopk_size', 32, 'packages'),
		(2, 'gpugraph', 'gpugraph.itopk_size', 64, 'packages'),
		(3, 'gpugraph', 'gpugraph.itopk_size', 128, 'packages'),
		(4, 'gpugraph', 'gpugraph.itopk_size', 256, 'packages'),
		(5, 'hnsw', 'hnsw.ef_search', 40, 'packages_hnsw'),
		(6, 'hnsw', 'hnsw.ef_search', 100, 'packages_hnsw'),
		(7, 'hnsw', 'hnsw.ef_search', 200, 'packages_hnsw'),
		(8, 'hnsw', 'hnsw.ef_search', 400, 'packages_hnsw'))
		AS m (position, index, setting, width, rel)
	WHERE to_regclass(rel) IS NOT NULL;

CREATE FUNCTION pg_temp.ask(round int, method text, rel text, k int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	q record;
	began timestamptz;
	took float8;
	found float8[];
BEGIN
	RAISE NOTICE 'round %, %', round, method;
	FOR q IN SELECT name, embedding FROM held LOOP
		began := clock_timestamp();
		EXECUTE format('SELECT array_agg(d) FROM (SELECT embedding <=> $1 AS d FROM %I
			ORDER BY embedding <=> $1 LIMIT $2) s', rel)
			INTO found USING q.embedding, k;
		took := 1000 * extract(epoch FROM clock_timestamp() - began);
		IF round > 0 THEN
			INSERT INTO answers VALUES (round, method, q.name, took, cardinality(found),
				(SELECT max(d) FROM unnest(found) d), found);
		END IF;
	END LOOP;
END $$;

CREATE FUNCTION pg_temp.measure(round int, k int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	m record;
BEGIN
	FOR m IN SELECT * FROM methods ORDER BY CASE round % 2 WHEN 0 THEN position ELSE -position END
	LOOP
		PERFORM set_config(m.setting, m.width::text, false),
			pg_temp.ask(round, format('%s %s', m.setting, lpad(m.width::text, 3)), m.rel, k);
	END LOOP;
END $$;

SET max_parallel_workers_per_gather = 0;
SET enable_indexscan = off;
\o /dev/null
SELECT count(embedding) FROM packages;
SELECT pg_temp.ask(1, 'exact', 'packages', :list);
SET enable_indexscan = on;
SET enable_seqscan = off;
SELECT pg_temp.measure(round, :list) FROM generate_series(0, 3) round;
\o

CREATE TEMP TABLE measured AS
	SELECT a.method, avg((SELECT count(*) FROM unnest(a.distances) d
			WHERE d <= e.farthest + 1e-6) / e.rows::float8) AS recall,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY a.ms) AS p50,
		percentile_cont(0.95) WITHIN GROUP (ORDER BY a.ms) AS p95,
		percentile_cont(0.99) WITHIN GROUP (ORDER BY a.ms) AS p99,
		1000 / avg(a.ms) AS per_second, avg(a.rows) AS rows, sum(e.rows - a.rows) AS short
	FROM answers a JOIN answers e ON e.query = a.query AND e.method = 'exact'
	GROUP BY a.method;
SELECT method AS "search", to_char(recall, '0.9999') AS "recall",
	to_char(p50, '990.00') AS "median ms", to_char(p95, '990.00') AS "95% ms",
	to_char(per_second, '999,990') AS "queries/s", short AS "rows short"
FROM measured ORDER BY method <> 'exact', method;

-- for test/bench/report.pl
\pset tuples_only on
\pset format unaligned
\pset fieldsep '\t'
SELECT 'info', 'set packages', (SELECT count(*) FROM packages) || ' texts of packages x '
	|| (SELECT vector_dims(embedding) FROM packages LIMIT 1) || ' cosine';
SELECT 'point', 'packages', m.index, m.width, 1, 1, to_char(recall, '0.999999'), per_second,
	1000 * p50, 1000 * p95, 1000 * p99, rows, (SELECT count(*) FROM held), short
	FROM measured JOIN methods m ON method = format('%s %s', setting, lpad(width::text, 3))
	ORDER BY position;
