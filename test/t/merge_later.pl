# What is due is merged though nobody asks for it again.
use Gpugraph;
use Merging;

# One worker and several indexes in two databases: each has its turn, and what is worth it only when
# nobody inserts is done for all of them.
subtest merge_turns => sub {
	my $node = merging_node('later');
	make_source($node, 3000, 16);
	my $load = 'INSERT INTO %s SELECT id + 1000000, cat, big, val FROM source';
	$node->sql(<<'SQL');
CREATE TABLE others (LIKE items);
INSERT INTO others SELECT * FROM source;
CREATE INDEX others_idx ON others USING gpugraph (val) WITH (seal_rows = 100000);
ALTER INDEX items_idx SET (seal_rows = 100000);
SQL
	$node->sql('CREATE DATABASE elsewhere');
	$node->safe_psql('elsewhere', <<'SQL');
CREATE EXTENSION vector;
CREATE EXTENSION gpugraph;
CREATE TABLE items AS SELECT i AS id, ARRAY[i, i % 7, 1]::real[]::vector(3) AS val
	FROM generate_series(1, 1500) i;
CREATE INDEX items_idx ON items USING gpugraph (val) WITH (seal_rows = 100000);
SQL

	# Inserts ask for each of them.
	my sub delta
	{
		my ($database, $name) = @_;
		return $node->safe_psql($database,
			"SELECT delta_rows FROM gpugraph_index_info('${name}_idx')");
	}
	$node->sql(sprintf($load, 'items'));
	$node->sql(sprintf($load, 'others'));
	$node->safe_psql('elsewhere', 'INSERT INTO items SELECT id + 10000, val FROM items');
	for (['postgres', 'items'], ['postgres', 'others'], ['elsewhere', 'items'])
	{
		my ($database, $name) = @$_;
		ok_in_time(sub { delta($database, $name) < 200 },
			"$name of $database is sealed when nobody inserts");
	}
	ok(defined wait_for_merges($node), 'the worker ends');
	is($node->sql('SELECT count(*) FROM gpugraph_stat_merge'), '0', 'nothing waits');
};

# A merge fails, and rows come meanwhile. They are merged a minute later, though nobody asks for it
# again: by a worker, or by VACUUM where there is none.
subtest merge_retry => sub {
	my $node = merging_node('later');

	$node->sql(<<'SQL');
CREATE TABLE items (id int, val vector(8)) WITH (autovacuum_enabled = off);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 500);
CREATE FUNCTION fill(a int, b int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO items SELECT i, (SELECT array_agg(sin(i * j + i % 17))::real[]::vector(8)
		FROM generate_series(1, 8) j) FROM generate_series(a, b) i
$$;
SQL

	# Have the worker's merge fail. True: so it did.
	my sub merge_fails
	{
		my ($from) = @_;
		my $rest = hold_at($node, 'merge');

		alter_system($node, 'SET gpugraph.fault = hold_merge');
		$node->sql("SELECT fill($from, $from + 2999)");
		rests_at($node, 'merge');
		alter_system($node, 'RESET gpugraph.fault');
		$node->sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE backend_type = 'gpugraph merge worker'");
		finish_psql($rest);
		return defined wait_for(sub { $node->sql(
			'SELECT phase FROM gpugraph_stat_merge') eq 'failed' });
	}

	ok(merge_fails(1), 'a merge fails');
	$node->sql("SELECT fill(10001, 20000)");
	cmp_ok(merge_info($node, 'delta_rows'), '>', 10000,
		'rows that come then are not merged at once');
	is($node->sql('SELECT phase FROM gpugraph_stat_merge'), 'failed', 'the view');
	ok_in_time(sub { merge_info($node, 'delta_rows') < 1000 }, 'but later');
	index_is_complete($node, 'with a worker');

	ok(merge_fails(30001), 'another merge fails');
	alter_system($node, 'SET gpugraph.merge_workers = 0');
	$node->sql('SELECT fill(40001, 43000)');
	$node->sql('VACUUM items');
	cmp_ok(merge_info($node, 'delta_rows'), '<', 1000, 'without a worker VACUUM merges');
	index_is_complete($node, 'without a worker');

	$node->stop;
};

done_testing();
