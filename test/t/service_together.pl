# Requests of many clients that a device answers together each have their own answer: with a
# condition on a filter column, with one that no index has, with one that another index answers by a
# bitmap, and with both of these kinds, for lists of several lengths.
#
#	GG_SERVICE_ENGINE		what plays the device: cpu (default), or cuda on a GPU host
use Gpugraph;
use Residency;

my $node = service_node('together', conf => "max_connections = 40\n");
make_items($node, 12000, 16);
$node->sql(<<'SQL');
DROP INDEX items_idx;
ALTER TABLE items ADD share int, ADD part int;
UPDATE items SET share = id * 7 % 1000, part = id * 11 % 1000;
VACUUM FULL ANALYZE items;
CREATE INDEX items_part_idx ON items (part);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, id);
SELECT gpugraph_prewarm('items_idx');
CREATE TABLE cases (number serial, condition text, k int, q int, least float8, exact float8[]);
-- bitmaps come first; their rows are found exactly
INSERT INTO cases (condition, k, q, least) SELECT condition, k, q, least
	FROM generate_series(1, 4) q,
	(VALUES ('part = 5', 10, 1), ('part < 4', 10, 1), ('part BETWEEN 100 AND 104', 30, 1),
		('part IN (3, 600, 900)', 100, 1), ('part < 6', 30, 1),
		('part < 6 AND id < 6000', 10, 1), ('id < 200', 10, 0.8), ('id < 6000', 10, 0.8),
		('id BETWEEN 3000 AND 3050', 30, 0.8), ('share < 10', 10, 0.8), ('share < 100', 10, 0.8),
		('share = 3', 5, 0.8), ('share < 500', 100, 0.8))
	c (condition, k, least) ORDER BY least DESC;
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
		nright < c.least * cardinality(found) THEN
		RAISE EXCEPTION 'case %, % LIMIT %: % instead of %', n, c.condition, c.k, found, c.exact;
	END IF;
END $$;
SQL
my $cases = $node->sql('SELECT count(*) FROM cases');
my $bitmaps = $node->sql('SELECT count(*) FROM cases WHERE least = 1');

# alone first
my $settings = join ' ', map { "SET LOCAL $_;" } 'enable_seqscan = off', 'enable_sort = off',
	'gpugraph.engine = cuda';
is($node->psql('postgres', "BEGIN; $settings SELECT look(number) FROM cases"), 0, 'each alone');
for my $condition (split /\n/,
	$node->sql('SELECT DISTINCT condition FROM cases WHERE least = 1'))
{
	like($node->sql("BEGIN; $settings EXPLAIN SELECT FROM items
		WHERE $condition ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 10"),
		qr/GpugraphBitmapScan/, "$condition: by a bitmap");
}

# Twelve clients at once ask for cases 1 .. $most.
sub ask
{
	my ($most, $what) = @_;
	my $queries = of_device($node, 'queries');
	my $bench = start_pgbench($node, '--client=12 --time=5', 'look@1' => <<SQL);
\\set n random(1, $most)
BEGIN;
$settings
SELECT look(:n);
COMMIT;
SQL

	is(failed_statements($bench), '', "$what: no answer of twelve clients was another one");
	like($bench->{out}, qr/number of failed transactions: 0 /,
		"$what: and pgbench counted none that failed");
	cmp_ok(of_device($node, 'queries') - $queries, '>', 12, "$what: the device answered");
	return;
}

ask($cases, 'all kinds');
ask($bitmaps, 'bitmaps');

# one segment, and no delta
my ($queries, $batches) = split / /, of_device($node, "queries || ' ' || batches");
is(answered_together($node, 12, (split /; */, $settings =~ s/SET LOCAL/SET/gr),
	'SET gpugraph.fault = stall', 'SELECT look(1)'), '', 'bitmaps: twelve that wait together');
my ($queries_after, $batches_after) = split / /, of_device($node, "queries || ' ' || batches");
is($queries_after - $queries, 12, 'bitmaps: a query each');
cmp_ok($batches_after - $batches, '<', 12,
	'bitmaps: in fewer batches: ' . ($batches_after - $batches));

finish_test($node);
