/*
 * storage.c
 *		In which form segments come to a device; in the worker.
 *
 * Full: rows, and a copy of them in half precision that walks read.  Coded: walks read codes of 4
 * bits an element (8 under L1, whose distances a rotation does not keep), and then measure some
 * nodes by row.  The rows lie beside the codes, or in memory of the host that is pinned, where the
 * device reads them.  Rows of float32 may lie beside the codes rounded to half precision: then who
 * asks measures the rows whose order the rounding leaves open.  Or rows are nowhere but on the
 * index's pages: then the device answers by estimates, and who asks measures.
 *
 * gpugraph.device_storage says which forms are tried, one after the other.  A form serves a load if
 * there is room for all of its segments.  Where no form does, the last one that could be had is cut
 * to what fits (GgLeaveOut()).  What a device has keeps its form until it is evicted.  Segments of
 * an index that has codes alone have no other form than the last.
 */
#include "service/worker/worker.h"

#include <unistd.h>

#include "storage/fd.h"

typedef enum Form
{
	FORM_FULL,
	FORM_CODED,
	FORM_CODED_HALVES,
	FORM_CODED_HOST,
	FORM_CODED_NONE				/* as FORM_CODED_HOST on the device; none of the host's memory */
} Form;

/* The forms of gpugraph.device_storage, in order of preference. */
static const struct
{
	int			count;
	Form		forms[4];
}			forms_of[] = {
	[GG_STORAGE_AUTO] = {4, {FORM_FULL, FORM_CODED_HALVES, FORM_CODED_HOST, FORM_CODED_NONE}},
	[GG_STORAGE_FULL] = {1, {FORM_FULL}},
	[GG_STORAGE_CODES] = {4, {FORM_CODED, FORM_CODED_HALVES, FORM_CODED_HOST, FORM_CODED_NONE}}
};

static const gg_row_place row_place_of[] = {
	[FORM_FULL] = GG_ROWS_DEVICE,
	[FORM_CODED] = GG_ROWS_DEVICE,
	[FORM_CODED_HALVES] = GG_ROWS_DEVICE,
	[FORM_CODED_HOST] = GG_ROWS_HOST,
	[FORM_CODED_NONE] = GG_ROWS_NONE
};

uint64
GgHostBytes(const gg_shape *shape)
{
	if (shape->row_place != GG_ROWS_HOST)
		return 0;
	return (uint64) shape->capacity * shape->dim * gg_element_size(shape->element);
}

/* A number of bytes in a file; PG_UINT64_MAX where there is none, as for "max". */
static uint64
BytesInFile(const char *path)
{
	FILE	   *file = AllocateFile(path, "r");
	uint64		bytes = PG_UINT64_MAX;

	if (file != NULL)
	{
		if (fscanf(file, UINT64_FORMAT, &bytes) != 1)
			bytes = PG_UINT64_MAX;
		FreeFile(file);
	}
	return bytes;
}

/*
 * The memory of the machine, or of the container: a worker that takes more than its control group
 * may have is killed, and the server starts anew.  It is read once, since loads that wait for room
 * ask every turn.
 */
