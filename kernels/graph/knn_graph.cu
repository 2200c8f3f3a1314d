/*
 * knn_graph.cu
 *		GNND, all of it on the device, but for its start and its end (cells.cu, lists.cu).
 *
 * Wang, Zhao, Zeng, Yang: "Fast k-NN Graph Construction by GPU based NN-Descent", 2021, sections 3
 * and 4.
 *
 * One iteration
 *	summaries	One warp per row.  The row's summary is made of its list (departure 3).
 *	sample		One warp per row.  The nearest p entries flagged NEW and as many OLD ones are
 *				written to the row's samples and, reversed, to the samples of the rows they name.
 *				The NEW ones lose the flag.
 *	local join	One block per row.  Up to 2p NEW samples are compared with up to 2p NEW and 2p OLD
 *				ones (tile.cuh).  A pair that is near enough is offered to both rows.  Above p = 32
 *				five blocks share a row: each has two groups of 64 samples.
 *	update		One warp per row.  What was offered to the row is merged into its list.
 * The host reads one counter, the entries that changed.
 *
 * Departures from the paper
 *	1. Lists come from pivot cells (cells.cu), so an iteration or two do.  The paper's random start
 *	   is gg_cuda_random_lists().
 *	2. No locks.  A row has OFFERS slots.  An offer goes to the slot that its id hashes to, by
 *	   atomicMin on (distance, id).  A minimum does not depend on who comes first, so the graph is
 *	   the same in every run.  Reverse samples likewise: a slot keeps the smallest of a bijective
 *	   hash of the ids.
 *	3. An offer is made only for a pair that the list does not hold.  Each row has a summary
 *	   of 64 or 128 bytes: a bit set of its list's ids, the distance of its last entry, its norm.
 *	   With lists that are 95% right most near pairs are known, and would take every slot from the
 *	   few that are not.  The bit set takes 13% of the unknown pairs for known at k = 64.  Its
 *	   hash has another seed in every iteration, so each iteration misses other pairs.  With one
 *	   seed the same pairs would be kept out until an id leaves the list.
 *	4. Selective update keeps the nearest of each 32 x 32 tile of a warp, for each row and column,
 *	   not of the whole join.  It needs no exchange between warps and makes up to 4 offers per row.
 *
 * Bytes per iteration: n x 128 x (row + summary) are gathered, 40 GB at 1M x 128, 204 GB at 1M x
 * 768.  Rows are joined in the order of their cells, so part of that comes from L2.
 *
 * Tried: the paper's locks, one per list, a warp inserting offer after offer.  At 1M x 128 two
 * iterations with the last distances took 77 ms instead of 66, and from a random start an iteration
 * took 122 ms instead of 28.  recall@10 was 0.001 higher there and the same from cells, and the
 * graph was another one in every run.
 *
 * Tried: one join kernel for every p, its groups not known when it is compiled: 1.05 times as long
 * at p = 32.  With p = 42 and 64 an iteration takes 2.4 times as long, and six of them find 0.001
 * to 0.002 more (RESULTS.md).
 *
 * Oracle: exact neighbours by recall (test_cuda_build.c).
 */
#include "gnnd.cuh"
#include "rank.cuh"
#include "tile.cuh"

#define GROUP 64				/* samples of one age that a block compares: 2p, or half of them */
static_assert(4 * GG_MAX_SAMPLES == GG_TILE_THREADS, "a thread has a sample");
static_assert(GROUP == 2 * GG_NARROW_SAMPLES && GROUP == GG_MAX_SAMPLES, "one group or two");
#define OFFERS 32				/* slots per row */
#define MAX_SUMMARY_WORDS 32
#define STAGES 3
#define STAGE_BYTES (GG_TILE_COLUMNS * GG_TILE_PITCH)

/*
 * Iterations stop when fewer than this share of all list places changed.  From cells the first
 * leaves off at a larger share than later ones: one does for most data, hashed text takes more.
 * Of 1M x 100 with an intrinsic dimension of 29, 4.8% change in the first; a second makes k-NN
 * recall@10 0.992 of 0.982, and searches are the same (RESULTS.md, "Algorithms and merges").
 * Merges from cells make two at least, for their lists have fewer new places to fill.
 * From random lists 1M x 128 stops after 8 iterations, at a recall@10 of 0.9997 in 0.28 s; a share
 * of 0.001 made it 10, 0.9998 and 0.31 s.  Without clusters it is 8, 0.9980 and 0.28 s instead of
 * 11, 0.9986 and 0.33 s.
 * The CPU engine makes at least two from cells.  From random lists it takes 30 iterations at most,
 * and a share of 0.002.
 */
