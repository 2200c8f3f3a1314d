# A merge that maintenance_work_mem does not hold takes temporary files, and its segment is as good
# as one that was built in memory. The files are gone afterwards, however the merge ended.
use Gpugraph;
use Merging;

my $rows = 100000;
my $node = merging_node('spill', conf => <<'CONF');
max_parallel_maintenance_workers = 1
gpugraph.engine = cpu
maintenance_work_mem = 1MB
restart_after_crash = on
log_min_messages = debug1
CONF

# sums are made faster than rows
$node->sql(<<SQL);
SELECT make_data('items', 1000, 16, 40);
INSERT INTO items SELECT 1000 + row_number() OVER (), a.cat, a.big, a.val + b.val
	FROM items a, items b WHERE b.id < $rows / 1000;
SELECT make_queries('items', 40);
CREATE INDEX ON items (id);
VACUUM ANALYZE items;
SQL
my $files = 'SELECT count(*) FROM pg_ls_tmpdir()';
my $recall = "SELECT recall('items', '<->')";
my $merge = "SELECT gpugraph_merge('items_idx')";
my $spilled = qr/merging \d+ rows of a gpugraph index in temporary files/;

# Anew, in segments that memory holds: built once, and copied with its database from then on.
my $built = 0;
sub in_segments
{
	$node->safe_psql('template1', 'DROP DATABASE postgres WITH (FORCE)') if $built;
	$node->sql("SET max_parallel_maintenance_workers = 0;
		DROP INDEX items_idx;
		CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat)
			WITH (seal_rows = 0, segment_rows = 26000);
		ALTER INDEX items_idx RESET (segment_rows)") unless $built;
	$node->safe_psql('template1', $built ? 'CREATE DATABASE postgres TEMPLATE segments' :
		'CREATE DATABASE segments TEMPLATE postgres');
	$built = 1;
	cmp_ok(merge_info($node, 'segments'), '>=', 4, 'several segments');
	return;
}

# Has the log had this since? Where it ends now is the next begin.
my $seen = 0;
sub logged
{
	my ($what) = @_;
	my $log = substr(slurp_file($node->logfile), $seen);

	$seen += length $log;
	return $log =~ $what;
}

# A merge that has its files, and rests before it is over: who holds it, the session, its process.
sub start_resting
{
	my $holder = hold_at($node, 'merge');
	my $session = start_psql($node, 'SET gpugraph.fault = hold_merge', $merge);

	ok_in_time(sub { return $node->sql($files) > 1 }, 'there are files meanwhile');
	ok(rests_at($node, 'merge'), 'the merge rests');
	cmp_ok($node->sql($files), '>', 0, 'and has one still');
	return ($holder, $session, backend_pid($node, '^SELECT gpugraph_merge'));
}

$node->sql("SET maintenance_work_mem = '512MB';
	CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat)");
my $best = $node->sql($recall);

