/*
 * loader.c
 *		From relation pages to staging chunks: dynamic workers; and from a builder's memory, GgLoadBegin() and so on.
 *
 * A loader connects to the index's database as nobody in particular, looks whether the index is what was asked for, tells the
 * worker the shapes of its lists, and once memory for them is there copies page payloads into staging chunks. An array's pages are
 * its bytes in order (format.h), so a chunk is a run of pages put end to end.
 *
 * A unit is what fits one chunk, or less.  Readers of one load take units from a counter in shared memory; a big index has several
 * readers (gpugraph.load_workers), which the first one starts.
 *
 * Locks: AccessShareLock on the index, for one unit at a time.  So DROP, TRUNCATE and REINDEX wait for 4 MB at
 * most; the next unit then finds another file, or none, and the load ends quietly.  No snapshot is held either: VACUUM and
 * merges may recycle extents meanwhile, which the stamps of their pages tell.  Graph ids are checked here,
 * once, and never again: kernels trust what the device holds.
 *
 * Rows of the delta that VACUUM has cleared are loaded as NaN, which comes last in every order.
 *
 * A load that fails at any point, or whose processes die at any point, is given up by setting the ABORT flag of its word;
 * the upload thread then frees the device's memory, and the worker the entry.
 */
#include "service/resident.h"

#include <math.h>

#include "access/xact.h"
#include "access/relation.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define PAGES_PER_UNIT		(GG_STAGE_CHUNK / GG_PAGE_PAYLOAD)

/* Or less where a reader's share (gpugraph.load_reader_pages) is small: with so many each, readers end at about the same time. */
#define UNITS_PER_READER	8

/* gpugraph.fault = load_stall */
#define STALL_US			1000000

/* How long to sleep when all chunks are full: less than the upload takes for one would be in vain. */
#define CHUNK_WAIT_US		100
#define WAIT_MS				2

/*
 * How long a builder waits for one step of the service: for memory, for a free chunk, for the end.  Each takes a second at most
 * where the device works; where it does not, CREATE INDEX has done what it has to do, and must not wait for it.
 */
#define BUILDER_MOST_US		10000000

struct GgLoad
{
	GgDevice   *device;
	int			device_number;
	int			number;
	uint32		serial;
	uint32		entry;
	uint32		use;
	int			filling;		/* chunk that we fill, or -1 */
	bool		over;			/* the load has ended without us */
	bool		helper;			/* not the reader that opens and finishes the load */
	bool		in_unit;		/* claimed, and not handed over yet */
	bool		builder;
	bool		let_go;			/* builders: the worker knows that we are through with it */
	SubTransactionId subxact;	/* builders: what it goes with */
	GgLoad	   *next;			/* builders: pending_loads */
};

static inline GgLoadJob *
JobOf(const GgLoad *load)
{
	return &load->device->loads_under_way[load->number];
}

/* The state of our load; FREE when it is not ours any more. */
static GgLoadState
StateOf(const GgLoad *load)
{
	uint64		word = GgLoadWord(JobOf(load));

	if (GgLoadWordSerial(word) != load->serial)
		return GG_LOAD_FREE;
	return GgLoadWordState(word);
}

/* A worker that has failed gives its loads up only when its successor starts, which may be a minute later. */
static bool
IsUp(const GgLoad *load)
{
	return pg_atomic_read_u32(&load->device->state) == GG_DEVICE_UP;
}

static bool
IsOpen(const GgLoad *load)
{
	uint64		word = GgLoadWord(JobOf(load));

	return GgLoadWordSerial(word) == load->serial && GgLoadWordState(word) == GG_LOAD_OPEN &&
		!(word & GG_LOAD_ABORT) && IsUp(load);
}

/* ---- giving up ------------------------------------------------------------ */

/* Atomics only: also called while a process ends. */
static void
GiveUp(GgLoad *load, bool quiet, const char *error)
{
	GgLoadJob  *job = JobOf(load);
	uint64		word = GgLoadWord(job);

	if (load->filling >= 0)
		pg_atomic_write_u32(&load->device->chunks[load->filling].state, GG_CHUNK_FREE);
	load->filling = -1;
	if (load->over || GgLoadWordSerial(word) != load->serial)
		return;
	load->over = true;
	if (!(word & GG_LOAD_ABORT))
	{
		if (quiet)
			job->quiet = true;
		else if (job->error[0] == '\0')
			strlcpy(job->error, error, sizeof(job->error));
		pg_write_barrier();
	}
	GgLoadFlag(job, load->serial, GG_LOAD_ABORT);
	GgResidentNotify(load->device);
}

