/*
 * area.c
 *		The memory that the processes of a build share.
 *
 * It is a file in memory without a name (memfd_create).  A worker opens it through the leader's
 * /proc/PID/fd.  So the file is gone when the last process has closed it, however that process
 * ended.
 *
 * A DSM segment would not do.  dsm_create() takes all of the memory at once, in one process that
 * cannot be interrupted (0.8 s for 3 GB on the machine this was written on), and the number of
 * rows is only an estimate.  /dev/shm has a limit of its own, too, 64 MB in a container by
 * default.  Here the file is made long enough for any number of rows, and those who fill a chunk
 * take its memory.
 *
 * Where memory does not hold the rows (segment_plan.c), the area is a temporary file, so the kernel
 * can write out what is not used.
 */
#include "build/area.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"

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
	Size		duplicates;
	Size		words;
	Size		duplicate_words;
	Size		filters;
	Size		tables[GG_HASH_TABLES]; /* 0: there is no such table */
	Size		codes;
	Size		adjacency;
	Size		counters;
	Size		filled;
	Size		users_gone;
	Size		bytes;
} AreaLayout;

static Size
AlignPage(Size bytes)
{
	return TYPEALIGN(4096, bytes);
}

/*
 * How many ranges, at most, the arrays have that processes write.  These lie before the counters,
 * but for codes beside rows, which are not kept in the area.
 */
static Size
MostRanges(const GgAreaShared *shared, const AreaLayout *layout)
{
	return (layout->counters + shared->capacity * shared->code_bytes) / GG_RANGE_BYTES +
		GG_WRITER_ARRAYS;
}

static AreaLayout
LayOut(const GgAreaShared *shared)
{
	AreaLayout	layout = {0};
	Size		capacity = shared->capacity;
	Size		duplicates = capacity + shared->chunk_duplicates;
	Size		filter_bytes = shared->filter_words * sizeof(int64);
	Size		next;
	Size		slots = 0;

	/* rows first, at the start of a page, from where a device copies fastest */
	layout.tids = AlignPage(capacity * shared->row_bytes);
	/* at the end TIDs of duplicates are among them */
	layout.duplicates = AlignPage(layout.tids + (capacity + duplicates) * sizeof(GgTidEntry));
	layout.words = AlignPage(layout.duplicates + duplicates * sizeof(GgDuplicate));
	layout.duplicate_words = AlignPage(layout.words + capacity * filter_bytes);
	layout.filters = AlignPage(layout.duplicate_words + duplicates * filter_bytes);
	next = AlignPage(layout.filters + (capacity + duplicates) * filter_bytes);
	for (int table = 0; table < GG_HASH_TABLES && slots < 2 * capacity; table++)
	{
		Size		buckets = GgTableBuckets(shared, table);

		layout.tables[table] = next;
		next = AlignPage(next + buckets * GG_BUCKET_BYTES);
		slots += buckets * GG_BUCKET_SLOTS;
	}
	layout.codes = next;
	if (shared->coded)
		next = AlignPage(next + capacity * shared->code_bytes);
	layout.adjacency = next;
	layout.counters = AlignPage(layout.adjacency +
								capacity * shared->graph_degree * sizeof(uint32));
	layout.filled = layout.counters + 2 * PG_CACHE_LINE_SIZE;
	layout.users_gone = layout.filled +
		(capacity / shared->chunk_rows + 1) * sizeof(pg_atomic_uint32);
	layout.bytes = AlignPage(layout.users_gone +
							 MostRanges(shared, &layout) * sizeof(pg_atomic_uint32));
	return layout;
}

void
GgUnmapArea(GgArea *area, bool failed)
{
	if (area->temp.start != NULL)
		GgUnmapTempFile(&area->temp, !failed);
	else if (area->base != NULL)
	{
		munmap(area->base, area->bytes);
		close(area->fd);
		ReleaseExternalFD();
	}
	area->base = area->rows = NULL;
}

/* Where the parts of a mapped area are. */
static void
SetParts(GgArea *area, char *base, int fd)
{
	AreaLayout	layout = LayOut(area->shared);

	area->base = base;
	area->bytes = layout.bytes;
	area->fd = fd;
	area->rows = base;
	area->tids = (GgTidEntry *) (base + layout.tids);
	area->duplicates = (GgDuplicate *) (base + layout.duplicates);
	area->words = (int64 *) (base + layout.words);
	area->duplicate_words = (int64 *) (base + layout.duplicate_words);
	area->filters = (int64 *) (base + layout.filters);
	for (int table = 0; table < GG_HASH_TABLES; table++)
		if (layout.tables[table] > 0)
			area->tables[table] = (pg_atomic_uint64 *) (base + layout.tables[table]);
	area->codes = area->shared->coded ? base + layout.codes : NULL;
	area->adjacency = (uint32 *) (base + layout.adjacency);
	area->next_chunk = (pg_atomic_uint64 *) (base + layout.counters);
	area->next_duplicate_chunk = (pg_atomic_uint64 *) (base + layout.counters + PG_CACHE_LINE_SIZE);
	area->filled = (pg_atomic_uint32 *) (base + layout.filled);
	area->users_gone = (pg_atomic_uint32 *) (base + layout.users_gone);
}

