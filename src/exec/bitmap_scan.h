/*
 * bitmap_scan.h
 *		Index scans restricted to the rows that other indexes found.
 */
#ifndef GG_BITMAP_SCAN_H
#define GG_BITMAP_SCAN_H

#include "base/base.h"

#include "nodes/extensible.h"

/* The custom scan that restricts an index scan to a bitmap of rows. */
#define GG_BITMAP_SCAN_NAME		"GpugraphBitmapScan"

/* The executor's part.  The children of its plan are an IndexScan and the plan of a bitmap. */
extern const CustomScanMethods gg_bitmap_scan;

/* How many TIDs such a scan holds in memory; a bitmap of more is left out. */
extern uint32 GgMostBitmapTids(void);

#endif							/* GG_BITMAP_SCAN_H */
