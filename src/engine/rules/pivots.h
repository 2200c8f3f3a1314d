/*
 * pivots.h
 *		The pivots' rules that both engines follow: how many, how near, in which order and levels.
 *
 * A graph built by one engine is walked by either, so these rules are in one place.  Each engine
 * finds the rows that they ask for in its own way: engine/cpu/build/connect.c, and
 * kernels/build/cover.cu and connect.cu. C and C++.
 */
#ifndef GG_PIVOTS_H
#define GG_PIVOTS_H

#include "engine/engine.h"
#include "engine/rules/random.h"

#include <math.h>
#include <string.h>

/* Lists that the pivots' graph is made of: twice its degree, as for the main graph. */
#define GG_PIVOT_LIST		(2 * GG_PIVOT_DEGREE)

/*
 * Every level of the pivots has GG_LEVEL_RATIO times the pivots of the level above.  The top one
 * has no fewer than GG_LEVEL_SMALLEST, which a walk starts from anyhow.  Recall over 50 tight
 * clusters of 800 rows is 0.973 without levels and above 0.999 with them; a ratio of 2 is no better
 * and costs three times as much.
 */
#define GG_LEVEL_RATIO		4
#define GG_LEVEL_SMALLEST	32
#define GG_LEVELS_MAX		8	/* what 524,288 pivots have */

/*
 * How near a pivot must be to every node: GG_COVER_HOPS steps along the GG_COVER_LIST nearest
 * neighbours of each node.  With their overlap these lead to some hundreds of rows.
 */
#define GG_COVER_LIST		8
#define GG_COVER_HOPS		4

/*
 * How many pivots to draw: 3 sqrt(n), so that a walk over their graph and one over the main graph
 * cost about the same; at most one per 8 nodes, and never fewer than 32 (or n).
 *
 * More are not better.  The candidate list of a pivot walk is short, and where the rows are
 * clustered it is full of pivots of other clusters near the query before the right one is seen.
 * recall@10 at itopk_size 64:
 *
 *	pivots / sqrt(n)							2		3		4		6		8
 *	40,000 rows in 50 tight clusters (6 seeds)	0.9987	0.9998	0.9955	0.9920	0.9962
 *	20,000 rows in 100 tight clusters			1		1		1		0.9958	0.9772
 *
 * 200,000 rows in 200 wide clusters have 0.9985 with 3 sqrt(n), 0.9992 with 4 sqrt(n), and 0.9898
 * with n / 32.
 */
static inline uint32_t
gg_pivots_wanted(uint32_t n)
{
	double		count = 3 * sqrt((double) n);

	if (count > n / 8)
		count = n / 8;
	if (count < 32)
		count = 32;
	return count < n ? (uint32_t) count : n;
}

/*
 * How many pivots there may be before components and orphans stop getting pivots (connect.c).  Few
 * data come near it: nearly all components have more rows than GG_COVER_LIST.  Of pairs of
 * copies that are equally far from all others, and of rows that cannot be told apart (copies, or
 * elements below 1e-23, whose squares are 0 in float32), all lists name the same few rows.  Then
 * nearly half of the others would become pivots, whose lists take a device time by the square of
 * their number.
 */
static inline uint32_t
gg_pivots_most(uint32_t n)
{
	return 2 * gg_pivots_wanted(n) + n / GG_COVER_LIST;
}

/*
 * Nor does a component get a pivot if its lowest row's list (k places) names more than so many
 * others, and a row there lists that row, too: the graph leads there, and pivots of many such
 * components fill a list of the nearest pivots with wrong ones.  Lists of 64 of 12 isolated rows
 * name 6, of ten rows of a document 20.  RESULTS.md has figures ("Documents of few rows").
 */
#define GG_PIVOTS_APART(k)	((k) / 5)

/*
 * Under inner product few rows list each other, and lists name the long rows of a cluster.  So two
 * rows are united where each is among the first GG_COVER_LIST of the other's list (k places).  A
 * row that is not united stays by itself: its nearest row may be of a cluster far away, for which a
 * pivot there is of no use.  And a component gets a pivot only where at least GG_PIVOT_OWN of the
 * first GG_COVER_LIST places of its lowest row are in it, since each pair of near copies in a
 * cluster would have one.  RESULTS.md has figures ("Clusters by themselves under
 * inner product").
 */
