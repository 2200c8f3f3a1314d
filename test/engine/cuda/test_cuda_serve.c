/*
 * test_cuda_serve.c
 *		Indexes filled piece by piece, and searches queued over shared memory, of the CUDA engine.
 *
 * Needs a GPU.  The measure is the same engine's index_open(), index_search() and index_exact(),
 * which test_cuda_search.c holds against the CPU engine.
 *
 *	fill		pieces of odd sizes in any order make the index that index_open() makes
 *	take		rows taken from another index answer as if they had been written
 *	serve		batches of 1 to 256 on all queues, several lists a slot, many in flight: each ticket
 *				comes after its answer, nothing else of a slot is written, answers are
 *				index_search()'s
 *	prefixes	an index that is finished with fewer rows than it has room for finds these alone
 *	build		build_index() makes build()'s graph, whatever the stride of the rows and however
 *				many threads wrote them
 *	bulk		many queries of one caller get what the same searches get
 *	group		one query for lists of many indexes gets what the same searches get
 *	deep		deep and filtered lists, of one slab of rows and of several
 *	several		filtered requests that are answered together have the answers that they have
 *				alone, bit by bit
 *	pruned		the same of many rows of which filters leave most
 *	rough		the same of rows that halves cannot tell apart, or cannot hold
 *	refusals	what is out of range, out of memory or not finished; nothing is lost by it
 *	refused calls	a launch that asks for too much is refused, and the device serves on; no host
 *				memory can be pinned.  The linker leads such calls through functions of this file
 *				(Makefile, --wrap)
 *
 * Walks of one query in batches of different sizes may differ in near ties of fp16 distances: 0.998
 * of the nodes must be the same.  Everything else is compared bit by bit.
 */
#define _GNU_SOURCE				/* MAP_ANONYMOUS */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../serve_few_tids.h"
#include "../serve_group.h"
#include "../serve_refusals.h"
#include "../serve_take.h"
#include "scenes.h"

#define NSLOTS 600
#define ANSWERS 4096			/* room of a slot */
#define PATIENCE_S (harness_small() ? 400.0 : 20.0)	/* what has not come by then never will */
#define UNTOUCHED 0xABABABABu

static const gg_control control = {.threads = 2};

/* ---- data -------------------------------------------------------------------- */

static const scene_spec specs[] = {
	{.n = 3000,.dim = 128,.degree = 32,.npivots = 200,.nq = 256},
	{.n = 2000,.dim = 100,.metric = GG_METRIC_COSINE,.degree = 32,.npivots = 130,.nq = 256},
	{.n = 1500,.dim = 33,.metric = GG_METRIC_IP,.element = GG_ELEMENT_F16,.degree = 17,
		.npivots = 90,.nq = 256},
	{.n = 1000,.dim = 3,.metric = GG_METRIC_L1,.degree = 16,.npivots = 60,.nq = 256},
	{.n = 1000,.dim = 65,.metric = GG_METRIC_COSINE,.element = GG_ELEMENT_F16,.degree = 24,
		.npivots = 50,.nq = 256},
	/* so many pivots of so wide rows that batches take the pivots' product */
	{.n = 3000,.dim = 960,.degree = 32,.npivots = 1500,.nq = 256,.offset = 3},
	{.n = 200,.dim = 16000,.metric = GG_METRIC_IP,.degree = 16,.npivots = 20,.nq = 64},
	{.n = 700,.dim = 20,.metric = GG_METRIC_L1,.element = GG_ELEMENT_F16,.degree = 16,.npivots = 30,
		.nq = 256},
	{.n = 2500,.dim = 31,.nq = 256},
};

#define NSPECS (sizeof(specs) / sizeof(specs[0]))

static size_t
row_bytes(const scene *s)
{
	return (size_t) s->data.dim * gg_element_size(s->data.element);
}

/* For slow checkers of fewer rows. */
static void
scene_make(scene *s, scene_spec spec, uint64_t seed)
{
	if (spec.dim > 2000 && little_shared())
		spec.dim = 2000;
	spec.n = harness_size(spec.n, 2);
	spec.npivots = harness_size(spec.npivots, 2);
	scene_draw(s, &spec, seed);
}

static gg_index *
scene_open(const scene *s)
{
	gg_index   *index = NULL;

	CHECK_OK(gg_cuda_engine.index_open(&s->data, s->shape.degree > 0 ? &s->graph : NULL, &control,
									   &index), s->name);
	return index;
}

/* One part in pieces of `piece` bytes, or of random sizes when 0; from both ends in turn. */
static void
write_part(gg_index *index, gg_part part, const void *src, uint64_t bytes, uint64_t piece,
		   small_random *random, const char *name)
{
	uint64_t	begin = 0;
	uint64_t	end = bytes;

	for (bool front = true; begin < end; front = !front)
	{
		uint64_t	size = piece > 0 ? piece : 1 + small_random_bits(random) % 30000;
		uint64_t	at;
		char	   *copy;

		if (size > end - begin)
			size = end - begin;
		at = front ? begin : end - size;
		/* src may be used again as soon as the call is back */
		copy = malloc(size);
		memcpy(copy, (const char *) src + at, size);
		if (!CHECK_OK(gg_cuda_engine.index_write(index, part, at, copy, size), name))
		{
			free(copy);
			return;
		}
		memset(copy, 0x7F, size);
		free(copy);
		if (front)
			begin += size;
		else
			end -= size;
	}
}

/* The scene's index with room for more rows, filled in pieces. */
static gg_index *
scene_fill(const scene *s, uint32_t room, uint64_t piece)
{
	small_random random = {piece + 99};
	gg_shape	shape = s->shape;
	gg_index   *index = NULL;

	shape.capacity += room;
	if (!CHECK_OK(gg_cuda_engine.index_create(&shape, &index), s->name))
		return NULL;
	if (s->shape.degree > 0)
	{
		uint32_t   *pivots = harness_pivots(&s->graph);

		write_part(index, GG_PART_PIVOTS, pivots,
				   (uint64_t) shape.npivots * (1 + GG_PIVOT_DEGREE) * sizeof(uint32_t), piece,
				   &random, s->name);
		free(pivots);
		write_part(index, GG_PART_ADJACENCY, s->graph.adjacency,
				   (uint64_t) s->data.n * shape.degree * sizeof(uint32_t), piece, &random, s->name);
	}
	write_part(index, GG_PART_ROWS, s->data.rows, (uint64_t) s->data.n * row_bytes(s), piece,
			   &random, s->name);
	CHECK_OK(gg_cuda_engine.index_finish(index, s->data.n, &control), s->name);
	return index;
}

/* ---- answers ------------------------------------------------------------------- */

static uint64_t *
ask_mode(gg_index *index, const scene *s, bool exact, gg_search_mode mode, uint32_t k,
		 uint32_t itopk, uint32_t nq)
{
	const gg_search_params params = {.k = k,.itopk_size = itopk,.mode = mode};

	return exact ?
		harness_nearest(&gg_cuda_engine, index, k, NULL, s->queries, nq, &control, s->name) :
		harness_found(&gg_cuda_engine, index, &params, s->queries, nq, &control, s->name);
}

static uint64_t *
ask(gg_index *index, const scene *s, bool exact, uint32_t k, uint32_t itopk, uint32_t nq)
{
	return ask_mode(index, s, exact, GG_SEARCH_AUTO, k, itopk, nq);
}

/*
 * Nodes of one query's answer that the other has not, or with another distance.  Distances of one
 * row may differ in the last bits: kernels for one query and for eight are compiled apart.
 */
static uint32_t
missing(const uint64_t *keys, const uint64_t *others, uint32_t k)
{
	uint32_t	count = 0;

	for (uint32_t i = 0; i < k; i++)
	{
		const float distance = key_distance(keys[i]);
		bool		found = false;

		for (uint32_t j = 0; j < k && !found; j++)
			found = keys[i] == others[j] ||
				(key_node(others[j]) == key_node(keys[i]) &&
				 fabsf(distance - key_distance(others[j])) <= 1e-5f * (1 + fabsf(distance)));
		count += !found;
	}
	return count;
}

