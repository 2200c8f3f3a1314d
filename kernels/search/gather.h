/*
 * gather.h
 *		Queries, and TIDs of their filters, from the slots to the device; tickets.
 */
#ifndef GG_SEARCH_GATHER_H
#define GG_SEARCH_GATHER_H

#include "view.h"

/* The TIDs of queries' filters, in host memory as the device sees it. */
typedef struct gathered_tids
{
	const uint64_t *from[GG_SERVE_MAX_DEEPS];	/* of each query; NULL: none */
	uint32_t	count[GG_SERVE_MAX_DEEPS];	/* at most GG_SHORT_TIDS; 0 beside NULL */
	uint64_t   *to;				/* GG_SHORT_TIDS for each query */
} gathered_tids;

/*
 * Copy the queries of a batch from their slots to copies (nq x dim).  zeros: NULL, or two numbers
 * of each query, GG_SERVE_MAX_DEEPS apart, which become 0.  tids: NULL, or the TIDs to copy, too.
 */
extern cudaError_t search_gather_launch(const search_slots *slots, uint32_t nq, uint32_t dim,
										float *copies, unsigned long long *zeros,
										const gathered_tids *tids, cudaStream_t stream);

/* Write to *done the ticket of what earlier launches of the stream have answered. */
extern cudaError_t search_ticket_launch(uint32_t *done, uint32_t ticket, cudaStream_t stream);

/*
 * Load what will be launched for an index: the first launch of a kernel else takes milliseconds,
 * and may wait for what the device does.
 */
extern cudaError_t search_gather_ready(void);

#endif							/* GG_SEARCH_GATHER_H */
