/*
 * hold_memory.cu
 *		Leave others little device memory: take all but so many MiB of device 0, say so, keep it
 *		until killed.
 *
 *	hold_memory MIB
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int
main(int argc, char **argv)
{
	const size_t leave = (size_t) (argc > 1 ? atol(argv[1]) : 1024) << 20;
	size_t		available = 0;
	size_t		total = 0;

	/* in pieces: one allocation cannot have all of it */
	for (size_t piece = (size_t) 1 << 30; piece >= (size_t) 2 << 20;)
	{
		void	   *memory;

		if (cudaMemGetInfo(&available, &total) != cudaSuccess)
			break;
		if (available < leave + piece || cudaMalloc(&memory, piece) != cudaSuccess)
			piece /= 2;
	}
	if (total == 0)
	{
		fprintf(stderr, "hold_memory: %s\n", cudaGetErrorString(cudaGetLastError()));
		return 1;
	}
	printf("%zu of %zu MiB are left\n", available >> 20, total >> 20);
	fflush(stdout);
	for (;;)
		pause();
}
