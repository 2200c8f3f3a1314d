# Rows are appended to the delta of an index that is on a device. Each refresh brings the new pages
# alone, by a loader that stays for the next one.
use Gpugraph;
use Residency;
use Time::HiRes qw(usleep);

my $node = service_node('append', conf => "gpugraph.merge_workers = 0\n");
sub sql { return $node->sql($_[0]) }

unserved {
	sql(<<'SQL');
SELECT make_data('few', 4000, 24, 40);
CREATE TABLE items AS SELECT id, cat, big, val FROM few WHERE id <= 2000;
SELECT make_queries('items', 20);
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat, big)
	WITH (seal_rows = 0);
SQL
};
sql("SELECT gpugraph_prewarm('items_idx')");

my $ask = 'SET enable_seqscan = off;
	SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 1';

# Queries ask for refreshes until the device has all full pages, but for fewer than eight.
sub refreshed
{
	my $pages = sql("SELECT delta_bytes / 8192 FROM gpugraph_index_info('items_idx')");
	my $ok = defined wait_for(
		sub { sql($ask); return of_index($node, 'delta_pages') >= $pages - 8 });

	diag('the device has ' . of_index($node, 'delta_pages') . " of $pages pages") if !$ok;
	return $ok;
}

# Are the nearest rows others than the exact ones, with conditions on filter columns, too? 0: no.
sub differ
{
	my @lists;

	for my $scan ('enable_seqscan = off', 'enable_indexscan = off')
	{
		push @lists, sql(<<SQL);
SET $scan;
SET enable_bitmapscan = off;
SELECT q, f, array_agg(s.d ORDER BY s.d) FROM queries, generate_series(0, 2) f, LATERAL (
	SELECT round((items.val <-> queries.val)::numeric, 4) AS d FROM items
	WHERE CASE WHEN f = 0 THEN true ELSE cat = f END
	ORDER BY items.val <-> queries.val LIMIT 20) s GROUP BY q, f ORDER BY q, f;
SELECT q, f, array_agg(s.d ORDER BY s.d) FROM queries, generate_series(0, 2) f, LATERAL (
	SELECT round((items.val <-> queries.val)::numeric, 4) AS d FROM items
	WHERE cat = f AND big > 100 ORDER BY items.val <-> queries.val LIMIT 20) s
	GROUP BY q, f ORDER BY q, f;
SQL
	}
	return $lists[0] eq $lists[1] ? 0 : 1;
}

my $next = 10001;
sub insert
{
	my ($n) = @_;

	sql("INSERT INTO items SELECT $next + row_number() OVER (), a.cat, a.big, a.val + b.val
		FROM few a, few b WHERE a.id > 2000 AND a.id <= 2000 + $n AND b.id = $next % 1900");
	$next += $n;
	return;
}

sub loader
{
	return sql("SELECT string_agg(pid::text, ',') FROM pg_stat_activity
		WHERE backend_type = 'gpugraph loader'");
}

# ---- growing, with dead rows now and then, which all of the delta is read for
my ($before) = answered_by($node, 'items_idx');
for my $step (1 .. 12)
{
	insert(1400 + 61 * $step);
	sql('DELETE FROM items WHERE id > 10000 AND id % 7 = ' . $step % 7 . '; VACUUM items')
		if $step % 4 == 0;
	ok(refreshed(), "step $step: the device has the new pages");
	is(differ(), 0, "step $step: all answers are exact");
}
my ($after) = answered_by($node, 'items_idx');
cmp_ok($after - $before, '>', 12 * 20, 'the device answers');
is(of_device($node, 'failed_loads'), 0, 'no refresh failed');
ok_in_time(sub {
	my @pids = map { insert(700); refreshed(); loader() } 1 .. 2;
	return $pids[0] ne '' && $pids[0] eq $pids[1];
}, 'a loader brings more than one refresh');
index_is_complete($node, 'grown');

# ---- a merge leaves the delta on the device
sql('DROP INDEX items_idx; VACUUM items');
unserved {
	sql('CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops, cat, big)
		WITH (seal_rows = 1000000, segment_rows = 3000)');
};
sql("SELECT gpugraph_prewarm('items_idx')");
insert(1700);
ok(refreshed(), 'a new index has the new pages');
is(of_index($node, 'delta_pages > 0 AND segments > 1'), 't', 'it has segments');
my $refreshes = of_device($node, 'refreshes');
my $pages = of_index($node, 'delta_pages');
sql('ALTER INDEX items_idx RESET (segment_rows); VACUUM items');
is(of_index($node, "segments || ' ' || delta_pages"), "1 $pages",
	'they are merged, and the device has the delta still');
cmp_ok(of_device($node, 'refreshes'), '<=', $refreshes + 1, 'by the load of the merge alone');
is(differ(), 0, 'answers are exact');
insert(1400);
ok(refreshed(), 'it grows on');
is(differ(), 0, 'answers are exact');
my $generation = of_index($node, 'generation');
sql('ALTER INDEX items_idx SET (seal_rows = 500); VACUUM items');
ok_in_time(sub { sql($ask); of_index($node, 'generation') > $generation }, 'the delta is sealed');
insert(1400);
ok(refreshed(), 'and begins anew');
is(differ(), 0, 'answers are exact');
sql('ALTER INDEX items_idx SET (seal_rows = 0)');

# ---- a loader that stays is in nobody's way
insert(1400);
ok(refreshed(), 'one more refresh');
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity
	WHERE backend_type = 'gpugraph loader'");
insert(1400);
ok(refreshed(), 'one that was terminated is replaced');
is(differ(), 0, 'answers are exact');

$node->sql('CREATE DATABASE other TEMPLATE postgres');
$node->safe_psql('other', "SELECT gpugraph_prewarm('items_idx')");
for (1 .. 3)
{
	$node->safe_psql('other',
		'INSERT INTO items SELECT id + 100000, cat, big, val FROM few LIMIT 700');
	$node->safe_psql('other', $ask);
	usleep(100_000);
}
is(($node->psql('postgres', 'DROP DATABASE other'))[0], 0, 'the database can be dropped');
ok_in_time(sub { loader() eq '' }, 'it leaves');
insert(1400);
ok(refreshed(), 'and another comes');
is(differ(), 0, 'answers are exact');
is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');

# A device measures many wide rows in no time, so they are sealed later where one answers queries.
sub delta_rows { return sql("SELECT delta_rows FROM gpugraph_index_info('wide_idx')") }
unserved {
	sql(<<'SQL');
CREATE TABLE wide AS SELECT i AS id, (SELECT array_agg(sin(i * d))
	FROM generate_series(1, 1000) d)::vector(1000) AS val FROM generate_series(1, 500) i;
CREATE INDEX wide_idx ON wide USING gpugraph (val vector_l2_ops);
SQL
};
sql("SELECT gpugraph_prewarm('wide_idx')");
sql('INSERT INTO wide SELECT id + 1000 * n, val FROM wide, generate_series(1, 4) n');
sql('VACUUM wide');
is(delta_rows(), 2000, '8 MB of rows wait for their segment where a device answers queries');
sql("SELECT gpugraph_evict('wide_idx')");
sql('VACUUM wide');
cmp_ok(delta_rows(), '<', 100, 'they are sealed where none does');

finish_test($node);