/* Whether keys ascend and are padded at the end. */
static bool
in_order(const uint64_t *keys, uint32_t k)
{
	for (uint32_t i = 1; i < k; i++)
		if (keys[i] != GG_NO_KEY && keys[i - 1] >= keys[i])
			return false;
	return true;
}

/* ---- filling -------------------------------------------------------------------- */

static void
check_same(const scene *s, gg_index *opened, gg_index *filled, const char *what)
{
	for (int exact = s->shape.degree == 0; exact < 2; exact++)
	{
		uint64_t   *a = ask(opened, s, exact, 10, 64, s->nq);
		uint64_t   *b = ask(filled, s, exact, 10, 64, s->nq);

		CHECK(memcmp(a, b, (size_t) s->nq * 10 * sizeof(uint64_t)) == 0,
			  "%s: %s: %s answers differ", s->name, what, exact ? "exact" : "graph");
		free(a);
		free(b);
	}
}

static void
test_fill(void)
{
	static const uint64_t pieces[] = {0, 4 << 20, 4097};

	for (size_t i = 0; i < NSPECS; i++)
	{
		scene		s;
		gg_index   *opened;

		if (harness_small() && (i % 3 != 0 || (harness_fewest() && specs[i].dim > 1000)))
			continue;
		scene_make(&s, specs[i], 500 + i);
		opened = scene_open(&s);
		for (size_t p = 0; p < sizeof(pieces) / sizeof(pieces[0]); p++)
		{
			gg_index   *filled = scene_fill(&s, p == 1 ? 0 : 77, pieces[p]);
			gg_shape	shape = s.shape;

			if (opened == NULL || filled == NULL)
				continue;
			check_same(&s, opened, filled, "filled");
			shape.capacity += p == 1 ? 0 : 77;
			CHECK(gg_cuda_engine.index_bytes(filled) <= gg_cuda_engine.shape_bytes(&shape) &&
				  gg_cuda_engine.index_bytes(filled) >= (uint64_t) s.data.n * row_bytes(&s),
				  "%s: %llu bytes of %llu", s.name,
				  (unsigned long long) gg_cuda_engine.index_bytes(filled),
				  (unsigned long long) gg_cuda_engine.shape_bytes(&shape));
			gg_cuda_engine.index_close(filled);
		}
		gg_cuda_engine.index_close(opened);
		scene_drop(&s);
	}
}

/* Byte by byte, so that every way a piece can lie in a row occurs; no rows at all. */
static void
test_fill_edges(void)
{
	static const scene_spec few = {.n = 70,.dim = 5,.degree = 8,.npivots = 4,.nq = 40};
	gg_search_params params = {.k = 3,.itopk_size = 16};
	uint64_t	keys[3] = {0};
	gg_shape	shape;
	gg_index   *index = NULL;
	scene		s;

	scene_make(&s, few, 4);
	for (uint64_t piece = 1; piece <= 64; piece = piece < 8 ? piece + 1 : piece * 2 - 3)
	{
		gg_index   *opened = scene_open(&s);
		gg_index   *filled = scene_fill(&s, 3, piece);

		if (opened != NULL && filled != NULL)
			check_same(&s, opened, filled, "small pieces");
		gg_cuda_engine.index_close(opened);
		gg_cuda_engine.index_close(filled);
	}
	shape = s.shape;
	CHECK_OK(gg_cuda_engine.index_create(&shape, &index), "create");
	CHECK_OK(gg_cuda_engine.index_finish(index, 0, NULL), "finish with no rows");
	CHECK_OK(gg_cuda_engine.index_search(index, &params, s.queries, 1, NULL, keys),
			 "search in no rows");
	CHECK(keys[0] == GG_NO_KEY && keys[1] == GG_NO_KEY && keys[2] == GG_NO_KEY,
		  "answers from no rows");
	gg_cuda_engine.index_close(index);
	memset(&shape, 0, sizeof(shape));
	shape.dim = 7;
	shape.metric = GG_METRIC_L2;
	shape.element = GG_ELEMENT_F16;
	CHECK_OK(gg_cuda_engine.index_create(&shape, &index), "create without room");
	CHECK_OK(gg_cuda_engine.index_finish(index, 0, NULL), "finish without room");
	gg_cuda_engine.index_close(index);
	scene_drop(&s);
}

static void
test_take(void)
{
	take_test(&gg_cuda_engine);
}

/* ---- serving --------------------------------------------------------------------- */

typedef struct server
{
	bulk_region region;
	uint32_t	ticket;
	uint32_t	dim;
} server;

static void *
slot_part(const server *v, uint32_t slot, size_t offset)
{
	return v->region.memory + slot_at(&v->region, slot) + offset;
}

static uint32_t *
slot_done(const server *v, uint32_t slot)
{
	return slot_part(v, slot, v->region.layout.done);
}

static bool
server_open(server *v, uint32_t dim)
{
	bulk_region *r = &v->region;
	gg_serve_layout *layout = &r->layout;

	memset(v, 0, sizeof(*v));
	v->dim = dim;
	r->engine = &gg_cuda_engine;
	layout->nslots = NSLOTS;
	/* a slot has a head that is not the device's */
	layout->done = 64;
	r->keys = layout->done + (GG_SERVE_MAX_LISTS * 4 + 63) / 64 * 64;
	r->query = r->keys + ANSWERS * 8;
	layout->slot_bytes = r->query + ((size_t) dim * 4 + 63) / 64 * 64;
	r->bytes = (4096 + NSLOTS * layout->slot_bytes + 4095) / 4096 * 4096;
	r->memory = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!CHECK(r->memory != MAP_FAILED, "mmap of %zu bytes", r->bytes))
		return false;
	memset(r->memory, 0xAB, r->bytes);
	layout->slots = r->memory + 4096;
	v->ticket = 1000;
	return CHECK_OK(gg_cuda_engine.serve_open(0, r->memory, r->bytes, layout, &r->server),
					"serve_open");
}

static void
server_close(server *v)
{
	gg_cuda_engine.serve_close(v->region.server);
	munmap(v->region.memory, v->region.bytes);
}

/*
 * A batch that was submitted: queries first .. first + count - 1 of the scene, in slots from `slot`
 * on, backwards.
 */
typedef struct flight
{
	slot_batch	batch;
	uint32_t	queue;
	uint32_t	first;
	const uint64_t *truth;
} flight;

static void
flight_submit(server *v, gg_index *index, const scene *s, flight *f, uint32_t slot)
{
	for (uint32_t i = 0; i < f->batch.count; i++)
	{
		uint32_t	to = (slot + 7 * i) % NSLOTS;

		f->batch.slots[i] = to;
		f->batch.tickets[i] = v->ticket++;
		memcpy(slot_query(&v->region, to), s->queries + (size_t) ((f->first + i) % s->nq) *
			   s->data.dim, s->data.dim * sizeof(float));
	}
	CHECK_OK(submit_slots(&v->region, index, f->queue, v->dim, &f->batch), s->name);
}

/* Wait for every ticket; false when one does not come. */
static bool
flight_wait(server *v, const scene *s, const flight *f)
{
	double		until = harness_now() + PATIENCE_S;

	for (uint32_t i = 0; i < f->batch.count; i++)
	{
		volatile uint32_t *done = slot_done(v, f->batch.slots[i]) + f->batch.list;

		while (__atomic_load_n(done, __ATOMIC_ACQUIRE) != f->batch.tickets[i])
		{
			bool		idle;

			if (harness_now() < until)
				continue;
			CHECK_OK(gg_cuda_engine.serve_check(v->region.server, f->queue, &idle), s->name);
			return CHECK(false, "%s: query %u of %u on queue %u was not answered (%s)", s->name, i,
						 f->batch.count, f->queue, idle ? "idle" : "busy");
		}
	}
	return true;
}

