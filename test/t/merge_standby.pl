# Merges on a standby: queries are cancelled or right, the replica is equal, a replica that is
# promoted in the midst of a merge goes on and loses no space, and so does recovery to a point of
# it.
use Gpugraph;
use Merging;

my $primary = merging_node('primary', init => { allows_streaming => 1, has_archiving => 1 },
	conf => "max_parallel_maintenance_workers = 0\n");
make_source($primary, 2000, 16, 'seal_rows = 0');
$primary->backup('backup');

sub new_replica
{
	my ($name, $conf) = @_;
	my $replica = PostgreSQL::Test::Cluster->new($name);

	$replica->init_from_backup($primary, 'backup', has_streaming => 1);
	$replica->append_conf('postgresql.conf', "hot_standby_feedback = off\n$conf");
	$replica->start;
	return $replica;
}

my $replica = new_replica('replica', "max_standby_streaming_delay = 0\n");
is(error_of($replica, "SELECT gpugraph_merge('items_idx')") =~
	/ERROR:  cannot execute gpugraph_merge\(\) during recovery/, 1, 'no merge on a standby');
like(error_of($replica, "DO \$\$ BEGIN
	PERFORM gpugraph_merge('items_idx');
	EXCEPTION WHEN read_only_sql_transaction THEN RAISE 'refused'; END \$\$"),
	qr/refused/, 'SQLSTATE 25006');

# a cursor on the standby whose pages are merged and used again on the primary
my $cursor = start_cursor($replica);
for my $round (1 .. 5)
{
	$primary->sql("INSERT INTO items SELECT id + ${round}0000, cat, big, val FROM source");
	$primary->sql("SELECT gpugraph_merge('items_idx')");
}
is_equal($replica, $primary, 'merged');
$cursor->{in} .= "FETCH ALL FROM c;\nCOMMIT;\n\\q\n";
finish_psql($cursor);
is(scalar(grep { /^\d+$/ && $_ > 2000 } split /\n/, $cursor->{out}), 0,
	'a cursor of the standby returns no row of a later time');
like($cursor->{err}, qr/conflict with recovery|connection|terminating|aborted/, 'it was cancelled');

# deletes and compaction
$primary->sql('DELETE FROM items WHERE id % 4 <> 0');
$primary->sql('ALTER INDEX items_idx SET (seal_rows = 300)');
$primary->sql('VACUUM (FREEZE) items');
ok_in_time(sub { merge_info($primary, 'rows + delta_rows') < 4000 }, 'compacted');
is_equal($replica, $primary, 'compacted');
$primary->sql('ALTER INDEX items_idx SET (seal_rows = 0)');
$primary->restart;

# recovery to points in the midst of a merge
# (of a fresh index: nothing is free, so the merge makes the relation longer)
$primary->sql('REINDEX INDEX items_idx');
$primary->sql('INSERT INTO items SELECT id + 90000, cat, big,
	val + array_fill(0.001::real, ARRAY[16])::vector FROM source');
my $start = $primary->lsn('insert');
my $merge = start_psql($primary, "SELECT gpugraph_merge('items_idx')");
$merge->{harness}->finish;
is($merge->{err}, '', 'a merge whose WAL is cut');
my $answers = answers($primary);
my $end = $primary->lsn('insert');
$primary->sql('SELECT pg_switch_wal()');
$primary->wait_for_catchup($replica, 'replay', $primary->lsn('insert'));

# WAL positions in its midst, from the records of the merge
my ($dump, $problems) = ('', '');
IPC::Run::run([ 'pg_waldump', '--path', $primary->data_dir . '/pg_wal', '--start', $start, '--end',
	$end ], '>', \$dump, '2>', \$problems);
my @records = $dump =~ /rmgr: (\w+).*?lsn: (\S+),/g;
# right after blocks were taken (a change of the metapage before pages), where a page lacks, and
# before the flip
my @cuts;
while (my ($kind, $lsn) = splice @records, 0, 2)
{
	push @cuts, $lsn if $kind eq 'Generic';
}
cmp_ok(scalar @cuts, '>', 4, 'the merge took blocks and flipped: ' . @cuts . ' changes');
@cuts = @cuts[ 1, 2, $#cuts - 1 ];

for my $cut (@cuts)
{
	my $restored = PostgreSQL::Test::Cluster->new("at_$cut" =~ s{/}{_}r);

	$restored->init_from_backup($primary, 'backup', has_restoring => 1, standby => 0);
	$restored->append_conf('postgresql.conf', "recovery_target_lsn = '$cut'\n"
		. "recovery_target_inclusive = on\nrecovery_target_action = promote\narchive_mode = off\n");
	$restored->start;
	$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
	is(answers($restored), $answers, "$cut: the answers of then");
	index_is_complete($restored, $cut);
	$restored->sql('INSERT INTO items SELECT id + 1000000, cat, big, val FROM source');
	index_is_complete($restored, "$cut, and rows inserted");
	is(error_of($restored, "SELECT gpugraph_merge('items_idx')"), '', "$cut: a merge");
	index_is_complete($restored, "$cut, and merged");
	$restored->sql('DELETE FROM items WHERE id % 3 = 0');
	is(error_of($restored, 'VACUUM items'), '', "$cut: VACUUM");
	index_is_complete($restored, "$cut, and vacuumed");
	$restored->stop;
}

# promotion in the midst of a merge
slow_index($primary, 'slow');
$primary->sql('INSERT INTO slow ' . slow_rows(1, 1500));
my $pid = stop_in_graph($primary, 'slow');
ok(defined $pid, 'a merge is under way');
$primary->wait_for_catchup($replica, 'replay', $primary->lsn('insert'));
$replica->promote;
is(error_of($replica, 'INSERT INTO slow ' . slow_rows(2001, 2300)), '', 'promoted: inserts');
ok_in_time(sub { merge_info($replica, 'delta_rows', 'slow') < 200 }, 'promoted: merges');
index_is_complete($replica, 'promoted', 'slow');
index_is_complete($replica, 'promoted');
kill 'CONT', $pid;

$replica->stop;
$primary->stop('immediate');
done_testing();
