/*
 * calibrate.c
 *		How good answers are at each length of the candidate list: what maintain/calibration.c
 *		stores.  gpugraph_calibrate().
 *
 * Queries are those of the index's sample that no edge was learned from or, where they are too
 * few, rows of the index, each without itself.  Each is answered exactly once, and then at each
 * length as ORDER BY with a LIMIT answers it, by the CPU and, where one answers, by a device.  So
 * all that a search does counts: several segments, the delta, codes and rows measured again.
 *
 * A list is good for a recall when the lower end of a 95% interval reaches it: Wilson's, of as many
 * rows as would vary as much if each were found by chance.  Rows of a query are missed together.
 * Graphs lead to their own rows somewhat better than to others, so what rows miss counts more
 * (ROWS_MISS).
 *
 * It is done some queries at a time, by transactions of their own.  Rows that come meanwhile count
 * as found where they are near enough, and rows that go as missed.
 */
#include "many/batch.h"

#include <math.h>

#include "access/xlog.h"
#include "common/pg_prng.h"
#include "maintain/merge.h"
#include "miscadmin.h"
#include "storage/inspect.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define MOST_QUERIES		2000

/* Of a normal distribution 5% lies beyond. */
#define NORMAL_95			1.645

/* A longer list is not tried once no more than this is missed. */
#define LEAST_MISSED		0.0003

/* See the head; RESULTS.md, "Recall as a promise". */
#define ROWS_MISS			1.1

/* What was measured so far. */
typedef struct Measuring
{
	MemoryContext context;
	Oid			index;
	GgRelFileLocator locator;
	bool		busy;			/* false: the last call of it has ended without an error */
	GgRowSample queries;		/* ctids: only of rows */
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
	int			counted;		/* of these: those that have an answer */
	GgForm		measures;		/* of the answers */
	GgCalibration result;
} Measuring;

static Measuring *measuring = NULL;

/* ---- queries ------------------------------------------------------------------------------ */

