# Who may have indexes loaded and evicted, and at whose cost: nobody but the table's owner evicts an
# index, and gpugraph_prewarm() pushes out what others have had loaded just now only for those who
# maintain the whole server.
use Gpugraph;
use Residency;

my $node = service_node('privileges', conf => "gpugraph.device_memory = 2MB\n");

# three tables of some 0.8 MB each on the device
for my $t (qw(a b c))
{
	unserved {
		$node->sql("SELECT make_data('$t', 4000, 16, 40);
			CREATE INDEX ${t}_idx ON $t USING gpugraph (val vector_l2_ops)");
	};
}
$node->sql(<<SQL);
CREATE ROLE keeper;
CREATE ROLE watcher IN ROLE pg_stat_scan_tables;
CREATE ROLE nobody;
ALTER TABLE c OWNER TO keeper;
SQL

sub states { return join ' ', map { state_of($node, "${_}_idx") } qw(a b c) }
sub error_as { return error_of($node, "SET ROLE $_[0]; SELECT $_[1]") }

# loads that took a second are protected for twenty
for my $t (qw(a b))
{
	$node->sql("SET gpugraph.fault = load_stall; SELECT gpugraph_prewarm('${t}_idx')");
}
is(states(), 'ready ready absent', 'two fit');

# ---- evict
like(error_as('watcher', "gpugraph_evict('a_idx')"), qr/must be owner of index a_idx/,
	'a member of pg_stat_scan_tables may not evict');
like(error_as('keeper', "gpugraph_evict('a_idx')"), qr/must be owner of index a_idx/,
	'nor the owner of another table');
like(error_as('nobody', "gpugraph_evict('a_idx')"), qr/must be owner of index a_idx/,
	'nor anybody');
is(states(), 'ready ready absent', 'nothing was evicted');

# ---- prewarm
is(error_as('watcher', "gpugraph_prewarm('a_idx')"), '',
	'a member of pg_stat_scan_tables may prewarm');
like(error_as('nobody', "gpugraph_prewarm('a_idx')"), qr/must be owner of index a_idx/,
	'not anybody');
like(error_as('keeper', "gpugraph_prewarm('c_idx')"),
	qr/could not load index "c_idx".*has not been used for long enough/s,
	'the owner may, but not at the cost of what was loaded just now');
like(error_as('watcher', "gpugraph_prewarm('c_idx')"),
	qr/could not load index "c_idx".*has not been used for long enough/s,
	'nor may a member of pg_stat_scan_tables');
is(states(), 'ready ready failed', 'what was there is there still');
$node->sql("SELECT gpugraph_evict('b_idx')");
is(error_as('keeper', "gpugraph_prewarm('c_idx')"), '', 'where there is room the owner may');
is(states(), 'ready absent ready', 'it was loaded');
$node->sql("SELECT gpugraph_evict('c_idx'); SET gpugraph.fault = load_stall;
	SELECT gpugraph_prewarm('c_idx')");
is($node->sql("SELECT gpugraph_prewarm('b_idx') > 0"), 't', 'a superuser may at any cost');
is(states(), 'absent ready ready', 'what was used longest ago was evicted');
is(error_as('keeper', "gpugraph_evict('c_idx')"), '', 'the owner may evict');
is(states(), 'absent ready absent', 'it was evicted');

# ---- what can be granted from PostgreSQL 17 on
if ($node->pg_version >= 17)
{
	$node->sql('GRANT MAINTAIN ON b TO nobody; CREATE ROLE maintainer IN ROLE pg_maintain');
	is(error_as('nobody', "gpugraph_evict('b_idx')"), '', 'who may maintain the table may evict');
	is(error_as('nobody', "gpugraph_prewarm('b_idx')"), '', 'and prewarm');
	$node->sql("SELECT gpugraph_evict('b_idx')");
	for my $t (qw(a b))
	{
		$node->sql("SET gpugraph.fault = load_stall; SELECT gpugraph_prewarm('${t}_idx')");
	}
	is(error_as('maintainer', "gpugraph_prewarm('c_idx')"), '',
		'a member of pg_maintain may prewarm at any cost');
	is(states(), 'absent ready ready', 'what was used longest ago was evicted');
}

finish_test($node);
