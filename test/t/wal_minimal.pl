# With wal_level = minimal a relation made in the same transaction is synced instead of logged; it
# survives a crash.
use Gpugraph;

my $node = new_node('minimal',
	conf => "wal_level = minimal\nmax_wal_senders = 0\nwal_skip_threshold = 0\nfsync = on\n");
make_items($node, 2000, 16);
$node->sql("SELECT make_data('asked', 400, 16, 7)");
$node->sql(<<'SQL');
BEGIN;
CREATE TABLE made AS SELECT * FROM items;
CREATE INDEX made_idx ON made USING gpugraph (val vector_l2_ops);
SELECT gpugraph_learn('made_idx', (SELECT array_agg(val) FROM asked));
INSERT INTO made SELECT id + 10000, cat, big, val FROM items;
COMMIT;
BEGIN;
CREATE TABLE cut (id int, val vector(16));
INSERT INTO cut SELECT id, val FROM items;
CREATE INDEX cut_idx ON cut USING gpugraph (val vector_l2_ops);
TRUNCATE cut;
INSERT INTO cut SELECT id, val FROM items WHERE id <= 500;
COMMIT;
SQL
my $before = answers($node);
$node->stop('immediate');
$node->start;
is(answers($node), $before, 'the same answers after a crash');
index_is_complete($node, 'built in a transaction of its own');
index_is_complete($node, 'built with its table', 'made');
is($node->sql("SELECT gpugraph_learn('made_idx', (SELECT array_agg(val)
	FROM asked))"), 0, 'and it knows what it learned then');
index_is_complete($node, 'truncated with its table', 'cut');

$node->sql(
	'BEGIN; TRUNCATE made; INSERT INTO made SELECT * FROM items; COMMIT; REINDEX INDEX items_idx');
$node->stop('immediate');
$node->start;
index_is_complete($node, 'truncated and filled again', 'made');
index_is_complete($node, 'rebuilt');

finish_test($node);
