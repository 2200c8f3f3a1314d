/*
 * walk.c
 *		Best-first search over a gg_source, which can be resumed with a longer list.
 *
 * The search is CAGRA's (section IV; engine.h cites the paper).  A candidate list holds the
 * itopk_size nearest nodes known, sorted.  The neighbours of its nearest unexpanded nodes are
 * measured and put in, until every node in the list has been expanded.
 *
 * Departures from the paper
 *	1. The walk enters through pivots, found by the same kind of walk on their own small graph,
 *	   not through random nodes: on clustered data no number of random nodes worth measuring
 *	   hits the right cluster.  Every pivot that was measured is a node like any other, but that
 *	   the nearest ones are expanded first (WALK_ENTRIES).
 *	2. No forgettable hash: a node is measured once in a walk's life, however often it is widened.
 *	3. Nothing measured is forgotten.  What does not fit the list goes to an overflow array, and
 *	   widening takes the best of both.  When the graph offers nothing more and the list still
 *	   has room, the remaining pivots are entered, so that a walk widened far enough reaches
 *	   every node that any pivot reaches.
 *
 * A known node is a 64-bit key: its distance as an integer of the same order, its id, and in the
 * lowest bit whether it was expanded.  Keys therefore compare like (distance, node).
 *
 * Lists up to SORTED_LIST_MAX are sorted arrays: insertion is a binary search and a memmove of
 * some hundred bytes.  A scan without LIMIT widens until the list is the whole index, where that
 * memmove would make the walk quadratic: longer lists are a heap while the walk runs, with the
 * unexpanded nodes in a second heap, and are sorted at its end.
 */
#include "walk.h"

#include "engine/rules/pivots.h"

/* Where the heaps begin to pay; a memmove of 8 kB costs about as much as a row's distance. */
#define SORTED_LIST_MAX 1024u

/* So many pivots and fewer are all measured: a walk over them would measure most in any case. */
#define PIVOTS_MEASURED_ALL 64u

/*
 * The pivot walk starts from that many pivots, which are in random order: as many as the coarsest
 * level of their graph has at least (connect.c).
 */
#define PIVOT_ENTRIES 32u

/* ---- what is known ----------------------------------------------------- */

/*
 * Room for more nodes in everything that file() and the seen set may touch, and for the parents
 * that the next step moves to the overflow array before it knows how many nodes they lead to.
 */
bool
gg_walk_reserve(gg_walk *walk, size_t more)
{
	return id_set_reserve(&walk->seen, more) &&
		key_array_reserve(&walk->overflow, more + WALK_PARENTS) &&
		(!walk->heaps || (key_array_reserve(&walk->list, more) &&
						  key_array_reserve(&walk->frontier, more)));
}

/* File a key; the caller has reserved the room. */
static inline void
file_sorted(gg_walk *walk, uint64_t key)
{
	key_array  *list = &walk->list;
	size_t		place;

	if (list->count == walk->itopk)
	{
		uint64_t	last = list->keys[list->count - 1];

		if (key > last)
		{
			walk->overflow.keys[walk->overflow.count++] = key;
			return;
		}
		walk->overflow.keys[walk->overflow.count++] = last;
		list->count--;
	}
	place = sorted_insert(list->keys, list->count, key);
	list->count++;
	if (place < walk->next_unexpanded)
		walk->next_unexpanded = place;
}

/*
 * The same with heaps.  The list's heap then only tells the distance of its last node: a node that
 * falls out of it is still in the frontier, or in the overflow array if it was expanded.
 */
static inline void
file_heaps(gg_walk *walk, uint64_t key)
{
	key_array  *list = &walk->list;

	if (list->count < walk->itopk)
		heap_push(list->keys, list->count++, key & ~KEY_EXPANDED);
	else if (key < list->keys[0])
		heap_replace(list->keys, list->count, key & ~KEY_EXPANDED);
	else
	{
		walk->overflow.keys[walk->overflow.count++] = key;
		return;
	}
	if (key & KEY_EXPANDED)
		walk->overflow.keys[walk->overflow.count++] = key;
	else
		heap_push(walk->frontier.keys, walk->frontier.count++, ~key);
}

