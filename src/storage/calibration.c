/*
 * calibration.c
 *		The candidate list that a recall needs.
 *
 * Scans read the calibration with each query, so an open index keeps it (rd_amcache).  A record
 * that replaces it invalidates the relation.
 *
 * Between two lengths the bound follows a straight line where it is concave, so a list is rather
 * too long.  It is not concave where the longer list measures all rows: then no list between them
 * is chosen.  Between two numbers of rows the list is a power of the number, if walks have both.
 */
#include "storage/calibration.h"

#include <math.h>

#include "engine/rules/search_plan.h"

#include "storage/bufmgr.h"
#include "utils/timestamp.h"

#define UNIT				((double) GG_EXACT_BOUND)

/* So large a share of the rows in segments that are new, or gone, asks for another measurement. */
#define CHANGED_SHARE		0.1

const uint16 gg_calibrated_ks[GG_CALIBRATED_KS] = {1, 10, 100};

/* What rd_amcache has. */
typedef struct Cached
{
	uint64		instance;
	uint32		id;
	GgCalibration calibration;
} Cached;

/* ---- reading ------------------------------------------------------------------------------ */

/* Copy it from its first page.  False: it was replaced, and the block holds another page. */
static bool
ReadFirstPage(Relation index, const GgMetaPageData *meta, uint32 id, GgCalibration *calibration)
{
	GgArray		array;
	Buffer		buffer;
	bool		there;

	GgFindArray(meta, id, GG_KIND_CALIBRATION, &array);
	buffer = ReadBuffer(index, GgArrayBlock(&array, 0));
	pfree(array.extents);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	there = GgStampMatches(BufferGetPage(buffer), meta->instance, id, GG_KIND_CALIBRATION, 0) &&
		GgPayloadBytes(BufferGetPage(buffer)) >= sizeof(GgCalibration);
	if (there)
		memcpy(calibration, PageGetContents(BufferGetPage(buffer)), sizeof(GgCalibration));
	UnlockReleaseBuffer(buffer);
	return there;
}

const GgCalibration *
GgGetCalibration(Relation index, const GgMetaPageData *meta)
{
	const uint32 id = GgIdOfKind(meta, GG_KIND_CALIBRATION);
	Cached	   *cached = index->rd_amcache;
	GgCalibration calibration;

	if (id == GG_NO_SEGMENT)
		return NULL;
	if (cached != NULL && cached->instance == meta->instance && cached->id == id)
		return &cached->calibration;
	if (!ReadFirstPage(index, meta, id, &calibration))
		return NULL;
	if (cached == NULL)
		index->rd_amcache = cached = MemoryContextAlloc(index->rd_indexcxt, sizeof(Cached));
	*cached = (Cached) {meta->instance, id, calibration};
	return &cached->calibration;
}

static bool
IsSound(const GgCalibration *calibration, uint64 npages)
{
	if (calibration->ndays > GG_MOST_DAYS || calibration->held > 1 ||
		calibration->by < GG_BY_ROWS || calibration->by > GG_BY_QUERIES ||
		calibration->codes > GG_CODES_INT4)
		return false;
	for (int form = 0; form < GG_FORMS; form++)
		for (int k = 0; k < GG_CALIBRATED_KS; k++)
			for (int i = 1; i < GG_CALIBRATED_LENGTHS; i++)
				if (calibration->bounds[form][k][i] < calibration->bounds[form][k][i - 1])
					return false;
	return GgArrayPages(GgCalibrationBytes(calibration)) == npages;
}

GgCalibration *
GgReadCalibration(Relation index, const GgMetaPageData *meta)
{
	const uint32 id = GgIdOfKind(meta, GG_KIND_CALIBRATION);
	GgCalibration *calibration;
	GgCalibration head;
	GgArray		array;

	if (id == GG_NO_SEGMENT)
		return NULL;
	GgFindArray(meta, id, GG_KIND_CALIBRATION, &array);
	GgReadArray(index, meta->instance, &array, 0, &head, sizeof(head));
	if (!IsSound(&head, array.npages))
		GgReportCorruption(index, GgArrayBlock(&array, 0),
						   "a calibration of %u days, by queries of kind %u, has " UINT64_FORMAT
						   " pages", head.ndays, head.by, (uint64) array.npages);
	calibration = palloc(GgCalibrationBytes(&head));
	GgReadArray(index, meta->instance, &array, 0, calibration, GgCalibrationBytes(&head));
	return calibration;
}

