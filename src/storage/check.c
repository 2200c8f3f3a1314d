/*
 * check.c
 *		gpugraph_check(): verifies an index, page by page, and on request against its table.
 *
 * The first finding is raised as an error that names the block and the cause.  In order:
 *	1. the directory: extents inside the relation and disjoint, arrays as long as their contents
 *	2. the delta, page by page, the last one first
 *	3. each segment's arrays, every page's stamp and length first: rows finite, adjacency lists
 *	   well-formed, pivots distinct and their graph connected, no fewer TIDs cleared than the
 *	   directory says, offsets monotone
 *	4. each segment's graph: every node reachable from the pivots
 *	5. with heap_check, TIDs against the table both ways: no TID twice, none that points at an
 *	   unused line pointer, and no row visible to a snapshot taken at the start without its TID
 *
 * Locks: AccessShare, as for a query, so inserts and VACUUM go on meanwhile.  A registered snapshot
 * keeps all that the copied directory names, as for a scan.  Why their changes are not taken for
 * faults:
 *
 *	- a TID is cleared once and never set again, so pages have at least as many cleared TIDs as an
 *	  older directory counts
 *	- rows are appended to the delta's last page only, which is read before all other TIDs.  A TID
 *	  met later was there already at that time, so a TID met twice was there twice at one time
 *	- VACUUM clears a TID before its line pointer is free.  A TID whose line pointer is found unused
 *	  is a suspect, and a fault if the index has it when it is read once more (CheckSuspects)
 *
 * WAL has these changes in the same order, so all this holds on a standby, too.
 *
 * Memory: a bit and 4 bytes for each node of the largest segment; its adjacency too where that fits
 * maintenance_work_mem (it is read node by node where not); two sorts within maintenance_work_mem.
 */
#include "storage/pages.h"
#include "storage/type.h"

#include <math.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"
#include "utils/tuplesort.h"

#include "storage/inspect.h"

/* Suspects that are looked for at a time; each time reads all TIDs of the index. */
#define MAX_SUSPECTS	65536

typedef struct Check
{
	Relation	index;
	Relation	heap;
	const GgMetaPageData *meta;
	BufferAccessStrategy strategy;
	bool		heap_check;
	Tuplesortstate *tids;		/* heap_check: all valid TIDs of the index, as TidKey() */
	uint32		last_count;		/* rows on the delta's last page when it was first read; 0 before */
	int64	   *suspects;		/* ascending keys of TIDs whose line pointer was unused */
	uint32		nsuspects;
	bool		again;			/* CheckSuspects() reads the TIDs once more */
	bool		twice;			/* the suspect is one that is in the index twice */
	const GgOpclass *opclass;
	Size		row_bytes;
	void	   *row;			/* one vector */
} Check;

/* Reads one array front to back, checking each page before anything on it is used. */
typedef struct Reader
{
	Check	   *check;
	GgArray		array;
	uint64		bytes;			/* of the whole array */
	uint64		position;
	uint32		number;			/* of the page in the copy */
	BlockNumber blkno;			/* of the page in the copy */
	Size		used;			/* payload bytes of the copy already handed out */
	PGAlignedBlock page;
} Reader;

static const char *
KindName(uint16 kind)
{
	static const char *const names[] = {
		[GG_KIND_META] = "metapage",
		[GG_KIND_VECTORS] = "vectors",
		[GG_KIND_ADJACENCY] = "adjacency",
		[GG_KIND_TIDS] = "tids",
		[GG_KIND_PIVOTS] = "pivots",
		[GG_KIND_OFFSETS] = "offsets",
		[GG_KIND_DELTA] = "delta",
		[GG_KIND_FREE] = "free"
	};

	return kind >= GG_KIND_META && kind <= GG_LAST_KIND ? names[kind] : "unknown";
}

/* A TID as a number that sorts in the order of the heap. */
static int64
TidKey(const ItemPointerData *tid)
{
	return ((int64) ItemPointerGetBlockNumberNoCheck(tid) << 16) | ItemPointerGetOffsetNumberNoCheck(tid);
}

/* ---- pages ------------------------------------------------------------- */

