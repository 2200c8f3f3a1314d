/*
 * recall_target.c
 *		The candidate list that gpugraph.target_recall takes.
 *
 * Which form answers is known only once the device has been looked up.  So a scan begins with the
 * list of the CPU's form, takes that of the device's form when one is asked (device_ask.c), and the
 * CPU's once more where the device does not answer.
 *
 * Under a filter the rows that match are among more of the nearest.  So the list is that of as many
 * rows as are expected to be passed, which is right where the condition does not go by the
 * distance.  Where the executor filters, the planner's estimate says how many.
 */
#include "scan/scan.h"

#include "maintain/merge.h"

/* Rows that are to be handed out. */
static double
RowsAimedAt(const GgScanOpaque *so)
{
	return so->limit > 0 ? so->limit : so->expected > 0 ? so->expected : GG_USUAL_LIMIT;
}

void
GgAimAtRecall(GgScanOpaque *so)
{
	const GgCalibration *calibration;

	so->exact = so->all_exact;
	so->calibration = NULL;
	if (so->quiet)
		return;
	GgNoteSearch();
	if (gg_target_recall == 0 || so->mode == GG_ITERATIVE_OFF)
		return;
	if (gg_target_recall == 1)
	{
		so->exact = true;
		so->reason = GG_REASON_EXACT;
		return;
	}
	calibration = GgGetCalibration(so->index, so->meta);
	if (GgCalibrationIsDue(so->meta, calibration))
		GgAskForCalibration(so->index);
	if (calibration == NULL)
		return;
	so->calibration = palloc(sizeof(GgCalibration));
	*so->calibration = *calibration;
	so->target = gg_target_recall;
	GgTakeForm(so, GgCpuForm(so->meta), false);
}

void
GgTakeForm(GgScanOpaque *so, GgForm form, bool at_least)
{
	uint32		list;

	if (so->calibration == NULL)
		return;
	list = GgListFor(so->calibration, form, so->target, RowsAimedAt(so));
	if (at_least && list <= so->params.itopk_size)
		return;
	so->form = form;
	so->params.itopk_size = list;
	for (int i = 0; i < so->nstreams; i++)
		if (so->streams[i].ops == NULL)
			so->streams[i].itopk = list;
}

uint32
GgFilteredAim(const GgScanOpaque *so, const GgStream *stream)
{
	if (so->calibration == NULL || so->filter == NULL)
		return stream->itopk;
	return Max(stream->itopk,
			   GgListFor(so->calibration, so->form, so->target,
						 RowsAimedAt(so) * stream->nodes / Max(stream->nmatching, 1)));
}

double
GgExpectedRecall(const GgScanOpaque *so)
{
	return so->exact ? 1 : so->calibration == NULL ? 0 :
		GgRecallOf(so->calibration, so->form, so->params.itopk_size, RowsAimedAt(so));
}
