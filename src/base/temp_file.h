/*
 * temp_file.h
 *		Memory of builds and merges in temporary files, so that the kernel can take it back.
 */
#ifndef GG_TEMP_FILE_H
#define GG_TEMP_FILE_H

#include "base/base.h"

#include "storage/fd.h"

/*
 * One mapped file.  PostgreSQL removes it at the end of the (sub)transaction, unless `outlives` is
 * set, and at the start after a crash.  GgUnmapTempFile() must be called in either case, and may be
 * called after an error.
 */
typedef struct GgTempFile
{
	File		file;
	int			fd;				/* our own: PostgreSQL closes and reopens its own */
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
	bool		outlive;		/* the files outlive their transactions */
} GgScratch;

/* Does temp_file_limit allow a file of this size? */
extern bool GgTempFileAllowed(double bytes);

/*
 * Make a file, of which nothing is reserved yet.  It lies in the temporary tablespaces or, where it
 * outlives the transaction, in the database's tablespace; then there need be no transaction.
 * ereport(ERROR) where that fails.
 */
extern void GgMapTempFile(GgTempFile *temp, Size bytes, bool outlives);

/*
 * Take disk space for a part of a mapped file.  Without it, touching that part is a SIGBUS where
 * the disk is full.  Counts against temp_file_limit, with all such files of this process.
 */
extern void GgReserveTempFile(int fd, Size offset, Size bytes);

/*
 * Take space for a part of any file, also of a memfd.  Nothing is counted against a limit: that is
 * the caller's to do.  False: errno says why.
 */
extern bool GgReserveFile(int fd, Size offset, Size bytes);

/*
 * Open a file of another process of the same user, by its number there.  -1: errno says why.
 * Threads may call it.
 */
extern int	GgOpenFileOf(int pid, int fd);

/* Reserve all bytes of the file up to this one, as GgReserveTempFile() does. */
extern void GgGrowTempFile(GgTempFile *temp, Size bytes);

/*
 * Unmap the file, if there is one.  remove: also remove it.  After an error PostgreSQL does that,
 * so pass false; a file that outlives its transaction is removed here even then.
 */
extern void GgUnmapTempFile(GgTempFile *temp, bool remove);

/*
 * For gg_control.scratch: a file of this size, all reserved.  Nothing is thrown, and no
 * interrupt served.  NULL: there is none; *caught where an error lies on PostgreSQL's error stack.
 */
extern void *GgTakeScratch(GgScratch *scratch, Size bytes, bool *caught);
extern void GgFreeScratch(GgScratch *scratch, bool remove);

#endif							/* GG_TEMP_FILE_H */
