/*
 * serve.c
 *		Indexes filled piece by piece, and searches for many callers at once.
 *
 * This lets the CPU engine play a device, so that the service's whole protocol runs, and is tested,
 * without one.  serve_submit() answers a batch in the calling thread, one query after the other
 * with the functions of index.c, so an answer is the same bits in any batch.  "Device memory" is
 * the process's own.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/cpu/common/cpu.h"
#include "engine/cpu/serve/index.h"
#include "engine/rules/serve_check.h"
#include "engine/cpu/common/threads.h"

/* A pivot as written: its node, then its neighbours among the pivots. */
#define PIVOT_WORDS (1 + GG_PIVOT_DEGREE)

/* Rows of which a thread makes codes at a time. */
#define ROWS_AT_ONCE 256u

struct gg_server
{
	gg_serve_place place;
};

/* ---- filling ------------------------------------------------------------ */

static uint64_t
code_bytes(const gg_shape *shape)
{
	return shape->codes == GG_CODES_NONE ? 0 :
		(uint64_t) shape->capacity * gg_code_record_bytes(shape->codes, shape->dim);
}

static uint64_t
part_bytes(const gg_shape *shape, gg_part part)
{
	switch (part)
	{
		case GG_PART_ROWS:
			return (uint64_t) shape->capacity * shape->dim * gg_element_size(shape->element);
		case GG_PART_ADJACENCY:
			return (uint64_t) shape->capacity * shape->degree * sizeof(uint32_t);
		case GG_PART_PIVOTS:
			return (uint64_t) shape->npivots * PIVOT_WORDS * sizeof(uint32_t);
		case GG_PART_TIDS:
			return (uint64_t) shape->rows * sizeof(uint64_t);
		case GG_PART_OFFSETS:
			return shape->offsets ? ((uint64_t) shape->capacity + 1) * sizeof(uint32_t) : 0;
		case GG_PART_FILTERS:
			return (uint64_t) shape->words * shape->rows * sizeof(int64_t);
		case GG_PART_CODES:
			return shape->row_place == GG_ROWS_NONE ? code_bytes(shape) : 0;
	}
	return 0;
}

static void *
part_memory(const gg_index *index, gg_part part)
{
	switch (part)
	{
		case GG_PART_ROWS:
			return index->own_rows;
		case GG_PART_ADJACENCY:
			return index->own_adjacency;
		case GG_PART_PIVOTS:
			return index->own_pivots;
		case GG_PART_TIDS:
			return index->own_heads;
		case GG_PART_OFFSETS:
			return index->own_offsets;
		case GG_PART_FILTERS:
			return index->own_words;
		case GG_PART_CODES:
			return index->own_codes;
	}
	return NULL;
}

/* Bytes of rows that are kept; this engine has but one place for them. */
static uint64_t
row_bytes(const gg_shape *shape)
{
	return shape->row_place == GG_ROWS_NONE ? 0 : part_bytes(shape, GG_PART_ROWS);
}

/* Bytes of rows in the memory of a device, if this engine plays one. */
static uint64_t
device_row_bytes(const gg_shape *shape)
{
	return shape->row_place == GG_ROWS_HOST ? 0 : row_bytes(shape);
}

uint64_t
gg_cpu_shape_bytes(const gg_shape *shape)
{
	/* pivots twice: as written, and taken apart */
	return sizeof(gg_index) + device_row_bytes(shape) +
		part_bytes(shape, GG_PART_ADJACENCY) + 2 * part_bytes(shape, GG_PART_PIVOTS) +
		part_bytes(shape, GG_PART_TIDS) + part_bytes(shape, GG_PART_OFFSETS) +
		part_bytes(shape, GG_PART_FILTERS) + code_bytes(shape);
}

uint64_t
gg_cpu_index_bytes(const gg_index *index)
{
	return gg_cpu_shape_bytes(&index->shape);
}

