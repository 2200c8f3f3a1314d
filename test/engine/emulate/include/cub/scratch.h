#ifndef EMULATE_CUB_SCRATCH_H
#define EMULATE_CUB_SCRATCH_H

#include <string.h>

#include "cuda_runtime.h"

namespace emulate
{

/*
 * Without scratch memory the caller asks how much is wanted: a little, and all of it is written to,
 * so that a caller who has less is found out.
 */
static inline bool
cub_scratch(void *scratch, size_t *bytes)
{
	const size_t wanted = 767;

	if (scratch == NULL)
		*bytes = wanted;
	else
		memset(scratch, 0xA5, wanted);
	return scratch != NULL;
}

}

#endif
