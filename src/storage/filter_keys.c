/*
 * filter_keys.c
 *		Conditions on filter columns, from scan keys to a gg_filter.
 *
 * The keys of a column are first put together: an interval of words, a set of words, masks.  Then
 * each column becomes conditions.  Where the filter has no room for them, or words cannot say what
 * a key says, the condition is a weaker one, and the executor rechecks rows.  It is never a
 * stronger one.
 *
 * Keys may compare a column with a value of another type.  A value is then a place among the
 * column's words: one of them, or between two of them, or before or behind all.
 */
#include "storage/filter_keys.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_enum.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* Words that ascend. */
typedef struct WordSet
{
	int64	   *words;
	uint32		n;
} WordSet;

/* The values of a key.  A row fulfils the key if it does so with any one of them. */
typedef struct KeyValues
{
	Oid			type;			/* as RightType() */
	Datum	   *values;
	bool	   *isnull;
	int			count;
} KeyValues;

/* What the keys of one column ask for. */
typedef struct ColumnKeys
{
	bool		null;			/* IS NULL */
	bool		not_null;		/* IS NOT NULL, or any operator */
	int64		low;			/* the word is in [low, high] ... */
	int64		high;
	bool		has_set;		/* ... and in set, where there is one */
	WordSet		set;
	bool		contains;		/* the words have all bits of contained */
	int64		contained[GG_MASK_WORDS];
	List	   *overlaps;		/* of WordSets of masks: the words have one of each, for && */
} ColumnKeys;

/* The labels of an enum, in order. */
typedef struct EnumLabels
{
	Oid			type;			/* invalid: not looked up so far */
	Oid		   *labels;
	uint32		n;
} EnumLabels;

/* ---- operators ----------------------------------------------------------- */

/*
 * A group of types whose values are compared with each other.  0: the type is compared with its own
 * alone.
 */
static int
KindOf(Oid type)
{
	switch (type)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
			return 1;
		case FLOAT4OID:
		case FLOAT8OID:
			return 2;
		case DATEOID:
		case TIMESTAMPOID:
			return 3;
		default:
			return 0;
	}
}

/*
 * Values in the session's time zone are compared with points in time, but not the other way round:
 * where clocks are set back, rows in the order of local times are not in that of points in time.
 */
bool
GgFilterTypesCompare(Oid type, Oid right)
{
	return type == right || (KindOf(type) != 0 && KindOf(type) == KindOf(right)) ||
		(type == TIMESTAMPTZOID && (right == DATEOID || right == TIMESTAMPOID));
}

bool
GgFilterStrategyIsKnown(Oid type, int strategy)
{
	if (type == ANYARRAYOID || OidIsValid(get_element_type(type)))
		return strategy == GG_OVERLAP_STRATEGY || strategy == GG_CONTAINS_STRATEGY;
	if (type == TEXTOID)
		return strategy == BTEqualStrategyNumber;
	return strategy >= BTLessStrategyNumber && strategy <= BTGreaterStrategyNumber;
}

/* ---- values as places among words ---------------------------------------- */

/*
 * Where a value lies among words: it is the word, or lies between the word and the next one, or is
 * one of many values of the word.
 */
typedef enum Place
{
	PLACE_AT,
	PLACE_BEHIND,
	PLACE_AMONG
} Place;

static Place
PlaceOfTimestamp(Timestamp timestamp, int64 *word)
{
	if (TIMESTAMP_IS_NOBEGIN(timestamp))
		*word = DATEVAL_NOBEGIN;
	else if (TIMESTAMP_IS_NOEND(timestamp))
		*word = DATEVAL_NOEND;
	else
	{
		*word = timestamp / USECS_PER_DAY;
		if (timestamp % USECS_PER_DAY < 0)
			(*word)--;
		return timestamp % USECS_PER_DAY == 0 ? PLACE_AT : PLACE_BEHIND;
	}
	return PLACE_AT;
}

