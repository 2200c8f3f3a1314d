# Processes are killed, terminated and cancelled, at places where much is half done and at any time,
# beside sessions that write. What clients were told is kept in a ledger, so afterwards it is known
# which rows there must be: each once, by the table and by the index, on the standby as well.
#
# Rounds take the phases below in turn; the log counts by phase what was killed there. Records of
# the index are compared with what replaying them gives (wal_consistency_checking).
use strict;
use warnings;

use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep usleep);

use Gpugraph;
use Merging;
use Residency;
use Torture;

use constant { KEPT => 1500, SEALED => 300, OFTEN => 12 };

# Phase: the place where a process rests, and what brings it there: a session's statement or, where
# it is a background worker that rests, code.
my %phases = (
	flip => [ 'merge', "SELECT gpugraph_merge('items_idx')" ],
	'flip, of a seal' => [ 'merge', \&add_many ],
	'directory write' => [ 'lengthen', "SELECT gpugraph_merge('items_idx')" ],
	'giving back' => [ 'give_back', 'VACUUM items' ],
	'TIDs of the delta' => [ 'vacuum_delta', 'VACUUM items' ],
	'TIDs of a segment' => [ 'vacuum_segment', 'VACUUM items' ],
	'TIDs, the last pass' => [ 'vacuum_last', 'VACUUM items' ],
	learn => [ 'merge', 'SELECT learn()' ],
	'shrink, move' => [ 'move', \&vacuum_twice ],
	'shrink, truncate' => [ 'truncate', \&vacuum_twice ],
	build => [ 'build', 'REINDEX INDEX items_idx' ],
	load => [ undef, 'load_stall' ],
	'errors of the service' => [ undef, 'errors' ],
	'any time' => [ undef, 'any' ]);
my @phases = sort keys %phases;
my @errors = qw(launch device exit ring_full device_memory host_memory load load_gap less_memory
	graph graph_memory within_error);

my $node = service_node('crashing', init => { allows_streaming => 1 }, conf => <<'CONF');
restart_after_crash = on
log_statement = none
wal_consistency_checking = 'generic'
max_wal_size = 200MB
checkpoint_timeout = 30s
gpugraph.autoprewarm = on
gpugraph.device_timeout = 10s
wal_retrieve_retry_interval = 100ms
CONF
my ($replica, $nreplicas);
my (%ledger, %doubt);	# id => version that is there; ids of which nobody knows
my (%killed, %missed, @wrong);
my $promoted = 0;

$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION vec(i bigint, version int) RETURNS vector LANGUAGE sql IMMUTABLE AS $$
	SELECT array_agg(sin(i % 40 * d) + 0.4 * sin(i * d * 0.61 + version))::real[]::vector(16)
	FROM generate_series(1, 16) d $$;
CREATE TABLE items (id bigint, version int, cat int, val vector(16));
CREATE TABLE asked AS SELECT vec(i * 31, 5) AS val FROM generate_series(1, 100) i;
INSERT INTO items SELECT i, 0, i % 10, vec(i, 0) FROM generate_series(1, 1500) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat)
	WITH (seal_rows = 300, graph_degree = 16, intermediate_graph_degree = 32);
CREATE FUNCTION learn() RETURNS bigint LANGUAGE sql AS
	$$ SELECT gpugraph_learn('items_idx', (SELECT array_agg(val) FROM asked)) $$;
SQL
%ledger = map { $_ => 0 } 1 .. KEPT;

sub make_replica
{
	my $name = 'replica' . ++$nreplicas;

	$node->backup($name);
	$replica = PostgreSQL::Test::Cluster->new($name);
	$replica->init_from_backup($node, $name, has_streaming => 1);
	$replica->append_conf('postgresql.conf', "hot_standby_feedback = off\n"
		. 'max_standby_streaming_delay = 1s');
	$replica->start;
	return;
}

# ---- sessions that write, each in a process of its own with its ledger in a file

