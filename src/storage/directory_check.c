/*
 * directory_check.c
 *		Does a directory contradict itself?
 *
 * Nothing is done with numbers that contradict each other.  A segment with more nodes than its
 * pages have room for would make a scan ask for memory for them.  An extent that wraps around would
 * hold blocks of other extents.
 */
#include "storage/codes.h"
#include "storage/directory_check.h"

#include "engine/rules/learn.h"

/*
 * Rows have words for the columns that the metapage names, so these must be the columns of the
 * index.
 */
void
GgCheckColumns(Relation index, const GgMetaPageData *meta, const GgFilterColumns *columns)
{
	int			ncolumns = meta->version == GG_OLDEST_FORMAT ? 0 : meta->ncolumns;
	bool		fit = ncolumns == columns->ncolumns && meta->filter_words == columns->nwords;

	for (int c = 0; c < ncolumns && fit; c++)
		fit = meta->column_types[c] == columns->columns[c].type;
	if (!fit)
		GgReportCorruption(index, GG_META_BLKNO,
						   "the metapage has %d filter columns of %u words, the index %d of %d, "
						   "or their types differ",
						   ncolumns, meta->filter_words, columns->ncolumns, columns->nwords);
}

/*
 * Vectors are measured as the operator class says, and walks and codes go by the metapage.  Halves
 * of a column are stored as they are.  A column has the dimensions that it was declared with.
 */
void
GgCheckOpclass(Relation index, const GgMetaPageData *meta, const GgOpclass *opclass)
{
	const uint32 declared = GgDeclaredDimensions(index);

	if (declared != 0 && meta->dimensions != declared)
		GgReportCorruption(index, GG_META_BLKNO,
						   "the metapage has %u dimensions, the indexed column %u",
						   meta->dimensions, declared);
	if (meta->metric != opclass->metric ||
		(opclass->element == GG_ELEMENT_F16 && meta->element != GG_ELEMENT_F16))
		GgReportCorruption(index, GG_META_BLKNO,
						   "the metapage has metric %u and elements of type %u, the operator class "
						   "%u and %u", meta->metric, meta->element, opclass->metric,
						   opclass->element);
}

/* How many pages a segment's array must have. */
static uint64
SegmentPages(const GgMetaPageData *meta, const GgSegment *segment, GgKind kind)
{
	switch (kind)
	{
		case GG_KIND_ADJACENCY:
			return GgArrayPages((uint64) segment->nodes * meta->graph_degree * sizeof(uint32));
		case GG_KIND_TIDS:
			return GgArrayPages((uint64) segment->rows * sizeof(GgTidEntry));
		case GG_KIND_PIVOTS:
			return GgArrayPages((uint64) segment->npivots * sizeof(GgPivotEntry));
		case GG_KIND_OFFSETS:
			return (segment->flags & GG_SEGMENT_OFFSETS) == 0 ? 0 :
				GgArrayPages(((uint64) segment->nodes + 1) * sizeof(uint32));
		case GG_KIND_FILTERS:
			return GgArrayPages((uint64) segment->rows * GgFilterBytes(meta));
		default:
			return 0;
	}
}

/* Pages of an array, whose extents must continue each other. */
static uint64
CountPages(Relation index, const GgMetaPageData *meta, uint32 owner, GgKind kind)
{
	uint64		pages = 0;

	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->segment != owner || extent->kind != kind)
			continue;
		if (extent->first != pages)
			GgReportCorruption(index, GG_META_BLKNO,
							   "the extent at block %u starts with page " UINT64_FORMAT
							   " of kind %d of segment %u, not with page " UINT64_FORMAT,
							   extent->start, extent->first, kind, owner, pages);
		pages += extent->nblocks;
	}
	return pages;
}

/* The delta's extents ascend, from its first page to its last.  VACUUM may leave gaps. */
static void
CheckDelta(Relation index, const GgMetaPageData *meta)
{
	const uint64 first = GgDeltaFirst(meta);
	uint64		next = first;
	BlockNumber tail = InvalidBlockNumber;
	bool		any = false;

	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->kind != GG_KIND_DELTA)
			continue;
		if (extent->first < next || (!any && extent->first != next) ||
			(extent->first - first) % GgDeltaPagesPerRow(meta) !=
			(any ? (next - first) % GgDeltaPagesPerRow(meta) : 0))
			GgReportCorruption(index, GG_META_BLKNO,
							   "the delta's extent at block %u starts with page " UINT64_FORMAT
							   ", where " UINT64_FORMAT " is next",
							   extent->start, extent->first, next);
		any = true;
		next = extent->first + extent->nblocks;
		tail = extent->start + extent->nblocks - 1;
	}
	if (meta->version != GG_OLDEST_FORMAT && meta->delta_tail != tail)
		GgReportCorruption(index, GG_META_BLKNO,
						   "the delta ends with block %u, and its extents with block %u",
						   meta->delta_tail, tail);
	if (next - first != meta->delta_pages ||
		(any && meta->delta_pages % GgDeltaPagesPerRow(meta) != 0))
		GgReportCorruption(index, GG_META_BLKNO,
						   "the delta has %u pages in use, and extents for " UINT64_FORMAT,
						   meta->delta_pages, next - first);
}

