# VACUUM that gives back a segment without rows asks a worker to build the other one without its
# dead rows, though what it gave back cannot be used again yet.
use Gpugraph;
use Merging;

my $node = merging_node('asks', conf => 'gpugraph.merge_workers = 0');

$node->sql(<<'SQL');
CREATE TABLE items (id int, val vector(8)) WITH (vacuum_truncate = off);
CREATE FUNCTION fill(a int, b int) RETURNS SETOF items LANGUAGE sql AS $$
	SELECT i, (SELECT array_agg(sin(i * j + i % 17))::real[]::vector(8)
		FROM generate_series(1, 8) j) FROM generate_series(a, b) i
$$;
INSERT INTO items SELECT * FROM fill(1, 10000);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 500);
INSERT INTO items SELECT * FROM fill(10001, 12000);
VACUUM items;
SQL
is(merge_info($node, 'segments'), 2, 'a large segment and a small one');
reload_with($node, 'gpugraph.merge_workers = 1');
$node->sql('DELETE FROM items WHERE id > 10000 OR id % 3 = 0');
$node->sql('VACUUM (FREEZE) items');
ok_in_time(sub { merge_info($node, 'dead_rows') < 500 },
	'the dead rows of the large segment are left out');

finish_test($node);
