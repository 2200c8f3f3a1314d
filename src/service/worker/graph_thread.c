/*
 * graph_thread.c
 *		The worker's thread that builds a graph for another process.
 *
 * There is one thread for each job, and one job at a time.  The thread maps the memory of the
 * process that asked, has the engine build in the background of searches, copies the graph into
 * that memory, and ends.  The main thread takes the outcome (graph_work.c).
 *
 * As in upload.c no function of PostgreSQL is called but wake(), and all signals are blocked.  The
 * engine asks at least every 100 ms whether it is to go on.  Each question is a step for the
 * watchdog.
 */
#include "service/worker/graph_thread.h"
#include "base/temp_file.h"
#include "engine/cpu/common/threads.h"
#include "service/worker/watchdog.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* gpugraph.fault */
#define HOLD_STEP_US	2000

static bool
Cancelled(void *ctx)
{
	GgGraphThread *thread = ctx;

	GgWatchedSteps(GG_WATCHED_GRAPH);
	return thread->stop || !GgGraphIsWanted(&thread->device->graph_job, thread->serial);
}

/* gpugraph.fault.  True: status is the outcome. */
static bool
InjectFault(GgGraphThread *thread, gg_status *status)
{
	switch ((GgFault) thread->device->graph_job.fault)
	{
		case GG_FAULT_GRAPH:
			*status = gg_fail(GG_EDEVICE, "gpugraph.fault", "device lost while building a graph");
			return true;
		case GG_FAULT_GRAPH_MEMORY:
			*status = gg_fail(GG_EDEVICE_MEMORY, "gpugraph.fault",
							  "out of device memory, as gpugraph.fault asks for");
			return true;
		case GG_FAULT_GRAPH_HOLD:
			while (gg_fault == GG_FAULT_GRAPH_HOLD && !Cancelled(thread))
				usleep(HOLD_STEP_US);
			return false;
		case GG_FAULT_GRAPH_HANG:
			for (;;)
				usleep(HOLD_STEP_US);
		default:
			return false;
	}
}

/* The memory of the process that asks; NULL: it is gone, or cannot be had. */
static char *
Map(const GgGraphJob *job)
{
	struct stat st;
	void	   *start = MAP_FAILED;
	int			fd = GgOpenFileOf(job->owner, job->fd);

	if (fd < 0)
		return NULL;
	/* another process may have the owner's id by now, or another file the descriptor */
	if (fstat(fd, &st) == 0 && (uint64) st.st_dev == job->file_device &&
		(uint64) st.st_ino == job->file_number && (Size) st.st_size >= job->layout.bytes)
		start = mmap(NULL, job->layout.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	else
		errno = ESTALE;
	close(fd);
	return start == MAP_FAILED ? NULL : start;
}

static gg_status
CopyGraph(GgGraphJob *job, const gg_graph *graph, char *start)
{
	Size		adjacency = (Size) graph->n * graph->degree * sizeof(uint32);

	if (graph->npivots > job->layout.most_pivots)
		return gg_fail(GG_ENOMEM, "gpugraph merge", "%u pivots, there is room for %u",
					   graph->npivots, job->layout.most_pivots);
	memcpy(start + job->layout.adjacency, graph->adjacency, adjacency);
	memcpy(start + job->layout.pivots, graph->pivots, graph->npivots * sizeof(uint32));
	memcpy(start + job->layout.pivot_adjacency, graph->pivot_adjacency,
		   (Size) graph->npivots * GG_PIVOT_DEGREE * sizeof(uint32));
	job->npivots = graph->npivots;
	return gg_ok();
}

static gg_status
Build(GgGraphThread *thread, char *start)
{
	GgGraphJob *job = &thread->device->graph_job;
	const gg_engine *engine = thread->engine;
	gg_control	control = {
		.cancelled = Cancelled, .ctx = thread, .threads = 1,
		.device_memory = thread->device_memory, .background = true
	};
	gg_merge_input input = {
		.parts = (const uint8_t *) start + job->layout.parts,
		.lists = (const uint32_t *) (start + job->layout.lists),
		.length = job->length
	};
	gg_dataset	data = job->data;
	gg_graph	graph;
	gg_status	status;
	uint64		began_us;

	if (InjectFault(thread, &status))
		return status;
	data.rows = start;
	began_us = GgNowMicros();
	/* graphs are not merged by groups */
	status = input.length > 0 && thread->device_memory == 0 ?
		engine->merge(&data, &input, &job->params, &control, &graph, NULL) :
		engine->build(&data, &job->params, &control, &graph, NULL);
	thread->seconds = (GgNowMicros() - began_us) / 1e6;
	if (status.code != GG_OK)
		return status;
	status = CopyGraph(job, &graph, start);
	gg_graph_free(&graph);
	return status;
}

static void *
ThreadMain(void *arg)
{
	GgGraphThread *thread = arg;
	GgGraphJob *job = &thread->device->graph_job;
	gg_status	status;
	char	   *start;

	GgWatchedTurns(GG_WATCHED_GRAPH);
	start = Map(job);
	if (start == NULL)
		status = gg_fail(GG_ENOMEM, "gpugraph merge", "could not map the rows: %s",
						 strerror(errno));
	else
	{
		status = Build(thread, start);
		munmap(start, job->layout.bytes);
	}
	job->code = status.code;
	job->device_error = status.device_error;
	memcpy(job->message, status.message, sizeof(job->message));
	pg_write_barrier();
	GgWatchedTurns(GG_WATCHED_GRAPH);
	(void) GgWordMove(&job->word, thread->serial, GG_GRAPH_GRANTED, GG_GRAPH_DONE);
	thread->wake(thread->arg);
	return NULL;
}

bool
GgGraphThreadStart(GgGraphThread *thread)
{
	thread->stop = false;
	thread->seconds = 0;
	thread->running = gg_thread_create(&thread->thread, ThreadMain, thread);
	return thread->running;
}

void
GgGraphThreadJoin(GgGraphThread *thread, bool stop)
{
	if (!thread->running)
		return;
	if (stop)
		thread->stop = true;
	pthread_join(thread->thread, NULL);
	thread->running = false;
}