/* Compare and count; call when the tickets are there. */
static void
flight_check(server *v, const scene *s, const flight *f, uint64_t *wrong, uint64_t *all)
{
	const uint32_t k = f->batch.k;
	uint32_t	disorder = 0;

	for (uint32_t i = 0; i < f->batch.count; i++)
	{
		const uint32_t query = (f->first + i) % s->nq;
		const uint64_t *keys = slot_keys(&v->region, f->batch.slots[i], f->batch.list, k);

		*wrong += missing(keys, f->truth + (size_t) query * k, k);
		*all += k;
		disorder += !in_order(keys, k);
	}
	CHECK(disorder == 0, "%s: %u answers of %u out of order", s->name, disorder, f->batch.count);
}

/* Every queue becomes idle once nothing is left to do. */
static void
check_idle(server *v, const char *name)
{
	double		until = harness_now() + PATIENCE_S;

	for (uint32_t queue = 0; queue < GG_SERVE_QUEUES; queue++)
	{
		gg_status	status = {.code = GG_OK};
		bool		idle = false;

		while (!idle && status.code == GG_OK && harness_now() < until)
			status = gg_cuda_engine.serve_check(v->region.server, queue, &idle);
		CHECK_OK(status, name);
		CHECK(idle, "%s: queue %u is still busy", name, queue);
	}
}

/*
 * What a batch for `list` must not have touched: other lists' tickets and answers, and the head of
 * the slot.
 */
static void
check_untouched(server *v, const scene *s, const flight *f)
{
	const uint32_t k = f->batch.k;
	const uint32_t list = f->batch.list;
	uint32_t	touched = 0;

	for (uint32_t i = 0; i < f->batch.count; i++)
	{
		const uint32_t *done = slot_done(v, f->batch.slots[i]);
		const uint32_t *head = slot_part(v, f->batch.slots[i], 0);
		const uint64_t *keys = slot_keys(&v->region, f->batch.slots[i], 0, k);

		for (uint32_t l = 0; l < GG_SERVE_MAX_LISTS; l++)
			touched += l != list && done[l] != UNTOUCHED;
		for (uint32_t j = 0; j < ANSWERS; j++)
			touched += (j < list * k || j >= (list + 1) * k) &&
				keys[j] != ((uint64_t) UNTOUCHED << 32 | UNTOUCHED);
		for (uint32_t j = 0; j < 16; j++)
			touched += head[j] != UNTOUCHED;
		touched += memcmp(slot_query(&v->region, f->batch.slots[i]),
						  s->queries + (size_t) ((f->first + i) % s->nq) * s->data.dim,
						  s->data.dim * sizeof(float)) != 0;
	}
	CHECK(touched == 0, "%s: batch of %u, list %u, k %u: %u words beside the answers written",
		  s->name, f->batch.count, list, k, touched);
}

static flight
flight_make(uint32_t count, bool exact, uint32_t k, uint32_t itopk, uint32_t list, uint32_t queue,
			uint32_t first, const uint64_t *truth)
{
	flight		f = {.batch = {.count = count,.exact = exact,.k = k,.itopk_size = itopk,
							   .list = list},
	.queue = queue,.first = first,.truth = truth};

	return f;
}

static const uint32_t counts[] = {1, 2, 3, 8, 9, 16, 17, 31, 66, 67, 132, 133, 200, 256};

#define NCOUNTS (sizeof(counts) / sizeof(counts[0]))

/*
 * One batch at a time, of all sizes.  The searches of TSDG have the same bits in each batch, those
 * of CAGRA nearly so.
 */
static void
check_alone(server *v, const scene *s, gg_index *index, bool exact, gg_search_mode mode,
			uint32_t k, uint32_t itopk)
{
	const double most_wrong = exact || mode != GG_SEARCH_AUTO ? 0 : 0.002;
	uint64_t   *truth = ask_mode(index, s, exact, mode, k, itopk, s->nq);
	/* the last list is a delta's, which is not walked */
	const uint32_t lists = exact ? GG_SERVE_MAX_LISTS : GG_SERVE_MAX_LISTS - 1;
	const uint32_t most = ANSWERS / k < lists ? ANSWERS / k : lists;
	uint64_t	wrong = 0;
	uint64_t	all = 0;

	for (size_t c = 0; c < NCOUNTS; c++)
	{
		flight		f = flight_make(counts[c], exact, k, itopk, (uint32_t) (c * 5) % most,
									(uint32_t) c % GG_SERVE_QUEUES, (uint32_t) c * 31, truth);

		f.batch.mode = mode;
		/*
		 * for slow checkers a batch for each kernel, and one query where lists are long or rows
		 * wide
		 */
		if (harness_small() && (c % 4 != 0 || counts[c] > (itopk > 64 || s->data.dim > 512 ? 1 :
														   66)))
			continue;
		memset(v->region.layout.slots, 0xAB, NSLOTS * v->region.layout.slot_bytes);
		flight_submit(v, index, s, &f, (uint32_t) c * 13);
		if (!flight_wait(v, s, &f))
			break;
		flight_check(v, s, &f, &wrong, &all);
		check_idle(v, s->name);
		check_untouched(v, s, &f);
	}
	CHECK((double) wrong <= most_wrong * (double) all,
		  "%s: %s, mode %d, k %u itopk %u: %llu of %llu differ", s->name,
		  exact ? "exact" : "graph", (int) mode, k, itopk, (unsigned long long) wrong,
		  (unsigned long long) all);
	free(truth);
}

/*
 * Many batches under way: three lists in the same slots at once on different queues, and slots
 * taken again as soon as their tickets are there.
 */
static void
check_together(server *v, const scene *s, gg_index *index, gg_index *other)
{
	const bool	graph = s->shape.degree > 0;
	const uint32_t k = 10;
	uint64_t   *truths[3];
	uint64_t	wrong = 0;
	uint64_t	all = 0;
	small_random random = {17};

	truths[0] = ask(index, s, !graph, k, 64, s->nq);
	truths[1] = ask(index, s, true, k, 64, s->nq);
	truths[2] = ask(other, s, !graph, k, 100, s->nq);
	memset(v->region.layout.slots, 0xAB, NSLOTS * v->region.layout.slot_bytes);
	for (uint32_t round = 0; round < (harness_small() ? 1u : 60u); round++)
	{
		/*
		 * six batches: lists 0, 1 and 2 of two disjoint sets of slots (even and odd rounds of 7 i)
		 */
		flight		flights[6];

		for (uint32_t half = 0; half < 2; half++)
		{
			uint32_t	count = 1 + small_random_bits(&random) % harness_size(80, 40);
			uint32_t	first = small_random_bits(&random);

			if (round % 10 == 9)
				count = half == 0 ? 256 : 44;
			for (uint32_t l = 0; l < 3; l++)
			{
				flight	   *f = &flights[half * 3 + l];

				*f = flight_make(count, l == 1 || !graph, k, l == 2 ? 100 : 64, l,
								 (round + half * 3 + l) % GG_SERVE_QUEUES, first % s->nq,
								 truths[l]);
				/*
				 * 256 x 7 and 44 x 7 steps on a ring of 600: 7 has no factor of it, so 300 distinct
				 * slots
				 */
				flight_submit(v, l == 2 ? other : index, s, f, half == 0 ? 0 : 7 * 256);
			}
		}
		for (uint32_t i = 0; i < 6; i++)
		{
			if (!flight_wait(v, s, &flights[i]))
				goto out;
			flight_check(v, s, &flights[i], &wrong, &all);
		}
	}
out:
	CHECK((double) wrong <= 0.002 * (double) all, "%s: together %llu of %llu differ", s->name,
		  (unsigned long long) wrong, (unsigned long long) all);
	check_idle(v, s->name);
	for (int i = 0; i < 3; i++)
		free(truths[i]);
}

/*
 * One piece of what is asked of a scene: alone from the graph, alone exactly, each with four lists,
 * by the searches of TSDG, or together.
 */
static struct
{
	size_t		scene;
	int			piece;			/* below NPIECES; negative: all of them */
}			serving;

#define NPIECES 12

static uint32_t
at_most(uint32_t value, uint32_t most)
{
	return value < most ? value : most;
}

/*
 * For slow checkers: as few queries as can differ.  For the slowest few rows, so that walks have
 * few steps; otherwise more of them than the longest list has places.
 */
