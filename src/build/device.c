/*
 * device.c
 *		The device's part of CREATE INDEX: rows go there during the scan, and the finished segment
 *		goes to the GPU service.
 */
#include "build/device.h"
#include "build/progress.h"
#include "service/shared/service.h"

/* Bytes copied between two looks for interrupts. */
#define COPY_SLICE			((uint64) 32 * 1024 * 1024)

/* How often the leader looks whether the threads have ended. */
#define LOOK_US				500

/* ---- rows ----------------------------------------------------------------------- */

void
GgAbandonUpload(GgBuildDevice *device, const gg_status *why)
{
	if (why != NULL)
		ereport(DEBUG1,
				(errmsg_internal("gpugraph rows are not copied during the scan: %s",
								 why->message)));
	if (why != NULL && why->code == GG_EUNSUPPORTED)
		device->unfit = true;
	gg_row_upload_free(device->upload);
	device->upload = NULL;
	if (device->index != NULL)
		device->engine->index_close(device->index);
	device->index = NULL;
}

/* An index without a graph. */
static gg_shape
ShapeOfRows(const GgBuildDevice *device, const GgMetaPageData *meta)
{
	return (gg_shape) {
		.dim = meta->dimensions, .element = device->halved ? GG_ELEMENT_F16 : meta->element,
		.metric = meta->metric
	};
}

/*
 * The index is made for as many rows as are expected.  Where these are too few, or the device has
 * no room, GgCompleteUpload() goes another way.
 */
void
GgStartUpload(GgBuildDevice *device, const GgArea *area, const GgMetaPageData *meta,
			  double expected, int participants)
{
	const gg_engine *engine = device->engine;
	const GgAreaShared *shared = area->shared;
	gg_upload_source source;
	gg_shape	shape = ShapeOfRows(device, meta);
	gg_status	status;

	if (engine->build_index == NULL || engine->index_create == NULL ||
		area->base == NULL)
		return;

	/* a little more than is to be expected, in whole chunks */
	shape.capacity = (uint32) Min(expected * 1.05, shared->limit);
	shape.capacity = Min(shape.capacity / shared->chunk_rows + 2,
						 shared->limit / shared->chunk_rows) * shared->chunk_rows;
	device->capacity = shape.capacity;
	source.rows = area->rows;
	source.row_bytes = shared->row_bytes;
	source.chunk_rows = shared->chunk_rows;
	source.halve = device->halved;
	source.filled = (const volatile uint32_t *) area->filled;
	source.claimed = (const volatile uint64_t *) area->next_chunk;
	/* a thread takes a processor only while there is something to be copied */
	status = gg_row_upload_start(engine, device->ordinal, &shape, &source, participants,
								 &device->index, &device->upload);
	if (status.code != GG_OK)
		GgAbandonUpload(device, &status);
}

void
GgDrainUpload(GgBuildDevice *device)
{
	uint64		start = GgNowMicros();
	gg_status	status;

	if (device->upload == NULL)
		return;
	gg_row_upload_drain(device->upload);
	while (!gg_row_upload_ended(device->upload))
	{
		GgCheckInterrupts();
		pg_usleep(LOOK_US);
	}
	status = gg_row_upload_stop(device->upload);
	device->open_s += gg_row_upload_open_seconds(device->upload);
	device->copy_s += gg_row_upload_seconds(device->upload);
	if (status.code != GG_OK)
		GgAbandonUpload(device, &status);
	device->late_s += GgSecondsSince(start);
}

/* Copy rows first .. n - 1 to the device, by this process. */
static gg_status
CopyRows(GgBuildDevice *device, const GgArea *area, uint32 first, uint32 n)
{
	uint16	   *halves = device->halved ? palloc(COPY_SLICE / 2) : NULL;
	Size		row_bytes = area->shared->row_bytes;
	gg_status	status = {.code = GG_OK};
	uint64		offset = first * row_bytes;
	uint64		end = n * row_bytes;

	while (offset < end && status.code == GG_OK)
	{
		uint64		bytes = Min(end - offset, COPY_SLICE);

		GgCheckInterrupts();
		if (halves != NULL)
			status = gg_write_halves(device->engine, device->index,
									 (uint32) (row_bytes / sizeof(float)), offset,
									 area->rows + offset, bytes, halves);
		else
			status = device->engine->index_write(device->index, GG_PART_ROWS, offset,
												 area->rows + offset, bytes);
		offset += bytes;
		GgReportTuples((int64) (offset / row_bytes));
	}
	if (halves != NULL)
		pfree(halves);
	return status;
}

/* Of n rows copy the chunks that the threads did not: those that had gaps, and the last ones. */
static gg_status
CopyRest(GgBuildDevice *device, const GgArea *area, uint32 n)
{
	uint32		chunk_rows = area->shared->chunk_rows;
	gg_status	status = {.code = GG_OK};

	for (uint64 first = 0; first < n && status.code == GG_OK; first += chunk_rows)
		if (!gg_row_upload_done(device->upload, first / chunk_rows))
			status = CopyRows(device, area, (uint32) first, (uint32) Min(first + chunk_rows, n));
	return status;
}

