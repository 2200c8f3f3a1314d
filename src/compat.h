/*
 * compat.h
 *		All differences between PostgreSQL 15 and 18 that this extension meets.
 */
#ifndef GG_COMPAT_H
#define GG_COMPAT_H

#include <fcntl.h>

#include "access/genam.h"
#include "access/nbtxlog.h"
#include "access/relscan.h"
#include "access/rmgr.h"
#include "access/xloginsert.h"
#include "catalog/index.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "common/relpath.h"
#include "miscadmin.h"
#include "nodes/pathnodes.h"
#include "port/pg_iovec.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "storage/lmgr.h"
#include "storage/smgr.h"
#include "storage/sync.h"
#include "utils/acl.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000
#error "gpugraph needs PostgreSQL 15 or newer"
#endif

/* 18 has it in front of declarations, before it was an attribute behind them */
#if PG_VERSION_NUM < 180000
#define pg_noreturn				pg_attribute_noreturn()
#endif

#if PG_VERSION_NUM >= 160000
#define GgLocator(rel)			((rel)->rd_locator)
#define GgFirstLocatorSubid(rel) ((rel)->rd_firstRelfilelocatorSubid)
typedef RelFileLocator GgRelFileLocator;
#define GgOwnerCheck(classid, objectid, roleid) object_ownercheck(classid, objectid, roleid)
#else
#define GgLocator(rel)			((rel)->rd_node)
#define GgFirstLocatorSubid(rel) ((rel)->rd_firstRelfilenodeSubid)
typedef RelFileNode GgRelFileLocator;
#define GgOwnerCheck(classid, objectid, roleid) \
	((classid) == RelationRelationId ? pg_class_ownercheck(objectid, roleid) : false)
#endif

/*
 * Who may do to a table what leaves its rows alone, and who may do so to all tables.  Before 17,
 * where MAINTAIN and pg_maintain came, these are the owner and superusers.
 */
#if PG_VERSION_NUM >= 170000
#define GgMayMaintain(relid, roleid) \
	(GgOwnerCheck(RelationRelationId, relid, roleid) || \
	 pg_class_aclcheck(relid, roleid, ACL_MAINTAIN) == ACLCHECK_OK)
#define GgMayMaintainAll(roleid) has_privs_of_role(roleid, ROLE_PG_MAINTAIN)
#else
#define GgMayMaintain(relid, roleid) GgOwnerCheck(RelationRelationId, relid, roleid)
#define GgMayMaintainAll(roleid) superuser_arg(roleid)
#endif

#if PG_VERSION_NUM >= 180000
#define GgVacuumDelayPoint()	vacuum_delay_point(false)
#else
#define GgVacuumDelayPoint()	vacuum_delay_point()
#endif

/* A path that is to be taken only where there is no other at all; before 18 infinite costs alone say so. */
#if PG_VERSION_NUM >= 180000
#define GgDisablePath(path)		((path)->disabled_nodes = 2)
#else
#define GgDisablePath(path)		((void) 0)
#endif

/* EXPLAIN ANALYZE counts searches from 18 on. */
#if PG_VERSION_NUM >= 180000
#define GgCountSearch(scan) \
	do { if ((scan)->instrument != NULL) (scan)->instrument->nsearches++; } while (0)
#else
#define GgCountSearch(scan)		((void) 0)
#endif

/* The next value of a sorted list of datums passed by value. */
#if PG_VERSION_NUM >= 160000
#define GgTuplesortGetDatum(state, value, isnull) \
	tuplesort_getdatum(state, true, false, value, isnull, NULL)
#else
#define GgTuplesortGetDatum(state, value, isnull) \
	tuplesort_getdatum(state, true, value, isnull, NULL)
#endif

#if PG_VERSION_NUM >= 170000
#define GgRestrictSearchPath()	RestrictSearchPath()
#else
#define GgRestrictSearchPath()	((void) 0)
#endif

/* The number of this process's PGPROC; one of a backend or background worker is below MaxBackends. */
#if PG_VERSION_NUM >= 170000
#define GgMyProcNumber()		((uint32) MyProcNumber)
#else
#define GgMyProcNumber()		((uint32) MyProc->pgprocno)
#endif

/* Messages of parallel workers that have come; throws when one is an error. */
#if PG_VERSION_NUM >= 180000
#define GgProcessParallelMessages() ProcessParallelMessages()
#else
#define GgProcessParallelMessages() HandleParallelMessages()
#endif

