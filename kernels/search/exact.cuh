/*
 * exact.cuh
 *		Distances of rows as stored, 32 rows per warp: for exact.cu and measure.cu, whose distances
 *		are the same bits.
 */
#ifndef GG_EXACT_CUH
#define GG_EXACT_CUH

#include "keys.cuh"
#include "launch.cuh"
#include "query.cuh"
#include "rerank.cuh"
#include "walk.cuh"

#define EXACT_WIDE_QUADS 64		/* rows of more quads are read by a whole warp */

/* Whether a whole warp reads a row. */
template <typename ELEMENT>
static bool
exact_is_wide(const search_view *view)
{
	return (view->dim * (uint32_t) sizeof(ELEMENT) + 15) / 16 > EXACT_WIDE_QUADS;
}

/* 1 / |query| in all lanes, by one warp; 0 for a zero query. */
static __device__ __forceinline__ float
exact_inverse(const float *query, uint32_t dim, uint32_t lane)
{
	float		sum = 0;

	for (uint32_t i = lane; i < dim; i += 32)
		sum += query[i] * query[i];
	sum = group_reduce<1, false>(sum, NULL);
	return sum > 0 ? 1 / sqrtf(sum) : 0;
}

/*
 * Set keys[q] of the first count lanes, each of which names a row, for QUERIES queries.  The
 * queries are query_pad floats apart in shared memory, with zeros after dim.  TEAM lanes read a
 * row, two rows at once.  Other lanes keep what their keys were.
 */
template <typename ELEMENT, int METRIC, int TEAM, int QUERIES>
static __device__ __forceinline__ void
exact_measure(const search_view &view, const float *queries, uint32_t query_pad,
			  const float *inverses, uint32_t row, uint32_t count, uint64_t (&keys)[QUERIES])
{
	const uint32_t lane = threadIdx.x & 31;
	const int	elements = 16 / (int) sizeof(ELEMENT);
	const int	teams = 32 / TEAM;
	const int	flights = 4;	/* quads that a lane has in flight of each of two rows */
	const uint32_t member = lane % TEAM;
	const uint32_t team = lane / TEAM;
	const uint32_t quads = (view.dim + elements - 1) / elements;

#pragma unroll 1
	for (uint32_t base = 0; base < count; base += 2 * teams)
	{
		const char *rows[2];
		bool		valid[2];
		float		sum[2][QUERIES];
		float		square[2];

#pragma unroll
		for (int r = 0; r < 2; r++)
		{
			uint32_t	slot = base + r * teams + team;

			valid[r] = slot < count;
			rows[r] = view.rows + (size_t) __shfl_sync(GG_FULL_WARP, row, slot & 31) *
				view.row_stride;
			if (!valid[r])
				rows[r] = view.rows;
			square[r] = 0;
#pragma unroll
			for (int q = 0; q < QUERIES; q++)
				sum[r][q] = 0;
		}
		for (uint32_t start = member; start < quads; start += TEAM * flights)
		{
			uint4		x[2][flights];

#pragma unroll
			for (int u = 0; u < flights; u++)
#pragma unroll
				for (int r = 0; r < 2; r++)
					x[r][u] = load_quad(rows[r], start + u * TEAM,
										valid[r] && start + u * TEAM < quads);
#pragma unroll
			for (int u = 0; u < flights; u++)
			{
				if (start + u * TEAM >= quads)
					break;
#pragma unroll
				for (int q = 0; q < QUERIES; q++)
				{
					float		same[elements];
					const float4 *from = (const float4 *) (queries + q * query_pad +
														   (start + u * TEAM) * elements);
					float		ignored = 0;

#pragma unroll
					for (int i = 0; i < elements / 4; i++)
						*(float4 *) &same[i * 4] = from[i];
#pragma unroll
					for (int r = 0; r < 2; r++)
						exact_quad<ELEMENT, METRIC>(x[r][u], same, sum[r][q],
													q == 0 ? square[r] : ignored);
				}
			}
		}
#pragma unroll
		for (int r = 0; r < 2; r++)
		{
			/* was the lane's row measured in this round, as row r of a team? */
			bool		own = lane / teams == base / teams + r;

#pragma unroll
			for (int offset = TEAM / 2; offset > 0; offset >>= 1)
			{
				if (METRIC == GG_METRIC_COSINE && sizeof(ELEMENT) == 2)
					square[r] += __shfl_xor_sync(GG_FULL_WARP, square[r], offset);
#pragma unroll
				for (int q = 0; q < QUERIES; q++)
					sum[r][q] += __shfl_xor_sync(GG_FULL_WARP, sum[r][q], offset);
			}
			square[r] = __shfl_sync(GG_FULL_WARP, square[r], (lane % teams) * TEAM);
#pragma unroll
			for (int q = 0; q < QUERIES; q++)
			{
				float		mine = __shfl_sync(GG_FULL_WARP, sum[r][q], (lane % teams) * TEAM);

				if (own && lane < count)
					keys[q] = make_key(exact_value<ELEMENT, METRIC>(mine, square[r],
																	inverses[q]), row);
			}
		}
	}
}

/* Sort keys[0 .. room) in shared memory, ascending, by a block of THREADS; room: 2^i. */
template <int THREADS>
static __device__ __forceinline__ void
block_sort(uint64_t *keys, uint32_t room)
{
	for (uint32_t size = 2; size <= room; size *= 2)
		for (uint32_t stride = size / 2; stride > 0; stride /= 2)
		{
			__syncthreads();
			for (uint32_t i = threadIdx.x; i < room / 2; i += THREADS)
			{
				uint32_t	low = (i & ~(stride - 1)) * 2 + (i & (stride - 1));
				uint64_t	a = keys[low];
				uint64_t	b = keys[low + stride];

				if ((a > b) == ((low & size) == 0))
				{
					keys[low] = b;
					keys[low + stride] = a;
				}
			}
		}
	__syncthreads();
}

#endif							/* GG_EXACT_CUH */
