# A device that has an index learns of the new graph: its answers become better, and none of them is
# wrong meanwhile.
use Gpugraph;
use Residency;

my $node = service_node('learn_device', conf => "gpugraph.merge_workers = 0\n");

$node->sql(<<'SQL');
SELECT make_data('items', 6000, 24, 40);
CREATE INDEX items_idx ON items USING gpugraph (val vector_ip_ops)
	WITH (graph_degree = 16, segment_rows = 4000);
SELECT make_data('asked', 900, 24, 15);
CREATE TABLE nearest AS SELECT a.id AS q, i.id FROM asked a,
	LATERAL (SELECT id FROM items ORDER BY (items.val <#> a.val) + 0 LIMIT 10) i
	WHERE a.id > 800;
SQL
$node->sql("SELECT gpugraph_prewarm('items_idx')");

# How many of the nearest rows the device finds; undef: the CPU answered some queries.  A scan of so
# few rows would measure them all.
sub found
{
	my ($found, $engine) = split /\|/, $node->sql(<<'SQL');
SET gpugraph.itopk_size = 16;
CREATE TEMP TABLE found AS SELECT asked.ids[s.query] AS q, items.id
	FROM (SELECT array_agg(id) AS ids, array_agg(val) AS vectors FROM asked WHERE id > 800) asked,
		gpugraph_search('items_idx', asked.vectors, 10) s JOIN items ON items.ctid = s.tid;
SELECT (SELECT count(*) FROM found JOIN nearest USING (q, id)), engine FROM gpugraph_last_scan();
SQL
	return $engine eq 'gpu' ? $found : undef;
}

my $before = found();
ok(defined $before, 'the device answers');
cmp_ok($node->sql("SELECT gpugraph_learn('items_idx', array_agg(val)) FROM asked
	WHERE id <= 800"), '>', 1000, 'edges are learned');
my $after;
ok_in_time(sub { $after = found(); return defined $after; }, 'the device answers by the new graph');
cmp_ok(1000 - $after, '<', 0.8 * (1000 - $before), "and finds $after of 1000, $before before");
is(of_index($node, 'generation'), $node->sql(
	"SELECT generation FROM gpugraph_index_info('items_idx')"), 'the generation in use');

# where the device is a real one, it measures the rows, and finds what the CPU finds
my $engine = ($ENV{GG_SERVICE_ENGINE} || 'cpu') eq 'cuda' ? 'cuda' : 'auto';
my %learned;
for ($engine, 'cpu')
{
	$node->sql("SELECT gpugraph_forget('items_idx')");
	$learned{$_} = $node->sql("SET gpugraph.engine = $_;
		SELECT gpugraph_learn('items_idx', array_agg(val)) FROM asked WHERE id <= 800");
}
cmp_ok(abs($learned{$engine} - $learned{cpu}), '<=', 0.01 * $learned{cpu},
	"$learned{$engine} edges are learned with a device, $learned{cpu} without");
finish_test($node);
