/*
 * optimize.c
 *		Rank-based reordering with reverse edges.
 *
 * Ootomo et al.: "CAGRA: Highly Parallel Graph Construction and Approximate Nearest Neighbor Search
 * for GPUs", 2023, section III.B.
 *
 * Contract, which every engine keeps to the byte.  L(A) is A's k-NN list, up to its first
 * GG_NO_NODE; it holds no duplicates and not A.
 *
 *	(a) An edge of A with rank r leads to D = L(A)[r].  Its detours are the ranks b < r for which D
 *		is in the list of B = L(A)[b] at a rank s < r.  F(A) is the first `degree` edges of A by
 *		(detours, r).
 *	(b) For every A and i with F(A)[i] = D, D has the reverse candidate A with the key (i, A).  R(D)
 *		is the candidates of the `reverse` smallest keys, in their order.
 *	(c) The list of D is the sequence F(D)[0], R(D)[0], F(D)[1], R(D)[1], ... (the rest of the one
 *		where the other has ended), without D and without what came before, up to `degree`;
 *		GG_NO_NODE fills the rest.
 *
 * Departures from the paper.  As in the paper, a detour must beat the edge in both hops by rank in
 * the lists that they stand in; here ranks beyond the list (k) never count.  Reverse edges are
 * interleaved with forward ones, not merged as a fixed half.  Under inner product there are fewer
 * (gg_reverse_edges()).
 *
 * How.  (a) asks for each of the k x k neighbours of neighbours whether it is a neighbour: first a
 * small set of hashes, then a table over all nodes that holds the ranks in A's list.  (b) goes
 * through F by i, then by A, so that each R(D) comes in order and ends when it is full.  Each
 * thread does this for its own share of the D.
 */
#include "stages.h"
#include "engine/cpu/common/cpu.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/*
 * Put into found, ascending, which of the first `count` places of a list have a node that may be in
 * a set of hashes.  Returns how many.  found has room for 16 more behind the last.
 */
typedef uint32_t (*near_places_fn) (const uint32_t *list, uint32_t count, const uint32_t *set,
									uint32_t *found);

typedef struct optimize_state
{
	near_places_fn near_places;
	const uint32_t *knn;		/* n x k */
	uint32_t	n;
	uint32_t	k;
	uint32_t	degree;
	const uint32_t *order;		/* n: nodes in the order to take them, or NULL */
	uint32_t   *forward;		/* degree x n: F(A)[i] at i * n + A, GG_NO_NODE behind the last */
	uint16_t  **tables;			/* n marks for each thread, all 0 between nodes */
} optimize_state;

/* (b) and (c) */
typedef struct unite_state
{
	const uint32_t *forward;	/* degree x n, as in optimize_state */
	uint32_t	n;
	uint32_t	degree;
	uint32_t	reverse;		/* length of R(D) at most, <= degree */
	uint32_t	most;			/* edges of a list that results, >= degree */
	uint32_t   *graph;			/* n x most: R(D), then the result */
	uint16_t   *counts;			/* n: of R(D) */
	uint16_t  **tables;			/* as in optimize_state */
	uint32_t	shares;			/* into which (b) cuts the nodes */
} unite_state;

/*
 * A node's neighbours as a set of hashes: 4,096 bits, in which a stranger passes for one of 64
 * neighbours once in 64 times.
 */
#define SET_BITS		12
#define SET_FACTOR		0x9E3779B1u
#define SET_HASH(id)	((uint32_t) ((id) * SET_FACTOR) >> (32 - SET_BITS))

static uint32_t
near_places_plain(const uint32_t *list, uint32_t count, const uint32_t *set, uint32_t *found)
{
	uint32_t	nfound = 0;

	for (uint32_t s = 0; s < count; s++)
	{
		uint32_t	hash = SET_HASH(list[s]);

		found[nfound] = s;
		nfound += set[hash / 32] >> hash % 32 & 1;
	}
	return nfound;
}

#if defined(__x86_64__)

/* A build of 100,000 x 128 spends 15% of its time on detours with this, else 20 to 25%. */
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) static uint32_t
near_places_avx512(const uint32_t *list, uint32_t count, const uint32_t *set, uint32_t *found)
{
	__m512i		places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	uint32_t	nfound = 0;

	for (uint32_t s = 0; s < count; s += 16)
	{
		__mmask16	there = count - s >= 16 ? 0xFFFF : (__mmask16) ((1u << (count - s)) - 1);
		__m512i		ids = _mm512_maskz_loadu_epi32(there, list + s);
		__m512i		products = _mm512_mullo_epi32(ids, _mm512_set1_epi32((int) SET_FACTOR));
		__m512i		hashes = _mm512_srli_epi32(products, 32 - SET_BITS);
		__m512i		words = _mm512_i32gather_epi32(_mm512_srli_epi32(hashes, 5), set, 4);
		__m512i		bits = _mm512_sllv_epi32(_mm512_set1_epi32(1),
											 _mm512_and_si512(hashes, _mm512_set1_epi32(31)));
		__mmask16	near = _mm512_mask_test_epi32_mask(there, words, bits);

		_mm512_storeu_si512(found + nfound, _mm512_maskz_compress_epi32(near, places));
		nfound += (uint32_t) __builtin_popcount(near);
		places = _mm512_add_epi32(places, _mm512_set1_epi32(16));
	}
	return nfound;
}

