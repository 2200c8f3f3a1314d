# A device that has no room for an index's rows holds codes of them, and the rows lie in the host's
# memory: queries find what they found before, filters and long scans included, by the device alone.
use Gpugraph;
use Residency;

my $node = service_node('codes');
make_items($node, 12000, 64);
$node->sql(<<'SQL');
ALTER INDEX items_idx SET (seal_rows = 0);
SELECT gpugraph_prewarm('items_idx');
SQL

# Load the index anew under these settings.
sub loaded_with
{
	my (%settings) = @_;

	$node->sql("ALTER SYSTEM SET gpugraph.$_ = '$settings{$_}'") for sort keys %settings;
	$node->sql('SELECT gpugraph_evict(\'items_idx\'), pg_reload_conf()');
	wait_for_state($node, 'absent');
	$node->psql('postgres', "SELECT gpugraph_prewarm('items_idx')");
	return form_of($node) || state_of($node);
}

# The same as the plan without the index, in every way that a device is asked.
sub answers_rightly
{
	my ($what) = @_;
	my $near = 'ORDER BY items.val <-> queries.val';
	my $sum = <<"SQL";
SELECT count(*), sum(id)::numeric FROM queries, LATERAL (SELECT id FROM items $near LIMIT 3000) s
SQL
	my $third = <<"SQL";
SELECT q, id FROM queries, LATERAL (SELECT id FROM items WHERE id % 3 = 0 $near LIMIT 10) s
SQL
	my $exact = 'SET enable_indexscan = off;';
	my $fast = 'SET enable_seqscan = off; SET enable_sort = off; SET gpugraph.engine = cuda;';

	$what eq 'full rows' ? truth_by_device($node, $what) : truth_by_codes($node, $what);
	is($node->sql("$fast $sum"), $node->sql("$exact $sum"), "$what: 3,000 rows");

	# a walk by codes, which differ by index (their seed is random), may pass over a row
	my %found = map { $_ => 1 } split /\n/, $node->sql("$fast $third");
	my @nearest = split /\n/, $node->sql("$exact $third");
	my $missed = grep { !$found{$_} } @nearest;
	is(@nearest, keys %found, "$what: as many rows where id % 3 = 0");
	cmp_ok($missed, '<=', 2, "$what: of 200 rows where id % 3 = 0, at most 2 are not the nearest");
	cmp_ok(found_by_search($node), '>=', 198, "$what: many queries in one call");
	return;
}

# a GPU has a copy in half precision and norms beside full rows, and one of entry points (3 sqrt(n)
# of 160 bytes) beside codes
my $gpu = ($ENV{GG_SERVICE_ENGINE} || 'cpu') eq 'cuda';
my $code = 48;				# 64 dimensions in 4 bits, and a head, up to a multiple of 16

# README's formulas (Capacity), 64 dimensions at degree 32: entry points take little more.
sub takes
{
	my ($what, $of_row, $of_host) = @_;
	my ($bytes, $host) = split / /, of_index($node, "bytes || ' ' || host_bytes");
	my $copies = $gpu && $what ne 'full rows' ? 329 * 160 : 0;
	my $less = ($bytes - $copies - 12000 * ($of_row + 32 * 4 + 8)) / $bytes;

	cmp_ok(abs($less - 0.02), '<=', 0.02, "$what: $bytes bytes, as the formula says");
	is($host, 12000 * $of_host, "$what: bytes of the host");
	return;
}

# ---- full rows
takes('full rows', 64 * 4 + ($gpu ? 64 * 2 + 4 : 0), 0);
is(form_of($node), 'ready 0 0 0 0 device', 'full rows');
answers_rightly('full rows');
is($node->sql('SELECT count(*) FROM items'), '12000', 'the table has its rows');

# ---- codes beside rows, where there is room
is(loaded_with(device_storage => 'codes', host_memory => '1GB'), 'ready 1 0 0 0 device',
	'codes, and rows beside them');
takes('codes and rows', 64 * 4 + $code, 0);
answers_rightly('codes and rows');
for my $size (40, 100)
{
	is($node->sql(<<"SQL"), $size, "$size rows are measured again");
SET enable_seqscan = off;
SET gpugraph.rerank_size = $size;
SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 10 \\g /dev/null
SELECT reranked FROM gpugraph_last_scan();
SQL
}

# ---- less memory than rows take
{
	# rows in half precision would take 3.6 MB
	is(loaded_with(device_storage => 'auto', device_memory => '3MB'), 'ready 1 0 0 0 host',
		'no room for rows: codes, and rows in the memory of the host');
	takes('rows of the host', $code, 64 * 4);
	answers_rightly('rows of the host');

	rows_come_and_go($node);
	$node->sql("SELECT gpugraph_merge('items_idx'); SELECT gpugraph_prewarm('items_idx')");
	is(form_of($node), 'ready 1 0 0 0 host', 'merged rows have codes, too');
	answers_rightly('after a merge');

	is(loaded_with(host_memory => '0'), 'ready 1 0 1 0 device',
		'no memory of the host: codes alone');
	is(loaded_with(host_memory => '1GB', device_storage => 'full'), 'failed',
		'full rows have no room');
}

# ---- memory that cannot be pinned
$node->sql('ALTER SYSTEM SET gpugraph.device_storage = auto');
$node->sql("SELECT gpugraph_evict('items_idx'), pg_reload_conf()");
wait_for_state($node, 'absent');
$node->sql("SET gpugraph.fault = host_memory; SELECT gpugraph_prewarm('items_idx')");
is(form_of($node), 'ready 1 0 1 0 device', 'no memory can be pinned: codes alone');
truth_by_codes($node, 'no memory can be pinned');

done_testing();