/* A builder gives up what it has waited for since then, for too long. */
static bool
OutOfPatience(GgLoad *load, uint64 since_us)
{
	if (!load->builder || GgNowMicros() - since_us < BUILDER_MOST_US)
		return false;
	GiveUp(load, true, NULL);
	return true;
}

/* ---- chunks ------------------------------------------------------------------ */

/* A chunk to fill; NULL when the load was given up meanwhile. */
static char *
GetChunk(GgLoad *load)
{
	uint64		start = GgNowMicros();

	Assert(load->filling < 0);
	while (IsOpen(load) && !OutOfPatience(load, start))
	{
		for (int i = 0; i < GG_STAGE_CHUNKS; i++)
		{
			uint32		state = GG_CHUNK_FREE;

			if (pg_atomic_read_u32(&load->device->chunks[i].state) == GG_CHUNK_FREE &&
				pg_atomic_compare_exchange_u32(&load->device->chunks[i].state, &state, GgChunkFilling(MyProcPid)))
			{
				load->filling = i;
				return load->device->staging + (Size) i * GG_STAGE_CHUNK;
			}
		}
		CHECK_FOR_INTERRUPTS();
		pg_usleep(CHUNK_WAIT_US);
	}
	return NULL;
}

static void
PutChunk(GgLoad *load, uint32 list, gg_part part, uint64 offset, uint64 bytes)
{
	GgStageChunk *chunk = &load->device->chunks[load->filling];

	chunk->load = load->number;
	chunk->serial = load->serial;
	chunk->list = list;
	chunk->part = part;
	chunk->offset = offset;
	chunk->bytes = bytes;
	pg_write_barrier();
	pg_atomic_write_u32(&chunk->state, GG_CHUNK_FILLED);
	load->filling = -1;
}

static void
FreeChunk(GgLoad *load)
{
	pg_atomic_write_u32(&load->device->chunks[load->filling].state, GG_CHUNK_FREE);
	load->filling = -1;
}

/* ---- shapes -------------------------------------------------------------------- */

/* Put down what is to be loaded: a list a segment, and one for the delta's full pages. */
static void
DescribeLoad(GgLoadJob *job, Relation index, const GgMetaPageData *meta)
{
	uint32		n = meta->nsegments;

	job->key.locator = GgLocator(index);
	job->key.instance = meta->instance;
	job->key.database = GgDatabaseStamp();
	job->key.generation = meta->generation;
	strlcpy(job->name, RelationGetRelationName(index), sizeof(job->name));
	job->unit_pages = Min(PAGES_PER_UNIT, Max(1, gg_load_reader_pages / UNITS_PER_READER));
	job->nsegments = meta->nsegments;
	job->vacuum_epoch = meta->vacuum_epoch;
	job->delta_first = meta->delta_first;
	job->delta_pages = GgFullDeltaPages(meta);
	memset(job->lists, 0, sizeof(job->lists));
	for (uint32 i = 0; i < n; i++)
	{
		GgLoadList *list = &job->lists[i];

		list->segment = meta->segments[i].id;
		list->n = meta->segments[i].nodes;
		list->shape.capacity = list->n;
		list->shape.dim = meta->dimensions;
		list->shape.element = (gg_element) meta->element;
		list->shape.metric = (gg_metric) meta->metric;
		list->shape.degree = meta->graph_degree;
		list->shape.npivots = meta->segments[i].npivots;
	}
	if (job->delta_pages > 0)
	{
		GgLoadList *list = &job->lists[n];

		list->segment = GG_NO_SEGMENT;
		list->n = GgDeltaRows(meta, job->delta_pages);
		list->shape.capacity = list->n;
		list->shape.dim = meta->dimensions;
		list->shape.element = (gg_element) meta->element;
		list->shape.metric = (gg_metric) meta->metric;
		n++;
	}
	job->nlists = n;
}

/* Mark what the copy to be refreshed has already.  False when that copy is gone. */
static bool
MarkKept(GgDevice *device, GgLoadJob *job)
{
	const GgResident *resident = &device->residents[job->entry];
	bool		same;

	LWLockAcquire(device->lock, LW_SHARED);
	same = resident->use == job->use;
	if (same && job->refresh)
	{
		same = resident->state == GG_RESIDENT_READY && resident->key.instance == job->key.instance;
		for (uint32 i = 0; i < job->nsegments; i++)
			for (uint32 j = 0; j < resident->nsegments; j++)
				if (resident->segments[j] == job->lists[i].segment)
					job->lists[i].kept = true;
	}
	else if (same)
	{
		/* preloaded by a list that knew less: somebody may have asked for the same meanwhile */
		for (uint32 i = 0; i < pg_atomic_read_u32(&device->nresidents); i++)
		{
			const GgResident *other = &device->residents[i];

			if (i != job->entry && other->state != GG_RESIDENT_FREE && other->state != GG_RESIDENT_FAILED &&
				GgSameLocator(&other->key.locator, &job->key.locator) &&
				((other->key.instance == job->key.instance && other->key.database == job->key.database) ||
				 other->key.instance == 0))
				same = false;
		}
	}
	LWLockRelease(device->lock);
	return same;
}

