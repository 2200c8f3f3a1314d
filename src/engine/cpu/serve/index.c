/*
 * index.c
 *		Rows and graph in memory, searched: by walks, and exactly.
 *
 * No answer depends on how either search shares its work among threads.  A walk belongs to one
 * query, and the exact scan's lists are merged in the total order of (distance, node).
 *
 * Where the index has codes, walks measure by these, and the nearest nodes of their lists are then
 * measured by row.
 */
#include <stdlib.h>
#include <string.h>

#include "index.h"
#include "engine/keys.h"
#include "engine/request.h"
#include "engine/cpu/common/threads.h"

/*
 * Queries that go through the rows together in the exact scan.  A block of rows is read from
 * memory once for all of them; with more, each thread's heaps would leave its cache.
 */
#define EXACT_QUERIES 32u

/* Bytes of rows a thread takes at a time in the exact scan: small enough for its L2 cache. */
#define EXACT_BLOCK_BYTES ((size_t) 128 * 1024)

/* Rows a block has at most, whatever their size; the block's list of passing rows is that long. */
#define EXACT_BLOCK_ROWS 1024u

/*
 * The walk prefetches this many rows ahead of the one that it measures, and of each the first cache
 * lines, after which the CPU's own prefetcher has seen the stream.  Rows of 784 floats, time per
 * distance: 4 rows, 1 kB 0.32 us; 2 rows 0.34; 8 rows, 512 bytes 0.36; whole rows 0.37 .. 0.45.
 */
#define PREFETCH_ROWS 4u
#define PREFETCH_BYTES 1024u
#define CACHE_LINE 64u

static inline const char *
row_at(const gg_index *index, uint32_t node)
{
	return (const char *) index->data.rows + (size_t) node * index->row_bytes;
}

/* ---- the source of a walk ---------------------------------------------- */

static inline void
prefetch_row(const gg_index *index, uint32_t node)
{
	const char *row = row_at(index, node);
	size_t		bytes = index->row_bytes < PREFETCH_BYTES ? index->row_bytes : PREFETCH_BYTES;

	for (size_t i = 0; i < bytes; i += CACHE_LINE)
		__builtin_prefetch(row + i);
}

void
gg_cpu_distances(const gg_index *index, const float *query, const uint32_t *nodes, uint32_t count,
				 float *out)
{
	gg_distance_fn distance = index->distance;
	uint32_t	dim = index->data.dim;

	for (uint32_t i = 0; i < count && i < PREFETCH_ROWS; i++)
		prefetch_row(index, nodes[i]);
	for (uint32_t i = 0; i < count; i++)
	{
		if (i + PREFETCH_ROWS < count)
			prefetch_row(index, nodes[i + PREFETCH_ROWS]);
		out[i] = distance(row_at(index, nodes[i]), query, dim);
	}
}

static bool
memory_distances(void *ctx, const uint32_t *nodes, uint32_t count, float *out)
{
	const gg_memory_source *source = ctx;

	gg_cpu_distances(source->index, source->query, nodes, count, out);
	return true;
}

static inline const uint8_t *
record_at(const gg_index *index, uint32_t node)
{
	return index->own_codes + (size_t) node * index->coder.record_bytes;
}

static inline void
prefetch_record(const gg_index *index, uint32_t node)
{
	const uint8_t *record = record_at(index, node);
	size_t		bytes = index->coder.record_bytes;

	for (size_t i = 0; i < bytes && i < PREFETCH_BYTES; i += CACHE_LINE)
		__builtin_prefetch(record + i);
	__builtin_prefetch(record + bytes - 1);
}

static bool
memory_estimates(void *ctx, const uint32_t *nodes, uint32_t count, float *out)
{
	const gg_memory_source *source = ctx;
	const gg_index *index = source->index;

	for (uint32_t i = 0; i < count && i < PREFETCH_ROWS; i++)
		prefetch_record(index, nodes[i]);
	for (uint32_t i = 0; i < count; i++)
	{
		if (i + PREFETCH_ROWS < count)
			prefetch_record(index, nodes[i + PREFETCH_ROWS]);
		out[i] = gg_code_distance(&index->coder, record_at(index, nodes[i]), source->code);
	}
	return true;
}

