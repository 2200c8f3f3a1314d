/*
 * inspect.h
 *		How the functions that look into an index (info.c, check.c) open it.
 */
#ifndef GG_INSPECT_H
#define GG_INSPECT_H

#include "base/base.h"

typedef struct GgInspected
{
	Relation	heap;
	Relation	index;
} GgInspected;

typedef enum GgInspection
{
	GG_READ_INDEX,				/* owner, MAINTAIN privilege, or member of pg_stat_scan_tables */
	GG_READ_TABLE				/* owner or MAINTAIN privilege */
} GgInspection;

/*
 * Open a gpugraph index and its table, the index under AccessShareLock.  Errors: 42704 no such
 * relation, 42809 another kind of relation, 42501 may neither maintain the table nor is a member of
 * pg_stat_scan_tables, 0A000 another session's temporary table, or unlogged on a standby.
 */
extern void GgOpenInspected(Oid indexoid, GgInspection inspection, GgInspected *inspected);
extern void GgCloseInspected(GgInspected *inspected);

#endif							/* GG_INSPECT_H */
