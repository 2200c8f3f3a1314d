# An immediate stop during inserts, VACUUM and CREATE INDEX leaves an index that agrees with its
# table.
use Gpugraph;
use Time::HiRes qw(usleep);

my $node = new_node('immediate');
make_items($node, 3000, 16);

# inserts: the stop comes somewhere in the middle, three times
for my $round (1 .. 3)
{
	my $session = insert_for_ever($node, 'items',
		"SELECT $round * 1000000 + i, 0, 0, val FROM items WHERE id = 1 + i % 3000", 200);

	$node->stop('immediate');
	finish_psql($session);
	$node->start;
	index_is_complete($node, "stopped during inserts, round $round");
}
cmp_ok($node->sql("SELECT delta_rows FROM gpugraph_index_info('items_idx')"),
	'>=', 600, 'rows inserted before the stops are there');

# rows longer than a page
$node->sql(<<'SQL');
CREATE TABLE wide (id int, val vector(5000));
CREATE INDEX wide_idx ON wide USING gpugraph (val vector_l2_ops);
SQL
my $session = insert_for_ever($node, 'wide',
	'SELECT i, array_agg(((i * 31 + d * 17) % 101)::real)::vector FROM generate_series(1, 5000) d',
	30);
$node->stop('immediate');
finish_psql($session);
$node->start;
index_is_complete($node, 'stopped during inserts of long rows', 'wide');

# VACUUM: slowed down, so that the stop comes in the middle of the index. At its last segment it
# rests.
$node->sql('DELETE FROM items WHERE id % 3 = 0');
my $holder = hold_at($node, 'vacuum_last');
$session = start_psql($node, 'SET gpugraph.fault = hold_vacuum_last', 'SET vacuum_cost_delay = 20',
	'SET vacuum_cost_limit = 1', 'VACUUM items');
ok_in_time(sub { $node->sql('SELECT phase FROM pg_stat_progress_vacuum')
	eq 'vacuuming indexes' }, 'VACUUM is at the indexes');
usleep(50_000);
$node->stop('immediate');
finish_psql($session);
finish_psql($holder);
$node->start;
index_is_complete($node, 'stopped during VACUUM');
$node->sql('VACUUM items');
index_is_complete($node, 'VACUUM after that');

# VACUUM that gives back the delta and a segment
$node->sql('DELETE FROM items WHERE id <= 3000; VACUUM items');
$node->stop('immediate');
$node->start;
index_is_complete($node, 'stopped after a segment was given back');
$node->sql('INSERT INTO items SELECT id + 5000000, 0, 0, val FROM items');
$node->stop('immediate');
$node->start;
index_is_complete($node, 'stopped after blocks were used again');

# CREATE INDEX
$node->sql("SELECT make_data('more', 24000, 32, 40)");
$session = start_psql($node, 'CREATE INDEX more_idx ON more USING gpugraph (val vector_l2_ops)');
ok(defined wait_for_progress($node, 'building index', $session), 'the build had begun');
$node->stop('immediate');
finish_psql($session);
$node->start;
is($node->sql("SELECT count(*) FROM pg_class WHERE relname = 'more_idx'"), '0',
	'an index whose build was stopped is not there');
$node->sql('CREATE INDEX more_idx ON more USING gpugraph (val vector_l2_ops)');
$node->stop('immediate');
$node->start;
index_is_complete($node, 'stopped after CREATE INDEX', 'more');

finish_test($node);
