# Paragraphs of packages' long descriptions, for rows.pl.
#
# usage: descriptions.pl TRANSLATIONS
#
# The file is a Translation-en of the archive. The first 200 characters of each paragraph are a
# passage; lists and other lines that are laid out are not read.
use strict;
use warnings;

my $most = 200;

open my $file, '<', $ARGV[0] or die "$ARGV[0]: $!";
local $/ = '';
while (my $package = <$file>)
{
	my ($name) = $package =~ /^Package: (.*)/m;
	my ($long) = $package =~ /^Description-en: .*\n((?: .*\n)*)/m;

	next if !defined $name || !defined $long;
	for my $paragraph (split /^ \.\n/m, $long)
	{
		next if $paragraph =~ /^  /m;
		my $text = join ' ', split ' ', $paragraph;
		$text =~ s/^(.{0,$most}) .*/$1/ if length $text > $most;
		print "$name\theld\tpassage\t$text\n" if length $text > 40;
	}
}
