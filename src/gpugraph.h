/*
 * gpugraph.h
 *		Declarations shared by the PostgreSQL-facing files.
 */
#ifndef GPUGRAPH_H
#define GPUGRAPH_H

#include "postgres.h"

#include "access/amapi.h"
#include "access/generic_xlog.h"
#include "access/genam.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "engine.h"
#include "format.h"
#include "compat.h"

/* ---- options.c: reloptions and settings -------------------------------- */

#define GG_DEFAULT_GRAPH_DEGREE			32
#define GG_MIN_GRAPH_DEGREE				4
#define GG_MAX_GRAPH_DEGREE				256
#define GG_DEFAULT_INTERMEDIATE_DEGREE	64
#define GG_MIN_INTERMEDIATE_DEGREE		4
#define GG_MAX_INTERMEDIATE_DEGREE		512
#define GG_DEFAULT_ITOPK_SIZE			64
#define GG_DEFAULT_MAX_SCAN_TUPLES		20000

/* Values of the storage option; not given, rows are stored as the column's type has them. */
typedef enum GgStorage
{
	GG_STORAGE_UNSET,
	GG_STORAGE_FLOAT32,
	GG_STORAGE_FLOAT16
} GgStorage;

typedef struct GgOptions
{
	int32		vl_len_;
	int			graph_degree;
	int			intermediate_graph_degree;
	int			seed;
	int			storage;		/* GgStorage */
} GgOptions;

typedef enum GgEngineSetting
{
	GG_ENGINE_AUTO,
	GG_ENGINE_CUDA,
	GG_ENGINE_CPU
} GgEngineSetting;

typedef enum GgIterativeScan
{
	GG_ITERATIVE_OFF,
	GG_ITERATIVE_RELAXED,
	GG_ITERATIVE_STRICT
} GgIterativeScan;

extern int	gg_engine_setting;	/* GgEngineSetting */
extern int	gg_itopk_size;
extern int	gg_iterative_scan;	/* GgIterativeScan */
extern int	gg_max_scan_tuples;
extern bool gg_skip_unread_distance;

extern void GgInitOptions(void);
extern bytea *ggoptions(Datum reloptions, bool validate);
extern void GgGetOptions(Relation index, GgOptions *options);

/*
 * The engine that gpugraph.engine asks for and this host has; ereport(ERROR) when it is "cuda" and
 * there is no device.
 */
extern const gg_engine *GgChooseEngine(void);

/* ---- plan.c -------------------------------------------------------------- */

/* From _PG_init: finished plans compute no distance that only orders rows. */
extern void GgInitPlanner(void);

/* ---- error.c ----------------------------------------------------------- */

/* ereport(ERROR) with the SQLSTATE and hint of a failed status; "doing" completes "while ...". */
pg_noreturn extern void GgReportStatus(const gg_status *status, const char *doing);

/* ereport(ERROR) about a page that is not what the directory says. */
pg_noreturn extern void GgReportCorruption(Relation index, BlockNumber blkno, const char *fmt,...)
			pg_attribute_printf(3, 4);

/* ---- type.c: the column types ------------------------------------------ */

/*
 * What an operator class says; support function 1 returns a pointer to one.  The element is the column's: what is
 * stored is GgMetaPageData.element, and the two differ where a vector column is stored as float16.
 */
typedef struct GgOpclass
{
	gg_metric	metric;
	gg_element	element;
} GgOpclass;

#define GG_OPCLASS_PROC		1
#define GG_DISTANCE_STRATEGY 1

extern const GgOpclass *GgIndexOpclass(Relation index);

/* Dimensions declared for the indexed column, 0 where the type has none. */
extern uint32 GgDeclaredDimensions(Relation index);

/*
 * Vectors longer than this, or shorter than its inverse, have no cosine in pgvector's float32 arithmetic that
 * could be compared with: their squares come near the ends of float32's range (2^-126 to 2^128), products of two of them
 * still nearer.  About 1e15.
 */
#define GG_MAX_COSINE_LENGTH	0x1p50

/* The element that a new index stores.  ereport(ERROR) when the storage option does not fit the column's type. */
extern gg_element GgStoredElement(const GgOpclass *opclass, const GgOptions *options);

extern uint32 GgValueDimensions(const GgOpclass *opclass, Datum detoasted);

/*
 * Store one column value, whose dimensions the caller has checked, as a row of as many stored elements (meta->element) at
 * dst.  False when the value is not to be indexed (a zero vector under cosine); ereport(ERROR) when
 * it cannot be.
 */
extern bool GgValueToRow(const GgOpclass *opclass, gg_element stored, Datum detoasted, uint32 dimensions, void *dst);

/*
 * Euclidean length of a stored row where scans of this index need it, else 0: only an inner product with a rounded
 * row has an error that grows with the row's length.  meta->largest_length must cover a row before a scan can see it.
 */
extern float GgRowLength(const GgOpclass *opclass, const GgMetaPageData *meta, const void *row);

/* The query as prepared float32, in the current memory context. */
extern float *GgQueryFromValue(const GgOpclass *opclass, Datum value, uint32 dimensions);

/* ---- bound.c: what a distance to a rounded row says of the true one ------- */

typedef struct GgBound
{
	bool		rounded;		/* rows are not what the column has: order by the heap's values */
	gg_metric	metric;
	double		factor;			/* of a distance, before offset is subtracted */
	double		offset;
	double		sine,			/* cosine: of the largest angle between a row and its rounded self */
				slack;			/* cosine: error of a distance in float32 arithmetic */
} GgBound;

/* value is the query as the operator gets it; query is NULL or what GgQueryFromValue() made of it. */
extern void GgBoundInit(GgBound *bound, const GgOpclass *opclass, const GgMetaPageData *meta, Datum value,
						const float *query);

