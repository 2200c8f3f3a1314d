/*
 * test_stripes.c
 *		Every range of an array is written once, whatever the number of ranges and stripes
 *		(src/build/stripes.h), and neighbours in time are not neighbours in place.
 */
#include "harness.h"

#include "../../src/build/stripes.h"

#include <string.h>

#define MOST 300

int
main(void)
{
	for (uint32_t stripes = 1; stripes <= 40; stripes++)
		for (uint32_t nranges = 0; nranges <= MOST; nranges++)
		{
			uint32_t	times[MOST] = {0};
			uint32_t	once = 0;
			uint32_t	close = 0;
			uint32_t	last = 0;

			for (uint32_t turn = 0; turn < nranges; turn++)
			{
				uint32_t	range = gg_stripes_range(turn, nranges, stripes);

				if (range < nranges)
					times[range]++;
				/* two stripes at least, of two ranges at least */
				if (turn > 0 && stripes > 1 && nranges >= 2 * stripes)
					close += range == last || range == last + 1;
				last = range;
			}
			for (uint32_t i = 0; i < nranges; i++)
				once += times[i] == 1;
			if (once != nranges || close > 0)
				CHECK(false,
					  "%u ranges in %u stripes: %u are written once, %u behind their neighbour",
					  nranges, stripes, once, close);
		}
	CHECK(gg_stripes_range(0, 7, 3) == 0 && gg_stripes_range(1, 7, 3) == 3 &&
		  gg_stripes_range(2, 7, 3) == 5 && gg_stripes_range(3, 7, 3) == 1 &&
		  gg_stripes_range(6, 7, 3) == 2, "stripes of 3, 2 and 2");
	return harness_finish();
}