/* Copy one page, its header and stamp checked. */
static void
ReadCheckedPage(Check *check, BlockNumber blkno, uint32 segment, GgKind kind, uint32 number, Page copy)
{
	Buffer		buffer;
	Page		page;
	PageHeader	header = (PageHeader) copy;
	GgPageStamp *stamp;

	CHECK_FOR_INTERRUPTS();
	buffer = ReadBufferExtended(check->index, MAIN_FORKNUM, blkno, RBM_NORMAL, check->strategy);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	memcpy(copy, page, BLCKSZ);
	UnlockReleaseBuffer(buffer);

	if (PageIsNew(copy))
		GgReportCorruption(check->index, blkno, "the page is empty, where page %u of %s should be",
						   number, KindName(kind));
	if (PageGetPageSize(copy) != BLCKSZ || header->pd_upper > BLCKSZ ||
		header->pd_special != BLCKSZ - MAXALIGN(sizeof(GgPageStamp)) ||
		header->pd_lower < MAXALIGN(SizeOfPageHeaderData) || header->pd_lower > header->pd_special)
		GgReportCorruption(check->index, blkno, "the page header is damaged (lower %u, upper %u, special %u)",
						   header->pd_lower, header->pd_upper, header->pd_special);

	stamp = GgPageGetStamp(copy);
	if (stamp->instance != check->meta->instance)
		GgReportCorruption(check->index, blkno, "the page is stamped with another build of the index");
	if (stamp->kind != kind)
		GgReportCorruption(check->index, blkno, "the page is stamped %s (%u) instead of %s",
						   KindName(stamp->kind), stamp->kind, KindName(kind));
	if (stamp->segment != segment)
		GgReportCorruption(check->index, blkno, "the %s page is stamped with segment %u instead of %u",
						   KindName(kind), stamp->segment, segment);
	if (stamp->number != number)
		GgReportCorruption(check->index, blkno, "the %s page is stamped with number %u instead of %u",
						   KindName(kind), stamp->number, number);
	if (kind != GG_KIND_DELTA && stamp->count != 0)
		GgReportCorruption(check->index, blkno, "the %s page is stamped with a count of %u rows",
						   KindName(kind), stamp->count);
}

/* ---- arrays, front to back --------------------------------------------- */

static void
ReaderBegin(Reader *reader, Check *check, const GgSegment *segment, GgKind kind, uint64 bytes)
{
	reader->check = check;
	GgFindArray(check->meta, segment->id, kind, &reader->array);
	reader->bytes = bytes;
	reader->position = 0;
	reader->number = 0;
	reader->blkno = InvalidBlockNumber;
	reader->used = GG_PAGE_PAYLOAD;
}

static void
ReaderNextPage(Reader *reader)
{
	Check	   *check = reader->check;
	Page		page = (Page) reader->page.data;
	uint64		left = reader->bytes - reader->position;
	Size		expected = Min(left, (uint64) GG_PAGE_PAYLOAD);
	Size		found;

	reader->number = (uint32) (reader->position / GG_PAGE_PAYLOAD);
	reader->blkno = GgArrayBlock(&reader->array, reader->number);
	ReadCheckedPage(check, reader->blkno, reader->array.segment, reader->array.kind, reader->number, page);
	found = GgPayloadBytes(page);
	if (found != expected)
		GgReportCorruption(check->index, reader->blkno, "the %s page holds %zu bytes instead of %zu",
						   KindName(reader->array.kind), found, expected);
	reader->used = 0;
}

/* The next len bytes of the array; returns the block on which they start. */
static BlockNumber
ReaderNext(Reader *reader, void *dst, Size len)
{
	BlockNumber first = InvalidBlockNumber;
	char	   *to = dst;

	while (len > 0)
	{
		Size		piece;

		if (reader->used == GG_PAGE_PAYLOAD)
			ReaderNextPage(reader);
		if (first == InvalidBlockNumber)
			first = reader->blkno;
		piece = Min(len, GG_PAGE_PAYLOAD - reader->used);
		memcpy(to, PageGetContents((Page) reader->page.data) + reader->used, piece);
		reader->used += piece;
		reader->position += piece;
		to += piece;
		len -= piece;
	}
	return first;
}

static void
ReaderEnd(Reader *reader)
{
	Assert(reader->position == reader->bytes);
	if (reader->array.extents != NULL)
		pfree(reader->array.extents);
}

/* ---- the directory ----------------------------------------------------- */

static int
CompareExtents(const void *a, const void *b)
{
	const GgExtent *left = a;
	const GgExtent *right = b;

	return left->start < right->start ? -1 : left->start > right->start;
}

static const GgSegment *
FindSegment(const GgMetaPageData *meta, uint32 id)
{
	for (int i = 0; i < meta->nsegments; i++)
		if (meta->segments[i].id == id)
			return &meta->segments[i];
	return NULL;
}

