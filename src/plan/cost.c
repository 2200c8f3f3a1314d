/*
 * cost.c
 *		What the planner is told a scan costs.
 *
 * ScanTime() follows a scan (src/scan).  Every segment is walked with a candidate list of
 * gpugraph.itopk_size, which is doubled until half of it covers the rows that are wanted.  Where
 * LIMIT is known, the list has its rows from the start.  Where the list would be longer than a
 * share of the segment (search_plan.h), an exact pass over all vectors takes the walk's place, and
 * a second one sorts what the first did not keep.  The delta
 * has exact passes only.
 *
 * With conditions on filter columns, a walk has a sample of the rows evaluated, and hands out nodes
 * that match, so its list grows faster.  An exact pass has all rows evaluated, and measures those
 * that match.
 *
 * A condition on the distance drops no row before it ends the scan (scan/within.c).  So rows are
 * read until LIMIT has what passes the other conditions, and no farther than the planner believes
 * rows to be within the distance.
 *
 * The planner knows two costs, before the first row and after the last, and assumes a straight
 * line between them.  The time is no straight line: it rises fastest at the beginning.  So the
 * line is drawn through the time of the rows that LIMIT and filter together will take, and that
 * of all rows.
 *
 * Times are in microseconds, measured on one core with everything in memory.  They are those of our
 * scan, and those of the plan that competes, a sequential scan with a sort.  Only their ratio
 * counts: our cost is core's charge for that plan, times our time, divided by its time.  So what
 * core leaves out of that plan's cost is left out of ours as well, above all the fetching of
 * vectors that are stored out of line (TOAST).
 *
 * Where a segment has codes, a walk measures by those, and some nodes by row after that.  Where the
 * index has codes alone, exact passes measure by codes, too, and somewhat more rows than are wanted
 * are read from the table (scan/table_order.c).
 *
 * Where a device has the index, times are those of a device: lists of walks while they are worth
 * it, then deep lists, which measure every row that matches (scan/device_stream.c).  The model of a
 * device is in engine/rules/device_model.h.  Of a segment without rows a device has lists of walks
 * alone.  Under a filter it has the first one, a list of bounds, or none (GgFilteredCodesList()).
 */
#include "plan/planner.h"
#include "scan/monotone.h"
#include "scan/sort_key.h"
#include "engine/rules/search_plan.h"
#include "engine/request.h"
#include "service/shared/service.h"
#include "storage/calibration.h"
#include "storage/codes.h"
#include "storage/directory.h"
#include "storage/type.h"

#include <math.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "nodes/pathnodes.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"
#include "utils/spccache.h"

/*
 * Distances that a walk computes for each entry of its candidate list.  Measured were 16 to 26, at
 * degree 32 over the data sets of test/bench.
 */
#define DISTANCES_PER_ENTRY		20.0

/*
 * Times of our scan, in microseconds: a vector in a walk, a vector in an exact pass, a comparison
 * of two keys in a sort, and a row that is returned.  Some are in search_plan.h.  A vector's time
 * goes by the pages that it fills (0.06 at 128 dimensions, 0.38 at 768, 0.75 at 1,536).  Measured
 * were 0.1, 0.2, 0.8 and 1.5 us in walks at 3, 128, 768 and 1,536 dimensions, and 0.12, 0.17, 0.45
 * and 0.65 us in exact passes.  LIMIT 1,000 and 8,000 of exact passes took 3.6 and 5.5 ms over
 * 20,000 x 32, 2.8 and 4.7 over 9,900 x 128, with a comparison at 0.005.
 */
#define WALK_TIME(pages)		(0.12 + 1.8 * (pages))
#define COMPARE_TIME			0.005
#define RETURN_TIME				0.1

/*
 * What a row takes that is read from the table to be measured, beside its distance and the fetch of
 * a vector that is out of line.  Measured were, all in all, 0.3 to 0.7 us at 96 dimensions, 0.4 to
 * 1.1 at 768, and 2.4 to 4 at 768 out of line.
 */
#define READ_TIME				0.2

/*
 * What a row within a distance takes beside that: its page of the table is any.  Measured was, of
 * 5,000 and 15,000 of 50,000 x 128 rows, three times what a row takes in a sequential scan.
 */
#define WITHIN_TIME				1.0

/* What a walk spends on conditions, at most.  Measured were 60 us. */
#define SAMPLE_TIME				60.0

