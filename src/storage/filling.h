/*
 * filling.h
 *		A directory that fills up.
 */
#ifndef GG_FILLING_H
#define GG_FILLING_H

#include "storage/pages.h"

/*
 * Is the directory, which is about to be stored, three quarters full, and has the log not told of
 * it?  If so, meta notes that the log has told.
 */
extern bool GgNoteFilling(GgMetaPageData *meta);

/* Tell the log, once the metapage is not locked any more. */
extern void GgTellFilling(Relation index, const GgMetaPageData *meta);

#endif							/* GG_FILLING_H */
