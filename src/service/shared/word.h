/*
 * word.h
 *		The word of what several processes work on in turn: (serial << 8 | flags | state).
 *
 * Every change is a compare-and-swap of the whole, so a change that is meant for an earlier use of
 * the place never hits a later one.  State 0 means that the place is free.
 */
#ifndef GG_WORD_H
#define GG_WORD_H

#include "postgres.h"

#include "port/atomics.h"

#define GG_WORD_STATE		0x0F	/* mask of the state; flags are from 0x10 on */

#define GgWordState(word)	((int) ((word) & GG_WORD_STATE))
#define GgWordSerial(word)	((uint32) ((word) >> 8))
#define GgWordOf(serial, state)	((uint64) (serial) << 8 | (state))

/* The word, read before what it tells of. */
static inline uint64
GgReadWord(pg_atomic_uint64 *word)
{
	uint64		value = pg_atomic_read_u64(word);

	pg_read_barrier();
	return value;
}

/* Move from one state to the next and keep flags; false when serial or state is another one. */
static inline bool
GgWordMove(pg_atomic_uint64 *word, uint32 serial, int from, int to)
{
	uint64		value = pg_atomic_read_u64(word);

	while (GgWordSerial(value) == serial && GgWordState(value) == from)
		if (pg_atomic_compare_exchange_u64(word, &value,
										   (value & ~(uint64) GG_WORD_STATE) | to))
			return true;
	return false;
}

/* Set flags; false when this use of the place is over. */
static inline bool
GgWordFlag(pg_atomic_uint64 *word, uint32 serial, uint32 flags)
{
	uint64		value = pg_atomic_read_u64(word);

	while (GgWordSerial(value) == serial && GgWordState(value) != 0)
		if (pg_atomic_compare_exchange_u64(word, &value, value | flags))
			return true;
	return false;
}

#endif							/* GG_WORD_H */
