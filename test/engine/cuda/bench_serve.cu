/*
 * bench_serve.cu
 *		Time from serve_submit() to the ticket, as a spinning host sees it; loading; throughput.
 *		The same for deep lists, filters that one row in so many passes, many queries at once, and
 *		many callers with filters.
 *
 *	bench serve [N DIM METRIC [ITOPK ...]]		default 1000000 128 l2 32 64; METRIC l2, ip, cosine
 *												or l1
 *
 * Rows are drawn from 200 clusters on a manifold of 16 dimensions.  The graph is built by
 * build_index(), 32 of 64, and loaded as the service does: through 4 MB pieces of registered
 * memory.  One line a measurement.
 */
#include "bench.h"

#include "../../../kernels/serve/index.cuh"

#include <sys/mman.h>

extern "C"
{
#include "../harness.h"
#include "../serve_requests.h"
}

#define K 10
#define NSLOTS (GG_SERVE_QUEUES * GG_SERVE_MAX_BATCH)
#define ANSWERS 4096
#define QUERIES 1024
#define PIECE ((uint64_t) 4 << 20)
#define DELTA_ROWS 10000u
#define WARMUP 50				/* runs that do not count */

static bulk_region region;
static char *staging;
static uint32_t next_ticket = 1;
static float *queries;
static uint32_t dim;

static double
now_us(void)
{
	return now_s() * 1e6;
}

static void
open_server(void)
{
	gg_serve_layout *layout = &region.layout;
	size_t		slots;

	region.engine = &gg_cuda_engine;
	layout->nslots = NSLOTS;
	layout->done = 0;
	region.keys = (GG_SERVE_MAX_LISTS * 4 + 63) / 64 * 64;
	region.query = region.keys + ANSWERS * 8;
	layout->slot_bytes = region.query + ((size_t) dim * 4 + 63) / 64 * 64;
	slots = (NSLOTS * layout->slot_bytes + 4095) / 4096 * 4096;
	region.filters = PIECE + slots;
	region.bytes = region.filters + GG_SERVE_MAX_DEEPS * DEEP_FILTER_ROOM;
	region.bytes = (region.bytes + 4095) / 4096 * 4096;
	region.memory = (char *) mmap(NULL, region.bytes, PROT_READ | PROT_WRITE,
								  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (region.memory == MAP_FAILED)
		fail("no memory for slots");
	memset(region.memory, 0, region.bytes);
	staging = region.memory;
	layout->slots = region.memory + PIECE;
	must(gg_cuda_serve_open(0, region.memory, region.bytes, layout, &region.server));
}

static bool
is_done(uint32_t slot, uint32_t list, uint32_t ticket)
{
	return __atomic_load_n((uint32_t *) (region.memory + slot_at(&region, slot)) + list,
						   __ATOMIC_ACQUIRE) == ticket;
}

/* A query into a slot. */
static void
put_query(uint32_t slot, uint32_t query)
{
	memcpy(slot_query(&region, slot), queries + (size_t) (query % QUERIES) * dim,
		   dim * sizeof(float));
}

static void
write_part(gg_index *index, gg_part which, const void *from, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += PIECE)
	{
		uint64_t	piece = std::min(PIECE, bytes - at);

		memcpy(staging, (const char *) from + at, piece);
		must(gg_cuda_index_write(index, which, at, staging, piece));
	}
}

/* Queries into the slots of a batch; done before the clock starts, as a backend would have. */
static void
prepare(slot_batch *batch, uint32_t first_slot, uint32_t first_query)
{
	for (uint32_t i = 0; i < batch->count; i++)
	{
		batch->slots[i] = first_slot + i;
		batch->tickets[i] = next_ticket++;
		put_query(first_slot + i, first_query + i);
	}
}

/* Spin until a ticket is there. */
static void
await_ticket(uint32_t slot, uint32_t list, uint32_t ticket)
{
	const double until = now_us() + 5e6;

	while (!is_done(slot, list, ticket))
		if (now_us() > until)
		{
			bool		idle;

			must(gg_cuda_serve_check(region.server, 0, &idle));
			fail("a ticket did not come");
		}
}

static void
await(const slot_batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++)
		await_ticket(batch->slots[i], batch->list, batch->tickets[i]);
}

