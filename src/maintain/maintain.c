/*
 * maintain.c
 *		Merges until nothing is left to do; gpugraph_merge(); what VACUUM does.
 *
 * One process at a time merges an index.  It holds the merge lock, a heavyweight lock that no DDL
 * asks for: that of the index as an object, with a sub-object that no relation has.  (A page lock
 * would not do: before PostgreSQL 17 assertions forbid to take another lock beside it.)
 */
#include "maintain/merge.h"
#include "service/shared/service.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/inspect.h"
#include "storage/lock.h"
#include "utils/timestamp.h"

/* Merges that take longer are logged. */
#define LOG_SECONDS			1.0

/* Where there would be more segments than this, they are larger than memory allows. */
#define MOST_SEGMENTS		12

/* The sub-object whose lock is the merge lock: columns are counted from 1, to far less. */
#define MERGE_LOCK			PG_UINT16_MAX

/* How often a merge looks whether the delta is to be sealed meanwhile. */
#define LOOK_MS				100

static void
LookAt(Relation index, Relation heap, GgMergeLook *look)
{
	GgOptions	options;
	uint64		nodes = 0;
	uint32		bound;

	GgGetOptions(index, &options);
	GgReadMeta(index, look->meta);
	look->served = GgIsServed(index, look->meta);
	look->seal_rows = GgSealRows(&options, look->meta, look->served);
	GgNotePinned(look, GgParkedBlocks(heap, look->meta), options.seal_rows < 0);
	look->delta_rows = GgDeltaSlots(look->meta);
	strlcpy(look->name, RelationGetRelationName(index), NAMEDATALEN);
	nodes = GgCountNodes(look->meta) + look->delta_rows;
	bound = GgMostSegmentRows(&options, (double) nodes);
	look->most = 0;
	if (look->meta->dimensions > 0)
		look->most = (uint32) Min(Max(Min(GgMostMergedNodes(look->meta, &options), bound),
									  nodes / MOST_SEGMENTS + 1), GG_MAX_NODES);
}

/*
 * Is a merge due, as far as the directory tells?  Blocks that cannot be used again are no reason
 * against it here: VACUUM may have given them back just now.  Whoever merges looks again whether an
 * old snapshot keeps them.
 */
static bool
MergeIsDue(Relation index, Relation heap)
{
	GgMergeLook look = {.meta = palloc(sizeof(GgMetaPageData))};
	GgMergeChoice choice;
	bool		due;

	LookAt(index, heap, &look);
	look.pinned = false;
	due = GgChooseMerge(&look, GG_MERGE_DUE, &choice);
	pfree(look.meta);
	return due;
}

int
GgMergeThreads(const GgMergeTarget *target)
{
	int			threads = max_parallel_maintenance_workers + 1;

	if (target->sliced)
		threads = Min(threads, (int) sysconf(_SC_NPROCESSORS_ONLN) / 2);
	if (target->within)
		threads /= 2;
	return Max(1, threads);
}

/* Merge what was chosen, and say so.  False: VACUUM has given back some of it, so look again. */
static bool
MergeChosen(GgMergeTarget *target, const GgMergeLook *look, const GgMergeChoice *choice)
{
	GgMergeResult result;

	if (!GgMergeSegments(target, look->meta, choice, GgMergeThreads(target), &result))
	{
		ereport(DEBUG1,
				(errmsg_internal("a segment of gpugraph index \"%s\" was given back during a merge",
								 look->name)));
		return false;
	}
	ereport(result.seconds >= LOG_SECONDS && target->sliced ? LOG : DEBUG1,
			(errmsg("merged %u parts of gpugraph index \"%s\" into a segment of %u rows: "
					UINT64_FORMAT " kB written, %.1f s, graph by %s",
					result.inputs, look->name, result.rows, result.bytes / 1024, result.seconds,
					result.builder),
			 errdetail("Reading took %.2f s, the graph %.2f s, learned edges %.2f s, writing "
					   "%.2f s, a device and the flip %.2f s, and merges within this one %.2f s.",
					   result.phases[GG_MERGE_READ], result.phases[GG_MERGE_GRAPH],
					   result.phases[GG_MERGE_LEARN], result.phases[GG_MERGE_WRITE],
					   result.phases[GG_MERGE_DEVICE],
					   result.meanwhile)));
	if (target->within)
		target->within_s += result.seconds;
	return true;
}

/*
 * Called during a merge, which may take long.  Seals the delta when that is due, so that scans do
 * not have to measure more of it.  Small segments that came meanwhile are merged with it, so that
 * they stay few.  The merge under way goes on with what it has read.
 */
static void
SealMeanwhile(GgMergeTarget *target)
{
	static TimestampTz looked = 0;
	TimestampTz now = GetCurrentTimestamp();
	GgMergeLook look = {.meta = NULL};
	GgMergeChoice choice;
	bool		by_cpu;

	if (target->within || now < TimestampTzPlusMilliseconds(looked, LOOK_MS))
		return;
	looked = now;
	target->within = true;
	look.meta = palloc(sizeof(GgMetaPageData));
	GgBeginSlice(target);
	LookAt(target->index, target->heap, &look);
	GgEndSlice(target);
	/* a device that would build may do so for the merge under way */
	by_cpu = look.served && !GgServiceIsUp(true);
	if (GgChooseMeanwhile(&look, by_cpu, target->outer, &choice))
		(void) MergeChosen(target, &look, &choice);
	pfree(look.meta);
	target->within = false;
}

