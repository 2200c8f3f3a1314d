/*
 * directory.c
 *		The metapage and its directory: segments, pieces, extents.
 *
 * The directory lies in the metapage, as far as it has room.  Further extents lie on directory
 * pages, which are written once: a change of one of their extents writes them anew, into other
 * blocks.  So the metapage's WAL record alone changes the directory.  What inserts change, the
 * delta's extents and free ones, stays in the metapage while it has room, so inserts seldom change
 * directory pages.
 *
 * Directory pages are read while the metapage is locked, so their blocks are free at once when the
 * metapage no longer names them.
 *
 * An index of format 2 has 32 segments and 288 extents in its metapage and no pieces.  It is read
 * as if each segment had one piece of its own number.  The first change writes format 3 or 4.
 *
 * An index has format 4 while it has what format 3 does not know (GgMetaPageData.features), and
 * otherwise stays one of format 3, which older libraries read.
 */
#include "storage/directory.h"
#include "storage/directory_check.h"
#include "storage/filling.h"
#include "storage/type.h"

#include "access/generic_xlog.h"
#include "engine/rules/learn.h"

/* ---- format 2 ---------------------------------------------------------------------------- */

#define OLD_MAX_SEGMENTS	32
#define OLD_MAX_EXTENTS		288

typedef struct OldSegment
{
	uint32		id;
	uint32		nodes;
	uint32		rows;
	uint32		npivots;
	uint32		dead;
	uint32		reserved;
} OldSegment;

/* The metapage of format 2.  Its extents have zero in `first`, but for FREE ones' parked_xid. */
typedef struct OldMeta
{
	char		head[offsetof(GgMetaPageData, npieces)];
	OldSegment	segments[OLD_MAX_SEGMENTS];
	GgExtent	extents[OLD_MAX_EXTENTS];
} OldMeta;

/* Number the pages of each array, and of the delta, in directory order. */
static void
NumberPages(GgMetaPageData *meta)
{
	for (int i = 0; i < meta->nextents; i++)
	{
		GgExtent   *extent = &meta->extents[i];
		int			j = i - 1;

		if (extent->kind == GG_KIND_FREE)
			continue;
		while (j >= 0 &&
			   (meta->extents[j].segment != extent->segment ||
				meta->extents[j].kind != extent->kind))
			j--;
		if (j >= 0)
			extent->first = meta->extents[j].first + meta->extents[j].nblocks;
		else
			extent->first = extent->kind == GG_KIND_DELTA ? GgDeltaFirst(meta) : 0;
	}
}

static void
CopyOldMeta(Page page, GgMetaPageData *meta)
{
	const OldMeta *old = (const OldMeta *) PageGetContents(page);

	memset(meta, 0, GG_META_HEAD);
	memcpy(meta, old->head, sizeof(old->head));
	for (int i = 0; i < meta->nsegments; i++)
	{
		const OldSegment *from = &old->segments[i];
		GgSegment  *segment = &meta->segments[i];
		GgPiece    *piece = &meta->pieces[i];

		memset(segment, 0, sizeof(*segment));
		segment->id = from->id;
		segment->nodes = from->nodes;
		segment->rows = from->rows;
		segment->npivots = from->npivots;
		segment->dead = from->dead;
		segment->algorithm = meta->algorithm;
		if (from->rows != from->nodes)
			segment->flags = GG_SEGMENT_OFFSETS;
		memset(piece, 0, sizeof(*piece));
		piece->id = piece->segment = from->id;
		piece->nodes = from->nodes;
	}
	meta->npieces = meta->nsegments;
	memcpy(meta->extents, old->extents, meta->nextents * sizeof(GgExtent));
	NumberPages(meta);
	meta->delta_tail = InvalidBlockNumber;
}

/* ---- reading ----------------------------------------------------------------------------- */

