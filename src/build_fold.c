/*
 * build_fold.c
 *		From what the participants of a scan left to a data set: gaps closed, equal rows folded.
 *
 * A graph over copies falls apart, since the nearest neighbors of a copy are all copies: equal rows become one
 * node.  They are found by their hashes, which the scan computes while it has the row in cache, in two passes without a
 * sort: hashes are dealt into partitions, and each partition has a table that stays in the cache.  (One table
 * for all would miss the cache twice a row, which takes seconds for 10M rows; sorting takes longer still.)
 */
#include "build.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"

/* Rows of a partition, about: its entries and its table of twice as many words take 64 kB. */
#define PARTITION_ROWS		4096

/* More partitions at a time than this, and dealing into them misses the TLB at each row. */
#define MAX_PARTITIONS		4096

/* Copied between two looks for interrupts. */
#define SLICE_BYTES			((Size) 64 * 1024 * 1024)

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
uint64
GgHashRow(const char *row, Size row_bytes)
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

/* ---- gaps ---------------------------------------------------------------- */

/* Rows [from, from + count) to [to, ...), which may overlap only if to < from. */
static void
MoveRows(GgBuild *build, uint32 to, uint32 from, uint32 count)
{
	Size		row_bytes = GgRowBytes(build->meta);

	memmove(build->area.rows + to * row_bytes, build->area.rows + from * row_bytes, count * row_bytes);
	memmove(build->area.tids + to, build->area.tids + from, count * sizeof(GgTidEntry));
	memmove(build->area.hashes + to, build->area.hashes + from, count * sizeof(uint64));
}

static int
CompareHoles(const void *a, const void *b)
{
	uint32		x = *(const uint32 *) a;
	uint32		y = *(const uint32 *) b;

	return x < y ? -1 : x > y;
}

/* Holes are filled with the last rows: at most one chunk for each participant moves. */
uint32
GgCloseGaps(GgBuild *build)
{
	GgBuildShared *shared = build->shared;
	uint32		end;
	int			first = 0,
				last = shared->nholes - 1;

	if (build->area.base == NULL)
		return build->next;

	end = (uint32) Min(pg_atomic_read_u64(build->area.next_row), shared->limit);
	qsort(shared->holes, shared->nholes, sizeof(shared->holes[0]), CompareHoles);
	while (first <= last)
	{
		uint32		gap,
					count;

		if (shared->holes[last].end == end)
		{
			end = shared->holes[last--].first;
			continue;
		}
		CHECK_FOR_INTERRUPTS();
		/* the rows behind the last hole go into the first one, as far as they fit */
		gap = shared->holes[first].end - shared->holes[first].first;
		count = Min(gap, end - shared->holes[last].end);
		MoveRows(build, shared->holes[first].first, end - count, count);
		end -= count;
		shared->holes[first].first += count;
		if (shared->holes[first].first == shared->holes[first].end)
			first++;
	}
	return end;
}

/* ---- equal rows ----------------------------------------------------------- */

typedef struct HashEntry
{
	uint32		tag;			/* bits of the hash that did not choose the partition */
	uint32		row;
} HashEntry;

/* Rows by partition, in order within each; *starts gets npartitions + 1 positions. */
static HashEntry *
DealHashes(const uint64 *hashes, uint32 n, int bits, uint32 **starts)
{
	uint32		npartitions = 1u << bits;
	HashEntry  *entries = MemoryContextAllocHuge(CurrentMemoryContext, (Size) n * sizeof(HashEntry));
	uint32	   *next = palloc0((npartitions + 1) * sizeof(uint32));
	int			shift = 64 - bits;

#define PARTITION(hash)		(bits == 0 ? 0 : (uint32) ((hash) >> shift))
	for (uint32 i = 0; i < n; i++)
		next[PARTITION(hashes[i])]++;
	CHECK_FOR_INTERRUPTS();
	for (uint32 p = 0, sum = 0; p <= npartitions; p++)
	{
		uint32		count = next[p];

		next[p] = sum;
		sum += count;
	}
	*starts = palloc((npartitions + 1) * sizeof(uint32));
	memcpy(*starts, next, (npartitions + 1) * sizeof(uint32));
	for (uint32 i = 0; i < n; i++)
	{
		HashEntry  *entry = &entries[next[PARTITION(hashes[i])]++];

		entry->tag = (uint32) hashes[i];
		entry->row = i;
	}
#undef PARTITION
	return entries;
}

/*
 * Find the rows of one partition that equal an earlier one, and set first[] for these.  The table is linearly
 * probed, at most half full, and holds positions in entries plus one.  Returns how many were found.
 */
