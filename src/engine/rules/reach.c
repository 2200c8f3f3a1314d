/*
 * reach.c
 *		The forest of paths of reach.h.
 */
#include "engine/rules/reach.h"

#include <stdlib.h>
#include <string.h>

/* Nodes between two questions whether to give up: some milliseconds, each with its edges. */
#define POLL_NODES		1024u

/* Nodes from the one that is expanded to those whose memory is fetched. */
#define FETCH_LISTS		16u
#define FETCH_PARENTS	4u

gg_status
gg_reach_create(gg_reach *reach, const char *where, uint32_t *adjacency, uint32_t n,
				uint32_t degree, bool (*stop) (void *ctx), void *ctx)
{
	memset(reach, 0, sizeof(*reach));
	reach->n = n;
	reach->degree = degree;
	reach->adjacency = adjacency;
	reach->stop = stop;
	reach->ctx = ctx;
	reach->parent = malloc(sizeof(uint32_t) * n);
	reach->queue = malloc(sizeof(uint32_t) * n);
	if (!reach->parent || !reach->queue)
		return gg_fail(GG_ENOMEM, where, "out of memory to connect %u nodes", n);
	return gg_ok();
}

void
gg_reach_free(gg_reach *reach)
{
	free(reach->parent);
	free(reach->queue);
	free(reach->left);
}

bool
gg_reach_stopping(gg_reach *reach)
{
	if (++reach->looked >= POLL_NODES)
	{
		reach->looked = 0;
		if (!reach->stopped)
			reach->stopped = reach->stop(reach->ctx);
	}
	return reach->stopped;
}

static inline void
reach_add(gg_reach *reach, uint32_t node, uint32_t parent)
{
	reach->parent[node] = parent;
	reach->queue[reach->queued++] = node;
}

void
gg_reach_root(gg_reach *reach, uint32_t node)
{
	reach_add(reach, node, node);
}

/*
 * Fetch memory for nodes that will be expanded soon: the list of one, and the parents of the nodes
 * that the list of a nearer one names.  That halves the time of 1M nodes of degree 32.
 */
static inline void
reach_fetch(const gg_reach *reach)
{
	const uint32_t *nodes = reach->queue + reach->expanded;
	const uint32_t *list;

	if (reach->queued - reach->expanded <= FETCH_LISTS)
		return;
	list = reach->adjacency + (size_t) nodes[FETCH_LISTS] * reach->degree;
	for (uint32_t i = 0; i < reach->degree; i += 16)
		__builtin_prefetch(list + i);
	list = reach->adjacency + (size_t) nodes[FETCH_PARENTS] * reach->degree;
	for (uint32_t i = 0; i < reach->degree && list[i] != GG_NO_NODE; i++)
		__builtin_prefetch(&reach->parent[list[i] & ~GG_EDGE_MARK]);
}

void
gg_reach_spread(gg_reach *reach)
{
	while (reach->expanded < reach->queued && !gg_reach_stopping(reach))
	{
		uint32_t	node = reach->queue[reach->expanded++];
		const uint32_t *list = reach->adjacency + (size_t) node * reach->degree;

		reach_fetch(reach);
		for (uint32_t i = 0; i < reach->degree && list[i] != GG_NO_NODE; i++)
			if ((list[i] & GG_EDGE_MARK) == 0 && !gg_reach_has(reach, list[i]))
				reach_add(reach, list[i], node);
	}
}

/* May `from` give the edge in this place? */
static inline bool
reach_gives(const gg_reach *reach, uint32_t from, uint32_t edge)
{
	const uint32_t neighbor = edge & ~GG_EDGE_MARK;

	if (edge == GG_NO_NODE)
		return true;
	if (edge == neighbor && reach->parent[edge] == from)
		return false;
	return !reach->spared || !reach->spared(reach->of, from, neighbor);
}

bool
gg_reach_link(gg_reach *reach, uint32_t from, uint32_t orphan)
{
	uint32_t   *list = reach->adjacency + (size_t) from * reach->degree;
	uint32_t	at = reach->degree;

	for (uint32_t i = reach->degree; i-- > 0;)
	{
		if (list[i] == (orphan | GG_EDGE_MARK))
			at = i;
		else if (at < reach->degree ||
				 (list[i] == GG_NO_NODE && i > 0 && list[i - 1] == GG_NO_NODE))
			continue;
		else if (reach_gives(reach, from, list[i]))
			at = i;
	}
	if (at == reach->degree)
		return false;
	list[at] = orphan;
	reach->links++;
	reach_add(reach, orphan, from);
	gg_reach_spread(reach);
	return true;
}

bool
gg_reach_link_by_list(gg_reach *reach, uint32_t orphan, const void *unused)
{
	const uint32_t degree = reach->degree;
	const uint32_t *list = reach->adjacency + (size_t) orphan * degree;

	(void) unused;
	for (uint32_t i = 0; i < degree; i++)
	{
		const uint32_t near = list[i] & ~GG_EDGE_MARK;

		if (list[i] != GG_NO_NODE && gg_reach_has(reach, near) &&
			gg_reach_link(reach, near, orphan))
			return true;
	}
	for (uint32_t i = 0; i < degree; i++)
	{
		const uint32_t near = list[i] & ~GG_EDGE_MARK;

		if (list[i] == GG_NO_NODE || !gg_reach_has(reach, near))
			continue;
		for (uint32_t j = 0; j < degree; j++)
		{
			const uint32_t from = reach->adjacency[(size_t) near * degree + j];

			/* what carries a mark, or is GG_NO_NODE, is no tree edge */
			if ((from & GG_EDGE_MARK) == 0 && reach->parent[from] == near &&
				gg_reach_link(reach, from, orphan))
				return true;
		}
	}
	return false;
}

bool
gg_reach_link_all(gg_reach *reach, gg_reach_rule rule, const void *arg)
{
	uint32_t	count = 0;
	bool		linked;

	for (uint32_t node = 0; node < reach->n && !gg_reach_stopping(reach); node++)
		count += !gg_reach_has(reach, node);
	reach->left = malloc(sizeof(uint32_t) * ((size_t) count + 1));
	if (!reach->left)
		return false;
	for (uint32_t node = 0; reach->nleft < count && node < reach->n; node++)
		if (!gg_reach_has(reach, node))
			reach->left[reach->nleft++] = node;

	do
	{
		linked = false;
		for (uint32_t i = 0; i < reach->nleft && !gg_reach_stopping(reach); i++)
			if (!gg_reach_has(reach, reach->left[i]) && rule(reach, reach->left[i], arg))
				linked = true;
	} while (linked && !reach->stopped);

	count = 0;
	for (uint32_t i = 0; i < reach->nleft; i++)
		if (!gg_reach_has(reach, reach->left[i]))
			reach->left[count++] = reach->left[i];
	reach->nleft = count;
	return true;
}

void
gg_reach_root_left(gg_reach *reach, uint32_t most)
{
	uint32_t	roots = 0;

	reach->spared = NULL;
	for (uint32_t i = 0; i < reach->nleft && !gg_reach_stopping(reach); i++)
	{
		uint32_t	orphan = reach->left[i];

		if (gg_reach_has(reach, orphan))
			continue;
		if (roots >= most && reach->queued > 0 &&
			gg_reach_link(reach, reach->queue[reach->queued - 1], orphan))
			continue;
		reach->left[roots++] = orphan;
		gg_reach_root(reach, orphan);
		gg_reach_spread(reach);
	}
	reach->nleft = roots;
}
