/*
 * jobs.h
 *		What a background worker asks of the list of indexes to be merged (jobs.c).
 */
#ifndef GG_JOBS_H
#define GG_JOBS_H

#include "maintain/merge.h"

#include "utils/timestamp.h"

/* Is there a list? */
extern bool GgHasJobs(void);

/* What a worker has seen of an index that it watches. */
typedef struct GgJobWatch
{
	uint32		delta_end;		/* the delta's end, which each new page moves */
	TimestampTz since;			/* since when delta_end has not moved; 0: nothing seen so far */
	bool		idle_done;		/* what is worth it when idle was done since then */
	TimestampTz shrink_until;	/* until when to try to make the file shorter; 0: do not try */
	bool		calibrate;		/* a scan has asked for a measurement of recall */
} GgJobWatch;

/* This process is a worker that was started: take its place.  False: it came too late. */
extern bool GgTakeWorkerPlace(void);

/*
 * Take the index that waits longest, and what was seen of it before.  InvalidOid: none waits; or
 * the next is another database's, for which this worker makes room; or, *wait, merges of all that
 * wait have failed less than a minute ago, and it is to ask again later.
 */
extern Oid	GgTakeJob(GgJobWatch *watch, bool *wait);

/* Have the index wait for its next turn. */
extern void GgYieldJob(Oid index, const GgJobWatch *watch);

/*
 * Take the index off the list, unless it was asked for meanwhile.  After a failure no merge of it
 * begins for a minute.
 */
extern void GgEndJob(Oid index, bool failed);

/* Was the index taken, or asked for, since the last look?  *shrink: its file is to be shorter. */
extern bool GgWasAskedAgain(Oid index, bool *shrink);

/* Has a scan asked for a measurement of its recall since the last look? */
extern bool GgWasAskedToCalibrate(Oid index);

/* Does an index wait for a worker, and may its merge begin by now? */
extern bool GgOthersWait(void);

/*
 * This worker ends.  Its place goes to a worker for an index that waits.  closed: InvalidOid, or a
 * database that lets no worker in, or that somebody wants alone, whose indexes no longer wait.
 */
extern void GgWorkerGone(Oid closed);

/* For the view: what the merge of an index does; and that it is over. */
extern void GgReportJob(Oid index, GgMergePhase phase, uint64 rows);
extern void GgEndReport(Oid index);

#endif							/* GG_JOBS_H */
