# What the tests of merges share.
package Merging;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use Gpugraph;

our @EXPORT = qw(merging_node make_source make_checks merge_info wait_for_merges stop_in_graph
	slow_index slow_rows start_held make_learn survives_generations);

# A cluster whose background worker merges. Segments and thresholds are small, so that there are
# many merges.
sub merging_node
{
	my ($name, %options) = @_;

	$options{conf} = "shared_preload_libraries = 'gpugraph'\n" . ($options{conf} || '');
	return new_node($name, %options);
}

# items (id, cat, big, val) with an index that seals early, and source, its rows to insert again.
sub make_source
{
	my ($node, $n, $dim, $with) = @_;

	$with ||= 'seal_rows = 500';
	$node->sql(<<SQL);
SELECT make_data('source', $n, $dim, 40);
CREATE TABLE items (id bigint, cat int, big int, val vector($dim));
INSERT INTO items SELECT * FROM source;
SELECT make_queries('items', 20);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH ($with);
CREATE INDEX ON items (id);
CREATE SEQUENCE numbers START 100000;
SQL
	return;
}

# Ten times: rows of source a little further on, by the test's own way to run SQL, and a merge.
sub merge_ten_times
{
	my ($query) = @_;

	for my $generation (1 .. 10)
	{
		$query->("INSERT INTO items SELECT 20000 * $generation + id, cat, big,
			(SELECT array_agg(x + 0.01 * $generation) FROM unnest(val::real[]) x)::vector(64)
			FROM source WHERE id % 7 = $generation % 7;
			SELECT gpugraph_merge('items_idx')");
	}
	return;
}

# Ten generations of merges, a compaction of half, a standby and a crash, with a test's own ways to
# run SQL, to measure recall and to see what merges have made. Returns the standby, and the recall
# after ten generations, after the compaction and of a fresh index.
sub survives_generations
{
	my ($node, $query, $recall, $see) = @_;
	my $standby = start_standby($node, 'standby');

	merge_ten_times($query);
	$see->('ten generations');
	index_is_complete($node, 'ten generations');
	my $merged = $recall->();
	$query->("DELETE FROM items WHERE id % 8 < 5; VACUUM items;
		SELECT gpugraph_merge('items_idx')");
	cmp_ok(merge_info($node, 'dead_rows'), '<', merge_info($node, 'rows') / 3, 'a compaction');
	$see->('a compaction');
	index_is_complete($node, 'a compaction');
	my $compacted = $recall->();
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	is(answers($standby), answers($node), 'a standby answers alike');
	index_is_complete($standby, 'a standby');
	$node->stop('immediate');
	$node->start;
	index_is_complete($node, 'after a crash');
	$query->('REINDEX INDEX items_idx');
	return ($standby, $merged, $compacted, $recall->());
}

# learn() has the index learn from n queries.
sub make_learn
{
	my ($node, $n) = @_;

	$node->sql(<<SQL);
SELECT make_data('asked', $n, 16, 7);
CREATE FUNCTION learn() RETURNS bigint LANGUAGE sql AS
	\$\$ SELECT gpugraph_learn('items_idx', (SELECT array_agg(val ORDER BY id) FROM asked)) \$\$;
SQL
	return;
}

# A session that rests before the flip of what it does: its holder, the session and its process.
sub start_held
{
	my ($node, $sql) = @_;
	my $holder = hold_at($node, 'merge');
	my $pid = '';
	my $session = start_psql($node, "SET gpugraph.fault = 'hold_merge'; $sql");
	wait_for(sub { $pid = $node->sql("SELECT pid FROM pg_locks
		WHERE locktype = 'advisory' AND NOT granted"); return $pid ne ''; });
	return ($holder, $session, $pid);
}

# SQL functions that compare what the index returns with what the table has, in one snapshot.
sub make_checks
{
	my ($node) = @_;

	$node->sql(<<'SQL');
-- all rows of a category, or of all
CREATE FUNCTION same(which int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
	d bigint;
	t bigint;
BEGIN
	PERFORM set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
		set_config('enable_indexscan', 'on', true);
	SELECT count(*), count(DISTINCT id) INTO n, d FROM (SELECT id FROM items
		WHERE which < 0 OR cat = which ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)) s;
	PERFORM set_config('enable_seqscan', 'on', true), set_config('enable_indexscan', 'off', true);
	SELECT count(*) INTO t FROM items WHERE which < 0 OR cat = which;
	IF n <> t OR d <> t THEN
		RAISE EXCEPTION 'category %: % rows by the index, % distinct, % in the table', which, n, d,
			t;
	END IF;
END $$;

-- half of the rows, a pause in which others merge and vacuum, the other half
CREATE FUNCTION slowly() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	c refcursor;
	one bigint;
	seen bigint[] = '{}';
	wanted bigint;
BEGIN
	PERFORM set_config('enable_seqscan', 'off', true);
	SELECT count(*) INTO wanted FROM items;
	OPEN c NO SCROLL FOR
		SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 2);
	LOOP
		FETCH c INTO one;
		EXIT WHEN NOT FOUND;
		seen = seen || one;
		IF cardinality(seen) = wanted / 2 THEN
			PERFORM pg_sleep(0.5);
		END IF;
	END LOOP;
	CLOSE c;
	IF cardinality(seen) <> wanted OR (SELECT count(DISTINCT i) FROM unnest(seen) i) <> wanted THEN
		RAISE EXCEPTION 'a cursor saw % rows of %', cardinality(seen), wanted;
	END IF;
END $$;
SQL
	return;
}

# One field of gpugraph_index_info().
sub merge_info
{
	my ($node, $field, $rel) = @_;
	$rel ||= 'items';

	return $node->sql("SELECT $field FROM gpugraph_index_info('${rel}_idx')");
}

# Until no worker has anything to do: true, or undef if that takes too long.
sub wait_for_merges
{
	my ($node) = @_;

	return wait_for(
		sub { return $node->sql(
			"SELECT count(*) FROM gpugraph_stat_merge WHERE phase <> 'failed'") == 0; });
}

# A table, empty, whose merges spend most of their time in the graph; slow_rows() is to be inserted.
sub slow_index
{
	my ($node, $rel, $database) = @_;

	$node->safe_psql($database || 'postgres', <<SQL);
CREATE TABLE $rel (id int PRIMARY KEY, cat int, val vector(64)) WITH (vacuum_truncate = off);
CREATE INDEX ${rel}_idx ON $rel USING gpugraph (val vector_l2_ops)
	WITH (seal_rows = 200, graph_degree = 64, intermediate_graph_degree = 512);
SQL
	return;
}

# The rows from .. to, as a query.
sub slow_rows
{
	my ($from, $to) = @_;

	return "SELECT i, i % 10, (SELECT array_agg(sin(i * j + i % 17))::real[]::vector(64)
		FROM generate_series(1, 64) j) FROM generate_series($from, $to) i";
}

# Stop the worker (SIGSTOP) when it builds the graph of a relation's index, while it holds no lock.
# It has one for a moment, ten times per second, when it looks whether the delta is to be sealed.
# Returns its process id; undef: it was not seen there.
sub stop_in_graph
{
	my ($node, $rel) = @_;
	my $pid;
	my $stopped = wait_for(
		sub {
			$pid = $node->sql("SELECT pid FROM gpugraph_stat_merge
				WHERE index = '${rel}_idx'::regclass AND phase = 'building graph'");
			return 0 if $pid eq '';
			kill 'STOP', $pid;
			return 1 if $node->sql("SELECT count(*) FROM pg_locks
				WHERE pid = $pid AND relation IN ('$rel'::regclass, '${rel}_idx'::regclass)") == 0;
			kill 'CONT', $pid;
			return 0;
		});

	return defined $stopped ? $pid : undef;
}

1;
