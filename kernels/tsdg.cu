/*
 * tsdg.cu
 *		Two-stage diversification of k-NN lists, with reverse edges.
 *
 * Wang, Wang, Zhao: "Graph-based Approximate NN Search: A Revisit", 2022, section 3.  The contract
 * is in src/cpu/tsdg.c.
 *
 * rows n x dim, knn n x k -> graph n x degree, in three steps
 *	1. relaxed	One block per node A.  The rows of its list against each other give one bit per
 *				pair: f d(A, B) < d(A, D) and f d(B, D) < d(A, D).  One warp goes through the list
 *				and keeps the D that none of those kept occludes: F(A).
 *	2. unite	Reverse edges, by optimize.cu.
 *	3. soft		One block per node A.  U(A) is sorted by (distance, id), its bits are made with
 *				f = 1, lambda of D is the number of bits of D.  Edges are sorted by (lambda, place).
 *
 * Distances.  d(A, B) is compared with d(A, D) as measured in fp32 from the caller's rows: rows of
 * one cluster differ little in it.  Beyond GG_FLOAT_MAX_DIM dimensions d(B, D) is |u|^2 + |v|^2 -
 * 2uv by mma, where u and v are the rows as seen from A: the difference to A's row, scaled so that
 * the farthest has a length of 64 to 128, rounded to fp16.  It is compared with |u|^2, the sum of u
 * with itself.  So an error is small against d(A, D), however near to each other the rows of a list
 * are, and however far from the origin; and a copy of A is exactly as far from D as A is.
 *
 * Mapping: 4 warps for lists of up to 64, 8 for longer ones.  Rows come in chunks of 128 bytes
 * (tile.cuh) to shared memory.  A warp has one or two tiles of 32 x 32 pairs, those on and below
 * the diagonal, the diagonal's first; a list of more tiles than a block has at a time reads its
 * rows again, from L2.
 *
 * Shared memory: a chunk (128 bytes a row), the bits on and below the diagonal, and 12 bytes a row:
 * 10 KB for lists of 64, 89 KB for lists of 512.
 *
 * Arithmetic: a node gathers its rows from device memory once and again from L1 or L2: 33 GB for
 * lists of 64 at 1M x 128 of float32; 8,192 x dim multiply-adds.
 *
 * Oracle: the CPU engine's diversify().  Lists differ where rounding decides a comparison
 * (test_cuda_build.c says how many may), and recall of searches does not.
 */
#include "../src/cpu/algorithms.h"
#include "list.cuh"
#include "tile.cuh"

#include <math.h>

#define HALF_LIMIT 60000.0f
#define FLOAT_LIMIT 1e12f		/* as in working_copy.cu */
#define PER_THREAD 2			/* rows of a list for each thread */

typedef struct tsdg_args
{
	gg_cuda_data data;
	uint32_t	elements;		/* to compare: dim, one more under IP */
	bool		fours;			/* four elements of a row lie on a boundary of four */
	const uint32_t *lists;		/* n x length ids, nearest first or in any order */
	uint32_t	length;
	uint32_t	capacity;		/* length, rounded up to 32 */
	float		factor;
	uint32_t	lambda0;
	uint32_t   *out;			/* n x most */
	uint32_t	most;
} tsdg_args;

/* A block's list: pointers into shared memory. */
typedef struct tsdg_list
{
	char	   *tile;			/* capacity x GG_TILE_PITCH */
	uint32_t   *bits;			/* of row r and column word w <= r / 32, see bits_at() */
	float	   *distances;		/* from the node, in fp32 from the caller's rows */
	float	   *norms;			/* from the node, in the arithmetic of pairs; 0 behind the last */
	uint32_t   *ids;
	uint32_t	count;
} tsdg_list;

static uint32_t
tsdg_shared_bytes(uint32_t capacity)
{
	const uint32_t blocks = capacity / 32;

	return capacity * (GG_TILE_PITCH + 12) + 32 * (blocks * (blocks + 1) / 2) * 4;
}