/* The least value that the SQL operator can have for a row at this distance, or for any farther one. */
extern double GgBoundOf(const GgBound *bound, float distance);

/* ---- pages.c ----------------------------------------------------------- */

/* One logical byte array: its extents with the number of the first page of each. */
typedef struct GgArray
{
	uint32		segment;
	GgKind		kind;
	uint32		npages;
	int			nextents;
	struct
	{
		uint32		first;		/* number of the extent's first page within the array */
		BlockNumber start;
		uint32		nblocks;
	}		   *extents;
} GgArray;

extern void GgInitPage(Page page, uint64 instance, uint32 segment, GgKind kind, uint32 number);
extern bool GgStampMatches(Page page, uint64 instance, uint32 segment, GgKind kind, uint32 number);

/* Page number of an array, locked, its stamp checked. */
extern Buffer GgReadPage(Relation index, uint64 instance, const GgArray *array, uint32 number, int lockmode);
extern Buffer GgReadPageExtended(Relation index, uint64 instance, const GgArray *array, uint32 number,
								 int lockmode, BufferAccessStrategy strategy);

/* Bytes of payload in use; the page's header is sound. */
extern Size GgPayloadBytes(Page page);

/* Rows that start on a locked delta page, which holds some; ereport(ERROR) when its numbers contradict each other. */
extern uint32 GgDeltaRowCount(Relation index, const GgMetaPageData *meta, Buffer buffer);

/* ereport(ERROR) when segments, delta and extents contradict each other. */
extern void GgCheckDirectory(Relation index, const GgMetaPageData *meta);

/* Copy the metapage, checked: magic, version, bounds, directory. */
extern void GgReadMeta(Relation index, GgMetaPageData *meta);

/* The metapage's buffer locked as asked, its contents checked but for the directory. */
extern Buffer GgLockMeta(Relation index, int lockmode, GgMetaPageData **meta);

extern void GgInitMeta(GgMetaPageData *meta, Relation index, const GgOptions *options);

/* Resolve an array from the directory; memory in the current context. */
extern void GgFindArray(const GgMetaPageData *meta, uint32 segment, GgKind kind, GgArray *array);
extern BlockNumber GgArrayBlock(const GgArray *array, uint32 number);
extern uint64 GgArrayPages(uint64 bytes);

/* Copy len bytes at offset of an array, pages pinned but not locked (immutable arrays only). */
extern void GgReadArray(Relation index, uint64 instance, const GgArray *array, uint64 offset, void *dst, Size len);

/* Add nblocks at start to the directory, merging with the array's last extent if it continues it. */
extern void GgAddExtent(GgMetaPageData *meta, BlockNumber start, uint32 nblocks, uint32 segment, GgKind kind);

/* First block behind every extent known: what lies further on belongs to nobody. */
extern BlockNumber GgHighWater(const GgMetaPageData *meta);

/*
 * One block for the delta, exclusively locked and not yet initialised: from the free extents of
 * meta (which is changed) or new at the end.  The caller holds the metapage exclusively.
 */
extern Buffer GgAllocateBlock(Relation index, Relation heap, GgMetaPageData *meta, BlockNumber *blkno);

/* Make page, BLCKSZ bytes, the metapage of meta. */
extern void GgFormMetaPage(Page page, const GgMetaPageData *meta);

/* ---- delta.c ----------------------------------------------------------- */

/*
 * Append a row of dimensions elements for heap row tid: visible to every scan that starts after the
 * return.  ereport(ERROR) when the index holds rows of other dimensions.
 */
extern void GgDeltaAppend(Relation index, Relation heap, ItemPointer tid, uint32 dimensions, const void *row);


/* ---- source.c: rows and edges of a segment, read from its pages --------- */

typedef struct GgPageSource
{
	gg_source	source;			/* for gg_walk_start; source.ctx is this struct */
	Relation	index;
	uint64		instance;
	uint64		generation;
	GgArray		vectors,
				adjacency,
				pivots;
	Size		row_bytes;
	uint32		dimensions;
	gg_distance_fn distance;
	const float *query;			/* prepared */
	char	   *scratch;		/* rows that cross pages, put together */
} GgPageSource;

/* Memory in the current context. */
extern void GgSourceInit(GgPageSource *source, Relation index, const GgMetaPageData *meta,
						 const GgSegment *segment, const float *query);

/* Distances of count nodes to the query; unlike source.distances, throws. */
extern void GgSourceDistances(GgPageSource *source, const uint32 *nodes, uint32 count, float *out);

/* ---- access method callbacks ------------------------------------------- */

extern IndexBuildResult *ggbuild(Relation heap, Relation index, IndexInfo *indexInfo);
extern void ggbuildempty(Relation index);
extern char *ggbuildphasename(int64 phase);
extern bool gginsert(Relation index, Datum *values, bool *isnull, ItemPointer heap_tid, Relation heap,
					 IndexUniqueCheck checkUnique, bool indexUnchanged, IndexInfo *indexInfo);
extern IndexBulkDeleteResult *ggbulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
										   IndexBulkDeleteCallback callback, void *callback_state);
extern IndexBulkDeleteResult *ggvacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats);
extern void ggcostestimate(PlannerInfo *root, IndexPath *path, double loop_count, Cost *indexStartupCost,
						   Cost *indexTotalCost, Selectivity *indexSelectivity, double *indexCorrelation,
						   double *indexPages);
extern bool ggvalidate(Oid opclassoid);
extern IndexScanDesc ggbeginscan(Relation index, int nkeys, int norderbys);
extern void ggrescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys, int norderbys);
extern bool gggettuple(IndexScanDesc scan, ScanDirection dir);
extern void ggendscan(IndexScanDesc scan);

#endif							/* GPUGRAPH_H */
