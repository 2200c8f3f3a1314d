/*
 * calibrate.c
 *		How good answers are at each length of the candidate list: what maintain/calibration.c
 *		stores.  gpugraph_calibrate().
 *
 * Queries are those of the index's sample that no edge was learned from or, where they are too
 * few, rows of the index.  Each is answered exactly once, and then at each length as ORDER BY with
 * a LIMIT answers it, by the CPU and, where one answers, by a device.  So all that a search does
 * counts: several segments, the delta, codes and rows measured again.
 *
 * A walk comes to the node of a row, whose edges are to the answer.  So a row is answered as if
 * its node were not there: no answer has it, and walks on the CPU go around it (source.c).  Those
 * on a device do not, and miss less.  What they miss all the same is added to what the CPU misses.
 *
 * A list is good for a recall when the lower end of a 95% interval reaches it: Wilson's, of as
 * many rows as would vary as much if each were found by chance.  Rows of a query are missed
 * together.
 *
 * It is done some queries at a time, by transactions of their own.  Rows that come meanwhile count
 * as found where they are near enough, and rows that go as missed.  Queries whose segment was
 * merged are left out, and where these are half of them all begins anew.
 */
#include "many/batch.h"

#include <math.h>

#include "common/pg_prng.h"
#include "maintain/merge.h"
#include "miscadmin.h"
#include "storage/inspect.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#define MOST_QUERIES		2000

/* Of a normal distribution 5% lies beyond. */
#define NORMAL_95			1.645

/* A longer list is not tried once no more than this is missed. */
#define LEAST_MISSED		0.0003

/* Of so many indexes measurements go on in turns.  Others wait until one ends, or rests so long. */
#define MOST_MEASURED		8
#define STALE_MS			60000

/* What was measured so far. */
typedef struct Measuring
{
	MemoryContext context;
	Oid			index;
	GgRelFileLocator locator;
	TimestampTz used;			/* when it last went on */
	bool		busy;			/* false: the last call of it has ended without an error */
	GgRowSample queries;
	double	   *farthest;		/* of the exact answers: GG_CALIBRATED_KS of each query */
	uint64	   *rows;			/* likewise, how many there are */
	int			answered;		/* queries of which these are known */

	/* what comes next */
	int			form;			/* 0 the CPU, 1 a device, 2: all is done */
	int			k;				/* of gg_calibrated_ks */
	int			length;
	int			query;
	double		found,			/* sums of shares that the queries before this one found */
				squares;
	int			counted,		/* of these: those that have an answer */
				lost;			/* likewise: rows whose segments are gone */
	GgForm		measures;		/* of the answers */
	GgCalibration result;
} Measuring;

static Measuring *measurings[MOST_MEASURED];

/* That of the index in question, and its place among them. */
static Measuring *measuring = NULL;
static Measuring **place = measurings;

/* ---- queries ------------------------------------------------------------------------------ */

/* The first list that is tried: LIMIT makes shorter ones as long. */
static int
FirstLength(int k)
{
	int			i = 0;

	while (i < GG_CALIBRATED_LENGTHS - 1 &&
		   GgCalibratedLength(i + 1) <= GG_LIMITED_WALK(gg_calibrated_ks[k]))
		i++;
	return i;
}

/* Those of the sample that are held out.  False: there is none, or too few of them. */
static bool
TakeHeldOut(const GgTarget *target, const GgMetaPageData *meta, GgRowSample *queries)
{
	const GgLearnSample *sample = GgReadSample(target->index);

	queries->count = 0;
	if (sample == NULL || sample->dimensions != meta->dimensions || !GgHoldsOut(sample))
		return false;
	queries->queries = palloc(MOST_QUERIES * sizeof(Datum));
	queries->nodes = palloc(MOST_QUERIES * sizeof(GgNode));
	for (uint32 i = 0; i < sample->count && queries->count < MOST_QUERIES; i++)
	{
		const float *query = sample->queries + (Size) i * sample->dimensions;

		if (!GgIsHeldOut(query, sample->dimensions))
			continue;
		queries->nodes[queries->count] = (GgNode) {GG_NO_SEGMENT};
		queries->queries[queries->count++] =
			GgValueOfQuery(target->opclass, query, sample->dimensions);
	}
	return true;
}

