# In which buffers pages were seen is known to all sessions of a preloaded server. Searches find
# their rows whatever another session did to table and index since, and whatever is in those
# buffers now.
use Gpugraph;
use Residency;

# less than table and index take, so that buffers are used again and again
my $node = service_node('recent_buffers', conf => <<'CONF');
shared_buffers = 4MB
gpugraph.itopk_size = 64
gpugraph.merge_workers = 0
CONF

$node->sql(<<'SQL');
CREATE FUNCTION val_of(id int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT (SELECT array_agg(sin(id * d) + cos(id * 0.37 + d * d) ORDER BY d)
	FROM generate_series(1, 32) d)::vector(32)';
-- its rows are those from first on, ten in steps of a hundred of which are searched for
CREATE FUNCTION fill(rel text, first int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO %I SELECT i, val_of(i) FROM generate_series(%s, %s) i', rel, first,
		first + 5999);
END $$;
CREATE FUNCTION asked(first int) RETURNS TABLE (n bigint, id int, val vector) LANGUAGE sql AS
	'SELECT row_number() OVER (ORDER BY i), i, val_of(i)
	FROM generate_series(first, first + 5999, 100) i';
-- ids of rows that a scan for them does not find, or a call for all of them
CREATE FUNCTION missed(rel text, first int, engine text) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
	result int[];
BEGIN
	PERFORM set_config('gpugraph.engine', engine, true);
	PERFORM set_config('enable_seqscan', 'off', true);
	EXECUTE format('SELECT array_agg(q.id ORDER BY q.id) FROM asked($1) q
		LEFT JOIN gpugraph_search(%1$L, (SELECT array_agg(val ORDER BY n) FROM asked($1)), 1) f
		ON f.query = q.n LEFT JOIN %2$I t ON t.ctid = f.tid
		WHERE t.id IS DISTINCT FROM q.id
		OR q.id <> (SELECT id FROM %2$I ORDER BY val <-> q.val LIMIT 1)',
		rel || '_idx', rel) INTO result USING first;
	RETURN result;
END $$;
CREATE FUNCTION make(rel text, first int, kind text DEFAULT '') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE %s TABLE %I (id int, val vector(32)) WITH (fillfactor = 10)', kind, rel);
	PERFORM fill(rel, first);
	EXECUTE format('CREATE INDEX %I ON %I USING gpugraph (val vector_l2_ops)', rel || '_idx', rel);
END $$;
SQL

# Each question is asked by two sessions, one after the other.
sub all_found
{
	my ($first, $what) = @_;

	$node->sql('SELECT gpugraph_prewarm(\'items_idx\')');
	for my $engine ('cpu', 'cuda', 'cpu', 'cuda')
	{
		is($node->sql("SELECT missed('items', $first, '$engine')"), '',
			"$what: rows are found, engine $engine");
	}
	return;
}

$node->sql("SELECT make('items', 1)");
all_found(1, 'a new table');
$node->sql("TRUNCATE items; SELECT fill('items', 3001)");
all_found(3001, 'after TRUNCATE');
$node->sql('REINDEX INDEX items_idx');
all_found(3001, 'after REINDEX');
$node->sql('VACUUM FULL items');
all_found(3001, 'after VACUUM FULL');
$node->sql("DROP TABLE items; SELECT make('items', 5001)");
all_found(5001, 'after DROP and CREATE');
# other rows in the same places, and another segment
$node->sql($_)
	for 'DELETE FROM items', 'VACUUM items', "SELECT fill('items', 7001)",
	"SELECT gpugraph_merge('items_idx')";
all_found(7001, 'after DELETE, INSERT and a merge');
$node->sql($_)
	for 'DELETE FROM items', 'VACUUM items', "SELECT fill('items', 9001)",
	"SELECT gpugraph_merge('items_idx')", 'VACUUM items';
all_found(9001, 'and once more');
$node->stop('immediate');
$node->start;
wait_for(sub { of_device($node, 'state') eq 'up' });
all_found(9001, 'after a crash');

# the buffers of temporary tables are their session's own
for my $first (1, 6001, 1)
{
	is($node->sql("SET temp_buffers = 100; SELECT make('mine', $first, 'TEMP');
			SELECT missed('mine', $first, 'cpu'); SELECT missed('items', 9001, 'cpu');
			SELECT missed('mine', $first, 'auto')") =~ s/\n//gr, '',
		"a temporary table with rows from $first on");
}

done_testing();
