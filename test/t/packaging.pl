# What packaging/ gives to others keeps to what they expect and to what the extension has: META.json
# to PGXN's specification; the rpm and CloudNativePG's examples name its version; the queries for
# postgres_exporter run as a member of pg_monitor and yield the columns that they declare; the
# dashboard and the alerts name only metrics and labels that these queries make.
use Gpugraph;
use Residency;
use CPAN::Meta::YAML;
use Cwd qw(abs_path);
use File::Basename qw(basename dirname);
use JSON::PP;

my $top = abs_path(dirname(__FILE__) . '/../..');
my $monitoring = "$top/packaging/monitoring";

sub yaml { return CPAN::Meta::YAML->read_string(slurp_file("$monitoring/$_[0]"))->[0]; }

# ---- META.json ------------------------------------------------------------------
my $check = `perl "$top/packaging/check-meta" "$top" 2>&1`;
is($check, "META.json keeps to PGXN Meta Spec 1.0.0\n", 'META.json');

# ---- versions -------------------------------------------------------------------
my ($version) = slurp_file("$top/gpugraph.control") =~ /^default_version = '(.*)'/m;
my ($rpm) = slurp_file("$top/packaging/rpm/gpugraph.spec") =~ /^Version:\s*(\S+)/m;
is($rpm, $version, "the rpm's version");
for my $example (glob "$top/packaging/cloudnative-pg/*.yaml")
{
	my @images = slurp_file($example) =~ m{reference: REGISTRY/gpugraph:(.*)}g;
	my $flavour = basename($example) =~ /gpu/ ? '-cuda' : '';
	is("@images", "$version-pg18$flavour", basename($example) . ' names the image');
}

# ---- the queries ------------------------------------------------------------------
my $node = service_node('packaging', conf => "gpugraph.engine = cpu\n");
make_items($node, 3000, 8);
$node->sql(<<'SQL');
CREATE ROLE exporter LOGIN IN ROLE pg_monitor;
CREATE TABLE parted (id int, val vector(8)) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (1000);
CREATE INDEX ON parted USING gpugraph (val);
INSERT INTO items (id, val)
	SELECT 10000 + i, array_fill(i, '{8}')::vector FROM generate_series(1, 25) i;
SELECT gpugraph_prewarm('items_idx');
SELECT gpugraph_calibrate('items_idx');
SQL
answers($node);

my (%labels, %kind, %row);    # metric -> its labels, metric -> usage, metric -> index -> value

