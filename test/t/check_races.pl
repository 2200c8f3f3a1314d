# gpugraph_check reports nothing of a sound index beside deletes, VACUUM and inserts, which take the
# freed places of the table at once.
use Gpugraph;

my $node = new_node('check_races', conf => "maintenance_work_mem = 1MB\n");
make_items($node, 3000, 4);
$node->sql(<<'SQL');
ALTER TABLE items DROP CONSTRAINT items_pkey;
CREATE INDEX ON items (id);
CREATE SEQUENCE numbers START 100000;
CREATE TABLE source AS SELECT * FROM items;
INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source;
SQL

# line pointers are freed, and taken again, while a check is between the index and the table
$node->pgbench('--no-vacuum --client=7 --time=8', 0, [qr{processed}], [qr{^$}],
	'checks beside deletes, VACUUM and inserts',
	{
		'check@3' => "SELECT gpugraph_check('items_idx', true);",
		'delete@2' => <<'SQL',
DELETE FROM items WHERE id IN (SELECT id FROM items ORDER BY random() LIMIT 400);
SQL
		'vacuum@2' => <<'SQL',
SELECT pg_try_advisory_lock(1)::int AS mine \gset
\if :mine
VACUUM items;
SELECT pg_advisory_unlock(1);
\endif
SQL
		'insert@3' => <<'SQL',
INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source ORDER BY random() LIMIT 400;
SQL
	});
index_is_complete($node, 'after the race');

done_testing();
