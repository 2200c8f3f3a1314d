/*
 * test_node_table.c
 *		The table by which merges find equal vectors (src/engine/rules/node_table.h): each has the
 *		node of the first that is equal, and few slots are looked at, whoever chose the vectors.
 *		What came last can be taken out again.
 *
 * The bug: the hash had no key, so vectors could be made that share it.  Two bits of one were
 * flipped such that one took back what the other did.  Each of n such vectors was compared with all
 * before it: 134 million comparisons for 16,384 vectors.
 * The fix: the hash has a random key.
 */
#include "../../src/engine/rules/node_table.h"
#include "harness.h"

#include <stdlib.h>

#define DIM		40u
#define KEYS	3u

/* Slots that are looked at for a row which is in the table. */
static uint64_t
slots_to(const GgNodeTable *table, uint32_t row)
{
	const char *data = table->rows + row * table->row_bytes;
	uint64_t	home = GgHashNode(table->key, data, table->row_bytes) >> 32 & table->mask;
	uint64_t	steps = 0;

	while ((uint32_t) table->slots[(home + steps) & table->mask] != row + 1)
		steps++;
	return steps + 1;
}

/* Of 2n rows the first n differ, and the others are the same ones again. */
static void
find_all(const void *rows, uint32_t n, size_t row_bytes, uint32_t seed, const char *what)
{
	size_t		key_words = GgNodeKeyWords(row_bytes);
	GgNodeTable table = {.rows = rows, .row_bytes = row_bytes};
	harness_random random = {seed};
	uint64_t	nslots = 1024;
	uint64_t	steps = 0;
	uint32_t	wrong = 0;

	while (nslots < 2 * n)
		nslots *= 2;
	table.mask = nslots - 1;
	table.slots = calloc(nslots, sizeof(uint64_t));
	table.key = malloc(key_words * sizeof(uint64_t));
	for (size_t i = 0; i < key_words; i++)
		table.key[i] = (uint64_t) (harness_unit(&random) * 0x1p32) << 32 |
			(uint64_t) (harness_unit(&random) * 0x1p32);

	for (uint32_t row = 0; row < 2 * n; row++)
		wrong += GgFindNode(&table, row) != row % n;
	for (uint32_t row = 0; row < n; row++)
		steps += slots_to(&table, row);
	CHECK(wrong == 0, "%s, key %u: %u rows have another's node", what, seed, wrong);
	CHECK(steps < 3 * (uint64_t) n, "%s, key %u: %llu slots for %u rows", what, seed,
		  (unsigned long long) steps, n);

	for (uint32_t row = n; row-- > n / 2;)
		GgForgetNode(&table, row);
	for (uint32_t row = 2 * n; row-- > n;)
		wrong += GgFindNode(&table, row) != (row - n < n / 2 ? row - n : row);
	CHECK(wrong == 0, "%s, key %u: %u rows have another's node than those left", what, seed, wrong);
	free(table.slots);
	free(table.key);
}

static void
find_words(uint32_t *words, uint32_t n, const char *what)
{
	memcpy(words + (size_t) n * DIM, words, (size_t) n * DIM * sizeof(uint32_t));
	for (uint32_t seed = 1; seed <= KEYS; seed++)
		find_all(words, n, DIM * sizeof(uint32_t), seed, what);
}

/*
 * Bit b of the row's number flips the lowest bit of an element and the sign of the one eight places
 * behind it.
 */
static void
make_crafted(uint32_t *row, uint32_t number)
{
	const float one = 1.0f;

	for (uint32_t d = 0; d < DIM; d++)
		memcpy(&row[d], &one, sizeof(one));
	for (uint32_t b = 0; number >> b != 0; b++)
		if ((number >> b & 1) != 0)
		{
			uint32_t	d = b / 4 * 8 + b % 4 * 2 + 1;

			row[d] ^= 1;
			row[d + 8] ^= 0x80000000;
		}
}

/* One element counts up, as an integer or as a float of few bits. */
static void
make_counted(uint32_t *row, uint32_t number)
{
	memset(row, 0, DIM * sizeof(uint32_t));
	row[DIM - 1] = number;
}

static void
make_few_bits(uint32_t *row, uint32_t number)
{
	for (uint32_t d = 0; d < DIM; d++)
		row[d] = (number >> d % 16 & 1) << 30;
}

static void
test_rows(void)
{
	static const struct
	{
		const char *what;
		void		(*make) (uint32_t *row, uint32_t number);
	}			cases[] = {{"crafted rows", make_crafted}, {"counted rows", make_counted},
	{"rows of few bits", make_few_bits}};
	uint32_t	n = harness_size(16384, 16);
	uint32_t   *words = malloc((size_t) 2 * n * DIM * sizeof(uint32_t));

	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
	{
		for (uint32_t row = 0; row < n; row++)
			cases[c].make(words + (size_t) row * DIM, row);
		find_words(words, n, cases[c].what);
	}
	free(words);
}

/* Rows end within a word: those of one to seven bytes differ in their last byte alone. */
static void
test_short_rows(void)
{
	for (size_t row_bytes = 1; row_bytes < 20; row_bytes++)
	{
		char	   *rows = calloc(512, row_bytes);

		for (uint32_t row = 0; row < 512; row++)
			rows[(row + 1) * row_bytes - 1] = (char) row;
		find_all(rows, 256, row_bytes, 1, "short rows");
		free(rows);
	}
}

int
main(void)
{
	harness_run("rows", test_rows);
	harness_run("short rows", test_short_rows);
	return harness_finish();
}