/* What GgReadMeta() has not looked at. */
static void
CheckDirectory(Check *check)
{
	const GgMetaPageData *meta = check->meta;
	BlockNumber nblocks = RelationGetNumberOfBlocks(check->index);
	BlockNumber next = GG_META_BLKNO;
	GgExtent   *extents;

	if (meta->graph_degree < GG_MIN_GRAPH_DEGREE || meta->graph_degree > GG_MAX_GRAPH_DEGREE)
		GgReportCorruption(check->index, GG_META_BLKNO, "the graph degree is %u", meta->graph_degree);

	for (int i = 0; i < meta->nsegments; i++)
	{
		const GgSegment *segment = &meta->segments[i];

		if (segment->id >= meta->next_segment || FindSegment(meta, segment->id) != segment)
			GgReportCorruption(check->index, GG_META_BLKNO, "the directory has segment %u twice, or too early",
							   segment->id);
	}

	extents = palloc(sizeof(GgExtent) * Max(meta->nextents, 1));
	memcpy(extents, meta->extents, sizeof(GgExtent) * meta->nextents);
	qsort(extents, meta->nextents, sizeof(GgExtent), CompareExtents);
	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &extents[i];

		if (extent->start >= nblocks || extent->nblocks > nblocks - extent->start ||
			(extent->kind == GG_KIND_META && extent->nblocks != 1))
			GgReportCorruption(check->index, GG_META_BLKNO,
							   "the %s extent of %u blocks at block %u is not inside the relation of %u blocks",
							   KindName(extent->kind), extent->nblocks, extent->start, nblocks);
		if (extent->start < next)
			GgReportCorruption(check->index, GG_META_BLKNO,
							   "the %s extent at block %u overlaps the extent before it, which ends at block %u",
							   KindName(extent->kind), extent->start, next - 1);
		next = extent->start + extent->nblocks;
		if (extent->kind == GG_KIND_META || extent->kind == GG_KIND_DELTA || extent->kind == GG_KIND_FREE)
		{
			if (extent->segment != GG_NO_SEGMENT)
				GgReportCorruption(check->index, GG_META_BLKNO, "the %s extent at block %u belongs to segment %u",
								   KindName(extent->kind), extent->start, extent->segment);
		}
		else if (FindSegment(meta, extent->segment) == NULL)
			GgReportCorruption(check->index, GG_META_BLKNO,
							   "the %s extent at block %u belongs to segment %u, which is not there",
							   KindName(extent->kind), extent->start, extent->segment);
	}
	pfree(extents);
}

/* ---- a segment --------------------------------------------------------- */

static bool
RowIsFinite(const Check *check)
{
	uint32		dimensions = check->meta->dimensions;

	if (check->meta->element == GG_ELEMENT_F16)
	{
		const uint16 *halves = check->row;

		/* exponent all ones: infinity or NaN */
		for (uint32 i = 0; i < dimensions; i++)
			if ((halves[i] & 0x7C00) == 0x7C00)
				return false;
	}
	else
	{
		const float *floats = check->row;

		for (uint32 i = 0; i < dimensions; i++)
			if (!isfinite(floats[i]))
				return false;
	}
	return true;
}

/* A longer one may have been inserted since the directory was copied: then the metapage says so by now. */
static void
CheckLength(Check *check, BlockNumber blkno)
{
	float		length = GgRowLength(check->opclass, check->meta, check->row);
	float		largest = check->meta->largest_length;

	if (length > largest)
	{
		GgMetaPageData *meta;
		Buffer		buffer = GgLockMeta(check->index, BUFFER_LOCK_SHARE, &meta);

		largest = meta->largest_length;
		UnlockReleaseBuffer(buffer);
	}
	if (length > largest)
		GgReportCorruption(check->index, blkno, "a vector has length %g, the metapage says that none is longer than %g",
						   length, largest);
}

static void
CheckVectors(Check *check, const GgSegment *segment)
{
	Reader		reader;

	ReaderBegin(&reader, check, segment, GG_KIND_VECTORS, (uint64) segment->nodes * check->row_bytes);
	for (uint32 node = 0; node < segment->nodes; node++)
	{
		BlockNumber blkno = ReaderNext(&reader, check->row, check->row_bytes);

		if (!RowIsFinite(check))
			GgReportCorruption(check->index, blkno, "the vector of node %u has an element that is not finite", node);
		CheckLength(check, blkno);
	}
	ReaderEnd(&reader);
}

static int
CompareIds(const void *a, const void *b)
{
	uint32		left = *(const uint32 *) a;
	uint32		right = *(const uint32 *) b;

	return left < right ? -1 : left > right;
}

/* A list of ids below limit: in range, unused slots only at the end, none twice, self not among them. */
static void
CheckList(Check *check, BlockNumber blkno, const char *what, uint32 self, const uint32 *list, uint32 degree,
		  uint32 limit)
{
	uint32		sorted[GG_MAX_DEGREE];
	uint32		used = 0;

	while (used < degree && list[used] != GG_NO_NODE)
		used++;
	for (uint32 i = 0; i < degree; i++)
	{
		if (i >= used && list[i] != GG_NO_NODE)
			GgReportCorruption(check->index, blkno, "the list of %s %u goes on after an unused slot", what, self);
		if (i >= used)
			continue;
		if (list[i] >= limit)
			GgReportCorruption(check->index, blkno, "the list of %s %u has id %u, of %u", what, self, list[i], limit);
		if (list[i] == self)
			GgReportCorruption(check->index, blkno, "the list of %s %u has %u itself", what, self, self);
	}

	memcpy(sorted, list, sizeof(uint32) * used);
	qsort(sorted, used, sizeof(uint32), CompareIds);
	for (uint32 i = 1; i < used; i++)
		if (sorted[i] == sorted[i - 1])
			GgReportCorruption(check->index, blkno, "the list of %s %u has id %u twice", what, self, sorted[i]);
}

