/*
 * row_view.cuh
 *		The rows of one node's list at hand: their distances, and which of them lie between the node
 *		and which others.
 *
 * For files that choose edges, one block per node; the twin of src/engine/cpu/papers/row_view.h.
 * Not for products (gg_algorithm_of()).
 *
 * Distances.  What lists are ordered by and what pools keep is measured in fp32 from the caller's
 * rows (gg_view_pairs()): rows of one cluster differ little in it.  Such a distance is a function
 * of the two rows, the same bits whichever comes first and whoever asks.
 *
 * Which of two rows is nearer to a third is asked for all pairs of a list, and the answers are bits
 * (gg_view_compare()).  Beyond GG_FLOAT_MAX_DIM dimensions the distance of two rows of A's list is
 * there |u|^2 + |v|^2 - 2uv by mma, where u and v are the rows as seen from A: the difference to
 * A's row, scaled so that the farthest has a length of 64 to 128, rounded to fp16.  It is compared
 * with |u|^2, the sum of u with itself.  So an error is small against d(A, u), however near to each
 * other the rows of a list are, and however far from the origin; and a copy of A is exactly as far
 * from a row as A is.
 *
 * Mapping: 4 warps for lists of up to 64, 8 for longer ones.  Rows come in chunks of 128 bytes
 * (tile.cuh) to shared memory.  A warp has one or two tiles of 32 x 32 pairs, those on and below
 * the diagonal, the diagonal's first; a list of more tiles than a block has at a time reads its
 * rows again, from L2.
 *
 * Shared memory: a chunk (128 bytes per row), the bits on and below the diagonal, and 12 bytes per
 * row: 10 KB for lists of 64, 89 KB for lists of 512.
 */
#ifndef GG_ROW_VIEW_CUH
#define GG_ROW_VIEW_CUH

#include "../graph/list.cuh"
#include "../graph/tile.cuh"

#include <math.h>

#define GG_VIEW_HALF_LIMIT 60000.0f
#define GG_VIEW_FLOAT_LIMIT 1e12f	/* as in working_copy.cu */

typedef struct gg_view
{
	gg_cuda_data data;
	bool		fours;			/* four elements of a row lie on a boundary of four */
} gg_view;

/* A block's list: pointers into shared memory. */
typedef struct gg_view_list
{
	char	   *tile;			/* capacity x GG_TILE_PITCH */
	uint32_t   *bits;			/* of row r and column word w <= r / 32, see gg_view_bits_at() */
	float	   *distances;		/* from the node, by gg_view_pairs() */
	float	   *norms;			/* from the node, in the arithmetic of pairs; 0 behind the last */
	uint32_t   *ids;
	uint32_t	count;
} gg_view_list;

static inline gg_view
gg_view_of(const gg_cuda_data *data)
{
	gg_view		view;

	view.data = *data;
	view.fours = data->dim % 4 == 0 && data->pitch % 4 == 0;
	return view;
}

/* Bytes of shared memory of a list of up to `capacity` rows, a multiple of 32. */
__device__ __host__ static constexpr uint32_t
gg_view_shared_bytes(uint32_t capacity)
{
	return capacity * (GG_TILE_PITCH + 12) +
		32 * (capacity / 32 * (capacity / 32 + 1) / 2) * sizeof(uint32_t);
}

__device__ static inline gg_view_list
gg_view_list_in(char *shared, uint32_t capacity)
{
	gg_view_list list;

	list.tile = shared;
	list.distances = (float *) (shared + capacity * GG_TILE_PITCH);
	list.norms = list.distances + capacity;
	list.ids = (uint32_t *) (list.norms + capacity);
	list.bits = list.ids + capacity;
	list.count = 0;
	return list;
}

/* Where the words of a row begin: each row of the b-th block of 32, from 0, has b + 1. */
__device__ static inline uint32_t
gg_view_bits_at(uint32_t row)
{
	const uint32_t block = row / 32;

	return 16 * block * (block + 1) + row % 32 * (block + 1);
}

/*
 * Elements i .. i + 3 of a row, cosine's at unit length, 0 behind the last; i < dim.  They are
 * rounded before anything is done with them: a product that is fused with a difference would make
 * copies of a row differ, and a distance depend on which of its rows comes first.
 */
