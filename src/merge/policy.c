/*
 * policy.c
 *		Which segments are to be merged.
 *
 * Segments are kept in tiers, as in an LSM tree, but without levels of fixed sizes: the smaller
 * ones are merged into the next larger when together they reach a fourth of it.  So each segment is
 * more than four times as large as all smaller ones together, and there are few: four where
 * 10,000 rows are sealed and the index has a million.  A row's list of neighbors is written anew
 * some five times in each tier.  Its vector is not (nodes.c).
 *
 * Where nobody inserts any more, smaller segments are worth a merge, too, since every query walks
 * every segment: the longer the index is quiet, the smaller.
 *
 * A merge of large segments takes long, so new ones are merged meanwhile (GgChooseMeanwhile).
 * 60,000 x 32 on a busy 2-core machine, degree 32 of 32, into which 45,000 rows were inserted in
 * 100 s at seal_rows 1,000: 6 segments in the worst second and 3.4 on average; 14 and 5.0 where
 * each seal was a segment until the large merge ended.
 *
 * Tried: leave the smallest segments out of a large merge, so that they can be merged meanwhile,
 * too (5 and 2.9).  In merge_kill9 the index then took 7.5 to 9.4 MB instead of 3.0 to 4.3.
 */
#include "merge/merge.h"

/*
 * By default the delta is sealed at so many bytes of vectors, within so many rows.  For each query
 * the CPU engine measures every row of the delta, at some 6 GB per second.  100,000 x 768 on 2
 * cores, 300 inserts per second: the p50 of each second over that of a fresh index beside the same
 * inserts is 5.95 in the median and 11.9 at worst where 10,000 rows are sealed; 2.79 and 4.99 at
 * 1,667 rows, which are 5 MB; 2.57 and 6.22 at 833.  A walk measures hundreds of rows, so fewer are
 * not worth a segment.
 */
#define SEAL_BYTES			(5 * 1024 * 1024)

/*
 * A device measures so much in some 10 us, which is what one more segment costs it.  And it builds
 * graphs of 5,000 nodes and more.  1M x 768, 16 clients insert, one H200: p50 of each second over
 * that beside inserts into another table was 2.51 in the median and 4.04 at worst with 5 MB and 14
 * segments, and is 1.89 and 2.12 with 5 (RESULTS.md, Ageing).
 */
#define SERVED_SEAL_BYTES	(32 * 1024 * 1024)
#define LEAST_SEAL_ROWS		500
#define MOST_SEAL_ROWS		10000

/* Smaller segments are merged into the next larger one when together they are this part of it. */
#define DUE_SHARE			4
#define IDLE_SHARE			32
#define QUIET_SHARE			512

/*
 * While a large merge is under way: the same for segments that are merged with the delta; how many
 * times the delta's rows these may have together, since new rows wait in the delta meanwhile; and
 * the number of segments from which on there is no such limit.
 */
#define MEANWHILE_SHARE		2
#define MEANWHILE_TIMES		8
#define MEANWHILE_SEGMENTS	8

/*
 * And how many bytes of vectors they may have where the device is busy and the CPU builds: 38,014 x
 * 768 took it 1.2 s, in which 30,000 rows came to a delta of 13,000.
 */
#define MEANWHILE_CPU_BYTES	(64 * 1024 * 1024)

/*
 * Likewise for pieces of the new segments, where there are so many pieces that a merge leaves only
 * the large ones (GgChoosePieces() in crowded.c): all of the new segments are merged then.
 */
#define MEANWHILE_PIECES	16
#define MANY_PIECES			(GG_MAX_PIECES - 8)

/* A segment with so many parts of dead rows is built anew. */
#define DEAD_SHARE			5

/* Few dead rows are not worth it, however small the segment. */
#define LEAST_DEAD			100

/* Merge the smallest ones in any case where there are so many, or so many pieces. */
#define CROWDED_SEGMENTS	(GG_MAX_SEGMENTS - 8)
#define CROWDED_PIECES		(GG_MAX_PIECES - 16)

/*
 * From so many pieces on the delta waits until a merge without it has left fewer: what is sealed is
 * a piece of its own.
 */
#define FULL_PIECES			(GG_MAX_PIECES - 1)

