/*
 * hang.cu
 *		How a process leaves a device that hangs: as the service's worker does (watchdog.c).
 *
 * usage: hang
 *
 * A thread launches a kernel that runs for a minute and waits for it.  The main thread then leaves
 * by _exit(), without another call of the driver.  Prints "1 passed, 0 failed" before, for what
 * comes after is for the caller to see: that the process is gone at once, and the device as good as
 * before.
 */
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define HANG_NS 60000000000ull

static volatile bool returned = false;

static __global__ void
hang_kernel(uint64_t nanoseconds)
{
	uint64_t	begin;
	uint64_t	now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - begin < nanoseconds);
}

static void *
wait_for_it(void *arg)
{
	hang_kernel<<<1, 32>>>(HANG_NS);
	(void) cudaDeviceSynchronize();
	returned = true;
	return arg;
}

int
main(void)
{
	pthread_t	thread;
	bool		failed = cudaFree(0) != cudaSuccess ||
		pthread_create(&thread, NULL, wait_for_it, NULL) != 0;

	/* long enough for the launch */
	sleep(3);
	failed |= returned;
	printf("%d passed, %d failed\n", !failed, failed);
	fflush(stdout);
	_exit(failed);
}
