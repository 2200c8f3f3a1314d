/*
 * emulator.h
 *		A device that is the host's processor: threads of a block are fibers of the thread that
 *		launched them.
 *
 * A fiber runs until it waits for others, at a barrier or an operation of its warp; then the next
 * one that can go on does, on the same host thread.  So a launch has ended when it returns, and
 * a kernel's threads meet nowhere but where they wait.  Blocks run one after the other, those of a
 * cluster and those of a cooperative launch together.  Every other launch takes blocks, warps and
 * lanes in descending order: what depends on the order shows in a difference.
 *
 * A kernel ends the program, with a message that says where its threads are, when
 *	- all that have not ended wait, for others that never come;
 *	- lanes of one mask are at different operations, or one reads from a lane that is not there;
 *	- a copy, a row of a matrix or a piece of a row is not aligned;
 *	- it writes to a block's shared memory of a cluster that has not begun or has ended;
 *	- shared memory, with what cudaFuncSetAttribute() asks for, is more than a block may have;
 *	- threads do nothing but look at memory, for a long time.
 * Asynchronous copies come when they are waited for and not before.  Shared memory and device
 * memory are malloc()'s, and full of 0xA5 at first; so AddressSanitizer sees who leaves them.
 *
 * Not emulated: that stores of one block are seen late, or out of order, by another (fences do
 * nothing); time; launches that run beside the host or each other.
 */
#ifndef EMULATE_EMULATOR_H
#define EMULATE_EMULATOR_H

#include <stddef.h>
#include <stdint.h>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"

struct uint3
{
	unsigned	x;
	unsigned	y;
	unsigned	z;
};

/* Of the launch that the host thread is in. */
extern __thread dim3 gridDim;
extern __thread dim3 blockDim;

namespace emulate
{

struct warp;
struct block;
struct group;

struct copy
{
	void	   *to;
	const void *from;
	uint32_t	bytes;
	uint32_t	taken;			/* of them from `from`; zeros follow */
};

/* One thread of a block. */
struct fiber
{
	uint3		index;			/* threadIdx */
	uint32_t	lane;
	warp	   *its_warp;
	block	   *its_block;

	/* of the operation of the warp that it is at: what it brings, what it gets */
	uint64_t	in[4];
	uint64_t	out[2];
	const char *waits_for;		/* NULL: it does not */
	uint32_t	mask;

	std::vector<copy> copies;	/* that have not come yet */
	std::vector<uint32_t> copy_groups;	/* where each ends */

	void	   *context;		/* where it goes on; see switch_fiber() */
	char	   *stack;
	size_t		stack_bytes;
	void	   *fake_stack;		/* AddressSanitizer's */
};

typedef void (*completion) (warp *w, uint32_t lanes);

struct warp
{
	block	   *its_block;
	fiber	   *fibers;
	uint32_t	lanes;			/* that there are */
	uint32_t	ended;
	uint32_t	ready;			/* to go on */

	/* operations that some lanes of a mask have come to */
	uint32_t	waiting;
	struct
	{
		uint32_t	mask;
		uint32_t	arrived;
		const char *name;
		completion	complete;
	}			at[32];
};

/* One variable of a block in shared memory. */
struct variable
{
	const void *key;
	char	   *memory;
	size_t		bytes;
};

struct block
{
	uint3		index;			/* blockIdx */
	uint32_t	rank;			/* in the group */
	group	   *its_group;
	bool		begun;
	uint32_t	live;			/* threads that have not ended */

	uint32_t	arrived;		/* at the barrier ... */
	const char *barrier;		/* ... of this name, with a number each: */
	uint32_t	truths;			/* that are not 0 */
	uint32_t	found;			/* truths of the last barrier */
	uint32_t	took_part;		/* threads at it */

