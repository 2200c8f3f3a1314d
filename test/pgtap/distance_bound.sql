-- A condition on the distance that rows are ordered by ends the scan: WHERE d < r ORDER BY d
-- LIMIT n reads what is within r, and not the whole index. Answers are those of a plain plan.
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 4000, 12, 30);
SELECT make_queries('items', 12);
ANALYZE items;

-- Conditions that say d < r, of a distance d and a number r.
CREATE TABLE shapes (shape text);
INSERT INTO shapes VALUES ('d < r'), ('d <= r'), ('r > d'), ('r >= d'), ('1 - d > 1 - r'),
	('1 - d >= 1 - r'), ('d * -1 > -r'), ('-1 * d >= -r'), ('-d > -r'),
	('(2 - d) / 2 >= (2 - r) / 2'),
	('d / -4 > r / -4'), ('d + 7 < r + 7'), ('3 + d - 1 <= 2 + r'), ('+d < r'),
	('round(d::numeric, 8) <= round(r::numeric, 8)'), ('1 - d::numeric > 1 - r::numeric'),
	('d::numeric * -2 > r::numeric * -2'), ('d::real < r::real'), ('d::real <= r'),
	('r >= d::real'),
	('d::numeric(12, 7) <= r::numeric(12, 7)'), ('d BETWEEN -1e6 AND r'), ('NOT d > r'),
	('trunc(d::numeric, 7) <= trunc(r::numeric, 7)'), ('d < r AND d < r + 1 AND cat >= 0'),
	('func < r'), ('1 - func > 1 - r'), ('swapped < r');

CREATE FUNCTION statement(rel text, op text, query text, shape text, r float8, rest text)
	RETURNS text LANGUAGE sql AS $$
	SELECT format('SELECT id FROM %I WHERE ', rel) ||
		replace(replace(replace(regexp_replace(regexp_replace(shape, '\md\M',
		format('(val %s %L)', op, query), 'g'), '\mr\M', format('(%s::float8)', r), 'g'),
		'func', format('%s(val, %L)', CASE op WHEN '<->' THEN 'l2_distance'
			WHEN '<=>' THEN 'cosine_distance' WHEN '<#>' THEN 'vector_negative_inner_product'
			ELSE 'l1_distance' END, query)),
		'swapped', format('(%L %s val)', query, op)), 'NOT (', 'NOT (')
		|| format(' ORDER BY val %s %L ', op, query) || rest $$;

-- Over all queries, of the nearest k rows: rows that plain plans have and the index has not, rows
-- that it has and they have not, rows twice, and the most that a scan returned beyond k.
CREATE FUNCTION compare(rel text, op text, shape text, k int, filter text DEFAULT 'true',
	OUT lost bigint, OUT extra bigint, OUT twice bigint, OUT beyond bigint)
	LANGUAGE plpgsql AS $$
DECLARE
	query text;
	sql text;
	got int[];
	want int[];
BEGIN
	lost := 0; extra := 0; twice := 0; beyond := 0;
	FOR query IN SELECT val::text FROM queries ORDER BY q LOOP
		sql := statement(rel, op, query, format('(%s) AND %s', shape, filter),
			radius(rel, op, query, k, filter), 'LIMIT 2000');
		want := ids(sql, false);
		got := ids(sql, true);
		lost := lost + (SELECT count(*) FROM unnest(want) w WHERE w <> ALL (got));
		extra := extra + (SELECT count(*) FROM unnest(got) g WHERE g <> ALL (want));
		twice := twice + cardinality(got) - (SELECT count(DISTINCT g) FROM unnest(got) g);
		beyond := greatest(beyond, (SELECT rows FROM gpugraph_last_scan()) - k);
	END LOOP;
END $$;

-- every shape
CREATE INDEX items_idx ON items USING gpugraph (val);
SELECT is(c::text, '(0,0,0,0)', shape) FROM shapes, compare('items', '<->', shape, 20) c;

-- every metric, and every way to store
CREATE FUNCTION with_index(op text, opclass text, options text) RETURNS SETOF text
	LANGUAGE plpgsql AS $$
DECLARE
	shape text;
	k int;
	c record;
	-- the operator's error, and that of rounding
	most int := CASE WHEN options ~ 'float16' THEN 80 ELSE 3 END;
