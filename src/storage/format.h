/*
 * format.h
 *		The on-disk format of a gpugraph index.
 *
 * Every page is a standard page: header, payload, and a GgPageStamp as special area.  pd_lower lies
 * past the payload in use, so that full-page images drop the hole.  README tells format tables,
 * locks and protocols.  This file is the only definition of the format in code, and directory.c is
 * the only reader of the metapage and of directory pages.
 */
#ifndef GG_FORMAT_H
#define GG_FORMAT_H

#include "access/transam.h"
#include "storage/block.h"
#include "storage/bufpage.h"
#include "storage/itemptr.h"

#include "engine/engine.h"

#define GG_MAGIC			0x67706772	/* "gpgr" */
#define GG_FORMAT_VERSION	4		/* of an index that has features */
#define GG_PLAIN_FORMAT		3		/* of one that has none */
#define GG_OLDEST_FORMAT	2		/* only read: the directory's first change writes 3 or 4 */
#define GG_META_BLKNO		0

/* What a page, and so an extent, holds.  On disk: never renumber. */
typedef enum GgKind
{
	GG_KIND_META = 1,
	GG_KIND_VECTORS = 2,		/* a piece's nodes x dimensions elements */
	GG_KIND_ADJACENCY = 3,		/* nodes x graph_degree uint32, see GG_EDGE_MARK */
	GG_KIND_TIDS = 4,			/* rows x GgTidEntry */
	GG_KIND_PIVOTS = 5,			/* npivots x GgPivotEntry */
	GG_KIND_OFFSETS = 6,		/* nodes + 1 uint32, first row of each: GG_SEGMENT_OFFSETS */
	GG_KIND_DELTA = 7,			/* GgDeltaRow after GgDeltaRow */
	GG_KIND_FREE = 8,			/* extents only: blocks for reuse, see parked_xid */
	GG_KIND_DIRECTORY = 9,		/* GgExtent after GgExtent, where the metapage has no room */
	GG_KIND_TAKEN = 10,			/* extents only: blocks that a merge writes */
	GG_KIND_FILTERS = 11,		/* filter_words x rows int64: word by word */
	GG_KIND_CODES = 12,			/* a piece's nodes x records of engine/rules/codes.h */
	GG_KIND_SAMPLE = 13,		/* GgSampleHead, then its queries */
	GG_KIND_MEAN = 14,			/* dimensions float4, of no segment: what codes are centred by */
	GG_KIND_CALIBRATION = 15	/* GgCalibration, then its days */
} GgKind;

#define GG_LAST_KIND		GG_KIND_CALIBRATION

/* Is it an array of a piece? */
static inline bool
GgIsOfPiece(int kind)
{
	return kind == GG_KIND_VECTORS || kind == GG_KIND_CODES;
}

/* Is it an array of a segment? */
static inline bool
GgIsOfSegment(int kind)
{
	return (kind >= GG_KIND_ADJACENCY && kind <= GG_KIND_OFFSETS) || kind == GG_KIND_FILTERS;
}

/* Is it an array: of a piece, a segment, or one that an index has once?  No insert changes it. */
static inline bool
GgIsArray(int kind)
{
	return GgIsOfPiece(kind) || GgIsOfSegment(kind) || kind == GG_KIND_SAMPLE ||
		kind == GG_KIND_MEAN || kind == GG_KIND_CALIBRATION;
}

/* The owner in the stamps of metapage, delta, mean and directory, and in their and FREE extents. */
#define GG_NO_SEGMENT		0xFFFFFFFFu

/* Node ids in adjacency lists lie below 2^31.  The highest bit marks an edge, see gg_graph. */
StaticAssertDecl(GG_MAX_NODES <= GG_EDGE_MARK, "node ids must leave room for the mark");

/*
 * Special area of every page.  A page whose stamp is not the one expected was recycled or is
 * corrupt, and nothing else is read from it.
 */
typedef struct GgPageStamp
{
	uint64		instance;		/* GgMetaPageData.instance */
	uint32		segment;		/* id of segment, piece, sample, calibration; or GG_NO_SEGMENT */
	uint32		number;			/* of the page in its array, or in the delta since its start */
	uint16		kind;			/* GgKind */
	uint16		count;			/* delta: rows that start on this page; else 0 */
	uint32		number_high;	/* delta: what is above the 32 bits of number; else 0 */
} GgPageStamp;

