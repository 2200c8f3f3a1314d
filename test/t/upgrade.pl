# pg_upgrade carries an index over: its blocks are copied as they are, and so is the sample that it
# learned from. test/upgrade runs this from one version of PostgreSQL to another.
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
$old->safe_psql('postgres', "SELECT make_data('asked', 400, 16, 7);
	CREATE FUNCTION learn() RETURNS bigint LANGUAGE sql AS
		'SELECT gpugraph_learn(''more_idx'', (SELECT array_agg(val ORDER BY id) FROM asked))'");
my $learned = $old->safe_psql('postgres', 'SELECT learn()');
cmp_ok($learned, '>', 100, 'edges are learned');
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
is($new->safe_psql('postgres', 'SELECT learn()'), 0, 'what was learned is there');
is($new->safe_psql('postgres', "SELECT sample_queries FROM gpugraph_index_info('more_idx')"), 400,
	'and so is the sample');
cmp_ok($new->safe_psql('postgres', 'REINDEX INDEX more_idx; SELECT learn()'), '<', $learned / 4,
	'which a build learns from again');
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
