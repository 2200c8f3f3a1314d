# A standby that stops after each WAL record of the index: there the index is sound, and returns
# what the table has. At every 20th a copy of it is promoted and goes on as a primary.
#
# The standby reads WAL from its own pg_wal, where this test writes it, one record after the other.
# Replay compares each page with the image that the record carries (wal_consistency_checking). A
# round is a run of other statements.
use strict;
use warnings;

use File::Path qw(rmtree);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use Gpugraph;
use Torture;

use constant { SEGMENT => 1024 * 1024, MOST_RECORDS => 2000, PROMOTED => 20 };

my ($nnodes, @wrong, $nrecords, $npromoted) = (0);

# ---- WAL

sub to_number { my ($lsn) = @_; my ($h, $l) = split m{/}, $lsn; return hex($h) * 2**32 + hex $l }

sub to_lsn { my ($at) = @_; return sprintf '%X/%X', int($at / 2**32), $at % 2**32 }

sub wal_name
{
	my ($at) = @_;
	my $number = int($at / SEGMENT);

	return sprintf '%08X%08X%08X', 1, int($number / 4096), $number % 4096;
}

# Where records begin, which are of one of the files, and whether a lock is held behind them, for
# which each statement of a standby waits until the transaction's end is replayed.
sub records_of
{
	my ($node, $from, $files) = @_;
	my $dir = $node->data_dir . '/pg_wal';
	my ($out, $err);
	my (@records, %locked);
	my $segment = $from;

	# pg_waldump stops at the end of what it is given
	while (-f "$dir/" . wal_name($segment + SEGMENT)) { $segment += SEGMENT }
	($out, $err) = run_command([ 'pg_waldump', '-p', $dir, '-s', to_lsn($from), wal_name($from),
		wal_name($segment) ]);
	for my $line (split /\n/, $out)
	{
		my ($lsn) = $line =~ /lsn: (\S+),/ or next;
		my $ours = grep { exists $files->{$_} } $line =~ m{(\d+/\d+/\d+)}g;

		$locked{$1} = 1 if $line =~ /desc: LOCK xid (\d+) db/;
		delete $locked{$1} if $line =~ /^rmgr: Transaction .* tx: +(\d+),/;
		push @records, [ to_number($lsn), $ours, scalar %locked ];
	}
	return @records;
}

# Give the standby what lies between.
sub feed
{
	my ($node, $standby, $from, $to) = @_;

	while ($from < $to)
	{
		my $name = wal_name($from);
		my $start = $from - $from % SEGMENT;
		my $end = $to < $start + SEGMENT ? $to : $start + SEGMENT;
		my $file = $standby->data_dir . "/pg_wal/$name";
		my $bytes;

		open my $in, '<:raw', $node->data_dir . "/pg_wal/$name" or die "$name: $!";
		seek $in, $from - $start, 0;
		read $in, $bytes, $end - $from;
		if (!-f $file)
		{
			open my $new, '>:raw', "$file.new" or die "$file: $!";
			print $new "\0" x SEGMENT;
			close $new;
			rename "$file.new", $file;
		}
		open my $out, '+<:raw', $file or die "$file: $!";
		seek $out, $from - $start, 0;
		print $out $bytes;
		close $out or die "$file: $!";
		$from = $end;
	}
	return;
}

# ---- statements

sub rows
{
	my ($first, $n) = @_;
	my $last = $first + $n - 1;

	return "INSERT INTO items SELECT i, i % 7, vec(i) FROM generate_series($first, $last) i";
}

# What happens between base backup and end: mostly what writes few records.
sub draw_run
{
	my ($c, $other) = @_;
	my $next = 1000;
	my $open = 0;
	my $keeps = chance(0.4);	# no row is removed, so blocks alone cancel a standby's queries

	for (1 .. 45)
	{
		my $first = 20 + number($next);	# the others are another session's
		my $sql = weighted(
			rows($next, 1 + number(6)) => 6,
			rows($next, 60) => 2,
			"DELETE FROM items WHERE id BETWEEN $first AND $first + " . one_of(3, 40) => 4,
			"UPDATE items SET cat = cat + 1, val = vec(id + 1) WHERE id = $first" => 4,
			'VACUUM items' => 4,
			"SELECT gpugraph_merge('items_idx')" => 4,
			"SELECT gpugraph_learn('items_idx', (SELECT array_agg(vec(i * 7))
				FROM generate_series(1, 20) i), 4)" => 1,
			"SELECT gpugraph_forget('items_idx')" => 0.5,
			($open ? () : ('REINDEX INDEX CONCURRENTLY items_idx' => 0.3)),
			'CHECKPOINT' => 1,
			'other' => 3);

		$sql = rows($next, 40) if $keeps && $sql =~ /VACUUM|DELETE|UPDATE/;
		if ($sql ne 'other') { query($c, $sql) }
		elsif ($open) { query($other, one_of('COMMIT', 'ROLLBACK')); $open = 0 }
		else
		{
			query($other, 'BEGIN; ' . rows($next + 500_000, 5)
				. ($keeps ? '' : '; DELETE FROM items WHERE id < 20'));
			$open = 1;
		}
		$next += 70;
	}
	query($other, 'COMMIT') if $open;
	return;
}

