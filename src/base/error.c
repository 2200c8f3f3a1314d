/*
 * error.c
 *		Turns what the engines and the pages report into ereport().
 */
#include "base/base.h"

#include "access/xact.h"
#include "utils/resowner.h"

static int
StatusSqlstate(gg_code code)
{
	switch (code)
	{
		case GG_ENOMEM:
		case GG_EDEVICE_MEMORY:
			return ERRCODE_OUT_OF_MEMORY;
		case GG_ENODEVICE:
			return ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		case GG_EDEVICE:
			return ERRCODE_SYSTEM_ERROR;
		case GG_ECANCELED:
			return ERRCODE_QUERY_CANCELED;
		case GG_EUNSUPPORTED:
			return ERRCODE_FEATURE_NOT_SUPPORTED;
		default:
			return ERRCODE_INTERNAL_ERROR;
	}
}

static const char *
StatusHint(gg_code code)
{
	switch (code)
	{
		case GG_ENOMEM:
			return "Lower maintenance_work_mem, so that the index is built in smaller segments.";
		case GG_EDEVICE_MEMORY:
			return "Lower gpugraph.device_memory, so that the index is built in smaller segments, "
				"or set gpugraph.engine to \"auto\" or \"cpu\" to use the CPU.";
		case GG_ENODEVICE:
		case GG_EDEVICE:
			return "Set gpugraph.engine to \"cpu\" to do without the GPU.";
		default:
			return NULL;
	}
}

void
GgReportStatus(const gg_status *status, const char *doing)
{
	const char *hint = StatusHint(status->code);

	if (status->code == GG_ECALLBACK)
		PG_RE_THROW();
	if (status->code == GG_ECANCELED)
	{
		/* normally throws, with the message for this kind of interrupt */
		CHECK_FOR_INTERRUPTS();
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("canceling statement due to user request")));
	}

	ereport(ERROR,
			(errcode(StatusSqlstate(status->code)),
			 errmsg("%s while %s", status->message[0] ? status->message : "engine failure", doing),
			 status->device_error ?
			 errdetail("%s returned device error %d.", status->where, status->device_error) :
			 errdetail("Reported by %s.", status->where ? status->where : "the engine"),
			 hint ? errhint("%s", hint) : 0));
}

void
GgReportCorruption(Relation index, BlockNumber blkno, const char *fmt,...)
{
	char		what[256];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);

	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" is corrupted at block %u: %s", RelationGetRelationName(index),
					blkno, what),
			 errhint("REINDEX the index.")));
}

ErrorData *
GgTry(void (*func) (void *arg), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		func(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		RollbackAndReleaseCurrentSubTransaction();
		CurrentResourceOwner = owner;
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
			ReThrowError(error);
		FlushErrorState();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return error;
}
