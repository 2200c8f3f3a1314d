/*
 * version.c
 *		Pins of a resident's versions.
 *
 * A version is not closed as long as it is pinned: by queries in flight (dispatch.c), and by a load
 * that copies rows of it (resident_load.c).
 */
#include "service/worker/worker.h"

GgResidentVersion *
GgResidentPin(GgWorker *worker, uint32 place, uint32 serial)
{
	uint32		entry = GgEntryOf(place);
	GgResidentVersion *version;

	if (entry >= gg_service->max_residents)
		return NULL;
	version = GgVersionAt(worker, place);
	if (!version->live || version->serial != serial ||
		worker->device->residents[entry].state != GG_RESIDENT_READY)
		return NULL;
	version->pins++;
	return version;
}

void
GgResidentUnpin(GgWorker *worker, uint32 place)
{
	uint32		entry = GgEntryOf(place);
	GgResidentVersion *version = GgVersionAt(worker, place);

	Assert(version->pins > 0);
	if (--version->pins == 0 &&
		(version->replaced || worker->device->residents[entry].state == GG_RESIDENT_EVICTING))
		pg_atomic_write_u32(&worker->device->work, 1);
}

void
GgNoteVersion(GgResident *resident, const GgResidentVersion *version)
{
	resident->bytes = version->bytes;
	resident->now.forms = version->forms;
	resident->host_bytes = 0;
	for (uint32 i = 0; i < version->nlists; i++)
		if (version->lists[i] != NULL)
			resident->host_bytes += version->host_bytes[i];
}
