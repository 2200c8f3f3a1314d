# A device that has no room for full rows holds codes, and rows in half precision beside them. Rows
# that rounding brings near each other still come in the order of their own values: from walks, with
# filters, in scans of all rows, and in many queries at once.
use Gpugraph;
use Residency;

my $node = service_node('halves', conf => <<'CONF');
gpugraph.device_storage = auto
gpugraph.host_memory = 0
max_parallel_workers_per_gather = 0
CONF
my $fast = 'SET enable_seqscan = off; SET enable_sort = off; SET gpugraph.engine = cuda;';
my $exact = 'SET enable_indexscan = off; SET enable_bitmapscan = off;';

# Load the index anew where there is room for three quarters of full rows.
sub load_less
{
	my ($index, $bytes) = @_;
	return load_within($node, $index, $bytes * 0.75 / 1048576 + 0.5);
}

# Distances of the first $limit rows where $filter, for all queries: as the plan without the index
# has them. Rows at the same distance may come in any order.
sub in_order
{
	my ($what, $op, $limit, @filters) = @_;

	for my $filter (@filters)
	{
		my $sql = "SELECT (SELECT string_agg(d::text, ' ') FROM (SELECT val $op queries.val AS d
			FROM items WHERE $filter ORDER BY val $op queries.val LIMIT $limit) s)
			FROM queries ORDER BY q";
		my ($gpu, $cpu) = answered_by($node);
		my $answer = $node->sql("$fast $sql");
		my ($gpu_after, $cpu_after) = answered_by($node);
		my @x = split /\s/, $answer;
		my @y = split /\s/, $node->sql("$exact $sql");
		my $differ = grep { abs($x[$_] - $y[$_]) > 1e-6 * abs($y[$_]) + 2e-7 } 0 .. $#y;

		is(scalar(@x) . " $differ " . ($cpu_after - $cpu), scalar(@y) . ' 0 0',
			"$what: $limit rows where $filter, all by the device");
	}
	return;
}

# The same by angles, from which 1 - cos takes the leading digits: there one rounding is as much as
# the rows of a group differ, and the engines add in another order than pgvector does. So distances
# are computed exactly here. In the order of float32 distances, each off by (64 + 32) 2^-24 at most
# (src/engine/rules/codes.h), the row in a place is off by twice that.  Queries are far from all
# rows, where halves are off by more; walks may miss such a query's rows, so there are filters.
sub in_order_by_angles
{
	my ($what, $limit, @filters) = @_;
	my $off = 2 * (64 + 32) * 2**-24;

	for my $filter (@filters)
	{
		my ($truth, $halves, $found) = map {
			my ($settings, $order, $more) = @$_;

			[ split /\s/, $node->sql("$settings SELECT (
				SELECT string_agg(d::text, ' ') FROM (SELECT angle(val, far.val) AS d FROM (
					SELECT val FROM items WHERE $filter ORDER BY $order LIMIT $limit
				$more) s) FROM far ORDER BY q") ]
		} [ $exact, 'val <=> far.val', "+ 60) s ORDER BY d LIMIT $limit" ],
			[ $exact, 'val::halfvec::vector <=> far.val', ') s' ],
			[ $fast, 'val <=> far.val', ') s' ];
		my $differ = grep { abs($found->[$_] - $truth->[$_]) > $off } 0 .. $#$truth;
		my $halves_differ = grep { abs($halves->[$_] - $truth->[$_]) > $off } 0 .. $#$truth;

		is(@$found . " $differ", @$truth . ' 0', "$what: $limit rows where $filter, by angles");
		cmp_ok($halves_differ, '>', 0, "halves alone have $halves_differ in other places");
	}
	return;
}

# Random conditions on a filter column and on a column with an index of its own: of few rows and of
# many, near each other and far apart. All rows that match are measured.
sub filters
{
	srand(38);
	return map {
		my ($first, $many) = (int(rand(9000)), 20 + int(rand(2000)));

		('cat < ' . int(rand(97)), 'cat = ' . int(rand(97)),
			"id BETWEEN $first AND " . ($first + $many))
	} 1 .. 3;
}

# ---- groups of rows that halves hardly tell apart
# 150 of 60 rows; within a group they differ by 1e-4 where elements are some 0.5
$node->sql(<<'SQL');
CREATE TABLE items (id int, cat int, val vector(64));
SELECT setseed(0.38);
CREATE TABLE middles AS SELECT g, array_agg(random() - 0.5 ORDER BY i) AS m
	FROM generate_series(1, 150) g, generate_series(1, 64) i GROUP BY g;
INSERT INTO items SELECT (g - 1) * 60 + r, (g * 60 + r) * 31 % 97,
	array_agg(m[i] + random() * 1e-4 ORDER BY i)
	FROM middles, generate_series(1, 60) r, generate_series(1, 64) i GROUP BY g, r ORDER BY 1;
CREATE TABLE queries AS SELECT g AS q, array_agg(m[i] + random() * 0.01 ORDER BY i)::vector AS val
	FROM middles, generate_series(1, 64) i WHERE g <= 20 GROUP BY g;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat) WITH (seal_rows = 0);
CREATE INDEX items_id ON items (id);
ANALYZE items;
SELECT gpugraph_prewarm('items_idx');
SQL
my $full = of_index($node, 'bytes');
is(form_of($node), 'ready 0 0 0 0 device', 'full rows');
is(load_less('items_idx', $full), 'ready 1 1 0 0 device', 'codes and halves');
cmp_ok(of_index($node, 'bytes'), '<', 0.85 * $full, 'less memory than full rows take');
in_order('groups', '<->', 10, 'true');
in_order('groups', '<->', 60, 'true', filters());
in_order('groups', '<->', 9000, 'cat < 70');
# Rows that walks find late, some groups at most, come after all others.
is($node->sql(<<"SQL"), '9000 true', 'groups: a scan of all rows');
$fast
SELECT count(*) || ' ' || bool_and(d >= before * (1 - 1e-6) OR n > 9000 - 5 * 60) FROM (
	SELECT n, d, lag(d, 1, d) OVER (ORDER BY n) AS before FROM (
		SELECT row_number() OVER () AS n, d FROM (
			SELECT val <-> (SELECT val FROM queries WHERE q = 1) AS d FROM items
			ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)) s) r) t
