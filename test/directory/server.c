/*
 * server.c
 *		The model of a server behind server.h: stubs of PostgreSQL's functions.
 */
#include "server.h"

#include <stdarg.h>

#include "access/generic_xlog.h"
#include "access/xlog.h"
#include "catalog/catalog.h"
#include "storage/extents.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/snapmgr.h"

Server		server = {.next_xid = 100, .horizon = 3};
static FormData_pg_class form = {.relpersistence = RELPERSISTENCE_UNLOGGED};
static SMgrRelationData smgr;
RelationData relation = {.rd_rel = &form, .rd_smgr = &smgr};
static GgMetaPageData now;
GgMetaPageData *const meta = &now;
int			passed;

char	   *BufferBlocks;
Block	   *LocalBufferBlockPointers;
int			wal_level;
int			NBuffers;
int			NLocBuffer;
static char block[2 * BLCKSZ];

void
fail(const char *format, ...)
{
	va_list		args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

uint32
draw(uint32 below)
{
	static uint64 state = 0x9E3779B97F4A7C15;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32) ((state >> 32) % below);
}

void
begin_directory(uint32 dimensions)
{
	memset(meta, 0, sizeof(*meta));
	meta->dimensions = dimensions;
	meta->next_id = 1;
	GgAddExtent(meta, GG_META_BLKNO, 1, GG_NO_SEGMENT, GG_KIND_META);
	server.nblocks = 1;
}

BlockNumber
insert_page(void)
{
	BlockNumber blkno;

	(void) GgAllocateBlock(&relation, &relation, meta, GG_KIND_DELTA, &blkno);
	GgAddExtent(meta, blkno, 1, GG_NO_SEGMENT, GG_KIND_DELTA);
	meta->delta_pages++;
	return blkno;
}

void
free_taken(void)
{
	for (int i = 0; i < meta->nextents; i++)
		if (meta->extents[i].kind == GG_KIND_TAKEN)
		{
			meta->extents[i].kind = GG_KIND_FREE;
			meta->extents[i].segment = GG_NO_SEGMENT;
			meta->extents[i].parked_xid = 0;
		}
	GgMergeFree(meta);
}

bool
tried(void (*call) (void))
{
	jmp_buf		jump;
	bool		done = setjmp(jump) == 0;

	server.catch = &jump;
	if (done)
		call();
	server.catch = NULL;
	return done;
}

int
finish(void)
{
	printf("%d passed, 0 failed\n", passed);
	return 0;
}

/* ---- memory and errors -------------------------------------------------------------------- */

void *
palloc(Size size)
{
	return malloc(size);
}

void
pfree(void *pointer)
{
	free(pointer);
}

/* In a function with variable arguments behind format. */
#define KEEP_MESSAGE(format) \
	do { \
		va_list		args; \
		va_start(args, format); \
		vsnprintf(server.message, sizeof(server.message), format, args); \
		va_end(args); \
	} while (0)

