-- Do queries as people write them cost what the best way to ask costs?  Each shape as products send
-- it beside the same question asked by hand in the way that suits the index, in one session, by
-- turns.  Prints medians of 30 runs in milliseconds (EXPLAIN ANALYZE, TIMING OFF, jit off, no
-- parallel workers), what planning took, rows, and the plan.  To run it:
--
--	test/cluster run psql -X -v rows=50000 -v dim=128 -f test/bench/queries.sql
--
-- or on a GPU host, test/gpu/run BUNDLE bench-queries [ROWS [DIM]].  Data: unit vectors; chunks of
-- documents of 200 topics, of which some have many documents.  Thresholds are those of the query:
-- few is passed by 7 rows, mid by 130, many by 2,000, none by none.  The server needs room for all
-- rows in shared_buffers, since times are those of a warm one.
\set QUIET on
\pset footer off
\if :{?rows}
\else
\set rows 50000
\endif
\if :{?dim}
\else
\set dim 128
\endif
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS gpugraph CASCADE;
SELECT setseed(0.42) \g /dev/null

-- Sums of few vectors of a pool stand for noise: a million rows take seconds so.
CREATE UNLOGGED TABLE noise AS SELECT k, array_agg(sqrt(-2 * ln(1 - random()))
	* cos(2 * pi() * random()))::vector AS v
	FROM generate_series(0, 4095) k, generate_series(1, :dim) GROUP BY k;
ANALYZE noise;
CREATE FUNCTION pick(i int8, salt int) RETURNS int PARALLEL SAFE IMMUTABLE LANGUAGE sql AS
	'SELECT (hashint8extended(i, salt) & 4095)::int';
CREATE FUNCTION times(x float8) RETURNS vector PARALLEL SAFE IMMUTABLE LANGUAGE sql AS
	$$ SELECT array_fill(x, ARRAY[vector_dims(v)])::vector FROM noise WHERE k = 0 $$;
SELECT times(0.5) AS half, times(0.35) AS third, times(0.02) AS little \gset
CREATE UNLOGGED TABLE docs AS SELECT d AS id, d % 97 AS owner, d % 20 AS kind, d % 10 <> 0 AS
	published,
	timestamptz '2025-01-01' + d * interval '1 hour' AS created_at,
	t.v + (a.v + b.v) * :'half'::vector AS centre
	FROM (SELECT d, (200 * power((hashint8extended(d, 9) & 65535) / 65536.0, 2))::int AS topic
		FROM generate_series(1, :rows / 10) d) s
	JOIN noise t ON t.k = topic JOIN noise a ON a.k = pick(d, 1) JOIN noise b ON b.k = pick(d, 2);
ANALYZE docs;
SELECT format('CREATE TABLE chunks (id int, doc_id int, n int, collection text, tenant int,
	content text, meta jsonb, fts tsvector, emb vector(%s))', :dim) \gexec
ALTER TABLE chunks ALTER emb SET STORAGE external;
INSERT INTO chunks SELECT i, d.id, i % 10, 'kb_' || d.id % 25, d.id % 50,
	'chunk ' || i || ' word' || i % 1000 || ' word' || i % 37 || repeat(' lorem ipsum', 20),
	jsonb_build_object('source', 'file' || d.id % 300 || '.pdf', 'page', i % 10, 'lang',
		CASE WHEN i % 20 = 0 THEN 'de' ELSE 'en' END, 'ref_doc_id', d.id::text),
	to_tsvector('simple', 'chunk word' || i % 1000 || ' word' || i % 37),
	l2_normalize(d.centre + (a.v + b.v) * :'third'::vector)
	FROM (SELECT (hashint8extended(s, 3) & 1048575) AS scattered, s AS i
		FROM generate_series(1, :rows) s ORDER BY 1) s
	JOIN docs d ON d.id = (i - 1) / 10 + 1
	JOIN noise a ON a.k = pick(i, 4) JOIN noise b ON b.k = pick(i, 5);
