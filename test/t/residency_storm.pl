# Queries whose answers are known, while rows come and go, VACUUM runs, the index is evicted,
# loaded, rebuilt, its loads fail and the worker is terminated: no answer is wrong, no query fails,
# and nothing is left behind.
use Gpugraph;
use Residency;
use Time::HiRes qw(usleep time);

my $seconds = 8;
my $node = service_node('storm', conf => "gpugraph.device_memory = 4MB\nlog_statement = none\n");
make_items($node, 4000, 16);
$node->sql(<<'SQL');
SELECT make_data('other', 4000, 16, 40);
CREATE INDEX other_idx ON other USING gpugraph (val vector_l2_ops);
CREATE SEQUENCE fresh START 100001;
-- A row that is there for good is its own nearest neighbour, at distance 0, and no deleted row is
-- returned. Of so few nodes merges make exact lists of neighbours, and walks miss none. The error
-- tells an answer that was wrong once from a graph in which a walk misses the row, and both from a
-- lost row.
CREATE FUNCTION ask(rel text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	wanted int := 1 + (random() * 3999)::int % 4000;
	seen record;
	how record;
	again float8;
	all_rows record;
BEGIN
	EXECUTE format('SELECT min(d) AS d, count(*) AS n, count(DISTINCT id) AS ids FROM '
		'(SELECT t.id, t.val <-> (SELECT val FROM %1$I WHERE id = %2$s) AS d FROM %1$I t '
		'ORDER BY d LIMIT 10) s', rel, wanted) INTO seen;
	IF seen.d IS DISTINCT FROM 0 OR seen.n <> 10 OR seen.ids <> 10 THEN
		how := gpugraph_last_scan();
		EXECUTE format('SELECT min(d) FROM (SELECT val <-> (SELECT val FROM %1$I WHERE id = %2$s) '
			'AS d FROM %1$I ORDER BY d LIMIT 10) s', rel, wanted) INTO again;
		EXECUTE format('SELECT count(*) FILTER (WHERE id <= 4000) AS lasting, bool_or(id = %2$s) '
			'AS it FROM (SELECT id FROM %1$I ORDER BY val <-> (SELECT val FROM %1$I '
			'WHERE id = %2$s)) s', rel, wanted) INTO all_rows;
		RAISE EXCEPTION 'row % of %: % by %, again %, all rows %', wanted, rel, seen, how, again,
			all_rows;
	END IF;
END $$;
-- the worker may be away just now, or the index be replaced
CREATE FUNCTION try_prewarm(rel text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM gpugraph_prewarm(rel::regclass);
EXCEPTION
	WHEN object_not_in_prerequisite_state OR out_of_memory OR undefined_table
		OR undefined_object THEN RETURN;
END $$;
SQL

# Each of these runs until time is up.
my %scripts = (
	ask => "SET enable_seqscan = off; SELECT ask('items'); SELECT ask('other');",
	insert => "INSERT INTO items SELECT nextval('fresh'), cat, big, val FROM items
		WHERE id <= 4000 AND random() < 0.01;",
	delete => "DELETE FROM items WHERE id > 100000 AND random() < 0.3; SELECT pg_sleep(0.2);",
	vacuum => "VACUUM items; SELECT pg_sleep(0.3);",
	evict => "SELECT gpugraph_evict('items_idx'); SELECT pg_sleep(random() * 0.3);",
	prewarm => "SELECT try_prewarm('other_idx'); SELECT pg_sleep(random() * 0.5);",
	reindex => "REINDEX INDEX CONCURRENTLY other_idx; SELECT pg_sleep(1);",
	fault => "SET gpugraph.fault = load; SELECT ask('items'); SELECT pg_sleep(0.2);");
my $asks = delete $scripts{ask};
$scripts{"ask$_"} = $asks for 1 .. 4;
my %running = map {
	$_ => start_pgbench($node, "--client=1 --time=$seconds",
		"$_\@1" => join("\n", map { "$_;" } split /;\s*/, $scripts{$_}) . "\n")
} sort keys %scripts;

# The worker is terminated every few seconds. On a busy machine it may take some to come back, as on
# a GPU, whose driver is slow to start.
my $until = time + $seconds;
my $least = ($ENV{GG_SERVICE_ENGINE} || 'cpu') eq 'cpu' ? 2 : 1;
my $kills = 0;
while (time < $until - 3 || ($kills < $least && time < $until + 60))
{
	usleep(2_500_000);
	my $pid = of_device($node, 'coalesce(pid, 0)');
	$kills += kill 'TERM', $pid if $pid != 0;
}
cmp_ok($kills, '>=', $least, 'the worker was terminated more than once');

for my $name (sort keys %running)
{
	my @errors = grep { /ERROR|FATAL|PANIC|aborted/ } split /\n/, finish_psql($running{$name});

	is(join("\n", @errors), '', "$name: no error");
	like($running{$name}{out}, qr/number of transactions actually processed: [1-9]/,
		"$name: it did something");
}

# ---- afterwards
ok_in_time(sub { of_device($node, 'state') eq 'up' }, 'the worker is up');
cmp_ok(of_index($node, 'queries_gpu'), '>', 20, 'the device answered some of it');
$node->sql(
	"DELETE FROM items WHERE id > 100000; VACUUM items; SELECT gpugraph_prewarm('items_idx')");
truth_by_device($node, 'afterwards');
index_is_complete($node, 'afterwards');
$node->sql("SELECT gpugraph_evict('items_idx'), gpugraph_evict('other_idx')");
ok_in_time(sub { of_device($node, "resident_indexes || ' ' || resident_bytes") eq '0 0' },
	'all memory is given back');
# one may stay for a second
ok_in_time(sub {
	$node->sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'gpugraph loader'") == 0
}, 'no loader is left');
is(log_lines($node, qr/PANIC|TRAP|signal 11|signal 6/), 0, 'nothing bad is in the log');

finish_test($node);
