# Files of passages and questions of documents, for test/bench/pairs.
#
# usage: split.pl OUT_DIR < TEXTS
#
# Reads a line for each text: its document, "held" or "unseen", "passage" or the kind of question,
# and the text, with tabs between them. Writes files OUT_DIR/NAME.txt. A line of these is a text,
# with the model's prefix (P for a passage, Q for a query, and a tab) before it:
#
#	base				all passages but those of own
#	own					passages of documents that are in no other file: queries like the rows
#	KIND.sample			questions to learn from
#	KIND.held			questions of other documents
#	KIND.unseen			questions of topics of which the sample has none
#
# Documents are in the order of a hash of their names, so files are the same everywhere.
use strict;
use warnings;
use Digest::MD5 qw(md5_hex);

my %most = (own => 1000, held => 5000, unseen => 2000);

my ($out) = @ARGV;
my (%documents, %files, %count);

sub add
{
	my ($name, $prefix, $text) = @_;

	open $files{$name}, '>', "$out/$name.txt" or die "$out/$name.txt: $!" unless $files{$name};
	print { $files{$name} } "$prefix\t$text\n";
	return $count{$name}++;
}

# whether this document's texts belong in a file that has room
sub has_room
{
	my ($name, $split) = @_;

	return ($count{$name} // 0) < $most{$split};
}

while (my $line = <STDIN>)
{
	chomp $line;
	my ($name, $split, $kind, $text) = split /\t/, $line, 4;
	push @{ $documents{ md5_hex($name) } }, [ $split, $kind, $text ];
}

for my $order (sort keys %documents)
{
	my $is_own = has_room('own', 'own');
	my %file;

	for (@{ $documents{$order} })
	{
		my ($split, $kind, $text) = @$_;

		if ($kind eq 'passage')
		{
			add($is_own ? 'own' : 'base', 'P', $text);
		}
		elsif (!$is_own)
		{
			# all questions of a document are in one file
			$file{$kind} //= has_room("$kind.$split", $split) ? $split
			  : $split eq 'held' ? 'sample' : '';
			add("$kind.$file{$kind}", 'Q', $text) if $file{$kind};
		}
	}
}
