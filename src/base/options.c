/*
 * options.c
 *		Index options, settings, and the choice of the engine.
 */
#include "base/base.h"

#include <math.h>

#include "access/parallel.h"
#include "access/reloptions.h"
#include "miscadmin.h"
#include "lib/stringinfo.h"
#include "utils/guc.h"
#include "utils/varlena.h"

int			gg_engine_setting = GG_ENGINE_AUTO;
int			gg_itopk_size = GG_DEFAULT_ITOPK_SIZE;
double		gg_target_recall = 0;
int			gg_iterative_scan = GG_ITERATIVE_STRICT;
int			gg_max_scan_tuples = GG_DEFAULT_MAX_SCAN_TUPLES;
int			gg_disabled = 0;

static int	search_mode = GG_SEARCH_AUTO;
static int	rerank_size = 0;
static char *disable = NULL;
static bool skip_unread_distance = true;

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

static const struct config_enum_entry search_mode_values[] = {
	{"auto", GG_SEARCH_AUTO, false},
	{"single_cta", GG_SEARCH_SINGLE_CTA, false},
	{"multi_cta", GG_SEARCH_MULTI_CTA, false},
	{"tsdg_small", GG_SEARCH_TSDG_SMALL, false},
	{"tsdg_large", GG_SEARCH_TSDG_LARGE, false},
	{NULL, 0, false}
};

/*
 * A value of the option storage: how vectors are stored, and codes beside them.  ggoptions() takes
 * it apart.
 */
#define STORED(storage, codes)	((storage) | ((codes) - GG_CODES_AUTO) << 8)
#define STORAGE_OF(stored)		((stored) & 0xFF)
#define CODES_OF(stored)		(((stored) >> 8) + GG_CODES_AUTO)
#define STORED_AUTO				STORED(GG_STORAGE_UNSET, GG_CODES_AUTO)

static relopt_enum_elt_def storage_values[] = {
	{"auto", STORED_AUTO},
	{"float32", STORED(GG_STORAGE_FLOAT32, GG_CODES_NONE)},
	{"float32+int8", STORED(GG_STORAGE_FLOAT32, GG_CODES_INT8)},
	{"float32+int4", STORED(GG_STORAGE_FLOAT32, GG_CODES_INT4)},
	{"float16", STORED(GG_STORAGE_FLOAT16, GG_CODES_NONE)},
	{"float16+int8", STORED(GG_STORAGE_FLOAT16, GG_CODES_INT8)},
	{"float16+int4", STORED(GG_STORAGE_FLOAT16, GG_CODES_INT4)},
	{"int8", STORED(GG_STORAGE_INT8, GG_CODES_AUTO)},
	{"int4", STORED(GG_STORAGE_INT4, GG_CODES_AUTO)},
	{NULL, 0}
};

static relopt_enum_elt_def algorithm_values[] = {
	{"cagra", GG_ALGORITHM_CAGRA},
	{"tsdg", GG_ALGORITHM_TSDG},
	{"grnnd", GG_ALGORITHM_GRNND},
	{NULL, 0}
};

static const relopt_enum_elt_def code_names[] = {
	{"none", GG_CODES_NONE},
	{"int8", GG_CODES_INT8},
	{"int4", GG_CODES_INT4},
	{NULL, 0}
};

/* An option of indexes. */
typedef struct Option
{
	const char *name;
	int			offset;			/* in GgOptions */
	relopt_type type;
	LOCKMODE	lock;			/* to change it */
	double		usual;			/* its value where nobody gives one */
	double		least;
	double		most;
	const char *text;
	gg_algorithm owner;			/* a parameter of this algorithm; 0: of none */
	relopt_enum_elt_def *names; /* of an enum's values */
	const char *hint;			/* for an error: the names that are valid */
} Option;

