/*
 * code_tools.h
 *		A coder with memory for one row and one query, as tests of codes use it.
 */
#ifndef GG_TEST_CODE_TOOLS_H
#define GG_TEST_CODE_TOOLS_H

#include <stdlib.h>

#include "../../src/engine/rules/codes.h"
#include "harness.h"

typedef struct tools
{
	gg_coder	coder;
	gg_code_query query;
	float	   *row;			/* these two are the test's */
	float	   *asked;
	float	   *scratch;
	uint8_t    *record;
	uint16_t   *halves;
} tools;

/* mean: NULL, or what codes are centred by. */
static void
tools_make_centred(tools *t, gg_metric metric, uint32_t dim, gg_codes codes, uint64_t seed,
				   const float *mean)
{
	const gg_code_kind kind = {metric, dim, codes, seed, mean};

	CHECK_OK(gg_coder_init(&t->coder, &kind), "gg_coder_init");
	CHECK_OK(gg_code_query_init(&t->coder, &t->query), "gg_code_query_init");
	t->row = calloc(dim, sizeof(float));
	t->asked = calloc(dim, sizeof(float));
	t->scratch = malloc(2 * dim * sizeof(float));
	t->record = malloc(t->coder.record_bytes);	/* exactly: ASan sees what is read behind it */
	t->halves = malloc(dim * sizeof(uint16_t));
}

static inline void
tools_make(tools *t, gg_metric metric, uint32_t dim, gg_codes codes, uint64_t seed)
{
	tools_make_centred(t, metric, dim, codes, seed, NULL);
}

static void
tools_free(tools *t)
{
	gg_coder_free(&t->coder);
	gg_code_query_free(&t->query);
	free(t->row);
	free(t->asked);
	free(t->scratch);
	free(t->record);
	free(t->halves);
}

#endif							/* GG_TEST_CODE_TOOLS_H */
