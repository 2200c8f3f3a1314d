-- When the planner takes the index: for ORDER BY distance LIMIT on tables worth it, and never for
-- anything else
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 10000, 16, 30);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
CREATE INDEX items_cat_idx ON items (cat);
ANALYZE items;
-- vectors stored out of line, as those of 768 dimensions are
CREATE TABLE wide (id int PRIMARY KEY, cat int, val vector(768));
INSERT INTO wide SELECT i, i % 50,
	(SELECT array_agg(((i * 7919 + d * 104729) % 1009)::real)
	FROM generate_series(1, 768) d)::vector
	FROM generate_series(1, 4000) i;
CREATE INDEX wide_idx ON wide USING gpugraph (val vector_cosine_ops)
	WITH (graph_degree = 16, intermediate_graph_degree = 32);
VACUUM ANALYZE wide;
SELECT quote_literal(val::text) AS q FROM items WHERE id = 1 \gset
SELECT quote_literal(val::text) AS w FROM wide WHERE id = 1 \gset

CREATE FUNCTION uses(sql text, index text, what text) RETURNS text LANGUAGE sql
	AS $$ SELECT matches(plan_of(sql), 'Index Scan using ' || index, what) $$;
CREATE FUNCTION uses_not(sql text, index text, what text) RETURNS text LANGUAGE sql
	AS $$ SELECT doesnt_match(plan_of(sql), index, what) $$;

SELECT uses(format('SELECT id FROM items ORDER BY val <-> %L LIMIT 10', :q), 'items_idx',
	'ORDER BY LIMIT');
SELECT uses(format('SELECT id FROM items ORDER BY val <-> %L LIMIT 1', :q), 'items_idx', 'LIMIT 1');
SELECT uses(format('SELECT id FROM items ORDER BY %L <-> val LIMIT 10', :q), 'items_idx',
	'the operator commuted');
SELECT uses(format('SELECT id FROM items ORDER BY val <-> %L LIMIT 10 OFFSET 20', :q), 'items_idx',
	'OFFSET');
SELECT uses(format('SELECT id, val <-> %1$L AS d FROM items ORDER BY d LIMIT 10', :q), 'items_idx',
	'the distance as an output column');
