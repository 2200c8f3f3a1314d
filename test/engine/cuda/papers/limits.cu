/*
 * limits.cu
 *		What no search of one query goes below on a graph: the memory that it reads, in the order in
 *		which it must.
 *
 * The walks of the engine's search are done on the CPU and written down: of each step the parents,
 * and the nodes that are measured.  The kernel here reads the same bytes and does nothing else: no
 * products, no list, no visited set.  What each read needs to have come before it has come: a row
 * waits for the adjacency lists of its step, those for all rows of the step before.  Lanes,
 * warps and blocks share all reads evenly, and meet where the engine must.  So it is a floor under
 * every kernel of as many lanes that takes these steps; one that takes fewer has another.
 *
 * It does a growing part of that: nothing, the barriers of the steps, lists, rows, and what comes
 * before and behind the walk (all pivots; exact distances).
 */
#include <cooperative_groups.h>

#include "papers.h"

#include "../../../../kernels/serve/index.cuh"
#include "../../../../kernels/search/launch.cuh"
#include "../../../../kernels/search/quad.cuh"

namespace cg = cooperative_groups;

#define DEGREE 32u
#define K 10u
#define CHASE_IN_FLIGHT 8		/* quads a lane */

/* Phases of the chase. */
#define CHASE_BARRIERS 1
#define CHASE_LISTS 2
#define CHASE_ROWS 4
#define CHASE_ENDS 8
#define CHASE_UNFENCED 16		/* barriers of the cluster order no memory */

/* Walks of nq queries. */
typedef struct chase_walks
{
	const uint32_t *steps;		/* these five as walk_log has them */
	const uint32_t *parents;
	const uint32_t *first;
	const uint32_t *ids;
	const uint32_t *front;
	uint32_t	width;
	uint32_t	nfront;
	uint32_t	most_steps;		/* of a query */
	uint32_t	most_ids;
} chase_walks;

/* ---- the kernel ---------------------------------------------------------------- */

template <uint32_t IN_FLIGHT, typename AT>
static __device__ __forceinline__ uint32_t
read_quads(uint32_t count, uint32_t lane, uint32_t lanes, AT at)
{
	uint32_t	all = 0;

	for (uint32_t base = lane; base < count; base += lanes * IN_FLIGHT)
	{
		uint4		x[IN_FLIGHT];

#pragma unroll
		for (uint32_t u = 0; u < IN_FLIGHT; u++)
		{
			const uint32_t i = base + u * lanes;

			x[u] = load_quad(at(i < count ? i : 0), 0, i < count);
		}
#pragma unroll
		for (uint32_t u = 0; u < IN_FLIGHT; u++)
			all ^= x[u].x ^ x[u].y ^ x[u].z ^ x[u].w;
	}
	return all;
}

/* Read quads 0 .. count, the one of number i at at(i); this lane is `lane` of `lanes`. */
template <typename AT>
static __device__ __forceinline__ uint32_t
chase_read(uint32_t count, uint32_t lane, uint32_t lanes, AT at)
{
	return count <= lanes ? read_quads<1>(count, lane, lanes, at) :
		read_quads<CHASE_IN_FLIGHT>(count, lane, lanes, at);
}

/* x / by for small x, from 2^32 / by rounded up; by > 1 */
static __device__ __forceinline__ uint32_t
quotient(uint32_t x, uint32_t reciprocal)
{
	return __umulhi(x, reciprocal);
}

/*
 * The usual barrier of a cluster has a fence for all memory before it, and empties L1 behind it.
 * Nothing is handed over here, so it can do without.
 */
static __device__ __forceinline__ void
meet(uint32_t blocks, bool fenced)
{
	if (blocks == 1)
		__syncthreads();
#ifdef __CUDA_ARCH__
	else if (!fenced)
		asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
#endif
	else
		cg::this_cluster().sync();
}

/*
 * One query by one cluster.  What was read goes into `seen` if it is one word of 2^32, so that the
 * barrier behind it waits for it; zero, which is 0, makes the next address depend on that.
 */
