/*
 * filter_column.h
 *		Filter columns: key columns behind the vector, kept as words of 64 bits beside each row.
 *
 * The words are on disk, and conditions on them (gg_filter) decide which rows a scan returns.  Only
 * built-in types are encoded, so that no user's code decides that.
 */
#ifndef GG_FILTER_COLUMN_H
#define GG_FILTER_COLUMN_H

#include "base/base.h"
#include "storage/format.h"

/*
 * How a value becomes words: a signature GG_MASK_WORDS, any other value one.  Words of integers,
 * floats and uuids have, as signed numbers, the order of the values.
 */
typedef enum GgEncoding
{
	GG_ENCODING_INTEGER = 1,	/* bool, int2, int4, int8, date, timestamp, timestamptz: as it is */
	GG_ENCODING_FLOAT,			/* float4 and float8, comparable with each other */
	GG_ENCODING_ENUM,			/* the label's OID, which is no order but the label's identity */
	GG_ENCODING_UUID,			/* its first 8 bytes: equal words may be different values */
	GG_ENCODING_HASH,			/* text: equal values have equal words */
	GG_ENCODING_SIGNATURE		/* arrays: each element sets two of GG_MASK_WORDS x 64 bits */
} GgEncoding;

/*
 * type is the type of the column's values without domains: a base type, an enum, or an array of a
 * base type.  varchar is text here, and varchar[] is text[].
 */
typedef struct GgFilterColumn
{
	Oid			type;
	Oid			collation;
	uint16		encoding;		/* GgEncoding */
	uint16		first_word;		/* of a row's */
	uint16		nwords;
} GgFilterColumn;

typedef struct GgFilterColumns
{
	int			ncolumns;
	int			nwords;			/* of a row, all columns */
	GgFilterColumn columns[GG_MAX_COLUMNS];
} GgFilterColumns;

/* May an operator class of filter columns be for this type?  anyenum and anyarray are such. */
extern bool GgIsFilterType(Oid type);

/*
 * The filter columns of an index: its key columns but the first.  ereport(ERROR) where there are
 * too many, or one has a type that is not encoded.
 */
extern void GgGetFilterColumns(Relation index, GgFilterColumns *columns);

/*
 * Make the words of a row.  values and isnull are those of the key columns but the first.  The
 * words of a NULL column are 0.  Returns the NULL bits: bit c for filter column c.
 */
extern uint16 GgEncodeFilters(const GgFilterColumns *columns, const Datum *values,
							  const bool *isnull, int64 *words);

/* The word of one value that is not NULL, of a column with one word; type is a column's type. */
extern int64 GgEncodeScalar(Oid type, Oid collation, Datum value);

/* Set the two bits of an element, which is not NULL, in words, beside bits that are set already. */
extern void GgEncodeElement(Oid type, Oid collation, Datum element, int64 *words);

/* The elements of an array of a column's type, in the current context. */
extern void GgArrayElements(Oid type, Datum array, Datum **elements, bool **isnull, int *count);

#endif							/* GG_FILTER_COLUMN_H */
