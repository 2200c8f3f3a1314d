# Pages of an index are damaged: bits, fields, whole pages, pages of before, of elsewhere or of
# another index, a file that is cut. Each statement then has the right answer, or an error that
# names the index, the block and what to do, or an answer that is wrong in a way that
# gpugraph_check() finds. No process crashes, nothing runs for ever, and no row comes that the table
# has not, or that a condition leaves out. REINDEX repairs all of it.
#
# doc/damage.md has by kind of page which damage may make which answers wrong. An answer that is
# wrong in another way fails, whatever the check finds.
#
# A round has a copy of a database, whose indexes have segments, pieces, gaps, learned edges and a
# delta, and damages all of them before anybody has read them: most of its time is the copy's.
use strict;
use warnings;

use File::Basename qw(dirname);
use File::Copy qw(copy);
use List::Util qw(shuffle);
use PostgreSQL::Test::Utils;
use Test::More;

use Format;
use Gpugraph;
use Residency;
use Torture;

use constant TIMEOUT => 60;

# With every third seed pages have checksums, and nothing is wrong but what a page of before makes
# so.
my $checksums = ($ENV{TORTURE_SEED} || 1) % 3 == 0;
my $node = service_node('corruption',
	init => { extra => [ $checksums ? '--data-checksums' : () ] }, conf => <<'CONF');
log_statement = none
autovacuum = off
restart_after_crash = on
full_page_writes = off
fsync = off
gpugraph.merge_workers = 0
gpugraph.autoprewarm = off
CONF

# dimensions, rows, index options; rows of wide are longer than a page
my %tables = (
	plain => [ 16, 900, 'seal_rows = 150' ],
	coded => [ 24, 900, 'seal_rows = 150, storage = int4' ],
	halved => [ 40, 700, 'seal_rows = 100, algorithm = grnnd, storage = float16' ],
	wide => [ 2300, 60, 'seal_rows = 20, algorithm = tsdg, storage = "float32+int8"' ],
	gaps => [ 1500, 300, 'seal_rows = 0' ]);
my $any = join '|', sort keys %tables;
my %file;

sub vector
{
	my ($dim, $i) = @_;

	return "(SELECT array_agg((sin($i * d) * 100)::int) FROM generate_series(1, $dim) d)"
		. '::real[]::vector';
}

sub stage_file { my ($table, $stage) = @_; return "$ENV{TESTDIR}/$table.$stage" }

# What the index's file holds now serves as pages of before.
sub keep_stage
{
	my ($table, $stage) = @_;

	$node->safe_psql('pattern', 'CHECKPOINT');
	my $path = $node->safe_psql('pattern', "SELECT pg_relation_filepath('${table}_idx')");

	copy($node->data_dir . "/$path", stage_file($table, $stage)) or die "copy: $!";
	($file{$table}) = $path =~ m{([^/]+)$};
	return;
}

sub make_pattern
{
	$node->safe_psql('postgres', 'CREATE DATABASE pattern');
	$node->safe_psql('pattern', 'CREATE EXTENSION gpugraph CASCADE');
	for my $table (sort keys %tables)
	{
		my ($dim, $n, $with) = @{ $tables{$table} };
		my $rows = sub {
			my ($from, $to) = @_;

			return "INSERT INTO $table SELECT i, i % 5, " . vector($dim, 'i')
				. " FROM generate_series($from, $to) i;";
		};
		my $third = int($n / 3);

		$node->safe_psql('pattern', <<"SQL");
CREATE TABLE $table (id int, cat int, val vector($dim)) WITH (autovacuum_enabled = off);
ALTER TABLE $table ALTER val SET STORAGE external;
@{[ $rows->(1, $third) ]}
CREATE INDEX ${table}_idx ON $table USING gpugraph (val vector_l2_ops, cat) WITH ($with);
SQL
		keep_stage($table, 1);
		$node->safe_psql('pattern', $_) for $rows->($third + 1, 2 * $third),
			"DELETE FROM $table WHERE id % 7 = 1", "VACUUM $table",
			($table eq 'gaps' ? () : "SELECT gpugraph_merge('${table}_idx')");
		keep_stage($table, 2);
		$node->safe_psql('pattern', $_) for $rows->(2 * $third + 1, $n),
			"UPDATE $table SET val = " . vector($dim, 'id + 5000') . ' WHERE id % 5 = 2',
			"VACUUM $table",
			($table eq 'gaps' ? () : ("SELECT gpugraph_merge('${table}_idx')",
				"SELECT gpugraph_learn('${table}_idx', (SELECT array_agg(val) FROM $table
					WHERE id % 3 = 0), 4)")),
			$rows->($n + 1, $n + 30),
			"DELETE FROM $table WHERE id % 31 = 0 OR id % 2 = 0 AND id > $n",
			"VACUUM $table", "ANALYZE $table", "SELECT gpugraph_check('${table}_idx', true)";
		keep_stage($table, 3);
	}
	return;
}

