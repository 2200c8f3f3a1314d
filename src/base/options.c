/*
 * options.c
 *		Index options, settings, and the choice of the engine.
 */
#include "base/base.h"

#include "access/reloptions.h"
#include "utils/guc.h"

int			gg_engine_setting = GG_ENGINE_AUTO;
int			gg_itopk_size = GG_DEFAULT_ITOPK_SIZE;
int			gg_iterative_scan = GG_ITERATIVE_STRICT;
int			gg_max_scan_tuples = GG_DEFAULT_MAX_SCAN_TUPLES;
bool		gg_skip_unread_distance = true;
bool		gg_enable_bitmap_filter = true;

static relopt_kind gg_relopt_kind;

static const struct config_enum_entry engine_values[] = {
	{"auto", GG_ENGINE_AUTO, false},
	{"cuda", GG_ENGINE_CUDA, false},
	{"cpu", GG_ENGINE_CPU, false},
	{NULL, 0, false}
};

static const struct config_enum_entry iterative_scan_values[] = {
	{"off", GG_ITERATIVE_OFF, false},
	{"relaxed_order", GG_ITERATIVE_RELAXED, false},
	{"strict_order", GG_ITERATIVE_STRICT, false},
	{NULL, 0, false}
};

static relopt_enum_elt_def storage_values[] = {
	{"float32", GG_STORAGE_FLOAT32},
	{"float16", GG_STORAGE_FLOAT16},
	{NULL, 0}
};

