# After a crash an unlogged table and its index are empty and usable, and the sample that the index
# learned from is lost with the rows; after a clean stop all three are as they were.
use Gpugraph;

my $node = new_node('unlogged');

sub sample_queries
{
	return $node->sql("SELECT sample_queries FROM gpugraph_index_info('items_idx')");
}

$node->sql(<<'SQL');
SELECT make_data('source', 1500, 16, 20);
CREATE UNLOGGED TABLE items AS SELECT * FROM source;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 16, intermediate_graph_degree = 32);
INSERT INTO items SELECT id + 10000, cat, big, val FROM source;
CREATE UNLOGGED TABLE free (id int, val vector);
CREATE INDEX free_idx ON free USING gpugraph (val vector_l2_ops);
INSERT INTO free VALUES (1, '[1,2,3]');
SELECT make_data('asked', 400, 16, 7);
CREATE FUNCTION learn() RETURNS bigint LANGUAGE sql AS
	$$ SELECT gpugraph_learn('items_idx', (SELECT array_agg(val ORDER BY id) FROM asked)) $$;
SQL
my $learned = $node->sql('SELECT learn()');
cmp_ok($learned, '>', 100, 'edges are learned');
is(sample_queries(), '400', 'from a sample');
index_is_complete($node, 'unlogged');

$node->stop;
$node->start;
index_is_complete($node, 'after a clean stop');
is($node->sql('SELECT count(*) FROM items'), '3000', 'with its rows');
is(sample_queries(), '400', 'and its sample');

$node->stop('immediate');
$node->start;
is($node->sql('SET enable_seqscan = off;
	SELECT count(*)
	FROM (SELECT id FROM items ORDER BY val <-> (SELECT val FROM source LIMIT 1)) s'),
	'0', 'after a crash it is empty');
index_is_complete($node, 'empty');
is($node->sql(
	"SELECT graph_degree, rows, delta_rows, dimensions FROM gpugraph_index_info('items_idx')"),
	'16|0|0|16', 'its options are kept');
is(sample_queries(), '0', 'its sample is lost with its rows');
$node->sql('INSERT INTO items SELECT * FROM source');
index_is_complete($node, 'filled again');
$node->sql('REINDEX INDEX items_idx');
index_is_complete($node, 'rebuilt');
is(sample_queries(), '0', 'from rows alone');
cmp_ok($node->sql('SELECT learn()'), '>', 100, 'and learns again');
is(sample_queries(), '400', 'from a sample of its own');
$node->sql('REINDEX INDEX items_idx');
is(sample_queries(), '400', 'which the next REINDEX keeps');
$node->sql("INSERT INTO free VALUES (1, '[1,2]')");
is($node->sql("SELECT dimensions FROM gpugraph_index_info('free_idx')"), '2',
	'its first row says the dimensions again');

finish_test($node);
