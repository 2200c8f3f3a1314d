/*
 * server.h
 *		What of a server the directory's code needs, as a model: a relation that is a number of
 *		blocks, transaction ids that are numbers, and errors that jump.  And the directory.
 */
#ifndef SERVER_H
#define SERVER_H

#include "postgres.h"

#include <setjmp.h>

#include "storage/directory.h"

typedef struct Server
{
	BlockNumber nblocks;		/* of the relation */
	uint64		next_xid;
	uint64		horizon;		/* every snapshot has passed ids below */
	uint64		zeroed;			/* blocks that were added to the relation */
	BlockNumber written;		/* the last block that was logged */
	jmp_buf    *catch;			/* where errors jump; NULL: they end the program */
	char		message[1024];	/* of the last error */
	int			sqlerrcode;
	bool		hint;
} Server;

extern Server server;
extern RelationData relation;
extern GgMetaPageData *const meta;	/* the directory */
extern int	passed;				/* checks */

/* Print the message and end the program. */
pg_noreturn extern void fail(const char *format, ...) pg_attribute_printf(1, 2);

/* The same sequence of numbers every time. */
extern uint32 draw(uint32 below);

/* An empty index. */
extern void begin_directory(uint32 dimensions);

/* Add a page to the delta: its block. */
extern BlockNumber insert_page(void);

/* What merges that ended early had taken is free. */
extern void free_taken(void);

/* Call it; false where it raised an error. */
extern bool tried(void (*call) (void));

/* Print the number of checks; the exit status of main(). */
extern int	finish(void);

#endif							/* SERVER_H */
