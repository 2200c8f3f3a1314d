# Merges write a few times what is inserted, also where many rows with filter words share few
# vectors, and under an old snapshot the index grows by no more than three times of it.  A merge
# that is due when the snapshot begins is not part of that: nobody knows yet that it will be old.
use Gpugraph;
use Merging;

use constant {
	VECTORS => 200,
	STEP => 1500,			# rows that are inserted and sealed at a time
	ROW_BYTES => 8 + 32 * 8 + 16 * 4	# TID, filter words, vector
};

my $node = merging_node('writes', conf => "log_min_messages = debug1\nautovacuum = off\n");
my @columns = map { "f$_" } 1 .. 8;

# each array has four words
$node->sql('CREATE TABLE items (id int, val vector(16), '
	. join(', ', map { "$_ int[]" } @columns) . ')');
$node->sql('CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, '
	. join(', ', @columns) . ') WITH (seal_rows = ' . STEP . ')');

# Insert rows over all vectors, each time until they are sealed.
sub insert
{
	my ($first, $steps) = @_;
	my $sealed = 0;

	for my $step (0 .. $steps - 1)
	{
		my $from = $first + $step * 2000;
		# a merge is asked for every 8 pages of 24 rows, and what is on the last page waits
		my $to = $from + 1605 - 1;

		$node->sql('INSERT INTO items SELECT i, (SELECT
			array_agg(sin(i % ' . VECTORS . " * j)) FROM generate_series(1, 16) j)::vector(16), "
			. join(', ', map { "ARRAY[i, i % $_]" } 1 .. @columns)
			. " FROM generate_series($from, $to) i");
		$sealed += defined wait_for(sub { merge_info($node, 'delta_rows') < STEP });
	}
	ok_in_time(sub { $node->sql("SELECT count(*) FROM
		gpugraph_stat_merge WHERE phase NOT IN ('failed', 'watching')") == 0 }, 'merged');
	return $sealed;
}

# kB that merges have written, by the log
sub written
{
	my $kilobytes = 0;

	$kilobytes += $_
		for slurp_file($node->logfile) =~ /merged \d+ parts of .*: (\d+) kB written/g;
	return $kilobytes;
}

is(insert(0, 30), 30, 'rows are sealed');
my $rows = $node->sql('SELECT count(*) FROM items');
my $ratio = written() * 1024 / ($rows * ROW_BYTES);
note sprintf 'merges wrote %.1f times what was inserted', $ratio;
cmp_ok($ratio, '<=', 8, 'merges write at most 8 times what is inserted');

my $merge = "SELECT gpugraph_merge('items_idx')";
ok_in_time(sub { $node->sql($merge) eq 't' }, 'no merge is due');
# free blocks are used first
my $before = $node->sql("SELECT total_bytes - free_bytes FROM gpugraph_index_info('items_idx')");
my $old = rest_after($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1');
is(insert(1_000_000, 30), 30, 'rows are sealed under an old snapshot');
$rows = $node->sql('SELECT count(*) FROM items') - $rows;
$ratio = ($node->sql("SELECT pg_relation_size('items_idx')") - $before) / ($rows * ROW_BYTES);
note sprintf 'the index grew by %.1f times what was inserted', $ratio;
cmp_ok($ratio, '<=', 3, 'an old snapshot: the index grows by at most 3 times what is inserted');
cmp_ok(merge_info($node, 'segments'), '<=', 16, 'and has no more segments than queries may search');
index_is_complete($node, 'under an old snapshot');

# and when it ends
end_rest($old);
is(insert(2_000_000, 1), 1, 'rows are sealed after it');
ok_in_time(sub { merge_info($node, 'segments') <= 5 }, 'segments are few again');
index_is_complete($node, 'at the end');

finish_test($node);
