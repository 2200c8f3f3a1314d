# Memory, descriptors and shared memory stay flat over many queries, builds, merges and loads, in
# the session and in the server's background processes; and transaction ids pass the end of their
# range beside merges, VACUUM and an open cursor.
#
# A round warms up, notes what each process has, goes on for several times as long, and compares.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use Gpugraph;
use Residency;
use Torture;

# What a process may have more than at first: caches of the catalogs grow in steps.
use constant MOST_MORE_KB => 6000;
use constant { QUERIES => 3000, BUILDS => 6 };

my ($nqueries, $nbuilds, $npasses) = (0, 0, 0);
my @wrong;
my $node = service_node('resources', conf => "log_statement = none\n");

$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION vec(i bigint) RETURNS vector LANGUAGE sql IMMUTABLE AS $$
	SELECT array_agg(sin(i % 40 * d) + 0.4 * sin(i * d * 0.61))::real[]::vector(16)
	FROM generate_series(1, 16) d $$;
CREATE TABLE items (id bigint, cat int, val vector(16));
INSERT INTO items SELECT i, i % 10, vec(i) FROM generate_series(1, 3000) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat) WITH (seal_rows = 300);
SQL

# ---- flat

# Private memory in kB, and descriptors.
sub use_of
{
	my ($pid) = @_;
	my ($rss) = slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+)/m;
	my @fds = glob "/proc/$pid/fd/*";

	return [ $rss, scalar @fds ];
}