	std::vector<variable> shared;	/* the first one is the dynamic memory */
};

/* The blocks that run together. */
struct group
{
	dim3		grid;
	dim3		threads;
	uint32_t	blocks;
	bool		cluster;
	bool		descending;
	const char *file;
	int			line;
	std::vector<block> members;
	std::vector<warp> warps;	/* of a block side by side */
	uint32_t	live;			/* threads, of all blocks */
	uint32_t	arrived;		/* at the cluster's barrier */
	uint64_t	looks;			/* since something else happened */
	size_t		dynamic_bytes;	/* of shared memory */
	size_t		asked_bytes;	/* that launches of the kernel may have, or 0: what is usual */
	void		(*run) (void *work);
	void	   *work;
};

/* The fiber that runs; __thread, for an access to thread_local asks whether it was made already. */
extern __thread fiber *self;

[[noreturn]] extern void fail(const char *format,...) __attribute__((format(printf, 1, 2)));

/* ---- what threads wait for ---------------------------------------------------- */

/* complete() is called by the last lane of the mask that comes, and makes what all get. */
extern void warp_operation(uint32_t mask, const char *name, completion complete);
extern void block_barrier(const char *name, bool truth);
extern void cluster_barrier(void);

/* A look at memory that another thread is to write. */
extern void look_again(void);

/* ---- memory -------------------------------------------------------------------- */

extern void *dynamic_shared(void);
extern void *static_shared(const void *key, size_t bytes, size_t align);
extern void *cluster_address(const void *address, uint32_t rank);
extern uint32_t cluster_blocks(void);
extern uint32_t cluster_rank(void);
extern void copy_later(void *to, const void *from, uint32_t bytes, uint32_t taken);
extern void copies_commit(void);
extern void copies_wait(uint32_t pending);

/* ---- launches ------------------------------------------------------------------- */

struct grid
{
	const char *file;
	int			line;
	dim3		blocks;
	dim3		threads;
	size_t		shared_bytes;
	uint32_t	cluster;		/* 0: none */
	bool		cooperative;
	cudaStream_t stream;
};

/* run(work) is one thread's call. */
extern cudaError_t launch_grid(const grid &shape, const void *kernel, void (*run) (void *work),
							   void *work);

/* How cudaLaunchKernelExC() calls a kernel that is a bare address. */
typedef void (*caller) (const void *kernel, void **arguments);
extern void know_kernel(const void *kernel, caller call);

template <typename... P, size_t... I>
static inline void
call_kernel(void (*kernel) (P...), void **arguments, std::index_sequence<I...>)
{
	(void) arguments;
	kernel(*(std::remove_cv_t<P> *) arguments[I]...);
}

template <typename... P>
static void
call_kernel_at(const void *kernel, void **arguments)
{
	call_kernel((void (*) (P...)) kernel, arguments, std::index_sequence_for<P...>());
}

/* kernel<<<...>>>(arguments): each thread gets a copy of them. */
template <typename... P, typename... A>
static inline void
launch(const grid &shape, void (*kernel) (P...), A &&... arguments)
{
	struct work
	{
		void		(*kernel) (P...);
		std::tuple<std::remove_cv_t<P>...> arguments;
	}			work = {kernel, {std::forward<A> (arguments)...}};

	(void) launch_grid(shape, (const void *) kernel, [](void *memory)
					   {
						   struct work *its = (struct work *) memory;

						   std::apply(its->kernel, its->arguments);
					   }, &work);
}

static inline grid
grid_of(const char *file, int line, dim3 blocks, dim3 threads, size_t shared_bytes = 0,
		cudaStream_t stream = NULL)
{
	return {file, line, blocks, threads, shared_bytes, 0, false, stream};
}

#define EMULATE_GRID(...) emulate::grid_of(__FILE__, __LINE__, __VA_ARGS__)

/* ---- the device (runtime.cpp) ------------------------------------------------------- */

extern int	multiprocessors(void);
extern cudaError_t remember(cudaError_t error);
extern bool is_of_device(cudaStream_t stream);	/* the thread's */
extern cudaError_t function_shared(const void *kernel, size_t bytes);
extern size_t function_shared_limit(const void *kernel);
extern size_t function_shared_asked(const void *kernel);

#define EMULATE_SHARED_BYTES (227 * 1024)	/* that a block may ask for; H200 */
#define EMULATE_SHARED_USUAL (48 * 1024)	/* without asking */

}

#endif							/* EMULATE_EMULATOR_H */
