/*
 * filter.c
 *		Which rows match a filter.  Column by column, over words that lie side by side, so that the
 *		compiler can vectorise the loops over ranges and masks.
 */
#include "../engine.h"

#include <string.h>

#define BLOCK 64				/* rows of one word of bits */

/* Is value one of n values that ascend? */
static bool
is_member(const int64_t *values, uint32_t n, int64_t value)
{
	uint32_t	low = 0;
	uint32_t	high = n;

	while (low < high)
	{
		uint32_t	middle = low + (high - low) / 2;

		if (values[middle] < value)
			low = middle + 1;
		else
			high = middle;
	}
	return low < n && values[low] == value;
}

/* Rows of a block whose words are within [low, high]. */
static uint64_t
range_bits(const int64_t *words, uint32_t n, int64_t low, int64_t high)
{
	uint8_t		match[BLOCK] = {0};
	uint64_t	bits = 0;

	for (uint32_t i = 0; i < n; i++)
		match[i] = (words[i] >= low) & (words[i] <= high);
	for (uint32_t i = 0; i < BLOCK; i++)
		bits |= (uint64_t) match[i] << i;
	return bits;
}

static uint64_t
in_bits(const int64_t *words, uint32_t n, const int64_t *values, uint32_t nvalues)
{
	uint64_t	bits = 0;

	for (uint32_t i = 0; i < n; i++)
		bits |= (uint64_t) is_member(values, nvalues, words[i]) << i;
	return bits;
}

static uint64_t
mask_bits(const int64_t *const *words, uint32_t first, uint32_t n, const int64_t *masks,
		  uint32_t nvalues)
{
	uint64_t	bits = 0;

	for (uint32_t m = 0; m + GG_MASK_WORDS <= nvalues; m += GG_MASK_WORDS)
		for (uint32_t i = 0; i < n; i++)
		{
			int64_t		missing = 0;

			for (uint32_t w = 0; w < GG_MASK_WORDS; w++)
				missing |= masks[m + w] & ~words[w][first + i];
			bits |= (uint64_t) (missing == 0) << i;
		}
	return bits;
}

/* Rows of a block whose column is NULL. */
static uint64_t
null_bits(const uint64_t *heads, uint32_t n, uint32_t column)
{
	uint64_t	bits = 0;

	for (uint32_t i = 0; i < n; i++)
		bits |= (heads[i] >> (48 + column) & 1) << i;
	return bits;
}

static uint64_t
condition_bits(const gg_filter *filter, const gg_condition *condition, const uint64_t *heads,
			   const int64_t *const *words, uint32_t first, uint32_t n)
{
	const int64_t *values = filter->values + condition->first_value;
	uint64_t	null = null_bits(heads + first, n, condition->column);
	uint64_t	bits = ~(uint64_t) 0;

	switch ((gg_condition_kind) condition->kind)
	{
		case GG_CONDITION_RANGE:
			bits = range_bits(words[condition->word] + first, n, values[0], values[1]);
			break;
		case GG_CONDITION_IN:
			bits = in_bits(words[condition->word] + first, n, values, condition->nvalues);
			break;
		case GG_CONDITION_MASK:
			bits = mask_bits(words + condition->word, first, n, values, condition->nvalues);
			break;
		case GG_CONDITION_NULL:
			return null;
		case GG_CONDITION_NOT_NULL:
			break;
	}
	return bits & ~null;
}

/* Rows of a block whose TIDs are valid. */
static uint64_t
valid_bits(const uint64_t *heads, uint32_t n)
{
	uint64_t	bits = 0;

	for (uint32_t i = 0; i < n; i++)
		bits |= (uint64_t) ((gg_tid_key(heads[i]) & 0xFFFF) != 0) << i;
	return bits;
}

/*
 * Rows of a block whose TIDs are in the filter's list.  Most rows lie as they do in the table, so a
 * row's place in the list is looked for from that of the row before it (*place: the first TID in
 * the list that is not less than that row's).  Where all rows of a block lie between two neighbours
 * of the list there is nothing to look for.
 *
 * Nanoseconds per row of 1M rows, 1 in 10,000, 1 in 1,000 and 1 in 100 of which match: 0.7, 0.8 and
 * 1.9 in the order of the table, 58, 65 and 73 in random order.  A binary search for each row took
 * 13, 20 and 20, and 50, 106 and 121.
 */
static uint64_t
tid_bits(const gg_filter *filter, const uint64_t *heads, uint32_t n, uint32_t *place)
{
	const uint64_t *tids = filter->tids;
	uint32_t	at = *place;
	/* keys have 48 bits */
	int64_t		low = at > 0 ? (int64_t) tids[at - 1] : -1;
	int64_t		high = at < filter->ntids ? (int64_t) tids[at] : INT64_MAX;
	uint64_t	outside = 0;
	uint64_t	bits = 0;

	for (uint32_t i = 0; i < n; i++)
	{
		int64_t		key = (int64_t) gg_tid_key(heads[i]);

		outside |= (uint64_t) (key - low - 1) | (uint64_t) (high - 1 - key);
	}
	if (outside >> 63 == 0)
		return 0;

	for (uint32_t i = 0; i < n; i++)
	{
		uint64_t	key = gg_tid_key(heads[i]);

		if (at > 0 && tids[at - 1] >= key)
			at = gg_first_tid(tids, 0, at, key);
		else
		{
			uint32_t	left = filter->ntids - at;
			uint32_t	step = 1;

			for (; step <= left && tids[at + step - 1] < key; step *= 2)
			{
				at += step;
				left -= step;
			}
			at = gg_first_tid(tids, at, at + (step < left ? step : left), key);
		}
		bits |= (uint64_t) ((key & 0xFFFF) != 0 && at < filter->ntids && tids[at] == key) << i;
	}
	*place = at;
	return bits;
}

uint32_t
gg_filter_rows(const gg_filter *filter, const uint64_t *heads, const int64_t *const *words,
			   uint32_t n, uint64_t *bits)
{
	uint32_t	matches = 0;
	uint32_t	place = 0;

	for (uint32_t first = 0; first < n; first += BLOCK)
	{
		uint32_t	count = n - first < BLOCK ? n - first : BLOCK;
		uint64_t	match = count < BLOCK ? ((uint64_t) 1 << count) - 1 : ~(uint64_t) 0;

		for (uint32_t c = 0; c < filter->nconditions && match != 0; c++)
			match &= condition_bits(filter, &filter->conditions[c], heads, words, first, count);
		if (match != 0)
			match &= filter->tids == NULL ? valid_bits(heads + first, count) :
				tid_bits(filter, heads + first, count, &place);
		bits[first / BLOCK] = match;
		matches += (uint32_t) __builtin_popcountll(match);
	}
	return matches;
}