__device__ static inline tsdg_list
list_in(char *shared, uint32_t capacity)
{
	tsdg_list	list;

	list.tile = shared;
	list.distances = (float *) (shared + capacity * GG_TILE_PITCH);
	list.norms = list.distances + capacity;
	list.ids = (uint32_t *) (list.norms + capacity);
	list.bits = list.ids + capacity;
	list.count = 0;
	return list;
}

/* Where the words of a row begin: those below its 32 rows have one word more each. */
__device__ static inline uint32_t
bits_at(uint32_t row)
{
	const uint32_t block = row / 32;

	return 16 * block * (block + 1) + row % 32 * (block + 1);
}

/* Elements i .. i + 3 of the transformed row (working_copy.cu), 0 behind the last. */
__device__ static inline float4
load_four(const tsdg_args &args, uint32_t row, uint32_t i)
{
	const gg_cuda_data &data = args.data;
	const uint64_t at = (uint64_t) row * data.pitch + i;
	float4		x;

	if (args.fours && i < data.dim)
	{
		if (data.element == GG_ELEMENT_F32)
			x = *(const float4 *) ((const float *) data.rows + at);
		else
		{
			const uint2 halves = *(const uint2 *) ((const __half *) data.rows + at);
			const float2 low = __half22float2(*(const __half2 *) &halves.x);
			const float2 high = __half22float2(*(const __half2 *) &halves.y);

			x = make_float4(low.x, low.y, high.x, high.y);
		}
	}
	else
	{
		float		each[4];

#pragma unroll
		for (int j = 0; j < 4; j++)
			each[j] = i + j < data.dim ? gg_load_element(data, at + j) :
				i + j < args.elements ? data.side[row] : 0.0f;
		x = make_float4(each[0], each[1], each[2], each[3]);
	}
	if (data.metric == GG_METRIC_COSINE && data.side != NULL)
	{
		const float scale = data.side[row];

		x = make_float4(x.x * scale, x.y * scale, x.z * scale, x.w * scale);
	}
	return x;
}

__device__ static inline float4
subtract(float4 a, float4 b)
{
	return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w);
}

/* A node's ids up to the first that is none; all threads return with list->count. */
__device__ static inline void
load_ids(const tsdg_args &args, uint32_t node, tsdg_list *list)
{
	__shared__ uint32_t count;

	if (threadIdx.x == 0)
		count = args.length;
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < args.length; i += blockDim.x)
	{
		const uint32_t id = args.lists[(uint64_t) node * args.length + i];

		list->ids[i] = id;
		if (id >= args.data.n)
			atomicMin(&count, i);
	}
	__syncthreads();
	list->count = count;
}

/* distances[i] of every row of the list: a warp measures four at a time. */
template <gg_cuda_kind KIND>
__device__ static inline void
measure(const tsdg_args &args, uint32_t node, const tsdg_list &list)
{
	const uint32_t lane = threadIdx.x & 31;

	for (uint32_t first = threadIdx.x / 32 * 4; first < list.count; first += blockDim.x / 8)
	{
		float		sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
		uint32_t	rows[4];

#pragma unroll
		for (int j = 0; j < 4; j++)
			rows[j] = list.ids[min(first + j, list.count - 1)];
		for (uint32_t i = lane * 4; i < args.elements; i += 128)
		{
			const float4 own = load_four(args, node, i);

#pragma unroll
			for (int j = 0; j < 4; j++)
			{
				const float4 d = subtract(load_four(args, rows[j], i), own);

				if (KIND == GG_KIND_FLOAT_L1)
					sums[j] += fabsf(d.x) + fabsf(d.y) + fabsf(d.z) + fabsf(d.w);
				else
					sums[j] = fmaf(d.x, d.x, fmaf(d.y, d.y, fmaf(d.z, d.z,
																 fmaf(d.w, d.w, sums[j]))));
			}
		}
#pragma unroll
		for (int j = 0; j < 4; j++)
		{
			const float distance = gg_warp_sum(sums[j]);

			if (lane == 0 && first + j < list.count)
				list.distances[first + j] = isnan(distance) ? __uint_as_float(0x7F800000u) :
					distance;
		}
	}
	__syncthreads();
}