static Place
PlaceOfDate(DateADT date, int64 *word)
{
	if (DATE_IS_NOBEGIN(date))
		*word = DT_NOBEGIN;
	else if (DATE_IS_NOEND(date))
		*word = DT_NOEND;
	else if (date >= TIMESTAMP_END_JULIAN - POSTGRES_EPOCH_JDATE)
	{
		/* later than any timestamp but infinity */
		*word = DT_NOEND - 1;
		return PLACE_BEHIND;
	}
	else
		*word = date * USECS_PER_DAY;
	return PLACE_AT;
}

/* The place of a value in the session's time zone, which may lie beyond the ends of all times. */
static Place
PlaceOfLocal(Oid type, Datum value, int64 *word)
{
	int			overflow = 0;

	*word = type == DATEOID ?
		GgDateToLocal(DatumGetDateADT(value), &overflow) :
		GgTimestampToLocal(DatumGetTimestamp(value), &overflow);
	if (overflow == 0)
		return PLACE_AT;
	*word = overflow < 0 ? DT_NOBEGIN : DT_NOEND - 1;
	return PLACE_BEHIND;
}

/* The place of a value of this type among the words of a column. */
static Place
PlaceOf(const GgFilterColumn *column, Oid type, Datum value, int64 *word)
{
	if (column->type == DATEOID && type == TIMESTAMPOID)
		return PlaceOfTimestamp(DatumGetTimestamp(value), word);
	if (column->type == TIMESTAMPOID && type == DATEOID)
		return PlaceOfDate(DatumGetDateADT(value), word);
	if (column->type == TIMESTAMPTZOID && type != TIMESTAMPTZOID)
		return PlaceOfLocal(type, value, word);
	*word = GgEncodeScalar(type, column->collation, value);
	if (column->encoding == GG_ENCODING_UUID || column->encoding == GG_ENCODING_HASH)
		return PLACE_AMONG;
	return PLACE_AT;
}

/* The words of a column for which an operator may be true: [*low, *high].  False for none. */
static bool
IntervalOf(StrategyNumber strategy, Place place, int64 word, int64 *low, int64 *high)
{
	*low = PG_INT64_MIN;
	*high = PG_INT64_MAX;
	switch (strategy)
	{
		case BTLessStrategyNumber:
			if (place == PLACE_AT && word == PG_INT64_MIN)
				return false;
			*high = place == PLACE_AT ? word - 1 : word;
			return true;
		case BTLessEqualStrategyNumber:
			*high = word;
			return true;
		case BTEqualStrategyNumber:
			*low = *high = word;
			return place != PLACE_BEHIND;
		case BTGreaterEqualStrategyNumber:
		case BTGreaterStrategyNumber:
			if (place == PLACE_AMONG ||
				(place == PLACE_AT && strategy == BTGreaterEqualStrategyNumber))
			{
				*low = word;
				return true;
			}
			if (word == PG_INT64_MAX)
				return false;
			*low = word + 1;
			return true;
		default:
			elog(ERROR, "unexpected strategy %d of a filter column", strategy);
	}
}

/* ---- sets of words ------------------------------------------------------- */

static int
CompareWords(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return x < y ? -1 : x > y;
}

static void
SortSet(WordSet *set)
{
	uint32		n = 0;

	if (set->n > 1)
		qsort(set->words, set->n, sizeof(int64), CompareWords);
	for (uint32 i = 0; i < set->n; i++)
		if (n == 0 || set->words[n - 1] != set->words[i])
			set->words[n++] = set->words[i];
	set->n = n;
}

/* Leave only words that are in set, too, which is sorted. */
static void
IntersectSet(ColumnKeys *keys, const WordSet *set)
{
	uint32		n = 0;

	if (!keys->has_set)
	{
		keys->set = *set;
		keys->has_set = true;
		return;
	}
	for (uint32 i = 0, j = 0; i < keys->set.n; i++)
	{
		while (j < set->n && set->words[j] < keys->set.words[i])
			j++;
		if (j < set->n && set->words[j] == keys->set.words[i])
			keys->set.words[n++] = keys->set.words[i];
	}
	keys->set.n = n;
}

