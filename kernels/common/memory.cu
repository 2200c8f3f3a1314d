/*
 * memory.cu
 *		Where buffers come from: cudaMalloc(), a pool for work beside searches, or blocks that small
 *		indexes share.  Copies between the host's memory and the device's.
 *
 * cudaMalloc() and cudaFree() take the driver's lock, and cudaFree() waits for all that the device
 * does: batches that are launched meanwhile wait with it.  A build calls them some hundred times.
 * Beside searches it takes memory from a pool of its own instead, in the order of its stream, and
 * the pool gives all of it back at the end.
 *
 * The pool belongs to the thread, because buffers are taken at places that know nothing of it.  One
 * thread runs one build from its begin to its end.
 *
 * What the driver makes searches wait for when the pool grows, and when it goes, is not measured
 * alone.  RESULTS.md, Ageing, has queries beside merges that a GPU built.
 *
 * Blocks.  The driver gives device memory out in granules of 2 MB, so each of a thousand small
 * indexes would waste a granule for each of its arrays.  They take pieces of blocks of 32 MB
 * instead.  A block goes back to the driver with its last piece.  GPUGRAPH_UNSHARED=1 in the
 * environment gives each its own memory, for tools that look at what lies behind an array.
 */
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <stdlib.h>

#include "cuda.h"

#define COPY_BYTES ((uint64_t) 32 << 20)

#define BLOCK_BYTES ((size_t) 32 << 20)
#define MOST_SHARED (BLOCK_BYTES / 4)	/* larger ones waste a fifth at most */
#define PIECE_ALIGN ((size_t) 256)		/* as cudaMalloc() */

static thread_local cudaMemPool_t pool = NULL;
static thread_local cudaStream_t pool_stream = NULL;

cudaError_t
gg_cuda_malloc(void **memory, size_t bytes)
{
	if (pool == NULL)
		return cudaMalloc(memory, bytes);
	return cudaMallocFromPoolAsync(memory, bytes, pool, pool_stream);
}

void
gg_cuda_free(void *memory)
{
	if (pool == NULL)
		(void) cudaFree(memory);
	else
		(void) cudaFreeAsync(memory, pool_stream);
}

/* ---- blocks ------------------------------------------------------------------ */

typedef struct shared_block
{
	int			device;
	size_t		used;
} shared_block;

typedef std::map<char *, shared_block>::iterator block_place;

/* By address.  Free pieces that touch are one, but for those of different blocks. */
static std::mutex blocks_lock;
static std::map<char *, shared_block> blocks;
static std::map<char *, size_t> free_pieces;

/* The block that a piece lies in; blocks.end(): none. */
static block_place
block_of(char *piece)
{
	block_place block = blocks.upper_bound(piece);

	if (block == blocks.begin() || piece >= (--block)->first + BLOCK_BYTES)
		return blocks.end();
	return block;
}

/* The smallest free piece of the device that is long enough. */
static char *
take_piece(size_t bytes, int device)
{
	auto		best = free_pieces.end();
	char	   *piece;

	for (auto one = free_pieces.begin(); one != free_pieces.end(); ++one)
		if (one->second >= bytes && block_of(one->first)->second.device == device &&
			(best == free_pieces.end() || one->second < best->second))
			best = one;
	if (best == free_pieces.end())
		return NULL;
	piece = best->first;
	if (best->second > bytes)
		free_pieces[piece + bytes] = best->second - bytes;
	free_pieces.erase(best);
	block_of(piece)->second.used += bytes;
	return piece;
}

/* Give a piece back to its block.  True: the block is empty, and forgotten. */
static bool
return_piece(block_place block, char *piece, size_t bytes)
{
	auto		next = free_pieces.lower_bound(piece);

	block->second.used -= bytes;
	if (next != free_pieces.end() && next->first == piece + bytes && block_of(next->first) == block)
	{
		bytes += next->second;
		next = free_pieces.erase(next);
	}
	if (next != free_pieces.begin())
	{
		auto		before = std::prev(next);

		if (before->first + before->second == piece && block_of(before->first) == block)
		{
			piece = before->first;
			bytes += before->second;
			free_pieces.erase(before);
		}
	}
	if (block->second.used == 0)
		return true;
	free_pieces[piece] = bytes;
	return false;
}

