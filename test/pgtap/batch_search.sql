-- gpugraph_search: the rows and distances of many queries against exact answers, only of rows that
-- the snapshot sees, by their visible versions; errors and privileges
\ir include/helpers.psql
SELECT * FROM no_plan();

-- What is wrong with the answers to all queries, against a sequential scan: 'ok' if nothing.
CREATE FUNCTION compare(rel text, op text, type text, k int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	wrong bigint;
	found numeric;
BEGIN
	PERFORM use_index(false);
	DROP TABLE IF EXISTS answers, truth;
	EXECUTE format($q$
		CREATE TEMP TABLE answers AS
		SELECT s.query, s.tid, s.distance, r.val %1$s p.val::%2$s AS true_distance, n
			FROM gpugraph_search('%3$I_idx',
			(SELECT array_agg(val::%2$s ORDER BY q) FROM queries), %4$s)
			WITH ORDINALITY s(query, tid, distance, n)
			LEFT JOIN %3$I r ON r.ctid = s.tid JOIN queries p ON p.q = s.query $q$,
		op, type, rel, k);
	EXECUTE format($q$
		CREATE TEMP TABLE truth AS
		SELECT q AS query, t.* FROM queries p
			CROSS JOIN LATERAL (SELECT count(*), max(d) AS farthest
			FROM (SELECT r.val %s p.val::%s AS d FROM %I r WHERE r.val IS NOT NULL
			ORDER BY 1 LIMIT %s) s) t $q$, op, type, rel, k);
	PERFORM use_index(true);

	SELECT count(*) INTO wrong FROM answers WHERE true_distance IS NULL;
	IF wrong > 0 THEN
		RETURN wrong || ' rows are not visible';
	END IF;
	SELECT count(*) INTO wrong FROM answers
		WHERE abs(distance - true_distance) > 2e-6 * (1 + abs(true_distance));
	IF wrong > 0 THEN
		RETURN wrong || ' distances are wrong';
	END IF;
	SELECT count(*) INTO wrong
		FROM (SELECT query, distance, lag(query) OVER w AS last_query,
			lag(distance) OVER w AS last FROM answers WINDOW w AS (ORDER BY n)) s
		WHERE query < last_query OR (query = last_query AND distance < last);
	IF wrong > 0 THEN
		RETURN wrong || ' rows are out of order';
	END IF;
	SELECT count(*) INTO wrong FROM truth
		WHERE count <> (SELECT count(DISTINCT tid) FROM answers a WHERE a.query = truth.query);
	IF wrong > 0 THEN
		RETURN wrong || ' answers are short';
	END IF;
	SELECT count(*) FILTER (WHERE true_distance <= farthest + 2e-6 * (1 + abs(farthest)))::numeric
		/ count(*) INTO found FROM answers JOIN truth USING (query);
	-- one query of thirty may end in another cluster
	RETURN CASE WHEN found >= 0.96 THEN 'ok' ELSE 'recall ' || found END;
END $$;

-- Three kinds of rows, in two segments and the delta: equal ones, dead ones, and updated ones.
CREATE FUNCTION make_items(rel text, type text, opclass text, options text DEFAULT '')
	RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE %I (id int, cat int, val %s(16)) WITH (fillfactor = 50)', rel,
		type);
	EXECUTE format('INSERT INTO %I SELECT id, 0, val FROM source WHERE id <= 2500', rel);
	EXECUTE format('INSERT INTO %1$I SELECT id, 0, val FROM %1$I WHERE id %% 7 = 0', rel);
	EXECUTE format('CREATE INDEX %1$I_idx ON %1$I USING gpugraph (val %2$s) %3$s', rel, opclass,
		options);
	EXECUTE format('INSERT INTO %I SELECT id, 0, val FROM source WHERE id > 2500 AND id <= 2950',
		rel);
