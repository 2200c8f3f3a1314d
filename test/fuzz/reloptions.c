/*
 * reloptions.c
 *		Options of an index, as a user writes them: lines of name=value.  What is accepted when it
 *		is written is accepted when it is read.
 */
#include "fuzz.h"

#include "access/reloptions.h"
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "base/base.h"
#include "storage/codes.h"
#include "storage/format.h"
#include "storage/type.h"

typedef struct Parsed
{
	Datum		options;
	GgOptions  *result;
} Parsed;

static const GgOpclass opclasses[] = {
	{.metric = GG_METRIC_L2, .element = GG_ELEMENT_F32},
	{.metric = GG_METRIC_L1, .element = GG_ELEMENT_F32},
	{.metric = GG_METRIC_IP, .element = GG_ELEMENT_F16}
};

static void
parse(void *arg)
{
	Parsed	   *parsed = arg;

	parsed->result = (GgOptions *) ggoptions(parsed->options, true);
}

/* As a build, ALTER INDEX and the relation's cache use them. */
static void
use(void *arg)
{
	GgOptions  *options = arg;
	FormData_pg_class form = {.relname = {"fuzz"}};
	RelationData index = {.rd_options = (bytea *) options, .rd_rel = &form};
	GgOptions	got;

	GgGetOptions(&index, &got);
	(void) GgWishedDevices(&index);
	(void) GgMostSegmentRows(&got, 1e6);
	(void) GgCodedStorage(&got);
	if (GgAlgorithmName(got.algorithm) == NULL ||
		(got.codes != GG_CODES_AUTO && GgCodesName(got.codes) == NULL))
		wrong("algorithm %d and codes %d are accepted", got.algorithm, got.codes);
	if (got.graph_degree < GG_MIN_GRAPH_DEGREE || got.graph_degree > GG_MAX_GRAPH_DEGREE)
		wrong("graph_degree %d is accepted", got.graph_degree);
}

static void
suit(void *arg)
{
	const GgOptions *options = arg;

	for (int i = 0; i < lengthof(opclasses); i++)
		(void) GgStoredElement(&opclasses[i], options);
}

static void
read_back(void *arg)
{
	Parsed	   *parsed = arg;

	parsed->result = (GgOptions *) ggoptions(parsed->options, false);
}

static void
start(void)
{
}

static void
one(Input *input)
{
	char	   *text = palloc0(input->size + 1);
	Datum		words[64];
	int			nwords = 0;
	Parsed		parsed;
	RelationData plain = {0};
	GgOptions	defaults;

	take(input, text, input->size);
	for (char *word = strtok(text, "\n"); word != NULL && nwords < lengthof(words);
		 word = strtok(NULL, "\n"))
		if (strchr(word, '=') != NULL)
			words[nwords++] = CStringGetTextDatum(word);
	parsed.options = PointerGetDatum(construct_array(words, nwords, TEXTOID, -1, false,
													 TYPALIGN_INT));
	if (tried(parse, &parsed))
	{
		if (parsed.result != NULL && !tried(use, parsed.result))
			wrong("what was accepted is refused later");
		if (parsed.result != NULL)
			(void) tried(suit, parsed.result);
	}
	/* what a catalog has is read whatever it is */
	if (!tried(read_back, &parsed))
		wrong("options that are in a catalog cannot be read");
	GgGetOptions(&plain, &defaults);
	use(&defaults);
}

const Target fuzz_reloptions = {"reloptions", start, one};
