# The bug: a loader that stayed for the next refresh held the last background worker. A load for
# another database failed then: "no background worker is free to load it".
# The fix: it is sent away, and the load is asked for again.
use Gpugraph;
use Residency;

# one for the device, one for loaders
my $node = service_node('last', conf => <<'CONF');
gpugraph.merge_workers = 0
max_logical_replication_workers = 0
max_worker_processes = 2
CONF
sub sql { return $node->sql($_[0]) }

unserved {
	sql(<<'SQL');
SELECT make_data('items', 1000, 24, 40);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0);
SQL
};
sql('CREATE DATABASE other TEMPLATE postgres');
# Until a loader stays: does one?
sql(<<'SQL');
CREATE FUNCTION loader_stays() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 2000 LOOP
		PERFORM pg_stat_clear_snapshot();
		IF EXISTS (SELECT FROM pg_stat_activity
				WHERE backend_type = 'gpugraph loader' AND state = 'idle') THEN
			RETURN true;
		END IF;
		PERFORM pg_sleep(0.005);
	END LOOP;
	RETURN false;
END $$;
SQL
sql("SELECT gpugraph_prewarm('items_idx')");

my $seen = 0;
for my $round (1 .. 4)
{
	# what sees the loader stay is followed by the load at once
	sql("INSERT INTO items SELECT id + 1000 * $round, cat, big, val FROM items WHERE id <= 1000");
	$node->safe_psql('other', "SELECT gpugraph_evict('items_idx')");
	$seen++ if sql("SELECT gpugraph_prewarm('items_idx') > 0; SELECT loader_stays()") eq "t\nt";
	is($node->safe_psql('other', "SELECT gpugraph_prewarm('items_idx') > 0"), 't',
		"round $round: the other database's index comes to the device");
}
cmp_ok($seen, '>', 0, 'a loader stayed');
is(of_device($node, 'failed_loads'), 0, 'no load failed');

finish_test($node);
