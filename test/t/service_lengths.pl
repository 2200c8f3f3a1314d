# A longer list of a device does not find less.  Up to some hundred entries a walk of a small index
# is faster than measuring all of its rows, even where LIMIT takes a longer list than
# gpugraph.itopk_size, and beyond it an exact list takes its place.
use Gpugraph;
use Residency;

my $node = service_node('lengths', conf => "gpugraph.merge_workers = 0\n");

# of little structure, and with a lean graph, so that short walks find half of what there is
unserved {
	$node->sql(<<'SQL');
SELECT setseed(0.4);
CREATE TABLE items AS SELECT i AS id, array_agg(random())::vector(32) AS val
	FROM generate_series(1, 33000) i, generate_series(1, 32) GROUP BY i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 6, intermediate_graph_degree = 12);
ANALYZE items;
SQL
};
$node->sql("SELECT gpugraph_prewarm('items_idx')");

# recall by length; of 50 queries a list of 32 found now and then less than one of 16
my %recall = map { split /=/ } split / /, $node->sql(<<'SQL');
SELECT string_agg(itopk_size || '=' || round(recall::numeric, 4), ' ' ORDER BY itopk_size)
	FROM gpugraph_recall('items_idx', 10, 400);
SQL
my @lengths = sort { $a <=> $b } keys %recall;
note("recall: @{[map { \"$_ $recall{$_}\" } @lengths]}");
cmp_ok(scalar @lengths, '>=', 6, 'lengths');
is(scalar(grep { $recall{$lengths[$_]} < $recall{$lengths[$_ - 1]} } 1 .. $#lengths), 0,
	'no longer list finds less than a shorter one');
cmp_ok($recall{1024}, '==', 1, 'a list that long is exact');

# the length from which on lists suffice
my $needed = $node->sql("SELECT gpugraph_itopk_size('items_idx', 10, 0.6, 400)");
cmp_ok($needed, '>=', (grep { $recall{$_} < 0.6 } @lengths)[-1],
	'gpugraph_itopk_size() says one that all longer ones are as good as');
cmp_ok($needed, '<=', (grep { $recall{$_} >= 0.6 } @lengths)[0], '... and no more');

# who answers, and how: exact lists
sub lists_of
{
	my ($settings, $limit) = @_;

	return $node->sql("SET enable_seqscan = off; $settings
		DO \$\$ BEGIN PERFORM id FROM items ORDER BY val <-> (SELECT val FROM items
			WHERE id = 7) LIMIT $limit; END \$\$;
		SELECT engine, exact_lists FROM gpugraph_last_scan()");
}

foreach my $itopk (16, 32, 64, 256)
{
	is(lists_of("SET gpugraph.itopk_size = $itopk;", 10), 'gpu|0', "itopk_size $itopk: a walk");
}
is(lists_of('', 100), 'gpu|0', 'LIMIT 100: a walk with its list');
foreach my $itopk (16, 64, 640, 1024)
{
	is(lists_of("SET gpugraph.itopk_size = $itopk;", 300), 'gpu|1',
		"itopk_size $itopk and LIMIT 300: all rows are measured");
}
is(lists_of('SET gpugraph.itopk_size = 1024; SET gpugraph.search_mode = single_cta;', 10),
	'gpu|0', 'a procedure that is named walks');

# the planner believes no exact list to be cheaper than a short walk
sub cost_of
{
	my ($itopk) = @_;
	my $plan = $node->sql("SET enable_seqscan = off;
		SET gpugraph.itopk_size = $itopk;
		EXPLAIN SELECT id FROM items ORDER BY val <-> array_fill(0.5, ARRAY[32])::vector
			LIMIT 10");
	my ($cost) = $plan =~ /cost=[0-9.]+\.\.([0-9.]+)/;

	return $cost;
}

cmp_ok(cost_of(16), '<', cost_of(64), 'short walks cost less than longer ones');
cmp_ok(cost_of(256), '<', cost_of(1024), '... and those less than exact lists');

finish_test($node);
