# Texts of manual pages for split.pl: a page is a document.
#
# usage: manuals.pl MAN_DIR
#
# Reads the pages below MAN_DIR that use the macros of man(7), as pod2man's do. The beginning of a
# section is a passage, of 200 characters at most. Questions, of the kind "manuals", are what the
# NAME says that the page is about, and headings of three words and more ("How do I reverse a
# string?").
use strict;
use warnings;

# Sections of the manual: system calls, devices, games, administration.
my %unseen_topics = map { $_ => 1 } qw(2 4 6 8);
my $most = 200;
my %characters = (
	aq => "'", dq => '"', lq => '"', rq => '"', oq => "'", cq => "'", em => '-', en => '-',
	hy => '-', mi => '-', bu => '*', co => '(c)', ti => '~', ha => '^', rs => '\\', bv => '|',
	'L"' => '"', 'R"' => '"', 'C+' => 'C++', PI => 'pi', '--' => '-', 'C`' => '"', "C'" => '"');

# the text of a line, without fonts, sizes and other escapes
sub plain
{
	my ($text) = @_;

	$text =~ s/\\".*|\\$//;
	$text =~ s/\\(?:f|\*|F)(?:\[[^]]*\]|\((..)|.)/$characters{ $1 \/\/ '' } \/\/ ''/ge;
	$text =~ s/\\s[-+]?\d//g;
	$text =~ s/\\[mhvwkn](?:\[[^]]*\]|'[^']*'|\(..|.)//g;
	$text =~ s/\\\((..)/$characters{$1} \/\/ ' '/ge;
	$text =~ s/\\\[(\w+)\]/$characters{$1} \/\/ ' '/ge;
	$text =~ s/\\[&|^:%\/,)c]//g;
	$text =~ s/\\([- e.'`~0])/$1 eq 'e' ? '\\' : $1 eq '0' || $1 eq '~' ? ' ' : $1/ge;
	$text =~ tr/\t/ /;
	return $text;
}

# the arguments of a macro, joined by SEPARATOR
sub arguments
{
	my ($text, $separator) = @_;

	return join $separator, map { s/^"|"$//gr } plain($text) =~ /"[^"]*"|[^\s"]+/g;
}

# sections of a page: heading and text of each
sub sections
{
	my ($path) = @_;
	my (@sections, $skip);

	open my $page, '-|', 'gzip', '-cd', $path or die "$path: $!";
	while (my $line = <$page>)
	{
		if ($line =~ /^\.(?:SH|SS)\s*(.*)/)
		{
			my $heading = $1 eq '' ? plain(scalar(<$page>) // '') : arguments($1, ' ');
			push @sections, [ $heading =~ s/^\s+|\s+$//gr, '' ];
			$skip = 0;
		}
		# examples, tables, text that is laid out
		elsif ($line =~ /^\.(?:Vb|nf|EX|TS)\b/)    { $skip = 1; }
		elsif ($line =~ /^\.(?:Ve|fi|EE|TE)\b/)    { $skip = 0; }
		elsif (!@sections || $skip)                { next; }
		elsif ($line =~ /^\.(?:B|I|SM|SB) (.*)/)   { $sections[-1][1] .= arguments($1, ' ') . ' '; }
		elsif ($line =~ /^\.(?:[BIR]{2}) (.*)/)    { $sections[-1][1] .= arguments($1, '') . ' '; }
		elsif ($line !~ /^[.'\s]/)                 { $sections[-1][1] .= plain($line) . ' '; }
	}
	close $page;
	return @sections;
}

my ($manuals) = @ARGV;
my %known;

for my $path (sort glob "$manuals/man*/*.gz")
{
	# the table of contents and histories of Perl have the headings of other pages
	next if -l $path || $path =~ m,/perl(?:toc|\w*delta)\.,;
	my ($name, $number) = $path =~ m,/([^/]+)\.(\d)\w*\.gz$, or next;
	my $document = join "\t", "$name $number", $unseen_topics{$number} ? 'unseen' : 'held';

	for my $section (sections($path))
	{
		my ($heading, $text) = @$section;
		my $question = $heading;

		$text = join ' ', split ' ', $text;
		if ($heading eq 'NAME')
		{
			($question) = $text =~ / -+ (.*)/;
		}
		elsif (length $text > 40 && $heading !~ /^(?:SYNOPSIS|SEE ALSO|AUTHOR|COPYRIGHT|LICENSE)/i)
		{
			$text =~ s/^(.{0,$most}) .*/$1/ if length $text > $most;
			print "$document\tpassage\t$text\n" if !$known{$text}++;
		}
		print "$document\tmanuals\t$question\n"
		  if defined $question && $question =~ /\S+ \S+ \S+/ && !$known{$question}++;
	}
}
