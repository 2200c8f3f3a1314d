/*
 * bulk.c
 *		Many queries answered by a device at once.
 *
 * The device is asked for candidate lists as long as a walk for LIMIT k begins with, so answers are
 * as good.  Of each it returns somewhat more than k.  The candidates of all lists are merged, and
 * rows are looked up for all queries in rounds: as many for each as it lacks.  Mostly one round is
 * enough.  A query whose candidates end before it has k visible rows is left to a scan.
 *
 * Queries go to the device in batches, one after the other.  The rows of a batch are looked up
 * while the device has the next one.  Tried: the next batch's queries read meanwhile, too; no
 * clear gain (H200, 10,000 of 768 dimensions: 113, 109 ms before, 110, 79 with it).
 *
 * Where rows are stored rounded, each row's distance is that of the table's value, and rounds go on
 * until no later candidate of a query can be nearer than its k rows, as a scan does (finder.c).
 *
 * Where the index has codes alone, as many visible rows of each query are read from the table as a
 * scan would read (GgRowsToRead(), GgIsTooFar()), and the k nearest of these are the answer.
 *
 * Rows of the delta that came after the device's copy are measured here.  Segments that the device
 * lacks are searched here, too, while it has the request (missing.c).  Where it walks by codes and
 * has no rows, it is asked for as many nodes as a scan would measure, and they are measured here.
 * Where it has rounded rows, what it returns is measured here, too.  In both cases segments too
 * small for a walk are searched here.
 */
#include "many/bulk.h"

#include <math.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"
#include "storage/predicate.h"
#include "utils/float.h"
#include "utils/snapmgr.h"

#include "engine/keys.h"
#include "engine/request.h"

/* Candidates to have beside k, for rows that are not visible. */
#define SPARE_CANDIDATES	8

/* Memory for the rows of queries that are answered by one call of GgFindBulk(). */
#define ROW_BYTES			(4 << 20)

/*
 * Rows that a device may lack of a delta that grows.  With more, the CPU would take longer to
 * measure them for a query than a scan takes for the whole query.
 */
#define MOST_TAIL_ROWS		4096

#define ATTEMPTS			3

/* A query of a batch. */
typedef struct BulkQuery
{
	uint32		ncandidates;
	uint32		next;			/* candidate */
	bool		complete;		/* there is no row behind the candidates */
	bool		no_angle;		/* the query is a zero vector under cosine */
	uint32		measured;		/* rows that were visible */
	uint32		taken;			/* candidates that the measured rows belong to */
	uint32		last;			/* number of the candidate taken last, from 1 */
	uint32		until;			/* candidates to take before the next look if they suffice */
	float		largest_error;	/* of the estimates of rows that were read */
	int			list;			/* of the rows to come */
	uint32		row;
	uint32		row_end;
	float		distance;
} BulkQuery;

/* A row that is looked up. */
typedef struct LookedUp
{
	uint32		query;
	uint32		candidate;		/* its number, from 1 */
	float		distance;
} LookedUp;

struct GgBulk
{
	GgLists		lists;
	GgFinder   *finder;
	const GgRowMap *map;		/* may be NULL */
	GgCopies   *copies;			/* of segments that the device lacks */
	uint32		k;
	uint32		most;			/* queries for GgFindBulk() */
	uint32		list;			/* length of the list that the settings ask for */
	uint32		memory;			/* queries of a batch that there is memory for */
	uint32		room;			/* queries of a batch */
	GgScanNote *note;			/* of all queries that the device answered */

	/* the queries of one call, and what was found */
	const Datum *values;		/* NULL: GgReadQueries brings them */
	GgFoundRow *rows;			/* k for each query */
	uint32	   *found;			/* how many there are, or GG_BULK_SHORT */

	/* where rows are stored rounded, or as codes alone */
	uint32		due;			/* rows of the table to read for each query, at most; 0: none */
	GgBound    *bounds;			/* of the batch's queries; NULL: rows are not rounded */

	/* what the device is asked for */
	GgResidentRef ref;
	GgAsk		ask;
	uint32		nasked;
	uint32		rowless;		/* bitmap of walked segments whose keys are estimates */
	uint32		halved;			/* bitmap of walked segments whose keys are of rounded rows */
	uint32		reranked;		/* nodes that are measured by stored rows after walks by codes */