#define CELLS_ITERATIONS 12
#define RANDOM_ITERATIONS 20
#define FIRST_TERMINATION 0.06f	/* from cells */
#define TERMINATION 0.03f

/* ---- summaries --------------------------------------------------------------------- */

/* words - 2 of bit set, then the last entry's distance, then the norm */
static uint32_t
summary_words(uint32_t k)
{
	return k <= 64 ? 16 : MAX_SUMMARY_WORDS;
}

__device__ static inline uint32_t
summary_bit(uint32_t id, uint32_t words, uint32_t seed)
{
	return __umulhi(gg_mix(id ^ seed), (words - 2) * 32);
}

/* A warp writes one row's summary. */
template <int R>
static __global__ void
summaries_kernel(gg_cuda_rows rows, const uint64_t *lists, uint32_t k, uint32_t words,
				 uint32_t seed, uint32_t first, uint32_t *summaries)
{
	__shared__ uint32_t scratches[8][MAX_SUMMARY_WORDS];
	uint32_t   *scratch = scratches[threadIdx.x / 32];
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t row = first + blockIdx.x * 8 + threadIdx.x / 32;
	const uint64_t *list = lists + (uint64_t) row * (32 * R);

	if (row >= rows.n)
		return;
	scratch[lane] = 0;
	__syncwarp();
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		const uint64_t key = list[r * 32 + lane];

		if (key != GG_KEY_NONE)
		{
			const uint32_t bit = summary_bit(gg_key_id(key), words, seed);

			atomicOr(&scratch[bit / 32], 1u << (bit & 31));
		}
	}
	if (lane == 0)
	{
		/* an empty slot: anything is nearer */
		const uint64_t last = list[k - 1];

		scratch[words - 2] = last == GG_KEY_NONE ? 0x7F800000u : (uint32_t) (last >> 32);
		scratch[words - 1] = __float_as_uint(rows.norms[row]);
	}
	__syncwarp();
	if (lane < words)
		summaries[(uint64_t) row * words + lane] = scratch[lane];
}

/* ---- sample ---------------------------------------------------------------------- */

/*
 * Samples of one age are `span` words per row, GROUP or twice as many: in the first half ids of its
 * own list, in the second one scrambled ids of rows that sampled this one; p of each are used.
 */
typedef struct sample_args
{
	uint32_t	n;
	uint32_t	p;
	uint32_t	span;
	uint32_t	seed;
	uint64_t   *lists;
	uint32_t   *fresh;			/* n x span, as old */
	uint32_t   *old;
} sample_args;

template <int R>
static __global__ void
sample_kernel(const sample_args args, uint32_t first)
{
	const uint32_t n = args.n;
	const uint32_t p = args.p;
	const uint32_t span = args.span;
	const uint32_t seed = args.seed;
	const uint32_t row = first + blockIdx.x * 8 + threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;
	uint32_t	nfresh = 0;
	uint32_t	nold = 0;

	if (row >= n)
		return;
#pragma unroll
	for (int r = 0; r < R; r++)
	{
		uint64_t   *entry = &args.lists[(uint64_t) row * (32 * R) + r * 32 + lane];
		const uint64_t key = *entry;
		const bool	used = gg_key_id(key) < n;
		const bool	is_fresh = used && (key & GG_KEY_NEW) != 0;
		const bool	is_old = used && !is_fresh;
		const uint32_t fresh_mask = __ballot_sync(GG_FULL_WARP, is_fresh);
		const uint32_t old_mask = __ballot_sync(GG_FULL_WARP, is_old);
		const uint32_t below = (1u << lane) - 1;
		const uint32_t at = is_fresh ? nfresh + __popc(fresh_mask & below) :
			nold + __popc(old_mask & below);

		nfresh += __popc(fresh_mask);
		nold += __popc(old_mask);
		if (used && at < p)
		{
			const uint32_t id = gg_key_id(key);
			uint32_t   *samples = is_fresh ? args.fresh : args.old;

			samples[(uint64_t) row * span + at] = id;
			/* the slot must not depend on the order of arrival, nor be the same each iteration */
			atomicMin(&samples[(uint64_t) id * span + span / 2 + gg_mix(row ^ ~seed) % p],
					  scramble(row, seed));
			if (is_fresh)
				*entry = key & ~GG_KEY_NEW;
		}
	}
}