typedef struct Unit
{
	uint32		id;				/* GG_NO_SEGMENT: the delta */
	uint64		nodes;			/* that the merged segment gets of it, about */
	uint64		rows;			/* dead ones, too */
	bool		dead;			/* has many dead rows */
} Unit;

uint32
GgDefaultSealRows(const GgMetaPageData *meta, bool served)
{
	Size		bytes = served ? SERVED_SEAL_BYTES : SEAL_BYTES;
	Size		rows = meta->dimensions > 0 ? bytes / GgRowBytes(meta) : MOST_SEAL_ROWS;

	return Max(LEAST_SEAL_ROWS, Min(rows, MOST_SEAL_ROWS));
}

uint32
GgSealRows(const GgOptions *options, const GgMetaPageData *meta, bool served)
{
	return options->seal_rows < 0 ? GgDefaultSealRows(meta, served) : (uint32) options->seal_rows;
}

static int
CompareUnits(const void *a, const void *b)
{
	const Unit *left = a;
	const Unit *right = b;

	if (left->nodes != right->nodes)
		return left->nodes > right->nodes ? -1 : 1;
	return left->id < right->id ? -1 : left->id > right->id;
}

/* Is the delta to be sealed? */
static bool
SealIsDue(const GgMergeLook *look, GgMergeUrge urge)
{
	const GgMetaPageData *meta = look->meta;

	if (GgSealableEnd(meta) == meta->delta_first)
		return false;
	if (urge != GG_MERGE_DUE || look->delta_rows >= look->seal_rows)
		return true;
	/* scans measure dead rows, too */
	return meta->delta_dead >= LEAST_DEAD && meta->delta_dead > look->delta_rows / 2;
}

static int
ListUnits(const GgMergeLook *look, bool seal, Unit *units)
{
	const GgMetaPageData *meta = look->meta;
	int			n = 0;

	for (int i = 0; i < meta->nsegments; i++)
	{
		const GgSegment *segment = &meta->segments[i];
		uint32		gone = GgGoneNodes(segment);

		units[n].id = segment->id;
		units[n].nodes = segment->nodes - gone;
		units[n].rows = segment->rows;
		units[n].dead = gone >= LEAST_DEAD && gone > segment->nodes / DEAD_SHARE;
		n++;
	}
	if (seal)
	{
		units[n].id = GG_NO_SEGMENT;
		units[n].nodes = look->delta_rows - Min(look->delta_rows, meta->delta_dead);
		units[n].rows = look->delta_rows;
		units[n].dead = false;
		n++;
	}
	qsort(units, n, sizeof(Unit), CompareUnits);
	return n;
}

/* All units from this one on are to be merged; n: none. */
static int
FirstUnit(const GgMetaPageData *meta, const Unit *units, int n, GgMergeUrge urge)
{
	static const uint64 shares[] = {
		[GG_MERGE_DUE] = DUE_SHARE, [GG_MERGE_IDLE] = IDLE_SHARE,
		[GG_MERGE_QUIET] = QUIET_SHARE, [GG_MERGE_ALL] = 0
	};
	uint64		share = shares[urge];
	uint64		sum = 0;
	int			first = n;

	if (urge == GG_MERGE_ALL)
		return 0;
	for (int i = n - 1; i >= 0; i--)
	{
		if (i < n - 1 && sum * share >= units[i].nodes)
			first = i;
		sum += units[i].nodes;
	}
	if (n >= CROWDED_SEGMENTS || meta->npieces >= CROWDED_PIECES)
		first = Min(first, n / 2);
	return first;
}

