# An index whose directory is full takes rows, and comes free with the next merge, also while an old
# snapshot keeps all that is given back.
#
# The bug: each merge and the inserts after it took turns at the end of the file, and each run was
# an entry of 1,024. At the limit merges failed before they gave anything back, and then every
# INSERT did: "gpugraph index has more than 1024 extents". Only REINDEX helped.
#
# The fix: entries are kept for inserts and for merges that make room, and merges rewrite what has
# many.
use Gpugraph;
use Format;
use Merging;

use constant LIMIT => 1024;

my $node = merging_node('full', conf => "max_prepared_transactions = 2\n");
my $wide = 'SELECT i, wide(i)::vector(1900) FROM generate_series';

# The extents, with the only one of a kind in so many that there are as many as there may be.
sub fill_directory
{
	my ($rel, $kind) = @_;
	my $file = index_file($node, "${rel}_idx");

	$node->stop;
	my $end = (-s $file) / PAGE;
	my @all = split_extent($file, $kind, LIMIT - 1 - @{ read_directory($file)->{extents} });

	# behind all, so that the delta cannot go on where it ends
	push @all, [ $end, 4, NO_SEGMENT, DIRECTORY, 0 ];
	is(scalar @all, LIMIT, "$rel: the directory is full");
	write_extents($file, \@all, $end .. $end + 3);
	$node->start;
	return;
}

sub entries
{
	my ($rel) = @_;

	$node->sql('CHECKPOINT');
	return read_directory(index_file($node, "${rel}_idx"))->{nextents};
}

$node->sql(<<"SQL");
CREATE FUNCTION wide(i int) RETURNS vector LANGUAGE sql AS \$\$
	SELECT array_agg(sin(i * 13 + d * d))::vector FROM generate_series(1, 1900) d \$\$;
CREATE TABLE delta (id int, val vector(1900));
CREATE INDEX delta_idx ON delta USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, seal_rows = 0);
INSERT INTO delta $wide(1, 1100) i;
CREATE TABLE segment AS $wide(1, 1100) i;
ALTER TABLE segment RENAME i TO id;
ALTER TABLE segment RENAME wide TO val;
CREATE INDEX segment_idx ON segment USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, seal_rows = 0);
INSERT INTO segment $wide(1101, 1120) i;
SQL
my %kinds = (delta => DELTA, segment => VECTORS);
fill_directory($_, $kinds{$_}) for sort keys %kinds;

$node->sql(
	"CREATE TABLE other (id int); BEGIN; INSERT INTO other VALUES (1); PREPARE TRANSACTION 'p'");
my $prepared = $node->sql('SELECT transaction FROM pg_prepared_xacts');
my $old = start_psql($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1',
	'SELECT pg_sleep(600)');
my $pid = backend_pid($node, 'pg_sleep');

for my $rel (sort keys %kinds)
{
	my ($rc, $out, $err) = $node->psql('postgres', "INSERT INTO $rel $wide(2001, 2050) i");
	is("$rc $err", '0 ', "$rel: rows are inserted");
	index_is_complete($node, "$rel: a full directory", $rel);
	my ($entries, $limit) = split /\|/, $node->sql(
		"SELECT extents, extents_limit FROM gpugraph_index_info('${rel}_idx')");
	cmp_ok($entries, '>=', LIMIT, "$rel: no entry is free");
	is($limit, LIMIT, "$rel: one sees how many there may be");
	$node->sql("COMMIT PREPARED 'p'") if $rel eq 'delta';
}

# of each index the log tells once who keeps what was given back
my $log = slurp_file($node->logfile);
my $told = qr/LOG:  directory of index "delta_idx" is filling up: 10\d\d of 1024 entries\n/;
is(scalar(() = $log =~ /$told/g), 1, 'the log tells once');
like($log, qr/$told[^\n]*DETAIL: [^\n]* are kept for the prepared transaction $prepared\.\n/,
	'of the prepared transaction');
like($log, qr/"segment_idx" is filling up[^\n]*\n[^\n]*are kept for process $pid,/,
	'or of the process');

# the worker merges as soon as it may: it hears of it by the next rows
for my $rel (sort keys %kinds)
{
	$node->sql("ALTER INDEX ${rel}_idx SET (seal_rows = 100000);
		VACUUM $rel");
	ok_in_time(sub { entries($rel) < LIMIT / 4 }, "$rel: a merge makes room");
	index_is_complete($node, "$rel: room", $rel);
	my ($rc, $out, $err) = $node->psql('postgres', "INSERT INTO $rel $wide(3001, 3050) i;
		SELECT gpugraph_merge('${rel}_idx')");
	is("$rc $err", '0 ', "$rel: and merges go on");
	index_is_complete($node, "$rel: merged", $rel);
	cmp_ok(entries($rel), '<', 30, "$rel: few entries are in use");
}
$node->sql("SELECT pg_terminate_backend($pid)");
finish_psql($old);

finish_test($node);
