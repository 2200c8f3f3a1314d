-- Each query of doc/queries.md has the plan that the page names
\ir include/helpers.psql
\set page `cat ../../doc/queries.md`
SELECT * FROM no_plan();

CREATE TABLE docs (id bigint PRIMARY KEY, tenant int, embedding vector(3), body text, meta jsonb);
INSERT INTO docs SELECT i, i % 10, ARRAY[sin(i), cos(i * 7), sin(i * 3) + 2]::real[]::vector(3),
		'text ' || i, jsonb_build_object('source', 'file' || i % 3) FROM generate_series(1, 5000) i;
CREATE INDEX ON docs USING gpugraph (embedding vector_cosine_ops, tenant, (meta->>'source'));
ANALYZE docs;

CREATE FUNCTION plan_kind(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan text := plan_of(replace(query, '$1', quote_literal('[0.1,0.2,0.3]')));
BEGIN
	RETURN CASE WHEN plan !~ 'docs_embedding' THEN 'table'
		WHEN plan ~ 'Incremental Sort' THEN 'index, keys'
		WHEN plan ~ '\mSort Key' THEN 'index, and a sort' ELSE 'index' END;
END $$;

CREATE TABLE shapes AS
	SELECT m[1] AS query, m[2] AS plan
	FROM regexp_matches(:'page', '^\| `([^`]*)` \| ([a-z, ]*) \|$', 'gn') m;
SELECT cmp_ok((SELECT count(*) FROM shapes), '>', 35::bigint, 'the page is read');
SELECT is(plan_kind(query), plan, query) FROM shapes;

-- and the rows of the same query without the index
CREATE FUNCTION rows_of(query text, by_index boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	rows text;
BEGIN
	PERFORM set_config('enable_indexscan', by_index::text, true);
	EXECUTE format('SELECT array_agg(s)::text FROM (%s) s', replace(query, '$1',
		quote_literal('[0.1,0.2,0.3]'))) INTO rows;
	RETURN rows;
END $$;
SELECT is(rows_of(query, true), rows_of(query, false), 'rows: ' || query) FROM shapes
	WHERE plan LIKE 'index%';

SELECT * FROM finish();