	/* all lists, in the order of answers: those that the device is not asked for come last */
	uint32		nlists;
	uint8		answers_of[GG_SERVE_MAX_LISTS];
	uint32		missing;		/* bitmap of segments that are searched here */
	uint32		exact;			/* bitmap of segments whose rows are all measured */

	/* rows of the delta that the device does not have */
	GgDeltaRows tail;
	gg_distance_fn distance;

	/* the batch that the device is asked for, and its answers */
	float	   *vectors;
	Size		answers;		/* that there is room for */
	uint64	   *keys;

	/* the batch that the device has answered, whose rows are still to be found */
	uint32		first;			/* among the queries of the call */
	uint32		count;			/* 0: there is none */
	BulkQuery  *queries;
	uint64	   *candidates;		/* keys, as many for each query as were asked for */
	uint8	   *candidate_lists;	/* the list of each candidate */
	GgPlace    *places;			/* of rows that are looked up */
	LookedUp   *looked_up;
	ItemPointerData *ctids;
};

/* ---- what to ask ------------------------------------------------------------------ */

/* The candidate list that a walk for LIMIT k begins with. */
static uint64
ListLength(const GgBulk *bulk, uint64 k)
{
	return gg_iterative_scan == GG_ITERATIVE_OFF ? bulk->list :
		GgFirstWalkList(bulk->list, k, GG_MAX_ITOPK);
}

/* The list that a scan begins with: the longer one of a device with rows and one with codes. */
static uint32
LongestList(Relation index, uint64 k)
{
	GgMetaPageData *meta = GgReadDirectory(index);
	const uint32 list = Max(GgSettledList(index, meta, GG_FORM_GPU_ROWS, k),
							GgSettledList(index, meta, GG_FORM_GPU_CODES, k));

	pfree(meta);
	return list;
}

/* Keys to have of each list where so many rows are to be found. */
static uint32
KeysFor(uint32 rows)
{
	return rows + rows / 2 + SPARE_CANDIDATES;
}

static uint32
KeysWanted(const GgBulk *bulk)
{
	return Min(bulk->ask.request.params.itopk_size, KeysFor(Max(bulk->due, bulk->k)));
}

static void
ChooseLists(GgBulk *bulk)
{
	const GgMetaPageData *meta = bulk->lists.meta;
	const GgForms *forms = &bulk->ref.forms;
	gg_request *request = &bulk->ask.request;

	request->nsegments = meta->nsegments;
	request->lists = bulk->exact = bulk->missing = 0;
	bulk->nasked = 0;
	for (int i = 0; i < meta->nsegments; i++)
	{
		uint32		bit = (uint32) 1 << i;

		if (bulk->lists.sources[i].index == NULL)
			continue;
		if (request->params.itopk_size > meta->segments[i].nodes / GG_EXACT_SHARE)
			bulk->exact |= bit;
		if (((forms->missing | ((forms->rowless | forms->halved) & bulk->exact)) & bit) != 0)
			bulk->missing |= bit;
		else
		{
			request->lists |= bit;
			bulk->answers_of[bulk->nasked++] = i;
		}
	}
	request->measured = bulk->exact & request->lists;
	bulk->rowless = forms->rowless & request->lists;
	bulk->halved = forms->halved & request->lists;
	request->delta = bulk->ref.delta_pages > 0;
	if (request->delta)
		bulk->answers_of[bulk->nasked++] = meta->nsegments;
	bulk->nlists = bulk->nasked;
	for (int i = 0; i < meta->nsegments; i++)
		if ((bulk->missing >> i & 1) != 0)
			bulk->answers_of[bulk->nlists++] = i;
}

/*
 * Where walks are by codes: choose how many nodes are measured by row, and ask for as many where
 * that is done here.  False: there is no room for so many keys any more.
 */
