/*
 * validate.c
 *		Checks that an operator class of this access method is complete.
 */
#include "am/am.h"
#include "storage/filter_keys.h"
#include "storage/type.h"

#include "access/amvalidate.h"
#include "access/htup_details.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_amproc.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "utils/catcache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

#define COMPLAIN(...) \
	do { \
		ereport(INFO, (errcode(ERRCODE_INVALID_OBJECT_DEFINITION), errmsg(__VA_ARGS__))); \
		result = false; \
	} while (0)

/*
 * A vector class has support function 1 and the distance operator, and nothing else.  A filter
 * column's class has search operators alone, of which scans know what they mean.
 */
static bool
ValidateClass(Form_pg_opclass classform)
{
	const char *name = NameStr(classform->opcname);
	const bool	filter = GgIsFilterType(classform->opcintype);
	bool		result = true;
	bool		has_operator = false,
				has_support = filter;
	CatCList   *list;

	list = SearchSysCacheList1(AMPROCNUM, ObjectIdGetDatum(classform->opcfamily));
	for (int i = 0; i < list->n_members; i++)
	{
		Form_pg_amproc proc = (Form_pg_amproc) GETSTRUCT(&list->members[i]->tuple);

		if (proc->amproclefttype != classform->opcintype)
			continue;
		if (filter || proc->amprocnum != GG_OPCLASS_PROC)
			COMPLAIN("gpugraph operator class \"%s\" has support function %s "
					 "with invalid number %d",
					 name, format_procedure(proc->amproc), proc->amprocnum);
		else if (!check_amproc_signature(proc->amproc, INTERNALOID, true, 1, 1, INTERNALOID))
			COMPLAIN("gpugraph operator class \"%s\" has support function %s "
					 "with a wrong signature",
					 name, format_procedure(proc->amproc));
		else
			has_support = true;
	}
	ReleaseCatCacheList(list);

	list = SearchSysCacheList1(AMOPSTRATEGY, ObjectIdGetDatum(classform->opcfamily));
	for (int i = 0; i < list->n_members; i++)
	{
		Form_pg_amop op = (Form_pg_amop) GETSTRUCT(&list->members[i]->tuple);

		if (op->amoplefttype != classform->opcintype)
			continue;
		if (filter && (op->amoppurpose != AMOP_SEARCH ||
					   !GgFilterStrategyIsKnown(op->amoplefttype, op->amopstrategy) ||
					   !GgFilterTypesCompare(op->amoplefttype, op->amoprighttype)))
			COMPLAIN("gpugraph operator class \"%s\" has operator %s "
					 "that is no condition on a filter column of its type",
					 name, format_operator(op->amopopr));
		else if (!filter && (op->amopstrategy != GG_DISTANCE_STRATEGY ||
							 op->amoppurpose != AMOP_ORDER))
			COMPLAIN("gpugraph operator class \"%s\" has operator %s "
					 "that is not ordering strategy %d",
					 name, format_operator(op->amopopr), GG_DISTANCE_STRATEGY);
		else if (!check_amop_signature(op->amopopr, filter ? BOOLOID : FLOAT8OID,
									   op->amoplefttype, op->amoprighttype))
			COMPLAIN("gpugraph operator class \"%s\" has operator %s with a wrong signature",
					 name, format_operator(op->amopopr));
		else
			has_operator = true;
	}
	ReleaseCatCacheList(list);

	if (!has_operator)
		COMPLAIN("gpugraph operator class \"%s\" has no operators of its kind", name);
	if (!has_support)
		COMPLAIN("gpugraph operator class \"%s\" is missing support function %d",
				 name, GG_OPCLASS_PROC);
	return result;
}

bool
ggvalidate(Oid opclassoid)
{
	HeapTuple	classtup = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclassoid));
	Form_pg_opclass classform;
	bool		result;

	if (!HeapTupleIsValid(classtup))
		elog(ERROR, "cache lookup failed for operator class %u", opclassoid);
	classform = (Form_pg_opclass) GETSTRUCT(classtup);
	result = ValidateClass(classform);
	ReleaseSysCache(classtup);
	return result;
}
