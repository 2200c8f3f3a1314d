/*
 * slot.c
 *		Where a request and its answer lie in a slot, or in its chunk.
 */
#include "service/shared/shmem.h"

StaticAssertDecl(offsetof(GgSlot, done) % 64 == 0 && offsetof(GgSlot, keys) % 64 == 0 &&
				 offsetof(GgSlot, query) % 64 == 0 && sizeof(GgSlot) % 64 == 0,
				 "devices want aligned arrays");

bool
GgFitsSlot(const gg_request *request)
{
	return request->count == 1 && !gg_request_is_deep(request) &&
		gg_request_lists(request) * request->params.k <= GG_SLOT_KEYS;
}

bool
GgGroupFitsSlot(const gg_request *request, uint32 ntargets)
{
	return ntargets <= GG_SLOT_TARGETS && ntargets * request->params.k <= GG_SLOT_KEYS;
}

GgGroupTarget *
GgSlotTargets(GgSlot *slot)
{
	return slot->chunk < 0 ? slot->targets :
		(GgGroupTarget *) gg_service->chunks[slot->chunk].body;
}

static uint64
OffsetOf(const void *pointer)
{
	return (const char *) pointer - gg_service->region;
}

/* Place a group whose request has been placed in the slot: its keys in the slot's chunk, if any. */
static bool
PlaceGroup(const GgSlot *slot, gg_request *request)
{
	const Size	targets = GgTargetBytes(slot->ntargets);
	const Size	keys = (Size) slot->ntargets * request->params.k * sizeof(uint64);

	if (slot->chunk < 0)
		return GgGroupFitsSlot(request, slot->ntargets);
	request->keys = OffsetOf(gg_service->chunks[slot->chunk].body) + targets;
	return slot->ntargets <= GG_SERVE_MAX_GROUP && targets + keys <= GG_CHUNK_BODY;
}

bool
GgPlaceRequest(const GgSlot *slot, uint32 ntids, gg_request *request)
{
	uint32		k = request->params.k;
	uint32		nlists = gg_request_lists(request);
	const GgChunk *chunk;

	request->queries = OffsetOf(slot->query);
	request->keys = OffsetOf(slot->keys);
	if (slot->ntargets > 0)
		return PlaceGroup(slot, request);
	if (slot->chunk < 0)
		return GgFitsSlot(request);
	if (ntids > GgMostTids(k, nlists) ||
		GgBodyBytes(request->count, request->dim, k, nlists) > GG_CHUNK_BODY)
		return false;
	chunk = &gg_service->chunks[slot->chunk];
	request->keys = OffsetOf(chunk->body) + GgBodyBytes(request->count, request->dim, k, 0);
	if (request->matches != 0)
		request->matches = OffsetOf(chunk->matches);
	if (request->count > 1)
		request->queries = OffsetOf(chunk->body);
	if (request->filter != 0)
		request->filter = OffsetOf(&chunk->filter);
	if (request->tids != 0)
		request->tids = OffsetOf(chunk->body + GG_CHUNK_BODY) - ntids * sizeof(uint64);
	return true;
}
