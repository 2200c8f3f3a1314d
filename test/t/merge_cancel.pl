# A merge that is cancelled, at whatever point, leaves the index whole, and the next one gives back
# what it took.
use Gpugraph;
use Merging;
use Time::HiRes qw(time);

my $node = new_node('cancel');
make_source($node, 4000, 32, 'seal_rows = 0');
my $merge = "SELECT gpugraph_merge('items_idx')";
$node->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM source');

# how long one takes
$node->sql('CREATE TABLE copy (id bigint, val vector(32));
	CREATE INDEX copy_idx ON copy USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0);
	INSERT INTO copy SELECT id, val FROM items');
my $start = time;
$node->sql("SELECT gpugraph_merge('copy_idx')");
my $ms = 1000 * (time - $start);
my ($cancelled, $done) = (0, 0);

for my $step (1 .. 24)
{
	my $timeout = 1 + int($ms * $step / 20);
	my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = $timeout; $merge");

	if ($rc != 0)
	{
		$cancelled++;
		is($err =~ s/^psql:\S+ //r, 'ERROR:  canceling statement due to statement timeout',
			"cancelled after $timeout ms");
	}
	else
	{
		$done++;
		# the machine may have been busier when it was measured: that long it takes at most
		$ms = $timeout if $timeout < $ms;
		$node->sql('INSERT INTO items SELECT id + nextval(\'numbers\') * 10000,
			cat, big, val FROM source WHERE id <= 300');
	}
	index_is_complete($node, "step $step") if $step % 4 == 0;
}
cmp_ok($cancelled, '>', 5, 'some were cancelled');
is($node->sql($merge), 't', 'the next one does it');
index_is_complete($node, 'merged');

# by pg_cancel_backend() and by the end of the session, with VACUUM merging
for my $how ('pg_cancel_backend', 'pg_terminate_backend')
{
	for my $round (1 .. 3)
	{
		$node->sql('ALTER INDEX items_idx SET (seal_rows = 300); INSERT INTO items
			SELECT id + nextval(\'numbers\') * 10000, cat, big, val FROM source');
		my $session = start_psql($node, 'VACUUM items');
		my $pid;

		wait_for(
			sub {
				$pid = $node->sql("SELECT pid FROM pg_locks
					WHERE locktype = 'object' AND objid = 'items_idx'::regclass");
				return $pid ne '' || has_ended($session);
			});
		$node->sql("SELECT $how($pid)") if $pid ne '';
		finish_psql($session);
	}
	index_is_complete($node, "VACUUM ended by $how");
	$node->sql('VACUUM items');
	cmp_ok(merge_info($node, 'delta_rows'), '<', 300, "VACUUM after one that $how ended: merges");
	index_is_complete($node, "VACUUM after one that $how ended");
}

# no space is lost for good: after two merges all that is in no array is free, and is used again
$node->sql('DELETE FROM items WHERE id > 10000');
$node->sql('VACUUM items');
for (1 .. 3)
{
	$node->sql('INSERT INTO items SELECT id + nextval(\'numbers\') * 10000,
		cat, big, val FROM source WHERE id <= 100');
	$node->sql($merge);
}
is($node->sql("SELECT total_bytes - 8192 - vectors_bytes - adjacency_bytes -
	tids_bytes - pivots_bytes - delta_bytes - free_bytes < 65536
	FROM gpugraph_index_info('items_idx')"),
	't', 'each block is in an array or free');
my $size = merge_info($node, 'total_bytes');
for (1 .. 6)
{
	$node->sql('INSERT INTO items SELECT id + nextval(\'numbers\') * 10000,
		cat, big, val FROM source WHERE id <= 100');
	$node->psql('postgres', "SET statement_timeout = " . (1 + int($ms / 4)) . "; $merge");
	$node->sql($merge);
}
# a merge of the worker's may hold some back for a while
cmp_ok(merge_info($node, 'total_bytes'), '<=', 1.5 * $size, 'free blocks are used again');
index_is_complete($node, 'at the end');

finish_test($node);
