/*
 * test_cuda_memory.c
 *		Device memory of small indexes, which share blocks (kernels/common/memory.cu).
 *
 * Contracts
 *	shared		200 small indexes take few blocks from the driver, and answer as the CPU engine
 *				does, after others were closed between them and larger ones came
 *	alone		a larger index has memory of its own
 *	given back	whatever the order in which they go
 */
#include <stdlib.h>

#include "../harness.h"
#include "device_memory.h"

#define INDEXES 200
#define DIM 16
#define NQ 3
#define K 5
#define BLOCK ((size_t) 32 << 20)

typedef struct small
{
	gg_dataset	data;
	float	   *queries;
	gg_index   *index;
} small;

/* Blocks that are held.  Searches take memory of their own beside them. */
static int
blocks(void)
{
	int			n = 0;

	for (int i = 0; i < BLOCKS_MAX; i++)
		n += device.blocks[i] != NULL && device.sizes[i] == BLOCK;
	return n;
}

static void
open_small(small *s, uint32_t n, uint64_t seed)
{
	const harness_spec spec = {.n = n, .dim = DIM, .seed = seed};

	harness_data(&spec, &s->data, &s->queries, NQ);
	CHECK_OK(gg_cuda_engine.index_open(&s->data, NULL, NULL, &s->index), "index_open");
}

static void
close_small(small *s)
{
	gg_cuda_engine.index_close(s->index);
	harness_free(&s->data, s->queries);
	memset(s, 0, sizeof(*s));
}

/* Are the answers the CPU engine's? */
static bool
answers(const small *s)
{
	uint64_t	keys[2][NQ * K];
	gg_index   *index;
	bool		same;

	if (gg_cpu_engine.index_open(&s->data, NULL, NULL, &index).code != GG_OK)
		return false;
	same = gg_cpu_engine.index_exact(index, K, NULL, s->queries, NQ, NULL, keys[0]).code == GG_OK &&
		gg_cuda_engine.index_exact(s->index, K, NULL, s->queries, NQ, NULL, keys[1]).code == GG_OK;
	/* nodes: the last bits of distances differ */
	for (int i = 0; i < NQ * K && same; i++)
		same = (uint32_t) keys[0][i] == (uint32_t) keys[1][i];
	gg_cpu_engine.index_close(index);
	return same;
}

static int
wrong_answers(const small *all)
{
	int			wrong = 0;

	for (int i = 0; i < INDEXES; i++)
		wrong += !answers(&all[i]);
	return wrong;
}

static void
test_shared(void)
{
	static small all[INDEXES];
	const size_t before = device.held;
	for (int i = 0; i < INDEXES; i++)
		open_small(&all[i], 20 + i, i + 1);
	CHECK(blocks() == 1 && device.held < before + BLOCK + BLOCK / 4,
		  "%d blocks, %zu bytes before, %zu after", blocks(), before, device.held);
	CHECK(wrong_answers(all) == 0, "%d indexes answer otherwise", wrong_answers(all));

	/* every third makes way for a larger one, in turn and all at once */
	for (int i = 0; i < INDEXES; i += 3)
	{
		close_small(&all[i]);
		open_small(&all[i], 300 + i, i + 7);
	}
	for (int i = 1; i < INDEXES; i += 3)
		close_small(&all[i]);
	for (int i = 1; i < INDEXES; i += 3)
		open_small(&all[i], 10 + i, i + 9);
	CHECK(blocks() == 1, "%d blocks", blocks());
	CHECK(wrong_answers(all) == 0, "%d indexes answer otherwise", wrong_answers(all));
	for (int i = 0; i < INDEXES; i++)
		close_small(&all[i * 7 % INDEXES]);
	CHECK(device.held == before, "%zu bytes are held, %zu before", device.held, before);
}

static void
test_alone(void)
{
	const size_t before = device.held;
	small		large;
	small		other;

	open_small(&other, 50, 1);
	open_small(&large, ((uint32_t) 9 << 20) / (DIM * sizeof(float)), 2);
	CHECK(blocks() == 1 && device.held >= before + BLOCK + ((size_t) 9 << 20),
		  "%d blocks, %zu bytes before, %zu after", blocks(), before, device.held);
	close_small(&large);
	close_small(&other);
	CHECK(device.held == before, "%zu bytes are held, %zu before", device.held, before);
}

int
main(void)
{
	/* other programs that look at memory closely have it set */
	unsetenv("GPUGRAPH_UNSHARED");
	harness_run("shared", test_shared);
	harness_run("alone", test_alone);
	return harness_finish();
}