# ---- checks

sub ids { my ($c, $sql) = @_; return join ' ', sort map { $_->[0] } query($c, $sql) }

sub check
{
	my ($c, $what) = @_;
	my $by_table = ids($c, 'SET enable_seqscan = on; SET enable_indexscan = off;
		SELECT id FROM items');
	my $by_index = ids($c, 'SET enable_seqscan = off; SET enable_indexscan = on;
		SELECT id FROM items ORDER BY val <-> vec(' . number(500) . ')');
	my $cat = number(7);
	my $filtered = ids($c, "SELECT id FROM items WHERE cat = $cat ORDER BY val <-> vec(9)");
	my $wanted = ids($c, "SET enable_seqscan = on; SET enable_indexscan = off;
		SELECT id FROM items WHERE cat = $cat");
	my $answer = try_query($c, "SELECT gpugraph_check('items_idx', heap_check => true)");

	push @wrong, "$what: other rows by the index than by the table" if $by_table ne $by_index;
	push @wrong, "$what: other rows by a filter column" if $filtered ne $wanted;
	push @wrong, "$what: $answer->{error}{message}" if $answer->{error};
	return;
}

# A cursor of the standby that was opened some records ago: it has all rows of its snapshot, unless
# recovery cancelled it.
my ($cursor, %cursor_rows, $ncursors);

sub open_cursor
{
	my ($standby) = @_;

	$cursor = connect_to($standby);
	# a short list, so that the scan reads the index again later
	query($cursor, 'SET enable_seqscan = off; SET gpugraph.itopk_size = 4;
		BEGIN ISOLATION LEVEL REPEATABLE READ');
	%cursor_rows = map { $_->[0] => 1 } query($cursor, 'SELECT id FROM items');
	query($cursor, 'DECLARE c CURSOR FOR SELECT id FROM items ORDER BY val <-> vec(11)');
	delete $cursor_rows{ $_->[0] } for query($cursor, 'FETCH 1 FROM c');
	return;
}

sub read_cursor
{
	my ($what) = @_;
	my $answer = eval { try_query($cursor, 'FETCH ALL FROM c') };

	undef $cursor;
	return if !$answer;
	if ($answer->{error})
	{
		push @wrong, "$what: a cursor: $answer->{error}{message}"
			if $answer->{error}{code} !~ /^(40001|40P01)$/;
		return;
	}
	my @more = grep { !delete $cursor_rows{$_} } map { $_->[0] } @{ $answer->{results}[0]{rows} };
	push @wrong, "$what: a cursor: " . keys(%cursor_rows) . ' rows missing, ' . @more . ' too many'
		if %cursor_rows || @more;
	$ncursors++;
	return;
}

sub promote_copy
{
	my ($standby, $what) = @_;
	my $name = 'copy' . ++$nnodes;
	my $copy = PostgreSQL::Test::Cluster->new($name);

	$standby->stop;
	$standby->backup_fs_cold($name);
	$standby->start;
	$copy->init_from_backup($standby, $name);
	unlink $copy->data_dir . '/standby.signal';
	rmtree($standby->backup_dir . "/$name");
	$copy->append_conf('postgresql.conf', "recovery_target_timeline = 'current'");
	open my $signal, '>', $copy->data_dir . '/standby.signal';
	close $signal;
	$copy->start;
	$copy->promote;
	my $c = connect_to($copy);
	check($c, "$what, promoted");
	query($c, rows(900_000, 30));
	query($c, 'DELETE FROM items WHERE id % 3 = 0');
	query($c, 'VACUUM items');
	query($c, "SELECT gpugraph_merge('items_idx')");
	check($c, "$what, promoted and written");
	$copy->stop('immediate');
	$copy->clean_node;
	$npromoted++;
	return;
}

# ---- a round

sub make_primary
{
	my $node = new_node('records' . ++$nnodes,
		init => { allows_streaming => 1, extra => ['--wal-segsize=1'] },
		conf => "wal_consistency_checking = 'generic'\ncheckpoint_timeout = 1h\n"
			. "min_wal_size = 2MB\nlog_statement = none\n");
	my $options = one_of('seal_rows = 100', "seal_rows = 100, storage = 'float16'",
		"seal_rows = 100, storage = 'float32+int8'", "seal_rows = 100, storage = 'int8'",
		"seal_rows = 60, algorithm = 'tsdg', segment_rows = 300", "seal_rows = 0");

	$node->safe_psql('postgres', <<"SQL");
CREATE FUNCTION vec(i bigint) RETURNS vector LANGUAGE sql IMMUTABLE AS \$\$
	SELECT array_agg(sin(i % 30 * d) + 0.3 * sin(i * d * 0.61))::real[]::vector(12)
	FROM generate_series(1, 12) d \$\$;
CREATE TABLE items (id bigint, cat int, val vector(12));
@{[ rows(1, 250) ]};
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat)
	WITH ($options, graph_degree = 8, intermediate_graph_degree = 16);
CHECKPOINT;
SQL
	return ($node, $options);
}

sub one_round
{
	my ($node, $options) = make_primary();
	my $standby = PostgreSQL::Test::Cluster->new('stops' . $nnodes);
	my %files;

	@wrong = ();
	eval {
		$node->backup('backup');
		my $start = to_number($node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()'));
		my ($c, $other) = (connect_to($node), connect_to($node));
		my $note = sub { $files{$_->[0]} = 1 for query($c, "SELECT '1663/' || d.oid || '/'
			|| pg_relation_filenode('items_idx') FROM pg_database d WHERE datname = 'postgres'") };
		$note->();
		draw_run($c, $other);
		$note->();
		$node->stop;

		$standby->init_from_backup($node, 'backup');
		$standby->append_conf('postgresql.conf', "wal_retrieve_retry_interval = 1ms\n"
			. "hot_standby = on\nrecovery_target_timeline = 'current'\n"
			. "max_standby_streaming_delay = 0\nmax_standby_archive_delay = 0\n");
		open my $signal, '>', $standby->data_dir . '/standby.signal';
		close $signal;
		# until the backup ends there is what came with it
		my $fed = $start;
		feed($node, $standby, $fed - $fed % SEGMENT, $fed);
		$standby->start;
		my @records = records_of($node, $start - $start % SEGMENT + 40, \%files);
		@records = grep { $_->[0] >= $start } @records;
		step($node, $standby, $options, @records);
		1;
	} or push @wrong, "died: $@";
	undef $cursor;
	$_->stop('immediate', fail_ok => 1) for $node, $standby;
	push @wrong, "in the log: $1" if -e $standby->logfile
		&& slurp_file($standby->logfile) =~ /^(.*(?:PANIC|TRAP|inconsistent page).*)$/m;
	if (!@wrong) { $_->clean_node for $node, $standby }
	return map { "$options: $_" } @wrong;
}

sub step
{
	my ($node, $standby, $options, @records) = @_;
	my $fed = $records[0][0];
	my $n = 0;
	my $c = connect_to($standby);

	note scalar(grep { $_->[1] } @records) . ' records of the index of ' . @records . ", $options";
	for my $i (0 .. $#records - 1)
	{
		next if !$records[$i][1];
		my $end = $records[ $i + 1 ][0];
		# a record that ends with its page is followed by the next page's header, short or long
		my $within = $end % 8192;
		my $lsn = to_lsn($within == 24 || $within == 40 ? $end - $within : $end);

		feed($node, $standby, $fed, $end);
		$fed = $end;
		my $tries = 0;
		# recovery may cancel the question, too
		while ((eval { query($c, "SELECT pg_last_wal_replay_lsn() >= '$lsn'") } // 'f') ne 't')
		{
			$c = connect_to($standby) if $@ =~ /connection lost/;
			die "the standby does not replay up to $lsn\n" if ++$tries > 60_000;
			usleep(1000);
		}
		$nrecords++;
		if (!$records[$i][2])
		{
			check($c, "record $n, before $lsn");
			if (!defined $cursor) { open_cursor($standby) }
			elsif (chance(0.07)) { read_cursor("record $n, before $lsn") }
		}
		if (++$n % PROMOTED == 0)
		{
			read_cursor("record $n, before $lsn") if defined $cursor;
			promote_copy($standby, "record $n, before $lsn");
			$c = connect_to($standby);
		}
		last if @wrong || $n == MOST_RECORDS || seconds_left() < 0;
	}
	return;
}

rounds('records', \&one_round);
note sprintf 'stopped after %d records, promoted %d copies, read %d cursors to their end',
	$nrecords // 0, $npromoted // 0, $ncursors // 0;
done_testing();
