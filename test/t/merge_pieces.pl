# What is sealed is a piece of its own, which later merges leave where it is, and the directory has
# room for 128. Many seals while a large merge is under way neither use them up nor end that merge.
use Gpugraph;
use Merging;
use Residency;

# Rows that equal no others: four have a page, so that a seal is of few.
sub new_rows
{
	my ($rows) = @_;

	return "INSERT INTO items
		SELECT n, cat, big, (val::real[])[1:499] || (n / 1000.0)::real
		FROM (SELECT *, nextval('numbers') AS n FROM source WHERE id <= $rows) s";
}

my $node = service_node('pieces', conf => <<'CONF');
gpugraph.fault = graph_hold
gpugraph.device_timeout = 0
CONF
make_source($node, 1000, 500, 'seal_rows = 0, graph_degree = 8, intermediate_graph_degree = 16');
$node->sql($_)
	for (new_rows(1000)) x 4, 'REINDEX INDEX items_idx',
	'ALTER INDEX items_idx SET (seal_rows = 10)', "SELECT gpugraph_prewarm('items_idx')";

# Insert, and wait a while until it is sealed.
sub insert_and_seal
{
	my ($rows) = @_;
	my $looks = 0;

	$node->sql(new_rows($rows));
	wait_for(sub { return merge_info($node, 'delta_rows') < 10 || ++$looks > 50 });
	return;
}

ok_in_time(sub { return 1 if holds_graph($node); insert_and_seal(100); return 0; },
	'the device holds a merge');

# twice eleven small seals make two segments, and with a larger one these make one of 23 pieces
for (1 .. 6)
{
	insert_and_seal(8) for 1 .. 22;
	insert_and_seal(32);
}
insert_and_seal(8) for 1 .. 20;
ok_in_time(sub { return holds_graph($node) }, 'the large merge is still under way');
is(of_device($node, 'merges'), 0, 'the device has built no graph');
cmp_ok(merge_info($node, 'delta_rows'), '<', 10, 'what came meanwhile is sealed');
index_is_complete($node, 'many pieces');

alter_system($node, 'SET gpugraph.fault = none');
ok_in_time(sub { return merge_info($node, 'segments') <= 4 }, 'segments are few');
index_is_complete($node, 'the large merge is done');
unlike(slurp_file($node->logfile), qr/corrupt|PANIC|ERROR:/, 'no error');

finish_test($node);
