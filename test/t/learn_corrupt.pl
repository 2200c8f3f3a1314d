# Damage to the sample that an index learns from: gpugraph_check() names it, what reads it gives an
# error, searches go on unless the directory itself is bad, and REINDEX mends the index, with a
# warning that the sample is lost.
use Gpugraph;
use Format;

# An extent of the sample, in the metapage: overwrite bytes of it.
sub patch_extent
{
	my ($file, $offset, $bytes) = @_;
	my $d = read_directory($file);
	my ($i) = grep { $d->{extents}[$_][3] == SAMPLE } 0 .. $#{ $d->{extents} };

	patch($file, META, $d->{extents_at} + $i * EXTENT + $offset, $bytes);
	return;
}

sub empty_page { my ($file) = @_; write_page($file, block_of($file, SAMPLE, 1), "\0" x PAGE); }

# Name => [what to do to the file, what is said, 1: the directory itself is bad]
my %cases = (
	dimensions => [ sub { patch($_[0], SAMPLE, 0, pack 'L', 40) }, qr/300 queries of 40 dim/ ],
	no_dimensions => [ sub { patch($_[0], SAMPLE, 0, pack 'L', 0) }, qr/of 0 dimensions/ ],
	many => [ sub { patch($_[0], SAMPLE, 4, "\xFF" x 4) }, qr/4294967295 queries/ ],
	none => [ sub { patch($_[0], SAMPLE, 4, pack 'L', 0) }, qr/a sample of 0 queries/ ],
	edges => [ sub { patch($_[0], SAMPLE, 8, pack 'L', 60000) }, qr/with 60000 edges/ ],
	stamp => [ sub { patch_stamp($_[0], SAMPLE, 8, pack 'L', 1) },
		qr/segment 1 instead|of segment/ ],
	kind => [ sub { patch_stamp($_[0], SAMPLE, 16, pack 'S', TIDS) },
		qr/kind 13|instead of sample/ ],
	second_page => [ \&empty_page, qr/empty, where page 1 of sample|page is not number 1/ ],
	owner => [ sub { patch_extent($_[0], 8, pack 'L', 77) }, qr/the sample is number 77/, 1 ],
	number => [ sub { patch_extent($_[0], 16, pack 'Q', 1) },
		qr/starts with page 1 of kind 13/, 1 ],
	outside => [ sub { patch_extent($_[0], 0, pack 'L', 5000) },
		qr/the directory goes on to block \d+ of \d+/, 1 ],
	freed => [ sub { patch_extent($_[0], 12, pack 'S', FREE) },
		qr/is of kind 8, and belongs to segment/, 1 ],
	# blocks that are free in all respects: an index that never had a sample looks the same
	lost => [ sub { patch_extent($_[0], 8, pack 'L S', NO_SEGMENT, FREE) }, undef ]);

my @names = sort keys %cases;
my $node = new_node('main');
my %file;
$node->sql("SELECT make_data('source', 600, 16, 20);
	SELECT make_data('asked', 300, 16, 7)");
for my $name (@names)
{
	$node->sql("CREATE TABLE $name AS SELECT * FROM source;
		CREATE INDEX ${name}_idx ON $name USING gpugraph (val vector_l2_ops)
			WITH (graph_degree = 8, seal_rows = 100);
		SELECT gpugraph_learn('${name}_idx', array_agg(val), 4) FROM asked");
	$file{$name} = index_file($node, "${name}_idx");
}
$node->stop;
$cases{$_}[0]->($file{$_}) for @names;
$node->start;

for my $name (@names)
{
	my (undef, $said, $bad) = @{ $cases{$name} };
	my $index = "'${name}_idx'";

	my @calls = ("gpugraph_check($index)", "gpugraph_learn($index, array_agg(val), 4)");
	for my $what ($said ? @calls : ())
	{
		my ($rc, undef, $err) = $node->psql('postgres',
			"\\set VERBOSITY verbose\nSELECT $what FROM asked WHERE id < 100 GROUP BY id < 0");

		like($err, $said, "$name: $what");
		like($err, qr/XX00[12]/, "$name: its SQLSTATE");
	}
	my ($rc, $out, $err) = $node->psql('postgres', "SET enable_seqscan = off;
		SELECT count(*) FROM (SELECT id FROM $name ORDER BY val <-> (SELECT val FROM source
			WHERE id = 5) LIMIT 5) s");
	is($bad ? $err =~ /$said/ : $out, $bad ? 1 : 5, "$name: a search");
	($rc, undef, $err) = $node->psql('postgres', "REINDEX INDEX ${name}_idx");
	is($rc, 0, "$name: REINDEX");
	my $warning = qr/WARNING:  the sample of queries of index "${name}_idx" cannot be read/;
	like($err, $said ? qr/$warning\nDETAIL: .*\nHINT/ : qr/^$/, "$name: it tells what is lost");
	is($node->sql("SELECT sample_queries FROM gpugraph_index_info($index)"), 0,
		"$name: there is no sample");
	index_is_complete($node, $name, $name);
}
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC/, 'no process crashed');
finish_test($node);
