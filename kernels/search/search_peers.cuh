/*
 * search_peers.cuh
 *		The blocks that walk for one query together: their shared memory, and what they hand each
 *		other.
 */
#ifndef GG_SEARCH_PEERS_CUH
#define GG_SEARCH_PEERS_CUH

#include <cooperative_groups.h>

#include "keys.cuh"
#include "launch.cuh"
#include "pivots.h"
#include "query.cuh"
#include "rerank.cuh"
#include "walk.cuh"

namespace cg = cooperative_groups;

/*
 * A query in host memory of up to this many elements is read by every block of the cluster: 16
 * times 1 kB are 0.3 us of PCIe at 55 GB/s.  A longer one is shared out, for one more cluster
 * barrier.  Chosen by arithmetic.
 */
#define SHARE_DIM 256

/*
 * Mail, for peers without clusters: a counter a query, on a line of its own; two boxes a block,
 * each with the keys of a step and their number; a query's exact keys.  Room for as many blocks as
 * there are multiprocessors.
 */
#define MAIL_COUNTER_BYTES 128
#define MAIL_BOX_BYTES (MAX_WALK_CANDIDATES * 8 + 128)
#define MAIL_EXACT_BYTES (GG_MAX_ITOPK * 8)

/*
 * A block's dynamic shared memory:
 *
 *	query		walk_pad x 4			as walks measure it
 *	raw			dim x 4					as it came
 *	list		2 x list_room x 8		keys; merging writes the other half
 *	arrived		2 x blocks x room x 8	keys from all blocks of a cluster, of two steps by turns
 *	kept		room x 8				what arrived and passed
 *	sorted		room x 8
 *	exact		rerank x 8, rounded up	keys of the front of the list: the answer
 *	counts		2 x MAX_CLUSTER x 4		how many keys arrived from each block
 *	ids			room x 4				this block's candidates
 *	parents		warps x 32 x 4
 *	partial		(split + 1) x room x 4	sums, then norms; with codes one room more, for heads
 *	hash		4 << hash_bits			the visited set; before, what makes a query by codes ready
 */
typedef struct block_layout
{
	uint32_t	raw;			/* offsets, bytes */
	uint32_t	list;
	uint32_t	list_room;
	uint32_t	arrived;
	uint32_t	counts;
	uint32_t	kept;
	uint32_t	sorted;
	uint32_t	room;
	uint32_t	ids;
	uint32_t	exact;
	uint32_t	parents;
	uint32_t	partial;
	uint32_t	split;
	uint32_t	hash;
	uint32_t	hash_bits;
	uint32_t	reciprocal;		/* 2^32 / blocks of the query, rounded up; 0: one block */
	uint32_t	blocks;			/* of the query */
	uint32_t	total;
	char	   *mail;			/* of peers without clusters; see mail_peers */
	uint32_t	mail_blocks;	/* blocks that mail has room for */
} block_layout;

typedef struct block_counters
{
	uint32_t	fresh;			/* candidates of this block */
	uint32_t	kept;			/* keys from all blocks, below the list's last one */
	float		scratch[MULTI_WARPS];
} block_counters;