#define GgPageGetStamp(page)	((GgPageStamp *) PageGetSpecialPointer(page))

/* Payload bytes per page.  Arrays cross pages in pieces of this size, a multiple of 8. */
#define GG_PAGE_PAYLOAD \
	(BLCKSZ - MAXALIGN(SizeOfPageHeaderData) - MAXALIGN(sizeof(GgPageStamp)))

/*
 * A heap row of a node.  VACUUM clears tid (ItemPointerSetInvalid).  Nothing else ever changes: the
 * NULL bits and filter words of a cleared row stay, and mean nothing.
 */
typedef struct GgTidEntry
{
	ItemPointerData tid;
	uint16		nulls;			/* bit c: filter column c is NULL */
} GgTidEntry;

#define GG_TIDS_PER_PAGE	(GG_PAGE_PAYLOAD / sizeof(GgTidEntry))

typedef struct GgPivotEntry
{
	uint32		node;
	uint32		neighbors[GG_PIVOT_DEGREE]; /* indices into the pivots, GG_NO_NODE at the end */
} GgPivotEntry;

/*
 * The queries that the index learns edges from: this head, then count x dimensions floats, prepared
 * (gg_query_prepare).  A sample that replaces another has a new id, from the numbers of segments.
 */
typedef struct GgSampleHead
{
	uint32		dimensions;
	uint32		count;
	uint32		edges;			/* of a node, at most */
	uint32		reserved;
} GgSampleHead;

/* Who searches an index, and by what.  On disk: never renumber. */
typedef enum GgForm
{
	GG_FORM_CPU_ROWS,
	GG_FORM_CPU_CODES,
	GG_FORM_GPU_ROWS,
	GG_FORM_GPU_CODES
} GgForm;

#define GG_FORMS			4

/* What a calibration was measured with.  On disk: never renumber. */
typedef enum GgCalibratedBy
{
	GG_BY_ROWS = 1,				/* rows of the index, each searched without itself */
	GG_BY_QUERIES = 2			/* queries of the sample that no edge was learned from */
} GgCalibratedBy;

/* Candidate lists of 16 to 1024, four to an octave: see GgCalibratedLength(). */
#define GG_CALIBRATED_LENGTHS	25

/* Numbers of rows that were asked for: 1, 10, 100. */
#define GG_CALIBRATED_KS	3

typedef uint16 GgBounds[GG_CALIBRATED_KS][GG_CALIBRATED_LENGTHS];

/*
 * The recall that the index was measured to have, of which storage/calibration.h tells more.  A
 * calibration that replaces another has a new id, from the numbers of segments.  Days follow it.
 */
typedef struct GgCalibration
{
	int64		measured;		/* TimestampTz */
	uint32		next_id;		/* of the metapage then: segments from it on are newer */
	uint32		follows;		/* so many more measurements are not held: maintain/calibration.c */
	uint64		rows;			/* live rows of segments then */
	uint32		sample;			/* id of the sample then, or GG_NO_SEGMENT */
	uint32		queries;
	uint32		library;		/* GG_CALIBRATED_AS of who measured */
	uint16		by;				/* GgCalibratedBy */
	uint16		codes;			/* gg_codes of the first piece then */
	uint32		ndays;
	uint32		held;			/* 1: bounds are not those measured: maintain/calibration.c */
	/*
	 * Lower bounds of recall in units of 1/65535, of which GG_EXACT_BOUND says that all rows are
	 * measured.  A form whose last bounds are 0 was not measured.
	 */
	GgBounds	bounds[GG_FORMS];
	GgBounds	origin[GG_FORMS];	/* bounds since which the sample alone has changed */
} GgCalibration;

/* A measurement, for the view; one for each day, GG_MOST_DAYS at most. */
typedef struct GgCalibrationDay
{
	int64		measured;		/* TimestampTz */
	uint32		queries;
	uint16		by;				/* GgCalibratedBy */
	uint16		sample;			/* the low bits of the sample's id, which tell a new one */
	uint16		recall[GG_FORMS];	/* bounds of 10 rows at a list of GG_DAILY_LENGTH */
} GgCalibrationDay;

#define GG_MOST_DAYS		366

