-- A table that is rewritten, by REPACK in both of its forms where the server has it, or by VACUUM
-- FULL and CLUSTER: the index answers as before; what changes meanwhile is in it.
\ir include/helpers.psql
SELECT * FROM no_plan();
SELECT current_setting('server_version_num')::int >= 190000 AS has_repack \gset

SELECT make_data('items', 4000, 16, 300);
SELECT make_queries('items', 30);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat) WITH (segment_rows = 1500);
CREATE INDEX coded_idx ON items USING gpugraph (val vector_l2_ops) WITH (storage = 'float32+int4');
CREATE INDEX cosine_idx ON items USING gpugraph (val vector_cosine_ops) WHERE cat < 40;
INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id % 4 = 0;
DELETE FROM items WHERE id % 5 = 0;

CREATE FUNCTION sound(after text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	rows_found bigint;
BEGIN
	RETURN QUERY SELECT lives_ok(format('SELECT gpugraph_check(%L, true)', name),
		after || ': ' || name) FROM unnest('{items_idx,coded_idx,cosine_idx}'::text[]) name;
	PERFORM use_index(true);
	SELECT count(DISTINCT id) INTO rows_found
		FROM (SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries LIMIT 1)) s;
	PERFORM use_index(false);
	RETURN NEXT is(rows_found, (SELECT count(*) FROM items), after || ': every row is found');
	RETURN NEXT cmp_ok(recall('items', '<->', 10, 'true'), '>=', 0.97, after || ': recall');
	RETURN NEXT cmp_ok(recall('items', '<->', 10, 'cat < 20'), '>=', 0.97,
		after || ': recall, of some rows');
	RETURN NEXT cmp_ok(recall('items', '<=>', 10, 'cat < 40'), '>=', 0.97,
		after || ': recall, by a partial index');
END $$;

\if :has_repack
\set rewrite 'REPACK items'
\set in_order 'REPACK items USING INDEX items_pkey'
\else
\set rewrite 'VACUUM FULL items'
\set in_order 'CLUSTER items USING items_pkey'
\endif
:rewrite;
SELECT sound('rewritten');
:in_order;
SELECT sound('rewritten in order');
SELECT is((SELECT count(*) FROM (SELECT id, lag(id) OVER (ORDER BY ctid) AS before FROM items) s
	WHERE id < before), 0::bigint, 'rewritten in order: so it is');
SELECT throws_ok(
	CASE WHEN :'has_repack' THEN 'REPACK items USING INDEX items_idx'
		ELSE 'CLUSTER items USING items_idx' END,
	'0A000', NULL,
	'a table has no order by a gpugraph index');

\if :has_repack
DELETE FROM items WHERE id % 7 = 0;
REPACK (CONCURRENTLY) items;
SELECT sound('rewritten while it is used');
REPACK (CONCURRENTLY) items USING INDEX items_pkey;
SELECT sound('rewritten in order while it is used');
INSERT INTO items SELECT id + 50000, cat, big, val FROM items WHERE id % 3 = 0;
DELETE FROM items WHERE id % 11 = 0;
VACUUM items;
SELECT sound('changed afterwards');
\endif

-- A scan needs an order: no setting makes the planner take one by filter columns alone.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT unalike(plan_of(statement), '%items_idx%', statement)
	FROM (VALUES ('SELECT count(*) FROM items WHERE cat = 3'), ('SELECT count(*) FROM items'),
		('SELECT id FROM items WHERE cat IN (1, 2)'), ('SELECT id FROM items WHERE cat IS NULL'),
		('SELECT cat, count(*) FROM items WHERE cat > 30 GROUP BY cat'),
		('SELECT a.id FROM items a JOIN items b ON a.cat = b.cat WHERE b.id = 1'),
		('UPDATE items SET big = 1 WHERE cat = 3')) s(statement);
SELECT is((SELECT count(*) FROM items WHERE cat = 3),
	(SELECT count(*) FILTER (WHERE cat = 3) FROM items), 'and the rows are right');

-- The handler's routine outlives each relcache entry that points at it.
CREATE FUNCTION reopen() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	answered int := 0;
BEGIN
	FOR i IN 1 .. 200 LOOP
		EXECUTE format('ALTER INDEX items_idx SET (seal_rows = %s)', 3000 + i);
		PERFORM id FROM items ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 3;
		answered := answered + 1;
	END LOOP;
	RETURN answered;
END $$;
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT is(reopen(), 200, 'an index is opened again and again');
SELECT * FROM finish();
