/*
 * cpu.h
 *		Private header of the CPU engine: what its files share.
 *
 *	threads.c		worker threads of one call, cancellation, progress
 *	tile.c			all-pairs distances by tiles, bounded neighbour lists
 *	tile_ops.c		their inner loops for each instruction set
 *	tile_bf16.c		those of rows rounded to bfloat16
 *	row_view.c		rows of a list at hand, distances term by term
 *	knn.c			k-NN lists under way
 *	cells.c			their start from pivot cells
 *	knn_graph.c		GNND
 *	groups.c		k-NN lists of more rows than memory holds
 *	extend.c		few rows into a large graph, by searching it
 *	optimize.c		rank-based reordering
 *	tsdg.c			two-stage diversification
 *	grnnd.c			relative NN-descent
 *	connect.c		pivots, reachability
 *	build.c			the chain of them, and the memory it needs
 *	distance.c		one row, one query
 *	halves.c		can rows be rounded to half precision?
 *	codes.c			codes of rows, and distances estimated from them
 *	code_setup.c	the mean that codes are centred by, memory for queries
 *	walk.c			best-first search
 *	walk.h			a walk from within
 *	tsdg_search.c	the searches of TSDG, for small and for large batches
 *	filter.c		which rows match a filter
 *	index.c			rows and graph in memory, searched
 *	code_loss.c		what walks by codes find less than walks by rows
 *	deep.c			the nearest of many, and of those that match a filter
 *	serve.c			indexes filled piece by piece, searches for many callers
 *	kmeans.c		centroids of a sample
 *	engine.c		the ops table
 *
 * What both engines obey is in src/engine/rules.
 */
#ifndef GG_CPU_H
#define GG_CPU_H

#include "engine/engine.h"

/* ---- distance.c -------------------------------------------------------- */

/* The instruction set in use, of which gg_simd_name() tells the name. */
typedef enum gg_simd
{
	GG_SIMD_PLAIN,
	GG_SIMD_NEON,
	GG_SIMD_AVX2,
	GG_SIMD_AVX512,
	GG_SIMD_AVX512_BF16,		/* it and AMX differ from AVX512 in products of builds alone */
	GG_SIMD_AMX
} gg_simd;

extern gg_simd gg_simd_in_use(void);

/*
 * For tests: use the instruction set of that name from now on, or the CPU's best again when name
 * is NULL.  False, with nothing changed, when this CPU does not have it.
 */
extern bool gg_simd_force(const char *name);

/* ---- building: members of gg_cpu_engine, see gg_engine ----------------- */

extern gg_status gg_cpu_build_bytes(const gg_dataset *data, const gg_build_params *params,
									const gg_control *control, gg_bytes *bytes);
extern gg_status gg_cpu_knn_graph(const gg_dataset *data, const gg_build_params *params,
								  const gg_control *control, uint32_t *ids, float *distances,
								  gg_build_stats *stats);
extern gg_status gg_cpu_build(const gg_dataset *data, const gg_build_params *params,
							  const gg_control *control, gg_graph *graph, gg_build_stats *stats);
extern gg_status gg_cpu_merge(const gg_dataset *data, const gg_merge_input *input,
							  const gg_build_params *params, const gg_control *control,
							  gg_graph *graph, gg_build_stats *stats);

#endif							/* GG_CPU_H */
