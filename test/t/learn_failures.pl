# Calls of gpugraph_learn() that end early, and damage to what it keeps.
use Gpugraph;
use Format;
use Merging;
use Time::HiRes qw(time);

# gpugraph_learn() shows how far it is, and statement_timeout at whatever point leaves index and
# sample as they were, as it does where gpugraph_forget() is cancelled.
subtest learn_cancel => sub {
	my $node = new_node('learn');
	make_source($node, 6000, 16, 'seal_rows = 0, graph_degree = 16, segment_rows = 2500');
	make_learn($node, 3000);

	# what a call that fails must not change
	my sub state_of
	{
		return join ' ', merge_info($node, 'generation'), answers($node),
			merge_info($node, 'sample_queries');
	}

	# progress, seen every 5 ms from another session, which is there before it begins
	my $watcher = start_psql($node, <<'CREATE', <<'WATCH', <<'SUM');
CREATE TEMP TABLE seen (n serial, command text, phase text, done bigint, total bigint)
CREATE
DO $$
BEGIN
	FOR i IN 1 .. 20000 LOOP
		PERFORM pg_stat_clear_snapshot();
		INSERT INTO seen (command, phase, done, total)
			SELECT command, phase, tuples_done, tuples_total FROM pg_stat_progress_create_index
			WHERE index_relid = 'items_idx'::regclass AND relid = 'items'::regclass;
		EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_progress_create_index)
			AND EXISTS (SELECT FROM seen);
		PERFORM pg_sleep(0.005);
	END LOOP;
END $$
WATCH
SELECT count(*) > 5, count(DISTINCT done) > 5, bool_and(done <= total), max(total),
	bool_and(command IS NULL),
	(SELECT count(*) FROM (SELECT done - lag(done) OVER (ORDER BY n) AS step FROM seen
		WHERE phase ~ 'learning') s WHERE step < 0)
	FROM seen WHERE phase = 'building index: learning edges'
SUM
	isnt(backend_pid($node, 'FOR i IN 1 .. 20000'), '', 'somebody watches');
	$node->sql('SET max_parallel_maintenance_workers = 0; SELECT learn()');
	is(finish_psql($watcher), '', 'until it is over');
	my $seen = $watcher->{out} =~ s/\n$//r;
	is($seen, 't|t|t|6000|t|0', 'the rows that are measured are counted');
	is($node->sql('SELECT count(*) FROM pg_stat_progress_create_index'), 0,
		'nothing is shown afterwards');
	$node->sql("SELECT gpugraph_forget('items_idx')");

	# how long it takes; what it does is undone
	my $start = time;
	$node->sql('SELECT learn()');
	my $ms = 1000 * (time - $start);
	$node->sql("SELECT gpugraph_forget('items_idx')");
	my $before = state_of();
	my $generation = merge_info($node, 'generation');
	my $cancelled = 0;

	for my $step (1 .. 16)
	{
		my $timeout = 1 + int($ms * $step / 16);
		my ($rc, $out, $err) =
			$node->psql('postgres', "SET statement_timeout = $timeout; SELECT learn()");

		if ($rc == 0 || merge_info($node, 'generation') != $generation)
		{
			# it had all but ended: what it learned is there
			last if $cancelled > 5 || $timeout == 1;
			# the machine was busier when it was measured: that long it takes at most
			$ms = $timeout;
			$node->sql("SELECT gpugraph_forget('items_idx')");
			$before = state_of();
			$generation = merge_info($node, 'generation');
			redo;
		}
		$cancelled++;
		like($err, qr/canceling statement due to statement timeout/, "cancelled after $timeout ms");
		is(state_of(), $before, 'and all is as it was') if $step % 3 == 0;
	}
	cmp_ok($cancelled, '>', 5, 'some were cancelled');

	# and forgetting
	$node->sql('SELECT learn()');
	$before = state_of();
	for my $step (1 .. 4)
	{
		my ($rc) = $node->psql('postgres', 'SET statement_timeout = ' . (10 * $step)
			. "; SELECT gpugraph_forget('items_idx')");

		last if $rc == 0;
		is(state_of(), $before, 'forgetting is cancelled');
	}
	index_is_complete($node, 'at the end');
};

