/*
 * policy.c
 *		Which segments are to be merged.
 *
 * Segments are kept in tiers, as in an LSM tree, but without levels of fixed sizes: the smaller
 * ones are merged into the next larger when together they reach a fourth of it.  So each segment is
 * more than four times as large as all smaller ones together, and there are few: four where
 * seal_rows is 10,000 and the index has a million rows.  A row's list of neighbors is written anew
 * some five times in each tier.  Its vector is not (merge.c).
 *
 * Where nobody inserts any more, smaller shares are worth it, since every query walks every
 * segment.  The longer it is quiet, the smaller.
 */
#include "merge/merge.h"

/* Smaller segments are merged into the next larger when they are so many parts of it. */
#define DUE_SHARE			4
#define IDLE_SHARE			32
#define QUIET_SHARE			512

/* A segment with so many parts of dead rows is built anew. */
#define DEAD_SHARE			5

/* Few dead rows are not worth it, however small the segment. */
#define LEAST_DEAD			100

/* Merge the smallest ones in any case where there are so many, or so many pieces. */
#define CROWDED_SEGMENTS	(GG_MAX_SEGMENTS - 8)
#define CROWDED_PIECES		(GG_MAX_PIECES - 16)

typedef struct Unit
{
	uint32		id;				/* GG_NO_SEGMENT: the delta */
	uint64		nodes;			/* that the merged segment gets of it, about */
	bool		dead;			/* has many dead rows */
} Unit;

static int
CompareUnits(const void *a, const void *b)
{
	const Unit *left = a;
	const Unit *right = b;

	if (left->nodes != right->nodes)
		return left->nodes > right->nodes ? -1 : 1;
	return left->id < right->id ? -1 : left->id > right->id;
}

/* Is the delta to become part of a segment? */
static bool
SealIsDue(const GgMetaPageData *meta, uint32 seal_rows, uint64 delta_rows, GgMergeUrge urge)
{
	if (GgSealableEnd(meta) == meta->delta_first)
		return false;
	if (urge != GG_MERGE_DUE || delta_rows >= seal_rows)
		return true;
	/* scans measure dead rows, too */
	return meta->delta_dead >= LEAST_DEAD && meta->delta_dead > delta_rows / 2;
}

static int
ListUnits(const GgMetaPageData *meta, bool seal, uint64 delta_rows, Unit *units)
{
	int			n = 0;

	for (int i = 0; i < meta->nsegments; i++)
	{
		const GgSegment *segment = &meta->segments[i];
		uint32		gone = Min(segment->dead + segment->empty, segment->nodes);

		units[n].id = segment->id;
		units[n].nodes = segment->nodes - gone;
		units[n].dead = gone >= LEAST_DEAD && gone > segment->nodes / DEAD_SHARE;
		n++;
	}
	if (seal)
	{
		units[n].id = GG_NO_SEGMENT;
		units[n].nodes = delta_rows - Min(delta_rows, meta->delta_dead);
		units[n].dead = false;
		n++;
	}
	qsort(units, n, sizeof(Unit), CompareUnits);
	return n;
}

/* The first of the units to be merged, which are all from there on; n: none. */
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
GgChooseMerge(const GgMetaPageData *meta, uint32 seal_rows, uint64 delta_rows, uint32 most,
			  GgMergeUrge urge, GgMergeChoice *choice)
{
	Unit		units[GG_MAX_SEGMENTS + 1];
	bool		seal = SealIsDue(meta, seal_rows, delta_rows, urge);
	int			n = ListUnits(meta, seal, delta_rows, units);
	int			first = FirstUnit(meta, units, n, urge);
	uint64		sum = 0;
	int			end = n;

	choice->delta = false;
	choice->delta_rows = most;
	choice->nsegments = 0;
	if (seal_rows == 0 && urge != GG_MERGE_ALL)
		return false;

	/* from the smallest on, as many as there is memory for */
	while (end > first && sum + units[end - 1].nodes <= most)
		sum += units[--end].nodes;
	first = end;
	if (n - first == 1 && !units[first].dead)
		first = n;

	if (first == n && seal &&
		(urge == GG_MERGE_DUE || urge == GG_MERGE_ALL || delta_rows >= GG_IDLE_SEAL_ROWS))
	{
		choice->delta = true;
		return true;
	}
	if (first == n)
	{
		/* the smallest that has many dead rows */
		for (int i = n - 1; i >= 0 && first == n; i--)
			if (units[i].dead && units[i].nodes <= most)
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
	if (seal && (!choice->delta ||
				 (urge == GG_MERGE_DUE && sum > 2 * delta_rows)))
	{
		/* scans measure the delta, and it can be sealed again while the rest is merged */
		choice->nsegments = 0;
		choice->delta = true;
	}
	return true;
}
