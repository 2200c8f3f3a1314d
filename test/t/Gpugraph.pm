# What the TAP tests share. "use Gpugraph" is all that a test needs, before modules of ours: it has
# strict, warnings, Test::More and PostgreSQL's modules with it.
package Gpugraph;

use strict;
use warnings;

use Exporter ();
use File::Basename qw(dirname);
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use List::Util qw(min);
use Time::HiRes qw(usleep time);

our @EXPORT = (@Test::More::EXPORT, @PostgreSQL::Test::Utils::EXPORT,
	qw(finish_test start_standby is_equal start_cursor insert_for_ever new_node newer_node
	newer_nodes forget_newer_options upgrade_node init_node load_helpers make_items
	make_many_items index_is_complete answers start_psql finish_psql rest_after end_rest
	has_ended start_pgbench failed_statements repeat_psql wait_for ok_in_time error_of
	alter_system reload_with restart_with kill_9 survives_kill_9 kill_9_server wait_until_up
	wait_for_progress find_build make_signal_build backend_pid hold_lock hold_at rests_at %places));

sub import
{
	strict->import;
	warnings->import;
	goto &Exporter::import;
}

# The end of a test, whose servers stop in this order.
sub finish_test
{
	$_->stop for @_;
	done_testing();
	return;
}

# The same cluster with every version: page checksums, the default from 18 on, only where a test
# asks for them. Most tests that damage pages want gpugraph to notice, not PostgreSQL.
sub init_node
{
	my ($node, %init) = @_;
	my @extra = @{ $init{extra} || [] };

	push @extra, '--no-data-checksums'
		if $node->pg_version >= 18 && !grep { /data-checksums/ } @extra;
	$node->init(%init, extra => \@extra);
	return;
}

# Clusters, not yet initialised, of the PostgreSQLs that GG_NEWER names (see test/upgrade), or one
# of the same PostgreSQL as all others.
sub newer_nodes
{
	my ($name) = @_;
	my @paths = split /:/, $ENV{GG_NEWER} || '';

	return PostgreSQL::Test::Cluster->new($name) if !@paths;
	return map { PostgreSQL::Test::Cluster->new("$name$_", install_path => $paths[$_]) }
		0 .. $#paths;
}

# 15.20 writes column options that 18.6 and 19rc1 do not know (README, pg_upgrade).
sub forget_newer_options
{
	my ($node) = @_;

	$node->sql(
		"UPDATE pg_attribute SET attoptions = NULL WHERE attoptions::text LIKE '%pg_attver%'")
		if $ENV{GG_NEWER};
	return;
}

# pg_upgrade of a cluster to a new one, which then runs: two tests.
sub upgrade_node
{
	my ($was, $new, $what) = @_;

	init_node($new);
	$was->stop;
	# by its path: IPC::Run remembers where it has found a program
	my @upgrade = (
		$new->config_data('--bindir') . '/pg_upgrade', '--no-sync',
		'-d', $was->data_dir, '-D', $new->data_dir,
		'-b', $was->config_data('--bindir'), '-B', $new->config_data('--bindir'),
		'-s', $new->host, '-p', $was->port, '-P', $new->port);
	chdir $PostgreSQL::Test::Utils::tmp_check
		or die "cannot enter $PostgreSQL::Test::Utils::tmp_check";
	$new->command_ok([ @upgrade, '--check' ], "$what: --check");
	$new->command_ok(\@upgrade, $what);
	$new->append_conf('postgresql.conf', "autovacuum = off\n");
	$new->start;
	return;
}

sub newer_node
{
	return (newer_nodes(@_))[-1];
}

# A running cluster with the extensions, autovacuum off so that only the test vacuums. Where a file
# had one of that name before, it is that one, stopped and emptied: subtests share a cluster so, and
# each has a server started anew, with its own settings and log.
my %nodes;						# and their settings as initialised, by name

