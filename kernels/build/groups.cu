/*
 * groups.cu
 *		A graph of more rows than device memory holds the build of: group by group.
 *
 * Some random rows, the pivots, are cut into groups of pivots near each other (group_pivots.h).  A
 * row belongs to the two groups whose nearest pivots are nearest to it.  One group at a time is on
 * the device, and its rows get a graph among themselves as any rows do.  Then each row has two
 * lists of edges, each the most important first, and its list of the graph is one of the nearer
 * group and one of the other in turns, each edge once.  Rows near a border meet on both sides, so
 * that one graph of all rows comes out.
 *
 * Departure from the CPU engine (engine/cpu/build/groups.c), which unites k-NN lists and reorders
 * them at the end.  That takes three times the memory of the graph, which the device does not have.
 * Recall@10 of six groups on the CPU, and distances, itopk 32 and 64, 60,000 x 96 in 60 clusters;
 * itopk 32, 60,000 x 128 without clusters:
 *
 *	in one piece					0.9967 at 659, 0.9982 at 876; 0.9779 at 1,085
 *	united lists						0.9982 at 662, 0.9994 at 881; 0.9740 at 1,090
 *	edges in turns						0.9984 at 668, 0.9994 at 895; 0.9699 at 1,094
 *	edges of the nearer group alone		0.9968 at 663, 0.9988 at 884; 0.9523 at 1,099
 *
 * Rows stay in the caller's memory.  The device has
 *	assign	pivots and a chunk of rows, and the lists of these rows' nearest pivots
 *	groups	the rows of two groups: of one the graph is made, those of the next arrive meanwhile;
 *			and the edges of the group before, until they are in the caller's lists
 *	connect	the graph of all rows, and the rows of its pivots
 * Threads of the host copy rows and edges to where they are needed, through pinned memory.
 *
 * Several devices (gg_control.others) each take the next group that none has, until there is none.
 * The caller's device assigns rows before, and connects the graph after; its thread alone talks to
 * the caller.  Which device builds a group, and when, does not show: a group's edges depend on its
 * rows alone, and of a row's two lists the nearer group's comes first, whichever was there first.
 * So there is a byte for each row that says which lists are there, and no other lock.  One device
 * takes groups in their order, and needs no such bytes.
 *
 * No group is larger than memory allows.  A row whose groups are full belongs to the next one that
 * has room.  Rows take their places in their order, so builds are deterministic.
 *
 * Oracle: invariants of gg_graph, and recall of walks beside those of a build in one piece
 * (test_cuda_build.c).
 */
#include "../../src/engine/rules/group_pivots.h"
#include "../../src/engine/rules/random.h"
#include "copiers.cuh"
#include "../graph/list.cuh"

#include <memory>

/* Rows whose groups are found at a time, at most. */
#define CHUNK_ROWS 262144u

/* Nearest pivots of a row, and groups that are found among them. */
#define NEAR_PIVOTS 64u
#define CHOICES 4
#define NO_GROUP 0xFFu

/* Start to copy rows ids[0 .. count), or without ids the first count ones, into device memory. */
static void
start_rows(copiers *threads, const char *from, size_t row_bytes, const uint32_t *ids,
		   uint32_t count, char *to)
{
	const uint32_t rows = (uint32_t) (PIECE_BYTES / row_bytes);

	threads->start((count + rows - 1) / rows,
				   [=](char *pinned, cudaStream_t stream, uint64_t piece) -> gg_status
				   {
					   const uint64_t begin = piece * rows;
					   const uint32_t some = gg_cuda_slice(count, begin, rows);

					   if (ids == NULL)
						   memcpy(pinned, from + begin * row_bytes, some * row_bytes);
					   for (uint32_t i = 0; ids != NULL && i < some; i++)
						   memcpy(pinned + i * row_bytes, from + ids[begin + i] * row_bytes,
								  row_bytes);
					   GG_CUDA_TRY(cudaMemcpyAsync(to + begin * row_bytes, pinned,
												   some * row_bytes, cudaMemcpyHostToDevice,
												   stream));
					   return gg_cuda_status(cudaStreamSynchronize(stream), "start_rows",
											 "cudaStreamSynchronize");
				   });
}

/* ---- state ---------------------------------------------------------------------- */

class group_build;