/*
 * A row of the delta: this head, then filter_words int64, then dimensions elements, then padding to
 * MAXALIGN.  Rows do not cross pages unless they are longer than a page.  Such a row starts a page
 * of its own, and goes on over the following ones, whose count is 0.
 */
typedef struct GgDeltaRow
{
	ItemPointerData tid;		/* invalid once vacuumed */
	uint16		nulls;			/* bit c: filter column c is NULL */
} GgDeltaRow;

/*
 * Vectors of some nodes, and their codes, written once.  A merge leaves them where they are and
 * gives them to the merged segment.
 */
typedef struct GgPiece
{
	uint32		id;				/* of the arrays' stamps and extents; never reused, see next_id */
	uint32		segment;		/* GgSegment.id of the owner */
	uint32		nodes;
	uint16		codes;			/* gg_codes of its array of codes; GG_CODES_NONE: it has none */
	uint16		reserved;
} GgPiece;

#define GG_CODES_OF_2_BITS	3	/* GgPiece.codes in an index of before 1.2.0, which is refused */

/* GgSegment.flags */
#define GG_SEGMENT_OFFSETS	0x0001	/* node i has not just row i: see the OFFSETS array */
#define GG_SEGMENT_LEARNED	0xFF00	/* the last so many edges of a list may be learned ones */
#define GG_SEGMENT_FLAGS	(GG_SEGMENT_OFFSETS | GG_SEGMENT_LEARNED)

/*
 * A graph over nodes vectors, those of its pieces in directory order.  No two nodes of one piece
 * have equal vectors.  Where nodes of two pieces do, one node has all their rows, and the others
 * are nodes without rows.  All of it is immutable but for dead, and for the adjacency:
 * another one takes its place when edges are learned.
 */
typedef struct GgSegment
{
	uint32		id;				/* never reused within an instance, see next_id */
	uint32		nodes;
	uint32		rows;			/* heap rows */
	uint32		npivots;
	uint32		dead;			/* rows cleared by VACUUM */
	uint32		empty;			/* nodes that had no row when the segment was made */
	uint16		algorithm;		/* gg_algorithm */
	uint16		flags;
	uint32		graph;			/* an id that is new with every adjacency; 0: the first one */
} GgSegment;

static inline uint32
GgLearnedEdges(const GgSegment *segment)
{
	return segment->flags >> 8;
}

static inline void
GgSetLearnedEdges(GgSegment *segment, uint32 edges)
{
	segment->flags = (uint16) ((segment->flags & ~GG_SEGMENT_LEARNED) | edges << 8);
}

/* What tells two adjacencies apart, of one segment or of two. */
static inline uint32
GgGraphId(const GgSegment *segment)
{
	return segment->graph != 0 ? segment->graph : segment->id;
}

/*
 * The parked id of what was given back in parallel mode: none is known yet, and no snapshot passes
 * this one.  Whoever changes the directory next puts another in its place (GgSetParkedIds).
 */
#define GG_PARKED_UNKNOWN	PG_UINT64_MAX

/* A run of blocks. */
typedef struct GgExtent
{
	BlockNumber start;
	uint32		nblocks;
	uint32		segment;		/* as in the stamps of its pages */
	uint16		kind;			/* GgKind */
	uint16		reserved;
	union
	{
		uint64		parked_xid; /* FREE: full xid that all snapshots must have passed; 0: free */
		uint64		first;		/* others: number of its first page in the array, or delta */
	};
} GgExtent;

/*
 * The most rows of a segment.  They are fewer than 2^32 by more than the steps in which loops go
 * through rows, so that no loop passes 2^32.
 */
#define GG_MAX_ROWS			0xFFFF0000u

StaticAssertDecl(GG_MAX_NODES <= (GG_MAX_ROWS - 0x10000) / 2,
				 "a build may have as many duplicates as nodes, and some chunks of them more");

#define GG_MAX_SEGMENTS		32
#define GG_MAX_PIECES		128

/*
 * Merges and VACUUM keep to GG_MAX_EXTENTS, which tests make smaller.  GG_RESERVED_EXTENTS are for
 * what must not fail: inserts, and a merge that makes room.  Versions before 1.2.0 refuse more than
 * 1,024.
 */
