# The background worker: inserts wake it, it keeps the delta and the number of segments small, and
# seals what is left when nobody inserts. Where it may not run, VACUUM merges.
use Gpugraph;
use Merging;

my $node = merging_node('worker');
make_source($node, 2000, 16);

# rows that are inserted one by one
my $load = <<'SQL';
DO $$
BEGIN
	FOR i IN 1 .. 6000 LOOP
		INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source
			WHERE id = 1 + i % 2000;
		COMMIT;
	END LOOP;
END $$;
SQL
my $session = start_psql($node, $load);
ok_in_time(sub { $node->sql(
	"SELECT count(*) FROM gpugraph_stat_merge WHERE index = 'items_idx'::regclass AND pid > 0
	AND datname = 'postgres'") > 0 }, 'inserts wake a worker, and the view shows it');
is($node->sql("SELECT DISTINCT backend_type FROM pg_stat_activity
	WHERE pid IN (SELECT pid FROM gpugraph_stat_merge)"), 'gpugraph merge worker',
	'its name in pg_stat_activity');
is(finish_psql($session), '', 'inserts go on beside it');
index_is_complete($node, 'after inserts beside merges');
ok_in_time(sub { merge_info($node, 'delta_rows') <= 1000 }, 'the delta is bounded');
ok_in_time(sub { merge_info($node, 'segments') <= 6 }, 'segments are few');
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, 'recall');

# VACUUM asks it to build anew what has many dead rows
$node->sql('DELETE FROM items WHERE big % 10 <> 0');
$node->sql('VACUUM (FREEZE) items');
my $rows = $node->sql('SELECT count(*) FROM items');
ok_in_time(sub { merge_info($node, 'rows + delta_rows') <= 1.25 * $rows + 1000 },
	'VACUUM has it build anew what has many dead rows');
index_is_complete($node, 'compacted');

# when nobody inserts any more a delta of 1000 rows is worth it, and the worker goes
$node->sql('ALTER INDEX items_idx SET (seal_rows = 100000)');
$node->sql('INSERT INTO items SELECT id + 1000000, cat, big, val FROM source');
ok_in_time(sub { merge_info($node, 'delta_rows') < 200 },
	'a delta below seal_rows is sealed when nobody inserts');
index_is_complete($node, 'sealed when idle');

# seal_rows = 0
ok(defined wait_for_merges($node), 'the worker ends');
$node->sql('ALTER INDEX items_idx SET (seal_rows = 0)');
my $before = merge_info($node, 'generation');
$node->sql('INSERT INTO items SELECT id + 2000000, cat, big, val FROM source');
is($node->sql('SELECT count(*) FROM gpugraph_stat_merge'), '0', 'seal_rows = 0: nobody is asked');
is(merge_info($node, 'generation'), $before, 'seal_rows = 0: nothing is merged');

# a worker that is ended leaves the index to the next one after a while, and others at once
slow_index($node, 'slow');
$node->sql('INSERT INTO slow ' . slow_rows(1, 1500));
my $pid = stop_in_graph($node, 'slow');
ok(defined $pid, 'a worker builds a graph');
$node->sql("SELECT pg_terminate_backend($pid)");
kill 'CONT', $pid;
ok_in_time(sub { $node->sql(
	"SELECT phase FROM gpugraph_stat_merge WHERE index = 'slow_idx'::regclass") eq 'failed' },
	'a worker that is ended: the view says so');
index_is_complete($node, 'a worker was ended', 'slow');
$node->sql('ALTER INDEX items_idx SET (seal_rows = 500)');
$node->sql('INSERT INTO items SELECT id + 3000000, cat, big, val FROM source');
ok_in_time(sub { merge_info($node, 'delta_rows') < 700 }, 'another index is merged');
index_is_complete($node, 'after a worker was ended');
is($node->sql("SELECT gpugraph_merge('slow_idx')"), 't', 'gpugraph_merge() does it at once');
is(merge_info($node, 'segments', 'slow'), 1, 'one segment');
is(merge_info($node, 'free_bytes > 0', 'slow'), 't', 'what the ended merge took is free');
index_is_complete($node, 'merged after a worker was ended', 'slow');

# two sessions at once: the second does not wait
$node->sql('ALTER INDEX slow_idx SET (seal_rows = 0)');
$node->sql('INSERT INTO slow ' . slow_rows(2001, 3000));
(my $holder, $session) = start_held($node, "SELECT gpugraph_merge('slow_idx')");
is($node->sql("SELECT gpugraph_merge('slow_idx')"), 'f', 'false while another process merges');
finish_psql($holder);
is(finish_psql($session) . $session->{out}, "t\n", 'the other one does');

# no worker
restart_with($node, 'gpugraph.merge_workers = 0');
$node->sql('INSERT INTO items SELECT id + 4000000, cat, big, val FROM source');
is($node->sql("SELECT count(*) FROM gpugraph_stat_merge WHERE phase <> 'failed'"),
	'0', 'gpugraph.merge_workers = 0: nobody is asked');
cmp_ok(merge_info($node, 'delta_rows'), '>=', 2000, 'nothing is merged');
$node->sql('VACUUM items');
cmp_ok(merge_info($node, 'delta_rows'), '<', 200, 'VACUUM merges');
index_is_complete($node, 'VACUUM merges');

# no place for a worker (the launcher of logical replication takes the only one)
restart_with($node,
	"gpugraph.merge_workers = 2\nmax_worker_processes = 1\ngpugraph.devices = ''\n");
for my $round (5 .. 6)
{
	$node->sql("INSERT INTO items SELECT id + ${round}000000, cat, big, val FROM source");
	cmp_ok(merge_info($node, 'delta_rows'), '>=', 2000, "no slot, round $round: nothing is merged");
	$node->sql('VACUUM items');
	cmp_ok(merge_info($node, 'delta_rows'), '<', 200, "no slot, round $round: VACUUM merges");
}
my @told = slurp_file($node->logfile) =~
	/LOG:  gpugraph could not start a merge worker: VACUUM merges instead/g;
is(scalar @told, 1, 'the log says so once');
like(slurp_file($node->logfile), qr/HINT:  Increase max_worker_processes\./, 'and what to do');
index_is_complete($node, 'no slot');

finish_test($node);
