/*
 * walk.cuh
 *		What kernels share of a walk: the visited set, distances.
 *
 * A walk is the search of Ootomo et al.: "CAGRA: Highly Parallel Graph Construction and Approximate
 * Nearest Neighbor Search for GPUs", 2023, section IV.  A candidate list holds the itopk nearest
 * nodes known; its search_width nearest unexpanded ones are expanded per step, until none is left.
 * That rule is the same in every kernel, and the visited set behind it behaves as a perfect one
 * (below), so which kernel answers does not show in the result.
 *
 * Departures from the paper, and why
 *	1. A walk enters at the best of all pivots, 16 or 32 of them, instead of at random nodes.
 *	2. Distances of 16 candidates at a time are one product on the tensor cores.  The candidates'
 *	   fp16 rows are the 16 x k operand.  Of the k x 8 one, column 0 is the query rounded to fp16
 *	   and column 1 is what the rounding lost, so the query keeps 22 bits.  That takes about a tenth
 *	   of the instructions of a scalar product per lane.  Four lanes read a row, 64 bytes of it at a
 *	   time, whatever the dimension ("team size" 4).  Wide rows are split over warps; in batches, a
 *	   warp measures them alone, by scalar products of teams of 16 lanes (sum_16_by_teams()).
 *	3. A walk orders its list by fp16 distances, or by codes.  The rows as stored then give the
 *	   final order in fp32 (rerank.cuh).
 *	4. Records of codes are products on the tensor cores, too: of bytes, by integers.  Columns 0
 *	   and 1 are the high and the low bytes of the query.  Bytes of 4 bits an element go
 *	   through once for each of their planes.  The query has zeros where a record has its head.
 *
 * Why forgetting is harmless: the visited set may be emptied when it fills, provided that the
 * list's members are put back.  A forgotten node was rejected or pushed out, so the list was full
 * of nearer nodes, and lists only get nearer.  Such a node costs its distance again, and is
 * rejected again.
 */
#ifndef GG_SEARCH_WALK_CUH
#define GG_SEARCH_WALK_CUH

#include "../common/warp.cuh"
#include "quad.cuh"
#include "query.cuh"

/* ---- the visited set ------------------------------------------------------ */

#define HASH_EMPTY 0xFFFFFFFFu

/*
 * True when node was not there yet; it is now.  Double hashing: a warp waits for its unluckiest
 * lane, and linear probing's long runs took half of the walk's instructions.
 */
static __device__ __forceinline__ bool
visit(uint32_t *hash, uint32_t bits, uint32_t node)
{
	uint32_t	product = node * 0x9E3779B1u;
	uint32_t	slot = product >> (32 - bits);
	uint32_t	stride = product | 1;

	for (;;)
	{
		uint32_t	seen = ((volatile uint32_t *) hash)[slot];

		if (seen == HASH_EMPTY)
			seen = atomicCAS(&hash[slot], HASH_EMPTY, node);
		if (seen == HASH_EMPTY)
			return true;
		if (seen == node)
			return false;
		slot = (slot + stride) & ((1u << bits) - 1);
	}
}

/* ---- walk distances --------------------------------------------------------- */

/* A raw sum of a row, and what the row has beside it: a norm, or the head of its record. */
template <int PATH>
using walk_sum = std::conditional_t<(code_bits_of(PATH) > 0), int32_t, float>;
template <int PATH>
using walk_side = std::conditional_t<(code_bits_of(PATH) > 0), gg_code_head, float>;

template <int PATH>
static __device__ __forceinline__ float
scalar_quad(uint4 row, const float *query, float sum)
{
	if (PATH == WALK_HALF_L1)
	{
		const __half2 *halves = (const __half2 *) &row;

#pragma unroll
		for (int i = 0; i < 4; i++)
		{
			float2		x = __half22float2(halves[i]);

			sum += fabsf(x.x - query[2 * i]) + fabsf(x.y - query[2 * i + 1]);
		}
	}
	else
	{
		const float *x = (const float *) &row;

#pragma unroll
		for (int i = 0; i < 4; i++)
		{
			float		difference = x[i] - query[i];

			if (PATH == WALK_FLOAT_L2)
				sum += difference * difference;
			else if (PATH == WALK_FLOAT_DOT)
				sum += x[i] * query[i];
			else
				sum += fabsf(difference);
		}
	}
	return sum;
}

