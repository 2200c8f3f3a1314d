# The bug: wrong rows from the device. A merge brings its segment to a device that has the index,
# and took for granted that all other segments are there. Where an earlier merge had not brought
# its own, because another load was under way, that segment got memory which nobody filled.
use Gpugraph;
use Merging;
use Residency;

my $node = service_node('stale_resident');

# Rows of source, as one insert.
sub insert
{
	my ($from, $to) = @_;

	$node->sql(
		"INSERT INTO items SELECT id, cat, big, val FROM source WHERE id BETWEEN $from AND $to");
	return;
}

sub segments_are
{
	my ($n) = @_;

	ok_in_time(sub { merge_info($node, 'segments') == $n }, "$n segments");
	return;
}

# a segment for good, one of less than a fourth of it, and one of less than a fourth of that
make_items($node, 4000, 16);
$node->sql(<<'SQL');
SELECT make_data('source', 5120, 16, 40);
ALTER INDEX items_idx SET (seal_rows = 0);
SQL
$node->sql("SELECT gpugraph_prewarm('items_idx')");
insert(4001, 4900);
$node->sql('ALTER INDEX items_idx SET (seal_rows = 100)');

# a load that rests for a second, while the delta becomes a segment; nobody asks for another load
$node->psql('postgres', <<'SQL');
SET gpugraph.fault = load_stall;
SET statement_timeout = '200ms';
SELECT gpugraph_prewarm('items_idx');
SQL
insert(4901, 5010);
segments_are(2);
ok_in_time(sub { of_index($node, 'state') ne 'refreshing' }, 'the load has ended');
# on a machine too slow for that second it has both, and what follows proves less
note('segments on the device: ' . of_index($node, 'segments'));

insert(5011, 5120);
segments_are(3);
$node->sql("SELECT make_queries('items', 20)");
like(truth($node), qr/^1\.0000 /, 'rows are the right ones, whoever finds them');
$node->sql("SELECT gpugraph_prewarm('items_idx')");
truth_by_device($node, 'brought anew');
index_is_complete($node, 'afterwards');

finish_test($node);
