/*
 * counters.h
 *		What is counted of devices and of indexes, and histograms of times and sizes.
 */
#ifndef GG_COUNTERS_H
#define GG_COUNTERS_H

#include "service/shared/service.h"

#include "port/atomics.h"
#include "utils/timestamp.h"

/* A histogram's buckets are powers of two: of microseconds (times) or queries (batches). */
#define GG_HISTOGRAM_BUCKETS 32
/* For times: four buckets per power of two, so that percentiles are off by a quarter at most. */
#define GG_TIME_BUCKETS		(4 * GG_HISTOGRAM_BUCKETS)

/* The device's worker alone writes this struct; a reader may see a count that is a moment old. */
typedef struct GgDeviceStats
{
	uint64		queries;
	uint64		batches;
	uint64		batch_sizes[GG_HISTOGRAM_BUCKETS];	/* bucket i: [2^i, 2^(i+1)) */
	uint64		queue_us[GG_TIME_BUCKETS];	/* posted to submitted; see GgTimeAdd() */
	uint64		kernel_us[GG_TIME_BUCKETS]; /* submitted to answered */
	uint64		abandoned;
	uint64		failed;
	uint64		loads;
	uint64		refreshes;
	uint64		evictions;
	uint64		failed_loads;
	uint64		merges;			/* graphs built here for merges */
	double		merge_seconds;	/* that graphs for merges took */
	/* gpugraph_stat_reset() zeroes only what lies before restarts */
	uint64		restarts;
	TimestampTz started;		/* of the live worker */
	TimestampTz last_error_at;
	char		last_error[256];
	char		name[64];
	uint64		total_bytes;
	uint64		resident_bytes;
	TimestampTz reset_at;
} GgDeviceStats;

/* The bucket of a time, by its highest bit and the two below; times 0 to 3 have buckets 0 to 3. */
static inline int
GgTimeBucket(uint64 us)
{
	int			octave = us < 4 ? 1 : 63 - __builtin_clzll(us);
	int			bucket = us < 4 ? (int) us : 4 * (octave - 1) + (int) ((us >> (octave - 2)) & 3);

	return Min(bucket, GG_TIME_BUCKETS - 1);
}

/* Upper bound of a bucket's times. */
static inline uint64
GgTimeBucketEnd(int bucket)
{
	return bucket < 4 ? (uint64) bucket + 1 : (uint64) (5 + bucket % 4) << (bucket / 4 - 1);
}

static inline void
GgTimeAdd(uint64 *histogram, uint64 us)
{
	histogram[GgTimeBucket(us)]++;
}

static inline void
GgHistogramAdd(uint64 *histogram, uint64 value)
{
	int			bucket = value == 0 ? 0 : 63 - __builtin_clzll(value);

	histogram[bucket < GG_HISTOGRAM_BUCKETS ? bucket : GG_HISTOGRAM_BUCKETS - 1]++;
}

/*
 * Queries are counted by index, for indexes of all databases (stat.c).  There are twice as many
 * places as a device has entries of residents (IndexSlots()), but no fewer than this.
 */
#define GG_LEAST_INDEX_SLOTS	1024

typedef struct GgIndexCounters
{
	pg_atomic_uint64 key;		/* database << 32 | relation; 0: free; see stat.c */
	pg_atomic_uint64 queries[GG_NREASONS];
	pg_atomic_uint64 rows;
} GgIndexCounters;

typedef struct GgIndexStats
{
	pg_atomic_uint64 resets;
	GgIndexCounters others;
	GgIndexCounters slots[FLEXIBLE_ARRAY_MEMBER];	/* gg_service->index_slots */
} GgIndexStats;

#endif							/* GG_COUNTERS_H */
