# kill -9 of a backend that builds, inserts or vacuums, and of the postmaster: the server comes back
# with an index that agrees with its table.
use Gpugraph;

my $node = new_node('kill9', conf => "restart_after_crash = on\n");
make_items($node, 3000, 16);
$node->sql("SELECT make_data('more', 12000, 48, 40)");

# each phase of a build, by each algorithm
for my $algorithm ('tsdg', 'grnnd', 'cagra')
{
	my $create = "CREATE INDEX more_idx ON more USING gpugraph (val vector_l2_ops)
		WITH (algorithm = $algorithm)";

	for my $phase ('loading', 'neighbors', 'writing')
	{
		my $session = start_psql($node, $create);
		my $pid = wait_for_progress($node, $phase, $session);

		survives_kill_9($node, "a build by $algorithm in phase $phase"
			. (defined $pid ? '' : ' (which passed unseen)'), $pid, $session);
		$node->sql('DROP INDEX IF EXISTS more_idx');
	}
	$node->sql($create);
	index_is_complete($node, "$algorithm: a build after three that were killed", 'more');
	is($node->sql("SELECT algorithm FROM gpugraph_index_info('more_idx')"),
		$algorithm, "$algorithm: the algorithm of that build");
	$node->sql('DROP INDEX more_idx') if $algorithm ne 'cagra';
}

# REINDEX: the old index is still the one in use
my $session = start_psql($node, 'REINDEX INDEX more_idx');
survives_kill_9($node, 'REINDEX', wait_for_progress($node, 'building', $session), $session, 'more');

# inserts
for my $round (1 .. 2)
{
	$session = insert_for_ever($node, 'items',
		"SELECT $round * 1000000 + i, 0, 0, val FROM items WHERE id = 1 + i % 3000", 200);
	survives_kill_9($node, "inserts, round $round", backend_pid($node, '^.?DO'), $session, 'items');
}

# VACUUM
$node->sql('DELETE FROM items WHERE id % 2 = 0');
$session = start_psql($node, 'SET vacuum_cost_delay = 20', 'SET vacuum_cost_limit = 1',
	'VACUUM items');
ok_in_time(sub { $node->sql('SELECT phase FROM pg_stat_progress_vacuum')
	eq 'vacuuming indexes' }, 'VACUUM is at the indexes');
survives_kill_9($node, 'VACUUM', $node->sql('SELECT pid FROM pg_stat_progress_vacuum'), $session,
	'items');
$node->sql('VACUUM items');
index_is_complete($node, 'VACUUM after that');

# the postmaster, while another build and inserts go on
my $build = start_psql($node, 'REINDEX INDEX more_idx');
$session = insert_for_ever($node, 'items',
	'SELECT 9000000 + i, 0, 0, val FROM items WHERE id = 1 + 2 * (i % 1500)', 100);
kill_9_server($node);
finish_psql($build);
finish_psql($session);
# shared memory is free once its children have ended
ok_in_time(sub { $node->start(fail_ok => 1) }, 'the server starts');
index_is_complete($node, 'postmaster killed');
index_is_complete($node, 'postmaster killed', 'more');

finish_test($node);
