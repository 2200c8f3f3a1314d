/*
 * group.cu
 *		Searches of many indexes for one query.
 *
 * Lists that one kernel takes together are one launch: those of walks over rows of one kind, and
 * those of which all rows are measured.  The partitions of a table are one kind as a rule, so a
 * group is a copy of what the lists are, a launch or two, and the ticket.  What no kernel takes
 * together (the searches of TSDG, and lists too long for the shared memory beside a view) is
 * launched list by list.
 */
#include "../search/exact.h"
#include "../papers/search_greedy.h"
#include "../search/search_group.h"
#include "../papers/search_segmented.h"
#include "index.cuh"

gg_status
group_scratch::reserve(size_t bytes)
{
	size_t		room = (size_t) 64 << 10;

	if (bytes <= bytes_)
		return gg_ok();
	while (room < bytes)
		room *= 2;
	if (host_ != NULL)
		GG_CUDA_TRY(cudaFreeHost(host_));
	host_ = NULL;
	bytes_ = 0;
	GG_TRY(gg_cuda_pin_status(cudaHostAlloc(&host_, room, cudaHostAllocDefault), __func__,
							  "cudaHostAlloc", room));
	GG_TRY(device_.allocate(room));
	bytes_ = room;
	return gg_ok();
}

/* Lists that follow each other in the copy, and are searched alike. */
typedef struct group_run
{
	uint32_t	first;
	uint32_t	count;
	uint32_t	most_rows;
} group_run;

/* What is known of a group while it is queued. */
typedef struct group_work
{
	const search_group *group;
	search_scratch *scratch;
	cudaStream_t stream;
	const float *query;			/* on the device */
	const search_list *lists;
	const search_list *copies;	/* the same in host memory */
	uint16_t	order[GG_SERVE_MAX_GROUP];	/* which list of the group each of them is */
} group_work;

static_assert(GG_SERVE_MAX_GROUP <= 65536, "numbers of lists");

static gg_index *
index_of(const group_work *work, uint32_t at)
{
	return work->group->group->indexes[work->order[at]];
}

static bool
is_measured(const group_work *work, uint32_t at)
{
	return work->group->group->measured[work->order[at]];
}

static bool
joins(const gg_index *a, bool a_measured, const gg_index *b, bool b_measured)
{
	if (a_measured != b_measured)
		return false;
	if (a_measured)
		return a->view.element == b->view.element && a->view.metric == b->view.metric;
	return search_group_joins(&a->view, &b->view) && a->shape.codes == b->shape.codes;
}

/* Put lists that have rows into the copy, those that join side by side; returns how many. */
static uint32_t
copy_lists(group_work *work, search_list *copies)
{
	const gg_serve_group *group = work->group->group;
	bool		taken[GG_SERVE_MAX_GROUP] = {};
	uint32_t	n = 0;

	for (uint32_t i = 0; i < group->count; i++)
		taken[i] = group->indexes[i] == NULL || group->indexes[i]->view.n == 0;
	for (uint32_t first = 0; first < group->count; first++)
	{
		if (taken[first])
			continue;
		for (uint32_t i = first; i < group->count; i++)
		{
			if (taken[i] || !joins(group->indexes[first], group->measured[first],
								   group->indexes[i], group->measured[i]))
				continue;
			copies[n].view = group->indexes[i]->view;
			copies[n].keys = work->group->keys + (size_t) i * group->request->params.k;
			work->order[n++] = (uint16_t) i;
			taken[i] = true;
		}
	}
	return n;
}

/* Queue one list by itself. */
static gg_status
queue_one(const group_work *work, uint32_t at)
{
	const gg_search_params *params = &work->group->group->request->params;
	search_batch batch = {};

	batch.queries = work->query;
	batch.nq = batch.room = 1;
	batch.keys = work->copies[at].keys;
	if (is_measured(work, at))
		return search_exact_queue(index_of(work, at), work->scratch, params->k, NULL, &batch,
								  work->stream);
	return search_queue(index_of(work, at), work->scratch, params, &batch, work->stream);
}

