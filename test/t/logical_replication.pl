# A table that another cluster gets by logical replication has an index of its own there, which
# every change reaches. test/upgrade runs this from one version of PostgreSQL to another.
use Gpugraph;
use Residency;

my $publisher = new_node('publisher', init => { allows_streaming => 'logical' });
make_items($publisher, 2000, 16);
my $subscriber = newer_node('subscriber');
init_node($subscriber);
$subscriber->append_conf('postgresql.conf', "autovacuum = off\njit = off\n" . service_conf());
$subscriber->start;
$subscriber->sql('CREATE EXTENSION vector; CREATE EXTENSION gpugraph');
load_helpers($subscriber);
# other options than on the publisher, and few rows to a segment, so that the worker merges
$subscriber->sql('CREATE TABLE items
	(id int PRIMARY KEY, cat int, big int, val vector(16));
	CREATE TABLE queries (q int PRIMARY KEY, val vector(16));
	CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat)
	WITH (storage = float16, seal_rows = 500)');
$publisher->sql('ALTER TABLE queries ADD PRIMARY KEY (q);
	CREATE PUBLICATION nearest FOR TABLE items, queries');
my $from = $publisher->connstr . ' dbname=postgres';
$subscriber->sql("CREATE SUBSCRIPTION nearest CONNECTION '$from' PUBLICATION nearest");

my $contents = "SELECT count(*), md5(string_agg(id || ' ' || cat || val::text, ',' ORDER BY id))
	FROM items";
my $exact = 'SET enable_indexscan = off; SELECT q, (SELECT array_agg(id)
	FROM (SELECT id FROM items WHERE cat < 40 ORDER BY items.val <-> queries.val, id LIMIT 10) s)
	FROM queries ORDER BY q';

sub equal
{
	my ($what) = @_;

	$publisher->wait_for_catchup('nearest');
	is($subscriber->sql($contents), $publisher->sql($contents), "$what: the same rows");
	is($subscriber->sql($exact), $publisher->sql($exact), "$what: the same exact answers");
	for my $filter ('true', 'cat < 40')
	{
		cmp_ok($subscriber->sql("SELECT recall('items', '<->', 10, '$filter')"),
			'>=', 0.98, "$what: recall, where $filter");
	}
	index_is_complete($subscriber, $what);
	return;
}

$subscriber->wait_for_subscription_sync($publisher, 'nearest');
equal('copied');
$publisher->sql('INSERT INTO items SELECT id + 10000, cat, big,
	val + array_fill(0.01::real, ARRAY[16])::vector FROM items');
equal('inserted');
# gpugraph_merge() is false while the worker merges
wait_for(sub { return $subscriber->sql("SELECT gpugraph_merge('items_idx')") eq 't'; });
$subscriber->sql("SELECT gpugraph_prewarm('items_idx')");
truth_by_device($subscriber, 'a subscriber with a device');
# of every cluster of make_items() some rows stay, so that queries stay like rows
$publisher->sql('UPDATE items
	SET val = val + array_fill(0.1::real, ARRAY[16])::vector WHERE id % 3 = 0;
	UPDATE items SET cat = cat + 1 WHERE id % 4 = 0;
	DELETE FROM items WHERE id % 7 = 0;
	BEGIN; DELETE FROM items; ROLLBACK');
$subscriber->sql("SELECT gpugraph_merge('items_idx')");
equal('updated and deleted');
$subscriber->sql('VACUUM items');
equal('vacuumed');
$publisher->sql('CREATE TABLE kept AS SELECT * FROM items; TRUNCATE items;
	INSERT INTO items SELECT * FROM kept WHERE id % 2 = 0');
equal('truncated and filled');

# the subscriber goes on alone, as after a switch to it
$subscriber->sql('DROP SUBSCRIPTION nearest');
$publisher->stop;
$subscriber->sql('INSERT INTO items SELECT id + 100000, cat, big, val FROM items');
index_is_complete($subscriber, 'alone');

finish_test($subscriber);