/* Those of the sample that are held out.  False: there is none, or too few of them. */
static bool
TakeHeldOut(const GgTarget *target, const GgMetaPageData *meta, GgRowSample *queries)
{
	const GgLearnSample *sample = GgReadSample(target->index);

	queries->count = 0;
	if (sample == NULL || sample->dimensions != meta->dimensions || !GgHoldsOut(sample))
		return false;
	queries->queries = palloc(MOST_QUERIES * sizeof(Datum));
	for (uint32 i = 0; i < sample->count && queries->count < MOST_QUERIES; i++)
	{
		const float *query = sample->queries + (Size) i * sample->dimensions;

		if (GgIsHeldOut(query, sample->dimensions))
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
		.delta_first = GgDeltaFirst(meta), .rows = GgLiveRows(meta), .sample = GgSampleId(meta),
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
	pfree(meta);
	MemoryContextSwitchTo(old);
	return new;
}

static void
Forget(void)
{
	if (measuring != NULL)
		MemoryContextDelete(measuring->context);
	measuring = NULL;
}

/* ---- answers ------------------------------------------------------------------------------ */

/* Find the k rows nearest to a query; a row that is one is left out. */
static void
FindOthers(GgFinder *finder, int query, uint32 k)
{
	const bool	by_rows = measuring->result.by == GG_BY_ROWS;

	GgFind(finder, measuring->queries.queries[query], k + by_rows);
	for (uint64 i = 0; by_rows && i < finder->nrows; i++)
		if (ItemPointerEquals(&finder->rows[i].ctid, &measuring->queries.ctids[query]))
		{
			memmove(&finder->rows[i], &finder->rows[i + 1],
					(finder->nrows - i - 1) * sizeof(GgFoundRow));
			finder->nrows--;
			break;
		}
	finder->nrows = Min(finder->nrows, k);
}

static void
AnswerExactly(GgFinder *finder, gg_metric metric)
{
	const int	query = measuring->answered;

	FindOthers(finder, query, gg_calibrated_ks[GG_CALIBRATED_KS - 1]);
	for (int k = 0; k < GG_CALIBRATED_KS; k++)
	{
		const int	place = query * GG_CALIBRATED_KS + k;
		const uint64 rows = Min(gg_calibrated_ks[k], finder->nrows);

		measuring->rows[place] = rows;
		measuring->farthest[place] = rows == 0 ? 0 :
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
	return ((so->device.ref.coded | so->device.ref.rowless) & so->device.lists) != 0 ?
		GG_FORM_GPU_CODES : GG_FORM_GPU_ROWS;
}

static void
Answer(GgFinder *finder)
{
	const int	place = measuring->query * GG_CALIBRATED_KS + measuring->k;
	uint64		found = 0;
	double		share;

	FindOthers(finder, measuring->query, gg_calibrated_ks[measuring->k]);
	measuring->measures = FormOf(finder);
	measuring->query++;
	if (measuring->rows[place] == 0)
		return;
	for (uint64 i = 0; i < finder->nrows; i++)
		found += !(finder->rows[i].distance > measuring->farthest[place]);
	share = (double) Min(found, measuring->rows[place]) / measuring->rows[place];
	measuring->found += share;
	measuring->squares += share * share;
	measuring->counted++;
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
	if (measuring->result.by == GG_BY_ROWS)
		bound = 1 - ROWS_MISS * (1 - bound);
	return Min(Max(bound, 0), 1);
}

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

/* All queries were answered by a list: note its bound, and go on to the next one. */
static void
EndLength(void)
{
	const int	first = FirstLength(measuring->k);
	uint16	   *bounds = measuring->result.bounds[measuring->measures][measuring->k];
	double		missed = 1;

	if (measuring->counted > 0)
	{
		uint16		bound = (uint16) Max(LowerBound() * PG_UINT16_MAX, 1);

		missed = 1 - measuring->found / measuring->counted;
		if (measuring->length > first)
			bound = Max(bound, bounds[measuring->length - 1]);
		/* also of those that are as long, and those that are not tried */
		for (int i = measuring->length == first ? 0 : measuring->length;
			 i < GG_CALIBRATED_LENGTHS; i++)
			bounds[i] = bound;
	}
	measuring->query = measuring->counted = 0;
	measuring->found = measuring->squares = 0;
	/* no target is so low */
	measuring->length += missed > 1 - GG_LEAST_TARGET / 2 ? 4 : 1;
	if (measuring->length < GG_CALIBRATED_LENGTHS && missed > LEAST_MISSED)
		return;
	measuring->k++;
	if (measuring->k == GG_CALIBRATED_KS)
	{
		measuring->form++;
		measuring->k = 0;
	}
	measuring->length = FirstLength(measuring->k);
}

/* ---- the measurement ---------------------------------------------------------------------- */

static void
SetSetting(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
							 false);
}

/* Have searches answer as the next ones are to be measured. */
static void
Prepare(GgFinder *finder, const GgTarget *target)
{
	const bool	exact = measuring->answered < measuring->queries.count;

	if (!exact)
	{
		SetSetting("gpugraph.itopk_size", psprintf("%u", GgCalibratedLength(measuring->length)));
		SetSetting("gpugraph.engine", measuring->form == 0 ? "cpu" : "auto");
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
		Answer(finder);
		/* no device answers */
		if (measuring->form == 1 && measuring->measures < GG_FORM_GPU_ROWS)
		{
			measuring->form = 2;
			return true;
		}
	} while (measuring->query < count && !enough());
	if (measuring->query < count)
		return false;
	EndLength();
	return true;
}

static bool
IsDone(void)
{
	return measuring->queries.count == 0 ||
		(measuring->answered == measuring->queries.count && measuring->form == 2);
}

static void
Measure(const GgTarget *target, bool (*enough) (void))
{
	do
	{
		int			nest_level = NewGUCNestLevel();
		GgFinder	finder;
		bool		ended;

		SetSetting("gpugraph.target_recall", "0");
		if (measuring == NULL)
		{
			GgOpenFinder(&finder, target, true);
			measuring = Begin(target, &finder);
			measuring->length = FirstLength(0);
			GgCloseFinder(&finder);
		}
		measuring->busy = true;
		ended = IsDone();
		if (!ended)
		{
			Prepare(&finder, target);
			ended = AnswerSome(&finder, target, enough);
			GgCloseFinder(&finder);
		}
		AtEOXact_GUC(false, nest_level);
		if (!ended)
			break;
	} while (!IsDone() && !enough());
	measuring->busy = false;
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

	if (measuring != NULL &&
		(measuring->busy || measuring->index != RelationGetRelid(merge->index) ||
		 !GgSameLocator(&measuring->locator, &GgLocator(merge->index)) || IsDone()))
		Forget();
	/* background workers run no functions of the index's owner */
	if (merge->sliced && GgIsExpression(merge->index))
		return &none;
	GgActAsOwner(target.heap, &caller);
	Measure(&target, enough);
	GgActAsCaller(&caller);
	if (!IsDone())
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
	GgMergeTarget merge = {.index_oid = PG_GETARG_OID(0)};
	GgInspected inspected;
	bool		done;

	PreventCommandDuringRecovery("gpugraph_calibrate()");
	PreventCommandIfReadOnly("gpugraph_calibrate()");
	GgOpenInspected(merge.index_oid, GG_CHANGE_INDEX, &inspected);
	merge.heap = inspected.heap;
	merge.index = inspected.index;
	merge.heap_oid = RelationGetRelid(merge.heap);
	Forget();
	done = GgCalibrate(&merge);
	GgCloseInspected(&inspected);
	PG_RETURN_BOOL(done);
}
