/*
 * cell_sort.cu
 *		Rows sorted by the cells that they are in (cells.cu).
 */
#include "list.cuh"

#include <cub/device/device_scan.cuh>
#include <cuda/std/functional>

/*
 * The three kernels with first and count go over rows [first, first + count), with an atomic
 * operation for each entry that counts (up to 16 a row) on counters all over memory.
 * sizes[cell] = rows that list the cell among the entries that count
 */
static __global__ void
cell_sizes_kernel(gg_cuda_lists lists, uint32_t first, uint32_t count, uint32_t *sizes)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
	const uint32_t row = first + i;

	if (i >= count)
		return;
	for (uint32_t s = 0; s < lists.k; s++)
	{
		const uint64_t key = lists.keys[(uint64_t) row * lists.length + s];

		if (key != GG_KEY_NONE)
			atomicAdd(&sizes[gg_key_id(key)], 1);
	}
}

/* parts[cell] = pieces that a cell falls into; parts[ncells] = 0, for the scan's sum */
static __global__ void
cell_parts_kernel(const uint32_t *sizes, uint32_t ncells, uint32_t max_rows, uint32_t *parts)
{
	const uint32_t cell = blockIdx.x * blockDim.x + threadIdx.x;

	if (cell <= ncells)
		parts[cell] = cell == ncells ? 0 : sizes[cell] == 0 ? 1 : (sizes[cell] - 1) / max_rows + 1;
}

__device__ static inline uint64_t
cell_place(const gg_cuda_lists &lists, const uint32_t *parts, uint32_t row, uint32_t slot)
{
	const uint64_t key = lists.keys[(uint64_t) row * lists.length + slot];

	if (key == GG_KEY_NONE)
		return GG_KEY_NONE;
	const uint32_t cell = gg_key_id(key);
	const uint32_t count = parts[cell + 1] - parts[cell];
	const uint32_t part = count == 1 ? 0 : gg_mix(row ^ 0x5BD1E995u) % count;

	return (uint64_t) (parts[cell] + part) * lists.k + slot;
}

/* counts[piece * slots + slot] = members of that slot of that piece of a cell */
static __global__ void
place_counts_kernel(gg_cuda_lists lists, const uint32_t *parts, uint32_t first, uint32_t count,
					uint32_t *counts)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
	const uint32_t row = first + i;

	if (i >= count)
		return;
	for (uint32_t s = 0; s < lists.k; s++)
	{
		const uint64_t place = cell_place(lists, parts, row, s);

		if (place != GG_KEY_NONE)
			atomicAdd(&counts[place], 1);
	}
}

static __global__ void
place_rows_kernel(gg_cuda_lists lists, const uint32_t *parts, uint32_t first, uint32_t count,
				  const uint64_t *starts, uint32_t *counts, uint32_t *members)
{
	const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
	const uint32_t row = first + i;

	if (i >= count)
		return;
	for (uint32_t s = 0; s < lists.k; s++)
	{
		const uint64_t place = cell_place(lists, parts, row, s);

		if (place != GG_KEY_NONE)
			members[starts[place] + atomicSub(&counts[place], 1) - 1] = row;
	}
}

/* *largest = members of the largest cell; 0 before */
static __global__ void
largest_cell_kernel(const uint64_t *starts, uint32_t slots, uint32_t ncells, uint32_t *largest)
{
	const uint32_t cell = blockIdx.x * blockDim.x + threadIdx.x;

	if (cell < ncells)
		atomicMax(largest, (uint32_t) (starts[(uint64_t) (cell + 1) * slots] -
									   starts[(uint64_t) cell * slots]));
}

template <typename In, typename Out>
static gg_status
exclusive_sum(const In *in, Out *out, uint64_t count, cudaStream_t stream)
{
	gg_cuda_buffer<char> scratch;
	size_t		bytes = 0;

	GG_CUDA_TRY(cub::DeviceScan::ExclusiveScan(NULL, bytes, in, out, cuda::std::plus<>(), (Out) 0,
											   (int64_t) count, stream));
	GG_TRY(scratch.allocate(bytes));
	GG_CUDA_TRY(cub::DeviceScan::ExclusiveScan(scratch.get(), bytes, in, out, cuda::std::plus<>(),
											   (Out) 0, (int64_t) count, stream));
	return gg_ok();
}