#define OPTION(name, type, lock) \
	(#name), offsetof(GgOptions, name), RELOPT_TYPE_##type, lock##Lock

/* 0 is outside the range of each algorithm's parameters, and says that one is not set. */
static const Option index_options[] = {
	{OPTION(graph_degree, INT, AccessExclusive),
		GG_DEFAULT_GRAPH_DEGREE, GG_MIN_GRAPH_DEGREE, GG_MAX_GRAPH_DEGREE,
		"Out-degree of the graph"},
	{OPTION(intermediate_graph_degree, INT, AccessExclusive),
		GG_DEFAULT_INTERMEDIATE_DEGREE, GG_MIN_INTERMEDIATE_DEGREE, GG_MAX_INTERMEDIATE_DEGREE,
		"Length of the k-NN lists that the graph is made from"},
	{OPTION(seed, INT, AccessExclusive), 0, 0, PG_INT32_MAX,
		"Seed of the random choices of a build"},
	{OPTION(seal_rows, INT, ShareUpdateExclusive), GG_DEFAULT_SEAL_ROWS, -1, PG_INT32_MAX,
		"Inserted rows that become a segment; -1: by size; 0: nothing is merged"},
	{OPTION(segment_rows, INT, ShareUpdateExclusive), 0, 0, PG_INT32_MAX,
		"Rows of the largest segment that is made; 0: as memory allows"},
	{OPTION(devices, INT, ShareUpdateExclusive), 0, 0, GG_MAX_WISHED_DEVICES,
		"GPUs that segments are spread over; 0: as few as have room"},
	{OPTION(storage, ENUM, ShareUpdateExclusive), STORED_AUTO, 0, 0,
		"How vectors are stored", 0, storage_values,
		gettext_noop("Valid values are \"auto\", \"float32\", \"float16\", each of "
					 "the two with \"+int8\" or \"+int4\", \"int8\" and \"int4\".")},
	{OPTION(algorithm, ENUM, AccessExclusive), GG_ALGORITHM_CAGRA, 0, 0,
		"How the edges of the graph are chosen", 0, algorithm_values,
		gettext_noop("Valid values are \"cagra\", \"tsdg\" and \"grnnd\".")},
	{OPTION(learn_queries, BOOL, ShareUpdateExclusive), false, 0, 0,
		"Learn edges from queries that the index is asked"},
	{OPTION(alpha, REAL, AccessExclusive), 0, GG_MIN_ALPHA, GG_MAX_ALPHA,
		"TSDG: the larger, the fewer edges the first stage drops", GG_ALGORITHM_TSDG},
	{OPTION(lambda0, INT, AccessExclusive), 0, 1, GG_MAX_LAMBDA,
		"TSDG: edges occluded more often than this are dropped", GG_ALGORITHM_TSDG},
	{OPTION(initial_neighbors, INT, AccessExclusive), 0, 1, GG_MAX_DEGREE,
		"GRNND's S: nodes that a pool starts with", GG_ALGORITHM_GRNND},
	{OPTION(pool_capacity, INT, AccessExclusive), 0, GG_MIN_GRAPH_DEGREE, GG_MAX_DEGREE,
		"GRNND's R: nodes that a pool has room for", GG_ALGORITHM_GRNND},
	{OPTION(outer_rounds, INT, AccessExclusive), 0, 1, GG_MAX_ROUNDS,
		"GRNND's T1: rounds with reverse edges in between", GG_ALGORITHM_GRNND},
	{OPTION(inner_rounds, INT, AccessExclusive), 0, 1, GG_MAX_ROUNDS,
		"GRNND's T2: rounds of each outer one", GG_ALGORITHM_GRNND},
	{OPTION(rho, REAL, AccessExclusive), 0, GG_MIN_RHO, 1,
		"GRNND: share of a pool that gets reverse edges", GG_ALGORITHM_GRNND}
};

static GgOptions usual_options; /* of an index without any */

static void
AddOption(const Option *option)
{
	if (option->type == RELOPT_TYPE_INT)
		add_int_reloption(gg_relopt_kind, option->name, option->text, (int) option->usual,
						  (int) option->least, (int) option->most, option->lock);
	else if (option->type == RELOPT_TYPE_REAL)
		add_real_reloption(gg_relopt_kind, option->name, option->text, option->usual,
						   option->least, option->most, option->lock);
	else if (option->type == RELOPT_TYPE_BOOL)
		add_bool_reloption(gg_relopt_kind, option->name, option->text, option->usual != 0,
						   option->lock);
	else
		add_enum_reloption(gg_relopt_kind, option->name, option->text, option->names,
						   (int) option->usual, option->hint, option->lock);
}

/* ---- gpugraph.disable ----------------------------------------------------- */

/* The names of GgSwitch, by their bits. */
static const char *const switches[] = {
	"autoprewarm", "bitmap_filter", "distance_bound", "partition_search", "range_search",
	"rank_order", "read_ahead", "semi_joins", "sort_keys", "told_sets", "unread_distance"
};

/* The bits of a list of names; -1: it is no list.  *unknown: a name that no switch has, or NULL. */
static int
ReadSwitches(const char *value, const char **unknown)
{
	int			bits = 0;
	List	   *names;
	ListCell   *cell;

	*unknown = NULL;
	if (!SplitIdentifierString(pstrdup(value), ',', &names))
		return -1;
	foreach(cell, names)
	{
		int			i = 0;

		while (i < lengthof(switches) && strcmp(lfirst(cell), switches[i]) != 0)
			i++;
		if (i == lengthof(switches))
			*unknown = lfirst(cell);
		else
			bits |= 1 << i;
	}
	return bits;
}

static bool
CheckDisable(char **value, void **extra, GucSource source)
{
	const char *unknown;
	StringInfoData all;

	if (ReadSwitches(*value, &unknown) >= 0 && unknown == NULL)
		return true;
	if (unknown != NULL)
		GUC_check_errdetail("There is no switch \"%s\".", unknown);
	initStringInfo(&all);
	for (int i = 0; i < lengthof(switches); i++)
		appendStringInfo(&all, "%s\"%s\"", i == 0 ? "" : ", ", switches[i]);
	GUC_check_errhint("It is a list of %s.", all.data);
	return false;
}

static void
AssignDisable(const char *value, void *extra)
{
	const char *unknown;

	gg_disabled = Max(ReadSwitches(value, &unknown), 0);
}

static bool settings_are_defined = false;

void
GgEndSettings(void)
{
	settings_are_defined = true;
}

/*
 * Was a setting given in this process?  A parallel worker has its leader's settings.  Settings of
 * files are the postmaster's, unless this session is just loading the library itself.
 */
static bool
IsGiven(GucSource source)
{
	return source > PGC_S_ENV_VAR && !InitializingParallelWorker &&
		!(source == PGC_S_FILE && IsUnderPostmaster && settings_are_defined);
}

void
GgWarnOfOldSetting(const char *name, GucSource source, const char *hint)
{
	if (IsGiven(source))
		ereport(WARNING,
				(errcode(ERRCODE_WARNING_DEPRECATED_FEATURE),
				 errmsg("%s goes with version 1.3", name),
				 errhint("%s", hint)));
}

static bool
WarnOfScanTuples(int *value, void **extra, GucSource source)
{
	GgWarnOfOldSetting("gpugraph.max_scan_tuples", source,
					   "Leave it out: a scan finds out by itself when it is to measure all rows.");
	return true;
}

static bool
WarnOfNoEffect(bool *value, void **extra, GucSource source)
{
	if (IsGiven(source))
		ereport(WARNING,
				(errcode(ERRCODE_WARNING_DEPRECATED_FEATURE),
				 errmsg("gpugraph.skip_unread_distance has no effect any more"),
				 errhint("Add \"unread_distance\" to gpugraph.disable instead.")));
	return true;
}

static bool
CheckTargetRecall(double *value, void **extra, GucSource source)
{
	if (*value == 0 || *value >= GG_LEAST_TARGET)
		return true;
	GUC_check_errdetail("A recall that is kept is from %g to 1.", GG_LEAST_TARGET);
	GUC_check_errhint("Set it to 0 to go by gpugraph.itopk_size.");
	return false;
}

static void
DefineSwitches(void)
{
	DefineCustomStringVariable("gpugraph.disable",
							   "Sets what is not done though it could be.",
							   "A list of names, for developers.",
							   &disable,
							   "",
							   PGC_USERSET, GUC_LIST_INPUT | GUC_EXPLAIN | GUC_NOT_IN_SAMPLE,
							   CheckDisable, AssignDisable, NULL);
	/* version 1.1.0 had it; to be removed with version 1.3 */
	DefineCustomBoolVariable("gpugraph.skip_unread_distance",
							 "Has no effect any more.",
							 NULL,
							 &skip_unread_distance,
							 true,
							 PGC_USERSET, GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE,
							 WarnOfNoEffect, NULL, NULL);
}

void
GgInitOptions(void)
{
	gg_relopt_kind = add_reloption_kind();
	for (int i = 0; i < lengthof(index_options); i++)
		AddOption(&index_options[i]);
	memcpy(&usual_options, ggoptions((Datum) 0, false), sizeof(GgOptions));

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
	DefineCustomRealVariable("gpugraph.target_recall",
							 "Sets the recall that searches are to have.",
							 "A search takes the candidate list that its index was measured to "
							 "need. 0 means that gpugraph.itopk_size counts, 1 that all rows are "
							 "measured.",
							 &gg_target_recall,
							 0, 0, 1,
							 PGC_USERSET, GUC_EXPLAIN, CheckTargetRecall, NULL, NULL);
	DefineCustomIntVariable("gpugraph.rerank_size",
							"Sets how many rows are measured again after a search by codes.",
							"0 means a number that goes by the codes and by how many rows are "
							"wanted.",
							&rerank_size,
							0, 0, GG_MAX_ITOPK,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("gpugraph.iterative_scan",
							 "Sets how a scan goes on when more rows are asked for "
							 "than one search gave.",
							 NULL,
							 &gg_iterative_scan,
							 GG_ITERATIVE_STRICT, iterative_scan_values,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("gpugraph.search_mode",
							 "Sets the procedure that searches a graph.",
							 "\"auto\" leaves the choice to the engine; an engine that does not "
							 "have a procedure takes its own choice, too.",
							 &search_mode,
							 GG_SEARCH_AUTO, search_mode_values,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("gpugraph.max_scan_tuples",
							"Sets how many rows a scan takes from the graph before it turns "
							"to an exact scan.",
							NULL,
							&gg_max_scan_tuples,
							GG_DEFAULT_MAX_SCAN_TUPLES, 1, INT_MAX,
							PGC_USERSET, GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE,
							WarnOfScanTuples, NULL, NULL);
	DefineSwitches();
}

gg_search_params
GgSearchSettings(void)
{
	return (gg_search_params) {
		.itopk_size = (uint32) gg_itopk_size,
		.mode = (gg_search_mode) search_mode,
		.rerank = (uint32) rerank_size
	};
}

static const char *
NameOf(const relopt_enum_elt_def *value, int symbol)
{
	while (value->string_val != NULL && value->symbol_val != symbol)
		value++;
	return value->string_val;
}

const char *
GgAlgorithmName(int algorithm)
{
	return NameOf(algorithm_values, algorithm);
}

const char *
GgCodesName(int codes)
{
	return NameOf(code_names, codes);
}

/* A parameter that is given must belong to the index's algorithm. */
static void
CheckOwner(const GgOptions *options, const Option *option)
{
	const void *value = (const char *) options + option->offset;
	const bool	given = option->type == RELOPT_TYPE_REAL ? *(const double *) value != 0 :
		*(const int *) value != 0;

	if (given && options->algorithm != option->owner)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is a parameter of algorithm \"%s\", not of \"%s\"", option->name,
						GgAlgorithmName(option->owner), GgAlgorithmName(options->algorithm)),
				 errhint("Leave it out or RESET it, or set algorithm to \"%s\".",
						 GgAlgorithmName(option->owner))));
}

/* GRNND's pools must have room for a node's edges, and for what they start with. */
static void
CheckPool(const GgOptions *options)
{
	int			capacity = options->pool_capacity != 0 ? options->pool_capacity :
		2 * options->graph_degree;

	if (capacity < options->graph_degree)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("pool_capacity %d is less than graph_degree %d", capacity,
						options->graph_degree),
				 errhint("Set pool_capacity to at least graph_degree; "
						 "twice as much is the default.")));
	if (options->initial_neighbors > capacity)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("initial_neighbors %d is more than pool_capacity %d",
						options->initial_neighbors, capacity),
				 errhint("Raise pool_capacity, or lower initial_neighbors.")));
}

