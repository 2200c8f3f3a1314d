/*
 * main.cu
 *		What the papers measure, measured here.
 *
 * usage: bench papers [-n ROWS] [-q QUERIES] [-p FILE] [--tiny] FIGURE SET
 *	FIGURE: see figures[] below; SET: s128, s96, s960, s100, s200, of the intrinsic dimensions of
 *	the papers' own, s768, and u128, which has no clusters (bench.cu)
 *	FILE: gets the points of curves, for test/bench/report.pl
 *	--tiny: few points and one run of each, for a machine that emulates the device
 *
 * Prints Markdown.  test/bench/papers runs it and names the sets of each figure.  Times are wall
 * times around work that is waited for, rows, queries and answers in device memory.
 */
#include "papers.h"

typedef struct figure
{
	const char *name;
	void		(*run) (void);
	const char *what;
} figure;

static const figure figures[] = {
	{"algorithms", algorithms, "the algorithms: construction, degree, searches"},
	{"construction", construction_limits, "what doing less in a construction costs in searches"},
	{"cagra-3", cagra_3, "2-hop counts and strong components"},
	{"cagra-4", cagra_4, "reordering by rank and by distance (figures 4 and 5)"},
	{"cagra-8", cagra_8, "team sizes"},
	{"cagra-9", cagra_9, "visited sets in shared and in device memory"},
	{"cagra-lists", cagra_lists, "multi-CTA search with a list per CTA"},
	{"cagra-departures", cagra_departures, "reverse edges half and half, random entry"},
	{"cagra-10", cagra_10, "single-CTA and multi-CTA search, by batch"},
	{"cagra-shards", cagra_shards, "shards on one device and on several, by batch"},
	{"grnnd-5", grnnd_5, "construction at equal recall, searches (figures 5 and 6)"},
	{"grnnd-7", grnnd_7, "ascending, descending and disordered pools"},
	{"grnnd-8", grnnd_8, "rho"},
	{"grnnd-9", grnnd_9, "T1 x T2"},
	{"tsdg-2", tsdg_2, "table 2: seconds of diversification"},
	{"tsdg-5", tsdg_5, "one stage and both at equal degree"},
	{"tsdg-6", tsdg_6, "searches, recall@10 (figures 6, 8 and 10)"},
	{"tsdg-7", tsdg_7, "searches, recall@100 (figures 7, 9 and 11)"},
	{"gnnd-4", gnnd_4, "updates: quality and time by iteration (figures 4 and 5)"},
	{"gnnd-6", gnnd_6, "time against recall of lists"},
	{"ggm-7", ggm_7, "two graphs merged, and by search"},
	{"ggm-2", ggm_2, "table 2: shards merged in pairs, by one device and by all"},
	{"ggm-disk", ggm_disk, "shards in files, merged in pairs"},
	{"limits", limits, "single queries, and the memory that they read"},
};

static int
usage(void)
{
	fprintf(stderr, "usage: bench papers [-n ROWS] [-q QUERIES] [-p FILE] [--tiny] FIGURE SET\n");
	for (const figure &one : figures)
		fprintf(stderr, "\t%-17s %s\n", one.name, one.what);
	return 2;
}

int
bench_papers(int argc, char **argv)
{
	const figure *wanted = NULL;
	const double begin = now_s();
	int			i = 1;

	papers.nq = 10000;
	for (; i < argc && argv[i][0] == '-'; i++)
	{
		if (strcmp(argv[i], "-n") == 0 && i + 1 < argc)
			papers.n = (uint32_t) atoi(argv[++i]);
		else if (strcmp(argv[i], "-q") == 0 && i + 1 < argc)
			papers.nq = (uint32_t) atoi(argv[++i]);
		else if (strcmp(argv[i], "-p") == 0 && i + 1 < argc)
			papers.points = fopen(argv[++i], "a");
		else if (strcmp(argv[i], "--tiny") == 0)
			papers.tiny = true;
		else
			return usage();
	}
	if (i + 2 != argc || papers.nq == 0)
		return usage();
	papers.figure = argv[i];
	papers.set = argv[i + 1];
	for (const figure &one : figures)
		if (strcmp(one.name, papers.figure) == 0)
			wanted = &one;
	if (wanted == NULL)
		return usage();
	wanted->run();
	printf("\n%s %s: %.1f seconds\n\n", papers.figure, papers.set, now_s() - begin);
	if (papers.points != NULL)
		fclose(papers.points);
	return 0;
}
