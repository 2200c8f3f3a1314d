# The bug: with old_snapshot_threshold (before PostgreSQL 17) VACUUM removes rows that an old
# snapshot still sees, and scans of that snapshot went on without them.
# The fix: they fail with "snapshot too old", as scans of other indexes do. From 17 on snapshots do
# not expire.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use Gpugraph;

my $node = new_node('old');
my $expires = $node->pg_version < 17;

if ($expires)
{
	$node->append_conf('postgresql.conf', "old_snapshot_threshold = 0\n");
	$node->restart;
}
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE items (id int, val vector(2)) WITH (vacuum_truncate = off);
INSERT INTO items SELECT i, ARRAY[i, 0]::real[]::vector FROM generate_series(1, 300) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
INSERT INTO items SELECT i, ARRAY[i, 0]::real[]::vector FROM generate_series(301, 900) i;
SQL

my $count = "SELECT count(*) FROM (SELECT id FROM items ORDER BY val <-> '[0,0]') s";
# VACUUM clears some rows of the segment, some of the delta, then all of the segment. They are dead
# already, because VACUUM removes rows that somebody sees only after minutes. A scan looks only at
# whether a page changed after its snapshot.
for my $deleted ('id BETWEEN 1 AND 50', 'id BETWEEN 851 AND 900', 'id BETWEEN 51 AND 300')
{
	$node->safe_psql('postgres', "DELETE FROM items WHERE $deleted");
	my $left = $node->safe_psql('postgres', 'SELECT count(*) FROM items');
	my $holder = start_psql($node, 'SELECT pg_advisory_lock(7)', 'SELECT pg_sleep(600)');
	wait_for(sub { $node->safe_psql('postgres',
		"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted") > 0 });
	# a threshold of 0 lets a snapshot live for five seconds
	my $session = start_psql($node, 'SET enable_seqscan = off',
		'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1', 'SELECT pg_sleep(6)',
		'SELECT 1 FROM pg_advisory_lock(7)', $count);

	wait_for(sub { $node->safe_psql('postgres',
		"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") > 0 });
	$node->safe_psql('postgres', 'VACUUM items');
	$node->safe_psql('postgres',
		"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted");
	finish_psql($holder);

	my $err = finish_psql($session);
	like("$err$session->{out}", $expires ? qr/snapshot too old/ : qr/^$left$/m,
		"VACUUM of rows with $deleted");
}
is($node->safe_psql('postgres', "SET enable_seqscan = off; $count"), 550,
	'a new snapshot sees what is left');

$node->stop;
done_testing();
