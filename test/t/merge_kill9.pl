# kill -9 of the worker, of a backend and of the postmaster at random points of sealing, merging,
# compaction and learning under load: no row is lost, none is found twice, the replica is equal, and
# no space is lost for good. Each algorithm's graphs have three kills in turn. MERGE_ROUNDS says how
# many kills; HANG=3600 MERGE_ROUNDS=200 is the long version.
use Gpugraph;
use Merging;
use Time::HiRes qw(usleep);

my $rounds = $ENV{MERGE_ROUNDS} || 9;
my $node = merging_node('killed', init => { allows_streaming => 1 },
	conf => "restart_after_crash = on\n");
make_source($node, 1500, 16, 'seal_rows = 300');
make_learn($node, 200);
my $replica = start_standby($node, 'replica');

# what was committed, as the client knows: of each number whether its row must be there. Deletes
# take rows of the sequence's early numbers, so segments die and are compacted.
my $load = <<'SQL';
DO $$
DECLARE
	n bigint;
BEGIN
	FOR i IN 1 .. 1000000 LOOP
		n := nextval('numbers');
		INSERT INTO items SELECT n + j, cat, big, val FROM source, generate_series(0, 4) j
			WHERE source.id = 1 + (n + j * 211) % 1500;
		PERFORM setval('numbers', n + 5);
		COMMIT;
		IF i % 8 = 0 THEN
			DELETE FROM items WHERE id BETWEEN n - 1500 AND n - 700 AND id % 20 <> 3;
			COMMIT;
		END IF;
	END LOOP;
END $$;
SQL

my %victims = ('the worker' => 0, 'VACUUM or a merge' => 0, 'the postmaster' => 0);

sub start_load
{
	return (start_psql($node, $load), start_psql($node, 'SELECT pg_sleep(0.2)',
		map { ('VACUUM items', 'SELECT learn()', 'SELECT pg_sleep(0.1)',
			"SELECT gpugraph_merge('items_idx')") } 1 .. 200));
}

sub kill_postmaster
{
	kill_9_server($node);
	return defined wait_for(sub { return $node->start(fail_ok => 1); });
}

my @algorithms = ('cagra', 'tsdg', 'grnnd');

for my $round (1 .. $rounds)
{
	my $algorithm = $algorithms[ int(($round - 1) / 3) % 3 ];

	$node->sql("ALTER INDEX items_idx SET (algorithm = $algorithm); REINDEX INDEX items_idx")
		if $round > 1 && $round % 3 == 1;

	my @sessions = start_load();
	my $up;
	my $what = (sort keys %victims)[ $round % 3 ];
	my $pid = '';

	usleep(400_000 + rand(1_500_000));
	if ($what eq 'the postmaster')
	{
		$up = kill_postmaster();
		$victims{$what}++;
	}
	else
	{
		my $who = $what eq 'the worker' ? "backend_type = 'gpugraph merge worker'"
			: "query ~ '^VACUUM|gpugraph_merge|learn' AND state = 'active'
				AND pid <> pg_backend_pid()";

		wait_for(sub { $pid = $node->sql(
			"SELECT pid FROM pg_stat_activity WHERE $who LIMIT 1"); return $pid ne ''; });
		if ($pid ne '' && kill 0, $pid)
		{
			kill_9($node, $pid);
			$victims{$what}++;
		}
		$up = wait_until_up($node);
	}
	ok($up, "round $round: the server is back after kill -9 of $what");
	finish_psql($_) for @sessions;
	index_is_complete($node, "round $round");
	is(merge_info($node, 'algorithm'), $algorithm, "round $round: graphs by $algorithm");
	next if $round % 3 != 0 && $round != $rounds;
	$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
	# in one snapshot
	is($replica->sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT complete('items')"), 'ok',
		"round $round: the replica's rows");
	is(join(' ', ($replica->psql('postgres', "SELECT gpugraph_check('items_idx', true)"))[ 0, 2 ]),
		'0 ', "round $round: the replica's index is sound");
	is(answers($replica, 'cpu'), answers($node, 'cpu'),
		"round $round: the replica answers as the primary");
}
cmp_ok($victims{$_}, '>', 0, "$_ was killed") for sort keys %victims;

# what killed merges took is free after the next one, and used by the one after
$node->sql('VACUUM items');
for (1 .. 3)
{
	$node->sql('INSERT INTO items SELECT id + nextval(\'numbers\') * 10000, cat,
		big, val FROM source');
	ok_in_time(sub { $node->sql("SELECT gpugraph_merge('items_idx')") eq 't' }, 'a merge of all');
}
my $size = merge_info($node, 'total_bytes');
$node->sql('REINDEX INDEX items_idx');
# while the load ran, merges of all followed each other faster than snapshots went: several
# generations were parked at a time
cmp_ok($size, '<', 8 * merge_info($node, 'total_bytes') + 4e6, 'size is bounded');
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, 'recall');

finish_test($replica, $node);
