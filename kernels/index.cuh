/*
 * index.cuh
 *		What lies behind gg_index: an index on the device, and the scratch memory of searches.
 *
 *	fill.cu			memory, rows and graph into it, made ready for walks
 *	index.cu		searches of callers that wait
 *	serve.cu		searches of callers that do not
 */
#ifndef GG_INDEX_CUH
#define GG_INDEX_CUH

#include "search.cuh"

/*
 * What searches on one stream write beside their answers.  Two searches under way at once need two.  It
 * grows to the largest search seen and then stays.
 */
typedef struct search_scratch
{
	gg_cuda_buffer<__half> halves;
	gg_cuda_buffer<float> factors;
	gg_cuda_buffer<uint64_t> entries;
	gg_cuda_buffer<char> exact;
	gg_cuda_buffer<float> queries;	/* copies of what came from the host */
} search_scratch;

struct gg_index
{
	gg_shape	shape;
	bool		finished;
	search_view view;			/* n is 0 until finished */
	search_device device;
	gg_cuda_stream stream;

	/* one allocation: to take one and to give it back holds up the other threads' calls */
	gg_cuda_buffer<char> memory;
	gg_cuda_buffer<char> walk_rows; /* alone, for it may turn out useless */
	uint32_t   *adjacency;		/* these point into memory */
	uint32_t   *pivots;			/* node ids */
	uint32_t   *pivot_entries;	/* as written: node id and neighbours */
	char	   *rows;
	char	   *pivot_rows;
	float	   *pivot_norms;
	float	   *norms;
	float	   *mean;
	double	   *range;

	/* of searches whose caller waits */
	search_scratch scratch;
	gg_cuda_buffer<uint32_t> filter;
	gg_cuda_buffer<uint32_t> nodes;
	gg_cuda_buffer<float> distances;
	void	   *mapped;			/* pinned host memory that the device sees */
	size_t		mapped_bytes;

	gg_index() : finished(false), adjacency(NULL), pivots(NULL), pivot_entries(NULL), rows(NULL),
				 pivot_rows(NULL), pivot_norms(NULL), norms(NULL), mean(NULL), range(NULL),
				 mapped(NULL), mapped_bytes(0)
	{
		memset(&shape, 0, sizeof(shape));
		memset(&view, 0, sizeof(view));
		memset(&device, 0, sizeof(device));
	}
	~gg_index()
	{
		/* the stream may still be writing into it */
		if (stream.get() != NULL)
			(void) cudaStreamSynchronize(stream.get());
		if (mapped != NULL)
			(void) cudaFreeHost(mapped);
	}
};

/*
 * The result of a call that pins host memory.  CUDA has one error for both kinds of memory; here the host's is
 * missing, or the limit of what a process may lock, and no copy that is evicted from the device makes room for it.
 */
static inline gg_status
gg_cuda_pin_status(cudaError_t error, const char *where, const char *what, size_t bytes)
{
	gg_status	status = gg_cuda_status(error, where, what);

	if (status.code == GG_EDEVICE_MEMORY)
	{
		status.code = GG_ENOMEM;
		snprintf(status.message, sizeof(status.message), "could not get %zu bytes of pinned host memory (%s)", bytes,
				 what);
	}
	return status;
}

/* Room for count elements at least; what is queued on stream is done before the old memory goes. */
template <typename T>
static gg_status
grow(gg_cuda_buffer<T> &buffer, uint64_t count, cudaStream_t stream)
{
	if (buffer.bytes() >= count * sizeof(T))
		return gg_cuda_ok();
	if (buffer.bytes() > 0)
		GG_CUDA_TRY(cudaStreamSynchronize(stream));
	return buffer.allocate(count);
}

/* A batch to be queued: as search_launch has it, and what it is to be searched for. */
typedef struct search_batch
{
	const float *queries;
	uint32_t	nq;
	uint32_t   *nodes;
	float	   *distances;
	const search_slots *slots;	/* NULL: all three above are set; else none is */
	uint32_t	room;			/* queries that scratch is made for when it must grow; >= nq */
	uint32_t	beside;			/* queries of other streams that share the device with these */
} search_batch;

/* index.cu: one launch or a few on stream.  params are in range. */
extern gg_status search_queue(const gg_index *index, search_scratch *scratch,
							  const gg_search_params *params, const search_batch *batch,
							  cudaStream_t stream);
extern gg_status search_exact_queue(const gg_index *index, search_scratch *scratch, uint32_t k,
									const uint32_t *filter, const search_batch *batch,
									cudaStream_t stream);

/* fill.cu: the device that calls of this thread go to from here on; what was found out about it is kept. */
extern gg_status search_device_find(search_device *device);

#endif							/* GG_INDEX_CUH */
