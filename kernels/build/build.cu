/*
 * build.cu
 *		The chain from rows to a connected graph, and the memory it needs.
 */
#include "../../src/engine/rules/algorithms.h"
#include "../graph/stages.h"

#include <stdlib.h>
#include <sys/mman.h>

/* CUDA's own context, code and scan scratch, which no buffer here accounts for */
#define CONTEXT_BYTES ((uint64_t) 600 << 20)

static inline uint64_t
max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/*
 * Memory for free(), in huge pages where there are some: the copy back faults in each page of it.
 */
static uint32_t *
allocate_large(uint64_t bytes)
{
	const size_t page = (size_t) 2 << 20;
	void	   *memory;

	if (bytes < page)
		return (uint32_t *) malloc((size_t) bytes);
	memory = aligned_alloc(page, (size_t) ((bytes + page - 1) / page * page));
	if (memory != NULL)
		(void) madvise(memory, (size_t) bytes, MADV_HUGEPAGE);
	return (uint32_t *) memory;
}

/* A process that serves searches has its context in any case. */
static uint64_t
other_bytes(const gg_control *control)
{
	return control != NULL && control->background ? GG_BACKGROUND_BYTES : CONTEXT_BYTES;
}

/*
 * Refuse at once what would fail later, with the sizes; held: bytes of the rows that are there
 * already; more: bytes beyond those of a build.
 */
static gg_status
check_memory(const gg_dataset *data, uint64_t held, uint64_t more, const gg_build_params *params,
			 const gg_control *control)
{
	gg_bytes	bytes;
	uint64_t	available = 0;
	uint64_t	total = 0;

	GG_TRY(gg_cuda_build_bytes(data, params, control, &bytes));
	/* the thread may be new, and is on the first device then */
	if (gg_cuda_served_device() >= 0)
		GG_CUDA_TRY(cudaSetDevice(gg_cuda_served_device()));
	GG_TRY(gg_cuda_memory(&available, &total));
	bytes.device += more;
	/* asking has made the context */
	bytes.device -= other_bytes(control);
	if (bytes.device - held > available)
		return gg_fail(GG_EDEVICE_MEMORY, __func__,
					   "%u rows of %u dimensions take %llu MB of device memory, "
					   "of which %llu of %llu MB are free", data->n, data->dim,
					   (unsigned long long) ((bytes.device - held) >> 20),
					   (unsigned long long) (available >> 20),
					   (unsigned long long) (total >> 20));
	return gg_ok();
}

/* Copy the caller's rows into device memory. */
static gg_status
load_rows(const gg_dataset *data, const gg_cuda_run &run, gg_cuda_buffer<char> *rows,
		  gg_cuda_data *device, gg_build_stats *stats)
{
	const uint64_t bytes = (uint64_t) data->n * data->dim * gg_element_size(data->element);
	const double begin = gg_cuda_now_s();

	GG_TRY(gg_cuda_allocate_large(rows, bytes, run.control, run.meter));
	GG_TRY(gg_cuda_copy_in(rows->get(), data->rows, bytes, run.stream, run.control));
	device->rows = rows->get();
	device->n = data->n;
	device->dim = data->dim;
	device->pitch = data->dim;
	device->element = data->element;
	device->metric = data->metric;
	device->side = NULL;
	stats->transfer_s += gg_cuda_now_s() - begin;
	return gg_ok();
}

