/*
 * codes.h
 *		The codes of a piece's vectors: made for its pages, and a query measured by them.
 */
#ifndef GG_STORAGE_CODES_H
#define GG_STORAGE_CODES_H

#include "base/base.h"
#include "engine/rules/search_plan.h"
#include "engine/request.h"
#include "engine/rules/codes.h"
#include "storage/format.h"

#include "utils/rel.h"

/* Bytes of a node's code; 0 for GG_CODES_NONE. */
static inline Size
GgCodeBytes(const GgMetaPageData *meta, gg_codes codes)
{
	return codes == GG_CODES_NONE ? 0 : gg_code_record_bytes(codes, meta->dimensions);
}

/* The codes that a build makes: those kept without vectors, or the option's, GG_CODES_AUTO too. */
static inline int
GgBuildCodes(const GgMetaPageData *meta, const GgOptions *options)
{
	return meta->coded != GG_CODES_NONE ? meta->coded : options->codes;
}

/*
 * The codes that a build makes by itself, from so many dimensions and rows on.  Short lists lose
 * nothing by int8, and .006 to .06 of recall@10 by int4 (itopk 16, 96 to 512 dimensions), which is
 * no faster at 128 dimensions (test/bench/RESULTS.md, Codes by themselves).
 */
#define GG_AUTO_CODES				GG_CODES_INT8
#define GG_LEAST_AUTO_DIMENSIONS	96
#define GG_LEAST_AUTO_ROWS			10000

/* Why a build makes no codes by itself, in a word; NULL: it makes some. */
static inline const char *
GgWhyNoCodes(const GgMetaPageData *meta, double rows)
{
	return meta->element != GG_ELEMENT_F32 ? "float16" :
		meta->metric == GG_METRIC_L1 ? "l1" :
		meta->dimensions < GG_LEAST_AUTO_DIMENSIONS ? "dimensions" :
		rows < GG_LEAST_AUTO_ROWS ? "rows" :
		(meta->flags & GG_META_CODES_LOSE) != 0 ? "recall" : NULL;
}

/*
 * The codes that a merge makes: as stored, or by the option.  Under GG_CODES_AUTO a merge keeps
 * what a build has decided.
 */
static inline gg_codes
GgMergeCodes(const GgMetaPageData *meta, const GgOptions *options)
{
	if (meta->coded != GG_CODES_NONE)
		return meta->coded;
	if (options->codes == GG_CODES_AUTO)
		return meta->npieces > 0 ? (gg_codes) meta->pieces[0].codes : GG_CODES_NONE;
	return options->codes;
}

/* What makes codes of stored rows. */
typedef struct GgCoder
{
	gg_coder	coder;
	gg_element	element;
	Size		row_bytes;
	float	   *scratch;		/* 2 x dimensions */
	uint8	   *record;			/* one code */
} GgCoder;

/*
 * What codes are centred by; NULL: nothing.  Any directory of this instance will do, as an instance
 * keeps its mean.  Allocates in the current context.
 */
extern float *GgReadMean(Relation index, const GgMetaPageData *meta);

/* Rows from which on a build, or a merge of an index without codes, takes a mean. */
#define GG_LEAST_MEAN_ROWS	1000

/*
 * Take the mean of rows, for an index that has no codes yet and no mean.  NULL: it is to have none.
 * Allocates in the current context.
 */
extern float *GgTakeMean(const gg_dataset *data);

/* Make a coder.  mean: of GgReadMean() or GgTakeMean(), or NULL; it is copied.  Allocates. */
extern GgCoder *GgMakeCoder(const GgMetaPageData *meta, gg_codes codes, const float *mean);

/* The code of a row, to coder->record. */
extern void GgCodeRow(GgCoder *coder, const void *row);

/* The rows that count codes stand for, as the index stores rows. */
extern void GgDecodeRows(GgCoder *coder, const char *codes, uint32 count, char *rows);

/* Bytes [offset, offset + len) of the codes of rows, to out. */
extern void GgCodeRows(GgCoder *coder, const char *rows, uint64 offset, Size len, char *out);

/* A query, made ready to be measured by codes. */
typedef struct GgCodeQuery
{
	gg_coder	coder;
	gg_code_query query;
} GgCodeQuery;

/* query: prepared; it must stay.  mean: of GgReadMean(), or NULL.  Allocates. */
extern GgCodeQuery *GgMakeCodeQuery(const GgMetaPageData *meta, gg_codes codes,
									const float *mean, const float *query);

/*
 * How many rows are to be measured, at most, before the wanted ones are handed out?  settings:
 * those that the scan began with.
 */
static inline uint32
GgRowsToMeasure(const GgMetaPageData *meta, const gg_search_params *settings, gg_codes codes,
				uint64 wanted)
{
	gg_search_params params = *settings;

	params.itopk_size = PG_UINT32_MAX;
	params.k = (uint32) Min(wanted, GG_MAX_ROWS);
	return gg_rerank_size(&params, codes, meta->dimensions);
}

/* The same where the index has codes alone: rows are read from the table to be measured. */
static inline uint32
GgRowsToRead(const GgMetaPageData *meta, const gg_search_params *settings, uint64 wanted)
{
	return GgRowsToMeasure(meta, settings, (gg_codes) meta->coded, wanted);
}

/*
 * How many rows is a scan of an index that has codes alone expected to take, when it has taken so
 * many?  limit: as in GgScanOpaque.
 */
static inline uint64
GgRowsWanted(GgIterativeScan mode, const gg_search_params *settings, uint32 limit, uint64 taken)
{
	return mode == GG_ITERATIVE_OFF ? GgRowsToTake(settings->itopk_size, 0, taken) :
		GgRowsToTake((settings->itopk_size + 1) / 2, limit, taken);
}

/*
 * How long is the list of a device's walk under a filter that a share of the nodes matches, where
 * the device has codes alone?  0: it does not walk.  Planner and scan ask this.
 */
static inline uint32
GgFilteredCodesList(const GgMetaPageData *meta, GgIterativeScan mode,
					const gg_search_params *settings, uint32 limit, double share)
{
	const uint64 rows = meta->coded == GG_CODES_NONE ? limit :
		GgRowsToRead(meta, settings, GgRowsWanted(mode, settings, limit, 0));
	const uint64 wanted = Max((uint64) settings->itopk_size, GG_LIMITED_WALK(rows));

	return share < GG_LEAST_WALKED_SHARE || wanted / share > GG_MAX_ITOPK ? 0 :
		(uint32) (wanted / share);
}

/* GgFilteredCodesList() is 0: does the device have a list of bounds of the rows that match? */
static inline bool
GgHasBoundedList(const GgMetaPageData *meta, GgIterativeScan mode, uint32 limit)
{
	return mode != GG_ITERATIVE_OFF && meta->coded == GG_CODES_NONE &&
		gg_code_has_bounds((gg_metric) meta->metric) &&
		limit <= GG_BOUNDED_LIST / GG_BOUNDED_TIMES;
}

/* Are all rows read that are due, however far the next ones are? */
static inline bool
GgReadsAllDue(GgIterativeScan mode, const gg_search_params *settings)
{
	return mode == GG_ITERATIVE_OFF || settings->rerank > 0;
}

#endif							/* GG_STORAGE_CODES_H */
