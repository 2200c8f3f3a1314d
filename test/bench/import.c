/*
 * import.c
 *		Real vector sets, turned into a bench data set with exact answers.
 *
 * usage: import SOURCE_DIR NAME OUT_DIR [THREADS]
 *
 * SOURCE_DIR holds manifest.json, a list of objects with "name", "file", "n" and "dim", and the
 * files:
 *		*.u8.gz		row-major unsigned bytes, n x dim
 *		*.txt.gz	one row a line: a word, then dim numbers
 * mnist784 is cut where its makers cut it: the first 60,000 rows are the base, the rest the
 * queries.  Of any other set a twentieth, 500 to 1,000 rows, is held out as queries: the last rows
 * of a byte file, rows spread evenly over a text file (words are sorted by frequency, and the
 * rarest are unlike the others).  Base rows equal to a query are dropped, since held-out rows that
 * were never held out would flatter every index alike. Byte files are compared by L2, text files
 * (word vectors) by cosine.  Files written: see exact.h.
 */
#include "exact.h"

#include <stdbool.h>

typedef struct entry
{
	char		file[256];
	long		n;
	long		dim;
} entry;

/* the value that follows "key": inside [from, to), or NULL */
static const char *
value_of(const char *from, const char *to, const char *key)
{
	char		quoted[64];
	const char *p;

	snprintf(quoted, sizeof(quoted), "\"%s\"", key);
	p = strstr(from, quoted);
	if (p == NULL || p >= to)
		return NULL;
	p += strlen(quoted);
	while (p < to && strchr(" \t\r\n:", *p) != NULL)
		p++;
	return p;
}

/*
 * The manifest's objects are flat, so an object is what lies between two braces; that is all of
 * JSON that needs understanding here.
 */
static entry
find_entry(const char *dir, const char *name)
{
	size_t		size;
	char	   *text = read_file(dir, "manifest.json", &size);
	entry		e = {"", 0, 0};

	for (char *open = strchr(text, '{'); open != NULL; open = strchr(open + 1, '{'))
	{
		char	   *close = strchr(open, '}');
		const char *v;
		size_t		len = strlen(name);

		if (close == NULL)
			break;
		v = value_of(open, close, "name");
		if (v == NULL || *v != '"' || strncmp(v + 1, name, len) != 0 || v[1 + len] != '"')
			continue;
		if ((v = value_of(open, close, "file")) == NULL ||
			sscanf(v, "\"%255[^\"/]\"", e.file) != 1 ||
			(v = value_of(open, close, "n")) == NULL || sscanf(v, "%ld", &e.n) != 1 ||
			(v = value_of(open, close, "dim")) == NULL || sscanf(v, "%ld", &e.dim) != 1 ||
			e.n < 1 || e.n > INT32_MAX || e.dim < 1 || e.dim > 16000)
			die("the entry \"%s\" of \"%s/manifest.json\" is not understood", name, dir);
		free(text);
		return e;
	}
	die("\"%s/manifest.json\" has no set named \"%s\"", dir, name);
}

static FILE *
open_gzip(const char *dir, const char *file)
{
	char		command[4600];
	FILE	   *f;

	if (strchr(dir, '\'') != NULL || strchr(file, '\'') != NULL)
		die("a quote in the file name \"%s/%s\" is not supported", dir, file);
	snprintf(command, sizeof(command), "gzip -dc '%s/%s'", dir, file);
	f = popen(command, "r");
	if (f == NULL)
		die("could not run %s", command);
	return f;
}

static vectors
read_bytes(FILE *f, const entry *e)
{
	size_t		total = (size_t) e->n * e->dim;
	unsigned char *bytes = allocate(total);
	vectors		v = {.rows = allocate(sizeof(float) * total),.n = e->n,.dim = (int) e->dim};

	if (fread(bytes, 1, total, f) != total)
		die("\"%s\" is shorter than %ld x %ld bytes", e->file, e->n, e->dim);
	for (size_t i = 0; i < total; i++)
		v.rows[i] = bytes[i];
	free(bytes);
	return v;
}

static vectors
read_words(FILE *f, const entry *e)
{
	vectors		v = {.rows = allocate(sizeof(float) * e->n * e->dim),.n = e->n,.dim = (int) e->dim};
	size_t		size = 64 * (size_t) e->dim + 4096;
	char	   *line = allocate(size);

	for (int64_t i = 0; i < v.n; i++)
	{
		char	   *p;

		if (fgets(line, (int) size, f) == NULL)
			die("\"%s\" ends at line %lld of %ld", e->file, (long long) i, e->n);
		p = strchr(line, ' ');
		for (int d = 0; d < v.dim; d++)
		{
			char	   *end = p;

			if (p != NULL)
				v.rows[i * v.dim + d] = strtof(p, &end);
			if (end == p)
				die("line %lld of \"%s\" has %d numbers, not %d", (long long) i + 1, e->file, d,
					v.dim);
			p = end;
		}
	}
	free(line);
	return v;
}