__device__ static inline float4
load_four(const gg_view &view, uint32_t row, uint32_t i)
{
	const gg_cuda_data &data = view.data;
	const uint64_t at = (uint64_t) row * data.pitch + i;
	float4		x;

	if (view.fours)
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
			each[j] = i + j < data.dim ? gg_load_element(data, at + j) : 0.0f;
		x = make_float4(each[0], each[1], each[2], each[3]);
	}
	if (data.side != NULL)
	{
		const float scale = data.side[row];

		x = make_float4(__fmul_rn(x.x, scale), __fmul_rn(x.y, scale), __fmul_rn(x.z, scale),
						__fmul_rn(x.w, scale));
	}
	return x;
}

__device__ static inline float4
subtract(float4 a, float4 b)
{
	return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w);
}

/*
 * Four distances at a time by a warp, d(a[j], b[j]), in every lane.
 */
template <gg_cuda_kind KIND>
__device__ static inline void
gg_view_pairs(const gg_view &view, const uint32_t (&a)[4], const uint32_t (&b)[4], float (&out)[4])
{
	float		sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};

	for (uint32_t i = (threadIdx.x & 31) * 4; i < view.data.dim; i += 128)
#pragma unroll
		for (int j = 0; j < 4; j++)
		{
			const float4 d = subtract(load_four(view, b[j], i), load_four(view, a[j], i));

			if (KIND == GG_KIND_FLOAT_L1)
				sums[j] += fabsf(d.x) + fabsf(d.y) + fabsf(d.z) + fabsf(d.w);
			else
				sums[j] = fmaf(d.x, d.x, fmaf(d.y, d.y, fmaf(d.z, d.z, fmaf(d.w, d.w, sums[j]))));
		}
#pragma unroll
	for (int j = 0; j < 4; j++)
	{
		const float distance = gg_warp_sum(sums[j]);

		out[j] = isnan(distance) ? __uint_as_float(0x7F800000u) : distance;
	}
}

/* Set list.distances of every row of the list. */
template <gg_cuda_kind KIND>
__device__ static inline void
gg_view_measure(const gg_view &view, uint32_t node, const gg_view_list &list)
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t own[4] = {node, node, node, node};

	for (uint32_t first = threadIdx.x / 32 * 4; first < list.count; first += blockDim.x / 8)
	{
		uint32_t	rows[4];
		float		distances[4];

#pragma unroll
		for (int j = 0; j < 4; j++)
			rows[j] = list.ids[min(first + j, list.count - 1)];
		gg_view_pairs<KIND>(view, own, rows, distances);
#pragma unroll
		for (int j = 0; j < 4; j++)
			if (lane == 0 && first + j < list.count)
				list.distances[first + j] = distances[j];
	}
	__syncthreads();
}

/* The power of two that brings the length of the farthest row between 64 and 128. */
__device__ static inline float
list_scale(const gg_view_list &list)
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
	return make_float4(fminf(fmaxf(x.x, -GG_VIEW_FLOAT_LIMIT), GG_VIEW_FLOAT_LIMIT),
					   fminf(fmaxf(x.y, -GG_VIEW_FLOAT_LIMIT), GG_VIEW_FLOAT_LIMIT),
					   fminf(fmaxf(x.z, -GG_VIEW_FLOAT_LIMIT), GG_VIEW_FLOAT_LIMIT),
					   fminf(fmaxf(x.w, -GG_VIEW_FLOAT_LIMIT), GG_VIEW_FLOAT_LIMIT));
}

/* Eight elements times scale as halves, a pair in each register. */
__device__ static inline uint4
pack_halves(float4 low, float4 high, float scale)
{
	const float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
	uint32_t	packed[4];

#pragma unroll
	for (int j = 0; j < 4; j++)
	{
		const float a = fminf(fmaxf(x[2 * j] * scale, -GG_VIEW_HALF_LIMIT), GG_VIEW_HALF_LIMIT);
		const float b = fminf(fmaxf(x[2 * j + 1] * scale, -GG_VIEW_HALF_LIMIT),
							  GG_VIEW_HALF_LIMIT);
		const __half2 pair = __floats2half2_rn(a, b);

		packed[j] = *(const uint32_t *) &pair;
	}
	return make_uint4(packed[0], packed[1], packed[2], packed[3]);
}

