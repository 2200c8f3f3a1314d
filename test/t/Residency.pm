# What the tests of residency share: a server whose GPU service runs on the CPU engine, and how to
# ask it. With GG_SERVICE_ENGINE=cuda in the environment, as test/gpu/run sets it, the service has
# the GPU.
package Residency;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

use Gpugraph;

our @EXPORT = qw(service_conf service_node answers_agree waiting_pid unserved of_index of_device
	state_of wait_for_state answered_by truth truth_by_device truth_by_codes truth_by_cpu log_lines
	make_cursor_functions four_device_node make_segments who_answers devices_have_all query_forms
	forms_agree shares shares_are leave_room served_node set_fault waiting_are answered_together
	holds_graph restarts give_up_who_hangs form_of load_within found_by_search last_scan
	rows_come_and_go replaced_worker $nearest);

# itopk_size: wide enough that on some thousand rows a walk finds all of the ten nearest.
sub service_conf
{
	my $engine = $ENV{GG_SERVICE_ENGINE} || 'cpu';

	return <<CONF;
shared_preload_libraries = 'gpugraph'
gpugraph.service_engine = $engine
gpugraph.itopk_size = 120
gpugraph.device_storage = full
shared_buffers = 32MB
max_worker_processes = 16
CONF
}

sub service_node
{
	my ($name, %options) = @_;

	$options{conf} = service_conf() . ($options{conf} || '');
	my $node = new_node($name, %options);

	# a driver takes its time; the CPU does not
	wait_for(sub { of_device($node, 'state') eq 'up' });
	return $node;
}

# How many rows the first query finds: by the device where it can.
our $nearest =
	'SELECT count(*)
	FROM (SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 10) s';

# A server whose device has the index and answers.
sub served_node
{
	my ($name, %options) = @_;
	my $node = service_node($name, %options);

	make_items($node, 4000, 16);
	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	truth_by_device($node, 'at first');
	return $node;
}

# Do the rows that two servers return for the queries agree? Engines compute in single precision and
# in other orders of addition: on a GPU, rows whose distances agree to six digits may come in either
# order.
sub answers_agree
{
	my ($one, $other, $what) = @_;

	if (($ENV{GG_SERVICE_ENGINE} || 'cpu') eq 'cpu')
	{
		is(answers($one), answers($other), $what);
		return;
	}
	my ($x, $y) = map { $_->sql(<<'SQL') } $one, $other;
SET enable_seqscan = off;
SELECT d
	FROM queries,
	LATERAL (SELECT items.val <-> queries.val AS d FROM items
	ORDER BY items.val <-> queries.val LIMIT 20) s ORDER BY q, d;
SQL
	my @x = split /\n/, $x;
	my @y = split /\n/, $y;
	my $differ = grep { abs($x[$_] - $y[$_]) > 1e-6 * $y[$_] } 0 .. $#y;
	is(@x . " rows, $differ differ", @y . ' rows, 0 differ', $what);
	return;
}

# Run the code with sessions that leave the service alone: what they build is not handed over to it.
sub unserved (&)
{
	my ($code) = @_;
	local $ENV{PGOPTIONS} = '-c gpugraph.engine=cpu';

	$code->();
	return;
}

