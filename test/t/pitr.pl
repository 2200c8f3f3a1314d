# Recovery from a base backup to a point in time gives the answers of that time.
use Gpugraph;

my $node = new_node('origin', init => { allows_streaming => 1, has_archiving => 1 });
make_items($node, 2000, 16);
$node->backup('base');

my %answers;
sub remember
{
	my ($point) = @_;

	$answers{$point} = answers($node);
	$node->sql("SELECT pg_create_restore_point('$point')");
	return;
}

$node->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id % 2 = 0');
remember('inserted');
$node->sql('DELETE FROM items WHERE id % 3 = 0');
$node->sql('VACUUM items');
remember('vacuumed');
$node->sql('REINDEX INDEX items_idx');
remember('rebuilt');
$node->sql('DELETE FROM items');
$node->sql('VACUUM items');
$node->sql('SELECT pg_switch_wal()');

for my $point ('inserted', 'vacuumed', 'rebuilt')
{
	my $restored = PostgreSQL::Test::Cluster->new("at_$point");

	$restored->init_from_backup($node, 'base', has_restoring => 1, standby => 0);
	$restored->append_conf('postgresql.conf',
		"recovery_target_name = '$point'\nrecovery_target_action = promote\narchive_mode = off\n");
	$restored->start;
	$restored->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
	is(answers($restored), $answers{$point}, "$point: the answers of then");
	index_is_complete($restored, $point);
	$restored->sql('INSERT INTO items SELECT id + 1000000, cat, big, val FROM items');
	index_is_complete($restored, "$point, and rows inserted");
	$restored->stop;
}

finish_test($node);