#define GG_PIVOT_OWN		(GG_COVER_LIST / 2)
#define GG_UNITE_LENGTH(k, metric) \
	((metric) == GG_METRIC_IP && (k) > GG_COVER_LIST ? GG_COVER_LIST : (k))

/*
 * A row is united with its nearest GG_UNITE_ALWAYS neighbours, and with others of the first
 * GG_COVER_LIST whose distance, under L2 and cosine its square, is at most gg_unite_ratio() times
 * that of the last of the former.  A group of up to GG_COVER_LIST near copies would else be united
 * with the next one, and have no pivot.  Rows that their own vector does not find, of 3,000, at
 * itopk 16 and 64, without and with this, 20,000 uniform rows in groups: 8 each in 24 dimensions
 * 170 and 14, none; in 64 298 and 60, none; in 128 509 and 149, 1 and none; 6 each in 64 206 and
 * 28, none.
 */
#define GG_UNITE_ALWAYS		2

static inline float
gg_unite_ratio(gg_metric metric)
{
	if (metric == GG_METRIC_IP)
		return 0;				/* it has a rule of its own */
	return metric == GG_METRIC_L1 ? 1.75f : 3;
}

/* Shuffle the pivots, those drawn and those added: every prefix is a random sample of them all. */
static inline void
gg_pivots_shuffle(uint32_t *pivots, uint32_t npivots, uint64_t seed)
{
	for (uint32_t i = 0; i < npivots; i++)
	{
		uint32_t	j = i + gg_random_below(seed ^ UINT64_C(0xE7037ED1A0B428DB), i, npivots - i);
		uint32_t	swap = pivots[i];

		pivots[i] = pivots[j];
		pivots[j] = swap;
	}
}

/* The pivots of each level, all of them in level 0; returns how many levels there are. */
static inline uint32_t
gg_pivot_levels(uint32_t npivots, uint32_t sizes[GG_LEVELS_MAX])
{
	uint32_t	nlevels = 1;

	sizes[0] = npivots;
	while (nlevels < GG_LEVELS_MAX && sizes[nlevels - 1] / GG_LEVEL_RATIO >= GG_LEVEL_SMALLEST)
	{
		sizes[nlevels] = sizes[nlevels - 1] / GG_LEVEL_RATIO;
		nlevels++;
	}
	return nlevels;
}

/*
 * Fill list (GG_PIVOT_DEGREE places) by interleaving nlists full lists of the same length, without
 * duplicates.
 */
static inline void
gg_pivot_interleave(const uint32_t *const *lists, uint32_t nlists, uint32_t *list)
{
	uint32_t	next[GG_LEVELS_MAX] = {0};
	uint32_t	count = 0;

	for (uint32_t turn = 0; count < GG_PIVOT_DEGREE && turn < nlists * GG_PIVOT_DEGREE; turn++)
	{
		const uint32_t *from = lists[turn % nlists];
		uint32_t   *taken = &next[turn % nlists];
		uint32_t	before = count;

		while (count == before && *taken < GG_PIVOT_DEGREE)
		{
			uint32_t	i = 0;

			list[count] = from[(*taken)++];
			while (list[i] != list[count])
				i++;
			count += i == count;
		}
	}
}

/*
 * levels[i] is the graph over the first sizes[i] pivots, sizes[i] x GG_PIVOT_DEGREE.  Where there
 * is more than one level all lists are full.  In levels[0], the result, the list of a pivot that is
 * in several levels interleaves these, the coarsest first.
 */
static inline void
gg_pivot_join_levels(uint32_t *const *levels, const uint32_t *sizes, uint32_t nlevels)
{
	for (uint32_t i = 0; nlevels > 1 && i < sizes[1]; i++)
	{
		const uint32_t *lists[GG_LEVELS_MAX];
		uint32_t	list[GG_PIVOT_DEGREE];
		uint32_t	nlists = 0;

		for (uint32_t level = nlevels; level-- > 0;)
			if (i < sizes[level])
				lists[nlists++] = levels[level] + (size_t) i * GG_PIVOT_DEGREE;
		gg_pivot_interleave(lists, nlists, list);
		memcpy(levels[0] + (size_t) i * GG_PIVOT_DEGREE, list, sizeof(list));
	}
}

#endif							/* GG_PIVOTS_H */
