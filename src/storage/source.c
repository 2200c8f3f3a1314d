/*
 * source.c
 *		A segment's rows and edges, read from relation pages, as the gg_source of a walk.
 *
 * Vectors, adjacency and pivots never change while a snapshot can need them (README, Locks), so
 * their pages are not locked.  They are pinned, but for most looks of a walk by codes
 * (TagWithoutPin).  A walk reads about a thousand rows at random, and looking up each buffer would
 * cost more than the distance.  So buffers are remembered (recent_buffers.c).  Where a segment has
 * codes, a walk reads those instead of the vectors.
 *
 * Where such an index is larger than shared buffers, walks come back to codes and edges, and want
 * few vectors, mostly others than the walk before.  So vectors pass through a ring of buffers, and
 * the rest stays: 100,000 x 768, int4, shared_buffers 100MB, direct I/O, itopk 32, two rounds by
 * turns with and without the ring: a third and a quarter of the blocks are read, and 2.1 and 2.5
 * times as many queries are answered.  RESULTS.md, Storage and codes, has what a query reads.
 *
 * Pivots that a session has measured stay in its own memory, with their rows (pivot_cache.c).
 *
 * Tried: read streams instead of PrefetchBuffer(), for vectors, codes, edges and what
 * table_order.c reads (PostgreSQL 18, io_method worker, 2 busy cores; RESULTS.md, Storage and
 * codes).  From disk they take 1.4 to 1.7 times as long, and with direct I/O, where a prefetch does
 * nothing, they gain nothing.  To prefetch what a row has on the next page, too: 0.98 to 1.02 of
 * the time, walks by rows, by codes of 8 and 4 bits, and storage int4, 60,000 x 784.  To fetch the
 * lists of a step's next parents while rows are measured: no gain, 500,000 x 128.
 *
 * The engine does not allow its callbacks to longjmp.  They catch what the buffer manager throws,
 * leave the error on the error stack, and return false.  The scan re-throws it when the engine has
 * returned.
 */
#include "storage/source.h"

#include <float.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/buf_internals.h"
#include "utils/memutils.h"

#include "engine/keys.h"

/* Bytes of a row that are fetched ahead of its turn.  The hardware goes on from there. */
#define PREFETCH_BYTES	1024

/* Rows that GgSourceMeasureNext() measures at a time. */
#define MEASURED_AT_ONCE	8

pg_noreturn static void
ReportOtherPage(const GgPageSource *src, const GgArray *array, uint32 number, BlockNumber blkno)
{
	GgReportCorruption(src->index, blkno, "page is not number %u of kind %d of segment %u", number,
					   array->kind, array->segment);
}

/* Pin a page, whose stamp is checked.  blkno: its block. */
static inline Buffer
PinBlock(GgPageSource *src, const GgArray *array, uint32 number, BlockNumber blkno)
{
	Buffer		buffer = GgRecentBuffer(&src->recent, blkno);

	if (likely(BufferIsValid(buffer)) &&
		likely(ReadRecentBuffer(GgLocator(src->index), MAIN_FORKNUM, blkno, buffer)))
	{
		if (unlikely(!GgHasStamp(BufferGetPage(buffer), src->instance, array->segment,
								 array->kind, number)))
			ReportOtherPage(src, array, number, blkno);
		return buffer;
	}

	if (blkno == InvalidBlockNumber)
		GgReportCorruption(src->index, GG_META_BLKNO,
						   "no extent holds page %u of kind %d of segment %u", number, array->kind,
						   array->segment);
	buffer = ReadBufferExtended(src->index, MAIN_FORKNUM, blkno, RBM_NORMAL,
								array->kind == GG_KIND_VECTORS ? src->ring : NULL);
	if (!GgStampMatches(BufferGetPage(buffer), src->instance, array->segment, array->kind, number))
		ReportOtherPage(src, array, number, blkno);
	GgSetRecentBuffer(&src->recent, blkno, buffer);
	return buffer;
}

static inline Buffer
PinPage(GgPageSource *src, const GgArray *array, uint32 number)
{
	return PinBlock(src, array, number, GgArrayBlock(array, number));
}

Buffer
GgSourcePin(GgPageSource *src, const GgArray *array, uint32 number)
{
	return PinPage(src, array, number);
}