#ifndef GG_MAX_EXTENTS
#define GG_MAX_EXTENTS		1024
#endif
#define GG_RESERVED_EXTENTS	64
#define GG_ALL_EXTENTS		(GG_MAX_EXTENTS + GG_RESERVED_EXTENTS)

/* Filter columns: key columns behind the vector.  See filter_column.h. */
#define GG_MAX_COLUMNS		8

/* Pages of extents that do not fit the metapage. */
#define GG_MAX_DIRECTORY_PAGES	4
#define GG_DIRECTORY_EXTENTS	(GG_PAGE_PAYLOAD / sizeof(GgExtent))

/*
 * Seconds that a build spent, by the clock, for gpugraph_index_info.  What runs side by side counts
 * in full in each, so the sum exceeds total_s by what overlapped.
 */
typedef struct GgBuildTimes
{
	float4		total_s;		/* all, from the call of ambuild on */
	float4		scan_s;			/* heap to rows in memory, deduplicated */
	float4		copy_s;			/* to and from the device */
	float4		knn_s;			/* k-NN graph: first lists and descent */
	float4		optimize_s;		/* reordering, reverse edges, connectivity */
	float4		write_s;		/* pages formed and written, without wal_s */
	float4		wal_s;
} GgBuildTimes;

/* GgMetaPageData.flags */
#define GG_META_TOLD		0x0001	/* the log has told that the directory is filling up */
#define GG_META_CODES_LOSE	0x0002	/* a build made no codes by itself: a sample lost recall */

/*
 * GgMetaPageData.features: what a reader must know.  An index with a bit that it does not know is
 * refused.
 */
#define GG_FEATURE_CODES	0x0001	/* pieces have codes */
#define GG_FEATURE_CODED	0x0002	/* pieces have codes and no vectors: see coded */
#define GG_FEATURE_NUMBERS	0x0004	/* the delta's page numbers are longer than 32 bits */
#define GG_FEATURE_SAMPLE	0x0008	/* there is a sample of queries */
#define GG_FEATURE_MEAN		0x0010	/* there is a mean, and all codes are centred by it */
#define GG_FEATURE_NO_NULL	0x0020	/* no row has been left out as its vector is NULL */
#define GG_FEATURE_NO_ZERO	0x0040	/* no row has been left out as it is zero; cosine alone */
#define GG_FEATURE_LENGTHS	0x0080	/* inner product: largest_length covers all rows */
#define GG_FEATURE_CALIBRATION 0x0100	/* there is a calibration */
#define GG_LEAVES_NOTHING_OUT (GG_FEATURE_NO_NULL | GG_FEATURE_NO_ZERO)
#define GG_KNOWN_FEATURES \
	(GG_FEATURE_CODES | GG_FEATURE_CODED | GG_FEATURE_NUMBERS | GG_FEATURE_SAMPLE | \
	 GG_FEATURE_MEAN | GG_LEAVES_NOTHING_OUT | GG_FEATURE_LENGTHS | GG_FEATURE_CALIBRATION)

/* Numbers of delta pages lie below this one.  None comes round again. */
#define GG_DELTA_NUMBERS	(UINT64CONST(1) << 48)

/*
 * What an index says of itself, in memory.  On disk the fields before segments are followed by the
 * segments, pieces and extents that there are, one after the other, without those extents that lie
 * on directory pages: the first nspilled.  Fields up to nextents are where format 2 has them, and
 * those from features on are in format 4 alone.
 */
