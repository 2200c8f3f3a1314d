/*
 * policy.c
 *		Which segments are to be merged.
 *
 * Segments are kept in tiers, as in an LSM tree, but without levels of fixed sizes: the smaller
 * ones are merged into the next larger when together they reach a fourth of it, in bytes that a
 * merge writes (tiers.c).  So each segment is more than four times as large as all smaller ones
 * together, and there are few: four where 10,000 rows are sealed and the index has a million.  What
 * merges write of a row, they write some five times in each tier.
 *
 * Under an old snapshot nothing that they give back can be used again, so all that merges write
 * makes the index longer.  There are few of them then: up to 15 segments are left as they are, and
 * of more those are merged that make the most room for what is written.
 *
 * Bytes that merges write for each byte inserted, 4M rows x 128 (test/directory/test_tiers.c):
 *
 *		rows a node, filter words				1, 0	1, 32	100, 0	100, 32
 *		inserts									4.9		5.9		2.8		4.9
 *		updates									-		-		2.9		5.9
 *		1M rows more under an old snapshot		1.9		1.9		1.1		1.3
 *
 * Where segments were weighed by their nodes, these were 4.3, 5.8, 5.2 and 25.9, 8.1 and 58.0, and
 * 4.7, 8.7, 8.9 and 33.5.
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
#include "maintain/merge.h"
#include "engine/rules/tiers.h"

/*
 * By default the delta is sealed at so many bytes of vectors, within the bounds of rows below.  For
 * each query the CPU engine measures every row of the delta, at some 6 GB per second.  100,000 x
 * 768 on 2 cores, 300 inserts per second: the p50 of each second over that of a fresh index beside
 * the same inserts is 5.95 in the median and 11.9 at worst where 10,000 rows are sealed; 2.79 and
 * 4.99 at 1,667 rows, which are 5 MB; 2.57 and 6.22 at 833.  A walk measures hundreds of rows, so
 * fewer are not worth a segment.
 */
#define SEAL_BYTES			(5 * 1024 * 1024)

/*
 * A device measures so much in some 10 us, which is what one more segment costs it.  And it builds
 * graphs of 5,000 nodes and more.  1M x 768, 16 clients insert, one H200: p50 of each second over
 * that beside inserts into another table was 2.51 in the median and 4.04 at worst with 5 MB and 14
 * segments, and 1.89 and 2.12 with 5 (RESULTS.md, Ageing, has a later run).
 */
#define SERVED_SEAL_BYTES	(32 * 1024 * 1024)
#define LEAST_SEAL_ROWS		500
#define MOST_SEAL_ROWS		10000

/* Smaller segments are merged into the next larger one when together they are this part of it. */
#define DUE_SHARE			4
#define IDLE_SHARE			32
#define QUIET_SHARE			512

/*
 * While a large merge is under way, the delta is merged with segments.  Each is MEANWHILE_SHARE
 * times the delta and all smaller ones, at most.  Together they have MEANWHILE_TIMES the delta's
 * rows, at most, since new rows wait in it, unless there are MEANWHILE_SEGMENTS that are no inputs.
 */
#define MEANWHILE_SHARE		2
#define MEANWHILE_TIMES		8
#define MEANWHILE_SEGMENTS	8

/*
 * Bytes of vectors that such a merge may have where the device is busy and the CPU builds: 38,014 x
 * 768 took the CPU 1.2 s, in which 30,000 rows came to a delta of 13,000.
 */
#define MEANWHILE_CPU_BYTES	(64 * 1024 * 1024)

/*
 * Where there are GG_MANY_PIECES, and more than so many of them in segments that are no inputs of
 * the large merge, all those segments are merged with the delta.
 */
#define MEANWHILE_PIECES	16

/* A delta with fewer dead rows is not sealed for their sake. */
#define LEAST_DEAD			100

/*
 * A snapshot is old where it keeps what so many seals gave back.  By default the delta then is
 * sealed at so many times the rows, since each seal is a piece and a segment more.  And segments
 * are merged where there are more than PINNED_SEGMENTS.
 */
#define PINNED_SEALS		2
#define PINNED_SEGMENTS		15

/* Where there are so many segments, or pieces, the smallest segments are merged in any case. */
#define CROWDED_SEGMENTS	(GG_MAX_SEGMENTS - 8)
#define CROWDED_PIECES		(GG_MANY_PIECES + 16)

