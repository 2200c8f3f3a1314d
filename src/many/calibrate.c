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
 * A walk for a row comes to its own node, whose edges lead to the answer.  So a row is answered as
 * if its node were not there: no answer has it, and walks on the CPU go around it (source.c).  On a
 * device walks do not, and miss less.  So a device is taken to miss as much as the CPU, or more.
 *
 * Where no walk is by codes, the answers of a smaller LIMIT are the first ones of a larger: both
 * have the same list.  By codes more rows are measured for more answers, so each LIMIT is asked.
 *
 * A list is good for a recall when the lower end of a 95% interval reaches it: Wilson's, of as
 * many rows as would vary as much if each were found by chance.  Rows of a query are missed
 * together.  Where all rows are measured, there is no doubt (GG_EXACT_BOUND).
 *
 * A worker measures some queries at a time, by transactions of their own.  Rows that come meanwhile
 * count as found where they are near enough, and rows that go as missed.  Queries that are rows of
 * a segment merged meanwhile are left out; where these are more than half, all begins anew.
 */
#include "many/batch.h"

#include <math.h>

#include "common/pg_prng.h"
#include "maintain/merge.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/inspect.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#define MOST_QUERIES		2000

/* Above so many standard deviations lie 5% of a normal distribution. */
#define NORMAL_95			1.645

/* A longer list is not tried once no more than this is missed. */
#define LEAST_MISSED		0.0003

/* So many indexes are measured by turns.  Others wait until one, done or not, rests STALE_MS. */
#define MOST_MEASURED		8
#define STALE_MS			60000

/* Sums over the queries that one length of list has answered, for one of gg_calibrated_ks. */
typedef struct Sums
{
	double		found,			/* shares of the exact answer */
				squares;
	int			counted;		/* queries that have an exact answer */
} Sums;

/* What was measured so far. */
typedef struct Measuring
{
	MemoryContext context;
	Oid			index;
	GgRelFileLocator locator;
	TimestampTz used;			/* when it last went on */
	bool		busy;			/* a call goes on, or has ended by an error */
	GgRowSample queries;
	double	   *farthest;		/* up to which rows count as found: GG_CALIBRATED_KS a query */
	uint64	   *rows;			/* how many each exact answer has */
	int			answered;		/* queries whose exact answers are known */

	/* what comes next */
	int			form;			/* 0 the CPU, 1 a device, 2: all is done */
	uint32		done,			/* bitmaps of gg_calibrated_ks: those that have all their bounds */
				begun;			/* those that have some bounds */
	int			length;
	int			query;
	Sums		sums[GG_CALIBRATED_KS];
	int			lost;			/* of the queries before this one: rows whose segments are gone */
	bool		walked;			/* for some query not all rows were measured */
	GgForm		measures;		/* of the answers */
	GgCalibration result;
} Measuring;

static Measuring *measurings[MOST_MEASURED];

/* The measurement of the index in question, and its place among all. */
static Measuring *measuring = NULL;
static Measuring **place = measurings;
static bool running;			/* a call of Calibrate() */

/* ---- queries ------------------------------------------------------------------------------ */

/* The first length that is tried for a LIMIT, which makes shorter lists as long. */
static int
FirstLength(int k)
{
	int			i = 0;

	while (i < GG_CALIBRATED_LENGTHS - 1 &&
		   GgCalibratedLength(i + 1) <= GG_LIMITED_WALK(gg_calibrated_ks[k]))
		i++;
	return i;
}

/* Bitmap of gg_calibrated_ks: those that queries are answered for at this length, all at once. */
static uint32
Asked(void)
{
	uint32		asked = 0;

	for (int k = 0; k < GG_CALIBRATED_KS; k++)
		if ((measuring->done >> k & 1) == 0 &&
			(asked == 0 || (measuring->result.codes == GG_CODES_NONE &&
							FirstLength(k) <= measuring->length)))
			asked |= (uint32) 1 << k;
	return asked;
}

/* Take the sample's queries that are held out.  False: no sample fits, or too few are held out. */
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

/* Were all rows measured for the last query?  Estimates are no measurements. */
static bool
MeasuredAll(const GgFinder *finder, GgForm form)
{
	const GgScanOpaque *so = (const GgScanOpaque *) finder->scan->opaque;
	GgScanNote	note;

	GgNoteOf(so, &note);
	return note.exact_lists == note.lists && !so->by_table && form != GG_FORM_GPU_CODES;
}

/* Add the share of the query's k exact rows that its answer has. */
static void
Count(const GgFinder *finder, int k)
{
	const int	answer = measuring->query * GG_CALIBRATED_KS + k;
	const uint64 rows = measuring->rows[answer];
	Sums	   *sums = &measuring->sums[k];
	uint64		found = 0;
	double		share;

	if (rows == 0)
		return;
	for (uint64 i = 0; i < Min(finder->nrows, gg_calibrated_ks[k]); i++)
		found += !(finder->rows[i].distance > measuring->farthest[answer]);
	share = (double) Min(found, rows) / rows;
	sums->found += share;
	sums->squares += share * share;
	sums->counted++;
}

/* Answer a query, and count what was found.  False: on a device's turn the CPU has answered. */
static bool
Answer(GgFinder *finder)
{
	const uint32 asked = Asked();
	const bool	counts = Find(finder, measuring->query,
							  gg_calibrated_ks[pg_leftmost_one_pos32(asked)]);
	const GgForm form = FormOf(finder);

	if (measuring->form == 1 && form < GG_FORM_GPU_ROWS)
		return false;
	measuring->measures = form;
	measuring->walked |= !MeasuredAll(finder, form);
	for (int k = 0; k < GG_CALIBRATED_KS && counts; k++)
		if ((asked >> k & 1) != 0)
			Count(finder, k);
	measuring->lost += !counts;
	measuring->query++;
	return true;
}