/*
 * Times of a sequential scan with a sort, in microseconds: a page of the table, a row, a row that
 * passes the filter, and the fetch of a vector that is stored out of line.  Measured were, for
 * 10,000 rows, 0.6 ms at 3 dimensions where a tenth passes and 1.8 ms where all do, and 1.2 and
 * 4.2 ms at 128 dimensions.  A row that passes took 4 and 5 us at 768 and 1,536 dimensions.
 */
#define TABLE_PAGE_TIME			0.7
#define TABLE_ROW_TIME			0.06
#define SORTED_ROW_TIME(pages)	(0.1 + 3.3 * (pages))
#define FETCH_TIME				2.5

/*
 * With a large LIMIT such a plan takes longer, by so much for each of its rows.  Measured were,
 * from LIMIT 10 to 8,000, 0.8 us over 20,000 x 32, 1.2 over 40,000 x 64, and 0.3 over 9,900 x 128.
 * Core charges by comparisons: two operators for each doubling of LIMIT and row of the table.
 */
#define LIMITED_ROW_TIME		0.8
#define SMALL_LIMIT				16.0

/* What the planner's functions know of an index. */
typedef struct IndexShape
{
	const GgMetaPageData *meta;
	bool		rounded;		/* rows are stored rounded */
	double		column_pages;	/* pages that a vector fills in the table */
	double		index_pages;	/* pages of 8 kB that a vector fills in the index */
	double		read_time;		/* of a row of the table that is measured */
	double		nodes;			/* of all segments and the delta */
	double		delta_nodes;
	int			conditions;		/* on filter columns ... */
	Selectivity matching;		/* ... and the share of rows that fulfil them */
	uint32		expected;		/* rows that a scan hands out, where the executor filters them */
	double		limit;			/* rows that are asked for; not above 0: not known */
	const GgCalibration *calibration;	/* NULL: gpugraph.target_recall does not count */
	uint32		list;			/* the first candidate list of the CPU ... */
	uint32		device_list;	/* ... and of a device */
	bool		on_device;
	/* on_device: bitmaps of segments that are not there, and of those that are only walked */
	uint32		missing;
	uint32		rowless;
} IndexShape;

/* The nodes of a segment, or of the delta. */
typedef struct Nodes
{
	double		nodes;
	bool		has_graph;
	gg_codes	codes;			/* that walks measure by */
	bool		rowless;		/* on the device */
} Nodes;

/*
 * Does a row keep its ctid in the executor's reorder queue?  It does not in some minor releases
 * (15.18, 16.14, 17.11, 18.6, 19rc1).  This asks the server that runs, not the headers.
 */
static bool
QueueKeepsCtid(void)
{
	static int	keeps = -1;

	if (keeps < 0)
	{
		TupleDesc	desc = CreateTemplateTupleDesc(1);
		TupleTableSlot *slot;
		HeapTuple	tuple;
		Datum		value = Int32GetDatum(0);
		bool		isnull = false;

		TupleDescInitEntry(desc, 1, "id", INT4OID, -1, 0);
		slot = MakeSingleTupleTableSlot(desc, &TTSOpsBufferHeapTuple);
		tuple = heap_form_tuple(desc, &value, &isnull);
		ItemPointerSet(&tuple->t_self, 1, 1);
		ExecForceStoreHeapTuple(tuple, slot, false);
		keeps = ItemPointerIsValid(&slot->tts_tid);
		ExecDropSingleTupleTableSlot(slot);
		heap_freetuple(tuple);
		FreeTupleDesc(desc);
	}
	return keeps != 0;
}

/* May the query read ctids of the table?  One that locks rows does. */
static bool
ReadsCtid(const RelOptInfo *rel, const ParamPathInfo *param_info)
{
	List	   *clauses = list_copy(rel->baserestrictinfo);
	Bitmapset  *columns = NULL;
	ListCell   *cell;

	if (GgPlansCursor())
		return true;
	if (param_info != NULL)
		clauses = list_concat(clauses, param_info->ppi_clauses);
	pull_varattnos((Node *) rel->reltarget->exprs, rel->relid, &columns);
	foreach(cell, clauses)
		pull_varattnos((Node *) lfirst_node(RestrictInfo, cell)->clause, rel->relid, &columns);
	return bms_is_member(SelfItemPointerAttributeNumber - FirstLowInvalidHeapAttributeNumber,
						 columns);
}

bool
GgMayReorder(const RelOptInfo *rel, const ParamPathInfo *param_info)
{
	return !ReadsCtid(rel, param_info) || QueueKeepsCtid();
}

