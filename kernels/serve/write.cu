/*
 * write.cu
 *		Rows and graph on their way into an index, from host memory or from another index.
 *
 * The device reads pinned memory itself.  Pageable memory goes through a buffer of the driver's,
 * which all threads of a process share: 5 to 6 GB/s, by one thread as by eight.  Most bytes are
 * rows, and callers bring these by several threads at once.  So each thread gets pinned buffers of
 * its own (index_stage): 6 GB/s by one thread, 12 by two, 23 by four, 40 by eight.  All this was
 * measured on one H200, with memory that other processes had filled.
 */
#include <new>

#include "../../src/engine/rules/codes.h"
#include "../../src/engine/rules/serve_check.h"
#include "index.cuh"

/* between two looks at cancelled(): 12 ms of pageable copy */
#define UPLOAD_BYTES ((uint64_t) 64 << 20)

/*
 * Pinning takes half a millisecond a MB; a copy as short as this one still takes longer than to
 * start it.
 */
#define STAGE_BYTES ((size_t) 512 << 10)

/* ---- pinned buffers ------------------------------------------------------------ */

index_stage::~index_stage()
{
	if (stream_.get() != NULL)
		(void) cudaStreamSynchronize(stream_.get());
	for (int i = 0; i < 2; i++)
		if (left_[i] != NULL)
			(void) cudaEventDestroy(left_[i]);
	if (memory_ != NULL)
		(void) cudaFreeHost(memory_);
}

gg_status
index_stage::create()
{
	GG_TRY(stream_.create());
	for (int i = 0; i < 2; i++)
		GG_CUDA_TRY(cudaEventCreateWithFlags(&left_[i], cudaEventDisableTiming));
	return gg_cuda_pin_status(cudaHostAlloc(&memory_, 2 * STAGE_BYTES, cudaHostAllocMapped),
							  __func__, "cudaHostAlloc", 2 * STAGE_BYTES);
}

gg_status
index_stage::buffer(char **memory)
{
	/* an event that was never recorded counts as done */
	GG_CUDA_TRY(cudaEventSynchronize(left_[turn_]));
	*memory = (char *) memory_ + turn_ * STAGE_BYTES;
	return gg_ok();
}

gg_status
index_stage::sent()
{
	GG_CUDA_TRY(cudaEventRecord(left_[turn_], stream_.get()));
	turn_ ^= 1;
	return gg_ok();
}

/* Take a stage that nobody uses, or a new one; NULL when there is no pinned memory to be had. */
static index_stage *
take_stage(gg_index *index)
{
	index_stage *stage;

	{
		std::lock_guard<std::mutex> guard(index->stages_lock);

		stage = index->stages;
		if (stage != NULL)
		{
			index->stages = stage->next;
			return stage;
		}
	}
	stage = new (std::nothrow) index_stage;
	if (stage != NULL && stage->create().code != GG_OK)
	{
		delete stage;
		stage = NULL;
	}
	return stage;
}

static void
leave_stage(gg_index *index, index_stage *stage)
{
	std::lock_guard<std::mutex> guard(index->stages_lock);

	stage->next = index->stages;
	index->stages = stage;
}

/* ---- rows ------------------------------------------------------------------------ */

/* Rows, or codes of them, of `row` bytes each, `stride` bytes apart. */
typedef struct row_area
{
	char	   *memory;
	size_t		stride;
	size_t		row;
} row_area;

static row_area
area_of_rows(const gg_index *index)
{
	return {index->rows, index->view.row_stride, shape_row_bytes(&index->shape)};
}

static row_area
area_of_codes(gg_index *index)
{
	return {index->walk_rows.get(), index->view.walk_stride,
		gg_code_record_bytes(index->shape.codes, index->shape.dim)};
}

/* What one call of CUDA's can copy: rows, or a part of one. */
typedef struct row_piece
{
	char	   *to;
	size_t		width;
	size_t		rows;
} row_piece;

/* The first piece, limit bytes at most, of `bytes` bytes from offset on of rows side by side. */
static row_piece
first_piece(const row_area *area, uint64_t offset, uint64_t bytes, uint64_t limit)
{
	const size_t stride = area->stride;
	const size_t row = area->row;
	const size_t inside = (size_t) (offset % row);
	row_piece	piece;

	if (limit > bytes)
		limit = bytes;
	piece.to = area->memory + offset / row * stride + inside;
	piece.rows = 1;
	if (stride == row)
		piece.width = limit;
	else if (inside != 0 || limit < row)
		/* the end of a row that an earlier piece began, or the beginning of one */
		piece.width = limit < row - inside ? limit : row - inside;
	else
	{
		piece.width = row;
		piece.rows = limit / row;
	}
	return piece;
}