/* There is no index, or too small a one: copy all rows into one that is large enough. */
static gg_status
CopyAll(GgBuildDevice *device, const GgArea *area, const GgMetaPageData *meta)
{
	gg_shape	shape = ShapeOfRows(device, meta);
	gg_status	status = {.code = GG_OK};
	sigset_t	before;

	GgAbandonUpload(device, NULL);
	if (device->ordinal == GG_DEVICE_IN_USE)
		GgOpenDevice(device->engine);
	shape.capacity = area->nodes;
	GgBlockSignals(&before);
	if (device->ordinal != GG_DEVICE_IN_USE)
		status = device->engine->use_device(device->ordinal);
	if (status.code == GG_OK)
		status = device->engine->index_create(&shape, &device->index);
	GgRestoreSignals(&before);
	if (status.code == GG_OK)
		status = CopyRows(device, area, 0, area->nodes);
	return status;
}

bool
GgCompleteUpload(GgBuildDevice *device, const GgArea *area, const GgMetaPageData *meta)
{
	gg_status	status;
	uint64		start = GgNowMicros();
	double		seconds;

	if (device->upload == NULL && (!device->halved || device->unfit))
		return false;
	if (device->upload == NULL || area->nodes > device->capacity)
		status = CopyAll(device, area, meta);
	else
		status = CopyRest(device, area, area->nodes);
	seconds = GgSecondsSince(start);
	device->copy_s += seconds;
	device->late_s += seconds;
	if (status.code != GG_OK)
	{
		ereport(DEBUG1,
				(errmsg_internal("gpugraph rows are copied again for the build: %s",
								 status.message)));
		device->unfit |= status.code == GG_EUNSUPPORTED;
		GgAbandonUpload(device, NULL);
		return false;
	}
	return true;
}

/* ---- hand-over -------------------------------------------------------------------- */

static void
HandOverPart(GgBuildDevice *device, gg_part part, const void *data, uint64 bytes, uint64 *pages,
			 GgHandedOver told, void *arg)
{
	for (uint64 offset = 0; offset < bytes; offset += COPY_SLICE)
	{
		uint64		piece = Min(bytes - offset, COPY_SLICE);

		GgCheckInterrupts();
		GgLoadWrite(device->load, 0, part, offset, (const char *) data + offset, piece);
		*pages += GgArrayPages(piece);
		told(arg, part == GG_PART_ROWS || part == GG_PART_CODES ? offset + piece : 0, *pages);
	}
}

/*
 * The first query then finds the segment on the device, and nothing is read back.  The leader hands
 * it over while workers write and log.  Of several segments only the last is still in memory; then
 * the first query asks for a load.  Where the service has no room or fails, the index is as good.
 * Where the build fails, the load ends with its transaction.
 */
void
GgHandOver(GgBuildDevice *device, Relation index, const GgMetaPageData *meta,
		   const GgHandOverArrays *arrays, GgHandedOver told, void *arg)
{
	const GgSegment *segment = &meta->segments[0];
	bool		coded = meta->coded != GG_CODES_NONE;
	uint64		first_bytes = segment->nodes *
		(coded ? GgCodeBytes(meta, meta->coded) : GgRowBytes(meta));
	uint64		edge_bytes = (uint64) segment->nodes * meta->graph_degree * sizeof(uint32);
	uint64		pivot_bytes = (uint64) segment->npivots * sizeof(GgPivotEntry);
	uint64		tid_bytes = (uint64) segment->rows * sizeof(GgTidEntry);
	uint64		filter_bytes = (uint64) segment->rows * GgFilterBytes(meta);
	uint64		offset_bytes = arrays->offsets == NULL ? 0 :
		((uint64) segment->nodes + 1) * sizeof(uint32);
	uint64		pages = 0;
	GgReason	reason;
	uint64		start = GgNowMicros();

	if (meta->nsegments != 1 || gg_engine_setting == GG_ENGINE_CPU)
		return;
	device->load = GgLoadBegin(index, meta, &reason);
	if (device->load == NULL)
	{
		ereport(DEBUG1,
				(errmsg_internal("gpugraph index is not handed over: %s", GgReasonText(reason))));
		return;
	}
	GgEnterPhase(GG_BUILD_HAND_OVER, 0, GgArrayPages(first_bytes) + GgArrayPages(edge_bytes) +
				 GgArrayPages(pivot_bytes) + GgArrayPages(tid_bytes) + GgArrayPages(filter_bytes) +
				 GgArrayPages(offset_bytes));
	HandOverPart(device, coded ? GG_PART_CODES : GG_PART_ROWS,
				 coded ? arrays->area->codes : arrays->area->rows, first_bytes, &pages, told, arg);
	HandOverPart(device, GG_PART_ADJACENCY, arrays->graph->adjacency, edge_bytes, &pages, told,
				 arg);
	HandOverPart(device, GG_PART_PIVOTS, arrays->pivots, pivot_bytes, &pages, told, arg);
	HandOverPart(device, GG_PART_TIDS, arrays->area->tids, tid_bytes, &pages, told, arg);
	HandOverPart(device, GG_PART_FILTERS, arrays->area->filters, filter_bytes, &pages, told, arg);
	HandOverPart(device, GG_PART_OFFSETS, arrays->offsets, offset_bytes, &pages, told, arg);
	device->hand_over_s += GgSecondsSince(start);
}

void
GgEndHandOver(GgBuildDevice *device)
{
	uint64		start = GgNowMicros();

	if (device->load == NULL)
		return;
	GgLoadEnd(device->load);
	device->load = NULL;
	device->hand_over_s += GgSecondsSince(start);
}