static bool
memory_neighbors(void *ctx, const uint32_t *nodes, uint32_t count, uint32_t *out)
{
	const gg_graph *graph = &((const gg_memory_source *) ctx)->index->graph;

	for (uint32_t i = 0; i < count; i++)
		memcpy(out + (size_t) i * graph->degree,
			   graph->adjacency + (size_t) nodes[i] * graph->degree,
			   graph->degree * sizeof(uint32_t));
	return true;
}

static bool
memory_pivots(void *ctx, const uint32_t *pivots, uint32_t count, uint32_t *nodes,
			  uint32_t *neighbors)
{
	const gg_graph *graph = &((const gg_memory_source *) ctx)->index->graph;

	for (uint32_t i = 0; i < count; i++)
	{
		nodes[i] = graph->pivots[pivots[i]];
		memcpy(neighbors + (size_t) i * GG_PIVOT_DEGREE,
			   graph->pivot_adjacency + (size_t) pivots[i] * GG_PIVOT_DEGREE,
			   GG_PIVOT_DEGREE * sizeof(uint32_t));
	}
	return true;
}

gg_source
gg_cpu_source(gg_memory_source *memory)
{
	const gg_index *index = memory->index;

	return (gg_source) {
		.n = index->data.n,
		.degree = index->graph.degree,
		.npivots = index->graph.npivots,
		.ctx = memory,
		.distances = memory->code != NULL ? memory_estimates : memory_distances,
		.neighbors = memory_neighbors,
		.pivots = memory_pivots
	};
}

/* ---- opening and closing ----------------------------------------------- */

/*
 * graph may be NULL, for rows that are in no graph yet: then only index_exact() works.
 */
gg_status
gg_cpu_index_open(const gg_dataset *data, const gg_graph *graph, const gg_control *control,
				  gg_index **result)
{
	static const char *const where = "gg_cpu_index_open";
	gg_index   *index;

	(void) control;
	*result = NULL;
	if (data->dim < 1 || data->dim > GG_MAX_DIM)
		return gg_fail(GG_EINVAL, where, "%u dimensions are not within 1 .. %u", data->dim,
					   GG_MAX_DIM);
	if (data->n > GG_MAX_NODES)
		return gg_fail(GG_EINVAL, where, "%u rows are more than %u", data->n, GG_MAX_NODES);
	if (graph != NULL && graph->n != data->n)
		return gg_fail(GG_EINVAL, where, "graph of %u nodes over %u rows", graph->n, data->n);
	if (graph != NULL && graph->degree > GG_MAX_DEGREE)
		return gg_fail(GG_EINVAL, where, "degree %u is more than %u", graph->degree, GG_MAX_DEGREE);
	if (graph != NULL && data->n > 0 && (graph->npivots < 1 || graph->npivots > data->n))
		return gg_fail(GG_EINVAL, where, "%u pivots are not within 1 .. %u", graph->npivots,
					   data->n);
	if (gg_distance_function(data->metric, data->element) == NULL)
		return gg_fail(GG_EINVAL, where, "no metric %d over elements of type %d",
					   (int) data->metric, (int) data->element);

	index = calloc(1, sizeof(gg_index));
	if (index == NULL)
		return gg_fail(GG_ENOMEM, where, "out of memory for an index of %zu bytes",
					   sizeof(gg_index));
	index->data = *data;
	if (graph != NULL)
		index->graph = *graph;
	index->finished = true;
	index->distance = gg_distance_function(data->metric, data->element);
	index->row_bytes = data->dim * gg_element_size(data->element);
	*result = index;
	return gg_ok();
}

