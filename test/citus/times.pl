# What three servers cost: a query of all shards beside the same query of each shard alone, with
# Citus and by postgres_fdw. Answers are asserted, times are printed: p50 of one client, in
# microseconds, by turns. "Empty" is the same statement over shards without rows, which is what
# Citus or postgres_fdw take themselves.
#
#	TESTS=times [ROWS=150000] test/citus/run TARBALL
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../t", $FindBin::Bin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use Gpugraph;
use Servers;

my $rows = $ENV{ROWS} || 6000;
my $rounds = $ENV{ROWS} ? 3 : 1;
my $seconds = $ENV{ROWS} ? 4 : 1;
my @nodes = citus_cluster(2);
my $main = $nodes[0];

$main->safe_psql('postgres', "SELECT citus_set_node_property('" . $main->host . "', "
	. $main->port . ", 'shouldhaveshards', true)");
make_items($main, $rows, 64);
$main->safe_psql('postgres', <<'SQL');
SET citus.shard_count = 3;
CREATE TABLE docs (id int PRIMARY KEY, cat int, big int, val vector(64));
CREATE TABLE none (id int PRIMARY KEY, cat int, big int, val vector(64));
SELECT create_distributed_table('docs', 'id');
SELECT create_distributed_table('none', 'id', colocate_with => 'docs');
INSERT INTO docs SELECT * FROM items;
CREATE INDEX docs_idx ON docs USING gpugraph (val);
CREATE INDEX none_idx ON none USING gpugraph (val);
CREATE EXTENSION postgres_fdw;
SQL

# The shards of docs and of none by the nodes on which they are, as tables that may be asked there.
sub shards
{
	my ($table) = @_;
	my @shards;

	for my $node (@nodes)
	{
		my $name = $main->safe_psql('postgres', "SELECT shard_name FROM citus_shards
			WHERE table_name = '$table'::regclass AND nodeport = " . $node->port);

		push @shards, [ $node, $name ];
	}
	return @shards;
}

# postgres_fdw over the same shards: a function that has each of them limit its own rows
my $number = 0;
for my $node (@nodes[ 1, 2 ])
{
	my ($host, $port) = ($node->host, $node->port);

	$number++;
	$main->safe_psql('postgres', "CREATE SERVER s$number FOREIGN DATA WRAPPER postgres_fdw
		OPTIONS (host '$host', port '$port', dbname 'postgres', extensions 'vector',
		async_capable 'true', use_remote_estimate 'false');
		CREATE USER MAPPING FOR CURRENT_USER SERVER s$number");
}
for my $table ('docs', 'none')
{
	my @shards = shards($table);
	my @parts = ($shards[0][1]);

	for my $i (1, 2)
	{
		push @parts, "${table}_far_$i";
		$main->safe_psql('postgres', "CREATE FOREIGN TABLE $parts[-1]
			(id int, cat int, big int, val vector(64)) SERVER s$i
			OPTIONS (table_name '$shards[$i][1]')");
	}
	my $all = join ' UNION ALL ',
		map { "(SELECT id, val <-> q AS d FROM $_ ORDER BY val <-> q LIMIT k)" } @parts;
	$main->safe_psql('postgres', "CREATE FUNCTION near_$table(q vector, k int)
		RETURNS TABLE (id int) LANGUAGE sql STABLE AS
		\$\$SELECT id FROM ($all OFFSET 0) s ORDER BY d LIMIT k\$\$");
}

my @vectors = split /\n/, $main->safe_psql('postgres', 'SELECT val FROM queries ORDER BY q');

sub by_citus { return "SELECT id FROM $_[0] ORDER BY val <-> '$_[1]' LIMIT 10" }
sub by_fdw { return "SELECT id FROM near_$_[0]('$_[1]', 10)" }

# ---- answers
my %found = (citus => 0, fdw => 0, one => 0);
my $exact = 0;
my $set = 'SET enable_seqscan = off; SET citus.propagate_set_commands = local; BEGIN;';
for my $vector (@vectors)
{
	my ($one, $truth) = (by_citus('items', $vector), 'SET enable_indexscan = off;');
	my $wanted = $main->safe_psql('postgres', "$truth $one");
	my %true = map { $_ => 1 } split /\n/, $wanted;
	my %sql = (one => $one, citus => by_citus('docs', $vector), fdw => by_fdw('docs', $vector));

	for my $way (sort keys %sql)
	{
		$found{$way} += grep { $true{$_} }
			split /\n/, $main->safe_psql('postgres', "$set $sql{$way}; COMMIT");
	}
	$exact++ if $main->safe_psql('postgres', "$set SET LOCAL enable_indexscan = off;
		SET LOCAL enable_seqscan = on; $sql{citus}; COMMIT") eq $wanted;
}
is($exact, @vectors, 'Citus: exact plans answer as one table does');
cmp_ok($found{$_}, '>=', $found{one}, "$_: recall is that of one table") for 'citus', 'fdw';

# ---- times
my %p50;

# p50 of one client that asks for all vectors in turns
sub p50
{
	my ($node, $what, @sql) = @_;
	my $dir = $PostgreSQL::Test::Utils::tmp_check;
	my $log = "$dir/times";
	my @files;

	unlink glob("$log.*");
	for my $i (0 .. $#sql)
	{
		append_to_file("$dir/$what$i.sql", "$sql[$i];\n") unless -f "$dir/$what$i.sql";
		push @files, '-f', "$dir/$what$i.sql";
	}
	$node->command_ok(
		[ 'pgbench', '-n', '-M', 'prepared', '-c', 1, '-T', $seconds, '-l',
			"--log-prefix=$log", @files, $node->connstr('postgres') ],
		$what);
	my @times = sort { $a <=> $b }
		map { (split / /)[2] } split /\n/, join '', map { slurp_file($_) } glob("$log.*");
	push @{ $p50{$what} }, $times[ @times / 2 ];
	return;
}

for (1 .. $rounds)
{
	my @shards = shards('docs');

	for my $i (0 .. 2)
	{
		my ($node, $shard) = @{ $shards[$i] };

		p50($node, "shard$i", map { by_citus($shard, $_) } @vectors);
	}
	for my $table ('docs', 'none')
	{
		p50($main, "citus_$table", map { by_citus($table, $_) } @vectors);
		p50($main, "fdw_$table", map { by_fdw($table, $_) } @vectors);
	}
}
diag("$_: " . join(', ', @{ $p50{$_} })) for sort keys %p50;
done_testing();
