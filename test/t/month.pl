# A month in small, as test/bench/month has it: inserts and updates at a rate, autovacuum and
# parallel VACUUM, long snapshots of which there is always one, two prepared transactions, and a
# standby with queries. The directory stays at most half full, nothing is lost, scans agree with the
# table on both servers. Less what snapshots keep, the index is at most 1.7 times as large as a
# fresh one; one VACUUM after the last old snapshot all of its file is.
use Gpugraph;
use Merging;
use Time::HiRes qw(sleep time);

my $seconds = $ENV{MONTH_SECONDS} || 16;
my $clients = 3;
my $rate = $ENV{MONTH_RATE} || 50;
my @snapshots;
my $node = merging_node('month', init => { allows_streaming => 1 }, conf => <<CONF);
autovacuum = on
autovacuum_naptime = 1s
max_prepared_transactions = 2
max_parallel_maintenance_workers = 2
min_parallel_index_scan_size = 0
max_worker_processes = 16
wal_keep_size = 4GB
gpugraph.itopk_size = 200
CONF

make_source($node, 4000, 24, 'seal_rows = 400');
make_checks($node);
$node->sql(<<'SQL');
ALTER TABLE items SET (autovacuum_vacuum_scale_factor = 0.02,
	autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_insert_threshold = 200);
CREATE FUNCTION near(v vector) RETURNS vector LANGUAGE sql AS $$
	SELECT array_agg(x + (random() - 0.5) / 10 ORDER BY d)::real[]::vector
		FROM unnest(v::real[]) WITH ORDINALITY u(x, d) $$;

