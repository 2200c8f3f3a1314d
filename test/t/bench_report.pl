# The plots that README shows are what report.pl makes of the figures beside them, and can be read
# on light and on dark pages; a plot is made for each set, and one of build times.
use strict;
use warnings;

use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use Test::More;

my $bench = dirname(__FILE__) . '/../bench';
my $made = PostgreSQL::Test::Utils::tempdir();

sub report
{
	my (@arguments) = @_;
	my ($out, $err) = ('', '');
	my $ok = IPC::Run::run([ $^X, "$bench/report.pl", @arguments ], '>', \$out, '2>', \$err);

	is(($ok ? '' : 'failed: ') . $err, '', "report.pl @arguments[0 .. 0]");
	return $out;
}

report('--svg', "$made/", "$bench/plots/cpu.tsv");
my @plots = map { s{.*/}{}r } glob "$made/*.svg";
is("@plots", join(' ', map { s{.*/}{}r } glob "$bench/plots/*.svg"), 'the plots that are there');
for my $plot (@plots)
{
	my $svg = slurp_file("$made/$plot");
	is($svg, slurp_file("$bench/plots/$plot"), "$plot is made of the figures");
	like($svg, qr/prefers-color-scheme:dark/, "$plot has colours for dark pages");

	my %styled = map { $_ => 1 } $svg =~ /\.(\w+)\{/g;
	is(join(' ', grep { !$styled{$_} } $svg =~ /class="(\w+)"/g), '',
		"$plot uses no class without a style");
}

# Two runs, one of which has a set with one point only.
append_to_file("$made/one.tsv", <<'TSV');
info	set s	1000 x 8 l2, 10 queries
build	s	hnsw	1	2.00	1048576	1048576
build	s	gpugraph	1	0.50	1048576	1048576
point	s	hnsw	40	1	1	0.9500	100.0	1	2	3	10	100	0
point	s	gpugraph	64	1	1	1.0000	400.0	1	2	3	10	100	0
TSV
append_to_file("$made/two.tsv",
	"point\ts\tgpugraph\t64\t1\t1\t0.9900\t300.0\t1\t2\t3\t10\t100\t0\n");
report('--svg', "$made/several", "$made/one.tsv", "$made/two.tsv");
my $svg = slurp_file("$made/several.s.svg");
like($svg, qr/1,000 × 8, L2/, 'a set is named by what it holds');
like($svg, qr/>two gpugraph</, 'of several files each index is led by its file');
like(slurp_file("$made/several.build.svg"), qr/one gpugraph 0\.5 s, 4\.0 times as fast/,
	'build times');

report('--svg', "$made/point", "$made/two.tsv");
like(slurp_file("$made/point.s.svg"), qr/<polyline/, 'a plot of one point');
ok(!-e "$made/point.build.svg", 'no plot of builds where none were measured');

done_testing();