# ---- what doc/damage.md says

my @kinds = qw(- metapage vectors adjacency tids pivots offsets delta free directory taken filters
	codes sample mean calibration);
my (%listed, %met);

sub read_list
{
	my $text = slurp_file(dirname(__FILE__) . '/../../doc/damage.md');

	while ($text =~ /^\| (\w+) \| (contents|before) \|.*\| ([a-z, ]+) \|$/mg)
	{
		$listed{"$1 $2"} = { map { $_ => 1 } split /, /, $3 };
	}
	for my $kind (grep { !/^-|taken/ } @kinds)
	{
		ok($listed{"$kind $_"}, "$kind, $_: listed") for qw(contents before);
	}
	return;
}

# The kinds of a file's blocks, by its directory.
sub kinds_of
{
	my ($path) = @_;
	my @kind = ('free') x ((-s $path) / PAGE);

	for my $extent (@{ read_directory($path)->{extents} })
	{
		my ($start, $nblocks, undef, $kind) = @$extent;

		$kind[$_] = $kinds[$kind] for $start .. $start + $nblocks - 1;
	}
	$kind[0] = 'metapage';
	return map { $_ eq 'taken' ? 'free' : $_ } @kind;
}

# ---- damage

my (@kind_now, %hit);	# kinds of blocks of the file that is damaged; what was done to which kind

sub note_hit { my ($block, $damage) = @_; $hit{"$kind_now[$block] $damage"} = 1; return }

sub put_bytes
{
	my ($path, $block, $offset, $bytes) = @_;
	my $page = read_page($path, $block);

	# header and stamp are noticed, but for bits that say nothing
	note_hit($block, 'contents') if $offset + length $bytes > HEADER && $offset < PAGE - STAMP;
	substr($page, $offset, length $bytes) = $bytes;
	write_page($path, $block, substr $page, 0, PAGE);
	return "$block+$offset=" . unpack 'H*', $bytes;
}

# Another number in the place of this one.
sub other_number
{
	my ($old, $width, $blocks) = @_;
	my $most = 2**(8 * $width) - 1;
	my $new = one_of(0, 1, $old + 1, $old - 1, 2 * $old, $most, $most >> 1, $blocks,
		number(2 * $blocks), number($most), $old ^ (1 << number(8 * $width)), number(64));

	return $new % ($most + 1);
}

sub damage_number
{
	my ($path, $block, $offset, $width) = @_;
	my $format = $width == 2 ? 'S' : 'L';
	my $old = unpack $format, substr read_page($path, $block), $offset, $width;

	return put_bytes($path, $block, $offset, pack $format,
		other_number($old, $width, (-s $path) / PAGE));
}

sub lower { my ($page) = @_; return unpack 'x12 S', $page }

sub kind_of { my ($page) = @_; return (unpack 'Q L L S', substr $page, PAGE - STAMP)[3] }

# A number on a page of a kind that is drawn first, so that kinds of few pages have their share.
sub damage_kind
{
	my ($path) = @_;
	my %blocks;

	push @{ $blocks{ kind_of(read_page($path, $_)) } }, $_ for 1 .. (-s $path) / PAGE - 1;
	my $kind = one_of(sort grep { $_ > 1 && $_ <= 12 } keys %blocks);

	return map {
		my $block = one_of(@{ $blocks{$kind} });
		my $used = lower(read_page($path, $block)) - HEADER;

		$used = 4 if $used < 4 || $used > PAGE - HEADER - STAMP;
		chance(0.8) ? damage_number($path, $block, HEADER + 4 * number($used / 4), 4) :
			damage_number($path, $block, one_of(2 * number(HEADER / 2),
				PAGE - STAMP + 2 * number(STAMP / 2)), 2);
	} 1 .. one_of(1, 1, 2, 8, 20);
}

