/*
 * source.c
 *		A segment's rows and edges, read from relation pages, as the gg_source of a walk.
 *
 * Vectors, adjacency and pivots never change while a snapshot can need them (src/README, Locks), so
 * their pages are pinned but not locked.  A walk reads about a thousand rows at random, and the
 * buffer mapping look-up would cost more than the distance: each backend remembers in which buffer
 * it last saw a block, and ReadRecentBuffer() checks that under the buffer's header lock.
 *
 * The engine does not allow its callbacks to longjmp.  They catch what the buffer manager throws,
 * leave the error on the error stack, and return false; the scan re-throws once the engine returned.
 */
#include "storage/source.h"

#include "miscadmin.h"
#include "storage/buf_internals.h"
#include "utils/memutils.h"

/* Remembered buffers at the most: 2 MB a backend and index. */
#define MAX_REMEMBERED	(1 << 18)

/* Rows fetched ahead of their turn, and how much of each; the hardware follows from there. */
#define ROWS_AHEAD		4
#define PREFETCH_BYTES	1024

/*
 * Kept in rd_amcache, which any relcache invalidation may free: never held on to across a call that
 * can take one.  A direct-mapped table of blocks whose stamp was checked in this generation.
 */
typedef struct RememberedBuffers
{
	uint64		instance;
	uint64		generation;
	uint32		mask;
	struct
	{
		BlockNumber blkno;
		Buffer		buffer;
	}			slots[FLEXIBLE_ARRAY_MEMBER];
} RememberedBuffers;

static RememberedBuffers *
GetRemembered(GgPageSource *src)
{
	Relation	index = src->index;
	RememberedBuffers *remembered = index->rd_amcache;
	uint32		nslots;

	if (likely(remembered != NULL &&
			   remembered->instance == src->instance && remembered->generation == src->generation))
		return remembered;

	if (remembered != NULL)
	{
		index->rd_amcache = NULL;
		pfree(remembered);
	}
	nslots = pg_nextpower2_32(Min(Max(RelationGetNumberOfBlocks(index), 64), MAX_REMEMBERED));
	remembered = MemoryContextAllocExtended(index->rd_indexcxt,
											offsetof(RememberedBuffers, slots) +
											nslots * sizeof(remembered->slots[0]),
											MCXT_ALLOC_ZERO);
	remembered->instance = src->instance;
	remembered->generation = src->generation;
	remembered->mask = nslots - 1;
	/* block 0 is the metapage, which is never remembered: a zeroed slot matches nothing */
	index->rd_amcache = remembered;
	return remembered;
}

/* The page, pinned; its stamp checked when it was not remembered. */
static inline Buffer
PinPage(GgPageSource *src, RememberedBuffers *remembered, const GgArray *array, uint32 number)
{
	BlockNumber blkno = GgArrayBlock(array, number);
	uint32		slot = blkno & remembered->mask;
	Buffer		buffer;

	if (likely(remembered->slots[slot].blkno == blkno) &&
		likely(ReadRecentBuffer(GgLocator(src->index), MAIN_FORKNUM, blkno, remembered->slots[slot].buffer)))
		return remembered->slots[slot].buffer;

	if (blkno == InvalidBlockNumber)
		GgReportCorruption(src->index, GG_META_BLKNO, "no extent holds page %u of kind %d of segment %u",
						   number, array->kind, array->segment);
	buffer = ReadBuffer(src->index, blkno);
	if (!GgStampMatches(BufferGetPage(buffer), src->instance, array->segment, array->kind, number))
		GgReportCorruption(src->index, blkno, "page is not number %u of kind %d of segment %u",
						   number, array->kind, array->segment);

	/* reading may have handled an invalidation */
	if (src->index->rd_amcache == remembered)
	{
		remembered->slots[slot].blkno = blkno;
		remembered->slots[slot].buffer = buffer;
	}
	return buffer;
}

/* Start reading the pages of nodes that are not in shared buffers, all at once. */
static void
PrefetchRows(GgPageSource *src, const uint32 *nodes, uint32 count)
{
#ifdef USE_PREFETCH
	RememberedBuffers *remembered = GetRemembered(src);

	for (uint32 i = 0; i < count; i++)
	{
		uint64		offset = (uint64) nodes[i] * src->row_bytes;
		uint32		first = offset / GG_PAGE_PAYLOAD;
		uint32		last = (offset + src->row_bytes - 1) / GG_PAGE_PAYLOAD;

		for (uint32 number = first; number <= last; number++)
		{
			BlockNumber blkno = GgArrayBlock(&src->vectors, number);

			if (blkno != InvalidBlockNumber && remembered->slots[blkno & remembered->mask].blkno != blkno)
				(void) PrefetchBuffer(src->index, MAIN_FORKNUM, blkno);
		}
	}
#endif
}

static inline void
PrefetchRow(const GgPageSource *src, const char *row)
{
	if (row != NULL)
		for (Size b = 0; b < Min(src->row_bytes, PREFETCH_BYTES); b += 64)
			__builtin_prefetch(row + b);
}

