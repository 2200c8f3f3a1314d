/*
 * rerank.cuh
 *		Distances of rows as stored, which give the final order.
 */
#ifndef GG_SEARCH_RERANK_CUH
#define GG_SEARCH_RERANK_CUH

#include "keys.cuh"
#include "quad.cuh"
#include "view.h"

/* Add a quad of a row as stored, against the same elements of the query, to a distance's sums. */
template <typename ELEMENT, int METRIC>
static __device__ __forceinline__ void
exact_quad(const uint4 &quad, const float (&q)[16 / sizeof(ELEMENT)], float &sum, float &square)
{
	const ELEMENT *x = (const ELEMENT *) &quad;

#pragma unroll
	for (int i = 0; i < 16 / (int) sizeof(ELEMENT); i++)
	{
		float		value = (float) x[i];
		float		difference = value - q[i];

		if (METRIC == GG_METRIC_L2)
			sum += difference * difference;
		else if (METRIC == GG_METRIC_L1)
			sum += fabsf(difference);
		else
			sum += value * q[i];
		if (METRIC == GG_METRIC_COSINE && sizeof(ELEMENT) == 2)
			square += value * value;
	}
}

/* The distance that the SQL operator orders by, from the sums over a row. */
template <typename ELEMENT, int METRIC>
static __device__ __forceinline__ float
exact_value(float sum, float square, float inverse)
{
	float		value = sum;

	/* not -sum: a distance of 0 has one sign, and such rows go by their ids as other ties do */
	if (METRIC == GG_METRIC_IP)
		value = 0.0f - sum;
	if (METRIC == GG_METRIC_COSINE)
	{
		value = sum * inverse;
		if (sizeof(ELEMENT) == 2)
			value = square > 0 ? value / sqrtf(square) : 0;
		value = fminf(fmaxf(1 - value, 0.0f), 2.0f);
		/* fmaxf swallows NaN; a sum that overflowed must not look near */
		if (!isfinite(sum))
			value = INFINITY;
	}
	return value == value ? value : INFINITY;
}

/*
 * Distances of ROWS nodes by one warp, every lane gets all; QUADS quads of each are in flight a
 * lane.  The order of additions depends on the dimension alone: the same bits in every kernel.
 */
template <typename ELEMENT, int METRIC, int ROWS, int QUADS>
static __device__ __forceinline__ void
exact_rows(const search_view &view, const uint32_t (&nodes)[ROWS], const float *raw, float inverse,
		   uint32_t lane, float (&values)[ROWS])
{
	const int	elements = 16 / (int) sizeof(ELEMENT);
	uint32_t	quads = (view.dim + elements - 1) / elements;
	float		sum[ROWS];
	float		square[ROWS];

#pragma unroll
	for (int r = 0; r < ROWS; r++)
		sum[r] = square[r] = 0;
	for (uint32_t first = lane; first < quads; first += 32 * QUADS)
	{
		uint4		x[QUADS][ROWS];

#pragma unroll
		for (int u = 0; u < QUADS; u++)
#pragma unroll
			for (int r = 0; r < ROWS; r++)
				x[u][r] = load_quad(view.rows + (size_t) nodes[r] * view.row_stride,
									first + u * 32, nodes[r] < view.n && first + u * 32 < quads);
#pragma unroll
		for (int u = 0; u < QUADS; u++)
		{
			uint32_t	at = (first + u * 32) * elements;
			float		q[elements];

			if (at >= view.dim)
				break;
#pragma unroll
			for (int i = 0; i < elements; i++)
				q[i] = at + i < view.dim ? raw[at + i] : 0;
#pragma unroll
			for (int r = 0; r < ROWS; r++)
				exact_quad<ELEMENT, METRIC>(x[u][r], q, sum[r], square[r]);
		}
	}
#pragma unroll
	for (int r = 0; r < ROWS; r++)
	{
#pragma unroll
		for (int offset = 16; offset > 0; offset >>= 1)
		{
			sum[r] += __shfl_xor_sync(GG_FULL_WARP, sum[r], offset);
			if (METRIC == GG_METRIC_COSINE && sizeof(ELEMENT) == 2)
				square[r] += __shfl_xor_sync(GG_FULL_WARP, square[r], offset);
		}
		values[r] = exact_value<ELEMENT, METRIC>(sum[r], square[r], inverse);
	}
}

template <gg_metric METRIC, int ROWS, int QUADS>
static __device__ __forceinline__ void
exact_by(const search_view &view, const uint32_t (&nodes)[ROWS], const float *raw, float inverse,
		 uint32_t lane, float (&values)[ROWS])
{
	if (view.element == GG_ELEMENT_F32)
		exact_rows<float, METRIC, ROWS, QUADS>(view, nodes, raw, inverse, lane, values);
	else
		exact_rows<__half, METRIC, ROWS, QUADS>(view, nodes, raw, inverse, lane, values);
}

template <int ROWS, int QUADS>
static __device__ __forceinline__ void
exact_nodes(const search_view &view, const uint32_t (&nodes)[ROWS], const float *raw, float inverse,
			uint32_t lane, float (&values)[ROWS])
{
	switch (view.metric)
	{
		case GG_METRIC_L2:
			exact_by<GG_METRIC_L2, ROWS, QUADS>(view, nodes, raw, inverse, lane, values);
			break;
		case GG_METRIC_IP:
			exact_by<GG_METRIC_IP, ROWS, QUADS>(view, nodes, raw, inverse, lane, values);
			break;
		case GG_METRIC_COSINE:
			exact_by<GG_METRIC_COSINE, ROWS, QUADS>(view, nodes, raw, inverse, lane, values);
			break;
		default:
			exact_by<GG_METRIC_L1, ROWS, QUADS>(view, nodes, raw, inverse, lane, values);
			break;
	}
}

#endif							/* GG_SEARCH_RERANK_CUH */
