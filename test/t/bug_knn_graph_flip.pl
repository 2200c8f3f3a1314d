# The bug: neighbours of other rows, or a crash. gpugraph_knn_graph() asks a device about the nodes
# of one segment, by the segment's place in the directory. Where the resident was replaced
# meanwhile, it asked again by a newer directory, and read the nodes at the same place of that one.
use Gpugraph;
use Residency;

my $node = service_node('knn_graph_flip', conf => "gpugraph.merge_workers = 0\n");

# four segments, of which the first has no live row
unserved {
	$node->sql(<<'SQL');
SELECT make_data('items', 4000, 16, 40);
SET max_parallel_maintenance_workers = 0;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (seal_rows = 0, segment_rows = 1000);
DELETE FROM items WHERE ctid IN (SELECT ctid FROM items ORDER BY ctid LIMIT 1000);
CREATE TABLE found (who tid, neighbor tid, distance float8);
SQL
};
my $segments = "SELECT segments FROM gpugraph_index_info('items_idx')";
is($node->sql($segments), 4, 'four segments');
$node->sql("SELECT gpugraph_prewarm('items_idx')");

# It has read the second segment, and rests before it asks the device about the third.
my $holder = hold_at($node, 'post');
my $session = start_psql($node, <<'SQL');
DO $$
DECLARE
	edge record;
	n int := 0;
BEGIN
	FOR edge IN SELECT (e).* FROM (SELECT gpugraph_knn_graph('items_idx', 5) AS e OFFSET 0) s LOOP
		INSERT INTO found VALUES (edge.tid, edge.neighbor, edge.distance);
		n := n + 1;
		-- FOR reads some rows ahead
		IF n = 4900 THEN
			SET gpugraph.fault = hold_post;
		ELSIF n = 5100 THEN
			SET gpugraph.fault = none;
		END IF;
	END LOOP;
END $$;
SQL
ok(rests_at($node, 'post'), 'it rests');
$node->sql('VACUUM (FREEZE) items');
is($node->sql($segments), 3, 'VACUUM has removed a segment');
# as many lists as before, so that it asks again
$node->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id % 2 = 0');
$node->sql("SELECT gpugraph_evict('items_idx'); SELECT gpugraph_prewarm('items_idx')");
finish_psql($holder);
is(finish_psql($session), '', 'it has gone on to the end');

is($node->sql(<<'SQL'), '15000|3000|0', 'no edge is wrong');
SELECT count(*), count(DISTINCT who),
	count(*) FILTER (WHERE abs(distance - (a.val <-> b.val)) < 1e-4 * (1 + distance)) - count(*)
	FROM found LEFT JOIN items a ON a.ctid = who LEFT JOIN items b ON b.ctid = neighbor;
SQL

finish_test($node);
