# A copy that cannot be used any more is replaced or gives way. Neither too little memory for two
# copies nor loads that fail keep an index on the CPU for good, or a session waiting.
use Gpugraph;
use Residency;

# always the CPU engine, whose sizes, ties and number of devices are the same everywhere
my $node = service_node('refresh', conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.device_memory = 1MB
gpugraph.merge_workers = 0
CONF
my $query =
	'SELECT count(*)
	FROM (SELECT id FROM rows ORDER BY val <-> (SELECT val FROM rows WHERE id = 2900) LIMIT 10) s';

# 3000 rows in the delta take three quarters of the memory
unserved {
	$node->sql(<<'SQL');
CREATE TABLE rows (id int, val vector(64));
CREATE INDEX rows_idx ON rows USING gpugraph (val vector_l2_ops);
INSERT INTO rows SELECT i,
	(SELECT array_agg(sin(i * 13 + j * j)) FROM generate_series(1, 64) j)::vector
	FROM generate_series(1, 3000) i;
SQL
};
my $bytes = $node->sql("SELECT gpugraph_prewarm('rows_idx')");
cmp_ok($bytes, '>', 700_000, 'a copy takes more than half of what is allowed');

# A query answered by the device, or not.
sub by_device
{
	my ($before) = answered_by($node, 'rows_idx');
	is($node->sql("SET enable_seqscan = off; $query"), 10, 'ten rows')
		if $node->sql("SET enable_seqscan = off; $query") != 10;
	my ($after) = answered_by($node, 'rows_idx');
	return $after > $before;
}
ok(by_device(), 'the device answers');

# ---- VACUUM gives back the delta's front: pages are numbered anew, so the copy is of no use
$node->sql('DELETE FROM rows WHERE id <= 1200');
$node->sql('VACUUM (FREEZE) rows');
ok_in_time(\&by_device,
	'another generation, and no room for both copies: the device answers again');
is(of_index($node, 'generation > 1', 'rows_idx'), 't', 'from a new copy');

# ---- the delta grows: the copy is used as long as it has most of it
$node->sql('INSERT INTO rows SELECT id + 10000, val FROM rows WHERE id < 1700');
ok(by_device(), 'a longer delta: the device answers');
my $pages = of_index($node, 'delta_pages', 'rows_idx');
$node->sql('DELETE FROM rows WHERE id < 2700; VACUUM (FREEZE) rows');
ok_in_time(\&by_device, 'cut again: the device answers again');

# ---- the only segment goes, and loads fail: with gpugraph.engine = cuda that is an error, not a
# wait
reload_with($node, 'gpugraph.device_memory = 100MB');
unserved { $node->sql('REINDEX INDEX rows_idx'); };
$node->sql("SELECT gpugraph_prewarm('rows_idx')");
$node->sql(<<'SQL');
INSERT INTO rows SELECT i,
	(SELECT array_agg(sin(i * 17 + j * j)) FROM generate_series(1, 64) j)::vector
	FROM generate_series(20001, 22000) i;
SQL
$node->sql('DELETE FROM rows WHERE id < 20001; VACUUM (FREEZE) rows');
$query =~ s/2900/20005/;
like(error_of($node,
	"SET statement_timeout = '20s'; SET enable_seqscan = off; SET gpugraph.engine = cuda;
	SET gpugraph.fault = load; $query"),
	qr/no GPU can search index "rows_idx".*The GPU, or the load of the index to it, failed/s,
	'other segments, and loads fail: an error');
is($node->sql("SET enable_seqscan = off; SET gpugraph.fault = load; $query"), 10,
	'else the CPU answers');
ok_in_time(\&by_device, 'until a load succeeds');

is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
finish_test($node);
