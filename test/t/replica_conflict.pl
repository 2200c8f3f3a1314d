# A query on a replica that still needs blocks that the primary has begun to use again is cancelled;
# it never returns other rows.
use Gpugraph;

my $primary = new_node('primary', init => { allows_streaming => 1 });
my $replica = start_standby($primary, 'replica',
	"max_standby_streaming_delay = 0\nhot_standby_feedback = off\n");
make_items($primary, 2000, 8);
$primary->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM items');
$primary->wait_for_catchup($replica, 'replay', $primary->lsn('insert'));

# some of its rows are read
my $cursor = start_cursor($replica);
$primary->sql('CREATE TABLE kept AS SELECT * FROM items; DELETE FROM items');
$primary->sql('VACUUM (FREEZE) items');
$primary->sql('VACUUM (FREEZE) items');
$primary->sql('INSERT INTO items SELECT id + 100000, cat, big, val FROM kept');
$primary->wait_for_catchup($replica, 'replay', $primary->lsn('insert'));

$cursor->{in} .= "FETCH ALL FROM c;\nCOMMIT;\n\\q\n";
finish_psql($cursor);
my @others = grep { /^\d+$/ && $_ >= 100000 } split /\n/, $cursor->{out};
is(scalar @others, 0, 'no row of a later time is returned');
like($cursor->{err}, qr/conflict with recovery|connection|terminating|aborted/,
	'the query was cancelled');

ok(wait_until_up($replica), 'the replica is there');
is_equal($replica, $primary, 'afterwards');

finish_test($replica, $primary);
