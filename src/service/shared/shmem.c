/*
 * shmem.c
 *		Settings of the service, its shared memory, and the registration of its workers.
 *
 * All of this happens in the postmaster, where no CUDA call may be made: a context does not survive
 * fork().  So the number of devices for gpugraph.devices = 'all' is what the kernel module lists in
 * /proc, and at least one.  A worker that finds its device not there (CUDA_VISIBLE_DEVICES may hide
 * some) ends for good.  Where the kernel module is loaded only after PostgreSQL has started,
 * gpugraph.devices has to name the devices.
 *
 * Devices see one region, which holds each device's slots, the pool's chunks and then each device's
 * staging.
 * It is page aligned, since devices register whole pages.
 */
#include "service/shared/shmem.h"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/guc.h"

#include "service/shared/ring.h"

int			gg_service_engine = GG_SERVICE_CUDA;
char	   *gg_devices = NULL;
int			gg_device_storage = GG_STORAGE_AUTO;
int			gg_host_memory_mb = -1;
int			gg_device_memory_mb = 0;
int			gg_device_timeout_ms = 30000;
bool		gg_autoprewarm = true;
int			gg_max_residents = 1024;
int			gg_answer_chunks = 32;
int			gg_loaders = 4;
int			gg_fault = GG_FAULT_NONE;

GgService  *gg_service = NULL;

static const struct config_enum_entry service_engine_values[] = {
	{"cuda", GG_SERVICE_CUDA, false},
	{"cpu", GG_SERVICE_CPU, false},
	{NULL, 0, false}
};

static const struct config_enum_entry device_storage_values[] = {
	{"auto", GG_STORAGE_AUTO, false},
	{"full", GG_STORAGE_FULL, false},
	{"codes", GG_STORAGE_CODES, false},
	{NULL, 0, false}
};

static const struct config_enum_entry fault_values[] = {
	{"none", GG_FAULT_NONE, false},
	{"launch", GG_FAULT_LAUNCH, false},
	{"device", GG_FAULT_DEVICE, false},
	{"exit", GG_FAULT_EXIT, false},
	{"stall", GG_FAULT_STALL, false},
	{"ring_full", GG_FAULT_RING_FULL, false},
	{"device_memory", GG_FAULT_DEVICE_MEMORY, false},
	{"host_memory", GG_FAULT_HOST_MEMORY, false},
	{"load", GG_FAULT_LOAD, false},
	{"load_gap", GG_FAULT_LOAD_GAP, false},
	{"load_stall", GG_FAULT_LOAD_STALL, false},
	{"load_readers", GG_FAULT_LOAD_READERS, false},
	{"no_driver", GG_FAULT_NO_DRIVER, false},
	{"no_device", GG_FAULT_NO_DEVICE, false},
	{"post_stall", GG_FAULT_POST_STALL, false},
	{"old_device", GG_FAULT_OLD_DEVICE, false},
	{"hang", GG_FAULT_HANG, false},
	{"hang_launch", GG_FAULT_HANG_LAUNCH, false},
	{"hang_load", GG_FAULT_HANG_LOAD, false},
	{"less_memory", GG_FAULT_LESS_MEMORY, false},
	{"hot", GG_FAULT_HOT, false},
	{"graph", GG_FAULT_GRAPH, false},
	{"graph_memory", GG_FAULT_GRAPH_MEMORY, false},
	{"graph_stall", GG_FAULT_GRAPH_STALL, false},
	{"graph_hold", GG_FAULT_GRAPH_HOLD, false},
	{"graph_hang", GG_FAULT_GRAPH_HANG, false},
	{"parking_hold", GG_FAULT_PARKING_HOLD, false},
	{"parking_none", GG_FAULT_PARKING_NONE, false},
	{"hold_merge", GG_FAULT_HOLD_MERGE, false},
	{"hold_vacuum_delta", GG_FAULT_HOLD_VACUUM_DELTA, false},
	{"hold_vacuum_segment", GG_FAULT_HOLD_VACUUM_SEGMENT, false},
	{"hold_vacuum_last", GG_FAULT_HOLD_VACUUM_LAST, false},
	{"hold_give_back", GG_FAULT_HOLD_GIVE_BACK, false},
	{"hold_lengthen", GG_FAULT_HOLD_LENGTHEN, false},
	{"hold_move", GG_FAULT_HOLD_MOVE, false},
	{"hold_truncate", GG_FAULT_HOLD_TRUNCATE, false},
	{"within_hold", GG_FAULT_WITHIN_HOLD, false},
	{"within_error", GG_FAULT_WITHIN_ERROR, false},
	{NULL, 0, false}
};

