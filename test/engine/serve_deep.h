/*
 * serve_deep.h
 *		Deep and filtered lists of any engine against a plain sort: every metric and element,
 *		ties, nodes of several rows and of none, each kind of condition, lists of TIDs, lists that
 *		go on where one ended, and what is refused.
 *
 * Distances of a device may differ in their last bits.  So an answer is checked by what it means:
 * keys ascend, each is that of a node which matches, its distance is the node's to 1e-5 of what
 * went into the sum, distances at each rank are the sorted ones' as closely, and a list read to its
 * end has every matching node once.
 */
#ifndef SERVE_DEEP_H
#define SERVE_DEEP_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/engine/keys.h"
#include "../../src/engine/rules/codes.h"

#include "harness.h"
#include "serve_bulk.h"

#define DEEP_WORDS 6u			/* a range, a list, a mask of four */
#define DEEP_MASK 2u			/* the mask's first word */
#define DEEP_QUEUE 1u

/*
 * Rows around eight centres, so that many are as far from a query, or nearly so, and roundings
 * decide between them.
 */
typedef enum deep_kind
{
	DEEP_RANDOM = 0,			/* no centres */
	DEEP_EQUAL,					/* each is a centre */
	DEEP_CLOSE,					/* within a 100,000th of it */
	DEEP_OFFSET,				/* all share an offset 300 times as large as the rest */
	DEEP_LARGE,					/* elements near the end of float16, or far beyond it */
	DEEP_HUGE,					/* squares near and beyond the end of float32 */
	DEEP_TINY,					/* elements near 1e-8; of float16, its smallest ones */
	DEEP_TINIEST,				/* squares near and below the least of float32 */
	DEEP_LENGTHS,				/* a third are very short; the others come with their opposites */
	DEEP_OUTLIERS				/* a few rows so long that halves have nothing left of others */
} deep_kind;

typedef struct deep_spec
{
	uint32_t	n;
	uint32_t	dim;
	gg_metric	metric;			/* 0: L2 */
	gg_element	element;		/* 0: float32 */
	bool		offsets;
	bool		coarse;			/* few distinct values: distances tie, and are exact */
	uint32_t	spare;			/* rows that there is memory for beyond n */
	bool		graph;			/* of a kind: engines then keep what walks read, too */
	deep_kind	kind;
	gg_codes	codes;			/* and no rows: keys then have bounds.  It takes a graph */
	const float *mean;			/* of dim elements, that these are centred by; or NULL */
} deep_spec;

/* One for up to 100 dimensions. */
static const float deep_mean[100] __attribute__((unused)) = {
	[0 ... 49] = 0.4f, [50 ... 99] = -0.3f
};

#define DEEP_CODE_SEED 99u

typedef struct deep_scene
{
	const gg_engine *engine;
	bulk_region region;			/* of deep_open() */
	size_t		keys_at;		/* in it, with room for GG_MAX_DEEP */
	size_t		tids_at;		/* in it, for several requests: SEVERAL_TIDS of each; 0: none */
	deep_spec	spec;
	double		tolerance;		/* of distances; 0: all bits are the same */
	gg_index   *index;
	void	   *vectors;
	float	   *query;			/* as given */
	uint32_t	rows;
	uint32_t   *offsets;		/* always there: n + 1 */
	uint64_t   *heads;
	int64_t    *words;			/* DEEP_WORDS x stride */
	uint32_t	stride;
	float	   *distances;		/* of each node */
	float		scale;			/* of the largest distance's sum */
	uint64_t   *sorted;			/* keys of nodes that match, ascending */
	uint32_t	nsorted;
	uint32_t	nmatches;
	bool	   *matches;		/* of each node */
} deep_scene;

static inline uint64_t
deep_random(uint64_t *state)
{
	uint64_t	x = (*state += 0x9E3779B97F4A7C15u);

	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
	return x ^ (x >> 31);
}

/* The opposite of gg_tid_key(), with NULL bits. */
static inline uint64_t
deep_head(uint64_t tid, uint64_t nulls)
{
	return (tid >> 32 & 0xFFFF) | (tid >> 16 & 0xFFFF) << 16 | (tid & 0xFFFF) << 32 | nulls << 48;
}

static inline uint64_t
deep_tid(uint32_t row)
{
	return (uint64_t) (row / 50 * 977u) << 16 | (row % 50 + 1);
}

static inline float
deep_value(const deep_spec *spec, uint64_t *random)
{
	uint64_t	r = deep_random(random);

	return spec->coarse ? (float) (r % 4) : (float) (r % 20001) / 10000 - 1;
}

/* Row i. */
static inline void
deep_vector(const deep_spec *spec, uint32_t i, uint64_t *random, float *row)
{
	const bool	halves = spec->element == GG_ELEMENT_F16;
	const uint32_t third = i / 32 % 3;
	uint32_t	centre = (uint32_t) (deep_random(random) % 8);
	float		size = 1;
	float		spread = 1e-5f;
	float		offset = 0;

	switch (spec->kind)
	{
		case DEEP_EQUAL:
			spread = 0;
			break;
		case DEEP_OFFSET:
			offset = 300;
			break;
		case DEEP_LARGE:
			size = halves ? 6e4f : 1e15f;
			break;
		case DEEP_HUGE:
			size = halves ? 6e4f : 8e18f;
			break;
		case DEEP_TINY:
			size = halves ? 1e-6f : 1e-8f;
			break;
		case DEEP_TINIEST:
			size = 2e-22f;
			break;
		case DEEP_OUTLIERS:
			size = i % 1000 == 0 ? 1e9f : 1;
			break;
		case DEEP_LENGTHS:
			/* their mean is 0, so that halves of the short ones are few multiples of the least */
			size = third == 0 ? 1 : third == 1 ? -1 : ldexpf(1, halves ? -10 : -34);
			spread = 0;
			centre = third < 2 ? i % 8 : centre;
			break;
		default:
			break;
	}
	for (uint32_t d = 0; d < spec->dim; d++)
	{
		uint64_t	seed = d * 8 + centre;

		row[d] = deep_value(spec, random);
		if (spec->kind != DEEP_RANDOM)
			row[d] = offset + size * (deep_value(spec, &seed) + spread * row[d]);
	}
}

/*
 * Near a row, a short one if there are such.  Every other query is one that float16 can hold, so
 * that rows alone are rounded.
 */
static inline void
deep_query_near(const deep_spec *spec, uint64_t *random, float *query)
{
	const bool	rounded = deep_random(random) % 2 == 0;
	const float away = (float) (deep_random(random) % 5) / 5;

	deep_vector(spec, 64, random, query);
	for (uint32_t d = 0; d < spec->dim; d++)
	{
		query[d] += query[d] * away * deep_value(spec, random);
		if (rounded && fabsf(query[d]) < 65000)
			query[d] = gg_half_to_float(gg_float_to_half(query[d]));
	}
}

