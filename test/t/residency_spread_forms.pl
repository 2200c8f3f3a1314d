# The index option devices for builds and merges, and for every form that segments have on a device.
use Gpugraph;
use Residency;

my $node = four_device_node('spread_forms', <<'CONF');
gpugraph.merge_workers = 0
CONF

sub sql { return $node->sql($_[0]) }

# ---- builds and merges have as many segments
sql('ALTER INDEX items_idx SET (devices = 3); ALTER INDEX items_idx RESET (segment_rows);
	REINDEX INDEX items_idx');
sub segments { return sql("SELECT segments FROM gpugraph_index_info('items_idx')") }
is(segments(), 3, 'a build makes a segment for each');
who_answers($node);
shares_are($node, '1 1 1', 'each is on a device of its own');
ok(devices_have_all($node), 'they answer');

# ---- learned edges, copies by codes, and codes alone
for my $form ("SELECT gpugraph_learn('items_idx', (SELECT array_agg(val) FROM queries), 4)",
	'ALTER SYSTEM SET gpugraph.device_storage = codes; SELECT pg_reload_conf()',
	'ALTER INDEX items_idx SET (storage = int8); REINDEX INDEX items_idx')
{
	my ($what) = $form =~ /(learn|device_storage|storage = int8)/;

	sql($form);
	sql("ALTER INDEX items_idx SET (devices = 1); SELECT gpugraph_evict('items_idx')");
	ok_in_time(sub { return state_of($node) eq 'absent' }, "$what: evicted");
	sql("SELECT gpugraph_prewarm('items_idx')");
	is(shares($node), '3', "$what: on one device");
	my $forms = query_forms($node);
	sql('ALTER INDEX items_idx SET (devices = 3)');
	who_answers($node);
	shares_are($node, '1 1 1', "$what: on three devices");
	forms_agree(query_forms($node), $forms, "$what: answers are the same");
	like(who_answers($node), qr/ 20 0 0$/, "$what: of devices alone");
}
sql('ALTER SYSTEM RESET gpugraph.device_storage; SELECT pg_reload_conf()');

# ---- a merge
sql('INSERT INTO items SELECT id + 50000, cat, big, val FROM items WHERE id <= 6000');
sql("SELECT gpugraph_merge('items_idx')");
cmp_ok(segments(), '>=', 3, 'a merge leaves as many');
index_is_complete($node, 'merged');

is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
finish_test($node);
