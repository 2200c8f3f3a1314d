# Segments of an index on several devices: for want of room on one, and by the index option devices.
use Gpugraph;
use Residency;
use feature 'state';

# An index larger than one device has segments on several: each query asks all of them, and answers
# are those of one device with room for all.
subtest residency_parts => sub {
	my $node = four_device_node('spread', <<'CONF');
gpugraph.device_timeout = 20s
gpugraph.merge_workers = 0
CONF

	my sub sql { return $node->sql($_[0]) }
	my sub whole { return devices_have_all($node) }
	my sub all_forms { return query_forms($node) }

	my $bytes = sql("SELECT gpugraph_prewarm('items_idx')");
	my $recall = (split / /, who_answers($node))[0];
	my $forms = all_forms();
	cmp_ok($recall, '>=', 0.95, "recall $recall on one device");

	# ---- a limit of a third
	my $megabytes = int($bytes * 0.45 / 1048576 + 0.5);
	alter_system($node, "SET gpugraph.device_memory = '${megabytes}MB'");
	ok_in_time(sub { return of_index($node, 'segments > ALL (device_segments)') eq 't' },
		'too small');
	ok(whole(), 'devices have all segments after a while') or die;
	is(who_answers($node), "$recall 20 0 0", 'they answer with the same recall');
	forms_agree(all_forms(), $forms, 'and every form of query as one device does');
	cmp_ok(of_index($node, 'cardinality(devices)'), '>=', 3, 'of several devices');
	is(of_index($node, 'segments > ALL (device_segments)'), 't', 'none of which has all');
	is(of_index($node, "state || ' ' || missing_segments"), 'ready 0', 'nothing is missing');
	unlike(sql("SELECT hint FROM gpugraph_indexes WHERE indexname = 'items_idx'"), qr/the CPU/,
		'no hint speaks of the CPU');

	# ---- a device is lost
	for my $fault (qw(exit hang))
	{
		my $up = "SELECT count(*) FROM gpugraph_stat_device WHERE state = 'up'";

		my $restarts = restarts($node);
		my $asking = start_psql($node, 'SET enable_seqscan = off', "SET gpugraph.fault = $fault",
			$nearest);

		give_up_who_hangs($node, $restarts) if $fault eq 'hang';
		is(finish_psql($asking) . $asking->{out}, "10\n", "$fault: an answer");
		forms_agree(all_forms(), $forms, "$fault: the others, and the CPU, answer");
		ok_in_time(sub { sql($up) == 4 }, "$fault: the device is back");
		ok(whole(), "$fault: and has its share");
		forms_agree(all_forms(), $forms, "$fault: afterwards");
	}

	# ---- a device that is not there any more when its worker starts again: three have room for all
	sql('ALTER SYSTEM SET gpugraph.fault = no_device');
	$node->reload;
	my $lost = sql('SELECT pid FROM gpugraph_stat_device WHERE resident_indexes > 0
		ORDER BY device DESC LIMIT 1');
	kill 'TERM', $lost;
	ok_in_time(sub { log_lines($node, qr/device \d is not there: 1 found/) > 0 },
		'a device is gone');
	forms_agree(all_forms(), $forms, 'gone: the others, and the CPU, answer');
	ok(whole(), 'gone: the others have its share');
	forms_agree(all_forms(), $forms, 'gone: afterwards');
	sql('ALTER SYSTEM RESET gpugraph.fault');
	$node->reload;
	ok_in_time(sub { sql("SELECT count(*) FROM gpugraph_stat_device WHERE state = 'up'") == 4 },
		'gone: the device is back');
	forms_agree(all_forms(), $forms, 'gone: and all answer');

	# ---- a merge
	sql('INSERT INTO items SELECT id + 50000, cat, big, val FROM items WHERE id <= 1500');
	is(sql("SELECT gpugraph_merge('items_idx')"), 't', 'a merge');
	index_is_complete($node, 'merged');
	like(who_answers($node), qr/^(0\.9\d+|1\.0000) /, 'queries are answered');

	is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
};

# The index option devices: segments are spread over several devices, and come back to one. Queries
# are answered by devices alone all the time, and as one device does.
subtest residency_spread => sub {
	my $node = four_device_node('spread', <<'CONF');
gpugraph.merge_workers = 0
CONF

	my sub sql { return $node->sql($_[0]) }
	my sub places { return of_index($node, "devices::text || ' ' || device_segments::text") }

	my sub same_answers
	{
		my ($what) = @_;
		state $first = query_forms($node);
		forms_agree(query_forms($node), $first, "$what: answers are the same");
		like(who_answers($node), qr/ 20 0 0$/, "$what: of devices alone");
		return;
	}

	like(error_of($node, 'ALTER INDEX items_idx SET (devices = 17)'),
		qr/value 17 out of bounds for option "devices"/, 'too many devices are refused');
	sql("SELECT gpugraph_prewarm('items_idx')");
	is(places(), '{0} {6}', 'an index is on one device');
	same_answers('one device');

	# ---- a wish
	sql('ALTER INDEX items_idx SET (devices = 4)');
	my @by_cpu = ();
	ok_in_time(sub { push @by_cpu, who_answers($node); return shares($node) eq '1 1 2 2'; },
		'segments are spread over four devices') or diag(places());
	is(join(' ', grep { !/ 20 0 0$/ } @by_cpu), '', 'devices have all of them all the time');
	same_answers('four devices');

	# ---- rows of the delta, and rows that are gone
	sql('INSERT INTO items SELECT id + 50000, cat, big, val + (SELECT val FROM queries WHERE q = 1)
		FROM items WHERE id <= 1000;
		DELETE FROM items WHERE id > 50000; VACUUM items');
	same_answers('a delta');

	# ---- a device is lost, and another one gone for a while
	sql("SET enable_seqscan = off; SET gpugraph.fault = exit; SELECT count(*)
		FROM (SELECT id FROM items ORDER BY val <-> (SELECT val FROM queries WHERE q = 3)
			LIMIT 10) s");
	ok(devices_have_all($node), 'exit: others have its share, or it has it again');
	same_answers('exit');
	shares_are($node, '1 1 2 2', 'exit: it is spread over four devices again');
	sql('ALTER SYSTEM SET gpugraph.fault = no_device');
	$node->reload;
	kill 'TERM', sql('SELECT pid FROM gpugraph_stat_device WHERE device = 3');
	ok_in_time(sub { log_lines($node, qr/device 3 is not there: \d found/) > 0 },
		'a device is gone');
	shares_are($node, '2 2 2', 'three devices have two segments each');
	same_answers('three devices');
	sql('ALTER SYSTEM RESET gpugraph.fault');
	$node->reload;
	shares_are($node, '1 1 2 2', 'the device takes its share again when it is back');

	# ---- fewer are wished
	sql('ALTER INDEX items_idx SET (devices = 2)');
	who_answers($node);
	shares_are($node, '3 3', 'two devices have three segments each');
	same_answers('two devices');

	# ---- the wish is taken back
	sql('ALTER INDEX items_idx RESET (devices)');
	ok_in_time(sub { who_answers($node); return of_index($node,
		'6 = ANY (device_segments)') eq 't'; },
		'one device has all again');
	same_answers('one again');

	# ---- devices of unequal speed, where the CPU plays them
	if (($ENV{GG_SERVICE_ENGINE} || 'cpu') eq 'cpu')
	{
		sql("SELECT gpugraph_evict('items_idx')");
		local $ENV{GPUGRAPH_SPEEDS} = '1,3,1,1';
		$node->restart;
		ok_in_time(sub { sql("SELECT count(*) FROM gpugraph_stat_device
			WHERE state = 'up'") == 4 }, 'devices of other speeds');
		sql("ALTER INDEX items_idx SET (devices = 2); SELECT gpugraph_prewarm('items_idx')");
		who_answers($node);
		ok_in_time(sub { return places() eq '{0,1} {2,4}'; },
			'the one that is three times as fast has four of six segments') or diag(places());
		same_answers('unequal devices');
	}

	is(log_lines($node, qr/(PANIC|TRAP|signal)/), 0, 'nothing bad is in the log');
};

# The index option devices for builds and merges, and for every form that segments have on a device.
subtest residency_spread_forms => sub {
	my $node = four_device_node('spread', <<'CONF');
gpugraph.merge_workers = 0
CONF

	my sub sql { return $node->sql($_[0]) }

	# ---- builds and merges have as many segments
	sql('ALTER INDEX items_idx SET (devices = 3); ALTER INDEX items_idx RESET (segment_rows);
		REINDEX INDEX items_idx');
	my sub segments { return sql("SELECT segments FROM gpugraph_index_info('items_idx')") }
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
	$node->stop;
};

done_testing();
