# What merges free is used again by the next merge of the same worker, though that takes no snapshot
# in between: an index of which half is deleted and inserted again, over and over, keeps its size.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use Gpugraph;
use Merging;

my $node = merging_node('reuse');
$node->safe_psql('postgres', <<'SQL');
SELECT setseed(0.5);
CREATE TABLE items (id int, val vector(64)) WITH (vacuum_truncate = off);
CREATE FUNCTION fill(part int) RETURNS SETOF items LANGUAGE sql VOLATILE AS
$$
	SELECT i, (SELECT array_agg(random()) FROM generate_series(1, 64) d WHERE d <> i - i)::vector
		FROM generate_series(1, 10000) i WHERE part < 0 OR (i >> part) & 1 = 1
$$;
INSERT INTO items SELECT * FROM fill(-1);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 500);
SQL
my $fresh = merge_info($node, 'total_bytes');
my @sizes;
for my $cycle (1 .. 6)
{
	my $part = $cycle % 8;

	$node->safe_psql('postgres', "DELETE FROM items WHERE (id >> $part) & 1 = 1");
	$node->safe_psql('postgres', 'VACUUM items');
	$node->safe_psql('postgres', <<SQL);
CREATE TABLE more AS SELECT * FROM fill($part);
DO \$\$
BEGIN
	FOR i IN 0 .. 19 LOOP
		INSERT INTO items SELECT * FROM more WHERE id % 20 = i;
		COMMIT;
		PERFORM pg_sleep(0.05);
	END LOOP;
END \$\$;
DROP TABLE more;
SQL
	ok(defined wait_for(sub { merge_info($node, 'delta_rows') <= 500 }),
		"cycle $cycle: rows are merged");
	push @sizes, sprintf '%.2f', merge_info($node, 'total_bytes') / $fresh;
}
note "sizes over the fresh index's: @sizes";
cmp_ok($sizes[-1], '<=', 2.8, 'half deleted and inserted again six times: size over a fresh index');
my ($rc, $out, $err) = $node->psql('postgres', "SELECT gpugraph_check('items_idx', true)");
is("$rc $err", '0 ', 'the index is sound');

$node->stop;
done_testing();
