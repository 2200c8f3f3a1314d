# Random statements over a partitioned table have the same rows as without its indexes. Rows and
# partitions come and go between them, and other sessions write meanwhile. Indexes are so small that
# walks find the nearest of all rows.
#
#	GG_SEED			what to draw from, default 42
#	GG_STATEMENTS	how many, default 400
use Gpugraph;
use Residency;

my $seed = $ENV{GG_SEED} // 42;
my $nstatements = $ENV{GG_STATEMENTS} // 400;
srand $seed;
note "seed $seed";

my $node = service_node('attack', conf => <<'CONF');
gpugraph.itopk_size = 10
max_locks_per_transaction = 500
CONF
# 0 to 5 by cat, of which 0 has partitions of its own; 4 has its columns in another order
$node->sql(<<'SQL');
SELECT make_data('items', 2800, 8, 30);
SELECT make_queries('items', 10);
CREATE TABLE parts (LIKE items) PARTITION BY LIST (cat);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES IN (0) PARTITION BY RANGE (id);
CREATE TABLE parts_0_low PARTITION OF parts_0 FOR VALUES FROM (MINVALUE) TO (1400);
CREATE TABLE parts_0_high PARTITION OF parts_0 FOR VALUES FROM (1400) TO (MAXVALUE);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
CREATE TABLE parts_3 PARTITION OF parts FOR VALUES IN (3, 6);
CREATE TABLE parts_4 (gone text, val vector(8), big int, cat int, id int NOT NULL);
ALTER TABLE parts_4 DROP gone;
ALTER TABLE parts ATTACH PARTITION parts_4 FOR VALUES IN (4);
CREATE TABLE parts_5 PARTITION OF parts FOR VALUES IN (5);
INSERT INTO parts SELECT id, id % 7, big, val FROM items;
-- ties
INSERT INTO parts SELECT 4000 + n, n % 7, n, val FROM queries, generate_series(1, 20) n WHERE q = 7;
CREATE INDEX parts_idx ON parts USING gpugraph (val vector_l2_ops)
	WITH (graph_degree = 96, intermediate_graph_degree = 128);
CREATE INDEX ON parts (id);
ANALYZE parts;
SELECT gpugraph_prewarm(indexrelid) FROM pg_index
	WHERE indexrelid::regclass::text ~ '^parts_[0-9].*val_idx$' AND indrelid <> 'parts_0'::regclass;

CREATE ROLE reader;
GRANT SELECT, UPDATE ON parts, queries TO reader;
ALTER TABLE parts ENABLE ROW LEVEL SECURITY;
CREATE POLICY thirds ON parts TO reader USING (big % 3 <> 0);

-- A statement's rows start with the distance, in LATERAL joins with the outer row's number before
-- it.
CREATE FUNCTION rows_of(sql text, indexed boolean) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
	r record;
	found text[] := '{}';
BEGIN
	PERFORM set_config(name, (indexed = (name = 'enable_indexscan'))::text, true)
		FROM unnest('{enable_indexscan,enable_seqscan,enable_sort}'::text[]) name;
	FOR r IN EXECUTE sql LOOP
		found := found || r::text;
	END LOOP;
	RETURN found;
EXCEPTION WHEN OTHERS THEN
	RETURN ARRAY[SQLERRM];
END $$;
-- Rows at equal distance may come in any order. A LIMIT may take others of the first ones' and the
-- last ones' equals.
CREATE FUNCTION in_order(found text[], cut boolean) RETURNS text[] LANGUAGE sql AS $$
	WITH r AS (SELECT n, r, substring(r from '^\((?:\d+;)?[^,)]*') AS key,
		substring(r from '^\(\d+;') AS o
		FROM unnest(found) WITH ORDINALITY u (r, n)),
	places AS (SELECT *, min(n) OVER w AS first,
		key IN (first_value(key) OVER o, last_value(key) OVER o) AS uncertain
		FROM r WINDOW w AS (PARTITION BY key),
		o AS (PARTITION BY o ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING))
	SELECT coalesce(array_agg(CASE WHEN cut AND uncertain THEN key ELSE r END ORDER BY first,
		CASE WHEN cut AND uncertain THEN key ELSE r END), '{}') FROM places $$;
