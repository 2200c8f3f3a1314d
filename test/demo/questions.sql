-- Questions in words: the nearest packages of each through the index, marked where it is one that
-- is expected, which must be among the first :shown.
\set QUIET on
\pset tuples_only on
\pset format unaligned
SET enable_seqscan = off;
CREATE TEMP TABLE found AS
	SELECT q.text, p.*, p.name = ANY (string_to_array(q.expected, ' ')) AS expected
	FROM questions q, LATERAL (SELECT row_number() OVER (ORDER BY embedding <=> q.embedding) AS n,
			name, summary, embedding <=> q.embedding AS distance FROM packages
			ORDER BY n LIMIT :shown) p;
SELECT CASE n WHEN 1 THEN format(E'"%s"\n', text) ELSE '' END
	|| format('   %s %s  %s %s', CASE WHEN expected THEN '*' ELSE ' ' END,
		to_char(distance, '0.000'), rpad(name, 24), left(summary, 60))
	FROM found ORDER BY text, n;
SELECT format(E'\n%s of %s questions have the package that is expected (*) among these %s.',
	count(DISTINCT text) FILTER (WHERE expected), count(DISTINCT text), :shown) FROM found;
SELECT format('missing: %s, which wants %s', text, expected) FROM questions q
	WHERE NOT EXISTS (SELECT FROM found f WHERE f.text = q.text AND f.expected);
