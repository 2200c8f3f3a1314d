-- Codes are centred: rows far from the origin, beside their distances from each other, are found as
-- well as at the origin
\ir include/helpers.psql
SELECT * FROM no_plan();

CREATE FUNCTION normal() RETURNS float8 LANGUAGE sql VOLATILE AS
	'SELECT sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random())';
-- Rows of make(rows, offset): the same ones whatever the offset, 40 queries like them
CREATE TABLE source AS SELECT id, array_agg(normal() ORDER BY i)::vector AS val
	FROM generate_series(1, 3040) id, generate_series(1, 8) i GROUP BY id;
CREATE TABLE cube AS SELECT id, array_agg(random() ORDER BY i)::vector AS val
	FROM generate_series(1, 3040) id, generate_series(1, 3) i GROUP BY id;
CREATE FUNCTION make(rows text, away float8) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	DROP TABLE IF EXISTS items, queries;
	EXECUTE format('CREATE TABLE items AS SELECT id, val + array_fill(%s, ARRAY[vector_dims(val)])
		::vector AS val FROM %I ORDER BY id', away, rows);
	CREATE TABLE queries AS SELECT id AS q, val FROM items WHERE id > 3000;
	DELETE FROM items WHERE id > 3000;
	EXECUTE format('ALTER TABLE items ALTER val TYPE vector(%s)',
		(SELECT vector_dims(val) FROM items LIMIT 1));
END $$;
CREATE FUNCTION make_index(opclass text, options text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	DROP INDEX IF EXISTS items_idx;
	EXECUTE format('CREATE INDEX items_idx ON items USING gpugraph (val %s) WITH (%s)', opclass,
		options);
END $$;
CREATE FUNCTION recall_of(rows text, away float8, opclass text, op text, options text)
	RETURNS numeric LANGUAGE plpgsql AS $$
BEGIN
	PERFORM make(rows, away);
	PERFORM make_index(opclass, options);
	PERFORM gpugraph_check('items_idx', true);
	RETURN recall('items', op);
END $$;

-- ---- rows far out, by all metrics
SET gpugraph.itopk_size = 64;
SELECT cmp_ok(recall_of(rows, 1000, 'vector_l2_ops', '<->', 'storage = int8'), '>=', 0.95,
	format('%s + 1000, int8', rows)) FROM unnest('{cube, source}'::text[]) rows;
SELECT cmp_ok(abs(recall_of(rows, 1000, 'vector_l2_ops', '<->', options) -
	recall_of(rows, 0, 'vector_l2_ops', '<->', options)), '<=', 0.01,
	format('%s, %s: as at the origin', rows, options))
	FROM unnest('{cube, source}'::text[]) rows,
		unnest(ARRAY['storage = int4', 'storage = "float32+int4"']) options;
SELECT cmp_ok(recall_of('source', away, opclass, op, options), '>=', 0.95,
	format('%s, %s', opclass, options))
	FROM (VALUES ('vector_l1_ops', '<+>', 1000), ('vector_ip_ops', '<#>', 1000),
		('vector_cosine_ops', '<=>', 20)) m(opclass, op, away),
		unnest(ARRAY['storage = int8', 'storage = "float32+int8"']) options;
DROP INDEX items_idx;
ALTER TABLE items ALTER val TYPE halfvec(8);
SELECT make_index('halfvec_cosine_ops', 'storage = int8');
SELECT cmp_ok(recall('items', '<=>', 10, 'true', 'halfvec'), '>=', 0.95, 'halfvec, cosine');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'halfvec: codes are those of rows');

-- ---- the mean is taken once: by a build of several segments, or by the first seal
SELECT make('source', 1000);
SELECT make_index('vector_l2_ops', 'storage = int8, segment_rows = 1200');
SELECT is((SELECT segments FROM gpugraph_index_info('items_idx')), 3, 'three segments');
SELECT cmp_ok(recall('items', '<->'), '>=', 0.95, 'of which each has the mean');
SELECT gpugraph_merge('items_idx');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'merged: sound');
SELECT cmp_ok(recall('items', '<->'), '>=', 0.95, 'merged');
CREATE FUNCTION sealed(options text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM make('source', 1000);
	CREATE TABLE later AS SELECT * FROM items;
	TRUNCATE items;
	PERFORM make_index('vector_l2_ops', 'seal_rows = 0, ' || options);
	INSERT INTO items SELECT * FROM later WHERE id <= 2000;
	PERFORM gpugraph_merge('items_idx');
	INSERT INTO items SELECT * FROM later WHERE id > 2000;
	PERFORM gpugraph_merge('items_idx');
	DROP TABLE later;
	RETURN NEXT cmp_ok(recall('items', '<->'), '>=', 0.95, options || ': a seal and a merge');
	RETURN NEXT lives_ok($sql$SELECT gpugraph_check('items_idx', true)$sql$, 'sound');
END $$;
SELECT sealed(options) FROM unnest(ARRAY['storage = int8', 'storage = "float32+int8"']) options;

-- ---- and anew by REINDEX
UPDATE items SET val = val - array_fill(1000, ARRAY[8])::vector;
UPDATE queries SET val = val - array_fill(1000, ARRAY[8])::vector;
VACUUM items;
SELECT gpugraph_merge('items_idx');
-- the CPU engine, which measures by these codes: a device measures so few rows by vectors
SET gpugraph.engine = cpu;
SELECT cmp_ok(recall('items', '<->'), '<', 0.9, 'rows far from the mean');
RESET gpugraph.engine;
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'sound');
REINDEX INDEX items_idx;
SELECT cmp_ok(recall('items', '<->'), '>=', 0.95, 'REINDEX takes another mean');

-- ---- rows that drift by ten times their standard deviation
SELECT make('source', 1000);
SELECT make_index('vector_l2_ops', 'storage = int8');
UPDATE items SET val = val + array_fill(10, ARRAY[8])::vector;
UPDATE queries SET val = val + array_fill(10, ARRAY[8])::vector;
VACUUM items;
SELECT gpugraph_merge('items_idx');
SELECT cmp_ok(recall('items', '<->'), '>=', 0.95, 'rows that drift');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'sound');

-- ---- an index that began with few rows has no mean before REINDEX
SELECT make('source', 1000);
CREATE TABLE later AS SELECT * FROM items;
TRUNCATE items;
INSERT INTO items SELECT * FROM later WHERE id <= 999;
SELECT make_index('vector_l2_ops', 'storage = int8, seal_rows = 0');
INSERT INTO items SELECT * FROM later WHERE id > 999;
SELECT gpugraph_merge('items_idx');
SELECT cmp_ok(recall('items', '<->'), '<', 0.9, 'without a mean');
SELECT lives_ok($$SELECT gpugraph_check('items_idx', true)$$, 'sound');
REINDEX INDEX items_idx;
SELECT cmp_ok(recall('items', '<->'), '>=', 0.95, 'REINDEX takes one');
SELECT * FROM finish();
