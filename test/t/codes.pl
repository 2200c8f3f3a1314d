# Codes on disk: what a build makes, merges take over and make, compaction keeps, and a standby and
# a crash do not lose. A walk by them finds as much as a fresh index does, exact answers stay exact,
# and a damaged code is found.
use Gpugraph;
use Format;
use Merging;

# the index is larger than shared buffers
my $node = new_node('codes', init => { allows_streaming => 1 }, conf => 'shared_buffers = 2MB');

sub query
{
	my ($sql, $on) = @_;

	return ($on || $node)->sql("SET gpugraph.engine = cpu; $sql");
}

sub info
{
	my ($columns, $on) = @_;

	return query("SELECT $columns FROM gpugraph_index_info('items_idx')", $on);
}

sub recall
{
	return query("SET gpugraph.itopk_size = 256; SELECT recall('items', '<->')");
}

query(<<'SQL');
SELECT make_data('source', 8000, 64, 40);
CREATE TABLE items (id bigint, cat int, big int, val vector(64));
INSERT INTO items SELECT * FROM source;
INSERT INTO items SELECT 10000 + id, cat, big, val FROM source WHERE id % 50 = 0;
SELECT make_queries('items', 50);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (segment_rows = 4000, seal_rows = 500);
SQL

# ---- a format for those that have codes
my $left_out = 'BEGIN; INSERT INTO items (id) VALUES (0); ROLLBACK';
query($left_out);
is(info('version, codes, codes_bytes'), '3|none|0', 'without codes: format 3');
my $by_rows = recall();
query('ALTER INDEX items_idx SET (storage = "float32+int4")');
is(info('version, codes'), '3|none', 'the option alone changes nothing');
query('REINDEX INDEX items_idx');
is(info('version, codes, codes_bytes > 0'), '4|int4|t', 'REINDEX makes codes: format 4');
cmp_ok(info('segments'), '>', 1, 'of several segments');
index_is_complete($node, 'a build');
cmp_ok(recall(), '>=', $by_rows - 0.005, 'a walk by codes finds as much as one by rows');
my $few = 'SET enable_seqscan = off; SELECT id FROM items ORDER BY val <->
	(SELECT val FROM queries LIMIT 1) LIMIT 10; SELECT reranked FROM gpugraph_last_scan()';
my ($reranked) = query($few) =~ /(\d+)\z/;
ok($reranked >= 10 && $reranked < 100, "$reranked rows were measured again");
($reranked) = query("SET gpugraph.rerank_size = 12; $few") =~ /(\d+)\z/;
cmp_ok($reranked, '<', 47, 'or as many as a setting says');

# ---- exact answers stay exact: a long scan, and a filter that few rows pass
my $exact = 'SELECT md5(string_agg(id::text, \',\' ORDER BY d, id)) FROM (SELECT id,
	val <-> (SELECT val FROM queries LIMIT 1) AS d FROM items WHERE %s ORDER BY d LIMIT %s) s';
for my $case ([ 'true', 12000 ], [ 'id % 100 = 7', 1000 ])
{
	my $sql = sprintf $exact, @$case;

	is(query("SET enable_seqscan = off; SET gpugraph.iterative_scan = relaxed_order; $sql"),
		query("SELECT use_index(false); $sql") =~ s/^\n//r, "exact: $case->[0]");
}

# nor do they go by codes where these say little: rows in two places, both far from their mean
query(<<'SQL');
CREATE TABLE far AS SELECT id, id % 100 AS cat,
	val + array_fill(CASE WHEN id <= 2000 THEN 1000 ELSE -1000 END, '{64}')::vector AS val
	FROM source WHERE id <= 4000;
CREATE INDEX ON far USING gpugraph (val vector_l2_ops, cat)
	WITH (storage = 'float32+int4');
INSERT INTO far SELECT id, 200, val + array_fill(1000, '{64}')::vector FROM source WHERE id > 7900;
SQL

# Of the nearest 10 rows of 20 queries that meet a condition: how many does the index miss?
sub misses
{
	my ($condition) = @_;
	my $nearest = "SELECT q, id FROM (SELECT q, val + array_fill(1000, '{64}')::vector AS val
		FROM queries WHERE q <= 20) a, LATERAL (SELECT id FROM far WHERE $condition
		ORDER BY (far.val <-> a.val) %s LIMIT 10) s";

	return query('SET enable_seqscan = off; SET enable_sort = off; SELECT count(*) FROM ('
		. sprintf("$nearest EXCEPT ", '+ 0') . sprintf($nearest, '') . ') m');
}

