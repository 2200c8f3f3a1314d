# The bug: who waits for a load holds AccessShareLock on the index. A statement that wants the index
# for itself waits for it, and the loader, which takes AccessShareLock anew for each unit, queues
# behind that statement. Since the wait for the load was on a latch, the deadlock detector saw no
# circle: all three waited for ever, and so did every later query on the table, in planning.
#
# The fix: the loader holds a lock, for which those who wait for the load ask. The detector then
# sees the circle and lets the loader go first.
use Gpugraph;
use Residency;

my $node = service_node('deadlock', conf => "allow_in_place_tablespaces = on\n");
unserved {
	make_items($node, 4000, 16);
	$node->sql("CREATE TABLESPACE elsewhere LOCATION ''");
};

my %waiters = (
	'gpugraph_prewarm()' => [ "SELECT gpugraph_prewarm('items_idx') > 0" ],
	'a query' => [ 'SET gpugraph.engine = cuda', 'SET enable_seqscan = off', $nearest ]);
my $elsewhere = 0;

# What wants the index for itself, and what stands there again for the next round.
my @statements = (
	[ 'REINDEX INDEX', 'REINDEX INDEX items_idx' ],
	[ 'ALTER INDEX SET', 'ALTER INDEX items_idx SET (graph_degree = 31)' ],
	[ 'SET TABLESPACE',
		sub { 'ALTER INDEX items_idx SET TABLESPACE '
		. (($elsewhere = !$elsewhere) ? 'elsewhere' : 'pg_default') } ],
	[ 'REINDEX INDEX CONCURRENTLY', 'REINDEX INDEX CONCURRENTLY items_idx' ],
	[ 'DROP INDEX CONCURRENTLY', 'DROP INDEX CONCURRENTLY items_idx' ]);

# how many sessions wait for a lock; waits for a load are not among them
sub blocked
{
	return $node->sql("SELECT count(*) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND wait_event_type = 'Lock'
			AND query !~ 'gpugraph_prewarm'");
}

# Wait until sessions have ended, and end them in the end: true when they did so themselves.
sub all_end
{
	my @sessions = @_;
	my $ended = defined wait_for(
		sub {
			return !grep { !has_ended($_) } @sessions;
		});

	if (!$ended)
	{
		$node->sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'");
	}
	finish_psql($_) for @sessions;
	return $ended;
}

# A session waits for a load that rests; in between comes the statement, and then a query of
# somebody else.
sub meet
{
	my ($what, $waiter, $statement, $fault) = @_;

	$node->sql("SELECT gpugraph_evict('items_idx')");
	set_fault($node, $fault // 'load_stall');
	my $waiting = start_psql($node, @$waiter);
	is(wait_for_state($node, 'loading'), 'loading', "$what: a load is under way");
	my $changing;
	unserved { $changing = start_psql($node, $statement); };
	ok_in_time(sub { blocked() || has_ended($changing) }, "$what: it is there");
	my $later = start_psql($node, 'SET enable_seqscan = off', $nearest);

	wait_for(sub { return blocked() > 1 || has_ended($later); });
	set_fault($node);
	ok(all_end($waiting, $changing, $later), "$what: all end");
	is($waiting->{err} . $changing->{err} . $later->{err}, '', "$what: without an error");
	is($later->{out}, "10\n", "$what: a later query has its answer");
	return;
}

for my $who (sort keys %waiters)
{
	for (@statements)
	{
		my ($name, $statement) = @$_;

		meet("$who and $name", $waiters{$who}, ref $statement ? $statement->() : $statement);
		unserved { $node->sql(
			'CREATE INDEX IF NOT EXISTS items_idx ON items USING gpugraph (val vector_l2_ops)'); };
	}
}

# ---- several readers, of which each may be the one that queues
for my $who (sort keys %waiters)
{
	meet("$who, several readers and REINDEX INDEX", $waiters{$who}, 'REINDEX INDEX items_idx',
		'load_readers');
}

# ---- whoever waits must not be the one that keeps the loader out
$node->sql("SELECT gpugraph_evict('items_idx')");
my $own = start_psql($node, 'BEGIN', 'ALTER INDEX items_idx SET (graph_degree = 30)',
	@{ $waiters{'a query'} }, 'COMMIT');
ok(all_end($own), 'a query of the transaction that has the index locked ends');
is($own->{err} . $own->{out}, "10\n", 'the CPU answers it, also under gpugraph.engine = cuda');
$node->sql("SELECT gpugraph_evict('items_idx')");
$own = start_psql($node, 'BEGIN', 'ALTER INDEX items_idx SET (graph_degree = 31)',
	@{ $waiters{'gpugraph_prewarm()'} }, 'COMMIT');
ok(all_end($own), 'gpugraph_prewarm() there ends');
like($own->{err}, qr/can only be read by this session/, 'and says why it cannot');

# ---- lock_timeout is for locks on tables, not for a load
$node->sql("SELECT gpugraph_evict('items_idx')");
is($node->sql("SET lock_timeout = '100ms'; SET gpugraph.fault = load_stall;
	SELECT gpugraph_prewarm('items_idx') > 0; SHOW lock_timeout"),
	"t\n100ms", 'a load may take longer than lock_timeout');

truth_by_device($node, 'in the end');
is(log_lines($node, qr/(PANIC|TRAP|signal|deadlock detected)/), 0, 'nothing bad is in the log');
finish_test($node);
