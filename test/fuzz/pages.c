/*
 * pages.c
 *		All pages of an index: whoever reads them finds an error or an answer.
 */
#include "image.h"

#include "access/genam.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"

#include "storage/type.h"

static Image *image;
static const char *statement;

/* What is done, as bits of the input's last byte. */
typedef enum Deed
{
	CHECK_IT = 1,
	CHECK_HEAP = 2,
	SCAN = 4,
	VACUUM_IT = 8,
	INSERT_ROWS = 16,
	MERGE = 32,
	TELL = 64,
	BATCH = 128
} Deed;

static void
run(void *arg)
{
	SPI_connect();
	(void) SPI_execute(statement, false, 0);
	SPI_finish();
}

/* A statement with the names of the index, %1, and the table, %2, and the operator, %3. */
static void
say(const char *text)
{
	static const char *const operators[] = {
		[GG_METRIC_L2] = "<->",
		[GG_METRIC_COSINE] = "<=>",
		[GG_METRIC_IP] = "<#>",
		[GG_METRIC_L1] = "<+>"
	};
	StringInfoData sql;

	initStringInfo(&sql);
	for (; *text != '\0'; text++)
		if (*text == '%' && text[1] == '1')
			appendStringInfoString(&sql, RelationGetRelationName(image->index)), text++;
		else if (*text == '%' && text[1] == '2')
			appendStringInfoString(&sql, RelationGetRelationName(image->heap)), text++;
		else if (*text == '%' && text[1] == '3')
			appendStringInfoString(&sql, operators[GgIndexOpclass(image->index)->metric]), text++;
		else
			appendStringInfoChar(&sql, *text);
	statement = sql.data;
	(void) tried(run, NULL);
}

static bool
is_dead(ItemPointer tid, void *arg)
{
	return ItemPointerGetOffsetNumber(tid) % 3 == 0;
}

static void
clear(void *arg)
{
	IndexVacuumInfo info = {.index = image->index, .message_level = DEBUG2,
		.num_heap_tuples = 100, .strategy = GetAccessStrategy(BAS_VACUUM)};
	IndexBulkDeleteResult *result = index_bulk_delete(&info, NULL, is_dead, NULL);

	(void) index_vacuum_cleanup(&info, result);
}

static void
start(void)
{
	load_images(0);
}

static void
one(Input *input)
{
	uint8		deeds;

	image = change_image(input);
	deeds = take8(input);
	if (deeds & CHECK_IT)
		say("SELECT gpugraph_check('%1')");
	if (deeds & TELL)
		say("SELECT gpugraph_index_info('%1')");
	if (deeds & SCAN)
		say("SELECT count(*) FROM (SELECT id FROM %2 ORDER BY val %3 "
			"(SELECT val FROM %2 LIMIT 1)) s");
	if (deeds & BATCH)
		say("SELECT count(*) FROM gpugraph_search('%1', "
			"(SELECT array_agg(val) FROM (SELECT val FROM %2 LIMIT 3) q), 10)");
	if (deeds & VACUUM_IT)
		(void) tried(clear, NULL);
	if (deeds & INSERT_ROWS)
		say("INSERT INTO %2 SELECT * FROM %2 LIMIT 3");
	if (deeds & MERGE)
		say("SELECT gpugraph_merge('%1')");
	if (deeds & CHECK_HEAP)
		say("SELECT gpugraph_check('%1', true)");
}

const Target fuzz_pages = {"pages", start, one};
