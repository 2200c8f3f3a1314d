-- NULL vectors are not indexed, as with pgvector's indexes: the one exception to "a LIMIT does not
-- come back short"
\ir include/helpers.psql
SELECT * FROM no_plan();

CREATE TABLE items AS
	SELECT i AS id, CASE WHEN i <= 50 THEN ARRAY[i, 0, 0]::vector(3) END AS val
	FROM generate_series(1, 100) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
INSERT INTO items VALUES (101, NULL), (102, '[51,0,0]');

CREATE FUNCTION count_of(filter text, rows int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM
		(SELECT id FROM items WHERE %s ORDER BY val <-> %L LIMIT %s) s',
		filter, '[0,0,0]', rows) INTO n;
	RETURN n;
END $$;

SET enable_indexscan = off;
SELECT is(count_of('true', 80), 80::bigint, 'without the index NULLs fill the LIMIT');
SELECT use_index(true);
SELECT matches(plan_of($$SELECT id FROM items ORDER BY val <-> '[0,0,0]' LIMIT 80$$),
	'Index Scan using items_idx', 'the index is used');
SELECT is(count_of('true', 80), 51::bigint, 'by the index there are no NULLs');
SELECT is(count_of('val IS NOT NULL', 80), 51::bigint, 'with IS NOT NULL that is all there is');
SELECT is(count_of('id > 20', 31), 31::bigint, 'of other rows a LIMIT does not come back short');

SELECT * FROM finish();
