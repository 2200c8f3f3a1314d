# The directory has room for a limited number of extents. Inserts, deletes and VACUUM in ever other
# amounts, which give back parts of the delta and use them again, never fill it, and the index does
# not grow.
use Gpugraph;

my $node = new_node('extents');
$node->sql(<<'SQL');
CREATE TABLE items (id int, val vector(500));
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
CREATE TABLE others (id int);
CREATE FUNCTION wide(i int) RETURNS vector LANGUAGE sql AS
	$$ SELECT array_agg(((i * 31 + d * 17) % 101)::real)::vector FROM generate_series(1, 500) d $$;
SQL

sub cycles
{
	my ($from, $to) = @_;
	my $sql = '';

	for my $i ($from .. $to)
	{
		my $rows = 1 + $i * 7 % 23;
		my $kept = $i * 100 - 100 * ($i % 3);

		$sql .=
			"INSERT INTO items SELECT $i * 100 + n, wide($i * 100 + n)
			FROM generate_series(1, $rows) n;\n";
		$sql .= "DELETE FROM items WHERE id < $kept;\nVACUUM items;\n";
	}
	return $node->psql('postgres', $sql);
}

my ($rc, $out, $err) = cycles(1, 400);
is("$rc $err", '0 ', '400 cycles of insert, delete and VACUUM');
index_is_complete($node, '400 cycles');
cmp_ok($node->sql("SELECT total_bytes / 8192 FROM gpugraph_index_info('items_idx')"), '<=', 40,
	'blocks are used again');

# Blocks that an old snapshot forbids to use again: rows of aborted transactions are dead at once,
# so that each VACUUM gives back some more of them.
$node->sql('DELETE FROM items');
my $old = rest_after($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1');
my $sql = '';
for my $i (1 .. 350)
{
	$sql .=
		"BEGIN;\nINSERT INTO items SELECT $i, wide($i * 100 + n)
		FROM generate_series(1, 12) n;\nROLLBACK;\nVACUUM items;\n";
}
($rc, $out, $err) = $node->psql('postgres', $sql);
is("$rc $err", '0 ', '350 cycles of aborted inserts and VACUUM under an old snapshot');
end_rest($old);
($rc, $out, $err) = $node->psql('postgres',
	'INSERT INTO items SELECT n, wide(n) FROM generate_series(1, 500) n');
is("$rc $err", '0 ', 'inserts go on when it is gone');
index_is_complete($node, 'old snapshot gone');

finish_test($node);