gg_status
gg_cuda_near_lists(gg_cuda_data *data, const gg_build_params *params, const gg_cuda_run &run,
				   gg_cuda_working_copy *copy, gg_cuda_buffer<uint64_t> *lists,
				   gg_cuda_buffer<uint32_t> *order, gg_build_stats *stats)
{
	const uint32_t n = data->n;
	const uint32_t k = params->intermediate_graph_degree;
	const uint32_t length = gg_cuda_list_length(k);
	const bool	random = params->init == GG_INIT_RANDOM;
	const bool	exact = !random && n <= GG_EXACT_MAX_ROWS;
	double		begin = gg_cuda_now_s();

	GG_TRY(gg_cuda_working_copy_make(data, run, copy));
	GG_TRY(gg_cuda_allocate_large(lists, (uint64_t) n * length, run.control, run.meter));
	if (random)
		GG_TRY(gg_cuda_random_lists(&copy->view, length, k, params->seed, run, lists->get()));
	else if (exact)
		GG_TRY(gg_cuda_exact_lists(&copy->view, length, NULL, run, lists->get()));
	else
	{
		GG_TRY(order->allocate(n, run.meter));
		GG_CUDA_TRY(cudaMemsetAsync(order->get(), 0xFF, order->bytes(), run.stream));
		GG_TRY(gg_cuda_cells_init(&copy->view, length, params->seed, NULL, run, lists->get(),
								  order->get()));
	}
	GG_CUDA_TRY(cudaStreamSynchronize(run.stream));
	stats->init_s += gg_cuda_now_s() - begin;

	begin = gg_cuda_now_s();
	if (!exact)
		GG_TRY(gg_cuda_gnnd(&copy->view, {lists->get(), length, k}, params, NULL, order->get(), run,
							stats));
	stats->descent_s += gg_cuda_now_s() - begin;
	return gg_ok();
}

gg_status
gg_cuda_knn_rows(gg_cuda_data *data, const gg_build_params *params, const gg_cuda_run &run,
				 gg_cuda_working_copy *copy, gg_cuda_buffer<uint32_t> *ids,
				 gg_cuda_buffer<float> *distances, gg_build_stats *stats)
{
	const uint64_t n = data->n;
	const uint32_t k = params->intermediate_graph_degree;
	gg_cuda_buffer<uint64_t> lists;
	gg_cuda_buffer<uint32_t> order;
	double		begin;

	if (n == 0)
		return gg_ok();
	GG_TRY(gg_cuda_near_lists(data, params, run, copy, &lists, &order, stats));
	begin = gg_cuda_now_s();
	order.release();
	GG_TRY(gg_cuda_allocate_large(ids, n * k, run.control, run.meter));
	if (distances != NULL)
		GG_TRY(gg_cuda_allocate_large(distances, n * k, run.control, run.meter));
	GG_TRY(gg_cuda_finish_lists(data, {lists.get(), gg_cuda_list_length(k), k}, true, params->seed,
								run, ids->get(), distances != NULL ? distances->get() : NULL));
	GG_TRY(gg_cuda_give_back(run.control, __func__, lists));
	stats->descent_s += gg_cuda_now_s() - begin;
	return gg_ok();
}

/* What a build leaves in device memory for its last stage. */
class build_state
{
public:
	gg_cuda_working_copy copy;
	gg_cuda_buffer<uint32_t> near_lists;	/* n x near_length: of k-NN, or GRNND's pools */
	uint32_t	near_length;
	gg_cuda_buffer<uint32_t> graph; /* n x degree */
	gg_cuda_buffer<uint8_t> changed;	/* n; none: all lists are to be reordered */
};

/* Make GRNND's pools, from k-NN lists as they are, or from random pools. */
static gg_status
make_pools(gg_cuda_data *data, const gg_build_params *params, const gg_cuda_run &run,
		   build_state *state, gg_build_stats *stats)
{
	const gg_grnnd grnnd = gg_grnnd_params(params);
	gg_build_params first = *params;
	gg_cuda_buffer<uint64_t> lists;
	gg_cuda_buffer<uint32_t> order;
	double		begin;

	first.intermediate_graph_degree = grnnd.start;
	if (params->init == GG_INIT_RANDOM)
		GG_TRY(gg_cuda_working_copy_make(data, run, &state->copy));
	else
		GG_TRY(gg_cuda_near_lists(data, &first, run, &state->copy, &lists, &order, stats));
	begin = gg_cuda_now_s();
	state->near_length = grnnd.capacity;
	GG_TRY(gg_cuda_allocate_large(&state->near_lists, (uint64_t) data->n * grnnd.capacity,
								  run.control, run.meter));
	GG_TRY(gg_cuda_grnnd_device(data, params,
								{lists.get(), gg_cuda_list_length(grnnd.start), grnnd.start},
								order.get(), run, state->near_lists.get()));
	stats->descent_s += gg_cuda_now_s() - begin;
	return gg_cuda_give_back(run.control, __func__, lists, order);
}