static inline void
deep_rows(deep_scene *s, uint64_t *random)
{
	const uint32_t n = s->spec.n;

	s->offsets = malloc((n + 1) * sizeof(uint32_t));
	s->offsets[0] = 0;
	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t	r = (uint32_t) (deep_random(random) % 8);

		/* half of them have one row, one has many */
		s->offsets[i + 1] = s->offsets[i] +
			(!s->spec.offsets ? 1 : i == n / 3 ? 200 : r < 4 ? 1 : r - 4);
	}
	s->rows = s->offsets[n];
	s->stride = s->spec.offsets ? s->rows + s->spec.spare : n + s->spec.spare;
	s->heads = calloc(s->stride, sizeof(uint64_t));
	s->words = calloc((size_t) DEEP_WORDS * s->stride, sizeof(int64_t));
	for (uint32_t row = 0; row < s->rows; row++)
	{
		uint64_t	nulls = deep_random(random) & deep_random(random) & deep_random(random) & 7;

		/* every tenth row was cleared by VACUUM */
		s->heads[row] = deep_head(deep_random(random) % 10 == 0 ? 0 : deep_tid(row), nulls);
		s->words[row] = (int64_t) (deep_random(random) % 2000) - 1000;
		s->words[s->stride + row] = (int64_t) (deep_random(random) % 500) * 1000003 - 250000000;
		for (uint32_t w = 0; w < GG_MASK_WORDS; w++)
			s->words[(size_t) (DEEP_MASK + w) * s->stride + row] =
				(int64_t) (deep_random(random) & deep_random(random));
	}
}

static inline void
deep_vectors(deep_scene *s, uint64_t *random)
{
	const deep_spec *spec = &s->spec;
	const size_t bytes = spec->dim * gg_element_size(spec->element);
	float	   *row = malloc(spec->dim * sizeof(float));

	s->vectors = malloc((size_t) spec->n * bytes);
	s->query = malloc(spec->dim * sizeof(float));
	s->distances = malloc(spec->n * sizeof(float));
	s->scale = (float) spec->dim;
	for (uint32_t i = 0; i < spec->n; i++)
	{
		char	   *to = (char *) s->vectors + i * bytes;

		deep_vector(spec, i, random, row);
		if (spec->metric == GG_METRIC_COSINE && spec->element == GG_ELEMENT_F32)
			gg_query_prepare(spec->metric, row, spec->dim);
		for (uint32_t d = 0; d < spec->dim; d++)
			if (spec->element == GG_ELEMENT_F16)
				((uint16_t *) to)[d] = gg_float_to_half(row[d]);
			else
				((float *) to)[d] = row[d];
	}
	free(row);
}

/* Of each node its bound, from codes that are made here. */
static inline void
deep_bounds(deep_scene *s, const float *query)
{
	const deep_spec *spec = &s->spec;
	const size_t bytes = spec->dim * gg_element_size(spec->element);
	const gg_code_kind kind = {spec->metric, spec->dim, spec->codes, DEEP_CODE_SEED, spec->mean};
	float	   *scratch = malloc(2 * spec->dim * sizeof(float));
	gg_code_bounds bounds;
	gg_code_query code;
	gg_coder	coder;
	uint8_t    *record;

	CHECK_OK(gg_coder_init(&coder, &kind), "gg_coder_init");
	CHECK_OK(gg_code_query_init(&coder, &code), "gg_code_query_init");
	record = malloc(coder.record_bytes);
	gg_code_query_set(&coder, query, scratch, &code);
	bounds = gg_code_bounds_of(spec->metric, spec->mean != NULL, spec->dim, code.unit, code.base);
	for (uint32_t i = 0; i < spec->n; i++)
	{
		gg_code_row(&coder, (const char *) s->vectors + i * bytes, spec->element, scratch, record);
		s->distances[i] = gg_code_bound(&coder, record, &code, &bounds);
	}
	gg_code_query_free(&code);
	gg_coder_free(&coder);
	free(record);
	free(scratch);
}

/* Another query; of each node its distance. */
static inline void
deep_new_query(deep_scene *s, uint64_t *random)
{
	const deep_spec *spec = &s->spec;
	const size_t bytes = spec->dim * gg_element_size(spec->element);
	float	   *prepared = malloc(spec->dim * sizeof(float));
	gg_distance_fn distance = gg_distance_function(spec->metric, spec->element);

	for (uint32_t d = 0; d < spec->dim; d++)
		s->query[d] = deep_value(spec, random) * 2;
	memcpy(prepared, s->query, spec->dim * sizeof(float));
	gg_query_prepare(spec->metric, prepared, spec->dim);
	for (uint32_t i = 0; i < spec->n; i++)
		s->distances[i] = distance((const char *) s->vectors + i * bytes, prepared, spec->dim);
	if (spec->codes != GG_CODES_NONE)
		deep_bounds(s, prepared);
	free(prepared);
}

static inline void
deep_write(deep_scene *s, gg_part part, const void *src, uint64_t bytes)
{
	/* where rows become codes, pieces are of whole ones */
	const uint64_t row = s->spec.dim * gg_element_size(s->spec.element);
	const uint64_t piece = part == GG_PART_ROWS && s->spec.codes != GG_CODES_NONE ?
		(100003 / row + 1) * row : 100003;

	for (uint64_t at = 0; at < bytes; at += piece)
		CHECK_OK(s->engine->index_write(s->index, part, at, (const char *) src + at,
										bytes - at < piece ? bytes - at : piece), "index_write");
}

/* No graph that leads anywhere. */
static inline void
deep_write_graph(deep_scene *s)
{
	const uint32_t pivot[1 + GG_PIVOT_DEGREE] = {0};
	uint32_t   *ring = malloc(s->spec.n * sizeof(uint32_t));

	for (uint32_t i = 0; i < s->spec.n; i++)
		ring[i] = (i + 1) % s->spec.n;
	deep_write(s, GG_PART_ADJACENCY, ring, s->spec.n * sizeof(uint32_t));
	deep_write(s, GG_PART_PIVOTS, pivot, sizeof(pivot));
	free(ring);
}

static inline bool
deep_make(deep_scene *s, const gg_engine *engine, const deep_spec *given, double tolerance)
{
	const deep_spec *const spec = &s->spec;
	gg_shape	shape;
	uint64_t	bytes;
	uint64_t	random = given->n * 31 + given->dim;

	memset(s, 0, sizeof(*s));
	s->engine = engine;
	s->spec = *given;
	s->spec.metric = given->metric ? given->metric : GG_METRIC_L2;
	s->spec.element = given->element ? given->element : GG_ELEMENT_F32;
	s->tolerance = spec->coarse && spec->metric != GG_METRIC_COSINE ? 0 : tolerance;
	deep_rows(s, &random);
	deep_vectors(s, &random);
	deep_new_query(s, &random);
	s->matches = malloc(spec->n);
	s->sorted = malloc(spec->n * sizeof(uint64_t));
	shape = (gg_shape) {.capacity = spec->n + spec->spare,.dim = spec->dim,
		.element = spec->element,.metric = spec->metric,.degree = spec->graph,
		.npivots = spec->graph,.codes = spec->codes,.code_seed = DEEP_CODE_SEED,
		.code_mean = spec->mean,
		.row_place = spec->codes != GG_CODES_NONE ? GG_ROWS_NONE : GG_ROWS_DEVICE};
	bytes = engine->shape_bytes(&shape);
	shape.rows = s->stride;
	shape.words = DEEP_WORDS;
	shape.offsets = spec->offsets;
	CHECK(engine->shape_bytes(&shape) >= bytes +
		  (uint64_t) s->stride * 8 * (1 + DEEP_WORDS) + (spec->offsets ? spec->n * 4 : 0),
		  "a shape counts heads, offsets and words");
	if (!CHECK_OK(engine->index_create(&shape, &s->index), "index_create"))
		return false;
	deep_write(s, GG_PART_ROWS, s->vectors,
			   (uint64_t) spec->n * spec->dim * gg_element_size(spec->element));
	deep_write(s, GG_PART_TIDS, s->heads, (uint64_t) s->stride * 8);
	if (spec->offsets)
		deep_write(s, GG_PART_OFFSETS, s->offsets, (uint64_t) (spec->n + 1) * 4);
	if (spec->graph)
		deep_write_graph(s);
	deep_write(s, GG_PART_FILTERS, s->words, (uint64_t) DEEP_WORDS * s->stride * 8);
	CHECK_OK(engine->index_finish(s->index, spec->n, NULL), "index_finish");
	/* rows that fp16 cannot tell apart have no copy in it */
	CHECK(engine->index_bytes(s->index) == engine->shape_bytes(&shape) ||
		  (spec->kind != DEEP_RANDOM &&
		   engine->index_bytes(s->index) < engine->shape_bytes(&shape)), "bytes taken");
	return true;
}

