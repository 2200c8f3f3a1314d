# pg_dump and pg_restore carry an index over as its definition, with all options, and restoring
# builds it anew. test/upgrade runs this from one version of PostgreSQL to another.
use Gpugraph;

my $old = new_node('old');
make_items($old, 2000, 16);
$old->sql(<<'SQL');
CREATE INDEX items_filters ON items USING gpugraph (val vector_cosine_ops, cat, big)
	WITH (storage = float16, graph_degree = 16, intermediate_graph_degree = 48, seed = 7,
	seal_rows = 700, segment_rows = 100000);
CREATE INDEX items_half ON items USING gpugraph ((val::halfvec(16)) halfvec_ip_ops)
	WITH (storage = int4) WHERE cat < 25;
CREATE INDEX items_grnnd ON items USING gpugraph (val vector_l1_ops)
	WITH (algorithm = grnnd, pool_capacity = 80, rho = 0.5, storage = 'float32+int8');
COMMENT ON INDEX items_idx IS 'nearest items';
CREATE TABLE parts (LIKE items) PARTITION BY LIST (cat);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES IN (0, 1, 2);
CREATE TABLE parts_rest PARTITION OF parts DEFAULT;
INSERT INTO parts SELECT * FROM items;
CREATE INDEX parts_idx ON parts USING gpugraph (val, big) WITH (algorithm = tsdg, alpha = 1.2);
ALTER INDEX items_idx SET (seal_rows = 900);
SELECT gpugraph_learn('items_idx', array_agg(val)) FROM queries;
SELECT gpugraph_partition_by_centroid('items', 'val', 'pages', 4);
INSERT INTO pages SELECT * FROM items;
CREATE INDEX pages_idx ON pages USING gpugraph (val);
CREATE VIEW health AS SELECT indexname, state FROM gpugraph_indexes;
CREATE MATERIALIZED VIEW near AS
	SELECT id, val FROM items ORDER BY val <-> (SELECT val FROM items WHERE id = 1) LIMIT 100;
CREATE INDEX near_idx ON near USING gpugraph (val);
INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id % 4 = 0;
DELETE FROM items WHERE id % 7 = 0;
ALTER DATABASE postgres SET gpugraph.itopk_size = 200;
SQL

my $definitions = "SELECT pg_get_indexdef(indexrelid) || coalesce(obj_description(indexrelid), '')
	FROM pg_index WHERE indexrelid::regclass::text ~ '^(items|parts|pages|near)' ORDER BY 1";
my $exact = "SET enable_indexscan = off; SELECT array_agg(id) FROM (SELECT id FROM items
	ORDER BY val <-> (SELECT val FROM queries WHERE q = 3) LIMIT 10) s";
my $routed = "SELECT tableoid::regclass, count(*) FROM pages GROUP BY 1 ORDER BY 1";
my $probed = "SET gpugraph.partition_probes = 1; SET enable_indexscan = off; SELECT array_agg(id)
	FROM (SELECT id FROM pages ORDER BY val <-> (SELECT val FROM queries WHERE q = 3) LIMIT 10) s";
my $dir = $PostgreSQL::Test::Utils::tmp_check;
my $new = newer_node('new');
init_node($new);
$new->append_conf('postgresql.conf', "autovacuum = off\n");
$new->start;

# The newer version's programs read the older server.
forget_newer_options($old);
$new->command_ok(
	[ 'pg_dump', '-Fc', '-f', "$dir/dump", '-C', '-d', $old->connstr('postgres') ], 'pg_dump');
$new->command_ok(
	[ 'pg_dump', '-Fd', '-j2', '-f', "$dir/dumps", '-d', $old->connstr('postgres') ],
	'pg_dump by two processes');
$new->sql('CREATE DATABASE beside');
$new->command_ok([ 'pg_restore', '-e', '-j2', '-d', $new->connstr('beside'), "$dir/dumps" ],
	'pg_restore by two processes');
$new->command_ok(
	[ 'pg_restore', '-e', '-C', '--clean', '-d', $new->connstr('template1'), "$dir/dump" ],
	'pg_restore -C');

my $samples = "SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = c.relam,
	gpugraph_index_info(c.oid) i WHERE a.amname = 'gpugraph' AND c.relkind = 'i'
	AND i.sample_queries > 0";
is($old->sql($samples), 1, 'there is a sample');
for my $database ('postgres', 'beside')
{
	is($new->safe_psql($database, $samples), 0, "$database: queries of users are in no dump");
	is($new->safe_psql($database, $definitions), $old->sql($definitions),
		"$database: the same definitions");
	is($new->safe_psql($database, $exact), $old->sql($exact), "$database: the same rows");
	is($new->safe_psql($database, $routed), $old->sql($routed),
		"$database: rows in the partitions of their centroids");
	is($new->safe_psql($database, $probed), $old->sql($probed), "$database: the same probes");
	is($new->safe_psql($database, "SELECT bool_and(gpugraph_check(indexrelid, true) IS NOT NULL)
		FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
		WHERE relkind = 'i' AND relam = (SELECT oid FROM pg_am WHERE amname = 'gpugraph')"), 't',
		"$database: sound indexes of all rows");
	cmp_ok($new->safe_psql($database, "SELECT recall('items', '<->')"), '>=', 0.98,
		"$database: recall");
}
is($new->sql('SHOW gpugraph.itopk_size'), 200, 'settings of the database');
index_is_complete($new, 'restored');
$new->sql('INSERT INTO items SELECT id + 100000, cat, big, val FROM items;
	DELETE FROM items WHERE id < 100000');
$new->sql('VACUUM items');
index_is_complete($new, 'restored and used');

$_->stop for $old, $new;
done_testing();
