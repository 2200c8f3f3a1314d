/*
 * filter_keys.c
 *		Scan keys on filter columns: what they become is true of each row that fulfils them, and of
 *		no other one unless the executor is to look again.
 */
#include "fuzz.h"

#include "access/genam.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "catalog/namespace.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "storage/filter_keys.h"

#define ROWS		4
#define MOST_KEYS	6
#define MOST_VALUES	6
#define MOST_INDEXES 4

static Relation indexes[MOST_INDEXES];
static int	nindexes;
static Oid	labels[3];

typedef struct Case
{
	Relation	index;
	GgFilterColumns columns;
	Datum		values[ROWS][GG_MAX_COLUMNS];
	bool		isnull[ROWS][GG_MAX_COLUMNS];
	ScanKeyData keys[MOST_KEYS];
	int			nkeys;
	gg_filter	filter;
	bool		recheck;
	bool		possible;
	bool		fulfils[ROWS];
} Case;

static Case run;

static Datum
draw_timestamp(Input *input)
{
	Timestamp	value = (Timestamp) take64(input);

	switch (take8(input) % 8)
	{
		case 0:
			return TimestampGetDatum(DT_NOBEGIN);
		case 1:
			return TimestampGetDatum(DT_NOEND);
		case 2:
			return TimestampGetDatum(value % 10 * USECS_PER_DAY);
		default:
			if (!IS_VALID_TIMESTAMP(value))
				value %= 1000000;
			return TimestampGetDatum(value);
	}
}

static Datum
draw_date(Input *input)
{
	DateADT		value = (DateADT) take64(input);

	switch (take8(input) % 8)
	{
		case 0:
			return DateADTGetDatum(DATEVAL_NOBEGIN);
		case 1:
			return DateADTGetDatum(DATEVAL_NOEND);
		default:
			if (!IS_VALID_DATE(value))
				value %= 10;
			return DateADTGetDatum(value);
	}
}

static Datum
draw_text(Input *input)
{
	char		text[9] = {0};

	take(input, text, take8(input) % 4);
	for (int i = 0; i < 4; i++)
		text[i] &= 0x3F;
	for (int i = 0; i < 4; i++)
		if (text[i] != 0)
			text[i] += ' ';
	return CStringGetTextDatum(text);
}

static Datum draw(Input *input, Oid type);

static Datum
draw_array(Input *input, Oid element)
{
	Datum		values[MOST_VALUES];
	bool		isnull[MOST_VALUES];
	int			n = take8(input) % (MOST_VALUES + 1);
	int			lower = 1;
	int16		length;
	bool		byval;
	char		align;

	get_typlenbyvalalign(element, &length, &byval, &align);
	for (int i = 0; i < n; i++)
	{
		isnull[i] = take8(input) % 8 == 0;
		values[i] = draw(input, element);
	}
	if (n == 0)
		return PointerGetDatum(construct_empty_array(element));
	return PointerGetDatum(construct_md_array(values, isnull, 1, &n, &lower, element, length,
											  byval, align));
}

/* A value of a type, small ones above all: they meet. */
static Datum
draw(Input *input, Oid type)
{
	uint64		bits = take64(input);
	pg_uuid_t  *uuid;

	if (take8(input) % 2 == 0)
		bits %= 4;
	if (type_is_enum(type))
		return ObjectIdGetDatum(labels[bits % lengthof(labels)]);
	switch (type)
	{
		case BOOLOID:
			return BoolGetDatum(bits & 1);
		case INT2OID:
			return Int16GetDatum((int16) bits);
		case INT4OID:
			return Int32GetDatum((int32) bits);
		case INT8OID:
			return Int64GetDatum((int64) bits);
		case FLOAT4OID:
			return Float4GetDatum(bits < 4 ? bits : DatumGetFloat4(Int32GetDatum((int32) bits)));
		case FLOAT8OID:
			return bits < 4 ? Float8GetDatum(bits) : Int64GetDatum((int64) bits);
		case DATEOID:
			return draw_date(input);
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return draw_timestamp(input);
		case UUIDOID:
			uuid = palloc0(sizeof(*uuid));
			uuid->data[7] = (unsigned char) bits & 3;
			uuid->data[15] = (unsigned char) (bits >> 8) & 1;
			return UUIDPGetDatum(uuid);
		case TEXTOID:
			return draw_text(input);
		default:
			return draw_array(input, get_element_type(type));
	}
}

