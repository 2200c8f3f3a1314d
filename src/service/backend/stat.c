/*
 * stat.c
 *		Counters of queries by index, and the functions behind gpugraph_stat_device and
 *		gpugraph_stat_index.
 *
 * A query counts itself with two atomic additions, and its backend remembers where its indexes'
 * counters are.  The table has room for gg_service->index_slots indexes of all databases.
 * Indexes that find no place are counted together, in the row without a name.
 *
 * PostgreSQL's own statistics have an entry of each index that has a place here.  It goes with the
 * index, in other databases and on a standby, too.  So who reads the table, or finds no room in it,
 * gives back the places of indexes that have no entry.
 *
 * The worker alone writes its device's counters, without a lock.  A reader may see one of them a
 * moment before another.  So it is also the worker that zeroes them.
 */
#include "service/shared/load.h"
#include "service/shared/table.h"

#include "catalog/pg_type_d.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/shmem.h"
#include "utils/array.h"
#include "utils/pgstat_internal.h"

/* Counters looked at for one index before it counts as one of the others. */
#define MAX_PROBES		64

/* The key of a place that an index has given back; others may lie behind it. */
#define GIVEN_BACK		1

/* ---- counting -------------------------------------------------------------- */

/*
 * The counters of an index, NULL where it has none.  *full: it cannot get any, and is counted with
 * the others.
 */
static GgIndexCounters *
SeekCounters(uint64 key, bool *full)
{
	GgIndexStats *stats = gg_service->index_stats;
	uint32		start = hash_bytes((const unsigned char *) &key, sizeof(key));

	*full = false;
	for (int i = 0; i < MAX_PROBES; i++)
	{
		GgIndexCounters *counters = &stats->slots[(start + i) % gg_service->index_slots];
		uint64		seen = pg_atomic_read_u64(&counters->key);

		if (seen == key)
			return counters;
		if (seen == 0)
			return NULL;
	}
	*full = true;
	return NULL;
}

static void
Clear(GgIndexCounters *counters, uint64 key)
{
	pg_atomic_write_u64(&counters->key, key);
	pg_atomic_write_u64(&counters->rows, 0);
	for (int i = 0; i < GG_NREASONS; i++)
		pg_atomic_write_u64(&counters->queries[i], 0);
}

/* Give back the place of an index, if that is gone. */
static void
GiveBack(GgIndexCounters *counters)
{
	uint64		key = pg_atomic_read_u64(&counters->key);

	if (key == 0 || key == GIVEN_BACK ||
		pgstat_have_entry(PGSTAT_KIND_RELATION, (Oid) (key >> 32), (Oid) key))
		return;
	LWLockAcquire(gg_service->stat_lock, LW_EXCLUSIVE);
	if (pg_atomic_read_u64(&counters->key) == key)
	{
		pg_atomic_fetch_add_u64(&gg_service->index_stats->resets, 1);
		Clear(counters, GIVEN_BACK);
	}
	LWLockRelease(gg_service->stat_lock);
}

/* The counters of an index, claimed for it if need be. */
static GgIndexCounters *
FindCounters(uint64 key)
{
	GgIndexStats *stats = gg_service->index_stats;
	uint32		start = hash_bytes((const unsigned char *) &key, sizeof(key));
	bool		full;
	GgIndexCounters *found = SeekCounters(key, &full);

	if (found != NULL)
		return found;
	/* make the index's entry now: PostgreSQL makes it some time after the query, if at all */
	(void) pgstat_get_entry_ref(PGSTAT_KIND_RELATION, MyDatabaseId, (Oid) key, true, NULL);
	for (int i = 0; i < MAX_PROBES && full; i++)
		GiveBack(&stats->slots[(start + i) % gg_service->index_slots]);
	LWLockAcquire(gg_service->stat_lock, LW_EXCLUSIVE);
	found = SeekCounters(key, &full);
	for (int i = 0; i < MAX_PROBES && found == NULL; i++)
	{
		GgIndexCounters *counters = &stats->slots[(start + i) % gg_service->index_slots];
		uint64		seen = pg_atomic_read_u64(&counters->key);

		if (seen == 0 || seen == GIVEN_BACK)
		{
			pg_atomic_write_u64(&counters->key, key);
			found = counters;
		}
	}
	LWLockRelease(gg_service->stat_lock);
	return found != NULL ? found : &stats->others;
}

