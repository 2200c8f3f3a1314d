/*
 * serve_take.h
 *		Indexes that take their first rows from another, where these are the first or come after
 *		others: they answer as one that was written whole, bit by bit, and their filters let through
 *		what they should.  What is refused.  For all engines.
 */
#ifndef SERVE_TAKE_H
#define SERVE_TAKE_H

#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "serve_bulk.h"
#include "serve_deep.h"

#define TAKE_ROWS 300u
#define TAKE_K 40u

/* What the rows of an index have beside their vectors. */
typedef struct take_kind
{
	bool		heads;
	uint32_t	words;
} take_kind;

/* Rows [first, last) of the scene, to place `at` on. */
static inline void
take_write(const deep_scene *s, gg_index *index, const gg_shape *shape, uint32_t first,
		   uint32_t last, uint32_t at)
{
	const size_t row = shape->dim * gg_element_size(shape->element);
	const uint64_t count = last - first;

	CHECK_OK(s->engine->index_write(index, GG_PART_ROWS, at * row,
									(char *) s->vectors + first * row, count * row), "rows");
	if (shape->rows > 0)
		CHECK_OK(s->engine->index_write(index, GG_PART_TIDS, at * sizeof(uint64_t),
										s->heads + first, count * sizeof(uint64_t)), "heads");
	for (uint32_t w = 0; w < shape->words; w++)
		CHECK_OK(s->engine->index_write(index, GG_PART_FILTERS,
										((uint64_t) w * shape->rows + at) * sizeof(int64_t),
										s->words + (size_t) w * s->stride + first,
										count * sizeof(int64_t)), "words");
}

/* Of that kind, with room for so many of the scene's rows. */
static inline gg_shape
take_shape(const deep_scene *s, take_kind kind, uint32_t capacity)
{
	return (gg_shape) {.capacity = capacity,.dim = s->spec.dim,.element = s->spec.element,
					   .metric = s->spec.metric,.rows = kind.heads ? capacity : 0,
					   .words = kind.words};
}

/*
 * The first `taken` rows come from an index that has `before` of them, behind `skip` others; the
 * rest is written.
 */
static inline gg_index *
take_make(const deep_scene *s, take_kind kind, uint32_t skip, uint32_t before, uint32_t taken)
{
	const gg_engine *engine = s->engine;
	const gg_shape old = take_shape(s, kind, skip + before + 3);
	const gg_shape shape = take_shape(s, kind, s->spec.n + 70);
	gg_index   *from = NULL;
	gg_index   *index = NULL;

	if (!CHECK_OK(engine->index_create(&old, &from), "index_create") ||
		!CHECK_OK(engine->index_create(&shape, &index), "index_create"))
		return NULL;
	take_write(s, from, &old, 100, 100 + skip, 0);
	take_write(s, from, &old, 0, before, skip);
	CHECK_OK(engine->index_finish(from, skip + before, NULL), "index_finish");
	CHECK_OK(engine->index_take(index, from, skip, taken), "index_take");
	engine->index_close(from);
	take_write(s, index, &shape, taken, s->spec.n, taken);
	CHECK_OK(engine->index_finish(index, s->spec.n, NULL), "index_finish");
	return index;
}

/* Exact answers over it, as nodes, then as distances. */
static inline uint32_t *
take_exact(const deep_scene *s, gg_index *index)
{
	uint32_t   *answers = calloc(2 * TAKE_K, sizeof(uint32_t));

	CHECK_OK(harness_exact(s->engine, index, TAKE_K, NULL, s->query, 1, NULL, answers, (float *)
						   answers + TAKE_K), "index_exact");
	return answers;
}

/* Each filter that looks at no more words than there are, against the truth. */
static inline void
take_filtered(deep_scene *s, uint32_t words)
{
	gg_filter  *filter = malloc(sizeof(gg_filter));
	uint64_t   *tids = malloc(s->rows * sizeof(uint64_t));

	deep_read(s, NULL, TAKE_K, 2, "taken, all");
	for (int f = 0; f < DEEP_FILTERS; f++)
	{
		const char *what = deep_filter(s, f, filter, tids);
		uint32_t	used = 0;

		for (uint32_t i = 0; i < filter->nconditions; i++)
		{
			const gg_condition *c = &filter->conditions[i];
			const uint32_t end = c->kind == GG_CONDITION_NULL ||
				c->kind == GG_CONDITION_NOT_NULL ? 0 :
				c->word + (c->kind == GG_CONDITION_MASK ? GG_MASK_WORDS : 1);

			used = end > used ? end : used;
		}
		if (used <= words)
			deep_read(s, filter, TAKE_K, 2, what);
	}
	free(tids);
	free(filter);
}