/* Make the lists that edges are chosen from. */
static gg_status
make_lists(gg_cuda_data *data, const gg_merge_input *input, const gg_build_params *params,
		   const gg_cuda_run &run, build_state *state, gg_build_stats *stats)
{
	const gg_dataset described = {
		.rows = NULL,
		.n = data->n,
		.dim = data->dim,
		.element = data->element,
		.metric = data->metric,
	};
	gg_cuda_extension plan = {};
	const gg_cuda_extended out = {&state->copy, &state->near_lists, &state->changed,
		&state->graph};

	if (gg_algorithm_of(params, data->metric) == GG_ALGORITHM_GRNND && input == NULL)
		return make_pools(data, params, run, state, stats);
	state->near_length = params->intermediate_graph_degree;
	if (input != NULL)
		GG_TRY(gg_cuda_extension_plan(&described, input, params, run.control, &plan));
	if (plan.base == 0)
		return gg_cuda_knn_rows(data, params, run, &state->copy, &state->near_lists, NULL, stats);
	return gg_cuda_extend_rows(data, input, params, &plan, run, &out, stats);
}

/* Choose edges from k-NN lists or pools, which are made anew or, with input, by merging. */
static gg_status
choose_edges(gg_cuda_data *data, const gg_merge_input *input, const gg_build_params *params,
			 const gg_cuda_run &run, build_state *state, gg_build_stats *stats)
{
	double		begin;

	GG_TRY(make_lists(data, input, params, run, state, stats));
	begin = gg_cuda_now_s();
	if (state->graph.get() == NULL)
		GG_TRY(gg_cuda_allocate_large(&state->graph, (uint64_t) data->n * params->graph_degree,
									  run.control, run.meter));
	if (gg_algorithm_of(params, data->metric) == GG_ALGORITHM_TSDG)
		GG_TRY(gg_cuda_diversify_device(data, params, state->near_lists.get(), run,
										state->graph.get()));
	else
		GG_TRY(gg_cuda_optimize_device(state->near_lists.get(), data->n, state->near_length,
									   {params->graph_degree,
									   gg_reverse_edges(data->metric, params->graph_degree)}, run,
									   state->graph.get(), state->changed.get()));
	GG_CUDA_TRY(cudaStreamSynchronize(run.stream));
	stats->optimize_s += gg_cuda_now_s() - begin;
	return gg_ok();
}

gg_status
gg_cuda_edges(gg_cuda_data *data, const gg_build_params *params, const gg_cuda_run &run,
			  gg_cuda_buffer<uint32_t> *graph, gg_build_stats *stats)
{
	build_state state = {};

	graph->release();
	GG_TRY(choose_edges(data, NULL, params, run, &state, stats));
	GG_CUDA_TRY(cudaStreamSynchronize(run.stream));
	graph->swap(state.graph);
	return gg_ok();
}

/* Take memory for a graph's lists. */
static gg_status
take_lists(uint32_t n, uint32_t degree, gg_graph *out)
{
	memset(out, 0, sizeof(*out));
	out->n = n;
	out->degree = degree;
	out->adjacency = allocate_large((uint64_t) n * degree * sizeof(uint32_t));
	return out->adjacency != NULL ? gg_ok() :
		gg_fail(GG_ENOMEM, __func__, "out of memory for the lists of %u nodes", n);
}

