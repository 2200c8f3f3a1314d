-- Random statements with gpugraph.partition_probes have the rows of the plain plan whose condition
-- names the partitions: those that are for the nearest rows and have a limit. All others have the
-- rows of the plain plan.
--
--	psql -v seed=0.7 -v statements=5000 -f probes_attack.sql
\ir include/helpers.psql
SELECT * FROM no_plan();
\if :{?seed}
\else
	\set seed 0.42
\endif
\if :{?statements}
\else
	\set statements 500
\endif

CREATE DOMAIN embedding AS vector(3);
SELECT setseed(0.5) \g /dev/null
CREATE TABLE items AS SELECT i AS id, i % 5 AS cat,
	ARRAY[i % 12 * 3 + random(), random() * 4, random() - 0.5]::real[]::vector(3) AS v
	FROM generate_series(1, 900) i;
CREATE TABLE halves AS SELECT id, cat, v::halfvec(3) AS v FROM items;
CREATE TABLE domains AS SELECT id, cat, v::embedding AS v FROM items;
SELECT gpugraph_partition_by_centroid('items', 'v', 'one', 8);
SELECT gpugraph_partition_by_centroid('items', 'v', 'several', 8);
SELECT gpugraph_partition_by_centroid('halves', 'v', 'half', 6, 'cosine');
SELECT gpugraph_partition_by_centroid('domains', 'v', 'domain', 7);
-- partitions for several centroids, for all others, and those that are divided further
DROP TABLE several_3, several_4, several_5, several_6, several_7;
CREATE TABLE several_34 PARTITION OF several FOR VALUES IN (3, 4);
CREATE TABLE several_56 PARTITION OF several FOR VALUES IN (5, 6) PARTITION BY LIST
	(gpugraph_nearest_centroid('several_centroids()'::regprocedure, v));
CREATE TABLE several_56_5 PARTITION OF several_56 FOR VALUES IN (5);
CREATE TABLE several_56_6 PARTITION OF several_56 DEFAULT;
CREATE TABLE several_rest PARTITION OF several DEFAULT PARTITION BY HASH (id);
CREATE TABLE several_rest_0 PARTITION OF several_rest FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE several_rest_1 PARTITION OF several_rest FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO one SELECT * FROM items UNION ALL SELECT -i, i % 5, NULL FROM generate_series(1, 4) i;
INSERT INTO several SELECT * FROM one;
INSERT INTO half SELECT id, cat, v::halfvec FROM one;
INSERT INTO domain SELECT id, cat, v FROM one;
CREATE INDEX ON one USING gpugraph (v);
CREATE INDEX ON several USING gpugraph (v);
CREATE INDEX ON half USING gpugraph (v halfvec_cosine_ops);
ANALYZE one, several, half, domain, items;
CREATE TABLE queries AS
	SELECT q, ARRAY[random() * 40, random() * 4, random()]::real[]::vector AS val
	FROM generate_series(1, 20) q;
CREATE ROLE attack_reader;
GRANT SELECT, UPDATE ON one, several, half, domain, items, queries TO attack_reader;
ALTER TABLE several ENABLE ROW LEVEL SECURITY;
CREATE POLICY thirds ON several TO attack_reader USING (id % 3 <> 0);
-- whoever asks need not be allowed to call them
REVOKE EXECUTE ON FUNCTION half_centroids(), domain_centroids() FROM PUBLIC;

CREATE FUNCTION one_of(VARIADIC choices text[]) RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT choices[1 + floor(random() * cardinality(choices))::int] $$;

