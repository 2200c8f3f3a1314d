/*
 * build_area.c
 *		The memory that the processes of a build share.
 *
 * It belongs to a DSM segment, which PostgreSQL cleans up whatever happens, but is mapped by us: dsm_create() would take
 * all of it at once, in one process that cannot be interrupted (0.8 s for 3 GB on the machine this was written on),
 * and the number of rows is only an estimate.  Here the segment's file is made long enough for any number, and its
 * pages are taken chunk by chunk, by those who fill them.  That needs dynamic_shared_memory_type = posix and
 * Linux; elsewhere, and where /dev/shm is too small, there is no area, and the scan is left to one process.
 */
#include "build.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/dsm_impl.h"
#include "storage/fd.h"

#ifdef __linux__

/* Where things lie in an area, from its start. */
typedef struct AreaLayout
{
	Size		tids;
	Size		hashes;
	Size		adjacency;
	Size		next_row;
	Size		filled;
	Size		bytes;
} AreaLayout;

static Size
AlignPage(Size bytes)
{
	return TYPEALIGN(4096, bytes);
}

static AreaLayout
LayOut(const GgBuildShared *shared)
{
	AreaLayout	layout;
	Size		capacity = shared->capacity;

	/* rows first: at the start of a page, as the device likes them */
	layout.tids = AlignPage(capacity * GgRowBytes(&shared->meta));
	layout.hashes = AlignPage(layout.tids + capacity * sizeof(GgTidEntry));
	layout.adjacency = AlignPage(layout.hashes + capacity * sizeof(uint64));
	layout.next_row = AlignPage(layout.adjacency + capacity * shared->meta.graph_degree * sizeof(uint32));
	layout.filled = layout.next_row + PG_CACHE_LINE_SIZE;
	layout.bytes = AlignPage(layout.filled + (capacity / shared->chunk_rows + 1) * sizeof(pg_atomic_uint32));
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

/* Before the DSM segment goes, and with it the memory under the copier's feet. */
static void
OnDetach(dsm_segment *segment, Datum arg)
{
	GgBuild    *build = (GgBuild *) DatumGetPointer(arg);

	gg_copy_free(build->copy);
	build->copy = NULL;
	build->segment = NULL;
	GgUnmapArea(build);
}

/* The same where the build's memory goes before the segment, as when a function's statement failed. */
void
GgLoseArea(GgBuild *build)
{
	if (build->segment != NULL)
	{
		cancel_on_dsm_detach(build->segment, OnDetach, PointerGetDatum(build));
		OnDetach(build->segment, PointerGetDatum(build));
	}
}

/* Map the whole area; false with errno when that fails. */
static bool
MapArea(GgBuild *build, bool create)
{
	AreaLayout	layout = LayOut(build->shared);
	char		name[64];
	struct stat st;
	void	   *base;
	int			fd;

	/* dsm_impl.c's name for it; any other would not be cleaned up after a crash */
	snprintf(name, sizeof(name), "/PostgreSQL.%u", build->shared->area);
	if (!AcquireExternalFD())
		return false;
	fd = shm_open(name, O_RDWR, 0);
	if (fd < 0 || (create && ftruncate(fd, layout.bytes) != 0) ||
		fstat(fd, &st) != 0 || (Size) st.st_size != layout.bytes ||
		(base = mmap(NULL, layout.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
	{
		int			save_errno = errno;

		if (fd >= 0)
			close(fd);
		ReleaseExternalFD();
		errno = save_errno;
		return false;
	}
	build->area.base = base;
	build->area.bytes = layout.bytes;
	build->area.fd = fd;
	build->area.rows = build->area.base;
	build->area.tids = (GgTidEntry *) (build->area.base + layout.tids);
	build->area.hashes = (uint64 *) (build->area.base + layout.hashes);
	build->area.adjacency = (uint32 *) (build->area.base + layout.adjacency);
	build->area.next_row = (pg_atomic_uint64 *) (build->area.base + layout.next_row);
	build->area.filled = (pg_atomic_uint32 *) (build->area.base + layout.filled);
	return true;
}

/* What a full area of n rows takes of /dev/shm, if the plan is right. */
static bool
RoomForRows(double rows, Size bytes_per_row)
{
	struct statvfs fs;

	return statvfs("/dev/shm", &fs) == 0 &&
		rows * bytes_per_row < (double) fs.f_bavail * fs.f_frsize;
}

/* False, with the reason told at DEBUG1, when there is to be no area. */
bool
GgCreateArea(GgBuild *build)
{
	GgBuildShared *shared = build->shared;
	Size		row = GgRowBytes(build->meta) + sizeof(GgTidEntry) + sizeof(uint64) +
		build->meta->graph_degree * sizeof(uint32);
	AreaLayout	layout = LayOut(shared);

	if (dynamic_shared_memory_type != DSM_IMPL_POSIX)
	{
		ereport(DEBUG1, (errmsg_internal("gpugraph heap scan is serial: dynamic_shared_memory_type is not \"posix\"")));
		return false;
	}
	if (!RoomForRows(Min(build->expected * 1.1, shared->limit), row))
	{
		ereport(DEBUG1, (errmsg_internal("gpugraph heap scan is serial: /dev/shm is too small for %.0f rows", build->expected)));
		return false;
	}
	build->segment = dsm_create(4096, DSM_CREATE_NULL_IF_MAXSEGMENTS);
	if (build->segment == NULL)
	{
		ereport(DEBUG1, (errmsg_internal("gpugraph heap scan is serial: too many dynamic shared memory segments")));
		return false;
	}
	shared->area = dsm_segment_handle(build->segment);
	if (!MapArea(build, true))
	{
		ereport(DEBUG1, (errmsg_internal("gpugraph heap scan is serial: cannot map %zu bytes of shared memory: %m", layout.bytes)));
		dsm_detach(build->segment);
		build->segment = NULL;
		return false;
	}
	on_dsm_detach(build->segment, OnDetach, PointerGetDatum(build));
	GgReserveArea(build, build->area.next_row, layout.bytes - layout.next_row);
	pg_atomic_init_u64(build->area.next_row, 0);
	return true;
}

void
GgAttachArea(GgBuild *build)
{
	if (!MapArea(build, false))
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not map the shared memory of an index build: %m")));
}

/* tmpfs gives memory when it is touched, and SIGBUS when there is none; asked first, it says so. */
void
GgReserveArea(GgBuild *build, const void *start, Size bytes)
{
	Size		offset = (const char *) start - build->area.base;
	int			rc;

	if (bytes == 0)
		return;
	do
	{
		CHECK_FOR_INTERRUPTS();
		rc = posix_fallocate(build->area.fd, offset, bytes);
	} while (rc == EINTR);
	if (rc != 0)
	{
		errno = rc;
		ereport(ERROR,
				(errcode(rc == ENOSPC || rc == ENOMEM ? ERRCODE_OUT_OF_MEMORY : ERRCODE_SYSTEM_ERROR),
				 errmsg("could not get shared memory for an index build: %m"),
				 errhint("Make /dev/shm larger, or set max_parallel_maintenance_workers to 0.")));
	}
}

#else							/* not Linux */

void
GgUnmapArea(GgBuild *build)
{
}

void
GgLoseArea(GgBuild *build)
{
}

bool
GgCreateArea(GgBuild *build)
{
	return false;
}

void
GgAttachArea(GgBuild *build)
{
	elog(ERROR, "an index build has no shared memory on this platform");
}

void
GgReserveArea(GgBuild *build, const void *start, Size bytes)
{
}

#endif
