/*
 * directory_check.h
 *		Does a directory contradict itself, or its index?
 */
#ifndef GG_DIRECTORY_CHECK_H
#define GG_DIRECTORY_CHECK_H

#include "storage/filter_column.h"
#include "storage/pages.h"
#include "storage/type.h"

/* ereport(ERROR) when segments, pieces, delta and extents contradict each other. */
extern void GgCheckDirectory(Relation index, const GgMetaPageData *meta);

/*
 * ereport(ERROR) when the metapage's filter columns are not those of the index.  GgReadMeta() calls
 * it.  A caller that reads the metapage in another way, and uses values of filter columns, has to
 * call it.
 */
extern void GgCheckColumns(Relation index, const GgMetaPageData *meta,
						   const GgFilterColumns *columns);

/* GgCheckColumns() for dimensions, metric and elements, where vectors are read or written. */
extern void GgCheckOpclass(Relation index, const GgMetaPageData *meta, const GgOpclass *opclass);

#endif							/* GG_DIRECTORY_CHECK_H */
