# An index with more extents than its metapage has room for keeps them on directory pages: answers,
# inserts, VACUUM, crashes and replicas are as without.
use Gpugraph;
use Format;

my $node = new_node('main', init => { allows_streaming => 1 });

# A page of the delta has one row of 1900 dimensions, and a row of 2100 takes two pages. A segment
# with copies stands before the delta.
my %dimensions = (items => 1900, longer => 2100);
$node->sql(<<'SQL');
CREATE FUNCTION wide(i int, n int) RETURNS vector LANGUAGE sql AS $$
	SELECT array_agg(sin(i * 13 + d * d))::vector
	FROM generate_series(1, n) d $$;
SQL
for my $rel (sort keys %dimensions)
{
	my $n = $dimensions{$rel};

	$node->sql(<<"SQL");
CREATE TABLE $rel AS SELECT i AS id, wide(i % 40, $n)::vector($n) AS val
	FROM generate_series(1, 60) i;
CREATE INDEX ${rel}_idx ON $rel USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, seal_rows = 0);
INSERT INTO $rel SELECT i, wide(i, $n) FROM generate_series(1001, 1800) i;
SQL
}
$node->sql('CREATE TABLE queries AS SELECT i AS q, wide(i * 37, 1900)::vector(1900) AS val
	FROM generate_series(1, 10) i');
my $replica = start_standby($node, 'replica');

sub directory
{
	my ($rel) = @_;

	$node->sql('CHECKPOINT');
	return read_directory(index_file($node, "${rel}_idx"));
}

sub replica_is_equal
{
	my ($what) = @_;

	$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
	is(answers($replica), answers($node), "$what: the replica answers as the primary does");
	for my $rel (sort keys %dimensions)
	{
		my ($rc, $out, $err) = $replica->psql('postgres',
			"SELECT gpugraph_check('${rel}_idx', true)");
		is("$rc $err", '0 ', "$what: $rel is sound on the replica");
	}
	return;
}

# The distances of the nearest rows to some others, by the index or without it: equal rows may come
# in either order.
sub distances
{
	my ($rel, $with) = @_;

	return $node->sql(<<"SQL");
SET enable_seqscan = off;
SET enable_indexscan = $with;
SELECT q.id, (SELECT array_agg(d)
	FROM (SELECT val <-> q.val AS d FROM $rel ORDER BY val <-> q.val LIMIT 20) s)
	FROM (SELECT * FROM $rel ORDER BY id % 13, id LIMIT 10) q ORDER BY q.id;
SQL
}

sub all_is_well
{
	my ($what) = @_;

	for my $rel (sort keys %dimensions)
	{
		index_is_complete($node, "$what, $rel", $rel);
		is(distances($rel, 'on'), distances($rel, 'off'), "$what, $rel: right answers");
	}
	return;
}

# Every other row goes: each leaves a gap, which is an extent, beside one between the gaps. No old
# snapshot holds the blocks, so the next rows go there. Of items fewer go, and a page holds all that
# the metapage does not.
my %last = (items => 1390, longer => 1800);
for my $rel (sort keys %dimensions)
{
	$node->sql("DELETE FROM $rel WHERE id > 1000 AND id < $last{$rel} AND id % 2 = 0;
		VACUUM (FREEZE) $rel");
	my $d = directory($rel);
	cmp_ok($d->{nextents}, '>', 380, "$rel: $d->{nextents} extents");
	cmp_ok($d->{nspilled}, '>', 0, "$rel: $d->{nspilled} of them not in the metapage");
	is($d->{ndirectory}, int(($d->{nspilled} + DIRECTORY_EXTENTS - 1) / DIRECTORY_EXTENTS),
		"$rel: on as many pages as they need");
}
all_is_well('half of the rows gone');
replica_is_equal('half of the rows gone');

# One row after the other: directory pages are read and written with most states of the list.
for my $round (1 .. 12)
{
	for my $rel (sort keys %dimensions)
	{
		$node->sql(join ";\n",
			map { "INSERT INTO $rel SELECT i, wide(i, $dimensions{$rel})
				FROM generate_series($_, $_) i" } map { 2000 + 100 * $round + $_ } 1 .. $round);
	}
	if ($round % 4 == 0)
	{
		all_is_well("round $round");
		replica_is_equal("round $round");
	}
}

# ---- crashes: with the directory on pages, and while VACUUM writes other pages
$node->sql('CHECKPOINT');
for my $rel (sort keys %dimensions)
{
	$node->sql(<<"SQL");
INSERT INTO $rel SELECT i, wide(i, $dimensions{$rel}) FROM generate_series(4001, 4040) i;
DELETE FROM $rel WHERE id > 1000 AND id % 7 = 3;
VACUUM $rel;
INSERT INTO $rel SELECT i, wide(i, $dimensions{$rel}) FROM generate_series(4101, 4140) i;
SQL
}
my $before = answers($node);
$node->stop('immediate');
$node->start;
is(answers($node), $before, 'after a crash: the same answers');
all_is_well('after a crash');
replica_is_equal('after a crash');

# ---- all that comes and goes under an old snapshot, whose blocks are not used again
my $old = rest_after($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1');
for my $round (1 .. 6)
{
	for my $rel (sort keys %dimensions)
	{
		$node->sql(<<"SQL");
BEGIN;
INSERT INTO $rel SELECT i, wide(i, $dimensions{$rel}) FROM generate_series(1, 20) i;
ROLLBACK;
INSERT INTO $rel SELECT i, wide(i, $dimensions{$rel})
	FROM generate_series(5000 + 10 * $round, 5003 + 10 * $round) i;
VACUUM $rel;
SQL
	}
}
all_is_well('under an old snapshot');
end_rest($old);

# ---- the promoted replica goes on, and when all rows go, so do the directory pages
$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
$replica->promote;
$node->stop;
$node = $replica;
for my $rel (sort keys %dimensions)
{
	$node->sql(
		"INSERT INTO $rel SELECT i, wide(i, $dimensions{$rel}) FROM generate_series(6001, 6040) i");
}
all_is_well('promoted');
for my $rel (sort keys %dimensions)
{
	my $blocks = $node->sql("SELECT pg_relation_size('${rel}_idx') / 8192");
	$node->sql(
		"CREATE TABLE kept_$rel AS SELECT * FROM $rel; DELETE FROM $rel; VACUUM (FREEZE) $rel;
		INSERT INTO $rel SELECT * FROM kept_$rel");
	cmp_ok(directory($rel)->{nextents}, '<', 250, "$rel: a new delta in few extents");
	cmp_ok($node->sql("SELECT pg_relation_size('${rel}_idx') / 8192"), '<=',
		$blocks + 4, "$rel: in the blocks of the old one");
}
all_is_well('all rows anew');

# ---- as many extents as there may be, nearly: each page of the delta is one
delete @dimensions{qw(items longer)};
$dimensions{most} = 1900;
$node->sql(<<'SQL');
CREATE TABLE most (id int, val vector(1900));
CREATE INDEX most_idx ON most USING gpugraph (val vector_l2_ops);
INSERT INTO most SELECT i, wide(i, 1900) FROM generate_series(1, 1020) i;
SQL
my $file = index_file($node, 'most_idx');
$node->stop;
my $end = (-s $file) / PAGE;
write_extents($file, [ split_extent($file, DELTA, 1019), [ $end, 4, NO_SEGMENT, DIRECTORY, 0 ] ],
	$end .. $end + 3);
$node->start;
is($node->sql("SELECT version FROM gpugraph_index_info('most_idx')"), 4,
	'1022 extents can be read');
all_is_well('1022 extents');
$node->sql('INSERT INTO most SELECT i, wide(i, 1900) FROM generate_series(1021, 1030) i');
all_is_well('1022 extents, and more rows');
$node->sql('DELETE FROM most WHERE id > 1 AND id % 2 = 0; VACUUM (FREEZE) most');
my $free = $node->sql("SELECT free_bytes / 8192 FROM gpugraph_index_info('most_idx')");
cmp_ok($free, '>=', 500, '1022 extents, and half of the rows gone: their blocks are free');
all_is_well('1022 extents, and half of the rows gone');
my $blocks = $node->sql("SELECT pg_relation_size('most_idx') / 8192");
$node->sql('INSERT INTO most SELECT i, wide(i, 1900) FROM generate_series(2001, 2300) i');
all_is_well('1022 extents, and blocks used again');
cmp_ok($node->sql("SELECT pg_relation_size('most_idx') / 8192"), '<=',
	$blocks + 20, '1022 extents: the index does not grow');
$node->sql('DELETE FROM most WHERE id > 1; VACUUM (FREEZE) most');
$node->sql('INSERT INTO most SELECT i, wide(i, 1900) FROM generate_series(3001, 3300) i');
all_is_well('1022 extents, and all rows but one anew');
cmp_ok(directory('most')->{nextents}, '<', 600, 'in fewer extents');

finish_test($node);
