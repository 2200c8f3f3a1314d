/* As device_scan.cuh. */
#ifndef EMULATE_CUB_DEVICE_RADIX_SORT_CUH
#define EMULATE_CUB_DEVICE_RADIX_SORT_CUH

#include <algorithm>

#include "../scratch.h"

namespace cub
{

template <typename T>
struct DoubleBuffer
{
	T		   *d_buffers[2];
	int			selector;

	DoubleBuffer(T *current, T *alternate) : d_buffers{current, alternate}, selector(0)
	{
	}
	T *
	Current() const
	{
		return d_buffers[selector];
	}
	T *
	Alternate() const
	{
		return d_buffers[selector ^ 1];
	}
};

struct DeviceRadixSort
{
	/* By bits [begin, end), stable; the answer is in the other buffer, as it may be. */
	template <typename Key>
	static cudaError_t
	SortKeys(void *scratch, size_t &bytes, DoubleBuffer<Key> &keys, int count, int begin = 0,
			 int end = sizeof(Key) * 8, cudaStream_t = NULL)
	{
		const Key	mask = end - begin == (int) sizeof(Key) * 8 ? ~(Key) 0 :
			((Key) 1 << (end - begin)) - 1;

		if (!emulate::cub_scratch(scratch, &bytes))
			return cudaSuccess;
		std::copy(keys.Current(), keys.Current() + count, keys.Alternate());
		keys.selector ^= 1;
		std::stable_sort(keys.Current(), keys.Current() + count,
						 [=](Key a, Key b) { return (a >> begin & mask) < (b >> begin & mask); });
		return cudaSuccess;
	}
};

}

#endif
