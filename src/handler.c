/*
 * handler.c
 *		Module entry and the access method's handler function.
 */
#include "maintain/merge.h"
#include "am/am.h"
#include "build/build.h"
#include "many/batch.h"
#include "many/probes.h"
#include "plan/planner.h"
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
	GgInitPaths();
	GgInitProbes();
	GgInitGroupPaths();
	GgInitExplain();
	GgInitExpectedRows();
	GgInitWrongOrder();
	GgInitRecentBuffers();
	GgInitMerges();
	GgInitCalibration();
	GgInitQueries();
	GgServiceInit();
	MarkGUCPrefixReserved("gpugraph");
	GgEndSettings();
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
	/* what is not named here the access method cannot do */
	static const IndexAmRoutine routine = {
		.type = T_IndexAmRoutine,
		.amstrategies = GG_STRATEGIES,
		.amsupport = 1,
		.amcanorderbyop = true,
		.amcanmulticol = true,
		.amoptionalkey = true,
		.amsearcharray = true,
		.amsearchnulls = true,
		/* any insert may change any answer, so the core's lock on the whole index is right */
		.ampredlocks = false,

		/*
		 * A parallel vacuum worker may clear TIDs.  It may not run the cleanup, which can assign a
		 * transaction id (see vacuum.c); parallel mode forbids that.
		 */
		.amparallelvacuumoptions = VACUUM_OPTION_PARALLEL_BULKDEL,

		.ambuild = ggbuild,
		.ambuildempty = ggbuildempty,
		.aminsert = gginsert,
		.ambulkdelete = ggbulkdelete,
		.amvacuumcleanup = ggvacuumcleanup,
		.amcostestimate = ggcostestimate,
		.amoptions = ggoptions,
		.amproperty = ggproperty,
		.ambuildphasename = ggbuildphasename,
		.amvalidate = ggvalidate,
		.ambeginscan = ggbeginscan,
		.amrescan = ggrescan,
		.amgettuple = gggettuple,
		.amendscan = ggendscan,
	};

	PG_RETURN_POINTER(GgReturnRoutine(&routine));
}
