/*
 * device.h
 *		The device's part of CREATE INDEX: rows go there during the scan, and the finished segment
 *		goes to the GPU service.
 */
#ifndef GG_BUILD_DEVICE_H
#define GG_BUILD_DEVICE_H

#include "build/area.h"
#include "engine/threads/row_upload.h"

typedef struct GgBuildDevice
{
	const gg_engine *engine;
	int			ordinal;		/* of the device, or GG_DEVICE_IN_USE */

	/* rows on their way while the scan goes on */
	gg_row_upload *upload;		/* NULL: there is none */
	gg_index   *index;			/* the upload's until that was stopped */
	uint32		capacity;		/* rows that it can take */
	bool		halved;			/* it gets rows in half precision */
	bool		unfit;			/* rows do not bear half precision */
	double		open_s;			/* to open the device, beside the scan */
	double		copy_s;			/* to copy */
	double		late_s;			/* that the leader waited for the copy after the scan */

	/* the segment on its way to the service; NULL without one */
	struct GgLoad *load;
	double		hand_over_s;	/* of the leader's time */
} GgBuildDevice;

/*
 * Begin to copy the rows of this round, if the area is shared and the engine can build from the
 * device.  expected: rows that the round is expected to have.  The caller has set device->halved.
 */
extern void GgStartUpload(GgBuildDevice *device, const GgArea *area, const GgMetaPageData *meta,
						  double expected, int participants);

/* Wait until all full chunks are copied. */
extern void GgDrainUpload(GgBuildDevice *device);

/*
 * Complete the device's rows after gaps were closed, by a new copy if more came than expected, or,
 * halved, if there is none.  False: there is none or it failed, so the host's rows are to be used.
 */
extern bool GgCompleteUpload(GgBuildDevice *device, const GgArea *area, const GgMetaPageData *meta);

/* End the upload and close the index there; why: the failure that is the cause, or NULL. */
extern void GgAbandonUpload(GgBuildDevice *device, const gg_status *why);

/* After each piece: how many bytes of rows or codes (else 0), and pages in all, are handed over. */
typedef void (*GgHandedOver) (void *arg, uint64 first_bytes, uint64 pages);

/* What a segment consists of. */
typedef struct GgHandOverArrays
{
	const GgArea *area;			/* vectors, TIDs, filter words */
	const gg_graph *graph;
	const GgPivotEntry *pivots;
	const uint32 *offsets;		/* NULL: without */
} GgHandOverArrays;

/* Give the service the only segment, if it has room.  GgEndHandOver(): the index is written. */
extern void GgHandOver(GgBuildDevice *device, Relation index, const GgMetaPageData *meta,
					   const GgHandOverArrays *arrays, GgHandedOver told, void *arg);
extern void GgEndHandOver(GgBuildDevice *device);

#endif							/* GG_BUILD_DEVICE_H */