/* Order the list by (distance, id): each row's place is the number of those before it. */
__device__ static inline void
sort_list(const tsdg_list &list)
{
	uint64_t	keys[PER_THREAD];
	uint32_t	places[PER_THREAD];

#pragma unroll
	for (int j = 0; j < PER_THREAD; j++)
	{
		const uint32_t i = threadIdx.x + j * blockDim.x;

		keys[j] = i < list.count ? gg_key(list.distances[i], list.ids[i], 0) : GG_KEY_NONE;
		places[j] = 0;
		for (uint32_t other = 0; i < list.count && other < list.count; other++)
			places[j] += gg_key(list.distances[other], list.ids[other], 0) < keys[j];
	}
	__syncthreads();
#pragma unroll
	for (int j = 0; j < PER_THREAD; j++)
		if (keys[j] != GG_KEY_NONE)
		{
			list.distances[places[j]] = gg_key_distance(keys[j]);
			list.ids[places[j]] = gg_key_id(keys[j]);
		}
	__syncthreads();
}

/* The power of two that brings the length of the farthest row between 64 and 128. */
__device__ static inline float
list_scale(const tsdg_list &list)
{
	float		most = 0.0f;
	int			exponent;

	for (uint32_t i = threadIdx.x & 31; i < list.count; i += 32)
		most = fmaxf(most, list.distances[i]);
	for (int stride = 16; stride > 0; stride /= 2)
		most = fmaxf(most, __shfl_xor_sync(GG_FULL_WARP, most, stride));
	if (!(most > 0.0f) || isinf(most))
		return 1.0f;
	frexpf(most, &exponent);
	/* |u| = sqrt(most) is below 2^ceil(exponent / 2) */
	exponent = 7 - ((exponent + 1) >> 1);
	return ldexpf(1.0f, min(max(exponent, -60), 60));
}

/* fp32 elements as they are compared: clamped as in working_copy.cu. */
__device__ static inline float4
clamp_four(float4 x)
{
	return make_float4(fminf(fmaxf(x.x, -FLOAT_LIMIT), FLOAT_LIMIT),
					   fminf(fmaxf(x.y, -FLOAT_LIMIT), FLOAT_LIMIT),
					   fminf(fmaxf(x.z, -FLOAT_LIMIT), FLOAT_LIMIT),
					   fminf(fmaxf(x.w, -FLOAT_LIMIT), FLOAT_LIMIT));
}

/* Eight elements as halves in one register each pair. */
__device__ static inline uint4
pack_halves(float4 low, float4 high, float scale)
{
	const float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
	uint32_t	packed[4];

#pragma unroll
	for (int j = 0; j < 4; j++)
	{
		const __half2 pair =
			__floats2half2_rn(fminf(fmaxf(x[2 * j] * scale, -HALF_LIMIT), HALF_LIMIT),
							  fminf(fmaxf(x[2 * j + 1] * scale, -HALF_LIMIT), HALF_LIMIT));

		packed[j] = *(const uint32_t *) &pair;
	}
	return make_uint4(packed[0], packed[1], packed[2], packed[3]);
}

/*
 * Chunk number `chunk` of all rows to shared memory, zeros behind the last row and element.  rows:
 * the list's, rounded up to 32.
 */