/* Have the planner choose any other path before this one. */
static void
RefusePath(IndexPath *path, Cost *indexStartupCost, Cost *indexTotalCost,
		   Selectivity *indexSelectivity, double *indexCorrelation, double *indexPages)
{
	*indexStartupCost = GG_REFUSED_COST;
	*indexTotalCost = GG_REFUSED_COST;
	*indexSelectivity = 0;
	*indexCorrelation = 0;
	*indexPages = 0;
	GgDisablePath(&path->path);
}

/* A copy of the cached calibration: that one goes where invalidations are accepted. */
static const GgCalibration *
CopyCalibration(const GgCalibration *calibration)
{
	GgCalibration *copy;

	if (calibration == NULL)
		return NULL;
	copy = palloc(sizeof(GgCalibration));
	*copy = *calibration;
	return copy;
}

/* Read the shape from the metapage or, for a hypothetical index, from the column. */
static void
ReadShape(PlannerInfo *root, const IndexOptInfo *info, IndexShape *shape)
{
	GgMetaPageData *meta = palloc0(sizeof(GgMetaPageData));

	memset(shape, 0, sizeof(IndexShape));
	shape->meta = meta;
	if (info->hypothetical)
	{
		Oid			type,
					collation;
		int32		typmod;

		meta->nsegments = 1;
		meta->segments[0].nodes = meta->segments[0].rows = (uint32) Min(info->tuples, PG_INT32_MAX);
		if (info->indexkeys[0] != 0)
		{
			get_atttypetypmodcoll(planner_rt_fetch(info->rel->relid, root)->relid,
								  info->indexkeys[0], &type, &typmod, &collation);
			meta->dimensions = Max(0, typmod);
		}
		shape->column_pages = (double) GgRowBytes(meta) / BLCKSZ;
	}
	else
	{
		Relation	index = index_open(info->indexoid, NoLock);
		gg_element	element = GgIndexOpclass(index)->element;

		GgReadMeta(index, meta);
		if (gg_target_recall > 0 && gg_iterative_scan != GG_ITERATIVE_OFF)
			shape->calibration = CopyCalibration(GgGetCalibration(index, meta));
		shape->rounded = element != meta->element;
		shape->column_pages = (double) meta->dimensions * gg_element_size(element) / BLCKSZ;
		index_close(index, NoLock);
	}

	shape->delta_nodes = (double) GgDeltaSlots(meta);
	shape->nodes = (double) GgCountNodes(meta) + shape->delta_nodes;
	shape->index_pages = (double) GgRowBytes(meta) / GG_TIMED_PAGE;
}

bool
GgDeviceAnswers(Oid index, const GgMetaPageData *meta, uint32 least_nodes, uint32 *missing,
				uint32 *rowless)
{
	uint32		most_nodes = 0;
	GgIndexStat stat;

	*missing = *rowless = 0;
	for (int i = 0; i < meta->nsegments; i++)
		most_nodes = Max(most_nodes, meta->segments[i].nodes);
	if (gg_engine_setting == GG_ENGINE_CPU || most_nodes < least_nodes)
		return false;
	GgStatOfIndex(index, &stat);
	*missing = stat.missing;
	*rowless = stat.rowless;
	return stat.ready;
}

/* Does a device have all rows, and measure them sooner than a core? */
static bool
MeasuresOnDevice(const IndexOptInfo *index, IndexShape *shape)
{
	return !index->hypothetical && shape->meta->coded == GG_CODES_NONE &&
		GgDeviceMeasuresSooner(shape->nodes, GgRowBytes(shape->meta)) &&
		GgDeviceAnswers(index->indexoid, shape->meta, 0, &shape->missing, &shape->rowless) &&
		(shape->missing | shape->rowless) == 0;
}

double
GgDeviceExactTime(double nodes, double words, double matching, double row_bytes)
{
	const double more = words > 0 ? 0 : GG_DEVICE_DEEP_US;

	return GG_DEVICE_LIST_US + more + (nodes * words * sizeof(uint64) + matching * row_bytes) /
		GG_DEVICE_BYTES_PER_US;
}

/* How many of the rows that are due are measured where so many are wanted? */
static double
MeasuredRows(double wanted, double due)
{
	const double first = (double) GgMeasureUntil(0, (uint64) wanted, (uint64) due);
	const gg_search_params settings = GgSearchSettings();

	if (GgReadsAllDue(gg_iterative_scan, &settings))
		return due;
	return first + GG_MEASURED_SHARE * (due - first);
}

