# VACUUM beside selects, inserts and deletes. A select never returns a row twice, a row out of order
# (which would be a recycled TID) or fewer rows than its LIMIT, and in the end the index agrees with
# its table.
use Gpugraph;
use Time::HiRes qw(time);

my $node = new_node('races');
make_items($node, 2000, 8);
$node->sql(<<'SQL');
ALTER TABLE items DROP CONSTRAINT items_pkey;
CREATE INDEX ON items (id);
CREATE SEQUENCE numbers START 100000;
CREATE TABLE source AS SELECT * FROM items;
-- rows with id <= 100 are never deleted
SQL

my $vacuuming = repeat_psql($node, 4, 'VACUUM items', 0.02);
$node->pgbench('--no-vacuum --client=6 --time=7 -D seed=1', 0, [qr{processed}], [qr{^$}],
	'selects, inserts and deletes beside VACUUM',
	{
		'select@4' => <<'SQL',
\set q random(1, 2000)
SET enable_seqscan = off;
SELECT nearest_in_order((SELECT val FROM source WHERE id = :q), 20);
SQL
		'narrow@2' => <<'SQL',
\set q random(1, 2000)
SET enable_seqscan = off;
SET gpugraph.itopk_size = 4;
SELECT nearest_in_order((SELECT val FROM source WHERE id = :q), 90);
RESET gpugraph.itopk_size;
SQL
		'insert@6' => <<'SQL',
\set q random(1, 2000)
INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source WHERE id = :q;
SQL
		'delete@3' => <<'SQL',
\set from random(101, 2000)
DELETE FROM items WHERE id IN (SELECT id FROM items WHERE id > 100 ORDER BY id LIMIT 3);
SQL
		'check@1' => <<'SQL',
SELECT gpugraph_check('items_idx', true);
SELECT rows, delta_rows FROM gpugraph_index_info('items_idx');
SQL
		'rollback@1' => <<'SQL',
BEGIN;
INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source WHERE id < 20;
ROLLBACK;
SQL
	});
$vacuuming->{harness}->kill_kill(grace => 5) if !has_ended($vacuuming);
unlike($vacuuming->{err}, qr/ERROR.*corrupt/, 'VACUUM met no error');
index_is_complete($node, 'after the race');
$node->sql('VACUUM items');
index_is_complete($node, 'after another VACUUM');

# REINDEX CONCURRENTLY beside the same
my $reindexing = start_psql($node, ('REINDEX INDEX CONCURRENTLY items_idx') x 5);
$node->pgbench('--no-vacuum --client=4 --time=4', 0, [qr{processed}], [qr{^$}],
	'selects and inserts beside REINDEX CONCURRENTLY',
	{
		'select2@3' => <<'SQL',
\set q random(1, 2000)
SET enable_seqscan = off;
SELECT nearest_in_order((SELECT val FROM source WHERE id = :q), 20);
SQL
		'insert2@3' => <<'SQL',
\set q random(1, 2000)
INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source WHERE id = :q;
SQL
	});
is(finish_psql($reindexing), '', 'REINDEX CONCURRENTLY met no error');
index_is_complete($node, 'after REINDEX CONCURRENTLY');

finish_test($node);
