/*
 * nearest.c
 *		Distances of the nearest of several lists, which say how far others need to look.
 */
#include "scan/scan.h"

#include "engine/keys.h"

#include "utils/float.h"

struct GgNearest
{
	uint32		room;
	uint32		most;			/* that are kept */
	uint32		count;
	float		distances[FLEXIBLE_ARRAY_MEMBER];	/* ascending */
};

GgNearest *
GgMakeNearest(MemoryContext context, uint32 room)
{
	GgNearest  *nearest = MemoryContextAlloc(context, offsetof(GgNearest, distances) +
											 room * sizeof(float));

	nearest->room = nearest->most = room;
	nearest->count = 0;
	return nearest;
}

void
GgAimNearest(GgNearest *nearest, uint32 most)
{
	nearest->most = Min(most, nearest->room);
	nearest->count = Min(nearest->count, nearest->most);
}

void
GgForgetNearest(GgNearest *nearest)
{
	nearest->count = 0;
}

void
GgAddWalk(GgNearest *nearest, const gg_walk *walk)
{
	nearest->count = gg_walk_merge_distances(walk, nearest->distances, nearest->count,
											 nearest->most);
}

void
GgAddRanks(GgNearest *nearest, const uint64 *ranks, uint32 count)
{
	for (uint32 i = 0; i < count; i++)
	{
		float		distance = key_distance(ranks[i] << 1);
		uint32		place = Min(nearest->count, nearest->most - 1);

		if (nearest->count == nearest->most && distance >= nearest->distances[place])
			break;
		for (; place > 0 && nearest->distances[place - 1] > distance; place--)
			nearest->distances[place] = nearest->distances[place - 1];
		nearest->distances[place] = distance;
		nearest->count += nearest->count < nearest->most;
	}
}

float
GgReach(const GgScanOpaque *so, const GgStream *stream)
{
	const GgNearest *nearest = so->nearest;

	if (nearest == NULL || nearest->count < nearest->most || stream->handed > 0)
		return get_float4_infinity();
	return nearest->distances[nearest->count - 1];
}

float
GgHandedReach(const GgScanOpaque *so)
{
	const uint32 count = so->nearest->count;
	const uint32 half = so->mode == GG_ITERATIVE_OFF ? count : (count + 1) / 2;
	const float reach = so->nearest->distances[half - 1];

	return reach < so->farthest ? reach : get_float4_infinity();
}
