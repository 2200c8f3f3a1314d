# Bytes of an index are overwritten at random, with page checksums off. Whatever is done with it
# then may fail, but the server stays up, nothing hangs, nothing asks for absurd amounts of memory,
# no other block is written, and REINDEX repairs it.
use Gpugraph;
use Format;

# Each case has an index of its own: one restart serves them all.
use constant CASES => 160;

# The same cases on every machine: Perl's rand() is its own since 5.20.
srand(20240607);

sub pick { my (@of) = @_; return $of[ int(rand(scalar @of)) ]; }

# An offset on the metapage that means something.
sub meta_offset
{
	my ($extents) = @_;

	return pick(int(rand(HEADER)), HEADER + int(rand(META_HEAD)),
		HEADER + META_HEAD + int(rand(SEGMENT + PIECE)),
		HEADER + META_HEAD + SEGMENT + PIECE + int(rand($extents * EXTENT)),
		PAGE - STAMP + int(rand(STAMP)));
}

sub page_offset { return pick(int(rand(HEADER)), HEADER + int(rand(400)), int(rand(PAGE)),
	PAGE - STAMP + int(rand(STAMP))); }

# Overwrite some bytes of the file; says where.
sub damage
{
	my ($file, $case) = @_;
	my $blocks = (-s $file) / PAGE;
	my @done;

	open my $fh, '+<:raw', $file or die "cannot open $file: $!";
	for (1 .. 1 + int(rand(3)))
	{
		my $block = $case % 2 ? 0 : 1 + int(rand($blocks - 1));
		my $offset = $block == 0 ? meta_offset(9) : page_offset();
		my $value = pick(pack('C', int(rand(256))), "\0", "\xFF", "\0\0\0\0", "\xFF\xFF\xFF\xFF",
			pack('L', int(rand(2**32))));
		my $length = length $value;

		$length = PAGE - $offset if $offset + $length > PAGE;
		seek $fh, $block * PAGE + $offset, 0;
		print $fh substr($value, 0, $length);
		push @done, "$block+$offset=" . unpack('H*', substr($value, 0, $length));
	}
	close $fh or die "cannot write $file: $!";
	return join ' ', @done;
}

my $node = new_node('fuzz', conf => "statement_timeout = 60s\nshared_buffers = 32MB\n");
my $sql = '';
for my $case (1 .. CASES)
{
	# a segment with equal rows, a delta of some pages with a part that was given back, and dead
	# rows in both
	my $dim = $case % 5 ? 8 : 2500;
	my $rows = $case % 5 ? 300 : 40;
	my $columns = $case % 3 ? '' : ', cat, name';

	$sql .= <<"SQL";
CREATE TABLE fuzz_$case (id int, val vector($dim), cat int DEFAULT 3, name text DEFAULT 'name')
	WITH (vacuum_truncate = off);
INSERT INTO fuzz_$case SELECT i,
	(SELECT array_agg((i * (d * 7 + 3) % 101)::real) FROM generate_series(1, $dim) d)::vector
	FROM generate_series(1, $rows) i;
INSERT INTO fuzz_$case SELECT id + 1000, val FROM fuzz_$case WHERE id % 10 = 0;
CREATE INDEX fuzz_${case}_idx ON fuzz_$case USING gpugraph (val vector_l2_ops$columns)
	WITH (graph_degree = 8, intermediate_graph_degree = 16);
INSERT INTO fuzz_$case SELECT id + 2000, val FROM fuzz_$case WHERE id <= 1000;
INSERT INTO fuzz_$case SELECT id + 4000, val FROM fuzz_$case WHERE id <= 1000;
DELETE FROM fuzz_$case WHERE id BETWEEN 2001 AND 2250;
DELETE FROM fuzz_$case WHERE id % 25 = 1;
VACUUM fuzz_$case;
INSERT INTO fuzz_$case SELECT id + 6000, val FROM fuzz_$case WHERE id <= 10;
DELETE FROM fuzz_$case WHERE id % 25 = 2;
SQL
}
$node->sql($sql);
my %file = split /[|\n]/, $node->sql(
	"SELECT c, pg_relation_filepath(format('fuzz_%s_idx', c)::regclass) FROM generate_series(1, "
	. CASES . ') c');
my %blocks = map { $_ => (-s $node->data_dir . "/$file{$_}") / PAGE } keys %file;
$node->stop;
my %damage = map { $_ => damage($node->data_dir . "/$file{$_}", $_) } sort { $a <=> $b } keys %file;
$node->start;
my $started = $node->sql('SELECT pg_postmaster_start_time()');

for my $case (1 .. CASES)
{
	my $dim = $case % 5 ? 8 : 2500;
	my $query = "(SELECT val FROM fuzz_1 WHERE id = 5)";
	$query = "(SELECT val FROM fuzz_5 WHERE id = 5)" if $dim > 8;
	my (undef, undef, $err) = $node->psql('postgres', <<"SQL", on_error_stop => 0);
\\set VERBOSITY verbose
SET statement_timeout = '30s';
SET enable_seqscan = off;
SELECT count(*) FROM (SELECT id FROM fuzz_$case ORDER BY val <-> $query LIMIT 5) s;
SET gpugraph.itopk_size = 4;
SELECT count(*) FROM (SELECT id FROM fuzz_$case ORDER BY val <-> $query) s;
SELECT count(*) FROM (SELECT id FROM fuzz_$case WHERE cat = 3 AND name = 'name'
	ORDER BY val <-> $query LIMIT 5) s;
INSERT INTO fuzz_$case SELECT i, $query FROM generate_series(9001, 9003) i;
SELECT gpugraph_check('fuzz_${case}_idx', true);
VACUUM fuzz_$case;
INSERT INTO fuzz_$case SELECT i, $query FROM generate_series(9101, 9103) i;
INSERT INTO fuzz_$case SELECT i, $query FROM generate_series(9201, 9500) i;
SELECT * FROM gpugraph_index_info('fuzz_${case}_idx');
SELECT gpugraph_check('fuzz_${case}_idx');
SELECT count(*) FROM (SELECT id FROM fuzz_$case ORDER BY val <-> $query LIMIT 5) s;
CHECKPOINT;
SQL
	# a TID that is none leads to blocks that the table has not
	my $known = qr/XX00[12]|0A000|different\ vector\ dimensions
		|expected\ \d+\ dimensions|could\ not\ open\ file\ .*target\ block/x;
	my @bad = grep { !/$known/ } ($err =~ /ERROR: +.*/g);
	my $grown = (-s $node->data_dir . "/$file{$case}") / PAGE - $blocks{$case};

	ok(!@bad && $err !~ /server closed|FATAL|PANIC/ && $grown < 700,
		"case $case ($damage{$case})") or diag("$grown new blocks:\n$err");
	last if !wait_until_up($node);
}
is($node->sql('SELECT pg_postmaster_start_time()'), $started, 'the server was never down');
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC/, 'no process crashed');

for my $case (1 .. CASES)
{
	$node->sql("REINDEX INDEX fuzz_${case}_idx") if $case % 24 == 1;
}
index_is_complete($node, "case $_ after REINDEX", "fuzz_$_") for grep { $_ % 24 == 1 } 1 .. CASES;

finish_test($node);