static bool
ChooseRerank(GgBulk *bulk)
{
	gg_request *request = &bulk->ask.request;
	const uint32 coded = bulk->ref.forms.coded & request->lists & ~request->measured;
	gg_search_params params = request->params;
	uint32		size;

	params.k = KeysWanted(bulk);
	size = gg_rerank_size(&params, GG_DEVICE_CODES((gg_metric) bulk->lists.meta->metric),
						  request->dim);
	bulk->reranked = pg_popcount32(coded) * size;
	if ((bulk->rowless | bulk->halved) == 0 || bulk->due > 0 || request->params.k >= size)
		return true;
	request->params.k = size;
	return bulk->keys == NULL;
}

/*
 * Choose the lists' length and, where the index has codes alone, how many rows of the table are
 * read.  False: the lists are too long or, now that there is room, that number is another one.
 */
static bool
ChooseDue(GgBulk *bulk)
{
	const gg_search_params settings = GgSearchSettings();
	gg_search_params *params = &bulk->ask.request.params;
	uint32		due = 0;
	uint64		itopk = ListLength(bulk, bulk->k);

	if (bulk->lists.meta->coded != GG_CODES_NONE)
	{
		due = GgRowsToRead(bulk->lists.meta, &settings,
						   GgRowsWanted(gg_iterative_scan, &settings, bulk->k, bulk->k - 1));
		itopk = Max(ListLength(bulk, due), KeysFor(due));
	}
	if (bulk->keys != NULL)
		return due == bulk->due;
	bulk->due = due;
	params->itopk_size = (uint32) Min(itopk, GG_MAX_ITOPK);
	params->k = KeysWanted(bulk);
	return itopk <= GG_MAX_ITOPK;
}

/* Find the resident, and read the delta's rows that it lacks.  False: there is none to use. */
static bool
FindResident(GgBulk *bulk)
{
	const GgTarget *target = bulk->lists.target;
	GgMetaPageData *meta = palloc(sizeof(GgMetaPageData));
	GgReason	reason;

	GgReadMetaAsOf(target->index, GetActiveSnapshot(), meta);
	GgOpenLists(&bulk->lists, target, meta);
	if (!ChooseDue(bulk) || !GgResidentLookup(target->index, meta, &bulk->ref, &reason) ||
		bulk->ref.nsegments != meta->nsegments ||
		bulk->ref.delta_pages > meta->delta_pages ||
		bulk->ref.delta_pages % GgDeltaPagesPerRow(meta) != 0 ||
		GgRowsOnPages(meta, meta->delta_pages - bulk->ref.delta_pages) > MOST_TAIL_ROWS)
		return false;
	GgReadDelta(&bulk->lists, bulk->ref.delta_pages, meta->delta_pages, &bulk->tail);
	bulk->distance = gg_distance_function(meta->metric, meta->element);
	bulk->ask.request.dim = meta->dimensions;
	ChooseLists(bulk);
	if (bulk->nasked == 0 || (bulk->missing != 0 && gg_engine_setting == GG_ENGINE_CUDA) ||
		!ChooseRerank(bulk))
		return false;
	bulk->room = Min(bulk->memory, GgServiceBulkRoom(&bulk->ref, meta->dimensions,
													 bulk->ask.request.params.k, bulk->nasked));
	return bulk->room > 0;
}

