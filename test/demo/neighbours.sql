-- The packages nearest to a package (which is left out) or to a text, through the index, and how
-- many of them are in the exact answer, that is no farther than its last row.
\set QUIET on
SET enable_seqscan = off;
CREATE TEMP TABLE answer AS
	SELECT p.* FROM (SELECT embedding FROM asked WHERE label = :'label') q,
		LATERAL (SELECT name, summary, embedding <=> q.embedding AS distance FROM packages
				 WHERE name <> :'label' ORDER BY embedding <=> q.embedding LIMIT :shown) p;
SET enable_seqscan = on;
SET enable_indexscan = off;
CREATE TEMP TABLE exact AS
	SELECT p.* FROM (SELECT embedding FROM asked WHERE label = :'label') q,
		LATERAL (SELECT name, embedding <=> q.embedding AS distance FROM packages
				 WHERE name <> :'label' ORDER BY embedding <=> q.embedding LIMIT :shown) p;
SELECT format('   %s  %s %s', to_char(distance, '0.000'), rpad(name, 28), left(summary, 70))
	FROM answer ORDER BY distance;
SELECT format('   (%s of these %s are in the exact answer)',
	count(*) FILTER (WHERE distance <= (SELECT max(distance) + 1e-6 FROM exact)), count(*))
	FROM answer;
