-- gpugraph_knn_graph: the neighbors of every row against exact answers, as a stream
\ir include/helpers.psql
SELECT * FROM no_plan();

-- What is wrong with the graph of a table, against a sequential scan: 'ok' if nothing.
CREATE FUNCTION compare(rel text, op text, k int, algorithm text DEFAULT 'search')
	RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	wrong bigint;
	found numeric;
BEGIN
	DROP TABLE IF EXISTS graph, truth;
	EXECUTE format($q$
		CREATE TEMP TABLE graph AS
		SELECT g.tid, g.neighbor, g.distance, a.val %1$s b.val AS true_distance, n
			FROM gpugraph_knn_graph('%2$I_idx', %3$s, %4$L)
				WITH ORDINALITY g(tid, neighbor, distance, n)
			LEFT JOIN %2$I a ON a.ctid = g.tid LEFT JOIN %2$I b ON b.ctid = g.neighbor $q$,
		op, rel, k, algorithm);
	PERFORM use_index(false);
	EXECUTE format($q$
		CREATE TEMP TABLE truth AS
		SELECT a.ctid AS tid, t.* FROM %2$I a
			CROSS JOIN LATERAL (SELECT count(*), max(d) AS farthest
			FROM (SELECT a.val %1$s b.val AS d FROM %2$I b
			WHERE b.val IS NOT NULL AND b.ctid <> a.ctid ORDER BY 1 LIMIT %3$s) s) t
			WHERE a.val IS NOT NULL $q$, op, rel, k);
	PERFORM use_index(true);
	SELECT count(*) INTO wrong FROM graph WHERE tid = neighbor OR true_distance IS NULL
		OR abs(distance - true_distance) > 2e-6 * (1 + abs(true_distance));
	IF wrong > 0 THEN
		RETURN wrong || ' edges are wrong';
	END IF;
	SELECT count(*) INTO wrong
		FROM (SELECT tid, count(DISTINCT neighbor) FROM graph GROUP BY tid) g
			FULL JOIN truth t USING (tid) WHERE g.count IS DISTINCT FROM nullif(t.count, 0);
	IF wrong > 0 THEN
		RETURN wrong || ' rows have another number of neighbors';
	END IF;
	SELECT count(*) INTO wrong
		FROM (SELECT distance, lag(distance) OVER (PARTITION BY tid ORDER BY n) AS last
			FROM graph) s
		WHERE distance < last;
	IF wrong > 0 THEN
		RETURN wrong || ' edges are out of order';
	END IF;
	IF (SELECT count(*) FROM graph) <> (SELECT sum(count) FROM truth) THEN
		RETURN 'there are edges of no row';
	END IF;
	SELECT count(*) FILTER (WHERE true_distance <= farthest + 2e-6 * (1 + abs(farthest)))::numeric
		/ count(*) INTO found FROM graph JOIN truth USING (tid);
	RETURN CASE WHEN found >= 0.98 THEN 'ok' ELSE 'recall ' || found END;
END $$;

CREATE FUNCTION try_graph(type text, metric text, op text, options text) RETURNS SETOF text
	LANGUAGE plpgsql AS $$
DECLARE
	what text := concat_ws(' ', type, metric, options);
BEGIN
	EXECUTE format('CREATE TABLE items (id int, cat int, val %s(8)) WITH (fillfactor = 50)', type);
	INSERT INTO items SELECT id, 0, val FROM source WHERE id <= 700;
	-- up to 12 rows are equal
	INSERT INTO items SELECT id, 0, val FROM source, generate_series(1, id % 12) WHERE id <= 40;
	EXECUTE format('CREATE INDEX items_idx ON items USING gpugraph (val %s_%s_ops) %s', type,
		metric, options);
	INSERT INTO items SELECT id, 0, val FROM source WHERE id > 650;
	INSERT INTO items VALUES (0, 0, NULL);
	DELETE FROM items WHERE id % 5 = 1;
	UPDATE items SET cat = cat + 1 WHERE id % 3 = 0;
	RETURN NEXT is(compare('items', op, 1), 'ok', what || ': the nearest');
	RETURN NEXT is(compare('items', op, 7), 'ok', what || ': seven');
	IF metric <> 'ip' AND options = '' THEN
		RETURN NEXT is(compare('items', op, 7, 'gnnd'), 'ok', what || ': seven by GNND');
	END IF;
	PERFORM gpugraph_merge('items_idx');
	RETURN NEXT is(compare('items', op, 7), 'ok', what || ': seven after a merge');
	DROP TABLE items;
END $$;

SELECT make_data('source', 900, 8, 20);
SELECT try_graph(type, metric, op, options)
	FROM (VALUES (1, 'l2', '<->'), (2, 'ip', '<#>'), (3, 'cosine', '<=>'), (4, 'l1', '<+>'))
		m(i, metric, op)
	CROSS JOIN (VALUES ('vector', ''), ('halfvec', ''),
		('vector', 'WITH (storage = float16)')) t(type, options);

CREATE TABLE items AS SELECT id, val FROM source WHERE id <= 300;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
SELECT is(compare('items', '<->', 1000), 'ok', 'as many neighbors as there are rows');
SELECT throws_ok($$SELECT * FROM gpugraph_knn_graph('items_idx', 0)$$, '22023',
	'k must be positive, not 0');
SELECT throws_ok($$SELECT * FROM gpugraph_knn_graph('items', 3)$$, '42809');
CREATE TABLE none (val vector(8));
CREATE INDEX none_idx ON none USING gpugraph (val);
SELECT is_empty($$SELECT * FROM gpugraph_knn_graph('none_idx', 3)$$, 'an empty table');

