/*
 * port/atomics.h
 *		For test_ring.c and test_pool.c: what src/service/shared/ring.h and pool.h take of
 *		PostgreSQL, in C11.
 *
 * PostgreSQL's own atomics are inline assembly, which ThreadSanitizer does not see, and fences,
 * which it does not follow.  Here every read acquires and every write releases, which on x86 are
 * the same instructions and is what the barriers beside them in ring.h ask for elsewhere; the
 * barriers themselves are left out.
 */
#ifndef GG_TEST_ATOMICS_H
#define GG_TEST_ATOMICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t uint32;
typedef int32_t int32;
typedef size_t Size;

#define FLEXIBLE_ARRAY_MEMBER
#define pg_attribute_aligned(a) __attribute__((aligned(a)))

typedef struct pg_atomic_uint32
{
	_Atomic uint32 value;
} pg_atomic_uint32;

#define pg_read_barrier()	((void) 0)
#define pg_write_barrier()	((void) 0)
#define pg_memory_barrier() ((void) 0)

static inline void
pg_atomic_init_u32(pg_atomic_uint32 *atomic, uint32 value)
{
	atomic_init(&atomic->value, value);
}

static inline uint32
pg_atomic_read_u32(pg_atomic_uint32 *atomic)
{
	return atomic_load_explicit(&atomic->value, memory_order_acquire);
}

static inline void
pg_atomic_write_u32(pg_atomic_uint32 *atomic, uint32 value)
{
	atomic_store_explicit(&atomic->value, value, memory_order_release);
}

static inline bool
pg_atomic_compare_exchange_u32(pg_atomic_uint32 *atomic, uint32 *expected, uint32 value)
{
	return atomic_compare_exchange_strong(&atomic->value, expected, value);
}

#endif							/* GG_TEST_ATOMICS_H */