void
GgCountQuery(Oid index, GgReason reason, uint64 rows)
{
	static struct
	{
		uint64		key;
		uint64		resets;
		GgIndexCounters *counters;
	}			remembered[16];
	uint64		key;
	uint64		resets;
	uint32		place;

	if (gg_service == NULL)
		return;
	key = (uint64) MyDatabaseId << 32 | index;
	resets = pg_atomic_read_u64(&gg_service->index_stats->resets);
	place = index % lengthof(remembered);
	if (remembered[place].counters == NULL || remembered[place].key != key ||
		remembered[place].resets != resets)
	{
		remembered[place].counters = FindCounters(key);
		remembered[place].key = key;
		remembered[place].resets = resets;
	}
	pg_atomic_fetch_add_u64(&remembered[place].counters->queries[reason], 1);
	if (rows > 0)
		pg_atomic_fetch_add_u64(&remembered[place].counters->rows, rows);
}

/* ---- gpugraph_stat_get_device() ------------------------------------------------ */

#define DEVICE_COLUMNS	37

/*
 * Upper bound of the bucket in which that share of all values is reached; NULL when there are
 * none.
 */
static void
PutPercentile(GgRow *row, const uint64 *histogram, double share)
{
	uint64		total = 0;
	uint64		sum = 0;
	int			bucket = -1;

	for (int i = 0; i < GG_TIME_BUCKETS; i++)
		total += histogram[i];
	while (total > 0 && sum < share * total)
		sum += histogram[++bucket];
	GgPut(row, total > 0, Int64GetDatum(total > 0 ? (int64) GgTimeBucketEnd(bucket) : 0));
}

/* The buckets up to the last one that is not empty. */
static Datum
HistogramArray(const uint64 *histogram)
{
	Datum		values[GG_HISTOGRAM_BUCKETS];
	int			n = 0;

	for (int i = 0; i < GG_HISTOGRAM_BUCKETS; i++)
	{
		values[i] = Int64GetDatum((int64) histogram[i]);
		if (histogram[i] > 0)
			n = i + 1;
	}
	return PointerGetDatum(construct_array(values, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
										   TYPALIGN_DOUBLE));
}

/* A histogram of times as an array, one bucket for each power of two. */
static Datum
TimeArray(const uint64 *histogram)
{
	uint64		octaves[GG_HISTOGRAM_BUCKETS] = {0};

	for (int i = 0; i < GG_TIME_BUCKETS; i++)
	{
		/* buckets 0 to 3 are the times 0 to 3 */
		int			octave = i < 2 ? 0 : i < 4 ? 1 : i / 4 + 1;

		octaves[Min(octave, GG_HISTOGRAM_BUCKETS - 1)] += histogram[i];
	}
	return HistogramArray(octaves);
}

static void
PutTimestamp(GgRow *row, TimestampTz timestamp)
{
	GgPut(row, timestamp != 0, TimestampTzGetDatum(timestamp));
}

/*
 * What of the shared memory is in use: slots, chunks of the pool that these have, loads under way,
 * and staging chunks.  A device at rest has none of them.
 */
