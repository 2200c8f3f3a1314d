# An index larger than the device is resident by segment. The device answers for the segments that
# it has and the CPU for the others, in one order and without a row lost or told twice, while
# segments come and go: by the limit, by heat, by merges, with the worker, and on a standby.
use Gpugraph;
use Residency;
use Time::HiRes qw(usleep);

# Always the CPU engine, whose sizes and ties are the same everywhere.
my $node = service_node('segments', init => { allows_streaming => 1 }, conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.itopk_size = 64
gpugraph.merge_workers = 0
max_parallel_workers_per_gather = 0
work_mem = 64MB
CONF

# An index of several segments, and a small one of one segment.
make_segments($node);
unserved {
	$node->sql(<<'SQL');
CREATE INDEX ON items (big);
CREATE INDEX few_idx ON few USING gpugraph (val vector_l2_ops);

-- How many rows the index returns for the rest of a query, or what is wrong with them. Compared
-- with the table by distance, because rows that are as near may come in either order.
CREATE FUNCTION same(rest text, bitmaps boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	statement text := 'SELECT array_agg(id), array_agg(d) FROM (SELECT id,
		val <-> (SELECT val FROM queries WHERE q = 3) AS d FROM items ' || rest || ') s';
	ids int[];
	mine float8[];
	exact float8[];
BEGIN
	PERFORM use_index(false);
	EXECUTE statement INTO ids, exact;
	PERFORM use_index(true), set_config('enable_bitmapscan', bitmaps::text, false);
	EXECUTE statement INTO ids, mine;
	RETURN (SELECT CASE WHEN bool_and(abs(m - e) <= 1e-5 * e) AND count(DISTINCT i) = count(*)
		THEN count(*)::text
		ELSE format('of %s rows %s are others, %s distinct', count(*),
			count(*) FILTER (WHERE (abs(m - e) <= 1e-5 * e) IS NOT TRUE), count(DISTINCT i)) END
		FROM unnest(ids, mine, exact) u(i, m, e));
END $$;

-- All rows of a category by the index and by the table, in one snapshot.
CREATE FUNCTION category(which int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
	d bigint;
	t bigint;
BEGIN
	PERFORM use_index(true);
	SELECT count(*), count(DISTINCT id) INTO n, d FROM (SELECT id FROM items WHERE cat = which
		ORDER BY val <-> (SELECT val FROM queries WHERE q = 1)) s;
	PERFORM use_index(false);
	SELECT count(*) INTO t FROM items WHERE cat = which;
	IF n <> t OR d <> t THEN
		RAISE EXCEPTION '%: % rows by the index, % distinct, % in the table', which, n, d, t;
	END IF;
END $$;
SQL
};
my $segments = $node->sql("SELECT segments FROM gpugraph_index_info('items_idx')");
is($segments, 6, "an index of $segments segments");

my $near = 'ORDER BY val <-> (SELECT val FROM queries WHERE q = 3)';
sub sql { return $node->sql($_[0]) }
sub same { return sql("SELECT same('" . $_[0] =~ s/'/''/gr . "', " . ($_[1] || 'false') . ')') }
# In one session, where the first scan finds that walks do not do, and the second begins with exact
# lists: both counts, and of how many lists of the second every row was measured.
sub rare
{
	my $one = "SELECT same('WHERE id % 100 = 0 $near LIMIT 60', false)";
	return join ' ', split /\n/, sql("$one; $one; SELECT exact_lists FROM gpugraph_last_scan()");
}
sub prewarm { return sql("SELECT gpugraph_prewarm('$_[0]')") }

sub limit
{
	my ($mb) = @_;
	reload_with($node, "gpugraph.device_memory = ${mb}MB");
	return defined wait_for(sub { of_device($node, 'limit_bytes') == $mb << 20 });
}

sub missing { return of_index($node, 'missing_segments') }

# Have the index queried so many times; the first query asks for it where it is not there.
sub heat
{
	my ($rel, $times) = @_;
	sql("SELECT use_index(true); SELECT count(*) FROM generate_series(1, $times) i,
		LATERAL (SELECT id FROM $rel ORDER BY val <-> (SELECT val FROM queries WHERE q = 1 + i % 20)
			LIMIT 3) s");
	return;
}

# Whatever a resident has been through for 20 times the time of its load, others may evict it.
sub rested
{
	return defined wait_for(
		sub {
			return sql("SELECT bool_and(clock_timestamp() >
					loaded_at + 21 * load_seconds * interval '1 s')
				FROM gpugraph_stat_index WHERE loaded_at IS NOT NULL") eq 't';
		});
}

# ---- uncapped: the whole
my $bytes = prewarm('items_idx');
my ($recall) = split / /, who_answers($node);
is(who_answers($node), "$recall 20 0 0", 'with room for all the device answers alone');
cmp_ok($recall, '>=', 0.95, "recall $recall");
is(of_index($node, "state || ' ' || missing_segments || ' ' || missing_bytes"), 'ready 0 0',
	'nothing is missing');

is(rare(), "60 60 $segments", 'a condition that no index has');

# ---- a limit of half of it: segments go, and the rest answers on
my $half = int($bytes / 2 / 1048576) + 1;
cmp_ok($half, '>', 2, "$half MB are about half of it");
ok(limit($half), 'a lower limit');
ok(defined wait_for(sub { of_device($node, 'resident_bytes') <= $half << 20 }), 'it is kept to');
is(of_index($node, 'state'), 'partial', 'by segments');
is(of_index($node, 'missing_segments > 0 AND missing_segments < segments'), 't', 'some are left');
is(of_index($node, "bytes + missing_bytes"), $bytes, 'the rest is missing');
is(log_lines($node, qr/LOG: .*items_idx.* of \d segments, makes room/), 1, 'the log says so');
is(who_answers($node), "$recall 0 20 0", 'both answer, with the same recall');
is(of_device($node, 'loads'), 1, 'nothing was loaded for that');

# ---- a load finds no room for the whole
sql("SELECT gpugraph_evict('items_idx')");
is(of_device($node, 'resident_bytes'), 0, 'evicted');
cmp_ok(prewarm('items_idx'), '<=', $half << 20, 'prewarm brings what there is room for');
is(of_index($node, 'state'), 'partial', 'some segments');
cmp_ok(of_index($node, 'bytes'), '>', ($half << 20) - $bytes / ($segments - 1),
	'there is no room for another one');
is(prewarm('items_idx'), of_index($node, 'bytes'), 'another prewarm ends, too');
is(who_answers($node), "$recall 0 20 0", 'both answer');
is(sql("SELECT state || ' ' || (hint ~ 'gpugraph.device_memory')
	FROM gpugraph_indexes WHERE indexname = 'items_idx'"), 'partial true', 'the view has a hint');
like(sql("SELECT use_index(true); SELECT count(*) FROM (SELECT id FROM items $near LIMIT 5) s;
	SELECT engine || ' ' || reason FROM gpugraph_last_scan()"),
	qr/gpu, cpu Only some segments of the index fit on the GPU/, 'so has gpugraph_last_scan()');
like(error_of($node, "SET gpugraph.engine = cuda; SELECT id FROM items $near LIMIT 5"),
	qr/no GPU can search index "items_idx".*Only some segments/s,
	'under gpugraph.engine = cuda it is an error');

# ---- every form of search
is(same("$near LIMIT 500"), 500, 'a long list');
is(same("$near LIMIT 20000"), 20000, 'a deep list');
is(same("WHERE cat = 7 $near LIMIT 100"), 100, 'a filter column');
is(same("WHERE cat IN (3, 9) AND big < 100 $near LIMIT 150"), 150, 'two conditions');
is(same("WHERE big < 40 $near LIMIT 60", 'true'), 60, 'a bitmap');
is(rare() =~ s/ \d$//r, '60 60', 'a condition that no index has');
like(sql("SET enable_seqscan = off; SET enable_sort = off;
	EXPLAIN SELECT id FROM items WHERE big < 40 $near LIMIT 60"), qr/GpugraphBitmapScan/,
	'of another index');
for my $order (qw(strict_order relaxed_order off))
{
	$node->sql("ALTER DATABASE postgres SET gpugraph.iterative_scan = $order");
	is(sql("SELECT use_index(true); SELECT count(*), count(DISTINCT id)
		FROM (SELECT id FROM items WHERE cat = 11 $near) s") =~ s/^\n//r,
		sql("SELECT count(*), count(*) FROM items WHERE cat = 11"), "$order: a filter to its end")
		unless $order eq 'off';
	is(who_answers($node), "$recall 0 20 0", "$order: recall");
}
$node->sql('ALTER DATABASE postgres RESET gpugraph.iterative_scan');
index_is_complete($node, 'in part');
my $search = "SELECT md5(string_agg(s::text, ',' ORDER BY query, distance, tid))
	FROM gpugraph_search('items_idx', (SELECT array_agg(val ORDER BY q) FROM queries), 10) s";
is(sql($search), sql("SET gpugraph.engine = cpu; $search"), 'gpugraph_search');
my $graph = "SELECT count(*), round(sum(distance)::numeric, 1)
	FROM (SELECT (g).* FROM (SELECT gpugraph_knn_graph('items_idx', 3) AS g LIMIT 600) r) s";
is(sql($graph), sql("SET gpugraph.engine = cpu; $graph"), 'gpugraph_knn_graph');

# ---- a cursor goes on while segments leave the device, and when all of it does
sub through_cursor
{
	my ($what, @meanwhile) = @_;
	my $reader = $node->background_psql('postgres');
	my $seen = 'SELECT count(*) AS n, count(DISTINCT id) AS d FROM seen';

	$reader->query_safe('SELECT use_index(true); CREATE TEMP TABLE seen (id int);
		CREATE FUNCTION pg_temp.take(c refcursor, n int) RETURNS void LANGUAGE plpgsql AS $$
		DECLARE r int;
		BEGIN
			FOR i IN 1 .. n LOOP
				FETCH c INTO r;
				EXIT WHEN NOT FOUND;
				INSERT INTO seen VALUES (r);
			END LOOP;
		END $$');
	$reader->query_safe("BEGIN; DECLARE c CURSOR FOR SELECT id FROM items $near");
	$reader->query_safe("SELECT pg_temp.take('c', 40)");
	$_->() for @meanwhile;
	$reader->query_safe("SELECT pg_temp.take('c', 1000000)");
	is($reader->query_safe($seen), sql('SELECT count(*), count(*) FROM items'), $what);
	$reader->quit;
	return;
}
through_cursor('a cursor, segments trimmed meanwhile', sub {
	limit(int($half * 0.7));
	wait_for(sub { of_device($node, 'resident_bytes') <= int($half * 0.7) << 20 });
});
through_cursor('a cursor, all evicted meanwhile',
	sub { sql("SELECT gpugraph_evict('items_idx')"); });

# ---- a higher limit: what is missing comes back without a new load
prewarm('items_idx');
my $loads = of_device($node, 'loads');
cmp_ok(missing(), '>', 1, 'under the lower limit more is missing');
ok(limit($half * 4), 'a higher limit');
ok_in_time(sub { of_index($node, 'state') eq 'ready' }, 'the whole comes back');
is(of_device($node, 'loads'), $loads, 'without a new load');
is(who_answers($node), "$recall 20 0 0", 'the device answers alone');

# ---- heat: a small index comes in, at the cost of no more than it needs
ok(limit($half), 'half again');
ok_in_time(sub { of_index($node, 'state') eq 'partial' }, 'in part again');
my $part = missing();
ok(rested(), 'there for a while');
ok_in_time(sub { heat('few', 1); return state_of($node, 'few_idx') eq 'ready' },
	'another index is asked for, and comes');
like(state_of($node), qr/^(partial|refreshing)$/, 'the large one stays in part');
my $with_few = missing();
cmp_ok($with_few, '<=', $part + 2, 'it gave up as much as was needed');
is(who_answers($node), "$recall 0 20 0", 'both go on answering for it');

# which of the two is hotter
SKIP:
{
	skip 'the small index found room beside', 2 if $with_few == $part;
	ok_in_time(sub { heat('few', 100); return state_of($node, 'few_idx') eq 'ready' },
		'the small one is hot, and there');
	for my $round (1 .. 4)
	{
		heat('few', 200);
		heat('items', 10);
		usleep(600_000);
	}
	is(state_of($node, 'few_idx'), 'ready', 'it stays');
}
ok_in_time(sub { heat('items', 200); return missing() <= $part },
	'the large one is hotter, and has its segments');
is(who_answers($node), "$recall 0 20 0", 'both answer');

# ---- VACUUM gives back a segment
sql('DELETE FROM items WHERE id <= 4500; VACUUM (FREEZE) items');
is(sql("SELECT segments FROM gpugraph_index_info('items_idx')"), 5, 'a segment was given back');
is((split / /, who_answers($node))[0] >= 0.95, 1, 'the first answers after that are right');
ok_in_time(sub { heat('items', 1);
		return of_index($node, "segments = 5 AND state ~ 'partial|ready'") eq 't' },
	'the device followed');
index_is_complete($node, 'a segment less');

# ---- segments go while a refresh counts on them
ok(limit($half * 4), 'room for all');
ok_in_time(sub { of_index($node, 'state') eq 'ready' }, 'the whole is there');
sql('INSERT INTO items SELECT 50000 + id, cat, big, val FROM items WHERE id <= 5000');
set_fault($node, 'load_stall');
my $refresh = start_psql($node, "SELECT gpugraph_prewarm('items_idx')");
ok_in_time(sub { of_index($node, 'state') eq 'refreshing' }, 'a refresh is under way');
ok(limit($half), 'half again');
ok(defined wait_for(sub { of_device($node, 'resident_bytes') <= $half << 20 }), 'it is kept to');
set_fault($node);
is(finish_psql($refresh), '', 'who waits for the refresh gets it');
is(of_index($node, "state || ' ' || (delta_pages > 0)"), 'partial true', 'in part, and up to date');
index_is_complete($node, 'a refresh, and segments gone');

# ---- segments go, all goes, or the directory changes, between a query's look-up and its request,
# and while it is answered
my @rests = (
	[ 'stall', 'segments go', sub { limit(2) } ],
	[ 'hold_post', 'segments come', sub { limit($half) } ],
	[ 'hold_post', 'segments go', sub { limit(2) } ],
	[ 'hold_post', 'all goes', sub { limit($half); sql("SELECT gpugraph_evict('items_idx')") } ],
	[ 'hold_post', 'another segment', sub {
		sql('ALTER INDEX items_idx SET (seal_rows = 300);
			INSERT INTO items SELECT 60000 + id, cat, big, val + val FROM items WHERE id <= 5200');
		sql('VACUUM items; ALTER INDEX items_idx SET (seal_rows = 0)');
	} ]);
for my $rest (@rests)
{
	my ($fault, $what, $meanwhile) = @$rest;
	my $holder = hold_at($node, 'post');
	my $query = start_psql($node, "SET gpugraph.fault = $fault",
		"SELECT same('$near LIMIT 20', false)");

	ok($fault eq 'stall' ? backend_pid($node, '^SELECT same') ne '' : rests_at($node, 'post'),
		"$fault: a query is under way");
	$meanwhile->();
	finish_psql($holder);
	is(finish_psql($query) . $query->{out}, "20\n", "$fault, $what: the query is answered");
	prewarm('items_idx');
	like(who_answers($node), qr/^(1|0\.9[5-9])\S* 0 20 0$/,
		"$fault, $what: so are others, by both");
}

# ---- merges beside queries: hardly one is left to the CPU, none fails. Memory is full, so a merged
# segment may find room only when the version before has gone.
my $clients = start_pgbench($node, '--client=2 --time=600',
	'near@5' => "SET enable_seqscan = off;
		SELECT id FROM items $near LIMIT 5;\n",
	'category@1' => "\\set c random(0, 49)\n
		BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT category(:c); COMMIT;\n");
ok_in_time(sub { of_index($node, 'queries_both') > 100 }, 'clients');
my ($cpu, $both) = split / /, of_index($node, "queries_cpu || ' ' || queries_both");
my $generation = sql("SELECT generation FROM gpugraph_index_info('items_idx')");
sql("ALTER INDEX items_idx SET (seal_rows = 500)");
for my $round (1 .. 3)
{
	sql("INSERT INTO items SELECT 100000 * $round + id, cat, big, val FROM items
		WHERE id <= 12000 AND id % 10 = $round");
	sql('VACUUM items');
}
sql("DELETE FROM items WHERE id % 7 = 3; VACUUM items");
cmp_ok(sql("SELECT generation FROM gpugraph_index_info('items_idx')"), '>', $generation + 3,
	'segments were made');
ok_in_time(sub { of_index($node, "state = 'partial' AND generation > $generation + 3")
	eq 't' }, 'the device has them, in part');
cmp_ok(of_index($node, "(queries_cpu - $cpu)::float8 / (queries_both - $both)"), '<', 0.05,
	'hardly a query was left to the CPU alone');
cmp_ok(of_device($node, 'resident_bytes'), '<=', $half << 20, 'the limit is kept');

# ---- segments come and go beside them
for my $mb (2, $half * 4, 3, $half, $half * 4, 2, $half)
{
	limit($mb);
	wait_for(sub { of_device($node, 'resident_bytes') <= $mb << 20 });
	sql("SELECT gpugraph_evict('items_idx')") if $mb == 3;
	wait_for(sub { of_index($node, "state ~ 'partial|ready'") eq 't' });
}
ok_in_time(sub { state_of($node) eq 'partial' }, 'in part in the end');

# ---- the worker of the device goes, and comes back, while they go on
my $pid = of_device($node, 'pid');
kill 'TERM', $pid;
ok_in_time(sub { of_device($node, "coalesce(pid, $pid)") != $pid &&
		state_of($node) eq 'partial' }, 'a new worker has it in part');
sql("SELECT gpugraph_merge('items_idx')");
ok_in_time(sub { state_of($node) eq 'partial' }, 'merged: in part');
kill 'INT', $clients->{harness}->{KIDS}[0]{PID};
my $errors = finish_psql($clients);
unlike($errors, qr/ERROR|FATAL|abort/, 'no client saw an error') or diag($errors);
$recall = (split / /, who_answers($node))[0];
cmp_ok($recall, '>=', 0.95, "recall $recall");
index_is_complete($node, 'merged');

# ---- a device that has less memory than the limit says
sql("SELECT gpugraph_evict('items_idx')");
ok(limit($half * 4), 'a limit that the device does not have');
sql("SET gpugraph.fault = less_memory; SELECT gpugraph_prewarm('items_idx')");
is(state_of($node), 'partial', 'what it has is used');
is(who_answers($node), "$recall 0 20 0", 'both answer');

# ---- a standby, and a restart
ok(limit($half), 'half again');
my $standby = start_standby($node, 'standby');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$standby->sql("SELECT gpugraph_prewarm('items_idx')");
is(state_of($standby), 'partial', 'standby: in part');
is(who_answers($standby), "$recall 0 20 0", 'standby: both answer');
sql('DELETE FROM items WHERE id % 11 = 5; VACUUM items');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is($standby->sql("SELECT complete('items')"), 'ok', 'standby: vacuumed');
$standby->stop;
$node->restart;
ok_in_time(sub { state_of($node) eq 'partial' }, 'restarted: in part again');
like(who_answers($node), qr/ 0 20 0$/, 'both answer');

finish_test($node);