static inline void
deep_free(deep_scene *s)
{
	if (s->region.memory != NULL)
		bulk_close(&s->region);
	s->engine->index_close(s->index);
	free(s->vectors);
	free(s->query);
	free(s->offsets);
	free(s->heads);
	free(s->words);
	free(s->distances);
	free(s->matches);
	free(s->sorted);
}

/*
 * A region whose slots have room for the query; behind them bytes for the answers: keys, then the
 * number of matches.
 */
static inline bool
deep_open_slots(deep_scene *s, uint32_t nslots, size_t bytes)
{
	const size_t slot = (320 + (size_t) s->spec.dim * 4 + 63) / 64 * 64;

	const size_t filters = nslots * DEEP_FILTER_ROOM;

	s->keys_at = (nslots * slot + 4095) / 4096 * 4096;
	if (!bulk_open_slots(&s->region, s->engine, s->keys_at + filters + (bytes + 63) / 64 * 64,
						 nslots, slot))
		return false;
	s->region.filters = s->keys_at + (bytes + 63) / 64 * 64;
	return true;
}

static inline bool
deep_open(deep_scene *s)
{
	const size_t slot = (320 + (size_t) s->spec.dim * 4 + 63) / 64 * 64;

	if (!deep_open_slots(s, 2, GG_MAX_DEEP * 8 + 64))
		return false;
	memcpy(s->region.memory + slot + s->region.query, s->query, s->spec.dim * 4);
	return true;
}

/* ---- what is to be found --------------------------------------------------------- */

static inline int
deep_compare(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return x < y ? -1 : x > y;
}

static inline void
deep_expect(deep_scene *s, const gg_filter *filter)
{
	s->nsorted = 0;
	s->nmatches = filter == NULL ? s->spec.n : 0;
	for (uint32_t i = 0; i < s->spec.n; i++)
	{
		s->matches[i] = filter == NULL;
		for (uint32_t row = s->offsets[i]; filter != NULL && row < s->offsets[i + 1]; row++)
			if (harness_matches(filter, s->heads, s->words, s->stride, row))
			{
				s->matches[i] = true;
				s->nmatches++;
			}
		if (s->matches[i])
			s->sorted[s->nsorted++] = key_of(s->distances[i], i);
	}
	qsort(s->sorted, s->nsorted, sizeof(uint64_t), deep_compare);
}

/* ---- asking ------------------------------------------------------------------------- */

static inline bool
deep_near(const deep_scene *s, float a, float b)
{
	return a == b || fabs((double) a - b) <= s->tolerance * (fabs((double) b) + s->scale);
}

/* A list of k behind `after` against what is sorted from `from` on; the last key that it has. */
static inline uint64_t
deep_check(deep_scene *s, const uint64_t *keys, uint32_t k, uint64_t after, uint32_t from,
		   uint8_t *seen, const char *what)
{
	const uint32_t expected = s->nsorted - from < k ? s->nsorted - from : k;
	uint64_t	last = after;
	uint32_t	found = 0;
	uint32_t	wrong = 0;

	while (found < k && keys[found] != GG_NO_KEY)
	{
		const uint32_t node = key_node(keys[found]);

		if (keys[found] <= last || node >= s->spec.n || !s->matches[node] || seen[node] ||
			from + found >= s->nsorted ||
			!deep_near(s, key_distance(keys[found]), s->distances[node]) ||
			!deep_near(s, key_distance(keys[found]), key_distance(s->sorted[from + found])) ||
			(s->tolerance == 0 && keys[found] != s->sorted[from + found]))
			wrong++;
		if (node < s->spec.n)
			seen[node] = 1;
		last = keys[found++];
	}
	for (uint32_t i = found; i < k; i++)
		wrong += keys[i] != GG_NO_KEY;
	CHECK(found == expected && wrong == 0,
		  "n %u dim %u metric %d element %d, %s, k %u from %u: %u keys for %u, %u wrong", s->spec.n,
		  s->spec.dim, (int) s->spec.metric, (int) s->spec.element, what, k, from, found, expected,
		  wrong);
	return last;
}

/* Of the list that was asked for last; each has another, so that none is taken for one before. */
static uint32_t deep_ticket = 500;

/*
 * Lists of k, one after the other, until npages were read or there is no more.  The filter's TIDs
 * lie where the answer goes, as the service has them.
 */
static inline void
deep_read(deep_scene *s, const gg_filter *filter, uint32_t k, int npages, const char *what)
{
	bulk_region *r = &s->region;
	uint64_t   *keys = (uint64_t *) (r->memory + s->keys_at);
	uint64_t   *matches = keys + GG_MAX_DEEP;
	deep_request deep = {.slot = 1,.list = 7,.k = k,.keys = s->keys_at,
						  .matches = s->keys_at + GG_MAX_DEEP * 8};
	uint8_t    *seen = calloc(s->spec.n + 1, 1);
	gg_filter  *copy = malloc(sizeof(gg_filter));
	uint64_t	after = 0;

	deep_expect(s, filter);
	for (int page = 0; page < npages && (uint64_t) page * k <= s->nsorted; page++)
	{
		deep.ticket = ++deep_ticket;
		deep.after = after;
		deep.filter = NULL;
		if (filter != NULL)
		{
			*copy = *filter;
			if (filter->tids != NULL)
			{
				memcpy(keys, filter->tids, filter->ntids * sizeof(uint64_t));
				copy->tids = keys;
			}
			deep.filter = copy;
		}
		CHECK_OK(submit_deep(r, s->index, DEEP_QUEUE, s->spec.dim, &deep, 1), "serve_submit");
		bulk_wait(r, DEEP_QUEUE, 1, 7, deep.ticket);
		CHECK(*matches == s->nmatches, "%s: %llu matches for %u", what,
			  (unsigned long long) *matches, s->nmatches);
		after = deep_check(s, keys, k, after, page * k, seen, what);
	}
	free(copy);
	free(seen);
}

