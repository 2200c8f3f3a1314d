# What others do to the service is nobody else's affair: rows, copies and slots of theirs, and
# devices that cannot be used.
use Gpugraph;
use Residency;
use Time::HiRes qw(usleep);

# Databases whose indexes have the same OIDs and files, as those of a template and its copy, share
# the service: the owner of one gets the rows of his own, and loads, evicts and counts nothing of
# the other's.
subtest service_databases => sub {
	my $node = service_node('others');

	unserved {
		$node->sql(<<'SQL');
CREATE ROLE first_owner LOGIN;
CREATE ROLE second_owner LOGIN;
CREATE DATABASE first;
SQL
		$node->safe_psql('first', <<'SQL');
CREATE EXTENSION gpugraph CASCADE;
CREATE TABLE items (id int, val vector(4));
INSERT INTO items SELECT i, ARRAY[i, i % 7, i % 11, 1]::real[]::vector
	FROM generate_series(1, 3000) i;
CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops);
SQL
		$node->sql('CREATE DATABASE second TEMPLATE first');
		# other rows on the same pages
		$node->safe_psql('second', <<'SQL');
TRUNCATE items;
INSERT INTO items SELECT -i, ARRAY[i + 0.25, i % 5, i % 13, 2]::real[]::vector
	FROM generate_series(1, 2000) i;
REINDEX INDEX items_idx;
SQL
		$node->safe_psql($_, "ALTER TABLE items OWNER TO ${_}_owner") for qw(first second);
	};

	my sub ask
	{
		my ($db, $sql) = @_;
		my ($rc, $out, $err) = $node->psql($db, "SET ROLE ${db}_owner; $sql");

		return $err ne '' ? $err : $out;
	}

	my sub nearest
	{
		my ($db) = @_;

		return ask($db, "SET enable_seqscan = off; SELECT string_agg(id::text, ' ') FROM (SELECT id
			FROM items ORDER BY val <-> '[7,0,7,1]' LIMIT 3) s");
	}

	my sub exact
	{
		my ($db) = @_;

		return ask($db, "SET enable_indexscan = off; SELECT string_agg(id::text, ' ')
			FROM (SELECT id
			FROM items ORDER BY val <-> '[7,0,7,1]' LIMIT 3) s");
	}

	my sub state_in
	{
		my ($db) = @_;

		return $node->sql(
			"SELECT coalesce(max(state), 'absent') FROM gpugraph_stat_index WHERE datname = '$db'");
	}

	my sub counted
	{
		my ($db) = @_;

		return $node->sql("SELECT coalesce(sum(queries_gpu + queries_cpu), 0)
			FROM gpugraph_stat_index WHERE datname = '$db'");
	}

	is($node->safe_psql('first', "SELECT 'items_idx'::regclass::oid"),
		$node->safe_psql('second', "SELECT 'items_idx'::regclass::oid"), 'the same OID');
	ask($_, "SELECT gpugraph_prewarm('items_idx')") for qw(first second);
	is(join(' ', map { state_in($_) } qw(first second)), 'ready ready', 'both are on the device');
	is(nearest($_), exact($_), "$_: its own rows") for qw(first second);
	isnt(nearest('first'), nearest('second'), 'which are others');

	my $before = counted('first');
	nearest('second');
	is(counted('first'), $before, 'queries of one do not count for the other');
	is(ask('second', "SELECT gpugraph_evict('items_idx')"), 't', 'one is evicted');
	isnt(state_in('second'), 'ready', 'it is gone');
	is(state_in('first'), 'ready', 'the other one stays');
	is(nearest($_), exact($_), "$_: its own rows still") for qw(first second);

	# an index of fewer rows where a larger one was
	ask('second', 'DELETE FROM items WHERE id < -50; REINDEX INDEX items_idx');
	ask('second', "SELECT gpugraph_prewarm('items_idx')");
	is(ask('second', 'SET enable_seqscan = off; SELECT count(*) || \' \' || max(id) FROM (SELECT id
		FROM items ORDER BY val <-> \'[7,0,7,1]\' LIMIT 1000) s'), '50 -1',
		'who asks beyond the rows gets no others');
	is(ask('second', "SELECT count(*) FROM gpugraph_search('items_idx', '{\"[7,0,7,1]\"}'::vector[],
		100)"), '50', 'nor does gpugraph_search');

	# what one owner drops is the other's still
	ask('second', 'DROP TABLE items');
	is(nearest('first'), exact('first'), 'after the table of the other one was dropped');
	like(ask('second', 'SELECT * FROM gpugraph_stat_index'), qr/permission denied/,
		'an owner does not see indexes of the other database');
	like(ask('second', 'SELECT gpugraph_stat_reset()'), qr/permission denied/,
		'nor resets counters');
	$node->sql('DROP DATABASE second');
	is(nearest('first'), exact('first'), 'after the other database was dropped');
};

# A backend's slot outlives whatever happens to the two who share it: a backend that is held up
# while the worker is replaced, a worker that is held up while backends wait.
subtest service_slots => sub {
	my $node = service_node('others');
	make_items($node, 4000, 16);
	$node->sql("SELECT gpugraph_prewarm('items_idx')");

	my sub replace_worker
	{
		my $pid = of_device($node, 'pid');

		kill 'TERM', $pid;
		wait_for(sub { my $now = of_device($node, 'coalesce(pid, 0)'); return $now != 0
			&& $now != $pid; });
		is(wait_for_state($node, 'ready'), 'ready', 'the worker was replaced');
		return;
	}

	# ---- held up from before the answer until after the next worker's start, which calls the query
	# failed
	{
		set_fault($node, 'stall');
		my $session = start_psql($node, 'SET enable_seqscan = off', 'SET gpugraph.engine = cuda',
			'SET gpugraph.fault = stall',
			$nearest, 'SET gpugraph.fault = none', $nearest, $nearest);
		my $pid = waiting_pid($node);
		my $batches = of_device($node, 'batches');

		kill 'STOP', $pid;
		set_fault($node);
		ok_in_time(sub { of_device($node, 'batches') > $batches },
			'a backend is held up while the device answers');
		replace_worker();
		kill 'CONT', $pid;
		is(finish_psql($session), '',
			'it gets its answer, and the device answers its next queries');
		is($session->{out}, "10\n10\n10\n", 'all of them');
	}

	# ---- the worker is held up: a query is given up, the next ones of its session do not wait
	{
		my $worker = of_device($node, 'pid');
		my $counts = 'queries_cpu, cpu_failed, cpu_busy';
		my @before = split /\|/, of_index($node, $counts);

		kill 'STOP', $worker;
		is($node->sql("SET enable_seqscan = off; $nearest"), 10,
			'a worker that hangs: the CPU answers');
		is(of_index($node, 'cpu_failed') - $before[1], 1, 'the query waited, and was given up');

		# the first of them has its slot still
		my $session = start_psql($node, 'SET enable_seqscan = off', ($nearest) x 4);
		finish_psql($session);
		is($session->{out}, "10\n10\n10\n10\n", 'and the next queries');
		my @after = split /\|/, of_index($node, $counts);
		my ($cpu, $waited, $busy) = map { $after[$_] - $before[$_] } 0 .. 2;
		is($cpu, 5, 'all counted');
		cmp_ok($waited, '<=', 2, 'of which one waits at most');
		is($waited + $busy, 5, 'and the others find their slot taken');
		kill 'CONT', $worker;
		ok_in_time(sub { $node->sql(
			"SET enable_seqscan = off; $nearest"); return truth($node) eq '1.0000 20 0' },
			'the worker goes on: the device answers');
	}

	# ---- CREATE INDEX hands its index over, but waits only so long for a worker that is held up
	{
		my $worker = of_device($node, 'pid');

		kill 'STOP', $worker;
		is(($node->psql('postgres',
			"SET statement_timeout = '60s';
			CREATE INDEX more_idx ON items USING gpugraph (val vector_ip_ops)"))[0], 0,
			'CREATE INDEX ends');
		kill 'CONT', $worker;
		ok_in_time(sub { state_of($node, 'more_idx') eq 'absent' }, 'the worker forgets the load');
		$node->sql("SELECT gpugraph_prewarm('more_idx')");
		is(state_of($node, 'more_idx'), 'ready', 'the index can be loaded');
		$node->sql('CREATE INDEX another_idx ON items USING gpugraph (val vector_l1_ops)');
		is(state_of($node, 'another_idx'), 'ready', 'and the next one is handed over');
	}

	is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
};

# What a scan remembers of a device copy never names another copy: not after the worker was
# replaced, however many copies were made before and since.
subtest service_stale => sub {
	# always the CPU engine, whose sizes, ties and number of devices are the same everywhere
	my $node = service_node('others',
		conf => "gpugraph.service_engine = cpu\ngpugraph.itopk_size = 64\n");
	make_items($node, 12000, 16);
	unserved {
		$node->sql("SELECT make_data('other', 12000, 16, 40);
			CREATE INDEX other_idx ON other USING gpugraph (val vector_l2_ops)");
	};

	my sub load { return $node->sql("SELECT gpugraph_prewarm('$_[0]_idx')") }
	my sub evict { return $node->sql("SELECT gpugraph_evict('$_[0]_idx')") }
	my sub load_often
	{
		my ($n, $rel) = @_;
		return $node->sql(join ';',
			("SELECT gpugraph_evict('${rel}_idx')", "SELECT gpugraph_prewarm('${rel}_idx')") x $n);
	}

	# ---- a cursor that asks its copy for more after the next worker has made as many copies
	# the first of them by CREATE INDEX
	load_often(19, 'items');
	is(of_device($node, 'loads'), 20, '20 copies were made');

	my ($in, $out, $err) = ('', '', '');
	my $session = IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d',
		$node->connstr('postgres') ],
		'<', \$in, '>', \$out, '2>', \$err);
	$in .= <<'SQL';
SET enable_seqscan = off;
CREATE TEMP TABLE got (n serial, id int);
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1);
FETCH 5 FROM c;
\echo fetched
SQL
	ok_in_time(sub { $session->pump_nb; return $out =~ /fetched/; }, 'a cursor is open');

	# the entry is taken by another index, whose load fails, so that the next worker finds no copy's
	# number in the table
	evict('items');
	$node->psql('postgres', "SET gpugraph.fault = load; SELECT gpugraph_prewarm('other_idx')");
	is(of_index($node, 'state', 'other_idx'), 'failed', 'the entry is another\'s');
	my $pid = of_device($node, 'pid');
	kill 'TERM', $pid;
	ok(replaced_worker($node, $pid), 'the next worker is there');
	# as many copies as before: the last one would have the number that the cursor remembers
	evict('items');
	load_often(20, 'other');
	is(of_index($node, 'state', 'other_idx'), 'ready', 'copies of the other index are made');

	$out = '';
	$in .= "FETCH 195 FROM c;\n\\echo done\n";
	ok_in_time(sub { $session->pump_nb; return $out =~ /done/; }, 'the cursor goes on');
	my @by_cursor = grep { /^\d+$/ } split /\n/, $out;
	$in .= "\\q\n";
	$session->finish;
	my @all = split /\n/, $node->sql('SET enable_seqscan = off; SET gpugraph.engine = cpu;
		SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 200');
	is("@by_cursor", "@all[5 .. 199]", 'with its own rows, in order');

	# ---- a database is dropped and made again, with the number and the template that it had: the
	# same files, instances and generations
	{
		$node->sql('CREATE DATABASE template_for_it');
		$node->safe_psql('template_for_it', <<'SQL');
CREATE EXTENSION vector;
CREATE EXTENSION gpugraph;
CREATE TABLE rows (id int, val vector(4));
CREATE INDEX rows_idx ON rows USING gpugraph (val vector_l2_ops);
SQL
		my $make = 'CREATE DATABASE again OID = 99999 TEMPLATE template_for_it';
		my $ask =
			"SET enable_seqscan = off; SELECT id FROM rows ORDER BY val <-> '[7, 0, 0, 0]' LIMIT 1";

		$node->sql($make);
		$node->safe_psql('again',
			"INSERT INTO rows SELECT i, ARRAY[i, 0, 0, 0]::vector FROM generate_series(1, 9000) i");
		cmp_ok($node->safe_psql('again', "SELECT gpugraph_prewarm('rows_idx')"), '>', 0,
			'an index of a database is loaded');
		is($node->safe_psql('again', $ask), 7, 'and answers');

		# held up, the worker cannot see that the files were gone for a moment
		my $worker = of_device($node, 'pid');
		kill 'STOP', $worker;
		$node->sql('DROP DATABASE again');
		$node->sql($make);
		$node->safe_psql('again',
			"INSERT INTO rows SELECT i, ARRAY[9001 - i, 0, 0, 0]::vector
			FROM generate_series(1, 9000) i");
		kill 'CONT', $worker;
		is($node->safe_psql('again', $ask), 8994, 'a database with the same number: its own rows');
		ok_in_time(
				sub {
					$node->safe_psql('again', $ask);
					return $node->safe_psql('again',
						"SELECT state FROM gpugraph_stat_index
						WHERE relid = 'rows_idx'::regclass AND datname = 'again'") eq 'ready';
				},
			'its index is loaded');
		is($node->safe_psql('again', "SET gpugraph.engine = cuda; $ask"), 8994, 'and answers');
		is($node->sql('SELECT count(*) FROM gpugraph_stat_index WHERE datname = \'again\''), 1,
			'the old copy is gone');
	}

	is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
};

# A host with a device that cannot be used, an old one say, beside one that can: the one works as if
# it were alone, and the log says once what is wrong with the other.
subtest service_old_device => sub {
	my $node = service_node('others', conf => <<'CONF');
gpugraph.service_engine = cpu
gpugraph.devices = '0,1'
gpugraph.fault = old_device
CONF

	make_items($node, 4000, 16);
	$node->sql("SELECT gpugraph_prewarm('items_idx')");
	is(of_index($node, "device || ' ' || state"), '0 ready',
		'the index is on the device that works');
	truth_by_device($node, 'beside the other one');
	ok_in_time(sub { $node->sql(
		'SELECT restarts FROM gpugraph_stat_device WHERE device = 1') >= 2 },
		'the other one is tried again');
	is($node->sql("SELECT state || ': ' || last_error FROM gpugraph_stat_device WHERE device = 1"),
		'broken: gpugraph.fault: device 1 is too old', 'the view says what is wrong with it');
	is(log_lines($node, qr/LOG: .*gpugraph device 1 cannot be used: device 1 is too old/), 1,
		'the log says it once');
	is(log_lines($node, qr/HINT: .*answered by other devices, or by the CPU/), 1,
		'and who answers');
	truth_by_device($node, 'later');
	$node->stop;
};

done_testing();