# What a page holds of rows, lists or words comes from another page of its kind, or has moved by
# some bytes: header and stamp are right, and most numbers are possible ones.
sub damage_contents
{
	my ($path) = @_;
	my %blocks;

	push @{ $blocks{ $kind_now[$_] } }, $_ for grep { $kind_now[$_] ne 'free' } 1 .. $#kind_now;
	return map {
		my $kind = one_of(sort keys %blocks);
		my ($block, $other) = map { one_of(@{ $blocks{$kind} }) } 1, 2;
		my $used = lower(read_page($path, $block)) - HEADER;
		my $moved = $block == $other || chance(0.5) ? 4 * number($used / 4) : 0;
		my $bytes = substr read_page($path, $other), HEADER, $used;

		put_bytes($path, $block, HEADER, substr($bytes, $moved) . substr $bytes, 0, $moved);
		"$block $kind, contents of $other moved by $moved";
	} 1 .. one_of(1, 1, 2);
}

sub damage_meta
{
	my ($path) = @_;
	my $used = lower(read_page($path, 0));

	return map { chance(0.6) ?
		damage_number($path, 0, HEADER + 2 * number(META_HEAD / 2), 2) :
		damage_number($path, 0, HEADER + 4 * number(($used - HEADER) / 4), 4) }
		1 .. one_of(1, 1, 2);
}

sub damage_bits
{
	my ($path) = @_;

	return map {
		my $block = number((-s $path) / PAGE);
		my $offset = one_of(number(HEADER), HEADER + number(400), number(PAGE),
			PAGE - STAMP + number(STAMP));
		my $byte = unpack 'C', substr read_page($path, $block), $offset, 1;

		put_bytes($path, $block, $offset, pack 'C', $byte ^ (1 << number(8)));
	} 1 .. one_of(1, 1, 2, 5, 20);
}

# Pages of a former stage, of another place, of another index, or zeros; or a half of them.
sub damage_pages
{
	my ($path, $table) = @_;

	return map {
		my $block = number((-s $path) / PAGE);
		my $from = one_of($path, stage_file($table, 1), stage_file($table, 2),
			stage_file(one_of(sort keys %tables), 3), undef);
		my $other = defined $from ? chance(0.7) && $block < (-s $from) / PAGE ? $block :
			number((-s $from) / PAGE) : undef;
		my $page = defined $from ? read_page($from, $other) : "\0" x PAGE;
		my ($at, $length) = @{ one_of([ 0, PAGE ], [ 0, PAGE ], [ 0, PAGE / 2 ],
			[ PAGE / 2, PAGE / 2 ], [ 0, HEADER ]) };
		my $now = read_page($path, $block);

		note_hit($block, $length < PAGE ? 'contents' : 'before') if $length > HEADER;
		substr($now, $at, $length) = substr $page, $at, $length;
		write_page($path, $block, $now);
		sprintf '%d+%d..%d of %s', $block, $at, $at + $length,
			defined $from ? "block $other of " . $from =~ s{.*/}{}r : 'zeros';
	} 1 .. one_of(1, 1, 2, 6, 20);
}

# Whole pages of elsewhere in the file, of another index, or zeros: whoever reads them notices.
sub damage_places
{
	my ($path, $table) = @_;
	my $blocks = (-s $path) / PAGE;

	return map {
		my $block = 1 + number($blocks - 1);
		my $from = one_of($path, $path, stage_file(one_of(grep { $_ ne $table }
			sort keys %tables), 3), undef);
		my $other = defined $from ? number((-s $from) / PAGE) : 0;

		write_page($path, $block, defined $from ? read_page($from, $other) : "\0" x PAGE);
		sprintf '%d of %s', $block, defined $from ? "block $other of " . $from =~ s{.*/}{}r :
			'zeros';
	} 1 .. one_of(1, 2, 6, 20);
}

