# pg_upgrade carries an index of each format over: its blocks are copied as they are, and so is the
# sample that it learned from. test/upgrade runs this from one version of PostgreSQL to others.
use Gpugraph;
use Format;

my $old = new_node('old');
make_items($old, 2000, 16);
$old->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id % 2 = 0');
$old->sql('DELETE FROM items WHERE id % 5 = 0');
$old->sql('VACUUM items');
$old->sql("SELECT make_data('more', 2000, 16, 40);
	CREATE INDEX more_idx ON more USING gpugraph (val vector_l2_ops)
	WITH (algorithm = tsdg, alpha = 1.2)");
$old->sql("SELECT make_data('asked', 400, 16, 7);
	CREATE FUNCTION learn() RETURNS bigint LANGUAGE sql AS
		'SELECT gpugraph_learn(''more_idx'', (SELECT array_agg(val ORDER BY id) FROM asked))'");
my $learned = $old->sql('SELECT learn()');
cmp_ok($learned, '>', 100, 'edges are learned');
# an index of each format: 4, which a sample and codes have, beside vectors or alone, 3 and 2; a
# row that was left out leaves no feature
$old->sql('BEGIN; INSERT INTO items (id) VALUES (0); ROLLBACK');
my %formats = (items => 3, more => 4, coded => 4, small => 4, former => 2);
$old->sql(<<'SQL');
CREATE TABLE coded AS SELECT * FROM items;
CREATE INDEX coded_idx ON coded USING gpugraph (val vector_l2_ops, cat)
	WITH (storage = 'float32+int4');
CREATE TABLE small AS SELECT * FROM items;
CREATE INDEX small_idx ON small USING gpugraph (val vector_l2_ops) WITH (storage = 'int8');
CREATE TABLE former AS SELECT * FROM items;
CREATE INDEX former_idx ON former USING gpugraph (val vector_l2_ops);
SQL
# what was measured of the recall lies in the index
$old->sql("SELECT gpugraph_calibrate('coded_idx')");

# When recall was measured, the days on which it was, and the list that a target takes
sub measured
{
	my ($node) = @_;

	return $node->sql(<<'SQL');
SET TimeZone = 'UTC';
SET enable_seqscan = off;
SET gpugraph.target_recall = .95;
SELECT FROM coded ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 100 \g /dev/null
SELECT recall_measured, recall_by, list() FROM gpugraph_indexes WHERE indexname = 'coded_idx';
SELECT measured, queries, cpu_codes FROM gpugraph_stat_recall;
SQL
}
my $calibration = measured($old);
like($calibration, qr/\|rows\|\d+\n[^|]+\|\d+\|[\d.]+$/, 'recall is measured');
forget_newer_options($old);
my $file = index_file($old, 'former_idx');
my $before = answers($old);
$old->stop;
make_old($file);

# What pg_upgrade leaves as it was
sub carried
{
	my ($node, $what) = @_;

	is(answers($node), $before, "$what: the same answers");
	is(measured($node), $calibration, "$what: the same recall that was measured");
	for my $rel (sort keys %formats)
	{
		is($node->sql("SELECT version FROM gpugraph_index_info('${rel}_idx')"),
			$formats{$rel}, "$what: format $formats{$rel} of $rel");
		index_is_complete($node, "$what: $rel", $rel);
	}
	return;
}

my $new = $old;
for my $newer (newer_nodes('new'))
{
	my $was = $new;

	$new = $newer;
	upgrade_node($was, $new, 'pg_upgrade');
	carried($new, 'upgraded to ' . $new->pg_version);
}
is($new->sql('SELECT learn()'), 0, 'what was learned is there');
is($new->sql("SELECT sample_queries FROM gpugraph_index_info('more_idx')"), 400,
	'and so is the sample');
cmp_ok($new->sql('REINDEX INDEX more_idx; SELECT learn()'), '<', $learned / 4,
	'which a build learns from again');
$new->sql("INSERT INTO more SELECT id + 10000, cat, big, val FROM items;
	SELECT gpugraph_merge('more_idx')");
index_is_complete($new, 'upgraded, by tsdg', 'more');
is($new->sql("SELECT algorithm FROM gpugraph_index_info('more_idx')"), 'tsdg',
	'upgraded, by tsdg: and merged so');
$new->sql('INSERT INTO items SELECT id + 100000, cat, big, val FROM items');
$new->sql('DELETE FROM items WHERE id < 100000');
$new->sql('VACUUM items');
index_is_complete($new, 'upgraded and used');
for my $rel (qw(coded small former))
{
	$new->sql("INSERT INTO $rel SELECT id + 200000, cat, big, val FROM $rel;
		DELETE FROM $rel WHERE id % 3 = 0");
	$new->sql("VACUUM $rel");
	index_is_complete($new, 'upgraded and used', $rel);
}

finish_test($new);
