# What the views of indexes show, and that they show none that is gone.
use Gpugraph;
use Format;
use Residency;

# gpugraph_indexes beside the GPU service: the state of each index, who answered, and hints. An
# index that cannot be read takes no other's row away.
subtest indexes_view => sub {
	my $node = service_node('main', conf => "gpugraph.device_memory = 2MB\n",
		init => { allows_streaming => 1 });

	# items takes some 0.8 MB on the device; too_big does not fit
	$node->sql('CREATE USER stranger');
	unserved { make_items($node, 4000, 16) };
	unserved {
		$node->sql("SELECT make_data('too_big', 4000, 128, 40);
			CREATE INDEX too_big_idx ON too_big USING gpugraph (val vector_l2_ops);
			CREATE UNLOGGED TABLE forgotten AS SELECT * FROM items LIMIT 100;
			CREATE INDEX forgotten_idx ON forgotten USING gpugraph (val vector_l2_ops)");
	};
	$node->sql('VACUUM ANALYZE');

	# Of an index's row; of the view on another server, or as another user, where asked.
	my sub seen
	{
		my ($expression, $index, $on, %options) = @_;
		$index ||= 'items_idx';
		return ($on || $node)->sql(
			"SELECT $expression FROM gpugraph_indexes WHERE indexname = '$index'", %options);
	}

	my sub hint { return seen("coalesce(hint, 'none')", @_) }

	# ---- on the way to the device
	is(seen("concat_ws(' ', coalesce(device, -1), state, queries_gpu, queries_cpu, hint)"),
		'-1 cpu 0 0', 'nobody has asked for the index: nothing to do');
	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	truth_by_device($node, 'loaded');
	is(seen("concat_ws(' ', device, state, queries_gpu, queries_cpu, hint)"), '0 ready 20 0',
		'the device answers: nothing to do');
	is(seen("concat_ws(' ', device, state, queries_gpu)", 'items_idx', $node,
			extra_params => [ '-U', 'stranger' ]),
		'0 ready 20', 'and everybody may know');

	# ---- evicted, and queried only as the CPU's by choice: nothing is missed
	$node->sql("SELECT gpugraph_evict('items_idx')");
	wait_for_state($node, 'absent');
	$node->sql('SELECT gpugraph_stat_reset()');
	unserved { is(truth($node), '1.0000 0 20', 'the CPU answers by the setting') };
	is(seen("concat_ws(' ', state, queries_gpu, queries_cpu, hint)"), 'cpu 0 20',
		'who has chosen the CPU gets no hint');

	# ---- a load that does not fit
	$node->psql('postgres', "SELECT gpugraph_prewarm('too_big_idx')");
	is(wait_for_state($node, 'failed', 'too_big_idx'), 'failed', 'an index that does not fit');
	$node->sql("SET enable_seqscan = off;
		SELECT id FROM too_big ORDER BY val <-> (SELECT val FROM too_big LIMIT 1) LIMIT 1");
	is(seen("device || ' ' || state", 'too_big_idx'), '0 failed', 'the state is told');
	like(hint('too_big_idx'), qr/^The CPU answers\. .*device_memory/, 'and why the CPU answers');

	# ---- queries came, and the index is gone from the device again
	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	$node->sql("SELECT gpugraph_evict('items_idx')");
	wait_for_state($node, 'absent');
	$node->sql("SET enable_seqscan = off;
		SELECT id FROM items ORDER BY val <-> (SELECT val FROM items LIMIT 1) LIMIT 1");
	wait_for_state($node, 'ready');
	$node->sql("SELECT gpugraph_evict('items_idx')");
	wait_for_state($node, 'absent');
	like(hint(), qr/gpugraph_prewarm/, 'an index that a device should answer for, and does not');

	# ---- a standby reads no unlogged index
	my $standby = start_standby($node, 'standby');
	is(seen('rows', 'items_idx', $standby), 4000, 'a standby has the view');
	is(seen("coalesce(rows, -1) || ' ' || bytes", 'forgotten_idx', $standby), '-1 0',
		'an unlogged index is not there to be read');
	$standby->stop;

	# ---- another session's temporary table
	my $owner = $node->background_psql('postgres');
	$owner->query_safe('CREATE TEMP TABLE fleeting AS SELECT * FROM items LIMIT 100');
	$owner->query_safe('CREATE INDEX fleeting_idx ON fleeting USING gpugraph (val vector_l2_ops)');
	is(seen('coalesce(rows, -1)', 'fleeting_idx'), -1, 'a temporary table of another session');
	is($owner->query_safe("SELECT rows FROM gpugraph_indexes WHERE indexname = 'fleeting_idx'"),
		100, 'which its own session can read');
	$owner->quit;

	# ---- pages that cannot be read
	my sub damage
	{
		my ($index, $offset, $bytes) = @_;
		my $file = index_file($node, $index);

		$node->stop;
		patch($file, META, $offset, $bytes);
		$node->start;
		return;
	}

	damage('items_idx', META_VERSION, pack 'L', 1);
	damage('forgotten_idx', 0, pack 'L', 0);
	like(hint(), qr/^REINDEX INDEX: .*format version 1/, 'a format of another version: REINDEX');
	like(hint('forgotten_idx'), qr/^REINDEX INDEX: .*corrupt/, 'a corrupt index: REINDEX');
	is(seen('coalesce(rows, -1)'), -1, 'what cannot be read is NULL');
	is(seen('rows', 'too_big_idx'), 4000, 'the other indexes are told');
	is($node->sql('BEGIN; SELECT count(*) FROM gpugraph_indexes; SELECT 7; COMMIT'),
		"3\n7", 'the transaction goes on');
	$node->sql('REINDEX INDEX items_idx; REINDEX INDEX forgotten_idx');
	is(seen('rows'), 4000, 'REINDEX mends it');
};

# gpugraph_stat_index has no row of an index that is gone: of this database, of another one, with
# its database, and on a standby.  What is not gone keeps its counts.
subtest stat_dropped => sub {
	my $node = service_node('main', init => { allows_streaming => 1 });
	$node->sql("CREATE DATABASE $_") for qw(first second);
	for my $db (qw(first second))
	{
		$node->safe_psql($db, "CREATE EXTENSION gpugraph CASCADE;
			CREATE TABLE items AS SELECT i AS id, ARRAY[i, i % 7]::real[]::vector(2) AS val
				FROM generate_series(1, 300) i;
			CREATE INDEX ON items USING gpugraph (val)");
		$node->safe_psql($db, "CREATE TABLE $_ AS TABLE items;
			CREATE INDEX ${_}_idx ON $_ USING gpugraph (val)") for 't1' .. 't3';
	}
	my $standby = start_standby($node, 'standby_of_dropped');

	# Queries of the table in a database, some of them of a session that goes on.
	my $ask = "SET gpugraph.engine = cpu; SET enable_seqscan = off;
		DO \$\$ BEGIN FOR i IN 1 .. 5 LOOP
			PERFORM id FROM %s ORDER BY val <-> '[1,1]' LIMIT 1; END LOOP; END \$\$";

	my sub ask { my ($on, $db, $rel) = @_; $on->safe_psql($db, sprintf $ask, $rel); return; }

	# Rows of indexes that were asked, as another database shows them
	my sub rows
	{
		my ($on) = @_;
		return $on->sql("SELECT string_agg(coalesce(datname, relid::text) || ' '
			|| queries_cpu, ' ' ORDER BY datname, queries_cpu, relid) FROM gpugraph_stat_index
			WHERE queries_cpu > 0");
	}

	# Until so many rows are left, those of indexes that are on a device with them
	my sub left
	{
		my ($on, $count) = @_;
		return defined wait_for(sub {
			$on->sql('SELECT count(*) FROM gpugraph_stat_index') == $count; });
	}

	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	for my $on ($node, $standby)
	{
		ask($on, $_, 'items') for qw(first second second);
		ask($on, $_, 't1') for qw(first second);
		ask($on, 'first', 't2') for 1 .. 3;
		is(rows($on), 'first 5 first 5 first 15 second 5 second 10', 'what was asked');
	}

	# dropped, and not dropped
	$node->safe_psql('first', 'BEGIN; DROP TABLE t1; ROLLBACK');
	is(rows($node), 'first 5 first 5 first 15 second 5 second 10', 'rolled back');
	$node->safe_psql('first', 'DROP TABLE t1');
	$node->safe_psql('second', 'DROP INDEX t1_idx');
	$node->safe_psql('first', 'REINDEX INDEX t2_idx; TRUNCATE t2; VACUUM FULL items');
	$node->sql('SELECT pg_stat_reset()');
	$node->safe_psql('first', 'SELECT pg_stat_reset()');
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	for my $on ($node, $standby)
	{
		is(rows($on), 'first 5 first 15 second 10', 'dropped: their rows are gone');
	}
	ask($node, 'first', 't2');
	is(rows($node), 'first 5 first 20 second 10', 'what is left goes on');

	# where PostgreSQL keeps no statistics
	reload_with($node, 'track_counts = off');
	ask($node, 'second', 't3');
	is(rows($node), 'first 5 first 20 second 5 second 10', 'without statistics');
	$node->safe_psql('second', 'DROP SCHEMA public CASCADE');
	is(rows($node), 'first 5 first 20', 'without statistics: the rows are gone, too');
	$node->sql('DROP DATABASE first');
	is(rows($node), '', 'dropped with its database');
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	is(rows($standby), '', 'on the standby, too');
	ok(left($node, 0), 'no row is left');
	ok(left($standby, 0), 'nor on the standby');

	# an index that is built anew under another number
	$node->sql('CREATE TABLE items AS SELECT i AS id,
			ARRAY[i, i % 7]::real[]::vector(2) AS val FROM generate_series(1, 300) i;
		CREATE INDEX items_idx ON items USING gpugraph (val)');
	ask($node, 'postgres', 'items');
	$node->sql('REINDEX INDEX CONCURRENTLY items_idx');
	ask($node, 'postgres', 'items');
	is(rows($node), 'postgres 5', 'REINDEX CONCURRENTLY makes another index');

	# more indexes than there is room for, by turns
	$node->sql("DO \$\$ BEGIN
		FOR i IN 1 .. 30 LOOP
			EXECUTE format('CREATE TABLE r%s AS SELECT * FROM items LIMIT 3; CREATE INDEX ON r%1\$s
				USING gpugraph (val)', i);
		END LOOP; END \$\$");
	ask($node, 'postgres', "r$_") for 1 .. 30;
	$node->sql('DROP TABLE ' . join(', ', map { "r$_" } 1 .. 30));
	is(rows($node), 'postgres 5', 'many are dropped');
	ok(left($node, 1), 'and one row is left');

	$_->stop for $standby, $node;
};

done_testing();
