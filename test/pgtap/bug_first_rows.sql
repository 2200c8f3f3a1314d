-- The bug: of an index of more rows than were to be queries, and of twice as many at most,
-- gpugraph_recall() and gpugraph_calibrate() took the first ones alone, and knew nothing of rows
-- that came later.
-- The fix: the rows of so small an index are drawn from all of them.
\ir include/helpers.psql
SELECT * FROM no_plan();
SET gpugraph.engine = cpu;

-- The first rows are easy to search, as points of a line are, and those that come are not.
SELECT make_data('hard', 400, 24, 1);
CREATE TABLE items AS SELECT i AS id, (SELECT array_agg(i * .01 ORDER BY d)
	FROM generate_series(1, 24) d)::vector(24) AS val FROM generate_series(1000, 2999) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 4, intermediate_graph_degree = 8, seal_rows = 0);
CREATE FUNCTION shortest() RETURNS real LANGUAGE sql AS
	'SELECT recall FROM gpugraph_recall(''items_idx'', 10, 2000) WHERE itopk_size = 16';
SELECT cmp_ok(shortest(), '>', .995::real, 'the first rows are found');
INSERT INTO items SELECT id + 10000, val FROM hard;
SELECT gpugraph_merge('items_idx') \gset
SELECT cmp_ok(shortest(), '<', .99::real, 'rows that came later are queries as well');
SELECT * FROM finish();
