/*
 * deduplicate.c
 *		Equal rows become one node, and the gaps that the participants of a scan left are closed.
 *
 * A graph over copies falls apart, since the nearest neighbors of a copy are all copies.  So each row is looked for when it is added,
 * in tables of hashes that all processes share: what is in the area is different, stays where it is, and its pages can be written
 * long before the scan ends.
 *
 * A table has buckets of one cache line.  A row that finds its bucket full goes to the table of the next level, so equal
 * rows look at the same slots in the same order: the first empty one is theirs to take, and who comes second sees the
 * first.  Entries never leave.  The first table is twice as large as the rows that are expected; from the third on tables double.
 */
#include "build/build.h"

#include "access/htup_details.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"

/*
 * A table more is made only when those that are there have fewer slots a row than this: else a bucket is full of rows with one
 * hash, and a row that finds it so passes for a different one.
 */
#define MOST_SLOTS		16

/* Between two looks for interrupts. */
#define LOOK_ROWS		65536

#define HASH_MULTIPLIER		UINT64CONST(0x9E3779B97F4A7C15) /* 2^64 / golden ratio, odd */

static inline uint64
MixWord(uint64 hash, uint64 word)
{
	/* the rotation brings sign bits down: two flipped signs would otherwise cancel out */
	hash ^= word;
	return ((hash << 31) | (hash >> 33)) * HASH_MULTIPLIER;
}

/*
 * Of all of the row: rows that differ in a few places only would otherwise be compared with each other, all
 * with all.  Four lanes, since one would wait for each multiplication.
 */
static uint64
HashRow(const char *row, Size row_bytes)
{
	uint64		lanes[4] = {1, 2, 3, 4};
	uint64		words[4];
	Size		i;

	for (i = 0; i + sizeof(words) <= row_bytes; i += sizeof(words))
	{
		memcpy(words, row + i, sizeof(words));
		for (int lane = 0; lane < 4; lane++)
			lanes[lane] = MixWord(lanes[lane], words[lane]);
	}
	if (i < row_bytes)
	{
		memset(words, 0, sizeof(words));
		memcpy(words, row + i, row_bytes - i);
		for (int lane = 0; lane < 4; lane++)
			lanes[lane] = MixWord(lanes[lane], words[lane]);
	}
	for (int lane = 1; lane < 4; lane++)
		lanes[0] = MixWord(lanes[0], lanes[lane]);
	return lanes[0] ^ (lanes[0] >> 32);
}

/* ---- tables ---------------------------------------------------------------- */

Size
GgFoldBuckets(const GgBuildShared *shared, int level)
{
	if (level == 0)
		return shared->fold_buckets;
	return (Size) (shared->fold_buckets / 8 + 1) << (level - 1);
}

void
GgPlanFold(GgBuild *build)
{
	/* statistics may be far off, and the table is taken as a whole */
	double		rows = Min(build->expected, (double) RelationGetNumberOfBlocks(build->heap) * MaxHeapTuplesPerPage);

	rows = Min(rows, build->most);
	build->shared->fold_buckets = (uint32) Max(rows * 2 / GG_FOLD_BUCKET_SLOTS, 16);
}

