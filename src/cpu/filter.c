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
is_member(const uint64_t *values, uint32_t n, uint64_t value, uint64_t flip)
{
	uint32_t	low = 0;
	uint32_t	high = n;

	while (low < high)
	{
		uint32_t	middle = low + (high - low) / 2;

		if ((values[middle] ^ flip) < (value ^ flip))
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
	const uint64_t sign = (uint64_t) 1 << 63;	/* signed order by an unsigned comparison */
	uint64_t	bits = 0;

	for (uint32_t i = 0; i < n; i++)
		bits |= (uint64_t) is_member((const uint64_t *) values, nvalues, (uint64_t) words[i],
									 sign) << i;
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

/* Rows of a block whose TIDs are valid, and in the filter's list where there is one. */
static uint64_t
tid_bits(const gg_filter *filter, const uint64_t *heads, uint32_t n)
{
	uint64_t	bits = 0;

	for (uint32_t i = 0; i < n; i++)
	{
		uint64_t	key = gg_tid_key(heads[i]);
		bool		match = (key & 0xFFFF) != 0 &&
			(filter->tids == NULL || is_member(filter->tids, filter->ntids, key, 0));

		bits |= (uint64_t) match << i;
	}
	return bits;
}

uint32_t
gg_filter_rows(const gg_filter *filter, const uint64_t *heads, const int64_t *const *words,
			   uint32_t n, uint64_t *bits)
{
	uint32_t	matches = 0;

	for (uint32_t first = 0; first < n; first += BLOCK)
	{
		uint32_t	count = n - first < BLOCK ? n - first : BLOCK;
		uint64_t	match = count < BLOCK ? ((uint64_t) 1 << count) - 1 : ~(uint64_t) 0;

		for (uint32_t c = 0; c < filter->nconditions && match != 0; c++)
			match &= condition_bits(filter, &filter->conditions[c], heads, words, first, count);
		if (match != 0)
			match &= tid_bits(filter, heads + first, count);
		bits[first / BLOCK] = match;
		matches += (uint32_t) __builtin_popcountll(match);
	}
	return matches;
}
