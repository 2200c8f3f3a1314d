# Background workers run no functions of an index's expressions and predicate, whose rights would be
# those of a superuser: merge workers, VACUUM's and those of the service read what is stored.
# Workers of a parallel build run them as the table's owner. test/pgtap/owner_rights.sql has what
# sessions do.
use Gpugraph;
use Residency;

# the service with an engine of its own, and a merge worker
my $node = service_node('rights', conf => "log_line_prefix = '%p %b '\nautovacuum = off\n"
	. "max_parallel_maintenance_workers = 2\n");

$node->sql(<<'SQL');
CREATE ROLE keeper;
GRANT CREATE ON SCHEMA public TO keeper;
SELECT make_data('items', 4000, 8, 20);
ALTER TABLE items OWNER TO keeper;
ALTER TABLE items SET (parallel_workers = 2);
SET ROLE keeper;
CREATE FUNCTION key(v public.vector) RETURNS public.vector LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
	AS $$ BEGIN RAISE LOG 'key as %', current_user; RETURN v; END $$;
CREATE FUNCTION wanted(id int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
	AS $$ BEGIN RAISE LOG 'predicate as %', current_user; RETURN true; END $$;
SQL

# Which processes ran a function as whom since then.
my $offset = -s $node->logfile;
sub ran
{
	my $log = slurp_file($node->logfile, $offset);
	my %who;

	$offset = -s $node->logfile;
	$who{"$1: $2"} = 1 while $log =~ /^\d+ (.*?) LOG:  ((?:key|predicate) as \w+)$/mg;
	return join '; ', sort keys %who;
}

$node->sql('SET min_parallel_table_scan_size = 0;
	CREATE INDEX items_idx ON items USING gpugraph ((public.key(val)::vector(8)) vector_l2_ops)
		WITH (seal_rows = 500) WHERE public.wanted(id)');
is(ran(), 'client backend: key as keeper; client backend: predicate as keeper; '
	. 'parallel worker: key as keeper; parallel worker: predicate as keeper',
	'a parallel build: as the owner');

$node->sql("SELECT gpugraph_prewarm('items_idx')");
is(ran(), '', 'the service loads the index: nothing');

sub info
{
	return $node->sql("SELECT $_[0] FROM gpugraph_index_info('items_idx')");
}

my $before = info('generation');
$node->sql('SET ROLE keeper;
	INSERT INTO items SELECT id + 10000, cat, big, val FROM items WHERE id <= 2000');
is(ran(), 'client backend: key as keeper; client backend: predicate as keeper',
	'inserts: as the user who inserts');
ok_in_time(sub { info('delta_rows') < 500 }, 'a worker merges them');
$node->sql("SELECT gpugraph_prewarm('items_idx')");
is(ran(), '', 'a merge worker, and the service that gets what it made: nothing');

$node->sql('DELETE FROM items WHERE id % 10 <> 0');
$node->sql('VACUUM (FREEZE) items');
ok_in_time(sub { info('rows + delta_rows') < 2000 }, 'VACUUM has the worker compact it');
is(ran(), '', 'VACUUM, and the worker: nothing');
cmp_ok(info('generation'), '>', $before, 'there were merges');

$node->sql("SELECT count(*)
	FROM gpugraph_search('items_idx', (SELECT array_agg(val) FROM items WHERE id < 100), 5)");
is(ran(), '', 'many queries, answered by the service: nothing');

finish_test($node);
