-- Every operator class with every storage that it has, from CREATE INDEX to TRUNCATE: rows come by
-- the index as they come by the table. Distances from [3,3,2] differ from row to row.
\ir include/helpers.psql
SELECT * FROM no_plan();

CREATE TABLE classes AS
	SELECT concat_ws('_', type, metric, storage) AS rel, type, metric,
		concat_ws('_', type, metric, 'ops') AS ops, op, storage,
		coalesce(storage, CASE type WHEN 'halfvec' THEN 'float16' ELSE 'float32' END) AS element
	FROM (VALUES ('l2', '<->'), ('ip', '<#>'), ('cosine', '<=>'), ('l1', '<+>')) m (metric, op),
		(VALUES ('vector', NULL), ('vector', 'float32'), ('vector', 'float16'), ('halfvec', NULL),
			('vector', 'int8'), ('vector', 'int4'), ('halfvec', 'float16'), ('halfvec', 'int8'),
			('halfvec', 'int4')) s (type, storage);
SELECT is_empty($$SELECT opcname FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
	WHERE amname = 'gpugraph' AND opcintype IN ('vector'::regtype, 'halfvec'::regtype)
	EXCEPT SELECT ops FROM classes$$, 'all operator classes are here');

CREATE FUNCTION make_index(c classes) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE INDEX %1$I ON %2$I USING gpugraph (val %3$s) %4$s', c.rel || '_idx',
		c.rel, c.ops, 'WITH (storage = ' || c.storage || ')');
END $$;

