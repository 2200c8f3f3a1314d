# The GPU service under everything at once: many clients searching, inserting and deleting, VACUUM
# in a loop, statements cut off by a timeout, and the service's worker terminated again and again.
# No statement fails but the cut-off ones, no select returns a wrong row, a row twice or too few,
# and memory stays what it was.
#
#	SOAK_SECONDS, SOAK_CLIENTS, SOAK_ROWS, SOAK_DIM		default 12, 8, 3000, 16
#	GG_SERVICE_ENGINE		what plays the device: cpu (default), or cuda on a GPU host
use Gpugraph;
use Residency;
use List::Util qw(max);
use Time::HiRes qw(sleep time);

my $seconds = $ENV{SOAK_SECONDS} || 10;
my $clients = $ENV{SOAK_CLIENTS} || 8;
my $rows = $ENV{SOAK_ROWS} || 3000;
my $dim = $ENV{SOAK_DIM} || 16;
my $engine = $ENV{GG_SERVICE_ENGINE} || 'cpu';
# fifteen terminations, and time to come back after the last one
my $pause = max($seconds / 15, 2.5);

my $node = new_node('soak', conf => <<CONF);
shared_preload_libraries = 'gpugraph'
gpugraph.service_engine = '$engine'
gpugraph.engine = auto
max_connections = @{[ $clients + 20 ]}
shared_buffers = '@{[ $rows > 50000 ? '1GB' : '64MB' ]}'
maintenance_work_mem = '1GB'
CONF
make_items($node, $rows, $dim);
$node->sql(<<'SQL');
ALTER TABLE items DROP CONSTRAINT items_pkey;
CREATE INDEX ON items (id);
CREATE SEQUENCE numbers START 10000000;
CREATE TABLE source AS SELECT * FROM items;
CREATE INDEX ON source (id);
-- One snapshot, with and without the index; an answer as near as the exact one is as good.
CREATE TABLE samples (recall float8);
CREATE FUNCTION sample(query vector, k int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	found float8[];
	truth float8[];
	recall float8;
BEGIN
	found := nearest_in_order(query, k);
	PERFORM set_config('enable_indexscan', 'off', true), set_config('enable_seqscan', 'on', true);
	SELECT array_agg(d) INTO truth FROM (SELECT val <-> query AS d FROM items ORDER BY d LIMIT k) s;
	SELECT avg((d <= truth[k] + 1e-6)::int) INTO recall FROM unnest(found) d;
	IF recall < 0.5 OR found[1] < truth[1] - 1e-6 THEN
		RAISE EXCEPTION 'recall % against the exact answer: % and %', recall, found, truth;
	END IF;
	INSERT INTO samples VALUES (recall);
END $$;
SQL

my $dir = $PostgreSQL::Test::Utils::tmp_check;

# A psql that runs lines of SQL until it is told to stop.
sub forever
{
	my ($name, $repeats, $sql, @arguments) = @_;
	open my $f, '>', "$dir/$name.sql" or die "cannot write: $!";
	print $f $sql x $repeats;
	close $f;
	my %session = (out => '', err => '');
	$session{harness} = IPC::Run::start([ 'psql', '-XAtq', @arguments, '-d',
		$node->connstr('postgres'), '-f', "$dir/$name.sql" ],
		'<', \undef, '>', \$session{out}, '2>', \$session{err});
	return \%session;
}

my $vacuuming = forever('vacuum', 50 * $seconds, "VACUUM items;\nSELECT pg_sleep(0.1);\n");
my @cutting = map {
	forever("cut$_", 400 * $seconds,
		"SELECT count(nearest_in_order(val, 20)) FROM source WHERE id BETWEEN 1 AND 50;\n", '-v',
		'ON_ERROR_STOP=0', '-v', 'VERBOSITY=verbose', '-c', 'SET enable_seqscan = off',
		'-c', "SET statement_timeout = '@{[ 3 * $_ ]}ms'")
} 1 .. 2;

sub service_pids
{
	return split /\n/, $node->sql('SELECT pid FROM gpugraph_stat_device WHERE pid IS NOT NULL');
}

# resident kB of a process that no other process shares
sub private_kb
{
	my ($pid) = @_;
	my $sum = 0;
	open my $f, '<', "/proc/$pid/smaps_rollup" or return 0;
	while (my $line = <$f>)
	{
		$sum += $1 if $line =~ /^Private_\w+:\s+(\d+) kB/;
	}
	return $sum;
}

my $bench = start_pgbench($node, "--client=$clients --time=$seconds --protocol=prepared",
	'select@30' => <<SQL,
\\set q random(1, $rows)
SET enable_seqscan = off;
SELECT nearest_in_order((SELECT val FROM source WHERE id = :q), 20);
SQL
	'wide@3' => <<SQL,
\\set q random(1, $rows)
SET enable_seqscan = off;
SELECT nearest_in_order((SELECT val FROM source WHERE id = :q), 300);
SQL
	'sample@1' => <<SQL,
\\set q random(1, $rows)
SET enable_seqscan = off;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT sample((SELECT val FROM source WHERE id = :q), 20);
COMMIT;
SQL
	'insert@4' => <<SQL,
\\set q random(1, $rows)
INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source WHERE id = :q;
SQL
	# the oldest of what was inserted, and few of the first rows
	'delete@3' => <<SQL);
DELETE FROM items WHERE id IN (SELECT id FROM items WHERE id > 1000 ORDER BY id LIMIT 1);
SQL

my $start = time;
my $kills = 0;
my ($early, $late, @memory);
while ($bench->{harness}->pumpable && time - $start < $seconds - 2)
{
	my $next = time + $pause;
	while (time < $next && $bench->{harness}->pumpable)
	{
		eval { $_->{harness}->pump_nb; } for ($bench, $vacuuming, @cutting);
		sleep 0.05;
	}
	my @pids = service_pids();
	# private memory of the worker that is about to go, after so long a time alive
	push @memory, join ' ', map { sprintf '%.0f MB', private_kb($_) / 1024 } @pids;
	my ($largest) = sort { $b <=> $a } map { private_kb($_) } split /\n/,
		$node->sql("SELECT pid FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()");
	if (time - $start > $seconds / 4)
	{
		$early //= $largest;
		$late = $largest;
	}
	# at least once, also where so much time has passed by now
	next if $kills > 0 && time - $start > $seconds - 4;
	for my $pid (@pids)
	{
		$kills += kill 'TERM', $pid;
	}
}
eval { $bench->{harness}->finish; };
for my $session ($vacuuming, @cutting)
{
	eval { $session->{harness}->kill_kill(grace => 5); } if $session->{harness}->pumpable;
}

note($bench->{out});
is(failed_statements($bench), '', 'no statement of the clients failed');
like($bench->{out}, qr/number of failed transactions: 0 /, 'and pgbench counted none');
unlike($vacuuming->{err}, qr/ERROR(?!.*terminating)/, 'VACUUM met no error');
my @cut = map { split /\n/, $_->{err} } @cutting;
# Not every timeout is called one. exec_simple_query() calls start_xact_command(), parses, and calls
# that again. A timeout that fires between the two, as on a busy machine, is not active any more
# then. So enable_statement_timeout() sets it anew, and enable_timeout() forgets that it has fired.
# The request to cancel stays, and ProcessInterrupts() calls it the user's. PostgreSQL does so
# without this extension where statement_timeout is shorter than a statement takes to be parsed.
# Nobody else asks these sessions.
is(join("\n", grep { /ERROR/ && !/due to (statement timeout|user request)/ } @cut), '',
	'nor did the others but by their timeout');
is(join("\n", grep { /LOCATION/ && !/ProcessInterrupts, postgres\.c/ } @cut), '',
	'of which PostgreSQL itself told them');
cmp_ok(scalar(grep { /statement timeout/ } @cut), '>', 0, 'statements were cut off');
cmp_ok($kills, '>', 0, "workers were terminated: $kills times");

ok_in_time(sub { scalar(service_pids()) > 0 }, 'the worker is back');
my ($samples, $mean) = split /\|/, $node->sql('SELECT count(*), avg(recall) FROM samples');
cmp_ok($samples, '>', 0, "$samples samples were compared with exact answers");
cmp_ok($mean, '>', 0.95, sprintf('recall %.4f', $mean));
my ($gpu, $cpu) = split /\|/,
	$node->sql(
	"SELECT queries_gpu, queries_cpu FROM gpugraph_stat_index WHERE relid = 'items_idx'::regclass");
cmp_ok($gpu, '>', 0, "$gpu queries answered by the device, $cpu by the CPU");
ok($early > 0 && $late < $early * 1.2 + 8192, "the largest backend grew from $early to $late kB");
note('private memory of the workers before they went: ' . join(', ', @memory));
note('device memory: ' . `nvidia-smi --query-gpu=memory.used --format=csv,noheader 2>/dev/null`)
	if $engine eq 'cuda';
index_is_complete($node, 'in the end');
unlike(slurp_file($node->logfile), qr/PANIC|was terminated by signal|TRAP/, 'no process crashed');

finish_test($node);
