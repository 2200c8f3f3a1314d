/*
 * cuda.h
 *		What every file of the CUDA engine shares: CUDA errors as gg_status, device
 *		memory and streams that give themselves back, launch checks, cancellation.
 *
 * Private to kernels/.  C++ scope is the clean-up: a function holds its buffers in
 * gg_cuda_buffer objects and leaves through GG_TRY(), so every path frees them.
 */
#ifndef GG_CUDA_H
#define GG_CUDA_H

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

#include "../../src/engine/engine.h"

/* ---- status ------------------------------------------------------------ */

/* device.cu: an error as a status; what: a literal that names the call. */
extern gg_status gg_cuda_failed(cudaError_t error, const char *where, const char *what);

/* A CUDA call's result. */
static inline gg_status
gg_cuda_status(cudaError_t error, const char *where, const char *what)
{
	return error == cudaSuccess ? gg_ok() : gg_cuda_failed(error, where, what);
}

/* Leave the function with a status that is not GG_OK. */
#define GG_TRY(expr) \
	do { \
		gg_status	try_status_ = (expr); \
		if (try_status_.code != GG_OK) \
			return try_status_; \
	} while (0)

/* The same for a CUDA runtime call. */
#define GG_CUDA_TRY(call) GG_TRY(gg_cuda_status((call), __func__, #call))

/* To follow <<<>>>: leave the function where the runtime refused the launch. */
#define GG_CUDA_LAUNCHED(kernel) GG_TRY(gg_cuda_status(cudaGetLastError(), __func__, kernel))

/* What kernels are planned by. */
typedef struct gg_cuda_limits
{
	int			major;			/* compute capability */
	int			minor;
	int			sms;
	int			shared_bytes;	/* that a block may have, static ones included */
} gg_cuda_limits;

/* ---- device memory ------------------------------------------------------ */

/* Device bytes held and their peak, for comparing with an estimate; NULL where not wanted. */
typedef struct gg_cuda_meter
{
	uint64_t	now;
	uint64_t	peak;
} gg_cuda_meter;

/*
 * device.cu: free and total memory of the thread's device, in bytes.  Where a device shares the
 * host's memory, they are what it can have of that.
 */
extern gg_status gg_cuda_memory(uint64_t *available, uint64_t *total);

/* memory.cu: as cudaMalloc() and cudaFree(), or by a pool in the order of the thread's work. */
extern cudaError_t gg_cuda_malloc(void **memory, size_t bytes);
extern void gg_cuda_free(void *memory);

/* For arrays that indexes keep: small ones share blocks.  To free one takes the bytes asked for. */
extern cudaError_t gg_cuda_malloc_shared(void **memory, size_t bytes);
extern void gg_cuda_free_shared(void *memory, size_t bytes);
extern void gg_cuda_forget_shared(void);

/*
 * count elements of T in device memory, freed at the end of the scope.  Work queued on the buffer
 * is done before it goes: cudaFree() waits for the device, and a pool frees in the order of the
 * thread's work.  SHARED: it may be part of a block.
 */
template <typename T, bool SHARED = false>
class gg_cuda_buffer
{
public:
	gg_cuda_buffer() : data_(NULL), bytes_(0), meter_(NULL)
	{
	}
	~gg_cuda_buffer()
	{
		release();
	}
	gg_cuda_buffer(const gg_cuda_buffer &) = delete;
	gg_cuda_buffer &operator=(const gg_cuda_buffer &) = delete;

	gg_status
	allocate(uint64_t count, gg_cuda_meter *meter = NULL)
	{
		uint64_t	bytes = count * sizeof(T);
		cudaError_t error;

		release();
		if (bytes == 0)
			return gg_ok();
		error = SHARED ? gg_cuda_malloc_shared((void **) &data_, bytes) :
			gg_cuda_malloc((void **) &data_, bytes);
		if (error != cudaSuccess)
		{
			gg_status	status = gg_cuda_status(error, "gg_cuda_buffer", "cudaMalloc");
			uint64_t	available = 0;
			uint64_t	total = 0;

			data_ = NULL;
			if (status.code == GG_EDEVICE_MEMORY &&
				gg_cuda_memory(&available, &total).code == GG_OK)
				snprintf(status.message, sizeof(status.message),
						 "could not allocate %llu bytes of device memory, %llu of %llu are free",
						 (unsigned long long) bytes, (unsigned long long) available,
						 (unsigned long long) total);
			return status;
		}
		bytes_ = bytes;
		meter_ = meter;
		if (meter_ != NULL)
		{
			meter_->now += bytes;
			if (meter_->now > meter_->peak)
				meter_->peak = meter_->now;
		}
		return gg_ok();
	}

