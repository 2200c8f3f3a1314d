/*
 * lists.cu
 *		The lists that GNND (knn_graph.cu) starts from where they are random ones, and what becomes
 *		of its lists at the end: distances of the caller's rows, in fp32.
 *
 * One warp per row in both.
 *
 * Oracle: exact neighbours by recall, distances to 1e-3 (test_cuda_build.c).
 */
#include "rank.cuh"

/* ---- random start --------------------------------------------------------------------- */

/*
 * k random neighbours per row, drawn by a hash of (row, position): nothing in it is periodic in
 * either, as strides are, which leaves graphs in pieces when n is a multiple of k.
 */
template <gg_cuda_kind KIND, int R>
static __global__ void
random_lists_kernel(gg_cuda_rows rows, uint32_t k, uint32_t seed, uint32_t first, uint64_t *lists)
{
	__shared__ uint64_t buffers[8][64];
	const uint32_t row = first + blockIdx.x * 8 + threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;
	uint64_t   *buffer = buffers[threadIdx.x / 32];

	if (row >= rows.n)
		return;
	for (uint32_t begin = 0; begin < k; begin += 64)
	{
		const uint32_t count = min(k - begin, 64u);

		for (uint32_t i = 0; i < count; i++)
		{
			/* one of the n - 1 others */
			const uint32_t draw = __umulhi(gg_mix(gg_mix(row ^ seed) + (begin + i) * 0x9E3779B1u),
										   rows.n - 1);
			const uint32_t id = draw + (draw >= row);
			const float distance = gg_row_distance<KIND>(rows, row, id);

			if (lane == 0)
				buffer[i] = gg_key(distance, id, 1);
		}
		__syncwarp();
		gg_merge<R>(lists + (uint64_t) row * (32 * R), buffer, count);
	}
}

gg_status
gg_cuda_random_lists(const gg_cuda_rows *rows, uint32_t length, uint32_t k, uint64_t seed,
					 const gg_cuda_run &run, uint64_t *lists)
{
	/* a launch: 20 GB of rows, some 20 ms, and not more of lists than that */
	const uint64_t fit = 20000000000ull / ((uint64_t) k * (rows->quads * 16 + 16)) / 8 * 8 + 8;
	const uint32_t step = fit > GG_PASS_ROWS ? (uint32_t) GG_PASS_ROWS : (uint32_t) fit;
	gg_cuda_pace pace;

	GG_TRY(pace.create());
	GG_CUDA_TRY(cudaMemsetAsync(lists, 0xFF, (uint64_t) rows->n * length * sizeof(uint64_t),
								run.stream));
	for (uint64_t first = 0; rows->n >= 2 && first < rows->n; first += step)
	{
		const uint32_t count = gg_cuda_slice(rows->n, first, step);

		GG_SWITCH_KIND(rows->kind, GG_SWITCH_LENGTH(length,
			(random_lists_kernel<KIND, R><<<gg_cuda_blocks(count, 8), 256, 0, run.stream>>>
			 (*rows, k, gg_mix((uint32_t) seed) ^ (uint32_t) (seed >> 32), (uint32_t) first,
			  lists))));
		GG_CUDA_LAUNCHED("random_lists_kernel");
		GG_TRY(pace.step(run.stream, run.control, __func__));
		gg_cuda_progress(run.control, GG_PHASE_KNN_INIT, first + count, rows->n);
	}
	return gg_cuda_drain(run.stream, run.control, __func__);
}

/* ---- finish ------------------------------------------------------------------------------ */

template <int R>
static __global__ void
finish_kernel(gg_cuda_data data, gg_cuda_lists lists, bool fill, uint32_t seed, uint32_t first,
			  uint32_t *ids, float *distances)
{
	constexpr int WARPS = R >= 16 ? 4 : 8;
	__shared__ uint32_t all_ids[WARPS][32 * R];
	__shared__ float all_distances[WARPS][32 * R];
	const uint32_t row = first + blockIdx.x * WARPS + threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;
	uint32_t   *my_ids = all_ids[threadIdx.x / 32];
	float	   *my_distances = all_distances[threadIdx.x / 32];
	uint32_t	count = 0;

	if (row >= data.n)
		return;
	const uint32_t k = lists.k;
	const uint32_t want = fill ? min(k, data.n - 1) : 0;

#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint64_t key = lists.keys[(uint64_t) row * (32 * R) + r * 32 + lane];

		if (key != GG_KEY_NONE)
			my_ids[r * 32 + lane] = gg_key_id(key);
		count += __popc(__ballot_sync(GG_FULL_WARP, key != GG_KEY_NONE));
	}
	__syncwarp();
	count = gg_rank_ids<R>(data, row, count, my_ids, my_distances);

	/* no cell and no join has found this row enough neighbours: random rows fill its list */
	if (count < want)
	{
		uint32_t	candidate = gg_mix(row ^ seed) % data.n;

		while (count < want)
		{
			bool		taken = candidate == row;

			for (uint32_t i = lane; i < count; i += 32)
				taken |= my_ids[i] == candidate;
			if (!__any_sync(GG_FULL_WARP, taken))
			{
				if (lane == 0)
					my_ids[count] = candidate;
				count++;
				__syncwarp();
			}
			candidate = candidate + 1 == data.n ? 0 : candidate + 1;
		}
		count = gg_rank_ids<R>(data, row, count, my_ids, my_distances);
	}

	for (uint32_t at = lane; at < k; at += 32)
	{
		ids[(uint64_t) row * k + at] = at < count ? my_ids[at] : GG_NO_NODE;
		if (distances != NULL)
			distances[(uint64_t) row * k + at] = at >= count ? __uint_as_float(0x7F800000u) :
				data.metric == GG_METRIC_IP ? -gg_distance_product(my_distances[at]) :
				my_distances[at];
	}
}

gg_status
gg_cuda_finish_lists(const gg_cuda_data *data, const gg_cuda_lists &lists, bool fill, uint64_t seed,
					 const gg_cuda_run &run, uint32_t *ids, float *distances)
{
	/* a launch: 20 GB of rows, some 20 ms; of short rows the sorting takes longer */
	const uint64_t per_row = (uint64_t) lists.k * data->dim * gg_element_size(data->element);
	const uint64_t fit = 20000000000ull / per_row / 8 * 8 + 264;
	const uint64_t step = gg_cuda_cut(fit > GG_PASS_ROWS ? GG_PASS_ROWS : fit, run.control);
	gg_cuda_pace pace;

	GG_TRY(pace.create());
	GG_SWEEP(data->n, step, run, pace, "finish_kernel",
		GG_SWITCH_LENGTH(lists.length,
			(finish_kernel<R>
			 <<<gg_cuda_blocks(count, R >= 16 ? 4 : 8), R >= 16 ? 128 : 256, 0, run.stream>>>
			 (*data, lists, fill, (uint32_t) seed, (uint32_t) first, ids, distances))));
	return gg_cuda_drain(run.stream, run.control, __func__);
}
