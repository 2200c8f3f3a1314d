# What the differential part draws: a schema, rows, conditions, statements; and the distances that
# it computes itself.
package Draw;

use strict;
use warnings;

use Exporter 'import';
use List::Util qw(max min sum0);

use Torture;

our @EXPORT = qw(draw_schema draw_rows row_sql create_sql index_sql options_sql draw_condition
	draw_query vector_literal distance tolerance vector_of forget_vectors %operator);

our %operator = (l2 => '<->', ip => '<#>', cosine => '<=>', l1 => '<+>');

# ---- columns: type, a value as SQL, and what kinds of conditions it has

my @texts = map { ("w$_", "a text that is rather long and differs in its end alone $_") } 0 .. 9;
my @uuids = map { sprintf '%08d-0000-4000-8000-%012d', $_ * 7919, $_ % 3 } 0 .. 11;
my @days = map { sprintf '2024-%02d-%02d', 1 + $_ / 28, 1 + $_ % 28 } 0 .. 99;

sub quoted { my ($value, $type) = @_; return "'$value'" . ($type ? "::$type" : '') }

my %column = (
	b => [ 'boolean', 'flag', sub { one_of('true', 'false') } ],
	s2 => [ 'smallint', 'order', sub { number(10) } ],
	i4 => [ 'integer', 'order', sub { number(100) } ],
	i8 => [ 'bigint', 'order', sub { (number(50) - 10) * 10_000_000_000 } ],
	f4 => [ 'real', 'order', sub { chance(0.02) ? one_of("'NaN'::real", "'-Infinity'::real") :
		(number(80) - 20) / 4 } ],
	f8 => [ 'double precision', 'order', sub { chance(0.02) ? one_of("'NaN'::float8",
		"'Infinity'::float8") : (number(4000) - 2000) / 8 } ],
	dt => [ 'date', 'order', sub { quoted(one_of(@days), 'date') } ],
	ts => [ 'timestamp', 'order', sub { quoted(one_of(@days) . ' 12:00', 'timestamp') } ],
	tz => [ 'timestamptz', 'order', sub { quoted(one_of(@days) . ' 23:30+00', 'timestamptz') } ],
	u => [ 'uuid', 'order', sub { quoted(one_of(@uuids), 'uuid') } ],
	e => [ 'mood', 'order', sub { quoted(one_of('low', 'middling', 'high'), 'mood') } ],
	t => [ 'text', 'equal', sub { quoted(one_of(@texts)) } ],
	vc => [ 'varchar(90)', 'equal', sub { quoted(one_of(@texts)) } ],
	dm => [ 'small', 'order', sub { number(20) } ],
	ia => [ 'integer[]', 'array', sub { quoted('{' . join(',', map { number(30) }
		1 .. 1 + number(3)) . '}', 'integer[]') } ],
	ta => [ 'text[]', 'array', sub { quoted('{' . join(',', map { 'w' . number(12) }
		1 .. 1 + number(3)) . '}', 'text[]') } ]);
my @names = sort keys %column;

# A value of another type of the same family.
sub foreign_value
{
	my ($name) = @_;
	my $value = $column{$name}[2]->();

	return "$value\::bigint" if $name =~ /^(s2|i4|dm)$/;
	return "$value\::double precision" if $name eq 'f4';
	return $value =~ s/::timestamptz$/::timestamp/r if $name eq 'tz' && chance(0.5);
	return quoted(one_of(@days), 'date') if $name =~ /^(ts|tz)$/;
	return $value;
}

sub one_condition
{
	my ($schema) = @_;
	my $name = one_of(@{ $schema->{filters} }, one_of(@names));
	my (undef, $kind, $draw) = @{ $column{$name} };
	my $t = "t.$name";
	my $value = chance(0.2) ? foreign_value($name) : $draw->();

	return "$t IS " . one_of('NULL', 'NOT NULL') if chance(0.08);
	return one_of($t, "NOT $t", "$t IS TRUE", "$t = true", "$t IS NOT TRUE") if $kind eq 'flag';
	return "$t " . one_of('&&', '@>') . " $value" if $kind eq 'array';
	return "$t IN (" . join(', ', map { $draw->() } 1 .. 1 + number(4)) . ')' if chance(0.2);
	return "$t = ANY (ARRAY[" . join(', ', map { $draw->() } 1 .. 2) . ']'
		. ($name eq 'vc' || $name eq 't' ? '::text[]' : '') . ')' if chance(0.06);
	return one_of("$t = $value", "$t = $value", "$t <> $value", "$t LIKE 'w%'")
		if $kind eq 'equal';
	return "$t BETWEEN $value AND " . $draw->() if chance(0.15);
	return "$t = (SELECT $value)" if chance(0.06);
	return "$t " . one_of('=', '<', '<=', '>=', '>', '>', '<>') . " $value";
}

