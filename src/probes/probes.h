/*
 * probes.h
 *		Tables that are partitioned by centroid, and queries that ask the nearest partitions alone.
 *
 *	centroids.c		centroids, as a function of the table's returns them
 *	probe_plan.c	what gpugraph.partition_probes makes of a query
 *	make.c			gpugraph_partition_by_centroid()
 */
#ifndef GG_PROBES_H
#define GG_PROBES_H

#include "base/base.h"

/* Partitions and centroids have the numbers 1, 2, ... */
#define GG_MAX_CENTROIDS	32768

typedef struct GgCentroids
{
	Oid			function;		/* that returns them: the key */
	uint32		hash;			/* of its row in pg_proc */
	bool		valid;			/* the function is as it was when it was called */
	Oid			user;			/* who may call it, as was last checked */
	uint64		load;			/* new whenever it was called */
	uint32		count;
	uint32		dim;
	float	   *values;			/* count x dim */
} GgCentroids;

/*
 * The centroids that a function returns, which is called once per session.  Errors: 42501 the user
 * may not call it; 42809, 22023 it does not return centroids.
 */
extern const GgCentroids *GgFindCentroids(Oid function);

/* A value of type vector or halfvec as float32, in the current context. */
extern float *GgVectorValues(Datum value, bool is_half, uint32 *dim);

/* Is this gpugraph_nearest_centroid(), or gpugraph_probe()? */
extern bool GgIsNearestCentroid(Oid function);
extern bool GgIsProbe(Oid function);

extern void GgInitProbes(void);

#endif							/* GG_PROBES_H */
