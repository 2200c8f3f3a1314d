# A build can be cancelled within a second in any of its phases, with and without workers, and
# leaves nothing behind.
#
#	CANCEL_ROWS, CANCEL_DIM		default 10000, 64; on a GPU host millions, for phases that are long
#								enough to be met
use Gpugraph;
use List::Util qw(min);
use Time::HiRes qw(time usleep);

my $rows = $ENV{CANCEL_ROWS} || 10000;
my $dim = $ENV{CANCEL_DIM} || 64;

my $node = new_node('cancel',
	conf => "min_parallel_table_scan_size = 0\nmaintenance_work_mem = 1GB\nmax_wal_size = 8GB\n");
make_many_items($node, $rows, $dim);
my $create = 'CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)';
my $workers = 0;

sub create
{
	return ("SET max_parallel_maintenance_workers = $workers", $create);
}

sub workers_left
{
	return $node->sql(
		"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'");
}
my $size = $node->sql("SELECT pg_database_size('postgres')");

make_signal_build($node);

# Run a build that signal_build() with these arguments is to signal. What it says of errors, and the
# seconds from the signal to its end, undefined when there was none.
sub signalled
{
	my ($arguments, @sql) = @_;
	my $watch = start_psql($node, "SELECT 'at ' || signal_build($arguments)");

	backend_pid($node, 'signal_build');
	my $err = finish_psql(start_psql($node, @sql));
	my $end = time;

	finish_psql($watch);
	$node->sql('DROP INDEX IF EXISTS items_idx');
	my ($signal) = $watch->{out} =~ /^at ([\d.]+)/m;
	return ($err, defined $signal ? $end - $signal : undef);
}