GgBulk *
GgOpenBulk(GgFinder *finder, uint64 k, uint32 expected, GgCopies *copies, GgScanNote *note)
{
	const GgTarget *target = finder->target;
	GgBulk	   *bulk;
	uint64		itopk;
	gg_search_params *params;
	Size		looks;

	if (gg_engine_setting == GG_ENGINE_CPU || gg_service == NULL || gg_target_recall == 1)
		return NULL;
	bulk = palloc0(sizeof(GgBulk));
	params = &bulk->ask.request.params;
	bulk->list = LongestList(target->index, k);
	itopk = ListLength(bulk, k);
	if (itopk > GG_MAX_ITOPK)
		return NULL;
	bulk->lists.target = target;
	bulk->finder = finder;
	bulk->copies = copies;
	bulk->note = note;
	bulk->k = (uint32) Min(k, itopk);
	*params = GgSearchSettings();
	bulk->memory = Max(expected, 1);
	if (!FindResident(bulk))
		return NULL;

	bulk->memory = bulk->room;
	bulk->most = Max(ROW_BYTES / (bulk->k * sizeof(GgFoundRow)), bulk->room);
	bulk->most = Min(bulk->most, Max(expected, 1));
	bulk->rows = MemoryContextAllocHuge(CurrentMemoryContext,
										(Size) bulk->most * bulk->k * sizeof(GgFoundRow));
	bulk->found = palloc(bulk->most * sizeof(uint32));
	bulk->answers = (Size) bulk->nlists * bulk->room * params->k;
	bulk->keys = MemoryContextAllocHuge(CurrentMemoryContext, bulk->answers * sizeof(uint64));
	bulk->vectors = palloc((Size) bulk->room * bulk->ask.request.dim * sizeof(float));
	bulk->queries = palloc(bulk->room * sizeof(BulkQuery));
	bulk->candidates = palloc(bulk->room * params->k * sizeof(uint64));
	bulk->candidate_lists = palloc(bulk->room * params->k);
	looks = bulk->room * Max(bulk->due, bulk->k);
	bulk->places = palloc(looks * sizeof(GgPlace));
	bulk->looked_up = palloc(looks * sizeof(LookedUp));
	bulk->ctids = palloc(looks * sizeof(ItemPointerData));
	if (bulk->lists.meta->element != target->opclass->element)
		bulk->bounds = palloc(bulk->room * sizeof(GgBound));
	PredicateLockRelation(target->index, GetActiveSnapshot());
	return bulk;
}

/* ---- what callers see --------------------------------------------------------------- */

void
GgUseRowMap(GgBulk *bulk, const GgRowMap *map)
{
	bulk->map = map;
}

GgLists *
GgListsOf(GgBulk *bulk)
{
	return &bulk->lists;
}

uint32
GgMostRows(const GgBulk *bulk)
{
	return bulk->k;
}

uint32
GgMostQueries(const GgBulk *bulk)
{
	return bulk->most;
}

uint32
GgFoundRows(const GgBulk *bulk, uint32 query, GgFoundRow **rows)
{
	*rows = bulk->rows + (Size) query * bulk->k;
	return bulk->found[query];
}

/* ---- candidates -------------------------------------------------------------------- */

/* The nearest rows of the tail, as keys of numbers in the delta, ascending; returns how many. */
static uint32
MeasureTail(const GgBulk *bulk, const float *vector, uint64 *keys)
{
	Size		row_bytes = GgRowBytes(bulk->lists.meta);
	uint32		most = bulk->ask.request.params.k;
	uint32		n = 0;

	for (uint32 i = 0; i < bulk->tail.count; i++)
		n = heap_offer(keys, n, most,
					   key_of(bulk->distance(bulk->tail.vectors + i * row_bytes, vector,
											 bulk->ask.request.dim), bulk->tail.rows[i]));
	heap_sort(keys, n);
	return n;
}

/* The heads of a query's lists while they are merged. */
typedef struct Merge
{
	const uint64 *keys[GG_SERVE_MAX_LISTS];
	uint32		next[GG_SERVE_MAX_LISTS];
	const uint64 *tail;
	uint32		ntail;
	uint32		next_tail;
} Merge;

/* Were all rows of this list measured?  Then there is none behind its end. */
static bool
EndsHere(const GgBulk *bulk, uint32 l)
{
	int			list = bulk->answers_of[l];

	return list == bulk->lists.meta->nsegments || (bulk->exact >> list & 1) != 0;
}

/*
 * Which list has the nearest head: -1 the tail, -2 none.  False: a list is used up, though it goes
 * on in the index, so the next row is not known.
 */
static bool
NearestList(const GgBulk *bulk, const Merge *merge, int *nearest)
{
	uint32		k = bulk->ask.request.params.k;
	uint64		least = GG_NO_KEY;

	*nearest = -2;
	for (uint32 l = 0; l < bulk->nlists; l++)
	{
		uint32		i = merge->next[l];

		if (i == k || merge->keys[l][i] == GG_NO_KEY)
		{
			if (i == k || !EndsHere(bulk, l))
				return false;
		}
		else if (merge->keys[l][i] >> 32 < least >> 32)
		{
			/* nodes of different lists are not compared */
			least = merge->keys[l][i];
			*nearest = (int) l;
		}
	}
	/* as in a scan, the tail comes last of rows at equal distances */
	if (merge->next_tail < merge->ntail)
	{
		if (merge->tail[merge->next_tail] >> 32 < least >> 32)
			*nearest = -1;
	}
	else if (merge->ntail < bulk->tail.count)
		return false;
	return true;
}