/* Microseconds of each of so many runs; run(i) tells when it began. */
template <typename RUN>
static std::vector<double>
times_of(uint32_t count, RUN run)
{
	std::vector<double> times;

	for (uint32_t i = 0; i < WARMUP + count; i++)
	{
		const double begin = run(i);

		if (i >= WARMUP)
			times.push_back(now_us() - begin);
	}
	return times;
}

/* delta: NULL, or an index that each query searches exactly at the same time, on another queue. */
static void
bench_latency(const char *what, gg_index *index, gg_index *delta, bool exact, uint32_t itopk,
			  uint32_t count)
{
	std::vector<double> submit;
	std::vector<double> all = times_of(count == 1 ? 3000 : 500, [&](uint32_t i)
	{
		slot_batch	batch = {};
		slot_batch	more;
		double		begin;

		batch.count = count;
		batch.exact = exact;
		batch.k = K;
		batch.itopk_size = itopk;
		prepare(&batch, 0, i * 7);
		more = batch;
		more.list = 1;
		more.exact = true;
		begin = now_us();
		must(submit_slots(&region, index, 0, dim, &batch));
		if (delta != NULL)
			must(submit_slots(&region, delta, 1, dim, &more));
		submit.push_back(now_us() - begin);
		await(&batch);
		if (delta != NULL)
			await(&more);
		return begin;
	});

	submit.erase(submit.begin(), submit.begin() + WARMUP);
	printf("%-14s itopk %4u batch %3u  submit %5.1f us  done p50 %7.1f us  p99 %7.1f us\n", what,
		   itopk, count, percentile(submit, 0.5), percentile(all, 0.5), percentile(all, 0.99));
	fflush(stdout);
}

/* Every queue always has a batch in flight. */
static void
bench_throughput(gg_index *index, uint32_t itopk, uint32_t count, uint32_t queues)
{
	slot_batch batches[GG_SERVE_QUEUES] = {};
	const double seconds = 1;
	uint64_t	answered = 0;
	double		begin = now_us();
	double		end;

	do
		for (uint32_t queue = 0; queue < queues; queue++)
		{
			slot_batch *batch = &batches[queue];

			if (batch->count > 0)
				await(batch);
			answered += batch->count;
			batch->count = count;
			batch->k = K;
			batch->itopk_size = itopk;
			prepare(batch, queue * GG_SERVE_MAX_BATCH, (uint32_t) answered);
			must(submit_slots(&region, index, queue, dim, batch));
		}
	while (now_us() < begin + seconds * 1e6);
	end = now_us();
	for (uint32_t queue = 0; queue < queues; queue++)
		await(&batches[queue]);
	printf("throughput     itopk %4u batch %3u  %u queues  %9.0f queries/s\n", itopk, count, queues,
		   (double) answered / (end - begin) * 1e6);
	fflush(stdout);
}

static double
recall(gg_index *index, uint32_t itopk)
{
	const gg_search_params params = {K, itopk, 0, GG_SEARCH_AUTO};
	std::vector<uint32_t> truth((size_t) QUERIES * TRUTH);
	std::vector<float> distances(truth.size());
	std::vector<uint64_t> keys((size_t) QUERIES * K);

	must(harness_exact(&gg_cuda_engine, index, TRUTH, NULL, queries, QUERIES, NULL, truth.data(),
					   distances.data()));
	must(gg_cuda_index_search(index, &params, queries, QUERIES, NULL, keys.data()));
	return keys_recall(truth, keys, QUERIES, K);
}

/* ---- deep lists, filters, many queries of one caller --------------------------------- */

#define DEEP_SLOT 3
#define DEEP_KEYS 0				/* offsets in staging */
#define DEEP_FILTER ((size_t) 1 << 20)
#define DEEP_TIDS ((size_t) 2 << 20)

/* Row i: TID (i / 100, i % 100 + 1), one word that is different for each. */
static void
write_rows(gg_index *index, uint32_t n)
{
	std::vector<uint64_t> heads(n);
	std::vector<int64_t> words(n);

	for (uint32_t i = 0; i < n; i++)
	{
		heads[i] = (uint64_t) (i / 100 >> 16) | (uint64_t) (i / 100 & 0xFFFF) << 16 |
			(uint64_t) (i % 100 + 1) << 32;
		/* not in the order of rows */
		words[i] = (int64_t) ((uint64_t) i * 7919 % n);
	}
	write_part(index, GG_PART_TIDS, heads.data(), (uint64_t) n * 8);
	write_part(index, GG_PART_FILTERS, words.data(), (uint64_t) n * 8);
}

