-- Conditions on filter columns are index conditions, and the index answers as the table does:
-- every type and operator, NULLs, values of other types, lists, more than a filter has room for
\ir include/helpers.psql
SELECT * FROM no_plan();
-- dates and timestamps are compared with timestamptz in this zone
SET timezone = 'America/St_Johns';

CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
ALTER TYPE mood ADD VALUE 'meh' BEFORE 'ok';
CREATE DOMAIN price AS int CHECK (value >= 0);
CREATE DOMAIN int_list AS int[];
-- from PostgreSQL 16 on a server without ICU has rows of that provider, too
SELECT EXISTS (SELECT FROM pg_collation WHERE collname = 'und-x-icu') AS icu \gset
\if :icu
CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
\else
CREATE COLLATION anycase FROM "C";
\endif

CREATE FUNCTION bits(n int) RETURNS int LANGUAGE sql IMMUTABLE
	RETURN ('x' || substr(md5(n::text), 1, 7))::bit(28)::int;
-- rows lo to hi of the same contents whatever the table; each column is NULL somewhere, four rows
-- share a vector
CREATE FUNCTION fill(rel text, lo int, hi int) RETURNS void LANGUAGE plpgsql AS $fill$
BEGIN
	EXECUTE format($$
		INSERT INTO %I SELECT i, ARRAY[bits(i / 4), bits(i / 4 + 100000), bits(i / 4 + 200000)],
			nullif(bits(i + 1) %% 3, 2) = 1,
			nullif(bits(i + 2) %% 100, 99) - 50,
			nullif(bits(i + 3) %% 1000, 999) * 100 - 50000,
			CASE bits(i + 4) %% 50 WHEN 0 THEN NULL WHEN 1 THEN -9223372036854775808
				WHEN 2 THEN 9223372036854775807 ELSE (bits(i + 4) %% 50) * 1000000007::bigint END,
			(ARRAY['NaN', 'Infinity', '-Infinity', '0', '-0', '0.1', '1e30', NULL, '-5', '3.5']::
				real[])[1 + bits(i + 5) %% 10],
			(ARRAY['NaN', 'Infinity', '-Infinity', '0', '-0', '0.1', '1e300', NULL, '-5', '3.5']::
				float8[])[1 + bits(i + 6) %% 10],
			CASE bits(i + 7) %% 40 WHEN 0 THEN NULL WHEN 1 THEN 'infinity' WHEN 2 THEN '-infinity'
				WHEN 3 THEN '5000000-01-01' ELSE date '1999-12-12' + bits(i + 7) %% 40 END,
			CASE bits(i + 8) %% 40 WHEN 0 THEN NULL WHEN 1 THEN 'infinity' WHEN 2 THEN '-infinity'
				ELSE timestamp '1999-12-12' + bits(i + 8) %% 40 * interval '12:00' END,
			CASE bits(i + 9) %% 40 WHEN 0 THEN NULL WHEN 1 THEN 'infinity' WHEN 2 THEN '-infinity'
				ELSE timestamptz '1999-12-12 00:00+00' + bits(i + 9) %% 40 * interval '12:00' END,
			CASE WHEN bits(i + 10) %% 9 > 0 THEN
				overlay(md5((bits(i + 10) %% 50)::text) placing repeat('8', 16)
					FROM 1 + bits(i + 10) %% 2 * 16)::uuid END,
			(ARRAY['sad', 'meh', 'ok', 'happy', NULL]::mood[])[1 + bits(i + 11) %% 5],
			nullif('t' || bits(i + 12) %% 100, 't7'),
			nullif('v' || bits(i + 13) %% 100, 'v7'),
			(ARRAY['abc', 'ABC', 'aBc', 'abd', NULL])[1 + bits(i + 14) %% 5],
			CASE bits(i + 15) %% 9 WHEN 0 THEN NULL WHEN 1 THEN '{}' WHEN 2 THEN ARRAY[NULL, 1]
				ELSE ARRAY[bits(i + 15) %% 7, bits(i + 16) %% 30, bits(i + 17) %% 300] END,
			CASE bits(i + 18) %% 9 WHEN 0 THEN NULL WHEN 1 THEN '{}' WHEN 2 THEN '{{1,2},{3,-4}}'
				ELSE ARRAY[-(bits(i + 18) %% 7), bits(i + 19) %% 30] END,
			CASE bits(i + 20) %% 9 WHEN 0 THEN NULL WHEN 1 THEN '{}' WHEN 2 THEN ARRAY[NULL]
				ELSE ARRAY['a' || bits(i + 20) %% 7, repeat('long', 50) || bits(i + 21) %% 30] END
		FROM generate_series(%s, %s) i $$, rel, lo, hi);