static block_layout
block_layout_for(const search_view *view, const search_launch *launch, const search_device *device,
				 uint32_t cluster, uint32_t warps)
{
	block_layout layout;
	const uint32_t itopk = launch->params.itopk_size;
	const uint32_t entries = 1u << search_entry_bits(itopk);
	uint32_t	candidates = launch->params.search_width * view->degree;
	uint32_t	chunks = (view->walk_quads + 3) / 4;
	uint32_t	at = view->walk_pad * 4;
	uint32_t	sides = view->code_bits > 0 ? 2 : 1;
	uint32_t	least_bits = 10;

	/* the blocks' best pivots arrive through the same room as a step's candidates */
	if (candidates < entries * cluster)
		candidates = entries * cluster;
	if (candidates < launch->nentries)
		candidates = launch->nentries;
	if (candidates < entries * warps)
		candidates = entries * warps;
	layout.room = (candidates + 31) & ~31u;
	layout.list_room = (itopk + 31) & ~31u;
	layout.reciprocal = cluster > 1 ? 0xFFFFFFFFu / cluster + 1 : 0;
	layout.blocks = cluster;
	layout.mail = launch->mail;
	layout.mail_blocks = (uint32_t) device->sms;

	/* about three chunks a warp: fewer leave loads unissued, more put latencies in a row */
	layout.split = 1;
	while (layout.split < warps && layout.split * 3 < chunks)
		layout.split *= 2;

	/* a block owns 1/cluster of some 20 candidates a list member */
	layout.hash_bits = 10;
	while (layout.hash_bits < 13 && (1u << layout.hash_bits) < 32 * itopk / cluster)
		layout.hash_bits++;
	while ((1u << least_bits) / 4 * 3 < itopk + 2 * layout.room)
		least_bits++;
	if (layout.hash_bits < least_bits)
		layout.hash_bits = least_bits;

	layout.raw = at;
	at += (view->dim * 4 + 15) & ~15u;
	layout.list = at;
	at += 2 * layout.list_room * 8;
	layout.arrived = at;
	/* a block alone keeps what it finds, and mail comes through device memory */
	at += cluster > 1 && device->has_clusters ? 2 * cluster * layout.room * 8 : 0;
	layout.kept = at;
	at += layout.room * 8;
	layout.sorted = at;
	at += layout.room * 8;
	layout.exact = at;
	at += (launch->params.rerank / COUNT_STEP + 1) * COUNT_STEP * 8;
	layout.counts = at;
	at += 2 * MAX_CLUSTER * 4;
	layout.ids = at;
	at += layout.room * 4;
	layout.parents = at;
	at += warps * 32 * 4;
	layout.partial = at;

	/*
	 * A block alone has no smaller cluster to give way to.  With the longest lists, 99 KB leave too
	 * little for the sums of 2,000 dimensions in many parts.
	 */
	while (cluster == 1 && layout.split > 1 &&
		   at + (layout.split + sides) * layout.room * 4 + (4u << least_bits) >
		   (uint32_t) device->shared_bytes)
		layout.split /= 2;
	at += (layout.split + sides) * layout.room * 4;
	layout.hash = at;

	/*
	 * The widest rows with the longest lists (16,000 dimensions, degree 32, itopk and k 1,024) take
	 * 231 KB where there are 227.  A smaller set is emptied more often, which changes no answer.
	 */
	while (cluster == 1 && layout.hash_bits > least_bits &&
		   at + (4u << layout.hash_bits) > (uint32_t) device->shared_bytes)
		layout.hash_bits--;
	layout.total = at + (4u << layout.hash_bits);
	/* a query by codes is made ready where the visited set comes */
	if (view->code_bits > 0 && layout.total < at + code_work_bytes(view->dim))
		layout.total = at + code_work_bytes(view->dim);
	return layout;
}

/* Which block of the cluster a node belongs to; another hash than that of visit(). */
static __device__ __forceinline__ uint32_t
owner_of(uint32_t node, uint32_t cluster)
{
	return __umulhi(node * 0x85EBCA6Bu, cluster);
}

/* ---- the blocks of a query --------------------------------------------------- */

/*
 * How the blocks of one query, peers, meet and send keys to each other.  The walk is the same
 * either way.  Code for compute capability 9.0 and later has clusters: keys are written into each
 * peer's shared memory.  Earlier code has mail: keys are written to device memory once, where L2
 * keeps them, and every peer reads them.  Both have two boxes a block, for a block may be one step
 * ahead of another.  With one block a query none of it is used.
 */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
class cluster_peers
{
public:
	const block_layout &layout;
	char	   *shared;
	cg::cluster_group cluster;
	uint32_t	blocks;
	uint32_t	rank;

	__device__ __forceinline__
	cluster_peers(const block_layout &o, char *s)
		: layout(o), shared(s), cluster(cg::this_cluster()), blocks(cluster.num_blocks()),
		  rank(cluster.block_rank())
	{
	}

