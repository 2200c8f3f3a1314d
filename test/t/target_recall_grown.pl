# A fifth of other rows comes, and queries change with them: the merge worker merges the rows, and
# measures recall anew, without a command.  A target is reached before and afterwards, by rows as
# queries and by a sample of queries.
use Gpugraph;
use Merging;

my $node = merging_node('grown', conf => "gpugraph.learn_naptime = 1s\n");

# of little structure, and with lean graphs, so that the shortest list does not suffice; those that
# come are harder to answer
$node->safe_psql('postgres', <<'SQL');
SELECT make_data('easy', 6000, 24, 4);
SELECT make_data('hard', 4800, 24, 1);
CREATE TABLE items AS SELECT * FROM easy WHERE id <= 1500;
CREATE TABLE asked AS SELECT * FROM items;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 6, intermediate_graph_degree = 12, seal_rows = 200);
CREATE INDEX asked_idx ON asked USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 6, intermediate_graph_degree = 12, seal_rows = 200, learn_queries = on);
CREATE TABLE queries AS SELECT id AS q, val FROM easy WHERE id > 5700;
SQL

# the recall of these queries under a target, and the list that the last one has taken
sub kept
{
	my ($rel) = @_;

	return split /\n/, $node->safe_psql('postgres',
		"SET gpugraph.target_recall = .95; SELECT recall('$rel', '<->', 10); SELECT list()");
}

sub measured
{
	my ($rel) = @_;

	return $node->safe_psql('postgres', "SELECT recall_by || ' ' || recall_measured
		FROM gpugraph_indexes WHERE indexname = '${rel}_idx'");
}
my $t0 = time;
sub reach
{
	my ($rel, $by, $before, $what) = @_;
	ok(defined wait_for(sub {
			my $now = measured($rel);
			return $now =~ /^$by/ && $now ne $before; }), "$rel, $what: measured by $by");
	note(time - $t0, ' s');
	my ($recall, $list) = kept($rel);
	note(time - $t0, " s: recall $recall, list $list");
	cmp_ok($recall, '>=', .93, "$rel, $what: the target is reached");
	cmp_ok($list, '>', 16, "$rel, $what: the shortest list does not suffice");
	return $list;
}
kept('items');
$node->safe_psql('postgres', "SET enable_seqscan = off; SELECT FROM easy e, LATERAL (SELECT FROM asked a
   ORDER BY a.val <-> e.val LIMIT 1) s WHERE e.id BETWEEN 1501 AND 5600");
note(time - $t0, ' s: asked');
kept('asked');
my $list1 = reach('items', 'rows', '', 'built');
my $list2 = reach('asked', 'queries', '', 'built');
finish_test($node);