/* Also copies the lists to adjacency, unless that is NULL. */
static void
CheckAdjacency(Check *check, const GgSegment *segment, uint32 *adjacency)
{
	uint32		degree = check->meta->graph_degree;
	uint32		list[GG_MAX_DEGREE];
	Reader		reader;

	ReaderBegin(&reader, check, segment, GG_KIND_ADJACENCY, (uint64) segment->nodes * degree * sizeof(uint32));
	for (uint32 node = 0; node < segment->nodes; node++)
	{
		BlockNumber blkno = ReaderNext(&reader, list, degree * sizeof(uint32));

		CheckList(check, blkno, "node", node, list, degree, segment->nodes);
		if (adjacency != NULL)
			memcpy(adjacency + (uint64) node * degree, list, degree * sizeof(uint32));
	}
	ReaderEnd(&reader);
}

/* The nodes seen so far: a bitmap, and in order of discovery. */
typedef struct Seen
{
	uint64	   *words;
	uint32	   *queue;
	uint32		count;
} Seen;

static void
SeenInit(Seen *seen, uint32 n)
{
	seen->words = palloc_extended(sizeof(uint64) * (n / 64 + 1), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	seen->queue = palloc_extended(sizeof(uint32) * (Size) n, MCXT_ALLOC_HUGE);
	seen->count = 0;
}

static bool
SeenAdd(Seen *seen, uint32 i)
{
	if (seen->words[i / 64] & (UINT64CONST(1) << (i % 64)))
		return false;
	seen->words[i / 64] |= UINT64CONST(1) << (i % 64);
	seen->queue[seen->count++] = i;
	return true;
}

static void
SeenFree(Seen *seen)
{
	pfree(seen->words);
	pfree(seen->queue);
}

/* Leaves the nodes of all pivots in *nodes. */
static void
CheckPivots(Check *check, const GgSegment *segment, Seen *nodes)
{
	uint32		n = segment->npivots;
	GgPivotEntry *pivots = palloc_extended(sizeof(GgPivotEntry) * (Size) n, MCXT_ALLOC_HUGE);
	BlockNumber first = InvalidBlockNumber;
	Seen		reached;
	Reader		reader;

	ReaderBegin(&reader, check, segment, GG_KIND_PIVOTS, (uint64) n * sizeof(GgPivotEntry));
	for (uint32 i = 0; i < n; i++)
	{
		BlockNumber blkno = ReaderNext(&reader, &pivots[i], sizeof(GgPivotEntry));

		if (first == InvalidBlockNumber)
			first = blkno;
		if (pivots[i].node >= segment->nodes)
			GgReportCorruption(check->index, blkno, "pivot %u is node %u, of %u", i, pivots[i].node, segment->nodes);
		if (!SeenAdd(nodes, pivots[i].node))
			GgReportCorruption(check->index, blkno, "pivot %u is node %u, as a pivot before it", i, pivots[i].node);
		CheckList(check, blkno, "pivot", i, pivots[i].neighbors, GG_PIVOT_DEGREE, n);
	}
	ReaderEnd(&reader);

	SeenInit(&reached, n);
	SeenAdd(&reached, 0);
	for (uint32 next = 0; next < reached.count; next++)
	{
		const GgPivotEntry *pivot = &pivots[reached.queue[next]];

		for (uint32 j = 0; j < GG_PIVOT_DEGREE && pivot->neighbors[j] != GG_NO_NODE; j++)
			SeenAdd(&reached, pivot->neighbors[j]);
	}
	if (reached.count != n)
		GgReportCorruption(check->index, first, "only %u of %u pivots of segment %u can be reached from the first",
						   reached.count, n, segment->id);
	SeenFree(&reached);
	pfree(pivots);
}

/* Every node must be reachable from the pivots, which *nodes holds already. */
static void
CheckReachable(Check *check, const GgSegment *segment, const uint32 *adjacency, Seen *nodes)
{
	uint32		degree = check->meta->graph_degree;
	uint32		list[GG_MAX_DEGREE];
	GgArray		array;

	GgFindArray(check->meta, segment->id, GG_KIND_ADJACENCY, &array);
	for (uint32 next = 0; next < nodes->count; next++)
	{
		uint64		first = (uint64) nodes->queue[next] * degree;
		const uint32 *neighbors = list;

		if (next % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
		if (adjacency != NULL)
			neighbors = adjacency + first;
		else
			GgReadArray(check->index, check->meta->instance, &array, first * sizeof(uint32), list,
						degree * sizeof(uint32));

		/* in range: CheckAdjacency() was here */
		for (uint32 j = 0; j < degree && neighbors[j] != GG_NO_NODE; j++)
			SeenAdd(nodes, neighbors[j]);
	}

	if (nodes->count != segment->nodes)
	{
		uint32		lost = 0;

		while (nodes->words[lost / 64] & (UINT64CONST(1) << (lost % 64)))
			lost++;
		GgReportCorruption(check->index,
						   GgArrayBlock(&array, (uint32) ((uint64) lost * degree * sizeof(uint32) / GG_PAGE_PAYLOAD)),
						   "%u of %u nodes of segment %u cannot be reached from its pivots, the first being node %u",
						   segment->nodes - nodes->count, segment->nodes, segment->id, lost);
	}
}

static int
CompareKeys(const void *a, const void *b)
{
	int64		left = *(const int64 *) a;
	int64		right = *(const int64 *) b;

	return left < right ? -1 : left > right;
}

/* The index has the TID at blkno, as it had before its line pointer was looked at. */
static void
LookForSuspect(Check *check, BlockNumber blkno, int64 key)
{
	if (bsearch(&key, check->suspects, check->nsuspects, sizeof(int64), CompareKeys) != NULL)
		GgReportCorruption(check->index, blkno, check->twice ?
						   "the TID (%u,%u) is in the index twice" :
						   "the TID (%u,%u) points at an unused line pointer of the table",
						   (BlockNumber) (key >> 16), (OffsetNumber) (key & 0xFFFF));
}

/* Account for one TID; false when VACUUM has cleared it. */
static bool
CheckTid(Check *check, BlockNumber blkno, const ItemPointerData *tid)
{
	if (!ItemPointerIsValid(tid))
		return false;
	if (ItemPointerGetOffsetNumber(tid) > MaxOffsetNumber || !BlockNumberIsValid(ItemPointerGetBlockNumber(tid)))
		GgReportCorruption(check->index, blkno, "the TID (%u,%u) is out of range",
						   ItemPointerGetBlockNumber(tid), ItemPointerGetOffsetNumber(tid));
	if (check->again)
		LookForSuspect(check, blkno, TidKey(tid));
	else if (check->tids != NULL)
		tuplesort_putdatum(check->tids, Int64GetDatum(TidKey(tid)), false);
	return true;
}

static void
CheckTids(Check *check, const GgSegment *segment)
{
	BlockNumber first = InvalidBlockNumber;
	uint32		dead = 0;
	Reader		reader;

	ReaderBegin(&reader, check, segment, GG_KIND_TIDS, (uint64) segment->rows * sizeof(GgTidEntry));
	for (uint32 row = 0; row < segment->rows; row++)
	{
		GgTidEntry	entry;
		BlockNumber blkno = ReaderNext(&reader, &entry, sizeof(entry));

		if (first == InvalidBlockNumber)
			first = blkno;
		if (!CheckTid(check, blkno, &entry.tid))
			dead++;
	}
	ReaderEnd(&reader);

	/* after a crash the directory may lag behind the pages until the next VACUUM; it never leads */
	if (dead < segment->dead)
		GgReportCorruption(check->index, first, "segment %u has %u cleared TIDs, the directory says %u",
						   segment->id, dead, segment->dead);
}

/* First row of each node: 0 at first, rows at last, and every node with a row. */
static void
CheckOffsets(Check *check, const GgSegment *segment)
{
	uint32		before = 0;
	Reader		reader;

	if (segment->rows == segment->nodes)
	{
		ReaderBegin(&reader, check, segment, GG_KIND_OFFSETS, 0);
		return;
	}

	ReaderBegin(&reader, check, segment, GG_KIND_OFFSETS, ((uint64) segment->nodes + 1) * sizeof(uint32));
	for (uint32 node = 0; node <= segment->nodes; node++)
	{
		uint32		offset;
		BlockNumber blkno = ReaderNext(&reader, &offset, sizeof(offset));

		if (node == 0 ? offset != 0 : offset <= before)
			GgReportCorruption(check->index, blkno, "the rows of node %u start at %u, those before it at %u",
							   node, offset, before);
		if (offset > segment->rows || (node == segment->nodes && offset != segment->rows))
			GgReportCorruption(check->index, blkno, "the rows of node %u start at %u, of %u rows",
							   node, offset, segment->rows);
		before = offset;
	}
	ReaderEnd(&reader);
}

static void
CheckSegment(Check *check, const GgSegment *segment)
{
	Size		adjacency_bytes = (Size) segment->nodes * check->meta->graph_degree * sizeof(uint32);
	uint32	   *adjacency = NULL;
	Seen		nodes;

	if (adjacency_bytes / 1024 <= (Size) maintenance_work_mem)
		adjacency = palloc_extended(adjacency_bytes, MCXT_ALLOC_HUGE);
	SeenInit(&nodes, segment->nodes);

	CheckVectors(check, segment);
	CheckAdjacency(check, segment, adjacency);
	CheckPivots(check, segment, &nodes);
	CheckReachable(check, segment, adjacency, &nodes);
	CheckTids(check, segment);
	CheckOffsets(check, segment);

	SeenFree(&nodes);
	if (adjacency != NULL)
		pfree(adjacency);
}

/* ---- the delta --------------------------------------------------------- */

/* One row whose first page is in page, at offset bytes of its payload. */
static bool
CheckDeltaRow(Check *check, const GgArray *array, uint32 number, Page page, Size offset, BlockNumber blkno)
{
	const char *payload = PageGetContents(page);
	GgDeltaRow	head;
	Size		have = Min(check->row_bytes, GG_PAGE_PAYLOAD - offset - sizeof(head));
	PGAlignedBlock next;

	memcpy(&head, payload + offset, sizeof(head));
	memcpy(check->row, payload + offset + sizeof(head), have);
	while (have < check->row_bytes)
	{
		Size		piece = Min(check->row_bytes - have, GG_PAGE_PAYLOAD);
		BlockNumber next_blkno = GgArrayBlock(array, ++number);

		ReadCheckedPage(check, next_blkno, GG_NO_SEGMENT, GG_KIND_DELTA, number, (Page) next.data);
		if (GgPayloadBytes((Page) next.data) != piece || GgPageGetStamp((Page) next.data)->count != 0)
			GgReportCorruption(check->index, next_blkno, "the delta page holds %zu bytes and %u rows, not %zu bytes of a row",
							   GgPayloadBytes((Page) next.data), GgPageGetStamp((Page) next.data)->count, piece);
		memcpy((char *) check->row + have, PageGetContents((Page) next.data), piece);
		have += piece;
	}
	if (!RowIsFinite(check))
		GgReportCorruption(check->index, blkno, "a vector of the delta has an element that is not finite");
	CheckLength(check, blkno);
	return CheckTid(check, blkno, &head.tid);
}

static void
CheckDelta(Check *check)
{
	const GgMetaPageData *meta = check->meta;
	GgArray		array;
	PGAlignedBlock copy;
	Page		page = (Page) copy.data;
	uint32		dead = 0;
	uint32		pages_per_row;

	if (meta->delta_pages == 0)
		return;
	GgFindArray(meta, GG_NO_SEGMENT, GG_KIND_DELTA, &array);
	pages_per_row = GgDeltaPagesPerRow(meta);

	/* the first page of each row or, where rows are shorter than a page, every page */
	for (uint32 rest = meta->delta_pages; rest > 0; rest -= pages_per_row)
	{
		uint32		number = meta->delta_first + rest - pages_per_row;
		BlockNumber blkno = GgArrayBlock(&array, number);
		uint32		count;
		Size		expected;

		ReadCheckedPage(check, blkno, GG_NO_SEGMENT, GG_KIND_DELTA, number, page);
		count = GgPageGetStamp(page)->count;
		if (count == 0 || count > GgDeltaRowsPerPage(meta))
			GgReportCorruption(check->index, blkno, "the delta page counts %u rows, and has room for %u",
							   count, GgDeltaRowsPerPage(meta));
		expected = Min(count * GgDeltaRowBytes(meta), GG_PAGE_PAYLOAD);
		if (GgPayloadBytes(page) != expected)
			GgReportCorruption(check->index, blkno, "the delta page holds %zu bytes instead of %zu",
							   GgPayloadBytes(page), expected);
		if (rest == meta->delta_pages)
		{
			/* of rows that came since nothing is known */
			if (check->last_count == 0)
				check->last_count = count;
			count = Min(count, check->last_count);
		}
		for (uint32 i = 0; i < count; i++)
			if (!CheckDeltaRow(check, &array, number, page, i * GgDeltaRowBytes(meta), blkno))
				dead++;
	}

	if (dead < meta->delta_dead)
		GgReportCorruption(check->index, GG_META_BLKNO, "the delta has %u cleared TIDs, the directory says %u",
						   dead, meta->delta_dead);
}

/* ---- against the table ------------------------------------------------- */

typedef struct HeapRows
{
	Tuplesortstate *tids;
	const GgOpclass *opclass;
	gg_element	stored;			/* in the index */
	void	   *row;
} HeapRows;

static void
CollectHeapRow(Relation index, ItemPointer tid, Datum *values, bool *isnull, bool tupleIsAlive, void *state)
{
	HeapRows   *rows = state;
	struct varlena *value;
	bool		indexed;

	(void) index;
	(void) tupleIsAlive;		/* every row visible to the snapshot counts */
	if (isnull[0])
		return;

	value = PG_DETOAST_DATUM(values[0]);
	indexed = GgValueToRow(rows->opclass, rows->stored, PointerGetDatum(value),
						   GgValueDimensions(rows->opclass, PointerGetDatum(value)), rows->row);
	if ((Pointer) value != DatumGetPointer(values[0]))
		pfree(value);
	if (indexed)
		tuplesort_putdatum(rows->tids, Int64GetDatum(TidKey(tid)), false);
}

static bool
NextTid(Tuplesortstate *tids, int64 *key)
{
	Datum		value;
	bool		isnull;

	if (!GgTuplesortGetDatum(tids, &value, &isnull))
		return false;
	*key = DatumGetInt64(value);
	return true;
}

/* Index TIDs come here in the order of the heap, so that each heap page is read once. */
typedef struct HeapPage
{
	Buffer		buffer;
	BlockNumber nblocks;
} HeapPage;

static bool
LinePointerIsUsed(Check *check, HeapPage *current, int64 key)
{
	BlockNumber blkno = (BlockNumber) (key >> 16);
	OffsetNumber offset = (OffsetNumber) (key & 0xFFFF);
	bool		used;
	Page		page;

	if (blkno >= current->nblocks)
	{
		/* the table may have grown since; our lock keeps it from being truncated */
		current->nblocks = RelationGetNumberOfBlocks(check->heap);
		if (blkno >= current->nblocks)
			GgReportCorruption(check->index, GG_META_BLKNO, "the TID (%u,%u) lies behind the end of the table",
							   blkno, offset);
	}

	/* what an address within a page means is known for heap tables only */
	if (check->heap->rd_rel->relam != HEAP_TABLE_AM_OID)
		return true;

	if (!BufferIsValid(current->buffer) || BufferGetBlockNumber(current->buffer) != blkno)
	{
		CHECK_FOR_INTERRUPTS();
		if (BufferIsValid(current->buffer))
			ReleaseBuffer(current->buffer);
		current->buffer = ReadBufferExtended(check->heap, MAIN_FORKNUM, blkno, RBM_NORMAL, check->strategy);
	}
	LockBuffer(current->buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(current->buffer);
	used = offset <= PageGetMaxOffsetNumber(page) && ItemIdIsUsed(PageGetItemId(page, offset));
	LockBuffer(current->buffer, BUFFER_LOCK_UNLOCK);
	return used;
}

/* Raise an error if the index still has one of the suspects: VACUUM may have cleared them since. */
static void
CheckSuspects(Check *check)
{
	if (check->nsuspects == 0)
		return;
	check->again = true;
	CheckDelta(check);
	for (int i = 0; i < check->meta->nsegments; i++)
		CheckTids(check, &check->meta->segments[i]);
	check->again = false;
	check->nsuspects = 0;
}

/* To name its block the TID is looked for once more, but VACUUM may have cleared it by now. */
static void
ReportTwice(Check *check, int64 key)
{
	check->suspects[0] = key;
	check->nsuspects = 1;
	check->twice = true;
	CheckSuspects(check);
	GgReportCorruption(check->index, GG_META_BLKNO, "the TID (%u,%u) was in the index twice",
					   (BlockNumber) (key >> 16), (OffsetNumber) (key & 0xFFFF));
}

/* The TIDs of the index and those of the table's visible rows, both sorted. */
static void
CompareTids(Check *check, Tuplesortstate *heap_tids)
{
	HeapPage	current = {InvalidBuffer, RelationGetNumberOfBlocks(check->heap)};
	Tuplesortstate *index_tids = check->tids;
	int64		in_index = -1,
				in_heap = -1,
				before = -1;
	bool		more_index = NextTid(index_tids, &in_index);
	bool		more_heap = NextTid(heap_tids, &in_heap);

	while (more_index || more_heap)
	{
		if (!more_index || (more_heap && in_heap < in_index))
			ereport(ERROR,
					(errcode(ERRCODE_INDEX_CORRUPTED),
					 errmsg("index \"%s\" lacks row (%u,%u) of table \"%s\"",
							RelationGetRelationName(check->index),
							(BlockNumber) (in_heap >> 16), (OffsetNumber) (in_heap & 0xFFFF),
							RelationGetRelationName(check->heap)),
					 errhint("REINDEX the index.")));

		if (in_index == before)
			ReportTwice(check, in_index);
		if (!LinePointerIsUsed(check, &current, in_index))
		{
			check->suspects[check->nsuspects++] = in_index;
			if (check->nsuspects == MAX_SUSPECTS)
				CheckSuspects(check);
		}
		before = in_index;
		if (more_heap && in_heap == in_index)
			more_heap = NextTid(heap_tids, &in_heap);
		more_index = NextTid(index_tids, &in_index);
	}
	CheckSuspects(check);
	if (BufferIsValid(current.buffer))
		ReleaseBuffer(current.buffer);
}

static Tuplesortstate *
BeginTids(void)
{
	/* two of them at a time */
	return tuplesort_begin_datum(INT8OID, Int8LessOperator, InvalidOid, false, maintenance_work_mem / 2,
								 NULL, TUPLESORT_NONE);
}

/*
 * Compare with the table.  The snapshot is older than the copy of the directory, so whatever it sees
 * was in the index by then.
 */
static void
CheckAgainstHeap(Check *check, Snapshot snapshot)
{
	IndexInfo  *info = BuildIndexInfo(check->index);
	HeapRows	rows;
	TableScanDesc scan;

	/* Reads with the given snapshot, and reports no uniqueness or exclusion conflicts. */
	info->ii_Concurrent = true;
	info->ii_Unique = false;
	info->ii_ExclusionOps = NULL;
	info->ii_ExclusionProcs = NULL;
	info->ii_ExclusionStrats = NULL;

	rows.tids = BeginTids();
	rows.opclass = check->opclass;
	rows.stored = check->meta->element;
	rows.row = palloc(GG_MAX_DIM * sizeof(float));
	scan = table_beginscan_strat(check->heap, snapshot, 0, NULL, true, true);
	table_index_build_scan(check->heap, check->index, info, true, false, CollectHeapRow, &rows, scan);

	check->suspects = palloc(MAX_SUSPECTS * sizeof(int64));
	tuplesort_performsort(check->tids);
	tuplesort_performsort(rows.tids);
	CompareTids(check, rows.tids);
	tuplesort_end(rows.tids);
	pfree(check->suspects);
	pfree(rows.row);
}

/*
 * The usual indcheckxmin rule: an index built over broken HOT chains says nothing about what older
 * snapshots see.
 */
static void
RefuseOldSnapshot(Relation index, Snapshot snapshot)
{
	if (IsolationUsesXactSnapshot() && index->rd_index->indcheckxmin &&
		!TransactionIdPrecedes(HeapTupleHeaderGetXmin(index->rd_indextuple->t_data), snapshot->xmin))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("index \"%s\" cannot be compared with its table using the snapshot of this transaction",
						RelationGetRelationName(index)),
				 errhint("Call gpugraph_check in a new transaction.")));
}

static void
CheckIndex(Check *check)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	Snapshot	snapshot = RegisterSnapshot(GetTransactionSnapshot());

	if (check->heap_check)
	{
		RefuseOldSnapshot(check->index, snapshot);
		check->tids = BeginTids();
	}

	GgReadMeta(check->index, meta);
	check->meta = meta;
	check->opclass = GgIndexOpclass(check->index);
	check->row_bytes = GgRowBytes(meta);
	check->row = palloc(Max(check->row_bytes, 1));

	CheckDirectory(check);
	CheckDelta(check);
	for (int i = 0; i < meta->nsegments; i++)
		CheckSegment(check, &meta->segments[i]);

	if (check->heap_check)
	{
		CheckAgainstHeap(check, snapshot);
		tuplesort_end(check->tids);
	}
	UnregisterSnapshot(snapshot);
}

