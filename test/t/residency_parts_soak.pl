# Random statements beside the plan without an index, while segments of an index lie on four
# devices: in each round a worker ends, hangs or finds no device for a while, a merge is handed over
# to devices of which one fails, rows are deleted, indexes evicted, queries cancelled, or the wished
# devices and their room change. In the end nothing of the service's shared memory is in use.
# GG_SOAK_ROUNDS asks for more rounds.
use Gpugraph;
use Residency;
use Time::HiRes qw(usleep);

my $rounds = $ENV{GG_SOAK_ROUNDS} || 20;
my $node = four_device_node('soak', <<'CONF');
gpugraph.device_memory = 3MB
gpugraph.device_timeout = 1s
gpugraph.answer_chunks = 8
CONF
unserved {
	$node->sql(<<'SQL');
CREATE INDEX few_idx ON few USING gpugraph (val vector_l2_ops);
CREATE SEQUENCE further MINVALUE 100000;

-- The nearest rows of a category by the index and by the table, in one snapshot.
CREATE FUNCTION compare(category int, n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	statement text := format('SELECT array_agg(id), array_agg(d) FROM (SELECT id,
		val <-> (SELECT val FROM queries WHERE q = %s) AS d
		FROM items WHERE cat = %s ORDER BY 2 LIMIT %s) s', 1 + category % 20, category, n);
	a int[];
	b int[];
	x float8[];
	y float8[];
BEGIN
	PERFORM use_index(true);
	EXECUTE statement INTO a, x;
	PERFORM use_index(false);
	EXECUTE statement INTO b, y;
	IF cardinality(a) IS DISTINCT FROM cardinality(b) OR
		(SELECT count(DISTINCT i) FROM unnest(a) i) <> coalesce(cardinality(a), 0) OR
		(SELECT bool_or(abs(p - q) > 1e-5 * q) FROM unnest(x, y) u(p, q)) THEN
		RAISE EXCEPTION '% rows of category % by the index, % by the table', cardinality(a),
			category, cardinality(b);
	END IF;
END $$;
SQL
};

my $load = start_pgbench($node, '-c 6 -T 3600',
	'compare@6' => <<'COMPARE', 'many@1' => <<'MANY', 'insert@2' => <<'INSERT');
\set c random(0, 39)
\set n random(1, 400)
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT compare(:c, :n);
COMMIT;
COMPARE
SELECT count(*) FROM gpugraph_search('items_idx', (SELECT array_agg(val) FROM queries), 10);
MANY
\set s random(1, 20000)
INSERT INTO items SELECT nextval('further'), cat, big, val FROM items WHERE id = :s;
INSERT

sub sql { return $node->psql('postgres', join ';', @_) }
sub nearest { return "SET enable_seqscan = off; SELECT count(*) FROM (SELECT id FROM $_[0]
	ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 5) s" }

sub end_worker
{
	my ($rc, $pid) = sql('SELECT pid FROM gpugraph_stat_device
		WHERE pid IS NOT NULL ORDER BY random() LIMIT 1');
	kill 'TERM', $pid if $pid;
	return;
}

sub faulty
{
	my ($faults, $statement) = @_;
	sql("SET gpugraph.fault = $faults->[rand @$faults]", $statement);
	return;
}

sub without_driver
{
	sql('ALTER SYSTEM SET gpugraph.fault = no_driver');
	$node->reload;
	usleep(100_000);
	end_worker();
	usleep(300_000);
	sql('ALTER SYSTEM RESET gpugraph.fault');
	$node->reload;
	return;
}

my @query_faults = qw(exit hang hang_launch device launch ring_full);
my @load_faults = qw(hang_load device_memory less_memory);
my $merge = "SELECT gpugraph_merge('items_idx')";
my @disturb = (
	\&end_worker,
	sub { sql($merge); },
	sub { faulty(\@query_faults, nearest('items')); },
	sub { faulty(\@query_faults, 'SELECT compare(3, 300)'); },
	sub { faulty(\@load_faults, $merge); },
	sub { sql('SET statement_timeout = ' . (1 + int rand 30), 'SELECT compare(3, 300)'); },
	sub { faulty([qw(stall hang)], 'SET statement_timeout = 50; SELECT compare(3, 300)'); },
	sub { sql('DELETE FROM items WHERE id % 97 = ' . int rand 97); sql('VACUUM items'); },
	\&without_driver,
	sub { sql("SELECT gpugraph_evict('items_idx')"); },
	sub { sql('ALTER INDEX items_idx SET (devices = ' . int(rand 5) . ')'); },
	sub { sql("ALTER SYSTEM SET gpugraph.device_memory = '" . (3, 9)[rand 2] . "MB'");
		$node->reload; },
	sub { faulty(\@load_faults, "SELECT gpugraph_evict('items_idx'); SELECT compare(3, 300)"); },
	sub { sql(nearest('few')); });
for my $i (0 .. $rounds - 1)
{
	$disturb[$i < @disturb ? $i : rand @disturb]->();
	usleep(rand 400_000);
}
my $running = !has_ended($load);
$load->{harness}->signal('INT');
is(finish_psql($load), '', 'no statement fails, and all agree');
ok($running, 'clients went on to the end');
index_is_complete($node, 'in the end');

# ---- all comes back, and nothing is left in use
my $up = "SELECT count(*) FROM gpugraph_stat_device WHERE state = 'up'";
ok_in_time(sub { $node->sql($up) == 4 }, 'all devices are up');
sql("SELECT gpugraph_evict('items_idx')", "SELECT gpugraph_evict('few_idx')");
my $left = 'SELECT sum(slots), sum(answer_chunks), sum(loading), sum(staging_chunks),
	sum(resident_bytes) FROM gpugraph_stat_device';
ok_in_time(sub { $node->sql($left) eq '0|0|0|0|0' },
	'no slot, chunk or load is left, and no memory of devices') or diag($node->sql($left));
$node->sql("SELECT gpugraph_prewarm('few_idx')");
is(of_index($node, "state", 'few_idx'), 'ready', 'devices are of use again');
is(log_lines($node, qr/(PANIC|TRAP|terminated by signal)/), 0, 'nothing bad is in the log');
finish_test($node);