ALTER TABLE docs DROP centre;
ALTER TABLE docs ADD PRIMARY KEY (id);
CREATE UNLOGGED TABLE acl AS SELECT DISTINCT u AS usr,
	1 + ((hashint8extended(u * 1000 + j, 7) & 2147483647) % (:rows / 10))::int AS doc_id
	FROM generate_series(1, 20) u, generate_series(1, u * 50) j;
CREATE INDEX ON acl (usr, doc_id);
CREATE INDEX ON acl (doc_id);
CREATE INDEX ON chunks (id);
CREATE INDEX ON chunks (doc_id);
CREATE INDEX ON chunks (tenant);
CREATE INDEX ON chunks USING gin (meta jsonb_path_ops);
CREATE INDEX ON chunks USING gin (fts);
CREATE INDEX by_cosine ON chunks USING gpugraph
	(emb vector_cosine_ops, collection, tenant, doc_id, (meta->>'source'));
CREATE INDEX by_product ON chunks USING gpugraph (emb vector_ip_ops);
VACUUM ANALYZE chunks;
ANALYZE docs, acl;

-- a policy's set of documents
DROP ROLE IF EXISTS bench_reader;
CREATE ROLE bench_reader;
GRANT SELECT ON chunks, docs, acl TO bench_reader;
ALTER TABLE chunks ENABLE ROW LEVEL SECURITY;
CREATE POLICY granted ON chunks TO bench_reader
	USING (doc_id IN (SELECT doc_id FROM acl WHERE usr = 7));

-- What stands for what in shapes: {q} the query, {few} and so on the thresholds of its distance.
SELECT l2_normalize(c.emb + n.v * :'little'::vector)::text AS q
	FROM chunks c, noise n WHERE c.id = :rows / 2 + 7 AND n.k = 77 \gset
CREATE TABLE nearest AS SELECT emb <=> :'q' AS d FROM chunks ORDER BY 1 LIMIT 2001;
CREATE TABLE words (word text, means text);
INSERT INTO words VALUES ('{q}', quote_literal(:'q') || format('::vector(%s)', :dim));
INSERT INTO words SELECT word, ((SELECT d FROM nearest ORDER BY d OFFSET n - 1 LIMIT 1)
	+ (SELECT d FROM nearest ORDER BY d OFFSET n LIMIT 1))::text || '/2'
	FROM (VALUES ('{few}', 7), ('{mid}', 130), ('{many}', 2000)) w (word, n);
INSERT INTO words SELECT '{none}', (min(d) / 2)::text FROM nearest;

CREATE TABLE shapes (number serial, name text, asked text, by_hand text, role text DEFAULT 'none');
INSERT INTO shapes (name, asked, by_hand) VALUES
('plain', 'SELECT id FROM chunks ORDER BY emb <=> {q} LIMIT 10', NULL),
('1 - d > t, few', 'SELECT id, 1 - (emb <=> {q}) AS s FROM chunks WHERE 1 - (emb <=> {q}) > 1 -
	{few}
	ORDER BY emb <=> {q} LIMIT 100',
 'SELECT id FROM (SELECT id, emb <=> {q} AS d FROM chunks ORDER BY d LIMIT 100) s WHERE d < {few}'),
('1 - d > t, many', 'SELECT id FROM chunks WHERE 1 - (emb <=> {q}) > 1 - {many}
	ORDER BY emb <=> {q} LIMIT 10',
 'SELECT id FROM chunks ORDER BY emb <=> {q} LIMIT 10'),
('1 - d > t, none', 'SELECT id FROM chunks WHERE 1 - (emb <=> {q}) > 1 - {none}
	ORDER BY emb <=> {q} LIMIT 10',
 'SELECT id FROM (SELECT id, emb <=> {q} AS d FROM chunks ORDER BY d LIMIT 10) s WHERE d < {none}'),
