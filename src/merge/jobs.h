/*
 * jobs.h
 *		What a background worker asks of the list of indexes to be merged (jobs.c).
 */
#ifndef GG_JOBS_H
#define GG_JOBS_H

#include "merge/merge.h"

/* Is there a list? */
extern bool GgHasJobs(void);

/* Take the next index of this database; InvalidOid: there is none. */
extern Oid	GgTakeJob(void);

/* Take the index off the list, or have it wait after a failure. */
extern void GgEndJob(Oid index, bool failed);

/* Was the index asked for since the last look? */
extern bool GgWasAskedAgain(Oid index);

/* The database of an index that waits for a worker; InvalidOid: none does. */
extern Oid	GgWaitingDatabase(void);

/*
 * This worker ends.  Its place goes to one for an index that waits.  closed: a database that lets
 * no worker in, whose indexes no longer wait; or invalid.
 */
extern void GgWorkerGone(Oid closed);

/* For the view: what the merge of an index does; and that it is over. */
extern void GgReportJob(Oid index, GgMergePhase phase, uint64 rows);
extern void GgEndReport(Oid index);

#endif							/* GG_JOBS_H */
