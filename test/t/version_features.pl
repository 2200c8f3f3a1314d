# What newer versions of PostgreSQL brought and a gpugraph index meets, each from the version on
# that has it: page checksums by default and ways of I/O (18), incremental backups (17), a replica
# that is waited for, autovacuum by several workers, REPACK that others write beside (19).
use Gpugraph;

my $node = PostgreSQL::Test::Cluster->new('main');
my $version = $node->pg_version->major;

# as initdb makes it, with checksums or without
$node->init(allows_streaming => 1);
$node->append_conf('postgresql.conf', "autovacuum = off\njit = off\nwal_keep_size = 1GB\n");
$node->append_conf('postgresql.conf', "summarize_wal = on\n") if $version >= 17;
$node->start;
$node->sql('CREATE EXTENSION vector; CREATE EXTENSION gpugraph');
load_helpers($node);
make_items($node, 3000, 16);
is($node->sql('SHOW data_checksums'), $version >= 18 ? 'on' : 'off', 'checksums as by default');

# every page is read from disk again, and its checksum looked at
$node->restart;
index_is_complete($node, 'read again');
$node->stop;
command_ok(['pg_checksums', '--check', '-D', $node->data_dir], 'all checksums are right')
	if $version >= 18;
$node->start;

# ---- ways of I/O

if ($version >= 18)
{
	for my $method ($node->sql(
			"SELECT unnest(enumvals) FROM pg_settings WHERE name = 'io_method'") =~ /\w+/g)
	{
		$node->append_conf('postgresql.conf', "io_method = $method\n");
		# a server without the right to io_uring does not start with it
		if (!$node->restart(fail_ok => 1))
		{
			like(slurp_file($node->logfile), qr/could not setup io_uring/,
				"$method: not on this machine");
			$node->append_conf('postgresql.conf', "io_method = worker\n");
			$node->start;
			next;
		}
		is($node->sql('SHOW io_method'), $method, "$method: so it is");
		index_is_complete($node, "$method: read");
		$node->sql("INSERT INTO items
			SELECT id + 10000 * (SELECT 1 + max(id) / 10000 FROM items), cat, big, val FROM items
			WHERE id <= 500; REINDEX INDEX items_idx");
		index_is_complete($node, "$method: built");
	}
}

# ---- incremental backups

if ($version >= 17)
{
	my $backups = $node->backup_dir;

	$node->backup('full');
	$node->sql('DELETE FROM items WHERE id % 3 = 0');
	$node->sql('VACUUM items');
	$node->sql("INSERT INTO items SELECT id + 500000, cat, big, val FROM items
		WHERE id <= 600; SELECT gpugraph_merge('items_idx')");
	$node->backup('incremental',
		backup_options => [ '--incremental', "$backups/full/backup_manifest" ]);
	my $at_backup = answers($node);
	$node->sql('DELETE FROM items WHERE id % 4 = 0');
	command_ok([ 'pg_combinebackup', "$backups/full", "$backups/incremental", '-o',
			"$backups/combined" ], 'backups are combined');
	my $restored = PostgreSQL::Test::Cluster->new('restored');
	$restored->init_from_backup($node, 'combined');
	$restored->start;
	is(answers($restored), $at_backup, 'restored from an incremental backup: the same answers');
	index_is_complete($restored, 'restored from an incremental backup');
	$restored->stop;
}

# ---- a replica that is waited for (README, Replicas)

if ($version >= 19)
{
	my $replica = PostgreSQL::Test::Cluster->new('replica');

	$node->backup('for_replica');
	$replica->init_from_backup($node, 'for_replica', has_streaming => 1);
	$replica->start;
	for my $round (1 .. 5)
	{
		my $id = 900000 + $round;
		my $lsn = $node->sql("INSERT INTO items SELECT $id, cat, big, val
			FROM items LIMIT 1;
			SELECT pg_current_wal_insert_lsn()");
		$replica->sql("WAIT FOR LSN '$lsn' WITH (TIMEOUT '300s')");
		is($replica->sql("SET enable_seqscan = off; SET enable_sort = off;
			SELECT count(*) FROM (SELECT id FROM items
				ORDER BY val <-> (SELECT val FROM items WHERE id = $id) LIMIT 100) s
			WHERE id = $id"), 1, "round $round: the replica has the row just written");
	}
	$replica->stop;
}

# ---- autovacuum by several workers

if ($version >= 19)
{
	$node->sql(<<'SQL');
CREATE INDEX second_idx ON items USING gpugraph (val vector_cosine_ops);
CREATE INDEX third_idx ON items USING gpugraph (val vector_ip_ops) WITH (storage = 'float32+int4');
ALTER TABLE items SET (autovacuum_parallel_workers = 2, autovacuum_vacuum_threshold = 10,
	autovacuum_vacuum_scale_factor = 0, log_autovacuum_min_duration = 0);
ALTER SYSTEM SET min_parallel_index_scan_size = 0;
ALTER SYSTEM SET autovacuum_max_parallel_workers = 4;
ALTER SYSTEM SET autovacuum_naptime = 1;
ALTER SYSTEM SET autovacuum = on;
SQL
	my $offset = -s $node->logfile;
	$node->sql('DELETE FROM items WHERE id % 5 = 0');
	$node->reload;
	$node->wait_for_log(qr/automatic vacuum of table "postgres.public.items"/, $offset);
	like(slurp_file($node->logfile, $offset), qr/parallel workers: .*[1-9] launched/,
		'several workers vacuum');
	$node->sql('ALTER SYSTEM RESET autovacuum; SELECT pg_reload_conf()');
	$node->sql("SELECT gpugraph_check(name, true)
		FROM unnest('{items_idx,second_idx,third_idx}'::text[]) name");
	index_is_complete($node, 'vacuumed by several workers');
}

# ---- REPACK that others write beside

if ($version >= 19)
{
	my $writer = start_psql($node, 'DO $$
		BEGIN
			FOR i IN 1 .. 400 LOOP
				INSERT INTO items SELECT 2000000 + i, cat, big, val FROM items WHERE id = 1;
				DELETE FROM items WHERE id = 2000000 + i - 100;
				UPDATE items SET val = val WHERE id = 2000000 + i - 50;
				COMMIT;
			END LOOP;
		END $$');
	for my $round (1 .. 3)
	{
		$node->sql('REPACK (CONCURRENTLY) items');
	}
	finish_psql($writer);
	is($node->sql('SELECT count(*) FROM items WHERE id > 2000000'), 100,
		'written while the table was rewritten');
	$node->sql("SELECT gpugraph_check(name, true)
		FROM unnest('{items_idx,second_idx,third_idx}'::text[]) name");
	index_is_complete($node, 'rewritten while it was written');
}

finish_test($node);
