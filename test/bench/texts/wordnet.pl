# Texts of WordNet for split.pl: a synset is a document.
#
# usage: wordnet.pl WORDNET_DIR
#
# Its definition is a passage. Its words ("tower, pillar") are a question of the kind "words", its
# first usage example one of the kind "examples".
use strict;
use warnings;

# Animals, food, plants, and verbs of motion (lexnames(5WN)).
my %unseen_topics = map { $_ => 1 } qw(05 13 20 38);

my ($wordnet) = @ARGV;

for my $part (qw(noun verb adj adv))
{
	open my $file, '<', "$wordnet/data.$part" or die "$wordnet/data.$part: $!";
	while (my $line = <$file>)
	{
		next if $line =~ /^  /;
		my ($numbers, $gloss) = split / \| /, $line, 2;
		my ($offset, $topic, undef, $count, @rest) = split / /, $numbers;
		my @words = map { $rest[ 2 * $_ ] } 0 .. hex($count) - 1;
		my $document = join "\t", "$part $offset", $unseen_topics{$topic} ? 'unseen' : 'held';

		s/\((?:a|p|ip)\)$//, tr/_/ / for @words;
		$gloss =~ s/\s+$//;
		my ($definition) = $gloss =~ /^(.*?)(?:; *"|$)/;
		my ($example) = $gloss =~ /; *"([^"]+)"/;

		print "$document\tpassage\t$definition\n";
		print "$document\twords\t", join(', ', @words), "\n";
		print "$document\texamples\t$example\n" if defined $example;
	}
}
