/*
 * test_filter_rows.c
 *		gg_filter_rows() with conditions: the rows that fulfil them one by one, by each instruction
 *		set that this processor has.
 */
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "engine/cpu/common/cpu.h"

#define ROWS	1018
#define WORDS	10
#define COLUMNS	7				/* six of one word, the last one of four */

static uint64_t heads[ROWS];
static int64_t words[WORDS][ROWS];

static uint32_t
below(harness_random *random, uint32_t n)
{
	return (uint32_t) (harness_unit(random) * n);
}

#define WIDE	(COLUMNS - 2)	/* a column of many values; the others have few */

/* Conditions hold for some; the ends of the range are among the values. */
static int64_t
value(harness_random *random, uint32_t column)
{
	if (column == WIDE)
		return (int64_t) below(random, 2000) * 0x10001 - 1000;
	switch (below(random, 20))
	{
		case 0:
			return INT64_MIN;
		case 1:
			return INT64_MAX;
		default:
			return (int64_t) below(random, 12) - 6;
	}
}

static void
make_rows(harness_random *random)
{
	for (uint32_t i = 0; i < ROWS; i++)
	{
		/* one TID of 20 is invalid */
		heads[i] = (uint64_t) i << 16 | (uint64_t) (below(random, 20) > 0) << 32;
		for (uint32_t c = 0; c < 16; c++)
			heads[i] |= (uint64_t) (below(random, 8) == 0) << (48 + c);
		for (uint32_t w = 0; w < WORDS; w++)
			words[w][i] = w < COLUMNS - 1 ? value(random, w) :
				(int64_t) ((uint64_t) below(random, 16) << below(random, 61));
	}
}

static int
ascending(const void *a, const void *b)
{
	int64_t		x = *(const int64_t *) a;
	int64_t		y = *(const int64_t *) b;

	return x < y ? -1 : x > y;
}

static void
add_condition(harness_random *random, gg_filter *filter)
{
	gg_condition *condition = &filter->conditions[filter->nconditions++];
	int64_t    *values = filter->values + filter->nvalues;
	bool		masks = below(random, 4) == 0;

	condition->first_value = filter->nvalues;
	condition->column = masks ? COLUMNS - 1 : below(random, COLUMNS - 1);
	condition->word = condition->column;
	switch (below(random, 5))
	{
		case 0:
			condition->kind = GG_CONDITION_NULL;
			break;
		case 1:
			condition->kind = GG_CONDITION_NOT_NULL;
			break;
		case 2:
			if (!masks)
			{
				condition->kind = GG_CONDITION_IN;
				condition->nvalues = 1 + below(random, condition->column == WIDE ? 330 : 12);
				break;
			}
			/* FALLTHROUGH */
		default:
			condition->kind = masks ? GG_CONDITION_MASK : GG_CONDITION_RANGE;
			condition->nvalues = masks ? GG_MASK_WORDS * (1 + below(random, 3)) : 2;
	}
	for (uint32_t v = 0; v < condition->nvalues; v++)
		values[v] = masks ? (int64_t) ((uint64_t) 1 << below(random, 64)) :
			value(random, condition->column);
	if (masks && condition->nvalues > 0)
		values[below(random, GG_MASK_WORDS)] = 0;
	else
		qsort(values, condition->nvalues, sizeof(int64_t), ascending);
	filter->nvalues += condition->nvalues;
}

/* The rows from first on, n at a time; how many bits and numbers are wrong. */
static uint32_t
wrong_rows(const gg_filter *filter, uint32_t first, uint32_t n)
{
	uint32_t	wrong = 0;

	for (; first + n <= ROWS; first += n)
	{
		const int64_t *from[WORDS];
		uint64_t	bits[ROWS / 64 + 1];
		uint32_t	wanted = 0;
		uint32_t	matches;

		for (uint32_t w = 0; w < WORDS; w++)
			from[w] = words[w] + first;
		memset(bits, 0xFF, sizeof(bits));
		matches = gg_filter_rows(filter, heads + first, from, n, bits);
		for (uint32_t i = 0; i < n; i++)
		{
			bool		match = harness_matches(filter, heads, words[0], ROWS, first + i);

			wanted += match;
			wrong += match != (bits[i / 64] >> i % 64 & 1);
		}
		wrong += matches != wanted;
		/* bits behind the last row are clear */
		wrong += n % 64 > 0 && bits[n / 64] >> n % 64 != 0;
	}
	return wrong;
}

static void
test_conditions(void)
{
	const char *const sets[] = {"plain", "avx2", "avx512", "neon"};

	for (uint32_t s = 0; s < sizeof(sets) / sizeof(sets[0]); s++)
	{
		harness_random random = {5};
		uint32_t	wrong = 0;
		uint32_t	filters = harness_fewer() ? 50 : 500;

		if (!gg_simd_force(sets[s]))
			continue;
		make_rows(&random);
		for (uint32_t f = 0; f < filters; f++)
		{
			gg_filter	filter = {0};

			for (uint32_t c = below(&random, 4); c > 0; c--)
				add_condition(&random, &filter);
			wrong += wrong_rows(&filter, 0, ROWS) + wrong_rows(&filter, 1, 64) +
				wrong_rows(&filter, 3, 61) + wrong_rows(&filter, 2, 16) +
				wrong_rows(&filter, 0, 1);
		}
		CHECK(wrong == 0, "%s: %u wrong of %u filters", sets[s], wrong, filters);
	}
	gg_simd_force(NULL);
}

int
main(void)
{
	harness_run("conditions", test_conditions);
	return harness_finish();
}
