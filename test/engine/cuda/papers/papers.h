/*
 * papers.h
 *		What the figures of "bench papers" share beside bench.h: graphs from lists, curves of
 *		searches, tables.
 *
 *	main.cu		the figures' names, options
 *	common.cu	what is declared here
 *	algorithms.cu	the algorithms beside each other
 *	cagra.cu	figures of CAGRA, over teams.cu (distances by teams of lanes), reorder.cu
 *				(reordering by distances) and visited.cu (visited sets in device memory)
 *	grnnd.cu	figures of GRNND, over order.cu (all pairs of a pool, by order)
 *	tsdg.cu		figures of TSDG, over stages.cu (one stage without the other)
 *	gnnd.cu		figures of GNND, over update.cu (the paper's updates of lists)
 *	ggm.cu		figures of GGM, over join.cu (rows of all parts compared)
 *	shards.cu	shards on devices
 *	limits.cu	what searches of one query cannot go below, over blocks.cu (multi-CTA search by
 *				teams of lanes)
 *
 * reorder.cu, order.cu, update.cu, teams.cu, blocks.cu and visited.cu have kernels of the engine
 * again, from the headers of kernels/, with one thing changed each; stages.cu calls its stages.
 * They cost the engine nothing.
 */
#ifndef GG_TEST_PAPERS_H
#define GG_TEST_PAPERS_H

#include "../bench.h"

#include <functional>

/* ---- options ------------------------------------------------------------- */

typedef struct papers_options
{
	const char *figure;
	const char *set;
	uint32_t	n;				/* 0: as many as the set has */
	uint32_t	nq;
	bool		tiny;			/* to see it work: few points of each curve, few rows of tables */
	bool		coarse;			/* half of the points of each curve: figures of many curves */
	FILE	   *points;			/* of plots, or NULL */
} papers_options;

extern papers_options papers;

#define BEST_RUNS 3				/* of what is measured the best run counts */

/* As many, or of a tiny run one. */
static inline int
papers_runs(int runs)
{
	return papers.tiny ? 1 : runs;
}

/* Seconds of the best run, after one for warm-up. */
template <typename RUN>
static inline double
papers_best(RUN run)
{
	if (!papers.tiny)
		run();
	return best_of(papers_runs(BEST_RUNS), run);
}

/* Widths that curves have their points at. */
extern const std::vector<uint32_t> &papers_widths(void);

/* ---- devices ----------------------------------------------------------------- */

/* How many there are.  Sets are on the first one, and so is all that is said to be on one. */
extern int	papers_devices(void);

/* run(device) in a thread of each of the first `count` devices, until all have ended. */
extern void papers_on_devices(int count, const std::function<void (int device)> &run);

/* ---- sets ------------------------------------------------------------------ */

/* Begin a figure: draw its set, of so many rows unless -n says otherwise, and print the title. */
extern void papers_begin(const char *title, uint32_t rows, bool truth, drawn_set *set);

/* As many rows as there are queries. */
extern void papers_sample(const drawn_set *set, row_sample *sample);

/* ---- graphs ------------------------------------------------------------------ */

/* k-NN lists as a build makes them. */
class papers_lists
{
public:
	gg_cuda_working_copy copy;
	gg_cuda_buffer<uint32_t> ids;	/* n x k */
	gg_cuda_buffer<float> distances;
	uint32_t	k;
	double		seconds;
};

extern void papers_lists_make(const drawn_set *set, const gg_build_params *params,
							  cudaStream_t stream, papers_lists *lists);

/* A graph of edges in device memory, with pivots: what a build does at its end. */
extern void papers_graph_make(const papers_lists *lists, const uint32_t *edges, uint32_t degree,
							  cudaStream_t stream, gg_graph *graph, uint32_t *repaired);

/* A whole build of rows that are on the device; seconds of the best of `runs`. */
extern double papers_build(const drawn_set *set, const gg_build_params *params, int runs,
						   gg_graph *graph, gg_build_stats *stats);

/* graph: NULL for exact searches alone. */
/* Begin a figure with queries; the index of CAGRA's graph of the set. */
extern open_index papers_default_index(const char *title, uint32_t rows, uint32_t degree,
									   drawn_set *set, gg_graph *graph);

/* ---- searches ---------------------------------------------------------------- */

typedef struct papers_point
{
	uint32_t	width;			/* itopk_size */
	double		recall;
	double		qps;
} papers_point;

typedef std::vector<papers_point> papers_curve;

/* Queries that batches of one size are measured with: whole batches, and time enough for each. */
extern uint32_t papers_queries(const drawn_set *set, uint32_t batch);

extern papers_point papers_search(gg_index *index, const drawn_set *set, gg_search_mode mode,
								  uint32_t batch, uint32_t width, uint32_t k);
