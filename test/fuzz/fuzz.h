/*
 * fuzz.h
 *		Fuzz targets inside a server of one user, so that memory, errors, types and buffers are
 *		PostgreSQL's own (test/fuzz/run).
 */
#ifndef FUZZ_H
#define FUZZ_H

#include "postgres.h"

#include "utils/rel.h"

#include "compat.h"

/* The bytes of an input, taken one after the other; zeros behind their end. */
typedef struct Input
{
	const uint8 *bytes;
	size_t		size;
	size_t		at;
} Input;

extern void take(Input *input, void *to, size_t size);
extern uint8 take8(Input *input);
extern uint16 take16(Input *input);
extern uint64 take64(Input *input);

/* Nothing more to take? */
extern bool at_end(const Input *input);

/*
 * Call it in a subtransaction that is rolled back.  False where it raised an error.  An error
 * without a SQLSTATE of its own is a fault, and so is a warning of PostgreSQL's of what was left
 * behind.
 */
extern bool tried(void (*call) (void *), void *arg);

/* The SQLSTATE of the last error. */
extern int	last_sqlerrcode;

/* Say what is wrong, and end the run with this input as the one to keep. */
pg_noreturn extern void wrong(const char *format, ...) pg_attribute_printf(1, 2);

/* A target: what is made ready once, and what is done with each input. */
typedef struct Target
{
	const char *name;
	void		(*start) (void);
	void		(*one) (Input *input);
} Target;

extern const Target fuzz_directory,
			fuzz_pages,
			fuzz_slots,
			fuzz_filter_keys,
			fuzz_reloptions;

#endif							/* FUZZ_H */
