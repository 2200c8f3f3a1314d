-- Partitions by centroid, as README makes them: only the partitions of the probes are asked, more
-- probes find more, all probes find what one table has, and rows move to their cells.
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 4000, 16, 300);
SELECT make_queries('items', 40);
CREATE TABLE pages (id int, cell int NOT NULL, embedding vector(16)) PARTITION BY LIST (cell);
CREATE TABLE cells (cell int PRIMARY KEY, centroid vector(16) NOT NULL);
INSERT INTO cells SELECT row_number() OVER (ORDER BY id), val FROM items WHERE id % 500 = 3;
CREATE FUNCTION nearest_cells(v vector, probes int) RETURNS SETOF int LANGUAGE sql STABLE
BEGIN ATOMIC
	SELECT cell FROM cells ORDER BY centroid <-> v LIMIT probes;
END;
CREATE PROCEDURE improve_cells() LANGUAGE sql AS $$
	UPDATE cells SET centroid = mean FROM (SELECT c, avg(val) AS mean
		FROM items, nearest_cells(val, 1) c GROUP BY c) means WHERE cell = c
$$;
CALL improve_cells();
SELECT format('CREATE TABLE pages_%s PARTITION OF pages FOR VALUES IN (%1$s)', cell)
	FROM cells ORDER BY cell \gexec
INSERT INTO pages SELECT id, nearest_cells(val, 1), val FROM items;
CREATE INDEX ON pages USING gpugraph (embedding);
ANALYZE pages;
CREATE FUNCTION nearest_pages(q vector, k int, probes int)
RETURNS TABLE (id int, distance float8) LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN QUERY EXECUTE (SELECT 'SELECT * FROM (' || string_agg(format('(SELECT id,
		embedding <-> $1 AS d FROM pages_%s ORDER BY embedding <-> $1 LIMIT $2)', c), ' UNION ALL ')
		|| ' OFFSET 0) s ORDER BY d LIMIT $2' FROM nearest_cells(q, probes) c) USING q, k;
END $$;

-- how many of the ten nearest rows of each query so many probes find
CREATE FUNCTION found(probes int) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM queries q,
		LATERAL (SELECT id FROM pages ORDER BY embedding <-> q.val LIMIT 10) t
		WHERE t.id IN (SELECT n.id FROM nearest_pages(q.val, 10, probes) n)
$$;
SELECT use_index(false);
CREATE TEMP TABLE seen AS SELECT probes, found(probes) AS rows FROM generate_series(1, 8) probes;
SELECT is((SELECT rows FROM seen WHERE probes = 8), 400::bigint, 'all probes: the exact answers');
SELECT is((SELECT count(*) FROM seen a JOIN seen b ON b.probes = a.probes + 1
	WHERE b.rows < a.rows), 0::bigint, 'more probes find no less');
SELECT cmp_ok((SELECT rows FROM seen WHERE probes = 1), '>', 200::bigint, 'one probe finds most');
SELECT use_index(true);
SELECT cmp_ok(found(8), '>=', 398::bigint, 'by the indexes');
SELECT is((SELECT count(*)
	FROM queries q, LATERAL nearest_pages(q.val, 10, 2) n JOIN pages USING (id)
	WHERE cell NOT IN (SELECT nearest_cells(q.val, 2))), 0::bigint,
	'only the partitions of the probes are asked');

CALL improve_cells();
WITH moved AS (UPDATE pages SET cell = (SELECT nearest_cells(embedding, 1))
	WHERE cell <> (SELECT nearest_cells(embedding, 1)) RETURNING 1)
	SELECT cmp_ok(count(*), '>', 0::bigint, 'rows move when centroids have') FROM moved;
SELECT is((SELECT count(*) FROM pages WHERE cell <> (SELECT nearest_cells(embedding, 1))),
	0::bigint, 'to their cells');
SELECT cmp_ok(found(8), '>=', 398::bigint, 'where they are found');
SELECT is((SELECT count(*) FROM nearest_pages((SELECT val FROM queries LIMIT 1), 4000, 8)),
	4000::bigint, 'all of them');

SELECT * FROM finish();
