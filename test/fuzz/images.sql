-- What the targets change: small indexes of all forms (image.c), and those whose columns have keys
-- (filter_keys.c).  Unlogged tables write no WAL.
SET gpugraph.engine = cpu;
CREATE TYPE mood AS ENUM ('label_0', 'label_1', 'label_2');
CREATE UNLOGGED TABLE source AS
	SELECT i AS id, i % 7 AS cat, CASE WHEN i % 5 > 0 THEN ('label_' || i % 3)::mood END AS tag,
		(SELECT array_agg(sin(i * 7 + d * d) + i % 9) FROM generate_series(1, 6) d)::vector(6)
			AS val
	FROM generate_series(1, 240) i;
CREATE FUNCTION like_source(name text, type text DEFAULT 'vector(6)') RETURNS void
	LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE UNLOGGED TABLE %I AS SELECT id, cat, tag, val::%s FROM source', name,
		type);
END $$;

-- segments, copies, a delta and free blocks
SELECT like_source('image_1');
INSERT INTO image_1 SELECT id + 1000, cat, tag, val FROM source WHERE id % 4 = 0;
CREATE INDEX image_1_idx ON image_1 USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, intermediate_graph_degree = 8, segment_rows = 100);
INSERT INTO image_1 SELECT id + 2000, cat, tag, val FROM source WHERE id < 100;
DELETE FROM image_1 WHERE id BETWEEN 2000 AND 2050 OR id % 11 = 0;
VACUUM image_1;
-- codes beside vectors, filter columns, learned edges
SELECT like_source('image_2');
CREATE INDEX image_2_idx ON image_2 USING gpugraph (val vector_cosine_ops, cat, tag)
	WITH (graph_degree = 8, intermediate_graph_degree = 8, storage = 'float32+int4');
SELECT gpugraph_learn('image_2_idx', (SELECT array_agg(val) FROM source WHERE id < 40), 4);
INSERT INTO image_2 SELECT id + 2000, cat, tag, val FROM source WHERE id < 60;
-- codes alone, with a mean
SELECT like_source('image_3');
INSERT INTO image_3 SELECT id + s * 1000, cat, tag, val + array_fill(s, '{6}')::vector
	FROM source, generate_series(1, 4) s;
CREATE INDEX image_3_idx ON image_3 USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, intermediate_graph_degree = 8, storage = 'int8');
-- halves, inner product; a merge has pieces of several segments
SELECT like_source('image_4', 'halfvec(6)');
CREATE INDEX image_4_idx ON image_4 USING gpugraph (val halfvec_ip_ops)
	WITH (graph_degree = 8, intermediate_graph_degree = 8, seal_rows = 100);
INSERT INTO image_4 SELECT id + 3000, cat, tag, val FROM source;
SELECT gpugraph_merge('image_4_idx');
-- without rows
SELECT like_source('image_5');
TRUNCATE image_5;
CREATE INDEX image_5_idx ON image_5 USING gpugraph (val vector_l1_ops);
-- of format 2, as run makes it of this
SELECT like_source('image_6');
CREATE INDEX image_6_idx ON image_6 USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, intermediate_graph_degree = 8);
INSERT INTO image_6 SELECT id + 2000, cat, tag, val FROM source WHERE id < 60;
-- long rows: more extents than a metapage has room for, as run makes it
CREATE UNLOGGED TABLE image_7 AS SELECT i AS id, i % 7 AS cat, NULL::mood AS tag,
	(SELECT array_agg(sin(i * 13 + d * d)) FROM generate_series(1, 1900) d)::vector(1900) AS val
	FROM generate_series(1, 420) i;
CREATE INDEX image_7_idx ON image_7 USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, intermediate_graph_degree = 8);

CREATE UNLOGGED TABLE keyed (val vector(2), i2 int2, i4 int4, i8 int8, f4 float4, f8 float8,
	d date, ts timestamp, tz timestamptz, u uuid, e mood, t text, b bool, v varchar,
	a2 int2[], a4 int4[], a8 int8[], at text[]);
CREATE INDEX keyed_1_idx ON keyed USING gpugraph (val, i2, i4, i8, f4, f8, d, ts, tz);
CREATE INDEX keyed_2_idx ON keyed USING gpugraph (val, u, e, t, b, i4, at);
CREATE INDEX keyed_3_idx ON keyed USING gpugraph (val, a2, a4, a8, at, e, v);

CHECKPOINT;
