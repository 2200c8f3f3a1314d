# Rows that maintenance_work_mem does not hold go to temporary files, and become one graph that is
# as good as one built in memory. The files are gone afterwards, however the build ended.
use Gpugraph;

my $rows = 100000;
my $node = new_node('spill',
	conf => "max_parallel_maintenance_workers = 2\nmin_parallel_table_scan_size = 0\n"
	. "gpugraph.engine = cpu\nrestart_after_crash = on\nmaintenance_work_mem = 1MB\n");

# sums are made faster than rows
$node->sql(<<SQL);
SELECT make_data('items', 1000, 16, 40);
INSERT INTO items SELECT 1000 + row_number() OVER (), a.cat, a.big, a.val + b.val
	FROM items a, items b WHERE b.id < $rows / 1000;
SELECT make_queries('items', 40);
VACUUM ANALYZE items;
SQL
my $create = 'CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)';
my $segments = "SELECT segments FROM gpugraph_index_info('items_idx')";
my $recall = "SELECT recall('items', '<->')";
my $files = 'SELECT count(*) FROM pg_ls_tmpdir()';
my $spilled = qr/NOTICE:  gpugraph index does not fit into maintenance_work_mem/;

# Build, check that there is one segment and no file, and return what was said.
sub build
{
	my ($what, $sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "SET client_min_messages = debug1; $sql");

	is($rc, 0, "$what: built") or diag $err;
	is($node->sql($segments), '1', "$what: one segment") or diag $err;
	is($node->sql($files), '0', "$what: no temporary file is left");
	return $err;
}

# ---- as good as in memory, with workers and without
my ($err, %found);
for my $workers (2, 0)
{
	my $what = "$workers workers";

	$err = build($what,
		"DROP INDEX IF EXISTS items_idx; SET max_parallel_maintenance_workers = $workers; $create");
	like($err, $spilled, "$what: announced");
	like($err, qr/DETAIL:  $rows rows go to temporary files of some \d+ MB/,
		"$what: with a detail");
	like($err, qr/HINT:  Increase maintenance_work_mem to \d+ MB for a build in memory/,
		"$what: and a hint");
	like($err, qr/segments of up to \d+ in temporary files of \d+ MB; one of $rows rows takes/,
		"$what: the plan is told");
	like($err, qr/gpugraph heap scan: 2 workers/, "$what: they scan") if $workers > 0;
	unlike($err, qr/takes more memory/, "$what: memory is kept to");
	index_is_complete($node, $what);
	$found{$what} = $node->sql($recall);
}
my ($enough) = $err =~ /Increase maintenance_work_mem to (\d+) MB/;
unlike(build('the hint', "DROP INDEX items_idx; SET maintenance_work_mem = '${enough}MB'; $create"),
	$spilled, 'the hint is right');
my $best = $node->sql($recall);
cmp_ok($found{$_}, '>=', $best - 0.005, "$_: recall") for sort keys %found;

# ---- a predicate that leaves few rows: there was memory for them
unlike(build('few rows', "DROP INDEX items_idx; $create WHERE id <= 5000"), $spilled,
	'few rows: nothing is announced');

# ---- concurrently, beside inserts, with filter columns, and files in a tablespace
my $elsewhere = PostgreSQL::Test::Utils::tempdir;
$node->sql("CREATE TABLESPACE elsewhere LOCATION '$elsewhere'");
my $other_files = "SELECT count(*) FROM pg_tablespace t, pg_ls_tmpdir(t.oid)
	WHERE spcname = 'elsewhere'";
my $session = start_psql($node, 'DROP INDEX items_idx', 'SET temp_tablespaces = elsewhere',
	'CREATE INDEX CONCURRENTLY items_idx ON items USING gpugraph (val vector_l2_ops, cat)');
wait_for_progress($node, 'neighbors', $session);
cmp_ok($node->sql($other_files), '>', 0, 'concurrently: there are files meanwhile');
is($node->sql($files), '0', 'concurrently: not in the default tablespace');
$node->sql("INSERT INTO items SELECT 2 * $rows + i, i % 3, i, (SELECT val FROM items WHERE id = i)
	FROM generate_series(1, 50) i");
like(finish_psql($session), $spilled, 'concurrently: announced');
is($node->sql($segments), '1', 'concurrently: one segment');
is($node->sql($other_files), '0', 'concurrently: no file is left');
index_is_complete($node, 'concurrently');
cmp_ok($node->sql($recall), '>=', $best - 0.005, 'concurrently: recall');
my $filtered = "SELECT array_agg(id) FROM (SELECT id FROM items WHERE cat = 2
	ORDER BY val <-> (SELECT val FROM items WHERE id = 17) LIMIT 10) s";