/* What a reader of the index must know. */
static uint32
Features(const GgMetaPageData *meta)
{
	uint32		features = meta->features & (GG_LEAVES_NOTHING_OUT | GG_FEATURE_LENGTHS);

	if (meta->coded != GG_CODES_NONE)
		features |= GG_FEATURE_CODES | GG_FEATURE_CODED;
	for (int i = 0; i < meta->npieces; i++)
		if (meta->pieces[i].codes != GG_CODES_NONE)
			features |= GG_FEATURE_CODES;
	if (GgDeltaEnd(meta) > PG_UINT32_MAX)
		features |= GG_FEATURE_NUMBERS;
	if (GgSampleId(meta) != GG_NO_SEGMENT)
		features |= GG_FEATURE_SAMPLE;
	if (GgHasMean(meta))
		features |= GG_FEATURE_MEAN;
	if (GgIdOfKind(meta, GG_KIND_CALIBRATION) != GG_NO_SEGMENT)
		features |= GG_FEATURE_CALIBRATION;
	return features;
}

static uint32
VersionFor(uint32 features)
{
	return features != 0 ? GG_FORMAT_VERSION : GG_PLAIN_FORMAT;
}

/* Bytes of the metapage before the segments, in a format that is not the oldest. */
static Size
HeadBytes(uint32 version)
{
	return version == GG_FORMAT_VERSION ? GG_META_HEAD : GG_PLAIN_META_HEAD;
}

/* Bytes of a metapage of this format that has all but the spilled extents. */
static Size
MetaBytes(const GgMetaPageData *meta, uint32 version)
{
	return HeadBytes(version) + meta->nsegments * sizeof(GgSegment) +
		meta->npieces * sizeof(GgPiece) + (meta->nextents - meta->nspilled) * sizeof(GgExtent);
}

/* Directory pages for nspilled extents. */
static int
DirectoryPages(int nspilled)
{
	return (nspilled + GG_DIRECTORY_EXTENTS - 1) / GG_DIRECTORY_EXTENTS;
}

/* Do the numbers of filter columns, of their words and of their types agree? */
static bool
ColumnsAreSound(const GgMetaPageData *head)
{
	if (head->version == GG_OLDEST_FORMAT)
		return head->filter_words == 0;
	if (head->ncolumns > GG_MAX_COLUMNS || head->filter_words > GG_MAX_FILTER_WORDS ||
		head->filter_words < head->ncolumns || (head->ncolumns == 0 && head->filter_words > 0))
		return false;
	for (int c = 0; c < GG_MAX_COLUMNS; c++)
		if ((head->column_types[c] != 0) != (c < head->ncolumns))
			return false;
	return true;
}

static bool
HeadIsSound(const GgMetaPageData *head, Size payload)
{
	if (head->dimensions > GG_MAX_DIM ||
		head->metric < GG_METRIC_L2 || head->metric > GG_METRIC_L1 ||
		head->element < GG_ELEMENT_F32 || head->element > GG_ELEMENT_F16 ||
		head->graph_degree < GG_MIN_GRAPH_DEGREE || head->graph_degree > GG_MAX_GRAPH_DEGREE ||
		(head->algorithm == GG_ALGORITHM_CAGRA &&
		 head->intermediate_graph_degree < head->graph_degree) ||
		head->intermediate_graph_degree > GG_MAX_DEGREE ||
		(head->dimensions == 0 && (head->nsegments > 0 || head->delta_pages > 0)) ||
		!(head->largest_length >= 0) || !ColumnsAreSound(head))
		return false;
	if (head->version == GG_FORMAT_VERSION &&
		(head->coded > GG_CODES_INT4 ||
		 (head->coded != GG_CODES_NONE) != ((head->features & GG_FEATURE_CODED) != 0)))
		return false;
	if (head->version == GG_OLDEST_FORMAT)
		return head->nsegments <= OLD_MAX_SEGMENTS && head->nextents <= OLD_MAX_EXTENTS &&
			payload == sizeof(OldMeta);
	return head->nsegments <= GG_MAX_SEGMENTS && head->npieces <= GG_MAX_PIECES &&
		head->nextents <= GG_ALL_EXTENTS && head->nspilled <= head->nextents &&
		head->ndirectory <= GG_MAX_DIRECTORY_PAGES &&
		head->ndirectory == DirectoryPages(head->nspilled) &&
		payload == MetaBytes(head, head->version);
}

