# No subscriber gets the queries that an index learns from: not by a publication of all tables, nor
# of a schema, nor of partitions, and what both sides learn stands in nobody's way.
use Gpugraph;
use Merging;

my @nodes = map { new_node($_, init => { allows_streaming => 'logical' }) }
	qw(publisher subscriber);
my ($publisher, $subscriber) = @nodes;

$_->sql(<<'SQL') for @nodes;
CREATE TABLE items (id int PRIMARY KEY, val vector(4));
CREATE TABLE parts (id int PRIMARY KEY, val vector(4)) PARTITION BY RANGE (id);
CREATE TABLE part1 PARTITION OF parts FOR VALUES FROM (0) TO (1000);
CREATE TABLE part2 PARTITION OF parts FOR VALUES FROM (1000) TO (100000);
CREATE INDEX items_idx ON items USING gpugraph (val) WITH (graph_degree = 8);
CREATE INDEX parts_idx ON parts USING gpugraph (val) WITH (graph_degree = 8);
CREATE FUNCTION queries(index text, n int, seed float) RETURNS bigint LANGUAGE sql AS $$
	SELECT setseed(seed);
	SELECT gpugraph_learn(index::regclass, array_agg(ARRAY[random(), random(), 7, i]::vector), 4)
		FROM generate_series(1, n) i;
$$;
CREATE FUNCTION samples() RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(sample_queries::text, ' ' ORDER BY c.relname)
		FROM pg_class c JOIN pg_am a ON a.oid = c.relam, gpugraph_index_info(c.oid)
		WHERE a.amname = 'gpugraph' AND c.relkind = 'i' $$;
SQL
$publisher->sql("SELECT queries('items_idx', 50, 0.1)");
$publisher->sql("CREATE PUBLICATION of_all FOR ALL TABLES
	WITH (publish_via_partition_root = true);
	CREATE PUBLICATION of_schema FOR TABLES IN SCHEMA public;
	SELECT pg_create_logical_replication_slot('looked_at', 'pgoutput')");
my $from = $publisher->connstr . ' dbname=postgres';
$subscriber->sql("SELECT queries('items_idx', 30, 0.2);
	CREATE SUBSCRIPTION of_all CONNECTION '$from' PUBLICATION of_all WITH (copy_data = true)");
$subscriber->wait_for_subscription_sync($publisher, 'of_all');
$publisher->sql("INSERT INTO items SELECT i, ARRAY[random(), i, 0, 1]::vector
	FROM generate_series(1, 600) i;
	INSERT INTO parts SELECT id * 3, val FROM items;
	SELECT gpugraph_merge(i::regclass)
		FROM unnest('{items_idx,part1_val_idx,part2_val_idx}'::text[]) i;
	SELECT queries('items_idx', 70, 0.3); SELECT queries('part1_val_idx', 20, 0.4)");

# what a plug-in is given: rows of users' tables alone
my $changes = "SELECT count(*), count(*) FILTER (WHERE get_byte(data, 0) = ascii('I'))
	FROM pg_logical_slot_get_binary_changes('looked_at', NULL, NULL, 'proto_version', '1',
		'publication_names', 'of_all,of_schema')";
like($publisher->sql($changes), qr/^\d+\|1200$/, 'rows of the tables are sent');
$publisher->sql("SELECT queries('items_idx', 90, 0.5);
	SELECT gpugraph_forget('part1_val_idx'); SELECT queries('part2_val_idx', 10, 0.5);
	REINDEX TABLE items");
like($publisher->sql($changes), qr/\|0$/, 'and none of what learns');

$publisher->wait_for_catchup('of_all');
is($publisher->sql('SELECT samples()'), '90 0 10', 'what the publisher has');
is($subscriber->sql('SELECT samples()'), '30 0 0', 'what the subscriber has');
is($subscriber->sql('SELECT (SELECT count(*) FROM items), count(*) FROM parts'),
	'600|600', 'the rows are there');
$publisher->sql('TRUNCATE items, parts; INSERT INTO items VALUES (1, NULL)');
$publisher->wait_for_catchup('of_all');
is($subscriber->sql('SELECT count(*) FROM items'), 1, 'TRUNCATE is replicated');
is($subscriber->sql('SELECT samples()'), '30 0 0', 'and leaves the sample');
is($subscriber->sql(
	'SELECT sum(apply_error_count) FROM pg_stat_subscription_stats'), 0, 'without an error');
$_->stop for reverse @nodes;
done_testing();
