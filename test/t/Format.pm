# The on-disk format in Perl (src/storage/format.h), for tests that read the file of an index, or
# change it while the server is stopped.
package Format;

use strict;
use warnings;

use Exporter 'import';

# page header, stamp at the page's end, payload between them
use constant { PAGE => 8192, HEADER => 24, STAMP => 24 };
use constant { META => 1, VECTORS => 2, ADJACENCY => 3, TIDS => 4, PIVOTS => 5, OFFSETS => 6,
	DELTA => 7, FREE => 8, DIRECTORY => 9, TAKEN => 10, FILTERS => 11,
	CODES => 12, SAMPLE => 13, MEAN => 14 };
use constant NO_SEGMENT => 0xFFFFFFFF;
# offsets in the metapage, and sizes of what follows its head
use constant { META_VERSION => 4, META_METRIC => 36, META_ALGORITHM => 40, META_DEGREE => 44,
	META_NEXT_ID => 52,
	META_FILTER_WORDS => 84, META_DELTA_FIRST => 88,
	META_DELTA_PAGES => 92, META_LENGTH => 100, META_NSEGMENTS => 104, META_NEXTENTS => 106,
	META_NPIECES => 108, META_NSPILLED => 110, META_NDIRECTORY => 112, META_NCOLUMNS => 114,
	META_DELTA_TAIL => 116, META_DIRECTORY => 120, META_COLUMN_TYPES => 136, PLAIN_HEAD => 168,
	META_FEATURES => 168, META_DELTA_HIGH => 174, META_HEAD => 192,
	SEGMENT => 32, PIECE => 16, EXTENT => 24 };
use constant DIRECTORY_EXTENTS => int((PAGE - HEADER - STAMP) / EXTENT);
# format 2: the head ends behind the number of extents
use constant { OLD_HEAD => 108, OLD_SEGMENT => 24, OLD_SEGMENTS => 32, OLD_EXTENTS => 288,
	OLD_EXTENT_START => 880 };

my @constants = qw(PAGE HEADER STAMP META VECTORS ADJACENCY TIDS PIVOTS OFFSETS DELTA FREE DIRECTORY
	TAKEN FILTERS CODES SAMPLE MEAN NO_SEGMENT META_VERSION META_METRIC META_ALGORITHM META_DEGREE
	META_NEXT_ID
	META_FILTER_WORDS META_DELTA_FIRST META_DELTA_PAGES META_LENGTH META_NSEGMENTS META_NEXTENTS
	META_NPIECES
	META_NSPILLED META_NDIRECTORY META_NCOLUMNS META_DELTA_TAIL META_DIRECTORY META_COLUMN_TYPES
	META_HEAD META_FEATURES META_DELTA_HIGH PLAIN_HEAD SEGMENT PIECE EXTENT DIRECTORY_EXTENTS);
our @EXPORT = (@constants,
	qw(index_file read_page write_page block_of patch patch_stamp peek read_directory
		write_extents split_extent make_old));

sub index_file
{
	my ($node, $index) = @_;

	return $node->data_dir . '/' . $node->sql("SELECT pg_relation_filepath('$index')");
}

sub read_page
{
	my ($file, $block) = @_;
	my $page;

	open my $fh, '<:raw', $file or die "cannot open $file: $!";
	seek $fh, $block * PAGE, 0;
	read($fh, $page, PAGE) == PAGE or die "cannot read block $block of $file";
	close $fh;
	return $page;
}

sub write_page
{
	my ($file, $block, $page) = @_;

	open my $fh, '+<:raw', $file or die "cannot open $file: $!";
	seek $fh, $block * PAGE, 0;
	print $fh $page;
	close $fh or die "cannot write $file: $!";
	return;
}

# The block that holds page $number of a kind.
sub block_of
{
	my ($file, $kind, $number) = @_;

	return 0 if $kind == META;
	for my $block (1 .. (-s $file) / PAGE - 1)
	{
		my (undef, undef, $n, $k) = unpack 'Q L L S',
			substr(read_page($file, $block), PAGE - STAMP);
		return $block if $k == $kind && $n == $number;
	}
	die "no page $number of kind $kind in $file";
}

# Overwrite bytes of the payload of the first page of a kind; returns its block.
sub patch
{
	my ($file, $kind, $offset, $bytes) = @_;
	my $block = block_of($file, $kind, 0);
	my $page = read_page($file, $block);

	substr($page, HEADER + $offset, length $bytes) = $bytes;
	write_page($file, $block, $page);
	return $block;
}

sub patch_stamp
{
	my ($file, $kind, $offset, $bytes) = @_;
	my $block = block_of($file, $kind, 0);
	my $page = read_page($file, $block);

	substr($page, PAGE - STAMP + $offset, length $bytes) = $bytes;
	write_page($file, $block, $page);
	return $block;
}

sub peek
{
	my ($file, $kind, $offset, $length) = @_;

	return substr(read_page($file, block_of($file, $kind, 0)), HEADER + $offset, $length);
}