/* Have the table of the next level, if there is to be one. */
static bool
OpenLevel(GgBuild *build, int level)
{
	GgBuildShared *shared = build->shared;
	Size		bytes = GgFoldBuckets(shared, level) * GG_FOLD_BUCKET_BYTES;
	uint64		rows = build->area.base != NULL ? pg_atomic_read_u64(build->area.next_row) : build->next;
	uint64		slots = 0;
	int			levels;

	if (level >= GG_FOLD_LEVELS || (build->area.base != NULL && build->area.fold[level] == NULL))
		return false;
	SpinLockAcquire(&shared->mutex);
	levels = shared->fold_levels;
	SpinLockRelease(&shared->mutex);
	for (int i = 0; i < level; i++)
		slots += GgFoldBuckets(shared, i) * GG_FOLD_BUCKET_SLOTS;
	if (level >= levels && level > 0 && slots > MOST_SLOTS * rows)
		return false;

	if (build->area.base != NULL)
		GgReserveArea(build, build->area.fold[level], bytes);
	else
		build->area.fold[level] = MemoryContextAllocExtended(build->row_context, bytes, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	SpinLockAcquire(&shared->mutex);
	shared->fold_levels = Max(shared->fold_levels, level + 1);
	SpinLockRelease(&shared->mutex);
	build->fold_levels = level + 1;
	return true;
}

uint32
GgFoldRow(GgBuild *build, uint32 row)
{
	Size		row_bytes = GgRowBytes(build->meta);
	const char *data = build->area.rows + row * row_bytes;
	uint64		hash = HashRow(data, row_bytes);
	uint64		entry = hash << 32 | (row + 1); /* 0: empty */

	for (int level = 0; level < build->fold_levels || OpenLevel(build, level); level++)
	{
		uint64		place = (hash * (HASH_MULTIPLIER + 2 * level)) >> 32;
		Size		bucket = (place * GgFoldBuckets(build->shared, level)) >> 32;
		pg_atomic_uint64 *slots = build->area.fold[level] + bucket * GG_FOLD_BUCKET_SLOTS;

		for (int i = 0; i < GG_FOLD_BUCKET_SLOTS; i++)
		{
			uint64		other = pg_atomic_read_u64(&slots[i]);

			/* our row is written before others see the entry */
			if (other == 0 && pg_atomic_compare_exchange_u64(&slots[i], &other, entry))
				return row;
			if (other >> 32 == entry >> 32)
			{
				uint32		first = (uint32) other - 1;

				pg_read_barrier();
				if (memcmp(build->area.rows + first * row_bytes, data, row_bytes) == 0)
					return first;
			}
		}
	}
	return row;
}

void
GgResetFold(GgBuild *build, bool last)
{
	GgBuildShared *shared = build->shared;

	for (int level = 0; level < shared->fold_levels; level++)
	{
		Size		bytes = GgFoldBuckets(shared, level) * GG_FOLD_BUCKET_BYTES;

		GgCheckInterrupts();
		if (build->area.base == NULL)
		{
			pfree(build->area.fold[level]);
			build->area.fold[level] = NULL;
		}
		else if (last)
			GgReleaseArea(build, build->area.fold[level], bytes);
		else
		{
			/* for the leader as well it is not there before it is reserved */
			GgReserveArea(build, build->area.fold[level], bytes);
			memset(build->area.fold[level], 0, bytes);
		}
	}
	shared->fold_levels = build->fold_levels = 0;
	build->next_copy = 0;
	if (build->area.base != NULL)
	{
		build->end_copy = 0;
		pg_atomic_write_u64(build->area.next_copy, 0);
	}
}

/* ---- copies ---------------------------------------------------------------- */

/* The end of what was claimed of copies. */
static uint64
EndOfCopies(GgBuild *build)
{
	uint32		chunk = build->shared->chunk_copies;

	if (build->area.base == NULL)
		return build->next_copy;
	/* claims beyond it were refused */
	return Min(pg_atomic_read_u64(build->area.next_copy), ((uint64) build->shared->limit + chunk - 1) / chunk * chunk);
}

static bool
ClaimCopies(GgBuild *build)
{
	GgBuildArea *area = &build->area;
	uint32		chunk = build->shared->chunk_copies;
	uint64		start;

	if (area->base == NULL)
	{
		uint32		capacity = Max(1024, build->end_copy + build->end_copy / 2);

		/* the last segment takes what is left, whatever memory that is */
		if (build->meta->nsegments < GG_MAX_BUILD_SEGMENTS - 1)
		{
			if (build->next_copy >= build->most)
				return false;
			capacity = Min(capacity, build->most);
		}
		if (area->copies == NULL)
			area->copies = MemoryContextAllocHuge(build->row_context, capacity * sizeof(GgCopy));
		else
			area->copies = repalloc_huge(area->copies, capacity * sizeof(GgCopy));
		build->end_copy = capacity;
		return true;
	}
	start = pg_atomic_fetch_add_u64(area->next_copy, chunk);
	if (start >= build->shared->limit)
		return false;
	GgReserveArea(build, area->copies + start, chunk * sizeof(GgCopy));
	build->next_copy = (uint32) start;
	build->end_copy = build->next_copy + chunk;
	for (uint32 i = build->next_copy; i < build->end_copy; i++)
		area->copies[i].row = GG_NO_ROW;
	return true;
}

bool
GgAddCopy(GgBuild *build, ItemPointer tid, uint32 row)
{
	GgCopy	   *copy;

	if (build->next_copy >= build->end_copy && !ClaimCopies(build))
		return false;
	copy = &build->area.copies[build->next_copy++];
	copy->tid.tid = *tid;
	copy->tid.reserved = 0;
	copy->row = row;
	return true;
}

uint32 *
GgSortTids(GgBuild *build)
{
	uint32		n = build->n;
	uint64		ncopies = EndOfCopies(build);
	Size		bytes = (Size) build->rows * sizeof(GgTidEntry);
	uint32	   *start;
	GgTidEntry *tids;

	if (build->rows == n)
		return NULL;

	/* counting sort: a node's own row, then its copies */
	start = MemoryContextAllocExtended(CurrentMemoryContext, ((Size) n + 1) * sizeof(uint32), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (uint64 i = 0; i < ncopies; i++)
		if (build->area.copies[i].row != GG_NO_ROW)
			start[build->area.copies[i].row]++;
	GgCheckInterrupts();
	tids = MemoryContextAllocHuge(CurrentMemoryContext, bytes);
	for (uint32 node = 0, sum = 0; node < n; node++)
	{
		uint32		count = start[node] + 1;

		tids[sum] = build->area.tids[node];
		start[node] = sum + 1;
		sum += count;
	}
	for (uint64 i = 0; i < ncopies; i++)
	{
		const GgCopy *copy = &build->area.copies[i];

		if (i % LOOK_ROWS == 0)
			GgCheckInterrupts();
		if (copy->row != GG_NO_ROW)
			tids[start[copy->row]++] = copy->tid;
	}
	memmove(start + 1, start, (Size) n * sizeof(uint32));
	start[0] = 0;

	if (build->area.base != NULL)
		GgReserveArea(build, build->area.tids, bytes);
	else if (build->rows > build->shared->capacity)
		build->area.tids = repalloc_huge(build->area.tids, bytes);
	memcpy(build->area.tids, tids, bytes);
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
MoveRows(GgBuild *build, const Move *move)
{
	Size		row_bytes = GgRowBytes(build->meta);

	memcpy(build->area.rows + move->to * row_bytes, build->area.rows + move->from * row_bytes, move->count * row_bytes);
	memcpy(build->area.tids + move->to, build->area.tids + move->from, move->count * sizeof(GgTidEntry));
}

static int
CompareHoles(const void *a, const void *b)
{
	uint32		x = *(const uint32 *) a;
	uint32		y = *(const uint32 *) b;

	return x < y ? -1 : x > y;
}

/* The copies say where their rows are now; only those from end on were moved.  Counts them. */
static void
FollowMoves(GgBuild *build, uint32 end, const Move *moves, int nmoves)
{
	uint64		ncopies = EndOfCopies(build);

	build->n = build->rows = end;
	for (uint64 i = 0; i < ncopies; i++)
	{
		GgCopy	   *copy = &build->area.copies[i];

		if (i % LOOK_ROWS == 0)
			GgCheckInterrupts();
		if (copy->row == GG_NO_ROW)
			continue;
		build->rows++;
		for (int m = 0; m < nmoves && copy->row >= end; m++)
			if (copy->row >= moves[m].from && copy->row - moves[m].from < moves[m].count)
				copy->row = copy->row - moves[m].from + moves[m].to;
		Assert(copy->row < end);
	}
}

/* Holes are filled with the last rows: at most one chunk for each participant moves. */
void
GgCloseGaps(GgBuild *build)
{
	GgBuildShared *shared = build->shared;
	Move	   *moves = palloc(Max(2 * shared->nholes, 1) * sizeof(Move));
	int			nmoves = 0;
	uint32		end = build->next;
	int			first = 0,
				last = -1;

	if (build->area.base != NULL)
	{
		end = (uint32) Min(pg_atomic_read_u64(build->area.next_row), shared->limit);
		last = shared->nholes - 1;
		qsort(shared->holes, shared->nholes, sizeof(shared->holes[0]), CompareHoles);
	}
	while (first <= last)
	{
		uint32		gap;
		Move	   *move = &moves[nmoves];

		if (shared->holes[last].end == end)
		{
			end = shared->holes[last--].first;
			continue;
		}
		GgCheckInterrupts();
		/* the rows behind the last hole go into the first one, as far as they fit */
		gap = shared->holes[first].end - shared->holes[first].first;
		move->count = Min(gap, end - shared->holes[last].end);
		move->from = end - move->count;
		move->to = shared->holes[first].first;
		MoveRows(build, move);
		nmoves++;
		end -= move->count;
		shared->holes[first].first += move->count;
		if (shared->holes[first].first == shared->holes[first].end)
			first++;
	}
	FollowMoves(build, end, moves, nmoves);
	pfree(moves);
}
