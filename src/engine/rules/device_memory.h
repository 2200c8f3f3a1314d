/*
 * device_memory.h
 *		How much memory a GPU has that shares the host's.
 *
 * CUDA tells all of the host's memory as such a GPU's, and as free only what nobody uses.  A host
 * that has read files for a while has little of that: its memory is full of copies of files, which
 * it gives back when it is asked.  And what a GPU takes of the whole, PostgreSQL and everybody
 * else have no more.
 */
#ifndef GG_DEVICE_MEMORY_H
#define GG_DEVICE_MEMORY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Corrects what CUDA told, in bytes, by what /proc/meminfo says.  *total becomes half of the host's
 * memory, less huge pages, of which CUDA gets none.  *available becomes what the host has free or
 * can give back at once, at most *total; memory of the swap is not counted.  Where the text lacks
 * a number of the host's memory, CUDA's stands for it.
 */
extern void gg_integrated_memory(const char *meminfo, uint64_t *available, uint64_t *total);

#ifdef __cplusplus
}
#endif

#endif
