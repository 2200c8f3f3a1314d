# Conditions on filter columns are answered by the device, as a plain sort of the matching rows
# answers them: in segments and delta, where rows share a vector, after merges, deletes and VACUUM,
# for every share of the rows that passes, and as far as the executor wants.
use Gpugraph;
use Residency;

my $node = service_node('filters', conf => "gpugraph.itopk_size = 40\n");
make_items($node, 12000, 16);
$node->sql(<<'SQL');
DROP INDEX items_idx;
ALTER TABLE items DROP CONSTRAINT items_pkey;
ALTER TABLE items ADD label text, ADD tags int[];
UPDATE items SET label = 'label ' || id % 50, tags = ARRAY[id % 7, id % 11 + 100];
UPDATE items SET label = NULL WHERE id % 20 = 3;
-- equal rows: nodes of many, with different columns
INSERT INTO items SELECT id + 40000, cat, big, (SELECT val FROM items WHERE id = 7), label, tags
	FROM items WHERE id <= 700;
VACUUM FULL ANALYZE items;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, id, label, tags)
	WITH (seal_rows = 0);
SELECT gpugraph_prewarm('items_idx');
SQL

# what passes: one row in two, ten, a hundred, ..., one, none
my @conditions = (
	'id <= 6000', 'id BETWEEN 100 AND 1300', 'id BETWEEN 100 AND 220', 'id < 13', 'id = 5000',
	'id < 0', "label = 'label 17'", "label IN ('label 1', 'label 2', 'label 49')",
	'label IS NULL', "label IS NOT NULL AND id % 3 = 0", 'tags && ARRAY[3, 105]',
	'tags @> ARRAY[3, 105]', "label = 'label 17' AND id > 6000 AND tags && ARRAY[1, 2, 3]"
);

sub wrong
{
	my ($condition, $limit) = @_;
	return $node->sql(<<"SQL");
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
SET gpugraph.engine = cuda;
CREATE TEMP TABLE a AS SELECT val <-> (SELECT val FROM queries WHERE q = 2) AS d
	FROM items WHERE $condition ORDER BY val <-> (SELECT val FROM queries WHERE q = 2) LIMIT $limit;
SET enable_seqscan = on;
SET enable_sort = on;
SET enable_indexscan = off;
CREATE TEMP TABLE b AS SELECT val <-> (SELECT val FROM queries WHERE q = 2) AS d
	FROM items WHERE $condition ORDER BY 1 LIMIT $limit;
SELECT abs((SELECT count(*) FROM a) - (SELECT count(*) FROM b)) + count(*) FROM
	(SELECT d, row_number() OVER (ORDER BY d) AS i FROM a) x JOIN
	(SELECT d, row_number() OVER (ORDER BY d) AS i FROM b) y USING (i)
	WHERE abs(x.d - y.d) > 1e-6 * y.d;
SQL
}

sub compare_all
{
	my ($when) = @_;
	my ($gpu, $cpu) = answered_by($node);

	for my $condition (@conditions)
	{
		is(wrong($condition, $_), 0, "$when: $condition, $_ rows") for 10, 3000;
	}
	my ($gpu_after, $cpu_after) = answered_by($node);
	cmp_ok($gpu_after - $gpu, '>=', 2 * @conditions, "$when: by the device");
	is($cpu_after - $cpu, 0, "$when: never by the CPU");
	return;
}

compare_all('as built');

$node->sql(<<'SQL');
INSERT INTO items SELECT id + 20000, cat, big, val, label, tags FROM items WHERE id % 3 = 0;
UPDATE items SET id = id - 20000 WHERE id > 20000 AND id % 300 = 1;
SELECT gpugraph_prewarm('items_idx');
SQL
cmp_ok(of_index($node, 'delta_pages'), '>', 16, 'most of the delta is on the device');
compare_all('with a delta');

$node->sql('DELETE FROM items WHERE id % 4 = 1; VACUUM (FREEZE) items');
compare_all('rows deleted');

$node->sql("SELECT gpugraph_merge('items_idx')");
compare_all('merged');
$node->sql("SELECT gpugraph_evict('items_idx'); SELECT gpugraph_prewarm('items_idx')");
compare_all('loaded anew');

