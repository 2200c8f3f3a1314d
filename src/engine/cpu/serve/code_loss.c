/*
 * code_loss.c
 *		What walks by codes find less than walks by rows: rows and graph in memory, a sample of the
 *		rows as queries.
 *
 * Both walk as gg_cpu_index_search() does, so what is found by codes is measured again by row.
 * True are the nearest rows that a walk by rows finds with a long list.  A query is a row, which is
 * left out of its own answers.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/common/threads.h"
#include "index.h"
#include "engine/keys.h"

#define FOUND			10u		/* neighbours that count */
#define TRUE_LIST		256u	/* the list that finds the true ones */
#define CODED_ROWS		1024u	/* that a thread codes at a time */

/* One query for so many rows, within these limits. */
#define ROWS_OF_QUERY	100u
#define LEAST_QUERIES	100u
#define MOST_QUERIES	1000u

static const uint32_t lists[GG_LOSS_LISTS] = {16, 64};

typedef struct code_job
{
	gg_index   *index;
	float	   *scratch;		/* threads x 2 x dim */
} code_job;

static void
code_rows(gg_worker *worker, void *ctx, uint64_t row)
{
	code_job   *job = ctx;
	gg_index   *index = job->index;
	float	   *scratch = job->scratch + (size_t) worker->id * 2 * index->data.dim;

	gg_code_row(&index->coder, (const char *) index->data.rows + row * index->row_bytes,
				index->data.element, scratch,
				index->own_codes + row * index->coder.record_bytes);
}

/* Make codes of the rows of an index that has no codes. */
static gg_status
add_codes(gg_index *index, const gg_code_kind *kind, const gg_control *control)
{
	code_job	job = {.index = index};
	gg_pool    *pool = NULL;
	gg_status	status = gg_coder_init(&index->coder, kind);

	if (status.code == GG_OK)
		status = gg_pool_create(&pool, control);
	if (status.code != GG_OK)
		return status;
	index->shape.codes = kind->codes;
	index->own_codes = calloc(index->data.n, index->coder.record_bytes);
	job.scratch = malloc((size_t) gg_pool_threads(pool) * 2 * index->data.dim * sizeof(float));
	if (index->own_codes == NULL || job.scratch == NULL)
		status = gg_fail(GG_ENOMEM, "gg_cpu_code_loss", "out of memory for codes of %u rows",
						 index->data.n);
	else
		status = gg_pool_each(pool, code_rows, &job, index->data.n, CODED_ROWS);
	free(job.scratch);
	gg_pool_free(pool);
	return status;
}

/* The nodes of keys, FOUND at most, without the query's own. */
static uint32_t
take_others(const uint64_t *keys, uint32_t own, uint32_t *nodes)
{
	uint32_t	count = 0;

	for (uint32_t i = 0; i < FOUND + 1 && count < FOUND; i++)
		if (keys[i] != GG_NO_KEY && key_node(keys[i]) != own)
			nodes[count++] = key_node(keys[i]);
	return count;
}

/* How many of the true neighbours of a query were found. */
static uint32_t
count_found(const uint64_t *keys, const uint64_t *true_keys, uint32_t own)
{
	uint32_t	nodes[FOUND];
	uint32_t	true_nodes[FOUND];
	const uint32_t count = take_others(keys, own, nodes);
	const uint32_t true_count = take_others(true_keys, own, true_nodes);
	uint32_t	found = 0;

	for (uint32_t i = 0; i < count; i++)
		for (uint32_t j = 0; j < true_count; j++)
			found += nodes[i] == true_nodes[j];
	return found;
}

typedef struct loss_sample
{
	uint32_t	count;
	float	   *queries;		/* count x dim */
	uint32_t   *rows;			/* count: the node of each */
	uint64_t   *truth;			/* count x (FOUND + 1) */
	uint64_t   *keys;			/* count x (FOUND + 1) */
} loss_sample;

