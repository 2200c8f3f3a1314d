/*
 * index.cuh
 *		What lies behind gg_index: an index on the device, and the scratch memory of searches.
 *
 *	fill.cu			its memory, and rows and graph made ready for walks
 *	write.cu		rows and graph into it
 *	index.cu		searches of callers that wait
 *	filter.cu		which nodes match a filter
 *	deep.cu			the nearest of many, and of those that match a filter
 *	long_lists.cu	many nearest of all rows, of several queries at once; lists of bounds
 *	group.cu		searches of many indexes for one query
 *	serve.cu		searches of callers that do not wait
 */
#ifndef GG_INDEX_CUH
#define GG_INDEX_CUH

#include <mutex>

#include "../search/view.h"

#define PIVOT_WORDS (1 + GG_PIVOT_DEGREE)	/* of a pivot as a segment has it */

/*
 * What searches on one stream write beside their answers.  Two searches under way at once need two.
 * It grows to the largest search seen and then stays.
 */
typedef struct search_scratch
{
	gg_cuda_buffer<__half> halves;
	gg_cuda_buffer<float> factors;
	gg_cuda_buffer<uint64_t> entries;
	gg_cuda_buffer<char> exact;
	gg_cuda_buffer<float> queries;	/* copies of what came from the host */
	gg_cuda_buffer<char> mail;	/* of blocks that share a query without a cluster */
	gg_cuda_buffer<uint64_t> greedy_lists;	/* these two: search_greedy.cu */
	gg_cuda_buffer<uint32_t> greedy_arrived;
} search_scratch;

/* What deep lists take beside search_scratch, on demand. */
typedef struct deep_scratch
{
	gg_cuda_buffer<uint64_t> narrow;
	gg_cuda_buffer<char> wide;	/* for a slab of `slab` rows, see deep.cu */
	uint32_t	slab = 0;
	size_t		temp_bytes = 0;
	gg_cuda_buffer<uint32_t> bits;	/* of the last filters: each one's of nodes, then of rows */
	gg_cuda_buffer<uint32_t> pruned;	/* bits of nodes that prune.cu leaves, of each query */
	gg_cuda_buffer<char> together;	/* see long_lists.cu */
	gg_cuda_buffer<uint64_t> tids;	/* of one filter */
	gg_cuda_buffer<uint64_t> gathered;	/* TIDs of a batch's filters that have few of them */
	gg_cuda_buffer<int64_t> values;
	/* these three: how many rows filters leave of an index, see note_matches() */
	const gg_index *filtered = NULL;
	const volatile uint64_t *told = NULL;
	uint64_t	usual = 0;
} deep_scratch;

/*
 * Pinned memory and a stream: what one thread needs to bring pageable memory to the device, a
 * buffer being filled while the other one's bytes leave.
 */
class index_stage
{
public:
	index_stage() : next(NULL), memory_(NULL), turn_(0)
	{
		left_[0] = left_[1] = NULL;
	}
	~index_stage();
	index_stage(const index_stage &) = delete;
	index_stage &operator=(const index_stage &) = delete;

	gg_status	create();

	/* The buffer that is to be filled, once its last bytes have left. */
	gg_status	buffer(char **memory);

	/* Called after what reads that buffer was queued on stream(). */
	gg_status	sent();

	cudaStream_t
	stream() const
	{
		return stream_.get();
	}

	index_stage *next;			/* in the list of those that nobody uses */

private:
	void	   *memory_;
	gg_cuda_stream stream_;
	cudaEvent_t left_[2];
	unsigned	turn_;
};

struct gg_index
{
	gg_shape	shape;
	bool		finished;
	search_view view;			/* n is 0 until finished */
	search_view pivot_view;		/* with codes: what pivots.cu reads */
	search_device device;
	gg_cuda_stream stream;

	/* of callers that write rows from pageable memory: as many as there were at a time */
	std::mutex	stages_lock;
	index_stage *stages;

