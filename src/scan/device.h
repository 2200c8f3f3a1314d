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

/* Ask for lists of walks, and for exact ones of the segments in `measured`, of k <= itopk keys. */
extern void GgAskForWalks(const GgScanOpaque *so, GgAsk *ask, uint32 measured, uint32 itopk);

/* Ask for deep lists: the k nearest of all rows that match, behind the key `after`. */
extern void GgAskForDeep(const GgScanOpaque *so, GgAsk *ask, uint32 k, uint64 after);

/* As GgServiceAsk(), but walks' estimates are replaced by distances, where the index has rows. */
extern bool GgAskLists(GgScanOpaque *so, const GgAsk *ask, uint64 *keys, uint64 *matches);

/* Rows that the stream is expected to hand out, where the executor filters them; 0: not known. */
extern double GgExpectedOfStream(const GgScanOpaque *so, const GgStream *stream);

/* Is the device to answer with a walk's list of this length, rather than with an exact one? */
extern bool GgDeviceWalkIsWorthwhile(const GgScanOpaque *so, const GgStream *stream, uint32 itopk);

/* Under the scan's filter, does a device have lists of bounds for segments whose rows it lacks? */
extern bool GgTakesBounds(const GgScanOpaque *so);

/* ---- walk_history.c ----------------------------------------------------- */

/* May this scan, most of whose rows are thrown away, begin with a walk? */
extern bool GgWalkIsDue(GgScanOpaque *so);

/* The scan begins with such a walk. */
extern void GgBeginUncertainWalk(GgScanOpaque *so);

/* The scan wants more rows than that first walk has found. */
extern void GgNoteWastedWalk(const GgScanOpaque *so);

#endif							/* GG_SCAN_DEVICE_H */
