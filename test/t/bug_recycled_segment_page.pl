# The bug: a scan that knew in which buffer it had seen a page of a segment did not look at the
# page's stamp again. Where the block was used for something else meanwhile, the scan took foreign
# bytes for vectors and TIDs, and said nothing.
# The fix: the stamp is compared each time. Blocks that a scan needs are not used again; here they
# are by a fault (gpugraph.fault).
use Gpugraph;

my $scan = 'SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)';

# without preloading a session remembers only what it has read itself
for my $case ([ 'alone', '' ], [ 'preloaded', "shared_preload_libraries = 'gpugraph'\n" ])
{
	my ($what, $conf) = @$case;
	my $node = new_node($what, conf => $conf);

	$node->sql(<<'SQL');
SELECT make_data('items', 3000, 16, 40);
SELECT make_queries('items', 20);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0);
SQL
	my $holder = start_psql($node, 'SELECT pg_advisory_lock(7)', 'SELECT pg_sleep(600)');
	wait_for(sub { $node->sql(
		"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted") > 0 });

	# The scan has read all pages of the segment, and reads them again behind the cursor's first
	# row. Meanwhile the segment is given back, and other rows take its place.
	my $session = start_psql($node, 'SET enable_seqscan = off',
		"SELECT count(*) FROM ($scan) s", 'BEGIN ISOLATION LEVEL REPEATABLE READ',
		"DECLARE c CURSOR FOR $scan", 'FETCH 1 FROM c', 'SELECT 1 FROM pg_advisory_lock(7)',
		'\\set VERBOSITY verbose', 'FETCH ALL FROM c');
	wait_for(sub { $node->sql(
		"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") > 0 });
	my $blocks = $node->sql(<<'SQL');
INSERT INTO items SELECT id + 10000, cat, big, val FROM items;
SET gpugraph.fault = parking_none;
SELECT gpugraph_merge('items_idx');
SELECT free_bytes > 0 FROM gpugraph_index_info('items_idx');
INSERT INTO items SELECT id + 20000, cat, big, val FROM items;
SQL
	is($blocks, "t\nt", "$what: the segment was given back");
	$node->sql(
		"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted");
	finish_psql($holder);
	like(finish_psql($session), qr/XX002: .*page is not number \d+ of kind \d+ of segment 1/,
		"$what: the scan sees that the page is another");
	$node->stop;
}
done_testing();
