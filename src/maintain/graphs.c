/*
 * graphs.c
 *		What a merge knows from its inputs' graphs, and when it is worth reading them.
 *
 * The edges of a node are good neighbours of its own segment.  A merge can start from them and look
 * for neighbours in the other segments alone (GGM, engine/cpu/build/extend.c), or build anew.
 *
 * The rule: the CPU engine takes what is faster at equal recall, within 0.002.  That is GGM where
 * at most 36% of all pairs of nodes are new: a segment gets a fourth of its own size, as in a merge
 * that is due (policy.c).  The engine then searches the largest graph for the other rows, which are
 * at most a fourth: a largest part of 75% and one of 25% leave 37.5%.  Processor seconds of one
 * thread for the graph, GGM's over a build's, at degree 32 of 64; recall@10 at itopk 16 and 32
 * (RESULTS.md has more):
 *
 *	100,000 x 128	10% into 90%	2.06 / 4.79		0.9939, 0.9984 / 0.9933, 0.9985
 *					20% into 80%	2.63 / 5.01		0.9963, 0.9992 / 0.9933, 0.9985
 *	30,000 x 768	10% into 90%	0.86 / 3.59		0.9986, 0.9998 / 0.9980, 0.9995
 *					20% into 80%	1.11 / 3.57		0.9970, 0.9986 / 0.9980, 0.9995
 *
 * Graphs by GRNND, whose lists are then k-NN lists as those of the others, beside its own build:
 *
 *	100,000 x 128	10% into 90%	1.26 / 2.99		0.9912, 0.9969 / 0.9880, 0.9968
 *					20% into 80%	2.07 / 3.13		0.9912, 0.9985 / 0.9880, 0.9968
 *	30,000 x 768	10% into 90%	0.56 / 1.57		0.9977, 0.9998 / 0.9972, 0.9989
 *					20% into 80%	0.87 / 1.67		0.9984, 0.9994 / 0.9972, 0.9989
 *
 * Beyond that the paper compares all rows.  So two halves of 100,000 x 128 took 5.61 / 5.53, and of
 * 30,000 x 768 3.10 / 4.35: they are built anew.  Built anew is also what was not measured: k-NN
 * lists of more than twice the edges that are stored, and segments that lose more than a tenth of
 * their nodes.
 *
 * The CUDA engine searches likewise (kernels/build/extend.cu).  Device seconds of one H200 beside a
 * build's, at equal recall:
 *
 *	1M x 128		10% into 90%	0.063 / 0.137		20% into 80%	0.088 / 0.136
 *	1M x 768		10% into 90%	0.140 / 0.238		20% into 80%	0.209 / 0.237
 *	10M x 96		10% into 90%	0.536 / 1.298
 *
 * Beside queries: RESULTS.md, "Ageing".
 */
#include "maintain/merge.h"
#include "service/shared/service.h"

/* Nodes whose lists are read at once. */
#define LIST_STEP		8192

/* Up to here the CPU engine compares all rows with all when it builds. */
#define LEAST_NODES		6000

/* See the head. */
#define MOST_NEW_PAIRS	0.36
#define MOST_LENGTH		2		/* of k-NN lists, in edges that are stored */
#define MOST_LOST		10		/* a segment may lose one in so many nodes */

/*
 * The share of all pairs of nodes that are in no input's graph together: what a merge has to
 * compare.  It is 1 where a segment has lost many nodes, and with them edges of those left.
 */
static double
NewPairs(const GgMergePlan *plan, uint32 nodes)
{
	double		share = 1;

	for (int i = 0; i < plan->ninputs; i++)
	{
		const GgMergeInput *input = &plan->inputs[i];
		uint32		taken = 0;

		if (input->delta)
			continue;
		for (uint32 node = 0; node < input->nodes; node++)
			taken += input->places[node] != GG_NO_NODE;
		if (input->nodes - taken > input->nodes / MOST_LOST)
			return 1;
		share -= (double) taken / nodes * ((double) taken / nodes);
	}
	return share;
}

bool
GgMergesGraphs(const gg_build_params *params, const GgMergePlan *plan, uint32 nodes)
{
	return nodes > LEAST_NODES &&
		params->intermediate_graph_degree <= MOST_LENGTH * params->graph_degree &&
		NewPairs(plan, nodes) <= MOST_NEW_PAIRS;
}

/*
 * How many edges of a list a merge takes: those that are surely not learned, since learned ones do
 * not lead to near nodes.  Under inner product it takes all: learned ones may be as good as any.
 */
static uint32
CountBuilt(const GgMetaPageData *meta, const GgMergeInput *input, const uint32 *list)
{
	uint32		degree = meta->graph_degree;
	uint32		learned = meta->metric == GG_METRIC_IP ? 0 : GgLearnedEdges(&input->segment);

	while (learned > 0 && degree > 0 && list[degree - 1] == GG_NO_NODE)
		degree--;
	return degree - Min(degree, learned);
}

/* Read the lists of those of a segment's nodes that the merged segment has, with its node ids. */
static void
ReadGraph(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergeInput *input,
		  uint8 part, uint8 *parts, uint32 *lists)
{
	uint32		degree = meta->graph_degree;
	uint32	   *some = MemoryContextAllocHuge(CurrentMemoryContext,
											  (Size) LIST_STEP * degree * sizeof(uint32));

	for (uint32 first = 0; first < input->nodes; first += LIST_STEP)
	{
		uint32		count = Min(LIST_STEP, input->nodes - first);

		GgReadAdjacency(target, meta, input, first, count, some);
		for (uint32 i = 0; i < count; i++)
		{
			uint32		place = input->places[first + i];
			uint32		built;

			if (place == GG_NO_NODE)
				continue;
			parts[place] = part;
			built = CountBuilt(meta, input, some + (Size) i * degree);
			for (uint32 e = 0; e < built; e++)
			{
				uint32		neighbor = some[(Size) i * degree + e];

				lists[(Size) place * degree + e] = neighbor == GG_NO_NODE ? GG_NO_NODE :
					input->targets[neighbor & ~GG_EDGE_MARK];
			}
		}
	}
	pfree(some);
}

Size
GgInputGraphBytes(const GgMetaPageData *meta)
{
	return meta->graph_degree * sizeof(uint32) + 1;
}

void
GgReadGraphs(GgMergeTarget *target, const GgMetaPageData *meta, const GgMergePlan *plan,
			 uint32 nodes, uint8 *parts, uint32 *lists)
{
	/* rows of the delta are of no part, and have no lists */
	memset(parts, 0, nodes);
	memset(lists, 0xFF, (Size) nodes * meta->graph_degree * sizeof(uint32));
	for (int i = 0; i < plan->ninputs; i++)
		if (!plan->inputs[i].delta)
			ReadGraph(target, meta, &plan->inputs[i], (uint8) (i + 1), parts, lists);
}