/* ---- local join ------------------------------------------------------------------- */

__device__ static inline void
offer(const local_args &args, uint32_t row, uint32_t id, uint64_t best)
{
	const uint32_t slot = gg_mix(id * 0x85EBCA6Bu) % OFFERS;

	atomicMin((unsigned long long *) &args.offers[(uint64_t) row * OFFERS + slot],
			  (unsigned long long) ((best & 0xFFFFFFFF00000000ull) | (uint64_t) id <<
									1 | GG_KEY_NEW));
}

/*
 * What a block compares of a row's samples: one group of 64 NEW ones with another group, and with
 * itself where `itself` says so.  Groups 0 and 1 are NEW samples, 2 and 3 OLD ones.  WIDE is for
 * more than GG_NARROW_SAMPLES; else groups 1 and 3 are empty, and one job does all.
 */
typedef struct local_job
{
	uint32_t	left;
	uint32_t	right;
	bool		itself;
} local_job;

#define WIDE_JOBS 5

template <bool WIDE>
static __device__ __forceinline__ local_job
local_job_of(uint32_t job)
{
	if (!WIDE)
		return {0, 2, true};
	switch (job)
	{
		case 0:
			return {0, 1, true};
		case 1:
			return {1, 2, true};
		case 2:
			return {0, 2, false};
		case 3:
			return {0, 3, false};
		default:
			return {1, 3, false};
	}
}

/*
 * A block's shared memory.  A sample has a place: 0 .. 63 in the left group, 64 .. 127 in the right
 * one, packed to the front of each.
 *
 *	dynamic		stages x 16,384		a chunk of the row at each place (tile.cuh)
 *				128 x words x 4		summaries, by place
 *	static		1,296 or 1,824		local_samples
 *				128					parts, by place, where there are any
 */
template <bool WIDE>
struct local_samples
{
	static constexpr uint32_t SPAN = WIDE ? 2 * GROUP : GROUP;

	alignas(16) uint32_t raw[2 * SPAN]; /* before they are packed: all NEW ones, all OLD ones */
	uint32_t	ids[2 * GROUP];
	uint32_t	packed[2 * SPAN / 32];	/* that each of the warps has kept of its 32 */
	uint16_t	bits[2 * GROUP];	/* summary_bit() of the id */
};

/* What the threads of a block have in common. */
struct local_block
{
	char	   *stages;
	uint32_t   *summaries;
	uint32_t   *ids;			/* of local_samples */
	uint16_t   *bits;
	uint8_t    *parts;
	local_job	job;
	uint32_t	nleft;
	uint32_t	nright;
};

static __device__ __forceinline__ bool
local_present(const local_block &block, uint32_t place)
{
	return place < GROUP ? place < block.nleft : place - GROUP < block.nright;
}

/* Samples in a group, when nfresh NEW and nold OLD ones are packed. */
static __device__ __forceinline__ uint32_t
local_group_size(uint32_t group, uint32_t nfresh, uint32_t nold)
{
	const uint32_t before = group % 2 * GROUP;
	const uint32_t all = group < 2 ? nfresh : nold;

	return all <= before ? 0 : min(all - before, (uint32_t) GROUP);
}

/* A sample goes to its place, if the block's job has its group. */
template <bool CROSS, bool WIDE>
static __device__ __forceinline__ void
local_place(const local_args &args, const local_block &block, uint32_t id, bool old, uint32_t rank)
{
	const uint32_t group = (old ? 2 : 0) + rank / GROUP;
	const bool	left = WIDE ? group == block.job.left : !old;
	const uint32_t to = (left ? 0 : GROUP) + rank % GROUP;

	if (WIDE && !left && group != block.job.right)
		return;
	block.ids[to] = id;
	block.bits[to] = (uint16_t) summary_bit(id, args.words, args.summary_seed);
	if (CROSS)
		block.parts[to] = args.parts[id];
}

