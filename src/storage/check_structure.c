/*
 * check_structure.c
 *		gpugraph_check(): the directory, the delta and the segments, page by page.
 */
#include "storage/calibration.h"
#include "storage/check.h"
#include "storage/codes.h"
#include "storage/extents.h"
#include "storage/row_hash.h"

#include <math.h>

#include "miscadmin.h"

/* ---- the directory ----------------------------------------------------- */

/* Does the extent's owner exist?  GgCheckDirectory() knows which kinds have one. */
static bool
HasOwner(const GgMetaPageData *meta, const GgExtent *extent)
{
	switch (extent->kind)
	{
		case GG_KIND_VECTORS:
		case GG_KIND_CODES:
			return GgFindPiece(meta, extent->segment) != NULL;
		case GG_KIND_ADJACENCY:
		case GG_KIND_TIDS:
		case GG_KIND_PIVOTS:
		case GG_KIND_OFFSETS:
		case GG_KIND_FILTERS:
			return GgFindSegment(meta, extent->segment) != NULL;
		default:
			return true;
	}
}

/* No segment or piece has an id twice, or one still to come, and each piece's segment exists. */
static void
CheckOwners(GgCheck *check)
{
	const GgMetaPageData *meta = check->meta;

	for (int i = 0; i < meta->nsegments; i++)
	{
		const GgSegment *segment = &meta->segments[i];

		if (segment->id >= meta->next_id || GgFindSegment(meta, segment->id) != segment)
			GgReportCorruption(check->index, GG_META_BLKNO,
							   "the directory has segment %u twice, or too early", segment->id);
	}
	for (int i = 0; i < meta->npieces; i++)
	{
		const GgPiece *piece = &meta->pieces[i];

		if (piece->id >= meta->next_id || GgFindPiece(meta, piece->id) != piece ||
			GgFindSegment(meta, piece->segment) == NULL)
			GgReportCorruption(check->index, GG_META_BLKNO,
							   "the directory has piece %u twice, too early, or for segment %u, "
							   "which is not there", piece->id, piece->segment);
	}
}

/* Check what GgReadMeta() has not checked. */
static void
CheckDirectory(GgCheck *check)
{
	const GgMetaPageData *meta = check->meta;
	BlockNumber nblocks = RelationGetNumberOfBlocks(check->index);
	BlockNumber next = GG_META_BLKNO;
	GgExtent   *extents;

	CheckOwners(check);

	extents = palloc(sizeof(GgExtent) * Max(meta->nextents, 1));
	memcpy(extents, meta->extents, sizeof(GgExtent) * meta->nextents);
	qsort(extents, meta->nextents, sizeof(GgExtent), GgCompareStarts);
	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &extents[i];

		if (extent->start >= nblocks || extent->nblocks > nblocks - extent->start ||
			(extent->kind == GG_KIND_META && extent->nblocks != 1))
			GgReportCorruption(check->index, GG_META_BLKNO,
							   "the %s extent of %u blocks at block %u is not inside "
							   "the relation of %u blocks",
							   GgKindName(extent->kind), extent->nblocks, extent->start, nblocks);
		if (extent->start < next)
			GgReportCorruption(check->index, GG_META_BLKNO,
							   "the %s extent at block %u overlaps the extent before it, "
							   "which ends at block %u",
							   GgKindName(extent->kind), extent->start, next - 1);
		next = extent->start + extent->nblocks;
		if (!HasOwner(meta, extent))
			GgReportCorruption(check->index, GG_META_BLKNO,
							   "the %s extent at block %u belongs to segment or piece %u, "
							   "which is not there",
							   GgKindName(extent->kind), extent->start, extent->segment);
	}
	pfree(extents);
}

/* ---- a segment --------------------------------------------------------- */

static bool
RowIsFinite(const GgCheck *check)
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

/*
 * No row is longer than the metapage says.  A longer one may have been inserted since the directory
 * was copied, but then the metapage says so by now.
 */