static void
PutInUse(GgRow *row, GgDevice *device)
{
	GgPool	   *pool = gg_service->pool;
	uint32		first = GgSlotOwner(device->slots);
	int			slots = 0;
	int			chunks = 0;
	int			loads = 0;
	int			staging = 0;

	for (uint32 i = 0; i < gg_service->nslots; i++)
		slots += GgSlotStateOf(pg_atomic_read_u64(&device->slots[i].word)) != GG_SLOT_FREE;
	for (uint32 i = 0; i < pool->nchunks; i++)
	{
		uint32		owner = pg_atomic_read_u32(&pool->owners[i]);

		chunks += owner > first && owner <= first + gg_service->nslots;
	}
	for (int i = 0; i < GG_MAX_LOADS; i++)
		loads += GgWordState(GgReadWord(&device->loads_under_way[i].word)) != GG_LOAD_FREE;
	for (int i = 0; i < GG_STAGE_CHUNKS; i++)
		staging += pg_atomic_read_u32(&device->chunks[i].state) != GG_CHUNK_FREE;
	GgPut(row, true, Int32GetDatum(slots));
	GgPut(row, true, Int32GetDatum(chunks));
	GgPut(row, true, Int32GetDatum(loads));
	GgPut(row, true, Int32GetDatum(staging));
}

static void
PutDevice(GgRow *row, GgDevice *device)
{
	static const double shares[] = {0.50, 0.95, 0.99};
	/* a copy, so that percentiles and sums come from one state */
	GgDeviceStats stats = device->stats;
	uint32		state = pg_atomic_read_u32(&device->state);
	int			residents = 0;

	stats.last_error[sizeof(stats.last_error) - 1] = '\0';
	stats.name[sizeof(stats.name) - 1] = '\0';
	LWLockAcquire(device->lock, LW_SHARED);
	for (uint32 i = 0; i < pg_atomic_read_u32(&device->nresidents); i++)
		if (device->residents[i].state == GG_RESIDENT_READY)
			residents++;
	LWLockRelease(device->lock);
	/* a lost device holds nothing, though its worker could not note that */
	if (state != GG_DEVICE_UP)
		stats.resident_bytes = residents = 0;

	GgPut(row, true, Int32GetDatum(device->number));
	GgPutText(row, stats.name);
	GgPutText(row, state == GG_DEVICE_UP ? "up" : state == GG_DEVICE_BROKEN ? "broken" : "down");
	GgPut(row, device->pid != 0, Int32GetDatum(device->pid));
	GgPut(row, stats.total_bytes != 0, Int64GetDatum((int64) stats.total_bytes));
	GgPut(row, device->limit_bytes != 0 && device->limit_bytes < PG_INT64_MAX,
		  Int64GetDatum((int64) device->limit_bytes));
	GgPut(row, true, Int64GetDatum((int64) stats.resident_bytes));
	GgPut(row, true, Int32GetDatum(residents));
	GgPut(row, true, Int64GetDatum((int64) stats.queries));
	GgPut(row, true, Int64GetDatum((int64) stats.batches));
	GgPut(row, true, HistogramArray(stats.batch_sizes));
	for (int i = 0; i < 6; i++)
		PutPercentile(row, i < 3 ? stats.queue_us : stats.kernel_us, shares[i % 3]);
	GgPut(row, true, TimeArray(stats.queue_us));
	GgPut(row, true, TimeArray(stats.kernel_us));
	GgPut(row, true, Int64GetDatum((int64) stats.abandoned));
	GgPut(row, true, Int64GetDatum((int64) stats.failed));
	GgPut(row, true, Int64GetDatum((int64) stats.loads));
	GgPut(row, true, Int64GetDatum((int64) stats.refreshes));
	GgPut(row, true, Int64GetDatum((int64) stats.failed_loads));
	GgPut(row, true, Int64GetDatum((int64) stats.evictions));
	GgPut(row, true, Int64GetDatum((int64) stats.restarts));
	PutTimestamp(row, stats.started);
	GgPutText(row, stats.last_error);
	PutTimestamp(row, stats.last_error_at);
	PutTimestamp(row, stats.reset_at);
	GgPut(row, true, Int64GetDatum((int64) pg_atomic_read_u64(&device->build_bytes)));
	PutInUse(row, device);
	GgPut(row, true, Int64GetDatum((int64) stats.merges));
	GgPut(row, true, Float8GetDatum(stats.merge_seconds));
}