/* ---- bounds ------------------------------------------------------------------------------- */

/* The lower end of the interval, see the head. */
static double
LowerBound(int number)
{
	const Sums *sums = &measuring->sums[number];
	const double n = sums->counted;
	const double k = gg_calibrated_ks[number];
	const double p = sums->found / n;
	const double variance = sums->squares / n - p * p;
	const double z2 = NORMAL_95 * NORMAL_95;
	double		rows = n * sqrt(k);
	double		bound;

	if (variance > 0 && p < 1)
		rows = Min(n * p * (1 - p) / variance, n * k);
	bound = (p + z2 / (2 * rows) -
			 NORMAL_95 * sqrt(p * (1 - p) / rows + z2 / (4 * rows * rows))) / (1 + z2 / rows);
	return Min(Max(bound, 0), 1);
}

/* Go on with this length, the first one of the next LIMIT or, where none is left, another form. */
static void
BeginLength(int length)
{
	const uint32 all = (1 << GG_CALIBRATED_KS) - 1;

	if (length == GG_CALIBRATED_LENGTHS)
		measuring->done |= Asked();
	if (measuring->done == all)
	{
		measuring->form++;
		measuring->done = measuring->begun = 0;
		length = FirstLength(0);
	}
	else if (length == GG_CALIBRATED_LENGTHS || (measuring->begun & ~measuring->done) == 0)
		length = FirstLength(pg_rightmost_one_pos32(all & ~measuring->done));
	measuring->length = length;
	measuring->query = measuring->lost = 0;
	measuring->walked = false;
	memset(measuring->sums, 0, sizeof(measuring->sums));
}

/*
 * Note a bound for this length, and for longer ones until they are tried; the first one also for
 * shorter ones.  By rows a device has the lesser of its own, which soon ends, and of the CPU's.
 */
static void
NoteBound(int k, double bound)
{
	GgCalibration *result = &measuring->result;
	const GgForm cpu = result->codes == GG_CODES_NONE ? GG_FORM_CPU_ROWS : GG_FORM_CPU_CODES;
	const uint16 *most = measuring->form == 1 && result->by == GG_BY_ROWS ?
		result->bounds[cpu][k] : NULL;
	const bool	first = (measuring->begun >> k & 1) == 0;
	uint16	   *bounds = result->bounds[measuring->measures][k];

	bound = Max(bound * PG_UINT16_MAX, first ? 1 : bounds[measuring->length - 1]);
	for (int i = first ? 0 : measuring->length; i < GG_CALIBRATED_LENGTHS; i++)
		bounds[i] = most == NULL ? (uint16) bound : Max(Min((uint16) bound, most[i]), 1);
}

/*
 * A device does not answer.  Where segments are too small for so long a list, the CPU measures all
 * their rows, and the bounds of shorter lists stay.  Else devices have no bounds.
 */
static void
EndDevice(const GgFinder *finder)
{
	const GgScanOpaque *so = (const GgScanOpaque *) finder->scan->opaque;
	GgCalibration *result = &measuring->result;
	const uint32 asked = Asked();

	if (measuring->measures < GG_FORM_GPU_ROWS || GgAnsweredBy(so) != GG_REASON_SMALL)
	{
		memset(result->bounds[GG_FORM_GPU_ROWS], 0, 2 * sizeof(result->bounds[0]));
		measuring->form = 2;
		return;
	}
	for (int k = 0; k < GG_CALIBRATED_KS; k++)
		if ((asked >> k & 1) != 0)
			NoteBound(k, 0);
	measuring->done |= asked;
	BeginLength(measuring->length);
}

/* All queries were answered by a list: note its bounds, and go on to the next one. */
static void
EndLength(void)
{
	const uint32 asked = Asked();
	const int	length = measuring->length;
	double		least_missed = 1;

	for (int k = 0; k < GG_CALIBRATED_KS; k++)
	{
		const Sums *sums = &measuring->sums[k];
		/* the largest LIMIT of those asked may have made the list longer */
		const bool	walked = measuring->walked ||
			(asked >> k > 1 && length <= FirstLength(GG_CALIBRATED_KS - 1));
		double		missed = 1;

		if ((asked >> k & 1) == 0)
			continue;
		if (sums->counted > 0)
		{
			missed = 1 - sums->found / sums->counted;
			NoteBound(k, missed > 0 || walked ? LowerBound(k) : 1);
		}
		measuring->begun |= (uint32) 1 << k;
		if (missed <= LEAST_MISSED)
			measuring->done |= (uint32) 1 << k;
		least_missed = Min(least_missed, missed);
	}
	/* no target is as low as that: take larger steps */
	BeginLength(Min(length + (least_missed > 1 - GG_LEAST_TARGET / 2 ? 4 : 1),
					GG_CALIBRATED_LENGTHS));
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

	if (running)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
						errmsg("this session measures the recall of an index already"),
						errhint("Functions that an index calls must not call "
								"gpugraph_calibrate().")));
	/* background workers run no functions of the index's owner */
	if ((merge->sliced && GgIsExpression(merge->index)) || !FindMeasuring(merge->index))
		return &none;
	GgActAsOwner(target.heap, &caller);
	running = true;
	PG_TRY();
	{
		bool		ended;

		do
		{
			int			nest_level = NewGUCNestLevel();

			GgSetSetting("gpugraph.target_recall", "0");
			ended = GoOn(&target, enough);
			AtEOXact_GUC(false, nest_level);
		} while (ended && (measuring == NULL || !IsDone()) && !enough());
	}
	PG_FINALLY();
	{
		running = false;
	}
	PG_END_TRY();
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
