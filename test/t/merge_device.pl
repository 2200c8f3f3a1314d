# A device builds the graph of a merge, beside its queries, and the CPU does whenever the device
# does not: for want of memory, after a failure, while it builds for another merge. A merge that is
# given up at any point leaves nothing on the device, and nothing in the index.
use Gpugraph;
use Merging;
use Residency;
use Time::HiRes qw(time usleep);

my $node = service_node('mergedev',
	conf => "gpugraph.device_timeout = '20s'\ngpugraph.devices = '0'\n");
make_source($node, 6000, 16, 'seal_rows = 0');

my $merge = "SELECT gpugraph_merge('items_idx')";

sub merges
{
	return of_device($node, 'merges');
}

# New rows, so that there is something to merge.
sub insert
{
	my ($rows, $rel) = @_;
	$rel ||= 'items';

	$node->sql("INSERT INTO $rel
		SELECT id + 10000 * nextval('numbers'), cat, big, val FROM source WHERE id <= $rows");
	return;
}

# Merge with these settings: who built the graph, and what the session was told on the way.
sub merge_with
{
	my ($settings, $rel) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "SET client_min_messages = debug1; $settings;
		SELECT gpugraph_merge('" . ($rel || 'items') . "_idx')");

	return "failed: $err" if $rc != 0;
	return ($err =~ /graph by (.*)/ ? $1 : 'nobody', $err);
}

# Device memory that no index has.
sub granted
{
	return of_device($node,
		'resident_bytes - (SELECT coalesce(sum(bytes), 0) FROM gpugraph_stat_index)');
}

sub device_is_empty
{
	my ($what) = @_;

	ok_in_time(sub { return granted() == 0 }, "$what: the device's memory is given back");
	return;
}

# gpugraph.device_memory; undef: its default.
sub device_memory
{
	my ($size) = @_;
	my $bytes = defined $size ? "pg_size_bytes('$size')" : 'NULL';

	$node->sql(defined $size ?
		"ALTER SYSTEM SET gpugraph.device_memory = '$size'" :
		'ALTER SYSTEM RESET gpugraph.device_memory');
	$node->reload;
	ok_in_time(sub {
		return of_device($node, "coalesce(limit_bytes = $bytes, limit_bytes IS NULL
			OR limit_bytes > 1 << 30)") eq 't' }, 'device_memory ' . ($size // 'as by default'));
	return;
}

# A session that waits for the device, which rests before it begins, until set_fault(); its process
# id.
sub start_resting
{
	my ($sql) = @_;

	set_fault($node, 'graph_hold');
	my $session = start_psql($node, $sql || $merge);
	$session->{pid} = backend_pid($node, 'gpugraph_merge', "wait_event_type = 'Extension'");
	wait_for(sub { return granted() > 0 });
	return $session;
}

# ---- the device builds
$node->sql("SELECT gpugraph_evict('items_idx')");
insert(6000);
is((merge_with('SET gpugraph.engine = auto'))[0], 'device 0', 'two equal halves: by the device');
is(of_device($node, "merges || ' ' || (merge_seconds > 0)"), '1 true', 'the view counts it');
is(merge_info($node, 'segments'), 1, 'one segment');
index_is_complete($node, 'by the device');
device_is_empty('by the device');
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, 'recall');

# rows that differ, and what is known of the larger segment's graph
$node->sql('INSERT INTO items
	SELECT id + 5000000, cat, big, (SELECT array_agg(x + 0.01 * (id % 7))::real[]::vector(16)
		FROM unnest(val::real[]) x) FROM source WHERE id <= 900');
my ($by, $told) = merge_with('SET gpugraph.engine = auto');
is($by, 'device 0', 'a tenth into nine tenths: by the device');
like($told, qr/merging the graphs of 2 segments/, 'from the graphs that are there')
	if ($ENV{GG_SERVICE_ENGINE} || 'cpu') eq 'cpu';
index_is_complete($node, 'of two graphs');
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, 'recall of two graphs');

# ---- what has no room on the device at once: by groups of rows
device_memory('74MB');
$node->sql('INSERT INTO items
	SELECT id + 6000000, cat, big, (SELECT array_agg(x + 0.02 * (1 + id % 7))::real[]::vector(16)
		FROM unnest(val::real[]) x) FROM source');
is((merge_with('SET gpugraph.engine = auto'))[0], 'device 0', 'groups of rows: by the device');
is(merge_info($node, 'segments'), 1, 'groups of rows: one segment');
index_is_complete($node, 'groups of rows');
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, 'groups of rows: recall');
device_is_empty('groups of rows');
device_memory(undef);

# the index is brought to the device, and then merged beside it
$node->sql("SELECT gpugraph_prewarm('items_idx')");
truth_by_device($node, 'loaded');
insert(300);
is((merge_with('SET gpugraph.engine = auto'))[0], 'device 0', 'a resident index: by the device');
truth_by_device($node, 'merged on the device');

# ---- queries go on while the device builds
insert(300);
$node->sql("SELECT gpugraph_prewarm('items_idx')");
my $before = merges();
my $session = start_resting();
truth_by_device($node, 'while the device builds');
set_fault($node);
is(finish_psql($session), '', 'queries beside it: the merge ends');
is(merges(), $before + 1, 'queries beside it: by the device');
truth_by_device($node, 'after a merge beside queries');
$node->sql("SELECT gpugraph_evict('items_idx')");

# ---- the CPU builds
for my $case ([ 'no memory by the setting', 'SET gpugraph.fault = none', '1MB',
		qr/gpugraph.device_memory leaves 1024 kB/ ],
	[ 'no memory on the device', 'SET gpugraph.fault = graph_memory', undef,
		qr/out of device memory/ ],
	[ 'engine = cpu', 'SET gpugraph.engine = cpu', undef, undef ])
{
	my ($what, $settings, $size, $why) = @$case;

	device_memory($size) if defined $size;
	insert(200);
	$before = merges();
	($by, $told) = merge_with($settings);
	is($by, 'the CPU', "$what: by the CPU");
	like($told, qr/built by the CPU: .*$why/, "$what: the reason") if defined $why;
	is(merges(), $before, "$what: the device has not built");
	device_is_empty($what);
	index_is_complete($node, $what);
	device_memory(undef) if defined $size;
}

$node->sql("CREATE TABLE few AS SELECT * FROM source WHERE false;
	CREATE INDEX few_idx ON few USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0)");
insert(1000, 'few');
is((merge_with('SET gpugraph.engine = auto', 'few'))[0], 'the CPU', 'few rows: by the CPU');

# ---- one at a time
insert(300);
insert(6000, 'few');
$session = start_resting();
is((merge_with('SET gpugraph.engine = auto', 'few'))[0], 'the CPU',
	'the device builds for another: by the CPU');
set_fault($node);
is(finish_psql($session), '', 'the other one ends');
index_is_complete($node, 'two at a time', 'few');

# ---- given up while the device has it, and as it builds
for my $how ('pg_cancel_backend', 'pg_terminate_backend')
{
	insert(200);
	$session = start_resting();
	$before = merges();
	$node->sql("SELECT $how($session->{pid})");
	like(finish_psql($session), qr/canceling statement|terminating connection/, "$how: it ends");
	device_is_empty($how);
	is(merges(), $before, "$how: no graph");
	set_fault($node);
	index_is_complete($node, $how);
	is((merge_with('SET gpugraph.engine = auto'))[0], 'device 0', "$how: the next: by the device");
}
insert(300);
my $start = time;
merge_with('SET gpugraph.engine = auto');
my $ms = 1000 * (time - $start);
my $cancelled = 0;
for my $step (1 .. 16)
{
	insert(200) if $step % 4 == 1;
	my ($rc, $out, $err) = $node->psql('postgres',
		'SET statement_timeout = ' . (1 + int($ms * $step / 16)) . "; $merge");
	$cancelled++ if $rc != 0;
	is($err =~ s/^psql:\S+ //r, $rc != 0 ? 'ERROR:  canceling statement due to statement timeout' :
			'', "step $step: cancelled, or done");
	device_is_empty("step $step");
}
cmp_ok($cancelled, '>', 0, 'some were cancelled');
index_is_complete($node, 'cancelled at every step');

# For how long a call may hang: a graph that is really built takes some time.
sub device_timeout
{
	reload_with($node, "gpugraph.device_timeout = '$_[0]'\n");
	return;
}

# ---- the device's worker ends, fails, or hangs
my $pid = of_device($node, 'pid');
insert(200);
$session = start_resting("SET client_min_messages = debug1; $merge");
kill 'TERM', $pid;
like(finish_psql($session), qr/built by the CPU: its worker has ended.*graph by the CPU/s,
	'the worker is terminated: by the CPU');
set_fault($node);
index_is_complete($node, 'the worker is terminated');

for my $case ([ graph => qr/device lost while building a graph/ ],
	[ graph_hang => qr/a call of the driver that builds a graph has not returned for 2/ ])
{
	my ($fault, $why) = @$case;

	ok_in_time(sub { return of_device($node, 'state') eq 'up' }, "$fault: a worker");
	device_timeout('2s') if $fault eq 'graph_hang';
	$pid = of_device($node, 'pid');
	insert(200);
	is((merge_with("SET gpugraph.fault = $fault"))[0], 'the CPU', "$fault: by the CPU");
	index_is_complete($node, $fault);
	ok_in_time(sub { return of_device($node, "state = 'up' AND pid <> $pid") eq 't' },
		"$fault: another worker has the device");
	is(log_lines($node, $why), 1, "$fault: the log says it once");
	device_timeout('20s');
	insert(200);
	is((merge_with('SET gpugraph.engine = auto'))[0], 'device 0', "$fault: the next one is not");
	device_is_empty($fault);
}

# ---- in the background, beside DDL

# A table with an index that its rows are enough to have sealed.
sub grow
{
	my ($rel) = @_;

	$node->sql("CREATE TABLE $rel AS SELECT * FROM source WHERE false;
		CREATE INDEX ${rel}_idx ON $rel USING gpugraph (val vector_l2_ops)
			WITH (seal_rows = 5500)");
	insert(6000, $rel);
	return;
}

$before = merges();
grow('grown');
ok_in_time(sub { return merges() > $before && merge_info($node, 'segments', 'grown') == 1 },
	'a background merge: by the device');
index_is_complete($node, 'a background merge', 'grown');

for my $case ([ 'reindexed', 'REINDEX INDEX reindexed_idx' ],
	[ 'dropped', 'DROP INDEX dropped_idx' ],
	[ 'ended', "SELECT pg_terminate_backend(pid) FROM gpugraph_stat_merge
		WHERE index = 'ended_idx'::regclass" ])
{
	my ($rel, $sql) = @$case;

	set_fault($node, 'graph_hold');
	grow($rel);
	ok_in_time(sub { return granted() > 0 &&
		$node->sql("SELECT count(*) FROM gpugraph_stat_merge
			WHERE index = '${rel}_idx'::regclass AND phase = 'building graph'") == 1 },
		"$rel: the device builds");
	is(($node->psql('postgres', "SET lock_timeout = '20s'; SET gpugraph.engine = cpu; $sql"))[0], 0,
		"$rel meanwhile");
	set_fault($node);
	device_is_empty($rel);
	index_is_complete($node, $rel, $rel) if $rel ne 'dropped';
}

# ---- the postmaster is gone
insert(200);
$session = start_resting();
$pid = of_device($node, 'pid');
$node->sql('ALTER SYSTEM RESET gpugraph.fault');
$node->kill9;
ok_in_time(sub { return !kill(0, $pid) && !kill(0, $session->{pid}) },
	'the postmaster is gone: worker and merge end');
finish_psql($session);
$node->start;
ok_in_time(sub { return of_device($node, 'state') eq 'up' }, 'a new server');
is((merge_with('SET gpugraph.engine = auto'))[0], 'device 0', 'a new server: by the device');
index_is_complete($node, 'a new server');

finish_test($node);