static inline void
file(gg_walk *walk, uint64_t key)
{
	if (walk->heaps)
		file_heaps(walk, key);
	else
		file_sorted(walk, key);
}

/* Take the list's nearest unexpanded node, and mark it.  False: there is none, or it is too far. */
static inline bool
take_parent(gg_walk *walk, uint32_t *node)
{
	key_array  *list = &walk->list;
	uint64_t	key;

	if (walk->heaps)
	{
		if (walk->frontier.count == 0)
			return false;
		key = ~walk->frontier.keys[0];
		if (key > list->keys[0] && list->count == walk->itopk)
			return false;
		heap_pop(walk->frontier.keys, walk->frontier.count--);
		walk->overflow.keys[walk->overflow.count++] = key | KEY_EXPANDED;
	}
	else
	{
		size_t		i = walk->next_unexpanded;

		while (i < list->count && (list->keys[i] & KEY_EXPANDED) != 0)
			i++;
		walk->next_unexpanded = i;
		if (i == list->count)
			return false;
		key = list->keys[i];
		if (i >= walk->params.k && key > walk->reach)
		{
			walk->cut = true;
			return false;
		}
		list->keys[i] |= KEY_EXPANDED;
		walk->next_unexpanded++;
	}
	walk->unexpanded--;
	*node = key_node(key);
	return true;
}

/* The nearest pivots, which are all that the list has yet, are the walk's entries. */
static void
choose_entries(gg_walk *walk)
{
	const key_array *list = &walk->list;

	while (walk->nentries < WALK_ENTRIES && walk->nentries < list->count)
	{
		walk->entries[walk->nentries] = list->keys[walk->nentries];
		walk->nentries++;
	}
}

/*
 * Take the next entry, and mark it expanded.  False: there is none, the list has it no more, or it
 * is beyond the reach; or the list is a heap, which has no order to find an entry by.
 */
static inline bool
take_entry(gg_walk *walk, uint32_t *node)
{
	uint64_t   *keys = walk->list.keys;
	size_t	   *i = &walk->entry_place;
	uint64_t	key;

	if (walk->heaps || walk->next_entry == walk->nentries)
		return false;
	/* nodes come before it, and push it out when the list is full: its place only grows */
	key = walk->entries[walk->next_entry];
	while (*i < walk->list.count && keys[*i] != key)
		(*i)++;
	if (*i == walk->list.count || (*i >= walk->params.k && key > walk->reach))
		return false;
	keys[*i] |= KEY_EXPANDED;
	walk->next_entry++;
	walk->unexpanded--;
	*node = key_node(key);
	return true;
}

/* File the count nodes in walk->batch, all new, which were measured. */
static void
file_measured(gg_walk *walk, uint32_t count)
{
	uint64_t	near[GG_MAX_DEGREE];
	uint64_t	last = UINT64_MAX;
	uint64_t   *far = walk->overflow.keys + walk->overflow.count;
	uint32_t	nnear = 0;

	walk->distances += count;
	walk->unexpanded += count;

	/* most are farther than the list's last, without a pattern: told apart without a branch */
	if (walk->list.count == walk->itopk)
		last = walk->heaps ? walk->list.keys[0] : walk->list.keys[walk->list.count - 1];
	for (uint32_t i = 0; i < count; i++)
	{
		uint64_t	key = key_of(walk->measured[i], walk->batch[i]);
		uint32_t	is_near = key < last;

		near[nnear] = key;
		*far = key;
		nnear += is_near;
		far += 1 - is_near;
	}
	walk->overflow.count += count - nnear;
	for (uint32_t i = 0; i < nnear; i++)
		file(walk, near[i]);
}

