/*
 * update.cu
 *		GNND with the paper's updates of lists: section 4.3.
 *
 * Samples and rows are those of kernels/graph/knn_graph.cu (gnnd.cuh); the join and the update are
 * the paper's.  One block per row: all distances of a join come to shared memory, by the tensor
 * cores.  Then a warp takes one sample after the other, and
 *	UPDATE_ALL			(GNND-r1) every pair that it is in,
 *	UPDATE_NEAREST		(GNND-r2) its nearest NEW and its nearest OLD sample
 * is merged into its list, which is locked meanwhile; ids that are there are passed over.
 *	UPDATE_ALL_NEAR, UPDATE_NEAREST_NEAR	as these, but what is farther than the list's last is
 *						passed over before the lock is asked for.
 *	UPDATE_SEGMENTS		(GNND) as GNND-r2, but a list is cut into segments of 32 with a lock each,
 *						the one of id % segments.  After the iteration they become one list.
 * UPDATE_OURS is the engine's iteration.
 *
 * Who comes first at a lock decides ties, so lists differ from run to run in few places.
 */
#include "papers.h"

#include "../../../../kernels/graph/gnnd.cuh"
#include "../../../../kernels/graph/list.cuh"
#include "../../../../kernels/graph/tile.cuh"

#define SAMPLES 32				/* p */
#define SIDE (2 * SAMPLES)		/* samples of one age */
#define STAGE_BYTES (GG_TILE_COLUMNS * GG_TILE_PITCH)

typedef struct join_args
{
	local_args	samples;
	uint64_t   *lists;
	uint32_t   *locks;			/* n, or n x segments */
	uint32_t	k;
	papers_update update;
} join_args;

/* Distances of a join in shared memory: NEW rows, NEW and OLD columns; infinity where none is. */
#define JOIN_BYTES (SIDE * 2 * SIDE * sizeof(float) + STAGE_BYTES)

/* What a block knows of its samples. */
typedef struct join_samples
{
	uint32_t	raw[2 * SIDE];
	uint32_t	ids[2 * SIDE];	/* 0 .. 63 NEW, 64 .. 127 OLD, NO_SAMPLE behind the last */
	float		norms[2 * SIDE];
	uint32_t	packed[4];
} join_samples;

/* Read the samples, drop duplicates, pack; as local_join_kernel does. */
__device__ static inline void
read_samples(const join_args &args, uint32_t row, join_samples *on)
{
	const uint32_t tid = threadIdx.x;
	uint32_t	id = NO_SAMPLE;
	uint32_t	rank = 0;
	bool		valid = false;

	if (tid < 2 * SIDE)
	{
		id = (tid < SIDE ? args.samples.fresh : args.samples.old)[(uint64_t) row * SIDE +
																  tid % SIDE];
		if (tid % SIDE >= SAMPLES && id != NO_SAMPLE)
			id = unscramble(id, args.samples.seed);
		on->raw[tid] = id;
		on->ids[tid] = NO_SAMPLE;
		on->norms[tid] = 0.0f;
	}
	__syncthreads();
	if (tid < 2 * SIDE)
	{
		valid = id != NO_SAMPLE;
		for (uint32_t i = 0; i < tid; i++)
			valid &= on->raw[i] != id;

		const uint32_t mask = __ballot_sync(GG_FULL_WARP, valid);

		if (tid % 32 == 0)
			on->packed[tid / 32] = __popc(mask);
		rank = __popc(mask & gg_lanes_below(tid % 32));
	}
	__syncthreads();
	if (valid)
	{
		const uint32_t to = (tid < SIDE ? 0 : SIDE) +
			(tid / 32 % 2 == 1 ? on->packed[tid / 32 - 1] : 0) + rank;

		on->ids[to] = id;
		on->norms[to] = args.samples.rows.norms[id];
	}
	__syncthreads();
}

