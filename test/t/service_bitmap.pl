# Index scans that are restricted to a bitmap of other indexes are answered by the device, exactly,
# however many rows the bitmap has, as long as they fit into work_mem.
use Gpugraph;
use Residency;

my $node = service_node('bitmap', conf => "gpugraph.itopk_size = 64\n");
make_items($node, 12000, 16);
$node->sql(<<'SQL');
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
	return $node->sql("$fast EXPLAIN $sql");
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
		is($node->sql("$fast $sql"), $node->sql("$slow $sql"), "$filter $limit: the right rows");
		my ($gpu_after, $cpu_after) = answered_by($node);
		is(join(' ', $gpu_after > $gpu, $cpu_after - $cpu), '1 0',
			"$filter $limit: by the device alone");
	}
}

# Bitmaps of more TIDs than one request to the device takes, which is 65,536: generic plans, since
# the planner would not take so loose a bitmap if it knew.  Rows that match lie in any order.  The
# heap has few rows to a page, so that bitmaps become lossy.
$node->sql(<<'SQL');
CREATE TABLE many (id int, few int, edge int, beyond int, val vector(2)) WITH (fillfactor = 10);
INSERT INTO many SELECT i, CASE WHEN i > 4000 THEN 0 ELSE i END,
		CASE WHEN i <= 65536 THEN 0 ELSE i END, CASE WHEN i <= 65537 THEN 0 ELSE i END,
		ARRAY[i * 7919 % 90001, 0]::real[]::vector
	FROM generate_series(1, 90000) i;
-- equal rows, whose TIDs come with different requests
INSERT INTO many SELECT id + 100000, 0, 1, 1, val FROM many WHERE id % 30 = 1;
CREATE INDEX many_few_idx ON many (few);
CREATE INDEX many_edge_idx ON many (edge);
CREATE INDEX many_beyond_idx ON many (beyond);
CREATE INDEX many_idx ON many USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, intermediate_graph_degree = 16, seal_rows = 0);
ANALYZE many;
SELECT gpugraph_prewarm('many_idx');
SQL

# The statement that finds rows where a column is 0, as its caller sees it, once fast and once slow.
sub many
{
	my ($column, $limit, $settings, $what, $explained) = @_;
	my $prepare = "SET plan_cache_mode = force_generic_plan; $settings PREPARE find(int) AS
		SELECT id, val <-> '[0,0]' AS d FROM many WHERE $column = \$1
		ORDER BY val <-> '[0,0]' $limit;";
	# equal rows come in any order, so a LIMIT may cut off any of them
	my $digest = "SELECT count(*), count(DISTINCT id), sum(d ORDER BY n), sum(d * n ORDER BY n)
		FROM (SELECT id, d, row_number() OVER () AS n FROM got) s;";
	my $slowly = "$slow CREATE TEMP TABLE got AS SELECT id, val <-> '[0,0]' AS d FROM many
		WHERE $column = 0 ORDER BY val <-> '[0,0]' $limit;";
	my ($gpu, $cpu) = answered_by($node, 'many_idx');

	is($node->sql("$fast $prepare CREATE TEMP TABLE got AS EXECUTE find(0);
		$digest"), $node->sql("$slowly $digest"), "$what: the right rows");
	my ($gpu_after, $cpu_after) = answered_by($node, 'many_idx');
	is(join(' ', $gpu_after > $gpu, $cpu_after - $cpu), '1 0', "$what: by the device alone");
	my $plan = $node->sql("$fast $prepare EXPLAIN (ANALYZE, COSTS OFF) EXECUTE find(0)");
	like($plan, qr/GpugraphBitmapScan.*$explained/s, "$what: $explained");
	return;
}

many('edge', 'LIMIT 10', '', 'as many TIDs as one request takes', 'TIDs: 65536\n');
many('beyond', 'LIMIT 10', '', 'one TID more', 'TIDs: 65537\n');

# two lists, since the device has a delta, too: fewer TIDs fit into one request
$node->sql(<<'SQL');
INSERT INTO many SELECT id + 200000, 0, 1, 1, val FROM many WHERE id <= 9000;
SELECT gpugraph_prewarm('many_idx');
SQL
many('edge', 'LIMIT 10', '', 'with a delta', 'TIDs: 65536\n');
$node->sql('DELETE FROM many WHERE id % 20 = 0');
many('few', 'LIMIT 10', '', 'dead rows', 'TIDs: 98000\n');
# exactly: a plain VACUUM passes over pages that somebody has pinned, and FREEZE waits for them
$node->sql('VACUUM (FREEZE) many');
for my $limit ('LIMIT 10', 'LIMIT 20000', '')
{
	many('few', $limit, '', "rows that VACUUM cleared, $limit", 'TIDs: 93250\n');
	many('few', $limit, "SET work_mem = '64kB'; SET hash_mem_multiplier = 16;",
		"pages without rows, $limit", 'lossy=[1-9]\d*\n\s+TIDs: [89]\d{4}\n');
}
many('few', 'LIMIT 10', "SET work_mem = '64kB'; SET hash_mem_multiplier = 2;",
	'more TIDs than fit into work_mem', 'Unrestricted Scans: 1');

finish_test($node);
