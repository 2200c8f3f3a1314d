/*
 * flip.c
 *		The pages of a merged segment, its way to a device, and the flip of the directory.
 *
 * TIDs, offsets, filter words, adjacency and pivots are written anew, and the vectors and codes of
 * the new piece.
 *
 * VACUUM clears TIDs meanwhile.  When it has gone through a segment, or the delta, the directory
 * says so (dead, vacuum_epoch).  So the flip looks, under the metapage's exclusive lock, which
 * inputs have other numbers than before their TIDs were read, and these are read again first.  What
 * VACUUM has not gone through before the flip it looks for in the merged segment (am/vacuum.c).
 * Then one WAL record flips the directory.
 */
#include "maintain/merge_state.h"
#include "service/shared/settings.h"

#include "access/relation.h"
#include "access/xact.h"
#include "utils/snapmgr.h"

/* ---- pages ------------------------------------------------------------------------------- */

void
GgTakeMergeId(GgMerge *merge)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	Buffer		metabuf;

	GgBeginSlice(merge->target);
	metabuf = GgLockDirectory(merge->target->index, meta);
	if (!merge->target->within)
		(void) GgFreeTaken(meta);
	merge->id = GgTakeId(merge->target->index, meta);
	GgStoreMeta(merge->target->index, merge->target->heap, metabuf, meta);
	GgEndSlice(merge->target);
	pfree(meta);
}

/* Take blocks for an array and write it, in slices.  coder: makes the codes of data, or NULL. */
static GgNewArray *
WriteCoded(GgMerge *merge, GgKind kind, const void *data, uint64 bytes, GgCoder *coder)
{
	GgNewArray *array = &merge->arrays[merge->narrays++];

	GgBeginArray(array, merge->id, kind, data, bytes);
	array->coder = coder;
	while (array->written < array->npages)
	{
		uint32		count;

		GgBeginSlice(merge->target);
		if (array->written == array->taken &&
			GgTakeForArray(merge->target->index, merge->target->heap, array))
			GgHold(GG_FAULT_HOLD_LENGTHEN);
		count = Min(array->taken - array->written, GG_WRITE_PAGES);
		GgWritePages(merge->target->index, merge->meta->instance, array, array->written, count);
		array->written += count;
		GgEndSlice(merge->target);
		GgTellPhase(merge, GG_MERGE_WRITE, array->written);
	}
	return array;
}

static GgNewArray *
WriteArray(GgMerge *merge, GgKind kind, const void *data, uint64 bytes)
{
	return WriteCoded(merge, kind, data, bytes, NULL);
}

/* Write the vectors of the new piece and their codes, or the codes alone. */
static void
WritePiece(GgMerge *merge)
{
	Size		row_bytes = GgRowBytes(merge->meta);
	Size		code_bytes = GgCodeBytes(merge->meta, merge->codes);
	uint64		nodes = merge->nodes - merge->kept_nodes;
	const char *rows = merge->rows + (Size) merge->kept_nodes * row_bytes;

	if (nodes == 0)
		return;
	if (merge->records != NULL)
	{
		WriteArray(merge, GG_KIND_CODES, merge->records + (Size) merge->kept_nodes * code_bytes,
				   nodes * code_bytes);
		return;
	}
	WriteArray(merge, GG_KIND_VECTORS, rows, nodes * row_bytes);
	if (merge->codes != GG_CODES_NONE)
		WriteCoded(merge, GG_KIND_CODES, rows, nodes * code_bytes,
				   GgMakeCoder(merge->meta, merge->codes, merge->mean));
}

/*
 * Write the filter words of the merged rows.  They are gathered word by word, in the memory of the
 * inputs' words, so that little more memory than that is needed.
 */
static void
WriteFilters(GgMerge *merge)
{
	uint32		nwords = merge->meta->filter_words;
	Size		nrows = merge->nrows;
	Size		stride = merge->plan->rows;
	int64	   *words;
	int64	   *gathered;

	if (nwords == 0)
		return;
	/* not freed here: a device gets them, too */
	words = MemoryContextAllocHuge(CurrentMemoryContext, nwords * stride * sizeof(int64));
	merge->words = words;
	gathered = MemoryContextAllocHuge(CurrentMemoryContext, nrows * sizeof(int64));
	for (int i = 0; i < merge->plan->ninputs; i++)
		GgReadWords(merge->target, merge->meta, &merge->plan->inputs[i], words, stride);
	for (uint32 w = 0; w < nwords; w++)
	{
		GgCheckInterrupts();
		for (Size row = 0; row < nrows; row++)
			gathered[row] = words[w * stride + merge->sources[row]];
		memcpy(words + w * nrows, gathered, nrows * sizeof(int64));
	}
	WriteArray(merge, GG_KIND_FILTERS, words, nwords * nrows * sizeof(int64));
	pfree(gathered);
}

