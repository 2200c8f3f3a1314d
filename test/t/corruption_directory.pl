# Damage to directory pages, and to what the metapage says of them: every use of the index gives an
# error or is right, the server stays up, and no other block is written. First damage of known
# kinds, which the check names, then bytes at random.
use Gpugraph;
use Format;

use constant RANDOM_CASES => 20;

# The same cases on every machine: Perl's rand() is its own since 5.20.
srand(20261122);

sub pick { my (@of) = @_; return $of[ int(rand(scalar @of)) ]; }

# A directory page's block, and what its extents are.
sub page_of
{
	my ($file) = @_;
	my $d = read_directory($file);

	return ($d->{directory}[0], $d);
}

# Overwrite bytes of the directory page, counted from its payload's beginning.
sub patch_page
{
	my ($file, $offset, $bytes) = @_;
	my ($block) = page_of($file);
	my $page = read_page($file, $block);

	substr($page, HEADER + $offset, length $bytes) = $bytes;
	write_page($file, $block, $page);
	return;
}

# Overwrite bytes of the first extent of a kind that lies on the page, or in the metapage.
sub patch_extent
{
	my ($file, $kind, $offset, $bytes) = @_;
	my ($block, $d) = page_of($file);
	my ($i) = grep { $d->{extents}[$_][3] == $kind } 0 .. $#{ $d->{extents} };

	if ($i < $d->{nspilled})
	{
		patch_page($file, $i * EXTENT + $offset, $bytes);
	}
	else
	{
		patch($file, META, $d->{extents_at} + ($i - $d->{nspilled}) * EXTENT + $offset, $bytes);
	}
	return;
}

# Where in the page the stamp begins, from its payload's beginning
use constant STAMP_AT => PAGE - STAMP - HEADER;

