# What a scan remembers of a device copy never names another copy: not after the worker was
# replaced, however many copies were made before and since.
use Gpugraph;
use Residency;

# always the CPU engine, whose sizes, ties and number of devices are the same everywhere
my $node = service_node('stale',
	conf => "gpugraph.service_engine = cpu\ngpugraph.itopk_size = 64\n");
make_items($node, 12000, 16);
unserved {
	$node->sql("SELECT make_data('other', 12000, 16, 40);
		CREATE INDEX other_idx ON other USING gpugraph (val vector_l2_ops)");
};

sub load { return $node->sql("SELECT gpugraph_prewarm('$_[0]_idx')") }
sub evict { return $node->sql("SELECT gpugraph_evict('$_[0]_idx')") }
sub load_often
{
	my ($n, $rel) = @_;
	return $node->sql(join ';',
		("SELECT gpugraph_evict('${rel}_idx')", "SELECT gpugraph_prewarm('${rel}_idx')") x $n);
}

# ---- a cursor that asks its copy for more after the next worker has made as many copies
# the first of them by CREATE INDEX
load_often(19, 'items');
is(of_device($node, 'loads'), 20, '20 copies were made');

my ($in, $out, $err) = ('', '', '');
my $session = IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d',
	$node->connstr('postgres') ],
	'<', \$in, '>', \$out, '2>', \$err);
$in .= <<'SQL';
SET enable_seqscan = off;
CREATE TEMP TABLE got (n serial, id int);
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1);
FETCH 5 FROM c;
\echo fetched
SQL
ok_in_time(sub { $session->pump_nb; return $out =~ /fetched/; }, 'a cursor is open');

# the entry is taken by another index, whose load fails, so that the next worker finds no copy's
# number in the table
evict('items');
$node->psql('postgres', "SET gpugraph.fault = load; SELECT gpugraph_prewarm('other_idx')");
is(of_index($node, 'state', 'other_idx'), 'failed', 'the entry is another\'s');
my $pid = of_device($node, 'pid');
kill 'TERM', $pid;
ok_in_time(sub { my $now = of_device($node, 'coalesce(pid, 0)'); return $now != 0
	&& $now != $pid && of_device($node, 'state') eq 'up'; },
	'the next worker is there');
# as many copies as before: the last one would have the number that the cursor remembers
evict('items');
load_often(20, 'other');
is(of_index($node, 'state', 'other_idx'), 'ready', 'copies of the other index are made');

$out = '';
$in .= "FETCH 195 FROM c;\n\\echo done\n";
ok_in_time(sub { $session->pump_nb; return $out =~ /done/; }, 'the cursor goes on');
my @by_cursor = grep { /^\d+$/ } split /\n/, $out;
$in .= "\\q\n";
$session->finish;
my @all = split /\n/, $node->sql('SET enable_seqscan = off; SET gpugraph.engine = cpu;
	SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 1) LIMIT 200');
is("@by_cursor", "@all[5 .. 199]", 'with its own rows, in order');

# ---- a database is dropped and made again, with the number and the template that it had: the same
# files, instances and generations
{
	$node->sql('CREATE DATABASE template_for_it');
	$node->safe_psql('template_for_it', <<'SQL');
CREATE EXTENSION vector;
CREATE EXTENSION gpugraph;
CREATE TABLE rows (id int, val vector(4));
CREATE INDEX rows_idx ON rows USING gpugraph (val vector_l2_ops);
SQL
	my $make = 'CREATE DATABASE again OID = 99999 TEMPLATE template_for_it';
	my $ask =
		"SET enable_seqscan = off; SELECT id FROM rows ORDER BY val <-> '[7, 0, 0, 0]' LIMIT 1";

	$node->sql($make);
	$node->safe_psql('again',
		"INSERT INTO rows SELECT i, ARRAY[i, 0, 0, 0]::vector FROM generate_series(1, 9000) i");
	cmp_ok($node->safe_psql('again', "SELECT gpugraph_prewarm('rows_idx')"), '>', 0,
		'an index of a database is loaded');
	is($node->safe_psql('again', $ask), 7, 'and answers');

	# held up, the worker cannot see that the files were gone for a moment
	my $worker = of_device($node, 'pid');
	kill 'STOP', $worker;
	$node->sql('DROP DATABASE again');
	$node->sql($make);
	$node->safe_psql('again',
		"INSERT INTO rows SELECT i, ARRAY[9001 - i, 0, 0, 0]::vector
		FROM generate_series(1, 9000) i");
	kill 'CONT', $worker;
	is($node->safe_psql('again', $ask), 8994, 'a database with the same number: its own rows');
	ok_in_time(
			sub {
				$node->safe_psql('again', $ask);
				return $node->safe_psql('again',
					"SELECT state FROM gpugraph_stat_index
					WHERE relid = 'rows_idx'::regclass AND datname = 'again'") eq 'ready';
			},
		'its index is loaded');
	is($node->safe_psql('again', "SET gpugraph.engine = cuda; $ask"), 8994, 'and answers');
	is($node->sql('SELECT count(*) FROM gpugraph_stat_index WHERE datname = \'again\''), 1,
		'the old copy is gone');
}

is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
finish_test($node);