END $fill$;
CREATE TABLE t (id int PRIMARY KEY, val vector(3), flag bool, i2 smallint, i4 price, i8 bigint,
	f4 real, f8 float8, day date, ts timestamp, tz timestamptz, uid uuid, mood mood, txt text,
	vc varchar(10), cased text COLLATE anycase, ints int_list, smalls smallint[], words varchar[]);
ALTER DOMAIN price DROP CONSTRAINT price_check;
SELECT fill('t', 1, 2000);
-- the same rows with other filter columns
CREATE TABLE u AS SELECT * FROM t;
CREATE INDEX t_idx ON t USING gpugraph (val, flag, i2, i4, i8, f4, f8, day, ts);
CREATE INDEX u_idx ON u USING gpugraph (val, tz, uid, mood, txt, vc, cased, ints, words);
CREATE TABLE v AS SELECT * FROM t;
CREATE INDEX v_idx ON v USING gpugraph (val, smalls);
SELECT fill(rel, 2001, 2500) FROM unnest('{t,u,v}'::text[]) rel;
UPDATE t SET i4 = i4 + 100 WHERE id % 7 = 0;
UPDATE u SET txt = txt || '!', ints = ints || 5 WHERE id % 7 = 0;
DELETE FROM t WHERE id % 31 = 0;
DELETE FROM u WHERE id % 31 = 0;
VACUUM ANALYZE t, u, v;
-- the table whose index has the columns of a condition
CREATE FUNCTION table_for(condition text) RETURNS text LANGUAGE sql RETURN CASE
	WHEN condition ~ '\m(tz|uid|mood|txt|vc|cased|ints|words)\M' THEN 'u'
	WHEN condition ~ 'smalls' THEN 'v' ELSE 't' END;

