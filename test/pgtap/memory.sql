-- Searches, inserts and builds give back their memory, also after an error and inside one long
-- statement
\ir include/helpers.psql
SELECT * FROM no_plan();

SELECT make_data('items', 4000, 16, 30);
SELECT make_queries('items', 20);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
SELECT use_index(true);

-- kB of data of this process, malloc'd memory of the engine included; NULL where there is no /proc
CREATE FUNCTION data_kb() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	RETURN substring(pg_read_file('/proc/self/status') FROM 'VmData:\s+(\d+)')::bigint;
EXCEPTION WHEN OTHERS THEN
	RETURN NULL;
END $$;
CREATE FUNCTION search(times int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	query vector;
BEGIN
	FOR i IN 1 .. times LOOP
		SELECT val INTO query FROM queries WHERE q = 1 + i % 20;
		PERFORM id FROM items ORDER BY val <-> query LIMIT 10;
	END LOOP;
END $$;
CREATE FUNCTION fail(times int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. times LOOP
		BEGIN
			PERFORM 1 / (id * 0)
				FROM (SELECT id FROM items
				ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 10) s;
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
	END LOOP;
END $$;

SELECT search(300);
SELECT data_kb() AS before \gset
SELECT search(2000);
SELECT cmp_ok(coalesce(data_kb() - :before, 0), '<', 2000::bigint, '2000 searches');

SELECT fail(50);
SELECT data_kb() AS before \gset
SELECT fail(1000);
SELECT cmp_ok(coalesce(data_kb() - :before, 0), '<', 2000::bigint, '1000 searches that failed');

-- one statement that rescans: what a rescan allocates must not live as long as the statement
CREATE FUNCTION rescans(n int) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM generate_series(1, n) g, LATERAL
		(SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1 + g % 20)
		LIMIT 5) s $$;
SELECT rescans(300);
SELECT data_kb() AS before \gset
SELECT is(rescans(4000), 20000::bigint, '4000 rescans in one statement');
SELECT cmp_ok(coalesce(data_kb() - :before, 0), '<', 4000::bigint, '4000 rescans');

INSERT INTO items SELECT 10000 + id, cat, big, val FROM items WHERE id <= 100;
SELECT data_kb() AS before \gset
INSERT INTO items SELECT 20000 + id, cat, big, val FROM items WHERE id <= 4000;
SELECT cmp_ok(coalesce(data_kb() - :before, 0), '<', 4000::bigint, '4000 inserts');

-- malloc's own thresholds and arenas settle with the first ones
REINDEX INDEX items_idx;
REINDEX INDEX items_idx;
REINDEX INDEX items_idx;
SELECT data_kb() AS before \gset
REINDEX INDEX items_idx;
REINDEX INDEX items_idx;
REINDEX INDEX items_idx;
SELECT cmp_ok(coalesce(data_kb() - :before, 0), '<', 4000::bigint, 'three builds');

SELECT gpugraph_check('items_idx', true);
SELECT data_kb() AS before \gset
SELECT gpugraph_check('items_idx', true) FROM generate_series(1, 10);
SELECT cmp_ok(coalesce(data_kb() - :before, 0), '<', 2000::bigint, 'ten checks');

SELECT * FROM finish();