static scene_spec
smaller(scene_spec spec)
{
	if (harness_small())
	{
		spec.n = at_most(spec.n, harness_fewer() ? 100 : 2200);
		spec.nq = 2;
	}
	if (harness_fewer())
	{
		spec.npivots = at_most(spec.npivots, 40);
		spec.dim = at_most(spec.dim, 1000);
	}
	return spec;
}

static void
test_serve(void)
{
	static const struct
	{
		uint32_t	k;
		uint32_t	itopk;
	}			lists[] = {{10, 64}, {1, 1}, {100, 200}, {1024, 1024}};
	const size_t i = serving.scene;
	scene_spec	spec = specs[i];
	scene		s;
	server		v;
	gg_index   *index;
	gg_index   *other;

	scene_make(&s, smaller(spec), 900 + i);
	if (!server_open(&v, s.data.dim))
		return;
	index = scene_fill(&s, 5, 0);
	other = scene_fill(&s, 0, 1 << 20);
	if (index == NULL || other == NULL)
		return;
	for (int piece = 0; piece < NPIECES; piece++)
	{
		const bool	graph = piece < 4 || piece >= 8;

		if ((serving.piece >= 0 && piece != serving.piece) ||
			(graph && piece < NPIECES - 1 && s.shape.degree == 0))
			continue;
		if (piece == NPIECES - 1)
			check_together(&v, &s, index, other);
		else if (piece == 8)
			check_alone(&v, &s, index, false, GG_SEARCH_TSDG_SMALL, 10, 16);
		else if (piece == 9)
			check_alone(&v, &s, index, false, GG_SEARCH_TSDG_LARGE, 10, 64);
		else if (piece == 10)
			check_alone(&v, &s, index, false, GG_SEARCH_TSDG_LARGE, 100, 200);
		else if (piece % 4 < 3 || i == 0 || i == 5)
			check_alone(&v, &s, index, !graph, GG_SEARCH_AUTO, lists[piece % 4].k,
						lists[piece % 4].itopk);
	}
	server_close(&v);
	gg_cuda_engine.index_close(index);
	gg_cuda_engine.index_close(other);
	scene_drop(&s);
}

/* ---- rows in ragged pieces, and filling beside searches ------------------------------ */

static void
check_prefix(server *v, const scene *s, gg_index *index, uint32_t n, uint32_t queue)
{
	gg_dataset	some = s->data;
	gg_index   *opened = NULL;
	uint64_t   *truth;
	flight		f;
	uint64_t	wrong = 0;
	uint64_t	all = 0;

	some.n = n;
	CHECK_OK(gg_cuda_engine.index_open(&some, NULL, &control, &opened), s->name);
	truth = ask(opened, s, true, 20, 20, s->nq);
	f = flight_make(50, true, 20, 20, 3, queue, 0, truth);
	flight_submit(v, index, s, &f, 0);
	if (flight_wait(v, s, &f))
		flight_check(v, s, &f, &wrong, &all);
	CHECK(wrong == 0, "%s: %llu of %llu differ with %u rows", s->name, (unsigned long long) wrong,
		  (unsigned long long) all, n);
	free(truth);
	gg_cuda_engine.index_close(opened);
}

static void
test_prefixes(void)
{
	static const scene_spec spec = {.n = 900,.dim = 31,.metric = GG_METRIC_COSINE,
		.element = GG_ELEMENT_F16,.nq = 64};
	static const uint32_t steps[] = {0, 1, 31, 32, 33, 500, 899, 900};
	small_random random = {8};
	gg_shape	shape;
	gg_index   *index = NULL;
	uint64_t	row;
	server		v;
	scene		s;

	scene_make(&s, spec, 31);
	row = row_bytes(&s);
	if (!server_open(&v, s.data.dim))
		return;
	shape = s.shape;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
	{
		uint32_t	n = harness_size(steps[i], 2);

		CHECK_OK(gg_cuda_engine.index_create(&shape, &index), "create");
		for (uint64_t at = 0; at < n * row;)
		{
			uint64_t	size = 1 + small_random_bits(&random) % 3000;

			if (size > n * row - at)
				size = n * row - at;
			CHECK_OK(gg_cuda_engine.index_write(index, GG_PART_ROWS, at, (char *) s.data.rows + at,
												size), "write");
			at += size;
		}
		CHECK_OK(gg_cuda_engine.index_finish(index, n, NULL), "finish");
		check_prefix(&v, &s, index, n, (uint32_t) i % GG_SERVE_QUEUES);
		gg_cuda_engine.index_close(index);
	}
	server_close(&v);
	scene_drop(&s);
}

typedef struct filler
{
	const scene *s;
	uint32_t	rounds;			/* atomic */
	volatile bool stop;
} filler;

