# Scans that measure every row: all rows within a distance, and gpugraph.target_recall = 1.  A
# device that has all rows answers them, as the table does.
use Gpugraph;
use Residency;

my $node = service_node('exact', conf => "autovacuum = off\n");
$node->sql(<<'SQL');
SELECT make_data('items', 12000, 64, 2);
ALTER TABLE items ADD kind int;
UPDATE items SET kind = id % 7;
VACUUM FULL items;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, kind)
	WITH (storage = 'float32');
CREATE TABLE queries AS SELECT id AS q, val AS v FROM items WHERE id <= 12;
SELECT gpugraph_prewarm('items_idx');
SQL

# the distance of so many rows from a query
sub radius
{
	my ($n) = @_;

	return $node->sql("SELECT val <-> (SELECT v FROM queries WHERE q = 3) AS d
		FROM items ORDER BY d LIMIT 1 OFFSET $n");
}
my ($near, $r, $far) = map { radius($_) } 3, 500, 5000;
my $third = $node->sql('SELECT v FROM queries WHERE q = 3');

# who has answered the statement, and how
sub answered
{
	my ($sql, $setting) = @_;

	return $node->sql(<<"SQL");
SET enable_seqscan = off;
SET gpugraph.$setting;
$sql \\g /dev/null
SELECT concat_ws(' ', engine, lists = exact_lists) FROM gpugraph_last_scan();
SQL
}

# the answers of the index are those of the table
sub same
{
	my ($sql, $what) = @_;
	my $index = $node->sql("SET enable_seqscan = off;
		SET gpugraph.target_recall = 1; $sql");
	my $table = $node->sql("SET enable_indexscan = off; $sql");

	is($index, $table, $what);
}

my $within = "SELECT count(*), sum(i.id) FROM items i WHERE i.val <-> (SELECT v FROM queries
	WHERE q = 3) < $r";
my $nearest = 'SELECT round((val <-> (SELECT v FROM queries WHERE q = 5))::numeric, 4) FROM items
	ORDER BY val <-> (SELECT v FROM queries WHERE q = 5) LIMIT 500';
my $filtered = "SELECT count(*), sum(i.id) FROM items i WHERE kind = 3 AND i.val <-> (SELECT v
	FROM queries WHERE q = 3) < $far";

sub all_same
{
	my ($when) = @_;

	same($within, "rows within a distance $when");
	same($nearest, "the nearest $when");
	same($filtered, "rows within a distance under a filter $when");
	same("SELECT q, count(*), sum(i.id) FROM queries, items i WHERE i.val <-> v < $r GROUP BY q
		ORDER BY q", "rows within a distance of others $when");
	# the planner looks how many they are
	same("SELECT count(*), sum(i.id) FROM items i WHERE i.val <-> '$third' < $_",
		"rows within $_ of a constant $when") for $near, $r, $far;
	same("SELECT q FROM queries WHERE EXISTS (SELECT FROM items i WHERE i.val <-> v < $near
		AND i.id <> q) ORDER BY q", "rows that have another one near $when");
}

is(answered($within, 'engine = auto'), 'gpu t', 'the device answers');
is(answered($nearest, 'target_recall = 1'), 'gpu t', 'the nearest, too');
is(answered($filtered, 'engine = auto'), 'gpu t', 'and those under a filter');
is(answered($within, 'engine = cpu'), 'cpu t', 'the CPU answers where it is to');
all_same('at first');

$node->sql('DELETE FROM items WHERE id % 5 = 0;
	INSERT INTO items (id, val, kind) SELECT id + 20000, val, kind FROM items WHERE id % 9 = 0');
all_same('with a delta and deleted rows');
$node->sql("VACUUM items; SELECT gpugraph_prewarm('items_idx')");
is(answered($within, 'engine = auto'), 'gpu t', 'the device answers after that');
all_same('after VACUUM');

# all rows, by many lists
same('SELECT count(*), sum(id) FROM items WHERE val <-> (SELECT v FROM queries WHERE q = 3) < 1e6',
	'a distance that has every row');

# a device that has codes alone
$node->sql(<<'SQL');
ALTER SYSTEM SET gpugraph.device_storage = codes;
ALTER SYSTEM SET gpugraph.host_memory = 0;
SELECT pg_reload_conf();
SQL
leave_room($node, 'items_idx', int(of_index($node, 'bytes') * 0.65 / 1048576));
$node->psql('postgres', "SELECT gpugraph_prewarm('items_idx')");
is(of_index($node, 'rowless_segments'), 1, 'a device has codes alone');
is(answered($within, 'engine = cuda'), 'cpu t', 'the CPU measures where a device has codes');
like($node->sql("SET enable_seqscan = off; $within \\g /dev/null
	SELECT reason FROM gpugraph_last_scan()"), qr/^The answer is exact/, 'which is why');
all_same('by codes');

done_testing();