# Damage to the sample that an index learns from: gpugraph_check() names it, what reads it gives an
# error, searches go on unless the directory itself is bad, and REINDEX mends the index, with a
# warning that the sample is lost.
subtest learn_corrupt => sub {
	# An extent of the sample, in the metapage: overwrite bytes of it.
	my sub patch_extent
	{
		my ($file, $offset, $bytes) = @_;
		my $d = read_directory($file);
		my ($i) = grep { $d->{extents}[$_][3] == SAMPLE } 0 .. $#{ $d->{extents} };

		patch($file, META, $d->{extents_at} + $i * EXTENT + $offset, $bytes);
		return;
	}

	my sub empty_page { my ($file) = @_; write_page($file, block_of($file, SAMPLE, 1),
		"\0" x PAGE); }

	# Name => [what to do to the file, what is said, 1: the directory itself is bad]
	my %cases = (
		dimensions => [ sub { patch($_[0], SAMPLE, 0, pack 'L', 40) }, qr/300 queries of 40 dim/ ],
		no_dimensions => [ sub { patch($_[0], SAMPLE, 0, pack 'L', 0) }, qr/of 0 dimensions/ ],
		many => [ sub { patch($_[0], SAMPLE, 4, "\xFF" x 4) }, qr/4294967295 queries/ ],
		none => [ sub { patch($_[0], SAMPLE, 4, pack 'L', 0) }, qr/a sample of 0 queries/ ],
		edges => [ sub { patch($_[0], SAMPLE, 8, pack 'L', 60000) }, qr/with 60000 edges/ ],
		stamp => [ sub { patch_stamp($_[0], SAMPLE, 8, pack 'L', 1) },
			qr/segment 1 instead|of segment/ ],
		kind => [ sub { patch_stamp($_[0], SAMPLE, 16, pack 'S', TIDS) },
			qr/kind 13|instead of sample/ ],
		second_page => [ \&empty_page, qr/empty, where page 1 of sample|page is not number 1/ ],
		owner => [ sub { patch_extent($_[0], 8, pack 'L', 77) }, qr/the sample is number 77/, 1 ],
		number => [ sub { patch_extent($_[0], 16, pack 'Q', 1) },
			qr/starts with page 1 of kind 13/, 1 ],
		outside => [ sub { patch_extent($_[0], 0, pack 'L', 5000) },
			qr/the directory goes on to block \d+ of \d+/, 1 ],
		freed => [ sub { patch_extent($_[0], 12, pack 'S', FREE) },
			qr/is of kind 8, and belongs to segment/, 1 ],
		# blocks that are free in all respects: an index that never had a sample looks the same
		lost => [ sub { patch_extent($_[0], 8, pack 'L S', NO_SEGMENT, FREE) }, undef ]);

	my @names = sort keys %cases;
	my $node = new_node('learn');
	my %file;
	$node->sql("SELECT make_data('source', 600, 16, 20);
		SELECT make_data('asked', 300, 16, 7)");
	for my $name (@names)
	{
		$node->sql("CREATE TABLE $name AS SELECT * FROM source;
			CREATE INDEX ${name}_idx ON $name USING gpugraph (val vector_l2_ops)
				WITH (graph_degree = 8, seal_rows = 100);
			SELECT gpugraph_learn('${name}_idx', array_agg(val), 4) FROM asked");
		$file{$name} = index_file($node, "${name}_idx");
	}
	$node->stop;
	$cases{$_}[0]->($file{$_}) for @names;
	$node->start;

	for my $name (@names)
	{
		my (undef, $said, $bad) = @{ $cases{$name} };
		my $index = "'${name}_idx'";

		my @calls = ("gpugraph_check($index)", "gpugraph_learn($index, array_agg(val), 4)");
		for my $what ($said ? @calls : ())
		{
			my ($rc, undef, $err) = $node->psql('postgres',
				"\\set VERBOSITY verbose\nSELECT $what FROM asked WHERE id < 100 GROUP BY id < 0");

			like($err, $said, "$name: $what");
			like($err, qr/XX00[12]/, "$name: its SQLSTATE");
		}
		my ($rc, $out, $err) = $node->psql('postgres', "SET enable_seqscan = off;
			SELECT count(*) FROM (SELECT id FROM $name ORDER BY val <-> (SELECT val FROM source
				WHERE id = 5) LIMIT 5) s");
		is($bad ? $err =~ /$said/ : $out, $bad ? 1 : 5, "$name: a search");
		($rc, undef, $err) = $node->psql('postgres', "REINDEX INDEX ${name}_idx");
		is($rc, 0, "$name: REINDEX");
		my $warning = qr/WARNING:  the sample of queries of index "${name}_idx" cannot be read/;
		like($err, $said ? qr/$warning\nDETAIL: .*\nHINT/ : qr/^$/, "$name: it tells what is lost");
		is($node->sql("SELECT sample_queries FROM gpugraph_index_info($index)"), 0,
			"$name: there is no sample");
		index_is_complete($node, $name, $name);
	}
	unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC/, 'no process crashed');
	$node->stop;
};

done_testing();
