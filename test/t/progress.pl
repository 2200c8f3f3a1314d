# pg_stat_progress_create_index shows a build's phases, each with counts that grow up to their
# total.  On a GPU, CANCEL_ROWS of CANCEL_DIM dimensions take long enough to be watched.
use Gpugraph;

my $node = new_node('progress', conf => "maintenance_work_mem = 1GB\n");
make_many_items($node, $ENV{CANCEL_ROWS} || 10000, $ENV{CANCEL_DIM} || 64);

# Sample a build in another session, which is there before it begins, every 5 ms, and test what was
# seen.
sub watch
{
	my ($workers) = @_;
	my $watcher = start_psql($node, <<'CREATE', <<'WATCH', <<'SUM');
CREATE TEMP TABLE samples (n serial, phase text, done bigint, total bigint)
CREATE
DO $$
BEGIN
	FOR i IN 1 .. 20000 LOOP
		PERFORM pg_stat_clear_snapshot();
		-- phases that write or sync pages count blocks
		INSERT INTO samples (phase, done, total)
			SELECT phase, CASE WHEN pages THEN blocks_done ELSE tuples_done END,
				CASE WHEN pages THEN blocks_total ELSE tuples_total END
			FROM pg_stat_progress_create_index,
				LATERAL (SELECT phase ~ 'writing|syncing' AS pages) p;
		EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_progress_create_index)
			AND EXISTS (SELECT FROM samples);
		PERFORM pg_sleep(0.005);
	END LOOP;
END $$
WATCH
SELECT phase, count(*), min(done), max(done), max(total),
	count(*) FILTER (WHERE done > total AND phase !~ 'loading'),
	min(n),
	(SELECT count(*)
	FROM (SELECT done - lag(done) OVER (ORDER BY n) AS step FROM samples b
	WHERE b.phase = a.phase) s WHERE step < 0)
FROM samples a GROUP BY phase ORDER BY min(n)
SUM

	isnt(backend_pid($node, 'FOR i IN 1 .. 20000'), '', "$workers workers: somebody watches");
	is(($node->psql('postgres', "SET max_parallel_maintenance_workers = $workers;
		SET min_parallel_table_scan_size = 0;
		CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)"))[0], 0,
		"$workers workers: the build succeeds");
	is(finish_psql($watcher), '', "$workers workers: it was watched to its end");
	my $samples = $watcher->{out};
	note $samples;
	my %seen;
	my @order;
	for my $line (split /\n/, $samples)
	{
		my ($phase, $count, $min, $max, $total, $beyond, $first, $back) = split /\|/, $line;

		next unless $phase =~ s/^building index: //;
		$seen{$phase} = 1;
		push @order, $phase;
		is($beyond, '0', "$workers workers, $phase: never beyond the total") if $phase !~ /loading/;
		cmp_ok($back, '<=', 1, "$workers workers, $phase: does not go back");
		# a GPU's driver may take seconds to start
		cmp_ok($total, '>', 0, "$workers workers, $phase: has a total")
			if $count > 3 && $phase ne 'initializing';
	}
	ok((grep { $seen{$_} } 'finding first neighbors', 'refining neighbors', 'selecting edges'),
		"$workers workers: the graph phases are shown");
	my @known = ('initializing', 'loading vectors', 'removing duplicates',
		'copying vectors to the device',
		'finding first neighbors', 'refining neighbors', 'selecting edges',
		'connecting the graph', 'writing index', 'syncing index');
	my %rank = map { $known[$_] => $_ } 0 .. $#known;
	# a GPU has its copy before duplicates are removed, and the rest of it after that
	$rank{'copying vectors to the device'} = $rank{'removing duplicates'};
	is(join(', ', grep { !defined $rank{$_} } @order), '',
		"$workers workers: all phases have known names");
	is(join(', ', @order), join(', ', sort { ($rank{$a} // 0) <=> ($rank{$b} // 0) } @order),
		"$workers workers: they come in order");
	cmp_ok(scalar @order, '>=', 3, "$workers workers: several phases were seen");
	$node->sql('DROP INDEX items_idx');
	return;
}

watch(0);
watch(2);

finish_test($node);