/* Wait until chunks are accepted; false when the load was ended instead. */
static bool
WaitUntilOpen(GgLoad *load)
{
	uint64		start = GgNowMicros();

	GgResidentNotify(load->device);
	for (;;)
	{
		GgLoadState state = StateOf(load);

		if (state == GG_LOAD_OPEN)
			return true;
		if (state != GG_LOAD_SHAPED && state != GG_LOAD_CREATE && state != GG_LOAD_BROKEN)
			return false;
		if (!IsUp(load) || OutOfPatience(load, start))
			return false;
		GgLoadSleep(WAIT_MS);
	}
}

/* ---- units ------------------------------------------------------------------------ */

typedef struct Unit
{
	uint32		list;
	gg_part		part;
	GgKind		kind;
	uint32		first;			/* page of the array; of the delta: page since the load's first */
	uint32		npages;
	uint64		bytes;			/* of the whole array */
} Unit;

static const struct
{
	gg_part		part;
	GgKind		kind;
}			segment_parts[] = {
	{GG_PART_ROWS, GG_KIND_VECTORS},
	{GG_PART_ADJACENCY, GG_KIND_ADJACENCY},
	{GG_PART_PIVOTS, GG_KIND_PIVOTS}
};

static uint64
PartBytes(const GgLoadList *list, gg_part part)
{
	switch (part)
	{
		case GG_PART_ROWS:
			return (uint64) list->n * list->shape.dim * gg_element_size(list->shape.element);
		case GG_PART_ADJACENCY:
			return (uint64) list->n * list->shape.degree * sizeof(uint32);
		case GG_PART_PIVOTS:
			return (uint64) list->shape.npivots * sizeof(GgPivotEntry);
	}
	return 0;
}

/* Delta pages whose rows fit one chunk; whole rows. */
static uint32
DeltaPagesPerUnit(const GgLoadJob *job, const GgMetaPageData *meta)
{
	uint32		npages = GgDeltaPagesPerRow(meta);
	uint32		rows = GG_STAGE_CHUNK / GgRowBytes(meta);

	return Max(1, Min(rows / GgDeltaRowsPerPage(meta), job->unit_pages / npages)) * npages;
}

/* Unit number u of a load; false behind the last one. */
static bool
FindUnit(const GgLoadJob *job, const GgMetaPageData *meta, uint32 u, Unit *unit)
{
	/* a helper that starts late may find here another load, not described yet; it will get no unit of that */
	uint32		unit_pages = Max(1, job->unit_pages);

	for (uint32 i = 0; i < job->nlists; i++)
	{
		const GgLoadList *list = &job->lists[i];

		if (list->kept || list->n == 0)
			continue;
		unit->list = i;
		if (list->segment == GG_NO_SEGMENT)
		{
			uint32		per_unit = DeltaPagesPerUnit(job, meta);
			uint32		units = (job->delta_pages + per_unit - 1) / per_unit;

			if (u < units)
			{
				unit->part = GG_PART_ROWS;
				unit->kind = GG_KIND_DELTA;
				unit->first = u * per_unit;
				unit->npages = Min(per_unit, job->delta_pages - unit->first);
				return true;
			}
			u -= units;
			continue;
		}
		for (int p = 0; p < lengthof(segment_parts); p++)
		{
			uint64		bytes = PartBytes(list, segment_parts[p].part);
			uint32		npages = (uint32) GgArrayPages(bytes);
			uint32		units = (npages + unit_pages - 1) / unit_pages;

			if (u < units)
			{
				unit->part = segment_parts[p].part;
				unit->kind = segment_parts[p].kind;
				unit->first = u * unit_pages;
				unit->npages = Min(unit_pages, npages - unit->first);
				unit->bytes = bytes;
				return true;
			}
			u -= units;
		}
	}
	return false;
}

static uint32
CountUnits(const GgLoadJob *job, const GgMetaPageData *meta, uint64 *npages)
{
	uint32		low = 0;
	Unit		unit;

	*npages = 0;
	while (FindUnit(job, meta, low, &unit))
	{
		*npages += unit.npages;
		low++;
	}
	return low;
}

