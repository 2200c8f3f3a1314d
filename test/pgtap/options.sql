-- ALTER INDEX refuses what does not fit the index, as CREATE INDEX does, so TRUNCATE and REINDEX of
-- an index that exists do not fail for its options
\ir include/helpers.psql
SELECT * FROM no_plan();

CREATE TABLE items (val vector(3), half halfvec(3));
INSERT INTO items SELECT ARRAY[i, i % 7, 1]::vector, ARRAY[i, i % 7, 1]::halfvec
	FROM generate_series(1, 100) i;
CREATE INDEX l1_idx ON items USING gpugraph (val vector_l1_ops);
CREATE INDEX l2_idx ON items USING gpugraph (val);
CREATE INDEX half_idx ON items USING gpugraph (half halfvec_l2_ops);

SELECT throws_ok('ALTER INDEX half_idx SET (storage = float32)', '22023',
	'storage "float32" does not fit a column of type halfvec');
SELECT throws_ok('ALTER INDEX half_idx SET (storage = "float32+int8")', '22023',
	'storage "float32" does not fit a column of type halfvec');
SELECT throws_ok('ALTER TABLE half_idx SET (storage = float32, seal_rows = 100)', '22023');
SELECT throws_ok(format('ALTER INDEX l2_idx SET (storage = %L)', value), '22023',
	format('invalid value for enum option "storage": %s', value), value)
	FROM unnest('{int2, float32+int2, int8+float32, float32+, none}'::text[]) value;
SELECT throws_ok('ALTER INDEX l2_idx SET (codes = int8)', '22023',
	'unrecognized parameter "codes"', 'codes are no option of their own');
SELECT is_empty($$SELECT FROM pg_class WHERE relname ~ '_idx$' AND reloptions IS NOT NULL$$,
	'they have no options');

SELECT lives_ok('ALTER INDEX l1_idx SET (storage = "float32+int4")', 'what fits');
SELECT lives_ok('ALTER INDEX l2_idx SET (storage = float16)', 'halves of a vector');
SELECT lives_ok('ALTER INDEX half_idx SET (storage = "float16+int4")', 'codes beside a halfvec');
SELECT lives_ok('ALTER INDEX half_idx SET (storage = int8)', 'codes of a halfvec');
SELECT lives_ok('ALTER INDEX half_idx RESET (storage)', 'none');
SELECT lives_ok('TRUNCATE items; REINDEX TABLE items', 'all can be built');

-- what each value stores, and when: codes with a merge, all of it with REINDEX
CREATE TABLE kinds (value text, kind text, stored text, codes text);
INSERT INTO kinds VALUES ('auto', 'vector', 'float32', 'none'),
	('float32', 'vector', 'float32', 'none'), ('float32+int8', 'vector', 'float32', 'int8'),
	('float32+int4', 'vector', 'float32', 'int4'), ('float16', 'vector', 'float16', 'none'),
	('float16+int8', 'vector', 'float16', 'int8'), ('int8', 'vector', 'int8', 'int8'),
	('int4', 'vector', 'int4', 'int4'), ('auto', 'halfvec', 'float16', 'none'),
	('float16', 'halfvec', 'float16', 'none'), ('float16+int4', 'halfvec', 'float16', 'int4'),
	('int4', 'halfvec', 'int4', 'int4');
CREATE FUNCTION stored(index regclass) RETURNS text LANGUAGE sql AS
	$$ SELECT element || ', ' || codes FROM gpugraph_index_info(index) $$;
CREATE FUNCTION try_kind(k kinds) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	index regclass;
BEGIN
	EXECUTE format('CREATE TABLE kind AS SELECT id, ARRAY[id, id %% 7, 1]::%s AS v
		FROM generate_series(1, 100) id;
		CREATE INDEX kind_idx ON kind USING gpugraph (v %1$s_l2_ops) WITH (storage = %L)',
		k.kind, k.value);
	RETURN NEXT is(stored('kind_idx'), k.stored || ', ' || k.codes,
		format('%s of a %s: a build', k.value, k.kind));
	PERFORM gpugraph_check('kind_idx', true);
	EXECUTE format('DROP INDEX kind_idx;
		CREATE INDEX kind_idx ON kind USING gpugraph (v %s_l2_ops);
		ALTER INDEX kind_idx SET (storage = %L);
		INSERT INTO kind SELECT id, ARRAY[id, id %% 7, 2]::%1$s FROM generate_series(1, 2000) id',
		k.kind, k.value);
	PERFORM gpugraph_merge('kind_idx');
	RETURN NEXT is(stored('kind_idx'),
		CASE k.kind WHEN 'vector' THEN 'float32' ELSE 'float16' END || ', ' ||
		CASE WHEN k.value ~ '\+' THEN k.codes ELSE 'none' END,
		format('%s of a %s: a merge makes codes alone', k.value, k.kind));
	PERFORM gpugraph_check('kind_idx', true);
	REINDEX INDEX kind_idx;
	RETURN NEXT is(stored('kind_idx'), k.stored || ', ' || k.codes,
		format('%s of a %s: REINDEX', k.value, k.kind));
	DROP TABLE kind;
END $$;
SELECT try_kind(k) FROM kinds k;

-- an index that an older library let have such options can be altered all the same
UPDATE pg_class SET reloptions = '{storage=float32}' WHERE relname = 'half_idx';
SELECT lives_ok('ALTER INDEX half_idx RENAME TO other_idx', 'its name');
SELECT throws_ok('REINDEX INDEX other_idx', '22023');
SELECT lives_ok('ALTER INDEX other_idx RESET (storage)', 'its options');
SELECT lives_ok('REINDEX INDEX other_idx', 'then it can be built');

SELECT * FROM finish();