/* ---- enums --------------------------------------------------------------- */

/*
 * The labels are read from the catalog, in order.  A row's label was committed before the scan's
 * snapshot, or made by this transaction, and is among them.
 */
static void
ReadLabels(Oid type, EnumLabels *labels)
{
	Relation	pg_enum,
				by_order;
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;
	uint32		room = 64;

	if (labels->type == type)
		return;
	labels->labels = palloc(room * sizeof(Oid));
	labels->n = 0;
	ScanKeyInit(&key, Anum_pg_enum_enumtypid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(type));
	pg_enum = table_open(EnumRelationId, AccessShareLock);
	by_order = index_open(EnumTypIdSortOrderIndexId, AccessShareLock);
	scan = systable_beginscan_ordered(pg_enum, by_order, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext_ordered(scan, ForwardScanDirection)))
	{
		if (labels->n == room)
		{
			room *= 2;
			labels->labels = repalloc(labels->labels, room * sizeof(Oid));
		}
		labels->labels[labels->n++] = ((Form_pg_enum) GETSTRUCT(tuple))->oid;
	}
	systable_endscan_ordered(scan);
	index_close(by_order, AccessShareLock);
	table_close(pg_enum, AccessShareLock);
	labels->type = type;
}

/* Add the labels for which an operator is true.  False when value is not among the labels. */
static bool
AddLabels(const EnumLabels *labels, StrategyNumber strategy, Oid value, bool *taken)
{
	uint32		at = 0;

	while (at < labels->n && labels->labels[at] != value)
		at++;
	if (at == labels->n)
		return false;
	for (uint32 i = 0; i < labels->n; i++)
		if ((i < at && strategy <= BTLessEqualStrategyNumber) ||
			(i > at && strategy >= BTGreaterEqualStrategyNumber) ||
			(i == at && (strategy == BTLessEqualStrategyNumber ||
						 strategy == BTGreaterEqualStrategyNumber)))
			taken[i] = true;
	return true;
}

/*
 * The column is less than, or greater than, one of values, in the order of labels.  False when no
 * label is.
 */
static bool
TakeEnumOrder(const GgFilterColumn *column, ColumnKeys *keys, StrategyNumber strategy,
			  const KeyValues *any, EnumLabels *labels, bool *recheck)
{
	WordSet		set = {NULL, 0};
	bool	   *taken;

	ReadLabels(column->type, labels);
	taken = palloc0(Max(labels->n, 1) * sizeof(bool));
	for (int i = 0; i < any->count; i++)
		if (!any->isnull[i] &&
			!AddLabels(labels, strategy, DatumGetObjectId(any->values[i]), taken))
		{
			/* a label that is gone: the executor knows what to say */
			*recheck = true;
			return true;
		}
	set.words = palloc(Max(labels->n, 1) * sizeof(int64));
	for (uint32 i = 0; i < labels->n; i++)
		if (taken[i])
			set.words[set.n++] = labels->labels[i];
	SortSet(&set);
	IntersectSet(keys, &set);
	return set.n > 0;
}

/* ---- keys of a column ---------------------------------------------------- */

/* The column equals one of values.  False: it cannot. */
static bool
TakeEqualToAny(const GgFilterColumn *column, ColumnKeys *keys, const KeyValues *any, bool *recheck)
{
	WordSet		set = {palloc(Max(any->count, 1) * sizeof(int64)), 0};

	for (int i = 0; i < any->count; i++)
	{
		int64		word;
		Place		place;

		if (any->isnull[i])
			continue;
		place = PlaceOf(column, any->type, any->values[i], &word);
		if (place == PLACE_BEHIND)
			continue;
		if (place == PLACE_AMONG)
			*recheck = true;
		set.words[set.n++] = word;
	}
	SortSet(&set);
	IntersectSet(keys, &set);
	return set.n > 0;
}

