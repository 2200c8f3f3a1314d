/*
 * mode.h
 *		The first line of a bench: what it ran on, and as what.
 */
#ifndef GG_TEST_MODE_H
#define GG_TEST_MODE_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

static inline void
print_mode(void)
{
	const char *as = getenv("GPUGRAPH_AS");
	struct cudaDeviceProp properties;

	if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess)
		printf("device %s of capability %d.%d, %s%s\n", properties.name, properties.major,
			   properties.minor, as != NULL && as[0] != '\0' ? "as " : "as it is",
			   as != NULL ? as : "");
}

#endif							/* GG_TEST_MODE_H */