/* Take the next unit of a load: its number, or total when there is none left. */
static uint32
ClaimUnit(GgLoadJob *job, uint32 serial, uint32 total)
{
	uint64		claimed = pg_atomic_read_u64(&job->claimed);

	while ((uint32) (claimed >> 32) == serial && (uint32) claimed < total)
		if (pg_atomic_compare_exchange_u64(&job->claimed, &claimed, claimed + 1))
			return (uint32) claimed;
	return total;
}

static void
CountFilled(GgLoadJob *job, uint32 serial)
{
	uint64		filled = pg_atomic_read_u64(&job->filled);

	while ((uint32) (filled >> 32) == serial)
		if (pg_atomic_compare_exchange_u64(&job->filled, &filled, filled + 1))
			return;
}

/* ---- reading ------------------------------------------------------------------------ */

typedef struct Reader
{
	GgLoad	   *load;
	GgLoadJob  *job;
	GgMetaPageData *meta;
	BufferAccessStrategy strategy;
	char	   *scratch;		/* a delta row longer than a page */
} Reader;

/* The index under its lock, as long as it is the one; NULL when it is gone or another by now. */
static Relation
OpenIndex(Oid relation, const GgRelFileLocator *locator)
{
	Relation	index = try_relation_open(relation, AccessShareLock);

	if (index == NULL)
		return NULL;
	if (index->rd_rel->relkind != RELKIND_INDEX || index->rd_indam == NULL || index->rd_indam->ambuild != ggbuild ||
		(locator != NULL && !GgSameLocator(&GgLocator(index), locator)))
	{
		relation_close(index, AccessShareLock);
		return NULL;
	}
	return index;
}

/* One page, its stamp checked: false when it is not the one (recycled since, or never right). */
static bool
ReadPage(Reader *reader, Relation index, const GgArray *array, uint32 number, Buffer *buffer)
{
	BlockNumber blkno = GgArrayBlock(array, number);

	if (blkno == InvalidBlockNumber)
		return false;
	*buffer = ReadBufferExtended(index, MAIN_FORKNUM, blkno, RBM_NORMAL, reader->strategy);
	LockBuffer(*buffer, BUFFER_LOCK_SHARE);
	if (GgStampMatches(BufferGetPage(*buffer), reader->meta->instance, array->segment, array->kind, number))
		return true;
	UnlockReleaseBuffer(*buffer);
	return false;
}

/* Is no id out of range?  GG_NO_NODE + 1 is 0. */
static bool
IdsAreValid(const uint32 *ids, Size count, uint32 limit)
{
	uint32		worst = 0;

	for (Size i = 0; i < count; i++)
		worst = Max(worst, ids[i] + 1);
	return worst <= limit;
}

static bool
PivotsAreValid(const uint32 *words, Size count, uint64 first, const GgLoadList *list)
{
	const uint32 entry_words = sizeof(GgPivotEntry) / sizeof(uint32);

	for (Size i = 0; i < count; i++)
	{
		if ((first + i) % entry_words == 0)
		{
			if (words[i] >= list->n)
				return false;
		}
		else if (words[i] != GG_NO_NODE && words[i] >= list->shape.npivots)
			return false;
	}
	return true;
}

/* A damaged directory may name no extents. */
static void
FreeArray(GgArray *array)
{
	if (array->extents != NULL)
		pfree(array->extents);
}

/* A run of an array's pages; returns its bytes, 0 when a page is not what it should be. */
static uint64
ReadSegmentUnit(Reader *reader, Relation index, const Unit *unit, char *chunk, uint64 *offset, const char **wrong)
{
	const GgLoadList *list = &reader->job->lists[unit->list];
	uint64		bytes;
	GgArray		array;

	*offset = (uint64) unit->first * GG_PAGE_PAYLOAD;
	bytes = Min((uint64) unit->npages * GG_PAGE_PAYLOAD, unit->bytes - *offset);
	GgFindArray(reader->meta, list->segment, unit->kind, &array);
	for (uint32 i = 0; i < unit->npages; i++)
	{
		uint64		done = (uint64) i * GG_PAGE_PAYLOAD;
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		if (!ReadPage(reader, index, &array, unit->first + i, &buffer))
		{
			FreeArray(&array);
			return 0;
		}
		memcpy(chunk + done, PageGetContents(BufferGetPage(buffer)), Min(GG_PAGE_PAYLOAD, bytes - done));
		UnlockReleaseBuffer(buffer);
	}
	FreeArray(&array);

	if ((unit->kind == GG_KIND_ADJACENCY && !IdsAreValid((uint32 *) chunk, bytes / sizeof(uint32), list->n)) ||
		(unit->kind == GG_KIND_PIVOTS &&
		 !PivotsAreValid((uint32 *) chunk, bytes / sizeof(uint32), *offset / sizeof(uint32), list)))
	{
		*wrong = "its graph names a node that is not there: see gpugraph_check()";
		return 0;
	}
	return bytes;
}

