# The bug: pages of a build go past shared buffers. While CREATE INDEX CONCURRENTLY runs, others can
# open the index; what they read of blocks not written yet stayed in shared buffers as empty pages,
# and everybody was told that the new index is corrupt.
# The fix: a concurrent build ends with removing what shared buffers have of the index, and
# gpugraph_index_info() says that it is not ready.
use Gpugraph;

my $node = new_node('watched');
$node->sql(<<'SQL');
CREATE EXTENSION pg_prewarm;
CREATE FUNCTION held(id int, val vector) RETURNS vector IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
	IF id = 68000 THEN
		PERFORM pg_advisory_xact_lock_shared(7);
	END IF;
	RETURN val;
END $$;
SELECT make_data('items', 1000, 64, 40);
INSERT INTO items SELECT 1000 + row_number() OVER (), a.cat, a.big, a.val + b.val
	FROM items a, items b WHERE b.id <= 69;
SQL

# Stop the build at row 68000, when it has written some segments and the relation is longer than
# what is written.
sub watched
{
	my ($statement, $index) = @_;
	my $holder = rest_after($node, 'SELECT pg_advisory_lock(7)');
	my $session = start_psql($node, 'SET gpugraph.engine = cpu',
		"SET maintenance_work_mem = '1MB'", "SET temp_file_limit = '8MB'", $statement);
	ok_in_time(sub { $node->sql("SELECT count(*) FROM pg_locks
		WHERE locktype = 'advisory' AND NOT granted") > 0 }, "$statement: under way");

	cmp_ok($node->sql("SELECT pg_prewarm('$index', 'buffer')"), '>', 100,
		"$statement: its blocks are read meanwhile");
	like(error_of($node, "SELECT * FROM gpugraph_index_info('$index')"),
		qr/index "$index" is not ready/, "$statement: no info yet");

	end_rest($holder);
	unlike(finish_psql($session), qr/ERROR/, "$statement: done");
	is(error_of($node, "SELECT gpugraph_check('items_idx', true)"), '',
		"$statement: the index is sound");
	is($node->sql("SET enable_seqscan = off; SELECT count(*) FROM
			(SELECT id FROM items
				ORDER BY held(id, val)::vector(64) <-> (SELECT val FROM items LIMIT 1)) s"),
		70000, "$statement: every row is found");
	return;
}

watched('CREATE INDEX CONCURRENTLY items_idx ON items
	USING gpugraph ((held(id, val)::vector(64)) vector_l2_ops)', 'items_idx');
watched('REINDEX INDEX CONCURRENTLY items_idx', 'items_idx_ccnew');

finish_test($node);