	void	   *host_rows;			/* pinned; NULL: rows are on the device, or nowhere */

	/* one allocation: to take one and to give it back holds up the other threads' calls */
	gg_cuda_buffer<char, true> memory;
	gg_cuda_buffer<char, true> walk_rows;	/* alone, for it may turn out useless */
	uint32_t   *adjacency;		/* these point into memory */
	uint32_t   *pivots;			/* node ids */
	uint32_t   *pivot_entries;	/* as written: node id and neighbours */
	char	   *rows;				/* beside codes they may lie in host memory, or nowhere: NULL */
	char	   *pivot_rows;
	char	   *pivot_halves;		/* with codes: see search/codes.h */
	float	   *code_weights;
	float	   *pivot_norms;
	float	   *norms;
	float	   *mean;
	double	   *range;
	uint64_t   *heads;
	uint32_t   *offsets;
	int64_t    *words;

	/* of searches whose caller waits */
	search_scratch scratch;
	gg_cuda_buffer<uint32_t> filter;
	gg_cuda_buffer<uint64_t> keys;
	void	   *mapped;			/* pinned host memory that the device sees */
	size_t		mapped_bytes;

	gg_index() : finished(false), stages(NULL), host_rows(NULL), adjacency(NULL), pivots(NULL),
				 pivot_entries(NULL), rows(NULL), pivot_rows(NULL), pivot_halves(NULL),
				 code_weights(NULL), pivot_norms(NULL), norms(NULL), mean(NULL), range(NULL),
				 heads(NULL), offsets(NULL), words(NULL), mapped(NULL), mapped_bytes(0)
	{
		memset(&shape, 0, sizeof(shape));
		memset(&view, 0, sizeof(view));
		memset(&pivot_view, 0, sizeof(pivot_view));
		memset(&device, 0, sizeof(device));
	}
	~gg_index()
	{
		/* the stream may still be writing into the memory */
		if (stream.get() != NULL)
			(void) cudaStreamSynchronize(stream.get());
		if (mapped != NULL)
			(void) cudaFreeHost(mapped);
		if (host_rows != NULL)
			(void) cudaFreeHost(host_rows);
		while (stages != NULL)
		{
			index_stage *stage = stages;

			stages = stage->next;
			delete stage;
		}
	}
};

/*
 * The result of a call that pins host memory.  CUDA has one error for both kinds of memory.  Here
 * host memory is missing, or the process may lock no more of it, and evicting a copy from the
 * device would make no room.
 */
static inline gg_status
gg_cuda_pin_status(cudaError_t error, const char *where, const char *what, size_t bytes)
{
	gg_status	status = gg_cuda_status(error, where, what);

	if (status.code == GG_EDEVICE_MEMORY)
	{
		status.code = GG_ENOMEM;
		snprintf(status.message, sizeof(status.message),
				 "could not get %zu bytes of pinned host memory (%s)", bytes, what);
	}
	return status;
}

/* Make room for count elements; what is queued on stream is done before the old memory goes. */
template <typename T>
static gg_status
grow(gg_cuda_buffer<T> &buffer, uint64_t count, cudaStream_t stream)
{
	if (buffer.bytes() >= count * sizeof(T))
		return gg_ok();
	if (buffer.bytes() > 0)
		GG_CUDA_TRY(cudaStreamSynchronize(stream));
	return buffer.allocate(count);
}

/* A batch to be queued: queries and keys as in search_launch, and how they are searched. */
typedef struct search_batch
{
	const float *queries;
	uint32_t	nq;
	uint64_t   *keys;
	const search_slots *slots;	/* NULL: queries and keys are set; else neither is */
	uint32_t	room;			/* queries that scratch is made for when it must grow; >= nq */
	uint32_t	beside;			/* queries of other streams that share the device with these */
	uint32_t	filter_stride;	/* words from a query's filter to the next one's; 0: one for all */
	const struct search_part *part;	/* exact searches: see prune.cuh; NULL: all of it */
} search_batch;

