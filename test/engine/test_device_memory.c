/*
 * test_device_memory.c
 *		How much memory a GPU has that shares the host's (src/engine/rules/device_memory.h).
 *
 * The numbers are injected.  They are those of a machine with 128 GB for both, but for the cases
 * that no machine shows.
 */
#include "harness.h"
#include "../../src/engine/rules/device_memory.h"

#define GB			((uint64_t) 1 << 30)
#define TOTAL		"MemTotal:       125829120 kB\n"		/* 120 GB */

static void
check_memory(const char *what, const char *meminfo, uint64_t available, uint64_t total)
{
	uint64_t	free_bytes = 3 * GB;	/* as CUDA tells: what nobody uses */
	uint64_t	all_bytes = 120 * GB;

	gg_integrated_memory(meminfo, &free_bytes, &all_bytes);
	CHECK(free_bytes == available, "%s: %llu bytes are free, not %llu", what,
		  (unsigned long long) free_bytes, (unsigned long long) available);
	CHECK(all_bytes == total, "%s: %llu bytes in all, not %llu", what,
		  (unsigned long long) all_bytes, (unsigned long long) total);
}

static void
test_memory(void)
{
	check_memory("files fill the memory", TOTAL "MemFree:         3145728 kB\n"
				 "MemAvailable:   52428800 kB\nCached:         60000000 kB\n"
				 "HugePages_Total:       0\nHugepagesize:       2048 kB\n", 50 * GB, 60 * GB);
	check_memory("most is free", TOTAL "MemAvailable:  115343360 kB\n", 60 * GB, 60 * GB);
	check_memory("programs fill the memory", TOTAL "MemAvailable:    1048576 kB\n"
				 "SwapTotal:      16777216 kB\nSwapFree:       16777216 kB\n", GB, 60 * GB);
	check_memory("shared_buffers of huge pages", TOTAL "MemAvailable:   73400320 kB\n"
				 "HugePages_Total:   20480\nHugePages_Free:       12\n"
				 "Hugepagesize:       2048 kB\n", 40 * GB, 40 * GB);
	check_memory("more huge pages than memory", TOTAL "MemAvailable:   73400320 kB\n"
				 "HugePages_Total:   99999999\nHugepagesize:    1048576 kB\n", 0, 0);
	check_memory("an old kernel", TOTAL "MemFree:         3145728 kB\n", 3 * GB, 60 * GB);
	check_memory("a text without an end of line", "MemAvailable: 1048576 kB", GB, 60 * GB);
	check_memory("a name within a line, and no number",
				 "NotMemTotal: 7 kB\nMemTotal: much\nxMemAvailable: 7 kB\n", 3 * GB, 60 * GB);
	check_memory("no text", "", 3 * GB, 60 * GB);
}

int
main(void)
{
	harness_run("memory", test_memory);
	return harness_finish();
}
