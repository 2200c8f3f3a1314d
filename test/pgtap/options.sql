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

SELECT throws_ok('ALTER INDEX l1_idx SET (codes = int2)', '22023');
SELECT throws_ok('ALTER INDEX half_idx SET (storage = float32)', '22023',
	'storage "float32" does not fit a column of type halfvec');
SELECT is_empty($$SELECT FROM pg_class WHERE relname ~ '_idx$' AND reloptions IS NOT NULL$$,
	'they have no options');

SELECT lives_ok('ALTER INDEX l1_idx SET (codes = int4)', 'what fits');
SELECT lives_ok('ALTER INDEX half_idx SET (storage = int8)', 'codes of a halfvec');
SELECT lives_ok('ALTER INDEX half_idx RESET (storage)', 'none');
SELECT lives_ok('TRUNCATE items; REINDEX TABLE items', 'all can be built');

-- an index that an older library let have such options can be altered all the same
UPDATE pg_class SET reloptions = '{storage=float32}' WHERE relname = 'half_idx';
SELECT lives_ok('ALTER INDEX half_idx RENAME TO other_idx', 'its name');
SELECT throws_ok('REINDEX INDEX other_idx', '22023');
SELECT lives_ok('ALTER INDEX other_idx RESET (storage)', 'its options');
SELECT lives_ok('REINDEX INDEX other_idx', 'then it can be built');

-- codes = int2, which is no more, says nothing
UPDATE pg_class SET reloptions = '{codes=int2}' WHERE relname = 'l1_idx';
INSERT INTO items SELECT ARRAY[i, i % 7, 1]::vector, NULL FROM generate_series(1, 100) i;
SELECT ok(gpugraph_merge('l1_idx'), 'it is merged');
SELECT is((SELECT codes FROM gpugraph_index_info('l1_idx')), 'none', 'a merge makes no codes then');
SELECT lives_ok('REINDEX INDEX l1_idx', 'it can be built');

SELECT * FROM finish();
