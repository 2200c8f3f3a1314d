/*
 * deduplicate.c
 *		Equal rows become one node; gaps between the rows are closed.
 *
 * A graph over equal rows falls apart, since the nearest neighbors of a row are then all equal to
 * it.  So each row is looked for when it is added, in tables of hashes that all processes share.  A
 * row in the area differs from all others there and stays where it is, so its page can be written
 * long before the scan ends.
 *
 * A row's hash says at which slot of a table its window begins.  The first empty slot of the window
 * is the row's, and entries never leave.  Equal rows look at the same slots in the same order, so
 * the second meets the first, whichever processes they belong to.  Only a row that finds its window
 * full goes to the next table, which is twice as large.
 *
 * The first table has two slots for each row that is expected, so the others are needed only where
 * there are more rows than that.  The scan of 1M x 3 takes 0.46 s of CPU when the estimate is right
 * and 0.58 s when it is 10 times too small; of 200,000 x 128 0.19 s.  With 24 tables, in each of
 * which a row looked at one bucket, it took 0.50, 0.69 and 0.21 s (one process, least of 4).
 */
#include "build/deduplicate.h"
#include "storage/row_hash.h"

#include "access/htup_details.h"
#include "storage/bufmgr.h"

/*
 * Slots that a row looks at, 8 buckets.  In a table that is half full a window has 32 entries, with
 * a standard deviation below 6: none is full.
 */
#define WINDOW_BUCKETS		8

/*
 * One more table is made only when the existing ones have fewer slots per row than this.  Else the
 * window is full because many rows have one hash, and a row that finds it full passes for a
 * different one.
 */
#define MOST_SLOTS			4

/* Rows between two looks for interrupts. */
#define LOOK_ROWS			65536

/* ---- tables ---------------------------------------------------------------- */

void
GgPlanTables(GgArea *area, Relation heap, double rows)
{
	/* statistics may be far off, and memory for a table is taken all at once */
	rows = Min(rows, (double) RelationGetNumberOfBlocks(heap) * MaxHeapTuplesPerPage);
	area->shared->hash_buckets = (uint32) Max(rows * 2 / GG_BUCKET_SLOTS, GG_HASH_LEAST_BUCKETS);
}

