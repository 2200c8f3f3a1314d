# A fifth of other rows comes, and queries change with them: the merge worker merges the rows,
# measures recall anew, and the target is reached again, without a command.  Of one index rows are
# the queries that recall is measured by, and of the other one a sample.
use Gpugraph;
use Merging;

my $node = merging_node('grown',
	conf => "gpugraph.learn_naptime = 1s\ngpugraph.merge_workers = 2\n");

# What comes is harder to search: the first rows have 5 dimensions to speak of, and later ones 32.
$node->sql(<<'SQL');
SELECT make_data('easy', 5000, 32, 1);
UPDATE easy SET val = (SELECT array_agg(x * CASE WHEN d <= 5 THEN 1 ELSE .03 END ORDER BY d)
	FROM unnest(val::real[]) WITH ORDINALITY u(x, d))::vector;
SELECT make_data('hard', 2000, 32, 1);
CREATE TABLE items AS SELECT * FROM easy WHERE id <= 1500;
CREATE TABLE sampled AS SELECT * FROM items;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 6, intermediate_graph_degree = 12, seal_rows = 100);
CREATE INDEX sampled_idx ON sampled USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 6, intermediate_graph_degree = 12, seal_rows = 100, learn_queries = on);
CREATE TABLE queries AS SELECT id AS q, val FROM easy WHERE id > 4760;
-- so many queries like these rows, by scans of the index
CREATE FUNCTION ask(rel text, first int, last int) RETURNS bigint LANGUAGE plpgsql
	SET enable_seqscan = off AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(i.id) FROM %I a, LATERAL (SELECT id FROM sampled i
		ORDER BY i.val <-> a.val LIMIT 1) i WHERE a.id BETWEEN $1 AND $2', rel) INTO n
		USING first, last;
	RETURN n;
END $$;
SQL

# by what recall was measured, and when
sub measured
{
	my ($rel) = @_;

	return $node->sql("SELECT concat_ws(' ', recall_by, recall_measured)
		FROM gpugraph_indexes WHERE indexname = '${rel}_idx'");
}

# The recall of LIMIT 10 under a target of .99, and the list that it takes.
sub found
{
	my ($rel) = @_;

	return split /\n/, $node->sql(
		"SET gpugraph.target_recall = .99; SELECT recall('$rel', '<->', 10); SELECT list()");
}

# Wait until recall, measured after it was $seen, is by rows or queries, and the target is reached
# by a list of $least at least.  The worker measures while nobody searches, so the index is searched
# after a measurement alone.  The recall of 240 queries has a standard deviation of .004 at .99, and
# the bar is five of these below.
sub reaches
{
	my ($rel, $by, $seen, $least, $what) = @_;
	my ($recall, $list);

	ok(defined wait_for(
			sub {
				my $now = measured($rel);

				return 0 if $now eq $seen || $now !~ /^$by/;
				$seen = $now;
				($recall, $list) = found($rel);
				note("$rel: recall $recall, list $list");
				return $recall >= .97 && $list >= $least;
			}, 400), "$what: the target is reached");
	return $list;
}

# the first scan with a target has recall measured
is((found('items'))[1], 64, 'nothing is known yet');
reaches('items', 'rows', '', 16, 'by rows');
ok_in_time(sub {
			$node->sql("SELECT ask('easy', 1, 4700)");
			return merge_info($node, 'sample_queries', 'sampled') > 3000; },
	'a sample of queries');
found('sampled');
reaches('sampled', 'queries', '', 16, 'by queries');

# rows come, and queries like them
my %seen = map { $_ => measured($_) } qw(items sampled);
$node->sql(<<'SQL');
INSERT INTO items SELECT id + 10000, cat, big, val FROM hard WHERE id <= 300;
INSERT INTO sampled SELECT id + 10000, cat, big, val FROM hard WHERE id <= 300;
INSERT INTO queries SELECT id + 10000, val FROM hard WHERE id > 1952;
SELECT ask('hard', 501, 1940);
SQL
reaches('items', 'rows', $seen{items}, 40, 'by rows, of other rows');
reaches('sampled', 'queries', $seen{sampled}, 40, 'by queries, of other rows');
index_is_complete($node, 'grown', $_) foreach qw(items sampled);
finish_test($node);
