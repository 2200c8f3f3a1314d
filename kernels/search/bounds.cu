/*
 * bounds.cu
 *		Writes keys of records to memory, with lower bounds in the place of distances
 *		(engine/rules/codes.h): for deep lists of an index that has codes alone.
 *
 * Shapes		records n x walk_stride bytes, queries nq x dim float32, bits of nodes or none for
 *				all of them -> keys of the rows [first, end) whose bit is set, in no order.
 * Requires		L2 or cosine; nq <= GG_SERVE_MAX_DEEPS.
 * Mapping		Grid: y over the queries, x over the rows.  Each block makes its query ready for
 *				records.  A warp puts aside rows whose bit is set until they are 32, as in exact.cu,
 *				and takes as many places for their keys.  TEAM lanes read a record, and sum four
 *				bytes an instruction: the products with the high and the low bytes of the query,
 *				the levels, and their squares.
 * Shared		the query (4 bytes per element), and as made ready (2 bytes); 64 row numbers a warp.
 * Oracle		gg_code_bound(): the same bits, but for the query's length under cosine, whose sum
 *				is in another order.
 * Cost			RESULTS.md has rates ("Filters on a GPU").  Memory: for each query the records of
 *				its rows, 400 bytes each at 768 dimensions, 4 bits.  Queries that share a filter
 *				read the same ones at about the same time, from the L2 cache where they fit there.
 */
#include "bounds.h"
#include "codes.cuh"
#include "keys.cuh"
#include "measure.cuh"
#include "quad.cuh"

#define WARPS 8
#define TEAM 8					/* 128 bytes of a record at a time */
#define BLOCKS_PER_SM 4

/* Sums over a record, or over a part of it; they may wrap on the way. */
struct level_sums
{
	int32_t		high;			/* products with the query's high bytes */
	int32_t		low;
	uint32_t	levels;
	uint32_t	squares;
};

/*
 * Add four levels, and their products with the bytes of the query that they meet.  Signed bytes
 * hold no levels of 8 bits, so 128 is taken off these, and record_bound() puts it back.
 */
template <int BITS>
static __device__ __forceinline__ void
add_levels(uint32_t levels, uint32_t high, uint32_t low, level_sums &sums)
{
	const int32_t held = (int32_t) (BITS == 8 ? levels ^ 0x80808080u : levels);

	sums.high = __dp4a(held, (int32_t) high, sums.high);
	sums.low = __dp4a(held, (int32_t) low, sums.low);
	sums.levels = __dp4a(levels, 0x01010101u, sums.levels);
	sums.squares = __dp4a(levels, levels, sums.squares);
}

/* Add a quad of a record.  query: high bytes for each plane, then low ones, pitch quads apart. */
template <int BITS>
static __device__ __forceinline__ void
add_quad(uint4 quad, const uint4 *query, uint32_t pitch, level_sums &sums)
{
	constexpr uint32_t planes = 8 / BITS;
	constexpr uint32_t mask = BITS == 8 ? 0xFFFFFFFFu : 0x0F0F0F0Fu;

#pragma unroll
	for (uint32_t plane = 0; plane < planes; plane++)
	{
		const uint4 high = query[plane * pitch];
		const uint4 low = query[(planes + plane) * pitch];

		add_levels<BITS>(quad.x >> (plane * BITS) & mask, high.x, low.x, sums);
		add_levels<BITS>(quad.y >> (plane * BITS) & mask, high.y, low.y, sums);
		add_levels<BITS>(quad.z >> (plane * BITS) & mask, high.z, low.z, sums);
		add_levels<BITS>(quad.w >> (plane * BITS) & mask, high.w, low.w, sums);
	}
}

/* The team's sums of a record; NULL: there is none. */
template <int BITS>
static __device__ __forceinline__ level_sums
sum_record(const search_view &view, const char *record, const uint4 *query, uint32_t member)
{
	const uint32_t pitch = code_plane_bytes(view.walk_quads) / 16;
	level_sums	sums = {0, 0, 0, 0};

	for (uint32_t i = member; i < view.walk_quads; i += TEAM)
	{
		uint4		quad = load_quad(record, i, record != NULL);

		/* the head */
		if (i == view.walk_quads - 1)
			quad.z = quad.w = 0;
		add_quad<BITS>(quad, query + i, pitch, sums);
	}
#pragma unroll
	for (int offset = TEAM / 2; offset > 0; offset >>= 1)
	{
		sums.high += __shfl_xor_sync(GG_FULL_WARP, sums.high, offset);
		sums.low += __shfl_xor_sync(GG_FULL_WARP, sums.low, offset);
		sums.levels += __shfl_xor_sync(GG_FULL_WARP, sums.levels, offset);
		sums.squares += __shfl_xor_sync(GG_FULL_WARP, sums.squares, offset);
	}
	return sums;
}

template <int BITS>
static __device__ __forceinline__ float
record_bound(const search_view &view, const char *record, const level_sums &sums,
			 const code_factor &factor, const gg_code_bounds &bounds)
{
	const gg_code_head head = load_head(record, (size_t) view.walk_quads * 16);
	const uint32_t dot = (uint32_t) sums.high * 256 + (uint32_t) sums.low +
		(BITS == 8 ? 128 * (uint32_t) factor.sum : 0);
	const float estimate = gg_code_estimate(head, BITS, (int32_t) dot, factor.sum, factor.scale,
											factor.base);

	return gg_code_bound_of(&bounds, head,
							gg_code_length(BITS, view.dim, sums.squares, sums.levels), estimate);
}

