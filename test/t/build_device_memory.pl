# A build keeps to what the device holds, as gpugraph.device_memory says: a GPU by groups of rows,
# the CPU that plays it by segments. Only where these would be too many it goes to the CPU.
use Gpugraph;
use Residency;

my $played = ($ENV{GG_SERVICE_ENGINE} || 'cpu') eq 'cpu';
$ENV{GPUGRAPH_SAME_GPU} = 1 unless $played;
my $rows = 80000;
my $node = service_node('memory',
	conf => "max_parallel_maintenance_workers = 2\nmin_parallel_table_scan_size = 0\n"
	. "maintenance_work_mem = 1GB\ngpugraph.merge_workers = 0\n");

# sums are made faster than rows
$node->sql(<<SQL);
SELECT make_data('items', 1000, 64, 40);
INSERT INTO items SELECT 1000 + row_number() OVER (), a.cat, a.big, a.val + b.val
	FROM items a, items b WHERE b.id < $rows / 1000;
SELECT make_queries('items', 40);
VACUUM ANALYZE items;
SQL
my $create = 'CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)';

# where it matters how many rows are expected, and not how many there are
$node->sql("CREATE TABLE few AS SELECT * FROM items WHERE id <= $rows / 10");
$node->sql('VACUUM ANALYZE few');
my $create_few = 'CREATE INDEX few_idx ON few USING gpugraph (val vector_l2_ops)';
my $segments = "SELECT segments FROM gpugraph_index_info('items_idx')";
my $segments_of_few = $segments =~ s/items/few/r;
my $recall = "SELECT recall('items', '<->')";
# rows lie in 1,600 small clusters: a walk may miss one, and with it all rows of one of 40 queries
my $lost = 0.03;

sub device_memory
{
	my ($size) = @_;

	reload_with($node, "gpugraph.device_memory = $size");
	wait_for(sub { $node->sql('SHOW gpugraph.device_memory') eq $size });
	return;
}

sub build
{
	my ($what, $sql) = @_;
	my ($rc, $out, $err) =
		$node->psql('postgres',
			"DROP INDEX IF EXISTS items_idx, few_idx; SET client_min_messages = debug1; $sql");

	is($rc, 0, "$what: built") or diag $err;
	return $err;
}

my $err = build('no limit', $create);
is($node->sql($segments), '1', 'no limit: one segment');
unlike($err, qr/NOTICE:  gpugraph/, 'no limit: nothing is announced');
my $best = $node->sql($recall);

# ---- one graph, or segments of a size that the device holds; less than 64 MB is taken for that
device_memory('1MB');
for my $workers (0, 2)
{
	my $what = "$workers workers";

	$err = build($what, "SET max_parallel_maintenance_workers = $workers; $create");
	index_is_complete($node, $what);
	cmp_ok($node->sql($recall), '>=', $best - $lost, "$what: recall");
	unlike($err, qr/built on the CPU|maintenance_work_mem/, "$what: on the device");
	if (!$played)
	{
		is($node->sql($segments), '1', "$what: one segment");
		unlike($err, qr/NOTICE:  gpugraph/, "$what: nothing is announced");
		like($err, qr/MB of device memory with groups of rows of/, "$what: the plan is told");
		next;
	}
	like($err, qr/NOTICE:  gpugraph index no longer fits into device memory after \d+ rows/,
		"$what: announced");
	like($err, qr/DETAIL:  A build may take 64 MB\. .* several segments/, "$what: with a detail");
	like($err, qr/HINT:  A single segment takes \d+ MB of device memory: increase gpugraph\.dev/,
		"$what: and a hint");
	like($err, qr/build plan: $rows rows .* \d+ MB of memory, \d+ MB of device memory with/,
		"$what: the plan is told");
	is($node->sql($segments), '2', "$what: several segments");
	is($node->sql("SELECT copy_seconds > 0 FROM gpugraph_index_info('items_idx')"), 't',
		"$what: rows were copied during the scan") if $workers > 0;
}

# they stay apart: the device would not hold what becomes of both
$node->sql("SELECT gpugraph_merge('items_idx')");
is($node->sql($segments), $played ? '2' : '1', 'merged: as before');

