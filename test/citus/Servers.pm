# Clusters with Citus for the TAP programs of this folder.
package Servers;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Cluster;

use Gpugraph;

our @EXPORT = qw(citus_node citus_cluster);

# Nodes reach each other by sockets, without TLS. Shards move by logical replication.
sub citus_node
{
	my ($name) = @_;
	my $node = new_node($name, new => { install_path => $ENV{GG_CITUS} },
		init => { allows_streaming => 'logical' },
		conf => "shared_preload_libraries = 'citus,gpugraph'
			citus.node_conninfo = 'sslmode=disable'\nmax_worker_processes = 32
			citus.enable_statistics_collection = off\nshared_buffers = 128MB\n");

	# by which nodes reach themselves
	$node->append_conf('postgresql.conf', "citus.local_hostname = '" . $node->host . "'\n");
	$node->reload;
	$node->safe_psql('postgres', 'CREATE EXTENSION citus');
	return $node;
}

# A coordinator, which comes first, and so many workers.
sub citus_cluster
{
	my ($workers) = @_;
	my @workers = map { citus_node("worker$_") } 1 .. $workers;
	my $main = citus_node('coordinator');
	my ($host, $port) = ($main->host, $main->port);

	$main->safe_psql('postgres', "SELECT citus_set_coordinator_host('$host', $port)");
	$main->safe_psql('postgres',
		"SELECT citus_add_node('" . $_->host . "', " . $_->port . ')') for @workers;
	return ($main, @workers);
}

1;
