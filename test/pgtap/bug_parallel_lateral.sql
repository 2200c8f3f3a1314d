-- The bug: a LATERAL query over partitions took scans of their indexes for parts of a Parallel
-- Append, whose workers do not have the outer row's vector.  They ended with a segmentation fault.
-- The fix: a scan that is ordered by what the outer row says is not for workers.
\ir include/helpers.psql
SELECT plan(1);

CREATE TABLE items (id bigint, part int, val vector(3)) PARTITION BY LIST (part);
CREATE TABLE items_0 PARTITION OF items FOR VALUES IN (0);
CREATE TABLE items_1 PARTITION OF items FOR VALUES IN (1);
INSERT INTO items SELECT i, i % 2, ARRAY[i + sin(i), i * i % 101, i % 7]::real[]
	FROM generate_series(1, 600) i;
CREATE INDEX ON items USING gpugraph (val vector_l2_ops);
ANALYZE items;
CREATE TABLE asked AS SELECT i AS q, ARRAY[i * 60 + 0.3, i, i % 7]::real[]::vector(3) AS val
	FROM generate_series(1, 5) i;

CREATE TABLE left_out AS SELECT 7 AS k;

CREATE VIEW lists AS SELECT q, array_agg(id) AS ids FROM (SELECT q, l.id
	FROM (SELECT * FROM asked OFFSET 0) a,
		LATERAL (SELECT id FROM items WHERE part NOT IN (SELECT k FROM left_out)
			ORDER BY items.val <-> a.val LIMIT 5) l) s GROUP BY q;
SET enable_indexscan = off;
CREATE TABLE wanted AS SELECT * FROM lists;
RESET enable_indexscan;

SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET enable_seqscan = off;
SET enable_sort = off;
SET gpugraph.disable = partition_search;
SET parallel_leader_participation = off;
CREATE TABLE found AS SELECT * FROM lists;
SELECT is((SELECT count(*) FROM found JOIN wanted USING (q, ids)), 5::bigint, 'all lists');

SELECT * FROM finish();
