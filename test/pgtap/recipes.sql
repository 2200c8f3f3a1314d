-- Each block of doc/recipes.md is run, and what it returns is compared with an exact computation
\ir include/helpers.psql
\set page `cat ../../doc/recipes.md`
SELECT * FROM no_plan();

CREATE TABLE blocks AS
	SELECT row_number() OVER () AS n, m[1] AS block
	FROM regexp_matches(:'page', E'```sql\n(.*?)\n```', 'g') m;
SELECT is((SELECT count(*) FROM blocks), 14::bigint, 'the page is read');

-- Rows in 60 clusters of 16 elements; the words go with the cluster.
SELECT block AS code FROM blocks WHERE n = 1 \gset
:code
SELECT make_data('drawn', 3000, 16, 60);
INSERT INTO docs (id, tenant, readers, body, created, embedding)
	SELECT id, id % 5, ARRAY['g' || id % 3, 'g' || id % 7],
		'about topic' || id * 7919::bigint % 60 || ' and word' || id % 11,
		timestamptz '2026-01-01' + id * interval '3 hours', val FROM drawn;
REINDEX INDEX docs_embedding;
ANALYZE docs;
SELECT make_queries('drawn', 20);
SELECT val AS q FROM queries WHERE q = 1 \gset
SET gpugraph.itopk_size = 256;

CREATE FUNCTION plan_has(execute text, wanted text) RETURNS text LANGUAGE sql AS $$
	SELECT matches(plan_of(execute), wanted, execute || ': the plan has ' || wanted) $$;
-- the ids that a statement returns, in order
CREATE FUNCTION ids_of(statement text, by_index boolean DEFAULT true) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
	r record;
	found bigint[] := '{}';
BEGIN
	PERFORM set_config('enable_indexscan', by_index::text, true);
	FOR r IN EXECUTE statement LOOP
		found := found || coalesce(to_jsonb(r)->>'id', to_jsonb(r)->>'doc')::bigint;
	END LOOP;
	PERFORM set_config('enable_indexscan', 'on', true);
	RETURN found;
END $$;
-- the share of b that is in a, over all queries; %L is the query
CREATE FUNCTION agreement(statement text) RETURNS numeric LANGUAGE sql AS $$
	SELECT sum(cardinality(ARRAY(SELECT unnest(a) INTERSECT SELECT unnest(b))))::numeric
		/ sum(cardinality(b))
	FROM (SELECT ids_of(format(statement, val)) AS a, ids_of(format(statement, val), false) AS b
		FROM queries) s $$;

-- hybrid
SELECT block AS code FROM blocks WHERE n = 2 \gset
:code
SELECT plan_has(format('EXECUTE hybrid(%L, %L, 10)', :'q', 'topic7'),
	'Index Scan using docs_embedding');
SELECT plan_has(format('EXECUTE hybrid(%L, %L, 10)', :'q', 'topic7'), 'docs_words');
SELECT cmp_ok(agreement('EXECUTE hybrid(%L, ''topic7 or word3'', 10)'), '>=', 0.97,
	'hybrid: the rows of an exact computation');
CREATE FUNCTION fused(q vector, words text) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
	lists bigint[][];
	score jsonb := '{}';
	i bigint;
	rank int := 0;
BEGIN
	FOR i IN SELECT id FROM docs ORDER BY embedding <=> q LIMIT 50 LOOP
		rank := rank + 1;
		score := score || jsonb_build_object(i, 1.0 / (60 + rank));
	END LOOP;
	rank := 0;
	FOR i IN SELECT id FROM docs WHERE to_tsvector('english', body) @@ to_tsquery('english', words)
		ORDER BY ts_rank_cd(to_tsvector('english', body), to_tsquery('english', words)) DESC, id
		LIMIT 50 LOOP
		rank := rank + 1;
		score := score || jsonb_build_object(i,
			coalesce((score->>i::text)::numeric, 0) + 1.0 / (60 + rank));
	END LOOP;
	RETURN QUERY SELECT key::bigint FROM jsonb_each_text(score)
		ORDER BY value::numeric DESC, key::bigint LIMIT 10;
END $$;
SELECT is(ids_of(format('EXECUTE hybrid(%L, ''topic7'', 10)', val)),
	ARRAY(SELECT fused(val, 'topic7')), 'hybrid: in the order of fused ranks') FROM queries
	WHERE q <= 5;

-- MMR
SELECT block AS code FROM blocks WHERE n = 3 \gset
:code
SELECT plan_has(format('EXECUTE diverse(%L, 10, 0.5)', :'q'), 'Index Scan using docs_embedding');
SELECT cmp_ok(agreement('EXECUTE diverse(%L, 10, 0.5)'), '>=', 0.97,
	'MMR: the rows of an exact computation');
CREATE FUNCTION mmr(q vector, k int, lambda float8) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
	near bigint[] := ARRAY(SELECT id FROM docs ORDER BY embedding <=> q LIMIT 100);
	picked bigint[] := '{}';
	i bigint;