static gg_status
check_shape(const char *where, const gg_shape *shape)
{
	gg_status	status = gg_serve_check_rows(where, shape);

	if (status.code == GG_OK)
		status = gg_serve_check_codes(where, shape);
	if (status.code != GG_OK)
		return status;
	if (shape->dim < 1 || shape->dim > GG_MAX_DIM)
		return gg_fail(GG_EINVAL, where, "%u dimensions are not within 1 .. %u", shape->dim,
					   GG_MAX_DIM);
	if (shape->capacity > GG_MAX_NODES)
		return gg_fail(GG_EINVAL, where, "%u rows are more than %u", shape->capacity, GG_MAX_NODES);
	if (shape->degree > GG_MAX_DEGREE)
		return gg_fail(GG_EINVAL, where, "degree %u is more than %u", shape->degree, GG_MAX_DEGREE);
	if (shape->npivots > shape->capacity || (shape->degree == 0) != (shape->npivots == 0))
		return gg_fail(GG_EINVAL, where, "%u pivots for %u rows and degree %u", shape->npivots,
					   shape->capacity, shape->degree);
	if (gg_distance_function(shape->metric, shape->element) == NULL)
		return gg_fail(GG_EINVAL, where, "no metric %d over elements of type %d",
					   (int) shape->metric, (int) shape->element);
	return status;
}

/* Take memory for the parts of an index; false: there is not enough. */
static bool
take_memory(gg_index *index)
{
	const gg_shape *shape = &index->shape;

	index->own_rows = malloc(row_bytes(shape) + 1);
	index->own_adjacency = malloc(part_bytes(shape, GG_PART_ADJACENCY) + 1);
	index->own_pivots = malloc(2 * part_bytes(shape, GG_PART_PIVOTS) + 1);
	index->own_heads = malloc(part_bytes(shape, GG_PART_TIDS) + 1);
	index->own_offsets = malloc(part_bytes(shape, GG_PART_OFFSETS) + 1);
	index->own_words = malloc(part_bytes(shape, GG_PART_FILTERS) + 1);
	if (shape->codes != GG_CODES_NONE)
	{
		const gg_code_kind kind = {shape->metric, shape->dim, shape->codes, shape->code_seed,
			shape->code_mean};

		/* a row that is not written before index_finish() has some code, as it has some values */
		index->own_codes = calloc(code_bytes(shape) + 1, 1);
		if (index->own_codes == NULL ||
			gg_coder_init(&index->coder, &kind).code != GG_OK)
			return false;
		index->shape.code_mean = index->coder.mean;
	}
	return index->own_rows != NULL && index->own_adjacency != NULL && index->own_pivots != NULL &&
		index->own_heads != NULL && index->own_offsets != NULL && index->own_words != NULL;
}

gg_status
gg_cpu_index_create(const gg_shape *shape, gg_index **result)
{
	static const char *const where = "gg_cpu_index_create";
	gg_index   *index;
	gg_status	status;

	*result = NULL;
	status = check_shape(where, shape);
	if (status.code != GG_OK)
		return status;
	index = calloc(1, sizeof(gg_index));
	if (index != NULL)
		index->shape = *shape;
	if (index == NULL || !take_memory(index))
	{
		gg_cpu_index_close(index);
		return gg_fail(GG_EDEVICE_MEMORY, where, "out of memory for an index of %llu bytes",
					   (unsigned long long) gg_cpu_shape_bytes(shape));
	}
	index->data.rows = index->own_rows;
	index->data.dim = shape->dim;
	index->data.element = shape->element;
	index->data.metric = shape->metric;
	index->distance = gg_distance_function(shape->metric, shape->element);
	index->row_bytes = shape->dim * gg_element_size(shape->element);
	*result = index;
	return gg_ok();
}

/* Make codes of n rows, the first of which is row `first` of the index. */
static gg_status
make_codes(gg_index *index, const void *rows, uint64_t first, uint64_t n)
{
	const gg_coder *coder = &index->coder;
	float	   *scratch = malloc(2 * coder->dim * sizeof(float));

	if (scratch == NULL)
		return gg_fail(GG_ENOMEM, "gg_cpu_index_write", "out of memory for a row of %u dimensions",
					   coder->dim);
	for (uint64_t i = 0; i < n; i++)
		gg_code_row(coder, (const char *) rows + i * index->row_bytes, index->data.element,
					scratch, index->own_codes + (first + i) * coder->record_bytes);
	free(scratch);
	return gg_ok();
}

