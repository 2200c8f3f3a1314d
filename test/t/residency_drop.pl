# What is dropped, truncated or rebuilt never answers from its old copy, and its memory goes back
# soon.
use Gpugraph;
use Residency;

my $node = service_node('drop');
make_items($node, 4000, 16);
my $prewarm = "SELECT gpugraph_prewarm('items_idx')";

sub one_resident
{
	my ($what) = @_;
	my $seen;

	wait_for(sub { $seen = of_device($node, 'resident_indexes'); return $seen <= 1 });
	is($seen, 1, "$what: the old copy is gone");
	is(of_device($node, 'resident_bytes'), of_index($node, 'bytes'), "$what: and its memory");
	return;
}

$node->sql($prewarm);
truth_by_device($node, 'before');

# ---- REINDEX of other rows
$node->sql('UPDATE items SET val = other.val FROM items other WHERE other.id = 4001 - items.id');
$node->sql('REINDEX INDEX items_idx');
is(truth($node) =~ /^1\.0000/ ? 'yes' : 'no', 'yes', 'the first answers after REINDEX are right');
$node->sql($prewarm);
truth_by_device($node, 'REINDEX');
one_resident('REINDEX');

# ---- REINDEX that is rolled back leaves the copy in use
$node->sql('BEGIN; REINDEX INDEX items_idx; ROLLBACK');
truth_by_device($node, 'REINDEX rolled back');

# ---- REINDEX CONCURRENTLY, CLUSTER, VACUUM FULL
$node->sql('REINDEX INDEX CONCURRENTLY items_idx');
$node->sql($prewarm);
truth_by_device($node, 'REINDEX CONCURRENTLY');
one_resident('REINDEX CONCURRENTLY');
$node->sql('CLUSTER items USING items_pkey');
$node->sql($prewarm);
truth_by_device($node, 'CLUSTER');
one_resident('CLUSTER');

# ---- TRUNCATE
$node->sql('CREATE TABLE kept AS SELECT * FROM items WHERE id > 100; TRUNCATE items');
is($node->sql('SELECT use_index(true);
	SELECT count(*) FROM (SELECT * FROM items ORDER BY val <-> (SELECT val FROM kept LIMIT 1)) s'),
	"\n0", 'a truncated table has no rows');
$node->sql('INSERT INTO items SELECT * FROM kept; REINDEX INDEX items_idx');
$node->sql($prewarm);
truth_by_device($node, 'TRUNCATE');
one_resident('TRUNCATE');

# ---- DROP, rolled back and done, while it is loaded over and over
$node->sql('BEGIN; DROP INDEX items_idx; ROLLBACK');
truth_by_device($node, 'DROP rolled back');
my $storm = start_psql($node, ("SELECT gpugraph_evict('items_idx')", $prewarm) x 100);
wait_for(sub { of_device($node, 'loads') > 20 });
$node->sql('DROP INDEX items_idx');
finish_psql($storm);
ok_in_time(sub { of_device($node, "resident_indexes || ' ' || resident_bytes") eq '0 0' },
	'DROP INDEX gives the memory back');
is($node->sql('SELECT use_index(true); SELECT count(*) FROM items'), "\n3900",
	'the table is there');

# ---- DROP DATABASE
$node->sql('CREATE DATABASE other');
$node->safe_psql('other', <<'SQL');
CREATE EXTENSION vector; CREATE EXTENSION gpugraph;
CREATE TABLE t AS SELECT i AS id, ARRAY[i, i % 7, i % 11]::vector(3) AS val
	FROM generate_series(1, 1000) i;
CREATE INDEX t_idx ON t USING gpugraph (val vector_l2_ops);
SELECT gpugraph_prewarm('t_idx');
SQL
is($node->sql("SELECT state FROM gpugraph_stat_index WHERE datname = 'other' AND index IS NULL"),
	'ready', 'an index of another database is seen, but has no name here');
$node->sql('DROP DATABASE other');
ok_in_time(sub { of_device($node, "resident_indexes || ' ' || resident_bytes") eq '0 0' },
	'DROP DATABASE gives the memory back');

is(log_lines($node, qr/(PANIC|TRAP|ERROR:.*gpugraph)/), 0, 'nothing was said of it in the log');
finish_test($node);