/* ---- filters ------------------------------------------------------------------------- */

static inline gg_condition *
deep_add(gg_filter *filter, gg_condition_kind kind, uint32_t column, uint32_t word,
		 const int64_t *values, uint32_t nvalues)
{
	gg_condition *c = &filter->conditions[filter->nconditions++];

	c->kind = (uint16_t) kind;
	c->column = (uint16_t) column;
	c->word = word;
	c->first_value = filter->nvalues;
	c->nvalues = nvalues;
	if (nvalues > 0)
		memcpy(filter->values + filter->nvalues, values, nvalues * sizeof(int64_t));
	filter->nvalues += nvalues;
	return c;
}

#define DEEP_FILTERS 13

/* Filter number `number`; tids: room for as many as there are rows.  What it is called. */
static inline const char *
deep_filter(const deep_scene *s, int number, gg_filter *filter, uint64_t *tids)
{
	int64_t		many[300];
	const int64_t half[] = {0, 2000};
	const int64_t few[] = {-1000, -995};
	const int64_t none[] = {5000, 6000};
	const int64_t masks[] = {3, 0, 0, 0, 0, 1 << 5, 1 << 6, 0};
	const uint32_t step = number == 8 ? 1 : 101;

	memset(filter, 0, sizeof(*filter));
	for (int i = 0; i < 300; i++)
		many[i] = (int64_t) i * 1000003 - 250000000;
	if (number >= 8)
	{
		for (uint32_t row = 0; row < s->rows && filter->ntids < GG_MAX_FILTER_TIDS; row += step)
			tids[filter->ntids++] = deep_tid(row);
		/* of a row that was not cleared, if there is one */
		for (uint32_t row = 0; number == 12 && row < s->rows; row++)
		{
			tids[0] = gg_tid_key(s->heads[row]);
			filter->ntids = 1;
			if (tids[0] != 0)
				break;
		}
		filter->tids = tids;
	}
	switch (number)
	{
		case 0:
			deep_add(filter, GG_CONDITION_RANGE, 0, 0, half, 2);
			return "one in two";
		case 1:
			deep_add(filter, GG_CONDITION_RANGE, 0, 0, few, 2);
			return "a few";
		case 2:
			deep_add(filter, GG_CONDITION_RANGE, 0, 0, none, 2);
			return "none";
		case 3:
			deep_add(filter, GG_CONDITION_IN, 1, 1, many, 7);
			return "a list";
		case 4:
			deep_add(filter, GG_CONDITION_IN, 1, 1, many, 300);
			deep_add(filter, GG_CONDITION_RANGE, 0, 0, half, 2);
			return "a long list and a range";
		case 5:
			deep_add(filter, GG_CONDITION_MASK, 2, DEEP_MASK, masks, 8);
			return "masks";
		case 6:
			deep_add(filter, GG_CONDITION_NULL, 2, 0, NULL, 0);
			return "null";
		case 7:
			deep_add(filter, GG_CONDITION_NOT_NULL, 0, 0, NULL, 0);
			return "not null";
		case 8:
			return "all TIDs";
		case 9:
			deep_add(filter, GG_CONDITION_RANGE, 0, 0, half, 2);
			return "some TIDs and a range";
		case 10:
			return "some TIDs";
		case 12:
			return "one TID";
		default:
			filter->ntids = 0;
			return "no TIDs";
	}
}

/* All of them, and what they are called; free() the TIDs that are returned. */
static inline uint64_t *
deep_filters(const deep_scene *s, gg_filter *kinds, const char **names)
{
	uint64_t   *tids = malloc(DEEP_FILTERS * (s->rows + 1) * sizeof(uint64_t));

	for (int f = 0; f < DEEP_FILTERS; f++)
		names[f] = deep_filter(s, f, &kinds[f], tids + (size_t) f * (s->rows + 1));
	return tids;
}

/* A scene of fewer rows, for slow checkers. */
static inline deep_spec
deep_fewer(deep_spec spec)
{
	spec.n = spec.n > 100 ? harness_size(spec.n, 4) : spec.n;
	return spec;
}

/* All of it over one scene. */
static inline void
deep_test(const gg_engine *engine, const deep_spec *spec, double tolerance)
{
	static const uint32_t lengths[] = {1, 10, GG_MAX_ITOPK, GG_MAX_ITOPK + 1, 5000};
	deep_scene	s;
	gg_filter  *filter = malloc(sizeof(gg_filter));
	uint64_t   *tids;

	if (!deep_make(&s, engine, spec, tolerance) || !deep_open(&s))
		return;
	tids = malloc((s.rows + 1) * sizeof(uint64_t));
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		if (spec->codes == GG_CODES_NONE || lengths[i] <= GG_BOUNDED_LIST)
			deep_read(&s, NULL, lengths[i], 3, "all");
	if (spec->n > 0 && spec->n <= GG_MAX_DEEP)
		deep_read(&s, NULL, spec->n, 2, "all at once");
	if (spec->n / 7 < GG_MAX_DEEP)
		deep_read(&s, NULL, spec->n / 7 + 1, 20, "all in parts");
	for (int f = 0; f < DEEP_FILTERS; f++)
	{
		const char *what = deep_filter(&s, f, filter, tids);

		deep_read(&s, filter, 10, 2, what);
		deep_read(&s, filter, GG_MAX_ITOPK, 2, what);
		deep_read(&s, filter, 4000, 3, what);
	}
	free(tids);
	free(filter);
	deep_free(&s);
}

/* ---- several requests in a call ------------------------------------------------------ */

#define SEVERAL_MOST ((uint32_t) GG_SERVE_MAX_DEEPS)
#define SEVERAL_LIST 3u
#define SEVERAL_LONGEST 1500u
/* of each answer: keys, the number of matches, and what must stay as it is */
#define SEVERAL_BYTES ((size_t) (SEVERAL_LONGEST + 1 + 64) / 8 * 8 * sizeof(uint64_t))
/* and of the TIDs of each filter, where they have a place of their own */
#define SEVERAL_TIDS ((uint32_t) GG_SHORT_TIDS + 1)

/* By `mix`: short lists from the start alone; or long ones, too, and those that go on; or long; or
 * just long enough. */
static inline void
several_requests(deep_scene *s, uint32_t mix, uint32_t count, deep_request *deeps)
{
	static const uint32_t lengths[][4] = {
		{10, 10, 10, 10}, {1, 100, 37, 64}, {100, 101, SEVERAL_LONGEST, 10}, {500, 1, 3, 1025},
		{500, 101, SEVERAL_LONGEST, 1025}, {101, 101, 101, 101}
	};

	for (uint32_t i = 0; i < count; i++)
	{
		const size_t at = s->keys_at + i * SEVERAL_BYTES;

		deeps[i] = (deep_request) {.slot = (i * 5 + 3) % SEVERAL_MOST,.list = SEVERAL_LIST,
									.k = lengths[mix][i % 4],.keys = at};
		deeps[i].matches = at + deeps[i].k * sizeof(uint64_t);
	}
}