/* The column is less than, or greater than, one of values.  False: it cannot be. */
static bool
TakeOrderToAny(const GgFilterColumn *column, ColumnKeys *keys, StrategyNumber strategy,
			   const KeyValues *any, bool *recheck)
{
	int64		low = PG_INT64_MAX,
				high = PG_INT64_MIN;
	bool		possible = false;

	for (int i = 0; i < any->count; i++)
	{
		int64		word,
					from,
					to;
		Place		place;

		if (any->isnull[i])
			continue;
		place = PlaceOf(column, any->type, any->values[i], &word);
		if (place == PLACE_AMONG)
			*recheck = true;
		if (!IntervalOf(strategy, place, word, &from, &to))
			continue;
		low = Min(low, from);
		high = Max(high, to);
		possible = true;
	}
	keys->low = Max(keys->low, low);
	keys->high = Min(keys->high, high);
	return possible;
}

/* Masks for &&, one for each element; none where too many for a filter.  False: no element. */
static bool
TakeOverlap(const GgFilterColumn *column, ColumnKeys *keys, const Datum *elements,
			const bool *isnull, int count)
{
	WordSet    *masks = palloc(sizeof(WordSet));
	int			given = 0;

	for (int i = 0; i < count; i++)
		given += !isnull[i];
	if (given == 0 || given > GG_MAX_FILTER_VALUES / GG_MASK_WORDS)
		return given > 0;
	masks->words = palloc0(given * GG_MASK_WORDS * sizeof(int64));
	masks->n = 0;
	for (int i = 0; i < count; i++)
		if (!isnull[i])
		{
			GgEncodeElement(column->type, column->collation, elements[i], masks->words + masks->n);
			masks->n += GG_MASK_WORDS;
		}
	keys->overlaps = lappend(keys->overlaps, masks);
	return true;
}

/* The mask for @>.  No array contains a NULL, and each contains the empty one. */
static bool
TakeContains(const GgFilterColumn *column, ColumnKeys *keys, const Datum *elements,
			 const bool *isnull, int count)
{
	for (int i = 0; i < count; i++)
	{
		if (isnull[i])
			return false;
		GgEncodeElement(column->type, column->collation, elements[i], keys->contained);
		keys->contains = true;
	}
	return true;
}

static bool
TakeArrayKey(const GgFilterColumn *column, ColumnKeys *keys, const ScanKeyData *key, bool *recheck)
{
	Datum	   *elements;
	bool	   *isnull;
	int			count;

	*recheck = true;
	/* tags && ANY (array of a domain over arrays) */
	if (key->sk_flags & SK_SEARCHARRAY)
		return true;
	GgArrayElements(column->type, key->sk_argument, &elements, &isnull, &count);
	if (key->sk_strategy == GG_OVERLAP_STRATEGY)
		return TakeOverlap(column, keys, elements, isnull, count);
	if (key->sk_strategy == GG_CONTAINS_STRATEGY)
		return TakeContains(column, keys, elements, isnull, count);
	elog(ERROR, "unexpected strategy %d of a filter column", key->sk_strategy);
}

/* The type of a key's value. */
static Oid
RightType(const GgFilterColumn *column, Oid subtype)
{
	if (!OidIsValid(subtype) || subtype == column->type || subtype == ANYENUMOID ||
		subtype == ANYARRAYOID)
		return column->type;
	if (GgFilterTypesCompare(column->type, subtype))
		return subtype;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot compare a filter column of type %s with %s",
					format_type_be(column->type), format_type_be(subtype)),
			 errhint("An operator was added to a family of gpugraph.  Remove it.")));
}

