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
	GG_ASKED_BY_MAINTAINER		/* gpugraph_prewarm(), also at the cost of what was just loaded */
} GgAsker;

/* What stands in the way of a hit. */
typedef struct GgObstacle
{
	bool		failed;			/* a load or refresh failed after since_us */
	GgReason	cause;			/* why it failed */
	GgReason	reason;
	bool		corrupt;		/* the index is corrupt */
	char		error[GG_LOAD_ERROR];
	uint32		use;			/* of the index's entry; 0 when there is none */
	int			device;			/* where that is */
} GgObstacle;

/* Can the index be resident at all?  False: *reason says why not. */
extern bool GgCanBeResident(Relation index, const GgMetaPageData *meta, GgReason *reason);

/*
 * Look once.  True: *ref says who answers.  False: *obstacle says why, and a load has been asked
 * for where that may help.  A load that failed before since_us does not count and is asked for
 * again; since_us = 0: it counts until its time to be tried again.
 */
extern bool GgLookupOnce(Relation index, const GgMetaPageData *meta, GgAsker asker,
						 uint64 since_us, GgResidentRef *ref, GgObstacle *obstacle);

/* Is the resident up to date?  Segments that are missing from it do not count. */
extern bool GgIsCurrent(const GgResident *resident, const GgMetaPageData *meta);

/* Does our own transaction keep loaders from reading the index? */
extern bool GgKeepsLoadersOut(Relation index);

/* Wait until the load of an entry may have ended; interruptible. */
extern void GgWaitForLoad(Relation index, const GgObstacle *obstacle);

#endif							/* GG_LOOKUP_H */
