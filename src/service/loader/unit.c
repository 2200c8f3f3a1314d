/*
 * unit.c
 *		What a load is divided into, and who takes which unit.
 *
 * Readers of one load take units from a counter in shared memory.  Which pages a unit has follows
 * from its number.
 */
#include "service/loader/unit.h"

#include "storage/codes.h"

/* gpugraph.fault = load_readers: units so small that each reader of a small index has some */
#define FAULT_UNIT_PAGES	2

/* Pages of a unit: what fits a chunk. */
static uint32
UnitPages(const GgLoadJob *job)
{
	if (job->fault == GG_FAULT_LOAD_READERS)
		return FAULT_UNIT_PAGES;
	return GG_STAGE_CHUNK / GG_PAGE_PAYLOAD;
}

/* Delta pages whose rows fit one chunk; whole rows only. */
static uint32
DeltaPagesPerUnit(const GgLoadJob *job, const GgMetaPageData *meta)
{
	uint32		npages = GgDeltaPagesPerRow(meta);
	uint32		rows = GG_STAGE_CHUNK / GgRowBytes(meta);

	return Max(1, Min(rows / GgDeltaRowsPerPage(meta), UnitPages(job) / npages)) * npages;
}

/* Find unit number *u of an array.  When there are fewer, they are subtracted from *u. */
static bool
FindInArray(const GgLoadJob *job, uint64 bytes, uint32 *u, GgUnit *unit)
{
	uint32		unit_pages = UnitPages(job);
	uint32		npages = (uint32) GgArrayPages(bytes);
	uint32		units = (npages + unit_pages - 1) / unit_pages;

	if (*u >= units)
	{
		*u -= units;
		return false;
	}
	unit->first = *u * unit_pages;
	unit->npages = Min(unit_pages, npages - unit->first);
	unit->bytes = bytes;
	return true;
}

/* Find unit number *u among what a device needs of a segment, as FindInArray() does. */
static bool
FindInSegment(const GgLoadJob *job, const GgMetaPageData *meta, const GgLoadList *list, uint32 *u,
			  GgUnit *unit)
{
	const Size	node_bytes = list->by_codes ? GgCodeBytes(meta, meta->coded) : GgRowBytes(meta);

	unit->part = list->by_codes ? GG_PART_CODES : GG_PART_ROWS;
	unit->kind = list->by_codes ? GG_KIND_CODES : GG_KIND_VECTORS;
	unit->base = 0;
	for (int i = 0; i < meta->npieces; i++)
	{
		uint64		bytes = (uint64) meta->pieces[i].nodes * node_bytes;

		if (meta->pieces[i].segment != list->segment)
			continue;
		unit->owner = meta->pieces[i].id;
		if (FindInArray(job, bytes, u, unit))
			return true;
		unit->base += bytes;
	}

	unit->base = 0;
	unit->owner = list->segment;
	unit->part = GG_PART_ADJACENCY;
	unit->kind = GG_KIND_ADJACENCY;
	if (FindInArray(job, (uint64) list->n * list->shape.degree * sizeof(uint32), u, unit))
		return true;
	unit->part = GG_PART_PIVOTS;
	unit->kind = GG_KIND_PIVOTS;
	if (FindInArray(job, (uint64) list->shape.npivots * sizeof(GgPivotEntry), u, unit))
		return true;
	unit->part = GG_PART_TIDS;
	unit->kind = GG_KIND_TIDS;
	if (FindInArray(job, (uint64) list->shape.rows * sizeof(GgTidEntry), u, unit))
		return true;
	unit->part = GG_PART_FILTERS;
	unit->kind = GG_KIND_FILTERS;
	if (FindInArray(job, (uint64) list->shape.words * list->shape.rows * sizeof(int64), u, unit))
		return true;
	unit->part = GG_PART_OFFSETS;
	unit->kind = GG_KIND_OFFSETS;
	return list->shape.offsets &&
		FindInArray(job, ((uint64) list->n + 1) * sizeof(uint32), u, unit);
}

/* Find unit number *u among what is new of the delta: rows, then heads, then each of the words. */
static bool
FindInDelta(const GgLoadJob *job, const GgMetaPageData *meta, uint32 *u, GgUnit *unit)
{
	uint32		per_unit = DeltaPagesPerUnit(job, meta);
	uint32		units = (job->delta_pages - job->delta_kept + per_unit - 1) / per_unit;
	uint32		all = units * (2 + meta->filter_words);

	if (*u >= all)
	{
		*u -= all;
		return false;
	}
	unit->part = *u < units ? GG_PART_ROWS : *u < 2 * units ? GG_PART_TIDS : GG_PART_FILTERS;
	unit->word = unit->part == GG_PART_FILTERS ? *u / units - 2 : 0;
	unit->kind = GG_KIND_DELTA;
	unit->first = job->delta_kept + *u % units * per_unit;
	unit->npages = Min(per_unit, job->delta_pages - unit->first);
	return true;
}

bool
GgFindUnit(const GgLoadJob *job, const GgMetaPageData *meta, uint32 u, GgUnit *unit)
{
	for (uint32 i = 0; i < job->nlists; i++)
	{
		const GgLoadList *list = &job->lists[i];

		if (!GgIsLoaded(list))
			continue;
		unit->list = i;
		if (list->segment == GG_NO_SEGMENT ? FindInDelta(job, meta, &u, unit) :
			FindInSegment(job, meta, list, &u, unit))
			return true;
	}
	return false;
}

uint32
GgCountUnits(const GgLoadJob *job, const GgMetaPageData *meta, uint64 *npages)
{
	uint32		count = 0;
	GgUnit		unit;

	for (*npages = 0; GgFindUnit(job, meta, count, &unit); count++)
		*npages += unit.npages;
	return count;
}

uint32
GgClaimUnit(GgLoadJob *job, uint32 serial, uint32 total)
{
	uint64		claimed = pg_atomic_read_u64(&job->claimed);

	while ((uint32) (claimed >> 32) == serial && (uint32) claimed < total)
		if (pg_atomic_compare_exchange_u64(&job->claimed, &claimed, claimed + 1))
			return (uint32) claimed;
	return total;
}

void
GgCountFilled(GgLoadJob *job, uint32 serial)
{
	uint64		filled = pg_atomic_read_u64(&job->filled);

	while ((uint32) (filled >> 32) == serial)
		if (pg_atomic_compare_exchange_u64(&job->filled, &filled, filled + 1))
			return;
}
