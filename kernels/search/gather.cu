/*
 * gather.cu
 *		Queries, and TIDs of their filters, from the slots to the device's memory.
 *
 * Where many blocks read the same queries, one launch before them spares each a read over PCIe.
 */
#include "gather.h"
#include "launch.cuh"
#include "query.cuh"

#define GATHER_THREADS 128
#define GATHER_LOADS 8			/* of a thread at once */
#define GATHER_ROUND (GATHER_THREADS * GATHER_LOADS)

/* Copy by a block.  All loads of a round come before its stores: each is a round trip over PCIe. */
template <typename T>
static __device__ __forceinline__ void
gather(const T *from, uint32_t count, T *to)
{
	for (uint32_t base = threadIdx.x; base < count; base += GATHER_THREADS * GATHER_LOADS)
	{
		T			loaded[GATHER_LOADS];

#pragma unroll
		for (uint32_t i = 0; i < GATHER_LOADS; i++)
			if (base + i * GATHER_THREADS < count)
				loaded[i] = from[base + i * GATHER_THREADS];
#pragma unroll
		for (uint32_t i = 0; i < GATHER_LOADS; i++)
			if (base + i * GATHER_THREADS < count)
				to[base + i * GATHER_THREADS] = loaded[i];
	}
}

/* Grid: x over the queries; y: 0 for the query itself, then a round's TIDs each. */
__global__ void __launch_bounds__(GATHER_THREADS)
gather_kernel(const __grid_constant__ search_slots slots, uint32_t dim, float *copies,
			  unsigned long long *zeros, const __grid_constant__ gathered_tids tids)
{
	if (blockIdx.y > 0)
	{
		const uint32_t first = (blockIdx.y - 1) * GATHER_ROUND;
		const uint32_t count = tids.count[blockIdx.x];

		if (first < count)
			gather(tids.from[blockIdx.x] + first, min(count - first, GATHER_ROUND),
				   tids.to + (size_t) blockIdx.x * GG_SHORT_TIDS + first);
		return;
	}
	gather(query_of(NULL, slots, blockIdx.x, dim), dim, copies + (size_t) blockIdx.x * dim);
	if (zeros != NULL && threadIdx.x < 2)
		zeros[threadIdx.x * GG_SERVE_MAX_DEEPS + blockIdx.x] = 0;
}

cudaError_t
search_gather_launch(const search_slots *slots, uint32_t nq, uint32_t dim, float *copies,
					 unsigned long long *zeros, const gathered_tids *tids, cudaStream_t stream)
{
	static const gathered_tids none = {};
	uint32_t	most = 0;

	for (uint32_t i = 0; tids != NULL && i < nq; i++)
		most = tids->count[i] > most ? tids->count[i] : most;
	gather_kernel<<<dim3(nq, 1 + (most + GATHER_ROUND - 1) / GATHER_ROUND), GATHER_THREADS, 0,
		stream>>>(*slots, dim, copies, zeros, tids != NULL ? *tids : none);
	return cudaGetLastError();
}

/*
 * Write the ticket of what earlier launches of the stream have answered: those have ended, and the
 * fence covers their stores, too.
 */
__global__ void
ticket_kernel(uint32_t *done, uint32_t ticket)
{
	ticket_store(done, ticket);
}

cudaError_t
search_ticket_launch(uint32_t *done, uint32_t ticket, cudaStream_t stream)
{
	ticket_kernel<<<1, 1, 0, stream>>>(done, ticket);
	return cudaGetLastError();
}

cudaError_t
search_gather_ready(void)
{
	cudaError_t error = kernel_load((const void *) gather_kernel);

	return error == cudaSuccess ? kernel_load((const void *) ticket_kernel) : error;
}