/* Add the eight products of an fp16 quad to sum. */
static __device__ __forceinline__ float
product_quad(uint4 row, const float *query, float sum)
{
	const __half2 *halves = (const __half2 *) &row;
	const float4 low = *(const float4 *) query;
	const float4 high = *(const float4 *) (query + 4);
	const float2 x[4] = {__half22float2(halves[0]), __half22float2(halves[1]),
						 __half22float2(halves[2]), __half22float2(halves[3])};

	sum = fmaf(x[0].x, low.x, fmaf(x[0].y, low.y, fmaf(x[1].x, low.z, fmaf(x[1].y, low.w, sum))));
	return fmaf(x[2].x, high.x, fmaf(x[2].y, high.y, fmaf(x[3].x, high.z,
														   fmaf(x[3].y, high.w, sum))));
}

/* What a lane reads of 16 rows: row l / 4 and l / 4 + 8, chunks of 64 bytes.  NULL: zeros. */
struct walk_rows
{
	const char *a;
	const char *b;
	uint32_t	begin;			/* chunks */
	uint32_t	end;
	uint32_t	quads;			/* that a row has */
};

#define QUADS_IN_FLIGHT 8		/* a lane's, loaded before the first is used */

/*
 * Products of 16 rows by teams of TEAM lanes; arguments and result as of sum_16_rows().  Each team
 * reads up to QUADS_IN_FLIGHT of its rows side by side, so that a quad of the query is read from
 * shared memory once for all of them.
 */
template <uint32_t TEAM>
static __device__ __forceinline__ float
sum_16_by_teams(const walk_rows &of, const float *query, uint32_t lane)
{
	constexpr uint32_t at_once = 32 / TEAM;	/* rows that the warp reads, one a team */
	constexpr uint32_t passes = TEAM / 2;	/* that 16 rows take */
	constexpr uint32_t ahead = passes < QUADS_IN_FLIGHT ? passes : QUADS_IN_FLIGHT;
	constexpr uint32_t depth = QUADS_IN_FLIGHT / ahead;		/* quads of each row in flight */
	const uint32_t last = min(of.end * 4, of.quads);
	const uint32_t wanted = lane & 15;
	float		result = 0;

#pragma unroll 1
	for (uint32_t pass = 0; pass < passes; pass += ahead)
	{
		const char *rows[ahead];
		float		sums[ahead];

#pragma unroll
		for (uint32_t j = 0; j < ahead; j++)
		{
			const uint32_t row = (pass + j) * at_once + lane / TEAM;
			const unsigned long long a = __shfl_sync(GG_FULL_WARP, (unsigned long long) of.a,
													 (row & 7) * 4);
			const unsigned long long b = __shfl_sync(GG_FULL_WARP, (unsigned long long) of.b,
													 (row & 7) * 4);

			rows[j] = (const char *) (row < 8 ? a : b);
			sums[j] = 0;
		}
		for (uint32_t base = of.begin * 4; base < last; base += TEAM * depth)
		{
			uint4		x[ahead][depth];

#pragma unroll
			for (uint32_t j = 0; j < ahead; j++)
#pragma unroll
				for (uint32_t d = 0; d < depth; d++)
				{
					const uint32_t quad = base + d * TEAM + lane % TEAM;

					x[j][d] = load_quad(rows[j], quad, quad < last && rows[j] != NULL);
				}
#pragma unroll
			for (uint32_t d = 0; d < depth; d++)
			{
				const uint32_t quad = base + d * TEAM + lane % TEAM;

				if (quad < last)
#pragma unroll
					for (uint32_t j = 0; j < ahead; j++)
						sums[j] = product_quad(x[j][d], query + quad * 8, sums[j]);
			}
		}
#pragma unroll
		for (uint32_t j = 0; j < ahead; j++)
		{
#pragma unroll
			for (int stride = TEAM / 2; stride > 0; stride /= 2)
				sums[j] += __shfl_xor_sync(GG_FULL_WARP, sums[j], stride);

			const float value = __shfl_sync(GG_FULL_WARP, sums[j], wanted % at_once * TEAM);

			if (wanted / at_once == pass + j)
				result = value;
		}
	}
	return result;
}