/*
 * From so many pieces on the delta waits until a merge without it has left fewer: what is sealed is
 * a piece of its own.
 */
#define FULL_PIECES			(GG_MAX_PIECES - 1)

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

void
GgNotePinned(GgMergeLook *look, uint64 blocks, bool seal_by_default)
{
	uint64		of_seals = (uint64) look->seal_rows * GgDeltaRowBytes(look->meta) * PINNED_SEALS;

	look->pinned = blocks > 0 && blocks * BLCKSZ >= of_seals;
	if (look->pinned && seal_by_default)
		look->seal_rows *= PINNED_SEALS;
}

/* Is the delta to be sealed? */
static bool
SealIsDue(const GgMergeLook *look, GgMergeUrge urge)
{
	const GgMetaPageData *meta = look->meta;

	if (GgSealableEnd(meta) == GgDeltaFirst(meta))
		return false;
	if (urge != GG_MERGE_DUE || look->delta_rows >= look->seal_rows)
		return true;
	/* scans measure dead rows, too */
	return meta->delta_dead >= LEAST_DEAD && meta->delta_dead > look->delta_rows / 2;
}

/* The segments, and the delta where it is to be sealed, the largest first. */
static int
ListUnits(const GgMergeLook *look, bool seal, gg_unit *units)
{
	const GgMetaPageData *meta = look->meta;
	const gg_unit_shape shape = {
		.vector_bytes = GgRowBytes(meta),
		.list_bytes = meta->graph_degree * sizeof(uint32),
		.row_bytes = sizeof(GgTidEntry) + GgFilterBytes(meta)
	};
	int			n = 0;

	for (int i = 0; i < meta->nsegments; i++)
	{
		const GgSegment *segment = &meta->segments[i];
		uint32		pieces = 0;

		for (int p = 0; p < meta->npieces; p++)
			pieces += meta->pieces[p].segment == segment->id;
		units[n++] = gg_make_unit(&shape, segment->id, (gg_unit_counts) {
								  .nodes = segment->nodes, .gone = GgGoneNodes(segment),
								  .rows = segment->rows,
								  .dead = Min(segment->dead, segment->rows),
								  .pieces = pieces});
	}
	if (seal)
	{
		uint64		dead = Min(look->delta_rows, meta->delta_dead);

		units[n++] = gg_make_unit(&shape, GG_NO_SEGMENT, (gg_unit_counts) {
								  .nodes = look->delta_rows, .gone = dead,
								  .rows = look->delta_rows, .dead = dead, .pieces = 1});
	}
	gg_sort_units(units, n);
	return n;
}

/* The first unit to be merged where there are too many of them or, by_pieces, of their pieces. */
static int
CheapestUnits(const gg_unit *units, int n, bool by_pieces)
{
	uint64		bytes[GG_MAX_SEGMENTS + 1];
	uint32		counts[GG_MAX_SEGMENTS + 1];

	for (int i = 0; i < n; i++)
	{
		bytes[i] = units[i].bytes + (by_pieces ? units[i].vector_bytes : 0);
		counts[i] = by_pieces ? units[i].pieces : 1;
	}
	return gg_cheapest_tail(bytes, counts, n);
}

/* All units from this one on are to be merged; n: none. */
static int
FirstUnit(const GgMergeLook *look, const gg_unit *units, int n, GgMergeUrge urge)
{
	static const uint64 shares[] = {
		[GG_MERGE_DUE] = DUE_SHARE, [GG_MERGE_IDLE] = IDLE_SHARE, [GG_MERGE_QUIET] = QUIET_SHARE
	};
	int			first;

	if (urge == GG_MERGE_ALL)
		return 0;
	if (!look->pinned)
		first = gg_due_units(units, n, shares[urge]);
	else
		first = n > PINNED_SEGMENTS ? CheapestUnits(units, n, false) : n;
	if (n >= CROWDED_SEGMENTS)
		first = Min(first, n / 2);
	/* two at least, so that there is a piece less */
	if (look->meta->npieces >= CROWDED_PIECES && n >= 2)
		first = Min(first, Min(CheapestUnits(units, n, true), n - 2));
	return first;
}

