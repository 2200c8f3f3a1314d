/*
 * test_large.c
 *		How many entries 100 million rows of 1,536 dimensions take that are inserted in one
 *		transaction under an old snapshot: nothing that is given back can be used again.
 */
#include "merges.h"

#define MOST_ENTRIES		256

/* Rows come slowly, as fast as merges keep up with, and faster. */
int
main(void)
{
	static const struct
	{
		double		rows;
		uint32		slice;
	}			cases[] = {{5e6, 30}, {100e6, 100}, {20e6, 300}};
	int			failed = 0;

	for (int i = 0; i < lengthof(cases); i++)
	{
		/* maintenance_work_mem has room for some 40 million nodes in files */
		Shape		shape = {.dimensions = 1536, .slice = cases[i].slice, .most_nodes = 40000000};

		begin_index(&shape);
		hold_snapshot(true);
		insert_rows((uint64) cases[i].rows);
		printf("%.1f million rows, %u a slice: at most %d entries and %d pieces; %u segments at "
			   "the end, %u merges, %.2f times the rows written, a relation of %.0f GB\n",
			   counts.inserted / 1e6, shape.slice, counts.most_entries, counts.most_pieces,
			   meta->nsegments, counts.merges,
			   counts.written / (counts.inserted * shape.dimensions * 4.0 / BLCKSZ),
			   server.nblocks * (BLCKSZ / 1e9));
		failed += counts.most_entries > MOST_ENTRIES;
		end_index();
	}
	printf("%d passed, %d failed\n", (int) lengthof(cases) - failed, failed);
	return failed > 0;
}
