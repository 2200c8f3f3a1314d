-- Similarity joins measure a segment for many outer rows at once, and have exactly the rows of a
-- plain plan: of every metric and way to store rows, with each row's own distance, with rows that
-- have no vector, that came later or are equal, of several segments, and in little memory.
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 4000, 12, 30);
SELECT make_queries('items', 8);
CREATE TABLE others AS SELECT id, val, id % 3 / 2.0 AS share FROM items WHERE id % 97 = 0;
INSERT INTO others SELECT -id, val, share FROM others WHERE id % 2 = 0;
INSERT INTO others VALUES (-1, NULL, 1), (-2, (SELECT val FROM items WHERE id = 5), NULL);
ANALYZE items, others;

-- Outer rows whose queries were answered together; NULL: no node of the plan reads them ahead.
CREATE FUNCTION together(sql text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	line text;
	n int;
BEGIN
	PERFORM use_index(true);
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || sql LOOP
		n := coalesce(n, substring(line FROM 'Queries Together: (\d+)')::int);
	END LOOP;
	RETURN n;
END $$;

-- Has the join the rows of a plain plan, and at least so many queries together?
CREATE FUNCTION same_rows(what text, sql text, at_least int) RETURNS SETOF text
	LANGUAGE plpgsql AS $$
DECLARE
	rows int[] := ids(sql, false, true);
BEGIN
	RETURN NEXT cmp_ok(cardinality(rows), '>', 10, what || ': rows');
	RETURN NEXT is(ids(sql, true, true), rows, what || ': the same');
	RETURN NEXT cmp_ok(together(sql), '>=', at_least, what || ': together');
END $$;
CREATE FUNCTION joined(op text, r text, kind text DEFAULT 'JOIN', more text DEFAULT 'true')
	RETURNS text LANGUAGE sql AS $$ SELECT format('SELECT coalesce(i.id, 0) * 10000 + o.id AS id
	FROM others o %s items i ON i.val %s o.val < %s AND %s', kind, op, r, more) $$;

CREATE FUNCTION with_index(op text, opclass text, options text) RETURNS SETOF text
	LANGUAGE plpgsql AS $$
DECLARE
	r text := radius('items', op, (SELECT val::text FROM queries WHERE q = 2), 30);
BEGIN
	EXECUTE format('CREATE INDEX items_idx ON items USING gpugraph (val %s) %s', opclass, options);
	RETURN QUERY SELECT same_rows(opclass || ' ' || options, joined(op, r), 50);
	DROP INDEX items_idx;
END $$;
SELECT with_index(op, opclass, options) FROM (VALUES ('<->', 'vector_l2_ops'),
	('<=>', 'vector_cosine_ops'), ('<#>', 'vector_ip_ops'), ('<+>', 'vector_l1_ops'))
	o(op, opclass), (VALUES (''), ('WITH (storage = float16)'),
	('WITH (storage = ''float32+int8'')'), ('WITH (segment_rows = 900)')) s(options);

-- shapes, with rows that are equal and rows that came later
CREATE INDEX items_idx ON items USING gpugraph (val, cat);
INSERT INTO items SELECT id + 4000, cat, big, val FROM items WHERE id % 9 = 0;
DELETE FROM items WHERE id % 11 = 0;
INSERT INTO items VALUES (-1, 0, 0, NULL);
ANALYZE items;
SELECT radius('items', '<->', val::text, 30) AS r FROM queries WHERE q = 2 \gset
SELECT same_rows(what, sql, n) FROM (VALUES
	('a delta', joined('<->', :'r'), 50),
	('each its own distance', joined('<->', 'o.share * ' || :'r'), 50),
	('LEFT JOIN', joined('<->', :'r', 'LEFT JOIN'), 50),
	('another condition', joined('<->', :'r', 'JOIN', 'i.id <> o.id'), 50),
	('a condition of the index', joined('<->', :'r', 'JOIN', 'i.cat < 25'), 0),
	('a condition of both', joined('<->', :'r', 'JOIN', 'i.cat < o.id % 50'), 0),
	('a subquery', joined('<->', :'r') || ' JOIN queries ON q = o.id % 8', 0),
	('each by itself', format('SELECT id FROM others o, LATERAL (SELECT count(*) AS n FROM items i
		WHERE i.val <-> o.val < %s) n, generate_series(1, n)', :'r'), 0)) s(what, sql, n);
SELECT joined('<->', :'r') AS sql \gset
SET work_mem = '64kB';
-- a device's lists are too long for that
SELECT same_rows('little memory', joined('<->', :'r' || ' * 3'), (count(*) = 0)::int)
	FROM gpugraph_stat_device WHERE state = 'up';
-- memory that grows amid a batch: what was measured before is not measured again
CREATE SEQUENCE calls;
SELECT use_index(true), joined('<->', '100') AS all_pairs \gset
SELECT count(*) AS pairs, count(DISTINCT id) AS differ FROM (SELECT s.id, CASE nextval('calls')
	WHEN 6000 THEN set_config('work_mem', '1GB', false) END FROM (:all_pairs) s) s \gset
SELECT is(:pairs, :differ, 'no row comes twice as memory grows');
RESET work_mem;
SET gpugraph.disable = read_ahead;
SELECT is(together(:'sql'), NULL, 'no node where it is disabled');
RESET gpugraph.disable;
SELECT is(together(replace(:'sql', 'others o', '(SELECT *, random() AS x FROM others) o')
	|| ' WHERE o.x < 2'), NULL, 'nor for a volatile function');
SELECT use_index(true);
BEGIN;
DECLARE c CURSOR FOR :sql;
FETCH 5 FROM c \g /dev/null
DELETE FROM items WHERE id % 5 = 0;
SELECT gpugraph_merge('items_idx') \g /dev/null
CREATE TABLE fetched (id int);
DO $$
DECLARE
	c refcursor := 'c';
	r record;
BEGIN
	LOOP
		FETCH c INTO r;
		EXIT WHEN NOT FOUND;
		INSERT INTO fetched VALUES (r.id);
	END LOOP;
END $$;
CLOSE c;
SELECT count(*) AS fetched FROM fetched \gset
ROLLBACK;
SELECT is(:fetched + 5, cardinality(ids(:'sql', false, true)),
	'a cursor has the rows it saw first');

SELECT * FROM finish();
