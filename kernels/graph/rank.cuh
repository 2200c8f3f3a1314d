/*
 * rank.cuh
 *		A row's neighbours ranked by fp32 distances of the caller's rows, one warp per row.
 *
 * For files that settle lists: lists.cu at the end of a build, extend.cu where a list gets new
 * entries.  The bits of a distance depend on the two rows and their order alone.
 */
#ifndef GG_RANK_CUH
#define GG_RANK_CUH

#include "list.cuh"

/* A warp's distance between two of the caller's rows, in every lane. */
__device__ static inline float
gg_exact_distance(const gg_cuda_data &data, uint32_t a, uint32_t b)
{
	const uint64_t at_a = (uint64_t) a * data.pitch;
	const uint64_t at_b = (uint64_t) b * data.pitch;
	const bool	product = data.metric == GG_METRIC_COSINE || data.metric == GG_METRIC_IP;
	const bool	l1 = data.metric == GG_METRIC_L1;
	float		sum = 0.0f;

	if (data.element == GG_ELEMENT_F32 && data.dim % 4 == 0)
	{
		const float4 *x = (const float4 *) ((const float *) data.rows + at_a);
		const float4 *y = (const float4 *) ((const float *) data.rows + at_b);

#pragma unroll 2
		for (uint32_t i = threadIdx.x & 31; i < data.dim / 4; i += 32)
		{
			const float4 p = x[i];
			const float4 q = y[i];
			const float d0 = p.x - q.x;
			const float d1 = p.y - q.y;
			const float d2 = p.z - q.z;
			const float d3 = p.w - q.w;

			if (product)
				sum = fmaf(p.x, q.x, fmaf(p.y, q.y, fmaf(p.z, q.z, fmaf(p.w, q.w, sum))));
			else if (l1)
				sum += fabsf(d0) + fabsf(d1) + fabsf(d2) + fabsf(d3);
			else
				sum = fmaf(d0, d0, fmaf(d1, d1, fmaf(d2, d2, fmaf(d3, d3, sum))));
		}
	}
	else
		for (uint32_t i = threadIdx.x & 31; i < data.dim; i += 32)
		{
			const float p = gg_load_element(data, at_a + i);
			const float q = gg_load_element(data, at_b + i);

			if (product)
				sum = fmaf(p, q, sum);
			else if (l1)
				sum += fabsf(p - q);
			else
				sum = fmaf(p - q, p - q, sum);
		}
	sum = gg_warp_sum(sum);
	if (data.metric == GG_METRIC_IP)
		return gg_product_distance(sum);
	if (data.metric == GG_METRIC_COSINE)
		return 1.0f - (data.side != NULL ? sum * data.side[a] * data.side[b] : sum);
	return sum;
}

/* NaN counts as infinity; rounding may push a cosine below 0, which a key cannot hold. */
__device__ static inline float
gg_clean_distance(float distance)
{
	return isnan(distance) ? __uint_as_float(0x7F800000u) : fmaxf(distance, 0.0f);
}

/*
 * A warp sorts count ids by their exact distance from row, and drops repeats.  Returns how many are
 * left: they are at the front of ids, and their distances at that of distances.
 */
template <int R>
__device__ static inline uint32_t
gg_rank_ids(const gg_cuda_data &data, uint32_t row, uint32_t count, uint32_t *ids, float *distances)
{
	const uint32_t lane = threadIdx.x & 31;
	uint64_t	keys[R];
	uint32_t	base = 0;
	uint64_t	edge = GG_KEY_NONE;

#pragma unroll
	for (int r = 0; r < R; r++)
	{
		keys[r] = GG_KEY_NONE;
		for (uint32_t i = 0; i < 32 && r * 32 + i < count; i++)
		{
			const uint32_t id = ids[r * 32 + i];
			const float distance = gg_clean_distance(gg_exact_distance(data, row, id));

			if (lane == i)
				keys[r] = gg_key(distance, id, 0);
		}
	}
	__syncwarp();
	gg_sort<R>(keys);
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const bool	keep = gg_differs(keys[r], edge);
		const uint32_t mask = __ballot_sync(GG_FULL_WARP, keep);
		const uint32_t at = base + __popc(mask & gg_lanes_below(lane));

		if (keep)
		{
			ids[at] = gg_key_id(keys[r]);
			distances[at] = gg_key_distance(keys[r]);
		}
		base += __popc(mask);
	}
	__syncwarp();
	return base;
}

#endif							/* GG_RANK_CUH */
