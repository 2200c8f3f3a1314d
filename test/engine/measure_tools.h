/*
 * measure_tools.h
 *		What programs that measure the engine over files of float32 share.
 */
#ifndef GG_TEST_MEASURE_TOOLS_H
#define GG_TEST_MEASURE_TOOLS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/engine/cpu/serve/index.h"
#include "harness.h"

static void
need_ok(gg_status status)
{
	if (status.code == GG_OK)
		return;
	fprintf(stderr, "%s: %s (code %d)\n", status.where, status.message, (int) status.code);
	exit(1);
}

static gg_metric
parse_metric(const char *name)
{
	static const char *const names[] = {"l2", "ip", "cosine", "l1"};

	for (int i = 0; i < 4; i++)
	{
		if (strcmp(name, names[i]) == 0)
			return (gg_metric) (i + 1);
	}
	fprintf(stderr, "no metric %s\n", name);
	exit(2);
}

static float *
read_floats(const char *path, size_t *count)
{
	FILE	   *file = fopen(path, "rb");
	float	   *floats;
	long		bytes;

	if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (bytes = ftell(file)) < 0)
	{
		perror(path);
		exit(2);
	}
	rewind(file);
	floats = malloc((size_t) bytes + 1);
	*count = (size_t) bytes / sizeof(float);
	if (floats == NULL || fread(floats, sizeof(float), *count, file) != *count)
	{
		perror(path);
		exit(2);
	}
	fclose(file);
	return floats;
}

/* An index that copies the rows and, unless GG_CODES_NONE, has codes of them. */
static gg_index *
copied_index(const gg_dataset *data, const gg_graph *graph, gg_codes codes)
{
	gg_shape	shape = {.capacity = data->n,.dim = data->dim,.element = data->element,
						 .metric = data->metric,.degree = graph->degree,
						 .npivots = graph->npivots,.codes = codes};
	size_t		row_bytes = data->dim * gg_element_size(data->element);
	uint32_t   *pivots = harness_pivots(graph);
	double		began;
	gg_index   *index;

	need_ok(gg_cpu_engine.index_create(&shape, &index));
	need_ok(gg_cpu_engine.index_write(index, GG_PART_ROWS, 0, data->rows, data->n * row_bytes));
	need_ok(gg_cpu_engine.index_write(index, GG_PART_ADJACENCY, 0, graph->adjacency,
									  (uint64_t) data->n * graph->degree * sizeof(uint32_t)));
	need_ok(gg_cpu_engine.index_write(index, GG_PART_PIVOTS, 0, pivots, (uint64_t) graph->npivots *
									  (1 + GG_PIVOT_DEGREE) * sizeof(uint32_t)));
	free(pivots);
	began = harness_processor_seconds();
	need_ok(gg_cpu_engine.index_finish(index, data->n, NULL));
	if (codes != GG_CODES_NONE)
		fprintf(stderr, "codes of %u bytes, made in %.2f us each\n", index->coder.record_bytes,
				(harness_processor_seconds() - began) / data->n * 1e6);
	return index;
}

/* The rows of a file; under cosine they get unit length. */
static gg_dataset
read_rows(const char *path, const char *dim, const char *metric)
{
	gg_dataset	data = {.dim = (uint32_t) atoi(dim),.metric = parse_metric(metric),
						.element = GG_ELEMENT_F32};
	size_t		count;
	float	   *rows = read_floats(path, &count);

	data.n = (uint32_t) (count / data.dim);
	data.rows = rows;
	for (uint32_t i = 0; i < data.n; i++)
		gg_query_prepare(data.metric, rows + (size_t) i * data.dim, data.dim);
	return data;
}

#endif							/* GG_TEST_MEASURE_TOOLS_H */
