/*
 * halves.c
 *		Rows rounded to half precision, and whether they bear it.
 *
 * Rows are rounded a block of elements at a time.  In one block of LOOKED_AT, what rounding loses
 * is compared with the distance from other rows that come with these: more than a share of 2^-14 of
 * the squares is too much.  Rows that lie farther from the origin than 30 times their distance from
 * each other lose more, and so do elements of some 1e-6.  Fewer rows than 16 are not compared.  An
 * element that becomes infinite is too much in any case.
 */
#include "engine/engine.h"

#include <string.h>

#define BLOCK		1024u
#define LOOKED_AT	16u
#define LOSS		0x1p-14
#define LEAST_ROWS	16u

/* What rounding has lost of some elements, and how far they are from those of other rows. */
typedef struct loss
{
	double		lost;
	double		apart;
} loss;

static void
add_loss(loss *sum, const float *before, const uint16_t *after, const float *others, uint32_t n)
{
	float		rounded[BLOCK];

	gg_halves_to_floats(after, rounded, n);
	for (uint32_t i = 0; i < n; i++)
	{
		double		lost = (double) before[i] - rounded[i];
		double		apart = (double) before[i] - others[i];

		sum->lost += lost * lost;
		sum->apart += apart * apart;
	}
}

bool
gg_round_rows(const float *rows, uint16_t *halves, uint64_t count, uint32_t dim)
{
	const uint64_t n = count / dim;
	const uint64_t half = n < LEAST_ROWS ? count : n / 2 * dim;
	float		before[BLOCK];
	loss		sum = {0, 0};

	for (uint64_t first = 0; first < count; first += BLOCK)
	{
		uint32_t	some = count - first < BLOCK ? (uint32_t) (count - first) : BLOCK;
		uint16_t	largest = 0;

		memcpy(before, rows + first, some * sizeof(float));
		gg_floats_to_halves(before, halves + first, some);
		for (uint32_t i = 0; i < some; i++)
		{
			uint16_t	size = halves[first + i] & 0x7FFF;

			largest = size > largest ? size : largest;
		}
		/* infinity */
		if (largest >= 0x7C00)
			return false;
		/* the other rows lie behind, and are still what they were where halves take their place */
		if (first / BLOCK % LOOKED_AT == 0 && first + half + some <= count)
			add_loss(&sum, before, halves + first, rows + first + half, some);
	}
	return sum.lost <= sum.apart * LOSS;
}
