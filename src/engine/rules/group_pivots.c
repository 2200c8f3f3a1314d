/*
 * group_pivots.c
 *		Overlapping groups of rows near each other: how many, and which pivots are whose.
 */
#include "engine/rules/group_pivots.h"

#include <stdlib.h>

/* Pivots per group. */
#define PIVOTS			32u
#define LEAST_PIVOTS	4u

uint32_t
gg_count_groups(uint32_t n, uint32_t room)
{
	uint32_t	count = (uint32_t) ceil(2.0 * n / (GG_GROUP_FILL * room));

	/* room for both places of each row in all groups but one: there always is another group */
	while (count < 2 || (count - 1) * (uint64_t) room < 2 * (uint64_t) n + 1)
		count++;
	return count;
}

uint32_t
gg_count_group_pivots(uint32_t ngroups)
{
	uint32_t	count = ngroups * PIVOTS;

	if (count > GG_MOST_GROUP_PIVOTS)
		count = GG_MOST_GROUP_PIVOTS;
	return count < ngroups * LEAST_PIVOTS ? ngroups * LEAST_PIVOTS : count;
}

typedef struct keyed_pivot
{
	float		key;
	uint32_t	pivot;
} keyed_pivot;

static int
compare_pivots(const void *a, const void *b)
{
	const keyed_pivot *left = a,
			   *right = b;

	if (left->key != right->key)
		return left->key < right->key ? -1 : 1;
	return left->pivot < right->pivot ? -1 : left->pivot > right->pivot;
}

static float
pivot_distance(const gg_group_pivots *all, uint32_t a, uint32_t b)
{
	return all->distance(all->rows + (size_t) a * all->dim, all->rows + (size_t) b * all->dim,
						 all->dim);
}

static uint32_t
farthest(const gg_group_pivots *all, const keyed_pivot *pivots, uint32_t n, uint32_t from)
{
	uint32_t	best = pivots[0].pivot;
	float		most = -INFINITY;

	for (uint32_t i = 0; i < n; i++)
	{
		float		d = pivot_distance(all, pivots[i].pivot, from);

		if (d > most)
		{
			most = d;
			best = pivots[i].pivot;
		}
	}
	return best;
}

/*
 * Cut n pivots into count groups of about equal weight, numbered from first on: in two halves, by
 * the difference of the distances to two pivots that are far from each other, again and again.
 */
static void
cut(const gg_group_pivots *all, keyed_pivot *pivots, uint32_t n, uint32_t first, uint32_t count,
	uint32_t *groups)
{
	while (count > 1)
	{
		uint32_t	a = farthest(all, pivots, n, pivots[0].pivot),
					b = farthest(all, pivots, n, a),
					left = count / 2,
					at = 0;
		uint64_t	total = 0,
					sum = 0;

		for (uint32_t i = 0; i < n; i++)
		{
			float		key = pivot_distance(all, pivots[i].pivot, a) -
				pivot_distance(all, pivots[i].pivot, b);

			pivots[i].key = isnan(key) ? 0 : key;
			total += 1 + all->weights[pivots[i].pivot];
		}
		qsort(pivots, n, sizeof(keyed_pivot), compare_pivots);
		/* each side keeps a pivot for each of its groups */
		while (at < n - (count - left) && (sum * count < total * left || at < left))
			sum += 1 + all->weights[pivots[at++].pivot];
		cut(all, pivots, at, first, left, groups);
		pivots += at;
		n -= at;
		first += left;
		count -= left;
	}
	for (uint32_t i = 0; i < n; i++)
		groups[pivots[i].pivot] = first;
}

gg_status
gg_cut_groups(const gg_group_pivots *pivots, uint32_t ngroups, uint32_t *groups)
{
	keyed_pivot *keyed = malloc(sizeof(keyed_pivot) * pivots->n);

	if (!keyed)
		return gg_fail(GG_ENOMEM, __func__, "out of memory for %u pivots", pivots->n);
	for (uint32_t p = 0; p < pivots->n; p++)
		keyed[p].pivot = p;
	cut(pivots, keyed, pivots->n, 0, ngroups, groups);
	free(keyed);
	return gg_ok();
}