static inline void
take_rows(const gg_engine *engine, uint32_t dim, gg_metric metric, gg_element element)
{
	static const take_kind kinds[] = {{false, 0}, {true, 0}, {true, 2}, {true, DEEP_WORDS}};
	/* rows to skip in the other index, rows behind them, rows taken */
	static const uint32_t counts[][3] = {
		{0, 0, 0}, {0, 50, 0}, {7, 0, 0}, {0, 1, 1}, {0, 129, 129}, {33, 129, 129}, {0, 200, 77},
		{64, 200, 77}, {0, TAKE_ROWS, TAKE_ROWS}
	};
	const deep_spec spec = {.n = TAKE_ROWS,.dim = dim,.metric = metric,.element = element};
	uint32_t   *whole;
	gg_index   *own;
	deep_scene	s;

	if (!deep_make(&s, engine, &spec, 1e-5) || !deep_open(&s))
		return;
	own = s.index;
	whole = take_exact(&s, own);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
		{
			uint32_t   *exact;

			s.index = take_make(&s, kinds[i], counts[c][0], counts[c][1], counts[c][2]);
			if (s.index == NULL)
				return;
			exact = take_exact(&s, s.index);
			CHECK(memcmp(exact, whole, 2 * TAKE_K * sizeof(uint32_t)) == 0,
				  "dim %u element %d, %u of %u rows taken: exact answers differ", dim,
				  (int) element, counts[c][2], counts[c][1]);
			if (kinds[i].heads)
				take_filtered(&s, kinds[i].words);
			free(exact);
			engine->index_close(s.index);
		}
	s.index = own;
	free(whole);
	deep_free(&s);
}

/* ---- refusals ------------------------------------------------------------------------- */

/* A call of index_take(). */
typedef struct take_call
{
	gg_shape	to;
	gg_shape	from;
	uint32_t	rows;			/* that `from` is finished with */
	uint32_t	first;
	uint32_t	n;
	bool		to_finished;
	bool		from_finished;
} take_call;

/* What call number i has wrong; false: there are no more. */
static inline bool
take_spoil(int i, take_call *call)
{
	switch (i)
	{
		case 0: call->to_finished = true; break;
		case 1: call->from_finished = false; break;
		case 2: call->to.capacity = call->to.rows = call->n - 1; break;
		case 3: call->n = call->rows + 1; break;	/* within its capacity */
		case 4: call->to.degree = call->to.npivots = 1; break;
		case 5: call->from.degree = call->from.npivots = 1, call->rows = call->n = 0; break;
		case 6: call->to.offsets = true; break;
		case 7: call->from.offsets = true; break;
		case 8: call->from.dim++; break;
		case 9: call->from.element = GG_ELEMENT_F16; break;
		case 10: call->from.metric = GG_METRIC_IP; break;
		case 11: call->from.words--; break;
		case 12: call->from.rows = call->from.words = call->to.words = 0; break;
		case 13: call->to.rows = call->from.words = call->to.words = 0; break;
		case 14: call->first = 1; break;
		case 15: call->first = UINT32_MAX; break;
		default: return false;
	}
	return true;
}

static inline gg_code
take_try(const gg_engine *engine, const take_call *call)
{
	static const char zeros[1024];
	gg_index   *index = NULL;
	gg_index   *from = NULL;
	gg_code		code;

	if (!CHECK_OK(engine->index_create(&call->to, &index), "index_create") ||
		!CHECK_OK(engine->index_create(&call->from, &from), "index_create"))
		return GG_ENOMEM;
	CHECK_OK(engine->index_write(from, GG_PART_ROWS, 0, zeros, call->from.capacity *
								 call->from.dim * gg_element_size(call->from.element)), "rows");
	CHECK_OK(engine->index_write(from, GG_PART_TIDS, 0, zeros, call->from.rows * 8), "heads");
	CHECK_OK(engine->index_write(from, GG_PART_FILTERS, 0, zeros,
								 call->from.rows * call->from.words * 8), "words");
	if (call->to_finished)
		CHECK_OK(engine->index_finish(index, 0, NULL), "index_finish");
	if (call->from_finished)
		CHECK_OK(engine->index_finish(from, call->rows, NULL), "index_finish");
	code = engine->index_take(index, from, call->first, call->n).code;
	engine->index_close(from);
	engine->index_close(index);
	return code;
}

static inline void
take_refusals(const gg_engine *engine)
{
	const gg_shape shape = {.capacity = 20,.dim = 5,.element = GG_ELEMENT_F32,
							.metric = GG_METRIC_L2,.rows = 20,.words = 2};
	const take_call good = {.to = shape,.from = shape,.rows = 10,.n = 10,.from_finished = true};

	for (int i = 0;; i++)
	{
		take_call	bad = good;

		if (!take_spoil(i, &bad))
			break;
		CHECK(take_try(engine, &bad) == GG_EINVAL, "call %d of index_take()", i);
	}
	CHECK(take_try(engine, &good) == GG_OK, "a good one");
}

static inline void
take_test(const gg_engine *engine)
{
	take_rows(engine, 5, GG_METRIC_L2, GG_ELEMENT_F32);
	take_rows(engine, 5, GG_METRIC_IP, GG_ELEMENT_F16);
	if (!harness_fewer())
	{
		take_rows(engine, 33, GG_METRIC_COSINE, GG_ELEMENT_F32);
		take_rows(engine, 16, GG_METRIC_L1, GG_ELEMENT_F16);
	}
	take_refusals(engine);
}

#endif							/* SERVE_TAKE_H */