/* The page of a remembered buffer.  What pinning it takes is fetched ahead. */
static inline const char *
PeekPage(Buffer buffer)
{
	if (!BufferIsLocal(buffer))
		__builtin_prefetch(GetBufferDescriptor(buffer - 1), 1);
	return BufferGetPage(buffer);
}

/* The same for a page that is mostly read without a pin. */
static inline const char *
PeekTaggedPage(Buffer buffer)
{
	if (!BufferIsLocal(buffer))
		__builtin_prefetch(GetBufferDescriptor(buffer - 1));
	return BufferGetPage(buffer);
}

/* The same for a page of the index, whose stamp is looked at, too. */
static inline const char *
PeekStampedPage(Buffer buffer)
{
	const char *page = PeekPage(buffer);

	__builtin_prefetch(page + BLCKSZ - sizeof(GgPageStamp));
	return page;
}

const char *
GgSourcePeek(const GgPageSource *src, const GgArray *array, uint32 number)
{
	Buffer		buffer = GgRecentBuffer(&src->recent, GgArrayBlock(array, number));

	return BufferIsValid(buffer) ? PeekStampedPage(buffer) : NULL;
}

/* Recent buffers of a table, mostly that of the last call.  Blocks are remembered unchecked. */
static inline const GgRecentBuffers *
RecentOfHeap(Relation heap)
{
	static GgRelFileLocator last;
	static bool last_local;
	static GgRecentBuffers recent;
	bool		local = RelationUsesLocalBuffers(heap);

	if (!GgSameLocator(&last, &GgLocator(heap)) || last_local != local)
	{
		GgFindRecentBuffers(&recent, heap, 0);
		last = GgLocator(heap);
		last_local = local;
	}
	return &recent;
}

const char *
GgSourcePeekHeap(Relation heap, BlockNumber blkno)
{
	const GgRecentBuffers *recent = RecentOfHeap(heap);
	Buffer		buffer = GgRecentBuffer(recent, blkno);

	if (!BufferIsValid(buffer))
	{
		buffer = PrefetchBuffer(heap, MAIN_FORKNUM, blkno).recent_buffer;
		if (!BufferIsValid(buffer))
			return NULL;
		GgSetRecentBuffer(recent, blkno, buffer);
	}
	return PeekPage(buffer);
}

Buffer
GgSourcePinHeap(Relation heap, BlockNumber blkno)
{
	const GgRecentBuffers *recent = RecentOfHeap(heap);
	Buffer		buffer = GgRecentBuffer(recent, blkno);

	if (BufferIsValid(buffer) &&
		ReadRecentBuffer(GgLocator(heap), MAIN_FORKNUM, blkno, buffer))
		return buffer;
	buffer = ReadBuffer(heap, blkno);
	GgSetRecentBuffer(recent, blkno, buffer);
	return buffer;
}

static inline Size
BytesOf(const GgPageSource *src, bool codes)
{
	return codes ? src->code_query->coder.record_bytes : src->row_bytes;
}

/* Where a node's vector or code lies: the array, and the byte in it. */
static inline const GgArray *
FindVector(const GgPageSource *src, uint32 node, bool codes, uint64 *offset)
{
	const GgVectorPiece *piece = GgPieceOf(&src->vectors, node);

	*offset = (uint64) (node - piece->first) * BytesOf(src, codes);
	return codes ? &piece->code_array : &piece->array;
}

static inline float
Distance(const GgPageSource *src, const void *row, bool codes)
{
	return codes ?
		gg_code_distance(&src->code_query->coder, row, &src->code_query->query) :
		src->distance(row, src->query, src->dimensions);
}

/*
 * Is a block still in the buffer where it was last seen?  Where all of the index has room, it is
 * taken to be: a look at the descriptor takes a cache miss.
 */
static inline bool
IsInBuffers(const GgPageSource *src, BlockNumber blkno)
{
	Buffer		buffer = GgRecentBuffer(&src->recent, blkno);

	return BufferIsValid(buffer) &&
		(!src->crowded || BufferIsLocal(buffer) ||
		 GetBufferDescriptor(buffer - 1)->tag.blockNum == blkno);
}

/* Start reading the pages of some bytes of an array, where they are not in shared buffers. */
static inline void
PrefetchBytes(GgPageSource *src, const GgArray *array, uint64 offset, Size len)
{
#ifdef USE_PREFETCH
	uint32		first = offset / GG_PAGE_PAYLOAD;
	uint32		last = (offset + len - 1) / GG_PAGE_PAYLOAD;

	for (uint32 number = first; number <= last; number++)
	{
		BlockNumber blkno = GgArrayBlock(array, number);

		if (blkno != InvalidBlockNumber && !IsInBuffers(src, blkno))
			(void) PrefetchBuffer(src->index, MAIN_FORKNUM, blkno);
	}
#endif
}

