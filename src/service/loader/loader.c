/*
 * loader.c
 *		From relation pages to staging chunks: dynamic workers.
 *
 * A loader connects to the index's database without a role, and looks whether the index is what was
 * asked for.  It describes the index's lists to the worker.  Once memory for them is granted, it
 * copies page payloads into staging chunks.  An array's pages are its bytes in order (format.h), so
 * a chunk is a run of pages put end to end.
 *
 * A unit is what fits one chunk, or less.  Readers of one load take units from a counter in shared
 * memory.  A big index has several readers (gpugraph.load_workers), which the first one starts.
 *
 * Locks: AccessShareLock on the index, for one unit at a time.  So DROP, TRUNCATE and REINDEX wait
 * for 4 MB at most.  The next unit then finds another file, or none, and the load ends quietly.
 * While a process waits for the load, the loader keeps the lock from unit to unit.  A statement
 * that wants the index for itself has to wait for that process anyway, and would otherwise come
 * first at every unit.  The first reader's lock of the load lets the deadlock detector see such
 * waits.  All readers are one lock group, since each of them may be the one that the load waits
 * for.  No snapshot is held either.  VACUUM and merges may recycle extents meanwhile, which the
 * stamps of their pages tell.  Graph ids are checked here, once, and never again: kernels trust
 * what the device holds.
 *
 * Rows of the delta that VACUUM has cleared are loaded as NaN, which comes last in every order.
 *
 * Heads of rows are copied as they are at that time.  VACUUM may clear a TID later: the device's
 * TID is a hint, and the page decides.
 *
 * handover.c has the steps that loaders and builders share.
 */
#include "service/loader/handover.h"

#include <math.h>

#include "access/xact.h"
#include "access/relation.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/codes.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/*
 * Pages of an index that are worth another reader.  20000 pages are 160 MB, for which one reader
 * takes some 0.1 s of CPU time when they are in shared buffers.
 */
#define READER_PAGES		20000

/* gpugraph.fault = load_stall, and load_readers */
#define STALL_US			1000000

/* gpugraph.fault = load_readers: units so small that each reader of a small index has some */
#define FAULT_UNIT_PAGES	2

/*
 * A loader that waits for a lock looks for a deadlock this soon.  The detector can let the loader
 * go first, and until then every query on the index's table waits, too.
 */
#define LOADER_DEADLOCK_TIMEOUT	"100ms"

/*
 * A loader that has brought a refresh stays this long for the next one, and looks this often
 * whether another session wants its database.
 */
#define STAY_US				1000000
#define STAY_LOOK_MS		100

/* A load that waits this long for a lock ends quietly: a device has but GG_MAX_LOADS. */
#define LOADER_LOCK_TIMEOUT		"10s"

/* ---- shapes -------------------------------------------------------------------- */

/* Does another entry stand for the same index?  The lock is held. */
static bool
IsAskedForTwice(GgDevice *device, const GgLoadJob *job)
{
	for (uint32 i = 0; i < pg_atomic_read_u32(&device->nresidents); i++)
	{
		const GgResident *other = &device->residents[i];

		if (i == job->entry || other->state == GG_RESIDENT_FREE ||
			other->state == GG_RESIDENT_FAILED ||
			!GgSameLocator(&other->key.locator, &job->key.locator))
			continue;
		if (other->key.instance == 0 ||
			(other->key.instance == job->key.instance && other->key.database == job->key.database))
			return true;
	}
	return false;
}

/*
 * Mark what the version to be refreshed has already.  False when there is nothing to load now.
 */
static bool
MarkKept(GgDevice *device, GgLoadJob *job)
{
	const GgResident *resident = &device->residents[job->entry];
	bool		same;

	LWLockAcquire(device->lock, LW_SHARED);
	same = resident->use == job->use;
	if (same && job->refresh)
	{
		same = resident->state == GG_RESIDENT_READY &&
			resident->key.instance == job->key.instance;
		GgMarkKept(resident, job->key.generation, job);
	}
	else if (same)
	{
		/* an entry made from the list on disk has no instance, so there may be one more */
		same = !IsAskedForTwice(device, job);
	}
	LWLockRelease(device->lock);
	return same;
}

