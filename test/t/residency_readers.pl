# A big index is read by several processes: whatever their number the copy is the same, and when one
# of them ends, or the load is evicted, cancelled or loses its worker in the middle, nothing is left
# behind and the CPU answers.
use Gpugraph;
use Residency;

# Lists long enough for all of ten among so many rows. A delta that nothing merges.
my $node = service_node('readers', conf => <<'CONF');
gpugraph.itopk_size = 300
gpugraph.merge_workers = 0
CONF
unserved {
	make_items($node, 12000, 16);
	$node->sql(<<'SQL');
CREATE TABLE wide (id int, val vector(2100));
CREATE INDEX wide_idx ON wide USING gpugraph (val vector_l2_ops);
SQL
};
# a delta of many units, rows of it dead; and one of rows that take two pages
$node->sql(<<'SQL');
INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id % 3 = 0;
DELETE FROM items WHERE id % 7 = 1;
VACUUM items;

INSERT INTO wide SELECT i,
	(SELECT array_agg(sin(i * 7 + j * j)) FROM generate_series(1, 2100) j)::vector
	FROM generate_series(1, 100) i;
SQL

my $prewarm = "SELECT gpugraph_prewarm('items_idx')";
my $loaders = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'gpugraph loader'";

sub set_readers
{
	my ($n) = @_;
	alter_system($node, "SET gpugraph.load_workers = $n");
	return;
}

# Answers of the device, of both indexes.
sub device_answers
{
	return $node->sql(<<'SQL');
SET enable_seqscan = off;
SET gpugraph.engine = cuda;
SELECT q,
	(SELECT array_agg(id) FROM (SELECT id FROM items ORDER BY items.val <-> queries.val LIMIT 40) s)
	FROM queries ORDER BY q;
SELECT array_agg(id)
	FROM (SELECT id FROM wide ORDER BY val <-> (SELECT val FROM wide WHERE id = 50) LIMIT 100) s;
SQL
}

