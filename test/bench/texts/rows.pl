# Rows and questions of the sets "texts" and "minilm" of test/bench/real.
#
# usage: rows.pl OUT_DIR < TEXTS
#
# Reads what split.pl reads. Writes OUT_DIR/rows.txt, all distinct passages and examples of WordNet,
# and OUT_DIR/asked.txt: 500 questions each of the kinds words, manuals and italian, in this order.
# A line is P or Q, a tab, and a text. Both are in the order of a hash of the texts, so the first N
# rows are a fair part of all.
use strict;
use warnings;
use Digest::MD5 qw(md5_hex);

my $most = 500;
my @kinds = qw(words manuals italian);
my ($out) = @ARGV;
my %texts;		# kind: hash: text

while (my $line = <STDIN>)
{
	chomp $line;
	my (undef, undef, $kind, $text) = split /\t/, $line, 4;
	$text =~ tr/\t / /s;
	$kind = 'passage' if $kind eq 'examples';
	$texts{$kind}{ md5_hex($text) } = $text if $text =~ /\S/;
}

sub in_order
{
	my ($texts) = @_;
	return map { $texts->{$_} } sort keys %$texts;
}

open my $rows, '>', "$out/rows.txt" or die "$out/rows.txt: $!";
print $rows "P\t$_\n" for in_order($texts{passage});
close $rows or die "$out/rows.txt: $!";
open my $asked, '>', "$out/asked.txt" or die "$out/asked.txt: $!";
for my $kind (@kinds)
{
	my @questions = in_order($texts{$kind} // {});
	die "fewer than $most questions of $kind\n" if @questions < $most;
	print $asked "Q\t$_\n" for @questions[ 0 .. $most - 1 ];
}
close $asked or die "$out/asked.txt: $!";