# An expression over an index's row of gpugraph_stat_index.
sub of_index
{
	my ($node, $expression, $index) = @_;
	$index ||= 'items_idx';
	return $node->sql("SELECT $expression FROM gpugraph_stat_index
		WHERE datname = current_database() AND relid = '$index'::regclass");
}

sub of_device
{
	my ($node, $expression) = @_;
	return $node->sql("SELECT $expression FROM gpugraph_stat_device WHERE device = 0");
}

# 'absent' also when nobody has heard of it.
sub state_of
{
	my ($node, $index) = @_;
	return of_index($node, 'state', $index) || 'absent';
}

sub wait_for_state
{
	my ($node, $state, $index) = @_;
	my $seen;

	wait_for(sub { $seen = state_of($node, $index); return $seen =~ /^($state)$/ });
	return $seen;
}

# The devices have so many megabytes from now on, and the index is on none.
sub leave_room
{
	my ($node, $index, $megabytes) = @_;

	$node->sql("ALTER SYSTEM SET gpugraph.device_memory = '${megabytes}MB'");
	$node->sql("SELECT gpugraph_evict('$index'), pg_reload_conf()");
	wait_for_state($node, 'absent', $index);
	return;
}

# What devices have of an index: its state, how many segments are there by codes, with rows in half
# precision beside them, without rows, and not at all, and whose memory has rows.
sub form_of
{
	my ($node, $index) = @_;
	return of_index($node, "concat_ws(' ', state, coded_segments, halved_segments, rowless_segments,
		missing_segments,
		CASE WHEN host_bytes > 0 THEN 'host' WHEN host_bytes = 0 THEN 'device' END)", $index);
}

# Load an index anew where devices have so much memory: its form.
sub load_within
{
	my ($node, $index, $megabytes) = @_;

	leave_room($node, $index, int($megabytes) || 1);
	$node->psql('postgres', "SELECT gpugraph_prewarm('$index')");
	return form_of($node, $index);
}

# How many queries were answered by (device, CPU) so far.
sub answered_by
{
	my ($node, $index) = @_;
	my $counts = of_index($node, "queries_gpu || ' ' || queries_cpu", $index) || '0 0';
	return split / /, $counts;
}

# Recall of the 20 queries of make_queries(), and who answered them: "1.0000 20 0".
sub truth
{
	my ($node, $rel) = @_;
	$rel ||= 'items';
	my ($gpu, $cpu) = answered_by($node, "${rel}_idx");
	my $recall = $node->sql("SELECT recall('$rel', '<->', 10)");
	my ($gpu_after, $cpu_after) = answered_by($node, "${rel}_idx");

	return sprintf '%s %d %d', $recall, $gpu_after - $gpu, $cpu_after - $cpu;
}

sub truth_by_device
{
	my ($node, $what, $rel) = @_;
	is(truth($node, $rel), '1.0000 20 0', "$what: the device answers, and rightly");
	return;
}

# Codes, whose seed is random, may cost one or two of the 200 rows. Of 200 indexes that
# residency_rowless made, with other seeds, none lost a row of these: three have a probability below
# 1e-6 each time.
sub truth_by_codes
{
	my ($node, $what, $rel) = @_;
	my ($recall, $answers) = split / /, truth($node, $rel), 2;

	is($answers, '20 0', "$what: the device answers");
	cmp_ok($recall, '>=', 0.99, "$what: hardly a row is missed");
	return;
}

sub truth_by_cpu
{
	my ($node, $what, $rel) = @_;
	is(truth($node, $rel), '1.0000 0 20', "$what: the CPU answers, and rightly");
	return;
}

# How many of the ten nearest rows of each query many queries in one call find.
sub found_by_search
{
	my ($node) = @_;
	return $node->sql(<<'SQL');
SELECT count(*) FROM gpugraph_search('items_idx', (SELECT array_agg(val ORDER BY q) FROM queries),
	10) s
JOIN queries ON q = s.query
JOIN LATERAL (SELECT ctid FROM items ORDER BY items.val <-> queries.val LIMIT 10) t
	ON t.ctid = s.tid
SQL
}

# What is told of a scan that uses the index.
sub last_scan
{
	my ($node, $sql, $columns) = @_;
	return $node->sql("SET enable_seqscan = off; SET enable_sort = off; SET enable_bitmapscan = off;
		$sql \\g /dev/null\nSELECT $columns FROM gpugraph_last_scan()");
}

# Rows for the delta, and dead ones; no two are equal.
sub rows_come_and_go
{
	my ($node) = @_;

	$node->sql('INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id % 10 = 0');
	$node->sql('DELETE FROM items WHERE id % 7 = 0 OR (id % 10 = 0 AND id <= 12000)');
	return;
}

# SQL functions that read items in the order of distances to the queries 1 and 2, by cursors:
# read_in_turn() so many rows of both, and read_around() so many rows (all where n is NULL), with a
# statement in between.
sub make_cursor_functions
{
	my ($node) = @_;

	$node->sql(<<'SQL');
CREATE FUNCTION read_in_turn(n int, OUT by_a int[], OUT by_b int[]) LANGUAGE plpgsql AS $$
DECLARE
	a CURSOR FOR SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1);
	b CURSOR FOR SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 2);
	one record;
BEGIN
	OPEN a;
	OPEN b;
	FOR i IN 1 .. n LOOP
		FETCH a INTO one;
		by_a := by_a || one.id;
		FETCH b INTO one;
		by_b := by_b || one.id;
	END LOOP;
END $$;
CREATE FUNCTION read_around(statement text, before int, n int) RETURNS int[]
	LANGUAGE plpgsql AS $$
DECLARE
	a CURSOR FOR SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1);
	one record;
	ids int[];
