# Rows stored as float16 come in true order after a crash and on a replica, also rows longer than
# any of the build: a scan by inner product needs to know the greatest length, which inserts raise.
use Gpugraph;

my $primary = new_node('primary', init => { allows_streaming => 1 });
my $replica = start_standby($primary, 'replica');

$primary->sql(<<'SQL');
SELECT setseed(0.2);
SELECT make_data('items', 3000, 16, 20);
SELECT make_queries('items', 20);
CREATE INDEX items_idx ON items USING gpugraph (val vector_ip_ops) WITH (storage = 'float16');
CREATE UNLOGGED TABLE u AS SELECT * FROM items;
CREATE INDEX u_idx ON u USING gpugraph (val vector_ip_ops) WITH (storage = 'float16');
-- how many of the queries' answers are those of the table
CREATE FUNCTION right_answers(rel text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	sql text := format('SELECT array_agg(a ORDER BY q) FROM (SELECT q,
						array(SELECT val <#> queries.val FROM %I
						ORDER BY val <#> queries.val LIMIT 20) AS a FROM queries) s', rel);
	scanned float8[];
	sorted float8[];
BEGIN
	PERFORM use_index(true);
	EXECUTE sql INTO scanned;
	PERFORM use_index(false);
	EXECUTE sql INTO sorted;
	RETURN (SELECT count(*) FROM generate_series(1, array_length(sorted, 1)) i
		WHERE scanned[i:i][1:20] = sorted[i:i][1:20]);
END $$;
SQL

my $promoted = 0;
sub check
{
	my ($node, $what, $rel) = @_;

	$primary->wait_for_catchup($replica, 'replay', $primary->lsn('insert'))
		if $node eq $replica && !$promoted;
	cmp_ok($node->sql("SELECT right_answers('$rel')"), '>=', 19, "$what: answers");
	is(join(' ', ($node->psql('postgres', "SELECT gpugraph_check('${rel}_idx', true)"))[ 0, 2 ]),
		'0 ', "$what: sound");
	return;
}

check($primary, 'built', 'items');
check($replica, 'built, on the replica', 'items');

# each longer than all before, nearly equal in half precision
my $longer = <<'SQL';
INSERT INTO %s SELECT id + 10000 * %d, cat, big,
	(SELECT array_agg(x * %d * (1 + 0.00001 * (id %% 7)) ORDER BY d)::real[]::vector
	FROM unnest(val::real[]) WITH ORDINALITY v(x, d))
	FROM items WHERE id <= 40
SQL
for my $times (2, 30, 400)
{
	$primary->sql(sprintf($longer, $_, $times, $times)) for 'items', 'u';
}
check($primary, 'longer rows', 'items');
check($replica, 'longer rows, on the replica', 'items');
check($primary, 'longer rows, unlogged', 'u');

$primary->stop('immediate');
$primary->start;
check($primary, 'after a crash', 'items');
check($replica, 'after a crash, on the replica', 'items');
is($primary->sql("SELECT element, rows, delta_rows FROM gpugraph_index_info('u_idx')"),
	'float16|0|0', 'unlogged: empty, and of its storage');
$primary->sql('INSERT INTO u SELECT * FROM items');
check($primary, 'unlogged, filled again', 'u');

$primary->sql('DELETE FROM items WHERE id % 5 = 0');
$primary->sql('VACUUM items');
check($replica, 'vacuumed, on the replica', 'items');
$primary->stop;
$replica->promote;
$promoted = 1;
$replica->sql(sprintf($longer, 'items', 3000, 3000));
check($replica, 'promoted, still longer rows', 'items');

finish_test($replica);