# ---- by hand: as good as built in memory
in_segments();
is($node->sql($merge), 't', 'merged');
is(merge_info($node, 'segments'), 1, 'merged: one segment');
ok(logged($spilled), 'merged: in temporary files');
is($node->sql($files), '0', 'merged: no file is left');
index_is_complete($node, 'merged');
cmp_ok($node->sql($recall), '>=', $best - 0.005, 'merged: recall');
is($node->sql("SELECT array_agg(id) FROM (SELECT id FROM items WHERE cat = 2
		ORDER BY val <-> (SELECT val FROM items WHERE id = 17) LIMIT 10) s"),
	$node->sql("SET enable_indexscan = off; SELECT array_agg(id) FROM (SELECT id
		FROM items WHERE cat = 2 ORDER BY val <-> (SELECT val FROM items WHERE id = 17)
		LIMIT 10) s"), 'merged: filtered');

# ---- with memory no files
in_segments();
is($node->sql("SET maintenance_work_mem = '512MB'; $merge"), 't', 'with memory: merged');
ok(!logged($spilled), 'with memory: no files');

# ---- a limit of files: segments stay apart
in_segments();
logged($spilled);
is($node->sql("SET temp_file_limit = '10MB'; $merge"), 't', 'a small temp_file_limit: merged');
cmp_ok(merge_info($node, 'segments'), '>', 1, 'a small temp_file_limit: segments stay apart');
ok(!logged(qr/temp_file_limit \(/), 'a small temp_file_limit: no error');
index_is_complete($node, 'a small temp_file_limit');

# ---- cancelled at any time, and a session that ends: no merge is over before
for my $ms (50, 200, 400, 800, 1600)
{
	my $holder = hold_at($node, 'merge');
	my ($rc, $out, $err) = $node->psql('postgres',
		"SET statement_timeout = $ms; SET gpugraph.fault = hold_merge; $merge");

	like($err, qr/statement timeout/, "$ms ms: cancelled");
	is($node->sql($files), '0', "$ms ms: no file is left");
	finish_psql($holder);
}
my ($holder, $session, $pid) = start_resting();
# its client hears of the end before its files are removed
$node->sql("SELECT pg_terminate_backend($pid)");
finish_psql($session);
finish_psql($holder);
ok_in_time(sub { return $node->sql(
	"SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") == 0 }, 'the session ended');
is($node->sql($files), '0', 'the session ended: no file is left');
index_is_complete($node, 'after all that');

# an error in a subtransaction, and again in the same session
is($node->sql(<<SQL), "t\n0", 'a subtransaction that fails');
DO \$\$
BEGIN
	PERFORM set_config('gpugraph.engine', 'cpu', true);
	PERFORM gpugraph_merge('items_idx');
	RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
	NULL;
END \$\$;
$merge;
$files;
SQL

# ---- no room for files: an error that says so, and the segments as before
in_segments();
$node->sql("INSERT INTO items SELECT 2 * $rows + id, cat, big, val FROM items WHERE id <= 1000");
my $segments = merge_info($node, 'segments');
my $postmaster = (slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/)[0];
system_or_bail('prlimit', '--fsize=20000000:unlimited', '--pid', $postmaster);
my ($rc, $out, $err) = $node->psql('postgres', $merge);
isnt($rc, 0, 'no room for files: an error');
like($err, qr/could not (?:map|extend) a temporary file of .*gpugraph index: File too large/,
	'no room for files: says so');
is($node->sql($files), '0', 'no room for files: none is left');

# the worker, too
$node->sql('ALTER INDEX items_idx SET (seal_rows = 100)');
$node->sql('VACUUM items');
my $failed = "SELECT phase FROM gpugraph_stat_merge WHERE index = 'items_idx'::regclass";
ok_in_time(sub { return $node->sql($failed) eq 'failed' }, 'no room for files: a worker fails');
is($node->sql($files), '0', 'no room for files: it leaves none');
cmp_ok(merge_info($node, 'segments'), '>=', $segments, 'the segments are as before');
index_is_complete($node, 'no room for files');
system_or_bail('prlimit', '--fsize=unlimited:unlimited', '--pid', $postmaster);

# ---- the worker, in many transactions, whose process does not end with the merge
in_segments();
logged($spilled);
$node->sql("ALTER INDEX items_idx SET (seal_rows = 100);
	INSERT INTO items SELECT 3 * $rows + id, cat, big, val FROM items WHERE id <= 1000");
$node->sql('VACUUM items');
ok_in_time(sub { return $node->sql($files) > 0 }, 'the worker: there are files meanwhile');
ok_in_time(sub { return merge_info($node, 'segments') <= 2 }, 'the worker: merged');
ok(logged($spilled), 'the worker: in temporary files');
ok_in_time(sub { return $node->sql($files) == 0 }, 'the worker: no file is left');
index_is_complete($node, 'the worker');
cmp_ok($node->sql($recall), '>=', $best - 0.005, 'the worker: recall');

# ---- a crash
in_segments();
($holder, $session, $pid) = start_resting();
kill_9($node, $pid);
finish_psql($session);
finish_psql($holder);
ok(wait_until_up($node), 'kill -9: the server is back');
is($node->sql($files), '0', 'kill -9: no file is left');
is($node->sql($merge), 't', 'kill -9: the next one does it');
is(merge_info($node, 'segments'), 1, 'kill -9: one segment');
index_is_complete($node, 'kill -9');

finish_test($node);