uint64
GgLiveRows(const GgMetaPageData *meta)
{
	uint64		rows = 0;

	for (int i = 0; i < meta->nsegments; i++)
		rows += meta->segments[i].rows - meta->segments[i].dead;
	return rows;
}

bool
GgRowsHaveChanged(const GgMetaPageData *meta, const GgCalibration *calibration)
{
	uint64		newer = 0;

	for (int i = 0; i < meta->nsegments; i++)
		if (meta->segments[i].id >= calibration->next_id)
			newer += meta->segments[i].rows - meta->segments[i].dead;
	return calibration->library != GG_CALIBRATED_AS ||
		calibration->codes != meta->pieces[0].codes || newer > CHANGED_SHARE * calibration->rows ||
		GgLiveRows(meta) < (1 - CHANGED_SHARE) * calibration->rows;
}

bool
GgCalibrationIsDue(const GgMetaPageData *meta, const GgCalibration *calibration)
{
	if (GgLiveRows(meta) == 0)
		return false;
	return calibration == NULL || GgRowsHaveChanged(meta, calibration) ||
		calibration->sample != GgSampleId(meta) ||
		(calibration->by == GG_BY_QUERIES &&
		 GetCurrentTimestamp() > TimestampTzPlusMilliseconds(calibration->measured,
															 (int64) SECS_PER_DAY * 1000));
}

/* ---- lists -------------------------------------------------------------------------------- */

static bool
WasMeasured(const GgCalibration *calibration, int form)
{
	return calibration->bounds[form][0][GG_CALIBRATED_LENGTHS - 1] > 0;
}

/* May lists lie between lengths i - 1 and i? */
static bool
IsConcave(const uint16 *bounds, int i)
{
	const double length = GgCalibratedLength(i - 1);

	return i > 1 && bounds[i] != GG_EXACT_BOUND &&
		(bounds[i] - bounds[i - 1]) * (length - GgCalibratedLength(i - 2)) <=
		(bounds[i - 1] - bounds[i - 2]) * (GgCalibratedLength(i) - length);
}

/*
 * The list for which these bounds reach the target, or the longest; at least as long as LIMIT k
 * makes it.  *exact: all rows are measured for the list.
 */
static double
ListAt(const uint16 *bounds, double target, uint32 k, bool *exact)
{
	const double wanted = target * UNIT;
	double		list = GG_MAX_ITOPK;
	int			i = 0;

	while (i < GG_CALIBRATED_LENGTHS && bounds[i] < wanted)
		i++;
	*exact = i < GG_CALIBRATED_LENGTHS && bounds[i] == GG_EXACT_BOUND;
	if (i < GG_CALIBRATED_LENGTHS)
		list = GgCalibratedLength(i);
	if (i < GG_CALIBRATED_LENGTHS && i > 0 && IsConcave(bounds, i))
		list -= (list - GgCalibratedLength(i - 1)) * (bounds[i] - wanted) /
			(bounds[i] - bounds[i - 1]);
	return Max(list, (double) GG_LIMITED_WALK(k));
}

/* The bound that these have for a list, which counts as no shorter than LIMIT k makes it. */
static double
BoundAt(const uint16 *bounds, double list, uint32 k)
{
	int			i = 0;
	double		longer;

	list = Max(list, (double) GG_LIMITED_WALK(k));
	while (i < GG_CALIBRATED_LENGTHS - 1 && GgCalibratedLength(i) < list)
		i++;
	longer = GgCalibratedLength(i);
	if (i == 0)
		return bounds[0] / UNIT * Min(list / longer, 1);
	if (list < longer && !IsConcave(bounds, i))
		return bounds[i - 1] / UNIT;
	return (bounds[i] - (bounds[i] - bounds[i - 1]) * Max(longer - list, 0) /
			(longer - GgCalibratedLength(i - 1))) / UNIT;
}