CREATE FUNCTION attack(sql text, plain text, cut boolean) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	found text[] := in_order(rows_of(sql, true), cut);
	expected text[] := in_order(rows_of(coalesce(plain, sql), false), cut);
BEGIN
	IF found IS DISTINCT FROM expected THEN
		RETURN NEXT format(E'%s\n\t%s rows, expected %s; not expected: %s; not found: %s', sql,
			cardinality(found), cardinality(expected),
			array(SELECT unnest(found) EXCEPT SELECT unnest(expected) LIMIT 5),
			array(SELECT unnest(expected) EXCEPT SELECT unnest(found) LIMIT 5));
	END IF;
END $$;
CREATE FUNCTION is_searched(sql text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_sort = off;
	FOR line IN EXECUTE 'EXPLAIN ' || sql LOOP
		IF line ~ 'GpugraphPartitions' THEN
			RETURN true;
		END IF;
	END LOOP;
	RETURN false;
END $$;
SQL

# ---- statements

sub one_of
{
	return $_[ rand @_ ];
}

sub number
{
	my ($most) = @_;
	return int rand $most;
}

my @prepared;

# A statement as a hash: sql, plain (where that is another one), cut.
sub statement
{
	my ($outer) = @_;
	my $query = $outer ? 'queries.val' :
		'(SELECT val FROM queries WHERE q = ' . (1 + number(10)) . ')';
	$query = "'[" . join(',', map { sprintf '%.3f', rand(2) - 1 } 1 .. 8) . "]'"
		if !$outer && rand() < 0.4;
	my $distance = one_of("p.val <-> $query", "p.val <-> $query", "$query <-> p.val");
	my $key = $outer ? "queries.q || ';' || round(($distance)::numeric, 5)"
		: "round(($distance)::numeric, 5)";
	my @conditions = grep { rand() < 0.2 } (
		'p.cat = ' . number(8),
		'p.cat IN (' . join(', ', map { number(7) } 1 .. 3) . ')',
		'p.cat = (SELECT ' . number(7) . ')',
		'p.id < ' . number(3200),
		'p.big % 3 = 1',
		'p.val IS NOT NULL',
		"p.tableoid <> 'parts_2'::regclass",
		($outer ? ('p.cat = queries.q', 'p.id > queries.q * 250') : ()));
	my $columns = one_of('p.id', 'p.id, p.tableoid::regclass', 'p.big, p.id', 'p.*', 'p', '1',
		'p.ctid');
	my $limit = $outer ? one_of(1, 4, 20) : one_of(1, 1, 3, 10, 10, 10, 10, 50, 50, 50, 300, 5000);
	my $ties = rand() < 0.15;
	my $end = $ties ? "FETCH FIRST $limit ROWS WITH TIES" :
		$outer || rand() < 0.97 ? "LIMIT $limit" : '';
	my $cut = $end ne '' && !$ties;

	if (rand() < 0.2)
	{
		$end .= ' OFFSET ' . number(20);
		$cut = 1;
	}
	$end .= one_of('', '', '', ' FOR UPDATE OF p', ' FOR SHARE', ' FOR UPDATE OF p SKIP LOCKED')
		if !$outer && !$ties;
	return { cut => $cut, sql => "SELECT $key, $columns FROM parts p"
		. (@conditions ? ' WHERE ' . join(' AND ', @conditions) : '')
		. " ORDER BY $distance $end" };
}

sub lateral
{
	my $inner = statement(1);
	$inner->{sql} = "SELECT n.*
		FROM (SELECT * FROM queries WHERE q <= 4 ORDER BY q OFFSET 0) queries,
		LATERAL ($inner->{sql}) n";
	return $inner;
}

# A prepared statement lives on: its plan is generic, and the tables are others meanwhile.
sub prepared
{
	if (@prepared < 12)
	{
		my $new = statement();
		my $n = @prepared;
		my $condition = one_of('', 'WHERE cat = $2 AND $3 > 0', 'WHERE id < $3 AND $2 >= 0',
			'WHERE cat IN ($2, $2 + 1, $3 % 7)');
		my $limit = one_of('LIMIT 10', 'LIMIT 30', 'LIMIT $2 + 1', 'LIMIT 5 OFFSET $2',
			'LIMIT 20 FOR UPDATE');
		my $sql = "SELECT round((val <-> \$1)::numeric, 5), id, tableoid::regclass
			FROM parts $condition ORDER BY val <-> \$1 $limit";
		push @prepared, $sql;
		return { ddl => "PREPARE p$n (vector, int, int) AS $sql;" };
	}
	my $n = number(scalar @prepared);
	my @values = ("'[" . join(',', map { sprintf '%.3f', rand(2) - 1 } 1 .. 8) . "]'::vector",
		number(8), number(3200));
	return { cut => $prepared[$n] =~ /LIMIT/, sql => "EXECUTE p$n (" . join(', ', @values) . ')',
		plain => $prepared[$n] =~ s/\$(\d)/$values[ $1 - 1 ]/gr };
}

# What changes rows, partitions or indexes. Returns SQL.
sub change
{
	my $id = number(2800);
	my $part = one_of(1, 2, 3, 5);
	my $values = $part == 3 ? '3, 6' : $part;

	return one_of(
		"DELETE FROM parts WHERE id BETWEEN $id AND $id + 60;",
		"UPDATE parts SET big = big + 1 WHERE id BETWEEN $id AND $id + 100;",
		"UPDATE parts SET cat = (cat + 1) % 7 WHERE id BETWEEN $id AND $id + 30;",
		"INSERT INTO parts SELECT id + 10000, cat % 7, big, l2_normalize(val) FROM items
			WHERE id BETWEEN $id AND $id + 100;",
		"BEGIN; DELETE FROM parts WHERE id < $id; ROLLBACK;",
		"TRUNCATE parts_$part; INSERT INTO parts SELECT id, $part, big, val FROM items
			WHERE id % 7 = $part;",
		"ALTER TABLE parts DETACH PARTITION parts_$part; UPDATE parts_$part SET big = big + 1;
			ALTER TABLE parts ATTACH PARTITION parts_$part FOR VALUES IN ($values);",
		"DROP TABLE parts_$part;
			CREATE TABLE parts_$part PARTITION OF parts FOR VALUES IN ($values);
			INSERT INTO parts SELECT id, $part, big, val FROM items WHERE id % 7 = $part;",
		"ALTER TABLE parts ADD COLUMN more int DEFAULT $id; ALTER TABLE parts DROP COLUMN more;",
		"REINDEX TABLE parts_$part;", "VACUUM parts;",
		"SELECT FROM gpugraph_merge('parts_${part}_val_idx');",
		"SELECT FROM gpugraph_evict('parts_${part}_val_idx');",
		"DROP INDEX parts_idx; CREATE INDEX parts_idx ON parts USING gpugraph (val vector_l2_ops)
			WITH (graph_degree = 96, intermediate_graph_degree = 128);",
		'DISCARD PLANS;', 'SET plan_cache_mode = force_generic_plan;', 'RESET plan_cache_mode;',
		'SET gpugraph.engine = cpu;', 'RESET gpugraph.engine;',
		'SET cursor_tuple_fraction = 1;', 'SET ROLE reader;', 'RESET ROLE;');
}

my $script = "SET max_parallel_workers_per_gather = 0;\n";
my @seen;
for (1 .. $nstatements)
{
	if (rand() < 0.25)
	{
		my $change = change();
		# the owner alone may
		$script .= "RESET ROLE;\n" if $change !~ /^(SET|RESET)/;
		$script .= "$change\n";
		next;
	}
	my $draw = rand();
	my $statement = $draw < 0.2 ? lateral() : $draw < 0.4 ? prepared() : statement();
	if ($statement->{ddl})
	{
		$script .= "$statement->{ddl}\n";
		next;
	}
	my $plain = $statement->{plain} // $statement->{sql};
	push @seen, $plain if $plain !~ /\bLATERAL\b/;
	$script .= sprintf "SELECT attack(\$s\$%s\$s\$, \$s\$%s\$s\$, %s);\n",
		$statement->{sql}, $plain, $statement->{cut} ? 'true' : 'false';
}
my ($rc, $out, $err) = $node->psql('postgres', $script, on_error_stop => 0);
$err = join "\n", grep { !/^(NOTICE|DETAIL)/ } split /\n/, $err;
is($out, '', "$nstatements statements: as without the indexes");
is($err, '', 'none fails');
cmp_ok(of_device($node, 'queries'), '>', 20, 'a device has answered');
my $searched = $node->sql(join ' ', map { "SELECT is_searched(\$s\$$_\$s\$);" } @seen);
cmp_ok($searched =~ tr/t//, '>', @seen / 2, 'most are searched by the indexes of the partitions');

# ---- other sessions write meanwhile

$node->sql(<<'SQL');
CREATE FUNCTION look(k int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	difference text;
BEGIN
	SELECT * INTO difference FROM attack(format('SELECT round((val <-> q)::numeric, 5), parts FROM
		parts, LATERAL (SELECT val AS q FROM queries WHERE q = %s OFFSET 0) s
		ORDER BY val <-> q LIMIT %s', k % 10 + 1, k), NULL, true);
	IF FOUND THEN
		RAISE EXCEPTION '%', difference;
	END IF;
END $$;
-- What is locked is what there is.
CREATE FUNCTION lock_rows(k int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	locked parts[] := ARRAY(SELECT p FROM parts p WHERE big % 3 = 1
		ORDER BY val <-> (SELECT val FROM queries WHERE q = k % 10 + 1) LIMIT 5 FOR UPDATE);
BEGIN
	IF EXISTS (SELECT FROM unnest(locked) l WHERE big % 3 <> 1
		OR NOT EXISTS (SELECT FROM parts p WHERE p.id = l.id AND p = l)) THEN
		RAISE EXCEPTION 'locked %', locked;
	END IF;
END $$;
SQL
my $near = "(SELECT id FROM parts ORDER BY val <-> (SELECT val FROM queries WHERE q = :q) LIMIT 7)";
my $load = start_pgbench($node, '--client=5 --time=6 --protocol=prepared --max-tries=100',
	'look@3' => "\\set k random(1, 40)\nBEGIN ISOLATION LEVEL REPEATABLE READ;
		SELECT look(:k);\nEND;\n",
	'lock@3' => "\\set k random(1, 40)\nSELECT lock_rows(:k);\n",
	'write@2' => "\\set q random(1, 10)\nUPDATE parts SET big = big + 1 WHERE id IN $near;\n",
	'move@1' => "\\set q random(1, 10)\nUPDATE parts SET cat = (cat + 1) % 7 WHERE id IN $near;\n",
	'delete@1' => "\\set q random(1, 10)\nDELETE FROM parts WHERE id IN $near;\n",
	'reindex@1' => "REINDEX TABLE parts_1;\n",
	'insert@3' => "\\set q random(1, 10)\nINSERT INTO parts SELECT random() * 1e6, q % 7, q, val
		FROM queries WHERE q = :q;\n");
is(failed_statements($load), '', 'under load none fails, and no answer is wrong');
like($load->{out}, qr/number of failed transactions: 0 /, 'none of them was given up');

done_testing();
