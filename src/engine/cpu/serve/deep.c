/*
 * deep.c
 *		The nearest of all rows, or of those that match a filter, in any number.
 *
 * The filter is evaluated first, over all rows; only nodes of matching ones are measured, for each
 * of the queries that share it.  The k nearest are kept in a heap.  The answer may overwrite the
 * filter's TIDs, so it is written last.
 *
 * Where the index has codes alone, keys have bounds of distances (engine/rules/codes.h).
 */
#include <stdlib.h>
#include <string.h>

#include "index.h"
#include "engine/keys.h"

typedef struct deep_query
{
	uint64_t	after;
	uint64_t	last;
	uint32_t	k;
	uint32_t	count;			/* keys in the heap */
	uint64_t   *heap;			/* k keys */
	float	   *query;			/* prepared, and room for gg_code_query_set() */
	gg_code_query code;			/* the query for codes, if there are no rows */
	gg_code_bounds bounds;
} deep_query;

typedef struct deep_job
{
	uint64_t   *rows;			/* bit i: row i matches; NULL: all nodes do */
	uint64_t	matches;
	deep_query	queries[GG_SERVE_MAX_DEEPS];
} deep_job;

/* Rows that the index has: those of its first n nodes. */
static uint32_t
row_count(const gg_index *index)
{
	uint32_t	rows;

	if (!index->shape.offsets)
		return index->data.n;
	rows = index->own_offsets[index->data.n];
	return rows < index->shape.rows ? rows : index->shape.rows;
}

static gg_status
match_rows(const gg_index *index, const gg_filter *filter, deep_job *job)
{
	uint32_t	n = row_count(index);
	const int64_t *words[GG_MAX_FILTER_WORDS];

	job->rows = malloc(((size_t) n / 64 + 1) * sizeof(uint64_t));
	if (job->rows == NULL)
		return gg_fail(GG_ENOMEM, "gg_cpu_index_deep", "out of memory for %u rows' bits", n);
	for (uint32_t w = 0; w < index->shape.words; w++)
		words[w] = index->own_words + (size_t) w * index->shape.rows;
	job->matches = gg_filter_rows(filter, index->own_heads, words, n, job->rows);
	return gg_ok();
}

static bool
node_matches(const gg_index *index, const deep_job *job, uint32_t rows, uint32_t node)
{
	uint32_t	row = node;
	uint32_t	end = node + 1;

	if (job->rows == NULL)
		return true;
	if (index->shape.offsets)
	{
		/* offsets come from pages, which are untrusted */
		row = index->own_offsets[node];
		end = index->own_offsets[node + 1];
		end = end < rows ? end : rows;
	}
	for (; row < end; row++)
		if (job->rows[row / 64] >> (row % 64) & 1)
			return true;
	return false;
}

static inline void
offer(deep_query *query, uint64_t key)
{
	if (key > query->after && key <= query->last)
		query->count = heap_offer(query->heap, query->count, query->k, key);
}

/* The node's distance, or where there are no rows a bound of it. */
static inline float
distance_of(const gg_index *index, const deep_query *query, uint32_t node)
{
	if (index->shape.row_place == GG_ROWS_NONE)
		return gg_code_bound(&index->coder,
							 index->own_codes + (size_t) node * index->coder.record_bytes,
							 &query->code, &query->bounds);
	return index->distance((const char *) index->data.rows + node * index->row_bytes,
						   query->query, index->data.dim);
}

static void
measure(const gg_index *index, deep_job *job, uint32_t nqueries)
{
	uint32_t	rows = job->rows != NULL ? row_count(index) : 0;

	for (uint32_t i = 0; i < index->data.n; i++)
	{
		if (!node_matches(index, job, rows, i))
			continue;
		for (uint32_t q = 0; q < nqueries; q++)
			offer(&job->queries[q], key_of(distance_of(index, &job->queries[q], i), i));
	}
}

static void
write_answer(deep_query *query, const gg_deep_search *search, uint64_t matches)
{
	heap_sort(query->heap, query->count);
	memcpy(search->keys, query->heap, query->count * sizeof(uint64_t));
	for (uint32_t i = query->count; i < query->k; i++)
		search->keys[i] = GG_NO_KEY;
	*search->matches = matches;
}

static gg_status
make_query(const gg_index *index, const gg_deep_search *search, deep_query *query)
{
	const uint32_t dim = index->data.dim;
	gg_status	status = gg_ok();

	query->after = search->after;
	query->last = search->last != 0 ? search->last : GG_NO_KEY;
	query->k = search->k;
	query->heap = malloc(query->k * sizeof(uint64_t));
	query->query = malloc(3 * dim * sizeof(float));
	if (query->heap == NULL || query->query == NULL)
		return gg_fail(GG_ENOMEM, "gg_cpu_index_deep", "out of memory for %u nearest rows",
					   query->k);
	gg_cpu_load_query(index, search->query, query->query);
	if (index->shape.row_place != GG_ROWS_NONE)
		return status;
	status = gg_code_query_init(&index->coder, &query->code);
	if (status.code != GG_OK)
		return status;
	gg_code_query_set(&index->coder, query->query, query->query + dim, &query->code);
	query->bounds = gg_code_bounds_of(index->shape.metric, index->coder.mean != NULL, dim,
									  query->code.unit, query->code.base);
	return status;
}

gg_status
gg_cpu_index_deep(const gg_index *index, const gg_filter *filter, const gg_deep_search *searches,
				  uint32_t count)
{
	deep_job	job = {.matches = index->data.n};
	gg_status	status = gg_ok();

	for (uint32_t q = 0; status.code == GG_OK && q < count; q++)
		status = make_query(index, &searches[q], &job.queries[q]);
	if (status.code == GG_OK && filter != NULL)
		status = match_rows(index, filter, &job);
	if (status.code == GG_OK)
	{
		measure(index, &job, count);
		for (uint32_t q = 0; q < count; q++)
			write_answer(&job.queries[q], &searches[q], job.matches);
	}
	for (uint32_t q = 0; q < count; q++)
	{
		free(job.queries[q].heap);
		free(job.queries[q].query);
		gg_code_query_free(&job.queries[q].code);
	}
	free(job.rows);
	return status;
}
