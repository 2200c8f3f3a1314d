#!/usr/bin/perl
# The tables, ratios and plots of bench runs.
#
# usage: report.pl [--svg PREFIX] [--base LABEL] [--at RECALL,...] FILE.tsv ...
#
# FILE.tsv is what ./run wrote. With several files (before and after a change) each label is led by
# its file's name. Everything is compared with the index --base, else the first one of the file.
# --at: the recalls to compare throughput at, default 0.95,0.97,0.99.
# --svg: plots, PREFIX.SET.svg of recall and throughput and PREFIX.build.svg of build times (without
# the dot where PREFIX ends in a slash). Each has its own background, which follows the reader's
# choice of light or dark.
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

# Colours of the plots, and attributes of their texts.
use constant SERIES => 7;
my %title = ('font-size' => 17, 'font-weight' => 600);
my %middle = ('text-anchor' => 'middle');

my $k = 10;
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
			$k = $f[1] if $f[0] eq 'k';
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

my %built;    # set -> label -> medians

for my $set (@sets)
{
	my @l = @{ $labels{$set} };
	my ($first) = defined $base ? grep { $_ eq $base } @l : $l[0];
	die "$set has no index labelled \"$base\"\n" if !defined $first;
	my @c = sort { $a <=> $b } keys %{ $clients{$set} // {} };

	print "### $set: ", $set_info{$set} // '', "\n\n";

	for my $label (grep { $build{$set}{$_} } @l)
	{
		for my $f (qw(seconds bytes wal))
		{
			$built{$set}{$label}{$f} = median(map { $_->{$f} } @{ $build{$set}{$label} });
		}
	}
	table(
		'',
		[ 'index', 'build s', "build speed / $first", 'index MiB', "size / $first", 'WAL MiB' ],
		map {
			my ($b, $of) = @{ $built{$set} }{ $_, $first };
			[   $_,
				sprintf('%.2f', $b->{seconds}),
				ratio($of->{seconds}, $b->{seconds}),
				sprintf('%.1f', $b->{bytes} / 2**20),
				ratio($b->{bytes}, $of->{bytes}),
				sprintf('%.1f', $b->{wal} / 2**20) ]
		} grep { $build{$set}{$_} } @l);

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
	write_plot($set, plot($set, \@l, \@c)) if defined $svg && @c;
}
write_plot('build', build_plot()) if defined $svg && %built;

# ---- the plots -------------------------------------------------------------------------- Names of
# classes: b the background, t text, m text that matters less, g and h lines of the grid, f a frame,
# and for series I fI (filled) and lI (a line). The series have Okabe and Ito's colours, told apart
# by colour-blind readers too, a little lighter on a dark background; shapes say it again.

sub style
{
	my $rules = sub {
		my ($b, $t, $m, $g, $h, $f, @series) = @_;
		return join "\n", ".b{fill:$b;stroke:$g}.t{fill:$t}.m{fill:$m}",
			".g{stroke:$g}.h{stroke:$h}.f{fill:none;stroke:$f}",
			map { ".f$_\{fill:$series[$_]}.l$_\{fill:none;stroke:$series[$_];stroke-width:2.5}" }
			0 .. $#series;
	};
	my $light = $rules->(split ' ', q(#ffffff #1f2328 #59636e #d8dee4 #eff2f5 #8c959f
			#0072B2 #D55E00 #009E73 #CC79A7 #B8860B #56B4E9 #555555));
	my $dark = $rules->(split ' ', q(#0d1117 #f0f6fc #9198a1 #30363d #1c2128 #6e7681
			#56B4E9 #FF8C42 #2FC99A #E3A0C8 #E8C14A #9ED2F2 #BBBBBB));
	return "<style>\n$light\n\@media (prefers-color-scheme:dark){\n$dark\n}\n</style>\n";
}

sub start_svg
{
	my ($width, $height, $title) = @_;
	return qq{<svg xmlns="http://www.w3.org/2000/svg" width="$width" height="$height" }
		. qq{viewBox="0 0 $width $height" font-size="13" role="img" }
		. qq{font-family="system-ui,'Segoe UI','DejaVu Sans',sans-serif">\n}
		. '<title>' . escape($title) . "</title>\n" . style()
		. sprintf(qq{<rect class="b" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>\n},
			$width - 1, $height - 1);
}

sub write_plot
{
	my ($name, $plot) = @_;
	my $file = $svg . ($svg =~ m{/$} ? '' : '.') . "$name.svg";
	open my $out, '>:utf8', $file or die "$file: $!\n";
	print $out $plot;
	close $out or die "$file: $!\n";
	print "plot: $file\n\n";
	return;
}

sub escape { my ($s) = @_; $s =~ s/&/&amp;/g; $s =~ s/</&lt;/g; $s =~ s/>/&gt;/g; return $s; }

# text(class, x, y, text, name => value of further attributes ...)
sub text
{
	my ($class, $x, $y, $text, %more) = @_;
	my $attributes = join '', map { qq{ $_="$more{$_}"} } sort keys %more;
	return sprintf qq{<text class="%s" x="%.1f" y="%.1f"%s>%s</text>\n}, $class, $x, $y,
		$attributes, escape($text);
}

sub line { return sprintf qq{<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>\n}, @_; }

# "200,000 × 128, L2" of a set's information, else its name.
sub set_title
{
	my ($set) = @_;
	my ($n, $dim, $metric) = ($set_info{$set} // '') =~ /^(\d+) x (\d+) (\w+)/ or return $set;
	my %metric = (l2 => 'L2', cos => 'cosine', ip => 'inner product');
	1 while $n =~ s/^(\d+)(\d{3})/$1,$2/;
	return "$n \x{d7} $dim, " . ($metric{$metric} // $metric);
}

sub symbol
{
	my ($i, $x, $y) = @_;
	my $class = 'f' . $i % SERIES;
	my @path = (undef, 'M-4,-4h8v8h-8z', 'M0,-5L5,4H-5z', 'M0,-5.5L5.5,0L0,5.5L-5.5,0z');
	my $path = $path[ $i % @path ];
	return qq{<circle class="$class" cx="$x" cy="$y" r="4.5"/>\n} if !defined $path;
	return qq{<path class="$class" d="$path" transform="translate($x,$y)"/>\n};
}

# (least, greatest) of a list, with a part of the distance between them more at either end
sub range
{
	my ($before, $after, @v) = @_;
	@v = sort { $a <=> $b } @v;
	my $length = $v[-1] - $v[0] || 0.4;
	return ($v[0] - $before * $length, $v[-1] + $after * $length);
}

# What a panel's place on the page is: left, top, width, height, and the ranges of x and y.
sub place
{
	my ($p, $x, $y) = @_;
	return (
		sprintf('%.1f', $p->{left} + ($x - $p->{x}[0]) / ($p->{x}[1] - $p->{x}[0]) * $p->{width}),
		sprintf('%.1f', $p->{top} + ($p->{y}[1] - $y) / ($p->{y}[1] - $p->{y}[0]) * $p->{height}));
}

# Frame, grid and numbers; those of QPS if asked for.
sub axes
{
	my ($p, $numbers) = @_;
	my ($left, $top) = @{$p}{qw(left top)};
	my ($right, $bottom) = ($left + $p->{width}, $top + $p->{height});
	my $s = '';
	my @written;

	# where two numbers would touch, that of the greater power of ten is written
	for my $r (0.9, 0.99, 0.999, 0.9999, 1, 0.95, 0.995, 0.9995, 0.98, 0.998, 0.97, 0.8, 0.7, 0.5,
		0.3, 0)
	{
		my $v = nines($r);
		next if $v < $p->{x}[0] || $v > $p->{x}[1];
		my ($at) = place($p, $v, 0);
		$s .= line('g', $at, $top, $at, $bottom);
		next if grep { abs($_ - $at) < 46 } @written;
		push @written, $at;
		$s .= text('m', $at, $bottom + 18, $r, %middle);
	}
	for my $e (int($p->{y}[0]) - 1 .. int($p->{y}[1]) + 1)
	{
		for my $m (1 .. 9)
		{
			my $v = $e + log($m) / log(10);
			next if $v < $p->{y}[0] || $v > $p->{y}[1];
			my (undef, $at) = place($p, 0, $v);
			my $named = $m == 1 || $m == 2 || $m == 5 || $p->{y}[1] - $p->{y}[0] < 0.7;
			$s .= line($named ? 'g' : 'h', $left, $at, $right, $at);
			$s .= text('m', $left - 8, $at + 4, $m * 10**$e, 'text-anchor' => 'end')
				if $named && $numbers;
		}
	}
	return $s . qq{<rect class="f" x="$left" y="$top" width="$p->{width}" height="$p->{height}"/>\n}
		. text('t', $left + $p->{width} / 2, $bottom + 42, "recall\@$k", %middle);
}

# A panel for each number of clients, side by side on the same scales. Recall runs along
# -log10(1 - recall), for on a plain axis everything of interest is crammed against 1.
sub plot
{
	my ($set, $l, $c) = @_;
	my ($pw, $ph, $left, $top, $gap) = (440, 340, 72, 104, 28);
	my @points = map { my $label = $_; map { curve($set, $label, $_) } @$c } @$l;
	# the numbers of the points stand to their right
	my @x = range(0.08, 0.1, map { nines($_->{recall}) } @points);
	my @y = range(0.06, 0.06, map { log($_->{qps}) / log(10) } @points);

	my $title = 'Recall and throughput: ' . set_title($set);
	my $s = start_svg($left + @$c * $pw + (@$c - 1) * $gap + 24, $top + $ph + 58, $title)
		. text('t', $left, 30, $title, %title)
		. text('m', $left, 50,
			'up and to the right is better; numbers at the points are search widths');
	my $x = $left;
	for my $i (0 .. $#$l)
	{
		$s .= line('l' . $i % SERIES, $x, 71, $x + 26, 71) . symbol($i, $x + 13, 71)
			. text('t', $x + 33, 76, $l->[$i], 'font-size' => 14);
		$x += 56 + 8 * length $l->[$i];
	}
	for my $panel (0 .. $#$c)
	{
		my %p = (left => $left + $panel * ($pw + $gap), top => $top, width => $pw, height => $ph,
			x => \@x, y => \@y);
		$s .= axes(\%p, $panel == 0)
			. text('t', $p{left} + $pw / 2, $top - 8,
				"$c->[$panel] client" . ($c->[$panel] > 1 ? 's' : ''),
				'font-weight' => 600, %middle);
		for my $i (0 .. $#$l)
		{
			my @p = curve($set, $l->[$i], $c->[$panel]) or next;
			my @at = map { [ place(\%p, nines($_->{recall}), log($_->{qps}) / log(10)) ] } @p;
			$s .= sprintf qq{<polyline class="l%d" points="%s"/>\n}, $i % SERIES,
				join(' ', map { "$_->[0],$_->[1]" } @at);
			for my $j (0 .. $#p)
			{
				# the first index's numbers below its curve, the others' above
				$s .= symbol($i, @{ $at[$j] })
					. text('f' . $i % SERIES,
						$at[$j][0] + ($i ? 6 : -6), $at[$j][1] + ($i ? -6 : 14), $p[$j]{width},
						'font-size' => 11, 'text-anchor' => $i ? 'start' : 'end');
			}
		}
	}
	return $s . text('t', 0, 0, 'queries per second', %middle,
		transform => sprintf('translate(22,%d) rotate(-90)', $top + $ph / 2)) . "</svg>\n";
}

# A bar for each index of each set, all on one scale that begins at zero.
sub build_plot
{
	my ($left, $top, $bar, $pw) = (190, 78, 26, 520);
	my @with = grep { $built{$_} } @sets;
	my ($most) = sort { $b <=> $a } map { map { $_->{seconds} } values %{ $built{$_} } } @with;
	my $rows = 0;
	my (%series, $n);
	for my $set (@with)
	{
		$rows += keys %{ $built{$set} };
		$series{$_} //= $n++ % SERIES for grep { $built{$set}{$_} } @{ $labels{$set} };
	}
	my $title = 'Time of CREATE INDEX';
	my $s = start_svg($left + $pw + 190, $top + $rows * $bar + @with * 18 + 4, $title)
		. text('t', 24, 30, $title, %title)
		. text('m', 24, 50, 'shorter is better');
	my $y = $top;
	for my $set (@with)
	{
		my @l = grep { $built{$set}{$_} } @{ $labels{$set} };
		my ($first) = defined $base ? grep { $_ eq $base } @l : $l[0];
		$s .= text('t', 24, $y + $bar * @l / 2 + 2, set_title($set), 'font-weight' => 600);
		for my $label (@l)
		{
			my $seconds = $built{$set}{$label}{seconds};
			my $length = $seconds / $most * $pw;
			my $what = sprintf $seconds < 10 ? '%s %.1f s' : '%s %.0f s', $label, $seconds;
			$what .= sprintf ', %.1f times as fast', $built{$set}{$first}{seconds} / $seconds
				if defined $first && $label ne $first;
			$s .= sprintf(qq{<rect class="f%d" x="%d" y="%.1f" width="%.1f" height="%d" rx="2"/>\n},
				$series{$label}, $left, $y, $length < 2 ? 2 : $length, $bar - 6)
				. text('t', $left + $length + 8, $y + $bar - 11, $what);
			$y += $bar;
		}
		$y += 18;
	}
	return $s . "</svg>\n";
}
