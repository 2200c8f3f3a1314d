# With gpugraph.target_recall each form that can search an index has a list of its own: the CPU and
# a device, by rows or by codes.  Who answers takes its own list.
use Gpugraph;
use Residency;

my $node = service_node('forms', conf => "autovacuum = off\n");
$node->sql(<<'SQL');
SELECT make_data('items', 12000, 16, 1);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, intermediate_graph_degree = 16, storage = 'float32');
SELECT gpugraph_prewarm('items_idx');
SELECT gpugraph_calibrate('items_idx');
SQL

# engine and list of a query
sub ask
{
	my ($engine, $target, $limit) = @_;
	$limit ||= 10;

	return split / /, $node->sql(<<"SQL");
SET enable_seqscan = off;
SET gpugraph.engine = $engine;
SET gpugraph.target_recall = $target;
SELECT FROM items ORDER BY val <-> (SELECT val FROM items WHERE id = 7) LIMIT $limit \\g /dev/null
SELECT concat_ws(' ', engine, candidate_list, round(expected_recall::numeric, 3))
	FROM gpugraph_last_scan();
SQL
}

is($node->sql('SELECT concat_ws(\' \', cpu_rows > .5, cpu_codes, gpu_rows > .5,
	gpu_codes) FROM gpugraph_stat_recall'), 't t', 'the CPU and a device were measured, by rows');
my ($engine, $list, $recall) = ask('auto', .98);
is($engine, 'gpu', 'the device answers');
cmp_ok($recall, '>=', .98, 'by a list that is long enough');
my ($other, $cpu_list, $cpu_recall) = ask('cpu', .98);
is($other, 'cpu', 'the CPU answers');
cmp_ok($cpu_recall, '>=', .98, 'by a list that is long enough, too');

# The bug: by rows, whose own edges lead a device's walks to the answer, a short list had all of it
# and was the last one tried. Longer ones had the bound of the CPU's short list, so that the device
# took a list of 1024.
for my $target (.97, .98, .99)
{
	my ($device_list, $same) = map { (ask($_, $target, 1))[1] } qw(auto cpu);

	cmp_ok($device_list, '<=', 2 * $same, "$target: a list of $device_list, of $same by the CPU");
}

# gpugraph_search() by the device
my $search = $node->sql(<<'SQL');
SET gpugraph.target_recall = 0.98;
SELECT count(*) FROM (SELECT array_agg(val ORDER BY id) q FROM items WHERE id <= 200) a,
	gpugraph_search('items_idx', q, 10) \g /dev/null
SELECT concat_ws(' ', engine, candidate_list) FROM gpugraph_last_scan();
SQL
is($search, "gpu $list", 'gpugraph_search() takes the same list');

# where the device was not measured, as on a standby whose primary has none: the longest list
$node->sql("SELECT gpugraph_evict('items_idx')");
$node->sql(<<'SQL');
ALTER SYSTEM SET gpugraph.max_residents = 16;
ALTER SYSTEM SET gpugraph.devices = '';
SQL
$node->restart;
$node->sql("SELECT gpugraph_calibrate('items_idx')");
is($node->sql('SELECT gpu_rows IS NULL FROM gpugraph_stat_recall'), 't',
	'without a device the CPU alone is measured');
(undef, $cpu_list) = ask('cpu', .98);
$node->sql('ALTER SYSTEM RESET ALL');
$node->restart;
$node->sql("SELECT gpugraph_prewarm('items_idx')");
($engine, $list) = ask('auto', .98);
is("$engine $list", "gpu $cpu_list", 'a device that was not measured takes the list of the CPU');

finish_test($node);