-- in a select list it is a stream, which a cursor reads as far as it likes
SELECT is((SELECT count(*) FROM (SELECT gpugraph_knn_graph('items_idx', 3) LIMIT 5) s), 5::bigint,
	'the first rows of a stream');
SELECT results_eq($$SELECT (g).* FROM (SELECT gpugraph_knn_graph('items_idx', 3) AS g OFFSET 0) s$$,
	$$SELECT * FROM gpugraph_knn_graph('items_idx', 3)$$, 'both forms have the same rows');

-- by GNND: all of it, and too much of it
SELECT is(compare('items', '<->', 512, 'gnnd'), 'ok', 'GNND: more neighbors than there are rows');
SELECT results_eq($$SELECT (g).*
	FROM (SELECT gpugraph_knn_graph('items_idx', 3, 'gnnd') AS g OFFSET 0) s$$,
	$$SELECT * FROM gpugraph_knn_graph('items_idx', 3, algorithm => 'gnnd')$$,
	'GNND: both forms have the same rows');
SELECT is_empty($$SELECT * FROM gpugraph_knn_graph('none_idx', 3, 'gnnd')$$,
	'GNND: an empty table');
SELECT throws_ok($$SELECT * FROM gpugraph_knn_graph('items_idx', 3, 'nnd')$$, '22023',
	'there is no algorithm "nnd"');
SELECT throws_ok($$SELECT * FROM gpugraph_knn_graph('items_idx', 513, 'gnnd')$$, '22023',
	'k must be at most 512 for algorithm "gnnd", not 513');
CREATE INDEX ip_idx ON items USING gpugraph (val vector_ip_ops);
SELECT throws_ok($$SELECT * FROM gpugraph_knn_graph('ip_idx', 3, 'gnnd')$$, '0A000',
	'algorithm "gnnd" does not know inner products');
DROP INDEX ip_idx;
CREATE INDEX few_idx ON items USING gpugraph ((val + val) vector_l2_ops) WHERE id % 10 = 3;
SELECT results_eq($$SELECT count(*), count(*) FILTER (WHERE a.id % 10 = 3 AND b.id % 10 = 3 AND
		abs(distance - ((a.val + a.val) <-> (b.val + b.val))) < 1e-5)
	FROM gpugraph_knn_graph('few_idx', 3, 'gnnd') g
	JOIN items a ON a.ctid = g.tid JOIN items b ON b.ctid = g.neighbor$$,
	$$VALUES (90::bigint, 90::bigint)$$, 'GNND: an expression of the rows that meet a predicate');
DROP INDEX few_idx;
CREATE TABLE zeros (val vector(3));
INSERT INTO zeros SELECT array[i, i % 2, 0]::vector FROM generate_series(0, 4) i;
CREATE INDEX zeros_idx ON zeros USING gpugraph (val vector_cosine_ops);
SELECT is((SELECT count(*) FROM gpugraph_knn_graph('zeros_idx', 9, 'gnnd')), 4::bigint * 3,
	'GNND: under cosine a zero vector is no row');

-- so many rows that not all pairs are compared
SELECT make_data('many', 9000, 16, 30);
CREATE INDEX many_idx ON many USING gpugraph (val vector_l2_ops);
DELETE FROM many WHERE id % 7 = 0;
INSERT INTO many SELECT id + 10000, cat, big, val FROM many WHERE id % 50 = 1;
SET maintenance_work_mem = '1MB';
SELECT throws_ok($$SELECT * FROM gpugraph_knn_graph('many_idx', 3, 'gnnd')$$, '53400',
	'the lists of index "many_idx" do not fit into maintenance_work_mem');
RESET maintenance_work_mem;
CREATE TEMP TABLE graph_of_many AS SELECT * FROM gpugraph_knn_graph('many_idx', 10, 'gnnd');
SELECT results_eq($$SELECT count(*), count(DISTINCT tid) FROM graph_of_many$$,
	$$SELECT 10 * count(*), count(*) FROM many$$, 'GNND: ten of every row');
SELECT use_index(false);
SELECT cmp_ok((SELECT avg((g.distance <= t.farthest + 1e-5)::int)
	FROM (SELECT ctid AS tid, val FROM many WHERE id % 90 = 2) q
	CROSS JOIN LATERAL (SELECT max(d) AS farthest
		FROM (SELECT q.val <-> val AS d FROM many WHERE ctid <> q.tid ORDER BY 1 LIMIT 10) s) t
	JOIN graph_of_many g USING (tid)), '>=', 0.98, 'GNND: recall against exact truth');
SELECT use_index(true);

CREATE TABLE graph_of_items AS SELECT * FROM gpugraph_knn_graph('items_idx', 1);

-- its snapshot is the cursor's: rows that are deleted meanwhile stay
BEGIN;
DECLARE c CURSOR FOR SELECT (g).tid
	FROM (SELECT gpugraph_knn_graph('items_idx', 1) AS g OFFSET 0) s;
FETCH 10 FROM c \g /dev/null
DELETE FROM items;
SELECT results_eq('FETCH ALL FROM c', $$SELECT tid FROM graph_of_items OFFSET 10$$,
	'a cursor sees what there was when it was opened');
SELECT is_empty($$SELECT * FROM gpugraph_knn_graph('items_idx', 3)$$,
	'a new statement sees that rows were deleted');
COMMIT;
INSERT INTO items SELECT id, val FROM source WHERE id <= 300;
BEGIN;
DECLARE c CURSOR FOR SELECT gpugraph_knn_graph('items_idx', 3);
FETCH 10 FROM c \g /dev/null
TRUNCATE items;
SELECT throws_ok('FETCH ALL FROM c', '55006',
	'index "items_idx" was rebuilt while its rows were read');
COMMIT;

SELECT * FROM finish();