/* What a device has of a build. */
class group_device
{
public:
	group_build *build;
	gg_control	quiet;			/* without progress: a group's is not that of all rows */
	cudaStream_t stream;
	gg_build_stats *stats;
	copiers		reading;		/* rows to the device */
	copiers		writing;		/* edges from the device */

	gg_cuda_run
	run() const
	{
		return {stream, &quiet, NULL};
	}

	/*
	 * Wait before copiers, which have streams of their own, use what was just allocated: a pool's
	 * memory is there in the order of the stream alone (common/memory.cu).
	 */
	gg_status
	settle() const
	{
		return gg_cuda_status(cudaStreamSynchronize(stream), "gg_cuda_build_groups",
							  "cudaStreamSynchronize");
	}
};

/* Is the first of a row's two lists of edges there? */
enum
{
	NO_LIST,
	LIST_COMES,
	LIST_THERE
};

class group_build
{
public:
	const gg_dataset *data;
	const gg_build_params *params;
	const gg_control *control;
	gg_build_stats *stats;
	gg_graph   *out;

	uint32_t	room;			/* rows that a group may have */
	uint32_t	ngroups;
	std::vector<uint32_t> pivots;	/* rows */
	std::vector<uint32_t> group_of_pivot;
	std::vector<uint32_t> second_of_pivot;	/* the group of the nearest pivot of another group */
	std::vector<uint8_t> groups;	/* n x 2, the nearer one first */
	std::vector<uint64_t> starts;	/* ngroups + 1 */
	std::vector<uint32_t> members;	/* 2 x n rows by group, ascending */

	group_device own;			/* of the device that the caller's thread uses */
	std::atomic<uint32_t> next;	/* the first group that no device has */
	std::atomic<uint64_t> done;	/* members of groups that are built */
	std::atomic<bool> stopping;	/* a device has failed, or the caller wishes it */
	std::unique_ptr<std::atomic<uint8_t>[]> arrived;	/* n; NULL: there is one device */

	size_t
	row_bytes() const
	{
		return data->dim * gg_element_size(data->element);
	}

	const char *
	row(uint64_t number) const
	{
		return (const char *) data->rows + number * row_bytes();
	}

	/* Rows in device memory. */
	gg_cuda_data
	rows_at(const char *rows, uint32_t n) const
	{
		gg_cuda_data some = {};

		some.rows = rows;
		some.n = n;
		some.dim = some.pitch = data->dim;
		some.element = data->element;
		some.metric = data->metric;
		return some;
	}
};

/* ---- groups of pivots ------------------------------------------------------------- */

/* Load a row as float32, which Euclidean distances order, or L1; of products its direction. */
static void
load_pivot(const gg_dataset *data, uint32_t row, float *out)
{
	const char *from = (const char *) data->rows +
		(size_t) row * data->dim * gg_element_size(data->element);

	for (uint32_t i = 0; i < data->dim; i++)
		out[i] = data->element == GG_ELEMENT_F32 ? ((const float *) from)[i] :
			gg_half_to_float(((const uint16_t *) from)[i]);
	if (data->metric == GG_METRIC_COSINE || data->metric == GG_METRIC_IP)
		gg_query_prepare(GG_METRIC_COSINE, out, data->dim);
}

/* Set group_of_pivot and second_of_pivot; weights: how many rows are near each pivot, about. */
static gg_status
cut_pivots(group_build *build, const std::vector<uint32_t> &weights)
{
	const gg_dataset *data = build->data;
	const uint32_t npivots = (uint32_t) build->pivots.size();
	const uint32_t dim = data->dim;
	const gg_distance_fn distance =
		gg_distance_function(data->metric == GG_METRIC_L1 ? GG_METRIC_L1 : GG_METRIC_L2,
							 GG_ELEMENT_F32);
	std::vector<float> rows((size_t) npivots * dim);
	const gg_group_pivots pivots = {
		.rows = rows.data(),
		.n = npivots,
		.dim = dim,
		.distance = distance,
		.weights = weights.data()
	};

	for (uint32_t p = 0; p < npivots; p++)
		load_pivot(data, build->pivots[p], rows.data() + (size_t) p * dim);
	build->group_of_pivot.resize(npivots);
	build->second_of_pivot.resize(npivots);
	GG_TRY(gg_cut_groups(&pivots, build->ngroups, build->group_of_pivot.data()));
	for (uint32_t p = 0; p < npivots; p++)
	{
		float		least = INFINITY;

		build->second_of_pivot[p] = build->group_of_pivot[p] == 0;
		for (uint32_t other = 0; other < npivots; other++)
		{
			const float d = distance(rows.data() + (size_t) p * dim,
									 rows.data() + (size_t) other * dim, dim);

			if (d < least && build->group_of_pivot[other] != build->group_of_pivot[p])
			{
				least = d;
				build->second_of_pivot[p] = build->group_of_pivot[other];
			}
		}
		GG_TRY(gg_cuda_check_cancel(build->control, __func__));
	}
	return gg_ok();
}

