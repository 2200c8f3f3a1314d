# gpugraph_prewarm() where no GPU can hold the index: it reads the index into shared buffers, which
# is what the CPU's searches profit from. Under gpugraph.engine = cuda it stays an error.
use Gpugraph;
use Residency;

my $prewarm = "SELECT gpugraph_prewarm('items_idx')";

# Blocks of the index in shared buffers, and of the index.
my $blocks = <<'SQL';
SELECT count(*), pg_relation_size('items_idx') / current_setting('block_size')::int
	FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('items_idx')
	AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
SQL

sub warms_buffers
{
	my ($node, $what) = @_;

	$node->restart;
	my $size = $node->sql("SELECT pg_relation_size('items_idx')");
	my ($before) = split /\|/, $node->sql($blocks);
	is($node->sql($prewarm), $size, "$what: it returns the bytes it read");
	my ($after, $all) = split /\|/, $node->sql($blocks);
	is($after, $all, "$what: the whole index is in shared buffers, of which $before blocks were");
	my ($rc, undef, $err) = $node->psql('postgres', "SET gpugraph.engine = cuda; $prewarm");
	like($err, qr/ERROR: .*(?:service is not running|no device of the gpugraph service is up)/,
		"$what: with gpugraph.engine = cuda it is an error");
	return;
}

sub create
{
	my ($node) = @_;

	unserved {
		make_items($node, 4000, 16);
		$node->sql(<<'SQL');
CREATE EXTENSION pg_buffercache;
CREATE TABLE empty (val vector(3));
CREATE INDEX empty_idx ON empty USING gpugraph (val vector_l2_ops);
SQL
	};
	return;
}

# ---- no service
{
	my $node = new_node('no_service');

	create($node);
	warms_buffers($node, 'no service');
	is($node->sql("SELECT gpugraph_prewarm('empty_idx')"),
		$node->sql("SELECT pg_relation_size('empty_idx')"), 'an empty index');
	is($node->sql(<<'SQL'), 't', 'a temporary one');
SET client_min_messages = error;
CREATE TEMP TABLE t AS SELECT val FROM items LIMIT 100;
CREATE INDEX t_idx ON t USING gpugraph (val vector_l2_ops);
SELECT gpugraph_prewarm('t_idx') = pg_relation_size('t_idx');
SQL

	# no more than there are buffers: the last blocks would push out the first
	restart_with($node, 'shared_buffers = 512kB');
	is($node->sql($prewarm), 512 * 1024, 'few buffers: as much as they take');
	like(error_of($node, "SELECT gpugraph_prewarm('items_pkey')"),
		qr/is not a gpugraph index/, 'other indexes are refused as ever');
	$node->stop;
}

# ---- a service whose device is not there
{
	my $node = new_node('no_device', conf => service_conf() . "gpugraph.fault = no_driver\n");

	create($node);
	warms_buffers($node, 'no device');
	alter_system($node, 'SET gpugraph.fault = none');
	ok_in_time(sub { of_device($node, 'state') eq 'up' }, 'the device comes');
	$node->sql($prewarm);
	truth_by_device($node, 'then the index is brought there');
	$node->stop;
}

done_testing();
