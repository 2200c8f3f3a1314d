# A table of 300 small partitions: every index stays on one device, which answers a query of all of
# them alone, and has them again after a restart.
use Gpugraph;
use Residency;

my $n = 300;
my $node = service_node('small', conf => <<'CONF');
gpugraph.itopk_size = 8
max_locks_per_transaction = 256
CONF

unserved {
	$node->sql(<<"SQL");
SELECT setseed(0.5);
CREATE TABLE items (id int, part int, val vector(3)) PARTITION BY LIST (part);
DO \$\$ BEGIN
	FOR i IN 1 .. $n LOOP
		EXECUTE format('CREATE TABLE items_%s PARTITION OF items FOR VALUES IN (%1\$s)', i);
	END LOOP;
END \$\$;
INSERT INTO items SELECT i, i % $n + 1, ARRAY[random(), random(), random()]
	FROM generate_series(1, 400 * $n) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
SQL
};

my $residents = "count(*) FILTER (WHERE state = 'ready')";
sub residents { return $node->sql("SELECT $residents FROM gpugraph_stat_index") }

# The ten nearest rows and how many indexes a device, and the CPU, answered for.
sub ask
{
	my ($by_index) = @_;

	return $node->sql(<<"SQL");
SELECT gpugraph_stat_reset();
SET enable_seqscan = @{[ $by_index ? 'off' : 'on' ]};
SET enable_indexscan = @{[ $by_index ? 'on' : 'off' ]};
SELECT array_agg(id) FROM
	(SELECT id FROM items ORDER BY val <-> '[0.4, 0.5, 0.6]' LIMIT 10) s;
SELECT count(*) FILTER (WHERE queries_gpu = 1), coalesce(sum(queries_cpu), 0)
	FROM gpugraph_stat_index;
SQL
}

sub all_answered
{
	my ($what) = @_;
	my ($rows, $counts) = (split /\n/, ask(1))[-2, -1];
	my ($exact) = (split /\n/, ask(0))[-2];

	is($counts, "$n|0", "$what: the device answers for every index");
	is($rows, $exact, "$what: and rightly");
	return;
}

$node->sql(<<'SQL');
SELECT sum(gpugraph_prewarm(indexrelid)) FROM pg_index
	JOIN pg_inherits ON inhrelid = indexrelid WHERE inhparent = 'items_idx'::regclass;
SQL
is(residents(), $n, 'all are on the device');
is(of_device($node, "resident_indexes || ' ' || evictions"), "$n 0", 'and nothing was evicted');
all_answered('at first');

$node->restart;
ok_in_time(sub { residents() == $n }, 'after a restart they come again');
all_answered('after a restart');

# ---- fewer may stay than were there
restart_with($node, 'gpugraph.max_residents = 100');
ok_in_time(sub { residents() == 100 }, 'as many come again as may');
is((split /\n/, ask(1))[-2], (split /\n/, ask(0))[-2], 'and the CPU answers for the others');

is(log_lines($node, qr/(PANIC|TRAP|signal|damaged)/), 0, 'nothing bad is in the log');
finish_test($node);