static gg_status
take_sample(const gg_index *index, loss_sample *sample)
{
	const uint32_t n = index->data.n;
	const uint32_t dim = index->data.dim;
	uint32_t	count = n / ROWS_OF_QUERY;

	count = count < LEAST_QUERIES ? LEAST_QUERIES : count > MOST_QUERIES ? MOST_QUERIES : count;
	sample->count = count < n ? count : n;
	sample->queries = malloc((size_t) sample->count * dim * sizeof(float));
	sample->rows = malloc((size_t) sample->count * sizeof(uint32_t));
	sample->truth = malloc((size_t) sample->count * (FOUND + 1) * sizeof(uint64_t));
	sample->keys = malloc((size_t) sample->count * (FOUND + 1) * sizeof(uint64_t));
	if (sample->queries == NULL || sample->rows == NULL || sample->truth == NULL ||
		sample->keys == NULL)
		return gg_fail(GG_ENOMEM, "gg_cpu_code_loss", "out of memory for %u queries",
					   sample->count);
	for (uint32_t q = 0; q < sample->count; q++)
	{
		/* the middle row of each of sample->count ranges of equal size */
		const uint32_t row = (uint32_t) ((2 * (uint64_t) q + 1) * n / (2 * sample->count));

		sample->rows[q] = row;
		memcpy(sample->queries + (size_t) q * dim,
			   (const char *) index->data.rows + (size_t) row * index->row_bytes,
			   dim * sizeof(float));
	}
	return gg_ok();
}

static gg_status
search_sample(gg_index *index, const loss_sample *sample, uint32_t list, uint64_t *keys,
			  const gg_control *control)
{
	const gg_search_params params = {.k = FOUND + 1, .itopk_size = list};

	return gg_cpu_index_search(index, &params, sample->queries, sample->count, control, keys);
}

/* The share of the true neighbours that walks with this list find. */
static gg_status
measure(gg_index *index, const loss_sample *sample, uint32_t list, const gg_control *control,
		double *recall)
{
	gg_status	status = search_sample(index, sample, list, sample->keys, control);
	uint64_t	found = 0;

	for (uint32_t q = 0; q < sample->count && status.code == GG_OK; q++)
		found += count_found(sample->keys + (size_t) q * (FOUND + 1),
							 sample->truth + (size_t) q * (FOUND + 1), sample->rows[q]);
	*recall = (double) found / sample->count / FOUND;
	return status;
}

gg_status
gg_cpu_code_loss(const gg_dataset *data, const gg_graph *graph, const gg_code_kind *kind,
				 const gg_control *control, double *loss)
{
	gg_index   *by_rows = NULL;
	gg_index   *by_codes = NULL;
	loss_sample sample = {0};
	double		recall[GG_LOSS_LISTS];
	gg_status	status;

	if (data->element != GG_ELEMENT_F32 || data->n == 0)
		return gg_fail(GG_EINVAL, "gg_cpu_code_loss", "no float32 rows");
	status = gg_cpu_index_open(data, graph, control, &by_rows);
	if (status.code == GG_OK)
		status = gg_cpu_index_open(data, graph, control, &by_codes);
	if (status.code == GG_OK)
		status = add_codes(by_codes, kind, control);
	if (status.code == GG_OK)
		status = take_sample(by_rows, &sample);
	if (status.code == GG_OK)
		status = search_sample(by_rows, &sample, TRUE_LIST, sample.truth, control);
	for (int i = 0; i < GG_LOSS_LISTS && status.code == GG_OK; i++)
	{
		status = measure(by_rows, &sample, lists[i], control, &recall[i]);
		if (status.code == GG_OK)
			status = measure(by_codes, &sample, lists[i], control, &loss[i]);
		loss[i] = recall[i] - loss[i];
	}
	free(sample.queries);
	free(sample.rows);
	free(sample.truth);
	free(sample.keys);
	gg_cpu_index_close(by_rows);
	gg_cpu_index_close(by_codes);
	return status;
}