	void
	release()
	{
		if (data_ == NULL)
			return;
		if (SHARED)
			gg_cuda_free_shared(data_, bytes_);
		else
			gg_cuda_free(data_);
		if (meter_ != NULL)
			meter_->now -= bytes_;
		data_ = NULL;
		bytes_ = 0;
	}

	void
	swap(gg_cuda_buffer &other)
	{
		T		   *data = data_;
		uint64_t	bytes = bytes_;
		gg_cuda_meter *meter = meter_;

		data_ = other.data_;
		bytes_ = other.bytes_;
		meter_ = other.meter_;
		other.data_ = data;
		other.bytes_ = bytes;
		other.meter_ = meter;
	}

	T *
	get() const
	{
		return data_;
	}

	uint64_t
	bytes() const
	{
		return bytes_;
	}

	/* Hand the memory to the caller, who frees it with cudaFree(). */
	T *
	take()
	{
		T		   *data = data_;

		if (meter_ != NULL)
			meter_->now -= bytes_;
		data_ = NULL;
		bytes_ = 0;
		return data;
	}

private:
	T		   *data_;
	uint64_t	bytes_;
	gg_cuda_meter *meter_;
};

/* ---- stream, events ----------------------------------------------------- */

/* A stream of its own, not ordered with the default stream. */
class gg_cuda_stream
{
public:
	gg_cuda_stream() : stream_(NULL)
	{
	}
	~gg_cuda_stream()
	{
		if (stream_ != NULL)
		{
			/* nothing may still use host memory that the caller frees next */
			(void) cudaStreamSynchronize(stream_);
			(void) cudaStreamDestroy(stream_);
		}
	}
	gg_cuda_stream(const gg_cuda_stream &) = delete;
	gg_cuda_stream &operator=(const gg_cuda_stream &) = delete;

	/* priority: the lower the number, the sooner; 0 comes last */
	gg_status
	create(int priority = 0)
	{
		return gg_cuda_status(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
														   priority),
							  "gg_cuda_stream", "cudaStreamCreateWithPriority");
	}

	cudaStream_t
	get() const
	{
		return stream_;
	}

private:
	cudaStream_t stream_;
};

/*
 * A piece of work on a stream of its own.  With control->background it gives way to searches of
 * this process: see memory.cu.  Buffers that the thread takes in the scope are to be freed in it.
 */
class gg_cuda_work
{
public:
	gg_cuda_work()
	{
	}
	~gg_cuda_work();
	gg_cuda_work(const gg_cuda_work &) = delete;
	gg_cuda_work &operator=(const gg_cuda_work &) = delete;

	gg_status	start(const gg_control *control);

	cudaStream_t
	get() const
	{
		return stream_.get();
	}

private:
	gg_cuda_stream stream_;
};

/* ---- cancellation -------------------------------------------------------- */

static inline gg_status
gg_cuda_check_cancel(const gg_control *control, const char *where)
{
	if (control != NULL && control->cancelled != NULL && control->cancelled(control->ctx))
		return gg_fail(GG_ECANCELED, where, "canceled");
	return gg_ok();
}

static inline void
gg_cuda_progress(const gg_control *control, gg_phase phase, uint64_t done, uint64_t total)
{
	if (control != NULL && control->progress != NULL)
		control->progress(control->ctx, phase, done, total);
}

/*
 * Keeps the host at most two steps ahead of the device: step() after every launch, or group of
 * launches, of some 10 ms.  Launches are asynchronous, so asking cancelled() between them without
 * this would ask at once for seconds of queued work.
 */
class gg_cuda_pace
{
public:
	gg_cuda_pace() : steps_(0)
	{
		events_[0] = events_[1] = NULL;
	}
	~gg_cuda_pace()
	{
		for (int i = 0; i < 2; i++)
			if (events_[i] != NULL)
				(void) cudaEventDestroy(events_[i]);
	}
	gg_cuda_pace(const gg_cuda_pace &) = delete;
	gg_cuda_pace &operator=(const gg_cuda_pace &) = delete;

	gg_status
	create()
	{
		for (int i = 0; i < 2; i++)
			GG_TRY(gg_cuda_status(cudaEventCreateWithFlags(&events_[i], cudaEventDisableTiming),
								  "gg_cuda_pace", "cudaEventCreateWithFlags"));
		return gg_ok();
	}

	gg_status
	step(cudaStream_t stream, const gg_control *control, const char *where)
	{
		int			slot = steps_ & 1;

		if (steps_ >= 2)
			GG_TRY(gg_cuda_status(cudaEventSynchronize(events_[slot]), where,
								  "cudaEventSynchronize"));
		GG_TRY(gg_cuda_status(cudaEventRecord(events_[slot], stream), where, "cudaEventRecord"));
		steps_++;
		return gg_cuda_check_cancel(control, where);
	}

private:
	cudaEvent_t events_[2];
	unsigned	steps_;
};