sub processes
{
	my ($c) = @_;

	return map { ($_->[1] => $_->[0]) } query($c, "SELECT pid, backend_type ||
		CASE WHEN pid = pg_backend_pid() THEN ' (own)' ELSE '' END FROM pg_stat_activity
		WHERE backend_type ~ 'gpugraph device' OR pid = pg_backend_pid()");
}

sub shared
{
	my ($c) = @_;

	return join ' ', map { "@$_" } query($c, "SELECT name, allocated_size FROM pg_shmem_allocations
		WHERE name ~ 'gpugraph' ORDER BY 1");
}

sub ask
{
	my ($c, $n) = @_;

	for my $i (1 .. $n / 10)
	{
		my $sql = join ';', map {
			my $of = number(3000);
			my $where = one_of('', '', 'WHERE cat = 3', 'WHERE id % 50 = 1');

			"SELECT id FROM items $where ORDER BY val <-> vec($of) LIMIT " . one_of(1, 10, 100) }
			1 .. 10;

		query($c, $sql);
		$nqueries += 10;
	}
	query($c, "SELECT count(*) FROM gpugraph_search('items_idx',
		(SELECT array_agg(vec(i)) FROM generate_series(1, 50) i), 5)");
	try_query($c, "SELECT id FROM items ORDER BY val <-> '[1,2]' LIMIT 3");
	return;
}

sub build
{
	my ($c, $n) = @_;

	for my $i (1 .. $n)
	{
		query($c, one_of('REINDEX INDEX items_idx', "SELECT gpugraph_merge('items_idx')",
			"SELECT gpugraph_learn('items_idx', (SELECT array_agg(vec(i * 7))
				FROM generate_series(1, 50) i))"));
		query($c, 'UPDATE items SET cat = cat WHERE id % 30 = ' . number(30));
		query($c, 'VACUUM items');
		query($c, "SELECT gpugraph_evict('items_idx'), gpugraph_prewarm('items_idx')");
		$nbuilds++;
	}
	return;
}

sub stays_flat
{
	my $c = connect_to($node);

	query($c, 'SET enable_seqscan = off');
	# an order of both, so that what one leaves shows in the other
	ask($c, QUERIES / 5);
	build($c, BUILDS);
	ask($c, QUERIES / 5);
	my %pid = processes($c);
	my %before = map { $_ => use_of($pid{$_}) } keys %pid;
	my $shared = shared($c);
	build($c, BUILDS);
	ask($c, QUERIES);
	for my $who (sort keys %pid)
	{
		my $now = use_of($pid{$who});

		push @wrong, "$who: $before{$who}[0] kB, then $now->[0]"
			if $now->[0] > $before{$who}[0] + MOST_MORE_KB;
		push @wrong, "$who: $before{$who}[1] descriptors, then $now->[1]"
			if $now->[1] > $before{$who}[1] + 8;
	}
	push @wrong, 'shared memory has grown' if $shared ne shared($c);
	return;
}

# ---- transaction ids

# The next transaction id is so near the end of the range, in steps that freezing allows.
sub pass_ids
{
	my ($next) = @_;
	my $segment = sprintf '%04X', int($next / (32768 * 32));

	$node->stop;
	open my $out, '>', $node->data_dir . "/pg_xact/$segment" or die "$segment: $!";
	print $out "\0" x (8192 * 32);
	close $out;
	# what is skipped counts as aborted, and nothing has it
	system_or_bail('pg_resetwal', '-D', $node->data_dir, '-x', $next);
	$node->start;
	$node->safe_psql($_, 'VACUUM (FREEZE, DISABLE_PAGE_SKIPPING)') for 'postgres', 'template1';
	$node->safe_psql('postgres', "UPDATE pg_database SET datallowconn = true
		WHERE datname = 'template0'");
	$node->safe_psql('template0', 'VACUUM (FREEZE, DISABLE_PAGE_SKIPPING)');
	return;
}

sub ids_pass
{
	my @steps = (1_500_000_000, 2_900_000_000, 4_294_967_296 - 60);

	pass_ids($_) for @steps;
	my ($c, $old) = (connect_to($node), connect_to($node));
	query($old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SET enable_seqscan = off;
		DECLARE c CURSOR FOR SELECT id FROM items ORDER BY val <-> vec(7)");
	my @rows = map { $_->[0] } query($old, 'FETCH 10 FROM c');
	my %wanted = map { $_->[0] => 1 } query($old, 'SELECT id FROM items');
	my $before = query($c, 'SELECT pg_current_xact_id()::text::numeric / 4294967296::numeric');
	for my $i (1 .. 40)
	{
		query($c, "INSERT INTO items SELECT 100000 + $i * 100 + j, j % 10, vec(j)
			FROM generate_series(1, 20) j");
		query($c, "DELETE FROM items WHERE id % 97 = $i");
		query($c, 'VACUUM items') if $i % 5 == 0;
		query($c, "SELECT gpugraph_merge('items_idx')") if $i % 4 == 0;
		query($c, 'SELECT pg_current_xact_id()') for 1 .. 3;
	}
	my $after = query($c, 'SELECT pg_current_xact_id()::text::numeric / 4294967296::numeric');
	push @wrong, "ids did not pass the end: $before, $after" if int($before) == int($after);
	push @rows, map { $_->[0] } query($old, 'FETCH ALL FROM c');
	my @more = grep { !delete $wanted{$_} } @rows;
	push @wrong, 'an old cursor: ' . keys(%wanted) . ' rows missing, ' . @more . ' too many'
		if %wanted || @more;
	query($old, 'COMMIT');
	query($c, 'VACUUM items');
	my ($table) = query($c, 'SELECT count(*) FROM items');
	my ($index) = query($c, 'SET enable_seqscan = off; SELECT count(*), count(DISTINCT id) FROM
		(SELECT id FROM items ORDER BY val <-> vec(3)) s');
	push @wrong, "beyond the end: @$index rows by the index, $table->[0] in the table"
		if "@$index" ne "$table->[0] $table->[0]";
	my $answer = try_query($c, "SELECT gpugraph_check('items_idx', true)");
	push @wrong, "beyond the end: $answer->{error}{message}" if $answer->{error};
	$npasses++;
	return;
}

sub one_round
{
	my ($round) = @_;

	@wrong = ();
	eval { $round == 0 ? ids_pass() : stays_flat(); 1 } or push @wrong, "died: $@";
	return @wrong;
}

rounds('resources', \&one_round);
note "$nqueries queries, $nbuilds builds, $npasses times beyond the last transaction id";
$node->stop;
done_testing();