Buffer
GgLockMeta(Relation index, int lockmode, GgMetaPageData **head)
{
	Buffer		buffer = ReadBuffer(index, GG_META_BLKNO);
	Page		page = BufferGetPage(buffer);
	GgMetaPageData *data = GgPageGetMeta(page);

	LockBuffer(buffer, lockmode);
	if (!GgPageIsSound(page) || GgPageGetStamp(page)->kind != GG_KIND_META ||
		data->magic != GG_MAGIC)
		GgReportCorruption(index, GG_META_BLKNO, "it is not a gpugraph metapage");
	if (data->version < GG_OLDEST_FORMAT || data->version > GG_FORMAT_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index \"%s\" has format version %u, this gpugraph reads versions %u to %u",
						RelationGetRelationName(index), data->version, GG_OLDEST_FORMAT,
						GG_FORMAT_VERSION),
				 errhint("REINDEX the index.")));
	if (data->version == GG_FORMAT_VERSION && (data->features & ~GG_KNOWN_FEATURES) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index \"%s\" has features %x, of which this gpugraph knows %x",
						RelationGetRelationName(index), data->features, GG_KNOWN_FEATURES),
				 errhint("REINDEX the index, or install a newer gpugraph.")));
	if (!HeadIsSound(data, GgPayloadBytes(page)))
		GgReportCorruption(index, GG_META_BLKNO, "a field of the metapage is out of range");
	*head = data;
	return buffer;
}

BlockNumber
GgDeltaTail(Buffer metabuf)
{
	Page		page = BufferGetPage(metabuf);
	const GgMetaPageData *head = GgPageGetMeta(page);
	const OldMeta *old = (const OldMeta *) head;

	if (head->version != GG_OLDEST_FORMAT)
		return head->delta_tail;
	for (int i = head->nextents - 1; i >= 0; i--)
		if (old->extents[i].kind == GG_KIND_DELTA)
			return old->extents[i].start + old->extents[i].nblocks - 1;
	return InvalidBlockNumber;
}

/* How many extents lie on directory page i? */
static Size
SpilledOn(const GgMetaPageData *meta, int i)
{
	return Min(meta->nspilled - i * GG_DIRECTORY_EXTENTS, GG_DIRECTORY_EXTENTS);
}

/* Copy the extents of directory page i. */
static void
ReadSpilled(Relation index, const GgMetaPageData *meta, int i, GgExtent *extents)
{
	Size		bytes = SpilledOn(meta, i) * sizeof(GgExtent);
	Buffer		buffer;
	Page		page;

	/* the metapage is locked already */
	if (meta->directory[i] == GG_META_BLKNO ||
		meta->directory[i] >= RelationGetNumberOfBlocks(index))
		GgReportCorruption(index, GG_META_BLKNO, "block %u holds no page of the directory",
						   meta->directory[i]);
	buffer = ReadBuffer(index, meta->directory[i]);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	if (!GgStampMatches(page, meta->instance, GG_NO_SEGMENT, GG_KIND_DIRECTORY, i) ||
		GgPayloadBytes(page) != bytes)
		GgReportCorruption(index, meta->directory[i], "page is not number %d of the directory", i);
	memcpy(extents, PageGetContents(page), bytes);
	UnlockReleaseBuffer(buffer);
}

