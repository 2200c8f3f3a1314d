# One worker and several indexes in two databases: each has its turn, and what is worth it only when
# nobody inserts is done for all of them.
use Gpugraph;
use Merging;

my $node = merging_node('turns');
make_source($node, 3000, 16);
my $load = 'INSERT INTO %s SELECT id + 1000000, cat, big, val FROM source';
$node->sql(<<'SQL');
CREATE TABLE others (LIKE items);
INSERT INTO others SELECT * FROM source;
CREATE INDEX others_idx ON others USING gpugraph (val) WITH (seal_rows = 100000);
ALTER INDEX items_idx SET (seal_rows = 100000);
SQL
$node->sql('CREATE DATABASE elsewhere');
$node->safe_psql('elsewhere', <<'SQL');
CREATE EXTENSION vector;
CREATE EXTENSION gpugraph;
CREATE TABLE items AS SELECT i AS id, ARRAY[i, i % 7, 1]::real[]::vector(3) AS val
	FROM generate_series(1, 1500) i;
CREATE INDEX items_idx ON items USING gpugraph (val) WITH (seal_rows = 100000);
SQL

# Inserts ask for each of them.
sub delta
{
	my ($database, $name) = @_;
	return $node->safe_psql($database, "SELECT delta_rows FROM gpugraph_index_info('${name}_idx')");
}
$node->sql(sprintf($load, 'items'));
$node->sql(sprintf($load, 'others'));
$node->safe_psql('elsewhere', 'INSERT INTO items SELECT id + 10000, val FROM items');
for (['postgres', 'items'], ['postgres', 'others'], ['elsewhere', 'items'])
{
	my ($database, $name) = @$_;
	ok_in_time(sub { delta($database, $name) < 200 },
		"$name of $database is sealed when nobody inserts");
}
ok(defined wait_for_merges($node), 'the worker ends');
is($node->sql('SELECT count(*) FROM gpugraph_stat_merge'), '0', 'nothing waits');

done_testing();
