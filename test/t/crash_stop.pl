# The server stops at once, or crashes: what was committed is there, and the index agrees with its
# table. crash_kill9 kills single processes.
use Gpugraph;
use Merging;
use Time::HiRes qw(usleep);

# An immediate stop during inserts, VACUUM and CREATE INDEX leaves an index that agrees with its
# table.
subtest crash_immediate_stop => sub {
	my $node = new_node('stop');
	make_items($node, 3000, 16);

	# The server stops at once, and starts again: what was going on then has left the index
	# complete.
	my sub survives_stop
	{
		my ($what, $rel, @sessions) = @_;

		$node->stop('immediate');
		finish_psql($_) for @sessions;
		$node->start;
		index_is_complete($node, "stopped $what", $rel) if defined $rel;
		return;
	}

	# inserts: the stop comes somewhere in the middle, three times
	for my $round (1 .. 3)
	{
		my $session = insert_for_ever($node, 'items',
			"SELECT $round * 1000000 + i, 0, 0, val FROM items WHERE id = 1 + i % 3000", 200);

		survives_stop("during inserts, round $round", 'items', $session);
	}
	cmp_ok($node->sql("SELECT delta_rows FROM gpugraph_index_info('items_idx')"),
		'>=', 600, 'rows inserted before the stops are there');

	# rows longer than a page
	$node->sql(<<'SQL');
CREATE TABLE wide (id int, val vector(5000));
CREATE INDEX wide_idx ON wide USING gpugraph (val vector_l2_ops);
SQL
	my $session = insert_for_ever($node, 'wide',
		'SELECT i, array_agg(((i * 31 + d * 17) % 101)::real)::vector
			FROM generate_series(1, 5000) d',
		30);
	survives_stop('during inserts of long rows', 'wide', $session);

	# VACUUM: slowed down, so that the stop comes in the middle of the index. At its last segment it
	# rests.
	$node->sql('DELETE FROM items WHERE id % 3 = 0');
	my $holder = hold_at($node, 'vacuum_last');
	$session = start_psql($node, 'SET gpugraph.fault = hold_vacuum_last',
		'SET vacuum_cost_delay = 20',
		'SET vacuum_cost_limit = 1', 'VACUUM items');
	ok_in_time(sub { $node->sql('SELECT phase FROM pg_stat_progress_vacuum')
		eq 'vacuuming indexes' }, 'VACUUM is at the indexes');
	usleep(50_000);
	survives_stop('during VACUUM', 'items', $session, $holder);
	$node->sql('VACUUM items');
	index_is_complete($node, 'VACUUM after that');

	# VACUUM that gives back the delta and a segment
	$node->sql('DELETE FROM items WHERE id <= 3000; VACUUM items');
	survives_stop('after a segment was given back', 'items');
	$node->sql('INSERT INTO items SELECT id + 5000000, 0, 0, val FROM items');
	survives_stop('after blocks were used again', 'items');

	# CREATE INDEX
	$node->sql("SELECT make_data('more', 24000, 32, 40)");
	$session = start_psql($node,
		'CREATE INDEX more_idx ON more USING gpugraph (val vector_l2_ops)');
	ok(defined wait_for_progress($node, 'building index', $session), 'the build had begun');
	survives_stop('during CREATE INDEX', undef, $session);
	is($node->sql("SELECT count(*) FROM pg_class WHERE relname = 'more_idx'"), '0',
		'an index whose build was stopped is not there');
	$node->sql('CREATE INDEX more_idx ON more USING gpugraph (val vector_l2_ops)');
	survives_stop('after CREATE INDEX', 'more');
};