static void
CopyNewMeta(Relation index, Page page, GgMetaPageData *meta)
{
	const char *from = (const char *) GgPageGetMeta(page);
	Size		bytes = HeadBytes(GgPageGetMeta(page)->version);

	memset(meta, 0, GG_META_HEAD);
	memcpy(meta, from, bytes);
	from += bytes;
	bytes = meta->nsegments * sizeof(GgSegment);
	memcpy(meta->segments, from, bytes);
	from += bytes;
	bytes = meta->npieces * sizeof(GgPiece);
	memcpy(meta->pieces, from, bytes);
	from += bytes;
	memcpy(&meta->extents[meta->nspilled], from,
		   (meta->nextents - meta->nspilled) * sizeof(GgExtent));
	for (int i = 0; i < meta->ndirectory; i++)
		ReadSpilled(index, meta, i, &meta->extents[i * GG_DIRECTORY_EXTENTS]);
}

static void
CopyMeta(Relation index, Buffer metabuf, GgMetaPageData *meta)
{
	Page		page = BufferGetPage(metabuf);

	if (GgPageGetMeta(page)->version != GG_OLDEST_FORMAT)
		CopyNewMeta(index, page, meta);
	else
		CopyOldMeta(page, meta);
}

void
GgCopyMeta(Relation index, Buffer metabuf, GgMetaPageData *meta)
{
	CopyMeta(index, metabuf, meta);
	GgCheckDirectory(index, meta);
	GgSetParkedIds(meta);
}

Buffer
GgLockDirectory(Relation index, GgMetaPageData *meta)
{
	GgMetaPageData *head;
	Buffer		metabuf = GgLockMeta(index, BUFFER_LOCK_EXCLUSIVE, &head);

	GgCopyMeta(index, metabuf, meta);
	return metabuf;
}

void
GgCheckNotEmpty(Relation index)
{
	if (RelationGetNumberOfBlocks(index) == 0)
		GgReportCorruption(index, GG_META_BLKNO, "the file is empty");
}

void
GgReadMetaAsOf(Relation index, Snapshot snapshot, GgMetaPageData *meta)
{
	GgMetaPageData *head;
	GgFilterColumns columns;
	Buffer		buffer;

	GgCheckNotEmpty(index);
	buffer = GgLockMeta(index, BUFFER_LOCK_SHARE, &head);
	GgTestForOldSnapshot(snapshot, index, BufferGetPage(buffer));
	CopyMeta(index, buffer, meta);
	UnlockReleaseBuffer(buffer);
	GgCheckDirectory(index, meta);
	(void) GgCheckHighWater(index, GgHighWater(meta));
	GgCheckOpclass(index, meta, GgIndexOpclass(index));
	GgGetFilterColumns(index, &columns);
	GgCheckColumns(index, meta, &columns);
}

void
GgReadMetaOfFile(Relation index, GgMetaPageData *meta)
{
	GgMetaPageData *head;
	Buffer		buffer = GgLockMeta(index, BUFFER_LOCK_SHARE, &head);

	CopyMeta(index, buffer, meta);
	UnlockReleaseBuffer(buffer);
	GgCheckDirectory(index, meta);
}

void
GgReadMeta(Relation index, GgMetaPageData *meta)
{
	GgReadMetaAsOf(index, NULL, meta);
}

GgMetaPageData *
GgReadDirectory(Relation index)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));

	GgReadMeta(index, meta);
	return meta;
}

/* ---- arrays ------------------------------------------------------------------------------ */

const GgSegment *
GgFindSegment(const GgMetaPageData *meta, uint32 id)
{
	for (int i = 0; i < meta->nsegments; i++)
		if (meta->segments[i].id == id)
			return &meta->segments[i];
	return NULL;
}

const GgPiece *
GgFindPiece(const GgMetaPageData *meta, uint32 id)
{
	for (int i = 0; i < meta->npieces; i++)
		if (meta->pieces[i].id == id)
			return &meta->pieces[i];
	return NULL;
}