static __global__ void __launch_bounds__(MULTI_WARPS * 32, 1)
chase_kernel(const __grid_constant__ search_view view, const __grid_constant__ chase_walks walks,
			 uint32_t query, uint32_t phases, uint32_t zero, const float *queries,
			 uint32_t *answers)
{
	extern __shared__ __align__(16) uint32_t held[];
	__shared__ volatile uint32_t seen;
	uint32_t   *parents = held;
	uint32_t   *first = parents + walks.most_steps * walks.width;
	uint32_t   *ids = first + walks.most_steps + 1;
	const uint32_t blocks = gridDim.x;
	const uint32_t lane = blockIdx.x * blockDim.x + threadIdx.x;
	const uint32_t lanes = blocks * blockDim.x;
	const uint32_t step0 = walks.steps[query];
	const uint32_t nsteps = walks.steps[query + 1] - step0;
	const uint32_t id0 = walks.first[step0];
	const uint32_t quads = view.walk_quads;
	const uint32_t list_quads = view.degree / 4;
	const uint32_t stored = (uint32_t) (view.row_stride / 16);
	const bool	fenced = (phases & CHASE_UNFENCED) == 0;
	uint32_t	next = 0;		/* 0, once everything before it is here */
	auto		settle = [&](uint32_t read)
	{
		if (read == 0x9E3779B1u)
			seen = 1;
	};

	for (uint32_t i = threadIdx.x; i < nsteps * walks.width; i += blockDim.x)
		parents[i] = walks.parents[step0 * walks.width + i];
	for (uint32_t i = threadIdx.x; i <= nsteps; i += blockDim.x)
		first[i] = walks.first[step0 + i] - id0;
	for (uint32_t i = threadIdx.x; i < walks.first[step0 + nsteps] - id0; i += blockDim.x)
		ids[i] = walks.ids[id0 + i];
	if (threadIdx.x == 0)
		seen = 0;
	settle(__float_as_uint(queries[(size_t) query * view.dim + threadIdx.x % view.dim]));
	meet(blocks, fenced);
	if (phases & CHASE_ENDS)
	{
		settle(chase_read(view.npivots * quads, lane, lanes, [&](uint32_t i)
						  {
							  const uint32_t row = i / quads;

							  return view.pivot_rows + row * view.walk_stride +
								  (i - row * quads) * 16;
						  }));
		meet(blocks, fenced);
		next = seen & zero;
	}
	for (uint32_t step = 0; (phases & CHASE_BARRIERS) && step < nsteps; step++)
	{
		const uint32_t *of = parents + step * walks.width;
		const uint32_t *measured = ids + first[step];
		const uint32_t count = first[step + 1] - first[step];
		uint32_t	found = 0;

		while (found < walks.width && of[found] != GG_NO_NODE)
			found++;
		if (phases & CHASE_LISTS)
			settle(chase_read(found * list_quads, threadIdx.x, blockDim.x, [&](uint32_t i)
							  {
								  const uint32_t list = i / list_quads;

								  return (const char *) (view.adjacency +
														 (size_t) (of[list] + next) * view.degree) +
									  (i - list * list_quads) * 16;
							  }));
		__syncthreads();
		next = seen & zero;
		if (phases & CHASE_ROWS)
		{
			const uint32_t reciprocal = 0xFFFFFFFFu / quads + 1;

			settle(chase_read(count * quads, lane, lanes, [&](uint32_t i)
							  {
								  const uint32_t row = quads > 1 ? quotient(i, reciprocal) : i;

								  return view.walk_rows +
									  (size_t) (measured[row] + next) * view.walk_stride +
									  (i - row * quads) * 16;
							  }));
		}
		meet(blocks, fenced);
		next = seen & zero;
	}
	if (phases & CHASE_ENDS)
	{
		settle(chase_read(walks.nfront * stored, lane, lanes, [&](uint32_t i)
						  {
							  const uint32_t row = i / stored;
							  const uint32_t node = walks.front[query * walks.nfront + row];

							  return view.rows + (size_t) (node + next) * view.row_stride +
								  (i - row * stored) * 16;
						  }));
		meet(blocks, fenced);
	}
	if (lane < K)
		answers[query * K + lane] = seen & zero;
}

