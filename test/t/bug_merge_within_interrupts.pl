# The bug: while an engine builds the graph of a large merge, the worker seals the delta, by a merge
# within the engine's call. Interrupts were held meanwhile. So DROP DATABASE and ALTER DATABASE SET
# TABLESPACE of other databases waited for this merge, and nothing ended the worker before it was
# done. An error in it was kept until the engine had returned, and with it all locks: that of the
# metapage, too, without which nobody can use the index.
# The fix: such a merge serves what asks for an answer, and fails where the process has to end. Its
# transaction is ended at once.
use Gpugraph;
use Merging;
use Residency;

# a GPU has built the large merge's graph before there is a merge within it
delete $ENV{GG_SERVICE_ENGINE};

# rows of the segment of a build. The smaller one has a third of them; a device builds for 5,000 and
# more.
my %rows = (here => 3500, device => 4200);
my $rests = qr/gpugraph.fault: a merge within another one rests/;
my $goes_on = qr/gpugraph.fault: it goes on/;

# A segment of a build and a smaller one, which are merged at the latest when nobody inserts. Their
# graph takes a second or more, in which a test can do something.
sub two_segments
{
	my ($node, $database) = @_;
	my $rows = $rows{ $node->name };

	slow_index($node, 'slow', $database);
	$node->safe_psql($database, "ALTER INDEX slow_idx
		SET (seal_rows = 0, graph_degree = 32, intermediate_graph_degree = 128);
		INSERT INTO slow " . slow_rows(1, $rows));
	$node->safe_psql($database, 'REINDEX INDEX slow_idx; ALTER INDEX slow_idx
		SET (seal_rows = 200); INSERT INTO slow ' . slow_rows(10001, 10000 + $rows / 3));
	return;
}

# A worker that rests in a merge within another one's graph, in a database of this name, and where
# the log then ended.
sub rest_within
{
	my ($node, $database, $what) = @_;
	my $from = -s $node->logfile;
	my $pid;

	two_segments($node, $database);
	ok_in_time(sub { slurp_file($node->logfile, $from) =~ $rests },
		"$what: a merge rests within another one") or BAIL_OUT('no merge within a merge');
	$pid = $node->sql("SELECT pid FROM pg_stat_activity
		WHERE datname = '$database' AND backend_type ~ 'gpugraph'");
	return ($pid, $from);
}

sub is_gone
{
	my ($node, $pid) = @_;

	return $node->sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") eq '0';
}

# who builds the large merge's graph: the worker itself, or a device
for my $case ([ 'here', \&merging_node ], [ 'device', \&service_node ])
{
	my ($who, $new) = @$case;
	my $space = PostgreSQL::Test::Utils::tempdir();
	my $node = $new->($who, conf => "gpugraph.fault = within_hold\nlog_min_messages = debug1\n");
	my ($pid, $from);

	$node->sql("CREATE TABLESPACE space LOCATION '$space'");
	$node->sql("CREATE DATABASE $_") for qw(other another);
	($pid, $from) = rest_within($node, 'postgres', $who);

	# what asks for an answer
	for my $sql ('DROP DATABASE other', 'ALTER DATABASE another SET TABLESPACE space',
		'DROP DATABASE another')
	{
		is(finish_psql(start_psql($node, "SET statement_timeout = '60s'", $sql)), '',
			"$who: $sql is not kept waiting");
	}
	is($node->sql("SELECT pg_log_backend_memory_contexts($pid)"), 't',
		"$who: memory contexts are asked for");
	ok_in_time(sub { slurp_file($node->logfile, $from) =~ /\[$pid\] .*Grand total: \d+ bytes/ },
		"$who: and logged");

	# what ends a merge, or the worker
	$node->sql("SELECT pg_cancel_backend($pid)");
	ok_in_time(sub { slurp_file($node->logfile, $from) =~
				/\[$pid\] .*canceling statement due to user request/ }, "$who: cancelled");
	index_is_complete($node, "$who: after a cancel", 'slow');
	$node->sql("DROP TABLE slow; SELECT pg_terminate_backend($pid)");
	($pid) = rest_within($node, 'postgres', "$who, again");
	$node->sql("SELECT pg_terminate_backend($pid)");
	ok_in_time(sub { is_gone($node, $pid) }, "$who: terminated");
	index_is_complete($node, "$who: after that", 'slow');
	$node->sql('DROP TABLE slow');
	unlike(slurp_file($node->logfile, $from), $goes_on, "$who: before its time");

	# the worker's own database
	$node->sql('CREATE DATABASE own');
	$node->safe_psql('own', 'CREATE EXTENSION vector; CREATE EXTENSION gpugraph');
	rest_within($node, 'own', "$who, own database");
	is(finish_psql(start_psql($node, 'ALTER DATABASE own SET TABLESPACE space')), '',
		"$who: ALTER DATABASE of its own database");
	is(finish_psql(start_psql($node, 'DROP DATABASE own')), '', "$who: DROP DATABASE");

	# shutdown
	($pid, $from) = rest_within($node, 'postgres', "$who, shutdown");
	$node->stop('fast');
	unlike(slurp_file($node->logfile, $from), $goes_on, "$who: a fast shutdown ends it");

	# an error
	$node->append_conf('postgresql.conf', "gpugraph.fault = within_error\n");
	$node->start;
	$from = -s $node->logfile;
	$node->sql('DROP TABLE slow');
	two_segments($node, 'postgres');
	ok_in_time(sub { $node->sql("SELECT delta_rows < 200
			AND EXISTS (SELECT FROM gpugraph_stat_merge WHERE phase = 'building graph')
			AND segments > 1 FROM gpugraph_index_info('slow_idx')") eq 't' },
		"$who: a large merge");
	$node->sql('INSERT INTO slow ' . slow_rows(20001, 20300));
	ok_in_time(sub { slurp_file($node->logfile, $from) =~ /is slow to return/ },
		"$who: a merge within another one fails, and the engine does not return yet");
	my $reader = start_psql($node,
		q{SELECT 'read ' || segments FROM gpugraph_index_info('slow_idx')});
	ok_in_time(sub { $reader->{harness}->pump_nb; $reader->{out} =~ /read/ },
		"$who: the index can be used");
	unlike(slurp_file($node->logfile, $from), qr/fault: the engine returns/, "$who: before");
	$node->sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
		. "WHERE backend_type ~ 'gpugraph merge'");
	ok_in_time(sub { slurp_file($node->logfile, $from) =~ /fault: the engine returns/ },
		"$who: then it returns");
	finish_psql($reader);
	restart_with($node, "gpugraph.fault = none\n");
	is(finish_psql(start_psql($node, "SELECT gpugraph_merge('slow_idx')")), '', "$who: merged");
	index_is_complete($node, "$who: at the end", 'slow');
	$node->stop;
}
done_testing();
