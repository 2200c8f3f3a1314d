# A primary goes on after its standby was promoted. After pg_rewind it follows the new primary, and
# its indexes keep nothing of what it changed in between.
use Gpugraph;

my $old = new_node('old', init => { allows_streaming => 1 },
	conf => "wal_log_hints = on\nwal_keep_size = 512MB\nmax_wal_size = 2GB\n");
my $new = start_standby($old, 'new');
make_items($old, 3000, 16);
$old->sql(<<'SQL');
CREATE TABLE others AS SELECT * FROM items;
CREATE INDEX others_idx ON others USING gpugraph (val vector_l2_ops);
INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id % 5 = 0;
SQL

# The two part, each changes what the other has, and the old one comes back.
sub part_and_rewind
{
	my ($what, $on_old, $on_new) = @_;

	$old->wait_for_catchup($new, 'replay', $old->lsn('insert'));
	$new->promote;
	$old->sql($on_old);
	$new->sql($on_new);
	# pg_rewind asks the control file for the timeline
	$new->sql('CHECKPOINT');
	isnt(answers($old), answers($new), "$what: they differ");

	$old->stop('fast');
	my $conf = slurp_file($old->data_dir . '/postgresql.conf');
	command_ok([ 'pg_rewind', '--target-pgdata', $old->data_dir, '--source-server',
		$new->connstr('postgres'), '--no-sync' ],
		"$what: pg_rewind");
	# the other one's came with it
	open(my $file, '>', $old->data_dir . '/postgresql.conf') or die $!;
	print $file $conf;
	close($file);
	$old->enable_streaming($new);
	$old->set_standby_mode;
	$old->start;
	$new->wait_for_catchup($old, 'replay', $new->lsn('insert'));
	is(answers($old), answers($new), "$what: equal answers");
	for my $table (qw(items others))
	{
		is(join(' ',
			($old->psql('postgres', "SELECT gpugraph_check('${table}_idx', true)"))[ 0, 2 ]), '0 ',
			"$what: $table is sound");
		is($old->sql("SELECT complete('$table')"), 'ok', "$what: every row of $table is found");
	}

	# the other way around next time
	($old, $new) = ($new, $old);
	return;
}

part_and_rewind(
	'inserts and VACUUM',
	"INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id <= 2000;
	 DELETE FROM items WHERE id % 3 = 0; DELETE FROM others WHERE id % 2 = 0;
	 VACUUM items; VACUUM others; CHECKPOINT",
	"DELETE FROM items WHERE id % 4 = 0;
	 INSERT INTO items SELECT id + 30000, cat, big, val FROM others WHERE id <= 500;
	 INSERT INTO others SELECT id + 30000, cat, big, val FROM others");
$old->sql('VACUUM items; VACUUM others');
part_and_rewind(
	'new files',
	"REINDEX INDEX items_idx; DELETE FROM items WHERE id % 7 = 0; VACUUM items;
	DROP INDEX others_idx; CREATE INDEX more_idx ON others USING gpugraph (val vector_cosine_ops)",
	"DELETE FROM items WHERE id % 5 = 1; REINDEX INDEX others_idx; TRUNCATE others;
	INSERT INTO others SELECT * FROM items");
$old->sql('INSERT INTO items SELECT id + 100000, cat, big, val FROM items WHERE id < 1000');
$old->sql('VACUUM items');
part_and_rewind(
	'blocks used again',
	"DELETE FROM items; VACUUM items;
	INSERT INTO others SELECT id + 200000, cat, big, val FROM others",
	"DELETE FROM others WHERE id % 2 = 1;
	INSERT INTO items SELECT id + 300000, cat, big, val FROM items WHERE id < 500");

finish_test($new, $old);
