-- Rows far out, under strict order: recall and distances of large LIMITs, and of LIMITs behind a
-- condition that is no filter column, by the plain index, by storage = int4, and over partitions.
-- Rows are chunks of documents of topics; queries are like the rows.  A figure is the mean of all
-- queries of a seed.  To run it:
--
--	test/cluster start shared_buffers=2GB maintenance_work_mem=2GB
--	psql -X -v n=50000 -v dim=128 -v queries=500 -v seeds=3 -f test/bench/far_out.sql
--
-- "share": one row in so many passes.  Distances over partitions are those of one of them.
\set QUIET on
\pset footer off
SET client_min_messages = warning;
SET jit = off;
SET max_parallel_workers_per_gather = 0;
SET gpugraph.iterative_scan = strict_order;
CREATE EXTENSION IF NOT EXISTS gpugraph CASCADE;

CREATE OR REPLACE FUNCTION pg_temp.around(v float8[], width float8) RETURNS float8[]
LANGUAGE sql VOLATILE AS
	$$ SELECT array_agg(x + width * (random() + random() + random() - 1.5)) FROM unnest(v) x $$;

-- n chunks of n / 10 documents of n / 250 topics, and queries
CREATE OR REPLACE PROCEDURE pg_temp.make_set(n int, dim int, queries int, seed int)
LANGUAGE plpgsql AS $$
BEGIN
	DROP TABLE IF EXISTS topics, documents, items, parts, queries;
	PERFORM setseed(seed / 100.0);
	CREATE TEMP TABLE topics AS SELECT t, array_agg(random() - 0.5) AS v
		FROM generate_series(0, n / 250 - 1) t, generate_series(1, dim) GROUP BY t;
	CREATE TEMP TABLE documents AS SELECT d, pg_temp.around(v, 0.2) AS v
		FROM generate_series(0, n / 10 - 1) d JOIN topics ON t = d % (n / 250);
	EXECUTE format($q$ CREATE TABLE items AS
		SELECT i AS id, (random() * 1e9)::int AS r, pg_temp.around(v, 0.1)::real[]::vector(%s) AS v
		FROM generate_series(1, %s) i JOIN documents ON d = i %% %s $q$, dim, n, n / 10);
	CREATE TABLE queries AS SELECT d AS id, pg_temp.around(v, 0.1)::real[]::vector AS v
		FROM documents ORDER BY random() LIMIT queries;
	CREATE TABLE parts (LIKE items) PARTITION BY HASH (id);
	FOR p IN 0 .. 3 LOOP
		EXECUTE format('CREATE TABLE parts_%s PARTITION OF parts
			FOR VALUES WITH (MODULUS 4, REMAINDER %1$s)', p);
	END LOOP;
	INSERT INTO parts SELECT * FROM items;
	CREATE INDEX ON parts USING gpugraph (v vector_l2_ops);
	ANALYZE items, parts, queries;
END $$;

-- recall of `most` rows of which one in `share` passes, and distances of the last scan, on average
CREATE OR REPLACE FUNCTION pg_temp.recall(rel text, most int, share int, OUT recall numeric,
	OUT distances numeric) LANGUAGE plpgsql AS $$
DECLARE
	q record;
	answer text := format('SELECT array_agg(d) FROM (SELECT d FROM (SELECT v <-> $1 AS d FROM items
		WHERE r %% %s = 0 OFFSET 0) a ORDER BY d LIMIT %s) s', share, most);
	search text := format('SELECT array_agg(d) FROM (SELECT v <-> $1 AS d FROM %I
		%s ORDER BY v <-> $1 LIMIT %s) s', rel,
		CASE share WHEN 1 THEN '' ELSE format('WHERE r %% %s = 0', share) END, most);
	exact float8[];
	found float8[];
BEGIN
	recall := 0;
	distances := 0;
	FOR q IN SELECT v FROM queries LOOP
		EXECUTE answer INTO exact USING q.v;
		EXECUTE search INTO found USING q.v;
		recall := recall + (SELECT count(*) FROM unnest(found) d
			WHERE d <= exact[cardinality(exact)] * (1 + 1e-6)) / cardinality(exact)::numeric;
		distances := distances + (SELECT s.distances FROM gpugraph_last_scan() s);
	END LOOP;
	recall := round(recall / (SELECT count(*) FROM queries), 4);
	distances := round(distances / (SELECT count(*) FROM queries));
END $$;

CREATE TEMP TABLE figures (what text, share int, most int, seed int, recall numeric,
	distances numeric);
CREATE OR REPLACE PROCEDURE pg_temp.measure(what text, rel text, seed int)
LANGUAGE sql AS $$
	INSERT INTO figures SELECT what, share, most, seed, (m).recall, (m).distances
		FROM (SELECT share, most, pg_temp.recall(rel, most, share) AS m
			FROM (VALUES (1, 10), (1, 100), (1, 300), (1, 1000), (1, 2000), (2, 10), (2, 100),
				(10, 10), (10, 100), (100, 10), (100, 100)) c (share, most)) s
$$;

SET enable_seqscan = off;
SET enable_sort = off;
SELECT format('CALL pg_temp.make_set(%s, %s, %s, %s)', :n, :dim, :queries, s),
	'CREATE INDEX plain ON items USING gpugraph (v vector_l2_ops)',
	format($$CALL pg_temp.measure('plain', 'items', %s)$$, s),
	'DROP INDEX plain',
	'CREATE INDEX int4 ON items USING gpugraph (v vector_l2_ops) WITH (storage = int4)',
	format($$CALL pg_temp.measure('int4', 'items', %s)$$, s),
	format($$CALL pg_temp.measure('partitions', 'parts', %s)$$, s)
FROM generate_series(1, :seeds) s \gexec
SELECT what, share, most AS "LIMIT", round(avg(recall), 4) AS recall,
	round(avg(distances)) AS distances
FROM figures GROUP BY what, share, most ORDER BY what DESC, share, most;
DROP TABLE items, parts, queries;
