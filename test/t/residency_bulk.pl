# Of an index that is on a device in part, the device answers many queries in one request, and this
# process searches the segments that are missing meanwhile, on pages or in memory. Rows are those
# that scans find, one query after the other, whatever else happens.
use Gpugraph;
use Format;
use Residency;

# Always the CPU engine, whose sizes and ties are the same everywhere. One chunk: none may be lost.
my $node = service_node('bulk', conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.itopk_size = 64
gpugraph.answer_chunks = 1
gpugraph.merge_workers = 0
max_parallel_workers_per_gather = 2
CONF

# rows that are equal, updated, dead, and of a delta
unserved {
	$node->sql(<<'SQL');
SELECT setseed(0.75);
SELECT make_data('few', 3000, 32, 40);
CREATE TABLE items (id int, cat int, big int, val vector(32)) WITH (autovacuum_enabled = off);
INSERT INTO items SELECT row_number() OVER (), a.cat, a.big, a.val + b.val
	FROM few a, few b WHERE a.id <= 2000 AND b.id <= 8;
INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id % 50 = 0;
SELECT make_queries('items', 300);
CREATE INDEX few_idx ON few USING gpugraph (val vector_l2_ops);
SET max_parallel_maintenance_workers = 0;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (seal_rows = 0, segment_rows = 4000);
UPDATE items SET cat = 100 WHERE id % 13 = 1;
DELETE FROM items WHERE id % 17 = 2;
VACUUM ANALYZE;
UPDATE items SET big = -1 WHERE id % 401 = 1;

-- The rows of all queries, and the same by scans: 'same', or what differs. Rows that are as near
-- may come in either order.
CREATE FUNCTION by_search(k int) RETURNS TABLE (q int, n bigint, id int, d float8) LANGUAGE sql AS
$$
	SELECT s.query, row_number() OVER (PARTITION BY s.query ORDER BY s.distance, i.id), i.id,
		s.distance
	FROM gpugraph_search('items_idx', (SELECT array_agg(val ORDER BY q) FROM queries), k) s
	JOIN items i ON i.ctid = s.tid
$$;
CREATE FUNCTION compare(k int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	what text;
BEGIN
	DROP TABLE IF EXISTS mine, other;
	CREATE TEMP TABLE mine AS SELECT * FROM by_search(k);
	PERFORM set_config('gpugraph.engine', 'cpu', true);
	CREATE TEMP TABLE other AS SELECT * FROM by_search(k);
	SELECT CASE WHEN count(*) = 0 THEN 'same' ELSE format('%s rows differ', count(*)) END INTO what
		FROM mine FULL JOIN other USING (q, n)
		WHERE mine.id IS DISTINCT FROM other.id AND abs(mine.d - other.d) <= 1e-6 IS NOT TRUE;
	RETURN what;
END $$;
SQL
};
sub sql { return $node->sql($_[0]) }

my $bytes = sql("SELECT gpugraph_prewarm('items_idx')");
is(sql("SELECT segments FROM gpugraph_index_info('items_idx')"), 5, 'several segments');
reload_with($node, 'gpugraph.device_memory = ' . (int($bytes / 2 / 1048576) + 1) . 'MB');
ok_in_time(sub { state_of($node) eq 'partial' }, 'on the device in part');
cmp_ok(of_index($node, 'missing_segments'), '>=', 2, 'segments are missing');

# The queries of a call that were answered by both, and the batches of the device meanwhile.
sub asked
{
	my ($setting, $k) = @_;
	my $counts = "SELECT queries_both, queries_cpu, (SELECT batches FROM gpugraph_stat_device)
		FROM gpugraph_stat_index WHERE relid = 'items_idx'::regclass";
	my @before = split /\|/, sql($counts);
	my @told = split /\|/, sql("$setting;
		SELECT count(*) FROM by_search($k) \\g /dev/null
		SELECT engine, queries FROM gpugraph_last_scan()");
	my @after = split /\|/, sql($counts);

	return (@told, map { $after[$_] - $before[$_] } 0 .. 2);
}

my $graph = "SELECT count(*), round(sum(distance)::numeric, 2)
	FROM gpugraph_knn_graph('items_idx', 2)";
my $by_cpu = sql("SET gpugraph.engine = cpu; $graph");
my %settings = (
	'on pages' => "SET work_mem = '64kB'",
	'in memory' => "SET work_mem = '256MB'",
	'by one thread' => "SET work_mem = '256MB'; SET max_parallel_workers_per_gather = 0");
for my $how (sort keys %settings)
{
	my ($engine, $queries, $both, $cpu, $batches) = asked($settings{$how}, 10);

	is("$engine $queries $both $cpu", 'gpu, cpu 300 300 0', "$how: both answer each query");
	cmp_ok($batches, '<', 30, "$how: the device has few requests");
	for my $mode ('auto', 'tsdg_small')
	{
		is(sql("$settings{$how}; SET gpugraph.search_mode = $mode; SELECT compare($_)"), 'same',
			"$how: $mode, $_ rows") for $mode eq 'auto' ? (10, 60) : 10;
	}
	# so long a list that every row is measured
	is(sql("$settings{$how}; SET gpugraph.itopk_size = 500; SELECT compare(200)"), 'same',
		"$how: exact");
	is(sql("$settings{$how}; $graph"), $by_cpu, "$how: the k-NN graph");
}
is(sql("SET gpugraph.itopk_size = 500; SELECT count(*) FROM queries, LATERAL (SELECT
		array_agg(id ORDER BY d, id) AS ids FROM (SELECT id, items.val <-> queries.val AS d
			FROM items ORDER BY 2 LIMIT 10) t) t
	WHERE q <= 40 AND ids <> (SELECT array_agg(id ORDER BY d, id) FROM by_search(10) s
		WHERE s.q = queries.q)"), 0, 'exact lists are those of the table');
like(error_of($node, "SET gpugraph.engine = cuda; SELECT * FROM by_search(3)"),
	qr/no GPU can search index "items_idx".*Only some segments/s,
	'under gpugraph.engine = cuda it is an error');

# ---- rows that came since, and segments that go between two requests
sql('INSERT INTO items SELECT id + 40000, cat, big, val FROM items WHERE id <= 500');
is(sql('SELECT compare(10)'), 'same', 'a delta');
my $holder = hold_at($node, 'post');
my $session = start_psql($node, 'SET gpugraph.fault = hold_post',
	"SELECT count(*) FROM gpugraph_search('items_idx',
	(SELECT array_agg(val) FROM queries WHERE q <= 2), 5)");
ok(rests_at($node, 'post'), 'a search is about to be posted');
sql("SELECT gpugraph_evict('items_idx')");
finish_psql($holder);
is(finish_psql($session) . $session->{out}, "10\n", 'and all is evicted: it goes on');

# ---- cancelled while the device has the request: its next one is answered
sql("SELECT gpugraph_prewarm('items_idx')");
like(error_of($node, "SET gpugraph.fault = stall;
	SET statement_timeout = '200ms'; SELECT count(*) FROM by_search(50)"),
	qr/statement timeout/, 'cancelled');
ok_in_time(sub { (asked('SET work_mem = 64', 10))[0] eq 'gpu, cpu' },
	'the device answers the next one');

# ---- an error of the CPU's part: the request is given up, and nothing is lost
my $file = index_file($node, 'items_idx');
sql('CHECKPOINT');
$node->stop;
my $directory = read_directory($file);
# the largest one is not there: of equally many nodes that with more rows
my $large = (sort { $b->[1] <=> $a->[1] || $b->[2] <=> $a->[2] || $b->[0] <=> $a->[0] }
	@{ $directory->{segments} })[0][0];
my ($pivots) = grep { $_->[2] == $large && $_->[3] == PIVOTS } @{ $directory->{extents} };
my $page = read_page($file, $pivots->[0]);
substr($page, PAGE - STAMP, 8) = "\0" x 8;
write_page($file, $pivots->[0], $page);
$node->start;
wait_for(sub { of_device($node, 'state') eq 'up' });
ok_in_time(sub { state_of($node) eq 'partial' }, 'in part after a restart');
is(sql(<<'SQL'), 'XX002 XX002', 'the errors of a scan and of a search');
CREATE FUNCTION fails(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN index_corrupted THEN
	RETURN SQLSTATE;
END $$;
SET enable_seqscan = off;
SELECT string_agg(DISTINCT fails('SELECT id FROM items ORDER BY val <->
		(SELECT val FROM queries WHERE q = ' || i || ') LIMIT 1'), ' ') || ' ' ||
	string_agg(DISTINCT fails('SELECT * FROM by_search(10)'), ' ') FROM generate_series(1, 20) i;
SQL
# the other index, which the one that is asked so much may push out again
my $found;
wait_for(sub {
	$found = sql(<<'SQL');
SELECT gpugraph_prewarm('few_idx') \g /dev/null
SET enable_seqscan = off;
CREATE TEMP TABLE found AS SELECT query FROM gpugraph_search('few_idx',
	(SELECT array_agg(val) FROM few WHERE id <= 500), 5);
SELECT engine, (SELECT count(*) FROM found) FROM gpugraph_last_scan();
SELECT id FROM few ORDER BY val <-> (SELECT val FROM few WHERE id = 7) LIMIT 1 \g /dev/null
SELECT engine, rows FROM gpugraph_last_scan();
SQL
	return $found eq "gpu|2500\ngpu|1"; });
is($found, "gpu|2500\ngpu|1", 'the device answers what comes after them');

finish_test($node);
