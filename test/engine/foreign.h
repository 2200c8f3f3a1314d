/*
 * foreign.h
 *		Made rows, and queries of another distribution than theirs.
 *
 * A row is f(z) = tanh(z W1 + b) W2 + noise of a latent z, which is normal around the centre of one
 * of the clusters.  A query with the gap a is (1 - a) f(z) + a g(z) + a o: g is another such map,
 * and o an offset that all queries share, about as long as a row.  Rows have the first half of the
 * clusters.  Queries with the gap 0 and of the other half are those of the same space where no rows
 * are.
 */
#ifndef GG_TEST_FOREIGN_H
#define GG_TEST_FOREIGN_H

#include <math.h>
#include <stdlib.h>

#include "harness.h"

#define FOREIGN_LATENT		24
#define FOREIGN_HIDDEN		64
#define FOREIGN_CLUSTERS	400

typedef struct foreign_map
{
	float		w1[FOREIGN_LATENT][FOREIGN_HIDDEN];
	float		b[FOREIGN_HIDDEN];
	float	   *w2;				/* FOREIGN_HIDDEN x dim */
} foreign_map;

typedef struct foreign
{
	uint32_t	dim;
	foreign_map maps[2];		/* f and g */
	float	   *offset;
	float		centres[FOREIGN_CLUSTERS][FOREIGN_LATENT];
	float		widths[FOREIGN_CLUSTERS];
} foreign;

/* Clusters first .. end - 1, each as likely, and how far from the rows. */
typedef struct foreign_kind
{
	uint32_t	first,
				end;
	float		gap;
} foreign_kind;

static const foreign_kind foreign_rows = {0, FOREIGN_CLUSTERS / 2, 0};

static inline foreign *
foreign_create(uint32_t dim, uint64_t seed)
{
	foreign    *made = malloc(sizeof(foreign));
	harness_random random = {seed};

	made->dim = dim;
	made->offset = malloc(sizeof(float) * dim);
	for (int m = 0; m < 2; m++)
	{
		foreign_map *map = &made->maps[m];

		map->w2 = malloc(sizeof(float) * FOREIGN_HIDDEN * dim);
		for (uint32_t i = 0; i < FOREIGN_LATENT * FOREIGN_HIDDEN; i++)
			map->w1[i / FOREIGN_HIDDEN][i % FOREIGN_HIDDEN] =
				(float) (harness_normal(&random) / sqrt(FOREIGN_LATENT));
		for (uint32_t h = 0; h < FOREIGN_HIDDEN; h++)
			map->b[h] = (float) (0.3 * harness_normal(&random));
		for (uint32_t i = 0; i < FOREIGN_HIDDEN * dim; i++)
			map->w2[i] = (float) (harness_normal(&random) / sqrt(FOREIGN_HIDDEN));
	}
	for (uint32_t i = 0; i < dim; i++)
		made->offset[i] = (float) (0.65 * harness_normal(&random));
	for (uint32_t c = 0; c < FOREIGN_CLUSTERS; c++)
	{
		made->widths[c] = (float) (0.25 + 0.5 * harness_unit(&random));
		for (uint32_t l = 0; l < FOREIGN_LATENT; l++)
			made->centres[c][l] = (float) harness_normal(&random);
	}
	return made;
}

static inline void
foreign_free(foreign *made)
{
	free(made->maps[0].w2);
	free(made->maps[1].w2);
	free(made->offset);
	free(made);
}

/* x += share * map of z */
static inline void
foreign_add(const foreign *made, const foreign_map *map, const float *z, float share, float *x)
{
	for (uint32_t h = 0; h < FOREIGN_HIDDEN; h++)
	{
		const float *w2 = map->w2 + (size_t) h * made->dim;
		float		sum = map->b[h];

		for (uint32_t l = 0; l < FOREIGN_LATENT; l++)
			sum += z[l] * map->w1[l][h];
		sum = share * tanhf(sum);
		for (uint32_t d = 0; d < made->dim; d++)
			x[d] += sum * w2[d];
	}
}

/* count vectors of a kind; free() */
static inline float *
foreign_draw(const foreign *made, foreign_kind kind, uint32_t count, uint64_t seed)
{
	harness_random random = {seed * 1000003 + 17};
	float	   *vectors = malloc(sizeof(float) * (size_t) count * made->dim);

	for (uint32_t i = 0; i < count; i++)
	{
		float	   *x = vectors + (size_t) i * made->dim;
		uint32_t	c = kind.first + (uint32_t) (harness_unit(&random) * (kind.end - kind.first));
		float		z[FOREIGN_LATENT];

		for (uint32_t l = 0; l < FOREIGN_LATENT; l++)
			z[l] = made->centres[c][l] + made->widths[c] * (float) harness_normal(&random);
		for (uint32_t d = 0; d < made->dim; d++)
			x[d] = kind.gap * made->offset[d] + (float) (0.07 * (harness_unit(&random) - 0.5));
		foreign_add(made, &made->maps[0], z, 1 - kind.gap, x);
		if (kind.gap > 0)
			foreign_add(made, &made->maps[1], z, kind.gap, x);
	}
	return vectors;
}

#endif							/* GG_TEST_FOREIGN_H */
