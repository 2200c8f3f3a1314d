# The bug: the worker of a device without a driver exits to try again in a process that has not
# asked the driver yet, and the postmaster logged each such exit; queries said once a minute that
# the CPU answers them.
#
# The fix: it exits with status 0 and has its successor started itself, and what the worker has said
# is not said again.
use Gpugraph;
use Residency;

my $node = new_node('no_driver',
	conf => service_conf() . "gpugraph.fault = no_driver\nrestart_after_crash = on\n");

sub tries { return $node->sql('SELECT restarts FROM gpugraph_stat_device') }

make_items($node, 4000, 16);
ok_in_time(sub { tries() >= 3 }, 'a device without a driver is tried again and again');
like($node->sql('SELECT state || last_error FROM gpugraph_stat_device'),
	qr/no driver/, 'the view says why it is not used');
truth_by_cpu($node, 'no driver');
is(log_lines($node, qr/LOG: .*gpugraph device 0 cannot be used: no driver/), 1,
	'the log says so once');
is(log_lines($node, qr/(background worker "gpugraph|LOG: +gpugraph)/), 1, 'and nothing else');

# ---- the workers that followed each other are worth as much as the first
my $postmaster = $node->sql('SELECT pg_postmaster_start_time()');
alter_system($node, 'SET gpugraph.fault = none');
ok_in_time(sub { of_device($node, 'state') eq 'up' }, 'the driver comes: so does the device');
$node->sql("SELECT gpugraph_prewarm('items_idx')");
truth_by_device($node, 'driver found');
my $pid = of_device($node, 'pid');
kill 'TERM', $pid;
ok_in_time(sub { of_device($node, "state = 'up' AND pid <> $pid") eq 't' },
	'a worker that is terminated starts again');
kill_9($node, of_device($node, 'pid'));
ok(wait_until_up($node), 'a crash restarts the server');
ok_in_time(sub { of_device($node, 'state') eq 'up' }, 'and the worker');
finish_test($node);