static void
CheckLength(GgCheck *check, BlockNumber blkno)
{
	float		length = GgRowLength(check->opclass, check->meta, check->row);
	float		largest = check->meta->largest_length;

	if (largest == 0)
		return;					/* not known */
	if (length > largest)
	{
		GgMetaPageData *meta;
		Buffer		buffer = GgLockMeta(check->index, BUFFER_LOCK_SHARE, &meta);

		largest = meta->largest_length;
		UnlockReleaseBuffer(buffer);
	}
	if (length > largest)
		GgReportCorruption(check->index, blkno,
						   "a vector has length %g, the metapage says that none is longer than %g",
						   length, largest);
}

/*
 * Can a code have this head?  Without vectors it may be the code of any row.  Under L2 the row's
 * square may exceed single precision; under L2 and inner product the step between levels may.
 */
static bool
IsSoundHead(gg_metric metric, const gg_code_head *head)
{
	const bool	l2 = metric == GG_METRIC_L2;

	return (isfinite(head->base) || (l2 && head->base > 0)) &&
		(isfinite(head->factor) || ((l2 || metric == GG_METRIC_IP) && head->factor < 0));
}

/* Check the codes of a piece without vectors.  first: its first node's number in the segment. */
static void
CheckCodes(GgCheck *check, const GgPiece *piece, uint32 first)
{
	Size		bytes = GgCodeBytes(check->meta, piece->codes);
	uint8	   *code = palloc(bytes);
	GgCheckReader reader;

	GgCheckReaderBegin(&reader, check, piece->id, GG_KIND_CODES, (uint64) piece->nodes * bytes);
	for (uint32 node = 0; node < piece->nodes; node++)
	{
		BlockNumber blkno = GgCheckReaderNext(&reader, code, bytes);
		gg_code_head head;

		memcpy(&head, code + bytes - GG_CODE_HEAD, sizeof(head));
		if (!IsSoundHead((gg_metric) check->meta->metric, &head))
			GgReportCorruption(check->index, blkno, "code %u of piece %u is not finite", node,
							   piece->id);
		if (check->nodes != NULL)
			GgDigestCode(check, code, &check->nodes[first + node]);
	}
	GgCheckReaderEnd(&reader);
	pfree(code);
}

/* Check that the vectors of a piece are sound, and that its codes, if any, are theirs. */
static void
CheckVectors(GgCheck *check, const GgPiece *piece, uint32 first)
{
	Size		code_bytes = GgCodeBytes(check->meta, piece->codes);
	GgCoder    *coder = code_bytes > 0 ? GgMakeCoder(check->meta, piece->codes, check->mean) : NULL;
	uint8	   *code = palloc(code_bytes);
	GgCheckReader reader;
	GgCheckReader codes;

	GgCheckReaderBegin(&reader, check, piece->id, GG_KIND_VECTORS,
					   (uint64) piece->nodes * check->row_bytes);
	GgCheckReaderBegin(&codes, check, piece->id, GG_KIND_CODES, (uint64) piece->nodes * code_bytes);
	for (uint32 node = 0; node < piece->nodes; node++)
	{
		BlockNumber blkno = GgCheckReaderNext(&reader, check->row, check->row_bytes);

		if (!RowIsFinite(check))
			GgReportCorruption(check->index, blkno,
							   "vector %u of piece %u has an element that is not finite", node,
							   piece->id);
		CheckLength(check, blkno);
		if (check->nodes != NULL)
			GgDigestVector(check, check->row, &check->nodes[first + node]);
		if (coder == NULL)
			continue;
		blkno = GgCheckReaderNext(&codes, code, code_bytes);
		GgCodeRow(coder, check->row);
		if (memcmp(code, coder->record, code_bytes) != 0)
			GgReportCorruption(check->index, blkno,
							   "code %u of piece %u is not the code of its vector", node,
							   piece->id);
	}
	GgCheckReaderEnd(&reader);
	GgCheckReaderEnd(&codes);
}

static int
CompareIds(const void *a, const void *b)
{
	uint32		left = *(const uint32 *) a;
	uint32		right = *(const uint32 *) b;

	return left < right ? -1 : left > right;
}

/* A list of a node or of a pivot. */
typedef struct IdList
{
	const char *what;			/* whose list it is */
	uint32		self;			/* id of the node or pivot */
	const uint32 *ids;
	uint32		degree;			/* length of the list */
	uint32		limit;			/* ids are below this */
} IdList;