/* ---- rows to groups ---------------------------------------------------------------- */

/* choices: the groups of a row's nearest pivots, the nearest first; NO_GROUP behind the last. */
static __global__ void
choose_kernel(const uint64_t *lists, uint32_t n, const uint32_t *group_of,
			  const uint32_t *second_of, uint8_t *choices)
{
	const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
	const uint64_t *list = lists + (uint64_t) row * NEAR_PIVOTS;
	uint8_t		chosen[CHOICES];
	uint32_t	count = 0;

	if (row >= n)
		return;
	for (uint32_t i = 0; i < NEAR_PIVOTS && count < CHOICES && list[i] != GG_KEY_NONE; i++)
	{
		const uint8_t group = (uint8_t) group_of[gg_key_id(list[i])];
		bool		fresh = true;

		for (uint32_t j = 0; j < count; j++)
			fresh &= chosen[j] != group;
		if (fresh)
			chosen[count++] = group;
	}
	if (count == 1)
		chosen[count++] = (uint8_t) second_of[gg_key_id(list[0])];
	for (uint32_t i = 0; i < CHOICES; i++)
		choices[(uint64_t) row * CHOICES + i] = i < count ? chosen[i] : NO_GROUP;
}

/* Find the nearest pivots of count rows, which lie in device memory behind the pivots' rows. */
static gg_status
near_pivots(const group_build *build, const char *rows, uint32_t count,
			uint64_t *lists)
{
	const uint32_t npivots = (uint32_t) build->pivots.size();
	gg_cuda_data all = build->rows_at(rows, npivots + count);
	gg_cuda_working_copy copy;
	gg_cuda_rows pivots;
	gg_cuda_rows others;

	GG_TRY(gg_cuda_working_copy_make(&all, build->own.run(), &copy));
	GG_TRY(gg_cuda_level_rows(&copy, npivots, build->own.stream));
	pivots = others = copy.view;
	pivots.n = npivots;
	others.n = count;
	others.rows += (uint64_t) npivots * others.quads * 16;
	if (others.norms != NULL)
		others.norms += npivots;
	GG_TRY(gg_cuda_join_whole(&others, &pivots, false, NEAR_PIVOTS, NEAR_PIVOTS, build->own.run(),
							  lists));
	return gg_cuda_drain(build->own.stream, build->control, __func__);
}

/* Estimate from random rows how many rows are near each pivot, and cut the pivots into groups. */
static gg_status
make_groups(group_build *build, char *rows, uint32_t most)
{
	const uint32_t npivots = (uint32_t) build->pivots.size();
	const uint32_t sample = std::min(most, npivots * GG_GROUP_WEIGHT_ROWS);
	std::vector<uint32_t> ids(sample);
	std::vector<uint32_t> weights(npivots, 0);
	std::vector<uint64_t> near((size_t) sample * NEAR_PIVOTS);
	gg_cuda_buffer<uint64_t> lists;
	copies_end	end(&build->own.reading);

	for (uint32_t i = 0; i < sample; i++)
		ids[i] = gg_random_below(build->params->seed, GG_MOST_GROUP_PIVOTS + i, build->data->n);
	start_rows(&build->own.reading, build->row(0), build->row_bytes(), ids.data(), sample,
			   rows + npivots * build->row_bytes());
	GG_TRY(lists.allocate((uint64_t) sample * NEAR_PIVOTS));
	GG_TRY(build->own.reading.wait(build->control));
	GG_TRY(near_pivots(build, rows, sample, lists.get()));
	GG_TRY(gg_cuda_copy_out(near.data(), lists.get(), lists.bytes(), build->own.stream,
							build->control));
	for (uint32_t i = 0; i < sample; i++)
		if (near[(size_t) i * NEAR_PIVOTS] != GG_KEY_NONE)
			weights[(uint32_t) near[(size_t) i * NEAR_PIVOTS] >> 1]++;
	return cut_pivots(build, weights);
}

