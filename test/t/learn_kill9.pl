# kill -9 in the middle of gpugraph_learn() leaves the old graph, a standby gets the new one, and
# VACUUM, inserts, queries and a cancel beside it do no harm.
use Gpugraph;
use Merging;

my $node = merging_node('learning', init => { allows_streaming => 1 },
	conf => "restart_after_crash = on\n");
make_source($node, 3000, 16, 'seal_rows = 100000, graph_degree = 16');
make_learn($node, 400);
my $replica = start_standby($node, 'replica');

my $generation = merge_info($node, 'generation');
my $answers = answers($node);
my ($holder, $learner, $pid) = start_held($node, 'SELECT learn()');

ok($pid ne '', 'the new graph is written');
kill_9($node, $pid);
ok(wait_until_up($node), 'the server is back after kill -9');
finish_psql($_) for $holder, $learner;
is(merge_info($node, 'generation'), $generation, 'the old generation');
is(answers($node), $answers, 'with the old answers');
index_is_complete($node, 'after kill -9');

# a cancel, with VACUUM, inserts and queries meanwhile
($holder, $learner, $pid) = start_held($node, 'SELECT learn()');
$node->sql(<<'SQL');
DELETE FROM items WHERE id % 7 = 0;
VACUUM items;
INSERT INTO items SELECT id + 50000, cat, big, val FROM source WHERE id <= 100;
SQL
index_is_complete($node, 'while a session learns');
$node->sql("SELECT pg_cancel_backend($pid)");
finish_psql($learner);
finish_psql($holder);
index_is_complete($node, 'after a cancel');

# what failed calls took is free for the next one, which goes on after VACUUM has cleared rows
($holder, $learner, $pid) = start_held($node, 'SELECT learn()');
$node->sql('DELETE FROM items WHERE id % 7 = 1; VACUUM items');
$generation = merge_info($node, 'generation');
finish_psql($holder);
finish_psql($learner);
cmp_ok(merge_info($node, 'generation'), '>', $generation, 'another generation');
index_is_complete($node, 'after learning');
$node->sql('SELECT learn()');
is($node->sql('SELECT learn()'), 0, 'the same queries have no more to teach');
$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
is(merge_info($replica, 'generation'), merge_info($node, 'generation'), 'the replica has it');
is(answers($replica), answers($node), 'and answers as the primary');
is(join(' ', ($replica->psql('postgres', "SELECT gpugraph_check('items_idx', true)"))[ 0, 2 ]),
	'0 ', 'and is sound');
is(($replica->psql('postgres', 'SELECT learn()'))[0], 3, 'it cannot learn by itself');

# WAL has the graph, and little else; the blocks of old graphs are used again
my $bytes;
wait_for_merges($node);
$node->sql('CHECKPOINT');
my $lsn = $node->lsn('insert');
$node->sql("SELECT gpugraph_learn('items_idx', array_agg(val)) FROM asked WHERE id % 7 = 0");
cmp_ok($node->sql("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$lsn')"),
	'<', merge_info($node, 'adjacency_bytes') + 100_000, 'WAL has the graph alone');
for (1 .. 6)
{
	$node->sql("SELECT gpugraph_learn('items_idx', array_agg(val)) FROM asked WHERE id % 7 = $_");
	$bytes = merge_info($node, 'total_bytes') if $_ == 2;
}
cmp_ok(merge_info($node, 'total_bytes'), '<=', $bytes, 'space is used again');
index_is_complete($node, 'after learning six times more');
finish_test($replica, $node);