/* Ids are in range and distinct, none is self, and unused slots come last. */
static void
CheckList(GgCheck *check, BlockNumber blkno, const IdList *ids)
{
	const char *what = ids->what;
	const uint32 *list = ids->ids;
	uint32		self = ids->self;
	uint32		degree = ids->degree;
	uint32		limit = ids->limit;
	uint32		sorted[GG_MAX_DEGREE];
	uint32		used = 0;

	while (used < degree && list[used] != GG_NO_NODE)
		used++;
	for (uint32 i = 0; i < degree; i++)
	{
		if (i >= used && list[i] != GG_NO_NODE)
			GgReportCorruption(check->index, blkno,
							   "the list of %s %u goes on after an unused slot", what, self);
		if (i >= used)
			continue;
		if (list[i] >= limit)
			GgReportCorruption(check->index, blkno, "the list of %s %u has id %u, of %u", what,
							   self, list[i], limit);
		if (list[i] == self)
			GgReportCorruption(check->index, blkno, "the list of %s %u has %u itself", what, self,
							   self);
	}

	memcpy(sorted, list, sizeof(uint32) * used);
	qsort(sorted, used, sizeof(uint32), CompareIds);
	for (uint32 i = 1; i < used; i++)
		if (sorted[i] == sorted[i - 1])
			GgReportCorruption(check->index, blkno, "the list of %s %u has id %u twice", what, self,
							   sorted[i]);
}