	/* How many places a key is written to. */
	__device__ __forceinline__ uint32_t
	receivers(void) const
	{
		return blocks;
	}

	/* Is receiver `to` this block?  With mail the one receiver counts as this block. */
	__device__ __forceinline__ bool
	is_self(uint32_t to) const
	{
		return to == rank;
	}

	/* Write a key for receiver `to`. */
	__device__ __forceinline__ void
	send(uint32_t parity, uint32_t to, uint32_t i, uint64_t key)
	{
		cluster.map_shared_rank(box(parity, rank), to)[i] = key;
	}

	__device__ __forceinline__ void
	send_count(uint32_t parity, uint32_t count)
	{
		if (threadIdx.x < blocks)
			cluster.map_shared_rank(counts(parity), threadIdx.x)[rank] = count;
	}

	__device__ __forceinline__ uint32_t
	count(uint32_t parity, uint32_t from) const
	{
		return counts(parity)[from];
	}

	__device__ __forceinline__ const uint64_t *
	keys(uint32_t parity, uint32_t from) const
	{
		return box(parity, from);
	}

	static __device__ __forceinline__ uint64_t
	read(const uint64_t *key)
	{
		return *key;
	}

	/* Before the first key is sent: others' shared memory may be written only once they run. */
	__device__ __forceinline__ void
	start(void)
	{
		cluster.sync();
	}

	/* Wait until all that this block sent is there, and all that others sent is here. */
	__device__ __forceinline__ void
	meet(void)
	{
		cluster.sync();
	}

	/* Send key i of the answer to block 0. */
	__device__ __forceinline__ void
	send_exact(uint32_t i, uint64_t key)
	{
		cluster.map_shared_rank((uint64_t *) (shared + layout.exact), 0)[i] = key;
	}

	/* Wait until block 0 has `count` keys of the answer in layout.exact; others are done. */
	__device__ __forceinline__ void
	collect_exact(uint32_t count)
	{
		cluster.sync();
	}

	/*
	 * A query in host memory: each block reads a share and hands it to the others.  The peers have
	 * met when it returns.
	 */
	template <int THREADS>
	__device__ __forceinline__ void
	share_query(float *raw, const float *query, uint32_t dim)
	{
		/* whole sectors of 32 bytes */
		const uint32_t share = ((dim + blocks - 1) / blocks + 7) & ~7u;
		const uint32_t begin = min(rank * share, dim);
		const uint32_t end = min(begin + share, dim);
		/*
		 * on its way while the blocks meet: other blocks' shared memory may be written only once
		 * they run
		 */
		const float first = begin + threadIdx.x < end ? query[begin + threadIdx.x] : 0;

		cluster.sync();
		for (uint32_t i = begin + threadIdx.x; i < end; i += THREADS)
		{
			float		value = i == begin + threadIdx.x ? first : query[i];

			for (uint32_t to = 0; to < blocks; to++)
				cluster.map_shared_rank(raw, to)[i] = value;
		}
		cluster.sync();
	}

private:
	__device__ __forceinline__ uint64_t *
	box(uint32_t parity, uint32_t from) const
	{
		return (uint64_t *) (shared + layout.arrived) + (parity * blocks + from) * layout.room;
	}

	__device__ __forceinline__ uint32_t *
	counts(uint32_t parity) const
	{
		return (uint32_t *) (shared + layout.counts) + parity * MAX_CLUSTER;
	}
};
typedef cluster_peers walk_peers;

#else

/*
 * A barrier is a counter of arrivals, 0 between launches: block 0, the last to look at it, puts it
 * back.  Writes of a block come before its arrival (a barrier of the block, a fence), and reads
 * after it go past L1, which is not coherent.
 */
class mail_peers
{
public:
	const block_layout &layout;
	char	   *shared;
	uint32_t	blocks;
	uint32_t	rank;
	uint32_t	query;
	uint32_t	meetings;

	__device__ __forceinline__
	mail_peers(const block_layout &o, char *s)
		: layout(o), shared(s), blocks(o.blocks), rank(blockIdx.x % o.blocks),
		  query(blockIdx.x / o.blocks), meetings(0)
	{
	}

