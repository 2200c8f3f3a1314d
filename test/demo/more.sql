-- A filter, a distance threshold, and hybrid search with full text, each for a question.
\set QUIET on
\pset tuples_only on
\pset format unaligned
\set filtered 'record the screen as a video'
\set near 'recover deleted files from a disk'
\set hybrid 'write sheet music'
\set words 'guitar OR piano'
SET enable_seqscan = off;

CREATE FUNCTION pg_temp.line(name text, summary text, score numeric) RETURNS text
LANGUAGE sql AS $$
	SELECT format('     %s  %s %s', to_char(score, '0.000'), rpad(name, 24), left(summary, 60)) $$;

SELECT format(E'"%s" WHERE section = ''gnome'':', :'filtered');
SELECT pg_temp.line(name, summary, d::numeric) FROM (
	SELECT name, summary, embedding <=> (SELECT embedding FROM questions WHERE text = :'filtered')
		AS d FROM packages WHERE section = 'gnome' ORDER BY d LIMIT :shown) s;

SELECT format(E'\n"%s" WHERE distance < 0.13:', :'near');
SELECT pg_temp.line(name, summary, d::numeric) FROM (
	SELECT name, summary, embedding <=> (SELECT embedding FROM questions WHERE text = :'near') AS d
	FROM packages WHERE embedding <=> (SELECT embedding FROM questions WHERE text = :'near') < 0.13
	ORDER BY d LIMIT 20) s;

SELECT format(E'\n"%s" and the words "%s", by reciprocal rank fusion:', :'hybrid', :'words');
WITH near AS (
	SELECT name, row_number() OVER (ORDER BY embedding
		<=> (SELECT embedding FROM questions WHERE text = :'hybrid')) AS rank
	FROM packages ORDER BY rank LIMIT 50),
words AS (
	SELECT name, row_number() OVER (ORDER BY ts_rank_cd(to_tsvector('english', summary), q) DESC,
		name) AS rank FROM packages, websearch_to_tsquery('english', :'words') q
	WHERE to_tsvector('english', summary) @@ q ORDER BY rank LIMIT 50)
SELECT pg_temp.line(name, summary, score) FROM (
	SELECT name, coalesce(1.0 / (60 + near.rank), 0) + coalesce(1.0 / (60 + words.rank), 0) AS score
	FROM near FULL JOIN words USING (name) ORDER BY score DESC, name LIMIT :shown) s
	JOIN packages USING (name) ORDER BY score DESC, name;
