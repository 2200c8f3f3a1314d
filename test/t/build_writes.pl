# CREATE INDEX folds equal rows and writes pages while it scans the table: every page is logged
# once, what is logged is the whole index, each value is one node, and a build that ends before its
# time leaves nothing.
use Gpugraph;
use Digest::MD5 qw(md5_hex);
use Time::HiRes qw(usleep);

# Pages are first written when 32 MB of vectors stay where they are; 8 ranges of 512 pages.
use constant FIRST_PAGES => 4096;

my $node = new_node('writes', conf => <<CONF);
wal_level = replica
max_wal_size = 8GB
wal_keep_size = 4GB
checkpoint_timeout = 1h
shared_buffers = 32MB
maintenance_work_mem = 1GB
min_parallel_table_scan_size = 0
max_worker_processes = 16
max_parallel_workers = 16
allow_in_place_tablespaces = on
statement_timeout = 60s
CONF

# ---- what the test looks at ------------------------------------------------

# Run statements, none of which may fail. Returns their messages at DEBUG1.
sub run_sql
{
	my ($what, $sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "SET client_min_messages = debug1; $sql");

	is($rc, 0, "$what: built") or diag $err;
	return $err;
}

# How many times each block of a relation was logged: a hash by number.
sub logged
{
	my ($relation, $from) = @_;
	my ($to, $path) = split /\|/, $node->sql(<<SQL);
SELECT pg_current_wal_flush_lsn(),
	concat_ws('/', CASE reltablespace WHEN 0 THEN dattablespace ELSE reltablespace END, d.oid,
	pg_relation_filenode(c.oid))
FROM pg_class c, pg_database d WHERE c.oid = '$relation'::regclass AND datname = current_database();
SQL
	return logged_path($path, $from, $to);
}

sub logged_path
{
	my ($path, $from, $to) = @_;
	my %times;
	my ($out,
		$err) = run_command([ 'pg_waldump', '-p', $node->data_dir . '/pg_wal', '-s', $from, '-e',
		$to, "--relation=$path" ]);

	die "pg_waldump: $err" if $err ne '' && $err !~ /first record is after/;
	$times{$1}++ while $out =~ m{ rel \Q$path\E blk (\d+)}g;
	return %times;
}