sub draw_condition
{
	my ($schema) = @_;
	my $draw = rand();

	return '(' . one_condition($schema) . ' OR ' . one_condition($schema) . ')' if $draw < 0.08;
	return 'NOT (' . one_condition($schema) . ')' if $draw < 0.12;
	return 't.id % ' . (2 + number(9)) . ' = 1' if $draw < 0.17;
	return 't.id < ' . number($schema->{rows} * 1.2) if $draw < 0.22;
	return 't.grp ' . one_of('=', '=', '<', '>') . ' ' . number(6) if $draw < 0.3;
	return one_condition($schema);
}

# ---- vectors, each with a number; what rows refer to by number is known here alone

my @vectors;

sub vector_of { my ($vid) = @_; return $vectors[$vid] }

sub forget_vectors { @vectors = (); return }

# halfvec: numbers that a half has, so that pgvector's rounding is not tested here
sub rounded
{
	my ($schema, @values) = @_;

	return $schema->{type} eq 'halfvec' ? map { int($_ * 64) / 64 } @values :
		map { 0 + sprintf '%.4f', $_ } @values;
}

sub normal { return (rand() + rand() + rand() + rand() - 2) * 1.2 }

sub draw_vector
{
	my ($schema) = @_;
	my $style = $schema->{style};
	my $dim = $schema->{dim};

	my $other = chance($schema->{equal}) && @vectors ? $vectors[ rand @vectors ] : undef;

	return $other if $other;
	return [ map { number(4) } 1 .. $dim ] if $style eq 'grid';
	my $centre = one_of(@{ $schema->{centres} });

	return [ rounded($schema, map { $_ + 0.35 * normal() } @$centre) ];
}

sub draw_query
{
	my ($schema) = @_;

	my $row = chance(0.3) && @vectors ? $vectors[ rand @vectors ] : undef;

	return $row if $row;
	my $centre = one_of(@{ $schema->{centres} });
	return [ rounded($schema, map { $_ + 0.4 * normal() } @$centre) ];
}

sub vector_literal
{
	my ($schema, $vector) = @_;

	return "'[" . join(',', @$vector) . "]'::$schema->{type}($schema->{dim})";
}

