/*
 * test_segment_plan.c
 *		How many rows go into a segment of a build, by the memory of host and device.
 */
#include "../../src/engine/rules/segment_plan.h"
#include "harness.h"

static gg_segment_plan
plan_of(double expected, uint32_t host, uint32_t host_alone, uint32_t spilled, uint32_t device)
{
	gg_segment_room room = {.expected = expected, .host = host, .host_alone = host_alone,
	.spilled = spilled, .device = device};

	return gg_plan_segments(&room);
}

static void
check_plan(const char *what, gg_segment_plan plan, uint32_t rows, bool spill, bool by_device,
		   bool too_small)
{
	CHECK(plan.rows == rows && plan.spill == spill && plan.by_device == by_device &&
		  plan.too_small == too_small,
		  "%s: %u rows, spill %d, by device %d, too small %d", what, plan.rows, plan.spill,
		  plan.by_device, plan.too_small);
}

static void
test_host(void)
{
	const uint32_t any = GG_MAX_NODES;

	check_plan("all fits", plan_of(5000, 10000, 20000, 90000, any), 20000, false, false, false);
	check_plan("twice the setting is enough", plan_of(20000, 10000, 20000, 90000, any), 20000,
			   false, false, false);
	check_plan("rows go to files", plan_of(20001, 10000, 20000, 90000, any), 90000, true, false,
			   false);
	check_plan("several segments of files", plan_of(500000, 10000, 20000, 90000, any), 90000, true,
			   false, false);
	check_plan("without files", plan_of(50000, 10000, 20000, 0, any), 10000, false, false, false);
	check_plan("files are no help", plan_of(50000, 10000, 20000, 9000, any), 10000, false, false,
			   false);
	/* the host gives more than the setting rather than more or smaller segments */
	check_plan("too many segments", plan_of(1600000, 10000, 20000, 0, any), 100001, false, false,
			   false);
	check_plan("too many, of files", plan_of(1600000, 10000, 20000, 90000, any), 100001, true,
			   false, false);
	check_plan("too small", plan_of(50, 10, 20, 0, any), GG_LEAST_SEGMENT_ROWS, false, false,
			   false);
	check_plan("nothing is known", plan_of(0, 10000, 20000, 90000, any), 20000, false, false,
			   false);
	check_plan("more than there can be", plan_of(1e15, 10000, 20000, 90000, any), GG_MAX_NODES,
			   true, false, false);
}

static void
test_device(void)
{
	check_plan("all fits", plan_of(5000, 10000, 20000, 90000, 5000), 5000, false, true, false);
	check_plan("the device holds less", plan_of(9000, 10000, 20000, 90000, 4000), 4000, false,
			   true, false);
	check_plan("the host holds less", plan_of(9000, 3000, 3000, 0, 4000), 3000, false, false,
			   false);
	check_plan("less than memory: no files", plan_of(50000, 10000, 20000, 90000, 8000), 8000,
			   false, true, false);
	check_plan("more than memory: files", plan_of(50000, 10000, 20000, 90000, 30000), 30000, true,
			   true, false);
	check_plan("as many as the device", plan_of(30000, 10000, 20000, 90000, 30000), 30000, true,
			   true, false);
	/* what a device does not have it cannot exceed */
	check_plan("just 16 segments", plan_of(160000, 200000, 200000, 0, 10001), 10001, false, true,
			   false);
	check_plan("too many segments", plan_of(160000, 200000, 200000, 0, 10000), 10000, false, true,
			   true);
	check_plan("too small", plan_of(5000, 200000, 200000, 0, 999), 999, false, true, true);
	check_plan("no room at all", plan_of(5000, 200000, 200000, 0, 0), 0, false, true, true);
}

/* A user who wants small segments gets them, but not too many, and none that a device has not. */
static void
test_wish(void)
{
	gg_segment_room room = {.expected = 50000, .host = 10000, .host_alone = 20000,
	.spilled = 90000, .device = GG_MAX_NODES, .wanted = 30000};

	CHECK(gg_plan_segments(&room).by_wish, "fewer than memory holds");
	check_plan("of files", gg_plan_segments(&room), 30000, true, false, false);
	room.wanted = 7000;
	check_plan("in memory", gg_plan_segments(&room), 7000, false, false, false);
	room.device = 6000;
	check_plan("the device holds less", gg_plan_segments(&room), 6000, false, true, false);
	room.device = GG_MAX_NODES;
	room.wanted = 10;
	check_plan("too many segments", gg_plan_segments(&room), 50000 / 16 + 1, false, false, false);
	room.wanted = 90000;
	CHECK(!gg_plan_segments(&room).by_wish, "more than memory holds");
	check_plan("more than memory holds", gg_plan_segments(&room), 90000, true, false, false);
}

/* Whatever there is room for: never more than the device, and enough for all in 16 segments. */
static void
test_bounds(void)
{
	harness_random random = {7};
	uint64_t	broken = 0;

	for (int i = 0; i < 100000; i++)
	{
		double		expected = harness_unit(&random) * harness_unit(&random) * 2e9;
		uint32_t	host = (uint32_t) (harness_unit(&random) * harness_unit(&random) * 1e9) + 1;
		uint32_t	alone = host + (uint32_t) (harness_unit(&random) * host);
		uint32_t	spilled = harness_unit(&random) < 0.3 ? 0 : alone / 2 + GG_MAX_NODES / 4;
		uint32_t	device = harness_unit(&random) < 0.3 ? GG_MAX_NODES :
			(uint32_t) (harness_unit(&random) * 1e9);
		gg_segment_plan plan = plan_of(expected, host, alone, spilled, device);

		broken += plan.rows > device || plan.by_device != (plan.rows == device &&
														   device < GG_MAX_NODES);
		broken += !plan.too_small &&
			(plan.rows < GG_LEAST_SEGMENT_ROWS || plan.rows < expected / GG_MAX_BUILD_SEGMENTS);
		broken += plan.too_small && device == GG_MAX_NODES;
		broken += plan.spill && spilled == 0;
	}
	CHECK(broken == 0, "%llu plans", (unsigned long long) broken);
}

int
main(void)
{
	harness_run("host", test_host);
	harness_run("device", test_device);
	harness_run("wish", test_wish);
	harness_run("bounds", test_bounds);
	return harness_finish();
}
