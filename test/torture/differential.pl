# Random statements beside the plain plan, and beside distances that the test computes itself.
#
# A round makes a table of its own, with an index, and runs statements, between which rows, options,
# settings and partitions change; beside some another session merges, vacuums or learns, and may
# rest where that is half done. A row's vector has a number (vid) that only the test can resolve, so
# distances never come from the server. Of each statement:
#	- rows are different ones, as many as by the plain plan, and fulfil the conditions as it sees
#	  them; none is nearer than the plain plan's at its place
#	- distances are in order, but under relaxed_order
#	- where every row was measured (gpugraph_last_scan), distances are those of the plain plan
#	- else the share of near rows found is summed up, and has to reach @floors
# A condition on the distance ends a scan in its order, whose rows then are as good as a search: it
# may have fewer of them, which counts against that share. Without such an order, rows are exactly
# those of the plain plan.
# What README's Limits say is known here: NULL vectors, zero vectors under cosine, ties, and fewer
# rows under iterative_scan = off.
use strict;
use warnings;

use List::Util qw(max min sum0);
use PostgreSQL::Test::Utils;
use Test::More;

use Draw;
use Gpugraph;
use Residency;
use Torture;

# Statements of a round.
use constant STATEMENTS => $ENV{TORTURE_STATEMENTS} || 300;

