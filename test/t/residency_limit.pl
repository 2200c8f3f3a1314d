# gpugraph.device_memory: the index used longest ago makes room, no index is evicted in vain, and
# the CPU searches one that can never fit, which the log says once.
use Gpugraph;
use Residency;

my $node = service_node('limit', conf => "gpugraph.device_memory = 2MB\n");

# three tables of the same rows, whose indexes take some 0.8 MB each on the device
$node->sql("SELECT make_data('a', 4000, 16, 40); CREATE TABLE b AS TABLE a;
	CREATE TABLE c AS TABLE a");
for my $t (qw(a b c))
{
	unserved {
		$node->sql("CREATE INDEX ${t}_idx ON $t USING gpugraph (val vector_l2_ops)");
	};
}
$node->sql("SELECT make_queries('a', 20)");
$node->sql('VACUUM ANALYZE');

sub prewarm { return $node->sql("SELECT gpugraph_prewarm('$_[0]_idx')") }
sub states { return join ' ', map { state_of($node, "${_}_idx") } qw(a b c) }

my $bytes = prewarm('a');
cmp_ok($bytes, '>', 700_000, 'an index takes more than a third');
cmp_ok($bytes, '<', 1_048_576, 'and less than half of the limit');
prewarm('b');
is(states(), 'ready ready absent', 'two fit');
truth_by_device($node, 'the first', 'a');
prewarm('c');
is(states(), 'ready absent ready', 'what was used longest ago made room for the third');
is(of_device($node, 'evictions'), 1, 'nothing else was evicted');
is(log_lines($node, qr/index "b_idx".*makes room for index "c_idx"/), 1, 'the log says so');
truth_by_device($node, 'the first', 'a');
truth_by_device($node, 'the third', 'c');

# ---- a query asks for the second; what is there gives way when it has been there for a while,
# 20 times as long as its load took
ok_in_time(
		sub {
			$node->sql(
				"SELECT bool_and(clock_timestamp() > loaded_at + 21 * load_seconds * interval '1 s')
				FROM gpugraph_stat_index
				WHERE relid IN ('a_idx'::regclass, 'c_idx'::regclass)") eq 't'
		},
	'both have been there for a while');
ok_in_time(
	sub { $node->sql("SELECT recall('b', '<->', 1)"); return state_of($node, 'b_idx') eq 'ready'; },
	'queries bring the second back');
is(states(), 'absent ready ready', 'in place of the first');
truth_by_device($node, 'the second', 'b');
cmp_ok(of_device($node, 'resident_bytes'), '<=', 2 * 1024 * 1024, 'the limit is kept');

# ---- too large for the limit
unserved {
	$node->sql("SELECT make_data('big', 9000, 64, 40);
		CREATE INDEX big_idx ON big USING gpugraph (val vector_l2_ops)");
};
like(error_of($node, "SELECT gpugraph_prewarm('big_idx')"),
	qr/could not load index "big_idx".*needs \d+ kB of device memory.*allows 2048 kB/s,
	'prewarm of what is too large fails with the sizes');
is(states(), 'absent ready ready', 'nothing was evicted for it');
is($node->sql("SELECT count(*)
	FROM (SELECT id FROM big ORDER BY val <-> (SELECT val FROM big WHERE id = 5) LIMIT 5) s"),
	5, 'its queries are answered');
is(of_index($node, "state || ' ' || cpu_memory", 'big_idx'), 'failed 1',
	'by the CPU, for want of memory');
ok(($node->psql('postgres', "SELECT gpugraph_prewarm('big_idx')"))[0] != 0,
	'a second try fails, too');
is(log_lines($node, qr/LOG: .*could not load index "big_idx"/), 1, 'the log says it once');
like(error_of($node, "SET gpugraph.engine = cuda;
	SELECT id FROM big ORDER BY val <-> (SELECT val FROM big WHERE id = 5) LIMIT 5"),
	qr/ERROR/, 'with gpugraph.engine = cuda it is an error');

# ---- a higher limit: it is tried again at once, a lower one: what is too much goes
reload_with($node, 'gpugraph.device_memory = 20MB');
ok_in_time(
		sub {
			$node->sql(
				"SELECT id FROM big ORDER BY val <-> (SELECT val FROM big WHERE id = 5) LIMIT 5");
			return state_of($node, 'big_idx') eq 'ready';
		},
	'it fits a higher limit');
is(states(), 'absent ready ready', 'beside the others');
reload_with($node, 'gpugraph.device_memory = 1MB');
ok_in_time(sub { of_device($node, 'resident_bytes') <= 1024 * 1024 }, 'a lower limit is kept to');

# ---- lowered while a load is under way that was granted more: kept to as far as can be, and in
# full once that is through
reload_with($node, 'gpugraph.device_memory = 20MB');
ok_in_time(sub { of_device($node, 'limit_bytes') == 20 * 1024 * 1024 }, 'a higher limit again');
prewarm('a');
set_fault($node, 'load_stall');
my $loading = start_psql($node, "SELECT gpugraph_prewarm('big_idx')");
ok_in_time(sub { of_device($node, 'resident_bytes') > 2_500_000 }, 'a load is under way');
is(state_of($node, 'big_idx'), 'loading', 'it is');
reload_with($node, 'gpugraph.device_memory = 1MB');
ok_in_time(sub { state_of($node, 'a_idx') eq 'absent' }, 'what can go does');
set_fault($node);
finish_psql($loading);
ok_in_time(sub { of_device($node, 'resident_bytes') <= 1024 * 1024 }, 'and the rest follows');
is(truth($node, 'c') =~ /^1\.0000/ ? 'yes' : 'no', 'yes', 'all the while answers are right');

finish_test($node);
