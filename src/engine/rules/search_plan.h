/*
 * search_plan.h
 *		When a segment is walked and when it is measured row by row.  A scan decides by these
 *		numbers (src/scan), and the planner's costs follow the scan (src/plan/cost.c).
 */
#ifndef GG_SEARCH_PLAN_H
#define GG_SEARCH_PLAN_H

#include <math.h>

#include "engine/engine.h"
#include "engine/rules/device_model.h"

/*
 * A walk measures some 20 to 35 rows for each entry of its list, at random places.  A sequential
 * pass is at least as fast per row.  So no list is longer than nodes / 32.
 */
#define GG_EXACT_SHARE		32

/*
 * With a filter, microseconds on the CPU: a node that matches in an exact pass, an entry of a
 * walk's list, and a row for which a condition is evaluated.  The first two go by the pages that a
 * vector, or a code, fills.  Measured were, warm, 40,000 rows of 64 and 128 dimensions, float16 of
 * 128 and int8 codes of 128, and 20,000 of 768:
 *
 *		a node that matches, where 1 in 5 do	0.08	0.10	0.08	0.07	0.5
 *		the same, 1 in 100						0.35	0.34	0.32	0.36	0.6
 *		an entry of the first 64				3.2		4.1		3.3		3.7		8.1
 *		one behind these, about					2 to 3							4 to 5
 *
 * 400,000 x 96, which the processor's caches do not hold: 0.15 to 0.3 for a node that matches.
 * Rows without clusters have up to twice as many distances per entry.
 */
#define GG_MATCHING_TIME(pages)	(0.08 + 1.3 * (pages))

/* Microseconds on the CPU for a row in a pass over all rows; cost.c has what was measured. */
#define GG_EXACT_TIME(pages)	(0.12 + 0.7 * (pages))

/* Bytes that a page has room for: one of 8 kB, with which times were measured. */
#define GG_TIMED_PAGE			8144
#define GG_ENTRY_TIME(pages)	(2.5 + 14 * (pages))
#define GG_CONDITION_TIME		0.002

/* In a smaller segment a filter is evaluated for all rows as fast as for a sample. */
#define GG_SAMPLED_FROM			16384

/* What decides between a walk and an exact pass where a filter leaves some nodes of a segment. */
typedef struct GgFilteredNodes
{
	double		nodes;
	double		matching;
	double		conditions;		/* to be evaluated for each of the rows, if the walk is not taken */
	double		walk_pages;		/* pages that a node's row, or code, fills in a walk */
	double		exact_pages;	/* pages that a node fills in an exact pass */
	double		wanted;			/* matching nodes that are asked for */
} GgFilteredNodes;

/*
 * Matching nodes that a walk is to bring where `limit` rows are asked for; limit 0: not known.  If
 * lists had `limit` on average, every other one would have fewer, and the scan would pay for a walk
 * and an exact pass.
 */
static inline double
GgNodesWanted(double limit, double itopk_size)
{
	return limit > 0 ? limit + 2 * sqrt(limit) : itopk_size / 4;
}

/* The longest list that a walk is worth, which takes as long as an exact pass; 0: none is. */
static inline double
GgLongestFilteredList(const GgFilteredNodes *of)
{
	const double exact = of->matching * GG_MATCHING_TIME(of->exact_pages) +
		of->nodes * of->conditions * GG_CONDITION_TIME;
	const double longest = exact / GG_ENTRY_TIME(of->walk_pages);

	/* half of a list is handed out */
	return longest / 2 * of->matching >= of->wanted * of->nodes ? longest : 0;
}

/* The longest list that a walk is worth without a filter. */
static inline double
GgLongestWalkList(double nodes)
{
	return nodes / GG_EXACT_SHARE;
}

/* The list that follows one of this length, if nothing speaks against it. */
static inline uint64_t
GgNextList(uint64_t itopk)
{
	return itopk < 16 ? itopk + 16 : itopk * 2;
}

/*
 * The list of a filtered walk after one of this length: the last one may be as long as any.  0:
 * none is worth it.  Planner and scan ask until they get 0, so what they get must be longer than
 * what they gave, by whole nodes.
 */
static inline uint32_t
GgLongerFilteredList(uint32_t itopk, double longest)
{
	double		next = (double) GgNextList(itopk);
	uint32_t	list = (uint32_t) (next < longest ? next : longest);

	return list > itopk && list >= itopk * 1.25 ? list : 0;
}

/*
 * Nodes of a segment from which a device is asked for those that match a filter.  The CPU looks at
 * fewer rows in some 30 us.
 */
#define GG_DEVICE_FILTER_NODES	2048

/*
 * Length of the first exact list of a device, at most and at least.  Those that follow are longer.
 */
