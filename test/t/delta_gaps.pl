# Rows that stay while all others are updated leave gaps in the delta, whose blocks VACUUM gives
# back. The index stays small, and the CPU and the device answer right.
use Gpugraph;
use Format;
use Residency;

# VACUUM shortens files itself: a worker's snapshot may keep rows, and its moves make copies stale.
my $node = service_node('gaps', init => { allows_streaming => 1 }, conf => <<'CONF');
gpugraph.device_memory = 200MB
gpugraph.merge_workers = 0
CONF

# Four rows of items to a page, and two pages to a row of longer. All rows are in the delta. That
# no update is a HOT one is the business of the index on cat.
my %rows = (items => 201, longer => 41);
my %pages = (items => 51, longer => 82);
unserved
{
	$node->sql(<<'SQL');
SELECT make_data('items', 201, 450, 10);
SELECT make_data('longer', 41, 2100, 10);
SQL
	for my $rel (sort keys %rows)
	{
		$node->sql(<<"SQL");
CREATE TABLE kept AS SELECT * FROM $rel ORDER BY id;
TRUNCATE $rel;
CREATE INDEX ON $rel (cat);
CREATE INDEX ${rel}_idx ON $rel USING gpugraph (val vector_l2_ops);
INSERT INTO $rel SELECT * FROM kept;
DROP TABLE kept;
SQL
	}
};
my $replica = start_standby($node, 'replica');

sub info
{
	my ($rel, $what) = @_;

	return $node->sql("SELECT $what FROM gpugraph_index_info('${rel}_idx')");
}

# By the CPU, by the device, and on the replica
sub all_is_well
{
	my ($what) = @_;

	for my $rel (sort keys %rows)
	{
		$node->sql("SELECT make_queries('$rel', 20)");
		unserved
		{
			index_is_complete($node, "$what, $rel", $rel);
			truth_by_cpu($node, "$what, $rel", $rel);
		};
		$node->sql("SELECT gpugraph_prewarm('${rel}_idx')");
		truth_by_device($node, "$what, $rel", $rel);

		$node->wait_for_catchup($replica, 'replay', $node->lsn('insert'));
		is($replica->sql("SELECT complete('$rel'), gpugraph_check('${rel}_idx', true),
				recall('$rel', '<->')"),
			'ok||1.0000', "$what, $rel: on the replica");
	}
	return;
}

all_is_well('at first');

# ---- the first row, and one in the middle, are never updated
for my $round (1 .. 61)
{
	for my $rel (sort keys %rows)
	{
		unserved
		{
			$node->sql(
				"UPDATE $rel SET cat = cat + 1 WHERE id NOT IN (1, 20); VACUUM (FREEZE) $rel");
		};
	}
	all_is_well("round $round") if $round % 20 == 1;
}
for my $rel (sort keys %rows)
{
	$node->sql('CHECKPOINT');
	my $d = read_directory(index_file($node, "${rel}_idx"));
	is($d->{delta_first}, 0, "$rel: the delta begins where it began");
	cmp_ok(info($rel, 'total_bytes / 8192'), '<=', 4 * $pages{$rel} + 10,
		"$rel: the index does not grow");
	cmp_ok(info($rel, 'delta_bytes / 8192'), '<=', 2 * $pages{$rel} + 10,
		"$rel: and most of it is not the delta");
	cmp_ok(info($rel, 'delta_rows - dead_rows'), '==', $rows{$rel}, "$rel: rows are counted");
}

# ---- a crash with gaps, and rows that come after it
$node->sql('SET gpugraph.engine = cpu;
	UPDATE items SET cat = cat + 1 WHERE id > 20; VACUUM (FREEZE) items');
$node->stop('immediate');
$node->start;
wait_for(sub { of_device($node, 'state') eq 'up' });
all_is_well('after a crash');
unserved
{
	$node->sql("INSERT INTO $_ SELECT 1000 + id, cat, big, val FROM $_") for keys %rows;
};
all_is_well('more rows');

# ---- the rows that stayed go: the delta's front moves behind all gaps
unserved
{
	for my $rel (sort keys %rows)
	{
		$node->sql("DELETE FROM $rel WHERE id IN (1, 20); VACUUM (FREEZE) $rel");
		$node->sql('CHECKPOINT');
		cmp_ok(read_directory(index_file($node, "${rel}_idx"))->{delta_pages}, '<=',
			4 * $pages{$rel}, "$rel: no gap at the front is left");
	}
};
all_is_well('the front moved');

finish_test($node);
