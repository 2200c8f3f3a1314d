# The disk is full, or a file may not grow: there is an error, nothing is left of a build, and
# nothing is lost of an index. The test limits the length of files of the backends that start
# meanwhile, which fails at the same places as a full disk.
use Gpugraph;

# WAL files, too, must be shorter than the limit
my $node = new_node('full', init => { extra => ['--wal-segsize=1'] },
	conf => "min_parallel_table_scan_size = 0\nmax_parallel_maintenance_workers = 2\n"
		. "min_wal_size = 2MB\n");
my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
# lists longer than rows: the index outgrows its table
my $create =
	'CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 64, intermediate_graph_degree = 64)';
my $which = qr/could not (?:extend|write blocks \S+ in) file "base\S+"/;
my $full = qr/ERROR:  $which(?: with FileFallocate\(\))?: File too large\nHINT:  \S/;

sub limit_files
{
	my ($bytes) = @_;

	system_or_bail('prlimit', '--pid', $postmaster, "--fsize=$bytes:unlimited");
	return;
}

# What a build could leave. PostgreSQL itself leaves the first file of a dropped relation, empty,
# until a checkpoint.
sub files
{
	my $dir = $node->data_dir . '/base/'
		. $node->sql("SELECT oid FROM pg_database WHERE datname = 'postgres'");

	$node->sql('CHECKPOINT');
	opendir(my $handle, $dir) or die "$dir: $!";
	return join ' ', sort grep { /^\d+(?:\.\d+)?$/ && -s "$dir/$_" } readdir $handle;
}

$node->sql("SELECT make_data('items', 15000, 8, 40); SELECT make_queries('items', 30); VACUUM items;
	$create");
my $size = $node->sql("SELECT pg_relation_size('items_idx')");
my $table = $node->sql("SELECT pg_relation_size('items')");
cmp_ok($table, '<', $size / 2, 'the index is what grows');
$node->sql('DROP INDEX items_idx');

# builds
my $before = files();
for my $workers (0, 2)
{
	for my $limit (int($size / 2), $size - 8192)
	{
		limit_files($limit);
		my ($rc, $out, $err) = $node->psql('postgres',
			"SET max_parallel_maintenance_workers = $workers; $create");

		isnt($rc, 0, "$workers workers, $limit bytes: no index");
		like($err, $full, "$workers workers, $limit bytes: which file and why");
		is($node->sql("SELECT to_regclass('items_idx') IS NULL"), 't',
			"$workers workers, $limit bytes: not in the catalog");
		is(files(), $before, "$workers workers, $limit bytes: no file is left");
	}
}
limit_files($size);
is(($node->psql('postgres', $create))[0], 0, 'with room for the last page there is an index');
index_is_complete($node, 'just enough room');

# inserts: the ones that fail are undone, the others stay
my $inserted = 0;
for my $rows (1, 10, 100, 1000, 10000)
{
	my ($rc, $out, $err) = $node->psql('postgres',
		"INSERT INTO items SELECT 20000 +
		$inserted + i, i % 5, i, (SELECT val FROM items WHERE id = i)
		FROM generate_series(1, $rows) i");

	if ($rc == 0)
	{
		$inserted += $rows;
		next;
	}
	like($err, $full, "no room for $rows more rows");
	last;
}
cmp_ok($inserted, '<', 11111, 'inserts fail in the end');
is($node->sql('SELECT count(*) FROM items'), 15000 + $inserted, 'the table has what was committed');
index_is_complete($node, 'after failed inserts');

# VACUUM may want room, too
$node->sql('DELETE FROM items WHERE id % 3 = 0');
my $left = $node->sql('SELECT count(*) FROM items');
my ($rc, $out, $err) = $node->psql('postgres', 'VACUUM items');
ok($rc == 0 || $err =~ $full, 'VACUUM does it, or says what is missing') or diag $err;
index_is_complete($node, 'VACUUM without room');

limit_files('unlimited');
$node->sql("VACUUM items;
	INSERT INTO items SELECT 40000 + i, i % 5, i, (SELECT val FROM items WHERE id = 3 * i + 1)
	FROM generate_series(1, 3000) i");
is($node->sql('SELECT count(*) FROM items'), $left + 3000, 'with room all goes on');
index_is_complete($node, 'with room again');
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, 'with room again: recall');
is((slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/)[0], $postmaster,
	'the server was never down');
unlike(slurp_file($node->logfile), qr/PANIC|was terminated by signal|TRAP/, 'nor a process of it');

finish_test($node);
