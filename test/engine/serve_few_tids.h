/*
 * serve_few_tids.h
 *		Filters of few TIDs (GG_SHORT_TIDS), and of one more, of several requests in a call to any
 *		engine: alone and beside conditions.
 */
#ifndef SERVE_FEW_TIDS_H
#define SERVE_FEW_TIDS_H

#include "serve_deep.h"

#define FEW_TIDS_FILTERS 11

/* ntids of them, of each step-th row from `first` on, whether or not there are so many rows. */
static inline void
few_tids_add(gg_filter *filter, uint64_t *tids, uint32_t first, uint32_t step, uint32_t ntids)
{
	for (uint32_t i = 0; i < ntids; i++)
		tids[i] = deep_tid(first + i * step);
	filter->tids = tids;
	filter->ntids = ntids;
}

/* Filter number `number`; tids: room for SEVERAL_TIDS. */
static inline void
few_tids_filter(int number, gg_filter *filter, uint64_t *tids)
{
	static const int64_t half[] = {0, 2000};
	static const int64_t masks[] = {3, 0, 0, 0, 0, 1 << 5, 1 << 6, 0};
	int64_t		many[300];

	for (int i = 0; i < 300; i++)
		many[i] = (int64_t) i * 1000003 - 250000000;
	memset(filter, 0, sizeof(*filter));
	switch (number)
	{
		case 0:
			few_tids_add(filter, tids, 3, 11, 100);
			break;
		case 1:
			few_tids_add(filter, tids, 10, 1, 333);
			break;
		case 2:
			few_tids_add(filter, tids, 0, 1, GG_SHORT_TIDS);
			break;
		case 3:
			/* small, and of many TIDs */
			few_tids_add(filter, tids, 0, 1, GG_SHORT_TIDS + 1);
			break;
		case 4:
			few_tids_add(filter, tids, 0, 2, 500);
			deep_add(filter, GG_CONDITION_RANGE, 0, 0, half, 2);
			break;
		case 5:
			few_tids_add(filter, tids, 1, 3, 300);
			deep_add(filter, GG_CONDITION_MASK, 2, DEEP_MASK, masks, 8);
			deep_add(filter, GG_CONDITION_NOT_NULL, 0, 0, NULL, 0);
			break;
		case 6:
			/* few TIDs, and not small */
			few_tids_add(filter, tids, 0, 1, 1000);
			deep_add(filter, GG_CONDITION_IN, 1, 1, many, 300);
			break;
		case 7:
			few_tids_add(filter, tids, 0, 1, 0);
			break;
		case 8:
			few_tids_add(filter, tids, 20, 1, 1);
			break;
		case 9:
			deep_add(filter, GG_CONDITION_RANGE, 0, 0, half, 2);
			break;
		default:
			deep_add(filter, GG_CONDITION_NULL, 2, 0, NULL, 0);
	}
}

/* Filters that neighbours have, by `pattern`; false: there are no more. */
static inline bool
few_tids_pattern(uint32_t pattern, const gg_filter *kinds, const gg_filter **filters)
{
	static const int small[] = {0, 9, 4, 1, 7, 5, 10, 8};
	/* small ones with others between, so that a call has several groups */
	static const int all[] = {0, 1, 3, 4, 5, 2, 6, 0, 9, 0, 3, 7, 2, 8, 1, 10};

	if (pattern > 4)
		return false;
	for (uint32_t i = 0; i < SEVERAL_MOST; i++)
		filters[i] = &kinds[pattern == 0 ? 0 : pattern == 1 ? 2 : pattern == 2 ? small[i % 8] :
							pattern == 3 ? all[i % 16] : (int) i / 3 % 3];
	return true;
}

/*
 * Requests of one call have the answers that each has alone, which are right.
 */
static inline void
deep_few_tids(const gg_engine *engine, const deep_spec *spec, double tolerance)
{
	static const uint32_t counts[] = {SEVERAL_MOST, 2, 9, 16};
	gg_filter  *kinds = malloc(FEW_TIDS_FILTERS * sizeof(gg_filter));
	uint64_t   *tids = malloc(FEW_TIDS_FILTERS * SEVERAL_TIDS * sizeof(uint64_t));
	const gg_filter *filters[SEVERAL_MOST];
	char	   *alone = malloc(SEVERAL_MOST * SEVERAL_BYTES);
	deep_scene	s;

	if (!deep_make(&s, engine, spec, tolerance) ||
		!deep_open_slots(&s, SEVERAL_MOST, SEVERAL_MOST *
						 (SEVERAL_BYTES + SEVERAL_TIDS * sizeof(uint64_t))))
		return;
	s.tids_at = s.keys_at + SEVERAL_MOST * SEVERAL_BYTES;
	for (int f = 0; f < FEW_TIDS_FILTERS; f++)
		few_tids_filter(f, &kinds[f], tids + (size_t) f * SEVERAL_TIDS);
	for (uint32_t pattern = 0; few_tids_pattern(pattern, kinds, filters); pattern++)
		for (uint32_t mix = 0; mix < 4; mix += harness_small() && pattern < 2 ? 3 : 1)
			several_case(&s, mix, counts[(mix + pattern) % 4], filters, alone, "few TIDs");
	free(tids);
	free(kinds);
	free(alone);
	deep_free(&s);
}

#endif							/* SERVE_FEW_TIDS_H */
