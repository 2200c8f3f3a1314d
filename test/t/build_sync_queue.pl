# The bug: a build asks the next checkpoint to sync the index, and keeps checkpoints from beginning
# meanwhile. Up to PostgreSQL 16 it waited for room where the checkpointer's queue was full. A
# checkpointer that waits for the build to let it begin does not empty its queue in minors before
# July 2025, so both waited for ever, and neither cancel nor terminate helped. The fix: a build
# that finds no room syncs the index itself.
#
# The checkpointer is stopped by a signal, which makes every minor one that does not empty its
# queue.
use Gpugraph;

# the queue has as many entries as there are buffers: 128. What is not logged is synced by the
# commit, whatever the queue.
my $node = new_node('queue', conf => "wal_level = replica\nshared_buffers = '1MB'\n");

$node->sql("SELECT make_data('items', 1500, 16, 40); CHECKPOINT");
my $checkpointer = $node->sql(
	"SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'");
kill 'STOP', $checkpointer;
# each has a file of its own to be synced
$node->sql("SELECT format('CREATE TABLE filler_%s AS SELECT 1 AS x', i)
	FROM generate_series(1, 200) i \\gexec");

my $create = 'CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)';
my $session = start_psql($node, $create);
my $waits = 0;
wait_for(
	sub {
		$waits = $node->sql("SELECT count(*) FROM pg_stat_activity
			WHERE query ~ '^CREATE INDEX' AND wait_event = 'RegisterSyncRequest'");
		return $waits || has_ended($session);
	});
is($waits, '0', 'the build does not wait for room in the queue');
kill 'CONT', $checkpointer;
is(finish_psql($session), '', 'the build ends');
index_is_complete($node, 'built');

# what was synced survives a crash
$node->stop('immediate');
$node->start;
index_is_complete($node, 'after a crash');

finish_test($node);
