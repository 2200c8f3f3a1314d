/*
 * memory.c
 *		Memory contexts: what is done when one ends, and arrays that grow in one.
 */
#include "base/base.h"

void
GgAtReset(MemoryContext context, MemoryContextCallbackFunction func, void *arg)
{
	MemoryContextCallback *callback = MemoryContextAlloc(context, sizeof(MemoryContextCallback));

	callback->func = func;
	callback->arg = arg;
	MemoryContextRegisterResetCallback(context, callback);
}

void *
GgEnlarge(MemoryContext context, void *array, Size bytes)
{
	return array == NULL ? MemoryContextAllocHuge(context, bytes) : repalloc_huge(array, bytes);
}