#define GG_FIRST_DEEP			16384
#define GG_LEAST_DEEP			1024

/* Does a device measure all rows sooner than a core, which takes 0.38 s for 1M x 768? */
static inline bool
GgDeviceMeasuresSooner(double nodes, double row_bytes)
{
	return nodes * GG_EXACT_TIME(row_bytes / GG_TIMED_PAGE) >
		GG_DEVICE_LIST_US + GG_DEVICE_DEEP_US;
}

/*
 * The longest list of a walk on a device.  A longer one would last longer than measuring all rows,
 * which takes `more` microseconds beside reading them, and an exact list takes its place.
 */
static inline double
GgLongestDeviceList(double nodes, double row_bytes, double more)
{
	double		longest = (nodes * row_bytes / GG_DEVICE_BYTES_PER_US + more) / GG_DEVICE_ENTRY_US;

	return longest < GG_MAX_ITOPK ? longest : GG_MAX_ITOPK;
}

/*
 * How many of `rows` rows a scan is expected to hand out where `passing` of them pass a filter of
 * the executor and `answers` are asked for (if known, else GG_EXPECTED_ANSWERS).  0: not known.
 */
#define GG_EXPECTED_ANSWERS		10
#define GG_MOST_EXPECTED		0x3FFF

static inline uint32_t
GgRowsToExpect(double rows, double passing, double answers)
{
	double		expected = rows;

	if (passing > answers)
		expected = rows * answers / passing;
	if (expected > GG_MOST_EXPECTED)
		return GG_MOST_EXPECTED;
	return expected > 0 ? (uint32_t) expected : 0;
}

/*
 * First lists of a device where a stream is expected to hand out so many rows: the least length of
 * a walk's, of which half is handed out, and that of an exact one.  Both have some to spare, since
 * the number is an estimate, and a list too short costs one more question, and a bitmap of what was
 * handed out.  What a shorter exact list saves this process is 60 us of 4,096 against 16,384 keys
 * (1M x 128, one row in 100 passes, CPU engine).
 */
#define GG_EXPECTED_WALK(expected)	(3.0 * (expected))

static inline uint32_t
GgFirstDeepList(double expected)
{
	double		length = 4 * expected;

	if (expected == 0 || length > GG_FIRST_DEEP)
		return GG_FIRST_DEEP;
	return length > GG_LEAST_DEEP ? (uint32_t) length : GG_LEAST_DEEP;
}

/*
 * Keys of a device's first list where the executor asks for `limit` rows.  Half of a walk's list is
 * handed out.  An exact list is handed out whole.  Both have some to spare for dead rows.
 */
#define GG_LIMITED_WALK(limit)	(2 * (uint64_t) (limit) + 8)
#define GG_LIMITED_EXACT(limit)	((limit) + (limit) / 8 + 4)

/*
 * Does a device walk for LIMIT, with a list that has LIMIT's rows and is of `itopk` at least?  It
 * does up to some length of lists, and measures all rows beyond: a longer list does not find less.
 * Where LIMIT takes a long list, one that is exact finds more in little more time.  A procedure
 * that is named is used where its list has LIMIT's rows.
 */
static inline bool
GgWalksForLimit(uint64_t limit, uint64_t itopk, gg_search_mode mode, double nodes,
				double row_bytes)
{
	if (mode != GG_SEARCH_AUTO && GG_LIMITED_WALK(limit) <= itopk)
		return true;
	return itopk <= GgLongestDeviceList(nodes, row_bytes, GG_DEVICE_DEEP_US) &&
		GG_LIMITED_WALK(limit) <= GgLongestDeviceList(nodes, row_bytes, GG_DEVICE_DEEP_US / 2);
}

/*
 * The first list of a walk on the CPU, or for many queries on a device, where `limit` rows are
 * asked for.  From GG_FAR_LIMIT rows on it is longer, since the farther a row is, the less certain
 * is it in the list.  recall and distances of 200,000 x 64 in clusters within clusters, strict
 * order; lists that grow from 64 had .942 at LIMIT 1,000 of 50,000 x 128:
 *
 *	LIMIT						300				400				500				1,000
 *	2.5 times					.9937 3521		.9834 4690		.9806 5775		.9767 10669
 *	2.75 times, this			.9945 3861		.9863 5136		.9830 6304		.9799 11637
 *	3 times						.9954 4213		.9886 5564		.9855 6827		.9827 12515
 *
 * A list that grew has nearer rows when those before them were returned already.
 */
#define GG_FAR_LIMIT			300

static inline uint64_t
GgLimitedList(uint64_t limit)
{
	return GG_LIMITED_WALK(limit) + (limit >= GG_FAR_LIMIT ? limit * 3 / 4 : 0);
}

