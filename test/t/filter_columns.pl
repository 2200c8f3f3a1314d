# The values of filter columns survive crashes, and are the same on a replica; they stay right while
# a background worker merges, in concurrent builds, and in unlogged tables.
use Gpugraph;
use Merging;

my $primary = merging_node('primary', init => { allows_streaming => 1 });
my $replica = start_standby($primary, 'replica');

# Rows first .. last; some equal vectors, NULLs in all columns.
sub rows
{
	my ($first, $last, $dim) = @_;
	$dim ||= 8;

	return "SELECT i, (SELECT array_agg(sin(i % 1500 * j))::real[]::vector($dim)
		FROM generate_series(1, $dim) j), nullif(i % 10, 3), nullif('name ' || i % 40, 'name 3'),
		CASE WHEN i % 6 > 0 THEN ARRAY[i % 5, i] END FROM generate_series($first, $last) i";
}

sub is_right
{
	my ($node, $what, @rels) = @_;

	$primary->wait_for_catchup($replica, 'replay', $primary->lsn('insert')) if $node eq $replica;
	for my $rel (@rels)
	{
		is(join(' ', ($node->psql('postgres',
			"SELECT gpugraph_check('${rel}_idx', true)"))[ 0, 2 ]), '0 ', "$what: $rel");
	}
	return;
}

my @rels = qw(items long);
for my $rel (@rels, 'unlogged')
{
	my $dim = $rel eq 'long' ? 2500 : 8;
	my $kind = $rel eq 'unlogged' ? 'UNLOGGED' : '';

	$primary->sql(<<"SQL");
CREATE $kind TABLE $rel (id int, val vector($dim), cat int, name text, tags int[]);
INSERT INTO $rel @{[ rows(1, $rel eq 'long' ? 40 : 2000, $dim) ]};
CREATE INDEX ${rel}_idx ON $rel USING gpugraph (val vector_l2_ops, cat, name, tags)
	WITH (seal_rows = 300);
SQL
}
is_right($primary, 'built', @rels, 'unlogged');
is_right($replica, 'built, on the replica', @rels);

$primary->sql('INSERT INTO items ' . rows(3001, 3100));
$primary->sql('INSERT INTO long ' . rows(3001, 3010, 2500));
$primary->sql("UPDATE items SET cat = cat + 1, name = NULL WHERE id % 20 = 7");
$primary->sql('DELETE FROM items WHERE id % 9 = 1');
$primary->stop('immediate');
$primary->start;
is_right($primary, 'after a crash', @rels);
is_right($replica, 'after a crash, on the replica', @rels);
$primary->sql('INSERT INTO unlogged ' . rows(1, 500));
is_right($primary, 'emptied by the crash, and filled again', 'unlogged');

# a worker merges meanwhile
my $merges = merge_info($primary, 'generation');
for my $round (1 .. 8)
{
	my $first = 10000 * $round;

	$primary->sql('INSERT INTO items ' . rows($first, $first + 699));
	$primary->sql('INSERT INTO long ' . rows($first, $first + 49, 2500));
	$primary->sql("UPDATE items SET tags = tags || $round WHERE id BETWEEN $first AND $first + 60");
	$primary->sql("DELETE FROM items WHERE id % 9 = $round");
	$primary->sql('VACUUM items') if $round % 3 == 0;
	is_right($primary, "round $round", 'items');
}
ok_in_time(sub { merge_info($primary, 'delta_rows') < 300 }, 'merged');
cmp_ok(merge_info($primary, 'generation'), '>', $merges, 'at least once');
is_right($primary, 'merged', @rels);
is_right($replica, 'merged, on the replica', @rels);

# a crash in the midst of a merge
$primary->sql(<<'SQL');
CREATE TABLE slow (id int, cat int, val vector(64)) WITH (vacuum_truncate = off);
CREATE INDEX slow_idx ON slow USING gpugraph (val vector_l2_ops, cat, (id % 7))
	WITH (seal_rows = 200, graph_degree = 64, intermediate_graph_degree = 512);
SQL
$primary->sql('INSERT INTO slow ' . slow_rows(1, 1500));
my $pid = stop_in_graph($primary, 'slow');
ok(defined $pid, 'a merge is under way');
$primary->sql('DELETE FROM slow WHERE id % 3 = 0');
$primary->sql('VACUUM slow');
kill 'CONT', $pid;
ok_in_time(sub { merge_info($primary, 'delta_rows', 'slow') < 200 }, 'the merge ends');
is_right($primary, 'a merge beside VACUUM', 'slow');
$primary->sql('INSERT INTO slow ' . slow_rows(3001, 4500));
$pid = stop_in_graph($primary, 'slow');
$primary->stop('immediate');
kill 'CONT', $pid if defined $pid;
$primary->start;
is_right($primary, 'a crash in a merge', 'slow');

# a concurrent build and a concurrent rebuild, beside inserts and updates
my $session = start_psql($primary, <<'SQL');
DO $$ BEGIN
	FOR i IN 1 .. 400 LOOP
		INSERT INTO items SELECT 500000 + i, val, i % 10, 'late ' || i, ARRAY[i] FROM items LIMIT 1;
		UPDATE items SET cat = i, name = name || 'x' WHERE id = 3000 + i;
		COMMIT;
	END LOOP;
END $$;
SQL
$primary->sql(<<'SQL');
CREATE INDEX CONCURRENTLY other_idx ON items USING gpugraph (val vector_cosine_ops, name, cat);
SQL
$primary->sql('REINDEX INDEX CONCURRENTLY items_idx');
$session->{harness}->finish;
is($session->{err}, '', 'inserts and updates');
is_right($primary, 'built concurrently', 'items', 'other');
is_right($replica, 'built concurrently, on the replica', 'items', 'other');

$primary->stop;
$replica->promote;
$replica->sql('INSERT INTO items ' . rows(800001, 801000));
is(join(' ', ($replica->psql('postgres', "SELECT gpugraph_check('items_idx', true)"))[ 0, 2 ]),
	'0 ', 'promoted, and rows inserted');
finish_test($replica);