/* Measure the count nodes in walk->batch, all new, and file them. */
gg_code
gg_walk_measure(gg_walk *walk, uint32_t count)
{
	if (count == 0)
		return GG_OK;
	if (!walk->source.distances(walk->source.ctx, walk->batch, count, walk->measured))
		return GG_ECALLBACK;
	file_measured(walk, count);
	return GG_OK;
}

/* The same of pivots' nodes. */
static gg_code
measure_pivots(gg_walk *walk, const uint32_t *pivots, uint32_t count)
{
	const gg_source *source = &walk->source;

	if (count == 0 || source->pivot_distances == NULL)
		return gg_walk_measure(walk, count);
	if (!source->pivot_distances(source->ctx, pivots, walk->batch, count, walk->measured))
		return GG_ECALLBACK;
	file_measured(walk, count);
	return GG_OK;
}

/* ---- pivots ------------------------------------------------------------ */

/*
 * List a pivot that was measured.  The first `room` of the list are sorted, and no farther than the
 * others, which are seldom wanted: sorting all takes a tenth of a search of 1M rows.  A full
 * list is sorted as a whole, so that its last can be dropped.
 */
static void
list_pivot(gg_walk *walk, uint32_t room, uint64_t key)
{
	uint64_t   *list = walk->pivot_list;
	uint32_t	sorted = walk->pivot_listed < room ? walk->pivot_listed : room;
	uint32_t	place;

	if (sorted == room && key > list[room - 1])
	{
		if (walk->pivot_listed < PIVOT_LIST_MAX)
			list[walk->pivot_listed++] = key;
		return;
	}
	if (sorted == room)
	{
		sorted--;
		if (walk->pivot_listed < PIVOT_LIST_MAX)
			list[walk->pivot_listed++] = list[sorted];
	}
	else
		walk->pivot_listed++;
	place = (uint32_t) sorted_insert(list, sorted, key);
	if (place < walk->pivot_unexpanded)
		walk->pivot_unexpanded = place;
}

/* Let the first `room` of the list be sorted. */
static void
sort_pivots(gg_walk *walk, uint32_t room)
{
	const uint32_t listed = walk->pivot_listed;

	/* each key that is listed takes the place of one that was read */
	walk->pivot_listed = walk->pivots_sorted < listed ? walk->pivots_sorted : listed;
	for (uint32_t i = walk->pivot_listed; i < listed; i++)
		list_pivot(walk, room, walk->pivot_list[i]);
	walk->pivots_sorted = room;
}

/*
 * Load those of count pivots (at most GG_MAX_DEGREE) that are not yet known and measure their
 * nodes.  With walk_them they also join the pivot walk.
 */
static gg_code
load_pivots(gg_walk *walk, const uint32_t *pivots, uint32_t count, bool walk_them)
{
	const size_t slot = walk->pivots_seen.count;
	uint32_t	loaded[GG_MAX_DEGREE];
	uint32_t	nodes[GG_MAX_DEGREE];
	uint32_t	slots[GG_MAX_DEGREE];
	uint32_t	measured[GG_MAX_DEGREE];
	uint32_t	nloaded = 0;
	uint32_t	batched = 0;
	gg_code		code;

	if (!gg_walk_reserve(walk, count) || !id_set_reserve(&walk->pivots_seen, count))
		return GG_ENOMEM;
	if (slot + count > walk->pivot_slots_allocated)
	{
		size_t		wanted = (slot + count) * 2;
		pivot_links *larger = realloc(walk->pivot_slots, wanted * sizeof(pivot_links));

		if (larger == NULL)
			return GG_ENOMEM;
		walk->pivot_slots = larger;
		walk->pivot_slots_allocated = wanted;
	}

	/* GG_NO_NODE is out of range */
	for (uint32_t i = 0; i < count; i++)
		if (pivots[i] < walk->source.npivots && id_set_add(&walk->pivots_seen, pivots[i]))
			loaded[nloaded++] = pivots[i];
	if (nloaded > 0 && !walk->source.pivots(walk->source.ctx, loaded, nloaded, nodes,
											walk->pivot_slots[slot].neighbors))
		return GG_ECALLBACK;
	for (uint32_t i = 0; i < nloaded; i++)
	{
		if (nodes[i] >= walk->source.n || !id_set_add(&walk->seen, nodes[i]))
			continue;
		walk->batch[batched] = nodes[i];
		measured[batched] = loaded[i];
		slots[batched++] = (uint32_t) (slot + i);
	}

	code = measure_pivots(walk, measured, batched);
	if (code != GG_OK || !walk_them)
		return code;
	for (uint32_t i = 0; i < batched; i++)
	{
		if (walk->pivot_listed == PIVOT_LIST_MAX)
			sort_pivots(walk, PIVOT_LIST_MAX);
		list_pivot(walk, walk->pivots_sorted, key_of(walk->measured[i], slots[i]));
	}
	return GG_OK;
}

