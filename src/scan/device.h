/*
 * device.h
 *		What the files that ask a device for a scan have of each other.
 */
#ifndef GG_SCAN_DEVICE_H
#define GG_SCAN_DEVICE_H

#include "scan/scan.h"

/* ---- device_ask.c ------------------------------------------------------- */

extern GgAsk NewAsk(const GgScanOpaque *so, uint32 lists, bool delta);
extern void AskForWalks(const GgScanOpaque *so, GgAsk *ask, uint32 measured, uint32 itopk);
extern void AskForDeep(const GgScanOpaque *so, GgAsk *ask, uint32 k, uint64 after);
extern bool Ask(GgScanOpaque *so, const GgAsk *ask, uint64 *keys, uint64 *matches);
extern double ExpectedRows(const GgScanOpaque *so, const GgStream *stream);
extern bool WalkIsWorthwhile(const GgScanOpaque *so, const GgStream *stream, uint32 itopk);

/* ---- walk_history.c ----------------------------------------------------- */

extern bool WalkIsDue(GgScanOpaque *so);
extern void BeginUncertainWalk(GgScanOpaque *so);
extern void NoteWastedWalk(const GgScanOpaque *so);

#endif							/* GG_SCAN_DEVICE_H */
