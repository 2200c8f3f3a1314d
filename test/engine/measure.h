/*
 * measure.h
 *		What the programs that measure the CPU engine share.
 */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness.h"

static inline void
need_ok(gg_status status)
{
	if (status.code == GG_OK)
		return;
	fprintf(stderr, "%s: %s (code %d)\n", status.where, status.message, (int) status.code);
	exit(1);
}

/* Processor time: the machine may have other things to do. */
static inline double
cpu_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}

static inline gg_metric
parse_metric(const char *name)
{
	static const char *const names[] = {"l2", "ip", "cosine", "l1"};

	for (int i = 0; i < 4; i++)
	{
		if (strcmp(name, names[i]) == 0)
			return (gg_metric) (i + 1);
	}
	fprintf(stderr, "no metric %s\n", name);
	exit(2);
}

#endif
