# The disk is full, or broken, or writes half of what it is asked to, in the index's file, the
# table's, pg_wal or temporary files: statements fail, the server may come down, and nothing that
# was committed is lost. Every third round tears pages: after kill -9 of the server, pages of the
# index that were written since the checkpoint are left half as they were before.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use Format qw(PAGE);
use Gpugraph;
use Merging;
use Torture;

my $library = "$ENV{TESTDIR}/faulty_disk.so";
my $control = "$ENV{TESTDIR}/faulty_disk";
my %faults = (none => 0, full => 1, broken => 2, short => 3, unreadable => 4);
my (@wrong, %rows, $next, $file, $table_file, %count);

system_or_bail('cc', '-shared', '-fPIC', '-O2', '-o', $library,
	$0 =~ s{[^/]+$}{faulty_disk.c}r, '-ldl');
set_disk('none', '', 0);
local $ENV{LD_PRELOAD} = $library;
local $ENV{FAULTY_DISK} = $control;
my $node = merging_node('disk', conf => <<'CONF');
restart_after_crash = on
log_statement = none
fsync = on
wal_sync_method = fdatasync
shared_buffers = 512kB
wal_consistency_checking = 'generic'
min_wal_size = 32MB
wal_keep_size = 0
maintenance_work_mem = 1MB
gpugraph.merge_workers = 1
CONF

sub set_disk
{
	my ($fault, $where, $calls) = @_;

	if (!-f $control)
	{
		open my $new, '>:raw', $control or die "$control: $!";
		print $new "\0" x 512;
		close $new;
	}
	# the fault comes last, when all else is there
	for my $part ([ 0, pack('l', 0) ], [ 12, pack('Z500', $where) ],
		[ 4, pack('l l', $calls, 0) ], [ 0, pack('l', $faults{$fault}) ])
	{
		open my $out, '+<:raw', $control or die "$control: $!";
		seek $out, $part->[0], 0;
		print $out $part->[1];
		close $out or die "$control: $!";
	}
	return;
}

sub calls_that_failed
{
	return unpack 'x8 l', slurp_file($control);
}

$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION vec(i bigint) RETURNS vector LANGUAGE sql IMMUTABLE AS $$
	SELECT array_agg(sin(i % 40 * d) + 0.4 * sin(i * d * 0.61))::real[]::vector(24)
	FROM generate_series(1, 24) d $$;
SQL

sub make_table
{
	$node->safe_psql('postgres', <<'SQL');
DROP TABLE IF EXISTS items;
CREATE TABLE items (id bigint, cat int, val vector(24));
INSERT INTO items SELECT i, i % 10, vec(i) FROM generate_series(1, 800) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat)
	WITH (seal_rows = 200, graph_degree = 16, intermediate_graph_degree = 32);
SQL
	%rows = map { $_ => 1 } 1 .. 800;
	$next = 1000;
	find_files();
	return;
}

sub find_files
{
	($file, $table_file) = split /\|/, $node->safe_psql('postgres', "SELECT
		pg_relation_filepath('items_idx'), pg_relation_filepath('items')");
	return;
}

# A statement, and the rows that it leaves: added, removed.
sub draw_statement
{
	my $n = one_of(3, 40, 150);
	my $last = $next + $n - 1;
	my @old = (sort { $a <=> $b } keys %rows)[ 0 .. $n ];
	my ($first_old, $last_old) = @old[ 0, -1 ];

	return weighted(
		[ "INSERT INTO items SELECT i, i % 10, vec(i) FROM generate_series($next, $last) i",
			[ $next .. $last ], [] ] => 5,
		[ "DELETE FROM items WHERE id BETWEEN $first_old AND $last_old", [], \@old ] => 3,
		[ "UPDATE items SET val = vec(id + 1) WHERE id BETWEEN $first_old AND $last_old",
			[], [] ] => 2,
		[ 'VACUUM items', [], [] ] => 3,
		[ "SELECT gpugraph_merge('items_idx')", [], [] ] => 3,
		[ "SELECT gpugraph_learn('items_idx', (SELECT array_agg(vec(i * 7))
			FROM generate_series(1, 50) i))", [], [] ] => 1,
		[ 'REINDEX INDEX items_idx', [], [] ] => 1,
		[ 'REINDEX INDEX CONCURRENTLY items_idx', [], [] ] => 0.5,
		[ 'CHECKPOINT', [], [] ] => 2);
}

# Run statements; what failed left nothing, and where the connection ended, either.
sub run_some
{
	my ($n) = @_;
	my ($c, @doubt);

	for (1 .. $n)
	{
		my ($sql, $added, $removed) = @{ draw_statement() };

		$next += 200;
		my $answer = eval { $c //= connect_to($node);
			try_query($c, "SET statement_timeout = '30s'") if $_ == 1; try_query($c, $sql) };
		if (!$answer)
		{
			push @doubt, @$added, @$removed if $c;
			undef $c;
			usleep(200_000);
			next;
		}
		if ($answer->{error}) { note_error($sql, $answer->{error}); next }
		$rows{$_} = 1 for @$added;
		delete @rows{@$removed};
	}
	return @doubt;
}

