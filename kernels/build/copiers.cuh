/*
 * copiers.cuh
 *		Threads that copy pieces between the host's memory and the device's, each on its own stream
 *		and through pinned memory of its own.
 */
#ifndef GG_CUDA_COPIERS_CUH
#define GG_CUDA_COPIERS_CUH

#include "../graph/stages.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <signal.h>
#include <thread>
#include <vector>

/* Pinned memory of a thread. */
#define PIECE_BYTES ((size_t) 2 << 20)
#define MOST_COPIERS 8

/* Start a thread that no signal reaches. */
template <typename RUN>
static std::thread
quiet_thread(RUN run)
{
	sigset_t	all;
	sigset_t	before;
	std::thread thread;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	try
	{
		thread = std::thread(run);
	}
	catch (...)
	{
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		throw;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return thread;
}

/* Threads that copy pieces between the host's memory and the device's, each on its own stream. */
class copiers
{
public:
	typedef std::function<gg_status (char *pinned, cudaStream_t stream, uint64_t piece)> work;

	copiers() : next_(0), left_(0), stopping_(false), device_(0)
	{
	}
	~copiers()
	{
		stop();
		for (char *memory : pinned_)
			(void) cudaFreeHost(memory);
	}
	copiers(const copiers &) = delete;
	copiers &operator=(const copiers &) = delete;

	/* Take streams and pinned memory on the thread's device, for `wanted` threads at most. */
	gg_status
	create(int wanted)
	{
		GG_CUDA_TRY(cudaGetDevice(&device_));
		for (int i = 0; i < MOST_COPIERS && i < wanted; i++)
		{
			void	   *memory;

			GG_TRY(streams_[i].create());
			GG_CUDA_TRY(cudaHostAlloc(&memory, PIECE_BYTES, cudaHostAllocDefault));
			pinned_.push_back((char *) memory);
		}
		return gg_ok();
	}

	/* Have copy() called for each piece. */
	void
	start(uint64_t pieces, work copy)
	{
		next_.store(0);
		left_.store((int) pinned_.size());
		results_.assign(pinned_.size(), gg_ok());
		for (size_t i = 0; i < pinned_.size(); i++)
			threads_.push_back(quiet_thread([this, i, pieces, copy]
											{
												results_[i] = run(i, pieces, copy);
												left_.fetch_sub(1);
											}));
	}

	/* Wait for copies that have begun, and leave the other pieces. */
	void
	stop()
	{
		stopping_.store(true);
		join();
		stopping_.store(false);
	}

	/* Wait until all pieces are copied. */
	gg_status
	wait(const gg_control *control)
	{
		gg_status	status = gg_ok();

		while (left_.load() > 0 && status.code == GG_OK)
		{
			std::this_thread::sleep_for(std::chrono::microseconds(200));
			status = gg_cuda_check_cancel(control, __func__);
		}
		if (status.code != GG_OK)
			stop();
		join();
		for (const gg_status &one : results_)
			if (status.code == GG_OK)
				status = one;
		return status;
	}

private:
	gg_status
	run(size_t number, uint64_t pieces, const work &copy)
	{
		GG_CUDA_TRY(cudaSetDevice(device_));
		for (uint64_t piece = next_.fetch_add(1); piece < pieces && !stopping_.load();
			 piece = next_.fetch_add(1))
			GG_TRY(copy(pinned_[number], streams_[number].get(), piece));
		return gg_ok();
	}

	void
	join()
	{
		for (std::thread &thread : threads_)
			thread.join();
		threads_.clear();
	}

	std::vector<std::thread> threads_;
	std::vector<char *> pinned_;
	std::vector<gg_status> results_;
	gg_cuda_stream streams_[MOST_COPIERS];
	std::atomic<uint64_t> next_;
	std::atomic<int> left_;
	std::atomic<bool> stopping_;
	int			device_;
};

/* Stops threads at the end of a scope; it is declared behind what they copy. */
class copies_end
{
public:
	copies_end(copiers *threads) : threads_(threads)
	{
	}
	~copies_end()
	{
		threads_->stop();
	}
	copies_end(const copies_end &) = delete;
	copies_end &operator=(const copies_end &) = delete;

private:
	copiers    *threads_;
};

#endif							/* GG_CUDA_COPIERS_CUH */
