# Numbers that only grow, near their end, and longer ones beyond 32 bits: an index works
# up to the last one, and then says so. None comes round again. What the numbers are at the start is
# written into the metapage.
#
# The bug: the ids of segments did come round. The segment of id 2^32 - 1 passed for part of the
# delta, and later ones for segments that were there already.
# The fix: there is no merge without an id.
use Gpugraph;
use Format;
use Residency;

use constant { GENERATION => 16, EPOCH => 24 };

my $node = service_node('numbers');
my $rows = 'SELECT i, ARRAY[i, i % 7, i % 11, 1]::real[]::vector FROM generate_series';

# A table with an index whose metapage gets these numbers at these offsets.
sub make_index
{
	my ($rel, %numbers) = @_;

	$node->sql("CREATE TABLE $rel (id int, val vector(4));
		INSERT INTO $rel $rows(1, 1000) i;
		CREATE INDEX ${rel}_idx ON $rel USING gpugraph (val vector_l2_ops)
		WITH (seal_rows = 0, graph_degree = 8)");
	# format 3
	$node->sql("BEGIN; INSERT INTO $rel VALUES (0); ROLLBACK");
	set_numbers($rel, %numbers);
	return;
}

sub set_numbers
{
	my ($rel, %numbers) = @_;
	my $file = index_file($node, "${rel}_idx");

	$node->stop;
	patch($file, META, $_, $numbers{$_}) for keys %numbers;
	$node->start;
	return;
}

sub format_of
{
	my ($rel) = @_;

	$node->sql('CHECKPOINT');
	return read_directory(index_file($node, "${rel}_idx"))->{version};
}

# The index is sound, agrees with the table, and a device answers from it: three tests.
sub is_good
{
	my ($rel, $what) = @_;
	my $near = "SELECT array_agg(s.distance ORDER BY s.distance) FROM gpugraph_search('${rel}_idx',
		ARRAY['[1000,3,5,1]', '[500,3,5,1]']::vector[], 10) s";

	index_is_complete($node, "$rel, $what", $rel);
	$node->sql("SELECT gpugraph_prewarm('${rel}_idx')");
	my ($before) = answered_by($node, "${rel}_idx");
	my $by_device = $node->sql($near);
	my ($after) = answered_by($node, "${rel}_idx");
	is($after - $before . " $by_device", '2 ' . $node->sql("SET gpugraph.engine = cpu; $near"),
		"$rel, $what: a device answers");
	return;
}

# Rows come and go, and there is a merge: its error, or nothing.
sub change
{
	my ($rel, $from) = @_;
	my $to = $from + 499;

	$node->sql("INSERT INTO $rel $rows($from, $to) i");
	$node->sql("DELETE FROM $rel WHERE id > $from - 400 AND id % 5 = 0");
	$node->sql("VACUUM $rel");
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose
		SELECT gpugraph_merge('${rel}_idx')");
	return $err;
}

# generation and vacuum epoch have 64 bits: 2^32 is a number as any other
make_index('epochs', GENERATION, pack('Q', 2**32 - 3), EPOCH, pack('Q', 2**32 - 2));
for my $round (1 .. 3)
{
	is(change('epochs', 1001 + 500 * $round), '', "epochs, $round: a merge");
	is_good('epochs', $round);
}

# two ids are left
make_index('ids', META_NEXT_ID, pack('L', 2**32 - 3));
for my $round (1 .. 3)
{
	my $err = change('ids', 1001 + 500 * $round);

	if ($round < 3)
	{
		is($err, '', "ids, $round: a merge");
	}
	else
	{
		like($err, qr/ERROR:  54000: index "ids_idx" .*HINT:  REINDEX/s, 'no id is left');
	}
	is_good('ids', $round);
}
$node->sql('REINDEX INDEX ids_idx');
is(change('ids', 3001), '', 'ids, REINDEX: a merge');
is_good('ids', 'REINDEX');

# numbers of delta pages have 48 bits; with more than 32 the format is 4
make_index('pages', META_DELTA_FIRST, pack('L', 2**32 - 4));
for my $round (1 .. 3)
{
	is(change('pages', 1001 + 500 * $round), '', "pages, $round: a merge");
	is_good('pages', $round);
}
is(format_of('pages'), 4, 'pages: more than 32 bits are another format');
$node->sql("DELETE FROM pages WHERE id > 2600");
$node->sql("VACUUM pages; SELECT gpugraph_merge('pages_idx')");
is_good('pages', 'in 33 bits');

# such pages are moved towards the front of the file as others are
$node->sql("ALTER INDEX pages_idx SET (seal_rows = 1000000)");
$node->sql("INSERT INTO pages $rows(10001, 40000) i;
	DELETE FROM pages WHERE id BETWEEN 2 AND 2600");
$node->sql("VACUUM pages; SELECT gpugraph_merge('pages_idx')");
$node->sql("INSERT INTO pages $rows(50001, 53000) i; DELETE FROM pages WHERE id BETWEEN 10001 AND
	40000");
$node->sql('VACUUM pages');
ok(defined wait_for(sub { $node->sql("SELECT total_bytes <= 1.1 * (total_bytes - free_bytes) +
	16 * 8192 FROM gpugraph_index_info('pages_idx')") eq 't' }), 'in 33 bits: the file is short');
is_good('pages', 'moved');

# three pages of the delta are left of an index that has codes and their mean, too
$node->sql("ALTER INDEX pages_idx SET (storage = 'float32+int8'); REINDEX INDEX pages_idx");
set_numbers('pages', META_FEATURES, pack('L', 1 | 4 | 16), META_DELTA_FIRST, pack('L', 2**32 - 4),
	META_DELTA_HIGH, pack('S', 0xFFFF));
for my $round (4, 5)
{
	is(change('pages', 1001 + 500 * $round), '', "pages, $round: a merge");
	is_good('pages', $round);
}
like(error_of($node, "INSERT INTO pages $rows(3001, 4000) i"),
	qr/ERROR:  index "pages_idx" has no room for another row.*HINT:  REINDEX/s, 'no page is left');
is_good('pages', 'none is left');
is($node->sql("SELECT gpugraph_merge('pages_idx')"), 't', 'there can be a merge');
is_good('pages', 'merged');
$node->sql('REINDEX INDEX pages_idx');
is(change('pages', 5001), '', 'pages, REINDEX: a merge');
is_good('pages', 'REINDEX');

finish_test($node);
