# An index larger than one device has segments on several: each query asks all of them, and answers
# are those of one device with room for all.
use Gpugraph;
use Residency;

my $node = four_device_node('parts', <<'CONF');
gpugraph.device_timeout = 20s
gpugraph.merge_workers = 0
CONF

sub sql { return $node->sql($_[0]) }
sub whole { return devices_have_all($node) }
sub all_forms { return query_forms($node) }

my $bytes = sql("SELECT gpugraph_prewarm('items_idx')");
my $recall = (split / /, who_answers($node))[0];
my $forms = all_forms();
cmp_ok($recall, '>=', 0.95, "recall $recall on one device");

# ---- a limit of a third
sql('ALTER SYSTEM SET gpugraph.device_memory = \'' . int($bytes * 0.45 / 1048576 + 0.5) . "MB'");
$node->reload;
ok_in_time(sub { return of_index($node, 'segments > ALL (device_segments)') eq 't' }, 'too small');
ok(whole(), 'devices have all segments after a while') or die;
is(who_answers($node), "$recall 20 0 0", 'they answer with the same recall');
forms_agree(all_forms(), $forms, 'and every form of query as one device does');
cmp_ok(of_index($node, 'cardinality(devices)'), '>=', 3, 'of several devices');
is(of_index($node, 'segments > ALL (device_segments)'), 't', 'none of which has all');
is(of_index($node, "state || ' ' || missing_segments"), 'ready 0', 'nothing is missing');
unlike(sql("SELECT hint FROM gpugraph_indexes WHERE indexname = 'items_idx'"), qr/the CPU/,
	'no hint speaks of the CPU');

# ---- a device is lost
for my $fault (qw(exit hang))
{
	my $up = "SELECT count(*) FROM gpugraph_stat_device WHERE state = 'up'";

	my $restarts = restarts($node);
	my $asking = start_psql($node, 'SET enable_seqscan = off', "SET gpugraph.fault = $fault",
		$nearest);

	give_up_who_hangs($node, $restarts) if $fault eq 'hang';
	is(finish_psql($asking) . $asking->{out}, "10\n", "$fault: an answer");
	forms_agree(all_forms(), $forms, "$fault: the others, and the CPU, answer");
	ok_in_time(sub { sql($up) == 4 }, "$fault: the device is back");
	ok(whole(), "$fault: and has its share");
	forms_agree(all_forms(), $forms, "$fault: afterwards");
}

# ---- a device that is not there any more when its worker starts again: three have room for all
sql('ALTER SYSTEM SET gpugraph.fault = no_device');
$node->reload;
my $lost = sql('SELECT pid FROM gpugraph_stat_device WHERE resident_indexes > 0
	ORDER BY device DESC LIMIT 1');
kill 'TERM', $lost;
ok_in_time(sub { log_lines($node, qr/device \d is not there: 1 found/) > 0 }, 'a device is gone');
forms_agree(all_forms(), $forms, 'gone: the others, and the CPU, answer');
ok(whole(), 'gone: the others have its share');
forms_agree(all_forms(), $forms, 'gone: afterwards');
sql('ALTER SYSTEM RESET gpugraph.fault');
$node->reload;
ok_in_time(sub { sql("SELECT count(*) FROM gpugraph_stat_device WHERE state = 'up'") == 4 },
	'gone: the device is back');
forms_agree(all_forms(), $forms, 'gone: and all answer');

# ---- a merge
sql('INSERT INTO items SELECT id + 50000, cat, big, val FROM items WHERE id <= 1500');
is(sql("SELECT gpugraph_merge('items_idx')"), 't', 'a merge');
index_is_complete($node, 'merged');
like(who_answers($node), qr/^(0\.9\d+|1\.0000) /, 'queries are answered');

is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
finish_test($node);