void
GgWriteMerged(GgMerge *merge)
{
	const GgMetaPageData *meta = merge->meta;

	WritePiece(merge);
	WriteArray(merge, GG_KIND_ADJACENCY, merge->graph->adjacency,
			   (uint64) merge->nodes * meta->graph_degree * sizeof(uint32));
	WriteArray(merge, GG_KIND_PIVOTS, merge->pivots,
			   (uint64) merge->graph->npivots * sizeof(GgPivotEntry));
	if (!GgIsPlain(merge))
		WriteArray(merge, GG_KIND_OFFSETS, merge->offsets,
				   ((uint64) merge->nodes + 1) * sizeof(uint32));
	WriteFilters(merge);
}

/* Bring the merged TIDs up to date, and write the pages that change, unless array is NULL. */
static void
UpdateTids(GgMerge *merge, const GgNewArray *array)
{
	for (uint32 base = 0; base < merge->nrows; base += GG_TIDS_PER_PAGE)
	{
		uint32		count = Min(GG_TIDS_PER_PAGE, merge->nrows - base);
		bool		changed = false;

		for (uint32 row = base; row < base + count; row++)
		{
			const GgTidEntry *now = &merge->tids[merge->sources[row]];

			if (memcmp(&merge->merged_tids[row], now, sizeof(GgTidEntry)) == 0)
				continue;
			merge->merged_tids[row] = *now;
			changed = true;
		}
		if (!changed || array == NULL)
			continue;
		GgBeginSlice(merge->target);
		GgWritePages(merge->target->index, merge->meta->instance, array, base / GG_TIDS_PER_PAGE,
					 1);
		GgEndSlice(merge->target);
	}
}

/* Count rows that are dead by the TIDs that were read, before the metapage is locked. */
static void
CountDead(GgMerge *merge)
{
	merge->dead = merge->delta_dead = 0;
	for (uint32 row = 0; row < merge->nrows; row++)
		merge->dead += !ItemPointerIsValid(&merge->merged_tids[row].tid);
	for (int i = 0; i < merge->plan->ninputs; i++)
	{
		const GgMergeInput *input = &merge->plan->inputs[i];

		for (uint32 row = 0; input->delta && row < input->rows; row++)
			merge->delta_dead += !GgRowIsAlive(merge, input->first_row + row);
	}
}

/* ---- the flip ---------------------------------------------------------------------------- */

/* Take an input out of the directory.  AddMerged() gives pieces that stay to the merged segment. */
static void
RemoveInput(GgMerge *merge, GgMetaPageData *meta, const GgMergeInput *input, uint64 xid)
{
	if (input->delta)
	{
		uint64		first = GgDeltaFirst(meta);

		if (input->end_page > first)
			GgFreeDelta(meta, first, (uint32) (input->end_page - first), xid);
		meta->delta_dead -= Min(meta->delta_dead, merge->delta_dead);
		return;
	}
	GgFreeGraph(meta, input->segment.id, xid);
	for (uint32 p = 0; p < input->vectors.npieces; p++)
		if (!GgKeepsPiece(merge, input->vectors.pieces[p].array.segment))
			GgFreePiece(meta, input->vectors.pieces[p].array.segment, xid);
	for (int i = 0; i < meta->nsegments; i++)
		if (meta->segments[i].id == input->segment.id)
		{
			memmove(&meta->segments[i], &meta->segments[i + 1],
					(meta->nsegments - i - 1) * sizeof(GgSegment));
			meta->nsegments--;
			break;
		}
}

/* Move a piece to the end of the pieces, as one of the merged segment. */
static void
TakeOverPiece(GgMerge *merge, GgMetaPageData *meta, uint32 id)
{
	for (int i = 0; i < meta->npieces; i++)
	{
		GgPiece		piece = meta->pieces[i];

		if (piece.id != id)
			continue;
		memmove(&meta->pieces[i], &meta->pieces[i + 1],
				(meta->npieces - i - 1) * sizeof(GgPiece));
		piece.segment = merge->id;
		meta->pieces[meta->npieces - 1] = piece;
		return;
	}
}

