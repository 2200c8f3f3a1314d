# gpugraph_stat_index has no row of an index that is gone: of this database, of another one, with
# its database, and on a standby.  What is not gone keeps its counts.
use Gpugraph;
use Residency;

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
my $standby = start_standby($node, 'standby');

# Queries of the table in a database, some of them of a session that goes on.
my $ask = "SET gpugraph.engine = cpu; SET enable_seqscan = off;
	DO \$\$ BEGIN FOR i IN 1 .. 5 LOOP
		PERFORM id FROM %s ORDER BY val <-> '[1,1]' LIMIT 1; END LOOP; END \$\$";

sub ask { my ($on, $db, $rel) = @_; $on->safe_psql($db, sprintf $ask, $rel); return; }

# Rows of indexes that were asked, as another database shows them
sub rows
{
	my ($on) = @_;
	return $on->sql("SELECT string_agg(coalesce(datname, relid::text) || ' '
		|| queries_cpu, ' ' ORDER BY datname, queries_cpu, relid) FROM gpugraph_stat_index
		WHERE queries_cpu > 0");
}

# Until so many rows are left, those of indexes that are on a device with them
sub left
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

finish_test($standby, $node);
