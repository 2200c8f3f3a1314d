# One worker measures two indexes in turns, and ends both.  One role's queries, which are unlike
# others', change others' lists by a quarter at most with each measurement, and twice in all.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use Gpugraph;
use Merging;

my $node = merging_node('flood',
	conf => "autovacuum = off\ngpugraph.learn_naptime = 1s\ngpugraph.merge_workers = 1\n");
$node->sql(<<'SQL');
SELECT make_data('items', 2000, 24, 2);
SELECT make_data('asked', 4000, 24, 2);
CREATE TABLE others AS SELECT * FROM items;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, intermediate_graph_degree = 16, learn_queries = on);
CREATE INDEX others_idx ON others USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, intermediate_graph_degree = 16);
-- so many queries, each some times as far from the middle, by scans of the index
CREATE FUNCTION ask(n int, times real) RETURNS bigint LANGUAGE sql SET enable_seqscan = off AS $$
	SELECT count(i.id) FROM (SELECT (SELECT array_agg(x * times ORDER BY d)
		FROM unnest(val::real[]) WITH ORDINALITY u(x, d))::vector AS val FROM asked
		ORDER BY random() LIMIT n) a,
		LATERAL (SELECT id FROM items i ORDER BY i.val <-> a.val LIMIT 1) i $$;
-- the list that queries take after each measurement, until told to stop
CREATE TABLE stop ();
CREATE TABLE seen (n serial, measured timestamptz, list int);
CREATE PROCEDURE watch() LANGUAGE plpgsql AS $$
DECLARE
	query vector := (SELECT val FROM asked WHERE id = 7);
	last timestamptz;
	now timestamptz;
BEGIN
	WHILE NOT EXISTS (SELECT FROM stop) LOOP
		now := (SELECT recall_measured FROM gpugraph_indexes WHERE indexname = 'items_idx');
		IF now <> last THEN
			PERFORM id FROM items ORDER BY val <-> query LIMIT 10;
			INSERT INTO seen (measured, list) VALUES (now, list());
		END IF;
		last := now;
		COMMIT;
		PERFORM pg_sleep(0.005);
	END LOOP;
END $$;
CREATE ROLE flooding LOGIN;
GRANT SELECT ON items, asked TO flooding;
SQL

# the list that a query takes
sub list
{
	my ($table) = @_;

	return $node->sql(<<"SQL");
SET enable_seqscan = off;
SET gpugraph.target_recall = .95;
SELECT FROM $table ORDER BY val <-> (SELECT val FROM asked WHERE id = 7) LIMIT 10 \\g /dev/null
SELECT list();
SQL
}

sub shown
{
	my ($column, $index) = @_;

	return $node->sql("SELECT $column FROM gpugraph_indexes WHERE indexname = '$index'");
}

list('items');
list('others');
ok(defined wait_for(sub {
		return shown('recall_measured', 'items_idx') ne '' &&
			shown('recall_measured', 'others_idx') ne '';
	}, 400), 'two indexes are measured by one worker');

# Queries like the rows fill the sample, and recall is measured by them.  While somebody searches
# the worker takes its time.
ok_in_time(
	sub { $node->sql('SELECT ask(1100, 1)'); return merge_info($node, 'sample_queries') > 3500; },
	'a sample of queries');
ok(defined wait_for(sub { return shown('recall_by', 'items_idx') eq 'queries'; }, 400),
	'recall is measured by them');
my $first = list('items');
my $watch = $node->background_psql('postgres');
$watch->query_until(qr//, "SET enable_seqscan = off; SET gpugraph.target_recall = .95;
	CALL watch();\n");

# the flood
for my $round (1 .. 5)
{
	my $before = $node->sql('SELECT count(*) FROM seen');

	$node->sql('SELECT ask(4000, 30)', extra_params => [ '-U', 'flooding' ]);
	ok(defined wait_for(sub { return $node->sql('SELECT count(*) FROM seen') > $before; }, 400),
		"measured anew, $round");
}
$node->sql('INSERT INTO stop DEFAULT VALUES');
$watch->quit;
my @lists = split /\n/, $node->sql('SELECT list FROM seen ORDER BY n');
my $list = $first;
note("lists $first @lists");
is(scalar(grep { my ($from, $to) = ($list, $_); $list = $to;
			$to > 1.25 * $from + 1 || $to < $from / 1.25 - 1 } @lists), 0,
	'with each measurement the list is a quarter longer at most, or a fifth shorter');
cmp_ok($list, '<=', 2 * $first + 1, 'and twice as long in all');
cmp_ok($list, '>=', $first / 2 - 1, 'or half as long');
like(shown('hint', 'items_idx'), qr/gpugraph_calibrate.*queries have changed/,
	'a hint says that lists do not follow');
index_is_complete($node, 'flooded');

# the owner has lists follow
$node->sql("SELECT gpugraph_calibrate('items_idx')");
unlike(shown('hint', 'items_idx'), qr/gpugraph_calibrate/, 'until the owner wants it');
note('list ' . list('items') . ' after gpugraph_calibrate()');

$node->stop;
done_testing();
