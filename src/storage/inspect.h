/*
 * inspect.h
 *		How SQL functions open an index that a user names, and run the code of its owner.
 */
#ifndef GG_INSPECT_H
#define GG_INSPECT_H

#include "base/base.h"

/* The search_path with which the owner's code runs. */
#define GG_OWNER_PATH		"pg_catalog, pg_temp"

typedef struct GgInspected
{
	LOCKMODE	lockmode;
	Relation	heap;
	Relation	index;
} GgInspected;

typedef enum GgInspection
{
	GG_READ_INDEX,				/* needs ownership, MAINTAIN, or pg_stat_scan_tables */
	GG_READ_TABLE,				/* needs ownership or MAINTAIN */
	GG_CHANGE_INDEX,			/* needs ownership or MAINTAIN; locks as an insert does */
	GG_SEARCH_TABLE				/* needs SELECT on the table or on some of its columns; the caller
								 * knows which */
} GgInspection;

/*
 * Open a gpugraph index and its table under AccessShareLock; under RowExclusiveLock to change the
 * index.  Errors: 42704 no such relation; 42809 it is of another kind; 42501 the user lacks the
 * privilege; 55P03 the lock to change is not to be had; 55000 the index is not ready; 0A000 it is
 * another session's temporary table, or unlogged on a standby.
 */
extern void GgOpenInspected(Oid indexoid, GgInspection inspection, GgInspected *inspected);
extern void GgCloseInspected(GgInspected *inspected);

/* The caller's rights, to be restored when the owner's are no longer used. */
typedef struct GgCaller
{
	Oid			userid;
	int			sec_context;
	int			nest_level;
} GgCaller;

/*
 * An index's expressions and predicate may call any function of the table's owner.  What evaluates
 * them, or has the planner simplify them, does so between these two, after the caller's privileges
 * were checked: as the owner, who cannot get the caller's rights, and with the system's
 * search_path, so that the caller cannot have the owner run functions of his own.  An error ends
 * it, too.
 */
extern void GgActAsOwner(Relation heap, GgCaller *caller);
extern void GgActAsCaller(const GgCaller *caller);

/* What errors say of an expression evaluated between GgTellRights() and GgTellNoRights(). */
typedef struct GgRights
{
	ErrorContextCallback callback;
	const char *index;
	const char *owner;
} GgRights;

/* Is the index's vector an expression? */
static inline bool
GgIsExpression(Relation index)
{
	return index->rd_index->indkey.values[0] == InvalidAttrNumber;
}

/* Set up rights.  Looks names up here, since nobody may do so while an error is reported. */
extern void GgFindRights(GgRights *rights, Relation index, Relation heap);

/* From here on errors name the index, and the owner and path that its expression runs with. */
static inline void
GgTellRights(GgRights *rights)
{
	rights->callback.previous = error_context_stack;
	error_context_stack = &rights->callback;
}

static inline void
GgTellNoRights(GgRights *rights)
{
	error_context_stack = rights->callback.previous;
}

#endif							/* GG_INSPECT_H */
