/*
 * piece.cuh
 *		Rows are read in pieces of 16 bytes.
 */
#ifndef GG_SEARCH_PIECE_CUH
#define GG_SEARCH_PIECE_CUH

#include <stdint.h>

static __device__ __forceinline__ uint4
load_piece(const char *row, uint32_t piece, bool valid)
{
	uint4		value = make_uint4(0, 0, 0, 0);

	if (valid)
		asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
					 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
					 : "l"(row + (size_t) piece * 16));
	return value;
}

#endif							/* GG_SEARCH_PIECE_CUH */
