/*
 * cooperative_groups.h
 *		Clusters of thread blocks, for the emulated device.
 */
#ifndef EMULATE_COOPERATIVE_GROUPS_H
#define EMULATE_COOPERATIVE_GROUPS_H

#include "cuda_runtime.h"

namespace cooperative_groups
{

class cluster_group
{
public:
	unsigned
	num_blocks() const
	{
		return emulate::cluster_blocks();
	}
	unsigned
	block_rank() const
	{
		return emulate::cluster_rank();
	}
	void
	sync() const
	{
		emulate::cluster_barrier();
	}

	/* The same place in another block's shared memory. */
	template <typename T>
	T *
	map_shared_rank(T *address, unsigned rank) const
	{
		return (T *) emulate::cluster_address(address, rank);
	}
};

static inline cluster_group
this_cluster()
{
	return cluster_group();
}

}

#endif							/* EMULATE_COOPERATIVE_GROUPS_H */