# The recall that is asked, by what the index has and how long the list is: the first that matches.
# Codes of few dimensions lose rows, as README says, and so do those of rows that lie farther from
# the origin than from each other.
my @floors = (
	[ qr/few dimensions|far from the origin/, undef ],
	[ qr/tsdg_small|tsdg_large/, 0.5 ],
	[ qr/codes .*itopk 64/, 0.92 ],
	[ qr/codes .*itopk 32/, 0.85 ],
	[ qr/codes/, 0.6 ],
	[ qr/vectors .*itopk 64/, 0.95 ],
	[ qr/vectors .*itopk 32/, 0.90 ],
	[ qr//, 0.7 ]);
my @switches = qw(bitmap_filter distance_bound partition_search range_search rank_order read_ahead
	semi_joins sort_keys told_sets unread_distance);
# Of fewer rows that were to be found a share says nothing.
use constant MOST_UNJUDGED => 400;

my $node = service_node('differential', conf => <<'CONF');
log_statement = none
max_locks_per_transaction = 500
max_prepared_transactions = 5
max_parallel_workers = 2
gpugraph.itopk_size = 64
gpugraph.autoprewarm = off
CONF
my ($c, $w);	# the session, and one that writes meanwhile
my ($m, $holder, $beside);	# one that merges and vacuums beside it; who holds it where it rests
my ($schema, @leaves, %count, %recall, %prepared, @wrong, $form);
my ($nstatements, $refused) = (0, 0);

sub connect_both
{
	($c, $w, $m, $holder) = map { connect_to($node) } 1 .. 4;
	undef $beside;
	query($_, "SET statement_timeout = '60s'; SET client_min_messages = warning;
		SET search_path = r, public; SET timezone = 'Europe/Berlin'") for $c, $w, $m;
	return;
}

query(connect_to($node), 'CREATE ROLE reader; CREATE ROLE nobody');

# ---- a statement

sub settings
{
	my %set;

	$set{'gpugraph.itopk_size'} = one_of(8, 8, 16, 16, 16, 32, 32, 64, 64, 128);
	$set{'gpugraph.iterative_scan'} = weighted(strict_order => 6, relaxed_order => 2, off => 1);
	$set{'gpugraph.max_scan_tuples'} = one_of(1, 30, 300) if chance(0.2);
	$set{'gpugraph.search_mode'} = one_of('single_cta', 'multi_cta', 'tsdg_small', 'tsdg_large')
		if chance(0.15);
	$set{'gpugraph.rerank_size'} = one_of(10, 100, 500) if chance(0.1);
	$set{'gpugraph.engine'} = one_of('cpu', 'cuda', 'auto') if chance(0.5);
	$set{'gpugraph.disable'} = join ', ', sample_of(0.15, @switches);
	$set{$_} = 'off' for sample_of(0.08, qw(enable_nestloop enable_hashjoin enable_mergejoin
		enable_bitmapscan enable_material enable_memoize));
	if (chance(0.8))
	{
		$set{enable_seqscan} = 'off';
		$set{enable_sort} = 'off';
	}
	if (chance(0.08))
	{
		$set{$_} = 0 for qw(parallel_setup_cost parallel_tuple_cost min_parallel_table_scan_size
			min_parallel_index_scan_size);
	}
	$set{work_mem} = '64kB' if chance(0.1);
	return \%set;
}

sub set_local
{
	my ($set) = @_;
	return join '', map { "SET LOCAL $_ = '$set->{$_}'; " } sort keys %$set;
}

# Without pruning, since 18 takes an Append of one partition for enabled, whatever is below.
my $plain = 'SET LOCAL enable_indexscan = off; SET LOCAL enable_seqscan = on;
	SET LOCAL enable_sort = on; SET LOCAL enable_bitmapscan = off;
	SET LOCAL enable_partition_pruning = off; SET LOCAL gpugraph.disable = partition_search; ';

# What a table expression is called, and conditions that it brings.
sub source
{
	return weighted(
		't' => 10,
		'ONLY t' => ($schema->{parted} ? 0 : 0.5),
		't JOIN dim ON dim.k = t.i4' => 1,
		't LEFT JOIN dim ON dim.k = t.i4' => 0.5,
		'open_view t' => 0.7,
		'barrier_view t' => 0.7);
}

# The text of a statement; or of all its rows, with another condition; or of their count.
sub text_of
{
	my ($s, %with) = @_;
	my @conditions = (@{ $s->{conditions} }, $with{also} ? $with{also} : ());
	my $where = @conditions ? ' WHERE ' . join(' AND ', @conditions) : '';

	return "SELECT count(*) FROM $s->{source}$where" if $with{count};
	my $d = $s->{swapped} ? "($s->{query_sql} $operator{ $schema->{metric} } t.v)" :
		"(t.v $operator{ $schema->{metric} } $s->{query_sql})";
	my $order = ' ORDER BY ' . ($s->{rank} ? 'r' : sprintf $s->{key}, $d);
	my $sql;

	my $distance = $s->{distance} ? ", t.v $operator{ $schema->{metric} } $s->{query_sql} AS d" :
		'';
	$distance .= ", $s->{rank}() OVER (ORDER BY " . sprintf($s->{key}, $d) . ') AS r' if $s->{rank};
	$sql = "SELECT t.id, t.vid$distance FROM $s->{source}$where$order"
		. ($with{also} ? '' : " $s->{end}");
	$sql = sprintf $s->{wrap}, $sql if $s->{wrap} && !$with{also};
	return $sql;
}

# The condition that a distance is below that of some row, as people write it.
sub draw_bound
{
	my ($s) = @_;
	my @distances = sort { $a <=> $b } grep { defined }
		map { distance($schema, vector_of(number($schema->{rows})), $s->{query}) } 1 .. 40;
	my $d = "(t.v $operator{ $schema->{metric} } $s->{query_sql})";

	return if !@distances;
	my $r = sprintf '%.5f', $distances[ $#distances * rand() ** 2 ];
	my $rest = sprintf '%.5f', 1 - $r;
	my $less = sprintf '%.5f', -$r;
	return one_of("$d < $r", "$d <= $r", "$r > $d", "1 - $d > $rest", "$d * -1 >= $less",
		"-$d > $less", "round(${d}::numeric, 4) <= $r", "${d}::real < ${r}::real",
		"$d BETWEEN -1000 AND $r", "$d < (SELECT $r)::float8", "(2 - $d) / 2 > (1 + $rest) / 2",
		"NOT 3 + $d > 3 + $r", "1 - ${d}::numeric(20, 5) >= $rest");
}

# A condition by rows of another table: a semi-join, or what is none.
sub draw_set
{
	my $of_dim = one_of('name < 5', 'name = 3', 'name < 7 AND k < 40', 'k < 0', 'true');
	my $column = one_of('k', 'k::bigint', 'nullif(k, 7)');

	return one_of("t.i4 IN (SELECT $column FROM dim WHERE $of_dim)",
		"EXISTS (SELECT FROM dim d WHERE d.k = t.i4 AND $of_dim)",
		"EXISTS (SELECT 1 FROM dim d WHERE t.i4 = d.k AND t.grp < d.name AND $of_dim)",
		"t.i4 = ANY (SELECT k FROM dim JOIN (SELECT k + 1 AS k FROM dim) d USING (k)
			WHERE $of_dim)",
		"t.grp IN (SELECT name FROM dim WHERE $of_dim)",
		"t.i4 IN (SELECT k FROM dim WHERE $of_dim UNION SELECT 3)",
		"t.i4 IN (SELECT max(k) FROM dim WHERE $of_dim GROUP BY name)",
		"t.i4 NOT IN (SELECT k FROM dim WHERE $of_dim)",
		"NOT EXISTS (SELECT FROM dim d WHERE d.k = t.i4 AND $of_dim)",
		"t.i4 IN (SELECT k FROM dim WHERE $of_dim ORDER BY k LIMIT 5)",
		"(t.i4 IN (SELECT k FROM dim WHERE $of_dim) OR t.grp = 2)");
}

# What rises or falls with the distance, and is as fine as the distance.
sub draw_key
{
	return '%s' if chance(0.6);
	return one_of('1 - %s DESC', '%s * -1 DESC', '(2 - %s) / 2 DESC', '1 + %s', '-%s DESC',
		'%s::real', '%s::numeric', '1 - %s DESC NULLS LAST', '%s NULLS FIRST', '%s, t.id',
		'1 - %s DESC, t.id', '%s, t.grp, t.id DESC', '%s::numeric * -2 DESC', '%s DESC', '1 - %s');
}

sub draw_statement
{
	my %s = (conditions => [ map { draw_condition($schema) }
		1 .. weighted(0 => 4, 1 => 4, 2 => 2, 3 => 1) ]);
	my $limit = weighted(1 => 2, 3 => 2, 10 => 6, 20 => 3, 50 => 2, 150 => 1, 5000 => 0.5);

	$s{source} = source();
	push @{ $s{conditions} }, draw_set() if chance(0.2);
	push @{ $s{conditions} }, 'dim.name ' . one_of('< 5', '= 3', 'IN (2, 4)', '> 0')
		if $s{source} =~ /dim/ && chance(0.7);
	push @{ $s{conditions} }, 'grp < 4' if $schema->{partial} && chance(0.8);
	@{ $s{conditions} } = map { /^grp/ ? "t.$_" : $_ } @{ $s{conditions} };
	$s{query} = draw_query($schema);
	$s{query_sql} = vector_literal($schema, $s{query});
	if (chance(0.15))
	{
		my $q = number(10);

		$s{query} = $schema->{queries}[$q];
		$s{query_sql} = "(SELECT v FROM qs WHERE q = $q)";
	}
	if (chance(0.25) && (my $bound = draw_bound(\%s)))
	{
		push @{ $s{conditions} }, $bound;
		$s{bound} = 1;
	}
	$s{swapped} = chance(0.1);
	$s{key} = draw_key();
	# the farthest first: by the plain plan
	$s{farthest} = $s{key} =~ /^%s DESC$|^1 - %s$/;
	$s{distance} = chance(0.5);
	$s{limit} = $limit;
	$s{end} = "LIMIT $limit";
	$s{offset} = 0;
	my $draw = rand();
	if ($draw < 0.05) { $s{end} = "FETCH FIRST $limit ROWS WITH TIES"; $s{ties} = 1 }
	elsif ($draw < 0.15) { $s{offset} = one_of(1, 5, 30); $s{end} .= " OFFSET $s{offset}" }
	elsif ($draw < 0.2) { $s{end} = ''; $s{limit} = 1e9 }
	elsif ($draw < 0.24) { $s{end} = "LIMIT (SELECT $limit)" }
	elsif ($draw < 0.28 && $s{source} =~ /^(ONLY )?t$/)
	{
		$s{end} .= one_of(' FOR UPDATE', ' FOR SHARE', ' FOR UPDATE OF t SKIP LOCKED');
	}
	elsif ($draw < 0.33) { $s{wrap} = 'WITH x AS MATERIALIZED (%s) SELECT * FROM x' }
	elsif ($draw < 0.36) { $s{wrap} = 'SELECT * FROM (%s) x WHERE x.vid >= 0' }
	elsif ($draw < 0.42)
	{
		$s{rank} = one_of('row_number', 'rank', 'dense_rank');
		$s{distance} = 1;
	}
	$s{role} = chance(0.12);
	$s{set} = settings();
	$s{isolation} = one_of('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE');
	return \%s;
}

sub distances_of
{
	my ($s, $rows, $query) = @_;
	$query //= $s->{query};

	return map { distance($schema, vector_of($_->[1]), $query) } @$rows;
}

# Rows that have a distance: others come last in a plain order, and not at all from the index.
sub with_distance
{
	my ($s, $rows) = @_;
	my @distances = distances_of($s, $rows);
	my @which = grep { defined $distances[$_] } 0 .. $#distances;

	return ([ @{$rows}[@which] ], [ @distances[@which] ]);
}

sub complain
{
	my ($s, $what, @more) = @_;

	push @wrong, "$what\n\t" . join("\n\t", set_local($s->{set} // {}), $s->{sql} // text_of($s),
		"index: " . index_sql($schema), @more);
	return;
}

# Compare rows by the index with those of the plain plan; $exact: every row was measured. Returns
# what share of the near ones was found, as two numbers.
sub compare
{
	my ($s, $got, $expected, $exact) = @_;
	my ($rows, $d) = with_distance($s, $got);
	my ($plain_rows, $plain_d) = with_distance($s, $expected);
	my $tolerance = tolerance($schema, $s->{query});
	my $off = ($s->{set}{'gpugraph.iterative_scan'} // '') eq 'off';
	my %seen;

	$seen{ $_->[0] }++ for @$got;
	my @twice = grep { $seen{$_} > 1 } sort keys %seen;
	complain($s, "rows twice: @twice") if @twice;

	# a LIMIT that NULLs filled up has fewer that count
	my $short = @$plain_rows - @$rows;
	if ($s->{ties}) { $short = min(scalar @$plain_rows, $s->{limit}) - @$rows }
	elsif ($short < 0 && @$expected == @$got) { $short = 0 }
	complain($s, sprintf('%d rows by the index, %d by the plain plan', scalar @$rows,
		scalar @$plain_rows)) if $short < 0 && !$s->{ties}
		|| $short > 0 && !$off && (!$s->{bound} || $exact);

	# order.  An index without vectors has rows that come last, which are in order, too; core's
	# MergeAppend does not know of them.  So has every scan that came to its end, or to a bound.
	my $relaxed = ($s->{set}{'gpugraph.iterative_scan'} // '') eq 'relaxed_order';
	my $late = ($schema->{options}{storage} // '') =~ /^int/ || $s->{bound};
	my $cut = @$got >= $s->{limit} && $s->{total} > $s->{limit} + $s->{offset} + 5;
	# by lists of 8 codes have a quarter of all rows late, and more where conditions keep these
	$cut &&= $s->{total} > 5 * ($s->{limit} + $s->{offset}) if $late;
	# a sort above puts late rows in their place
	if ($s->{sorted} && $s->{bound}) { ($late, $cut, $relaxed) = (0, 1, 0) }
	my $apart = $schema->{parted}
		&& ($s->{set}{'gpugraph.disable'} // '') =~ /partition_search/;
	if ($cut && !$relaxed && !$apart && !$s->{farthest})
	{
		my @before = grep { $d->[$_] < $d->[ $_ - 1 ] - $tolerance } 1 .. $#$d;

		complain($s, "out of order at @before: " . join(' ', map { @$d[ $_ - 1, $_ ] } @before))
			if @before > ($late ? 1 : 0);
	}

	# None is nearer than the truth's at its place; where all were measured, none is farther. Behind
	# an OFFSET that passed over farther ones, in relaxed order or where rows that are found late
	# have come, one may be.
	my @sorted = sort { $a <=> $b } @$d;
	my @truth = sort { $a <=> $b } @$plain_d;
	my $last = @truth ? $truth[-1] : 0;
	my $shifted = $s->{offset} && ($relaxed || $late || !$cut);
	for my $i ($shifted ? () : 0 .. min($#sorted, $#truth))
	{
		my $more = $sorted[$i] - $truth[$i];

		next if $more >= -$tolerance && (!$exact || $off || $more <= $tolerance);
		complain($s, "place $i: $sorted[$i] by the index, $truth[$i] by the plain plan"
			. ($exact ? ', every row was measured' : ''));
		last;
	}
	my %in_truth = map { $_->[0] => 1 } @$plain_rows;
	$s->{strangers} = [ grep { !$in_truth{$_} } map { $_->[0] } @$rows ];
	# rows that tie with the last one are those of equal bits, which few of an equal direction have
	my $wanted = $s->{ties} ? min(scalar @truth, $s->{limit}) : @truth;
	my $counted = min(scalar @sorted, $wanted);
	return (scalar(grep { $_ <= $last + $tolerance } @sorted[ 0 .. $counted - 1 ]), $wanted);
}

# What the distances that the server returned are.
sub check_returned
{
	my ($s, $rows) = @_;
	my $tolerance = 4 * tolerance($schema, $s->{query});

	for my $row (@$rows)
	{
		my $mine = distance($schema, vector_of($row->[1]), $s->{query});

		next if !defined $mine || @$row < 3 || !defined $row->[2] || $row->[2] eq 'NaN';
		next if abs($mine - $row->[2]) <= $tolerance;
		complain($s, "row $row->[0] has distance $row->[2], the test computes $mine");
		return;
	}
	return;
}

# Rows that the plain plan has not among its first ones fulfil the conditions all the same.
sub check_strangers
{
	my ($s) = @_;
	my @ids = @{ $s->{strangers} || [] };

	return if !@ids;
	my $list = join ',', @ids;
	my $n = query($c, "$plain SELECT count(*) FROM (" . text_of($s, also => "t.id IN ($list)")
		. ') s');
	complain($s, "rows that conditions or the snapshot exclude, among $list") if $n != @ids;
	return;
}

# ---- how a scan was done

sub note_plan
{
	my ($s, $plan) = @_;
	my $text = join ' ', map { $_->[0] } @$plan;
	my $by = $text =~ /GpugraphPartitions/ ? 'partitions' : $text =~ /GpugraphBitmap/ ? 'bitmap' :
		$text =~ /Index Scan using t\S*(?:idx|v_)\S*.*?Order By/ ? 'index' : 'plain';

	$s->{by} = $by;
	$s->{sorted} = $plan->[0][0] =~ /^Sort/;
	$count{'plan'}{$by}++;
	$count{'plan, beside'}{'sort'}++ if $text =~ /Sort Key/ && $by ne 'plain';
	$count{'plan, beside'}{'set'}++ if $text =~ /hashed/ && $by ne 'plain';
	$count{'plan, beside'}{'rank'}++ if $text =~ /WindowAgg/ && $by ne 'plain';
	$count{'plan, beside'}{'index condition'}++ if $text =~ /Index Cond/ && $by ne 'plain';
	$count{'plan, beside'}{'filter'}++ if $text =~ /Filter:/ && $by ne 'plain';
	$count{'plan, beside'}{'join'}++ if $text =~ /Nested Loop|Join/ && $by ne 'plain';
	$count{'plan, beside'}{'parallel'}++ if $text =~ /Gather/ && $by ne 'plain';
	return;
}

my @scan = qw(index engine reason procedure queries lists exact_lists widenings filter matches rows
	distances reranked);

sub note_scan
{
	my ($s, $row) = @_;
	my %scan;

	@scan{@scan} = @$row;
	$s->{scan} = \%scan;
	return if $s->{by} eq 'plain';
	my $kind = defined $scan{procedure} ? ($scan{exact_lists} ? 'walk and exact' : 'walk') :
		'exact';
	$kind .= ', widened' if ($scan{widenings} // 0) > 0;
	$kind = "filter: $kind" if defined $scan{filter};
	$count{scan}{$kind}++;
	$count{engine}{ $scan{engine} // 'none' }++;
	$count{'not by the device'}{ $scan{reason} }++ if defined $scan{reason};
	my $storage = $schema->{options}{storage} // 'as the column';
	$count{$_->[0]}{ $_->[1] }++ for [ 'operator class', "$schema->{type} $schema->{metric}" ],
		[ algorithm => $schema->{options}{algorithm} ],
		[ storage => $storage ],
		[ 'form on the device' => ($scan{engine} // '') =~ /gpu/ ? $form : 'cpu' ],
		[ iterative => $s->{set}{'gpugraph.iterative_scan'} // 'strict_order' ];
	return;
}

# That of a plan without the index is not told: the plan may have changed since EXPLAIN, as a load
# onto the device ended.
sub was_exact
{
	my ($s) = @_;
	my $scan = $s->{scan} or return 0;

	return $s->{by} =~ /^(index|bitmap)$/ && defined $scan->{queries} && $scan->{queries} == 1
		&& !defined $scan->{procedure} && $scan->{widenings} == 0 && !$scan->{reranked}
		&& $scan->{lists} == $scan->{exact_lists}
		&& ($schema->{options}{storage} // '') !~ /^int/
		# then rows come by their rounded values
		&& !(($schema->{options}{storage} // '') =~ /^float16/ && $schema->{type} eq 'vector'
			&& $s->{set}{'gpugraph.iterative_scan'} eq 'relaxed_order');
}

sub class_of
{
	my ($s) = @_;
	my $itopk = $s->{set}{'gpugraph.itopk_size'};
	my $coded = ($schema->{options}{storage} // '') =~ /int/ || $form =~ /codes/;
	my $mode = $s->{set}{'gpugraph.search_mode'} // 'auto';

	return join ' ', $coded ? 'codes' : 'vectors',
		$coded && $schema->{dim} < 64 ? 'few dimensions' :
		$coded && @{ $schema->{centres} } == 1 ? 'far from the origin' : '',
		$mode =~ /^tsdg/ ? $mode : 'auto',
		'itopk ' . ($itopk >= 64 ? 64 : $itopk >= 32 ? 32 : 8)
		. ($s->{bound} ? ', within a distance' : '');
}

sub note_recall
{
	my ($s, $hits, $wanted) = @_;

	return if $s->{by} eq 'plain' || ($s->{set}{'gpugraph.iterative_scan'} // '') eq 'off';
	my $class = class_of($s);
	$recall{$class} //= [ 0, 0 ];
	$recall{$class}[0] += $hits;
	$recall{$class}[1] += $wanted;
	return;
}

sub known_error
{
	my ($error) = @_;

	# engine = cuda asks for an error where the CPU would answer
	return $error->{message} =~ /^gpugraph.engine is "cuda"/ || $error->{code} eq '40001';
}

sub failed
{
	my ($s, $answer) = @_;
	my $error = $answer->{error} or return 0;

	if (known_error($error)) { $refused++ }
	else { complain($s, "error $error->{code}: $error->{message}") }
	return 1;
}

sub run_statement
{
	my $s = draw_statement();
	my $role = $s->{role} ? 'SET LOCAL ROLE reader; ' : '';
	my $text = text_of($s);
	my $answer = try_query($c, "BEGIN ISOLATION LEVEL $s->{isolation}; " . set_local($s->{set})
		. "EXPLAIN (COSTS OFF) $text; $role$text; RESET ROLE;
		SELECT * FROM gpugraph_last_scan(); $role$plain$text; " . text_of($s, count => 1));

	$nstatements++;
	if (!failed($s, $answer))
	{
		my @with_rows = grep { $_->{tag} =~ /^(SELECT|EXPLAIN)/ } @{ $answer->{results} };
		my ($explained, $got, $scan, $expected, $total) = map { $_->{rows} } @with_rows;

		note_plan($s, $explained);
		note_scan($s, $scan->[0]);
		$s->{total} = $total->[0][0];
		$s->{by} = 'partitions' if $s->{by} ne 'plain' && $schema->{parted};
		note_recall($s, compare($s, $got, $expected, was_exact($s)));
		check_returned($s, $got) if $s->{distance};
		check_strangers($s);
	}
	query($c, 'ROLLBACK');
	return;
}

# A list for each of some queries, by LATERAL or by gpugraph_search().
sub run_lists
{
	my $s = draw_statement();
	my $k = one_of(1, 5, 20);
	my @queries = sort { $a <=> $b } (0 .. 9)[ 0 .. number(6) ];
	my $op = $operator{ $schema->{metric} };
	my $by_function = !$schema->{parted} && chance(0.5);
	my $which = join ',', @queries;
	my $where = $schema->{partial} ? 'WHERE t.grp < 4' : '';
	my $key = sprintf $by_function ? '%s' : $s->{key}, "(t.v $op qs.v)";

	@$s{qw(role offset limit wrap end source)} = (0, 0, $k, undef, "LIMIT $k", 't');
	@$s{qw(rank farthest)} = (undef, 0) if $by_function;
	@{ $s->{conditions} } = grep { !/^dim/ } @{ $s->{conditions} };
	if (!$by_function)
	{
		push @{ $s->{conditions} },
			one_of('t.i4 > qs.q * 5', 't.i4 > qs.q', 't.grp >= qs.q', 't.grp <> qs.q')
			if chance(0.4);
		if (chance(0.2))
		{
			push @{ $s->{conditions} }, "1 - (t.v $op qs.v) > qs.q / 10.0";
			$s->{bound} = 1;
		}
		my @conditions = (@{ $s->{conditions} }, $schema->{partial} ? 't.grp < 4' : ());
		$where = @conditions ? 'WHERE ' . join(' AND ', @conditions) : '';
	}
	my $lateral = "SELECT l.id, l.vid, qs.q FROM (SELECT * FROM qs WHERE q IN ($which) ORDER BY q
		OFFSET 0) qs, LATERAL (SELECT t.id, t.vid FROM t $where ORDER BY $key LIMIT $k) l";
	$s->{sql} = $by_function ? "SELECT t.id, t.vid, s.query - 1 FROM gpugraph_search('t_idx',
		(SELECT array_agg(v ORDER BY q) FROM qs), $k) s JOIN t ON t.ctid = s.tid
		WHERE s.query - 1 IN ($which) ORDER BY s.query, s.distance" : $lateral;
	my $answer = try_query($c, 'BEGIN ISOLATION LEVEL REPEATABLE READ; ' . set_local($s->{set})
		. "$s->{sql}; SELECT * FROM gpugraph_last_scan(); $plain$lateral; "
		. "SELECT qs.q, count(*) FROM qs, t $where GROUP BY qs.q");
	$nstatements++;
	if (!failed($s, $answer))
	{
		my ($got, $scan, $expected, $totals) =
			map { $_->{rows} } grep { $_->{tag} =~ /^SELECT/ } @{ $answer->{results} };
		my %total = map { @$_ } @$totals;

		$s->{by} = $by_function ? 'gpugraph_search' : 'lateral';
		$count{plan}{ $s->{by} }++;
		note_scan($s, $scan->[0]);
		for my $q (@queries)
		{
			$s->{query} = $schema->{queries}[$q];
			$s->{total} = $total{$q} // 0;
			# a join may change the order of what a function returns
			$s->{set}{'gpugraph.iterative_scan'} = 'relaxed_order'
				if $by_function && $s->{set}{'gpugraph.iterative_scan'} ne 'off';
			note_recall($s, compare($s, [ grep { $_->[2] == $q } @$got ],
				[ grep { $_->[2] == $q } @$expected ], 0));
		}
	}
	query($c, 'ROLLBACK');
	return;
}

# Settings that change from one outer row to the next: no row comes twice, and not too many.
sub run_shaken
{
	my $s = draw_statement();
	my $k = one_of(1, 5, 20, 100);
	my $key = "t.v $operator{ $schema->{metric} } qs.v";
	my $where = $schema->{partial} ? 'WHERE t.grp < 4' : '';
	my %values = (
		'gpugraph.itopk_size' => [ 1, 8, 64, 1024 ],
		'gpugraph.target_recall' => [ 0, .5, .99, 1 ],
		'gpugraph.iterative_scan' => [ 'strict_order', 'relaxed_order', 'off' ],
		'gpugraph.disable' => [ '', @switches ],
		'work_mem' => [ '64kB', '1MB', '100MB' ]);
	my $shaken = join ', ', map {
		my $name = $_;
		"set_config('$name', CASE q % 3 " . join('', map { "WHEN $_ THEN '"
			. one_of(@{ $values{$name} }) . "' " } 0 .. 2) . 'END, true)'
	} sample_of(0.5, sort keys %values);

	$s->{by} = 'shaken';
	$s->{sql} = 'SELECT l.id, qs.q FROM (SELECT *' . ($shaken ? ", $shaken" : '') . " FROM qs
		ORDER BY " . one_of('q', '- q', 'q % 3') . ", q OFFSET 0) qs,
		LATERAL (SELECT t.id FROM t $where ORDER BY $key LIMIT $k) l";
	my $answer = try_query($c, 'BEGIN; ' . set_local($s->{set}) . $s->{sql});
	$nstatements++;
	$count{plan}{shaken}++;
	if (!failed($s, $answer))
	{
		my ($got) = map { $_->{rows} } grep { $_->{tag} =~ /^SELECT/ } @{ $answer->{results} };
		my (%rows, %seen);

		$rows{ $_->[1] }++ for @$got;
		$seen{"@$_"}++ for @$got;
		complain($s, 'a row comes twice') if grep { $_ > 1 } values %seen;
		complain($s, 'more rows than LIMIT') if grep { $_ > $k } values %rows;
	}
	query($c, 'ROLLBACK');
	return;
}

# The first rows of groups, nearest first.
sub run_groups
{
	my $s = draw_statement();
	my $k = one_of(1, 5, 20);
	my $n = number(3);
	my $group = one_of('t.grp', 't.i4', 't.i4 % 7, t.s2', 't.id / 3');
	my $d = "(t.v $operator{ $schema->{metric} } $s->{query_sql})";
	my @conditions = ('true', grep { !/^dim/ } @{ $s->{conditions} },
		$schema->{partial} ? 't.grp < 4' : ());
	my $where = 'WHERE ' . join(' AND ', @conditions);
	my $number = "row_number() OVER (PARTITION BY $group ORDER BY $d)";

	# late rows may be among those of few groups
	@$s{qw(role offset limit wrap ties rank farthest total)} = (0, 0, $k, undef, 0, undef, 1, 0);
	$s->{sql} = 'SELECT id, vid FROM (SELECT ' . (chance(0.5) ?
		"DISTINCT ON ($group) t.id, t.vid, $d AS d FROM t $where ORDER BY $group, d) s" :
		"t.id, t.vid, $d AS d, $number AS n FROM t $where) s WHERE n <= $n")
		. " ORDER BY d LIMIT $k";
	my $answer = try_query($c, 'BEGIN ISOLATION LEVEL REPEATABLE READ; ' . set_local($s->{set})
		. "EXPLAIN (COSTS OFF) $s->{sql}; $s->{sql}; $plain$s->{sql}");
	$nstatements++;
	if (!failed($s, $answer))
	{
		my ($explained, $got, $expected) = map { $_->{rows} }
			grep { $_->{tag} =~ /^(SELECT|EXPLAIN)/ } @{ $answer->{results} };

		note_plan($s, $explained);
		$count{plan}{groups} += "@{[ map { @$_ } @$explained ]}" =~ /FirstOfGroup/;
		note_recall($s, compare($s, $got, $expected, 0));
	}
	query($c, 'ROLLBACK');
	return;
}

# A prepared statement lives on while the table changes: conditions and LIMIT are parameters.
sub run_prepared
{
	my $op = $operator{ $schema->{metric} };
	my $n = number(8);
	my @value = (number(12), number($schema->{rows}), one_of(1, 5, 20));
	my $s = draw_statement();

	@$s{qw(role offset wrap limit)} = (0, 0, undef, $value[2]);
	if (!$prepared{$n})
	{
		my $condition = one_of('true', 't.grp = $2', 't.i4 < $2 * 9', 't.id < $3',
			't.s2 IN ($2, $2 + 1)', 't.i4 IN (SELECT k FROM dim WHERE name < $2)',
			'EXISTS (SELECT FROM dim WHERE dim.k = t.i4 AND dim.name = $2)',
			"(t.v $op \$1) * -1 > \$3 * -0.002 + 1",
			't.i4 BETWEEN $2 AND $2 * 7 AND t.id <> $3');
		$prepared{$n} = "SELECT t.id, t.vid FROM t WHERE $condition AND \$2 >= 0 AND \$3 >= 0"
			. ($schema->{partial} ? ' AND t.grp < 4' : '') . ' ORDER BY '
			. sprintf($s->{key}, "(t.v $op \$1)") . ' LIMIT $4';
		query($c, "PREPARE p$n ($schema->{type}, int, int, int) AS $prepared{$n}");
	}
	$s->{bound} = $prepared{$n} =~ /> \$3/;
	$s->{rank} = undef;
	$s->{farthest} = $prepared{$n} =~ /BY \S+ \S+ \S+ DESC LIMIT|BY 1 - \S+ \S+ \S+ LIMIT/;
	my @values = (vector_literal($schema, $s->{query}), @value);
	my $direct = $prepared{$n} =~ s/\$(\d)/$values[ $1 - 1 ]/gr;
	my $execute = "EXECUTE p$n (" . join(', ', @values) . ')';
	$s->{sql} = "PREPARE p$n AS $prepared{$n}; $execute";
	my $answer = try_query($c, 'BEGIN ISOLATION LEVEL REPEATABLE READ; ' . set_local($s->{set})
		. one_of('', "SET LOCAL plan_cache_mode = 'force_generic_plan';",
			"SET LOCAL plan_cache_mode = 'force_custom_plan';")
		. "EXPLAIN (COSTS OFF) $execute; $execute; SELECT * FROM gpugraph_last_scan();
		$plain $direct; SELECT count(*) FROM (" . ($direct =~ s/ ORDER BY .*//sr) . ') s');

	$nstatements++;
	if (!failed($s, $answer))
	{
		my ($explained, $got, $scan, $expected, $total) =
			map { $_->{rows} } grep { $_->{tag} =~ /^(SELECT|EXPLAIN)/ } @{ $answer->{results} };

		note_plan($s, $explained);
		note_scan($s, $scan->[0]);
		$count{plan}{prepared}++;
		$s->{total} = $total->[0][0];
		$s->{by} = 'partitions' if $s->{by} ne 'plain' && $schema->{parted};
		note_recall($s, compare($s, $got, $expected, was_exact($s)));
		if (@{ $s->{strangers} })
		{
			my $among = $direct =~ s/ ORDER BY .*//sr;
			my $list = join ',', @{ $s->{strangers} };

			complain($s, "rows that conditions exclude, among $list")
				if query($c, "SELECT count(*) FROM ($among AND t.id IN ($list)) s")
				!= @{ $s->{strangers} };
		}
	}
	query($c, 'ROLLBACK');
	return;
}

# A cursor, read in pieces, between which settings change and another session writes, vacuums and
# merges.
sub run_cursor
{
	my $s = draw_statement();
	my $most = one_of(30, 100, 400);

	@$s{qw(role wrap ties)} = (0, undef, 0);
	# mostly a short list, so that the scan reads the index again after the first row
	$s->{set}{'gpugraph.itopk_size'} = 8 if chance(0.7);
	$s->{offset} = 0;
	$s->{limit} = $most;
	$s->{end} = one_of('', "LIMIT $most");
	$s->{isolation} = one_of('READ COMMITTED', 'REPEATABLE READ');
	my $text = text_of($s);
	my $hold = chance(0.15) ? 'WITH HOLD' : '';
	my $answer = try_query($c, "BEGIN ISOLATION LEVEL $s->{isolation}; SAVEPOINT s; $plain"
		. "SELECT * FROM ($text) s LIMIT $most; " . text_of($s, count => 1) . "; ROLLBACK TO s;"
		. set_local($s->{set}) . "EXPLAIN (COSTS OFF) DECLARE c NO SCROLL CURSOR $hold FOR $text;
		DECLARE c NO SCROLL CURSOR $hold FOR $text; FETCH 1 FROM c");

	$nstatements++;
	if (!failed($s, $answer))
	{
		my ($expected, $total, $explained, $got) = map { $_->{rows} }
			grep { $_->{tag} =~ /^(SELECT|EXPLAIN|FETCH)/ } @{ $answer->{results} };
		my @got = @$got;
		my $left = $most - 1;

		note_plan($s, $explained);
		$count{plan}{cursor}++;
		if ($hold && failed($s, try_query($c, 'COMMIT'))) { query($c, 'ROLLBACK'); return }
		while ($left > 0)
		{
			my $n = min($left, one_of(1, 10, 50, 400));
			my $change = rand();

			if ($change < 0.3) { query($c, set_local(settings()) =~ s/SET LOCAL/SET/gr) }
			elsif ($change < 0.6) { change_by($w) }
			my $piece = try_query($c, "FETCH $n FROM c");
			return query($c, 'ROLLBACK; RESET ALL; ' . session_settings()) if failed($s, $piece);
			push @got, @{ $piece->{results}[0]{rows} };
			last if @{ $piece->{results}[0]{rows} } < $n;
			$left -= $n;
		}
		$s->{total} = $total->[0][0];
		# relaxed order may have been set meanwhile; of an index without vectors a list is short
		my $set = $s->{set}{'gpugraph.iterative_scan'};
		$s->{set}{'gpugraph.iterative_scan'} = 'relaxed_order' if $set ne 'off';
		compare($s, \@got, $expected, $s->{by} eq 'plain');
		$s->{set}{'gpugraph.iterative_scan'} = $set;
		check_returned($s, \@got) if $s->{distance};
		if ($s->{isolation} eq 'REPEATABLE READ' && !$hold) { check_strangers($s) }
	}
	query($c, 'ROLLBACK; CLOSE ALL; RESET ALL; ' . session_settings());
	return;
}

sub session_settings
{
	return "SET statement_timeout = '60s'; SET client_min_messages = warning;
		SET search_path = r, public; SET timezone = 'Europe/Berlin'";
}

# Rows that a statement finds are changed.
sub run_writing
{
	my $s = draw_statement();

	@$s{qw(role wrap distance source)} = (0, undef, 0, 't');
	@{ $s->{conditions} } = grep { !/^dim/ } @{ $s->{conditions} };
	$s->{end} = "LIMIT $s->{limit}" if $s->{end} eq '' || $s->{ties};
	@$s{qw(limit end)} = (20, 'LIMIT 20') if $s->{limit} > 20;
	@$s{qw(offset ties)} = (0, 0);
	$s->{end} =~ s/ FOR .*| OFFSET .*//;
	my $text = text_of($s);
	my $change = one_of('UPDATE t SET s2 = 3', 'UPDATE t SET i4 = t.i4 + 1', 'DELETE FROM t');
	my $answer = try_query($c, 'BEGIN; ' . set_local($s->{set}) . "SAVEPOINT s; $plain $text;
		ROLLBACK TO s; $change WHERE id IN (SELECT id FROM ($text) x) RETURNING id, vid;
		SELECT * FROM gpugraph_last_scan(); SELECT count(*) FROM t");

	$nstatements++;
	if (!failed($s, $answer))
	{
		my ($expected, $got) = map { $_->{rows} }
			grep { $_->{tag} =~ /^(SELECT|UPDATE|DELETE)/ } @{ $answer->{results} };

		$s->{total} = 0;
		$s->{by} = 'index';
		$count{plan}{writing}++;
		note_recall($s, compare($s, $got, $expected, 0));
	}
	query($c, one_of('COMMIT', 'ROLLBACK'));
	return;
}

# Rows within a distance, without an order: exactly those of the plain plan.
sub run_range
{
	my $s = draw_statement();
	my $form = weighted(rows => 5, count => 2, exists => 2, few => 2, lock => 1, update => 1,
		delete => 1, join => 3, semi => 1, anti => 1, prepared => 2);
	my $source = $form =~ /^(rows|count|exists|few)$/ ? $s->{source} : 't';

	# EXECUTE takes no subquery
	$s->{query_sql} = vector_literal($schema, $s->{query});
	$s->{query_sql} = 'qs.v' if $form =~ /join|semi|anti/;
	my $bound = draw_bound($s) or return;
	my @conditions = grep { $source =~ /dim/ || !/^dim/ } @{ $s->{conditions} };
	my $where = 'WHERE ' . join ' AND ', @conditions, $bound;
	my $n = one_of(1, 5, 100);
	my %text = (
		rows => "SELECT t.id FROM $source $where",
		count => "SELECT count(*) FROM $source $where",
		exists => "SELECT EXISTS (SELECT FROM $source $where)",
		few => "SELECT count(*) FROM (SELECT FROM $source $where LIMIT $n) s",
		lock => "SELECT t.id FROM t $where FOR UPDATE",
		update => "UPDATE t SET i4 = t.i4 + 1 $where RETURNING t.id",
		delete => "DELETE FROM t $where RETURNING t.id",
		join => "SELECT t.id * 100 + qs.q FROM qs JOIN t ON true $where",
		semi => "SELECT q FROM qs WHERE EXISTS (SELECT FROM t $where)",
		anti => "SELECT q FROM qs WHERE NOT EXISTS (SELECT FROM t $where)",
		prepared => "SELECT t.id FROM t $where");
	my $text = $text{$form};
	my $role = $s->{role} && $form !~ /delete|update/ ? 'SET LOCAL ROLE reader; ' : '';

	if ($form eq 'prepared')
	{
		query($c, "DEALLOCATE PREPARE ALL; PREPARE range ($schema->{type}) AS "
			. ($text =~ s/\Q$s->{query_sql}\E/\$1/gr));
		%prepared = ();
		$s->{set}{plan_cache_mode} = 'force_generic_plan';
	}
	my $executed = $form eq 'prepared' ? "EXECUTE range ($s->{query_sql})" : $text;
	my $answer = try_query($c, "BEGIN ISOLATION LEVEL $s->{isolation}; SAVEPOINT s; $role$plain"
		. "$text; ROLLBACK TO s; " . set_local($s->{set}) . "${role}EXPLAIN (COSTS OFF) $executed;"
		. " $executed");

	$nstatements++;
	$s->{sql} = "$role$executed";
	if (!failed($s, $answer))
	{
		my ($expected, $explained, $got) = map { $_->{rows} }
			grep { $_->{tag} =~ /^(SELECT|EXPLAIN|UPDATE|DELETE)/ } @{ $answer->{results} };
		my ($want, $have) = map { join ' ', sort map { $_->[0] } @$_ } $expected, $got;

		$count{"within a distance: $form"}{
			(join ' ', map { $_->[0] } @$explained) =~ /Order By/ ? 'index' : 'plain' }++;
		complain($s, "rows $have", "plain $want", map { $_->[0] } @$explained) if $want ne $have;
	}
	query($c, one_of('COMMIT', 'ROLLBACK'));
	return;
}

# Whoever may read nothing, or what policies let through alone, is refused by every function that
# takes an index: found by pg_proc, so a new one is among them.
sub try_functions
{
	my $vectors = 'ARRAY[' . vector_literal($schema, $schema->{queries}[0]) . ']';
	my %value = (integer => 3, bigint => 3, boolean => 'true', text => "'search'",
		'double precision' => 0.9, real => 0.9, numeric => 0.9, "$schema->{type}\[]" => $vectors,
		'double precision[]' => 'ARRAY[0.9]');

	for my $row (query($w, "SELECT p.oid::regproc, p.oid::regprocedure,
		(SELECT string_agg(t::regtype::text, '|' ORDER BY n)
			FROM unnest(proargtypes) WITH ORDINALITY u(t, n))
		FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.deptype = 'e'
		JOIN pg_extension e ON e.oid = d.refobjid AND extname = 'gpugraph'
		WHERE proargtypes[0] = 'regclass'::regtype"))
	{
		my ($function, $signature, $types) = @$row;
		my (undef, @types) = split /\|/, $types;

		# overloads for the other type of vectors
		next if grep { !defined $value{$_} } @types;
		for my $role ('nobody', 'reader')
		{
			my $answer = try_query($c, "BEGIN; SET LOCAL ROLE $role; SELECT * FROM $function("
				. join(', ', "'$leaves[0]'", map { "$value{$_}::$_" } @types) . ') f');
			my $error = $answer->{error};

			query($c, 'ROLLBACK');
			$count{"refused to $role"}{$signature}++;
			next if $error && ($error->{code} eq '42501'
				|| $role eq 'reader' && $error->{message} =~ /^row-level security applies/);
			push @wrong, "$signature as $role: "
				. ($error ? "$error->{code} $error->{message}" : 'no error');
		}
	}
	return;
}

# ---- what goes on beside statements, and changes no row

# A merge, VACUUM or learning, which mostly rests where it is half done.
sub begin_beside
{
	my $leaf = one_of(@leaves);
	my ($place, $sql) = @{ weighted([ merge => "SELECT gpugraph_merge('$leaf')" ] => 4,
		[ merge => "SELECT gpugraph_learn('$leaf', (SELECT array_agg(v) FROM qs))" ] => 1,
		map { ([ $_, 'VACUUM t' ], 0.5) }
			qw(vacuum_delta vacuum_segment vacuum_last give_back)) };

	# then the merge makes one segment of one
	run_change($w, "SELECT gpugraph_merge('$leaf')") if chance(0.5);
	run_change($w, draw_rows($schema, 40 + number(300))) if chance(0.7);
	# its nodes have other numbers once a fifth of them is gone
	if (chance(0.5))
	{
		my $of = one_of(3, 9);

		run_change($w, "DELETE FROM t WHERE id % $of = " . number($of));
		run_change($w, 'VACUUM t') if chance(0.7);
	}
	run_change($w, "SELECT gpugraph_prewarm('$leaf')") if chance(0.7);
	query($holder, "SELECT pg_advisory_lock(0, $places{$place})") if chance(0.7);
	query($m, "SET gpugraph.fault = 'hold_$place'");
	send_query($m, $sql);
	$beside = { sql => $sql, left => 1 + number(20) };
	return if chance(0.3);
	my $state;
	wait_for(sub { $state = query($holder, "SELECT coalesce(wait_event, state)
		FROM pg_stat_activity WHERE pid = $m->{pid}"); $state =~ /^(advisory|ClientRead)$/ });
	$count{"rests: $place"}{$state}++;
	return;
}

sub end_beside
{
	my $sql = $beside->{sql};

	undef $beside;
	query($holder, 'SELECT pg_advisory_unlock_all()');
	note_failure($m, receive($m), $sql);
	return;
}

# ---- what changes between statements

sub run_change
{
	my ($session, $sql) = @_;

	note_failure($session, try_query($session, $sql), $sql);
	return;
}

sub note_failure
{
	my ($session, $answer, $sql) = @_;
	my $error = $answer->{error} or return;

	query($session, 'ROLLBACK') if $answer->{state} ne 'I';
	# the other session's snapshot or locks are in the way, or no device has room
	return if $error->{code} =~ /^(55P03|53200|40P01)$/ || $error->{message} =~ /no GPU can/;
	push @wrong, "error $error->{code}: $error->{message}\n\t" . substr($sql, 0, 2000);
	return;
}

sub change_by
{
	my ($session) = @_;
	my $n = number($schema->{next});
	my $leaf = one_of(@leaves);
	my $dml = $session == $w;
	my @columns = qw(v vid);
	my ($vid, undef, @values);

	my $change = weighted(
		few => 4, many => 2, delete => 2, update => 3, move => 1, vacuum => 3, merge => 3,
		hole => 2,
		($dml ? () : (learn => 1, forget => 0.4, reindex => 0.8, options => 1.2, truncate => 0.15,
			evict => 1, prewarm => 2, form => 1, recreate => 0.8, helper => 0.8, undo => 1,
			attach => 0.4, settings => 1)));
	my %sql = (
		few => sub { draw_rows($schema, 1 + number(4)) },
		many => sub { draw_rows($schema, 40 + number(150)) },
		# of the delta, unless it is sealed before
		hole => sub {
			my ($first, $rows) = ($schema->{next}, draw_rows($schema, 200));
			my $from = $first + number(60);
			$rows . " DELETE FROM t WHERE id BETWEEN $from AND " . ($from + 60 + number(60))
				. '; VACUUM t' },
		delete => sub { "DELETE FROM t WHERE id BETWEEN $n AND " . ($n + one_of(1, 30, 90)) },
		update => sub {
			my @new = row_sql($schema);
			"UPDATE t SET vid = $new[0], v = $new[-1] WHERE id = $n" },
		move => sub { 'UPDATE t SET grp = (grp + 1) % 6, i4 = i4 + 1 WHERE id BETWEEN '
			. "$n AND " . ($n + 20) },
		vacuum => sub { one_of('VACUUM t', 'VACUUM (PARALLEL 2) t', 'VACUUM (ANALYZE) t') },
		merge => sub { "SELECT gpugraph_merge('$leaf')" },
		learn => sub { "SELECT gpugraph_learn('$leaf', (SELECT array_agg(v) FROM qs))" },
		forget => sub { "SELECT gpugraph_forget('$leaf')" },
		reindex => sub { one_of("REINDEX INDEX $leaf", 'REINDEX TABLE t',
			"REINDEX INDEX CONCURRENTLY $leaf") },
		options => sub { "ALTER INDEX $leaf SET (seal_rows = " . one_of(0, 100, 300, -1)
			. ', segment_rows = ' . one_of(0, 300, 1000) . ')' },
		truncate => sub { 'TRUNCATE t; ' . draw_rows($schema, 200) },
		evict => sub { "SELECT gpugraph_evict('$leaf')" },
		prewarm => sub { "SELECT gpugraph_prewarm('$leaf')" },
		recreate => sub { options_sql($schema, 1); 'DROP INDEX t_idx; ' . index_sql($schema) },
		helper => sub { one_of('CREATE INDEX ON t (i4)', 'CREATE INDEX ON t USING gin (ta)',
			'CREATE INDEX ON t (grp, id)', 'CREATE INDEX ON t USING brin (id)') },
		undo => sub { "BEGIN; DELETE FROM t WHERE id > $n; SAVEPOINT s; "
			. draw_rows($schema, 20) . ' ROLLBACK TO s; '
			. one_of('ROLLBACK', "UPDATE t SET b = true WHERE id < $n; ROLLBACK") },
		attach => sub { $schema->{parted} eq 'LIST' ? 'ALTER TABLE t DETACH PARTITION t_1;
			UPDATE t_1 SET i4 = 3 WHERE id % 3 = 0;
			ALTER TABLE t ATTACH PARTITION t_1 FOR VALUES IN (1)' : 'ANALYZE t' },
		settings => sub { one_of('DISCARD PLANS', 'ANALYZE t', 'DISCARD TEMP') },
		form => sub {
			my $storage = one_of('auto', 'full', 'codes', 'codes');
			my $host = one_of('-1', '0', '64MB');
			my $memory = one_of('0', '0', '1MB');
			"ALTER SYSTEM SET gpugraph.device_storage = '$storage';
			ALTER SYSTEM SET gpugraph.host_memory = '$host';
			ALTER SYSTEM SET gpugraph.device_memory = '$memory';
			SELECT pg_reload_conf(); SELECT gpugraph_evict('$leaf')" });
	my $sql = $sql{$change}->();

	# what a merge may meet; all else might wait for who rests
	end_beside() if $beside && ($beside->{sql} !~ /merge/
		|| $change !~ /few|many|delete|update|move|vacuum|hole/);
	$count{change}{$change}++;
	# what may not run in a block comes alone
	for my $one ($change eq 'truncate' || $sql =~ /^BEGIN/ ? $sql :
		$change =~ /form|recreate|attach|hole/ ? split(/;\s*/, $sql) : $sql)
	{
		run_change($session, $one);
	}
	find_leaves() if $change =~ /recreate|attach/;
	find_form() if $change =~ /prewarm|recreate|form/;
	return;
}

sub find_leaves
{
	@leaves = map { $_->[0] } query($w, "SELECT indexrelid::regclass FROM pg_index
		JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam
		WHERE amname = 'gpugraph' AND relkind = 'i' AND indrelid::regclass::text ~ '^(r\\.)?t'");
	die "no index\n" if !@leaves;
	return;
}

sub find_form
{
	my ($row) = query($w, "SELECT coalesce(sum(coded_segments), 0),
		coalesce(sum(rowless_segments), 0), coalesce(sum(halved_segments), 0)
		FROM gpugraph_stat_index WHERE datname = current_database() AND state = 'ready'");

	$form = $row->[1] > 0 ? 'codes alone' : $row->[2] > 0 ? 'codes and halves' :
		$row->[0] > 0 ? 'codes and rows' : 'full';
	return;
}

# ---- a round

sub make_table
{
	my $dim = $schema->{dim};

	$schema->{queries} = [ map { draw_query($schema) } 0 .. 9 ];
	my $queries = join ', ', map { "($_, '[" . join(',', @{ $schema->{queries}[$_] }) . "]')" }
		0 .. 9;
	query($c, 'RESET ALL; DROP SCHEMA IF EXISTS r CASCADE; CREATE SCHEMA r;
		GRANT USAGE ON SCHEMA r TO reader, nobody; ' . session_settings());
	query($c, <<"SQL");
CREATE TYPE mood AS ENUM ('low', 'middling', 'high');
CREATE DOMAIN small AS int;
@{[ create_sql($schema) ]}
CREATE TABLE qs (q int, v $schema->{type}($dim));
INSERT INTO qs VALUES $queries;
CREATE TABLE dim AS SELECT k, k % 10 AS name FROM generate_series(0, 80) k;
CREATE VIEW open_view WITH (security_invoker) AS SELECT * FROM t;
CREATE VIEW barrier_view WITH (security_barrier) AS SELECT * FROM t WHERE id % 7 <> 2;
GRANT SELECT, UPDATE ON t, qs, dim, open_view, barrier_view TO reader;
CREATE POLICY of_reader ON t TO reader USING (@{[
	one_of('id % 3 <> 0', 't.i4 IN (SELECT k FROM dim)',
		't.i4 IN (SELECT k FROM dim WHERE name < 4)') ]});
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
SQL
	my $before = number($schema->{rows});
	query($c, draw_rows($schema, $_ < 200 ? $_ : 200)) for map { $_ > 0 ? $_ : () }
		map { $before - 200 * $_ } 0 .. $before / 200;
	query($c, index_sql($schema));
	query($c, draw_rows($schema, $_ < 200 ? $_ : 200)) for map { $_ > 0 ? $_ : () }
		map { $schema->{rows} - $before - 200 * $_ } 0 .. $schema->{rows} / 200;
	query($c, 'ANALYZE t');
	query($c, 'CREATE INDEX ON t (i4)') if chance(0.4);
	find_leaves();
	$form = 'full';
	return;
}

sub check_indexes
{
	for my $leaf (@leaves)
	{
		my $answer = try_query($c, "SELECT gpugraph_check('$leaf', heap_check => true)");

		push @wrong, "$leaf: $answer->{error}{code} $answer->{error}{message}" if $answer->{error};
	}
	return;
}

sub judge_recall
{
	for my $class (sort keys %recall)
	{
		my ($hits, $wanted) = @{ $recall{$class} };
		my ($floor) = map { $_->[1] } grep { $class =~ $_->[0] } @floors;

		next if !defined $floor || $wanted < MOST_UNJUDGED;
		push @wrong, sprintf('%s: %d of %d near rows were found, %.3f is asked', $class, $hits,
			$wanted, $floor) . "\n\t$schema->{dim} dimensions, " . index_sql($schema)
			if $hits < $floor * $wanted;
	}
	return;
}

my %total_recall;

sub one_round
{
	connect_both();
	@wrong = ();
	%prepared = ();
	%recall = ();
	forget_vectors();
	$schema = draw_schema();
	eval {
		make_table();
		for (1 .. STATEMENTS)
		{
			weighted(\&run_statement => 14, \&run_lists => 2, \&run_shaken => 1, \&run_groups => 1,
				\&run_prepared => 3, \&run_cursor => 0.5, \&run_writing => 1, \&run_range => 3)->();
			if ($beside) { end_beside() if --$beside->{left} <= 0 }
			elsif (chance(0.04)) { begin_beside() }
			change_by($c) if chance(0.1);
			last if @wrong > 2;
		}
		end_beside() if $beside;
		try_functions();
		check_indexes();
		judge_recall();
		1;
	} or push @wrong, "died: $@ " . substr(index_sql($schema), 0, 500);
	for my $class (keys %recall)
	{
		$total_recall{$class}[$_] += $recall{$class}[$_] for 0, 1;
	}
	return @wrong;
}

sub print_coverage
{
	note "$nstatements statements, $refused refused";
	for my $what (sort keys %count)
	{
		my $sum = sum0 values %{ $count{$what} };

		note "$what: " . join ', ',
			map { sprintf '%s %.1f%%', $_, 100 * $count{$what}{$_} / $sum }
			sort { $count{$what}{$b} <=> $count{$what}{$a} } keys %{ $count{$what} };
	}
	note sprintf 'recall, %s: %.4f of %d', $_, $total_recall{$_}[0] / max(1, $total_recall{$_}[1]),
		$total_recall{$_}[1] for sort keys %total_recall;
	return;
}

rounds('differential', \&one_round);
print_coverage();
unlike(slurp_file($node->logfile), qr/PANIC|was terminated by signal|TRAP/, 'no process crashed');
$node->stop;
done_testing();
