# A merge that is cancelled while it makes the relation longer, or whose session ends, leaves blocks
# that belong to nobody. No lock is held between two steps of 4 MB: rows are inserted meanwhile.
# The next insert and the next merge use those blocks, and none is lost.
use Gpugraph;
use Format;
use Merging;

use constant STEP => 512;

my $node = new_node('lengthen');
my $rows = 'SELECT i, (SELECT array_agg(sin(i * 13 + d * d))::vector
	FROM generate_series(1, 1500) d) FROM generate_series';

# items is what merges are cancelled of, and copy has the same rows and one merge
for my $rel ('items', 'copy')
{
	$node->sql("CREATE TABLE $rel (id int, val vector(1500));
		CREATE INDEX ${rel}_idx ON $rel USING gpugraph (val vector_l2_ops)
			WITH (seal_rows = 0, graph_degree = 8);
		INSERT INTO $rel $rows(1, 1500) i");
}
my $file = index_file($node, 'items_idx');

sub blocks
{
	my ($rel) = @_;
	return $node->sql("SELECT pg_relation_size('${rel}_idx') / 8192");
}

# The end of what the directory names. Its extents touch, so none is lost before.
sub end_of_extents
{
	my ($what) = @_;
	my $end = 0;

	$node->sql('CHECKPOINT');
	my @extents = sort { $a->[0] <=> $b->[0] } @{ read_directory($file)->{extents} };
	is(scalar(grep { my $gap = $_->[0] - $end; $end = $_->[0] + $_->[1]; $gap } @extents), 0,
		"$what: every block below the end is in one extent");
	return $end;
}

# An advisory lock has merges rest after each step.
my $holder = hold_at($node, 'lengthen');
my $waits = "wait_event_type = 'Lock'";
my $inserted = 1500;

for my $how ('pg_cancel_backend', 'pg_terminate_backend')
{
	my $before = blocks('items');
	my $end = end_of_extents("before $how");
	my $merge = start_psql($node, 'SET gpugraph.fault = hold_lengthen',
		"SELECT gpugraph_merge('items_idx')");
	my $pid = backend_pid($node, 'gpugraph_merge', $waits);

	is(blocks('items'), $before + STEP, "$how: a merge rests after a step");
	# a row a page, of 6 kB
	$node->sql("INSERT INTO items $rows($inserted + 1, $inserted + 20) i");
	$inserted += 20;
	index_is_complete($node, "$how: rows that came meanwhile");
	$node->sql("SELECT $how($pid)");
	like(finish_psql($merge), qr/canceling statement|terminating connection/, "$how: it ends");
	index_is_complete($node, "$how: ended");

	$node->sql("INSERT INTO items $rows($inserted + 1, $inserted + 100) i");
	$inserted += 100;
	is(blocks('items'), $before + STEP, "$how: rows go into the blocks that are left");
	is(end_of_extents("after $how"), $end + 120, "$how: one block for each row");
	index_is_complete($node, "$how: inserted");
}
finish_psql($holder);

$node->sql("INSERT INTO copy $rows(1501, $inserted) i");
is($node->sql("SELECT gpugraph_merge('${_}_idx')"), 't', "$_: merged") for 'copy', 'items';
index_is_complete($node, 'merged');
end_of_extents('merged');
cmp_ok(blocks('items'), '<=', blocks('copy') + STEP, 'no longer than without a cancel');

finish_test($node);
