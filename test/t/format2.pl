# An index of format 2 is read as it is, and becomes one of format 3 with the first change of its
# directory. What neither is is refused. The test writes format 2 itself, from an index of format 3
# that format 2 could have.
use Gpugraph;
use Format;

my $node = new_node('main', init => { allows_streaming => 1 });

# Several segments, with copies of rows; a delta whose front VACUUM has given back; free blocks.
$node->sql(<<'SQL');
SELECT setseed(0.5);
SELECT make_data('items', 13000, 8, 40);
INSERT INTO items SELECT 100000 + id, cat, big, val FROM items WHERE id % 6 = 0;
SELECT make_queries('items', 20);
SET gpugraph.engine = cpu;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, intermediate_graph_degree = 16, segment_rows = 5000);
INSERT INTO items SELECT 200000 + id, cat, big, val FROM items WHERE id <= 900;
DELETE FROM items WHERE id BETWEEN 200001 AND 200400 OR id % 11 = 0;
VACUUM items;
CREATE TABLE few AS SELECT * FROM items WHERE id <= 300;
CREATE INDEX few_idx ON few USING gpugraph (val vector_l2_ops);
CREATE TABLE none (id int, val vector(8));
CREATE INDEX none_idx ON none USING gpugraph (val vector_l2_ops);
SQL
my %file = map { $_ => index_file($node, "${_}_idx") } qw(items few none);
my $answers = answers($node);