is($node->sql("SET enable_seqscan = off; $filtered"),
	$node->sql("SET enable_indexscan = off; $filtered"), 'concurrently: filtered');
$node->sql("DELETE FROM items WHERE id > 2 * $rows; DROP INDEX items_idx");
$node->sql('VACUUM ANALYZE items');

# ---- cancelled at any stage
make_signal_build($node);
for my $phase ('neighbors', 'reordering|connecting|writing')
{
	my $watch = start_psql($node, "SELECT signal_build('$phase', false)");

	backend_pid($node, 'signal_build');
	$session = start_psql($node, $create);
	like(finish_psql($session), qr/canceling statement due to user request/, "cancel while $phase");
	is(finish_psql($watch), '', "cancel while $phase: it was met");
	is($node->sql($files), '0', "cancel while $phase: no file is left");
}
my ($rc, $out);
for my $ms (20, 100, 400)
{
	like(error_of($node, "SET statement_timeout = $ms; $create"), qr/statement timeout/, "$ms ms");
	is($node->sql($files), '0', "$ms ms: no file is left");
}

# ---- in a subtransaction that fails, and again in the same session
is( $node->sql(<<SQL), '0', 'an error within a transaction: no file is left');
CREATE FUNCTION sour(id int, val vector) RETURNS vector(16) IMMUTABLE PARALLEL SAFE
	LANGUAGE plpgsql AS
	\$\$ BEGIN IF id = $rows - 10 THEN RAISE division_by_zero; END IF; RETURN val; END \$\$;
DO \$\$
BEGIN
	FOR i IN 1 .. 2 LOOP
		BEGIN
			PERFORM set_config('max_parallel_maintenance_workers', (2 * (i - 1))::text, true);
			CREATE INDEX items_idx ON items
				USING gpugraph ((sour(id, val)::vector(16)) vector_l2_ops);
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
	END LOOP;
END \$\$;
$files
SQL

# ---- temp_file_limit: known to be too small, there are segments
($rc, $out, $err) = $node->psql('postgres', "SET temp_file_limit = '10MB'; $create");
is($rc, 0, 'a small temp_file_limit: built');
like($err, qr/NOTICE:  gpugraph index no longer fits into maintenance_work_mem after \d+ rows/,
	'a small temp_file_limit: segments');
cmp_ok($node->sql($segments), '>', 1, 'a small temp_file_limit: several');
index_is_complete($node, 'a small temp_file_limit');
$node->sql('DROP INDEX items_idx');

# found out to be too small, there is an error
$node->sql("UPDATE pg_class SET reltuples = 0.85 * $rows WHERE oid = 'items'::regclass");
my $planned;
# a build that is cancelled early has said how large its files are going to be
for (my $ms = 200; !defined $planned && $ms < 60000; $ms *= 2)
{
	($rc, $out, $err) = $node->psql('postgres',
		"SET client_min_messages = debug1; SET statement_timeout = $ms; $create");
	isnt($rc, 0, "$ms ms: the build is cancelled");
	($planned) = $err =~ /temporary files of (\d+) MB/;
}
for my $workers (2, 0)
{
	like(error_of($node, "\\set VERBOSITY verbose
		SET max_parallel_maintenance_workers = $workers;
		SET temp_file_limit = '${planned}MB'; $create"),
		qr/ERROR:  53400: temporary file size exceeds temp_file_limit/,
		"temp_file_limit, $workers workers");
	is($node->sql($files), '0', "temp_file_limit, $workers workers: no file");
}
$node->sql('ANALYZE items');

# ---- no room for files
my $postmaster = (slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/)[0];
system_or_bail('prlimit', '--fsize=30000000:', '--pid', $postmaster);
($rc, $out, $err) = $node->psql('postgres', $create);
isnt($rc, 0, 'no room for files: an error');
like($err, qr/could not (?:map|extend) a temporary file.*File too large/,
	'no room for files: says so');
system_or_bail('prlimit', '--fsize=unlimited:', '--pid', $postmaster);
is($node->sql($files), '0', 'no room for files: none is left');

# ---- a crash
for my $who ('leader', 'worker')
{
	my ($build, $pid) = find_build($node, "DROP INDEX IF EXISTS items_idx; $create", $who);

	kill_9($node, $pid);
	finish_psql($build);
	ok(wait_until_up($node), "kill -9 of the $who: the server is back");
	is($node->sql($files), '0', "kill -9 of the $who: no file is left");
}
build('after all that', $create);
index_is_complete($node, 'after all that');

finish_test($node);