#endif							/* __x86_64__ */

/*
 * Count the detours of A's edges; ranks holds for each node its rank in A's list plus 1, or 0.
 *
 * Most neighbours of neighbours are no neighbours, and a look at the table for each of them would
 * leave the first-level cache each time: they are sorted out by hash first.  What passes does so
 * unpredictably: both loops count on without a branch.
 */
static void
count_detours(const optimize_state *state, const uint32_t *list, uint32_t length,
			  const uint16_t *ranks, uint32_t *detours)
{
	uint32_t	set[(1 << SET_BITS) / 32] = {0};

	for (uint32_t r = 0; r < length; r++)
	{
		set[SET_HASH(list[r]) / 32] |= 1u << SET_HASH(list[r]) % 32;
		detours[r] = 0;
	}
	for (uint32_t b = 0; b + 1 < length; b++)
	{
		const uint32_t *hop = state->knn + (size_t) list[b] * state->k;
		uint32_t	found[GG_MAX_DEGREE + 16];
		uint32_t	nfound,
					ndetours = 0;

		if (b + 3 < length)
			for (uint32_t s = 0; s < state->k; s += 16)
				__builtin_prefetch(state->knn + (size_t) list[b + 3] * state->k + s);
		nfound = state->near_places(hop, length - 1, set, found);
		/* the hop's list may end early: GG_NO_NODE passes for a neighbour at times, too */
		while (nfound > 0 && hop[found[nfound - 1]] == GG_NO_NODE)
			nfound--;
		for (uint32_t f = 0; f < nfound; f++)
		{
			uint32_t	s = found[f];
			uint16_t	rank = ranks[hop[s]];

			/* a rank r that counts is above both b and s */
			found[ndetours] = rank;
			ndetours += (uint32_t) (rank > (s > b ? s : b) + 1);
		}
		for (uint32_t f = 0; f < ndetours; f++)
			detours[found[f] - 1]++;
	}
}

static void
forward_run(gg_worker *worker, void *arg, uint64_t at)
{
	optimize_state *state = arg;
	uint16_t   *ranks = state->tables[worker->id];
	uint32_t	detours[GG_MAX_DEGREE + 1];
	size_t		node = state->order ? state->order[at] : at;
	const uint32_t *list = state->knn + node * state->k;
	uint32_t	length = 0;

	while (length < state->k && list[length] != GG_NO_NODE)
	{
		ranks[list[length]] = (uint16_t) (length + 1);
		length++;
	}
	count_detours(state, list, length, ranks, detours);
	for (uint32_t r = 0; r < length; r++)
		ranks[list[r]] = 0;

	/*
	 * insertion sort by (detours, r) of the first edges only, which are mostly in order already
	 */
	uint64_t	best[GG_MAX_DEGREE];
	uint32_t	nbest = 0;

	for (uint32_t r = 0; r < length; r++)
	{
		uint64_t	key = (uint64_t) detours[r] << 32 | r;
		uint32_t	i;

		if (nbest < state->degree)
			i = nbest++;
		else if (key < best[nbest - 1])
			i = nbest - 1;
		else
			continue;
		for (; i > 0 && best[i - 1] > key; i--)
			best[i] = best[i - 1];
		best[i] = key;
	}
	for (uint32_t i = 0; i < state->degree; i++)
		state->forward[(size_t) i * state->n + node] = i < nbest ? list[(uint32_t) best[i]] :
			GG_NO_NODE;
	gg_worker_progress(worker, 1);
}

static void
reverse_run(gg_worker *worker, void *arg, uint64_t share)
{
	unite_state *state = arg;
	uint32_t	first = (uint32_t) (share * state->n / state->shares),
				last = (uint32_t) ((share + 1) * state->n / state->shares);

	for (uint32_t i = 0; i < state->degree; i++)
	{
		const uint32_t *forward = state->forward + (size_t) i * state->n;

		for (uint32_t a = 0; a < state->n; a++)
		{
			uint32_t	d = forward[a];

			if (a % 65536 == 0 && gg_worker_stopping(worker))
				return;
			/* GG_NO_NODE is in no share */
			if (d >= first && d < last && state->counts[d] < state->reverse)
				state->graph[(size_t) d * state->most + state->counts[d]++] = a;
		}
	}
}