/* distances: SIDE x 2 SIDE */
template <gg_cuda_kind KIND>
__device__ static inline void
measure_join(const join_args &args, const join_samples *on, char *stage, float *distances)
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t wm = threadIdx.x / 32 & 1;
	const uint32_t wn = threadIdx.x / 64;
	const uint32_t quads = args.samples.rows.quads;
	gg_tile_sums sums;

	gg_tile_clear(sums);
	for (uint32_t first = 0; first < quads; first += GG_TILE_QUADS)
	{
		for (uint32_t at = threadIdx.x; at < 2 * SIDE * GG_TILE_QUADS; at += GG_TILE_THREADS)
		{
			const uint32_t i = at / GG_TILE_QUADS;
			const uint32_t quad = first + at % GG_TILE_QUADS;
			uint4		value = make_uint4(0, 0, 0, 0);

			if (on->ids[i] != NO_SAMPLE && quad < quads)
				value = ((const uint4 *) args.samples.rows.rows)[(uint64_t) on->ids[i] * quads +
																 quad];
			*(uint4 *) (stage + gg_tile_offset(i, at % GG_TILE_QUADS)) = value;
		}
		__syncthreads();
		gg_tile_add<KIND>(sums, stage, stage, min(quads - first, (uint32_t) GG_TILE_QUADS), wm,
						  wn);
		__syncthreads();
	}
#pragma unroll
	for (int i = 0; i < 32; i++)
	{
		const uint32_t r = wm * 32 + i / 16 * 16 + i % 4 / 2 * 8 + lane / 4;
		const uint32_t c = wn * 32 + i / 4 % 4 * 8 + lane % 4 * 2 + i % 2;
		const bool	pair = on->ids[r] != NO_SAMPLE && on->ids[c] != NO_SAMPLE && r != c;

		distances[r * 2 * SIDE + c] = pair ?
			gg_tile_distance<KIND>(sums[i / 16][i / 4 % 4][i % 4], on->norms[r], on->norms[c]) :
			__uint_as_float(0x7F800000u);
	}
	__syncthreads();
}

/*
 * Each lane's two keys into a list of 32 R under its lock, but for ids that are there.  one: there
 * is lane 0's first key alone.
 */
template <int R>
__device__ static inline void
insert_locked(uint64_t *list, uint32_t *lock, bool one, uint64_t a, uint64_t b, uint64_t *buffer)
{
	const uint32_t lane = threadIdx.x & 31;
	uint32_t	got;

	do
	{
		got = lane == 0 ? atomicCAS(lock, 0u, 1u) == 0 : 0;
		got = __shfl_sync(GG_FULL_WARP, got, 0);
	} while (got == 0);
	__threadfence();
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint32_t mine = gg_key_id(list[r * 32 + lane]);
		const uint32_t only = __shfl_sync(GG_FULL_WARP, gg_key_id(a), 0);

		if (one && __any_sync(GG_FULL_WARP, mine == only))
			a = GG_KEY_NONE;
		for (int i = 0; !one && i < 32; i++)
		{
			const uint32_t id = __shfl_sync(GG_FULL_WARP, mine, i);

			a = gg_key_id(a) == id ? GG_KEY_NONE : a;
			b = gg_key_id(b) == id ? GG_KEY_NONE : b;
		}
	}
	buffer[lane] = a;
	buffer[lane + 32] = b;
	__syncwarp();
	gg_merge<R>(list, buffer, 64);
	__threadfence();
	__syncwarp();
	if (lane == 0)
		atomicExch(lock, 0u);
}

/* The key of sample c of the join at a distance; none where that is too far for a list. */
__device__ static inline uint64_t
join_key(const join_samples *on, uint32_t c, float distance, uint64_t last)
{
	const uint64_t key = on->ids[c] == NO_SAMPLE || isinf(distance) ? GG_KEY_NONE :
		gg_key(distance, on->ids[c], 1);

	return key < last ? key : GG_KEY_NONE;
}

__device__ static inline uint64_t
warp_least(uint64_t key)
{
	for (int stride = 16; stride > 0; stride /= 2)
		key = lower(key, __shfl_xor_sync(GG_FULL_WARP, key, stride));
	return key;
}