sub cut
{
	my ($path) = @_;
	my $blocks = number((-s $path) / PAGE);

	truncate $path, $blocks * PAGE or die "truncate: $!";
	return "cut to $blocks";
}

# ---- statements

my (%count, @wrong);

# The rows of a statement, or nothing where it fails, as it may.
sub try
{
	my ($c, $table, $sql) = @_;
	my $answer = try_query($c, $sql);
	my $error = $answer->{error};

	$count{statements}++;
	return $answer->{results}[-1]{rows} if !$error;
	$count{errors}++;
	my $hint = $error->{hint} // '';
	my $index = ($sql =~ /gpugraph_indexes/ ? "(?:$any)" : $table) . '_idx';

	return if $error->{code} eq 'XX002' && $hint =~ /REINDEX/
		&& $error->{message} =~ /^index "$index" is corrupted at block \d+: /;
	return if $error->{code} eq 'XX002' && $hint =~ /REINDEX/ && $error->{detail} =~ /block \d+/
		&& $error->{message} eq "could not load index \"${table}_idx\" onto the device";
	return if $error->{code} =~ /^(0A000|54000)$/ && $hint =~ /REINDEX/;
	return if $checksums && ($error->{detail} // '') =~ /invalid page in block \d+/
		&& $error->{message} eq "could not load index \"${table}_idx\" onto the device";
	# what PostgreSQL itself finds
	return if $error->{code} eq 'XX001' && $error->{message} =~ /^invalid page in block \d+/;
	push @wrong, "$sql\n\t$error->{code} $error->{message} HINT: $hint";
	return;
}

# What is wrong with answers of scans, in a way that a check must find.
sub scan
{
	my ($c, $table, $rows) = @_;
	my $query = query($c, 'SELECT ' . vector($tables{$table}[0], 0.37 + number(900)));
	my $order = "ORDER BY val <-> '$query'";
	my @odd;

	for my $cat (undef, 3)
	{
		my $where = defined $cat ? "WHERE cat = $cat" : '';
		my $all = try($c, $table, "SELECT id FROM $table $where $order") or next;
		my %wanted = map { !defined $cat || $rows->{$_} == $cat ? ($_ => 1) : () } keys %$rows;
		my %seen;

		$seen{ $_->[0] }++ for @$all;
		push @wrong, "a foreign row: $_" for grep { !$wanted{$_} } keys %seen;
		push @odd, 'twice' if @$all != keys %seen;
		push @odd, 'missing' if keys %seen < keys %wanted;
	}
	for my $where ('WHERE cat = 3', 'WHERE cat IN (1, 4)', '')
	{
		my $few = try($c, $table,
			"SELECT id, cat, val <-> '$query' FROM $table $where $order LIMIT 20") or next;
		my $last = 0;

		for my $row (@$few)
		{
			my ($id, $cat, $distance) = @$row;

			push @wrong, "$where: a foreign row: $id" if !exists $rows->{$id}
				|| $rows->{$id} != $cat || ($where =~ /= 3/ && $cat != 3)
				|| ($where =~ /IN/ && $cat != 1 && $cat != 4);
			push @odd, 'order' if $distance < $last * 0.99999;
			$last = $distance;
		}
	}
	return @odd;
}

sub rows_of
{
	my ($c, $table) = @_;

	query($c, 'SET enable_seqscan = on; SET enable_indexscan = off');
	my %rows = map { @$_ } query($c, "SELECT id, cat FROM $table");

	query($c, 'SET enable_seqscan = off; SET enable_indexscan = on');
	return \%rows;
}

# Is an answer that is wrong in this way listed for what was damaged?
sub is_listed
{
	my ($odd, $hit) = @_;
	my @by = grep { $listed{$_}{$odd} && (!$checksums || / before$/) } keys %$hit;

	$met{"$_: $odd"}++ for @by == 1 ? @by : ();
	return @by > 0;
}

sub use_index
{
	my ($c, $table, $noticed, $hit) = @_;
	my $dim = $tables{$table}[0];
	my $rows = rows_of($c, $table);
	my $device = chance(0.4);
	my $check = "SELECT gpugraph_check('${table}_idx', true)";

	query($c, 'SET gpugraph.engine = ' . ($device ? 'auto' : 'cpu'));
	try($c, $table, "SELECT gpugraph_prewarm('${table}_idx')") if $device;
	my @odd = scan($c, $table, $rows);

	push @wrong, "@odd, and no scan notices" if @odd && $noticed;
	push @wrong, "$_, which is listed for none of " . join ', ', sort keys %$hit
		for grep { !is_listed($_, $hit) } @odd;
	if (@odd && try($c, $table, $check))
	{
		push @wrong, "@odd, and the check finds nothing";
	}
	$count{odd}++ if @odd;
	try($c, $table, $check);
	my @steps = (
		"SELECT * FROM gpugraph_index_info('${table}_idx')", 'SELECT * FROM gpugraph_indexes',
		"SELECT count(*) FROM gpugraph_knn_graph('${table}_idx', 5)",
		"SELECT gpugraph_recall('${table}_idx', 5, 20)",
		"SELECT count(*) FROM gpugraph_search('${table}_idx',
			(SELECT array_agg(val) FROM (SELECT val FROM $table LIMIT 20) s), 5)",
		"INSERT INTO $table SELECT NEXT + i, i % 5, " . vector($dim, '(NEXT + i)')
			. ' FROM generate_series(1, ' . ($dim > 1000 ? 40 : 300) . ') i',
		"DELETE FROM $table WHERE id % " . one_of(2, 3, 9) . ' = 0', "VACUUM $table",
		"VACUUM (PARALLEL 0) $table", "SELECT gpugraph_merge('${table}_idx')",
		"SELECT gpugraph_learn('${table}_idx', (SELECT array_agg(val) FROM $table
			WHERE id % 5 = 0), 4)");

	for my $step (1 .. 2 + number(8))
	{
		try($c, $table, one_of(@steps) =~ s/NEXT/10000 * $step/ger);
	}
	scan($c, $table, rows_of($c, $table));

	query($c, "REINDEX INDEX ${table}_idx");
	query($c, $check);
	$rows = rows_of($c, $table);
	push @wrong, "after REINDEX: $_" for scan($c, $table, $rows);
	return;
}