gg_status
gg_cuda_sort_into_cells(const gg_cuda_lists &lists, uint32_t n, uint32_t ncells, uint32_t max_rows,
						const gg_cuda_run &run, gg_cuda_cells *cells)
{
	const uint64_t step = gg_cuda_cut(GG_PASS_ROWS, run.control);
	const uint32_t slots = lists.k;
	gg_cuda_buffer<uint32_t> sizes;
	gg_cuda_buffer<uint32_t> parts;
	gg_cuda_buffer<uint32_t> sums;
	gg_cuda_buffer<uint32_t> counts;
	gg_cuda_buffer<uint32_t> largest;
	gg_cuda_pace pace;

	GG_TRY(pace.create());
	GG_TRY(sizes.allocate(ncells, run.meter));
	GG_TRY(parts.allocate((uint64_t) ncells + 1, run.meter));
	GG_TRY(sums.allocate((uint64_t) ncells + 1, run.meter));
	GG_TRY(largest.allocate(1, run.meter));
	GG_CUDA_TRY(cudaMemsetAsync(sizes.get(), 0, sizes.bytes(), run.stream));
	GG_SWEEP(n, step, run, pace, "cell_sizes_kernel",
		(cell_sizes_kernel<<<gg_cuda_blocks(count, 256), 256, 0, run.stream>>>
		 (lists, (uint32_t) first, count, sizes.get())));
	cell_parts_kernel<<<gg_cuda_blocks((uint64_t) ncells + 1, 256), 256, 0, run.stream>>>
		(sizes.get(), ncells, max_rows, parts.get());
	GG_CUDA_LAUNCHED("cell_parts_kernel");
	GG_TRY(exclusive_sum(parts.get(), sums.get(), (uint64_t) ncells + 1, run.stream));
	GG_CUDA_TRY(cudaMemcpyAsync(&cells->ncells, sums.get() + ncells, sizeof(uint32_t),
								cudaMemcpyDeviceToHost, run.stream));
	GG_TRY(gg_cuda_drain(run.stream, run.control, __func__));

	const uint64_t places = (uint64_t) cells->ncells * slots;

	cells->slots = slots;
	GG_TRY(counts.allocate(places + 1, run.meter));
	GG_TRY(cells->starts.allocate(places + 1, run.meter));
	GG_TRY(gg_cuda_allocate_large(&cells->members, (uint64_t) n * slots, run.control, run.meter));
	GG_CUDA_TRY(cudaMemsetAsync(counts.get(), 0, counts.bytes(), run.stream));
	GG_CUDA_TRY(cudaMemsetAsync(largest.get(), 0, largest.bytes(), run.stream));
	GG_SWEEP(n, step, run, pace, "place_counts_kernel",
		(place_counts_kernel<<<gg_cuda_blocks(count, 256), 256, 0, run.stream>>>
		 (lists, sums.get(), (uint32_t) first, count, counts.get())));
	GG_TRY(exclusive_sum(counts.get(), cells->starts.get(), places + 1, run.stream));
	largest_cell_kernel<<<gg_cuda_blocks(cells->ncells, 256), 256, 0, run.stream>>>
		(cells->starts.get(), slots, cells->ncells, largest.get());
	GG_CUDA_LAUNCHED("largest_cell_kernel");
	GG_SWEEP(n, step, run, pace, "place_rows_kernel",
		(place_rows_kernel<<<gg_cuda_blocks(count, 256), 256, 0, run.stream>>>
		 (lists, sums.get(), (uint32_t) first, count, cells->starts.get(), counts.get(),
		  cells->members.get())));
	GG_CUDA_TRY(cudaMemcpyAsync(&cells->largest, largest.get(), sizeof(uint32_t),
								cudaMemcpyDeviceToHost, run.stream));
	return gg_cuda_drain(run.stream, run.control, __func__);
}
