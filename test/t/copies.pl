# An index is copied with its database, whichever way, and moved to another tablespace: copies are
# complete, live on independently, and survive a crash.
use Gpugraph;

# wal_level: under minimal the strategy wal_log loses the init forks of unlogged relations in a
# crash, of any kind of index.
my $node = new_node('copies', conf => "restart_after_crash = on\nwal_level = replica\n");
$node->sql('CREATE DATABASE model');
$node->safe_psql('model', <<'SQL');
CREATE EXTENSION vector;
CREATE EXTENSION gpugraph;
CREATE TABLE items (id int, val vector(8));
INSERT INTO items SELECT i,
	(SELECT array_agg((i * (d * 7 + 3) % 101)::real) FROM generate_series(1, 8) d)::vector
	FROM generate_series(1, 3000) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
INSERT INTO items SELECT id + 10000, val FROM items;
DELETE FROM items WHERE id BETWEEN 10001 AND 12000;
VACUUM items;
DELETE FROM items WHERE id % 10 = 0;
CREATE UNLOGGED TABLE fleeting AS SELECT * FROM items;
CREATE INDEX fleeting_idx ON fleeting USING gpugraph (val vector_l2_ops);
SQL

sub complete
{
	my ($database, $what, $table, $rows) = @_;

	is(($node->psql($database, "SELECT gpugraph_check('${table}_idx', true)"))[2], '',
		"$what: the index is sound");
	is($node->safe_psql($database,
		"SET enable_seqscan = off;
		SELECT count(*), count(DISTINCT id)
		FROM (SELECT id FROM $table ORDER BY val <-> '[1,2,3,4,5,6,7,8]') s"),
		"$rows|$rows", "$what: every row is found");
	return;
}

sub crash
{
	my $session = start_psql($node, 'SELECT pg_sleep(600)');

	survives_kill_9($node, 'a session', backend_pid($node, 'pg_sleep'), $session);
	return;
}

my $rows = $node->safe_psql('model', 'SELECT count(*) FROM items');
for my $strategy ('file_copy', 'wal_log')
{
	$node->sql("CREATE DATABASE $strategy TEMPLATE model STRATEGY $strategy");
}
for my $strategy ('file_copy', 'wal_log')
{
	complete($strategy, $strategy, 'items', $rows);
	complete($strategy, $strategy, 'fleeting', $rows);
	# into blocks that VACUUM gave back
	$node->safe_psql($strategy,
		"INSERT INTO items SELECT id + 20000, val FROM items WHERE id < 3000");
	complete($strategy, "$strategy, inserted", 'items', $rows + 2700);
}
crash();
complete('model', 'the model', 'items', $rows);
for my $strategy ('file_copy', 'wal_log')
{
	complete($strategy, "$strategy after a crash", 'items', $rows + 2700);
	complete($strategy, "$strategy after a crash, unlogged", 'fleeting', 0);
	$node->safe_psql($strategy, 'INSERT INTO fleeting SELECT * FROM items LIMIT 500');
	complete($strategy, "$strategy after a crash, unlogged and inserted", 'fleeting', 500);
	$node->safe_psql($strategy, 'DELETE FROM items WHERE id > 20000');
	$node->safe_psql($strategy, 'VACUUM items');
	complete($strategy, "$strategy, vacuumed", 'items', $rows);
}

$node->safe_psql('model',
	"SET allow_in_place_tablespaces = on; CREATE TABLESPACE elsewhere LOCATION ''");
$node->safe_psql('model', "ALTER INDEX ${_}_idx SET TABLESPACE elsewhere") for 'items', 'fleeting';
$node->safe_psql('model', 'INSERT INTO items SELECT id + 30000, val FROM items WHERE id < 1000');
$rows = $node->safe_psql('model', 'SELECT count(*) FROM items');
complete('model', 'moved', 'items', $rows);
crash();
complete('model', 'moved, after a crash', 'items', $rows);
complete('model', 'moved, after a crash, unlogged', 'fleeting', 0);
$node->safe_psql('model',
	"ALTER TABLE fleeting SET LOGGED; INSERT INTO fleeting SELECT * FROM items;
	ALTER INDEX fleeting_idx SET TABLESPACE pg_default");
crash();
complete('model', 'logged, moved back, after a crash', 'fleeting', $rows);

finish_test($node);
