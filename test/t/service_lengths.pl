# A longer list of a device does not find less.  Of a small index it measures all rows in less time
# than a walk takes: LIMIT decides that, whatever gpugraph.itopk_size is.
use strict;
use warnings;

use Test::More;

use Gpugraph;
use Residency;

my $node = service_node('lengths', conf => "gpugraph.merge_workers = 0\n");

# of little structure, and with a lean graph, so that short walks find half of what there is
unserved {
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE items AS SELECT i AS id, array_agg(random())::vector(32) AS val
	FROM generate_series(1, 8000) i, generate_series(1, 32) GROUP BY i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 6, intermediate_graph_degree = 12);
ANALYZE items;
SQL
};
$node->safe_psql('postgres', "SELECT gpugraph_prewarm('items_idx')");

# recall by length
my @recalls = split / /, $node->safe_psql('postgres', <<'SQL');
SELECT string_agg(round(recall::numeric, 4)::text, ' ' ORDER BY itopk_size)
	FROM gpugraph_recall('items_idx', 10, 100) WHERE itopk_size <= 128;
SQL
note("lists of 16, 32, 64 and 128: @recalls");
is(scalar(@recalls), 4, 'four lengths');
is(scalar(grep { $recalls[$_] < $recalls[$_ - 1] } 1 .. $#recalls), 0,
	'no longer list finds less than a shorter one');
cmp_ok($recalls[0], '>=', 0.98, 'LIMIT 10: rows are measured');

# the length from which on lists suffice
is($node->safe_psql('postgres', "SELECT gpugraph_itopk_size('items_idx', 10, 0.98, 100)"), 16,
	'gpugraph_itopk_size() says that the shortest one does');

# who answers, and how: exact lists
sub lists_of
{
	my ($settings, $limit) = @_;

	return $node->safe_psql('postgres', "SET enable_seqscan = off; $settings
		DO \$\$ BEGIN PERFORM id FROM items ORDER BY val <-> (SELECT val FROM items
			WHERE id = 7) LIMIT $limit; END \$\$;
		SELECT engine, exact_lists FROM gpugraph_last_scan()");
}

foreach my $itopk (16, 64, 128)
{
	is(lists_of("SET gpugraph.itopk_size = $itopk;", 10), 'gpu|1',
		"itopk_size $itopk: the device measures all rows");
}
is(lists_of('SET gpugraph.search_mode = single_cta;', 10), 'gpu|0',
	'but for a procedure that is named it walks');

$node->stop;
done_testing();
