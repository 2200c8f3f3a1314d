/*
 * walk.h
 *		The inside of a walk: what walk.c and tsdg_search.c share.
 */
#ifndef GG_WALK_H
#define GG_WALK_H

#include <stdlib.h>
#include <string.h>

#include "engine/cpu/common/cpu.h"
#include "engine/keys.h"
#include "engine/walk.h"

/*
 * Parents expanded per step.  Two instead of one make the batches that a source measures at once
 * larger, for 0.2% more distances at itopk 64 and the same recall; four take 1.5% more.  Of an
 * index on disk four and eight read 2 and 10% more blocks, in no less time.
 */
#define WALK_PARENTS 2u

/*
 * Pivots that a walk expands before any other node, nearest first and WALK_PARENTS a step, as long
 * as the list has them.  Where queries are unlike the rows, answers lie around several pivots, and
 * what the nearest two lead to would push the others out of the list before they are expanded.
 * Where queries are like the rows it does so all the same, so a search takes 1 to 7% more
 * distances.  RESULTS.md has figures ("Entries of a walk").
 *
 * Tried, misses at equal distances beside two nearest nodes a step, at itopk 64: queries of another
 * space, those like the rows of the same set, MNIST; and how many more distances the last two take:
 *	- this: .76, .93, 1.11; 4 and 5%.  8 such pivots: .78, .92, 1.11; 4 and 5%.
 *	- one such pivot a step, and the nearest node: .82, .94, .92; 2 and 3%.
 *	- only pivots in the nearer half of the list: .84, .92; 1%.  In the nearest quarter: .93, .99.
 *	- 8, 4 or 16 pivots in any case: .78, .91, 1.20; 11 and 11%.  .91, .83, .98; 3%.  .79, 2.69.
 *	- 8 pivots none of which is nearer to another one than to the query: .95, .87; 18%.
 *	- More pivots where the query is far from the nearest one, by the spread of its distances to
 *	  random pivots: queries unlike the rows are told from others no better than data sets are.
 */
#define WALK_ENTRIES 16u

/*
 * The pivot walk ends when that many nearest ones are expanded.  Lists of 24 / 32 / 40, itopk 64:
 * recall@10 0.9944 / 0.9960 / 0.9967 with 659 / 722 / 784 distances on 100,000 x 768 in 500
 * clusters, and 0.9985 / 0.9993 / 0.9996 with 984 / 1031 / 1078 on 200,000 x 128 in 200.
 *
 * From itopk 96 on it is a third of the list, so that longer lists find clusters that shorter ones
 * miss.  Queries of 2,000 that got no right answer, and distances, at itopk 128 and 256:
 *	200,000 x 128 in 1,000 clusters, 32 pivots		7, 831		7, 1425
 *									 a third		1, 923		0, 1875
 *									 half			0, 1113		0, 2156
 *	60,000 x 32, no clusters, 32 pivots				0, 3837		0, 6271
 *							  a third				0, 3888		0, 6466
 *
 * At 128 pivots it stays until a fifth is more: 200,000 x 64 in clusters within clusters, LIMIT 500
 * and 1,000, had recalls of .9806 and .9767 by 5,775 and 10,669 distances, and by a third .9814 and
 * .9771 by 6,724 and 12,013.  When a list grows, the walk of the pivots goes on.
 */
#define PIVOT_LIST 32u
#define PIVOTS_BY_THIRDS 128u
#define PIVOT_LIST_MAX 1024u

/*
 * Beyond the random pivots there are those of groups of rows that drew none (connect.c): of the ten
 * parts of a document, say, where 32 pivots lead to the topic of a query, and seldom to its
 * document.  One more pivot is expanded for so many of these.  RESULTS.md has figures ("Documents
 * of few rows").  Half as many find nearly all, and take half as long again.  Ending where the
 * nearest 16 pivots have not changed for 64 expansions was tried: it loses four times as many
 * queries.
 */
#define PIVOTS_PER_LISTED 128u