/* Merge the lists of query q into its candidates. */
static void
MergeLists(GgBulk *bulk, uint32 q, Merge *merge)
{
	const GgMetaPageData *meta = bulk->lists.meta;
	BulkQuery  *query = &bulk->queries[q];
	uint32		k = bulk->ask.request.params.k;
	uint64	   *candidates = bulk->candidates + (Size) q * k;
	uint8	   *lists = bulk->candidate_lists + (Size) q * k;
	uint32		n = 0;
	int			l = -2;

	for (uint32 i = 0; i < bulk->nlists; i++)
	{
		merge->keys[i] = bulk->keys + ((Size) i * bulk->ask.request.count + q) * k;
		merge->next[i] = 0;
	}
	merge->next_tail = 0;
	while (n < k && NearestList(bulk, merge, &l) && l != -2)
	{
		int			list = l == -1 ? meta->nsegments : bulk->answers_of[l];
		uint32		limit = PG_UINT32_MAX;

		if (l != -1)
			limit = list < meta->nsegments ? meta->segments[list].nodes :
				GgRowsOnPages(meta, meta->delta_pages);
		candidates[n] = l == -1 ? merge->tail[merge->next_tail++] :
			merge->keys[l][merge->next[l]++];
		lists[n] = (uint8) list;
		n += key_node(candidates[n]) < limit;
	}
	query->ncandidates = n;
	query->complete = n < k && NearestList(bulk, merge, &l) && l == -2;
	query->next = query->measured = query->taken = query->last = query->until = 0;
	query->largest_error = 0;
	query->row = query->row_end = 0;
}

/* The batch's answers of a list. */
static GgMissingList
AnswersOf(const GgBulk *bulk, uint32 l)
{
	const gg_request *request = &bulk->ask.request;
	int			list = bulk->answers_of[l];

	return (GgMissingList) {
		.list = list,
		.exact = (bulk->exact >> list & 1) != 0,
		.vectors = bulk->vectors,
		.count = request->count,
		.params = &request->params,
		.keys = bulk->keys + (Size) l * request->count * request->params.k
	};
}

/* Measure by stored rows what was found by a device that has no rows, or rounded ones. */
static void
MeasureFound(GgBulk *bulk)
{
	for (uint32 l = 0; l < bulk->nasked && bulk->due == 0; l++)
	{
		const GgMissingList found = AnswersOf(bulk, l);
		const bool	halved = (bulk->halved >> found.list & 1) != 0;

		if (found.list < bulk->lists.meta->nsegments &&
			(halved || (bulk->rowless >> found.list & 1) != 0))
			GgMeasureFound(&bulk->lists, &found, halved, KeysWanted(bulk));
	}
}

/* Make the candidates of a batch that the device has answered. */
static void
MakeCandidates(GgBulk *bulk)
{
	bool		cosine = bulk->lists.meta->metric == GG_METRIC_COSINE;
	const gg_request *request = &bulk->ask.request;
	uint64	   *keys = palloc(Max(request->params.k, 1) * sizeof(uint64));
	Merge		merge;

	MeasureFound(bulk);
	for (uint32 q = 0; q < request->count; q++)
	{
		const float *vector = bulk->vectors + (Size) q * request->dim;

		merge.tail = keys;
		merge.ntail = MeasureTail(bulk, vector, keys);
		MergeLists(bulk, q, &merge);
		bulk->queries[q].no_angle = cosine && GgIsZeroVector(vector, request->dim);
		if (bulk->tail.count > 0)
			CHECK_FOR_INTERRUPTS();
	}
	pfree(keys);
}