my %cases = (
	block_meta => [ sub { patch($_[0], META, META_DIRECTORY, pack 'L', 0) },
		qr/block 0 holds no page of the directory/ ],
	block_behind => [ sub { patch($_[0], META, META_DIRECTORY, pack 'L', 99999) },
		qr/block 99999 holds no page of the directory/ ],
	block_invalid => [ sub { patch($_[0], META, META_DIRECTORY, "\xFF" x 4) },
		qr/block 4294967295 holds no page of the directory/ ],
	block_other => [ sub { patch($_[0], META, META_DIRECTORY, pack 'L', 1) },
		qr/page is not number 0 of the directory/ ],
	stamp_kind => [ sub { patch_page($_[0], STAMP_AT + 16, pack 'S', DELTA) },
		qr/page is not number 0 of the directory/ ],
	stamp_number => [ sub { patch_page($_[0], STAMP_AT + 12, pack 'L', 1) },
		qr/page is not number 0 of the directory/ ],
	stamp_instance => [ sub { patch_page($_[0], STAMP_AT, 'x' x 8) },
		qr/page is not number 0 of the directory/ ],
	length => [ sub { patch_page($_[0], 12 - HEADER, pack 'S', HEADER + 3 * EXTENT) },
		qr/page is not number 0 of the directory/ ],
	zeroes => [ sub { my ($block) = page_of($_[0]); write_page($_[0], $block, "\0" x PAGE) },
		qr/page is not number 0 of the directory/ ],
	more_pages => [ sub { patch($_[0], META, META_NDIRECTORY, pack 'S', 2) }, qr/out of range/ ],
	no_pages => [ sub { patch($_[0], META, META_NDIRECTORY, pack 'S', 0) }, qr/out of range/ ],
	too_many_pages => [ sub { patch($_[0], META, META_NDIRECTORY, pack 'S', 60000) },
		qr/out of range/ ],
	spilled_less => [ sub { patch($_[0], META, META_NSPILLED, pack 'S', 100) }, qr/out of range/ ],
	spilled_more => [ sub { patch($_[0], META, META_NSPILLED, pack 'S', 60000) },
		qr/out of range/ ],
	called_free => [ sub { patch_extent($_[0], DIRECTORY, 12, pack 'S', FREE) },
		qr/the directory has 1 pages, and extents for 0 blocks/ ],
	elsewhere => [ sub { patch_extent($_[0], DIRECTORY, 0, pack 'L', 2) },
		qr/the directory has 1 pages, and extents for 1 blocks, with 0 of them/ ],
	longer => [ sub { patch_extent($_[0], DIRECTORY, 4, pack 'L', 2) },
		qr/the directory has 1 pages, and extents for 2 blocks/ ],
	gap_grows => [ sub { patch_extent($_[0], DELTA, 16, pack 'Q', 1) }, qr/the delta's extent at/ ],
	delta_lost => [ sub { patch_extent($_[0], DELTA, 12, pack 'S', FREE) },
		qr/the delta's extent at/ ],
	delta_outside => [ sub { patch_extent($_[0], DELTA, 0, "\xFF" x 4) },
		qr/is not inside the relation/ ],
	free_twice => [ sub { my ($block) = page_of($_[0]);
		patch_extent($_[0], FREE, 0, pack 'L', $block) }, qr/overlaps/ ],
	vectors_twice => [ sub { patch_extent($_[0], VECTORS, 8, pack 'L', 7) },
		qr/0 pages of vectors/ ],
	kind => [ sub { patch_extent($_[0], TIDS, 12, pack 'S', 16) }, qr/is of kind 16/ ],
	taken => [ sub { patch_extent($_[0], TIDS, 12, pack 'S', TAKEN) }, qr/pages of kind 4/ ]);

# Overwrite some bytes of the directory page, or of what the metapage has behind its head.
sub damage
{
	my ($file) = @_;
	my ($block, $d) = page_of($file);
	my @done;

	for (1 .. 1 + int(rand(3)))
	{
		my $extent = HEADER + EXTENT * int(rand(DIRECTORY_EXTENTS)) + int(rand(EXTENT));
		my ($at, $offset) = @{ pick(
			[ $block, $extent ], [ $block, $extent ], [ $block, int(rand(HEADER)) ],
			[ $block, PAGE - STAMP + int(rand(STAMP)) ],
			[ 0, HEADER + META_NSEGMENTS + int(rand(META_DIRECTORY + 4 - META_NSEGMENTS)) ],
			[ 0, HEADER + META_HEAD + int(rand(4000)) ]) };
		my $value = pick(pack('C', int(rand(256))), "\0", "\xFF", "\0\0\0\0", "\xFF\xFF\xFF\xFF",
			pack('L', int(rand(500))), pack('S', int(rand(14))));
		my $page = read_page($file, $at);

		$value = substr $value, 0, PAGE - $offset;
		substr($page, $offset, length $value) = $value;
		write_page($file, $at, $page);
		push @done, "$at+$offset=" . unpack('H*', $value);
	}
	return join ' ', @done;
}

my @names = ((sort keys %cases), map { "random_$_" } 1 .. RANDOM_CASES);
my $node = new_node('main');

# a row of the delta fills a page, and every other one goes
my $sql = <<'SQL';
CREATE TABLE pattern AS SELECT i AS id,
	(SELECT array_agg(sin(i * 13 + d * d)) FROM generate_series(1, 1900) d)::vector(1900) AS val
	FROM generate_series(1, 440) i;
ALTER TABLE pattern ADD PRIMARY KEY (id);
SQL
for my $name (@names)
{
	$sql .= <<"SQL";
CREATE TABLE $name (LIKE pattern);
INSERT INTO $name SELECT * FROM pattern WHERE id <= 20;
CREATE INDEX ${name}_idx ON $name USING gpugraph (val vector_l2_ops) WITH (graph_degree = 8);
INSERT INTO $name SELECT * FROM pattern WHERE id > 20;
DELETE FROM $name WHERE id > 20 AND id < 430 AND id % 2 = 0;
VACUUM (FREEZE) $name;
SQL
}
$node->sql($sql);
my %file = map { $_ => index_file($node, "${_}_idx") } @names;
my %blocks = map { $_ => (-s $file{$_}) / PAGE } @names;
$node->stop;
my %damage;
for my $name (@names)
{
	my ($block, $d) = page_of($file{$name});

	die "one directory page was expected, not $d->{ndirectory}" if $d->{ndirectory} != 1;
	$damage{$name} = $cases{$name} ? $cases{$name}[0]->($file{$name}) : damage($file{$name});
}
$node->start;
my $started = $node->sql('SELECT pg_postmaster_start_time()');

for my $name (@names)
{
	my $check = "\\set VERBOSITY verbose\nSELECT gpugraph_check('${name}_idx')";

	if ($cases{$name})
	{
		my $err = error_of($node, $check);

		like($err, $cases{$name}[1], "$name: found");
		like($err, qr/XX002: .*HINT:  REINDEX the index/s, "$name: SQLSTATE and hint");
	}
	my (undef, undef, $err) = $node->psql('postgres', <<"SQL", on_error_stop => 0);
\\set VERBOSITY verbose
SET statement_timeout = '20s';
SET enable_seqscan = off;
SELECT id FROM $name ORDER BY val <-> (SELECT val FROM pattern WHERE id = 5) LIMIT 5;
SELECT count(*)
	FROM (SELECT id FROM $name ORDER BY val <-> (SELECT val FROM pattern WHERE id = 5)) s;
INSERT INTO $name SELECT 1000 + id, val FROM pattern WHERE id <= 3;
SELECT gpugraph_check('${name}_idx', true);
DELETE FROM $name WHERE id BETWEEN 21 AND 100 OR id % 9 = 4;
VACUUM $name;
INSERT INTO $name SELECT 2000 + id, val FROM pattern WHERE id <= 60;
SELECT * FROM gpugraph_index_info('${name}_idx');
SELECT gpugraph_check('${name}_idx', true);
CHECKPOINT;
SQL
	my @bad = grep { !/XX00[12]|0A000|different vector dimensions|expected \d+ dimensions/ }
		($err =~ /ERROR: +.*/g);
	my $grown = (-s $file{$name}) / PAGE - $blocks{$name};

	ok(!@bad && $err !~ /server closed|FATAL|PANIC/ && $grown < 100,
		"$name: an error, or no harm ($damage{$name})") or diag("$grown new blocks:\n$err");
	last if !wait_until_up($node);
}
is($node->sql('SELECT pg_postmaster_start_time()'), $started, 'the server was never down');
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC/, 'no process crashed');
for my $name ((sort keys %cases), 'random_1', 'random_2')
{
	$node->sql("REINDEX INDEX ${name}_idx");
	index_is_complete($node, "$name, after REINDEX", $name);
}

finish_test($node);