sub note_error
{
	my ($sql, $error) = @_;

	$count{"error $error->{code}"}++;
	# what a disk's fault may say; 57014: a write that was tried again and again
	return if $error->{code} =~ /^(53100|58030|XX001|XX002|57P0\d|57014)$/;
	return if $error->{message} =~ m{checkpoint request failed|No space left|Input/output error};
	return if $error->{message} =~ /wrote only|read only/;
	push @wrong, "$sql: $error->{code} $error->{message}";
	return;
}

sub check
{
	my ($what, @doubt) = @_;
	my $c = connect_to($node);
	my %table = map { $_->[0] => 1 } query($c, 'SET enable_indexscan = off; SELECT id FROM items');
	my @by_index = map { $_->[0] } query($c, 'SET enable_indexscan = on; SET enable_seqscan = off;
		SELECT id FROM items ORDER BY val <-> vec(' . number(99) . ')');

	for my $id (@doubt)
	{
		delete $rows{$id};
		$rows{$id} = 1 if $table{$id};
	}
	my @lost = grep { !$table{$_} } keys %rows;
	my @more = grep { !$rows{$_} } keys %table;
	push @wrong, "$what: the table lost @lost[0..$#lost], has @more too many" if @lost || @more;
	my %index = map { $_ => 1 } @by_index;
	my @missing = grep { !$index{$_} } keys %table;
	push @wrong, "$what: " . @by_index . ' rows by the index, ' . keys(%index) . ' different, '
		. keys(%table) . ' in the table' if @missing || @by_index != keys %table;
	my $answer = try_query($c, "SELECT gpugraph_check('items_idx', true)");
	push @wrong, "$what: $answer->{error}{message}" if $answer->{error};
	return;
}

sub disk_round
{
	my $where = weighted(index => 6, table => 1, wal => 2, temporary => 0.5);
	my $fault = weighted(full => 3, broken => 2, short => 2,
		unreadable => $where eq 'index' ? 2 : 0);
	my %path = (index => $file, table => $table_file, wal => 'pg_wal/', temporary => 'pgsql_tmp');

	# a PANIC comes back by itself as soon as the disk is whole
	set_disk($fault, $path{$where}, number(one_of(2, 10, 60)));
	my @doubt = run_some(6);
	$count{"$fault, $where"} += calls_that_failed();
	set_disk('none', '', 0);
	push @wrong, 'the server does not come back' if !is_back();
	return ("$fault, $where", @doubt);
}

# A crash of the process that recovers ends the server.
sub is_back
{
	return defined wait_for(
		sub {
			if (!-f $node->data_dir . '/postmaster.pid')
			{
				$node->_update_pid(-1);
				$node->start(fail_ok => 1);
			}
			return eval { query(connect_to($node), 'SELECT 1') };
		});
}

# What has changed of a file since, page by page, is partly as it was.
sub tear_pages
{
	my ($path, $before) = @_;
	my $now = slurp_file($path);
	my $torn = 0;

	open my $out, '+<:raw', $path or die "$path: $!";
	for (my $at = 0; $at < length $now; $at += PAGE)
	{
		my $new = substr $now, $at, PAGE;
		my $old = $at < length $before ? substr $before, $at, PAGE : '';
		my $cut = 512 * (1 + number(PAGE / 512 - 1));

		$old .= "\0" x (PAGE - length $old);
		next if $new eq $old || chance(0.3);
		seek $out, $at, 0;
		print $out chance(0.5) ? substr($new, 0, $cut) . substr($old, $cut) :
			substr($old, 0, $cut) . substr($new, $cut);
		$torn++;
	}
	close $out or die "$path: $!";
	return $torn;
}

sub torn_round
{
	my $path = $node->data_dir . "/$file";

	$node->safe_psql('postgres', 'CHECKPOINT');
	my $before = slurp_file($path);
	my ($c, @done) = (connect_to($node));
	for (1 .. 8)
	{
		my ($sql, $added, $removed) = @{ draw_statement() };

		next if $sql =~ /CHECKPOINT|REINDEX/;
		$next += 200;
		query($c, $sql);
		$rows{$_} = 1 for @$added;
		delete @rows{@$removed};
	}
	# buffers are few, so most of what changed was written
	kill_9_server($node);
	$count{'torn pages'} += tear_pages($path, $before);
	$node->start;
	return 'torn pages';
}

sub one_round
{
	my ($round) = @_;
	my $seen = -s $node->logfile;

	@wrong = ();
	eval {
		make_table() if !defined $file || keys %rows > 4000 || keys %rows < 300;
		my ($what, @doubt) = $round % 3 == 2 ? torn_round() : disk_round();
		check($what, @doubt);
		run_some(2);
		check("$what, and what followed");
		find_files();
		1;
	} or push @wrong, "died: $@";
	push @wrong, "in the log: $1" if slurp_file($node->logfile, $seen)
		=~ /^(.*(?:TRAP|signal (?:11|7|8)\b|inconsistent page).*)$/m;
	undef $file if @wrong;
	return @wrong;
}

rounds('disk', \&one_round);
note join ', ', map { "$_: $count{$_}" } sort keys %count;
$node->stop;
done_testing();
