# The bug: a backend that posted its query to a device just after that had gone for good abandoned
# its slot to it. Only a worker of that device frees such a slot, and there was none any more: no
# device answered the backend again.
#
# The fix: the backend frees the slot itself, since nothing of a device that is gone can write
# there.
use Gpugraph;
use Residency;
use Time::HiRes qw(usleep);

my $node = service_node('gone',
	conf => "gpugraph.service_engine = cpu\ngpugraph.devices = '0,1'\n");
unserved { make_items($node, 4000, 16); };

sub of_one { return $node->sql("SELECT $_[1] FROM gpugraph_stat_device WHERE device = $_[0]") }

ok_in_time(sub { of_one(0, 'state') . of_one(1, 'state') eq 'upup' }, 'two devices');
$node->sql("SELECT gpugraph_prewarm('items_idx')");
is(of_one(0, 'resident_indexes'), 1, 'the first has the index');

# a query that found the device up rests before it posts; meanwhile the device goes for good
alter_system($node, 'SET gpugraph.fault = no_device');
usleep(200_000);
my $device = of_one(0, 'pid');
my $holder = hold_at($node, 'post');
my $session = start_psql($node, 'SET enable_seqscan = off', 'SET gpugraph.fault = hold_post',
	$nearest, 'SET gpugraph.fault = none',
	"SELECT gpugraph_prewarm('items_idx') > 0", $nearest, $nearest);
ok(rests_at($node, 'post'), 'it rests');
kill 'TERM', $device;
ok_in_time(sub { log_lines($node, qr/cannot be used: device 0 is not there/) },
	'the first device is gone');
finish_psql($holder);
is(finish_psql($session), '', 'the session goes on');
is($session->{out}, "10\nt\n10\n10\n", 'with all its answers');
is(of_index($node, "queries_gpu || ' ' || cpu_failed || ' ' || cpu_busy"), '2 1 0',
	'the second device gives those that come later');

# not before: the query is posted to a device that is gone
alter_system($node, 'RESET gpugraph.fault');
ok_in_time(sub { of_one(0, 'state') eq 'up' }, 'the first one comes back');

finish_test($node);