/* Load the next pivots in order that are not yet known. */
static gg_code
sweep_pivots(gg_walk *walk)
{
	uint32_t	pivots[GG_MAX_DEGREE];
	uint32_t	count = 0;

	while (count < GG_MAX_DEGREE && walk->pivots_swept < walk->source.npivots)
		pivots[count++] = walk->pivots_swept++;
	return load_pivots(walk, pivots, count, false);
}

/* How many of the nearest pivots are expanded. */
static uint32_t
pivot_list_length(const gg_walk *walk)
{
	const uint32_t npivots = walk->source.npivots;
	const uint32_t drawn = gg_pivots_wanted(walk->source.n);
	size_t		length = PIVOT_LIST;
	uint32_t	walked = walk->itopk / 3;

	if (walked > PIVOTS_BY_THIRDS)
		walked = walk->itopk / 5 > PIVOTS_BY_THIRDS ? walk->itopk / 5 : PIVOTS_BY_THIRDS;
	if (npivots > drawn)
		length += (npivots - drawn) / PIVOTS_PER_LISTED;
	if (length < walked)
		length = walked;
	return length < PIVOT_LIST_MAX ? (uint32_t) length : PIVOT_LIST_MAX;
}

/* Walk the pivots' graph as far as the walk's list asks for. */
static gg_code
walk_pivots(gg_walk *walk)
{
	const uint32_t room = pivot_list_length(walk);
	gg_code		code = GG_OK;

	if (room > walk->pivots_sorted)
		sort_pivots(walk, room);
	while (code == GG_OK)
	{
		pivot_links links;
		uint32_t	i = walk->pivot_unexpanded;

		while (i < walk->pivot_listed && (walk->pivot_list[i] & KEY_EXPANDED) != 0)
			i++;
		walk->pivot_unexpanded = i;
		if (i >= room || i == walk->pivot_listed)
			break;
		walk->pivot_list[i] |= KEY_EXPANDED;
		/* a copy, since loading may move the slots */
		links = walk->pivot_slots[key_node(walk->pivot_list[i])];
		code = load_pivots(walk, links.neighbors, GG_PIVOT_DEGREE, true);
	}
	return code;
}

/* Measure a walk's first nodes: pivots nearest to the query, and those met on the way there. */
gg_code
gg_walk_enter(gg_walk *walk)
{
	uint32_t	pivots[PIVOT_ENTRIES];
	gg_code		code;

	if (walk->source.npivots <= PIVOTS_MEASURED_ALL)
		return sweep_pivots(walk);

	for (uint32_t i = 0; i < PIVOT_ENTRIES; i++)
		pivots[i] = i;
	code = load_pivots(walk, pivots, PIVOT_ENTRIES, true);
	return code == GG_OK ? walk_pivots(walk) : code;
}

/* ---- walking ----------------------------------------------------------- */