/* What the service's upload thread does. */
static void *
fill_on(void *arg)
{
	filler	   *f = arg;

	while (!f->stop)
	{
		gg_index   *index = scene_fill(f->s, 100, (4 << 20) - 5);

		gg_cuda_engine.index_close(index);
		__atomic_add_fetch(&f->rounds, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void
test_fill_beside(void)
{
	scene		s;
	server		v;
	gg_index   *index;
	filler		f = {.s = &s};
	pthread_t	thread;
	double		until;

	scene_make(&s, smaller(specs[1]), 77);
	if (!server_open(&v, s.data.dim))
		return;
	index = scene_fill(&s, 0, 0);
	pthread_create(&thread, NULL, fill_on, &f);
	until = harness_now() + (harness_small() ? 1 : 2);
	do
		check_together(&v, &s, index, index);
	while (harness_now() < until || (__atomic_load_n(&f.rounds, __ATOMIC_RELAXED) == 0 &&
									 harness_now() < until + PATIENCE_S));
	f.stop = true;
	pthread_join(thread, NULL);
	CHECK(f.rounds > 0, "nothing was filled meanwhile");
	server_close(&v);
	gg_cuda_engine.index_close(index);
	scene_drop(&s);
}

/* ---- host memory that cannot be pinned ------------------------------------------------------ */

static bool unpinnable;

extern cudaError_t __real_cudaHostAlloc(void **block, size_t bytes, unsigned int flags);
extern cudaError_t __wrap_cudaHostAlloc(void **block, size_t bytes, unsigned int flags);
extern cudaError_t __real_cudaHostRegister(void *block, size_t bytes, unsigned int flags);
extern cudaError_t __wrap_cudaHostRegister(void *block, size_t bytes, unsigned int flags);

cudaError_t
__wrap_cudaHostAlloc(void **block, size_t bytes, unsigned int flags)
{
	return unpinnable ? cudaErrorMemoryAllocation : __real_cudaHostAlloc(block, bytes, flags);
}

cudaError_t
__wrap_cudaHostRegister(void *block, size_t bytes, unsigned int flags)
{
	return unpinnable ? cudaErrorMemoryAllocation : __real_cudaHostRegister(block, bytes, flags);
}

/* ---- building ---------------------------------------------------------------------------- */

#define WRITERS 4

typedef struct writing
{
	gg_index   *index;
	const char *rows;
	uint64_t	bytes;
	uint64_t	next;			/* this and what follows: atomic */
	uint64_t	seed;
	int			failed;			/* calls */
} writing;

/*
 * What a build's threads do: pieces as they come, of which some are longer than a pinned buffer,
 * and few end with a row.
 */
static void *
write_on(void *arg)
{
	writing    *w = arg;
	small_random random = {__atomic_fetch_add(&w->seed, 1, __ATOMIC_RELAXED)};

	for (;;)
	{
		uint64_t	size = 1 + small_random_bits(&random) % (small_random_bits(&random) % 4 == 0 ?
															 2000000 : 50000);
		uint64_t	at = __atomic_fetch_add(&w->next, size, __ATOMIC_RELAXED);

		if (at >= w->bytes)
			return NULL;
		if (size > w->bytes - at)
			size = w->bytes - at;
		if (gg_cuda_engine.index_write(w->index, GG_PART_ROWS, at, w->rows + at,
									   size).code != GG_OK)
			__atomic_fetch_add(&w->failed, 1, __ATOMIC_RELAXED);
	}
}

static void
write_side_by_side(gg_index *index, const gg_dataset *data, const char *name)
{
	writing		w = {.index = index,.rows = data->rows,
					 .bytes = (uint64_t) data->n * data->dim * gg_element_size(data->element)};
	pthread_t	threads[WRITERS];

	for (int i = 0; i < WRITERS; i++)
		pthread_create(&threads[i], NULL, write_on, &w);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	CHECK(w.failed == 0, "%s: %d writes failed", name, w.failed);
}

static void
test_build(void)
{
	static const struct
	{
		uint32_t	n;
		uint32_t	dim;
		gg_metric	metric;
		gg_element	element;
		bool		unpinnable;
	}			cases[] = {
		{3000, 128, GG_METRIC_L2, GG_ELEMENT_F32, false},
		{3000, 33, GG_METRIC_L2, GG_ELEMENT_F32, false},
		{3000, 100, GG_METRIC_IP, GG_ELEMENT_F32, false},
		{3000, 65, GG_METRIC_COSINE, GG_ELEMENT_F16, false},
		{3000, 3, GG_METRIC_L1, GG_ELEMENT_F32, false},
		{30000, 44, GG_METRIC_COSINE, GG_ELEMENT_F32, false},
		{30000, 37, GG_METRIC_IP, GG_ELEMENT_F16, true},
		{5, 9, GG_METRIC_L2, GG_ELEMENT_F32, false},
		{0, 9, GG_METRIC_L2, GG_ELEMENT_F32, false},
	};
	gg_build_params params = {.graph_degree = 16,.intermediate_graph_degree = 32,.seed = 5};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		const uint32_t scale = harness_fewest() ? 20 : 10;
		harness_spec spec = {.n = harness_size(cases[i].n, scale), .dim = cases[i].dim,
			.metric = cases[i].metric, .element = cases[i].element, .seed = 40 + i};
		gg_graph	graphs[2];
		gg_shape	shape = {.dim = spec.dim,.element = spec.element,.metric = spec.metric};
		gg_index   *index = NULL;
		gg_dataset	data;
		char		name[96];

		snprintf(name, sizeof(name), "build n %u dim %u metric %d element %d", spec.n, spec.dim,
				 (int) spec.metric, (int) spec.element);
		harness_data(&spec, &data, NULL, 0);
		shape.capacity = data.n + 10;
		CHECK_OK(gg_cuda_engine.build(&data, &params, &control, &graphs[0], NULL), name);
		CHECK_OK(gg_cuda_engine.index_create(&shape, &index), name);
		/* without pinned memory it is slower, and that is all */
		unpinnable = cases[i].unpinnable;
		write_side_by_side(index, &data, name);
		unpinnable = false;
		CHECK_OK(gg_cuda_engine.build_index(index, data.n, &params, &control, &graphs[1], NULL),
				 name);
		CHECK(data.n == 0 ? graphs[1].n == 0 && graphs[0].npivots == graphs[1].npivots :
			  harness_graphs_equal(&graphs[0], &graphs[1]), "%s: another graph", name);
		gg_graph_free(&graphs[0]);
		gg_graph_free(&graphs[1]);
		gg_cuda_engine.index_close(index);
		harness_free(&data, NULL);
	}
}

/* ---- refusals ------------------------------------------------------------------------------ */

static uint64_t
device_free(void)
{
	gg_device_info info;

	CHECK_OK(gg_cuda_engine.device_info(0, &info), "device_info");
	return info.free_bytes;
}

#define REFUSED(call) CHECK((call).code == GG_EINVAL, #call)

static void
test_refuse_shapes(void)
{
	gg_shape	good = {.capacity = 100,.dim = 8,.element = GG_ELEMENT_F32,.metric = GG_METRIC_L2,
						.degree = 8,.npivots = 5};
	gg_build_params params = {.graph_degree = 16,.intermediate_graph_degree = 32};
	gg_index   *index = NULL;
	gg_shape	bad;
	gg_graph	graph;
	gg_search_params search = {.k = 5,.itopk_size = 10};
	uint64_t	keys[5];
	char		bytes[64] = {0};
	uint64_t	before;
	gg_status	status;

	for (int i = 0; i < 8; i++)
	{
		bad = good;
		switch (i)
		{
			case 0: bad.dim = 0; break;
			case 1: bad.dim = GG_MAX_DIM + 1; break;
			case 2: bad.capacity = GG_MAX_NODES + 1u; break;
			case 3: bad.metric = (gg_metric) 9; break;
			case 4: bad.element = (gg_element) 0; break;
			case 5: bad.degree = GG_MAX_DEGREE + 1; break;
			case 6: bad.npivots = 0; break;
			default: bad.degree = 0; break;
		}
		REFUSED(gg_cuda_engine.index_create(&bad, &index));
		CHECK(index == NULL, "shape %d left an index", i);
	}
	CHECK_OK(gg_cuda_engine.index_create(&good, &index), "create");
	REFUSED(gg_cuda_engine.index_write(index, GG_PART_ROWS, 100 * 32, bytes, 1));
	REFUSED(gg_cuda_engine.index_write(index, GG_PART_ROWS, 100 * 32 - 63, bytes, 64));
	REFUSED(gg_cuda_engine.index_write(index, GG_PART_ROWS, UINT64_MAX - 3, bytes, 64));
	REFUSED(gg_cuda_engine.index_write(index, GG_PART_ADJACENCY, 100 * 32 - 63, bytes, 64));
	REFUSED(gg_cuda_engine.index_write(index, GG_PART_PIVOTS, 5 * 68 - 63, bytes, 64));
	REFUSED(gg_cuda_engine.index_write(index, (gg_part) 3, 0, bytes, 1));
	CHECK_OK(gg_cuda_engine.index_write(index, GG_PART_ROWS, 100 * 32, bytes, 0),
			 "nothing at the end");
	CHECK_OK(gg_cuda_engine.index_write(index, GG_PART_PIVOTS, 5 * 68 - 64, bytes, 64),
			 "the last bytes");
	REFUSED(gg_cuda_engine.index_search(index, &search, (float *) bytes, 1, NULL, keys));
	REFUSED(gg_cuda_engine.index_exact(index, 5, NULL, (float *) bytes, 1, NULL, keys));
	REFUSED(gg_cuda_engine.build_index(index, 5, &params, NULL, &graph, NULL));
	REFUSED(gg_cuda_engine.index_finish(index, 101, NULL));
	gg_cuda_engine.index_close(index);
	gg_cuda_engine.index_close(NULL);

	/* more than any device has */
	before = device_free();
	bad = good;
	bad.capacity = GG_MAX_NODES;
	bad.dim = GG_MAX_DIM;
	for (int i = 0; i < 3; i++)
	{
		index = NULL;
		status = gg_cuda_engine.index_create(&bad, &index);
		CHECK(status.code == GG_EDEVICE_MEMORY && index == NULL && status.message[0] != '\0',
			  "%d: %s", (int) status.code, status.message);
	}
	/*
	 * the rows fit, their copy for the walk does not; sanitizers run side by side and want memory
	 * too
	 */
	bad = good;
	bad.dim = 1024;
	bad.capacity = (uint32_t) (before / 5 * 4 / (1024 * 4));
	if (!harness_small())
	{
		status = gg_cuda_engine.index_create(&bad, &index);
		CHECK(status.code == GG_EDEVICE_MEMORY && index == NULL, "code %d: %s", (int) status.code,
			  status.message);
	}
	/* sanitizers keep device memory of their own */
	CHECK(harness_small() || device_free() + (8 << 20) >= before, "%llu bytes lost",
		  (unsigned long long) (before - device_free()));
	CHECK_OK(gg_cuda_engine.index_create(&good, &index), "create after refusals");
	gg_cuda_engine.index_close(index);
}

static const scene_spec of_forty = {.n = 300,.dim = 16,.degree = 8,.npivots = 10,.nq = 40};

/* After refusals, on queue 1: all queries of a scene of forty, right answers. */
static void
check_serves_on(server *v, const scene *s, gg_index *index)
{
	uint64_t   *truth = ask(index, s, false, 10, 64, s->nq);
	flight		f = flight_make(s->nq, false, 10, 64, 0, 1, 0, truth);
	uint64_t	wrong = 0;
	uint64_t	all = 0;

	flight_submit(v, index, s, &f, 0);
	if (flight_wait(v, s, &f))
		flight_check(v, s, &f, &wrong, &all);
	CHECK(all > 0 && (double) wrong <= 0.002 * (double) all, "%llu of %llu differ after refusals",
		  (unsigned long long) wrong, (unsigned long long) all);
	free(truth);
}

/* check_memory: not the first time, when code is loaded that stays. */
static void
test_refuse_batches(bool check_memory)
{
	uint64_t	before = device_free();
	gg_server  *none = NULL;
	gg_index   *index;
	scene		s;
	server		v;

	serve_refuses_layouts(&gg_cuda_engine);
	serve_refuses_batches(&gg_cuda_engine);

	/* a server that comes after them serves */
	scene_make(&s, of_forty, 3);
	if (!server_open(&v, s.data.dim))
		return;
	index = scene_fill(&s, 0, 0);
	check_serves_on(&v, &s, index);
	server_close(&v);
	gg_cuda_engine.index_close(index);
	gg_cuda_engine.serve_close(NULL);

	CHECK(gg_cuda_engine.serve_open(9999, v.region.memory, v.region.bytes, &v.region.layout,
									&none).code == GG_ENODEVICE && none == NULL, "device 9999");
	CHECK(!check_memory || harness_small() || device_free() + (8 << 20) >= before,
		  "%llu bytes lost", (unsigned long long) (before - device_free()));
	scene_drop(&s);
}

/* ---- calls that CUDA refuses --------------------------------------------------------------- */

/* launches of clusters ask for more shared memory than any device has */
static bool greedy;

extern cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
											  void **arguments);
extern cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
											  void **arguments);