void
GgFindArray(const GgMetaPageData *meta, uint32 segment, GgKind kind, GgArray *array)
{
	int			n = 0;

	array->segment = segment;
	array->kind = kind;
	array->npages = 0;
	array->nextents = 0;
	array->extents = NULL;

	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].segment == segment && meta->extents[i].kind == kind)
			n++;
	if (n == 0)
		return;
	array->extents = palloc(n * sizeof(*array->extents));
	for (int i = 0; i < meta->nextents; i++)
	{
		const GgExtent *extent = &meta->extents[i];

		if (extent->segment != segment || extent->kind != kind)
			continue;
		array->extents[array->nextents].first = extent->first;
		array->extents[array->nextents].start = extent->start;
		array->extents[array->nextents].nblocks = extent->nblocks;
		array->nextents++;
		array->npages = extent->first + extent->nblocks;
	}
}

bool
GgFindSample(Relation index, const GgMetaPageData *meta, GgArray *array, GgSampleHead *head)
{
	const uint32 id = GgSampleId(meta);

	if (id == GG_NO_SEGMENT)
		return false;
	GgFindArray(meta, id, GG_KIND_SAMPLE, array);
	GgReadArray(index, meta->instance, array, 0, head, sizeof(*head));
	if (head->dimensions < 1 || head->dimensions > GG_MAX_DIM || head->count < 1 ||
		head->edges < 1 || head->edges > gg_learn_most_edges(GG_MAX_DEGREE) ||
		head->reserved != 0 || GgArrayPages(GgSampleBytes(head)) != array->npages)
		GgReportCorruption(index, GgArrayBlock(array, 0),
						   "a sample of %u queries of %u dimensions, with %u edges, has "
						   UINT64_FORMAT " pages", head->count, head->dimensions, head->edges,
						   array->npages);
	return true;
}

void
GgFindVectors(const GgMetaPageData *meta, uint32 segment, GgVectors *vectors)
{
	uint32		first = 0;

	vectors->npieces = 0;
	for (int i = 0; i < meta->npieces; i++)
		vectors->npieces += meta->pieces[i].segment == segment;
	vectors->pieces = palloc(Max(vectors->npieces, 1) * sizeof(GgVectorPiece));
	vectors->npieces = 0;
	for (int i = 0; i < meta->npieces; i++)
	{
		GgVectorPiece *piece = &vectors->pieces[vectors->npieces];

		if (meta->pieces[i].segment != segment)
			continue;
		piece->first = first;
		piece->nodes = meta->pieces[i].nodes;
		piece->codes = meta->pieces[i].codes;
		GgFindArray(meta, meta->pieces[i].id, GG_KIND_VECTORS, &piece->array);
		GgFindArray(meta, meta->pieces[i].id, GG_KIND_CODES, &piece->code_array);
		first += piece->nodes;
		vectors->npieces++;
	}
}

bool
GgHasNewGeneration(Relation index, const GgMetaPageData *meta)
{
	GgMetaPageData *head;
	Buffer		buffer = GgLockMeta(index, BUFFER_LOCK_SHARE, &head);
	bool		changed = head->generation != meta->generation;

	UnlockReleaseBuffer(buffer);
	return changed;
}

Buffer
GgMetaBuffer(Relation index)
{
	Buffer		buffer = ReadBuffer(index, GG_META_BLKNO);

	ReleaseBuffer(buffer);
	return buffer;
}

bool
GgReadStateFrom(Buffer buffer, GgRelFileLocator locator, GgDirectoryState *state)
{
	Page		page;

	if (!ReadRecentBuffer(locator, MAIN_FORKNUM, GG_META_BLKNO, buffer))
		return false;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	*state = (GgDirectoryState) {
		.instance = GgPageGetMeta(page)->instance,
		.generation = GgPageGetMeta(page)->generation,
		.vacuum_epoch = GgPageGetMeta(page)->vacuum_epoch,
		.delta_pages = GgPageGetMeta(page)->delta_pages
	};
	UnlockReleaseBuffer(buffer);
	return true;
}