static Measuring *
Begin(const GgTarget *target, GgFinder *finder)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "gpugraph calibration",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	GgMetaPageData *meta = GgReadDirectory(target->index);
	Measuring  *new = palloc0(sizeof(Measuring));
	GgRowSample *queries = &new->queries;

	new->context = context;
	new->index = RelationGetRelid(target->index);
	new->locator = GgLocator(target->index);
	new->result = (GgCalibration) {
		.next_id = meta->next_id, .rows = GgLiveRows(meta), .sample = GgSampleId(meta),
		.library = GG_CALIBRATED_AS, .by = GG_BY_QUERIES,
		.codes = meta->npieces > 0 ? meta->pieces[0].codes : GG_CODES_NONE
	};
	if (!TakeHeldOut(target, meta, queries))
	{
		new->result.by = GG_BY_ROWS;
		GgTakeRowSample(finder, pg_prng_uint64(&pg_global_prng_state), MOST_QUERIES, queries);
	}
	new->result.queries = queries->count;
	new->farthest = palloc(Max(queries->count, 1) * GG_CALIBRATED_KS * sizeof(double));
	new->rows = palloc(Max(queries->count, 1) * GG_CALIBRATED_KS * sizeof(uint64));
	new->length = FirstLength(0);
	pfree(meta);
	MemoryContextSwitchTo(old);
	return new;
}

static bool
IsDone(void)
{
	return measuring->queries.count == 0 ||
		(measuring->answered == measuring->queries.count && measuring->form == 2);
}

static void
Forget(void)
{
	if (*place != NULL)
		MemoryContextDelete((*place)->context);
	*place = measuring = NULL;
}

/* Find the measurement of an index, or a place for one.  False: others have all places. */
static bool
FindMeasuring(Relation index)
{
	Measuring **oldest = measurings;

	for (place = measurings; place < measurings + MOST_MEASURED; place++)
	{
		if (*place != NULL && (*place)->index == RelationGetRelid(index))
			break;
		if (*oldest != NULL && (*place == NULL || (*place)->used < (*oldest)->used))
			oldest = place;
	}
	if (place == measurings + MOST_MEASURED)
	{
		place = oldest;
		if (*place != NULL &&
			GetCurrentTimestamp() < TimestampTzPlusMilliseconds((*place)->used, STALE_MS))
			return false;
		Forget();
	}
	measuring = *place;
	if (measuring != NULL && (measuring->busy || IsDone() ||
							  !GgSameLocator(&measuring->locator, &GgLocator(index))))
		Forget();
	return true;
}

/* ---- answers ------------------------------------------------------------------------------ */

/* Find the nearest rows of a query.  False: it was a row whose segment is gone. */
static bool
Find(GgFinder *finder, int query, uint64 k)
{
	const GgScanOpaque *so = (const GgScanOpaque *) finder->scan->opaque;

	GgLeaveRowOut(finder, &measuring->queries.nodes[query]);
	GgFind(finder, measuring->queries.queries[query], k);
	return so->left_out_node.segment == GG_NO_SEGMENT ||
		GgFindSegment(so->meta, so->left_out_node.segment) != NULL;
}

static void
AnswerExactly(GgFinder *finder, gg_metric metric)
{
	const int	query = measuring->answered;
	const bool	counts = Find(finder, query, gg_calibrated_ks[GG_CALIBRATED_KS - 1]);

	for (int k = 0; k < GG_CALIBRATED_KS; k++)
	{
		const int	answer = query * GG_CALIBRATED_KS + k;
		const uint64 rows = counts ? Min(gg_calibrated_ks[k], finder->nrows) : 0;

		measuring->rows[answer] = rows;
		measuring->farthest[answer] = rows == 0 ? 0 :
			GgFarthestFound(metric, finder->rows[rows - 1].distance);
	}
	measuring->answered++;
}

/* By which form was the last query answered? */
static GgForm
FormOf(const GgFinder *finder)
{
	const GgScanOpaque *so = (const GgScanOpaque *) finder->scan->opaque;

	if (GgAnsweredBy(so) != GG_REASON_NONE || so->device.lists == 0)
		return GgCpuForm(so->meta);
	return ((so->device.ref.forms.coded | so->device.ref.forms.rowless) & so->device.lists) != 0 ?
		GG_FORM_GPU_CODES : GG_FORM_GPU_ROWS;
}