static void
merge_run(gg_worker *worker, void *arg, uint64_t node)
{
	unite_state *state = arg;
	uint16_t   *taken = state->tables[worker->id];
	uint32_t	reverse[GG_MAX_DEGREE];
	uint32_t   *out = state->graph + node * state->most;
	uint32_t	nreverse = state->counts[node],
				count = 0;

	memcpy(reverse, out, sizeof(uint32_t) * nreverse);
	taken[node] = 1;
	for (uint32_t i = 0; i < state->degree && count < state->most; i++)
	{
		uint32_t	next[2] = {
			state->forward[(size_t) i * state->n + node],
			i < nreverse ? reverse[i] : GG_NO_NODE
		};

		for (int side = 0; side < 2 && count < state->most; side++)
			if (next[side] != GG_NO_NODE && !taken[next[side]])
			{
				taken[next[side]] = 1;
				out[count++] = next[side];
			}
	}
	taken[node] = 0;
	for (uint32_t i = 0; i < count; i++)
		taken[out[i]] = 0;
	while (count < state->most)
		out[count++] = GG_NO_NODE;
}

static void
free_tables(uint16_t **tables, int threads)
{
	for (int t = 0; tables && t < threads; t++)
		free(tables[t]);
	free(tables);
}

/* n zeros for each thread, or NULL. */
static uint16_t **
make_tables(uint32_t n, int threads)
{
	uint16_t  **tables = calloc((size_t) threads, sizeof(*tables));

	for (int t = 0; tables && t < threads; t++)
	{
		tables[t] = calloc(n, sizeof(uint16_t));
		if (!tables[t])
		{
			free_tables(tables, threads);
			return NULL;
		}
	}
	return tables;
}

uint64_t
gg_cpu_unite_bytes(uint32_t n, int threads)
{
	return (uint64_t) n * sizeof(uint16_t) * (1 + (uint64_t) threads);
}

gg_status
gg_cpu_unite_run(gg_pool *pool, const uint32_t *forward, uint32_t n, uint32_t degree,
				 uint32_t reverse, uint32_t most, uint32_t *graph)
{
	int			threads = gg_pool_threads(pool);
	unite_state state = {.forward = forward, .n = n, .degree = degree, .reverse = reverse,
		.most = most, .graph = graph, .shares = (uint32_t) threads};
	gg_status	status = gg_ok();

	state.counts = calloc(n, sizeof(uint16_t));
	state.tables = make_tables(n, threads);
	if (!state.counts || !state.tables)
		status = gg_fail(GG_ENOMEM, __func__,
						 "out of memory for the reverse edges of %u nodes", n);
	if (status.code == GG_OK)
		status = gg_pool_each(pool, reverse_run, &state, state.shares, 1);
	if (status.code == GG_OK)
		status = gg_pool_each(pool, merge_run, &state, n, 256);
	free_tables(state.tables, threads);
	free(state.counts);
	return status;
}

uint64_t
gg_cpu_optimize_bytes(uint32_t n, uint32_t degree, int threads)
{
	return (uint64_t) n * sizeof(uint32_t) * degree + gg_cpu_unite_bytes(n, threads);
}

gg_status
gg_cpu_optimize_run(gg_pool *pool, const gg_near_lists *lists, uint32_t degree, uint32_t reverse,
					const uint32_t *order, uint32_t *graph)
{
	const uint32_t n = lists->n,
				k = lists->k;
	int			threads = gg_pool_threads(pool);
	optimize_state state = {
		.near_places = near_places_plain, .knn = lists->ids, .n = n, .k = k, .degree = degree,
		.order = order
	};
	gg_status	status = gg_ok();

#if defined(__x86_64__)
	if (gg_simd_in_use() >= GG_SIMD_AVX512)
		state.near_places = near_places_avx512;
#endif
	if (k < 1 || k > GG_MAX_DEGREE || degree < 1 || degree > GG_MAX_DEGREE)
		return gg_fail(GG_EINVAL, __func__,
					   "list length %u or degree %u is not in 1 .. %u", k, degree, GG_MAX_DEGREE);
	if (n == 0)
		return status;
	gg_pool_phase(pool, GG_PHASE_OPTIMIZE, n);
	state.forward = malloc(sizeof(uint32_t) * n * (size_t) degree);
	state.tables = make_tables(n, threads);
	if (!state.forward || !state.tables)
		status = gg_fail(GG_ENOMEM, __func__,
						 "out of memory for a graph of %u nodes, degree %u", n, degree);
	if (status.code == GG_OK)
		status = gg_pool_each(pool, forward_run, &state, n, 64);
	free_tables(state.tables, threads);
	if (status.code == GG_OK)
		status = gg_cpu_unite_run(pool, state.forward, n, degree, reverse, degree, graph);
	free(state.forward);
	return status;
}