typedef struct GgMetaPageData
{
	uint32		magic;
	uint32		version;
	uint64		instance;		/* random; a new one with every build */
	uint64		generation;		/* grows when segments change or delta pages are given back */
	uint64		vacuum_epoch;	/* grows whenever VACUUM cleared rows of the delta */
	uint32		dimensions;		/* 0: not known before the first row */
	uint16		metric;			/* gg_metric */
	uint16		element;		/* gg_element of the stored rows */
	uint16		algorithm;		/* gg_algorithm of new segments */
	uint16		engine;			/* that built it: 0 none, 1 cpu, 2 cuda */
	uint16		graph_degree;
	uint16		intermediate_graph_degree;
	int32		seed;
	uint32		next_id;		/* of the next segment, piece, sample, calibration, new graph */
	GgBuildTimes times;
	uint16		filter_words;	/* of each row, of all filter columns together */
	uint16		flags;			/* GG_META_... */
	uint32		delta_low;		/* of the number of the delta's first page: GgDeltaFirst() */
	uint32		delta_pages;	/* from first to last, gaps too; the last takes the next row */
	uint32		delta_dead;		/* delta rows cleared by VACUUM, on pages that are still there */
	float4		largest_length; /* of all rows ever stored, see GgRowLength(); 0: not known */
	uint16		nsegments;
	uint16		nextents;
	uint16		npieces;
	uint16		nspilled;		/* extents on directory pages */
	uint16		ndirectory;		/* directory pages */
	uint16		ncolumns;		/* filter columns; versions before 1.2.0 refuse any */
	BlockNumber delta_tail;		/* block of the delta's last page; invalid without one */
	BlockNumber directory[GG_MAX_DIRECTORY_PAGES];
	uint32		column_types[GG_MAX_COLUMNS];	/* GgFilterColumn.type; 0 behind the last */
	uint32		features;		/* GG_FEATURE_... */
	uint16		coded;			/* gg_codes of pieces that have no vectors; else GG_CODES_NONE */
	uint16		delta_high;		/* of the number of the delta's first page, above 32 bits */
	uint16		reserved[8];
	GgSegment	segments[GG_MAX_SEGMENTS];
	GgPiece		pieces[GG_MAX_PIECES];
	GgExtent	extents[GG_ALL_EXTENTS];
} GgMetaPageData;

#define GG_META_HEAD		offsetof(GgMetaPageData, segments)
#define GG_PLAIN_META_HEAD	offsetof(GgMetaPageData, features)	/* of format 3 */

/* Extents that a metapage with the most segments and pieces has room for. */
#define GG_META_EXTENTS \
	((GG_PAGE_PAYLOAD - GG_META_HEAD - GG_MAX_SEGMENTS * sizeof(GgSegment) - \
	  GG_MAX_PIECES * sizeof(GgPiece)) / sizeof(GgExtent))

#define GgPageGetMeta(page)		((GgMetaPageData *) PageGetContents(page))

StaticAssertDecl(GG_META_HEAD % 8 == 0, "what follows the metapage's head must be aligned");
StaticAssertDecl(GG_META_EXTENTS + GG_MAX_DIRECTORY_PAGES * GG_DIRECTORY_EXTENTS >= GG_ALL_EXTENTS,
				 "there must be room for all extents");
StaticAssertDecl(sizeof(GgTidEntry) == 8 && GG_PAGE_PAYLOAD % sizeof(GgTidEntry) == 0,
				 "TID entries must not cross pages");
StaticAssertDecl(sizeof(GgPageStamp) == 24 && sizeof(GgExtent) == 24 && sizeof(GgPiece) == 16 &&
				 sizeof(GgSegment) == 32 && sizeof(GgSampleHead) == 16 &&
				 sizeof(GgCalibration) == 1248 && sizeof(GgCalibrationDay) == 24,
				 "no padding on disk");
StaticAssertDecl(offsetof(GgMetaPageData, delta_low) == 88 && GG_PLAIN_META_HEAD == 168 &&
				 GG_META_HEAD == 192,
				 "fields must stay where version 3 has had them from the start");
StaticAssertDecl(sizeof(GgDeltaRow) == sizeof(GgTidEntry) && GG_MAX_COLUMNS <= 16,
				 "a row has one head, with a bit for each filter column");

/* The number of the delta's first page.  meta may lie in the page or be a copy. */
static inline uint64
GgDeltaFirst(const GgMetaPageData *meta)
{
	return meta->version != GG_FORMAT_VERSION ? meta->delta_low :
		(uint64) meta->delta_high << 32 | meta->delta_low;
}

/*
 * Which rows has the index never left out since its build?  Bits of GG_LEAVES_NOTHING_OUT.  They
 * are 0 in older formats, whose libraries did not note what they left out.  meta may lie in the
 * page or be a copy.
 */
static inline uint32
GgNeverLeftOut(const GgMetaPageData *meta)
{
	return meta->version == GG_FORMAT_VERSION ? meta->features & GG_LEAVES_NOTHING_OUT : 0;
}

/* The number of the delta's next page. */
static inline uint64
GgDeltaEnd(const GgMetaPageData *meta)
{
	return GgDeltaFirst(meta) + meta->delta_pages;
}

