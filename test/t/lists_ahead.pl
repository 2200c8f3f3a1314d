# A LATERAL join reads its outer rows ahead, and a device is asked for the lists of many of them at
# once. The rows are those that come one by one, whatever stands around the join; a join that is
# stopped early, has side effects, or meets a device that fails, is as it was.
#
#	GG_SERVICE_ENGINE		what plays the device: cpu (default), or cuda on a GPU host
use Gpugraph;
use Residency;

my $node = service_node('ahead', conf => <<'CONF');
gpugraph.merge_workers = 0
max_parallel_workers_per_gather = 0
jit = off
CONF
# a GPU walks otherwise where it has many queries: rows may differ, in one of fifty places
our $differ = ($ENV{GG_SERVICE_ENGINE} || 'cpu') eq 'cuda' ? 0.02 : 0;
my $set = 'SET enable_seqscan = on; SET enable_sort = off; SET enable_material = off;';

make_items($node, 6000, 16);
$node->sql(<<'SQL');
CREATE TABLE asked AS SELECT id AS q, cat, val FROM items WHERE id % 15 = 0 ORDER BY id;
INSERT INTO asked SELECT -q, cat, val FROM asked WHERE q % 60 = 0;
INSERT INTO asked VALUES (-1, 0, NULL), (-2, 0, NULL);
ANALYZE asked;
SELECT gpugraph_prewarm('items_idx');
SQL
my $all = $node->sql('SELECT count(*) FROM asked');

# Queries that were asked for ahead, and requests.
sub asked_ahead
{
	my ($sql, $settings) = @_;
	my $plan = $node->sql("$set " . ($settings || '')
		. "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) $sql");

	return $plan =~ /Queries Together: (\d+)\s+Batches: (\d+)/ ? ($1, $2) : (0, 0);
}

# Rows (who, id, d) of a query are those that come without the node. least: queries asked ahead.
sub same_rows
{
	my ($what, $sql, $least, $settings) = @_;
	my ($ahead) = asked_ahead($sql, $settings);
	my %rows;

	$settings ||= '';
	for my $disabled ('read_ahead', '')
	{
		$rows{$disabled} = [ sort split /\n/, $node->sql(
			"$set $settings SET gpugraph.disable = '$disabled'; $sql") ];
	}
	my %seen = map { $_ => 1 } @{ $rows{read_ahead} };
	my $others = grep { !$seen{$_} } @{ $rows{''} };

	is(scalar @{ $rows{''} }, scalar @{ $rows{read_ahead} }, "$what: as many rows");
	cmp_ok($others, '<=', $differ * keys %seen, "$what: $others rows are other ones");
	cmp_ok($ahead, '>=', $least, "$what: $ahead queries were asked ahead");
	return;
}

sub lateral
{
	my ($inner, $outer, $join) = @_;

	return sprintf 'SELECT q, n.id FROM %s a %s LATERAL (SELECT items.id FROM items %s) n %s',
		$outer || 'asked', $join || 'CROSS JOIN', $inner, $join ? 'ON true' : '';
}
my $order = 'ORDER BY items.val <-> a.val';

# ---- the plan, and how far it reads
like($node->sql("$set EXPLAIN (VERBOSE, COSTS OFF) " . lateral("$order LIMIT 5")),
	qr/GpugraphReadAhead\)\n\s+Output: a.q, a.cat, a.val\n\s+->  Seq Scan on public.asked a\n/,
	'a node reads the outer rows');
my ($queries, $requests) = asked_ahead(lateral("$order LIMIT 5"));
cmp_ok($queries, '>=', $all - 4, "$queries of $all queries");
cmp_ok($requests, '<=', 6, "by $requests requests");

