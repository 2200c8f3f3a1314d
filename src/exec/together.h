/*
 * together.h
 *		What partition_search.c has of known_lists.c: many indexes are asked for together, and those
 *		of which it is known what to ask for are not opened.
 */
#ifndef GG_TOGETHER_H
#define GG_TOGETHER_H

#include "base/base.h"

#include "access/genam.h"

/* What is known of an index; NULL: nothing.  Its metapage is fetched into the cache meanwhile. */
typedef struct GgKnown GgKnown;
extern GgKnown *GgFindKnown(Oid index);

/* A search of an index that is not open: of known lists, for one query. */
typedef struct GgClosedSearch GgClosedSearch;

/*
 * Begin a search for what a scan of the index would plan, which the executor takes `limit` rows of,
 * and filters none.  NULL: that is not known, or it takes the query in another form than the search
 * `like`, unless that is NULL.  To be called after the query's snapshot was taken, and after
 * AcceptInvalidationMessages(), by who holds a lock of the table.
 */
extern GgClosedSearch *GgBeginClosed(GgKnown *known, uint32 limit, const GgClosedSearch *like);

/* The query as devices take it, for this search and those like it. */
extern const float *GgQueryOfClosed(const GgClosedSearch *search, Datum value);

/*
 * Ask devices for the first lists of scans that are prepared, and of closed searches, of many with
 * one request.  query: of the closed ones.
 */
extern void GgAskTogether(IndexScanDesc *scans, int nscans, GgClosedSearch **searches,
						  int nsearches, const float *query);

extern bool GgIsAnswered(const GgClosedSearch *search);

/* As GgLeastDistance(), of an answer. */
extern double GgLeastOfClosed(const GgClosedSearch *search);

/*
 * The scan of that index is prepared by now.  It takes over the answer, unless it would ask for
 * something else.
 */
extern void GgTakeClosed(IndexScanDesc scan, const GgClosedSearch *search);

/* The search, which was answered, counts as a query of its index. */
extern void GgCountClosed(const GgClosedSearch *search);

#endif							/* GG_TOGETHER_H */
