/*
 * copy.h
 *		Integers as binary COPY has them: in network byte order.
 */
#ifndef GG_BENCH_COPY_H
#define GG_BENCH_COPY_H

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>

static inline char *
put16(char *p, uint16_t value)
{
	value = htons(value);
	memcpy(p, &value, sizeof(value));
	return p + sizeof(value);
}

static inline char *
put32(char *p, uint32_t value)
{
	value = htonl(value);
	memcpy(p, &value, sizeof(value));
	return p + sizeof(value);
}

#endif							/* GG_BENCH_COPY_H */
