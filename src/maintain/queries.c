/*
 * queries.c
 *		Learning by itself: queries of indexes with the option learn_queries, and what the merge
 *		worker makes of them.
 *
 * Scans and gpugraph_search() put queries into a reservoir in shared memory, one for an index, of
 * fixed size.  Each query since the reservoir was emptied is as likely to be in it: number n takes
 * one of its places, at random, with the probability capacity / n (Vitter's algorithm R).  So a
 * query adds one to a number and draws one, and few are copied.  None waits: where somebody else is
 * at the reservoir, a query is left out.
 *
 * A reservoir that is full is due, and a scan that finds it so asks for the merge worker.  The
 * worker adds the queries to the index's sample (sample.c), in which queries at random make room.
 * It learns once the sample has enough, and then leaves the index alone for an hour.  Few queries
 * come from one reservoir, so until there are enough one reservoir follows the other.
 *
 * A reservoir is cleared by gpugraph_forget(), by the next scan once the option is off, and when it
 * is given to another index.  There are RESERVOIRS; the one that has been quiet longest goes first.
 *
 * Locks: that of a reservoir guards all of it but `seen`, and what is looked at without it is
 * looked at again under it.  The last lock is for who takes a reservoir.
 */
#include "maintain/jobs.h"
#include "engine/rules/learn.h"

#include "access/xlog.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#define RESERVOIRS			8
#define RESERVOIR_BYTES		((Size) 1024 * 1024)
#define RESERVOIR_QUERIES	1024u

/* Reservoirs make a sample of so many queries at most; a quarter of it is enough to learn from. */
#define SAMPLE_QUERIES		8192u

/* How long until the worker is asked once more. */
#define ASK_MS				60000

typedef struct Reservoir
{
	Oid			database;
	Oid			index;			/* InvalidOid: it is nobody's */
	uint32		dimensions;
	uint32		capacity;
	uint32		count;			/* of queries that are there */
	pg_atomic_uint64 seen;		/* queries since it was emptied */
	TimestampTz put;			/* when the last one was copied */
	TimestampTz rests_until;	/* the worker leaves the index alone */
	TimestampTz asked;			/* when the worker was asked last */
	float		queries[RESERVOIR_BYTES / sizeof(float)];
} Reservoir;

static Reservoir *reservoirs = NULL;
static LWLockPadded *locks;		/* of each reservoir, and one to take them by */
static int	learn_naptime = 3600;

/* ---- reservoirs --------------------------------------------------------------------------- */

static LWLock *
LockOf(const Reservoir *reservoir)
{
	return &locks[reservoir - reservoirs].lock;
}

static bool
IsOf(const Reservoir *reservoir, Oid index)
{
	return reservoir->index == index && reservoir->database == MyDatabaseId;
}

static Reservoir *
FindReservoir(Oid index)
{
	for (int i = 0; i < RESERVOIRS; i++)
		if (IsOf(&reservoirs[i], index))
			return &reservoirs[i];
	return NULL;
}

/* Its lock is held. */
static void
Clear(Reservoir *reservoir)
{
	memset(reservoir->queries, 0,
		   (Size) reservoir->count * reservoir->dimensions * sizeof(float));
	reservoir->count = 0;
	pg_atomic_write_u64(&reservoir->seen, 0);
}

/* Give an index without a reservoir a free one, or that of the index whose queries are oldest. */
static Reservoir *
TakeReservoir(Oid index, uint32 dimensions)
{
	LWLock	   *taking = &locks[RESERVOIRS].lock;
	Reservoir  *taken;

	LWLockAcquire(taking, LW_EXCLUSIVE);
	taken = FindReservoir(index);
	if (taken == NULL)
	{
		taken = &reservoirs[0];
		for (int i = 1; i < RESERVOIRS; i++)
			if (taken->index != InvalidOid &&
				(reservoirs[i].index == InvalidOid || reservoirs[i].put < taken->put))
				taken = &reservoirs[i];
		LWLockAcquire(LockOf(taken), LW_EXCLUSIVE);
		Clear(taken);
		taken->database = MyDatabaseId;
		taken->index = index;
		taken->dimensions = dimensions;
		taken->capacity = (uint32) Min(RESERVOIR_BYTES / sizeof(float) / dimensions,
									   RESERVOIR_QUERIES);
		taken->put = GetCurrentTimestamp();
		taken->rests_until = taken->asked = 0;
		LWLockRelease(LockOf(taken));
	}
	LWLockRelease(taking);
	return taken;
}