#define CHUNKS_IN_FLIGHT 4		/* 64-byte chunks a row loaded before the first is used */

/* Load the lane's quads of both rows, of CHUNKS_IN_FLIGHT chunks from `chunk` on. */
static __device__ __forceinline__ void
load_chunks(const walk_rows &of, uint32_t chunk, uint32_t lane, uint4 (&a)[CHUNKS_IN_FLIGHT],
			uint4 (&b)[CHUNKS_IN_FLIGHT])
{
#pragma unroll
	for (int u = 0; u < CHUNKS_IN_FLIGHT; u++)
	{
		uint32_t	quad = (chunk + u) * 4 + (lane & 3);
		bool		inside = chunk + u < of.end && quad < of.quads;

		a[u] = load_quad(of.a, quad, inside && of.a != NULL);
		b[u] = load_quad(of.b, quad, inside && of.b != NULL);
	}
}

/* Plane `plane` of four bytes of codes. */
template <uint32_t BITS>
static __device__ __forceinline__ uint32_t
code_plane(uint32_t bytes, uint32_t plane)
{
	return BITS == 8 ? bytes : bytes >> (plane * BITS) & 0x0F0F0F0Fu;
}

/* The same as sum_16_rows() of records, by products. */
template <uint32_t BITS>
static __device__ __forceinline__ int32_t
sum_16_records(const walk_rows &of, const void *query, uint32_t lane)
{
	constexpr uint32_t planes = 8 / BITS;
	const uint32_t pitch = code_plane_bytes(of.quads) / 16;
	/* lanes 0-3 hold the high bytes (column 0), 4-7 the low ones (column 1), others zeros */
	const uint4 *column = (const uint4 *) query + (lane >= 4 ? planes * pitch : 0) + (lane & 3);
	int32_t		even[4] = {0, 0, 0, 0};
	int32_t		odd[4] = {0, 0, 0, 0};
	uint32_t	sum_a;
	uint32_t	sum_b;

	for (uint32_t chunk = of.begin; chunk < of.end; chunk += CHUNKS_IN_FLIGHT)
	{
		uint4		a[CHUNKS_IN_FLIGHT];
		uint4		b[CHUNKS_IN_FLIGHT];

		load_chunks(of, chunk, lane, a, b);
#pragma unroll
		for (int u = 0; u < CHUNKS_IN_FLIGHT; u++)
		{
			if (chunk + u >= of.end)
				break;
#pragma unroll
			for (uint32_t plane = 0; plane < planes; plane++)
			{
				uint4		q = make_uint4(0, 0, 0, 0);

				if (lane < 8)
					q = column[plane * pitch + (chunk + u) * 4];
				gg_mma_bytes(even, code_plane<BITS>(a[u].x, plane), code_plane<BITS>(b[u].x, plane),
							 code_plane<BITS>(a[u].y, plane), code_plane<BITS>(b[u].y, plane),
							 q.x, q.y);
				gg_mma_bytes(odd, code_plane<BITS>(a[u].z, plane), code_plane<BITS>(b[u].z, plane),
							 code_plane<BITS>(a[u].w, plane), code_plane<BITS>(b[u].w, plane),
							 q.z, q.w);
			}
		}
	}
	/* in lanes 4 g, the two columns of rows g and g + 8; parts may wrap, their sum does not */
	sum_a = (uint32_t) (even[0] + odd[0]) * 256 + (uint32_t) (even[1] + odd[1]);
	sum_b = (uint32_t) (even[2] + odd[2]) * 256 + (uint32_t) (even[3] + odd[3]);
	sum_a = __shfl_sync(GG_FULL_WARP, sum_a, (lane & 7) * 4);
	sum_b = __shfl_sync(GG_FULL_WARP, sum_b, (lane & 7) * 4);
	return (int32_t) ((lane & 8) != 0 ? sum_b : sum_a);
}

