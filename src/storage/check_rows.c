/*
 * check_rows.c
 *		gpugraph_check(): what index and table must agree on of a row, as digests, sorted by TID.
 */
#include "storage/check.h"
#include "storage/row_hash.h"

#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/typcache.h"
#include "utils/uuid.h"

#include "engine/rules/codes.h"

#define DIGEST_MASK		(((uint32) 1 << 28) - 1)

/*
 * Bases are compared by their 15 high bits: sign, exponent and 6 of the mantissa, or to 3 percent.
 * A flip of any one but the last of these bits makes a difference above 1 modulo this prime.
 */
#define BASE_SHIFT		17
#define BASE_MODULUS	251

/* ---- sorts --------------------------------------------------------------- */

Tuplesortstate *
GgBeginCheckRows(void)
{
	TypeCacheEntry *type = lookup_type_cache(UUIDOID, TYPECACHE_LT_OPR);

	return tuplesort_begin_datum(UUIDOID, type->lt_opr, InvalidOid, false,
								 maintenance_work_mem / 2, NULL, TUPLESORT_NONE);
}

/*
 * A row is sorted as 16 bytes that compare as the TID does, which has 6, and then the digests: as a
 * uuid, the one such type that PostgreSQL has.
 */
void
GgPutCheckRow(Tuplesortstate *rows, const GgCheckRow *row)
{
	uint64		image[2] = {
		pg_hton64((uint64) row->key << 16 | row->row),
		(uint64) row->filters << 36 | (uint64) row->vector << 8 | row->base
	};

	tuplesort_putdatum(rows, UUIDPGetDatum((pg_uuid_t *) image), false);
}

bool
GgNextCheckRow(Tuplesortstate *rows, GgCheckRow *row)
{
	Datum		value;
	bool		isnull;
	uint64		image[2];

	if (!GgTuplesortGetDatum(rows, &value, &isnull))
		return false;
	memcpy(image, DatumGetUUIDP(value), sizeof(image));
	pfree(DatumGetUUIDP(value));
	image[0] = pg_ntoh64(image[0]);
	row->key = (int64) (image[0] >> 16);
	row->row = (uint16) image[0];
	row->filters = (uint32) (image[1] >> 36);
	row->vector = (uint32) (image[1] >> 8) & DIGEST_MASK;
	row->base = (uint8) image[1];
	return true;
}

/* ---- digests ------------------------------------------------------------- */

static uint32
Fold(uint64 hash)
{
	return (uint32) (hash ^ hash >> 32) & DIGEST_MASK;
}

uint32
GgDigestFilters(uint64 hash, uint16 nulls)
{
	return Fold(GgMixWord(hash, nulls));
}

/* Of two bases that are nearly equal, these numbers differ by one at most, modulo BASE_MODULUS. */
static uint8
RoughBase(float base)
{
	uint32		bits;

	memcpy(&bits, &base, sizeof(bits));
	return (uint8) ((bits >> BASE_SHIFT) % BASE_MODULUS);
}

static bool
BasesAgree(uint8 a, uint8 b)
{
	int			distance = (a + BASE_MODULUS - b) % BASE_MODULUS;

	return distance <= 1 || distance == BASE_MODULUS - 1;
}

void
GgDigestCode(GgCheck *check, const uint8 *record, GgCheckRow *digests)
{
	gg_code_head head;

	GgDecodeRows(check->coder, (const char *) record, 1, check->decoded);
	digests->vector = Fold(GgHashRow(check->decoded, check->row_bytes));
	memcpy(&head, record + check->coder->coder.record_bytes - GG_CODE_HEAD, sizeof(head));
	digests->base = RoughBase(head.base);
}

void
GgDigestVector(GgCheck *check, const void *row, GgCheckRow *digests)
{
	uint64		hash = GgHashRow(row, check->row_bytes);

	digests->vector = Fold(hash);
	digests->base = 0;
	digests->row = 0;
	if (check->coder == NULL)
		return;
	digests->row = (uint16) hash | 1;
	GgCodeRow(check->coder, row);
	GgDigestCode(check, check->coder->record, digests);
}

bool
GgVectorsAgree(const GgCheckRow *in_index, const GgCheckRow *in_heap)
{
	return in_index->vector == in_heap->vector && BasesAgree(in_index->base, in_heap->base) &&
		(in_index->row == 0 || in_index->row == in_heap->row);
}