static void
PutNaN(const GgMetaPageData *meta, char *row)
{
	if (meta->element == GG_ELEMENT_F16)
		for (uint32 i = 0; i < meta->dimensions; i++)
			((uint16 *) row)[i] = 0x7E00;
	else
		for (uint32 i = 0; i < meta->dimensions; i++)
			((float *) row)[i] = (float) NAN;
}

/* Rows of a run of full delta pages; likewise. */
static uint64
ReadDeltaUnit(Reader *reader, Relation index, const Unit *unit, char *chunk, uint64 *offset)
{
	const GgMetaPageData *meta = reader->meta;
	uint32		npages = GgDeltaPagesPerRow(meta);
	uint32		per_page = GgDeltaRowsPerPage(meta);
	Size		row_bytes = GgRowBytes(meta);
	char	   *out = chunk;
	GgArray		array;

	*offset = (uint64) (unit->first / npages) * per_page * row_bytes;
	GgFindArray(meta, GG_NO_SEGMENT, GG_KIND_DELTA, &array);
	for (uint32 i = 0; i < unit->npages; i += npages)
	{
		uint32		number = meta->delta_first + unit->first + i;
		Buffer		buffer;
		Page		page;
		uint32		count;
		bool		alive = true;

		CHECK_FOR_INTERRUPTS();
		if (!ReadPage(reader, index, &array, number, &buffer))
		{
			FreeArray(&array);
			return 0;
		}
		page = BufferGetPage(buffer);
		count = GgPageGetStamp(page)->count;
		for (uint32 slot = 0; slot < per_page; slot++)
		{
			const GgDeltaRow *row = (GgDeltaRow *) (PageGetContents(page) + slot * GgDeltaRowBytes(meta));

			alive = slot < count && ItemPointerIsValid(&row->tid);
			if (!alive)
				PutNaN(meta, out);
			else
				memcpy(out, row + 1, npages == 1 ? row_bytes : GG_PAGE_PAYLOAD - sizeof(GgDeltaRow));
			if (npages == 1)
				out += row_bytes;
		}
		UnlockReleaseBuffer(buffer);
		if (npages == 1)
			continue;

		/* the rest of a row longer than a page */
		for (uint32 p = 1; p < npages && alive; p++)
		{
			Size		done = (Size) p * GG_PAGE_PAYLOAD - sizeof(GgDeltaRow);

			if (!ReadPage(reader, index, &array, number + p, &buffer))
			{
				FreeArray(&array);
				return 0;
			}
			memcpy(out + done, PageGetContents(BufferGetPage(buffer)), Min(GG_PAGE_PAYLOAD, row_bytes - done));
			UnlockReleaseBuffer(buffer);
		}
		out += row_bytes;
	}
	FreeArray(&array);
	return out - chunk;
}

/* Read one unit into a chunk and hand it over.  False when the load is over. */
static bool
LoadUnit(Reader *reader, const Unit *unit)
{
	GgLoad	   *load = reader->load;
	char	   *chunk = GetChunk(load);
	const char *wrong = NULL;
	Relation	index;
	uint64		offset;
	uint64		bytes = 0;

	if (chunk == NULL)
		return false;
	index = OpenIndex(reader->job->relation, &reader->job->key.locator);
	if (index != NULL)
	{
		if (unit->kind == GG_KIND_DELTA)
			bytes = ReadDeltaUnit(reader, index, unit, chunk, &offset);
		else
			bytes = ReadSegmentUnit(reader, index, unit, chunk, &offset, &wrong);
		if (bytes == 0 && wrong == NULL)
		{
			GgMetaPageData *now = palloc(sizeof(GgMetaPageData));

			/* recycled, by a VACUUM or merge that took the directory's word for it? */
			GgReadMeta(index, now);
			if (now->instance == reader->meta->instance && now->generation == reader->meta->generation)
				wrong = "a page is not what its directory says: see gpugraph_check()";
			pfree(now);
		}
		relation_close(index, AccessShareLock);
	}
	InvalidateCatalogSnapshot();
	if (bytes == 0)
	{
		FreeChunk(load);
		GiveUp(load, wrong == NULL, wrong);
		return false;
	}
	PutChunk(load, unit->list, unit->part, offset, bytes);
	CountFilled(reader->job, load->serial);
	return true;
}