template <gg_cuda_kind KIND>
__device__ static inline void
load_chunk(const tsdg_args &args, uint32_t node, const tsdg_list &list, uint32_t rows,
		   uint32_t chunk, float scale)
{
	constexpr uint32_t PER_UNIT = KIND == GG_KIND_HALF_L2 ? 8 : 4;

	for (uint32_t at = threadIdx.x; at < rows * GG_TILE_UNITS; at += blockDim.x)
	{
		const uint32_t row = at / GG_TILE_UNITS;
		const uint32_t unit = at % GG_TILE_UNITS;
		const uint32_t i = (chunk * GG_TILE_UNITS + unit) * PER_UNIT;
		uint4		packed = make_uint4(0, 0, 0, 0);

		if (row < list.count && i < args.elements)
		{
			const uint32_t id = list.ids[row];
			const float4 low = load_four(args, id, i);

			if (KIND == GG_KIND_HALF_L2)
			{
				const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
				const bool	both = i + 4 < args.elements;
				const float4 high = both ? load_four(args, id, i + 4) : none;

				packed = pack_halves(subtract(low, load_four(args, node, i)),
									 both ? subtract(high, load_four(args, node, i + 4)) : none,
									 scale);
			}
			else
			{
				const float4 x = clamp_four(low);

				packed = *(const uint4 *) &x;
			}
		}
		*(uint4 *) (list.tile + gg_tile_offset(row, unit)) = packed;
	}
}

/*
 * Tile number `number` of the triangle: first those on the diagonal, then those below it by rows.
 * False: there are not so many.
 */
__device__ static inline bool
tile_at(uint32_t number, uint32_t blocks, uint32_t *row_block, uint32_t *column_block)
{
	uint32_t	row = 1;

	if (number >= blocks * (blocks + 1) / 2)
		return false;
	if (number < blocks)
	{
		*row_block = *column_block = number;
		return true;
	}
	number -= blocks;
	while (number >= row)
		number -= row++;
	*row_block = row;
	*column_block = number;
	return true;
}

/* What a chunk adds to the distances of fp32 rows from the node, as gg_tile_add() has it. */
template <gg_cuda_kind KIND>
__device__ static inline void
add_norms(const tsdg_args &args, uint32_t node, const tsdg_list &list, uint32_t first,
		  uint32_t units)
{
	for (uint32_t i = threadIdx.x; i < list.count; i += blockDim.x)
	{
		float		sum = list.norms[i];

		for (uint32_t unit = 0; unit < GG_TILE_UNITS && first + unit < units; unit++)
		{
			const float4 own = clamp_four(load_four(args, node, (first + unit) * 4));
			const float4 row = *(const float4 *) (list.tile + gg_tile_offset(i, unit));
			const float4 d = subtract(row, own);

			if (KIND == GG_KIND_FLOAT_L2)
			{
				sum = fmaf(d.x, d.x, sum);
				sum = fmaf(d.y, d.y, sum);
				sum = fmaf(d.z, d.z, sum);
				sum = fmaf(d.w, d.w, sum);
			}
			else
				sum += fabsf(d.x) + fabsf(d.y) + fabsf(d.z) + fabsf(d.w);
		}
		list.norms[i] = sum;
	}
}

/* norms of the 32 rows of a tile on the diagonal: the sums of each with itself */
__device__ static inline void
keep_norms(const gg_tile_sums &sums, uint32_t block, float *norms)
{
	const uint32_t lane = threadIdx.x & 31;

#pragma unroll
	for (int i = 0; i < 32; i++)
	{
		const uint32_t row = i / 16 * 16 + i % 4 / 2 * 8 + lane / 4;
		const uint32_t column = i / 4 % 4 * 8 + lane % 4 * 2 + i % 2;

		if (row == column)
			norms[block * 32 + row] = sums[i / 16][i / 4 % 4][i % 4];
	}
}

/* The bits of a tile: of row D and column B whether B occludes D. */
template <gg_cuda_kind KIND>
__device__ static inline void
keep_bits(const gg_tile_sums &sums, uint32_t row_block, uint32_t column_block, float factor,
		  const tsdg_list &list)
{
	const uint32_t lane = threadIdx.x & 31;

#pragma unroll
	for (int r = 0; r < 4; r++)
	{
		const uint32_t row = row_block * 32 + r * 8 + lane / 4;
		const float place = KIND == GG_KIND_HALF_L2 ? list.distances[row] : list.norms[row];
		const float far = list.norms[row];
		uint32_t	word = 0;

#pragma unroll
		for (int c = 0; c < 8; c++)
		{
			const uint32_t bit = c / 2 * 8 + lane % 4 * 2 + c % 2;
			const uint32_t column = column_block * 32 + bit;
			const float near = KIND == GG_KIND_HALF_L2 ? list.distances[column] :
				list.norms[column];
			const float d = gg_tile_distance<KIND>(sums[r / 2][c / 2][r % 2 * 2 + c % 2], far,
												   list.norms[column]);

			if (factor * near < place && factor * d < far && column < list.count)
				word |= 1u << bit;
		}
		word |= __shfl_xor_sync(GG_FULL_WARP, word, 1);
		word |= __shfl_xor_sync(GG_FULL_WARP, word, 2);
		if (lane % 4 == 0)
			list.bits[bits_at(row) + column_block] = word;
	}
}