# Seconds from a signal to the end of the statement. The machine may be busy: the best of a few.
# Undefined when the phase was over too soon each time.
sub try_cancel
{
	my ($phase, $terminate) = @_;
	my $best;

	for my $attempt (1 .. 4)
	{
		my ($err, $took) = signalled("'$phase', $terminate", create());

		next unless defined $took && $err =~ /cancel|terminating/;
		$best = min($took, $best // ());
		last if $best < 0.5;
	}
	return $best;
}

for my $n (0, 2)
{
	my $phases = 0;

	$workers = $n;
	for my $phase ('loading', 'writing vectors', 'first neighbors', 'refining', 'reordering',
		'connecting', 'writing index')
	{
		my $took = try_cancel($phase, 'false');

		next unless defined $took;
		$phases++;
		cmp_ok($took, '<', 1,
			sprintf('%d workers: cancelled while %s, in %.0f ms', $n, $phase, 1000 * $took));
	}
	cmp_ok($phases, '>=', 2, "$n workers: several phases were met");
	cmp_ok(try_cancel('neighbors', 'true') // 0, '<', 1,
		"$n workers: terminated while it builds the graph");
	ok_in_time(sub { return workers_left() eq '0' }, "$n workers: none is left");
}

# while the table is scanned, which an expression makes slow
$node->sql(<<'SQL');
CREATE FUNCTION slow(v vector) RETURNS vector
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS 'BEGIN PERFORM pg_sleep(0.005); RETURN v; END';
SQL
my $slow =
	"CREATE INDEX items_idx ON items USING gpugraph ((slow(val)::vector($dim)) vector_l2_ops)";
for my $how ('pg_cancel_backend', 'pg_terminate_backend')
{
	my $best;

	for my $attempt (1 .. 4)
	{
		my $session = start_psql($node, 'SET max_parallel_maintenance_workers = 2', $slow);
		my $pid = wait_for_progress($node, 'loading', $session);

		ok_in_time(sub { return workers_left() eq '2' }, "$how: two workers scan");
		$node->sql("SELECT $how($pid)");
		my $start = time;
		like(finish_psql($session), qr/cancel|terminating/, "$how: the scan ends");
		$best = min(time - $start, $best // ());
		ok_in_time(sub { return workers_left() eq '0' }, "$how: its workers end too");
		last if $best < 0.5;
	}
	cmp_ok($best, '<', 1, "$how: at once");
}

# a worker that is made to end ends the statement, whether the leader scans or builds the graph
my $worker_ended = qr/ERROR: .*(terminating|lost connection to parallel worker)/;
for my $case ([ 'loading', $slow ], [ 'neighbors', $create ])
{
	my ($phase, $sql) = @$case;
	my ($err, $best);

	# the machine may be busy
	for my $attempt (1 .. 4)
	{
		my ($ended, $took) =
			signalled("'$phase', true, 2", 'SET max_parallel_maintenance_workers = 2', $sql);

		next if !defined $took || $ended eq '';
		$err = $ended;
		$best = min($took, $best // ());
		last if $best < 0.5 || $err !~ $worker_ended;
	}
	like($err // '', $worker_ended, "a worker is terminated while $phase");
	cmp_ok($best // 1, '<', 1, "a worker is terminated while $phase: the statement ends at once");
	ok_in_time(sub { return workers_left() eq '0' },
		"a worker is terminated while $phase: the other one too");
}

# a session that goes on after a cancelled build has let go of the memory that it shared
my ($maps) = $node->sql(<<SQL);
SET max_parallel_maintenance_workers = 2;
SELECT pg_backend_pid() AS pid \\gset
\\setenv SESSION :pid
SET statement_timeout = 300;
\\set ON_ERROR_STOP 0
$slow;
\\set ON_ERROR_STOP 1
\\! test ! -e /proc/\$SESSION/maps || grep -c 'memfd:gpugraph' /proc/\$SESSION/maps
SELECT 'still there';
SQL
like($maps, qr/^(0\n)?still there$/, 'a cancelled build leaves no memory');

$workers = 2;
# a timeout that comes at any time
my $start = time;
$node->sql(join(';', create()));
my $whole = time - $start;
my ($cut, $latest) = (0, 0);
$node->sql('DROP INDEX items_idx');
my $steps = $rows > 10000 ? 20 : 6;
for my $step (1 .. $steps)
{
	my $ms = int(1000 * $whole * $step / $steps) || 1;
	my $late;

	for my $attempt (1 .. 4)
	{
		$start = time;
		my ($rc, $out, $err) = $node->psql('postgres',
			join(';', "SET statement_timeout = $ms", create()));
		my $took = time - $start;

		if ($rc == 0)
		{
			$node->sql('DROP INDEX items_idx');
			# the machine may have been busier when it was measured: that long it takes at most
			$whole = $took if $took < $whole;
			last;
		}
		like($err, qr/statement timeout/, "statement_timeout = $ms ms: says so");
		$late = min($took - $ms / 1000, $late // ());
		last if $late < 1;
	}
	next if !defined $late;
	cmp_ok($late, '<', 1.5, "statement_timeout = $ms ms: ends in time");
	$cut++;
	$latest = $late if $late > $latest;
}
cmp_ok($cut, '>', 0,
	sprintf('%d of %d timeouts within the %.2f s of a build ended it, at most %.0f ms late', $cut,
	$steps, $whole, 1000 * $latest));

# a query and a check are cancelled too
$node->sql($create);
like(error_of($node, "SET enable_seqscan = off; SET statement_timeout = 100;
	 SELECT count(*) FROM generate_series(1, 100000) g,
	 LATERAL (SELECT id FROM items WHERE id <> g
	 ORDER BY val <-> (SELECT val FROM items WHERE id = 1 + g % 9999) LIMIT 10) s"),
	qr/statement timeout/, 'searches');
index_is_complete($node, 'built at last');

$node->sql('DROP INDEX items_idx; CHECKPOINT');
cmp_ok($node->sql("SELECT pg_database_size('postgres')"), '<',
	$size + 4 * 1024 * 1024, 'no files were left behind');

finish_test($node);