/* Bytes of the query as products take it: high and low bytes of each plane. */
static __host__ __device__ __forceinline__ uint32_t
query_bytes(const search_view &view)
{
	return 2 * (8 / view.code_bits) * code_plane_bytes(view.walk_quads);
}

/* Grid: y over the queries, x over the rows. */
template <int BITS>
__global__ void __launch_bounds__(WARPS * 32)
bounds_kernel(const __grid_constant__ search_view view, const __grid_constant__ bounds_args args)
{
	extern __shared__ __align__(16) char shared[];
	const uint32_t work_bytes = code_work_bytes(view.dim);
	uint32_t   *query = (uint32_t *) (shared + work_bytes);
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t warp = threadIdx.x >> 5;
	uint32_t   *aside = (uint32_t *) (shared + work_bytes + query_bytes(view)) + warp * 64;
	const uint32_t *filter = args.filter != NULL ?
		args.filter + (size_t) blockIdx.y * args.filter_stride : NULL;
	uint64_t   *keys = args.keys + blockIdx.y * args.keys_stride;
	const uint64_t after = args.after[blockIdx.y];
	const uint32_t words = (args.end + 31) / 32;
	uint32_t	word = args.first / 32 + blockIdx.x * WARPS + warp;
	uint32_t	rows = 0;		/* put aside */
	code_factor factor;
	gg_code_bounds bounds;

	code_take_query<WARPS>(view, args.queries + (size_t) blockIdx.y * view.dim, (float *) shared,
						   shared + work_bytes - CODE_FOLD_BYTES);
	factor = code_prepare_product<BITS, WARPS>(view, (float *) shared,
											   shared + work_bytes - CODE_FOLD_BYTES, 0, query);
	bounds = gg_code_bounds_of(view.metric, view.code_mean != NULL, view.dim, factor.scale,
							   factor.base);

	for (;;)
	{
		uint32_t	count;
		uint32_t	at = 0;

		while (rows < 32 && word < words)
			rows += take_word(filter, args.end, gridDim.x * WARPS, word, aside + rows, lane);
		if (rows == 0)
			break;
		count = min(rows, 32u);
		if (lane == 0)
			at = atomicAdd(&args.states[blockIdx.y].found, count);
		at = __shfl_sync(GG_FULL_WARP, at, 0);
		__syncwarp();
#pragma unroll 1
		for (uint32_t base = 0; base < count; base += 32 / TEAM)
		{
			const uint32_t slot = base + lane / TEAM;
			const uint32_t row = slot < count ? aside[slot] : 0;
			const char *record = slot < count ?
				view.walk_rows + (size_t) row * view.walk_stride : NULL;
			const level_sums sums = sum_record<BITS>(view, record, (const uint4 *) query,
													 lane % TEAM);

			if (lane % TEAM == 0 && record != NULL)
			{
				const uint64_t key = make_key(record_bound<BITS>(view, record, sums, factor,
																 bounds), row);

				keys[at + slot] = key > after ? key : GG_KEY_NONE;
			}
		}
		rows -= count;
		__syncwarp();
		if (lane < rows)
			aside[lane] = aside[lane + 32];
		__syncwarp();
	}
}

static uint32_t
shared_for(const search_view *view)
{
	return code_work_bytes(view->dim) + query_bytes(*view) + WARPS * 64 * 4;
}

template <int BITS>
static cudaError_t
launch_bounds(const search_view *view, const bounds_args *args, const search_device *device,
			  cudaStream_t stream)
{
	const uint32_t useful = ((args->end - args->first + 31) / 32 + WARPS - 1) / WARPS;
	cudaError_t error = kernel_ready<bounds_kernel<BITS>>(device);
	uint32_t	most;
	int			per_sm;

	if (error == cudaSuccess)
		error = kernel_blocks_per_sm<bounds_kernel<BITS>>(WARPS * 32, shared_for(view), device,
														  &per_sm);
	if (error != cudaSuccess)
		return error;
	most = (uint32_t) (device->sms * (per_sm > BLOCKS_PER_SM ? BLOCKS_PER_SM : per_sm));
	most = most > args->nq ? most / args->nq : 1;
	bounds_kernel<BITS><<<dim3(useful < most ? useful : most, args->nq), WARPS * 32,
		shared_for(view), stream>>>(*view, *args);
	return cudaGetLastError();
}

/* call(std::integral_constant<int, BITS>) */
template <typename CALL>
static cudaError_t
with_bits(const search_view *view, CALL call)
{
	return view->code_bits == 8 ? call(std::integral_constant<int, 8>()) :
		call(std::integral_constant<int, 4>());
}

cudaError_t
search_bounds_launch(const search_view *view, const bounds_args *args,
					 const search_device *device, cudaStream_t stream)
{
	return with_bits(view, [&](auto bits)
					 {
						 return launch_bounds<decltype(bits)::value>(view, args, device, stream);
					 });
}

cudaError_t
search_bounds_ready(const search_view *view, const search_device *device)
{
	return with_bits(view, [&](auto bits)
					 {
						 return kernel_ready<bounds_kernel<decltype(bits)::value>>(device);
					 });
}
