# More indexes than the table of residents has entries: as many as fit stay on the device, and an
# index that was just loaded is not pushed out by one that finds no place.
use Gpugraph;
use Residency;
use Time::HiRes qw(time);

my $entries = 32;
my $more = 2;
my $n = $entries + $more;
# always the CPU engine, whose sizes, ties and number of devices are the same everywhere
my $node = service_node('many', conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.itopk_size = 8
gpugraph.max_residents = 32
CONF

unserved {
	$node->sql(<<"SQL");
SELECT make_data('items', 400, 4, 10);
DO \$\$ BEGIN
	FOR i IN 1 .. $n LOOP
		EXECUTE format('CREATE TABLE t%s AS SELECT id, val FROM items', i);
		EXECUTE format('CREATE INDEX t%s_idx ON t%s USING gpugraph (val vector_l2_ops)', i, i);
	END LOOP;
END \$\$;
-- each index asked once, by any number of rounds
CREATE FUNCTION ask(rounds int) RETURNS void LANGUAGE plpgsql AS \$\$
DECLARE
	found int;
BEGIN
	PERFORM set_config('enable_seqscan', 'off', true);
	FOR r IN 1 .. rounds LOOP
		FOR i IN 1 .. $n LOOP
			EXECUTE format('SELECT id FROM t%s
				ORDER BY val <-> (SELECT val FROM items WHERE id = %s) LIMIT 1', i, i) INTO found;
			IF found <> i THEN
				RAISE EXCEPTION 'row % of t%: %', i, i, found;
			END IF;
		END LOOP;
	END LOOP;
END \$\$;
SQL
};

# ---- a first round takes all entries there are
$node->sql(join ';', map { "SELECT gpugraph_prewarm('t${_}_idx')" } 1 .. $entries);
is(of_device($node, "resident_indexes || ' ' || evictions"), "$entries 0", 'every entry is taken');

# ---- queries of all indexes in turn: those that are there stay, and answer
my $before = $node->sql('SELECT sum(queries_gpu) FROM gpugraph_stat_index');
$node->sql('SELECT ask(50)');
my $evictions = of_device($node, 'evictions');
my $share = ($node->sql('SELECT sum(queries_gpu) FROM gpugraph_stat_index') - $before) / (50 * $n);
note("$evictions evictions, the device answered $share");
cmp_ok($share, '>', 0.8, 'the device answers nearly all of them');

# ---- who prewarms may
$node->sql("SELECT gpugraph_prewarm('t${n}_idx')");
is(state_of($node, "t${n}_idx"), 'ready', 'gpugraph_prewarm() finds a place');
cmp_ok(of_device($node, 'resident_indexes'), '>=', $entries - 2, 'and takes few for it');

is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
finish_test($node);