/* The first candidate list of a form, as scan/recall_target.c has it. */
static uint32
ListOf(const IndexShape *shape, GgForm form)
{
	double		rows = shape->limit > 0 ? shape->limit : GG_USUAL_LIMIT;

	if (shape->calibration == NULL)
		return (uint32) gg_itopk_size;
	if (shape->conditions > 0)
		rows /= Max(shape->matching, 1e-6);
	else if (shape->expected > rows)
		rows = shape->expected;
	return GgListFor(shape->calibration, form, gg_target_recall, rows);
}

/* GgSearchSettings() with the list of the CPU, or of a device. */
static gg_search_params
SettingsOf(const IndexShape *shape, uint32 list)
{
	gg_search_params settings = GgSearchSettings();

	settings.itopk_size = list;
	return settings;
}

/*
 * Nodes that are measured by row after walks by codes of a segment, of which so many rows are
 * wanted.  at_once: all that are due are measured, without a look whether fewer do.
 */
static double
RerankedNodes(const IndexShape *shape, gg_codes codes, double list, double wanted, bool at_once)
{
	gg_search_params params = GgSearchSettings();
	double		due;

	params.itopk_size = (uint32) Min(list, GG_MAX_NODES);
	params.k = (uint32) Min(GgRowsToTake((uint64) (list / 2), (uint64) Max(shape->limit, 0),
										 (uint64) Max(wanted - 1, 0)), params.itopk_size);
	due = gg_rerank_size(&params, codes, shape->meta->dimensions);
	return at_once ? due : MeasuredRows(params.k, due);
}

/* The longest list of a walk of a segment, as the scan has it. */
static double
LongestList(const IndexShape *shape, const Nodes *of, double walk_pages, double exact_pages)
{
	const double share = of->nodes / shape->nodes;
	const GgFilteredNodes filtered = {
		.nodes = of->nodes,
		.matching = of->nodes * shape->matching,
		.conditions = of->nodes < GG_SAMPLED_FROM ? 0 : shape->conditions,
		.walk_pages = walk_pages,
		.exact_pages = exact_pages,
		.wanted = GgNodesWanted(Max(shape->limit, 0) * share, shape->list)
	};

	if (!of->has_graph || gg_target_recall == 1)
		return 0;
	return shape->conditions > 0 ? GgLongestFilteredList(&filtered) :
		GgLongestWalkList(of->nodes);
}

/*
 * The time for the first nodes that match of a segment or, without a graph, of the delta.  share
 * says how many, as a share of all that match.
 */
static double
StreamTime(const IndexShape *shape, const Nodes *of, double share)
{
	double		nodes = of->nodes;
	double		matching = nodes * shape->matching;
	double		wanted = share * matching;
	double		walk_pages = of->codes == GG_CODES_NONE ? shape->index_pages :
		(double) GgCodeBytes(shape->meta, of->codes) / GG_TIMED_PAGE;
	double		exact_pages = shape->meta->coded != GG_CODES_NONE ? walk_pages :
		shape->index_pages;
	double		longest = LongestList(shape, of, walk_pages, exact_pages);
	double		list = shape->list;
	double		handed = 0;
	double		time = 0;
	double		condition_time = nodes * shape->conditions * GG_CONDITION_TIME;
	double		exact_time = shape->conditions > 0 ? GG_MATCHING_TIME(exact_pages) :
		GG_EXACT_TIME(exact_pages);

	if (shape->limit > 0 && shape->conditions == 0 && wanted > list / 2 && share < 1)
		list = (double) GgFirstWalkList(shape->list, (uint64) wanted, longest);
	if (list <= longest)
	{
		while (wanted > list / 2 * shape->matching && list / 2 < gg_max_scan_tuples)
		{
			double		next = (double) GgNextList((uint64) list);

			CHECK_FOR_INTERRUPTS();
			if (shape->conditions > 0)
				next = GgLongerFilteredList((uint32) list, longest);
			if (next == 0 || next > longest)
				break;
			list = next;
		}
		time += Min(condition_time, SAMPLE_TIME) +
			Min(list * DISTANCES_PER_ENTRY, nodes) * WALK_TIME(walk_pages);
		handed = list / 2 * shape->matching;
		if (of->codes != GG_CODES_NONE && shape->meta->coded == GG_CODES_NONE)
			time += RerankedNodes(shape, of->codes, list, Min(wanted, handed), false) *
				WALK_TIME(shape->index_pages);
		if (wanted <= handed)
			return time;
	}
	time += condition_time + matching * exact_time;
	if (wanted > Min(Max(shape->list, GG_EXACT_MIN_BATCH) + 2 * handed, matching))
	{
		time += matching * log2(Max(matching, 1)) * COMPARE_TIME;
		if (matching > GgExactRoom(work_mem, shape->meta->nsegments + (shape->delta_nodes > 0)))
			time += matching * exact_time;
	}
	return time;
}