PG_FUNCTION_INFO_V1(gpugraph_check);

Datum
gpugraph_check(PG_FUNCTION_ARGS)
{
	GgInspected inspected;
	Check		check;
	Oid			save_userid;
	int			save_sec_context;
	int			save_nestlevel;

	memset(&check, 0, sizeof(check));
	check.heap_check = PG_GETARG_BOOL(1);

	GgOpenInspected(PG_GETARG_OID(0), check.heap_check ? GG_READ_TABLE : GG_READ_INDEX, &inspected);
	check.index = inspected.index;
	check.heap = inspected.heap;
	check.strategy = GetAccessStrategy(BAS_BULKREAD);

	if (check.heap_check && !inspected.index->rd_index->indisvalid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is not valid", RelationGetRelationName(inspected.index)),
				 errdetail("Its build did not finish, so rows may be missing."),
				 errhint("REINDEX the index, or check it without heap_check.")));

	/* Expressions and predicates of the index run as the owner of the table, as in REINDEX. */
	GetUserIdAndSecContext(&save_userid, &save_sec_context);
	SetUserIdAndSecContext(inspected.heap->rd_rel->relowner, save_sec_context | SECURITY_RESTRICTED_OPERATION);
	save_nestlevel = NewGUCNestLevel();
	GgRestrictSearchPath();

	CheckIndex(&check);

	AtEOXact_GUC(false, save_nestlevel);
	SetUserIdAndSecContext(save_userid, save_sec_context);

	FreeAccessStrategy(check.strategy);
	GgCloseInspected(&inspected);
	PG_RETURN_VOID();
}
