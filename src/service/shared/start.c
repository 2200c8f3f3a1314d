/*
 * start.c
 *		How the service starts: its settings, its memory and its workers are made known.
 *
 * The postmaster does this.  A worker that ends has its successor started, too.
 */
#include "service/shared/shmem.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "utils/guc.h"

void
GgDescribeWorker(BackgroundWorker *worker, const char *type, const char *function, Datum arg)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	/* a hot standby is searched, too */
	worker->bgw_start_time = BgWorkerStart_ConsistentState;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker->bgw_library_name, "gpugraph", sizeof(worker->bgw_library_name));
	strlcpy(worker->bgw_function_name, function, sizeof(worker->bgw_function_name));
	strlcpy(worker->bgw_name, type, sizeof(worker->bgw_name));
	strlcpy(worker->bgw_type, type, sizeof(worker->bgw_type));
	worker->bgw_main_arg = arg;
}

void
GgReloadSettings(void)
{
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/* i: the device's place in gg_service->devices. */
static void
DescribeDeviceWorker(BackgroundWorker *worker, int i, int number)
{
	GgDescribeWorker(worker, "gpugraph device", "GgWorkerMain", Int32GetDatum(i));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker->bgw_restart_time = 1;
	snprintf(worker->bgw_name, BGW_MAXLEN, "gpugraph device %d", number);
}

bool
GgStartWorker(GgDevice *device)
{
	BackgroundWorker worker;
	int			i = 0;

	while (gg_service->devices[i] != device)
		i++;
	DescribeDeviceWorker(&worker, i, device->number);
	return RegisterDynamicBackgroundWorker(&worker, NULL);
}

void
GgServiceInit(void)
{
	bool		preloading = process_shared_preload_libraries_in_progress;
	int			numbers[GG_MAX_DEVICES];
	int			count;

	GgDefineServiceSettings(preloading);
	if (!preloading)
		return;

	count = GgDevicesOfSetting(numbers);
	if (count == 0)
		return;
	if (GgServiceOps() == NULL)
	{
		ereport(LOG,
				(errmsg("gpugraph was built without CUDA: there will be no GPU service"),
				 errhint("Build gpugraph with nvcc, or set gpugraph.devices to an empty "
						 "string.")));
		return;
	}
	GgUseServiceMemory(count, numbers);
	for (int i = 0; i < count; i++)
	{
		BackgroundWorker worker;

		DescribeDeviceWorker(&worker, i, numbers[i]);
		RegisterBackgroundWorker(&worker);
	}
}