SQL
my $many = 'SELECT q, round(avg(distance)::numeric, 7) FROM (%s) s GROUP BY q ORDER BY q';
is($node->sql($fast . sprintf($many, "SELECT query AS q, distance
		FROM gpugraph_search('items_idx', (SELECT array_agg(val ORDER BY q) FROM queries), 10)")),
	$node->sql($exact . sprintf($many, 'SELECT q, s.distance FROM queries,
		LATERAL (SELECT val <-> queries.val AS distance FROM items
		ORDER BY val <-> queries.val LIMIT 10) s')), 'groups: many queries in one call');

# ---- rows that come and go
$node->sql(<<'SQL');
INSERT INTO items SELECT id + 20000, cat, val + array_fill(2e-5, ARRAY[64])::vector FROM items
	WHERE id % 90 = 0;
DELETE FROM items WHERE id % 70 = 0;
SQL
in_order('delta', '<->', 20, 'true', 'cat < 20');
$node->sql("SELECT gpugraph_merge('items_idx')");
is(load_less('items_idx', $full), 'ready 1 1 0 0 device', 'a merged segment has halves, too');
in_order('after a merge', '<->', 20, 'true', 'cat < 20');

# ---- other metrics
$node->sql('DROP INDEX items_idx;
	CREATE INDEX items_idx ON items USING gpugraph (val vector_cosine_ops, cat)
		WITH (seal_rows = 0)');
is(load_less('items_idx', $full), 'ready 1 1 0 0 device', 'cosine');
$node->sql(<<'SQL');
CREATE FUNCTION angle(a vector, b vector) RETURNS float8 LANGUAGE sql AS $$
	SELECT 1 - sum(x * y) / sqrt(sum(x * x)) / sqrt(sum(y * y))
	FROM unnest(a::real[]::float8[], b::real[]::float8[]) s(x, y)
$$;
CREATE TABLE far AS SELECT q, array_agg(random() - 0.5 ORDER BY i)::vector AS val
	FROM generate_series(1, 20) q, generate_series(1, 64) i GROUP BY q;
SQL
my ($gpu, $cpu) = answered_by($node);
in_order_by_angles('cosine', 20, 'cat < 20', 'cat BETWEEN 40 AND 55');
is(join(' ', answered_by($node)), $gpu + 40 . " $cpu", 'cosine: all by the device');
$node->sql('DROP INDEX items_idx;
	CREATE INDEX items_idx ON items USING gpugraph (val vector_l1_ops)
		WITH (seal_rows = 0, graph_degree = 24)');
is(load_less('items_idx', $full), 'ready 1 1 0 0 device', 'L1');
in_order('L1', '<+>', 20, 'id > 8000', 'id BETWEEN 100 AND 400');
$node->sql('DROP INDEX items_idx;
	CREATE INDEX items_idx ON items USING gpugraph (val vector_ip_ops) WITH (seal_rows = 0)');
is(load_less('items_idx', $full), 'ready 1 0 1 0 device',
	'inner product: halves have no bound, codes alone');

# ---- rows that do not bear half precision
for my $case ([ 'too large', 'val * $1', '1e6' ], [ 'too small', 'val * $1', '1e-7' ],
	[ 'far from the origin', 'val + $1', '200' ])
{
	my ($what, $expression, $by) = @$case;

	$expression =~ s/\$1/array_fill($by, ARRAY[64])::vector/;
	$node->sql("DROP TABLE IF EXISTS unfit;
		CREATE TABLE unfit AS SELECT id, $expression AS val FROM items;
		CREATE INDEX unfit_idx ON unfit USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0)");
	is(load_less('unfit_idx', $full), 'ready 1 0 1 0 device', "$what: codes alone");
}
finish_test($node);