gg_status
gg_cpu_index_write(gg_index *index, gg_part part, uint64_t offset, const void *src, uint64_t bytes)
{
	static const char *const where = "gg_cpu_index_write";
	uint64_t	size = part_bytes(&index->shape, part);

	if (offset > size || bytes > size - offset)
		return gg_fail(GG_EINVAL, where, "%llu bytes at %llu of part %d, which has %llu",
					   (unsigned long long) bytes, (unsigned long long) offset, (int) part,
					   (unsigned long long) size);
	if (part == GG_PART_ROWS && index->shape.row_place == GG_ROWS_NONE)
	{
		if (offset % index->row_bytes != 0 || bytes % index->row_bytes != 0)
			return gg_fail(GG_EINVAL, where, "%llu bytes at %llu are not whole rows of %zu",
						   (unsigned long long) bytes, (unsigned long long) offset,
						   index->row_bytes);
		return make_codes(index, src, offset / index->row_bytes, bytes / index->row_bytes);
	}
	if (bytes > 0)
		memcpy((char *) part_memory(index, part) + offset, src, bytes);
	return gg_ok();
}

gg_status
gg_cpu_index_take(gg_index *index, const gg_index *from, uint32_t first, uint32_t n)
{
	const gg_shape *shape = &index->shape;
	const gg_serve_source source = {&from->shape, from->finished, from->data.n};
	gg_status	status;

	status = gg_serve_check_take("gg_cpu_index_take", shape, index->finished, &source, first, n);
	if (status.code != GG_OK)
		return status;
	memcpy(index->own_rows, (char *) from->own_rows + first * index->row_bytes,
		   n * index->row_bytes);
	if (shape->rows > 0)
		memcpy(index->own_heads, from->own_heads + first, (size_t) n * sizeof(uint64_t));
	for (uint32_t w = 0; w < shape->words; w++)
		memcpy(index->own_words + (size_t) w * shape->rows,
			   from->own_words + (size_t) w * from->shape.rows + first,
			   (size_t) n * sizeof(int64_t));
	return status;
}

static void
code_some(gg_worker *worker, void *ctx, uint64_t begin, uint64_t end)
{
	gg_index   *index = ctx;
	gg_status	status = make_codes(index, (char *) index->own_rows + begin * index->row_bytes,
									begin, end - begin);

	if (status.code != GG_OK)
		gg_worker_fail(worker, status);
}

/* Make codes of all rows. */
static gg_status
code_rows(gg_index *index, const gg_control *control)
{
	gg_pool    *pool;
	gg_status	status = gg_pool_create(&pool, control);

	if (status.code != GG_OK)
		return status;
	status = gg_pool_run(pool, code_some, index, index->data.n, ROWS_AT_ONCE);
	gg_pool_free(pool);
	return status;
}

gg_status
gg_cpu_index_finish(gg_index *index, uint32_t n, const gg_control *control)
{
	static const char *const where = "gg_cpu_index_finish";
	const gg_shape *shape = &index->shape;
	uint32_t   *nodes = index->own_pivots + (size_t) shape->npivots * PIVOT_WORDS;
	uint32_t   *adjacency = nodes + shape->npivots;

	if (index->finished || n > shape->capacity)
		return gg_fail(GG_EINVAL, where, "%u rows in an index for %u%s", n, shape->capacity,
					   index->finished ? ", which is finished" : "");

	/* ids that are out of range stay so: the walk ignores them */
	for (uint32_t i = 0; i < shape->npivots; i++)
	{
		const uint32_t *pivot = index->own_pivots + (size_t) i * PIVOT_WORDS;

		nodes[i] = pivot[0];
		memcpy(adjacency + (size_t) i * GG_PIVOT_DEGREE, pivot + 1,
			   GG_PIVOT_DEGREE * sizeof(uint32_t));
	}
	index->graph.n = n;
	index->graph.degree = shape->degree;
	index->graph.npivots = shape->npivots;
	index->graph.adjacency = index->own_adjacency;
	index->graph.pivots = nodes;
	index->graph.pivot_adjacency = adjacency;
	index->data.n = n;
	if (shape->codes != GG_CODES_NONE && shape->row_place != GG_ROWS_NONE)
	{
		gg_status	status = code_rows(index, control);

		if (status.code != GG_OK)
			return status;
	}
	index->finished = true;
	return gg_ok();
}