/* ---- the operations behind gg_cuda_engine ------------------------------- */

/* build.cu */
extern gg_status gg_cuda_build_bytes(const gg_dataset *data, const gg_build_params *params,
									 const gg_control *control, gg_bytes *bytes);
extern gg_status gg_cuda_knn_graph(const gg_dataset *data, const gg_build_params *params,
								   const gg_control *control, uint32_t *ids, float *distances,
								   gg_build_stats *stats);
extern gg_status gg_cuda_build(const gg_dataset *data, const gg_build_params *params,
							   const gg_control *control, gg_graph *graph, gg_build_stats *stats);

extern gg_status gg_cuda_merge(const gg_dataset *data, const gg_merge_input *input,
							   const gg_build_params *params, const gg_control *control,
							   gg_graph *graph, gg_build_stats *stats);

/* build.cu */
extern gg_status gg_cuda_build_index(gg_index *index, uint32_t n, const gg_build_params *params,
									 const gg_control *control, gg_graph *graph,
									 gg_build_stats *stats);

/* fill.cu */
extern gg_status gg_cuda_index_open(const gg_dataset *data, const gg_graph *graph,
									const gg_control *control, gg_index **index);
extern gg_status gg_cuda_index_create(const gg_shape *shape, gg_index **index);
extern gg_status gg_cuda_index_finish(gg_index *index, uint32_t n, const gg_control *control);
extern uint64_t gg_cuda_shape_bytes(const gg_shape *shape);
extern uint64_t gg_cuda_index_bytes(const gg_index *index);
extern void gg_cuda_index_close(gg_index *index);

/* rows: in device memory, stride bytes apart (a multiple of 16); the index keeps them. */
extern gg_status gg_cuda_index_rows(gg_index *index, uint32_t n, gg_dataset *rows, size_t *stride);

/* write.cu */
extern gg_status gg_cuda_index_write(gg_index *index, gg_part part, uint64_t offset,
									 const void *src, uint64_t bytes);
extern gg_status gg_cuda_index_take(gg_index *index, const gg_index *from, uint32_t first,
									uint32_t n);

/* index.cu */
extern gg_status gg_cuda_index_search(gg_index *index, const gg_search_params *params,
									  const float *queries, uint32_t nq, const gg_control *control,
									  uint64_t *keys);
extern gg_status gg_cuda_index_exact(gg_index *index, uint32_t k, const uint32_t *filter,
									 const float *queries, uint32_t nq, const gg_control *control,
									 uint64_t *keys);

/* serve.cu */
extern gg_status gg_cuda_serve_open(int device, void *region, size_t region_bytes,
									const gg_serve_layout *layout, gg_server **server);
extern gg_status gg_cuda_serve_submit(gg_server *server, gg_index *index, uint32_t queue,
									  const gg_serve_batch *batch);
extern gg_status gg_cuda_serve_group(gg_server *server, uint32_t queue,
									 const gg_serve_group *group);
extern gg_status gg_cuda_serve_check(gg_server *server, uint32_t queue, bool *idle);
extern void gg_cuda_serve_close(gg_server *server);

/*
 * memory.cu.  Copies between pageable host memory and the device in pieces of 32 MB (3 ms at 11
 * GB/s; 30 where host memory is touched for the first time, in small pages), asking for
 * cancellation between them; done when they return.
 */
extern gg_status gg_cuda_copy_in(void *device, const void *host, uint64_t bytes,
								 cudaStream_t stream, const gg_control *control);
extern gg_status gg_cuda_copy_out(void *host, const void *device, uint64_t bytes,
								  cudaStream_t stream, const gg_control *control);

/* device.cu */
extern gg_status gg_cuda_probe(gg_use use);
extern gg_status gg_cuda_probe_device(int device);
extern gg_status gg_cuda_device_limits(int device, gg_cuda_limits *limits);
extern gg_status gg_cuda_device_count(int *count);
extern gg_status gg_cuda_device_info(int device, gg_device_info *info);
extern gg_status gg_cuda_use_device(int device);
extern void gg_cuda_release(void);

/*
 * Tells a context from those of other devices and from those before a release; never 0, below 2^24.
 */
extern uint32_t gg_cuda_context_id(int device);

/*
 * gg_cuda_serve_device() names the device that this process serves or builds on.
 * gg_cuda_served_device(): the thread's own by gg_cuda_use_device(), else that; -1: the first.  A
 * thread starts on device 0, and the one that fills indexes is not the one that opened the server.
 */
extern void gg_cuda_serve_device(int device);
extern int	gg_cuda_served_device(void);

#endif							/* GG_CUDA_H */
