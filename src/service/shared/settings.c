/*
 * settings.c
 *		Settings of the service, and which devices they name.
 *
 * The postmaster makes no CUDA call, since a context does not survive fork().  So the number of
 * devices for gpugraph.devices = 'all' is what the kernel module lists in /proc, and at least one.
 * A worker that finds its device not there (CUDA_VISIBLE_DEVICES may hide some) ends for good.
 * Where the kernel module is loaded only after PostgreSQL has started, gpugraph.devices has to name
 * the devices.
 */
#include "service/shared/settings.h"

#include <dirent.h>

#include "utils/guc.h"

int			gg_service_engine = GG_SERVICE_CUDA;
static char *devices = NULL;	/* gpugraph.devices: "all", or a list of numbers; postmaster */
int			gg_device_storage = GG_STORAGE_AUTO;
int			gg_host_memory_mb = -1;
int			gg_device_memory_mb = 0;
int			gg_device_timeout_ms = 30000;
bool		gg_autoprewarm = true;
int			gg_max_residents = 1024;
int			gg_answer_chunks = 32;
int			gg_loaders = 4;
int			gg_fault = GG_FAULT_NONE;

static const struct config_enum_entry service_engine_values[] = {
	{"cuda", GG_SERVICE_CUDA, false},
	{"cpu", GG_SERVICE_CPU, false},
	{NULL, 0, false}
};

static const struct config_enum_entry device_storage_values[] = {
	{"auto", GG_STORAGE_AUTO, false},
	{"full", GG_STORAGE_FULL, false},
	{"codes", GG_STORAGE_CODES, false},
	{NULL, 0, false}
};

static const struct config_enum_entry fault_values[] = {
#define FAULT_ENTRY(name, member)	{#name, GG_FAULT_##member, false},
	GG_FAULTS(FAULT_ENTRY)
#undef FAULT_ENTRY
	{NULL, 0, false}
};

/* How many devices the kernel module knows. */
static int
CountListedDevices(void)
{
	DIR		   *dir = opendir("/proc/driver/nvidia/gpus");
	struct dirent *entry;
	int			count = 0;

	if (dir == NULL)
		return 0;
	while ((entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.')
			count++;
	closedir(dir);
	return count;
}

/* Device numbers from "all" or "0, 2"; -1 when it is neither. */
static int
ParseDevices(const char *value, int *numbers)
{
	int			count = 0;

	while (isspace((unsigned char) *value))
		value++;
	if (*value == '\0')
		return 0;
	if (pg_strcasecmp(value, "all") == 0)
	{
		count = gg_service_engine == GG_SERVICE_CPU ? 1 : CountListedDevices();
		count = Min(Max(count, 1), GG_MAX_DEVICES);
		for (int i = 0; i < count; i++)
			numbers[i] = i;
		return count;
	}
	for (;;)
	{
		char	   *end;
		long		number = strtol(value, &end, 10);

		if (end == value || number < 0 || number > 1023 || count == GG_MAX_DEVICES)
			return -1;
		for (int i = 0; i < count; i++)
			if (numbers[i] == number)
				return -1;
		numbers[count++] = (int) number;
		while (isspace((unsigned char) *end))
			end++;
		if (*end == '\0')
			return count;
		if (*end != ',')
			return -1;
		value = end + 1;
	}
}

static bool
CheckDevices(char **newval, void **extra, GucSource source)
{
	int			numbers[GG_MAX_DEVICES];

	if (ParseDevices(*newval, numbers) >= 0)
		return true;
	GUC_check_errdetail("Give \"all\", or up to %d different device numbers separated by commas.",
						GG_MAX_DEVICES);
	return false;
}

int
GgDevicesOfSetting(int *numbers)
{
	return Max(ParseDevices(devices, numbers), 0);
}

const gg_engine *
GgServiceOps(void)
{
	if (gg_service_engine == GG_SERVICE_CPU)
		return &gg_cpu_engine;
#ifdef GG_WITH_CUDA
	return &gg_cuda_engine;
#else
	return NULL;
#endif
}

static bool
WarnOfAutoprewarm(bool *value, void **extra, GucSource source)
{
	GgWarnOfOldSetting("gpugraph.autoprewarm", source,
					   "Add \"autoprewarm\" to gpugraph.disable in postgresql.conf instead.");
	return true;
}

static bool
WarnOfLoadWorkers(int *value, void **extra, GucSource source)
{
	GgWarnOfOldSetting("gpugraph.load_workers", source,
					   "Leave it out: four processes read an index.");
	return true;
}

void
GgDefineServiceSettings(bool preloading)
{
	/*
	 * Without preloading the service's own settings mean nothing, but a configuration that has
	 * them is no mistake.
	 */
	GucContext	at_start = preloading ? PGC_POSTMASTER : PGC_SIGHUP;

	DefineCustomEnumVariable("gpugraph.service_engine",
							 "Sets what the GPU service's workers run on.",
							 "\"cpu\" lets the CPU engine play a device, for tests.",
							 &gg_service_engine,
							 GG_SERVICE_CUDA, service_engine_values,
							 at_start, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("gpugraph.devices",
							   "Sets the GPUs that the GPU service uses.",
							   "\"all\", or device numbers separated by commas; "
							   "empty for no service.",
							   &devices,
							   "all",
							   at_start, 0, CheckDevices, NULL, NULL);
	DefineCustomIntVariable("gpugraph.device_memory",
							"Sets how much memory of each GPU resident indexes may take, "
							"and a build beside them.",
							"0 means nine tenths of the GPU's memory.",
							&gg_device_memory_mb,
							0, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomEnumVariable("gpugraph.device_storage",
							 "Sets in which form a GPU holds indexes.",
							 "\"full\": rows; \"codes\": codes for searches, and rows beside these "
							 "or in the host's memory; \"auto\": rows, and where there is no room "
							 "codes with rows in the host's memory.",
							 &gg_device_storage,
							 GG_STORAGE_AUTO, device_storage_values,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("gpugraph.host_memory",
							"Sets how much of the host's memory each GPU may have pinned for rows.",
							"-1 means an eighth of what the server may have.",
							&gg_host_memory_mb,
							-1, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("gpugraph.device_timeout",
							"Sets after how long a GPU that does not answer is taken to hang.",
							"The worker of the GPU is then replaced. 0 means never.",
							&gg_device_timeout_ms,
							30000, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomBoolVariable("gpugraph.autoprewarm",
							 "Loads the indexes that were on a GPU again after a restart.",
							 NULL,
							 &gg_autoprewarm,
							 true,
							 PGC_SIGHUP, GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE,
							 WarnOfAutoprewarm, NULL, NULL);
	DefineCustomIntVariable("gpugraph.max_residents",
							"Sets how many indexes each GPU may hold at a time.",
							"For tests.",
							&gg_max_residents,
							1024, 16, GG_MOST_RESIDENTS,
							at_start, GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
	DefineCustomIntVariable("gpugraph.answer_chunks",
							"Sets how many long answers of GPUs there is memory for at a time.",
							"For tests.",
							&gg_answer_chunks,
							32, 1, 4096,
							at_start, GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
	DefineCustomIntVariable("gpugraph.load_workers",
							"Sets how many processes read a big index that is loaded to a GPU.",
							NULL,
							&gg_loaders,
							4, 1, 32,
							PGC_SIGHUP, GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE,
							WarnOfLoadWorkers, NULL, NULL);
	DefineCustomEnumVariable("gpugraph.fault",
							 "Makes the GPU service fail, or a merge or VACUUM rest, for tests.",
							 NULL,
							 &gg_fault,
							 GG_FAULT_NONE, fault_values,
							 PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
}