/* LIMIT as scans have it; 0: not known. */
static uint32
LimitOf(const IndexShape *shape)
{
	return shape->limit > 0 ? (uint32) Min(shape->limit, GG_MAX_ROWS) : 0;
}

/* DeviceTime() of a list of bounds: a pass over codes, and rows that the backend measures. */
static double
BoundedTime(const IndexShape *shape, const Nodes *of, double share)
{
	const GgMetaPageData *meta = shape->meta;
	const gg_codes codes = GG_DEVICE_CODES((gg_metric) meta->metric);
	double		matching = of->nodes * shape->matching;
	double		wanted = share * matching;
	double		time = GgDeviceExactTime(of->nodes, shape->conditions + 1, matching,
										 gg_code_record_bytes(codes, meta->dimensions));

	time += Min(matching, GG_BOUNDED_TIMES * wanted) * WALK_TIME(shape->index_pages);
	return wanted <= GG_BOUNDED_LIST / GG_BOUNDED_TIMES ? time :
		time + StreamTime(shape, of, share);
}

/*
 * DeviceTime() under a filter where the device has codes alone: a walk, of which the backend
 * measures what matches, if the index has rows, and hands out half.  No walk: bounds, or the CPU.
 */
static double
FilteredCodesTime(const IndexShape *shape, const Nodes *of, double share)
{
	const GgMetaPageData *meta = shape->meta;
	const bool	off = gg_iterative_scan == GG_ITERATIVE_OFF;
	const uint32 limit = LimitOf(shape);
	const gg_search_params settings = SettingsOf(shape, shape->device_list);
	const uint32 list = GgFilteredCodesList(meta, gg_iterative_scan, &settings, limit,
											shape->matching);
	double		time = GG_DEVICE_LIST_US + list * GG_DEVICE_ENTRY_US;
	double		handed = (off ? list : list / 2) * shape->matching;

	if (list == 0)
		return GgHasBoundedList(meta, gg_iterative_scan, limit) ?
			BoundedTime(shape, of, share) : StreamTime(shape, of, share);
	if (meta->coded == GG_CODES_NONE)
	{
		double		due = GgRowsToMeasure(meta, &settings,
										  GG_DEVICE_CODES((gg_metric) meta->metric),
										  limit > 0 ? limit :
										  GgRowsWanted(gg_iterative_scan, &settings, 0, 0));

		due = Min(due, list * shape->matching);
		time += due * WALK_TIME(shape->index_pages);
		handed = off ? due : Min(due, list / 2);
	}
	return share * of->nodes * shape->matching <= handed ? time :
		time + StreamTime(shape, of, share);
}

/* StreamTime() of a device. */
static double
DeviceTime(const IndexShape *shape, const Nodes *of, double share)
{
	double		nodes = of->nodes;
	double		row_bytes = GgRowBytes(shape->meta);
	double		matching = nodes * shape->matching;
	double		wanted = share * matching;
	double		longest = !of->has_graph ? 0 : of->rowless ? GG_MAX_ITOPK :
		GgLongestDeviceList(nodes, row_bytes, GG_DEVICE_DEEP_US);
	double		expected = shape->conditions > 0 ? 0 : shape->expected * nodes / shape->nodes;
	double		list = Max(shape->device_list, Max(GG_EXPECTED_WALK(expected),
											  GG_LIMITED_WALK(Max(shape->limit, 0))));
	double		first_deep = GgFirstDeepList(expected);
	double		time = 0;
	bool		walked = list <= shape->device_list || list <= longest;
	double		deep;

	if (of->rowless && shape->conditions > 0)
		return FilteredCodesTime(shape, of, share);
	if (gg_target_recall == 1)
		walked = false;
	else if (LimitOf(shape) > 0 && gg_iterative_scan != GG_ITERATIVE_OFF && !of->rowless)
		walked = GgWalksForLimit(LimitOf(shape), shape->device_list, GgSearchSettings().mode,
								 nodes, row_bytes);
	if (shape->conditions == 0 && of->has_graph && walked)
	{
		time = GG_DEVICE_LIST_US + list * GG_DEVICE_ENTRY_US;
		while (wanted > list / 2 && list * 2 <= longest)
		{
			CHECK_FOR_INTERRUPTS();
			list *= 2;
			time += GG_DEVICE_LIST_US + list * GG_DEVICE_ENTRY_US;
		}
		if (of->rowless && shape->meta->coded == GG_CODES_NONE)
			time += RerankedNodes(shape, GG_DEVICE_CODES(shape->meta->metric), list, wanted, true) *
				WALK_TIME(shape->index_pages);
		if (wanted <= list / 2)
			return time;
	}
	if (of->rowless)
		return time + StreamTime(shape, of, share);
	deep = ceil(Max(wanted - first_deep, 0) / GG_MAX_DEEP) + 1;
	time += deep * GgDeviceExactTime(nodes, shape->conditions > 0 ? shape->conditions + 1 : 0,
									 matching, row_bytes);
	return time + (first_deep + wanted) * GG_DEVICE_KEY_US;
}

