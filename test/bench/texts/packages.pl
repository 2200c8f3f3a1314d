# Texts of Debian's packages for split.pl: all packages with one description are a document.
#
# usage: packages.pl AVAILABLE TRANSLATIONS
#
# The first file is what apt-cache dumpavail prints, the other a Translation-it of the archive. The
# first line of an English description is a passage, that of its translation a question of the kind
# "italian".
use strict;
use warnings;

# Sections of the archive.
my %unseen_topics = map { $_ => 1 } qw(education games graphics science sound video);

# call FUNCTION with the fields of each paragraph: the first lines alone
sub each_paragraph
{
	my ($path, $function) = @_;

	open my $file, '<', $path or die "$path: $!";
	local $/ = '';
	while (my $paragraph = <$file>)
	{
		$function->({ $paragraph =~ /^([\w-]+): (.*?)\s*$/mg });
	}
}

my ($available, $translations) = @ARGV;
my (%italian, %known);

each_paragraph(
	$translations,
	sub {
		my ($fields) = @_;
		$italian{ $fields->{'Description-md5'} } = $fields->{'Description-it'};
	});
each_paragraph(
	$available,
	sub {
		my ($fields) = @_;
		my ($english, $md5) = @$fields{ 'Description', 'Description-md5' };

		return if !defined $english || $known{$english}++;
		# untranslated words differ in case alone
		my $question = $italian{ $md5 // '' };
		my $topic = $unseen_topics{ $fields->{Section} =~ s,.*/,,r } ? 'unseen' : 'held';
		print "$english\t$topic\tpassage\t$english\n";
		print "$english\t$topic\titalian\t$question\n"
		  if defined $question && lc $question ne lc $english;
	});