/* Read the row's samples, drop duplicates, pack.  A barrier is due before they are looked at. */
template <bool CROSS, bool WIDE>
static __device__ __forceinline__ void
local_pack(const local_args &args, uint32_t row, local_samples<WIDE> *samples, local_block &block)
{
	constexpr uint32_t SPAN = local_samples<WIDE>::SPAN;
	const uint32_t tid = threadIdx.x;
	const uint32_t lane = tid & 31;
	const uint32_t warp = tid / 32;
	const bool	old = tid >= SPAN;
	uint32_t	id = NO_SAMPLE;
	uint32_t	rank = 0;
	uint32_t	counts[2] = {0, 0};
	bool		valid = false;

	if (tid < 2 * SPAN)
	{
		id = (old ? args.old : args.fresh)[(uint64_t) row * SPAN + tid % SPAN];
		if (tid % SPAN >= SPAN / 2 && id != NO_SAMPLE)
			id = unscramble(id, args.seed);
		samples->raw[tid] = id;
	}
	__syncthreads();
	if (tid < 2 * SPAN)
	{
		valid = id != NO_SAMPLE;
		for (uint32_t i = 0; i < tid; i += 4)
		{
			const uint4 four = *(const uint4 *) &samples->raw[i];

			valid &= four.x != id;
			valid &= four.y != id || i + 1 >= tid;
			valid &= four.z != id || i + 2 >= tid;
			valid &= four.w != id || i + 3 >= tid;
		}
		const uint32_t mask = __ballot_sync(GG_FULL_WARP, valid);

		if (lane == 0)
			samples->packed[warp] = __popc(mask);
		rank = __popc(mask & gg_lanes_below(lane));
	}
	__syncthreads();
#pragma unroll
	for (uint32_t i = 0; i < 2 * SPAN / 32; i++)
	{
		const bool	of_old = i >= SPAN / 32;

		if (i < warp && of_old == old)
			rank += samples->packed[i];
		counts[of_old] += samples->packed[i];
	}
	if (tid < 2 * SPAN && valid)
		local_place<CROSS, WIDE>(args, block, id, old, rank);
	block.nleft = WIDE ? local_group_size(block.job.left, counts[0], counts[1]) : counts[0];
	block.nright = WIDE ? local_group_size(block.job.right, counts[0], counts[1]) : counts[1];
}

/* Copies a chunk of rows to its stage; source: the thread's quad of row tid / 8 + 32 i, or NULL. */
static __device__ __forceinline__ void
local_load(const local_args &args, const local_block &block, const char *const (&source)[4],
		   uint32_t chunk)
{
	const uint32_t quad = threadIdx.x & 7;

	/* of chunks beyond the last one no quad is left */
	if (chunk * GG_TILE_QUADS + quad < args.rows.quads)
	{
		char	   *stage = block.stages + chunk % STAGES * STAGE_BYTES;

#pragma unroll
		for (int i = 0; i < 4; i++)
			if (source[i] != NULL)
				gg_copy_async(stage + gg_tile_offset(threadIdx.x / 8 + 32 * i, quad),
							  source[i] + (uint64_t) chunk * GG_TILE_PITCH);
	}
	gg_copy_commit();
}

static __device__ __forceinline__ void
local_load_summaries(const local_args &args, const local_block &block)
{
	const uint32_t quads = args.words / 4;

	for (uint32_t i = threadIdx.x; i < 2 * GROUP * quads; i += GG_TILE_THREADS)
	{
		const uint32_t place = i / quads;

		if (local_present(block, place))
			((uint4 *) block.summaries)[i] =
				((const uint4 *) args.summaries)[(uint64_t) block.ids[place] * quads +
												 i % quads];
	}
}

/*
 * Makes the sums of all pairs; a warp that is not busy has none, and only loads.  The rows come by
 * cp.async, the summaries beside them.
 */
template <gg_cuda_kind KIND>
static __device__ __forceinline__ void
local_measure(const local_args &args, const local_block &block, bool busy, gg_tile_sums &sums)
{
	const uint32_t tid = threadIdx.x;
	const uint32_t quads = args.rows.quads;
	const uint32_t nchunks = (quads + GG_TILE_QUADS - 1) / GG_TILE_QUADS;
	const char *source[4];

#pragma unroll
	for (int i = 0; i < 4; i++)
	{
		const uint32_t place = tid / 8 + 32 * i;

		source[i] = local_present(block, place) ? args.rows.rows +
			(uint64_t) block.ids[place] * quads * 16 + (tid & 7) * 16 : NULL;
	}
	local_load(args, block, source, 0);
	local_load(args, block, source, 1);
	local_load_summaries(args, block);
	gg_tile_clear(sums);
	for (uint32_t chunk = 0; chunk < nchunks; chunk++)
	{
		const char *stage = block.stages + chunk % STAGES * STAGE_BYTES;

		gg_copy_wait<STAGES - 2>();
		__syncthreads();
		local_load(args, block, source, chunk + STAGES - 1);
		if (busy)
			gg_tile_add<KIND>(sums, stage, stage,
							  min(quads - chunk * GG_TILE_QUADS, (uint32_t) GG_TILE_QUADS),
							  tid / 32 & 1, tid / 64);
	}
	gg_copy_wait<0>();
}

