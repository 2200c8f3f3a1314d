-- Vectors of any length, from the least float32 to the greatest: the index orders rows as the
-- operator does, in the delta, in a segment and when both are merged
\ir include/helpers.psql
SELECT * FROM no_plan();

-- Rows and queries of 12 dimensions, about as long as 10 ^ magnitude.  Some rows are equal, some
-- elements -0, some vectors NULL.
CREATE FUNCTION vector_of(magnitude float8) RETURNS vector LANGUAGE sql VOLATILE AS $$
	SELECT array_agg(CASE WHEN random() < 0.1 THEN '-0'::float8
		ELSE greatest(-3.4e38, least(3.4e38, (random() - 0.5) * 10 ^ magnitude)) END)::vector
	FROM generate_series(1, 12) WHERE magnitude IS NOT NULL
$$;
CREATE FUNCTION make_rows(magnitudes float8[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	DROP TABLE IF EXISTS rows, queries;
	PERFORM setseed(0.5);
	CREATE TABLE rows AS SELECT i AS id, vector_of(magnitudes[1 + i % array_length(magnitudes, 1)])
		AS val FROM generate_series(1, 300) i;
	INSERT INTO rows SELECT id + 300, val FROM rows WHERE id % 7 = 0;
	CREATE TABLE queries AS SELECT vector_of(m) AS q
		FROM unnest(magnitudes) m, generate_series(1, 3) WHERE m IS NOT NULL;
	INSERT INTO queries SELECT val FROM rows WHERE id % 60 = 0 AND val IS NOT NULL;
END $$;

-- How the order of a table's rows differs from that of the operator: 'fine' if in nothing.  Two
-- values that float32 may add up in either order are the same, if rows are not rounded.
CREATE FUNCTION order_of(op text, error text, rounded boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text;
	found float8[];
	truth float8[];
	wrong int;
	rows int;
BEGIN
	FOR query IN SELECT q::text FROM queries LOOP
		PERFORM use_index(true);
		EXECUTE format('SELECT array_agg(d) FROM (SELECT val %1$s %2$L AS d FROM items
						ORDER BY val %1$s %2$L LIMIT 10000) s', op, query) INTO found;
		PERFORM use_index(false);
		EXECUTE format('SELECT array_agg(d) FROM (SELECT val %1$s %2$L AS d FROM items
						WHERE val IS NOT NULL AND (%1$L <> ''<=>'' OR vector_norm(val::vector) > 0)
						ORDER BY val %1$s %2$L) s', op, query) INTO truth;
		IF cardinality(found) IS DISTINCT FROM cardinality(truth) THEN
			RETURN format('%s of %s rows near %s', cardinality(found), cardinality(truth), query);
		END IF;
		EXECUTE format('SELECT count(*) FROM unnest($1, $2) u(f, t) WHERE f <> t
						AND NOT ($3 = false AND abs(f - t) <= %s)', error)
			INTO wrong USING found, truth, rounded;
		IF wrong > 0 THEN
			RETURN format('%s rows out of order near %s: %s, not %s', wrong, query, found, truth);
		END IF;
	END LOOP;
	RETURN 'fine';
END $$;

CREATE FUNCTION try_class(type text, metric text, op text, options text, error text)
	RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	what text := concat_ws(' ', type, metric, options);
	rounded boolean := options <> '';
BEGIN
	EXECUTE format('CREATE TABLE items (id int, val %s(12))', type);
	INSERT INTO items SELECT id, val FROM rows WHERE id % 2 = 0;
	EXECUTE format('CREATE INDEX items_idx ON items USING gpugraph (val %s_%s_ops)
		WITH (graph_degree = 8, intermediate_graph_degree = 16, seal_rows = 0 %s)', type, metric,
		options);
	RETURN NEXT is(order_of(op, error, rounded), 'fine', what || ': a segment');
	INSERT INTO items SELECT id, val FROM rows WHERE id % 2 = 1;
	RETURN NEXT is(order_of(op, error, rounded), 'fine', what || ': a segment and a delta');
	PERFORM gpugraph_merge('items_idx');
	RETURN NEXT is(order_of(op, error, rounded), 'fine', what || ': merged');
	TRUNCATE items;
	INSERT INTO items SELECT id, val FROM rows;
	RETURN NEXT is(order_of(op, error, rounded), 'fine', what || ': a delta');
	DROP TABLE items;
END $$;

-- Lengths as powers of ten.  halves: are there rows that float16 can hold?
CREATE TABLE cases (n int, magnitudes float8[], halves boolean);
INSERT INTO cases VALUES
	(1, '{-44,-42,-40,-38}', true),
	(2, '{-30,-20,-10,0}', true),
	(3, '{-9,-8,-7,-6,-5,NULL}', true),
	(4, '{-3,0,3,4}', true),
	(5, '{-40,-8,0,4}', true),
	(6, '{10,15,17,18}', false),
	(7, '{30,37,38,39}', false),
	(8, '{-41,-3,-2,NULL}', true);

-- All classes of a case.  float32 sums of L2 lose squares below 1e-38.  Inner products beyond
-- float32 are infinite or NaN, in no order.
CREATE FUNCTION try_case(n int, magnitudes float8[], halves boolean) RETURNS SETOF text
	LANGUAGE plpgsql AS $$
DECLARE
	class record;
BEGIN
	PERFORM make_rows(magnitudes);
	RETURN NEXT diag('lengths ' || magnitudes::text);
	FOR class IN SELECT * FROM
		(VALUES ('l2', '<->', '1e-5 * (abs(t) + 1e-19)'), ('l1', '<+>', '1e-5 * abs(t)'),
			('ip', '<#>', '1e-5 * abs(t) + 1e-42'), ('cosine', '<=>', '1e-5')) m(metric, op, error),
		(VALUES ('vector', ''), ('vector', ', storage = float16'), ('halfvec', '')) t(type, options)
		WHERE (halves OR (type = 'vector' AND options = ''))
			AND (metric <> 'ip' OR n <> 7)
			AND (metric <> 'cosine' OR n IN (3, 4))
	LOOP
		RETURN QUERY SELECT * FROM try_class(class.type, class.metric, class.op, class.options,
			class.error);
	END LOOP;
END $$;
SELECT try_case(n, magnitudes, halves) FROM cases ORDER BY n;

-- Codes of such rows are sound, and a scan returns every row.
CREATE FUNCTION try_codes(metric text, op text, options text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text;
	found bigint[];
	truth bigint[];
BEGIN
	CREATE TABLE items (id int, val vector(12));
	INSERT INTO items SELECT id, val FROM rows WHERE id % 2 = 0;
	EXECUTE format('CREATE INDEX items_idx ON items USING gpugraph (val vector_%s_ops)
		WITH (graph_degree = 8, intermediate_graph_degree = 16, seal_rows = 0, %s)', metric,
		options);
	PERFORM gpugraph_check('items_idx', true);
	INSERT INTO items SELECT id, val FROM rows WHERE id % 2 = 1;
	PERFORM gpugraph_merge('items_idx'), gpugraph_check('items_idx', true);
	PERFORM use_index(true);
	FOR query IN SELECT q::text FROM queries LOOP
		EXECUTE format('SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM items
			ORDER BY val %s %L) s', op, query) INTO found;
		truth := (SELECT array_agg(id ORDER BY id) FROM rows WHERE val IS NOT NULL
			AND (metric <> 'cosine' OR val <> array_fill(0, ARRAY[12])::vector));
		IF found IS DISTINCT FROM truth THEN
			RETURN format('%s of %s rows near %s', cardinality(found), cardinality(truth), query);
		END IF;
	END LOOP;
	DROP TABLE items;
	RETURN 'fine';
END $$;
CREATE FUNCTION try_codes_of(magnitudes float8[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM make_rows(magnitudes);
	RETURN QUERY SELECT is(try_codes(metric, op, options), 'fine',
			concat_ws(' ', metric, options, magnitudes))
		FROM (VALUES ('l2', '<->'), ('l1', '<+>'), ('ip', '<#>'), ('cosine', '<=>')) m(metric, op),
			unnest(ARRAY['storage = int8', 'storage = int4', 'storage = "float32+int8"']) options;
END $$;
SELECT try_codes_of(magnitudes) FROM cases WHERE n IN (5, 7);

-- Under cosine the operator adds up squares as float32, so it has NaN, 1 or a rough value for
-- vectors shorter than 1e-19 or longer than 1e19.  The index orders those by their angle, as if
-- they had another length.  Zero vectors alone are not indexed.
CREATE FUNCTION cosine(a vector, b vector) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$
	SELECT 1 - sum(x::float8 * y::float8)
		/ sqrt(sum(x::float8 * x::float8)) / sqrt(sum(y::float8 * y::float8))
	FROM unnest(a::real[], b::real[]) u(x, y)
$$;
CREATE FUNCTION by_angle() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text;
	answer record;
BEGIN
	PERFORM use_index(true);
	FOR query IN SELECT q::text FROM queries WHERE vector_norm(q) > 0 LOOP
		EXECUTE format('SELECT count(*) AS found, count(*) FILTER (WHERE d < most - 1e-5) AS wrong
			FROM (SELECT d, max(d) OVER (ORDER BY n) AS most FROM
				(SELECT cosine(val, %1$L) AS d, row_number() OVER () AS n FROM
				(SELECT val FROM items ORDER BY val <=> %1$L LIMIT 10000) a) b) c', query)
			INTO answer;
		IF answer.wrong > 0 OR
			answer.found <> (SELECT count(*) FROM items WHERE vector_norm(val) > 0) THEN
			RETURN format('%s rows near %s, %s out of order', answer.found, query, answer.wrong);
		END IF;
	END LOOP;
	RETURN 'fine';
END $$;
SELECT make_rows('{-35,-30,-23,-19,-15,0,15,19,30,38,NULL}');
CREATE TABLE items AS SELECT id, val FROM rows WHERE id % 2 = 0;
CREATE INDEX items_idx ON items USING gpugraph (val vector_cosine_ops)
	WITH (graph_degree = 8, intermediate_graph_degree = 16, seal_rows = 0);
INSERT INTO items VALUES (0, array_fill(0, ARRAY[12])::vector);
SELECT is(by_angle(), 'fine', 'cosine of any length: a segment');
INSERT INTO items SELECT id, val FROM rows WHERE id % 2 = 1;
SELECT is(by_angle(), 'fine', 'cosine of any length: a segment and a delta');
SELECT ok(gpugraph_merge('items_idx'), 'merged');
SELECT is(by_angle(), 'fine', 'cosine of any length: merged');
SELECT is((SELECT count(*) FROM items WHERE (val <=> val) = 'NaN' AND vector_norm(val) > 0) > 0,
	true, 'the operator has no value for some');

-- float16 refuses them, when an index is built and when a row is inserted
SELECT throws_ok('CREATE INDEX ON items USING gpugraph (val vector_cosine_ops)
	WITH (storage = float16)', '22003');
CREATE TABLE halves (val vector(2));
CREATE INDEX ON halves USING gpugraph (val vector_cosine_ops) WITH (storage = float16);
SELECT throws_ok($$INSERT INTO halves VALUES ('[8e-16, 1e-20]')$$, '22003');
SELECT throws_ok($$INSERT INTO halves VALUES ('[1.2e15, 0]')$$, '22003');
SELECT lives_ok($$INSERT INTO halves VALUES ('[1e-15, 1e-20]'), ('[1e15, 1]'), ('[0, 0]')$$);

-- The bug: under inner product with storage = float16 the bound of what the table's values may be
-- left out products that underflow, so queries some 1e-41 long failed with "index returned tuples
-- in wrong order".
-- The fix: the bound has the least float32 for each product.
CREATE TABLE products (val vector(12));
SELECT setseed(0.25);
INSERT INTO products SELECT (SELECT array_agg(random() * 1e-3) FROM generate_series(1, 12)
	WHERE i > 0)::vector FROM generate_series(1, 1000) i;
CREATE INDEX ON products USING gpugraph (val vector_ip_ops)
	WITH (storage = float16, graph_degree = 8, intermediate_graph_degree = 16);
SELECT use_index(true);
SELECT lives_ok(format('SELECT FROM (SELECT val <#> %1$L AS d FROM products
	ORDER BY val <#> %1$L LIMIT 900) s',
	(SELECT array_agg((random() - 0.3) * 10 ^ (e + 0 * d))::vector FROM generate_series(1, 12) d)),
	'a query of 1e' || e) FROM generate_series(-43, -37) e;

SELECT * FROM finish();
