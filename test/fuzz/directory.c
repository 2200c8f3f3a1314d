/*
 * directory.c
 *		The metapage and directory pages: what is read of them has no contradictions, and is the
 *		same after it was written.
 */
#include "image.h"

#include "storage/bufmgr.h"
#include "storage/directory_check.h"

/* What else is done, as bits of the input's last byte. */
#define READ_ALONE		1
#define SPILL_ANEW		2

typedef struct Work
{
	uint8		deeds;
	Image	   *image;
	GgMetaPageData *meta;
	GgMetaPageData *again;
} Work;

static Work work;

/* Each page of an array has a block, and whoever reads it finds that page or an error. */
static void
follow(const GgMetaPageData *meta, uint32 owner, GgKind kind)
{
	GgArray		array;

	GgFindArray(meta, owner, kind, &array);
	if (!GgIsArray(kind))
		return;
	for (uint64 number = 0; number < Min(array.npages, 1000); number++)
		if (!BlockNumberIsValid(GgArrayBlock(&array, number)))
			wrong("page %llu of kind %d of %u has no block", (unsigned long long) number, kind,
				  owner);
	if (array.npages > 0)
	{
		Buffer		buffer;

		if (GgReadPageUnlessGone(work.image->index, meta, &array, 0, BUFFER_LOCK_SHARE, NULL,
								 &buffer))
			UnlockReleaseBuffer(buffer);
	}
}

static void
look(void *arg)
{
	Relation	index = work.image->index;
	GgMetaPageData *meta = work.meta;
	GgArray		array;
	GgSampleHead sample;
	GgVectors	vectors;
	GgDirectoryState state;
	Buffer		metabuf;

	GgReadMeta(index, meta);
	for (int i = 0; i < meta->nsegments; i++)
	{
		const uint32 id = meta->segments[i].id;

		if (GgFindSegment(meta, id) == NULL)
			wrong("segment %u is not found", id);
		for (int kind = GG_KIND_META; kind <= GG_LAST_KIND; kind++)
			follow(meta, id, kind);
		GgFindVectors(meta, id, &vectors);
		for (uint32 p = 0; p < vectors.npieces; p++)
			(void) GgPieceOf(&vectors, vectors.pieces[p].first);
	}
	for (int i = 0; i < meta->npieces; i++)
		if (GgFindPiece(meta, meta->pieces[i].id) == NULL)
			wrong("piece %u is not found", meta->pieces[i].id);
	if (GgFindSegment(meta, GG_NO_SEGMENT) != NULL && meta->nsegments == 0)
		wrong("a segment of none");
	(void) GgFindPiece(meta, GG_NO_SEGMENT);
	for (int kind = GG_KIND_META; kind <= GG_LAST_KIND; kind++)
		follow(meta, GG_NO_SEGMENT, kind);
	if (GgCountDeltaRows(index, meta) > (int64) GgDeltaSlots(meta))
		wrong("more rows of the delta than it has room for");
	if (GgHasNewGeneration(index, meta))
		wrong("the generation has changed");
	metabuf = GgMetaBuffer(index);
	if (GgReadStateFrom(metabuf, GgLocator(index), &state) &&
		state.generation != meta->generation)
		wrong("generations differ");
	(void) GgFindSample(index, meta, &array, &sample);
	GgReadMetaOfFile(index, meta);
	pfree(GgReadDirectory(index));
}

/* An index that begins. */
static void
begin(void *arg)
{
	PGAlignedBlock page;
	GgOptions	options;

	GgGetOptions(work.image->index, &options);
	GgInitMeta(work.again, work.image->index, &options);
	(void) GgAddSegment(work.again);
	GgFormMetaPage((Page) page.data, work.again);
	if (!GgPageIsSound((Page) page.data))
		wrong("a metapage that was formed is not sound");
}

/* Whoever changes a directory writes it anew. */
static void
write_again(void *arg)
{
	Relation	index = work.image->index;
	GgMetaPageData *again = work.again;
	Buffer		metabuf = GgLockDirectory(index, again);

	if (GgDeltaTail(metabuf) != again->delta_tail && BlockNumberIsValid(again->delta_tail))
		wrong("the delta's tail differs");
	if (work.deeds & SPILL_ANEW)
		again->nspilled = again->ndirectory = 0;
	GgStoreMeta(index, work.image->heap, metabuf, again);
}

static void
read_again(void *arg)
{
	GgReadMeta(work.image->index, work.again);
}

static void
take_id(void *arg)
{
	(void) GgTakeId(work.image->index, work.again);
}

static void
start(void)
{
	load_images(1 << GG_KIND_META | 1 << GG_KIND_DIRECTORY | 1 << GG_KIND_SAMPLE);
	work.meta = palloc(sizeof(GgMetaPageData));
	work.again = palloc(sizeof(GgMetaPageData));
}

static void
one(Input *input)
{
	const GgMetaPageData *meta = work.meta;
	GgMetaPageData *again = work.again;

	work.image = change_image(input);
	work.deeds = take8(input);
	if (work.deeds & SPILL_ANEW)
		(void) tried(begin, NULL);
	if (!tried(look, NULL) || (work.deeds & READ_ALONE) || !tried(write_again, NULL))
		return;
	if (!tried(read_again, NULL))
		wrong("what was written cannot be read");
	if (again->nsegments != meta->nsegments || again->npieces != meta->npieces ||
		again->instance != meta->instance || again->dimensions != meta->dimensions ||
		memcmp(again->segments, meta->segments, meta->nsegments * sizeof(GgSegment)) != 0 ||
		memcmp(again->pieces, meta->pieces, meta->npieces * sizeof(GgPiece)) != 0)
		wrong("what was written is something else");
	(void) tried(take_id, NULL);
}

const Target fuzz_directory = {"directory", start, one};