/* Of the thread's pairs the nearest unknown one of each row and each column: distance, place. */
template <gg_cuda_kind KIND, bool CROSS>
static __device__ __forceinline__ void
local_select(const local_args &args, const local_block &block, const gg_tile_sums &sums,
			 uint64_t (&best_of_row)[4], uint64_t (&best_of_column)[8])
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t wm = threadIdx.x / 32 & 1;
	const uint32_t wn = threadIdx.x / 64;
	const uint32_t words = args.words;
	const bool	diagonal = wm == wn;

#pragma unroll
	for (int i = 0; i < 4; i++)
		best_of_row[i] = GG_KEY_NONE;
#pragma unroll
	for (int j = 0; j < 8; j++)
	{
		const uint32_t c = wn * 32 + j / 2 * 8 + lane % 4 * 2 + j % 2;

		best_of_column[j] = GG_KEY_NONE;
		if (!local_present(block, c))
			continue;
		const uint32_t *summary_c = block.summaries + c * words;
		const float last_c = __uint_as_float(summary_c[words - 2]);
		const float norm_c = __uint_as_float(summary_c[words - 1]);
		const uint32_t bit_c = block.bits[c];

#pragma unroll
		for (int i = 0; i < 4; i++)
		{
			const uint32_t r = wm * 32 + i * 8 + lane / 4;

			if (r >= block.nleft || (diagonal && r == c))
				continue;
			if (CROSS && block.parts[r] == block.parts[c] && block.parts[c] != 0)
				continue;
			const uint32_t *summary_r = block.summaries + r * words;
			const float distance = gg_tile_distance<KIND>(sums[i / 2][j / 2][i % 2 * 2 + j % 2],
														  __uint_as_float(summary_r[words - 1]),
														  norm_c);

			if (distance < __uint_as_float(summary_r[words - 2]) &&
				(summary_r[bit_c / 32] >> (bit_c & 31) & 1) == 0)
				best_of_row[i] = lower(best_of_row[i],
									   (uint64_t) __float_as_uint(distance) << 32 | c);
			if (!diagonal && distance < last_c)
			{
				const uint32_t bit_r = block.bits[r];

				if ((summary_c[bit_r / 32] >> (bit_r & 31) & 1) == 0)
					best_of_column[j] = lower(best_of_column[j],
											  (uint64_t) __float_as_uint(distance) << 32 | r);
			}
		}
	}
}

/* What a warp has selected is offered: to its rows, and off the diagonal to its columns. */
static __device__ __forceinline__ void
local_offer(const local_args &args, const uint32_t *ids, const uint64_t (&best_of_row)[4],
			const uint64_t (&best_of_column)[8])
{
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t wm = threadIdx.x / 32 & 1;
	const uint32_t wn = threadIdx.x / 64;

#pragma unroll
	for (int i = 0; i < 4; i++)
	{
		uint64_t	best = best_of_row[i];

		best = lower(best, __shfl_xor_sync(GG_FULL_WARP, best, 1));
		best = lower(best, __shfl_xor_sync(GG_FULL_WARP, best, 2));
		if (lane % 4 == 0 && best != GG_KEY_NONE)
			offer(args, ids[wm * 32 + i * 8 + lane / 4], ids[(uint32_t) best], best);
	}
	if (wm == wn)
		return;
#pragma unroll
	for (int j = 0; j < 8; j++)
	{
		uint64_t	best = best_of_column[j];

		best = lower(best, __shfl_xor_sync(GG_FULL_WARP, best, 4));
		best = lower(best, __shfl_xor_sync(GG_FULL_WARP, best, 8));
		best = lower(best, __shfl_xor_sync(GG_FULL_WARP, best, 16));
		if (lane < 4 && best != GG_KEY_NONE)
			offer(args, ids[wn * 32 + j / 2 * 8 + lane * 2 + j % 2], ids[(uint32_t) best], best);
	}
}

