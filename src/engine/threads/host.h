/*
 * host.h
 *		What a process asks the host: the time, and how many processors there are.  No PostgreSQL in
 *		it, for threads include it, too.
 */
#ifndef GG_HOST_H
#define GG_HOST_H

#include <stdint.h>
#include <time.h>

/* Processors that this process may run on; they decide whether it spins. */
extern int	GgProcessors(void);

/*
 * Microseconds of a monotonic clock that all processes share.  All waiting goes by it, because a
 * wall clock that is put back by a day would keep a device unused for a day.
 */
static inline uint64_t
GgNowMicros(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static inline double
GgSecondsSince(uint64_t since_us)
{
	return (GgNowMicros() - since_us) * 1e-6;
}

#endif							/* GG_HOST_H */