/* Search the lists that the device is not asked for. */
static void
SearchMissing(GgBulk *bulk)
{
	for (uint32 l = bulk->nasked; l < bulk->nlists; l++)
	{
		const GgMissingList missing = AnswersOf(bulk, l);

		GgSearchMissing(&bulk->lists, bulk->copies, &missing);
	}
}

/* ---- rows --------------------------------------------------------------------------- */

/* The next row of a query's candidates; false when there is none. */
static bool
NextRow(GgBulk *bulk, uint32 q, GgPlace *place)
{
	BulkQuery  *query = &bulk->queries[q];

	while (query->row == query->row_end)
	{
		Size		i = (Size) q * bulk->ask.request.params.k + query->next;

		if (query->next == query->ncandidates)
			return false;
		query->next++;
		query->list = bulk->candidate_lists[i];
		query->distance = key_distance(bulk->candidates[i]);
		GgRowsOfNode(&bulk->lists, query->list, key_node(bulk->candidates[i]), &query->row,
					 &query->row_end);
	}
	*place = GgPlaceOf(query->list, query->row++);
	return true;
}

/* The distance of the next row of a query's candidates; false when there is none. */
static bool
PeekDistance(const GgBulk *bulk, uint32 q, float *distance)
{
	const BulkQuery *query = &bulk->queries[q];

	if (query->row == query->row_end && query->next == query->ncandidates)
		return false;
	*distance = query->row < query->row_end ? query->distance :
		key_distance(bulk->candidates[(Size) q * bulk->ask.request.params.k + query->next]);
	return true;
}

/* Is the order of a query's rows that of the table's values? */
static bool
IsRounded(const GgBulk *bulk, uint32 q)
{
	return bulk->bounds != NULL && bulk->bounds[q].rounded;
}

/* May a row at this distance, or behind it, be nearer than the last of a query's k rows? */
static bool
MayBeNearer(const GgBulk *bulk, uint32 q, float distance, const GgFoundRow *rows)
{
	return IsRounded(bulk, q) && gg_iterative_scan != GG_ITERATIVE_RELAXED &&
		float8_lt(GgBoundOf(&bulk->bounds[q], distance), rows[bulk->k - 1].distance);
}

static bool
ReadsAllDue(void)
{
	const gg_search_params settings = GgSearchSettings();

	return GgReadsAllDue(gg_iterative_scan, &settings);
}

/*
 * Where rows are read from the table: are a query's k nearest among those that were read?  The rule
 * is that of table_order.c.
 */
static bool
IsReadEnough(const GgBulk *bulk, uint32 q, uint32 has, const GgFoundRow *rows)
{
	const BulkQuery *query = &bulk->queries[q];
	float		next;

	if (query->taken >= bulk->due || query->measured / GG_MOST_ROWS_PER_NODE >= bulk->due)
		return true;
	return !ReadsAllDue() && query->taken >= query->until && has == bulk->k &&
		PeekDistance(bulk, q, &next) &&
		GgIsTooFar(next, GgEngineDistance(bulk->lists.meta->metric, rows[bulk->k - 1].distance),
				   query->largest_error);
}

/* Before a round: how many candidates is the query to have taken when it ends? */
static uint32
ReadUntil(const GgBulk *bulk, uint32 q, uint32 has, const GgFoundRow *rows)
{
	const BulkQuery *query = &bulk->queries[q];

	if (query->taken < query->until || IsReadEnough(bulk, q, has, rows))
		return query->until;
	return ReadsAllDue() ? bulk->due :
		(uint32) GgMeasureUntil(query->taken, bulk->k, bulk->due);
}

/* Does a query that has `has` rows want another one, beside those that it is looking up? */
static bool
WantsRow(const GgBulk *bulk, uint32 q, uint32 has, uint32 looks_up, const GgFoundRow *rows)
{
	const BulkQuery *query = &bulk->queries[q];
	float		distance;

	if (bulk->due > 0)
		return query->taken + looks_up < query->until &&
			(query->measured + looks_up) / GG_MOST_ROWS_PER_NODE < bulk->due;
	if (has < bulk->k)
		return has + looks_up < bulk->k;
	return looks_up < bulk->k && PeekDistance(bulk, q, &distance) &&
		MayBeNearer(bulk, q, distance, rows);
}

