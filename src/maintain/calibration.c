/*
 * calibration.c
 *		When the recall of an index is measured, and what is kept of it.
 *
 * Nothing is measured until a scan that has a target finds no calibration, or one that is out of
 * date.  It asks the merge worker then, and from then on the worker looks by itself: after builds,
 * merges, learning, and once a day where the index has a sample of queries.
 *
 * The worker measures in slices.  It goes on at once while nobody has searched for IDLE_MS, and a
 * slice ends with the query after which somebody does.  Else it measures for BUSY_SHARE of the
 * time.  Merges, learning and other indexes come first.  many/calibrate.c does what is measured.
 *
 * Who may search an index with learn_queries may fill its sample with queries that are hard to
 * answer, or easy ones, and so change the lists of others.  So while the sample alone changes,
 * lists follow with each measurement by a length (a quarter at most), and by HELD_LENGTHS in all
 * (twice, or half), until rows have changed, or the owner calls gpugraph_calibrate().  Queries may
 * change with the rows, so lists follow FREE_AFTER_CHANGE measurements after that as well: a sample
 * is renewed by so many reservoirs (queries.c).  A list changes by a length at most when each bound
 * stays between those of its neighbors before.
 */
#include "maintain/jobs.h"

#include "access/xlog.h"
#include "utils/snapmgr.h"

#define IDLE_MS				1000
#define SLICE_MS			50
#define BUSY_SHARE			0.01

/* Lists stray from the free measurement by so many lengths at most, which are four to an octave. */
#define HELD_LENGTHS		4

/* Measurements that lists follow after a tenth of the rows has changed. */
#define FREE_AFTER_CHANGE	8

/* A session does not ask the worker twice in a row for one index within this time. */
#define ASK_MS				10000

static GgCalibrator calibrator = NULL;

/* ---- what is stored ----------------------------------------------------------------------- */

void
GgSetCalibrator(GgCalibrator function)
{
	calibrator = function;
}

/* A measurement with those of the days before it: of each day the last one is kept. */
static GgCalibration *
AddDay(const GgCalibration *measured, const GgCalibration *before)
{
	const uint32 ndays = before != NULL ? before->ndays : 0;
	GgCalibration *calibration = palloc0(sizeof(GgCalibration) +
										 (ndays + 1) * sizeof(GgCalibrationDay));
	GgCalibrationDay *days = GgDaysOf(calibration);
	uint32		first = ndays == GG_MOST_DAYS ? 1 : 0;
	uint32		count = ndays - first;

	*calibration = *measured;
	if (ndays > 0)
		memcpy(days, GgDaysOf(before) + first, count * sizeof(GgCalibrationDay));
	if (count > 0 && days[count - 1].measured / USECS_PER_DAY ==
		measured->measured / USECS_PER_DAY)
		count--;
	days[count] = (GgCalibrationDay) {
		.measured = measured->measured, .queries = measured->queries, .by = measured->by,
		.sample = (uint16) measured->sample
	};
	for (int form = 0; form < GG_FORMS; form++)
		days[count].recall[form] = (uint16)
			(measured->bounds[form][1][GG_CALIBRATED_LENGTHS - 1] == 0 ? 0 :
			 GgRecallOf(measured, (GgForm) form, GG_DAILY_LENGTH, GG_USUAL_LIMIT) *
			 PG_UINT16_MAX);
	calibration->ndays = count + 1;
	return calibration;
}

/* Keep bounds between those that others have for lists `lengths` steps shorter and longer. */
static void
HoldTo(GgCalibration *calibration, const GgBounds *others, int lengths)
{
	const int	last = GG_FORMS * GG_CALIBRATED_KS;
	uint16		(*bounds)[GG_CALIBRATED_LENGTHS] = calibration->bounds[0];
	const uint16 (*to)[GG_CALIBRATED_LENGTHS] = others[0];

	for (int k = 0; k < last; k++)
		for (int i = 0; i < GG_CALIBRATED_LENGTHS && to[k][GG_CALIBRATED_LENGTHS - 1] > 0; i++)
		{
			const uint16 least = i < lengths ? 0 : Min(to[k][i - lengths], GG_EXACT_BOUND - 1);
			const uint16 most = i + lengths < GG_CALIBRATED_LENGTHS ? to[k][i + lengths] :
				PG_UINT16_MAX;
			const uint16 held = Min(Max(bounds[k][i], least), most);

			/* that all rows are measured depends on no query */
			if (held == bounds[k][i] || bounds[k][i] == GG_EXACT_BOUND ||
				bounds[k][GG_CALIBRATED_LENGTHS - 1] == 0)
				continue;
			bounds[k][i] = held;
			calibration->held = 1;
		}
}

