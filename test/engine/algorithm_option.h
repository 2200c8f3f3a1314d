/*
 * algorithm_option.h
 *		An algorithm and its parameters on a command line: cagra, tsdg[:ALPHA[:LAMBDA0]],
 *		grnnd[:S[:R[:T1[:T2[:RHO]]]]]; grnnd-random starts from random pools.
 *
 * For benches.  C and C++.
 */
#ifndef GG_TEST_ALGORITHM_OPTION_H
#define GG_TEST_ALGORITHM_OPTION_H

#include "../../src/engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Set them in params; anything else ends the program. */
static inline void
parse_algorithm(const char *text, gg_build_params *params)
{
	float		alpha = 0;
	unsigned	lambda0 = 0;

	unsigned	s = 0,
				r = 0,
				t1 = 0,
				t2 = 0;
	float		rho = 0;

	params->alpha = 0;
	params->lambda0 = 0;
	if (strcmp(text, "cagra") == 0)
		params->algorithm = GG_ALGORITHM_CAGRA;
	else if (strcmp(text, "tsdg") == 0 || sscanf(text, "tsdg:%f:%u", &alpha, &lambda0) >= 1)
	{
		params->algorithm = GG_ALGORITHM_TSDG;
		params->alpha = alpha;
		params->lambda0 = lambda0;
	}
	else if (strcmp(text, "grnnd") == 0 || strcmp(text, "grnnd-random") == 0 ||
			 sscanf(text, "grnnd:%u:%u:%u:%u:%f", &s, &r, &t1, &t2, &rho) >= 1 ||
			 sscanf(text, "grnnd-random:%u:%u:%u:%u:%f", &s, &r, &t1, &t2, &rho) >= 1)
	{
		params->algorithm = GG_ALGORITHM_GRNND;
		params->init = text[5] == '-' ? GG_INIT_RANDOM : GG_INIT_PIVOT_CELLS;
		params->initial_neighbors = s;
		params->pool_capacity = r;
		params->outer_rounds = t1;
		params->inner_rounds = t2;
		params->rho = rho;
	}
	else
	{
		fprintf(stderr, "no algorithm %s\n", text);
		exit(2);
	}
}

/* Edges of a node in the mean. */
static inline double
mean_degree(const gg_graph *graph)
{
	uint64_t	edges = 0;

	if (graph->n == 0 || graph->adjacency == NULL)
		return 0;
	for (size_t i = 0; i < (size_t) graph->n * graph->degree; i++)
		edges += graph->adjacency[i] != GG_NO_NODE;
	return (double) edges / graph->n;
}

#endif							/* GG_TEST_ALGORITHM_OPTION_H */
