/*
 * filter_keys.h
 *		Conditions on filter columns, from scan keys to a gg_filter.
 */
#ifndef GG_FILTER_KEYS_H
#define GG_FILTER_KEYS_H

#include "storage/filter_column.h"

#include "access/skey.h"

/* Strategies of the operator classes of filter columns.  Up to 5 they are those of B-trees. */
#define GG_OVERLAP_STRATEGY		6	/* && */
#define GG_CONTAINS_STRATEGY	7	/* @> */
#define GG_STRATEGIES			7

/* May the operator class of this type have this strategy? */
extern bool GgFilterStrategyIsKnown(Oid type, int strategy);

/* Is a column of this type, as its operator class has it, compared with values of another? */
extern bool GgFilterTypesCompare(Oid type, Oid right);

/*
 * Make the conditions of a scan's keys, which have attributes 1 .. n of the index.  The filter gets
 * no list of TIDs, and no conditions where none is needed.  *recheck: rows that match need not
 * fulfil the keys.  False: no row can fulfil them.  Allocates in the current context.
 */
extern bool GgFilterFromKeys(const GgFilterColumns *columns, const ScanKeyData *keys, int nkeys,
							 gg_filter *filter, bool *recheck);

#endif							/* GG_FILTER_KEYS_H */
