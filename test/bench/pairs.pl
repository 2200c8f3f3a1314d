# Texts of WordNet as passages and questions, for test/bench/pairs.
#
# usage: pairs.pl WORDNET_DIR OUT_DIR
#
# A synset is a document. Its definition is a passage. Its words ("tower, pillar") are a question
# of the kind "words", its first usage example one of the kind "examples". A line is a text, with
# the model's prefix (P for a passage, Q for a query, and a tab) before it:
#
#	base				all definitions but those of own
#	own					definitions of synsets that are in no other file: queries like the rows
#	KIND.sample			questions to learn from
#	KIND.held			questions of other synsets
#	KIND.unseen			questions of topics of which the sample has none
#
# Synsets are in the order of a hash of their numbers, so files are the same everywhere.
use strict;
use warnings;
use Digest::MD5 qw(md5_hex);

# Animals, food, plants, and verbs of motion (lexnames(5WN)).
my %unseen_topics = map { $_ => 1 } qw(05 13 20 38);
my %most = (own => 1000, held => 5000, unseen => 2000);

my ($wordnet, $out) = @ARGV;
my @synsets;

for my $part (qw(noun verb adj adv))
{
	open my $file, '<', "$wordnet/data.$part" or die "$wordnet/data.$part: $!";
	while (my $line = <$file>)
	{
		next if $line =~ /^  /;
		my ($numbers, $gloss) = split / \| /, $line, 2;
		my ($offset, $topic, undef, $count, @rest) = split / /, $numbers;
		my @words = map { $rest[ 2 * $_ ] } 0 .. hex($count) - 1;

		s/\((?:a|p|ip)\)$//, tr/_/ / for @words;
		$gloss =~ s/\s+$//;
		my ($definition) = $gloss =~ /^(.*?)(?:; *"|$)/;
		my ($example) = $gloss =~ /; *"([^"]+)"/;

		push @synsets,
		  {
			order => md5_hex("$part $offset"),
			topic => $topic,
			definition => $definition,
			words => join(', ', @words),
			examples => $example
		  };
	}
}

my (%files, %count);

sub add
{
	my ($name, $prefix, $text) = @_;

	open $files{$name}, '>', "$out/$name.txt" or die "$out/$name.txt: $!" unless $files{$name};
	print { $files{$name} } "$prefix\t$text\n";
	return $count{$name}++;
}

for my $synset (sort { $a->{order} cmp $b->{order} } @synsets)
{
	if (($count{own} // 0) < $most{own})
	{
		add('own', 'P', $synset->{definition});
		next;
	}
	add('base', 'P', $synset->{definition});
	for my $kind (qw(words examples))
	{
		next unless defined $synset->{$kind};
		my $split = $unseen_topics{ $synset->{topic} } ? 'unseen' : 'held';

		if (($count{"$kind.$split"} // 0) < $most{$split})
		{
			add("$kind.$split", 'Q', $synset->{$kind});
		}
		elsif ($split eq 'held')
		{
			add("$kind.sample", 'Q', $synset->{$kind});
		}
	}
}
