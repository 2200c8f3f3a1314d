# Merges beside everything at once: clients that insert, update and delete, prepared transactions,
# cursors that stay open, filters, VACUUM, gpugraph_merge(), REINDEX CONCURRENTLY, workers of merges
# and of the service terminated again and again, and a standby that answers queries. Every scan of
# the whole index agrees with the table in one snapshot, and no statement fails for another reason
# than a standby's conflict.
#
#	SOAK_SECONDS, SOAK_CLIENTS		default 15, 6
use Gpugraph;
use Merging;
use Residency;
use Time::HiRes qw(sleep time);

my $seconds = $ENV{SOAK_SECONDS} || 10;
my $clients = $ENV{SOAK_CLIENTS} || 6;
my $node = new_node('soak', init => { allows_streaming => 1 }, conf => service_conf() . <<CONF);
max_prepared_transactions = @{[ $clients + 2 ]}
max_connections = @{[ $clients + 30 ]}
wal_keep_size = 4GB
CONF

make_checks($node);
$node->sql(<<'SQL');
SELECT make_data('source', 1500, 16, 40);
CREATE TABLE items (id bigint, cat int, big int, val vector(16));
INSERT INTO items SELECT * FROM source;
SELECT make_queries('items', 20);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat) WITH (seal_rows = 300);
CREATE INDEX ON items (id);
CREATE SEQUENCE numbers START 100000;
SQL
my $replica = start_standby($node, 'replica', "max_standby_streaming_delay = 1s\n");

my %looking = (
	'same@2' => <<'SQL',
\set c random(0, 9)
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT same(-1);
SELECT same(:c);
COMMIT;
SQL
	'slowly@1' => <<'SQL');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT slowly();
COMMIT;
SQL
my %writing = (
	'insert@20' => <<'SQL',
\set first random(1, 1400)
INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source
	WHERE id BETWEEN :first AND :first + 20;
SQL
	'update@6' => <<'SQL',
\set first random(1, 1400)
UPDATE items SET cat = (cat + 1) % 10 WHERE id = :first;
UPDATE items SET val = (SELECT val FROM source WHERE id = :first) WHERE id = :first + 1;
SQL
	# the oldest of what was inserted
	'delete@20' => <<'SQL',
DELETE FROM items WHERE id IN (SELECT id FROM items WHERE id > 10000
	AND (SELECT last_value FROM numbers) - id > 3000 ORDER BY id LIMIT 25 FOR UPDATE SKIP LOCKED);
SQL
	'prepare@3' => <<'SQL');
\set first random(1, 1400)
\set end random(0, 1)
BEGIN;
INSERT INTO items SELECT nextval('numbers'), cat, big, val FROM source
	WHERE id BETWEEN :first AND :first + 20;
DELETE FROM items WHERE id IN (SELECT id FROM items WHERE id > 10000
	AND (SELECT last_value FROM numbers) - id > 3000 ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED);
PREPARE TRANSACTION 'client :client_id';
\sleep 20 ms
\if :end
COMMIT PREPARED 'client :client_id';
\else
ROLLBACK PREPARED 'client :client_id';
\endif
SQL
my @benches = (start_pgbench($node, "--client=$clients --time=$seconds", %writing),
	start_pgbench($node, "--client=2 --time=$seconds", %looking),
	start_pgbench($replica, "--time=$seconds", %looking));
my @others = map { repeat_psql($node, $seconds, @$_) } (
	[ 'VACUUM items', 0.2 ],
	[ "SELECT gpugraph_merge('items_idx')", 0.5 ],
	[ 'REINDEX INDEX CONCURRENTLY items_idx', $seconds / 5 ]);
my %workers = (
	'merge worker' => "pg_stat_activity WHERE backend_type = 'gpugraph merge worker'",
	'device' => 'gpugraph_stat_device WHERE pid <> 0');
my %ended = map { $_ => 0 } keys %workers;
my $start = time;

while (time - $start < $seconds)
{
	my $which = (sort keys %workers)[ rand 2 ];

	sleep 0.3 + rand(1);
	my $pid = $node->sql("SELECT pid FROM $workers{$which} LIMIT 1");
	$ended{$which} += kill 'TERM', $pid if $pid ne '';
}

# A conflict ends a standby's session at any statement, and what pgbench says of that depends on the
# moment: the standby's log tells.
my $on_replica = pop @benches;
is(failed_statements($_), '', 'no statement of the clients failed') for @benches;
finish_psql($on_replica);
is(join("\n", grep { /(?:ERROR|FATAL|PANIC):/ && !/conflict with recovery/
		&& !/due to administrator command/ && !/database system is starting up/ }
	split /\n/, slurp_file($replica->logfile)), '', 'nor on the standby, but by a conflict');
# between the look at the index's name and its lock, REINDEX CONCURRENTLY may replace it
my $replaced = qr/relation with OID \d+ does not exist/;
is(join("\n", grep { /ERROR/ && !/$replaced/ } split /\n/, finish_psql($_)), '',
	'nor one of the others') for @others;
note("gpugraph $_ was terminated $ended{$_} times") for sort keys %ended;

is($node->sql('SELECT count(*) FROM pg_prepared_xacts'), 0, 'no prepared transaction is left');
$node->sql('VACUUM items');
ok_in_time(sub { $node->sql("SELECT gpugraph_merge('items_idx')") eq 't' }, 'a merge of all');
index_is_complete($node, 'in the end');
cmp_ok($node->sql("SELECT recall('items', '<->')"), '>=', 0.99, 'recall');
$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
is($replica->sql("SELECT gpugraph_check('items_idx', true)"), '', "the standby's index is sound");
is(answers($replica), answers($node), 'the standby answers as the primary');
unlike(slurp_file($_->logfile), qr/PANIC|was terminated by signal|TRAP/, 'no process crashed')
	for $node, $replica;

finish_test($replica, $node);
