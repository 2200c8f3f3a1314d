# A build that maintenance_work_mem does not hold, with files that temp_file_limit does not allow,
# says so, and what would help; the index is as good. build_spill.pl has builds with files.
use Gpugraph;

# a GPU's build holds less in this process's memory. Sums of two rows are made faster than rows.
my $rows = 70000;
my $node = new_node('memory', conf => "gpugraph.engine = cpu\n");
$node->sql(<<SQL);
SELECT make_data('items', 2000, 32, 40);
INSERT INTO items SELECT 2000 + row_number() OVER (), a.cat, a.big, a.val + b.val
	FROM items a, items b WHERE b.id <= 34;
SELECT make_queries('items', 40);
SQL
my $create = 'CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)';

# a little too little is exceeded, and announced
my $exceeded = qr/NOTICE:  gpugraph index build takes more memory than maintenance_work_mem/;
my $count = "SELECT segments FROM gpugraph_index_info('items_idx')";
my ($rc, $out, $err) = $node->psql('postgres', "SET maintenance_work_mem = '64MB'; $create");
is($rc, 0, 'twice the memory would do: built');
like($err, $exceeded, 'twice the memory would do: announced');
like($err, qr/DETAIL:  A segment of $rows rows takes \d+ MB/, 'twice the memory would do: detail');
like($err, qr/HINT:  Increase maintenance_work_mem to \d+ MB/, 'twice the memory would do: a hint');
is($node->sql($count), '1', 'twice the memory would do: one segment');
$node->sql('DROP INDEX items_idx');

# 64 MB are taken whatever the setting, here for a fourth of the rows
like(error_of($node, "SET maintenance_work_mem = '1MB'; $create WHERE id <= $rows / 4"),
	$exceeded, 'a quarter of the rows: announced');
is($node->sql($count), '1', 'a quarter of the rows: one segment');
$node->sql('DROP INDEX items_idx');

($rc, $out, $err) = $node->psql('postgres',
	"SET maintenance_work_mem = '2MB'; SET temp_file_limit = '8MB'; $create");
is($rc, 0, 'a build with little memory succeeds');
like($err, qr/NOTICE:  gpugraph index no longer fits into maintenance_work_mem after \d+ rows/,
	'it is announced');
like($err, qr/DETAIL:  \S/, 'with a detail');
like($err, qr/HINT:  Increase maintenance_work_mem to \d+ MB/, 'and a hint');
my ($enough) = $err =~ /Increase maintenance_work_mem to (\d+) MB/;
my $segments = $node->sql("SELECT segments FROM gpugraph_index_info('items_idx')");
cmp_ok($segments, '>', 1, 'several segments');
index_is_complete($node, 'several segments');
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, 'several segments: recall');

# deleting one segment's rows gives it back, the others stay
$node->sql("DELETE FROM items WHERE id <= $rows / $segments");
$node->sql('VACUUM items');
cmp_ok($node->sql("SELECT segments FROM gpugraph_index_info('items_idx')"), '<=',
	$segments, 'rows of a segment deleted');
index_is_complete($node, 'rows of a segment deleted');
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99,
	'rows of a segment deleted: recall');

# the hint is right
unlike(error_of($node, "DROP INDEX items_idx; SET maintenance_work_mem = '${enough}MB'; $create"),
	qr/maintenance_work_mem/, 'with as much as the hint says there is nothing to announce');
is($node->sql("SELECT segments FROM gpugraph_index_info('items_idx')"), '1', 'and one segment');
index_is_complete($node, 'one segment');

finish_test($node);
