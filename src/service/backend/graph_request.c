/*
 * graph_request.c
 *		A device builds a graph for this process, which merges segments.
 *
 * Rows, lists and the graph lie in memory that this process and the device's worker map: a file
 * without a name (memfd_create), which the worker opens through this process's /proc/PID/fd.  So
 * it is gone when both have closed it, however they end.  build/area.c says why such memory is no
 * DSM segment, and is reserved before it is touched.
 *
 * A process has one graph under way, or two: a merge that is done within another one asks another
 * device.  Where an error, or its end, takes the process from a job, the job is flagged, and the
 * device stops.
 */
#include "base/temp_file.h"
#include "service/shared/graph_job.h"
#include "service/shared/ring.h"
#include "service/shared/table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

/* How often the caller is asked whether it still wants the graph, and the device looked after. */
#define LOOK_MS				20

/* What devices work on for this process, the innermost first. */
static GgSharedRows *asked = NULL;

/* Does the device work for this process? */
static bool
IsAsked(int number)
{
	for (const GgSharedRows *shared = asked; shared != NULL; shared = shared->outer)
		if (shared->number == number)
			return true;
	return false;
}

bool
GgServiceIsUp(bool for_graphs)
{
	for (int i = 0; gg_service != NULL && i < gg_service->ndevices; i++)
		if (GgDeviceIsUp(gg_service->devices[i]) && !(for_graphs && IsAsked(i)))
			return true;
	return false;
}

/* ---- the memory ------------------------------------------------------------------------ */

static Size
Take(Size *at, Size bytes)
{
	Size		from = *at;

	*at = TYPEALIGN(4096, from + bytes);
	return from;
}

/*
 * Room for pivots: an eighth of the nodes at most, unless rows cannot be told apart (doc/papers.md,
 * 5).  A graph with more pivots is left to the CPU.
 */
static void
LayOut(GgGraphLayout *layout, Size most, Size row_bytes, uint32 degree)
{
	Size		at = 0;

	layout->most_pivots = (uint32) Min(most, most / 8 + 8192);
	(void) Take(&at, (most + 1) * row_bytes);
	layout->parts = Take(&at, most);
	layout->lists = Take(&at, most * degree * sizeof(uint32));
	layout->adjacency = Take(&at, most * degree * sizeof(uint32));
	layout->pivots = Take(&at, layout->most_pivots * sizeof(uint32));
	layout->pivot_adjacency = Take(&at, (Size) layout->most_pivots * GG_PIVOT_DEGREE *
								   sizeof(uint32));
	layout->bytes = at;
}

/* Note that no device works on this memory any more. */
static void
Forget(GgSharedRows *shared)
{
	GgSharedRows **at = &asked;

	while (*at != shared)
		at = &(*at)->outer;
	*at = shared->outer;
	shared->number = -1;
}

static void
Abandon(GgSharedRows *shared)
{
	GgDevice   *device = gg_service->devices[shared->number];

	GgWordFlag(&device->graph_job.word, shared->serial, GG_GRAPH_CANCEL | GG_GRAPH_ORPHAN);
	GgResidentNotify(device);
	Forget(shared);
}

static void
AbandonAtExit(int code, Datum arg)
{
	while (asked != NULL)
		Abandon(asked);
}

/* Called when the memory context is deleted: at the end, or after an error. */
static void
Unshare(void *arg)
{
	GgSharedRows *shared = arg;

	if (shared->number >= 0)
		Abandon(shared);
	if (shared->rows != NULL)
		munmap(shared->rows, shared->layout->bytes);
	if (shared->fd >= 0)
	{
		close(shared->fd);
		ReleaseExternalFD();
	}
}

GgSharedRows *
GgShareRows(uint32 most, Size row_bytes, uint32 degree)
{
	GgSharedRows *shared = palloc0(sizeof(GgSharedRows));
	void	   *start = MAP_FAILED;

	shared->layout = palloc0(sizeof(GgGraphLayout));
	shared->fd = shared->number = -1;
	LayOut(shared->layout, most, row_bytes, degree);
	GgAtReset(CurrentMemoryContext, Unshare, shared);
	if (!AcquireExternalFD())
		return NULL;
	shared->fd = memfd_create("gpugraph merge", MFD_CLOEXEC);
	if (shared->fd < 0)
		ReleaseExternalFD();
	else if (ftruncate(shared->fd, shared->layout->bytes) == 0 &&
			 GgReserveFile(shared->fd, 0, ((Size) most + 1) * row_bytes))
		start = mmap(NULL, shared->layout->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared->fd,
					 0);
	if (start == MAP_FAILED)
	{
		ereport(DEBUG1,
				(errmsg_internal("no memory to share with a device for a merge: %m")));
		return NULL;
	}
	shared->rows = start;
	shared->parts = (uint8 *) start + shared->layout->parts;
	shared->lists = (uint32 *) ((char *) start + shared->layout->lists);
	shared->degree = degree;
	return shared;
}

bool
GgShareLists(GgSharedRows *shared, uint32 nodes)
{
	return GgReserveFile(shared->fd, shared->layout->parts, nodes) &&
		GgReserveFile(shared->fd, shared->layout->lists,
					  (Size) nodes * shared->degree * sizeof(uint32));
}

/* ---- the job ----------------------------------------------------------------------------- */

/*
 * Of the devices that are not in this bitmap, and have no job, the one with the fewest queries
 * under way; of several the one with most room.  -1: there is none.
 */