sub new_node
{
	my ($name, %options) = @_;
	my ($node, $initial) = @{ $nodes{$name} || [] };
	my $emptied = defined $node;

	if ($emptied)
	{
		empty_node($node, $initial);
	}
	else
	{
		$node = PostgreSQL::Test::Cluster->new($name, %{ $options{new} || {} });
		init_node($node, %{ $options{init} || {} });
		$nodes{$name} = [ $node, slurp_file($node->data_dir . '/postgresql.conf') ];
	}
	# A plain VACUUM passes over the dead rows of a page that another process has pinned, as the
	# background writer does while it writes it: where tests count what VACUUM clears, none writes.
	# A standby may be slow to connect, and checkpoints remove what it has not got.
	$node->append_conf('postgresql.conf',
		"autovacuum = off\nbgwriter_lru_maxpages = 0\njit = off\nwal_keep_size = 1GB\n"
			. ($options{conf} || ''));
	$node->start;
	$node->sql('DROP SCHEMA public CASCADE;
		CREATE SCHEMA public AUTHORIZATION pg_database_owner;
		GRANT USAGE ON SCHEMA public TO PUBLIC; ALTER DATABASE postgres RESET ALL') if $emptied;
	$node->sql('CREATE EXTENSION vector; CREATE EXTENSION gpugraph');
	load_helpers($node);
	return $node;
}

# Have a cluster stop, and forget its settings, its log and what was on devices. Its tables go when
# it runs; databases and roles are the test's to drop.
sub empty_node
{
	my ($node, $initial) = @_;
	my $dir = $node->data_dir;
	my %files = ('postgresql.conf' => $initial, 'postgresql.auto.conf' => '');

	$node->stop;
	unlink glob "$dir/gpugraph.resident.*";
	for my $name (keys %files)
	{
		open my $file, '>', "$dir/$name" or die "cannot write: $!";
		print $file $files{$name};
		close $file;
	}
	$node->rotate_logfile;
	return;
}

# What SQL returns in the database postgres, where it must not fail.
sub PostgreSQL::Test::Cluster::sql
{
	my ($node, @sql) = @_;
	return $node->safe_psql('postgres', @sql);
}

# What psql says of errors there.
sub error_of
{
	my ($node, $sql) = @_;
	return ($node->psql('postgres', $sql))[2];
}

# ALTER SYSTEM SET or RESET, in effect with the next statement.
sub alter_system
{
	my ($node, $change) = @_;

	$node->sql("ALTER SYSTEM $change");
	$node->reload;
	return;
}

sub reload_with
{
	my ($node, $conf) = @_;

	$node->append_conf('postgresql.conf', $conf);
	$node->reload;
	return;
}

sub restart_with
{
	my ($node, $conf) = @_;

	$node->append_conf('postgresql.conf', $conf);
	$node->restart;
	return;
}

# A standby of what a server has now, with more settings if there are any.
sub start_standby
{
	my ($primary, $name, $conf) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$primary->backup($name);
	$standby->init_from_backup($primary, $name, has_streaming => 1);
	$standby->append_conf('postgresql.conf', $conf) if defined $conf;
	$standby->start;
	return $standby;
}

# A standby has what its primary has: three tests.
sub is_equal
{
	my ($standby, $primary, $what) = @_;

	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	is(answers($standby), answers($primary), "$what: equal answers");
	is(join(' ', ($standby->psql('postgres', "SELECT gpugraph_check('items_idx', true)"))[ 0, 2 ]),
		'0 ', "$what: sound on the standby");
	is($standby->sql("SELECT complete('items')"), 'ok', "$what: every row is found on the standby");
	return;
}

# The SQL functions of the pgTAP tests: make_data(), make_queries(), recall(), ...
sub load_helpers
{
	my ($node) = @_;

	$node->sql(slurp_file(dirname(__FILE__) . '/../pgtap/include/helpers.psql'));
	$node->sql(<<'SQL');
-- all rows of a table by its index, compared with the table: 'ok' or what is wrong
CREATE FUNCTION complete(rel text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	by_index bigint;
	distinct_by_index bigint;
	by_heap bigint;
BEGIN
	PERFORM use_index(true);
	EXECUTE format('SELECT count(*), count(DISTINCT id)
		FROM (SELECT id FROM %1$I ORDER BY val <-> (SELECT val FROM %1$I LIMIT 1)) s', rel)
		INTO by_index, distinct_by_index;
	PERFORM use_index(false);
	EXECUTE format('SELECT count(*) FROM %I WHERE val IS NOT NULL', rel) INTO by_heap;
	PERFORM use_index(true);
	IF by_index = by_heap AND distinct_by_index = by_heap THEN
		RETURN 'ok';
	END IF;
	RETURN format('%s rows by the index, %s distinct, %s in the table',
		by_index, distinct_by_index, by_heap);
END $$;
SQL
	return;
}

# Make items (id, cat, big, val) of n rows with an index, and queries: the same ones every time,
# because recall depends on them.
sub make_items
{
	my ($node, $n, $dim) = @_;

	$node->sql(<<SQL);
SELECT make_data('items', $n, $dim, 40);
SELECT make_queries('items', 20);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
SQL
	return;
}

# items of n rows, millions within seconds: sums of two rows are made faster than rows.
sub make_many_items
{
	my ($node, $n, $dim) = @_;
	my $drawn = $n < 10000 ? $n : 10000;

	$node->sql("SELECT make_data('items', $drawn, $dim, 40)");
	$node->sql("ALTER TABLE items ALTER val SET STORAGE external;
		INSERT INTO items SELECT 10000 + row_number() OVER (), a.cat, b.big, a.val + b.val
		FROM items a, items b WHERE b.id <= 1 + $n / 10000 LIMIT $n - 10000") if $n > 10000;
	return;
}

# The index is sound, agrees with the table, and a scan returns all rows: two tests.
sub index_is_complete
{
	my ($node, $what, $rel) = @_;
	$rel ||= 'items';
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT gpugraph_check('${rel}_idx', true)");

	is("$rc $err", '0 ', "$what: the index is sound");
	is($node->sql("SELECT complete('$rel')"), 'ok', "$what: every row is found");
	return;
}

# The first rows for each query, as the index gives them.
# Engines round distances differently: nearly equal rows may change places.
sub answers
{
	my ($node, $engine) = @_;

	return $node->sql((defined $engine ? "SET gpugraph.engine = $engine;\n" : '') . <<'SQL');
SET enable_seqscan = off;
SELECT q,
	(SELECT array_agg(id) FROM (SELECT id FROM items ORDER BY items.val <-> queries.val LIMIT 20) s)
	FROM queries ORDER BY q;
SQL
}

# Run statements in a psql of its own, in the background.
sub start_psql
{
	my ($node, @sql) = @_;
	my %session = (out => '', err => '');

	$session{harness} = IPC::Run::start(
		[ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'),
			map { ('-c', $_) } @sql ],
		'<', \undef, '>', \$session{out}, '2>', \$session{err});
	return \%session;
}

sub finish_psql
{
	my ($session) = @_;

	eval { $session->{harness}->finish; };
	return $session->{err};
}

# A session that rests after these statements, with its snapshot and its locks, until end_rest().
sub rest_after
{
	my ($node, @sql) = @_;
	my $session = start_psql($node, @sql, 'SELECT pg_sleep(600)');

	@$session{qw(node pid)} = ($node, backend_pid($node, 'pg_sleep.600'));
	return $session;
}

sub end_rest
{
	my ($session) = @_;

	$session->{node}->sql("SELECT pg_terminate_backend($session->{pid})");
	return finish_psql($session);
}

# Without a look at its output nobody hears of a session's end.
sub has_ended
{
	my ($session) = @_;

	eval { $session->{harness}->pump_nb; };
	return !$session->{harness}->pumpable;
}

# A session with a cursor c by the distances from query 1, of which five rows are read, and d from
# query 2. More goes into {in}; it is closed by finish_psql().
sub start_cursor
{
	my ($node) = @_;
	my %session = (out => '', err => '', in => <<'SQL');
SET enable_seqscan = off;
BEGIN ISOLATION LEVEL REPEATABLE READ;
DECLARE c CURSOR FOR SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1);
DECLARE d CURSOR FOR SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 2);
FETCH 5 FROM c;
SELECT 'opened';
SQL

	$session{harness} = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ],
		'<', \$session{in}, '>', \$session{out}, '2>', \$session{err});
	wait_for(sub { $session{harness}->pump_nb; return $session{out} =~ /opened/ });
	like($session{out}, qr/opened/, 'cursors are open');
	$session{out} = '';
	return \%session;
}