/* Nothing that a scan would find is missing from a query's rows. */
static bool
IsSettled(const GgBulk *bulk, uint32 q, uint32 has, const GgFoundRow *rows)
{
	const BulkQuery *query = &bulk->queries[q];
	float		distance;

	if (query->complete || has < bulk->k)
		return query->complete;
	if (bulk->due > 0)
		return IsReadEnough(bulk, q, has, rows);
	return PeekDistance(bulk, q, &distance) || !MayBeNearer(bulk, q, query->distance, rows);
}

/* Put a visible row among those of its query, of which there are *has. */
static void
TakeRow(GgBulk *bulk, const LookedUp *found, ItemPointer ctid, GgFoundRow *rows, uint32 *has)
{
	const uint32 q = found->query;
	const float distance = found->distance;
	GgFoundRow	row = {*ctid, GgOperatorDistance(bulk->lists.meta->metric, distance)};
	BulkQuery  *query = &bulk->queries[q];
	uint32		place = *has;
	float		error;

	query->measured++;
	query->taken += found->candidate != query->last;
	query->last = found->candidate;
	if (IsRounded(bulk, q) || bulk->due > 0)
	{
		row.distance = GgTrueDistance(bulk->finder, bulk->values[bulk->first + q], ctid);
		error = fabsf(GgEngineDistance(bulk->lists.meta->metric, row.distance) - distance);
		query->largest_error = Max(query->largest_error, error);
		while (place > 0 && float8_lt(row.distance, rows[place - 1].distance))
			place--;
	}
	if (place == bulk->k)
		return;
	*has = Min(*has + 1, bulk->k);
	memmove(&rows[place + 1], &rows[place], (*has - 1 - place) * sizeof(GgFoundRow));
	rows[place] = row;
}

/*
 * One round: look up as many rows of each query of the batch as it wants, and take those that are
 * visible.  Returns how many were looked up.
 */
static uint32
Round(GgBulk *bulk)
{
	GgFoundRow *batch = bulk->rows + (Size) bulk->first * bulk->k;
	uint32	   *found = bulk->found + bulk->first;
	uint32		n = 0;

	for (uint32 q = 0; q < bulk->count; q++)
	{
		const GgFoundRow *rows = batch + (Size) q * bulk->k;

		if (bulk->due > 0)
			bulk->queries[q].until = ReadUntil(bulk, q, found[q], rows);
		for (uint32 i = 0; WantsRow(bulk, q, found[q], i, rows) &&
			 NextRow(bulk, q, &bulk->places[n]); i++)
		{
			bulk->looked_up[n++] = (LookedUp) {
				.query = q, .candidate = bulk->queries[q].next,
				.distance = bulk->queries[q].distance
			};
		}
	}
	GgResolve(&bulk->lists, bulk->map, bulk->places, n, bulk->ctids);
	for (uint32 i = 0; i < n; i++)
	{
		uint32		q = bulk->looked_up[i].query;

		if (ItemPointerIsValid(&bulk->ctids[i]))
			TakeRow(bulk, &bulk->looked_up[i], &bulk->ctids[i],
					batch + (Size) q * bulk->k, &found[q]);
		if (bulk->bounds != NULL || bulk->due > 0)
			CHECK_FOR_INTERRUPTS();
	}
	return n;
}

/* A query was answered. */
static void
NoteQuery(GgBulk *bulk, uint32 q, uint32 found)
{
	const gg_request *request = &bulk->ask.request;
	bool		tail = bulk->tail.count > 0;
	GgScanNote	note = {
		.index = RelationGetRelid(bulk->lists.target->index),
		.queries = 1,
		.by_device = bulk->missing == 0,
		.by_both = bulk->missing != 0,
		.reason = GG_REASON_PARTIAL,
		.lists = bulk->nlists + tail,
		.exact_lists = pg_popcount32(bulk->exact) + request->delta + tail,
		.rows = found,
		.list = request->params.itopk_size,
		.distances = bulk->tail.count,
		.reranked = bulk->due > 0 ? bulk->queries[q].measured : bulk->reranked
	};

	if (((request->lists & ~request->measured) | (bulk->missing & ~bulk->exact)) != 0)
		note.procedures |= GgProcedureOf(request->params.mode);
	GgAddNote(bulk->note, &note);
}