/*
 * precision.cu: set what float32 rows are walked in, view.path; for fp16 its scale, and the mean.
 * Rows and graph are on the device.
 */
extern gg_status index_choose_path(gg_index *index);

/* index.cu: queue a search, by one launch or a few.  params are in range. */
extern gg_status search_queue(const gg_index *index, search_scratch *scratch,
							  const gg_search_params *params, const search_batch *batch,
							  cudaStream_t stream);
extern gg_status search_mail(search_scratch *scratch, const search_device *device,
							 cudaStream_t stream);
extern gg_status search_exact_queue(const gg_index *index, search_scratch *scratch, uint32_t k,
									const uint32_t *filter, const search_batch *batch,
									cudaStream_t stream);

extern gg_status search_exact_room(search_scratch *scratch, uint32_t k,
								   const search_device *device, cudaStream_t stream);

/* Blocks a query, 0 for the single-CTA kernel; and the launch, but for where queries are. */
extern uint32_t search_cluster_for(const search_device *device, gg_search_mode mode, uint32_t nq);
extern search_launch search_launch_for(const gg_index *index, const gg_search_params *params,
									   uint32_t nq);

/* What a queue needs for groups, on demand. */
class group_scratch
{
public:
	group_scratch() : host_(NULL), bytes_(0)
	{
	}
	~group_scratch()
	{
		if (host_ != NULL)
			(void) cudaFreeHost(host_);
	}
	group_scratch(const group_scratch &) = delete;
	group_scratch &operator=(const group_scratch &) = delete;

	/* Make room for so many bytes, pinned and on the device; nothing may be using the old. */
	gg_status	reserve(size_t bytes);

	char *
	host() const
	{
		return (char *) host_;
	}
	char *
	device() const
	{
		return device_.get();
	}

private:
	void	   *host_;
	size_t		bytes_;
	gg_cuda_buffer<char> device_;
};

/* A group to be queued: serve.cu checked it.  query is the host's, keys as the device sees them. */
typedef struct search_group
{
	const gg_serve_group *group;
	const float *query;			/* in host memory */
	uint64_t   *keys;
	uint32_t	beside;			/* as in search_batch */
} search_group;

/* group.cu: queue all lists of a group but those without rows. */
extern gg_status search_group_queue(const search_group *group, search_scratch *scratch,
									group_scratch *own, cudaStream_t stream);

/* A filter in host memory, and its TIDs on the device; NULL: none were gathered. */
typedef struct filter_source
{
	const gg_filter *filter;
	const uint64_t *tids;
} filter_source;

/*
 * filter.cu: find *bits of the nodes that match, in scratch, and *matches, the number of rows that
 * do, which is 0 before.  The filter was checked, and stays as it is until the launches have ended.
 */
extern gg_status search_filter_queue(const gg_index *index, const filter_source *filter,
									 deep_scratch *scratch, unsigned long long *matches,
									 const uint32_t **bits, cudaStream_t stream);
/*
 * The same for several small filters, at most search_filters_together().  Bits are in
 * scratch->bits, each filter's *stride words behind those of the one before.
 */
extern gg_status search_filters_queue(const gg_index *index, const filter_source *filters,
									  uint32_t count, deep_scratch *scratch,
									  unsigned long long *matches, uint32_t *stride,
									  cudaStream_t stream);
extern bool search_filter_is_small(const filter_source *filter);
extern uint32_t search_filters_together(const gg_index *index);
extern cudaError_t search_filter_ready(void);

