/*
 * versions.h
 *		What pgvector 0.8.0 needs to compile for PostgreSQL 18 and 19, for which it is too old.
 *
 * test/versions includes it before each file of pgvector.  A newer pgvector, which knows these
 * versions, is left alone.
 */
#include "postgres.h"
#include "commands/vacuum.h"
#if PG_VERSION_NUM >= 180000
#define vacuum_delay_point() vacuum_delay_point(false)
#endif
#if PG_VERSION_NUM >= 190000
#include "access/amapi.h"
#include "access/tableam.h"
#include "storage/bufpage.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "utils/memutils.h"
#include "utils/relptr.h"
#include "varatt.h"
typedef const void *Item;
#define table_beginscan_parallel(relation, scan) (table_beginscan_parallel)(relation, scan, SO_NONE)
#define LWLockNewTrancheId() LWLockNewTrancheId("HnswBuild")
#define LWLockRegisterTranche(id, name) ((void) (id))
#undef relptr_store
#define relptr_store(base, rp, val) ((rp).relptr_off = relptr_store_eval(base, (char *) (val)))
static inline Node *
LastingNode(Size size, NodeTag tag)
{
	Node	   *node = (Node *) MemoryContextAllocZero(TopMemoryContext, size);

	node->type = tag;
	return node;
}
#undef makeNode
#define makeNode(type) ((type *) LastingNode(sizeof(type), T_##type))
#endif