PG_FUNCTION_INFO_V1(gpugraph_stat_get_device);

Datum
gpugraph_stat_get_device(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = GgInitRows(fcinfo, DEVICE_COLUMNS);

	for (int i = 0; gg_service != NULL && i < gg_service->ndevices; i++)
	{
		GgRow		row = {0};

		PutDevice(&row, gg_service->devices[i]);
		GgAddRow(rsinfo, &row, DEVICE_COLUMNS);
	}
	return (Datum) 0;
}

/* ---- gpugraph_stat_get_index() --------------------------------------------------- */

#define INDEX_COLUMNS	37

typedef struct Held
{
	int			device;			/* CUDA's number */
	GgResident	resident;
	uint32		place;			/* of the device, as a bit */
	/* set in the entry that is shown, of all devices that have a READY copy: */
	uint32		ready;			/* their places, as bits */
	int			segments[GG_MAX_DEVICES];	/* how many each of them has, by place */
	bool		shown;
} Held;

static const char *
ResidentStateName(GgResident *resident)
{
	static const char *const names[] = {
		[GG_RESIDENT_FREE] = "absent", [GG_RESIDENT_WANTED] = "wanted",
		[GG_RESIDENT_LOADING] = "loading", [GG_RESIDENT_FAILED] = "failed",
		[GG_RESIDENT_EVICTING] = "evicting"
	};

	if (resident->state != GG_RESIDENT_READY)
		return names[resident->state];
	return pg_atomic_read_u32(&resident->refresh) != 0 ? "refreshing" :
		resident->now.forms.missing != 0 ? "partial" : "ready";
}

static int64
QueriesOf(GgIndexCounters *counters, int reason)
{
	return counters != NULL ? (int64) pg_atomic_read_u64(&counters->queries[reason]) : 0;
}

/* An array of the values of the devices that a bitmap names; of_each: those of all, by place. */
static Datum
DeviceArray(uint32 devices, const int *of_each)
{
	Datum		values[GG_MAX_DEVICES];
	int			n = 0;

	for (int i = 0; i < gg_service->ndevices; i++)
		if ((devices >> i & 1) != 0)
			values[n++] = Int32GetDatum(of_each[i]);
	return PointerGetDatum(construct_array(values, n, INT4OID, sizeof(int32), true,
										   TYPALIGN_INT));
}

/* What version 1.2.0 has added to a row, behind the others. */
static void
PutParts(GgRow *row, GgIndexCounters *counters, Held *held)
{
	GgResident *resident = held != NULL ? &held->resident : NULL;
	bool		ready = resident != NULL && resident->state == GG_RESIDENT_READY;
	int			numbers[GG_MAX_DEVICES];

	for (int i = 0; i < gg_service->ndevices; i++)
		numbers[i] = gg_service->devices[i]->number;
	GgPut(row, true, DeviceArray(held != NULL ? held->ready : 0, numbers));
	GgPut(row, true, DeviceArray(held != NULL ? held->ready : 0,
								 held != NULL ? held->segments : NULL));
	GgPut(row, ready, Int64GetDatum(ready ? (int64) resident->host_bytes : 0));
	GgPut(row, ready, Int64GetDatum(ready ? (int64) resident->missing_bytes : 0));
	GgPut(row, ready, Int32GetDatum(ready ? pg_popcount32(resident->now.forms.coded) : 0));
	GgPut(row, ready, Int32GetDatum(ready ? pg_popcount32(resident->now.forms.rowless) : 0));
	GgPut(row, ready, Int32GetDatum(ready ? pg_popcount32(resident->now.forms.halved) : 0));
	GgPut(row, ready, Int32GetDatum(ready ? pg_popcount32(resident->now.forms.missing) : 0));
	GgPut(row, true, Int64GetDatum(QueriesOf(counters, GG_REASON_PARTIAL)));
}