/* The answer to one request, as it lies in the region. */
static inline const uint64_t *
several_ask(deep_scene *s, deep_request *deep, const char *what)
{
	bulk_region *r = &s->region;

	deep->ticket = ++deep_ticket;
	memset(r->memory + deep->keys, 0x5A, SEVERAL_BYTES);
	CHECK_OK(submit_deep(r, s->index, DEEP_QUEUE, s->spec.dim, deep, 1), what);
	bulk_wait(r, DEEP_QUEUE, deep->slot, SEVERAL_LIST, deep->ticket);
	return (const uint64_t *) (r->memory + deep->keys);
}

/*
 * The answers to one request after the other, compared with the truth, and kept.  In the last mix
 * every third one goes on from where an answer of its own ended.
 */
static inline void
several_alone(deep_scene *s, uint32_t mix, uint32_t count, const gg_filter *const *filters,
			  deep_request *deeps, char *alone, const char *what)
{
	uint64_t	random = mix + 77;
	bulk_region *r = &s->region;
	uint8_t    *seen = calloc(s->spec.n + 1, 1);

	for (uint32_t i = 0; i < count; i++)
	{
		deep_request *deep = &deeps[i];
		char	   *slot = r->memory + deep->slot * r->layout.slot_bytes;
		const uint64_t *keys;
		uint32_t	from = 0;

		deep_new_query(s, &random);
		memcpy(slot + r->query, s->query, s->spec.dim * sizeof(float));
		deep_expect(s, filters[i]);
		deep->filter = filters[i];
		deep->after = 0;
		keys = several_ask(s, deep, what);
		if (mix == 3 && i % 3 == 1 && s->nsorted > 3)
		{
			from = s->nsorted / 3 < deep->k ? s->nsorted / 3 : deep->k;
			deep->after = keys[from - 1];
			keys = several_ask(s, deep, what);
		}
		memset(seen, 0, s->spec.n);
		deep_check(s, keys, deep->k, deep->after, from, seen, what);
		CHECK(keys[deep->k] == s->nmatches, "%s: matches", what);
		memcpy(alone + i * SEVERAL_BYTES, keys, SEVERAL_BYTES);
	}
	free(seen);
}

/*
 * The TIDs of request i's filter, brought to where the answer goes, if they fit there; else to a
 * place of their own, where there is one.  Those of every fourth request come behind the filter.
 */
static inline const uint64_t *
several_place_tids(deep_scene *s, uint32_t i, const deep_request *deep, const gg_filter *filter)
{
	char	   *to = s->region.memory + deep->keys;

	if (filter->tids == NULL)
		return NULL;
	if (filter->ntids > deep->k)
	{
		if (s->tids_at == 0 || filter->ntids > SEVERAL_TIDS || i % 4 == 3)
			return filter->tids;
		to = s->region.memory + s->tids_at + i * SEVERAL_TIDS * sizeof(uint64_t);
	}
	return memcpy(to, filter->tids, filter->ntids * sizeof(uint64_t));
}

/* The same together. */
static inline void
several_together(deep_scene *s, uint32_t count, const gg_filter *const *filters,
				 deep_request *deeps, const char *alone, const char *what)
{
	bulk_region *r = &s->region;
	gg_filter  *copies = malloc(count * sizeof(gg_filter));

	memset(r->memory + s->keys_at, 0x5A, SEVERAL_MOST * SEVERAL_BYTES);
	for (uint32_t i = 0; i < count; i++)
	{
		deeps[i].ticket = ++deep_ticket;
		deeps[i].filter = NULL;
		if (filters[i] == NULL)
			continue;
		copies[i] = *filters[i];
		copies[i].tids = several_place_tids(s, i, &deeps[i], filters[i]);
		deeps[i].filter = &copies[i];
	}
	CHECK_OK(submit_deep(r, s->index, DEEP_QUEUE, s->spec.dim, deeps, count), what);
	for (uint32_t i = 0; i < count; i++)
		bulk_wait(r, DEEP_QUEUE, deeps[i].slot, SEVERAL_LIST, deeps[i].ticket);
	for (uint32_t i = 0; i < count; i++)
		CHECK(memcmp(r->memory + deeps[i].keys, alone + i * SEVERAL_BYTES, SEVERAL_BYTES) == 0,
			  "n %u dim %u metric %d element %d, %s, request %u of %u, k %u behind %llx: another "
			  "answer than alone", s->spec.n, s->spec.dim, (int) s->spec.metric,
			  (int) s->spec.element, what, i, count, deeps[i].k,
			  (unsigned long long) deeps[i].after);
	free(copies);
}

static inline void
several_refusals(deep_scene *s, deep_request *deeps)
{
	deeps[1].k = 0;
	CHECK(submit_deep(&s->region, s->index, DEEP_QUEUE, s->spec.dim, deeps, 2).code == GG_EINVAL,
		  "one of two is out of range");
	deeps[1].k = 1;
	deeps[1].list++;
	CHECK(submit_deep(&s->region, s->index, DEEP_QUEUE, s->spec.dim, deeps, 2).code == GG_EINVAL,
		  "two lists");
	CHECK(submit_deep(&s->region, s->index, DEEP_QUEUE, s->spec.dim, deeps, 0).code == GG_EINVAL &&
		  submit_deep(&s->region, s->index, DEEP_QUEUE, s->spec.dim, deeps,
							   GG_SERVE_MAX_DEEPS + 1).code == GG_EINVAL, "none, too many");
}

static inline void
several_case(deep_scene *s, uint32_t mix, uint32_t count, const gg_filter *const *filters,
			 char *alone, const char *what)
{
	deep_request deeps[SEVERAL_MOST];

	several_requests(s, mix, count, deeps);
	several_alone(s, mix, count, filters, deeps, alone, what);
	several_together(s, count, filters, deeps, alone, what);
}

/*
 * Requests of one call have the answers that each has alone, which are right: where all have the
 * same filter, and where neighbours have others, small ones and all kinds.
 */
static inline void
deep_several(const gg_engine *engine, const deep_spec *spec, double tolerance)
{
	static const uint32_t counts[] = {SEVERAL_MOST, 2, 3, 9};
	static const int small[] = {0, 1, 1, 3, 5, 6, 2, 7};
	gg_filter  *kinds = malloc(DEEP_FILTERS * sizeof(gg_filter));
	const gg_filter *filters[SEVERAL_MOST];
	const char *names[DEEP_FILTERS];
	deep_request deeps[SEVERAL_MOST];
	deep_scene	s;
	uint64_t   *tids;
	char	   *alone = malloc(SEVERAL_MOST * SEVERAL_BYTES);

	if (!deep_make(&s, engine, spec, tolerance) ||
		!deep_open_slots(&s, SEVERAL_MOST, SEVERAL_MOST * SEVERAL_BYTES))
		return;
	tids = deep_filters(&s, kinds, names);
	for (int f = 0; f < DEEP_FILTERS; f += harness_small() ? 2 : 1)
	{
		for (uint32_t i = 0; i < SEVERAL_MOST; i++)
			filters[i] = &kinds[f];
		for (uint32_t mix = 0; mix < 4; mix += harness_small() && f > 2 ? 3 : 1)
			several_case(&s, mix, counts[(mix + f) % 4], filters, alone, names[f]);
	}
	for (uint32_t i = 0; i < SEVERAL_MOST; i++)
		filters[i] = &kinds[small[i % 8]];
	for (uint32_t mix = 0; mix < 4; mix++)
		several_case(&s, mix, counts[mix], filters, alone, "small filters");
	for (uint32_t i = 0; i < SEVERAL_MOST; i++)
		filters[i] = i * 5 % (DEEP_FILTERS + 1) < DEEP_FILTERS ?
			&kinds[i * 5 % (DEEP_FILTERS + 1)] : NULL;
	for (uint32_t mix = 0; mix < 4; mix++)
		several_case(&s, mix, SEVERAL_MOST, filters, alone, "all kinds of filters");
	several_requests(&s, 0, SEVERAL_MOST, deeps);
	several_refusals(&s, deeps);
	free(tids);
	free(kinds);
	free(alone);
	deep_free(&s);
}