static bool
TakeScalarKey(const GgFilterColumn *column, ColumnKeys *keys, const ScanKeyData *key,
			  Oid type, EnumLabels *labels, bool *recheck)
{
	Datum		value = key->sk_argument;
	bool		value_isnull = false;
	KeyValues	any = {.type = type, .values = &value, .isnull = &value_isnull, .count = 1};

	if (key->sk_flags & SK_SEARCHARRAY)
	{
		ArrayType  *array = DatumGetArrayTypeP(key->sk_argument);
		int16		length;
		bool		byval;
		char		align;

		get_typlenbyvalalign(ARR_ELEMTYPE(array), &length, &byval, &align);
		deconstruct_array(array, ARR_ELEMTYPE(array), length, byval, align, &any.values,
						  &any.isnull, &any.count);
	}
	if (key->sk_strategy == BTEqualStrategyNumber)
		return TakeEqualToAny(column, keys, &any, recheck);
	if (column->encoding == GG_ENCODING_ENUM)
		return TakeEnumOrder(column, keys, key->sk_strategy, &any, labels, recheck);
	return TakeOrderToAny(column, keys, key->sk_strategy, &any, recheck);
}

/* Take a key into account.  False when no row can fulfil it. */
static bool
TakeKey(const GgFilterColumn *column, ColumnKeys *keys, const ScanKeyData *key, EnumLabels *labels,
		bool *recheck)
{
	Oid			type;

	if (key->sk_flags & SK_SEARCHNULL)
	{
		keys->null = true;
		return true;
	}
	keys->not_null = true;
	if (key->sk_flags & SK_SEARCHNOTNULL)
		return true;
	/* all operators are strict */
	if (key->sk_flags & SK_ISNULL)
		return false;
	type = RightType(column, key->sk_subtype);
	if (column->encoding == GG_ENCODING_SIGNATURE)
		return TakeArrayKey(column, keys, key, recheck);
	return TakeScalarKey(column, keys, key, type, labels, recheck);
}

/* ---- conditions ---------------------------------------------------------- */

/* Add a condition.  False: the filter has no room for it, so rows are rechecked. */
static bool
AddCondition(gg_filter *filter, int number, const GgFilterColumn *column, gg_condition_kind kind,
			 const int64 *values, uint32 nvalues, bool *recheck)
{
	gg_condition *condition;

	if (filter->nconditions >= GG_MAX_CONDITIONS ||
		nvalues > GG_MAX_FILTER_VALUES - filter->nvalues)
	{
		*recheck = true;
		return false;
	}
	condition = &filter->conditions[filter->nconditions++];
	condition->kind = (uint16) kind;
	condition->column = (uint16) number;
	condition->word = column->first_word;
	condition->first_value = filter->nvalues;
	condition->nvalues = nvalues;
	if (nvalues > 0)
		memcpy(filter->values + filter->nvalues, values, nvalues * sizeof(int64));
	filter->nvalues += nvalues;
	return true;
}

/* Keep the set's words in the interval, and shrink it to these.  False: no word is left. */
static bool
SettleInterval(ColumnKeys *keys)
{
	uint32		n = 0;

	if (keys->has_set)
	{
		for (uint32 i = 0; i < keys->set.n; i++)
			if (keys->set.words[i] >= keys->low && keys->set.words[i] <= keys->high)
				keys->set.words[n++] = keys->set.words[i];
		keys->set.n = n;
		if (n == 0)
			return false;
		keys->low = keys->set.words[0];
		keys->high = keys->set.words[n - 1];
		/* a run without gaps is an interval */
		if ((uint64) keys->high - (uint64) keys->low == n - 1)
			keys->has_set = false;
	}
	return keys->low <= keys->high;
}

static void
AddInterval(gg_filter *filter, int number, const GgFilterColumn *column, const ColumnKeys *keys,
			bool *recheck)
{
	int64		interval[2] = {keys->low, keys->high};

	(void) AddCondition(filter, number, column, GG_CONDITION_RANGE, interval, 2, recheck);
}