static uint32
FindEqual(const char *rows, Size row_bytes, const HashEntry *entries, uint32 count, uint32 *table, uint32 mask,
		  uint32 *first)
{
	uint32		found = 0;

	memset(table, 0, (Size) (mask + 1) * sizeof(uint32));
	for (uint32 i = 0; i < count; i++)
	{
		uint32		slot = entries[i].tag & mask;

		for (; table[slot] != 0; slot = (slot + 1) & mask)
		{
			const HashEntry *other = &entries[table[slot] - 1];

			if (other->tag != entries[i].tag)
				continue;
			CHECK_FOR_INTERRUPTS();
			if (memcmp(rows + other->row * row_bytes, rows + entries[i].row * row_bytes, row_bytes) == 0)
			{
				first[entries[i].row] = other->row;
				found++;
				break;
			}
		}
		if (table[slot] == 0)
			table[slot] = i + 1;
	}
	return found;
}

/* Of each row the first row equal to it, itself if there is none before; NULL when all rows differ. */
static uint32 *
FindFirstRows(GgBuild *build, uint32 n, uint32 *equal)
{
	Size		row_bytes = GgRowBytes(build->meta);
	int			bits = n <= PARTITION_ROWS ? 0 : Min(pg_ceil_log2_32(n / PARTITION_ROWS), pg_ceil_log2_32(MAX_PARTITIONS));
	uint32	   *first = MemoryContextAllocHuge(CurrentMemoryContext, (Size) Max(n, 1) * sizeof(uint32));
	uint32	   *starts;
	HashEntry  *entries = DealHashes(build->area.hashes, n, bits, &starts);
	uint32		largest = 0;
	uint32	   *table;

	for (uint32 i = 0; i < n; i++)
		first[i] = i;
	for (uint32 p = 0; p < 1u << bits; p++)
		largest = Max(largest, starts[p + 1] - starts[p]);
	table = MemoryContextAllocHuge(CurrentMemoryContext,
								   (Size) pg_nextpower2_64(Max((uint64) largest * 2, 2)) * sizeof(uint32));

	*equal = 0;
	for (uint32 p = 0; p < 1u << bits; p++)
	{
		uint32		count = starts[p + 1] - starts[p];

		CHECK_FOR_INTERRUPTS();
		*equal += FindEqual(build->area.rows, row_bytes, entries + starts[p], count, table,
							(uint32) (pg_nextpower2_64(Max((uint64) count * 2, 2)) - 1), first);
	}
	pfree(table);
	pfree(entries);
	pfree(starts);
	if (*equal == 0)
	{
		pfree(first);
		return NULL;
	}
	return first;
}

uint32
GgFoldEqualRows(GgBuild *build, uint32 **offsets, uint32 *moved)
{
	uint32		n = build->n;
	Size		row_bytes = GgRowBytes(build->meta);
	Size		slice = 0;
	uint32		equal;
	uint32	   *first = FindFirstRows(build, n, &equal);
	uint32	   *start;
	GgTidEntry *tids;
	uint32		nodes = 0;

	*offsets = NULL;
	*moved = n;
	if (first == NULL)
		return n;

	/* number the nodes in order; first[] becomes the node of each row, start[] counts rows by node */
	start = MemoryContextAllocExtended(CurrentMemoryContext, ((Size) n - equal + 1) * sizeof(uint32),
									   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (uint32 i = 0; i < n; i++)
	{
		if (first[i] == i)
		{
			if (nodes != i)
				memcpy(build->area.rows + nodes * row_bytes, build->area.rows + i * row_bytes, row_bytes);
			first[i] = nodes++;
		}
		else
		{
			*moved = Min(*moved, i);
			first[i] = first[first[i]];
		}
		start[first[i]]++;
		slice += row_bytes;
		if (slice > SLICE_BYTES)
		{
			slice = 0;
			CHECK_FOR_INTERRUPTS();
		}
	}
	Assert(nodes == n - equal);

	/* counting sort of the TIDs by node */
	tids = MemoryContextAllocHuge(CurrentMemoryContext, (Size) n * sizeof(GgTidEntry));
	for (uint32 node = 0, sum = 0; node <= nodes; node++)
	{
		uint32		count = node < nodes ? start[node] : 0;

		start[node] = sum;
		sum += count;
	}
	for (uint32 i = 0; i < n; i++)
		tids[start[first[i]]++] = build->area.tids[i];
	memmove(start + 1, start, (Size) nodes * sizeof(uint32));
	start[0] = 0;
	memcpy(build->area.tids, tids, (Size) n * sizeof(GgTidEntry));
	pfree(tids);
	pfree(first);
	*offsets = start;
	return nodes;
}