# of a query that is far from the rows that share a node
is($node->sql(<<'SQL'), 'gpu|60', 'iterative_scan off: itopk_size rows');
SET enable_seqscan = off;
SET enable_sort = off;
SET gpugraph.engine = cuda;
SET gpugraph.iterative_scan = off;
SET gpugraph.itopk_size = 60;
CREATE TEMP TABLE a AS SELECT id FROM items WHERE id < 8000 ORDER BY val <-> (SELECT val FROM items
	WHERE id < 8000 ORDER BY val <-> (SELECT val FROM items WHERE id = 7) DESC LIMIT 1) LIMIT 1000;
SELECT engine, (SELECT count(*) FROM a) FROM gpugraph_last_scan();
SQL

# what is told of such a scan: rows of all segments and of the delta that match
$node->sql(<<'SQL');
INSERT INTO items SELECT id + 60000, cat, big, val, label, tags FROM items WHERE id < 3000;
SELECT gpugraph_prewarm('items_idx');
SQL
is($node->sql(<<'SQL'), 't|gpu|exact|t', 'matches are told');
SET enable_seqscan = off;
SET enable_sort = off;
SET gpugraph.engine = cuda;
CREATE TEMP TABLE a AS SELECT id FROM items WHERE label = 'label 17'
	ORDER BY val <-> (SELECT val FROM queries WHERE q = 2) LIMIT 10;
SELECT matches = (SELECT count(*) FROM items WHERE label = 'label 17') AND reason IS NULL
	AND lists > 1 AND exact_lists = lists, engine, filter, rows >= 10 FROM gpugraph_last_scan();
SQL

# clients share batches, with equal filters and with others, and have their own answers
{
	my $sql = $node->basedir . '/clients.sql';

	$node->sql(<<'SQL');
CREATE TABLE answers AS SELECT q, f, array(SELECT items.val <-> queries.val FROM items
	WHERE id <= f * 400 ORDER BY 1 LIMIT 10) AS d FROM queries, generate_series(1, 3) f;
ANALYZE answers;
CREATE FUNCTION same(float8[], float8[]) RETURNS boolean LANGUAGE sql
	RETURN cardinality($1) = cardinality($2)
	AND (SELECT bool_and(abs(a - b) <= 1e-6 * b) FROM unnest($1, $2) AS u(a, b));
SQL
	open my $file, '>', $sql or die "$sql: $!";
	print $file <<'SQL';
\set q random(1, 20)
\set f random(1, 3)
WITH found AS MATERIALIZED (SELECT val <-> (SELECT val FROM queries WHERE q = :q) AS d
	FROM items WHERE id <= :f * 400
	ORDER BY val <-> (SELECT val FROM queries WHERE q = :q) LIMIT 10)
SELECT 1 / same(array(SELECT d FROM found ORDER BY 1),
	(SELECT d FROM answers WHERE q = :q AND f = :f))::int;
SQL
	close $file;
	my $queries = of_device($node, 'queries');
	$node->command_ok(
		[ 'env', 'PGOPTIONS=-c enable_seqscan=off -c enable_sort=off -c gpugraph.engine=cuda',
			'pgbench', '-n', '-c', 12, '-t', 100, '-f', $sql, '-h', $node->host, '-p', $node->port,
			'postgres' ],
		'twelve clients: right answers by the device');
	is(of_device($node, 'queries') - $queries, 1200, 'every query is counted');

	my $batches = of_device($node, 'batches');
	my $lists = of_index($node, 'segments') + 1;
	is(answered_together($node, 12, 'SET enable_seqscan = off', 'SET enable_sort = off',
		'SET gpugraph.engine = cuda', 'SET gpugraph.fault = stall',
		'SELECT id FROM items WHERE id <= 400
			ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 10'),
		'', 'twelve clients that wait together are answered');
	my $made = of_device($node, 'batches') - $batches;
	cmp_ok($made, '<', 12 * $lists, "in fewer batches: $made");
}

# Rows of so many bytes that a walk comes first where most of them match. Those near the query are
# the ones that do not.
$node->sql(<<'SQL');
SELECT seed_by('wide');
CREATE TABLE wide AS SELECT id, CASE WHEN id <= 300
		THEN array(SELECT 0.01 * random() FROM generate_series(1, 1000) WHERE id > 0)
		ELSE array(SELECT random() FROM generate_series(1, 1000) WHERE id > 0)
	END::vector(1000) AS val FROM generate_series(1, 6000) id;
CREATE INDEX wide_idx ON wide USING gpugraph (val vector_l2_ops, id) WITH (seal_rows = 0);
SELECT gpugraph_prewarm('wide_idx');
SQL

sub check_wide
{
	my ($when, $from, $rows, $filter) = @_;
	my $query = "(SELECT val FROM wide WHERE id = $from)";
	my $told = "gpu|$filter\n$rows|$rows|0|0\n10|0";

	is($node->sql(<<"SQL"), $told, "$when, from $from");
SET enable_seqscan = off;
SET enable_sort = off;
SET gpugraph.engine = cuda;
SET gpugraph.itopk_size = 2;
CREATE TEMP TABLE a AS SELECT id, val <-> $query AS d, row_number() OVER () AS i
	FROM (SELECT id, val FROM wide WHERE id > 300 ORDER BY val <-> $query) s;
SELECT engine, filter FROM gpugraph_last_scan();
SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE id <= 300),
	count(*) FILTER (WHERE d < before - 1e-6)
	FROM (SELECT id, d, CASE WHEN i <= 10 THEN lag(d) OVER (ORDER BY i) END AS before FROM a) s;
CREATE TEMP TABLE b AS SELECT val <-> $query AS d FROM wide WHERE id > 300
	ORDER BY val <-> $query LIMIT 10;
SET enable_indexscan = off;
SELECT count(*), count(*) FILTER (WHERE abs(x.d - y.d) > 1e-6 * y.d AND $from <= 300) FROM
	(SELECT d, row_number() OVER (ORDER BY d) AS i FROM b) x JOIN
	(SELECT d, row_number() OVER (ORDER BY d) AS i FROM
		(SELECT val <-> $query AS d FROM wide WHERE id > 300 ORDER BY 1 LIMIT 10) s) y USING (i);
SQL
	return;
}