__device__ static inline bool
takes_all(papers_update update)
{
	return update == UPDATE_ALL || update == UPDATE_ALL_NEAR;
}

/*
 * What a sample gets of 64 others, by one warp.  a and b: each lane's two keys.
 */
template <int R>
__device__ static inline void
give(const join_args &args, uint32_t node, uint64_t a, uint64_t b, uint64_t *buffer)
{
	const uint32_t lane = threadIdx.x & 31;
	uint64_t   *list = args.lists + (uint64_t) node * (32 * R);

	if (!takes_all(args.update))
	{
		a = warp_least(lower(a, b));
		b = GG_KEY_NONE;
	}
	if (!__any_sync(GG_FULL_WARP, a != GG_KEY_NONE || b != GG_KEY_NONE))
		return;
	if (args.update == UPDATE_SEGMENTS)
	{
		const uint32_t segment = gg_key_id(a) % R;

		insert_locked<1>(list + segment * 32, &args.locks[(uint64_t) node * R + segment], true,
						 lane == 0 ? a : GG_KEY_NONE, GG_KEY_NONE, buffer);
		return;
	}
	if (!takes_all(args.update) && lane != 0)
		a = GG_KEY_NONE;
	insert_locked<R>(list, &args.locks[node], !takes_all(args.update), a, b, buffer);
}

template <gg_cuda_kind KIND, int R>
static __global__ void __launch_bounds__(GG_TILE_THREADS)
paper_join_kernel(join_args args, uint32_t first)
{
	extern __shared__ char shared[];
	__shared__ join_samples on;
	__shared__ uint64_t buffers[GG_TILE_THREADS / 32][64];
	float	   *distances = (float *) (shared + STAGE_BYTES);
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t at = first + blockIdx.x;
	const uint32_t row = args.samples.order != NULL ? args.samples.order[at] : at;
	uint64_t   *buffer = buffers[threadIdx.x / 32];

	if (row >= args.samples.rows.n)
		return;
	read_samples(args, row, &on);
	measure_join<KIND>(args, &on, shared, distances);
	for (uint32_t s = threadIdx.x / 32; s < 2 * SIDE; s += GG_TILE_THREADS / 32)
	{
		const uint32_t node = on.ids[s];

		if (node == NO_SAMPLE)
			continue;
		const uint64_t last = args.update == UPDATE_ALL_NEAR ||
			args.update == UPDATE_NEAREST_NEAR ?
			__ldcg(&args.lists[(uint64_t) node * (32 * R) + args.k - 1]) : GG_KEY_NONE;

		for (uint32_t side = 0; side < 2; side++)
		{
			const uint32_t c = s < SIDE ? side * SIDE + lane : lane;
			const float near = s < SIDE ? distances[s * 2 * SIDE + c] :
				distances[c * 2 * SIDE + s];
			const float far = s < SIDE ? distances[s * 2 * SIDE + c + 32] :
				distances[(c + 32) * 2 * SIDE + s];

			/* an OLD sample meets NEW ones alone */
			if (s >= SIDE && side == 1)
				break;
			give<R>(args, node, join_key(&on, c, near, last), join_key(&on, c + 32, far, last),
					buffer);
		}
	}
}

/* Sorted lists dealt out to R segments in turns; or, joined, segments to one list, each id once. */
template <int R>
static __global__ void
segments_kernel(uint32_t n, bool joined, uint64_t *lists)
{
	const uint32_t row = blockIdx.x * 8 + threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;
	uint64_t	keys[R];

	if (row >= n)
		return;
	uint64_t   *list = lists + (uint64_t) row * (32 * R);

#pragma unroll
	for (int r = 0; r < R; r++)
		keys[r] = list[r * 32 + lane];
	__syncwarp();
	if (joined)
		gg_sort<R>(keys);
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint32_t rank = r * 32 + lane;

		list[joined ? rank : rank % R * 32 + rank / R] = keys[r];
	}
	__syncwarp();
	if (!joined)
		return;
	/* copies of an id have one distance and stand side by side */
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint32_t rank = r * 32 + lane;

		if (rank > 0 && gg_key_id(list[rank - 1]) == gg_key_id(keys[r]))
			keys[r] = GG_KEY_NONE;
	}
	__syncwarp();
	gg_sort<R>(keys);
