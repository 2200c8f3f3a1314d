/*
 * range_path.c
 *		Paths that read all rows within a distance from an index, in no order.
 *
 * WHERE d < r without ORDER BY d, in counts, joins, UPDATE, DELETE and EXISTS, is a condition like
 * any other: no row may be missing.  So such a scan measures every row of the index, and hands out
 * those that may be within (scan/index_scan.c).  The condition stays in the plan, and the table's
 * values decide.  A pass over an index takes a fraction of what a sequential scan takes, which
 * computes the operator for each row.
 *
 * Similarity joins, a.v <-> b.v < r, are such scans with the other table's rows as parameters.
 *
 * PostgreSQL takes a third of the table to be within, whatever r is.  Where the condition has
 * constants alone, a look into the index finds out (scan/look.c), and the rows that other paths are
 * believed to have change, too.  Nobody may learn by that what he may not read.  So where the user
 * may not read the columns, or any condition of the query is there for security, and where there
 * are parameters, GUESSED_SHARE stands for the look.
 *
 * The index has no row whose vector is NULL, or zero under cosine.  NULL fulfils no condition.  The
 * distance of a zero vector is NaN, which is larger than all numbers: 1 - d > t holds for it, d < r
 * does not.  Where it may hold, the path is taken while the index has left out no such row.
 */
#include "plan/planner.h"
#include "scan/monotone.h"
#include "scan/scan.h"
#include "scan/sort_key.h"
#include "storage/directory.h"
#include "storage/type.h"

#include "access/genam.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/selfuncs.h"
#include "utils/typcache.h"

/* Without a look this share of the rows is taken to be within; in a join, for each outer row. */
#define GUESSED_SHARE		0.05
#define GUESSED_JOIN_SHARE	DEFAULT_RANGE_INEQ_SEL

/* What a query asks of an index: conditions on its distance. */
typedef struct Range
{
	IndexOptInfo *index;
	OpExpr	   *order;			/* the first condition's distance; NULL: there is none */
	List	   *clauses;		/* RestrictInfos of all conditions on distances of the index */
	bool		at_nan;			/* all of them may hold where the distance is NaN */
} Range;

/* Add a clause to the range if it is a condition that says d < r. */
static void
AddClause(Range *range, RestrictInfo *rinfo)
{
	GgMonotone	monotone;
	OpExpr	   *order;

	GgTakeJoinApart((Node *) rinfo->clause, range->index->rel->relid, &monotone);
	if (rinfo->pseudoconstant || monotone.nsteps == 0 || monotone.direction != -1)
		return;
	order = GgDistanceOf(range->index, monotone.inner);
	if (order == NULL || !op_strict(order->opno))
		return;
	set_opfuncid(order);
	if (range->order == NULL)
		range->order = order;
	range->clauses = lappend(range->clauses, rinfo);
	/* a comparison that falls is false at NaN, unless it is with NaN */
	range->at_nan = range->at_nan && monotone.outermost == 1;
}

/* Has the index every row that may fulfil the condition, and their vectors? */
static bool
IsComplete(const Range *range)
{
	Relation	index = index_open(range->index->indexoid, NoLock);
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	bool		complete;

	GgReadMeta(index, meta);
	index_close(index, NoLock);
	complete = meta->coded == GG_CODES_NONE &&
		(!range->at_nan || meta->metric != GG_METRIC_COSINE ||
		 (GgNeverLeftOut(meta) & GG_FEATURE_NO_ZERO) != 0);
	pfree(meta);
	return complete;
}

List *
GgNoOrder(void)
{
	static PathKey *key = NULL;

	if (key == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
		PathKey    *made = makeNode(PathKey);

		made->pk_eclass = makeNode(EquivalenceClass);
		made->pk_opfamily = lookup_type_cache(FLOAT8OID, TYPECACHE_BTREE_OPFAMILY)->btree_opf;
		GgSetKeyAscends(made);
		MemoryContextSwitchTo(old);
		key = made;
	}
	return list_make1(key);
}

/* May a few rows within be all that is asked for: by a LIMIT, or by EXISTS? */
static bool
MayWantFew(const PlannerInfo *root, const RelOptInfo *rel)
{
	ListCell   *cell;

	if (root->tuple_fraction > 0)
		return true;
	foreach(cell, root->join_info_list)
	{
		const SpecialJoinInfo *join = lfirst(cell);

		if ((join->jointype == JOIN_SEMI || join->jointype == JOIN_ANTI) &&
			bms_is_member(rel->relid, join->syn_righthand))
			return true;
	}
	return false;
}

static IndexPath *
MakePath(PlannerInfo *root, const Range *range, Relids outer, double loops)
{
	RelOptInfo *rel = range->index->rel;
	OpExpr	   *order = copyObject(range->order);
	bool		dropped;

	order->inputcollid = GG_KEY_RANGE | (MayWantFew(root, rel) ? GG_KEY_FEW : 0);
	return create_index_path(root, range->index, GgMatchClauses(root, range->index, &dropped),
							 list_make1(order), list_make1_int(0), GgNoOrder(),
							 ForwardScanDirection, false, outer, loops, false);
}