/* For a list of k into staging from `keys` on, with the number of matches behind it. */
static deep_request
deep_of(uint32_t slot, uint32_t query, uint32_t k, size_t keys, const gg_filter *filter)
{
	deep_request deep = {};

	put_query(slot, query);
	deep.slot = slot;
	deep.ticket = next_ticket++;
	deep.k = k;
	deep.filter = filter;
	deep.keys = keys;
	deep.matches = keys + (size_t) k * 8;
	return deep;
}

/* One after the other; after: behind the last key of a list from the start. */
static void
bench_deep(const char *what, gg_index *index, uint32_t k, bool after, const gg_filter *filter)
{
	uint64_t	first = 0;
	std::vector<double> times = times_of(200, [&](uint32_t i)
	{
		deep_request deep = deep_of(DEEP_SLOT, i, k, DEEP_KEYS, filter);
		double		begin;

		if (after && i == 1)
			first = ((const uint64_t *) (staging + DEEP_KEYS))[k - 1];
		deep.after = first;
		begin = now_us();
		must(submit_deep(&region, index, 0, dim, &deep, 1));
		await_ticket(DEEP_SLOT, 0, deep.ticket);
		return begin;
	});

	printf("%-14s k %6u %s matches %8llu  p50 %7.1f us  p99 %7.1f us\n", what, k,
		   after ? "behind a key," : "from the start,",
		   (unsigned long long) *(uint64_t *) (staging + DEEP_KEYS + (size_t) k * 8),
		   percentile(times, 0.5), percentile(times, 0.99));
}

/* Long lists of all rows, of `count` queries in a call. */
static void
bench_long(gg_index *index, uint32_t k, uint32_t count)
{
	const size_t bytes = (size_t) k * 8 + 64;
	deep_request deeps[GG_SERVE_MAX_DEEPS] = {};
	std::vector<double> times = times_of(100, [&](uint32_t i)
	{
		double		begin;

		for (uint32_t q = 0; q < count; q++)
			deeps[q] = deep_of(q, i + q, k, q * bytes, NULL);
		begin = now_us();
		must(submit_deep(&region, index, 0, dim, deeps, count));
		for (uint32_t q = 0; q < count; q++)
			await_ticket(q, 0, deeps[q].ticket);
		return begin;
	});

	printf("long           k %6u  %2u together  p50 %7.1f us  p99 %7.1f us\n", k, count,
		   percentile(times, 0.5), percentile(times, 0.99));
}

static void
bench_long_lists(gg_index *index, uint32_t n)
{
	for (uint32_t k : {1024u, 4096u, 16384u})
		for (uint32_t count : {1u, 2u, 4u, 8u, 16u})
			if (k <= n / 2)
				bench_long(index, k, count);
}

/* Of one row in `share`, from the first word that is in it on. */
static gg_filter
share_filter(uint32_t n, uint32_t share, uint32_t first)
{
	gg_filter	filter;

	memset(&filter, 0, sizeof(filter));
	filter.nconditions = 1;
	filter.nvalues = 2;
	filter.conditions[0].kind = GG_CONDITION_RANGE;
	filter.conditions[0].nvalues = 2;
	filter.values[0] = first;
	filter.values[1] = first + n / share - 1;
	return filter;
}

static void
bench_filters(gg_index *index, uint32_t n)
{
	gg_filter  *filter = (gg_filter *) (staging + DEEP_FILTER);
	uint64_t   *tids = (uint64_t *) (staging + DEEP_TIDS);

	for (uint32_t share = 2; share <= 100000 && share <= n; share *= share == 2 ? 5 : 10)
		for (uint32_t k : {10u, 64u, 16384u})
		{
			char		what[32];

			*filter = share_filter(n, share, 0);
			snprintf(what, sizeof(what), "1 in %u", share);
			bench_deep(what, index, k, false, filter);
		}
	for (uint32_t count : {100u, 10000u, 65536u})
	{
		char		what[32];

		memset(filter, 0, sizeof(*filter));
		for (uint32_t i = 0; i < count; i++)
		{
			uint64_t	row = (uint64_t) i * n / count;

			tids[i] = row / 100 << 16 | (row % 100 + 1);
		}
		filter->tids = tids;
		filter->ntids = count;
		snprintf(what, sizeof(what), "%u TIDs", count);
		bench_deep(what, index, 64, false, filter);
	}
}

