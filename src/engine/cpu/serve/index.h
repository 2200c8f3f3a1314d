/*
 * index.h
 *		Functions of gg_cpu_engine that search; gg_engine has their contracts.
 */
#ifndef GG_INDEX_H
#define GG_INDEX_H

#include "engine/rules/codes.h"
#include "engine/cpu/common/cpu.h"
#include "engine/walk.h"

/* One thread's part in index_search(), kept between calls. */
typedef struct search_state
{
	gg_walk    *walk;
	float	   *query;			/* prepared */
	gg_code_query code;			/* with codes: the query made ready for them */
} search_state;

/*
 * data.rows and the graph's arrays are the caller's after index_open(), and own_* after
 * index_create().  Without a graph graph.npivots is 0.
 */
struct gg_index
{
	gg_dataset	data;
	gg_graph	graph;
	gg_distance_fn distance;
	size_t		row_bytes;
	search_state *states;
	int			nstates;

	bool		finished;		/* from the start after index_open() */

	/* index_create() only, see serve.c */
	gg_shape	shape;			/* all 0 after index_open() */
	void	   *own_rows;
	uint32_t   *own_adjacency;
	uint32_t   *own_pivots;		/* as written; index_finish() takes them apart into the graph's */
	uint64_t   *own_heads;
	uint32_t   *own_offsets;
	int64_t    *own_words;
	uint8_t    *own_codes;		/* capacity records; NULL without codes */
	gg_coder	coder;
};

extern gg_status gg_cpu_index_open(const gg_dataset *data, const gg_graph *graph,
								   const gg_control *control, gg_index **index);
extern gg_status gg_cpu_index_search(gg_index *index, const gg_search_params *params,
									 const float *queries, uint32_t nq, const gg_control *control,
									 uint64_t *keys);
extern gg_status gg_cpu_index_exact(gg_index *index, uint32_t k, const uint32_t *filter,
									const float *queries, uint32_t nq, const gg_control *control,
									uint64_t *keys);
extern void gg_cpu_index_close(gg_index *index);

/* Copy a query of the caller's and prepare it. */
extern void gg_cpu_load_query(const gg_index *index, const float *query, float *prepared);

/* Distances of rows from a prepared query, and the source of a walk over the graph. */
typedef struct gg_memory_source
{
	const gg_index *index;
	const float *query;
	const gg_code_query *code;	/* not NULL: distances are estimates */
} gg_memory_source;

extern void gg_cpu_distances(const gg_index *index, const float *query, const uint32_t *nodes,
							 uint32_t count, float *out);
extern gg_source gg_cpu_source(gg_memory_source *memory);

/* One query to deep.c. */
typedef struct gg_deep_search
{
	uint32_t	k;
	uint64_t	after;
	uint64_t	last;			/* 0: any key */
	const float *query;
	uint64_t   *keys;			/* k of them */
	uint64_t   *matches;
} gg_deep_search;

/*
 * deep.c: for each search the k nearest nodes with keys above `after`, up to `last`, that the
 * filter, unless it is NULL, lets through, and the number of matching rows.
 */
extern gg_status gg_cpu_index_deep(const gg_index *index, const gg_filter *filter,
								   const gg_deep_search *searches, uint32_t count);

/* serve.c */
extern gg_status gg_cpu_index_create(const gg_shape *shape, gg_index **index);
extern gg_status gg_cpu_index_write(gg_index *index, gg_part part, uint64_t offset, const void *src,
									uint64_t bytes);
extern gg_status gg_cpu_index_take(gg_index *index, const gg_index *from, uint32_t first,
								   uint32_t n);
extern gg_status gg_cpu_index_finish(gg_index *index, uint32_t n, const gg_control *control);
extern gg_status gg_cpu_build_index(gg_index *index, uint32_t n, const gg_build_params *params,
									const gg_control *control, gg_graph *graph,
									gg_build_stats *stats);
extern uint64_t gg_cpu_shape_bytes(const gg_shape *shape);
extern uint64_t gg_cpu_index_bytes(const gg_index *index);
extern gg_status gg_cpu_serve_open(int device, void *region, size_t region_bytes,
								   const gg_serve_layout *layout, gg_server **server);
extern gg_status gg_cpu_serve_submit(gg_server *server, gg_index *index, uint32_t queue,
									 const gg_serve_batch *batch);
extern gg_status gg_cpu_serve_group(gg_server *server, uint32_t queue,
									const gg_serve_group *group);
extern gg_status gg_cpu_serve_check(gg_server *server, uint32_t queue, bool *idle);
extern void gg_cpu_serve_close(gg_server *server);
extern gg_status gg_cpu_device_count(int *count);
extern gg_status gg_cpu_device_info(int device, gg_device_info *info);

#endif							/* GG_INDEX_H */
