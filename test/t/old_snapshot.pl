# The bug: with old_snapshot_threshold (before PostgreSQL 17) VACUUM removes rows that an old
# snapshot still sees, and queries of that snapshot went on without them: first scans, and then,
# when scans looked for it, gpugraph_search() where a device answers.
# The fix: they fail with "snapshot too old", as scans of other indexes do. From 17 on snapshots do
# not expire.
use Gpugraph;
use Residency;

my $node = service_node('old');
my $expires = $node->pg_version < 17;

if ($expires)
{
	restart_with($node, "old_snapshot_threshold = 0\n");
}
$node->sql(<<'SQL');
CREATE TABLE items (id int, val vector(2)) WITH (vacuum_truncate = off);
INSERT INTO items SELECT i, ARRAY[i, 0]::real[]::vector FROM generate_series(1, 300) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0);
INSERT INTO items SELECT i, ARRAY[i, 0]::real[]::vector FROM generate_series(301, 900) i;
SQL

my $count = "SELECT count(*) FROM (SELECT id FROM items ORDER BY val <-> '[0,0]') s";

# How the rows nearest to an id are searched: a device is asked for two queries and more.
sub search
{
	my ($id) = @_;

	return "SELECT count(*) FROM gpugraph_search('items_idx',
		ARRAY['[$id,0]', '[$id,1]']::vector[], 100)";
}

# Rows of the segment, of the delta, then all of the segment, and some that a reader removes from
# the table alone. They are dead already, because VACUUM removes rows that somebody sees only after
# minutes. A query looks only at whether a page changed after its snapshot.
my @rounds = (
	[ 'VACUUM (FREEZE)', 1, 50 ],
	[ 'VACUUM (FREEZE)', 851, 900 ],
	[ 'VACUUM (FREEZE)', 51, 300 ],
	[ 'SELECT count(*) FROM', 301, 350 ]);

my $left = 900;
for my $round (@rounds)
{
	my ($change, $first, $last) = @$round;

	$node->sql("DELETE FROM items WHERE id BETWEEN $first AND $last");
	$left -= $last - $first + 1;
	my $holder = rest_after($node, 'SELECT pg_advisory_lock(7)');

	# a threshold of 0 lets a snapshot live for five seconds
	my %asked = (
		'a scan' => [ 'auto', $count, $left ],
		'gpugraph_search() by the CPU' => [ 'cpu', search($first), 200 ],
		'gpugraph_search() by a device' => [ 'auto', search($first), 200 ]);
	# to scans it is enough that no page of the index has changed
	%asked = ('gpugraph_search() by a device' => $asked{'gpugraph_search() by a device'})
		if $change !~ /VACUUM/;
	my %sessions = map { $_ => start_psql($node, "SET gpugraph.engine = $asked{$_}[0]",
		'SET enable_seqscan = off', 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1',
		'SELECT pg_sleep(6)', 'SELECT 1 FROM pg_advisory_lock_shared(7)', $asked{$_}[1]) }
		keys %asked;

	wait_for(sub { $node->sql(
		"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") ==
		keys %sessions });
	$node->sql("$change items");
	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	my ($by_device) = answered_by($node);
	is($node->sql(search($first)), 200, "$change, from $first: a new snapshot");
	is((answered_by($node))[0], $by_device + 2, "$change, from $first: a device answers");
	end_rest($holder);

	for my $who (sort keys %sessions)
	{
		my $err = finish_psql($sessions{$who});
		like("$err$sessions{$who}{out}", $expires ? qr/snapshot too old/ : qr/^$asked{$who}[2]$/m,
			"$change of rows from $first: $who");
	}
}
is($node->sql("SET enable_seqscan = off; $count"), $left, 'a new snapshot sees what is left');

finish_test($node);