/* ---- many queries of a request ---------------------------------------------------------- */

/* Lists of k by one filter, or NULL, of `count` queries of one request. */
static inline void
many_case(deep_scene *s, uint32_t count, uint32_t k, const gg_filter *filter, const char *what)
{
	bulk_region *r = &s->region;
	const size_t query_bytes = ((size_t) count * s->spec.dim * 4 + 63) / 64 * 64;
	const gg_search_params params = {.k = k};
	gg_request	request = request_for(SEVERAL_LIST, true, count, s->spec.dim, &params);
	uint8_t    *seen = malloc(s->spec.n + 1);
	uint64_t	first = count + k;
	uint64_t	random = first;

	request.queries = s->keys_at;
	request.keys = s->keys_at + query_bytes;
	request.matches = request.keys + (uint64_t) count * k * 8;
	if (filter != NULL)
		place_filter(r, 0, filter, &request);
	for (uint32_t i = 0; i < count; i++)
	{
		deep_new_query(s, &random);
		memcpy(r->memory + request.queries + (size_t) i * s->spec.dim * 4, s->query,
			   s->spec.dim * 4);
	}
	CHECK_OK(submit_one(r, s->index, DEEP_QUEUE, 1, ++deep_ticket, SEVERAL_LIST, &request), what);
	bulk_wait(r, DEEP_QUEUE, 1, SEVERAL_LIST, deep_ticket);
	random = first;
	for (uint32_t i = 0; i < count; i++)
	{
		deep_new_query(s, &random);
		deep_expect(s, filter);
		memset(seen, 0, s->spec.n);
		(void) deep_check(s, (const uint64_t *) (r->memory + request.keys) + (size_t) i * k, k, 0,
						  0, seen, what);
	}
	CHECK(*(const uint64_t *) (r->memory + request.matches) == s->nmatches, "%s: matches", what);
	request.after = 1;
	CHECK(submit_one(r, s->index, DEEP_QUEUE, 1, deep_ticket, SEVERAL_LIST, &request).code ==
		  GG_EINVAL, "many queries behind a key");
	free(seen);
}

static inline void
deep_many(const gg_engine *engine, const deep_spec *spec, double tolerance)
{
	static const uint32_t counts[] = {2, SEVERAL_MOST, SEVERAL_MOST + 1, 37};
	static const uint32_t lengths[] = {10, 100, 1, 300};
	gg_filter  *filter = malloc(sizeof(gg_filter));
	uint64_t   *tids;
	deep_scene	s;

	if (!deep_make(&s, engine, spec, tolerance) ||
		!deep_open_slots(&s, 2, 37 * ((size_t) spec->dim * 4 + 300 * 8) + 128))
		return;
	tids = malloc((s.rows + 1) * sizeof(uint64_t));
	for (int f = 0; f < DEEP_FILTERS; f += harness_small() ? 3 : 1)
	{
		const char *what = deep_filter(&s, f, filter, tids);

		many_case(&s, counts[f % 4], lengths[(f + 1) % 4], filter, what);
	}
	for (uint32_t i = 0; i < 4; i++)
		many_case(&s, counts[i], lengths[i], NULL, "many, all rows");
	free(tids);
	free(filter);
	deep_free(&s);
}

/* All rows but NULLs; then each request has its own half or more of them, one of them a few. */
static inline gg_filter *
several_most_rows(void)
{
	gg_filter  *kinds = calloc(SEVERAL_MOST, sizeof(gg_filter));

	for (uint32_t i = 0; i < SEVERAL_MOST; i++)
	{
		const int64_t least = -1000 + (int64_t) i * 50;
		const int64_t values[] = {least, i == 5 ? least + 10 : 990};

		deep_add(&kinds[i], i == 0 ? GG_CONDITION_NOT_NULL : GG_CONDITION_RANGE, 0, 0, values,
				 i == 0 ? 0 : 2);
	}
	return kinds;
}

/*
 * Requests with last keys, `count` together: of the keys up to its own each has all that its list
 * has room for.  Their queries are the same.
 */
static inline void
several_last(deep_scene *s, uint32_t count)
{
	static const uint32_t ranks[] = {0, 40, 90, 700, 20000};
	bulk_region *r = &s->region;
	uint64_t	random = count + 5;
	deep_request deeps[SEVERAL_MOST];

	deep_new_query(s, &random);
	deep_expect(s, NULL);
	several_requests(s, 4, count, deeps);
	for (uint32_t i = 0; i < count; i++)
	{
		const float distance = key_distance(s->sorted[ranks[i % 5]]);

		memcpy(slot_query(r, deeps[i].slot), s->query, s->spec.dim * sizeof(float));
		deeps[i].k = i % 2 == 0 ? deeps[i].k : 60;
		deeps[i].matches = deeps[i].keys + deeps[i].k * sizeof(uint64_t);
		deeps[i].last = key_of(distance + 1e-4f * (fabsf(distance) + s->scale), 0);
		deeps[i].ticket = ++deep_ticket;
	}
	CHECK_OK(submit_deep(r, s->index, DEEP_QUEUE, s->spec.dim, deeps, count), "last keys");
	for (uint32_t i = 0; i < count; i++)
		bulk_wait(r, DEEP_QUEUE, deeps[i].slot, SEVERAL_LIST, deeps[i].ticket);
	for (uint32_t i = 0; i < count; i++)
	{
		const uint64_t *keys = (const uint64_t *) (r->memory + deeps[i].keys);
		const uint32_t within = ranks[i % 5] + 1 < deeps[i].k ? ranks[i % 5] + 1 : deeps[i].k;
		uint32_t	wrong = 0;

		for (uint32_t j = 0; j < within; j++)
			wrong += !deep_near(s, key_distance(keys[j]), key_distance(s->sorted[j]));
		CHECK(wrong == 0 && keys[deeps[i].k] == s->spec.n,
			  "n %u dim %u metric %d element %d, request %u of %u with a last key: %u of %u wrong",
			  s->spec.n, s->spec.dim, (int) s->spec.metric, (int) s->spec.element, i, count, wrong,
			  within);
	}
}

/*
 * The same of so many rows, and filters that leave so many, or none, that an engine has reason to
 * measure them all roughly first; by so many requests in a call, for each of counts.
 */
