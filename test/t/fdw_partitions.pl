# Partitions on other servers, by postgres_fdw: a function over limited subqueries has every server
# sort and limit its own rows, side by side, and its answers are those of one table.
use Gpugraph;

my @shards = map { new_node("shard$_") } 1 .. 2;
my $main = new_node('main');

# ---- the table: a partition here, one on each server
make_items($main, 3000, 16);
$main->sql('CREATE EXTENSION postgres_fdw;
	CREATE TABLE parts (id int NOT NULL, cat int, big int, val vector(16)) PARTITION BY HASH (id);
	CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 3, REMAINDER 0)');
for my $i (1 .. 2)
{
	my $shard = $shards[ $i - 1 ];
	my ($host, $port) = ($shard->host, $shard->port);

	$shard->sql("CREATE TABLE parts_$i
		(id int NOT NULL, cat int, big int, val vector(16));
		CREATE INDEX parts_${i}_idx ON parts_$i USING gpugraph (val, cat)");
	$main->sql("CREATE SERVER shard$i FOREIGN DATA WRAPPER postgres_fdw
		OPTIONS (host '$host', port '$port', dbname 'postgres', extensions 'vector',
		async_capable 'true');
		CREATE USER MAPPING FOR CURRENT_USER SERVER shard$i;
		IMPORT FOREIGN SCHEMA public LIMIT TO (parts_$i) FROM SERVER shard$i INTO public;
		ALTER TABLE parts ATTACH PARTITION parts_$i FOR VALUES WITH (MODULUS 3, REMAINDER $i)");
}
$main->sql(<<'SQL');
INSERT INTO parts SELECT * FROM items;
CREATE INDEX parts_idx ON parts USING gpugraph (val, cat);
CREATE FUNCTION nearest(q vector, k int) RETURNS TABLE (id int, distance float8)
LANGUAGE sql STABLE BEGIN ATOMIC
	SELECT id, d FROM (
		(SELECT id, val <-> q AS d FROM parts_0 ORDER BY val <-> q LIMIT k) UNION ALL
		(SELECT id, val <-> q FROM parts_1 ORDER BY val <-> q LIMIT k) UNION ALL
		(SELECT id, val <-> q FROM parts_2 ORDER BY val <-> q LIMIT k) OFFSET 0) s
	ORDER BY d LIMIT k;
END;
CREATE FUNCTION nearest_below(q vector, k int, c int) RETURNS TABLE (id int, distance float8)
LANGUAGE sql STABLE BEGIN ATOMIC
	SELECT id, d FROM (
		(SELECT id, val <-> q AS d FROM parts_0 WHERE cat < c ORDER BY val <-> q LIMIT k) UNION ALL
		(SELECT id, val <-> q FROM parts_1 WHERE cat < c ORDER BY val <-> q LIMIT k) UNION ALL
		(SELECT id, val <-> q FROM parts_2 WHERE cat < c ORDER BY val <-> q LIMIT k) OFFSET 0) s
	ORDER BY d LIMIT k;
END;
SQL
is($main->sql('SELECT count(*) FROM parts'), 3000, 'rows went to all partitions');
is($main->sql("SELECT count(*) FROM pg_inherits WHERE inhparent = 'parts_idx'::regclass"),
	1, 'an index on the partitioned table is one of the partitions that are here');

# The lines of a plan that say what goes to a server.
sub remote_sql
{
	my ($sql) = @_;

	return grep { /Remote SQL/ } split /\n/, explained($sql);
}

sub explained
{
	my ($sql) = @_;

	return $main->sql("EXPLAIN (VERBOSE, COSTS OFF) $sql");
}

my $query = '(SELECT val FROM queries WHERE q = 1)';
my $vector = "'" . $main->sql("SELECT val FROM queries WHERE q = 1") . "'";
my $limited = qr/ORDER BY \(val OPERATOR\(public\.<->\) '\[.*\]'\) ASC NULLS LAST LIMIT 10/;

# ---- what the servers are asked
for my $state ('before ANALYZE', 'after ANALYZE', 'by remote estimates')
{
	$main->sql('ANALYZE parts') if $state eq 'after ANALYZE';
	$main->sql("ALTER SERVER shard1 OPTIONS (ADD use_remote_estimate 'true');
		ALTER SERVER shard2 OPTIONS (ADD use_remote_estimate 'true')")
		if $state eq 'by remote estimates';
	my $plan = explained("SELECT * FROM nearest($vector, 10)");
	my @sql = grep { /Remote SQL/ } split /\n/, $plan;
	is(scalar(grep { /$limited/ } @sql), 2, "$state: ORDER BY and LIMIT go to each server")
		or diag($plan);
	is(scalar(() = $plan =~ /Async Foreign Scan/g), 2, "$state: at the same time") or diag($plan);
	next if $state eq 'before ANALYZE';
	@sql = remote_sql("SELECT * FROM nearest_below($vector, 10, 25)");
	is(scalar(grep { /WHERE \(\(cat < 25\)\) $limited/ } @sql), 2, "$state: conditions, too")
		or diag(@sql);
}
is(scalar(grep { /ORDER BY .* LIMIT/ } remote_sql("SELECT id FROM parts ORDER BY val <-> $vector
	LIMIT 10")), 0, 'the partitioned table itself does not send LIMIT');
$main->sql("ALTER SERVER shard1 OPTIONS (DROP extensions)");
is(scalar(grep { /ORDER BY/ } remote_sql("SELECT * FROM nearest($vector, 10)")), 1,
	'nor is anything sorted there without "extensions"');
$main->sql("ALTER SERVER shard1 OPTIONS (ADD extensions 'vector')");

# ---- answers
# how many of the 20 queries have the answer of items, by the plans of $settings
sub equal_answers
{
	my ($settings) = @_;

	return $main->sql("$settings;
		SELECT count(*) FROM queries, LATERAL (SELECT
			(SELECT array_agg(id ORDER BY distance, id) FROM nearest(val, 10)) =
			(SELECT array_agg(id ORDER BY d, id)
				FROM (SELECT id, items.val <-> queries.val AS d FROM items ORDER BY d LIMIT 10) s)
			AND (SELECT array_agg(id ORDER BY distance, id) FROM nearest_below(val, 10, q)) =
			(SELECT array_agg(id ORDER BY d, id) FROM (SELECT id, items.val <-> queries.val AS d
				FROM items WHERE cat < q ORDER BY d LIMIT 10) s) AS equal) e WHERE equal");
}

# what settings a session on the servers has
sub remote_settings
{
	my ($change, $settings) = @_;

	$main->sql("ALTER SERVER shard$_ OPTIONS ($change options '$settings')") for 1 .. 2;
	return;
}

my $exact = 'SET enable_indexscan = off';
remote_settings('ADD', '-c enable_indexscan=off');
is(equal_answers($exact), 20, 'exact plans: the answers of one table');
is($main->sql("$exact; SELECT array_agg(id ORDER BY d, id) =
	(SELECT array_agg(id ORDER BY distance, id) FROM nearest($vector, 10))
	FROM (SELECT id, val <-> $vector AS d FROM parts ORDER BY d LIMIT 10) s"), 't',
	'and those of the partitioned table');
remote_settings('SET', '-c enable_seqscan=off -c gpugraph.itopk_size=512');
my $by_index = 'SET enable_seqscan = off; SET gpugraph.itopk_size = 512';
is(equal_answers($by_index), 20, 'by the indexes: the answers of one index');
my $moved = 'SELECT id + 10000, cat, big, val + array_fill(0.01::real, ARRAY[16])::vector';
$main->sql("INSERT INTO items $moved FROM items;
	INSERT INTO parts $moved FROM parts;
	DELETE FROM items WHERE id % 7 = 0;
	DELETE FROM parts WHERE id % 7 = 0");
is(equal_answers($by_index), 20, 'after inserts and deletes through the partitioned table');

# ---- a table with partitions here and there
$main->sql(<<'SQL');
CREATE TABLE mixed (LIKE items) PARTITION BY LIST (cat);
CREATE TABLE mixed_0 PARTITION OF mixed FOR VALUES IN (0);
CREATE TABLE mixed_1 PARTITION OF mixed FOR VALUES IN (1);
CREATE FOREIGN TABLE mixed_2 PARTITION OF mixed FOR VALUES IN (2)
	SERVER shard1 OPTIONS (table_name 'parts_1');
INSERT INTO mixed SELECT id, id % 2, big, l2_normalize(val) FROM items WHERE id < 2000;
CREATE INDEX ON mixed_0 USING gpugraph (val);
CREATE INDEX ON mixed_1 USING gpugraph (val);
ANALYZE mixed;
SQL
my $mixed = "SELECT id, tableoid::regclass FROM mixed ORDER BY val <-> $vector LIMIT 100";
my $fast = "LOAD 'gpugraph'; SET enable_seqscan = off; SET enable_sort = off";
like($main->sql("$fast; EXPLAIN (VERBOSE) $mixed"),
	qr/GpugraphPartitions.*Index Scan.*Index Scan.*Foreign Scan on public\.mixed_2.*ORDER BY/s,
	'partitions here are searched together, beside the one of a server');
is($main->sql("$by_index; $fast; $mixed"),
	$main->sql("SET enable_indexscan = off; $mixed"), 'with the same rows');

# ---- a server that is down
$shards[1]->stop;
my ($rc, $out, $err) = $main->psql('postgres',
	"\\set VERBOSITY verbose\nSELECT * FROM nearest($vector, 10)");
like($err, qr/ERROR:  08001: could not connect to server "shard2"/, 'a server that is down');
is($out, '', 'no rows without its rows');
$shards[1]->start;
is(equal_answers($by_index), 20, 'it is back');

$_->stop for $main, @shards;
done_testing();
