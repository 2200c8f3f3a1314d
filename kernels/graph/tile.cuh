/*
 * tile.cuh
 *		Distances of 64 x 128 rows by one block of 256 threads, the rows streamed through
 *		shared memory in chunks of 128 bytes.
 *
 * Mapping: 8 warps as 2 (rows) x 4 (columns) of 32 x 32.  A thread holds 32 sums, in the layout of
 * mma.m16n8k16's accumulator whatever the arithmetic: sum [mi][ni][e] is row
 * 32 wm + 16 mi + 8 (e / 2) + lane / 4 and column 32 wn + 8 ni + 2 (lane % 4) + e % 2.
 *
 * A chunk's row is 8 quads at 128-byte pitch, quad u stored at u ^ (row % 8): both ldmatrix and
 * the fp32 loads then touch each bank once.
 *
 * A sum is the same bits wherever its row and column lie in the tile, and nothing else enters it.
 */
#ifndef GG_TILE_CUH
#define GG_TILE_CUH

#include "../common/warp.cuh"
#include "stages.h"

#define GG_TILE_ROWS 64
#define GG_TILE_COLUMNS 128
#define GG_TILE_THREADS 256
#define GG_TILE_QUADS (GG_TILE_PITCH / 16)

typedef float gg_tile_sums[2][4][4];

__device__ static inline void
gg_tile_clear(gg_tile_sums &sums)
{
#pragma unroll
	for (int i = 0; i < 32; i++)
		sums[i / 16][i / 4 % 4][i % 4] = 0.0f;
}

/* Add one chunk of `quads` quads: a and b are the chunk's rows of the tile in shared memory. */
template <gg_cuda_kind KIND>
__device__ static inline void
gg_tile_add(gg_tile_sums &sums, const char *a, const char *b, uint32_t quads, uint32_t wm,
			uint32_t wn)
{
	const uint32_t lane = threadIdx.x & 31;

	if (gg_cuda_halves(KIND))
	{
		const uint32_t a_row = wm * 32 + (lane & 15);
		const uint32_t b_row = wn * 32 + (lane & 7) + (lane >> 4) * 8;

#pragma unroll
		for (uint32_t quad = 0; quad < GG_TILE_QUADS; quad += 2)
		{
			uint32_t	fa[2][4];
			uint32_t	fb[2][4];

			if (quad >= quads)
				break;
#pragma unroll
			for (int i = 0; i < 2; i++)
			{
				gg_load_matrix(fa[i], a + gg_tile_offset(a_row + i * 16, quad + (lane >> 4)));
				gg_load_matrix(fb[i], b + gg_tile_offset(b_row + i * 16, quad + (lane >> 3 & 1)));
			}
#pragma unroll
			for (int mi = 0; mi < 2; mi++)
#pragma unroll
				for (int ni = 0; ni < 4; ni++)
					gg_mma(sums[mi][ni], fa[mi][0], fa[mi][1], fa[mi][2], fa[mi][3],
						   fb[ni / 2][ni % 2 * 2], fb[ni / 2][ni % 2 * 2 + 1]);
		}
	}
	else
	{
		const uint32_t a_row = wm * 32 + lane / 4;
		const uint32_t b_row = wn * 32 + lane % 4 * 2;

		for (uint32_t quad = 0; quad < quads; quad++)
		{
			float4		fa[4];

#pragma unroll
			for (int i = 0; i < 4; i++)
				fa[i] = *(const float4 *) (a + gg_tile_offset(a_row + i * 8, quad));
#pragma unroll
			for (int j = 0; j < 8; j++)
			{
				const float4 fb = *(const float4 *) (b + gg_tile_offset(b_row + j / 2 * 8 + j % 2,
																		quad));

#pragma unroll
				for (int i = 0; i < 4; i++)
				{
					float	   &sum = sums[i / 2][j / 2][i % 2 * 2 + j % 2];
					const float x = fa[i].x - fb.x;
					const float y = fa[i].y - fb.y;
					const float z = fa[i].z - fb.z;
					const float w = fa[i].w - fb.w;

					if (KIND == GG_KIND_FLOAT_L2)
					{
						sum = fmaf(x, x, sum);
						sum = fmaf(y, y, sum);
						sum = fmaf(z, z, sum);
						sum = fmaf(w, w, sum);
					}
					else
						sum += fabsf(x) + fabsf(y) + fabsf(z) + fabsf(w);
				}
			}
		}
	}
}

/* The distance a sum stands for. */
template <gg_cuda_kind KIND>
__device__ static inline float
gg_tile_distance(float sum, float norm_a, float norm_b)
{
	if (KIND == GG_KIND_HALF_IP)
		return gg_product_distance(sum);
	/* the commutative sum first: (a, b) and (b, a) round alike */
	return KIND == GG_KIND_HALF_L2 ? fmaxf((norm_a + norm_b) - 2.0f * sum, 0.0f) : sum;
}

#endif							/* GG_TILE_CUH */
