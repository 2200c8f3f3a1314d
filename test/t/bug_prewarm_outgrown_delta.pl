# The bug: gpugraph_prewarm() waited for ever. Of an index that is on the device in part, it asked
# for the rest again and again, where there was no room even for what the delta had grown by: such a
# refresh failed without a word.
use Gpugraph;
use Residency;

# always the CPU engine, whose sizes are the same everywhere
my $node = service_node('outgrown_delta', conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.merge_workers = 0
gpugraph.device_memory = 3MB
CONF

unserved {
	$node->sql(<<'SQL');
SELECT make_data('items', 8000, 64, 40);
SELECT make_queries('items', 20);
SET max_parallel_maintenance_workers = 0;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (seal_rows = 0, segment_rows = 2000);
SQL
};
my $prewarm = "SET statement_timeout = '60s'; SELECT gpugraph_prewarm('items_idx')";
$node->sql($prewarm);
is(of_index($node, 'state'), 'partial', 'the device has a part of it');

# a delta for which there is no room beside one segment
$node->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM items');
$node->sql('INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id <= 3000');
my ($rc, $out, $err) = $node->psql('postgres', $prewarm);
like($err, qr/it needs .* of device memory/, 'it says that there is no room');
like(truth($node), qr/^1\.0000 /, 'answers are right');

finish_test($node);