/* Inlined always: gcc 12 drops calls of a function that does nothing but prefetch. */
static pg_attribute_always_inline void
PrefetchRow(const char *row, Size bytes)
{
	if (row != NULL)
		for (Size b = 0; b < Min(bytes, PREFETCH_BYTES); b += 64)
			__builtin_prefetch(row + b);
}

void
GgSourceRead(GgPageSource *src, const GgArray *array, uint64 offset, void *dst, Size len)
{
	char	   *out = dst;

	while (len > 0)
	{
		uint32		number = offset / GG_PAGE_PAYLOAD;
		Size		skip = offset % GG_PAGE_PAYLOAD;
		Size		piece = Min(len, GG_PAGE_PAYLOAD - skip);
		Buffer		buffer = PinPage(src, array, number);

		memcpy(out, PageGetContents(BufferGetPage(buffer)) + skip, piece);
		ReleaseBuffer(buffer);
		out += piece;
		offset += piece;
		len -= piece;
	}
}

/*
 * A walk by codes looks at these and at edges without a pin, where the buffer has their block
 * before and after.  A block that goes and comes in between, or is being read, spoils an estimate,
 * or leads the walk astray.  It spoils no answer: walks are approximate, ids are checked, and what
 * they find is measured by its row.  Pins are a quarter of such a walk's time, and sessions take
 * turns on them: without those of codes, 16 clients have 1.15 times the queries per second at itopk
 * 16, and 1.19 at 64 (1M x 128).  Of 16 looks one is by a pin all the same, which tells the buffer
 * manager that the page is in use; where there is no room for all of the index, each is.
 *
 * Returns the tag to look at again afterwards; NULL: the page is to be pinned.
 */
static inline const BufferTag *
TagWithoutPin(GgPageSource *src, Buffer buffer, BlockNumber blkno)
{
	const BufferTag *tag;

	if (!BufferIsValid(buffer) || BufferIsLocal(buffer) || (++src->looks & 15) == 0)
		return NULL;
	tag = &GetBufferDescriptor(buffer - 1)->tag;
	if (!GgTagNames(tag, &GgLocator(src->index), blkno))
		return NULL;
	pg_read_barrier();
	return tag;
}

/* The same block still? */
static inline bool
HasStayed(const GgPageSource *src, const BufferTag *tag, BlockNumber blkno)
{
	pg_read_barrier();
	if (!GgTagNames(tag, &GgLocator(src->index), blkno))
		return false;
	pgBufferUsage.shared_blks_hit++;
	return true;
}

/* GgSourceRead() without a pin.  False: not all bytes could be read so. */
static inline bool
ReadUnpinned(GgPageSource *src, const GgArray *array, uint64 offset, void *dst, Size len)
{
	for (Size done = 0, piece; done < len; done += piece)
	{
		const Size	skip = (offset + done) % GG_PAGE_PAYLOAD;
		const BlockNumber blkno = GgArrayBlock(array, (offset + done) / GG_PAGE_PAYLOAD);
		const Buffer buffer = GgRecentBuffer(&src->recent, blkno);
		const BufferTag *tag = TagWithoutPin(src, buffer, blkno);

		if (tag == NULL)
			return false;
		piece = Min(len - done, GG_PAGE_PAYLOAD - skip);
		memcpy((char *) dst + done, PageGetContents(BufferGetPage(buffer)) + skip, piece);
		if (!HasStayed(src, tag, blkno))
			return false;
	}
	return true;
}

static inline bool
EstimateUnpinned(GgPageSource *src, Buffer buffer, BlockNumber blkno, const char *row, float *out)
{
	const BufferTag *tag = TagWithoutPin(src, buffer, blkno);

	if (tag == NULL)
		return false;
	*out = Distance(src, row, true);
	return HasStayed(src, tag, blkno);
}