/*
 * A list has a fixed length.  Tried: ends by what the walk sees.  Distances saved on six sets, at
 * equal mean and 5th percentile of recall@10, with the best settings for each (RESULTS.md, "Recall
 * as a promise"):
 *	- the tenth nearest has not changed for 4 to 448 expansions: 0 to 5%.
 *	- the next node is farther than the tenth nearest by a share of its distance: 1 to 11%.  With
 *	  the former as well, or instead: no more.
 *	- one of two lengths, by distances to the nearest pivots and to random ones: 0 to 11%.
 * Only at recall .998 and more, and where queries are unlike the rows, is it more than 4%.  Ends at
 * the last answer would save 11 to 19% where rows are clustered and recall is .98 to .995: half of
 * the distances are those of pivots.
 */

/* A known node that was expanded. */
#define KEY_EXPANDED KEY_FLAG

/* ---- a growing array of keys ------------------------------------------- */

typedef struct key_array
{
	uint64_t   *keys;
	size_t		count;
	size_t		capacity;
} key_array;

/* Make room for more keys beyond those there.  False: out of memory. */
static inline bool
key_array_reserve(key_array *array, size_t more)
{
	size_t		capacity = array->capacity;
	uint64_t   *keys;

	if (array->count + more <= capacity)
		return true;
	while (capacity < array->count + more)
		capacity = capacity == 0 ? 2048 : capacity * 2;
	keys = realloc(array->keys, capacity * sizeof(uint64_t));
	if (keys == NULL)
		return false;
	array->keys = keys;
	array->capacity = capacity;
	return true;
}

/* ---- a set of node ids, each with one flag ----------------------------- */

/* Open addressing, at most half full.  A slot is (id + 1) * 2 + flag, 0 when empty. */
typedef struct id_set
{
	uint32_t   *slots;
	size_t		allocated;		/* slots */
	unsigned	bits;			/* slots in use: 2^bits of those allocated */
	size_t		count;
} id_set;

static inline size_t
id_set_hash(const id_set *set, uint32_t id)
{
	return (uint32_t) (id * 0x9E3779B1u) >> (32 - set->bits);
}

/* Empty the set, to hold so many ids before it grows.  False: out of memory. */
static inline bool
id_set_reset(id_set *set, size_t expected)
{
	unsigned	bits = 6;
	size_t		slots;

	while (((size_t) 1 << bits) < expected * 2 && bits < 32)
		bits++;
	slots = (size_t) 1 << bits;
	if (slots > set->allocated)
	{
		free(set->slots);
		set->slots = malloc(slots * sizeof(uint32_t));
		set->allocated = set->slots == NULL ? 0 : slots;
		if (set->slots == NULL)
			return false;
	}
	memset(set->slots, 0, slots * sizeof(uint32_t));
	set->bits = bits;
	set->count = 0;
	return true;
}

/*
 * The slot that holds the id, or the empty one where it would go.  Whether an id is there cannot be
 * predicted, but that the first slot decides it can.  So there is one branch, on the latter.
 */
static inline uint32_t *
id_set_find(const id_set *set, uint32_t id)
{
	size_t		mask = ((size_t) 1 << set->bits) - 1;
	size_t		i = id_set_hash(set, id);

	while ((set->slots[i] != 0) & (set->slots[i] >> 1 != id + 1))
		i = (i + 1) & mask;
	return &set->slots[i];
}

/* 1 when the id was not there, else 0; room was made by id_set_reserve(). */
static inline uint32_t
id_set_add(id_set *set, uint32_t id)
{
	uint32_t   *slot = id_set_find(set, id);
	uint32_t	added = *slot == 0;

	*slot |= (id + 1) << 1;
	set->count += added;
	return added;
}

static inline bool
id_set_reserve(id_set *set, size_t more)
{
	id_set		larger = *set;
	size_t		slots = (size_t) 1 << set->bits;

	if ((set->count + more) * 2 <= slots)
		return true;
	while (((size_t) 1 << larger.bits) < (set->count + more) * 2 && larger.bits < 32)
		larger.bits++;
	larger.allocated = (size_t) 1 << larger.bits;
	larger.slots = calloc(larger.allocated, sizeof(uint32_t));
	if (larger.slots == NULL)
		return false;
	for (size_t i = 0; i < slots; i++)
	{
		if (set->slots[i] != 0)
			*id_set_find(&larger, (set->slots[i] >> 1) - 1) = set->slots[i];
	}
	free(set->slots);
	*set = larger;
	return true;
}

/* ---- the walk ---------------------------------------------------------- */

