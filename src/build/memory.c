/*
 * memory.c
 *		The memory of a build: what its segments may take, and what users are told of it.
 *
 * Rows, TIDs, filter words (as they come and as they are sorted), hashes, the graph and what the
 * engine needs should fit in maintenance_work_mem.  Where twice as much would do, or 64 MB, the
 * build takes that.  On a device, rows and what the engine needs there must fit in
 * gpugraph.device_memory, or 64 MB, and in what is free.  Where rows of float32 do not, they go
 * there in half precision.  Where they do not fit even so, groups of rows are there one after the
 * other (kernels/build/groups.cu), on all devices at the same time.  segment_plan.c decides what is
 * done where that does not do.  Rows may go to temporary files (area.c), and the graph is made by
 * groups of them.  Or the rows collected so far become a segment of their own and the scan goes on.
 * The index then has several segments; each is as good, but a search walks them all.  A NOTICE
 * announces either.  The option segment_rows asks for smaller segments.
 *
 * Where an engine with processors of its own builds several segments, the next one's rows are read
 * while one is built and written.  So many are in memory at the same time as fit into what a single
 * segment may take: twice maintenance_work_mem, or 64 MB.
 */
#include "build/memory.h"
#include "build/deduplicate.h"
#include "storage/graph_memory.h"
#include "storage/segment_writer.h"

#include "access/tableam.h"
#include "miscadmin.h"
#include "optimizer/plancat.h"

/* An estimate may be a little too low, and processes leave chunks half empty. */
#define SLACK				1.05

#define MB(bytes)			((bytes) / (1024 * 1024) + 1)

/* Heap pages looked at to learn how many rows a page has. */
#define SAMPLE_PAGES		32

/*
 * What a segment takes while the engine runs.  That is the peak: removing duplicates before and
 * sharing the adjacency after take less than the engine does.
 */
static GgGraphMemory
SegmentMemory(const GgMemoryPlan *plan, const GgMetaPageData *meta)
{
	GgGraphMemory memory = {plan->engine, &plan->params, &plan->control, meta};

	memory.row_bytes = 2 * GgFilterBytes(meta) + sizeof(GgTidEntry) + GG_DEDUPLICATE_ROW_BYTES +
		GgCodeBytes(meta, meta->coded);
	if (!plan->spill)
		memory.row_bytes += GgRowBytes(meta);
	memory.halved = plan->halved;
	return memory;
}

/* Bytes of temporary files, about, while a segment of n rows is built. */
static double
SpilledBytes(const GgMemoryPlan *plan, const GgMetaPageData *meta, double rows)
{
	double		bytes = GgRowBytes(meta) + 2 * GgFilterBytes(meta) + sizeof(GgTidEntry) +
		GG_DEDUPLICATE_ROW_BYTES + GgCodeBytes(meta, meta->coded);

	/* the lists are gone before processes share the graph; GRNND has none */
	if (plan->engine == &gg_cpu_engine && plan->params.algorithm != GG_ALGORITHM_GRNND)
		bytes += meta->intermediate_graph_degree * (sizeof(uint32) + sizeof(float));
	else
		bytes += meta->graph_degree * sizeof(uint32);
	return rows * bytes;
}

/* Have n rows go to temporary files, and the engine keep to what they leave of the budget. */
static void
Spill(GgMemoryPlan *plan, const GgMetaPageData *meta, uint32 n)
{
	GgGraphMemory memory;

	plan->spill = true;
	memory = SegmentMemory(plan, meta);
	plan->control.memory = GgEngineBudget(&memory, n, GgGraphBudget());
}

/* The most rows of a segment whose rows go to temporary files; 0: they cannot. */
static uint32
RowsSpilled(const GgMemoryPlan *plan, const GgMetaPageData *meta)
{
	GgMemoryPlan spilling = *plan;
	GgGraphMemory memory;
	uint32		n;

	spilling.spill = true;
	memory = SegmentMemory(&spilling, meta);
	n = GgRowsSpilled(&memory, GgGraphBudget());
	return GgTempFileAllowed(SpilledBytes(plan, meta, Min(n, plan->expected))) ? n : 0;
}

