/*
 * measure.cuh
 *		Writes keys of rows to memory, finds the k-th smallest: for lists longer than exact.cu's.
 */
#ifndef GG_MEASURE_CUH
#define GG_MEASURE_CUH

#include "../common/warp.cuh"
#include "launch.cuh"
#include "query.cuh"

/* A launch's queries, side by side, and where their keys go. */
typedef struct measure_args
{
	const float *queries;
	uint32_t	nq;
	const uint32_t *filter;		/* NULL: all rows */
	uint32_t	filter_stride;	/* words from one query's bits to the next one's */
	uint32_t	first;			/* row, a multiple of 32 */
	uint32_t	end;
	uint32_t	step;			/* one word of 32 rows in so many */
	uint64_t	after;			/* keys up to it, and of rows without a bit, become GG_KEY_NONE */
	uint64_t   *keys;			/* 32 of each word that is taken, side by side */
	uint64_t	keys_stride;	/* from one query's to the next one's */
} measure_args;

/* What a warp measures of a word of 32 rows. */
struct measure_word
{
	uint32_t	bits;
	uint32_t	count;			/* bits that are set */
	uint32_t	row;			/* each of the first `count` lanes has one */
};

/* Read a word's bits; keys of rows without one, at out, become GG_KEY_NONE.  row is not set. */
static __device__ __forceinline__ measure_word
take_measure_word(const measure_args &args, const uint32_t *filter, uint32_t word, uint64_t *out,
				  uint32_t lane)
{
	const uint32_t rows = args.end - word * 32;
	const uint32_t valid = rows < 32 ? (1u << rows) - 1 : GG_FULL_WARP;
	const uint32_t bits = (filter != NULL ? __ldg(filter + word) : GG_FULL_WARP) & valid;

	if ((valid & ~bits) >> lane & 1)
		out[lane] = GG_KEY_NONE;
	return {bits, (uint32_t) __popc(bits), 0};
}

/*
 * Give each of the first count lanes a row of the word whose bit is set, so that no team idles.
 * packed: 32 words of shared memory, the warp's own.
 */
static __device__ __forceinline__ uint32_t
pack_word(uint32_t word, uint32_t bits, uint32_t count, uint32_t *packed, uint32_t lane)
{
	uint32_t	row = word * 32 + lane;

	if (count < 32)
	{
		if (bits & (1u << lane))
			packed[__popc(bits & gg_lanes_below(lane))] = row;
		__syncwarp();
		row = packed[lane];
		__syncwarp();
	}
	return row;
}

/*
 * Put aside the rows of one word whose bits are set; returns how many they are, 0 to 32.  end: of
 * the rows; word: moved on to the next one.  Most words are empty where a filter leaves few rows,
 * and after prune.cu: lanes then look at the warp's next words at once.
 */
static __device__ __forceinline__ uint32_t
take_word(const uint32_t *filter, uint32_t end, uint32_t stride, uint32_t &word, uint32_t *aside,
		  uint32_t lane)
{
	const uint32_t words = (end + 31) / 32;
	uint32_t	bits = filter != NULL ? __ldg(filter + word) : GG_FULL_WARP;

	if (word == words - 1 && (end & 31) != 0)
		bits &= (1u << (end & 31)) - 1;
	if (bits == 0)
	{
		const uint32_t next = word + lane * stride;
		const uint32_t some = __ballot_sync(GG_FULL_WARP, lane > 0 && next < words &&
											__ldg(filter + next) != 0);

		word += (some == 0 ? 32 : __ffs(some) - 1) * stride;
		return 0;
	}
	if (bits >> lane & 1)
		aside[__popc(bits & gg_lanes_below(lane))] = word * 32 + lane;
	word += stride;
	return __popc(bits);
}

#define DIGIT_BITS 11
#define BINS (1 << DIGIT_BITS)

/* State of a query's search for the k-th smallest key; all 0 before. */
typedef struct digit_state
{
	uint64_t	prefix;			/* the digits that are known */
	uint64_t	threshold;		/* if done, keys up to it are k, or all; else at least k */
	uint32_t	remaining;		/* keys still wanted of those that begin as prefix does */
	uint32_t	done;
	uint32_t	finished;		/* blocks that are done; 0 before and after a launch */
	uint32_t	taken;			/* for the caller; a launch sets it to 0 */
	uint32_t	found;			/* how many keys, if the host does not know; the caller's */
	uint32_t	counts[BINS];	/* 0 before and after a launch */
} digit_state;

extern cudaError_t search_measure_launch(const search_view *view, const measure_args *args,
										 const search_device *device, cudaStream_t stream);
extern cudaError_t search_measure_ready(const search_view *view, const search_device *device);

/* The k-th smallest key of each of some queries. */
typedef struct digit_search
{
	const uint64_t *keys;		/* count of them for each query, keys_stride apart */
	uint64_t	keys_stride;
	uint32_t	nq;
	uint32_t	count;			/* 0: as many as the query's state says */
	uint32_t	k;
	bool		exactly;		/* false: by the first digits alone, which hold the distance */
	digit_state *states;		/* nq, for the results */
} digit_search;

extern cudaError_t search_digits_launch(const digit_search *search, const search_device *device,
										cudaStream_t stream);

#endif							/* GG_MEASURE_CUH */