/* One point for each of papers_widths(), for a plot and a table's series. */
extern papers_curve papers_search_curve(gg_index *index, const drawn_set *set,
										gg_search_mode mode, uint32_t batch, uint32_t k);
/* The same by a search of the figure's own. */
template <typename SEARCH>
static inline papers_curve
papers_curve_of(SEARCH search)
{
	papers_curve curve;

	for (uint32_t width : papers_widths())
		curve.push_back(search(width));
	return curve;
}

/* What was found, in device memory, of count queries in so many seconds. */
extern papers_point papers_point_of(const drawn_set *set, uint32_t width, const uint64_t *keys,
									uint32_t count, uint32_t k, double seconds);

/*
 * Queries per second at a recall, read off between two points; 0: the curve ends below it, or
 * begins above it.
 */
extern double papers_qps_at(const papers_curve &curve, double recall);

/* ---- tables -------------------------------------------------------------------- */

/* The first two lines of a table: names between "|", numbers to the right but for the first. */
extern void papers_head(const char *names);
/* A curve as a row: name, then queries/s at recall 0.90, 0.95 and 0.99, then width:recall. */
extern void papers_curve_head(void);
extern void papers_curve_row(const char *plot, const char *name, const papers_curve &curve);
/* "queries/s at recall R, A over B: x.xx" for each recall that both reach. */
extern void papers_ratios(const char *a, const papers_curve &of, const char *b,
						  const papers_curve &to);
/* What the paper says, and what is seen here. */
extern void papers_compare(const char *paper, const char *format, ...)
			__attribute__((format(printf, 2, 3)));

/* ---- kernels of the engine, with one thing changed ------------------------------- */

/* reorder.cu: F of CAGRA, section III.B: by rank, or by distances (n x k) unless NULL. */
extern gg_status papers_reorder(const uint32_t *knn, const float *distances, uint32_t n,
								uint32_t k, uint32_t degree, cudaStream_t stream,
								uint32_t *forward);

/* order.cu: GRNND with all pairs of a pool, in one order and another. */
typedef gg_status (*papers_grnnd) (const gg_cuda_data *data, const gg_build_params *params,
								   const gg_cuda_lists &lists, const uint32_t *order,
								   const gg_cuda_run &run, uint32_t *graph);

extern const papers_grnnd papers_grnnd_ascending;
extern const papers_grnnd papers_grnnd_descending;
extern const papers_grnnd papers_grnnd_disordered;

/* stages.cu: TSDG's stage 1, 2, or 3 for both; data->side is set where the metric wants it. */
extern gg_status papers_diversify(int stages, const gg_cuda_data *data,
								  const gg_build_params *params, const uint32_t *knn,
								  cudaStream_t stream, uint32_t *graph);

/* update.cu: iterations of GNND over lists (n x length keys), by what a join gives to lists. */
typedef enum papers_update
{
	UPDATE_OURS,
	UPDATE_ALL,					/* GNND-r1 */
	UPDATE_NEAREST,				/* GNND-r2 */
	UPDATE_SEGMENTS,			/* GNND */
	UPDATE_ALL_NEAR,			/* GNND-r1 and r2, pairs farther than the list's last apart */
	UPDATE_NEAREST_NEAR
} papers_update;

typedef void (*papers_after) (void *ctx, uint32_t iterations, double seconds);

extern gg_status papers_gnnd(papers_update update, const gg_cuda_rows *rows, uint32_t length,
							 uint32_t k, uint32_t iterations, uint64_t seed,
							 const uint32_t *order, cudaStream_t stream, uint64_t *lists,
							 papers_after after, void *ctx);

/* ---- figures ---------------------------------------------------------------------- */

extern void algorithms(void);
extern void construction_limits(void);
extern void cagra_3(void);
extern void cagra_4(void);
extern void cagra_departures(void);
extern void cagra_8(void);
extern void cagra_9(void);
extern void cagra_lists(void);
extern void cagra_10(void);
extern void cagra_shards(void);
extern void grnnd_5(void);
extern void grnnd_7(void);
extern void grnnd_8(void);
extern void grnnd_9(void);
extern void tsdg_2(void);
extern void tsdg_5(void);
extern void tsdg_6(void);
extern void tsdg_7(void);
extern void gnnd_4(void);
extern void gnnd_6(void);
/* k-NN lists of merged parts (join.cu); ids is allocated.  input was checked. */
extern gg_status gg_cuda_merge_rows(gg_cuda_data *data, const gg_merge_input *input,
									const gg_build_params *params, const gg_cuda_run &run,
									gg_cuda_working_copy *copy, gg_cuda_buffer<uint32_t> *ids,
									gg_build_stats *stats);

extern void ggm_7(void);
extern void ggm_2(void);
extern void ggm_disk(void);
extern void limits(void);

#endif							/* GG_TEST_PAPERS_H */
