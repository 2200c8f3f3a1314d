# Snapshots older than merges: cursors, prepared transactions and repeatable reads find each of
# their rows once, however often pages are merged, given back and used again; VACUUM beside merges
# leaves no row that was recycled. All answers of the index are compared with those of the table in
# the same snapshot.
use Gpugraph;
use Merging;

my $node = merging_node('snapshots', conf => "max_prepared_transactions = 5\n");
make_source($node, 2000, 8, 'seal_rows = 300');
$node->sql(<<'SQL');
-- nothing left out, nothing twice, nothing in the wrong place
CREATE FUNCTION compare(query vector, k int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	by_index float8[];
	by_table float8[];
	ids bigint[];
	last_in_order int;
BEGIN
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_sort = off;
	SELECT array_agg(id), array_agg(d) INTO ids, by_index
		FROM (SELECT id, val <-> query AS d FROM items ORDER BY val <-> query LIMIT k) s;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_sort = on;
	SET LOCAL enable_indexscan = off;
	SELECT array_agg(d) INTO by_table
		FROM (SELECT val <-> query AS d FROM items ORDER BY val <-> query LIMIT k) s;
	RESET enable_indexscan;
	IF cardinality(by_index) IS DISTINCT FROM cardinality(by_table) THEN
		RAISE EXCEPTION '% rows by the index, % in the table', cardinality(by_index),
			cardinality(by_table);
	END IF;
	IF (SELECT count(DISTINCT i) FROM unnest(ids) i) <> cardinality(ids) THEN
		RAISE EXCEPTION 'a row twice among %', cardinality(ids);
	END IF;
	-- A walk may miss a row. Strict order then returns it behind all others.
	last_in_order := cardinality(by_index);
	FOR i IN 2 .. cardinality(by_index) LOOP
		IF by_index[i] < by_index[i - 1] * (1 - 1e-5) THEN
			last_in_order := i - 1;
			EXIT;
		END IF;
	END LOOP;
	IF (SELECT count(DISTINCT d) FROM unnest(by_index[last_in_order + 1 : ]) d) > 3 THEN
		RAISE EXCEPTION 'out of order from row % of % on: %', last_in_order + 1,
			cardinality(by_index), by_index[last_in_order - 2 : last_in_order + 20];
	END IF;
	IF k > 1000 THEN
		SELECT array_agg(d ORDER BY d) INTO by_index FROM unnest(by_index) d;
	END IF;
	FOR i IN 1 .. cardinality(by_index) LOOP
		IF abs(by_index[i] - by_table[i]) > 1e-5 * by_table[i] AND
			(k > 1000 OR i <= 3 OR by_index[i] < by_table[i]) THEN
			RAISE EXCEPTION 'row % by the index at %, in the table at %', i, by_index[i],
				by_table[i];
		END IF;
	END LOOP;
END $$;
SQL

# the load: inserts, deletes, updates; VACUUM in another session, slowed, so that merges flip in its
# midst; and one that is cancelled again and again
sub vacuum_loop
{
	my (@settings) = @_;

	return start_psql($node, @settings, map { ('VACUUM items', 'SELECT pg_sleep(0.01)') } 1 .. 500);
}

my @loops = (vacuum_loop('SET vacuum_cost_delay = 1', 'SET vacuum_cost_limit = 40'));
my $canceller = start_psql($node, map { ("SELECT pg_cancel_backend(pid) FROM pg_stat_activity
	WHERE query ~ '^VACUUM' AND state = 'active' AND random() < 0.3", 'SELECT pg_sleep(0.3)') }
	1 .. 500);
my $merger = start_psql($node,
	map { ("SELECT gpugraph_merge('items_idx')", 'SELECT pg_sleep(0.2)') } 1 .. 500);

$node->pgbench('--no-vacuum --client=5 --time=10', 0, [qr{processed}], [qr{^$}],
	'answers agree with the table beside merges and VACUUM',
	{
		'compare@3' => <<'SQL',
\set q random(1, 2000)
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT compare((SELECT val FROM source WHERE id = :q), 10);
COMMIT;
SQL
		'compare_all@1' => <<'SQL',
\set q random(1, 2000)
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT compare((SELECT val FROM source WHERE id = :q), 1000000);
SELECT pg_sleep(0.1);
SELECT compare((SELECT val FROM source WHERE id = :q), 1000000);
COMMIT;
SQL
		'insert@5' => <<'SQL',
\set q random(1, 1980)
INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source
	WHERE id BETWEEN :q AND :q + 20;
SQL
		'delete@4' => <<'SQL',
\set n random(1, 100)
DELETE FROM items WHERE id IN (SELECT id FROM items WHERE id % 100 = :n LIMIT 25);
SQL
		'update@1' => <<'SQL',
\set n random(1, 100)
UPDATE items SET val = val WHERE id IN (SELECT id FROM items WHERE id % 100 = :n LIMIT 3);
SQL
		'rollback@1' => <<'SQL',
BEGIN;
INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source WHERE id < 30;
ROLLBACK;
SQL
	});
for my $session ($canceller, $merger, @loops)
{
	$session->{harness}->kill_kill(grace => 2);
}
unlike(slurp_file($node->logfile), qr/corrupt|PANIC|could not read block/, 'no error but cancels');
cmp_ok(merge_info($node, 'generation'), '>', 2, 'there were merges: ' .
	merge_info($node, 'generation'));
index_is_complete($node, 'after the race');

# a cursor that stays open while its pages are merged, given back and used again
$node->sql('TRUNCATE items; INSERT INTO items SELECT * FROM source');
my $cursor = start_cursor($node);
# and a transaction that is prepared: its rows are nobody's yet
$node->sql("BEGIN; INSERT INTO items SELECT id + 50000, cat, big, val FROM source;
	DELETE FROM items WHERE id <= 100; PREPARE TRANSACTION 'p'");
my $size = 0;
for my $round (1 .. 6)
{
	$node->sql("INSERT INTO items SELECT id + ${round}00000, cat, big, val FROM source");
	$node->sql("DELETE FROM items WHERE id > 90000 AND id % 4 <> 0 OR
		id BETWEEN 101 AND 2000 AND id % 6 = $round % 6");
	$node->sql('VACUUM items');
	wait_for(sub { $node->sql("SELECT gpugraph_merge('items_idx')") eq 't' });
}
$cursor->{in} .=
	"FETCH ALL FROM c;\nSELECT 'half';\nMOVE 100 IN d;\nFETCH ALL FROM d;\nCOMMIT;\n\\q\n";
is(finish_psql($cursor), '', 'cursors meet no error');
my ($c, $d) = split /half\n/, $cursor->{out};
my %seen;
is(scalar(grep { !$seen{$_}++ && $_ <= 2000 } split /\n/, $c), 1995,
	'a cursor that was read: each of its rows once');
is(scalar(split /\n/, $c), 1995, 'and no other');
%seen = ();
is(scalar(grep { !$seen{$_}++ && $_ <= 2000 } split /\n/, $d), 1900,
	'a cursor that was not read: each of its rows once');
is(scalar(split /\n/, $d), 1900, 'and no other');
index_is_complete($node, 'beside a prepared transaction');
$node->restart;
index_is_complete($node, 'a prepared transaction after a restart');
$node->sql("COMMIT PREPARED 'p'");
index_is_complete($node, 'prepared and committed');
is($node->sql("SET enable_seqscan = off; SELECT count(*) FROM
	(SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)) s
	WHERE id BETWEEN 50001 AND 52000"), '2000', 'its rows are found');
$node->sql('VACUUM items');
wait_for(sub { $node->sql("SELECT gpugraph_merge('items_idx')") eq 't' });
index_is_complete($node, 'and merged');

# What was parked for them is used again: the index may have room for one more generation, and for
# the 16 blocks that arrays leave to the delta, not for a generation a round. It may have no free
# block at the start, since VACUUM makes the file shorter. No worker merges meanwhile, since what
# its merges hold back depends on when they end.
restart_with($node, 'gpugraph.merge_workers = 0');
$size = merge_info($node, 'total_bytes');
for my $round (1 .. 8)
{
	$node->sql("DELETE FROM items WHERE id > 60000");
	$node->sql('VACUUM (FREEZE) items');
	$node->sql("INSERT INTO items SELECT id + ${round}00000, cat, big, val FROM source");
	wait_for(sub { $node->sql("SELECT gpugraph_merge('items_idx')") eq 't' });
}
cmp_ok(merge_info($node, 'total_bytes'), '<=', 2 * $size + 16 * 8192,
	'what was parked is used again');
index_is_complete($node, 'at the end');

finish_test($node);
