# Citus: a coordinator and two workers answer as one table does, by the indexes of the shards: under
# inserts, after a shard has moved, and after a worker's standby has taken its place.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../t", $FindBin::Bin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use Gpugraph;
use Servers;

my ($main, @workers) = citus_cluster(2);

# ---- a table on the coordinator, and the same rows in eight shards
make_items($main, 4000, 16);
$main->safe_psql('postgres', <<'SQL');
SET citus.shard_count = 8;
CREATE TABLE docs (id int PRIMARY KEY, cat int, big int, val vector(16));
SELECT create_distributed_table('docs', 'id');
INSERT INTO docs SELECT * FROM items;
CREATE INDEX docs_idx ON docs USING gpugraph (val, cat);
CREATE TABLE details (id int PRIMARY KEY, color int);
SELECT create_distributed_table('details', 'id', colocate_with => 'docs');
INSERT INTO details SELECT id, id % 3 FROM items;
CREATE TABLE here AS SELECT id, id % 3 AS color FROM items;
CREATE TABLE asked AS SELECT * FROM queries;
SELECT create_reference_table('asked');

-- gpugraph_search() on every shard, and the k nearest of all answers
CREATE FUNCTION search_docs(queries vector[], k int)
RETURNS TABLE (query int, id int, distance float8) LANGUAGE plpgsql AS $$
DECLARE
	shard record;
	answers jsonb := '[]';
BEGIN
	FOR shard IN SELECT * FROM run_command_on_shards('docs', format($sql$
		SELECT coalesce(json_agg(f), '[]') FROM (SELECT s.query, d.id, s.distance
		FROM gpugraph_search((SELECT indexrelid::regclass FROM pg_index
			JOIN pg_class ON pg_class.oid = indexrelid
			JOIN pg_am ON pg_am.oid = relam AND amname = 'gpugraph'
			WHERE indrelid = '%%1$s'::regclass), %L::vector[], %s) s
		JOIN %%1$s d ON d.ctid = s.tid) f $sql$, queries, k)) LOOP
		IF NOT shard.success THEN
			RAISE EXCEPTION 'shard % of docs: %', shard.shardid, shard.result;
		END IF;
		answers := answers || shard.result::jsonb;
	END LOOP;
	RETURN QUERY SELECT a.query, a.id, a.distance FROM (SELECT r.*,
		row_number() OVER (PARTITION BY r.query ORDER BY r.distance) AS n
		FROM jsonb_to_recordset(answers) AS r(query int, id int, distance float8)) a
		WHERE a.n <= k ORDER BY a.query, a.distance;
END $$;
SQL

my @vectors = split /\n/, $main->safe_psql('postgres', 'SELECT val FROM queries ORDER BY q');
my $wide = 'SET citus.propagate_set_commands = local; SET enable_seqscan = off; BEGIN;
	SET LOCAL gpugraph.itopk_size = 400';

# Rows of a query, by the distributed table and by the one table
sub both
{
	my ($sql) = @_;
	my $local = $sql =~ s/\bdocs\b/items/gr =~ s/\bdetails\b/here/gr;

	return map { $main->safe_psql('postgres', "$wide; $_; COMMIT") } $sql, $local;
}

