/*
 * calibrate.c
 *		How good answers are at each length of the candidate list: what maintain/calibration.c
 *		stores.  gpugraph_calibrate().
 *
 * Queries are those of the index's sample that no edge was learned from or, where they are too
 * few, rows of the index that are moved by a part of the difference of two of their neighbors
 * (MOVED_BY).  Each is answered exactly once, and then at each
 * length as ORDER BY with a LIMIT answers it, by the CPU and, where one answers, by a device.  So
 * all that a search does counts: several segments, the delta, codes and rows measured again.
 *
 * A list is good for a recall when the lower end of a 95% interval reaches it: Wilson's, of as many
 * rows as would vary as much if each were found by chance.  Rows of a query are missed together.
 * A row itself is no query: walks come to its node, whose edges are to the answer.  recall@10 at
 * list 16, 10,000 x 64, graph_degree 8, of drawn queries, of rows without themselves, and of rows
 * that are moved by .5, .7 and all of the difference of two of their 20 nearest:
 *
 *		L2, 64 latent dimensions		.9920	.9984	.9964	.9948	.9774
 *		cosine, 20						.9898	.9975	.9934	.9896	.9824
 *		inner product, 64				.9892	.9935	.9754	.9680	.9530
 *
 * It is done some queries at a time, by transactions of their own.  Rows that come meanwhile count
 * as found where they are near enough, and rows that go as missed.
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

/* See the head.  What moved rows miss counts somewhat more. */
#define MOVED_BY			0.75f
#define NEIGHBORS			20
#define LARGEST_HALF		65504
#define ROWS_MISS			1.2

/* What was measured so far. */
typedef struct Measuring
{
	MemoryContext context;
	Oid			index;
	GgRelFileLocator locator;
	bool		busy;			/* false: the last call of it has ended without an error */
	GgRowSample queries;
	int			moved;			/* of these; all of those of users are as they are to be */
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
	else
		new->moved = queries->count;
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

/* The value of a row that was found, prepared as a query. */
static float *
RowFound(GgFinder *finder, int number, uint32 dimensions)
{
	Datum		value;

	GgFetchRow(finder, &finder->rows[number].ctid);
	value = PointerGetDatum(PG_DETOAST_DATUM(GgIndexedValue(finder, finder->slot)));
	return GgQueryFromValue(finder->target->opclass, value, dimensions);
}

/* Move the next row by a part of the difference of two of its neighbors. */
static void
Move(GgFinder *finder)
{
	const GgOpclass *opclass = finder->target->opclass;
	Datum	   *query = &measuring->queries.queries[measuring->moved++];
	const uint32 dimensions = GgValueDimensions(opclass, *query);
	float	   *row = GgQueryFromValue(opclass, *query, dimensions);
	const float *to;
	const float *from;
	bool		finite = true;
	MemoryContext old;

	GgFind(finder, *query, NEIGHBORS);
	if (finder->nrows == 0)
		return;
	to = RowFound(finder, (int) pg_prng_uint64_range(&pg_global_prng_state, 0, finder->nrows - 1),
				  dimensions);
	from = RowFound(finder, (int) pg_prng_uint64_range(&pg_global_prng_state, 0,
													   finder->nrows - 1), dimensions);
	ExecClearTuple(finder->slot);
	for (uint32 i = 0; i < dimensions; i++)
	{
		row[i] += MOVED_BY * (to[i] - from[i]);
		finite &= fabsf(row[i]) < LARGEST_HALF || (opclass->element == GG_ELEMENT_F32 &&
												   isfinite(row[i]));
	}
	if (!finite || GgIsZeroVector(row, dimensions))
		return;
	old = MemoryContextSwitchTo(measuring->context);
	*query = GgValueOfQuery(opclass, row, dimensions);
	MemoryContextSwitchTo(old);
}

static void
AnswerExactly(GgFinder *finder, gg_metric metric)
{
	const int	query = measuring->answered;

	GgFind(finder, measuring->queries.queries[query], gg_calibrated_ks[GG_CALIBRATED_KS - 1]);
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

/* False: it is a device's turn, and the CPU has answered. */
static bool
Answer(GgFinder *finder)
{
	const int	place = measuring->query * GG_CALIBRATED_KS + measuring->k;
	uint64		found = 0;
	double		share;
	GgForm		form;

	GgFind(finder, measuring->queries.queries[measuring->query], gg_calibrated_ks[measuring->k]);
	form = FormOf(finder);
	if (measuring->form == 1 && form < GG_FORM_GPU_ROWS)
		return false;
	measuring->measures = form;
	measuring->query++;
	if (measuring->rows[place] == 0)
		return true;
	for (uint64 i = 0; i < finder->nrows; i++)
		found += !(finder->rows[i].distance > measuring->farthest[place]);
	share = (double) Min(found, measuring->rows[place]) / measuring->rows[place];
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

static void
BeginLength(int length)
{
	measuring->length = length;
	measuring->query = measuring->counted = 0;
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
	/* no target is so low */
	BeginLength(measuring->length + (missed > 1 - GG_LEAST_TARGET / 2 ? 4 : 1));
	if (measuring->length >= GG_CALIBRATED_LENGTHS || missed <= LEAST_MISSED)
		NextK();
}

/* ---- the measurement ---------------------------------------------------------------------- */

/* Have searches answer as the next ones are to be measured. */
static void
Prepare(GgFinder *finder, const GgTarget *target)
{
	const int	count = measuring->queries.count;
	const bool	exact = measuring->moved == count && measuring->answered < count;

	if (measuring->answered == count)
	{
		GgSetSetting("gpugraph.itopk_size", psprintf("%u", GgCalibratedLength(measuring->length)));
		GgSetSetting("gpugraph.engine", measuring->form == 0 ? "cpu" : "auto");
	}
	GgOpenFinder(finder, target, exact);
	((GgScanOpaque *) finder->scan->opaque)->quiet = true;
}

/* Answer queries until the next ones are to be answered in another way.  True: that is so. */
static bool
AnswerSome(GgFinder *finder, const GgTarget *target, bool (*enough) (void))
{
	const int	count = measuring->queries.count;

	if (measuring->moved < count)
	{
		do
			Move(finder);
		while (measuring->moved < count && !enough());
		return measuring->moved == count;
	}
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

		GgSetSetting("gpugraph.target_recall", "0");
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
	GgMergeTarget merge = {0};
	GgInspected inspected;
	bool		done;

	GgOpenMergeTarget(&merge, "gpugraph_calibrate()", PG_GETARG_OID(0), &inspected);
	PreventCommandIfReadOnly("gpugraph_calibrate()");
	Forget();
	done = GgCalibrate(&merge);
	GgCloseInspected(&inspected);
	PG_RETURN_BOOL(done);
}
