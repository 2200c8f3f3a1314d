# Bugs of the directory, and of pages that it gives to something else.
use Gpugraph;
use Format;
use Merging;
use IPC::Run ();

# A merge uses free blocks however many entries the directory has.
#
# The bug: from half of the entries on, free blocks were left to inserts, and all that merges wrote
# made the index longer. Of one 57% was free, and it grew by 2.2 GB.
#
# The fix: blocks of a free extent cost no more entries than those at the end.
subtest bug_crowded_directory => sub {
	use constant PARTS => 560;

	my $node = new_node('directory');
	my $rows = 'SELECT i, vec(i)::vector(200) FROM generate_series';

	$node->sql(<<"SQL");
CREATE FUNCTION vec(i int) RETURNS vector LANGUAGE sql AS \$\$
	SELECT array_agg(sin(i * 13 + d * d))::vector FROM generate_series(1, 200) d \$\$;
CREATE TABLE items (id int, val vector(200)) WITH (autovacuum_enabled = off);
INSERT INTO items $rows(1, 6000) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 16, intermediate_graph_degree = 16, seal_rows = 0);
INSERT INTO items $rows(10001, 20000) i;
DELETE FROM items WHERE id > 10000;
VACUUM (FREEZE) items;
SQL

	# the vectors in many extents
	my $file = index_file($node, 'items_idx');
	$node->stop;
	my $end = (-s $file) / PAGE;
	my @all = split_extent($file, VECTORS, PARTS);
	write_extents($file, [ @all, [ $end, 2, NO_SEGMENT, DIRECTORY, 0 ] ], $end .. $end + 1);
	$node->start;

	my sub info
	{
		my ($field) = @_;

		return $node->sql("SELECT $field FROM gpugraph_index_info('items_idx')");
	}

	cmp_ok(scalar @all, '>', 512, 'more than half of the entries are in use');
	$node->sql("INSERT INTO items $rows(30001, 31000) i");
	cmp_ok(info('free_bytes / 8192'), '>', 850, 'enough blocks are free');
	my $before = info('total_bytes / 8192');
	is($node->sql("SELECT gpugraph_merge('items_idx')"), 't', 'a merge');
	cmp_ok(info('delta_rows'), '<=', 10, 'of all rows but those on the last page');
	cmp_ok(info('total_bytes / 8192'), '<=', $before, 'the index does not grow');
	index_is_complete($node, 'merged');
};

