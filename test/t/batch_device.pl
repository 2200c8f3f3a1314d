# gpugraph_search and gpugraph_knn_graph on a device find what they find on the CPU: of segments,
# of the delta and what the device lacks of it, of equal, dead and updated rows, whatever the heap's
# pages say of visibility.
use Gpugraph;
use Residency;

my $node = service_node('batch_device', conf => <<'CONF');
gpugraph.itopk_size = 20
client_min_messages = warning
gpugraph.merge_workers = 0
CONF

$node->sql(<<'SQL');
CREATE TABLE source AS SELECT i AS id, (SELECT array_agg(sin(i * d) + cos(i * 0.37 + d * d)
	ORDER BY d) FROM generate_series(1, 16) d)::vector(16) AS val FROM generate_series(1, 8000) i;
ALTER TABLE source ADD exact vector(16);
UPDATE source SET exact = val;
-- What differs between the device's answers and the CPU's: 'same' if nothing. Rows whose distances
-- agree to some digits may come in either order.
CREATE FUNCTION compare(sql text, k int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	before bigint := (SELECT queries_gpu FROM gpugraph_stat_index
		WHERE relid = 'items_idx'::regclass);
	queries bigint;
	differ bigint;
BEGIN
	DROP TABLE IF EXISTS d, c;
	PERFORM set_config('gpugraph.engine', 'cuda', true);
	EXECUTE format('CREATE TEMP TABLE d AS %s', sql);
	queries := (SELECT queries_gpu FROM gpugraph_stat_index WHERE relid = 'items_idx'::regclass)
		- before;
	PERFORM set_config('gpugraph.engine', 'cpu', true);
	EXECUTE format('CREATE TEMP TABLE c AS %s', sql);
	SELECT count(*) INTO differ
		FROM (SELECT who, n, distance FROM d) a FULL JOIN c USING (who, n)
		WHERE a.distance IS NULL OR c.distance IS NULL
			OR abs(a.distance - c.distance) > 2e-6 * (1 + abs(c.distance));
	RETURN CASE WHEN queries < (SELECT count(DISTINCT who) FROM d) / 2
		THEN format('%s queries by the device', queries)
		WHEN NOT EXISTS (SELECT FROM c) THEN 'no rows'
		WHEN EXISTS (SELECT FROM d LEFT JOIN items ON items.ctid = d.tid WHERE id IS NULL)
		THEN 'invisible rows'
		-- A GPU walks on rows in half precision.
		WHEN differ > (SELECT count(*) FROM c) * CASE
		WHEN current_setting('gpugraph.service_engine') = 'cpu' THEN 0 ELSE 0.02 END
		THEN format('%s of %s rows differ', differ, (SELECT count(*) FROM c))
		ELSE 'same' END;
END $$;
CREATE FUNCTION compare_search(k int) RETURNS text LANGUAGE sql AS $$
	SELECT compare(sql, k) FROM format('SELECT query AS who, tid, distance,
		row_number() OVER (PARTITION BY query ORDER BY distance) AS n
		FROM gpugraph_search(''items_idx'',
		(SELECT array_agg(val ORDER BY id) FROM source WHERE id %% 40 = 0), %s)', k) sql $$;
CREATE FUNCTION compare_graph(k int) RETURNS text LANGUAGE sql AS $$
	SELECT compare(sql, k) FROM format('SELECT tid AS who, neighbor AS tid, distance,
		row_number() OVER (PARTITION BY tid ORDER BY distance) AS n
		FROM gpugraph_knn_graph(''items_idx'', %s)', k) sql $$;
SQL

sub compare_all
{
	my ($when, $graph) = @_;

	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	for my $k (10, 60)
	{
		is($node->sql("SELECT compare_search($k)"), 'same', "$when: search for $k");
	}
	return unless $graph;
	is($node->sql('SELECT compare_graph(6)'), 'same', "$when: the k-NN graph");
	# without memory for a map of rows
	is($node->sql("SET work_mem = '64kB'; SET hash_mem_multiplier = 1;
		SELECT compare_graph(3)"), 'same', "$when: the k-NN graph in little memory");
	return;
}

for (
	[qw(halfvec halfvec halfvec_cosine_ops float16)],
	[qw(rounded vector vector_l2_ops float16)],
	[qw(vector vector vector_l2_ops float32)])
{
	my ($what, $type, $class, $storage) = @$_;
	my $cast = "::$type(16)";

	$node->sql(<<SQL);
DROP TABLE IF EXISTS items;
CREATE TABLE items (id int, cat int, val $type(16))
	WITH (fillfactor = 50, autovacuum_enabled = off);
INSERT INTO items SELECT id, 0, exact$cast FROM source WHERE id <= 6000;
CREATE INDEX items_idx ON items USING gpugraph (val $class)
	WITH (seal_rows = 0, storage = $storage);
ALTER TABLE source ALTER val TYPE $type(16) USING exact$cast;
SQL
	compare_all("$what, one segment");
	$node->sql('VACUUM items');
	compare_all("$what, all-visible pages");

	# equal rows, some nodes with many; HOT chains; dead rows that make answers short
	$node->sql(<<SQL);
INSERT INTO items SELECT id, 0, val FROM source, generate_series(1, id % 9) WHERE id <= 200;
REINDEX INDEX items_idx;
UPDATE items SET cat = 1 WHERE id % 3 = 0;
DELETE FROM items WHERE id BETWEEN 1000 AND 2500 AND id % 20 <> 0;
SQL
	compare_all("$what, equal, updated and dead rows", 1);
	$node->sql('VACUUM items');
	compare_all("$what, after VACUUM");
	# the redirected line pointers of a page that is all-visible
	cmp_ok($node->sql("SELECT relallvisible FROM pg_class
		WHERE relname = 'items'"), '>', 0, "$what: all-visible pages");

	# a delta of many pages, its last one not on the device, and rows that came after the load
	$node->sql('INSERT INTO items SELECT id, 0, val FROM source WHERE id > 6000');
	compare_all("$what, a delta");
	$node->sql("INSERT INTO items SELECT id, 0, val FROM source WHERE id < 100");
	compare_all("$what, a delta that grows");
	# no generation follows while answers are compared: first all that there is becomes one segment,
	# then VACUUM makes a second one of the delta
	$node->sql('ALTER INDEX items_idx SET (seal_rows = 100)');
	for my $segments (1, 2)
	{
		$node->sql($_) for
			'INSERT INTO items SELECT id, 0, val FROM source WHERE id BETWEEN 100 AND 500',
			'VACUUM items', $segments == 1 ? "SELECT gpugraph_merge('items_idx')" : ();
		is($node->sql("SELECT segments FROM gpugraph_index_info('items_idx')"),
			$segments, "$what: $segments segments");
		compare_all("$what, merged into $segments", $what ne 'halfvec' && $segments == 2);
	}
}

# rows that are stored rounded come by the table's values: with every metric, in every order
for my $metric (qw(l2 ip cosine l1))
{
	$node->sql(<<"SQL");
DROP INDEX items_idx;
CREATE INDEX items_idx ON items USING gpugraph (val vector_${metric}_ops)
	WITH (seal_rows = 0, storage = float16);
INSERT INTO items SELECT id, 0, val FROM source WHERE id < 20;
SELECT gpugraph_prewarm('items_idx');
SQL
	for my $order (qw(strict_order relaxed_order off))
	{
		is($node->sql("SET gpugraph.iterative_scan = $order;
			SELECT compare_search(10)"), 'same', "rounded, $metric, $order");
	}
}
# rows with filter columns that came after the device's copy
$node->sql(<<'SQL');
DROP INDEX items_idx;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat, id) WITH (seal_rows = 0);
SELECT gpugraph_prewarm('items_idx');
INSERT INTO items SELECT id, 0, val FROM source WHERE id BETWEEN 20 AND 100;
SQL
is($node->sql('SELECT compare_search(10)'), 'same',
	'filter columns, and rows that the device lacks');

# gpugraph_last_scan tells of all queries together
sub told
{
	my ($call, $engine) = @_;
	return $node->sql(<<"SQL");
SET gpugraph.engine = $engine;
CREATE TEMP TABLE answers AS SELECT distance FROM $call;
SELECT engine, queries, lists >= queries, rows >= (SELECT count(*) FROM answers)
	FROM gpugraph_last_scan();
SQL
}
my $search = "gpugraph_search('items_idx', (SELECT array_agg(val) FROM source WHERE id <= 50), 3)";
is(told($search, 'cuda'), 'gpu|50|t|t', 'a search by the device is told');
like(told("gpugraph_knn_graph('items_idx', 3)", 'cuda'), qr/^gpu(, cpu)?\|\d{4,}\|t\|t$/,
	'a k-NN graph by the device is told');
is(told($search, 'cpu'), 'cpu|50|t|t', 'a search by the CPU is told');

# an index that is not on the device is searched by the CPU, unless that is an error
$node->sql("SELECT gpugraph_evict('items_idx')");
is($node->sql("SELECT count(*) FROM gpugraph_search('items_idx',
	(SELECT array_agg(val) FROM source WHERE id <= 50), 3)"), 150, 'not on the device: the CPU');

# a device that fails in between
$node->sql("SELECT gpugraph_prewarm('items_idx')");
is($node->sql("SET gpugraph.fault = 'ring_full';
	SELECT count(*) FROM gpugraph_search('items_idx',
	(SELECT array_agg(val) FROM source WHERE id <= 50), 3)"), 150,
	'a device that is busy: the CPU');

# cancel
my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '50ms';
	SELECT count(*) FROM gpugraph_search('items_idx',
	(SELECT array_agg(val) FROM source, generate_series(1, 20)), 500)");
like($err, qr/statement timeout/, 'a search is cancelled');
($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = '50ms';
	SELECT count(*) FROM gpugraph_knn_graph('items_idx', 100)");
like($err, qr/statement timeout/, 'a k-NN graph is cancelled');
# the CPU that plays the device is busy with what was given up, and has the slot until it is through
ok_in_time(sub { ($rc, $out, $err) = $node->psql('postgres', 'SELECT compare_search(10)');
	return $out eq 'same' }, 'and the next search works');

done_testing();
