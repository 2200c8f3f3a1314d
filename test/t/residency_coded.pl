# A device serves an index that has codes and no vectors: it walks by the codes that lie on the
# index's pages, and the scan reads the table and puts rows in order, as without a device. Filters
# are the CPU's. Built, loaded, merged and refreshed, on a standby, too.
use Gpugraph;
use Residency;

my $node = service_node('coded', init => { allows_streaming => 1 });
make_items($node, 12000, 64);
$node->sql(<<'SQL');
DROP INDEX items_idx;
ALTER TABLE items SET (parallel_workers = 2);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat)
	WITH (storage = int4, seal_rows = 0);
SQL

my $missed = ($ENV{GG_SERVICE_ENGINE} || 'cpu') eq 'cuda' ? 0.025 : 0.005;
my $fast = 'SET enable_seqscan = off; SET enable_sort = off';
my $query = 'ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)';

# Rows of all queries, nearest first, by the device or by the CPU.
sub rows_by
{
	my ($on, $engine, $rel) = @_;
	$rel ||= 'items';

	return $on->sql(<<"SQL");
$fast;
SET gpugraph.engine = $engine;
SELECT q, id FROM queries,
	LATERAL (SELECT id, $rel.val <-> queries.val AS d FROM $rel
		ORDER BY $rel.val <-> queries.val LIMIT 10) s ORDER BY q, d, id;
SQL
}

# The device answers, and as rightly as the CPU does; so it does many queries in one call. Walks of
# a GPU go other ways: of 200 rows it missed four more once in eight runs.
sub answers_rightly
{
	my ($what, $rel) = @_;
	$rel ||= 'items';
	my ($recall, $gpu) = split / /, truth($node, $rel);
	my $by_cpu = $node->sql(
		"SET gpugraph.engine = cpu; SELECT recall('$rel', '<->', 10)") - $missed;

	cmp_ok($recall, '>=', $by_cpu, "$what: recall");
	is($gpu, 20, "$what: by the device");
	cmp_ok($node->sql(<<"SQL"), '>=', $by_cpu, "$what: many queries in one call");
SELECT count(*) / 200.0 FROM gpugraph_search('${rel}_idx',
	(SELECT array_agg(val ORDER BY q) FROM queries), 10) s
JOIN queries ON q = s.query
JOIN LATERAL (SELECT ctid, $rel.val <-> queries.val AS d FROM $rel ORDER BY d LIMIT 10) t
	ON t.ctid = s.tid AND abs(t.d - s.distance) < 1e-6 * d
SQL
	return;
}

is(form_of($node), 'ready 1 0 1 0 device', 'a builder hands it over');
answers_rightly('built');
my $built = rows_by($node, 'cuda');

$node->sql("SELECT gpugraph_evict('items_idx')");
wait_for_state($node, 'absent');
$node->sql("SELECT gpugraph_prewarm('items_idx')");
is(form_of($node), 'ready 1 0 1 0 device', 'loaded from its pages');
is(rows_by($node, 'cuda'), $built, 'codes of pages are those that the device made');
is(rows_by($node, 'cpu'), $built, 'and the CPU finds the same rows');
is($node->sql("$fast;
	SET gpugraph.rerank_size = 47; SELECT id FROM items $query LIMIT 10 \\g /dev/null\n" .
	'SELECT engine, widenings, reranked FROM gpugraph_last_scan()'), 'gpu|0|47',
	'one list has what the table is read for');
# many queries in one call read the rows that a scan of each reads, and answer alike; the scan ends
# where bounds leave no doubt, before the 31 rows and more that it might read
for my $case ([ 'iterative_scan = strict_order', 3, 20 * 30 ],
	[ 'iterative_scan = strict_order', 10, 20 * 47 ], [ 'rerank_size = 40', 10, 20 * 40 ])
{
	my ($setting, $limit, $most) = @$case;
	my $answers = $node->sql(<<"SQL");
SET gpugraph.$setting; $fast;
CREATE TEMP TABLE scans (q int, id bigint, reranked bigint);
DO \$\$ BEGIN FOR i IN 1 .. 20 LOOP
	INSERT INTO scans SELECT i, id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = i)
		LIMIT $limit;
	INSERT INTO scans SELECT NULL, NULL, reranked FROM gpugraph_last_scan();