/* CROSS: only what is of two parts; see gg_cuda_parts.  WIDE: WIDE_JOBS blocks share a row. */
template <gg_cuda_kind KIND, bool CROSS, bool WIDE>
static __global__ void __launch_bounds__(GG_TILE_THREADS, gg_cuda_halves(KIND) ? 4 : 2)
local_join_kernel(local_args args, uint32_t first)
{
	typedef local_samples<WIDE> samples_of_row;
	extern __shared__ char shared[];
	__shared__ samples_of_row samples;
	__shared__ uint8_t parts[CROSS ? 2 * GROUP : 1];
	const uint32_t wm = threadIdx.x / 32 & 1;
	const uint32_t wn = threadIdx.x / 64;
	const uint32_t at = first + (WIDE ? blockIdx.x / WIDE_JOBS : blockIdx.x);
	local_block block;
	gg_tile_sums sums;
	uint64_t	best_of_row[4];
	uint64_t	best_of_column[8];
	uint32_t	row;

	if (at >= args.rows.n)
		return;
	row = args.order != NULL ? args.order[at] : at;
	if (row >= args.rows.n)
		return;

	block.stages = shared;
	block.summaries = (uint32_t *) (shared + args.stages * STAGE_BYTES);
	block.ids = samples.ids;
	block.bits = samples.bits;
	block.parts = parts;
	block.job = local_job_of<WIDE>(blockIdx.x % WIDE_JOBS);
	local_pack<CROSS, WIDE>(args, row, &samples, block);
	if (block.nleft == 0 || (block.nright == 0 && !block.job.itself))
		return;					/* the same for the whole block */
	__syncthreads();

	/* of left x left the block below the diagonal is the one above it, turned */
	const uint32_t columns = wn >= 2 ? block.nright : block.job.itself ? block.nleft : 0;
	const bool	busy = wm * 32 < block.nleft && (wn & 1) * 32 < columns && !(wm == 1 && wn == 0);

	local_measure<KIND>(args, block, busy, sums);
	if (!busy)
		return;					/* no barrier follows */
	local_select<KIND, CROSS>(args, block, sums, best_of_row, best_of_column);
	local_offer(args, samples.ids, best_of_row, best_of_column);
}

/* ---- update ------------------------------------------------------------------------ */

/*
 * Merge each row's offers into its list and take them back; entries that came in are added to
 * *updates.  Offers are never in the list already, so those have come in that are no later
 * than entry k of the merged list.
 */
template <int R>
static __global__ void
update_kernel(uint32_t n, uint64_t *lists, uint32_t k, uint64_t *offers, uint32_t first,
			  unsigned long long *updates)
{
	__shared__ uint64_t buffers[8][64];
	__shared__ uint32_t changed;
	const uint32_t warp = threadIdx.x / 32;
	const uint32_t lane = threadIdx.x & 31;
	const uint32_t row = first + blockIdx.x * 8 + warp;

	if (threadIdx.x == 0)
		changed = 0;
	__syncthreads();
	if (row < n)
	{
		const uint64_t key = offers[(uint64_t) row * OFFERS + lane];
		const uint32_t mask = __ballot_sync(GG_FULL_WARP, key != GG_KEY_NONE);

		if (mask != 0)
		{
			uint64_t   *list = lists + (uint64_t) row * (32 * R);

			if (key != GG_KEY_NONE)
				buffers[warp][__popc(mask & gg_lanes_below(lane))] = key;
			offers[(uint64_t) row * OFFERS + lane] = GG_KEY_NONE;
			__syncwarp();
			gg_merge<R>(list, buffers[warp], __popc(mask));
			const uint32_t in = __ballot_sync(GG_FULL_WARP, key != GG_KEY_NONE &&
											  key <= list[k - 1]);

			if (lane == 0)
				atomicAdd(&changed, __popc(in));
		}
	}
	__syncthreads();
	if (threadIdx.x == 0 && changed != 0)
		atomicAdd(updates, (unsigned long long) changed);
}

/* ---- iterations ---------------------------------------------------------- */