/* All bits of a list that was measured, T tiles a warp at a time. */
template <gg_cuda_kind KIND, int T>
__device__ static inline void
compare_all(const tsdg_args &args, uint32_t node, const tsdg_list &list)
{
	const uint32_t warp = threadIdx.x / 32;
	const uint32_t warps = blockDim.x / 32;
	const uint32_t blocks = (list.count + 31) / 32;
	const uint32_t ntiles = blocks * (blocks + 1) / 2;
	const uint32_t units = KIND == GG_KIND_HALF_L2 ? (args.elements + 15) / 16 * 2 :
		(args.elements + 3) / 4;
	const float scale = KIND == GG_KIND_HALF_L2 ? list_scale(list) : 1.0f;

	if (KIND != GG_KIND_HALF_L2)
		for (uint32_t i = threadIdx.x; i < blocks * 32; i += blockDim.x)
			list.norms[i] = 0.0f;
	for (uint32_t first = 0; first < ntiles; first += warps * T)
	{
		gg_tile_sums sums[T];
		uint32_t	row_block[T];
		uint32_t	column_block[T];
		bool		mine[T];

#pragma unroll
		for (int t = 0; t < T; t++)
		{
			mine[t] = tile_at(first + t * warps + warp, blocks, &row_block[t], &column_block[t]);
			gg_tile_clear(sums[t]);
		}
		for (uint32_t unit = 0; unit < units; unit += GG_TILE_UNITS)
		{
			load_chunk<KIND>(args, node, list, blocks * 32, unit / GG_TILE_UNITS, scale);
			__syncthreads();
			if (KIND != GG_KIND_HALF_L2 && first == 0)
				add_norms<KIND>(args, node, list, unit, units);
#pragma unroll
			for (int t = 0; t < T; t++)
				if (mine[t])
					gg_tile_add<KIND>(sums[t], list.tile, list.tile,
									  min(units - unit, (uint32_t) GG_TILE_UNITS), row_block[t],
									  column_block[t]);
			__syncthreads();
		}
		/* the diagonal is in the first round */
		if (KIND == GG_KIND_HALF_L2 && first == 0)
		{
#pragma unroll
			for (int t = 0; t < T; t++)
				if (mine[t] && row_block[t] == column_block[t])
					keep_norms(sums[t], row_block[t], list.norms);
			__syncthreads();
		}
#pragma unroll
		for (int t = 0; t < T; t++)
			if (mine[t])
				keep_bits<KIND>(sums[t], row_block[t], column_block[t], args.factor, list);
	}
	__syncthreads();
}

