-- Is the plan that is chosen the fastest one?  For tables of several sizes, filters and limits:
-- the plan that the planner takes, and the times of all, which settings force.  To run it:
--
--	test/cluster run psql -X -f $PWD/test/bench/plans.sql
--
-- "walk" is an index scan of gpugraph, "filter" any that reads the B-tree on the filter's column,
-- "table" a sequential scan.  Times are milliseconds on a processor, the less of two.
\set QUIET on
\pset footer off
SET client_min_messages = warning;
SET jit = off;
SET max_parallel_workers_per_gather = 0;
CREATE EXTENSION IF NOT EXISTS gpugraph CASCADE;

-- rows in 17 clusters; plain and indexed have the same values, spread evenly over 0 to 999
CREATE PROCEDURE make_table(rel text, n int, dim int) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE UNLOGGED TABLE %I (id int, plain int, indexed int, v vector(%s))',
				   rel, dim);
	EXECUTE format('INSERT INTO %I SELECT i, i * 7919::bigint %% 1000, i * 7919::bigint %% 1000, '
				   '(SELECT array_agg((random() + centre)::real) FROM generate_series(1, %s), '
				   '(SELECT (i * 31 %% 17) / 10.0 AS centre) c)::vector '
				   'FROM generate_series(1, %s) i', rel, dim, n);
	EXECUTE format('CREATE INDEX ON %I (indexed)', rel);
	EXECUTE format('CREATE INDEX ON %I USING gpugraph (v)', rel);
	EXECUTE format('ANALYZE %I', rel);
END $$;

-- nanoseconds that this process was on a processor, so that other load does not count; the sleep
-- makes the kernel add them up
CREATE FUNCTION cpu_ns() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_sleep(0.0001);
	RETURN split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::bigint;
END $$;

-- which of the three plans it is under the settings of the moment, and its processor time
CREATE FUNCTION run(sql text, runs int, OUT plan text, OUT ms numeric) LANGUAGE plpgsql
AS $$
DECLARE
	answer json;
	began bigint;
BEGIN
	EXECUTE 'PREPARE query AS ' || sql;
	EXECUTE 'EXPLAIN (FORMAT json) EXECUTE query' INTO answer;
	plan := CASE WHEN answer::text ~ '_v_idx' THEN 'walk'
		WHEN answer::text ~ '_indexed_idx' THEN 'filter' ELSE 'table' END;
	FOR i IN 0 .. runs LOOP
		began := cpu_ns();
		EXECUTE 'EXECUTE query';
		CONTINUE WHEN i = 0;
		ms := round(least(ms, (cpu_ns() - began) / 1e6), 3);
	END LOOP;
	DEALLOCATE query;
END $$;

CREATE FUNCTION compare(sql text, with_filter boolean, runs int,
	OUT chosen text, OUT walk numeric, OUT seq numeric, OUT filter numeric, OUT ratio numeric)
	LANGUAGE plpgsql AS $$
DECLARE
	got record;
	ms numeric;
BEGIN
	chosen := (run(sql, 0)).plan;
	PERFORM set_config(s, 'off', true)
		FROM unnest('{enable_seqscan,enable_bitmapscan,enable_sort}'::text[]) s;
	got := run(sql, runs);
	walk := CASE WHEN got.plan = 'walk' THEN got.ms END;
	PERFORM set_config(s, 'on', true) FROM unnest('{enable_seqscan,enable_sort}'::text[]) s;
	PERFORM set_config('enable_indexscan', 'off', true);
	got := run(sql, runs);
	seq := CASE WHEN got.plan = 'table' THEN got.ms END;
	IF with_filter THEN
		PERFORM set_config('enable_bitmapscan', 'on', true),
			set_config('enable_seqscan', 'off', true);
		got := run(sql, runs);
		filter := CASE WHEN got.plan = 'filter' THEN got.ms END;
	END IF;
	PERFORM set_config(s, 'on', true)
		FROM unnest('{enable_seqscan,enable_bitmapscan,enable_indexscan}'::text[]) s;
	ms := CASE chosen WHEN 'walk' THEN walk WHEN 'filter' THEN filter ELSE seq END;
	ratio := round(ms / least(walk, seq, filter), 1);
END $$;

CREATE TABLE result (number serial, rel text, itopk int, condition text, rows text, chosen text,
	walk numeric, "table" numeric, filter numeric, ratio numeric);
CREATE PROCEDURE measure(n int, dim int) LANGUAGE plpgsql AS $$
DECLARE
	rel text := format('%s x %s', n, dim);
	query text;
	itopk int;
	f text;
	k text;
BEGIN
	CALL make_table(rel, n, dim);
	EXECUTE format('SELECT quote_literal(v::text) FROM %I WHERE id = 7', rel) INTO query;
	FOREACH itopk IN ARRAY ARRAY[64, 800] LOOP
		PERFORM set_config('gpugraph.itopk_size', itopk::text, false);
		FOREACH f IN ARRAY ARRAY['true', 'plain < 500', 'plain < 100', 'indexed < 100',
			'plain < 20', 'indexed < 20', 'plain < 10', 'indexed < 10', 'plain < 1',
			'indexed < 1'] LOOP
			FOREACH k IN ARRAY ARRAY['10', '100', 'ALL'] LOOP
				CONTINUE WHEN k <> '10' AND (itopk = 800 OR f ~ '< 10$');
				CONTINUE WHEN k = 'ALL' AND f <> 'true';
				INSERT INTO result
					(rel, itopk, condition, rows, chosen, walk, "table", filter, ratio)
					SELECT rel, itopk, f, k, c.* FROM compare(
						format('SELECT id FROM %I WHERE %s ORDER BY v <-> %s LIMIT %s',
							   rel, f, query, k),
						f ~ '^indexed', 2) c;
			END LOOP;
		END LOOP;
	END LOOP;
END $$;

-- the order by distance alone, however far LIMIT goes
CREATE PROCEDURE measure_limits(n int, dim int) LANGUAGE plpgsql AS $$
DECLARE
	rel text := format('%s x %s, LIMIT', n, dim);
	query text;
	k int;
BEGIN
	CALL make_table(rel, n, dim);
	EXECUTE format('SELECT quote_literal(v::text) FROM %I WHERE id = 7', rel) INTO query;
	FOREACH k IN ARRAY ARRAY[10, 100, 500, 1000, 2000, 4000, 8000] LOOP
		INSERT INTO result (rel, itopk, condition, rows, chosen, walk, "table", filter, ratio)
			SELECT rel, 64, 'true', k, c.* FROM compare(
				format('SELECT id FROM %I ORDER BY v <-> %s LIMIT %s', rel, query, k), false, 2) c;
	END LOOP;
END $$;
CALL measure(1000, 3);
CALL measure(10000, 3);
CALL measure(60000, 3);
CALL measure(10000, 128);
CALL measure(60000, 128);
CALL measure(1000, 768);
CALL measure(20000, 768);
CALL measure(2000, 1536);
CALL measure(6000, 1536);
CALL measure(10000, 1536);
CALL measure_limits(40000, 64);
CALL measure_limits(10000, 784);
CALL measure_limits(1000000, 128);
SELECT rel, count(*) AS cases, count(*) FILTER (WHERE chosen = 'walk') AS walk,
	count(*) FILTER (WHERE chosen = 'filter') AS filter,
	count(*) FILTER (WHERE chosen = 'table') AS "table",
	count(*) FILTER (WHERE ratio > 1.5) AS "over 1.5", max(ratio) AS worst
	FROM result GROUP BY rel ORDER BY min(number);
SELECT * FROM result WHERE ratio > 1.5 ORDER BY number;