/* Types that a column may be compared with; the first is its own. */
static Oid
right_type(Input *input, Oid type)
{
	static const Oid kinds[][3] = {{INT2OID, INT4OID, INT8OID},
	{FLOAT4OID, FLOAT8OID, FLOAT8OID}, {DATEOID, TIMESTAMPOID, TIMESTAMPOID},
	{TIMESTAMPTZOID, DATEOID, TIMESTAMPOID}};
	uint8		choice = take8(input);

	for (int i = 0; i < lengthof(kinds); i++)
		for (int j = 0; j < (i == 3 ? 1 : 3); j++)
			if (kinds[i][j] == type)
				return kinds[i][choice % 3];
	return type;
}

/* A key of column c, of an operator that its family has.  False: it has none such. */
static bool
draw_key(Input *input, int c, ScanKeyData *key)
{
	const GgFilterColumn *column = &run.columns.columns[c];
	const Oid	family = run.index->rd_opfamily[c + 1];
	const Oid	left = run.index->rd_opcintype[c + 1];
	const uint8 form = take8(input);
	const int	strategy = take8(input) % GG_STRATEGIES + 1;
	Oid			right = right_type(input, column->type);
	Oid			subtype = left == ANYARRAYOID || left == ANYENUMOID ? left : right;
	Oid			operator;

	memset(key, 0, sizeof(*key));
	key->sk_attno = c + 2;
	if (form % 8 < 2)
	{
		key->sk_flags = SK_ISNULL | (form % 8 == 0 ? SK_SEARCHNULL : SK_SEARCHNOTNULL);
		return true;
	}
	operator = get_opfamily_member(family, left, subtype, strategy);
	if (OidIsValid(operator) != (GgFilterStrategyIsKnown(column->type, strategy) &&
								 GgFilterTypesCompare(left, subtype)))
		wrong("strategy %d of column %d: the family and the library disagree", strategy, c);
	if (!OidIsValid(operator))
		return false;
	ScanKeyEntryInitialize(key, 0, c + 2, strategy, subtype, column->collation,
						   get_opcode(operator), (Datum) 0);
	if (form % 8 == 2)
		key->sk_flags = SK_ISNULL;
	else if (form % 8 < 5 && column->encoding != GG_ENCODING_SIGNATURE)
	{
		key->sk_flags = SK_SEARCHARRAY;
		key->sk_argument = draw_array(input, right);
	}
	else
		key->sk_argument = draw(input, right);
	return true;
}

/* Is the key true of a row, by its operator? */
static bool
is_true(const ScanKeyData *key, Datum value, bool isnull)
{
	ArrayType  *array;
	Datum	   *values;
	bool	   *isnulls;
	int			n;
	int16		length;
	bool		byval;
	char		align;

	if (key->sk_flags & SK_SEARCHNULL)
		return isnull;
	if (key->sk_flags & SK_SEARCHNOTNULL)
		return !isnull;
	if (isnull || (key->sk_flags & SK_ISNULL))
		return false;
	if ((key->sk_flags & SK_SEARCHARRAY) == 0)
		return DatumGetBool(FunctionCall2Coll((FmgrInfo *) &key->sk_func, key->sk_collation, value,
											  key->sk_argument));
	array = DatumGetArrayTypeP(key->sk_argument);
	get_typlenbyvalalign(ARR_ELEMTYPE(array), &length, &byval, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), length, byval, align, &values, &isnulls, &n);
	for (int i = 0; i < n; i++)
		if (!isnulls[i] &&
			DatumGetBool(FunctionCall2Coll((FmgrInfo *) &key->sk_func, key->sk_collation, value,
										   values[i])))
			return true;
	return false;
}