bool
GgReadPageUnlessGone(Relation index, const GgMetaPageData *meta, const GgArray *array,
					 uint64 number, int lockmode, BufferAccessStrategy strategy, Buffer *buffer)
{
	BlockNumber blkno = GgArrayBlock(array, number);

	if (blkno != InvalidBlockNumber)
	{
		*buffer = ReadBufferExtended(index, MAIN_FORKNUM, blkno, RBM_NORMAL, strategy);
		LockBuffer(*buffer, lockmode);
		if (GgStampMatches(BufferGetPage(*buffer), meta->instance, array->segment, array->kind,
						   number))
			return true;
		UnlockReleaseBuffer(*buffer);
		if (GgHasNewGeneration(index, meta))
			return false;
	}
	GgReportCorruption(index, blkno == InvalidBlockNumber ? GG_META_BLKNO : blkno,
					   "page is not number " UINT64_FORMAT " of kind %d of segment %u", number,
					   array->kind, array->segment);
}

uint64
GgDeltaSlots(const GgMetaPageData *meta)
{
	uint64		pages = 0;

	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == GG_KIND_DELTA)
			pages += meta->extents[i].nblocks;
	return pages == 0 ? 0 : pages / GgDeltaPagesPerRow(meta) * GgDeltaRowsPerPage(meta);
}

/*
 * All delta pages but the last are full.  After the directory was read, VACUUM or a merge may have
 * given the last page back: then it counts as full, too.
 */
int64
GgCountDeltaRows(Relation index, const GgMetaPageData *meta)
{
	int64		rows = (int64) GgDeltaSlots(meta);
	uint64		number = GgDeltaEnd(meta) - 1;
	uint32		per_page;
	GgArray		array;
	BlockNumber blkno;

	if (rows == 0)
		return 0;
	per_page = GgDeltaRowsPerPage(meta);
	GgFindArray(meta, GG_NO_SEGMENT, GG_KIND_DELTA, &array);
	blkno = GgArrayBlock(&array, number);
	if (per_page > 1 && BlockNumberIsValid(blkno))
	{
		Buffer		buffer = ReadBuffer(index, blkno);
		Page		page = BufferGetPage(buffer);

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		if (GgStampMatches(page, meta->instance, GG_NO_SEGMENT, GG_KIND_DELTA, number))
			rows -= per_page - GgDeltaRowCount(index, meta, buffer);
		UnlockReleaseBuffer(buffer);
	}
	return rows;
}

/* ---- changing ---------------------------------------------------------------------------- */

void
GgInitMeta(GgMetaPageData *meta, Relation index, const GgOptions *options)
{
	const GgOpclass *opclass = GgIndexOpclass(index);
	GgFilterColumns columns;

	memset(meta, 0, sizeof(GgMetaPageData));
	meta->magic = GG_MAGIC;
	meta->version = GG_PLAIN_FORMAT;
	if (!pg_strong_random(&meta->instance, sizeof(meta->instance)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random instance id")));
	meta->generation = 1;
	meta->dimensions = GgDeclaredDimensions(index);
	meta->metric = opclass->metric;
	meta->element = GgStoredElement(opclass, options);
	meta->coded = GgCodedStorage(options);
	meta->algorithm = options->algorithm;
	meta->graph_degree = options->graph_degree;
	meta->intermediate_graph_degree = options->intermediate_graph_degree;
	meta->seed = options->seed;
	meta->next_id = 1;
	meta->delta_tail = InvalidBlockNumber;
	meta->features = GG_FEATURE_NO_NULL;
	if (opclass->metric == GG_METRIC_COSINE)
		meta->features |= GG_FEATURE_NO_ZERO;
	if (opclass->metric == GG_METRIC_IP)
		meta->features |= GG_FEATURE_LENGTHS;
	GgGetFilterColumns(index, &columns);
	meta->ncolumns = columns.ncolumns;
	meta->filter_words = columns.nwords;
	for (int c = 0; c < columns.ncolumns; c++)
		meta->column_types[c] = columns.columns[c].type;
	GgAddExtent(meta, GG_META_BLKNO, 1, GG_NO_SEGMENT, GG_KIND_META);
}

uint32
GgTakeId(Relation index, GgMetaPageData *meta)
{
	if (meta->next_id >= GG_NO_SEGMENT)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("index \"%s\" has no number for another segment since its last build",
						RelationGetRelationName(index)),
				 errhint("REINDEX the index.")));
	return meta->next_id++;
}