/* False: it is a device's turn, and the CPU has answered. */
static bool
Answer(GgFinder *finder)
{
	const int	answer = measuring->query * GG_CALIBRATED_KS + measuring->k;
	uint64		found = 0;
	double		share;
	const bool	counts = Find(finder, measuring->query, gg_calibrated_ks[measuring->k]);
	const GgForm form = FormOf(finder);

	if (measuring->form == 1 && form < GG_FORM_GPU_ROWS)
		return false;
	measuring->measures = form;
	measuring->query++;
	measuring->lost += !counts;
	if (!counts || measuring->rows[answer] == 0)
		return true;
	for (uint64 i = 0; i < finder->nrows; i++)
		found += !(finder->rows[i].distance > measuring->farthest[answer]);
	share = (double) Min(found, measuring->rows[answer]) / measuring->rows[answer];
	measuring->found += share;
	measuring->squares += share * share;
	measuring->counted++;
	return true;
}

/* ---- bounds ------------------------------------------------------------------------------- */

/* The lower end of the interval, see the head. */
static double
LowerBound(void)
{
	const double n = measuring->counted;
	const double k = gg_calibrated_ks[measuring->k];
	const double p = measuring->found / n;
	const double variance = measuring->squares / n - p * p;
	const double z2 = NORMAL_95 * NORMAL_95;
	double		rows = n * sqrt(k);
	double		bound;

	if (variance > 0 && p < 1)
		rows = Min(n * p * (1 - p) / variance, n * k);
	bound = (p + z2 / (2 * rows) -
			 NORMAL_95 * sqrt(p * (1 - p) / rows + z2 / (4 * rows * rows))) / (1 + z2 / rows);
	return Min(Max(bound, 0), 1);
}

static void
BeginLength(int length)
{
	measuring->length = length;
	measuring->query = measuring->counted = measuring->lost = 0;
	measuring->found = measuring->squares = 0;
}

static void
NextK(void)
{
	measuring->k++;
	if (measuring->k == GG_CALIBRATED_KS)
	{
		measuring->form++;
		measuring->k = 0;
	}
	BeginLength(FirstLength(measuring->k));
}

/*
 * A device does not answer.  Where the segments are too small for so long a list, it is because the
 * CPU measures all rows then, and shorter lists have what they have.
 */
static void
EndDevice(const GgFinder *finder)
{
	const GgScanOpaque *so = (const GgScanOpaque *) finder->scan->opaque;
	const int	first = FirstLength(measuring->k);
	uint16	   *bounds = measuring->result.bounds[measuring->measures][measuring->k];

	if (measuring->measures < GG_FORM_GPU_ROWS || GgAnsweredBy(so) != GG_REASON_SMALL)
	{
		memset(measuring->result.bounds[GG_FORM_GPU_ROWS], 0,
			   2 * sizeof(measuring->result.bounds[0]));
		measuring->form = 2;
		return;
	}
	for (int i = measuring->length == first ? 0 : measuring->length; i < GG_CALIBRATED_LENGTHS; i++)
		bounds[i] = measuring->length == first ? 1 : bounds[measuring->length - 1];
	NextK();
}

/* All queries were answered by a list: note its bound, and go on to the next one. */
static void
EndLength(void)
{
	GgCalibration *result = &measuring->result;
	const GgForm cpu = result->codes == GG_CODES_NONE ? GG_FORM_CPU_ROWS : GG_FORM_CPU_CODES;
	const int	first = FirstLength(measuring->k);
	const int	length = measuring->length;
	uint16	   *bounds = result->bounds[measuring->measures][measuring->k];
	double		missed = 1;

	if (measuring->counted > 0)
	{
		double		bound = LowerBound();

		missed = 1 - measuring->found / measuring->counted;
		if (measuring->form == 1 && result->by == GG_BY_ROWS)
			bound *= result->bounds[cpu][measuring->k][length] / (double) PG_UINT16_MAX;
		bound = Max(bound * PG_UINT16_MAX, length > first ? bounds[length - 1] : 1);
		/* also of those that are as long, and those that are not tried */
		for (int i = length == first ? 0 : length; i < GG_CALIBRATED_LENGTHS; i++)
			bounds[i] = (uint16) bound;
	}
	/* no target is so low */
	BeginLength(length + (missed > 1 - GG_LEAST_TARGET / 2 ? 4 : 1));
	if (measuring->length >= GG_CALIBRATED_LENGTHS || missed <= LEAST_MISSED)
		NextK();
}