static void
AddMerged(GgMerge *merge, GgMetaPageData *meta)
{
	GgSegment  *segment = &meta->segments[meta->nsegments++];

	memset(segment, 0, sizeof(*segment));
	segment->id = merge->id;
	segment->nodes = merge->nodes;
	segment->rows = merge->nrows;
	segment->npivots = merge->graph->npivots;
	segment->empty = merge->empty;
	segment->algorithm = merge->params.algorithm;
	if (!GgIsPlain(merge))
		segment->flags = GG_SEGMENT_OFFSETS;
	GgSetLearnedEdges(segment, merge->learned);
	segment->dead = merge->dead;

	/* pieces in the order in which CollectNodes() took them */
	for (int i = 0; i < merge->plan->ninputs; i++)
	{
		const GgMergeInput *input = &merge->plan->inputs[i];

		for (uint32 p = 0; p < input->vectors.npieces; p++)
			if (GgKeepsPiece(merge, input->vectors.pieces[p].array.segment))
				TakeOverPiece(merge, meta, input->vectors.pieces[p].array.segment);
	}
	if (merge->nodes > merge->kept_nodes)
	{
		GgPiece    *piece = &meta->pieces[meta->npieces++];

		memset(piece, 0, sizeof(*piece));
		piece->id = piece->segment = merge->id;
		piece->nodes = merge->nodes - merge->kept_nodes;
		piece->codes = merge->codes;
	}
	for (int i = 0; i < merge->narrays; i++)
		GgListArray(meta, &merge->arrays[i]);
}

/* Put the merged segment in its inputs' place. */
static void
ReplaceInputs(GgMerge *merge, GgMetaPageData *meta, uint64 xid)
{
	GgForgetTaken(meta, merge->id);
	for (int i = 0; i < merge->plan->ninputs; i++)
		RemoveInput(merge, meta, &merge->plan->inputs[i], xid);
	if (merge->nodes > 0 &&
		(meta->nsegments >= GG_MAX_SEGMENTS ||
		 meta->npieces + (merge->nodes > merge->kept_nodes) > GG_MAX_PIECES))
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("gpugraph index would have more than %d segments or %d pieces",
						GG_MAX_SEGMENTS, GG_MAX_PIECES),
				 errhint("Increase maintenance_work_mem and call gpugraph_merge().")));
	if (merge->nodes > 0)
		AddMerged(merge, meta);
	meta->generation++;
}

/* Are all inputs there?  False: VACUUM has given back a segment, which has no rows any more. */
static bool
HasInputs(const GgMerge *merge, const GgMetaPageData *meta)
{
	for (int i = 0; i < merge->plan->ninputs; i++)
		if (!merge->plan->inputs[i].delta &&
			GgFindSegment(meta, merge->plan->inputs[i].segment.id) == NULL)
			return false;
	return true;
}

/* How long to wait for a load of the index that is under way. */
#define BUSY_MS				2000
#define BUSY_LOOK_MS		20

/*
 * Before the flip bring the merged segment to the devices that have the index, so no query is left
 * to the CPU.  A background worker does not lock the index meanwhile.  False: inputs are gone.
 */
static bool
BringToDevice(GgMerge *merge)
{
	GgMergeTarget *target = merge->target;
	MemoryContext context = CurrentMemoryContext;
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	uint64		nodes = merge->nodes;
	GgLoad	   *load;
	bool		busy;
	uint32		list;

	GgTellPhase(merge, GG_MERGE_DEVICE, merge->nodes);
	for (int waited_ms = 0;; waited_ms += BUSY_LOOK_MS)
	{
		GgBeginSlice(target);
		GgReadMeta(target->index, meta);
		if (!HasInputs(merge, meta))
		{
			GgEndSlice(target);
			return false;
		}
		ReplaceInputs(merge, meta, 0);
		load = GgLoadAhead(target->index, meta, waited_ms < BUSY_MS, &busy);
		if (!busy)
			break;
		GgEndSlice(target);
		pg_usleep(BUSY_LOOK_MS * 1000L);
	}
	list = meta->nsegments - 1;
	if (target->sliced)
	{
		relation_close(target->index, RowExclusiveLock);
		relation_close(target->heap, RowExclusiveLock);
		target->index = target->heap = NULL;
		/* without a snapshot, so VACUUM may remove what is deleted meanwhile */
		InvalidateCatalogSnapshot();
	}
	if (load != NULL && GgLoadOpen(load))
	{
		if (merge->records != NULL)
			GgLoadWrite(load, list, GG_PART_CODES, 0, merge->records,
						nodes * GgCodeBytes(meta, merge->codes));
		else
			GgLoadWrite(load, list, GG_PART_ROWS, 0, merge->rows, nodes * GgRowBytes(meta));
		GgLoadWrite(load, list, GG_PART_ADJACENCY, 0, merge->graph->adjacency,
					nodes * meta->graph_degree * sizeof(uint32));
		GgLoadWrite(load, list, GG_PART_PIVOTS, 0, merge->pivots,
					(uint64) merge->graph->npivots * sizeof(GgPivotEntry));
		GgLoadWrite(load, list, GG_PART_TIDS, 0, merge->merged_tids,
					(uint64) merge->nrows * sizeof(GgTidEntry));
		GgLoadWrite(load, list, GG_PART_FILTERS, 0, merge->words,
					(uint64) merge->nrows * GgFilterBytes(meta));
		if (!GgIsPlain(merge))
			GgLoadWrite(load, list, GG_PART_OFFSETS, 0, merge->offsets,
						(nodes + 1) * sizeof(uint32));
		GgLoadEnd(load);
	}
	if (target->sliced)
		CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	pfree(meta);
	return true;
}