/* Take a place in the first of a row's choices with one, else in any group; not in group `but`. */
static uint8_t
take_place(const group_build *build, const uint8_t *choices, std::vector<uint32_t> &sizes,
		   uint8_t but)
{
	for (int i = 0; i < CHOICES; i++)
		if (choices[i] != NO_GROUP && choices[i] != but && sizes[choices[i]] < build->room)
		{
			sizes[choices[i]]++;
			return choices[i];
		}
	/* all groups but one have room for all rows (gg_count_groups()) */
	for (uint8_t group = 0;; group++)
		if (group != but && sizes[group] < build->room)
		{
			sizes[group]++;
			return group;
		}
}

/* Have a thread give rows from first on their places, in their order. */
static void
start_places(group_build *build, uint64_t first, uint32_t count, const uint8_t *choices,
			 std::vector<uint32_t> *sizes)
{
	build->own.writing.start(1, [=](char *, cudaStream_t, uint64_t) -> gg_status
						 {
							 for (uint32_t i = 0; i < count; i++)
							 {
								 uint8_t    *groups = build->groups.data() + 2 * (first + i);
								 const uint8_t *of_row = choices + (size_t) i * CHOICES;

								 groups[0] = take_place(build, of_row, *sizes, NO_GROUP);
								 groups[1] = take_place(build, of_row, *sizes, groups[0]);
							 }
							 return gg_ok();
						 });
}

/*
 * Find the groups of all rows, chunk by chunk: while pivots near the rows of one are found, the
 * next arrives, and rows of the one before get their places.
 */
static gg_status
assign_rows(group_build *build, char *const rows[2], uint32_t chunk, std::vector<uint32_t> &sizes)
{
	const uint32_t n = build->data->n;
	const size_t pivot_bytes = build->pivots.size() * build->row_bytes();
	gg_cuda_buffer<uint32_t> group_of;
	gg_cuda_buffer<uint32_t> second_of;
	gg_cuda_buffer<uint8_t> choices;
	gg_cuda_buffer<uint64_t> lists;
	std::vector<uint8_t> chosen[2];
	copies_end	placed(&build->own.writing);

	for (std::vector<uint8_t> &some : chosen)
		some.resize((size_t) chunk * CHOICES);
	GG_TRY(group_of.allocate(build->pivots.size()));
	GG_TRY(second_of.allocate(build->pivots.size()));
	GG_TRY(choices.allocate(chosen[0].size()));
	GG_TRY(lists.allocate((uint64_t) chunk * NEAR_PIVOTS));
	GG_TRY(gg_cuda_copy_in(group_of.get(), build->group_of_pivot.data(), group_of.bytes(),
						   build->own.stream, build->control));
	GG_TRY(gg_cuda_copy_in(second_of.get(), build->second_of_pivot.data(), second_of.bytes(),
						   build->own.stream, build->control));
	start_rows(&build->own.reading, build->row(0), build->row_bytes(), NULL, std::min(chunk, n),
			   rows[0] + pivot_bytes);
	for (uint64_t first = 0, number = 0; first < n; first += chunk, number++)
	{
		const uint32_t count = gg_cuda_slice(n, first, chunk);
		uint8_t    *some = chosen[number % 2].data();

		GG_TRY(build->own.reading.wait(build->control));
		if (first + count < n)
			start_rows(&build->own.reading, build->row(first + count), build->row_bytes(), NULL,
					   gg_cuda_slice(n, first + count, chunk),
					   rows[(number + 1) % 2] + pivot_bytes);
		GG_TRY(near_pivots(build, rows[number % 2], count, lists.get()));
		choose_kernel<<<gg_cuda_blocks(count, 256), 256, 0, build->own.stream>>>
			(lists.get(), count, group_of.get(), second_of.get(), choices.get());
		GG_CUDA_LAUNCHED("choose_kernel");
		GG_TRY(gg_cuda_copy_out(some, choices.get(), (uint64_t) count * CHOICES, build->own.stream,
								build->control));
		GG_TRY(build->own.writing.wait(build->control));
		start_places(build, first, count, some, &sizes);
		gg_cuda_progress(build->control, GG_PHASE_KNN_INIT, first + count, n);
	}
	return build->own.writing.wait(build->control);
}