/* Whether the next CHECK_FOR_INTERRUPTS() ends the statement or the session. */
static inline bool
GgInterruptEnds(void)
{
#if PG_VERSION_NUM >= 170000
	if (TransactionTimeoutPending)
		return true;
#endif
	return QueryCancelPending || ProcDiePending || ClientConnectionLost;
}

/* A wait event of ours, by name where extensions have named ones; event is a static uint32, 0 at first. */
#if PG_VERSION_NUM >= 170000
#define GgWaitEvent(event, name) \
	((event) != 0 ? (event) : ((event) = WaitEventExtensionNew(name)))
#else
#define GgWaitEvent(event, name) ((void) (event), PG_WAIT_EXTENSION)
#endif

/* Path of the first file of a relation's main fork, relative to the data directory. */
static inline void
GgMainForkPath(GgRelFileLocator locator, char *path, Size size)
{
#if PG_VERSION_NUM >= 180000
	strlcpy(path, relpathperm(locator, MAIN_FORKNUM).str, size);
#else
	char	   *allocated = relpathperm(locator, MAIN_FORKNUM);

	strlcpy(path, allocated, size);
	pfree(allocated);
#endif
}

/*
 * Before 17 VACUUM may remove what snapshots older than old_snapshot_threshold still see.  Scans must then fail where a page
 * changed since, or they would miss these rows.
 */
#if PG_VERSION_NUM >= 170000
#define GgSnapshotsExpire()		false
#define GgTestForOldSnapshot(snapshot, rel, page) ((void) 0)
#else
#define GgSnapshotsExpire()		(old_snapshot_threshold >= 0)
#define GgTestForOldSnapshot(snapshot, rel, page) TestForOldSnapshot(snapshot, rel, page)
#endif

/* A page newly added at the end of the relation, locked exclusively. */
static inline Buffer
GgExtendOne(Relation rel, ForkNumber forknum)
{
#if PG_VERSION_NUM >= 160000
	return ExtendBufferedRel(BMR_REL(rel), forknum, NULL, EB_LOCK_FIRST);
#else
	Buffer		buffer;

	if (!RELATION_IS_LOCAL(rel))
		LockRelationForExtension(rel, ExclusiveLock);
	buffer = ReadBufferExtended(rel, forknum, P_NEW, RBM_NORMAL, NULL);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	if (!RELATION_IS_LOCAL(rel))
		UnlockRelationForExtension(rel, ExclusiveLock);
	return buffer;
#endif
}

/* Make a fork that bypasses the buffer manager nblocks long; new blocks are zero. */
static inline void
GgExtendTo(Relation rel, ForkNumber forknum, BlockNumber nblocks)
{
	BlockNumber now = smgrnblocks(RelationGetSmgr(rel), forknum);

	if (nblocks <= now)
		return;
#if PG_VERSION_NUM >= 160000
	while (now < nblocks)
	{
		/* 64 MB at a time, so that it can be cancelled */
		int			count = (int) Min(nblocks - now, 8192);

		CHECK_FOR_INTERRUPTS();
		smgrzeroextend(RelationGetSmgr(rel), forknum, now, count, true);
		now += count;
	}
#else
	{
		/* the last block; md.c brings files between to their full length, and what was never written reads as zero */
		PGAlignedBlock zero;

		memset(zero.data, 0, BLCKSZ);
		smgrextend(RelationGetSmgr(rel), forknum, nblocks - 1, zero.data, true);
	}
#endif
}

/* Remove what shared buffers have of a fork, without writing it; waits for those who read it just now. */
static inline void
GgDropBuffers(Relation rel, ForkNumber forknum)
{
	BlockNumber first = 0;

#if PG_VERSION_NUM >= 160000
	DropRelationBuffers(RelationGetSmgr(rel), &forknum, 1, &first);
#else
	DropRelFileNodeBuffers(RelationGetSmgr(rel), &forknum, 1, &first);
#endif
}

/*
 * Write npages blocks that exist, one after the other in memory, past the buffer manager; no checkpoint hears of
 * it.  Before 17 smgr writes one block a call, which takes three times as long as 32 at a time and lets
 * writers of one file wait for each other (1.2 GB/s of page cache on ext4, however many processes, to 3.5 GB/s with
 * 256 kB a call).  There the file is opened here, and kept open in *file.
 */
typedef struct GgRunFile
{
	bool		open;
	File		file;
	uint32		segno;			/* of the relation's files of RELSEG_SIZE blocks */
} GgRunFile;