/* Expand the next parents; *more says whether there were any. */
static gg_code
step(gg_walk *walk, bool *more)
{
	uint32_t	degree = walk->source.degree;
	uint32_t	parents[WALK_PARENTS];
	uint32_t	nparents = 0;
	uint32_t	count = 0;

	/* all lists first, so that memory serves them at once */
	while (nparents < WALK_PARENTS && (nparents + 1) * degree <= GG_MAX_DEGREE &&
		   (take_entry(walk, &parents[nparents]) || take_parent(walk, &parents[nparents])))
		nparents++;
	*more = nparents > 0;
	if (*more && !walk->source.neighbors(walk->source.ctx, parents, nparents, walk->neighbors))
		return GG_ECALLBACK;
	if (!gg_walk_reserve(walk, nparents * degree))
		return GG_ENOMEM;
	for (uint32_t i = 0; i < nparents * degree; i++)
	{
		uint32_t	node;

		if (!gg_walk_follows(walk, walk->neighbors[i], parents[i / degree], &node))
			continue;
		walk->batch[count] = node;
		count += id_set_add(&walk->seen, node);
	}
	return gg_walk_measure(walk, count);
}

/* Turn the list of a finished run with heaps back into a sorted one. */
static bool
leave_heaps(gg_walk *walk)
{
	key_array  *list = &walk->list;
	key_array  *overflow = &walk->overflow;
	uint64_t	last = list->count == 0 ? 0 : list->keys[0] | KEY_EXPANDED;
	size_t		kept = 0;

	heap_sort(list->keys, list->count);
	for (size_t i = 0; i < list->count; i++)
		list->keys[i] |= KEY_EXPANDED;

	/* overflow also holds what was expanded and is in the list */
	for (size_t i = 0; i < overflow->count; i++)
	{
		if (overflow->keys[i] > last)
			overflow->keys[kept++] = overflow->keys[i];
	}
	overflow->count = kept;
	if (!key_array_reserve(overflow, walk->frontier.count))
		return false;
	for (size_t i = 0; i < walk->frontier.count; i++)
		overflow->keys[overflow->count++] = ~walk->frontier.keys[i];
	walk->frontier.count = 0;
	return true;
}

/* Expand until the list is expanded, and no pivot could fill what room it has. */
static gg_code
run(gg_walk *walk)
{
	gg_code		code;

	walk->cut = false;
	for (;;)
	{
		bool		more;

		code = step(walk, &more);
		if (code != GG_OK)
			return code;
		if (more)
			continue;
		if (walk->cut || walk->list.count == walk->itopk ||
			walk->pivots_swept == walk->source.npivots)
			break;
		code = sweep_pivots(walk);
		if (code != GG_OK)
			return code;
	}
	if (walk->heaps && !leave_heaps(walk))
		return GG_ENOMEM;
	walk->next_handed = 0;
	return GG_OK;
}

/* Choose the list anew for a longer itopk, from all nodes known. */
static bool
lengthen(gg_walk *walk, size_t itopk)
{
	key_array  *list = &walk->list;
	key_array  *overflow = &walk->overflow;
	size_t		listed = list->count;
	size_t		overflowed;

	walk->itopk = itopk;
	walk->heaps = itopk > SORTED_LIST_MAX;
	if (!walk->heaps)
	{
		if (list->capacity < itopk && !key_array_reserve(list, itopk - list->count))
			return false;

		/* each key filed puts at most one in the overflow, so the writes stay behind the reads */
		overflowed = overflow->count;
		overflow->count = 0;
		walk->next_unexpanded = listed;
		for (size_t i = 0; i < overflowed; i++)
			file_sorted(walk, overflow->keys[i]);
		return true;
	}

	/* the list's keys move behind the others, so writes stay behind reads here, too */
	if (!key_array_reserve(overflow, listed) ||
		!key_array_reserve(list, overflow->count) ||
		!key_array_reserve(&walk->frontier, walk->unexpanded))
		return false;
	/* the arrays of a new walk are NULL */
	if (listed > 0)
		memcpy(overflow->keys + overflow->count, list->keys, listed * sizeof(uint64_t));
	overflowed = overflow->count + listed;
	overflow->count = 0;
	list->count = 0;
	walk->frontier.count = 0;
	for (size_t i = 0; i < overflowed; i++)
		file_heaps(walk, overflow->keys[i]);
	return true;
}