('d < r, few', 'SELECT id FROM chunks WHERE emb <=> {q} < {few} ORDER BY emb <=> {q} LIMIT 10',
 'SELECT id FROM (SELECT id, emb <=> {q} AS d FROM chunks ORDER BY d LIMIT 10) s WHERE d < {few}'),
('d < r, many', 'SELECT id FROM chunks WHERE emb <=> {q} < {many} ORDER BY emb <=> {q} LIMIT 10',
 'SELECT id FROM chunks ORDER BY emb <=> {q} LIMIT 10'),
('d < r, none', 'SELECT id FROM chunks WHERE emb <=> {q} < {none} ORDER BY emb <=> {q} LIMIT 1',
 'SELECT id FROM (SELECT id, emb <=> {q} AS d FROM chunks ORDER BY d LIMIT 1) s WHERE d < {none}'),
('round(d) <= r', 'SELECT id FROM chunks WHERE round((emb <=> {q})::numeric, 8) <=
	round(({few})::numeric, 8)
	ORDER BY emb <=> {q} LIMIT 10',
 'SELECT id FROM (SELECT id, emb <=> {q} AS d FROM chunks ORDER BY d LIMIT 10) s WHERE d < {few}'),
('v <#> q < t', 'SELECT id FROM chunks WHERE emb <#> {q} < {few} - 1 ORDER BY emb <#> {q} LIMIT 10',
 'SELECT id FROM (SELECT id, emb <#> {q} AS d FROM chunks ORDER BY d LIMIT 10) s WHERE d <
	{few} - 1'),
('(v <#> q) * -1 > t', 'SELECT id FROM chunks WHERE (emb <#> {q}) * -1 > 1 - {few}
	ORDER BY emb <#> {q} LIMIT 10',
 'SELECT id FROM (SELECT id, emb <#> {q} AS d FROM chunks ORDER BY d LIMIT 10) s WHERE d <
	{few} - 1'),
('d < r outside', 'SELECT id FROM (SELECT id, emb <=> {q} AS d FROM chunks) s WHERE d <= {few}
	ORDER BY d LIMIT 10',
 'SELECT id FROM (SELECT id, emb <=> {q} AS d FROM chunks ORDER BY d LIMIT 10) s WHERE d <= {few}'),
('d < r, a filter column', 'SELECT id FROM chunks WHERE collection = ''kb_3'' AND emb <=> {q} <
	{many}
	ORDER BY emb <=> {q} LIMIT 40',
 'SELECT id FROM (SELECT id, emb <=> {q} AS d FROM chunks WHERE collection = ''kb_3'' ORDER BY d
	LIMIT 40) s WHERE d < {many}'),
('d < r, a B-tree beside it', 'SELECT id FROM chunks WHERE tenant = 28 AND 1 - (emb <=> {q}) >
	1 - {mid}
	ORDER BY 1 - (emb <=> {q}) DESC LIMIT 10',
 'SELECT id FROM (SELECT id, emb <=> {q} AS d FROM chunks WHERE tenant = 28 ORDER BY d LIMIT 10) s
	WHERE d < {mid}'),
('d < r, jsonb by GIN', 'SELECT id FROM chunks WHERE emb <=> {q} < {mid}
	AND meta @@ ''$.lang == "de"''::jsonpath ORDER BY emb <=> {q} LIMIT 10',
 'SELECT id FROM (SELECT id, emb <=> {q} AS d FROM chunks WHERE meta @@ ''$.lang == "de"''::jsonpath
	ORDER BY d LIMIT 10) s WHERE d < {mid}'),
('1 - d DESC', 'SELECT id, 1 - (emb <=> {q}) AS s FROM chunks ORDER BY s DESC LIMIT 5',
 'SELECT id, 1 - (emb <=> {q}) AS s FROM chunks ORDER BY emb <=> {q} LIMIT 5'),
('1 - d DESC and t', 'SELECT id, 1 - (emb <=> {q}) AS s FROM chunks WHERE 1 - (emb <=> {q}) > 1
	- {few}
	ORDER BY s DESC LIMIT 4',
 'SELECT id FROM (SELECT id, emb <=> {q} AS d FROM chunks ORDER BY d LIMIT 4) s WHERE d < {few}'),
('1 - d DESC, content', 'SELECT id, content, meta, 1 - (emb <=> {q}) AS s FROM chunks ORDER BY
	s DESC LIMIT 10',
 'SELECT id, content, meta, 1 - (emb <=> {q}) AS s FROM chunks ORDER BY emb <=> {q} LIMIT 10'),
('(v <#> q) * -1 DESC', 'SELECT id, (emb <#> {q}) * -1 AS s FROM chunks ORDER BY s DESC LIMIT 10',
 'SELECT id FROM chunks ORDER BY emb <#> {q} LIMIT 10'),
('1 + (v <#> q)', 'SELECT id, 1 + (emb <#> {q}) AS d FROM chunks WHERE 1 + (emb <#> {q}) < 1
	ORDER BY d LIMIT 4',
 'SELECT id FROM (SELECT id, emb <#> {q} AS d FROM chunks ORDER BY d LIMIT 4) s WHERE d < 0'),
('(2 - d) / 2 in a CTE', 'WITH t AS (SELECT (2 - (emb <=> {q})) / 2 AS s, id FROM chunks)
	SELECT id, s FROM t WHERE s >= (2 - {few}) / 2 ORDER BY s DESC LIMIT 10',
 'SELECT id FROM (SELECT id, emb <=> {q} AS d FROM chunks ORDER BY d LIMIT 10) s WHERE d < {few}'),
('cosine_distance()', 'SELECT id FROM chunks ORDER BY cosine_distance(emb, {q}) LIMIT 10',
 'SELECT id FROM chunks ORDER BY emb <=> {q} LIMIT 10'),
('d, id', 'SELECT id FROM chunks ORDER BY emb <=> {q}, id LIMIT 10',
 'SELECT id FROM (SELECT id, emb <=> {q} AS d FROM chunks ORDER BY d LIMIT 10) s ORDER BY d, id'),
('a join, d, id', 'SELECT c.id FROM chunks c JOIN docs d ON d.id = c.doc_id
	WHERE d.created_at >= ''2025-01-15'' AND d.published ORDER BY c.emb <=> {q}, c.id LIMIT 100',
 'SELECT id FROM (SELECT c.id, c.emb <=> {q} AS d FROM chunks c JOIN docs d ON d.id = c.doc_id
	WHERE d.created_at >= ''2025-01-15'' AND d.published ORDER BY c.emb <=> {q} LIMIT 100) s ORDER
	BY d, id'),
('row_number()', 'SELECT id, row_number() OVER (ORDER BY emb <=> {q}) AS r FROM chunks ORDER BY
	r LIMIT 20',
 'SELECT id, row_number() OVER (ORDER BY d) FROM (SELECT id, emb <=> {q} AS d FROM chunks ORDER BY d
	LIMIT 20) s'),
('rank()', 'SELECT id, rank() OVER (ORDER BY emb <=> {q}) AS r FROM chunks ORDER BY emb <=> {q}
	LIMIT 20',
 'SELECT id, rank() OVER (ORDER BY d) FROM (SELECT id, emb <=> {q} AS d FROM chunks ORDER BY d
	LIMIT 20) s'),
('hybrid, two halves', 'WITH words AS (SELECT id, row_number() OVER (ORDER BY ts_rank_cd(fts,
	w) DESC) AS r
	FROM chunks, plainto_tsquery(''simple'', ''word17 word517'') w WHERE fts @@ w ORDER BY r LIMIT
	20),
	near AS (SELECT id, row_number() OVER (ORDER BY emb <#> {q}) AS r FROM chunks ORDER BY r LIMIT
	20)
	SELECT coalesce(w.id, n.id) FROM words w FULL JOIN near n ON w.id = n.id
	ORDER BY coalesce(1.0 / (50 + w.r), 0) + coalesce(1.0 / (50 + n.r), 0) DESC LIMIT 10',
 'WITH words AS (SELECT id, row_number() OVER (ORDER BY ts_rank_cd(fts, w) DESC) AS r
	FROM chunks, plainto_tsquery(''simple'', ''word17 word517'') w WHERE fts @@ w ORDER BY r LIMIT
	20),
	near AS (SELECT id, row_number() OVER (ORDER BY d) AS r FROM (SELECT id, emb <#> {q} AS d FROM
	chunks
	ORDER BY d LIMIT 20) s)
	SELECT coalesce(w.id, n.id) FROM words w FULL JOIN near n ON w.id = n.id
	ORDER BY coalesce(1.0 / (50 + w.r), 0) + coalesce(1.0 / (50 + n.r), 0) DESC LIMIT 10'),
('meta->>''source'' = v', 'SELECT id FROM chunks WHERE meta->>''source'' = ''file7.pdf'' ORDER
	BY emb <=> {q} LIMIT 5',
 NULL),
('doc_id IN (SELECT)', 'SELECT id FROM chunks WHERE doc_id IN (SELECT doc_id FROM acl WHERE usr = 7)
	ORDER BY emb <=> {q} LIMIT 10',
 'SELECT id FROM chunks WHERE doc_id = ANY (ARRAY(SELECT doc_id FROM acl WHERE usr = 7))
	ORDER BY emb <=> {q} LIMIT 10'),
('EXISTS', 'SELECT id FROM chunks c WHERE EXISTS (SELECT 1 FROM acl a WHERE a.usr = 7 AND
	a.doc_id = c.doc_id)
	ORDER BY emb <=> {q} LIMIT 10',
 'SELECT id FROM chunks WHERE doc_id = ANY (ARRAY(SELECT doc_id FROM acl WHERE usr = 7))
	ORDER BY emb <=> {q} LIMIT 10'),
('NOT EXISTS', 'SELECT id FROM chunks c WHERE NOT EXISTS (SELECT 1 FROM acl a WHERE a.usr = 7
	AND a.doc_id = c.doc_id) ORDER BY emb <=> {q} LIMIT 10', NULL),
('a join that filters', 'SELECT c.id FROM chunks c JOIN acl a ON a.doc_id = c.doc_id WHERE a.usr = 3
	AND c.tenant < 40 ORDER BY c.emb <=> {q} LIMIT 10',
 'SELECT id FROM chunks WHERE doc_id = ANY (ARRAY(SELECT doc_id FROM acl WHERE usr = 3)) AND
	tenant < 40
	ORDER BY emb <=> {q} LIMIT 10'),
('a dimension table', 'SELECT c.id FROM chunks c JOIN docs d ON d.id = c.doc_id WHERE d.kind = 3
	AND d.owner < 20 ORDER BY c.emb <=> {q} LIMIT 10',
 'SELECT id FROM chunks WHERE doc_id = ANY (ARRAY(SELECT id FROM docs WHERE kind = 3 AND owner
	< 20))
	ORDER BY emb <=> {q} LIMIT 10'),
('tenant IN (…)', 'SELECT id FROM chunks WHERE tenant IN (3, 5, 8) ORDER BY emb <=> {q} LIMIT
	10', NULL),
('tenant = 3 OR doc_id = 77', 'SELECT id FROM chunks WHERE tenant = 3 OR doc_id = 77
	ORDER BY emb <=> {q} LIMIT 10', NULL);
INSERT INTO shapes (name, asked, by_hand, role) VALUES
('a policy''s set', 'SELECT id FROM chunks ORDER BY emb <=> {q} LIMIT 10',
 'SELECT id FROM chunks WHERE doc_id = ANY (ARRAY(SELECT doc_id FROM acl WHERE usr = 7))
	ORDER BY emb <=> {q} LIMIT 10', 'bench_reader');

-- One run of a statement
CREATE FUNCTION run(statement text, as_role text, OUT ms numeric, OUT planning numeric, OUT
	rows int,
	OUT plan text) LANGUAGE plpgsql AS $$
DECLARE
	answer json;
BEGIN
	PERFORM set_config('role', as_role, true);
	EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT json) ' || statement INTO answer;
	PERFORM set_config('role', 'none', true);
	ms := answer->0->>'Execution Time';
	planning := answer->0->>'Planning Time';
	rows := answer->0->'Plan'->>'Actual Rows';
	plan := CASE WHEN answer::text ~ '"Custom Plan Provider": "Gpugraph' THEN 'bitmap, '
		ELSE '' END || CASE WHEN answer::text ~ '"Order By"' THEN 'index' ELSE 'table' END;
END $$;
CREATE TABLE result (number int, name text, ms numeric, by_hand numeric, planning numeric, rows int,
	rows_by_hand int, plan text);
CREATE PROCEDURE measure(shape shapes) LANGUAGE plpgsql AS $$
DECLARE
	statements text[] := ARRAY[shape.asked, shape.by_hand];
	roles text[] := ARRAY[shape.role, 'none'];
	word words;
	got record;
	runs int := 30;
BEGIN
	FOR word IN TABLE words LOOP
		statements := ARRAY[replace(statements[1], word.word, word.means),
			replace(statements[2], word.word, word.means)];
	END LOOP;
	CREATE TEMP TABLE one (side int, ms numeric, planning numeric, rows int, plan text) ON COMMIT
	DROP;
	FOR i IN 0 .. 30 LOOP
		FOR side IN 1 .. 2 LOOP
			CONTINUE WHEN statements[side] IS NULL;
			got := run(statements[side], roles[side]);
			IF i = 0 THEN
				runs := least(runs, greatest(2, 3000 / greatest(got.ms, 1)));
			ELSE
				INSERT INTO one VALUES (side, got.ms, got.planning, got.rows, got.plan);
			END IF;
		END LOOP;
		EXIT WHEN i >= runs;
	END LOOP;
	INSERT INTO result SELECT shape.number, shape.name,
		percentile_disc(0.5) WITHIN GROUP (ORDER BY ms) FILTER (WHERE side = 1),
		percentile_disc(0.5) WITHIN GROUP (ORDER BY ms) FILTER (WHERE side = 2),
		percentile_disc(0.5) WITHIN GROUP (ORDER BY planning) FILTER (WHERE side = 1),
		max(rows) FILTER (WHERE side = 1), max(rows) FILTER (WHERE side = 2),
		max(plan) FILTER (WHERE side = 1) FROM one;
END $$;
SET jit = off;
SET max_parallel_workers_per_gather = 0;
SELECT gpugraph_prewarm('by_cosine'), gpugraph_prewarm('by_product') \g /dev/null
DO $$
DECLARE
	shape shapes;
BEGIN
	FOR shape IN SELECT * FROM shapes ORDER BY number LOOP
		CALL measure(shape);
		COMMIT;
	END LOOP;
END $$;
SELECT name AS shape, ms, by_hand, round(ms / by_hand, 2) AS ratio, planning, rows,
	rows_by_hand, plan,
	CASE WHEN ms > 1.5 * by_hand AND ms > by_hand + 0.3 THEN 'over' ELSE '' END AS bar
	FROM result ORDER BY number;
SELECT count(*) AS shapes, count(*) FILTER (WHERE ms > 1.5 * by_hand AND ms > by_hand + 0.3) AS over
	FROM result;
SELECT index, state, queries_gpu, queries_cpu FROM gpugraph_stat_index;
