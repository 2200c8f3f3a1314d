/*
 * index_rows.c
 *		The rows of an index by their place in it.
 *
 * The directory is the one that the caller has copied.  Its pages stay as they are while the active
 * snapshot lives, which must be as old as the copy.  A TID that VACUUM clears meanwhile belongs to
 * a row that this snapshot does not see.
 */
#include "many/batch.h"

#include "miscadmin.h"
#include "utils/snapmgr.h"

uint64
GgCountPlaces(const GgMetaPageData *meta)
{
	/* delta pages that VACUUM has given back have places, too, which nobody uses */
	uint64		places = GgRowsOnPages(meta, meta->delta_pages);

	for (int i = 0; i < meta->nsegments; i++)
		places += meta->segments[i].rows;
	return places;
}

static void
ReadSegment(const GgTarget *target, const GgMetaPageData *meta, const GgSegment *segment,
			uint32 first, uint32 count, ItemPointerData *tids)
{
	Relation	index = target->index;
	BlockNumber length = 0;
	GgArray		array;

	GgFindArray(meta, segment->id, GG_KIND_TIDS, &array);
	for (uint32 done = 0; done < count;)
	{
		uint32		row = first + done;
		uint32		here = Min(count - done, GG_TIDS_PER_PAGE - row % GG_TIDS_PER_PAGE);
		Buffer		buffer = GgReadPage(index, meta->instance, &array, row / GG_TIDS_PER_PAGE);
		const GgTidEntry *entry = (GgTidEntry *) PageGetContents(BufferGetPage(buffer)) +
			row % GG_TIDS_PER_PAGE;

		for (uint32 i = 0; i < here; i++)
		{
			tids[done + i] = entry[i].tid;
			if (ItemPointerIsValid(&entry[i].tid))
				GgCheckTid(index, target->heap, BufferGetBlockNumber(buffer), &entry[i].tid,
						   &length);
		}
		GgTestForOldSnapshot(GetActiveSnapshot(), index, BufferGetPage(buffer));
		UnlockReleaseBuffer(buffer);
		done += here;
	}
	if (array.extents != NULL)
		pfree(array.extents);
}

/* The rows of one delta page from a slot on, count at the most. */
static uint32
ReadDeltaPage(const GgTarget *target, const GgMetaPageData *meta, const GgArray *array,
			  uint32 slot, uint32 count, ItemPointerData *tids)
{
	Relation	index = target->index;
	BlockNumber length = 0;
	uint32		per_page = GgDeltaRowsPerPage(meta);
	uint64		number = GgDeltaPageOf(meta, slot);
	uint32		first = slot % per_page;
	uint32		rows = 0;
	Buffer		buffer = InvalidBuffer;
	Page		page = NULL;

	count = Min(count, per_page - first);
	/* a page that VACUUM has given back has no block, and so no rows */
	if (GgArrayBlock(array, number) != InvalidBlockNumber)
	{
		buffer = GgReadPage(index, meta->instance, array, number);
		page = BufferGetPage(buffer);
		rows = GgDeltaRowCount(index, meta, buffer);
		GgTestForOldSnapshot(GetActiveSnapshot(), index, page);
	}
	for (uint32 i = 0; i < count; i++)
	{
		ItemPointerSetInvalid(&tids[i]);
		if (first + i < rows)
			tids[i] = ((GgDeltaRow *) (PageGetContents(page) +
									   (first + i) * GgDeltaRowBytes(meta)))->tid;
		if (ItemPointerIsValid(&tids[i]))
			GgCheckTid(index, target->heap, BufferGetBlockNumber(buffer), &tids[i], &length);
	}
	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
	return count;
}

GgNode
GgNodeAt(const GgTarget *target, const GgMetaPageData *meta, uint64 place)
{
	GgNode		none = {GG_NO_SEGMENT};

	for (int i = 0; i < meta->nsegments; i++)
	{
		const GgSegment *segment = &meta->segments[i];
		GgNode		node = {segment->id, (uint32) place};
		uint32		end = segment->nodes;
		GgArray		offsets;

		if (place >= segment->rows)
		{
			place -= segment->rows;
			continue;
		}
		GgFindArray(meta, segment->id, GG_KIND_OFFSETS, &offsets);
		if (offsets.nextents == 0)
			return node;
		/* the last one whose rows do not begin behind it */
		for (node.node = 0; end - node.node > 1;)
		{
			uint32		middle = node.node + (end - node.node) / 2;
			uint32		first;

			GgReadArray(target->index, meta->instance, &offsets, (uint64) middle * sizeof(uint32),
						&first, sizeof(first));
			if (first > place)
				end = middle;
			else
				node.node = middle;
		}
		return node;
	}
	return none;
}

uint32
GgReadPlaces(const GgTarget *target, const GgMetaPageData *meta, uint64 first, uint32 most,
			 ItemPointerData *tids)
{
	uint64		slots = GgRowsOnPages(meta, meta->delta_pages);
	GgArray		delta;
	uint32		count;

	CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < meta->nsegments; i++)
	{
		const GgSegment *segment = &meta->segments[i];

		if (first < segment->rows)
		{
			count = (uint32) Min(most, segment->rows - first);
			ReadSegment(target, meta, segment, (uint32) first, count, tids);
			return count;
		}
		first -= segment->rows;
	}
	if (first >= slots)
		return 0;
	GgFindArray(meta, GG_NO_SEGMENT, GG_KIND_DELTA, &delta);
	most = (uint32) Min(most, slots - first);
	for (count = 0; count < most;)
		count += ReadDeltaPage(target, meta, &delta, (uint32) first + count, most - count,
							   tids + count);
	pfree(delta.extents);
	return count;
}
