/*
 * host.c
 *		Processors that the host leaves to a process.
 */
#include "engine/threads/host.h"

#include <sched.h>
#include <unistd.h>

/*
 * A container or a service manager may leave this process fewer processors than the host has, and a
 * process that spins takes one of them.
 */
int
GgProcessors(void)
{
	static int	processors = 0;

#ifdef CPU_COUNT
	if (processors == 0)
	{
		cpu_set_t	ours;

		if (sched_getaffinity(0, sizeof(ours), &ours) == 0)
			processors = CPU_COUNT(&ours);
	}
#endif
	if (processors == 0)
		processors = (int) sysconf(_SC_NPROCESSORS_ONLN);
	return processors;
}
