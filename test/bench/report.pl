#!/usr/bin/perl
# The tables, ratios and plots of bench runs.
#
# usage: report.pl [--svg PREFIX] [--base LABEL] [--at RECALL,...] FILE.tsv ...
#
# FILE.tsv is what ./run wrote. With several files (before and after a change) each label is led by
# its file's name. Everything is compared with the index --base, else the first one of the file.
# --at: the recalls to compare throughput at, default 0.95,0.97,0.99.
#
# Throughput at a recall is read off between the two measured points around it, linearly in log(QPS)
# over log(1 - recall), in which the curves are close to straight; points that another point of the
# same index beats in both recall and QPS are left out. Below the least recall measured the figure
# is that point's QPS (">="); past the greatest there is none.
use strict;
use warnings;
use Getopt::Long;

my ($svg, $base, $at) = (undef, undef, '0.95,0.97,0.99');
GetOptions('svg=s' => \$svg, 'base=s' => \$base, 'at=s' => \$at) && @ARGV
	or die "usage: report.pl [--svg PREFIX] [--base LABEL] [--at RECALL,...] FILE.tsv ...\n";

# Stands for "no wrong answer" where a logarithm of 1 - recall is taken.
use constant PERFECT => 5e-5;

my (@sets, %set_info, %labels, %build, %point, %clients, %clean);
my $several = @ARGV > 1;

sub add_label
{
	my ($set, $label) = @_;
	push @sets, $set if !grep { $_ eq $set } @sets;
	push @{ $labels{$set} }, $label if !grep { $_ eq $label } @{ $labels{$set} };
}

for my $file (@ARGV)
{
	my $lead = '';
	if ($several)
	{
		($lead) = $file =~ m{([^/]*?)(?:\.tsv)?$};
		$lead .= ' ';
	}
	open my $in, '<', $file or die "$file: $!\n";
	while (my $line = <$in>)
	{
		chomp $line;
		my ($kind, @f) = split /\t/, $line, -1;
		if ($kind eq 'info')
		{
			$set_info{$1} = $f[1] if $f[0] =~ /^set (.*)/;
		}
		elsif ($kind eq 'build')
		{
			my ($set, $label, undef, $seconds, $bytes, $wal) = @f;
			add_label($set, $lead . $label);
			push @{ $build{$set}{ $lead . $label } },
				{ seconds => $seconds, bytes => $bytes, wal => $wal };
		}
		elsif ($kind eq 'point')
		{
			my ($set, $label, $width, $c, undef, @v) = @f;
			my %p;
			@p{qw(recall qps p50 p95 p99 rows queries lost)} = @v;
			add_label($set, $lead . $label);
			$clients{$set}{$c} = 1;
			push @{ $point{$set}{ $lead . $label }{$c}{$width} }, \%p;
		}
		else
		{
			die "$file: line $. is of no known kind\n";
		}
	}
	close $in;
}
die "no measured points\n" if !@sets;

