# A host with a device that cannot be used, an old one say, beside one that can: the one works as if
# it were alone, and the log says once what is wrong with the other.
use Gpugraph;
use Residency;
use Time::HiRes qw(usleep);

my $node = service_node('old_device', conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.devices = '0,1'
gpugraph.fault = old_device
CONF

make_items($node, 4000, 16);
$node->sql("SELECT gpugraph_prewarm('items_idx')");
is(of_index($node, "device || ' ' || state"), '0 ready', 'the index is on the device that works');
truth_by_device($node, 'beside the other one');
ok_in_time(sub { $node->sql('SELECT restarts FROM gpugraph_stat_device WHERE device = 1') >= 2 },
	'the other one is tried again');
is($node->sql("SELECT state || ': ' || last_error FROM gpugraph_stat_device WHERE device = 1"),
	'broken: gpugraph.fault: device 1 is too old', 'the view says what is wrong with it');
is(log_lines($node, qr/LOG: .*gpugraph device 1 cannot be used: device 1 is too old/), 1,
	'the log says it once');
is(log_lines($node, qr/HINT: .*answered by other devices, or by the CPU/), 1,
	'and who answers');
truth_by_device($node, 'later');
finish_test($node);
