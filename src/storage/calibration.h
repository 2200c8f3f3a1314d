/*
 * calibration.h
 *		The candidate list that a recall needs, as an index was measured to need it.
 *
 * A calibration has, for some lengths of the list, a lower 95% bound of the recall of 1, 10 and 100
 * rows, for each form that could search the index where it was measured.  many/calibrate.c
 * measures, maintain/calibration.c stores.
 */
#ifndef GG_CALIBRATION_H
#define GG_CALIBRATION_H

#include "storage/directory.h"

/* The version of searches that a measurement holds for.  To be increased when searches change. */
#define GG_CALIBRATED_AS	2

/* The bound of lists for which all rows are measured, and none was missed; others are less. */
#define GG_EXACT_BOUND		PG_UINT16_MAX

/* The list of which GgCalibrationDay has the recall: the default of gpugraph.itopk_size. */
#define GG_DAILY_LENGTH		GG_DEFAULT_ITOPK_SIZE

/* Rows that LIMIT is taken to have where it is not known. */
#define GG_USUAL_LIMIT		10

extern const uint16 gg_calibrated_ks[GG_CALIBRATED_KS];

/* Candidate list number i. */
static inline uint32
GgCalibratedLength(int i)
{
	return (uint32) (4 + i % 4) << (i / 4 + 2);
}

/* The form of walks on the CPU. */
static inline GgForm
GgCpuForm(const GgMetaPageData *meta)
{
	return meta->npieces > 0 && meta->pieces[0].codes != GG_CODES_NONE ? GG_FORM_CPU_CODES :
		GG_FORM_CPU_ROWS;
}

/*
 * The index's calibration; NULL: it has none, or another one than meta says by now.  The result
 * stays until invalidations are accepted.
 */
extern const GgCalibration *GgGetCalibration(Relation index, const GgMetaPageData *meta);

/*
 * The same with the days, for who holds the merge lock, or a snapshot from before meta was read.
 * NULL: there is none.  ereport(ERROR) where it is damaged.  Allocates.
 */
extern GgCalibration *GgReadCalibration(Relation index, const GgMetaPageData *meta);

static inline Size
GgCalibrationBytes(const GgCalibration *calibration)
{
	return sizeof(GgCalibration) + calibration->ndays * sizeof(GgCalibrationDay);
}

static inline GgCalibrationDay *
GgDaysOf(const GgCalibration *calibration)
{
	return (GgCalibrationDay *) (calibration + 1);
}

/* Has the index other rows or segments than were measured, or are they searched in another way? */
extern bool GgRowsHaveChanged(const GgMetaPageData *meta, const GgCalibration *calibration);

/* Is another measurement due?  calibration NULL: there is none. */
extern bool GgCalibrationIsDue(const GgMetaPageData *meta, const GgCalibration *calibration);

/* Live rows of all segments. */
extern uint64 GgLiveRows(const GgMetaPageData *meta);

/*
 * The list whose recall of k rows reaches the target: GG_MAX_ITOPK where none does.  For a form
 * that was not measured, it is the longest list that a measured form needs.
 */
extern uint32 GgListFor(const GgCalibration *calibration, GgForm form, double target, double k);

/* The bound of the recall of k rows by a list; of an unmeasured form, the measured ones' least. */
extern double GgRecallOf(const GgCalibration *calibration, GgForm form, uint32 list, double k);

/*
 * The first list of a search of k rows under the session's settings: gpugraph.itopk_size where
 * gpugraph.target_recall does not count, or nothing is known.
 */
extern uint32 GgSettledList(Relation index, const GgMetaPageData *meta, GgForm form, double k);

#endif							/* GG_CALIBRATION_H */
