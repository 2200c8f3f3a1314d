/*
 * members.c
 *		Which objects of its extension are which, by what they are.
 *
 * A name can be another object's, too: any role may make a type vector in a schema of its own.  An
 * extension's members are made by its script alone, and C functions are told by their addresses.
 */
#include "many/probes.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/pg_am.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "utils/fmgroids.h"
#include "utils/syscache.h"

static bool
IsInC(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	bool		is_in_c = HeapTupleIsValid(tuple) &&
		((Form_pg_proc) GETSTRUCT(tuple))->prolang == ClanguageId;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return is_in_c;
}

/* Set found[i] where the function is functions[i]. */
static void
TakeFunction(Oid function, const PGFunction *functions, int count, Oid *found)
{
	FmgrInfo	finfo;

	if (!IsInC(function))
		return;
	fmgr_info(function, &finfo);
	for (int i = 0; i < count; i++)
		if (finfo.fn_addr == functions[i])
			found[i] = function;
}

void
GgFindMembers(Oid member, const PGFunction *functions, int count, Oid *found, Oid *am)
{
	Oid			extension = getExtensionOfObject(ProcedureRelationId, member);
	Relation	depend;
	SysScanDesc scan;
	ScanKeyData key[2];
	HeapTuple	tuple;

	*am = InvalidOid;
	memset(found, 0, count * sizeof(Oid));
	if (!OidIsValid(extension))
		return;
	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyInit(&key[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(ExtensionRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(extension));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2, key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		const Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);

		if (form->deptype != DEPENDENCY_EXTENSION)
			continue;
		if (form->classid == ProcedureRelationId)
			TakeFunction(form->objid, functions, count, found);
		else if (form->classid == AccessMethodRelationId)
			*am = form->objid;
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
}