/* Look, and merge what is found.  False: no other merge is to follow. */
static bool
MergeOnce(GgMergeTarget *target, GgMergeUrge urge)
{
	GgMergeLook look = {.meta = palloc(sizeof(GgMetaPageData))};
	GgMergeChoice choice;
	bool		merged;

	GgBeginSlice(target);
	LookAt(target->index, target->heap, &look);
	GgEndSlice(target);
	if (!GgChooseMerge(&look, urge, &choice))
	{
		pfree(look.meta);
		return false;
	}
	if (target->sliced && !choice.delta && look.seal_rows > 0)
	{
		target->meanwhile = SealMeanwhile;
		target->outer = &choice;
	}
	merged = MergeChosen(target, &look, &choice);
	target->meanwhile = NULL;
	target->outer = NULL;
	pfree(look.meta);
	/* what GG_MERGE_ALL leaves has no room in one segment, or came meanwhile */
	return urge != GG_MERGE_ALL || !merged;
}

static int
CountLearned(const GgMetaPageData *meta)
{
	int			count = 0;

	for (int i = 0; i < meta->nsegments; i++)
		count += GgLearnedEdges(&meta->segments[i]) > 0;
	return count;
}

int
GgRebuildLearned(GgMergeTarget *target)
{
	GgMergeLook look = {.meta = palloc(sizeof(GgMetaPageData))};
	GgMetaPageData *before = GgReadDirectory(target->index);
	GgMetaPageData *after;
	int			forgot;

	for (int i = 0; i < before->nsegments; i++)
	{
		GgMergeChoice choice = {
			.anew = true, .nsegments = 1, .segments = {before->segments[i].id}
		};

		if (GgLearnedEdges(&before->segments[i]) == 0)
			continue;
		LookAt(target->index, target->heap, &look);
		/* VACUUM may have given it back */
		if (GgFindSegment(look.meta, choice.segments[0]) == NULL)
			continue;
		(void) MergeChosen(target, &look, &choice);
	}
	after = GgReadDirectory(target->index);
	forgot = CountLearned(before) - CountLearned(after);
	pfree(look.meta);
	pfree(before);
	pfree(after);
	return forgot;
}

static LOCKTAG
MergeLock(const GgMergeTarget *target)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, RelationRelationId, target->index_oid, MERGE_LOCK);
	return tag;
}

bool
GgLockMerges(const GgMergeTarget *target, bool wait)
{
	LOCKTAG		tag = MergeLock(target);

	return LockAcquire(&tag, ExclusiveLock, target->sliced, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

void
GgUnlockMerges(const GgMergeTarget *target)
{
	LOCKTAG		tag = MergeLock(target);

	LockRelease(&tag, ExclusiveLock, target->sliced);
}

bool
GgMaintain(GgMergeTarget *target, GgMergeUrge urge)
{
	if (!GgLockMerges(target, false))
		return false;
	while (MergeOnce(target, urge))
		GgCheckInterrupts();
	GgUnlockMerges(target);
	return true;
}

GgShrinkResult
GgShrink(GgMergeTarget *target)
{
	GgShrinkResult result;

	if (!GgLockMerges(target, false))
		return GG_SHRINK_WAITS;
	result = GgShrinkStep(target);
	GgUnlockMerges(target);
	return result;
}

void
GgMaintainAfterVacuum(Relation index)
{
	GgMergeTarget target = {.index_oid = RelationGetRelid(index), .index = index};
	bool		due;

	if (!index->rd_index->indisvalid)
		return;
	target.heap_oid = index->rd_index->indrelid;
	target.heap = table_open(target.heap_oid, NoLock);
	due = MergeIsDue(index, target.heap);
	if ((due || GgShrinkIsDue(index)) && !GgRequestMerge(index, true))
	{
		if (due)
			(void) GgMaintain(&target, GG_MERGE_DUE);
		/* parallel mode allows neither the locks nor a transaction id */
		while (!IsInParallelMode() && GgShrink(&target) == GG_SHRINK_GOES_ON)
			;
	}
	table_close(target.heap, NoLock);
}

void
GgOpenMergeTarget(GgMergeTarget *target, const char *function, Oid indexoid,
				  GgInspected *inspected)
{
	PreventCommandDuringRecovery(function);
	GgOpenInspected(indexoid, GG_CHANGE_INDEX, inspected);
	target->index_oid = indexoid;
	target->index = inspected->index;
	target->heap_oid = RelationGetRelid(inspected->heap);
	target->heap = inspected->heap;
}

PG_FUNCTION_INFO_V1(gpugraph_merge);

/* False, without waiting, where another process merges the index. */
Datum
gpugraph_merge(PG_FUNCTION_ARGS)
{
	GgMergeTarget target = {0};
	GgInspected inspected;
	bool		merged;

	GgOpenMergeTarget(&target, "gpugraph_merge()", PG_GETARG_OID(0), &inspected);
	merged = GgMaintain(&target, GG_MERGE_ALL);
	GgCloseInspected(&inspected);
	PG_RETURN_BOOL(merged);
}