/* Add the differences of a record's quad; floats: the query's for its bytes, planes pitch apart. */
static __device__ __forceinline__ float
difference_quad(uint4 quad, gg_code_head head, uint32_t bits, const float *floats, uint32_t pitch,
				float sum)
{
	const uint32_t words[4] = {quad.x, quad.y, quad.z, quad.w};
	const uint32_t mask = (1u << bits) - 1;

	for (uint32_t shift = 0; shift < 8; shift += bits, floats += pitch)
#pragma unroll
		for (int i = 0; i < 16; i++)
		{
			const float level = (float) (words[i / 4] >> (i % 4 * 8 + shift) & mask);
			const float value = GG_CODE_ADD(head.base, GG_CODE_MUL(head.factor, level));

			/* fmaxf() takes NaN, which stands where there is no element, for 0 */
			sum += fmaxf(fabsf(value - floats[i]), 0.0f);
		}
	return sum;
}

/* The same as sum_16_rows() of records, by differences. */
static __device__ __forceinline__ float
sum_16_differences(const walk_rows &of, uint32_t bits, const float *query, uint32_t lane)
{
	const uint32_t pitch = code_plane_bytes(of.quads);
	const char *rows[2] = {of.a, of.b};
	float		sums[2];

#pragma unroll
	for (int r = 0; r < 2; r++)
	{
		gg_code_head head = {0, 0};

		if (rows[r] != NULL)
			head = load_head(rows[r], (size_t) of.quads * 16);
		sums[r] = 0;
		for (uint32_t quad = of.begin * 4 + (lane & 3); quad < min(of.end * 4, of.quads);
			 quad += 4)
			sums[r] = difference_quad(load_quad(rows[r], quad, rows[r] != NULL), head, bits,
									  query + quad * 16, pitch, sums[r]);
		sums[r] += __shfl_xor_sync(GG_FULL_WARP, sums[r], 1);
		sums[r] += __shfl_xor_sync(GG_FULL_WARP, sums[r], 2);
		sums[r] = __shfl_sync(GG_FULL_WARP, sums[r], (lane & 7) * 4);
	}
	return (lane & 8) != 0 ? sums[1] : sums[0];
}

/*
 * Raw sums (products, or sums of differences) of 16 rows over chunks [begin, end) of 64 bytes.
 * Lane l reads rows l / 4 and l / 4 + 8, quad l % 4 of each chunk; NULL rows read as zeros.
 * Lane l gets the sum of row l % 16.
 */