/* Copy len bytes at offset of an array, piece by piece. */
static void
CopyBytes(GgPageSource *src, const GgArray *array, uint64 offset, void *dst, Size len)
{
	char	   *out = dst;

	while (len > 0)
	{
		uint32		number = offset / GG_PAGE_PAYLOAD;
		Size		skip = offset % GG_PAGE_PAYLOAD;
		Size		piece = Min(len, GG_PAGE_PAYLOAD - skip);
		Buffer		buffer = PinPage(src, GetRemembered(src), array, number);

		memcpy(out, PageGetContents(BufferGetPage(buffer)) + skip, piece);
		ReleaseBuffer(buffer);
		out += piece;
		offset += piece;
		len -= piece;
	}
}

/*
 * A walk's rows lie all over memory, and so do the descriptors of their buffers: waiting for one
 * cache miss after the other would take longer than everything else.  So the descriptors of all are fetched
 * first, and each row a few rows ahead of its turn.  What is fetched for a buffer that meanwhile holds
 * another block is of no use and does no harm.
 */
void
GgSourceDistances(GgPageSource *src, const uint32 *nodes, uint32 count, float *out)
{
	RememberedBuffers *remembered = GetRemembered(src);
	const char *ahead[GG_MAX_DEGREE];

	Assert(count <= GG_MAX_DEGREE);
	PrefetchRows(src, nodes, count);
	for (uint32 i = 0; i < count; i++)
	{
		uint64		offset = (uint64) nodes[i] * src->row_bytes;
		BlockNumber blkno = GgArrayBlock(&src->vectors, offset / GG_PAGE_PAYLOAD);
		uint32		slot = blkno & remembered->mask;

		ahead[i] = NULL;
		if (remembered->slots[slot].blkno == blkno)
		{
			Buffer		buffer = remembered->slots[slot].buffer;

			if (!BufferIsLocal(buffer))
				__builtin_prefetch(GetBufferDescriptor(buffer - 1), 1);
			ahead[i] = PageGetContents(BufferGetPage(buffer)) + offset % GG_PAGE_PAYLOAD;
		}
	}
	for (uint32 i = 0; i < Min(count, ROWS_AHEAD); i++)
		PrefetchRow(src, ahead[i]);

	for (uint32 i = 0; i < count; i++)
	{
		uint64		offset = (uint64) nodes[i] * src->row_bytes;
		Size		skip = offset % GG_PAGE_PAYLOAD;

		if (i + ROWS_AHEAD < count)
			PrefetchRow(src, ahead[i + ROWS_AHEAD]);
		if (skip + src->row_bytes <= GG_PAGE_PAYLOAD)
		{
			Buffer		buffer = PinPage(src, GetRemembered(src), &src->vectors, offset / GG_PAGE_PAYLOAD);

			out[i] = src->distance(PageGetContents(BufferGetPage(buffer)) + skip, src->query, src->dimensions);
			ReleaseBuffer(buffer);
		}
		else
		{
			CopyBytes(src, &src->vectors, offset, src->scratch, src->row_bytes);
			out[i] = src->distance(src->scratch, src->query, src->dimensions);
		}
	}
}

static bool
SourceDistances(void *ctx, const uint32_t *nodes, uint32_t count, float *out)
{
	volatile bool ok = true;

	PG_TRY();
	{
		CHECK_FOR_INTERRUPTS();
		GgSourceDistances(ctx, nodes, count, out);
	}
	PG_CATCH();
	{
		ok = false;
	}
	PG_END_TRY();
	return ok;
}

static bool
SourceNeighbors(void *ctx, uint32_t node, uint32_t *out)
{
	GgPageSource *src = ctx;
	Size		bytes = src->source.degree * sizeof(uint32);
	volatile bool ok = true;

	PG_TRY();
	{
		CopyBytes(src, &src->adjacency, (uint64) node * bytes, out, bytes);
	}
	PG_CATCH();
	{
		ok = false;
	}
	PG_END_TRY();
	return ok;
}

static bool
SourcePivot(void *ctx, uint32_t i, uint32_t *node, uint32_t *neighbors)
{
	GgPageSource *src = ctx;
	volatile bool ok = true;

	PG_TRY();
	{
		GgPivotEntry entry;

		CopyBytes(src, &src->pivots, (uint64) i * sizeof(entry), &entry, sizeof(entry));
		*node = entry.node;
		memcpy(neighbors, entry.neighbors, sizeof(entry.neighbors));
	}
	PG_CATCH();
	{
		ok = false;
	}
	PG_END_TRY();
	return ok;
}

void
GgSourceInit(GgPageSource *src, Relation index, const GgMetaPageData *meta, const GgSegment *segment,
			 const float *query)
{
	memset(src, 0, sizeof(*src));
	src->index = index;
	src->instance = meta->instance;
	src->generation = meta->generation;
	GgFindArray(meta, segment->id, GG_KIND_VECTORS, &src->vectors);
	GgFindArray(meta, segment->id, GG_KIND_ADJACENCY, &src->adjacency);
	GgFindArray(meta, segment->id, GG_KIND_PIVOTS, &src->pivots);
	src->row_bytes = GgRowBytes(meta);
	src->dimensions = meta->dimensions;
	src->distance = gg_distance_function(meta->metric, meta->element);
	src->query = query;
	src->scratch = palloc(src->row_bytes);

	src->source.n = segment->nodes;
	src->source.degree = meta->graph_degree;
	src->source.npivots = segment->npivots;
	src->source.ctx = src;
	src->source.distances = SourceDistances;
	src->source.neighbors = SourceNeighbors;
	src->source.pivot = SourcePivot;
}
