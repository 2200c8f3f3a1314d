/*
 * device_error.c
 *		A device's errors: what is logged, and when the worker tries again.
 *
 * A device that fails takes its context with it, and with that everything resident.  The worker
 * logs that once and exits, and the postmaster starts it again a second later.  It then waits
 * until the breaker lets it try: for a second after a first failure, and twice as long after each
 * further one.  After a minute without a failure it starts over.
 */
#include "service/worker/worker.h"

#include "storage/ipc.h"
#include "utils/timestamp.h"

#define BACKOFF_FIRST_S		1
#define BACKOFF_MOST_S		60
/* a driver that is missing will hardly be there in a minute */
#define BACKOFF_NO_DEVICE_S	300
#define HEALTHY_AFTER_S		60

static void
RememberError(GgDeviceStats *stats, const gg_status *status)
{
	snprintf(stats->last_error, sizeof(stats->last_error), "%s%s%s",
			 status->where ? status->where : "", status->where ? ": " : "", status->message);
	stats->last_error_at = GetCurrentTimestamp();
}

/* Remember an error; true when it is another than the last one. */
static bool
IsNews(GgDeviceStats *stats, const gg_status *status)
{
	char		before[sizeof(stats->last_error)];

	strlcpy(before, stats->last_error, sizeof(before));
	RememberError(stats, status);
	return strcmp(before, stats->last_error) != 0;
}

void
GgDeviceTrouble(GgWorker *worker, const gg_status *status)
{
	GgDeviceStats *stats = &worker->device->stats;
	TimestampTz before = stats->last_error_at;

	if (IsNews(stats, status) ||
		TimestampDifferenceExceeds(before, stats->last_error_at, HEALTHY_AFTER_S * 1000))
		ereport(LOG,
				(errmsg("gpugraph device %d: %s", worker->device->number, status->message),
				 status->device_error ?
				 errdetail("%s returned device error %d.", status->where, status->device_error) :
				 errdetail("Reported by %s.", status->where),
				 errhint("The CPU answers the queries concerned.")));
}

void
GgDeviceLost(GgWorker *worker, const gg_status *status)
{
	GgDevice   *device = worker->device;
	bool		was_up = worker->upload != NULL;
	int			most = status->code == GG_ENODEVICE ? BACKOFF_NO_DEVICE_S : BACKOFF_MOST_S;
	uint64		now = GgNowMicros();
	int			pause;
	bool		first;

	if (was_up && now > device->up_since_us + HEALTHY_AFTER_S * UINT64CONST(1000000))
		device->failures = 0;
	first = device->failures == 0;
	pause = device->failures < 16 ? Min(BACKOFF_FIRST_S << device->failures, most) : most;

	/* the same error in a row is logged once, as long as nothing worked in between */
	if (IsNews(&device->stats, status) || first)
		ereport(LOG,
				(errmsg("gpugraph device %d cannot be used: %s", device->number, status->message),
				 status->device_error ?
				 errdetail("%s returned device error %d.", status->where, status->device_error) :
				 errdetail("Reported by %s.", status->where),
				 errhint("%s; the device is tried again in %d s, then less and less often.",
						 gg_service->ndevices == 1 ? "Queries are answered by the CPU" :
						 "Queries are answered by other devices, or by the CPU", pause)));
	device->failures++;
	device->not_before_us = now + pause * UINT64CONST(1000000);
	worker->lost = true;

	/*
	 * A new process has to ask the driver again.  But that there is no GPU is no news, and the
	 * postmaster logs every exit with a status other than 0.  After an exit with status 0 it does
	 * not start this worker again, so the worker registers a successor (LeaveService()).
	 */
	worker->quiet_end = !was_up && status->code == GG_ENODEVICE;
	proc_exit(1);
}
