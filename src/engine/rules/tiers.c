/*
 * tiers.c
 *		Which segments are worth a merge, by the bytes that it writes.
 *
 * A merge writes each node's neighbors, and each row's TID and filter words.  Vectors stay where
 * they are.  Where many rows share few nodes, or have many filter words, rows are most of it.
 */
#include "engine/rules/tiers.h"

#include <stdlib.h>

/* A segment is built anew when more than one part in so many of its bytes is of dead rows. */
#define DEAD_SHARE			5

/* Few dead rows are not worth it, however small the segment. */
#define LEAST_DEAD			100

gg_unit
gg_make_unit(const gg_unit_shape *shape, uint32_t id, gg_unit_counts counts)
{
	const uint64_t of_node = shape->vector_bytes + shape->list_bytes;
	const uint64_t lost = counts.gone * of_node + counts.dead * shape->row_bytes;
	const uint64_t all = counts.nodes * of_node + counts.rows * shape->row_bytes;
	gg_unit		unit = {.id = id, .rows = counts.rows, .pieces = counts.pieces};

	unit.nodes = counts.nodes - counts.gone;
	unit.bytes = unit.nodes * shape->list_bytes + (counts.rows - counts.dead) * shape->row_bytes;
	unit.vector_bytes = unit.nodes * shape->vector_bytes;
	unit.dead = (counts.gone >= LEAST_DEAD || counts.dead >= LEAST_DEAD) &&
		lost > all / DEAD_SHARE;
	return unit;
}

static int
compare_units(const void *a, const void *b)
{
	const gg_unit *left = a;
	const gg_unit *right = b;

	if (left->bytes != right->bytes)
		return left->bytes > right->bytes ? -1 : 1;
	return left->id < right->id ? -1 : left->id > right->id;
}

void
gg_sort_units(gg_unit *units, int n)
{
	qsort(units, n, sizeof(gg_unit), compare_units);
}

int
gg_due_units(const gg_unit *units, int n, uint64_t share)
{
	uint64_t	sum = 0;
	int			first = n;

	for (int i = n - 1; i >= 0; i--)
	{
		if (i < n - 1 && sum * share >= units[i].bytes)
			first = i;
		sum += units[i].bytes;
	}
	return first;
}

/*
 * With room for m more units, some m * m / 2 can come before any is written a third time: m of
 * which one is made, then m - 1, and so on.  So that is what a merge of a tail of m units gains.
 */
int
gg_cheapest_tail(const uint64_t *bytes, const uint32_t *counts, int n)
{
	double		sum = 0;
	double		room = 0;
	double		least = 0;
	int			first = n;

	for (int i = n - 1; i >= 0; i--)
	{
		sum += bytes[i];
		room += counts[i];
		if (room > 1 && (first == n || sum / (room * room) <= least))
		{
			first = i;
			least = sum / (room * room);
		}
	}
	return first;
}
