/*
 * device_memory.c
 *		Memory of a GPU that shares the host's, from the text of /proc/meminfo.
 */
#include "engine/rules/device_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The number behind "name:" at the beginning of a line; without such a line, `instead`. */
static uint64_t
meminfo_number(const char *line, const char *name, uint64_t instead)
{
	size_t		length = strlen(name);
	uint64_t	number;

	for (; line != NULL; line = strchr(line, '\n'))
	{
		line += *line == '\n';
		if (strncmp(line, name, length) == 0 && line[length] == ':' &&
			sscanf(line + length + 1, "%" SCNu64, &number) == 1)
			return number;
	}
	return instead;
}

void
gg_integrated_memory(const char *meminfo, uint64_t *available, uint64_t *total)
{
	uint64_t	host = meminfo_number(meminfo, "MemTotal", *total >> 10);
	uint64_t	huge = meminfo_number(meminfo, "HugePages_Total", 0) *
		meminfo_number(meminfo, "Hugepagesize", 0);

	*available = meminfo_number(meminfo, "MemAvailable", *available >> 10) << 10;
	*total = (host > huge ? host - huge : 0) / 2 << 10;
	if (*available > *total)
		*available = *total;
}
