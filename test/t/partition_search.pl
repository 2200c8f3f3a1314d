# The indexes of partitions are searched together on devices, of many with one request, and what
# becomes of partitions, rows and devices meanwhile does not show in answers.
use Gpugraph;
use Residency;

my $parts = 40;

# always the CPU engine, for two devices; lists of 32 are walks in indexes of 1,100 rows
my $node = service_node('partitions', conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.devices = '0,1'
gpugraph.itopk_size = 32
max_locks_per_transaction = 500
CONF
unserved {
	$node->sql(<<"SQL");
SELECT make_data('items', $parts * 1100, 16, 40);
SELECT make_queries('items', 10);
CREATE TABLE parts (LIKE items) PARTITION BY LIST (cat);
DO \$\$ BEGIN
	FOR i IN 0 .. $parts - 1 LOOP
		EXECUTE format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES IN (%1\$s)', i);
	END LOOP;
END \$\$;
INSERT INTO parts SELECT id, id % $parts, big, val FROM items;
CREATE INDEX parts_idx ON parts USING gpugraph (val vector_l2_ops);
ANALYZE parts;
CREATE FUNCTION nearest(query vector, k int) RETURNS text LANGUAGE plpgsql
	SET enable_seqscan = off SET enable_sort = off AS \$\$
DECLARE
	ids text;
BEGIN
	EXECUTE 'SELECT string_agg(id::text, '','') FROM (SELECT id FROM parts ORDER BY val <-> \$1
		LIMIT \$2) s' USING query, k INTO ids;
	RETURN ids;
END \$\$;
SQL
};
$node->sql("SELECT gpugraph_prewarm(format('parts_%s_val_idx', i)::regclass)
	FROM generate_series(0, $parts - 1) i");

# What all queries find, under some settings.
sub found
{
	my ($k, @settings) = @_;
	my $set = join('', map { "SET $_;\n" } @settings);
	return $node->sql("$set SELECT nearest(val, $k) FROM queries ORDER BY q");
}

sub requests
{
	return $node->sql('SELECT sum(queries) FROM gpugraph_stat_device');
}

# The rows that the table's own order has, of those found, as a share
sub recall
{
	my ($found, $k) = @_;
	my $true = $node->sql("SET enable_indexscan = off;
		SELECT string_agg(id::text, ',' ORDER BY n) FROM queries, LATERAL (SELECT id,
		row_number() OVER (ORDER BY parts.val <-> queries.val) AS n FROM parts
		ORDER BY parts.val <-> queries.val LIMIT $k) s GROUP BY q ORDER BY q");
	my @found = split /\n/, $found;
	my @true = split /\n/, $true;
	my $same = 0;

	for my $q (0 .. $#true)
	{
		my %true = map { $_ => 1 } split /,/, $true[$q];
		$same += grep { $true{$_} } split /,/, $found[$q];
	}
	return $same / $k / @true;
}

my $off = 'gpugraph.disable = partition_search';

# ---- requests
my $before = requests();
my $by_device = found(10, 'gpugraph.engine = cuda');
my $asked = requests() - $before;
is($asked, 10 * 2, "$parts partitions, 10 queries: a request to each device for each");
is($node->sql("SELECT sum(queries_gpu) || ' ' || sum(queries_cpu)
	FROM gpugraph_stat_index"), $parts * 10 . ' 0', 'devices have answered for every index');
$before = requests();
is($by_device, found(10, 'gpugraph.engine = cuda', $off), 'one by one: the same rows');
is(requests() - $before, $parts * 10, 'one by one: a request for each index');
cmp_ok(recall($by_device, 10), '>=', 0.99, 'by devices: the nearest');
cmp_ok(recall(found(10, 'gpugraph.engine = cpu'), 10), '>=', 0.98, 'by the CPU: the nearest');
for my $k (1, 100, 1000)
{
	is(found($k), found($k, $off), "LIMIT $k");
}
# lists of so many that all rows of an index are measured
$before = requests();
found(100);
is(requests() - $before, 10 * 2, 'LIMIT 100: a request to each device, too');

# ---- partitions that stay closed
# Scans that the session's last query begins, after some settings.
sub begun
{
	my (@settings) = @_;
	my $explain = "EXPLAIN (ANALYZE, COSTS OFF) SELECT id FROM parts ORDER BY val <->
		(SELECT val FROM queries WHERE q = 1) LIMIT 10";
	my $plan = $node->sql(
		join(";\n", 'SET enable_seqscan = off', 'SET enable_sort = off', @settings,
			($explain) x 3));

	return [ $plan =~ /Scans Begun: (\d+)/g ];
}
my $begun = begun('SET gpugraph.engine = cuda');
is($begun->[0], $parts, "a session's first query opens all partitions");
cmp_ok($begun->[2], '<=', 10, 'the next ones those alone that have rows');
is_deeply(begun('SET gpugraph.engine = cuda', 'BEGIN ISOLATION LEVEL SERIALIZABLE'),
	[ ($parts) x 3 ], 'serializable: each has its predicate lock');
# what changes an index between two queries of a session, and how often scans begin then
for my $change ('DELETE FROM parts WHERE id < 100; REINDEX INDEX parts_12_val_idx',
	'INSERT INTO parts SELECT id + 300000, 8, big, val FROM items WHERE id = 5; VACUUM parts',
	"INSERT INTO parts SELECT id + 400000, 10, big, l2_normalize(val) FROM items WHERE id % 50 = 4;
		SELECT gpugraph_merge('parts_10_val_idx')",
	'TRUNCATE parts_11; INSERT INTO parts SELECT id, 11, big, val FROM items WHERE id % 40 = 11')
{
	my $search = 'SELECT nearest(val, 10) FROM queries ORDER BY q';
	my $session = $node->background_psql('postgres');

	$session->query_safe("SET gpugraph.engine = cuda; $search");
	$node->sql($change);
	is($session->query_safe($search), found(10, $off), "$change meanwhile is seen");
	$session->quit;
}

# ---- the delta, dead rows
$node->sql(<<'SQL');
ALTER INDEX parts_7_val_idx SET (seal_rows = 0);
INSERT INTO parts SELECT id + 100000, 7, big, l2_normalize(val) FROM items WHERE id % 50 = 3;
INSERT INTO parts SELECT 200000 + q, 9, 0, val FROM queries;
DELETE FROM parts WHERE id IN (SELECT id FROM parts ORDER BY val <-> (SELECT val FROM queries
	WHERE q = 1) LIMIT 30);
SQL
is(found(10), found(10, $off), 'rows that were inserted and deleted');
cmp_ok(recall(found(10), 10), '>=', 0.99, 'they are found');

# ---- an index that no device has, devices that fail
$node->sql("SELECT gpugraph_evict('parts_3_val_idx')");
is(found(10), found(10, $off), 'one index is not on a device');
is(found(10, 'gpugraph.fault = launch'), found(10, $off), 'a launch fails');
is(found(10, 'gpugraph.fault = ring_full'), found(10, $off), 'no room for a request');

# ---- a parallel worker
my $version = $node->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
my $query = $node->sql('SELECT val FROM queries WHERE q = 2');
my $sql = "SELECT id FROM parts ORDER BY val <-> '$query' LIMIT 20";
my $fast = 'SET enable_seqscan = off; SET enable_sort = off;';
like($node->sql("$fast SET $version = on; EXPLAIN $sql"), qr/Gather/, 'a parallel plan');
is($node->sql("$fast SET $version = on; $sql"),
	$node->sql("$fast SET $off; $sql"), 'a parallel plan: the same rows');

# ---- FOR UPDATE waits for others, and then sees what they did
sub locked
{
	my ($setting) = @_;
	my $nearest = 'SELECT id FROM parts ORDER BY val <-> (SELECT val FROM queries WHERE q = 3)';
	my $other = $node->background_psql('postgres');
	my $waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
	my $rows;

	$other->query_safe("BEGIN; UPDATE parts SET big = -big - 1 WHERE id IN ($nearest LIMIT 1);
		DELETE FROM parts WHERE id IN ($nearest LIMIT 1 OFFSET 2)");
	my $locker = start_psql($node, $fast, "SET $setting", "$nearest LIMIT 5 FOR UPDATE");
	ok_in_time(sub { $node->sql($waits) eq 't' }, "FOR UPDATE, $setting: it waits");
	$other->query_safe('ROLLBACK');
	$other->quit;
	is(finish_psql($locker), '', 'and goes on');
	return $locker->{out};
}
is(locked("gpugraph.disable = ''"), locked($off), 'FOR UPDATE: the same rows');

# ---- partitions come and go under load
my $load = start_pgbench($node, '--client=3 --time=6 --protocol=prepared --max-tries=100',
	'search@8' => "\\set q random(1, 10)\nSELECT id FROM parts
		ORDER BY val <-> (SELECT val FROM queries WHERE q = :q) LIMIT 10;\n",
	'write@1' => "\\set id random(1, 44000)\nUPDATE parts SET big = big + 1 WHERE id = :id;\n");
for my $round (1 .. 4)
{
	$node->sql(<<'SQL');
ALTER TABLE parts DETACH PARTITION parts_5 CONCURRENTLY;
TRUNCATE parts_6;
ALTER TABLE parts ATTACH PARTITION parts_5 FOR VALUES IN (5);
DROP TABLE parts_4;
CREATE TABLE parts_4 PARTITION OF parts FOR VALUES IN (4);
INSERT INTO parts SELECT id, id % 40, big, val FROM items WHERE id % 40 IN (4, 6);
SQL
}
is(failed_statements($load), '', 'no statement fails under load');
is(found(10), found(10, $off), 'after the load');
cmp_ok(recall(found(10), 10), '>=', 0.98, 'after the load: the nearest');

done_testing();
