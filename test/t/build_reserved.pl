# A build reserves what it takes of a device before it begins. Copies and other builds leave that
# alone, and however the build ends, it is given back. The CPU plays devices of a size that is set
# here; a GPU has room for all that is done here, and nothing has to wait there.
use Gpugraph;
use Residency;

my $played = ($ENV{GG_SERVICE_ENGINE} || 'cpu') eq 'cpu';
my $mb = 1 << 20;
$ENV{GPUGRAPH_MEMORY} = 100 * $mb;
$ENV{GPUGRAPH_SAME_GPU} = 1 unless $played;
my $node = service_node('reserved',
	conf => "gpugraph.devices = '0'\ngpugraph.merge_workers = 0\nrestart_after_crash = on\n"
	. "max_parallel_maintenance_workers = 2\nmin_parallel_table_scan_size = 0\n"
	. "maintenance_work_mem = 1GB\n");
my $options = 'USING gpugraph (val vector_l2_ops)';
my $rows = 60000;

sub sql { return $node->sql($_[0]) }

# Bytes that builds reserve of each device.
sub reserved
{
	return sql("SELECT string_agg(build_bytes::text, ' ' ORDER BY device)
		FROM gpugraph_stat_device");
}

sub nothing_is_reserved
{
	my ($what) = @_;
	ok_in_time(sub { return reserved() =~ /^0( 0)*$/ }, "$what: all is given back");
	return;
}

# A build that rests with its rows on the device until the holder ends.
sub held_build
{
	my ($what, $create) = @_;
	my $holder = hold_at($node, 'build');
	my $session = start_psql($node, 'SET gpugraph.fault = hold_build', $create);

	ok(rests_at($node, 'build'), "$what: a build rests");
	return ($holder, $session);
}

# sums are made faster than rows
sql(<<"SQL");
SELECT make_data('items', 1000, 64, 40);
INSERT INTO items SELECT 1000 + row_number() OVER (), a.cat, a.big, a.val + b.val
	FROM items a, items b WHERE b.id < $rows / 1000;
CREATE TABLE more AS SELECT * FROM items;
CREATE TABLE small AS SELECT * FROM items;
CREATE TABLE few AS SELECT * FROM items WHERE id <= 10000;
SELECT make_queries('items', 40);
VACUUM ANALYZE items, more, small, few;
SQL
unserved { sql("CREATE INDEX small_idx ON small $options") };
is(reserved(), '0', 'at first nothing is reserved');

# ---- beside a build
my ($holder, $session) = held_build('beside', "CREATE INDEX items_idx ON items $options");
my $first = reserved();
cmp_ok($first, '>', $rows * 64 * 4, 'rows and more are reserved');
cmp_ok($first, '<', 90 * $mb, '... but no more than there is') if $played;
my $watch = start_psql($node, 'SET gpugraph.fault = hold_build',
	"CREATE INDEX more_idx ON more $options");
ok_in_time(sub { return reserved() > $first }, 'another build reserves beside it');
cmp_ok(reserved(), '<=', 100 * $mb, '... only of what is left') if $played;
sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query ~ '^CREATE INDEX more'");
like(finish_psql($watch), qr/canceling statement/, 'the other one is cancelled');
ok_in_time(sub { return reserved() == $first }, '... and the first one keeps its own');
my ($rc, $out, $err) = $node->psql('postgres',
	"SET client_min_messages = debug1; CREATE INDEX more_idx ON more $options");
is($rc, 0, 'another one is built') or diag $err;
if ($played)
{
	my ($budget) = $err =~ /of device memory.* of (\d+) MB;/;
	cmp_ok($budget, '<=', 90 - $first / $mb * 0.9 + 1, 'it counts on what is left');
	cmp_ok(sql("SELECT segments FROM gpugraph_index_info('more_idx')"), '>', 1,
		'... in smaller segments');
}
is(reserved(), $first, 'the first build has still what it reserved');
index_is_complete($node, 'beside it', 'more');

# ---- what a load finds
sql("SELECT gpugraph_evict('more_idx')");
my $load = "SET enable_seqscan = off; SELECT id FROM small ORDER BY val <-> (SELECT val FROM queries
	WHERE q = 1) LIMIT 1";
