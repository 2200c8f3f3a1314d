/*
 * code_setup.c
 *		What codes are made and measured with: the mean that they are centred by, and memory for
 *		queries.
 */
#include <stdlib.h>

#include "engine/rules/codes.h"
#include "engine/cpu/common/cpu.h"

/* ---- the mean ------------------------------------------------------------ */

/* How far apart a row's elements are, without a mean or with one. */
static double
span_of(const float *row, const float *mean, uint32_t dim)
{
	double		least = INFINITY;
	double		most = -INFINITY;

	for (uint32_t i = 0; i < dim; i++)
	{
		const double x = mean != NULL ? gg_code_centre(row[i], mean[i]) : row[i];

		least = x < least ? x : least;
		most = x > most ? x : most;
	}
	return most - least;
}

/* Load a row as floats, as codes take it before they centre it. */
static void
load_row(const gg_dataset *data, uint64_t i, float *row)
{
	const char *from = (const char *) data->rows +
		i * data->dim * gg_element_size(data->element);

	if (data->element == GG_ELEMENT_F32)
	{
		memcpy(row, from, data->dim * sizeof(float));
		return;
	}
	gg_halves_to_floats((const uint16_t *) from, row, data->dim);
	if (data->metric == GG_METRIC_COSINE)
		gg_code_unit_row(row, data->dim);
}

static bool
spans_shrink(const gg_dataset *data, uint32_t count, const float *mean, float *row)
{
	double		with = 0,
				without = 0;

	for (uint32_t i = 0; i < count; i++)
	{
		load_row(data, (uint64_t) i * data->n / count, row);
		with += span_of(row, mean, data->dim);
		without += span_of(row, NULL, data->dim);
	}
	return with < without;
}

bool
gg_code_mean(const gg_dataset *data, float *mean)
{
	const uint32_t dim = data->dim;
	const uint32_t count = data->n < GG_MEAN_ROWS ? data->n : GG_MEAN_ROWS;
	double	   *sums = calloc(dim, sizeof(double));
	float	   *row = malloc(dim * sizeof(float));
	bool		good = sums != NULL && row != NULL && count > 0;

	for (uint32_t i = 0; i < count && good; i++)
	{
		load_row(data, (uint64_t) i * data->n / count, row);
		for (uint32_t d = 0; d < dim; d++)
			sums[d] += row[d];
	}
	for (uint32_t d = 0; d < dim && good; d++)
	{
		mean[d] = (float) (sums[d] / count);
		good = fabsf(mean[d]) < GG_CODE_LARGEST_MEAN;
	}
	good = good && (data->metric != GG_METRIC_L1 || spans_shrink(data, count, mean, row));
	free(sums);
	free(row);
	return good;
}

/* ---- queries ------------------------------------------------------------- */

/* Elements of all planes. */
static size_t
query_elements(const gg_coder *coder)
{
	return (size_t) coder->stride * (8 / coder->bits);
}

size_t
gg_code_query_bytes(const gg_coder *coder)
{
	return query_elements(coder) * (sizeof(int16_t) + 2);
}

void
gg_code_query_place(const gg_coder *coder, gg_code_query *query, void *memory)
{
	memset(query, 0, sizeof(*query));
	query->elements = memory;
	query->high = (int8_t *) (query->elements + query_elements(coder));
	query->low = query->high + query_elements(coder);
}

gg_status
gg_code_query_init(const gg_coder *coder, gg_code_query *query)
{
	void	   *memory = calloc(1, gg_code_query_bytes(coder));

	gg_code_query_place(coder, query, memory);
	if (memory == NULL)
	{
		memset(query, 0, sizeof(*query));
		return gg_fail(GG_ENOMEM, "gg_code_query_init",
					   "out of memory for a query of %u dimensions", coder->dim);
	}
	return gg_ok();
}

void
gg_code_query_free(gg_code_query *query)
{
	free(query->elements);
	memset(query, 0, sizeof(*query));
}