void
gg_cpu_index_close(gg_index *index)
{
	if (index == NULL)
		return;
	for (int i = 0; i < index->nstates; i++)
	{
		gg_walk_free(index->states[i].walk);
		free(index->states[i].query);
		gg_code_query_free(&index->states[i].code);
	}
	free(index->states);
	free(index->own_rows);
	free(index->own_adjacency);
	free(index->own_pivots);
	free(index->own_heads);
	free(index->own_offsets);
	free(index->own_words);
	free(index->own_codes);
	gg_coder_free(&index->coder);
	free(index);
}

/* An index that is filled piece by piece has rows only when it is finished. */
static gg_status
check_finished(const gg_index *index, const char *where)
{
	if (!index->finished)
		return gg_fail(GG_EINVAL, where, "the index is not finished");
	return gg_ok();
}

/* Have states for that many threads. */
static gg_status
provide_states(gg_index *index, int threads)
{
	static const char *const where = "gg_cpu_index_search";
	search_state *states;

	if (threads <= index->nstates)
		return gg_ok();
	states = realloc(index->states, (size_t) threads * sizeof(search_state));
	if (states == NULL)
		return gg_fail(GG_ENOMEM, where, "out of memory for %d search threads", threads);
	index->states = states;
	while (index->nstates < threads)
	{
		search_state *state = &states[index->nstates];
		gg_status	status = gg_walk_create(&state->walk);

		if (status.code != GG_OK)
			return status;
		/* the query has scratch memory for codes behind it */
		memset(&state->code, 0, sizeof(state->code));
		state->query = malloc(3 * (size_t) index->data.dim * sizeof(float));
		if (state->query == NULL)
			status = gg_fail(GG_ENOMEM, where, "out of memory for a query of %u dimensions",
							 index->data.dim);
		else if (index->own_codes != NULL)
			status = gg_code_query_init(&index->coder, &state->code);
		if (status.code != GG_OK)
		{
			gg_walk_free(state->walk);
			free(state->query);
			return status;
		}
		index->nstates++;
	}
	return gg_ok();
}

void
gg_cpu_load_query(const gg_index *index, const float *query, float *prepared)
{
	memcpy(prepared, query, index->data.dim * sizeof(float));
	gg_query_prepare(index->data.metric, prepared, index->data.dim);
}

/* Create a pool for a job of so many items, with no more threads than items. */
static gg_status
create_pool(gg_pool **pool, const gg_control *control, uint64_t items)
{
	gg_control	own = {0};

	if (control != NULL)
		own = *control;
	if (own.threads < 1)
		own.threads = 1;
	if ((uint64_t) own.threads > items)
		own.threads = (int) items;
	return gg_pool_create(pool, &own);
}

/* ---- by walks ---------------------------------------------------------- */

typedef struct search_job
{
	gg_index   *index;
	const gg_search_params *params;
	const float *queries;
	uint64_t   *keys;
} search_job;

/*
 * Take keys of the nearest nodes of a walk's list, at most `most`, ascending; returns how many.
 * With codes nodes are measured by row, unless the index has no rows.
 */
static uint32_t
take_nearest(const gg_index *index, search_state *state, uint32_t most, uint64_t *keys)
{
	const bool	rerank = index->own_codes != NULL && index->shape.row_place != GG_ROWS_NONE;
	uint32_t	nodes[GG_MAX_ITOPK];
	float		distances[GG_MAX_ITOPK];
	gg_candidate candidate;
	uint32_t	found = 0;

	while (found < most && gg_walk_next(state->walk, &candidate))
	{
		nodes[found] = candidate.node;
		distances[found++] = candidate.distance;
	}
	if (rerank)
		gg_cpu_distances(index, state->query, nodes, found, distances);
	for (uint32_t i = 0; i < found; i++)
		heap_push(keys, i, key_of(distances[i], nodes[i]));
	heap_sort(keys, found);
	return found;
}

