# The index option devices: segments are spread over several devices, and come back to one. Queries
# are answered by devices alone all the time, and as one device does.
use Gpugraph;
use Residency;
use feature 'state';

my $node = four_device_node('spread', <<'CONF');
gpugraph.merge_workers = 0
CONF

sub sql { return $node->sql($_[0]) }
sub places { return of_index($node, "devices::text || ' ' || device_segments::text") }

sub same_answers
{
	my ($what) = @_;
	state $first = query_forms($node);
	forms_agree(query_forms($node), $first, "$what: answers are the same");
	like(who_answers($node), qr/ 20 0 0$/, "$what: of devices alone");
	return;
}

like(error_of($node, 'ALTER INDEX items_idx SET (devices = 17)'),
	qr/value 17 out of bounds for option "devices"/, 'too many devices are refused');
sql("SELECT gpugraph_prewarm('items_idx')");
is(places(), '{0} {6}', 'an index is on one device');
same_answers('one device');

# ---- a wish
sql('ALTER INDEX items_idx SET (devices = 4)');
my @by_cpu = ();
ok_in_time(sub { push @by_cpu, who_answers($node); return shares($node) eq '1 1 2 2'; },
	'segments are spread over four devices') or diag(places());
is(join(' ', grep { !/ 20 0 0$/ } @by_cpu), '', 'devices have all of them all the time');
same_answers('four devices');

# ---- rows of the delta, and rows that are gone
sql('INSERT INTO items SELECT id + 50000, cat, big, val + (SELECT val FROM queries WHERE q = 1)
	FROM items WHERE id <= 1000;
	DELETE FROM items WHERE id > 50000; VACUUM items');
same_answers('a delta');

# ---- a device is lost, and another one gone for a while
sql("SET enable_seqscan = off; SET gpugraph.fault = exit; SELECT count(*)
	FROM (SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 3) LIMIT 10) s");
ok(devices_have_all($node), 'exit: others have its share, or it has it again');
same_answers('exit');
shares_are($node, '1 1 2 2', 'exit: it is spread over four devices again');
sql('ALTER SYSTEM SET gpugraph.fault = no_device');
$node->reload;
kill 'TERM', sql('SELECT pid FROM gpugraph_stat_device WHERE device = 3');
ok_in_time(sub { log_lines($node, qr/device 3 is not there: \d found/) > 0 }, 'a device is gone');
shares_are($node, '2 2 2', 'three devices have two segments each');
same_answers('three devices');
sql('ALTER SYSTEM RESET gpugraph.fault');
$node->reload;
shares_are($node, '1 1 2 2', 'the device takes its share again when it is back');

# ---- fewer are wished
sql('ALTER INDEX items_idx SET (devices = 2)');
who_answers($node);
shares_are($node, '3 3', 'two devices have three segments each');
same_answers('two devices');

# ---- the wish is taken back
sql('ALTER INDEX items_idx RESET (devices)');
ok_in_time(sub { who_answers($node); return of_index($node, '6 = ANY (device_segments)') eq 't'; },
	'one device has all again');
same_answers('one again');

# ---- devices of unequal speed, where the CPU plays them
if (($ENV{GG_SERVICE_ENGINE} || 'cpu') eq 'cpu')
{
	sql("SELECT gpugraph_evict('items_idx')");
	local $ENV{GPUGRAPH_SPEEDS} = '1,3,1,1';
	$node->restart;
	ok_in_time(sub { sql("SELECT count(*) FROM gpugraph_stat_device
		WHERE state = 'up'") == 4 }, 'devices of other speeds');
	sql("ALTER INDEX items_idx SET (devices = 2); SELECT gpugraph_prewarm('items_idx')");
	who_answers($node);
	ok_in_time(sub { return places() eq '{0,1} {2,4}'; },
		'the one that is three times as fast has four of six segments') or diag(places());
	same_answers('unequal devices');
}

is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
finish_test($node);