/* Conditions with few values. */
static void
AddSmallConditions(gg_filter *filter, int number, const GgFilterColumn *column,
				   const ColumnKeys *keys, bool *recheck)
{
	if (keys->null)
		(void) AddCondition(filter, number, column, GG_CONDITION_NULL, NULL, 0, recheck);
	else if (keys->contains)
		(void) AddCondition(filter, number, column, GG_CONDITION_MASK, keys->contained,
							GG_MASK_WORDS, recheck);
	else if (keys->has_set || keys->overlaps != NIL)
		return;
	else if (keys->low > PG_INT64_MIN || keys->high < PG_INT64_MAX)
		AddInterval(filter, number, column, keys, recheck);
	else if (keys->not_null)
		(void) AddCondition(filter, number, column, GG_CONDITION_NOT_NULL, NULL, 0, recheck);
}

/*
 * Conditions with many values.  Where there is no room for a set, its interval takes the set's
 * place.
 */
static void
AddLargeConditions(gg_filter *filter, int number, const GgFilterColumn *column,
				   const ColumnKeys *keys, bool *recheck)
{
	ListCell   *cell;

	if (keys->has_set &&
		!AddCondition(filter, number, column, GG_CONDITION_IN, keys->set.words, keys->set.n,
					  recheck))
		AddInterval(filter, number, column, keys, recheck);
	foreach(cell, keys->overlaps)
	{
		const WordSet *masks = lfirst(cell);

		(void) AddCondition(filter, number, column, GG_CONDITION_MASK, masks->words, masks->n,
							recheck);
	}
}

/*
 * The vector's own keys.  No NULL vector is in the index, so IS NOT NULL holds for all that it has.
 * The planner is told that IS NULL costs more than anything (see cost.c).
 */
static void
CheckVectorKey(const ScanKeyData *key)
{
	if (key->sk_flags & SK_SEARCHNOTNULL)
		return;
	if (key->sk_flags & SK_SEARCHNULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot look for NULL vectors in a gpugraph index"),
				 errhint("NULL vectors are not indexed.")));
	elog(ERROR, "unexpected strategy %d of the vector's column", key->sk_strategy);
}

bool
GgFilterFromKeys(const GgFilterColumns *columns, const ScanKeyData *keys, int nkeys,
				 gg_filter *filter, bool *recheck)
{
	ColumnKeys	of_column[GG_MAX_COLUMNS] = {0};
	EnumLabels	labels = {InvalidOid, NULL, 0};

	filter->nconditions = filter->nvalues = filter->ntids = 0;
	filter->tids = NULL;
	*recheck = false;
	for (int c = 0; c < columns->ncolumns; c++)
	{
		of_column[c].low = PG_INT64_MIN;
		of_column[c].high = PG_INT64_MAX;
	}

	for (int i = 0; i < nkeys; i++)
	{
		int			c = keys[i].sk_attno - 2;

		CHECK_FOR_INTERRUPTS();
		if (c < 0)
			CheckVectorKey(&keys[i]);
		else if (c >= columns->ncolumns)
			elog(ERROR, "a scan key names column %d of %d", c + 2, columns->ncolumns + 1);
		else if (!TakeKey(&columns->columns[c], &of_column[c], &keys[i], &labels, recheck))
			return false;
	}
	for (int c = 0; c < columns->ncolumns; c++)
		if ((of_column[c].null && of_column[c].not_null) || !SettleInterval(&of_column[c]))
			return false;
	for (int c = 0; c < columns->ncolumns; c++)
		AddSmallConditions(filter, c, &columns->columns[c], &of_column[c], recheck);
	for (int c = 0; c < columns->ncolumns; c++)
		AddLargeConditions(filter, c, &columns->columns[c], &of_column[c], recheck);
	return true;
}