static void
search_queries(gg_worker *worker, void *ctx, uint64_t begin, uint64_t end)
{
	search_job *job = ctx;
	gg_index   *index = job->index;
	const bool	codes = index->own_codes != NULL;
	search_state *state = &index->states[worker->id];
	uint32_t	k = job->params->k;
	uint32_t	most = codes ? gg_rerank_size(job->params, index->shape.codes, index->data.dim) : k;
	uint64_t	nearest[GG_MAX_ITOPK];
	gg_memory_source memory = {index, state->query, codes ? &state->code : NULL};
	gg_source	source = gg_cpu_source(&memory);

	for (uint64_t q = begin; q < end && !gg_worker_stopping(worker); q++)
	{
		uint64_t   *keys = job->keys + q * k;
		gg_status	status;
		uint32_t	found;

		gg_cpu_load_query(index, job->queries + q * index->data.dim, state->query);
		if (codes)
			gg_code_query_set(&index->coder, state->query, state->query + index->data.dim,
							  &state->code);
		status = gg_walk_search(state->walk, &source, job->params, INFINITY);
		if (status.code != GG_OK)
		{
			gg_worker_fail(worker, status);
			return;
		}
		found = take_nearest(index, state, most, nearest);
		for (uint32_t i = 0; i < k; i++)
			keys[i] = i < found ? nearest[i] : GG_NO_KEY;
	}
}

/*
 * search_width means nothing here: a CPU does best with its own.  The modes of CAGRA are one walk.
 */
gg_status
gg_cpu_index_search(gg_index *index, const gg_search_params *params, const float *queries,
					uint32_t nq, const gg_control *control, uint64_t *keys)
{
	static const char *const where = "gg_cpu_index_search";
	search_job	job = {index, params, queries, keys};
	gg_status	status;
	gg_pool    *pool;

	status = gg_check_params(where, params, true);
	if (status.code == GG_OK)
		status = check_finished(index, where);
	if (status.code != GG_OK)
		return status;
	if (index->data.n > 0 && index->graph.npivots == 0)
		return gg_fail(GG_EINVAL, where, "the index has no graph");
	if (nq == 0)
		return gg_ok();

	status = create_pool(&pool, control, nq);
	if (status.code != GG_OK)
		return status;
	status = provide_states(index, gg_pool_threads(pool));
	if (status.code == GG_OK)
		status = gg_pool_run(pool, search_queries, &job, nq, 1);
	gg_pool_free(pool);
	return status;
}

/* ---- exactly ----------------------------------------------------------- */

typedef struct exact_job
{
	const gg_index *index;
	const uint32_t *filter;
	uint32_t	k;
	uint32_t	nqueries;		/* of this round, at most EXACT_QUERIES */
	float	   *queries;		/* EXACT_QUERIES x dim, prepared */
	uint64_t   *heaps;			/* threads x EXACT_QUERIES x k keys */
	uint32_t   *counts;			/* threads x EXACT_QUERIES: keys in each heap */
} exact_job;

static void
scan_rows(gg_worker *worker, void *ctx, uint64_t begin, uint64_t end)
{
	exact_job  *job = ctx;
	const gg_index *index = job->index;
	uint32_t	k = job->k;
	uint32_t	dim = index->data.dim;
	uint32_t	rows[EXACT_BLOCK_ROWS];
	uint32_t	nrows = 0;

	for (uint64_t i = begin; i < end; i++)
	{
		if (job->filter == NULL || (job->filter[i / 32] >> (i % 32) & 1) != 0)
			rows[nrows++] = (uint32_t) i;
	}
	for (uint32_t q = 0; q < job->nqueries && nrows > 0 && !gg_worker_stopping(worker); q++)
	{
		size_t		own = (size_t) worker->id * EXACT_QUERIES + q;
		uint64_t   *heap = job->heaps + own * k;
		uint32_t	count = job->counts[own];
		const float *query = job->queries + (size_t) q * dim;

		for (uint32_t i = 0; i < nrows; i++)
			count = heap_offer(heap, count, k,
							   key_of(index->distance(row_at(index, rows[i]), query, dim),
									  rows[i]));
		job->counts[own] = count;
	}
}