sub write_rows
{
	my ($c, $say, $base) = @_;
	my ($next, %mine) = ($base);

	while (1)
	{
		my $draw = rand();
		my @old = sort { $a <=> $b } keys %mine;

		if ($draw < 0.5 || @old < 20)
		{
			my ($first, $n) = ($next, 1 + number(8));
			my $last = $first + $n - 1;

			$next += $n;
			$say->("+ $first $last 0");
			query($c, "INSERT INTO items SELECT i, 0, i % 10, vec(i, 0)
				FROM generate_series($first, $last) i");
			$mine{$_} = 0 for $first .. $last;
		}
		elsif ($draw < 0.7)
		{
			my $id = one_of(@old);
			my $version = ++$mine{$id};

			$say->("+ $id $id $version");
			query($c, "UPDATE items SET version = $version, val = vec(id, $version)
				WHERE id = $id");
		}
		elsif ($draw < 0.9)
		{
			my $id = one_of(@old);

			$say->("- $id $id 0");
			query($c, "DELETE FROM items WHERE id = $id");
			delete $mine{$id};
		}
		else
		{
			my ($first, $undone) = ($next++, $next++);

			$say->("+ $first $first 0");
			query($c, "BEGIN; INSERT INTO items VALUES ($first, 0, 1, vec($first, 0)); SAVEPOINT s;
				INSERT INTO items VALUES ($undone, 0, 1, vec($undone, 0));
				DELETE FROM items WHERE id < $undone; ROLLBACK TO s; COMMIT");
			$mine{$first} = 0;
		}
		$say->('done');
	}
	return;
}

sub start_writer
{
	my ($base) = @_;
	my $file = "$ENV{TESTDIR}/ledger.$base";
	my $seed = number(1e9);
	my $pid = fork // die "fork: $!";

	if ($pid == 0)
	{
		open my $out, '>', $file or POSIX::_exit(1);
		$out->autoflush;
		srand $seed;
		eval {
			my $c = connect_to($node);

			print $out 'backend ' . query($c, 'SELECT pg_backend_pid()') . "\n";
			write_rows($c, sub { print $out "$_[0]\n" }, $base);
		};
		print $out "ended: $@";
		POSIX::_exit(0);
	}
	return { pid => $pid, file => $file };
}

# Its ledger becomes part of ours. What was not told to be done may be or not, once its backend has
# ended.
sub end_writer
{
	my ($writer) = @_;
	my ($pending, $backend);

	kill 'KILL', $writer->{pid};
	waitpid $writer->{pid}, 0;
	for my $line (split /\n/, -e $writer->{file} ? slurp_file($writer->{file}) : '')
	{
		if ($line =~ /^backend (\d+)$/) { $backend = $1 }
		elsif ($line eq 'done') { note_done(@$pending) if $pending; undef $pending }
		elsif ($line =~ /^([-+]) (\d+) (\d+) (\d+)$/) { $pending = [ $1, $2, $3, $4 ] }
		elsif ($line =~ /^ended: (?!connection lost|cannot connect|57P0|57014)(.*)/)
		{
			push @wrong, "a session that writes: $1";
		}
	}
	wait_for(sub { !kill 0, $backend }) if $backend;
	$doubt{$_} = 1 for $pending ? $pending->[1] .. $pending->[2] : ();
	unlink $writer->{file};
	return;
}

sub note_done
{
	my ($sign, $first, $last, $version) = @_;

	for my $id ($first .. $last)
	{
		if ($sign eq '+') { $ledger{$id} = $version }
		else { delete $ledger{$id} }
	}
	return;
}

# ---- what brings processes to their places

# Sessions whose connection a crash ends are not waited for.
sub start_session
{
	my (@sql) = @_;
	return start_psql($node, @sql);
}

sub in_ledger
{
	my ($sign, $first, $last, $sql) = @_;

	$node->safe_psql('postgres', $sql);
	note_done($sign, $first, $last, 0);
	return;
}

my $next_many = 900_000_000;

sub add_many
{
	my ($n) = @_;
	my $last = $next_many + ($n // 400) - 1;

	in_ledger('+', $next_many, $last, "INSERT INTO items SELECT i, 0, i % 10, vec(i, 0)
		FROM generate_series($next_many, $last) i");
	$next_many = $last + 1;
	return $last;
}

# An old snapshot, under which merges leave blocks that VACUUM may cut off.
sub make_holes
{
	my $c = connect_to($node);

	query($c, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM items');
	for (1 .. 3)
	{
		my $last = add_many(300);
		my $first = $last - 299;

		in_ledger('-', $first, $last, "DELETE FROM items WHERE id BETWEEN $first AND $last");
		add_many(100);
		merge_all();
	}
	query($c, 'COMMIT');
	return;
}

sub vacuum_twice
{
	$node->safe_psql('postgres', 'VACUUM items; SELECT txid_current(); VACUUM items');
	return;
}

sub merge_all
{
	wait_for(sub { $node->safe_psql('postgres', "SELECT gpugraph_merge('items_idx')") eq 't' });
	return;
}

sub set_server
{
	my ($fault) = @_;

	$node->safe_psql('postgres', defined $fault ? "ALTER SYSTEM SET gpugraph.fault = $fault" :
		'ALTER SYSTEM RESET gpugraph.fault');
	$node->reload;
	return;
}

# Rows that VACUUM clears, and enough for a merge to do; what the session does before.
sub prepare
{
	my ($phase) = @_;

	$node->safe_psql('postgres', "DELETE FROM items WHERE id > 900000000 AND id % 3 = 0");
	delete $ledger{$_} for grep { $_ > 900_000_000 && $_ % 3 == 0 } keys %ledger;
	if ($phase =~ /shrink/) { make_holes() }
	elsif ($phase eq 'giving back')
	{
		# pages of the delta that have these rows alone, by the session itself: others would merge
		# them soon
		my ($first, $last) = ($next_many, $next_many + 299);

		$next_many = $last + 1;
		@doubt{ $first .. $last } = (1) x 300;
		return ("BEGIN; LOCK items IN EXCLUSIVE MODE; INSERT INTO items
			SELECT i, 0, i % 10, vec(i, 0) FROM generate_series($first, $last) i; COMMIT",
			"DELETE FROM items WHERE id BETWEEN $first AND $last");
	}
	elsif ($phase !~ /seal/) { add_many(150) }
	return;
}

# A process that rests at the phase's place; its id, or undef, and how to let all go on. A merge
# that finds another one under way ends at once, so it is tried again.
sub bring_there
{
	my ($phase) = @_;
	my ($place, $how) = @{ $phases{$phase} };
	my ($session, $pid, $old);

	if ($phase eq 'directory write')
	{
		# an old snapshot keeps what is free, so a merge has to lengthen the file
		$old = connect_to($node);
		query($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM items');
		add_many(300);
		merge_all();
	}
	my $holder = hold_at($node, $place);
	for (1 .. 6)
	{
		my @before = prepare($phase);
		if (ref $how)
		{
			set_server("hold_$place");
			$how->();
		}
		else { $session = start_session(@before, "SET gpugraph.fault = 'hold_$place'", $how) }
		my $tries = 0;
		while ($tries++ < 60)
		{
			$pid = $node->safe_psql('postgres', "SELECT pid FROM pg_locks
				WHERE locktype = 'advisory' AND NOT granted LIMIT 1");
			last if $pid ne '' || ($session && has_ended($session));
			sleep 0.1;
		}
		last if $pid ne '' || !$session || !has_ended($session);
		finish_psql($session);
		undef $session;
	}
	$missed{$phase}++ if $pid eq '';
	# before a server starts, which would inherit what keeps the holder's psql from its end
	return ($pid, sub {
		undef $old;
		finish_psql($holder);
		finish_psql($session) if $session;
	});
}

# ---- what is done to them

sub pick_pid
{
	my ($condition) = @_;

	return $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE $condition
		AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1");
}

# How the process, or the server, ends; whether the server has to come back.
sub strike
{
	my ($pid, @ways) = @_;
	my $how = @ways ? one_of(@ways) :
		weighted('kill -9' => 4, 'kill -9 of the server' => 3, SIGTERM => 1, terminate => 1,
			cancel => 1, 'immediate stop' => 1);

	if ($how eq 'kill -9 of the server') { kill_9_server($node) }
	elsif ($how eq 'immediate stop') { $node->stop('immediate') }
	elsif ($pid eq '') { $how = 'nothing' }
	elsif ($how eq 'kill -9') { kill_9($node, $pid) if kill 0, $pid }
	elsif ($how eq 'SIGTERM') { kill 'TERM', $pid }
	else { eval { $node->safe_psql('postgres', "SELECT pg_${how}_backend($pid)") } }
	return $how;
}

# Who was told to end does so whatever others wait for.
sub ends
{
	my ($pid, $how) = @_;

	return if $how !~ /^(SIGTERM|terminate|cancel)$/;
	push @wrong, "$how did not end process $pid" if !defined wait_for(sub {
		$node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND
			(backend_type = 'client backend' AND state = 'active'
			OR backend_type ~ '^gpugraph load' AND '$how' <> 'cancel')") == 0 });
	return;
}

sub come_back
{
	my ($how) = @_;

	if ($how =~ /server|stop/)
	{
		push @wrong, 'the server does not start'
			if !defined wait_for(sub { return $node->start(fail_ok => 1); });
	}
	my $up = wait_for(
		sub {
			# where recovery failed, the postmaster has ended
			die "the server is down\n" if !-f $node->data_dir . '/postmaster.pid';
			return eval { query(connect_to($node), 'SELECT 1') };
		});
	die "the server does not come back\n" if !defined $up;
	return;
}

sub strike_at_place
{
	my ($phase) = @_;
	my ($pid, $go_on) = bring_there($phase);

	usleep(number(200_000));
	my $how = strike($pid);
	ends($pid, $how) if $pid ne '';
	$killed{$phase}++ if $how =~ /kill|stop|TERM|terminate/ && $pid ne '';
	$go_on->();
	come_back($how);
	set_server(undef);
	return $how;
}

sub strike_load
{
	set_server('load_stall');
	my @sessions = map { start_session("SELECT gpugraph_evict('items_idx')",
		"SELECT gpugraph_prewarm('items_idx')") } 1, 2;
	usleep(300_000);
	# one that waits for the load, and who loads, by their own end, then anybody
	my ($pid, $how);
	for my $one ([ "query ~ '^SELECT gpugraph_prewarm'", qw(SIGTERM terminate cancel cancel) ],
		[ "backend_type ~ '^gpugraph load'", qw(SIGTERM terminate) ],
		[ "(backend_type ~ '^gpugraph (device|load)' OR query ~ '^SELECT gpugraph_prewarm')" ])
	{
		my ($who, @ways) = @$one;

		$pid = pick_pid($who);
		$how = strike($pid, $pid eq '' ? () : @ways);
		ends($pid, $how) if $pid ne '';
		$killed{load}++ if $pid ne '' && $how ne 'cancel';
	}
	come_back($how) if $how =~ /kill|stop/;
	set_server(undef);
	finish_psql($_) for @sessions;
	return $how;
}

sub meet_errors
{
	my @met = map { one_of(@errors) } 1 .. 2;

	for my $fault (@met)
	{
		set_server($fault);
		my @sessions = (start_session("SELECT gpugraph_evict('items_idx')",
				"SELECT gpugraph_prewarm('items_idx')"),
			start_session("SELECT gpugraph_merge('items_idx')"),
			start_session('SET enable_seqscan = off', ('SELECT count(*) FROM (SELECT id FROM items
				ORDER BY val <-> vec(7, 3) LIMIT 10) s') x 20));
		usleep(400_000);
		set_server(undef);
		finish_psql($_) for @sessions;
	}
	$killed{'errors of the service'} += @met;
	return "errors @met";
}

sub strike_any_time
{
	my $session = start_session(map { ('VACUUM items', 'SELECT learn()',
		"SELECT gpugraph_merge('items_idx')", "SELECT gpugraph_prewarm('items_idx')") } 1 .. 30);

	usleep(200_000 + number(1_200_000));
	my $pid = pick_pid(one_of("backend_type = 'gpugraph merge worker'",
		"query ~ '^VACUUM|gpugraph_merge|learn|prewarm'", "backend_type ~ 'gpugraph'",
		"query ~ '^INSERT|^UPDATE|^DELETE'", "backend_type = 'checkpointer'"));
	my $how = strike($pid);
	$killed{'any time'}++ if $how ne 'nothing' && $how ne 'cancel';
	come_back($how) if $how =~ /kill|stop/;
	finish_psql($session);
	return $how;
}

# ---- what has to be there

sub pairs
{
	my ($c, $sql) = @_;
	my %found;
	my @twice;

	for my $row (query($c, $sql))
	{
		push @twice, $row->[0] if exists $found{ $row->[0] };
		$found{ $row->[0] } = $row->[1];
	}
	return (\%found, @twice);
}

sub differences
{
	my ($what, $found, $wanted) = @_;
	my @lost = grep { !exists $found->{$_} } keys %$wanted;
	my @more = grep { !exists $wanted->{$_} } keys %$found;
	my @other = grep { exists $found->{$_} && $found->{$_} != $wanted->{$_} } keys %$wanted;

	push @wrong, sprintf '%s: %d rows missing (%s), %d too many (%s), %d of another version (%s)',
		$what, scalar @lost, join(' ', grep { defined } @lost[ 0 .. 4 ]), scalar @more,
		join(' ', grep { defined } @more[ 0 .. 4 ]), scalar @other,
		join(' ', grep { defined } @other[ 0 .. 4 ]) if @lost || @more || @other;
	return;
}

# The table is what the ledger says; the index is what the table says.
sub check_server
{
	my ($server, $what) = @_;
	my $c = connect_to($server);

	query($c, 'SET statement_timeout = 120000; BEGIN ISOLATION LEVEL REPEATABLE READ');
	my ($table, @twice) = pairs($c, 'SET enable_indexscan = off; SELECT id, version FROM items');

	push @wrong, "$what: twice in the table: @twice" if @twice;
	my %settled = %$table;
	# what was in doubt is settled now
	for my $id (keys %doubt)
	{
		delete $ledger{$id};
		$ledger{$id} = $table->{$id} if exists $table->{$id};
	}
	%doubt = ();
	differences("$what: the table beside the ledger", $table, \%ledger);
	for my $engine ('cpu', 'auto')
	{
		my ($index, @again) = pairs($c, "SET enable_indexscan = on; SET enable_seqscan = off;
			SET enable_sort = off; SET gpugraph.engine = $engine; SELECT id, version FROM items
			ORDER BY val <-> vec(" . number(40) . ', 1)');

		push @wrong, "$what: twice by the index: @again" if @again;
		differences("$what: the index ($engine) beside the table", $index, $table);
	}
	my $by_filter = query($c, 'SELECT count(*) FROM (SELECT id FROM items WHERE cat = 3
		ORDER BY val <-> vec(3, 1)) s');
	my $by_table = query($c, 'SET enable_indexscan = off; SET enable_seqscan = on;
		SELECT count(*) FROM items WHERE cat = 3');
	push @wrong, "$what: $by_filter rows of a category by the index, $by_table in the table"
		if $by_filter != $by_table;
	query($c, 'ROLLBACK');
	my $answer = try_query($c, "SELECT gpugraph_check('items_idx', true)");
	push @wrong, "$what: $answer->{error}{message}" if $answer->{error};
	return;
}

# A cursor that rests while others write and merge has all rows of its snapshot. On the standby a
# conflict with recovery may end it.
my ($resting, $count_cursors) = (undef, 0);

sub open_cursor
{
	my ($server) = @_;
	my $c = connect_to($server);

	# a short list, so that the scan reads the index again later
	query($c, 'SET enable_seqscan = off; SET enable_sort = off; SET gpugraph.itopk_size = 8;
		BEGIN ISOLATION LEVEL REPEATABLE READ');
	my %rows = map { $_->[0] => 1 } query($c, 'SELECT id FROM items');
	query($c, 'DECLARE c CURSOR FOR SELECT id FROM items ORDER BY val <-> vec(11, 2)');
	delete $rows{ $_->[0] } for query($c, 'FETCH 1 FROM c');
	return { session => $c, rows => \%rows, standby => $server == $replica };
}

sub read_cursor
{
	my ($cursor) = @_;
	my $what = $cursor->{standby} ? 'a cursor of the standby' : 'a cursor of the primary';
	my $answer = eval { try_query($cursor->{session}, 'FETCH ALL FROM c') };

	# FATAL, where it had to end at once
	return if !$answer && $cursor->{standby};
	if (!$answer || $answer->{error})
	{
		push @wrong, "$what: " . ($answer ? $answer->{error}{message} : $@)
			if !$cursor->{standby} || $answer->{error}{code} !~ /^(40001|40P01|25P02)$/;
		return;
	}
	my $rows = $cursor->{rows};
	my @more = grep { !delete $rows->{$_} } map { $_->[0] } @{ $answer->{results}[0]{rows} };
	push @wrong, "$what: " . keys(%$rows) . ' rows missing, ' . @more . ' too many'
		if %$rows || @more;
	$count_cursors++;
	return;
}

# Merges park what cursors read, and would use it again. Nothing but the index conflicts with the
# standby's cursor: no row of the table dies.
sub check_cursors
{
	my $far = open_cursor($replica);
	my $near = open_cursor($node);

	for (1 .. 3) { add_many(60); merge_all() }
	read_cursor($near);
	undef $near;
	for (1 .. 3) { add_many(60); merge_all() }
	$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
	read_cursor($far);
	return;
}

sub check_replica
{
	my ($round) = @_;

	$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
	read_cursor($resting) if $resting;
	undef $resting;
	check_cursors();
	check_server($replica, 'standby');
	push @wrong, 'the standby answers otherwise' if answers_of($replica) ne answers_of($node);
	if ($round % OFTEN != OFTEN - 1) { $resting = open_cursor($replica); return }
	$replica->promote;
	check_server($replica, 'promoted standby');
	$replica->safe_psql('postgres', "INSERT INTO items SELECT -i, 0, i % 10, vec(i, 0)
		FROM generate_series(1, 400) i; VACUUM items; SELECT gpugraph_merge('items_idx')");
	$ledger{ -$_ } = 0 for 1 .. 400;
	check_server($replica, 'promoted standby that writes');
	delete $ledger{ -$_ } for 1 .. 400;
	$replica->stop('immediate');
	$replica->clean_node;
	make_replica();
	$promoted++;
	return;
}

sub answers_of
{
	my ($server) = @_;

	return $server->safe_psql('postgres', 'SET enable_seqscan = off; SET gpugraph.engine = cpu;'
		. join ' ', map { "SELECT array_agg(id) FROM (SELECT id FROM items
			ORDER BY val <-> vec($_, 7) LIMIT 20) s;" } 1 .. 5);
}

# What is due is merged without another call, while rows go on to come: what comes while a worker
# merges, and while it waits for more. Who asked is forgotten when the server restarts.
sub check_settles
{
	my $holder = hold_at($node, 'merge');

	set_server('hold_merge');
	add_many(2 * SEALED);
	push @wrong, 'nobody merges' if !rests_at($node, 'merge');
	for my $held (1, 0)
	{
		my ($rows, $batches);

		wait_for(sub { $node->safe_psql('postgres', "SELECT bool_and(phase = 'watching')
			FROM gpugraph_stat_merge") ne 'f' }) if !$held;
		add_many(3 * SEALED);
		if ($held)
		{
			set_server(undef);
			finish_psql($holder);
		}
		wait_for(sub {
			add_many(SEALED / 3);
			$rows = merge_info($node, 'delta_rows');
			return $rows < 2 * SEALED || ++$batches == 300;
		});
		push @wrong, "$rows rows wait for a merge" if $rows >= 2 * SEALED;
	}
	return;
}

sub clean_up
{
	my ($base) = @_;

	$node->safe_psql('postgres', 'DELETE FROM items WHERE id > ' . KEPT
		. " AND id < $base OR id > 900000000 AND id < $next_many - 500");
	delete $ledger{$_} for grep { $_ > KEPT && $_ < $base
		|| $_ > 900_000_000 && $_ < $next_many - 500 } keys %ledger;
	return;
}

sub one_round
{
	my ($round) = @_;
	my $phase = $phases[ $round % @phases ];
	my $base = 100_000 * ($round + 1);	# nobody writes 50,000 rows in a round
	my $seen = -s $node->logfile;
	my @writers;
	my $how = '';

	@wrong = ();
	eval {
		$node->safe_psql('postgres', 'CHECKPOINT') if chance(0.3);
		@writers = map { start_writer($base + 50_000 * $_) } 0, 1;
		$how = $phase eq 'load' ? strike_load() : $phase =~ /^errors/ ? meet_errors() :
			$phase eq 'any time' ? strike_any_time() : strike_at_place($phase);
		usleep(100_000) if $how !~ /kill|stop/;
		1;
	} or push @wrong, "died: $@";
	end_writer($_) for @writers;
	eval {
		come_back('');
		check_server($node, 'primary');
		check_replica($round) if $round % 3 == 2;
		check_settles() if $round % 3 == 1;
		clean_up($base);
		1;
	} or push @wrong, "died: $@";
	my $log = slurp_file($node->logfile, $seen);
	my $bad = qr/PANIC|TRAP|signal (?:11|6|7|8)\b|inconsistent page|is corrupted/;
	push @wrong, "in the log: $1" if $log =~ /^(.*$bad.*)$/m;
	@wrong = map { "$phase, $how: $_" } @wrong;
	return @wrong;
}

make_replica();
rounds('crash', \&one_round);
note 'killed: ' . join ', ', map { "$_ " . ($killed{$_} // 0) } @phases;
note 'not reached: ' . join ', ', map { "$_ $missed{$_}" } sort keys %missed;
note "$promoted standbys were promoted, $count_cursors of their old cursors read to the end";
unlike(slurp_file($replica->logfile), qr/PANIC|TRAP|inconsistent page|signal 11/,
	'no process of the standby crashed');
$replica->stop('immediate');
$node->stop;
done_testing();
