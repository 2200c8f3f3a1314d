/*
 * probes.h
 *		Tables that are partitioned by centroid, and queries that ask the nearest partitions alone.
 *
 *	members.c		the extension's objects, by what they are
 *	centroids.c		centroids, as a function of the table's returns them
 *	nearest.c		the SQL functions: which centroid is nearest to a vector
 *	probe_plan.c	what gpugraph.partition_probes makes of a query
 *	make.c			gpugraph_partition_by_centroid()
 */
#ifndef GG_PROBES_H
#define GG_PROBES_H

#include "base/base.h"

/* Partitions and centroids have the numbers 1, 2, ... */
#define GG_MAX_CENTROIDS	32768

/* ---- members.c -------------------------------------------------------------- */

/*
 * In the extension that function `member` belongs to, find the SQL function of each C function
 * (found[i] of functions[i]), and the access method.  InvalidOid where there is none.
 */
extern void GgFindMembers(Oid member, const PGFunction *functions, int count, Oid *found, Oid *am);

/* ---- centroids.c ------------------------------------------------------------ */

/* A function that returns centroids, and the user with whose rights it is called. */
typedef struct GgCentroidsKey
{
	Oid			function;
	Oid			user;
	uint32		as_owner;		/* user owns the table whose key has it; 0: user calls it */
} GgCentroidsKey;

typedef struct GgCentroids
{
	GgCentroidsKey key;
	uint32		hash;			/* of the function's row in pg_proc */
	bool		valid;			/* the function is as it was when it was called */
	bool		allowed;		/* the user may call it, as was last checked */
	uint64		load;			/* new whenever it was called */
	uint32		count;
	uint32		dim;
	float	   *values;			/* count x dim */
} GgCentroids;

/*
 * The centroids that a function returns.  A session calls it once for each user, and anew when it
 * has changed.  vector: the type.  table: the function is in its partition key, and is called with
 * the rights of the table's owner, in a restricted operation; InvalidOid: with the user's rights.
 * Errors: 42501 owner or user may not call it; 42883 it is gone; 42809 it returns no centroids.
 */
extern const GgCentroids *GgFindCentroids(Oid function, Oid vector, Oid table);

/* ---- nearest.c -------------------------------------------------------------- */

/* The extension's objects.  In arrays element 0 is for vector, and element 1 for halfvec. */
typedef struct GgOwn
{
	Oid			am;
	Oid			nearest[2];		/* gpugraph_nearest_centroid() */
	Oid			planned_nearest;
	Oid			planned_probe;
	Oid			types[2];
} GgOwn;

/* Find the extension's objects.  function: any one of the extension. */
extern const GgOwn *GgFindOwn(Oid function);

/* A value of type vector or halfvec as float32, in the current context. */
extern float *GgVectorValues(Datum value, bool is_half, uint32 *dim);

/* Is this gpugraph_nearest_centroid(), or gpugraph_planned_probe()? */
extern bool GgIsNearestCentroid(Oid function);
extern bool GgIsPlannedProbe(Oid function);

/* ---- probe_plan.c ----------------------------------------------------------- */

extern void GgInitProbes(void);

#endif							/* GG_PROBES_H */
