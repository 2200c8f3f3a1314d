/*
 * memory.c
 *		How many rows of a build go into one segment.
 *
 * Rows, TIDs, filter words (as they come and as they are sorted), hashes, the graph and what the
 * engine needs should fit in maintenance_work_mem.
 * Where twice as much would do, or 64 MB, the build takes that.  Otherwise what was collected
 * becomes a segment of its own and the scan goes on.  The index then has several segments, each
 * as good, but a search walks each.  A NOTICE announces either.  The option segment_rows asks for
 * smaller segments.
 */
#include "build/memory.h"
#include "build/deduplicate.h"
#include "storage/graph_memory.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "optimizer/plancat.h"

/* A segment never has fewer rows for want of memory: its graph would not be worth having. */
#define MIN_SEGMENT_ROWS	1000

/* Heap pages looked at to learn how many rows a page has. */
#define SAMPLE_PAGES		32

/*
 * What a segment takes while the engine runs, which is its peak: removing duplicates before, and
 * sharing the adjacency after, takes less than what the engine has not taken yet, or has given
 * back.
 */
static GgGraphMemory
SegmentMemory(const GgMemoryPlan *plan, const GgMetaPageData *meta)
{
	GgGraphMemory memory = {plan->engine, &plan->params, &plan->control, meta};

	memory.row_bytes = GgRowBytes(meta) + 2 * GgFilterBytes(meta) + sizeof(GgTidEntry) +
		GG_DEDUPLICATE_ROW_BYTES;
	return memory;
}

/*
 * A setting that is a little too small is exceeded rather than answered with segments.  A table
 * that needs several anyway keeps to it.  Where memory would make too many or too small segments,
 * they are larger than memory allows.
 */
void
GgPlanSegments(GgMemoryPlan *plan, const GgMetaPageData *meta)
{
	GgGraphMemory memory = SegmentMemory(plan, meta);
	uint64		setting = (uint64) maintenance_work_mem * 1024;
	uint32		most = GgRowsThatFit(&memory, Max(2 * setting, GG_LEAST_GRAPH_BYTES));

	if (plan->expected > most)
		most = GgRowsThatFit(&memory, Max(setting, GG_LEAST_GRAPH_BYTES));
	if (plan->bound > 0 && plan->bound < most)
	{
		most = plan->bound;
		plan->segments_announced = true;	/* the user asked for them */
	}
	most = Max(most, MIN_SEGMENT_ROWS);
	plan->most = Max(most, (uint32) Min(plan->expected / GG_MAX_BUILD_SEGMENTS + 1, GG_MAX_NODES));
}

void
GgAnnounceSegments(GgMemoryPlan *plan, const GgMetaPageData *meta, uint32 rows)
{
	GgGraphMemory memory = SegmentMemory(plan, meta);
	uint64		needed;

	if (plan->segments_announced)
		return;
	plan->segments_announced = true;
	needed = GgGraphBytes(&memory, (uint32) Min(Max(plan->expected, rows), GG_MAX_NODES));
	ereport(NOTICE,
			(errmsg("gpugraph index no longer fits into maintenance_work_mem after %u rows", rows),
			 errdetail("The index is built in several segments, and every search visits each."),
			 errhint("Increase maintenance_work_mem to " UINT64_FORMAT " MB for a single segment.",
					 needed / (1024 * 1024) + 1)));
}

void
GgAnnounceMemory(GgMemoryPlan *plan, const GgMetaPageData *meta, uint32 nodes, uint32 rows)
{
	GgGraphMemory memory = SegmentMemory(plan, meta);
	uint64		needed = GgGraphBytes(&memory, nodes);

	if (needed <= (uint64) maintenance_work_mem * 1024 || plan->memory_announced)
		return;
	plan->memory_announced = true;
	ereport(NOTICE,
			(errmsg("gpugraph index build takes more memory than maintenance_work_mem"),
			 errdetail("A segment of %u rows takes " UINT64_FORMAT " MB; "
					   "smaller ones would make searches slower.",
					   rows, needed / (1024 * 1024) + 1),
			 errhint("Increase maintenance_work_mem to " UINT64_FORMAT " MB.",
					 needed / (1024 * 1024) + 1)));
}

/*
 * The planner's estimate goes by the widths of columns when the table was never analyzed, and can
 * be off by a factor of ten.  Line pointers on a few pages are better than that.
 */
double
GgExpectedRows(Relation heap)
{
	BlockNumber pages = RelationGetNumberOfBlocks(heap);
	double		tuples,
				allvisfrac;
	double		items = 0;

	if (heap->rd_rel->reltuples >= 0 || heap->rd_tableam != GetHeapamTableAmRoutine() || pages == 0)
	{
		estimate_rel_size(heap, NULL, &pages, &tuples, &allvisfrac);
		return tuples;
	}
	for (uint32 i = 0; i < SAMPLE_PAGES; i++)
	{
		BlockNumber blkno = (BlockNumber) ((uint64) pages * i / SAMPLE_PAGES);
		Buffer		buffer = ReadBuffer(heap, blkno);
		Page		page = BufferGetPage(buffer);

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		if (!PageIsNew(page))
			for (OffsetNumber off = FirstOffsetNumber; off <= PageGetMaxOffsetNumber(page); off++)
				items += ItemIdIsNormal(PageGetItemId(page, off));
		UnlockReleaseBuffer(buffer);
	}
	return items / SAMPLE_PAGES * pages;
}
