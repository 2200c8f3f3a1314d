# An index comes onto the device when it is queried, is answered from there, follows inserts and
# VACUUM without being loaded anew, and goes when it is told to.
use Gpugraph;
use Residency;

my $node = service_node('load');
# what is tested here is how a delta comes to the device, so it stays one
unserved {
	make_items($node, 5000, 16);
	$node->sql('ALTER INDEX items_idx SET (seal_rows = 0)');
};

# ---- the first query is the CPU's, and asks for the load
is(state_of($node), 'absent', 'nothing is loaded that nobody asked for');
is($node->sql('SELECT count(*)
	FROM (SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 3) s'),
	3, 'a first query is answered');
is(of_index($node, 'cpu_loading'), 1, 'by the CPU, since the index is being loaded');
is(wait_for_state($node, 'ready'), 'ready', 'it comes onto the device');
truth_by_device($node, 'loaded');
is(of_device($node, "loads || ' ' || resident_indexes || ' ' || evictions"), '1 1 0', 'one load');
is(of_index($node, 'bytes'), of_device($node, 'resident_bytes'),
	'the device holds this index and nothing else');
is(of_index($node, 'rows_returned > 200'), 't', 'rows are counted');
is(of_index($node, 'load_seconds > 0 AND loaded_at > now() - interval \'1 minute\''), 't',
	'so is the time that it took');
is(log_lines($node, qr/LOG: .*loaded index "items_idx"/), 1, 'the log says so once');

# ---- evict and prewarm
is($node->sql("SELECT gpugraph_evict('items_idx')"), 't', 'evicted');
is(state_of($node), 'absent', 'it is gone');
is(of_device($node, "resident_bytes || ' ' || resident_indexes || ' ' || evictions"), '0 0 1',
	'and so is its memory');
is($node->sql("SELECT gpugraph_evict('items_idx')"), 'f', 'there is nothing more to evict');
my $bytes = $node->sql("SELECT gpugraph_prewarm('items_idx')");
is($bytes, of_index($node, 'bytes'), 'prewarm returns the size');
is($node->sql("SELECT gpugraph_prewarm('items_idx')"), $bytes,
	'and does nothing where nothing is to be done');
is(of_device($node, 'loads'), 2, 'two loads in all');
truth_by_device($node, 'prewarmed');

# ---- gpugraph.engine = cuda waits for a load
$node->sql("SELECT gpugraph_evict('items_idx')");
my ($before) = answered_by($node);
is($node->sql("SET gpugraph.engine = cuda;
	SELECT count(*)
	FROM (SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 3) s"),
	3, 'a query that must not be the CPU\'s waits');
is((answered_by($node))[0], $before + 1, 'and is the device\'s');

# ---- rows arrive: those not on the device are found at once, and later are there, too
my $loaded = of_index($node, 'loaded_at');
my $serials = of_index($node, 'refreshes');
$node->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id <= 3000');
is(truth($node) =~ /^1\.0000/ ? 'yes' : 'no', 'yes', 'rows just inserted are found');
ok_in_time(
		sub {
			$node->sql("SELECT recall('items', '<->', 1)");
			return of_index($node, 'refreshes > 0 AND delta_pages >= 20') eq 't';
		},
	'the device gets them');
truth_by_device($node, 'delta on the device');
is(of_index($node, 'loaded_at'), $loaded, 'without a new load of the rest');
is(of_device($node, 'loads'), 3, 'no other load');
index_is_complete($node, 'delta on the device');

# ---- VACUUM clears rows of segment and delta
$node->sql('DELETE FROM items WHERE id % 3 = 0');
is(truth($node) =~ /^1\.0000/ ? 'yes' : 'no', 'yes', 'deleted rows are not returned');
my $refreshes = of_index($node, 'refreshes');
$node->sql('VACUUM (FREEZE) items');
$node->sql("SELECT gpugraph_prewarm('items_idx')");
cmp_ok(of_index($node, 'refreshes'), '>', $refreshes, 'the delta was read again after VACUUM');
truth_by_device($node, 'vacuumed');
$node->sql('INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id <= 1000');
is(truth($node) =~ /^1\.0000/ ? 'yes' : 'no', 'yes',
	'heap slots that are used again bring no stale row');

# ---- a new start of the delta is a new generation with the same segments
my $generation = of_index($node, 'generation');
$node->sql('DELETE FROM items WHERE id > 10000; VACUUM (FREEZE) items');
$node->sql("SELECT gpugraph_prewarm('items_idx')");
cmp_ok(of_index($node, 'generation'), '>', $generation, 'the copy is of the new generation');
is(of_device($node, 'loads'), 3, 'its segments were kept');
is(of_index($node, 'loaded_at'), $loaded, 'the first load is still the last');
truth_by_device($node, 'a new generation');
index_is_complete($node, 'in the end');

# ---- an empty table, one too small, one not indexed by us
$node->sql('CREATE TABLE none (val vector(3)); CREATE INDEX none_idx ON none USING gpugraph (val)');
is($node->sql("SELECT gpugraph_prewarm('none_idx')"), 0,
	'there is nothing to bring of an empty index');
like(error_of($node, "SELECT gpugraph_prewarm('items_pkey')"),
	qr/is not a gpugraph index/, 'no other index');
like(error_of($node,
	"BEGIN; REINDEX INDEX items_idx; SELECT gpugraph_prewarm('items_idx'); COMMIT"),
	qr/can only be read by this session/, 'no index that is not committed');
like(error_of($node,
	"CREATE TEMP TABLE t AS SELECT * FROM items; CREATE INDEX t_idx ON t USING gpugraph (val);
	SELECT gpugraph_prewarm('t_idx')"),
	qr/can only be read by this session/, 'no temporary index');

# ---- who may
$node->sql('CREATE ROLE anybody; CREATE ROLE watcher; GRANT pg_monitor TO watcher');
for my $call ("gpugraph_prewarm('items_idx')", "gpugraph_evict('items_idx')")
{
	like(error_of($node, "SET ROLE anybody; SELECT $call"), qr/must be owner/,
		"$call is not for anybody");
}
like(error_of($node, 'SET ROLE anybody; SELECT gpugraph_stat_reset()'),
	qr/permission denied/, 'nor is the reset');
for my $view (qw(gpugraph_stat_device gpugraph_stat_index))
{
	like(error_of($node, "SET ROLE anybody; SELECT * FROM $view"),
		qr/permission denied/, "$view is not for anybody");
	is(($node->psql('postgres', "SET ROLE watcher; SELECT * FROM $view"))[0], 0,
		"$view is for pg_monitor");
}

# ---- reset
$node->sql('SELECT gpugraph_stat_reset()');
is(of_device($node,
	"concat_ws(' ', queries, loads, batch_sizes,
	(stats_reset > now() - interval '1 minute')::text)"),
	'0 0 {} true', 'the counters of the device are zero');
is(of_index($node, "queries_gpu || ' ' || state"), '0 ready',
	'those of the index, too, and it stays where it is');
truth_by_device($node, 'after the reset');
is(of_index($node, 'queries_gpu'), 20, 'counting goes on');

finish_test($node);