/* ---- the figure -------------------------------------------------------------------- */

static const uint32_t *
on_device(const std::vector<uint32_t> &from, gg_cuda_buffer<uint32_t> &to)
{
	must(to.allocate(from.size()));
	must(gg_cuda_copy_in(to.get(), from.data(), to.bytes(), NULL, NULL));
	return to.get();
}

/* Blocks and warps that read for a query. */
typedef struct chase_shape
{
	uint32_t	blocks;
	uint32_t	warps;
	uint32_t	phases;			/* beside those of a row of the table */
} chase_shape;

/* Microseconds per query, one launch after the other as papers_search() has them. */
static double
chase(const gg_index *index, const drawn_set *set, const walk_log *log, const chase_walks *walks,
	  chase_shape shape, uint32_t phases, uint32_t *answers)
{
	const uint32_t shared = (walks->most_steps * (walks->width + 1) + 1 + walks->most_ids) * 4;
	cluster_config config;

	MUST(kernel_ready<chase_kernel>(&index->device, true));
	peers_config_set(&config, &index->device, 1, shape.blocks, shape.warps * 32, shared, NULL);
	return 1e6 / log->nq * papers_best([&]()
	{
		for (uint32_t query = 0; query < log->nq; query++)
			MUST(cudaLaunchKernelEx(&config.config, chase_kernel, index->view, *walks, query,
									phases, 0u, (const float *) set->queries.get(), answers));
		MUST(cudaDeviceSynchronize());
	});
}

/* The shortest list whose recall is `target`, by multi-CTA search of single queries. */
static papers_point
find_point(gg_index *index, const drawn_set *set, double target)
{
	papers_point point = {};

	for (uint32_t width : {16u, 20u, 24u, 28u, 32u, 40u, 48u, 56u, 64u, 80u, 96u, 128u, 192u, 256u})
	{
		point = papers_search(index, set, GG_SEARCH_MULTI_CTA, 1, width, K);
		if (point.recall >= target || papers.tiny)
			break;
	}
	return point;
}

/* Times of each part of the chase, by a warp, a block and a cluster, beside the engine's. */
static void
print_chases(gg_index *index, const drawn_set *set, const walk_log *log,
			 const chase_walks *walks, uint32_t cluster, papers_point engine)
{
	static const struct
	{
		const char *name;
		uint32_t	phases;
	}			parts[] = {
		{"launch and query alone", 0},
		{"and barriers of the steps", CHASE_BARRIERS},
		{"and adjacency lists", CHASE_BARRIERS | CHASE_LISTS},
		{"and rows: the walk", CHASE_BARRIERS | CHASE_LISTS | CHASE_ROWS},
		{"and pivots before, exact distances behind",
		 CHASE_BARRIERS | CHASE_LISTS | CHASE_ROWS | CHASE_ENDS}};
	const chase_shape shapes[] = {{1, 1, 0}, {1, MULTI_WARPS, 0}, {cluster, MULTI_WARPS, 0},
	{cluster, MULTI_WARPS, CHASE_UNFENCED}};
	const double single = 1e6 / papers_search(index, set, GG_SEARCH_SINGLE_CTA, 1, engine.width,
											  K).qps;
	const double multi = 1e6 / engine.qps;
	gg_cuda_buffer<uint32_t> answers;
	double		times[4] = {};

	must(answers.allocate((uint64_t) log->nq * K));
	papers_head("microseconds per query | one warp | one block of 16 warps | cluster of blocks | "
				"without fences");
	for (const auto &part : parts)
	{
		printf("| %s |", part.name);
		for (int i = 0; i < 4; i++)
		{
			times[i] = chase(index, set, log, walks, shapes[i], part.phases | shapes[i].phases,
							 answers.get());
			printf(" %.1f |", times[i]);
		}
		printf("\n");
		fflush(stdout);
	}
	/* single-CTA search of wide rows, of one query, is by a block */
	if (set->dim > 384)
		printf("| the engine's search | - | %.1f | %.1f | - |\n\n", single, multi);
	else
		printf("| the engine's search | %.1f | - | %.1f | - |\n\n", single, multi);
	printf("- reading alone, by the cluster of %u: %.2f of the time of multi-CTA search, %.2f "
		   "without fences\n", cluster, times[2] / multi, times[3] / multi);
}

