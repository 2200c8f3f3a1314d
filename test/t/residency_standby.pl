# A hot standby has a service of its own, which follows what is replayed.
use Gpugraph;
use Residency;

my $primary = service_node('primary', init => { allows_streaming => 1 },
	conf => "gpugraph.merge_workers = 0\n");
make_items($primary, 4000, 16);
$primary->sql("SELECT gpugraph_prewarm('items_idx')");
my $standby = start_standby($primary, 'standby');

sub catch_up { $primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert')); return }

catch_up();
$standby->sql("SELECT gpugraph_prewarm('items_idx')");
truth_by_device($standby, 'standby');

# ---- rows inserted, deleted and vacuumed on the primary
$primary->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id <= 2000');
catch_up();
like(truth($standby), qr/^1\.0000/, 'rows just replayed are found');
$standby->sql("SELECT gpugraph_prewarm('items_idx')");
is(of_index($standby, 'delta_pages > 10'), 't', 'the device gets them');
truth_by_device($standby, 'inserted');
$primary->sql('DELETE FROM items WHERE id % 50 = 3; VACUUM items');
catch_up();
$standby->sql("SELECT gpugraph_prewarm('items_idx')");
truth_by_device($standby, 'vacuumed');
is(of_device($standby, 'loads'), 1, 'all that with one load') or diag(of_device($standby, 'loads'));
answers_agree($standby, $primary, 'primary and standby agree');

# ---- REINDEX and TRUNCATE replayed
$primary->sql('REINDEX INDEX items_idx');
catch_up();
like(truth($standby), qr/^1\.0000/, 'the first answers after REINDEX are right');
$standby->sql("SELECT gpugraph_prewarm('items_idx')");
truth_by_device($standby, 'REINDEX replayed');
ok_in_time(sub { of_device($standby, 'resident_indexes') eq '1' }, 'the old copy goes');

# ---- restart, promotion
$standby->restart;
is(wait_for_state($standby, 'ready'), 'ready', 'it is loaded again after a restart');
truth_by_device($standby, 'restarted');
$standby->promote;
truth_by_device($standby, 'promoted');
$standby->sql('INSERT INTO items SELECT id + 20000, cat, big, val FROM items WHERE id <= 500');
like(truth($standby), qr/^1\.0000/, 'rows inserted then are found');
$standby->sql('DROP TABLE items');
ok_in_time(sub { of_device($standby, "resident_indexes || ' ' || resident_bytes")
	eq '0 0' }, 'DROP gives the memory back');

finish_test($standby, $primary);
