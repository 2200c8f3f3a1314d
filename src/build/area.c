/*
 * area.c
 *		The memory that the processes of a build share.
 *
 * It is a file in memory without a name (memfd_create), which a worker opens through the leader's /proc/PID/fd, so it is
 * gone when the last process has let go of it, however that ended.  A DSM segment would not do: dsm_create() takes all of the
 * memory at once, in one process that cannot be interrupted (0.8 s for 3 GB on the machine this was written on), where
 * the number of rows is only an estimate; and /dev/shm has a limit of its own, 64 MB in a container by default.  Here
 * the file is made long enough for any number of rows, and its pages are taken chunk by chunk, by those who fill
 * them.  That needs Linux; elsewhere there is no area, and the scan is left to one process.
 */
#include "build/build.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"

#ifdef __linux__

/* Of Linux 5.14; C libraries before 2.35 do not name it. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE	23
#endif

/* Memory asked for in one call, which takes some ms. */
#define RESERVE_SLICE		((Size) 16 * 1024 * 1024)

/* Where things lie in an area, from its start. */
typedef struct AreaLayout
{
	Size		tids;
	Size		copies;
	Size		fold[GG_FOLD_LEVELS];	/* 0: so many there are not */
	Size		adjacency;
	Size		counters;
	Size		filled;
	Size		users;
	Size		bytes;
} AreaLayout;

static Size
AlignPage(Size bytes)
{
	return TYPEALIGN(4096, bytes);
}

/* Ranges of all arrays that are written together. */
static Size
MostRanges(const AreaLayout *layout)
{
	return layout->counters / GG_RANGE_BYTES + GG_MAX_JOBS;
}

static AreaLayout
LayOut(const GgBuildShared *shared)
{
	AreaLayout	layout;
	Size		capacity = shared->capacity;
	Size		copies = capacity + shared->chunk_copies;
	Size		next;
	Size		slots = 0;

	memset(&layout, 0, sizeof(layout));
	/* rows first: at the start of a page, as the device likes them */
	layout.tids = AlignPage(capacity * GgRowBytes(&shared->meta));
	/* at the end those of copies are among them */
	layout.copies = AlignPage(layout.tids + (capacity + copies) * sizeof(GgTidEntry));
	next = AlignPage(layout.copies + copies * sizeof(GgCopy));
	for (int level = 0; level < GG_FOLD_LEVELS && slots < 2 * capacity; level++)
	{
		Size		buckets = GgFoldBuckets(shared, level);

		layout.fold[level] = next;
		next = AlignPage(next + buckets * GG_FOLD_BUCKET_BYTES);
		slots += buckets * GG_FOLD_BUCKET_SLOTS;
	}
	layout.adjacency = next;
	layout.counters = AlignPage(layout.adjacency + capacity * shared->meta.graph_degree * sizeof(uint32));
	layout.filled = layout.counters + 2 * PG_CACHE_LINE_SIZE;
	layout.users = layout.filled + (capacity / shared->chunk_rows + 1) * sizeof(pg_atomic_uint32);
	layout.bytes = AlignPage(layout.users + MostRanges(&layout) * sizeof(pg_atomic_uint32));
	return layout;
}

void
GgUnmapArea(GgBuild *build)
{
	if (build->area.base == NULL)
		return;
	munmap(build->area.base, build->area.bytes);
	close(build->area.fd);
	ReleaseExternalFD();
	memset(&build->area, 0, sizeof(build->area));
}

