# The bug: gpugraph_prewarm() waited for ever. ALTER TABLE may give an index a new oid and leave it
# its file. The resident was found by the file, and its refreshes asked for the oid that was gone.
use Gpugraph;
use Residency;

my $node = service_node('new_oid', conf => "gpugraph.merge_workers = 0\n");
my $index = "SELECT 'items_idx'::regclass::oid, pg_relation_filenode('items_idx')";

make_items($node, 4000, 16);
$node->sql("SELECT gpugraph_prewarm('items_idx')");
my @before = split /\|/, $node->sql($index);
$node->sql('ALTER TABLE items ALTER val TYPE vector');
my @after = split /\|/, $node->sql($index);
isnt($after[0], $before[0], 'the index has a new oid');
is($after[1], $before[1], 'and its old file');
truth_by_device($node, 'as before');

$node->sql('INSERT INTO items SELECT id + 10000, cat, big, val FROM items');
is($node->sql("SET statement_timeout = '60s'; SELECT gpugraph_prewarm('items_idx') > 0"), 't',
	'it is brought up to date');
truth_by_device($node, 'afterwards');

finish_test($node);