/* Every directory page lies in a DIRECTORY extent, so its block is not taken for a free one. */
static void
CheckDirectoryPages(Relation index, const GgMetaPageData *meta)
{
	uint32		blocks = 0;
	uint32		found = 0;

	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->kind != GG_KIND_DIRECTORY)
			continue;
		blocks += extent->nblocks;
		for (int j = 0; j < meta->ndirectory; j++)
			found += meta->directory[j] >= extent->start &&
				meta->directory[j] - extent->start < extent->nblocks;
	}
	if (blocks != meta->ndirectory || found != meta->ndirectory)
		GgReportCorruption(index, GG_META_BLKNO,
						   "the directory has %u pages, and extents for %u blocks, with %u of them",
						   meta->ndirectory, blocks, found);
}

/* Is the owner one that its kind may have?  Whether it exists is for gpugraph_check() to find. */
static bool
OwnerIsSound(const GgMetaPageData *meta, const GgExtent *extent)
{
	if (extent->kind == GG_KIND_TAKEN)
		return extent->segment < meta->next_id;
	return GgIsArray(extent->kind) || extent->segment == GG_NO_SEGMENT;
}

/* The mean is whole, and there where the metapage says that codes are centred. */
static void
CheckMean(Relation index, const GgMetaPageData *meta)
{
	const uint64 pages = CountPages(index, meta, GG_NO_SEGMENT, GG_KIND_MEAN);
	const bool	wanted = meta->version == GG_FORMAT_VERSION &&
		(meta->features & GG_FEATURE_MEAN) != 0;
	uint64		all = 0;

	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == GG_KIND_MEAN)
			all += meta->extents[i].nblocks;
	if (pages != (wanted ? GgArrayPages(GgMeanBytes(meta)) : 0) || pages != all)
		GgReportCorruption(index, GG_META_BLKNO,
						   "the directory has " UINT64_FORMAT " pages of the mean of codes, "
						   "of %u dimensions, and features %x", all, meta->dimensions,
						   meta->features);
}

static void
CheckExtents(Relation index, const GgMetaPageData *meta)
{
	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->kind < GG_KIND_META || extent->kind > GG_LAST_KIND ||
			(extent->kind == GG_KIND_META) != (extent->start == GG_META_BLKNO))
			GgReportCorruption(index, GG_META_BLKNO, "the extent at block %u is of kind %u",
							   extent->start, extent->kind);
		if (extent->nblocks == 0 || extent->start >= MaxBlockNumber ||
			extent->nblocks > MaxBlockNumber - extent->start)
			GgReportCorruption(index, GG_META_BLKNO,
							   "the extent of %u blocks at block %u is not inside the relation",
							   extent->nblocks, extent->start);
		if (!OwnerIsSound(meta, extent))
			GgReportCorruption(index, GG_META_BLKNO,
							   "the extent at block %u is of kind %u, and belongs to segment %u",
							   extent->start, extent->kind, extent->segment);
	}
	CheckDelta(index, meta);
	CheckDirectoryPages(index, meta);
	CheckMean(index, meta);
}

/* Check that a piece's array has as many pages as it must have. */
static void
CheckPieceArray(Relation index, const GgMetaPageData *meta, const GgPiece *piece, GgKind kind,
				Size row_bytes)
{
	const uint64 needed = GgArrayPages((uint64) piece->nodes * row_bytes);
	const uint64 pages = CountPages(index, meta, piece->id, kind);

	if (pages != needed)
		GgReportCorruption(index, GG_META_BLKNO,
						   "the directory has " UINT64_FORMAT " pages of %s for the %u "
						   "nodes of piece %u, which needs " UINT64_FORMAT,
						   pages, kind == GG_KIND_CODES ? "codes" : "vectors", piece->nodes,
						   piece->id, needed);
}

static void
CheckPieces(Relation index, const GgMetaPageData *meta, const GgSegment *segment)
{
	const GgPiece *other = NULL;
	uint64		nodes = 0;

	for (int i = 0; i < meta->npieces; i++)
	{
		const GgPiece *piece = &meta->pieces[i];

		if (piece->segment != segment->id)
			continue;
		if (piece->codes == GG_CODES_OF_2_BITS)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("index \"%s\" has codes of 2 bits an element, which are no longer read",
							RelationGetRelationName(index)),
					 errhint("REINDEX the index.")));
		if (piece->nodes == 0 || piece->codes > GG_CODES_INT4 || piece->reserved != 0 ||
			(other != NULL && other->codes != piece->codes) ||
			(meta->coded != GG_CODES_NONE && meta->coded != piece->codes))
			GgReportCorruption(index, GG_META_BLKNO, "piece %u has %u nodes and codes of kind %u",
							   piece->id, piece->nodes, piece->codes);
		CheckPieceArray(index, meta, piece, GG_KIND_VECTORS,
						meta->coded != GG_CODES_NONE ? 0 : GgRowBytes(meta));
		CheckPieceArray(index, meta, piece, GG_KIND_CODES, GgCodeBytes(meta, piece->codes));
		nodes += piece->nodes;
		other = piece;
	}
	if (nodes != segment->nodes)
		GgReportCorruption(index, GG_META_BLKNO,
						   "segment %u counts %u nodes, its pieces " UINT64_FORMAT, segment->id,
						   segment->nodes, nodes);
}