/* F(A) from the bits, by the first warp: lane w has the rows 32 w .. 32 w + 31 that are kept. */
__device__ static inline void
choose(const tsdg_args &args, uint32_t node, const tsdg_list &list)
{
	const uint32_t lane = threadIdx.x & 31;
	uint32_t   *out = args.out + (uint64_t) node * args.most;
	uint32_t	kept = 0;
	uint32_t	before;			/* kept in lower lanes */
	uint32_t	count = 0;

	for (uint32_t r = 0; r < list.count && count < args.most; r++)
	{
		const bool	occluded = lane <= r / 32 && (list.bits[bits_at(r) + lane] & kept) != 0;

		if (__any_sync(GG_FULL_WARP, occluded))
			continue;
		if (lane == r / 32)
			kept |= 1u << r % 32;
		count++;
	}
	before = __popc(kept);
	for (int stride = 1; stride < 32; stride *= 2)
	{
		const uint32_t lower = __shfl_up_sync(GG_FULL_WARP, before, stride);

		if (lane >= (uint32_t) stride)
			before += lower;
	}
	before -= __popc(kept);
	for (uint32_t block = 0; block * 32 < list.count; block++)
	{
		const uint32_t word = __shfl_sync(GG_FULL_WARP, kept, block);
		const uint32_t at = __shfl_sync(GG_FULL_WARP, before, block) +
			__popc(word & gg_lanes_below(lane));

		if (word >> lane & 1)
			out[at] = list.ids[block * 32 + lane];
	}
	for (uint32_t at = count + lane; at < args.most; at += 32)
		out[at] = GG_NO_NODE;
}

/* The edges of A by (lambda, place) from the bits. */
__device__ static inline void
rank_edges(const tsdg_args &args, uint32_t node, const tsdg_list &list)
{
	uint32_t   *out = args.out + (uint64_t) node * args.most;
	uint32_t   *lambdas = (uint32_t *) list.norms;	/* done with */

	for (uint32_t i = threadIdx.x; i < list.count; i += blockDim.x)
	{
		uint32_t	lambda = 0;

		for (uint32_t w = 0; w <= i / 32; w++)
			lambda += __popc(list.bits[bits_at(i) + w]);
		lambdas[i] = lambda;
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < list.count; i += blockDim.x)
	{
		uint32_t	place = 0;

		for (uint32_t other = 0; other < list.count; other++)
			place += lambdas[other] < lambdas[i] || (lambdas[other] == lambdas[i] && other < i);
		if (place < args.most)
			out[place] = lambdas[i] > args.lambda0 ? GG_NO_NODE : list.ids[i] |
				(lambdas[i] > GG_TSDG_LAMBDA_LARGE ? GG_EDGE_MARK : 0);
	}
	for (uint32_t at = list.count + threadIdx.x; at < args.most; at += blockDim.x)
		out[at] = GG_NO_NODE;
}

template <gg_cuda_kind KIND, int THREADS, int T>
static __global__ void __launch_bounds__(THREADS)
relaxed_kernel(tsdg_args args, uint32_t first)
{
	extern __shared__ char shared[];
	const uint32_t node = first + blockIdx.x;
	tsdg_list	list = list_in(shared, args.capacity);

	load_ids(args, node, &list);
	if (KIND == GG_KIND_HALF_L2)
		measure<KIND>(args, node, list);
	compare_all<KIND, T>(args, node, list);
	if (threadIdx.x < 32)
		choose(args, node, list);
}

template <gg_cuda_kind KIND, int THREADS, int T>
static __global__ void __launch_bounds__(THREADS)
soft_kernel(tsdg_args args, uint32_t first)
{
	extern __shared__ char shared[];
	const uint32_t node = first + blockIdx.x;
	tsdg_list	list = list_in(shared, args.capacity);

	load_ids(args, node, &list);
	measure<KIND>(args, node, list);
	sort_list(list);
	compare_all<KIND, T>(args, node, list);
	rank_edges(args, node, list);
}

