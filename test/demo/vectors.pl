#!/usr/bin/perl
# Package descriptions as vectors: hashed TF-IDF.
#
#	apt-cache dumpavail | vectors.pl OUT [translations=FILE] [holdout=N] [keep=NAME,NAME,...]
#		[text=TEXT ...]
#
# Each package's name, section, summary and (from FILE, apt's Translation-en, by checksum) long
# description become a bag of words; each word a weight (1 + ln count) x ln(packages / (packages
# with the word + 30)), and each weight is added to or subtracted from four of 256 elements, all
# chosen by a hash of the word (feature hashing; the sign makes collisions cancel rather than add
# up, and with four elements a word, two rare words that share one do not make strangers look
# alike). Vectors have unit length.
#
# Written, in COPY's text format: OUT/packages.tsv (name, no section, summary, vector);
# OUT/held.tsv, the same for N packages left out of it, to ask about; OUT/texts.tsv (text, vector)
# for the texts given. Nothing but Perl's core is used. What is being done goes to standard error, a
# line for each few thousand packages.
use strict;
use warnings;

my $DIM = 256;
my $SPREAD = 4;    # elements a word
my $TOLD = 4000;   # packages for each line of progress

# Counted on top of the packages that have a word: words that few packages share would else outweigh
# all others.
my $SMOOTHING = 30;

# A name or a summary is chosen with more care than a sentence of the description.
my ($NAME_COUNT, $SUMMARY_COUNT) = (3, 2);

my $out = shift @ARGV
	or die "usage: $0 OUT [translations=FILE] [holdout=N] [keep=NAMES] [text=TEXT ...]\n";
my ($translations, $holdout, %keep, @texts) = ('', 0);
for (@ARGV)
{
	if    (/^translations=(.*)/s) { $translations = $1; }
	elsif (/^holdout=(\d+)$/)     { $holdout      = $1; }
	elsif (/^keep=(.*)/s)         { $keep{$_} = 1 for split /,/, $1; }
	elsif (/^text=(.*)/s)         { push @texts, $1; }
	else                          { die "$0: $_?\n"; }
}

my (%id_of, @words, @df);    # word -> number, number -> word, number -> packages with it

# Words of a text, plurals as singulars.
sub words
{
	my @found;
	for (lc($_[0]) =~ /[a-z0-9]+/g)
	{
		next if length($_) < 2 || length($_) > 24 || !/[a-z]/;
		s/s$// if length($_) > 3 && !/(?:ss|us|is)$/;
		push @found, $_;
	}
	return @found;
}

# FNV-1a, 32 bits.
sub hash
{
	my $h = 0x811c9dc5;
	$h = (($h ^ $_) * 0x01000193) & 0xffffffff for unpack 'C*', $_[0];
	return $h;
}

# Counts of words as a packed list (number, count); words not seen before get a number.
sub pack_counts
{
	my ($count) = @_;
	my $packed = '';
	while (my ($word, $n) = each %$count)
	{
		my $id = $id_of{$word};
		if (!defined $id)
		{
			$id = $id_of{$word} = @words;
			push @words, $word;
		}
		$packed .= pack 'NC', $id, $n > 255 ? 255 : $n;
	}
	return $packed;
}

# Where a word is added in the vector, and where subtracted.
my (@plus, @minus);

sub place
{
	my ($id) = @_;
	$plus[$id] = [];
	$minus[$id] = [];
	for (1 .. $SPREAD)
	{
		my $h = hash("$words[$id] $_");
		push @{ $h & 1 ? $plus[$id] : $minus[$id] }, ($h >> 8) % $DIM;
	}
}