void
GgInitOptions(void)
{
	gg_relopt_kind = add_reloption_kind();
	add_int_reloption(gg_relopt_kind, "graph_degree",
					  "Out-degree of the graph",
					  GG_DEFAULT_GRAPH_DEGREE, GG_MIN_GRAPH_DEGREE, GG_MAX_GRAPH_DEGREE,
					  AccessExclusiveLock);
	add_int_reloption(gg_relopt_kind, "intermediate_graph_degree",
					  "Length of the k-NN lists that the graph is made from",
					  GG_DEFAULT_INTERMEDIATE_DEGREE, GG_MIN_INTERMEDIATE_DEGREE,
					  GG_MAX_INTERMEDIATE_DEGREE,
					  AccessExclusiveLock);
	add_int_reloption(gg_relopt_kind, "seed",
					  "Seed of the random choices of a build",
					  0, 0, PG_INT32_MAX,
					  AccessExclusiveLock);
	add_int_reloption(gg_relopt_kind, "seal_rows",
					  "Inserted rows that become a segment of their own; 0: nothing is merged",
					  GG_DEFAULT_SEAL_ROWS, 0, PG_INT32_MAX,
					  ShareUpdateExclusiveLock);
	add_int_reloption(gg_relopt_kind, "segment_rows",
					  "Rows of the largest segment that is made; 0: as memory allows",
					  0, 0, PG_INT32_MAX,
					  ShareUpdateExclusiveLock);
	add_enum_reloption(gg_relopt_kind, "storage",
					   "Element type that vectors are stored with",
					   storage_values, GG_STORAGE_UNSET,
					   gettext_noop("Valid values are \"float32\" and \"float16\"."),
					   AccessExclusiveLock);

	DefineCustomEnumVariable("gpugraph.engine",
							 "Selects the engine that builds and searches gpugraph indexes.",
							 "\"auto\" uses a GPU where there is one; "
							 "\"cuda\" makes its absence an error.",
							 &gg_engine_setting,
							 GG_ENGINE_AUTO, engine_values,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("gpugraph.itopk_size",
							"Sets the length of the candidate list of a search.",
							"Longer lists find more of the true neighbors and take longer.",
							&gg_itopk_size,
							GG_DEFAULT_ITOPK_SIZE, 1, GG_MAX_ITOPK,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("gpugraph.iterative_scan",
							 "Sets how a scan goes on when more rows are asked for "
							 "than one search gave.",
							 NULL,
							 &gg_iterative_scan,
							 GG_ITERATIVE_STRICT, iterative_scan_values,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("gpugraph.max_scan_tuples",
							"Sets how many rows a scan takes from the graph before it turns "
							"to an exact scan.",
							NULL,
							&gg_max_scan_tuples,
							GG_DEFAULT_MAX_SCAN_TUPLES, 1, INT_MAX,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("gpugraph.skip_unread_distance",
							 "Leaves out the distance of rows that an index scan has ordered, "
							 "where nobody reads it.",
							 NULL,
							 &gg_skip_unread_distance,
							 true,
							 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomBoolVariable("gpugraph.enable_bitmap_filter",
							 "Enables the planner's use of index scans that are restricted to the "
							 "rows that other indexes found.",
							 NULL,
							 &gg_enable_bitmap_filter,
							 true,
							 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
}

static void
CheckDegrees(int graph_degree, int intermediate_graph_degree)
{
	if (intermediate_graph_degree < graph_degree)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("intermediate_graph_degree %d is less than graph_degree %d",
						intermediate_graph_degree, graph_degree),
				 errhint("Set intermediate_graph_degree to at least graph_degree; "
						 "twice as much is usual.")));
}

bytea *
ggoptions(Datum reloptions, bool validate)
{
	static const relopt_parse_elt tab[] = {
		{"graph_degree", RELOPT_TYPE_INT, offsetof(GgOptions, graph_degree)},
		{"intermediate_graph_degree", RELOPT_TYPE_INT,
		offsetof(GgOptions, intermediate_graph_degree)},
		{"seed", RELOPT_TYPE_INT, offsetof(GgOptions, seed)},
		{"seal_rows", RELOPT_TYPE_INT, offsetof(GgOptions, seal_rows)},
		{"segment_rows", RELOPT_TYPE_INT, offsetof(GgOptions, segment_rows)},
		{"storage", RELOPT_TYPE_ENUM, offsetof(GgOptions, storage)},
	};
	GgOptions  *options;

	options = (GgOptions *) build_reloptions(reloptions, validate, gg_relopt_kind,
											 sizeof(GgOptions), tab, lengthof(tab));
	if (validate && options != NULL)
		CheckDegrees(options->graph_degree, options->intermediate_graph_degree);
	return (bytea *) options;
}

void
GgGetOptions(Relation index, GgOptions *options)
{
	if (index->rd_options != NULL)
		memcpy(options, index->rd_options, sizeof(GgOptions));
	else
	{
		memset(options, 0, sizeof(GgOptions));
		options->graph_degree = GG_DEFAULT_GRAPH_DEGREE;
		options->intermediate_graph_degree = GG_DEFAULT_INTERMEDIATE_DEGREE;
		options->seal_rows = GG_DEFAULT_SEAL_ROWS;
	}
	CheckDegrees(options->graph_degree, options->intermediate_graph_degree);
}

#ifdef GG_WITH_CUDA
/*
 * Can this process use a device?  Asked once: starting the driver takes tens of milliseconds, and
 * devices do not come and go under a running process.
 */
static const gg_status *
ProbeCuda(void)
{
	static bool probed = false;
	static gg_status status;

	if (!probed)
	{
		sigset_t	before;

		GgBlockSignals(&before);
		status = gg_cuda_engine.probe(GG_USE_BUILD);
		GgRestoreSignals(&before);
		probed = true;
	}
	return &status;
}
#endif

const gg_engine *
GgChooseEngine(void)
{
	if (gg_engine_setting == GG_ENGINE_CPU)
		return &gg_cpu_engine;

#ifdef GG_WITH_CUDA
	{
		const gg_status *status = ProbeCuda();

		if (status->code == GG_OK)
			return &gg_cuda_engine;
		if (gg_engine_setting == GG_ENGINE_CUDA)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("gpugraph.engine is \"cuda\" but no GPU can be used"),
					 errdetail("%s", status->message),
					 errhint("Set gpugraph.engine to \"auto\" or \"cpu\" to use the CPU.")));
	}
#else
	if (gg_engine_setting == GG_ENGINE_CUDA)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("gpugraph.engine is \"cuda\" but no GPU can be used"),
				 errdetail("This gpugraph was built without CUDA."),
				 errhint("Set gpugraph.engine to \"auto\" or \"cpu\" to use the CPU, "
						 "or build gpugraph with nvcc.")));
#endif
	return &gg_cpu_engine;
}

const gg_engine *
GgAvailableEngine(void)
{
#ifdef GG_WITH_CUDA
	if (gg_engine_setting != GG_ENGINE_CPU && ProbeCuda()->code == GG_OK)
		return &gg_cuda_engine;
#endif
	return &gg_cpu_engine;
}
