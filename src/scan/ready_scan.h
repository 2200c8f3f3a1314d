/*
 * ready_scan.h
 *		An IndexScan node is made ready for its first row, as it would do by itself: its keys are
 *		evaluated, and the scan is begun.
 */
#ifndef GG_READY_SCAN_H
#define GG_READY_SCAN_H

#include "base/base.h"

#include "access/genam.h"
#include "executor/executor.h"
#include "nodes/execnodes.h"

static inline void
GgReadyScan(IndexScanState *node)
{
	if (node->ss.ps.chgParam != NULL ||
		(node->iss_NumRuntimeKeys != 0 && !node->iss_RuntimeKeysReady))
		ExecReScan(&node->ss.ps);
	if (node->iss_ScanDesc != NULL)
		return;
	node->iss_ScanDesc = GgBeginIndexScan(node);
	index_rescan(node->iss_ScanDesc, node->iss_ScanKeys, node->iss_NumScanKeys,
				 node->iss_OrderByKeys, node->iss_NumOrderByKeys);
}

#endif							/* GG_READY_SCAN_H */