/* ---- the measurement ---------------------------------------------------------------------- */

/* Have searches answer as the next ones are to be measured. */
static void
Prepare(GgFinder *finder, const GgTarget *target)
{
	const bool	exact = measuring->answered < measuring->queries.count;

	if (!exact)
	{
		GgSetSetting("gpugraph.itopk_size", psprintf("%u", GgCalibratedLength(measuring->length)));
		GgSetSetting("gpugraph.engine", measuring->form == 0 ? "cpu" : "auto");
		GgSetSetting("gpugraph.iterative_scan", "strict_order");
		GgSetSetting("gpugraph.disable", "");
	}
	GgOpenFinder(finder, target, exact);
	((GgScanOpaque *) finder->scan->opaque)->quiet = true;
}

/* Answer queries until the next ones are to be answered in another way.  True: that is so. */
static bool
AnswerSome(GgFinder *finder, const GgTarget *target, bool (*enough) (void))
{
	const int	count = measuring->queries.count;

	if (measuring->answered < count)
	{
		do
			AnswerExactly(finder, target->opclass->metric);
		while (measuring->answered < count && !enough());
		return measuring->answered == count;
	}
	do
	{
		CHECK_FOR_INTERRUPTS();
		if (!Answer(finder))
		{
			EndDevice(finder);
			return true;
		}
	} while (measuring->query < count && !enough());
	if (measuring->query < count)
		return false;
	EndLength();
	return true;
}

/* Go on until what comes next is to be answered in another way.  True: that is so. */
static bool
GoOn(const GgTarget *target, bool (*enough) (void))
{
	GgFinder	finder;
	bool		ended = true;

	if (measuring == NULL)
	{
		GgOpenFinder(&finder, target, true);
		*place = measuring = Begin(target, &finder);
		GgCloseFinder(&finder);
	}
	measuring->busy = true;
	if (!IsDone())
	{
		Prepare(&finder, target);
		ended = AnswerSome(&finder, target, enough);
		GgCloseFinder(&finder);
	}
	measuring->busy = false;
	measuring->used = GetCurrentTimestamp();
	if (measuring->lost > measuring->queries.count / 2)
		Forget();
	return ended;
}

static const GgCalibration *
Calibrate(GgMergeTarget *merge, bool (*enough) (void))
{
	static const GgCalibration none = {0};
	GgTarget	target = {
		.heap = merge->heap, .index = merge->index,
		.opclass = GgIndexOpclass(merge->index), .type = merge->index->rd_opcintype[0]
	};
	GgCaller	caller;
	bool		ended;

	/* background workers run no functions of the index's owner */
	if ((merge->sliced && GgIsExpression(merge->index)) || !FindMeasuring(merge->index))
		return &none;
	GgActAsOwner(target.heap, &caller);
	do
	{
		int			nest_level = NewGUCNestLevel();

		GgSetSetting("gpugraph.target_recall", "0");
		ended = GoOn(&target, enough);
		AtEOXact_GUC(false, nest_level);
	} while (ended && (measuring == NULL || !IsDone()) && !enough());
	GgActAsCaller(&caller);
	if (measuring == NULL || !IsDone())
		return NULL;
	measuring->result.measured = GetCurrentTimestamp();
	return &measuring->result;
}

void
GgInitCalibration(void)
{
	GgSetCalibrator(Calibrate);
}

PG_FUNCTION_INFO_V1(gpugraph_calibrate);

/* False, without storing anything, where another process merges the index. */
Datum
gpugraph_calibrate(PG_FUNCTION_ARGS)
{
	GgMergeTarget merge = {0};
	GgInspected inspected;
	bool		done;

	GgOpenMergeTarget(&merge, "gpugraph_calibrate()", PG_GETARG_OID(0), &inspected);
	PreventCommandIfReadOnly("gpugraph_calibrate()");
	done = GgCalibrate(&merge);
	GgCloseInspected(&inspected);
	PG_RETURN_BOOL(done);
}
