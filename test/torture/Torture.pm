# What the parts of the torture share: rounds drawn from a seed, and a client of the server.
#
# A part is a TAP program of this folder that runs rounds until its time is over. All that a round
# draws comes from the seed and the round's number, so a round that failed replays alone.
# test/torture/run tells how parts are called.
package Torture;

use strict;
use warnings;

use Exporter 'import';
use File::Path qw(make_path);
use IO::Socket::UNIX;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

our @EXPORT = qw(rounds one_of chance number weighted sample_of seconds_left connect_to query
	try_query send_query receive start_clock);

my $seed = $ENV{TORTURE_SEED} || 1;
my $seconds = $ENV{TORTURE_SECONDS} || 60;
my $only = ($ENV{TORTURE_ROUND} // '') eq '' ? undef : $ENV{TORTURE_ROUND};
my $end;

# ---- drawing

sub number { my ($below) = @_; return int rand $below }

sub chance { my ($share) = @_; return rand() < $share }

sub one_of { return $_[ rand @_ ] }

# One of value => weight, ...
sub weighted
{
	my @pairs = @_;
	my $sum = 0;

	for (my $i = 1; $i < @pairs; $i += 2) { $sum += $pairs[$i] }
	my $at = rand $sum;
	for (my $i = 0; $i < @pairs; $i += 2)
	{
		$at -= $pairs[ $i + 1 ];
		return $pairs[$i] if $at < 0;
	}
	return $pairs[-2];
}

# Each of them with a probability.
sub sample_of { my ($share, @of) = @_; return grep { rand() < $share } @of }

# ---- rounds

# A part's time begins when its servers run.
sub start_clock { $end = time + $seconds; return }

# With TORTURE_FIRST there are none left once a part has found something.
sub seconds_left { return $ENV{TORTURE_FIRST} && -e found_file() ? -1 : $end - time }

sub state_file
{
	my ($part) = @_;
	my $dir = "$ENV{TESTDIR}/../../torture";

	make_path($dir);
	return "$dir/$part.$seed";
}

# Where one part tells the others that it has found something.
sub found_file { return "$ENV{TESTDIR}/../found.$seed" }

sub note_found
{
	append_to_file(found_file(), "x") if $ENV{TORTURE_FIRST};
	return 1;
}

sub remember
{
	my ($file, $round) = @_;

	open my $out, '>', $file or die "$file: $!";
	print $out $round;
	close $out or die "$file: $!";
	return;
}

# Call the code with the number of each round, the generator being seeded, until time is over. The
# code returns what is wrong, one string each. A later call with the same seed goes on where this
# one ended; TORTURE_ROUND asks for one round alone. Three bad rounds are enough, or with
# TORTURE_FIRST one of any part.
sub rounds
{
	my ($part, $code) = @_;
	my $file = state_file($part);
	my $round = $only // (-s $file ? slurp_file($file) : 0);
	my ($first, $bad) = ($round, 0);
	my $began = time;

	$round =~ s/\s//g;
	note "$part: seed $seed, from round $round, commit " . ($ENV{TORTURE_COMMIT} // 'unknown');
	start_clock() if !defined $end;
	while ($round == $first || (seconds_left() > 0 && !defined $only))
	{
		last if $ENV{TORTURE_FIRST} && seconds_left() < 0;
		srand(($seed * 1000003 + $round * 7919) % 4294967291);
		my @wrong = $code->($round);

		ok(!@wrong, "$part: round $round of seed $seed")
			or note_found()
			&& diag(join("\n", sprintf('after %d s:', time - $began), @wrong,
				"replay: make torture PARTS=$part SEED=$seed ROUND=$round"));
		$round++;
		remember($file, $round) if !defined $only;
		last if @wrong && ($ENV{TORTURE_FIRST} || ++$bad == 3);
	}
	note sprintf '%s: %d rounds in %d s', $part, $round - $first, time - $began;
	return;
}

# ---- a client: PostgreSQL's protocol 3.0 over the server's socket, without a process of its own

sub connect_to
{
	my ($node, $database, $user) = @_;
	my $self = { buffer => '', node => $node };
	my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port)
		or die "cannot connect: $!";
	my $start = pack 'N', 196608;

	$self->{socket} = $socket;
	$user //= getpwuid $>;
	$start .= "$_\0" for 'user', $user, 'database', $database // 'postgres', 'application_name',
		'torture';
	$start .= "\0";
	print {$socket} pack('N', 4 + length $start), $start;
	$socket->flush;
	bless $self, 'Torture';
	my $answer = receive($self);
	die $answer->{error}{message} if $answer->{error};
	return $self;
}

sub _message
{
	my ($self) = @_;

	while (length $self->{buffer} < 5
		|| length $self->{buffer} < 1 + unpack('N', substr $self->{buffer}, 1, 4))
	{
		my $n = sysread $self->{socket}, $self->{buffer}, 65536, length $self->{buffer};

		die "connection lost\n" if !$n;
	}
	my $length = unpack 'N', substr $self->{buffer}, 1, 4;
	my $message = substr $self->{buffer}, 0, 1 + $length, '';

	return (substr($message, 0, 1), substr $message, 5);
}

sub _fields
{
	my ($body) = @_;
	my %field = map { /^(.)(.*)/s ? ($1 => $2) : () } split /\0/, $body;

	return { code => $field{C}, message => $field{M}, detail => $field{D}, hint => $field{H},
		severity => $field{V} };
}

# Everything until the server is ready: results, each with rows and tag, and the error, if any.
sub receive
{
	my ($self) = @_;
	my ($rows, @results, $error, @notices) = ([]);

	while (1)
	{
		my ($kind, $body) = $self->_message;

		if ($kind eq 'D')
		{
			my $n = unpack 'n', $body;
			my ($at, @row) = (2);

			for (1 .. $n)
			{
				my $length = unpack 'l>', substr $body, $at, 4;

				$at += 4;
				push @row, $length < 0 ? undef : substr $body, $at, $length;
				$at += $length if $length > 0;
			}
			push @$rows, \@row;
		}
		elsif ($kind eq 'C' || $kind eq 'I')
		{
			push @results, { rows => $rows, tag => $body =~ s/\0$//r };
			$rows = [];
		}
		elsif ($kind eq 'E') { $error //= _fields($body); $rows = [] }
		elsif ($kind eq 'N') { push @notices, _fields($body) }
		elsif ($kind eq 'K') { ($self->{pid}, $self->{key}) = unpack 'NN', $body }
		elsif ($kind eq 'Z')
		{
			return { results => \@results, error => $error, notices => \@notices, state => $body };
		}
		die "connection lost: $error->{message}\n" if $error && $error->{severity} =~ /FATAL|PANIC/;
	}
}

sub send_query
{
	my ($self, $sql) = @_;

	print { $self->{socket} } 'Q', pack('N', 5 + length $sql), $sql, "\0";
	$self->{socket}->flush;
	return;
}

# Run statements; results and error as receive() has them.
sub try_query
{
	my ($self, $sql) = @_;

	send_query($self, $sql);
	return receive($self);
}

# Run statements that do not fail. The rows of the last one, or its only value.
sub query
{
	my ($self, $sql) = @_;
	my $answer = try_query($self, $sql);

	die "$answer->{error}{code} $answer->{error}{message}\n\t" . substr($sql, 0, 600) . "\n"
		if $answer->{error};
	my $rows = @{ $answer->{results} } ? $answer->{results}[-1]{rows} : [];
	return wantarray ? @$rows : @$rows ? $rows->[0][0] : undef;
}

1;
