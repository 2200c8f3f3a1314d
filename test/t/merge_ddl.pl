# Merges hold nobody up: whatever is done to a table, an index or a database while a worker merges
# goes on at once, and the merge gives way. The worker is stopped (SIGSTOP) where it builds the
# graph, so nothing that it holds there could be given back in time.
use Gpugraph;
use Merging;

my $node = merging_node('ddl', init => { allows_streaming => 1 });
my $insert = 'INSERT INTO slow ' . slow_rows(1, 500);
my $impatient = 'SET lock_timeout = 10000';

# the statement, and whether the table and its index are there afterwards
for my $case (
	[ 'DROP INDEX CONCURRENTLY slow_idx', 0 ],
	[ 'DROP TABLE slow', 0 ],
	[ 'TRUNCATE slow', 1 ],
	[ 'REINDEX INDEX slow_idx', 1 ],
	[ 'REINDEX INDEX CONCURRENTLY slow_idx', 1 ],
	[ 'CREATE INDEX CONCURRENTLY ON slow USING gpugraph (val vector_l1_ops)', 1 ],
	[ 'ALTER TABLE slow ADD COLUMN more float8 DEFAULT random()', 1 ],
	[ 'ALTER INDEX slow_idx SET (seal_rows = 300)', 1 ],
	[ 'VACUUM FULL slow', 1 ],
	[ 'CLUSTER slow USING slow_pkey', 1 ],
	[ 'VACUUM slow', 1 ],
	[ 'ANALYZE slow', 1 ])
{
	my ($statement, $there) = @$case;
	my $pid;

	slow_index($node, 'slow');
	$node->sql($insert);
	$pid = stop_in_graph($node, 'slow');
	ok(defined $pid, "$statement: a worker merges");
	is(finish_psql(start_psql($node, $impatient, $statement)), '', "$statement: goes on");
	kill 'CONT', $pid if defined $pid;
	if ($there)
	{
		index_is_complete($node, $statement, 'slow');
		ok_in_time(sub { $node->sql(
			"SELECT gpugraph_merge('slow_idx')") eq 't' }, "$statement: merged afterwards");
		index_is_complete($node, "$statement, merged", 'slow');
	}
	$node->sql('DROP TABLE IF EXISTS slow');
}
unlike(slurp_file($node->logfile), qr/ERROR:/, 'a merge that gives way is no error in the log');

# an index that is locked for long delays only its own merge
make_source($node, 2000, 8, 'seal_rows = 200');
slow_index($node, 'slow');
my $holder = rest_after($node, 'BEGIN', 'REINDEX INDEX slow_idx');
my $waiting = start_psql($node, $insert);
$node->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM source');
ok_in_time(sub { merge_info($node, 'delta_rows') < 600 }, 'another table is merged');
end_rest($holder);
is(finish_psql($waiting), '', 'the insert goes on');
index_is_complete($node, 'locked and let go', 'slow');
# the transaction that made the index inserts, asks, and keeps it locked
$holder = rest_after($node, 'BEGIN', 'CREATE TABLE own AS SELECT * FROM slow',
	'CREATE INDEX own_idx ON own USING gpugraph (val vector_l2_ops) WITH (seal_rows = 200)',
	'INSERT INTO own SELECT * FROM slow', 'SAVEPOINT s', 'TRUNCATE slow', $insert);
$node->sql('INSERT INTO items SELECT id + 20000, cat, big, val FROM source');
ok_in_time(sub { merge_info($node, 'delta_rows') < 600 },
	'beside a transaction that made an index and inserts');
end_rest($holder);
index_is_complete($node, 'rolled back', 'slow');

# The bug: where a synchronous standby did not answer, a worker waited for it with the table locked.
# The fix: it does not wait.
alter_system($node, "SET synchronous_standby_names = 'nobody'");
my $before = merge_info($node, 'generation');
my $local = 'SET synchronous_commit = local';
$node->sql("$local;
	INSERT INTO items SELECT id + 30000, cat, big, val FROM source");
ok_in_time(sub { merge_info($node, 'generation') > $before }, 'no standby: a merge');
is(finish_psql(start_psql($node, $local, $impatient, 'ALTER TABLE items ADD COLUMN more int')), '',
	'no standby: the table is free after a merge');
alter_system($node, 'RESET synchronous_standby_names');

# databases: their sessions must end before they are dropped or copied
sub make_other
{
	$node->sql('CREATE DATABASE other');
	$node->safe_psql('other', 'CREATE EXTENSION vector; CREATE EXTENSION gpugraph');
	slow_index($node, 'slow', 'other');
	return;
}

sub merges_other
{
	return defined wait_for(sub { $node->sql("SELECT count(*)
		FROM gpugraph_stat_merge WHERE datname = 'other' AND phase = 'building graph'") > 0 });
}

make_other();
$node->safe_psql('other', 'INSERT INTO slow ' . slow_rows(1, 2500));
ok(merges_other(), 'a worker merges in another database');
is(error_of($node, 'CREATE DATABASE copy TEMPLATE other'), '',
	'CREATE DATABASE TEMPLATE beside a merge');
is($node->safe_psql('copy', "SELECT gpugraph_check('slow_idx', true), gpugraph_merge('slow_idx'),
	gpugraph_check('slow_idx', true)"), '|t|', 'the copy is sound, before a merge and after');
is(error_of($node, 'DROP DATABASE copy'), '', 'DROP DATABASE of the copy');
$node->safe_psql('other', 'INSERT INTO slow ' . slow_rows(3001, 5000));
ok(merges_other(), 'a worker merges in another database');
is(error_of($node, 'DROP DATABASE other'), '', 'DROP DATABASE beside a merge');
make_other();
$node->safe_psql('other', 'INSERT INTO slow ' . slow_rows(1, 300));
ok_in_time(sub { $node->sql("SELECT count(*) FROM gpugraph_stat_merge
	WHERE datname = 'other' AND phase = 'watching'") > 0 }, 'a worker watches another database');
is(error_of($node, 'DROP DATABASE other'), '', 'DROP DATABASE beside a worker');

# The bug: an index whose database was dropped while it waited for a worker waited for ever, and no
# worker stayed with any other index.
# The fix: a worker that cannot connect takes its database's indexes off the list.
make_other();
$node->sql('TRUNCATE slow');
$node->sql($insert);
my $pid = stop_in_graph($node, 'slow');
ok(defined $pid, 'the only worker is busy');
$node->safe_psql('other', 'INSERT INTO slow ' . slow_rows(1, 300));
is($node->sql("SELECT phase FROM gpugraph_stat_merge WHERE datname = 'other'"),
	'waiting for a worker', 'the index of another database waits');
$node->sql('ALTER DATABASE other ALLOW_CONNECTIONS false');
kill 'CONT', $pid;
ok_in_time(sub { $node->sql("SELECT count(*) FROM gpugraph_stat_merge
	WHERE relid <> 'slow_idx'::regclass") == 0 }, 'it is forgotten when nobody can connect');
is(error_of($node, 'DROP DATABASE other'), '', 'and its database can be dropped');
$node->sql('TRUNCATE items');
$node->sql('INSERT INTO items SELECT * FROM source');
ok_in_time(sub { merge_info($node, 'delta_rows') < 600 }, 'others are merged');

finish_test($node);