/*
 * Has VACUUM cleared rows of an input since its TIDs were read?  A segment's number only grows, and
 * it does whenever VACUUM has gone through it and rows were cleared since the time before.  The
 * delta's number sinks with each flip, so the epoch tells of the delta.
 */
static bool
IsStale(const GgMerge *merge, const GgMetaPageData *meta, const GgMergeInput *input)
{
	if (input->delta)
		return meta->vacuum_epoch != merge->epoch;
	return GgFindSegment(meta, input->segment.id)->dead != input->dead;
}

static bool
AnyIsStale(const GgMerge *merge, const GgMetaPageData *meta)
{
	for (int i = 0; i < merge->plan->ninputs; i++)
		if (IsStale(merge, meta, &merge->plan->inputs[i]))
			return true;
	return false;
}

/* Read the TIDs of stale inputs again.  False: inputs are gone. */
static bool
ReadStaleTids(GgMerge *merge)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	bool		there;

	GgBeginSlice(merge->target);
	GgReadMeta(merge->target->index, meta);
	there = HasInputs(merge, meta);
	GgEndSlice(merge->target);
	for (int i = 0; there && i < merge->plan->ninputs; i++)
	{
		GgMergeInput *input = &merge->plan->inputs[i];

		if (!IsStale(merge, meta, input))
			continue;
		if (input->delta)
			merge->epoch = meta->vacuum_epoch;
		else
			input->dead = GgFindSegment(meta, input->segment.id)->dead;
		GgReadTids(merge->target, merge->meta, input, merge->tids);
	}
	pfree(meta);
	return there;
}

/*
 * Flip the directory.  False, and nothing is done, where an input's TIDs are to be read again, or
 * an input is gone.
 */
static bool
Flip(GgMerge *merge)
{
	Relation	index = merge->target->index;
	FullTransactionId own;
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	Buffer		metabuf;
	uint64		xid;

	own = IsInParallelMode() ? InvalidFullTransactionId : GetTopFullTransactionId();
	metabuf = GgLockDirectory(index, meta);
	if (!HasInputs(merge, meta) || AnyIsStale(merge, meta))
	{
		UnlockReleaseBuffer(metabuf);
		pfree(meta);
		return false;
	}
	xid = GgParkingFault(GgParkingXid(own));
	if (merge->target->within)
		GgWithinLockedFault();
	ReplaceInputs(merge, meta, xid);
	GgMergeFree(meta);
	GgStoreMeta(index, merge->target->heap, metabuf, meta);
	GgNoteFlip(index, meta);
	pfree(meta);
	return true;
}

bool
GgFinishMerge(GgMerge *merge)
{
	GgNewArray *array = NULL;
	bool		done = false;

	merge->merged_tids = MemoryContextAllocExtended(CurrentMemoryContext,
													Max(merge->nrows, 1) * sizeof(GgTidEntry),
													MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	while (!done)
	{
		if (!ReadStaleTids(merge))
			return false;
		UpdateTids(merge, array);
		CountDead(merge);
		if (array == NULL && merge->nrows > 0)
		{
			array = WriteArray(merge, GG_KIND_TIDS, merge->merged_tids,
							   (uint64) merge->nrows * sizeof(GgTidEntry));
			if (!BringToDevice(merge))
				return false;
			/* the device has what this flip leads to, so no other may come before it */
			if (!merge->target->within)
				merge->target->meanwhile = NULL;
		}
		GgBeginSlice(merge->target);
		GgHold(GG_FAULT_HOLD_MERGE);
		done = Flip(merge);
		GgEndSlice(merge->target);
	}
	return true;
}
