/*
 * together.h
 *		What partition_search.c has of known_lists.c: many indexes are asked for together, and those
 *		of which it is known what to ask for are not opened.
 */
#ifndef GG_TOGETHER_H
#define GG_TOGETHER_H

#include "base/base.h"

#include "access/genam.h"

/* What is known of an index; NULL: nothing.  The processor begins to fetch its metapage. */
typedef struct GgKnown GgKnown;
extern GgKnown *GgFindKnown(Oid index);

/* A search of an index that is not open: of known lists, for one query. */
typedef struct GgClosedSearch GgClosedSearch;

/*
 * Make a closed search for what a scan of the index would ask for, of which the executor takes
 * `limit` rows and drops none.  NULL: that is not known (any more), or `like` is a search that has
 * the query in another form.  To be called after the query's snapshot was taken, and after
 * AcceptInvalidationMessages(), by who holds a lock of the table.
 */
extern GgClosedSearch *GgBeginClosed(GgKnown *known, uint32 limit, const GgClosedSearch *like);

/* The query as devices take it, for this search and those like it. */
extern const float *GgQueryOfClosed(const GgClosedSearch *search, Datum value);

/*
 * Ask devices for the first lists of scans that are prepared, and of closed searches, with one
 * request for many.  query: of the closed searches.
 */
extern void GgAskTogether(IndexScanDesc *scans, int nscans, GgClosedSearch **searches,
						  int nsearches, const float *query);

extern bool GgIsAnswered(const GgClosedSearch *search);

/* What GgLeastDistance() says of a scan, by the answer of a closed search. */
extern double GgLeastOfClosed(const GgClosedSearch *search);

/*
 * Hand the answer to the index's scan, which is prepared by now.  The scan takes it over, unless it
 * would ask for something else.
 */
extern void GgTakeClosed(IndexScanDesc scan, const GgClosedSearch *search);

/* The search, which was answered, counts as a query of its index. */
extern void GgCountClosed(const GgClosedSearch *search);

#endif							/* GG_TOGETHER_H */
