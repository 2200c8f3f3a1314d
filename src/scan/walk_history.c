/*
 * walk_history.c
 *		What a session remembers of walks of which most nodes may be thrown away.
 */
#include "scan/device.h"

/* Scans without walks after one that was for nothing, at most. */
#define MOST_REST			64

/*
 * How walks have fared in this session where most of what they find may be thrown away, by the
 * executor and by a filter, each in the index that it last walked so.
 */
typedef struct WalkHistory
{
	Oid			index;
	uint32		rest;			/* so many scans are to do without one */
	uint32		next_rest;		/* after the next one that is for nothing */
	bool		wasted;			/* the last one was for nothing */
} WalkHistory;

static WalkHistory walk_history[2];

/* May this scan, most of whose rows are thrown away, begin with a walk? */
bool
WalkIsDue(GgScanOpaque *so)
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
BeginUncertainWalk(GgScanOpaque *so)
{
	WalkHistory *history = &walk_history[so->filter != NULL];

	if (!history->wasted)
		history->next_rest = 1;
	history->wasted = false;
	so->device.uncertain = true;
}

/* The scan wants more than its walk has found. */
void
NoteWastedWalk(const GgScanOpaque *so)
{
	WalkHistory *history = &walk_history[so->filter != NULL];

	if (history->wasted || history->index != RelationGetRelid(so->index))
		return;
	history->wasted = true;
	history->rest = history->next_rest;
	history->next_rest = Min(history->next_rest * 2, MOST_REST);
}
