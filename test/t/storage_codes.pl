# storage = 'int4' and 'int8': codes, graph and TIDs alone. Scans read the nearest rows from the
# table, as their snapshot sees them, and return them in the order of their values. Merges go by
# codes, which they do not make anew.
use Gpugraph;
use Format;
use Merging;

my $node = new_node('storage', init => { allows_streaming => 1 });

sub query
{
	my ($sql, $on) = @_;

	return ($on || $node)->sql("SET gpugraph.engine = cpu; SET enable_seqscan = off; $sql");
}

sub info
{
	my ($columns, $index) = @_;

	return query(sprintf "SELECT $columns FROM gpugraph_index_info('%s')", $index || 'items_idx');
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
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat) WITH (seal_rows = 500);
SQL
my $by_rows = recall();
my $bytes = info('total_bytes - adjacency_bytes');
query("ALTER INDEX items_idx SET (storage = int4); REINDEX INDEX items_idx");
is(info('version, element, codes, vectors_bytes'), '4|int4|int4|0', 'codes and no vectors');
cmp_ok(info('total_bytes - adjacency_bytes'), '<', $bytes / 3, 'beside the graph a third is left');
index_is_complete($node, 'a build');
cmp_ok(recall(), '>=', $by_rows - 0.005, 'a scan finds as much as by rows');