BEGIN
	FOR n IN 1 .. k LOOP
		SELECT id INTO i FROM docs d WHERE id = ANY (near) AND id <> ALL (picked)
			ORDER BY lambda * (1 - (embedding <=> q)) - CASE WHEN n = 1 THEN 0 ELSE (1 - lambda)
				* (SELECT max(1 - (d.embedding <=> p.embedding)) FROM docs p
					WHERE p.id = ANY (picked)) END DESC, id LIMIT 1;
		picked := picked || i;
	END LOOP;
	RETURN picked;
END $$;
SELECT is(ids_of(format('EXECUTE diverse(%L, 8, 0.6)', val)), mmr(val, 8, 0.6),
	'MMR: pick by pick') FROM queries WHERE q <= 5;
SELECT is(ids_of(format('EXECUTE diverse(%L, 10, 1)', :'q')),
	ids_of(format('SELECT id FROM docs ORDER BY embedding <=> %L LIMIT 10', :'q')),
	'MMR: without a penalty, the nearest');
SELECT is(cardinality(ids_of(format('EXECUTE diverse(%L, 1000, 0.5)', :'q'))), 100,
	'MMR: no more than the candidates');

-- permissions
SELECT block AS code FROM blocks WHERE n = 4 \gset
:code
CREATE ROLE alice;
CREATE ROLE bob;
INSERT INTO membership VALUES ('alice', 2, '{g1}'), ('alice', 3, '{g5}');
SET ROLE alice;
-- of so few rows a GPU's server may rather sort all
SET enable_seqscan = off;
SELECT matches(plan_of(format('SELECT id FROM docs ORDER BY embedding <=> %L LIMIT 10', :'q')),
	'Index Scan using docs_embedding.*Index Cond: .readers.*Filter: .*hashed SubPlan',
	'permissions: the index answers policies');
RESET enable_seqscan;
RESET ROLE;
CREATE FUNCTION seen_by(who text, q vector) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
	found bigint[];
BEGIN
	EXECUTE 'SET LOCAL ROLE ' || who;
	found := ARRAY(SELECT id FROM docs ORDER BY embedding <=> q LIMIT 10);
	RESET ROLE;
	RETURN found;
END $$;
SELECT is(seen_by('alice', val), ARRAY(SELECT id FROM docs
		WHERE tenant IN (2, 3) AND readers && '{g1,g5}'
		ORDER BY (embedding <=> val) + 0.0 LIMIT 10),
	'permissions: the nearest of the rows that she may see') FROM queries WHERE q <= 5;
SELECT is(seen_by('bob', :'q'), '{}', 'permissions: who is in no list sees nothing');
SET ROLE alice;
SELECT throws_ok(format('SELECT * FROM gpugraph_search(''docs_embedding'', ARRAY[%L]::vector[], 5)',
	:'q'), '0A000', NULL, 'permissions: gpugraph_search refuses');
RESET ROLE;
DROP OWNED BY alice, bob;
DROP ROLE alice, bob;

-- time decay
SELECT block AS code FROM blocks WHERE n = 5 \gset
:code
SELECT plan_has(format('EXECUTE recent(%L, %L)', :'q', '30 days'),
	'Index Scan using docs_embedding');
SELECT cmp_ok(agreement('EXECUTE recent(%L, ''90 days'')'), '>=', 0.97,
	'decay: the rows of an exact computation over the nearest 200');
SELECT is(ids_of(format('EXECUTE recent(%L, ''1000000000 days'')', :'q')),
	ids_of(format('SELECT id FROM docs ORDER BY embedding <=> %L LIMIT 10', :'q')),
	'decay: very slow, the nearest');
INSERT INTO docs (id, tenant, readers, body, created, embedding)
	SELECT 5000, 0, '{}', 'new', now() + interval '1000 days', embedding FROM docs
	ORDER BY embedding <=> :'q' DESC LIMIT 1;
SELECT is(5000 = ANY (ids_of(format('EXECUTE recent(%L, ''90 days'')', :'q'))), false,
	'decay: a new row that is far is not found');
DELETE FROM docs WHERE id = 5000;

-- near duplicates
SELECT block AS code FROM blocks WHERE n = 6 \gset
:code
INSERT INTO docs (id, tenant, readers, body, embedding)
	SELECT 10000 + id, tenant, readers, body,
		(embedding::vector + array_fill(1e-4::real, '{16}')::vector)
	FROM docs WHERE id % 100 = 0 AND id <= 3000;
SELECT set_eq('EXECUTE duplicates(0.0001)',
	'SELECT id, 10000 + id FROM docs WHERE id % 100 = 0 AND id <= 3000',
	'duplicates: all that were planted, and no other');
SELECT block AS code FROM blocks WHERE n = 7 \gset
:code
SELECT is(ids_of(format('EXECUTE known(%L, 0.0001)', embedding)), ARRAY[id],
	'duplicates: a row is known') FROM docs WHERE id = 7;
