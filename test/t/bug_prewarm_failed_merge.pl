# The bug: gpugraph_prewarm() waited for ever. A merge brings its segment to the device before it
# flips the directory. VACUUM, which removed a segment meanwhile, had made another directory of the
# same generation. The merge failed, and what it had brought was taken for the index's own.
use Gpugraph;
use Merging;
use Residency;

my $node = service_node('failed_merge');

sub insert
{
	my ($from, $to) = @_;

	$node->sql('INSERT INTO slow ' . slow_rows($from, $to));
	return;
}

# a segment that stays, a small one, and a delta that is merged with it
slow_index($node, 'slow');
$node->sql('ALTER INDEX slow_idx SET (seal_rows = 0)');
insert(1, 4000);
$node->sql("SELECT gpugraph_merge('slow_idx')");
$node->sql('ALTER INDEX slow_idx SET (seal_rows = 200)');
insert(4001, 4400);
ok_in_time(sub { merge_info($node, 'segments', 'slow') == 2 }, 'two segments');
$node->sql("SELECT gpugraph_prewarm('slow_idx')");
insert(5001, 5400);
my $merger = stop_in_graph($node, 'slow');
ok(defined $merger, 'a merge builds its graph');
# some of the first rows too: a merge leaves the end of the delta to the next
$node->sql('DELETE FROM slow WHERE id > 3900');
my $device = of_device($node, 'pid');
kill 'STOP', $device;
kill 'CONT', $merger;
ok_in_time(sub { of_index($node, 'state', 'slow_idx') eq 'refreshing' },
	'it brings its segment to the device');
$node->sql('VACUUM (FREEZE) slow');
is(merge_info($node, 'segments', 'slow'), 1, 'VACUUM removed a segment');
kill 'CONT', $device;

ok_in_time(sub { of_index($node, 'state', 'slow_idx') eq 'ready' }, 'the device has it');
$node->sql("SET statement_timeout = '60s'; SELECT gpugraph_prewarm('slow_idx')");
is(of_index($node, 'segments', 'slow_idx'), merge_info($node, 'segments', 'slow'),
	'the device has the segments of the directory');
index_is_complete($node, 'afterwards', 'slow');

finish_test($node);
