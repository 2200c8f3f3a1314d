-- Is the plan that is chosen for a filtered query the fastest one?  By rows, dimensions, the share
-- of rows that pass, and what indexes the filtered column has: none, a B-tree, or its place as a
-- filter column.  Prints the plan that the planner takes and the times of all.  To run it:
--
--	test/cluster start shared_buffers=4GB maintenance_work_mem=4GB max_wal_size=8GB
--	psql -X -v 'tables={1000,96},{1000,384},{100000,96}' -f test/bench/filter_plans.sql
--
-- "walk" is an index scan of gpugraph without conditions, "keys" one with the filter as its
-- condition, "bitmap" one that the B-tree's bitmap restricts, "btree" any other plan that reads the
-- B-tree, "table" a sequential scan.  Times are milliseconds on a processor, the least of several
-- runs, for LIMIT 10.  With -v clock=wall they are milliseconds by the clock, for a server whose
-- GPU answers, on a machine that does nothing else (test/gpu/run BUNDLE bench-plans).
\set QUIET on
\pset footer off
SET client_min_messages = warning;
SET jit = off;
SET max_parallel_workers_per_gather = 0;
\if :{?clock}
\else
\set clock processor
\endif
SET bench.clock = :'clock';
CREATE EXTENSION IF NOT EXISTS gpugraph CASCADE;
SELECT setseed(0.5) \g /dev/null