-- A statement's rows, whose first column is the distance, or an outer row's number before it.
CREATE FUNCTION rows_of(query text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
	r record;
	found text[] := '{}';
BEGIN
	FOR r IN EXECUTE query LOOP
		found := found || r::text;
	END LOOP;
	RETURN found;
EXCEPTION WHEN OTHERS THEN
	RETURN ARRAY[SQLERRM];
END $$;

-- One statement. NULL: its rows are those that are expected.
CREATE FUNCTION attack() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	tab text := one_of('one', 'one', 'several', 'several', 'half', 'domain');
	type text := CASE tab WHEN 'half' THEN 'halfvec' ELSE 'vector' END;
	op text := one_of('<->', '<->', '<#>', '<=>', '<+>');
	ord text := one_of('', '', '', '', 'ASC', 'USING <', 'DESC', 'USING >', 'NULLS FIRST',
		'NULLS LAST');
	form text := one_of('constant', 'constant', 'subquery', 'parameter', 'parameter', 'outer',
		'outer join');
	lim text := one_of('3', '10', '40', '10', '100', 'NULL', '3', '10', NULL);
	lim_form text := one_of('constant', 'parameter', 'parameter', 'subquery', 'outer');
	ties boolean := random() < 0.15;
	off text := one_of('', '', '', '', '0', '5', 'NULL');
	cond text := one_of('', '', '', 'p.cat < 2', 'p.id % 2 = 0', 'p.v IS NOT NULL',
		'p.id > 100000');
	-- the last one keeps the rows of the other side
	joined text := one_of('', '', '', ' LEFT JOIN items i ON i.id = -p.id', 'items i LEFT JOIN ');
	locks boolean := random() < 0.1;
	probes int := floor(random() * 10);
	query vector := (SELECT val FROM queries ORDER BY random() LIMIT 1);
	q text;
	l text;
	distance text;
	body text;
	plain text;
	asked text;
	eligible boolean;
	statement text;
	expected text;
	wanted text[];
	found text[];
	setting text;
BEGIN
	-- indexes have no rows without a vector
	IF tab <> 'domain' AND ord !~ 'DESC|>|FIRST' THEN
		cond := concat_ws(' AND ', nullif(cond, ''), 'p.v IS NOT NULL');
	END IF;
	IF form ~ 'outer' THEN
		joined := '';
		locks := false;
	END IF;
	IF joined !~ '^items' AND random() < 0.2 THEN
		cond := concat_ws(' AND ', nullif(cond, ''), one_of(
			'EXISTS (SELECT FROM items x WHERE x.id = p.id AND x.cat < 3)',
			'NOT EXISTS (SELECT FROM items x WHERE x.id = p.id AND x.cat < 3)',
			'p.id IN (SELECT id FROM items WHERE cat = 1)'));
	END IF;
	IF ties THEN
		off := '';
		IF lim = 'NULL' THEN
			lim_form := 'parameter';
		END IF;
	END IF;
	IF lim_form = 'outer' AND form !~ 'outer' THEN
		lim_form := 'parameter';
	END IF;
	q := CASE form WHEN 'constant' THEN format('%L::%s', query, type)
		WHEN 'subquery' THEN format('(SELECT val::%s FROM queries WHERE val = %L)', type, query)
		WHEN 'parameter' THEN '$1' ELSE 'o.val::' || type END;
	l := CASE lim_form WHEN 'constant' THEN lim WHEN 'parameter' THEN '$2'
		WHEN 'subquery' THEN format('(SELECT %s::int)', lim) ELSE 'o.l' END;
	distance := CASE WHEN random() < 0.5 THEN format('p.v %s %s', op, q)
		ELSE format('%s %s p.v', q, op) END;
	-- a condition on the side that may be NULL makes a plain join of it
	eligible := probes > 0 AND lim <> 'NULL' AND ord NOT IN ('DESC', 'USING >') AND
		(joined !~ '^items' OR cond <> '');
	body := format('SELECT %sround((%s)::numeric, 4) AS d%s FROM %s%s p%s%s ORDER BY %s %s%s',
		CASE WHEN form ~ 'outer' THEN 'o.q, ' ELSE '' END, distance,
		CASE WHEN random() < 0.3 AND NOT ties THEN ', p.v IS NULL' ELSE '' END,
		CASE WHEN joined ~ '^items' THEN joined ELSE '' END, tab,
		CASE WHEN form = 'outer join' THEN ' JOIN items i USING (id)'
			WHEN joined ~ '^items' THEN ' ON p.id = i.id AND i.cat < 4' ELSE joined END,
		CASE WHEN cond <> '' THEN ' WHERE ' || cond ELSE '' END, distance, ord,
		CASE WHEN random() < 0.2 AND NOT ties THEN ', p.id' ELSE '' END);
	statement := body || CASE WHEN lim IS NULL THEN ''
		WHEN ties THEN format(' FETCH FIRST %s ROWS WITH TIES',
			CASE WHEN l ~ '^\d+$' THEN l ELSE '(' || l || ')' END)
		ELSE ' LIMIT ' || l END || CASE WHEN off <> '' THEN ' OFFSET ' || off ELSE '' END
		|| CASE WHEN locks AND joined = '' THEN ' FOR UPDATE OF p' ELSE '' END;
	-- the same with a condition that names the partitions
	asked := format('gpugraph_nearest_centroid(''%s_centroids()'', p.v::%s) IN (%s%s)', tab, type,
		(SELECT string_agg(format('gpugraph_probe(''%s_centroids()'', %L, %s, %s)', tab, op, q, i),
		', ') FROM generate_series(1, probes) i),
		CASE ord WHEN 'NULLS FIRST' THEN ', 1' ELSE '' END);
	expected := CASE WHEN eligible THEN CASE WHEN cond <> ''
		THEN replace(statement, ' WHERE ', ' WHERE ' || asked || ' AND ')
		ELSE regexp_replace(statement, ' ORDER BY ', ' WHERE ' || asked || ' ORDER BY ') END
		ELSE statement END;
	IF form ~ 'outer' THEN
		statement := format('SELECT s.* FROM (SELECT q, val, %s::int AS l FROM queries WHERE q <= 4
			ORDER BY q OFFSET 0) o, LATERAL (%s) s', coalesce(lim, 'NULL'), statement);
		expected := format('SELECT s.* FROM (SELECT q, val, %s::int AS l FROM queries WHERE q <= 4
			ORDER BY q OFFSET 0) o, LATERAL (%s) s', coalesce(lim, 'NULL'), expected);
	END IF;
	-- the plain plan
	PERFORM set_config('gpugraph.partition_probes', '0', true),
		set_config('enable_indexscan', 'off', true), set_config('plan_cache_mode', 'auto', true),
		set_config('max_parallel_workers_per_gather', '0', true);
	wanted := rows_of(replace(replace(expected, '$1', format('%L::%s', query, type)), '$2',
		coalesce(lim, 'NULL') || '::bigint'));
	setting := format('enable_indexscan = %s, enable_seqscan = %s, enable_sort = %s,
		enable_partition_pruning = %s, plan_cache_mode = %s, max_parallel_workers_per_gather = %s,
		enable_partitionwise_join = %s, constraint_exclusion = %s, enable_hashjoin = %s,
		enable_nestloop = %s, gpugraph.partition_probes = %s, role = %s',
		one_of('on', 'off'), one_of('on', 'off'), one_of('on', 'on', 'off'),
		one_of('on', 'on', 'on', 'off'), one_of('auto', 'force_generic_plan', 'force_custom_plan'),
		one_of('0', '0', '2'), one_of('on', 'off'), one_of('on', 'partition'), one_of('on', 'off'),
		one_of('on', 'off'), probes, 'none');
	PERFORM set_config(split_part(s, ' = ', 1), split_part(s, ' = ', 2), true)
		FROM regexp_split_to_table(setting, ',\s+') s;
	IF statement ~ '\$[12]' THEN
		EXECUTE format('PREPARE attack(%s, bigint) AS %s', type, statement);
		PERFORM set_config('role', CASE WHEN tab <> 'several' AND random() < 0.3
			THEN 'attack_reader' ELSE 'none' END, true);
		found := rows_of(format('EXECUTE attack(%L, %s)', query, coalesce(lim, 'NULL')));
		IF random() < 0.3 THEN
			found := rows_of(format('EXECUTE attack(%L, %s)', query, coalesce(lim, 'NULL')));
		END IF;
		PERFORM set_config('role', 'none', true);
		DEALLOCATE attack;
	ELSE
		PERFORM set_config('role', CASE WHEN tab <> 'several' AND random() < 0.3
			THEN 'attack_reader' ELSE 'none' END, true);
		found := rows_of(statement);
		PERFORM set_config('role', 'none', true);
	END IF;
	IF found = wanted THEN
		RETURN NULL;
	END IF;
	RETURN concat_ws(E'\n', statement, query, lim, setting, cardinality(found) || ' rows: '
		|| found[:12]::text, cardinality(wanted) || ' wanted: ' || wanted[:12]::text);
END $$;

SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
-- so that walks find the nearest rows of these small indexes
SET gpugraph.itopk_size = 200;
SELECT setseed(:seed) \g /dev/null
SELECT is_empty(format($$SELECT difference FROM (SELECT attack() AS difference
	FROM generate_series(1, %s)) a WHERE difference IS NOT NULL LIMIT 3$$, :statements),
	'random statements');
RESET ROLE;
DROP OWNED BY attack_reader;
DROP ROLE attack_reader;
SELECT * FROM finish();