END $$;
CREATE FUNCTION age(rel text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO %I SELECT id, 0, val FROM source WHERE id > 2950', rel);
	EXECUTE format('DELETE FROM %I WHERE id %% 5 = 1', rel);
	-- the index's column stays, so these are HOT updates
	EXECUTE format('UPDATE %I SET cat = cat + 1 WHERE id %% 3 = 0', rel);
	EXECUTE format('UPDATE %I SET cat = cat + 1 WHERE id %% 6 = 0', rel);
	EXECUTE format('UPDATE %I SET val = (SELECT val FROM source WHERE id = 1) WHERE id = 77', rel);
	EXECUTE format('INSERT INTO %I VALUES (0, 0, NULL)', rel);
END $$;

SELECT make_data('source', 3000, 16, 30);
SELECT make_queries('source', 30);

CREATE FUNCTION try_search(type text, metric text, op text, options text) RETURNS SETOF text
	LANGUAGE plpgsql AS $$
DECLARE
	what text := concat_ws(' ', type, metric, options);
BEGIN
	PERFORM age('items');
	RETURN NEXT is((SELECT format('%s %s', segments, delta_rows > 0)
		FROM gpugraph_index_info('items_idx')), '2 t', what || ': two segments and a delta');
	RETURN NEXT is(compare('items', op, type, 1), 'ok', what || ': the nearest');
	RETURN NEXT is(compare('items', op, type, 10), 'ok', what || ': ten');
	RETURN NEXT is(compare('items', op, type, 200), 'ok', what || ': two hundred');
	RETURN NEXT is(compare('items', op, type, 10000), 'ok', what || ': all');
END $$;
SELECT unnest(ARRAY[
	format($$SELECT make_items('items', %L, '%s_%s_ops', %L)$$, type, type, metric, options),
	'ALTER INDEX items_idx SET (seal_rows = 200)',
	'VACUUM items',
	'ALTER INDEX items_idx SET (seal_rows = 0)',
	format('SELECT try_search(%L, %L, %L, %L)', type, metric, op, options),
	'VACUUM items',
	format($$SELECT is(compare('items', %L, %L, 10), 'ok', 'after VACUUM')$$, op, type),
	$$SELECT gpugraph_merge('items_idx')$$,
	format($$SELECT is(compare('items', %L, %L, 10), 'ok', 'after a merge')$$, op, type),
	'DROP TABLE items'])
	FROM (VALUES (1, 'l2', '<->'), (2, 'ip', '<#>'), (3, 'cosine', '<=>'), (4, 'l1', '<+>'))
		m(i, metric, op)
	CROSS JOIN (VALUES ('vector', ''), ('halfvec', ''),
		('vector', 'WITH (storage = float16)')) t(type, options) \gexec

-- the order of settings
SELECT make_items('items', 'vector', 'vector_l2_ops');
SET gpugraph.iterative_scan = relaxed_order;
SELECT is(compare('items', '<->', 'vector', 300), 'ok', 'in relaxed order rows are sorted, too');
SET gpugraph.iterative_scan = off;
SELECT is((SELECT count(*) FROM gpugraph_search('items_idx',
	(SELECT array_agg(val) FROM queries WHERE q <= 3), 100)), 3 * 64::bigint,
	'a search that does not go on returns as many rows as its list is long');
RESET gpugraph.iterative_scan;

-- queries
-- one distance for each query: rows beyond it are left out
CREATE TEMP TABLE within AS SELECT array_agg(val ORDER BY q) AS vals,
	array_agg(CASE WHEN q % 4 = 0 THEN NULL WHEN q % 4 = 1 THEN 0 ELSE r END ORDER BY q) AS most
	FROM (SELECT q, val, (SELECT max(d) FROM (SELECT i.val <-> queries.val AS d FROM items i
		ORDER BY 1 LIMIT 3) n) AS r FROM queries) s;
SELECT results_eq($$SELECT s.* FROM within,
	gpugraph_search('items_idx', vals, 10, most) s ORDER BY 1, 3, 2$$,
	$$SELECT s.* FROM within, gpugraph_search('items_idx', vals, 10) s
	WHERE distance <= coalesce(most[query], 'infinity') ORDER BY 1, 3, 2$$, 'max_distance');
SELECT throws_ok($$SELECT s.* FROM within, gpugraph_search('items_idx', vals, 3, '{1}') s$$,
	'2202E', NULL, 'one distance for many queries');
SELECT is_empty($$SELECT * FROM gpugraph_search('items_idx', '{}'::vector[], 3)$$, 'no query');
SELECT is_empty($$SELECT * FROM gpugraph_search('items_idx', NULL::vector[], 3)$$,
	'NULL, which array_agg makes of no row');
SELECT results_eq($$SELECT DISTINCT query FROM gpugraph_search('items_idx',
	(SELECT ('[5:7]=' || array_agg(val)::text)::vector[] FROM queries WHERE q <= 3), 3)
	ORDER BY query$$, ARRAY[1, 2, 3], 'queries count from 1');
SELECT throws_ok($$SELECT * FROM gpugraph_search('items_idx',
	(SELECT array_agg(CASE WHEN q <> 2 THEN val END ORDER BY q) FROM queries), 3)$$, '22004',
	'query 2 is NULL');
SELECT throws_ok($$SELECT * FROM gpugraph_search('items_idx', ARRAY['[1,2]'::vector], 3)$$,
	'22000', 'query 1 has 2 dimensions, and index "items_idx" has 16');
SELECT throws_ok($$SELECT * FROM gpugraph_search('items_idx',
	(SELECT array_agg(val::halfvec) FROM queries), 3)$$, '42804',
	'queries are of type halfvec, and index "items_idx" is on a column of type vector');
SELECT throws_ok($$SELECT * FROM gpugraph_search('items_idx',
	(SELECT array_agg(val) FROM queries), 0)$$, '22023', 'k must be positive, not 0');

-- a zero query has no angle to anything
CREATE INDEX cosine_idx ON items USING gpugraph (val vector_cosine_ops);
SELECT results_eq($$SELECT count(*), count(*) FILTER (WHERE distance = 'NaN')
	FROM gpugraph_search('cosine_idx', ARRAY[('[' || repeat('0,', 15) || '0]')::vector], 5)$$,
	$$VALUES (5::bigint, 5::bigint)$$, 'a zero vector as query');

-- indexes
CREATE DOMAIN embedding AS vector(16);
CREATE TABLE of_domain (val embedding);
INSERT INTO of_domain SELECT val FROM items;
CREATE INDEX of_domain_idx ON of_domain USING gpugraph (val vector_l2_ops);
SELECT is((SELECT count(*) FROM gpugraph_search('of_domain_idx',
	(SELECT array_agg(val) FROM queries WHERE q <= 3), 5)), 15::bigint, 'a column of a domain');
CREATE TABLE none (val vector(16));
CREATE INDEX none_idx ON none USING gpugraph (val);
SELECT is_empty($$SELECT * FROM gpugraph_search('none_idx',
	(SELECT array_agg(val) FROM queries), 3)$$, 'an empty table');
CREATE INDEX part_idx ON items USING gpugraph (val) WHERE id % 10 = 3;
SELECT results_eq($$SELECT count(*), count(*) FILTER (WHERE id % 10 = 3)
	FROM gpugraph_search('part_idx', (SELECT array_agg(val) FROM queries WHERE q <= 4), 5) s
	JOIN items ON items.ctid = s.tid$$, $$VALUES (20::bigint, 20::bigint)$$,
	'a partial index has the rows that meet its predicate');
CREATE FUNCTION half(vector) RETURNS halfvec IMMUTABLE LANGUAGE sql AS $$
	SELECT $1::public.halfvec(16)
$$;
CREATE INDEX half_idx ON items USING gpugraph ((half(val)) halfvec_l2_ops);
SELECT is((SELECT count(*) FROM gpugraph_search('half_idx',
	(SELECT array_agg(val::halfvec) FROM queries), 5)), 150::bigint, 'an index on an expression');
CREATE INDEX btree_idx ON items (id);
SELECT throws_ok($$SELECT * FROM gpugraph_search('btree_idx', '{}'::vector[], 3)$$, '42809',
	'"btree_idx" is not a gpugraph index');
SELECT throws_ok($$SELECT * FROM gpugraph_search('items', '{}'::vector[], 3)$$, '42809',
	'"items" is not a gpugraph index');
CREATE TABLE parent (id int, val vector(16)) PARTITION BY LIST (id);
CREATE INDEX parent_idx ON parent USING gpugraph (val);
SELECT throws_ok($$SELECT * FROM gpugraph_search('parent_idx', '{}'::vector[], 3)$$, '42809',
	'"parent_idx" is a partitioned index');
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'part_idx'::regclass;
SELECT throws_ok($$SELECT * FROM gpugraph_search('part_idx', '{}'::vector[], 3)$$, '55000',
	'index "part_idx" is not valid');

-- the snapshot of the statement, and that of a transaction
BEGIN;
CREATE TEMP TABLE first AS SELECT tid FROM gpugraph_search('items_idx',
	(SELECT array_agg(val) FROM queries WHERE q = 1), 1);
DELETE FROM items WHERE ctid IN (SELECT tid FROM first);
SELECT is_empty($$SELECT * FROM gpugraph_search('items_idx',
	(SELECT array_agg(val) FROM queries WHERE q = 1), 1) s JOIN first USING (tid)$$,
	'a row that this transaction deleted is not found');
ROLLBACK;

-- what was found holds until the transaction ends: nobody can rewrite the table
BEGIN;
SELECT count(*) FROM gpugraph_search('items_idx', (SELECT array_agg(val) FROM queries), 1)
\g /dev/null
SELECT set_eq($$SELECT relation::regclass::text, mode FROM pg_locks
	WHERE pid = pg_backend_pid() AND relation IN ('items'::regclass, 'items_idx'::regclass)$$,
	$$VALUES ('items', 'AccessShareLock'), ('items_idx', 'AccessShareLock')$$,
	'table and index are locked as by a query');
COMMIT;

-- privileges
CREATE ROLE gg_all;
CREATE ROLE gg_columns;
CREATE ROLE gg_other;
CREATE ROLE gg_none;
GRANT SELECT ON items TO gg_all;
GRANT SELECT (val) ON items TO gg_columns;
GRANT SELECT (id) ON items TO gg_other;
GRANT SELECT ON queries TO PUBLIC;
UPDATE pg_index SET indisvalid = true WHERE indexrelid = 'part_idx'::regclass;
PREPARE ask(regclass) AS SELECT * FROM gpugraph_search($1,
	(SELECT array_agg(val) FROM queries WHERE q = 1), 1);
SET ROLE gg_all;
SELECT lives_ok($$EXECUTE ask('items_idx')$$, 'SELECT on the table');
SET ROLE gg_columns;
SELECT lives_ok($$EXECUTE ask('items_idx')$$, 'SELECT on the column');
SELECT throws_ok($$EXECUTE ask('part_idx')$$, '42501', 'permission denied for table items',
	'SELECT on the column, and a predicate on another one');
SELECT throws_ok($$SELECT * FROM gpugraph_knn_graph('part_idx', 1)$$, '42501');
SELECT throws_ok($$SELECT * FROM gpugraph_knn_graph('part_idx', 1, 'gnnd')$$, '42501');
SELECT throws_ok($$SELECT * FROM gpugraph_recall('part_idx', 1)$$, '42501');
SELECT throws_ok($$SELECT gpugraph_itopk_size('part_idx', 1, 0.9)$$, '42501');
SET ROLE gg_other;
SELECT throws_ok($$EXECUTE ask('items_idx')$$, '42501', 'permission denied for table items',
	'SELECT on another column');
SET ROLE gg_none;
SELECT throws_ok($$EXECUTE ask('items_idx')$$, '42501', 'permission denied for table items',
	'no privilege');
RESET ROLE;
ALTER TABLE items ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON items FOR SELECT USING (id < 100);
SELECT lives_ok($$EXECUTE ask('items_idx')$$, 'row-level security does not apply to a superuser');
SET ROLE gg_all;
SELECT throws_ok($$EXECUTE ask('items_idx')$$, '0A000',
	'row-level security applies to table "items"');
SELECT throws_ok($$SELECT * FROM gpugraph_knn_graph('items_idx', 1)$$, '0A000');
SELECT throws_ok($$SELECT * FROM gpugraph_knn_graph('items_idx', 1, 'gnnd')$$, '0A000');
SELECT throws_ok($$SELECT * FROM gpugraph_recall('items_idx', 1)$$, '0A000');
RESET ROLE;

SELECT * FROM finish();