bool
GgChooseMerge(const GgMergeLook *look, GgMergeUrge urge, GgMergeChoice *choice)
{
	gg_unit		units[GG_MAX_SEGMENTS + 1];
	bool		seal = SealIsDue(look, urge);
	int			n = ListUnits(look, seal, units);
	int			first = FirstUnit(look, units, n, urge);
	uint64		sum = 0;
	uint64		rows = 0;
	int			end = n;

	choice->anew = choice->delta = false;
	choice->delta_rows = look->most;
	choice->pinned = look->pinned;
	choice->nsegments = 0;
	if (look->seal_rows == 0 && urge != GG_MERGE_ALL)
		return false;
	if (urge != GG_MERGE_ALL && GgChooseCrowded(look, choice))
		return true;

	/* from the smallest on, as many as there is memory for, with GG_MAX_ROWS rows at most */
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
		/* the smallest segment that has many dead rows; the delta is too small to be sealed */
		for (int i = n - 1; i >= 0 && !look->pinned; i--)
			if (units[i].dead && units[i].nodes <= look->most && units[i].id != GG_NO_SEGMENT)
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
	if (urge == GG_MERGE_ALL)
		return true;
	if (choice->nsegments > 1 && (look->meta->npieces >= FULL_PIECES ||
								  look->meta->nsegments >= CROWDED_SEGMENTS))
		choice->delta = false;
	else if (seal && look->meta->nsegments < GG_MAX_SEGMENTS - 1 &&
			 (!choice->delta || sum > 2 * look->delta_rows))
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

/* Are there GG_MANY_PIECES, and enough of them in segments that are no inputs of outer? */
static bool
ManyPieces(const GgMetaPageData *meta, const GgMergeChoice *outer)
{
	int			n = 0;

	for (int i = 0; i < meta->npieces; i++)
		n += !IsInput(outer, meta->pieces[i].segment);
	return meta->npieces >= GG_MANY_PIECES && n > MEANWHILE_PIECES;
}

/*
 * The first of n segments that are worth a merge with the delta while another merge is under way.
 * Few and small ones, since new rows wait in the delta, unless there are many segments or pieces.
 */
static int
FirstMeanwhile(const GgMergeLook *look, bool by_cpu, bool many, const gg_unit *units, int n,
			   gg_unit sum)
{
	bool		crowded = many || (look->pinned ? look->meta->nsegments >= CROWDED_SEGMENTS :
								   n >= MEANWHILE_SEGMENTS);
	const int	cheapest = look->pinned && crowded ? CheapestUnits(units, n, false) : n;
	uint64		limit = look->most;
	int			first = n;

	if (!crowded)
		limit = Min(limit, MEANWHILE_TIMES * look->delta_rows);
	if (!crowded && by_cpu)
		limit = Min(limit, MEANWHILE_CPU_BYTES / GgRowBytes(look->meta));
	for (int i = n - 1; i >= 0 && sum.nodes + units[i].nodes <= limit &&
		 sum.rows + units[i].rows <= GG_MAX_ROWS; i--)
	{
		if (many || i >= cheapest ||
			(!look->pinned && sum.bytes * MEANWHILE_SHARE >= units[i].bytes))
			first = i;
		sum.nodes += units[i].nodes;
		sum.rows += units[i].rows;
		sum.bytes += units[i].bytes;
	}
	return first;
}

bool
GgChooseMeanwhile(const GgMergeLook *look, bool by_cpu, const GgMergeChoice *outer,
				  GgMergeChoice *choice)
{
	const GgMetaPageData *meta = look->meta;
	gg_unit		units[GG_MAX_SEGMENTS + 1];
	int			all = ListUnits(look, true, units);
	gg_unit		delta = {0};
	int			n = 0;

	choice->anew = false;
	choice->delta = true;
	choice->delta_rows = look->most;
	choice->pinned = look->pinned;
	choice->nsegments = 0;
	if (look->seal_rows == 0 || look->delta_rows < look->seal_rows ||
		GgSealableEnd(meta) == GgDeltaFirst(meta) || meta->npieces >= FULL_PIECES ||
		!GgHasRoomForInner(meta))
		return false;
	for (int i = 0; i < all; i++)
		if (units[i].id == GG_NO_SEGMENT)
			delta = units[i];
		else if (!IsInput(outer, units[i].id))
			units[n++] = units[i];
	for (int i = FirstMeanwhile(look, by_cpu, ManyPieces(meta, outer), units, n, delta); i < n; i++)
		choice->segments[choice->nsegments++] = units[i].id;
	return choice->nsegments > 0 || meta->nsegments < GG_MAX_SEGMENTS - 1;
}
