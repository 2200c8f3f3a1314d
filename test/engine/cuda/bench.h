/*
 * bench.h
 *		What the parts of bench share: times, sets of rows that are drawn, with exact answers,
 *		graphs and indexes of them, walks that are written down.
 *
 *	bench.cu		the parts' names, and what is declared here
 *	bench_build.cu	builds, merges, builds by groups of rows
 *	bench_search.cu	searches: time, recall and bandwidth
 *	bench_serve.cu	the server: time to the ticket, loading, throughput
 *	papers/			what the papers measured
 */
#ifndef GG_TEST_BENCH_H
#define GG_TEST_BENCH_H

#include "../algorithm_option.h"
#include "../searches.h"
#include "../../../kernels/graph/stages.h"

#include <algorithm>
#include <string>
#include <vector>

#define TRUTH 100				/* exact answers a query */

/* Fail loudly: nothing here can go on. */
extern void must(gg_status status);

#define MUST(call) must(gg_cuda_status((call), __func__, #call))

extern void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---- parts ----------------------------------------------------------------- */

/* argv[0] is the part's name; the exit status. */
extern int	bench_build(int argc, char **argv);
extern int	bench_search(int argc, char **argv);
extern int	bench_serve(int argc, char **argv);
extern int	bench_papers(int argc, char **argv);

/* ---- times ------------------------------------------------------------------- */

extern double now_s(void);

/* Seconds of the best of some runs. */
template <typename RUN>
static inline double
best_of(int runs, RUN run)
{
	double		best = INFINITY;

	for (int i = 0; i < runs; i++)
	{
		const double begin = now_s();

		run();
		best = std::min(best, now_s() - begin);
	}
	return best;
}

/* It sorts the times. */
extern double percentile(std::vector<double> &times, double share);

/* ---- parameters and graphs ----------------------------------------------------- */

extern gg_metric metric_named(const char *name);

/* Of CAGRA. */
extern gg_build_params params_of(uint32_t degree, uint32_t lists);

/* A graph that goes with its scope. */
class owned_graph : public gg_graph
{
public:
	owned_graph() : gg_graph()
	{
	}
	owned_graph(const owned_graph &) = delete;
	~owned_graph()
	{
		gg_graph_free(this);
	}
};

/* The pivots as an index has them: each with its list, which is empty where the graph has none. */
extern std::vector<uint32_t> packed_pivots(const gg_graph *graph);

/* ---- sets ------------------------------------------------------------------ */

class drawn_set
{
public:
	std::string name;
	std::string like;			/* the papers' set of as many dimensions and such an LID */
	uint32_t	n;
	uint32_t	dim;
	uint32_t	nq;
	gg_metric	metric;
	double		lid;			/* of the queries, maximum likelihood over TRUTH neighbours */
	gg_cuda_buffer<float> rows;
	gg_cuda_buffer<float> queries;
	std::vector<float> host_rows;
	std::vector<float> host_queries;
	std::vector<uint32_t> truth;	/* nq x TRUTH */

	gg_cuda_data
	data() const
	{
		gg_cuda_data out = {};

		out.rows = rows.get();
		out.n = n;
		out.dim = out.pitch = dim;
		out.element = GG_ELEMENT_F32;
		out.metric = metric;
		return out;
	}

	gg_dataset
	dataset() const
	{
		gg_dataset	out = {host_rows.data(), n, dim, GG_ELEMENT_F32, metric};

		return out;
	}
};

/*
 * Draw a set (bench.cu) of n rows, 0: of as many as it has, and nq queries; if truth, with their
 * exact answers.
 */
extern void drawn_set_make(const char *name, uint32_t n, uint32_t nq, bool truth, drawn_set *set);

/* Exact lists of some rows (x k), for recall of k-NN lists. */
class row_sample
{
public:
	std::vector<uint32_t> rows;
	std::vector<float> queries;	/* the rows themselves */
	std::vector<uint32_t> truth;
	uint32_t	k;
	double		lid;			/* of these rows, over k neighbours */
};

extern void row_sample_make(const drawn_set *set, uint32_t count, uint32_t k, row_sample *sample);

/* Share of the nearest `at` of the sampled rows in lists (n x k, device memory). */
extern double lists_recall(const row_sample *sample, const uint32_t *lists, uint32_t k,
						   uint32_t at, cudaStream_t stream);

/* recall@k of count x k keys; of the truth each query has TRUTH nodes. */
extern double keys_recall(const std::vector<uint32_t> &truth, const std::vector<uint64_t> &keys,
						  uint32_t count, uint32_t k);

/* ---- indexes ------------------------------------------------------------------- */

/* An index that goes with its scope; graph: NULL for exact searches alone. */
class open_index
{
public:
	open_index(const gg_dataset &rows, const gg_graph *graph, const gg_control *control = NULL)
	{
		must(gg_cuda_index_open(&rows, graph, control, &index_));
	}
	open_index(open_index &&other) : index_(other.index_)
	{
		other.index_ = NULL;
	}
	~open_index()
	{
		gg_cuda_index_close(index_);
	}
	operator gg_index *() const
	{
		return index_;
	}
	gg_index *
	operator->() const
	{
		return index_;
	}

private:
	gg_index   *index_ = NULL;
};

/* ---- walks on the CPU ------------------------------------------------------------ */

/* Steps of the walks of walk.cuh, distances in fp32, with a perfect visited set. */
class walk_log
{
public:
	std::vector<uint32_t> steps;	/* query q has steps[q] .. steps[q + 1] */
	std::vector<uint32_t> parents;	/* width of each step, then GG_NO_NODE */
	std::vector<uint32_t> first;	/* step s measures ids[first[s]] .. ids[first[s + 1]] */
	std::vector<uint32_t> ids;
	std::vector<uint32_t> front;	/* nfront of each query: measured exactly at the end */
	uint64_t	entries;		/* pivots that all walks began from */
	uint64_t	expanded;		/* nodes, of all walks */
	uint32_t	nq;
	uint32_t	width;
	uint32_t	nfront;
};

/* Of every stride-th of the queries, nq of these. */
extern void log_walks(const gg_dataset *data, const gg_graph *graph, const float *queries,
					  uint32_t nq, uint32_t stride, uint32_t itopk, uint32_t k, walk_log *log);

#endif							/* GG_TEST_BENCH_H */
