# The bug: a loader counts as a user of its database. DROP DATABASE, and CREATE DATABASE from it as
# a template, wait five seconds for those who are there, so a load that took longer made them fail.
#
# The fix: a loader looks whether somebody keeps new sessions out of its database, and goes.
use Gpugraph;
use Residency;

my $node = service_node('drop_database');
make_items($node, 4000, 16);
$node->sql('CREATE DATABASE other TEMPLATE postgres');

# A load in that database that does not end: its first query asks for it, and then the worker is
# held up. The session is gone. A load that is over before it is seen is begun again.
sub load_for_ever
{
	my ($what) = @_;

	my $pid = of_device($node, 'pid');

	ok(defined wait_for(
			sub {
				my $said = $node->safe_psql('other', <<'SQL');
SELECT gpugraph_evict('items_idx');
SET gpugraph.fault = load_readers;
SET enable_seqscan = off;
SELECT count(*) FROM (SELECT id FROM items
	ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 10) s;
SELECT pg_sleep(0.3);
SELECT 'loads' FROM pg_stat_activity
	WHERE backend_type = 'gpugraph loader' AND datname = 'other';
SQL
				return $said =~ /loads/;
			}), "$what: a load is under way");
	kill 'STOP', $pid;
	return;
}

sub go_on
{
	my ($what) = @_;

	kill 'CONT', of_device($node, 'pid');
	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	truth_by_device($node, $what);
	return;
}

load_for_ever('CREATE DATABASE');
is(error_of($node, 'CREATE DATABASE copy TEMPLATE other'), '',
	'CREATE DATABASE from the loaders\' database');
go_on('CREATE DATABASE');

# the load that gave way left nothing behind, so that the next one can come
load_for_ever('DROP DATABASE');
is(error_of($node, 'DROP DATABASE other'), '', 'DROP DATABASE');
go_on('DROP DATABASE');

is(log_lines($node, qr/could not load/), 0, 'the log calls it no failure');
is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
finish_test($node);
