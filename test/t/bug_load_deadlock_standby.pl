# As bug_load_deadlock, on a standby: the one who wants the index for himself is the process that
# replays the primary's REINDEX INDEX.
use Gpugraph;
use Residency;

my $primary = service_node('primary', init => { allows_streaming => 1 });
unserved { make_items($primary, 4000, 16); };
my $standby = start_standby($primary, 'standby',
	"max_standby_streaming_delay = -1\ngpugraph.autoprewarm = off");
wait_for(sub { of_device($standby, 'state') eq 'up' });
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));

set_fault($standby, 'load_stall');
my $waiting = start_psql($standby, "SELECT gpugraph_prewarm('items_idx') > 0");
is(wait_for_state($standby, 'loading'), 'loading', 'a load is under way on the standby');
unserved { $primary->sql('REINDEX INDEX items_idx'); };
ok_in_time(sub { $standby->sql("SELECT count(*) FROM pg_locks
	WHERE mode = 'AccessExclusiveLock' AND NOT granted") > 0 }, 'it waits there');
set_fault($standby);
my $ended = defined wait_for(sub { return has_ended($waiting); });
ok($ended, 'who waits for it ends');
$standby->sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity
	WHERE query ~ 'prewarm' AND pid <> pg_backend_pid()")
	if !$ended;
is(finish_psql($waiting), '', 'without an error');
is($waiting->{out}, "t\n", 'the index was loaded');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
$standby->sql("SELECT gpugraph_prewarm('items_idx')");
truth_by_device($standby, 'replayed');
is(log_lines($standby, qr/(PANIC|TRAP|signal|deadlock detected|conflict with recovery)/), 0,
	'nothing bad is in the log');
finish_test($standby, $primary);