/* End a call by its code: a walk that failed becomes empty, and can be started again. */
static gg_status
finish(gg_walk *walk, gg_code code, const char *where)
{
	walk->usable = code == GG_OK;
	if (walk->usable)
		return gg_ok();
	walk->list.count = 0;
	walk->overflow.count = 0;
	walk->frontier.count = 0;
	walk->unexpanded = 0;
	if (code == GG_ENOMEM)
		return gg_fail(code, where, "out of memory with %zu nodes known to the walk",
					   walk->seen.count);
	return gg_fail(code, where, "the source of the walk failed after %llu distances",
				   (unsigned long long) walk->distances);
}

/* ---- the interface ----------------------------------------------------- */

gg_status
gg_walk_create(gg_walk **walk)
{
	*walk = calloc(1, sizeof(gg_walk));
	if (*walk == NULL)
		return gg_fail(GG_ENOMEM, "gg_walk_create", "out of memory for a walk of %zu bytes",
					   sizeof(gg_walk));
	return gg_ok();
}

gg_status
gg_walk_prepare(gg_walk *walk, const gg_source *source, const gg_search_params *params,
				const char *where)
{
	const uint32_t itopk_size = params->itopk_size;
	size_t		expected;

	walk->usable = false;
	walk->list.count = 0;
	walk->overflow.count = 0;
	walk->frontier.count = 0;
	walk->next_unexpanded = 0;
	walk->nentries = 0;
	walk->next_entry = 0;
	walk->entry_place = 0;
	walk->next_handed = 0;
	walk->unexpanded = 0;
	walk->pivot_listed = 0;
	walk->pivot_unexpanded = 0;
	walk->pivots_sorted = 1;
	walk->pivots_swept = 0;
	walk->pass_marked = false;
	walk->cut = false;
	walk->reach = UINT64_MAX;
	walk->distances = 0;
	if (source->n > GG_MAX_NODES)
		return gg_fail(GG_EINVAL, where, "%u nodes are more than %u", source->n, GG_MAX_NODES);
	if (source->degree > GG_MAX_DEGREE)
		return gg_fail(GG_EINVAL, where, "degree %u is more than %u", source->degree,
					   GG_MAX_DEGREE);
	if (source->npivots > GG_MAX_NODES)
		return gg_fail(GG_EINVAL, where, "%u pivots are more than %u", source->npivots,
					   GG_MAX_NODES);
	if (itopk_size == 0)
		return gg_fail(GG_EINVAL, where, "itopk_size 0 is less than 1");
	walk->source = *source;
	walk->params = *params;

	/*
	 * A walk measures some 400 nodes, and about ten more for each in its list.  The set starts with
	 * room for them, but never with so much that emptying it (256 kB) would show beside the walk.
	 */
	expected = 512 + (size_t) itopk_size * 12;
	if (expected > 32768)
		expected = 32768;
	if (!id_set_reset(&walk->seen, expected) || !id_set_reset(&walk->pivots_seen, 512) ||
		!lengthen(walk, itopk_size))
		return finish(walk, GG_ENOMEM, where);
	return gg_ok();
}

gg_status
gg_walk_settle(gg_walk *walk, gg_code code, const char *where)
{
	if (code == GG_OK && walk->list.count < walk->itopk)
		code = run(walk);
	return finish(walk, code, where);
}

gg_status
gg_walk_start(gg_walk *walk, const gg_source *source, uint32_t itopk_size)
{
	const gg_search_params params = {.itopk_size = itopk_size};

	return gg_walk_start_near(walk, source, &params, INFINITY);
}