# Blocks 0 .. pages - 1 that were not logged exactly once, and others that were logged: '' when all
# is well.
sub not_once
{
	my ($pages, %times) = @_;
	my @wrong = map { $_ . ' x ' . ($times{$_} // 0) } grep { ($times{$_} // 0) != 1 } 0 .. $pages
		- 1;

	push @wrong, map { "$_ behind the end" } grep { $_ >= $pages } sort { $a <=> $b } keys %times;
	return @wrong > 10 ? scalar(@wrong) . ' blocks: ' . join(', ', @wrong[ 0 .. 9 ]) . ', ...'
		: join(', ', @wrong);
}

sub lsn
{
	return $node->sql('SELECT pg_current_wal_insert_lsn()');
}

sub pages_of
{
	my ($relation) = @_;

	return $node->sql("SELECT pg_relation_size('$relation') / 8192");
}

sub workers_left
{
	return $node->sql(
		"SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'");
}

# Build by a statement, and test that it logged every block of the index once.
sub build_once
{
	my ($what, $relation, $sql) = @_;
	my $from = lsn();
	my $said = run_sql($what, $sql);
	my $pages = pages_of($relation);

	cmp_ok($pages, '>', 1, "$what: has pages");
	is(not_once($pages, logged($relation, $from)), '',
		"$what: each of $pages pages is logged once");
	return $said;
}

# The arrays of an index by segment and kind, as src/storage/format.h tells: the pages' payloads one
# after the other, read from the file.
sub arrays
{
	my ($index) = @_;
	my $file = slurp_file($node->data_dir . '/'
		. $node->sql("SELECT pg_relation_filepath('$index')"));
	my %arrays;

	for (my $at = 8192; $at < length $file; $at += 8192)
	{
		my (undef, $segment, undef, $kind) = unpack 'Q L L S', substr($file, $at + 8192 - 24, 24);

		$arrays{$segment}{$kind} .= substr($file, $at + 24,
			unpack('S', substr($file, $at + 12, 2)) - 24);
	}
	return values %arrays;
}

# Rows of the table whose vector in the index is not theirs, or which the index does not have: ''
# when all is well.
sub not_stored
{
	my ($table, $index) = @_;
	my %row = split /[|\n]/,
		$node->sql("SELECT ctid, md5(val::bytea) FROM $table WHERE val IS NOT NULL");
	my ($dim) = $node->sql("SELECT vector_dims(val) FROM $table WHERE val IS NOT NULL LIMIT 1");
	my ($wrong, $twice) = (0, 0);

	for my $array (arrays($index))
	{
		my ($vectors, $tids) = @$array{ 2, 4 };
		my $nodes = length($vectors) / (4 * $dim);
		my @offsets = defined $array->{6} ? unpack('L*', $array->{6}) : (0 .. $nodes);

		for my $node (0 .. $nodes - 1)
		{
			my $md5 = md5_hex(pack('SS', $dim, 0) . substr($vectors, 4 * $dim * $node, 4 * $dim));

			for my $i ($offsets[$node] .. $offsets[ $node + 1 ] - 1)
			{
				my ($high, $low, $offset) = unpack 'S3', substr($tids, 8 * $i, 8);
				my $expected = delete $row{ '(' . ($high * 65536 + $low) . ",$offset)" };

				$twice++ if !defined $expected;
				$wrong++ if defined $expected && $expected ne $md5;
			}
		}
	}
	my $missing = keys %row;
	return $wrong || $twice || $missing
		? "$wrong rows with another vector, $twice unknown or there twice, $missing missing" : '';
}

# The index and its table agree; each value is a node, unless there are several segments; all rows
# of copied values are found.
sub holds_all
{
	my ($what, $table, $index, $segments) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT gpugraph_check('$index', true)");

	is("$rc $err", '0 ', "$what: the index is sound");
	is($node->sql("SELECT rows FROM gpugraph_index_info('$index')"),
		$node->sql("SELECT count(val) FROM $table"), "$what: every row");
	if ($segments)
	{
		cmp_ok($node->sql("SELECT segments FROM gpugraph_index_info('$index')"),
			'>', 1, "$what: several segments");
	}
	else
	{
		is($node->sql("SELECT nodes, segments FROM gpugraph_index_info('$index')"),
			$node->sql("SELECT count(DISTINCT val), 1 FROM $table"),
			"$what: a node for each value");
	}
	is(not_stored($table, $index), '', "$what: each row with its vector");
	is($node->sql("SELECT not_found('$table')"), '', "$what: a copied value's rows are all found");
	return;
}

# Start a build and wait until something holds; returns the session.
sub start_until
{
	my ($what, $condition, @sql) = @_;
	my $session = start_psql($node, @sql);

	ok_in_time(sub { return $condition->() || !$session->{harness}->pumpable; }, $what);
	return $session;
}

my $gate = $node->data_dir . '/gate';

sub open_gate
{
	append_to_file($gate, '');
	return;
}

$node->sql(<<'SQL');
-- a vector as it lies in memory
CREATE CAST (vector AS bytea) WITHOUT FUNCTION;

-- values of which there are several rows, up to 20, where a search for one does not bring all of
-- its rows
CREATE FUNCTION not_found(rel text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	value record;
	found int[];
	plan text;
BEGIN
	PERFORM use_index(true);
	FOR value IN EXECUTE format('SELECT val, array_agg(id ORDER BY id) AS ids FROM %I
		WHERE val IS NOT NULL GROUP BY val HAVING count(*) > 1 ORDER BY min(id) LIMIT 20', rel)
	LOOP
		EXECUTE format('SELECT array_agg(id ORDER BY id)
			FROM (SELECT id FROM %I WHERE val = %L ORDER BY val <-> %2$L LIMIT %s) s',
			rel, value.val, cardinality(value.ids)) INTO found;
		IF found IS DISTINCT FROM value.ids THEN
			RETURN format('%s rows, beginning with id %s, but found %s', cardinality(value.ids),
			value.ids[1], coalesce(cardinality(found), 0));
		END IF;
	END LOOP;
	RETURN '';
END $$;

-- one vector of eight elements for each number
CREATE FUNCTION v(i bigint) RETURNS vector LANGUAGE sql IMMUTABLE AS $$
	SELECT array_agg(((i * 7919 + d * 104729) * (2 * d + 1) % 65537)::real ORDER BY d)::vector
	FROM generate_series(1, 8) d WHERE i IS NOT NULL
$$;

-- the value; a process that meets it here waits for the file "gate"
CREATE FUNCTION at_gate(val vector, here boolean) RETURNS vector
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	WHILE here AND pg_stat_file('gate', true) IS NULL LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN val;
END $$;
SQL

# ---- equal rows ------------------------------------------------------------

$node->sql(<<'SQL');
-- the second half of the table is the first one again; the first rows of both are met by different
-- processes
CREATE TABLE halves AS SELECT g AS id, CASE WHEN g % 13 > 0 THEN v(g % 10000) END::vector(8) AS val
	FROM generate_series(1, 20000) g;
-- pairs lie a heap block apart: processes that go through the table side by side meet them at the
-- same time
CREATE TABLE pairs (id int, val vector(8));
INSERT INTO pairs SELECT row_number() OVER (), val FROM halves WHERE val IS NOT NULL LIMIT 1000;
CREATE TABLE side_by_side (id int, val vector(8));
INSERT INTO side_by_side SELECT g, v(g / (2 * n) * n + g % n)
	FROM (SELECT count(*) AS n FROM pairs WHERE (ctid::text::point)[0] = 0) s,
	generate_series(0, 19999) g;
-- hardly anything but copies
CREATE TABLE mostly AS SELECT g AS id,
	CASE WHEN g % 5 > 0 THEN v(CASE WHEN g % 3000 = 1 THEN g ELSE g % 7 END) END::vector(8) AS val
	FROM generate_series(1, 30000) g;
-- and of those so many that they fill what 64 MB have room for
CREATE TABLE copies AS SELECT g AS id, m.val
	FROM generate_series(0, 100000) g JOIN mostly m ON m.id = 1 + g % 30000;
DROP TABLE pairs;
SQL
for my $table ('halves', 'side_by_side', 'mostly')
{
	for my $workers (0, 1, 4)
	{
		# from unknown to absurd, of one table
		for my $tuples ($workers == 1 || $table ne 'halves' ? (-1) : (-1, 10, 1e12))
		{
			my $what = "$table, $workers workers, "
				. ($tuples < 0 ? 'no statistics' : "$tuples rows expected");

			$node->sql(
				"UPDATE pg_class SET reltuples = $tuples, relpages = pg_relation_size(oid) / 8192
				WHERE relname = '$table'");
			my $said = run_sql($what,
				"SET max_parallel_maintenance_workers = $workers;
				CREATE INDEX folded ON $table USING gpugraph (val vector_l2_ops)");
			is($said =~ /heap scan: (\d+) workers/ ? $1 : 0, $workers,
				"$what: as many as asked for");
			holds_all($what, $table, 'folded');
			$node->sql('DROP INDEX folded');
		}
	}
}

# memory for a part of them: copies alone can fill a segment; from 18 on the last build may have
# left the estimate as it was
$node->sql("UPDATE pg_class SET reltuples = -1 WHERE relname = 'copies'");
for my $workers (0, 4)
{
	build_once("little memory, $workers workers", 'folded',
		"SET gpugraph.engine = cpu; SET maintenance_work_mem = '1MB';
		SET temp_file_limit = '8MB'; SET max_parallel_maintenance_workers = $workers;
		CREATE INDEX folded ON copies USING gpugraph (val vector_l2_ops)");
	holds_all("little memory, $workers workers", 'copies', 'folded', 1);
	$node->sql('DROP INDEX folded');
}

# One process waits at its second row until the others have seen everything else. What follows in
# its block are copies of their rows, and values of its own, with copies; its chunk and another's
# are far from full, so rows with copies move.
$node->sql(<<'SQL');
CREATE TABLE across (id int, val vector(8));
INSERT INTO across SELECT g,
	v(CASE WHEN g <= 50 THEN g WHEN g % 2 = 0 THEN 3 + g % 48 ELSE 1000 + g / 4 END)
	FROM generate_series(1, 9000) g;
SQL
for my $workers (1, 4)
{
	my $what = "$workers workers, one of the processes waits";
	my $session = start_until("$what: the others are done",
		sub {
			return $node->sql("SELECT count(*) FILTER (WHERE wait_event = 'PgSleep'),
				count(*) FILTER (WHERE wait_event = 'ParallelCreateIndexScan')
				FROM pg_stat_activity") eq
				"1|$workers";
		},
		"SET max_parallel_maintenance_workers = $workers",
		'CREATE INDEX across_idx ON across
		USING gpugraph ((at_gate(val, id = 2)::vector(8)) vector_l2_ops)');

	open_gate();
	is(finish_psql($session), '', "$what: built");
	is($node->sql("SELECT gpugraph_check('across_idx', true);
		SELECT nodes, rows FROM gpugraph_index_info('across_idx')"),
		"\n" . $node->sql('SELECT count(DISTINCT val), count(*) FROM across'),
		"$what: a node for each value");
	is(not_stored('across', 'across_idx'), '', "$what: each row with its vector");
	$node->sql('DROP INDEX across_idx');
	unlink $gate;
}

# ---- pages -----------------------------------------------------------------

# 79 MB: 44,000 vectors, all different, for they are sums over two sets
$node->sql(<<'SQL');
SELECT setseed(0.5);
CREATE TABLE terms AS
	SELECT g, (SELECT array_agg(random()::real) FROM generate_series(1, 448) d WHERE g > 0)::vector
	AS val FROM generate_series(1, 426) g;
CREATE TABLE items (id int, val vector(448));
ALTER TABLE items ALTER val SET STORAGE PLAIN;
INSERT INTO items SELECT row_number() OVER (), a.val + b.val FROM terms a, terms b
	WHERE a.g <= 250 AND b.g > 250;
DROP TABLE terms;
SQL
is($node->sql('SELECT count(*), count(DISTINCT val) FROM items'), '44000|44000',
	'vectors without copies');
my $with = 'WITH (graph_degree = 8, intermediate_graph_degree = 16)';

sub create
{
	my ($name, $workers, $rest) = @_;

	return "SET max_parallel_maintenance_workers = $workers;
		CREATE INDEX $name ON items USING gpugraph (val vector_l2_ops) $with " . ($rest // '');
}

for my $workers (0, 4)
{
	build_once("$workers workers", 'items_idx', create('items_idx', $workers));
	holds_all("$workers workers", 'items', 'items_idx');
	$node->sql('DROP INDEX items_idx');
}

# one row of ten again, far from the first
$node->sql('INSERT INTO items SELECT 100000 + id, val FROM items WHERE id % 10 = 0');
$node->sql('CHECKPOINT');
build_once('copies, no workers', 'serial_idx', create('serial_idx', 0));
holds_all('copies, no workers', 'items', 'serial_idx');
build_once('copies, none of 4 workers is free', 'alone_idx',
	'SET max_parallel_workers = 0; ' . create('alone_idx', 4));
like(build_once('copies, segments', 'segments_idx',
		"SET maintenance_work_mem = '35MB'; SET temp_file_limit = '8MB'; "
			. create('segments_idx', 4)),
	qr/no longer fits into maintenance_work_mem/, 'copies, segments: announced');
build_once('copies, 4 workers', 'items_idx', create('items_idx', 4));

# ---- what is logged is the index -------------------------------------------

my @indexes = ('serial_idx', 'alone_idx', 'segments_idx', 'items_idx');
my %file = map { $_ => $node->data_dir . '/'
	. $node->sql("SELECT pg_relation_filepath('$_')") } @indexes;

sub digest
{
	my ($path) = @_;

	open my $handle, '<:raw', $path or return "$path: $!";
	my $digest = Digest::MD5->new->addfile($handle)->hexdigest;
	close $handle;
	return $digest;
}

# a crash, and the files are lost: recovery makes them anew
my %before = map { $_ => digest($file{$_}) } @indexes;
$node->stop('immediate');
is(unlink(values %file), scalar @indexes, 'files are lost in a crash');
$node->start;
is(digest($file{$_}), $before{$_}, "$_: recovered from what was logged, byte by byte") for @indexes;
for my $index (@indexes)
{
	is(error_of($node, "SELECT gpugraph_check('$index', true)"), '', "$index: sound after a crash");
	$node->sql("DROP INDEX $index") if $index ne 'items_idx';
}
holds_all('recovered', 'items', 'items_idx');
is($node->sql("SELECT complete('items')"), 'ok', 'recovered: every row is found');
$node->sql('DROP INDEX items_idx');

# ---- while the table is scanned --------------------------------------------

$node->sql("CREATE TABLESPACE apart LOCATION ''");
my $from;

# A build by 4 workers. The process that meets this row waits for the gate.
sub gated
{
	my ($row) = @_;

	return ('SET max_parallel_maintenance_workers = 4',
		"CREATE INDEX gated_idx ON items
		USING gpugraph ((at_gate(val, id = $row)::vector(448)) vector_l2_ops) $with
		TABLESPACE apart");
}

# The files of the tablespace: name => size.
sub files
{
	return split /[|\n]/, $node->sql(<<'SQL');
SELECT path, (pg_stat_file(path)).size
	FROM pg_tablespace t, pg_ls_dir('pg_tblspc/' || t.oid) v,
	pg_ls_dir('pg_tblspc/' || t.oid || '/' || v) d,
	LATERAL (SELECT f, concat_ws('/', 'pg_tblspc', t.oid, v, d, f) AS path
	FROM pg_ls_dir('pg_tblspc/' || t.oid || '/' || v || '/' || d) f) s WHERE spcname = 'apart';
SQL
}

# Begin a build in which one worker waits in the middle of the table with an unfilled chunk, and
# wait until the others have read all the rest and written pages. Which process meets that row is
# chance: try again when it is the leader, or a worker whose chunk is an early one.
sub stop_in_scan
{
	my ($what, $row, @settings) = @_;
	my $session;

	for my $attempt (1 .. 30)
	{
		my $state;

		$from = lsn();
		$session = start_psql($node, @settings, gated($row));
		wait_for(
			sub {
				$state = $node->sql(<<'SQL');
SELECT count(*) FILTER (WHERE wait_event = 'PgSleep' AND leader_pid IS NULL),
	count(*) FILTER (WHERE wait_event = 'PgSleep' AND leader_pid IS NOT NULL),
	count(*) FILTER (WHERE wait_event = 'ParallelCreateIndexScan') FROM pg_stat_activity;
SQL
				return $state eq '1|0|4' || $state eq '0|1|4' || !$session->{harness}->pumpable;
			});
		if ($state eq '0|1|4')
		{
			# the leader may have to be woken up to see that chunks are full
			usleep(300_000);
			last if grep { $_ > FIRST_PAGES * 8192 } values %{ { files() } };
		}
		$node->sql('SELECT pg_cancel_backend(pid) FROM pg_stat_progress_create_index');
		finish_psql($session);
		$node->sql('CHECKPOINT');
	}
	is($node->sql('SELECT phase FROM pg_stat_progress_create_index'),
		'building index: loading vectors', "$what: the table is being scanned");
	cmp_ok((sort { $b <=> $a } values %{ { files() } })[0], '>', FIRST_PAGES * 8192,
		"$what: the file has room for pages");
	return $session;
}

# what may be written is written
my $session = stop_in_scan('scan', 24000);
my ($path) = files();
my ($tablespace, $database, $relation) = $path =~ m{pg_tblspc/(\d+)/[^/]+/(\d+)/(\d+)$};
my %times;
ok_in_time(
		sub {
			# what is not flushed is not to be read
			my $to = $node->sql("SELECT pg_logical_emit_message(true, 'test', '');
				SELECT pg_current_wal_flush_lsn()");
			$to =~ s/.*\n//;
			%times = logged_path("$tablespace/$database/$relation", $from, $to);
			return keys(%times) >= FIRST_PAGES;
		}, 'scan: pages are logged');
is(join(', ', grep { $times{$_} != 1 } keys %times), '', 'scan: each of them once');
ok(!exists $times{0}, 'scan: the metapage is not among them');

# a checkpoint, whose recovery would begin behind those; then the rest
$node->sql('CHECKPOINT');
open_gate();
is(finish_psql($session), '', 'scan, a checkpoint: built');
is(not_once(pages_of('gated_idx'), logged('gated_idx', $from)), '',
	'scan, a checkpoint: each page is logged once');
my $digest = digest($node->data_dir . "/$path");
$node->stop('immediate');
$node->start;
is(digest($node->data_dir . "/$path"), $digest, 'scan, a checkpoint: the same file after a crash');
is($node->sql("SELECT gpugraph_check('gated_idx', true);
	SELECT nodes, rows FROM gpugraph_index_info('gated_idx')"), "\n44000|48400",
	'scan, a checkpoint: all there after a crash');
is(not_stored('items', 'gated_idx'), '', 'scan, a checkpoint: each row with its vector');
unlink $gate;
$node->sql('DROP INDEX gated_idx; CHECKPOINT');
is(join(' ', files()), '', 'dropped: no file');

# likewise in the second segment, of which the rows before the one that waits are few
$session = stop_in_scan('second segment', 26000, "SET maintenance_work_mem = '35MB'",
	"SET temp_file_limit = '8MB'");
open_gate();
like(finish_psql($session), qr/^NOTICE: [^\n]*no longer fits into maintenance_work_mem/,
	'second segment: built');
is(not_once(pages_of('gated_idx'), logged('gated_idx', $from)), '',
	'second segment: each page is logged once');
is($node->sql("SELECT gpugraph_check('gated_idx', true);
	SELECT segments > 1, rows FROM gpugraph_index_info('gated_idx')"), "\nt|48400",
	'second segment: all there');
is(not_stored('items', 'gated_idx'), '', 'second segment: each row with its vector');
unlink $gate;
$node->sql('DROP INDEX gated_idx; CHECKPOINT');

# cancelled, and terminated, when many pages are written
for my $how ('pg_cancel_backend', 'pg_terminate_backend')
{
	$session = stop_in_scan($how, 24000);
	$node->sql("SELECT $how(pid) FROM pg_stat_progress_create_index");
	like(finish_psql($session), qr/cancel|terminating/, "$how: the build ends");
	ok_in_time(sub { workers_left() eq '0' }, "$how: so do its workers");
	my %left = files();
	is(join(', ', grep { $_ > 0 } values %left), '', "$how: no pages are left");
	# the empty file goes with the next checkpoint, as that of any relation
	$node->sql('CHECKPOINT');
	is(join(' ', files()), '', "$how: no file is left");
}

# a crash at that time
$session = stop_in_scan('crash', 24000);
$node->stop('immediate');
finish_psql($session);
$node->start;
is($node->sql("SELECT count(*) FROM pg_class
	WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'gpugraph')"), '0', 'crash: no index');
open_gate();
build_once('after a crash', 'gated_idx', join('; ', gated(24000)));
is($node->sql("SELECT gpugraph_check('gated_idx', true);
	SELECT nodes, rows FROM gpugraph_index_info('gated_idx')"), "\n44000|48400",
	'after a crash: all there');
$node->sql('DROP INDEX gated_idx');

# ---- beside a device -------------------------------------------------------

# An engine that lets the processors write while it builds the graph, and a service that takes over
# the rows: the CPU plays both parts.
restart_with($node, "shared_preload_libraries = 'gpugraph'\ngpugraph.service_engine = 'cpu'\n");
build_once('beside a device', 'items_idx', create('items_idx', 4));
holds_all('beside a device', 'items', 'items_idx');
build_once('beside a device, segments', 'segments_idx',
	"SET maintenance_work_mem = '35MB'; SET temp_file_limit = '8MB'; " . create('segments_idx', 4));
is(error_of($node, "SELECT gpugraph_check('segments_idx', true)"), '',
	'beside a device, segments: sound');

finish_test($node);