/* Do lists follow what was measured a length at a time?  See the head. */
static bool
IsHeld(const GgMergeTarget *target, const GgMetaPageData *meta, const GgCalibration *measured,
	   const GgCalibration *before)
{
	GgOptions	options;

	GgGetOptions(target->index, &options);
	return options.learn_queries && target->sliced && before != NULL &&
		before->by == GG_BY_QUERIES && measured->by == GG_BY_QUERIES && before->follows == 0 &&
		!GgRowsHaveChanged(meta, before);
}

/* Store what was measured.  False: another process merges the index. */
static bool
Store(GgMergeTarget *target, const GgCalibration *measured)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	GgCalibration *before;
	GgCalibration *calibration;

	if (!GgLockMerges(target, false))
		return false;
	GgBeginSlice(target);
	GgReadMeta(target->index, meta);
	target->instance = meta->instance;
	before = GgReadCalibration(target->index, meta);
	calibration = AddDay(measured, before);
	memcpy(calibration->origin, measured->bounds, sizeof(measured->bounds));
	if (before != NULL)
		calibration->follows = GgRowsHaveChanged(meta, before) ? FREE_AFTER_CHANGE :
			Max(before->follows, 1) - 1;
	if (IsHeld(target, meta, measured, before))
	{
		/* rows that changed since the last free measurement go on counting */
		calibration->next_id = before->next_id;
		calibration->rows = before->rows;
		memcpy(calibration->origin, before->origin, sizeof(before->origin));
		HoldTo(calibration, before->bounds, 1);
		HoldTo(calibration, before->origin, HELD_LENGTHS);
	}
	GgEndSlice(target);
	GgStoreCalibration(target, calibration);
	GgUnlockMerges(target);
	pfree(calibration);
	pfree(meta);
	return true;
}

static bool
IsNever(void)
{
	return false;
}

bool
GgCalibrate(GgMergeTarget *target)
{
	const GgCalibration *measured = calibrator(target, IsNever);

	return measured->queries == 0 || Store(target, measured);
}

/* ---- in scans ----------------------------------------------------------------------------- */

void
GgAskForCalibration(Relation index)
{
	static Oid	asked = InvalidOid;
	static TimestampTz when = 0;
	const TimestampTz now = GetCurrentTimestamp();

	if (RecoveryInProgress())
		return;
	if (asked == RelationGetRelid(index) && now < TimestampTzPlusMilliseconds(when, ASK_MS))
		return;
	asked = RelationGetRelid(index);
	when = now;
	GgRequestCalibration(index);
}

/* ---- in the worker ------------------------------------------------------------------------ */

static TimestampTz slice_began;

static bool
IsEnough(void)
{
	const TimestampTz now = GetCurrentTimestamp();

	return now > TimestampTzPlusMilliseconds(slice_began, SLICE_MS) ||
		GgLastSearch() > slice_began;
}

/* May a slice begin now?  spent: microseconds of those before it, since `began`. */
static bool
MayBegin(TimestampTz now, TimestampTz began, int64 spent, bool *at_once)
{
	*at_once = now > TimestampTzPlusMilliseconds(GgLastSearch(), IDLE_MS);
	return *at_once || spent < BUSY_SHARE * (now - began);
}

/* Is a measurement due?  Unless a scan has asked, only an index with a calibration has one due. */
static bool
IsDue(GgMergeTarget *target, bool wanted)
{
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	const GgCalibration *calibration;
	bool		due;

	GgReadMeta(target->index, meta);
	calibration = GgGetCalibration(target->index, meta);
	due = (wanted || calibration != NULL) && GgCalibrationIsDue(meta, calibration);
	pfree(meta);
	return due;
}

bool
GgCalibrateStep(GgMergeTarget *target, bool wanted, bool *at_once)
{
	static Oid	index = InvalidOid;
	static TimestampTz began;
	static int64 spent;
	const GgCalibration *measured = NULL;
	bool		due;
	bool		measures;

	slice_began = GetCurrentTimestamp();
	if (index != target->index_oid)
	{
		index = target->index_oid;
		began = slice_began;
		spent = 0;
	}
	measures = MayBegin(slice_began, began, spent, at_once);
	GgBeginSlice(target);
	due = IsDue(target, wanted);
	if (due && measures)
	{
		GgReportJob(index, GG_MERGE_CALIBRATE, 0);
		PushActiveSnapshot(GetTransactionSnapshot());
		measured = calibrator(target, IsEnough);
		PopActiveSnapshot();
		GgEndReport(index);
		spent += GetCurrentTimestamp() - slice_began;
	}
	GgEndSlice(target);
	*at_once &= due;
	if (!due || (measured != NULL && (measured->queries == 0 || Store(target, measured))))
		index = InvalidOid;
	/* what has changed meanwhile makes another one due */
	return due && (measured == NULL || measured->queries > 0);
}