/* Rows by group. */
static gg_status
list_members(group_build *build, const std::vector<uint32_t> &sizes)
{
	std::vector<uint64_t> next(build->ngroups);

	build->starts.assign(build->ngroups + 1, 0);
	for (uint32_t group = 0; group < build->ngroups; group++)
	{
		next[group] = build->starts[group];
		build->starts[group + 1] = build->starts[group] + sizes[group];
	}
	for (uint32_t row = 0; row < build->data->n; row++)
	{
		build->members[next[build->groups[2 * (size_t) row]]++] = row;
		build->members[next[build->groups[2 * (size_t) row + 1]]++] = row;
		if (row % (1 << 20) == 0)
			GG_TRY(gg_cuda_check_cancel(build->control, __func__));
	}
	return gg_ok();
}

/* Draw pivots, and find their groups and those of all rows. */
static gg_status
find_groups(group_build *build)
{
	const uint32_t n = build->data->n;
	const uint32_t npivots = gg_count_group_pivots(build->ngroups);
	const uint32_t chunk = std::min(CHUNK_ROWS, build->room / 2);
	const double begin = gg_cuda_now_s();
	std::vector<uint32_t> sizes(build->ngroups, 0);
	gg_cuda_buffer<char> rows[2];
	copies_end	end(&build->own.reading);

	for (uint32_t p = 0; p < npivots; p++)
		build->pivots.push_back(gg_random_below(build->params->seed, p, n));
	build->groups.resize(2 * (size_t) n);
	build->members.resize(2 * (size_t) n);
	for (gg_cuda_buffer<char> &some : rows)
	{
		GG_TRY(some.allocate((npivots + chunk) * build->row_bytes()));
		GG_TRY(build->own.settle());
		start_rows(&build->own.reading, build->row(0), build->row_bytes(), build->pivots.data(),
				   npivots, some.get());
		GG_TRY(build->own.reading.wait(build->control));
	}
	GG_TRY(make_groups(build, rows[0].get(), chunk));

	char	   *const at[2] = {rows[0].get(), rows[1].get()};

	GG_TRY(assign_rows(build, at, chunk, sizes));
	GG_TRY(list_members(build, sizes));
	build->stats->init_s += gg_cuda_now_s() - begin;
	return gg_ok();
}

/* ---- graphs of groups --------------------------------------------------------------- */

/* Places of unite_lists()'s hash of ids, at most: 2 to this power. */
#define LOG_IDS 11

/*
 * Is the group's list the first of the row's two?  With one device groups are built in their order.
 * With several, whoever comes first writes its list, and another waits for it to be there.
 */
static bool
comes_first(const group_build *build, uint32_t group, uint32_t row)
{
	const uint8_t *groups = build->groups.data() + 2 * (size_t) row;
	uint8_t		before = NO_LIST;

	if (build->arrived == NULL)
		return group == std::min(groups[0], groups[1]);
	if (build->arrived[row].compare_exchange_strong(before, LIST_COMES))
		return true;
	while (build->arrived[row].load() != LIST_THERE)
		std::this_thread::yield();
	return false;
}

/*
 * Make one list of two, in turns: the row's, which is there if another group was first, and fresh,
 * the group's, whose ids are numbers in it; if none was first, fresh becomes the row's.  Marks are
 * kept.  What comes out is the same whichever was first.
 */
