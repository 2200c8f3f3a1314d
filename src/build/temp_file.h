/*
 * temp_file.h
 *		Memory of a build that lies in temporary files, so that the kernel can take it back.
 */
#ifndef GG_TEMP_FILE_H
#define GG_TEMP_FILE_H

#include "base/base.h"

#include "storage/fd.h"

/*
 * One mapped file.  PostgreSQL removes it with the (sub)transaction, or at the start after a crash.
 * GgUnmapTempFile() is due before the process goes on in either case, and is allowed after an
 * error.
 */
typedef struct GgTempFile
{
	File		file;
	int			fd;				/* of our own: PostgreSQL closes and reopens its */
	char	   *start;			/* NULL: there is no file */
	Size		bytes;			/* mapped; what is touched must be reserved before */
	Size		reserved;		/* by GgGrowTempFile() */
} GgTempFile;

/* Can there be such files here? */
extern bool GgHasTempFiles(void);

/* Is there to be one of so many bytes, as far as temp_file_limit goes? */
extern bool GgTempFileAllowed(double bytes);

/* A new file in the temporary tablespaces, of which nothing is reserved.  ereport(ERROR). */
extern void GgMapTempFile(GgTempFile *temp, Size bytes);

/*
 * Take disk space for a part of a mapped file before it is touched: there would be a SIGBUS where
 * the disk is full.  Counts against temp_file_limit, with all such files of this process.
 */
extern void GgReserveTempFile(int fd, Size offset, Size bytes);

/* All bytes up to this one are reserved from now on; counts as above. */
extern void GgGrowTempFile(GgTempFile *temp, Size bytes);

/* NULL: there is none.  After an error PostgreSQL removes the file; remove: not after an error. */
extern void GgUnmapTempFile(GgTempFile *temp, bool remove);

#endif							/* GG_TEMP_FILE_H */
