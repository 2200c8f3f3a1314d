/*
 * walk.h
 *		The walk over a gg_source: the CPU engine's search, of rows in memory and of rows in
 *		relation pages alike.
 */
#ifndef GG_ENGINE_WALK_H
#define GG_ENGINE_WALK_H

#include "engine/engine.h"

/*
 * Where a walk gets its rows and edges.  A callback that fails keeps the reason for the caller of
 * the walk and returns false; the walk then returns GG_ECALLBACK.
 */
typedef struct gg_source
{
	uint32_t	n;				/* nodes */
	uint32_t	degree;
	uint32_t	npivots;
	void	   *ctx;

	/* out[i] = distance of nodes[i] to the query of this walk; count <= GG_MAX_DEGREE */
	bool		(*distances) (void *ctx, const uint32_t *nodes, uint32_t count, float *out);
	/* copy each node's list of degree ids to out, GG_NO_NODE where unused; GG_MAX_DEGREE in all */
	bool		(*neighbors) (void *ctx, const uint32_t *nodes, uint32_t count, uint32_t *out);
	/* copy pivots: the node id of each, and its GG_PIVOT_DEGREE indices of other pivots */
	bool		(*pivots) (void *ctx, const uint32_t *pivots, uint32_t count, uint32_t *nodes,
						   uint32_t *neighbors);
	/* distances() of pivots' nodes, for a source that has pivots' rows at hand; or NULL */
	bool		(*pivot_distances) (void *ctx, const uint32_t *pivots, const uint32_t *nodes,
									uint32_t count, float *out);
} gg_source;

typedef struct gg_candidate
{
	float		distance;
	uint32_t	node;
} gg_candidate;

/*
 * Best-first search [CAGRA, section IV] that can be resumed with a longer candidate list.
 *
 *	gg_walk_start()		Enter through the pivots, and expand until the itopk_size nearest nodes
 *						known have all been expanded.
 *	gg_walk_search()	The same by the procedure that params->mode names, and then by best-first
 *						search where less than itopk_size nodes are known.  reach is for queries
 *						that search several graphs, and best-first search alone heeds it: a
 *						distance such that nodes beyond it need not be expanded, but for the
 *						params->k nearest of the list, which lead to the query's neighbourhood;
 *						INFINITY for none.
 *	gg_walk_next()		The nearest node known, among those itopk_size, that was not returned yet;
 *						false: widen, or stop.
 *	gg_walk_peek()		The same, without returning it.
 *	gg_walk_widen()		Go on with a longer list, and without a reach.  Nothing is computed twice.
 *						Nodes found late may be nearer than nodes returned before; gg_walk_next()
 *						returns them first.
 *	gg_walk_was_cut()	Nodes among those itopk_size were beyond the reach, and are not expanded.
 *	gg_walk_merge_distances()	Merge the distances of those itopk_size into `count` distances that
 *						are ascending, and keep the least `most`.  Returns how many there are.
 *	gg_walk_exhausted()	No unexpanded node is left: widening will find nothing more.
 *	gg_walk_distances()	Distances computed since the start.
 *
 * Ids out of range that the source gives are ignored: pages are untrusted input.
 *
 * start, search and widen return GG_ENOMEM, or GG_ECALLBACK when the source failed.  A walk keeps
 * its memory between starts; gg_walk_free() frees it.
 */
typedef struct gg_walk gg_walk;

extern gg_status gg_walk_create(gg_walk **walk);
extern gg_status gg_walk_start(gg_walk *walk, const gg_source *source, uint32_t itopk_size);
extern gg_status gg_walk_search(gg_walk *walk, const gg_source *source,
								const gg_search_params *params, float reach);
extern gg_status gg_walk_widen(gg_walk *walk, uint32_t itopk_size);
extern bool gg_walk_next(gg_walk *walk, gg_candidate *candidate);
extern bool gg_walk_peek(gg_walk *walk, gg_candidate *candidate);
extern bool gg_walk_was_cut(const gg_walk *walk);
extern uint32_t gg_walk_merge_distances(const gg_walk *walk, float *nearest, uint32_t count,
										uint32_t most);
extern bool gg_walk_exhausted(const gg_walk *walk);
extern uint64_t gg_walk_distances(const gg_walk *walk);
extern void gg_walk_free(gg_walk *walk);

#endif							/* GG_ENGINE_WALK_H */