/* ---- units ------------------------------------------------------------------------ */

typedef struct Unit
{
	uint32		list;
	gg_part		part;
	uint32		word;			/* of a delta's GG_PART_FILTERS, which come word by word */
	GgKind		kind;
	uint32		owner;			/* segment or piece that the array belongs to */
	uint32		first;			/* page of the array; of the delta: page since the load's first */
	uint32		npages;
	uint64		bytes;			/* of the whole array */
	uint64		base;			/* where the array begins in the part */
} Unit;

/* Pages of a unit: what fits a chunk. */
static uint32
UnitPages(const GgLoadJob *job)
{
	if (job->fault == GG_FAULT_LOAD_READERS)
		return FAULT_UNIT_PAGES;
	return GG_STAGE_CHUNK / GG_PAGE_PAYLOAD;
}

/* Delta pages whose rows fit one chunk; whole rows only. */
static uint32
DeltaPagesPerUnit(const GgLoadJob *job, const GgMetaPageData *meta)
{
	uint32		npages = GgDeltaPagesPerRow(meta);
	uint32		rows = GG_STAGE_CHUNK / GgRowBytes(meta);

	return Max(1, Min(rows / GgDeltaRowsPerPage(meta), UnitPages(job) / npages)) * npages;
}

/* Unit number *u of an array.  When there are fewer, they are subtracted from *u. */
static bool
FindInArray(const GgLoadJob *job, uint64 bytes, uint32 *u, Unit *unit)
{
	uint32		unit_pages = UnitPages(job);
	uint32		npages = (uint32) GgArrayPages(bytes);
	uint32		units = (npages + unit_pages - 1) / unit_pages;

	if (*u >= units)
	{
		*u -= units;
		return false;
	}
	unit->first = *u * unit_pages;
	unit->npages = Min(unit_pages, npages - unit->first);
	unit->bytes = bytes;
	return true;
}

/* The same for what a device needs of a segment. */
static bool
FindInSegment(const GgLoadJob *job, const GgMetaPageData *meta, const GgLoadList *list, uint32 *u,
			  Unit *unit)
{
	const Size	node_bytes = list->by_codes ? GgCodeBytes(meta, meta->coded) : GgRowBytes(meta);

	unit->part = list->by_codes ? GG_PART_CODES : GG_PART_ROWS;
	unit->kind = list->by_codes ? GG_KIND_CODES : GG_KIND_VECTORS;
	unit->base = 0;
	for (int i = 0; i < meta->npieces; i++)
	{
		uint64		bytes = (uint64) meta->pieces[i].nodes * node_bytes;

		if (meta->pieces[i].segment != list->segment)
			continue;
		unit->owner = meta->pieces[i].id;
		if (FindInArray(job, bytes, u, unit))
			return true;
		unit->base += bytes;
	}

	unit->base = 0;
	unit->owner = list->segment;
	unit->part = GG_PART_ADJACENCY;
	unit->kind = GG_KIND_ADJACENCY;
	if (FindInArray(job, (uint64) list->n * list->shape.degree * sizeof(uint32), u, unit))
		return true;
	unit->part = GG_PART_PIVOTS;
	unit->kind = GG_KIND_PIVOTS;
	if (FindInArray(job, (uint64) list->shape.npivots * sizeof(GgPivotEntry), u, unit))
		return true;
	unit->part = GG_PART_TIDS;
	unit->kind = GG_KIND_TIDS;
	if (FindInArray(job, (uint64) list->shape.rows * sizeof(GgTidEntry), u, unit))
		return true;
	unit->part = GG_PART_FILTERS;
	unit->kind = GG_KIND_FILTERS;
	if (FindInArray(job, (uint64) list->shape.words * list->shape.rows * sizeof(int64), u, unit))
		return true;
	unit->part = GG_PART_OFFSETS;
	unit->kind = GG_KIND_OFFSETS;
	return list->shape.offsets &&
		FindInArray(job, ((uint64) list->n + 1) * sizeof(uint32), u, unit);
}

