# Random statements beside the plan without an index, while segments of an index lie on four
# devices, of which workers end, hang and come back, and while merges, deletes, evictions and
# cancelled queries go on. GG_SOAK_SECONDS makes it longer.
use strict;
use warnings;

use Test::More;
use Time::HiRes qw(usleep);

use Gpugraph;
use Residency;

my $seconds = $ENV{GG_SOAK_SECONDS} || 12;
my $node = service_node('soak', conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.devices = '0,1,2,3'
gpugraph.device_memory = 3MB
gpugraph.device_timeout = 1s
gpugraph.itopk_size = 64
max_parallel_workers_per_gather = 0
CONF
make_segments($node);
unserved {
	$node->safe_psql('postgres', <<'SQL');
CREATE INDEX few_idx ON few USING gpugraph (val vector_l2_ops);

-- The nearest rows of a category by the index and by the table, in one snapshot.
CREATE FUNCTION compare(category int, n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	statement text := format('SELECT array_agg(id), array_agg(d) FROM (SELECT id,
		val <-> (SELECT val FROM queries WHERE q = %s) AS d
		FROM items WHERE cat = %s ORDER BY 2 LIMIT %s) s', 1 + category % 20, category, n);
	a int[];
	b int[];
	x float8[];
	y float8[];
BEGIN
	PERFORM use_index(true);
	EXECUTE statement INTO a, x;
	PERFORM use_index(false);
	EXECUTE statement INTO b, y;
	IF cardinality(a) IS DISTINCT FROM cardinality(b) OR
		(SELECT count(DISTINCT i) FROM unnest(a) i) <> coalesce(cardinality(a), 0) OR
		(SELECT bool_or(abs(p - q) > 1e-5 * q) FROM unnest(x, y) u(p, q)) THEN
		RAISE EXCEPTION '% rows of category % by the index, % by the table', cardinality(a),
			category, cardinality(b);
	END IF;
END $$;
SQL
};

my $load = start_pgbench($node, "-c 6 -T $seconds",
	'compare@6' => <<'COMPARE', 'many@1' => <<'MANY', 'insert@2' => <<'INSERT');
\set c random(0, 39)
\set n random(1, 400)
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT compare(:c, :n);
COMMIT;
COMPARE
SELECT count(*) FROM gpugraph_search('items_idx', (SELECT array_agg(val) FROM queries), 10);
MANY
\set i random(100000, 100000000)
\set s random(1, 20000)
INSERT INTO items SELECT :i, cat, big, val FROM items WHERE id = :s;
INSERT

sub sql { return $node->psql('postgres', join ';', @_) }
sub nearest { return "SET enable_seqscan = off; SELECT count(*) FROM (SELECT id FROM $_[0]
	ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 5) s" }

my @disturb = (
	sub {
		my ($rc, $pid) = sql('SELECT pid FROM gpugraph_stat_device
			WHERE pid IS NOT NULL ORDER BY random() LIMIT 1');
		kill 'TERM', $pid if $pid;
	},
	sub { sql("SELECT gpugraph_merge('items_idx')"); },
	sub { sql('SET statement_timeout = ' . (1 + int rand 30), 'SELECT compare(3, 300)'); },
	sub { sql('SET gpugraph.fault = ' . (qw(exit hang device launch))[rand 4], nearest('items')); },
	sub { sql('DELETE FROM items WHERE id % 97 = ' . int rand 97); sql('VACUUM items'); },
	sub { sql("SELECT gpugraph_evict('items_idx')"); },
	sub { sql(nearest('few')); });
my $end = time + $seconds;
for (my $i = 0; time < $end; $i++)
{
	$disturb[$i < @disturb ? $i : rand @disturb]->();
	usleep(300_000);
}
is(finish_psql($load), '', 'no statement fails, and all agree');
index_is_complete($node, 'in the end');
is(log_lines($node, qr/(PANIC|TRAP|terminated by signal)/), 0, 'nothing bad is in the log');
$node->stop;
done_testing();
