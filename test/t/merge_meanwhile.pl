# While a large merge is under way, rows are sealed and the new segments merged, so that queries
# never have many of them to search. The device holds the large merge where it builds the graph.
use Gpugraph;
use Merging;
use Residency;

my $seal_rows = 500;
my $node = service_node('meanwhile', conf => <<'CONF');
restart_after_crash = on
gpugraph.fault = graph_hold
gpugraph.device_timeout = 0
CONF
make_source($node, 6000, 16, "seal_rows = $seal_rows");
$node->sql("SELECT gpugraph_prewarm('items_idx')");

# Rows that equal no others, enough to be sealed, which is waited for.
sub insert_and_seal
{
	$node->sql("INSERT INTO items SELECT n, cat, big,
			(SELECT array_agg(x + sin(n))::real[]::vector(16) FROM unnest(val::real[]) x)
		FROM (SELECT *, nextval('numbers') AS n FROM source
			WHERE id <= 1.1 * $seal_rows) s");
	return defined wait_for(sub { return merge_info($node, 'delta_rows') < $seal_rows });
}

sub worker
{
	return $node->sql("SELECT pid FROM gpugraph_stat_merge WHERE index = 'items_idx'::regclass");
}

# Insert until the device holds a merge; the number of segments then.
sub hold
{
	my ($what) = @_;

	for (1 .. 40)
	{
		last if holds_graph($node);
		insert_and_seal();
	}
	ok_in_time(sub { return holds_graph($node) }, "$what: the device holds a merge");
	return merge_info($node, 'segments');
}

# a merge that begins since nobody inserts, where the delta has rows, too; then somebody does
insert_and_seal();
$node->sql("INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source
	WHERE id <= 0.6 * $seal_rows");
ok_in_time(sub { return holds_graph($node) }, 'idle: the device holds a merge');
ok(insert_and_seal(), 'idle: new rows are sealed meanwhile');
ok_in_time(sub { return holds_graph($node) }, 'idle: the merge is still under way');
set_fault($node, 'none');
ok_in_time(sub { return of_device($node, 'merges') > 0 }, 'idle: the device builds');
ok(wait_for_merges($node), 'idle: the merge ends');
set_fault($node, 'graph_hold');

my $before = hold('first');
my $most = 0;
my $sealed = 0;
for (1 .. 24)
{
	my $segments;

	$sealed += insert_and_seal();
	$segments = merge_info($node, 'segments') - $before;
	$most = $segments if $segments > $most;
}
is($sealed, 24, 'the delta is sealed each time');
cmp_ok($most, '<=', 6, "24 times $seal_rows new rows: no more than 6 segments");
ok_in_time(sub { return holds_graph($node) }, 'the large merge is still under way');
index_is_complete($node, 'new segments merged');
truth_by_device($node, 'new segments merged');

# rows that VACUUM removes from what the large merge has read, and from new segments
$node->sql('DELETE FROM items WHERE id % 3 = 0');
$node->sql('VACUUM items');
ok(insert_and_seal(), 'sealed after VACUUM') for 1 .. 4;
ok_in_time(sub { return holds_graph($node) }, 'the large merge is still under way after VACUUM');
index_is_complete($node, 'VACUUM, and its rows\' places used again');

# kill -9 of a worker that is within both
my $pid = worker();
my $generation = merge_info($node, 'generation');
my $session = start_psql($node, 'SELECT pg_sleep(0.1)', map { "INSERT INTO items
	SELECT nextval('numbers'), cat, big, val FROM source WHERE id <= 300" } 1 .. 10);
ok_in_time(sub { return merge_info($node, 'generation') > $generation }, 'it merges new rows');
kill_9($node, $pid);
ok(wait_until_up($node), 'the server is back after kill -9 of the worker');
finish_psql($session);
index_is_complete($node, 'after kill -9');

# the next one goes through
$node->sql("SELECT gpugraph_prewarm('items_idx')");
hold('second');
insert_and_seal() for 1 .. 5;
my $merges = of_device($node, 'merges');
set_fault($node, 'none');
ok_in_time(sub { return of_device($node, 'merges') > $merges }, 'the device builds');
ok_in_time(sub { return merge_info($node, 'segments') <= 4 }, 'segments are few');
index_is_complete($node, 'the large merge is done');
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, 'recall');
unlike(slurp_file($node->logfile), qr/corrupt|PANIC|ERROR:/, 'no error');

finish_test($node);
