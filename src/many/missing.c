/*
 * missing.c
 *		Lists of segments that a device lacks, for many queries, and distances of what it has found
 *		without rows, or by rounded ones.
 *
 * A segment is read into memory where that pays and the memory of a hash table has room for it
 * (work_mem, hash_mem_multiplier).  Then as many threads search it as a query may have processes
 * (max_parallel_workers_per_gather).  Else its pages are searched, one query after the other:
 * threads cannot use buffers.
 */
#include "many/missing.h"

#include "miscadmin.h"
#include "optimizer/cost.h"
#include "service/shared/service.h"
#include "utils/memutils.h"

#include "engine/keys.h"

/* Rows read or measured between two looks for interrupts. */
#define STEP_ROWS			1024

/*
 * A copy pays when there is at least one query for each so many nodes: a walk reads more nodes than
 * that, at random places.
 */
#define NODES_PER_QUERY		500

struct GgCopies
{
	uint64		queries;
	gg_walk    *walk;			/* of pages */
	uint64		bytes;			/* of all copies */
	int			ncopies;
	struct
	{
		uint32		id;			/* GgSegment.id */
		gg_index   *index;
	}			copies[GG_MAX_SEGMENTS];
};

static void
FreeCopies(void *arg)
{
	GgCopies   *copies = arg;

	for (int i = 0; i < copies->ncopies; i++)
		gg_cpu_engine.index_close(copies->copies[i].index);
	gg_walk_free(copies->walk);
}

GgCopies *
GgMakeCopies(uint64 queries)
{
	GgCopies   *copies = palloc0(sizeof(GgCopies));
	gg_status	status = gg_walk_create(&copies->walk);

	GgCheckStatus(&status, "starting a search");
	copies->queries = queries;
	GgAtReset(CurrentMemoryContext, FreeCopies, copies);
	return copies;
}

/* ---- in memory ---------------------------------------------------------------------- */

/* Copy an array into a part of an index, from byte offset on. */
static void
CopyArray(GgLists *lists, gg_index *index, const GgArray *array, gg_part part, uint64 offset,
		  uint64 bytes)
{
	const Size	most = STEP_ROWS * (Size) GG_PAGE_PAYLOAD;
	char	   *piece = palloc(Min(bytes, most));

	for (uint64 done = 0; done < bytes;)
	{
		Size		here = Min(bytes - done, most);
		gg_status	status;

		CHECK_FOR_INTERRUPTS();
		GgReadArray(lists->target->index, lists->meta->instance, array, done, piece, here);
		status = gg_cpu_engine.index_write(index, part, offset + done, piece, here);
		GgCheckStatus(&status, "searching a gpugraph index");
		done += here;
	}
	pfree(piece);
}

static void
CopySegment(GgLists *lists, int list, gg_index *index)
{
	const GgPageSource *source = &lists->sources[list];
	uint32		nodes = source->source.n;
	gg_status	status;

	for (uint32 p = 0; p < source->vectors.npieces; p++)
	{
		const GgVectorPiece *piece = &source->vectors.pieces[p];

		CopyArray(lists, index, &piece->array, GG_PART_ROWS,
				  (uint64) piece->first * source->row_bytes,
				  (uint64) piece->nodes * source->row_bytes);
	}
	CopyArray(lists, index, &source->adjacency, GG_PART_ADJACENCY, 0,
			  (uint64) nodes * source->source.degree * sizeof(uint32));
	CopyArray(lists, index, &source->pivots, GG_PART_PIVOTS, 0,
			  (uint64) source->source.npivots * sizeof(GgPivotEntry));
	status = gg_cpu_engine.index_finish(index, nodes, NULL);
	GgCheckStatus(&status, "searching a gpugraph index");
}

/* The copy of a segment, which is made where that pays; NULL: there is none. */
static gg_index *
FindCopy(GgLists *lists, GgCopies *copies, int list)
{
	const GgMetaPageData *meta = lists->meta;
	const GgSegment *segment = &meta->segments[list];
	gg_shape	shape = {
		.capacity = segment->nodes, .dim = meta->dimensions, .element = meta->element,
		.metric = meta->metric, .degree = meta->graph_degree, .npivots = segment->npivots
	};
	uint64		bytes = gg_cpu_engine.shape_bytes(&shape);
	gg_index   *index;
	gg_status	status;

	for (int i = 0; i < copies->ncopies; i++)
		if (copies->copies[i].id == segment->id)
			return copies->copies[i].index;
	if (meta->coded != GG_CODES_NONE || copies->ncopies == GG_MAX_SEGMENTS ||
		max_parallel_workers_per_gather == 0 ||
		copies->queries < segment->nodes / NODES_PER_QUERY ||
		copies->bytes + bytes > get_hash_memory_limit())
		return NULL;
	status = gg_cpu_engine.index_create(&shape, &index);
	GgCheckStatus(&status, "searching a gpugraph index");
	/* it is closed with the others, even when an error leaves it half filled */
	copies->copies[copies->ncopies].index = index;
	copies->copies[copies->ncopies++].id = GG_NO_SEGMENT;
	copies->bytes += bytes;
	CopySegment(lists, list, index);
	copies->copies[copies->ncopies - 1].id = segment->id;
	return index;
}