/* The place in gg_calibrated_ks of the largest number not above k; the last but one at most. */
static int
NumberBelow(double k)
{
	return k < gg_calibrated_ks[1] ? 0 : 1;
}

/* Where k lies between number `below` and the next one, in the logarithm. */
static double
ShareOf(int below, double k)
{
	return log(k / gg_calibrated_ks[below]) /
		log((double) gg_calibrated_ks[below + 1] / gg_calibrated_ks[below]);
}

/*
 * The list that a measured form needs for k rows.  Where the larger number's list measures all
 * rows, it is known only that a walk for that number needs no shorter one.  So a list between is at
 * least in proportion to the smaller number's.
 */
static double
ListOfForm(const GgCalibration *calibration, int form, double target, double k)
{
	const int	below = NumberBelow(k);
	const uint32 fewer = gg_calibrated_ks[below];
	const uint32 many = gg_calibrated_ks[below + 1];
	bool		exact;
	double		list = ListAt(calibration->bounds[form][below], target, fewer, &exact);
	double		more,
				between;

	if (k == fewer)
		return list;
	more = ListAt(calibration->bounds[form][below + 1], target, many, &exact);
	if (k > many)
		return more * k / many;
	between = list * pow(more / list, ShareOf(below, k));
	return exact ? Min(Max(between, list * k / fewer), more) : between;
}

uint32
GgListFor(const GgCalibration *calibration, GgForm form, double target, double k)
{
	double		list = 0;

	if (WasMeasured(calibration, form))
		list = ListOfForm(calibration, form, target, k);
	for (int i = 0; i < GG_FORMS && !WasMeasured(calibration, form); i++)
		if (WasMeasured(calibration, i))
			list = Max(list, ListOfForm(calibration, i, target, k));
	/* no form was measured: nothing is known */
	return list == 0 ? GG_MAX_ITOPK : (uint32) Min(ceil(list), GG_MAX_ITOPK);
}

/*
 * Of a form that was measured: the recall for which ListOfForm() answers so long a list, or less
 * where all rows are measured for the larger number.
 */
static double
RecallOfForm(const GgCalibration *calibration, int form, double list, double k)
{
	const int	below = NumberBelow(k);
	const uint16 (*bounds)[GG_CALIBRATED_LENGTHS] = calibration->bounds[form] + below;
	const uint32 fewer = gg_calibrated_ks[below];
	const uint32 many = gg_calibrated_ks[below + 1];
	double		bound,
				more;

	if (k == fewer)
		return BoundAt(bounds[0], list, fewer);
	more = BoundAt(bounds[1], k > many ? list * many / k : list, many);
	if (k > many)
		return more;
	if (more == 1)
		return BoundAt(bounds[0], list * fewer / k, fewer);
	bound = BoundAt(bounds[0], list, fewer);
	return bound + (more - bound) * ShareOf(below, k);
}

double
GgRecallOf(const GgCalibration *calibration, GgForm form, uint32 list, double k)
{
	double		least = 1;

	for (int i = 0; i < GG_FORMS; i++)
		if (WasMeasured(calibration, i) && (i == (int) form || !WasMeasured(calibration, form)))
			least = Min(least, RecallOfForm(calibration, i, list, k));
	return least;
}

uint32
GgSettledList(Relation index, const GgMetaPageData *meta, GgForm form, double k)
{
	const GgCalibration *calibration = NULL;

	if (gg_target_recall > 0 && gg_iterative_scan != GG_ITERATIVE_OFF)
		calibration = GgGetCalibration(index, meta);
	return calibration == NULL ? (uint32) gg_itopk_size :
		GgListFor(calibration, form, gg_target_recall, k);
}