/* ---- many callers with filters --------------------------------------------------------- */

#define CALLERS 16u
#define CALLER_BYTES ((size_t) GG_MAX_ITOPK * 8 + 64)	/* of staging: keys, matches */

/* Requests in flight on a queue. */
typedef struct flight
{
	uint32_t	count;
	deep_request deeps[CALLERS];
} flight;

static bool
landed(const flight *flight)
{
	for (uint32_t i = 0; i < flight->count; i++)
		if (!is_done(flight->deeps[i].slot, 0, flight->deeps[i].ticket))
			return false;
	return true;
}

typedef struct caller_load
{
	uint32_t	callers;
	uint32_t	most;			/* requests that a queue takes at a time */
	uint32_t	queues;
	double		pause_us;		/* of a caller, from an answer to its next request */
	uint32_t	k;
} caller_load;

/* The callers whose pause is over go to the front; how many there are. */
static uint32_t
ready_callers(uint32_t *waiting, uint32_t nwaiting, const double *ready, double now)
{
	uint32_t	count = 0;

	for (uint32_t i = 0; i < nwaiting; i++)
		if (ready[waiting[i]] <= now)
			std::swap(waiting[i], waiting[count++]);
	return count;
}

/*
 * Queries per second of callers that ask again some time after each answer.  As the service does, a
 * queue that is free takes what waits.  filters: of each caller.
 */
static double
callers_rate(gg_index *index, const caller_load *load, const gg_filter *filters)
{
	flight		flights[GG_SERVE_QUEUES] = {};
	uint32_t	waiting[CALLERS];
	double		ready[CALLERS] = {};
	uint32_t	nwaiting = 0;
	uint64_t	answered = 0;
	uint64_t	before = 0;
	double		begin = now_us();
	double		started = 0;
	double		ended = 0;

	for (uint32_t i = 0; i < load->callers; i++)
		waiting[nwaiting++] = i;
	while (ended == 0 || nwaiting < load->callers)
	{
		const double now = now_us();

		/* a tenth of a second to warm up, then a third that counts */
		if (started == 0 && now > begin + 1e5)
		{
			started = now;
			before = answered;
		}
		if (ended == 0 && started > 0 && now > started + 3e5)
			ended = now;
		if (now > begin + 2e7)
			fail("a ticket did not come");
		for (uint32_t queue = 0; queue < load->queues; queue++)
		{
			flight	   *flight = &flights[queue];
			uint32_t	nready;

			if (!landed(flight))
				continue;
			for (uint32_t i = 0; i < flight->count; i++)
			{
				waiting[nwaiting++] = flight->deeps[i].slot;
				ready[flight->deeps[i].slot] = now + load->pause_us;
			}
			answered += ended == 0 ? flight->count : 0;
			flight->count = 0;
			nready = ready_callers(waiting, nwaiting, ready, now);
			while (ended == 0 && flight->count < load->most && nready > 0)
			{
				const uint32_t caller = waiting[--nready];

				waiting[nready] = waiting[--nwaiting];
				flight->deeps[flight->count++] = deep_of(caller, next_ticket, load->k,
														 caller * CALLER_BYTES, &filters[caller]);
			}
			if (flight->count > 0)
				must(submit_deep(&region, index, queue, dim, flight->deeps, flight->count));
		}
	}
	return (double) (answered - before) / (ended - started) * 1e6;
}

/* Queues that the service would use, with callers that have something to do beside. */
static void
bench_queues(gg_index *index, uint32_t share, uint32_t k, const gg_filter *equal,
			 const gg_filter *apart)
{
	printf("filters        1 in %-6u k %4u  %u callers that pause 50 us", share, k, CALLERS);
	for (uint32_t queues : {1u, 2u, (uint32_t) GG_SERVE_QUEUES})
	{
		const caller_load load = {CALLERS, CALLERS, queues, 50, k};

		printf("  %u queues, equal %7.0f, apart %7.0f", queues, callers_rate(index, &load, equal),
			   callers_rate(index, &load, apart));
	}
	printf(" queries/s\n");
	fflush(stdout);
}