	__device__ __forceinline__ uint32_t
	receivers(void) const
	{
		return 1;
	}

	__device__ __forceinline__ bool
	is_self(uint32_t to) const
	{
		return true;
	}

	__device__ __forceinline__ void
	send(uint32_t parity, uint32_t to, uint32_t i, uint64_t key)
	{
		__stcg((unsigned long long *) box(parity, rank) + i, (unsigned long long) key);
	}

	__device__ __forceinline__ void
	send_count(uint32_t parity, uint32_t count)
	{
		if (threadIdx.x == 0)
			__stcg((unsigned long long *) box(parity, rank) + MAX_WALK_CANDIDATES,
				   (unsigned long long) count);
	}

	__device__ __forceinline__ uint32_t
	count(uint32_t parity, uint32_t from) const
	{
		return (uint32_t) read(box(parity, from) + MAX_WALK_CANDIDATES);
	}

	__device__ __forceinline__ const uint64_t *
	keys(uint32_t parity, uint32_t from) const
	{
		return box(parity, from);
	}

	static __device__ __forceinline__ uint64_t
	read(const uint64_t *key)
	{
		return __ldcg((const unsigned long long *) key);
	}

	/* The boxes are there, whether the others run or not. */
	__device__ __forceinline__ void
	start(void)
	{
		__syncthreads();
	}

	__device__ __forceinline__ void
	meet(void)
	{
		__syncthreads();
		meetings++;
		if (threadIdx.x == 0)
		{
			__threadfence();
			(void) atomicAdd(counter(), 1);
			while (arrivals() < meetings * blocks)
				;
			__threadfence();
		}
		__syncthreads();
	}

	__device__ __forceinline__ void
	send_exact(uint32_t i, uint64_t key)
	{
		__stcg((unsigned long long *) exact() + i, (unsigned long long) key);
	}

	__device__ __forceinline__ void
	collect_exact(uint32_t count)
	{
		uint64_t   *mine = (uint64_t *) (shared + layout.exact);

		if (rank == 0)
			meet();
		else
		{
			/* the others need not wait */
			__syncthreads();
			if (threadIdx.x == 0)
			{
				__threadfence();
				(void) atomicAdd(counter(), 1);
			}
			return;
		}
		/* nobody looks at the counter any more */
		if (threadIdx.x == 0)
			*counter() = 0;
		for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
			mine[i] = read(exact() + i);
		__syncthreads();
	}

	template <int THREADS>
	__device__ __forceinline__ void
	share_query(float *raw, const float *query, uint32_t dim)
	{
		/* each block reads all: shares would go through device memory, with one more barrier */
		for (uint32_t i = threadIdx.x; i < dim; i += THREADS)
			raw[i] = query[i];
		__syncthreads();
	}

private:
	__device__ __forceinline__ uint32_t *
	counter(void) const
	{
		return (uint32_t *) (layout.mail + (size_t) query * MAIL_COUNTER_BYTES);
	}

	__device__ __forceinline__ uint32_t
	arrivals(void) const
	{
		uint32_t	value;

		asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
					 : "=r"(value) : "l"(__cvta_generic_to_global(counter())) : "memory");
		return value;
	}

	__device__ __forceinline__ uint64_t *
	box(uint32_t parity, uint32_t from) const
	{
		return (uint64_t *) (layout.mail + (size_t) layout.mail_blocks * MAIL_COUNTER_BYTES +
							 (size_t) ((query * blocks + from) * 2 + parity) * MAIL_BOX_BYTES);
	}

	__device__ __forceinline__ uint64_t *
	exact(void) const
	{
		return (uint64_t *) (layout.mail + (size_t) layout.mail_blocks *
							 (MAIL_COUNTER_BYTES + 2 * MAIL_BOX_BYTES) +
							 (size_t) query * MAIL_EXACT_BYTES);
	}
};
typedef mail_peers walk_peers;
#endif

#endif							/* GG_SEARCH_PEERS_CUH */