-- The ten nearest by the index and by the table, in one snapshot. A walk may miss a row.
CREATE FUNCTION nearest(which int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	query vector := (SELECT val FROM queries WHERE q = which);
	found bigint[];
	wanted bigint[];
	hits int;
BEGIN
	PERFORM set_config('enable_seqscan', 'off', true), set_config('enable_indexscan', 'on', true);
	found := ARRAY(SELECT id FROM items ORDER BY val <-> query LIMIT 10);
	PERFORM set_config('enable_seqscan', 'on', true), set_config('enable_indexscan', 'off', true);
	wanted := ARRAY(SELECT id FROM items ORDER BY val <-> query LIMIT 10);
	SELECT count(DISTINCT i) INTO hits FROM unnest(found) i WHERE i = ANY (wanted);
	IF cardinality(found) <> 10 OR hits < 9 THEN
		RAISE EXCEPTION 'query %: % by the index, % in the table', which, found, wanted;
	END IF;
END $$;
SQL
my $replica = start_standby($node, 'replica',
	"max_standby_streaming_delay = 500ms\nhot_standby_feedback = off\n");

# A snapshot with a cursor over all rows, of which the first are read at once and the others in the
# end, when the index has been merged several times; in between it sees the same rows, too.
sub hold_snapshot
{
	my ($length) = @_;
	my $session = start_psql($node, 'SET enable_seqscan = off',
		'BEGIN ISOLATION LEVEL REPEATABLE READ', "SELECT 'rows ' || count(*) FROM items",
		'DECLARE c CURSOR FOR SELECT id FROM items
			ORDER BY val <-> (SELECT val FROM queries WHERE q = 3)', 'FETCH 5 FROM c',
		"SELECT pg_sleep($length / 2.0)", 'SELECT same(-1)', "SELECT pg_sleep($length / 2.0)",
		'FETCH ALL FROM c', 'SELECT same(-1)', 'COMMIT');

	push @snapshots, $session;
	return $session;
}

# A transaction of 500 rows, of which 10 were there.
sub prepare
{
	my ($name, $first) = @_;
	my $last = $first + 9;

	$node->sql(<<"SQL");
BEGIN;
INSERT INTO items SELECT -$first * 1000 - id, cat, big, near(val) FROM source
	WHERE id BETWEEN 1001 AND 1490;
UPDATE items SET val = near(val) WHERE id BETWEEN $first AND $last;
PREPARE TRANSACTION '$name';
SQL
	return;
}

# The first rows belong to prepared transactions.
my %writing = (
	'insert@3' => <<'SQL',
\set first random(1, 3990)
INSERT INTO items SELECT nextval('numbers'), cat, big, near(val) FROM source
	WHERE id BETWEEN :first AND :first + 9;
SQL
	'update@2' => <<'SQL');
\set first random(21, 4000)
UPDATE items SET val = near(val) WHERE id = :first;
SQL
my %looking = (
	'sample@3' => <<'SQL',
\set c random(0, 49)
\set q random(1, 20)
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT same(:c), nearest(:q);
COMMIT;
SQL
	'slowly@1' => <<'SQL');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT slowly();
COMMIT;
SQL
my @events = (
	[ 0.05, sub { hold_snapshot($seconds * 0.4) } ],
	[ 0.10, sub { prepare('one', 1); return; } ],
	[ 0.30, sub { start_psql($node, 'VACUUM (PARALLEL 2) items') } ],
	[ 0.40, sub { hold_snapshot($seconds * 0.4) } ],
	[ 0.45, sub { $node->sql("COMMIT PREPARED 'one'"); return; } ],
	[ 0.50, sub { prepare('two', 11); return; } ],
	[ 0.70, sub { start_psql($node, 'VACUUM (PARALLEL 2) items') } ],
	[ 0.95, sub { $node->sql("ROLLBACK PREPARED 'two'"); return; } ]);
my @sessions = (start_pgbench($node, "--client=$clients --rate=$rate --time=$seconds", %writing),
	start_pgbench($node, "--time=$seconds", %looking));
my $on_replica = start_pgbench($replica, "--client=2 --time=$seconds", %looking);
my ($start, $most, $parked, $peak, $samples) = (time, 0, 0, 0, 0);
my $limit = merge_info($node, 'extents_limit');

while (time - $start < $seconds || @events)
{
	while (@events && time - $start >= $events[0][0] * $seconds)
	{
		my $session = (shift @events)->[1]->();

		push @sessions, $session if $session;
	}
	my ($extents, $free, $bytes) = split /\|/,
		merge_info($node, "extents, parked_bytes, total_bytes");

	$most = $extents if $extents > $most;
	$parked = $free if $free > $parked;
	$peak = $bytes if $bytes > $peak;
	$samples++;
	sleep 0.3;
}
is(failed_statements($_), '', 'no statement failed') for @sessions;
finish_psql($on_replica);
for my $snapshot (@snapshots)
{
	my ($rows) = $snapshot->{out} =~ /rows (\d+)/;
	my %seen = map { $_ => 1 } my @seen = grep { /^-?\d+$/ } split /\n/, $snapshot->{out};

	is(scalar(@seen) . ' ' . scalar(keys %seen), "$rows $rows",
		'a cursor of an old snapshot: each of its rows once');
}

cmp_ok($most, '<=', $limit / 2, "the directory is at most half full in each of $samples samples");
cmp_ok($node->sql("SELECT idx_scan FROM pg_stat_user_indexes
	WHERE indexrelname = 'items_idx'"), '>', 20, 'scans were of the index');
cmp_ok($parked, '>', 0, 'snapshots kept blocks that were given back');
note("at most $most of $limit entries, $peak bytes, $parked of them kept");

# one VACUUM after the last old snapshot
$node->sql('VACUUM items');
my $generation = merge_info($node, 'generation');
$node->sql('CREATE INDEX fresh_idx ON items USING gpugraph (val vector_l2_ops)');
my $fresh = merge_info($node, 'total_bytes', 'fresh');

$node->sql('DROP INDEX fresh_idx');
# a merge under way has its new segment beside those that it merges
my ($size, $used);
ok_in_time(
		sub {
			($size, $used) = split /\|/,
				merge_info($node, 'total_bytes, total_bytes - free_bytes');
			return $used <= 1.7 * $fresh;
		}, 'at most 1.7 times a fresh index is in use');
note("$size bytes, $used of them in use, a fresh index $fresh");
cmp_ok($peak - $parked, '<=', 1.7 * $fresh, 'nor was the index larger but for what snapshots kept');
sub is_short { return merge_info($node, 'total_bytes') <= 1.7 * $fresh }
# On a busy machine the merge of an index that rests may come after VACUUM. The next VACUUM gives
# back what it left.
wait_for(sub { return is_short() || $node->sql('SELECT count(*) FROM gpugraph_stat_merge') == 0 });
$node->sql('VACUUM items') if !is_short() && merge_info($node, 'generation') > $generation;
ok_in_time(\&is_short, 'nor is its file longer');
note('then ' . merge_info($node, "total_bytes || ', of them free ' || free_bytes"));

# nothing lost: 490 of the prepared rows were committed, the others rolled back
is($node->sql("SELECT count(*) FROM items"),
	$node->sql("SELECT 4000 + last_value - 100000 + is_called::int + 490
		FROM numbers"), 'every row that was committed is there');
index_is_complete($node, 'the primary');
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, 'the rows of a plain plan');

$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
is(join(' ', ($replica->psql('postgres', "SELECT gpugraph_check('items_idx', true)"))[ 0, 2 ]),
	'0 ', "the standby's index is sound");
is(answers($replica), answers($node), 'the standby answers as the primary');
is(join("\n", grep { /(?:ERROR|FATAL|PANIC):/ && !/conflict with recovery/
		&& !/due to administrator command/ && !/database system is starting up/ }
	split /\n/, slurp_file($replica->logfile)), '', 'no error on the standby but conflicts');
unlike(slurp_file($_->logfile), qr/PANIC|was terminated by signal|TRAP|is corrupted/,
	'no process crashed') for $node, $replica;

finish_test($replica, $node);