/* The codes of a segment's pieces. */
static gg_codes
CodesOf(const GgMetaPageData *meta, const GgSegment *segment)
{
	for (int i = 0; i < meta->npieces; i++)
		if (meta->pieces[i].segment == segment->id)
			return (gg_codes) meta->pieces[i].codes;
	return GG_CODES_NONE;
}

/* Rows that are read from the table where so many are wanted, and the index has codes alone. */
static double
ReadRows(const IndexShape *shape, double wanted)
{
	const gg_search_params settings = SettingsOf(shape, shape->list);
	const uint64 rows = GgRowsWanted(gg_iterative_scan, &settings, LimitOf(shape),
									 (uint64) Max(wanted - 1, 0));

	return MeasuredRows((double) rows, GgRowsToRead(shape->meta, &settings, rows));
}

/* The time for the first rows that match.  share says how many, as a share of all that do. */
static double
ScanTime(const IndexShape *shape, double share)
{
	const GgMetaPageData *meta = shape->meta;
	double		matching = shape->matching * shape->nodes;
	double		time = share * matching * (shape->on_device ? GG_DEVICE_ROW_US : RETURN_TIME);

	if (meta->coded != GG_CODES_NONE && matching > 0)
	{
		double		reads = Min(ReadRows(shape, share * matching), matching);

		time += reads * shape->read_time;
		share = reads / matching;
	}
	for (int i = 0; i < meta->nsegments; i++)
	{
		const GgSegment *segment = &meta->segments[i];
		Nodes		nodes = {
			.nodes = segment->nodes,
			.has_graph = true,
			.codes = CodesOf(meta, segment),
			.rowless = (shape->rowless >> i & 1) != 0
		};
		bool		on_device = shape->on_device && (shape->missing >> i & 1) == 0;

		if (segment->nodes > 0 && segment->dead < segment->rows)
			time += on_device ? DeviceTime(shape, &nodes, share) :
				StreamTime(shape, &nodes, share);
	}
	if (shape->delta_nodes > 0)
	{
		Nodes		delta = {.nodes = shape->delta_nodes};

		time += StreamTime(shape, &delta, share);
	}
	return time;
}

/*
 * Conditions on filter columns, and the share of the index's rows that fulfil them.  False where
 * NULL vectors are asked for, which are not indexed.  IS NOT NULL holds for all that are.
 */
static bool
ReadConditions(PlannerInfo *root, const IndexPath *path, IndexShape *shape)
{
	List	   *quals = NIL;
	ListCell   *cell;

	foreach(cell, path->indexclauses)
	{
		const IndexClause *clause = lfirst_node(IndexClause, cell);

		if (clause->indexcol > 0)
			quals = list_concat(quals, clause->indexquals);
		else if (IsA(clause->rinfo->clause, NullTest) &&
				 ((const NullTest *) clause->rinfo->clause)->nulltesttype == IS_NULL)
			return false;
	}
	shape->conditions = list_length(quals);
	shape->matching = clauselist_selectivity(root, quals, path->path.parent->relid, JOIN_INNER,
											 NULL);
	list_free(quals);
	return true;
}

/*
 * Is it a condition that ends a scan in that order?  Parameters that are not equal may have equal
 * values.
 */