sql($load);
if ($played)
{
	ok_in_time(sub { return state_of($node, 'small_idx') eq 'failed' },
		'an index has no room beside a build');
	like(of_index($node, 'last_error', 'small_idx'), qr/device memory/, 'it says so');
}
finish_psql($holder);
is(finish_psql($session), '', 'the build ends');
nothing_is_reserved('a build that ends');
index_is_complete($node, 'after');
ok_in_time(sub { sql($load); return state_of($node, 'small_idx') eq 'ready' },
	'then there is room for the index');
sql('DROP INDEX items_idx, more_idx');

# ---- what ends a build early
sql('CREATE FUNCTION sour(id int, val vector) RETURNS vector(64) IMMUTABLE PARALLEL SAFE
	LANGUAGE plpgsql AS $$ BEGIN
		IF id > 50000 THEN RAISE division_by_zero; END IF; RETURN val; END $$');
like(error_of($node,
	'CREATE INDEX ON items USING gpugraph ((sour(id, val)::vector(64)) vector_l2_ops)'),
	qr/division/, 'an error');
is(reserved(), '0', 'an error: all is given back');
for my $how (qw(cancel terminate))
{
	($holder, $session) = held_build($how, "CREATE INDEX CONCURRENTLY items_idx ON items $options");
	cmp_ok(reserved(), '>', $rows * 64 * 4, "$how: reserved");
	sql("SELECT pg_${how}_backend(pid) FROM pg_stat_activity WHERE query ~ '^CREATE INDEX C'");
	like(finish_psql($session), qr/cancel|terminat/, "$how: it ends");
	nothing_is_reserved($how);
	finish_psql($holder);
	sql('DROP INDEX items_idx');
}
sql("CREATE INDEX items_idx ON items $options");
($holder, $session) = held_build('kill -9', 'REINDEX INDEX items_idx');
cmp_ok(reserved(), '>', $rows * 64 * 4, 'kill -9: reserved');
ok(kill_9($node, backend_pid($node, '^REINDEX', 'leader_pid IS NULL')), 'kill -9');
finish_psql($session);
finish_psql($holder);
ok(wait_until_up($node), 'kill -9: the server is up again');
nothing_is_reserved('kill -9');

# ---- two devices: each has a part, and there is no copy of another index on it
$ENV{GPUGRAPH_MEMORY} = join ',', 100 * $mb, 52 * $mb;
restart_with($node, "gpugraph.devices = '0,1'");
ok_in_time(sub { sql("SELECT count(*) FROM gpugraph_stat_device WHERE state = 'up'") == 2 },
	'two devices');
($holder, $session) = held_build('one segment', "CREATE INDEX few_idx ON few $options");
like(reserved(), $played ? qr/^[1-9]\d* 0$/ : qr/[1-9]/, 'one segment: on one device');
finish_psql($holder);
finish_psql($session);
sql('DROP INDEX few_idx');
sql("SELECT gpugraph_evict('items_idx'), gpugraph_evict('small_idx'),
	gpugraph_prewarm('small_idx')");
($holder, $session) =
	held_build('spread', "CREATE INDEX more_idx ON more $options WITH (segment_rows = 32000)");
like(reserved(), qr/^[1-9]\d* [1-9]\d*$/, 'spread: reserved of both devices');
set_fault($node, 'hot');
my $copies = "SELECT cardinality(devices) FROM gpugraph_stat_index
	WHERE relid = 'small_idx'::regclass";
if ($played)
{
	sleep 2;
	is(sql($copies), 1, 'a hot index has no room for a copy');
}
finish_psql($holder);
is(finish_psql($session), '', 'spread: built');
nothing_is_reserved('spread');
ok_in_time(sub { sql($load); return sql($copies) == 2 }, 'then it is copied');
index_is_complete($node, 'spread', 'more');

finish_test($node);