# Where there is a LIMIT above, of the join's rows, outer rows are not read far beyond it.
sub reads_few
{
	my ($what, $sql) = @_;

	for my $limit (1, 7, 40)
	{
		my $plan = $node->sql("$set EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) $sql LIMIT $limit");
		my ($read) = $plan =~ /Seq Scan on \w+ a \(actual rows=(\d+)/;

		cmp_ok($read, '<=', 5 * $limit / 5 + 5, "$what: LIMIT $limit reads $read outer rows");
	}
	return;
}
reads_few('no condition', lateral("$order LIMIT 5"));

# ---- shapes
same_rows('LIMIT 5', lateral("$order LIMIT 5"), $all - 6);
same_rows('OFFSET', lateral("$order OFFSET 3 LIMIT 4"), $all - 6);
same_rows('LIMIT 1', lateral("$order LIMIT 1"), $all - 6);
same_rows('LIMIT 100', lateral("$order LIMIT 100"), $all - 6);
same_rows('a condition of no index', lateral("WHERE id % 3 = 0 $order LIMIT 5"), 0);
same_rows('a condition on both', lateral("WHERE items.id <> abs(a.q) $order LIMIT 5"), 0);
same_rows('LEFT JOIN', lateral("$order LIMIT 5", 'asked', 'LEFT JOIN'), $all - 6);
same_rows('a subquery below', lateral("$order LIMIT 5",
	'(SELECT q, val FROM asked WHERE cat < 30 ORDER BY q DESC LIMIT 200)'), 190);
same_rows('two columns of queries', 'SELECT a.q, n.id, m.id FROM asked a CROSS JOIN LATERAL
	(SELECT id FROM items ORDER BY val <-> a.val LIMIT 2) n CROSS JOIN LATERAL
	(SELECT id FROM items ORDER BY val <-> a.val OFFSET 2 LIMIT 2) m', 1);
same_rows('a join within', 'SELECT a.q, n.id FROM asked a CROSS JOIN LATERAL
	(SELECT i.id FROM items i JOIN asked b ON b.q = i.id ORDER BY i.val <-> a.val LIMIT 3) n', 0,
	'SET enable_hashjoin = off; SET enable_mergejoin = off;');
same_rows('joins within joins', 'SELECT a.q, n.id, m.id FROM (SELECT * FROM asked LIMIT 100) a
	CROSS JOIN LATERAL (SELECT id, val FROM items ORDER BY val <-> a.val LIMIT 2) n
	CROSS JOIN LATERAL (SELECT id FROM items ORDER BY val <-> n.val LIMIT 2) m', 100);
same_rows('a subquery is begun anew', "SELECT g, n.q, n.id FROM generate_series(1, 3) g
	CROSS JOIN LATERAL (" . lateral("$order LIMIT 2", '(SELECT * FROM asked WHERE abs(q) % 4 = g)')
	. ' LIMIT 400) n', 290);
same_rows('a sum', "SELECT a.q, (SELECT count(*) FROM asked), sum(n.id) FROM asked a
	CROSS JOIN LATERAL (SELECT id FROM items $order LIMIT 3) n GROUP BY a.q", $all - 6);
same_rows('equal queries are kept', lateral("$order LIMIT 3",
	'(SELECT x.q, y.val FROM asked x JOIN asked y ON y.q = x.q / 150 * 150)'), 1);
same_rows('little memory', lateral("$order LIMIT 5"), $all - 6, "SET work_mem = '64kB';");

# ---- all rows within a distance: exact
my $wide = $node->sql("$set SELECT avg(d) FROM (SELECT val AS v FROM asked
	WHERE q > 0 AND q % 150 = 0) a, LATERAL (SELECT val <-> v AS d FROM items ORDER BY d
	OFFSET 30 LIMIT 1) n");
my $within = 'SELECT a.q, n.id FROM asked a JOIN items n ON n.val <-> a.val <';
{
	local $differ = 0;
	same_rows('within a distance', "$within $wide", $all - 6);
	same_rows('LEFT JOIN within', "SELECT a.q, n.id FROM asked a LEFT JOIN items n
		ON n.val <-> a.val <= $wide", $all - 6);
	same_rows('each within its own', "$within $wide * (1 + a.q % 4 / 10.0)", 40);
	same_rows('within, beyond a list', "$within 3 * $wide AND a.q % 100 = 0", 0);
	same_rows('within, and a condition', "$within $wide AND n.id % 3 = 1", 0);
	same_rows('nothing within', "$within 1e-9 AND n.id <> abs(a.q)", $all - 6);
}
same_rows('lists of all rows', lateral("$order LIMIT 300"), 0);
for my $order ('relaxed_order', 'off')
{
	same_rows($order, lateral('ORDER BY items.val <-> a.val LIMIT 5'), $all - 6,
		"SET gpugraph.iterative_scan = $order;");
}
same_rows('a target', lateral("$order LIMIT 5"), $all - 6, 'SET gpugraph.target_recall = 0.99;');

# ---- conditions on filter columns: the same for each outer row, and others for others
$node->sql('CREATE TABLE sorted AS SELECT * FROM items;
	CREATE INDEX sorted_idx ON sorted USING gpugraph (val vector_l2_ops, cat, id);
	INSERT INTO sorted SELECT id + 10000, cat, big, val FROM sorted WHERE id <= 2500;
	ANALYZE sorted; SELECT gpugraph_prewarm(\'sorted_idx\')');
my $filtered = sub { lateral(@_) =~ s/\bitems\b/sorted/gr };
for my $condition ('cat = 3', 'cat < 4 AND id % 2 = 0', 'id BETWEEN 300 AND 900', 'cat > 1000')
{
	same_rows($condition, $filtered->("WHERE $condition $order LIMIT 5"), $all - 6);
}
same_rows('a long list by a filter', $filtered->("WHERE cat < 20 $order LIMIT 200"), 0);
for my $condition ('sorted.cat = a.cat', 'sorted.cat < a.cat', 'sorted.cat = a.cat AND id > 900',
	'sorted.cat IN (a.cat, 7)', 'sorted.cat = ANY (ARRAY[a.cat, 9])',
	'sorted.cat >= a.cat AND sorted.id <> a.q')
{
	same_rows($condition, $filtered->("WHERE $condition $order LIMIT 5"), $all - 6);
}
same_rows('no row, and NULL', $filtered->("WHERE sorted.cat = a.cat $order LIMIT 5",
	'(SELECT q, CASE q % 7 WHEN 0 THEN NULL WHEN 1 THEN 1000 ELSE cat END AS cat, val FROM asked
		OFFSET 0)'),
	$all - 180);
same_rows('few and many rows', $filtered->("WHERE sorted.id < a.q $order LIMIT 5",
	'(SELECT CASE WHEN q % 4 = 0 THEN 30 ELSE 7000 END AS q, cat, val FROM asked
		ORDER BY asked.q)'),
	1);
same_rows('two conditions for one query', $filtered->("WHERE sorted.cat = a.cat $order LIMIT 3",
	'(SELECT q, c AS cat, val FROM asked, generate_series(0, 7) c WHERE q % 10 = 0 ORDER BY q, c)'),
	1);
# computed, it may fail for a row that is not wanted
for my $condition ('sorted.cat = a.cat + 1', 'sorted.id > a.q', 'sorted.cat IN (a.cat, a.q)',
	'sorted.cat BETWEEN a.cat AND 30')
{
	same_rows($condition, $filtered->("WHERE $condition $order LIMIT 5"), 0);
}
($queries) = asked_ahead($filtered->("WHERE sorted.cat = a.cat + 1 $order LIMIT 5"));
is($queries, 0, 'a computed condition is not evaluated ahead');
same_rows('a condition that changes now and then', 'SELECT g, n.q, n.id
	FROM generate_series(1, 3) g CROSS JOIN LATERAL ('
	. $filtered->("WHERE sorted.cat = g $order LIMIT 2",
		'(SELECT * FROM asked WHERE abs(q) % 4 = g)') . ' LIMIT 400) n', 290);

# ---- many filters, by turns
$node->sql('CREATE TABLE rented AS SELECT id, id % 400 AS tenant, val FROM items;
	CREATE INDEX rented_idx ON rented USING gpugraph (val vector_l2_ops, tenant, id);
	CREATE TABLE renters AS SELECT id AS q, id % 400 AS tenant, id % 3 AS third, val FROM items
		ORDER BY id;
	ANALYZE rented, renters; SELECT gpugraph_prewarm(\'rented_idx\')');
my $rented = sub { lateral($_[0], $_[1] || 'renters') =~ s/\bitems\b/rented/gr };
my $of_tenant = "WHERE rented.tenant = a.tenant $order LIMIT 5";
same_rows('400 tenants', $rented->($of_tenant), 5990);
# batches of hardly two rows of any tenant: it ends
same_rows('400 tenants in little memory', $rented->($of_tenant), 1000, "SET work_mem = '64kB';");
same_rows('400 tenants, one with most rows', $rented->($of_tenant,
	'(SELECT q, CASE third WHEN 0 THEN tenant ELSE 7 END AS tenant, val FROM renters OFFSET 0)'),
	5990);
same_rows('400 tenants, and sets of them', $rented->("WHERE rented.tenant IN (a.tenant, a.third)
	AND rented.id > 50 $order LIMIT 5"), 5990);
reads_few('400 tenants', $rented->($of_tenant));
# nor are there requests for a row each
my $of_row = $rented->("WHERE rented.id > a.q $order LIMIT 5");
same_rows('each row has its own filter', $of_row, 0);
($queries) = asked_ahead($of_row);
cmp_ok($queries, '<', 2000, "each row has its own filter, $queries queries");

# workers have nodes of their own
same_rows('parallel', lateral("$order LIMIT 5"), 0, 'SET max_parallel_workers_per_gather = 2;
	SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
	SET min_parallel_table_scan_size = 0;');

# ---- what is not read ahead
for my $case (
	[ 'a volatile function', lateral("$order LIMIT 2",
		'(SELECT *, random() AS r FROM asked)') =~ s/SELECT q/SELECT q, r < 2/r ],
	[ 'locks', lateral("$order LIMIT 2", '(SELECT * FROM asked FOR UPDATE)') ],
	[ 'a query that is computed', lateral('ORDER BY items.val <-> (a.val + a.val) LIMIT 2') ],
	[ 'one row', lateral("$order LIMIT 2", '(SELECT * FROM asked LIMIT 1)') ])
{
	my ($what, $sql) = @$case;

	unlike($node->sql("$set EXPLAIN $sql"), qr/ReadAhead/, "$what: no node");
}
is((asked_ahead(lateral("$order LIMIT 5"), 'SET gpugraph.engine = cpu;'))[0], 0, 'no device: none');

# ---- rows that are locked and changed behind the join
is($node->sql("$set UPDATE asked SET cat = n.id FROM ("
	. lateral("$order LIMIT 1") . ') n WHERE asked.q = n.q;
	SELECT count(*) FROM asked WHERE cat = abs(q) AND val IS NOT NULL'),
	$all - 2, 'UPDATE by the join');
is($node->sql("$set SELECT count(*) FROM (SELECT a.q, n.id FROM asked a
	CROSS JOIN LATERAL (SELECT id FROM items $order LIMIT 1) n FOR UPDATE OF a) s"), $all,
	'rows that are locked');

# ---- a query of other dimensions fails when its turn comes, and not before
$node->sql('CREATE TABLE mixed (q int, val vector);
	INSERT INTO mixed SELECT q, val FROM asked WHERE q > 0 ORDER BY q LIMIT 100;
	INSERT INTO mixed VALUES (100000, \'[1,2]\'); ANALYZE mixed');
my ($rc, $out, $err) = $node->psql('postgres', "$set SET cursor_tuple_fraction = 1; BEGIN;
	DECLARE c CURSOR FOR " . lateral("$order LIMIT 1", 'mixed') . ";
	MOVE 99 FROM c; FETCH 1 FROM c; FETCH 1 FROM c");
is($out =~ tr/\n//, 0, 'one row comes');
like($err, qr/different vector dimensions 16 and 2/, 'then the error');

# ---- a cursor: rows that come and go, a merge, and another version on the device
my $cursor = $node->background_psql('postgres', on_error_stop => 1);
$cursor->query_safe("$set BEGIN; DECLARE c CURSOR FOR " . lateral("$order LIMIT 1"));
my $seen = $cursor->query_safe('FETCH 60 FROM c');
$node->sql("INSERT INTO items SELECT id + 10000, cat, big, val FROM items
	WHERE id % 2 = 0; DELETE FROM items WHERE id % 15 = 0; SELECT gpugraph_merge('items_idx');
	SELECT gpugraph_prewarm('items_idx')");
$seen .= "\n" . $cursor->query_safe('FETCH ALL FROM c');
$cursor->query_safe('COMMIT');
$cursor->quit;
is(scalar(grep { my ($q, $id) = /^(-?\d+)\|(\d+)$/; abs($q) > 2 && abs($q) == $id }
	split /\n/, $seen), $all - 2, 'a cursor finds the rows of its snapshot');
same_rows('after a merge', lateral("$order LIMIT 5"), $all - 6);
$node->sql('INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id <= 3000');
same_rows('with a delta', lateral("$order LIMIT 5"), 1);

# ---- a device that fails or hangs up
for my $fault ('launch', 'exit')
{
	my $settings = "SET gpugraph.fault = $fault; SET client_min_messages = error;";

	same_rows("fault $fault", lateral("$order LIMIT 5", '(SELECT * FROM asked LIMIT 60)'), 0,
		$settings);
	same_rows("fault $fault, tenants", $rented->($of_tenant, '(SELECT * FROM renters LIMIT 60)'), 0,
		$settings);
	wait_for(sub { of_device($node, 'state') eq 'up' });
	wait_for_state($node, 'ready');
}

# ---- other indexes
for my $case (
	[ 'cosine', 'vector(16)', 'vector_cosine_ops', '<=>', '' ],
	[ 'inner product', 'vector(16)', 'vector_ip_ops', '<#>', '' ],
	[ 'halfvec', 'halfvec(16)', 'halfvec_l2_ops', '<->', '' ],
	[ 'codes alone', 'vector(16)', 'vector_l2_ops', '<->', "storage = 'int8'" ],
	[ 'float16', 'vector(16)', 'vector_l2_ops', '<->', "storage = 'float16'" ],
	[ 'codes', 'vector(16)', 'vector_l2_ops', '<->', "storage = 'float32+int8'" ],
	[ 'segments', 'vector(16)', 'vector_l2_ops', '<->', 'segment_rows = 5000' ])
{
	my ($what, $type, $opclass, $op, $options) = @$case;
	my $with = $options ? "WITH ($options)" : '';

	$node->sql("DROP TABLE IF EXISTS others, others_asked;
		CREATE TABLE others AS SELECT id, val::$type AS val FROM items;
		CREATE TABLE others_asked AS SELECT q, val::$type AS val FROM asked;
		ANALYZE others_asked;
		CREATE INDEX others_idx ON others USING gpugraph (val $opclass) $with;
		ANALYZE others; SELECT gpugraph_prewarm('others_idx')");
	same_rows($what, "SELECT q, n.id FROM others_asked a CROSS JOIN LATERAL
		(SELECT id FROM others ORDER BY val $op a.val LIMIT 5) n", $all - 6);
}

# ---- policies: the rows of who asks
$node->sql('CREATE ROLE joe; GRANT SELECT ON items, asked TO joe;
	ALTER TABLE items ENABLE ROW LEVEL SECURITY;
	CREATE POLICY odd ON items USING (id % 2 = 1)');
same_rows('policies', lateral("$order LIMIT 5"), 0, 'SET ROLE joe;');
is($node->sql("$set SET ROLE joe; SELECT count(*) FROM ("
	. lateral("$order LIMIT 5") . ') s WHERE id % 2 = 0'), 0, 'none that is hidden');

finish_test($node);
