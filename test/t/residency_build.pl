# The process that builds an index gives it to the GPU service: the first query finds it on the
# device, and nothing is read back. A build that is rolled back leaves nothing there.
use Gpugraph;
use Residency;
use Time::HiRes qw(time);

my $node = service_node('build',
	conf => "max_parallel_maintenance_workers = 2\nmin_parallel_table_scan_size = 64kB\n");

# ---- CREATE INDEX
make_items($node, 5000, 16);
is(state_of($node), 'ready', 'after CREATE INDEX the index is on the device');
truth_by_device($node, 'the first queries');
is(of_device($node, "loads || ' ' || failed_loads"), '1 0', 'no other load was needed');

# ---- rows that come later
$node->sql('INSERT INTO items SELECT id + 100000, cat, big, val FROM items LIMIT 100');
truth_by_device($node, 'after an insert');
index_is_complete($node, 'after an insert');

# ---- REINDEX: another file, handed over as well
$node->sql('REINDEX INDEX items_idx');
is(wait_for_state($node, 'ready'), 'ready', 'after REINDEX');
truth_by_device($node, 'after REINDEX');
$node->sql('REINDEX INDEX CONCURRENTLY items_idx');
is(wait_for_state($node, 'ready'), 'ready', 'after REINDEX CONCURRENTLY');
truth_by_device($node, 'after REINDEX CONCURRENTLY');

# ---- storage, operator classes and copies of rows
$node->sql(<<'SQL');
CREATE TABLE twins AS SELECT id, cat, big, val FROM items
	UNION ALL SELECT id + 200000, cat, big, val FROM items;
CREATE INDEX twins_idx ON twins USING gpugraph (val vector_l2_ops);
CREATE TABLE halves AS SELECT * FROM items;
CREATE INDEX halves_idx ON halves USING gpugraph (val vector_l2_ops) WITH (storage = float16);
SQL
for my $rel (qw(twins halves))
{
	is(state_of($node, "${rel}_idx"), 'ready', "$rel: on the device");
	truth_by_device($node, $rel, $rel);
	index_is_complete($node, $rel, $rel);
}

# ---- a transaction that comes to nothing
ok_in_time(sub { of_device($node, 'resident_indexes') == 3 }, 'what REINDEX replaced is gone');
my $bytes = of_device($node, 'resident_bytes');
for my $end ('ROLLBACK', 'SELECT 1 / 0')
{
	$node->psql('postgres',
		"BEGIN; CREATE INDEX other_idx ON items USING gpugraph (val vector_ip_ops); $end");
	ok_in_time(sub { of_device($node, 'resident_bytes') == $bytes },
		"$end: the device has its memory back");
}
$node->psql('postgres',
	'BEGIN; SAVEPOINT s; CREATE INDEX other_idx ON items USING gpugraph (val vector_ip_ops);
	ROLLBACK TO s; COMMIT');
ok_in_time(sub { of_device($node, 'resident_bytes') == $bytes }, 'ROLLBACK TO: the same');

# ---- or that is cut off while the index is handed over and written
my $start = time;
$node->sql('BEGIN; CREATE INDEX other_idx ON twins USING gpugraph (val vector_ip_ops); ROLLBACK');
my $whole = time - $start;
my $cut = 0;
for my $step (1 .. 24)
{
	my $ms = int(1000 * $whole * $step / 24) || 1;
	my ($rc, $out, $err) = $node->psql('postgres',
		"SET statement_timeout = $ms;
		CREATE INDEX other_idx ON twins USING gpugraph (val vector_ip_ops)");

	$cut++ if $err =~ /statement timeout/;
	$node->sql('DROP INDEX other_idx') if $rc == 0;
}
cmp_ok($cut, '>', 0, "$cut of 24 builds were cut off");
ok_in_time(sub { of_device($node, 'resident_bytes') == $bytes }, 'cut off: the same');
truth_by_device($node, 'after that');

# ---- within the transaction the session searches what it made by itself
is( $node->sql(<<'SQL'), "10\n0", 'an index made by this transaction is searched on the CPU');
BEGIN;
CREATE INDEX other_idx ON halves USING gpugraph (val vector_l1_ops);
SET LOCAL enable_seqscan = off;
SELECT count(*)
	FROM (SELECT id FROM halves ORDER BY val <+> (SELECT val FROM halves LIMIT 1) LIMIT 10) s;
SELECT coalesce(sum(queries_gpu), 0) FROM gpugraph_stat_index WHERE relid = 'other_idx'::regclass;
COMMIT;
SQL

# ---- faults: the index is as good without the device
for my $fault (qw(device_memory load))
{
	is(($node->psql('postgres',
		"SET gpugraph.fault = $fault;
		CREATE INDEX ${fault}_idx ON twins USING gpugraph (val vector_cosine_ops)"))[0],
		0, "fault $fault: CREATE INDEX succeeds");
	is($node->sql("SELECT gpugraph_check('${fault}_idx', true)"), '',
		"fault $fault: the index is sound");
}

# ---- so many bytes that they are written, handed over and given back in several pieces
$node->sql(<<'SQL');
DROP TABLE queries;
SELECT make_data('wide', 4000, 1000, 40);
SELECT make_queries('wide', 20);
SQL
for my $workers (0, 1, 4)
{
	$node->sql("SET max_parallel_maintenance_workers = $workers;
		CREATE INDEX wide_idx ON wide USING gpugraph (val vector_l2_ops)");
	is(state_of($node, 'wide_idx'), 'ready', "in pieces, $workers workers: on the device");
	truth_by_device($node, "in pieces, $workers workers", 'wide');
	index_is_complete($node, "in pieces, $workers workers", 'wide');
	$node->sql('DROP INDEX wide_idx');
}

# ---- of a device without room for both, the copy that REINDEX replaces makes room, though it was
# loaded only just now, and nothing else does
$node->sql('CREATE INDEX wide_idx ON wide USING gpugraph (val vector_l2_ops)');
leave_room($node, 'wide_idx', int(of_index($node, 'bytes', 'wide_idx') * 1.5 / 1048576));
$node->sql("SELECT gpugraph_prewarm('items_idx')");
$node->sql("SET gpugraph.fault = load_stall; SELECT gpugraph_prewarm('wide_idx')");
$node->sql('REINDEX INDEX wide_idx');
is(state_of($node, 'wide_idx'), 'ready', 'REINDEX has the room of the copy that it replaces');
is(state_of($node), 'ready', 'and no other index gave way');
truth_by_device($node, 'after REINDEX', 'wide');

finish_test($node);
