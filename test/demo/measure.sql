-- Every query once exactly and once through the index at several widths, with its time; first an
-- untimed round of each, so that all is in memory. What is being done goes to standard error. A row
-- returned counts as found when it is no farther than the last row of the exact answer: many
-- packages have the same description, and any of those equally far is right.
CREATE TEMP TABLE answers (method text, query text, ms float8, rows int, farthest float8,
	distances float8[]);
CREATE INDEX ON answers (query);

CREATE FUNCTION pg_temp.ask(method text, k int, keep boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	q record;
	began timestamptz;
	took float8;
	found float8[];
BEGIN
	FOR q IN SELECT name, embedding FROM held LOOP
		began := clock_timestamp();
		EXECUTE 'SELECT array_agg(d) FROM (SELECT embedding <=> $1 AS d FROM packages
			ORDER BY embedding <=> $1 LIMIT $2) s'
			INTO found USING q.embedding, k;
		took := 1000 * extract(epoch FROM clock_timestamp() - began);
		IF keep THEN
			INSERT INTO answers VALUES (method, q.name, took, cardinality(found),
				(SELECT max(d) FROM unnest(found) d), found);
		END IF;
	END LOOP;
END $$;

SET max_parallel_workers_per_gather = 0;
SET enable_indexscan = off;
\warn exact answers
SELECT count(embedding) FROM packages \g /dev/null
SELECT pg_temp.ask('exact', :list, true) \g /dev/null

SET enable_indexscan = on;
SET enable_seqscan = off;
\warn answers of the index
SELECT pg_temp.ask('', :list, false) \g /dev/null
\warn answers of the index, itopk_size 32
SET gpugraph.itopk_size = 32;
SELECT pg_temp.ask('itopk_size  32', :list, true) \g /dev/null
\warn answers of the index, itopk_size 64
SET gpugraph.itopk_size = 64;
SELECT pg_temp.ask('itopk_size  64 (default)', :list, true) \g /dev/null
\warn answers of the index, itopk_size 128
SET gpugraph.itopk_size = 128;
SELECT pg_temp.ask('itopk_size 128', :list, true) \g /dev/null
\warn answers of the index, itopk_size 256
SET gpugraph.itopk_size = 256;
SELECT pg_temp.ask('itopk_size 256', :list, true) \g /dev/null

SELECT a.method AS "search",
	to_char(avg((SELECT count(*) FROM unnest(a.distances) d WHERE d <= e.farthest + 1e-6)
		/ e.rows::float8), '0.9999') AS "recall",
	to_char(percentile_cont(0.5) WITHIN GROUP (ORDER BY a.ms), '990.00') AS "median ms",
	to_char(percentile_cont(0.95) WITHIN GROUP (ORDER BY a.ms), '990.00') AS "95% ms",
	to_char(1000 / avg(a.ms), '999,990') AS "queries/s",
	sum(e.rows - a.rows) AS "rows short"
FROM answers a JOIN answers e ON e.query = a.query AND e.method = 'exact'
GROUP BY a.method
ORDER BY a.method = 'exact' DESC, a.method;