static cudaError_t
queue_piece(const row_area *area, const row_piece *piece, const void *from, cudaStream_t stream)
{
	if (piece->rows == 1)
		return cudaMemcpyAsync(piece->to, from, piece->width, cudaMemcpyHostToDevice, stream);
	return cudaMemcpy2DAsync(piece->to, area->stride, from, piece->width, piece->width, piece->rows,
							 cudaMemcpyHostToDevice, stream);
}

static gg_status
copy_pieces(const row_area *area, uint64_t offset, const char *from, uint64_t bytes,
			const gg_control *control, cudaStream_t stream)
{
	while (bytes > 0)
	{
		row_piece	piece = first_piece(area, offset, bytes, UPLOAD_BYTES);
		uint64_t	done = piece.width * piece.rows;

		GG_CUDA_TRY(queue_piece(area, &piece, from, stream));
		offset += done;
		from += done;
		bytes -= done;
		/* from may be pinned memory, which is still being read */
		GG_CUDA_TRY(cudaStreamSynchronize(stream));
		GG_TRY(gg_cuda_check_cancel(control, __func__));
	}
	return gg_ok();
}

gg_status
index_copy_rows(gg_index *index, uint64_t offset, const char *from, uint64_t bytes,
				const gg_control *control)
{
	const row_area area = area_of_rows(index);

	return copy_pieces(&area, offset, from, bytes, control, index->stream.get());
}

/* Copy rows that stay in host memory. */
static void
keep_rows(const gg_index *index, uint64_t offset, const char *from, uint64_t bytes)
{
	const row_area area = area_of_rows(index);

	while (bytes > 0)
	{
		row_piece	piece = first_piece(&area, offset, bytes, bytes);
		uint64_t	done = piece.width * piece.rows;

		for (size_t i = 0; i < piece.rows; i++)
			memcpy(piece.to + i * area.stride, from + i * piece.width, piece.width);
		offset += done;
		from += done;
		bytes -= done;
	}
}

/*
 * Make codes of rows that stay nowhere: the device reads them where they pass through pinned
 * memory.  Done when it returns.
 */
static gg_status
stage_codes(gg_index *index, index_stage *stage, uint64_t first, const char *from, uint64_t n)
{
	const size_t row = shape_row_bytes(&index->shape);
	const uint64_t most = STAGE_BYTES / row;

	while (n > 0)
	{
		const uint64_t some = n < most ? n : most;
		char	   *buffer;
		void	   *seen;

		GG_TRY(stage->buffer(&buffer));
		memcpy(buffer, from, some * row);
		GG_CUDA_TRY(cudaHostGetDevicePointer(&seen, buffer, 0));
		GG_TRY(index_code_rows(index, (const char *) seen, row, first, (uint32_t) some,
							   stage->stream()));
		GG_TRY(stage->sent());
		first += some;
		from += some * row;
		n -= some;
	}
	GG_CUDA_TRY(cudaStreamSynchronize(stage->stream()));
	return gg_ok();
}

/* Copy rows to the device by way of pinned memory; done when it returns. */
static gg_status
stage_rows(const gg_index *index, index_stage *stage, uint64_t offset, const char *from,
		   uint64_t bytes)
{
	const row_area area = area_of_rows(index);

	while (bytes > 0)
	{
		row_piece	piece = first_piece(&area, offset, bytes, STAGE_BYTES);
		uint64_t	done = piece.width * piece.rows;
		char	   *buffer;

		GG_TRY(stage->buffer(&buffer));
		memcpy(buffer, from, done);
		GG_CUDA_TRY(queue_piece(&area, &piece, buffer, stage->stream()));
		GG_TRY(stage->sent());
		offset += done;
		from += done;
		bytes -= done;
	}
	GG_CUDA_TRY(cudaStreamSynchronize(stage->stream()));
	return gg_ok();
}

/* ---- the engine's ------------------------------------------------------------------- */

static bool
is_pageable(const void *memory)
{
	struct cudaPointerAttributes attributes;

	if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess)
	{
		(void) cudaGetLastError();
		return false;
	}
	return attributes.type == cudaMemoryTypeUnregistered;
}

static gg_status
write_codes(gg_index *index, uint64_t offset, const char *from, uint64_t bytes)
{
	const size_t row = shape_row_bytes(&index->shape);
	index_stage *stage;
	gg_status	status;

	if (offset % row != 0 || bytes % row != 0)
		return gg_fail(GG_EINVAL, __func__, "%llu bytes at %llu are not whole rows of %zu",
					   (unsigned long long) bytes, (unsigned long long) offset, row);
	stage = take_stage(index);
	if (stage == NULL)
		return gg_fail(GG_ENOMEM, __func__, "could not get %zu bytes of pinned host memory",
					   2 * STAGE_BYTES);
	status = stage_codes(index, stage, offset / row, from, bytes / row);
	leave_stage(index, stage);
	return status;
}

