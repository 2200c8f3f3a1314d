# A streaming replica answers as its primary does, over cycles of inserts, deletes and VACUUM;
# promoted, it goes on.
use Gpugraph;

my $primary = new_node('primary', init => { allows_streaming => 1 });
my $replica = start_standby($primary, 'replica', "max_standby_streaming_delay = 30s\n");
make_items($primary, 2000, 16);

is_equal($replica, $primary, 'built');
$primary->sql("SELECT make_data('asked', 400, 16, 7);
	SELECT gpugraph_learn('items_idx', (SELECT array_agg(val) FROM asked))");
is_equal($replica, $primary, 'learned');
for my $cycle (1 .. 10)
{
	$primary->sql(<<"SQL");
INSERT INTO items SELECT $cycle * 100000 + id, cat, big, val FROM items
	WHERE id <= 2000 AND id % 3 = $cycle % 3;
SQL
	is_equal($replica, $primary, "cycle $cycle, inserted") if $cycle % 5 == 0;
	$primary->sql("DELETE FROM items WHERE (id + $cycle) % 4 = 0 AND id > 20");
	$primary->sql('VACUUM items');
	is_equal($replica, $primary, "cycle $cycle, vacuumed");
}

# all rows gone: segment and delta are given back, their blocks used again
$primary->sql('CREATE TABLE kept AS SELECT * FROM items; DELETE FROM items');
$primary->sql('VACUUM items');
$primary->wait_for_catchup($replica, 'replay', $primary->lsn('insert'));
is($replica->sql('SET enable_seqscan = off;
	SELECT count(*)
	FROM (SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries LIMIT 1)) s'),
	'0', 'all deleted: no answers on the replica');
$primary->sql('INSERT INTO items SELECT * FROM kept');
is_equal($replica, $primary, 'blocks used again');
$primary->sql('REINDEX INDEX items_idx');
is_equal($replica, $primary, 'rebuilt');
$primary->sql('REINDEX INDEX CONCURRENTLY items_idx');
is_equal($replica, $primary, 'rebuilt concurrently');
$primary->sql("SELECT gpugraph_forget('items_idx')");
is_equal($replica, $primary, 'forgotten');

# an index that is unlogged cannot be read there, and says so
$primary->sql(
	'CREATE UNLOGGED TABLE u AS SELECT * FROM items; CREATE INDEX u_idx ON u USING gpugraph (val)');
$primary->wait_for_catchup($replica, 'replay', $primary->lsn('insert'));
like(error_of($replica, "SELECT gpugraph_check('u_idx')"),
	qr/cannot access temporary or unlogged relations during recovery/,
	'unlogged index on the replica');

$primary->stop;
$replica->promote;
$replica->sql('INSERT INTO items SELECT id + 50000000, cat, big, val FROM items');
$replica->sql('DELETE FROM items WHERE id < 50000000');
$replica->sql('VACUUM items');
index_is_complete($replica, 'promoted');

finish_test($replica);
