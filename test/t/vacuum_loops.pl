# VACUUM in a loop beside merges of everything in a loop, beside seals and clients that insert,
# update and delete: neither keeps the other from ending, and the index agrees with its table.
#
#	LOOP_SECONDS		default 12
use Gpugraph;
use Merging;

my $seconds = $ENV{LOOP_SECONDS} || 8;
my $node = merging_node('loops', conf => "maintenance_work_mem = 32MB\n");

make_source($node, 3000, 8, 'seal_rows = 150, graph_degree = 8, intermediate_graph_degree = 16');
$node->sql('CREATE TABLE done (what text)');

# Until a time: VACUUM, a note that it ended; the same of merges that were done.
sub loop
{
	my ($what, $sql) = @_;

	return start_pgbench($node, "--client=1 --time=$seconds", "$what\@1" => $sql);
}
my @loops = (loop('vacuum', <<'SQL'), loop('merge', <<'SQL'));
SET vacuum_cost_delay = 2;
SET vacuum_cost_limit = 20;
VACUUM items;
INSERT INTO done VALUES ('vacuum');
SQL
INSERT INTO done SELECT 'merge' WHERE gpugraph_merge('items_idx');
SQL
my $load = start_pgbench($node, "--client=3 --time=$seconds",
	'insert@6' => <<'SQL', 'update@2' => <<'SQL', 'delete@6' => <<'SQL', 'rollback@1' => <<'SQL');
\set first random(1, 2900)
INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source
	WHERE id BETWEEN :first AND :first + 20;
SQL
\set first random(1, 2900)
UPDATE items SET val = (SELECT val FROM source WHERE id = :first) WHERE id = :first + 1;
SQL
DELETE FROM items WHERE id IN (SELECT id FROM items WHERE id > 10000
	AND (SELECT last_value FROM numbers) - id > 1000 ORDER BY id LIMIT 25 FOR UPDATE SKIP LOCKED);
SQL
BEGIN;
INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source WHERE id < 20;
ROLLBACK;
SQL
my @checks = map { $node->psql('postgres', 'SELECT pg_sleep(0.5)');
	error_of($node, "SELECT gpugraph_check('items_idx', true)") } 1 .. $seconds;

is(join('', @checks), '', 'the index is sound all the time');
for my $session (@loops, $load)
{
	my $err = finish_psql($session);

	is(join("\n", grep { /ERROR|FATAL|PANIC/ } split /\n/, $err), '', 'no statement failed');
}
for my $what (qw(vacuum merge))
{
	my $n = $node->sql("SELECT count(*) FROM done WHERE what = '$what'");

	note("$what: $n");
	cmp_ok($n, '>=', 3, "$what: it ends, again and again");
}
index_is_complete($node, 'in the end');
$node->sql('VACUUM items');
ok_in_time(sub { $node->sql("SELECT gpugraph_merge('items_idx')") eq 't' }, 'a merge of all');
index_is_complete($node, 'after a merge of all');
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.9, 'recall');
unlike(slurp_file($node->logfile), qr/corrupt|PANIC|TRAP/, 'no other error');

finish_test($node);