# A session that inserts into a table what a query selects for each i, one by one, and has inserted
# more than so many.
sub insert_for_ever
{
	my ($node, $table, $query, $most) = @_;
	my $before = $node->sql("SELECT count(*) FROM $table");
	my $session = start_psql($node, <<"SQL");
DO \$\$
BEGIN
	FOR i IN 1 .. 1000000 LOOP
		INSERT INTO $table $query;
		COMMIT;
	END LOOP;
END \$\$;
SQL

	wait_for(sub { $node->sql("SELECT count(*) FROM $table") > $before + $most });
	return $session;
}

# A pgbench in the background, for finish_psql(). Its scripts are pairs of name@weight and text.
sub start_pgbench
{
	my ($node, $options, %scripts) = @_;
	my $dir = $PostgreSQL::Test::Utils::tmp_check;
	my %session = (out => '', err => '');
	my @files;

	for my $script (sort keys %scripts)
	{
		my ($name, $weight) = split /@/, $script;
		my $file = "$dir/" . $node->name . "_$name.sql";
		open my $f, '>', $file or die "cannot write: $!";
		print $f $scripts{$script};
		close $f;
		push @files, '-f', "$file\@$weight";
	}
	$session{harness} = IPC::Run::start(
		[ 'pgbench', '--no-vacuum', '--jobs=2', split(/ /, $options), @files,
			$node->connstr('postgres') ],
		'<', \undef, '>', \$session{out}, '2>', \$session{err});
	return \%session;
}

