# What several processes wrote past the buffer manager survives a crash right after CREATE INDEX,
# whatever checkpoints there were, and reaches standbys.
use Gpugraph;

my $parallel =
	"min_parallel_table_scan_size = 0\nmax_parallel_maintenance_workers = 3\nfsync = on\n"
	. "gpugraph.engine = cpu\n";    # whose phases are long enough to be met
my $node = new_node('crash', init => { allows_streaming => 1 }, conf => $parallel);

$node->sql("SELECT make_data('items', 8000, 64, 40); SELECT make_queries('items', 20); CHECKPOINT");
my $create = 'CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)';

sub kill_and_restart
{
	my ($what) = @_;

	my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');

	$node->kill9;
	wait_for(sub { return !kill 0, $postmaster; });
	ok_in_time(sub { $node->start(fail_ok => 1) }, "$what: the server starts");
	index_is_complete($node, $what);
	return;
}

# no checkpoint since
$node->sql($create);
my $before = answers($node);
kill_and_restart('crash after CREATE INDEX');
is(answers($node), $before, 'crash after CREATE INDEX: the same answers');

# checkpoints while it is built: recovery begins behind a part of its WAL
for my $phase ('neighbors', 'writing|connecting|reordering')
{
	$node->sql('DROP INDEX items_idx; SELECT pg_switch_wal()');
	my $session = start_psql($node, $create);
	my $pid = wait_for_progress($node, $phase, $session);

	$node->sql('CHECKPOINT');
	is(finish_psql($session), '', "checkpoint while $phase: built");
	kill_and_restart("crash after a checkpoint while $phase");
}

# after a checkpoint that synced what the build asked for
$node->sql('REINDEX INDEX items_idx; CHECKPOINT');
kill_and_restart('crash after a checkpoint');

# a crash during the build leaves the old index as it was
my $session = start_psql($node, 'REINDEX INDEX items_idx');
wait_for_progress($node, 'neighbors', $session);
kill_and_restart('crash during REINDEX');
finish_psql($session);

# kill -9 of the leader or of a worker
reload_with($node, "restart_after_crash = on\n");
for my $who ('leader', 'worker')
{
	my ($reindex, $pid) = find_build($node, 'REINDEX INDEX items_idx', $who);

	survives_kill_9($node, "the $who", $pid, $reindex, 'items');
}

# a standby has the same pages
my $standby = start_standby($node, 'standby');
$node->sql('REINDEX INDEX items_idx');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is(answers($standby), answers($node), 'a standby gives the same answers');
$standby->promote;
index_is_complete($standby, 'a promoted standby');
$standby->stop;

# unlogged: kept over a clean shutdown, empty after a crash
$node->sql('CREATE UNLOGGED TABLE unlogged AS SELECT * FROM items;
	CREATE INDEX unlogged_idx ON unlogged USING gpugraph (val vector_l2_ops)');
$node->restart;
index_is_complete($node, 'unlogged, after a shutdown', 'unlogged');
is($node->sql('SELECT count(*) FROM unlogged'), '8000', 'unlogged, after a shutdown: rows');
$node->stop('immediate');
$node->start;
index_is_complete($node, 'unlogged, after a crash', 'unlogged');
$node->stop;

# wal_level = minimal: synced instead of logged, by the commit
my $minimal = new_node('minimal',
	conf => "wal_level = minimal\nmax_wal_senders = 0\nwal_skip_threshold = 0\n$parallel");
make_items($minimal, 4000, 64);
my $lsn = $minimal->sql('SELECT pg_current_wal_insert_lsn()');
$minimal->sql('REINDEX INDEX items_idx');
cmp_ok($minimal->sql("SELECT pg_current_wal_insert_lsn() - '$lsn'::pg_lsn"), '<',
	200000, 'wal_level = minimal: hardly any WAL');
$before = answers($minimal);
$minimal->stop('immediate');
$minimal->start;
is(answers($minimal), $before, 'wal_level = minimal: the same answers after a crash');
index_is_complete($minimal, 'wal_level = minimal');
$minimal->stop;

# data checksums cover what was not written by the buffer manager
my $checked = new_node('checked', init => { extra => ['--data-checksums'] }, conf => $parallel);
make_items($checked, 4000, 64);
$checked->restart;
index_is_complete($checked, 'data checksums');
$checked->stop;
command_ok([ 'pg_checksums', '--check', '-D', $checked->data_dir ], 'data checksums are right');

done_testing();
