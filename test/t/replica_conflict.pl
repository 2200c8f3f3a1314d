# A query on a replica that still needs blocks that the primary has begun to use again is cancelled;
# it never returns other rows.
use Gpugraph;
use IPC::Run ();

my $primary = new_node('primary', init => { allows_streaming => 1 });
my $replica = start_standby($primary, 'replica',
	"max_standby_streaming_delay = 0\nhot_standby_feedback = off\n");
make_items($primary, 2000, 8);
$primary->safe_psql('postgres', 'INSERT INTO items SELECT id + 10000, cat, big, val FROM items');
$primary->wait_for_catchup($replica, 'replay', $primary->lsn('insert'));

# a cursor with some rows read
my ($in, $out, $err) = ('', '', '');
my $psql = IPC::Run::start([ 'psql', '-XAtq', '-d', $replica->connstr('postgres') ], '<', \$in, '>',
	\$out, '2>', \$err);
$in .= <<'SQL';
SET enable_seqscan = off;
BEGIN ISOLATION LEVEL REPEATABLE READ;
DECLARE c CURSOR FOR SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1);
FETCH 5 FROM c;
SELECT 'opened';
SQL
wait_for(sub { $psql->pump_nb; $out =~ /opened/ });
like($out, qr/opened/, 'a cursor is open on the replica');

$primary->safe_psql('postgres', 'CREATE TABLE kept AS SELECT * FROM items; DELETE FROM items');
$primary->safe_psql('postgres', 'VACUUM (FREEZE) items');
$primary->safe_psql('postgres', 'VACUUM (FREEZE) items');
$primary->safe_psql('postgres', 'INSERT INTO items SELECT id + 100000, cat, big, val FROM kept');
$primary->wait_for_catchup($replica, 'replay', $primary->lsn('insert'));

$out = '';
$in .= "FETCH ALL FROM c;\nSELECT 'fetched';\nCOMMIT;\nSELECT 'ended';\n\\q\n";
eval { $psql->finish; };
my @others = grep { /^\d+$/ && $_ >= 100000 } split /\n/, $out;
is(scalar @others, 0, 'no row of a later time is returned');
like($err, qr/conflict with recovery|connection|terminating|aborted/, 'the query was cancelled');

ok(wait_until_up($replica), 'the replica is there');
is(answers($replica), answers($primary), 'and answers as the primary does');
is(join(' ', ($replica->psql('postgres', "SELECT gpugraph_check('items_idx', true)"))[ 0, 2 ]),
	'0 ', 'its index is sound');

finish_test($replica, $primary);
