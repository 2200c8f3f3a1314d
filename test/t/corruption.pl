# gpugraph_check() finds what is wrong with an index and names the block; searching such an index
# may fail, but never takes the server down; REINDEX repairs it. Pages are patched on disk with the
# server stopped.
use Gpugraph;
use Format;

# of the test's indexes, which have one segment of one piece, but for two_graphs, which has two
use constant { META_PIECES => META_HEAD + SEGMENT, META_EXTENTS => META_HEAD + SEGMENT + PIECE };
use constant { DIMENSIONS => 4, DEGREE => 8, PIVOT_ENTRY => 68 };
use constant { ROW => 4 * DIMENSIONS, LIST => 4 * DEGREE };
use constant NO_NODE => 0xFFFFFFFF;

# Name => [what to do to the file, what the check says, whether it takes the table to see it].
# The code returns the block that the message must name, or undef for none.
my $nan = pack 'L', 0x7FC00000;
my $far;
my %cases = (
	magic => [ sub { patch($_[0], META, 0, "xxxx") }, qr/not a gpugraph metapage/ ],
	version => [ sub { patch($_[0], META, META_VERSION, pack('L', 99)); undef },
		qr/has format version 99, this gpugraph reads versions 2 to 4/ ],
	meta_algorithm => [ sub { patch($_[0], META, META_ALGORITHM, pack('S', 9)); undef },
		qr/index "meta_algorithm_idx" is for graphs of kind 9, which this gpugraph does not/ ],
	meta_algorithm_0 => [ sub { patch($_[0], META, META_ALGORITHM, pack('S', 0)); undef },
		qr/index "meta_algorithm_0_idx" is for graphs of kind 0/ ],
	degree => [ sub { patch($_[0], META, META_DEGREE, pack('S', 0)) },
		qr/out of range|graph degree/ ],
	extents => [ sub { patch($_[0], META, META_NEXTENTS, pack('S', 60000)) },
		qr/out of range|extents/ ],
	extent_overlap => [
		sub { patch($_[0], META, META_EXTENTS + 2 * EXTENT,
		peek($_[0], META, META_EXTENTS + EXTENT, 4)) }, qr/overlaps/ ],
	extent_outside => [ sub { patch($_[0], META, META_EXTENTS + EXTENT + 4, pack('L', 100000)) },
		qr/not inside the relation|pages of/ ],
	extent_lost => [ sub { patch($_[0], META, META_EXTENTS + EXTENT + 12, pack('S', FREE)) },
		qr/belongs to segment|pages of/ ],
	segment_rows => [ sub { patch($_[0], META, META_HEAD + 4, pack('L', 1000000)) },
		qr/segment \d+ counts|pages of kind/ ],
	segment_pivots => [ sub { patch($_[0], META, META_HEAD + 12, pack('L', 0)) },
		qr/segment \d+ counts/ ],
	segment_id => [ sub { patch($_[0], META, META_HEAD, pack('L', 77)) },
		qr/segment 77 counts 301 nodes, its pieces 0/ ],
	segment_empty => [ sub { patch($_[0], META, META_HEAD + 20, pack('L', 3)) },
		qr/has 0 nodes without rows, the directory says 3/ ],
	segment_algorithm => [ sub { patch($_[0], META, META_HEAD + 24, pack('S', 9)); undef },
		qr/segment \d+ of index "segment_algorithm_idx" has a graph of kind 9/ ],
	segment_algorithm_0 => [ sub { patch($_[0], META, META_HEAD + 24, pack('S', 0)); undef },
		qr/segment \d+ of index "segment_algorithm_0_idx" has a graph of kind 0/ ],
	segment_flags => [ sub { patch($_[0], META, META_HEAD + 26, pack('S', 0)) },
		qr/segment \d+ counts/ ],
	segment_learned => [ sub { patch($_[0], META, META_HEAD + 27, pack('C', 5)) },
		qr/segment \d+ has the flags 1281, by which 5 of 8 edges may be learned/ ],
	segment_flag => [ sub { patch($_[0], META, META_HEAD + 26, pack('C', 3)) },
		qr/segment \d+ has the flags 3, by which 0 of 8 edges may be learned/ ],
	segment_graph => [ sub { patch($_[0], META, META_HEAD + 28, pack('L', 77)) },
		qr/segment \d+ has graph 77, and \d+ is the next id/ ],
	two_graphs => [ sub { patch($_[0], META, META_HEAD + SEGMENT + 28,
		peek($_[0], META, META_HEAD, 4)) }, qr/segments (\d+) and \d+ both have graph \1/ ],
	segments => [ sub { patch($_[0], META, META_NSEGMENTS, pack('S', 2)) }, qr/out of range/ ],
	next_id => [ sub { patch($_[0], META, META_NEXT_ID, pack('L', 0)) },
		qr/segment \d+ twice, or too early/ ],
	piece_id => [ sub { patch($_[0], META, META_PIECES, pack('L', 77)) },
		qr/0 pages of vectors for the 301 nodes of piece 77/ ],
	piece_owner => [ sub { patch($_[0], META, META_PIECES + 4, pack('L', 77)) },
		qr/counts 301 nodes, its pieces 0/ ],
	piece_nodes => [ sub { patch($_[0], META, META_PIECES + 8, pack('L', 300)) },
		qr/counts 301 nodes, its pieces 300/ ],
	pieces => [ sub { patch($_[0], META, META_NPIECES, pack('S', 0)) }, qr/out of range/ ],
	columns => [ sub { patch($_[0], META, META_NCOLUMNS, pack('S', 1)) }, qr/out of range/ ],
	words => [ sub { patch($_[0], META, META_FILTER_WORDS, pack('S', 1)) }, qr/out of range/ ],
	extent_first => [ sub { patch($_[0], META, META_EXTENTS + EXTENT + 16, pack('Q', 1)) },
		qr/starts with page 1 of kind \d of segment \d+, not with page 0/ ],
	delta_tail => [ sub { patch($_[0], META, META_DELTA_TAIL, pack('L', 1)) },
		qr/the delta ends with block 1, and its extents with block \d+/ ],
	delta_pages => [ sub { patch($_[0], META, META_DELTA_PAGES, pack('L', 7)) },
		qr/the delta has 7 pages in use, and extents for 1/ ],
	delta_first => [ sub { patch($_[0], META, META_DELTA_FIRST, pack('L', 1)) },
		qr/the delta's extent at block \d+ starts with page 0, where 1 is next/ ],
	# its rows would not be found
	delta_owner => [
		sub {
			my $extents = read_directory($_[0])->{extents};
			my ($i) = grep { $extents->[$_][3] == DELTA } 0 .. $#$extents;

			patch($_[0], META, META_EXTENTS + $i * EXTENT + 8, pack('L', 1));
		},
		qr/the extent at block \d+ is of kind 7, and belongs to segment 1/ ],
	# inner product, where the operator class has l2
	metric => [ sub { patch($_[0], META, META_METRIC, pack('S', 2)) },
		qr/the metapage has metric 2 and elements of type 1, the operator class 1 and 1/ ],
	empty_file => [ sub { truncate $_[0], 0; 0 }, qr/the file is empty/ ],
	short_file => [ sub { truncate $_[0], (-s $_[0]) - PAGE; 0 },
		qr/the directory goes on to block \d+ of \d+/ ],
	spilled => [ sub { patch($_[0], META, META_NSPILLED, pack('S', 1)) }, qr/out of range/ ],
	directory => [ sub { patch($_[0], META, META_NDIRECTORY, pack('S', 1)) }, qr/out of range/ ],

	segment_dead => [ sub { patch($_[0], META, META_HEAD + 16, pack('L', 3)); undef },
		qr/cleared TIDs, the directory says 3/ ],

	length_nan => [ sub { patch($_[0], META, META_LENGTH, $nan) }, qr/out of range/ ],
	length_less => [ sub { patch($_[0], META, META_LENGTH, pack('f', 999)); undef },
		qr/a vector has length 1000, the metapage says that none is longer than 999/ ],

	vector_nan => [ sub { patch($_[0], VECTORS, 7 * ROW, $nan) },
		qr/vector 7 of piece \d+ has an element that is not finite/ ],
	vector_bit => [ sub { patch($_[0], VECTORS, 7 * ROW, peek($_[0], VECTORS, 7 * ROW, 1) ^ "\1");
		undef }, qr/the table has another vector in the row of the TID \(0,8\)/, 1 ],
	vector_half => [ sub { patch($_[0], VECTORS, 7 * ROW / 2,
		peek($_[0], VECTORS, 7 * ROW / 2, 1) ^ "\1"); undef },
		qr/the table has another vector in the row of the TID \(0,8\)/, 1 ],
	vector_half_far => [
		sub { $far = patch($_[0], VECTORS, 7 * ROW / 2, pack('S', 0x6000)); undef },
		qr/the table has another vector in the row of the TID \(0,8\)/, 1 ],
	vector_code => [ sub { patch($_[0], CODES, 16 * 8, peek($_[0], CODES, 16 * 8, 1) ^ "\1");
		undef }, qr/the table has another vector in the row of the TID \(0,\d+\)/, 1 ],
	vector_code_base => [ sub { patch($_[0], CODES, 16 * 8 + 8, pack('f', 7)); undef },
		qr/the table has another vector in the row of the TID \(0,\d+\)/, 1 ],
	vector_code_delta => [ sub { patch($_[0], DELTA, 8, peek($_[0], DELTA, 8, 1) ^ "\1");
		undef }, qr/the table has another vector in the row of the TID \(\d+,\d+\)/, 1 ],
	# the mean that codes are centred by
	mean_value => [ sub { patch($_[0], MEAN, 4, pack('f', 900)); undef },
		qr/the table has another vector in the row of the TID \(\d+,\d+\)/, 1 ],
	mean_nan => [ sub { patch($_[0], MEAN, 4, $nan); undef },
		qr/the mean of codes has the element nan/i ],
	mean_stamp => [ sub { patch_stamp($_[0], MEAN, 16, pack('S', TIDS)) },
		qr/page is not number 0 of kind 14/ ],
	mean_lost => [
		sub {
			my $d = read_directory($_[0]);
			my ($i) = grep { $d->{extents}[$_][3] == MEAN } 0 .. $#{ $d->{extents} };

			patch($_[0], META, $d->{extents_at} + $i * EXTENT + 12, pack('S', FREE));
			return;
		},
		qr/the directory has 0 pages of the mean of codes, of 4 dimensions/ ],
	self_loop => [ sub { patch($_[0], ADJACENCY, 5 * LIST, pack('L', 5)) },
		qr/the list of node 5 has 5 itself/ ],
	edge_twice => [ sub { patch($_[0], ADJACENCY, 5 * LIST,
		peek($_[0], ADJACENCY, 5 * LIST + 4, 4)) }, qr/the list of node 5 has id \d+ twice/ ],
	edge_range => [ sub { patch($_[0], ADJACENCY, 5 * LIST + 8, pack('L', 400)) },
		qr/the list of node 5 has id 400, of 3\d\d/ ],
	edge_hole => [ sub { patch($_[0], ADJACENCY, 5 * LIST + 8, pack('L', NO_NODE)) },
		qr/the list of node 5 goes on after an unused slot/ ],
	unreachable => [ sub { patch($_[0], ADJACENCY, 0, pack('L', NO_NODE) x (250 * DEGREE)); undef },
		qr/nodes of segment \d+ cannot be reached from its pivots/ ],

	pivot_range => [ sub { patch($_[0], PIVOTS, 0, pack('L', 400)) },
		qr/pivot 0 is node 400, of 3\d\d/ ],
	pivot_twice => [ sub { patch($_[0], PIVOTS, PIVOT_ENTRY, peek($_[0], PIVOTS, 0, 4)) },
		qr/pivot 1 is node \d+, as a pivot before it/ ],
	pivot_edge => [ sub { patch($_[0], PIVOTS, 4, pack('L', 1000)) },
		qr/the list of pivot 0 has id 1000/ ],
	pivot_alone => [ sub { patch($_[0], PIVOTS, 4, pack('L', NO_NODE) x 16) },
		qr/only 1 of \d+ pivots of segment \d+ can be reached from the first/ ],

	tid_lost => [ sub { patch($_[0], TIDS, 8 * 11, "\0" x 8); undef },
		qr/lacks row \(\d+,\d+\) of table/, 1 ],
	tid_twice => [ sub { patch($_[0], TIDS, 8, peek($_[0], TIDS, 0, 8)) },
		qr/the TID \(\d+,\d+\) is in the index twice/, 1 ],
	# row 7 was deleted, so nobody misses its TID
	tid_behind => [ sub { patch($_[0], TIDS, 8 * 6, pack('S S S S', 0, 9999, 1, 0)); undef },
		qr/lies behind the end of the table/, 1 ],
	tid_unused => [ sub { patch($_[0], TIDS, 8 * 6, pack('S S S S', 0, 0, 290, 0)); undef },
		qr/points at an unused line pointer/, 1 ],
	offsets => [ sub { patch($_[0], OFFSETS, 4 * 20, pack('L', 1)) },
		qr/rows of node 20 start at 1/ ],
	offsets_range => [ sub { patch($_[0], OFFSETS, 4 * 20, pack('L', 100000)) },
		qr/rows of node 20 start at 100000/ ],

	stamp_kind => [ sub { patch_stamp($_[0], VECTORS, 16, pack('S', TIDS)) },
		qr/stamped tids \(4\) instead of vectors/ ],
	stamp_number => [ sub { patch_stamp($_[0], ADJACENCY, 12, pack('L', 77)) },
		qr/stamped with number 77 instead of 0/ ],
	stamp_segment => [ sub { patch_stamp($_[0], TIDS, 8, pack('L', 77)) },
		qr/stamped with segment 77/ ],
	stamp_instance => [ sub { patch_stamp($_[0], PIVOTS, 0, pack('Q', 77)) },
		qr/stamped with another build/ ],
	stamp_count => [ sub { patch_stamp($_[0], VECTORS, 18, pack('S', 77)) },
		qr/stamped with a count of 77/ ],
	zeroes => [
		sub {
			my $block = block_of($_[0], VECTORS, 0);

			write_page($_[0], $block, "\0" x PAGE);
			return $block;
		},
		qr/the page is empty, where page 0 of vectors should be/ ],
	lower => [
		sub {
			my $block = block_of($_[0], VECTORS, 0);
			my $page = read_page($_[0], $block);

			substr($page, 12, 2) = pack 'S', 1000;
			write_page($_[0], $block, $page);
			return $block;
		},
		qr/the vectors page holds 976 bytes instead of \d+/ ],

	# of an index with the filter columns cat int, which is NULL in row 0, and name text
	filter_columns => [ sub { patch($_[0], META, META_NCOLUMNS, pack('S', 9)) }, qr/out of range/ ],
	filter_fewer => [
		sub {
			patch($_[0], META, META_COLUMN_TYPES + 4, pack('L', 0));
			patch($_[0], META, META_NCOLUMNS, pack('S', 1));
		},
		qr/the metapage has 1 filter columns of 2 words, the index 2 of 2/ ],
	filter_type_lost => [ sub { patch($_[0], META, META_COLUMN_TYPES, pack('L', 0)) },
		qr/out of range/ ],
	filter_type => [ sub { patch($_[0], META, META_COLUMN_TYPES, pack('L', 20)) },
		qr/the metapage has 2 filter columns of 2 words.*their types differ/ ],
	filter_words => [ sub { patch($_[0], META, META_FILTER_WORDS, pack('S', 1)) },
		qr/out of range/ ],
	filter_words_more => [ sub { patch($_[0], META, META_FILTER_WORDS, pack('S', 3)) },
		qr/the metapage has 2 filter columns of 3 words, the index 2 of 2/ ],
	filter_words_many => [ sub { patch($_[0], META, META_FILTER_WORDS, pack('S', 32)) },
		qr/1 pages of kind 11 for segment \d+, which needs 10/ ],
	filter_words_most => [ sub { patch($_[0], META, META_FILTER_WORDS, pack('S', 60000)) },
		qr/out of range/ ],
	filter_extent => [
		sub {
			my $extents = read_directory($_[0])->{extents};
			my ($i) = grep { $extents->[$_][3] == FILTERS } 0 .. $#$extents;

			patch($_[0], META, META_EXTENTS + $i * EXTENT + 12, pack('S', FREE));
		},
		qr/of kind 8, and belongs to segment 1/ ],
	filter_stamp => [ sub { patch_stamp($_[0], FILTERS, 16, pack('S', TIDS)) },
		qr/stamped tids \(4\) instead of filters/ ],
	filter_value => [ sub { patch($_[0], FILTERS, 8 * 20, pack('q', 77)); undef },
		qr/the table has other values of filter columns in the row of the TID \(\d+,\d+\)/, 1 ],
	filter_hash => [ sub { patch($_[0], FILTERS, 8 * (310 + 20), pack('q', 77)); undef },
		qr/the table has other values of filter columns/, 1 ],
	filter_null => [ sub { patch($_[0], TIDS, 8 * 20 + 6, pack('S', 2)); undef },
		qr/the table has other values of filter columns/, 1 ],
	filter_not_null => [ sub { patch($_[0], TIDS, 6, pack('S', 0)); undef },
		qr/the table has other values of filter columns/, 1 ],
	filter_null_bits => [ sub { patch($_[0], TIDS, 8 * 20 + 6, pack('S', 4)) },
		qr/a row has NULL bits 4, for 2 filter columns/ ],
	filter_delta_value => [ sub { patch($_[0], DELTA, 8, pack('q', 77)); undef },
		qr/the table has other values of filter columns/, 1 ],
	filter_delta_null => [ sub { patch($_[0], DELTA, 6, pack('S', 3)); undef },
		qr/the table has other values of filter columns/, 1 ],
	filter_delta_null_bits => [ sub { patch($_[0], DELTA, 6, pack('S', 0x8000)) },
		qr/a row has NULL bits 8000, for 2 filter columns/ ],
	null_bits => [ sub { patch($_[0], TIDS, 6, pack('S', 1)) },
		qr/a row has NULL bits 1, for 0 filter columns/ ],

	delta_vector => [ sub { patch($_[0], DELTA, 8, peek($_[0], DELTA, 8, 1) ^ "\1"); undef },
		qr/the table has another vector in the row of the TID \(\d+,\d+\)/, 1 ],
	delta_nan => [ sub { patch($_[0], DELTA, 8 + 4, $nan) },
		qr/a vector of the delta has an element that is not finite/ ],
	delta_count => [ sub { patch_stamp($_[0], DELTA, 18, pack('S', 9999)) },
		qr/the delta page counts 9999 rows/ ],
	delta_short => [ sub { patch_stamp($_[0], DELTA, 18, pack('S', 3)) },
		qr/the delta page holds \d+ bytes instead of \d+/ ],
	delta_number => [ sub { patch_stamp($_[0], DELTA, 12, pack('L', 5)) },
		qr/stamped with number 5 instead of 0/ ],
);

my $node = new_node('corruption');
for my $case (sort keys %cases)
{
	my ($metric, $storage) = $case eq 'length_less' ? qw(ip float16) : $case =~ /^vector_half/ ?
		qw(l2 float16) : $case =~ /^(?:vector_code|mean)/ ? qw(l2 int8) : qw(l2 float32);
	my $columns = $case =~ /^filter/ ? ', cat, name' : '';
	# a mean is taken of 1,000 rows or more
	my ($rows, $segment_rows) = $case =~ /^two/ ? (3000, 1500) :
		$case =~ /^mean/ ? (1500, 0) : (300, 0);

	$node->sql(<<"SQL");
CREATE TABLE $case (id int, val vector(4), cat int GENERATED ALWAYS AS (nullif(id % 50, 1)) STORED,
	name text GENERATED ALWAYS AS ('name ' || id::text) STORED);
INSERT INTO $case SELECT i, ARRAY[i, i * 7 % 101, i * 13 % 103, i * 17 % 107]::real[]::vector
	FROM generate_series(1, $rows) i;
INSERT INTO $case SELECT i, '[1000,1,1,1]' FROM generate_series($rows + 1, $rows + 10) i;
CREATE INDEX ${case}_idx ON $case USING gpugraph (val vector_${metric}_ops$columns)
	WITH (graph_degree = 8, intermediate_graph_degree = 16, storage = $storage,
	segment_rows = $segment_rows);
INSERT INTO $case SELECT i, ARRAY[i, 1, 2, 3]::real[]::vector
	FROM generate_series($rows + 101, $rows + 110) i;
DELETE FROM $case WHERE id = 7;
SQL
}

my %file = map { $_ => $node->data_dir . '/'
	. $node->sql("SELECT pg_relation_filepath('${_}_idx')") } keys %cases;
$node->stop;
my %block;
for my $case (sort keys %cases)
{
	$block{$case} = $cases{$case}[0]->($file{$case});
}
$node->start;

for my $case (sort keys %cases)
{
	my (undef, $message, $heap) = @{ $cases{$case} };

	my ($rc, $out, $err) = $node->psql('postgres',
		"\\set VERBOSITY verbose\nSELECT gpugraph_check('${case}_idx'" . ($heap ? ', true' : '')
		. ')');
	like($err, $message, "$case: found");
	like($err, $case =~ /^version|algorithm/ ? qr/0A000/ : qr/XX002/, "$case: SQLSTATE");
	like($err, qr/REINDEX the index/, "$case: with a hint");
	like($err, qr/at block $block{$case}:/, "$case: the block is named") if defined $block{$case};

	# whatever these say, the server must live, and what is wrong with an index is said in one way
	my $pid = $node->sql('SELECT pg_postmaster_start_time()');
	my (undef, undef, $errors) = $node->psql('postgres', <<"SQL", on_error_stop => 0);
\\set VERBOSITY verbose
SET enable_seqscan = off;
SELECT id FROM $case ORDER BY val <-> '[100,50,50,50]' LIMIT 5;
SET gpugraph.itopk_size = 2;
SELECT count(*) FROM (SELECT id FROM $case ORDER BY val <-> '[100,50,50,50]') s;
SELECT count(*) FROM (SELECT id FROM $case WHERE cat = 2 ORDER BY val <-> '[9,5,5,5]') s;
INSERT INTO $case VALUES (5000, '[5,5,5,5]');
DELETE FROM $case WHERE id % 50 = 1;
VACUUM $case;
SELECT * FROM gpugraph_index_info('${case}_idx');
SELECT gpugraph_merge('${case}_idx');
SELECT gpugraph_learn('${case}_idx', ARRAY['[1,1,1,1]', '[2,3,4,5]']::vector[], 4);
SQL
	is(join("\n", grep { !/XX002: index "${case}_idx" is corrupted at block|0A000:/ }
		$errors =~ /ERROR: +(.*)/g), '', "$case: errors name index and block");
	like($errors, qr/XX002: .*at block $far: a row of the table is nearer than the index has it/,
		"$case: what the executor notices") if $case eq 'vector_half_far';
	is($node->sql('SELECT pg_postmaster_start_time()'), $pid, "$case: the server lives");

	$node->sql("REINDEX INDEX ${case}_idx");
	index_is_complete($node, "$case: after REINDEX", $case);
}
unlike(slurp_file($node->logfile), qr/terminated by signal/,
	'no process was terminated by a signal');
$node->stop;

# page checksums find the rest
$node = new_node('checksums', init => { extra => ['--data-checksums'] });
$node->sql("CREATE TABLE items AS SELECT i AS id, ARRAY[i, 1, 1, 1]::real[]::vector(4) AS val
	FROM generate_series(1, 300) i");
$node->sql('CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)');
my $file = $node->data_dir . '/' . $node->sql("SELECT pg_relation_filepath('items_idx')");
$node->stop;
my $flipped = patch($file, VECTORS, 100, "\1");
$node->start;
like(error_of($node, "SELECT gpugraph_check('items_idx')"),
	qr/invalid page in block $flipped of relation/, 'a flipped byte, with page checksums');
$node->sql('REINDEX INDEX items_idx');
index_is_complete($node, 'checksums: after REINDEX');

finish_test($node);
