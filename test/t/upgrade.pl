# pg_upgrade carries an index over: its blocks are copied as they are. test/upgrade runs this from
# one version of PostgreSQL to another.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use Gpugraph;

my $old = new_node('old');
make_items($old, 2000, 16);
$old->safe_psql('postgres',
	'INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id % 2 = 0');
$old->safe_psql('postgres', 'DELETE FROM items WHERE id % 5 = 0');
$old->safe_psql('postgres', 'VACUUM items');
$old->safe_psql('postgres', "SELECT make_data('more', 2000, 16, 40);
	CREATE INDEX more_idx ON more USING gpugraph (val vector_l2_ops)
	WITH (algorithm = tsdg, alpha = 1.2)");
my $before = answers($old);
$old->stop;

my $new = newer_node('new');
init_node($new);
my @upgrade = (
	'pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir,
	'-b', $old->config_data('--bindir'), '-B', $new->config_data('--bindir'),
	'-s', $new->host, '-p', $old->port, '-P', $new->port);
chdir $PostgreSQL::Test::Utils::tmp_check or die "cannot enter $PostgreSQL::Test::Utils::tmp_check";
$new->command_ok(\@upgrade, 'pg_upgrade');

$new->append_conf('postgresql.conf', "autovacuum = off\n");
$new->start;
is(answers($new), $before, 'the same answers');
index_is_complete($new, 'upgraded');
$new->safe_psql('postgres', "INSERT INTO more SELECT id + 10000, cat, big, val FROM items;
	SELECT gpugraph_merge('more_idx')");
index_is_complete($new, 'upgraded, by tsdg', 'more');
is($new->safe_psql('postgres', "SELECT algorithm FROM gpugraph_index_info('more_idx')"), 'tsdg',
	'upgraded, by tsdg: and merged so');
$new->safe_psql('postgres', 'INSERT INTO items SELECT id + 100000, cat, big, val FROM items');
$new->safe_psql('postgres', 'DELETE FROM items WHERE id < 100000');
$new->safe_psql('postgres', 'VACUUM items');
index_is_complete($new, 'upgraded and used');

$new->stop;
done_testing();