gg_status
gg_walk_start_near(gg_walk *walk, const gg_source *source, const gg_search_params *params,
				   float reach)
{
	static const char *const where = "gg_walk_start";
	gg_status	status = gg_walk_prepare(walk, source, params, where);
	gg_code		code;

	if (status.code != GG_OK)
		return status;
	walk->reach = key_of(reach, UINT32_MAX) | KEY_EXPANDED;
	code = gg_walk_enter(walk);
	choose_entries(walk);
	if (code == GG_OK)
		code = run(walk);
	return finish(walk, code, where);
}

/* A size not above the present one changes nothing but the reach. */
gg_status
gg_walk_widen(gg_walk *walk, uint32_t itopk_size)
{
	static const char *const where = "gg_walk_widen";
	gg_code		code;

	if (!walk->usable)
		return gg_fail(GG_EINVAL, where, "the walk was not started, or failed");
	if (itopk_size <= walk->itopk && !walk->cut)
		return gg_ok();
	walk->reach = UINT64_MAX;
	if (itopk_size > walk->itopk && !lengthen(walk, itopk_size))
		return finish(walk, GG_ENOMEM, where);
	code = walk_pivots(walk);
	return finish(walk, code == GG_OK ? run(walk) : code, where);
}

bool
gg_walk_peek(gg_walk *walk, gg_candidate *candidate)
{
	while (walk->usable && walk->next_handed < walk->list.count)
	{
		uint64_t	key = walk->list.keys[walk->next_handed];

		if ((*id_set_find(&walk->seen, key_node(key)) & 1) == 0)
		{
			candidate->distance = key_distance(key);
			candidate->node = key_node(key);
			return true;
		}
		walk->next_handed++;
	}
	return false;
}

bool
gg_walk_next(gg_walk *walk, gg_candidate *candidate)
{
	if (!gg_walk_peek(walk, candidate))
		return false;
	*id_set_find(&walk->seen, candidate->node) |= 1;
	walk->next_handed++;
	return true;
}

bool
gg_walk_was_cut(const gg_walk *walk)
{
	return walk->usable && walk->cut;
}

/*
 * The list and nearest are ascending.  Merging goes from their ends on, so that the list is merged
 * into nearest in place.
 */
uint32_t
gg_walk_merge_distances(const gg_walk *walk, float *nearest, uint32_t count, uint32_t most)
{
	size_t		listed = walk->usable ? walk->list.count : 0;
	size_t		mine = 0;
	size_t		theirs = 0;
	uint32_t	total;

	/* how many of each stay */
	while (mine + theirs < most && (mine < listed || theirs < count))
		if (theirs == count ||
			(mine < listed && key_distance(walk->list.keys[mine]) < nearest[theirs]))
			mine++;
		else
			theirs++;
	total = (uint32_t) (mine + theirs);
	while (mine > 0)
	{
		float		distance = key_distance(walk->list.keys[mine - 1]);

		if (theirs > 0 && nearest[theirs - 1] > distance)
		{
			nearest[mine + theirs - 1] = nearest[theirs - 1];
			theirs--;
		}
		else
		{
			nearest[mine + theirs - 1] = distance;
			mine--;
		}
	}
	return total;
}

bool
gg_walk_exhausted(const gg_walk *walk)
{
	return !walk->usable ||
		(walk->unexpanded == 0 && (walk->pivots_seen.count == walk->source.npivots ||
								   walk->seen.count == walk->source.n));
}

uint64_t
gg_walk_distances(const gg_walk *walk)
{
	return walk->distances;
}

void
gg_walk_free(gg_walk *walk)
{
	if (walk == NULL)
		return;
	free(walk->list.keys);
	free(walk->overflow.keys);
	free(walk->frontier.keys);
	free(walk->seen.slots);
	free(walk->pivots_seen.slots);
	free(walk->pivot_slots);
	free(walk);
}
