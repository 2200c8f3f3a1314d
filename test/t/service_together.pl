# Requests of many clients that a device answers together each have their own answer: with a
# condition on a filter column, with one that no index has, and with neither, for lists of several
# lengths.
#
#	GG_SERVICE_ENGINE		what plays the device: cpu (default), or cuda on a GPU host
use strict;
use warnings;

use Test::More;

use Gpugraph;
use Residency;

my $node = service_node('together', conf => "max_connections = 40\n");
make_items($node, 12000, 16);
$node->safe_psql('postgres', <<'SQL');
DROP INDEX items_idx;
ALTER TABLE items ADD share int;
UPDATE items SET share = id * 7 % 1000;
VACUUM FULL ANALYZE items;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, id);
SELECT gpugraph_prewarm('items_idx');
CREATE TABLE cases (number serial, condition text, k int, q int, exact float8[]);
INSERT INTO cases (condition, k, q) SELECT condition, k, q FROM generate_series(1, 4) q,
	(VALUES ('id < 200', 10), ('id < 6000', 10), ('id BETWEEN 3000 AND 3050', 30),
		('share < 10', 10), ('share < 100', 10), ('share = 3', 5), ('share < 500', 100))
	c (condition, k);
CREATE FUNCTION nearest(c cases) RETURNS float8[] LANGUAGE plpgsql AS $$
DECLARE
	found float8[];
BEGIN
	EXECUTE format('SELECT array_agg(d) FROM (SELECT val <-> $1 AS d FROM items WHERE %s '
		'ORDER BY val <-> $1 LIMIT %s) s', c.condition, c.k)
		USING (SELECT val FROM queries WHERE q = c.q) INTO found;
	RETURN found;
END $$;
SET enable_indexscan = off;
UPDATE cases SET exact = nearest(cases);
-- The answer has as many rows as there are, and all but a few of them are the nearest.
CREATE FUNCTION look(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	c cases;
	found float8[];
	nright int;
BEGIN
	SELECT * INTO c FROM cases WHERE number = n;
	found := nearest(c);
	nright := (SELECT count(*) FROM unnest(found) f
		WHERE f <= c.exact[cardinality(c.exact)] * 1.000001);
	IF cardinality(found) <> cardinality(c.exact) OR found[1] < c.exact[1] * 0.999999 OR
		nright < 0.8 * cardinality(found) THEN
		RAISE EXCEPTION 'case %, % LIMIT %: % instead of %', n, c.condition, c.k, found, c.exact;
	END IF;
END $$;
SQL
my $cases = $node->safe_psql('postgres', 'SELECT count(*) FROM cases');

# alone first
my $script = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;
	SET gpugraph.engine = cuda;\n";
is($node->psql('postgres', "$script SELECT look(number) FROM cases"), 0, 'each alone');

my $before = of_index($node, 'queries_gpu');
my $bench = start_pgbench($node, '--client=12 --time=5', 'look@1' => <<SQL);
\\set n random(1, $cases)
BEGIN;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_sort = off;
SET LOCAL gpugraph.engine = cuda;
SELECT look(:n);
COMMIT;
SQL
eval { $bench->{harness}->finish; };
is(join('', grep { !/^pgbench \(/ } map { "$_\n" } split /\n/, $bench->{err}), '',
	'no answer of twelve clients was another one');
like($bench->{out}, qr/number of failed transactions: 0 /, 'and pgbench counted none that failed');
cmp_ok(of_index($node, 'queries_gpu') - $before, '>', 12, 'the device answered');

done_testing();