/*
 * A walk's rows lie all over memory, and so do the descriptors of their buffers.  Waiting for one
 * cache miss after the other would take longer than everything else.  So where they were last is
 * fetched first, then the descriptors and stamps of all, and the rows.  A fetch is useless but
 * harmless where the buffer meanwhile holds another block.
 *
 * With pages of 4 kB each row misses the TLB, too, and a fetch waits for that.  Fetched at once
 * they share the wait: beside rows that are fetched four ahead of their turn, queries take .87 of
 * the time (1M x 128 and 200,000 x 768, int8), and without codes as long.
 */
static pg_attribute_always_inline void
Measure(GgPageSource *src, const uint32 *nodes, uint32 count, bool codes, bool unpinned,
		float *out)
{
	const Size	bytes = BytesOf(src, codes);
	const char *ahead[GG_MAX_DEGREE];
	BlockNumber blocks[GG_MAX_DEGREE];
	Buffer		buffers[GG_MAX_DEGREE];
	uint32		numbers[GG_MAX_DEGREE];
	uint32		skips[GG_MAX_DEGREE];

	Assert(count <= GG_MAX_DEGREE);
	for (uint32 i = 0; i < count; i++)
	{
		uint64		offset;
		const GgArray *array = FindVector(src, nodes[i], codes, &offset);

		numbers[i] = offset / GG_PAGE_PAYLOAD;
		skips[i] = offset % GG_PAGE_PAYLOAD;
		blocks[i] = GgArrayBlock(array, numbers[i]);
		GgFetchRecentBuffer(&src->recent, blocks[i]);
	}
	for (uint32 i = 0; i < count; i++)
	{
		buffers[i] = GgRecentBuffer(&src->recent, blocks[i]);
		ahead[i] = NULL;
		if (BufferIsValid(buffers[i]))
			ahead[i] = PageGetContents((Page) (unpinned ? PeekTaggedPage(buffers[i]) :
											   PeekStampedPage(buffers[i]))) + skips[i];
		if (src->crowded || ahead[i] == NULL || skips[i] + bytes > GG_PAGE_PAYLOAD)
		{
			uint64		offset;
			const GgArray *array = FindVector(src, nodes[i], codes, &offset);

			PrefetchBytes(src, array, offset, bytes);
		}
		PrefetchRow(ahead[i], bytes);
	}

	for (uint32 i = 0; i < count; i++)
	{
		const bool	whole = skips[i] + bytes <= GG_PAGE_PAYLOAD;
		const GgArray *array;
		uint64		offset;

		if (unpinned && whole &&
			EstimateUnpinned(src, buffers[i], blocks[i], ahead[i], &out[i]))
			continue;
		array = FindVector(src, nodes[i], codes, &offset);
		if (whole)
		{
			Buffer		buffer = PinBlock(src, array, numbers[i], blocks[i]);

			out[i] = Distance(src, PageGetContents(BufferGetPage(buffer)) + skips[i], codes);
			ReleaseBuffer(buffer);
		}
		else
		{
			if (!unpinned || !ReadUnpinned(src, array, offset, src->scratch, bytes))
				GgSourceRead(src, array, offset, src->scratch, bytes);
			out[i] = Distance(src, src->scratch, codes);
		}
	}
}

void
GgSourceDistances(GgPageSource *src, const uint32 *nodes, uint32 count, float *out)
{
	if (src->coded)
		Measure(src, nodes, count, true, false, out);
	else
		Measure(src, nodes, count, false, false, out);
}

/*
 * Each page is pinned once.  Reading all rows of a segment reads its pages in order, which the
 * system notices and reads ahead.
 */
void
GgSourceSweep(GgPageSource *src, uint32 first, uint32 count, float *out)
{
	const bool	codes = src->coded;
	const Size	bytes = BytesOf(src, codes);

	for (uint32 i = 0; i < count;)
	{
		const GgVectorPiece *piece = GgPieceOf(&src->vectors, first + i);
		uint32		in_piece = piece->first + piece->nodes - (first + i);
		const GgArray *array = codes ? &piece->code_array : &piece->array;
		uint64		offset = (uint64) (first + i - piece->first) * bytes;
		Size		skip = offset % GG_PAGE_PAYLOAD;
		uint32		whole = Min((GG_PAGE_PAYLOAD - skip) / bytes,
								Min(count - i, in_piece));

		if (whole > 0)
		{
			Buffer		buffer = PinPage(src, array, offset / GG_PAGE_PAYLOAD);
			const char *rows = PageGetContents(BufferGetPage(buffer)) + skip;

			for (uint32 j = 0; j < whole; j++)
				out[i + j] = Distance(src, rows + j * bytes, codes);
			ReleaseBuffer(buffer);
			i += whole;
		}
		else
		{
			GgSourceRead(src, array, offset, src->scratch, bytes);
			out[i++] = Distance(src, src->scratch, codes);
		}
	}
}