# An index whose directory is full takes rows, and comes free with the next merge, also while an old
# snapshot keeps all that is given back.
#
# The bug: each merge and the inserts after it took turns at the end of the file, and each run was
# an entry of 1,024. At the limit merges failed before they gave anything back, and then every
# INSERT did: "gpugraph index has more than 1024 extents". Only REINDEX helped.
#
# The fix: entries are kept for inserts and for merges that make room, and merges rewrite what has
# many.
subtest bug_full_directory => sub {
	use constant LIMIT => 1024;

	my $node = merging_node('directory', conf => "max_prepared_transactions = 2\n");
	my $wide = 'SELECT i, wide(i)::vector(1900) FROM generate_series';

	# The extents, with the only one of a kind in so many that there are as many as there may be.
	my sub fill_directory
	{
		my ($rel, $kind) = @_;
		my $file = index_file($node, "${rel}_idx");

		$node->stop;
		my $end = (-s $file) / PAGE;
		my @all = split_extent($file, $kind, LIMIT - 1 - @{ read_directory($file)->{extents} });

		# behind all, so that the delta cannot go on where it ends
		push @all, [ $end, 4, NO_SEGMENT, DIRECTORY, 0 ];
		is(scalar @all, LIMIT, "$rel: the directory is full");
		write_extents($file, \@all, $end .. $end + 3);
		$node->start;
		return;
	}

	my sub entries
	{
		my ($rel) = @_;

		$node->sql('CHECKPOINT');
		return read_directory(index_file($node, "${rel}_idx"))->{nextents};
	}

	$node->sql(<<"SQL");
CREATE FUNCTION wide(i int) RETURNS vector LANGUAGE sql AS \$\$
	SELECT array_agg(sin(i * 13 + d * d))::vector FROM generate_series(1, 1900) d \$\$;
CREATE TABLE delta (id int, val vector(1900));
CREATE INDEX delta_idx ON delta USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, seal_rows = 0);
INSERT INTO delta $wide(1, 1100) i;
CREATE TABLE segment AS $wide(1, 1100) i;
ALTER TABLE segment RENAME i TO id;
ALTER TABLE segment RENAME wide TO val;
CREATE INDEX segment_idx ON segment USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 8, seal_rows = 0);
INSERT INTO segment $wide(1101, 1120) i;
SQL
	my %kinds = (delta => DELTA, segment => VECTORS);
	fill_directory($_, $kinds{$_}) for sort keys %kinds;

	$node->sql("CREATE TABLE other (id int); BEGIN; INSERT INTO other VALUES (1);
			PREPARE TRANSACTION 'p'");
	my $prepared = $node->sql('SELECT transaction FROM pg_prepared_xacts');
	my $old = rest_after($node, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1');

	for my $rel (sort keys %kinds)
	{
		my ($rc, $out, $err) = $node->psql('postgres', "INSERT INTO $rel $wide(2001, 2050) i");
		is("$rc $err", '0 ', "$rel: rows are inserted");
		index_is_complete($node, "$rel: a full directory", $rel);
		my ($entries, $limit) = split /\|/, $node->sql(
			"SELECT extents, extents_limit FROM gpugraph_index_info('${rel}_idx')");
		cmp_ok($entries, '>=', LIMIT, "$rel: no entry is free");
		is($limit, LIMIT, "$rel: one sees how many there may be");
		$node->sql("COMMIT PREPARED 'p'") if $rel eq 'delta';
	}

	# of each index the log tells once who keeps what was given back
	my $log = slurp_file($node->logfile);
	my $told = qr/LOG:  directory of index "delta_idx" is filling up: 10\d\d of 1024 entries\n/;
	is(scalar(() = $log =~ /$told/g), 1, 'the log tells once');
	like($log, qr/$told[^\n]*DETAIL: [^\n]* are kept for the prepared transaction $prepared\.\n/,
		'of the prepared transaction');
	like($log, qr/"segment_idx" is filling up[^\n]*\n[^\n]*are kept for process $old->{pid},/,
		'or of the process');

	# the worker merges as soon as it may: it hears of it by the next rows
	for my $rel (sort keys %kinds)
	{
		$node->sql("ALTER INDEX ${rel}_idx SET (seal_rows = 100000);
			VACUUM $rel");
		ok_in_time(sub { entries($rel) < LIMIT / 4 }, "$rel: a merge makes room");
		index_is_complete($node, "$rel: room", $rel);
		my ($rc, $out, $err) = $node->psql('postgres', "INSERT INTO $rel $wide(3001, 3050) i;
			SELECT gpugraph_merge('${rel}_idx')");
		is("$rc $err", '0 ', "$rel: and merges go on");
		index_is_complete($node, "$rel: merged", $rel);
		cmp_ok(entries($rel), '<', 30, "$rel: few entries are in use");
	}
	end_rest($old);
};

# The bug: a scan that knew in which buffer it had seen a page of a segment did not look at the
# page's stamp again. Where the block was used for something else meanwhile, the scan took foreign
# bytes for vectors and TIDs, and said nothing.
# The fix: the stamp is compared each time. Blocks that a scan needs are not used again; here they
# are by a fault (gpugraph.fault).
subtest bug_recycled_segment_page => sub {
	my $scan = 'SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)';

	# without preloading a session remembers only what it has read itself
	for my $case ([ 'alone', '' ], [ 'preloaded', "shared_preload_libraries = 'gpugraph'\n" ])
	{
		my ($what, $conf) = @$case;
		my $node = new_node('directory', conf => $conf);

		$node->sql(<<'SQL');
SELECT make_data('items', 3000, 16, 40);
SELECT make_queries('items', 20);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0);
SQL
		my $holder = rest_after($node, 'SELECT pg_advisory_lock(7)');

		# The scan has read all pages of the segment, and reads them again behind the cursor's first
		# row. Meanwhile the segment is given back, and other rows take its place.
		my $session = start_psql($node, 'SET enable_seqscan = off',
			"SELECT count(*) FROM ($scan) s", 'BEGIN ISOLATION LEVEL REPEATABLE READ',
			"DECLARE c CURSOR FOR $scan", 'FETCH 1 FROM c', 'SELECT 1 FROM pg_advisory_lock(7)',
			'\\set VERBOSITY verbose', 'FETCH ALL FROM c');
		wait_for(sub { $node->sql(
			"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") > 0 });
		my $blocks = $node->sql(<<'SQL');
INSERT INTO items SELECT id + 10000, cat, big, val FROM items;
SET gpugraph.fault = parking_none;
SELECT gpugraph_merge('items_idx');
SELECT free_bytes > 0 FROM gpugraph_index_info('items_idx');
INSERT INTO items SELECT id + 20000, cat, big, val FROM items;
SQL
		is($blocks, "t\nt", "$what: the segment was given back");
		end_rest($holder);
		like(finish_psql($session), qr/XX002: .*page is not number \d+ of kind \d+ of segment 1/,
			"$what: the scan sees that the page is another");
		$node->stop;
	}
};

# The bug: in parallel mode a VACUUM has no transaction id of its own. It took the next one as the
# id that snapshots must have passed before blocks are used again, and wrote the record that gives
# the blocks back later. Transactions that began and committed in between made newer snapshots on a
# standby, which still followed the old directory: they were neither cancelled nor waited for when
# the blocks were used again, and read foreign pages.
# The fix: such blocks are parked without an id, and who changes the directory next gives them one,
# which is later than all that came before the record.
subtest bug_standby_recycled_pages => sub {
	my $rows = 3000;
	my $next = 0;
	my $primary = new_node('primary', init => { allows_streaming => 1 }, conf => <<'CONF');
max_parallel_maintenance_workers = 2
min_parallel_index_scan_size = 0
CONF
	my $standby = start_standby($primary, 'standby', <<'CONF');
max_standby_streaming_delay = 0
wal_receiver_status_interval = 1
hot_standby_feedback = off
CONF

	# VACUUM goes parallel where two indexes can be
	$primary->sql(<<SQL);
CREATE TABLE ticks (i int);
SELECT make_data('source', $rows, 16, 40);
SELECT make_queries('source', 5);
CREATE TABLE items (id bigint, val vector(16)) WITH (vacuum_truncate = off);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 300);
CREATE INDEX ON items (id);
SQL

	my sub tick
	{
		my ($node, $n) = @_;

		$node->sql('INSERT INTO ticks VALUES (1)') for 1 .. $n;
		return;
	}

	# As many rows as the source has, in some transactions.
	my sub insert
	{
		my ($node) = @_;

		$next += 10000;
		$node->sql("INSERT INTO items SELECT id + $next, val FROM source
			WHERE id % 10 = $_") for 0 .. 9;
		return;
	}

	my sub info
	{
		my ($node, $field) = @_;

		return $node->sql("SELECT $field FROM gpugraph_index_info('items_idx')");
	}

	# A cursor on the standby over all rows, of which it has fetched some.
	my sub open_cursor
	{
		my %cursor = (in => '', out => '', err => '');

		$cursor{psql} = IPC::Run::start([ 'psql', '-XAtq', '-d', $standby->connstr('postgres') ],
			'<', \$cursor{in}, '>', \$cursor{out}, '2>', \$cursor{err});
		$cursor{in} .= <<'SQL';
SET enable_seqscan = off;
SET gpugraph.iterative_scan = strict_order;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 'xmin ' || pg_snapshot_xmin(pg_current_snapshot()), 'rows ' || count(*) FROM items;
DECLARE c CURSOR FOR SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1);
FETCH 5 FROM c;
SELECT 'opened';
SQL
		wait_for(sub { $cursor{psql}->pump_nb; $cursor{out} =~ /opened/ });
		@cursor{qw(xmin rows)} = $cursor{out} =~ /xmin (\d+)\|rows (\d+)/;
		return \%cursor;
	}

	# The rest of its rows.
	my sub close_cursor
	{
		my ($cursor) = @_;

		$cursor->{in} .= "FETCH ALL FROM c;\nCOMMIT;\n\\q\n";
		eval { $cursor->{psql}->finish; };
		my %ids = map { $_ => 1 } grep { /^\d+$/ } split /\n/, $cursor->{out};
		return scalar keys %ids;
	}

	# Rows are merged by a VACUUM in parallel mode. While it is about to write the record that gives
	# the old pages back, two transactions commit, and the standby opens a cursor by a snapshot that
	# sees them.
	my sub vacuum_beside_a_cursor
	{
		my ($what, $feedback) = @_;
		my $from = -s $primary->logfile;

		insert($primary);
		$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
		my $vacuum = start_psql($primary, 'SET gpugraph.fault = parking_hold',
			'VACUUM (PARALLEL 2) items');
		ok_in_time(sub { slurp_file($primary->logfile, $from) =~ /about to be given back/ },
			"$what: VACUUM is about to give pages back");
		tick($primary, 2);
		$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
		my $cursor = open_cursor();
		cmp_ok($cursor->{rows}, '>=', $rows, "$what: a cursor is open on the standby");
		ok_in_time(sub { $primary->sql(
				"SELECT backend_xmin = '$cursor->{xmin}' FROM pg_stat_replication") eq 't' },
			"$what: the primary knows of it") if $feedback;
		wait_for(sub { tick($primary, 5); return has_ended($vacuum); });
		is(finish_psql($vacuum), '', "$what: VACUUM has ended");
		cmp_ok(info($primary, 'free_bytes'), '>', 0, "$what: pages are free");
		return $cursor;
	}

	# Insert. True: free blocks were used again.
	my sub use_free
	{
		my ($node) = @_;
		my $free = info($node, 'free_bytes');

		tick($node, 2);
		insert($node);
		return info($node, 'free_bytes') < $free;
	}

	my sub equal
	{
		my ($what) = @_;
		my $sql = "SELECT complete('items'), gpugraph_check('items_idx', true)";

		$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
		is($standby->sql($sql), 'ok|', "$what: the standby has all rows");
		is($primary->sql($sql), 'ok|', "$what: so has the primary");
		return;
	}

	# ---- without feedback: a query that needs the pages is cancelled
	my $cursor = vacuum_beside_a_cursor('off');
	ok(use_free($primary), 'off: free pages are used again');
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	close_cursor($cursor);
	like($cursor->{err}, qr/conflict with recovery/, 'off: the query was cancelled');
	unlike($cursor->{err}, qr/corrupted/, 'off: before it met a foreign page');
	ok(wait_until_up($standby), 'off: the standby is there');
	equal('off');

	# ---- with feedback: the pages are kept for it
	alter_system($standby, 'SET hot_standby_feedback = on');
	$cursor = vacuum_beside_a_cursor('on', 1);
	use_free($primary);
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	is(close_cursor($cursor), $cursor->{rows}, 'on: the query has all of its rows');
	is($cursor->{err}, '', 'on: without an error');
	ok_in_time(sub { use_free($primary) }, 'on: then the pages are used again');
	equal('on');

	# ---- promoted, with the query still open
	alter_system($standby, 'SET hot_standby_feedback = off');
	$cursor = vacuum_beside_a_cursor('promoted');
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	$standby->promote;
	use_free($standby);
	is(close_cursor($cursor), $cursor->{rows}, 'promoted: the query has all of its rows');
	is($cursor->{err}, '', 'promoted: without an error');
	ok_in_time(sub { use_free($standby) }, 'promoted: then the pages are used again');
	is($standby->sql("SELECT complete('items'), gpugraph_check('items_idx', true)"),
		'ok|', 'promoted: all rows are there');

	$_->stop for $standby, $primary;
};

done_testing();
