# Databases whose indexes have the same OIDs and files, as those of a template and its copy, share
# the service: the owner of one gets the rows of his own, and loads, evicts and counts nothing of
# the other's.
use Gpugraph;
use Residency;

my $node = service_node('databases');

unserved {
	$node->sql(<<'SQL');
CREATE ROLE first_owner LOGIN;
CREATE ROLE second_owner LOGIN;
CREATE DATABASE first;
SQL
	$node->safe_psql('first', <<'SQL');
CREATE EXTENSION gpugraph CASCADE;
CREATE TABLE items (id int, val vector(4));
INSERT INTO items SELECT i, ARRAY[i, i % 7, i % 11, 1]::real[]::vector
	FROM generate_series(1, 3000) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
SQL
	$node->sql('CREATE DATABASE second TEMPLATE first');
	# other rows on the same pages
	$node->safe_psql('second', <<'SQL');
TRUNCATE items;
INSERT INTO items SELECT -i, ARRAY[i + 0.25, i % 5, i % 13, 2]::real[]::vector
	FROM generate_series(1, 2000) i;
REINDEX INDEX items_idx;
SQL
	$node->safe_psql($_, "ALTER TABLE items OWNER TO ${_}_owner") for qw(first second);
};

sub ask
{
	my ($db, $sql) = @_;
	my ($rc, $out, $err) = $node->psql($db, "SET ROLE ${db}_owner; $sql");

	return $err ne '' ? $err : $out;
}

sub nearest
{
	my ($db) = @_;

	return ask($db, "SET enable_seqscan = off; SELECT string_agg(id::text, ' ') FROM (SELECT id
		FROM items ORDER BY val <-> '[7,0,7,1]' LIMIT 3) s");
}

sub exact
{
	my ($db) = @_;

	return ask($db, "SET enable_indexscan = off; SELECT string_agg(id::text, ' ') FROM (SELECT id
		FROM items ORDER BY val <-> '[7,0,7,1]' LIMIT 3) s");
}

sub state_in
{
	my ($db) = @_;

	return $node->sql(
		"SELECT coalesce(max(state), 'absent') FROM gpugraph_stat_index WHERE datname = '$db'");
}

sub counted
{
	my ($db) = @_;

	return $node->sql("SELECT coalesce(sum(queries_gpu + queries_cpu), 0)
		FROM gpugraph_stat_index WHERE datname = '$db'");
}

is($node->safe_psql('first', "SELECT 'items_idx'::regclass::oid"),
	$node->safe_psql('second', "SELECT 'items_idx'::regclass::oid"), 'the same OID');
ask($_, "SELECT gpugraph_prewarm('items_idx')") for qw(first second);
is(join(' ', map { state_in($_) } qw(first second)), 'ready ready', 'both are on the device');
is(nearest($_), exact($_), "$_: its own rows") for qw(first second);
isnt(nearest('first'), nearest('second'), 'which are others');

my $before = counted('first');
nearest('second');
is(counted('first'), $before, 'queries of one do not count for the other');
is(ask('second', "SELECT gpugraph_evict('items_idx')"), 't', 'one is evicted');
isnt(state_in('second'), 'ready', 'it is gone');
is(state_in('first'), 'ready', 'the other one stays');
is(nearest($_), exact($_), "$_: its own rows still") for qw(first second);

# an index of fewer rows where a larger one was
ask('second', 'DELETE FROM items WHERE id < -50; REINDEX INDEX items_idx');
ask('second', "SELECT gpugraph_prewarm('items_idx')");
is(ask('second', 'SET enable_seqscan = off; SELECT count(*) || \' \' || max(id) FROM (SELECT id
	FROM items ORDER BY val <-> \'[7,0,7,1]\' LIMIT 1000) s'), '50 -1',
	'who asks beyond the rows gets no others');
is(ask('second', "SELECT count(*) FROM gpugraph_search('items_idx', '{\"[7,0,7,1]\"}'::vector[],
	100)"), '50', 'nor does gpugraph_search');

# what one owner drops is the other's still
ask('second', 'DROP TABLE items');
is(nearest('first'), exact('first'), 'after the table of the other one was dropped');
like(ask('second', 'SELECT * FROM gpugraph_stat_index'), qr/permission denied/,
	'an owner does not see indexes of the other database');
like(ask('second', 'SELECT gpugraph_stat_reset()'), qr/permission denied/, 'nor resets counters');
$node->sql('DROP DATABASE second');
is(nearest('first'), exact('first'), 'after the other database was dropped');

finish_test($node);
