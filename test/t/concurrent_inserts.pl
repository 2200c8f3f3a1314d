# Ten clients insert at a time: every row is found, with the recall of a build.
use Gpugraph;

my $node = new_node('inserts');

# 10 clients x 1000 rows beside those of a build
make_items($node, 2000, 16);
$node->sql(<<'SQL');
SELECT make_data('source', 10000, 16, 40);
CREATE SEQUENCE numbers;
SQL
$node->pgbench('--no-vacuum --client=10 --transactions=1000', 0, [qr{processed: 10000/10000}],
	[qr{^$}],
	'10 clients insert 1000 rows each',
	{ insert => 'INSERT INTO items SELECT 10000 + id, cat, big, val FROM source
		WHERE id = (SELECT nextval(\'numbers\'))' });
is($node->sql('SELECT count(*) FROM items'), '12000', 'all rows are in the table');
is($node->sql("SELECT delta_rows FROM gpugraph_index_info('items_idx')"), '10000',
	'and in the index');
index_is_complete($node, '10 clients');
$node->sql("SELECT make_queries('items', 50)");
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, 'recall');
$node->sql('REINDEX INDEX items_idx');
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, 'recall after a rebuild');

# 1900 dimensions: rows of nearly a page; each must be nearest to itself
$node->sql(<<'SQL');
CREATE TABLE wide (id int, val vector(1900));
CREATE INDEX wide_idx ON wide USING gpugraph (val vector_l2_ops);
CREATE SEQUENCE wide_numbers;
SQL
$node->pgbench('--no-vacuum --client=10 --transactions=100', 0, [qr{processed: 1000/1000}],
	[qr{^$}],
	'10 clients insert 100 rows of 1900 dimensions each',
	{ wide => 'INSERT INTO wide
		SELECT nextval(\'wide_numbers\'), array_agg(random())::real[]::vector
		FROM generate_series(1, 1900)' });
index_is_complete($node, '1900 dimensions', 'wide');
my $found = $node->sql(<<'SQL');
SET enable_seqscan = off;
SELECT count(*) FROM wide w WHERE id = (SELECT id FROM wide ORDER BY val <-> w.val LIMIT 1);
SQL
cmp_ok($found, '>=', 997, '1900 dimensions: rows nearest to themselves');

# the first rows of an index without declared dimensions come from several clients at a time
$node->sql('CREATE TABLE free (id serial, val vector);
	CREATE INDEX free_idx ON free USING gpugraph (val vector_l2_ops)');
$node->pgbench('--no-vacuum --client=8 --transactions=50', 0, [qr{processed: 400/400}], [qr{^$}],
	'8 clients insert into an empty index',
	{ free => "INSERT INTO free (val)
		VALUES (ARRAY[random(), random(), random()]::real[]::vector)" });
index_is_complete($node, 'no dimensions declared', 'free');

# rows longer than a page, from several clients at a time
$node->sql('CREATE TABLE longs (id serial, val vector(5000));
	CREATE INDEX longs_idx ON longs USING gpugraph (val vector_l2_ops)');
$node->pgbench('--no-vacuum --client=5 --transactions=20', 0, [qr{processed: 100/100}], [qr{^$}],
	'5 clients insert rows of 5000 dimensions',
	{ longs => 'INSERT INTO longs (val) SELECT array_agg(random())::real[]::vector
		FROM generate_series(1, 5000)' });
index_is_complete($node, '5000 dimensions', 'longs');

finish_test($node);
