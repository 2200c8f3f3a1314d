# Two devices: an index is loaded to the one with more room, and whichever has it answers, whatever
# becomes of the other.
use Gpugraph;
use Residency;

# always the CPU engine, whose sizes, ties and number of devices are the same everywhere
my $node = service_node('devices', conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.devices = '0,1'
gpugraph.device_memory = 64MB
CONF
unserved {
	make_items($node, 4000, 16);
	$node->sql('CREATE TABLE other AS SELECT * FROM items;
		CREATE INDEX other_idx ON other USING gpugraph (val vector_l2_ops)');
};

sub where_is
{
	return of_index($node, "coalesce(device::text, 'nowhere') || ' ' || state", "$_[0]_idx");
}

sub of_one
{
	return $node->sql("SELECT $_[1] FROM gpugraph_stat_device WHERE device = $_[0]");
}

sub wait_until
{
	my ($device, $state) = @_;
	return defined wait_for(sub { return of_one($device, 'state') eq $state; });
}

ok(wait_until(0, 'up') && wait_until(1, 'up'), 'two devices');
$node->sql("SELECT gpugraph_prewarm('other_idx')");
$node->sql("SELECT gpugraph_prewarm('items_idx')");
is(where_is('other') . ' ' . where_is('items'), '0 ready 1 ready', 'each has one');
truth_by_device($node, 'the first device\'s index', 'other');
truth_by_device($node, 'the second device\'s index');

# ---- one of them is away: the other one takes over, as far as it can
alter_system($node, 'SET gpugraph.fault = no_driver');
kill 'TERM', of_one(1, 'pid');
ok(wait_until(1, 'broken'), 'the second device is away');
$node->sql("SET enable_seqscan = off; SET gpugraph.fault = device_memory;
	SELECT id FROM items ORDER BY val <-> (SELECT val FROM items WHERE id = 5) LIMIT 5");
is(wait_for_state($node, 'failed'), 'failed', 'the first one has no memory for its index');
truth_by_cpu($node, 'neither has it');
truth_by_device($node, 'the first device goes on', 'other');

# ---- it comes back
alter_system($node, 'RESET gpugraph.fault');
ok(wait_until(1, 'up'), 'the second device is back');
ok_in_time(sub { of_one(1, 'resident_indexes') == 1 }, 'with its index');
truth_by_device($node, 'a load that failed elsewhere does not matter');

# ---- what fails on one device is tried on the other
$node->sql("SELECT gpugraph_evict('items_idx'), gpugraph_evict('other_idx')");
$node->sql("SELECT gpugraph_prewarm('other_idx')");
$node->psql('postgres', "SET gpugraph.fault = load; SELECT gpugraph_prewarm('items_idx')");
is(where_is('other') . ' ' . where_is('items'), '0 ready 1 failed', 'a load fails on the second');
$node->sql("SELECT gpugraph_evict('other_idx')");
$node->sql('SET enable_seqscan = off;
	SELECT id FROM items ORDER BY val <-> (SELECT val FROM items WHERE id = 5) LIMIT 5');
# the first has as much room now, and comes first
ok_in_time(sub { of_one(0, 'resident_indexes') == 1 }, 'the first loads it');
truth_by_device($node, 'from there');
is(of_one(1, 'resident_indexes'), 0, 'the second has nothing');

is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
finish_test($node);