static inline void
GgCloseRunFile(GgRunFile *file)
{
	if (file->open)
		FileClose(file->file);
	file->open = false;
}

static inline void
GgWriteRun(Relation rel, ForkNumber forknum, BlockNumber start, Page *pages, int npages, GgRunFile *file)
{
	while (npages > 0)
	{
		/* not across files */
		int			count = (int) Min(npages, RELSEG_SIZE - start % RELSEG_SIZE);

#if PG_VERSION_NUM >= 170000
		/* more blocks a call it takes for a write across files; some systems have but 16 */
		count = Min(count, PG_IOV_MAX);
		smgrwritev(RelationGetSmgr(rel), forknum, start, (const void **) pages, count, true);
#else
		uint32		segno = start / RELSEG_SIZE;
		int			bytes = count * BLCKSZ;
		int			written;

		if (!file->open || file->segno != segno)
		{
#if PG_VERSION_NUM >= 160000
			char	   *base = relpath(RelationGetSmgr(rel)->smgr_rlocator, forknum);
#else
			char	   *base = relpath(RelationGetSmgr(rel)->smgr_rnode, forknum);
#endif
			char	   *path = segno == 0 ? base : psprintf("%s.%u", base, segno);

			GgCloseRunFile(file);
			file->file = PathNameOpenFile(path, O_RDWR | PG_BINARY);
			if (file->file < 0)
				ereport(ERROR,
						(errcode_for_file_access(),
						 errmsg("could not open file \"%s\": %m", path)));
			file->open = true;
			file->segno = segno;
			if (path != base)
				pfree(path);
			pfree(base);
		}
		errno = 0;
		written = FileWrite(file->file, pages[0], bytes, (off_t) (start % RELSEG_SIZE) * BLCKSZ,
							WAIT_EVENT_DATA_FILE_WRITE);
		if (written != bytes)
		{
			/* a short write is a full disk, md.c says so too */
			if (written >= 0 || errno == 0)
				errno = ENOSPC;
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not write blocks %u..%u in file \"%s\": %m", start, start + count - 1,
							FilePathName(file->file)),
					 errhint("Check free disk space.")));
		}
#endif
		start += count;
		pages += count;
		npages -= count;
	}
}

/*
 * Have the next checkpoint sync a fork of so many blocks.  False when its queue has no room: the
 * caller, who keeps the checkpoint from beginning, must not wait for some.  Minors that do not
 * empty the queue while they wait for such callers (before July 2025) would wait for each other
 * for ever.  From 17 on smgr syncs itself what finds no room.
 */
static inline bool
GgRegisterSync(Relation rel, ForkNumber forknum, BlockNumber nblocks)
{
#if PG_VERSION_NUM >= 170000
	smgrregistersync(RelationGetSmgr(rel), forknum);
	return true;
#else
	for (uint32 segno = 0; segno <= (nblocks - 1) / RELSEG_SIZE; segno++)
	{
		FileTag		tag;

		memset(&tag, 0, sizeof(tag));
		tag.handler = SYNC_HANDLER_MD;
		tag.forknum = forknum;
#if PG_VERSION_NUM >= 160000
		tag.rlocator = GgLocator(rel);
#else
		tag.rnode = GgLocator(rel);
#endif
		tag.segno = segno;
		if (!RegisterSyncRequest(&tag, SYNC_REQUEST, false))
			return false;
	}
	return true;
#endif
}

/*
 * Tell standbys that blocks from blkno on, parked under xid, are reused: queries there that could
 * still need them are cancelled.  The record is nbtree's, which carries nothing of nbtree but its
 * name; an extension has no resource manager of its own without being preloaded.
 */
static inline void
GgLogReuse(Relation rel, Relation heap, BlockNumber blkno, FullTransactionId xid)
{
	xl_btree_reuse_page xlrec;

	memset(&xlrec, 0, sizeof(xlrec));
#if PG_VERSION_NUM >= 160000
	xlrec.locator = rel->rd_locator;
	xlrec.block = blkno;
	xlrec.snapshotConflictHorizon = xid;
	xlrec.isCatalogRel = heap != NULL && RelationIsAccessibleInLogicalDecoding(heap);
#else
	xlrec.node = rel->rd_node;
	xlrec.block = blkno;
	xlrec.latestRemovedFullXid = xid;
#endif
	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfBtreeReusePage);
	(void) XLogInsert(RM_BTREE_ID, XLOG_BTREE_REUSE_PAGE);
}

#endif							/* GG_COMPAT_H */
