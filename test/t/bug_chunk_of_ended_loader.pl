# The bug: a loader that ended when its load was over already left its chunk behind. The worker
# freed it once no process had the loader's process id; one that had it again kept it from doing so,
# and a load without chunks waits for ever.
#
# The fix: a loader gives its chunk back however it ends. There are eight chunks; here eight loaders
# end at once, each with one.
use Gpugraph;
use Residency;

my $node = service_node('chunks', conf => <<CONF);
gpugraph.load_workers = 8
gpugraph.autoprewarm = off
CONF
unserved { make_items($node, 4000, 16); };

my $loaders = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'gpugraph loader'";

# readers rest half-way, and then wait for a lock with their chunks in hand
set_fault($node, 'load_readers');
$node->sql("SET enable_seqscan = off;
	SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 3");
ok_in_time(sub { $node->sql($loaders) == 8 }, 'eight loaders');
my $locker = start_psql($node, 'BEGIN', 'ALTER INDEX items_idx SET (graph_degree = 31)',
	'SELECT pg_sleep(600)');
ok_in_time(sub { $node->sql("SELECT count(*) FROM pg_locks
	WHERE relation = 'items_idx'::regclass AND mode = 'AccessExclusiveLock'") == 1 },
	'who wants the index');
set_fault($node);
ok_in_time(sub { $node->sql("$loaders AND wait_event_type = 'Lock'") == 8 }, 'all wait for a lock');

# the worker's successor knows nothing of their load
my $pid = of_device($node, 'pid');
kill 'TERM', $pid;
ok_in_time(sub { of_device($node, "state = 'up' AND pid <> $pid") eq 't' },
	'the worker was replaced');
is($node->sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
	WHERE backend_type = 'gpugraph loader'"), 8,
	'the loaders were terminated');
ok_in_time(sub { $node->sql($loaders) == 0 }, 'and are gone');
$node->sql('SELECT pg_terminate_backend(' . backend_pid($node, 'pg_sleep') . ')');
finish_psql($locker);

is(error_of($node, "SET statement_timeout = '60s'; SELECT gpugraph_prewarm('items_idx')"), '',
	'the next load finds chunks');
truth_by_device($node, 'loaded');
is(log_lines($node, qr/(PANIC|TRAP|terminated by signal)/), 0, 'nothing bad is in the log');
finish_test($node);