uint32
GgSourceMeasureKeys(GgPageSource *src, uint64 *keys, uint32 count)
{
	uint32		nodes[GG_MAX_DEGREE];
	float		distances[GG_MAX_DEGREE];
	uint32		measured = 0;

	/* what was measured lies before what is still to be read */
	for (uint32 i = 0; i < count;)
	{
		uint32		n = 0;

		for (; i < count && n < GG_MAX_DEGREE; i++)
			if (keys[i] != GG_NO_KEY && key_node(keys[i]) < src->source.n)
				nodes[n++] = key_node(keys[i]);
		GgSourceDistances(src, nodes, n, distances);
		for (uint32 j = 0; j < n; j++)
			heap_push(keys, measured++, key_of(distances[j], nodes[j]));
	}
	heap_sort(keys, measured);
	for (uint32 i = measured; i < count; i++)
		keys[i] = GG_NO_KEY;
	return measured;
}

uint32
GgSourceMeasureNext(GgPageSource *src, uint64 *keys, uint32 first, uint32 measured, uint32 count)
{
	const uint32 end = Min(count, measured + MEASURED_AT_ONCE);
	uint32		nodes[MEASURED_AT_ONCE] = {0};
	float		distances[MEASURED_AT_ONCE];
	uint32		n = 0;

	for (uint32 i = measured; i < end; i++)
		if (key_node(keys[i]) < src->source.n)
			nodes[n++] = key_node(keys[i]);
	GgSourceDistances(src, nodes, n, distances);
	for (uint32 i = measured, m = 0; i < end; i++)
	{
		uint32		place = i;
		uint64		key = keys[i];

		if (m < n && key_node(key) == nodes[m])
		{
			key = key_of(distances[m], nodes[m]);
			m++;
		}
		for (; place > first && keys[place - 1] > key; place--)
			keys[place] = keys[place - 1];
		keys[place] = key;
	}
	return end;
}

static bool
SourceDistances(void *ctx, const uint32_t *nodes, uint32_t count, float *out)
{
	volatile bool ok = true;

	PG_TRY();
	{
		GgPageSource *src = ctx;

		CHECK_FOR_INTERRUPTS();
		if (src->code_query != NULL)
			Measure(src, nodes, count, true, !src->crowded, out);
		else
			Measure(src, nodes, count, false, false, out);
		for (uint32 i = 0; i < count && src->left_out != GG_NO_NODE; i++)
			if (nodes[i] == src->left_out)
				out[i] = FLT_MAX;
	}
	PG_CATCH();
	{
		ok = false;
	}
	PG_END_TRY();
	return ok;
}

/*
 * In a graph without the node that is left out, its neighbors would have another edge in place of
 * the one to it.  So every other neighbor gets an edge to a neighbor of that node.  Rows then miss
 * .97 and .99 of what other queries do (8,000 x 24, graph_degree 12, lists of 16 and 64); .7 where
 * all neighbors get such an edge; 1.3 and 1.5 where edges lead to a neighbor's neighbor instead.
 */
static void
GoAround(GgPageSource *src, const uint32 *nodes, uint32 count, uint32 *out)
{
	const uint32 degree = src->source.degree;

	for (uint32 i = 0; i < count * degree; i++)
		if ((out[i] & ~GG_EDGE_MARK) == src->left_out && nodes[i / degree] % 2 == 0)
			GgSourceRead(src, &src->adjacency, ((uint64) src->left_out * degree +
												nodes[i / degree] / 2 % degree) * sizeof(uint32),
						 &out[i], sizeof(uint32));
}

/* Fetch a node's list ahead, where its page is in a buffer. */
static pg_attribute_always_inline void
PeekList(const GgPageSource *src, uint64 offset, Size bytes)
{
	Buffer		buffer = GgRecentBuffer(&src->recent,
										GgArrayBlock(&src->adjacency, offset / GG_PAGE_PAYLOAD));

	if (BufferIsValid(buffer))
		PrefetchRow(PageGetContents((Page) PeekTaggedPage(buffer)) + offset % GG_PAGE_PAYLOAD,
					bytes);
}