CREATE FUNCTION ids(sql text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
	result int[];
BEGIN
	EXECUTE format('SELECT array_agg(id) FROM (%s) s', sql) INTO result;
	RETURN result;
END $$;

CREATE FUNCTION sqlstate_of(sql text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE sql;
	RETURN 'none';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END $$;

-- by the index, the rows that it holds in the order of the table: all but NULL and, under cosine,
-- vectors of length zero
CREATE FUNCTION same_order(c classes, what text, query text DEFAULT '[3,3,2]')
	RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	sql text := format('SELECT id FROM %I WHERE %%s ORDER BY val %s %L', c.rel, c.op, query);
	by_index int[];
	by_table int[];
BEGIN
	PERFORM use_index(false);
	by_table := ids(format(sql, CASE c.metric WHEN 'cosine' THEN $q$val::text !~ '^\[0(,0)*\]$'$q$
		ELSE 'val IS NOT NULL' END));
	PERFORM use_index(true);
	by_index := ids(format(sql, 'true'));
	IF plan_of(format(sql, 'true')) NOT LIKE '%Index Scan using %_idx on %' THEN
		RETURN fail(format('%s, %s: no index scan', c.rel, what));
	END IF;
	RETURN is(by_index, by_table, format('%s, %s: the order of the table', c.rel, what));
END $$;

CREATE FUNCTION sound(c classes, what text) RETURNS text LANGUAGE sql AS $$
	SELECT lives_ok(format('SELECT gpugraph_check(%L, true)', c.rel || '_idx'),
		format('%s, %s: the index is sound', c.rel, what)) $$;

-- a built index, rows after it, versions and dead rows
CREATE FUNCTION built(c classes) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE %I (id int PRIMARY KEY, val %s(3))', c.rel, c.type);
	EXECUTE format($q$INSERT INTO %I VALUES (1, '[0,0,0]'), (2, '[1,2,3]'), (3, '[1,1,1]'),
		(4, NULL), (5, '[9,2,0]'), (6, '[-4,0,2]')$q$, c.rel);
	PERFORM make_index(c);
	RETURN NEXT same_order(c, 'built');
	RETURN NEXT is(
		ids(format('SELECT id FROM %I ORDER BY val %s ''[3,3,2]'' LIMIT 2', c.rel, c.op)),
		CASE c.metric WHEN 'ip' THEN '{5,2}' WHEN 'cosine' THEN '{3,2}' ELSE '{2,3}' END::int[],
		c.rel || ': two nearest');
	RETURN NEXT alike(plan_of(format('SELECT id FROM %I ORDER BY val %s ''[3,3,2]'' LIMIT 2',
		c.rel, c.op)), format('Limit%%Index Scan using %s on %s%%Order By: (val %s %L::%s)%%',
		c.rel || '_idx', c.rel, c.op, '[3,3,2]', c.type), c.rel || ': plan');

	EXECUTE format('DELETE FROM %I WHERE id = 1', c.rel);
	EXECUTE format($q$INSERT INTO %I VALUES (7, '[2,4,4.5]'), (8, NULL), (9, '[0,0,0]'),
		(10, '[5,-3,7]')$q$, c.rel);
	RETURN NEXT same_order(c, 'rows after the build');
	EXECUTE format($q$UPDATE %I SET val = '[3,3,2.5]' WHERE id = 2$q$, c.rel);
	EXECUTE format('DELETE FROM %I WHERE id = 7', c.rel);
	RETURN NEXT same_order(c, 'a new version and a row gone');
END $$;

-- queries: NULL, zero, by subquery, of other dimensions, for each row, in long and short lists
CREATE FUNCTION queried(c classes) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	nearest text := format('SELECT id FROM %I ORDER BY val %s ', c.rel, c.op);
	each text := format('SELECT b.id FROM %1$I a, LATERAL (SELECT id FROM %1$I b
		WHERE b.id <> a.id ORDER BY b.val %2$s a.val LIMIT 1) b WHERE a.id IN (2, 5)
		ORDER BY a.id', c.rel, c.op);
	held int := CASE c.metric WHEN 'cosine' THEN 5 ELSE 6 END;
	by_table int[];
	one int[];
BEGIN
	PERFORM use_index(true);
	RETURN NEXT is(cardinality(ids(nearest || 'NULL')), 8, c.rel || ': NULL, all rows');
	RETURN NEXT is(cardinality(ids(format('%s (SELECT NULL::text)::%s', nearest, c.type))), held,
		c.rel || ': NULL from a subquery, rows of the index');
	RETURN NEXT is(cardinality(ids(nearest || '''[0,0,0]''')), held, c.rel || ': a zero query');
	RETURN NEXT is(ids(format('%s (SELECT val FROM %I WHERE id = 5) LIMIT 1', nearest, c.rel)),
		'{5}'::int[], c.rel || ': a query from a subquery');
	RETURN NEXT is(sqlstate_of(nearest || '''[3,3]'''),
		'22000 different vector dimensions 3 and 2', c.rel || ': two dimensions');
	RETURN NEXT is(sqlstate_of(nearest || '''[3,3,2,1]'' LIMIT 1'),
		'22000 different vector dimensions 3 and 4', c.rel || ': four dimensions');
	RETURN NEXT is(sqlstate_of(format('INSERT INTO %I VALUES (11, ''[1,2]'')', c.rel)),
		'22000 expected 3 dimensions, not 2', c.rel || ': a row of two dimensions');

	RETURN NEXT alike(plan_of(each),
		format('%%Index Scan using %s on %s b%%Order By: (val %s a.val)%%', c.rel || '_idx', c.rel,
			c.op), c.rel || ': each row''s nearest other row, plan');
	RETURN NEXT is(ids(each),
		CASE c.metric WHEN 'ip' THEN '{5,10}' ELSE '{3,2}' END::int[],
		c.rel || ': each row''s nearest other row');

	PERFORM set_config('gpugraph.itopk_size', '1', false);
	RETURN NEXT same_order(c, 'a list of one, made longer');
	PERFORM set_config('gpugraph.iterative_scan', 'relaxed_order', false);
	RETURN NEXT is((SELECT count(DISTINCT id) FROM unnest(ids(nearest || '''[3,3,2]''')) id),
		held::bigint, c.rel || ': in relaxed order, all rows');
	RETURN NEXT is((SELECT array_agg(id ORDER BY id) FROM unnest(ids(format(
		'SELECT id FROM %I WHERE id %% 2 = 0 ORDER BY val %s ''[3,3,2]'' LIMIT 3', c.rel, c.op)))
		id), '{2,6,10}'::int[], c.rel || ': in relaxed order, under a filter');
	PERFORM set_config('gpugraph.iterative_scan', 'off', false);
	one := ids(nearest || '''[3,3,2]''');
	RETURN NEXT is(one, CASE c.metric WHEN 'ip' THEN '{5}' ELSE '{2}' END::int[],
		c.rel || ': and no longer');
	RESET gpugraph.iterative_scan;
	RESET gpugraph.itopk_size;

	RETURN NEXT unalike(plan_of(format('SELECT count(*) FROM %I', c.rel)), '%_idx%',
		c.rel || ': never without ORDER BY');
	RETURN NEXT alike(plan_of(nearest || '''[3,3,2]'' DESC LIMIT 1'), '%Sort%Seq Scan%',
		c.rel || ': nor backwards');
END $$;

CREATE FUNCTION rebuilt(c classes) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN NEXT same_order(c, 'after VACUUM');
	RETURN NEXT sound(c, 'after VACUUM');
	EXECUTE format('REINDEX INDEX %I', c.rel || '_idx');
	RETURN NEXT same_order(c, 'after REINDEX');
	RETURN NEXT sound(c, 'after REINDEX');
	EXECUTE format('TRUNCATE %I', c.rel);
	RETURN NEXT same_order(c, 'after TRUNCATE');
	EXECUTE format('INSERT INTO %I VALUES (1, ''[1,2,3]'')', c.rel);
	RETURN NEXT same_order(c, 'a row after TRUNCATE');
	RETURN NEXT sound(c, 'a row after TRUNCATE');
END $$;

-- unlogged, and without declared dimensions
CREATE FUNCTION undeclared(c classes) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('DROP TABLE %I', c.rel);
	EXECUTE format('CREATE UNLOGGED TABLE %I (id int, val %s)', c.rel, c.type);
	PERFORM make_index(c);
	RETURN NEXT same_order(c, 'unlogged and empty', '[1,2]');
	EXECUTE format('INSERT INTO %I VALUES (1, ''[1,2]''), (2, NULL), (3, ''[2,-1]'')', c.rel);
	RETURN NEXT same_order(c, 'unlogged', '[1,1]');
	RETURN NEXT sound(c, 'unlogged');
	RETURN NEXT is(sqlstate_of(format('INSERT INTO %I VALUES (4, ''[1,2,3]'')', c.rel)),
		'22000 expected 2 dimensions, not 3', c.rel || ': the first row says how many dimensions');
	EXECUTE format('REINDEX TABLE %I', c.rel);
	RETURN NEXT same_order(c, 'unlogged, after REINDEX', '[1,1]');
	RETURN NEXT is((i.dimensions, i.metric, i.element, i.rows, i.delta_rows)::text,
		format('(2,%s,%s,2,0)', c.metric, c.element), c.rel || ': what the index says of itself')
		FROM gpugraph_index_info(c.rel || '_idx') i;
END $$;

SELECT built(c) FROM classes c;
SELECT queried(c) FROM classes c;
SELECT format('VACUUM %I', rel) FROM classes \gexec
SELECT rebuilt(c) FROM classes c;
SELECT undeclared(c) FROM classes c;

SELECT * FROM finish();