static void
SearchCopy(gg_index *index, const GgMissingList *missing)
{
	bool		caught = false;
	gg_control	control = {
		.cancelled = GgIsInterrupted, .ctx = &caught, .threads = max_parallel_workers_per_gather + 1
	};
	gg_status	status;

	if (missing->exact)
		status = gg_cpu_engine.index_exact(index, missing->params->k, NULL, missing->vectors,
										   missing->count, &control, missing->keys);
	else
		status = gg_cpu_engine.index_search(index, missing->params, missing->vectors,
											missing->count, &control, missing->keys);
	GgThrowInterrupts(caught);
	GgCheckStatus(&status, "searching a gpugraph index");
}

/* ---- on pages ----------------------------------------------------------------------- */

/* The nearest of all rows; returns how many there are. */
static uint32
MeasureRows(GgPageSource *source, uint32 k, uint64 *keys)
{
	uint32		n = source->source.n;
	float		distances[STEP_ROWS];
	uint32		found = 0;

	for (uint32 first = 0; first < n; first += STEP_ROWS)
	{
		uint32		count = Min(STEP_ROWS, n - first);

		CHECK_FOR_INTERRUPTS();
		GgSourceSweep(source, first, count, distances);
		for (uint32 i = 0; i < count; i++)
			found = heap_offer(keys, found, k, key_of(distances[i], first + i));
	}
	heap_sort(keys, found);
	return found;
}

/* The same by a walk. */
static uint32
Walk(gg_walk *walk, GgPageSource *source, const gg_search_params *params, uint64 *keys)
{
	gg_status	status = gg_walk_search(walk, &source->source, params, INFINITY);
	gg_candidate candidate;
	uint32		found = 0;

	GgCheckStatus(&status, "searching a gpugraph index");
	while (found < params->k && gg_walk_next(walk, &candidate))
		keys[found++] = key_of(candidate.distance, candidate.node);
	return found;
}

static void
SearchPages(GgLists *lists, GgCopies *copies, const GgMissingList *missing)
{
	GgPageSource *source = &lists->sources[missing->list];
	uint32		k = missing->params->k;
	const float *mean = source->coded ? GgReadMean(lists->target->index, lists->meta) : NULL;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph code query",
												  ALLOCSET_DEFAULT_SIZES);

	for (uint32 q = 0; q < missing->count; q++)
	{
		uint64	   *keys = missing->keys + (Size) q * k;
		uint32		found;

		CHECK_FOR_INTERRUPTS();
		source->query = missing->vectors + (Size) q * lists->meta->dimensions;
		if (source->coded)
		{
			MemoryContext old = MemoryContextSwitchTo(context);

			MemoryContextReset(context);
			GgSourceUseCodes(source, GgMakeCodeQuery(lists->meta, source->codes, mean,
													 source->query));
			MemoryContextSwitchTo(old);
		}
		if (missing->exact)
			found = MeasureRows(source, k, keys);
		else
			found = Walk(copies->walk, source, missing->params, keys);
		while (found < k)
			keys[found++] = GG_NO_KEY;
	}
	MemoryContextDelete(context);
}

/*
 * Measure by stored rows what has keys of rounded ones, in their order, until the first `wanted`
 * keys are the nearest of all.  Keys that are not settled then become GG_NO_KEY.
 */
static void
MeasureHalves(GgPageSource *source, const GgMetaPageData *meta, uint64 *keys, uint32 count,
			  uint32 wanted)
{
	uint32		measured = 0;
	double		least = 0;
	GgBound		halves;

	while (count > 0 && keys[count - 1] == GG_NO_KEY)
		count--;
	GgBoundInitHalves(&halves, meta, source->query);
	while (measured < count &&
		   (measured < wanted || key_distance(keys[wanted - 1]) > least))
	{
		measured = GgSourceMeasureNext(source, keys, 0, measured, count);
		if (measured < count)
			least = GgBoundOfKey(&halves, key_distance(keys[measured]));
	}
	for (uint32 i = wanted; i < count && measured < count; i++)
		if (i >= measured || key_distance(keys[i]) > least)
			keys[i] = GG_NO_KEY;
}

void
GgMeasureFound(GgLists *lists, const GgMissingList *found, bool halved, uint32 wanted)
{
	GgPageSource *source = &lists->sources[found->list];
	uint64	   *keys = found->keys;

	for (uint32 q = 0; q < found->count; q++, keys += found->params->k)
	{
		CHECK_FOR_INTERRUPTS();
		source->query = found->vectors + (Size) q * lists->meta->dimensions;
		if (halved)
			MeasureHalves(source, lists->meta, keys, found->params->k, wanted);
		else
			GgSourceMeasureKeys(source, keys, found->params->k);
	}
}

void
GgSearchMissing(GgLists *lists, GgCopies *copies, const GgMissingList *missing)
{
	gg_index   *index = FindCopy(lists, copies, missing->list);

	if (index == NULL)
		SearchPages(lists, copies, missing);
	else
		SearchCopy(index, missing);
}
