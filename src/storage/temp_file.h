/*
 * temp_file.h
 *		Memory of builds and merges in temporary files, so that the kernel can take it back.
 */
#ifndef GG_TEMP_FILE_H
#define GG_TEMP_FILE_H

#include "base/base.h"

#include "storage/fd.h"

/*
 * One mapped file.  PostgreSQL removes it with the (sub)transaction, unless it outlives that, or at
 * the start after a crash.  GgUnmapTempFile() is due before the process goes on in either case, and
 * is allowed after an error.
 */
typedef struct GgTempFile
{
	File		file;
	int			fd;				/* of our own: PostgreSQL closes and reopens its */
	char	   *start;			/* NULL: there is no file */
	Size		bytes;			/* mapped; what is touched must be reserved before */
	Size		reserved;		/* by GgGrowTempFile() */
	bool		outlives;		/* the transaction that made it */
} GgTempFile;

/* Files that an engine asks for in one build of a graph, at most. */
#define GG_SCRATCH_FILES	4

typedef struct GgScratch
{
	GgTempFile	files[GG_SCRATCH_FILES];
	int			nfiles;
	bool		outlive;		/* their transactions */
} GgScratch;

/* Can there be such files here? */
extern bool GgHasTempFiles(void);

/* Is there to be one of so many bytes, as far as temp_file_limit goes? */
extern bool GgTempFileAllowed(double bytes);

/*
 * A new file, of which nothing is reserved: in the temporary tablespaces, or where it outlives the
 * transaction, which need not exist, in that of the database.  ereport(ERROR).
 */
extern void GgMapTempFile(GgTempFile *temp, Size bytes, bool outlives);

/*
 * Take disk space for a part of a mapped file before it is touched: there would be a SIGBUS where
 * the disk is full.  Counts against temp_file_limit, with all such files of this process.
 */
extern void GgReserveTempFile(int fd, Size offset, Size bytes);

/* All bytes up to this one are reserved from now on; counts as above. */
extern void GgGrowTempFile(GgTempFile *temp, Size bytes);

/* NULL: there is none.  After an error PostgreSQL removes the file; remove: not after an error. */
extern void GgUnmapTempFile(GgTempFile *temp, bool remove);

/*
 * For gg_control.scratch: a file of so many bytes, all reserved.  Nothing is thrown, and no
 * interrupt served.  NULL: there is none; *caught where an error lies on PostgreSQL's error stack.
 */
extern void *GgTakeScratch(GgScratch *scratch, Size bytes, bool *caught);
extern void GgFreeScratch(GgScratch *scratch, bool remove);

#endif							/* GG_TEMP_FILE_H */
