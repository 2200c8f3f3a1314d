# Rows go to the device while the heap is scanned, and the graph is built from there: whatever the
# rows are, and however their number was estimated, the index is the same to its users. The CPU
# plays the device, or a GPU is it.
use Gpugraph;
use Residency;

my $played = ($ENV{GG_SERVICE_ENGINE} || 'cpu') eq 'cpu';
my $node = service_node('device',
	conf => "max_parallel_maintenance_workers = 3\nmin_parallel_table_scan_size = 0\n");

$node->sql(<<'SQL');
-- The payload of every page but the metapage, without header and stamp; from the file, since builds
-- write past shared buffers.
CREATE FUNCTION contents(index text) RETURNS TABLE (block bigint, bytes bytea) LANGUAGE sql AS $$
	SELECT block, substr(page, 25, get_byte(page, 12) + 256 * get_byte(page, 13) - 24)
	FROM current_setting('block_size') s,
	generate_series(1, pg_relation_size(index) / s::int - 1) block,
		pg_read_binary_file(pg_relation_filepath(index), block * s::int, s::int) page
$$;
-- how many words differ between two indexes, per 1000 edges
CREATE FUNCTION difference(one text, other text) RETURNS numeric LANGUAGE sql AS $$
	SELECT round(1000.0
	* count(*) FILTER (WHERE substr(a.bytes, w, 4) IS DISTINCT FROM substr(b.bytes, w, 4))
	/ (32 * (gpugraph_index_info(one)).nodes), 1)
	FROM contents(one) a FULL JOIN contents(other) b
	USING (block), generate_series(1, greatest(length(a.bytes), length(b.bytes)), 4) w
	WHERE a.bytes IS DISTINCT FROM b.bytes
$$;
SQL

# Build, and return what was said.
sub build
{
	my ($what, $sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "SET client_min_messages = debug1; $sql");

	is($rc, 0, "$what: built") or diag $err;
	like($err, qr/gpugraph heap scan: 3 workers/, "$what: by several processes");
	is($node->sql("SELECT copy_seconds > 0 FROM gpugraph_index_info('items_idx')"), 't',
		"$what: from the device") if $played;
	unlike($err, qr/rows are (?:not copied|copied again)/, "$what: nothing failed");
	index_is_complete($node, $what);
	cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, "$what: recall");
	$node->sql('DROP INDEX items_idx');

	# One process finds rows in one order, and with a predicate nothing is copied during the scan.
	# Both builds make the same graph, but for near ties, which threads settle as they come.
	(my $other = $sql) =~ s/items_idx/other_idx/;
	my $difference = $node->sql("SET max_parallel_workers = 0; $sql; $other WHERE id > 0;
		RESET temp_file_limit;
		SELECT difference('items_idx', 'other_idx'); DROP INDEX items_idx, other_idx");
	cmp_ok($difference, '<=', 5, "$what: the graph of the rows");
	return $err;
}

my $create = 'CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)';

# a chunk has 170 of these rows
$node->sql("SELECT make_data('items', 1900, 1536, 40); SELECT make_queries('items', 30);
	VACUUM ANALYZE items");
build('rows', $create);
build('float16', "$create WITH (storage = float16)");
build('concurrently',
	'CREATE INDEX CONCURRENTLY items_idx ON items USING gpugraph (val vector_l2_ops)');
build('by tsdg', "$create WITH (algorithm = tsdg)");
build('by grnnd', "$create WITH (algorithm = grnnd)");

# ---- estimates: of far too few rows, of far too many, and of a segment's only
$node->sql("UPDATE pg_class SET reltuples = 50 WHERE oid = 'items'::regclass");
build('fifty rows expected', $create);
$node->sql("UPDATE pg_class SET reltuples = 10000000 WHERE oid = 'items'::regclass");
build('ten million expected', $create);
$node->sql('ANALYZE items');
# rows for more than 64 MB: sums are made faster than rows
$node->sql('INSERT INTO items
	SELECT 10000 + row_number() OVER (), a.cat, a.big, a.val + b.val FROM items a, items b
	WHERE a.id <= 1000 AND b.id <= 10; ANALYZE items');
my $err = build('segments',
	"SET maintenance_work_mem = '4MB'; SET temp_file_limit = '8MB'; $create");
like($err, qr/11900 rows in (?:[2-9]|1\d) segments/, 'more than one segment');
$node->sql('DELETE FROM items WHERE id > 10000');

# ---- rows that are not there: the index has far fewer than the table
$node->sql('UPDATE items SET val = NULL WHERE id % 4 <> 0; VACUUM FULL ANALYZE items');
build('NULLs', $create);

# ---- equal rows: those behind the first copy are not where they were
$node->sql(
	'UPDATE items i SET val = j.val FROM items j WHERE j.id = 4 * (1 + i.id % 400) AND i.id % 3 = 0;
	VACUUM FULL ANALYZE items');
build('equal rows', $create);

# ---- a predicate: how many rows it lets through is not known, so nothing is copied before
($err) = error_of($node, "SET client_min_messages = debug1; $create WHERE id % 2 = 0");
like($err, qr/gpugraph build of "items_idx".*device opened in 0\.000 s, copy 0\.000 s/,
	'a predicate') if $played;
$node->sql('DROP INDEX items_idx');

# ---- builds that fail or are cut off leave no thread, and the next one is as good
$node->sql('CREATE FUNCTION sour(id int, val vector) RETURNS vector(1536)
	IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql AS
	$$ BEGIN IF id >= 1850 THEN RAISE division_by_zero; END IF; RETURN val; END $$');
my $left = $node->sql(<<'SQL');
CREATE FUNCTION threads() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*)
	FROM pg_ls_dir('/proc/self/task') $$;
CREATE TABLE ends (what text, threads bigint);
SELECT threads() AS before \gset
DO $$
BEGIN
	FOR i IN 1 .. 5 LOOP
		BEGIN
			CREATE INDEX sour_idx ON items
				USING gpugraph ((sour(id, val)::vector(1536)) vector_l2_ops);
		EXCEPTION WHEN division_by_zero THEN
			INSERT INTO ends VALUES ('error', threads());
		END;
	END LOOP;
END $$;
SELECT count(*) || ' ' || count(DISTINCT threads) || ' ' || (max(threads) <= :before) FROM ends;
SQL
# a driver keeps threads of its own
like($left, $played ? qr/^5 1 true$/ : qr/^5 1 /, 'five errors in one session: no thread is left');
for my $ms (1, 3, 10, 30, 60, 100)
{
	my ($rc, $out, $said) = $node->psql('postgres', "SET statement_timeout = $ms; $create");

	ok($rc == 0 || $said =~ /statement timeout/, "$ms ms");
	$node->sql('DROP INDEX IF EXISTS items_idx');
}
build('after all that', $create);

finish_test($node);
