# VACUUM moves what lies near the end of an index's file, and truncates it. A device goes on
# answering with the segments that it has, and none is loaded again.
use Gpugraph;
use Residency;

# VACUUM does it itself, step by step
my $node = service_node('shrinks', conf => "gpugraph.merge_workers = 0\n");

$node->sql(<<'SQL');
SELECT make_data('items', 4000, 32, 40);
SELECT make_queries('items', 20);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
SQL
my $session = start_psql($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ',
	'SELECT count(*) FROM items', 'SELECT pg_sleep(600)');
my $pid = backend_pid($node, 'pg_sleep.600');
for (1 .. 4)
{
	$node->sql(<<'SQL');
INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id BETWEEN 1 AND 600;
UPDATE items SET id = id + 90000 WHERE id > 10000;
SQL
	is($node->sql("SELECT gpugraph_merge('items_idx')"), 't', 'merged');
}
my $length = "SELECT pg_relation_size('items_idx')";
my $long = $node->sql($length);
$node->sql("SELECT pg_terminate_backend($pid)");
finish_psql($session);
$node->sql("SELECT gpugraph_prewarm('items_idx')");
truth_by_device($node, 'before');

my $loads = of_device($node, 'loads');
my $generation = of_index($node, 'generation');
for my $vacuum (1 .. 3)
{
	$node->sql('VACUUM items');
	truth_by_device($node, "after VACUUM $vacuum");
	$node->sql('SELECT txid_current()');
}
cmp_ok($node->sql($length), '<=', 0.8 * $long, 'the file is shorter');
ok_in_time(sub { of_index($node, 'generation') > $generation },
	'the copy is of the new generation');
is(of_device($node, 'loads'), $loads, 'and was refreshed, not loaded');
index_is_complete($node, 'the index');

finish_test($node);