static bool
SourceNeighbors(void *ctx, const uint32_t *nodes, uint32_t count, uint32_t *out)
{
	GgPageSource *src = ctx;
	const uint32 degree = src->source.degree;
	const Size	bytes = degree * sizeof(uint32);
	const bool	unpinned = src->code_query != NULL && !src->crowded;
	volatile bool ok = true;

	PG_TRY();
	{
		for (uint32 i = 0; i < count; i++)
			PeekList(src, (uint64) nodes[i] * bytes, bytes);
		/* the first one is read at once */
		for (uint32 i = 1; i < count; i++)
			PrefetchBytes(src, &src->adjacency, (uint64) nodes[i] * bytes, bytes);
		for (uint32 i = 0; i < count; i++)
			if (!unpinned || !ReadUnpinned(src, &src->adjacency, (uint64) nodes[i] * bytes,
										   out + i * degree, bytes))
				GgSourceRead(src, &src->adjacency, (uint64) nodes[i] * bytes, out + i * degree,
							 bytes);
		if (src->left_out != GG_NO_NODE)
			GoAround(src, nodes, count, out);
	}
	PG_CATCH();
	{
		ok = false;
	}
	PG_END_TRY();
	return ok;
}

/* The cache of pivots, sought once: a walk measures by one form, which is known when it begins. */
static GgPivotCache *
PivotCache(GgPageSource *src)
{
	const bool	codes = src->code_query != NULL;
	const GgPivotCacheKey key = {src->instance, src->generation, src->pivots.segment, codes};

	if (!src->pivots_sought)
	{
		src->pivot_cache = GgFindPivotCache(&key, src->source.npivots, BytesOf(src, codes));
		src->pivots_sought = true;
	}
	return src->pivot_cache;
}

/* Does the cache have this (GG_PIVOT_...) of all these pivots? */
static inline bool
AreKept(const GgPivotCache *cache, const uint32 *pivots, uint32 count, char what)
{
	for (uint32 i = 0; i < count; i++)
		what &= cache->known[pivots[i]];
	return what != 0;
}

static inline void
CopyPivot(const GgPivotEntry *entry, uint32 *node, uint32 *neighbors)
{
	*node = entry->node;
	memcpy(neighbors, entry->neighbors, sizeof(entry->neighbors));
}

/* Copy pivots, and read those that are not in the cache yet.  Throws. */
static void
ReadPivots(GgPageSource *src, const uint32 *pivots, uint32 count, uint32 *nodes,
		   uint32 *neighbors)
{
	GgPivotCache *cache = PivotCache(src);

	for (uint32 i = 0; i < count; i++)
	{
		GgPivotEntry read;
		GgPivotEntry *entry = cache == NULL ? &read : &cache->entries[pivots[i]];

		if (cache == NULL || (cache->known[pivots[i]] & GG_PIVOT_ENTRY) == 0)
			GgSourceRead(src, &src->pivots, (uint64) pivots[i] * sizeof(*entry), entry,
						 sizeof(*entry));
		if (cache != NULL)
			cache->known[pivots[i]] |= GG_PIVOT_ENTRY;
		CopyPivot(entry, &nodes[i], neighbors + i * GG_PIVOT_DEGREE);
	}
}

static bool
SourcePivots(void *ctx, const uint32_t *pivots, uint32_t count, uint32_t *nodes,
			 uint32_t *neighbors)
{
	GgPageSource *src = ctx;
	const GgPivotCache *cache = src->pivot_cache;
	volatile bool ok = true;

	if (cache != NULL && AreKept(cache, pivots, count, GG_PIVOT_ENTRY))
	{
		for (uint32 i = 0; i < count; i++)
			PrefetchRow((const char *) &cache->entries[pivots[i]], sizeof(GgPivotEntry));
		for (uint32 i = 0; i < count; i++)
			CopyPivot(&cache->entries[pivots[i]], &nodes[i], neighbors + i * GG_PIVOT_DEGREE);
		return true;
	}
	PG_TRY();
	{
		ReadPivots(src, pivots, count, nodes, neighbors);
	}
	PG_CATCH();
	{
		ok = false;
	}
	PG_END_TRY();
	return ok;
}

