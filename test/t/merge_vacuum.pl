# VACUUM and a merge in each other's midst, in every order: a row that VACUUM removed never comes
# back with the row that has its place by then. The worker is stopped (SIGSTOP) where it builds the
# graph, after it read the rows; VACUUM where it sleeps between two pages of the index.
use Gpugraph;
use Merging;

my $node = merging_node('vacuum');
# rows of other values, which get the places of those removed
my $removed = 'id % 3 = 0';
my $again = 'INSERT INTO slow
	SELECT id + 100000 * (1 + (SELECT max(id) / 100000 FROM slow)), cat,
		val + array_fill(5::real, ARRAY[64])::vector
	FROM slow WHERE id < 10000 AND id % 3 = 1';

# A table whose removed rows are dead, in segment and delta.
sub make_dead
{
	my ($seal_rows) = @_;

	$node->sql('DROP TABLE IF EXISTS slow');
	slow_index($node, 'slow');
	$node->sql('ALTER INDEX slow_idx SET (seal_rows = 0)');
	$node->sql('INSERT INTO slow ' . slow_rows(1, 600));
	$node->sql("SELECT gpugraph_merge('slow_idx')");
	$node->sql("ALTER INDEX slow_idx SET (seal_rows = $seal_rows)");
	$node->sql('INSERT INTO slow ' . slow_rows(601, 1400));
	return;
}

# VACUUM, stopped when it has begun with the index; the session and the process id. Until it is
# stopped it does not end: it would rest at its last segment.
sub stop_vacuum
{
	my $holder = hold_at($node, 'vacuum_last');
	my $session = start_psql($node, 'SET gpugraph.fault = hold_vacuum_last',
		'SET vacuum_cost_delay = 40', 'SET vacuum_cost_limit = 1', 'VACUUM (FREEZE) slow');
	my $pid;

	wait_for(sub { $pid = $node->sql(
		"SELECT pid FROM pg_stat_progress_vacuum WHERE phase = 'vacuuming indexes'");
		return $pid ne ''; });
	kill 'STOP', $pid;
	finish_psql($holder);
	return ($session, $pid);
}

sub is_whole
{
	my ($what) = @_;

	index_is_complete($node, $what, 'slow');
	$node->sql($again);
	index_is_complete($node, "$what, places used again", 'slow');
	$node->sql('VACUUM (FREEZE) slow');
	ok_in_time(sub { $node->sql("SELECT gpugraph_merge('slow_idx')")
		eq 't' }, "$what: merged once more");
	index_is_complete($node, "$what, merged once more", 'slow');
	return;
}

# VACUUM between the merge's reading and its flip
make_dead(200);
my $worker = stop_in_graph($node, 'slow');
ok(defined $worker, 'a merge has read its rows');
my $before = merge_info($node, 'generation', 'slow');
$node->sql("DELETE FROM slow WHERE $removed");
$node->sql('VACUUM (FREEZE) slow');
$node->sql($again);
kill 'CONT', $worker;
ok_in_time(sub { merge_info($node, 'generation', 'slow') > $before }, 'it flips');
is_whole('VACUUM within a merge');

# VACUUM begins before the flip and ends after it
make_dead(0);
$node->sql("DELETE FROM slow WHERE $removed");
my ($session, $vacuum) = stop_vacuum();
is($node->sql("SELECT gpugraph_merge('slow_idx')"), 't', 'a merge while VACUUM is at the index');
index_is_complete($node, 'VACUUM is at the index still', 'slow');
kill 'CONT', $vacuum;
is(finish_psql($session), '', 'VACUUM goes through the new generation');
is_whole('a merge within VACUUM');

# VACUUM fails after it cleared some rows, between the merge's reading and its flip
make_dead(200);
$worker = stop_in_graph($node, 'slow');
ok(defined $worker, 'a merge has read its rows');
$before = merge_info($node, 'generation', 'slow');
$node->sql("DELETE FROM slow WHERE $removed");
($session, $vacuum) = stop_vacuum();
$node->sql("SELECT pg_cancel_backend($vacuum)");
kill 'CONT', $vacuum;
like(finish_psql($session), qr/canceling statement due to user request/, 'VACUUM fails');
kill 'CONT', $worker;
ok_in_time(sub { merge_info($node, 'generation', 'slow') > $before }, 'the merge flips');
$node->sql('VACUUM (FREEZE) slow');
is_whole('VACUUM failed within a merge');

# VACUUM fails, a merge flips, the next VACUUM is stopped, another merge flips
make_dead(0);
$node->sql("DELETE FROM slow WHERE $removed");
($session, $vacuum) = stop_vacuum();
$node->sql("SELECT pg_cancel_backend($vacuum)");
kill 'CONT', $vacuum;
finish_psql($session);
$node->sql("SELECT gpugraph_merge('slow_idx')");
($session, $vacuum) = stop_vacuum();
$node->sql('INSERT INTO slow ' . slow_rows(2001, 2300));
is($node->sql("SELECT gpugraph_merge('slow_idx')"), 't', 'another merge');
kill 'CONT', $vacuum;
is(finish_psql($session), '', 'the second VACUUM');
is_whole('two merges and two VACUUMs');

# VACUUM gives back all that a merge reads
make_dead(200);
$worker = stop_in_graph($node, 'slow');
ok(defined $worker, 'a merge has read its rows');
$node->sql('DELETE FROM slow');
$node->sql('VACUUM (FREEZE) slow');
$node->sql('INSERT INTO slow ' . slow_rows(3001, 3500));
kill 'CONT', $worker;
ok_in_time(sub { $node->sql("SELECT gpugraph_merge('slow_idx')") eq 't' }, 'it gives way');
index_is_complete($node, 'VACUUM gave back what a merge had read', 'slow');
unlike(slurp_file($node->logfile), qr/corrupt|PANIC|ERROR:  (?!cancel)/, 'no other error');

finish_test($node);