static bool
EndsScan(IndexOptInfo *index, Node *clause, const OpExpr *order)
{
	GgMonotone	monotone;
	const OpExpr *distance;

	GgTakeApart(clause, &monotone);
	if (monotone.nsteps == 0 || monotone.direction == 1)
		return false;
	distance = GgDistanceOf(index, monotone.inner);
	return distance != NULL &&
		(equal(lsecond(distance->args), lsecond(order->args)) ||
		 !IsA(lsecond(distance->args), Const) || !IsA(lsecond(order->args), Const));
}

Selectivity
GgWithinDistance(PlannerInfo *root, IndexOptInfo *index, const Expr *order)
{
	const RelOptInfo *rel = index->rel;
	List	   *others = NIL;
	Selectivity passing;
	ListCell   *cell;

	if (!GgIsEnabled(GG_DISTANCE_BOUND))
		return 1;
	foreach(cell, rel->baserestrictinfo)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, cell);

		if (!EndsScan(index, (Node *) rinfo->clause, (const OpExpr *) order))
			others = lappend(others, rinfo);
	}
	if (list_length(others) == list_length(rel->baserestrictinfo))
		passing = 0;
	else
		passing = rel->tuples * clauselist_selectivity(root, others, rel->relid, JOIN_INNER, NULL);
	list_free(others);
	return passing > rel->rows ? rel->rows / passing : 1;
}

/* The time to fetch a vector out of line; 0 where the table's rows have room for vectors. */
static double
FetchTime(const RelOptInfo *rel, double column_pages)
{
	return rel->pages < rel->tuples * column_pages ? FETCH_TIME : 0;
}

/* The time for the distance and the sort of a row. */
double
GgSortedRowTime(const RelOptInfo *rel, double column_pages)
{
	return SORTED_ROW_TIME(column_pages) + FetchTime(rel, column_pages);
}

/*
 * What core charges for a microsecond of a sequential scan whose filtered rows are sorted by
 * distance.  It charges little for the distance of rows that are too far.
 */
Cost
GgMicrosecondCost(const RelOptInfo *rel, double column_pages, double filtered,
				  Selectivity within, double limit)
{
	const double rows = Min(limit, filtered);
	double		page_cost,
				charged,
				time;

	get_tablespace_page_costs(rel->reltablespace, NULL, &page_cost);
	charged = rel->pages * page_cost + rel->tuples * cpu_tuple_cost +
		filtered * GG_SORTED_ROW_COST * cpu_operator_cost;
	time = rel->pages * TABLE_PAGE_TIME + rel->tuples * TABLE_ROW_TIME +
		filtered / within * GgSortedRowTime(rel, column_pages);
	if (rows > SMALL_LIMIT)
	{
		charged += filtered * 2 * cpu_operator_cost *
			log2(Max(Min(2 * rows, filtered) / (2 * SMALL_LIMIT), 1));
		time += rows * LIMITED_ROW_TIME;
	}
	return charged / time;
}

