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
 * Find the access method, and those of some C functions, in the extension that a function belongs
 * to.  InvalidOid where there is none.
 */
extern void GgFindMembers(Oid member, const PGFunction *functions, int count, Oid *found, Oid *am);

/* ---- centroids.c ------------------------------------------------------------ */

/* Whose rights a function of centroids has, and so whose call it is. */
typedef struct GgCentroidsKey
{
	Oid			function;
	Oid			user;
	uint32		as_owner;		/* of a table, for its key; else it is the user's own call */
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
 * The centroids that a function returns, which is called once per session and user.  vector: the
 * type.  table: the one whose key has the function, which is called with the rights of the table's
 * owner then, in a restricted operation; InvalidOid: with those of the user.  Errors: 42501 whose
 * rights these are may not call it; 42809 it does not return centroids.
 */
extern const GgCentroids *GgFindCentroids(Oid function, Oid vector, Oid table);

/* ---- nearest.c -------------------------------------------------------------- */

/* The extension's objects.  Arrays have what is for vector, and for halfvec. */
typedef struct GgOwn
{
	Oid			am;
	Oid			nearest[2];		/* gpugraph_nearest_centroid() */
	Oid			planned_nearest;
	Oid			planned_probe;
	Oid			types[2];
} GgOwn;

/* function: any of the extension's. */
extern const GgOwn *GgFindOwn(Oid function);

/* A value of type vector or halfvec as float32, in the current context. */
extern float *GgVectorValues(Datum value, bool is_half, uint32 *dim);

/* Is this gpugraph_nearest_centroid(), or gpugraph_planned_probe()? */
extern bool GgIsNearestCentroid(Oid function);
extern bool GgIsPlannedProbe(Oid function);

/* ---- probe_plan.c ----------------------------------------------------------- */

extern void GgInitProbes(void);

#endif							/* GG_PROBES_H */