/* Map the file, which is then ours to close. */
static bool
MapFile(GgArea *area, int fd)
{
	AreaLayout	layout = LayOut(area->shared);
	struct stat st;
	char	   *base;

	if (fstat(fd, &st) != 0 || (Size) st.st_size != layout.bytes)
		return false;
	base = mmap(NULL, layout.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return false;
	SetParts(area, base, fd);
	return true;
}

/* Close a file (or -1) that was not mapped, and give back its place; errno stays. */
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
GgCreateArea(GgArea *area)
{
	GgAreaShared *shared = area->shared;
	AreaLayout	layout = LayOut(shared);
	int			fd = -1,
				again = -1;

	if (shared->spilled)
	{
		GgMapTempFile(&area->temp, layout.bytes, false);
		shared->leader_pid = MyProcPid;
		shared->leader_fd = area->temp.fd;
		SetParts(area, area->temp.start, area->temp.fd);
	}
	else if (AcquireExternalFD())
	{
		fd = memfd_create("gpugraph build", MFD_CLOEXEC);
		shared->leader_pid = MyProcPid;
		shared->leader_fd = fd;
		/* try what a worker will do: here there is still another way */
		if (fd < 0 || ftruncate(fd, layout.bytes) != 0 ||
			(again = GgOpenFileOf(MyProcPid, fd)) < 0 || !MapFile(area, fd))
			GiveUpFile(fd);
		if (again >= 0)
			close(again);
	}
	if (area->base == NULL)
	{
		ereport(DEBUG1,
				(errmsg_internal("gpugraph heap scan is serial: "
								 "cannot share %zu bytes of memory: %m", layout.bytes)));
		return false;
	}
	GgReserveArea(area, area->next_chunk, layout.bytes - layout.counters);
	pg_atomic_init_u64(area->next_chunk, 0);
	pg_atomic_init_u64(area->next_duplicate_chunk, 0);
	return true;
}

bool
GgAttachArea(GgArea *area)
{
	int			fd;

	if (AcquireExternalFD())
	{
		fd = GgOpenFileOf(area->shared->leader_pid, area->shared->leader_fd);
		if (fd >= 0 && MapFile(area, fd))
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
			(errcode(error == ENOSPC || error == ENOMEM ? ERRCODE_OUT_OF_MEMORY :
					 ERRCODE_SYSTEM_ERROR),
			 errmsg("could not get shared memory for an index build: %m"),
			 errhint("Lower maintenance_work_mem, "
					 "so that the index is built in smaller segments.")));
}

/*
 * The file takes memory when it is touched, and the process gets SIGBUS when there is none.  To ask
 * first turns that into an error.  All processes do so for each chunk, at the same time.
 */
void
GgReserveArea(GgArea *area, const void *start, Size bytes)
{
	const Size	page = (Size) sysconf(_SC_PAGESIZE);
	Size		offset = (const char *) start - area->base;
	Size		end = TYPEALIGN(page, offset + bytes);

	if (bytes == 0)
		return;
	offset -= offset % page;
	if (area->shared->spilled)
	{
		GgReserveTempFile(area->fd, offset, Min(end, area->bytes) - offset);
		return;
	}
	while (offset < end)
	{
		Size		piece = Min(end - offset, RESERVE_SLICE);

		GgCheckInterrupts();
		if (madvise(area->base + offset, piece, MADV_POPULATE_WRITE) == 0)
			offset += piece;
		else if (errno == EINVAL)
		{
			/* kernels before 5.14: processes get their memory one after the other */
			if (!GgReserveFile(area->fd, offset, Min(end, area->bytes) - offset))
				ReportNoArea(errno);
			return;
		}
		else if (errno != EINTR)
			ReportNoArea(errno == EFAULT ? ENOMEM : errno);	/* it would be SIGBUS */
	}
}

/* Memory that the kernel does not take here is freed when the area is unmapped. */
void
GgReleaseArea(GgArea *area, const void *start, Size bytes)
{
	const Size	page = (Size) sysconf(_SC_PAGESIZE);
	Size		offset = (const char *) start - area->base;
	Size		end = (offset + bytes) / page * page;

	/* a page at either end may be another's too */
	offset = TYPEALIGN(page, offset);
	if (offset < end)
		(void) madvise(area->base + offset, end - offset, MADV_REMOVE);
}

char *
GgGrowSpilled(GgArea *area, Size bytes, Size most)
{
	if (area->temp.start == NULL)
		GgMapTempFile(&area->temp, most, false);
	GgGrowTempFile(&area->temp, bytes);
	return area->temp.start;
}

/* ---- ranges that are written -------------------------------------------------------- */

static const char *
ArrayStart(const GgArea *area, GgKind kind)
{
	switch (kind)
	{
		case GG_KIND_VECTORS:
			return area->rows;
		case GG_KIND_TIDS:
			return (const char *) area->tids;
		case GG_KIND_FILTERS:
			return (const char *) area->filters;
		case GG_KIND_CODES:
			return area->codes;
		case GG_KIND_ADJACENCY:
			return (const char *) area->adjacency;
		default:
			elog(ERROR, "the area has no array of kind %d", kind);
	}
}

/* Release the rows whose codes lie in a range.  One whose code is in two is left to the end. */
static void
ReleaseCodedRows(GgArea *area, const GgPageRange *range)
{
	Size		code_bytes = area->shared->code_bytes;
	uint64		first = (range->offset + code_bytes - 1) / code_bytes;
	uint64		end = (range->offset + range->bytes) / code_bytes;

	if (first < end)
		GgReleaseArea(area, area->rows + first * area->shared->row_bytes,
					  (end - first) * area->shared->row_bytes);
}

/*
 * The kernel frees such a file page by page, in the process that unmaps it last.  That takes 0.2 s
 * per GB with nothing going on beside it: behind the build's stages 1M x 768 took 0.59 s.  To free
 * it range by range while other processes wait for WAL took 0.10 s.
 *
 * Tried: at the end all processes go on until no range is left.  The file is locked while a range
 * of it is freed, so several processes free it no faster than one, and each range is looked up in
 * the page tables of all: what CREATE INDEX of 120,000 x 768 as int4 does behind its last page took
 * 0.51 s instead of 0.35 (medians of five by turns, 2 busy cores).  MADV_HUGEPAGE, which needs
 * shmem_enabled to be advise: 0.12 s instead of 0.42, but 2.9 s to read the table instead of 1.8
 * (of four, busier), so no gain for sure.
 */
void
GgGiveUpRange(GgArea *area, const GgPageRange *range)
{
	const char *start = ArrayStart(area, range->array.kind);

	if (area->base == NULL || start == NULL ||
		pg_atomic_add_fetch_u32(&area->users_gone[range->number], 1) != 2)
		return;
	GgReleaseArea(area, start + range->offset, range->bytes);
	if (range->array.kind == GG_KIND_CODES)
		ReleaseCodedRows(area, range);
}

void
GgSetUnneeded(GgArea *area, uint32 ranges)
{
	SpinLockAcquire(&area->shared->mutex);
	area->shared->unneeded = ranges;
	SpinLockRelease(&area->shared->mutex);
}

bool
GgHasUnneeded(GgArea *area)
{
	bool		has;

	SpinLockAcquire(&area->shared->mutex);
	has = area->shared->next_unneeded < area->shared->unneeded;
	SpinLockRelease(&area->shared->mutex);
	return has;
}

bool
GgTakeUnneeded(GgArea *area, uint32 *range)
{
	bool		taken;

	SpinLockAcquire(&area->shared->mutex);
	taken = area->shared->next_unneeded < area->shared->unneeded;
	if (taken)
		*range = area->shared->next_unneeded++;
	SpinLockRelease(&area->shared->mutex);
	return taken;
}

/* ---- rounds ---------------------------------------------------------------------------- */

void
GgEmptyArea(GgArea *area, uint32 written_ranges)
{
	GgAreaShared *shared = area->shared;

	area->next = area->next_duplicate = 0;
	area->end = 0;
	shared->nholes = 0;
	if (area->base == NULL)
	{
		area->end = Min(shared->capacity, area->most);
		return;
	}
	area->end_duplicate = 0;
	for (uint32 i = 0; i <= shared->capacity / shared->chunk_rows; i++)
		pg_atomic_write_u32(&area->filled[i], 0);
	for (uint32 i = 0; i < written_ranges; i++)
		pg_atomic_write_u32(&area->users_gone[i], 0);
	pg_atomic_write_u64(area->next_chunk, 0);
	pg_atomic_write_u64(area->next_duplicate_chunk, 0);
}

void
GgNoteHole(GgArea *area)
{
	GgAreaShared *shared = area->shared;

	if (area->base == NULL || area->next >= area->end)
		return;
	SpinLockAcquire(&shared->mutex);
	Assert(shared->nholes < GG_MAX_PARTICIPANTS);
	shared->holes[shared->nholes].first = area->next;
	shared->holes[shared->nholes].end = area->end;
	shared->nholes++;
	SpinLockRelease(&shared->mutex);
}