cudaError_t
__wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments)
{
	cudaLaunchConfig_t asked = *config;

	if (greedy)
		asked.dynamicSmemBytes = 1 << 20;
	return __real_cudaLaunchKernelExC(&asked, kernel, arguments);
}

/* Nobody may look for it on the device. */
static void
check_pinned(gg_status status, const char *bytes)
{
	CHECK(status.code == GG_ENOMEM && strstr(status.message, "pinned host memory") != NULL &&
		  strstr(status.message, bytes) != NULL, "code %d: %s", (int) status.code, status.message);
}

static void
test_pinned_memory(void)
{
	gg_serve_layout layout = refusals_layout;
	char	   *memory = aligned_alloc(REFUSALS_REGION, REFUSALS_REGION);
	gg_search_params params = {.k = 3,.itopk_size = 16};
	uint64_t	keys[3] = {0};
	gg_server  *refused = NULL;
	gg_index   *index;
	scene		s;

	scene_make(&s, of_forty, 3);
	index = scene_fill(&s, 0, 0);
	layout.slots = memory;
	unpinnable = true;
	check_pinned(gg_cuda_engine.serve_open(0, memory, REFUSALS_REGION, &layout, &refused),
				 "4096 bytes");
	CHECK(refused == NULL, "a server without memory");
	/* 64 of queries, on 256, and 24 of answers */
	check_pinned(gg_cuda_engine.index_search(index, &params, s.queries, 1, &control, keys),
				 "280 bytes");
	unpinnable = false;
	CHECK_OK(gg_cuda_engine.index_search(index, &params, s.queries, 1, &control, keys), "search");
	CHECK_OK(gg_cuda_engine.serve_open(0, memory, REFUSALS_REGION, &layout, &refused),
			 "serve_open");
	gg_cuda_engine.serve_close(refused);
	gg_cuda_engine.index_close(index);
	scene_drop(&s);
	free(memory);
}

static void
test_refused_launch(void)
{
	slot_batch	batch = {.count = 1,.k = 10,.itopk_size = 64,.slots = {3},.tickets = {7}};
	gg_index   *index;
	gg_status	status;
	bool		idle = false;
	scene		s;
	server		v;

	/* a sanitizer counts each call that fails as an error of the program */
	if (harness_small())
		return;
	scene_make(&s, of_forty, 3);
	if (!server_open(&v, s.data.dim))
		return;
	index = scene_fill(&s, 0, 0);
	memset(slot_query(&v.region, 3), 0, s.data.dim * sizeof(float));
	greedy = true;
	status = submit_slots(&v.region, index, 1, s.data.dim, &batch);
	greedy = false;
	CHECK(status.code == GG_EUNSUPPORTED && status.device_error != 0, "code %d, error %d: %s",
		  (int) status.code, status.device_error, status.message);
	CHECK_OK(gg_cuda_engine.serve_check(v.region.server, 1, &idle), "serve_check");
	CHECK(idle, "the queue is idle");
	CHECK(slot_done(&v, 3)[0] == UNTOUCHED, "a refused batch was answered");

	/* the device goes on, on the same queue */
	check_serves_on(&v, &s, index);
	server_close(&v);
	gg_cuda_engine.index_close(index);
	scene_drop(&s);
}

static void
test_bulk(void)
{
	const uint32_t some[] = {1, 31, 256};
	gg_index   *graph = refusals_index(&gg_cuda_engine, 4, 16);
	gg_index   *rows = refusals_index(&gg_cuda_engine, 0, 16);

	for (uint32_t i = 0; i < NSPECS; i += harness_small() ? 4 : 1)
	{
		const uint32_t ncounts = harness_small() ? 2 : 3;
		scene		s;
		gg_index   *index;

		scene_make(&s, specs[i], 900 + i);
		index = scene_fill(&s, 0, 0);
		for (uint32_t c = 0; c < ncounts && some[c] <= s.nq; c++)
		{
			bulk_answers(&gg_cuda_engine, index, true, GG_SEARCH_AUTO, s.data.dim, s.queries,
						 some[c], 10, 0, 1);
			if (s.graph.npivots > 0)
				for (int m = GG_SEARCH_AUTO; m <= GG_SEARCH_TSDG_LARGE; m++)
					bulk_answers(&gg_cuda_engine, index, false, (gg_search_mode) m, s.data.dim,
								 s.queries, some[c], 10, 48,
								 m < GG_SEARCH_TSDG_SMALL ? 0.998 : 1);
		}
		gg_cuda_engine.index_close(index);
		scene_drop(&s);
	}
	CHECK_OK(gg_cuda_engine.index_finish(graph, 5, NULL), "index_finish");
	CHECK_OK(gg_cuda_engine.index_finish(rows, 1, NULL), "index_finish");
	bulk_refusals(&gg_cuda_engine, graph, rows);
	gg_cuda_engine.index_close(rows);
	gg_cuda_engine.index_close(graph);
}

/* One query and lists of these indexes, of which not all can be walked. */
static void
check_groups(const scene *s, gg_index *const *indexes, const bool *measured, uint32_t distinct)
{
	static const struct
	{
		uint32_t	count;
		uint32_t	k;
		uint32_t	itopk;
	}			groups[] = {{3, 10, 64}, {12, 28, 64}, {300, 10, 32}, {7, 100, 200}, {1, 1, 1},
	{4, 1024, 1024}, {1100, 5, 16}};

	for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g += harness_fewest() ? 2 : 1)
	{
		/* for slow checkers the longest groups are those of little work */
		const uint32_t count = groups[g].count > 100 && harness_small() ?
			s->data.dim <= 128 ? 150 : 5 : groups[g].count;
		group_lists lists = group_repeat(indexes, measured, distinct, count);

		if (g == 5 && harness_small() && s->data.dim > 100)
			break;
		for (int mode = GG_SEARCH_AUTO; mode <= GG_SEARCH_TSDG_LARGE; mode++)
		{
			const gg_search_params params = {.k = groups[g].k,.itopk_size = groups[g].itopk,
											 .mode = (gg_search_mode) mode};

			if (mode != GG_SEARCH_AUTO && g > 1)
				break;
			group_answers(&gg_cuda_engine, &lists, s->data.dim, s->queries + g * s->data.dim,
						  &params, mode < GG_SEARCH_TSDG_SMALL ? 0.998 : 1);
		}
		group_lists_free(&lists);
	}
}

