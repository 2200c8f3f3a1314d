/*
 * shared_memory.c
 *		One pair of hooks for all that gpugraph keeps in shared memory.
 */
#include "base/base.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"

#define MAX_PARTS		4

typedef struct SharedPart
{
	void		(*request) (void);
	void		(*start) (void);
} SharedPart;

static SharedPart parts[MAX_PARTS];
static int	nparts = 0;
static shmem_request_hook_type prev_request_hook = NULL;
static shmem_startup_hook_type prev_startup_hook = NULL;

static void
RequestParts(void)
{
	if (prev_request_hook != NULL)
		prev_request_hook();
	for (int i = 0; i < nparts; i++)
		parts[i].request();
}

static void
StartParts(void)
{
	if (prev_startup_hook != NULL)
		prev_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	for (int i = 0; i < nparts; i++)
		parts[i].start();
	LWLockRelease(AddinShmemInitLock);
}

void
GgUseSharedMemory(void (*request) (void), void (*start) (void))
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	if (nparts == 0)
	{
		prev_request_hook = shmem_request_hook;
		shmem_request_hook = RequestParts;
		prev_startup_hook = shmem_startup_hook;
		shmem_startup_hook = StartParts;
	}
	Assert(nparts < MAX_PARTS);
	parts[nparts++] = (SharedPart) {request, start};
}
