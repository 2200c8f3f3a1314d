/* As device_scan.cuh. */
#ifndef EMULATE_CUB_DEVICE_SELECT_CUH
#define EMULATE_CUB_DEVICE_SELECT_CUH

#include "../scratch.h"

namespace cub
{

struct DeviceSelect
{
	template <typename In, typename Out, typename Selected, typename Op>
	static cudaError_t
	If(void *scratch, size_t &bytes, In in, Out out, Selected selected, int count, Op op,
	   cudaStream_t = NULL)
	{
		int			found = 0;

		if (!emulate::cub_scratch(scratch, &bytes))
			return cudaSuccess;
		for (int i = 0; i < count; i++)
			if (op(in[i]))
				out[found++] = in[i];
		*selected = found;
		return cudaSuccess;
	}
};

}

#endif
