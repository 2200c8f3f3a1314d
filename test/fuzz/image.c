/*
 * image.c
 *		Indexes of which an input changes bytes.
 *
 * An input is: the image, how many changes, and of each the page, the offset there, the number of
 * bytes and these.  Pages are changed in shared buffers, which nobody else has.
 */
#include "image.h"

#include "access/relation.h"
#include "access/table.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "nodes/makefuncs.h"
#include "storage/bufmgr.h"

#define MOST_IMAGES		16
#define MOST_BYTES		64		/* of a change */

static Image images[MOST_IMAGES];
static int	nimages;

/* Write the page of a block over. */
static void
put_page(const Image *image, BlockNumber block, const char *from)
{
	Buffer		buffer = ReadBuffer(image->index, block);
	Page		page = BufferGetPage(buffer);

	if (memcmp(page, from, BLCKSZ) != 0)
	{
		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		memcpy(page, from, BLCKSZ);
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	}
	ReleaseBuffer(buffer);
}

static void
load_image(Image *image, Oid oid, uint32 kinds)
{
	image->index = relation_open(oid, AccessExclusiveLock);
	image->heap = table_open(IndexGetRelation(oid, false), AccessExclusiveLock);
	image->nblocks = RelationGetNumberOfBlocks(image->index);
	image->pages = palloc((Size) image->nblocks * BLCKSZ);
	image->chosen = palloc(image->nblocks * sizeof(BlockNumber));
	for (BlockNumber block = 0; block < image->nblocks; block++)
	{
		char	   *page = image->pages + (Size) block * BLCKSZ;
		Buffer		buffer = ReadBuffer(image->index, block);

		memcpy(page, BufferGetPage(buffer), BLCKSZ);
		ReleaseBuffer(buffer);
		if (!PageIsNew((Page) page) && (kinds == 0 ||
			(kinds >> GgPageGetStamp((Page) page)->kind & 1) != 0))
			image->chosen[image->nchosen++] = block;
	}
}

void
load_images(uint32 kinds)
{
	for (;;)
	{
		char	   *name = psprintf("image_%d_idx", nimages + 1);
		Oid			oid = RangeVarGetRelid(makeRangeVar("public", name, -1), NoLock, true);

		if (!OidIsValid(oid))
			break;
		load_image(&images[nimages++], oid, kinds);
	}
	if (nimages == 0)
		elog(ERROR, "there are no images");
}

Image *
change_image(Input *input)
{
	Image	   *image = &images[take8(input) % nimages];
	int			changes = take8(input) % 16;

	for (BlockNumber block = 0; block < image->nblocks; block++)
		put_page(image, block, image->pages + (Size) block * BLCKSZ);
	for (int i = 0; i < changes && !at_end(input); i++)
	{
		BlockNumber block = image->chosen[take16(input) % image->nchosen];
		Size		offset = take16(input) % BLCKSZ;
		Size		bytes = take8(input) % MOST_BYTES + 1;
		char		page[BLCKSZ];
		Buffer		buffer = ReadBuffer(image->index, block);

		memcpy(page, BufferGetPage(buffer), BLCKSZ);
		ReleaseBuffer(buffer);
		take(input, page + offset, Min(bytes, BLCKSZ - offset));
		put_page(image, block, page);
	}
	return image;
}
