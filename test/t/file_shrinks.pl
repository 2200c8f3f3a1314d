# After an old snapshot the file of an index is several times as long as what is in use, and pieces
# lie scattered up to its end. VACUUM has it made shorter, by the worker and, where there is none,
# itself: beside inserts and cursors, with a crash between any two steps, and on a standby.
use Gpugraph;
use Format;
use Merging;

my $node = merging_node('shrinks', init => { allows_streaming => 1 }, conf => <<CONF);
log_min_messages = debug1
CONF
my $all = "SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 3)";

make_source($node, 2000, 24, 'seal_rows = 300');
make_checks($node);
my $replica = start_standby($node, 'replica', "max_standby_streaming_delay = -1\n");

sub wait_for_waiters
{
	my ($n, $server) = @_;
	$server ||= $node;

	return defined wait_for(sub { $server->sql("SELECT count(*) FROM pg_locks
		WHERE locktype = 'advisory' AND NOT granted") == $n });
}

# A session with a cursor over all rows, of which the last are read when the function returns.
sub open_cursor
{
	my ($server, $function) = @_;

	return start_psql($server, 'SET enable_seqscan = off', 'BEGIN ISOLATION LEVEL REPEATABLE READ',
		"SELECT 'rows ' || count(*) FROM items", "DECLARE c CURSOR FOR $all", 'FETCH 5 FROM c',
		"SELECT 1 FROM $function", 'FETCH ALL FROM c', 'COMMIT');
}

sub cursor_is_complete
{
	my ($session, $what) = @_;
	my $err = finish_psql($session);
	my ($rows) = $session->{out} =~ /rows (\d+)/;
	my %seen = map { $_ => 1 } my @seen = grep { /^\d+$/ } split /\n/, $session->{out};

	return is($err . scalar(keys %seen), "$rows", $what);
}

# Let the index grow under an old snapshot, which ends. Returns its length.
sub grow
{
	my $lock = hold_lock($node, 1);
	my $session = start_psql($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ',
		'SELECT count(*) FROM items', 'SELECT pg_advisory_lock_shared(1)', 'COMMIT');

	wait_for_waiters(1);
	for (1 .. 6)
	{
		$node->sql(<<'SQL');
DELETE FROM items WHERE id > 2000;
INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source WHERE id <= 400;
SQL
		wait_for(sub { $node->sql("SELECT gpugraph_merge('items_idx')") eq 't' });
	}
	finish_psql($lock);
	finish_psql($session);
	return merge_info($node, 'total_bytes');
}

sub is_shorter
{
	my ($long) = @_;

	return merge_info($node, 'total_bytes') <= 0.8 * $long;
}

# A tenth more than what is in use, and 16 blocks, is what an index may have.
sub is_tight
{
	my ($rel) = @_;

	return merge_info($node, 'total_bytes <= 1.1 * (total_bytes - free_bytes) + 16 * 8192', $rel)
		eq 't';
}

sub shrinks
{
	my ($long, $what) = @_;

	$node->sql('VACUUM items');
	ok_in_time(sub { is_shorter($long) && is_tight() }, $what);
	note("$long, then " . merge_info($node, "total_bytes || ', of them free ' || free_bytes"));
	return;
}

# The standby holds a cursor, so it keeps the truncation waiting. Both servers then have one length.
sub standby_follows
{
	my $length = "SELECT pg_relation_size('items_idx')";

	$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
	is($replica->sql($length), $node->sql($length), 'the file is as short on the standby');
	is(answers($replica), answers($node), 'the standby answers as the primary');
	return;
}

my $long = grow();

$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
my $lock = hold_lock($replica, 2);
my $cursor = open_cursor($replica, 'pg_advisory_lock_shared(2)');
ok(wait_for_waiters(1, $replica), 'a cursor on the standby');
shrinks($long, 'one VACUUM after the snapshot');
finish_psql($lock);
cursor_is_complete($cursor, 'the cursor on the standby has every row');
standby_follows();
index_is_complete($node, 'the primary');

# a cursor that was opened before anything was moved reads it where it was
sub rest_at
{
	my ($place) = @_;
	my $session = hold_at($node, $place);

	alter_system($node, "SET gpugraph.fault = hold_$place");
	$node->sql('VACUUM items');
	ok(rests_at($node, $place), "about to $place");
	$node->sql('ALTER SYSTEM RESET gpugraph.fault');
	return $session;
}

$long = grow();
my $rest = rest_at('move');
$lock = hold_lock($node, 2);
my $log = -s $node->logfile;

$cursor = open_cursor($node, 'pg_advisory_lock_shared(2)');
wait_for_waiters(2);
$node->reload;
finish_psql($rest);
ok_in_time(sub { slurp_file($node->logfile, $log) =~ /moved [1-9]\d* blocks/ },
	'moved beside a cursor');
ok(!is_shorter($long), 'not truncated beside it');
finish_psql($lock);
cursor_is_complete($cursor, 'it has every row');
shrinks($long, 'truncated after it');

# with inserts and updates beside
$long = grow();
my $writing = start_pgbench($node, '--client=2 --rate=40 --time=3', 'insert@2' => <<'SQL',
\set first random(1, 1990)
INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source
	WHERE id BETWEEN :first AND :first + 9;
SQL
	'update@1' => <<'SQL');
\set first random(1, 2000)
UPDATE items SET val = (SELECT val FROM source WHERE id = 1 + :first % 2000) WHERE id = :first;
SQL
shrinks($long, 'beside inserts and updates');
is(failed_statements($writing), '', 'none failed');
index_is_complete($node, 'after them');

# a crash between any two steps
for my $place (qw(move truncate))
{
	$long = grow();
	$lock = rest_at($place);
	kill_9_server($node);
	finish_psql($lock);
	$node->start;
	index_is_complete($node, "a crash before: $place");
	ok(!is_shorter($long), 'the file is as long as before');
	shrinks($long, 'the next VACUUM');
	standby_follows();
}

# without a worker
alter_system($node, 'SET gpugraph.merge_workers = 0');
$long = grow();
$node->sql('ALTER TABLE items SET (vacuum_truncate = off)');
$node->sql('VACUUM items; SELECT txid_current()') for 1 .. 3;
ok(!is_shorter($long), 'not under vacuum_truncate = off');
$node->sql('ALTER TABLE items RESET (vacuum_truncate)');
$node->sql('VACUUM items');
$node->sql('SELECT txid_current()');
$node->sql('VACUUM items');
ok(is_shorter($long) && is_tight(), 'by two VACUUMs without a worker');
index_is_complete($node, 'after them');
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, 'recall');

# pages of the directory that lie at the end are written anew, before it
$node->sql(<<'SQL');
CREATE TABLE wide (id int, val vector(1900));
CREATE INDEX wide_idx ON wide USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0);
INSERT INTO wide SELECT i, (SELECT array_agg(sin(i * 13 + d * d))::vector
	FROM generate_series(1, 1900) d) FROM generate_series(1, 900) i;
DELETE FROM wide WHERE id <= 400 AND id % 2 = 0;
SQL
$lock = hold_lock($node, 1);
my $session = start_psql($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ',
	'SELECT count(*) FROM items', 'SELECT pg_advisory_lock_shared(1)', 'COMMIT');
wait_for_waiters(1);
$node->sql('VACUUM (FREEZE) wide');
finish_psql($lock);
finish_psql($session);
$long = merge_info($node, 'total_bytes', 'wide');
$node->sql('CHECKPOINT');
my $directory = read_directory(index_file($node, 'wide_idx'))->{directory};
cmp_ok($directory->[0] * 8192, '>', 0.8 * $long, 'a directory page near the end');
# the first VACUUM gives back rows, the second one moves what it can, and the third one truncates
for my $sql ('DELETE FROM wide WHERE id > 400 AND id < 900', ('VACUUM (FREEZE) wide') x 3)
{
	$node->sql($sql);
	$node->sql('SELECT txid_current()');
}
cmp_ok(merge_info($node, 'total_bytes', 'wide'), '<=', 0.8 * $long, 'does not keep the end');
ok(is_tight('wide'), 'nothing else does');
index_is_complete($node, 'with directory pages', 'wide');

standby_follows();
is($replica->sql("SELECT count(*) FROM gpugraph_check('items_idx', true)"), 1,
	"the standby's index is sound");

finish_test($replica, $node);
