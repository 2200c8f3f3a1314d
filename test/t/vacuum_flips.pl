# VACUUM beside merges that flip at chosen moments. What VACUUM removed never comes back with the
# row that has its place by then, VACUUM reads no more than the pages that were there when it began
# and those of segments that came meanwhile, and what it found dead it gives back.
#
# gpugraph.fault has a process rest at a place while another one holds the advisory lock of that
# place (GgHoldPlace in service/shared/service.h).
use Gpugraph;
use Merging;

my $node = new_node('flips');
# rows of other values, which get the places of those removed
my $again = 'INSERT INTO items
	SELECT id + 1000000 * (1 + (SELECT max(id) / 1000000 FROM items)), cat,
		(SELECT array_agg(x + 7)::real[]::vector(8) FROM unnest(val::real[]) x)
	FROM items WHERE id % 3 = 1 AND id < 1000000';

# A statement that is to rest at a place.
sub start_at
{
	my ($place, $sql) = @_;
	my $session = start_psql($node, "SET gpugraph.fault = hold_$place",
		'SET client_min_messages = debug1', $sql);

	ok(rests_at($node, $place), "$sql rests: $place");
	return $session;
}

# Pages that VACUUM read, and of these those of segments that came meanwhile.
sub pages_read
{
	my ($session) = @_;
	my $err = finish_psql($session);
	my ($pages, $late) =
		$err =~ /read (\d+) pages of rows of gpugraph index "items_idx", (\d+) of them/;

	unlike($err, qr/ERROR/, 'VACUUM ends');
	return ($pages // -1, $late // -1);
}

# Pages that hold rows now.
sub pages_now
{
	return $node->sql("SELECT (tids_bytes + delta_bytes) / 8192
		FROM gpugraph_index_info('items_idx')");
}

# A table with a segment of 4,000 rows, one of 600, and 300 rows in the delta.
sub make_table
{
	$node->sql(<<'SQL');
DROP TABLE IF EXISTS items;
CREATE TABLE items (id int, cat int, val vector(8)) WITH (vacuum_truncate = off);
CREATE FUNCTION pg_temp.fill(a int, b int) RETURNS SETOF items LANGUAGE sql AS $$
	SELECT i, i % 10, (SELECT array_agg(sin(i * j + i % 17))::real[]::vector(8)
		FROM generate_series(1, 8) j) FROM generate_series(a, b) i
$$;
INSERT INTO items SELECT * FROM pg_temp.fill(1, 4000);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 500);
INSERT INTO items SELECT * FROM pg_temp.fill(4001, 4600);
VACUUM items;
ALTER INDEX items_idx SET (seal_rows = 0);
INSERT INTO items SELECT * FROM pg_temp.fill(4601, 4900);
SQL
	is(merge_info($node, 'segments'), 2, 'a large segment, a small one, and the delta');
	return;
}

# Before a merge begins, whose snapshot would keep them.
sub delete_third
{
	$node->sql('DELETE FROM items WHERE id % 3 = 0');
	return;
}

# Rows that are dead at once, whatever snapshots there are.
sub insert_dead
{
	$node->sql('BEGIN; INSERT INTO items SELECT 500000 + id, cat, val FROM items
		WHERE id BETWEEN 1 AND 2000; ROLLBACK');
	return;
}

sub insert_more
{
	my ($n) = @_;

	$node->sql("INSERT INTO items SELECT 500000 + id, cat, val FROM items
		WHERE id BETWEEN 1 AND $n");
	return;
}

sub merge_all
{
	is($node->sql("SELECT gpugraph_merge('items_idx')"), 't', 'a merge of all');
	return;
}

sub is_whole
{
	my ($what) = @_;

	index_is_complete($node, $what);
	$node->sql($again);
	index_is_complete($node, "$what, places used again");
	$node->sql('VACUUM items');
	merge_all();
	index_is_complete($node, "$what, merged once more");
	return;
}

# a merge has read the TIDs; VACUUM goes through all of the index, and the places are used again
make_table();
my $hold = hold_at($node, 'merge');
delete_third();
my $merge = start_at('merge', "SELECT gpugraph_merge('items_idx')");
$node->sql('VACUUM (FREEZE) items');
$node->sql($again);
finish_psql($hold);
unlike(finish_psql($merge), qr/ERROR/, 'the merge ends');
is(merge_info($node, 'segments'), 1, 'and has flipped');
is_whole('VACUUM between reading and flip');

# a merge has read the TIDs; VACUUM has done with the small segment and rests in the large one
for my $last (0, 1)
{
	make_table();
	my $pages;
	my $place = $last ? 'vacuum_last' : 'vacuum_segment';
	my ($hold_merge, $hold_vacuum) = (hold_at($node, 'merge'), hold_at($node, $place));
	delete_third();
	$merge = start_at('merge', "SELECT gpugraph_merge('items_idx')");
	$pages = pages_now();
	my $vacuum = start_at($place, 'VACUUM (FREEZE) items');
	finish_psql($hold_merge);
	unlike(finish_psql($merge), qr/ERROR/, "$place: the merge ends first");
	my $merged = pages_now();
	finish_psql($hold_vacuum);
	my ($read, $late) = pages_read($vacuum);
	cmp_ok($late, '>', 0, "$place: VACUUM reads the merged segment");
	cmp_ok($late, '<=', $merged, "$place: once");
	cmp_ok($read, '<=', $pages + $merged, "$place: and what was there before at most once");
	is_whole("$place: a flip within VACUUM");
}

# VACUUM has cleared the delta's rows, but not said so; what was read before is merged
make_table();
my ($hold_merge, $hold_vacuum) = (hold_at($node, 'merge'), hold_at($node, 'vacuum_delta'));
delete_third();
$merge = start_at('merge', "SELECT gpugraph_merge('items_idx')");
my $vacuum = start_at('vacuum_delta', 'VACUUM (FREEZE) items');
finish_psql($hold_merge);
unlike(finish_psql($merge), qr/ERROR/, 'the merge ends first');
finish_psql($hold_vacuum);
my ($read, $late) = pages_read($vacuum);
cmp_ok($late, '>', 0, 'VACUUM reads what was made of the delta');
is_whole('the delta merged while VACUUM is there');

# the same of an index that has no segment
$node->sql('DROP INDEX items_idx');
$node->sql('CREATE TABLE copy AS TABLE items');
$node->sql('TRUNCATE items');
$node->sql('CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (seal_rows = 0)');
$node->sql('INSERT INTO items TABLE copy');
$node->sql('DROP TABLE copy');
($hold_merge, $hold_vacuum) = (hold_at($node, 'merge'), hold_at($node, 'vacuum_delta'));
$node->sql('DELETE FROM items WHERE id % 3 = 2');
$merge = start_at('merge', "SELECT gpugraph_merge('items_idx')");
$vacuum = start_at('vacuum_delta', 'VACUUM (FREEZE) items');
finish_psql($hold_merge);
unlike(finish_psql($merge), qr/ERROR/, 'the first seal ends first');
finish_psql($hold_vacuum);
($read, $late) = pages_read($vacuum);
cmp_ok($late, '>', 0, 'VACUUM reads the first segment');
is_whole('the delta sealed while VACUUM is there');

# the same, but VACUUM has said so of the delta, and rests in a segment that does not stay either
make_table();
($hold_merge, $hold_vacuum) = (hold_at($node, 'merge'), hold_at($node, 'vacuum_segment'));
delete_third();
$merge = start_at('merge', "SELECT gpugraph_merge('items_idx')");
$vacuum = start_at('vacuum_segment', 'VACUUM (FREEZE) items');
insert_more(200);
finish_psql($hold_merge);
finish_psql($merge);
merge_all();
finish_psql($hold_vacuum);
($read, $late) = pages_read($vacuum);
cmp_ok($late, '<=', pages_now(), 'after two merges of all VACUUM reads the last one alone');
is_whole('two merges while VACUUM is in one segment');

# VACUUM gives back a whole segment that is being merged: the merge begins anew with the others
make_table();
$hold_merge = hold_at($node, 'merge');
$node->sql('DELETE FROM items WHERE id BETWEEN 4001 AND 4600');
$merge = start_at('merge', "SELECT gpugraph_merge('items_idx')");
$node->sql('VACUUM (FREEZE) items');
is(merge_info($node, 'segments'), 1, 'VACUUM gives back a segment without rows');
finish_psql($hold_merge);
unlike(finish_psql($merge), qr/ERROR/, 'the merge ends');
is(merge_info($node, 'segments, delta_rows < 100'), '1|t', 'and has merged the delta');
is_whole('a segment given back during a merge');

# VACUUM has cleared all and said so; a merge that reads anew has nothing that is to be read again
make_table();
insert_dead();
delete_third();
my $hold_give = hold_at($node, 'give_back');
my $pages = pages_now();
$vacuum = start_at('give_back', 'VACUUM (FREEZE) items');
merge_all();
finish_psql($hold_give);
($read, $late) = pages_read($vacuum);
cmp_ok($read, '<=', $pages, 'VACUUM read each page once');
is($late, 0, 'and none of a segment that came meanwhile');
is_whole('a merge between clearing and giving back');

# a merge has read the delta's first pages; all rows on later ones are dead, which VACUUM finds
make_table();
$hold_merge = hold_at($node, 'merge');
$merge = start_at('merge', "SELECT gpugraph_merge('items_idx')");
insert_dead();
$hold_give = hold_at($node, 'give_back');
$vacuum = start_at('give_back', 'VACUUM (FREEZE) items');
finish_psql($hold_merge);
finish_psql($merge);
cmp_ok(merge_info($node, 'delta_bytes'), '>', 8 * 8192, 'pages of dead rows are in the delta');
finish_psql($hold_give);
pages_read($vacuum);
cmp_ok(merge_info($node, 'delta_bytes'), '<=', 2 * 8192,
	'VACUUM gives back what it found, although a merge has flipped meanwhile');
is_whole('a flip while VACUUM gives back');

# a merge flips while CREATE INDEX CONCURRENTLY collects the rows that the index has
make_table();
$node->sql('DROP INDEX items_idx');
$hold_vacuum = hold_at($node, 'vacuum_last');
my $create = start_at('vacuum_last',
	'CREATE INDEX CONCURRENTLY items_idx ON items USING gpugraph (val vector_l2_ops)');
insert_more(300);
delete_third();
merge_all();
finish_psql($hold_vacuum);
unlike(finish_psql($create), qr/ERROR/, 'CREATE INDEX CONCURRENTLY ends');
is_whole('CREATE INDEX CONCURRENTLY');

finish_test($node);