cmp_ok(misses('true'), '>', 0, 'codes that say little: a walk misses rows');
is(misses('cat = 3'), 0, 'where few rows pass a filter, none is missed');
is(misses('cat = 200'), 0, 'nor one that is in no segment yet');

# ---- a standby, ten generations of merges, then a compaction of half, and a crash
my ($standby, $merged, $compacted, $fresh) = survives_generations($node, \&query, \&recall, sub {
	is(info('version, codes, codes_bytes > 0'), '4|int4|t', "$_[0]: codes of one kind");
});
cmp_ok($compacted, '>=', $fresh - 0.005, 'no recall is lost to merges and compaction');
cmp_ok($merged, '>=', 0.99, 'nor was before');

# ---- the option takes effect with merges, too
query('ALTER INDEX items_idx SET (storage = "float32+int8");
	ALTER INDEX items_idx RESET (segment_rows);
	INSERT INTO items SELECT 900000 + id, cat, big, val FROM source;
	SELECT gpugraph_merge(\'items_idx\')');
is(info('codes'), 'int8', 'a merge makes the codes that the option asks for by then');
index_is_complete($node, 'other codes');
query('ALTER INDEX items_idx SET (storage = float32);
	INSERT INTO items SELECT 910000 + id, cat, big, val FROM source WHERE id < 2000;
	SELECT gpugraph_merge(\'items_idx\')');
is(info('version, codes, codes_bytes'), '4|none|8192', 'or none: only the mean is left of them');
index_is_complete($node, 'no codes');
query('REINDEX INDEX items_idx');
is(info('version, codes, codes_bytes'), '4|none|0', 'REINDEX: it leaves nothing out again');
query($left_out);
is(info('version, codes, codes_bytes'), '3|none|0', 'until it does: format 3 again');

# ---- other metrics
for my $ops (qw(vector_ip_ops vector_cosine_ops vector_l1_ops))
{
	query("DROP INDEX items_idx;
		CREATE INDEX items_idx ON items USING gpugraph (val $ops)
			WITH (storage = 'float32+int8')");
	my %op = (vector_ip_ops => '<#>', vector_cosine_ops => '<=>', vector_l1_ops => '<+>');
	is(query("SELECT gpugraph_check('items_idx', true)"), '', "$ops: int8 codes are right");
	cmp_ok(query("SELECT recall('items', '$op{$ops}')"), '>=', 0.97, "$ops: recall by int8");
}

# ---- what is damaged is found; a feature to come is refused
query('DROP INDEX items_idx;
	CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
		WITH (storage = "float32+int4")');
my $file = index_file($node, 'items_idx');
$node->stop;
patch($file, CODES, 100, peek($file, CODES, 100, 1) ^ "\1");
$node->start;
like(error_of($node, "SELECT gpugraph_check('items_idx')"),
	qr/code \d+ of piece \d+ is not the code of its vector/, 'a flipped bit of a code');
query('REINDEX INDEX items_idx');
index_is_complete($node, 'REINDEX');
$file = index_file($node, 'items_idx');
$node->stop;
patch($file, META, META_FEATURES, pack 'L', 512 | 16 | 1);
$node->start;
like(error_of($node, "\\set VERBOSITY verbose\nSELECT gpugraph_check('items_idx')"),
	qr/ERROR:  0A000: index "items_idx" has features 211, of which this gpugraph knows 1ff/,
	'a feature that is not known');

finish_test($node, $standby);
