# A merge uses free blocks however many entries the directory has.
#
# The bug: from half of the entries on, free blocks were left to inserts, and all that merges wrote
# made the index longer. Of one 57% was free, and it grew by 2.2 GB.
#
# The fix: blocks of a free extent cost no more entries than those at the end.
use Gpugraph;
use Format;

use constant PARTS => 560;

my $node = new_node('crowded');
my $rows = 'SELECT i, vec(i)::vector(200) FROM generate_series';

$node->sql(<<"SQL");
CREATE FUNCTION vec(i int) RETURNS vector LANGUAGE sql AS \$\$
	SELECT array_agg(sin(i * 13 + d * d))::vector FROM generate_series(1, 200) d \$\$;
CREATE TABLE items (id int, val vector(200)) WITH (autovacuum_enabled = off);
INSERT INTO items $rows(1, 6000) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 16, intermediate_graph_degree = 16, seal_rows = 0);
INSERT INTO items $rows(10001, 20000) i;
DELETE FROM items WHERE id > 10000;
VACUUM (FREEZE) items;
SQL

# the vectors in many extents
my $file = index_file($node, 'items_idx');
$node->stop;
my $end = (-s $file) / PAGE;
my @all = split_extent($file, VECTORS, PARTS);
write_extents($file, [ @all, [ $end, 2, NO_SEGMENT, DIRECTORY, 0 ] ], $end .. $end + 1);
$node->start;

sub info
{
	my ($field) = @_;

	return $node->sql("SELECT $field FROM gpugraph_index_info('items_idx')");
}

cmp_ok(scalar @all, '>', 512, 'more than half of the entries are in use');
$node->sql("INSERT INTO items $rows(30001, 31000) i");
cmp_ok(info('free_bytes / 8192'), '>', 850, 'enough blocks are free');
my $before = info('total_bytes / 8192');
is($node->sql("SELECT gpugraph_merge('items_idx')"), 't', 'a merge');
cmp_ok(info('delta_rows'), '<=', 10, 'of all rows but those on the last page');
cmp_ok(info('total_bytes / 8192'), '<=', $before, 'the index does not grow');
index_is_complete($node, 'merged');

finish_test($node);
