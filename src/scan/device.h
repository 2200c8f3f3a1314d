/*
 * device.h
 *		What the files that ask devices for a scan have of each other.
 */
#ifndef GG_SCAN_DEVICE_H
#define GG_SCAN_DEVICE_H

#include "scan/scan.h"

/* ---- device_ask.c ------------------------------------------------------- */

/*
 * A request of one query, for the lists of these segments (bitmap) and, if delta is set, for the
 * delta's.  One of the next two says of what kind and length the lists are.
 */
extern GgAsk GgNewAsk(const GgScanOpaque *so, uint32 lists, bool delta);

/* They are those of walks, but for the segments in `measured`, of k <= itopk keys. */
extern void GgAskForWalks(const GgScanOpaque *so, GgAsk *ask, uint32 measured, uint32 itopk);

/* They have k rows of all that match, behind a key. */
extern void GgAskForDeep(const GgScanOpaque *so, GgAsk *ask, uint32 k, uint64 after);

/* As GgServiceAsk(), but with distances of rows in keys, where the index has rows. */
extern bool GgAskLists(GgScanOpaque *so, const GgAsk *ask, uint64 *keys, uint64 *matches);

/* Rows that the stream is expected to hand out, where the executor filters them; 0: not known. */
extern double GgExpectedOfStream(const GgScanOpaque *so, const GgStream *stream);

/* Does a walk's list of this length take less time than an exact one? */
extern bool GgDeviceWalkIsWorthwhile(const GgScanOpaque *so, const GgStream *stream, uint32 itopk);

/* Of segments without rows the device has, under the scan's filter, lists of bounds. */
extern bool GgTakesBounds(const GgScanOpaque *so);

/* ---- walk_history.c ----------------------------------------------------- */

/* May this scan, most of whose rows are thrown away, begin with a walk? */
extern bool GgWalkIsDue(GgScanOpaque *so);

/* It does so. */
extern void GgBeginUncertainWalk(GgScanOpaque *so);

/* It wants more rows than that walk has found. */
extern void GgNoteWastedWalk(const GgScanOpaque *so);

#endif							/* GG_SCAN_DEVICE_H */