# The distance as README defines it; undef: the row has none.
sub distance
{
	my ($schema, $x, $y) = @_;
	my $metric = $schema->{metric};
	my ($sum, $xx, $yy) = (0, 0, 0);

	return undef if !defined $x;
	if ($metric eq 'l2')
	{
		for my $i (0 .. $#$x) { my $d = $x->[$i] - $y->[$i]; $sum += $d * $d }
		return sqrt $sum;
	}
	if ($metric eq 'l1')
	{
		$sum += abs($x->[$_] - $y->[$_]) for 0 .. $#$x;
		return $sum;
	}
	for my $i (0 .. $#$x)
	{
		$sum += $x->[$i] * $y->[$i];
		$xx += $x->[$i] * $x->[$i];
		$yy += $y->[$i] * $y->[$i];
	}
	return -$sum if $metric eq 'ip';
	return $xx == 0 || $yy == 0 ? undef : 1 - $sum / sqrt($xx * $yy);
}

# Distances that agree to six digits may come in either order. Sums of products lose digits beside
# the lengths of what is multiplied.
sub tolerance
{
	my ($schema, $query) = @_;
	my $length = sqrt sum0 map { $_ * $_ } @$query;

	return 4e-6 if $schema->{metric} eq 'cosine';
	return 3e-6 * max(1, $length * $schema->{length}) if $schema->{metric} eq 'ip';
	return 3e-6 * max(1, $schema->{length});
}

# ---- a schema

sub draw_options
{
	my ($schema) = @_;
	my %options;

	$options{algorithm} = one_of('cagra', 'cagra', 'tsdg', 'grnnd');
	$options{graph_degree} = one_of(16, 24, 32, 32, 48);
	$options{intermediate_graph_degree} = 2 * $options{graph_degree};
	$options{seal_rows} = one_of(0, 100, 300, 600, -1);
	$options{segment_rows} = 1000 if chance(0.15);
	$options{seed} = number(1000) if chance(0.2);
	my $form = rand();
	if ($form < 0.2) { $options{storage} = 'float16' }
	elsif ($form < 0.35) { $options{storage} = one_of('int8', 'int4') }
	elsif ($form < 0.55)
	{
		my $rows = $schema->{type} eq 'halfvec' ? 'float16' : one_of('float32', 'float16');
		$options{storage} = "$rows+" . one_of('int8', 'int4');
	}
	$options{learn_queries} = 'on' if chance(0.15);
	if ($options{algorithm} eq 'tsdg')
	{
		$options{alpha} = one_of(1.05, 1.2, 2) if chance(0.3);
	}
	return \%options;
}

sub options_sql
{
	my ($schema, $again) = @_;

	$schema->{options} = draw_options($schema) if $again;
	my $options = $schema->{options};

	return join ', ', map { "$_ = '$options->{$_}'" } sort keys %$options;
}

sub draw_schema
{
	my %schema = (
		type => weighted(vector => 2, halfvec => 1),
		metric => weighted(l2 => 3, ip => 2, cosine => 2, l1 => 1),
		dim => one_of(2, 3, 8, 8, 12, 16, 16, 24, 32, 48, 64, 64, 100),
		rows => one_of(150, 500, 900, 900, 1500, 2500),
		style => weighted(clusters => 5, grid => 1),
		equal => one_of(0, 0.02, 0.2),
		nulls => one_of(0, 0.02, 0.1),
		parted => weighted('' => 6, LIST => 1, RANGE => 1, HASH => 1),
		partial => chance(0.12));

	$schema{centres} = [ map { [ map { 2 * normal() } 1 .. $schema{dim} ] } 1 .. one_of(1, 8, 25) ];
	$schema{length} = sqrt($schema{dim}) * 3;
	$schema{filters} = [ (sort { rand() <=> 0.5 } @names)[ 0 .. number(7) ] ];
	$schema{filters} = [] if chance(0.15);
	# sets are of its values
	push @{ $schema{filters} }, 'i4' if chance(0.5) && !grep { $_ eq 'i4' } @{ $schema{filters} };
	$schema{options} = draw_options(\%schema);
	$schema{next} = 1;
	return \%schema;
}

sub create_sql
{
	my ($schema) = @_;
	my $columns = join ', ', map { "$_ $column{$_}[0]" } @names;
	my $table = "CREATE TABLE t (id bigint, vid int, grp int NOT NULL, $columns,
		v $schema->{type}($schema->{dim}))";
	my $parted = $schema->{parted};
	my @sql;

	return "$table;" if !$parted;
	push @sql, "$table PARTITION BY $parted (" . ($parted eq 'HASH' ? 'id' : 'grp') . ');';
	if ($parted eq 'LIST')
	{
		push @sql, "CREATE TABLE t_$_ PARTITION OF t FOR VALUES IN ($_);" for 0 .. 3;
		push @sql, 'CREATE TABLE t_rest PARTITION OF t DEFAULT;';
	}
	elsif ($parted eq 'RANGE')
	{
		push @sql, 'CREATE TABLE t_low PARTITION OF t FOR VALUES FROM (MINVALUE) TO (2);',
			'CREATE TABLE t_high PARTITION OF t FOR VALUES FROM (2) TO (MAXVALUE)
				PARTITION BY LIST (b);',
			'CREATE TABLE t_high_true PARTITION OF t_high FOR VALUES IN (true);',
			'CREATE TABLE t_high_rest PARTITION OF t_high DEFAULT;';
	}
	else
	{
		push @sql, "CREATE TABLE t_$_ PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER $_);"
			for 0 .. 2;
	}
	return join "\n", @sql;
}

sub index_sql
{
	my ($schema) = @_;
	my $columns = join ', ', "v $schema->{type}_$schema->{metric}_ops", @{ $schema->{filters} };

	return "CREATE INDEX t_idx ON t USING gpugraph ($columns) WITH (" . options_sql($schema) . ')'
		. ($schema->{partial} ? ' WHERE grp < 4' : '') . ';';
}

# New values of a row's columns, and a new vector, as SQL.
sub row_sql
{
	my ($schema) = @_;
	my $vid = @vectors;
	my $v = 'NULL';

	$vectors[$vid] = undef;
	if (!chance($schema->{nulls}))
	{
		$vectors[$vid] = draw_vector($schema);
		$vectors[$vid] = [ (0) x $schema->{dim} ] if chance(0.003);
		$v = "'[" . join(',', @{ $vectors[$vid] }) . "]'";
	}
	return ($vid, number(6), (map { chance(0.06) ? 'NULL' : $column{$_}[2]->() } @names), $v);
}

sub draw_rows
{
	my ($schema, $n) = @_;

	return 'INSERT INTO t (id, vid, grp, ' . join(', ', @names, 'v') . ') VALUES '
		. join(",\n", map { '(' . join(', ', $schema->{next}++, row_sql($schema)) . ')' } 1 .. $n)
		. ';';
}

1;