END LOOP; END \$\$;
SELECT sum(reranked) FROM scans;
SELECT count(*) FROM (SELECT q, id FROM scans WHERE id IS NOT NULL EXCEPT
	SELECT s.query, items.id FROM gpugraph_search('items_idx',
		(SELECT array_agg(val ORDER BY q) FROM queries), $limit) s
		JOIN items ON items.ctid = s.tid) t;
SELECT engine, queries, reranked FROM gpugraph_last_scan();
SQL
	my ($reads) = split /\n/, $answers;

	is($answers, "$reads\n0\ngpu|20|$reads", "many queries in one call, $setting, LIMIT $limit");
	cmp_ok($reads, '<=', $most, "$setting, LIMIT $limit: rows that are read");
}
for my $order (qw(strict_order relaxed_order off))
{
	is($node->sql("SET gpugraph.iterative_scan = $order; $fast;
		SELECT count(*), count(*) FILTER (WHERE d < before) > 2
		FROM (SELECT d, lag(d) OVER () AS before
			FROM (SELECT val <-> (SELECT val FROM queries WHERE q = 1) AS d
				FROM items $query LIMIT 100) s) t"), '100|f', "rows in order: $order");
}

# ---- what measures all rows
is($node->sql("$fast; SELECT count(*) FROM (SELECT id FROM items WHERE cat = 3
	$query LIMIT 10) s \\g /dev/null\nSELECT engine, reason FROM gpugraph_last_scan()"),
	'cpu|The index, or the GPU\'s copy of it, has codes and no vectors.', 'a filter is the CPU\'s');
like(error_of($node, "SET gpugraph.engine = cuda; $fast;
	SELECT count(*) FROM (SELECT id FROM items WHERE cat = 3 $query LIMIT 10) s"),
	qr/has codes and no vectors/, 'engine cuda says so');
my $many = "SELECT id FROM items WHERE cat < 25 $query LIMIT 10";
is($node->sql("$fast; $many \\g /dev/null
	SELECT engine FROM gpugraph_last_scan()"), 'gpu', 'but one that many rows pass is walked');
is($node->sql("$fast; $many"),
	$node->sql("$fast; SET gpugraph.engine = cpu; $many"), 'and finds as much');

# ---- rows that come and go
rows_come_and_go($node);
answers_rightly('rows of the delta, and dead ones');
$node->sql("SELECT gpugraph_merge('items_idx')");
is(form_of($node), 'ready 1 0 1 0 device', 'a merge brings its segment');
answers_rightly('merged');
my $merged = rows_by($node, 'cuda');
$node->sql("SELECT gpugraph_evict('items_idx')");
wait_for_state($node, 'absent');
$node->sql("SELECT gpugraph_prewarm('items_idx')");
is(rows_by($node, 'cuda'), $merged, 'the merge brought the codes that it wrote');
index_is_complete($node, 'merged');

# ---- a large segment and a small one, which is measured by codes
$node->sql(<<'SQL');
CREATE TABLE part AS SELECT id, cat, val FROM items WHERE id % 2 = 0;
CREATE INDEX part_idx ON part USING gpugraph (val vector_l2_ops)
	WITH (storage = int8, seal_rows = 0, segment_rows = 4500);
SELECT gpugraph_prewarm('part_idx');
SQL
answers_rightly('segments', 'part');

# ---- a standby has a device of its own
my $standby = start_standby($node, 'coded_standby');
$node->wait_for_catchup($standby);
wait_for(sub { of_device($standby, 'state') eq 'up' });
$standby->sql("SELECT gpugraph_prewarm('items_idx')");
is(state_of($standby), 'ready', 'on a standby');
is(rows_by($standby, 'cuda'), $merged, 'with the same answers');
finish_test($standby, $node);
