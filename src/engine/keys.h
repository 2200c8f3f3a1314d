/*
 * keys.h
 *		Known nodes as 64-bit keys, and heaps of them.  Plain C, for both sides of engine.h.
 *
 * A key is a distance in the upper half, as an unsigned integer of the same order, then a node's id
 * of 31 bits (GG_MAX_NODES), then one flag bit.  Keys without the flag compare like (distance,
 * node).
 */
#ifndef GG_KEYS_H
#define GG_KEYS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KEY_FLAG ((uint64_t) 1)

/* NaN counts as +infinity. */
static inline uint64_t
key_of(float distance, uint32_t node)
{
	uint32_t	bits;

	if (isnan(distance))
		distance = INFINITY;
	distance += 0.0f;			/* -0 becomes +0: they must tie */
	memcpy(&bits, &distance, sizeof(bits));
	bits ^= (bits >> 31) != 0 ? 0xFFFFFFFFu : 0x80000000u;
	return (uint64_t) bits << 32 | (uint64_t) node << 1;
}

static inline uint32_t
key_node(uint64_t key)
{
	return (uint32_t) key >> 1;
}

static inline float
key_distance(uint64_t key)
{
	uint32_t	bits = (uint32_t) (key >> 32);
	float		distance;

	bits ^= (bits >> 31) != 0 ? 0x80000000u : 0xFFFFFFFFu;
	memcpy(&distance, &bits, sizeof(distance));
	return distance;
}

/* ---- max-heaps: no key is larger than its parent, at (i - 1) / 2 --------- */

/* Add key to a heap of count keys that has room for one more. */
static inline void
heap_push(uint64_t *heap, size_t count, uint64_t key)
{
	size_t		i = count;

	while (i > 0 && heap[(i - 1) / 2] < key)
	{
		heap[i] = heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap[i] = key;
}

/* Put key in the place of the largest of count keys. */
static inline void
heap_replace(uint64_t *heap, size_t count, uint64_t key)
{
	size_t		i = 0;

	for (;;)
	{
		size_t		child = 2 * i + 1;

		if (child >= count)
			break;
		if (child + 1 < count && heap[child + 1] > heap[child])
			child++;
		if (heap[child] <= key)
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = key;
}

/* Keep the least `most` of all keys that are offered, most >= 1.  Returns how many there are. */
static inline uint32_t
heap_offer(uint64_t *heap, uint32_t count, uint32_t most, uint64_t key)
{
	if (count < most)
		heap_push(heap, count++, key);
	else if (key < heap[0])
		heap_replace(heap, count, key);
	return count;
}

/* Take the largest of count keys, count >= 1. */
static inline uint64_t
heap_pop(uint64_t *heap, size_t count)
{
	uint64_t	top = heap[0];

	heap_replace(heap, count - 1, heap[count - 1]);
	return top;
}

/* Turn a heap into an array sorted ascending. */
static inline void
heap_sort(uint64_t *heap, size_t count)
{
	for (size_t left = count; left > 1; left--)
	{
		uint64_t	top = heap_pop(heap, left);

		heap[left - 1] = top;
	}
}

#endif							/* GG_KEYS_H */