sub run_query
{
	my ($key, $query) = @_;
	my $sql = $query->{query};
	my ($rc, $out, $err) = $node->psql('postgres',
		"COPY ($sql) TO STDOUT (FORMAT csv, HEADER, NULL '')",
		extra_params => [ '-U', 'exporter' ]);

	is("$rc $err", '0 ', "$key runs as a member of pg_monitor");
	my ($head, @rows) = map { [ split /,/, $_, -1 ] } split /\n/, $out;
	my %usage = map { my ($name) = keys %$_; $name => $_->{$name}{usage} } @{ $query->{metrics} };
	is(join(' ', sort @$head), join(' ', sort keys %usage),
		"$key yields the columns that it declares");

	my @label = sort grep { $usage{$_} eq 'LABEL' } keys %usage;
	my %seen;
	for my $row (@rows)
	{
		my %value;
		@value{@$head} = @$row;
		$seen{ join ',', @value{@label} }++;
		my $whose = join ' ', map { $value{$_} // '' } grep { /index|reason/ } @label;
		$row{"${key}_$_"}{$whose} = $value{$_} for grep { $usage{$_} ne 'LABEL' } keys %usage;
	}
	is_deeply([ grep { $seen{$_} > 1 } keys %seen ], [], "$key has one row for each set of labels");
	for (grep { $usage{$_} ne 'LABEL' } keys %usage)
	{
		$labels{"${key}_$_"} = { map { $_ => 1 } @label };
		$kind{"${key}_$_"} = $usage{$_};
	}
	return scalar @rows;
}

my $queries = yaml('queries.yaml');
for my $key (sort keys %$queries)
{
	cmp_ok(run_query($key, $queries->{$key}), '>', 0, "$key has rows");
}

is($row{gpugraph_server_preloaded}{''}, 1, 'the library is preloaded');
is($row{gpugraph_device_up}{''}, 1, 'the device is up');
is($row{gpugraph_index_ready}{items_idx}, 1, 'the index is on the device');
my $by_setting = $row{gpugraph_cpu_queries_total}{'items_idx setting'};
cmp_ok($by_setting, '>', 0, 'the CPU answered because of a setting');
is($by_setting, $row{gpugraph_index_cpu_queries_total}{items_idx}, 'and for no other reason');
is($row{gpugraph_content_rows}{items_idx}, 3000, 'rows in the graph');
is($row{gpugraph_content_delta_rows}{items_idx}, 25, 'rows in the delta');
ok(exists $row{gpugraph_content_rows}{parted_1_val_idx}, "a partition's index is there");
is(join(' ', grep { $kind{$_} ne (/_total$/ ? 'COUNTER' : 'GAUGE') } keys %kind), '',
	'the names of counters end in _total');

# DDL on a table is not waited for.
my $session = start_psql($node, 'BEGIN', 'LOCK TABLE items', 'SELECT pg_sleep(600)');
my $holder = "SELECT pid FROM pg_locks WHERE relation = 'items'::regclass AND granted"
	. " AND mode = 'AccessExclusiveLock'";
wait_for(sub { $node->sql($holder) ne '' });
%row = ();
run_query('gpugraph_content', $queries->{gpugraph_content});
is(join(' ', sort keys %{ $row{gpugraph_content_rows} }), 'parted_1_val_idx',
	'the index of a table that DDL holds is left out');
$node->sql("SELECT pg_terminate_backend(pid) FROM ($holder) s");
finish_psql($session);

# A column that is renamed is noticed: a query that uses it fails.
for my $view (qw(gpugraph_stat_device gpugraph_stat_index))
{
	my @columns = split /\n/, $node->sql("SELECT attname FROM pg_attribute
		WHERE attrelid = '$view'::regclass AND attnum > 0");
	my @users = grep { /\b$view\b/ } map { $_->{query} } values %$queries;
	my (@used, @unnoticed);

	for my $column (@columns)
	{
		my @using = grep { /\b$column\b/ } @users or next;
		my $renamed = "BEGIN; ALTER VIEW $view RENAME COLUMN $column TO another;";

		push @used, $column;
		push @unnoticed, $column
			if grep { ($node->psql('postgres', "$renamed $_"))[0] == 0 } @using;
	}
	cmp_ok(scalar(@used), '>', 10, "$view: columns that queries use");
	is("@unnoticed", '', "$view: a query fails when one of them is renamed");
}

# ---- who uses the metrics -----------------------------------------------------------
# Labels that Prometheus adds to every metric of the exporter.
my %added = (instance => 1, job => 1);

# The labels of a list that some of the metrics do not have.
sub unknown_labels
{
	my ($labels, @metrics) = @_;

	return grep { my $l = $_; !$added{$l} && grep { !$labels{$_}{$l} } @metrics } @$labels;
}

sub check_expression
{
	my ($where, $expr) = @_;
	my @metrics = $expr =~ /\b(gpugraph_\w+)/g;
	my @faults = grep { !$labels{$_} } @metrics;

	push @faults, 'no metric' if !@metrics;
	for my $metric (grep { $labels{$_} } @metrics)
	{
		while ($expr =~ /\b$metric\{([^}]*)\}/g)
		{
			my @named = $1 =~ /(\w+)\s*[!=]/g;
			push @faults, map { "$metric has no label $_" } unknown_labels(\@named, $metric);
		}
		push @faults, "$metric is a counter"
			if $kind{$metric} eq 'COUNTER' && $expr !~ /(?:rate|increase)\(/;
		while ($expr =~ /\bby \(([^)]*)\)/g)
		{
			my @named = split /,\s*/, $1;
			push @faults, map { "$metric has no label $_" } unknown_labels(\@named, $metric);
		}
	}
	is(join('; ', @faults), '', "$where names metrics that there are");
	return @metrics;
}

my %alerts;
for my $group (@{ yaml('alerts.yaml')->{groups} })
{
	for my $rule (@{ $group->{rules} })
	{
		my @metrics = check_expression("alert $rule->{alert}", $rule->{expr});
		my @used = join(' ', values %{ $rule->{annotations} }) =~ /\$labels\.(\w+)/g;
		is(join(' ', unknown_labels(\@used, @metrics)), '',
			"alert $rule->{alert} shows labels that there are");
		$alerts{ $rule->{alert} } = 1;
	}
}
is(scalar(grep { $alerts{$_} } qw(GpugraphCpuAnswers GpugraphDoesNotFit GpugraphDeltaGrows
	GpugraphRecallFalls)), 4,
	'alerts: the CPU answers, an index does not fit, the delta grows, recall falls');

my $dashboard = decode_json(slurp_file("$monitoring/dashboard.json"));
for my $panel (@{ $dashboard->{panels} })
{
	for my $target (@{ $panel->{targets} })
	{
		my @metrics = check_expression("panel \"$panel->{title}\"", $target->{expr});
		my @used = $target->{legendFormat} =~ /\{\{(\w+)\}\}/g;
		is(join(' ', unknown_labels(\@used, @metrics)), '', 'and its legend labels');
	}
}

# What a text tells people to look at is there.
for my $file (qw(queries.yaml alerts.yaml dashboard.json))
{
	my %named = map { $_ => 1 } slurp_file("$monitoring/$file") =~ /\b(gpugraph_stat_\w+\.\w+)/g;

	for my $name (sort keys %named)
	{
		my ($view, $column) = split /\./, $name;
		is($node->psql('postgres', "SELECT $column FROM $view LIMIT 0"), 0,
			"$file: there is a $name");
	}
}

done_testing();
