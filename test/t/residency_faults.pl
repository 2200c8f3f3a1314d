# A load that fails, or whose process ends, leaves nothing behind; the CPU answers meanwhile, and
# the log says why, once.
use Gpugraph;
use Residency;

my $node = service_node('faults', conf => "gpugraph.merge_workers = 0\n");
unserved { make_items($node, 4000, 16); };

# ---- faults on request
# Queries ask again after 5 s, and after a minute where a load has failed for the fifth time: no
# machine is so slow that one of them does here.
$node->psql('postgres', "SET gpugraph.fault = load; SELECT gpugraph_prewarm('items_idx')")
	for 1 .. 4;
for my $fault ([ load => 'the loader failed, as gpugraph.fault asks for' ],
	[ load_gap => 'a part of it was not brought' ],
	[ device_memory => 'out of device memory, as gpugraph.fault asks for' ])
{
	my ($name, $message) = @$fault;

	like(error_of($node, "SET gpugraph.fault = $name; SELECT gpugraph_prewarm('items_idx')"),
		qr/\Q$message\E/, "fault $name: prewarm says why");
	is(of_index($node, "state || ': ' || last_error"), "failed: $message",
		"fault $name: so does the view");
	is(of_device($node, 'resident_bytes'), 0, "fault $name: the device holds nothing");
	truth_by_cpu($node, "fault $name");
	is(state_of($node), 'failed', "fault $name: queries do not ask again at once");
	$node->psql('postgres', "SET gpugraph.fault = $name; SELECT gpugraph_prewarm('items_idx')");
	is(log_lines($node, qr/could not load index "items_idx".*\Q$message\E/), 1,
		"fault $name: the log says it once");
}
cmp_ok(of_index($node, 'cpu_memory'), '>', 0,
	'queries were answered by the CPU for want of device memory');
cmp_ok(of_index($node, 'cpu_failed'), '>', 0, 'and for a failure');
is(of_device($node, "failed_loads || ' ' || loads"), '10 0', 'ten loads failed');
$node->sql("SELECT gpugraph_prewarm('items_idx')");
truth_by_device($node, 'without faults');
is(of_index($node, 'last_error IS NULL'), 't', 'the error is forgotten');

# ---- a refresh that fails: the copy that is there goes on being used
$node->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id <= 2000');
like(error_of($node, "SET gpugraph.fault = load; SELECT gpugraph_prewarm('items_idx')"),
	qr/the loader failed/, 'a refresh fails');
is(state_of($node), 'ready', 'the index stays on the device');
truth_by_device($node, 'refresh failed');
$node->sql("SELECT gpugraph_prewarm('items_idx')");
is(of_index($node, 'delta_pages > 10 AND refreshes = 1'), 't', 'the next one does not');
truth_by_device($node, 'refreshed');

$node->sql('INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id <= 2000');
like(error_of($node, "\\set VERBOSITY verbose
	SET gpugraph.fault = device_memory; SELECT gpugraph_prewarm('items_idx')"),
	qr/ERROR:  53200: .*out of device memory/s, 'one that finds no memory says so');
truth_by_device($node, 'no memory');
$node->sql("SELECT gpugraph_prewarm('items_idx')");

# ---- loaders that are terminated at any point
my $killer = start_psql($node, <<'SQL');
DO $$
DECLARE
	all_of_them int := 0;
	now_terminated int;
BEGIN
	FOR i IN 1 .. 3000 LOOP
		PERFORM pg_stat_clear_snapshot();
		SELECT count(pg_terminate_backend(pid)) INTO now_terminated
			FROM pg_stat_activity WHERE backend_type = 'gpugraph loader' AND random() < 0.2;
		all_of_them := all_of_them + now_terminated;
		PERFORM pg_sleep(0.001);
	END LOOP;
	RAISE NOTICE 'terminated %', all_of_them;
END $$
SQL
my ($loaded, $refused) = (0, 0);
while ($killer->{harness}->pumpable)
{
	eval { $killer->{harness}->pump_nb };
	$node->sql("SELECT gpugraph_evict('items_idx')");
	my ($rc, undef, $err) = $node->psql('postgres', "SELECT gpugraph_prewarm('items_idx')");

	$loaded++ if $rc == 0;
	$refused++ if $err =~ /its loader (was terminated|ended early)/;
	fail("prewarm said: $err") if $rc != 0 && $err !~ /its loader (was terminated|ended early)/;
}
my ($killed) = finish_psql($killer) =~ /terminated (\d+)/;
cmp_ok($killed, '>', 0, "loaders were terminated");
note("$killed loaders were terminated, $refused loads failed, $loaded did not");
cmp_ok($refused, '>', 0, 'loads failed of that');
$node->sql("SELECT gpugraph_evict('items_idx')");
ok_in_time(sub { of_device($node, 'resident_bytes') eq '0' }, 'nothing is left on the device');
$node->sql("SELECT gpugraph_prewarm('items_idx')");
truth_by_device($node, 'loaders terminated');

# ---- cancelling who waits does not cancel the load; evicting cancels it
$node->sql("SELECT gpugraph_evict('items_idx')");
$node->psql('postgres', "SET statement_timeout = 1; SELECT gpugraph_prewarm('items_idx')");
like(wait_for_state($node, 'ready|absent'), qr/ready|absent/,
	'a cancelled prewarm leaves a sound state');
for (1 .. 20)
{
	my $session = start_psql($node, "SELECT gpugraph_prewarm('items_idx')");
	$node->sql("SELECT gpugraph_evict('items_idx')") for 1 .. 3;
	is(finish_psql($session), '', 'prewarm beside evict succeeds') if $_ == 1;
}

# ---- no background worker to be had
my $idle = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'gpugraph loader'";
restart_with($node, 'max_worker_processes = 2');
$node->sql("SELECT gpugraph_evict('items_idx')");
my ($rc, $out, $err) = $node->psql('postgres', "SELECT gpugraph_prewarm('items_idx')");
like($rc == 0 ? 'no worker is free' : $err, qr/no (background )?worker is free/,
	'a load without a worker says so');
truth($node);
is($node->sql($idle), 0, 'no loader is left');

# ---- pages that are damaged
$node->append_conf('postgresql.conf', "max_worker_processes = 16\ngpugraph.autoprewarm = off");
$node->stop;
my $path = $node->data_dir . '/'
	. do { $node->start; $node->sql("CHECKPOINT; SELECT pg_relation_filepath('items_idx')") };
$node->stop;
my $page = 9;
open my $file, '+<', $path or die "$path: $!";
binmode $file;
sysseek $file, $page * 8192 + 8168, 0;
syswrite $file, "\xFF" x 8;
close $file;
$node->start;
like(error_of($node, "SELECT gpugraph_prewarm('items_idx')"),
	qr/index "\w+" is corrupted at block \d+: page is not number/, 'a damaged page is not loaded');
is(of_device($node, 'resident_bytes'), 0, 'the device holds nothing of it');
$node->sql('REINDEX INDEX items_idx');
$node->sql("SELECT gpugraph_prewarm('items_idx')");
truth_by_device($node, 'REINDEX');

is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
finish_test($node);
