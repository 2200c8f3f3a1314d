# A device that has no room for an index's rows, in its own memory or in the host's, holds codes
# alone: it walks by them, and the backend measures what it found by the index's pages. Answers are
# those of full rows. Long scans and small segments are the CPU's.
use Gpugraph;
use Residency;

my $node = service_node('rowless', conf => <<'CONF');
gpugraph.device_storage = codes
gpugraph.host_memory = 0
CONF

# No device memory for rows beside codes.
sub load_without_rows
{
	return load_within($node, 'items_idx', of_index($node, 'bytes') * 0.7 / 1048576);
}

sub finds_many { cmp_ok(found_by_search($node), '>=', 197, "$_[0]: many queries in one call") }

# ---- one segment
make_items($node, 12000, 64);
$node->sql(<<'SQL');
ALTER INDEX items_idx SET (seal_rows = 0);
SELECT gpugraph_prewarm('items_idx');
SQL
is(form_of($node), 'ready 1 0 0 0 device', 'room for rows beside codes');
is(load_without_rows(), 'ready 1 0 1 0 device', 'codes alone');
truth_by_codes($node, 'codes alone');
finds_many('codes alone');

# all plans, and what they tell
my $fast = 'SET enable_seqscan = off; SET enable_sort = off';
my $query = 'ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)';

is(last_scan($node, "SELECT id FROM items $query LIMIT 10", 'engine, reranked'), 'gpu|74',
	'rows that the backend measures are told');
is(last_scan($node, "SET gpugraph.rerank_size = 100; SELECT id FROM items $query LIMIT 10",
	'reranked'),
	'100', 'as many as the setting says');
my $third = "SELECT count(*), sum(id) FROM (SELECT id FROM items WHERE id % 3 = 0 $query
	LIMIT 10) s";
is($node->sql("$fast; $third"),
	$node->sql("SET enable_indexscan = off; $third"), 'a row in three passes');
is(last_scan($node, "SELECT id FROM items $query LIMIT 3000", 'engine'), 'cpu',
	'a long scan is the CPU\'s');
# Two float32 sums, the engine's and pgvector's, add 64 squares in their own orders: a distance is
# off by (64 + 32) 2^-25 of it at most in each (src/engine/rules/codes.h), and two distances by four
# times that.  Estimates from codes are off by more than 1e-3.
is($node->sql(<<"SQL"), '3000|t|t', 'and finds what is near');
$fast;
SELECT count(*), bool_and(d >= before * (1 - 4 * 96 * 2 ^ -25)),
	count(*) FILTER (WHERE d <= far) > 2990
	FROM (SELECT d, lag(d, 1, d) OVER (ORDER BY n) AS before,
		(SELECT percentile_disc(0.25) WITHIN GROUP (ORDER BY items.val <-> queries.val)
			FROM items, queries WHERE q = 1) AS far
		FROM (SELECT row_number() OVER () AS n, d FROM (SELECT
			val <-> (SELECT val FROM queries WHERE q = 1) AS d FROM items $query LIMIT 3000) s) r) t
SQL
is(last_scan($node, "SELECT id FROM items $query", 'engine, rows'), 'gpu|12000',
	'without LIMIT it begins with the device and ends with the CPU');
like(error_of($node,
	"SET gpugraph.engine = cuda; $fast; SELECT count(*) FROM (SELECT id FROM items $query) s"),
	qr/has codes and no vectors/, 'engine cuda says what is the CPU\'s');

# ---- rows that come and go
rows_come_and_go($node);
truth_by_codes($node, 'rows of the delta beside codes');
$node->sql("SELECT gpugraph_merge('items_idx')");
$node->sql("SELECT gpugraph_prewarm('items_idx')");
is(form_of($node), 'ready 1 0 1 0 device', 'a merged segment has codes alone, too');
truth_by_codes($node, 'after a merge');
finds_many('after a merge');

$node->sql("SELECT gpugraph_evict('items_idx'); REINDEX INDEX items_idx");
is(form_of($node), 'ready 1 0 1 0 device', 'and one that its builder hands over');
truth_by_codes($node, 'after a build');

# chunks end amid rows, and come in any order
my $answers = answers($node);
$node->sql("SELECT gpugraph_evict('items_idx')");
wait_for_state($node, 'absent');
$node->sql("SET gpugraph.fault = load_readers; SELECT gpugraph_prewarm('items_idx')");
is(form_of($node), 'ready 1 0 1 0 device', 'loaded by several readers, by two pages at a time');
is(answers($node), $answers, 'and the same answers');

# ---- rows whose bytes lie on two pages, several segments, a filter column
$node->sql('ALTER SYSTEM RESET gpugraph.device_memory');
$node->sql('DROP TABLE items, queries; SELECT pg_reload_conf()');
make_items($node, 6000, 100);
$node->sql(<<'SQL');
DROP INDEX items_idx;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat)
	WITH (seal_rows = 0, segment_rows = 2500);
SELECT gpugraph_prewarm('items_idx');
SQL
is(load_without_rows(), 'ready 3 0 3 0 device', 'segments with codes alone');
is($node->sql("SELECT recall('items', '<->', 10)"), '1.0000', 'small segments are measured here');
is($node->sql('SET gpugraph.itopk_size = 64;
	SELECT recall(\'items\', \'<->\', 10)'), '1.0000', 'and larger ones walked');
is(last_scan($node, "SELECT id FROM items WHERE cat = 3 $query LIMIT 10",
	"engine || ' ' || filter"),
	'gpu exact', 'a filter that few rows pass is the device\'s, too: residency_bounds.pl');

# a filter that many rows pass: the device walks, and of what it found the rows that match are
# measured here
my $many = "SELECT count(*), sum(id) FROM (SELECT id FROM items WHERE cat < 25 $query LIMIT 10) s";
is(last_scan($node, "SET gpugraph.itopk_size = 64; $many", 'engine, reranked'), 'gpu|141',
	'a filter that many rows pass is walked');
for my $case ([ 10, 200 ], [ 400, 7980 ])
{
	my ($limit, $least) = @$case;
	my $sql = "SELECT q, id FROM queries, LATERAL (SELECT id FROM items WHERE cat < 25
		ORDER BY (items.val <-> queries.val) %s LIMIT $limit) s";

	cmp_ok($node->sql("SET gpugraph.itopk_size = 64; $fast;
		SELECT count(*) FROM (" . sprintf("$sql INTERSECT ", '') . sprintf($sql, '+ 0') . ') t'),
		'>=', $least, "LIMIT $limit");
}

# The planner knows that.  On the CPU a walk without a filter costs less than one with it.
$node->sql(<<'SQL');
ALTER INDEX items_idx RESET (segment_rows);
REINDEX INDEX items_idx;
SET gpugraph.engine = cpu;
CREATE INDEX plain ON items USING gpugraph (val vector_l2_ops);
SQL
is(form_of($node), 'ready 1 0 1 0 device', 'one segment with codes alone');

sub plan_of
{
	my ($share, $settings) = @_;
	my $filter = 'cat < ' . $share * 50;

	return $node->sql("SET gpugraph.itopk_size = 64; $settings;
		EXPLAIN (COSTS off) SELECT id FROM items WHERE $filter $query LIMIT 10");
}

like(plan_of(0.5, ''), qr/using items_idx/, 'the device is planned for filters that it walks');
like(plan_of(0.5, 'SET gpugraph.engine = cpu'), qr/using plain/, 'and not where the CPU answers');
finish_test($node);