/*
 * How many rows of a segment the device holds: in half precision, or in groups one after the other,
 * if that makes it more.
 */
static uint32
RowsOnDevice(GgMemoryPlan *plan, const GgMetaPageData *meta, double wanted)
{
	GgGraphMemory memory = SegmentMemory(plan, meta);
	uint32		rows = GgRowsThatFitDevice(&memory, plan->device_budget);
	uint32		grouped;

	plan->halved = rows < wanted && meta->element == GG_ELEMENT_F32;
	memory.halved = plan->halved;
	if (plan->halved)
		rows = GgRowsThatFitDevice(&memory, plan->device_budget);
	if (rows >= wanted)
		return rows;
	/* rows of groups come from the host's memory, as they are there */
	memory.halved = false;
	plan->control.device_memory = plan->device_budget;
	plan->control.nothers = plan->devices.count - 1;
	grouped = GgRowsThatFitDevice(&memory, plan->device_budget);
	if (grouped > rows)
	{
		plan->halved = false;
		return grouped;
	}
	plan->control.device_memory = 0;
	plan->control.nothers = 0;
	return rows;
}

/* Rows of a segment as far as the host decides. */
static double
WantedRows(const gg_segment_room *room)
{
	double		rows = room->expected > room->host_alone ?
		Max(room->host, room->spilled) : room->expected;

	rows = Max(rows, room->expected / GG_MAX_BUILD_SEGMENTS);
	return room->wanted > 0 ? Min(room->wanted, rows) : rows;
}

static gg_segment_room
FindRoom(GgMemoryPlan *plan, const GgMetaPageData *meta)
{
	GgGraphMemory memory = SegmentMemory(plan, meta);
	uint64		twice = (uint64) maintenance_work_mem * 2048;
	gg_segment_room room;

	room.expected = plan->expected * SLACK;
	room.wanted = plan->bound;
	room.host = GgRowsThatFit(&memory, GgGraphBudget());
	room.host_alone = GgRowsThatFit(&memory, Max(twice, GG_LEAST_GRAPH_BYTES));
	room.spilled = RowsSpilled(plan, meta);
	room.device = GG_MAX_NODES;
	plan->device_budget = PG_UINT64_MAX;
	plan->control.device_memory = 0;
	plan->control.nothers = 0;
	if (plan->apart)
	{
		double		rows = Min(plan->expected, Max(room.host_alone, room.spilled));

		plan->device_budget =
			GgBuildBudget(plan->engine, &plan->devices,
						  GgGraphDeviceBytes(&memory, (uint32) rows));
		if (plan->device_budget < PG_UINT64_MAX)
			room.device = RowsOnDevice(plan, meta, WantedRows(&room));
	}
	return room;
}

/* The device holds no segment worth having. */
static void
GiveUpDevice(GgMemoryPlan *plan, const gg_segment_room *room)
{
	if (gg_engine_setting == GG_ENGINE_CUDA)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("gpugraph index does not fit into device memory"),
				 errdetail("A build may take " UINT64_FORMAT " MB, which hold %u rows; "
						   "with %.0f rows it would need more than %d segments.",
						   MB(plan->device_budget - 1), room->device, plan->expected,
						   GG_MAX_BUILD_SEGMENTS),
				 errhint("Increase gpugraph.device_memory, free memory of the GPU, or set "
						 "gpugraph.engine to \"auto\" or \"cpu\" to use the CPU.")));
	ereport(NOTICE,
			(errmsg("gpugraph index is built on the CPU"),
			 errdetail("A build may take " UINT64_FORMAT " MB of device memory, which hold %u "
					   "rows; with %.0f rows it would need more than %d segments.",
					   MB(plan->device_budget - 1), room->device, plan->expected,
					   GG_MAX_BUILD_SEGMENTS),
			 errhint("Increase gpugraph.device_memory, or free memory of the GPU.")));
	GgKeepReserved(&plan->devices, 0, 0);
	plan->engine = &gg_cpu_engine;
	plan->apart = plan->halved = false;
}

