/*
 * codes.c
 *		The codes of a piece's vectors: made for its pages, and a query measured by them.
 *
 * A code is a function of the row and of what the index says (engine/rules/codes.h): dimensions,
 * metric, as the seed the instance, and the mean.  So every process makes the same bytes, and
 * gpugraph_check() can compare.
 *
 * The mean is taken with codes of enough rows, while the index has no others, and stays as long as
 * the instance does.  Beside codes without a mean all are without.  Rows may drift from the mean:
 * their codes are then as good as the distance from it lets them be.
 */
#include "storage/codes.h"
#include "storage/directory.h"

#include "storage/bufmgr.h"

/* Read the mean's pages.  False: VACUUM has moved one. */
static bool
ReadMeanPages(Relation index, const GgMetaPageData *meta, char *mean)
{
	const Size	bytes = GgMeanBytes(meta);
	GgArray		array;

	GgFindArray(meta, GG_NO_SEGMENT, GG_KIND_MEAN, &array);
	for (uint64 page = 0; page < array.npages; page++)
	{
		Buffer		buffer;

		if (!GgReadPageUnlessGone(index, meta, &array, page, BUFFER_LOCK_SHARE, NULL, &buffer))
			return false;
		if (GgPayloadBytes(BufferGetPage(buffer)) != GgPageBytes(page, bytes))
			GgReportCorruption(index, BufferGetBlockNumber(buffer),
							   "the page has %zu bytes of the mean of codes, not %zu",
							   GgPayloadBytes(BufferGetPage(buffer)), GgPageBytes(page, bytes));
		memcpy(mean + page * GG_PAGE_PAYLOAD, PageGetContents(BufferGetPage(buffer)),
			   GgPageBytes(page, bytes));
		UnlockReleaseBuffer(buffer);
	}
	pfree(array.extents);
	return true;
}

float *
GgReadMean(Relation index, const GgMetaPageData *meta)
{
	float	   *mean;

	if (!GgHasMean(meta))
		return NULL;
	mean = palloc(GgMeanBytes(meta));
	while (!ReadMeanPages(index, meta, (char *) mean))
		meta = GgReadDirectory(index);
	for (uint32 d = 0; d < meta->dimensions; d++)
		if (!(fabsf(mean[d]) < GG_CODE_LARGEST_MEAN))
			GgReportCorruption(index, GG_META_BLKNO, "the mean of codes has the element %g",
							   mean[d]);
	return mean;
}

float *
GgTakeMean(const gg_dataset *data)
{
	float	   *mean;

	if (data->n < GG_LEAST_MEAN_ROWS)
		return NULL;
	mean = palloc(data->dim * sizeof(float));
	if (gg_code_mean(data, mean))
		return mean;
	pfree(mean);
	return NULL;
}

static void
InitCoder(gg_coder *coder, const GgMetaPageData *meta, gg_codes codes, const float *mean)
{
	const gg_code_kind kind = {meta->metric, meta->dimensions, codes, meta->instance, mean};

	gg_coder_set_up(coder, &kind, palloc(gg_coder_bytes(kind.metric, kind.dim)));
}

GgCoder *
GgMakeCoder(const GgMetaPageData *meta, gg_codes codes, const float *mean)
{
	GgCoder    *coder = palloc(sizeof(GgCoder));

	InitCoder(&coder->coder, meta, codes, mean);
	coder->element = meta->element;
	coder->row_bytes = GgRowBytes(meta);
	coder->scratch = palloc(2 * meta->dimensions * sizeof(float));
	coder->record = palloc(coder->coder.record_bytes);
	return coder;
}

void
GgCodeRow(GgCoder *coder, const void *row)
{
	gg_code_row(&coder->coder, row, coder->element, coder->scratch, coder->record);
}

void
GgDecodeRows(GgCoder *coder, const char *codes, uint32 count, char *rows)
{
	const uint32 dim = coder->coder.dim;

	for (uint32 i = 0; i < count; i++)
	{
		gg_decode_row(&coder->coder, (const uint8 *) codes, coder->scratch);
		if (coder->element == GG_ELEMENT_F16)
			for (uint32 d = 0; d < dim; d++)
				((uint16 *) rows)[d] = gg_float_to_half(coder->scratch[d]);
		else
			memcpy(rows, coder->scratch, coder->row_bytes);
		codes += coder->coder.record_bytes;
		rows += coder->row_bytes;
	}
}

void
GgCodeRows(GgCoder *coder, const char *rows, uint64 offset, Size len, char *out)
{
	const Size	record_bytes = coder->coder.record_bytes;

	while (len > 0)
	{
		Size		skip = offset % record_bytes;
		Size		bytes = Min(len, record_bytes - skip);

		GgCodeRow(coder, rows + offset / record_bytes * coder->row_bytes);
		memcpy(out, coder->record + skip, bytes);
		out += bytes;
		offset += bytes;
		len -= bytes;
	}
}

GgCodeQuery *
GgMakeCodeQuery(const GgMetaPageData *meta, gg_codes codes, const float *mean, const float *query)
{
	GgCodeQuery *made = palloc(sizeof(GgCodeQuery));
	float	   *scratch = palloc(2 * meta->dimensions * sizeof(float));

	InitCoder(&made->coder, meta, codes, mean);
	gg_code_query_place(&made->coder, &made->query,
						palloc0(gg_code_query_bytes(&made->coder)));
	gg_code_query_set(&made->coder, query, scratch, &made->query);
	pfree(scratch);
	return made;
}