# What clients of a pgbench say of statements that failed, at its end.
sub failed_statements
{
	my ($session) = @_;
	return join "\n", grep { !/^pgbench \(/ } split /\n/, finish_psql($session);
}

# A psql in the background that runs a statement again and again, with so many seconds between.
sub repeat_psql
{
	my ($node, $seconds, $sql, $pause) = @_;

	return start_psql($node, ($sql, "SELECT pg_sleep($pause)") x ($seconds / $pause));
}

# A look of wait_for() by safe_psql() costs a client and a server process, 16 ms of a processor. So
# from the second look on, single SELECTs go to a session that the looks share.
our $looks;						# sessions by connection, while somebody waits

# What a SELECT returns there; undef where that failed: safe_psql() is to ask.
sub look
{
	my ($node, $database, $sql) = @_;
	my $where = $node->connstr($database);
	my $look = $looks->{$where};

	if (!$look)
	{
		$look = $looks->{$where} = { in => '', out => '', err => '' };
		$look->{harness} = IPC::Run::start([ 'psql', '-XAtq', '-d', $where ],
			'<', \$look->{in}, '>', \$look->{out}, '2>', \$look->{err});
	}
	$look->{out} = '';
	$look->{in} .= "$sql;\n\\echo seen\n";
	eval { $look->{harness}->pump while $look->{err} eq '' && $look->{out} !~ /^seen\n\z/m; };
	return $1 =~ s/\n\z//r if $look->{err} eq '' && $look->{out} =~ /\A(.*?)^seen\n\z/ms;
	end_look(delete $looks->{$where});
	return;
}

sub end_look
{
	my ($look) = @_;

	$look->{in} .= "\\q\n";
	eval { $look->{harness}->finish };
	return;
}

{
	no warnings 'redefine';
	my $safe_psql = \&PostgreSQL::Test::Cluster::safe_psql;

	*PostgreSQL::Test::Cluster::safe_psql = sub {
		my ($node, $database, $sql) = @_;
		my $seen = $looks && @_ == 3 && $sql =~ /^\s*SELECT\b[^;\\]*\z/
			? look($node, $database, $sql) : undef;

		return $seen if defined $seen;
		goto &$safe_psql;
	};
}

# Poll until the code returns true; the time it took, or undef after three minutes, or so many
# seconds. On a busy machine a merge may take a minute, and measuring recall some.
sub wait_for
{
	my ($code, $most_s) = @_;
	my $start = time;
	my $pause_us = 10_000;
	my $true;
	local $looks;

	while (!($true = $code->()) && time - $start < ($most_s // 180))
	{
		$looks //= {};
		usleep($pause_us);
		# a look may start a client and a server process
		$pause_us = min($pause_us * 1.2, 150_000);
	}
	end_look($_) for values %{ $looks // {} };
	return $true ? time - $start : undef;
}

# A test that passes once the code returns true, within three minutes.
sub ok_in_time
{
	my ($code, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return ok(defined wait_for($code), $what);
}

# kill -9 of a server process. Its client may hear of it before the postmaster, who lets others in
# until it does.
sub kill_9
{
	my ($node, $pid) = @_;

	kill 'KILL', $pid;
	return wait_for(
		sub { return slurp_file($node->logfile) =~ /\(PID $pid\) was terminated by signal 9/; });
}

# After a crash the postmaster starts anew on its own. Do not ask with $node->psql: it writes the
# statement into a pipe, which a psql without a server has closed.
sub wait_until_up
{
	my ($node) = @_;

	return defined wait_for(
		sub {
			return IPC::Run::run(
				[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', 'SELECT 1' ],
				'<', \undef, '>', '/dev/null', '2>', '/dev/null');
		});
}

# kill -9 of a process, if there is one, and the end of its session: the server comes back, and
# these tables are complete.
sub survives_kill_9
{
	my ($node, $what, $pid, $session, @tables) = @_;

	kill_9($node, $pid) if defined $pid;
	finish_psql($session);
	ok(wait_until_up($node), "kill -9 of $what: the server is back");
	index_is_complete($node, "kill -9 of $what", $_) for @tables;
	return;
}

# Wait for a build to reach a phase (a regular expression); its process id, or undef if it is over.
sub wait_for_progress
{
	my ($node, $phase, $session) = @_;
	my $pid;

	wait_for(
		sub {
			$pid = $node->sql(
				"SELECT pid FROM pg_stat_progress_create_index WHERE phase ~ '$phase' LIMIT 1");
			return $pid ne '' || has_ended($session);
		});
	return $pid eq '' ? undef : $pid;
}

# A session that builds, and its leader or a worker: it may be over before a worker is found, and is
# begun again then.
sub find_build
{
	my ($node, $build, $who) = @_;
	my ($session, $pid);

	wait_for(
		sub {
			$session = start_psql($node, $build);
			$pid = wait_for_progress($node, 'neighbors', $session);
			$pid = $node->sql(
				"SELECT pid FROM pg_stat_activity WHERE backend_type = 'parallel worker' LIMIT 1")
				if defined $pid && $who eq 'worker';
			return 1 if $pid;
			finish_psql($session);
			return 0;
		});
	return ($session, $pid);
}

# signal_build(): a build takes half a second, and a client that asks for its phase misses most of
# them. This looks every half millisecond and sends the signal itself: to the build or, where
# nworkers is not 0, to one of so many parallel workers, once they are there. It returns the time,
# or null when the build ended, or none came, and the phase was not met.
sub make_signal_build
{
	my ($node) = @_;

	$node->sql(<<'SQL');
CREATE FUNCTION signal_build(phase_is text, terminate bool, nworkers int DEFAULT 0) RETURNS numeric
	LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz := clock_timestamp();
	builds bool := false;
	build record;
BEGIN
	LOOP
		PERFORM pg_stat_clear_snapshot();
		SELECT b.pid, phase, workers INTO build FROM pg_stat_progress_create_index b,
			LATERAL (SELECT array_agg(pid) AS workers FROM pg_stat_activity
				WHERE leader_pid = b.pid) w;
		IF FOUND AND build.phase ~ phase_is AND
			coalesce(cardinality(build.workers), 0) >= nworkers THEN
			IF nworkers > 0 THEN
				build.pid := build.workers[1];
			END IF;
			PERFORM CASE WHEN terminate THEN pg_terminate_backend(build.pid)
				ELSE pg_cancel_backend(build.pid) END;
			RETURN extract(epoch FROM clock_timestamp());
		END IF;
		IF builds AND NOT FOUND OR clock_timestamp() > began + interval '60 s' THEN
			RETURN NULL;
		END IF;
		builds := FOUND;
		PERFORM pg_sleep(0.0005);
	END LOOP;
END $$;
SQL
	return;
}

# Wait for a backend whose query matches and, if a condition is given, for which it holds. Returns
# its process id.
sub backend_pid
{
	my ($node, $query, $condition) = @_;
	my $pid;

	$condition //= 'true';

	wait_for(
		sub {
			$pid = $node->sql("SELECT pid FROM pg_stat_activity
				WHERE query ~ '$query' AND state = 'active' AND pid <> pg_backend_pid()
				AND $condition LIMIT 1");
			return $pid ne '';
		});
	return $pid;
}

# An advisory lock for others to wait for, until finish_psql(). Its session is idle, so that its
# snapshot keeps nothing.
sub hold_lock
{
	my ($node, $key) = @_;
	my %session = (in => "SELECT pg_advisory_lock($key);\n", out => '', err => '');

	$session{harness} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres') ],
		'<', \$session{in}, '>', \$session{out}, '2>', \$session{err});
	wait_for(
		sub {
			eval { $session{harness}->pump_nb };
			return $node->sql("SELECT count(*) FROM pg_locks l
				JOIN pg_stat_activity a USING (pid) WHERE locktype = 'advisory' AND granted
					AND query ~ 'pg_advisory_lock.$key'") == 1;
		});
	return \%session;
}

# Where gpugraph.fault = hold_PLACE has a process rest: GgHoldPlace.
our %places = (merge => 0, vacuum_delta => 1, vacuum_segment => 2, vacuum_last => 3, give_back => 4,
	lengthen => 5, 'move' => 6, truncate => 7, post => 8, build => 9);

# Who gets to the place with that fault stays there until finish_psql().
sub hold_at
{
	my ($node, $place) = @_;
	return hold_lock($node, "0, $places{$place}");
}

sub rests_at
{
	my ($node, $place) = @_;

	return defined wait_for(
		sub {
			return $node->sql("SELECT count(*) FROM pg_locks
				WHERE locktype = 'advisory' AND (classid, objid) = (0, $places{$place})
					AND NOT granted") > 0;
		});
}

# kill -9 of the postmaster and all of its children: one that is left would wait for ever for a lock
# that another held, and keep the shared memory. The postmaster is stopped first, so that it makes
# no more of them.
sub kill_9_server
{
	my ($node) = @_;
	my ($pid) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');

	kill 'STOP', $pid;
	my @children = split ' ', `ps -o pid= --ppid $pid`;
	$node->kill9;
	kill 'KILL', @children;
	wait_for(sub { return !kill 0, $pid; });
	return;
}

1;