static void
LogPlan(const GgMemoryPlan *plan, const GgMetaPageData *meta)
{
	GgGraphMemory memory = SegmentMemory(plan, meta);
	uint32		rows = (uint32) Min(plan->expected, plan->most);
	char		files[50] = "";
	char		device[150] = "";

	if (plan->spill)
		snprintf(files, sizeof(files), " in temporary files of " UINT64_FORMAT " MB",
				 MB((uint64) SpilledBytes(plan, meta, rows)));

	if (plan->apart)
		snprintf(device, sizeof(device), ", " UINT64_FORMAT " MB of device memory%s",
				 MB(GgGraphDeviceBytes(&memory, rows)),
				 plan->halved ? " with rows in half precision" :
				 plan->control.device_memory > 0 ? " with groups of rows" : "");
	if (plan->device_budget < PG_UINT64_MAX && plan->apart)
		snprintf(device + strlen(device), sizeof(device) - strlen(device),
				 " of " UINT64_FORMAT " MB", MB(plan->device_budget - 1));
	ereport(DEBUG1,
			(errmsg_internal("gpugraph build plan: %.0f rows expected, segments of up to %u%s; "
							 "one of %u rows takes " UINT64_FORMAT " MB of memory%s; %d in memory, "
							 "%d devices",
							 plan->expected, plan->most, files, rows,
							 MB(GgGraphBytes(&memory, rows)), device, plan->areas,
							 plan->devices.count)));
}

/* How many segments there may be in memory: one for each device, and one that is read. */
static int
CountAreas(const GgMemoryPlan *plan, const gg_segment_room *room)
{
	int			areas = Min(plan->devices.count + 1, GG_WRITER_QUEUES);

	if (!plan->apart || plan->spill || room->expected <= plan->most)
		return 1;
	while (areas > 1 && Min(room->expected, (double) areas * plan->most) > room->host_alone)
		areas--;
	return areas;
}

/* Each device keeps what one segment at a time takes; one that gets no segment keeps nothing. */
static void
KeepReserved(GgMemoryPlan *plan, const GgMetaPageData *meta, double rows)
{
	GgGraphMemory memory = SegmentMemory(plan, meta);
	int			used = plan->control.nothers > 0 ? plan->devices.count : plan->areas;

	if (plan->apart)
		GgKeepReserved(&plan->devices, used, GgGraphDeviceBytes(&memory, (uint32) rows));
}

/*
 * Codes are for walks on the CPU.  A device that is up now will answer for the index, and codes
 * would be more to read and write.
 */
static void
ChooseCodes(GgMemoryPlan *plan, const GgMetaPageData *meta)
{
	if (!plan->auto_codes || GgWhyNoCodes(meta, plan->expected) != NULL)
		return;
	if (!GgServiceIsUp(false))
		plan->codes = GG_AUTO_CODES;
}

void
GgPlanSegments(GgMemoryPlan *plan, const GgMetaPageData *meta)
{
	gg_segment_room room;
	gg_segment_plan decided;

	ChooseCodes(plan, meta);
	room = FindRoom(plan, meta);
	decided = gg_plan_segments(&room);
	if (decided.too_small)
	{
		GiveUpDevice(plan, &room);
		room = FindRoom(plan, meta);
		decided = gg_plan_segments(&room);
	}
	plan->most = decided.rows;
	plan->by_device = decided.by_device;
	plan->segments_announced = decided.by_wish && !decided.by_device;
	if (decided.spill)
		Spill(plan, meta, (uint32) Min(room.expected, plan->most));
	plan->areas = CountAreas(plan, &room);
	KeepReserved(plan, meta, Min(room.expected, plan->most));
	LogPlan(plan, meta);
}

