-- SQLSTATEs, messages and hints of what is refused
\ir include/helpers.psql
SELECT * FROM no_plan();

CREATE TABLE items (id int PRIMARY KEY, val vector(3), free vector);
INSERT INTO items SELECT i, ARRAY[i, 1, 2]::real[]::vector, '[1,2]' FROM generate_series(1, 100) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
SET enable_seqscan = off;

CREATE FUNCTION hint_of(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	hint text;
BEGIN
	EXECUTE sql;
	RETURN NULL;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RETURN hint;
END $$;

-- options
SELECT throws_ok('CREATE INDEX ON items USING gpugraph (val) WITH (graph_degree = 3)', '22023');
SELECT throws_ok('CREATE INDEX ON items USING gpugraph (val) WITH (graph_degree = 257)', '22023');
SELECT throws_ok('CREATE INDEX ON items USING gpugraph (val)
	WITH (intermediate_graph_degree = 513)', '22023');
SELECT throws_ok('CREATE INDEX ON items USING gpugraph (val) WITH (seed = -1)', '22023');
SELECT throws_ok('CREATE INDEX ON items USING gpugraph (val)
	WITH (graph_degree = 64, intermediate_graph_degree = 63)', '22023',
	'intermediate_graph_degree 63 is less than graph_degree 64');
SELECT isnt(hint_of('CREATE INDEX ON items USING gpugraph (val)
	WITH (graph_degree = 64, intermediate_graph_degree = 63)'), '', 'with a hint');
SELECT throws_ok('CREATE UNIQUE INDEX ON items USING gpugraph (val)', '0A000');
SELECT throws_ok('CREATE INDEX ON items USING gpugraph (val, free)', '0A000');
SELECT throws_ok('CREATE INDEX ON items USING gpugraph (val) INCLUDE (id)', '0A000');
SELECT throws_ok('CREATE INDEX ON items USING gpugraph (id)', '0A000');
SELECT throws_ok('CLUSTER items USING items_idx', '0A000');

-- settings
SELECT throws_ok('SET gpugraph.itopk_size = 0', '22023');
SELECT throws_ok('SET gpugraph.itopk_size = 1025', '22023');
SELECT throws_ok('SET gpugraph.max_scan_tuples = 0', '22023');
SELECT throws_ok('SET gpugraph.iterative_scan = on', '22023');
SELECT throws_ok('SET gpugraph.engine = fpga', '22023');
SELECT throws_ok('SET gpugraph.nothing = 1', '42602');

-- dimensions
SELECT throws_ok($$SELECT id FROM items ORDER BY val <-> '[1,2]' LIMIT 1$$, '22000',
	'different vector dimensions 3 and 2');
SELECT throws_ok($$INSERT INTO items VALUES (101, '[1,2]')$$, '22000',
	'expected 3 dimensions, not 2');
INSERT INTO items VALUES (101, NULL, '[1,2,3]');
SELECT throws_ok('CREATE INDEX ON items USING gpugraph (free vector_l2_ops)', '22000',
	'expected 2 dimensions, not 3');
CREATE INDEX free_idx ON items USING gpugraph (free vector_l2_ops) WHERE id < 50;
SELECT throws_ok($$INSERT INTO items VALUES (0, NULL, '[1,2,3]')$$, '22000',
	'expected 2 dimensions, not 3');
SELECT throws_ok($$SELECT id FROM items WHERE id < 50 ORDER BY free <-> '[1,2,3]' LIMIT 1$$,
	'22000', 'different vector dimensions 2 and 3');

-- a GPU that is not there (a machine that has one has nothing to refuse)
SET gpugraph.engine = cuda;
CREATE FUNCTION state_of(sql text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE sql;
	RETURN 'done';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SELECT ok(state_of('REINDEX INDEX items_idx') IN ('done', '55000'),
	'engine = cuda: CREATE INDEX works or says that there is no GPU');
SELECT ok(state_of($$SELECT id FROM items ORDER BY val <-> '[1,2,3]' LIMIT 1$$)
	IN ('done', '55000'), 'engine = cuda: so does a query');
SELECT ok(coalesce(hint_of('REINDEX INDEX items_idx') ~ 'gpugraph.engine', true),
	'engine = cuda: the hint names the setting');
RESET gpugraph.engine;
SELECT lives_ok($$SELECT id FROM items ORDER BY val <-> '[1,2,3]' LIMIT 1$$,
	'engine = auto goes on with the CPU');

-- functions
SELECT throws_ok($$SELECT gpugraph_check('items')$$, '42809', '"items" is not a gpugraph index');
SELECT throws_ok($$SELECT gpugraph_check('items_pkey')$$, '42809',
	'"items_pkey" is not a gpugraph index');
SELECT throws_ok($$SELECT * FROM gpugraph_index_info('items_pkey')$$, '42809',
	'"items_pkey" is not a gpugraph index');
SELECT is(hint_of($$SELECT gpugraph_check('items')$$), 'Name an index created with USING gpugraph.',
	'with a hint');
SELECT throws_ok($$SELECT gpugraph_check(1)$$, '42704');

SELECT * FROM finish();