static uint64_t
hash_row(const float *row, int dim)
{
	uint64_t	h = 0xCBF29CE484222325ULL;	/* FNV-1a over 32-bit words */

	for (int d = 0; d < dim; d++)
	{
		uint32_t	bits;

		memcpy(&bits, &row[d], sizeof(bits));
		h = (h ^ bits) * 0x100000001B3ULL;
	}
	return h ^ (h >> 32);
}

static bool
has_length(const float *row, int dim)
{
	for (int d = 0; d < dim; d++)
		if (row[d] != 0)
			return true;
	return false;
}

/*
 * Moves the held-out rows to *query and closes the gaps they, their equals and (under cosine) zero
 * rows, which no index holds, leave in *base.  Returns how many rows were dropped.
 */
static int64_t
split(vectors *base, vectors *query, int64_t nq, int spread, int drop_equals, metric m)
{
	int			dim = base->dim;
	size_t		row_bytes = sizeof(float) * dim;
	int64_t		n = base->n,
				kept = 0,
				dropped = 0;
	uint64_t	slots = 1;
	int32_t    *table;

	query->n = 0;
	query->dim = dim;
	query->rows = allocate(row_bytes * nq);
	while (slots < (uint64_t) nq * 4)
		slots *= 2;
	table = allocate(sizeof(int32_t) * slots);
	memset(table, -1, sizeof(int32_t) * slots);

	for (int64_t i = 0; i < n; i++)
		if (spread ? (i + 1) * nq / n != i * nq / n : i >= n - nq)
		{
			const float *row = base->rows + i * dim;
			uint64_t	slot = hash_row(row, dim) & (slots - 1);

			while (table[slot] >= 0)
				slot = (slot + 1) & (slots - 1);
			table[slot] = (int32_t) query->n;
			memcpy(query->rows + query->n++ * dim, row, row_bytes);
		}
	for (int64_t i = 0; i < n; i++)
	{
		const float *row = base->rows + i * dim;
		int			equal = 0;

		if (spread ? (i + 1) * nq / n != i * nq / n : i >= n - nq)
			continue;
		for (uint64_t slot = hash_row(row, dim) & (slots - 1);
			 drop_equals && table[slot] >= 0 && !equal;
			 slot = (slot + 1) & (slots - 1))
			equal = memcmp(query->rows + (int64_t) table[slot] * dim, row, row_bytes) == 0;
		if (equal || (m == METRIC_COS && !has_length(row, dim)))
			dropped++;
		else
			memmove(base->rows + kept++ * dim, row, row_bytes);
	}
	base->n = kept;
	free(table);
	return dropped;
}

int
main(int argc, char **argv)
{
	entry		e;
	FILE	   *f;
	vectors		base,
				query;
	metric		m;
	int			words,
				mnist;
	int64_t		nq,
				dropped;
	double		lid;
	char		source[512];

	if (argc < 4 || argc > 5)
		die("usage: import SOURCE_DIR NAME OUT_DIR [THREADS]");
	e = find_entry(argv[1], argv[2]);
	words = strstr(e.file, ".txt") != NULL;
	mnist = strcmp(argv[2], "mnist784") == 0 && e.n > 60000;
	m = words ? METRIC_COS : METRIC_L2;
	f = open_gzip(argv[1], e.file);
	base = words ? read_words(f, &e) : read_bytes(f, &e);
	pclose(f);

	nq = e.n / 20 < 500 ? 500 : e.n / 20 > 1000 ? 1000 : e.n / 20;
	if (mnist)
		nq = e.n - 60000;
	if (e.n < nq + EXACT_K)
		die("%ld rows are too few to hold out %lld queries", e.n, (long long) nq);
	dropped = split(&base, &query, nq, words, !mnist, m);
	snprintf(source, sizeof(source), "import %s, %lld rows held out as queries, %lld dropped",
			 argv[2], (long long) nq, (long long) dropped);
	lid = write_data_set(argv[3], base, query, m, argc > 4 ? atoi(argv[4]) : online_cpus(), source);
	printf("%s: %lld x %d %s, %lld queries, %lld rows dropped, intrinsic dimension %.1f\n",
		   argv[3], (long long) base.n, base.dim, words ? "cos" : "l2", (long long) nq,
		   (long long) dropped, lid);
	free(base.rows);
	free(query.rows);
	return 0;
}
