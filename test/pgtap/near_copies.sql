-- Groups of some near copies, each far from all others: a row's own vector finds it, by a short
-- list, too.  By the graphs that the CPU builds.
\ir include/helpers.psql
SELECT * FROM no_plan();
SET gpugraph.engine = cpu;
SET enable_seqscan = off;
SET gpugraph.itopk_size = 16;

-- groups of so many rows of so many dimensions
CREATE FUNCTION make_groups(groups int, rows int, dim int) RETURNS void
	LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE items (id serial, val vector(%s), half halfvec(%s))', dim, dim);
	INSERT INTO items (val) SELECT (SELECT array_agg(m + (random() - 0.5) * 0.01)
			FROM unnest(g.middle) m WHERE c > 0)::vector
		FROM (SELECT (SELECT array_agg(random()) FROM generate_series(1, dim) WHERE i > 0) AS middle
			FROM generate_series(1, groups) i) g, generate_series(1, rows) c;
	UPDATE items SET half = val::halfvec;
	ANALYZE items;
END $$;

-- of 1,000 rows those that are not the nearest to themselves
CREATE FUNCTION lost(col text, operator text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	lost bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM (SELECT id, %1$I AS query FROM items
		ORDER BY hashint4(id) LIMIT 1000) s WHERE id IS DISTINCT FROM
			(SELECT id FROM items ORDER BY %1$I %2$s query LIMIT 1)', col, operator) INTO lost;
	RETURN lost;
END $$;

CREATE FUNCTION try_index(col text, opclass text, operator text, what text) RETURNS SETOF text
	LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE INDEX built ON items USING gpugraph (%I %s)', col, opclass);
	RETURN NEXT cmp_ok(lost(col, operator), '<=', 3::bigint, what || ', ' || opclass);
	DROP INDEX built;
END $$;

SELECT setseed(0.4);
SELECT make_groups(1500, 8, 24);
SELECT try_index('val', 'vector_l2_ops', '<->', '8 in 24 dimensions');
SELECT try_index('val', 'vector_cosine_ops', '<=>', '8 in 24 dimensions');
SELECT try_index('val', 'vector_l1_ops', '<+>', '8 in 24 dimensions');
SELECT try_index('half', 'halfvec_l2_ops', '<->', '8 in 24 dimensions');
DROP TABLE items;
SELECT make_groups(1500, 6, 64);
SELECT try_index('val', 'vector_l2_ops', '<->', '6 in 64 dimensions');

SELECT * FROM finish();
