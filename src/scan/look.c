/*
 * look.c
 *		The planner's look at how many rows lie within a distance.
 *
 * Statistics say nothing of distances.  So where a condition on the distance has constants alone,
 * the first list of a walk is read: mostly it ends beyond the distance, and what is within is
 * counted.  Where it does not, a sample of the index's rows is measured, evenly spread over the
 * segments.  A device walks with a longer list (GG_LOOK_LIST): that takes less than a millisecond,
 * which is what a sample takes of rows that are in no cache.
 *
 * The scan's rows are looked at by nobody, so that it is in no counter and in no sample of queries,
 * and takes no predicate lock.  An error is left to the executor, which may never come to it.
 */
#include "scan/scan.h"

#include "access/parallel.h"
#include "access/relscan.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "scan/sort_key.h"
#include "storage/directory.h"
#include "storage/type.h"
#include "utils/float.h"
#include "utils/snapmgr.h"

#include "engine/keys.h"
#include "engine/request.h"

/* Nodes that the sample aims at (it may have twice as many), and nodes measured in one call. */
#define SAMPLE_ROWS			256
#define SAMPLE_CHUNK		256

typedef struct Look
{
	Relation	heap;
	Relation	index;
	const OpExpr *order;
	List	   *clauses;
	double		share;
} Look;

/* Count nodes within the distance. */
static uint32
CountWithin(GgScanOpaque *so, GgStream *stream, const uint32 *nodes, uint32 count)
{
	float		distances[SAMPLE_CHUNK];
	uint32		within = 0;

	GgSourceDistances(&stream->source, nodes, count, distances);
	for (uint32 i = 0; i < count; i++)
		within += distances[i] <= so->farthest;
	return within;
}

static double
ShareOfSample(GgScanOpaque *so, double all)
{
	const uint32 step = (uint32) Max(all / SAMPLE_ROWS, 1);
	uint32		nodes[SAMPLE_CHUNK];
	double		within = 0,
				measured = 0;

	for (int i = 0; i < so->nstreams; i++)
	{
		GgStream   *stream = &so->streams[i];
		uint32		count = 0;

		if (stream->segment == NULL)
			continue;			/* the delta */
		GgNeedSource(so, stream);
		for (uint32 node = step / 2; node < stream->nodes; node += step)
		{
			nodes[count++] = node;
			if (count < SAMPLE_CHUNK)
				continue;
			within += CountWithin(so, stream, nodes, count);
			measured += count;
			count = 0;
		}
		within += CountWithin(so, stream, nodes, count);
		measured += count;
	}
	return (within + 0.5) / (measured + 1);
}

/* How many keys of the device's lists are within?  *all: in one list at least every key is. */
static double
CountOfDevice(const GgScanOpaque *so, bool *all)
{
	double		within = 0;

	for (uint32 list = 0; list <= so->meta->nsegments; list++)
	{
		uint64		matches;
		uint32		k;
		const uint64 *keys = GgFirstList(so, list, &k, &matches);
		uint32		count = 0;

		if (keys == NULL)
			continue;
		while (count < k && keys[count] != GG_NO_KEY &&
			   key_distance(keys[count]) <= so->farthest)
			count++;
		within += count;
		*all = *all || count == k;
	}
	return within;
}

/* How many rows does the scan hand out?  *all: half of its list, so that the list is used up. */
static double
CountOfScan(IndexScanDesc scan, bool *all)
{
	const int	most = GgSearchSettings().itopk_size / 2;
	int			count = 0;

	while (count < most && gggettuple(scan, ForwardScanDirection))
		count++;
	*all = count == most;
	return count;
}

/* The share of the segments' rows within, by first lists or a sample; below 0: not known. */
static double
ShareOf(IndexScanDesc scan)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	double		nodes = 0;
	double		share;
	bool		all = false;

	GgPrepareSearch(scan, NULL);
	if (so->impossible)
		return 0;
	if (!so->prepared || so->by_table || isinf(so->farthest))
		return -1;
	GgOpenSearch(scan);
	if (so->nstreams == 0)
		return -1;
	for (int i = 0; i < so->nstreams; i++)
		nodes += so->streams[i].nodes;
	share = (so->device.lists != 0 && so->device.missing == 0 ?
			 CountOfDevice(so, &all) : CountOfScan(scan, &all)) / nodes;
	return all ? Max(ShareOfSample(so, nodes), share) : share;
}

static void
LookAround(void *arg)
{
	Look	   *look = arg;
	const Const *query = lsecond(look->order->args);
	EState	   *estate = CreateExecutorState();
	GgTold		told = {.within = GgMakePlannedWithin(look->clauses, look->order, estate)};
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	ScanKeyData key;

	GgReadMeta(look->index, meta);
	if (told.within != NULL && !query->constisnull &&
		GgValueDimensions(GgIndexOpclass(look->index),
						  PointerGetDatum(PG_DETOAST_DATUM(query->constvalue))) ==
		meta->dimensions)
	{
		IndexScanDesc scan = ggbeginscan(look->index, 0, 1);
		GgScanOpaque *so = (GgScanOpaque *) scan->opaque;

		ScanKeyEntryInitialize(&key, SK_ORDER_BY, 1, GG_DISTANCE_STRATEGY, InvalidOid,
							   GG_KEY_RANGE | GG_KEY_FEW, look->order->opfuncid,
							   query->constvalue);
		key.sk_func.fn_extra = &told;
		scan->heapRelation = look->heap;
		scan->xs_snapshot = GetActiveSnapshot();
		so->look = so->quiet = so->by_function = true;
		ggrescan(scan, NULL, 0, &key, 1);
		look->share = ShareOf(scan);
		ggendscan(scan);
	}
	FreeExecutorState(estate);
}

double
GgLookWithin(Relation heap, Relation index, const OpExpr *order, List *clauses)
{
	Look		look = {heap, index, order, clauses, -1};
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph look",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old;

	/* GgTry() begins a subtransaction */
	if (!ActiveSnapshotSet() || IsInParallelMode())
		return -1;
	old = MemoryContextSwitchTo(context);
	if (GgTry(LookAround, &look) != NULL)
		look.share = -1;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return look.share;
}
