# The bug: a backend that built on a GPU started the driver with its signals open. The driver's
# threads inherit the mask, so the kernel could hand one of them a signal of the backend's, whose
# handler then ran beside the backend's own thread. The fix: the driver is started, and its context
# made, with all signals blocked. The threads of the CPU engine, and those that copy rows, always
# did so.
#
# With GG_SERVICE_ENGINE=cuda the driver is a GPU's (test/gpu/run). CANCEL_ROWS, CANCEL_DIM: as for
# cancel_build.
use Gpugraph;
use Time::HiRes qw(usleep);

my $engine = $ENV{GG_SERVICE_ENGINE} || 'cpu';
my $rows = $ENV{CANCEL_ROWS} || 4000;
my $dim = $ENV{CANCEL_DIM} || 64;
my $create = 'CREATE INDEX items_idx ON items USING gpugraph (val vector_l2_ops)';
my %signals = (INT => 2, USR1 => 10, ALRM => 14, TERM => 15);
# no worker can start, so the leader does everything, with three threads of the CPU engine
my $node = new_node('signals', conf => <<CONF);
gpugraph.engine = $engine
min_parallel_table_scan_size = 0
max_parallel_maintenance_workers = 2
max_parallel_workers = 0
maintenance_work_mem = 1GB
max_wal_size = 8GB
CONF
my $made = $rows < 10000 ? $rows : 10000;

$node->sql("SELECT make_data('items', $made, $dim, 40)");
# sums of two rows are made faster than rows
$node->sql("INSERT INTO items
	SELECT 10000 + row_number() OVER (), a.cat, b.big, a.val + b.val FROM items a, items b
	WHERE b.id <= 1 + $rows / 10000 LIMIT $rows - 10000") if $rows > 10000;

# Name and blocked signals of a thread; nothing when it has ended, or is about to: some kernels say
# then that it blocks none.
sub blocked
{
	my ($task) = @_;

	open(my $file, '<', "$task/status") or return;
	my $status = do { local $/; <$file> } // '';
	my ($name) = $status =~ /^Name:\s*(.*)$/m;
	my ($mask) = $status =~ /^SigBlk:\s*([0-9a-f]+)$/m;

	return if !defined $mask || $status =~ /^State:\s*[XZ]/m || !-e $task;
	return ($name, $mask);
}

# Read the masks of all threads but the first while a statement runs; how many there were, and
# which had a signal open.
sub watch
{
	my ($sql) = @_;
	my $session = start_psql($node, 'SELECT pg_backend_pid()', $sql);
	my (%seen, %open);

	wait_for(sub { $session->{harness}->pump_nb; return $session->{out} =~ /^\d+\n/; });
	my ($pid) = $session->{out} =~ /^(\d+)\n/;
	while ($session->{harness}->pumpable)
	{
		for my $task (glob "/proc/$pid/task/*")
		{
			next if $task =~ m{/$pid$};
			my ($name, $mask) = blocked($task);

			next if !defined $mask;
			$seen{$task} = 1;
			# signals 1 to 32, the first in the lowest bit
			my $word = hex(substr($mask, -8));
			for my $signal (keys %signals)
			{
				$open{"$name: SIG$signal"} = 1 if !($word >> ($signals{$signal} - 1) & 1);
			}
		}
		usleep(1000);
		eval { $session->{harness}->pump_nb; };
	}
	is(finish_psql($session), '', "$sql: done");
	return (scalar keys %seen, join(', ', sort keys %open));
}

# a build by one process, whose engine makes the context; and one whose rows are copied by threads
# of its own
for my $case ([ 'one process', 0 ], [ 'shared memory', 2 ])
{
	my ($what, $workers) = @$case;

	$node->sql("ALTER TABLE items SET (parallel_workers = $workers)");
	my ($threads, $open) = watch($create);
	cmp_ok($threads, '>', 0, "$what: $threads threads were met");
	is($open, '', "$what: with these signals blocked");
	is($node->sql("SELECT engine FROM gpugraph_index_info('items_idx')"),
		$engine, "$what: built on the $engine engine");
	$node->sql('DROP INDEX items_idx');
}

finish_test($node);
