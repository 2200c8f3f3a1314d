/*
 * lookup.h
 *		One look at the tables of residents, for queries (lookup.c) and for gpugraph_prewarm().
 */
#ifndef GG_LOOKUP_H
#define GG_LOOKUP_H

#include "service/shared/table.h"

/* Who asks for an index to be loaded. */
typedef enum GgAsker
{
	GG_ASKED_BY_QUERY,
	GG_ASKED_BY_USER,			/* gpugraph_prewarm(): now, whatever failed a moment ago */
	GG_ASKED_BY_MAINTAINER		/* likewise, also at the cost of what others have just loaded */
} GgAsker;

/* What stands in the way of a hit. */
typedef struct GgObstacle
{
	bool		failed;			/* a load or refresh failed after since_us ... */
	GgReason	cause;			/* ... by this */
	GgReason	reason;
	bool		corrupt;		/* the index is */
	char		error[GG_LOAD_ERROR];
	uint32		use;			/* of the index's entry; 0 when there is none */
	int			device;			/* where that is */
} GgObstacle;

/* Can the index be resident at all? */
extern bool GgCanBeResident(Relation index, const GgMetaPageData *meta, GgReason *reason);

/*
 * One look.  False: *obstacle says why, and a load has been asked for where that may help.  A load
 * that failed before since_us does not count and is asked for again; since_us = 0: it counts until
 * its time to be tried again.
 */
extern bool GgLookupOnce(Relation index, const GgMetaPageData *meta, GgAsker asker,
						 uint64 since_us, GgResidentRef *ref, GgObstacle *obstacle);

/* Does the resident have all that there is to load of the index now? */
extern bool GgIsCurrent(const GgResident *resident, const GgMetaPageData *meta);

/* Does our own transaction keep loaders from reading the index? */
extern bool GgKeepsLoadersOut(Relation index);

/* Wait until the load of an entry may have ended; interruptible. */
extern void GgWaitForLoad(Relation index, const GgObstacle *obstacle);

#endif							/* GG_LOOKUP_H */