/* Take memory for the next table, if there is to be one. */
static bool
OpenTable(GgArea *area, int table)
{
	GgAreaShared *shared = area->shared;
	Size		bytes;
	uint64		rows = area->base != NULL ? pg_atomic_read_u64(area->next_chunk) : area->next;
	uint64		slots = 0;
	int			tables;

	if (table >= GG_HASH_TABLES || (area->base != NULL && area->tables[table] == NULL))
		return false;
	SpinLockAcquire(&shared->mutex);
	tables = shared->tables;
	SpinLockRelease(&shared->mutex);
	for (int i = 0; i < table; i++)
		slots += GgTableBuckets(shared, i) * GG_BUCKET_SLOTS;
	if (table >= tables && slots > MOST_SLOTS * rows)
		return false;

	bytes = GgTableBuckets(shared, table) * GG_BUCKET_BYTES;
	if (area->base != NULL)
		GgReserveArea(area, area->tables[table], bytes);
	else
		area->tables[table] = MemoryContextAllocExtended(area->context, bytes,
														 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	SpinLockAcquire(&shared->mutex);
	shared->tables = Max(shared->tables, table + 1);
	SpinLockRelease(&shared->mutex);
	area->ntables = table + 1;
	return true;
}

uint32
GgFindEqualRow(GgArea *area, uint32 row)
{
	Size		row_bytes = area->shared->row_bytes;
	const char *data = area->rows + row * row_bytes;
	uint64		hash = GgHashRow(data, row_bytes);
	uint64		entry = hash << 32 | (row + 1); /* 0: empty */

	for (int table = 0; table < area->ntables || OpenTable(area, table); table++)
	{
		uint64		place = (hash * (GG_HASH_MULTIPLIER + 2 * table)) >> 32;
		uint64		nslots = GgTableBuckets(area->shared, table) * GG_BUCKET_SLOTS;
		uint64		slot = (place * (nslots / GG_BUCKET_SLOTS) >> 32) * GG_BUCKET_SLOTS;

		for (int i = 0; i < WINDOW_BUCKETS * GG_BUCKET_SLOTS; i++)
		{
			pg_atomic_uint64 *at = &area->tables[table][slot];
			uint64		other = pg_atomic_read_u64(at);

			/* our row is written before others see the entry */
			if (other == 0 && pg_atomic_compare_exchange_u64(at, &other, entry))
				return row;
			if (other >> 32 == entry >> 32)
			{
				uint32		first = (uint32) other - 1;

				pg_read_barrier();
				if (memcmp(area->rows + first * row_bytes, data, row_bytes) == 0)
					return first;
			}
			if (++slot == nslots)
				slot = 0;
		}
	}
	return row;
}

void
GgResetTables(GgArea *area, bool last)
{
	GgAreaShared *shared = area->shared;

	for (int table = 0; table < shared->tables; table++)
	{
		Size		bytes = GgTableBuckets(shared, table) * GG_BUCKET_BYTES;

		GgCheckInterrupts();
		if (area->base == NULL)
		{
			pfree(area->tables[table]);
			area->tables[table] = NULL;
		}
		else if (last)
			GgReleaseArea(area, area->tables[table], bytes);
		else
		{
			/* another process may have opened it, and the leader not */
			GgReserveArea(area, area->tables[table], bytes);
			memset(area->tables[table], 0, bytes);
		}
	}
	shared->tables = area->ntables = 0;
}

/* ---- duplicates ------------------------------------------------------------ */

/* The end of what was claimed of duplicates. */
static uint64
EndOfDuplicates(GgArea *area)
{
	uint32		chunk = area->shared->chunk_duplicates;

	if (area->base == NULL)
		return area->next_duplicate;
	/* claims beyond the limit were refused */
	return Min(pg_atomic_read_u64(area->next_duplicate_chunk),
			   ((uint64) area->shared->limit + chunk - 1) / chunk * chunk);
}

/* More room for duplicates in the memory of a process that is alone. */
static bool
GrowDuplicates(GgArea *area)
{
	Size		capacity = Max(1024, area->end_duplicate + area->end_duplicate / 2);

	if (area->next_duplicate >= area->most)
		return false;
	capacity = Min(capacity, area->most);
	area->duplicates = GgEnlarge(area->context, area->duplicates, capacity * sizeof(GgDuplicate));
	area->duplicate_words = GgEnlarge(area->context, area->duplicate_words,
									  capacity * area->shared->filter_words * sizeof(int64));
	area->end_duplicate = (uint32) capacity;
	return true;
}

static bool
ClaimDuplicates(GgArea *area)
{
	uint32		chunk = area->shared->chunk_duplicates;
	Size		nwords = area->shared->filter_words;
	uint64		start;

	if (area->base == NULL)
		return GrowDuplicates(area);
	start = pg_atomic_fetch_add_u64(area->next_duplicate_chunk, chunk);
	if (start >= area->shared->limit)
		return false;
	GgReserveArea(area, area->duplicates + start, chunk * sizeof(GgDuplicate));
	GgReserveArea(area, area->duplicate_words + start * nwords, chunk * nwords * sizeof(int64));
	area->next_duplicate = (uint32) start;
	area->end_duplicate = area->next_duplicate + chunk;
	for (uint32 i = area->next_duplicate; i < area->end_duplicate; i++)
		area->duplicates[i].row = GG_NO_ROW;
	return true;
}

bool
GgAddDuplicate(GgArea *area, const GgTidEntry *entry, const int64 *words, uint32 row)
{
	Size		nwords = area->shared->filter_words;
	GgDuplicate *duplicate;

	if (area->next_duplicate >= area->end_duplicate && !ClaimDuplicates(area))
		return false;
	memcpy(area->duplicate_words + area->next_duplicate * nwords, words, nwords * sizeof(int64));
	duplicate = &area->duplicates[area->next_duplicate++];
	duplicate->tid = *entry;
	duplicate->row = row;
	return true;
}

/* ---- rows by node ---------------------------------------------------------- */

/* Room for the filter words of all rows. */
static void
BeginFilters(GgArea *area)
{
	Size		bytes = (Size) area->nrows * area->shared->filter_words * sizeof(int64);

	if (area->base != NULL)
		GgReserveArea(area, area->filters, bytes);
	else
		area->filters = MemoryContextAllocHuge(CurrentMemoryContext, bytes);
}

/* Put the filter words of a row at its place among the sorted rows. */
static inline void
PutWords(GgArea *area, Size place, const int64 *words)
{
	for (uint32 w = 0; w < area->shared->filter_words; w++)
		area->filters[w * (Size) area->nrows + place] = words[w];
}

/* The unsorted filter words are needed no more; the next segment takes their memory again. */
static void
EndFilters(GgArea *area)
{
	if (area->base != NULL)
		GgReleaseArea(area, area->words, (char *) area->filters - (char *) area->words);
}

/* A counting sort: a node's own row, then its duplicates. */
uint32 *
GgSortRows(GgArea *area)
{
	Size		nwords = area->shared->filter_words;
	uint32		n = area->nodes;
	uint64		nduplicates = EndOfDuplicates(area);
	Size		bytes = (Size) area->nrows * sizeof(GgTidEntry);
	uint32	   *start;
	GgTidEntry *tids;

	BeginFilters(area);
	if (area->nrows == n)
	{
		for (uint32 node = 0; node < n && nwords > 0; node++)
			PutWords(area, node, area->words + node * nwords);
		EndFilters(area);
		return NULL;
	}

	start = MemoryContextAllocExtended(CurrentMemoryContext, ((Size) n + 1) * sizeof(uint32),
									   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (uint64 i = 0; i < nduplicates; i++)
		if (area->duplicates[i].row != GG_NO_ROW)
			start[area->duplicates[i].row]++;
	GgCheckInterrupts();
	tids = MemoryContextAllocHuge(CurrentMemoryContext, bytes);
	for (uint32 node = 0, sum = 0; node < n; node++)
	{
		uint32		count = start[node] + 1;

		tids[sum] = area->tids[node];
		PutWords(area, sum, area->words + node * nwords);
		start[node] = sum + 1;
		sum += count;
	}
	for (uint64 i = 0; i < nduplicates; i++)
	{
		const GgDuplicate *duplicate = &area->duplicates[i];

		if (i % LOOK_ROWS == 0)
			GgCheckInterrupts();
		if (duplicate->row == GG_NO_ROW)
			continue;
		PutWords(area, start[duplicate->row], area->duplicate_words + i * nwords);
		tids[start[duplicate->row]++] = duplicate->tid;
	}
	EndFilters(area);
	memmove(start + 1, start, (Size) n * sizeof(uint32));
	start[0] = 0;

	if (area->base != NULL)
		GgReserveArea(area, area->tids, bytes);
	else if (area->nrows > area->shared->capacity)
		area->tids = repalloc_huge(area->tids, bytes);
	memcpy(area->tids, tids, bytes);
	pfree(tids);
	return start;
}

/* ---- gaps ---------------------------------------------------------------- */

/* Rows [from, from + count) are now [to, to + count). */
typedef struct Move
{
	uint32		to;
	uint32		from;
	uint32		count;
} Move;

static void
MoveRows(GgArea *area, const Move *move)
{
	Size		row_bytes = area->shared->row_bytes;
	Size		nwords = area->shared->filter_words;

	memcpy(area->rows + move->to * row_bytes, area->rows + move->from * row_bytes,
		   move->count * row_bytes);
	memcpy(area->tids + move->to, area->tids + move->from, move->count * sizeof(GgTidEntry));
	memcpy(area->words + move->to * nwords, area->words + move->from * nwords,
		   move->count * nwords * sizeof(int64));
}

static int
CompareHoles(const void *a, const void *b)
{
	uint32		x = ((const GgHole *) a)->first;
	uint32		y = ((const GgHole *) b)->first;

	return x < y ? -1 : x > y;
}

/*
 * Have duplicates name the new places of their rows, of which those from end on were moved.  Counts
 * nodes, and rows with duplicates.
 */
static void
FollowMoves(GgArea *area, uint32 end, const Move *moves, int nmoves)
{
	uint64		nduplicates = EndOfDuplicates(area);

	area->nodes = area->nrows = end;
	for (uint64 i = 0; i < nduplicates; i++)
	{
		GgDuplicate *duplicate = &area->duplicates[i];

		if (i % LOOK_ROWS == 0)
			GgCheckInterrupts();
		if (duplicate->row == GG_NO_ROW)
			continue;
		area->nrows++;
		for (int m = 0; m < nmoves && duplicate->row >= end; m++)
			if (duplicate->row >= moves[m].from && duplicate->row - moves[m].from < moves[m].count)
				duplicate->row = duplicate->row - moves[m].from + moves[m].to;
		Assert(duplicate->row < end);
	}
}

/* Fill holes with the last rows.  At most one chunk per participant moves. */
void
GgCloseGaps(GgArea *area)
{
	GgAreaShared *shared = area->shared;
	GgHole	   *holes = shared->holes;
	Move	   *moves = palloc(Max(2 * shared->nholes, 1) * sizeof(Move));
	int			nmoves = 0;
	uint32		end = area->next;
	int			first = 0,
				last = -1;

	if (area->base != NULL)
	{
		end = (uint32) Min(pg_atomic_read_u64(area->next_chunk), shared->limit);
		last = shared->nholes - 1;
		qsort(holes, shared->nholes, sizeof(GgHole), CompareHoles);
	}
	while (first <= last)
	{
		uint32		gap;
		Move	   *move = &moves[nmoves];

		if (holes[last].end == end)
		{
			end = holes[last--].first;
			continue;
		}
		GgCheckInterrupts();
		/* the rows behind the last hole go into the first one, as far as they fit */
		gap = holes[first].end - holes[first].first;
		move->count = Min(gap, end - holes[last].end);
		move->from = end - move->count;
		move->to = holes[first].first;
		MoveRows(area, move);
		nmoves++;
		end -= move->count;
		holes[first].first += move->count;
		if (holes[first].first == holes[first].end)
			first++;
	}
	FollowMoves(area, end, moves, nmoves);
	pfree(moves);
}