# After a crash an unlogged table and its index are empty and usable, and the sample that the index
# learned from is lost with the rows; after a clean stop all three are as they were.
subtest unlogged_crash => sub {
	my $node = new_node('stop');

	my sub sample_queries
	{
		return $node->sql("SELECT sample_queries FROM gpugraph_index_info('items_idx')");
	}

	$node->sql(<<'SQL');
SELECT make_data('source', 1500, 16, 20);
CREATE UNLOGGED TABLE items AS SELECT * FROM source;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 16, intermediate_graph_degree = 32);
INSERT INTO items SELECT id + 10000, cat, big, val FROM source;
CREATE UNLOGGED TABLE free (id int, val vector);
CREATE INDEX free_idx ON free USING gpugraph (val vector_l2_ops);
INSERT INTO free VALUES (1, '[1,2,3]');
SQL
	make_learn($node, 400);
	my $learned = $node->sql('SELECT learn()');
	cmp_ok($learned, '>', 100, 'edges are learned');
	is(sample_queries(), '400', 'from a sample');
	index_is_complete($node, 'unlogged');

	$node->stop;
	$node->start;
	index_is_complete($node, 'after a clean stop');
	is($node->sql('SELECT count(*) FROM items'), '3000', 'with its rows');
	is(sample_queries(), '400', 'and its sample');

	$node->stop('immediate');
	$node->start;
	is($node->sql('SET enable_seqscan = off;
		SELECT count(*)
		FROM (SELECT id FROM items ORDER BY val <-> (SELECT val FROM source LIMIT 1)) s'),
		'0', 'after a crash it is empty');
	index_is_complete($node, 'empty');
	is($node->sql(
		"SELECT graph_degree, rows, delta_rows, dimensions FROM gpugraph_index_info('items_idx')"),
		'16|0|0|16', 'its options are kept');
	is(sample_queries(), '0', 'its sample is lost with its rows');
	$node->sql('INSERT INTO items SELECT * FROM source');
	index_is_complete($node, 'filled again');
	$node->sql('REINDEX INDEX items_idx');
	index_is_complete($node, 'rebuilt');
	is(sample_queries(), '0', 'from rows alone');
	cmp_ok($node->sql('SELECT learn()'), '>', 100, 'and learns again');
	is(sample_queries(), '400', 'from a sample of its own');
	$node->sql('REINDEX INDEX items_idx');
	is(sample_queries(), '400', 'which the next REINDEX keeps');
	$node->sql("INSERT INTO free VALUES (1, '[1,2]')");
	is($node->sql("SELECT dimensions FROM gpugraph_index_info('free_idx')"), '2',
		'its first row says the dimensions again');
};

# With wal_level = minimal a relation made in the same transaction is synced instead of logged; it
# survives a crash.
subtest wal_minimal => sub {
	my $node = new_node('stop',
		conf => "wal_level = minimal\nmax_wal_senders = 0\nwal_skip_threshold = 0\nfsync = on\n");
	make_items($node, 2000, 16);
	$node->sql("SELECT make_data('asked', 400, 16, 7)");
	$node->sql(<<'SQL');
BEGIN;
CREATE TABLE made AS SELECT * FROM items;
CREATE INDEX made_idx ON made USING gpugraph (val vector_l2_ops);
SELECT gpugraph_learn('made_idx', (SELECT array_agg(val) FROM asked));
INSERT INTO made SELECT id + 10000, cat, big, val FROM items;
COMMIT;
BEGIN;
CREATE TABLE cut (id int, val vector(16));
INSERT INTO cut SELECT id, val FROM items;
CREATE INDEX cut_idx ON cut USING gpugraph (val vector_l2_ops);
TRUNCATE cut;
INSERT INTO cut SELECT id, val FROM items WHERE id <= 500;
COMMIT;
SQL
	my $before = answers($node);
	$node->stop('immediate');
	$node->start;
	is(answers($node), $before, 'the same answers after a crash');
	index_is_complete($node, 'built in a transaction of its own');
	index_is_complete($node, 'built with its table', 'made');
	is($node->sql("SELECT gpugraph_learn('made_idx', (SELECT array_agg(val)
		FROM asked))"), 0, 'and it knows what it learned then');
	index_is_complete($node, 'truncated with its table', 'cut');

	$node->sql('BEGIN; TRUNCATE made; INSERT INTO made SELECT *
			FROM items; COMMIT; REINDEX INDEX items_idx');
	$node->stop('immediate');
	$node->start;
	index_is_complete($node, 'truncated and filled again', 'made');
	index_is_complete($node, 'rebuilt');

	$node->stop;
};

done_testing();