static void
unite_lists(const group_build *build, uint32_t group, uint32_t row, const uint32_t *fresh)
{
	const uint32_t degree = build->params->graph_degree;
	const uint8_t *groups = build->groups.data() + 2 * (size_t) row;
	const uint32_t *members = build->members.data() + build->starts[group];
	uint32_t   *list = build->out->adjacency + (size_t) row * degree;
	const bool	first = comes_first(build, group, row);
	uint32_t	two[2][GG_MAX_DEGREE / 2];	/* that of the nearer group first */
	uint32_t	ids[1 << LOG_IDS];
	const uint32_t at = group == groups[0] ? 0 : 1;
	uint32_t   *mine = first ? list : two[at];
	uint32_t	log_ids = 6;
	uint32_t	count = 0;

	for (uint32_t i = 0; i < degree; i++)
		mine[i] = fresh[i] == GG_NO_NODE ? GG_NO_NODE :
			members[fresh[i] & ~GG_EDGE_MARK] | (fresh[i] & GG_EDGE_MARK);
	if (first)
	{
		if (build->arrived != NULL)
			build->arrived[row].store(LIST_THERE);
		return;
	}
	memcpy(two[1 - at], list, degree * sizeof(uint32_t));
	while (1u << log_ids < 8 * degree)
		log_ids++;
	memset(ids, 0xFF, sizeof(uint32_t) << log_ids);
	for (uint32_t i = 0; i < 2 * degree && count < degree; i++)
	{
		const uint32_t id = two[i % 2][i / 2];
		const uint32_t node = id & ~GG_EDGE_MARK;
		uint32_t	slot = node * 0x9E3779B1u >> (32 - log_ids);

		if (id == GG_NO_NODE)
			continue;
		while (ids[slot] != GG_NO_NODE && ids[slot] != node)
			slot = (slot + 1) % (1u << log_ids);
		/* whether an id is known nobody can foresee: without a branch */
		list[count] = id;
		count += ids[slot] == GG_NO_NODE;
		ids[slot] = node;
	}
	for (; count < degree; count++)
		list[count] = GG_NO_NODE;
}

/* Have the edges of a group go to the lists of all rows. */
static void
start_edges(group_device *device, uint32_t group, const uint32_t *edges)
{
	group_build *build = device->build;
	const uint64_t begin = build->starts[group];
	const uint32_t count = (uint32_t) (build->starts[group + 1] - begin);
	const size_t list_bytes = build->params->graph_degree * sizeof(uint32_t);
	const uint32_t lists = (uint32_t) (PIECE_BYTES / list_bytes);

	device->writing.start((count + lists - 1) / lists,
						  [=](char *pinned, cudaStream_t stream, uint64_t piece) -> gg_status
						  {
							  const uint64_t first = piece * lists;
							  const uint32_t some = gg_cuda_slice(count, first, lists);

							  GG_CUDA_TRY(cudaMemcpyAsync(pinned,
														  (const char *) edges + first * list_bytes,
														  some * list_bytes, cudaMemcpyDeviceToHost,
														  stream));
							  GG_CUDA_TRY(cudaStreamSynchronize(stream));
							  for (uint32_t i = 0; i < some; i++)
								  unite_lists(build, group, build->members[begin + first + i],
											  (const uint32_t *) (pinned + i * list_bytes));
							  return gg_ok();
						  });
}

/* Start to copy a group's rows to the device. */
static void
start_group(group_device *device, uint32_t group, char *rows)
{
	const group_build *build = device->build;
	const uint64_t begin = build->starts[group];

	start_rows(&device->reading, build->row(0), build->row_bytes(), build->members.data() + begin,
			   (uint32_t) (build->starts[group + 1] - begin), rows);
}

/* Tell the caller of all devices' progress, in its own thread alone. */
static void
tell_progress(const group_device *device)
{
	const group_build *build = device->build;

	if (device == &build->own)
		gg_cuda_progress(build->control, GG_PHASE_KNN_DESCENT, build->done.load(),
						 build->starts[build->ngroups]);
}

/* Build groups, until every group is some device's. */
static gg_status
build_groups(group_device *device)
{
	group_build *build = device->build;
	const uint32_t ngroups = build->ngroups;
	uint64_t	largest = 0;
	gg_cuda_buffer<char> rows[2];
	gg_cuda_buffer<uint32_t> edges[2];
	copies_end	read(&device->reading);
	copies_end	written(&device->writing);
	uint32_t	group = build->next.fetch_add(1);
	uint32_t	ahead;
	double		begin;

	if (group >= ngroups)
		return gg_ok();
	for (uint32_t any = 0; any < ngroups; any++)
		largest = std::max(largest, build->starts[any + 1] - build->starts[any]);
	for (gg_cuda_buffer<char> &some : rows)
		GG_TRY(gg_cuda_allocate_large(&some, largest * build->row_bytes(), &device->quiet, NULL));
	GG_TRY(device->settle());
	start_group(device, group, rows[0].get());
	GG_TRY(device->reading.wait(&device->quiet));
	for (uint32_t turn = 0; group < ngroups; turn++, group = ahead)
	{
		gg_cuda_data some = build->rows_at(rows[turn % 2].get(),
										   (uint32_t) (build->starts[group + 1] -
													   build->starts[group]));

		ahead = build->next.fetch_add(1);
		if (ahead < ngroups)
			start_group(device, ahead, rows[(turn + 1) % 2].get());
		if (some.n > 0)
			GG_TRY(gg_cuda_edges(&some, build->params, device->run(), &edges[turn % 2],
								 device->stats));
		begin = gg_cuda_now_s();
		GG_TRY(device->writing.wait(&device->quiet));
		start_edges(device, group, edges[turn % 2].get());
		GG_TRY(device->reading.wait(&device->quiet));
		device->stats->transfer_s += gg_cuda_now_s() - begin;
		build->done.fetch_add(some.n);
		tell_progress(device);
	}
	begin = gg_cuda_now_s();
	GG_TRY(device->writing.wait(&device->quiet));
	device->stats->transfer_s += gg_cuda_now_s() - begin;
	return gg_ok();
}

