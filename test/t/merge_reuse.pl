# What merges free is used again by the next merge of the same worker, though that takes no snapshot
# in between: an index of which half is deleted and inserted again, over and over, keeps its size.
use Gpugraph;
use Merging;

my $node = merging_node('reuse');
$node->sql(<<'SQL');
SELECT setseed(0.5);
CREATE TABLE items (id int, val vector(64)) WITH (vacuum_truncate = off);
CREATE FUNCTION fill(part int) RETURNS SETOF items LANGUAGE sql VOLATILE AS
$$
	-- i > 0 is always true.  It makes the inner query run for each row, and not once for all.
	SELECT i, (SELECT array_agg(random()) FROM generate_series(1, 64) WHERE i > 0)::vector
		FROM generate_series(1, 10000) i WHERE part < 0 OR (i >> part) & 1 = 1
$$;
INSERT INTO items SELECT * FROM fill(-1);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 250);
SQL
my $fresh = merge_info($node, 'total_bytes');
my @sizes;
for my $cycle (1 .. 5)
{
	my $part = $cycle % 8;

	# before VACUUM, since its snapshot would keep a worker from compacting
	$node->sql("CREATE TABLE more AS SELECT * FROM fill($part)");
	$node->sql("DELETE FROM items WHERE (id >> $part) & 1 = 1");
	$node->sql('VACUUM (FREEZE) items');
	ok_in_time(sub { merge_info($node, 'dead_rows') <= 1000 }, "cycle $cycle: dead rows are gone");
	# each time the worker has done with it, so that the size does not depend on its speed
	my $merged = grep {
		my $i = $_;

		$node->sql("INSERT INTO items SELECT * FROM more WHERE id % 8 = $i");
		defined wait_for(sub { merge_info($node, 'delta_rows') < 500 });
	} 0 .. 7;
	is($merged, 8, "cycle $cycle: new rows are merged");
	$node->sql('DROP TABLE more');
	push @sizes, sprintf '%.2f', merge_info($node, 'total_bytes') / $fresh;
}
note "sizes over the fresh index's: @sizes";
cmp_ok($sizes[-1], '<=', 2, 'half deleted and inserted again five times: size over a fresh index');
my ($rc, $out, $err) = $node->psql('postgres', "SELECT gpugraph_check('items_idx', true)");
is("$rc $err", '0 ', 'the index is sound');

finish_test($node);
