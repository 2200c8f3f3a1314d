# Graphs merged as graphs, where the CPU engine is faster so: a few rows go into a segment of many.
# Recall is that of a graph built anew, dead rows are dropped, equal rows share a node, and a merge
# that is killed leaves the index whole.
use Gpugraph;
use Merging;
use Time::HiRes qw(time usleep);

my $node = new_node('graphs', conf => "restart_after_crash = on\nlog_min_messages = debug1\n");
make_source($node, 8000, 12, 'seal_rows = 0');
$node->sql("SELECT make_queries('items', 100);
	DELETE FROM items WHERE id > 7300; VACUUM items; REINDEX INDEX items_idx");

# how many merges of graphs the log has
sub graph_merges
{
	my @lines = slurp_file($node->logfile) =~ /merging the graphs of \d+ segments/g;

	return scalar @lines;
}

sub merge
{
	return $node->sql("SELECT gpugraph_merge('items_idx')");
}

# Recall at a short candidate list, and of a fresh build.
sub compare_recall
{
	my ($what) = @_;
	my $recall = "SET gpugraph.itopk_size = 32; SELECT recall('items', '<->')";
	my $merged = $node->sql($recall);

	$node->sql('REINDEX INDEX items_idx');
	cmp_ok($merged, '>=', $node->sql($recall) - 0.01, "$what: recall as of a fresh build");
	return;
}

# rows of the delta into the segment
$node->sql('INSERT INTO items SELECT * FROM source WHERE id > 7300');
merge();
is(graph_merges(), 1, 'a delta goes into a large segment by its graph');
is(merge_info($node, 'segments'), 1, 'one segment');
index_is_complete($node, 'delta and segment');
compare_recall('delta and segment');

# a second segment, with rows that equal rows of the first one, and dead rows in both
$node->sql(<<'SQL');
INSERT INTO items SELECT id + 10000, cat, big, val FROM source WHERE id <= 400;
INSERT INTO items SELECT id + 20000, cat, big, (val::real[])[1:11] || 3.0::real FROM source
	WHERE id BETWEEN 1001 AND 1500;
SQL
my $nodes = merge_info($node, 'nodes');
$node->sql('DELETE FROM items WHERE id % 10 = 3; VACUUM items');
my $before = graph_merges();
merge();
is(graph_merges(), $before + 1, 'and so do equal rows, beside dead ones');
index_is_complete($node, 'equal and dead rows');
cmp_ok(merge_info($node, 'nodes'), '<=', $nodes + 500, 'equal rows share a node');
compare_recall('equal and dead rows');

# a graph by GRNND
$node->sql("ALTER INDEX items_idx SET (algorithm = grnnd);
	REINDEX INDEX items_idx;
	INSERT INTO items SELECT id + 40000, cat, big, val FROM source WHERE id BETWEEN 2001 AND 2500");
$before = graph_merges();
merge();
is(graph_merges(), $before + 1, 'grnnd: new rows go into the graph');
index_is_complete($node, 'grnnd');
compare_recall('grnnd');
$node->sql('ALTER INDEX items_idx RESET (algorithm); REINDEX INDEX items_idx');

# more new rows than old ones: built anew
$before = graph_merges();
$node->sql('SELECT setseed(0.1); INSERT INTO items SELECT id + 30000, cat, big,
	(SELECT array_agg(x + random())::real[]::vector(12) FROM unnest(val::real[]) x) FROM source');
merge();
is(graph_merges(), $before, 'many new rows: the graph is built anew');
index_is_complete($node, 'built anew');

# kill -9 at some points of it
my $start = time;
$node->sql('SELECT setseed(0.2); INSERT INTO items SELECT id + 50000, cat, big,
	(SELECT array_agg(x + random())::real[]::vector(12) FROM unnest(val::real[]) x) FROM source
	WHERE id <= 300');
merge();
my $us = 1e6 * (time - $start);
my $killed = 0;

for my $step (1 .. 4)
{
	$node->sql("SELECT setseed(0.$step);
		INSERT INTO items SELECT id + 50000 + 1000 * $step, cat, big,
		(SELECT array_agg(x + random())::real[]::vector(12) FROM unnest(val::real[]) x)
		FROM source WHERE id <= 300");
	my $session = start_psql($node, "SELECT gpugraph_merge('items_idx')");
	my $pid = '';

	# on a busy machine it may be over before anybody looks
	wait_for(
		sub {
			$pid = $node->sql("SELECT pid FROM pg_stat_activity
				WHERE query ~ '^SELECT gpugraph_merge' AND state = 'active'
					AND pid <> pg_backend_pid()");
			return $pid ne '' || has_ended($session);
		});
	usleep($us * $step / 6);
	if ($pid ne '' && kill 0, $pid)
	{
		kill_9($node, $pid);
		$killed++;
	}
	else
	{
		# the machine may have been busier when it was measured
		$us /= 2;
	}
	ok(wait_until_up($node), "step $step: the server is up");
	finish_psql($session);
	index_is_complete($node, "step $step");
}
note("$killed were killed at some point");

# and one that is sure to be there, with rows that no merge has had: before the flip
$node->sql('INSERT INTO items SELECT id + 60000, cat, big, val FROM source WHERE id <= 300');
{
	my ($holder, $session, $pid) = start_held($node, "SELECT gpugraph_merge('items_idx')");

	isnt($pid, '', 'a merge rests before its flip');
	ok(defined kill_9($node, $pid), 'it is killed');
	ok(wait_until_up($node), 'the server is up');
	finish_psql($_) for $holder, $session;
	index_is_complete($node, 'killed before the flip');
}
is(merge(), 't', 'the next one does it');
index_is_complete($node, 'merged');
compare_recall('after crashes');

finish_test($node);
