# The delta of an index that is on a device grows beyond the room that is there for it. The resident
# gives up segments, and has the rows of today: it is not left as it was until it is loaded anew.
use Gpugraph;
use Residency;

# always the CPU engine, whose sizes are the same everywhere
my $node = service_node('delta', conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.merge_workers = 0
gpugraph.device_memory = 5MB
CONF

unserved {
	$node->sql(<<'SQL');
SELECT make_data('few', 2500, 32, 40);
CREATE TABLE items AS SELECT row_number() OVER ()::int AS id, a.cat, a.big, a.val + b.val AS val
	FROM few a, few b WHERE a.id <= 2400 AND b.id <= 10;
SELECT make_queries('items', 20);
SET max_parallel_maintenance_workers = 0;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (seal_rows = 0, segment_rows = 4000);
SQL
};
sub sql { return $node->sql($_[0]) }

# Rows go to the delta; queries ask for a refresh until the device has all of its full pages.
my $rows = 50000;
sub grow
{
	my ($n) = @_;

	sql("INSERT INTO items SELECT $rows + row_number() OVER (), cat, big, val
		FROM items WHERE id <= $n");
	$rows += $n;
	my $pages = sql("SELECT delta_bytes / 8192 - 1 FROM gpugraph_index_info('items_idx')");
	return defined wait_for(sub {
			sql('SET enable_seqscan = off; SELECT id FROM items
				ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 1');
			return of_index($node, 'delta_pages') >= $pages;
		});
}

sql('INSERT INTO items SELECT 40000 + id, cat, big, val FROM items WHERE id <= 2000');
sql("SELECT gpugraph_prewarm('items_idx')");
is(of_index($node, 'state'), 'partial', 'the device has a part of it');
my $missing = of_index($node, 'missing_segments');
my $loads = of_device($node, 'loads');

for my $step (1 .. 8)
{
	ok(grow(1000 + 100 * $step), "step $step: the device has the new rows");
	is(truth($node), '1.0000 20 0', "step $step: both answer, and rightly");
}
my $less = of_index($node, 'missing_segments');
cmp_ok($less, '>', $missing, "segments went: $missing were missing, then $less");
is(of_device($node, "loads || ' ' || failed_loads"), "$loads 0",
	'no refresh failed, and nothing was loaded anew');
cmp_ok(of_device($node, 'resident_bytes'), '<=', 5 << 20, 'the limit is kept');
cmp_ok(log_lines($node, qr/LOG: .*items_idx.* of 1 segments?, makes room for its delta/), '>', 0,
	'the log says so');
index_is_complete($node, 'grown');

# ---- with room for all again, what went comes back
reload_with($node, 'gpugraph.device_memory = 20MB');
ok_in_time(sub { of_index($node, 'state') eq 'ready' }, 'with room all comes back');
is(of_device($node, 'loads'), $loads, 'without a new load');

# ---- an index that was there as a whole
reload_with($node, 'gpugraph.device_memory = '
	. (int(of_index($node, 'bytes') / 1048576) + 2) . 'MB');
is(of_index($node, 'missing_segments'), 0, 'just enough room for the whole');
ok(grow(3000), 'it has the new rows');
cmp_ok(of_index($node, 'missing_segments'), '>', 0, 'and is there in part');
is(truth($node), '1.0000 20 0', 'both answer, and rightly');

# ---- the delta alone is too large: an error, as ever
reload_with($node, 'gpugraph.device_memory = 2MB');
like(error_of($node, "SET statement_timeout = '60s';
	SELECT gpugraph_prewarm('items_idx')"), qr/it needs .* of device memory/,
	'no room even for the delta');
like(truth($node), qr/^1\.0000 /, 'answers are right');

finish_test($node);
