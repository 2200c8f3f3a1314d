/*
 * walk_history.c
 *		What a session remembers of walks that were for nothing.
 *
 * Most of what a walk finds may be thrown away, by the executor or by a filter.  Whether enough is
 * left is not known before.  So after a scan that wanted more than its walk had found, the
 * session's next scan of the index has no walk; after another one in a row the next two have none,
 * then the next four, up to MOST_REST.
 */
#include "scan/device.h"

/* Scans without walks after one that was for nothing, at most. */
#define MOST_REST			64

typedef struct WalkHistory
{
	Oid			index;
	uint32		rest;			/* so many scans are to do without one */
	uint32		next_rest;		/* the rest after the next walk that is for nothing */
	bool		wasted;			/* the last walk was for nothing */
} WalkHistory;

/* [0]: the executor throws nodes away; [1]: a filter does.  Of the index last walked so. */
static WalkHistory walk_history[2];

bool
GgWalkIsDue(GgScanOpaque *so)
{
	WalkHistory *history = &walk_history[so->filter != NULL];
	Oid			index = RelationGetRelid(so->index);

	if (history->index != index)
	{
		memset(history, 0, sizeof(*history));
		history->index = index;
	}
	if (history->rest == 0)
		return true;
	history->rest--;
	return false;
}

void
GgBeginUncertainWalk(GgScanOpaque *so)
{
	WalkHistory *history = &walk_history[so->filter != NULL];

	if (!history->wasted)
		history->next_rest = 1;
	history->wasted = false;
	so->device.uncertain = true;
}

void
GgNoteWastedWalk(const GgScanOpaque *so)
{
	WalkHistory *history = &walk_history[so->filter != NULL];

	if (history->wasted || history->index != RelationGetRelid(so->index))
		return;
	history->wasted = true;
	history->rest = history->next_rest;
	history->next_rest = Min(history->next_rest * 2, MOST_REST);
}