SELECT uses(format('SELECT * FROM (SELECT id, val <-> %1$L AS d FROM items ORDER BY d LIMIT 10) s
	WHERE d < 100', :q), 'items_idx', 'in a subquery');
SELECT uses('SELECT id FROM items ORDER BY val <-> (SELECT val FROM items WHERE id = 5) LIMIT 10',
	'items_idx', 'a query from a subquery');
SELECT uses(format('SELECT id FROM wide ORDER BY val <=> %L LIMIT 10', :w), 'wide_idx',
	'vectors out of line');
SELECT uses(format('SELECT id FROM items WHERE cat <> 3 ORDER BY val <-> %L LIMIT 10', :q),
	'items_idx', 'a filter that keeps most rows');
SELECT uses('SELECT q.id, n.id FROM (SELECT * FROM items WHERE id < 4) q,
	LATERAL (SELECT id FROM items i ORDER BY i.val <-> q.val LIMIT 3) n',
	'items_idx', 'the inner side of a LATERAL join');
SELECT uses(format('SELECT i.id, j.cat FROM items i JOIN wide j USING (id)
	ORDER BY i.val <-> %L LIMIT 5', :q), 'items_idx', 'the outer side of a join');

SELECT uses_not('SELECT count(*) FROM items', 'items_idx', 'not without ORDER BY');
SELECT uses_not('SELECT id FROM items WHERE id = 5', 'items_idx', 'not for another condition');
SELECT uses_not('SELECT val FROM items', 'items_idx', 'not to read the vectors');
SELECT uses_not(format('SELECT id FROM items ORDER BY val <-> %L DESC LIMIT 10', :q), 'items_idx',
	'not backwards');
SELECT uses_not(format('SELECT id FROM items ORDER BY abs((val <-> %L) - 1) LIMIT 10', :q),
	'items_idx', 'not for another expression');
SELECT uses_not(format('SELECT id FROM items ORDER BY val <=> %L LIMIT 10', :q), 'items_idx',
	'not for another operator');
SELECT uses_not(format('SELECT id FROM items ORDER BY val <#> %L LIMIT 10', :q), 'items_idx',
	'not for the inner product');
SELECT uses(format('SELECT id FROM items ORDER BY val <-> %L, val <-> %L LIMIT 10', :q,
	'[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]'),
	'items_idx', 'of two distances, for the first');
SELECT uses(format('SELECT id FROM items WHERE val <-> %L < 1', :q), 'items_idx',
	'for a distance as condition');
SELECT uses_not('SELECT id FROM items WHERE val = (SELECT val FROM items WHERE id = 5)',
	'items_idx', 'not for equality');
SELECT uses_not('SELECT id FROM items WHERE val IS NULL', 'items_idx', 'not for IS NULL');
SELECT uses_not(format('SELECT id FROM items WHERE id = 77 ORDER BY val <-> %L LIMIT 10', :q),
	'items_idx', 'not where another index leaves one row');
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT uses_not('SELECT count(*) FROM items', 'items_idx',
	'not without ORDER BY, seqscan disabled');
SELECT uses_not('SELECT cat, count(*) FROM items GROUP BY cat', 'items_idx',
	'not to group, seqscan disabled');
SELECT uses_not('SELECT id FROM items WHERE val IS NOT NULL', 'items_idx',
	'not for IS NOT NULL, seqscan disabled');
SELECT uses(format('SELECT id FROM items ORDER BY val <-> %L', :q), 'items_idx',
	'all rows, when there is no other way');
SELECT uses(format('SELECT id FROM items WHERE val IS NOT NULL ORDER BY val <-> %L LIMIT 5', :q),
	'items_idx', 'IS NOT NULL as a filter');
RESET enable_seqscan;
RESET enable_bitmapscan;

-- prepared statements
PREPARE nearest(vector) AS SELECT id FROM items ORDER BY val <-> $1 LIMIT 10;
SELECT uses('EXECUTE nearest(' || quote_literal(:q) || ')', 'items_idx', 'prepared, custom plan');
SET plan_cache_mode = force_generic_plan;
SELECT uses('EXECUTE nearest(' || quote_literal(:q) || ')', 'items_idx', 'prepared, generic plan');
RESET plan_cache_mode;

-- partial and expression indexes
CREATE INDEX part_idx ON items USING gpugraph (val vector_l1_ops) WHERE cat = 3;
CREATE INDEX half_idx ON items USING gpugraph ((val::halfvec(16)) halfvec_ip_ops);
SELECT uses(format('SELECT id FROM items WHERE cat = 3 ORDER BY val <+> %L LIMIT 5', :q),
	'part_idx', 'a partial index, under its predicate');
SELECT uses_not(format('SELECT id FROM items WHERE cat = 4 ORDER BY val <+> %L LIMIT 5', :q),
	'part_idx', 'a partial index, under no other');
SELECT uses(format('SELECT id FROM items ORDER BY val::halfvec(16) <#> %L LIMIT 5', :q), 'half_idx',
	'an index of an expression');

-- a small table is sorted
CREATE TABLE small AS SELECT id, val FROM items LIMIT 20;
CREATE INDEX small_idx ON small USING gpugraph (val vector_l2_ops);
ANALYZE small;
SELECT uses_not(format('SELECT id FROM small ORDER BY val <-> %L LIMIT 10', :q), 'small_idx',
	'a small table is sorted');

-- from version 18 on EXPLAIN ANALYZE tells how often an index was searched
CREATE FUNCTION searches(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) ' || sql LOOP
		IF line ~ 'Index Searches' THEN
			RETURN trim(line);
		END IF;
	END LOOP;
	RETURN 'not told';
END $$;
SELECT is(searches(format('SELECT id FROM items ORDER BY val <-> %L LIMIT 10', :q)),
	CASE WHEN current_setting('server_version_num')::int >= 180000 THEN 'Index Searches: 1'
	ELSE 'not told' END, 'searches are counted');

-- and how the scan was done, summed over all of a node's scans
CREATE FUNCTION told(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	lines text[] := '{}';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) ' || sql LOOP
		IF line ~ ('^ *(Engine|CPU Reason|Search Procedure|(Exact )?Lists|Widenings|' ||
			'Filter Strategy|Matches): ') THEN
			lines := lines || trim(line);
		END IF;
	END LOOP;
	RETURN array_to_string(lines, '; ');
END $$;
CREATE FUNCTION is_told(sql text, wanted text, what text) RETURNS text LANGUAGE sql AS $$
	SELECT is(regexp_replace(told(sql), 'CPU Reason: [^;]+', 'CPU Reason'),
		CASE WHEN current_setting('server_version_num')::int >= 180000 THEN wanted ELSE '' END,
		what) $$;
SET gpugraph.engine = cpu;
SET enable_seqscan = off;
CREATE FUNCTION plan_json(sql text) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, FORMAT JSON) ' || sql INTO plan;
	RETURN plan;
END $$;
SELECT is_told(format('SELECT id FROM items ORDER BY val <-> %L LIMIT 10', :q),
	'Engine: cpu; CPU Reason; Search Procedure: best_first; Lists: 1',
	'EXPLAIN ANALYZE tells who answered');
SELECT is_told(format('SELECT id FROM items WHERE id %% 8 < 1
	ORDER BY val <-> %L LIMIT 40', :q),
	'Engine: cpu; CPU Reason; Lists: 1; Exact Lists: 1; Widenings: 2',
	'and how often a list was made longer');
SELECT is_told('SELECT n.id FROM items q, LATERAL (SELECT id FROM items i ORDER BY i.val <-> q.val
	LIMIT 5) n WHERE q.id <= 3',
	'Engine: cpu; CPU Reason; Search Procedure: best_first; Lists: 3', 'of all scans of a node');
SELECT is_told('SELECT id FROM items WHERE id = 5', '', 'and nothing of other indexes');
CREATE INDEX items_filter_idx ON items USING gpugraph (val vector_l2_ops, big);
SELECT is_told(format('SELECT id FROM items WHERE big < 5 ORDER BY val <-> %L LIMIT 10', :q),
	'Engine: cpu; CPU Reason; Lists: 1; Exact Lists: 1; Filter Strategy: exact; Matches: 100',
	'and how a filter was applied');
DROP INDEX items_filter_idx;
SELECT is(EXISTS (SELECT FROM plan_json(format('SELECT id FROM items ORDER BY val <-> %L LIMIT 10',
	:q)) p WHERE p::text ~ '"Engine": "cpu"'),
	current_setting('server_version_num')::int >= 180000, 'as properties in JSON');
RESET enable_seqscan;
RESET gpugraph.engine;

-- parallel plans return the same
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
SELECT array_agg(id) AS ids FROM (SELECT id FROM items ORDER BY val <-> :q LIMIT 10) s \gset
-- its name before and since version 16
SELECT set_config(name, 'on', false) FROM pg_settings
	WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \g /dev/null
SELECT is((SELECT array_agg(id) FROM (SELECT id FROM items ORDER BY val <-> :q LIMIT 10) s),
	:'ids'::int[], 'in a parallel worker');

SELECT * FROM finish();