/* Check the lists of all nodes.  Copies them with their marks to adjacency, unless that is NULL. */
static void
CheckAdjacency(GgCheck *check, const GgSegment *segment, uint32 *adjacency)
{
	uint32		degree = check->meta->graph_degree;
	uint32		list[GG_MAX_DEGREE];
	GgCheckReader reader;

	GgCheckReaderBegin(&reader, check, segment->id, GG_KIND_ADJACENCY,
					   (uint64) segment->nodes * degree * sizeof(uint32));
	for (uint32 node = 0; node < segment->nodes; node++)
	{
		BlockNumber blkno = GgCheckReaderNext(&reader, list, degree * sizeof(uint32));

		if (adjacency != NULL)
			memcpy(adjacency + (uint64) node * degree, list, degree * sizeof(uint32));
		/* in another graph a mark makes an id out of range */
		for (uint32 i = 0; i < degree && segment->algorithm == GG_ALGORITHM_TSDG; i++)
			if (list[i] != GG_NO_NODE)
				list[i] &= ~GG_EDGE_MARK;
		CheckList(check, blkno, &(IdList) {
			.what = "node",
			.self = node,
			.ids = list,
			.degree = degree,
			.limit = segment->nodes,
		});
	}
	GgCheckReaderEnd(&reader);
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
CheckPivots(GgCheck *check, const GgSegment *segment, Seen *nodes)
{
	uint32		n = segment->npivots;
	GgPivotEntry *pivots = palloc_extended(sizeof(GgPivotEntry) * (Size) n, MCXT_ALLOC_HUGE);
	BlockNumber first = InvalidBlockNumber;
	Seen		reached;
	GgCheckReader reader;

	GgCheckReaderBegin(&reader, check, segment->id, GG_KIND_PIVOTS,
					   (uint64) n * sizeof(GgPivotEntry));
	for (uint32 i = 0; i < n; i++)
	{
		BlockNumber blkno = GgCheckReaderNext(&reader, &pivots[i], sizeof(GgPivotEntry));

		if (first == InvalidBlockNumber)
			first = blkno;
		if (pivots[i].node >= segment->nodes)
			GgReportCorruption(check->index, blkno, "pivot %u is node %u, of %u", i, pivots[i].node,
							   segment->nodes);
		if (!SeenAdd(nodes, pivots[i].node))
			GgReportCorruption(check->index, blkno, "pivot %u is node %u, as a pivot before it", i,
							   pivots[i].node);
		CheckList(check, blkno, &(IdList) {
			.what = "pivot",
			.self = i,
			.ids = pivots[i].neighbors,
			.degree = GG_PIVOT_DEGREE,
			.limit = n,
		});
	}
	GgCheckReaderEnd(&reader);

	SeenInit(&reached, n);
	SeenAdd(&reached, 0);
	for (uint32 next = 0; next < reached.count; next++)
	{
		const GgPivotEntry *pivot = &pivots[reached.queue[next]];

		for (uint32 j = 0; j < GG_PIVOT_DEGREE && pivot->neighbors[j] != GG_NO_NODE; j++)
			SeenAdd(&reached, pivot->neighbors[j]);
	}
	if (reached.count != n)
		GgReportCorruption(check->index, first,
						   "only %u of %u pivots of segment %u can be reached from the first",
						   reached.count, n, segment->id);
	SeenFree(&reached);
	pfree(pivots);
}

/* Every node must be reachable from the pivots, which *nodes holds already, by unmarked edges. */
static void
CheckReachable(GgCheck *check, const GgSegment *segment, const uint32 *adjacency, Seen *nodes)
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

		/* ids are in range, as CheckAdjacency() saw */
		for (uint32 j = 0; j < degree && neighbors[j] != GG_NO_NODE; j++)
			if ((neighbors[j] & GG_EDGE_MARK) == 0)
				SeenAdd(nodes, neighbors[j]);
	}

	if (nodes->count != segment->nodes)
	{
		uint32		lost = 0;
		uint64		offset;

		while (nodes->words[lost / 64] & (UINT64CONST(1) << (lost % 64)))
			lost++;
		offset = (uint64) lost * degree * sizeof(uint32);
		GgReportCorruption(check->index, GgArrayBlock(&array, (uint32) (offset / GG_PAGE_PAYLOAD)),
						   "%u of %u nodes of segment %u cannot be reached from its pivots, "
						   "the first being node %u",
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

/*
 * The index still has this TID.  Report it if it is a suspect: at once where the table differs,
 * when met again where it is there twice, else unless its line pointer has a new row by now.
 */
static void
LookForSuspect(GgCheck *check, BlockNumber blkno, int64 key)
{
	if (bsearch(&key, check->suspects, check->nsuspects, sizeof(int64), CompareKeys) == NULL)
		return;
	if (check->differs != NULL)
		GgReportCorruption(check->index, blkno, "the table has %s in the row of the TID (%u,%u)",
						   check->differs, (BlockNumber) (key >> 16),
						   (OffsetNumber) (key & 0xFFFF));
	if (check->twice ? ++check->met == 2 : check->is_unused(check, key))
		GgReportCorruption(check->index, blkno, check->twice ?
						   "the TID (%u,%u) is in the index twice" :
						   "the TID (%u,%u) points at an unused line pointer of the table",
						   (BlockNumber) (key >> 16), (OffsetNumber) (key & 0xFFFF));
}

/*
 * Check one row, and collect it where it is needed.  digest: of its filter words; row: has that of
 * the vector.  False: VACUUM has cleared it.
 */
static bool
CheckRow(GgCheck *check, BlockNumber blkno, const ItemPointerData *tid, uint16 nulls,
		 uint64 digest, GgCheckRow *row)
{
	if (nulls >> check->meta->ncolumns != 0)
		GgReportCorruption(check->index, blkno,
						   "a row has NULL bits %x, for %u filter columns", nulls,
						   check->meta->ncolumns);
	if (!ItemPointerIsValid(tid))
		return false;
	if (ItemPointerGetOffsetNumber(tid) > MaxOffsetNumber ||
		!BlockNumberIsValid(ItemPointerGetBlockNumber(tid)))
		GgReportCorruption(check->index, blkno, "the TID (%u,%u) is out of range",
						   ItemPointerGetBlockNumber(tid), ItemPointerGetOffsetNumber(tid));
	if (check->again)
		LookForSuspect(check, blkno, GgTidKey(tid));
	else if (check->rows != NULL)
	{
		row->key = GgTidKey(tid);
		row->filters = GgDigestFilters(digest, nulls);
		GgPutCheckRow(check->rows, row);
	}
	return true;
}

/* The digests of the rows' filter words, where they are needed later; else NULL. */
static uint64 *
CheckFilters(GgCheck *check, const GgSegment *segment)
{
	uint64	   *digests = NULL;
	GgCheckReader reader;

	if (check->meta->filter_words == 0 || check->again)
		return NULL;
	if (check->rows != NULL)
		digests = palloc_extended(segment->rows * sizeof(uint64),
								  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	GgCheckReaderBegin(&reader, check, segment->id, GG_KIND_FILTERS,
					   (uint64) segment->rows * GgFilterBytes(check->meta));
	for (uint32 w = 0; w < check->meta->filter_words; w++)
		for (uint32 row = 0; row < segment->rows; row++)
		{
			uint64		word;

			(void) GgCheckReaderNext(&reader, &word, sizeof(word));
			if (digests != NULL)
				digests[row] = GgMixWord(digests[row], word);
		}
	GgCheckReaderEnd(&reader);
	return digests;
}

/* With offsets, go to the node that has the row.  *end: the first row that it has not. */
static void
FindNode(GgCheckReader *offsets, uint32 row, uint32 *node, uint32 *end)
{
	for (; row >= *end; ++*node)
		(void) GgCheckReaderNext(offsets, end, sizeof(*end));
}

static void
CheckRows(GgCheck *check, const GgSegment *segment)
{
	uint64	   *digests = CheckFilters(check, segment);
	bool		offsets = check->nodes != NULL && (segment->flags & GG_SEGMENT_OFFSETS) != 0;
	BlockNumber first = InvalidBlockNumber;
	uint32		node = 0;		/* behind the row's, with offsets */
	uint32		end = 0;
	uint32		dead = 0;
	GgCheckReader reader;
	GgCheckReader offset_reader;

	GgCheckReaderBegin(&reader, check, segment->id, GG_KIND_TIDS,
					   (uint64) segment->rows * sizeof(GgTidEntry));
	if (offsets)
	{
		GgCheckReaderBegin(&offset_reader, check, segment->id, GG_KIND_OFFSETS,
						   ((uint64) segment->nodes + 1) * sizeof(uint32));
		(void) GgCheckReaderNext(&offset_reader, &end, sizeof(end));
	}
	for (uint32 row = 0; row < segment->rows; row++)
	{
		GgCheckRow	check_row = {0};
		GgTidEntry	entry;
		BlockNumber blkno = GgCheckReaderNext(&reader, &entry, sizeof(entry));

		if (first == InvalidBlockNumber)
			first = blkno;
		if (offsets)
			FindNode(&offset_reader, row, &node, &end);
		if (check->nodes != NULL)
			check_row = check->nodes[offsets ? node - 1 : row];
		if (!CheckRow(check, blkno, &entry.tid, entry.nulls, digests == NULL ? 0 : digests[row],
					  &check_row))
			dead++;
	}
	GgCheckReaderEnd(&reader);
	if (offsets)
		pfree(offset_reader.array.extents);
	if (digests != NULL)
		pfree(digests);

	/* after a crash the directory may lag behind the pages until the next VACUUM, but never lead */
	if (dead < segment->dead)
		GgReportCorruption(check->index, first,
						   "segment %u has %u cleared TIDs, the directory says %u", segment->id,
						   dead, segment->dead);
}

/*
 * The first row of each node: offsets go from 0 to the number of rows, and as many nodes have no
 * rows as the directory says.
 */
static void
CheckOffsets(GgCheck *check, const GgSegment *segment)
{
	uint32		before = 0;
	uint32		empty = 0;
	GgCheckReader reader;

	if ((segment->flags & GG_SEGMENT_OFFSETS) == 0)
		return;

	GgCheckReaderBegin(&reader, check, segment->id, GG_KIND_OFFSETS,
					   ((uint64) segment->nodes + 1) * sizeof(uint32));
	for (uint32 node = 0; node <= segment->nodes; node++)
	{
		uint32		offset;
		BlockNumber blkno = GgCheckReaderNext(&reader, &offset, sizeof(offset));

		if (node == 0 ? offset != 0 : offset < before)
			GgReportCorruption(check->index, blkno,
							   "the rows of node %u start at %u, those before it at %u", node,
							   offset, before);
		if (offset > segment->rows || (node == segment->nodes && offset != segment->rows))
			GgReportCorruption(check->index, blkno, "the rows of node %u start at %u, of %u rows",
							   node, offset, segment->rows);
		empty += node > 0 && offset == before;
		before = offset;
	}
	GgCheckReaderEnd(&reader);
	if (empty != segment->empty)
		GgReportCorruption(check->index, GG_META_BLKNO,
						   "segment %u has %u nodes without rows, the directory says %u",
						   segment->id, empty, segment->empty);
}

static void
CheckSegment(GgCheck *check, const GgSegment *segment)
{
	Size		adjacency_bytes;
	uint32	   *adjacency = NULL;
	uint32		first = 0;
	Seen		nodes;

	adjacency_bytes = (Size) segment->nodes * check->meta->graph_degree * sizeof(uint32);
	if (adjacency_bytes / 1024 <= (Size) maintenance_work_mem)
		adjacency = palloc_extended(adjacency_bytes, MCXT_ALLOC_HUGE);
	SeenInit(&nodes, segment->nodes);
	if (check->rows != NULL)
		check->nodes = palloc_extended(segment->nodes * sizeof(GgCheckRow),
									   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	for (int i = 0; i < check->meta->npieces; i++)
	{
		const GgPiece *piece = &check->meta->pieces[i];

		if (piece->segment != segment->id)
			continue;
		if (check->meta->coded != GG_CODES_NONE)
			CheckCodes(check, piece, first);
		else
			CheckVectors(check, piece, first);
		first += piece->nodes;
	}
	CheckAdjacency(check, segment, adjacency);
	CheckPivots(check, segment, &nodes);
	CheckReachable(check, segment, adjacency, &nodes);
	CheckOffsets(check, segment);
	CheckRows(check, segment);

	if (check->nodes != NULL)
		pfree(check->nodes);
	check->nodes = NULL;
	SeenFree(&nodes);
	if (adjacency != NULL)
		pfree(adjacency);
}

/* ---- the delta --------------------------------------------------------- */

/* Check a row that starts in page, at offset bytes of its payload.  False: VACUUM cleared it. */
static bool
CheckDeltaRow(GgCheck *check, const GgArray *array, uint64 number, Page page, Size offset,
			  BlockNumber blkno)
{
	const char *payload = PageGetContents(page);
	const GgDeltaRow *head = (const GgDeltaRow *) (payload + offset);
	Size		have = GgDeltaVectorHere(check->meta);
	GgCheckRow	check_row = {0};
	uint64		digest = 0;
	PGAlignedBlock next;

	for (uint32 w = 0; w < check->meta->filter_words; w++)
		digest = GgMixWord(digest, (uint64) GgDeltaWords(head)[w]);
	memcpy(check->row, GgDeltaVector(check->meta, head), have);
	while (have < check->row_bytes)
	{
		Size		piece = Min(check->row_bytes - have, GG_PAGE_PAYLOAD);
		BlockNumber next_blkno = GgArrayBlock(array, ++number);
		Page		rest = (Page) next.data;
		uint32		count;

		GgReadCheckedPage(check, next_blkno, GG_NO_SEGMENT, GG_KIND_DELTA, number, rest);
		count = GgPageGetStamp(rest)->count;
		if (GgPayloadBytes(rest) != piece || count != 0)
			GgReportCorruption(check->index, next_blkno,
							   "the delta page holds %zu bytes and %u rows, not %zu bytes of a row",
							   GgPayloadBytes(rest), count, piece);
		memcpy((char *) check->row + have, PageGetContents(rest), piece);
		have += piece;
	}
	if (!RowIsFinite(check))
		GgReportCorruption(check->index, blkno,
						   "a vector of the delta has an element that is not finite");
	CheckLength(check, blkno);
	if (check->rows != NULL && !check->again)
		GgDigestVector(check, check->row, &check_row);
	return CheckRow(check, blkno, &head->tid, head->nulls, digest, &check_row);
}

static void
CheckDelta(GgCheck *check)
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
		uint64		number = GgDeltaFirst(meta) + rest - pages_per_row;
		BlockNumber blkno = GgArrayBlock(&array, number);
		uint32		count;
		Size		expected;

		if (blkno == InvalidBlockNumber)
			continue;			/* VACUUM has given it back */
		GgReadCheckedPage(check, blkno, GG_NO_SEGMENT, GG_KIND_DELTA, number, page);
		count = GgPageGetStamp(page)->count;
		if (count == 0 || count > GgDeltaRowsPerPage(meta))
			GgReportCorruption(check->index, blkno,
							   "the delta page counts %u rows, and has room for %u", count,
							   GgDeltaRowsPerPage(meta));
		expected = Min(count * GgDeltaRowBytes(meta), GG_PAGE_PAYLOAD);
		if (GgPayloadBytes(page) != expected)
			GgReportCorruption(check->index, blkno, "the delta page holds %zu bytes instead of %zu",
							   GgPayloadBytes(page), expected);
		if (rest == meta->delta_pages)
		{
			/* leave out rows that came since the page was first read */
			if (check->last_count == 0)
				check->last_count = count;
			count = Min(count, check->last_count);
		}
		for (uint32 i = 0; i < count; i++)
			if (!CheckDeltaRow(check, &array, number, page, i * GgDeltaRowBytes(meta), blkno))
				dead++;
	}

	if (dead < meta->delta_dead)
		GgReportCorruption(check->index, GG_META_BLKNO,
						   "the delta has %u cleared TIDs, the directory says %u", dead,
						   meta->delta_dead);
}

/* ---- the sample -------------------------------------------------------- */

static void
CheckSample(GgCheck *check)
{
	GgSampleHead head;
	GgCheckReader reader;
	float	   *query;

	if (!GgFindSample(check->index, check->meta, &reader.array, &head))
		return;
	GgCheckReaderBegin(&reader, check, reader.array.segment, GG_KIND_SAMPLE, GgSampleBytes(&head));
	(void) GgCheckReaderNext(&reader, &head, sizeof(head));
	query = palloc(head.dimensions * sizeof(float));
	for (uint32 i = 0; i < head.count; i++)
	{
		BlockNumber blkno = GgCheckReaderNext(&reader, query, head.dimensions * sizeof(float));

		for (uint32 d = 0; d < head.dimensions; d++)
			if (!isfinite(query[d]))
				GgReportCorruption(check->index, blkno, "query %u of the sample is not finite", i);
	}
	GgCheckReaderEnd(&reader);
	pfree(query);
}

/* ---- the calibration --------------------------------------------------- */

static void
CheckCalibration(GgCheck *check)
{
	const GgCalibration *calibration = GgReadCalibration(check->index, check->meta);
	GgCalibration *copy;
	GgCheckReader reader;

	if (calibration == NULL)
		return;
	copy = palloc(GgCalibrationBytes(calibration));
	GgCheckReaderBegin(&reader, check, GgIdOfKind(check->meta, GG_KIND_CALIBRATION),
					   GG_KIND_CALIBRATION, GgCalibrationBytes(calibration));
	(void) GgCheckReaderNext(&reader, copy, GgCalibrationBytes(calibration));
	GgCheckReaderEnd(&reader);
	pfree(copy);
}

/* ---- all of it --------------------------------------------------------- */

void
GgCheckStructure(GgCheck *check)
{
	CheckDirectory(check);
	CheckSample(check);
	CheckCalibration(check);
	CheckDelta(check);
	for (int i = 0; i < check->meta->nsegments; i++)
		CheckSegment(check, &check->meta->segments[i]);
}

bool
GgCheckTidsAgain(GgCheck *check)
{
	const GgMetaPageData *before = check->meta;
	GgMetaPageData *now = GgReadDirectory(check->index);
	bool		same;

	same = now->generation == before->generation;
	check->meta = now;
	check->last_count = 0;
	check->met = 0;
	check->again = true;
	CheckDelta(check);
	for (int i = 0; i < check->meta->nsegments; i++)
		CheckRows(check, &check->meta->segments[i]);
	check->again = false;
	check->meta = before;
	pfree(now);
	return same;
}
