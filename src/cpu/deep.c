/*
 * deep.c
 *		The nearest of all rows, or of those that match a filter, in any number.
 *
 * The filter is evaluated first, over all rows; only nodes of matching ones are measured.  The k
 * nearest are kept in a heap.  Where the answer lies may be where the filter's TIDs are: it is
 * written last.
 */
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "index.h"
#include "../keys.h"

typedef struct deep_job
{
	uint64_t   *rows;			/* bit i: row i matches; NULL: all nodes do */
	uint64_t   *heap;			/* k keys */
	float	   *query;			/* prepared */
	uint64_t	matches;
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
		/* offsets come from pages, so they may be anything */
		row = index->own_offsets[node];
		end = index->own_offsets[node + 1];
		end = end < rows ? end : rows;
	}
	for (; row < end; row++)
		if (job->rows[row / 64] >> (row % 64) & 1)
			return true;
	return false;
}

static void
measure(const gg_index *index, const gg_serve_deep *deep, deep_job *job, uint64_t *keys)
{
	uint32_t	rows = job->rows != NULL ? row_count(index) : 0;
	uint32_t	count = 0;

	for (uint32_t i = 0; i < index->data.n; i++)
	{
		uint64_t	key;

		if (!node_matches(index, job, rows, i))
			continue;
		key = key_of(index->distance((const char *) index->data.rows + i * index->row_bytes,
									 job->query, index->data.dim), i);
		if (key <= deep->after)
			continue;
		if (count < deep->k)
			heap_push(job->heap, count++, key);
		else if (key < job->heap[0])
			heap_replace(job->heap, count, key);
	}
	heap_sort(job->heap, count);
	memcpy(keys, job->heap, count * sizeof(uint64_t));
	for (uint32_t i = count; i < deep->k; i++)
		keys[i] = GG_NO_KEY;
}

gg_status
gg_cpu_index_deep(const gg_index *index, const gg_serve_deep *deep, const float *query,
				  uint64_t *keys, uint64_t *matches)
{
	deep_job	job = {.matches = index->data.n};
	gg_status	status = gg_ok();

	job.heap = malloc(deep->k * sizeof(uint64_t));
	job.query = malloc(index->data.dim * sizeof(float));
	if (job.heap == NULL || job.query == NULL)
		status = gg_fail(GG_ENOMEM, "gg_cpu_index_deep", "out of memory for %u nearest rows",
						 deep->k);
	if (status.code == GG_OK && deep->filter != NULL)
		status = match_rows(index, deep->filter, &job);
	if (status.code == GG_OK)
	{
		gg_cpu_load_query(index, query, job.query);
		measure(index, deep, &job, keys);
		*matches = job.matches;
	}
	free(job.rows);
	free(job.heap);
	free(job.query);
	return status;
}