# A prewarm that rests half-way until go_on(), each of its readers with a unit in hand; the loaders'
# process ids, the first one's first.
sub stalled_load
{
	my ($session, $n) = @_;
	my @pids;

	set_fault($node, 'load_readers');
	$$session = start_psql($node, 'SET gpugraph.engine = cuda', $prewarm);
	wait_for(
		sub {
			@pids = split /\n/, $node->sql("SELECT pid FROM pg_stat_activity
				WHERE backend_type = 'gpugraph loader' AND wait_event_type = 'Extension'
				ORDER BY backend_start, pid");
			return @pids == $n;
		});
	return @pids;
}

sub go_on { set_fault($node); return }

# End or cancel who waits for the load; the load goes on.
sub end_waiting
{
	my ($session, $how) = @_;

	$node->sql("SELECT $how(pid) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND query LIKE 'SELECT gpugraph_prewarm%'");
	return finish_psql($session);
}

sub nothing_is_left
{
	my ($what) = @_;

	ok_in_time(sub { $node->sql($loaders) == 0 }, "$what: no loader is left");
	ok_in_time(sub { of_device($node, 'resident_bytes') == 0 }, "$what: the device holds nothing");
	return;
}

# ---- 1, 2 and 4 readers
my $by_one;
for my $n (1, 2, 4)
{
	my $session;

	set_readers($n);
	$node->sql("SELECT gpugraph_evict('items_idx'), gpugraph_evict('wide_idx')");
	my @pids = stalled_load(\$session, $n);
	is(scalar(@pids), $n, "$n readers");
	go_on();
	is(finish_psql($session), '', "$n readers: it is loaded");
	$node->sql("SET gpugraph.fault = load_readers; SELECT gpugraph_prewarm('wide_idx')");
	my $answers = device_answers();
	$by_one //= $answers;
	is($answers, $by_one, "$n readers: the same answers");
	my $loads = of_device($node, "loads || ' ' || failed_loads || ' ' || refreshes");
	truth_by_device($node, "$n readers");
	is(of_device($node, "loads || ' ' || failed_loads || ' ' || refreshes"), $loads,
		"$n readers: it was complete");
}
is($by_one =~ tr/\n//, 20, 'twenty-one answers');
cmp_ok(of_index($node, 'delta_pages'), '>', 24, 'the delta is on the device');
cmp_ok(of_index($node, 'delta_pages', 'wide_idx'), '>', 100, 'and that of the long rows');

# ---- a time limit for clients' transactions (PostgreSQL 17) is not meant for loads
{
	my $limited = $node->sql("SELECT count(*) FROM pg_settings WHERE name = 'transaction_timeout'");

	$node->sql("SELECT gpugraph_evict('items_idx')");
	$node->sql("ALTER DATABASE postgres SET transaction_timeout = '400ms'") if $limited;
	is(($node->psql('postgres',
		($limited ? 'SET transaction_timeout = 0; ' : '')
		. "SET gpugraph.fault = load_readers; $prewarm"))[0], 0,
		'a load may take longer than a transaction');
	$node->sql('SET transaction_timeout = 0;
		ALTER DATABASE postgres RESET transaction_timeout') if $limited;
}

# ---- one reader's end, the last or the first
$node->sql("SELECT gpugraph_evict('wide_idx')");
for my $which (-1, 0)
{
	my $name = $which < 0 ? 'a helper' : 'the first reader';
	my $session;

	$node->sql("SELECT gpugraph_evict('items_idx')");
	my @pids = stalled_load(\$session, 4);
	is(scalar(@pids), 4, "$name is to end: four readers");
	$node->sql("SELECT pg_terminate_backend($pids[$which])");
	like(finish_psql($session), qr/could not load index "items_idx".*its loader was terminated/s,
		"$name ended: prewarm says so");
	nothing_is_left("$name ended");
	go_on();
	truth_by_cpu($node, "$name ended");
}
$node->sql($prewarm);
is(device_answers(), $by_one, 'the next load is whole');
$node->sql("SELECT gpugraph_evict('wide_idx')");

# ---- evicted in the middle: at once, since the readers rest until go_on()
{
	my $session;

	$node->sql("SELECT gpugraph_evict('items_idx')");
	stalled_load(\$session, 4);
	# it would ask for the load again
	end_waiting($session, 'pg_terminate_backend');
	is($node->sql("SET statement_timeout = '60s'; SELECT gpugraph_evict('items_idx')"), 't',
		'evicted in the middle');
	nothing_is_left('evicted');
	is(state_of($node), 'absent', 'nor an entry');
	go_on();
}

# ---- who waits is cancelled: the load goes on
{
	my $session;

	stalled_load(\$session, 4);
	like(end_waiting($session, 'pg_cancel_backend'), qr/canceling statement due to user request/,
		'prewarm is cancelled');
	go_on();
	is(wait_for_state($node, 'ready'), 'ready', 'the load goes on');
	is(device_answers(), $by_one, 'and is whole');
	$node->sql("SELECT gpugraph_evict('wide_idx')");
}

# ---- the worker ends in the middle; its successor has nothing to do with those readers
{
	my $session;
	my $pid = of_device($node, 'pid');

	$node->sql("SELECT gpugraph_evict('items_idx')");
	stalled_load(\$session, 4);
	kill 'TERM', $pid;
	like(finish_psql($session), qr/no device of the gpugraph service is up/,
		'the worker ended: prewarm says so');
	ok(replaced_worker($node, $pid), 'the next worker is there');
	nothing_is_left('the worker ended');
	go_on();
	$node->sql($prewarm);
	is(device_answers(), $by_one, 'the next worker\'s load is whole');
	$node->sql("SELECT gpugraph_evict('wide_idx')");
}

# ---- the index is rebuilt, then dropped in the middle: readers have nothing to complain of. Who
# waited for the load is gone, but the first reader may keep the index locked until its next unit.
for my $sql ('REINDEX INDEX items_idx', 'DROP INDEX items_idx')
{
	my ($session, $changing);
	my $failed = of_device($node, 'failed_loads');

	$node->sql("SELECT gpugraph_evict('items_idx')");
	stalled_load(\$session, 4);
	end_waiting($session, 'pg_terminate_backend');
	unserved { $changing = start_psql($node, $sql); };
	ok_in_time(
			sub {
				has_ended($changing) || $node->sql("SELECT count(*) FROM pg_stat_activity
					WHERE query = '$sql' AND wait_event_type = 'Lock'") > 0
			}, "$sql: it comes while the readers rest");
	go_on();
	is(finish_psql($changing), '', "$sql: without an error");
	nothing_is_left($sql);
	is(of_device($node, 'failed_loads') - $failed, 0, "$sql: that is no failure");
}

is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
finish_test($node);
