-- The bug: under a filter, with gpugraph.itopk_size below 4, a list could be followed by one of the
-- same length.  Planner and scan asked for a longer one for ever, and did not look for interrupts.
-- The fix: a list is followed by a longer one, or by none.  Both look for interrupts.
\ir include/helpers.psql
SELECT * FROM no_plan();
SET statement_timeout = '60s';

CREATE FUNCTION make_table(rows int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	DROP TABLE IF EXISTS items;
	CREATE TABLE items AS SELECT i AS id, i * 37 % 100 AS cat,
		ARRAY[i, i * i % 101, i % 7]::real[]::vector(3) AS val FROM generate_series(1, rows) i;
	CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat);
	ANALYZE items;
END $$;

-- the scans, of all shares of rows that match, that do not return what the LIMIT asks for
CREATE FUNCTION wrong_scans(rows int, itopk int, mode text, wanted int) RETURNS int
	LANGUAGE plpgsql AS $$
DECLARE
	wrong int := 0;
	matching int;
	found int;
BEGIN
	PERFORM set_config('gpugraph.itopk_size', itopk::text, true),
		set_config('gpugraph.iterative_scan', mode, true), use_index(true);
	FOR share IN 1 .. 100 LOOP
		EXECUTE format('SELECT count(*) FROM (SELECT id FROM items WHERE cat < %s
			ORDER BY val <-> %L LIMIT %s) s', share, '[50,50,3]', wanted) INTO found;
		EXECUTE format('SELECT count(*) FROM items WHERE cat < %s', share) INTO matching;
		wrong := wrong + (found <> least(matching, wanted))::int;
	END LOOP;
	RETURN wrong;
END $$;

SELECT make_table(100);
SELECT is(wrong_scans(100, itopk, mode, 20), 0, format('100 rows, itopk_size %s, %s', itopk, mode))
	FROM generate_series(1, 8) itopk, unnest('{relaxed_order,strict_order}'::text[]) mode;
SELECT make_table(700);
SELECT is(wrong_scans(700, itopk, mode, 50), 0, format('700 rows, itopk_size %s, %s', itopk, mode))
	FROM generate_series(1, 8) itopk, unnest('{relaxed_order,strict_order}'::text[]) mode;

SELECT * FROM finish();