/* Check the number of learned edges, and the id by which devices tell graphs apart. */
static void
CheckGraph(Relation index, const GgMetaPageData *meta, int number)
{
	const GgSegment *segment = &meta->segments[number];

	if ((segment->flags & ~GG_SEGMENT_FLAGS) != 0 ||
		GgLearnedEdges(segment) > gg_learn_most_edges(meta->graph_degree))
		GgReportCorruption(index, GG_META_BLKNO,
						   "segment %u has the flags %u, by which %u of %u edges may be learned",
						   segment->id, segment->flags, GgLearnedEdges(segment),
						   meta->graph_degree);
	if (segment->graph != 0 && segment->graph >= meta->next_id)
		GgReportCorruption(index, GG_META_BLKNO, "segment %u has graph %u, and %u is the next id",
						   segment->id, segment->graph, meta->next_id);
	for (int i = 0; i < number; i++)
		if (GgGraphId(&meta->segments[i]) == GgGraphId(segment))
			GgReportCorruption(index, GG_META_BLKNO, "segments %u and %u both have graph %u",
							   meta->segments[i].id, segment->id, GgGraphId(segment));
}

/* There is one sample at most, and one calibration. */
static void
CheckOne(Relation index, const GgMetaPageData *meta, GgKind kind, const char *name)
{
	const uint32 id = GgIdOfKind(meta, kind);

	if (id == GG_NO_SEGMENT)
		return;
	if (id >= meta->next_id)
		GgReportCorruption(index, GG_META_BLKNO, "the %s is number %u, and %u is the next id",
						   name, id, meta->next_id);
	(void) CountPages(index, meta, id, kind);
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == kind && meta->extents[i].segment != id)
			GgReportCorruption(index, GG_META_BLKNO, "there are two %ss, %u and %u", name, id,
							   meta->extents[i].segment);
}

void
GgCheckDirectory(Relation index, const GgMetaPageData *meta)
{
	CheckExtents(index, meta);
	CheckOne(index, meta, GG_KIND_SAMPLE, "sample");
	CheckOne(index, meta, GG_KIND_CALIBRATION, "calibration");
	if (GgAlgorithmName(meta->algorithm) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index \"%s\" is for graphs of kind %u, which this gpugraph does not build",
						RelationGetRelationName(index), meta->algorithm),
				 errhint("REINDEX the index, or install a newer gpugraph.")));
	for (int i = 0; i < meta->nsegments; i++)
	{
		const GgSegment *segment = &meta->segments[i];

		if (segment->nodes == 0 || segment->nodes > GG_MAX_NODES || segment->rows > GG_MAX_ROWS ||
			segment->empty >= segment->nodes ||
			segment->rows < segment->nodes - segment->empty || segment->dead > segment->rows ||
			((segment->flags & GG_SEGMENT_OFFSETS) == 0 && segment->rows != segment->nodes) ||
			segment->npivots == 0 || segment->npivots > segment->nodes)
			GgReportCorruption(index, GG_META_BLKNO,
							   "segment %u counts %u nodes, %u rows, %u pivots and %u dead rows",
							   segment->id, segment->nodes, segment->rows, segment->npivots,
							   segment->dead);
		if (GgAlgorithmName(segment->algorithm) == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("segment %u of index \"%s\" has a graph of kind %u, "
							"which this gpugraph does not search",
							segment->id, RelationGetRelationName(index), segment->algorithm),
					 errhint("REINDEX the index, or install a newer gpugraph.")));
		CheckGraph(index, meta, i);
		CheckPieces(index, meta, segment);
		for (int kind = GG_KIND_ADJACENCY; kind <= GG_LAST_KIND; kind++)
		{
			uint64		pages;

			if (!GgIsOfSegment(kind))
				continue;
			pages = CountPages(index, meta, segment->id, kind);

			if (pages != SegmentPages(meta, segment, kind))
				GgReportCorruption(index, GG_META_BLKNO,
								   "the directory has " UINT64_FORMAT " pages of kind %d for "
								   "segment %u, which needs " UINT64_FORMAT, pages, kind,
								   segment->id, SegmentPages(meta, segment, kind));
		}
	}
}