static inline void
deep_pruned(const gg_engine *engine, const deep_spec *spec, double tolerance,
			const uint32_t *counts, uint32_t ncounts)
{
	gg_filter  *kinds = several_most_rows();
	const gg_filter *filters[SEVERAL_MOST];
	deep_scene	s;
	char	   *alone = malloc(SEVERAL_MOST * SEVERAL_BYTES);

	if (!deep_make(&s, engine, spec, tolerance) ||
		!deep_open_slots(&s, SEVERAL_MOST, SEVERAL_MOST * SEVERAL_BYTES))
		return;
	for (uint32_t i = 0; i < SEVERAL_MOST; i++)
		filters[i] = &kinds[0];
	for (uint32_t c = 0; c < ncounts; c++)
		several_case(&s, c % 2, counts[c], filters, alone, "most rows, equal filters");
	for (uint32_t i = 0; i < SEVERAL_MOST; i++)
		filters[i] = &kinds[i];
	for (uint32_t c = 0; c < ncounts; c += harness_fewest() ? 3 : 1)
		several_case(&s, 1 - c % 2, counts[c], filters, alone, "most rows, filters apart");
	memset(filters, 0, sizeof(filters));
	for (uint32_t c = 0; c < ncounts; c++)
		several_case(&s, 4 - c % 2, counts[c], filters, alone, "all rows");
	for (uint32_t count = 1; count <= 5; count += 2)
		several_last(&s, count);
	free(kinds);
	free(alone);
	deep_free(&s);
}

/* New queries in the slots, and the answers to them by index_exact(). */
static inline void
several_exact(deep_scene *s, uint64_t *random, uint32_t count, const gg_filter *const *filters,
			  deep_request *deeps, char *exact)
{
	bulk_region *r = &s->region;
	const uint32_t n = s->spec.n;
	uint32_t   *bits = malloc((n + 31) / 32 * sizeof(uint32_t));

	for (uint32_t i = 0; i < count; i++)
	{
		float	   *query = slot_query(r, deeps[i].slot);
		uint64_t   *keys = (uint64_t *) (exact + i * SEVERAL_BYTES);

		deep_query_near(&s->spec, random, query);
		deep_expect(s, filters[i]);
		memset(bits, 0, (n + 31) / 32 * sizeof(uint32_t));
		for (uint32_t node = 0; node < n; node++)
			bits[node / 32] |= (uint32_t) s->matches[node] << node % 32;
		memset(keys, 0x5A, SEVERAL_BYTES);
		CHECK_OK(s->engine->index_exact(s->index, deeps[i].k, bits, query, 1, NULL, keys),
				 "index_exact");
		keys[deeps[i].k] = s->nmatches;
	}
	free(bits);
}

/* The same for long lists of all rows, against the answers to each request alone. */
static inline void
several_long(deep_scene *s, uint64_t *random, uint32_t mix, uint32_t count, char *alone)
{
	bulk_region *r = &s->region;
	const gg_filter *filters[SEVERAL_MOST] = {NULL};
	deep_request deeps[SEVERAL_MOST];

	several_requests(s, mix, count, deeps);
	for (uint32_t i = 0; i < count; i++)
	{
		deep_query_near(&s->spec, random, slot_query(r, deeps[i].slot));
		deeps[i].after = 0;
		deeps[i].filter = NULL;
		memcpy(alone + i * SEVERAL_BYTES, several_ask(s, &deeps[i], "long, alone"), SEVERAL_BYTES);
	}
	several_together(s, count, filters, deeps, alone, "long");
}

/*
 * What was measured roughly first is what index_exact() finds, bit by bit, whatever the rough
 * measure makes of the rows.
 */
static inline void
deep_rough(const gg_engine *engine, const deep_spec *spec)
{
	static const uint32_t counts[] = {1, SEVERAL_MOST, 2};
	gg_filter  *kinds = several_most_rows();
	const gg_filter *filters[SEVERAL_MOST];
	char	   *exact = malloc(SEVERAL_MOST * SEVERAL_BYTES);
	uint64_t	random = spec->dim;
	deep_scene	s;

	if (!deep_make(&s, engine, spec, 0) ||
		!deep_open_slots(&s, SEVERAL_MOST, SEVERAL_MOST * SEVERAL_BYTES))
		return;
	for (uint32_t apart = 0; apart < 2; apart++)
		for (uint32_t c = apart; c < (harness_small() ? 2 : 3); c++)
		{
			deep_request deeps[SEVERAL_MOST];

			for (uint32_t i = 0; i < SEVERAL_MOST; i++)
				filters[i] = &kinds[apart * i];
			several_requests(&s, (c + apart) % 2, counts[c], deeps);
			for (uint32_t i = 0; i < counts[c]; i++)
				deeps[i].after = 0;
			several_exact(&s, &random, counts[c], filters, deeps, exact);
			several_together(&s, counts[c], filters, deeps, exact,
							 apart ? "measured roughly, filters apart" : "measured roughly");
		}
	several_long(&s, &random, 4, 9, exact);
	free(kinds);
	free(exact);
	deep_free(&s);
}

/* Offsets that are none must do no harm; what is found by them does not matter. */
static inline void
deep_bad_offsets(const gg_engine *engine)
{
	const deep_spec spec = {.n = 300,.dim = 4,.offsets = true};
	const uint32_t bad[] = {0xFFFFFFFFu, 0, 0x80000000u, 5, 1000000, 3};
	gg_filter  *filter = calloc(1, sizeof(gg_filter));
	deep_request deep = {.slot = 0,.ticket = 9,.k = 20,.keys = BULK_SLOT,
						  .matches = BULK_SLOT + 192,.filter = filter};
	gg_index   *again;
	gg_shape	shape = {.capacity = spec.n,.dim = spec.dim,.element = GG_ELEMENT_F32,
						 .metric = GG_METRIC_L2,.offsets = true};
	deep_scene	s;
	bulk_region r;

	if (!deep_make(&s, engine, &spec, 0) || !bulk_open(&r, engine, 4096 + DEEP_FILTER_ROOM))
		return;
	r.filters = BULK_SLOT + 4096;
	shape.rows = s.rows;
	for (uint32_t at = 0; at < 2; at++)
	{
		/* in the middle, and at the end, where the number of rows is read */
		CHECK_OK(engine->index_create(&shape, &again), "index_create");
		CHECK_OK(engine->index_write(again, GG_PART_ROWS, 0, s.vectors, spec.n * 16), "rows");
		CHECK_OK(engine->index_write(again, GG_PART_TIDS, 0, s.heads, s.rows * 8), "heads");
		CHECK_OK(engine->index_write(again, GG_PART_OFFSETS, 0, s.offsets, (spec.n + 1) * 4),
				 "offsets");
		CHECK_OK(engine->index_write(again, GG_PART_OFFSETS,
									 at == 0 ? 400 : (spec.n + 1) * 4 - sizeof(bad), bad,
									 sizeof(bad)), "bad offsets");
		CHECK_OK(engine->index_finish(again, spec.n, NULL), "index_finish");
		memset(r.memory + r.query, 0, 16);
		deep.ticket++;
		CHECK_OK(submit_deep(&r, again, 0, spec.dim, &deep, 1), "serve_submit");
		bulk_wait(&r, 0, 0, 0, deep.ticket);
		engine->index_close(again);
	}
	bulk_close(&r);
	deep_free(&s);
	free(filter);
}

