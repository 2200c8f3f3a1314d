/*
 * merge.c
 *		One merge: its plan, its steps, its result.
 *
 * The vectors of the inputs become the rows of a data set (nodes.c), for which an engine makes a
 * graph (builder.c).  The arrays of the merged segment are written, and one WAL record puts it in
 * its inputs' place (flip.c).
 */
#include "maintain/merge_state.h"
#include "storage/codes.h"
#include "storage/graph_memory.h"

#include "utils/memutils.h"

/* What is merged, and by what the graph is built. */
static void
PlanMerge(GgMerge *merge, const GgMergeChoice *choice)
{
	GgOptions	options;

	GgBeginSlice(merge->target);
	GgGetOptions(merge->target->index, &options);
	GgGetBuildParams(merge->meta, &options, &merge->params);
	merge->codes = GgMergeCodes(merge->meta, &options);
	GgEndSlice(merge->target);
	merge->plan = palloc0(sizeof(GgMergePlan));
	merge->pinned = choice->pinned;
	merge->anew = choice->anew;
	for (int i = 0; i < choice->nsegments; i++)
		GgAddInput(merge->plan, merge->meta, GgFindSegment(merge->meta, choice->segments[i]));
	if (choice->delta)
		GgAddDelta(merge->plan, merge->meta, choice->delta_rows);
	merge->tids = MemoryContextAllocHuge(CurrentMemoryContext,
										 Max(merge->plan->rows, 1) * sizeof(GgTidEntry));
}

bool
GgMergeSegments(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergeChoice *choice,
				int threads, GgMergeResult *result)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpugraph merge",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	GgMerge	   *merge = palloc0(sizeof(GgMerge));
	const double within_s = target->within_s;
	bool		flipped;

	merge->phase_began_us = GgNowMicros();
	merge->phase_within_s = within_s;
	merge->context = context;
	merge->target = target;
	merge->call = (GgEngineCall) {.context = context, .target = target};
	merge->meta = meta;
	merge->epoch = meta->vacuum_epoch;
	merge->threads = threads;
	PlanMerge(merge, choice);
	GgReadAllTids(merge);
	for (int i = 0; i < merge->plan->ninputs; i++)
		GgReadOffsets(target, meta, &merge->plan->inputs[i]);
	GgNumberNodes(merge);
	GgTakeMergeId(merge);
	if (merge->nodes > 0)
	{
		GgBuildMerged(merge);
		GgWriteMerged(merge);
	}
	flipped = GgFinishMerge(merge);
	GgRemoveFiles(&merge->files);

	memset(result, 0, sizeof(*result));
	result->inputs = merge->plan->ninputs;
	result->nodes = merge->nodes;
	result->rows = merge->nrows;
	for (int i = 0; i < merge->narrays; i++)
		result->bytes += (uint64) merge->arrays[i].npages * BLCKSZ;
	strlcpy(result->builder, merge->builder[0] != '\0' ? merge->builder : "nobody",
			sizeof(result->builder));
	GgEndPhase(merge, merge->phase);
	result->meanwhile = target->within_s - within_s;
	result->seconds = result->meanwhile;
	for (int i = 0; i < GG_MERGE_PHASES; i++)
	{
		result->phases[i] = merge->phases[i];
		result->seconds += merge->phases[i];
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return flipped;
}