/* A deep list: what is asked for, and where the answer goes as the device sees it. */
typedef struct deep_query
{
	uint32_t	k;
	uint64_t	after;
	uint64_t	last;			/* keys above it may be left out; 0: none */
	uint64_t   *keys;
	uint64_t   *matches;
	const volatile uint64_t *told;	/* matches as the host sees it */
	const gg_filter *filter;	/* in host memory; NULL: all nodes */
	const uint64_t *tids;		/* of its filter, to be gathered: at most GG_SHORT_TIDS; or NULL */
} deep_query;

/*
 * At most GG_SERVE_MAX_DEEPS lists.  slots has queries and tickets of as many; or copies has the
 * queries, in device memory, and slots no base.
 */
typedef struct deep_batch
{
	const deep_query *queries;
	uint32_t	nq;
	const float *copies;		/* NULL: they are in slots */
	const search_slots *slots;
} deep_batch;

/* The filters of some of a batch's queries. */
typedef struct deep_filters
{
	uint32_t	count;			/* queries they are for */
	const uint32_t *bits;		/* NULL: all nodes */
	uint32_t	stride;			/* 0: one filter for all */
	const unsigned long long *matches;	/* rows of each filter; NULL where bits is */
} deep_filters;

/* deep.cu: queue the lists, each followed by its ticket. */
extern gg_status search_deep_queue(const gg_index *index, search_scratch *search,
								   deep_scratch *scratch, const deep_batch *batch,
								   cudaStream_t stream);
extern cudaError_t search_deep_ready(const search_view *view, const search_device *device);
extern gg_status search_deep_open(cudaStream_t stream);

/*
 * long_lists.cu: how many requests from `first` on it takes together, 0 if none; and queue the
 * lists of requests [first, end).  queries: copies of their queries, dim apart.
 */
extern uint32_t search_long_together(const gg_index *index, const deep_batch *batch,
									 uint32_t first);
extern gg_status search_long_queue(const gg_index *index, const float *queries,
								   const deep_batch *batch, uint32_t first, uint32_t end,
								   deep_scratch *scratch, cudaStream_t stream);
/* The same of an index without rows, for the queries from `first` on that the filters are for. */
extern gg_status search_bounded_queue(const gg_index *index, const float *queries,
									  const deep_batch *batch, uint32_t first,
									  const deep_filters *filters, deep_scratch *scratch,
									  cudaStream_t stream);
extern cudaError_t search_long_ready(const search_view *view, const search_device *device);

/* Bytes of a row as the caller has it. */
static inline size_t
shape_row_bytes(const gg_shape *shape)
{
	return (size_t) shape->dim * gg_element_size(shape->element);
}

/*
 * write.cu: copy bytes [offset, offset + bytes) of the rows as they lie side by side, on the
 * index's stream; done when it returns.
 */
extern gg_status index_copy_rows(gg_index *index, uint64_t offset, const char *from, uint64_t bytes,
								 const gg_control *control);

/* fill.cu: queue codes of n rows from `first` on; from, stride: see code_rows in search/codes.h. */
extern gg_status index_code_rows(gg_index *index, const char *from, size_t stride, uint64_t first,
								 uint32_t n, cudaStream_t stream);

/*
 * fill.cu: *device becomes the one that calls of this thread go to from here on; what was found out
 * about it is kept.
 */
extern gg_status search_device_find(search_device *device);

/* Parents a step.  One function for every kernel: the walk must not depend on the mode. */
extern uint32_t search_width_for(uint32_t requested, uint32_t itopk, uint32_t degree);

/*
 * index.cu: queue a search, or an exact one, on a stream and return.  For callers that keep queries
 * and answers in memory the device sees, and wait by their own means.
 */
extern gg_status gg_cuda_search_enqueue(gg_index *index, const gg_search_params *params,
										const float *queries, uint32_t nq, uint64_t *keys,
										cudaStream_t stream);
extern gg_status gg_cuda_exact_enqueue(gg_index *index, uint32_t k, const uint32_t *filter,
									   const float *queries, uint32_t nq, uint64_t *keys,
									   cudaStream_t stream);

#endif							/* GG_INDEX_CUH */