/* gpugraph.fault = load_stall: with a unit in hand, which nobody else will bring. */
static void
Stall(const GgLoad *load)
{
	for (uint64 start = GgNowMicros(); GgNowMicros() - start < STALL_US && IsOpen(load);)
		GgLoadSleep(WAIT_MS);
}

/* Take units until there is none left.  False when the load is over. */
static bool
LoadUnits(Reader *reader, uint32 total)
{
	GgLoadJob  *job = reader->job;
	bool		stalled = false;
	uint32		u;
	Unit		unit;

	while ((u = ClaimUnit(job, reader->load->serial, total)) < total)
	{
		if (job->fault == GG_FAULT_LOAD && u >= total / 2)
		{
			GiveUp(reader->load, false, "the loader failed, as gpugraph.fault asks for");
			return false;
		}
		reader->load->in_unit = true;
		if (job->fault == GG_FAULT_LOAD_STALL && u >= total / 2 && !stalled)
		{
			Stall(reader->load);
			stalled = true;
		}
		if (!FindUnit(job, reader->meta, u, &unit) || !LoadUnit(reader, &unit))
			return false;
		reader->load->in_unit = false;
	}
	return true;
}

/* ---- the dynamic worker ---------------------------------------------------------------- */

static GgLoad my_load;

/* Whatever ends the process ends its load, unless that has all it needs of us. */
static void
LoaderExit(int code, Datum arg)
{
	GgLoadState state = StateOf(&my_load);

	if (my_load.helper && !my_load.in_unit)
		return;
	if (state == GG_LOAD_ASSIGNED || state == GG_LOAD_SHAPED || state == GG_LOAD_CREATE || state == GG_LOAD_OPEN)
		GiveUp(&my_load, false, "its loader was terminated");
}

bool
GgStartLoader(int device, int load, uint32 serial, Oid database, bool helper, BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;
	GgLoaderExtra extra = {serial, helper};

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "gpugraph loader for device %d",
			 gg_service->devices[device]->number);
	snprintf(worker.bgw_type, sizeof(worker.bgw_type), "gpugraph loader");
	strlcpy(worker.bgw_library_name, "gpugraph", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "GgLoaderMain", sizeof(worker.bgw_function_name));
	worker.bgw_main_arg = Int32GetDatum(device << 8 | load);
	memcpy(worker.bgw_extra, &extra, sizeof(extra));
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

static void
StartHelpers(const GgLoad *load, uint64 npages)
{
	int			readers = (int) Min((uint64) gg_loaders, npages / gg_load_reader_pages);

	for (int i = 1; i < readers; i++)
		if (!GgStartLoader(load->device_number, load->number, load->serial, JobOf(load)->database, true, NULL))
			break;				/* fewer have to do */
}

/* All of a loader's work; a helper's load has been described and opened by another. */
static void
Load(GgLoad *load)
{
	GgLoadJob  *job = JobOf(load);
	bool		helper = load->helper;
	Reader		reader;
	Relation	index;
	uint64		npages;
	uint32		total;

	reader.load = load;
	reader.job = job;
	reader.meta = palloc(sizeof(GgMetaPageData));
	index = OpenIndex(job->relation, helper || job->key.instance != 0 ? &job->key.locator : NULL);
	if (index == NULL)
	{
		if (!helper)
			GiveUp(load, true, NULL);
		return;
	}
	GgReadMeta(index, reader.meta);
	pgstat_report_activity(STATE_RUNNING, RelationGetRelationName(index));
	reader.strategy = RelationGetNumberOfBlocks(index) > NBuffers / 4 ? GetAccessStrategy(BAS_BULKREAD) : NULL;
	if (helper)
	{
		if (job->key.instance != reader.meta->instance || job->key.generation != reader.meta->generation)
		{
			/* the first reader finds out itself */
			relation_close(index, AccessShareLock);
			return;
		}
	}
	else
	{
		GgResidentKey wanted = job->key;

		DescribeLoad(job, index, reader.meta);
		if ((wanted.instance != 0 &&
			 (wanted.instance != job->key.instance || wanted.database != job->key.database)) ||
			!MarkKept(load->device, job))
		{
			relation_close(index, AccessShareLock);
			GiveUp(load, true, NULL);
			return;
		}
		pg_write_barrier();
		if (!GgLoadMove(job, load->serial, GG_LOAD_ASSIGNED, GG_LOAD_SHAPED))
		{
			relation_close(index, AccessShareLock);
			return;
		}
	}
	relation_close(index, AccessShareLock);
	InvalidateCatalogSnapshot();

	total = CountUnits(job, reader.meta, &npages);
	if (!helper)
	{
		if (!WaitUntilOpen(load))
			return;
		if (total > 1)
			StartHelpers(load, npages);
	}
	if (!LoadUnits(&reader, total) || helper)
		return;

	/* helpers may have units in hand */
	while (IsOpen(load) && (uint32) pg_atomic_read_u64(&job->filled) < total)
		GgLoadSleep(1);
	if (IsOpen(load))
		GgLoadMove(job, load->serial, GG_LOAD_OPEN, GG_LOAD_FINISH);
}

