# No index is lost when the library becomes newer. Each version that was released (test/releases
# builds them) makes indexes of all forms that it had; then this library has their database: on a
# standby that is upgraded first, with the older catalog, after ALTER EXTENSION UPDATE, and carried
# over by pg_upgrade. Rows are found, changed and merged there, and the service holds the indexes.
use Gpugraph;
use Residency;

my %format = ('0.1.0' => 2, '1.0.0' => 2, '1.1.0' => 3);
# the forms of an index, and what distance its rows are in the order of
my %operator = (items => '<->', cosine => '<=>', ip => '<#>', l1 => '<+>', short => '<->',
	rounded => '<->', partial => '<->', late => '<->', none => '<->', cut => '<->');
my @rels = sort keys %operator;

my $releases = $ENV{GG_RELEASES} or die 'GG_RELEASES is not set: test/run sets it';

sub make_indexes
{
	my ($node, $version) = @_;

	make_items($node, 2500, 16);
	$node->sql(<<'SQL');
SET maintenance_work_mem = '1MB';
CREATE TABLE cosine AS SELECT * FROM items;
CREATE INDEX cosine_idx ON cosine USING gpugraph (val vector_cosine_ops) WITH (seed = 7);
CREATE TABLE ip AS SELECT * FROM items;
CREATE INDEX ip_idx ON ip USING gpugraph (val vector_ip_ops);
CREATE TABLE l1 AS SELECT * FROM items;
CREATE INDEX l1_idx ON l1 USING gpugraph (val vector_l1_ops) WITH (graph_degree = 16);
CREATE TABLE short AS SELECT id, cat, big, val::halfvec(16) AS val FROM items;
CREATE INDEX short_idx ON short USING gpugraph (val halfvec_l2_ops);
CREATE TABLE rounded AS SELECT * FROM items;
CREATE INDEX rounded_idx ON rounded USING gpugraph (val vector_l2_ops) WITH (storage = 'float16');
CREATE TABLE partial AS SELECT * FROM items WHERE cat < 10;
CREATE INDEX partial_idx ON partial USING gpugraph (val vector_l2_ops) WHERE cat < 100;
-- a segment of copies, dead rows, and a delta of which VACUUM has given back the front
CREATE TABLE late AS SELECT * FROM items;
INSERT INTO late SELECT id + 10000, cat, big, val FROM items WHERE id % 5 = 0;
CREATE INDEX late_idx ON late USING gpugraph (val vector_l2_ops);
INSERT INTO late SELECT id + 20000, cat, big, val FROM items WHERE id <= 900;
DELETE FROM late WHERE id % 7 = 0 OR id BETWEEN 20001 AND 20400;
CREATE TABLE none (id int, cat int, big int, val vector(16));
CREATE INDEX none_idx ON none USING gpugraph (val vector_l2_ops);
CREATE UNLOGGED TABLE cut AS SELECT * FROM items WHERE id <= 500;
CREATE INDEX cut_idx ON cut USING gpugraph (val vector_l2_ops);
CREATE TABLE parted (id int, val vector(16)) PARTITION BY HASH (id);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO parted SELECT id, val FROM items;
CREATE INDEX parted_idx ON parted USING gpugraph (val vector_l2_ops);
CREATE VIEW seen AS SELECT relid FROM gpugraph_stat_index;
-- rows that are in no index
INSERT INTO cosine (id, val) VALUES (-1, NULL), (-2, array_fill(0, '{16}')::vector);
SQL
	$node->sql("VACUUM $_") for @rels;
	if ($version ne '0.1.0' && $version ne '1.0.0')
	{
		# pieces of several segments, and gaps in the delta
		$node->sql("ALTER INDEX late_idx SET (seal_rows = 100);
			SELECT gpugraph_merge('ip_idx'), gpugraph_merge('late_idx');
			INSERT INTO late SELECT id + 30000, cat, big, val FROM items WHERE id <= 700;
			DELETE FROM late WHERE id BETWEEN 30200 AND 30500");
		$node->sql('VACUUM late');
	}
	$node->sql('INSERT INTO late SELECT id + 40000, cat, big, val FROM items WHERE id <= 50');
	return;
}

# All rows of all tables come by the index, once, in order, and the nearest are found.
sub all_found
{
	my ($node, $what) = @_;
	my ($wrong, $far) = ('', '');

	for my $rel (@rels)
	{
		next if $rel eq 'cut' && $node->sql('SELECT pg_is_in_recovery()') eq 't';
		my $cast = $rel eq 'short' ? 'halfvec' : 'vector';
		my $where = $rel eq 'cosine' ? 'id > 0' : 'cat < 100';
		my $op = $operator{$rel};
		my ($rc, $out, $err) = $node->psql('postgres', <<SQL);
SELECT gpugraph_check('${rel}_idx', true);
SET enable_seqscan = off; SET enable_sort = off;
SELECT format('%s of %s rows, %s distinct', n, (SELECT count(*) FROM $rel WHERE $where), d)
FROM (SELECT count(*) AS n, count(DISTINCT id) AS d
	FROM (SELECT id FROM $rel WHERE $where
		ORDER BY val $op (SELECT val::$cast FROM queries LIMIT 1)) s) t
WHERE n <> (SELECT count(*) FROM $rel WHERE $where) OR d <> n;
SQL
		$wrong .= "$rel: $out $err\n" if "$rc $out $err" !~ /^0 \s*$/;
		my $plan = $node->sql("SET enable_seqscan = off; EXPLAIN (COSTS OFF)
			SELECT id FROM $rel WHERE $where ORDER BY val $op array_fill(1, '{16}')::$cast
			LIMIT 5");
		# what has no rows is cheaper without an index
		$wrong .= "$rel: not by its index: $plan\n"
			if $rel ne 'none' && $plan !~ /Index Scan using ${rel}_idx/;
		my $recall = $node->sql("SELECT recall('$rel', '$op', 10, '$where', '$cast')");
		$far .= "$rel: $recall\n" if $recall < ($rel eq 'ip' ? 0.8 : 0.95) && $rel ne 'none';
	}
	is($wrong, '', "$what: every row is found once, by the index, which is sound");
	is($far, '', "$what: the nearest are found");
	is($node->sql('SET enable_seqscan = off; SET gpugraph.partition_probes = 3;
			SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM parted
				ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 2000) s'), '2000|2000',
		"$what: and in partitions");
	return;
}

# What is called by name, as monitoring and owners do
sub functions_work
{
	my ($node, $version, $what) = @_;

	is($node->sql("SELECT version, nodes > 0, total_bytes > 0, element
			FROM gpugraph_index_info('items_idx')"), "$format{$version}|t|t|float32",
		"$what: gpugraph_index_info()");
	is($node->sql("SELECT gpugraph_prewarm('items_idx') > 0;
			SELECT state FROM gpugraph_stat_device;
			SELECT s.state FROM gpugraph_stat_index s JOIN seen USING (relid)
			WHERE index = 'items_idx'::regclass;
			SELECT gpugraph_evict('items_idx'); SELECT gpugraph_stat_reset()"), "t\nup\nready\nt\n",
		"$what: functions and views of the service");
	is($node->sql("SELECT rows - dead_rows FROM gpugraph_indexes WHERE indexname = 'items_idx'"),
		'2500', "$what: gpugraph_indexes") if $version ne '0.1.0';
	is($node->sql("SELECT count(*) >= 0 FROM gpugraph_stat_merge;
			SELECT gpugraph_merge('late_idx') IS NULL"), "t\nf", "$what: gpugraph_merge()")
		if $version eq '1.1.0';
	return;
}

# Rows change, blocks are given back, the server crashes; indexes are made, made anew and dropped.
sub use_it
{
	my ($node, $what) = @_;

	$node->sql(<<SQL) for @rels;
INSERT INTO $_ SELECT id + 100000, cat, big, val FROM items WHERE cat < 10 AND id <= 2500;
UPDATE $_ SET big = big + 1 WHERE id % 4 = 1;
DELETE FROM $_ WHERE id % 4 = 2;
SQL
	$node->sql("VACUUM $_") for @rels;
	all_found($node, "$what: changed");
	$node->sql("INSERT INTO $_ SELECT id + 200000, cat, big, val FROM items
		WHERE id <= 50") for grep { $_ ne 'cut' } @rels;
	$node->stop('immediate');
	$node->start;
	# an unlogged table is empty after a crash
	$node->sql('INSERT INTO cut SELECT * FROM items WHERE id <= 500');
	all_found($node, "$what: after a crash");
	$node->sql(<<'SQL');
REINDEX INDEX items_idx;
REINDEX INDEX CONCURRENTLY late_idx;
DROP INDEX rounded_idx;
CREATE INDEX rounded_idx ON rounded USING gpugraph (val vector_l2_ops) WITH (storage = 'float16');
SQL
	all_found($node, "$what: made anew");
	return;
}

sub dump_loads
{
	my ($node, $what) = @_;

	$node->sql('CREATE DATABASE loaded');
	$node->command_ok([ 'sh', '-c', 'pg_dump -d "$1" | psql -Xq -v ON_ERROR_STOP=1 -d "$2"', '-',
			$node->connstr('postgres'), $node->connstr('loaded') ], "$what: dumped and restored");
	is($node->safe_psql('loaded', "SELECT gpugraph_check('late_idx', true)"), '',
		"$what: the restored index is sound");
	$node->sql('DROP DATABASE loaded');
	return;
}

for my $version (sort map { m{([^/]+)/made$} } glob "$releases/*/made")
{
	my $old = new_node("old_$version", new => { install_path => "$releases/$version/home" },
		init => { allows_streaming => 1 });
	make_indexes($old, $version);
	is($old->sql("SELECT extversion FROM pg_extension
			WHERE extname = 'gpugraph'"), $version, "$version: made by it");
	# the older server can do what is asked of the newer one
	all_found($old, "$version: with its own library");

	# standbys are upgraded first
	my $standby = start_standby($old, "standby_$version");
	$old->sql('INSERT INTO items SELECT id + 50000, cat, big, val FROM items
		WHERE id <= 500; DELETE FROM items WHERE id > 50000; DELETE FROM late WHERE id % 3 = 0');
	$old->sql('VACUUM items; VACUUM late');
	$old->wait_for_catchup($standby, 'replay', $old->lsn('insert'));
	all_found($standby, "$version: a standby that was upgraded first");
	$old->stop;
	$standby->promote;
	$standby->sql('INSERT INTO cut SELECT * FROM items WHERE id <= 500');
	use_it($standby, "$version: the standby, promoted");
	$standby->stop;

	$old->backup_fs_cold('cold');

	# with the older catalog
	my $node = PostgreSQL::Test::Cluster->new("newer_$version");
	$node->init_from_backup($old, 'cold');
	$node->append_conf('postgresql.conf', service_conf());
	$node->start;
	all_found($node, "$version: older catalog");
	functions_work($node, $version, "$version: older catalog");
	dump_loads($node, "$version: older catalog");
	use_it($node, "$version: older catalog");
	for my $newer (newer_nodes("checked_$version"))
	{
		my $was = $node;

		$node = $newer;
		forget_newer_options($was);
		upgrade_node($was, $node, "$version: older catalog, pg_upgrade to " . $node->pg_version);
		all_found($node, "$version: older catalog, upgraded to " . $node->pg_version);
	}
	$node->stop;

	# after the update, with the service
	my $updated = PostgreSQL::Test::Cluster->new("updated_$version");
	$updated->init_from_backup($old, 'cold');
	$updated->append_conf('postgresql.conf', service_conf());
	$updated->start;
	my ($rc, $out, $err) = $updated->psql('postgres', 'ALTER EXTENSION gpugraph UPDATE');
	is("$rc $out $err", '0  ', "$version: ALTER EXTENSION UPDATE has nothing to warn of");
	all_found($updated, "$version: updated");
	is($updated->sql("SELECT string_agg(indexname || ': ' || hint, ', ')
			FROM gpugraph_indexes WHERE hint ~ 'cannot be read|REINDEX INDEX: ' OR NOT valid"), '',
		"$version: updated: no index is lost");
	for my $rel (grep { $_ ne 'none' } @rels)
	{
		cmp_ok($updated->sql("SELECT gpugraph_prewarm('${rel}_idx')"), '>', 0,
			"$version: updated: $rel comes to a device");
	}
	all_found($updated, "$version: updated, on a device");
	is($updated->sql("SELECT bool_or(gpugraph_merge(i.indexrelid))
			FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
			JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'gpugraph' AND c.relkind = 'i'"),
		't', "$version: updated: merged");
	all_found($updated, "$version: updated, merged");
	use_it($updated, "$version: updated");
	$updated->stop;
}

done_testing();
