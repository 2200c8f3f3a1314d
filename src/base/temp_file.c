/*
 * temp_file.c
 *		Memory of builds and merges in temporary files, so that the kernel can take it back.
 *
 * They are mapped, because the engine knows rows and lists by address; PostgreSQL's own temporary
 * files (BufFile) are read and written by calls.  fd.c makes and removes our files, as it does all
 * temporary files.  It cannot see what is written through a mapping, so temp_file_limit is enforced
 * here.
 */
#include "base/temp_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands/tablespace.h"
#include "miscadmin.h"
#include "utils/guc.h"

/* Disk space, or memory, asked for in one call, which takes some ms. */
#define RESERVE_SLICE		((Size) 16 * 1024 * 1024)

/*
 * Mapped files of this process at a time: rows and the engine's scratch files, of a merge and of
 * another one within it.
 */
#define MOST_FILES			(2 * (1 + GG_SCRATCH_FILES))

static int	mapped[MOST_FILES];
static int	nmapped = 0;

static uint64
DiskBytes(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? (uint64) st.st_blocks * 512 : 0;
}

/* ereport(ERROR) where this many bytes more would exceed temp_file_limit. */
static void
CheckLimit(int fd, Size bytes)
{
	uint64		held = DiskBytes(fd) + bytes;

	if (temp_file_limit < 0)
		return;
	for (int i = 0; i < nmapped; i++)
		if (mapped[i] != fd)
			held += DiskBytes(mapped[i]);
	if (held > (uint64) temp_file_limit * 1024)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("temporary file size exceeds temp_file_limit (%dkB)", temp_file_limit),
				 errhint("Increase maintenance_work_mem, so that no files are needed, or "
						 "temp_file_limit.")));
}

void
GgMapTempFile(GgTempFile *temp, Size bytes, bool outlives)
{
	void	   *start = MAP_FAILED;

	memset(temp, 0, sizeof(*temp));
	if (nmapped == MOST_FILES)
		elog(ERROR, "too many mapped temporary files");
	PrepareTempTablespaces();
	temp->outlives = outlives;
	temp->file = OpenTemporaryFile(outlives);
	temp->fd = -1;
	if (AcquireExternalFD())
	{
		temp->fd = dup(FileGetRawDesc(temp->file));
		if (temp->fd < 0)
			ReleaseExternalFD();
		else if (fcntl(temp->fd, F_SETFD, FD_CLOEXEC) == 0 &&
				 ftruncate(temp->fd, bytes) == 0)
			start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, temp->fd, 0);
	}
	if (start == MAP_FAILED)
	{
		int			save_errno = errno;

		if (temp->fd >= 0)
		{
			close(temp->fd);
			ReleaseExternalFD();
		}
		if (outlives)
			FileClose(temp->file);
		errno = save_errno;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not map a temporary file of %zu bytes for a gpugraph index: %m",
						bytes)));
	}
	temp->start = start;
	temp->bytes = bytes;
	mapped[nmapped++] = temp->fd;
}

bool
GgReserveFile(int fd, Size offset, Size bytes)
{
	Size		end = offset + bytes;

	while (offset < end)
	{
		Size		piece = Min(end - offset, RESERVE_SLICE);
		int			rc = posix_fallocate(fd, offset, piece);

		if (rc == 0)
			offset += piece;
		else if (rc != EINTR)
		{
			errno = rc;
			return false;
		}
		GgCheckInterrupts();
	}
	return true;
}

int
GgOpenFileOf(int pid, int fd)
{
	char		path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

void
GgReserveTempFile(int fd, Size offset, Size bytes)
{
	CheckLimit(fd, bytes);
	if (!GgReserveFile(fd, offset, bytes))
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not extend a temporary file of a gpugraph index: %m"),
				 errhint("Increase maintenance_work_mem, so that none is needed, or make room "
						 "where temp_tablespaces is.")));
}

void
GgUnmapTempFile(GgTempFile *temp, bool remove)
{
	if (temp->start == NULL)
		return;
	for (int i = 0; i < nmapped; i++)
		if (mapped[i] == temp->fd)
			mapped[i] = mapped[--nmapped];
	munmap(temp->start, temp->bytes);
	close(temp->fd);
	ReleaseExternalFD();
	temp->start = NULL;
	if (remove || temp->outlives)
		FileClose(temp->file);
}

bool
GgTempFileAllowed(double bytes)
{
	return temp_file_limit < 0 || bytes <= temp_file_limit * 1024.0;
}

void
GgGrowTempFile(GgTempFile *temp, Size bytes)
{
	if (bytes > temp->bytes)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the table has far more rows than was to be expected"),
				 errhint("ANALYZE the table.")));
	if (bytes <= temp->reserved)
		return;
	GgReserveTempFile(temp->fd, temp->reserved, bytes - temp->reserved);
	temp->reserved = bytes;
}

void *
GgTakeScratch(GgScratch *scratch, Size bytes, bool *caught)
{
	GgTempFile *temp = &scratch->files[scratch->nfiles];
	MemoryContext context = CurrentMemoryContext;
	uint32		holdoff = InterruptHoldoffCount;

	if (scratch->nfiles == GG_SCRATCH_FILES || *caught)
		return NULL;
	PG_TRY();
	{
		HOLD_INTERRUPTS();
		GgMapTempFile(temp, bytes, scratch->outlive);
		scratch->nfiles++;
		GgGrowTempFile(temp, bytes);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		*caught = true;
	}
	PG_END_TRY();
	/* an error has reset it */
	InterruptHoldoffCount = holdoff;
	return *caught ? NULL : temp->start;
}

void
GgFreeScratch(GgScratch *scratch, bool remove)
{
	while (scratch->nfiles > 0)
		GgUnmapTempFile(&scratch->files[--scratch->nfiles], remove);
}