void
ggcostestimate(PlannerInfo *root, IndexPath *path, double loop_count, Cost *indexStartupCost,
			   Cost *indexTotalCost, Selectivity *indexSelectivity, double *indexCorrelation,
			   double *indexPages)
{
	const RelOptInfo *rel = path->path.parent;
	double		filtered = path->path.param_info != NULL ?
		path->path.param_info->ppi_rows : rel->rows;
	double		share = 1;
	Selectivity within;
	GenericCosts costs;
	IndexShape	shape;
	double		first,
				some,
				all;
	Cost		unit;

	/* this index can put rows in the order of exactly one distance, and do nothing else */
	if (list_length(path->indexorderbys) != 1)
	{
		RefusePath(path, indexStartupCost, indexTotalCost, indexSelectivity, indexCorrelation,
				   indexPages);
		return;
	}
	/* core checks conditions alone for parallel safety; a worker has no vector of an outer row */
	path->path.parallel_safe &= is_parallel_safe(root, (Node *) path->indexorderbys);
	ReadShape(root, path->indexinfo, &shape);
	if (!ReadConditions(root, path, &shape) ||
		(shape.rounded && !GgIsRangePath(path) && !GgMayReorder(rel, path->path.param_info)))
	{
		RefusePath(path, indexStartupCost, indexTotalCost, indexSelectivity, indexCorrelation,
				   indexPages);
		return;
	}

	shape.limit = root->limit_tuples;
	within = GgWithinDistance(root, path->indexinfo, linitial(path->indexorderbys));
	shape.expected = GgRowsToExpect(rel->tuples, filtered / within, shape.limit > 0 ? shape.limit :
									GG_EXPECTED_ANSWERS);
	shape.list = ListOf(&shape, GgCpuForm(shape.meta));
	shape.device_list = ListOf(&shape, GG_FORM_GPU_ROWS);
	if (gg_target_recall == 1)
		shape.on_device = MeasuresOnDevice(path->indexinfo, &shape);
	else
		shape.on_device = !path->indexinfo->hypothetical &&
			GgDeviceAnswers(path->indexinfo->indexoid, shape.meta, shape.conditions > 0 ?
							GG_DEVICE_FILTER_NODES : shape.device_list * GG_EXACT_SHARE,
							&shape.missing, &shape.rowless);
	shape.read_time = READ_TIME + WALK_TIME(shape.column_pages) +
		FetchTime(rel, shape.column_pages);
	memset(&costs, 0, sizeof(costs));
	genericcostestimate(root, path, loop_count, &costs);

	unit = GgMicrosecondCost(rel, shape.column_pages, filtered, within, root->limit_tuples);
	first = ScanTime(&shape, 0);
	all = ScanTime(&shape, within);
	if (root->limit_tuples > 0 && root->limit_tuples < filtered)
	{
		share = root->limit_tuples / filtered;
		some = ScanTime(&shape, share * within);
		first = Max(first, some - (all - some) * share / (1 - share));
	}

	*indexStartupCost = first * unit;
	*indexTotalCost = all * unit;
	*indexSelectivity = costs.indexSelectivity * within;
	*indexCorrelation = 0;
	*indexPages = costs.numIndexPages;
	pfree(unconstify(GgMetaPageData *, shape.meta));
}

/*
 * Microseconds until the first row, and until the last.  Where `few` rows may be enough, a walk
 * comes first, and a pass follows.  A device has a pass alone.
 */
static void
RangeTimes(const IndexOptInfo *index, IndexShape *shape, bool few, double *first, double *whole)
{
	const GgMetaPageData *meta = shape->meta;
	double		pass = shape->conditions == 0 ? shape->nodes * GG_EXACT_TIME(shape->index_pages) :
		shape->nodes * shape->conditions * GG_CONDITION_TIME +
		shape->nodes * shape->matching * GG_MATCHING_TIME(shape->index_pages);
	double		walk = 0;

	if (MeasuresOnDevice(index, shape))
		pass = GgDeviceExactTime(shape->nodes, shape->conditions > 0 ? shape->conditions + 1 : 0,
								 shape->nodes * shape->matching, GgRowBytes(meta));
	else if (few)
		walk = Min(meta->nsegments * gg_itopk_size * DISTANCES_PER_ENTRY *
				   WALK_TIME(shape->index_pages), pass);
	*first = walk > 0 ? walk : pass;
	*whole = walk + pass;
}

/*
 * The plan that competes is taken to compute the distance of every row of the table.  In a join it
 * does so for each row of the other table, over rows that it keeps in memory.
 */
bool
GgCostRange(PlannerInfo *root, IndexPath *path, double rows)
{
	const RelOptInfo *rel = path->path.parent;
	const bool	few = (GgKeyMarks(exprInputCollation(linitial(path->indexorderbys))) &
					   GG_KEY_FEW) != 0;
	IndexShape	shape;
	double		page_cost,
				charged,
				time,
				first,
				whole;

	ReadShape(root, path->indexinfo, &shape);
	if (!ReadConditions(root, path, &shape))
		return false;
	RangeTimes(path->indexinfo, &shape, few, &first, &whole);
	time = rel->tuples * (TABLE_ROW_TIME + GgSortedRowTime(rel, shape.column_pages));
	charged = rel->tuples * (cpu_tuple_cost + 2 * cpu_operator_cost);
	if (path->path.param_info == NULL)
	{
		get_tablespace_page_costs(rel->reltablespace, NULL, &page_cost);
		time += rel->pages * TABLE_PAGE_TIME;
		charged += rel->pages * page_cost;
	}
	rows *= shape.matching;
	path->path.startup_cost = first * charged / Max(time, 1);
	path->path.total_cost = (whole +
							 rows * (WITHIN_TIME + WALK_TIME(shape.column_pages) +
									 FetchTime(rel, shape.column_pages))) * charged / Max(time, 1);
	pfree(unconstify(GgMetaPageData *, shape.meta));
	return true;
}