/* ---- several devices ------------------------------------------------------------------ */

/* gg_control.cancelled of devices that work side by side; the caller asks in its own thread. */
static bool
is_stopped(void *ctx)
{
	const group_device *device = (const group_device *) ctx;
	group_build *build = device->build;

	if (device == &build->own && gg_cuda_check_cancel(build->control, __func__).code != GG_OK)
		build->stopping.store(true);
	return build->stopping.load();
}

/* Take what a device's copying threads need, and set the gg_control of its work. */
static gg_status
open_device(group_build *build, group_device *device)
{
	const int	devices = 1 + build->control->nothers;
	const int	threads = std::max(build->control->threads / devices, 1);

	device->build = build;
	device->quiet = *build->control;
	device->quiet.progress = NULL;
	if (devices > 1)
	{
		device->quiet.cancelled = is_stopped;
		device->quiet.ctx = device;
	}
	GG_TRY(device->reading.create(threads));
	return device->writing.create(threads);
}

/* Devices beside the caller's, each in a thread that has all of the device's work. */
class other_devices
{
public:
	other_devices(group_build *build) : build_(build), left_(0),
		results_(build->control->nothers, gg_ok()), stats_(build->control->nothers)
	{
	}
	~other_devices()
	{
		build_->stopping.store(true);
		join();
	}
	other_devices(const other_devices &) = delete;
	other_devices &operator=(const other_devices &) = delete;

	void
	start()
	{
		left_.store((int) results_.size());
		for (size_t i = 0; i < results_.size(); i++)
			threads_.push_back(quiet_thread([this, i]
											{
												results_[i] = guarded_run(i);
												if (results_[i].code != GG_OK)
													build_->stopping.store(true);
												left_.fetch_sub(1);
											}));
	}

	/*
	 * Wait until all have ended; status: of the caller's device.  Returns the first failure other
	 * than a cancellation, else a cancellation, if there is one.  The caller is asked here, too,
	 * for the others may end before they look.
	 */
	gg_status
	wait(gg_status status)
	{
		while (left_.load() > 0)
		{
			if (status.code != GG_OK)
				build_->stopping.store(true);
			std::this_thread::sleep_for(std::chrono::microseconds(200));
			if (status.code == GG_OK)
				status = gg_cuda_check_cancel(&build_->own.quiet, "gg_cuda_build_groups");
			if (status.code == GG_OK)
				tell_progress(&build_->own);
		}
		join();
		for (const gg_status &one : results_)
			if (status.code == GG_OK || (status.code == GG_ECANCELED && one.code != GG_OK))
				status = one;
		/* the last group may have ended since progress was told */
		if (status.code == GG_OK)
			tell_progress(&build_->own);
		return status;
	}

	/* Stages take as long as on the device where they take longest. */
	void
	add_stats(gg_build_stats *all) const
	{
		for (const gg_build_stats &one : stats_)
		{
			all->iterations = std::max(all->iterations, one.iterations);
			all->changed = std::max(all->changed, one.changed);
			all->distances += one.distances;
			all->init_s = std::max(all->init_s, one.init_s);
			all->descent_s = std::max(all->descent_s, one.descent_s);
			all->optimize_s = std::max(all->optimize_s, one.optimize_s);
			all->transfer_s = std::max(all->transfer_s, one.transfer_s);
		}
	}

private:
	gg_status
	run(size_t number)
	{
		gg_cuda_work work;
		group_device device = {};

		GG_TRY(gg_cuda_use_device(build_->control->others[number]));
		GG_TRY(work.start(build_->control));
		device.stream = work.get();
		device.stats = &stats_[number];
		GG_TRY(open_device(build_, &device));
		return build_groups(&device);
	}