/* ---- refusals ------------------------------------------------------------------------- */

static inline void
deep_refuses_shapes(const gg_engine *engine)
{
	gg_index   *index;

	for (int i = 0; i < 5; i++)
	{
		gg_shape	shape = {.capacity = 10,.dim = 4,.element = GG_ELEMENT_F32,
							 .metric = GG_METRIC_L2,.rows = 10};

		if (i == 0)
			shape.rows = 9;
		else if (i == 1)
			shape.words = GG_MAX_FILTER_WORDS + 1;
		else if (i == 2)
			shape.rows = 0, shape.words = 1;
		else if (i == 3)
			shape.rows = 0, shape.offsets = true;
		else
			shape.rows = 11;
		CHECK(engine->index_create(&shape, &index).code == GG_EINVAL && index == NULL, "shape %d",
			  i);
	}
}

/* What request number i of deep_refusals() has wrong; false: there are no more. */
static inline bool
deep_spoil(int i, deep_request *deep, gg_filter *filter, size_t region, uint32_t *queue)
{
	gg_condition *c = &filter->conditions[0];

	switch (i)
	{
		case 0: deep->k = 0; break;
		case 1: deep->k = GG_MAX_DEEP + 1; break;
		case 2: deep->slot = 2; break;
		case 3: deep->list = GG_SERVE_MAX_LISTS; break;
		case 4: *queue = GG_SERVE_QUEUES; break;
		case 5: deep->keys = 4100; break;
		case 6: deep->keys = region; break;
		case 7: deep->keys = UINT64_MAX / 64 * 64; break;
		case 8: deep->matches = region; break;
		case 9: deep->matches = 4; break;
		case 10: filter->nconditions = GG_MAX_CONDITIONS + 1; break;
		case 11: filter->nvalues = GG_MAX_FILTER_VALUES + 1; break;
		case 12: c->kind = 0; break;
		case 13: c->kind = GG_CONDITION_NOT_NULL + 1; break;
		case 14: c->column = 16; break;
		case 15: c->word = DEEP_WORDS; break;
		case 16: c->kind = GG_CONDITION_MASK, c->word = DEEP_MASK + 1; break;
		case 17: c->first_value = 3; break;
		case 18: c->nvalues = 3; break;
		case 19: c->nvalues = 1; break;
		case 20: c->word = UINT32_MAX; break;
		case 21: c->first_value = UINT32_MAX; break;
		case 22: filter->tids = (const uint64_t *) filter,
				 filter->ntids = GG_MAX_FILTER_TIDS + 1; break;
		default: return false;
	}
	return true;
}

/* Codes of inner products have no bounds, and lists of bounds an end. */
static inline void
deep_without_bounds(const gg_engine *engine)
{
	static const struct
	{
		gg_metric	metric;
		uint32_t	k;
		gg_code		code;
	}			cases[] = {
		{GG_METRIC_IP, 10, GG_EUNSUPPORTED},
		{GG_METRIC_L2, GG_BOUNDED_LIST, GG_OK},
		{GG_METRIC_L2, GG_BOUNDED_LIST + 1, GG_EUNSUPPORTED}
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		const deep_spec spec = {.n = 50,.dim = 8,.metric = cases[i].metric,.graph = true,
			.codes = GG_CODES_INT4};
		deep_scene	s;

		if (!deep_make(&s, engine, &spec, 0) || !deep_open(&s))
			return;

		const deep_request deep = {.slot = 1,.list = 7,.k = cases[i].k,.keys = s.keys_at,
			.matches = s.keys_at + GG_MAX_DEEP * 8,.ticket = ++deep_ticket};
		const gg_code code = submit_deep(&s.region, s.index, DEEP_QUEUE, spec.dim, &deep, 1).code;

		CHECK(code == cases[i].code, "metric %d, a list of %u without rows: %d",
			  (int) spec.metric, deep.k, (int) code);
		if (code == GG_OK)
			bulk_wait(&s.region, DEEP_QUEUE, 1, 7, deep.ticket);
		deep_free(&s);
	}
}

static inline void
deep_refusals(const gg_engine *engine)
{
	const deep_spec spec = {.n = 100,.dim = 16};
	const int64_t range[] = {0, 1000};
	/* what the test itself has put there */
	const size_t filters[1][2] = {{BULK_SLOT + 4096, DEEP_FILTER_ROOM}};
	gg_filter  *filter = malloc(sizeof(gg_filter));
	gg_shape	shape = {.capacity = 4,.dim = 16,.element = GG_ELEMENT_F32,.metric = GG_METRIC_L2};
	deep_request deep = {.slot = 0,.ticket = 5,.k = 8,.keys = 4096,.matches = 4160,
						  .filter = filter};
	gg_index   *bare = NULL;
	deep_scene	s;
	bulk_region r;
	uint32_t	queue = 0;

	deep_refuses_shapes(engine);
	if (!deep_make(&s, engine, &spec, 0) || !bulk_open(&r, engine, 4096 + DEEP_FILTER_ROOM))
		return;
	r.filters = BULK_SLOT + 4096;
	for (int i = 0;; i++)
	{
		deep_request bad = deep;

		queue = 0;
		memset(filter, 0, sizeof(*filter));
		deep_add(filter, GG_CONDITION_RANGE, 0, 0, range, 2);
		if (!deep_spoil(i, &bad, filter, r.bytes, &queue))
			break;
		CHECK(submit_deep(&r, s.index, queue, 16, &bad, 1).code == GG_EINVAL,
			  "request %d", i);
	}
	CHECK_OK(engine->index_create(&shape, &bare), "index_create");
	CHECK(submit_deep(&r, bare, 0, 16, &deep, 1).code == GG_EINVAL, "not finished");
	CHECK_OK(engine->index_finish(bare, 4, NULL), "index_finish");
	CHECK(submit_deep(&r, bare, 0, 16, &deep, 1).code == GG_EINVAL, "no heads");
	CHECK(bulk_stray(&r, filters, 1) == 0, "refused requests write nothing");
	engine->index_close(bare);

	/* nor does any of that stand in the way of others; no rows are no error */
	CHECK_OK(engine->index_create(&shape, &bare), "index_create");
	CHECK_OK(engine->index_finish(bare, 0, NULL), "index_finish");
	deep.filter = NULL;
	CHECK_OK(submit_deep(&r, bare, 0, 16, &deep, 1), "no rows");
	bulk_wait(&r, 0, 0, 0, 5);
	CHECK(*(uint64_t *) (r.memory + 4096) == GG_NO_KEY && *(uint64_t *) (r.memory + 4160) == 0,
		  "no rows, no keys");
	deep.filter = filter;
	deep.ticket = 6;
	CHECK_OK(submit_deep(&r, s.index, 0, 16, &deep, 1), "a good one");
	bulk_wait(&r, 0, 0, 0, 6);
	engine->index_close(bare);
	bulk_close(&r);
	deep_free(&s);
	free(filter);
}

#endif							/* SERVE_DEEP_H */