static void
test_group(void)
{
	for (uint32_t i = 0; i < NSPECS; i += harness_fewest() ? 5 : harness_small() ? 3 : 1)
	{
		const bool	measured[] = {false, true, true, false, false, true, false};
		scene_spec	spec = specs[i];
		scene		s;
		scene		other;
		scene		empty;
		gg_index   *indexes[7];

		if (spec.degree == 0)
			continue;
		spec.nq = 16;
		scene_make(&s, spec, 700 + i);
		/* of another kind, to walks */
		spec.n = spec.n / 2;
		spec.npivots = spec.npivots / 2;
		spec.degree = spec.degree - 4;
		scene_make(&other, spec, 800 + i);
		empty = s;
		empty.shape.degree = empty.shape.npivots = empty.data.n = 0;
		indexes[0] = scene_fill(&s, 0, 0);
		indexes[1] = indexes[0];
		indexes[2] = scene_fill(&empty, 3, 0);
		indexes[3] = scene_fill(&other, 0, 0);
		indexes[4] = NULL;
		empty.data.n = harness_size(200, 2);
		indexes[5] = scene_fill(&empty, 0, 0);
		indexes[6] = indexes[0];
		check_groups(&s, indexes, measured, 7);
		for (int x = 0; x < 6; x++)
			if (x != 1)
				gg_cuda_engine.index_close(indexes[x]);
		scene_drop(&other);
		scene_drop(&s);
	}
	group_refusals(&gg_cuda_engine);
}

/* Every metric and element, narrow and wide rows. */
static const deep_spec deep_specs[] = {
	{.n = 6000,.dim = 16},
	{.n = 5000,.dim = 3,.metric = GG_METRIC_L1,.coarse = true},
	{.n = 3000,.dim = 20,.metric = GG_METRIC_COSINE,.offsets = true},
	{.n = 2000,.dim = 33,.metric = GG_METRIC_IP,.element = GG_ELEMENT_F16,.offsets = true},
	{.n = 2000,.dim = 300,.metric = GG_METRIC_IP},
	{.n = 3000,.dim = 128,.element = GG_ELEMENT_F16},
	{.n = 2000,.dim = 700,.metric = GG_METRIC_COSINE,.element = GG_ELEMENT_F16,.spare = 77},
	{.n = 2000,.dim = 600,.metric = GG_METRIC_L1,.element = GG_ELEMENT_F16,.offsets = true},
	{.n = 150,.dim = 16000},
	{.n = 33,.dim = 4,.metric = GG_METRIC_COSINE,.coarse = true},
	{.n = 1,.dim = 4},
	{.n = 0,.dim = 4,.spare = 3}
};

static void
test_deep(void)
{
	const uint32_t count = sizeof(deep_specs) / sizeof(deep_specs[0]);

	for (uint32_t i = 0; i < count; i += harness_fewest() ? 6 : harness_small() ? 3 : 1)
	{
		const deep_spec spec = deep_fewer(deep_specs[i]);

		deep_test(&gg_cuda_engine, &spec, 1e-5);
	}
	deep_bad_offsets(&gg_cuda_engine);
	deep_refusals(&gg_cuda_engine);
	deep_without_bounds(&gg_cuda_engine);
}

/* Of an index without rows: keys have bounds, those of gg_code_bound(). */
static void
test_bounds(void)
{
	static const deep_spec specs[] = {
		{.n = 3000,.dim = 40,.graph = true,.codes = GG_CODES_INT4},
		{.n = 2000,.dim = 100,.metric = GG_METRIC_COSINE,.element = GG_ELEMENT_F16,.offsets = true,
			.graph = true,.codes = GG_CODES_INT4},
		{.n = 1001,.dim = 768,.element = GG_ELEMENT_F16,.graph = true,.codes = GG_CODES_INT8},
		{.n = 500,.dim = 3,.metric = GG_METRIC_COSINE,.spare = 5,.graph = true,
			.codes = GG_CODES_INT4},
		{.n = 2000,.dim = 96,.graph = true,.codes = GG_CODES_INT4,.mean = deep_mean},
		{.n = 2000,.dim = 33,.metric = GG_METRIC_COSINE,.element = GG_ELEMENT_F16,.graph = true,
			.codes = GG_CODES_INT8,.mean = deep_mean},
		{.n = 100,.dim = 16000,.graph = true,.codes = GG_CODES_INT4}
	};

	for (uint32_t i = 0; i < (harness_fewest() ? 6 : 7); i++)
	{
		const deep_spec spec = deep_fewer(specs[i]);

		deep_test(&gg_cuda_engine, &spec, spec.metric == GG_METRIC_COSINE ? 1e-5 : 0);
		if (!harness_small() || i < 2)
		{
			deep_several(&gg_cuda_engine, &spec, spec.metric == GG_METRIC_COSINE ? 1e-5 : 0);
			deep_many(&gg_cuda_engine, &spec, spec.metric == GG_METRIC_COSINE ? 1e-5 : 0);
		}
	}
}

/* Requests that share a filter; so wide rows, too, that queries do not share those. */
static void
test_several(void)
{
	const uint32_t count = sizeof(deep_specs) / sizeof(deep_specs[0]);

	for (uint32_t i = 0; i < count; i += harness_small() ? 3 : 1)
	{
		const deep_spec spec = deep_fewer(deep_specs[i]);

		deep_several(&gg_cuda_engine, &spec, 1e-5);
		deep_many(&gg_cuda_engine, &spec, 1e-5);
	}
}

/* Filters of few TIDs; the last one's rows take a block several rounds. */
static void
test_few_tids(void)
{
	static const deep_spec specs[] = {
		{.n = 5000,.dim = 16},
		{.n = 3000,.dim = 20,.metric = GG_METRIC_COSINE,.offsets = true},
		{.n = 700000,.dim = 3,.element = GG_ELEMENT_F16,.coarse = true}
	};

	for (uint32_t i = 0; i < (harness_small() ? 2 : 3); i++)
	{
		deep_spec	spec = specs[i];

		spec.n = harness_size(spec.n, 2);
		deep_few_tids(&gg_cuda_engine, &spec, 1e-5);
	}
}

/* So many rows that they are measured roughly first (prune.cu); the last ones tie. */
static void
test_pruned(void)
{
	static const deep_spec specs[] = {
		{.n = 50000,.dim = 20,.graph = true},
		{.n = 50001,.dim = 40,.metric = GG_METRIC_COSINE,.element = GG_ELEMENT_F16},
		{.n = 50000,.dim = 17,.metric = GG_METRIC_IP,.offsets = true,.graph = true},
		{.n = 65000,.dim = 130,.metric = GG_METRIC_COSINE,.graph = true},
		{.n = 50031,.dim = 35,.metric = GG_METRIC_IP,.element = GG_ELEMENT_F16,.spare = 50},
		{.n = 50000,.dim = 600,.element = GG_ELEMENT_F16,.graph = true},
		{.n = 50000,.dim = 16,.coarse = true,.graph = true}
	};
	static const uint32_t counts[] = {SEVERAL_MOST, 9, 8};
	const uint32_t count = sizeof(specs) / sizeof(specs[0]);

	for (uint32_t i = 0; i < count; i += harness_fewest() ? 10 : harness_small() ? 3 : 1)
		deep_pruned(&gg_cuda_engine, &specs[i], 1e-5, counts, harness_fewest() ? 2 : 3);
}