GgSegment *
GgAddSegment(GgMetaPageData *meta)
{
	GgSegment  *segment = &meta->segments[meta->nsegments];
	GgPiece    *piece = &meta->pieces[meta->npieces];

	Assert(meta->nsegments < GG_MAX_SEGMENTS && meta->npieces < GG_MAX_PIECES);
	memset(segment, 0, sizeof(*segment));
	memset(piece, 0, sizeof(*piece));
	segment->id = piece->id = piece->segment = meta->next_id++;
	segment->algorithm = meta->algorithm;
	meta->nsegments++;
	meta->npieces++;
	return segment;
}

void
GgPutMeta(Page page, const GgMetaPageData *meta)
{
	GgMetaPageData *head = GgPageGetMeta(page);
	char	   *to = (char *) head;
	const uint32 features = Features(meta);
	const uint32 version = VersionFor(features);
	Size		bytes = HeadBytes(version);

	Assert(MetaBytes(meta, version) <= GG_PAGE_PAYLOAD);
	memcpy(to, meta, bytes);
	head->version = version;
	if (version == GG_FORMAT_VERSION)
		head->features = features;
	head->delta_tail = InvalidBlockNumber;
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == GG_KIND_DELTA)
			head->delta_tail = meta->extents[i].start + meta->extents[i].nblocks - 1;
	to += bytes;
	bytes = meta->nsegments * sizeof(GgSegment);
	memcpy(to, meta->segments, bytes);
	to += bytes;
	bytes = meta->npieces * sizeof(GgPiece);
	memcpy(to, meta->pieces, bytes);
	to += bytes;
	bytes = (meta->nextents - meta->nspilled) * sizeof(GgExtent);
	memcpy(to, &meta->extents[meta->nspilled], bytes);
	to += bytes;
	((PageHeader) page)->pd_lower = to - (char *) page;
}

void
GgFormMetaPage(Page page, const GgMetaPageData *meta)
{
	Assert(meta->nspilled == 0);
	GgInitPage(page, meta->instance, GG_NO_SEGMENT, GG_KIND_META, 0);
	GgPutMeta(page, meta);
}

void
GgStoreMeta(Relation index, Relation heap, Buffer metabuf, GgMetaPageData *meta)
{
	GenericXLogState *xlog;
	bool		tell;

	GgSettleDirectory(index, heap, meta);
	tell = GgNoteFilling(meta);
	xlog = GenericXLogStart(index);
	GgPutMeta(GenericXLogRegisterBuffer(xlog, metabuf, 0), meta);
	GenericXLogFinish(xlog);
	UnlockReleaseBuffer(metabuf);
	if (tell)
		GgTellFilling(index, meta);
}

/* ---- directory pages --------------------------------------------------------------------- */

static int
InlineRoom(const GgMetaPageData *meta)
{
	return (GG_PAGE_PAYLOAD - HeadBytes(VersionFor(Features(meta))) -
			meta->nsegments * sizeof(GgSegment) -
			meta->npieces * sizeof(GgPiece)) / sizeof(GgExtent);
}

/* Do the directory pages hold the spilled extents of meta as they are? */
static bool
SpilledAreCurrent(Relation index, const GgMetaPageData *meta)
{
	GgExtent	extents[GG_DIRECTORY_EXTENTS];

	for (int i = 0; i < meta->ndirectory; i++)
	{
		ReadSpilled(index, meta, i, extents);
		if (memcmp(extents, &meta->extents[i * GG_DIRECTORY_EXTENTS],
				   SpilledOn(meta, i) * sizeof(GgExtent)) != 0)
			return false;
	}
	return true;
}