BEGIN
	OPEN a;
	LOOP
		FETCH a INTO one;
		EXIT WHEN NOT FOUND;
		ids := ids || one.id;
		EXIT WHEN cardinality(ids) = n;
		IF cardinality(ids) = before THEN
			EXECUTE statement;
		END IF;
	END LOOP;
	RETURN ids;
END $$;
SQL
	return;
}

# The server's gpugraph.fault, or none. What stalls by a session's setting rests until the server's
# is another: nothing depends on how fast a test is.
sub set_fault
{
	my ($node, $fault) = @_;

	alter_system($node, defined $fault ? "SET gpugraph.fault = $fault" : 'RESET gpugraph.fault');
	return;
}

# Wait until so many backends whose query matches wait for the device; their process ids.
sub waiting_are
{
	my ($node, $n, $query) = @_;
	my @pids;

	wait_for(
		sub {
			@pids = split /\n/, $node->sql(
				"SELECT pid FROM pg_stat_activity WHERE query ~ '$query' AND state = 'active'
				AND wait_event_type = 'Extension' AND pid <> pg_backend_pid()");
			return @pids == $n;
		});
	return @pids;
}

# Have so many clients run these statements, of which the last one asks the device once under
# gpugraph.fault = stall. All of them wait there before the first one is answered. What they say of
# errors.
sub answered_together
{
	my ($node, $n, @sql) = @_;
	my $taken = of_device($node, 'queries');

	set_fault($node, 'stall');
	my @clients = map { start_psql($node, @sql) } 1 .. $n;
	ok_in_time(sub { of_device($node, 'queries') == $taken + $n },
		"the device has the queries of $n clients");
	sleep 1.1;		# each of them waits for a second in any case
	set_fault($node);
	return join '', map { finish_psql($_) } @clients;
}

# Does the device hold the graph of a merge (gpugraph.fault = graph_hold)? A process that merges
# waits for it, and memory is granted that no index has. It may be at a merge within that one just
# now, so wait until it is seen.
sub holds_graph
{
	my ($node) = @_;
	return $node->sql("SELECT count(*) FROM gpugraph_stat_merge
		JOIN pg_stat_activity USING (pid)
		WHERE phase = 'building graph' AND wait_event_type = 'Extension' AND
			(SELECT sum(resident_bytes) FROM gpugraph_stat_device) >
				(SELECT coalesce(sum(bytes), 0) FROM gpugraph_stat_index)") > 0;
}

# How often workers of all devices were started again.
sub restarts
{
	my ($node) = @_;
	return $node->sql('SELECT sum(restarts) FROM gpugraph_stat_device');
}

# Another worker than the one of this process id has device 0, within three minutes.
sub replaced_worker
{
	my ($node, $pid) = @_;
	return defined wait_for(sub { of_device($node, "state = 'up' AND pid <> $pid") eq 't' });
}

# Wait until a device that hangs is given up; before: restarts() before it did. The time for that is
# short only until then, while nothing else works: on a busy machine a load takes longer.
sub give_up_who_hangs
{
	my ($node, $before) = @_;

	alter_system($node, "SET gpugraph.device_timeout = '1s'");
	wait_for(sub { return $node->sql("SELECT bool_or(state <> 'up')
		OR sum(restarts) > $before FROM gpugraph_stat_device") eq 't'; });
	alter_system($node, 'RESET gpugraph.device_timeout');
	return;
}

# Wait for a backend that waits for the device; its process id.
sub waiting_pid
{
	my ($node) = @_;
	return backend_pid($node, '<->', "wait_event_type = 'Extension'");
}

# Lines of the server's log that match.
sub log_lines
{
	my ($node, $pattern) = @_;
	my @lines = grep { /$pattern/ } split /\n/, slurp_file($node->logfile);
	return scalar @lines;
}

# A node of four devices, which fewer GPUs play where GPUs are devices, with the tables of
# make_segments().
sub four_device_node
{
	my ($name, $conf) = @_;
	local $ENV{GPUGRAPH_SAME_GPU} = 1;
	my $node = service_node($name, conf => <<CONF);
gpugraph.devices = '0,1,2,3'
gpugraph.itopk_size = 64
max_parallel_workers_per_gather = 0
$conf
CONF

	make_segments($node);
	return $node;
}

# items: 24,000 rows with an index of six segments and a filter column, and few, 5,000 rows.
sub make_segments
{
	my ($node) = @_;

	unserved {
		$node->sql(<<'SQL');
SELECT setseed(0.25);
SELECT make_data('few', 5000, 32, 40);
CREATE TABLE items AS SELECT row_number() OVER ()::int AS id, a.cat, a.big, a.val + b.val AS val
	FROM few a, few b WHERE a.id <= 2000 AND b.id <= 12;
SELECT make_queries('items', 20);
SET max_parallel_maintenance_workers = 0;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat)
	WITH (seal_rows = 0, segment_rows = 4000);
VACUUM ANALYZE;
SQL
	};
	return;
}

# Recall of the 20 queries, and how many were answered by devices alone, with the CPU, by the CPU
# alone: "1.0000 20 0 0".
sub who_answers
{
	my ($node) = @_;
	my $counts = 'queries_gpu - queries_both, queries_both, queries_cpu';
	my @before = split /\|/, of_index($node, $counts) || '0|0|0';
	my $recall = $node->sql("SELECT recall('items', '<->', 10)");
	my @after = split /\|/, of_index($node, $counts);

	return join ' ', $recall, map { $after[$_] - $before[$_] } 0 .. 2;
}

# Wait until devices alone answer.
sub devices_have_all
{
	my ($node) = @_;
	return 1 if defined wait_for(sub { return (split / /, who_answers($node))[1] == 20; });
	diag($node->sql('SELECT * FROM gpugraph_stat_index'));
	return 0;
}

# What all forms of a query return, line by line: the form and the query, the row, its distance. Of
# the search in one call that distance is what it returns, else it is computed from the table's row.
sub query_forms
{
	my ($node) = @_;
	my $query = '(SELECT val FROM queries WHERE q = 3)';
	my $near = "ORDER BY val <-> $query";
	my @forms = map { "SELECT id FROM items $_" } "$near LIMIT 30", "$near LIMIT 3000",
		"WHERE cat = 7 $near LIMIT 100", "WHERE cat = 7 $near";
	my $sql = "SELECT 'search ' || query, tid, distance FROM gpugraph_search('items_idx',
		(SELECT array_agg(val ORDER BY q) FROM queries), 10) ORDER BY query, distance, tid";

	$sql .= "; WITH ids AS MATERIALIZED (SELECT array_agg(id) AS a FROM ($forms[$_]) s)
		SELECT $_, id, val <-> $query FROM ids, unnest(a) WITH ORDINALITY u(id, n)
		JOIN items USING (id) ORDER BY n" for 0 .. $#forms;
	return $node->sql("SET enable_seqscan = off; $sql");
}

# Are these the same rows? On a GPU those whose distances agree to six digits may come in either
# order, and a distance that the CPU computes may differ in the seventh.
sub forms_agree
{
	my ($got, $expected, $what) = @_;
	my $rounding = ($ENV{GG_SERVICE_ENGINE} || 'cpu') eq 'cpu' ? 0 : 1e-6;
	my @got = map { [ split /\|/ ] } split /\n/, $got;
	my @expected = map { [ split /\|/ ] } split /\n/, $expected;
	die 'no form has an answer' if !@expected;
	my %seen;
	my $twice = grep { $seen{"$_->[0] $_->[1]"}++ } @got;
	my @wrong = grep {
		my ($x, $y) = ($got[$_] || [ '', '', 'inf' ], $expected[$_]);

		$x->[0] ne $y->[0] || abs($x->[2] - $y->[2]) > $rounding * $y->[2]
			|| ($rounding == 0 && $x->[1] ne $y->[1]);
	} 0 .. $#expected;

	is(@got . " rows, $twice twice, " . @wrong . ' differ', @expected . ' rows, 0 twice, 0 differ',
		$what)
		or diag(join "\n", map { "@{$got[$_] || []} instead of @{$expected[$_]}" }
			@wrong[ 0 .. ($#wrong < 9 ? $#wrong : 9) ]);
	return;
}

# How many segments each of the devices has, the fewest first.
sub shares
{
	my ($node) = @_;
	return of_index($node, '(SELECT string_agg(n::text, \' \' ORDER BY n)
		FROM unnest(device_segments) n)');
}

sub shares_are
{
	my ($node, $shares, $what) = @_;
	ok_in_time(sub { shares($node) eq $shares }, $what)
		or diag(of_index($node, 'devices::text || device_segments::text'));
	return;
}

1;