-- Rows around 40 centres, each with two of 500 deviations. The three columns have the same values,
-- spread evenly over 0 to 9,999.
CREATE OR REPLACE PROCEDURE make_table(rel text, n int, dim int) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('DROP TABLE IF EXISTS %I, parts', rel);
	EXECUTE format('CREATE TEMP TABLE parts AS SELECT part, array_agg((random() - 0.5)
		* CASE WHEN part < 40 THEN 1 ELSE 0.5 END)::vector AS v
		FROM generate_series(0, 539) part, generate_series(1, %s) GROUP BY part', dim);
	EXECUTE format('CREATE UNLOGGED TABLE %I (id int, plain int, indexed int, kept int,
		v vector(%s))', rel, dim);
	EXECUTE format('INSERT INTO %I SELECT i, x, x, x, a.v + b.v + c.v
		FROM (SELECT i, i * 7919::int8 %% 10000 AS x, i * 31 %% 40 AS centre,
		40 + (random() * 499)::int AS one, 40 + (random() * 499)::int AS other
		FROM generate_series(1, %s) i) s JOIN parts a ON a.part = centre
		JOIN parts b ON b.part = one JOIN parts c ON c.part = other ORDER BY i', rel, n);
	EXECUTE format('CREATE INDEX ON %I (indexed)', rel);
	EXECUTE format('CREATE INDEX ON %I USING gpugraph (v, kept)', rel);
	EXECUTE format('ANALYZE %I', rel);
END $$;

-- nanoseconds that this process was on a processor, so that other load does not count; the sleep
-- makes the kernel add them up; or those of the clock
CREATE OR REPLACE FUNCTION spent_ns() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('bench.clock') = 'wall' THEN
		RETURN extract(epoch FROM clock_timestamp()) * 1000000000;
	END IF;
	PERFORM pg_sleep(0.0001);
	RETURN split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::bigint;
END $$;

CREATE OR REPLACE FUNCTION turn(settings text, state text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config(s, state, true) FROM unnest(string_to_array(settings, ' ')) s;
END $$;

-- Which plan it is when the settings in without are off, and its processor time. A walk of a long
-- list makes any other plan look better, and is forgotten before the plan is run.
CREATE OR REPLACE FUNCTION run(sql text, without text, runs int, long_list boolean,
	OUT plan text, OUT ms numeric) LANGUAGE plpgsql AS $$
DECLARE
	answer json;
	began bigint;
	itopk text := current_setting('gpugraph.itopk_size');
BEGIN
	PERFORM turn(without, 'off');
	IF long_list THEN
		PERFORM set_config('gpugraph.itopk_size', '1024', true);
	END IF;
	EXECUTE 'PREPARE query AS ' || sql;
	EXECUTE 'EXPLAIN (FORMAT json) EXECUTE query' INTO answer;
	PERFORM set_config('gpugraph.itopk_size', itopk, true);
	PERFORM turn(without, 'on');
	plan := CASE WHEN answer::text ~ 'GpugraphBitmapScan' THEN 'bitmap'
		WHEN answer::text ~ '_v_kept_idx' THEN CASE WHEN answer::text ~ 'Index Cond' THEN 'keys'
		ELSE 'walk' END WHEN answer::text ~ '_indexed_idx' THEN 'btree' ELSE 'table' END;
	FOR i IN 0 .. runs LOOP
		began := spent_ns();
		EXECUTE 'EXECUTE query';
		CONTINUE WHEN i = 0;
		ms := round(least(ms, (spent_ns() - began) / 1e6), 3);
	END LOOP;
	DEALLOCATE query;
END $$;

CREATE OR REPLACE FUNCTION compare(sql text, column_ text, runs int, OUT chosen text,
	OUT walk numeric, OUT keys numeric, OUT bitmap numeric, OUT btree numeric, OUT "table" numeric,
	OUT ratio numeric) LANGUAGE plpgsql AS $$
DECLARE
	got record;
	ms numeric;
BEGIN
	chosen := (run(sql, '', 0, false)).plan;
	PERFORM set_config('gpugraph.disable', 'bitmap_filter', true);
	got := run(sql, 'enable_seqscan enable_bitmapscan enable_sort', runs, false);
	PERFORM set_config('gpugraph.disable', '', true);
	walk := CASE WHEN got.plan = 'walk' THEN got.ms END;
	keys := CASE WHEN got.plan = 'keys' THEN got.ms END;
	got := run(sql, 'enable_indexscan enable_bitmapscan', runs, false);
	"table" := CASE WHEN got.plan = 'table' THEN got.ms END;
	IF column_ = 'indexed' THEN
		got := run(sql, 'enable_indexscan enable_seqscan', runs, false);
		btree := CASE WHEN got.plan = 'btree' THEN got.ms END;
		got := run(sql, 'enable_seqscan enable_sort', runs, true);
		bitmap := CASE WHEN got.plan = 'bitmap' THEN got.ms END;
	END IF;
	ms := CASE chosen WHEN 'walk' THEN walk WHEN 'keys' THEN keys WHEN 'bitmap' THEN bitmap
		WHEN 'btree' THEN btree ELSE "table" END;
	ratio := round(ms / least(walk, keys, bitmap, btree, "table"), 1);
END $$;

DROP TABLE IF EXISTS result;
CREATE TABLE result (number serial, rel text, filter text, chosen text, walk numeric, keys numeric,
	bitmap numeric, btree numeric, "table" numeric, ratio numeric);
CREATE OR REPLACE PROCEDURE measure(n int, dim int) LANGUAGE plpgsql AS $$
DECLARE
	rel text := format('%s x %s', n, dim);
	query text;
	column_ text;
	most int;
	runs int := CASE WHEN n < 10000 THEN 10 ELSE 2 END;
BEGIN
	CALL make_table(rel, n, dim);
	COMMIT;						-- others see no index before
	PERFORM gpugraph_prewarm(quote_ident(rel || '_v_kept_idx')::regclass);
	EXECUTE format('SELECT quote_literal(v::text) FROM %I WHERE id = 7', rel) INTO query;
	FOREACH column_ IN ARRAY ARRAY['plain', 'indexed', 'kept'] LOOP
		FOREACH most IN ARRAY ARRAY[1, 10, 100, 1000, 5000] LOOP
			INSERT INTO result (rel, filter, chosen, walk, keys, bitmap, btree, "table", ratio)
				SELECT rel, format('%s %s%%', column_, trim_scale(most / 100.0)), c.*
				FROM compare(format('SELECT id FROM %I WHERE %s < %s ORDER BY v <-> %s LIMIT 10',
				rel, column_, most, query), column_, runs) c;
		END LOOP;
	END LOOP;
END $$;
SELECT format('CALL measure(%s, %s)', t[1], t[2])
	FROM (SELECT string_to_array(m[1], ',') AS t
	FROM regexp_matches(:'tables', '{(\d+,\d+)}', 'g') m) s \gexec
SELECT rel, count(*) AS queries, count(*) FILTER (WHERE chosen = 'walk') AS walk,
	count(*) FILTER (WHERE chosen = 'keys') AS keys,
	count(*) FILTER (WHERE chosen = 'bitmap') AS bitmap,
	count(*) FILTER (WHERE chosen = 'btree') AS btree,
	count(*) FILTER (WHERE chosen = 'table') AS "table",
	count(*) FILTER (WHERE ratio > 1.5) AS "over 1.5", max(ratio) AS worst
	FROM result GROUP BY rel ORDER BY min(number);
SELECT rel, filter, chosen, walk, keys, bitmap, btree, "table", ratio FROM result ORDER BY number;
SELECT index, state, queries_gpu, queries_cpu FROM gpugraph_stat_index;
