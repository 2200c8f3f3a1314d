/*
 * test_optimize.c
 *		Rank-based reordering against its contract (src/engine/cpu/graph/optimize.c), written down
 *		naively.
 */
#include <stdlib.h>
#include <string.h>

#include "build_stages.h"
#include "harness.h"

static uint32_t
list_length(const uint32_t *list, uint32_t k)
{
	uint32_t	length = 0;

	while (length < k && list[length] != GG_NO_NODE)
		length++;
	return length;
}

/* (a): F(A), padded with GG_NO_NODE */
static void
reference_forward(const uint32_t *knn, uint32_t k, uint32_t degree, uint32_t a, uint32_t *forward)
{
	const uint32_t *list = knn + (size_t) a * k;
	uint32_t	length = list_length(list, k);
	uint32_t	detours[GG_MAX_DEGREE] = {0};
	bool		used[GG_MAX_DEGREE] = {false};

	for (uint32_t r = 0; r < length; r++)
		for (uint32_t b = 0; b < r; b++)
		{
			const uint32_t *hop = knn + (size_t) list[b] * k;

			for (uint32_t s = 0; s < r && hop[s] != GG_NO_NODE; s++)
				if (hop[s] == list[r])
					detours[r]++;
		}
	for (uint32_t i = 0; i < degree; i++)
	{
		uint32_t	best = length;

		for (uint32_t r = 0; r < length; r++)
			if (!used[r] && (best == length || detours[r] < detours[best]))
				best = r;
		forward[i] = best < length ? list[best] : GG_NO_NODE;
		if (best < length)
			used[best] = true;
	}
}

static void
reference(const uint32_t *knn, uint32_t n, uint32_t k, uint32_t degree, uint32_t *graph)
{
	uint32_t   *forward = malloc(sizeof(uint32_t) * n * degree);
	uint32_t   *reverse = malloc(sizeof(uint32_t) * degree);

	for (uint32_t a = 0; a < n; a++)
		reference_forward(knn, k, degree, a, forward + (size_t) a * degree);
	for (uint32_t d = 0; d < n; d++)
	{
		uint32_t   *out = graph + (size_t) d * degree;
		uint32_t	nforward = list_length(forward + (size_t) d * degree, degree),
					nreverse = 0,
					count = 0;

		for (uint32_t i = 0; i < degree; i++)
			for (uint32_t a = 0; a < n; a++)
				if (forward[(size_t) a * degree + i] == d && nreverse < degree)
					reverse[nreverse++] = a;
		for (uint32_t i = 0; i < degree; i++)
		{
			uint32_t	f = forward[(size_t) d * degree + i];

			if (i < nforward && f != d && count < degree && !list_has(out, count, f))
				out[count++] = f;
			if (i < nreverse && reverse[i] != d && count < degree &&
				!list_has(out, count, reverse[i]))
				out[count++] = reverse[i];
		}
		while (count < degree)
			out[count++] = GG_NO_NODE;
	}
	free(forward);
	free(reverse);
}

static void
compare(uint32_t n, uint32_t k, uint32_t degree, uint32_t spread, bool cut, uint64_t seed)
{
	harness_random random = {seed};
	uint32_t   *knn = random_lists(&random, n, k, spread, cut);
	uint32_t   *expected = malloc(sizeof(uint32_t) * n * degree);

	reference(knn, n, k, degree, expected);
	for (int threads = 1; threads <= 3; threads++)
	{
		gg_control	control = {.threads = threads};
		uint32_t   *graph = malloc(sizeof(uint32_t) * n * degree);

		memset(graph, 0x5A, sizeof(uint32_t) * n * degree);
		CHECK_OK(stage_optimize(knn, n, k, degree, &control, graph), "optimize");
		CHECK(memcmp(graph, expected, sizeof(uint32_t) * n * degree) == 0,
			  "n %u, k %u, degree %u, spread %u, cut %d, %d threads", n, k, degree, spread, cut,
			  threads);
		free(graph);
	}
	free(expected);
	free(knn);
}

/* Three nodes by hand: 0 -> 1, 2; 1 -> 2, 0; 2 -> 1, 0. */
static void
test_by_hand(void)
{
	const uint32_t knn[] = {1, 2, 2, 0, 1, 0};

	/*
	 * Edge 0 -> 2 (rank 1) has the detour 0 -> 1 -> 2, and so on, but order stays.  F = the lists;
	 * R(0) = {1, 2} at position 1, R(1) = {0, 2} at 0, R(2) = {1} at 0, {0} at 1.
	 */
	const uint32_t expected[] = {1, 2, 2, 0, 1, 0};
	uint32_t	graph[6];

	CHECK_OK(stage_optimize(knn, 3, 2, 2, NULL, graph), "optimize");
	CHECK(memcmp(graph, expected, sizeof(expected)) == 0, "three nodes");
}

/* A node that everybody points at gets exactly `degree` reverse candidates, by (position, id). */
static void
test_hub(void)
{
	uint32_t	n = harness_size(2000, 4),
				k = 8;
	uint32_t   *knn = malloc(sizeof(uint32_t) * n * k);
	uint32_t   *graph = malloc(sizeof(uint32_t) * n * 4);
	uint32_t   *expected = malloc(sizeof(uint32_t) * n * 4);

	for (uint32_t a = 0; a < n; a++)
		for (uint32_t r = 0; r < k; r++)
			knn[a * k + r] = r == a % 4 && a != 0 ? 0 : (a + 1 + r) % n == 0 ||
				(a + 1 + r) % n == a ? (a + 1 + k) % n : (a + 1 + r) % n;
	reference(knn, n, k, 4, expected);
	CHECK_OK(stage_optimize(knn, n, k, 4, NULL, graph), "optimize");
	CHECK(memcmp(graph, expected, sizeof(uint32_t) * n * 4) == 0, "a hub of %u nodes", n);
	free(knn);
	free(graph);
	free(expected);
}

static void
test_bounds(void)
{
	uint32_t	knn[2] = {1, 0},
				graph[2 * GG_MAX_DEGREE];

	CHECK_OK(stage_optimize(knn, 0, 4, 4, NULL, graph), "no nodes");
	CHECK_OK(stage_optimize(knn, 2, 1, 4, NULL, graph), "two nodes");
	CHECK(graph[0] == 1 && graph[1] == GG_NO_NODE && graph[4] == 0 && graph[5] == GG_NO_NODE,
		  "two nodes");
	CHECK(stage_optimize(knn, 2, 0, 4, NULL, graph).code == GG_EINVAL, "k = 0");
	CHECK(stage_optimize(knn, 2, 1, GG_MAX_DEGREE + 1, NULL, graph).code == GG_EINVAL,
		  "degree too large");
}

int
main(void)
{
	uint64_t	seed = 1;

	test_by_hand();
	test_hub();
	test_bounds();
	for (uint32_t n = 2; n <= 40; n += 1 + n / 4)
		for (uint32_t k = 1; k <= 24; k += 1 + k / 2)
			for (uint32_t degree = 1; degree <= k + 2; degree += 1 + degree / 2)
				compare(n, k, degree, 6, n % 2, seed++);
	compare(harness_size(1500, 5), 64, 32, 60, false, seed++);
	compare(harness_size(1500, 5), 64, 32, 40, true, seed++);
	compare(harness_size(1000, 5), 33, 17, 400, true, seed++);
	compare(harness_size(800, 4), 128, 64, 100, false, seed++);
	compare(harness_size(300, 3), 512, 256, 290, true, seed++);
	return harness_finish();
}
