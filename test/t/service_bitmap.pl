# Index scans that are restricted to a bitmap of other indexes are answered by the device, exactly;
# bitmaps that are too many rows for it restrict nothing where only the device may answer.
use strict;
use warnings;

use Test::More;

use Gpugraph;
use Residency;

my $node = service_node('bitmap', conf => "gpugraph.itopk_size = 64\n");
make_items($node, 12000, 16);
$node->safe_psql('postgres', <<'SQL');
ALTER INDEX items_idx SET (seal_rows = 0);
CREATE INDEX items_cat_idx ON items (cat);
CREATE INDEX items_big_idx ON items (big);
INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id % 3 = 0;
-- equal rows: nodes of many
INSERT INTO items SELECT id + 40000, cat, big, (SELECT val FROM items WHERE id = 7) FROM items
	WHERE id <= 700;
DELETE FROM items WHERE id % 17 = 0;
REINDEX INDEX items_idx;
INSERT INTO items SELECT id + 60000, cat, big, val FROM items WHERE id % 5 = 0;
VACUUM ANALYZE items;
SELECT gpugraph_prewarm('items_idx');
SQL

my $fast = 'SET enable_seqscan = off; SET enable_sort = off; SET gpugraph.engine = cuda;';
my $slow = 'SET enable_indexscan = off; SET enable_bitmapscan = off;';

sub plan_of
{
	my $sql = shift;
	return $node->safe_psql('postgres', "$fast EXPLAIN $sql");
}

for my $filter ('cat = 7', 'big = 3', 'cat = 7 OR big = 3', 'cat = 7 AND big < 100', 'cat < 5')
{
	for my $limit ('', 'LIMIT 10', 'LIMIT 200')
	{
		my $nearest = "FROM items WHERE $filter
			ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) $limit";
		# by distance, since rows may be equal
		my $sql = "SELECT string_agg(d::numeric(12, 4)::text, ' ' ORDER BY d), count(*) FROM
			(SELECT val <-> (SELECT val FROM queries WHERE q = 1) AS d $nearest) s";
		my ($gpu, $cpu) = answered_by($node);

		like(plan_of("SELECT id $nearest"), qr/GpugraphBitmapScan/, "$filter $limit: restricted");
		is($node->safe_psql('postgres', "$fast $sql"), $node->safe_psql('postgres', "$slow $sql"),
			"$filter $limit: the right rows");
		my ($gpu_after, $cpu_after) = answered_by($node);
		is(join(' ', $gpu_after > $gpu, $cpu_after - $cpu), '1 0',
			"$filter $limit: by the device alone");
	}
}

# The planner expects few rows, and 70,000 match.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE many (id int, few int, val vector(2));
INSERT INTO many SELECT i, CASE WHEN i > 4000 THEN 0 ELSE i END, ARRAY[i, 0]::real[]::vector
	FROM generate_series(1, 74000) i;
CREATE INDEX many_few_idx ON many (few);
CREATE INDEX many_idx ON many USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, intermediate_graph_degree = 16);
ANALYZE many;
SELECT gpugraph_prewarm('many_idx');
SQL
my $prepare = 'SET plan_cache_mode = force_generic_plan; PREPARE find(int) AS
	SELECT id FROM many WHERE few = $1 ORDER BY val <-> \'[0,0]\' LIMIT 3;';
like($node->safe_psql('postgres', "$fast $prepare EXPLAIN (ANALYZE, COSTS OFF) EXECUTE find(0)"),
	qr/GpugraphBitmapScan.*Unrestricted Scans: 1/s, 'more rows than the device takes');
is($node->safe_psql('postgres', "$fast $prepare EXECUTE find(0)"), "4001\n4002\n4003",
	'more rows than the device takes: the right rows');

$node->stop;
done_testing();