static void
CheckOptions(const GgOptions *options)
{
	for (int i = 0; i < lengthof(index_options); i++)
		if (index_options[i].owner != 0)
			CheckOwner(options, &index_options[i]);
	if (options->algorithm == GG_ALGORITHM_GRNND)
		CheckPool(options);
	else if (options->intermediate_graph_degree < options->graph_degree)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("intermediate_graph_degree %d is less than graph_degree %d",
						options->intermediate_graph_degree, options->graph_degree),
				 errhint("Set intermediate_graph_degree to at least graph_degree; "
						 "twice as much is usual.")));
}

bytea *
ggoptions(Datum reloptions, bool validate)
{
	relopt_parse_elt tab[lengthof(index_options)] = {0};
	GgOptions  *options;

	for (int i = 0; i < lengthof(tab); i++)
	{
		tab[i].optname = index_options[i].name;
		tab[i].opttype = index_options[i].type;
		tab[i].offset = index_options[i].offset;
	}
	options = (GgOptions *) build_reloptions(reloptions, validate, gg_relopt_kind,
											 sizeof(GgOptions), tab, lengthof(tab));
	if (options == NULL)
		return NULL;
	options->codes = CODES_OF(options->storage);
	options->storage = STORAGE_OF(options->storage);
	if (validate)
		CheckOptions(options);
	return (bytea *) options;
}

