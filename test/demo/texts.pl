#!/usr/bin/perl
# Descriptions of packages to be embedded, for the demo on meaning.
#
#	apt-cache dumpavail | texts.pl COUNT HOLDOUT QUESTIONS [NAME ...]
#
# Printed: HOLDOUT + COUNT lines of name, section and summary. Packages that people install for
# themselves come first: libraries, debug symbols, documentation, plugins, and packages with another
# one's summary are left out unless there are too few others. Of each kind those with the smallest
# hashes of their names are taken, the same ones in every run. What QUESTIONS (question, tab, names)
# expect, and what is named, is always among them, first of those that are not held out.
use strict;
use warnings;

my ($count, $holdout, $questions, @names) = @ARGV;
my $parts = qr/^(?:libs|libdevel|debug|doc|oldlibs|localization|perl|python|haskell|rust|golang
	|javascript|ruby|java|php|ocaml|lisp|introspection|gnu-r|tasks|metapackages|kernel|cli-mono
	|fonts)$/x;

# FNV-1a, 32 bits
sub hash
{
	my $h = 0x811c9dc5;
	$h = (($h ^ $_) * 0x01000193) & 0xffffffff for unpack 'C*', $_[0];
	return $h;
}

my %wanted = map { $_ => 1 } @names;
my (%known, @rows);
open my $in, '<', $questions or die "$questions: $!\n";
while (<$in>)
{
	chomp;
	my (undef, $names) = split /\t/;
	$wanted{$_} = 1 for split / /, $names;
}
close $in;

local $/ = '';
while (my $record = <STDIN>)
{
	my ($name) = $record =~ /^Package: (.*)$/m or next;
	my ($section) = $record =~ m{^Section: (?:.*/)?(.*)$}m;
	my ($summary) = $record =~ /^Description(?:-en)?: *([^\n]*)/m;

	next if !defined $summary || $known{$name}++ || ($known{$summary}++ && !$wanted{$name});
	$section //= 'unknown';
	$summary =~ s/[\t\\]/ /g;
	my $part = $section =~ $parts
		|| $name =~ /^lib|-(?:dev|dbg|dbgsym|doc|data|common|plugin.*|tests?|headers.*)$/;
	push @rows, [ $wanted{$name} ? 0 : $part ? 2 : 1, hash($name), "$name\t$section\t$summary\n" ];
}
@rows = sort { $a->[0] <=> $b->[0] || $a->[1] <=> $b->[1] || $a->[2] cmp $b->[2] } @rows;
$#rows = $count + $holdout - 1 if @rows > $count + $holdout;
die "$0: only " . @rows . " packages\n" if @rows < 2 * $holdout;

# held out are those with the smallest hashes
@rows = sort { $a->[1] <=> $b->[1] || $a->[2] cmp $b->[2] } @rows;
my @held = (grep { $_->[0] } @rows)[ 0 .. $holdout - 1 ];
my %held = map { $_->[2] => 1 } @held;
my @others = grep { !$held{ $_->[2] } } @rows;
print map { $_->[2] } @held, (grep { !$_->[0] } @others), grep { $_->[0] } @others;