bool
errstart(int elevel, const char *domain)
{
	server.sqlerrcode = ERRCODE_INTERNAL_ERROR;
	server.hint = false;
	return true;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

int
errcode(int sqlerrcode)
{
	server.sqlerrcode = sqlerrcode;
	return 0;
}

int
errmsg(const char *format, ...)
{
	KEEP_MESSAGE(format);
	return 0;
}

int
errmsg_internal(const char *format, ...)
{
	KEEP_MESSAGE(format);
	return 0;
}

int
errdetail(const char *format, ...)
{
	return 0;
}

int
errhint(const char *format, ...)
{
	server.hint = true;
	return 0;
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
	if (server.catch == NULL)
		fail("error: %s", server.message);
	longjmp(*server.catch, 1);
}

#if PG_VERSION_NUM >= 160000
void
ExceptionalCondition(const char *condition, const char *file, int line)
#else
void
ExceptionalCondition(const char *condition, const char *type, const char *file, int line)
#endif
{
	fail("%s:%d: %s", file, line, condition);
}

void
GgReportCorruption(Relation index, BlockNumber blkno, const char *format, ...)
{
	KEEP_MESSAGE(format);
	fail("corruption: %s", server.message);
}

void
GgCheckInterrupts(void)
{
}

/* ---- transactions ------------------------------------------------------------------------ */

FullTransactionId
ReadNextFullTransactionId(void)
{
	return FullTransactionIdFromU64(server.next_xid);
}

bool
GlobalVisCheckRemovableFullXid(Relation rel, FullTransactionId fxid)
{
	return U64FromFullTransactionId(fxid) < server.horizon;
}

TransactionId
GetOldestNonRemovableTransactionId(Relation rel)
{
	return (TransactionId) server.horizon;
}

/* ---- the relation ------------------------------------------------------------------------ */

bool
IsCatalogRelation(Relation rel)
{
	return false;
}

BlockNumber
RelationGetNumberOfBlocksInFork(Relation rel, ForkNumber forknum)
{
	return server.nblocks;
}

BlockNumber
smgrnblocks(SMgrRelation reln, ForkNumber forknum)
{
	return server.nblocks;
}

static void
Lengthen(BlockNumber from, BlockNumber count)
{
	if (from != server.nblocks)
		fail("block %u is added to a relation of %u", from, server.nblocks);
	server.nblocks += count;
	server.zeroed += count;
}

#if PG_VERSION_NUM >= 160000
void
smgrzeroextend(SMgrRelation reln, ForkNumber forknum, BlockNumber blocknum, int nblocks,
			   bool skipFsync)
{
	Lengthen(blocknum, nblocks);
}

Buffer
ExtendBufferedRel(BufferManagerRelation bmr, ForkNumber forkNum, BufferAccessStrategy strategy,
				  uint32 flags)
{
	Lengthen(server.nblocks, 1);
	return server.nblocks;
}
#else
void
smgrextend(SMgrRelation reln, ForkNumber forknum, BlockNumber blocknum, char *buffer,
		   bool skipFsync)
{
	Lengthen(blocknum, 1);
}
#endif

void
LockRelationForExtension(Relation rel, LOCKMODE lockmode)
{
}

void
UnlockRelationForExtension(Relation rel, LOCKMODE lockmode)
{
}

/* A buffer's number is its block's plus one. */
Buffer
ReadBufferExtended(Relation rel, ForkNumber forkNum, BlockNumber blockNum, ReadBufferMode mode,
				   BufferAccessStrategy strategy)
{
	if (blockNum == P_NEW)
	{
		Lengthen(server.nblocks, 1);
		return server.nblocks;
	}
	if (blockNum >= server.nblocks)
		fail("block %u is read of a relation of %u", blockNum, server.nblocks);
	server.written = blockNum;
	return blockNum + 1;
}

BlockNumber
BufferGetBlockNumber(Buffer buffer)
{
	return buffer - 1;
}

void
LockBuffer(Buffer buffer, int mode)
{
}

void
UnlockReleaseBuffer(Buffer buffer)
{
}

#if PG_VERSION_NUM >= 170000
SMgrRelation
smgropen(RelFileLocator locator, ProcNumber backend)
{
	return &smgr;
}

void
smgrpin(SMgrRelation reln)
{
}
#else
SMgrRelation
smgropen(GgRelFileLocator locator, BackendId backend)
{
	return &smgr;
}

void
smgrsetowner(SMgrRelation *owner, SMgrRelation reln)
{
}
#endif

/* ---- WAL --------------------------------------------------------------------------------- */

GenericXLogState *
GenericXLogStart(Relation rel)
{
	return NULL;
}

Page
GenericXLogRegisterBuffer(GenericXLogState *state, Buffer buffer, int flags)
{
	return (Page) block;
}

XLogRecPtr
GenericXLogFinish(GenericXLogState *state)
{
	return 0;
}

void
XLogBeginInsert(void)
{
}

#if PG_VERSION_NUM >= 180000
void
XLogRegisterData(const void *data, uint32 len)
#elif PG_VERSION_NUM >= 160000
void
XLogRegisterData(char *data, uint32 len)
#else
void
XLogRegisterData(char *data, int len)
#endif
{
}

XLogRecPtr
XLogInsert(RmgrId rmid, uint8 info)
{
	return 0;
}

void
GgInitPage(Page page, uint64 instance, uint32 segment, GgKind kind, uint64 number)
{
}
