/*
 * upload.h
 *		The upload thread (upload.c), for the worker's main thread.
 */
#ifndef GG_UPLOAD_H
#define GG_UPLOAD_H

#include "service/shared/shmem.h"

typedef struct GgUpload GgUpload;

/* wake(): something has changed for the main thread.  The upload thread calls it. */
extern GgUpload *GgUploadStart(GgDevice *device, const gg_engine *engine,
							   void (*wake) (void *arg), void *arg);
extern void GgUploadStop(GgUpload *upload);

/*
 * Before a load is moved to CREATE: the first rows of its delta are so many of `from`, from `first`
 * on.  That one must not be closed before the load is OPEN or BROKEN.  NULL, 0, 0: they are not.
 */
extern void GgUploadDelta(GgUpload *upload, int load, const gg_index *from, uint32 first,
						  uint32 rows);

/* A load was moved to CREATE, or aborted: look. */
extern void GgUploadKick(GgUpload *upload);

/* Close an index, before anything else is created. */
extern void GgUploadClose(GgUpload *upload, gg_index *index);

/* The lists of a load that is DONE, which become the caller's. */
extern void GgUploadTake(GgUpload *upload, int load, gg_index **lists);

/* Was it given up since its rows do not bear half precision?  Of a load that is BROKEN. */
extern bool GgUploadFoundUnfit(const GgUpload *upload, int load);

/* The status of a load that is BROKEN. */
extern const gg_status *GgUploadStatus(GgUpload *upload, int load);

#endif							/* GG_UPLOAD_H */