/* The k nearest of all threads' heaps for query q, into the first thread's heap, sorted. */
static uint32_t
merge_heaps(const exact_job *job, int threads, uint32_t q)
{
	uint32_t	k = job->k;
	uint64_t   *heap = job->heaps + (size_t) q * k;
	uint32_t	count = job->counts[q];

	for (int t = 1; t < threads; t++)
	{
		size_t		other = (size_t) t * EXACT_QUERIES + q;

		for (uint32_t i = 0; i < job->counts[other]; i++)
			count = heap_offer(heap, count, k, job->heaps[other * k + i]);
	}
	heap_sort(heap, count);
	return count;
}

gg_status
gg_cpu_index_exact(gg_index *index, uint32_t k, const uint32_t *filter, const float *queries,
				   uint32_t nq, const gg_control *control, uint64_t *keys)
{
	static const char *const where = "gg_cpu_index_exact";
	exact_job	job = {.index = index,.filter = filter,.k = k};
	uint32_t	dim = index->data.dim;
	uint32_t	n = index->data.n;
	uint64_t	block = EXACT_BLOCK_BYTES / index->row_bytes;
	gg_status	status;
	gg_pool    *pool;
	int			threads;

	if (k < 1 || k > GG_MAX_ITOPK)
		return gg_fail(GG_EINVAL, where, "k %u is not within 1 .. %u", k, GG_MAX_ITOPK);
	status = check_finished(index, where);
	if (status.code != GG_OK)
		return status;
	if (index->shape.row_place == GG_ROWS_NONE)
		return gg_fail(GG_EUNSUPPORTED, where, "the index has no rows to measure");
	if (nq == 0)
		return gg_ok();
	if (block < 1)
		block = 1;
	if (block > EXACT_BLOCK_ROWS)
		block = EXACT_BLOCK_ROWS;

	status = create_pool(&pool, control, n / block + 1);
	if (status.code != GG_OK)
		return status;
	threads = gg_pool_threads(pool);
	job.queries = malloc((size_t) EXACT_QUERIES * dim * sizeof(float));
	job.heaps = malloc((size_t) threads * EXACT_QUERIES * k * sizeof(uint64_t));
	job.counts = malloc((size_t) threads * EXACT_QUERIES * sizeof(uint32_t));
	if (job.queries == NULL || job.heaps == NULL || job.counts == NULL)
		status = gg_fail(GG_ENOMEM, where, "out of memory for %d threads' %u nearest rows", threads,
						 k);

	for (uint32_t first = 0; first < nq && status.code == GG_OK; first += job.nqueries)
	{
		job.nqueries = nq - first < EXACT_QUERIES ? nq - first : EXACT_QUERIES;
		memset(job.counts, 0, (size_t) threads * EXACT_QUERIES * sizeof(uint32_t));
		for (uint32_t q = 0; q < job.nqueries; q++)
			gg_cpu_load_query(index, queries + (size_t) (first + q) * dim,
							  job.queries + (size_t) q * dim);
		status = gg_pool_run(pool, scan_rows, &job, n, block);
		if (status.code != GG_OK)
			break;
		for (uint32_t q = 0; q < job.nqueries; q++)
		{
			uint32_t	count = merge_heaps(&job, threads, q);
			size_t		out = (size_t) (first + q) * k;

			for (uint32_t i = 0; i < k; i++)
				keys[out + i] = i < count ? job.heaps[(size_t) q * k + i] : GG_NO_KEY;
		}
		if (control && control->progress)
			control->progress(control->ctx, GG_PHASE_EXACT, first + job.nqueries, nq);
	}

	free(job.queries);
	free(job.heaps);
	free(job.counts);
	gg_pool_free(pool);
	return status;
}
