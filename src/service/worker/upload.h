/*
 * upload.h
 *		The upload thread (upload.c), for the worker's main thread.
 */
#ifndef GG_UPLOAD_H
#define GG_UPLOAD_H

#include "service/shared/shmem.h"

typedef struct GgUpload GgUpload;

/* Start the thread, which calls wake() when something has changed for the main thread; end it. */
extern GgUpload *GgUploadStart(GgDevice *device, const gg_engine *engine,
							   void (*wake) (void *arg), void *arg);
extern void GgUploadStop(GgUpload *upload);

/*
 * Before a load is moved to CREATE: the first rows of its delta are so many of `from`, from `first`
 * on.  `from` must not be closed before the load is OPEN or BROKEN.  NULL, 0, 0: they are not.
 */
extern void GgUploadDelta(GgUpload *upload, int load, const gg_index *from, uint32 first,
						  uint32 rows);

/* A load was moved to CREATE, or aborted: look. */
extern void GgUploadKick(GgUpload *upload);

/* Close an index, before anything else is created. */
extern void GgUploadClose(GgUpload *upload, gg_index *index);

/* The lists of a load that is DONE, which become the caller's. */
extern void GgUploadTake(GgUpload *upload, int load, gg_index **lists);

/* Was a load that is BROKEN given up because its rows do not bear half precision? */
extern bool GgUploadFoundUnfit(const GgUpload *upload, int load);

/* The status of a load that is BROKEN. */
extern const gg_status *GgUploadStatus(GgUpload *upload, int load);

#endif							/* GG_UPLOAD_H */
