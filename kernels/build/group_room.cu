/*
 * group_room.cu
 *		How many rows a group of a build by groups has, and what such a build takes (groups.cu).
 */
#include "../../src/engine/rules/group_pivots.h"
#include "copiers.cuh"

#include <algorithm>

/* Device memory with groups of `room` rows; one: bytes of a build of so many in one piece. */
static uint64_t
group_bytes(const gg_dataset *data, const gg_build_params *params, uint32_t room, uint64_t one)
{
	/* the next group's rows, and the edges of the group before */
	return one + (uint64_t) room * (data->dim * gg_element_size(data->element) +
									params->graph_degree * sizeof(uint32_t));
}

/* Device memory for the graph of all rows while it is connected. */
static uint64_t
connect_bytes(uint64_t n, uint32_t degree)
{
	/* the search's arrays, or hops; and a slice of rows that are looked at for new pivots */
	return n * (degree * sizeof(uint32_t) + 16) + std::min(n, (uint64_t) 65536) * 300;
}

uint32_t
gg_cuda_group_room(const gg_dataset *data, const gg_build_params *params, uint64_t budget,
				   uint64_t *bytes)
{
	uint32_t	low = gg_least_group_room(data->n);
	uint32_t	high = data->n;
	const uint64_t whole = connect_bytes(data->n, params->graph_degree);
	gg_dataset	some = *data;

	if (low > high / 2)
		return 0;
	while (low < high)
	{
		const uint32_t middle = low + (high - low + 1) / 2;

		some.n = middle;
		if (group_bytes(data, params, middle, gg_cuda_plain_bytes(&some, params)) <= budget)
			low = middle;
		else
			high = middle - 1;
	}
	some.n = low;
	*bytes = std::max(whole, group_bytes(data, params, low, gg_cuda_plain_bytes(&some, params)));
	return *bytes <= budget ? low : 0;
}

uint64_t
gg_cuda_groups_host_bytes(uint64_t n, int devices)
{
	/* groups and members of groups, and which rows have a list already; pinned memory */
	return n * (2 + 2 * sizeof(uint32_t) + (devices > 1)) +
		(uint64_t) devices * 2 * MOST_COPIERS * PIECE_BYTES;
}