/* GgLimitedList() where no list above `longest` is worth it: one that has LIMIT's rows will do. */
static inline uint64_t
GgFirstWalkList(uint64_t itopk, uint64_t limit, double longest)
{
	uint64_t	list = GgLimitedList(limit);

	if (list > longest && GG_LIMITED_WALK(limit) <= longest)
		list = (uint64_t) longest;
	return list > itopk ? list : itopk;
}

/*
 * Where a device has codes alone, keys of its list under a filter have bounds of distances, and the
 * rows behind them are measured until no bound is below the last row wanted.  There is one such
 * list, of GG_BOUNDED_LIST keys.  Where it is not enough, or likely not to be, all rows that match
 * are measured.
 */
#define GG_BOUNDED_TIMES		8	/* keys for a row that is wanted, at least */

/*
 * The list of a device's walk in a segment of which this share of the nodes matches a filter; 0:
 * they are to be measured.  Much of what a walk finds must match.  The walk may take twice as long
 * as one query's exact list: over 1M x 128, where one row in two matches, both take a client some
 * 0.15 ms, but 16 clients have 79,000 walks with lists of 128 a second and 35,000 exact lists.
 */
#define GG_LEAST_WALKED_SHARE	0.25
#define GG_MOST_WALK_TIME		2

static inline uint32_t
GgFilteredDeviceList(double nodes, double share, double row_bytes, uint32_t itopk)
{
	double		list;

	if (share < GG_LEAST_WALKED_SHARE)
		return 0;
	list = itopk / share;
	return list <= GG_MOST_WALK_TIME * GgLongestDeviceList(nodes * share, row_bytes, 0) ?
		(uint32_t) list : 0;
}

/*
 * Where distances of a list are estimates: how many rows a scan that has taken so many is expected
 * to take.  Somewhat more nodes than that are measured by row (gg_rerank_size()).  half: of a list.
 * limit: what LIMIT says; 0: not known.
 */
static inline uint64_t
GgRowsToTake(uint64_t half, uint64_t limit, uint64_t taken)
{
	uint64_t	rows = limit > 0 ? limit : half;

	if (rows < 1)
		rows = 1;
	while (rows <= taken)
		rows *= 2;
	return rows;
}

/*
 * Measuring rows ends before all that are due were measured, once the next estimate is farther than
 * the last row that is wanted by so many times the largest error of an estimate so far.  LIMIT 10,
 * int4: 16.2 rows are read instead of 31 on 60,000 x 768, 29.1 instead of 47 on 100,000 x 96, and
 * recall@10 stays the same.  With 1 14.7 and 22.1 rows are read, but recall is 0.9985 instead of
 * 0.9995 at 96 dimensions.
 */
#define GG_ERROR_MARGIN		1.5f

/* Is a row of this estimate, or of a later one, hardly nearer than the last one wanted? */
static inline bool
GgIsTooFar(float estimate, float last_wanted, float largest_error)
{
	return estimate - last_wanted > GG_ERROR_MARGIN * largest_error;
}

/*
 * Rows that are due are counted by nodes, since equal ones have one estimate: otherwise the copies
 * of one row could be all that is measured.  Measuring ends at so many rows for each that is due.
 */
#define GG_MOST_ROWS_PER_NODE	16

/* Rows that are measured between two looks whether that is enough: so many at least. */
#define GG_STEP_ROWS		4

/* How many of the rows that are due are to be measured before the next look? */
static inline uint64_t
GgMeasureUntil(uint64_t measured, uint64_t wanted, uint64_t due)
{
	const uint64_t step = wanted / 8 > GG_STEP_ROWS ? wanted / 8 : GG_STEP_ROWS;
	const uint64_t until = (measured > wanted ? measured : wanted) + step;

	return until < due ? until : due;
}

/*
 * The share of the rows due beyond the first look that is measured on average.  LIMIT 5 to 60:
 * with int4 0.01 to 0.17 on 30,000 x 768 and 0.19 to 0.78 on 60,000 x 96, with int8 none.
 */
#define GG_MEASURED_SHARE	0.3

/* The first pass of an exact stream keeps at least this many rows. */
#define GG_EXACT_MIN_BATCH	64

/* Rows whose distances one of so many exact streams keeps in its share of work_mem. */
static inline double
GgExactRoom(double work_mem_kb, int streams)
{
	double		room = work_mem_kb * 1024 / sizeof(uint64_t) / (streams > 0 ? streams : 1);

	return room > GG_EXACT_MIN_BATCH ? room : GG_EXACT_MIN_BATCH;
}

#endif							/* GG_SEARCH_PLAN_H */