/*
 * An error is told to the worker, which logs it; the process itself ends without another word.
 */
void
GgLoaderMain(Datum arg)
{
	GgLoaderExtra extra;
	int			number = DatumGetInt32(arg) >> 8;
	int			load = DatumGetInt32(arg) & 0xFF;
	GgLoadJob  *job;

	memcpy(&extra, MyBgworkerEntry->bgw_extra, sizeof(extra));
	if (gg_service == NULL || number >= gg_service->ndevices || gg_service->devices[number] == NULL)
		return;
	my_load.device = gg_service->devices[number];
	my_load.device_number = number;
	my_load.number = load;
	my_load.serial = extra.serial;
	my_load.filling = -1;
	my_load.helper = extra.helper;
	job = JobOf(&my_load);
	if (StateOf(&my_load) == GG_LOAD_FREE)
		return;
	before_shmem_exit(LoaderExit, (Datum) 0);

	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(job->database, InvalidOid, 0);

	/* PostgreSQL 17: what is meant for clients' transactions would end every load that takes longer, again and again */
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);

	StartTransactionCommand();
	PG_TRY();
	{
		Load(&my_load);
	}
	PG_CATCH();
	{
		ErrorData  *edata;
		char		error[160];

		MemoryContextSwitchTo(TopMemoryContext);
		edata = CopyErrorData();
		FlushErrorState();
		snprintf(error, sizeof(error), "%s", edata->message);
		if (!my_load.helper || my_load.in_unit)
			GiveUp(&my_load, false, error);
		AbortCurrentTransaction();
		return;
	}
	PG_END_TRY();
	CommitTransactionCommand();
}

/* ---- a builder's load -------------------------------------------------------------------- */

static GgLoad *pending_loads = NULL;

/*
 * With the transaction goes what it loaded: unfinished loads, and on abort finished ones, too, whose relation
 * nobody will ever see.
 */
static void
EndPending(bool commit, SubTransactionId subxact, SubTransactionId parent)
{
	GgLoad	  **link = &pending_loads;

	while (*link != NULL)
	{
		GgLoad	   *load = *link;

		if (subxact != InvalidSubTransactionId && load->subxact != subxact)
		{
			link = &load->next;
			continue;
		}
		if (commit && parent != InvalidSubTransactionId)
		{
			load->subxact = parent;
			link = &load->next;
			continue;
		}
		*link = load->next;
		if (!commit)
		{
			GgLoadAbort(load);
			GgForgetEntry(load->device, load->entry, load->use);
		}
		pfree(load);
	}
}

static void
XactEnd(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_PARALLEL_ABORT)
		EndPending(false, InvalidSubTransactionId, InvalidSubTransactionId);
	else if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_PARALLEL_COMMIT || event == XACT_EVENT_PREPARE)
		EndPending(true, InvalidSubTransactionId, InvalidSubTransactionId);
}

static void
SubXactEnd(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		EndPending(false, mine, parent);
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
		EndPending(true, mine, parent);
}

/* Take an entry and a load for it; false, with why, when there is none to be had. */
static bool
AssignLoad(GgLoad *load, Relation index, const GgMetaPageData *meta)
{
	GgDevice   *device = load->device;
	int			entry;
	int			number = -1;

	LWLockAcquire(device->lock, LW_EXCLUSIVE);
	entry = GgTakeEntry(device, false);
	if (entry >= 0)
	{
		GgResident *resident = &device->residents[entry];

		resident->key.locator = GgLocator(index);
		resident->key.instance = meta->instance;
		resident->key.database = GgDatabaseStamp();
		resident->key.generation = meta->generation;
		resident->database = MyDatabaseId;
		resident->relation = RelationGetRelid(index);
		strlcpy(resident->name, RelationGetRelationName(index), sizeof(resident->name));
		resident->fault = gg_fault;
		number = GgTakeLoad(device, entry, false, MyProcPid);
		if (number >= 0)
		{
			resident->state = GG_RESIDENT_LOADING;
			load->number = number;
			load->serial = GgLoadWordSerial(GgLoadWord(JobOf(load)));
			load->entry = entry;
			load->use = resident->use;
		}
	}
	LWLockRelease(device->lock);
	return number >= 0;
}