static void
ask(void *arg)
{
	run.possible = GgFilterFromKeys(&run.columns, run.keys, run.nkeys, &run.filter, &run.recheck);
	for (int r = 0; r < ROWS; r++)
	{
		run.fulfils[r] = true;
		for (int i = 0; i < run.nkeys; i++)
		{
			int			c = run.keys[i].sk_attno - 2;

			if (c >= 0)
				run.fulfils[r] &= is_true(&run.keys[i], run.values[r][c], run.isnull[r][c]);
		}
	}
}

/* The rows as an index has them, and the filter on them. */
static uint64
matching(void)
{
	uint64		heads[ROWS];
	int64		of_row[GG_MAX_FILTER_WORDS];
	int64		by_word[GG_MAX_FILTER_WORDS][ROWS];
	const int64 *words[GG_MAX_FILTER_WORDS];
	uint64		bits = 0;

	for (int r = 0; r < ROWS; r++)
	{
		GgTidEntry	entry;

		ItemPointerSet(&entry.tid, r, 1);
		entry.nulls = GgEncodeFilters(&run.columns, run.values[r], run.isnull[r], of_row);
		memcpy(&heads[r], &entry, sizeof(entry));
		for (int w = 0; w < run.columns.nwords; w++)
			by_word[w][r] = of_row[w];
	}
	for (int w = 0; w < run.columns.nwords; w++)
		words[w] = by_word[w];
	(void) gg_filter_rows(&run.filter, heads, words, ROWS, &bits);
	return bits;
}

static void
start(void)
{
	for (; nindexes < MOST_INDEXES; nindexes++)
	{
		char	   *name = psprintf("keyed_%d_idx", nindexes + 1);
		Oid			oid = RangeVarGetRelid(makeRangeVar("public", name, -1), NoLock, true);

		if (!OidIsValid(oid))
			break;
		indexes[nindexes] = index_open(oid, AccessShareLock);
	}
	for (int i = 0; i < lengthof(labels); i++)
		labels[i] = DatumGetObjectId(OidInputFunctionCall(F_ENUM_IN, psprintf("label_%d", i),
														  TypenameGetTypid("mood"), -1));
}

static void
one(Input *input)
{
	uint64		bits;
	int			nkeys;

	run.index = indexes[take8(input) % nindexes];
	GgGetFilterColumns(run.index, &run.columns);
	for (int r = 0; r < ROWS; r++)
		for (int c = 0; c < run.columns.ncolumns; c++)
		{
			run.isnull[r][c] = take8(input) % 8 == 0;
			run.values[r][c] = run.isnull[r][c] ? (Datum) 0 :
				draw(input, run.columns.columns[c].type);
		}
	nkeys = take8(input) % (MOST_KEYS + 1);
	run.nkeys = 0;
	for (int i = 0; i < nkeys; i++)
	{
		uint8		column = take8(input);

		if (column == 0xFF)
		{
			memset(&run.keys[run.nkeys], 0, sizeof(ScanKeyData));
			run.keys[run.nkeys].sk_attno = 1;
			run.keys[run.nkeys++].sk_flags = SK_ISNULL |
				(take8(input) % 2 == 0 ? SK_SEARCHNULL : SK_SEARCHNOTNULL);
		}
		else if (draw_key(input, column % run.columns.ncolumns, &run.keys[run.nkeys]))
			run.nkeys++;
	}
	if (!tried(ask, NULL))
		return;
	bits = run.possible ? matching() : 0;
	for (int r = 0; r < ROWS; r++)
	{
		const bool	matches = (bits >> r & 1) != 0;

		if (run.fulfils[r] && !matches)
			wrong("row %d fulfils %d keys, and the filter leaves it out", r, run.nkeys);
		if (!run.fulfils[r] && matches && !run.recheck)
			wrong("row %d does not fulfil %d keys, and is not looked at again", r, run.nkeys);
	}
}

const Target fuzz_filter_keys = {"filter_keys", start, one};