	/* Run the device's work, and name the device in the message of a failure. */
	gg_status
	guarded_run(size_t number)
	{
		const int	device = build_->control->others[number];
		gg_status	status;
		gg_status	told;

		try
		{
			status = run(number);
		}
		catch (...)
		{
			status = gg_fail(GG_ENOMEM, __func__, "out of memory");
		}
		if (status.code == GG_OK || status.code == GG_ECANCELED)
			return status;
		told = gg_fail(status.code, status.where, "device %d: %.170s", device, status.message);
		told.device_error = status.device_error;
		return told;
	}

	void
	join()
	{
		for (std::thread &thread : threads_)
			thread.join();
		threads_.clear();
	}

	group_build *build_;
	std::atomic<int> left_;
	std::vector<gg_status> results_;
	std::vector<gg_build_stats> stats_;
	std::vector<std::thread> threads_;
};

/* Build all groups, by all devices. */
static gg_status
build_by_all(group_build *build)
{
	const uint32_t n = build->data->n;
	gg_status	status;

	if (build->control->nothers == 0)
		return build_groups(&build->own);
	build->arrived.reset(new std::atomic<uint8_t>[n]);
	for (uint32_t row = 0; row < n; row++)
		build->arrived[row].store(NO_LIST, std::memory_order_relaxed);

	other_devices others(build);

	others.start();
	status = others.wait(build_groups(&build->own));
	others.add_stats(build->stats);
	build->arrived.reset();
	return status;
}

/* ---- all ------------------------------------------------------------------------------ */

/* Connect the graph: first all of it is on the device, then the rows of its pivots. */
static gg_status
connect(group_build *build)
{
	const gg_dataset *data = build->data;
	const uint32_t degree = build->params->graph_degree;
	const gg_cuda_run run = {build->own.stream, build->control, NULL};
	std::vector<uint32_t> pivots;
	const double begin = gg_cuda_now_s();

	{
		gg_cuda_buffer<uint32_t> graph;

		GG_TRY(gg_cuda_allocate_large(&graph, (uint64_t) data->n * degree, run.control, NULL));
		GG_TRY(build->own.settle());
		start_rows(&build->own.reading, (const char *) build->out->adjacency,
				   degree * sizeof(uint32_t), NULL, data->n, (char *) graph.get());
		GG_TRY(build->own.reading.wait(run.control));
		GG_TRY(gg_cuda_connect_nodes({graph.get(), degree, data->metric, NULL}, graph.get(),
									 build->params->seed, run, build->out, pivots,
									 &build->stats->repaired));
	}

	const uint32_t npivots = (uint32_t) pivots.size();
	gg_cuda_buffer<char> rows;
	gg_cuda_working_copy copy;
	copies_end	end(&build->own.reading);

	GG_TRY(rows.allocate(npivots * build->row_bytes()));
	GG_TRY(build->own.settle());
	start_rows(&build->own.reading, build->row(0), build->row_bytes(), pivots.data(), npivots,
			   rows.get());
	GG_TRY(build->own.reading.wait(run.control));

	gg_cuda_data some = build->rows_at(rows.get(), npivots);

	GG_TRY(gg_cuda_working_copy_make(&some, run, &copy));
	GG_TRY(gg_cuda_link_pivots(&copy.view, pivots, build->params->seed, run, build->out));
	build->stats->connect_s += gg_cuda_now_s() - begin;
	return gg_ok();
}

gg_status
gg_cuda_build_groups(const gg_dataset *data, const gg_build_params *params,
					 const gg_control *control, uint32_t room, cudaStream_t stream, gg_graph *out,
					 gg_build_stats *stats)
{
	group_build build = {};

	build.data = data;
	build.params = params;
	build.control = control;
	build.stats = build.own.stats = stats;
	build.out = out;
	build.room = room;
	build.ngroups = gg_count_groups(data->n, room);
	build.own.stream = stream;
	GG_TRY(open_device(&build, &build.own));
	GG_TRY(find_groups(&build));
	GG_TRY(build_by_all(&build));
	return connect(&build);
}
