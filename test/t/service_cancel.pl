# A query that ends while the device has it leaves nothing behind: cancelled, timed out, terminated,
# its client gone. The next one is answered by the device; and queries that wait together go out
# together.
use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time usleep);

use Gpugraph;
use Residency;

# gpugraph.fault = stall holds a query back for a second
my $node = service_node('cancel', conf => "max_connections = 20\n");
make_items($node, 4000, 16);
$node->safe_psql('postgres', "SELECT gpugraph_prewarm('items_idx')");

my @slow = ('SET enable_seqscan = off', 'SET gpugraph.fault = stall', $nearest);

sub abandoned { return of_device($node, 'abandoned') }

# ---- the stall itself
my $start = time;
is($node->safe_psql('postgres', join(';', @slow)), 10, 'a stalled query is answered');
cmp_ok(time - $start, '>', 0.9, 'a second later');
is(abandoned(), 0, 'nothing was abandoned');

# ---- statement_timeout, and the same session at once again
my ($rc, $out, $err) = $node->psql('postgres', join(';', 'SET statement_timeout = 200', @slow));
like($err, qr/statement timeout/, 'statement_timeout ends the wait');
ok(defined wait_for(sub { abandoned() == 1 }), 'its slot is given back');
my $both = $node->safe_psql('postgres', <<SQL);
SET enable_seqscan = off;
SET gpugraph.fault = stall;
SET statement_timeout = 100;
DO \$\$ BEGIN PERFORM id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 1;
EXCEPTION WHEN query_canceled THEN NULL; END \$\$;
SET statement_timeout = 0;
SET gpugraph.fault = none;
$nearest;
SELECT pg_sleep(1.2);
SET gpugraph.engine = cuda;
$nearest;
SQL
is($both, "10\n\n10",
	'a session whose query timed out goes on: with the CPU, then with the device');
cmp_ok(of_index($node, 'cpu_busy'), '>=', 1, 'the query in between is counted');

# ---- cancel and terminate
for my $how (qw(pg_cancel_backend pg_terminate_backend))
{
	my $before = abandoned();
	my $waiting = start_psql($node, @slow);
	my $pid = waiting_pid($node);

	is($node->safe_psql('postgres', "SELECT $how($pid)"), 't', "$how of a query that waits");
	# before the answer, which it would have had otherwise
	like(finish_psql($waiting), qr/cancel|terminat/, "$how ends it");
	ok(defined wait_for(sub { abandoned() == $before + 1 }), "$how: its slot is given back");
	truth_by_device($node, $how);
}

# ---- its client is gone
{
	my $before = abandoned();
	my $waiting = start_psql($node, 'SET client_connection_check_interval = 50', @slow);

	waiting_pid($node);
	$waiting->{harness}->kill_kill;
	ok(defined wait_for(sub { abandoned() == $before + 1 }),
		'a client that is gone: its slot is given back');
}

# ---- many at a time, some of them cancelled: no slot is lost
{
	my $before = abandoned();
	my @waiting = map { start_psql($node, ($_ % 2 ? 'SET statement_timeout = 300' : 'SELECT 1'),
		@slow) } 1 .. 10;
	my @errors = map { finish_psql($_) } @waiting;

	# one that starts late may meet the slot of one that timed out, and is answered by the CPU at
	# once
	my $timeouts = grep { /statement timeout/ } @errors;
	ok($timeouts >= 1 && $timeouts <= 5, "$timeouts of ten time out");
	is(scalar(grep { $_ eq '' } @errors), 10 - $timeouts, 'the others are answered');
	ok(defined wait_for(sub { abandoned() == $before + $timeouts }), 'their slots are given back');
	truth_by_device($node, 'ten at a time');
}

# ---- queries that come together share launches
{
	my $sql = $node->basedir . '/one.sql';

	open my $file, '>', $sql or die "$sql: $!";
	print $file "\\set q random(1, 20)\n",
		"SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = :q) LIMIT 10;\n";
	close $file;
	my ($queries, $batches) = split / /, of_device($node, "queries || ' ' || batches");
	$node->command_ok(
		[ 'env', 'PGOPTIONS=-c enable_seqscan=off -c gpugraph.engine=cuda', 'pgbench', '-n', '-M',
			'prepared', '-c', 12,
			'-t', 300, '-f', $sql, '-h', $node->host, '-p', $node->port, 'postgres' ],
		'twelve clients, none of them answered by the CPU');
	my ($queries_after, $batches_after) = split / /, of_device($node, "queries || ' ' || batches");
	is($queries_after - $queries, 3600, 'every query is counted');
	cmp_ok($batches_after - $batches, '<', 3600, 'in fewer batches');
	is(of_device($node, '(SELECT sum(n) FROM unnest(batch_sizes[2:]) n) > 0'), 't',
		'the histogram has batches of several');
	is(of_device($node, '(SELECT sum(n) FROM unnest(batch_sizes) n) = batches'), 't',
		'and all of them');
}
is(of_device($node, 'failed'), 0, 'nothing failed');

is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
$node->stop;
done_testing();
