/*
 * test_filter_tids.c
 *		gg_filter_rows() with a list of TIDs: the rows that a search for each one finds, in whatever
 *		order the rows lie.
 */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

/* several words of bits, and more than one call of 1,000 */
#define ROWS	(harness_fewer() ? 2000u : 5000u)
#define MOST_ROWS	5000

static uint64_t
head_of(uint64_t key)
{
	return key >> 32 | (key >> 16 & 0xFFFF) << 16 | (key & 0xFFFF) << 32;
}

static bool
is_one_of(const gg_filter *filter, uint64_t key)
{
	for (uint32_t i = 0; i < filter->ntids; i++)
		if (filter->tids[i] == key)
			return true;
	return false;
}

/* One call for each n rows. */
static void
compare(const char *what, const uint64_t *heads, const uint64_t *tids, uint32_t ntids, uint32_t n)
{
	gg_filter  *filter = calloc(1, sizeof(gg_filter));
	uint64_t	bits[MOST_ROWS / 64 + 1];
	uint32_t	wrong = 0;

	filter->tids = tids;
	filter->ntids = ntids;
	for (uint32_t first = 0; first + n <= ROWS; first += n)
	{
		uint32_t	matches = gg_filter_rows(filter, heads + first, NULL, n, bits);
		uint32_t	wanted = 0;

		for (uint32_t i = 0; i < n; i++)
		{
			uint64_t	key = gg_tid_key(heads[first + i]);
			bool		match = (key & 0xFFFF) != 0 && is_one_of(filter, key);

			wanted += match;
			wrong += match != (bits[i / 64] >> i % 64 & 1);
		}
		wrong += matches != wanted;
	}
	CHECK(wrong == 0, "%s, %u TIDs, %u rows at a time: %u wrong", what, ntids, n, wrong);
	free(filter);
}

/* Rows with lists of one TID in step, and with none; blocks from first_block on. */
static void
compare_lists(const char *what, uint64_t *heads, uint64_t first_block)
{
	const uint32_t steps[] = {1, 2, 7, 64, 500, ROWS};
	uint64_t   *tids = malloc(sizeof(uint64_t) * (2 * ROWS + 2));

	for (uint32_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++)
	{
		uint32_t	ntids = 0;

		/* TIDs before, between and behind those of the rows, too */
		if (first_block > 0)
			tids[ntids++] = 1;
		for (uint32_t i = 0; i < ROWS; i += steps[s])
		{
			tids[ntids++] = (first_block + i / 8) << 16 | (i % 8 * 2 + 1);
			if (i % 3 == 0)
				tids[ntids++] = (first_block + i / 8) << 16 | (i % 8 * 2 + 2);
		}
		compare(what, heads, tids, ntids, ROWS);
		compare(what, heads, tids, ntids, 1000);
		compare(what, heads, tids, ntids, 63);
		compare(what, heads, tids, ntids, 1);
	}
	compare(what, heads, tids, 0, ROWS);
	free(tids);
}

static void
test_orders(void)
{
	const uint64_t first_blocks[] = {0, 70000, 0xFFFFFFFE - ROWS / 8};
	uint64_t   *heads = malloc(sizeof(uint64_t) * ROWS);
	harness_random random = {11};

	for (uint32_t b = 0; b < sizeof(first_blocks) / sizeof(first_blocks[0]); b++)
	{
		for (uint64_t i = 0; i < ROWS; i++)
			heads[i] = head_of((first_blocks[b] + i / 8) << 16 | (i % 8 * 2 + 1));
		compare_lists("ascending", heads, first_blocks[b]);
		for (uint32_t i = 0; i < ROWS; i++)
			if (harness_unit(&random) < 0.3)
				heads[i] = 0xFFFFFFFF;	/* as VACUUM leaves it */
		compare_lists("with cleared rows", heads, first_blocks[b]);
		for (uint32_t i = 0; i < ROWS / 2; i++)
		{
			uint64_t	head = heads[i];

			heads[i] = heads[ROWS - 1 - i];
			heads[ROWS - 1 - i] = head;
		}
		compare_lists("descending", heads, first_blocks[b]);
		for (uint32_t i = ROWS - 1; i > 0; i--)
		{
			uint32_t	j = (uint32_t) (harness_unit(&random) * (i + 1));
			uint64_t	head = heads[i];

			heads[i] = heads[j];
			heads[j] = head;
		}
		compare_lists("in random order", heads, first_blocks[b]);
	}
	free(heads);
}

int
main(void)
{
	harness_run("orders", test_orders);
	return harness_finish();
}