bool
GgChooseMerge(const GgMergeLook *look, GgMergeUrge urge, GgMergeChoice *choice)
{
	Unit		units[GG_MAX_SEGMENTS + 1];
	bool		seal = SealIsDue(look, urge);
	int			n = ListUnits(look, seal, units);
	int			first = FirstUnit(look->meta, units, n, urge);
	uint64		sum = 0;
	uint64		rows = 0;
	int			end = n;

	choice->delta = false;
	choice->delta_rows = look->most;
	choice->nsegments = 0;
	if (look->seal_rows == 0 && urge != GG_MERGE_ALL)
		return false;
	if (urge != GG_MERGE_ALL && GgChooseCrowded(look, choice))
		return true;

	/* from the smallest on, as many as there is memory for, and as many rows as are counted */
	while (end > first && sum + units[end - 1].nodes <= look->most &&
		   rows + units[end - 1].rows <= GG_MAX_ROWS)
	{
		sum += units[--end].nodes;
		rows += units[end].rows;
	}
	first = end;
	if (n - first == 1 && !units[first].dead)
		first = n;

	if (first == n && seal &&
		(urge == GG_MERGE_DUE || urge == GG_MERGE_ALL || look->delta_rows >= GG_IDLE_SEAL_ROWS))
	{
		choice->delta = true;
		return true;
	}
	if (first == n)
	{
		/* the smallest that has many dead rows */
		for (int i = n - 1; i >= 0 && first == n; i--)
			if (units[i].dead && units[i].nodes <= look->most)
			{
				choice->segments[choice->nsegments++] = units[i].id;
				return true;
			}
		return false;
	}
	for (int i = first; i < n; i++)
	{
		if (units[i].id == GG_NO_SEGMENT)
			choice->delta = true;
		else
			choice->segments[choice->nsegments++] = units[i].id;
	}
	if (look->meta->npieces >= FULL_PIECES && choice->nsegments > 1 && urge != GG_MERGE_ALL)
		choice->delta = false;
	else if (seal && look->meta->nsegments < GG_MAX_SEGMENTS - 1 &&
			 (!choice->delta || (urge != GG_MERGE_ALL && sum > 2 * look->delta_rows)))
	{
		/* scans measure the delta, and it can be sealed again while the rest is merged */
		choice->nsegments = 0;
		choice->delta = true;
	}
	return true;
}

static bool
IsInput(const GgMergeChoice *choice, uint32 segment)
{
	for (int i = 0; i < choice->nsegments; i++)
		if (choice->segments[i] == segment)
			return true;
	return false;
}

/* Are there so many pieces, and enough of them in segments that are no inputs of outer? */
static bool
ManyPieces(const GgMetaPageData *meta, const GgMergeChoice *outer)
{
	int			n = 0;

	for (int i = 0; i < meta->npieces; i++)
		n += !IsInput(outer, meta->pieces[i].segment);
	return meta->npieces >= MANY_PIECES && n > MEANWHILE_PIECES;
}

bool
GgChooseMeanwhile(const GgMergeLook *look, bool by_cpu, const GgMergeChoice *outer,
				  GgMergeChoice *choice)
{
	const GgMetaPageData *meta = look->meta;
	Unit		units[GG_MAX_SEGMENTS + 1];
	int			all = ListUnits(look, false, units);
	int			n = 0;
	int			first;
	uint64		sum = look->delta_rows;
	uint64		rows = look->delta_rows;
	uint64		limit = look->most;
	bool		many = ManyPieces(meta, outer);

	choice->delta = true;
	choice->delta_rows = look->most;
	choice->nsegments = 0;
	if (look->seal_rows == 0 || look->delta_rows < look->seal_rows ||
		GgSealableEnd(meta) == meta->delta_first || meta->npieces >= FULL_PIECES ||
		!GgHasRoomForInner(meta))
		return false;
	for (int i = 0; i < all; i++)
		if (!IsInput(outer, units[i].id))
			units[n++] = units[i];
	if (n < MEANWHILE_SEGMENTS && !many)
	{
		limit = Min(limit, MEANWHILE_TIMES * look->delta_rows);
		if (by_cpu)
			limit = Min(limit, MEANWHILE_CPU_BYTES / GgRowBytes(meta));
	}
	first = n;
	for (int i = n - 1; i >= 0 && sum + units[i].nodes <= limit &&
		 rows + units[i].rows <= GG_MAX_ROWS; i--)
	{
		if (many || sum * MEANWHILE_SHARE >= units[i].nodes)
			first = i;
		sum += units[i].nodes;
		rows += units[i].rows;
	}
	for (int i = first; i < n; i++)
		choice->segments[choice->nsegments++] = units[i].id;
	return choice->nsegments > 0 || meta->nsegments < GG_MAX_SEGMENTS - 1;
}