/* Either kernel over all nodes. */
static gg_status
run_stage(const tsdg_args *args, bool soft, cudaStream_t stream, const gg_control *control,
		  gg_cuda_pace *pace)
{
	const gg_cuda_data *data = &args->data;
	const gg_cuda_kind kind = gg_cuda_kind_of(data->metric, data->dim);
	const uint32_t shared = tsdg_shared_bytes(args->capacity);
	const uint32_t size = args->capacity <= 64 ? 0 : args->capacity <= 128 ? 1 : 2;
	/*
	 * A launch: 20 ms at 1 TB/s of rows, which are read once to be measured and once for every 8
	 * or 16 tiles; or at 10 TFLOP/s of fp32.
	 */
	const uint64_t tiles = (uint64_t) args->capacity / 32 * (args->capacity / 32 + 1) / 2;
	const double bytes = (double) args->length * data->dim * 4.0 * (2.0 + (double) (tiles / 8));
	const double flops = kind == GG_KIND_HALF_L2 ? 0.0 : (double) tiles * 1024 * data->dim * 3;
	const double fit = 0.02 / (bytes / 1e12 + flops / 1e13);
	const uint64_t step = fit > (double) GG_PASS_ROWS ? GG_PASS_ROWS : (uint64_t) fit + 132;

#define LAUNCH(kernel, threads, tiles_) \
	do { \
		GG_CUDA_TRY(cudaFuncSetAttribute(kernel<KIND, threads, tiles_>, \
										 cudaFuncAttributeMaxDynamicSharedMemorySize, shared)); \
		(kernel<KIND, threads, tiles_><<<count, threads, shared, stream>>> \
		 (*args, (uint32_t) first)); \
	} while (0)
#define LAUNCH_SIZE(kernel) \
	do { \
		if (size == 0) \
			LAUNCH(kernel, 128, 1); \
		else if (size == 1) \
			LAUNCH(kernel, 256, 1); \
		else \
			LAUNCH(kernel, 256, 2); \
	} while (0)

	for (uint64_t first = 0; first < data->n; first += step)
	{
		const uint32_t count = gg_cuda_slice(data->n, first, step);

		if (soft)
			GG_SWITCH_KIND(kind, LAUNCH_SIZE(soft_kernel));
		else
			GG_SWITCH_KIND(kind, LAUNCH_SIZE(relaxed_kernel));
		GG_CUDA_LAUNCHED(soft ? "soft_kernel" : "relaxed_kernel");
		GG_TRY(pace->step(stream, control, __func__));
		gg_cuda_progress(control, GG_PHASE_OPTIMIZE, (soft ? data->n + first : first) / 2, data->n);
	}
#undef LAUNCH_SIZE
#undef LAUNCH
	return gg_ok();
}

gg_status
gg_cuda_diversify_device(const gg_cuda_data *data, const gg_build_params *params,
						 const uint32_t *knn, cudaStream_t stream, const gg_control *control,
						 gg_cuda_meter *meter, uint32_t *graph)
{
	const uint32_t n = data->n;
	const uint32_t limit = gg_tsdg_limit(params);
	gg_cuda_buffer<uint32_t> forward;
	gg_cuda_buffer<uint32_t> united;
	tsdg_args	args = {};
	gg_cuda_pace pace;

	if (n == 0)
		return gg_ok();
	GG_TRY(pace.create());
	args.data = *data;
	args.elements = data->dim + (data->metric == GG_METRIC_IP);
	args.fours = data->dim % 4 == 0 && data->pitch % 4 == 0;
	args.lambda0 = gg_tsdg_lambda0(params);

	GG_TRY(gg_cuda_allocate_large(&forward, (uint64_t) n * limit, control, meter));
	args.lists = knn;
	args.length = params->intermediate_graph_degree;
	args.capacity = (args.length + 31) / 32 * 32;
	args.factor = gg_tsdg_factor(params, data->metric);
	args.out = forward.get();
	args.most = limit;
	GG_TRY(run_stage(&args, false, stream, control, &pace));

	GG_TRY(gg_cuda_allocate_large(&united, (uint64_t) n * 2 * limit, control, meter));
	GG_TRY(gg_cuda_unite_device(forward.get(), n, limit, 2 * limit, stream, control, meter,
								united.get()));
	GG_TRY(gg_cuda_give_back(control, __func__, forward));

	args.lists = united.get();
	args.length = 2 * limit;
	args.capacity = (args.length + 31) / 32 * 32;
	args.factor = 1.0f;
	args.out = graph;
	args.most = params->graph_degree;
	GG_TRY(run_stage(&args, true, stream, control, &pace));
	gg_cuda_progress(control, GG_PHASE_OPTIMIZE, n, n);
	GG_TRY(gg_cuda_drain(stream, control, __func__));
	return gg_cuda_give_back(control, __func__, united);
}
