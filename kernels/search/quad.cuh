/*
 * quad.cuh
 *		Rows are read in quads: 16 bytes, by one load of a lane.
 */
#ifndef GG_SEARCH_QUAD_CUH
#define GG_SEARCH_QUAD_CUH

#include <stdint.h>

static __device__ __forceinline__ uint4
load_quad(const char *row, uint32_t quad, bool valid)
{
	uint4		value = make_uint4(0, 0, 0, 0);

	if (valid)
		asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
					 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
					 : "l"(row + (size_t) quad * 16));
	return value;
}

#endif							/* GG_SEARCH_QUAD_CUH */