gg_status
gg_cuda_gnnd_begin(gnnd *g, uint32_t p, const uint32_t *order, gg_cuda_meter *meter)
{
	const gg_cuda_rows *rows = g->rows;
	const uint32_t n = rows->n;
	const uint32_t words = summary_words(g->k);
	const uint32_t chunks = (rows->quads + GG_TILE_QUADS - 1) / GG_TILE_QUADS;

	g->p = p;
	g->span = gg_cuda_sample_words(p);
	GG_TRY(g->pace.create());
	GG_TRY(gg_cuda_allocate_large(&g->fresh, (uint64_t) n * g->span, g->control, meter));
	GG_TRY(gg_cuda_allocate_large(&g->old, (uint64_t) n * g->span, g->control, meter));
	GG_TRY(gg_cuda_allocate_large(&g->summaries, (uint64_t) n * words, g->control, meter));
	GG_TRY(gg_cuda_allocate_large(&g->offers, (uint64_t) n * OFFERS, g->control, meter));
	GG_TRY(g->updates.allocate(1, meter));
	g->args.rows = *rows;
	g->args.order = order;
	g->args.fresh = g->fresh.get();
	g->args.old = g->old.get();
	g->args.summaries = g->summaries.get();
	g->args.offers = g->offers.get();
	g->args.words = words;
	g->args.stages = chunks < STAGES ? chunks : STAGES;
	GG_CUDA_TRY(cudaMemsetAsync(g->offers.get(), 0xFF, g->offers.bytes(), g->stream));
	return g->pace.step(g->stream, g->control, __func__);
}

gg_status
gg_cuda_gnnd_summaries(gnnd *g)
{
	const uint32_t n = g->rows->n;
	const uint64_t step = gg_cuda_cut(GG_PASS_ROWS, g->control);

	GG_SWEEP(n, step, *g, g->pace, "summaries_kernel",
		GG_SWITCH_LENGTH(g->length,
			(summaries_kernel<R><<<gg_cuda_blocks(count, 8), 256, 0, g->stream>>>
			 (*g->rows, g->lists, g->k, g->args.words, g->args.summary_seed, (uint32_t) first,
			  g->summaries.get()))));
	return gg_ok();
}

gg_status
gg_cuda_gnnd_sample(gnnd *g)
{
	const uint32_t n = g->rows->n;
	const uint64_t step = gg_cuda_cut(GG_PASS_ROWS, g->control);
	const sample_args args = {
		.n = n, .p = g->p, .span = g->span, .seed = g->args.seed, .lists = g->lists,
		.fresh = g->fresh.get(), .old = g->old.get()
	};

	GG_CUDA_TRY(cudaMemsetAsync(g->fresh.get(), 0xFF, g->fresh.bytes(), g->stream));
	GG_TRY(g->pace.step(g->stream, g->control, __func__));
	GG_CUDA_TRY(cudaMemsetAsync(g->old.get(), 0xFF, g->old.bytes(), g->stream));
	GG_CUDA_TRY(cudaMemsetAsync(g->updates.get(), 0, g->updates.bytes(), g->stream));
	GG_TRY(g->pace.step(g->stream, g->control, __func__));
	GG_SWEEP(n, step, *g, g->pace, "sample_kernel",
		GG_SWITCH_LENGTH(g->length,
			(sample_kernel<R><<<gg_cuda_blocks(count, 8), 256, 0, g->stream>>>
			 (args, (uint32_t) first))));
	return gg_ok();
}