static gg_status
queue_each(const group_work *work, const group_run *run)
{
	for (uint32_t at = run->first; at < run->first + run->count; at++)
		GG_TRY(queue_one(work, at));
	return gg_ok();
}

static gg_status
queue_walks(const group_work *work, const group_run *run)
{
	const gg_index *index = index_of(work, run->first);
	const gg_search_params *params = &work->group->group->request->params;
	const search_device *device = &index->device;
	search_launch launch = search_launch_for(index, params, run->count);
	uint32_t	cluster;

	if ((params->mode == GG_SEARCH_TSDG_SMALL &&
		 search_greedy_takes(&index->view, params->k, device)) ||
		(params->mode == GG_SEARCH_TSDG_LARGE &&
		 search_segmented_takes(&index->view, &launch, device)) ||
		!search_group_takes(&index->view, &launch, device))
		return queue_each(work, run);
	cluster = search_cluster_for(device, params->mode, run->count + work->group->beside);
	GG_TRY(search_mail(work->scratch, device, work->stream));
	launch.mail = work->scratch->mail.get();
	launch.queries = work->query;
	GG_CUDA_TRY(search_group_launch(&index->view, work->lists + run->first, &launch, device,
									cluster > 1 ? cluster : 1, work->stream));
	return gg_ok();
}

static gg_status
queue_measured(const group_work *work, const group_run *run)
{
	const gg_index *index = index_of(work, run->first);
	const search_device *device = &index->device;
	const uint32_t k = work->group->group->request->params.k;

	if (search_exact_shared(&index->view, k) + sizeof(search_list) >
		(size_t) device->shared_bytes)
		return queue_each(work, run);
	GG_TRY(search_exact_room(work->scratch, k, device, work->stream));
	const exact_group group = {
		.lists = work->lists + run->first,
		.nlists = run->count,
		.most_rows = run->most_rows,
		.k = k,
		.query = work->query,
		.scratch = work->scratch->exact.get(),
	};

	GG_CUDA_TRY(search_exact_group_launch(&index->view, &group, device, work->stream));
	return gg_ok();
}

/* The run that begins with this list. */
static group_run
run_from(const group_work *work, uint32_t first, uint32_t n)
{
	group_run	run = {first, 0, 0};

	for (uint32_t at = first;
		 at < n && joins(index_of(work, first), is_measured(work, first), index_of(work, at),
						 is_measured(work, at)); at++)
	{
		const uint32_t rows = index_of(work, at)->view.n;

		run.count++;
		run.most_rows = rows > run.most_rows ? rows : run.most_rows;
	}
	return run;
}

gg_status
search_group_queue(const search_group *group, search_scratch *scratch, group_scratch *own,
				   cudaStream_t stream)
{
	const gg_serve_group *asked = group->group;
	const size_t query_bytes = ((size_t) asked->request->dim * 4 + 63) & ~(size_t) 63;
	const size_t bytes = query_bytes + asked->count * sizeof(search_list);
	group_work	work;
	search_list *copies;
	uint32_t	n;

	GG_TRY(own->reserve(bytes));
	copies = (search_list *) (own->host() + query_bytes);
	work.group = group;
	work.scratch = scratch;
	work.stream = stream;
	work.query = (const float *) own->device();
	work.lists = (const search_list *) (own->device() + query_bytes);
	work.copies = copies;
	memcpy(own->host(), group->query, (size_t) asked->request->dim * 4);
	n = copy_lists(&work, copies);
	GG_CUDA_TRY(cudaMemcpyAsync(own->device(), own->host(), query_bytes + n * sizeof(search_list),
								cudaMemcpyHostToDevice, stream));
	for (uint32_t first = 0; first < n;)
	{
		const group_run run = run_from(&work, first, n);

		GG_TRY(is_measured(&work, first) ? queue_measured(&work, &run) : queue_walks(&work, &run));
		first += run.count;
	}
	return gg_ok();
}