# ---- with as much as the hint says there is one; a GPU takes rows in half precision then, too
my ($enough) = $err =~ /single segment takes (\d+) MB/;
$enough = $played ? $enough + 10 : 134;
device_memory("${enough}MB");
$err = build('the hint', $create);
is($node->sql($segments), '1', 'the hint is right');

# which takes rows in half precision
like($err, qr/MB of device memory with rows in half precision of/, 'the plan tells of them');
cmp_ok($node->sql($recall), '>=', $best - $lost, 'rows in half precision: recall');
$node->sql('CREATE TABLE far AS SELECT id, cat, big,
	val + array_fill(500, ARRAY[64])::vector AS val FROM items');
$node->sql('VACUUM ANALYZE far');
$err = build('rows that do not bear it', $create =~ s/items/far/gr);
like($err, qr/built on the CPU\n.*does not suffice: .* half precision alone, which these do not/,
	'rows that do not bear it: the CPU builds');
like($err, qr/HINT: .* segment_rows/, 'rows that do not bear it: a hint');
$node->sql('DROP TABLE far');

# ---- less host memory than rows, and a device that holds them: one segment, from files
$err = build('files', "SET maintenance_work_mem = '1MB'; $create");
like($err, qr/NOTICE:  gpugraph index does not fit into maintenance_work_mem/, 'files: announced')
	if $played;
is($node->sql($segments), '1', 'files: one segment');
is($node->sql('SELECT count(*) FROM pg_ls_tmpdir()'), '0', 'files: none is left');
index_is_complete($node, 'files');
cmp_ok($node->sql($recall), '>=', $best - $lost, 'files: recall');

# ---- several GPUs build groups of one graph, which may be one GPU
if (!$played)
{
	$node->append_conf('postgresql.conf', "gpugraph.devices = '0,1,2'");
	device_memory('1MB');
	$node->restart;
	ok_in_time(sub { $node->sql(
				"SELECT count(*) FROM gpugraph_stat_device WHERE state = 'up'") == 3 },
		'three devices');
	for my $what ('three devices', 'devices that fail together')
	{
		my $fault = $what =~ /fail/ ? "SET gpugraph.fault = graph; " : '';

		$err = build($what, "$fault$create");
		is($node->sql($segments), '1', "$what: one segment");
		index_is_complete($node, $what);
		cmp_ok($node->sql($recall), '>=', $best - $lost, "$what: recall");
		like($err, qr/engine, device \d and 2 more: /, "$what: all of them build") if !$fault;
		like($err, qr/by device 0 alone\n.*without device 0\n.*device [01] and 1 more:/s,
			"$what: others build") if $fault;
	}
	restart_with($node, "gpugraph.devices = '0'");
}

# ---- so many rows are expected that the device is no use
device_memory('1MB');
$node->sql("UPDATE pg_class SET reltuples = 20000000 WHERE oid = 'few'::regclass");
$err = build('too little', "SET maintenance_work_mem = '100GB'; $create_few");
like($err, qr/NOTICE:  gpugraph index is built on the CPU/, 'too little: announced');
like($err, qr/DETAIL:  A build may take 64 MB of device memory, which hold \d+ rows; with 20000000/,
	'too little: with a detail');
like($err, qr/HINT:  Increase gpugraph\.device_memory/, 'too little: and a hint');
is($node->sql($segments_of_few), '1', 'too little: one segment');
index_is_complete($node, 'too little', 'few');

# ---- hundreds of millions of rows are expected: places beyond 32 bits, which only the plan needs
device_memory('0');
my %settings = (100_000_000 => '2GB', 2_000_000_000 => '2000GB');
for my $expected (sort keys %settings)
{
	for my $workers (0, 2)
	{
		my $what = "$expected rows, $workers workers";

		$node->sql("UPDATE pg_class SET reltuples = $expected WHERE oid = 'few'::regclass");
		$err = build($what, "SET maintenance_work_mem = '$settings{$expected}'; "
			. "SET max_parallel_maintenance_workers = $workers; $create_few");
		like($err, qr/build plan: $expected rows expected/, "$what: the plan is told");
		like($err, qr/gpugraph heap scan: 2 workers/, "$what: they scan") if $workers > 0;
		is($node->sql($segments_of_few), '1', "$what: one segment");
		is($node->sql("SELECT gpugraph_check('few_idx', true)"), '', "$what: checked");
	}
}

finish_test($node);
