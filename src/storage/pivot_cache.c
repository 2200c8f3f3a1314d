/*
 * pivot_cache.c
 *		Pivots of segments that this session has walked, with their rows, in its own memory.
 *
 * A walk measures some 300 pivots before any other node: at itopk 64 a third of what it measures,
 * at 16 more than half.  Pivots are few (3 sqrt(n) and those of groups of rows), and the same for
 * all queries.  In shared buffers each takes two pins, and its row lies on a page of its own; here
 * all of them mostly fit a processor's second cache.  Figures: RESULTS.md, Codes by themselves.
 *
 * A pivot comes here when a walk first asks for it.  What its segment has does not change as long
 * as instance and generation are the same (README, Locks).  Caches of former generations, and of
 * segments that no longer matter, go when there is no room for another one, but for those of this
 * transaction, which scans may be using.
 */
#include "storage/pivot_cache.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

static MemoryContext context = NULL;
static HTAB *caches;
static Size used_bytes = 0;

/* Forget the caches that this transaction has not asked for. */
static void
DropUnused(TimestampTz now)
{
	HASH_SEQ_STATUS all;
	GgPivotCache *cache;

	hash_seq_init(&all, caches);
	while ((cache = hash_seq_search(&all)) != NULL)
	{
		if (cache->used == now)
			continue;
		used_bytes -= cache->bytes;
		pfree(cache->known);
		(void) hash_search(caches, &cache->key, HASH_REMOVE, NULL);
	}
}

static void
MakeTable(void)
{
	HASHCTL		control = {
		.keysize = sizeof(GgPivotCacheKey),
		.entrysize = sizeof(GgPivotCache)
	};

	control.hcxt = AllocSetContextCreate(TopMemoryContext, "gpugraph pivots",
										 ALLOCSET_SMALL_SIZES);
	caches = hash_create("gpugraph pivots", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	context = control.hcxt;
}

GgPivotCache *
GgFindPivotCache(const GgPivotCacheKey *key, uint32 npivots, Size row_bytes)
{
	const TimestampTz now = GetCurrentTransactionStartTimestamp();
	const Size	known_bytes = MAXALIGN(npivots);
	const Size	entries_bytes = MAXALIGN(npivots * sizeof(GgPivotEntry));
	const Size	bytes = known_bytes + entries_bytes + npivots * row_bytes;
	GgPivotCache *cache;
	char	   *memory;

	if (context == NULL)
		MakeTable();
	cache = hash_search(caches, key, HASH_FIND, NULL);
	if (cache == NULL)
	{
		if (used_bytes + bytes > get_hash_memory_limit())
			DropUnused(now);
		if (used_bytes + bytes > get_hash_memory_limit())
			return NULL;
		cache = hash_search(caches, key, HASH_ENTER, NULL);
		memory = MemoryContextAllocExtended(context, bytes,
											MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
		if (memory == NULL)
		{
			(void) hash_search(caches, key, HASH_REMOVE, NULL);
			return NULL;
		}
		memset(memory, 0, known_bytes);
		cache->bytes = bytes;
		cache->known = memory;
		cache->entries = (GgPivotEntry *) (memory + known_bytes);
		cache->rows = memory + known_bytes + entries_bytes;
		used_bytes += bytes;
	}
	cache->used = now;
	return cache;
}
