/*
 * row_hash.h
 *		The hash by which builds find equal rows (build/deduplicate.c) and checks find rows that
 *		differ.
 *
 * Rows can be made to share it.  Builds look at a few slots only; merges have a hash of their own
 * (engine/rules/node_table.h).
 */
#ifndef GG_ROW_HASH_H
#define GG_ROW_HASH_H

#include "postgres.h"

#define GG_HASH_MULTIPLIER		UINT64CONST(0x9E3779B97F4A7C15) /* 2^64 / golden ratio, odd */

static inline uint64
GgMixWord(uint64 hash, uint64 word)
{
	/* the rotation moves sign bits down: two flipped signs would otherwise cancel out */
	hash ^= word;
	return ((hash << 31) | (hash >> 33)) * GG_HASH_MULTIPLIER;
}

/*
 * The hash is over the whole row: rows that differ in a few places only would otherwise collide,
 * and be compared all with all.  It has four lanes, since one alone would wait for each
 * multiplication.
 */
static inline uint64
GgHashRow(const char *row, Size row_bytes)
{
	uint64		lanes[4] = {1, 2, 3, 4};
	uint64		words[4];
	Size		i;

	for (i = 0; i + sizeof(words) <= row_bytes; i += sizeof(words))
	{
		memcpy(words, row + i, sizeof(words));
		for (int lane = 0; lane < 4; lane++)
			lanes[lane] = GgMixWord(lanes[lane], words[lane]);
	}
	if (i < row_bytes)
	{
		memset(words, 0, sizeof(words));
		memcpy(words, row + i, row_bytes - i);
		for (int lane = 0; lane < 4; lane++)
			lanes[lane] = GgMixWord(lanes[lane], words[lane]);
	}
	for (int lane = 1; lane < 4; lane++)
		lanes[0] = GgMixWord(lanes[0], lanes[lane]);
	return lanes[0] ^ (lanes[0] >> 32);
}

#endif							/* GG_ROW_HASH_H */