void
GgGetOptions(Relation index, GgOptions *options)
{
	memcpy(options, index->rd_options != NULL ? (void *) index->rd_options : &usual_options,
		   sizeof(GgOptions));
	CheckOptions(options);
}

int
GgWishedDevices(Relation index)
{
	return index->rd_options != NULL ? ((const GgOptions *) index->rd_options)->devices : 0;
}

uint32
GgMostSegmentRows(const GgOptions *options, double rows)
{
	double		most = options->segment_rows > 0 ? options->segment_rows : PG_UINT32_MAX;

	if (options->devices > 1)
		most = Min(most, floor(rows / options->devices) + 1);
	return (uint32) most;
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
GgAvailableEngine(void)
{
#ifdef GG_WITH_CUDA
	if (gg_engine_setting != GG_ENGINE_CPU && ProbeCuda()->code == GG_OK)
		return &gg_cuda_engine;
#endif
	return &gg_cpu_engine;
}

const gg_engine *
GgChooseEngine(void)
{
	const gg_engine *engine = GgAvailableEngine();
	const char *why = "This gpugraph was built without CUDA.";

	if (gg_engine_setting != GG_ENGINE_CUDA || engine != &gg_cpu_engine)
		return engine;
#ifdef GG_WITH_CUDA
	why = ProbeCuda()->message;
#endif
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("gpugraph.engine is \"cuda\" but no GPU can be used"),
			 errdetail("%s", why),
			 errhint("Set gpugraph.engine to \"auto\" or \"cpu\" to use the CPU.")));
}
