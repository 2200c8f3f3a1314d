/*
 * handler.c
 *		Module entry and the access method's handler function.
 */
#include "merge/merge.h"
#include "am/am.h"
#include "build/build.h"
#include "probes/probes.h"
#include "scan/bitmap_scan.h"
#include "scan/scan.h"
#include "storage/filter_keys.h"
#include "storage/recent_buffers.h"

#include "commands/vacuum.h"
#include "utils/guc.h"

#include "service/shared/service.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

/*
 * This makes no CUDA call.  In a preloaded server it runs in the postmaster, and a CUDA context
 * does not survive fork().
 */
void
_PG_init(void)
{
	GgInitOptions();
	GgInitAlter();
	GgInitPlanner();
	GgInitProbes();
	GgInitBitmapScan();
	GgInitPartitions();
	GgInitFilterPaths();
	GgInitExplain();
	GgInitExpectedRows();
	GgInitRecentBuffers();
	GgInitMerges();
	GgInitQueries();
	GgServiceInit();
	MarkGUCPrefixReserved("gpugraph");
}

/* The core cannot answer pg_index_column_has_property(index, 1, 'distance_orderable'). */
static bool
ggproperty(Oid index_oid, int attno, IndexAMProperty prop, const char *propname, bool *res,
		   bool *isnull)
{
	if (prop != AMPROP_DISTANCE_ORDERABLE || attno == 0)
		return false;
	*res = attno == 1;
	return true;
}

PG_FUNCTION_INFO_V1(gpugraph_handler);

Datum
gpugraph_handler(PG_FUNCTION_ARGS)
{
	IndexAmRoutine *amroutine = makeNode(IndexAmRoutine);

	amroutine->amstrategies = GG_STRATEGIES;
	amroutine->amsupport = 1;
	amroutine->amoptsprocnum = 0;
	amroutine->amcanorder = false;
	amroutine->amcanorderbyop = true;
	amroutine->amcanbackward = false;
	amroutine->amcanunique = false;
	amroutine->amcanmulticol = true;
	amroutine->amoptionalkey = true;
	amroutine->amsearcharray = true;
	amroutine->amsearchnulls = true;
	amroutine->amstorage = false;
	amroutine->amclusterable = false;
	/* any insert may change any answer, so the core's lock on the whole index is right */
	amroutine->ampredlocks = false;
	amroutine->amcanparallel = false;
	amroutine->amcaninclude = false;
	amroutine->amusemaintenanceworkmem = false;

	/*
	 * A parallel vacuum worker may clear TIDs.  It may not run the cleanup, which can assign a
	 * transaction id (see vacuum.c); parallel mode forbids that.
	 */
	amroutine->amparallelvacuumoptions = VACUUM_OPTION_PARALLEL_BULKDEL;
	amroutine->amkeytype = InvalidOid;

	amroutine->ambuild = ggbuild;
	amroutine->ambuildempty = ggbuildempty;
	amroutine->aminsert = gginsert;
	amroutine->ambulkdelete = ggbulkdelete;
	amroutine->amvacuumcleanup = ggvacuumcleanup;
	amroutine->amcanreturn = NULL;
	amroutine->amcostestimate = ggcostestimate;
	amroutine->amoptions = ggoptions;
	amroutine->amproperty = ggproperty;
	amroutine->ambuildphasename = ggbuildphasename;
	amroutine->amvalidate = ggvalidate;
	amroutine->amadjustmembers = NULL;
	amroutine->ambeginscan = ggbeginscan;
	amroutine->amrescan = ggrescan;
	amroutine->amgettuple = gggettuple;
	amroutine->amgetbitmap = NULL;
	amroutine->amendscan = ggendscan;
	amroutine->ammarkpos = NULL;
	amroutine->amrestrpos = NULL;
	amroutine->amestimateparallelscan = NULL;
	amroutine->aminitparallelscan = NULL;
	amroutine->amparallelrescan = NULL;

	PG_RETURN_POINTER(amroutine);
}
