/*
 * type.h
 *		The column types as rows and queries of an index.
 */
#ifndef GG_TYPE_H
#define GG_TYPE_H

#include "base/base.h"
#include "storage/format.h"

/*
 * What an operator class says.  Support function 1 returns a pointer to one.  The element is the
 * column's.  GgMetaPageData.element says what is stored, and differs where a vector column is
 * stored as float16.
 */
typedef struct GgOpclass
{
	gg_metric	metric;
	gg_element	element;
} GgOpclass;

#define GG_OPCLASS_PROC		1
#define GG_DISTANCE_STRATEGY 1

extern const GgOpclass *GgIndexOpclass(Relation index);

/* Dimensions declared for the indexed column, 0 where the type has none. */
extern uint32 GgDeclaredDimensions(Relation index);

/*
 * For vectors longer than this (about 1e15), or shorter than its inverse, pgvector's float32
 * arithmetic has no cosine to compare with.  Their squares come near the ends of float32's range
 * (2^-126 to 2^128), and products of two of them still nearer.
 */
#define GG_MAX_COSINE_LENGTH	0x1p50

/*
 * The element that a new index stores.  ereport(ERROR) when the storage option does not fit the
 * column's type.
 */
extern gg_element GgStoredElement(const GgOpclass *opclass, const GgOptions *options);

/* The storage option's name for what an index stores. */
extern const char *GgStorageName(const GgMetaPageData *meta);

extern uint32 GgValueDimensions(const GgOpclass *opclass, Datum detoasted);

/*
 * Make a row at dst from one column value, whose dimensions the caller has checked.  The row has as
 * many elements, of the type that the index stores (meta->element).  False when the value is not to
 * be indexed (a zero vector under cosine).  ereport(ERROR) when it cannot be.
 */
extern bool GgValueToRow(const GgOpclass *opclass, gg_element stored, Datum detoasted,
						 uint32 dimensions, void *dst);

/*
 * Euclidean length of a stored row where scans of this index need it, else 0.  They need it under
 * inner product, where errors grow with the row's length.  meta->largest_length must cover a row
 * before a scan can see it.  A length is above 0, because largest_length 0 says that some row's is
 * not known: versions before 1.2 kept it for rounded rows alone.
 */
extern float GgRowLength(const GgOpclass *opclass, const GgMetaPageData *meta, const void *row);

/* The query as float32, prepared for the engine.  Allocates in the current context. */
extern float *GgQueryFromValue(const GgOpclass *opclass, Datum value, uint32 dimensions);

/* A prepared query as a value of the column.  Allocates. */
extern Datum GgValueOfQuery(const GgOpclass *opclass, const float *query, uint32 dimensions);

/* Is every element 0, so that the vector has no angle to another? */
static inline bool
GgIsZeroVector(const float *vector, uint32 dimensions)
{
	for (uint32 i = 0; i < dimensions; i++)
		if (vector[i] != 0)
			return false;
	return true;
}

#endif							/* GG_TYPE_H */
