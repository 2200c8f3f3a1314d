# The bug: with gpugraph.engine = cuda a query failed. A merge that brings its segment to the device
# ahead of the flip of the directory may fail before it. Some seconds later the device has nothing
# any more that answers by the directory in use. Queries are to wait until it has.
use Gpugraph;
use Merging;
use Residency;
use Time::HiRes qw(usleep);

my $node = service_node('cuda_failed_merge');

slow_index($node, 'slow');
$node->sql('ALTER INDEX slow_idx SET (seal_rows = 0)');
$node->sql('INSERT INTO slow ' . slow_rows(1, 4000));
$node->sql("SELECT gpugraph_merge('slow_idx')");
$node->sql('ALTER INDEX slow_idx SET (seal_rows = 200)');
$node->sql("SELECT make_queries('slow', 20)");
$node->sql("SELECT gpugraph_prewarm('slow_idx')");

# the merge brings its segment, and then cannot lock the table
$node->sql('INSERT INTO slow ' . slow_rows(4001, 4400));
my $merger = stop_in_graph($node, 'slow');
ok(defined $merger, 'a merge builds its graph');
my $device = of_device($node, 'pid');
kill 'STOP', $device;
kill 'CONT', $merger;
ok_in_time(sub { of_index($node, 'state', 'slow_idx') eq 'refreshing' },
	'it brings its segment to the device');
my $segments = merge_info($node, 'segments', 'slow');
my $locker = start_psql($node, 'BEGIN', 'LOCK TABLE slow', 'SELECT pg_sleep(600)');
my $pid = backend_pid($node, 'pg_sleep');
kill 'CONT', $device;
ok_in_time(sub { of_index($node, 'segments', 'slow_idx') == $segments + 1 },
	'the device has a segment that the index has not');
ok_in_time(
	sub { $node->sql("SELECT count(*) FROM gpugraph_stat_merge WHERE phase <> 'failed'") == 0 },
	'it fails');
$node->sql("SELECT pg_terminate_backend($pid)");
finish_psql($locker);

# for so long the flip might still come
usleep(5_500_000);
my ($rc, $out, $err) = $node->psql('postgres', <<'SQL');
SET gpugraph.engine = cuda;
SET enable_seqscan = off;
SET statement_timeout = '60s';
SELECT count(*) FROM (SELECT id FROM slow
	ORDER BY val <-> (SELECT val FROM slow WHERE id = 7) LIMIT 10) s;
SQL
is("$rc $out $err", '0 10 ', 'a query waits for the device');
truth_by_device($node, 'afterwards', 'slow');
index_is_complete($node, 'afterwards', 'slow');

finish_test($node);