/* The same for what is new of the delta: its rows, then their heads, then each of their words. */
static bool
FindInDelta(const GgLoadJob *job, const GgMetaPageData *meta, uint32 *u, Unit *unit)
{
	uint32		per_unit = DeltaPagesPerUnit(job, meta);
	uint32		units = (job->delta_pages - job->delta_kept + per_unit - 1) / per_unit;
	uint32		all = units * (2 + meta->filter_words);

	if (*u >= all)
	{
		*u -= all;
		return false;
	}
	unit->part = *u < units ? GG_PART_ROWS : *u < 2 * units ? GG_PART_TIDS : GG_PART_FILTERS;
	unit->word = unit->part == GG_PART_FILTERS ? *u / units - 2 : 0;
	unit->kind = GG_KIND_DELTA;
	unit->first = job->delta_kept + *u % units * per_unit;
	unit->npages = Min(per_unit, job->delta_pages - unit->first);
	return true;
}

/* Unit number u of a load; false when there are fewer. */
static bool
FindUnit(const GgLoadJob *job, const GgMetaPageData *meta, uint32 u, Unit *unit)
{
	for (uint32 i = 0; i < job->nlists; i++)
	{
		const GgLoadList *list = &job->lists[i];

		if (!GgIsLoaded(list))
			continue;
		unit->list = i;
		if (list->segment == GG_NO_SEGMENT ? FindInDelta(job, meta, &u, unit) :
			FindInSegment(job, meta, list, &u, unit))
			return true;
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
	LOCKTAG		lock;			/* of the load */
	bool		kept;			/* the index is locked between units, too */
	BlockNumber length;			/* of the index while it is locked */
} Reader;

/* Open and lock the index; NULL when it is gone, or another by now. */
static Relation
OpenIndex(Oid relation, const GgRelFileLocator *locator)
{
	Relation	index = try_relation_open(relation, AccessShareLock);

	if (index == NULL)
		return NULL;
	if (index->rd_rel->relkind != RELKIND_INDEX || !GgIsGpugraph(index) ||
		(locator != NULL && !GgSameLocator(&GgLocator(index), locator)))
	{
		relation_close(index, AccessShareLock);
		return NULL;
	}
	return index;
}

/*
 * Read one page and check its stamp.  False: it is another page (recycled since, or corrupt).
 */
static bool
ReadPage(Reader *reader, Relation index, const GgArray *array, uint64 number, Buffer *buffer)
{
	BlockNumber blkno = GgArrayBlock(array, number);

	/* the end of the relation may have been given back since the directory was read */
	if (blkno == InvalidBlockNumber || blkno >= reader->length)
		return false;
	*buffer = ReadBufferExtended(index, MAIN_FORKNUM, blkno, RBM_NORMAL, reader->strategy);
	LockBuffer(*buffer, BUFFER_LOCK_SHARE);
	if (GgStampMatches(BufferGetPage(*buffer), reader->meta->instance, array->segment, array->kind,
					   number))
		return true;
	UnlockReleaseBuffer(*buffer);
	return false;
}

/* Is no id out of range, with or without a mark? */
static bool
IdsAreValid(const uint32 *ids, Size count, uint32 limit)
{
	uint32		worst = 0;

	for (Size i = 0; i < count; i++)
		worst = Max(worst, ids[i] == GG_NO_NODE ? 0 : (ids[i] & ~GG_EDGE_MARK) + 1);
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

/* Read a run of an array's pages; returns its bytes, 0 when a page is not what it should be. */
static uint64
ReadSegmentUnit(Reader *reader, Relation index, const Unit *unit, char *chunk, uint64 *offset,
				const char **wrong)
{
	const GgLoadList *list = &reader->job->lists[unit->list];
	uint64		bytes;
	GgArray		array;
	uint32	   *words;
	Size		nwords;

	*offset = (uint64) unit->first * GG_PAGE_PAYLOAD;
	bytes = Min((uint64) unit->npages * GG_PAGE_PAYLOAD, unit->bytes - *offset);
	*offset += unit->base;
	GgFindArray(reader->meta, unit->owner, unit->kind, &array);
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
		memcpy(chunk + done, PageGetContents(BufferGetPage(buffer)),
			   Min(GG_PAGE_PAYLOAD, bytes - done));
		UnlockReleaseBuffer(buffer);
	}
	FreeArray(&array);

	words = (uint32 *) chunk;
	nwords = bytes / sizeof(uint32);
	if ((unit->kind == GG_KIND_ADJACENCY && !IdsAreValid(words, nwords, list->n)) ||
		(unit->kind == GG_KIND_PIVOTS &&
		 !PivotsAreValid(words, nwords, *offset / sizeof(uint32), list)))
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

/* Copy the rows that start on a delta page; returns whether the last one is alive. */
static bool
CopyDeltaRows(const GgMetaPageData *meta, Page page, char *out)
{
	uint32		per_page = GgDeltaRowsPerPage(meta);
	uint32		count = GgPageGetStamp(page)->count;
	Size		row_bytes = GgRowBytes(meta);
	bool		alive = true;

	for (uint32 slot = 0; slot < per_page; slot++)
	{
		const char *bytes = PageGetContents(page) + slot * GgDeltaRowBytes(meta);
		const GgDeltaRow *row = (const GgDeltaRow *) bytes;

		alive = slot < count && ItemPointerIsValid(&row->tid);
		if (!alive)
			PutNaN(meta, out);
		else
			memcpy(out, GgDeltaVector(meta, row), GgDeltaVectorHere(meta));
		out += row_bytes;
	}
	return alive;
}

/* The same for the heads of these rows, or one of their words; both have 8 bytes. */
static void
CopyDeltaWords(const GgMetaPageData *meta, Page page, const Unit *unit, uint64 *out)
{
	uint32		count = GgPageGetStamp(page)->count;

	for (uint32 slot = 0; slot < GgDeltaRowsPerPage(meta); slot++)
	{
		const GgDeltaRow *row = (const GgDeltaRow *)
			(PageGetContents(page) + slot * GgDeltaRowBytes(meta));

		if (slot >= count)
			out[slot] = 0;
		else if (unit->part == GG_PART_TIDS)
			memcpy(&out[slot], row, sizeof(uint64));
		else
			out[slot] = (uint64) GgDeltaWords(row)[unit->word];
	}
}

StaticAssertDecl(sizeof(GgTidEntry) == sizeof(uint64), "heads and words are copied alike");

/* Read the rest of a row longer than a page; false when a page is not what it should be. */
static bool
ReadRowTail(Reader *reader, Relation index, const GgArray *array, uint64 number, char *out)
{
	uint32		npages = GgDeltaPagesPerRow(reader->meta);
	Size		row_bytes = GgRowBytes(reader->meta);

	for (uint32 p = 1; p < npages; p++)
	{
		Size		done = (Size) p * GG_PAGE_PAYLOAD - GgDeltaVectorOffset(reader->meta);
		Buffer		buffer;

		if (!ReadPage(reader, index, array, number + p, &buffer))
			return false;
		memcpy(out + done, PageGetContents(BufferGetPage(buffer)),
			   Min(GG_PAGE_PAYLOAD, row_bytes - done));
		UnlockReleaseBuffer(buffer);
	}
	return true;
}

/* Fill in the rows of a page that VACUUM has given back. */
static void
PutNoRows(const GgMetaPageData *meta, gg_part part, char *out)
{
	uint32		per_page = GgDeltaRowsPerPage(meta);

	if (part != GG_PART_ROWS)
		memset(out, 0, per_page * sizeof(uint64));
	else
		for (uint32 slot = 0; slot < per_page; slot++)
			PutNaN(meta, out + slot * GgRowBytes(meta));
}

/*
 * Read the rows of a run of full delta pages, or their heads, or a word of each; returns their
 * bytes, 0 as above.
 */
static uint64
ReadDeltaUnit(Reader *reader, Relation index, const Unit *unit, char *chunk, uint64 *offset)
{
	const GgMetaPageData *meta = reader->meta;
	uint32		npages = GgDeltaPagesPerRow(meta);
	bool		vectors = unit->part == GG_PART_ROWS;
	Size		step = GgDeltaRowsPerPage(meta) * (vectors ? GgRowBytes(meta) : sizeof(uint64));
	char	   *out = chunk;
	bool		ok = true;
	GgArray		array;

	*offset = (uint64) (unit->first / npages) * step +
		(uint64) unit->word * reader->job->lists[unit->list].n * sizeof(uint64);
	GgFindArray(meta, GG_NO_SEGMENT, GG_KIND_DELTA, &array);
	for (uint32 i = 0; i < unit->npages && ok; i += npages)
	{
		uint64		number = GgDeltaFirst(meta) + unit->first + i;
		Buffer		buffer;
		bool		alive;

		CHECK_FOR_INTERRUPTS();
		if (GgArrayBlock(&array, number) == InvalidBlockNumber)
		{
			PutNoRows(meta, unit->part, out);
			out += step;
			continue;
		}
		ok = ReadPage(reader, index, &array, number, &buffer);
		if (!ok)
			break;
		alive = vectors && CopyDeltaRows(meta, BufferGetPage(buffer), out);
		if (!vectors)
			CopyDeltaWords(meta, BufferGetPage(buffer), unit, (uint64 *) out);
		UnlockReleaseBuffer(buffer);
		if (alive)
			ok = ReadRowTail(reader, index, &array, number, out);
		out += step;
	}
	FreeArray(&array);
	return ok ? out - chunk : 0;
}

/* While a process waits for the load, the index stays locked.  Only the first reader does this. */
static void
KeepIndexLocked(Reader *reader, Relation index)
{
	bool		keep = LockHasWaiters(&reader->lock, ExclusiveLock, false);

	if (keep && !reader->kept)
		LockRelation(index, AccessShareLock);
	else if (!keep && reader->kept)
		UnlockRelation(index, AccessShareLock);
	reader->kept = keep;
}

/* Read one unit into a chunk and hand it over.  False when the load is over. */
static bool
LoadUnit(Reader *reader, const Unit *unit)
{
	GgLoad	   *load = reader->load;
	char	   *chunk = GgLoadGetChunk(load);
	const char *wrong = NULL;
	Relation	index;
	uint64		offset;
	uint64		bytes = 0;

	if (chunk == NULL)
		return false;
	index = OpenIndex(reader->job->relation, &reader->job->key.locator);
	if (index != NULL)
	{
		reader->length = RelationGetNumberOfBlocks(index);
		if (unit->kind == GG_KIND_DELTA)
			bytes = ReadDeltaUnit(reader, index, unit, chunk, &offset);
		else
			bytes = ReadSegmentUnit(reader, index, unit, chunk, &offset, &wrong);
		if (bytes == 0 && wrong == NULL)
		{
			GgMetaPageData *now = GgReadDirectory(index);

			/* has a VACUUM or merge recycled the page?  Then the directory is another one by now */
			if (now->instance == reader->meta->instance &&
				now->generation == reader->meta->generation)
				wrong = "a page is not what its directory says: see gpugraph_check()";
			pfree(now);
		}
		if (!load->helper)
			KeepIndexLocked(reader, index);
		relation_close(index, AccessShareLock);
	}
	InvalidateCatalogSnapshot();
	if (bytes == 0)
	{
		GgLoadFreeChunk(load);
		GgLoadGiveUp(load, wrong == NULL, wrong);
		return false;
	}
	GgLoadPutChunk(load, unit->list, unit->part, offset, bytes);
	CountFilled(reader->job, load->serial);
	return true;
}

/* gpugraph.fault = load_stall: rest with a unit in hand, which no other reader will bring. */
static void
Stall(GgLoad *load)
{
	uint64		start = GgNowMicros();

	while (GgNowMicros() - start < STALL_US && GgLoadIsOpen(load) && !GgLoadMustStop(load, start))
		GgLoadSleep(GG_LOAD_WAIT_MS);
}

/* Take units until there is none left.  False when the load is over. */
static bool
LoadUnits(Reader *reader, uint32 total)
{
	GgLoadJob  *job = reader->job;
	bool		stalls = job->fault == GG_FAULT_LOAD_STALL || job->fault == GG_FAULT_LOAD_READERS;
	bool		stalled = false;
	uint32		u;
	Unit		unit;

	while ((u = ClaimUnit(job, reader->load->serial, total)) < total)
	{
		if (GgLoadMustStop(reader->load, 0))
			return false;
		if (job->fault == GG_FAULT_LOAD && u >= total / 2)
		{
			GgLoadGiveUp(reader->load, false, "the loader failed, as gpugraph.fault asks for");
			return false;
		}
		if (job->fault == GG_FAULT_LOAD_GAP && u == total / 2)
		{
			CountFilled(job, reader->load->serial);
			continue;
		}
		reader->load->in_unit = true;
		if (stalls && u >= total / 2 && !stalled)
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

/* Has the load been given up, or all of it been handed over? */
static bool
IsThrough(void)
{
	GgLoadState state = GgLoadStateOf(&my_load);

	return state != GG_LOAD_ASSIGNED && state != GG_LOAD_SHAPED && state != GG_LOAD_CREATE &&
		state != GG_LOAD_OPEN;
}

/* The process has nothing more to do with its load: the worker frees it when it has ended. */
static void
LetGo(void)
{
	if (!IsThrough())
		GgLoadGiveUp(&my_load, true, NULL);
	GgLoadFlag(GgLoadJobOf(&my_load), my_load.serial, GG_LOAD_ORPHAN);
	GgResidentNotify(my_load.device);
}

/*
 * This process stays no longer: take the load that it was given.  False: there is none.  Until here
 * the place is this process's, so that nobody takes the load of another.
 */
static bool
TakeGiven(uint64 word)
{
	bool		given = GgStayWordState(word) == GG_STAY_TAKEN;

	if (given)
	{
		my_load.number = GgStayWordLoad(word);
		my_load.serial = GgStayWordWhat(word);
		my_load.over = my_load.in_unit = false;
	}
	pg_atomic_write_u64(&my_load.device->staying.word, GG_STAY_NONE);
	return given;
}

static bool staying = false;

/* Stop staying; true when a load was given to this process first. */
static bool
StopStaying(void)
{
	GgStayingLoader *place = &my_load.device->staying;
	uint64		word = GgStayWord(MyProcPid, 0, GG_STAY_READY);

	staying = false;
	return !pg_atomic_compare_exchange_u64(&place->word, &word, GG_STAY_NONE) && TakeGiven(word);
}

/*
 * However the process ends, its load ends with it, unless the process has brought its part.  The
 * chunk that it fills is given back in any case.
 */
static void
LoaderExit(int code, Datum arg)
{
	if (staying && !StopStaying())
		return;
	if (my_load.filling >= 0)
		GgLoadFreeChunk(&my_load);
	if (my_load.helper && !my_load.in_unit)
		return;
	if (!IsThrough())
		GgLoadGiveUp(&my_load, false, "its loader was terminated");
}

/* bgw_extra of a loader. */
typedef struct LoaderExtra
{
	uint32		serial;
	bool		helper;
	int			leader_pid;		/* helpers: the first reader ... */
	uint32		leader;			/* ... and its PGPROC */
} LoaderExtra;

bool
GgStartLoader(int device, int load, uint32 serial, Oid database, bool helper,
			  BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;
	LoaderExtra extra = {serial, helper, MyProcPid, GgMyProcNumber()};

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
	const GgLoadJob *job = GgLoadJobOf(load);
	int			readers = gg_loaders;

	if (job->fault != GG_FAULT_LOAD_READERS)
		readers = (int) Min((uint64) readers, npages / READER_PAGES);
	for (int i = 1; i < readers; i++)
		if (!GgStartLoader(load->device_number, load->number, load->serial, job->database, true,
						   NULL))
			break;				/* fewer have to do */
}

/*
 * Describe the load, for the worker to see whether there is room.  False, and the load is given
 * up, when the index is another than was asked for, or there is nothing to load.
 */
static bool
Describe(Reader *reader, Relation index)
{
	GgLoad	   *load = reader->load;
	GgLoadJob  *job = reader->job;
	GgResidentKey wanted = job->key;

	/* the wait for locks may outlast the device's worker, and the place be another load's by now */
	if (GgLoadStateOf(load) != GG_LOAD_ASSIGNED)
		return false;
	GgLoadDescribe(job, index, reader->meta);
	if ((wanted.instance != 0 && (wanted.instance != job->key.instance ||
								  wanted.database != job->key.database)) ||
		!MarkKept(load->device, job))
	{
		GgLoadGiveUp(load, true, NULL);
		return false;
	}
	pg_write_barrier();
	return GgLoadMove(job, load->serial, GG_LOAD_ASSIGNED, GG_LOAD_SHAPED);
}

/* Open the index and read its metapage; the first reader also describes the load.  False: over. */
static bool
Prepare(Reader *reader)
{
	GgLoadJob  *job = reader->job;
	bool		helper = reader->load->helper;
	bool		ok;
	Relation	index;

	index = OpenIndex(job->relation,
					  helper || job->key.instance != 0 ? &job->key.locator : NULL);
	if (index == NULL)
	{
		if (!helper)
			GgLoadGiveUp(reader->load, true, NULL);
		return false;
	}
	GgReadMeta(index, reader->meta);
	pgstat_report_activity(STATE_RUNNING, RelationGetRelationName(index));
	if (RelationGetNumberOfBlocks(index) > NBuffers / 4)
		reader->strategy = GetAccessStrategy(BAS_BULKREAD);
	if (helper)
	{
		/* if it is another index by now, the first reader finds out itself */
		ok = job->key.instance == reader->meta->instance &&
			job->key.generation == reader->meta->generation;
	}
	else
		ok = Describe(reader, index);
	relation_close(index, AccessShareLock);
	InvalidateCatalogSnapshot();
	return ok;
}

/* All of a loader's work.  A helper's load was described and opened by the first reader. */
static void
Load(GgLoad *load)
{
	GgLoadJob  *job = GgLoadJobOf(load);
	Reader		reader = {.load = load, .job = job};
	uint64		npages;
	uint32		total;

	reader.meta = palloc(sizeof(GgMetaPageData));
	reader.lock = GgLoadLock(job->relation, job->use, load->device_number);
	if (!load->helper)
	{
		(void) LockAcquire(&reader.lock, ExclusiveLock, false, false);
		BecomeLockGroupLeader();
	}
	if (!Prepare(&reader))
		return;

	/* until the load is open, the worker may leave lists out */
	if (!load->helper && !GgLoadWaitUntilOpen(load))
		return;
	total = CountUnits(job, reader.meta, &npages);
	if (!load->helper && total > 1)
		StartHelpers(load, npages);
	if (!LoadUnits(&reader, total) || load->helper)
		return;

	/* helpers may have units in hand */
	while (GgLoadIsOpen(load) && (uint32) pg_atomic_read_u64(&job->filled) < total &&
		   !GgLoadMustStop(load, 0))
		GgLoadSleep(1);
	if (GgLoadIsOpen(load))
		GgLoadMove(job, load->serial, GG_LOAD_OPEN, GG_LOAD_FINISH);
}

/* Does another session want the database for itself?  To be called outside of transactions. */
static bool
MustLeave(void)
{
	bool		wanted;

	StartTransactionCommand();
	wanted = GgDatabaseIsWanted();
	CommitTransactionCommand();
	return wanted;
}

/*
 * Wait for another load, which becomes my_load; false when none came.  One loader of a device
 * stays at a time.
 */
static bool
StayForLoad(void)
{
	static uint32 wait_event = 0;
	GgStayingLoader *place = &my_load.device->staying;
	uint64		none = GG_STAY_NONE;
	uint64		start = GgNowMicros();
	uint64		word;

	if (!pg_atomic_compare_exchange_u64(&place->word, &none, GG_STAY_COMING))
		return false;
	place->database = MyDatabaseId;
	place->procno = GgMyProcNumber();
	pg_write_barrier();
	staying = true;
	pg_atomic_write_u64(&place->word, GgStayWord(MyProcPid, 0, GG_STAY_READY));
	pgstat_report_activity(STATE_IDLE, NULL);
	do
	{
		if (ProcDiePending || GgNowMicros() - start > STAY_US || MustLeave() ||
			!GgDeviceIsUp(my_load.device))
			return StopStaying();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, STAY_LOOK_MS,
						 GgWaitEvent(wait_event, "GpugraphStay"));
		ResetLatch(MyLatch);
		if (!ProcDiePending)
			CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		word = pg_atomic_read_u64(&place->word);
	} while (GgStayWordState(word) == GG_STAY_READY);
	staying = false;
	return TakeGiven(word);
}

/*
 * Bring my_load.  An error goes to the worker, which logs it, and false is returned: the process
 * is to end without another word.
 */
static bool
RunLoad(void)
{
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
			GgLoadGiveUp(&my_load, edata->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE, error);
		AbortCurrentTransaction();
		return false;
	}
	PG_END_TRY();
	CommitTransactionCommand();
	return true;
}

void
GgLoaderMain(Datum arg)
{
	LoaderExtra extra;
	int			number = DatumGetInt32(arg) >> 8;
	int			load = DatumGetInt32(arg) & 0xFF;
	GgLoadJob  *job;

	memcpy(&extra, MyBgworkerEntry->bgw_extra, sizeof(extra));
	if (gg_service == NULL || number >= gg_service->ndevices)
		return;
	my_load.device = gg_service->devices[number];
	my_load.device_number = number;
	my_load.number = load;
	my_load.serial = extra.serial;
	my_load.filling = -1;
	my_load.helper = extra.helper;
	job = GgLoadJobOf(&my_load);
	if (GgLoadStateOf(&my_load) == GG_LOAD_FREE)
		return;
	/*
	 * Before any lock is taken, as in parallel workers.  Without its first reader the load is
	 * over.
	 */
	if (extra.helper && !BecomeLockGroupMember(GetPGProcByNumber(extra.leader), extra.leader_pid))
		return;
	before_shmem_exit(LoaderExit, (Datum) 0);

	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(job->database, InvalidOid, 0);

	/*
	 * From PostgreSQL 17 on.  It is meant for clients' transactions, and would end every load that
	 * takes longer, again and again.
	 */
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("deadlock_timeout", LOADER_DEADLOCK_TIMEOUT, PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", LOADER_LOCK_TIMEOUT, PGC_SUSET, PGC_S_OVERRIDE);

	while (RunLoad() && !my_load.helper && job->refresh)
	{
		LetGo();
		if (!StayForLoad())
			break;
		job = GgLoadJobOf(&my_load);
	}
}
