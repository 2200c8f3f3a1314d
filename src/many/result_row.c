/*
 * result_row.c
 *		A tuple that serves for all rows of a result.
 */
#include "many/batch.h"

#include "access/htup_details.h"

HeapTuple
GgFormRow(TupleDesc desc, Size bytes, void **data)
{
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *nulls = palloc0(desc->natts * sizeof(bool));
	void	   *zeros = palloc0(bytes);
	HeapTuple	tuple;

	for (int i = 0; i < desc->natts; i++)
		values[i] = TupleDescAttr(desc, i)->attbyval ? (Datum) 0 : PointerGetDatum(zeros);
	tuple = heap_form_tuple(desc, values, nulls);
	if (tuple->t_len != tuple->t_data->t_hoff + bytes)
		elog(ERROR, "a row of the result has %u bytes", tuple->t_len);
	*data = (char *) tuple->t_data + tuple->t_data->t_hoff;
	return tuple;
}