gg_status
gg_cuda_build_rows(gg_cuda_data *data, const gg_merge_input *input, const gg_build_params *params,
				   const gg_cuda_run &run, gg_graph *out, gg_build_stats *stats)
{
	const uint64_t bytes = (uint64_t) data->n * params->graph_degree * sizeof(uint32_t);
	build_state state = {};
	double		begin;

	memset(out, 0, sizeof(*out));
	out->degree = params->graph_degree;
	if (data->n == 0)
		return gg_ok();
	GG_TRY(choose_edges(data, input, params, run, &state, stats));

	begin = gg_cuda_now_s();
	GG_TRY(take_lists(data->n, params->graph_degree, out));
	GG_TRY(gg_cuda_copy_out(out->adjacency, state.graph.get(), bytes, run.stream, run.control));
	stats->transfer_s += gg_cuda_now_s() - begin;

	begin = gg_cuda_now_s();
	GG_TRY(gg_cuda_connect(&state.copy.view,
						   {state.near_lists.get(), state.near_length, data->metric, data},
						   state.graph.get(), params->seed, run, out, &stats->repaired));
	stats->connect_s += gg_cuda_now_s() - begin;
	return gg_cuda_give_back(run.control, __func__, state.near_lists, state.graph, state.copy.rows);
}

/* gg_engine.knn_graph */
gg_status
gg_cuda_knn_graph(const gg_dataset *data, const gg_build_params *params, const gg_control *control,
				  uint32_t *ids, float *distances, gg_build_stats *stats)
{
	gg_build_stats unwanted = {};
	gg_build_stats *out = stats != NULL ? stats : &unwanted;
	gg_cuda_stream stream;
	gg_cuda_buffer<char> rows;
	gg_cuda_working_copy copy;
	gg_cuda_buffer<uint32_t> device_ids;
	gg_cuda_buffer<float> device_distances;
	gg_cuda_data device = {};
	double		begin;

	memset(out, 0, sizeof(*out));
	GG_TRY(gg_build_check(data, params, __func__));
	if (data->n == 0)
		return gg_ok();
	GG_TRY(stream.create());
	GG_TRY(load_rows(data, {stream.get(), control, NULL}, &rows, &device, out));
	GG_TRY(gg_cuda_knn_rows(&device, params, {stream.get(), control, NULL}, &copy, &device_ids,
							distances != NULL ? &device_distances : NULL, out));
	begin = gg_cuda_now_s();
	GG_TRY(gg_cuda_copy_out(ids, device_ids.get(), device_ids.bytes(), stream.get(), control));
	if (distances != NULL)
		GG_TRY(gg_cuda_copy_out(distances, device_distances.get(), device_distances.bytes(),
								stream.get(), control));
	out->transfer_s += gg_cuda_now_s() - begin;
	return gg_ok();
}

/* Call run(): exceptions of the host's containers must not cross into C; errors free the graph. */
template <typename RUN>
static gg_status
guarded(RUN run, gg_graph *graph)
{
	gg_status	status;

	try
	{
		status = run();
	}
	catch (...)
	{
		status = gg_fail(GG_ENOMEM, __func__, "out of memory");
	}
	if (status.code != GG_OK)
		gg_graph_free(graph);
	return status;
}

/*
 * How many rows a group has, and the bytes that the build takes then; 0: it is made in one piece.
 */
static uint32_t
group_room(const gg_dataset *data, const gg_build_params *params, const gg_control *control,
		   uint64_t *bytes)
{
	if (control == NULL || control->device_memory == 0 ||
		gg_cuda_plain_bytes(data, params) <= control->device_memory)
		return 0;
	return gg_cuda_group_room(data, params, control->device_memory, bytes);
}