void
GgDropQueries(Oid index)
{
	Reservoir  *reservoir = reservoirs != NULL ? FindReservoir(index) : NULL;

	if (reservoir == NULL)
		return;
	LWLockAcquire(LockOf(reservoir), LW_EXCLUSIVE);
	if (IsOf(reservoir, index))
	{
		Clear(reservoir);
		reservoir->index = InvalidOid;
	}
	LWLockRelease(LockOf(reservoir));
}

/* ---- in scans ----------------------------------------------------------------------------- */

static bool
IsDue(const Reservoir *reservoir, TimestampTz now)
{
	return reservoir->count == reservoir->capacity && now >= reservoir->rests_until;
}

/* Put a query at a place.  True: the worker is to be asked. */
static bool
PutQuery(Reservoir *reservoir, Oid index, uint32 place, uint32 dimensions, const float *query)
{
	bool		ask = false;

	if (!LWLockConditionalAcquire(LockOf(reservoir), LW_EXCLUSIVE))
		return false;
	if (IsOf(reservoir, index) && reservoir->dimensions == dimensions)
	{
		TimestampTz now = GetCurrentTimestamp();

		/* queries before this one were left out */
		if (place >= reservoir->count)
			place = reservoir->count++;
		memcpy(reservoir->queries + (Size) place * dimensions, query, dimensions * sizeof(float));
		reservoir->put = now;
		ask = IsDue(reservoir, now) &&
			now >= TimestampTzPlusMilliseconds(reservoir->asked, ASK_MS);
		if (ask)
			reservoir->asked = now;
	}
	LWLockRelease(LockOf(reservoir));
	return ask;
}

/* The reservoir of an index that is to learn from what it is asked, or NULL. */
static Reservoir *
OpenReservoir(Relation index, uint32 dimensions)
{
	const GgOptions *options = (const GgOptions *) index->rd_options;
	const Oid	oid = RelationGetRelid(index);
	Reservoir  *reservoir;

	if (reservoirs == NULL || dimensions == 0)
		return NULL;
	if (options == NULL || !options->learn_queries)
	{
		GgDropQueries(oid);
		return NULL;
	}
	if (RecoveryInProgress() || RelationUsesLocalBuffers(index))
		return NULL;
	reservoir = FindReservoir(oid);
	if (reservoir == NULL)
		reservoir = TakeReservoir(oid, dimensions);
	/* the index was empty, and has rows of another number of dimensions by now */
	if (reservoir->dimensions != dimensions)
		GgDropQueries(oid);
	return reservoir;
}

void
GgNoteQueries(Relation index, uint32 dimensions, int count, GgReadQuery read, void *arg)
{
	Reservoir  *reservoir = OpenReservoir(index, dimensions);
	bool		ask = false;
	uint64		first;

	if (reservoir == NULL)
		return;
	first = pg_atomic_fetch_add_u64(&reservoir->seen, count);
	for (int i = 0; i < count; i++)
	{
		uint64		number = first + i;

		if (number >= reservoir->capacity)
			number = pg_prng_uint64_range(&pg_global_prng_state, 0, number);
		if (number < reservoir->capacity)
			ask |= PutQuery(reservoir, RelationGetRelid(index), (uint32) number, dimensions,
							read(arg, i));
	}
	if (ask)
		(void) GgRequestMerge(index, false);
}

/* ---- in the worker ------------------------------------------------------------------------ */

bool
GgQueriesAreDue(Oid index)
{
	Reservoir  *reservoir = reservoirs != NULL ? FindReservoir(index) : NULL;

	return reservoir != NULL && IsDue(reservoir, GetCurrentTimestamp());
}

/* Empty an index's reservoir.  The queries, as a sample, or NULL. */
static GgLearnSample *
TakeQueries(Oid index)
{
	Reservoir  *reservoir = FindReservoir(index);
	float	   *queries = palloc(RESERVOIR_BYTES);
	GgLearnSample *sample = palloc0(sizeof(GgLearnSample));

	sample->queries = queries;
	if (reservoir == NULL)
		return NULL;
	LWLockAcquire(LockOf(reservoir), LW_EXCLUSIVE);
	if (IsOf(reservoir, index))
	{
		sample->count = reservoir->count;
		sample->dimensions = reservoir->dimensions;
		memcpy(queries, reservoir->queries,
			   (Size) sample->count * sample->dimensions * sizeof(float));
		Clear(reservoir);
		reservoir->asked = 0;
	}
	LWLockRelease(LockOf(reservoir));
	return sample->count > 0 ? sample : NULL;
}

