# A build can be cancelled within a second in any of its phases, and leaves nothing behind.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

use Gpugraph;

my $node = new_node('cancel');
$node->safe_psql('postgres', "SELECT make_data('items', 20000, 96, 40)");
my $create = 'CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)';
my $size = $node->safe_psql('postgres', "SELECT pg_database_size('postgres')");

# Seconds from a signal to the end of the statement. The machine may be busy: the better of two.
sub try_cancel
{
	my ($phase, $how) = @_;
	my $best;

	for my $attempt (1 .. 2)
	{
		my $session = start_psql($node, $create);
		my $pid = wait_for_progress($node, $phase, $session);

		if (!defined $pid)
		{
			finish_psql($session);
			$node->safe_psql('postgres', 'DROP INDEX IF EXISTS items_idx');
			next;
		}
		$node->safe_psql('postgres', "SELECT $how($pid)");
		my $start = time;
		my $err = finish_psql($session);
		my $took = time - $start;
		$node->safe_psql('postgres', 'DROP INDEX IF EXISTS items_idx');
		next unless $err =~ /cancel|terminating/;
		$best = $took if !defined $best || $took < $best;
		last if $best < 0.5;
	}
	return $best;
}

my $phases = 0;
for my $phase ('loading', 'first neighbors', 'refining', 'reordering', 'connecting', 'writing index', 'writing WAL')
{
	my $took = try_cancel($phase, 'pg_cancel_backend');

	# short phases may be over before the signal arrives
	next unless defined $took;
	$phases++;
	cmp_ok($took, '<', 1, "cancelled while $phase");
}
cmp_ok($phases, '>=', 2, 'several phases were met');
cmp_ok(try_cancel('neighbors', 'pg_terminate_backend') // 0, '<', 1, 'terminated while it builds the graph');

# a timeout that comes at any time
for my $ms (50, 200, 500, 1000)
{
	my $start = time;
	my ($rc, $out, $err) = $node->psql('postgres', "SET statement_timeout = $ms; $create");

	if ($rc == 0)
	{
		$node->safe_psql('postgres', 'DROP INDEX items_idx');
		next;
	}
	like($err, qr/statement timeout/, "statement_timeout = $ms ms: says so");
	cmp_ok(time - $start, '<', $ms / 1000 + 1.5, "statement_timeout = $ms ms: ends in time");
}

# a query and a check are cancelled too
$node->safe_psql('postgres', $create);
my ($rc, $out, $err) = $node->psql('postgres',
	"SET enable_seqscan = off; SET statement_timeout = 100;
	 SELECT count(*) FROM generate_series(1, 100000) g, LATERAL (SELECT id FROM items WHERE id <> g ORDER BY val <-> (SELECT val FROM items WHERE id = 1 + g % 20000) LIMIT 10) s");
like($err, qr/statement timeout/, 'searches');
index_is_complete($node, 'built at last');

$node->safe_psql('postgres', 'DROP INDEX items_idx; CHECKPOINT');
cmp_ok($node->safe_psql('postgres', "SELECT pg_database_size('postgres')"), '<', $size + 4 * 1024 * 1024, 'no files were left behind');

$node->stop;
done_testing();
