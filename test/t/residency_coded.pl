# An index that has codes and no vectors is for the CPU alone: no device gets it, whether it is
# built, merged, asked for or queried there. A device builds its graphs all the same.
use strict;
use warnings;

use Test::More;

use Gpugraph;
use Residency;

my $node = service_node('coded');
make_items($node, 12000, 64);
$node->safe_psql('postgres', <<'SQL');
DROP INDEX items_idx;
ALTER TABLE items SET (parallel_workers = 2);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)
	WITH (storage = int4, seal_rows = 500);
SQL

is($node->safe_psql('postgres', "SELECT element FROM gpugraph_index_info('items_idx')"),
	'int4', 'built, with the device');
is(state_of($node), 'absent', 'and not handed over');
cmp_ok($node->safe_psql('postgres', "SELECT gpugraph_prewarm('items_idx')"), '>', 0,
	'gpugraph_prewarm() fills buffers');
is(state_of($node), 'absent', 'and no device');
my $search = 'SET enable_seqscan = off; SELECT count(*) FROM (SELECT id FROM items
	ORDER BY val <-> (SELECT val FROM queries LIMIT 1) LIMIT 10) s';
is($node->safe_psql('postgres', "$search; SELECT engine, reason FROM gpugraph_last_scan()"),
	"10\ncpu|The query measures rows, of which a GPU has codes alone.", 'the CPU answers');
is($node->safe_psql('postgres', 'SELECT count(*) FROM gpugraph_search(\'items_idx\',
	(SELECT array_agg(val) FROM queries), 10)'), 200, 'and many queries');
my ($rc, $out, $err) = $node->psql('postgres', "SET gpugraph.engine = cuda; $search");
like($err, qr/a GPU has codes alone/, 'engine cuda says why not');
$node->safe_psql('postgres', "INSERT INTO items SELECT 100000 + id, cat, big, val FROM items;
	SELECT gpugraph_merge('items_idx')");
is(state_of($node), 'absent', 'merged, and still on no device');
index_is_complete($node, 'merged');

$node->stop;
done_testing();
