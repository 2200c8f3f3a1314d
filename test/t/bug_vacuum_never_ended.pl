# The bug: VACUUM started over from the index's first page whenever the generation had changed. Each
# seal changes it, so beside inserts that seal faster than VACUUM reads the index, VACUUM never
# ended: nothing was cleaned, and one against wraparound went on for ever, too.
#
# The fix: VACUUM remembers by id what it has gone through, and reads no more than was there when it
# began and what came by flips meanwhile.
#
# VACUUM is slowed down, and rests at the delta until there were some seals, so that many fall into
# one.
use Gpugraph;
use Merging;

my $rows = 20000;
my $node = merging_node('never');
$node->sql(<<SQL);
CREATE TABLE items (id serial, val vector(4)) WITH (vacuum_truncate = off);
CREATE FUNCTION fill(n int) RETURNS void LANGUAGE sql AS \$\$
	-- i > 0 is always true.  It makes the inner query run for each row, and not once for all.
	INSERT INTO items (val) SELECT (SELECT array_agg(random()) FROM generate_series(1, 4)
		WHERE i > 0)::vector FROM generate_series(1, n) i
\$\$;
SELECT fill($rows);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) 
	WITH (seal_rows = 100, graph_degree = 8, intermediate_graph_degree = 16);
CREATE INDEX ON items (id);
-- so that the next ones read only what changes
VACUUM items;
SQL
my @vacuum = ('SET client_min_messages = debug1', 'SET vacuum_cost_delay = 20',
	'SET vacuum_cost_limit = 1', 'SET gpugraph.fault = hold_vacuum_delta',
	'VACUUM (INDEX_CLEANUP on) items');

for my $round (1 .. 3)
{
	$node->sql("DELETE FROM items WHERE id % 41 = $round AND id < 4000");
	# rows in the delta, too few for a seal
	ok_in_time(
			sub {
				my $rows = merge_info($node, 'delta_rows');
				return 1 if $rows >= 20 && $rows < 100;
				$node->sql('SELECT fill(30)');
				return 0;
			}, "round $round: a delta");
	# a merge that goes on takes no more pages than those of what it merges
	my $start = $node->sql('SELECT (tids_bytes + delta_bytes) / 8192
		FROM gpugraph_index_info($$items_idx$$)');
	my $holder = hold_at($node, 'vacuum_delta');
	my $vacuum = start_psql($node, @vacuum);
	ok(rests_at($node, 'vacuum_delta'), "round $round: VACUUM is at the delta");
	my $before = merge_info($node, 'generation');
	my $load = start_pgbench($node, '--client=1 --rate=10 --time=600',
		'fill@1' => 'SELECT fill(120);');
	ok_in_time(sub { return merge_info($node, 'generation') >= $before + 3 },
		"round $round: flips beside it");
	finish_psql($holder);
	my $ended = defined wait_for(sub { return has_ended($vacuum); });
	ok($ended, "round $round: VACUUM ends beside them");
	my $flips = merge_info($node, 'generation') - $before;

	$load->{harness}->signal('INT');
	finish_psql($load);
	my $err = finish_psql($vacuum);
	unlike($err, qr/ERROR/, "round $round: without an error");
	my ($read, $late) = $err =~ /read (\d+) pages of rows of gpugraph index "items_idx", (\d+) of/;
	$read //= 0;
	$late //= 0;
	note("$start pages, $flips flips: $read read, $late of them late");
	cmp_ok($read, '>=', int($rows / 1018), "round $round: it has gone through the index");
	cmp_ok($read - $late, '<=', $start, "round $round: each page once");
	index_is_complete($node, "round $round");
}

finish_test($node);
