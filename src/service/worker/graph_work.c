/*
 * graph_work.c
 *		Graphs that the device builds for other processes: the worker's main thread.
 *
 * A merge asks for a graph (graph_request.c).  Its memory comes out of what gpugraph.device_memory
 * leaves: nothing is evicted for it.  Where that is too little for all rows at once, the device
 * builds by groups of rows.  What needs memory meanwhile waits for its end, as for a resident that
 * is on its way out (memory.c).
 */
#include "service/worker/worker.h"

#include "storage/proc.h"
#include "storage/procarray.h"

/*
 * Device memory that the job takes; an engine without a device counts the host's.  device_memory:
 * what a build by groups of rows is to keep to, without the inputs' graphs; 0: it is in one piece.
 */
static gg_status
JobBytes(const GgWorker *worker, const GgGraphJob *job, uint64 device_memory, uint64 *bytes)
{
	gg_control	control = {.threads = 1, .background = true, .device_memory = device_memory};
	uint64		rows = (uint64) job->data.n * job->data.dim * gg_element_size(job->data.element);
	uint64		lists = (uint64) job->data.n * (1 + job->length * sizeof(uint32));
	gg_bytes	peak;
	gg_status	status = worker->engine->build_bytes(&job->data, &job->params, &control, &peak);

	if (status.code == GG_OK)
		*bytes = (peak.device > 0 ? peak.device : rows + peak.host) +
			(job->length > 0 && device_memory == 0 ? lists : 0);
	return status;
}

/*
 * Find the job's *bytes and *device_memory (JobBytes()) where `left` bytes are left: the graph is
 * built in one piece if that has room, else by groups of rows if they have room.
 */
static gg_status
FitJob(const GgWorker *worker, const GgGraphJob *job, uint64 left, uint64 *device_memory,
	   uint64 *bytes)
{
	const uint64 share = left - Min(left, GG_BACKGROUND_BYTES);
	uint64		grouped;
	gg_status	status = JobBytes(worker, job, 0, bytes);

	*device_memory = 0;
	if (status.code != GG_OK || *bytes <= left || share == 0)
		return status;
	status = JobBytes(worker, job, share, &grouped);
	if (status.code == GG_OK && grouped <= left)
	{
		*device_memory = share;
		*bytes = grouped;
	}
	return status;
}

static void
End(GgGraphJob *job, uint32 serial, GgGraphState from)
{
	pg_write_barrier();
	if (GgWordMove(&job->word, serial, from, GG_GRAPH_ENDED))
		SetLatch(&GetPGProcByNumber(job->procno)->procLatch);
}

static void
Refuse(GgGraphJob *job, uint32 serial, gg_status status)
{
	job->code = status.code;
	memcpy(job->message, status.message, sizeof(job->message));
	End(job, serial, GG_GRAPH_ASKED);
}

/* ASKED: take the memory, and begin. */
static void
Grant(GgWorker *worker, uint32 serial)
{
	GgGraphJob *job = &worker->device->graph_job;
	uint64		limit = GgLimitBytes(worker);
	uint64		most = limit + GgOutgoingBytes(worker);
	uint64		taken = GgTakenBytes(worker);
	uint64		bytes;
	gg_status	status;
	char		need[32],
				left[32];

	if (!GgGraphIsWanted(job, serial))
	{
		Refuse(job, serial, gg_fail(GG_ECANCELED, "gpugraph merge", "canceled"));
		return;
	}
	status = FitJob(worker, job, most - Min(most, taken), &worker->graph.device_memory, &bytes);
	if (status.code != GG_OK)
	{
		Refuse(job, serial, status);
		return;
	}
	if (taken + bytes > most)
	{
		GgFormatBytes(need, sizeof(need), bytes);
		GgFormatBytes(left, sizeof(left), limit - Min(limit, taken));
		Refuse(job, serial, gg_fail(GG_EDEVICE_MEMORY, "gpugraph merge",
									"it takes %s of device memory, gpugraph.device_memory leaves "
									"%s", need, left));
		return;
	}
	/* what is on its way out frees memory soon */
	if (taken + bytes > limit)
		return;
	worker->graph_bytes = bytes;
	GgSetUsed(worker, worker->used_bytes + bytes);
	worker->graph.serial = serial;
	(void) GgWordMove(&job->word, serial, GG_GRAPH_ASKED, GG_GRAPH_GRANTED);
	if (GgGraphThreadStart(&worker->graph))
		return;
	job->code = GG_ENOMEM;
	strlcpy(job->message, "there is no thread to be had", sizeof(job->message));
	(void) GgWordMove(&job->word, serial, GG_GRAPH_GRANTED, GG_GRAPH_DONE);
}

/* DONE: give the memory back, count, and tell. */
static void
Finish(GgWorker *worker, uint32 serial)
{
	GgDevice   *device = worker->device;
	GgGraphJob *job = &device->graph_job;

	GgGraphThreadJoin(&worker->graph, false);
	GgSetUsed(worker, worker->used_bytes - worker->graph_bytes);
	worker->graph_bytes = 0;
	if (job->code == GG_EDEVICE)
	{
		gg_status	status = {
			.code = GG_EDEVICE, .where = "building a graph", .device_error = job->device_error
		};

		memcpy(status.message, job->message, sizeof(status.message));
		GgDeviceLost(worker, &status);
	}
	if (job->code == GG_OK)
	{
		device->stats.merges++;
		device->stats.merge_seconds += worker->graph.seconds;
	}
	End(job, serial, GG_GRAPH_DONE);
}

void
GgGraphWork(GgWorker *worker)
{
	GgGraphJob *job = &worker->device->graph_job;
	uint64		word = GgReadWord(&job->word);
	uint32		serial = GgWordSerial(word);

	if (GgWordState(word) == GG_GRAPH_FREE)
		return;
	worker->busy = true;
	if ((word & GG_GRAPH_ORPHAN) == 0 && BackendPidGetProc(job->owner) == NULL)
		GgWordFlag(&job->word, serial, GG_GRAPH_CANCEL | GG_GRAPH_ORPHAN);
	if (GgWordState(word) == GG_GRAPH_ASKED)
		Grant(worker, serial);
	else if (GgWordState(word) == GG_GRAPH_DONE)
		Finish(worker, serial);
	word = GgReadWord(&job->word);
	if (GgWordState(word) == GG_GRAPH_ENDED && (word & GG_GRAPH_ORPHAN) != 0)
		(void) GgWordMove(&job->word, serial, GG_GRAPH_ENDED, GG_GRAPH_FREE);
}

/* A worker starts: no one works on the job of an earlier worker.  Under device->lock, exclusive. */
void
GgGraphStart(GgWorker *worker)
{
	GgGraphJob *job = &worker->device->graph_job;
	uint32		serial = GgWordSerial(GgReadWord(&job->word)) + 1;

	pg_atomic_write_u64(&job->word, GgWordOf(serial, GG_GRAPH_FREE));
}
