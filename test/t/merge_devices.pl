# Two devices build graphs of merges: one for each of two sessions, and one for a merge that is done
# within another one.
use Gpugraph;
use Merging;
use Residency;

# On a GPU host one GPU may play both.
$ENV{GPUGRAPH_SAME_GPU} = 1;
my $node = service_node('mergedevs', conf => <<'CONF');
gpugraph.devices = '0,1'
gpugraph.device_timeout = 0
CONF
sub sql { return $node->sql($_[0]) }
ok_in_time(sub { sql("SELECT count(*) FROM gpugraph_stat_device WHERE state = 'up'") == 2 },
	'two devices');
make_source($node, 12000, 16, 'seal_rows = 6000, segment_rows = 6000');

# Devices of whose memory merges have a part: no index is on a device.
sub busy { return sql('SELECT count(*) FROM gpugraph_stat_device WHERE resident_bytes > 0') }

sub nothing_left
{
	my ($what) = @_;
	sql("SELECT gpugraph_evict(relid) FROM gpugraph_stat_index WHERE device IS NOT NULL");
	ok_in_time(sub { return busy() == 0 }, $what);
	return;
}

sub built
{
	return sql("SELECT string_agg(merges::text, ' ' ORDER BY device) FROM gpugraph_stat_device");
}

# ---- two sessions
sql('CREATE TABLE others AS SELECT * FROM source WHERE id <= 6000;
	CREATE INDEX others_idx ON others USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0);
	INSERT INTO others SELECT * FROM source WHERE id > 6000;
	CREATE TABLE more AS SELECT * FROM others;
	CREATE INDEX more_idx ON more USING gpugraph (val vector_l2_ops) WITH (seal_rows = 0);
	INSERT INTO more SELECT id + 12000, cat, big, val FROM source');
nothing_left('no index is on a device');
set_fault($node, 'graph_hold');
my $session = start_psql($node, "SELECT gpugraph_merge('others_idx')");
ok_in_time(sub { return busy() == 1 }, 'a device has the first merge');
sql("SET gpugraph.fault = none; SELECT gpugraph_merge('more_idx')");
set_fault($node);
is(finish_psql($session), '', 'both end');
is(built(), '1 1', 'each device has built for one of them');
index_is_complete($node, 'first', 'others');
index_is_complete($node, 'second', 'more');
nothing_left('their memory is given back');

# ---- a merge within another one
is(merge_info($node, 'segments'), 2, 'two segments that are to be merged');
set_fault($node, 'graph_hold');
sql('ALTER INDEX items_idx RESET (segment_rows)');
sql('VACUUM items');
ok_in_time(sub { return busy() == 1 }, 'a device holds their merge');
sql("INSERT INTO items SELECT nextval('numbers'), cat, big,
	(SELECT array_agg(x + sin(id))::real[]::vector(16) FROM unnest(val::real[]) x)
	FROM source WHERE id <= 6600");
ok_in_time(sub { return busy() == 2 }, 'the other one holds that of new rows');
is(merge_info($node, 'segments'), 2, 'both are under way');
set_fault($node);
ok_in_time(sub { return built() =~ /^[23] [23]$/ }, 'each device builds') or diag(built());
ok_in_time(sub { return busy() == 0 }, 'and ends');
nothing_left('all memory is given back');
index_is_complete($node, 'one within the other');

finish_test($node);
