# A device that builds several segments: the next one's rows are read while one is built. The index
# is as good as any, whether one process reads or several, with equal rows, filters and codes; and
# whatever ends the build leaves no thread. The CPU plays the device, or a GPU is it.
use Gpugraph;
use Residency;

# where GPUs are devices, three may be fewer GPUs
my $played = ($ENV{GG_SERVICE_ENGINE} || 'cpu') eq 'cpu';
$ENV{GPUGRAPH_SAME_GPU} = 1 unless $played;
my $node = service_node('overlap',
	conf => "max_parallel_maintenance_workers = 3\nmin_parallel_table_scan_size = 0\n" .
		"gpugraph.devices = '0'\n");
my $create = 'CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops';

$node->sql("SELECT make_data('items', 9000, 64, 40); SELECT make_queries('items', 30);
	VACUUM ANALYZE items");

# Build, and return what was said.
sub build
{
	my ($what, $segments, $sql, $settings) = @_;
	my ($rc, $out, $err) = $node->psql('postgres',
		"SET client_min_messages = debug1; " . ($settings // '') . $sql);

	is($rc, 0, "$what: built") or diag $err;
	is($node->sql("SELECT segments FROM gpugraph_index_info('items_idx')"),
		$segments, "$what: segments");
	index_is_complete($node, $what);
	cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, "$what: recall");
	$node->sql('DROP INDEX items_idx');
	return $err;
}

my $err = build('workers', 4, "$create) WITH (segment_rows = 2500)");
like($err, qr/gpugraph heap scan: 3 workers/, 'several processes');
like($err, qr/; 2 in memory/, 'two segments in memory');
like(build('one process', 4, "$create) WITH (segment_rows = 2500)",
		'SET max_parallel_workers = 0;'),
	qr/; 2 in memory/, 'two segments of one process in memory');
build('many', 9, "$create) WITH (segment_rows = 1100)");
build("spread, $_", 3, "$create) WITH (devices = 3)") for 1 .. 2;
build('filters and codes', 4,
	"$create, cat int4_ops) WITH (segment_rows = 2500, storage = 'float32+int8')");
build('concurrently', 4,
	'CREATE INDEX CONCURRENTLY items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (segment_rows = 2500)');
# the second segment is never there
$node->sql("UPDATE pg_class SET reltuples = 50000 WHERE oid = 'items'::regclass");
build('fewer rows than expected', 1, "$create) WITH (segment_rows = 10000)");
$node->sql("UPDATE pg_class SET reltuples = 4000 WHERE oid = 'items'::regclass");
build('more rows than expected', 4, "$create) WITH (segment_rows = 2500)");

# ---- what ends a build
$node->sql(<<'SQL');
ANALYZE items;
CREATE FUNCTION sour(id int, val vector) RETURNS vector(64)
	IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql AS
	$$ BEGIN IF id >= 8900 THEN RAISE division_by_zero; END IF; RETURN val; END $$;
SQL
for my $workers (0, 3)
{
	my $left = $node->sql(<<"SQL");
SET max_parallel_workers = $workers;
SELECT count(*) AS before FROM pg_ls_dir('/proc/self/task') \\gset
CREATE TEMP TABLE ends (threads bigint);
DO \$\$
BEGIN
	FOR i IN 1 .. 3 LOOP
		BEGIN
			CREATE INDEX sour_idx ON items
				USING gpugraph ((sour(id, val)::vector(64)) vector_l2_ops)
				WITH (segment_rows = 2500);
		EXCEPTION WHEN division_by_zero THEN
			INSERT INTO ends SELECT count(*) FROM pg_ls_dir('/proc/self/task');
		END;
	END LOOP;
END \$\$;
SELECT count(*) || ' ' || count(DISTINCT threads) FROM ends;
SQL
	is($left, '3 1', "errors with $workers workers: no thread is left");
}
for my $ms (30, 100, 300, 600)
{
	my ($rc, $out, $said) = $node->psql('postgres',
		"SET statement_timeout = $ms; $create) WITH (segment_rows = 2500)");

	ok($rc == 0 || $said =~ /statement timeout/, "$ms ms");
	$node->sql('DROP INDEX IF EXISTS items_idx');
}
build('after all that', 4, "$create) WITH (segment_rows = 2500)");

# ---- several devices
restart_with($node, "gpugraph.devices = '0,1,2'");
ok_in_time(sub { $node->sql("SELECT count(*) FROM gpugraph_stat_device WHERE state = 'up'") == 3 },
	'three devices');
for my $workers (0, 3)
{
	$err = build("three devices, $workers workers", 9, "$create) WITH (segment_rows = 1100)",
		"SET max_parallel_workers = $workers;");
	like($err, qr/; 4 in memory, 3 devices/, 'four segments in memory');
	my %by;
	$by{$1}++ while $err =~ /gpugraph graph of \d+ nodes on the \w+ engine, device (\d)/g;
	cmp_ok(keys %by, '>=', $played ? 2 : 1,
		'several build: ' . join ', ', map { "$_ $by{$_}" } sort keys %by);
}
$err = build('a device fails', 9, "$create) WITH (segment_rows = 1100)",
	"SET gpugraph.fault = graph;");
like($err, qr/LOG: +a gpugraph index is built without device 0/, 'the others build');

finish_test($node);