typedef struct pivot_links
{
	uint32_t	neighbors[GG_PIVOT_DEGREE];
} pivot_links;

struct gg_walk
{
	gg_source	source;
	bool		usable;			/* started, and no call failed since */
	bool		heaps;			/* list and frontier are heaps while the walk runs */
	bool		pass_marked;	/* edges with GG_EDGE_MARK are passed over */
	bool		cut;			/* nodes of the list that are beyond the reach are not expanded */
	uint64_t	reach;			/* keys above it are beyond */
	gg_search_params params;	/* k: so many of the list are expanded all the same */
	size_t		itopk;

	key_array	list;			/* the nearest nodes known, at most itopk */
	key_array	overflow;		/* all other nodes known; with heaps see file_heaps() */
	key_array	frontier;		/* with heaps: a heap of the complements of keys to expand */
	size_t		next_unexpanded;	/* sorted list: all before it are expanded */
	size_t		next_handed;	/* all in the list before it have been handed out */
	size_t		unexpanded;		/* nodes known and not expanded */
	id_set		seen;			/* nodes known; flag: handed out */

	uint64_t	entries[WALK_ENTRIES];	/* nearest pivots when the walk entered, as keys */
	uint32_t	nentries;
	uint32_t	next_entry;		/* all before it are expanded */
	size_t		entry_place;	/* all in the list before it are nearer than the next entry */

	/* the pivot walk: its list holds keys of (distance, slot), slot = order of loading */
	uint64_t	pivot_list[PIVOT_LIST_MAX];
	uint32_t	pivot_listed;
	uint32_t	pivots_sorted;	/* so many of the list are in order, all others are farther */
	uint32_t	pivot_unexpanded;	/* all before it are expanded */
	pivot_links *pivot_slots;
	size_t		pivot_slots_allocated;
	id_set		pivots_seen;
	uint32_t	pivots_swept;	/* all pivots before it are known */

	uint64_t	distances;

	uint32_t	neighbors[GG_MAX_DEGREE];
	uint32_t	batch[GG_MAX_DEGREE];
	float		measured[GG_MAX_DEGREE];
};

/* Insert key in a sorted array of count keys that has room for one more. */
static inline size_t
sorted_insert(uint64_t *keys, size_t count, uint64_t key)
{
	size_t		low = 0;

	/* halves without branches, which would be mispredicted every other time */
	for (size_t rest = count; rest > 0; rest /= 2)
	{
		size_t		half = (rest + 1) / 2;

		low += keys[low + half - 1] < key ? half : 0;
	}
	memmove(keys + low + 1, keys + low, (count - low) * sizeof(uint64_t));
	keys[low] = key;
	return low;
}

/*
 * Whether the walk goes along an edge of node parent, as its list has it; *node: where to.  It goes
 * to no id out of range.
 */
static inline bool
gg_walk_follows(const gg_walk *walk, uint32_t edge, uint32_t parent, uint32_t *node)
{
	*node = edge & ~GG_EDGE_MARK;
	if (edge == GG_NO_NODE || (walk->pass_marked && edge != *node))
		return false;
	return *node < walk->source.n && *node != parent;
}

/* ---- walk.c -------------------------------------------------------------- */

/* Begin a walk that knows nothing yet. */
extern gg_status gg_walk_prepare(gg_walk *walk, const gg_source *source,
								 const gg_search_params *params, const char *where);

/* gg_walk_search() by best-first search, whatever the mode is. */
extern gg_status gg_walk_start_near(gg_walk *walk, const gg_source *source,
									const gg_search_params *params, float reach);

/* Have room for more nodes in all that measuring them may touch.  False: out of memory. */
extern bool gg_walk_reserve(gg_walk *walk, size_t more);

/* Measure the count nodes in walk->batch, which were just added to walk->seen, and file them. */
extern gg_code gg_walk_measure(gg_walk *walk, uint32_t count);

/* Measure a walk's first nodes: pivots nearest to the query, and those met on the way there. */
extern gg_code gg_walk_enter(gg_walk *walk);

/* End a search that came to code, by best-first search if the list still has room. */
extern gg_status gg_walk_settle(gg_walk *walk, gg_code code, const char *where);

#endif							/* GG_WALK_H */