sub median
{
	my @v = sort { $a <=> $b } @_;
	return @v % 2 ? $v[ $#v / 2 ] : ($v[ @v / 2 - 1 ] + $v[ @v / 2 ]) / 2;
}

# One row a width, rounds folded into medians, by width.
sub curve
{
	my ($set, $label, $c) = @_;
	my @rows;
	my $widths = $point{$set}{$label}{$c} // {};
	for my $w (sort { $a <=> $b } keys %$widths)
	{
		my %row = (width => $w);
		for my $f (qw(recall qps p50 p95 p99 rows lost))
		{
			$row{$f} = median(map { $_->{$f} } @{ $widths->{$w} });
		}
		push @rows, \%row;
	}
	return @rows;
}

# Points that no other point beats in both, by rising recall.
sub frontier
{
	my @best;
	for my $p (sort { $b->{qps} <=> $a->{qps} } @_)
	{
		push @best, $p if !@best || $p->{recall} > $best[-1]{recall};
	}
	return @best;
}

sub nines { my ($r) = @_; return -log(1 - $r + PERFECT) / log(10); }

# (QPS, mark) at a recall; QPS undefined when it was not reached.
sub qps_at
{
	my ($recall, @p) = @_;
	return (undef, '') if !@p || $p[-1]{recall} < $recall;
	return ($p[0]{qps}, '>=') if $p[0]{recall} >= $recall;
	for my $i (1 .. $#p)
	{
		next if $p[$i]{recall} < $recall;
		my ($x0, $x1) = map { nines($_->{recall}) } @p[ $i - 1, $i ];
		my $t = (nines($recall) - $x0) / ($x1 - $x0);
		return (exp((1 - $t) * log($p[ $i - 1 ]{qps}) + $t * log($p[$i]{qps})), '');
	}
	return (undef, '');
}

sub ratio { my ($v, $of) = @_; return defined $v && $of ? sprintf('%.2f', $v / $of) : '-'; }

sub table
{
	my ($title, $head, @rows) = @_;
	my @width = map { length } @$head;
	for my $r (@rows)
	{
		for my $i (0 .. $#$r)
		{
			$width[$i] = length $r->[$i] if length $r->[$i] > $width[$i];
		}
	}
	print "$title\n\n" if length $title;
	for my $r ($head, @rows)
	{
		my @cells =
			map { sprintf($_ ? '%*s' : '%-*s', $_ ? $width[$_] : $width[0], $r->[$_]) } 0 .. $#$r;
		print '| ', join(' | ', @cells), " |\n";
		print '|',
			join('|', map { ($_ ? '' : ':') . '-' x ($width[$_] + ($_ ? 1 : 1)) . ($_ ? ':' : '') }
				0 .. $#$head), "|\n" if $r == $head;
	}
	print "\n";
}

for my $set (@sets)
{
	my @l = @{ $labels{$set} };
	my ($first) = defined $base ? grep { $_ eq $base } @l : $l[0];
	die "$set has no index labelled \"$base\"\n" if !defined $first;
	my @c = sort { $a <=> $b } keys %{ $clients{$set} // {} };

	print "### $set: ", $set_info{$set} // '', "\n\n";

	my %built;
	for my $label (grep { $build{$set}{$_} } @l)
	{
		for my $f (qw(seconds bytes wal))
		{
			$built{$label}{$f} = median(map { $_->{$f} } @{ $build{$set}{$label} });
		}
	}
	table(
		'',
		[ 'index', 'build s', "build speed / $first", 'index MiB', "size / $first", 'WAL MiB' ],
		map {
			my ($b, $of) = @built{ $_, $first };
			[   $_,
				sprintf('%.2f', $b->{seconds}),
				ratio($of->{seconds}, $b->{seconds}),
				sprintf('%.1f', $b->{bytes} / 2**20),
				ratio($b->{bytes}, $of->{bytes}),
				sprintf('%.1f', $b->{wal} / 2**20) ]
		} grep { $built{$_} } @l);

	for my $c (@c)
	{
		my %front = map { $_ => [ frontier(curve($set, $_, $c)) ] } @l;
		table(
			"QPS at equal recall, $c client" . ($c > 1 ? 's' : ''),
			[ 'recall', map { $_ eq $first ? $_ : ($_, "/ $first") } @l ],
			map {
				my $r = $_;
				my ($of) = qps_at($r, @{ $front{$first} });
				[   $r,
					map {
						my ($q, $mark) = qps_at($r, @{ $front{$_} });
						my $cell = defined $q ? $mark . sprintf('%.0f', $q)
							: @{ $front{$_} } ? sprintf('reaches %.4f', $front{$_}[-1]{recall})
							: '-';
						$_ eq $first ? $cell : ($cell, ratio($q, $of));
					} @l ]
			} split /,/, $at);
	}
	for my $c (@c)
	{
		my @rows;
		for my $label (@l)
		{
			push @rows,
				map {
					[   $label, $_->{width}, sprintf('%.4f', $_->{recall}),
						sprintf('%.0f', $_->{qps}),
						map({ sprintf('%.0f', $_) } @{$_}{qw(p50 p95 p99)}),
						sprintf('%.2f', $_->{rows}), $_->{lost} ]
				} curve($set, $label, $c);
		}
		table(
			"Every point, $c client" . ($c > 1 ? 's' : ''),
			[ 'index', 'width', 'recall', 'QPS', 'p50 us', 'p95 us', 'p99 us', 'rows', 'lost' ],
				@rows);
	}
	if (defined $svg && @c)
	{
		my $file = "$svg.$set.svg";
		open my $out, '>', $file or die "$file: $!\n";
		print $out plot($set, \@l, \@c);
		close $out or die "$file: $!\n";
		print "plot: $file\n\n";
	}
}

# ---- the plot --------------------------------------------------------------
# A panel for each number of clients, side by side on the same scales. Recall runs along -log10(1 -
# recall), for on a plain axis everything of interest is crammed against 1.

sub escape { my ($s) = @_; $s =~ s/&/&amp;/g; $s =~ s/</&lt;/g; $s =~ s/>/&gt;/g; return $s; }

sub plot
{
	my ($set, $l, $c) = @_;

	# Okabe and Ito's colours, told apart by colour-blind readers too; shapes say it again.
	my @colour = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000');
	my @mark = qw(circle square triangle diamond);
	my ($pw, $ph, $left, $top, $gap) = (440, 360, 64, 84, 36);
	my ($xmin, $xmax, $ymin, $ymax);
	for my $label (@$l)
	{
		for my $p (map { curve($set, $label, $_) } @$c)
		{
			my ($x, $y) = (nines($p->{recall}), log($p->{qps}) / log(10));
			$xmin = $x if !defined $xmin || $x < $xmin;
			$xmax = $x if !defined $xmax || $x > $xmax;
			$ymin = $y if !defined $ymin || $y < $ymin;
			$ymax = $y if !defined $ymax || $y > $ymax;
		}
	}
	my $pad_x = 0.05 * ($xmax - $xmin) + 0.02;
	my $pad_y = 0.05 * ($ymax - $ymin) + 0.02;
	$xmin -= $pad_x;
	$xmax += $pad_x;
	$ymin -= $pad_y;
	$ymax += $pad_y;

	my $width = $left + @$c * $pw + (@$c - 1) * $gap + 24;
	my $height = $top + $ph + 56;
	my $s = qq{<svg xmlns="http://www.w3.org/2000/svg" width="$width" height="$height" }
		. qq{viewBox="0 0 $width $height" font-family="sans-serif" font-size="12">\n}
		. qq{<rect width="100%" height="100%" fill="white"/>\n};
	my ($what) = ($set_info{$set} // '') =~ /^(.*?)(?: \(|$)/;
	$s .= sprintf qq{<text x="%d" y="22" font-size="15" font-weight="bold">%s</text>\n}, $left,
		escape("$set: $what");
	$s .= sprintf qq{<text x="%d" y="40" fill="#555">up and to the right is better; }
		. qq{numbers at the points are search widths</text>\n}, $left;

	my $x = $left;
	for my $i (0 .. $#$l)
	{
		$s .= sprintf qq{<line x1="%d" y1="56" x2="%d" y2="56" stroke="%s" stroke-width="2"/>%s}
			. qq{<text x="%d" y="60">%s</text>\n}, $x, $x + 26, $colour[ $i % @colour ],
			symbol($mark[ $i % @mark ], $x + 13, 56, $colour[ $i % @colour ]), $x + 32,
			escape($l->[$i]);
		$x += 52 + 7 * length $l->[$i];
	}

	for my $panel (0 .. $#$c)
	{
		my $x0 = $left + $panel * ($pw + $gap);
		my $px = sub { sprintf '%.1f', $x0 + ($_[0] - $xmin) / ($xmax - $xmin) * $pw };
		my $py = sub { sprintf '%.1f', $top + $ph - ($_[0] - $ymin) / ($ymax - $ymin) * $ph };

		my $last = -1e9;
		for my $r (1, 0.9999, 0.9995, 0.999, 0.998, 0.995, 0.99, 0.98, 0.97, 0.95, 0.9, 0.8, 0.7,
			0.5, 0.3, 0)
		{
			my $v = nines($r);
			next if $v < $xmin || $v > $xmax;
			my $at = $px->($v);
			$s .= qq{<line x1="$at" y1="$top" x2="$at" y2="@{[ $top + $ph ]}" stroke="#ddd"/>\n};
			# from the right: where two would touch, the better recall keeps its number
			next if $last > 0 && $last - $at < 34;
			$last = $at;
			$s .= qq{<text x="$at" y="@{[ $top + $ph + 16 ]}" text-anchor="middle">$r</text>\n};
		}
		for my $e (int($ymin) - 1 .. int($ymax) + 1)
		{
			for my $m (1 .. 9)
			{
				my $v = $e + log($m) / log(10);
				next if $v < $ymin || $v > $ymax;
				my $at = $py->($v);
				my $named = $m == 1 || $m == 2 || $m == 5 || $ymax - $ymin < 0.7;
				$s .= sprintf qq{<line x1="%d" y1="%s" x2="%d" y2="%s" stroke="%s"/>\n}, $x0, $at,
					$x0 + $pw, $at,
					$named ? '#ddd' : '#f2f2f2';
				$s .= sprintf qq{<text x="%d" y="%.1f" text-anchor="end">%s</text>\n}, $x0 - 6,
					$at + 4, $m * 10**$e
					if $named && $panel == 0;
			}
		}
		$s .= qq{<rect x="$x0" y="$top" width="$pw" height="$ph" fill="none" stroke="#888"/>\n};
		$s .= sprintf qq{<text x="%d" y="%d" text-anchor="middle" font-weight="bold">%s</text>\n},
			$x0 + $pw / 2, $top - 6,
			$c->[$panel] . ' client' . ($c->[$panel] > 1 ? 's' : '');
		$s .= sprintf qq{<text x="%d" y="%d" text-anchor="middle">recall</text>\n}, $x0 + $pw / 2,
			$top + $ph + 38;

		for my $i (0 .. $#$l)
		{
			my $colour = $colour[ $i % @colour ];
			my @p = curve($set, $l->[$i], $c->[$panel]) or next;
			my @at = map { [ $px->(nines($_->{recall})), $py->(log($_->{qps}) / log(10)) ] } @p;
			$s .= sprintf qq{<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>\n},
				$colour,
				join(' ', map { "$_->[0],$_->[1]" } @at);
			for my $j (0 .. $#p)
			{
				$s .= symbol($mark[ $i % @mark ], @{ $at[$j] }, $colour);

				# the first index's numbers below its curve, the others' above
				$s .= sprintf qq{<text x="%.1f" y="%.1f" font-size="10" fill="%s" }
					. qq{text-anchor="%s">%s</text>\n},
					$at[$j][0] + ($i ? 5 : -5), $at[$j][1] + ($i ? -6 : 13), $colour,
					$i ? 'start' : 'end', $p[$j]{width};
			}
		}
	}
	$s .= sprintf qq{<text transform="translate(16,%d) rotate(-90)" text-anchor="middle">}
		. qq{queries a second (log)</text>\n}, $top + $ph / 2;
	return $s . "</svg>\n";
}

sub symbol
{
	my ($kind, $x, $y, $colour) = @_;
	my %path = (
		square   => 'M-4,-4h8v8h-8z',
		triangle => 'M0,-5L5,4H-5z',
		diamond  => 'M0,-5.5L5.5,0L0,5.5L-5.5,0z');
	return qq{<circle cx="$x" cy="$y" r="4" fill="$colour"/>\n} if $kind eq 'circle';
	return qq{<path d="$path{$kind}" transform="translate($x,$y)" fill="$colour"/>\n};
}