static gg_status
write_rows(gg_index *index, uint64_t offset, const char *from, uint64_t bytes)
{
	index_stage *stage;
	gg_status	status;

	if (index->shape.row_place == GG_ROWS_NONE)
		return write_codes(index, offset, from, bytes);
	if (index->shape.row_place == GG_ROWS_HOST)
	{
		keep_rows(index, offset, from, bytes);
		return gg_ok();
	}
	stage = is_pageable(from) ? take_stage(index) : NULL;

	/* without pinned memory the driver's buffer will do */
	if (stage == NULL)
		return index_copy_rows(index, offset, from, bytes, NULL);
	status = stage_rows(index, stage, offset, from, bytes);
	leave_stage(index, stage);
	return status;
}

/* gg_engine.index_write */
gg_status
gg_cuda_index_write(gg_index *index, gg_part part, uint64_t offset, const void *src, uint64_t bytes)
{
	const gg_shape *shape = &index->shape;
	uint64_t	size = 0;
	char	   *to = NULL;

	switch (part)
	{
		case GG_PART_ROWS:
			size = (uint64_t) shape->capacity * shape_row_bytes(shape);
			break;
		case GG_PART_ADJACENCY:
			size = (uint64_t) shape->capacity * shape->degree * 4;
			to = (char *) index->adjacency;
			break;
		case GG_PART_PIVOTS:
			size = (uint64_t) shape->npivots * PIVOT_WORDS * 4;
			to = (char *) index->pivot_entries;
			break;
		case GG_PART_TIDS:
			size = (uint64_t) shape->rows * 8;
			to = (char *) index->heads;
			break;
		case GG_PART_OFFSETS:
			size = shape->offsets ? ((uint64_t) shape->capacity + 1) * 4 : 0;
			to = (char *) index->offsets;
			break;
		case GG_PART_FILTERS:
			size = (uint64_t) shape->words * shape->rows * 8;
			to = (char *) index->words;
			break;
		case GG_PART_CODES:
			size = shape->row_place != GG_ROWS_NONE ? 0 :
				(uint64_t) shape->capacity * gg_code_record_bytes(shape->codes, shape->dim);
			break;
	}
	if (offset > size || bytes > size - offset)
		return gg_fail(GG_EINVAL, __func__, "bytes %llu + %llu of part %d, which has %llu",
					   (unsigned long long) offset, (unsigned long long) bytes, (int) part,
					   (unsigned long long) size);
	if (bytes == 0)
		return gg_ok();
	GG_CUDA_TRY(cudaSetDevice(index->device.ordinal));
	if (part == GG_PART_ROWS)
		return write_rows(index, offset, (const char *) src, bytes);
	if (part == GG_PART_CODES)
	{
		const row_area area = area_of_codes(index);

		return copy_pieces(&area, offset, (const char *) src, bytes, NULL, index->stream.get());
	}
	return gg_cuda_copy_in(to + offset, src, bytes, index->stream.get(), NULL);
}

/* gg_engine.index_take */
gg_status
gg_cuda_index_take(gg_index *index, const gg_index *from, uint32_t first, uint32_t n)
{
	const gg_shape *shape = &index->shape;
	const gg_serve_source source = {&from->shape, from->finished, from->view.n};
	const size_t stride = index->view.row_stride;
	cudaStream_t stream = index->stream.get();

	GG_TRY(gg_serve_check_take(__func__, shape, index->finished, &source, first, n));
	/* dim and element, which are equal, decide the stride */
	if (from->device.ordinal != index->device.ordinal || from->view.row_stride != stride)
		return gg_fail(GG_EINVAL, __func__, "rows %zu bytes apart on device %d, and %zu on %d",
					   from->view.row_stride, from->device.ordinal, stride, index->device.ordinal);
	if (n == 0)
		return gg_ok();
	GG_CUDA_TRY(cudaSetDevice(index->device.ordinal));
	/* what pads a row is 0 in both */
	GG_CUDA_TRY(cudaMemcpyAsync(index->rows, from->rows + first * stride, n * stride,
								cudaMemcpyDeviceToDevice, stream));
	if (shape->rows > 0)
		GG_CUDA_TRY(cudaMemcpyAsync(index->heads, from->heads + first, (size_t) n * 8,
									cudaMemcpyDeviceToDevice, stream));
	for (uint32_t w = 0; w < shape->words; w++)
		GG_CUDA_TRY(cudaMemcpyAsync(index->words + (size_t) w * shape->rows,
									from->words + (size_t) w * from->shape.rows + first,
									(size_t) n * 8, cudaMemcpyDeviceToDevice, stream));
	GG_CUDA_TRY(cudaStreamSynchronize(stream));
	return gg_ok();
}
