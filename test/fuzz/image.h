/*
 * image.h
 *		Indexes of which an input changes bytes: their pages as they were built.
 */
#ifndef IMAGE_H
#define IMAGE_H

#include "fuzz.h"

#include "storage/directory.h"

typedef struct Image
{
	Relation	heap;
	Relation	index;
	BlockNumber nblocks;
	char	   *pages;			/* as they were */
	BlockNumber *chosen;		/* those that inputs change */
	int			nchosen;
} Image;

/* Read image_1_idx, image_2_idx and so on.  Inputs change pages of those kinds; 0: of all. */
extern void load_images(uint32 kinds);

/*
 * The image that the input chooses, with the bytes that it changes.  All of it is as it was before.
 * The rest of the input is left.
 */
extern Image *change_image(Input *input);

#endif							/* IMAGE_H */
