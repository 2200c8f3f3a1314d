/*
 * visited.cu
 *		Walks with visited sets in device memory, as CAGRA has them: sections IV-B3 and IV-C2.
 *
 * papers_visited_launch()	Single-CTA search, a set per query that is never emptied.
 * papers_lists_launch()	Multi-CTA search: each CTA has a list of its own and expands one parent
 *							per step.  The CTAs of a query share a set, and nothing else.
 *
 * The kernels are the engine's, with another memory for the set.  To those of multi-CTA search each
 * CTA is a query, of one block.
 */
#include "../../../../kernels/search/search_warp.cuh"

/* A set of four times what a walk with lists of itopk meets, and more. */
static __device__ __host__ inline uint32_t
visited_bits(uint32_t itopk)
{
	uint32_t	bits = 11;

	while ((1u << bits) < 128 * itopk)
		bits++;
	return bits;
}

/* launch.mail, which single-CTA search has no use for, is where the sets are. */
static __device__ __forceinline__ warp_list
visited_list(char *shared, const warp_layout &layout, const search_launch &launch)
{
	warp_list	list = warp_list_in(shared, layout, launch.params.itopk_size);

	list.hash_bits = visited_bits(launch.params.itopk_size);
	list.hash = (uint32_t *) launch.mail + ((size_t) blockIdx.x << list.hash_bits);
	return list;
}

#define warp_list_in(shared, layout, itopk) visited_list(shared, layout, launch)
#include "../../../../kernels/search/search_single.cuh"
#undef warp_list_in

#include "../../../../kernels/search/search_multi.cuh"

size_t
papers_visited_bytes(uint32_t itopk, uint32_t nq)
{
	return (size_t) nq * 4 << visited_bits(itopk);
}

cudaError_t
papers_visited_launch(const search_view *view, const search_launch *launch,
					  const search_device *device, cudaStream_t stream)
{
	warp_layout layout = warp_layout_for(view, launch, launch->params.search_width * view->degree);
	cudaError_t error = ready_warps<WALK_HALF_DOT>(device);

	if (view->path != WALK_HALF_DOT)
		return cudaErrorInvalidValue;
	if (error != cudaSuccess)
		return error;
	layout.total = layout.hash;
	search_warp_kernel<WALK_HALF_DOT><<<launch->nq, 32, layout.total, stream>>>
		(*view, *launch, slots_or_none(NULL), layout);
	return cudaGetLastError();
}

/* ---- a list per CTA ------------------------------------------------------------ */

/* To each CTA its queries, and every ctas-th of the entries; have >= ctas of these. */
static __global__ void
deal_kernel(const float *queries, uint32_t dim, uint32_t ctas, const uint64_t *entries,
			uint32_t have, float *copies, uint64_t *dealt, uint32_t each)
{
	const uint32_t query = blockIdx.x / ctas;
	const uint32_t cta = blockIdx.x % ctas;

	for (uint32_t i = threadIdx.x; i < dim; i += blockDim.x)
		copies[(size_t) blockIdx.x * dim + i] = queries[(size_t) query * dim + i];
	for (uint32_t i = threadIdx.x; i < each; i += blockDim.x)
		dealt[(size_t) blockIdx.x * each + i] = cta + i * ctas < have ?
			entries[(size_t) query * have + cta + i * ctas] : GG_KEY_NONE;
}