static void
bench_callers(gg_index *index, uint32_t n)
{
	std::vector<gg_filter> equal(CALLERS);
	std::vector<gg_filter> apart(CALLERS);

	for (uint32_t share = 2; share <= 100000 && share <= n; share *= share == 2 ? 5 : 10)
		for (uint32_t k : {10u, 32u, 64u})
		{
			const caller_load alone = {1, 1, GG_SERVE_QUEUES, 0, k};
			double		one;

			for (uint32_t i = 0; i < CALLERS; i++)
			{
				equal[i] = share_filter(n, share, 0);
				apart[i] = share_filter(n, share, i * (n / CALLERS / 2));
			}
			one = callers_rate(index, &alone, equal.data());
			printf("filters        1 in %-6u k %4u  1 caller %8.0f queries/s;  %u callers", share,
				   k, one, CALLERS);
			for (uint32_t most : {1u, CALLERS / GG_SERVE_QUEUES, CALLERS})
			{
				const caller_load load = {CALLERS, most, GG_SERVE_QUEUES, 0, k};
				double		same = callers_rate(index, &load, equal.data());
				double		each = callers_rate(index, &load, apart.data());

				printf("  %u at a time, equal %7.0f = %.1fx, apart %7.0f = %.1fx", most, same,
					   same / one, each, each / one);
			}
			printf("\n");
			bench_queues(index, share, k, equal.data(), apart.data());
		}
}

static void
bench_bulk(gg_index *index, uint32_t count, uint32_t itopk)
{
	const gg_search_params params = {K, itopk, 0, GG_SEARCH_AUTO, 0, 0};
	std::vector<double> times;
	gg_request	request = request_for(0, false, count, dim, &params);

	request.queries = 0;
	request.keys = ((uint64_t) count * dim * 4 + 63) / 64 * 64;
	for (uint32_t i = 0; i < count; i++)
		memcpy(staging + (size_t) i * dim * 4, queries + (size_t) (i % QUERIES) * dim, dim * 4);
	times = times_of(100, [&](uint32_t)
	{
		const uint32_t ticket = next_ticket++;
		const double begin = now_us();

		must(submit_one(&region, index, 0, DEEP_SLOT, ticket, 0, &request));
		await_ticket(DEEP_SLOT, 0, ticket);
		return begin;
	});
	printf("bulk           %4u queries, itopk %u  p50 %7.1f us  %.0f queries/s\n", count, itopk,
		   percentile(times, 0.5), count / percentile(times, 0.5) * 1e6);
}

/* Shapes, rows and, unless NULL, a graph onto the device, as the service loads them. */
static gg_index *
load(const gg_shape *shape, const gg_dataset *data, const gg_graph *graph)
{
	const double begin = now_s();
	gg_index   *index;

	must(gg_cuda_index_create(shape, &index));
	printf("index_create   %.3f ms\n", (now_s() - begin) * 1e3);
	write_part(index, GG_PART_ROWS, data->rows, (uint64_t) shape->capacity * dim * 4);
	if (graph != NULL)
	{
		const std::vector<uint32_t> pivots = packed_pivots(graph);

		write_part(index, GG_PART_ADJACENCY, graph->adjacency,
				   (uint64_t) graph->n * graph->degree * 4);
		write_part(index, GG_PART_PIVOTS, pivots.data(), pivots.size() * 4);
		write_rows(index, data->n);
	}
	must(gg_cuda_index_finish(index, shape->capacity, NULL));
	printf("load           %.3f s, %llu MB of %llu foreseen\n", now_s() - begin,
		   (unsigned long long) (gg_cuda_index_bytes(index) >> 20),
		   (unsigned long long) (gg_cuda_shape_bytes(shape) >> 20));
	return index;
}