BEGIN
	DROP INDEX items_idx;
	EXECUTE format('CREATE INDEX items_idx ON items USING gpugraph (val %s) %s', opclass, options);
	FOREACH k IN ARRAY ARRAY[1, 10, 100] LOOP
		shape := CASE k WHEN 10 THEN '1 - d > 1 - r' ELSE 'd < r' END;
		c := compare('items', op, shape, k);
		RETURN NEXT ok(c.lost <= 12 * k / 50 AND c.extra = 0 AND c.twice = 0 AND
			c.beyond <= most,
			format('%s %s, %s, nearest %s: %s', opclass, options, shape, k, c));
	END LOOP;
END $$;
SELECT with_index(op, opclass, options) FROM (VALUES ('<->', 'vector_l2_ops'),
	('<=>', 'vector_cosine_ops'), ('<#>', 'vector_ip_ops'), ('<+>', 'vector_l1_ops'))
	o(op, opclass), (VALUES (''), ('WITH (storage = float16)'), ('WITH (storage = "float32+int8")'),
	('WITH (storage = int8)')) s(options);
DROP INDEX items_idx;

-- filter columns, other conditions, bitmaps, and every mode
CREATE INDEX items_idx ON items USING gpugraph (val, cat, big);
CREATE INDEX items_big ON items (big);
ANALYZE items;
SELECT is(c::text, '(0,0,0,0)', 'where ' || filter)
	FROM unnest(ARRAY['cat = 7', 'cat < 20 AND big > 30', 'big IN (7, 57, 107, 157)']) filter,
	compare('items', '<->', 'd < r', 20, filter) c;
SELECT ok(lost = 0 AND extra = 0 AND twice = 0 AND beyond < 200,
	format('a condition that no index has: %s', c))
	FROM compare('items', '<->', 'd < r', 20, 'abs(hashint4(id)) % 4 = 1') c;
SET gpugraph.iterative_scan = relaxed_order;
SELECT ok(lost <= 24 AND extra = 0 AND twice = 0 AND beyond <= 3, format('relaxed order: %s', c))
	FROM compare('items', '<->', 'd < r', 200) c;
SET gpugraph.iterative_scan = off;
SELECT is(c::text, '(0,0,0,0)', 'no iterative scan') FROM compare('items', '<->', 'd < r', 20) c;
RESET gpugraph.iterative_scan;
SELECT ok(lost <= 84 AND extra = 0 AND twice = 0 AND beyond <= 3,
	format('many rows, of which some come late: %s', c))
	FROM compare('items', '<->', 'd < r', 700) c;

-- rows that were inserted, and deleted
INSERT INTO items SELECT id + 6000, cat, big, val FROM items WHERE id % 3 = 0;
DELETE FROM items WHERE id % 7 = 0;
SELECT ok(lost = 0 AND extra = 0 AND twice = 0 AND beyond <= 20,
	format('inserted and deleted rows: %s', c)) FROM compare('items', '<->', 'd < r', 20) c;
VACUUM items;
SELECT ok(lost = 0 AND extra = 0 AND twice = 0 AND beyond <= 2,
	format('after VACUUM: %s', c)) FROM compare('items', '<->', 'd < r', 20) c;