# how many of all queries have the same answers
sub equal_answers
{
	my ($what) = @_;
	my $equal = 0;

	for my $vector (@vectors)
	{
		my ($got, $wanted) = both("SELECT id FROM docs ORDER BY val <-> '$vector' LIMIT 10;
			SELECT id FROM docs WHERE cat < 25 ORDER BY val <-> '$vector' LIMIT 10;
			SELECT docs.id, color FROM docs JOIN details USING (id) WHERE color = 1
			ORDER BY val <-> '$vector' LIMIT 10");

		$equal++ if $got eq $wanted && ($got =~ tr/\n//) == 29;
		diag("got: $got\nwanted: $wanted") if $got ne $wanted;
	}
	is($equal, @vectors, "$what: the answers of one table");
	is($main->safe_psql('postgres', "$wide;
		SELECT array_agg(id ORDER BY query, distance) =
		(SELECT array_agg(items.id ORDER BY query, distance)
			FROM gpugraph_search('items_idx', (SELECT array_agg(val ORDER BY q) FROM queries), 10) s
			JOIN items ON items.ctid = s.tid)
		FROM search_docs((SELECT array_agg(val ORDER BY q) FROM queries), 10); COMMIT"), 't',
		"$what: gpugraph_search() of all shards");
	is($main->safe_psql('postgres', "SELECT count(*) FROM run_command_on_shards('docs',
		\$\$SELECT gpugraph_check(indexrelid, true) FROM pg_index
		JOIN pg_class ON pg_class.oid = indexrelid
		WHERE indrelid = '%s'::regclass AND pg_get_indexdef(indexrelid) ~ 'gpugraph'\$\$)
		WHERE success"), 8, "$what: all shards have a sound index");
	return;
}

# ---- what goes to the shards
my $plan = $main->safe_psql('postgres', "SET enable_seqscan = off;
	SET citus.explain_all_tasks = on;
	EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM docs WHERE cat < 25
	ORDER BY val <-> '$vectors[0]' LIMIT 10");
is(scalar(() = $plan =~ /Query: .* ORDER BY .*<->.* LIMIT '10'/g), 8,
	'shards get ORDER BY and LIMIT') or diag($plan);
is(scalar(() = $plan =~ /Index Scan using docs_idx_\d+/g), 8, 'and answer by their indexes')
	or diag($plan);
equal_answers('built');

# ---- what does not
for my $sql ('SELECT id FROM docs ORDER BY val <-> (SELECT val FROM docs WHERE id = 77) LIMIT 10',
	'SELECT a.q, n.id FROM asked a CROSS JOIN LATERAL
		(SELECT id FROM docs ORDER BY docs.val <-> a.val LIMIT 5) n')
{
	like(($main->psql('postgres', $sql))[2], qr/only supported when|currently unsupported/,
		'Citus refuses: ' . substr($sql, 0, 40));
}
is($main->safe_psql('postgres', "SELECT count(*)
	FROM gpugraph_search('docs_idx', ARRAY['$vectors[0]']::vector[], 5)"), 0,
	'the index on the coordinator is empty');

# ---- inserts, updates, deletes
my $new = 'SELECT id + 10000, cat, big, val + array_fill(0.01::real, ARRAY[16])::vector';
my $load = start_pgbench($main, '--client=2 --time=4',
	'look@3' => "\\set q random(1, 20)\nSELECT id FROM docs
		ORDER BY val <-> '$vectors[1]' LIMIT 10;\n",
	'insert@1' => "\\set id random(100000, 90000000)\nINSERT INTO docs
		SELECT :id, 1, 1, (SELECT array_agg(9 + random()) FROM generate_series(1, 16))::vector(16)
		ON CONFLICT DO NOTHING;\n");
$main->safe_psql('postgres', "INSERT INTO items $new FROM items; INSERT INTO docs $new FROM docs
		WHERE id <= 10000;
	DELETE FROM items WHERE id % 7 = 0; DELETE FROM docs WHERE id % 7 = 0 AND id < 100000;
	UPDATE items SET cat = cat + 1 WHERE id % 3 = 0;
	UPDATE docs SET cat = cat + 1 WHERE id % 3 = 0 AND id < 100000");
equal_answers('changed, under inserts');
is(finish_psql($load) =~ /ERROR|abort/ ? $load->{err} : '', '', 'no error meanwhile');

# ---- a shard moves
my $move = "SELECT citus_move_shard_placement(shardid, nodename, nodeport, '%s', %s)
	FROM pg_dist_shard_placement JOIN pg_dist_shard USING (shardid)
	WHERE logicalrelid = 'docs'::regclass AND nodeport = %s LIMIT 1";
$main->safe_psql('postgres',
	sprintf $move, $workers[1]->host, $workers[1]->port, $workers[0]->port);
is($main->safe_psql('postgres', "SELECT count(*)
	FROM pg_dist_shard_placement JOIN pg_dist_shard USING (shardid)
	WHERE logicalrelid = 'docs'::regclass AND nodeport = " . $workers[1]->port), 5,
	'a shard has moved');
equal_answers('moved');

# ---- a worker is lost: with a standby, and without
my $standby = PostgreSQL::Test::Cluster->new('standby', install_path => $ENV{GG_CITUS});
$workers[1]->backup('backup');
$standby->init_from_backup($workers[1], 'backup', has_streaming => 1);
$standby->start;
$workers[1]->wait_for_catchup($standby, 'replay', $workers[1]->lsn('insert'));
kill_9_server($workers[1]);
my $ask = "SELECT id FROM docs ORDER BY val <-> '$vectors[0]' LIMIT 10";
my ($rc, $out, $err) = $main->psql('postgres', $ask);
like($err, qr/ERROR: .*connection to the remote node .* failed/, 'a worker that is lost');
is($out, '', 'no rows without its rows');
$standby->promote;
$main->safe_psql('postgres', "SELECT citus_update_node(nodeid, '" . $standby->host . "', "
	. $standby->port . ') FROM pg_dist_node WHERE nodeport = ' . $workers[1]->port);
equal_answers('its standby instead');
$workers[0]->stop;
like(($main->psql('postgres', $ask))[2], qr/ERROR: .*connection to the remote node .* failed/,
	'a worker without a standby');

$_->stop for $main, $standby;
done_testing();