query('ALTER TABLE items SET (parallel_workers = 2); SET max_parallel_maintenance_workers = 2;
	ALTER INDEX items_idx SET (segment_rows = 3000); REINDEX INDEX items_idx;
	ALTER INDEX items_idx RESET (segment_rows); ALTER TABLE items RESET (parallel_workers)');
# where rows lie depends on the processes
cmp_ok(recall(), '>=', $by_rows - 0.01, 'by several processes, several segments');
index_is_complete($node, 'by several processes');
query('REINDEX INDEX items_idx');

# ---- what is returned comes in order, and as the snapshot sees it. Two float32 sums of 64 squares
# in their own orders, the engine's and pgvector's, are off by (64 + 32) 2^-25 of the distance at
# most in each (src/engine/rules/codes.h); estimates from codes by more than 1e-3.
my $ordered = 'SELECT count(*), count(DISTINCT id),
	count(*) FILTER (WHERE d < before * (1 - 4 * 96 * 2 ^ -25)) FROM (
	SELECT id, d, lag(d) OVER () AS before FROM (SELECT id,
		val <-> (SELECT val FROM queries LIMIT 1) AS d FROM items %s ORDER BY d LIMIT %s) s) t';
is(query(sprintf $ordered, '', 1000), '1000|1000|0', 'strict order');
is(query('SET gpugraph.rerank_size = 20; ' . sprintf $ordered, '', 1000), '1000|1000|0',
	'strict order, of few rows that are read at a time');
is(query('SET gpugraph.iterative_scan = off;' . sprintf $ordered, '', 1000), '64|64|0', 'off');
is(query('SET gpugraph.iterative_scan = relaxed_order;' . sprintf $ordered, '', 10000)
		=~ s/\|\d+\z//r, '8160|8160', 'relaxed order');
is(query(sprintf $ordered, 'WHERE cat = 3', 20), '20|20|0', 'with a filter');
my $ten = 'SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 10;
	SELECT reranked FROM gpugraph_last_scan()';
my ($reranked) = query($ten) =~ /(\d+)\z/;
ok($reranked >= 10 && $reranked <= 47, "$reranked rows were read, no more than by default");
like(query("SET gpugraph.rerank_size = 40; $ten"), qr/\n40\z/, 'or as many as a setting says');
is(query('SELECT count(*) FROM (SELECT id FROM items ORDER BY val <-> NULL LIMIT 20) s'), 20,
	'a query that is NULL');
is(query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queries;
	DELETE FROM items WHERE id IN (SELECT id FROM items
		ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 40);
	UPDATE items SET big = big + 1;
	" . (sprintf $ordered, '', 100) . '; ROLLBACK'), "50\n100|100|0", 'dead rows do not count');
is(query('SET gpugraph.iterative_scan = off; BEGIN;
	DELETE FROM items WHERE id IN (SELECT id FROM items
		ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 40);
	' . (sprintf $ordered, '', 100) . '; ROLLBACK'), '64|64|0', 'nor with iterative_scan off');
query('VACUUM items');

# ---- functions
query('INSERT INTO items SELECT 19000 + id, cat, big, val FROM source WHERE id <= 300');
is(query('SELECT count(*), min(distance) >= 0 FROM gpugraph_search(\'items_idx\',
	(SELECT array_agg(val) FROM queries), 10)'), '500|t', 'gpugraph_search');
cmp_ok(query("SELECT min(recall) FROM gpugraph_recall('items_idx', 10, 20)
	WHERE itopk_size >= 64"), '>=', 0.95, 'gpugraph_recall');

query('CREATE INDEX ON items (big); ANALYZE items');
is(query(sprintf $ordered, 'WHERE big % 2 = 0 AND big < 500000', 20), '20|20|0', 'other indexes');
is(query("SELECT gpugraph_learn('items_idx', (SELECT array_agg(val) FROM queries), 4) >= 0"), 't',
	'gpugraph_learn');

# ---- ten generations of merges on a standby, too, a compaction, a crash
my ($standby, $merged, $compacted, $fresh) = survives_generations($node, \&query, \&recall,
	sub { is(info('vectors_bytes, delta_rows < 1000'), '0|t', $_[0]); });
note("recall after ten generations $merged, a compaction $compacted, of a fresh build $fresh");
cmp_ok($compacted, '>=', $fresh - 0.005, 'merges and compaction lose no recall');
cmp_ok($merged, '>=', 0.98, 'nor did merges');

# ---- other columns: an expression, halfvec, long values out of line, few dimensions
query(<<'SQL');
CREATE INDEX half_idx ON items USING gpugraph ((val::halfvec(64)) halfvec_cosine_ops)
	WITH (storage = int8);
CREATE TABLE long AS SELECT i AS id, (SELECT array_agg(sin(i * 13 + d * d)) FROM
	generate_series(1, 3000) d)::vector(3000) AS val FROM generate_series(1, 200) i;
ALTER TABLE long ALTER val SET STORAGE EXTENDED;	-- compressed, and still out of line
INSERT INTO long SELECT i, (SELECT array_agg(CASE WHEN d < 1000 THEN sin(i * 13 + d * d) ELSE 0 END)
	FROM generate_series(1, 3000) d)::vector(3000) FROM generate_series(201, 300) i;
CREATE INDEX long_idx ON long USING gpugraph (val vector_ip_ops) WITH (storage = int4);
CREATE TABLE flat AS SELECT i AS id, ARRAY[sin(i), cos(i * 7), sin(i * 3)]::vector(3) AS val
	FROM generate_series(1, 4000) i;
CREATE INDEX flat_idx ON flat USING gpugraph (val vector_l1_ops) WITH (storage = int4);
CREATE INDEX angle_idx ON flat USING gpugraph (val vector_cosine_ops) WITH (storage = int4);
SQL
for my $case ([ 'half_idx', 'items', 'val::halfvec(64)', 'val::halfvec(64) <=>' ],
	[ 'long_idx', 'long', 'val', 'val <#>' ], [ 'flat_idx', 'flat', 'val', 'val <+>' ],
	[ 'angle_idx', 'flat', 'val', 'val <=>' ])
{
	my ($index, $rel, $value, $by) = @$case;
	my $sql = "SELECT count(*) FROM (SELECT id, (SELECT array_agg(d) FROM (SELECT $by (SELECT $value
			FROM $rel WHERE id = q.id) AS d FROM $rel ORDER BY 1 LIMIT 10) s) AS ds
		FROM $rel q WHERE id % 37 = 1 ORDER BY id LIMIT 8) t, unnest(ds) d WHERE d <=
		(SELECT max(d) FROM (SELECT $by (SELECT $value FROM $rel WHERE id = t.id) AS d FROM $rel
			ORDER BY ($by (SELECT $value FROM $rel WHERE id = t.id)) + 0 LIMIT 10) s) + 1e-6";

	is(query("SELECT gpugraph_check('$index', true)"), '', "$index: sound");
	cmp_ok(query("SET gpugraph.rerank_size = 200; $sql"), '>=', 72, "$index: the nearest rows");
}
is(query("SELECT count(*), count(DISTINCT tid) FROM gpugraph_knn_graph('flat_idx', 2)"),
	'8000|4000', 'gpugraph_knn_graph');
query("INSERT INTO flat SELECT 10000 + id, val + '[0.001, 0.002, 0]' FROM flat;
	SELECT gpugraph_merge('angle_idx')");
cmp_ok(info('nodes + delta_rows', 'angle_idx'), '>', 7900, 'few dimensions: rows stay apart');

# an expression runs as the owner of the table, whoever searches
query(<<'SQL');
CREATE ROLE reader;
CREATE FUNCTION as_owner(v vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF current_user = 'reader' THEN
		RAISE EXCEPTION 'as the caller';
	END IF;
	RETURN v;
END $$;
CREATE TABLE owned AS SELECT id, val FROM source;
CREATE INDEX owned_idx ON owned USING gpugraph ((as_owner(val)::vector(64)) vector_l2_ops)
	WITH (storage = int4);
GRANT SELECT ON owned, queries TO reader;
SQL
is(query("SET ROLE reader; SELECT count(*) FROM gpugraph_search('owned_idx',
	(SELECT array_agg(val) FROM queries), 10)"), 500, 'expressions run as the owner');

# ---- what does not go together
like(error_of($node, "\\set VERBOSITY verbose
	SET gpugraph.engine = cuda; SET enable_seqscan = off;
	SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 1"),
	qr/ERROR:  55000/, 'engine cuda');

# ---- damage
my $file = index_file($node, 'long_idx');
$node->stop;
patch($file, CODES, 1520 - 8, pack 'f', -9**9**9);
$node->start;
like(error_of($node, "SELECT gpugraph_check('long_idx')"),
	qr/code \d+ of piece \d+ is not finite/, 'a code that is not finite');

finish_test($node, $standby);