read_list();
make_pattern();
my $number = 0;
my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

rounds('corruption', sub {
	my ($round) = @_;
	my $database = 'copy_' . $number++;
	my (%how, %done, %hits, @all);

	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE pattern STRATEGY file_copy");
	my $oid = $node->safe_psql('postgres',
		"SELECT oid FROM pg_database WHERE datname = '$database'");
	for my $table (sort keys %tables)
	{
		$how{$table} = weighted(\&damage_kind => 4, \&damage_contents => 6,
			\&damage_meta => 4, \&damage_bits => 3, \&damage_pages => 3, \&damage_places => 3,
			\&cut => 0.5);
		my $path = $node->data_dir . "/base/$oid/$file{$table}";

		@kind_now = kinds_of($path);
		%hit = ();
		$done{$table} = [ $how{$table}->($path, $table) ];
		$hits{$table} = {%hit};
		my %blocks = map { /^(\d+)/ ? ($1 => 1) : () } @{ $done{$table} };

		$count{'damaged pages'} += keys %blocks;
	}
	for my $table (shuffle sort keys %tables)
	{
		@wrong = ();
		eval
		{
			my $c = connect_to($node, $database);

			query($c, 'SET statement_timeout = ' . 1000 * TIMEOUT . '; SET enable_sort = off;
				SET gpugraph.max_scan_tuples = 2000000000');
			use_index($c, $table, $how{$table} == \&damage_places, $hits{$table});
			1;
		} or push @wrong, $@;
		push @all, "$table: @{ $done{$table} }", @wrong if @wrong;
		wait_until_up($node);
	}
	$node->safe_psql('postgres', "DROP DATABASE $database WITH (FORCE)") if wait_until_up($node);
	push @all, 'the server was down'
		if $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()') ne $started;
	return @all;
});
note join ', ', map { "$count{$_} $_" } sort keys %count;
note "by one kind alone: $met{$_} x $_" for sort keys %met;
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC/, 'no process crashed');

$node->stop;
done_testing();
