# An index with learn_queries learns from what it is asked: the worker stores the queries and links
# their answers, others see none of them, gpugraph_forget() and the option rid the server of them,
# and a standby keeps none.
use Gpugraph;
use Merging;

my $node = merging_node('asked', init => { allows_streaming => 1 },
	conf => "gpugraph.learn_naptime = 2s\nautovacuum = off\n");
$node->sql(<<'SQL');
SELECT make_data('items', 6000, 16, 40);
SELECT make_data('asked', 4000, 16, 7);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (graph_degree = 16);
-- queries from .. to, each by a scan of the index
CREATE FUNCTION ask(rel text, "from" int, "to" int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	SET LOCAL enable_seqscan = off;
	EXECUTE format('SELECT count(i.id) FROM asked a, LATERAL (SELECT id FROM %I i
		ORDER BY i.val <-> a.val LIMIT 1) i WHERE a.id BETWEEN $1 AND $2', rel)
		INTO n USING "from", "to";
	RETURN n;
END $$;
SQL
my $replica = start_standby($node, 'replica');

sub sample
{
	return merge_info($node, 'sample_queries');
}

# How many answers of queries 3801 to 4000 the index finds, of 400, by a walk with a list of four.
# A scan that may go on wants a longer list than that for LIMIT 2, and a GPU then measures all of
# so few rows.
sub found
{
	return $node->sql(<<'SQL');
SET enable_seqscan = off;
SET gpugraph.itopk_size = 4;
SET gpugraph.iterative_scan = off;
SELECT count(*) FROM asked a, LATERAL (SELECT id FROM (SELECT id, val FROM items i
	ORDER BY i.val <-> a.val LIMIT 2) i WHERE i.val <-> a.val <= (SELECT max(d) FROM
	(SELECT (j.val <-> a.val) + 0 AS d FROM items j ORDER BY (j.val <-> a.val) + 0 LIMIT 2) j)) i
	WHERE a.id > 3800;
SQL
}

# off by default: nothing is kept
my $generation = merge_info($node, 'generation');
$node->sql("SELECT ask('items', 1, 3000)");
$node->sql('ALTER INDEX items_idx SET (learn_queries = on)');
my $found = found();

# 1,024 queries fill the reservoir, which is stored; 2,048 are enough to learn from
$node->sql("SELECT ask('items', 1, 1100)");
ok_in_time(sub { sample() >= 1000 }, 'queries are stored');
is(merge_info($node, 'generation'), $generation, 'too few to learn from');
cmp_ok(sample(), '<=', 1024, 'no more than there is room for');
$node->sql("SELECT ask('items', 1101, 3000)");
ok_in_time(sub { merge_info($node, 'generation') > $generation }, 'the worker learns');
cmp_ok(sample(), '>=', 2048, 'queries are added to the sample');
cmp_ok(found(), '>', $found, "more answers than $found are found");
index_is_complete($node, 'learned');

# queries of gpugraph_search() are those of users, of other functions they are not
$node->sql("SELECT gpugraph_forget('items_idx')");
is(sample(), 0, 'nothing is left after gpugraph_forget()');
$node->sql("SELECT ask('items', 1, 900)");
$node->sql("SELECT gpugraph_recall('items_idx', (SELECT array_agg(val) FROM asked
	WHERE id <= 400), 1)");
$node->sql("SELECT ask('items', 901, 1000)");
sleep 1;
is(sample(), 0, 'gpugraph_recall() adds no query');
$node->sql("SELECT count(*) FROM (SELECT array_agg(val) AS queries FROM asked
	WHERE id <= 600) q, gpugraph_search('items_idx', q.queries, 1)");
ok_in_time(sub { sample() >= 1000 }, 'gpugraph_search() does');
$node->sql("SELECT gpugraph_forget('items_idx')");

# the option off: what was kept is gone
$node->sql("SELECT ask('items', 1, 900)");
$node->sql('ALTER INDEX items_idx SET (learn_queries = off)');
$node->sql("SELECT ask('items', 1, 1)");
$node->sql('ALTER INDEX items_idx SET (learn_queries = on)');
$node->sql("SELECT ask('items', 1, 900)");
sleep 1;
is(sample(), 0, 'the queries before do not count any more');

# more indexes than reservoirs, by turns; one that is gone
$node->sql("CREATE TABLE t$_ AS SELECT * FROM items WHERE id <= 200;
	CREATE INDEX t${_}_idx ON t$_ USING gpugraph (val vector_l2_ops)
		WITH (graph_degree = 8, learn_queries = on);
	SELECT ask('t$_', 1, 50)") for 1 .. 10;
$node->sql('DROP TABLE t9; REINDEX INDEX CONCURRENTLY items_idx');
$node->sql("SELECT ask('t10', 1, 2000), ask('items', 1, 3000)");
ok_in_time(sub { sample() >= 1000 }, 'an index that was built anew');
ok_in_time(sub { $node->sql("SELECT sample_queries FROM gpugraph_index_info('t10_idx')") > 0 },
	'and another one');

# a standby answers, and keeps nothing
$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
is($replica->sql("SELECT ask('items', 1, 3000)"), 3000, 'a standby answers');
sleep 1;
is($replica->sql('SELECT count(*) FROM gpugraph_stat_merge'), 0, 'and asks for no worker');
finish_test($replica, $node);
