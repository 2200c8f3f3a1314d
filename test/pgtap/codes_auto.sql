-- Codes by themselves: a build on the CPU makes them where they pay and cost no recall, says why,
-- and merges keep what it decided
\ir include/helpers.psql
SELECT * FROM no_plan();

-- A server whose GPU answers makes none
SELECT CASE WHEN count(*) > 0 THEN 'none, not asked for' ELSE 'int8, auto' END AS made,
	count(*) > 0 AS served FROM gpugraph_stat_device WHERE state = 'up' \gset

CREATE FUNCTION codes(index regclass) RETURNS text LANGUAGE sql AS
	$$ SELECT codes || ', ' || codes_reason FROM gpugraph_index_info(index) $$;
CREATE FUNCTION normal() RETURNS float8 LANGUAGE sql VOLATILE AS
	'SELECT sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random())';

-- Rows on a curved surface of four dimensions
CREATE TABLE axes AS SELECT i, normal() AS a, normal() AS b, normal() AS c, normal() AS d
	FROM generate_series(1, 96) i;
CREATE TABLE points AS SELECT id, random() AS a, random() AS b, random() AS c, random() AS d
	FROM generate_series(1, 10200) id;
CREATE TABLE items AS SELECT id, (SELECT array_agg(
	sin(p.a * x.a + p.b * x.b + p.c * x.c + p.d * x.d) ORDER BY x.i) FROM axes x)::vector(96) AS val
	FROM points p;

CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
SELECT is(codes('items_idx'), :'made', 'float32 rows of 96 dimensions get int8');
SELECT lives_ok($$ SELECT gpugraph_check('items_idx', true) $$, 'and they are right');
CREATE INDEX items_none ON items USING gpugraph (val vector_l2_ops) WITH (storage = float32);
SELECT is(codes('items_none'), 'none, option', 'an option decides');
SELECT cmp_ok(a.recall, '>=', n.recall - 0.003::float8,
	format('a list of %s finds as much as without codes', a.itopk_size))
	FROM gpugraph_recall('items_idx', 10, 200) a JOIN gpugraph_recall('items_none', 10, 200) n
	USING (itopk_size) WHERE a.itopk_size IN (16, 64);
DROP INDEX items_none;

-- ---- what has none, and why
CREATE INDEX half_idx ON items USING gpugraph ((val::halfvec(96)) halfvec_l2_ops);
SELECT is(codes('half_idx'), 'none, float16', 'not of halfvecs');
CREATE INDEX l1_idx ON items USING gpugraph (val vector_l1_ops);
SELECT is(codes('l1_idx'), 'none, l1', 'not under L1');
CREATE INDEX short_idx ON items USING gpugraph ((subvector(val, 1, 95)::vector(95)) vector_l2_ops);
SELECT is(codes('short_idx'), 'none, dimensions', 'not of 95 dimensions');
CREATE TABLE few AS SELECT * FROM items LIMIT 5000;
CREATE INDEX few_idx ON few USING gpugraph (val vector_l2_ops);
SELECT is(codes('few_idx'), 'none, rows', 'not of few rows');
CREATE INDEX coded_idx ON few USING gpugraph (val vector_l2_ops) WITH (storage = int8);
SELECT is(codes('coded_idx'), 'int8, storage', 'storage has its own');
DROP TABLE few;

-- Clusters so narrow that all rows of one have nearly one code
CREATE TABLE tight AS SELECT id,
	(SELECT array_agg((id % 50) * (i % 7) + 1e-3 * random() ORDER BY i)
		FROM generate_series(1, 96) i WHERE id > 0)::vector(96) AS val
	FROM generate_series(1, 10200) id;
CREATE INDEX tight_idx ON tight USING gpugraph (val vector_l2_ops);
SELECT is(codes('tight_idx'),
	CASE WHEN :'served' THEN 'none, not asked for' ELSE 'none, recall' END,
	'not where walks by them lose recall');
SELECT is(codes_bytes, 0::bigint, 'their blocks are free')
	FROM gpugraph_index_info('tight_idx');
SELECT lives_ok($$ SELECT gpugraph_check('tight_idx', true) $$, 'the index is right without');
SELECT cmp_ok(recall, '>=', 0.9::float8, 'and finds the nearest')
	FROM gpugraph_recall('tight_idx', 10, 100) WHERE itopk_size = 64;
DROP TABLE tight;

-- ---- merges keep what the build decided
INSERT INTO items SELECT id + 20000, val FROM items WHERE id <= 3000;
SELECT ok(gpugraph_merge('items_idx') IS NOT NULL, 'a merge');
SELECT is(codes('items_idx'), :'made', 'goes on with codes');
SELECT lives_ok($$ SELECT gpugraph_check('items_idx', true) $$, 'which are right');
ALTER INDEX items_idx SET (storage = float32);
REINDEX INDEX items_idx;
SELECT is(codes('items_idx'), 'none, option', 'REINDEX goes by the option');
ALTER INDEX items_idx RESET (storage);
SELECT is(codes('items_idx'), 'none, not asked for', 'to RESET it changes nothing');
REINDEX INDEX items_idx;
SELECT is(codes('items_idx'), :'made', 'before REINDEX');

-- An index that was empty has no codes, whatever is inserted
CREATE TABLE grown (id int, val vector(96));
CREATE INDEX grown_idx ON grown USING gpugraph (val vector_l2_ops);
INSERT INTO grown SELECT id, val FROM items;
SELECT ok(gpugraph_merge('grown_idx') IS NOT NULL, 'rows of an index that was empty are merged');
SELECT is(codes('grown_idx'), 'none, not asked for', 'without codes');
REINDEX INDEX grown_idx;
SELECT is(codes('grown_idx'), :'made', 'until REINDEX');

SELECT * FROM finish();