/* The id of the one array of that kind, which belongs to no segment; GG_NO_SEGMENT: none. */
static inline uint32
GgIdOfKind(const GgMetaPageData *meta, GgKind kind)
{
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == kind)
			return meta->extents[i].segment;
	return GG_NO_SEGMENT;
}

/* The id of the sample; GG_NO_SEGMENT: there is none. */
static inline uint32
GgSampleId(const GgMetaPageData *meta)
{
	return GgIdOfKind(meta, GG_KIND_SAMPLE);
}

/* Bytes of one vector in segments and delta. */
static inline Size
GgRowBytes(const GgMetaPageData *meta)
{
	return (Size) meta->dimensions * gg_element_size((gg_element) meta->element);
}

/* Bytes of a sample's array. */
static inline uint64
GgSampleBytes(const GgSampleHead *head)
{
	return sizeof(GgSampleHead) + (uint64) head->count * head->dimensions * sizeof(float);
}

/* Bytes of the mean that codes are centred by. */
static inline Size
GgMeanBytes(const GgMetaPageData *meta)
{
	return (Size) meta->dimensions * sizeof(float4);
}

/* Are codes centred? */
static inline bool
GgHasMean(const GgMetaPageData *meta)
{
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == GG_KIND_MEAN)
			return true;
	return false;
}

/* Bytes of one row's filter words. */
static inline Size
GgFilterBytes(const GgMetaPageData *meta)
{
	return meta->filter_words * sizeof(int64);
}

/* Where a delta row has its vector, from its head on. */
static inline Size
GgDeltaVectorOffset(const GgMetaPageData *meta)
{
	return sizeof(GgDeltaRow) + GgFilterBytes(meta);
}

/* The filter words of a delta row, which are on the page of its head. */
static inline int64 *
GgDeltaWords(const GgDeltaRow *row)
{
	return (int64 *) (row + 1);
}

/* The vector of a delta row; of one longer than a page its beginning. */
static inline char *
GgDeltaVector(const GgMetaPageData *meta, const GgDeltaRow *row)
{
	return (char *) row + GgDeltaVectorOffset(meta);
}

/* Bytes of a delta row's vector that are on the page of its head. */
static inline Size
GgDeltaVectorHere(const GgMetaPageData *meta)
{
	return Min(GgRowBytes(meta), GG_PAGE_PAYLOAD - GgDeltaVectorOffset(meta));
}

/* Bytes of one delta row, head and padding included. */
static inline Size
GgDeltaRowBytes(const GgMetaPageData *meta)
{
	return MAXALIGN(GgDeltaVectorOffset(meta) + GgRowBytes(meta));
}

/* Pages that one delta row takes; 1 unless the row is longer than a page. */
static inline uint32
GgDeltaPagesPerRow(const GgMetaPageData *meta)
{
	return (uint32) ((GgDeltaRowBytes(meta) + GG_PAGE_PAYLOAD - 1) / GG_PAGE_PAYLOAD);
}

/* Rows that start on one delta page (1 for rows longer than a page). */
static inline uint32
GgDeltaRowsPerPage(const GgMetaPageData *meta)
{
	return Max(1, (uint32) (GG_PAGE_PAYLOAD / GgDeltaRowBytes(meta)));
}

/* Rows that so many delta pages have room for; 0 pages where dimensions are not known yet. */
static inline uint32
GgRowsOnPages(const GgMetaPageData *meta, uint32 pages)
{
	return pages == 0 ? 0 : pages / GgDeltaPagesPerRow(meta) * GgDeltaRowsPerPage(meta);
}

/* Nodes of all segments. */
static inline uint64
GgCountNodes(const GgMetaPageData *meta)
{
	uint64		nodes = 0;

	for (int i = 0; i < meta->nsegments; i++)
		nodes += meta->segments[i].nodes;
	return nodes;
}

/* The number of the page on which a row of the delta starts.  Rows count from its first page. */
static inline uint64
GgDeltaPageOf(const GgMetaPageData *meta, uint32 row)
{
	return GgDeltaFirst(meta) + row / GgDeltaRowsPerPage(meta) * GgDeltaPagesPerRow(meta);
}

#endif							/* GG_FORMAT_H */
