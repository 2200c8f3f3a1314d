/*
 * unit.h
 *		Units of a load: what fits a staging chunk, or less.
 */
#ifndef GG_UNIT_H
#define GG_UNIT_H

#include "service/loader/handover.h"

#include "storage/bufmgr.h"
#include "storage/lock.h"

typedef struct Unit
{
	uint32		list;
	gg_part		part;
	uint32		word;			/* of a delta's GG_PART_FILTERS, which come word by word */
	GgKind		kind;
	uint32		owner;			/* segment or piece that the array belongs to */
	uint32		first;			/* page of the array; of the delta: page since the load's first */
	uint32		npages;
	uint64		bytes;			/* of the whole array */
	uint64		base;			/* where the array begins in the part */
} Unit;

typedef struct Reader
{
	GgLoad	   *load;
	GgLoadJob  *job;
	GgMetaPageData *meta;
	BufferAccessStrategy strategy;
	LOCKTAG		lock;			/* of the load */
	bool		kept;			/* the index is locked between units, too */
	BlockNumber length;			/* of the index while it is locked */
} Reader;

/* ---- unit.c ---------------------------------------------------------------------- */

extern bool FindUnit(const GgLoadJob *job, const GgMetaPageData *meta, uint32 u, Unit *unit);
extern uint32 CountUnits(const GgLoadJob *job, const GgMetaPageData *meta, uint64 *npages);
extern uint32 ClaimUnit(GgLoadJob *job, uint32 serial, uint32 total);
extern void CountFilled(GgLoadJob *job, uint32 serial);

/* ---- read_unit.c ----------------------------------------------------------------- */

extern Relation OpenIndex(Oid relation, const GgRelFileLocator *locator);
extern bool LoadUnit(Reader *reader, const Unit *unit);

#endif							/* GG_UNIT_H */
