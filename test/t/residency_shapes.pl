# Indexes of every make come to the device whole: several segments, rows longer than a page, filter
# columns, halfvec, rows that share a node, graphs by each algorithm, and with all of these rows of
# the delta.
use Gpugraph;
use Residency;

my $node = service_node('shapes', conf => "gpugraph.itopk_size = 64\nwork_mem = 64MB\n");

# Load, ask, add rows, delete some, ask again.
sub goes_through
{
	my ($what, $rel, $segments) = @_;
	my $prewarm = "SELECT gpugraph_prewarm('${rel}_idx')";

	# what is tested here is how segments and a delta come to the device: they stay as they are
	$node->sql("ALTER INDEX ${rel}_idx SET (seal_rows = 0);
		SELECT make_queries('$rel', 20)");
	$node->sql($prewarm);
	is(of_index($node, "state || ' ' || segments", "${rel}_idx"), "ready $segments",
		"$what: on the device");
	truth_by_device($node, $what, $rel);
	$node->sql("INSERT INTO $rel SELECT id + 100000, cat, big, val FROM $rel WHERE id % 7 = 0");
	$node->sql($prewarm);
	truth_by_device($node, "$what, with a delta", $rel);
	$node->sql("DELETE FROM $rel WHERE id % 14 = 0; VACUUM $rel");
	$node->sql($prewarm);
	truth_by_device($node, "$what, vacuumed", $rel);
	cmp_ok(of_index($node, 'delta_pages', "${rel}_idx"), '>', 0,
		"$what: the delta is on the device");
	index_is_complete($node, $what, $rel);
	$node->sql("SELECT gpugraph_evict('${rel}_idx')");
	is(of_device($node, 'resident_bytes'), 0, "$what: all of it goes");
	return;
}

# each segment as large as memory lets it be; a GPU builds it in its own memory, in one
$node->sql(<<'SQL');
SELECT make_data('parts', 2000, 32, 40);
INSERT INTO parts SELECT 2000 + row_number() OVER (), a.cat, a.big, a.val + b.val
	FROM parts a, parts b WHERE b.id <= 34;
SET maintenance_work_mem = '1MB';
SET temp_file_limit = '8MB';
SET client_min_messages = error;
SET gpugraph.engine = cpu;
CREATE INDEX parts_idx ON parts USING gpugraph (val vector_l2_ops);
SQL
my $segments = $node->sql("SELECT segments FROM gpugraph_index_info('parts_idx')");
cmp_ok($segments, '>', 1, "built in $segments segments");
goes_through('segments', 'parts', $segments);

# VACUUM gives back a segment whose rows are all dead: the others stay on the device
$node->sql("SELECT gpugraph_prewarm('parts_idx')");
my ($loads, $bytes) = split / /, of_device($node, "loads || ' ' || resident_bytes");
$node->sql('DELETE FROM parts WHERE id <= 65000; VACUUM (FREEZE) parts');
cmp_ok($node->sql("SELECT segments FROM gpugraph_index_info('parts_idx')"), '<',
	$segments, 'a segment was given back');
like(truth($node, 'parts'), qr/^1\.0000/, 'the first answers after that are right');
$node->sql("SELECT gpugraph_prewarm('parts_idx')");
cmp_ok(of_index($node, 'segments', 'parts_idx'), '<', $segments, 'the device followed');
truth_by_device($node, 'a segment less', 'parts');
is(of_device($node, 'loads'), $loads, 'without a load of the rest');
ok_in_time(sub { of_device($node, 'resident_bytes') < $bytes * 0.8 }, 'its memory was given back');
is(of_device($node, 'resident_bytes'), of_index($node, 'bytes', 'parts_idx'), 'all of it');
$node->sql("SELECT gpugraph_evict('parts_idx')");

$node->sql(<<'SQL');
SELECT make_data('short', 2200, 21, 40);
CREATE TABLE long AS
	SELECT id, cat, big,
	(SELECT array_agg(x) FROM generate_series(1, 100), unnest(val::real[]) x)::vector(2100) AS val
	FROM short;
CREATE INDEX long_idx ON long USING gpugraph (val vector_l2_ops);
SQL
goes_through('rows longer than a page', 'long', 1);

# the words of filter columns lie before a delta row's vector
$node->sql(<<'SQL');
CREATE TABLE wide AS SELECT row_number() OVER ()::int AS id, cat, big, val FROM long;
CREATE INDEX wide_idx ON wide USING gpugraph (val vector_l2_ops, cat, big);
SQL
goes_through('long rows with filter columns', 'wide', 1);
$node->sql(<<'SQL');
SELECT make_data('filtered', 3000, 16, 40);
CREATE INDEX filtered_idx ON filtered USING gpugraph (val vector_l2_ops, cat, big);
SQL
goes_through('rows with filter columns', 'filtered', 1);

# lists of many lengths
for my $algorithm ('tsdg', 'grnnd')
{
	$node->sql("SELECT make_data('$algorithm', 3000, 16, 40);
		CREATE INDEX ${algorithm}_idx ON $algorithm USING gpugraph (val vector_l2_ops)
			WITH (algorithm = $algorithm)");
	goes_through("a graph by $algorithm", $algorithm, 1);
}

$node->sql(<<'SQL');
SELECT make_data('shared', 3000, 16, 40);
INSERT INTO shared SELECT id + 10000 * k, cat, big, val FROM shared, generate_series(1, 3) k
	WHERE id % 5 = 0;
CREATE INDEX shared_idx ON shared USING gpugraph (val vector_l2_ops);
SQL
goes_through('rows that share a node', 'shared', 1);

$node->sql(<<'SQL');
SELECT make_data('half', 3000, 16, 40);
CREATE INDEX half_idx ON half USING gpugraph ((val::halfvec(16)) halfvec_l2_ops);
SELECT make_queries('half', 20);
SELECT gpugraph_prewarm('half_idx');
INSERT INTO half SELECT id + 100000, cat, big, val FROM half WHERE id % 2 = 0;
DELETE FROM half WHERE id % 6 = 0;
VACUUM half;
SELECT gpugraph_prewarm('half_idx');
SQL
cmp_ok(of_index($node, 'delta_pages', 'half_idx'), '>', 0, 'halfvec: the delta is on the device');
is($node->sql(<<'SQL'), '20', 'halfvec: the nearest rows are those of a sequential scan');
SET enable_seqscan = off;
CREATE FUNCTION nearest(q vector) RETURNS int[] LANGUAGE sql AS $$
	SELECT array_agg(id)
	FROM (SELECT id FROM half ORDER BY val::halfvec(16) <-> q::halfvec(16) LIMIT 1) s $$;
SELECT count(*) FROM queries
	WHERE (SELECT min(val::halfvec(16) <-> queries.val::halfvec(16)) FROM half) =
	(SELECT val::halfvec(16) <-> queries.val::halfvec(16) FROM half
	WHERE id = (nearest(queries.val))[1]);
SQL
cmp_ok(of_index($node, 'queries_gpu', 'half_idx'), '>=', 20, 'halfvec: by the device');

finish_test($node);