/* May the user read the columns, and is there nothing that hides rows of the table? */
static bool
MayLook(PlannerInfo *root, const RelOptInfo *rel, List *clauses)
{
	/* rights on a child are those on its parent */
	const int	relid = rel->top_parent_relids == NULL ? (int) rel->relid :
		bms_next_member(rel->top_parent_relids, -1);
	const RangeTblEntry *rte = planner_rt_fetch(relid, root);
	Bitmapset  *columns = NULL;
	int			column = -1;

	if (root->qual_security_level > 0 || rte->securityQuals != NIL)
		return false;
	if (pg_class_aclcheck(rte->relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK)
		return true;
	if (relid != (int) rel->relid)
		return false;
	pull_varattnos((Node *) clauses, rel->relid, &columns);
	while ((column = bms_next_member(columns, column)) >= 0)
	{
		const AttrNumber attno = column + FirstLowInvalidHeapAttributeNumber;

		if (attno <= 0 ||
			pg_attribute_aclcheck(rte->relid, attno, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
			return false;
	}
	return true;
}

/* The share of the table that is within, by a look.  Below 0: that is not known. */
static double
Look(PlannerInfo *root, const Range *range)
{
	const RelOptInfo *rel = range->index->rel;
	List	   *clauses = extract_actual_clauses(range->clauses, false);
	Relation	heap,
				index;
	double		share;

	if (!IsA(lsecond(range->order->args), Const) || !MayLook(root, rel, clauses))
		return -1;
	heap = table_open(planner_rt_fetch(rel->relid, root)->relid, NoLock);
	index = index_open(range->index->indexoid, NoLock);
	share = GgLookWithin(heap, index, range->order, clauses);
	index_close(index, NoLock);
	table_close(heap, NoLock);
	return share;
}

static void
ScaleRows(List *paths, double factor)
{
	ListCell   *cell;

	foreach(cell, paths)
	{
		Path	   *path = lfirst(cell);

		if (path->param_info == NULL)
			path->rows = clamp_row_est(path->rows * factor);
	}
}

/* Have all paths of the table, and joins above it, know how many rows are within. */
static void
BelieveShare(PlannerInfo *root, RelOptInfo *rel, List *clauses, double share)
{
	const double before = rel->rows;
	ListCell   *cell;

	foreach(cell, clauses)
		lfirst_node(RestrictInfo, cell)->norm_selec = cell == list_head(clauses) ? share : 1;
	set_baserel_size_estimates(root, rel);
	ScaleRows(rel->pathlist, rel->rows / before);
	ScaleRows(rel->partial_pathlist, rel->rows / before);
}

/* The least cost of a path that no setting disables; up to 17 a disabled one's is high anyway. */
static Cost
CheapestOf(const RelOptInfo *rel)
{
	Cost		cheapest = GG_REFUSED_COST;
	ListCell   *cell;

	foreach(cell, rel->pathlist)
	{
		const Path *path = lfirst(cell);

		if (path->param_info == NULL && !GgIsDisabled(path))
			cheapest = Min(cheapest, path->total_cost);
	}
	return cheapest;
}

static void
AddRangePath(PlannerInfo *root, RelOptInfo *rel, IndexOptInfo *index)
{
	Range		range = {.index = index, .at_nan = true};
	int			place = 0;
	Cost		cheapest;
	IndexPath  *path;
	double		share;
	ListCell   *cell;

	foreach(cell, rel->baserestrictinfo)
		AddClause(&range, lfirst_node(RestrictInfo, cell));
	/* the nearest few are wanted in their order */
	if (range.order == NULL ||
		(root->tuple_fraction > 0 &&
		 GgNextOrderedPath(rel->pathlist, index, &place) != NULL) || !IsComplete(&range))
		return;
	path = MakePath(root, &range, bms_copy(rel->lateral_relids), 1);
	cheapest = CheapestOf(rel);
	if (!GgCostRange(root, path, 0) || path->path.total_cost >= cheapest)
		return;
	share = Look(root, &range);
	if (share >= 0)
	{
		BelieveShare(root, rel, range.clauses, share);
		path->path.rows = rel->rows;
	}
	(void) GgCostRange(root, path, rel->tuples * (share < 0 ? GUESSED_SHARE : share));
	add_path(rel, &path->path);
}

/* AddRangePath() for joins: the scan begins anew for each row of other tables. */
static void
AddJoinPaths(PlannerInfo *root, RelOptInfo *rel, IndexOptInfo *index)
{
	ListCell   *cell;

	foreach(cell, rel->joininfo)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, cell);
		Range		range = {.index = index, .at_nan = true};
		Relids		outer;
		IndexPath  *path;

		if (!join_clause_is_movable_to(rinfo, rel))
			continue;
		AddClause(&range, rinfo);
		if (range.order == NULL || !IsComplete(&range))
			continue;
		outer = bms_union(rinfo->clause_relids, rel->lateral_relids);
		outer = bms_del_member(outer, rel->relid);
		path = MakePath(root, &range, outer, 1);
		if (GgCostRange(root, path, rel->tuples * GUESSED_JOIN_SHARE))
			add_path(rel, &path->path);
	}
}

void
GgAddRangePaths(PlannerInfo *root, RelOptInfo *rel, const RangeTblEntry *rte)
{
	ListCell   *cell;

	/* core would merge children by the sort key of GgNoOrder(), but their rows have no order */
	if (rel->reloptkind == RELOPT_OTHER_MEMBER_REL)
		return;
	if (!enable_indexscan || !GgIsEnabled(GG_RANGE_SEARCH) || !GgIsEnabled(GG_DISTANCE_BOUND) ||
		!GgIsPlanning() || !GgTakesIndexPaths(rel, rte))
		return;
	foreach(cell, rel->indexlist)
	{
		IndexOptInfo *index = lfirst_node(IndexOptInfo, cell);

		if (!GgTakesPaths(index) || index->hypothetical)
			continue;
		AddRangePath(root, rel, index);
		AddJoinPaths(root, rel, index);
	}
}
