# VACUUM and gpugraph_check() beside all that changes an index.
use Gpugraph;
use Merging;
use Time::HiRes qw(time);

# VACUUM in a loop beside merges of everything in a loop, beside seals and clients that insert,
# update and delete: neither keeps the other from ending, and the index agrees with its table.
#
#	LOOP_SECONDS		default 12
subtest vacuum_loops => sub {
	my $seconds = $ENV{LOOP_SECONDS} || 8;
	my $node = merging_node('beside', conf => "maintenance_work_mem = 32MB\n");

	make_source($node, 3000, 8,
		'seal_rows = 150, graph_degree = 8, intermediate_graph_degree = 16');
	$node->sql('CREATE TABLE done (what text)');

	# Until a time: VACUUM, a note that it ended; the same of merges that were done.
	my sub loop
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
		'insert@6' => <<'SQL', 'update@2' => <<'SQL', 'delete@6' => <<'SQL', 'abort@1' => <<'SQL');
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
};

# VACUUM beside selects, inserts and deletes. A select never returns a row twice, a row out of order
# (which would be a recycled TID) or fewer rows than its LIMIT, and in the end the index agrees with
# its table.
subtest vacuum_races => sub {
	my $node = new_node('beside');
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
};

# gpugraph_check reports nothing of a sound index beside deletes, VACUUM and inserts, which take the
# freed places of the table at once.
subtest check_races => sub {
	my $node = new_node('beside', conf => "maintenance_work_mem = 1MB\n");
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
			'checks@3' => "SELECT gpugraph_check('items_idx', true);",
			'deletes@2' => <<'SQL',
DELETE FROM items WHERE id IN (SELECT id FROM items ORDER BY random() LIMIT 400);
SQL
			'vacuum@2' => <<'SQL',
SELECT pg_try_advisory_lock(1)::int AS mine \gset
\if :mine
VACUUM items;
SELECT pg_advisory_unlock(1);
\endif
SQL
			'inserts@3' => <<'SQL',
INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source ORDER BY random() LIMIT 400;
SQL
		});
	index_is_complete($node, 'after the race');
};

done_testing();