template <gg_cuda_kind KIND, bool CROSS, bool WIDE>
static gg_status
launch_join(const gnnd *g, uint32_t first, uint32_t count, uint32_t shared)
{
	const uint32_t blocks = WIDE ? count * WIDE_JOBS : count;

	GG_CUDA_TRY(cudaFuncSetAttribute(local_join_kernel<KIND, CROSS, WIDE>,
									 cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
	local_join_kernel<KIND, CROSS, WIDE><<<blocks, GG_TILE_THREADS, shared, g->stream>>>
		(g->args, first);
	GG_CUDA_LAUNCHED("local_join_kernel");
	return gg_ok();
}

gg_status
gg_cuda_gnnd_join(gnnd *g, uint32_t iteration)
{
	const gg_cuda_rows *rows = g->rows;
	const uint64_t n = rows->n;
	const bool	wide = g->span > GROUP;
	const uint32_t shared = g->args.stages * STAGE_BYTES + 2 * GROUP * g->args.words * 4;
	/* a launch: 20 ms at 1 TB/s of gathered rows, or at 5 TFLOP/s of fp32 */
	const double row_s = 128.0 * rows->quads * 16 / 1e12 +
		(gg_cuda_halves(rows->kind) ? 0.0 : 64.0 * 128 * rows->quads * 8 / 5e12);
	const double fit = 0.02 / (wide ? row_s * WIDE_JOBS : row_s);
	const uint32_t slice = (uint32_t) gg_cuda_cut(fit > 1e7 ? 10000000 : fit < 264 ? 264 :
												  (uint64_t) fit, g->control);

	for (uint64_t first = 0; first < n; first += slice)
	{
		const uint32_t count = gg_cuda_slice(n, first, slice);

		GG_SWITCH_KIND(rows->kind, GG_TRY(g->args.parts != NULL ?
			(wide ? launch_join<KIND, true, true>(g, (uint32_t) first, count, shared) :
			 launch_join<KIND, true, false>(g, (uint32_t) first, count, shared)) :
			(wide ? launch_join<KIND, false, true>(g, (uint32_t) first, count, shared) :
			 launch_join<KIND, false, false>(g, (uint32_t) first, count, shared))));
		GG_TRY(g->pace.step(g->stream, g->control, __func__));
		gg_cuda_progress(g->control, GG_PHASE_KNN_DESCENT, n * iteration + first,
						 n * g->iterations);
	}
	return gg_ok();
}

/* *changed: entries that came into the lists. */
gg_status
gg_cuda_gnnd_update(gnnd *g, unsigned long long *changed)
{
	const uint32_t n = g->rows->n;
	const uint64_t step = gg_cuda_cut(GG_PASS_ROWS, g->control);

	GG_SWEEP(n, step, *g, g->pace, "update_kernel",
		GG_SWITCH_LENGTH(g->length,
			(update_kernel<R><<<gg_cuda_blocks(count, 8), 256, 0, g->stream>>>
			 (n, g->lists, g->k, g->offers.get(), (uint32_t) first, g->updates.get()))));
	GG_CUDA_TRY(cudaMemcpyAsync(changed, g->updates.get(), sizeof(*changed),
								cudaMemcpyDeviceToHost, g->stream));
	GG_CUDA_TRY(cudaStreamSynchronize(g->stream));
	return gg_cuda_check_cancel(g->control, __func__);
}

/* The share of places that an iteration has to change for another one to follow. */
static double
termination(const gg_build_params *params, const gg_cuda_parts *parts, uint32_t iteration)
{
	const bool	random = params->init == GG_INIT_RANDOM;

	if (iteration == 0 && (random || parts != NULL || params->termination_threshold > 0.0f))
		return 0;
	if (params->termination_threshold > 0.0f)
		return params->termination_threshold;
	return iteration == 0 ? FIRST_TERMINATION : TERMINATION;
}

gg_status
gg_cuda_gnnd(const gg_cuda_rows *rows, const gg_cuda_lists &lists, const gg_build_params *params,
			 const gg_cuda_parts *parts, const uint32_t *order, const gg_cuda_run &run,
			 gg_build_stats *stats)
{
	const uint32_t n = rows->n;
	const bool	random = params->init == GG_INIT_RANDOM;
	const double places = (parts != NULL ? parts->share : 1.0) * n * lists.k;
	unsigned long long changed;
	gnnd		g = {};

	g.rows = rows;
	g.length = lists.length;
	g.k = lists.k;
	g.iterations = params->max_iterations != 0 ? params->max_iterations :
		random ? RANDOM_ITERATIONS : CELLS_ITERATIONS;
	g.lists = lists.keys;
	g.stream = run.stream;
	g.control = run.control;
	g.args.parts = parts != NULL ? parts->of : NULL;
	GG_TRY(gg_cuda_gnnd_begin(&g, gg_cuda_samples(params), order, run.meter));
	for (uint32_t iteration = 0; iteration < g.iterations; iteration++)
	{
		g.args.seed = gg_mix((uint32_t) params->seed + iteration * 0x632BE5ABu);
		g.args.summary_seed = gg_mix(g.args.seed);
		GG_TRY(gg_cuda_gnnd_summaries(&g));
		GG_TRY(gg_cuda_gnnd_sample(&g));
		GG_TRY(gg_cuda_gnnd_join(&g, iteration));
		GG_TRY(gg_cuda_gnnd_update(&g, &changed));
		stats->iterations = iteration + 1;
		stats->changed = (float) ((double) changed / ((double) n * lists.k));
		if (changed < termination(params, parts, iteration) * places ||
			(iteration > 0 && changed == 0))
			break;
	}
	gg_cuda_progress(run.control, GG_PHASE_KNN_DESCENT, n, n);
	return gg_cuda_give_back(run.control, __func__, g.fresh, g.old, g.summaries, g.offers);
}