static int
ChooseGraphDevice(uint32 avoid)
{
	uint32		least = PG_UINT32_MAX;
	int64		most = 0;
	int			best = -1;

	for (int i = 0; i < gg_service->ndevices; i++)
	{
		GgDevice   *device = gg_service->devices[i];
		uint32		waiting = pg_atomic_read_u32(&device->ring->waiting);
		int64		room = GgDeviceRoom(device);

		if ((avoid >> i & 1) != 0 || !GgDeviceIsUp(device) ||
			GgWordState(GgReadWord(&device->graph_job.word)) != GG_GRAPH_FREE)
			continue;
		if (best >= 0 && (waiting > least || (waiting == least && room <= most)))
			continue;
		best = i;
		least = waiting;
		most = room;
	}
	return best;
}

static void
FillJob(GgGraphJob *job, const GgSharedRows *shared, const struct stat *st,
		const gg_dataset *data, const gg_build_params *params, bool lists)
{
	job->owner = MyProcPid;
	job->procno = GgMyProcNumber();
	job->fault = gg_fault;
	job->fd = shared->fd;
	job->file_device = (uint64) st->st_dev;
	job->file_number = (uint64) st->st_ino;
	job->layout = *shared->layout;
	job->data = *data;
	job->data.rows = NULL;
	job->length = lists ? shared->degree : 0;
	job->params = *params;
}

/* Ask a device that has no job and is not in *tried.  False: none is left, or fstat() failed. */
static bool
Ask(GgSharedRows *shared, const gg_dataset *data, const gg_build_params *params, bool lists,
	uint32 *tried)
{
	static bool registered = false;
	struct stat st;
	int			i;

	if (!registered)
		before_shmem_exit(AbandonAtExit, (Datum) 0);
	registered = true;
	if (fstat(shared->fd, &st) != 0)
		return false;
	while (shared->number < 0 && (i = ChooseGraphDevice(*tried)) >= 0)
	{
		GgDevice   *device = gg_service->devices[i];
		GgGraphJob *job = &device->graph_job;

		*tried |= (uint32) 1 << i;
		LWLockAcquire(device->lock, LW_EXCLUSIVE);
		if (GgDeviceIsUp(device) && GgWordState(GgReadWord(&job->word)) == GG_GRAPH_FREE)
		{
			FillJob(job, shared, &st, data, params, lists);
			shared->serial = GgWordSerial(GgReadWord(&job->word)) + 1;
			shared->number = i;
			shared->outer = asked;
			asked = shared;
			pg_write_barrier();
			pg_atomic_write_u64(&job->word, GgWordOf(shared->serial, GG_GRAPH_ASKED));
		}
		LWLockRelease(device->lock);
	}
	if (shared->number >= 0)
		GgResidentNotify(gg_service->devices[shared->number]);
	return shared->number >= 0;
}

static void
Wait(void)
{
	static uint32 wait_event = 0;

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_POSTMASTER_DEATH, LOOK_MS,
					 GgWaitEvent(wait_event, "GpugraphMerge"));
}

/* The job is over: take the graph, which stays where it is, or the reason why there is none. */
static gg_status
TakeOutcome(GgSharedRows *shared, const gg_dataset *data, gg_graph *graph)
{
	GgGraphJob *job = &gg_service->devices[shared->number]->graph_job;
	char	   *start = shared->rows;
	gg_status	status = {.code = job->code, .where = "gpugraph merge"};

	memcpy(status.message, job->message, sizeof(status.message));
	graph->n = data->n;
	graph->degree = shared->degree;
	graph->npivots = job->npivots;
	graph->adjacency = (uint32 *) (start + shared->layout->adjacency);
	graph->pivots = (uint32 *) (start + shared->layout->pivots);
	graph->pivot_adjacency = (uint32 *) (start + shared->layout->pivot_adjacency);
	(void) GgWordMove(&job->word, shared->serial, GG_GRAPH_ENDED, GG_GRAPH_FREE);
	Forget(shared);
	return status;
}

/* Wait for the device that was asked. */
static gg_status
Await(GgSharedRows *shared, const gg_dataset *data, const gg_control *control, gg_graph *graph)
{
	GgDevice   *device = gg_service->devices[shared->number];
	gg_status	status;

	for (;;)
	{
		uint64		word;

		ResetLatch(MyLatch);
		word = GgReadWord(&device->graph_job.word);
		if (GgWordSerial(word) == shared->serial && GgWordState(word) == GG_GRAPH_ENDED)
			return TakeOutcome(shared, data, graph);
		if (GgWordSerial(word) != shared->serial || !GgDeviceIsUp(device))
			status = gg_fail(GG_ENODEVICE, "gpugraph merge", "its worker has ended");
		else if (control->cancelled(control->ctx))
			status = gg_fail(GG_ECANCELED, "gpugraph merge", "canceled");
		else
		{
			Wait();
			continue;
		}
		Abandon(shared);
		return status;
	}
}

gg_status
GgBuildOnDevice(GgSharedRows *shared, const gg_dataset *data, const gg_build_params *params,
				bool lists, const gg_control *control, gg_graph *graph, int *number)
{
	gg_status	status = gg_fail(GG_ENODEVICE, "gpugraph merge",
								 "no device is up and free for it");
	uint32		tried = 0;

	Assert(shared->number < 0 && params->graph_degree == shared->degree);
	if (!GgReserveFile(shared->fd, shared->layout->adjacency,
				 (Size) data->n * shared->degree * sizeof(uint32)) ||
		!GgReserveFile(shared->fd, shared->layout->pivots,
					   shared->layout->bytes - shared->layout->pivots))
		return gg_fail(GG_ENOMEM, "gpugraph merge", "no memory for the graph");
	while (Ask(shared, data, params, lists, &tried))
	{
		*number = shared->number;
		status = Await(shared, data, control, graph);
		/* a device that is lost may still write into the memory, so no other is asked */
		if (status.code != GG_EDEVICE_MEMORY)
			break;
	}
	return status;
}