extern cudaError_t papers_block_launch(uint32_t team, const search_view *view,
									   const search_launch *launch, const search_device *device,
									   uint32_t cluster, cudaStream_t stream);

/* Multi-CTA search by the tensor cores and by teams of lanes, with the largest cluster. */
static void
print_teams(gg_index *index, const drawn_set *set, uint32_t cluster, uint32_t itopk)
{
	const uint32_t count = papers_queries(set, 1);
	gg_cuda_buffer<uint64_t> keys;
	search_launch launch = {};

	must(keys.allocate((uint64_t) count * K));
	must(search_mail(&index->scratch, &index->device, NULL));
	launch.nq = 1;
	launch.params.k = K;
	launch.params.itopk_size = itopk;
	launch.params.rerank = search_rerank_size(itopk, K);
	launch.params.search_width = search_width_for(0, itopk, index->view.degree);
	launch.mail = index->scratch.mail.get();
	papers_head("distances of multi-CTA search | microseconds per query | recall@10");
	for (uint32_t team : {0u, 4u, 8u})
	{
		const double seconds = papers_best([&]()
		{
			for (uint32_t query = 0; query < count; query++)
			{
				launch.queries = set->queries.get() + (size_t) query * set->dim;
				launch.keys = keys.get() + (size_t) query * K;
				MUST(papers_block_launch(team, &index->view, &launch, &index->device, cluster,
										 NULL));
			}
			MUST(cudaDeviceSynchronize());
		});

		if (team == 0)
			printf("| tensor cores |");
		else
			printf("| teams of %u |", team);
		printf(" %.1f | %.4f |\n", seconds / count * 1e6,
			   papers_point_of(set, itopk, keys.get(), count, K, seconds).recall);
		fflush(stdout);
	}
}

void
limits(void)
{
	drawn_set	set;
	owned_graph graph;
	const open_index index =
		papers_default_index("Limits: single queries, and the memory that they read", 1000000,
							 DEGREE, &set, &graph);
	const gg_dataset rows = set.dataset();
	walk_log	log;
	chase_walks walks = {};
	gg_cuda_buffer<uint32_t> memory[5];
	uint32_t	cluster = MAX_CLUSTER;

	while (cluster > 1 && index->device.clusters[cluster] < 1)
		cluster--;

	const double target = set.dim > 384 ? 0.97 : 0.99;
	const papers_point engine = find_point(index, &set, target);

	log_walks(&rows, &graph, set.host_queries.data(), papers_queries(&set, 1), 1, engine.width, K,
			  &log);
	walks.width = log.width;
	walks.nfront = log.nfront;
	for (uint32_t query = 0; query < log.nq; query++)
	{
		const uint32_t from = log.steps[query];
		const uint32_t to = log.steps[query + 1];

		walks.most_steps = std::max(walks.most_steps, to - from);
		walks.most_ids = std::max(walks.most_ids, log.first[to] - log.first[from]);
	}
	printf("Recall@10 %.4f by itopk_size %u (%.2f is asked for): %.1f steps of %u parents, %.0f "
		   "rows of %u bytes, %u pivots.\n", engine.recall, engine.width, target,
		   (double) log.steps.back() / log.nq, log.width, (double) log.ids.size() / log.nq,
		   index->view.walk_quads * 16, graph.npivots);
	walks.steps = on_device(log.steps, memory[0]);
	walks.parents = on_device(log.parents, memory[1]);
	walks.first = on_device(log.first, memory[2]);
	walks.ids = on_device(log.ids, memory[3]);
	walks.front = on_device(log.front, memory[4]);
	print_chases(index, &set, &log, &walks, cluster, engine);
	print_teams(index, &set, cluster, engine.width);
}
