# A device that hangs: a kernel that never ends, or a call of the driver that never returns,
# whichever thread of the worker is in it. The worker notices, says so, and makes room for another
# one. The server stays up, and the CPU answers meanwhile.
use Gpugraph;
use Residency;

my $node = served_node('hang', conf => "gpugraph.device_timeout = '4s'\n");

my $postmaster = $node->sql('SELECT pg_postmaster_start_time()');

# Another worker than this one has the device and the index; its process id.
sub replaced
{
	my ($pid, $what) = @_;

	ok_in_time(sub { of_device($node, "state = 'up' AND pid <> $pid") eq 't' },
		"$what: another worker has the device") or return $pid;
	is(kill(0, $pid), 0, "$what: the one that hung is gone");
	# one that hangs as it is loaded is not loaded again before somebody asks
	$node->sql("SELECT gpugraph_prewarm('items_idx')") if $what =~ /load/;
	is(wait_for_state($node, 'ready'), 'ready', "$what: the index is loaded again");
	truth_by_device($node, $what);
	return of_device($node, 'pid');
}

my $pid = of_device($node, 'pid');

sub set_timeout
{
	my ($value) = @_;

	alter_system($node, "SET gpugraph.device_timeout = '$value'");
	return;
}

# ---- a kernel that never ends, with other queries beside it
{
	set_timeout('1h');
	my $hung = start_psql($node, 'SET enable_seqscan = off', 'SET gpugraph.fault = hang', $nearest);

	waiting_pid($node);
	truth_by_device($node, 'kernel: queries beside it');
	set_timeout('4s');
	is(finish_psql($hung), '', 'kernel: the query is no error');
	is($hung->{out} + 0, 10, 'kernel: the CPU answers it');
	$pid = replaced($pid, 'kernel');
	is(log_lines($node, qr/LOG: .*gpugraph device 0 cannot be used: .*has not ended for 4/), 1,
		'kernel: the log says it once');
	like(of_device($node, 'last_error'), qr/has not ended for 4/, 'kernel: so does the view');
}

# ---- a launch that never returns: the worker's main thread is in it
is($node->sql("SET enable_seqscan = off; SET gpugraph.fault = hang_launch; $nearest"), 10,
	'launch: the CPU answers');
$pid = replaced($pid, 'launch');
is(log_lines($node, qr/LOG: .*gpugraph device 0 cannot be used: .*not returned for 4/), 1,
	'launch: the log says it once');

# ---- a copy that never returns: the thread that loads is in it
$node->sql("SELECT gpugraph_evict('items_idx')");
wait_for_state($node, 'absent');
{
	my $hung = start_psql($node, 'SET enable_seqscan = off', 'SET gpugraph.fault = hang_load',
		$nearest);

	is(finish_psql($hung), '', 'load: the query that asks for it is no error');
}
$pid = replaced($pid, 'load');
is(log_lines($node, qr/LOG: .*gpugraph device 0 cannot be used: .*in the loading thread/), 1,
	'load: the log says it once');

# ---- told to end while that thread hangs
$node->sql("SELECT gpugraph_evict('items_idx')");
wait_for_state($node, 'absent');
$node->sql("SET enable_seqscan = off; SET gpugraph.fault = hang_load; $nearest");
is(wait_for_state($node, 'loading'), 'loading', 'terminated: a load is under way');
kill 'TERM', $pid;
$pid = replaced($pid, 'load, terminated');

# ---- a worker that is told to end while its device hangs ends, and so does the server
for my $fault (qw(hang hang_launch))
{
	set_timeout('1h') if $fault eq 'hang';
	my $hung =
		start_psql($node, 'SET enable_seqscan = off', "SET gpugraph.fault = $fault", $nearest);

	waiting_pid($node);
	if ($fault eq 'hang')
	{
		kill 'TERM', $pid;
		is(finish_psql($hung), '', 'terminated: the query is no error');
		$pid = replaced($pid, 'terminated');
		set_timeout('4s');
	}
	else
	{
		is($node->sql('SELECT pg_postmaster_start_time()'), $postmaster,
			'the server was up all the time');
		$node->stop('fast');
		finish_psql($hung);
		pass('a server whose device hangs is stopped');
	}
}
is(log_lines($node, qr/(PANIC|TRAP|terminated by signal|crash)/), 0, 'nothing bad is in the log');
done_testing();