/* Build or, with input, merge rows in host memory. */
static gg_status
make_graph(const gg_dataset *data, const gg_merge_input *input, const gg_build_params *params,
		   const gg_control *control, gg_graph *graph, gg_build_stats *stats)
{
	return guarded([&]() -> gg_status
				   {
					   gg_cuda_work work;
					   gg_cuda_buffer<char> rows;
					   gg_cuda_data device = {};
					   uint64_t bytes;
					   const uint32_t room =
						   input == NULL ? group_room(data, params, control, &bytes) : 0;

					   GG_TRY(work.start(control));
					   const gg_cuda_run run = {work.get(), control, NULL};

					   if (room > 0)
					   {
						   GG_TRY(take_lists(data->n, params->graph_degree, graph));
						   return gg_cuda_build_groups(data, params, control, room, work.get(),
													   graph, stats);
					   }
					   GG_TRY(load_rows(data, run, &rows, &device, stats));
					   return gg_cuda_build_rows(&device, input, params, run, graph, stats);
				   }, graph);
}

/* gg_engine.build */
gg_status
gg_cuda_build(const gg_dataset *data, const gg_build_params *params, const gg_control *control,
			  gg_graph *graph, gg_build_stats *stats)
{
	gg_build_stats unwanted = {};
	gg_build_stats *out = stats != NULL ? stats : &unwanted;

	memset(out, 0, sizeof(*out));
	memset(graph, 0, sizeof(*graph));
	GG_TRY(gg_build_check(data, params, __func__));
	GG_TRY(check_memory(data, 0, 0, params, control));
	return make_graph(data, NULL, params, control, graph, out);
}

/* gg_engine.merge */
gg_status
gg_cuda_merge(const gg_dataset *data, const gg_merge_input *input, const gg_build_params *params,
			  const gg_control *control, gg_graph *graph, gg_build_stats *stats)
{
	gg_build_stats unwanted = {};
	gg_build_stats *out = stats != NULL ? stats : &unwanted;

	memset(out, 0, sizeof(*out));
	memset(graph, 0, sizeof(*graph));
	GG_TRY(gg_merge_check(data, input, params, __func__));
	GG_TRY(check_memory(data, 0, gg_cuda_merge_bytes(data->n, input), params, control));
	return make_graph(data, input, params, control, graph, out);
}

/* gg_engine.build_index: the same arithmetic over rows at a stride, so the same graph */
gg_status
gg_cuda_build_index(gg_index *index, uint32_t n, const gg_build_params *params,
					const gg_control *control, gg_graph *graph, gg_build_stats *stats)
{
	gg_build_stats unwanted = {};
	gg_build_stats *out = stats != NULL ? stats : &unwanted;
	gg_dataset	data = {};
	size_t		stride = 0;

	memset(out, 0, sizeof(*out));
	memset(graph, 0, sizeof(*graph));
	GG_TRY(gg_cuda_index_rows(index, n, &data, &stride));
	GG_TRY(gg_build_check(&data, params, __func__));
	GG_TRY(check_memory(&data, (uint64_t) n * data.dim * gg_element_size(data.element), 0, params,
						control));
	return guarded([&]() -> gg_status
				   {
					   gg_cuda_stream stream;
					   gg_cuda_data device = {};

					   GG_TRY(stream.create());
					   device.rows = data.rows;
					   device.n = n;
					   device.dim = data.dim;
					   device.pitch = (uint32_t) (stride / gg_element_size(data.element));
					   device.element = data.element;
					   device.metric = data.metric;
					   return gg_cuda_build_rows(&device, NULL, params,
												 {stream.get(), control, NULL}, graph, out);
				   }, graph);
}

