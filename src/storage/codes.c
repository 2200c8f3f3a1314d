/*
 * codes.c
 *		The codes of a piece's vectors: made for its pages, and a query measured by them.
 *
 * A code is a function of the row and of what the metapage says (rules/codes.h): dimensions, metric
 * and, as the seed, the instance.  So every process makes the same bytes, and gpugraph_check() can
 * compare.
 */
#include "storage/codes.h"

void
GgCheckCodes(gg_metric metric, const GgOptions *options)
{
	if (!GgHasCodes(metric, options->codes))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("codes \"%s\" do not fit the L1 distance", GgCodesName(options->codes)),
				 errhint("Set codes to \"int8\", \"int4\" or \"none\".")));
}

gg_codes
GgBuildCodes(const GgMetaPageData *meta, const GgOptions *options)
{
	GgCheckCodes(meta->metric, options);
	return meta->coded != GG_CODES_NONE ? meta->coded : options->codes;
}

static void
InitCoder(gg_coder *coder, const GgMetaPageData *meta, gg_codes codes)
{
	gg_coder_set_up(coder, meta->metric, meta->dimensions, codes, meta->instance,
					palloc(gg_coder_bytes(meta->metric, meta->dimensions)));
}

GgCoder *
GgMakeCoder(const GgMetaPageData *meta, gg_codes codes)
{
	GgCoder    *coder = palloc(sizeof(GgCoder));

	InitCoder(&coder->coder, meta, codes);
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
GgMakeCodeQuery(const GgMetaPageData *meta, gg_codes codes, const float *query)
{
	GgCodeQuery *made = palloc(sizeof(GgCodeQuery));
	float	   *scratch = palloc(2 * meta->dimensions * sizeof(float));

	InitCoder(&made->coder, meta, codes);
	gg_code_query_place(&made->coder, &made->query,
						palloc0(gg_code_query_bytes(&made->coder)));
	gg_code_query_set(&made->coder, query, scratch, &made->query);
	pfree(scratch);
	return made;
}
