# Whatever fails in the service, the CPU answers, the server stays up, the worker comes back, and
# the log says why, once. With gpugraph.engine = cuda it is an error instead.
use Gpugraph;
use Residency;
use Time::HiRes qw(usleep);

my $node = served_node('faults');

my $postmaster = $node->sql('SELECT pg_postmaster_start_time()');

# The query under a fault, twice: as it is, then with gpugraph.engine = cuda.
sub under_fault
{
	my ($fault) = @_;
	my $set = "SET enable_seqscan = off; SET gpugraph.fault = $fault";

	is($node->sql("$set; $nearest"), 10, "$fault: the CPU answers");
	up_again($fault);
	my ($rc, $out, $err) = $node->psql('postgres', "$set; SET gpugraph.engine = cuda; $nearest",
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	like($err, qr/55000: gpugraph.engine is "cuda" but no GPU can search index "items_idx"/,
		"$fault: engine = cuda makes it an error");
	like($err, qr/DETAIL: .*\nHINT: .*gpugraph.engine/, "$fault: with the reason and what to do");
	up_again($fault);
	return;
}

# Wait for the worker and for the index to be on it.
sub up_again
{
	my ($what) = @_;

	ok_in_time(sub { of_device($node, 'state') eq 'up' }, "$what: the worker is there") or return;
	is(wait_for_state($node, 'ready'), 'ready', "$what: and the index");
	return;
}

# ---- only superusers
like(error_of($node, 'CREATE ROLE joe LOGIN; SET ROLE joe; SET gpugraph.fault = exit'),
	qr/permission denied/, 'faults are for superusers');

# ---- faults that leave the worker up
under_fault('launch');
is(log_lines($node, qr/LOG: .*gpugraph device 0: launch failed/), 1,
	'launch: the log says it once');
is(of_device($node, 'last_error'), 'gpugraph.fault: launch failed', 'launch: so does the view');
is(of_device($node, 'failed'), 2, 'launch: two queries failed');
under_fault('ring_full');
is(log_lines($node, qr/LOG: .*searches of index "items_idx" use the CPU/), 2,
	'one line for each reason');
is(restarts($node), 0, 'the worker went on all the time');
is(of_index($node, "cpu_failed || ' ' || cpu_busy"), '1 1', 'counted by reason');
truth_by_device($node, 'after launch and ring_full');

# ---- faults that end the worker
under_fault('exit');
is(restarts($node), 2, 'exit: the worker came back, twice');
truth_by_device($node, 'after exit');
under_fault('device');
is(restarts($node), 4, 'device: the worker came back, twice');
is(log_lines($node, qr/LOG: .*gpugraph device 0 cannot be used: device lost/), 1,
	'device: the log says it once');
like(of_device($node, 'last_error'), qr/device lost/, 'device: so does the view');
truth_by_device($node, 'after device');
{
	my $seen;

	is($node->sql("SET enable_seqscan = off; SET gpugraph.fault = device; $nearest"), 10,
	'device: once more');
	wait_for(sub { $seen = of_device($node,
		"state || ' ' || resident_indexes || ' ' || resident_bytes"); return $seen =~ /^broken/ });
	is($seen, 'broken 0 0', 'device: what it held is gone');
	up_again('device');
}

# ---- a worker that is told to end while queries wait for it
{
	set_fault($node, 'stall');
	my @waiting = map {
		start_psql($node, 'SET enable_seqscan = off', 'SET gpugraph.fault = stall', $nearest)
	} 1 .. 4;
	is(scalar(waiting_are($node, 4, '<->')), 4, 'four queries wait');
	kill 'TERM', of_device($node, 'pid');
	is(join('', map { finish_psql($_) } @waiting), '',
		'terminated: queries in flight are answered');
	is(join(' ', map { $_->{out} =~ s/\s+//gr } @waiting), '10 10 10 10', 'terminated: by the CPU');
	set_fault($node);
	up_again('terminated');
	truth_by_device($node, 'terminated');
}

# ---- under load, again and again
{
	my $before = restarts($node);
	my $sql = $node->basedir . '/one.sql';

	open my $file, '>', $sql or die "$sql: $!";
	print $file "\\set q random(1, 20)\n",
		"SELECT count(*) = 10 AS ten
		FROM (SELECT id FROM items
		ORDER BY val <-> (SELECT val FROM queries WHERE q = :q) LIMIT 10) s \\gset\n",
		"\\if :ten\n\\else\nSELECT 1/0;\n\\endif\n";
	close $file;
	my $bench = IPC::Run::start(
		[ 'env', 'PGOPTIONS=-c enable_seqscan=off', 'pgbench', '-n', '-c', 6, '-T', 8, '-f', $sql,
			'-h', $node->host, '-p', $node->port, 'postgres' ], '>', \my $out, '2>', \my $err);
	for my $i (1 .. 4)
	{
		usleep(1_500_000);
		my $pid = of_device($node, 'pid');
		kill 'TERM', $pid if $pid;
	}
	ok($bench->finish, 'six clients notice nothing of a worker that is terminated four times')
		or diag($err);
	unlike($err, qr/aborted|ERROR/, 'not one error');
	cmp_ok(restarts($node), '>', $before + 1, 'it was');
	# the last worker may be up after the last query, and loads what is asked for
	wait_for(sub { of_device($node, 'state') eq 'up' });
	is($node->sql("SET enable_seqscan = off; $nearest"), 10, 'under load: a query afterwards');
	up_again('under load');
	truth_by_device($node, 'under load');
}

# ---- no driver as the worker starts: tried again, later and later, and found when it is there
alter_system($node, 'SET gpugraph.fault = no_driver');
usleep(300_000);
kill 'TERM', of_device($node, 'pid');
ok_in_time(sub { restarts($node) >= 7 && of_device($node, 'state') eq 'broken'
	&& of_device($node, 'last_error') =~ /no driver/ },
	'no driver: the worker waits');
truth_by_cpu($node, 'no driver');
usleep(3_500_000);
is(log_lines($node, qr/LOG: .*gpugraph device 0 cannot be used: no driver/), 1,
	'no driver: the log says it once');
like(error_of($node, "SET enable_seqscan = off; SET gpugraph.engine = cuda; $nearest"),
	qr/No worker of the GPU service has a device that works/,
	'no driver: an error with gpugraph.engine = cuda');
alter_system($node, 'RESET gpugraph.fault');
up_again('driver found');
truth_by_device($node, 'driver found');

is($node->sql('SELECT pg_postmaster_start_time()'), $postmaster, 'the server was up all the time');
is(log_lines($node, qr/(PANIC|TRAP|terminated by signal|crash)/), 0, 'nothing bad is in the log');

# ---- a server without the service
restart_with($node, "gpugraph.devices = ''");
is($node->sql("SET enable_seqscan = off; $nearest"), 10, 'no devices: the CPU answers');
like(error_of($node, "SET enable_seqscan = off; SET gpugraph.engine = cuda; $nearest"),
	qr/There is no GPU service/, 'no devices: an error with gpugraph.engine = cuda');
restart_with($node, "gpugraph.devices = '0,0'");
is(log_lines($node, qr/invalid value for parameter "gpugraph.devices": "0,0"/), 1,
	'the same device twice is no list of devices');
restart_with($node, "shared_preload_libraries = ''\ngpugraph.devices = 'all'");
is($node->sql("SET enable_seqscan = off; $nearest"), 10, 'not preloaded: the CPU answers');
finish_test($node);
