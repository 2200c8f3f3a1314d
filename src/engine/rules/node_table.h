/*
 * node_table.h
 *		The table by which a merge finds equal vectors (no PostgreSQL in it).
 *
 * Slots are probed one after the other without a bound: a vector that is in the table must be
 * found, or two nodes of one piece would be equal.  So vectors must not be made to share a hash, or
 * each would be compared with all before it.  The hash has a random key.  No result depends on the
 * key: a vector's node is the first row that has it.
 */
#ifndef GG_NODE_TABLE_H
#define GG_NODE_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct GgNodeTable
{
	const char *rows;			/* the data set */
	size_t		row_bytes;
	uint64_t   *key;			/* GgNodeKeyWords() random words */
	uint64_t   *slots;			/* hash and row + 1, by hash; 0: empty */
	uint64_t	mask;			/* number of slots, a power of two, less one */
} GgNodeTable;

static inline size_t
GgNodeKeyWords(size_t row_bytes)
{
	return 1 + (row_bytes + 7) / 8 * 2;
}

/*
 * Multilinear hashing (Lemire and Kaser, Strongly universal string hashing is fast, 2014).  The
 * upper halves of the sums of two different rows are equal for one key in 2^32, whatever the rows
 * are.  The last line brings those bits to all places.  It hashes 12 to 14 GB/s of one core;
 * hash_bytes_extended() with a random seed 3.
 */
static inline uint64_t
GgHashNode(const uint64_t *key, const char *row, size_t row_bytes)
{
	uint64_t	sum = *key++;
	uint32_t	words[2];
	size_t		i;

	for (i = 0; i + sizeof(words) <= row_bytes; i += sizeof(words), key += 2)
	{
		memcpy(words, row + i, sizeof(words));
		sum += (key[0] + words[0]) * (key[1] + words[1]);
	}
	if (i < row_bytes)
	{
		memset(words, 0, sizeof(words));
		memcpy(words, row + i, row_bytes - i);
		sum += (key[0] + words[0]) * (key[1] + words[1]);
	}
	sum = (sum ^ sum >> 32) * UINT64_C(0x9E3779B97F4A7C15);
	return sum ^ sum >> 32;
}

/* The first row that equals this one: an earlier one, or itself, which then enters the table. */
static inline uint32_t
GgFindNode(GgNodeTable *table, uint32_t row)
{
	const char *data = table->rows + row * table->row_bytes;
	uint64_t	hash = GgHashNode(table->key, data, table->row_bytes);
	uint64_t	entry = hash << 32 | (row + 1);

	for (uint64_t i = hash >> 32 & table->mask;; i = (i + 1) & table->mask)
	{
		uint64_t	other = table->slots[i];

		if (other == 0)
		{
			table->slots[i] = entry;
			return row;
		}
		if (other >> 32 == entry >> 32 &&
			memcmp(table->rows + ((uint32_t) other - 1) * table->row_bytes, data,
				   table->row_bytes) == 0)
			return (uint32_t) other - 1;
	}
}

/* Take out the row that was the last to come into the table, so that no probe needs its slot. */
static inline void
GgForgetNode(GgNodeTable *table, uint32_t row)
{
	const char *data = table->rows + row * table->row_bytes;
	uint64_t	i = GgHashNode(table->key, data, table->row_bytes) >> 32 & table->mask;

	while ((uint32_t) table->slots[i] != row + 1)
		i = (i + 1) & table->mask;
	table->slots[i] = 0;
}

#endif							/* GG_NODE_TABLE_H */