/*
 * Load chunk number `chunk` of all rows to shared memory, zeros behind the last row and element.
 * rows: the list's, rounded up to 32.
 */
template <gg_cuda_kind KIND>
__device__ static inline void
load_chunk(const gg_view &view, uint32_t node, const gg_view_list &list, uint32_t rows,
		   uint32_t chunk, float scale)
{
	constexpr uint32_t PER_QUAD = KIND == GG_KIND_HALF_L2 ? 8 : 4;

	for (uint32_t at = threadIdx.x; at < rows * GG_TILE_QUADS; at += blockDim.x)
	{
		const uint32_t row = at / GG_TILE_QUADS;
		const uint32_t quad = at % GG_TILE_QUADS;
		const uint32_t i = (chunk * GG_TILE_QUADS + quad) * PER_QUAD;
		uint4		packed = make_uint4(0, 0, 0, 0);

		if (row < list.count && i < view.data.dim)
		{
			const uint32_t id = list.ids[row];
			const float4 low = load_four(view, id, i);

			if (KIND == GG_KIND_HALF_L2)
			{
				const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
				const bool	both = i + 4 < view.data.dim;
				const float4 high = both ? load_four(view, id, i + 4) : none;

				packed = pack_halves(subtract(low, load_four(view, node, i)),
									 both ? subtract(high, load_four(view, node, i + 4)) : none,
									 scale);
			}
			else
			{
				const float4 x = clamp_four(low);

				packed = *(const uint4 *) &x;
			}
		}
		*(uint4 *) (list.tile + gg_tile_offset(row, quad)) = packed;
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

/* Add a chunk's part of the distances of fp32 rows from the node, as gg_tile_add() does. */
template <gg_cuda_kind KIND>
__device__ static inline void
add_norms(const gg_view &view, uint32_t node, const gg_view_list &list, uint32_t first,
		  uint32_t quads)
{
	for (uint32_t i = threadIdx.x; i < list.count; i += blockDim.x)
	{
		float		sum = list.norms[i];

		for (uint32_t quad = 0; quad < GG_TILE_QUADS && first + quad < quads; quad++)
		{
			const float4 own = clamp_four(load_four(view, node, (first + quad) * 4));
			const float4 row = *(const float4 *) (list.tile + gg_tile_offset(i, quad));
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

/*
 * The bits of a tile, of row D and column B.  Set where factor d(A, B) < d(A, D) and factor d(B, D)
 * < d(A, D).
 */
template <gg_cuda_kind KIND>
__device__ static inline void
keep_bits(const gg_tile_sums &sums, uint32_t row_block, uint32_t column_block, float factor,
		  const gg_view_list &list)
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
			list.bits[gg_view_bits_at(row) + column_block] = word;
	}
}

/* Make all bits of a list that was measured, T tiles a warp at a time. */
template <gg_cuda_kind KIND, int T>
__device__ static inline void
gg_view_compare(const gg_view &view, uint32_t node, float factor, const gg_view_list &list)
{
	const uint32_t warp = threadIdx.x / 32;
	const uint32_t warps = blockDim.x / 32;
	const uint32_t blocks = (list.count + 31) / 32;
	const uint32_t ntiles = blocks * (blocks + 1) / 2;
	const uint32_t dim = view.data.dim;
	const uint32_t quads = KIND == GG_KIND_HALF_L2 ? (dim + 15) / 16 * 2 : (dim + 3) / 4;
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
		for (uint32_t quad = 0; quad < quads; quad += GG_TILE_QUADS)
		{
			load_chunk<KIND>(view, node, list, blocks * 32, quad / GG_TILE_QUADS, scale);
			__syncthreads();
			if (KIND != GG_KIND_HALF_L2 && first == 0)
				add_norms<KIND>(view, node, list, quad, quads);
#pragma unroll
			for (int t = 0; t < T; t++)
				if (mine[t])
					gg_tile_add<KIND>(sums[t], list.tile, list.tile,
									  min(quads - quad, (uint32_t) GG_TILE_QUADS), row_block[t],
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
				keep_bits<KIND>(sums[t], row_block[t], column_block[t], factor, list);
	}
	__syncthreads();
}

#endif							/* GG_ROW_VIEW_CUH */