gg_status
gg_cpu_build_index(gg_index *index, uint32_t n, const gg_build_params *params,
				   const gg_control *control, gg_graph *graph, gg_build_stats *stats)
{
	gg_dataset	data = index->data;

	if (index->shape.degree != 0 || index->finished || n > index->shape.capacity)
		return gg_fail(GG_EINVAL, "gg_cpu_build_index",
					   "%u rows of an index for %u rows and degree %u", n, index->shape.capacity,
					   index->shape.degree);
	data.n = n;
	return gg_cpu_build(&data, params, control, graph, stats);
}

/* ---- serving ------------------------------------------------------------ */

gg_status
gg_cpu_serve_open(int device, void *region, size_t region_bytes, const gg_serve_layout *layout,
				  gg_server **result)
{
	static const char *const where = "gg_cpu_serve_open";
	gg_server  *server;
	gg_status	status;

	*result = NULL;
	status = gg_serve_check_layout(where, region, region_bytes, layout);
	if (status.code != GG_OK)
		return status;
	/*
	 * any number is played, whatever device_count() says: the service is tested with several
	 * devices
	 */
	if (device < 0)
		return gg_fail(GG_ENODEVICE, where, "no device %d", device);
	server = malloc(sizeof(gg_server));
	if (server == NULL)
		return gg_fail(GG_ENOMEM, where, "out of memory for a server of %zu bytes",
					   sizeof(gg_server));
	server->place = (gg_serve_place) {region, region_bytes, *layout};
	*result = server;
	return status;
}

static gg_serve_target
target_of(const gg_index *index)
{
	const gg_serve_target target = {
		.finished = index->finished,.n = index->data.n,.dim = index->data.dim,
		.npivots = index->graph.npivots,.rows = index->shape.rows,.words = index->shape.words,
		.no_rows = index->shape.row_place == GG_ROWS_NONE,
		.bounds = gg_code_has_bounds(index->shape.metric)
	};

	return target;
}

/* Write the ticket: whoever sees it sees what was written before. */
static void
answered(const gg_serve_layout *layout, uint32_t slot, uint32_t list, uint32_t ticket)
{
	char	   *done = layout->slots + (size_t) slot * layout->slot_bytes + layout->done;

	atomic_store_explicit((_Atomic uint32_t *) done + list, ticket, memory_order_release);
}

/* The search for the deep list of one of a request's queries. */
static gg_deep_search
search_of(const gg_server *server, const gg_request *request, uint32_t list, uint32_t query)
{
	char	   *region = server->place.region;

	return (gg_deep_search) {
		.k = request->params.k,
		.after = request->after,
		.last = request->last,
		.query = (const float *) (region + request->queries) + (size_t) query * request->dim,
		.keys = (uint64_t *) (region + gg_request_keys_at(request, list)) +
			(size_t) query * request->params.k,
		.matches = (uint64_t *) (region + request->matches) + gg_request_before(request, list)
	};
}

/*
 * Answer `count` requests for deep lists by one filter, from `first` on; or one of many queries.
 */
static gg_status
answer_deep(const gg_server *server, const gg_index *index, const gg_serve_batch *batch,
			uint32_t first, uint32_t count)
{
	const gg_request *request = batch->requests[first];
	const gg_filter *filter = gg_serve_filter(&server->place, request);
	const uint32_t all = request->count > 1 ? request->count : count;
	gg_deep_search searches[GG_SERVE_MAX_DEEPS];
	gg_status	status = gg_ok();

	for (uint32_t i = 0; status.code == GG_OK && i < all;)
	{
		uint32_t	n = 0;

		for (; n < GG_SERVE_MAX_DEEPS && i < all; n++, i++)
			searches[n] = request->count > 1 ? search_of(server, request, batch->list, i) :
				search_of(server, batch->requests[first + i], batch->list, 0);
		status = gg_cpu_index_deep(index, filter, searches, n);
	}
	return status;
}