/* counters or held may be NULL, not both. */
static void
PutIndex(GgRow *row, GgIndexCounters *counters, Held *held)
{
	static const GgResident none;
	GgResident *resident = held != NULL ? &held->resident : NULL;
	bool		ready = resident != NULL && resident->state == GG_RESIDENT_READY;
	bool		refreshed = ready && resident->refreshes > 0;
	bool		failed = resident != NULL && resident->error[0] != '\0';
	const GgResident *shown = ready ? resident : &none;
	uint64		key = counters != NULL ? pg_atomic_read_u64(&counters->key) : 0;
	bool		named = resident != NULL || key != 0;
	int64		cpu = 0;

	GgPut(row, named, ObjectIdGetDatum(resident != NULL ? resident->database : (Oid) (key >> 32)));
	GgPut(row, named, ObjectIdGetDatum(resident != NULL ? resident->relation : (Oid) key));
	GgPut(row, resident != NULL, Int32GetDatum(held != NULL ? held->device : 0));
	GgPutText(row, resident != NULL ? ResidentStateName(resident) : "absent");
	GgPut(row, ready, Int64GetDatum((int64) shown->bytes));
	GgPut(row, ready, Int64GetDatum((int64) shown->key.generation));
	GgPut(row, ready, Int32GetDatum((int32) shown->now.nsegments));
	GgPut(row, ready, Int64GetDatum((int64) shown->now.delta_pages));
	GgPut(row, ready, TimestampTzGetDatum(shown->loaded_at));
	GgPut(row, ready, Float8GetDatum(shown->load_s));
	GgPut(row, ready, Int64GetDatum((int64) shown->refreshes));
	GgPut(row, refreshed, TimestampTzGetDatum(shown->refreshed_at));
	GgPut(row, refreshed, Float8GetDatum(shown->refresh_s));

	for (int i = GG_REASON_NONE + 1; i < GG_REASON_PARTIAL; i++)
		cpu += QueriesOf(counters, i);
	cpu += QueriesOf(counters, GG_REASON_CODED);
	GgPut(row, true, Int64GetDatum(QueriesOf(counters, GG_REASON_NONE) +
								   QueriesOf(counters, GG_REASON_PARTIAL)));
	GgPut(row, true, Int64GetDatum(cpu));
	for (int i = GG_REASON_NONE + 1; i < GG_REASON_PARTIAL; i++)
		GgPut(row, true, Int64GetDatum(QueriesOf(counters, i)));
	GgPut(row, true,
		  Int64GetDatum(counters != NULL ? (int64) pg_atomic_read_u64(&counters->rows) : 0));
	GgPutText(row, failed ? resident->error : NULL);
	PutTimestamp(row, failed ? resident->failed_at : 0);
	PutParts(row, counters, held);
}

/*
 * The entries of all devices that are up, copied: those of one relation, or all with InvalidOid.
 * What a worker that is gone held is gone.
 */
static Held *
CopyEntries(Oid relation, int *nheld)
{
	int			room = 8;
	Held	   *held = palloc(room * sizeof(Held));

	*nheld = 0;
	for (int d = 0; d < gg_service->ndevices; d++)
	{
		GgDevice   *device = gg_service->devices[d];

		if (!GgDeviceIsUp(device))
			continue;
		LWLockAcquire(device->lock, LW_SHARED);
		for (uint32 i = 0; i < pg_atomic_read_u32(&device->nresidents); i++)
		{
			Held	   *one;

			if (device->residents[i].state == GG_RESIDENT_FREE ||
				(OidIsValid(relation) && device->tags[i].relation != relation))
				continue;
			if (*nheld == room)
				held = repalloc_huge(held, (room *= 2) * sizeof(Held));
			one = &held[(*nheld)++];
			memset(one, 0, sizeof(Held));
			one->device = device->number;
			one->place = (uint32) 1 << d;
			one->resident = device->residents[i];
		}
		LWLockRelease(device->lock);
	}
	return held;
}

