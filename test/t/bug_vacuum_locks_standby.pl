# The bug: without a worker VACUUM truncates an index itself, and the standby kept the lock for that
# until VACUUM had committed. The fix: the lock is given back there when the index is truncated.
use Gpugraph;
use Merging;

my $node = merging_node('primary', init => { allows_streaming => 1 },
	conf => "gpugraph.merge_workers = 0\nlog_min_messages = debug1\n");

make_source($node, 1000, 16, 'seal_rows = 200');
$node->sql('CREATE INDEX later ON items USING gpugraph (val vector_l2_ops)
	WITH (seal_rows = 100000)');
my $replica = start_standby($node, 'replica');

# the first index grows under an old snapshot
my $lock = hold_lock($node, 1);
my $session = start_psql($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ',
	'SELECT count(*) FROM items', 'SELECT pg_advisory_lock_shared(1)', 'COMMIT');
wait_for(sub { $node->sql("SELECT count(*) FROM pg_locks
	WHERE locktype = 'advisory' AND NOT granted") == 1 });
$node->sql("INSERT INTO items
	SELECT nextval('numbers'), cat, big, val FROM source;
	SELECT gpugraph_merge('items_idx')") for 1 .. 5;
finish_psql($lock);
finish_psql($session);
$node->sql($_) for 'DELETE FROM items WHERE id % 7 <> 0',
	('VACUUM (PARALLEL 0) items', 'SELECT txid_current()') x 2,
	'ALTER INDEX items_idx SET (seal_rows = 0)',
	'ALTER INDEX later SET (seal_rows = 100)',
	'INSERT INTO items SELECT id + 1000000, cat, big, val FROM source WHERE id <= 400',
	'DELETE FROM items WHERE id % 5 = 1';

# VACUUM truncates it, and rests in a merge of the other one
my $rest = hold_at($node, 'merge');
my $log = -s $node->logfile;
my $vacuum = start_psql($node, 'SET gpugraph.fault = hold_merge', 'VACUUM (PARALLEL 0) items');
ok(rests_at($node, 'merge'), 'VACUUM goes on with the other index');
like(slurp_file($node->logfile, $log), qr/truncated gpugraph index "items_idx"/,
	'it has truncated the first one');
$node->wait_for_catchup($replica, 'replay', $node->lsn('flush'));
is($replica->sql("SELECT string_agg(relation::regclass::text, ' ') FROM pg_locks
	WHERE mode = 'AccessExclusiveLock'"), '', 'the standby has given back the lock');
is($replica->sql('SELECT count(*) FROM (SELECT id FROM items
	ORDER BY val <-> (SELECT val FROM queries WHERE q = 3) LIMIT 10) s'), 10, 'queries run there');
finish_psql($rest);
is(finish_psql($vacuum), '', 'VACUUM ends');
index_is_complete($node, 'the index');
$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
is(answers($replica), answers($node), 'the standby answers as the primary');

finish_test($replica, $node);
