# gpugraph_learn() shows how far it is, and statement_timeout at whatever point leaves index and
# sample as they were, as it does where gpugraph_forget() is cancelled.
use Gpugraph;
use Merging;
use Time::HiRes qw(time);

my $node = new_node('learn_cancel');
make_source($node, 6000, 16, 'seal_rows = 0, graph_degree = 16, segment_rows = 2500');
make_learn($node, 3000);

# what a call that fails must not change
sub state_of
{
	return join ' ', merge_info($node, 'generation'), answers($node),
		merge_info($node, 'sample_queries');
}

# progress, seen every 5 ms from another session, which is there before it begins
my $watcher = start_psql($node, <<'CREATE', <<'WATCH', <<'SUM');
CREATE TEMP TABLE seen (n serial, command text, phase text, done bigint, total bigint)
CREATE
DO $$
BEGIN
	FOR i IN 1 .. 20000 LOOP
		PERFORM pg_stat_clear_snapshot();
		INSERT INTO seen (command, phase, done, total)
			SELECT command, phase, tuples_done, tuples_total FROM pg_stat_progress_create_index
			WHERE index_relid = 'items_idx'::regclass AND relid = 'items'::regclass;
		EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_progress_create_index)
			AND EXISTS (SELECT FROM seen);
		PERFORM pg_sleep(0.005);
	END LOOP;
END $$
WATCH
SELECT count(*) > 5, count(DISTINCT done) > 5, bool_and(done <= total), max(total),
	bool_and(command IS NULL),
	(SELECT count(*) FROM (SELECT done - lag(done) OVER (ORDER BY n) AS step FROM seen
		WHERE phase ~ 'learning') s WHERE step < 0)
	FROM seen WHERE phase = 'building index: learning edges'
SUM
isnt(backend_pid($node, 'FOR i IN 1 .. 20000'), '', 'somebody watches');
$node->sql('SET max_parallel_maintenance_workers = 0; SELECT learn()');
is(finish_psql($watcher), '', 'until it is over');
my $seen = $watcher->{out} =~ s/\n$//r;
is($seen, 't|t|t|6000|t|0', 'the rows that are measured are counted');
is($node->sql('SELECT count(*) FROM pg_stat_progress_create_index'), 0,
	'nothing is shown afterwards');
$node->sql("SELECT gpugraph_forget('items_idx')");

# how long it takes; what it does is undone
my $start = time;
$node->sql('SELECT learn()');
my $ms = 1000 * (time - $start);
$node->sql("SELECT gpugraph_forget('items_idx')");
my $before = state_of();
my $generation = merge_info($node, 'generation');
my $cancelled = 0;

for my $step (1 .. 16)
{
	my $timeout = 1 + int($ms * $step / 16);
	my ($rc, $out, $err) =
		$node->psql('postgres', "SET statement_timeout = $timeout; SELECT learn()");

	if ($rc == 0 || merge_info($node, 'generation') != $generation)
	{
		# it had all but ended: what it learned is there
		last if $cancelled > 5 || $timeout == 1;
		# the machine was busier when it was measured: that long it takes at most
		$ms = $timeout;
		$node->sql("SELECT gpugraph_forget('items_idx')");
		$before = state_of();
		$generation = merge_info($node, 'generation');
		redo;
	}
	$cancelled++;
	like($err, qr/canceling statement due to statement timeout/, "cancelled after $timeout ms");
	is(state_of(), $before, 'and all is as it was') if $step % 3 == 0;
}
cmp_ok($cancelled, '>', 5, 'some were cancelled');

# and forgetting
$node->sql('SELECT learn()');
$before = state_of();
for my $step (1 .. 4)
{
	my ($rc) = $node->psql('postgres', 'SET statement_timeout = ' . (10 * $step)
		. "; SELECT gpugraph_forget('items_idx')");

	last if $rc == 0;
	is(state_of(), $before, 'forgetting is cancelled');
}
index_is_complete($node, 'at the end');
finish_test($node);