static uint64
MachineBytes(void)
{
	static uint64 known = 0;
	uint64		bytes = (uint64) sysconf(_SC_PHYS_PAGES) * (uint64) sysconf(_SC_PAGESIZE);
	FILE	   *file;
	char		line[MAXPGPATH];
	char		path[MAXPGPATH + 64];

	if (known > 0)
		return known;
	file = AllocateFile("/proc/self/cgroup", "r");
	bytes = Min(bytes, BytesInFile("/sys/fs/cgroup/memory.max"));
	bytes = Min(bytes, BytesInFile("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, "0::/", 4) == 0)
		{
			line[strcspn(line, "\n")] = '\0';
			snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", line + 3);
			bytes = Min(bytes, BytesInFile(path));
		}
	if (file != NULL)
		FreeFile(file);
	known = bytes;
	return known;
}

static uint64
HostLimitBytes(void)
{
	if (gg_host_memory_mb >= 0)
		return (uint64) gg_host_memory_mb << 20;
	return MachineBytes() / 8;
}

/* Of the host's memory: what versions have, and what loads were granted. */
static uint64
HostUsedBytes(const GgWorker *worker)
{
	uint64		bytes = 0;

	for (uint32 entry = 0; entry < pg_atomic_read_u32(&worker->device->nresidents); entry++)
		for (int v = 0; v < 2; v++)
		{
			const GgResidentVersion *version = &worker->versions[entry][v];

			for (uint32 i = 0; version->live && i < version->nlists; i++)
				if (version->owned[i] && version->lists[i] != NULL)
					bytes += version->host_bytes[i];
		}
	for (int i = 0; i < GG_MAX_LOADS; i++)
		bytes += worker->loads[i].host_bytes;
	return bytes;
}

/*
 * Can rows of this list be kept in half precision?  Under inner product what rounding does to a
 * distance grows with the row's length, which the index does not know.
 */
static bool
CanBeHalved(const GgWorker *worker, const GgLoadJob *job, const GgLoadList *list)
{
	for (int i = 0; i < GG_HALVES_REFUSED; i++)
		if (worker->halves_refused[i] == job->key.instance)
			return false;
	return (list->halved || list->shape.element == GG_ELEMENT_F32) &&
		list->shape.metric != GG_METRIC_IP;
}

void
GgRefuseHalves(GgWorker *worker, uint64 instance)
{
	worker->halves_refused[worker->next_refused] = instance;
	worker->next_refused = (worker->next_refused + 1) % GG_HALVES_REFUSED;
}

/* Give the segments that a load brings a form; false: it cannot be had. */
static bool
TakeForm(GgWorker *worker, int load, Form form)
{
	GgLoadJob  *job = &worker->device->loads_under_way[load];
	GgLoadWatch *watch = &worker->loads[load];
	uint64		bytes = 0;

	if ((form != FORM_FULL && watch->no_codes) || (form == FORM_CODED_HOST && watch->no_host) ||
		(form == FORM_CODED_HALVES && !CanBeHalved(worker, job, &job->lists[0])))
		return false;
	for (uint32 i = 0; i < job->nsegments; i++)
	{
		gg_shape   *shape = &job->lists[i].shape;

		if (!GgIsLoaded(&job->lists[i]) || job->lists[i].rowless)
			continue;
		if (job->lists[i].halved)
			shape->element = GG_ELEMENT_F32;
		job->lists[i].halved = form == FORM_CODED_HALVES;
		if (job->lists[i].halved)
			shape->element = GG_ELEMENT_F16;
		shape->codes = form == FORM_FULL ? GG_CODES_NONE : GG_DEVICE_CODES(shape->metric);
		shape->row_place = row_place_of[form];
		shape->code_seed = job->key.instance;
		bytes += GgHostBytes(shape);
	}
	watch->host_bytes = 0;
	if (bytes > 0 && HostUsedBytes(worker) + bytes > HostLimitBytes())
		return false;
	watch->host_bytes = bytes;
	return true;
}

/* What a load brings. */
uint64
GgLoadBytes(GgWorker *worker, const GgLoadJob *job)
{
	uint64		bytes = 0;

	for (uint32 i = 0; i < job->nlists; i++)
		if (GgIsLoaded(&job->lists[i]))
			bytes += worker->engine->shape_bytes(&job->lists[i].shape);
	return bytes;
}

GgRoom
GgFindForm(GgWorker *worker, int load, uint64 most, uint64 *bytes)
{
	GgLoadJob  *job = &worker->device->loads_under_way[load];
	Form		last = FORM_FULL;

	for (int i = 0; i < forms_of[gg_device_storage].count; i++)
	{
		Form		form = forms_of[gg_device_storage].forms[i];
		GgRoom		room = GG_ROOM_NONE;

		if ((form == FORM_CODED_NONE && last == FORM_CODED_HOST) || !TakeForm(worker, load, form))
			continue;
		last = form;
		*bytes = GgLoadBytes(worker, job);
		if (!job->grow && (most == 0 || *bytes <= most))
			room = GgMakeRoom(worker, job, *bytes);
		if (room != GG_ROOM_NONE)
			return room;
	}
	(void) TakeForm(worker, load, last);
	return GG_ROOM_NONE;
}

bool
GgTryOtherForm(GgWorker *worker, int load, gg_code code)
{
	GgLoadWatch *watch = &worker->loads[load];
	const GgLoadJob *job = &worker->device->loads_under_way[load];
	bool		coded = false;

	for (uint32 i = 0; i < job->nsegments; i++)
		coded |= GgIsLoaded(&job->lists[i]) && !job->lists[i].rowless &&
			job->lists[i].shape.codes != GG_CODES_NONE;
	if (coded && code == GG_EUNSUPPORTED)
		watch->no_codes = true;
	else if (watch->host_bytes > 0 && code == GG_ENOMEM)
		watch->no_host = true;
	else
		return false;
	watch->host_bytes = 0;
	return true;
}
