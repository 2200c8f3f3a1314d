# What was on the device comes back after a restart, a crash, and the end of the worker
# (but for gpugraph.disable), and the list that says what it was may be missing, damaged or old.
use Gpugraph;
use Residency;

my $node = service_node('restart', conf => "restart_after_crash = on\ngpugraph.devices = '0'\n");
unserved {
	make_items($node, 4000, 16);
	$node->sql('CREATE TABLE gone AS SELECT * FROM items;
		CREATE INDEX gone_idx ON gone USING gpugraph (val vector_l2_ops)');
};
$node->sql("SELECT gpugraph_prewarm('items_idx'), gpugraph_prewarm('gone_idx')");
# the only device's, by its UUID
sub list { return (glob $node->data_dir . '/gpugraph.resident.*')[0] }

sub comes_back
{
	my ($what) = @_;

	is(wait_for_state($node, 'ready'), 'ready', "$what: it is loaded without a query");
	truth_by_device($node, $what);
	return;
}

# ---- the worker ends
my $pid = of_device($node, 'pid');
kill 'TERM', $pid;
ok_in_time(sub { my $now = of_device($node, "coalesce(pid, 0)"); $now != 0
	&& $now != $pid }, 'a new worker is started');
comes_back('worker ended');
is(wait_for_state($node, 'ready', 'gone_idx'), 'ready', 'all of it comes back');
is(of_device($node, 'restarts'), 1, 'a restart was counted');

# ---- a restart of the server
$node->restart;
like(slurp_file(list()), qr/^gpugraph resident 1\n(\d+ \d+ \d+ \d+ \d+\n){2}crc [0-9A-F]{8}\n$/,
	'the list was written');
comes_back('server restarted');

# ---- what was dropped meanwhile is left out
$node->sql("SELECT gpugraph_prewarm('gone_idx')");
restart_with($node, 'gpugraph.disable = autoprewarm');
$node->sql('DROP TABLE gone; CHECKPOINT');
ok_in_time(sub { of_device($node, 'state') eq 'up' }, 'the worker is there');
is(state_of($node), 'absent', 'gpugraph.disable = autoprewarm loads nothing');
truth($node);
is(wait_for_state($node, 'ready'), 'ready', 'queries do');
$node->append_conf('postgresql.conf',
	"gpugraph.disable = ''\ngpugraph.autoprewarm = on\ngpugraph.load_workers = 4");

# ---- a crash of the server
$node->restart;
comes_back('on again');
my @warned = slurp_file($node->logfile) =~ /WARNING:  gpugraph\.(\w+) goes with version 1\.3/g;
is(join(' ', sort @warned), 'autoprewarm load_workers', 'old settings of a file warn once');
$node->stop('immediate');
$node->start;
comes_back('crashed');
is($node->sql("SELECT count(*) FROM gpugraph_stat_index"), 1, 'nothing else was tried');

# ---- a crash of one backend takes all shared memory with it
my $victim = start_psql($node, 'SELECT pg_sleep(60)');
survives_kill_9($node, 'a backend', backend_pid($node, '^SELECT pg_sleep'), $victim);
comes_back('shared memory started anew');

# ---- a list that is no list
for my $damage ('', "gpugraph resident 1\n", "gpugraph resident 1\n5 6 7 8 9\ncrc 00000000\n",
	"\0\1\2" x 1000, "gpugraph resident 1\n" . ("1 2 3 4 5\n" x 500))
{
	$node->stop;
	open my $file, '>', list() or die;
	print $file $damage;
	close $file;
	$node->start;
	ok_in_time(sub { of_device($node, 'state') eq 'up' }, 'a damaged list does no harm');
	is(state_of($node), 'absent', 'nothing is loaded by it');
}
is(log_lines($node, qr/ignoring file "gpugraph.resident.[0-9a-f]{32}", which is damaged/), 5,
	'the log says so');
truth($node);
is(wait_for_state($node, 'ready'), 'ready', 'queries load it');
truth_by_device($node, 'in the end');

is(log_lines($node, qr/(PANIC|TRAP|FATAL:.*gpugraph)/), 0, 'nothing bad is in the log');
$node->stop;

# ---- devices that have other numbers after a restart, where the CPU plays them
if (($ENV{GG_SERVICE_ENGINE} || 'cpu') eq 'cpu')
{
	$node = service_node('numbers', conf => "gpugraph.devices = '0,1'\n");
	my $ready = "SELECT string_agg(relid::regclass || ' ' || device, ' ' ORDER BY device)
		FROM gpugraph_stat_index WHERE state = 'ready'";

	unserved {
		make_items($node, 4000, 16);
		$node->sql('CREATE TABLE more AS SELECT * FROM items;
			CREATE INDEX more_idx ON more USING gpugraph (val vector_l2_ops)');
	};
	ok_in_time(sub { $node->sql(
				"SELECT count(*) FROM gpugraph_stat_device WHERE state = 'up'") == 2 },
		'two devices');
	$node->sql("SELECT gpugraph_prewarm('items_idx'), gpugraph_prewarm('more_idx')");
	my $before = $node->sql($ready);
	like($before, qr/^\w+ 0 \w+ 1$/, "each has an index: $before");
	local $ENV{GPUGRAPH_UUIDS} = '1,0';
	$node->restart;
	(my $swapped = $before) =~ s/(\w+) 0 (\w+) 1/$2 0 $1 1/;
	ok_in_time(sub { $node->sql($ready) eq $swapped },
		'each has its index again under its new number');
	$node->stop;
}
done_testing();
