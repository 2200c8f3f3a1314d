# However many processes scan the table, the index holds every row once and finds neighbors as well.
use Gpugraph;

my $node = new_node('parallel', conf => <<'CONF');
wal_level = replica
min_parallel_table_scan_size = 0
max_worker_processes = 16
max_parallel_workers = 16
maintenance_work_mem = '256MB'
CONF
my $started = qr/gpugraph heap scan: (\d+) workers of (\d+) asked for/;

# Run a statement; the number of workers that its build started (undef: it was serial), and what was
# said.
sub build
{
	my ($sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "SET client_min_messages = debug1; $sql");

	return ($err =~ $started ? $1 : undef, $rc, $err);
}

sub no_workers_left
{
	return $node->sql(
		"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'") eq '0';
}

$node->sql("SELECT make_data('items', 4000, 64, 40); SELECT make_queries('items', 30)");
my $create = 'CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)';

# any number of processes
for my $workers (0, 1, 4)
{
	my ($got, $rc) = build("SET max_parallel_maintenance_workers = $workers; $create");

	is($rc, 0, "$workers workers: built");
	is($got // 0, $workers, "$workers workers: as many as asked for");
	index_is_complete($node, "$workers workers");
	cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, "$workers workers: recall");
	my $info = $node->sql(
		"SELECT nodes, rows, segments, total_seconds > 0, scan_seconds > 0, knn_seconds > 0,
		write_seconds > 0, wal_seconds > 0, total_seconds < 60
		FROM gpugraph_index_info('items_idx')");
	is($info, '4000|4000|1|t|t|t|t|t|t', "$workers workers: counts and times");
	# from 18 on the table's reltuples stays unknown where autovacuum is off
	is($node->sql("SELECT DISTINCT reltuples FROM pg_class
		WHERE relname IN ('items', 'items_idx') AND reltuples <> -1"), '4000',
		"$workers workers: the planner knows");
	$node->sql('DROP INDEX items_idx');
}

# the table's own number, and too small a table
$node->sql('ALTER TABLE items SET (parallel_workers = 1)');
is((build("SET max_parallel_maintenance_workers = 4; $create"))[0], 1,
	"the table's parallel_workers counts");
$node->sql('DROP INDEX items_idx; ALTER TABLE items SET (parallel_workers = 0)');
is((build("SET max_parallel_maintenance_workers = 4; $create"))[0], undef,
	'parallel_workers = 0: serial');
$node->sql('DROP INDEX items_idx; ALTER TABLE items RESET (parallel_workers)');
is((build("SET min_parallel_table_scan_size = '1GB'; SET max_parallel_maintenance_workers = 4;
	$create"))[0], undef, 'a small table: serial');

# none to be had: the leader does it all
my ($none) =
	(build("SET max_parallel_workers = 0; SET max_parallel_maintenance_workers = 4;
	REINDEX INDEX items_idx"))[0];
is($none, 0, 'no worker is free');
index_is_complete($node, 'no worker is free');

# REINDEX, and without blocking others
is((build('SET max_parallel_maintenance_workers = 3; REINDEX INDEX items_idx'))[0], 3, 'REINDEX');
index_is_complete($node, 'REINDEX');
is((build('SET max_parallel_maintenance_workers = 3; REINDEX INDEX CONCURRENTLY items_idx'))[0], 3,
	'REINDEX CONCURRENTLY');
index_is_complete($node, 'REINDEX CONCURRENTLY');
$node->sql('DROP INDEX items_idx');
is((build('SET max_parallel_maintenance_workers = 3;
	CREATE INDEX CONCURRENTLY items_idx ON items USING gpugraph (val vector_l2_ops)'))[0], 3,
	'CREATE INDEX CONCURRENTLY');
index_is_complete($node, 'CREATE INDEX CONCURRENTLY');
$node->sql('DROP INDEX items_idx');

# copies, NULLs, dead rows, rows of the same transaction
$node->sql(<<'SQL');
CREATE TABLE copies (id int, val vector(64));
INSERT INTO copies SELECT id, val FROM items WHERE id <= 2000;
INSERT INTO copies SELECT 10000 + id, NULL FROM items WHERE id <= 300;
INSERT INTO copies SELECT 20000 + id, (SELECT val FROM items WHERE id = 1 + i.id % 50) FROM items i;
DELETE FROM copies WHERE id % 7 = 0;
SQL
my ($workers, $rc, $err) = build(
	"SET max_parallel_maintenance_workers = 4;
	BEGIN; UPDATE copies SET id = id + 100000 WHERE id % 11 = 0;
	CREATE INDEX copies_idx ON copies USING gpugraph (val vector_l2_ops); COMMIT");
is($workers, 4, 'copies: in parallel');
index_is_complete($node, 'copies', 'copies');
is($node->sql("SELECT nodes = (SELECT count(DISTINCT val) FROM copies)
	AND rows >= (SELECT count(val) FROM copies) AND nodes < rows
	FROM gpugraph_index_info('copies_idx')"),
	't', 'copies are folded');

# nothing but copies, and nothing at all
$node->sql(
	'CREATE TABLE same AS SELECT g AS id, (SELECT val FROM items WHERE id = 1)::vector(64) AS val
	FROM generate_series(1, 3000) g');
is((build('SET max_parallel_maintenance_workers = 2;
	CREATE INDEX same_idx ON same USING gpugraph (val vector_cosine_ops)'))[0], 2,
	'one vector only');
is($node->sql("SELECT nodes, rows FROM gpugraph_index_info('same_idx')"),
	'1|3000', 'one vector only: one node');
$node->sql("SELECT gpugraph_check('same_idx', true)");
$node->sql('CREATE TABLE nulls AS SELECT g AS id, NULL::vector(64) AS val
	FROM generate_series(1, 3000) g');
is((build('SET max_parallel_maintenance_workers = 2;
	CREATE INDEX nulls_idx ON nulls USING gpugraph (val vector_l2_ops)'))[1], 0, 'NULLs only');
is($node->sql("SELECT nodes, rows, segments FROM gpugraph_index_info('nulls_idx')"), '0|0|0',
	'NULLs only: no segment');

# predicates and expressions, those that workers may evaluate and those that they may not
$node->sql(<<'SQL');
CREATE FUNCTION safe(v vector) RETURNS vector LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT v';
CREATE FUNCTION unsafe(v vector) RETURNS vector
	LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE AS 'BEGIN RETURN v; END';
CREATE FUNCTION unsafe_choice(i int) RETURNS boolean
	LANGUAGE plpgsql IMMUTABLE PARALLEL RESTRICTED AS 'BEGIN RETURN i % 2 = 0; END';
CREATE FUNCTION failing(v vector, i int) RETURNS vector
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	IF i > 2000 THEN
		RAISE EXCEPTION 'row % is wrong', i USING ERRCODE = '22023';
	END IF;
	RETURN v;
END $$;
SQL
my %indexes = (
	partial => [ '(val vector_l2_ops) WHERE cat < 10', 4, 'cat < 10' ],
	expression => [ '((safe(val)::vector(64)) vector_l2_ops)', 4 ],
	unsafe_expression => [ '((unsafe(val)::vector(64)) vector_l2_ops)', undef ],
	unsafe_predicate => [ '(val vector_l2_ops) WHERE unsafe_choice(cat)', undef, 'cat % 2 = 0' ],
	undeclared => [ '((safe(val)) vector_l2_ops)', undef ]);
for my $name (sort keys %indexes)
{
	my ($definition, $expected, $where) = @{ $indexes{$name} };

	($workers, $rc,
		$err) =
		build("SET max_parallel_maintenance_workers = 4;
		CREATE INDEX ${name}_idx ON items USING gpugraph $definition");
	is($rc, 0, "$name: built");
	is($workers, $expected, "$name: " . ($expected ? 'in parallel' : 'serially'));
	is($node->sql("SELECT rows FROM gpugraph_index_info('${name}_idx')"),
		$node->sql('SELECT count(*) FROM items WHERE ' . ($where // 'true')), "$name: all rows");
	$node->sql("SELECT gpugraph_check('${name}_idx', true); DROP INDEX ${name}_idx");
}

# a worker's error is the statement's, as it would be without workers
my $failing =
	'CREATE INDEX failing_idx ON items
	USING gpugraph ((failing(val, id)::vector(64)) vector_l2_ops)';
for my $n (0, 4)
{
	($rc, my $out, $err) = $node->psql('postgres',
		"\\set VERBOSITY verbose\nSET max_parallel_maintenance_workers = $n; $failing");
	like($err, qr/ERROR:  22023: row \d+ is wrong/, "$n workers: an error in the scan");
	ok_in_time(\&no_workers_left, "$n workers: and none is left after it");
}

# wide vectors out of line
$node->sql(<<'SQL');
CREATE TABLE wide (id int, val vector(1500));
ALTER TABLE wide ALTER val SET STORAGE EXTERNAL;
INSERT INTO wide SELECT g,
	(SELECT array_agg(sin(g * 0.37 * d) + cos(g * d))
	FROM generate_series(1, 1500) d)::real[]::vector FROM generate_series(1, 1500) g;
SQL
is((build("SET min_parallel_table_scan_size = '2MB'; SET max_parallel_maintenance_workers = 3;
	CREATE INDEX wide_idx ON wide USING gpugraph (val vector_cosine_ops)"))[0], 3,
	'wide vectors: the TOAST table counts for the number of workers');
is($node->sql("SELECT gpugraph_check('wide_idx', true);
	SELECT nodes, rows FROM gpugraph_index_info('wide_idx')"), "\n1500|1500",
	'wide vectors: all there');
$node->sql('DROP INDEX wide_idx; ALTER TABLE wide ALTER val TYPE halfvec(1500)');
is((build('SET max_parallel_maintenance_workers = 3;
	CREATE INDEX half_idx ON wide USING gpugraph (val halfvec_l2_ops)'))[0], 3, 'halfvec');
is($node->sql(
	"SELECT gpugraph_check('half_idx', true); SELECT rows FROM gpugraph_index_info('half_idx')"),
	"\n1500", 'halfvec: all there');

# memory for a part of the table only: segment after segment, each by all processes
$node->sql('DROP TABLE queries');
$node->sql("SELECT make_data('large', 2000, 32, 40);
	INSERT INTO large SELECT 2000 + row_number() OVER (), a.cat, a.big, a.val + b.val
	FROM large a, large b WHERE b.id <= 34;
	SELECT make_queries('large', 30)");
($workers, $rc, $err) = build("SET gpugraph.engine = cpu; SET maintenance_work_mem = '2MB';
	SET temp_file_limit = '8MB';
	SET max_parallel_maintenance_workers = 3;
	CREATE INDEX large_idx ON large USING gpugraph (val vector_l2_ops)");
is($workers, 3, 'little memory: in parallel');
like($err, qr/NOTICE:  gpugraph index no longer fits into maintenance_work_mem after \d+ rows/,
	'little memory: announced');
cmp_ok($node->sql("SELECT segments FROM gpugraph_index_info('large_idx')"), '>',
	1, 'little memory: several segments');
index_is_complete($node, 'little memory', 'large');
cmp_ok($node->sql("SELECT recall('large', '<->')"), '>=', 0.99, 'little memory: recall');

# unlogged: no WAL worth the name; temporary: by one process
my $before = $node->sql(
	'CREATE UNLOGGED TABLE unlogged AS SELECT * FROM items; SELECT pg_current_wal_insert_lsn()');
is((build('SET max_parallel_maintenance_workers = 2;
	CREATE INDEX unlogged_idx ON unlogged USING gpugraph (val vector_l2_ops)'))[0], 2,
	'unlogged: in parallel');
cmp_ok($node->sql("SELECT pg_current_wal_insert_lsn() - '$before'::pg_lsn"), '<',
	200000, 'unlogged: hardly any WAL');
index_is_complete($node, 'unlogged', 'unlogged');
is($node->sql(<<'SQL'), "\n4000|ok", 'temporary: all rows');
CREATE TEMP TABLE passing AS SELECT id, val FROM items;
CREATE INDEX passing_idx ON passing USING gpugraph (val vector_l2_ops);
SELECT gpugraph_check('passing_idx', true);
SET client_min_messages = error;
SELECT rows,
	(SELECT CASE WHEN count(DISTINCT id) = 4000 THEN 'ok' END
	FROM (SELECT id FROM passing ORDER BY val <-> (SELECT val FROM items LIMIT 1)) s)
	FROM gpugraph_index_info('passing_idx');
SQL

# in a function, whose memory goes otherwise when it fails
($rc, my $out, $err) = $node->psql('postgres', <<SQL);
SET max_parallel_maintenance_workers = 3;
DO \$\$
BEGIN
	$failing;
EXCEPTION WHEN invalid_parameter_value THEN
	RAISE NOTICE 'caught';
	CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
END \$\$;
SQL
like($err, qr/caught/, 'in a function: the error can be caught');
is($rc, 0, 'in a function: and another build follows');
index_is_complete($node, 'in a function');

# whatever kind of shared memory PostgreSQL uses for itself
for my $setting ([ dynamic_shared_memory_type => 'mmap' ], [ dynamic_shared_memory_type => 'sysv' ],
	[ min_dynamic_shared_memory => '16MB' ])
{
	my ($name, $value) = @$setting;

	$node->sql("ALTER SYSTEM SET $name = '$value'");
	$node->restart;
	is((build('SET max_parallel_maintenance_workers = 4; REINDEX INDEX items_idx'))[0], 4,
		"$name = $value: in parallel");
	index_is_complete($node, "$name = $value");
	$node->sql("ALTER SYSTEM RESET $name");
}

# a wildly wrong estimate
$node->sql("UPDATE pg_class SET reltuples = 1e12, relpages = pg_relation_size(oid) / 8192
	WHERE relname = 'items'");
for my $n (0, 4)
{
	is((build("SET max_parallel_maintenance_workers = $n; REINDEX INDEX items_idx"))[1], 0,
		"$n workers, far fewer rows than expected: built");
	index_is_complete($node, "$n workers, far fewer rows than expected");
}

finish_test($node);