GgLoad *
GgLoadBegin(Relation index, const GgMetaPageData *meta, GgWhy *why)
{
	static bool registered = false;
	GgLoad		local;
	GgLoad	   *load;

	memset(&local, 0, sizeof(local));
	local.filling = -1;
	local.builder = true;
	if (gg_service == NULL || (local.device = GgChooseDevice(&local.device_number)) == NULL)
	{
		*why = GG_CPU_NO_SERVICE;
		return NULL;
	}
	if (RelationUsesLocalBuffers(index))
	{
		*why = GG_CPU_LOCAL;
		return NULL;
	}
	if (!registered)
	{
		RegisterXactCallback(XactEnd, NULL);
		RegisterSubXactCallback(SubXactEnd, NULL);
		registered = true;
	}
	load = MemoryContextAlloc(TopMemoryContext, sizeof(GgLoad));
	if (!AssignLoad(&local, index, meta))
	{
		pfree(load);
		*why = GG_CPU_BUSY;
		return NULL;
	}
	*load = local;
	load->subxact = GetCurrentSubTransactionId();
	load->next = pending_loads;
	pending_loads = load;

	DescribeLoad(JobOf(load), index, meta);
	pg_write_barrier();
	GgLoadMove(JobOf(load), load->serial, GG_LOAD_ASSIGNED, GG_LOAD_SHAPED);
	if (!WaitUntilOpen(load))
	{
		*why = StateOf(load) == GG_LOAD_ENDED ? JobOf(load)->why : GG_CPU_NO_SERVICE;
		GgLoadAbort(load);
		return NULL;
	}
	return load;
}

uint64
GgLoadNumber(const GgLoad *load)
{
	return ((uint64) load->serial << 32) | ((uint64) load->device_number << 16) | (uint64) load->number;
}

GgLoad *
GgLoadAttach(uint64 number)
{
	GgLoad	   *load = palloc0(sizeof(GgLoad));

	load->serial = (uint32) (number >> 32);
	load->device_number = (number >> 16) & 0xFFFF;
	load->device = gg_service->devices[load->device_number];
	load->number = number & 0xFFFF;
	load->filling = -1;
	load->builder = true;
	return load;
}

/* Of a load that has failed nothing is written, and GgLoadEnd() tells. */
void
GgLoadWrite(GgLoad *load, uint32 list, gg_part part, uint64 offset, const void *data, uint64 bytes)
{
	const char *src = data;

	while (bytes > 0)
	{
		uint64		piece = Min(bytes, GG_STAGE_CHUNK);
		char	   *chunk = GetChunk(load);

		if (chunk == NULL)
			return;
		memcpy(chunk, src, piece);
		PutChunk(load, list, part, offset, piece);
		src += piece;
		offset += piece;
		bytes -= piece;
	}
}

/* A load that this process has nothing more to do with; pending_loads keeps what has to go if the transaction aborts. */
static void
LetGo(GgLoad *load)
{
	if (!GgLoadMove(JobOf(load), load->serial, GG_LOAD_ENDED, GG_LOAD_FREE))
		GgLoadFlag(JobOf(load), load->serial, GG_LOAD_ORPHAN);
	load->over = load->let_go = true;
}

bool
GgLoadEnd(GgLoad *load)
{
	bool		ok = false;

	if (!load->over && GgLoadMove(JobOf(load), load->serial, GG_LOAD_OPEN, GG_LOAD_FINISH))
	{
		uint64		start = GgNowMicros();
		GgLoadState state;

		while ((state = StateOf(load)) != GG_LOAD_ENDED && state != GG_LOAD_FREE && IsUp(load) &&
			   !OutOfPatience(load, start))
			GgLoadSleep(WAIT_MS);
	}
	LWLockAcquire(load->device->lock, LW_SHARED);
	ok = load->device->residents[load->entry].use == load->use &&
		load->device->residents[load->entry].state == GG_RESIDENT_READY;
	LWLockRelease(load->device->lock);
	LetGo(load);
	return ok;
}

/* The handle itself is freed with its transaction. */
void
GgLoadAbort(GgLoad *load)
{
	if (load->let_go)
		return;
	GiveUp(load, true, NULL);
	LetGo(load);
}
