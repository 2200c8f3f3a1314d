/* What is used of CUB's device-wide algorithms, on the host: a launch has ended when it returns. */
#ifndef EMULATE_CUB_DEVICE_SCAN_CUH
#define EMULATE_CUB_DEVICE_SCAN_CUH

#include "../scratch.h"

namespace cub
{

struct DeviceScan
{
	template <typename In, typename Out, typename Op, typename Init, typename Count>
	static cudaError_t
	ExclusiveScan(void *scratch, size_t &bytes, In in, Out out, Op op, Init init, Count count,
				  cudaStream_t = NULL)
	{
		Init		sum = init;

		if (!emulate::cub_scratch(scratch, &bytes))
			return cudaSuccess;
		for (Count i = 0; i < count; i++)
		{
			const Init	next = (Init) op(sum, (Init) in[i]);

			out[i] = sum;
			sum = next;
		}
		return cudaSuccess;
	}
};

}

#endif