gg_status
gg_cpu_serve_submit(gg_server *server, gg_index *index, uint32_t queue, const gg_serve_batch *batch)
{
	const gg_serve_place *place = &server->place;
	const gg_serve_target target = target_of(index);
	uint32_t	same;
	gg_status	status;

	status = gg_serve_check_batch("gg_cpu_serve_submit", place, &target, queue, batch);
	for (uint32_t first = 0; status.code == GG_OK && first < batch->count; first += same)
	{
		const gg_request *request = batch->requests[first];
		const float *queries = (const float *) (place->region + request->queries);
		uint64_t   *keys = (uint64_t *) (place->region + gg_request_keys_at(request, batch->list));

		same = 1;
		switch (gg_request_way(request, batch->list))
		{
			case GG_WAY_WALK:
				status = gg_cpu_index_search(index, &request->params, queries, request->count,
											 NULL, keys);
				break;
			case GG_WAY_MEASURE:
				status = gg_cpu_index_exact(index, request->params.k, NULL, queries,
											request->count, NULL, keys);
				break;
			case GG_WAY_DEEP:
				same = gg_serve_same_filter(place, batch, first, batch->count);
				status = answer_deep(server, index, batch, first, same);
				break;
		}
		for (uint32_t i = first; status.code == GG_OK && i < first + same; i++)
			answered(&place->layout, batch->slots[i], batch->list, batch->tickets[i]);
	}
	return status;
}

gg_status
gg_cpu_serve_group(gg_server *server, uint32_t queue, const gg_serve_group *group)
{
	static const char *const where = "gg_cpu_serve_group";
	const gg_serve_place *place = &server->place;
	const gg_request *request = group->request;
	const uint32_t k = request->params.k;
	gg_status	status = gg_serve_check_group(where, place, queue, group);

	for (uint32_t i = 0; status.code == GG_OK && i < group->count; i++)
		if (group->indexes[i] != NULL)
		{
			const gg_serve_target target = target_of(group->indexes[i]);

			status = gg_serve_check_member(where, &target, request, group->measured[i]);
		}
	for (uint32_t i = 0; status.code == GG_OK && i < group->count; i++)
	{
		const float *query = (const float *) (place->region + request->queries);
		uint64_t   *keys = (uint64_t *) (place->region + request->keys) + (size_t) i * k;
		gg_index   *index = group->indexes[i];

		if (index == NULL)
			memset(keys, 0xFF, k * sizeof(uint64_t));
		else if (group->measured[i])
			status = gg_cpu_index_exact(index, k, NULL, query, 1, NULL, keys);
		else
			status = gg_cpu_index_search(index, &request->params, query, 1, NULL, keys);
	}
	if (status.code == GG_OK)
		answered(&place->layout, group->slot, 0, group->ticket);
	return status;
}

gg_status
gg_cpu_serve_check(gg_server *server, uint32_t queue, bool *idle)
{
	(void) server;
	*idle = false;
	if (queue >= GG_SERVE_QUEUES)
		return gg_fail(GG_EINVAL, "gg_cpu_serve_check", "queue %u of %d", queue, GG_SERVE_QUEUES);
	*idle = true;
	return gg_ok();
}

void
gg_cpu_serve_close(gg_server *server)
{
	free(server);
}

/* ---- the device that is played -------------------------------------------- */

gg_status
gg_cpu_device_count(int *count)
{
	*count = 1;
	return gg_ok();
}

/* What a variable of the environment says of the device, for tests: numbers of device 0, 1, ... */
static long
played(const char *variable, int device, long otherwise)
{
	const char *numbers = getenv(variable);

	for (int i = 0; numbers != NULL && i < device; i++)
		numbers = strchr(numbers, ',') ? strchr(numbers, ',') + 1 : NULL;
	return numbers ? strtol(numbers, NULL, 10) : otherwise;
}

gg_status
gg_cpu_device_info(int device, gg_device_info *info)
{
	uint64_t	page = (uint64_t) sysconf(_SC_PAGESIZE);
	/* tests change a device's number, and say which one it had before */
	int64_t		number = played("GPUGRAPH_UUIDS", device, device);

	memset(info, 0, sizeof(*info));
	memcpy(info->uuid, &number, sizeof(number));
	snprintf(info->name, sizeof(info->name), "CPU (%s)", gg_simd_name());
	info->total_bytes = (uint64_t) played("GPUGRAPH_MEMORY", device,
										  (long) (page * (uint64_t) sysconf(_SC_PHYS_PAGES)));
	info->free_bytes = page * (uint64_t) sysconf(_SC_AVPHYS_PAGES);
	if (info->free_bytes > info->total_bytes)
		info->free_bytes = info->total_bytes;
	info->speed = (uint32_t) played("GPUGRAPH_SPEEDS", device, 1);
	return gg_ok();
}