/* Peak of the k-NN lists' stages, beyond the rows; ids and what they are made of. */
static uint64_t
knn_bytes(uint64_t n, uint64_t dim, const gg_build_params *params, gg_metric metric)
{
	const uint64_t k = params->intermediate_graph_degree;
	const bool	random = params->init == GG_INIT_RANDOM;
	const bool	exact = !random && n <= GG_EXACT_MAX_ROWS;
	const uint64_t lists = n * gg_cuda_list_length((uint32_t) k) * 8;
	/*
	 * nearest pivots, order, then either level's members and the cells' own arrays (1 / 64 of the
	 * rows)
	 */
	const uint64_t cells = n * (32 * 8 + 4 + 8 * 4 + 4 * 4) + n / 64 * (8 * 12 + 64) +
		n / 64 * gg_cuda_row_bytes(metric, (uint32_t) dim);
	/* samples of both ages, offers, summary, order */
	const uint64_t samples = 2 * gg_cuda_sample_words(gg_cuda_samples(params)) * sizeof(uint32_t);
	const uint64_t gnnd = n * (samples + 32 * 8 + (k <= 64 ? 16 : 32) * 4 + 4);
	const uint64_t init = random || exact ? 0 : cells;
	const uint64_t descent = exact ? 0 : gnnd;
	const uint64_t finish = n * k * 4;

	return lists + max_u64(max_u64(init, descent), finish);
}

/* Peak of what makes edges of the lists, these included: F, the graph, reverse edges, U of TSDG. */
static uint64_t
edges_bytes(uint64_t n, const gg_build_params *params, gg_metric metric)
{
	const bool	tsdg = gg_algorithm_of(params, metric) == GG_ALGORITHM_TSDG;
	const uint64_t limit = tsdg ? gg_tsdg_limit(params) : params->graph_degree;
	const uint64_t united = tsdg ? 2 * limit : 0;

	return n * (params->intermediate_graph_degree * 4 + params->graph_degree * 4 +
				limit * (4 + 8) + united * 4) + n * 12;
}

/* Rows, working copy, and the largest stage, each counted as its buffers are allocated. */
uint64_t
gg_cuda_plain_bytes(const gg_dataset *data, const gg_build_params *params)
{
	const uint64_t n = data->n;
	uint64_t	peak;

	if (gg_algorithm_of(params, data->metric) == GG_ALGORITHM_GRNND)
	{
		const gg_grnnd grnnd = gg_grnnd_params(params);
		const bool	random = params->init == GG_INIT_RANDOM;
		gg_build_params lists = *params;

		lists.intermediate_graph_degree = grnnd.start;
		peak = max_u64(random ? 0 : knn_bytes(n, data->dim, &lists, data->metric),
					   n * ((random ? 0 : gg_cuda_list_length(grnnd.start) * 8 + 4) +
							grnnd.capacity * 4) + gg_cuda_grnnd_bytes(data->n, params));
		lists.intermediate_graph_degree = grnnd.capacity;
		peak = max_u64(peak, edges_bytes(n, &lists, data->metric));
		/* merges have k-NN lists */
		peak = max_u64(peak, knn_bytes(n, data->dim, params, data->metric));
		peak = max_u64(peak, edges_bytes(n, params, data->metric));
	}
	else
		peak = max_u64(knn_bytes(n, data->dim, params, data->metric),
					   edges_bytes(n, params, data->metric));
	return n * data->dim * gg_element_size(data->element) +
		n * gg_cuda_row_bytes(data->metric, data->dim) + peak;
}

/* gg_engine.build_bytes */
gg_status
gg_cuda_build_bytes(const gg_dataset *data, const gg_build_params *params,
					const gg_control *control, gg_bytes *bytes)
{
	const uint64_t n = data->n;
	uint64_t	device;
	uint32_t	room;

	GG_TRY(gg_build_check(data, params, __func__));
	room = group_room(data, params, control, &device);
	if (room == 0)
		device = gg_cuda_plain_bytes(data, params);
	bytes->device = device + other_bytes(control);
	/* adjacency; visited and parents when nodes must be linked */
	bytes->host = n * params->graph_degree * 4 + n * 9 +
		(room > 0 ? gg_cuda_groups_host_bytes(n, 1 + control->nothers) : 0);
	return gg_ok();
}