/*
 * The postmaster's, before the shared memory is there; from then on see
 * gg_service->devices[].number.
 */
static int	ndevices = 0;
static int	device_numbers[GG_MAX_DEVICES];

/* ---- which devices -------------------------------------------------------- */

/* How many devices the kernel module knows. */
static int
CountListedDevices(void)
{
	DIR		   *dir = opendir("/proc/driver/nvidia/gpus");
	struct dirent *entry;
	int			count = 0;

	if (dir == NULL)
		return 0;
	while ((entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.')
			count++;
	closedir(dir);
	return count;
}

/* Device numbers from "all" or "0, 2"; -1 when it is neither. */
static int
ParseDevices(const char *value, int *numbers)
{
	int			count = 0;

	while (isspace((unsigned char) *value))
		value++;
	if (*value == '\0')
		return 0;
	if (pg_strcasecmp(value, "all") == 0)
	{
		count = gg_service_engine == GG_SERVICE_CPU ? 1 : CountListedDevices();
		count = Min(Max(count, 1), GG_MAX_DEVICES);
		for (int i = 0; i < count; i++)
			numbers[i] = i;
		return count;
	}
	for (;;)
	{
		char	   *end;
		long		number = strtol(value, &end, 10);

		if (end == value || number < 0 || number > 1023 || count == GG_MAX_DEVICES)
			return -1;
		for (int i = 0; i < count; i++)
			if (numbers[i] == number)
				return -1;
		numbers[count++] = (int) number;
		while (isspace((unsigned char) *end))
			end++;
		if (*end == '\0')
			return count;
		if (*end != ',')
			return -1;
		value = end + 1;
	}
}

static bool
CheckDevices(char **newval, void **extra, GucSource source)
{
	int			numbers[GG_MAX_DEVICES];

	if (ParseDevices(*newval, numbers) >= 0)
		return true;
	GUC_check_errdetail("Give \"all\", or up to %d different device numbers separated by commas.",
						GG_MAX_DEVICES);
	return false;
}

const gg_engine *
GgServiceOps(void)
{
	if (gg_service_engine == GG_SERVICE_CPU)
		return &gg_cpu_engine;
#ifdef GG_WITH_CUDA
	return &gg_cuda_engine;
#else
	return NULL;
#endif
}

/* ---- shared memory ---------------------------------------------------------- */

static Size
SystemPage(void)
{
	return (Size) sysconf(_SC_PAGESIZE);
}

static Size
SlotsBytes(void)
{
	return TYPEALIGN64(SystemPage(), mul_size(mul_size(ndevices, MaxBackends), sizeof(GgSlot)));
}

static Size
ChunksBytes(void)
{
	return TYPEALIGN64(SystemPage(), mul_size(gg_answer_chunks, sizeof(GgChunk)));
}

static Size
RegionBytes(void)
{
	return add_size(add_size(SlotsBytes(), ChunksBytes()),
					mul_size(ndevices, GG_STAGE_CHUNK * GG_STAGE_CHUNKS));
}

/* A device's entries and their tags. */
static Size
TableBytes(void)
{
	return CACHELINEALIGN(mul_size(gg_max_residents,
								   sizeof(GgResident) + sizeof(GgResidentTag)));
}

static uint32
IndexSlots(void)
{
	return (uint32) Max(GG_LEAST_INDEX_SLOTS, 2 * gg_max_residents);
}

static Size
IndexStatsBytes(void)
{
	return MAXALIGN(add_size(offsetof(GgIndexStats, slots),
							 mul_size(IndexSlots(), sizeof(GgIndexCounters))));
}

static Size
ServiceBytes(void)
{
	Size		size = CACHELINEALIGN(sizeof(GgService));

	size = add_size(size, mul_size(ndevices, CACHELINEALIGN(sizeof(GgDevice))));
	size = add_size(size, mul_size(ndevices, TableBytes()));
	size = add_size(size, mul_size(ndevices, CACHELINEALIGN(GgRingBytes(MaxBackends))));
	size = add_size(size, CACHELINEALIGN(GgPoolBytes(gg_answer_chunks)));
	size = add_size(size, SystemPage());
	return add_size(size, RegionBytes());
}

static void
RequestShmem(void)
{
	RequestAddinShmemSpace(add_size(ServiceBytes(), IndexStatsBytes()));
	RequestNamedLWLockTranche("gpugraph", ndevices + 1);
}

static void
InitDevice(GgDevice *device, int number, LWLock *lock)
{
	memset(device, 0, sizeof(GgDevice));
	device->number = number;
	device->lock = lock;
	pg_atomic_init_u32(&device->state, GG_DEVICE_DOWN);
	pg_atomic_init_u64(&device->epoch, 0);
	pg_atomic_init_u32(&device->sleeping, 0);
	pg_atomic_init_u64(&device->clock, 0);
	pg_atomic_init_u32(&device->work, 0);
	pg_atomic_init_u64(&device->staying.word, GG_STAY_NONE);
	pg_atomic_init_u64(&device->graph_job.word, GG_GRAPH_FREE);
	for (int i = 0; i < GG_STAGE_CHUNKS; i++)
		pg_atomic_init_u32(&device->chunks[i].state, 0);
}

static void
InitCounters(GgIndexCounters *counters)
{
	pg_atomic_init_u64(&counters->key, 0);
	pg_atomic_init_u64(&counters->rows, 0);
	for (int i = 0; i < GG_NREASONS; i++)
		pg_atomic_init_u64(&counters->queries[i], 0);
}

static void
StartIndexStats(void)
{
	bool		found;
	GgIndexStats *stats;

	stats = ShmemInitStruct("gpugraph index statistics", IndexStatsBytes(), &found);
	gg_service->index_stats = stats;
	if (found)
		return;
	pg_atomic_init_u64(&stats->resets, 0);
	InitCounters(&stats->others);
	for (uint32 i = 0; i < gg_service->index_slots; i++)
		InitCounters(&stats->slots[i]);
}

/* Lay out the memory: service, devices, tables, rings, the pool's words, then the region. */
static void
InitService(void)
{
	LWLockPadded *locks = GetNamedLWLockTranche("gpugraph");
	char	   *next = (char *) gg_service + CACHELINEALIGN(sizeof(GgService));

	memset(gg_service, 0, sizeof(GgService));
	gg_service->ndevices = ndevices;
	gg_service->nslots = MaxBackends;
	gg_service->max_residents = (uint32) gg_max_residents;
	gg_service->index_slots = IndexSlots();
	gg_service->stat_lock = &locks[ndevices].lock;
	pg_atomic_init_u32(&gg_service->last_use, 0);
	for (int i = 0; i < GG_NREASONS; i++)
		pg_atomic_init_u64(&gg_service->told_us[i], 0);

	for (int i = 0; i < ndevices; i++)
	{
		gg_service->devices[i] = (GgDevice *) next;
		InitDevice(gg_service->devices[i], device_numbers[i], &locks[i].lock);
		next += CACHELINEALIGN(sizeof(GgDevice));
	}
	for (int i = 0; i < ndevices; i++)
	{
		gg_service->devices[i]->residents = (GgResident *) next;
		gg_service->devices[i]->tags =
			(GgResidentTag *) (next + gg_service->max_residents * sizeof(GgResident));
		memset(next, 0, TableBytes());
		next += TableBytes();
	}
	for (int i = 0; i < ndevices; i++)
	{
		gg_service->devices[i]->ring = (GgRing *) next;
		GgRingInit(gg_service->devices[i]->ring, gg_service->nslots);
		next += CACHELINEALIGN(GgRingBytes(gg_service->nslots));
	}
	gg_service->pool = (GgPool *) next;
	GgPoolInit(gg_service->pool, gg_answer_chunks);
	next += CACHELINEALIGN(GgPoolBytes(gg_answer_chunks));

	next = (char *) TYPEALIGN(SystemPage(), next);
	gg_service->region = next;
	gg_service->region_bytes = RegionBytes();
	gg_service->slots = (GgSlot *) next;
	next += SlotsBytes();
	gg_service->chunks = (GgChunk *) next;
	next += ChunksBytes();
	for (uint32 i = 0; i < ndevices * gg_service->nslots; i++)
	{
		GgSlot	   *slot = &gg_service->slots[i];

		memset(slot, 0, offsetof(GgSlot, keys));
		pg_atomic_init_u64(&slot->word, GG_SLOT_FREE);
		pg_atomic_init_u32(&slot->sleeping, 0);
		slot->chunk = -1;
	}
	for (int i = 0; i < ndevices; i++)
	{
		gg_service->devices[i]->slots = gg_service->slots + i * gg_service->nslots;
		gg_service->devices[i]->staging = next;
		next += GG_STAGE_CHUNK * GG_STAGE_CHUNKS;
	}
}

static void
StartShmem(void)
{
	bool		found;

	gg_service = ShmemInitStruct("gpugraph service", ServiceBytes(), &found);
	if (!found)
		InitService();
	StartIndexStats();
}

void
GgDeviceLayout(const GgDevice *device, gg_serve_layout *layout)
{
	layout->slots = (char *) device->slots;
	layout->slot_bytes = sizeof(GgSlot);
	layout->nslots = gg_service->nslots;
	layout->done = offsetof(GgSlot, done);
}

StaticAssertDecl(offsetof(GgSlot, done) % 64 == 0 && offsetof(GgSlot, keys) % 64 == 0 &&
				 offsetof(GgSlot, query) % 64 == 0 && sizeof(GgSlot) % 64 == 0,
				 "devices want aligned arrays");

bool
GgFitsSlot(const gg_request *request)
{
	return request->count == 1 && !gg_request_is_deep(request) &&
		gg_request_lists(request) * request->params.k <= GG_SLOT_KEYS;
}

bool
GgGroupFitsSlot(const gg_request *request, uint32 ntargets)
{
	return ntargets <= GG_SLOT_TARGETS && ntargets * request->params.k <= GG_SLOT_KEYS;
}

GgGroupTarget *
GgSlotTargets(GgSlot *slot)
{
	return slot->chunk < 0 ? slot->targets :
		(GgGroupTarget *) gg_service->chunks[slot->chunk].body;
}

static uint64
OffsetOf(const void *pointer)
{
	return (const char *) pointer - gg_service->region;
}

/* A group whose request has been placed in the slot. */
static bool
PlaceGroup(const GgSlot *slot, gg_request *request)
{
	const Size	targets = GgTargetBytes(slot->ntargets);
	const Size	keys = (Size) slot->ntargets * request->params.k * sizeof(uint64);

	if (slot->chunk < 0)
		return GgGroupFitsSlot(request, slot->ntargets);
	request->keys = OffsetOf(gg_service->chunks[slot->chunk].body) + targets;
	return slot->ntargets <= GG_SERVE_MAX_GROUP && targets + keys <= GG_CHUNK_BODY;
}

bool
GgPlaceRequest(const GgSlot *slot, uint32 ntids, gg_request *request)
{
	uint32		k = request->params.k;
	uint32		nlists = gg_request_lists(request);
	const GgChunk *chunk;

	request->queries = OffsetOf(slot->query);
	request->keys = OffsetOf(slot->keys);
	if (slot->ntargets > 0)
		return PlaceGroup(slot, request);
	if (slot->chunk < 0)
		return GgFitsSlot(request);
	if (ntids > GgMostTids(k, nlists) ||
		GgBodyBytes(request->count, request->dim, k, nlists) > GG_CHUNK_BODY)
		return false;
	chunk = &gg_service->chunks[slot->chunk];
	request->keys = OffsetOf(chunk->body) + GgBodyBytes(request->count, request->dim, k, 0);
	if (request->matches != 0)
		request->matches = OffsetOf(chunk->matches);
	if (request->count > 1)
		request->queries = OffsetOf(chunk->body);
	if (request->filter != 0)
		request->filter = OffsetOf(&chunk->filter);
	if (request->tids != 0)
		request->tids = OffsetOf(chunk->body + GG_CHUNK_BODY) - ntids * sizeof(uint64);
	return true;
}

/*
 * The worker sets sleeping, then looks for work.  Its callers make work, then look at sleeping.
 * Full barriers lie in between on both sides, so that one of them sees the other.
 */
void
GgWakeDevice(GgDevice *device)
{
	Latch	   *latch;

	pg_memory_barrier();
	if (pg_atomic_read_u32(&device->sleeping) == 0)
		return;
	/*
	 * The latch of a worker that is ending belongs to its PGPROC, or to the next owner of that,
	 * which then wakes up in vain.
	 */
	latch = *(Latch *volatile *) &device->latch;
	if (latch != NULL)
		SetLatch(latch);
}

/*
 * A container or a service manager may leave this process fewer processors than the host has, and a
 * process that spins takes one of them.
 */
int
GgProcessors(void)
{
	static int	processors = 0;

#ifdef CPU_COUNT
	if (processors == 0)
	{
		cpu_set_t	ours;

		if (sched_getaffinity(0, sizeof(ours), &ours) == 0)
			processors = CPU_COUNT(&ours);
	}
#endif
	if (processors == 0)
		processors = (int) sysconf(_SC_NPROCESSORS_ONLN);
	return processors;
}

/* ---- start ------------------------------------------------------------------ */

static void
DefineSettings(bool preloading)
{
	/*
	 * Without preloading the service's own settings mean nothing, but a configuration that has
	 * them is no mistake.
	 */
	GucContext	at_start = preloading ? PGC_POSTMASTER : PGC_SIGHUP;

	DefineCustomEnumVariable("gpugraph.service_engine",
							 "Sets what the GPU service's workers run on.",
							 "\"cpu\" lets the CPU engine play a device, for tests.",
							 &gg_service_engine,
							 GG_SERVICE_CUDA, service_engine_values,
							 at_start, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("gpugraph.devices",
							   "Sets the GPUs that the GPU service uses.",
							   "\"all\", or device numbers separated by commas; "
							   "empty for no service.",
							   &gg_devices,
							   "all",
							   at_start, 0, CheckDevices, NULL, NULL);
	DefineCustomIntVariable("gpugraph.device_memory",
							"Sets how much memory of each GPU resident indexes may take, "
							"and a build beside them.",
							"0 means nine tenths of the GPU's memory.",
							&gg_device_memory_mb,
							0, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomEnumVariable("gpugraph.device_storage",
							 "Sets in which form a GPU holds indexes.",
							 "\"full\": rows; \"codes\": codes for searches, and rows beside these "
							 "or in the host's memory; \"auto\": rows, and where there is no room "
							 "codes with rows in the host's memory.",
							 &gg_device_storage,
							 GG_STORAGE_AUTO, device_storage_values,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("gpugraph.host_memory",
							"Sets how much of the host's memory each GPU may have pinned for rows.",
							"-1 means an eighth of what the server may have.",
							&gg_host_memory_mb,
							-1, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("gpugraph.device_timeout",
							"Sets after how long a GPU that does not answer is taken to hang.",
							"The worker of the GPU is then replaced. 0 means never.",
							&gg_device_timeout_ms,
							30000, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomBoolVariable("gpugraph.autoprewarm",
							 "Loads the indexes that were on a GPU again after a restart.",
							 NULL,
							 &gg_autoprewarm,
							 true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("gpugraph.max_residents",
							"Sets how many indexes each GPU may hold at a time.",
							"Each takes about a kilobyte of shared memory for each GPU.",
							&gg_max_residents,
							1024, 16, GG_MOST_RESIDENTS,
							at_start, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("gpugraph.answer_chunks",
							"Sets how many long answers of GPUs there is memory for at a time.",
							"Each takes 512 kB of shared memory.",
							&gg_answer_chunks,
							32, 1, 4096,
							at_start, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("gpugraph.load_workers",
							"Sets how many processes read a big index that is loaded to a GPU.",
							NULL,
							&gg_loaders,
							4, 1, 32,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("gpugraph.fault",
							 "Makes the GPU service fail, or a merge or VACUUM rest, for tests.",
							 NULL,
							 &gg_fault,
							 GG_FAULT_NONE, fault_values,
							 PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
}

/* i: the device's place in gg_service->devices. */
static void
DescribeWorker(BackgroundWorker *worker, int i, int number)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS;
	/* a hot standby is searched, too */
	worker->bgw_start_time = BgWorkerStart_ConsistentState;
	worker->bgw_restart_time = 1;
	snprintf(worker->bgw_library_name, sizeof(worker->bgw_library_name), "gpugraph");
	snprintf(worker->bgw_function_name, sizeof(worker->bgw_function_name), "GgWorkerMain");
	snprintf(worker->bgw_name, BGW_MAXLEN, "gpugraph device %d", number);
	snprintf(worker->bgw_type, BGW_MAXLEN, "gpugraph device");
	worker->bgw_main_arg = Int32GetDatum(i);
}

bool
GgStartWorker(GgDevice *device)
{
	BackgroundWorker worker;
	int			i = 0;

	while (gg_service->devices[i] != device)
		i++;
	DescribeWorker(&worker, i, device->number);
	return RegisterDynamicBackgroundWorker(&worker, NULL);
}

void
GgServiceInit(void)
{
	bool		preloading = process_shared_preload_libraries_in_progress;

	DefineSettings(preloading);
	if (!preloading)
		return;

	ndevices = Max(ParseDevices(gg_devices, device_numbers), 0);
	if (ndevices == 0)
		return;
	if (GgServiceOps() == NULL)
	{
		ereport(LOG,
				(errmsg("gpugraph was built without CUDA: there will be no GPU service"),
				 errhint("Build gpugraph with nvcc, or leave it out of "
						 "shared_preload_libraries.")));
		return;
	}
	GgUseSharedMemory(RequestShmem, StartShmem);
	for (int i = 0; i < ndevices; i++)
	{
		BackgroundWorker worker;

		DescribeWorker(&worker, i, device_numbers[i]);
		RegisterBackgroundWorker(&worker);
	}
}