template <int PATH>
static __device__ __forceinline__ walk_sum<PATH>
sum_16_rows(const search_view &view, const char *row_a, const char *row_b, uint32_t begin,
			uint32_t end, const void *query, uint32_t lane)
{
	const walk_rows of = {.a = row_a, .b = row_b, .begin = begin, .end = end,
		.quads = view.walk_quads};
	const uint32_t walk_pad = view.walk_pad;
	uint32_t	part = lane & 3;
	float		sum_a,
				sum_b;

	if constexpr (code_bits_of(PATH) > 0)
		return sum_16_records<code_bits_of(PATH)>(of, query, lane);
	if constexpr (PATH == WALK_CODE_L1)
		return sum_16_differences(of, view.code_bits, (const float *) query, lane);
	if constexpr (team_of(PATH) > 0)
		return sum_16_by_teams<team_of(PATH)>(of, (const float *) query, lane);
	if (PATH == WALK_HALF_DOT)
	{
		/* lanes 0-3 hold the high parts (column 0), 4-7 the low ones (column 1), others zeros */
		const uint4 *column = (const uint4 *) ((const __half *) query + (lane >= 4 ? walk_pad : 0));
		float		even[4] = {0, 0, 0, 0};
		float		odd[4] = {0, 0, 0, 0};

		for (uint32_t chunk = of.begin; chunk < of.end; chunk += CHUNKS_IN_FLIGHT)
		{
			uint4		a[CHUNKS_IN_FLIGHT];
			uint4		b[CHUNKS_IN_FLIGHT];

			load_chunks(of, chunk, lane, a, b);
#pragma unroll
			for (int u = 0; u < CHUNKS_IN_FLIGHT; u++)
			{
				uint4		q = make_uint4(0, 0, 0, 0);

				if (chunk + u >= of.end)
					break;
				if (lane < 8)
					q = column[(chunk + u) * 4 + part];
				gg_mma(even, a[u].x, b[u].x, a[u].y, b[u].y, q.x, q.y);
				gg_mma(odd, a[u].z, b[u].z, a[u].w, b[u].w, q.z, q.w);
			}
		}
		/* in lanes 4 g, the two columns of rows g and g + 8 */
		sum_a = (even[0] + odd[0]) + (even[1] + odd[1]);
		sum_b = (even[2] + odd[2]) + (even[3] + odd[3]);
	}
	else
	{
		const uint32_t elements = PATH == WALK_HALF_L1 ? 8 : 4;
		const float *floats = (const float *) query;

		sum_a = sum_b = 0;
		for (uint32_t chunk = of.begin; chunk < of.end; chunk += CHUNKS_IN_FLIGHT)
		{
			uint4		a[CHUNKS_IN_FLIGHT];
			uint4		b[CHUNKS_IN_FLIGHT];

			load_chunks(of, chunk, lane, a, b);
#pragma unroll
			for (int u = 0; u < CHUNKS_IN_FLIGHT; u++)
			{
				uint32_t	quad = (chunk + u) * 4 + part;

				if (chunk + u < of.end && quad < of.quads)
				{
					sum_a = scalar_quad<PATH>(a[u], floats + quad * elements, sum_a);
					sum_b = scalar_quad<PATH>(b[u], floats + quad * elements, sum_b);
				}
			}
		}
		sum_a += __shfl_xor_sync(GG_FULL_WARP, sum_a, 1);
		sum_b += __shfl_xor_sync(GG_FULL_WARP, sum_b, 1);
		sum_a += __shfl_xor_sync(GG_FULL_WARP, sum_a, 2);
		sum_b += __shfl_xor_sync(GG_FULL_WARP, sum_b, 2);
	}
	sum_a = __shfl_sync(GG_FULL_WARP, sum_a, (lane & 7) * 4);
	sum_b = __shfl_sync(GG_FULL_WARP, sum_b, (lane & 7) * 4);
	return (lane & 8) ? sum_b : sum_a;
}

/*
 * A node's norm, 0 where there are none.  Asked for before the node's row, so that one latency
 * covers both.
 */
static __device__ __forceinline__ float
load_norm(const float *norms, uint32_t at, bool valid)
{
	float		norm = 0;

	if (valid && norms != NULL)
		asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(norm) : "l"(norms + at));
	return norm;
}

/* The norm, or the head, of row `at` of view.walk_rows or pivot_rows; asked for before the row. */
template <int PATH>
static __device__ __forceinline__ walk_side<PATH>
load_side(const search_view &view, const char *rows, const float *norms, uint32_t at, bool valid)
{
	if constexpr (code_bits_of(PATH) > 0)
		return valid ? load_head(rows + (size_t) at * view.walk_stride,
								 (size_t) view.walk_quads * 16) : gg_code_head{0, 0};
	else
		return load_norm(norms, at, valid);
}

/* From a raw sum to a number ordered like the distance; with codes, to its estimate. */
template <int PATH>
static __device__ __forceinline__ float
walk_value(const search_view &view, walk_sum<PATH> sum, const walk_factor<PATH> &factor,
		   const walk_side<PATH> &side)
{
	if constexpr (code_bits_of(PATH) > 0)
		return gg_code_estimate(side, code_bits_of(PATH), sum, factor.sum, factor.scale,
								factor.base);
	else if constexpr (is_half_product(PATH))
	{
		float		value = factor * sum;

		if (view.norms != NULL)
			value = view.metric == GG_METRIC_L2 ? value + side : value * side;
		return value;
	}
	else
		return PATH == WALK_FLOAT_DOT ? -sum : sum;
}

static __device__ __forceinline__ uint32_t
walk_chunks(const search_view &view)
{
	return (view.walk_quads + 3) / 4;
}

#endif							/* GG_SEARCH_WALK_CUH */