-- where the operands come from
CREATE FUNCTION rows_of(sql text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM use_index(true);
	EXECUTE 'SELECT count(*) FROM (' || sql || ') s';
	RETURN (SELECT rows FROM gpugraph_last_scan());
END $$;
CREATE TABLE bounds AS SELECT q, val, radius('items', '<->', val::text, 21) AS r FROM queries;
UPDATE bounds b SET r = r + 1e-5;
ALTER TABLE bounds ADD n bigint;
SELECT use_index(false);
UPDATE bounds SET n = (SELECT count(*) FROM items i WHERE i.val <-> bounds.val < r);
SELECT use_index(true);
PREPARE near(vector, vector, float8) AS
	SELECT id FROM items WHERE val <-> $1 < $3 ORDER BY val <-> $2 LIMIT 100;
SELECT val AS v, r, n FROM bounds WHERE q = 1 \gset
SELECT val AS v2 FROM bounds WHERE q = 2 \gset
SET plan_cache_mode = force_generic_plan;
CREATE TEMP TABLE got AS EXECUTE near(:'v', :'v', :r);
SELECT is((SELECT rows FROM gpugraph_last_scan()), :n::bigint, 'parameters of a generic plan');
SELECT is((SELECT count(*) FROM got), :n::bigint, 'and its rows');
DROP TABLE got;
CREATE TEMP TABLE got AS EXECUTE near(:'v', :'v2', :r);
SELECT ok((SELECT rows FROM gpugraph_last_scan()) > :n,
	'the distance to another query is no bound');
SELECT is((SELECT count(*) FROM got), :n::bigint, 'whose rows are all found');
DROP TABLE got;
CREATE TEMP TABLE got AS EXECUTE near(:'v', :'v', NULL);
SELECT is((SELECT count(*) FROM got), 0::bigint, 'a bound that is NULL');
DROP TABLE got;
CREATE TEMP TABLE got AS EXECUTE near(:'v', NULL, :r);
SELECT is((SELECT count(*) FROM got), :n::bigint, 'an order by a distance to NULL');
DROP TABLE got;
CREATE TEMP TABLE got AS EXECUTE near(NULL, NULL, :r);
SELECT is((SELECT count(*) FROM got), 0::bigint, 'and a bound of the same');
RESET plan_cache_mode;
SELECT is(rows_of('SELECT id FROM items WHERE val <-> (SELECT val FROM queries WHERE q = 1) <
	(SELECT r FROM bounds WHERE q = 1) ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)
	LIMIT 100'), :n::bigint, 'subqueries that are evaluated once');
SELECT is(rows_of(format('WITH x AS (SELECT id, 1 - (val <-> %L) AS s FROM items
	ORDER BY val <-> %1$L LIMIT 100) SELECT id FROM x WHERE s > 1 - %s::float8', :'v', :'r')),
	100::bigint, 'a condition behind a LIMIT does not move before it');
SELECT is((SELECT array_agg(n ORDER BY q)
	FROM (SELECT q, (SELECT count(*) FROM (SELECT id FROM items
	WHERE val <-> b.val < b.r ORDER BY val <-> b.val LIMIT 100) s) AS n FROM bounds b) t),
	(SELECT array_agg(n ORDER BY q) FROM bounds), 'a bound of each query of many');
SELECT ok((SELECT count(*) FROM (SELECT id FROM items WHERE val <-> :'v' < random() * 0 + :r
	ORDER BY val <-> :'v' LIMIT 100) s) = :n, 'a volatile bound: rows');
SELECT ok((SELECT rows FROM gpugraph_last_scan()) > :n, 'which ends nothing');

SELECT use_index(true);
SELECT is(plan_of(statement('items', '<->', :'v', '1 - d > 1 - r AND cat < 9 AND d > 0', :r,
	'LIMIT 9')) ~ 'Distance Bound: \(\(.1.::double precision - \(val <-> .*\)\) > ',
	current_setting('server_version_num')::int >= 180000, 'EXPLAIN, from 18 on');

-- operands that a step cannot be computed with
SELECT is(ids(sql, true), ids(sql, false), shape)
	FROM unnest(ARRAY['d < ''NaN''', 'd < ''Infinity''', 'd < ''-Infinity''', '-d > ''NaN''',
	'''Infinity'' - d > 5', 'd + ''NaN'' < r', 'd * 0 < r', 'd < -r', 'd * 1e290 < r * 1e290',
	'd > r', '1 - d < 1 - r', 'd < r OR d > 2 * r', 'd * d < r * r']) shape,
	statement('items', '<->', :'v', '(' || shape || ') AND id < 6000', :r, 'LIMIT 50') sql;

-- functions, operators and casts of a user's own, by other names and by the same
CREATE SCHEMA own;
CREATE FUNCTION own.less(float8, float8) RETURNS boolean LANGUAGE sql IMMUTABLE
	AS 'SELECT $1::numeric % 0.2 < 0.1';
CREATE OPERATOR own.< (FUNCTION = own.less, LEFTARG = float8, RIGHTARG = float8);
CREATE FUNCTION own.abs(float8) RETURNS float8 LANGUAGE sql IMMUTABLE AS 'SELECT -$1';
CREATE OPERATOR own.<< (FUNCTION = float8lt, LEFTARG = float8, RIGHTARG = float8);
SELECT is(ids(sql, true), ids(sql, false), 'an operator of another function')
	FROM format('SELECT id FROM items WHERE (val <-> %L) OPERATOR(own.<) %s ORDER BY val <-> %1$L
	LIMIT 50', :'v', :r) sql;
SELECT is(rows_of(format('SELECT id FROM items WHERE (val <-> %L) OPERATOR(own.<<) %s
	ORDER BY val <-> %1$L LIMIT 50', :'v', :r)), :n::bigint, 'another operator of the function');
SELECT is(ids(sql, true), ids(sql, false), 'a function of the user''s in the condition')
	FROM format('SELECT id FROM items WHERE own.abs(val <-> %L) < -%s ORDER BY val <-> %1$L
	LIMIT 50', :'v', :r) sql;

-- What a barrier hides does not come to a user's functions.
CREATE TABLE seen (d float8);
CREATE FUNCTION spy(float8) RETURNS float8 LANGUAGE plpgsql COST 0.0001 AS $$
BEGIN
	INSERT INTO seen VALUES ($1);
	RETURN $1;
END $$;
CREATE VIEW visible WITH (security_barrier) AS SELECT * FROM items WHERE cat = 7;
SELECT is(ids(sql, true), ids(sql, false), 'a barrier: rows') FROM format('SELECT id FROM visible
	WHERE val <-> %L < 2 AND spy(id) > 0 ORDER BY val <-> %1$L LIMIT 1000', :'v') sql;
SELECT is((SELECT count(*) FROM seen JOIN items ON id = d WHERE cat <> 7), 0::bigint,
	'a barrier: only its rows were seen');

-- Without LIMIT all rows are wanted, and the answer is exact: from the table, or see range_search
SET gpugraph.disable = range_search;
RESET enable_seqscan;
RESET enable_indexscan;
-- Both plans are charged by the page, so pages hold as many rows with all sizes of blocks.
SELECT least(100, 100 * 8192 / current_setting('block_size')::int) AS fill \gset
CREATE TABLE wide WITH (fillfactor = :fill) AS
	SELECT id, cat, val FROM items, generate_series(1, 6);
CREATE INDEX wide_val ON wide USING gpugraph (val) WITH (storage = 'float16');
ANALYZE wide;
SELECT doesnt_match(plan_of(query), 'Index Scan', 'not ' || what) FROM (VALUES
	('without LIMIT', format('SELECT id FROM wide WHERE val <-> %L < %s ORDER BY val <-> %1$L',
		:'v', :r)),
	('without an order', format('SELECT id FROM wide WHERE val <-> %L < 1', :'v')),
	('in another order', format('SELECT id FROM wide WHERE val <-> %L < 1 ORDER BY id', :'v')),
	('beyond it', format('SELECT id FROM wide WHERE val <-> %L > 1 ORDER BY val <-> %1$L', :'v')))
	t (what, query);
RESET gpugraph.disable;

-- Beside a B-tree: the distance of each of its rows is no cheaper for being a condition.
CREATE INDEX ON wide (cat);
SELECT doesnt_match(plan_of(format('SELECT id FROM wide WHERE cat = 7 AND val <-> %L < 0.5
	ORDER BY val <-> %1$L LIMIT 10', :'v')), 'Sort Key', 'a threshold beside a B-tree');

-- a cursor, rows that are locked, and a scan that is read to its end
BEGIN;
SELECT use_index(true);
SET LOCAL enable_sort = off;
DECLARE c CURSOR FOR SELECT id FROM items WHERE val <-> :'v' < :r ORDER BY val <-> :'v' FOR UPDATE;
MOVE 15 IN c;
DELETE FROM items WHERE CURRENT OF c;
MOVE ALL IN c;
CLOSE c;
SELECT is((SELECT rows FROM gpugraph_last_scan()), :n::bigint, 'a cursor');
SELECT is((SELECT count(*) FROM (SELECT id FROM items WHERE val <-> :'v' < :r
	ORDER BY val <-> :'v') s), :n::bigint - 1, 'whose row is gone');
ROLLBACK;

-- partitions, searched together or not
CREATE TABLE parts (LIKE items) PARTITION BY HASH (id);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 3, REMAINDER 0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 3, REMAINDER 1);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES WITH (MODULUS 3, REMAINDER 2);
INSERT INTO parts SELECT * FROM items;
CREATE INDEX ON parts USING gpugraph (val);
ANALYZE parts;
SELECT ok(lost = 0 AND extra = 0 AND twice = 0 AND beyond <= 3, format('partitions: %s', c))
	FROM compare('parts', '<->', 'd < r', 20) c;
SET gpugraph.disable = partition_search;
SELECT ok(lost = 0 AND extra = 0 AND twice = 0 AND beyond <= 3, format('one by one: %s', c))
	FROM compare('parts', '<->', 'd < r', 20) c;
SELECT * FROM finish();