static void
Rest(Oid index)
{
	Reservoir  *reservoir = FindReservoir(index);

	if (reservoir == NULL)
		return;
	LWLockAcquire(LockOf(reservoir), LW_EXCLUSIVE);
	if (IsOf(reservoir, index))
		reservoir->rests_until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
															 (int64) learn_naptime * 1000);
	LWLockRelease(LockOf(reservoir));
}

/* Queries of a sample, at most. */
static uint32
MostQueries(uint32 dimensions)
{
	return (uint32) Min(GG_SAMPLE_BYTES / sizeof(float) / dimensions, SAMPLE_QUERIES);
}

/* The new queries, and of the old ones as many as there is room for, at random. */
static GgLearnSample *
Unite(const GgLearnSample *old, const GgLearnSample *more)
{
	const Size	dimensions = more->dimensions;
	const uint32 most = MostQueries(more->dimensions);
	GgLearnSample *sample = palloc0(sizeof(GgLearnSample));
	uint32		left = 0;
	float	   *queries;

	if (old != NULL && old->dimensions == more->dimensions)
		left = Min(old->count, most - more->count);
	queries = palloc((left + more->count) * dimensions * sizeof(float));
	sample->queries = queries;
	sample->dimensions = more->dimensions;
	sample->count = left + more->count;
	sample->edges = old != NULL ? old->edges : GG_LEARNED_EDGES;
	for (uint32 i = 0; left > 0; i++)
	{
		if (pg_prng_uint64_range(&pg_global_prng_state, i + 1, old->count) - i > left)
			continue;
		memcpy(queries, old->queries + i * dimensions, dimensions * sizeof(float));
		queries += dimensions;
		left--;
	}
	memcpy(queries, more->queries, more->count * dimensions * sizeof(float));
	return sample;
}

/* Add the reservoir to the stored sample.  Returns it; NULL: there is too little to learn from. */
static GgLearnSample *
StoreQueries(GgMergeTarget *target, GgMetaPageData *meta)
{
	GgLearnSample *more = TakeQueries(target->index_oid);
	GgLearnSample *sample = NULL;
	GgOptions	options;

	GgBeginSlice(target);
	GgGetOptions(target->index, &options);
	GgReadMeta(target->index, meta);
	if (more != NULL && options.learn_queries && meta->dimensions == more->dimensions)
		sample = Unite(GgReadSample(target->index), more);
	GgEndSlice(target);
	if (sample == NULL)
		return NULL;
	sample->edges = Min(sample->edges, gg_learn_most_edges(meta->graph_degree));
	GgStoreSample(target, meta->instance, sample);
	return sample->count < MostQueries(sample->dimensions) / 4 ? NULL : sample;
}

void
GgLearnQueries(GgMergeTarget *target)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph queries",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	GgLearnSample *sample;

	if (GgLockMerges(target, false))
	{
		sample = StoreQueries(target, meta);
		if (sample != NULL)
		{
			Rest(target->index_oid);
			(void) GgLearnEdges(target, meta, sample, false, GgMergeThreads(target));
			ereport(DEBUG1,
					(errmsg_internal("gpugraph index %u learned from %u queries",
									 target->index_oid, sample->count)));
		}
		GgUnlockMerges(target);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* ---- start -------------------------------------------------------------------------------- */

static void
RequestShmem(void)
{
	RequestAddinShmemSpace(MAXALIGN(RESERVOIRS * sizeof(Reservoir)));
	RequestNamedLWLockTranche("gpugraph queries", RESERVOIRS + 1);
}

static void
StartShmem(void)
{
	bool		found;

	reservoirs = ShmemInitStruct("gpugraph queries", RESERVOIRS * sizeof(Reservoir), &found);
	locks = GetNamedLWLockTranche("gpugraph queries");
	for (int i = 0; i < RESERVOIRS && !found; i++)
	{
		memset(&reservoirs[i], 0, offsetof(Reservoir, queries));
		pg_atomic_init_u64(&reservoirs[i].seen, 0);
	}
}

void
GgInitQueries(void)
{
	DefineCustomIntVariable("gpugraph.learn_naptime",
							"Sets how long an index with learn_queries is left alone once it has "
							"learned.",
							"For tests.",
							&learn_naptime,
							3600, 1, INT_MAX / 1000,
							PGC_SIGHUP, GUC_UNIT_S | GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE,
							NULL, NULL, NULL);
	GgUseSharedMemory(RequestShmem, StartShmem);
}
