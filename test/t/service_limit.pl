# A device is asked for what a LIMIT takes, wherever the executor can know it, and goes on where
# more is wanted after all: rows that are dead, locked by others or tied, joins, the queue of
# float16.
use Gpugraph;
use Residency;

my $node = service_node('limit', conf => "gpugraph.itopk_size = 64\n");
make_items($node, 12000, 16);
$node->sql(<<'SQL');
ALTER INDEX items_idx SET (seal_rows = 0);
-- equal rows: nodes of many
INSERT INTO items SELECT id + 40000, cat, big, (SELECT val FROM items WHERE id = 7) FROM items
	WHERE id <= 300;
REINDEX INDEX items_idx;
SELECT gpugraph_prewarm('items_idx');
SQL

my $fast = 'SET enable_seqscan = off; SET enable_sort = off; SET gpugraph.engine = cuda;';
my $exact = 'SET enable_indexscan = off; SET plan_cache_mode = force_custom_plan;';
my $nearest = 'ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)';

# The ids that $sql selects by the device are those of the plan without the index, but for one in
# fifty; the last scan was followed by a longer list or not.
sub answers_as
{
	my ($what, $widened, $sql, $index) = @_;
	my ($gpu, $cpu) = answered_by($node, $index);
	my ($found, $widenings) = split /\n(?=.*\z)/,
	  $node->sql("$fast $sql;\nSELECT widenings > 0 FROM gpugraph_last_scan()");
	my ($gpu_after, $cpu_after) = answered_by($node, $index);
	my @true = split /\n/, $node->sql("$exact $sql");
	my %true = map { $_ => 1 } @true;
	my @found = split /\n/, $found;
	my $same = grep { delete $true{$_} } @found;

	is(scalar @found, scalar @true, "$what: as many rows");
	cmp_ok($same, '>=', 0.98 * @true, "$what: the nearest");
	is($widenings, $widened ? 't' : 'f', "$what: " . ($widened ? 'several lists' : 'one list'));
	is(join(' ', $gpu_after > $gpu, $cpu_after - $cpu), '1 0', "$what: by the device alone");
	return;
}

# ---- known when the plan begins
answers_as('LIMIT', 0, "SELECT id FROM items $nearest LIMIT 100");
answers_as('a short LIMIT', 0, "SELECT id FROM items $nearest LIMIT 10");
answers_as('OFFSET', 0, "SELECT id FROM items $nearest OFFSET 90 LIMIT 10");
answers_as('FETCH', 0, "SELECT id FROM items $nearest FETCH FIRST 100 ROWS ONLY");
answers_as('a projection', 0,
	"SELECT id FROM (SELECT id, cat || 'x' FROM items $nearest LIMIT 100) s");
answers_as('a subquery', 0, "SELECT id FROM (SELECT id FROM items $nearest OFFSET 0) s LIMIT 100");
answers_as('rows locked', 0, "SELECT id FROM items $nearest LIMIT 100 FOR UPDATE");
for my $type (qw(int bigint))
{
	answers_as("LIMIT \$1, $type", 0, <<"SQL" =~ s/;\n\z//r);
SET plan_cache_mode = force_generic_plan;
PREPARE p($type) AS SELECT id FROM items $nearest LIMIT \$1;
EXECUTE p(100);
SQL
}
answers_as('an expression of constants', 0, "SELECT id FROM items $nearest LIMIT 90 + 10");

# a walk that returns what will be taken finds what one finds that returns more
for my $itopk (16, 32, 64, 128)
{
	my $found = "$fast SET gpugraph.itopk_size = $itopk; SELECT q, i.id FROM queries,
		LATERAL (SELECT id FROM items ORDER BY items.val <-> queries.val LIMIT %s) i";
	my %told = map { $_ => 1 } split /\n/, $node->sql(sprintf $found, 10);
	my @untold = split /\n/, $node->sql(sprintf $found, '(SELECT 10)');
	my $others = grep { !$told{$_} } @untold;

	is(scalar keys %told, scalar @untold, "itopk_size $itopk: as many rows with a LIMIT known");
	cmp_ok($others, '<=', 0.001 * @untold, "itopk_size $itopk: the same rows");
}

# ---- not known, or not all
answers_as('a LIMIT from a subquery', 1, "SELECT id FROM items $nearest LIMIT (SELECT 100)");
answers_as('LIMIT ALL', 1,
	"SELECT id FROM (SELECT id FROM items $nearest LIMIT ALL) s LIMIT (SELECT 90)");
answers_as('a join that drops rows', 1, <<"SQL" =~ s/;\n\z//r);
SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off;
SET enable_memoize = off;
SELECT i.id FROM items i JOIN LATERAL (SELECT 1 WHERE i.id % 40 = 0 OFFSET 0) j ON true
	$nearest LIMIT 10;
SQL
answers_as('a filter of the executor', 1, "SELECT id FROM items WHERE cat = 3 $nearest LIMIT 100");
answers_as('ties, rows of one node', 0,
	"SELECT id FROM items ORDER BY val <-> (SELECT val FROM items WHERE id = 7)
	FETCH FIRST 5 ROWS WITH TIES");

my $locker = start_psql($node,
	"BEGIN; $exact SELECT id FROM items $nearest LIMIT 50 FOR UPDATE; SELECT pg_sleep(600)");
my $sleeps = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
wait_for(sub { $node->sql($sleeps =~ s/pg_terminate_backend\(pid\)/true/r) });
{
	my $sql = "SELECT id FROM items $nearest LIMIT 20 FOR UPDATE SKIP LOCKED";
	answers_as('SKIP LOCKED', 1, $sql);
}
$node->sql($sleeps);
$locker->{harness}->finish;

# rows of partitions: each has as many as are asked for of all
$node->sql(<<'SQL');
CREATE TABLE parted (LIKE items) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (6000);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (6000) TO (MAXVALUE);
INSERT INTO parted SELECT * FROM items;
CREATE INDEX parted_idx ON parted USING gpugraph (val vector_l2_ops);
ANALYZE parted;
SELECT gpugraph_prewarm('parted_1_val_idx'), gpugraph_prewarm('parted_2_val_idx');
SQL
answers_as('partitions', 0, "SELECT id FROM parted $nearest LIMIT 100", 'parted_1_val_idx');

# float16: the executor's queue takes more rows than it hands out
$node->sql(<<'SQL');
CREATE TABLE rounded AS SELECT id, val FROM items;
CREATE INDEX rounded_idx ON rounded USING gpugraph (val vector_l2_ops) WITH (storage = 'float16');
ANALYZE rounded;
SELECT gpugraph_prewarm('rounded_idx');
SQL
{
	my $sql = "SELECT id FROM rounded $nearest LIMIT 10";
	is($node->sql("$fast $sql"), $node->sql("$exact $sql"), 'float16: the nearest in order');
}

# dead rows, which the index still has
$node->sql("DELETE FROM items WHERE id IN (SELECT id FROM items $nearest LIMIT 90)");
answers_as('dead rows', 1, "SELECT id FROM items $nearest LIMIT 20");

done_testing();
