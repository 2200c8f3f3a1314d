# A primary and two replicas, each with a device of its own, under load: the primary is lost, a
# replica is promoted, the other follows it. No answer is wrong meanwhile, and no row is lost that
# somebody was told of.
use Gpugraph;
use Residency;

my $primary = service_node('primary', init => { allows_streaming => 1 });
# So many rows that a device is asked from the first query on, whatever merges make of them. They
# are in one cluster: in many small ones a walk can miss a row.
$primary->sql("SELECT make_data('items', 6000, 16, 1);
	SELECT make_queries('items', 20);
	CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)");
$primary->sql('ALTER INDEX items_idx SET (seal_rows = 300);
	CREATE SEQUENCE ids START 100000; ALTER DATABASE postgres SET enable_seqscan = off');
$primary->backup('backup');
my @replicas = map {
	my $node = PostgreSQL::Test::Cluster->new("replica$_");
	$node->init_from_backup($primary, 'backup', has_streaming => 1);
	$node->append_conf('postgresql.conf',
		"hot_standby_feedback = on\nmax_standby_streaming_delay = 60s\n");
	$node->start;
	$node;
} 1 .. 2;
$_->sql("SELECT gpugraph_prewarm('items_idx')") for $primary, @replicas;
truth_by_device($_, $_->name . ', at first') for @replicas;

# What the primary acknowledges has been replayed on one replica.
reload_with($primary,
	"synchronous_standby_names = 'replica1'\nsynchronous_commit = remote_apply\n");
ok($primary->poll_query_until('postgres',
	"SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'"),
	'a synchronous replica');

# Rows 1 to 2000 keep their vectors: the nearest of each is itself, ten rows come, in order. A wrong
# answer divides by zero and ends the client.
my %looking = ('look@1' => <<'SQL');
\set id random(1, 2000)
SELECT 1 / (count(*) = 10 AND min(d) = 0 AND array_agg(d) = array_agg(d ORDER BY d))::int
	FROM (SELECT items.val <-> q.val AS d FROM (SELECT val FROM items WHERE id = :id) q,
	LATERAL (SELECT val FROM items ORDER BY items.val <-> q.val LIMIT 10) items OFFSET 0) s;
SQL

# A session that inserts a row in each transaction, and says its number once it is committed
sub start_inserting
{
	my ($node) = @_;
	my $sql = 'INSERT INTO items SELECT nextval(\'ids\'), cat, big,
		val + (SELECT array_agg(random() * 0.1) FROM generate_series(id, id + 15))::real[]::vector
		FROM items WHERE id = (SELECT 1 + (random() * 1999)::int) RETURNING id';

	return start_psql($node, ($sql) x 1200);
}

# all rows that the sessions were told of: in the table, and the first by the index
sub acknowledged_rows
{
	my ($node, $what, @sessions) = @_;
	my @ids = map { $_->{out} =~ /(\d+)\n/g } @sessions;

	cmp_ok(scalar @ids, '>', 20, "$what: rows were inserted");
	is($node->sql('SET enable_seqscan = off; SELECT count(*)
		FROM unnest(ARRAY[' . join(',', @ids) . ']) u(id) JOIN items USING (id),
		LATERAL (SELECT id FROM items n ORDER BY n.val <-> items.val LIMIT 1) n
		WHERE n.id = items.id'), scalar @ids, "$what: all of them are found");
	return;
}

my @before = map { (answered_by($_))[0] } @replicas;
my @looks = map { start_pgbench($_, '--client=2 --time=600', %looking) } @replicas;
my @inserts = map { start_inserting($primary) } 1 .. 2;
my $changes = start_pgbench($primary, '--client=1 --time=600',
	'update@1' => "\\set id random(2001, 3000)\nUPDATE items SET cat = cat + 1,
		val = val + array_fill(0.01::real, ARRAY[16])::vector WHERE id = :id;\n",
	'delete@1' => "DELETE FROM items WHERE id = (SELECT min(id) FROM items WHERE id > 2500
		AND id < 3000);\n");
my $vacuums = repeat_psql($primary, 120, 'VACUUM items', 1);

# ---- the primary is lost, when both loads are well under way
ok_in_time(sub { $inserts[0]{harness}->pump_nb; (() = $inserts[0]{out} =~ /\n/g) >= 200 },
	'a load on the primary');
ok_in_time(sub {
	return !grep { (answered_by($replicas[$_]))[0] <= $before[$_] + 100 ||
			of_index($replicas[$_], 'generation') < 5 } 0 .. 1; },
	'the replicas\' devices answer beside it, and follow merges');
kill_9_server($primary);
finish_psql($_) for @inserts, $changes, $vacuums;

# The replica that has received more becomes the primary: the other one could not follow it back. It
# has all that was acknowledged, whichever it is.
sub received { return $_[0]->sql("SELECT pg_last_wal_receive_lsn() - '0/0'") }
ok($_->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_wal_receiver'),
	$_->name . ' has lost its primary') for @replicas;
if (received($replicas[1]) > received($replicas[0]))
{
	@$_ = reverse @$_ for \(@replicas, @before, @looks);
}
note($replicas[0]->name . ' is promoted');
$replicas[0]->promote;
acknowledged_rows($replicas[0], 'promoted', @inserts);

# ---- the other replica follows the new primary
my $new = $replicas[0]->connstr . ' application_name=' . $replicas[1]->name;
$new =~ s/'/''/g;
$replicas[1]->append_conf('postgresql.conf', "primary_conninfo = '$new'\n");
$replicas[1]->reload;
my $more = start_inserting($replicas[0]);
finish_psql($more);
# for pgbench the end of its time
$_->{harness}->signal('ALRM') for @looks;
finish_psql($_) for @looks;
acknowledged_rows($replicas[0], 'the new primary', $more);
$replicas[0]->wait_for_catchup($replicas[1], 'replay', $replicas[0]->lsn('insert'));
acknowledged_rows($replicas[1], 'the replica that follows', @inserts, $more);
# while merges go on, devices are late now and then
$replicas[0]->sql("SELECT gpugraph_merge('items_idx')");
$replicas[0]->wait_for_catchup($replicas[1], 'replay', $replicas[0]->lsn('insert'));
for my $i (0 .. 1)
{
	my $name = $replicas[$i]->name;

	unlike($looks[$i]{err}, qr/ERROR|abort/, "$name: no answer was wrong");
	like($looks[$i]{out}, qr/transactions actually processed: \d{3,}/, "$name: many answers");
	cmp_ok((answered_by($replicas[$i]))[0] - $before[$i], '>', 100, "$name: its device answered");
	$replicas[$i]->sql("SELECT gpugraph_prewarm('items_idx')");
	# a query that meets the end of a load is the CPU's
	my $seen;
	wait_for(sub { $seen = truth($replicas[$i]); return $seen !~ /^1\.0000/ || $seen =~ / 0$/ });
	is($seen, '1.0000 20 0', "$name, after all: the device answers, and rightly");
	index_is_complete($replicas[$i], $name);
}
answers_agree(@replicas, 'both have the same answers');

$_->stop for reverse @replicas;
done_testing();