-- the nearest rows that fulfil a condition, by the index and without it
CREATE FUNCTION nearest(condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE format($q$SELECT string_agg(format('%%s:%%s', d, ids), ' ') FROM (
		SELECT d, count(*) AS n, array_agg(id ORDER BY id) AS ids FROM (
			SELECT id, (val <-> '[1e8,1e8,1e8]')::real AS d FROM %s WHERE %s
			ORDER BY val <-> '[1e8,1e8,1e8]' LIMIT 5000) s GROUP BY d ORDER BY d) s $q$,
		table_for(condition), condition)
		INTO answer;
	RETURN answer;
END $$;
CREATE FUNCTION same(condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	truth text;
	answer text;
	plan text;
BEGIN
	PERFORM use_index(false);
	truth := nearest(condition);
	PERFORM use_index(true);
	answer := nearest(condition);
	plan := plan_of(format('SELECT id FROM %s WHERE %s ORDER BY val <-> ''[1,1,1]'' LIMIT 5',
		table_for(condition), condition));
	RETURN CASE
		WHEN truth IS DISTINCT FROM answer THEN
			fail(condition) || E'\n' || diag(truth) || E'\n' || diag(answer)
		WHEN plan !~ 'Index Cond' OR plan ~ 'Filter' THEN
			fail(condition) || E'\n' || diag(plan)
		ELSE pass(condition) END;
END $$;

-- six operators of every ordered type against values of the column, between them and beyond them
SELECT same(format('%s %s %s', col, op, val))
FROM (VALUES ('i2', '-50, -51, 7, 48, 49::bigint, 70000, -70000::bigint, 9223372036854775807'),
	('i4', '-50000, 0, 100::smallint, 150, 9223372036854775807, (-9223372036854775808)::bigint'),
	('i8', '(-9223372036854775808)::bigint, 9223372036854775807, 5, 5000000035, 1::smallint'),
	('f4', '''NaN''::float8, ''-Infinity''::float8, ''Infinity''::real, 0.0::float8, ' ||
		'''-0''::real, 0.1::float8, 0.1::real, 1e300::float8, 3.5::float8'),
	('f8', '''NaN'', ''-Infinity'', ''Infinity''::real, 0.0, ''-0''::real, 0.1::real, 1e30, 3.5'),
	('day', '''1999-12-20'', ''infinity'', ''-infinity'', timestamp ''1999-12-20'', ' ||
		'timestamp ''1999-12-20 00:00:01'', timestamp ''infinity'', timestamp ''-infinity'', ' ||
		'timestamp ''294276-12-31'', date ''5000000-01-01'''),
	('ts', '''1999-12-20 12:00'', ''infinity'', date ''1999-12-20'', date ''infinity'', ' ||
		'date ''-infinity'', date ''5000000-01-01'', ''4000-01-01 BC'''),
	('tz', '''1999-12-20 12:00+00'', ''infinity'', ''-infinity'', ''1999-12-20 12:00:01+00'', ' ||
		'date ''1999-12-20'', date ''infinity'', date ''-infinity'', date ''5000000-01-01'', ' ||
		'date ''4713-01-01 BC'', timestamp ''1999-12-20 05:00'', timestamp ''infinity'', ' ||
		'timestamp ''-infinity'', timestamp ''294276-12-31 23:59'', ' ||
		'timestamp ''4714-11-24 BC'''),
	('uid', '''88888888-8888-8888-8888-888888888888'', ' ||
		'''00000000-0000-0000-0000-000000000000'', ' ||
		'''ffffffff-ffff-ffff-ffff-ffffffffffff'', (SELECT min(uid::text)::uuid FROM u), ' ||
		'(SELECT max(uid::text)::uuid FROM u)'),
	('mood', '''sad'', ''meh'', ''ok'', ''happy''')) c(col, vals),
	unnest(string_to_array(vals, ', ')) val, unnest('{<,<=,=,>=,>}'::text[]) op;
SELECT same(condition) FROM unnest(ARRAY[
	'5 > i2', '100 <= i4', 'i4 BETWEEN 0 AND 1000', 'i4 BETWEEN 1000 AND 0', 'i4 > 5 AND i4 < 2000',
	'flag', 'NOT flag', 'flag IS TRUE', 'flag IS FALSE', 'flag IS NULL', 'flag < true',
	'flag = (SELECT true)', 'flag >= (SELECT false)', 'flag IS NOT NULL',
	'i4 IS NULL', 'i4 IS NOT NULL', 'i4 IS NULL AND i2 = 3', 'i4 IS NULL AND i4 > 3',
	'ints IS NULL', 'words IS NOT NULL', 'f4 IS NULL AND f8 IS NULL',
	'i2 = (SELECT NULL::int)', 'txt = (SELECT NULL::text)',
	'i2 > 0 AND i4 > 0 AND f4 > 0 AND day > ''1999-12-15'' AND flag',
	-- lists
	'i2 IN (1, 2, 3, 48, 900)', 'i4 IN (100, -100, 700)', 'i8 IN (5000000035, 6, 9000000063)',
	'i2 = ANY (ARRAY[1, NULL, 70000])', 'i2 = ANY (''{}''::int[])', 'i2 = ANY (ARRAY[NULL]::int[])',
	'i2 = ANY (NULL::int[])',
	'i2 = ANY ((SELECT array_agg(i) FROM generate_series(1, 9) i)::int[])',
	'i2 < ANY (ARRAY[-40, NULL, -45])', 'i2 >= ANY (ARRAY[40, 45])', 'i2 < ANY (''{}''::int[])',
	'i2 IN (1, 2, 3) AND i2 IN (2, 3, 4) AND i2 > 2', 'i2 IN (1, 2) AND i2 IN (3, 4)',
	'f8 IN (''NaN'', 0, 3.5, 17)', 'f4 IN (0.1::real, 3.5::real)', 'flag IN (true, false)',
	'day IN (''1999-12-20'', ''infinity'')', 'ts = ANY (ARRAY[''1999-12-20''::date, ''infinity''])',
	'day = ANY (ARRAY[''1999-12-20''::timestamp, ''1999-12-21 12:00''])',
	'uid IN (''88888888-8888-8888-8888-888888888888'', (SELECT max(uid::text)::uuid FROM t))',
	'mood IN (''sad'', ''happy'')', 'mood < ANY (ARRAY[''meh'', ''sad'']::mood[])',
	'mood > ''sad'' AND mood < ''happy''', 'mood > ''meh'' AND mood < ''ok''', 'mood > ''happy''',
	'mood >= ''sad''', 'mood IS NULL', 'mood = ANY (ARRAY[NULL, ''ok'']::mood[])',
	-- texts
	'txt = ''t5''', 'txt = ''none''', 'txt = ''''', 'txt IN (''t5'', ''t6'', ''none'')',
	'vc = ''v5''', 'vc = ''v5''::varchar', 'vc IN (''v5'', ''v6'')',
	'vc = ''v5'' AND txt = ANY (ARRAY[''t1'', NULL, ''t5'', ''t9''])',
	'cased = ''abc''', 'cased = ''ABD''', 'cased IN (''ABC'', ''xyz'')', 'cased IS NOT NULL',
	-- arrays
	'ints && ''{3}''', 'ints && ''{1,2,299}''', 'ints && ''{}''', 'ints && ''{NULL}''',
	'ints && ARRAY[NULL, 1]', 'ints @> ''{3}''', 'ints @> ''{3,5}''', 'ints @> ''{}''',
	'ints @> ARRAY[NULL, 1]', 'ints @> ''{1,2,3,4,5,6,7,8,9}''',
	'ints && ''{1,2}'' AND ints @> ''{5}''',
	'ints @> ''{5}'' AND ints @> ''{6}''', 'words && ARRAY[''a1'', ''none'']::varchar[]',
	'words @> ARRAY[''a1'', repeat(''long'', 50) || ''7'']::varchar[]', '''{3}'' <@ ints',
	'smalls && ''{-4,2}''', 'smalls @> ''{-4,1}''::smallint[]',
	'smalls @> ''{29}'' AND smalls && ''{-1}''',
	'ints && ANY (ARRAY[''{3}'', ''{5,6}'']::int_list[])',
	-- more than a filter has room for
	'i4 = ANY (ARRAY(SELECT i * 100 - 50000 FROM generate_series(1, 990, 2) i) || ARRAY(SELECT i
		FROM generate_series(1, 3000) i))',
	'i2 = ANY (ARRAY(SELECT i FROM generate_series(0, 5000, 2) i)::bigint[])',
	'ints && ARRAY(SELECT i FROM generate_series(100, 900) i)',
	'ints && ARRAY(SELECT i FROM generate_series(1, 200) i) AND
		ints && ARRAY(SELECT i FROM generate_series(2, 150) i)',
	'ints @> ARRAY(SELECT i FROM generate_series(1, 2000) i)',
	(SELECT string_agg(format('ints && ''{%s,%s,%s}''', i, i + 1, 5), ' AND ')
		FROM generate_series(1, 20) i)]) condition;

-- where words say less than values do, only some of the conditions are the index's
SELECT use_index(true);
SELECT matches(plan_of($$SELECT id FROM u WHERE txt LIKE 't5' AND txt > 't3'
	ORDER BY val <-> '[1,1,1]' LIMIT 5$$),
	'Index Cond: \(txt = ''t5''::text\).*Filter: .*txt ~~ ''t5''',
	'texts are compared for equality alone');

-- vectors that are NULL
INSERT INTO t (id, i4) SELECT -i, 100 FROM generate_series(1, 50) i;
SELECT is(nearest('val IS NOT NULL AND i4 = 100'), nearest('i4 = 100 AND id > 0'),
	'IS NOT NULL of the vector');
SELECT matches(plan_of($$SELECT id FROM t WHERE val IS NOT NULL AND i4 = 100
	ORDER BY val <-> '[1,1,1]' LIMIT 5$$), 'Index Scan using t_idx', 'by the index');
CREATE FUNCTION nulls_of(filter text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM (SELECT id FROM t WHERE val IS NULL AND %s
		ORDER BY val <-> %L LIMIT 100) s', filter, '[1,1,1]') INTO n;
	RETURN n;
END $$;
SELECT is(nulls_of('true'), 50::bigint, 'IS NULL of the vector finds them');
SELECT is(nulls_of('i4 = 100'), 50::bigint, '... with a condition');
SELECT is(nulls_of('i4 IN (99, 100)'), 50::bigint, '... with a list');
DELETE FROM t WHERE id < 0;

-- plans
CREATE FUNCTION asks(sql text, what text) RETURNS text LANGUAGE sql AS $$
	SELECT matches(plan_of(sql), 'Index Cond: .*Order By: ', what) $$;
SELECT asks('SELECT q.id, n.id FROM t q, LATERAL (SELECT id FROM t WHERE i4 = q.i4 AND
	flag ORDER BY val <-> q.val LIMIT 3) n WHERE q.id < 4', 'conditions from the outer side');
SELECT asks('SELECT id FROM t WHERE flag AND i2 IN (1, 2, 3) AND 5 < i4 AND i8 IS NULL
	ORDER BY ''[1,1,1]'' <-> val LIMIT 3', 'commuted');
PREPARE by_list(int[], vector) AS SELECT id FROM t WHERE i2 = ANY ($1) ORDER BY val <-> $2 LIMIT 5;
SET plan_cache_mode = force_generic_plan;
SELECT asks('EXECUTE by_list(''{1,2,3}'', ''[1,1,1]'')', 'a list that is a parameter');
RESET plan_cache_mode;
SELECT is((SELECT count(*) FROM t q, LATERAL (SELECT id FROM t WHERE i2 = q.i2 AND id <> q.id
	ORDER BY val <-> q.val LIMIT 2) n WHERE q.id < 20 AND q.i2 IS NOT NULL),
	(SELECT 2 * count(*) FROM t q WHERE q.id < 20 AND q.i2 IS NOT NULL), 'rescans');
-- lists that a join brings
CREATE TABLE lists AS SELECT id, val, CASE id % 4 WHEN 0 THEN NULL WHEN 1 THEN '{}'
	ELSE ARRAY[i4, NULL, i4 + 100] END::int[] AS list FROM t WHERE id <= 40;
ANALYZE lists;
CREATE FUNCTION joined(list text) RETURNS text LANGUAGE sql RETURN format('SELECT q.id, n.id,
	n.d FROM lists q, LATERAL (SELECT id, val <-> q.val AS d FROM t WHERE i4 = ANY (%s)
	ORDER BY val <-> q.val LIMIT 4) n', list);
CREATE FUNCTION joined_sums(sql text, by_index boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	sums text;
BEGIN
	PERFORM use_index(by_index);
	EXECUTE format('SELECT count(*) || '' '' || sum(d)::numeric(20, 4) FROM (%s) s', sql) INTO sums;
	PERFORM use_index(true);
	RETURN sums;
END $$;
SELECT asks(joined('q.list'), 'a list that a join brings');
SELECT asks(joined('ARRAY[q.id * 100, 500]'), 'a list that is made of what a join brings');
SELECT asks('SELECT array(SELECT id FROM t WHERE i4 = ANY (q.list) ORDER BY val <-> q.val LIMIT 2)
	FROM lists q', 'in a subquery of the target list, too');
SELECT is(joined_sums(joined('q.list'), true), joined_sums(joined('q.list'), false),
	'lists that a join brings: rows');
SELECT is(joined_sums(joined('ARRAY[q.id * 100, 500]'), true),
	joined_sums(joined('ARRAY[q.id * 100, 500]'), false), 'lists made of what it brings: rows');
CREATE TABLE parts (id int, val vector(3), cat int) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (1000) TO (3000);
INSERT INTO parts SELECT id, val, i2 FROM t;
CREATE INDEX parts_idx ON parts USING gpugraph (val, cat);
SELECT asks('SELECT id FROM parts WHERE cat IN (1, 2) ORDER BY val <-> ''[1,1,1]'' LIMIT 5',
	'partitions');
CREATE INDEX t_expression ON t USING gpugraph (val, (i8 % 5), lower(vc)) WHERE i2 > 0;
SELECT matches(plan_of('SELECT id FROM t WHERE i2 > 0 AND i8 % 5 = 2 AND lower(vc) = ''v3''
	ORDER BY val <-> ''[1,1,1]'' LIMIT 5'), 'using t_expression.*Index Cond: \(\(\(i8 % .*lower',
	'expressions and a predicate');
DROP INDEX t_expression;

-- every row of a node is judged for itself, also where a scan may return few
SET gpugraph.iterative_scan = off;
CREATE TABLE equal_rows AS SELECT i AS id, '[1,2,3]'::vector(3) AS val, i AS cat
	FROM generate_series(1, 3000) i;
INSERT INTO equal_rows SELECT i, ARRAY[i, 2, 3], 0 FROM generate_series(3001, 6000) i;
CREATE INDEX equal_idx ON equal_rows USING gpugraph (val, cat);
SELECT is((SELECT array_agg(id) FROM (SELECT id FROM equal_rows WHERE cat = 2900
	ORDER BY val <-> '[1,2,3]' LIMIT 5) s), '{2900}', 'rows that share a vector');
RESET gpugraph.iterative_scan;

-- a walk hands out what matches
SELECT make_data('items', 20000, 8, 40);
CREATE INDEX items_idx ON items USING gpugraph (val, cat, big);
SELECT make_queries('items', 20);
SELECT cmp_ok(recall('items', '<->', 10, 'cat < 25'), '>=', 0.97, 'one row of two');
SELECT cmp_ok(recall('items', '<->', 10, 'cat IN (3, 7, 11, 30, 49)'), '>=', 0.97, 'one of ten');
SELECT is(recall('items', '<->', 10, 'cat = 7'), 1.0000, 'one of 50');
SELECT is(recall('items', '<->', 10, 'big = 7'), 1.0000, 'one of 500');

-- what cannot be
SELECT throws_ok('CREATE INDEX ON t USING gpugraph (i4, val)', '0A000',
	'the first column of gpugraph index "t_i4_val_idx" is not a vector', 'the vector is first');
SELECT throws_ok('CREATE INDEX ON t USING gpugraph (val, val)', '0A000',
	'column 2 of gpugraph index "t_val_val1_idx" is a vector', 'there is one vector');
SELECT throws_ok('CREATE INDEX ON t USING gpugraph
	(val, i2, i4, i8, f4, f8, day, ts, tz, txt)', '54011',
	'cannot have more than 8 filter columns in a gpugraph index', 'eight filter columns');
SELECT throws_ok('CREATE INDEX ON t USING gpugraph (val) INCLUDE (i4)', '0A000',
	'access method "gpugraph" does not support included columns', 'no INCLUDE');
SELECT throws_ok('CREATE INDEX ON t USING gpugraph (val, (i4::numeric))', '42704', NULL,
	'a type without a class');
SELECT throws_ok('CREATE INDEX ON t USING gpugraph (val, (ARRAY[f4]))', '0A000',
	'column 2 of gpugraph index "t_val_array_idx" cannot be a filter column',
	'an array of another type');
SELECT is(bool_and(amvalidate(oid)), true, 'the classes are valid') FROM pg_opclass
	WHERE opcmethod = (SELECT oid FROM pg_am WHERE amname = 'gpugraph');
CREATE OPERATOR CLASS wrong_ops FOR TYPE int4 USING gpugraph AS OPERATOR 6 = (int4, int4);
CREATE OPERATOR CLASS other_ops FOR TYPE oid USING gpugraph AS OPERATOR 3 = (oid, oid);
SELECT is((SELECT count(*) FROM pg_opclass WHERE opcname IN ('wrong_ops', 'other_ops') AND
	NOT amvalidate(oid)), 2::bigint, 'others are not');
SELECT throws_ok('CREATE INDEX ON t USING gpugraph (val, (i4::oid) other_ops)', '0A000',
	'column 2 of gpugraph index "t_val_i4_idx" cannot be a filter column',
	'a class of another type');
SELECT throws_ok('CREATE TABLE e (val vector(3), cat int, EXCLUDE USING gpugraph (cat WITH =))',
	'0A000', 'the first column of gpugraph index "e_cat_excl" is not a vector', 'no EXCLUDE');
SELECT is((SELECT array_agg(pg_index_column_has_property('t_idx', n, 'distance_orderable')
	ORDER BY n) FROM generate_series(1, 2) n), '{t,f}', 'the vector alone orders');

SELECT * FROM finish();
