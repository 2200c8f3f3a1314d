/*
 * learn.c
 *		gpugraph_learn(), gpugraph_forget(): edges learned from sample queries.
 */
#include "many/batch.h"

#include "build/progress.h"
#include "commands/progress.h"
#include "maintain/merge.h"
#include "miscadmin.h"
#include "engine/rules/learn.h"
#include "storage/type.h"
#include "utils/backend_progress.h"
#include "utils/memutils.h"

/* More queries take memory from every merge and build, and teach little. */
#define MOST_QUERIES		65536

/* Queries must fit into 1 GB as float32: an array of vector does anyway, one of halfvec may not. */
static void
CheckCount(int count, uint32 dimensions)
{
	int			most = (int) Min((MaxAllocSize - VARHDRSZ) / sizeof(float) / Max(dimensions, 1),
								 MOST_QUERIES);

	if (count > most)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%d queries are more than the %d that an index learns from", count, most),
				 errhint("Take some of them at random, with ORDER BY random() LIMIT 10000.")));
}

static void
CheckEdges(const GgTarget *target, const GgMetaPageData *meta, int32 edges)
{
	uint32		most = gg_learn_most_edges(meta->graph_degree);

	if (edges < 1 || (uint32) edges > most)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("edges must be from 1 to %u for index \"%s\", not %d", most,
						RelationGetRelationName(target->index), edges),
				 errdetail("Learned edges take the place of other ones, of at most half of the "
						   "graph_degree of %u.", meta->graph_degree),
				 errhint("8 do for most queries.")));
}

/* The queries as rows of floats, prepared. */
static float *
QueryRows(const GgTarget *target, const GgQueryArray *queries, uint32 dimensions)
{
	float	   *rows = MemoryContextAllocHuge(CurrentMemoryContext,
											  (Size) queries->count * dimensions * sizeof(float));

	for (int i = 0; i < queries->count; i++)
	{
		uint32		given = GgValueDimensions(target->opclass, queries->values[i]);
		float	   *row;

		/* GgReadQueryArray() did not check this where the index has had no row */
		if (given != dimensions)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_EXCEPTION),
					 errmsg("query %d has %u dimensions, and query 1 has %u", i + 1, given,
							dimensions),
					 errhint("Learn from vectors of one number of dimensions.")));
		row = GgQueryFromValue(target->opclass, queries->values[i], dimensions);

		memcpy(rows + (Size) i * dimensions, row, dimensions * sizeof(float));
		pfree(row);
	}
	return rows;
}

/*
 * pg_stat_progress_create_index shows the call, with phases that builds have as well, and NULL for
 * the command.  After an error the abort of the transaction, or of a subtransaction, ends that.
 */
static void
BeginProgress(const GgTarget *target)
{
	const int	columns[] = {
		PROGRESS_CREATEIDX_INDEX_OID, PROGRESS_CREATEIDX_ACCESS_METHOD_OID,
		PROGRESS_CREATEIDX_PHASE
	};
	const int64 values[] = {
		RelationGetRelid(target->index), target->index->rd_rel->relam,
		PROGRESS_CREATEIDX_PHASE_BUILD
	};

	pgstat_progress_start_command(PROGRESS_COMMAND_CREATE_INDEX, RelationGetRelid(target->heap));
	pgstat_progress_update_multi_param(lengthof(columns), columns, values);
}

static void
ReportLearning(GgMergePhase phase, uint64 done, uint64 total)
{
	const bool	writing = phase == GG_MERGE_WRITE;
	const int	columns[] = {
		PROGRESS_CREATEIDX_SUBPHASE,
		PROGRESS_CREATEIDX_TUPLES_TOTAL, PROGRESS_CREATEIDX_TUPLES_DONE,
		PROGRESS_SCAN_BLOCKS_TOTAL, PROGRESS_SCAN_BLOCKS_DONE
	};
	const int64 values[] = {
		writing ? GG_BUILD_WRITE : GG_BUILD_LEARN,
		writing ? 0 : total, writing ? 0 : done,
		writing ? total : 0, writing ? done : 0
	};

	pgstat_progress_update_multi_param(lengthof(columns), columns, values);
}

PG_FUNCTION_INFO_V1(gpugraph_learn);

/*
 * Returns how many edges are new.  Waits while another process merges the index.  Edges and sample
 * come with one record, so a call that fails changes neither.
 */
Datum
gpugraph_learn(PG_FUNCTION_ARGS)
{
	AnyArrayType *array = PG_GETARG_ANY_ARRAY_P(1);
	int32		edges = PG_GETARG_INT32(2);
	GgMergeTarget merge = {.report = ReportLearning};
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	GgLearnSample sample = {.edges = (uint32) edges};
	GgTarget	target;
	GgQueryArray queries;
	uint64		learned = 0;

	GgOpenMergeTarget(&merge, "gpugraph_learn()", PG_GETARG_OID(0), &target.inspected);
	PreventCommandIfReadOnly("gpugraph_learn()");
	target.heap = merge.heap;
	target.index = merge.index;
	target.opclass = GgIndexOpclass(target.index);
	target.type = target.index->rd_opcintype[0];
	GgReadQueryArray(&target, array, &queries);
	if (queries.count > 0)
		sample.dimensions = GgValueDimensions(target.opclass, queries.values[0]);
	CheckCount(queries.count, sample.dimensions);

	(void) GgLockMerges(&merge, true);
	GgReadMeta(target.index, meta);
	CheckEdges(&target, meta, edges);
	if (queries.count > 0)
	{
		sample.count = (uint32) queries.count;
		sample.queries = QueryRows(&target, &queries, sample.dimensions);
		BeginProgress(&target);
		learned = GgLearnEdges(&merge, meta, &sample, !GgHasSample(target.index, &sample),
							   max_parallel_maintenance_workers + 1);
		pgstat_progress_end_command();
	}
	GgUnlockMerges(&merge);
	GgCloseInspected(&target.inspected);
	PG_RETURN_INT64((int64) learned);
}

PG_FUNCTION_INFO_V1(gpugraph_forget);

/*
 * Returns whether there was something to forget.  The graphs are built anew without the sample, and
 * then it is removed: a call that fails can be made once more.  Waits as gpugraph_learn() does.
 */
Datum
gpugraph_forget(PG_FUNCTION_ARGS)
{
	GgMergeTarget merge = {0};
	GgInspected inspected;
	bool		forgot;

	GgOpenMergeTarget(&merge, "gpugraph_forget()", PG_GETARG_OID(0), &inspected);
	PreventCommandIfReadOnly("gpugraph_forget()");
	(void) GgLockMerges(&merge, true);
	GgDropQueries(merge.index_oid);
	forgot = GgRebuildLearned(&merge) > 0;
	forgot |= GgRemoveSample(&merge);
	GgUnlockMerges(&merge);
	GgCloseInspected(&inspected);
	PG_RETURN_BOOL(forgot);
}
