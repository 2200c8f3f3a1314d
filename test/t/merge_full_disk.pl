# The disk is full during a merge: there is an error, the old generation is whole, and with space it
# goes on. The test limits the length of files of processes that start meanwhile.
use Gpugraph;
use Merging;

my $node = merging_node('full', init => { extra => ['--wal-segsize=1'] },
	conf => "min_wal_size = 2MB\n");
my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
my $full = qr/could not (?:extend|write blocks \S+ in) file "base[^\n]*File too large/;

sub limit_files
{
	my ($bytes) = @_;

	system_or_bail('prlimit', '--pid', $postmaster, "--fsize=$bytes:unlimited");
	return;
}

# lists longer than rows: the index is what grows
make_source($node, 5000, 8, 'seal_rows = 0, graph_degree = 64, intermediate_graph_degree = 64');
$node->sql('INSERT INTO items SELECT id + 10000, cat, big,
	val + array_fill(0.001::real, ARRAY[8])::vector FROM source');
my $size = merge_info($node, 'total_bytes');
my $before = merge_info($node, 'generation');

for my $more (0, 8192, 61 * 8192, 201 * 8192)
{
	limit_files($size + $more);
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT gpugraph_merge('items_idx')");
	isnt($rc, 0, "$more bytes left: no merge");
	like($err, $full, "$more bytes left: which file and why");
	is(merge_info($node, 'generation'), $before, "$more bytes left: the old generation");
	index_is_complete($node, "$more bytes left");
}

# the worker: it logs the error, and does not try again at once
$node->sql('ALTER INDEX items_idx SET (seal_rows = 300)');
$node->sql('VACUUM items');
ok_in_time(sub { $node->sql(
	"SELECT phase FROM gpugraph_stat_merge WHERE index = 'items_idx'::regclass") eq 'failed' },
	'a worker fails, and the view says so');
like(slurp_file($node->logfile), qr/ERROR:  $full/, 'and the log why');
$node->sql('VACUUM items');
is($node->sql("SELECT phase FROM gpugraph_stat_merge WHERE index = 'items_idx'::regclass"),
	'failed', 'it is not tried again at once');
index_is_complete($node, 'the worker failed');

# rows that the limit leaves room for
$node->psql('postgres',
	'INSERT INTO items SELECT id + 20000, cat, big, val FROM source WHERE id < 5');
index_is_complete($node, 'inserted without room');

limit_files('unlimited');
is($node->sql("SELECT gpugraph_merge('items_idx')"), 't', 'with room it goes on');
is(merge_info($node, 'segments'), 1, 'one segment');
index_is_complete($node, 'with room');
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, 'recall');
is($node->sql("SELECT total_bytes - 8192 - vectors_bytes - adjacency_bytes -
	tids_bytes - pivots_bytes - delta_bytes - free_bytes < 65536
	FROM gpugraph_index_info('items_idx')"),
	't', 'what failed merges took is free');
is((slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/)[0], $postmaster,
	'the server was never down');
unlike(slurp_file($node->logfile), qr/PANIC|was terminated by signal|TRAP/, 'nor a process of it');

finish_test($node);