/* Read the rows of pivots that the cache does not have yet.  Throws. */
static void
ReadPivotRows(GgPageSource *src, const uint32 *pivots, const uint32 *nodes, uint32 count)
{
	const bool	codes = src->code_query != NULL;
	const Size	bytes = BytesOf(src, codes);
	GgPivotCache *cache = src->pivot_cache;

	CHECK_FOR_INTERRUPTS();
	for (uint32 i = 0; i < count; i++)
	{
		uint64		offset;
		const GgArray *array = FindVector(src, nodes[i], codes, &offset);

		if ((cache->known[pivots[i]] & GG_PIVOT_ROW) == 0)
			PrefetchBytes(src, array, offset, bytes);
	}
	for (uint32 i = 0; i < count; i++)
	{
		uint64		offset;
		const GgArray *array = FindVector(src, nodes[i], codes, &offset);

		if ((cache->known[pivots[i]] & GG_PIVOT_ROW) != 0)
			continue;
		GgSourceRead(src, array, offset, cache->rows + pivots[i] * bytes, bytes);
		cache->known[pivots[i]] |= GG_PIVOT_ROW;
	}
}

static bool
KeepPivotRows(GgPageSource *src, const uint32 *pivots, const uint32 *nodes, uint32 count)
{
	volatile bool ok = true;

	if (AreKept(src->pivot_cache, pivots, count, GG_PIVOT_ROW))
		return true;
	PG_TRY();
	{
		ReadPivotRows(src, pivots, nodes, count);
	}
	PG_CATCH();
	{
		ok = false;
	}
	PG_END_TRY();
	return ok;
}

static bool
SourcePivotDistances(void *ctx, const uint32_t *pivots, const uint32_t *nodes, uint32_t count,
					 float *out)
{
	GgPageSource *src = ctx;
	const bool	codes = src->code_query != NULL;
	const Size	bytes = BytesOf(src, codes);
	const char *rows;

	if (src->pivot_cache == NULL)
		return SourceDistances(ctx, nodes, count, out);
	if (!KeepPivotRows(src, pivots, nodes, count))
		return false;
	rows = src->pivot_cache->rows;
	for (uint32 i = 0; i < count; i++)
		PrefetchRow(rows + pivots[i] * bytes, bytes);
	for (uint32 i = 0; i < count; i++)
		out[i] = nodes[i] == src->left_out ? FLT_MAX :
			Distance(src, rows + pivots[i] * bytes, codes);
	return true;
}

void
GgSourceUseCodes(GgPageSource *src, const GgCodeQuery *query)
{
	Assert(src->codes != GG_CODES_NONE);
	src->code_query = query;
}

/* The ring is kept, so that a query's vectors take the buffers of the query before. */
static BufferAccessStrategy
VectorRing(void)
{
	static BufferAccessStrategy ring = NULL;

	if (ring == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

		ring = GetAccessStrategy(BAS_BULKREAD);
		MemoryContextSwitchTo(old);
	}
	return ring;
}

void
GgSourceInit(GgPageSource *src, Relation index, const GgMetaPageData *meta,
			 const GgSegment *segment, const float *query)
{
	memset(src, 0, sizeof(*src));
	src->index = index;
	src->instance = meta->instance;
	src->generation = meta->generation;
	GgFindVectors(meta, segment->id, &src->vectors);
	GgFindArray(meta, segment->id, GG_KIND_ADJACENCY, &src->adjacency);
	GgFindArray(meta, segment->id, GG_KIND_PIVOTS, &src->pivots);
	src->row_bytes = GgRowBytes(meta);
	src->dimensions = meta->dimensions;
	src->distance = gg_distance_function(meta->metric, meta->element);
	src->query = query;
	src->left_out = GG_NO_NODE;
	GgFindRecentBuffers(&src->recent, index, hash_combine64(meta->instance, meta->generation));
	src->crowded = RelationGetNumberOfBlocks(index) > (BlockNumber) NBuffers;
	src->codes = src->vectors.pieces[0].codes;
	src->coded = meta->coded != GG_CODES_NONE;
	src->ring = src->crowded && src->codes != GG_CODES_NONE ? VectorRing() : NULL;
	src->scratch = palloc(Max(src->row_bytes, GgCodeBytes(meta, src->codes)));

	src->source.n = segment->nodes;
	src->source.degree = meta->graph_degree;
	src->source.npivots = segment->npivots;
	src->source.ctx = src;
	src->source.distances = SourceDistances;
	src->source.neighbors = SourceNeighbors;
	src->source.pivots = SourcePivots;
	src->source.pivot_distances = SourcePivotDistances;
}