static size_t
piece_bytes(size_t bytes)
{
	return (bytes + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
}

/* Containers throw where memory is short; no exception may leave this function. */
cudaError_t
gg_cuda_malloc_shared(void **memory, size_t bytes)
try
{
	std::lock_guard<std::mutex> guard(blocks_lock);
	void	   *block;
	int			device;
	cudaError_t error = cudaGetDevice(&device);

	if (error != cudaSuccess)
		return error;
	if (bytes > MOST_SHARED || getenv("GPUGRAPH_UNSHARED") != NULL)
		return cudaMalloc(memory, bytes);
	*memory = take_piece(piece_bytes(bytes), device);
	if (*memory != NULL)
		return cudaSuccess;
	if (cudaMalloc(&block, BLOCK_BYTES) != cudaSuccess)
	{
		/* there may be room for this alone */
		(void) cudaGetLastError();
		return cudaMalloc(memory, bytes);
	}
	blocks[(char *) block] = {device, 0};
	free_pieces[(char *) block] = BLOCK_BYTES;
	*memory = take_piece(piece_bytes(bytes), device);
	return cudaSuccess;
}
catch (const std::bad_alloc &)
{
	return cudaErrorMemoryAllocation;
}

/* As cudaFree(), waits for the device: launches that ended for the host may still read. */
void
gg_cuda_free_shared(void *memory, size_t bytes)
{
	std::unique_lock<std::mutex> guard(blocks_lock);
	const block_place block = block_of((char *) memory);

	if (block == blocks.end())
	{
		guard.unlock();
		(void) cudaFree(memory);
		return;
	}
	guard.unlock();
	(void) cudaDeviceSynchronize();
	guard.lock();
	if (return_piece(block, (char *) memory, piece_bytes(bytes)))
	{
		(void) cudaFree(block->first);
		blocks.erase(block);
	}
}

/* The device was reset. */
void
gg_cuda_forget_shared(void)
{
	std::lock_guard<std::mutex> guard(blocks_lock);

	blocks.clear();
	free_pieces.clear();
}

/* ---- a pool --------------------------------------------------------------------- */

/* Some virtual GPUs have no pools; there a build is as any other. */
static gg_status
open_pool(int device, cudaStream_t stream)
{
	cudaMemPoolProps properties;
	uint64_t	keep = UINT64_MAX;	/* all that it has, as long as it lives */
	int			supported = 0;

	GG_CUDA_TRY(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device));
	if (!supported)
		return gg_ok();
	memset(&properties, 0, sizeof(properties));
	properties.allocType = cudaMemAllocationTypePinned;
	properties.location.type = cudaMemLocationTypeDevice;
	properties.location.id = device;
	GG_CUDA_TRY(cudaMemPoolCreate(&pool, &properties));
	pool_stream = stream;
	return gg_cuda_status(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
						  __func__, "cudaMemPoolSetAttribute");
}

gg_status
gg_cuda_work::start(const gg_control *control)
{
	int			least = 0;
	int			greatest = 0;
	int			device = 0;

	if (control == NULL || !control->background)
		return stream_.create();
	GG_CUDA_TRY(cudaGetDevice(&device));
	GG_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
	GG_TRY(stream_.create(least));
	return open_pool(device, stream_.get());
}

gg_cuda_work::~gg_cuda_work()
{
	if (pool == NULL)
		return;
	(void) cudaStreamSynchronize(stream_.get());
	(void) cudaMemPoolDestroy(pool);
	pool = NULL;
	pool_stream = NULL;
}

/* ---- copies ------------------------------------------------------------------- */

gg_status
gg_cuda_copy_in(void *device, const void *host, uint64_t bytes, cudaStream_t stream,
				const gg_control *control)
{
	for (uint64_t at = 0; at < bytes; at += COPY_BYTES)
	{
		GG_CUDA_TRY(cudaMemcpyAsync((char *) device + at, (const char *) host + at,
									bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES,
									cudaMemcpyHostToDevice, stream));
		GG_CUDA_TRY(cudaStreamSynchronize(stream));
		GG_TRY(gg_cuda_check_cancel(control, __func__));
	}
	return gg_ok();
}

gg_status
gg_cuda_copy_out(void *host, const void *device, uint64_t bytes, cudaStream_t stream,
				 const gg_control *control)
{
	for (uint64_t at = 0; at < bytes; at += COPY_BYTES)
	{
		GG_CUDA_TRY(cudaMemcpyAsync((char *) host + at, (const char *) device + at,
									bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES,
									cudaMemcpyDeviceToHost, stream));
		GG_CUDA_TRY(cudaStreamSynchronize(stream));
		GG_TRY(gg_cuda_check_cancel(control, __func__));
	}
	return gg_ok();
}