void
GgAnnounceSegments(GgMemoryPlan *plan, const GgMetaPageData *meta, uint32 rows)
{
	GgGraphMemory memory = SegmentMemory(plan, meta);
	uint32		all = (uint32) Min(Max(plan->expected, rows), GG_MAX_NODES);

	if (plan->segments_announced)
		return;
	plan->segments_announced = true;
	if (plan->by_device)
		ereport(NOTICE,
				(errmsg("gpugraph index no longer fits into device memory after %u rows", rows),
				 errdetail("A build may take " UINT64_FORMAT " MB. "
						   "The index is built in several segments, and every search visits each.",
						   MB(plan->device_budget - 1)),
				 errhint("A single segment takes " UINT64_FORMAT " MB of device memory: increase "
						 "gpugraph.device_memory, or free memory of the GPU.",
						 MB(GgGraphDeviceBytes(&memory, all)))));
	else
		ereport(NOTICE,
				(errmsg("gpugraph index no longer fits into maintenance_work_mem after %u rows",
						rows),
				 errdetail("The index is built in several segments, and every search visits each."),
				 errhint("Increase maintenance_work_mem to " UINT64_FORMAT
						 " MB for a single segment.", MB(GgGraphBytes(&memory, all)))));
}

/*
 * Announce temporary files, where memory would really not have held the rows: a predicate may have
 * left few.
 */
static void
AnnounceSpill(GgMemoryPlan *plan, const GgMetaPageData *meta, uint32 nodes, uint32 rows)
{
	GgMemoryPlan held = *plan;
	GgGraphMemory memory;
	uint64		needed;

	held.spill = false;
	held.control.memory = 0;
	memory = SegmentMemory(&held, meta);
	needed = GgGraphBytes(&memory, nodes);
	if (needed <= Max((uint64) maintenance_work_mem * 2048, GG_LEAST_GRAPH_BYTES))
		return;
	plan->spill_announced = true;
	ereport(NOTICE,
			(errmsg("gpugraph index does not fit into maintenance_work_mem"),
			 errdetail("%u rows go to temporary files of some " UINT64_FORMAT
					   " MB, which takes longer.",
					   rows, MB((uint64) SpilledBytes(plan, meta, nodes))),
			 errhint("Increase maintenance_work_mem to " UINT64_FORMAT
					 " MB for a build in memory.", MB(needed))));
}

void
GgAnnounceMemory(GgMemoryPlan *plan, const GgMetaPageData *meta, uint32 nodes, uint32 rows)
{
	GgGraphMemory memory = SegmentMemory(plan, meta);
	uint64		needed = GgGraphBytes(&memory, nodes);
	uint64		allowed = (uint64) maintenance_work_mem * 1024;

	if (plan->spill && !plan->spill_announced)
		AnnounceSpill(plan, meta, nodes, rows);
	if (plan->spill_announced)
		allowed = GgGraphBudget();
	if (needed <= allowed || plan->memory_announced)
		return;
	plan->memory_announced = true;
	ereport(NOTICE,
			(errmsg("gpugraph index build takes more memory than maintenance_work_mem"),
			 errdetail("A segment of %u rows takes " UINT64_FORMAT " MB; "
					   "smaller ones would make searches slower.",
					   rows, MB(needed)),
			 errhint("Increase maintenance_work_mem to " UINT64_FORMAT " MB.",
					 MB(needed))));
}

/*
 * The planner's estimate goes by the widths of columns when the table was never analyzed, and can
 * be off by a factor of ten.  Line pointers on a few pages are better than that.
 */
double
GgExpectedRows(Relation heap)
{
	BlockNumber pages = RelationGetNumberOfBlocks(heap);
	double		tuples,
				allvisfrac;
	double		items = 0;

	if (heap->rd_rel->reltuples >= 0 || heap->rd_tableam != GetHeapamTableAmRoutine() || pages == 0)
	{
		estimate_rel_size(heap, NULL, &pages, &tuples, &allvisfrac);
		return tuples;
	}
	for (uint32 i = 0; i < SAMPLE_PAGES; i++)
	{
		BlockNumber blkno = (BlockNumber) ((uint64) pages * i / SAMPLE_PAGES);
		Buffer		buffer = ReadBuffer(heap, blkno);
		Page		page = BufferGetPage(buffer);

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		if (!PageIsNew(page))
			for (OffsetNumber off = FirstOffsetNumber; off <= PageGetMaxOffsetNumber(page); off++)
				items += ItemIdIsNormal(PageGetItemId(page, off));
		UnlockReleaseBuffer(buffer);
	}
	return items / SAMPLE_PAGES * pages;
}
