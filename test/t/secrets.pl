# What rows hold is not told to those who may not read them: not by views, errors, hints and
# statistics, and not by the server's log, at the level debug5. Rows have numbers and words that no
# statement has.
use Gpugraph;
use Residency;

my $node = service_node('secrets', conf => <<'CONF');
log_min_messages = debug5
log_error_verbosity = verbose
gpugraph.device_memory = 4MB
CONF

# 4242.4, 987654321 and 'geheim' are made of others, so that they are data alone
my $secret = qr/4242\.4|4\.2424|987654321|geheim/;
my $vector = "ARRAY[i, 42424 / 10.0 + i % 3 / 100.0, i % 7, 1]::real[]::vector";
$node->sql(<<SQL);
CREATE ROLE owner;
CREATE ROLE nobody;
CREATE ROLE some_columns;
CREATE ROLE reader;
CREATE ROLE monitor IN ROLE pg_monitor, pg_stat_scan_tables;
CREATE TABLE items (id int, number bigint, word text, val vector(4));
INSERT INTO items SELECT i, 100000000::bigint * 9 + 87654321, concat('ge', 'heim'), $vector
	FROM generate_series(1, 3000) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, number, word);
CREATE INDEX codes_idx ON items USING gpugraph (val vector_l2_ops) WITH (storage = int8);
CREATE FUNCTION secret_centroids() RETURNS vector[] LANGUAGE sql IMMUTABLE AS \$\$
	SELECT array_agg(ARRAY[i * 100, 42424 / 10.0, 1, 1]::real[]::public.vector)
	FROM generate_series(1, 4) i \$\$;
CREATE TABLE parts (LIKE items) PARTITION BY LIST
	(gpugraph_nearest_centroid('secret_centroids()'::regprocedure, val));
CREATE TABLE parts_rest PARTITION OF parts DEFAULT;
INSERT INTO parts SELECT * FROM items LIMIT 500;
ALTER TABLE items OWNER TO owner;
ALTER TABLE parts OWNER TO owner;
ALTER FUNCTION secret_centroids() OWNER TO owner;
REVOKE EXECUTE ON FUNCTION secret_centroids() FROM PUBLIC;
GRANT SELECT (id) ON items TO some_columns;
GRANT SELECT ON items, parts TO reader;
ALTER TABLE items ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON items TO reader USING (id < 0);
SQL

like($node->sql('SELECT items FROM items LIMIT 1'), $secret, 'what is secret');
like($node->sql('SELECT secret_centroids()'), $secret, 'and centroids');

# the owner uses all of it
my $query = '(SELECT val FROM items WHERE id = 7)';
$node->psql('postgres', <<SQL, on_error_stop => 0);
SET ROLE owner;
SET enable_seqscan = off;
SELECT gpugraph_prewarm('items_idx'), gpugraph_prewarm('codes_idx');
SELECT count(*) FROM (SELECT id FROM items ORDER BY val <-> $query LIMIT 10) s;
SELECT count(*) FROM (SELECT id FROM items WHERE number = 100000000::bigint * 9 + 87654321
	AND word = concat('ge', 'heim') ORDER BY val <-> $query LIMIT 10) s;
SELECT count(*) FROM gpugraph_search('items_idx', ARRAY[$query, $query], 5);
SELECT count(*) FROM gpugraph_knn_graph('items_idx', 3);
SELECT count(*) FROM gpugraph_recall('items_idx', 3, 5);
SELECT gpugraph_learn('items_idx', (SELECT array_agg(val) FROM items WHERE id % 9 = 0));
INSERT INTO items SELECT id + 10000, number, word, val FROM items WHERE id < 500;
DELETE FROM items WHERE id % 5 = 0;
VACUUM items;
SELECT gpugraph_merge('items_idx');
SELECT gpugraph_check('items_idx', true), gpugraph_check('codes_idx', true);
SET gpugraph.partition_probes = 2;
SELECT count(*) FROM (SELECT id FROM parts ORDER BY val <-> $query LIMIT 10) s;
-- refused rows
INSERT INTO items SELECT 1, number, repeat(word, 5000), NULL FROM items LIMIT 1;
CREATE INDEX ON items USING gpugraph (val vector_cosine_ops) WITH (storage = float16);
SQL

# Everything that others see, and every error with its detail, hint and context.
my $seen = '';
for my $role (qw(nobody some_columns reader monitor))
{
	for my $sql (
		'TABLE gpugraph_indexes', 'TABLE gpugraph_stat_index', 'TABLE gpugraph_stat_device',
		'TABLE gpugraph_stat_merge', 'TABLE pg_stats',
		'TABLE pg_stat_progress_create_index', 'SELECT * FROM gpugraph_last_scan()',
		'SELECT * FROM pg_settings', 'SELECT pg_get_indexdef(indexrelid) FROM pg_index',
		(map { ("SELECT * FROM gpugraph_index_info('$_')", "SELECT gpugraph_check('$_')",
			"SELECT gpugraph_check('$_', true)", "SELECT * FROM gpugraph_recall('$_', 3, 5)",
			"SELECT * FROM gpugraph_knn_graph('$_', 3)", "SELECT gpugraph_prewarm('$_')",
			"SELECT * FROM gpugraph_search('$_', '{\"[1,2,3,4]\"}'::vector[], 5)",
			"SELECT * FROM gpugraph_search('$_', '{\"[1,2]\"}'::vector[], 5)",
			"SELECT gpugraph_learn('$_', '{\"[1,2,3,4]\"}'::vector[])",
			"SELECT gpugraph_itopk_size('$_', 3, 0.9, 5)", "SELECT gpugraph_merge('$_')",
			"SELECT gpugraph_forget('$_')",
			"SELECT gpugraph_evict('$_')") } qw(items_idx codes_idx)),
		"SELECT id, val FROM items ORDER BY val <-> '[1,2,3,4]' LIMIT 5",
		"EXPLAIN (VERBOSE) SELECT id FROM items ORDER BY val <-> '[1,2,3,4]' LIMIT 5",
		"EXPLAIN (VERBOSE) SELECT id FROM items WHERE number > 5
			ORDER BY val <-> '[1,2,3,4]' LIMIT 5",
		"SELECT gpugraph_nearest_centroid('secret_centroids()'::regprocedure, '[1,2]'::vector)",
		"SELECT gpugraph_nearest_centroid('secret_centroids()'::regprocedure, '[1,2,3,4]'::vector)",
		"SELECT gpugraph_probe('secret_centroids()'::regprocedure, '<->', '[1,2,3,4]'::vector, 1)",
		"SELECT gpugraph_partition_by_centroid('items', 'val', 'x', 3)",
		"EXPLAIN (VERBOSE) SELECT id FROM parts ORDER BY val <-> '[1,2,3,4]' LIMIT 5",
		"EXPLAIN (VERBOSE) SELECT id FROM parts ORDER BY val <-> '[1,2]' LIMIT 5",
		"SELECT id FROM parts ORDER BY val <-> '[1,2,3,4]' LIMIT 5")
	{
		my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose
			SET client_min_messages = debug5; SET gpugraph.partition_probes = 2;
			SET ROLE $role; $sql");

		fail("$role sees $&: $sql") if "$out\n$err" =~ $secret;
		$seen .= "$out\n$err\n";
	}
}
like($seen, qr/permission denied/, 'much is refused');
like($seen, qr/items_idx/, 'and something seen');
unlike($seen, $secret, 'but nothing of the rows');
my ($line) = grep { /$secret/ } split /\n/, slurp_file($node->logfile);
is($line, undef, 'nor does the log tell of them');

finish_test($node);