#pragma unroll
	for (int r = 0; r < R; r++)
		list[r * 32 + lane] = keys[r];
}

static gg_status
run_segments(const gnnd *g, bool joined)
{
	GG_SWITCH_LENGTH(g->length,
		(segments_kernel<R><<<gg_cuda_blocks(g->rows->n, 8), 256, 0, g->stream>>>
		 (g->rows->n, joined, g->lists)));
	GG_CUDA_LAUNCHED("segments_kernel");
	return gg_ok();
}

template <gg_cuda_kind KIND, int R>
static gg_status
launch_paper_join(const gnnd *g, const join_args &args)
{
	GG_CUDA_TRY(cudaFuncSetAttribute(paper_join_kernel<KIND, R>,
									 cudaFuncAttributeMaxDynamicSharedMemorySize, JOIN_BYTES));
	paper_join_kernel<KIND, R><<<g->rows->n, GG_TILE_THREADS, JOIN_BYTES, g->stream>>>(args, 0);
	GG_CUDA_LAUNCHED("paper_join_kernel");
	return gg_ok();
}

/* The paper's join and update. */
static gg_status
paper_iteration(gnnd *g, papers_update update, uint32_t *locks)
{
	join_args	args = {g->args, g->lists, locks, g->k, update};

	if (update == UPDATE_SEGMENTS)
		GG_TRY(run_segments(g, false));
	GG_SWITCH_KIND(g->rows->kind, GG_SWITCH_LENGTH(g->length,
		GG_TRY((launch_paper_join<KIND, R>(g, args)))));
	if (update == UPDATE_SEGMENTS)
		GG_TRY(run_segments(g, true));
	GG_CUDA_TRY(cudaStreamSynchronize(g->stream));
	return gg_ok();
}

gg_status
papers_gnnd(papers_update update, const gg_cuda_rows *rows, uint32_t length, uint32_t k,
			uint32_t iterations, uint64_t seed, const uint32_t *order, cudaStream_t stream,
			uint64_t *lists, papers_after after, void *ctx)
{
	gg_cuda_buffer<uint32_t> locks;
	unsigned long long changed;
	gnnd		g = {};
	double		seconds = 0.0;

	g.rows = rows;
	g.length = length;
	g.k = k;
	g.iterations = iterations;
	g.lists = lists;
	g.stream = stream;
	GG_TRY(gg_cuda_gnnd_begin(&g, SAMPLES, order, NULL));
	GG_TRY(locks.allocate((uint64_t) rows->n * (length / 32)));
	GG_CUDA_TRY(cudaMemsetAsync(locks.get(), 0, locks.bytes(), stream));
	GG_CUDA_TRY(cudaStreamSynchronize(stream));
	for (uint32_t iteration = 0; iteration < iterations; iteration++)
	{
		const double begin = now_s();

		g.args.seed = gg_mix((uint32_t) seed + iteration * 0x632BE5ABu);
		g.args.summary_seed = gg_mix(g.args.seed);
		if (update == UPDATE_OURS)
			GG_TRY(gg_cuda_gnnd_summaries(&g));
		GG_TRY(gg_cuda_gnnd_sample(&g));
		if (update == UPDATE_OURS)
		{
			GG_TRY(gg_cuda_gnnd_join(&g, iteration));
			GG_TRY(gg_cuda_gnnd_update(&g, &changed));
		}
		else
			GG_TRY(paper_iteration(&g, update, locks.get()));
		seconds += now_s() - begin;
		after(ctx, iteration + 1, seconds);
	}
	return gg_ok();
}