SELECT is(ids_of(format('EXECUTE known(%L, 0.0001)',
	(SELECT embedding * array_fill(-1, '{16}')::vector FROM docs WHERE id = 7))), '{}',
	'duplicates: another is not');
DELETE FROM docs WHERE id > 3000;

-- MaxSim: 2,000 documents of 16 tokens, each of the document's subject and of a word
SELECT block AS code FROM blocks WHERE n = 8 \gset
:code
SELECT make_data('subjects', 2000, 16, 100);
SELECT make_data('words', 500, 16, 500);
INSERT INTO tokens SELECT s.id, (s.val + w.val) FROM subjects s, generate_series(1, 16) i,
	LATERAL (SELECT val FROM words WHERE id = 1 + (hashint8(s.id * 100 + i) & 65535) % 500) w;
REINDEX INDEX tokens_embedding;
ANALYZE tokens;
SELECT block AS code FROM blocks WHERE n = 9 \gset
:code
-- questions: 8 tokens, each of a subject near a document's and of a word
CREATE TABLE questions AS
	SELECT s.q, array_agg(s.val + w.val ORDER BY i) AS vectors
	FROM (SELECT id AS q, val * array_fill(0.9, '{16}')::vector AS val FROM subjects
		WHERE id % 100 = 7) s, generate_series(1, 8) i,
		LATERAL (SELECT val FROM words WHERE id = 1 + (hashint8(s.q * 900 + i) & 65535) % 500) w
	GROUP BY s.q;
CREATE FUNCTION exact_maxsim(vectors vector[]) RETURNS SETOF bigint LANGUAGE sql AS $$
	SELECT doc FROM (SELECT doc, n, max(1 - (embedding <=> v)) AS similarity
		FROM tokens, unnest(vectors) WITH ORDINALITY q(v, n) GROUP BY doc, n) b
	GROUP BY doc ORDER BY sum(similarity) DESC, doc LIMIT 10 $$;
SELECT cmp_ok(sum(cardinality(ARRAY(
			SELECT unnest(ids_of(format('EXECUTE maxsim(%L, 10, 200, 100)', vectors)))
			INTERSECT SELECT exact_maxsim(vectors))))::numeric / (10 * count(*)), '>=', 0.95,
	'MaxSim: recall@10 of the exact scores') FROM questions;

-- another model
SELECT block AS code FROM blocks WHERE n = 10 \gset
:code
UPDATE docs SET embedding_2 = (embedding::real[] || array_fill(0::real, '{8}'))::vector
	WHERE id <> 13;
SELECT block AS code FROM blocks WHERE n = 11 \gset
\o /dev/null
:code
\o
SELECT is(ids_of(format('SELECT id FROM docs ORDER BY embedding_2 <=> %L LIMIT 10',
		(SELECT embedding_2 FROM docs WHERE id = 7))),
	ids_of(format('SELECT id FROM docs ORDER BY embedding <=> %L LIMIT 10',
		(SELECT embedding FROM docs WHERE id = 7))), 'both columns answer');
SELECT block AS code FROM blocks WHERE n = 12 \gset
:code
SELECT is(format_type(atttypid, atttypmod), 'vector(24)', 'the new model has the name')
	FROM pg_attribute WHERE attrelid = 'docs'::regclass AND attname = 'embedding';
SELECT matches(plan_of(format('SELECT id FROM docs ORDER BY embedding <=> %L LIMIT 10',
	(SELECT embedding FROM docs WHERE id = 7))), 'Index Scan using docs_embedding ',
	'and the index has, too');

-- the queue
SELECT block AS code FROM blocks WHERE n = 13 \gset
:code
SELECT block AS code FROM blocks WHERE n = 14 \gset
:code
INSERT INTO docs (id, tenant, readers, body) VALUES (4001, 1, '{}', 'one'), (4002, 1, '{}', 'two');
UPDATE docs SET tenant = 2 WHERE id = 5;
UPDATE docs SET body = 'three' WHERE id = 6;
SELECT is(ids_of('SELECT id FROM embedding_queue ORDER BY id'), '{6,4001,4002}',
	'queue: new rows, and those with a new text');
BEGIN;
SELECT is(ids_of('EXECUTE take(2)'), '{4001,4002}', 'queue: the oldest are taken');
ROLLBACK;
BEGIN;
SELECT is(ids_of('EXECUTE take(100)'), '{6,4001,4002}',
	'queue: after a failure they are there again');
SELECT format('EXECUTE embed(4001, %L)', array_fill(0.5, '{24}')::vector) \gexec
COMMIT;
SELECT is((SELECT count(*) FROM embedding_queue), 0::bigint, 'queue: empty');
SELECT is(ids_of(format('SELECT id FROM docs ORDER BY embedding <=> %L LIMIT 1',
	array_fill(0.5, '{24}')::vector)), '{4001}', 'queue: the row is found at once');
SELECT * FROM finish();