/* Is an entry a copy of the same contents as another one? */
static bool
IsCopy(const GgResident *a, const GgResident *b)
{
	return GgSameLocator(&a->key.locator, &b->key.locator) &&
		a->key.instance == b->key.instance && a->key.database == b->key.database;
}

/* What the copy that is shown lacks and another one has is not missing. */
static void
AddOthers(Held *best, const Held *held, int nheld)
{
	GgResident *resident = &best->resident;

	for (int h = 0; h < nheld && resident->state == GG_RESIDENT_READY; h++)
	{
		const GgResident *other = &held[h].resident;
		uint32		lists = resident->now.forms.missing & ~other->now.forms.missing;

		if (other->state != GG_RESIDENT_READY || !IsCopy(other, resident) ||
			other->now.nsegments != resident->now.nsegments ||
			memcmp(other->now.graphs, resident->now.graphs,
				   resident->now.nsegments * sizeof(uint32)) != 0)
			continue;
		GgAddForms(&resident->now.forms, &other->now.forms, lists);
	}
}

/*
 * The latest entry of an index; NULL when there is none.  Entries of its files from before a
 * REINDEX or TRUNCATE are not shown then.  Of several copies the one is shown that is READY and no
 * replica.
 */
static Held *
FindLatest(Held *held, int nheld, Oid database, Oid relation)
{
	Held	   *latest = NULL;
	Held	   *best;
	int			segments[GG_MAX_DEVICES] = {0};
	uint32		ready = 0;

	for (int h = 0; h < nheld; h++)
		if (held[h].resident.database == database && held[h].resident.relation == relation &&
			(latest == NULL || held[h].resident.use > latest->resident.use))
			latest = &held[h];
	best = latest;
	for (int h = 0; h < nheld && latest != NULL; h++)
	{
		const GgResident *resident = &held[h].resident;
		bool		better = !resident->replica || best->resident.state != GG_RESIDENT_READY;

		if (resident->state != GG_RESIDENT_READY || !IsCopy(resident, &latest->resident))
			continue;
		ready |= held[h].place;
		segments[pg_rightmost_one_pos32(held[h].place)] =
			(int) resident->now.nsegments - pg_popcount32(resident->now.forms.missing);
		if (better)
			best = &held[h];
	}
	if (best != NULL)
	{
		best->ready = ready;
		memcpy(best->segments, segments, sizeof(segments));
		AddOthers(best, held, nheld);
	}
	return best;
}

/* Mark the entries of an index as shown: no other row is to show them. */
static void
MarkShown(Held *held, int nheld, Oid database, Oid relation)
{
	for (int h = 0; h < nheld; h++)
		held[h].shown |= held[h].resident.database == database &&
			held[h].resident.relation == relation;
}

static void
PutIndexRow(ReturnSetInfo *rsinfo, GgIndexCounters *counters, Held *held)
{
	GgRow		row = {0};

	PutIndex(&row, counters, held);
	GgAddRow(rsinfo, &row, INDEX_COLUMNS);
}

/* The row of an index that counters or entries name. */
static void
ShowIndex(ReturnSetInfo *rsinfo, GgIndexCounters *counters, Held *held, int nheld, Oid database,
		  Oid relation)
{
	PutIndexRow(rsinfo, counters, FindLatest(held, nheld, database, relation));
	MarkShown(held, nheld, database, relation);
}

PG_FUNCTION_INFO_V1(gpugraph_stat_get_index);