/* walk_by_blocks() of one block, with the query's set. */
template <int PATH, int WARPS>
static __global__ void __launch_bounds__(WARPS * 32)
lists_kernel(const __grid_constant__ search_view view, const __grid_constant__ search_launch launch,
			 const __grid_constant__ search_slots slots,
			 const __grid_constant__ block_layout layout, uint32_t ctas, uint32_t *visited)
{
	extern __shared__ __align__(16) char shared[];
	__shared__ block_counters counters;
	block_walk<PATH, WARPS> walk(view, launch, slots, layout, blockIdx.x, shared, &counters);
	float	   *raw = (float *) (shared + layout.raw);
	float		inverse;

	walk.hash = visited + ((size_t) (blockIdx.x / ctas) << layout.hash_bits);
	for (uint32_t i = walk.tid; i < 2 * layout.list_room; i += WARPS * 32)
		walk.list[i] = GG_KEY_NONE;
	walk.clear_kept();
	for (uint32_t i = walk.tid; i < COUNT_STEP; i += WARPS * 32)
		((uint64_t *) (shared + layout.exact))
			[launch.params.rerank / COUNT_STEP * COUNT_STEP + i] = GG_KEY_NONE;
	if (walk.tid == 0)
		counters.fresh = counters.kept = 0;
	(void) walk.take_query(raw);
	inverse = query_inverse_norm<WARPS>(view, raw, counters.scratch);
	walk.factor = query_prepare<PATH, WARPS>(view, raw, inverse, shared, counters.scratch,
											 shared + layout.exact);
	__syncthreads();
	walk.enter();
	while (walk.step())
		;
	walk.answer(raw, inverse);
}

/* The k nearest of the CTAs' answers. */
static __global__ void
gather_kernel(const uint64_t *answers, uint32_t ctas, uint32_t k, uint64_t *keys)
{
	const uint64_t *mine = answers + (size_t) blockIdx.x * ctas * k;

	for (uint32_t i = threadIdx.x; i < ctas * k; i += blockDim.x)
	{
		uint32_t	place = 0;

		for (uint32_t j = 0; j < ctas * k; j++)
			place += mine[j] < mine[i] || (mine[j] == mine[i] && j < i);
		if (place < k)
			keys[(size_t) blockIdx.x * k + place] = mine[i];
	}
}

static uint32_t
lists_bits(uint32_t ctas)
{
	uint32_t	bits = 13;

	while ((1u << bits) < 2048 * ctas)
		bits++;
	return bits;
}

/* Sets, queries, entries and answers of launch->nq queries. */
size_t
papers_lists_bytes(const search_view *view, const search_launch *launch, uint32_t ctas)
{
	return launch->nq * ((size_t) 4 << lists_bits(ctas)) +
		(size_t) launch->nq * ctas * (view->dim * 4 + 16 + (ENTRY_NODES + launch->params.k) * 8);
}

/* launch: itopk of each CTA's list, entries of each query; work: papers_lists_bytes(). */
cudaError_t
papers_lists_launch(const search_view *view, const search_launch *launch,
					const search_device *device, uint32_t ctas, char *work, cudaStream_t stream)
{
	const uint32_t walks = launch->nq * ctas;
	const uint32_t bits = lists_bits(ctas);
	const size_t set_bytes = launch->nq * ((size_t) 4 << bits);
	uint64_t   *dealt = (uint64_t *) (work + set_bytes);
	uint64_t   *answers = dealt + (size_t) walks * ENTRY_NODES;
	float	   *copies = (float *) (answers + (size_t) walks * launch->params.k);
	search_launch each = *launch;
	block_layout layout;
	cudaError_t error;

	if (view->path != WALK_HALF_DOT)
		return cudaErrorInvalidValue;
	each.queries = copies;
	each.nq = walks;
	each.params.search_width = 1;
	each.params.rerank = search_rerank_size(each.params.itopk_size, each.params.k);
	each.keys = answers;
	each.entries = dealt;
	each.nentries = ENTRY_NODES;
	layout = block_layout_for(view, &each, device, 1, WIDE_WARPS);
	layout.hash_bits = bits;
	error = kernel_ready<lists_kernel<WALK_HALF_DOT, WIDE_WARPS>>(device);
	if (error == cudaSuccess)
		error = cudaMemsetAsync(work, 0xFF, set_bytes, stream);
	if (error != cudaSuccess)
		return error;
	deal_kernel<<<walks, 128, 0, stream>>>(launch->queries, view->dim, ctas, launch->entries,
										   launch->nentries, copies, dealt, ENTRY_NODES);
	lists_kernel<WALK_HALF_DOT, WIDE_WARPS><<<walks, WIDE_WARPS * 32, layout.hash, stream>>>
		(*view, each, slots_or_none(NULL), layout, ctas, (uint32_t *) work);
	gather_kernel<<<launch->nq, 128, 0, stream>>>(answers, ctas, launch->params.k, launch->keys);
	return cudaGetLastError();
}