/* Map the file, which is then ours to close. */
static bool
MapFile(GgBuild *build, int fd)
{
	AreaLayout	layout = LayOut(build->shared);
	struct stat st;
	void	   *base;

	if (fstat(fd, &st) != 0 || (Size) st.st_size != layout.bytes)
		return false;
	base = mmap(NULL, layout.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return false;
	build->area.base = base;
	build->area.bytes = layout.bytes;
	build->area.fd = fd;
	build->area.rows = build->area.base;
	build->area.tids = (GgTidEntry *) (build->area.base + layout.tids);
	build->area.copies = (GgCopy *) (build->area.base + layout.copies);
	for (int level = 0; level < GG_FOLD_LEVELS; level++)
		if (layout.fold[level] > 0)
			build->area.fold[level] = (pg_atomic_uint64 *) (build->area.base + layout.fold[level]);
	build->area.adjacency = (uint32 *) (build->area.base + layout.adjacency);
	build->area.next_row = (pg_atomic_uint64 *) (build->area.base + layout.counters);
	build->area.next_copy = (pg_atomic_uint64 *) (build->area.base + layout.counters + PG_CACHE_LINE_SIZE);
	build->area.filled = (pg_atomic_uint32 *) (build->area.base + layout.filled);
	build->area.users = (pg_atomic_uint32 *) (build->area.base + layout.users);
	return true;
}

/* The leader's file, by a name that any process of the same user can open. */
static int
OpenFile(const GgBuildShared *shared)
{
	char		path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", shared->leader_pid, shared->area_fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* A file (or -1) that was not mapped, and its place among the external ones, are given back; errno stays. */
static void
GiveUpFile(int fd)
{
	int			save_errno = errno;

	if (fd >= 0)
		close(fd);
	ReleaseExternalFD();
	errno = save_errno;
}

bool
GgCreateArea(GgBuild *build)
{
	GgBuildShared *shared = build->shared;
	AreaLayout	layout = LayOut(shared);
	int			fd = -1,
				again = -1;

	if (AcquireExternalFD())
	{
		fd = memfd_create("gpugraph build", MFD_CLOEXEC);
		shared->leader_pid = MyProcPid;
		shared->area_fd = fd;
		/* what a worker will do is tried here, where there is another way */
		if (fd < 0 || ftruncate(fd, layout.bytes) != 0 || (again = OpenFile(shared)) < 0 || !MapFile(build, fd))
			GiveUpFile(fd);
		if (again >= 0)
			close(again);
	}
	if (build->area.base == NULL)
	{
		ereport(DEBUG1, (errmsg_internal("gpugraph heap scan is serial: cannot share %zu bytes of memory: %m", layout.bytes)));
		return false;
	}
	GgReserveArea(build, build->area.next_row, layout.bytes - layout.counters);
	pg_atomic_init_u64(build->area.next_row, 0);
	pg_atomic_init_u64(build->area.next_copy, 0);
	return true;
}

bool
GgAttachArea(GgBuild *build)
{
	int			fd;

	if (AcquireExternalFD())
	{
		fd = OpenFile(build->shared);
		if (fd >= 0 && MapFile(build, fd))
			return true;
		GiveUpFile(fd);
	}
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not map the shared memory of an index build: %m"),
			 errdetail("The index is built by fewer processes.")));
	return false;
}

static void
ReportNoArea(int error)
{
	errno = error;
	ereport(ERROR,
			(errcode(error == ENOSPC || error == ENOMEM ? ERRCODE_OUT_OF_MEMORY : ERRCODE_SYSTEM_ERROR),
			 errmsg("could not get shared memory for an index build: %m"),
			 errhint("Lower maintenance_work_mem, so that the index is built in smaller segments.")));
}

/* Kernels before 5.14: the file's lock is held meanwhile, so processes get their memory one after the other. */
static void
ReserveInFile(GgBuild *build, Size offset, Size bytes)
{
	int			rc;

	do
	{
		GgCheckInterrupts();
		rc = posix_fallocate(build->area.fd, offset, bytes);
	} while (rc == EINTR);
	if (rc != 0)
		ReportNoArea(rc);
}

/*
 * Such a file gives memory when it is touched, and SIGBUS when there is none; asked first, it says so.  All processes of a build do
 * this all the time, so it must not be one at a time.
 */
void
GgReserveArea(GgBuild *build, const void *start, Size bytes)
{
	const Size	page = (Size) sysconf(_SC_PAGESIZE);
	Size		offset = (const char *) start - build->area.base;
	Size		end = TYPEALIGN(page, offset + bytes);

	if (bytes == 0)
		return;
	offset -= offset % page;
	while (offset < end)
	{
		Size		piece = Min(end - offset, RESERVE_SLICE);

		GgCheckInterrupts();
		if (madvise(build->area.base + offset, piece, MADV_POPULATE_WRITE) == 0)
			offset += piece;
		else if (errno == EINVAL)
		{
			ReserveInFile(build, offset, Min(end, build->area.bytes) - offset);
			return;
		}
		else if (errno != EINTR)
			ReportNoArea(errno == EFAULT ? ENOMEM : errno);	/* it would be SIGBUS */
	}
}

/*
 * The kernel frees such a file page by page, in one process: the last that unmaps it, if nobody did before.  That takes 0.2 s a GB with
 * nothing going on beside it, so it is done piece by piece while others wait for WAL.  What the kernel does not take goes at the end.
 */
void
GgReleaseArea(GgBuild *build, const void *start, Size bytes)
{
	const Size	page = (Size) sysconf(_SC_PAGESIZE);
	Size		offset = (const char *) start - build->area.base;
	Size		end = (offset + bytes) / page * page;

	/* a page at either end may be another's too */
	offset = TYPEALIGN(page, offset);
	if (offset < end)
		(void) madvise(build->area.base + offset, end - offset, MADV_REMOVE);
}

#else							/* not Linux */

void
GgUnmapArea(GgBuild *build)
{
}

bool
GgCreateArea(GgBuild *build)
{
	return false;
}

bool
GgAttachArea(GgBuild *build)
{
	return false;
}

void
GgReserveArea(GgBuild *build, const void *start, Size bytes)
{
}

void
GgReleaseArea(GgBuild *build, const void *start, Size bytes)
{
}

#endif