Datum
gpugraph_stat_get_index(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = GgInitRows(fcinfo, INDEX_COLUMNS);
	GgIndexStats *stats;
	Held	   *held;
	int			nheld;

	if (gg_service == NULL)
		return (Datum) 0;

	stats = gg_service->index_stats;
	held = CopyEntries(InvalidOid, &nheld);
	for (int i = -1; i < (int) gg_service->index_slots; i++)
	{
		GgIndexCounters *counters = i < 0 ? &stats->others : &stats->slots[i];
		uint64		key;
		uint64		any = 0;

		GiveBack(counters);
		key = pg_atomic_read_u64(&counters->key);
		for (int r = 0; r < GG_NREASONS; r++)
			any += pg_atomic_read_u64(&counters->queries[r]);
		if (key != GIVEN_BACK && (key != 0 || any != 0))
			ShowIndex(rsinfo, counters, held, nheld, (Oid) (key >> 32), (Oid) key);
	}
	for (int h = 0; h < nheld; h++)
		if (!held[h].shown)
			ShowIndex(rsinfo, NULL, held, nheld, held[h].resident.database,
					  held[h].resident.relation);
	pfree(held);
	return (Datum) 0;
}

/* ---- for gpugraph_indexes ------------------------------------------------------------ */

void
GgStatOfIndex(Oid relation, GgIndexStat *stat)
{
	GgIndexCounters *counters;
	Held	   *held;
	Held	   *latest;
	int			nheld;
	bool		full;

	memset(stat, 0, sizeof(GgIndexStat));
	if (gg_service == NULL)
		return;
	stat->up = GgServiceIsUp(false);
	held = CopyEntries(relation, &nheld);
	latest = FindLatest(held, nheld, MyDatabaseId, relation);
	if (latest != NULL)
	{
		GgResident *resident = &latest->resident;

		stat->state = ResidentStateName(resident);
		stat->ready = resident->state == GG_RESIDENT_READY;
		stat->missing = stat->ready ? resident->now.forms.missing : 0;
		stat->rowless = stat->ready ? resident->now.forms.rowless : 0;
		stat->device = latest->device;
		stat->failure = GG_REASON_NONE;
		if (resident->state == GG_RESIDENT_FAILED)
			stat->failure = resident->reason;
	}
	pfree(held);

	counters = SeekCounters((uint64) MyDatabaseId << 32 | relation, &full);
	stat->counted = !full;
	if (counters == NULL)
		return;
	stat->queries_gpu = pg_atomic_read_u64(&counters->queries[GG_REASON_NONE]) +
		pg_atomic_read_u64(&counters->queries[GG_REASON_PARTIAL]);
	stat->queries_cpu = pg_atomic_read_u64(&counters->queries[GG_REASON_CODED]);
	for (int reason = GG_REASON_NONE + 1; reason < GG_REASON_PARTIAL; reason++)
	{
		uint64		queries = pg_atomic_read_u64(&counters->queries[reason]);

		stat->queries_cpu += queries;
		if (!GgIsChoice(reason))
			stat->missed += queries;
	}
}

/* ---- gpugraph_stat_reset() ---------------------------------------------------------- */

#define RESET_WAITS		100

PG_FUNCTION_INFO_V1(gpugraph_stat_reset);

Datum
gpugraph_stat_reset(PG_FUNCTION_ARGS)
{
	GgIndexStats *stats;

	if (gg_service == NULL)
		PG_RETURN_VOID();

	/* first count the reset: processes that see it look places up anew, which others may take */
	stats = gg_service->index_stats;
	LWLockAcquire(gg_service->stat_lock, LW_EXCLUSIVE);
	pg_atomic_fetch_add_u64(&stats->resets, 1);
	for (int i = -1; i < (int) gg_service->index_slots; i++)
		Clear(i < 0 ? &stats->others : &stats->slots[i], 0);
	LWLockRelease(gg_service->stat_lock);

	for (int i = 0; i < gg_service->ndevices; i++)
	{
		GgDevice   *device = gg_service->devices[i];

		pg_atomic_write_u32(&device->reset, 1);
		GgResidentNotify(device);
		/* a worker that is down does it when it comes back */
		for (int w = 0; w < RESET_WAITS; w++)
		{
			if (pg_atomic_read_u32(&device->reset) == 0 || !GgDeviceIsUp(device))
				break;
			GgLoadSleep(2);
		}
	}
	PG_RETURN_VOID();
}