/* From rows on the device. */
static void
build_graph(const gg_shape *shape, const gg_dataset *data, gg_graph *graph)
{
	const gg_build_params params = params_of(32, 64);
	gg_build_stats stats;
	gg_index   *rows;
	double		begin = now_s();

	must(gg_cuda_index_create(shape, &rows));
	write_part(rows, GG_PART_ROWS, data->rows, (uint64_t) data->n * dim * 4);
	printf("rows           %.3f s to the device\n", now_s() - begin);
	begin = now_s();
	must(gg_cuda_build_index(rows, data->n, &params, NULL, graph, &stats));
	printf("build_index    %.3f s\n", now_s() - begin);
	gg_cuda_index_close(rows);
}

static void
run(gg_index *index, gg_index *delta, uint32_t n, const std::vector<uint32_t> &itopks)
{
	for (uint32_t itopk : itopks)
	{
		printf("recall@10      itopk %4u  %.4f\n", itopk, recall(index, itopk));
		for (uint32_t count : {1u, 2u, 4u, 8u, 12u, 16u, 24u, 32u, 48u, 64u, 128u, 256u})
			bench_latency("graph", index, NULL, false, itopk, count);
		bench_latency("graph + delta", index, delta, false, itopk, 1);
		bench_latency("graph + delta", index, delta, false, itopk, 64);
		for (uint32_t count : {8u, 16u, 32u, 64u, 128u, 256u})
			for (uint32_t queues = 1; queues <= GG_SERVE_QUEUES; queues *= 2)
				bench_throughput(index, itopk, count, queues);
	}
	for (uint32_t count : {1u, 8u, 64u, 256u})
		bench_latency("exact, delta", delta, NULL, true, K, count);
	for (uint32_t count : {1u, 8u, 64u})
		bench_latency("exact, all", index, NULL, true, K, count);
	for (uint32_t k : {10u, 100u, 1024u, 16384u, GG_MAX_DEEP})
		if (k <= n / 2)
			bench_deep("deep", index, k, false, NULL);
	for (uint32_t k : {16384u, GG_MAX_DEEP})
		if (k <= n / 2)
			bench_deep("deep", index, k, true, NULL);
	bench_long_lists(index, n);
	bench_filters(index, n);
	bench_callers(index, n);
	for (uint32_t count : {1u, 100u, 800u, 2048u})
		if ((uint64_t) count * (dim + 2 * K) * 4 + 192 <= PIECE)
			bench_bulk(index, count, 64);
}

int
bench_serve(int argc, char **argv)
{
	std::vector<uint32_t> itopks;
	harness_spec spec = {};
	gg_dataset	data;
	owned_graph graph;
	gg_shape	shape = {};
	gg_index   *index;
	gg_index   *delta;

	for (int i = 4; i < argc; i++)
		itopks.push_back((uint32_t) atoi(argv[i]));
	if (itopks.empty())
		itopks = {32, 64};
	spec.shape = SHAPE_MANIFOLD;
	spec.n = argc > 1 ? (uint32_t) atoi(argv[1]) : 1000000;
	dim = spec.dim = argc > 2 ? (uint32_t) atoi(argv[2]) : 128;
	spec.latent = std::min(16u, dim);
	spec.clusters = 200;
	spec.metric = metric_named(argc > 3 ? argv[3] : "l2");
	spec.element = GG_ELEMENT_F32;
	spec.seed = 1;
	harness_data(&spec, &data, &queries, QUERIES);
	open_server();

	shape.capacity = data.n;
	shape.dim = dim;
	shape.element = data.element;
	shape.metric = data.metric;
	build_graph(&shape, &data, &graph);
	shape.degree = graph.degree;
	shape.npivots = graph.npivots;
	shape.rows = data.n;
	shape.words = 1;
	index = load(&shape, &data, &graph);
	shape.capacity = std::min(DELTA_ROWS, data.n);
	shape.degree = shape.npivots = 0;
	shape.rows = shape.words = 0;
	delta = load(&shape, &data, NULL);

	printf("fit            ");
	for (uint32_t cluster = 1; cluster <= MAX_CLUSTER; cluster++)
		printf(" %u x %u", index->device.clusters[cluster], cluster);
	printf("\n");
	run(index, delta, data.n, itopks);
	gg_cuda_serve_close(region.server);
	gg_cuda_index_close(index);
	gg_cuda_index_close(delta);
	harness_free(&data, queries);
	return 0;
}
