/*
 * told_sets.c
 *		Sets that are known before a scan begins: WHERE tenant IN (SELECT ...) on a filter column.
 *
 * Where such a condition does not become a join, as in a policy of row-level security, it stays in
 * the filter of the index scan as a hashed subplan.  When the first row comes to it, the executor
 * runs the subquery, keeps its values in a hash table, and from then on looks rows up there.  That
 * drops them one by one, though the index could leave them out.  So here the executor makes the
 * table before the first row, and the scan takes the values for a condition on the column, like an
 * IN list.
 *
 * The condition stays in the filter, and rows are looked up in the same table.  So NULLs, the order
 * of conditions and rights are core's, and the subquery runs once.  What the scan leaves out is not
 * in the hash table.  The scan is not told of a set of more values than a filter has room for.
 */
#include "scan/row_filter.h"

#include "access/stratnum.h"
#include "executor/executor.h"
#include "executor/nodeSubplan.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "rewrite/rewriteManip.h"
#include "utils/array.h"
#include "utils/lsyscache.h"

typedef struct ToldSet
{
	IndexScanState *scan;
	SubPlanState *subplan;
	ScanKeyData key;			/* but for the argument */
	Oid			element;		/* type of the values */
} ToldSet;

/* ---- what the executor's filter says -------------------------------------- */

/* Which column of the index is that expression of the scan's?  0: none. */
static AttrNumber
ColumnOf(const IndexScanState *scan, Node *expr)
{
	const Relation index = scan->iss_RelationDesc;
	const Index table = ((const Scan *) scan->ss.ps.plan)->scanrelid;
	List	   *expressions = NIL;
	int			next = 0;

	while (IsA(expr, RelabelType))
		expr = (Node *) ((RelabelType *) expr)->arg;
	if (!IsA(expr, Var))
	{
		expressions = RelationGetIndexExpressions(index);
		ChangeVarNodes((Node *) expressions, 1, table, 0);
	}
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		const AttrNumber column = index->rd_index->indkey.values[i];
		Node	   *indexed = NULL;

		if (column == 0 && expressions != NIL)
			indexed = list_nth(expressions, next++);
		while (indexed != NULL && IsA(indexed, RelabelType))
			indexed = (Node *) ((RelabelType *) indexed)->arg;
		if (column == 0 ? equal(indexed, expr) :
			IsA(expr, Var) && ((Var *) expr)->varattno == column)
			return i + 1;
	}
	return 0;
}

/* Make a set of a hashed subplan, if an index column is compared with its values; else NULL. */
static ToldSet *
MakeSet(IndexScanState *scan, SubPlanState *subplan)
{
	const OpExpr *test = (const OpExpr *) subplan->subplan->testexpr;
	const Relation index = scan->iss_RelationDesc;
	AttrNumber	column;
	int			strategy;
	Oid			left,
				right;
	ToldSet    *set;

	if (!subplan->subplan->useHashTable || subplan->subplan->subLinkType != ANY_SUBLINK ||
		!IsA(test, OpExpr) || list_length(test->args) != 2)
		return NULL;
	column = ColumnOf(scan, linitial(test->args));
	if (column < 2 || !op_in_opfamily(test->opno, index->rd_opfamily[column - 1]) ||
		(OidIsValid(index->rd_indcollation[column - 1]) &&
		 index->rd_indcollation[column - 1] != test->inputcollid))
		return NULL;
	get_op_opfamily_properties(test->opno, index->rd_opfamily[column - 1], false, &strategy, &left,
							   &right);
	if (strategy != BTEqualStrategyNumber)
		return NULL;
	set = palloc(sizeof(ToldSet));
	set->scan = scan;
	set->subplan = subplan;
	set->element = getBaseType(exprType(lsecond(test->args)));
	ScanKeyEntryInitialize(&set->key, SK_SEARCHARRAY, column, strategy, right, test->inputcollid,
						   get_opcode(test->opno), (Datum) 0);
	return set;
}

List *
GgFindSets(IndexScanState *scan)
{
	const List *filter = scan->ss.ps.plan->qual;
	List	   *sets = NIL;
	ListCell   *cell;

	foreach(cell, scan->ss.ps.subPlan)
	{
		SubPlanState *subplan = lfirst(cell);
		ToldSet    *set = list_member_ptr(filter, subplan->subplan) ?
			MakeSet(scan, subplan) : NULL;

		if (set != NULL)
			sets = lappend(sets, set);
	}
	return sets;
}

/* ---- one scan -------------------------------------------------------------- */

/*
 * Have the executor make the hash table, unless it is there.  It does so when it looks for a row,
 * of which all columns are NULL here.
 */
static void
MakeTable(const ToldSet *set)
{
	TupleTableSlot *slot = set->scan->ss.ss_ScanTupleSlot;
	ExprContext *context = set->scan->ss.ps.ps_ExprContext;
	TupleTableSlot *before = context->ecxt_scantuple;
	bool		isnull;

	context->ecxt_scantuple = ExecStoreAllNullTuple(slot);
	(void) ExecSubPlan(set->subplan, context, &isnull);
	context->ecxt_scantuple = before;
	ExecClearTuple(slot);
}

/* The values as an array, the argument of the key. */
static void
ReadTable(const ToldSet *set, ScanKey key)
{
	TupleHashTable table = set->subplan->hashtable;
	Datum	   *values = palloc(table->hashtab->members * sizeof(Datum));
	TupleHashIterator iterator;
	TupleHashEntry entry;
	int			count = 0;
	int16		length;
	bool		byval;
	char		align;
	bool		isnull;

	InitTupleHashIterator(table, &iterator);
	while ((entry = ScanTupleHashTable(table, &iterator)) != NULL)
	{
		ExecStoreMinimalTuple(GgHashedTuple(entry), table->tableslot, false);
		values[count++] = slot_getattr(table->tableslot, 1, &isnull);
	}
	ExecClearTuple(table->tableslot);
	get_typlenbyvalalign(set->element, &length, &byval, &align);
	*key = set->key;
	key->sk_argument = PointerGetDatum(construct_array(values, count, set->element, length, byval,
													   align));
}

void
GgTakeSets(IndexScanDesc scan, const List *sets)
{
	GgScanOpaque *so = (GgScanOpaque *) scan->opaque;
	int			nkeys = scan->numberOfKeys;
	ScanKey		keys;
	ListCell   *cell;

	/* a bitmap says more */
	if (so->filter != NULL && so->filter->tids != NULL)
		return;
	keys = palloc((nkeys + list_length(sets)) * sizeof(ScanKeyData));
	if (nkeys > 0)
		memcpy(keys, scan->keyData, nkeys * sizeof(ScanKeyData));
	foreach(cell, sets)
	{
		const ToldSet *set = lfirst(cell);

		MakeTable(set);
		if (!set->subplan->havehashrows)
			so->impossible = true;
		else if (set->subplan->hashtable->hashtab->members <= GG_MAX_FILTER_VALUES)
			ReadTable(set, &keys[nkeys++]);
	}
	if (!so->impossible && nkeys > scan->numberOfKeys)
		GgMakeFilter(so, keys, nkeys);
}