check_wide('wide rows', $_, 5700, 'walk') for 7, 5000;

# How each of eight scans of a session begins.
sub beginnings
{
	my ($from) = @_;
	my $query = "SELECT id FROM wide WHERE id > 300 ORDER BY val <-> " .
		"(SELECT val FROM wide WHERE id = $from) LIMIT 3;\n" .
		"SELECT 'begins: ' || filter FROM gpugraph_last_scan();\n";

	return join ' ', $node->sql("SET enable_seqscan = off;\n" .
		"SET enable_sort = off;\nSET gpugraph.engine = cuda;\nSET gpugraph.itopk_size = 8;\n" .
		$query x 8) =~ /begins: (.*)/g;
}

is(beginnings(5000), join(' ', ('walk') x 8), 'walks that find enough go on');
is(beginnings(7), 'walk exact walk exact exact walk exact exact',
	'walks that find too little are made less and less');
$node->sql(<<'SQL');
INSERT INTO wide SELECT id + 6000, val FROM wide WHERE id % 15 = 1;
SELECT gpugraph_prewarm('wide_idx');
SQL
check_wide('wide rows and a delta', $_, 6100, 'walk, exact') for 7, 5000;

# So few rows are left to the CPU, device or not, and the planner knows that.
$node->sql(<<'SQL');
CREATE TABLE few AS SELECT i AS id, i * 7919 % 1000 AS kept, (SELECT val FROM items WHERE id = i)
	FROM generate_series(1, 1000) i;
CREATE INDEX few_idx ON few USING gpugraph (val vector_l2_ops, kept);
ANALYZE few;
SELECT gpugraph_prewarm('few_idx');
SQL
for my $most (1, 100, 500)
{
	like($node->sql("EXPLAIN SELECT id FROM few WHERE kept < $most " .
		"ORDER BY val <-> (SELECT val FROM few WHERE id = 7) LIMIT 10"),
		qr/Index Scan using few_idx.*Index Cond/s, "few rows, $most in 1000");
}

is(log_lines($node, qr/(PANIC|TRAP|segmentation)/), 0, 'nothing bad is in the log');
finish_test($node);