/* Rows that halves cannot tell apart, or cannot hold. */
static void
test_rough(void)
{
	static const struct
	{
		gg_metric	metric;
		gg_element	element;
		uint32_t	dim;
		deep_kind	kind;
	}			scenes[] = {
		{GG_METRIC_L2, GG_ELEMENT_F32, 13, DEEP_EQUAL},
		{GG_METRIC_L2, GG_ELEMENT_F32, 35, DEEP_CLOSE},
		{GG_METRIC_L2, GG_ELEMENT_F32, 20, DEEP_OFFSET},
		{GG_METRIC_L2, GG_ELEMENT_F32, 16, DEEP_LARGE},
		{GG_METRIC_L2, GG_ELEMENT_F32, 15, DEEP_HUGE},
		{GG_METRIC_L2, GG_ELEMENT_F32, 17, DEEP_TINY},
		{GG_METRIC_L2, GG_ELEMENT_F32, 27, DEEP_TINIEST},
		{GG_METRIC_L2, GG_ELEMENT_F32, 24, DEEP_LENGTHS},
		{GG_METRIC_L2, GG_ELEMENT_F32, 14, DEEP_OUTLIERS},
		{GG_METRIC_IP, GG_ELEMENT_F32, 33, DEEP_EQUAL},
		{GG_METRIC_IP, GG_ELEMENT_F32, 18, DEEP_CLOSE},
		{GG_METRIC_IP, GG_ELEMENT_F32, 19, DEEP_OFFSET},
		{GG_METRIC_IP, GG_ELEMENT_F32, 40, DEEP_LARGE},
		{GG_METRIC_IP, GG_ELEMENT_F32, 22, DEEP_HUGE},
		{GG_METRIC_IP, GG_ELEMENT_F32, 23, DEEP_TINY},
		{GG_METRIC_IP, GG_ELEMENT_F32, 28, DEEP_TINIEST},
		{GG_METRIC_IP, GG_ELEMENT_F32, 31, DEEP_LENGTHS},
		{GG_METRIC_COSINE, GG_ELEMENT_F32, 66, DEEP_EQUAL},
		{GG_METRIC_COSINE, GG_ELEMENT_F32, 21, DEEP_CLOSE},
		{GG_METRIC_COSINE, GG_ELEMENT_F32, 30, DEEP_OFFSET},
		{GG_METRIC_L2, GG_ELEMENT_F16, 7, DEEP_EQUAL},
		{GG_METRIC_L2, GG_ELEMENT_F16, 25, DEEP_OFFSET},
		{GG_METRIC_L2, GG_ELEMENT_F16, 39, DEEP_LARGE},
		{GG_METRIC_L2, GG_ELEMENT_F16, 9, DEEP_TINY},
		{GG_METRIC_IP, GG_ELEMENT_F16, 50, DEEP_EQUAL},
		{GG_METRIC_IP, GG_ELEMENT_F16, 8, DEEP_LARGE},
		{GG_METRIC_COSINE, GG_ELEMENT_F16, 10, DEEP_TINY},
		{GG_METRIC_COSINE, GG_ELEMENT_F16, 34, DEEP_LENGTHS},
		{GG_METRIC_L1, GG_ELEMENT_F32, 20, DEEP_EQUAL},
		{GG_METRIC_L2, GG_ELEMENT_F32, 12, DEEP_EQUAL}
	};
	/* so wide that it is worth while for one query, too */
	static const deep_spec wide = {.n = 180000,.dim = 1030,.graph = true,.kind = DEEP_CLOSE};

	/* the emulated device needs fewer rows for it */
	const uint32_t n = harness_fewest() ? 7000 : 28000;

	/* slow checkers: some; on the emulated device every kind, metric and element is among them */
	for (uint32_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]);
		 i += harness_fewest() ? 2 : harness_small() ? 3 : 1)
	{
		const deep_spec spec = {.n = n + i,.dim = scenes[i].dim,.metric = scenes[i].metric,
			.element = scenes[i].element,.graph = true,.kind = scenes[i].kind};

		deep_rough(&gg_cuda_engine, &spec);
	}
	if (!harness_small())
		deep_rough(&gg_cuda_engine, &wide);
}

/* More rows than one slab has; many tie, so that all digits of a key count. */
static void
test_deep_slabs(void)
{
	static const deep_spec spec = {.n = ((uint32_t) 2 << 22) + 12345,.dim = 4,
		.metric = GG_METRIC_L1,.coarse = true,.spare = 5};
	gg_filter  *filter;
	uint64_t   *tids;
	deep_scene	s;

	if (harness_small() || !deep_make(&s, &gg_cuda_engine, &spec, 0) || !deep_open(&s))
		return;
	filter = malloc(sizeof(gg_filter));
	tids = malloc((size_t) spec.n * sizeof(uint64_t));
	deep_read(&s, NULL, GG_MAX_DEEP, 4, "several slabs");
	deep_read(&s, NULL, 16384, 3, "several slabs");
	for (int f = 0; f < DEEP_FILTERS; f += 4)
	{
		const char *what = deep_filter(&s, f, filter, tids);

		deep_read(&s, filter, 100, 1, what);
		deep_read(&s, filter, 16384, 2, what);
	}
	deep_free(&s);
	free(tids);
	free(filter);
}

static void
test_devices(void)
{
	int			count = 0;
	gg_device_info info;

	CHECK_OK(gg_cuda_engine.device_count(&count), "device_count");
	CHECK(count > 0, "%d devices", count);
	CHECK_OK(gg_cuda_engine.device_info(0, &info), "device_info");
	CHECK(info.name[0] != '\0' && info.total_bytes > info.free_bytes && info.free_bytes > 0,
		  "%s: %llu of %llu", info.name, (unsigned long long) info.free_bytes,
		  (unsigned long long) info.total_bytes);
	printf("# %s, %llu of %llu MB free\n", info.name, (unsigned long long) (info.free_bytes >> 20),
		   (unsigned long long) (info.total_bytes >> 20));
	CHECK(gg_cuda_engine.device_info(count, &info).code != GG_OK, "a device too many");
}

/* Of a device that shares the host's memory: test_device_memory has the cases. */
static void
test_integrated(void)
{
	const uint64_t host = (uint64_t) sysconf(_SC_PHYS_PAGES) * (uint64_t) sysconf(_SC_PAGESIZE);
	gg_device_info info;

	CHECK_OK(gg_cuda_engine.device_info(0, &info), "device_info");
	if (strcmp(info.name, "emulated device") != 0)
		return;
	(void) setenv("GG_EMULATE_INTEGRATED", "1", 1);
	CHECK_OK(gg_cuda_engine.device_info(0, &info), "device_info");
	CHECK(info.total_bytes <= host / 2 && info.free_bytes <= info.total_bytes &&
		  info.free_bytes > 0, "%llu of %llu, of the host %llu",
		  (unsigned long long) info.free_bytes, (unsigned long long) info.total_bytes,
		  (unsigned long long) host);
	(void) unsetenv("GG_EMULATE_INTEGRATED");
}

static void
test_refused_batches(void)
{
	test_refuse_batches(false);
	test_refuse_batches(true);
}

static void
test_release(void)
{
	test_prefixes();
	/* what a release leaves behind must not be taken for what the next context knows */
	gg_cuda_engine.release();
	test_prefixes();
}

int
main(void)
{
	/* a host without a GPU proves nothing: say so, and fail */
	if (!CHECK_OK(gg_cuda_engine.probe(GG_USE_SEARCH), "probe"))
		return harness_finish();
	harness_run("devices", test_devices);
	harness_run("integrated", test_integrated);
	harness_run("fill, edges", test_fill_edges);
	harness_run("fill", test_fill);
	harness_run("take", test_take);
	harness_run("refused shapes", test_refuse_shapes);
	harness_run("refused batches", test_refused_batches);
	harness_run("refused launch", test_refused_launch);
	harness_run("pinned memory", test_pinned_memory);
	harness_run("prefixes", test_prefixes);
	harness_run("build", test_build);
	/* for slow checkers fewer scenes, and each piece a part of its own */
	for (serving.scene = 0; serving.scene < NSPECS; serving.scene += harness_small() ? 3 : 1)
		for (serving.piece = harness_small() ? 0 : -1; serving.piece < NPIECES; serving.piece++)
		{
			harness_run("serve", test_serve);
			if (serving.piece < 0)
				break;
		}
	harness_run("bulk", test_bulk);
	harness_run("group", test_group);
	harness_run("deep", test_deep);
	harness_run("bounds", test_bounds);
	harness_run("deep, slabs", test_deep_slabs);
	harness_run("several requests", test_several);
	harness_run("few TIDs", test_few_tids);
	harness_run("pruned", test_pruned);
	harness_run("rough", test_rough);
	harness_run("fill beside", test_fill_beside);
	harness_run("release", test_release);
	return harness_finish();
}
