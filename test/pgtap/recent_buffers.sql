-- What a backend remembers of the indexes that it searched: all of them share one table
\ir include/helpers.psql
SELECT * FROM no_plan();

CREATE TABLE items (id int, val vector(2000)) PARTITION BY RANGE (id);
DO $$
BEGIN
	FOR i IN 0 .. 29 LOOP
		EXECUTE format('CREATE TABLE items_%s PARTITION OF items FOR VALUES FROM (%s) TO (%s)',
			i, i * 300, i * 300 + 300);
	END LOOP;
END $$;
CREATE FUNCTION val_of(id int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_fill((id * 7 % 9001)::real, ARRAY[2000])::vector';
INSERT INTO items SELECT i, val_of(i) FROM generate_series(0, 8999) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 4, intermediate_graph_degree = 8);
SET enable_seqscan = off;
SET enable_sort = off;
SET gpugraph.itopk_size = 4;
-- a GPU's answers need few pages of the index
SET gpugraph.engine = cpu;

-- of relcache entries of these indexes
CREATE FUNCTION of_indexes() RETURNS bigint LANGUAGE sql AS $$
	SELECT coalesce(sum(used_bytes), 0)::bigint FROM pg_backend_memory_contexts
	WHERE name = 'index info' AND ident LIKE 'items%'
$$;
-- ids of rows that a search for them does not find
CREATE FUNCTION missed(first int, last int, step int) RETURNS int[] LANGUAGE sql AS $$
	SELECT array_agg(q ORDER BY q) FROM generate_series(first, last, step) q
	WHERE q <> (SELECT id FROM items ORDER BY val <-> val_of(q) LIMIT 1)
$$;

-- relcache entries are there, nothing was searched
SELECT matches(plan_of('SELECT id FROM items ORDER BY val <-> val_of(1) LIMIT 1'), 'Index Scan',
	'the indexes are used');
SELECT of_indexes() AS before \gset
SELECT is(missed(0, 8999, 150), NULL, 'searches find their rows');
SELECT is(missed(0, 8999, 150), NULL, 'and find them again');
SELECT is(of_indexes() - :before, 0::bigint, 'indexes do not grow by being searched');

-- what is remembered of an index that is gone does no harm
TRUNCATE items_0;
INSERT INTO items SELECT i, val_of(i) FROM generate_series(100, 299) i;
REINDEX INDEX items_0_val_idx;
SELECT is(missed(100, 299, 20), NULL, 'after TRUNCATE and REINDEX');

SELECT * FROM finish();