/* Find the rows of the batch that was answered last, if that was not done. */
static void
FindRows(GgBulk *bulk)
{
	const GgMetaPageData *meta = bulk->lists.meta;
	const GgTarget *target = bulk->lists.target;
	uint32	   *found = bulk->found + bulk->first;

	if (bulk->count == 0)
		return;
	memset(found, 0, bulk->count * sizeof(uint32));
	for (uint32 q = 0; bulk->bounds != NULL && q < bulk->count; q++)
		GgBoundInit(&bulk->bounds[q], target->opclass, meta, bulk->values[bulk->first + q],
					bulk->vectors);
	while (Round(bulk) > 0)
		CHECK_FOR_INTERRUPTS();
	for (uint32 q = 0; q < bulk->count; q++)
	{
		GgFoundRow *rows = bulk->rows + (Size) (bulk->first + q) * bulk->k;

		for (uint32 i = 0; i < found[q] && bulk->queries[q].no_angle; i++)
			rows[i].distance = get_float8_nan();
		if (!IsSettled(bulk, q, found[q], rows))
		{
			found[q] = GG_BULK_SHORT;
			continue;
		}
		pgstat_count_index_scan(target->index);
		GgCountQuery(RelationGetRelid(target->index),
					 bulk->missing != 0 ? GG_REASON_PARTIAL : GG_REASON_NONE, found[q]);
		NoteQuery(bulk, q, found[q]);
	}
	bulk->count = 0;
}

/* ---- batches ------------------------------------------------------------------------ */

static void
ReadValues(GgBulk *bulk, uint32 first, uint32 count)
{
	uint32		dim = bulk->ask.request.dim;

	for (uint32 i = 0; i < count; i++)
	{
		float	   *vector = GgQueryFromValue(bulk->lists.target->opclass, bulk->values[first + i],
											  dim);

		memcpy(bulk->vectors + (Size) i * dim, vector, dim * sizeof(float));
		pfree(vector);
	}
}

/* While the device has a batch: search the lists that it lacks, and find the last one's rows. */
static void
Meanwhile(void *arg)
{
	SearchMissing(arg);
	FindRows(arg);
}

/*
 * Ask for a batch of queries, from first on; false: no device answers.  The resident may be
 * replaced at any time by a newer one with other lists.  Then the batch is asked anew.
 */
static bool
AskBatch(GgBulk *bulk, GgReadQueries read, void *arg, uint32 first, uint32 most)
{
	gg_request *request = &bulk->ask.request;
	int			attempts = 0;
	GgReason	reason;

	bulk->ask.queries = bulk->vectors;
	bulk->ask.meanwhile = (GgMeanwhile) {Meanwhile, bulk};
	for (;;)
	{
		/* the lists may be others than those that were answered before */
		GgForgetAnswers(&bulk->ref);
		request->count = Min(bulk->room, most);
		if (read != NULL)
			read(arg, first, request->count, bulk->vectors);
		else
			ReadValues(bulk, first, request->count);
		if (GgServiceAsk(&bulk->ref, &bulk->ask, bulk->keys, NULL, &reason))
			return true;
		/* the batch before was answered by the old lists: find its rows before they change */
		FindRows(bulk);
		if (!GgAskAnother(&bulk->ref, reason) ||
			++attempts > ATTEMPTS + pg_popcount32(bulk->ref.avoid) || !FindResident(bulk) ||
			(Size) bulk->nlists * bulk->room * request->params.k > bulk->answers)
			return false;
	}
}

uint32
GgFindBulk(GgBulk *bulk, GgReadQueries read, void *arg, uint32 count)
{
	uint32		next = 0;

	bulk->values = read == NULL ? arg : NULL;
	while (next < count && AskBatch(bulk, read, arg, next, count - next))
	{
		bulk->first = next;
		bulk->count = bulk->ask.request.count;
		MakeCandidates(bulk);
		next += bulk->ask.request.count;
	}
	FindRows(bulk);
	return next;
}
