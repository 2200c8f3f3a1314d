# Copies of an index on several devices. A hot index gets them where there is room, queries go to
# all of them, merges reach all of them, a copy makes room before all else, and when a device fails
# the others answer its queries.
use Gpugraph;
use Residency;

# On a GPU host the GPUs that are there play four, which answer too fast for clients to wait.
my $gpu = ($ENV{GG_SERVICE_ENGINE} || 'cpu') ne 'cpu';
$ENV{GPUGRAPH_SAME_GPU} = 1;
my $node = service_node('replicas', conf => <<'CONF');
gpugraph.devices = '0,1,2,3'
gpugraph.device_memory = 64MB
gpugraph.device_timeout = 20s
gpugraph.merge_workers = 0
CONF
unserved {
	make_items($node, 4000, 32);
	$node->sql('CREATE TABLE other AS SELECT * FROM items;
		CREATE INDEX other_idx ON other USING gpugraph (val vector_l2_ops)');
};

sub sql { return $node->sql($_[0]) }
sub of_one { return sql("SELECT $_[1] FROM gpugraph_stat_device WHERE device = $_[0]") }
sub all_up { return sql("SELECT count(*) FROM gpugraph_stat_device WHERE state = 'up'") == 4 }
sub places { return of_index($node, 'devices', ($_[0] || 'items') . '_idx') }
sub copies { return of_index($node, 'cardinality(devices)') || 0 }

sub setting
{
	my ($name, $value) = @_;
	sql(defined $value ? "ALTER SYSTEM SET $name = '$value'" : "ALTER SYSTEM RESET $name");
	$node->reload;
	return;
}

# What truth() says while others ask, too.
my $devices_alone = qr/^1\.0000 \d+ 0$/;

# Clients whose queries wait for the device.
sub load_items
{
	my ($much) = @_;
	return start_pgbench($node, "-c 8 $much", 'hot@1' => <<'SQL');
SELECT count(*) FROM gpugraph_search('items_idx',
	(SELECT array_agg(val) FROM items WHERE id <= 200), 10);
SQL
}

# ---- a copy that loads hides none that is ready
ok_in_time(\&all_up, 'four devices');
sql("SELECT gpugraph_prewarm('other_idx')");
sql("SELECT gpugraph_prewarm('items_idx')");
is(places('other') . places(), '{0}{1}', 'each index is on one');
sql("SELECT gpugraph_evict('other_idx')");
my $hot = load_items('-T 600');
setting('gpugraph.fault', 'load_stall');
unless ($gpu)
{
	ok_in_time(sub {
		sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'gpugraph load'")
	}, 'a second device loads it');
	like(truth($node), $devices_alone, 'while it does, the first one answers');
}
setting('gpugraph.fault', $gpu ? 'hot' : undef);

# ---- a hot index
ok_in_time(sub { copies() == 4 }, 'it comes to all devices') or die;
setting('gpugraph.fault');
sql('SELECT gpugraph_stat_reset()');
ok_in_time(sub { sql('SELECT min(queries) FROM gpugraph_stat_device') > 20 },
	'each answers queries');
like(truth($node), $devices_alone, 'the copies answer rightly');

# ---- a merge
my $cpu = of_index($node, 'queries_cpu');
my $refreshes = sql('SELECT sum(refreshes) FROM gpugraph_stat_device');
sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id <= 300');
is(sql("SELECT gpugraph_merge('items_idx')"), 't', 'a merge');
cmp_ok(sql('SELECT sum(refreshes) FROM gpugraph_stat_device') - $refreshes, '>=', 4,
	'it was brought to all devices');
is(places(), '{0,1,2,3}', 'all have it');
like(truth($node), $devices_alone, 'after the merge, too');
is(of_index($node, 'queries_cpu'), $cpu, 'the CPU answered none meanwhile');

# ---- one device is lost, in every way; queries that it had are answered by another one
$hot->{harness}->signal('INT');
unlike(finish_psql($hot), qr/ERROR|FATAL|abort/, 'no query has failed');

# ---- the queries of one call are shared out
# Some rows are there twice, so which one is the last of ten may differ.
sub searched
{
	my ($from, $fault) = @_;
	return sql("SET gpugraph.fault = $fault; SELECT md5(string_agg(s::text, ',')) FROM (
		SELECT q, distance FROM $from ORDER BY q, distance) s");
}
my $by_one = searched('(SELECT id AS q, val FROM items WHERE id <= 300) i,
	LATERAL gpugraph_search(\'items_idx\', ARRAY[i.val], 10) f(n, tid, distance)', 'none');
my $all = "gpugraph_search('items_idx', (SELECT array_agg(val ORDER BY id) FROM items
	WHERE id <= 300), 10) f(q, tid, distance)";
sql('SELECT gpugraph_stat_reset()');
is(searched($all, 'none'), $by_one, 'many queries of one call: the answers are right');
is(sql('SELECT count(*) FROM gpugraph_stat_device WHERE queries > 0'), 4,
	'each device has a share');
is(searched($all, 'launch'), $by_one, 'where one fails, too');
$cpu = of_index($node, 'queries_cpu');

for my $fault (qw(launch device exit hang ring_full))
{
	my ($gpu) = answered_by($node);
	my $lost = $fault ne 'launch' && $fault ne 'ring_full';
	my $restarts = restarts($node);
	my $asking = start_psql($node, 'SET enable_seqscan = off', "SET gpugraph.fault = $fault",
		$nearest);

	give_up_who_hangs($node, $restarts) if $fault eq 'hang';
	is(finish_psql($asking) . $asking->{out}, "10\n", "$fault: an answer");
	is(join(' ', answered_by($node)), $gpu + 1 . " $cpu", "$fault: by another device");
	truth_by_device($node, "$fault: afterwards");
	next unless $lost;
	ok_in_time(sub { all_up() && restarts($node) == $restarts + 1 },
		"$fault: the device comes back");
	ok_in_time(sub { copies() == 4 }, "$fault: with its copy");
	$cpu = of_index($node, 'queries_cpu');
}

# ---- a holder hangs while a merge is handed over: the flip does not wait until it is replaced
sql('INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id <= 300');
my $restarts = restarts($node);
is(sql("SET gpugraph.fault = hang_load; SELECT gpugraph_merge('items_idx')"), 't',
	'hand-over: the merge ends');
is(restarts($node), $restarts, 'hand-over: and did not wait for the device');
truth_by_device($node, 'hand-over: the other holders');
give_up_who_hangs($node, $restarts);
ok_in_time(sub { all_up() && restarts($node) > $restarts }, 'hand-over: the device comes back');
ok_in_time(sub { copies() == 4 }, 'hand-over: with its copy');
truth_by_device($node, 'hand-over: afterwards');

# ---- room
my $bytes = of_index($node, 'bytes');
setting('gpugraph.device_memory', int($bytes * 1.6 / 1024) . 'kB');
is(places(), '{0,1,2,3}', 'there is room for each copy');
truth($node, 'other');
is(wait_for_state($node, 'ready', 'other_idx'), 'ready', 'another index is wanted');
ok_in_time(sub { copies() == 3 }, 'a copy makes room for it');
truth_by_device($node, 'the other index', 'other');
truth_by_device($node, 'the other copies');
$hot = load_items('-T 6');
finish_psql($hot);
is(places('other') =~ /^\{\d\}$/ ? copies() : places('other'), 3, 'a copy takes no room from it');

is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
finish_test($node);