sub vector
{
	my ($packed, $total) = @_;
	my @v = (0) x $DIM;
	my @list = unpack '(NC)*', $packed;
	while (my ($id, $count) = splice @list, 0, 2)
	{
		# A word that one package alone has says nothing about another.
		next unless ($df[$id] // 0) > 1;
		place($id) unless defined $plus[$id];
		my $idf = log($total / ($df[$id] + $SMOOTHING));
		next if $idf <= 0;
		my $weight = (1 + log $count) * $idf;
		$v[$_] += $weight for @{ $plus[$id] };
		$v[$_] -= $weight for @{ $minus[$id] };
	}
	my $length = 0;
	$length += $_ * $_ for @v;
	return undef if $length == 0;
	$length = sqrt $length;
	return '[' . join(',', map { $_ == 0 ? 0 : sprintf '%.5f', $_ / $length } @v) . ']';
}

sub field
{
	my ($record, $name) = @_;
	return $record =~ /^\Q$name\E: *(.*)$/m ? $1 : '';
}

local $/ = '';    # records end with an empty line

my %long;
if ($translations ne '')
{
	open my $fh, '<', $translations or die "$0: $translations: $!\n";
	while (my $record = <$fh>)
	{
		my $md5 = field($record, 'Description-md5');
		$long{$md5} = $1 if $md5 ne '' && $record =~ /^Description-en:[^\n]*\n((?: [^\n]*\n?)*)/m;
	}
}

my (@names, @summaries, @bags, %seen);
while (my $record = <STDIN>)
{
	my $name = field($record, 'Package');
	next if $name eq '' || $seen{$name}++;
	my ($summary, $rest) = $record =~ /^Description(?:-en)?: *([^\n]*)\n((?: [^\n]*\n)*)/m or next;
	$rest .= $long{ field($record, 'Description-md5') } // '';
	$summary =~ s/[\t\\]/ /g;

	my %count;
	$count{$_} += $NAME_COUNT for words($name);
	$count{$_} += $SUMMARY_COUNT for words($summary);
	$count{$_}++ for words($rest);
	$count{ 'section/' . field($record, 'Section') }++;

	my $packed = pack_counts(\%count);
	my @list = unpack '(NC)*', $packed;
	for (my $i = 0; $i < @list; $i += 2) { $df[ $list[$i] ]++; }
	push @names, $name;
	push @summaries, $summary;
	push @bags, $packed;
	print STDERR "read ", scalar @names, " packages\n" if @names % $TOLD == 0;
}
die "$0: no packages\n" unless @names;
my $total = @names;

# Held out: those whose names have the smallest hashes, the same ones in every run.
my %held;
if ($holdout > 0)
{
	my @order = sort { $a->[0] <=> $b->[0] || $a->[1] <=> $b->[1] }
	  map { [ hash("held out $names[$_]"), $_ ] } grep { !$keep{ $names[$_] } } 0 .. $#names;
	$held{ $_->[1] } = 1 for @order[ 0 .. ($holdout < @order ? $holdout : @order) - 1 ];
}

my %written = (packages => 0, held => 0);
my %file;
for (qw(packages held texts))
{
	open $file{$_}, '>', "$out/$_.tsv" or die "$0: $out/$_.tsv: $!\n";
}
for my $i (0 .. $#names)
{
	my $vector = vector($bags[$i], $total) // next;
	my $to = $held{$i} ? 'held' : 'packages';
	print { $file{$to} } "$names[$i]\t\\N\t$summaries[$i]\t$vector\n";
	$written{$to}++;
	print STDERR "made ", $i + 1, " of $total vectors\n" if ($i + 1) % $TOLD == 0;
}
for my $text (@texts)
{
	my %count;
	$count{$_}++ for words($text);
	my $vector = vector(pack_counts(\%count), $total) // next;
	$text =~ s/[\t\\\n]/ /g;
	print { $file{texts} } "$text\t$vector\n";
}
for (values %file) { close $_ or die "$0: writing: $!\n"; }
printf "%d packages, %d held out as queries, %d words known\n", $written{packages}, $written{held},
  scalar grep { ($_ // 0) > 1 } @df;