/* Put the extents of arrays, which inserts do not change, in front.  Returns how many they are. */
static int
PartitionExtents(GgMetaPageData *meta)
{
	GgExtent   *others = palloc(meta->nextents * sizeof(GgExtent));
	int			nothers = 0;
	int			n = 0;

	for (int i = 0; i < meta->nextents; i++)
	{
		GgKind		kind = meta->extents[i].kind;

		if (GgIsArray(kind))
			meta->extents[n++] = meta->extents[i];
		else
			others[nothers++] = meta->extents[i];
	}
	memcpy(&meta->extents[n], others, nothers * sizeof(GgExtent));
	pfree(others);
	return n;
}

static void
WriteDirectoryPage(Relation index, const GgMetaPageData *meta, int i, Buffer buffer)
{
	GenericXLogState *xlog = GenericXLogStart(index);
	Page		page = GenericXLogRegisterBuffer(xlog, buffer, GENERIC_XLOG_FULL_IMAGE);
	Size		bytes = SpilledOn(meta, i) * sizeof(GgExtent);

	GgInitPage(page, meta->instance, GG_NO_SEGMENT, GG_KIND_DIRECTORY, i);
	memcpy(PageGetContents(page), &meta->extents[i * GG_DIRECTORY_EXTENTS], bytes);
	((PageHeader) page)->pd_lower = (PageGetContents(page) - (char *) page) + bytes;
	GenericXLogFinish(xlog);
	UnlockReleaseBuffer(buffer);
}

/* Give another kind to those extents of a kind that belong to no segment and no piece. */
static void
RelabelExtents(GgMetaPageData *meta, GgKind from, GgKind to)
{
	for (int i = 0; i < meta->nextents; i++)
	{
		GgExtent   *extent = &meta->extents[i];

		if (extent->kind != from || extent->segment != GG_NO_SEGMENT)
			continue;
		extent->kind = to;
		extent->parked_xid = 0;
	}
}

/*
 * The new pages' blocks are taken before those of the old ones are free, because a crash before the
 * metapage's record leaves the old ones in use.
 */
void
GgSettleDirectory(Relation index, Relation heap, GgMetaPageData *meta)
{
	Buffer		buffers[GG_MAX_DIRECTORY_PAGES];
	int			room = InlineRoom(meta);
	int			npages = 0;
	int			cold;

	if (meta->nspilled <= meta->nextents && meta->nextents - meta->nspilled <= room &&
		SpilledAreCurrent(index, meta))
		return;

	/* leave room for what inserts add; each page may add an extent, too */
	cold = PartitionExtents(meta);
	if (meta->nextents + GG_MAX_DIRECTORY_PAGES > room)
		npages = DirectoryPages(Min(Max(cold, meta->nextents + GG_MAX_DIRECTORY_PAGES - room / 2),
									GG_ALL_EXTENTS));
	RelabelExtents(meta, GG_KIND_DIRECTORY, GG_KIND_TAKEN);
	for (int i = 0; i < npages; i++)
	{
		buffers[i] = GgAllocateBlock(index, heap, meta, GG_KIND_DIRECTORY,
									 &meta->directory[i]);
		GgAddExtent(meta, meta->directory[i], 1, GG_NO_SEGMENT, GG_KIND_DIRECTORY);
	}
	RelabelExtents(meta, GG_KIND_TAKEN, GG_KIND_FREE);
	GgMergeFree(meta);
	meta->ndirectory = npages;
	meta->nspilled = 0;
	if (npages > 0)
	{
		/* all pages have some */
		int			least = (npages - 1) * GG_DIRECTORY_EXTENTS + 1;

		meta->nspilled = Min(Max(Max(cold, meta->nextents - room / 2), least),
							 npages * GG_DIRECTORY_EXTENTS);
	}
	if (meta->nextents - meta->nspilled > room)
		elog(ERROR, "gpugraph directory of %u extents does not fit", meta->nextents);
	for (int i = 0; i < npages; i++)
		WriteDirectoryPage(index, meta, i, buffers[i]);
}