# What an index of format 3 or 4 says of itself. Extents are [start, nblocks, owner, kind, first],
# where first is the parked xid of a free one.
sub read_directory
{
	my ($file) = @_;
	my $meta = substr read_page($file, 0), HEADER;
	my %d = (meta => $meta);
	my $at;

	$d{version} = unpack 'L', substr($meta, META_VERSION);
	$at = $d{version} == 4 ? META_HEAD : PLAIN_HEAD;
	@d{qw(delta_first delta_pages)} = unpack 'L2', substr($meta, META_DELTA_FIRST);
	@d{qw(nsegments nextents npieces nspilled ndirectory)} =
		unpack 'S5', substr($meta, META_NSEGMENTS);
	$d{directory} = [ unpack "L$d{ndirectory}", substr($meta, META_DIRECTORY) ];
	$d{segments} = [ map { [ unpack 'L6 S2', substr($meta, $at + $_ * SEGMENT) ] }
			0 .. $d{nsegments} - 1 ];
	$at += $d{nsegments} * SEGMENT;
	$d{pieces} = [ map { [ unpack 'L3', substr($meta, $at + $_ * PIECE) ] } 0 .. $d{npieces} - 1 ];
	$at += $d{npieces} * PIECE;
	$d{extents_at} = $at;

	my $spilled = join '',
		map { substr read_page($file, $_), HEADER, DIRECTORY_EXTENTS * EXTENT } @{ $d{directory} };
	my $bytes = substr($spilled, 0, $d{nspilled} * EXTENT)
		. substr($meta, $at, ($d{nextents} - $d{nspilled}) * EXTENT);
	$d{extents} = [ map { [ unpack 'L3 S x2 Q', substr($bytes, $_ * EXTENT) ] }
			0 .. $d{nextents} - 1 ];
	return \%d;
}

# Write other extents of an index of format 3 or 4: the last few into the metapage, the others on
# directory pages in these blocks, which are behind all that the file has.
sub write_extents
{
	my ($file, $extents, @blocks) = @_;
	my $page = read_page($file, 0);
	my $at = read_directory($file)->{extents_at};
	my @packed = map { pack 'L3 S x2 Q', @$_ } @$extents;
	my $nspilled = @blocks ? @$extents - 2 : 0;
	my $inline = join '', @packed[$nspilled .. $#packed];

	die 'the directory pages do not fit' if @blocks != int(($nspilled + 338) / DIRECTORY_EXTENTS);
	for my $i (0 .. $#blocks)
	{
		my $first = $i * DIRECTORY_EXTENTS;
		my $last = $first + DIRECTORY_EXTENTS - 1;
		my $bytes = join '', @packed[$first .. ($last < $nspilled ? $last : $nspilled - 1)];
		my $new = $page;

		substr($new, 12, 2) = pack 'S', HEADER + length $bytes;    # pd_lower
		substr($new, HEADER, length $bytes) = $bytes;
		substr($new, PAGE - STAMP + 12, 6) = pack 'L S', $i, DIRECTORY;
		write_page($file, $blocks[$i], $new);
	}
	substr($page, HEADER + META_NEXTENTS, 2) = pack 'S', scalar @$extents;
	substr($page, HEADER + META_NSPILLED, 4) = pack 'S2', $nspilled, scalar @blocks;
	substr($page, HEADER + META_DIRECTORY, 4 * @blocks) = pack 'L*', @blocks;
	substr($page, HEADER + $at, length $inline) = $inline;
	substr($page, 12, 2) = pack 'S', HEADER + $at + length $inline;
	write_page($file, 0, $page);
	return;
}

# The extents, with the first blocks of the only one of a kind in as many extents.
sub split_extent
{
	my ($file, $of_kind, $parts) = @_;
	my @extents;

	for my $extent (@{ read_directory($file)->{extents} })
	{
		my ($start, $nblocks, $owner, $kind, $first) = @$extent;

		if ($kind == $of_kind)
		{
			$nblocks > $parts or die "an extent of $nblocks blocks has no $parts before its end";
			push @extents, [ $start + $_, 1, $owner, $kind, $first + $_ ] for 0 .. $parts - 1;
			$extent = [ $start + $parts, $nblocks - $parts, $owner, $kind, $first + $parts ];
		}
		push @extents, $extent;
	}
	return @extents;
}

# Rewrite block 0 as format 2 has it. Only for an index that format 2 could have: one piece per
# segment, no directory pages, no gaps in the delta, and no feature but that it left no row out and
# knows lengths.
sub make_old
{
	my ($file) = @_;
	my $d = read_directory($file);
	my $page = read_page($file, 0);
	my $next = $d->{delta_first};
	my $old = substr $d->{meta}, 0, OLD_HEAD;

	die 'not an index that fits format 2'
		if $d->{version} == 4 && (unpack('L', substr $d->{meta}, META_FEATURES) | 128) != 160
		|| $d->{nspilled} > 0 || $d->{nsegments} > OLD_SEGMENTS
		|| $d->{nextents} > OLD_EXTENTS || $d->{npieces} != $d->{nsegments};
	substr($old, META_VERSION, 4) = pack 'L', 2;
	for my $i (0 .. $d->{nsegments} - 1)
	{
		my ($id, $nodes, $rows, $npivots, $dead, $empty) = @{ $d->{segments}[$i] };
		my ($piece, $owner) = @{ $d->{pieces}[$i] };

		die 'a segment of format 2 has the vectors of its own number, and no empty nodes'
			if $piece != $id || $owner != $id || $empty > 0;
		$old .= pack 'L6', $id, $nodes, $rows, $npivots, $dead, 0;
	}
	$old .= "\0" x (OLD_EXTENT_START - length $old);
	for my $extent (@{ $d->{extents} })
	{
		my ($start, $nblocks, $owner, $kind, $first) = @$extent;

		die 'format 2 has no gaps in the delta' if $kind == DELTA && $first != $next;
		$next += $nblocks if $kind == DELTA;
		$old .= pack 'L3 S x2 Q', $start, $nblocks, $owner, $kind, $kind == FREE ? $first : 0;
	}
	$old .= "\0" x (OLD_EXTENT_START + OLD_EXTENTS * EXTENT - length $old);

	substr($page, 12, 2) = pack 'S', HEADER + length $old;    # pd_lower
	substr($page, HEADER, PAGE - HEADER - STAMP) =
		$old . "\0" x (PAGE - HEADER - STAMP - length $old);
	write_page($file, 0, $page);
	return;
}

1;
