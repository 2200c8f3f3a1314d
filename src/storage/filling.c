/*
 * filling.c
 *		A directory that fills up: the log tells once, and names who holds what was given back.
 *
 * The metapage notes that the log has told.  The log tells again when the directory was less than
 * half full meanwhile.
 */
#include "storage/filling.h"

#include "access/twophase.h"
#include "miscadmin.h"
#include "replication/slot.h"
#include "storage/proc.h"
#include "storage/procarray.h"

bool
GgNoteFilling(GgMetaPageData *meta)
{
	if (meta->nextents < GG_MAX_EXTENTS / 2)
		meta->flags &= ~GG_META_TOLD;
	if (meta->nextents < GG_MAX_EXTENTS / 4 * 3 || (meta->flags & GG_META_TOLD) != 0)
		return false;
	meta->flags |= GG_META_TOLD;
	return true;
}

/* Who keeps the horizon back. */
typedef struct Holder
{
	TransactionId xid;			/* invalid: nobody */
	int			pid;			/* 0: a prepared transaction */
} Holder;

static void
Consider(Holder *holder, TransactionId xid, int pid)
{
	if (!TransactionIdIsNormal(xid) ||
		(TransactionIdIsValid(holder->xid) && !TransactionIdPrecedes(xid, holder->xid)))
		return;
	holder->xid = xid;
	holder->pid = pid;
}

/*
 * The oldest transaction or snapshot in this database, or of a standby that tells of its own.
 * VACUUM counts for nothing here, as for horizons.  Nothing is locked, since this is for people.
 * Prepared transactions come behind the processes, and leave their ids behind when they end.
 */
static Holder
OldestHolder(void)
{
	const uint32 nprocesses = ProcGlobal->allProcCount;
	Holder		holder = {InvalidTransactionId, 0};

	/* snapshots last: theirs is the id of a transaction that ran */
	for (int snapshots = 0; snapshots < 2; snapshots++)
		for (uint32 i = 0; i < nprocesses + max_prepared_xacts; i++)
		{
			const PGPROC *proc = &ProcGlobal->allProcs[i];
			bool		prepared = i >= nprocesses;
			TransactionId xid = snapshots ? proc->xmin : proc->xid;

			if ((proc->databaseId != MyDatabaseId && OidIsValid(proc->databaseId)) ||
				(proc->statusFlags & (PROC_IN_VACUUM | PROC_IN_LOGICAL_DECODING)) != 0 ||
				(prepared && (snapshots || !TransactionIdIsInProgress(xid))))
				continue;
			Consider(&holder, xid, prepared ? 0 : proc->pid);
		}
	return holder;
}

void
GgTellFilling(Relation index, const GgMetaPageData *meta)
{
	Holder		holder = OldestHolder();
	TransactionId slot_xmin;
	TransactionId catalog_xmin;
	const char *detail;
	const char *hint;

	ProcArrayGetReplicationSlotXmin(&slot_xmin, &catalog_xmin);
	if (TransactionIdIsNormal(slot_xmin) &&
		(!TransactionIdIsValid(holder.xid) || TransactionIdPrecedes(slot_xmin, holder.xid)))
	{
		detail = psprintf("Blocks that were given back are kept for a replication slot with xmin "
						  "%u.", slot_xmin);
		hint = "See pg_replication_slots.";
	}
	else if (!TransactionIdIsValid(holder.xid))
	{
		detail = "No transaction keeps blocks that were given back.";
		hint = "Call gpugraph_merge().";
	}
	else if (holder.pid == 0)
	{
		detail = psprintf("Blocks that were given back are kept for the prepared transaction %u.",
						  holder.xid);
		hint = "See pg_prepared_xacts, and end it by COMMIT PREPARED or ROLLBACK PREPARED.";
	}
	else
	{
		detail = psprintf("Blocks that were given back are kept for process %d, whose oldest "
						  "transaction or snapshot is %u.", holder.pid, holder.xid);
		hint = "See pg_stat_activity, and end its transaction.";
	}
	ereport(LOG,
			(errmsg("directory of index \"%s\" is filling up: %u of %d entries",
					RelationGetRelationName(index), meta->nextents, GG_MAX_EXTENTS),
			 errdetail_internal("%s", detail), errhint("%s", hint)));
}