sub info
{
	my ($on, $index) = @_;

	return $on->sql("SELECT nodes, rows, segments, pivots, delta_rows, dead_rows,
		vectors_bytes, delta_bytes, free_bytes, total_bytes FROM gpugraph_index_info('$index')");
}

sub version
{
	my ($on, $index) = @_;

	return $on->sql("SELECT version FROM gpugraph_index_info('$index')");
}

my $info = info($node, 'items_idx');
is(version($node, 'items_idx'), 4, 'format 4 is what is built where no row is left out');
$node->stop;
my $d = read_directory($file{items});
my %kinds = map { $_->[3] => 1 } @{ $d->{extents} };
cmp_ok($d->{nsegments}, '>', 1, "$d->{nsegments} segments");
ok($kinds{+OFFSETS} && $kinds{+DELTA} && $kinds{+FREE} && $d->{delta_first} > 0,
	'with copies, a cut delta, and free blocks');
make_old($_) for values %file;
$node->start;

# ---- read as it is, here and on a replica
is($node->sql("SELECT complete('few')"), 'ok', 'format 2: few rows');
$node->safe_psql('template1', 'CREATE DATABASE was TEMPLATE postgres');

# All that there was at first, in format 2.
sub start_over
{
	$node->safe_psql('template1', 'DROP DATABASE postgres');
	$node->safe_psql('template1', 'CREATE DATABASE postgres TEMPLATE was');
	return;
}

is(version($node, 'items_idx'), 2, 'format 2');
is(info($node, 'items_idx'), $info, 'the same contents');
is(answers($node), $answers, 'format 2: the same answers');
index_is_complete($node, 'format 2');
my $replica = start_standby($node, 'replica');
is(answers($replica), $answers, 'format 2, on a replica: the same answers');
is(version($replica, 'items_idx'), 2, 'and it stays what it is');

# What changes no directory leaves the format alone: a row on the last page, a longer row.
$node->sql('CREATE INDEX length_idx ON few USING gpugraph (val vector_ip_ops);
	INSERT INTO few SELECT 1001, cat, big, val FROM few WHERE id = 1');
my $length = index_file($node, 'length_idx');
$node->stop;
make_old($length);
$node->start;
$node->sql('INSERT INTO few SELECT 1002, cat, big, val + val FROM few WHERE id = 2');
is(version($node, 'length_idx'), 2, 'a longer row on the last page: still format 2');
is($node->sql(
		"SELECT gpugraph_check('length_idx', true), complete('few')"), '|ok', 'and it is found');

# ---- each first change, and a crash after it
my %changes = (
	insert => [ 3,
		'INSERT INTO items SELECT 300000 + id, cat, big, val FROM items WHERE id < 1000' ],
	vacuum => [ 3, 'DELETE FROM items WHERE id % 5 = 3; VACUUM items' ],
	front => [ 3, 'DELETE FROM items WHERE id BETWEEN 200000 AND 200700; VACUUM items' ],
	all => [ 3, 'CREATE TABLE kept AS SELECT * FROM items; DELETE FROM items; VACUUM items;
		INSERT INTO items SELECT * FROM kept; DROP TABLE kept' ],
	delete => [ 2, 'DELETE FROM items WHERE id % 5 = 4' ],
	reindex => [ 4, 'REINDEX INDEX items_idx' ]);
for my $change (qw(insert vacuum front delete all reindex))
{
	my ($version, $sql) = @{ $changes{$change} };

	start_over();
	is(answers($node), $answers, "$change: format 2, the same answers");
	$node->sql("CHECKPOINT; SET gpugraph.engine = cpu; $sql");
	my $after = answers($node);
	my $contents = info($node, 'items_idx');
	index_is_complete($node, $change);
	is(version($node, 'items_idx'), $version, "$change: format $version");
	$node->stop('immediate');
	$node->start;
	is(answers($node), $after, "$change, after a crash: the same answers");
	is(info($node, 'items_idx') . ' ' . version($node, 'items_idx'), "$contents $version",
		"$change, after a crash: the same contents");
}

# an index without rows, and the first one
is(info($node, 'none_idx'), '0|0|0|0|0|0|0|0|0|8192', 'format 2 without rows');
$node->sql('INSERT INTO none SELECT id, val FROM few');
index_is_complete($node, 'format 2 without rows, filled', 'none');
is(version($node, 'none_idx'), 3, 'filled: format 3');

# ---- the change on a replica, which has format 2 from its backup
start_over();
$node->backup('backup2');
$replica->stop;
my $second = PostgreSQL::Test::Cluster->new('second');
$second->init_from_backup($node, 'backup2', has_streaming => 1);
$second->start;
is(version($second, 'items_idx'), 2, 'a second replica: format 2');
$node->sql('INSERT INTO items SELECT 300000 + id, cat, big, val FROM items WHERE id < 1000;
	DELETE FROM items WHERE id % 7 = 2; VACUUM items');
$node->wait_for_catchup($second, 'replay', $node->lsn('insert'));
is(answers($second), answers($node), 'the change replayed: the same answers');
is(version($second, 'items_idx'), 3, 'and format 3');
index_is_complete($second, 'the change replayed');
$second->stop;

# ---- as many extents as format 2 has room for: with the first change some go to a directory page
$node->sql(<<'SQL');
CREATE TABLE wide AS SELECT i AS id,
	(SELECT array_agg(sin(i * 13 + d * d)) FROM generate_series(1, 1900) d)::vector(1900) AS val
	FROM generate_series(1, 300) i;
CREATE TABLE other (LIKE wide);
CREATE INDEX wide_idx ON other USING gpugraph (val vector_l2_ops);
INSERT INTO other SELECT * FROM wide;
SQL
my $wide = index_file($node, 'wide_idx');
$node->stop;
write_extents($wide, [ split_extent($wide, DELTA, 286) ]);
make_old($wide);
$node->start;
my $whole = "SELECT complete('other'), gpugraph_check('wide_idx', true)";
is($node->sql($whole), 'ok|', '288 extents in format 2');
$node->sql('INSERT INTO other SELECT 1000 + id, val FROM wide WHERE id <= 50');
is($node->sql($whole), 'ok|', 'and more in format 3');
is(version($node, 'wide_idx'), 3, 'which it is by then');

# ---- formats that are neither
$file{few} = index_file($node, 'few_idx');
for my $version (1, 5, 255, 0, 2**31)
{
	$node->stop;
	patch($file{few}, META, META_VERSION, pack 'L', $version);
	$node->start;
	for my $sql ("SELECT gpugraph_check('few_idx')", "SELECT * FROM gpugraph_index_info('few_idx')",
		'SET enable_seqscan = off; SELECT id FROM few ORDER BY val <-> (SELECT val FROM few LIMIT 1)
		LIMIT 1',
		'INSERT INTO few SELECT * FROM items LIMIT 1', 'DELETE FROM few WHERE id = 7; VACUUM few')
	{
		my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql");

		like($err, qr/ERROR:  0A000: index "few_idx" has format version $version, this gpugraph/,
			"format $version: " . substr($sql, 0, 20));
		like($err, qr/reads versions 2 to 4\nHINT:  REINDEX the index/, 'and what to do');
	}
}
$node->sql('REINDEX INDEX few_idx; DELETE FROM few WHERE id = 8; VACUUM few');
index_is_complete($node, 'REINDEX', 'few');

finish_test($node);
