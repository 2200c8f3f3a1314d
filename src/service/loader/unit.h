/*
 * unit.h
 *		Units of a load.  Each is what fits a staging chunk, or less: a run of pages of one array.
 */
#ifndef GG_UNIT_H
#define GG_UNIT_H

#include "service/loader/handover.h"

#include "storage/bufmgr.h"
#include "storage/lock.h"

typedef struct GgUnit
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
} GgUnit;

/* A process that reads units of a load. */
typedef struct GgReader
{
	GgLoad	   *load;
	GgLoadJob  *job;
	GgMetaPageData *meta;
	BufferAccessStrategy strategy;
	LOCKTAG		lock;			/* of the load */
	bool		kept;			/* the index is locked between units, too */
	BlockNumber length;			/* of the index while it is locked */

	/* the page that was read last: of which kind of array, and its number and block there */
	GgKind		wrong_kind;
	uint64		wrong_page;
	BlockNumber wrong_block;
} GgReader;

/* ---- unit.c ---------------------------------------------------------------------- */

/* Unit number u of a load; false when there are fewer. */
extern bool GgFindUnit(const GgLoadJob *job, const GgMetaPageData *meta, uint32 u, GgUnit *unit);

/* Count the units of a load; *npages: their pages. */
extern uint32 GgCountUnits(const GgLoadJob *job, const GgMetaPageData *meta, uint64 *npages);

/* Take the next unit of a load: its number, or total when there is none left. */
extern uint32 GgClaimUnit(GgLoadJob *job, uint32 serial, uint32 total);

/* Count one more unit as handed over. */
extern void GgCountFilled(GgLoadJob *job, uint32 serial);

/* ---- read_unit.c ----------------------------------------------------------------- */

/*
 * Open and lock the index that is loaded; NULL when it is gone, or in another file by now.  locator
 * NULL: any file will do.
 */
extern Relation GgOpenLoaded(Oid relation, const GgRelFileLocator *locator);

/* Read one unit into a chunk and hand it over.  False when the load is over. */
extern bool GgBringUnit(GgReader *reader, const GgUnit *unit);

#endif							/* GG_UNIT_H */
